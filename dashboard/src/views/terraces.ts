// The tree as a hillside: two canvases (still and moving), zoom, pointer and keyboard, and the families.
import { card, fitCanvas, h, onWidth, replace, setText, whileVisible } from "../dom.ts";
import { ago, bytes, count, engineKey, fileName, neighbours } from "../format.ts";
import { currentRamp, heatLegend, HottestLately } from "../heat.ts";
import { MovingBlocks } from "../hill/blocks.ts";
import { type Block, blockAt, blocksOf, type Hill, hillOf, toPlace, type View } from "../hill/geometry.ts";
import { type MotionColors, paintMotion } from "../hill/motion.ts";
import { type Colors, paintBlocks, paintFoot, paintGround, paintRing, paintSteps } from "../hill/paint.ts";
import { inWords } from "../hill/words.ts";
import type { Store } from "../store.ts";
import { calm, color, onTheme } from "../theme.ts";
import { hideTip, showTip } from "../tip.ts";
import { filePanel } from "./file-panel.ts";
import { jobList } from "./jobs.ts";

/** Pictures a second while something flows: enough for water, little for a battery. */
const FRAME_MS = 1000 / 30;
const MOST_ZOOM = 400;

export function terraces(store: Store): HTMLElement {
  const legend = heatLegend("lookups");
  const tabs = h("div", { class: "tabs", role: "group", "aria-label": "Column family" });
  const zoom_out = h("button", { class: "icon", type: "button", title: "Whole key space (0)", onclick: () => zoom(0) }, "⤢");
  const zoom_in = h("button", { class: "icon", type: "button", title: "Closer (+)", onclick: () => zoom(2) }, "+");
  const zoom_less = h("button", { class: "icon", type: "button", title: "Farther (−)", onclick: () => zoom(0.5) }, "−");
  const { root, body } = card("terraces", "Terraces", h("div", { class: "row" }, tabs, legend.root, h("div", { class: "zoom" }, zoom_less, zoom_in, zoom_out)));
  const still = h("canvas", { class: "still" });
  const moving = h("canvas", { class: "moving" });
  const speech = h("p", { class: "unseen", "aria-live": "polite" });
  const words = h("p", { id: "terraces-words", hidden: true });
  const basin_label = h("div", { class: "basin-label" });
  const empty = h("p", { class: "hill-empty", hidden: true }, "No SSTs yet. Write something: it rains into the memtable, and the first flush lays a stone on L0.");
  const stage = h("div", {
    class: "stage", tabindex: "0", role: "application", "aria-describedby": words.id,
    "aria-label": "SSTs of the tree. Arrow keys go from file to file and from level to level, Enter shows one, plus and minus zoom.",
  }, still, moving, basin_label, empty);
  body.append(stage, speech, words, jobList(store), filePanel(store, () => stage.focus({ preventScroll: true })));

  let hill: Hill = hillOf(null, 800);
  let view: View = { from: 0, to: 1 };
  let targets: Block[] = [];
  let focused: Block | null = null;
  /** Where the explained key is on the axis. */
  let key_place: number | null = null;
  let on_screen = true;
  let drawn_ms = 0;
  let dirty = true;
  const blocks = new MovingBlocks();
  const hottest = new HottestLately();
  let g_still = fitCanvas(still, 800, hill.height);
  let g_moving = fitCanvas(moving, 800, hill.height);
  let colors = readColors();
  let motion = readMotion();

  const layout = (jump: boolean): void => {
    const family = store.family();
    const next = hillOf(family, hill.width);
    if (next.height !== hill.height) jump = true;
    hill = next;
    if (Math.round(hill.height) !== Math.round(still.clientHeight)) fit();
    setText(words, inWords(hill, family));
    targets = blocksOf(family, hill, store.axis, view);
    blocks.aim(targets, family, jump || calm.matches);
    hottest.see((family?.levels ?? []).flatMap((level) => (level.files ?? []).map((file) => file.heat)));
    legend.update(hottest.value);
    empty.hidden = targets.length > 0 || store.live === null;
    focused = focused === null ? null : (targets.find((block) => block.number === focused?.number) ?? null);
    dirty = true;
  };
  const fit = (): void => {
    g_still = fitCanvas(still, hill.width, hill.height);
    g_moving = fitCanvas(moving, hill.width, hill.height);
    stage.style.height = `${hill.height}px`;
    basin_label.style.top = `${hill.sky - 39}px`;
    empty.style.top = `${hill.sky + 60}px`;
    dirty = true;
  };

  const paintStill = (): void => {
    paintGround(g_still, hill, colors);
    paintSteps(g_still, hill, store.family(), colors);
    paintFoot(g_still, hill, store.shape, colors);
    paintBlocks(g_still, hill, blocks.shown.values(), hottest.value, colors);
    const chosen = blocks.shown.get(store.selected ?? -1);
    if (chosen !== undefined) paintRing(g_still, chosen, colors.ink, 2.5);
    const at = blocks.shown.get(focused?.number ?? -1);
    if (at !== undefined && at !== chosen) paintRing(g_still, at, colors.ink, 1.25);
  };

  const frame = (now: number): void => {
    requestAnimationFrame(frame);
    if (!on_screen || now - drawn_ms < FRAME_MS - 4) return;
    const passed = now - drawn_ms;
    drawn_ms = now;
    const moved = blocks.advance(passed);
    if (moved || dirty) paintStill();
    const quiet = calm.matches;
    if (quiet && !dirty && !moved) return;
    dirty = false;
    const { live, explanation } = store;
    const family = live?.shape.families.find((one) => one.name === store.family()?.name);
    paintMotion(g_moving, {
      hill, view, blocks: blocks.shown, jobs: live?.jobs ?? [], still: quiet || store.connection !== "live",
      fill: family && family.memtable_limit_bytes > 0 ? family.memtable_bytes / family.memtable_limit_bytes : 0,
      immutables: family?.immutable_memtables ?? 0, writes_per_s: live?.summary.writes_per_s ?? 0,
      key_place, explanation, family: family?.name ?? "default",
    }, motion, now);
  };

  const zoom = (factor: number, around = 0.5): void => {
    if (factor === 0) view = { from: 0, to: 1 };
    else {
      const span = Math.min(1, Math.max(1 / MOST_ZOOM, (view.to - view.from) / factor));
      const middle = view.from + (view.to - view.from) * around;
      const from = Math.min(1 - span, Math.max(0, middle - span * around));
      view = { from, to: from + span };
    }
    layout(true);
  };
  const pan = (share: number): void => {
    const span = view.to - view.from;
    const from = Math.min(1 - span, Math.max(0, view.from + share * span));
    view = { from, to: from + span };
    layout(true);
  };

  const facts = (block: Block): [string, string][] => {
    const family = store.family();
    const file = family?.levels[block.level]?.files?.find((one) => one.number === block.number);
    if (family === null || file === undefined) return [];
    const now = store.live?.summary.now_ms ?? Date.now();
    return [
      ...neighbours(file),
      ["keys", `${engineKey(file.smallest, family.name, store.slotBytes(), 30)} … ${engineKey(file.largest, family.name, store.slotBytes(), 30)}`],
      ["size", `${bytes(file.size_bytes)}, ${count(file.entry_count)} entries`],
      ["heat", `${count(Math.round(file.heat))} lookups lately`],
      ["filter", `${file.filter_units_in_memory} of ${file.filter_units} units in memory, ${bytes(file.filter_bytes)} on disk`],
      ["model", file.has_model === null ? "not opened yet" : file.has_model ? "learned" : "none"],
      ["age", file.is_compacting ? `written ${ago(file.created_ms, now)}, being compacted` : `written ${ago(file.created_ms, now)}`],
    ];
  };
  const focus = (block: Block | null): void => {
    focused = block;
    dirty = true;
    if (block === null) return;
    const text = facts(block).map(([name, value]) => `${name}: ${value}`).join("; ");
    setText(speech, `L${block.level} ${fileName(block.number)}. ${text}`);
    const box = stage.getBoundingClientRect();
    showTip(box.left + Math.max(block.x, 0) + Math.min(block.width, 60), box.top + block.y, `L${block.level} ${fileName(block.number)}`, facts(block));
  };
  const step = (dx: number, dy: number): void => {
    if (targets.length === 0) return;
    if (focused === null) return focus(targets.find((block) => block.number === store.selected) ?? targets[0]!);
    const row = targets.filter((block) => block.level === focused!.level);
    if (dx !== 0) return focus(row[(row.indexOf(focused) + dx + row.length) % row.length] ?? null);
    for (let level = focused.level + dy; level >= 0 && level < hill.steps.length; level += dy) {
      const center = focused.x + focused.width / 2;
      const nearest = targets.filter((block) => block.level === level)
        .sort((a, b) => Math.abs(a.x + a.width / 2 - center) - Math.abs(b.x + b.width / 2 - center))[0];
      if (nearest !== undefined) return focus(nearest);
    }
  };

  stage.addEventListener("keydown", (event) => {
    const keys: Record<string, () => void> = {
      ArrowLeft: () => (event.shiftKey ? pan(-0.25) : step(-1, 0)), ArrowRight: () => (event.shiftKey ? pan(0.25) : step(1, 0)),
      ArrowUp: () => step(0, -1), ArrowDown: () => step(0, 1), Enter: () => focused && store.select(focused.number),
      " ": () => focused && store.select(focused.number), Escape: () => store.select(null),
      "+": () => zoom(2), "=": () => zoom(2), "-": () => zoom(0.5), "0": () => zoom(0),
    };
    const action = keys[event.key];
    if (action === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    action();
  });
  stage.addEventListener("blur", () => {
    focused = null;
    dirty = true;
    hideTip();
  });

  let drag: { x: number; moved: boolean } | null = null;
  const under = (event: PointerEvent | MouseEvent): Block | null => {
    const box = stage.getBoundingClientRect();
    return blockAt(targets, event.clientX - box.left, event.clientY - box.top);
  };
  stage.addEventListener("pointerdown", (event) => (drag = { x: event.clientX, moved: false }));
  stage.addEventListener("pointermove", (event) => {
    if (drag !== null && event.buttons === 1 && view.to - view.from < 1) {
      const by = drag.x - event.clientX;
      if (Math.abs(by) > 3 || drag.moved) {
        drag = { x: event.clientX, moved: true };
        return pan(by / (hill.key_right - hill.key_left));
      }
    }
    const block = event.pointerType === "touch" ? null : under(event);
    stage.classList.toggle("over-block", block !== null);
    if (block === null) return hideTip();
    showTip(event.clientX, event.clientY, `L${block.level} ${fileName(block.number)}`, facts(block));
  });
  stage.addEventListener("pointerleave", hideTip);
  stage.addEventListener("click", (event) => {
    if (drag?.moved) return;
    const block = under(event);
    store.select(block === null || block.number === store.selected ? null : block.number);
    hideTip();
  });
  const share = (event: MouseEvent) => (toPlace(hill, view, event.clientX - stage.getBoundingClientRect().left) - view.from) / (view.to - view.from);
  stage.addEventListener("dblclick", (event) => zoom(event.shiftKey ? 0.5 : 2.5, Math.min(1, Math.max(0, share(event)))));
  stage.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(event.deltaY < 0 ? 1.25 : 0.8, Math.min(1, Math.max(0, share(event))));
  }, { passive: false });

  const showTabs = (): void => {
    const names = (store.shape?.families ?? []).filter((family) => family.name === "default" || family.name === store.family_name
      || family.memtable_bytes > 0 || family.levels.some((level) => level.file_count > 0)).map((family) => family.name);
    const shown = names.length < 2 ? [] : names;
    // Made anew only with other families: a tab that was pressed keeps the focus.
    const state = JSON.stringify(shown);
    if (tabs.dataset.state !== state) {
      tabs.dataset.state = state;
      const held = [...tabs.children].find((tab) => tab === document.activeElement)?.textContent;
      replace(tabs, ...shown.map((name) => h("button", { type: "button", class: "tab", onclick: () => store.showFamily(name) }, name)));
      [...tabs.children].find((tab): tab is HTMLElement => tab.textContent === held)?.focus();
    }
    const family = store.family()?.name;
    for (const tab of tabs.children) tab.setAttribute("aria-pressed", String(tab.textContent === family));
  };

  const placeKey = (): void => {
    const { explanation } = store;
    key_place = explanation === null ? null : store.axis.at(explanation.engine_key);
    stage.dataset.key = key_place === null ? "" : key_place.toFixed(4);
    dirty = true;
  };

  store.on("shape", () => {
    showTabs();
    layout(false);
    placeKey();
  });
  store.on("live", (live) => {
    const family = live.shape.families.find((one) => one.name === store.family()?.name);
    setText(basin_label, family === undefined ? "" : `memtable ${bytes(family.memtable_bytes)}`);
  });
  store.on("selection", () => (dirty = true));
  store.on("explained", placeKey);
  onTheme(() => {
    colors = readColors();
    motion = readMotion();
    dirty = true;
  });
  onWidth(stage, (width) => {
    hill = hillOf(store.family(), width);
    fit();
    layout(true);
  });
  whileVisible(stage, (visible) => (on_screen = visible));
  requestAnimationFrame(frame);
  return root;
}

function readColors(): Colors {
  return {
    sky_top: color("sky-top"), sky_low: color("sky-low"), far: color("far"), ground: color("ground"), ground_deep: color("ground-deep"),
    edge: color("edge"), water: color("water"), over: color("warn"), ink: color("ink"), muted: color("hill-muted"),
    outline: color("outline"), ramp: currentRamp(),
  };
}

function readMotion(): MotionColors {
  return {
    water: color("water"), water_soft: color("water-soft"), flow: color("flow"), glow: color("glow"), ink: color("ink"),
    card: color("card"), found: color("good"), no: color("muted"), basin: color("basin"),
  };
}
