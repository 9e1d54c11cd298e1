// What changed over time: small charts with one clock, stalls as bands and starts and changed options as lines in
// all of them.
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import type { History, Mark } from "../api.ts";
import { get, poll } from "../client.ts";
import { card, h, onWidth, replace, s, setText, whileVisible } from "../dom.ts";
import { clock, count, duration, micros, plural, ratio } from "../format.ts";
import { type Column, KEPT_S, type StallBand } from "../series-buffer.ts";
import type { Store } from "../store.ts";
import { color, onTheme } from "../theme.ts";

interface Line {
  column: Column;
  name: string;
  hue: string;
  fill?: boolean;
  dash?: number[];
}

interface Chart {
  id: string;
  title: string;
  lines: Line[];
  show: (value: number | null) => string;
  log?: boolean;
  /** Least top of the scale, so that noise around zero looks like nothing. */
  least: number;
}

const CHARTS: Chart[] = [
  {
    id: "throughput", title: "Throughput", show: (v) => `${count(v)}/s`, least: 10,
    lines: [{ column: "reads_per_s", name: "reads", hue: "reads", fill: true }, { column: "writes_per_s", name: "writes", hue: "writes", fill: true }],
  },
  {
    id: "read-latency", title: "Read latency", show: micros, log: true, least: 10,
    lines: [{ column: "read_p50_us", name: "p50", hue: "p50" }, { column: "read_p99_us", name: "p99", hue: "p99" }, { column: "read_p999_us", name: "p99.9", hue: "p999" }],
  },
  {
    id: "write-latency", title: "Write latency", show: micros, log: true, least: 10,
    lines: [{ column: "write_p50_us", name: "p50", hue: "p50" }, { column: "write_p99_us", name: "p99", hue: "p99" }, { column: "write_p999_us", name: "p99.9", hue: "p999" }],
  },
  {
    id: "amplification", title: "Amplification", show: (v) => (v === null ? ratio(v) : `${ratio(v)}×`), least: 2,
    lines: [{ column: "write_amplification", name: "write", hue: "writes" }, { column: "space_amplification", name: "space", hue: "space" }],
  },
  {
    id: "device-reads", title: "Device reads per get", show: ratio, least: 0.02,
    lines: [{ column: "device_reads_per_get", name: "reads", hue: "reads", fill: true }],
  },
];

const WINDOWS: [string, number][] = [["1 min", 60], ["3 min", 180], ["10 min", KEPT_S], ["1 h", 3600], ["6 h", 21_600], ["24 h", 86_400]];
const HEIGHT = 148;
/** How often marks are asked for, and steps, of which one comes in half a minute. */
const MARKS_EVERY_MS = 4000;
const STEPS_EVERY_MS = 15_000;
/** Marks that are listed. */
const MOST_MARKS = 6;

/** What the charts have in common: one object, which every one of them reads when it is drawn. */
interface Shared {
  bands: StallBand[];
  marks: Mark[];
}

export function series(store: Store): HTMLElement {
  let seconds = 180;
  let visible = false;
  const picker = h("div", { class: "tabs", role: "group", "aria-label": "Time shown" }, ...WINDOWS.map(([name, length]) => h("button", {
    type: "button", class: "tab", "aria-pressed": String(length === seconds), onclick: (event: Event) => {
      seconds = length;
      for (const tab of picker.children) tab.setAttribute("aria-pressed", String(tab === event.currentTarget));
      loadSteps();
      update();
    },
  }, name)));
  const { root, body } = card("series", "Over time", picker);
  const shared: Shared = { bands: [], marks: [] };
  const charts = CHARTS.map((chart) => new ChartView(chart, shared));
  const stalls = h("div", { class: "stall-causes" });
  const stall_figure = h("figure", { class: "chart", id: "chart-stalls" }, h("figcaption", {}, h("span", { class: "chart-title" }, "Writes held back")), stalls);
  const marks = h("ol", { class: "marks" });
  const marks_figure = h("figure", { class: "chart", id: "chart-marks" }, h("figcaption", {}, h("span", { class: "chart-title" }, "Starts and changed options")), marks);
  body.append(h("div", { class: "charts" }, ...charts.map((chart) => chart.root), h("div", {}, stall_figure, marks_figure)));

  const update = (): void => {
    const buffer = seconds > KEPT_S ? store.day : store.series;
    const end = (store.live?.summary.now_ms ?? Date.now()) / 1000;
    shared.bands = buffer.bands().filter((band) => band.to > end - seconds);
    shared.marks = store.marks.filter((mark) => mark.t_ms / 1000 > end - seconds);
    for (const chart of charts) chart.update(buffer.window(seconds, chart.chart.lines.map((line) => line.column)), end - seconds, end);
    tellStalls(stalls, shared.bands, end - seconds, end);
    tellMarks(marks, shared.marks);
  };
  const load = async (length: number): Promise<void> => store.remember(await get<History>("history", { seconds: length }));
  poll(store, MARKS_EVERY_MS, () => visible && seconds <= KEPT_S, () => load(0));
  const loadSteps = poll(store, STEPS_EVERY_MS, () => visible && seconds > KEPT_S, () => load(seconds));
  store.on("live", () => visible && !document.hidden && update());
  store.on("history", update);
  onTheme(() => charts.forEach((chart) => chart.redraw()));
  whileVisible(root, (is) => {
    visible = is;
    if (is) update();
  });
  return root;
}

const CAUSE_HUES = ["stall-a", "stall-b", "stall-c", "stall-d"];
const causes: string[] = [];

/** Causes keep the colour in which they were first seen. */
function hueOf(cause: string): string {
  if (!causes.includes(cause)) causes.push(cause);
  return CAUSE_HUES[causes.indexOf(cause) % CAUSE_HUES.length]!;
}

/** A line of time for each cause, with how long it lasted in all. */
function tellStalls(node: HTMLElement, bands: StallBand[], from: number, to: number): void {
  if (bands.length === 0) return replace(node, h("p", { class: "muted" }, "Not in this time."));
  const at = (t: number) => (Math.max(0, (t - from) / (to - from)) * 100).toFixed(2);
  replace(node, ...[...new Set(bands.map((band) => band.cause))].map((cause) => {
    const own = bands.filter((band) => band.cause === cause);
    const sum = own.reduce((total, band) => total + band.held * ((band.to - Math.max(band.from, from)) / (band.to - band.from)), 0);
    return h("div", { class: "cause" },
      h("span", {}, h("i", { class: `chip ${hueOf(cause)}` }), cause), h("b", { class: "num" }, duration(Math.max(1, Math.round(sum)))),
      s("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" }, ...own.map((band) =>
        s("rect", { x: at(band.from), width: Math.max(0.5, Number(at(band.to)) - Number(at(band.from))), y: 0, height: 10, class: hueOf(cause) }))));
  }));
}

/** In words what the lines in the charts stand for, the newest first. */
function tellMarks(node: HTMLElement, marks: Mark[]): void {
  const state = `${marks.length} ${marks[0]?.t_ms} ${marks.at(-1)?.t_ms}`;
  if (node.dataset.state === state) return;
  node.dataset.state = state;
  const rows = marks.slice(-MOST_MARKS).reverse().map((mark) => h("li", { "data-mark": mark.kind },
    h("i", { class: `chip mark-${mark.kind}` }), h("time", { class: "num", datetime: new Date(mark.t_ms).toISOString() }, clock(mark.t_ms)), " ", markText(mark)));
  if (marks.length === 0) rows.push(h("li", { class: "muted" }, "None in this time."));
  if (marks.length > MOST_MARKS) rows.push(h("li", { class: "muted" }, `and ${marks.length - MOST_MARKS} before`));
  replace(node, ...rows);
}

function markText({ kind, version, options }: Mark): string {
  const shown = options.slice(0, 4).join(", ") + (options.length > 4 ? ` and ${plural(options.length - 4, "other")}` : "");
  if (kind === "options") return `changed: ${shown}`;
  return `start of Terrace ${version}${options.length > 0 ? `, with other ${shown}` : ""}`;
}

/** Grid lines of a logarithmic scale: powers of ten. */
function decades(_: uPlot, __: number, min: number, max: number): number[] {
  const splits: number[] = [];
  for (let t = 10 ** Math.ceil(Math.log10(min)); t <= max; t *= 10) splits.push(t);
  return splits;
}

class ChartView {
  readonly root: HTMLElement;
  private plot: uPlot | null = null;
  private data: (number | null)[][] = [[]];
  private range: [number, number] = [0, 1];
  private readonly values: HTMLElement[];
  private readonly time = h("span", { class: "muted num" });
  private readonly host = h("div", { class: "plot" });

  constructor(readonly chart: Chart, private readonly shared: Shared) {
    this.values = chart.lines.map(() => h("b", { class: "num" }, "–"));
    this.host.setAttribute("role", "img");
    this.root = h("figure", { class: "chart", id: `chart-${chart.id}` },
      h("figcaption", {}, h("span", { class: "chart-title" }, chart.title), this.time,
        h("span", { class: "keys" }, ...chart.lines.map((line, at) => h("span", { class: "key" }, h("i", { class: `chip hue-${line.hue}` }), line.name, " ", this.values[at]!)))),
      this.host);
    onWidth(this.host, (width) => {
      if (this.plot === null) this.plot = this.make(width);
      else this.plot.setSize({ width, height: HEIGHT });
    });
  }

  update(data: (number | null)[][], from: number, to: number): void {
    this.data = data;
    this.range = [from, to];
    Object.assign(this.root.dataset, { from: String(data[0]![0] ?? ""), points: String(data[0]!.length) });
    this.plot?.setData(data as uPlot.AlignedData, true);
    if (this.plot?.cursor.idx == null) this.tell(null);
  }

  redraw(): void {
    // Axis and grid colours are read when drawn; nothing to make anew.
    this.plot?.redraw(false, true);
  }

  private tell(index: number | null): void {
    const at = index ?? this.data[0]!.length - 1;
    setText(this.time, index === null ? "" : clock((this.data[0]![at] ?? 0) * 1000));
    const texts = this.chart.lines.map((line, i) => {
      const text = this.chart.show(this.data[i + 1]?.[at] ?? null);
      setText(this.values[i]!, text);
      return `${line.name} ${text}`;
    });
    if (index === null) this.host.setAttribute("aria-label", `${this.chart.title}: ${texts.join(", ")}`);
  }

  private make(width: number): uPlot {
    const { chart } = this;
    const axis = { stroke: () => color("muted"), font: "11px system-ui, sans-serif", ticks: { show: false } };
    const bounds = (_: uPlot, min: number | null, max: number | null): [number, number] => {
      if (chart.log) return [10 ** Math.floor(Math.log10(Math.max(0.1, min ?? 1))), 10 ** Math.ceil(Math.log10(Math.max(chart.least, max ?? 1)))];
      return [0, Math.max(chart.least, (max ?? 0) * 1.1)];
    };
    return new uPlot({
      width, height: HEIGHT, legend: { show: false }, padding: [8, 6, 0, 0],
      cursor: { sync: { key: "time" }, points: { size: 6 }, drag: { x: false, y: false }, y: false },
      scales: { x: { time: true, range: () => this.range }, y: { distr: chart.log ? 3 : 1, range: bounds } },
      axes: [
        { ...axis, space: 70, size: 24, grid: { show: false }, values: (_, ticks) => ticks.map((t) => clock(t * 1000).slice(0, t % 60 === 0 ? 5 : 8)) },
        {
          ...axis, ...(chart.log ? { splits: decades } : {}), size: 54, gap: 4, space: 28, grid: { stroke: () => color("line"), width: 1 },
          values: (_, ticks) => ticks.map((t) => chart.show(t).replace("/s", "")),
        },
      ],
      series: [{}, ...chart.lines.map((line): uPlot.Series => ({
        stroke: () => color(line.hue), width: 1.75, points: { show: false }, spanGaps: false,
        ...(line.fill ? { fill: () => color(`${line.hue}-fill`) } : {}), ...(line.dash ? { dash: line.dash } : {}),
      }))],
      hooks: { drawClear: [(plot) => this.paintBands(plot)], draw: [(plot) => this.paintMarks(plot)], setCursor: [(plot) => this.tell(plot.cursor.idx ?? null)] },
    }, this.data as uPlot.AlignedData, this.host);
  }

  private paintBands(plot: uPlot): void {
    const { left, top, width, height } = plot.bbox;
    for (const band of this.shared.bands) {
      const from = Math.max(left, plot.valToPos(band.from, "x", true));
      const to = Math.min(left + width, plot.valToPos(band.to, "x", true));
      if (to <= from) continue;
      plot.ctx.fillStyle = color(hueOf(band.cause));
      plot.ctx.fillRect(from, top, Math.max(2, to - from), height);
    }
  }

  /** A line for each, with a flag on top. */
  private paintMarks(plot: uPlot): void {
    const { left, top, width, height } = plot.bbox;
    const { ctx: g } = plot;
    const unit = window.devicePixelRatio || 1;
    let painted = 0;
    g.save();
    for (const mark of this.shared.marks) {
      const x = plot.valToPos(mark.t_ms / 1000, "x", true);
      if (x < left || x > left + width) continue;
      painted++;
      g.strokeStyle = g.fillStyle = color(`mark-${mark.kind}`);
      g.lineWidth = 1.25 * unit;
      g.setLineDash(mark.kind === "start" ? [] : [3 * unit, 3 * unit]);
      g.beginPath();
      g.moveTo(x, top);
      g.lineTo(x, top + height);
      g.stroke();
      g.beginPath();
      g.moveTo(x, top);
      g.lineTo(x + 6 * unit, top + 3 * unit);
      g.lineTo(x, top + 6 * unit);
      g.fill();
    }
    g.restore();
    this.root.dataset.marks = String(painted);
  }
}
