// What the mock remembers: seconds as they come, and a made-up day before them, with a restart in it.
import type { History, Mark, Summary } from "../src/api.ts";
import { COLUMNS } from "../src/series-buffer.ts";

const STEP_S = 30;
const DAY_S = 86_400;
/** Behind the start of the mock: when the run before began and ended. */
const RUN_BEFORE_H = [20, 5] as const;

/** What is behind GET /history. */
export class Ring {
  marks: Mark[] = [];
  private samples: { summary: Summary; stalled: number }[] = [];
  private stalled_before = 0;

  push(summary: Summary): void {
    const stalled = summary.stall.seconds_total - this.stalled_before;
    this.stalled_before = summary.stall.seconds_total;
    this.samples.push({ summary, stalled });
    if (this.samples.length > 600) this.samples.shift();
  }

  history(seconds: number): History {
    if (seconds > 600) return this.steps(seconds);
    const kept = seconds > 0 ? this.samples.slice(-seconds) : [];
    const column = <T>(of: (s: Summary) => T): T[] => kept.map((sample) => of(sample.summary));
    return {
      step_s: 1, marks: this.marks,
      t_ms: column((s) => s.now_ms), reads_per_s: column((s) => s.reads_per_s), writes_per_s: column((s) => s.writes_per_s),
      read_p50_us: column((s) => s.latency_us.read.p50), read_p99_us: column((s) => s.latency_us.read.p99),
      read_p999_us: column((s) => s.latency_us.read.p999), write_p50_us: column((s) => s.latency_us.write.p50),
      write_p99_us: column((s) => s.latency_us.write.p99), write_p999_us: column((s) => s.latency_us.write.p999),
      write_amplification: column((s) => s.write_amplification), space_amplification: column((s) => s.space_amplification),
      device_reads_per_get: column((s) => s.device_reads_per_get), stall_cause: column((s) => s.stall.cause),
      stall_seconds: kept.map((sample) => Math.max(0, sample.stalled)),
    };
  }

  /** A quiet night and a busy day; an hour between the two runs. */
  private steps(seconds: number): History {
    const history: History = { ...this.history(0), step_s: STEP_S };
    const now_s = Math.floor(Date.now() / 1000 / STEP_S) * STEP_S;
    for (let t = now_s - Math.min(seconds, DAY_S) + STEP_S; t <= now_s; t += STEP_S) {
      const hours = (now_s - t) / 3600;
      if (hours > RUN_BEFORE_H[0] || (hours < RUN_BEFORE_H[1] && hours > RUN_BEFORE_H[1] - 1)) continue;
      const wave = 1 + Math.sin(t / 7200) + 0.1 * Math.sin(t / 190);
      const stalls = t % 5400 < 240;
      history.t_ms.push(t * 1000);
      for (const column of COLUMNS) (history[column] as (number | null)[]).push(LEVELS[column] * (1 + wave));
      history.stall_cause.push(stalls ? "too many L0 files" : null);
      history.stall_seconds.push(stalls ? 3 : 0);
    }
    return history;
  }

  /** The marks of that day, before a mock that starts now. */
  static marksOfTheDay(version: string): Mark[] {
    const at = (hours: number) => Date.now() - hours * 3_600_000;
    return [
      { t_ms: at(RUN_BEFORE_H[0]), kind: "start", version, options: [] },
      { t_ms: at(RUN_BEFORE_H[1] - 1), kind: "start", version, options: ["maxmemory", "background-jobs"] },
      { t_ms: at(0.02), kind: "options", version, options: ["rate-limit-bytes"] },
    ];
  }
}

const LEVELS: Record<(typeof COLUMNS)[number], number> = {
  reads_per_s: 20_000, writes_per_s: 7000, read_p50_us: 3, read_p99_us: 40, read_p999_us: 110, write_p50_us: 4,
  write_p99_us: 30, write_p999_us: 200, write_amplification: 2, space_amplification: 0.5, device_reads_per_get: 0.02,
};
