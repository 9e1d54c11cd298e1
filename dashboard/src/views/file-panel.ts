// One SST in detail: its facts, the heat of its filter partitions, and its learned model.
import type { FileFilters, FileShape, Filters, Model } from "../api.ts";
import { get } from "../client.ts";
import { css, heatShare, RAMP_STEPS } from "../color.ts";
import { h, replace, s } from "../dom.ts";
import { ago, bytes, count, engineKey, fileName, percent, plural } from "../format.ts";
import { currentRamp, partitionHeat } from "../heat.ts";
import type { Store } from "../store.ts";
import { onTheme } from "../theme.ts";

export function filePanel(store: Store): HTMLElement {
  const root = h("div", { class: "file-panel", hidden: true, role: "region", "aria-label": "Chosen SST" });
  let asked = 0;
  let known: { filters: FileFilters | null; model: Model | null; note: string } = { filters: null, model: null, note: "" };

  const draw = (): void => {
    const chosen = store.selectedFile();
    root.hidden = chosen === null;
    if (chosen === null) return;
    const family = store.family()!.name;
    const { file, level } = chosen;
    const close = h("button", { class: "icon", type: "button", title: "Close (Escape)", "aria-label": "Close", onclick: () => store.select(null) }, "×");
    replace(root,
      h("div", { class: "file-head" }, h("h3", {}, `L${level} ${fileName(file.number)}`), close),
      factList(file, family, store.live?.summary.now_ms ?? Date.now()),
      h("div", { class: "file-parts" },
        h("div", {}, h("h4", {}, "Filter partitions"), known.filters === null ? h("p", { class: "muted" }, known.note || "asking …") : filterStrip(known.filters)),
        h("div", {}, h("h4", {}, "Learned model"), known.model === null
          ? h("p", { class: "muted" }, known.note || "None: this file is read through its index partitions.") : modelPicture(known.model)),
      ));
  };

  const load = async (): Promise<void> => {
    const chosen = store.selectedFile();
    if (chosen === null) return;
    const ticket = ++asked;
    const family = store.family()!.name;
    const query = { family, file: chosen.file.number };
    const [filters, model] = await Promise.allSettled([get<Filters>("filters", query), get<Model | null>("model", query)]);
    if (ticket !== asked) return;
    const failed = [filters, model].find((answer) => answer.status === "rejected");
    known = {
      filters: filters.status === "fulfilled" ? (filters.value.files[0] ?? null) : null,
      model: model.status === "fulfilled" ? model.value : null,
      note: failed === undefined ? "" : String((failed.reason as Error).message),
    };
    draw();
  };

  let again = 0;
  store.on("selection", () => {
    known = { filters: null, model: null, note: "" };
    draw();
    void load();
  });
  store.on("live", () => {
    if (store.selected !== null && ++again % 3 === 0) void load();
  });
  onTheme(draw);
  return root;
}

function factList(file: FileShape, family: string, now_ms: number): HTMLElement {
  const rows: [string, string][] = [
    ["from", engineKey(file.smallest, family, 60)], ["to", engineKey(file.largest, family, 60)],
    ["size", bytes(file.size_bytes)], ["entries", count(file.entry_count)], ["heat", `${count(Math.round(file.heat))} lookups lately`],
    ["filter in memory", `${file.filter_units_in_memory} of ${plural(file.filter_units, "unit")}`],
    ["written", ago(file.created_ms, now_ms)], ["state", file.is_compacting ? "being compacted" : "at rest"],
  ];
  return h("dl", { class: "facts" }, ...rows.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

/** A cell per partition: colour is heat, filled notches are units in memory. */
function filterStrip(filters: FileFilters): HTMLElement {
  const ramp = currentRamp();
  const { partitions } = filters;
  const hottest = Math.max(partitionHeat.value, ...partitions.map(([, , heat]) => heat));
  const most = Math.max(...partitions.map(([units]) => units), 1);
  const width = 100 / Math.max(1, partitions.length);
  const high = 54;
  const svg = s("svg", { class: "strip", viewBox: `0 0 100 ${high}`, preserveAspectRatio: "none", role: "img", "aria-label": "Heat and units of each filter partition" });
  partitions.forEach(([units, loaded, heat], at) => {
    const fill = css(ramp[Math.round(heatShare(heat, hottest) * (RAMP_STEPS - 1))]!);
    const group = s("g", {}, s("title", {}, `partition ${at}: ${loaded} of ${units} units in memory, ${count(Math.round(heat))} lookups lately`));
    for (let unit = 0; unit < units; unit++) {
      const each = high / most;
      group.append(s("rect", {
        x: (at * width + width * 0.06).toFixed(3), width: (width * 0.88).toFixed(3), y: (high - each * (unit + 1) + 1).toFixed(2), height: (each - 2).toFixed(2),
        fill, class: unit < loaded ? "unit" : "unit absent",
      }));
    }
    svg.append(group);
  });
  const loaded = partitions.reduce((sum, p) => sum + p[1], 0);
  const all = partitions.reduce((sum, p) => sum + p[0], 0);
  return h("div", {}, svg, h("p", { class: "muted" }, `${plural(partitions.length, "partition")} in key order; ${loaded} of ${plural(all, "unit")} in memory (solid).`));
}

/** The learned function from key to block as a line, its segments marked, and how far it errs. */
function modelPicture(model: Model): HTMLElement {
  const { segments, blocks } = model;
  const points = segments.map((segment) => [segment.start, segment.first_block / Math.max(1, blocks)] as const);
  const path = [...points, [1, 1] as const].map(([x, y], at) => `${at === 0 ? "M" : "L"}${(x * 200).toFixed(2)} ${(70 - y * 70).toFixed(2)}`).join("");
  const line = s("svg", { class: "model-line", viewBox: "-3 -3 206 76", role: "img", "aria-label": `From key to block in ${segments.length} segments` },
    s("path", { d: `${path}L200 70L0 70Z`, class: "area" }), s("path", { d: path, class: "line" }),
    ...points.map(([x, y], at) => s("circle", { cx: x * 200, cy: 70 - y * 70, r: segments.length > 60 ? 0.8 : 2, class: "knot" },
      s("title", {}, `segment ${at}: ${plural(segments[at]!.keys, "key")} from block ${segments[at]!.first_block}`))));
  const sum = model.error_counts.reduce((a, b) => a + b, 0);
  const most = Math.max(...model.error_counts, 1);
  const each = 200 / Math.max(1, model.error_counts.length);
  const bars = s("svg", { class: "model-errors", viewBox: "0 0 200 60", role: "img", "aria-label": "How far predictions are off" },
    ...model.error_counts.map((n, at) => s("rect", { x: at * each + 1.5, width: each - 3, y: 60 - (56 * n) / most, height: Math.max(0.6, (56 * n) / most), rx: 1.5, class: at === 0 ? "exact" : "off" },
      s("title", {}, `${at === 0 ? "exact" : `up to ${at}/8 of the bound`}: ${plural(n, "prediction")}`))));
  return h("div", { class: "model" },
    h("figure", {}, line, h("figcaption", {}, `${plural(segments.length, "segment")}: key → block`)),
    h("figure", {}, bars, h("figcaption", {}, `error: ${percent(sum > 0 ? (model.error_counts[0] ?? 0) / sum : null)} exact, to the right up to the bound`)),
    h("p", { class: "muted" }, `${bytes(model.model_bytes)} instead of ${bytes(model.index_bytes)} of index for ${plural(model.keys, "key")} in ${plural(blocks, "block")}.`));
}
