// What to do, in words with the numbers behind them. Pure.
import type { Live, Pool } from "./api.ts";
import { debtOf } from "./debt.ts";
import { bytes, count, digits, duration, percent, plural } from "./format.ts";
import type { SeriesBuffer, StallBand } from "./series-buffer.ts";

export interface Advice {
  id: "refused" | "damage" | "stall" | "memory" | "process" | "compaction" | "garbage" | "lookups" | "fine";
  /** `now`: writes or reads suffer; `soon`: they will, or something is to be won; `fine`: nothing. */
  urgency: "now" | "soon" | "fine";
  text: string;
  /** What the text is made of. */
  numbers: [string, string][];
}

/** What to do where writes are refused, by its reason. */
const REFUSED: Record<string, string> = {
  "the disk is full": "Writes are refused since the disk is full. Commands that only remove keys are taken as long as the reserve lasts, and FLUSHALL and FLUSHDB need next to no room; or give the file system some. Writes are taken again by themselves when there is room.",
  "an earlier failure": "Writes are refused since an earlier failure, which the log names. Reads go on; a restart of the server opens the store again.",
};
/** A cause of stalls. */
const COLLECTION_BEHIND = "garbage collection is behind";
/** How far back stalls count. */
const STALL_WINDOW_S = 600;
/** Less of it than this may be unknown without a word. */
const UNKNOWN_S = 5;
/** Over how long lookups are looked at. */
const LOOKUP_WINDOW_S = 60;
const MIB = 1 << 20;
/** What a process may hold besides the budget of its store, as MEMORY DOCTOR has it. */
const PROCESS_BYTES = 64 * MIB;
/** More memory is advised if a quarter more saves this share of all device reads, and these are at least this many a second. */
const WORTHWHILE_SHARE = 0.05;
const WORTHWHILE_READS = 10;
/** A value log below this is not worth a word. */
const SMALL_LOG_BYTES = 64 * MIB;
/** Device reads of a lookup from which on it is worth a word. */
const MANY_READS = 0.5;

export function advise(live: Live, series: SeriesBuffer): Advice[] {
  const all = [refused(live), damaged(live), stalls(live, series), compaction(live), garbage(live, series), memory(live, series), residence(live), lookups(live, series)];
  const found = all.filter((one) => one !== null);
  found.sort((a, b) => Number(b.urgency === "now") - Number(a.urgency === "now"));
  if (found.length > 0) return found;
  return [{ id: "fine", urgency: "fine", text: `${quiet(series)} More memory would save little.`, numbers: [] }];
}

/** Nothing was found, as far as the time is known. */
function quiet(series: SeriesBuffer): string {
  const known = series.known(STALL_WINDOW_S);
  const window = duration(STALL_WINDOW_S);
  if (known > STALL_WINDOW_S - UNKNOWN_S) return `Nothing to do: writes were not held back in the last ${window}.`;
  return `Nothing to do as far as this page knows: it has seen ${duration(Math.round(known))} of the last ${window}, and in these writes were not held back.`;
}

function refused(live: Live): Advice | null {
  const { writes_refused, disk_bytes } = live.summary;
  if (writes_refused === null) return null;
  const text = REFUSED[writes_refused] ?? `Writes are refused: ${writes_refused}.`;
  return { id: "refused", urgency: "now", text, numbers: [["store on disk", bytes(disk_bytes)]] };
}

/** Files that merging goes around, since they cannot be read. */
function damaged(live: Live): Advice | null {
  const files = live.shape.quarantined ?? [];
  const first = files[0];
  if (first === undefined) return null;
  const name = `${String(first.number).padStart(6, "0")}.sst`;
  return {
    id: "damage", urgency: "now",
    text: `${plural(files.length, "file")} cannot be read and ${files.length === 1 ? "is" : "are"} left out of merging. ${name}, in L${first.level} of ${first.family}: ${first.error}. Damaged files are to be restored from a backup or a checkpoint, and the store opened again; others are tried again.`,
    numbers: [["files", String(files.length)], ["first", name]],
  };
}

function lately(live: Live, series: SeriesBuffer): StallBand[] {
  return series.bands().filter((band) => band.to > live.summary.now_ms / 1000 - STALL_WINDOW_S);
}

/** Why writes are held back, or were lately, and what helps against that cause. */
function stalls(live: Live, series: SeriesBuffer): Advice | null {
  const { stall } = live.summary;
  const bands = lately(live, series);
  const of = (cause: string) => bands.filter((band) => band.cause === cause).reduce((sum, band) => sum + band.held, 0);
  const causes = [...new Set(bands.map((band) => band.cause))].sort((a, b) => of(b) - of(a));
  const cause = stall.cause ?? causes[0];
  if (cause === undefined) return null;
  const { why, state, remedy, numbers } = causeOf(cause, live);
  const is_now = stall.cause !== null;
  // The figures are those of now, which are no reason for what is over.
  const what = is_now ? `${stall.is_stopped ? "Writes stop" : "Writes are slowed"} because ${why}${state}.`
    : `Writes were held back lately: ${cause}.${state === "" ? "" : ` Now ${state}.`}`;
  return { id: "stall", urgency: is_now ? "now" : "soon", text: what + remedy, numbers: [["held back lately", duration(Math.round(of(cause)))], ...numbers] };
}

interface Cause {
  /** What the cause means, before the figures. */
  why: string;
  /** The figures of now. */
  state: string;
  remedy: string;
  numbers: [string, string][];
}

function causeOf(cause: string, live: Live): Cause {
  const debt = debtOf(live.shape, live.jobs);
  if (cause === "memtables wait for their flush") {
    const pool = poolOf(live, "memtables");
    const limit = pool?.limit_bytes ?? 0;
    const gain = gainOf(live, pool);
    const more = gain === null ? "" : ` ${gain.text}`;
    return {
      why: "",
      state: `memtables hold ${bytes(limit)} and ${debt.waiting_memtables} of them ${debt.waiting_memtables === 1 ? "waits" : "wait"} for a flush`,
      remedy: ` More memory for the store (maxmemory) makes them larger, and a faster device flushes sooner.${more}`,
      numbers: [["memtables", `${bytes(pool?.used_bytes ?? 0)} of ${bytes(limit)}`], ["waiting", String(debt.waiting_memtables)], ...(gain?.numbers ?? [])],
    };
  }
  const threads = " More threads (background-jobs) or a higher rate-limit-bytes let merging keep up, if the device is not busy.";
  if (cause === "too many L0 files") {
    return {
      why: "",
      state: `L0 has ${plural(debt.l0_files, "file")}: from ${debt.l0_slowdown_files} on writes are slowed, at ${debt.l0_stop_files} they stop`,
      remedy: threads,
      numbers: [["L0 files", `${debt.l0_files} of ${debt.l0_stop_files}`], ["left to merge", bytes(debt.running_bytes)]],
    };
  }
  if (cause === COLLECTION_BEHIND) {
    return {
      why: "values are overwritten faster than their space is collected: ",
      state: `${bytes(live.shape.garbage_bytes)} of ${bytes(live.shape.value_bytes)} in the value log are garbage`,
      remedy: " A higher gc-garbage-ratio lets more of it stay; a higher value-separation-threshold puts fewer values there.",
      numbers: [["value log", bytes(live.shape.value_bytes)], ["garbage", percent(debt.garbage_share)]],
    };
  }
  if (cause === "pending compaction") {
    return {
      why: "levels are far over their size: ",
      state: `${bytes(debt.running_bytes)} are left to merge in ${plural(debt.running_jobs, "compaction")} that ${debt.running_jobs === 1 ? "runs" : "run"}`,
      remedy: threads,
      numbers: [["left to merge", bytes(debt.running_bytes)], ["compactions", String(debt.running_jobs)]],
    };
  }
  return { why: cause, state: "", remedy: "", numbers: [] };
}

/** L0 fills up, though nothing is slowed yet. */
function compaction(live: Live): Advice | null {
  const debt = debtOf(live.shape, live.jobs);
  if (live.summary.stall.cause !== null || debt.l0_slowdown_files === 0 || debt.l0_files * 2 < debt.l0_slowdown_files) return null;
  return {
    id: "compaction", urgency: "soon",
    text: `Merging falls behind: L0 has ${plural(debt.l0_files, "file")}, and writes are slowed from ${debt.l0_slowdown_files} on. ${debt.running_jobs === 0 ? "No compaction runs" : `${plural(debt.running_jobs, "compaction")} with ${bytes(debt.running_bytes)} left to merge ${debt.running_jobs === 1 ? "runs" : "run"}`}.`,
    numbers: [["L0", `${debt.l0_files} files, ${bytes(debt.l0_bytes)}`], ["slowed from", String(debt.l0_slowdown_files)]],
  };
}

function garbage(live: Live, series: SeriesBuffer): Advice | null {
  const { value_bytes, garbage_bytes } = live.shape;
  const share = debtOf(live.shape, live.jobs).garbage_share;
  if (value_bytes < SMALL_LOG_BYTES || (share ?? 0) < 0.4) return null;
  // Where writes wait for collection, there is to be less of it.
  if (lately(live, series).some((band) => band.cause === COLLECTION_BEHIND)) return null;
  const runs = live.jobs.some((job) => job.kind === "garbage_collection");
  return {
    id: "garbage", urgency: "soon",
    text: `${percent(share)} of the value log is garbage: ${bytes(garbage_bytes)} of ${bytes(value_bytes)}. ${runs ? "It is being collected." : "A lower gc-garbage-ratio gives the space back, for more writing."}`,
    numbers: [["value log", bytes(value_bytes)], ["garbage", bytes(garbage_bytes)]],
  };
}

/** Where more memory saves device reads, and how many of those that there are. */
function memory(live: Live, series: SeriesBuffer): Advice | null {
  const best = live.memory.pools.reduce<Pool | null>((most, pool) => ((pool.saved_reads_per_mib_s ?? 0) > (most?.saved_reads_per_mib_s ?? 0) ? pool : most), null);
  const gain = gainOf(live, best);
  const reads = series.mean("device_reads_per_s", LOOKUP_WINDOW_S);
  if (best === null || gain === null || reads === null) return null;
  const saved = Math.min(gain.saved, reads);
  if (reads < WORTHWHILE_READS || saved < reads * WORTHWHILE_SHARE) return null;
  return {
    id: "memory", urgency: "soon",
    text: `Lookups read the device ${count(Math.round(reads))} times a second, and the store has ${bytes(live.memory.budget_bytes)}. ${bytes(gain.more_bytes)} more (maxmemory) would save up to ${count(Math.round(saved))} of these reads, most of all in ${best.name}.`,
    numbers: [["device reads", `${count(Math.round(reads))}/s`], [`a MiB more in ${best.name}`, `${digits(best.saved_reads_per_mib_s!)} reads/s`]],
  };
}

/** A quarter of the budget more, and what it saves at most: each further MiB saves less than the one before. */
function gainOf(live: Live, pool: Pool | null): { more_bytes: number; saved: number; text: string; numbers: [string, string][] } | null {
  const per_mib = pool?.saved_reads_per_mib_s ?? 0;
  if (pool === null || per_mib <= 0) return null;
  const more_bytes = Math.max(1, Math.round(live.memory.budget_bytes / 4 / MIB)) * MIB;
  const saved = (per_mib * more_bytes) / MIB;
  return {
    more_bytes, saved, text: `${bytes(more_bytes)} more would save up to ${count(Math.round(saved))} reads/s.`,
    numbers: [[`a MiB more in ${pool.name}`, `${digits(per_mib)} reads/s`]],
  };
}

function residence(live: Live): Advice | null {
  const { rss_bytes, budget_bytes } = live.memory;
  if (rss_bytes === null || rss_bytes <= budget_bytes + PROCESS_BYTES) return null;
  return {
    id: "process", urgency: "soon",
    text: `The process has ${bytes(rss_bytes)} in memory, with ${bytes(budget_bytes)} for the store and ${bytes(PROCESS_BYTES)} for everything else. The rest are buffers of connections and jobs, and memory that the allocator has not given back: MEMORY DOCTOR says more.`,
    numbers: [["process", bytes(rss_bytes)], ["budget", bytes(budget_bytes)]],
  };
}

/** Lookups that read the device again and again. */
function lookups(live: Live, series: SeriesBuffer): Advice | null {
  const per_get = series.mean("device_reads_per_get", LOOKUP_WINDOW_S);
  if (per_get === null || per_get < MANY_READS) return null;
  const files = live.shape.families.flatMap((family) => family.levels.flatMap((level) => level.files ?? []));
  const units = files.reduce((sum, file) => sum + file.filter_units, 0);
  const loaded = files.reduce((sum, file) => sum + file.filter_units_in_memory, 0);
  const share = units === 0 ? null : loaded / units;
  const filters = share === null ? "" : ` ${percent(share)} of the filter units are in memory.`;
  const hits = series.hitRate(LOOKUP_WINDOW_S);
  return {
    id: "lookups", urgency: "soon",
    text: `A lookup reads the device ${digits(per_get)} times on average.${hits === null ? "" : ` ${percent(hits)} of the blocks that it needs are in the cache.`}${filters} "Follow a key" shows which places are read, for a key that is slow.`,
    numbers: [["reads per lookup", digits(per_get)], ["cache hits", percent(hits)], ["filters in memory", percent(share)]],
  };
}

function poolOf(live: Live, name: string): Pool | null {
  return live.memory.pools.find((pool) => pool.name === name) ?? null;
}
