// What the page knows: the last `live` event, the files, the history, what is chosen. Views subscribe;
// nothing here knows a view.
import { KeyAxis } from "./axis.ts";
import type { Explanation, FamilyShape, FileShape, FinishedJob, History, Live, Mark, Shape } from "./api.ts";
import { SeriesBuffer } from "./series-buffer.ts";

/** `full`: the server, or a proxy before it, gives no stream more; `paused`: nobody sees the page. */
export type Connection = "connecting" | "live" | "lost" | "denied" | "full" | "paused";

export interface Events {
  /** A `live` event came. */
  live: Live;
  /** The connection is another, or lost for longer. */
  connection: Connection;
  /** Files, the family shown, or the file chosen changed. */
  shape: undefined;
  selection: undefined;
  explained: Explanation | null;
  history: undefined;
}

type Listener<T> = (value: T) => void;

export class Store {
  live: Live | null = null;
  connection: Connection = "connecting";
  lost_since_ms: number | null = null;
  /** What was said of a connection that is `denied` or `full`. */
  refusal = "";
  /** With all files, if the store has any; `live.shape` may lack them. */
  shape: Shape | null = null;
  family_name = "default";
  axis = KeyAxis.EMPTY;
  selected: number | null = null;
  explanation: Explanation | null = null;
  recent_jobs: FinishedJob[] = [];
  /** The last ten minutes by the second, and the last day in steps, as far as it was asked for. */
  readonly series = new SeriesBuffer();
  readonly day = new SeriesBuffer();
  /** Starts and changed options, oldest first. */
  marks: Mark[] = [];
  private readonly listeners = new Map<keyof Events, Listener<never>[]>();

  on<E extends keyof Events>(event: E, listener: Listener<Events[E]>): void {
    this.listeners.set(event, [...(this.listeners.get(event) ?? []), listener as Listener<never>]);
  }

  emit<E extends keyof Events>(event: E, value: Events[E]): void {
    for (const listener of this.listeners.get(event) ?? []) (listener as Listener<Events[E]>)(value);
  }

  receive(live: Live): void {
    if (this.live !== null && this.live.summary.started_ms !== live.summary.started_ms) {
      this.series.restart();
      this.selected = null;
      this.recent_jobs = [];
      this.shape = null;
    }
    this.live = live;
    this.series.push(live.summary);
    const now = live.summary.now_ms;
    this.recent_jobs = [...live.finished.reverse(), ...this.recent_jobs].filter((job) => now - job.ended_ms < 20_000).slice(0, 6);
    this.setConnection("live");
    if (!needsFiles(live.shape)) this.setShape(live.shape);
    this.emit("live", live);
  }

  /** What the server remembers: of seconds, of steps, or nothing but its marks. */
  remember(history: History): void {
    this.marks = history.marks;
    if (history.step_s > 1) this.day.replace(history);
    else this.series.merge(history);
    this.emit("history", undefined);
  }

  setConnection(connection: Connection, reason = ""): void {
    this.refusal = reason;
    if (connection !== "lost") this.lost_since_ms = null;
    else this.lost_since_ms ??= Date.now();
    if (connection === this.connection && connection !== "lost") return;
    this.connection = connection;
    this.emit("connection", connection);
  }

  setShape(shape: Shape): void {
    const same = this.shape !== null && this.shape.epoch === shape.epoch;
    this.shape = shape;
    if (!same) this.axis = KeyAxis.of(this.family() ?? EMPTY_FAMILY);
    this.emit("shape", undefined);
    if (this.selected !== null && this.selectedFile() === null) this.select(null);
  }

  /** The family shown, as far as its files are known. */
  family(): FamilyShape | null {
    const families = this.shape?.families ?? [];
    return families.find((family) => family.name === this.family_name) ?? families[0] ?? null;
  }

  /** Bytes in front of the database in the keys of files. */
  slotBytes(): number {
    return this.shape?.slot_bytes ?? 0;
  }

  showFamily(name: string): void {
    this.family_name = name;
    this.axis = KeyAxis.of(this.family() ?? EMPTY_FAMILY);
    this.select(null);
    this.emit("shape", undefined);
  }

  selectedFile(): { file: FileShape; level: number } | null {
    const levels = this.family()?.levels ?? [];
    for (const [level, { files }] of levels.entries()) {
      const file = files?.find((one) => one.number === this.selected);
      if (file !== undefined) return { file, level };
    }
    return null;
  }

  select(number: number | null): void {
    if (this.selected === number) return;
    this.selected = number;
    this.emit("selection", undefined);
  }

  setExplanation(explanation: Explanation | null): void {
    this.explanation = explanation;
    this.emit("explained", explanation);
  }
}

const EMPTY_FAMILY: FamilyShape = {
  name: "default", memtable_bytes: 0, memtable_limit_bytes: 0, immutable_memtables: 0, l0_compaction_files: 0, l0_slowdown_files: 0,
  l0_stop_files: 0, levels: [],
};

/** Files were left out of this shape because there are too many. */
export function needsFiles(shape: Shape): boolean {
  return shape.families.some((family) => family.levels.some((level) => level.files === null && level.file_count > 0));
}
