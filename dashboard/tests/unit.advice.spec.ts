// The advice: for each thing that can be wrong its words and numbers, and for none that nothing is to be done.
import assert from "node:assert/strict";
import { test } from "node:test";
import { live } from "../mock/answers.ts";
import { Engine } from "../mock/engine.ts";
import { type Advice, advise } from "../src/advice.ts";
import type { Job, Live, Pool, Stall } from "../src/api.ts";
import { debtOf, doneShare } from "../src/debt.ts";
import { SeriesBuffer } from "../src/series-buffer.ts";

const MIB = 1 << 20;
const QUIET: Stall = { cause: null, is_stopped: false, seconds_total: 0, count: 0 };

/** A store at rest: nothing in L0, no garbage, memory that is worth nothing. */
function atRest(change: (live: Live) => void = () => undefined): Live {
  const made = structuredClone(live(new Engine("live"), []));
  made.summary = { ...made.summary, stall: QUIET, reads_per_s: 1000, device_reads_per_get: 0, device_reads_per_s: 0 };
  for (const family of made.shape.families) family.levels = [];
  made.shape = { ...made.shape, garbage_bytes: 0 };
  made.memory.rss_bytes = made.memory.budget_bytes;
  for (const pool of made.memory.pools) pool.saved_reads_per_mib_s = 0;
  made.jobs = [];
  change(made);
  return made;
}

/** What is advised after half a minute like this. */
function adviseOn(now: Live): Advice[] {
  const series = new SeriesBuffer();
  for (let second = 30; second >= 0; second--) series.push({ ...now.summary, now_ms: now.summary.now_ms - second * 1000 });
  return advise(now, series);
}

function only(now: Live, id: Advice["id"]): Advice {
  const all = adviseOn(now);
  assert.deepEqual(all.map((one) => one.id), [id], JSON.stringify(all));
  return all[0]!;
}

const pool = (now: Live, name: string): Pool => now.memory.pools.find((one) => one.name === name)!;

test("a store at rest needs nothing", () => {
  assert.equal(only(atRest(), "fine").urgency, "fine");
});

test("nothing to do is said of the time that is known", () => {
  assert.match(only(atRest(), "fine").text, /^Nothing to do as far as this page knows: it has seen 31 s of the last 10 min, and in these writes were not held back\./);
  const now = atRest();
  const said = (is_seen: (second: number) => boolean): string => {
    const series = new SeriesBuffer();
    for (let second = 599; second >= 0; second--) if (is_seen(second)) series.push({ ...now.summary, now_ms: now.summary.now_ms - second * 1000 });
    return advise(now, series)[0]!.text;
  };
  assert.match(said(() => true), /^Nothing to do: writes were not held back in the last 10 min\./);
  assert.match(said((second) => second > 400 || second < 100), /it has seen 4 min 59 s of the last 10 min/);
});

test("a store that refuses writes needs something, first of all", () => {
  const of = (reason: string) => only(atRest((now) => (now.summary.writes_refused = reason)), "refused");
  assert.equal(of("the disk is full").urgency, "now");
  assert.match(of("the disk is full").text, /^Writes are refused since the disk is full\. .* when there is room\.$/);
  assert.match(of("an earlier failure").text, /a restart of the server opens the store again\.$/);
  assert.equal(of("something new").text, "Writes are refused: something new.");
  const stalled = atRest((now) => Object.assign(now.summary, { writes_refused: "the disk is full", stall: { ...QUIET, cause: "too many L0 files", is_stopped: true } }));
  assert.deepEqual(adviseOn(stalled).map((one) => one.id), ["refused", "stall"]);
});

test("a stop since memtables wait names what they hold, and what more memory would save", () => {
  const now = atRest((now) => {
    now.summary.stall = { cause: "memtables wait for their flush", is_stopped: true, seconds_total: 9, count: 1 };
    now.memory.budget_bytes = 512 * MIB;
    Object.assign(pool(now, "memtables"), { limit_bytes: 4 * MIB, saved_reads_per_mib_s: 0.58 });
    now.shape.families[0]!.immutable_memtables = 2;
  });
  const advice = only(now, "stall");
  assert.equal(advice.urgency, "now");
  assert.match(advice.text, /^Writes stop because memtables hold 4 MiB and 2 of them wait for a flush\./);
  assert.match(advice.text, /128 MiB more would save up to 74 reads\/s\.$/);
  assert.deepEqual(advice.numbers.find(([name]) => name === "held back lately"), ["held back lately", "31 s"]);
});

test("every cause of a stall has words and numbers of its own, and so has one that is unknown", () => {
  const of = (cause: string) => only(atRest((now) => {
    now.summary.stall = { cause, is_stopped: false, seconds_total: 1, count: 1 };
    now.shape = { ...now.shape, value_bytes: 200 * MIB, garbage_bytes: 60 * MIB };
    const [family] = now.shape.families;
    Object.assign(family!, { l0_slowdown_files: 20, l0_stop_files: 36 });
    family!.levels = [{ file_count: 23, size_bytes: 23 * MIB, target_bytes: null, entry_count: 1, files: [] }];
    now.jobs = [{ id: 1, kind: "compaction", family: "default", inputs: [], output_level: 1, started_ms: 0, input_bytes: 80 * MIB, read_bytes: 30 * MIB, written_bytes: 4 * MIB }];
  }), "stall");
  assert.match(of("too many L0 files").text, /^Writes are slowed because L0 has 23 files: from 20 on writes are slowed, at 36 they stop/);
  assert.match(of("pending compaction").text, /50 MiB are left to merge in 1 compaction that runs/);
  assert.match(of("garbage collection is behind").text, /60 MiB of 200 MiB in the value log are garbage/);
  assert.match(of("something new").text, /because something new\.$/);
});

test("a stall that is over is shown for ten minutes, and what is so now is not called its reason", () => {
  const now = atRest((now) => Object.assign(now.shape.families[0]!, { l0_slowdown_files: 20, l0_stop_files: 36 }));
  const after = (cause: string): string => {
    const series = new SeriesBuffer();
    const before = (second: number, stall: Stall) => series.push({ ...now.summary, now_ms: now.summary.now_ms - second * 1000, stall });
    before(20, { ...QUIET, cause });
    before(0, QUIET);
    return advise(now, series)[0]!.text;
  };
  assert.match(after("too many L0 files"), /^Writes were held back lately: too many L0 files\. Now L0 has 0 files: from 20 on writes are slowed, at 36 they stop\. More threads/);
  assert.match(after("pending compaction"), /^Writes were held back lately: pending compaction\. Now 0 B are left to merge in 0 compactions that run\. More threads/);
  assert.match(after("memtables wait for their flush"), /Now memtables hold .* and 0 of them wait for a flush\. More memory/);
  assert.match(after("garbage collection is behind"), /^Writes were held back lately: garbage collection is behind\. Now 0 B of .* in the value log are garbage\. A higher/);
  assert.equal(after("something new"), "Writes were held back lately: something new.");
});

test("after a stall of garbage collection nobody is advised to collect more", () => {
  const now = atRest((now) => (now.shape = { ...now.shape, value_bytes: 200 * MIB, garbage_bytes: 90 * MIB }));
  const series = new SeriesBuffer();
  const before = (second: number, cause: string | null) => series.push({ ...now.summary, now_ms: now.summary.now_ms - second * 1000, stall: { ...QUIET, cause } });
  before(20, "garbage collection is behind");
  before(0, null);
  const all = advise(now, series);
  assert.deepEqual(all.map((one) => one.id), ["stall"]);
  assert.match(all[0]!.text, /A higher gc-garbage-ratio lets more of it stay/);
});

test("more memory is advised where it saves a good part of the device reads, and never more than there are", () => {
  const with_gain = (saved: number, reads: number) => adviseOn(atRest((now) => {
    now.memory.budget_bytes = 64 * MIB;
    pool(now, "blocks").saved_reads_per_mib_s = saved;
    // Of commands with hundred keys each.
    Object.assign(now.summary, { reads_per_s: 10, device_reads_per_get: reads / 1000, device_reads_per_s: reads });
  }));
  assert.match(with_gain(3, 200)[0]!.text, /^Lookups read the device 200 times a second, and the store has 64 MiB\. 16 MiB more \(maxmemory\) would save up to 48 of these reads, most of all in blocks\./);
  assert.match(with_gain(30, 200)[0]!.text, /save up to 200 of these/);
  assert.deepEqual(with_gain(0.1, 200).map((one) => one.id), ["fine"], "too little");
  assert.deepEqual(with_gain(3, 5).map((one) => one.id), ["fine"], "hardly any reads");
});

test("a full L0, garbage, a large process and lookups that read much are told before they hurt", () => {
  const l0 = only(atRest((now) => {
    Object.assign(now.shape.families[0]!, { l0_slowdown_files: 20, l0_stop_files: 36 });
    now.shape.families[0]!.levels = [{ file_count: 12, size_bytes: MIB, target_bytes: null, entry_count: 1, files: [] }];
  }), "compaction");
  assert.match(l0.text, /L0 has 12 files, and writes are slowed from 20 on\. No compaction runs\./);
  const garbage = only(atRest((now) => (now.shape = { ...now.shape, value_bytes: 200 * MIB, garbage_bytes: 90 * MIB })), "garbage");
  assert.match(garbage.text, /^45 % of the value log is garbage: 90 MiB of 200 MiB\./);
  const process = only(atRest((now) => (now.memory.rss_bytes = now.memory.budget_bytes + 65 * MIB)), "process");
  assert.match(process.text, /^The process has 193 MiB in memory, with 128 MiB for the store/);
  const lookups = only(atRest((now) => (now.summary.device_reads_per_get = 1.4)), "lookups");
  assert.match(lookups.text, /^A lookup reads the device 1\.4 times on average\./);
});

test("the debt is that of the fullest L0 and of what runs", () => {
  const now = atRest((now) => {
    now.shape.families[1]!.levels = [{ file_count: 9, size_bytes: 5, target_bytes: null, entry_count: 1, files: null }];
    now.shape.families[2]!.immutable_memtables = 3;
    now.shape = { ...now.shape, value_bytes: 0 };
  });
  const debt = debtOf(now.shape, now.jobs);
  const job: Job = { id: 1, kind: "compaction", family: "default", inputs: [], output_level: 1, started_ms: 0, input_bytes: 100, read_bytes: 60, written_bytes: 20 };
  const jobs = [job, { ...job, input_bytes: 0, read_bytes: 5, written_bytes: 5 }];
  assert.deepEqual([debtOf(now.shape, jobs).running_bytes, ...jobs.map(doneShare)], [40, 0.6, 0]);
  assert.deepEqual([debt.l0_files, debt.l0_bytes, debt.waiting_memtables, debt.running_bytes, debt.garbage_share], [9, 5, 3, 0, null]);
});
