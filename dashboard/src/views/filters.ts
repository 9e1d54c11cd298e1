// Filter units per partition: a row per level along the same key axis as the hillside. Colour is heat,
// the solid part of a cell is the share of its units in memory.
import type { FileFilters, FileShape, Filters } from "../api.ts";
import { get, poll } from "../client.ts";
import { css, heatShare, RAMP_STEPS } from "../color.ts";
import { card, fitCanvas, h, onWidth, setText, whileVisible } from "../dom.ts";
import { count, fileName, percent, plural } from "../format.ts";
import { currentRamp, heatLegend, partitionHeat } from "../heat.ts";
import type { Store } from "../store.ts";
import { color, onTheme } from "../theme.ts";
import { hideTip, showTip } from "../tip.ts";

const ROW = 34;
const GAP = 8;
const GUTTER = 30;
const NARROW = 1.5;
const ABSENT_ALPHA = 0.25;

interface Cell {
  x: number;
  y: number;
  width: number;
  height: number;
  units: number;
  loaded: number;
  heat: number;
  file: number;
  level: number;
  index: number;
}

export function filterMap(store: Store): HTMLElement {
  const legend = heatLegend("lookups");
  const { root, body } = card("filters", "Filter units in memory", legend.root);
  const canvas = h("canvas", { role: "img" });
  const stage = h("div", { class: "filter-stage" }, canvas);
  const summary = h("p", { class: "muted filter-sum" }, "asking …");
  body.append(summary, stage);
  let filters: Filters | null = null;
  let cells: Cell[] = [];
  let width = 600;
  let visible = false;
  /** Of the files shown, too, that a compaction has just replaced: filters are asked less often. */
  let bounds = new Map<number, FileShape>();
  const remember = (): void => {
    const shown = new Set(filters?.files.map((file) => file.file));
    const kept = [...bounds].filter(([number]) => shown.has(number));
    const files = (store.family()?.levels ?? []).flatMap((level) => level.files ?? []);
    bounds = new Map([...kept, ...files.map((file) => [file.number, file] as const)]);
  };

  const layout = (): void => {
    cells = cellsOf(filters?.files ?? [], bounds, store, width);
    legend.update(partitionHeat.value);
  };
  const levels = () => [...new Set((filters?.files ?? []).map((file) => file.level))].sort((a, b) => a - b);

  const draw = (): void => {
    const shown = levels();
    const g = fitCanvas(canvas, width, Math.max(1, shown.length * (ROW + GAP)));
    const ramp = currentRamp();
    g.font = "600 11px system-ui, sans-serif";
    g.textBaseline = "middle";
    g.fillStyle = color("muted");
    shown.forEach((level, at) => g.fillText(`L${level}`, 2, at * (ROW + GAP) + ROW / 2));
    for (const column of columnsOf(cells)) paintCell(g, column, css(ramp[Math.round(heatShare(column.heat, partitionHeat.value) * (RAMP_STEPS - 1))]!));
  };

  const tell = (): void => {
    const all = cells.reduce((sum, cell) => sum + cell.units, 0);
    const loaded = cells.reduce((sum, cell) => sum + cell.loaded, 0);
    const heat = cells.reduce((sum, cell) => sum + cell.heat, 0);
    const hot = [...cells].sort((a, b) => b.heat - a.heat).slice(0, Math.ceil(cells.length / 10)).reduce((sum, cell) => sum + cell.heat, 0);
    const text = cells.length === 0 ? "No filter partitions yet."
      : `${count(loaded)} of ${plural(all, "unit")} in memory, in ${plural(cells.length, "partition")}.${heat > 0 ? ` The hottest tenth takes ${percent(hot / heat)} of lookups.` : ""}`;
    setText(summary, text);
    canvas.setAttribute("aria-label", text);
  };

  const now = poll(store, 2000, () => visible, async () => {
    const family = store.family()?.name;
    if (family === undefined) return;
    filters = await get<Filters>("filters", { family });
    partitionHeat.see(filters.files.flatMap((file) => file.partitions.map(([, , heat]) => heat)));
    layout();
    draw();
    tell();
  });

  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const cell = cells.find((one) => x >= one.x && x < one.x + Math.max(one.width, 1) && y >= one.y && y < one.y + one.height);
    if (cell === undefined) return hideTip();
    showTip(event.clientX, event.clientY, `L${cell.level} ${fileName(cell.file)}, partition ${cell.index}`, [
      ["in memory", `${cell.loaded} of ${plural(cell.units, "unit")}`], ["heat", `${count(Math.round(cell.heat))} lookups lately`],
    ]);
  });
  canvas.addEventListener("pointerleave", hideTip);
  canvas.addEventListener("click", (event) => {
    const box = canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const cell = cells.find((one) => x >= one.x && x < one.x + Math.max(one.width, 1) && y >= one.y && y < one.y + one.height);
    if (cell !== undefined) store.select(cell.file);
  });
  onTheme(draw);
  onWidth(stage, (next) => {
    width = next;
    layout();
    draw();
  });
  whileVisible(stage, (is) => {
    visible = is;
    if (is) now();
  });
  let family: string | undefined;
  store.on("shape", () => {
    remember();
    if (visible && filters !== null) {
      layout();
      draw();
    }
    if (store.family()?.name === family) return;
    family = store.family()?.name;
    now();
  });
  return root;
}

/** The partitions of a file share its key range evenly. L0 files lie side by side: they overlap. */
function cellsOf(files: FileFilters[], bounds: Map<number, FileShape>, store: Store, width: number): Cell[] {
  const levels = [...new Set(files.map((file) => file.level))].sort((a, b) => a - b);
  const span = width - GUTTER - 2;
  const cells: Cell[] = [];
  for (const [row, level] of levels.entries()) {
    const of_level = files.filter((file) => file.level === level);
    of_level.forEach((file, at) => {
      const bound = bounds.get(file.file);
      let from = at / of_level.length;
      let to = (at + 1) / of_level.length;
      if (level > 0) {
        if (bound === undefined) return; // It came after the files that are shown.
        from = store.axis.at(bound.smallest.hex);
        to = store.axis.at(bound.largest.hex);
      }
      const left = GUTTER + from * span + (level === 0 && at > 0 ? 2 : 0);
      const each = (GUTTER + to * span - left) / Math.max(1, file.partitions.length);
      file.partitions.forEach(([units, loaded, heat], index) => cells.push({
        x: left + index * each, y: row * (ROW + GAP), width: each, height: ROW, units, loaded, heat, file: file.file, level, index,
      }));
    });
  }
  return cells;
}

/** Cells too thin to see, gathered: units add up, heat is that of the mean. */
function columnsOf(cells: Cell[]): Cell[] {
  const columns: Cell[] = [];
  const thin = new Map<number, Cell & { n: number }>();
  for (const cell of cells) {
    if (cell.width >= NARROW) {
      columns.push(cell);
      continue;
    }
    const at = Math.floor(cell.x / NARROW);
    const key = cell.y * 10_000 + at;
    const column = thin.get(key);
    if (column === undefined) thin.set(key, { ...cell, x: at * NARROW, width: NARROW, n: 1 });
    else {
      column.units += cell.units;
      column.loaded += cell.loaded;
      column.heat += cell.heat;
      column.n++;
    }
  }
  for (const column of thin.values()) columns.push({ ...column, heat: column.heat / column.n });
  return columns;
}

function paintCell(g: CanvasRenderingContext2D, cell: Cell, fill: string): void {
  const gap = cell.width > 4 ? 1 : 0;
  const width = cell.width - gap;
  const solid = cell.units > 0 ? cell.height * Math.min(1, cell.loaded / cell.units) : 0;
  g.fillStyle = fill;
  g.globalAlpha = ABSENT_ALPHA;
  g.fillRect(cell.x, cell.y, width, cell.height - solid);
  g.globalAlpha = 1;
  g.fillRect(cell.x, cell.y + cell.height - solid, width, solid);
  // Notches between units where there is room for them.
  if (cell.width < 7 || cell.units < 2 || cell.height / cell.units < 4) return;
  for (let unit = 1; unit < cell.units; unit++) {
    g.clearRect(cell.x, cell.y + cell.height - (cell.height * unit) / cell.units - 0.5, width, 1);
  }
}
