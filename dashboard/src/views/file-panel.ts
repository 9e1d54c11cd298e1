// One SST in detail: its facts, the heat of its filter partitions, and its learned model. The panel is built once; what
// changes in it is replaced, so that focus stays where it is.
import type { FileFilters, FileShape, Filters, Model } from "../api.ts";
import { get } from "../client.ts";
import { css, heatShare, RAMP_STEPS } from "../color.ts";
import { h, replace, s, setText } from "../dom.ts";
import { evenly } from "../evenly.ts";
import { ago, bytes, count, engineKey, fileName, neighbours, percent, plural } from "../format.ts";
import { currentRamp, partitionHeat } from "../heat.ts";
import type { Store } from "../store.ts";
import { onTheme } from "../theme.ts";

/** Partitions and segments that are drawn: more are thinner than a pixel. */
const MOST_DRAWN = 500;
/** What is asked for is looked at again with every third event. */
const EVENTS = 3;

/** `leave` is called when the panel closes with the focus inside it. */
export function filePanel(store: Store, leave: () => void): HTMLElement {
  const title = h("h3");
  const close = h("button", { class: "icon", type: "button", title: "Close (Escape)", "aria-label": "Close", onclick: () => store.select(null) }, "×");
  const facts = new Facts();
  const filters = new Part("filters", (answer: Filters) => filterStrip(answer.files[0]));
  const model = new Part("model", modelPicture);
  const filters_head = h("h4");
  const model_head = h("h4");
  const root = h("div", { class: "file-panel", hidden: true, role: "region", "aria-label": "Chosen SST" },
    h("div", { class: "file-head" }, title, close), facts.root,
    h("div", { class: "file-parts" },
      h("div", {}, filters_head, filters.root), h("div", {}, model_head, model.root)));

  const tell = (): void => {
    const chosen = store.selectedFile();
    const has_focus = root.contains(document.activeElement);
    root.hidden = chosen === null;
    if (chosen === null) {
      if (has_focus) leave();
      return;
    }
    const { file, level } = chosen;
    setText(title, `L${level} ${fileName(file.number)}`);
    const whose = (file.file_count ?? 1) > 1 ? " of the first file" : "";
    setText(filters_head, `Filter partitions${whose}`);
    setText(model_head, `Learned model${whose}`);
    facts.tell(factsOf(file, store));
  };
  const load = (): void => {
    const chosen = store.selectedFile();
    if (chosen === null) return;
    const { file } = chosen;
    const query = { family: store.family()!.name, file: file.number };
    void filters.load(query, `${file.filter_units_in_memory} of ${file.filter_units}, ${file.heat}`);
    void model.load(query, String(file.has_model));
  };

  let events = 0;
  store.on("selection", () => {
    filters.clear();
    model.clear();
    tell();
    load();
  });
  store.on("live", () => {
    if (store.selected === null) return;
    tell();
    if (++events % EVENTS === 0) load();
  });
  onTheme(() => filters.draw());
  root.addEventListener("keydown", (event) => {
    if (event.key === "Escape") store.select(null);
  });
  return root;
}

/** Names with values, of which those are replaced that changed. */
class Facts {
  readonly root = h("dl", { class: "facts" });
  private values: HTMLElement[] = [];

  tell(rows: [string, string][]): void {
    if (this.values.length !== rows.length) {
      this.values = rows.map(() => h("dd"));
      replace(this.root, ...rows.map(([name], at) => h("div", {}, h("dt", {}, name), this.values[at]!)));
    }
    rows.forEach(([, value], at) => setText(this.values[at]!, value));
  }
}

/** What is drawn, and in words what it looks like: the same words stand for the same picture. */
interface Picture {
  look: string;
  make: () => HTMLElement;
}

/** A part of the panel that is asked for: again if the file has changed, and drawn again if it would look different. */
class Part<T> {
  readonly root = h("div");
  private answer: T | undefined;
  private state = "";
  private look = "";
  private is_asking = false;
  /** Grows with every choice: answers for another file are of no use. */
  private choice = 0;

  constructor(private readonly path: string, private readonly picture: (answer: T) => Picture) {}

  clear(): void {
    this.choice++;
    this.answer = undefined;
    this.state = this.look = "";
    this.is_asking = false;
    this.note("asking …");
  }

  /** `state` stands for all that the answer depends on. */
  async load(query: Record<string, string | number>, state: string): Promise<void> {
    if (this.is_asking || state === this.state) return;
    const mine = this.choice;
    this.is_asking = true;
    try {
      const answer = await get<T>(this.path, query);
      if (mine !== this.choice) return;
      this.answer = answer;
      this.state = state;
      this.draw();
    } catch (error) {
      if (mine === this.choice && this.answer === undefined) this.note(String((error as Error).message));
    } finally {
      if (mine === this.choice) this.is_asking = false;
    }
  }

  draw(): void {
    if (this.answer === undefined) return;
    const { look, make } = this.picture(this.answer);
    if (look === this.look) return;
    this.look = look;
    replace(this.root, make());
  }

  private note(text: string): void {
    replace(this.root, h("p", { class: "muted" }, text));
  }
}

function factsOf(file: FileShape, store: Store): [string, string][] {
  const family = store.family()!.name;
  const now_ms = store.live?.summary.now_ms ?? Date.now();
  const key = (of: FileShape["smallest"]) => engineKey(of, family, store.slotBytes(), 60);
  return [
    ...neighbours(file), ["from", key(file.smallest)], ["to", key(file.largest)],
    ["size", bytes(file.size_bytes)], ["entries", count(file.entry_count)], ["heat", `${count(Math.round(file.heat))} lookups lately`],
    ["filter in memory", `${file.filter_units_in_memory} of ${plural(file.filter_units, "unit")}`],
    ["written", ago(file.created_ms, now_ms)], ["state", file.is_compacting ? "being compacted" : "at rest"],
  ];
}

function words(text: string): Picture {
  return { look: text, make: () => h("p", { class: "muted" }, text) };
}

/** A cell per partition: colour is heat, filled notches are units in memory. */
function filterStrip(filters: FileFilters | undefined): Picture {
  if (filters === undefined || filters.partitions.length === 0) return words("None.");
  const ramp = currentRamp();
  const { partitions } = filters;
  const hottest = partitions.reduce((most, [, , heat]) => Math.max(most, heat), partitionHeat.value);
  const cells = evenly(partitions.length, MOST_DRAWN).map((at) => {
    const [units, loaded, heat] = partitions[at]!;
    return { at, units, loaded, heat, fill: css(ramp[Math.round(heatShare(heat, hottest) * (RAMP_STEPS - 1))]!) };
  });
  const loaded = partitions.reduce((sum, p) => sum + p[1], 0);
  const all = partitions.reduce((sum, p) => sum + p[0], 0);
  const shown = cells.length < partitions.length ? `, of which ${count(cells.length)} are shown` : "";
  const text = `${plural(partitions.length, "partition")} in key order${shown}; ${loaded} of ${plural(all, "unit")} in memory (solid).`;
  const look = `${filters.file} ${text} ${cells.map((cell) => `${cell.units} ${cell.loaded} ${cell.fill}`).join()}`;
  return { look, make: () => h("div", {}, stripOf(cells), h("p", { class: "muted" }, text)) };
}

function stripOf(cells: { at: number; units: number; loaded: number; heat: number; fill: string }[]): SVGElement {
  const most = cells.reduce((most, cell) => Math.max(most, cell.units), 1);
  const width = 100 / cells.length;
  const high = 54;
  const each = high / most;
  const svg = s("svg", { class: "strip", viewBox: `0 0 100 ${high}`, preserveAspectRatio: "none", role: "img", "aria-label": "Heat and units of each filter partition" });
  cells.forEach(({ at, units, loaded, heat, fill }, place) => {
    const group = s("g", {}, s("title", {}, `partition ${at}: ${loaded} of ${units} units in memory, ${count(Math.round(heat))} lookups lately`));
    for (let unit = 0; unit < units; unit++) {
      group.append(s("rect", {
        x: (place * width + width * 0.06).toFixed(3), width: (width * 0.88).toFixed(3), y: (high - each * (unit + 1) + 1).toFixed(2), height: (each - 2).toFixed(2),
        fill, class: unit < loaded ? "unit" : "unit absent",
      }));
    }
    svg.append(group);
  });
  return svg;
}

/** The learned function from key to block as a line, its segments marked, and how far it errs. */
function modelPicture(model: Model | null): Picture {
  if (model === null) return words("None: this file is read through its index partitions.");
  const look = `${model.file} ${model.keys} ${model.segment_count}`;
  return { look, make: () => h("div", { class: "model" }, lineOf(model), errorsOf(model),
    h("p", { class: "muted" }, `${bytes(model.model_bytes)} instead of ${bytes(model.index_bytes)} of index for ${plural(model.keys, "key")} in ${plural(model.blocks, "block")}.`)) };
}

function lineOf({ segments, segment_count, blocks }: Model): HTMLElement {
  // Of the segments that the answer has, where it has not all.
  const number = (at: number) => Math.floor((at * (segment_count - 1)) / Math.max(1, segments.length - 1));
  const points = evenly(segments.length, MOST_DRAWN).map((at) => ({ at, x: segments[at]!.start, y: segments[at]!.first_block / Math.max(1, blocks) }));
  const path = [...points, { x: 1, y: 1 }].map(({ x, y }, at) => `${at === 0 ? "M" : "L"}${(x * 200).toFixed(2)} ${(70 - y * 70).toFixed(2)}`).join("");
  const line = s("svg", { class: "model-line", viewBox: "-3 -3 206 76", role: "img", "aria-label": `From key to block in ${segment_count} segments` },
    s("path", { d: `${path}L200 70L0 70Z`, class: "area" }), s("path", { d: path, class: "line" }),
    ...points.map(({ at, x, y }) => s("circle", { cx: x * 200, cy: 70 - y * 70, r: segments.length > 60 ? 0.8 : 2, class: "knot" },
      s("title", {}, `segment ${number(at)}: ${plural(segments[at]!.keys, "key")} from block ${segments[at]!.first_block}`))));
  return h("figure", {}, line, h("figcaption", {}, `${plural(segment_count, "segment")}: key → block`));
}

function errorsOf({ error_counts }: Model): HTMLElement {
  const sum = error_counts.reduce((a, b) => a + b, 0);
  const most = Math.max(...error_counts, 1);
  const each = 200 / Math.max(1, error_counts.length);
  const bars = s("svg", { class: "model-errors", viewBox: "0 0 200 60", role: "img", "aria-label": "How far predictions are off" },
    ...error_counts.map((n, at) => s("rect", { x: at * each + 1.5, width: each - 3, y: 60 - (56 * n) / most, height: Math.max(0.6, (56 * n) / most), rx: 1.5, class: at === 0 ? "exact" : "off" },
      s("title", {}, `${at === 0 ? "exact" : `up to ${at}/8 of the bound`}: ${plural(n, "prediction")}`))));
  return h("figure", {}, bars, h("figcaption", {}, `error: ${percent(sum > 0 ? (error_counts[0] ?? 0) / sum : null)} exact, to the right up to the bound`));
}
