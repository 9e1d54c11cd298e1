// A make-believe store that lives: memtables fill, flushes and compactions take their time, heat
// wanders over the key space, filters follow it. Positions of keys are numbers in [0, 1).
import type { FinishedJob, Job, JobKind } from "../src/api.ts";
import { gaussian, rng, type Rng } from "./rng.ts";

export type Scenario = "live" | "empty" | "huge" | "stalled";

export interface MockFile {
  number: number;
  level: number;
  from: number;
  to: number;
  bytes: number;
  created_ms: number;
  is_compacting: boolean;
}

interface RunningJob extends Job {
  files: MockFile[];
  speed: number;
}

export const MIB = 1 << 20;
export const MEMTABLE_LIMIT = 16 * MIB;
export const FILE_BYTES = 8 * MIB;
export const ENTRY_BYTES = 140;
export const PARTITION_KEYS = 16_000;
export const L0_COMPACT = 4;
export const L0_SLOW = 8;

export class Engine {
  readonly random: Rng;
  readonly started_ms = Date.now();
  time_s = 0;
  epoch = 1;
  memtable = 0;
  immutables = 0;
  /** Bytes in the memtable of the family `collections`, which has nothing else. */
  collections = 0;
  files: MockFile[][] = [[], [], [], [], []];
  jobs: RunningJob[] = [];
  finished: FinishedJob[] = [];
  written = 0;
  flushed = 0;
  compacted = 0;
  reads_per_s = 0;
  writes_per_s = 0;
  commands = 0;
  hits = 0;
  misses = 0;
  block_hits = 0;
  block_misses = 0;
  stall_seconds = 0;
  stall_count = 0;
  stall_cause: string | null = null;
  /** Why writes are refused. */
  refused: string | null = null;
  readonly targets: number[];
  private next_number = 100;
  private next_job = 1;

  constructor(readonly scenario: Scenario, seed = 7, readonly slots = false) {
    this.random = rng(seed);
    const unit = scenario === "huge" ? 8 : 1;
    this.targets = [0, 64 * MIB * unit, 400 * MIB * unit, 2400 * MIB * unit, 400_000 * MIB];
    if (scenario === "empty") return;
    this.fill(1, 0.8);
    this.fill(2, 0.9);
    this.fill(3, 0.75);
    if (scenario === "huge") this.fill(4, 0.17);
    this.addFile(0, 0.001, 0.998, MEMTABLE_LIMIT * 0.9);
    this.addFile(0, 0.002, 0.999, MEMTABLE_LIMIT * 0.9);
    this.memtable = MEMTABLE_LIMIT * 0.3;
    this.written = 900 * MIB;
    this.flushed = 880 * MIB;
    this.compacted = 4100 * MIB;
  }

  private fill(level: number, share: number): void {
    const count = Math.round((this.targets[level]! * share) / FILE_BYTES);
    let at = 0.0005;
    for (let i = 0; i < count; i++) {
      const width = ((0.998 - at) / (count - i)) * (0.6 + 0.8 * this.random());
      const to = i === count - 1 ? 0.9985 : at + width;
      this.addFile(level, at, to - 1e-6, FILE_BYTES * (0.5 + 0.7 * this.random()));
      at = to;
    }
  }

  private addFile(level: number, from: number, to: number, bytes: number): MockFile {
    const age = this.time_s === 0 ? this.random() * 3.6e6 * (level + 1) : 0;
    const file = {
      number: this.next_number++, level, from, to, bytes: Math.round(bytes),
      created_ms: Math.round(Date.now() - age), is_compacting: false,
    };
    const files = this.files[level]!;
    if (level === 0) files.unshift(file);
    else {
      const place = files.findIndex((other) => other.from > from);
      files.splice(place < 0 ? files.length : place, 0, file);
    }
    this.epoch++;
    return file;
  }

  /** Reads per second and unit of key space at `x`: two hot spots that wander, over a floor. */
  density(x: number): number {
    const center = 0.5 + 0.33 * Math.sin(this.time_s / 47);
    const other = 0.5 + 0.42 * Math.sin(this.time_s / 83 + 2);
    return 0.08 + 5 * gaussian(x, center, 0.05) + 2.2 * gaussian(x, other, 0.02);
  }

  heatOf(from: number, to: number, level: number): number {
    const steps = 5;
    let sum = 0;
    for (let i = 0; i < steps; i++) sum += this.density(from + ((to - from) * (i + 0.5)) / steps);
    const passing = [0.5, 0.25, 0.35, 0.9, 1][level]!;
    return (sum / steps) * (to - from) * passing * this.reads_per_s * 10;
  }

  tick(dt: number): void {
    this.time_s += dt;
    if (this.scenario === "empty") {
      this.commands += dt;
      return;
    }
    const wave = Math.sin(this.time_s / 11) + 0.4 * Math.sin(this.time_s / 3.1);
    this.reads_per_s = Math.max(0, 61_000 + 14_000 * Math.sin(this.time_s / 29) + 5_000 * this.random());
    let writes = Math.max(0, 22_000 + 9_000 * wave + 4_000 * this.random());
    writes *= this.pressure(dt);
    this.writes_per_s = writes;
    this.commands += (this.reads_per_s + writes) * dt;
    this.hits += this.reads_per_s * dt * 0.93;
    this.misses += this.reads_per_s * dt * 0.07;
    const rate = 0.962 + 0.02 * Math.sin(this.time_s / 19);
    this.block_hits += this.reads_per_s * dt * rate;
    this.block_misses += this.reads_per_s * dt * (1 - rate);
    const bytes = writes * dt * ENTRY_BYTES * (this.scenario === "stalled" ? 4 : 1.6);
    this.written += bytes;
    this.memtable += bytes;
    if (this.memtable >= MEMTABLE_LIMIT) {
      this.memtable = 0;
      this.immutables++;
    }
    this.advance(dt);
    this.schedule();
  }

  private pressure(dt: number): number {
    const l0 = this.files[0]!.length;
    const causes: [boolean, string][] = [
      [l0 >= L0_SLOW, "too many L0 files"],
      [this.immutables >= 3, "memtables wait for their flush"],
      [this.time_s % 97 > 88, "garbage collection is behind"],
    ];
    const cause = causes.find(([holds]) => holds)?.[1] ?? null;
    if (cause !== null) {
      if (this.stall_cause !== cause) this.stall_count++;
      this.stall_seconds += dt * 0.6;
    }
    this.stall_cause = cause;
    return cause === null ? 1 : 0.35;
  }

  private advance(dt: number): void {
    for (const job of [...this.jobs]) {
      const step = job.speed * dt;
      job.read_bytes = Math.min(job.input_bytes, Math.round(job.read_bytes + step * 1.04));
      job.written_bytes = Math.min(job.input_bytes, Math.round(job.written_bytes + step));
      if (job.written_bytes >= job.input_bytes) this.finish(job);
    }
  }

  private finish(job: RunningJob): void {
    this.jobs.splice(this.jobs.indexOf(job), 1);
    const outputs: number[] = [];
    if (job.kind === "flush") {
      this.immutables--;
      this.flushed += job.input_bytes;
      outputs.push(this.addFile(0, 0.001, 0.998, job.input_bytes * 0.92).number);
    } else if (job.kind === "compaction") {
      this.compacted += job.input_bytes;
      const into = job.output_level!;
      const gone = new Set(job.files.map((file) => file.number));
      this.files = this.files.map((level) => level.filter((file) => !gone.has(file.number)));
      const kept = job.files.filter((file) => file.level === into).reduce((sum, f) => sum + f.bytes, 0);
      const fresh = job.input_bytes - kept;
      const deepest = into === this.deepest();
      const bytes = deepest ? Math.max(kept * 0.985 + fresh * 0.05, FILE_BYTES) : kept + fresh * 0.94;
      const from = Math.min(...job.files.map((f) => f.from));
      const to = Math.max(...job.files.map((f) => f.to));
      const count = Math.max(1, Math.round(bytes / FILE_BYTES));
      for (let i = 0; i < count; i++) {
        const width = (to - from) / count;
        const end = from + width * (i + 1) - (i + 1 === count ? 0 : 1e-6);
        outputs.push(this.addFile(into, from + width * i, end, (bytes / count) * (0.9 + 0.2 * this.random())).number);
      }
    }
    const { files: _, speed: __, ...plain } = job;
    this.finished.push({ ...plain, ended_ms: Date.now(), outputs });
    this.epoch++;
  }

  deepest(): number {
    return this.scenario === "huge" ? 4 : 3;
  }

  private start(kind: JobKind, files: MockFile[], output: number | null, bytes: number, speed: number): void {
    for (const file of files) file.is_compacting = true;
    this.jobs.push({
      id: this.next_job++, kind, family: "default",
      inputs: files.map((file) => ({ level: file.level, file: file.number })),
      output_level: output, started_ms: Date.now(), input_bytes: Math.round(bytes), read_bytes: 0, written_bytes: 0,
      files, speed,
    });
  }

  private schedule(): void {
    const running = (kind: JobKind) => this.jobs.filter((job) => job.kind === kind).length;
    if (this.immutables > 0 && running("flush") === 0) {
      this.start("flush", [], 0, MEMTABLE_LIMIT, 12 * MIB);
    }
    if (this.time_s % 97 > 85 && running("garbage_collection") === 0) {
      this.start("garbage_collection", [], null, 64 * MIB, 9 * MIB);
    }
    if (running("compaction") >= 2) return;
    const slow = this.scenario === "stalled" ? 0.35 : 1;
    const idle = this.files.map((level) => level.filter((file) => !file.is_compacting));
    if (idle[0]!.length >= L0_COMPACT && idle[0]!.length === this.files[0]!.length && idle[1]!.length === this.files[1]!.length) {
      const files = [...idle[0]!, ...idle[1]!];
      this.start("compaction", files, 1, total(files), 34 * MIB * slow);
      return;
    }
    for (let level = 1; level < this.deepest(); level++) {
      if (total(this.files[level]!) <= this.targets[level]! || this.jobs.some((j) => j.output_level === level)) continue;
      const picked = idle[level]![Math.floor(this.random() * idle[level]!.length)];
      if (picked === undefined) continue;
      const below = this.files[level + 1]!.filter((file) => file.from <= picked.to && file.to >= picked.from);
      if (below.some((file) => file.is_compacting)) continue;
      const files = [picked, ...below];
      this.start("compaction", files, level + 1, total(files), 22 * MIB * slow);
      return;
    }
  }
}

export function total(files: MockFile[]): number {
  return files.reduce((sum, file) => sum + file.bytes, 0);
}
