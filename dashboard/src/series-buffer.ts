// Values of everything drawn over time, one for each second or for each step of half a minute. Pure.
import type { History, Summary } from "./api.ts";

/** Seconds that are shown one by one; longer times are shown in steps. */
export const KEPT_S = 600;

export const COLUMNS = [
  "reads_per_s", "writes_per_s", "read_p50_us", "read_p99_us", "read_p999_us", "write_p50_us", "write_p99_us",
  "write_p999_us", "write_amplification", "space_amplification", "device_reads_per_get",
] as const;
export type Column = (typeof COLUMNS)[number];

export interface StallBand {
  cause: string;
  /** Seconds since 1970. */
  from: number;
  to: number;
  /** Seconds of these that writers were held back: all of them, if it is known by the second only. */
  held: number;
}

type Sample = Record<Column, number | null> & {
  t: number;
  cause: string | null;
  held: number;
  hits: number | null;
  misses: number | null;
  /** Seen by the page itself only. */
  device_reads_per_s: number | null;
};

export class SeriesBuffer {
  private samples: Sample[] = [];
  private step_s = 1;

  get length(): number {
    return this.samples.length;
  }

  push(summary: Summary): void {
    const { read, write } = summary.latency_us;
    const t = summary.now_ms / 1000;
    // A stream that began again repeats the second it begins with.
    const last = this.samples.at(-1)?.t ?? 0;
    // Unless the server's clock was set back.
    if (last >= t && last - t < 2) return;
    while ((this.samples.at(-1)?.t ?? 0) >= t) this.samples.pop();
    this.samples.push({
      t, cause: summary.stall.cause, held: 1,
      reads_per_s: summary.reads_per_s, writes_per_s: summary.writes_per_s,
      read_p50_us: read.p50, read_p99_us: read.p99, read_p999_us: read.p999,
      write_p50_us: write.p50, write_p99_us: write.p99, write_p999_us: write.p999,
      write_amplification: summary.write_amplification, space_amplification: summary.space_amplification,
      device_reads_per_get: summary.device_reads_per_get,
      hits: summary.block_hits, misses: summary.block_misses, device_reads_per_s: summary.device_reads_per_s,
    });
    const oldest = t - KEPT_S;
    while ((this.samples[0]?.t ?? t) < oldest) this.samples.shift();
  }

  /** The server was restarted: its counters begin again, what was before stays. */
  restart(): void {
    for (const sample of this.samples) sample.hits = sample.misses = null;
  }

  /** Puts what the server remembers where the page saw nothing itself within half a second, before the last second that it saw. */
  merge(history: History): void {
    const own = this.samples;
    const last = own.at(-1)?.t ?? Number.POSITIVE_INFINITY;
    let at = 0;
    const unseen = samplesOf(history).filter(({ t }) => {
      while (at < own.length && own[at]!.t <= t - 0.5) at++;
      return t < last && (at === own.length || own[at]!.t >= t + 0.5);
    });
    const all = [...own, ...unseen].sort((a, b) => a.t - b.t);
    const oldest = (all.at(-1)?.t ?? 0) - KEPT_S;
    this.samples = all.filter((sample) => sample.t >= oldest);
  }

  /** Shows what the server remembers, and nothing else. */
  replace(history: History): void {
    this.samples = samplesOf(history);
    this.step_s = history.step_s;
  }

  /** Times and the columns, the last `seconds` of them, with a gap wherever values are missing. */
  window(seconds: number, columns: readonly Column[]): (number | null)[][] {
    const end = this.samples.at(-1)?.t ?? 0;
    const times: number[] = [];
    const values: (number | null)[][] = columns.map(() => []);
    let before: number | null = null;
    for (const sample of this.samples) {
      if (sample.t < end - seconds) continue;
      if (before !== null && sample.t - before > 3.5 * this.step_s) {
        times.push(before + this.step_s);
        for (const column of values) column.push(null);
      }
      times.push(sample.t);
      columns.forEach((column, at) => values[at]!.push(sample[column]));
      before = sample.t;
    }
    return [times, ...values];
  }

  bands(): StallBand[] {
    const bands: StallBand[] = [];
    for (const { t, cause, held } of this.samples) {
      if (cause === null) continue;
      const last = bands.at(-1);
      if (last !== undefined && last.cause === cause && t - last.to < 1.8 * this.step_s) {
        last.to = t;
        last.held += held;
      } else bands.push({ cause, from: t - this.step_s, to: t, held });
    }
    return bands;
  }

  /** Share of block lookups that found the block in the cache over the last `seconds`; `null`: none. */
  hitRate(seconds: number): number | null {
    const last = this.samples.at(-1);
    if (last === undefined || last.hits === null || last.misses === null) return null;
    const first = this.samples.find((sample) => sample.hits !== null && sample.t >= last.t - seconds);
    if (first === undefined || first === last) return rate(last.hits, last.misses);
    return rate(last.hits - first.hits!, last.misses - first.misses!);
  }

  /** Seconds of the last `seconds` of which something is known. */
  known(seconds: number): number {
    const end = this.samples.at(-1)?.t ?? 0;
    let [sum, before] = [0, Number.NEGATIVE_INFINITY];
    for (const { t } of this.samples) {
      if (t <= end - seconds) continue;
      sum += t - before < 1.8 * this.step_s ? t - before : this.step_s;
      before = t;
    }
    return Math.min(seconds, sum);
  }

  /** Mean of a column over the last `seconds`; `null`: not known. */
  mean(column: Column | "device_reads_per_s", seconds: number): number | null {
    const end = this.samples.at(-1)?.t ?? 0;
    const known = this.samples.filter((sample) => sample.t > end - seconds).flatMap((sample) => sample[column] ?? []);
    return known.length === 0 ? null : known.reduce((sum, value) => sum + value, 0) / known.length;
  }
}

/** Those of a history whose times go on. */
function samplesOf(history: History): Sample[] {
  const samples: Sample[] = [];
  history.t_ms.forEach((ms, at) => {
    const t = ms / 1000;
    if (t <= (samples.at(-1)?.t ?? 0)) return;
    const held = history.step_s === 1 ? 1 : Math.min(history.step_s, history.stall_seconds[at] ?? 0);
    const sample = { t, cause: history.stall_cause[at] ?? null, held, hits: null, misses: null, device_reads_per_s: null } as Sample;
    for (const column of COLUMNS) sample[column] = history[column][at] ?? null;
    samples.push(sample);
  });
  return samples;
}

function rate(hits: number, misses: number): number | null {
  return hits + misses > 0 ? hits / (hits + misses) : null;
}
