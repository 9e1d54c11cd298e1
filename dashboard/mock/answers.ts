// What the mock's store answers to every endpoint of src/api.ts.
import type {
  CommandLatencies, Config, FileFilters, Filters, HotKeys, Job, Live, Memory, Model, Shape, SlowLog, Summary,
} from "../src/api.ts";
import { SHAPE_FILES_MAX, STREAM_FILES_MAX } from "../src/api.ts";
import { ENTRY_BYTES, type Engine, L0_COMPACT, L0_SLOW, MEMTABLE_LIMIT, MIB, type MockFile, PARTITION_KEYS, total } from "./engine.ts";
import { engineKeyOf, keyOf, nameAt } from "./keys.ts";
import { rng } from "./rng.ts";

const UNITS = 5;
const BUDGET = 128 * MIB;
/** Files of a level that are listed one by one, however many the store has. */
const FEW_FILES = 100;

function partitionsOf(engine: Engine, file: MockFile): [number, number, number][] {
  const entries = file.bytes / ENTRY_BYTES;
  const count = Math.min(12, Math.max(1, Math.round(entries / PARTITION_KEYS)));
  const width = (file.to - file.from) / count;
  const partitions: [number, number, number][] = [];
  for (let i = 0; i < count; i++) {
    const from = file.from + width * i;
    const heat = engine.heatOf(from, from + width, file.level);
    const worth = Math.log2(1 + heat / (file.level >= 3 ? 30 : 6));
    partitions.push([UNITS, Math.min(UNITS, Math.round(worth)), Math.round(heat * 10) / 10]);
  }
  return partitions;
}

/** Files of a level in the groups in which they are listed. */
function groupsOf(files: MockFile[], count: number): MockFile[][] {
  const most = Math.max(FEW_FILES, Math.floor((SHAPE_FILES_MAX * files.length) / Math.max(1, count)));
  const together = Math.max(1, Math.ceil(files.length / most));
  return Array.from({ length: Math.ceil(files.length / together) }, (_, at) => files.slice(at * together, (at + 1) * together));
}

/** Neighbours as one file. */
function asOne(group: MockFile[]): MockFile {
  return {
    ...group[0]!, bytes: total(group), from: Math.min(...group.map((file) => file.from)), to: Math.max(...group.map((file) => file.to)),
    is_compacting: group.some((file) => file.is_compacting), created_ms: Math.max(...group.map((file) => file.created_ms)),
  };
}

export function shape(engine: Engine, with_files: boolean): Shape {
  const count = engine.files.reduce((sum, level) => sum + level.length, 0);
  const listed = with_files || count <= STREAM_FILES_MAX;
  const levels = engine.files.slice(0, engine.deepest() + 1).map((files, level) => ({
    file_count: files.length,
    size_bytes: total(files),
    target_bytes: level === 0 ? null : engine.targets[level]!,
    entry_count: Math.round(total(files) / ENTRY_BYTES),
    files: !listed ? null : groupsOf(files, count).map((group) => {
      const file = asOne(group);
      const partitions = partitionsOf(engine, file);
      return {
        number: file.number,
        ...(group.length > 1 ? { file_count: group.length } : {}),
        size_bytes: file.bytes,
        entry_count: Math.round(file.bytes / ENTRY_BYTES),
        smallest: engineKeyOf(nameAt(file.from), 0, engine.slots),
        largest: engineKeyOf(nameAt(file.to), 0, engine.slots),
        heat: Math.round(engine.heatOf(file.from, file.to, level) * 10) / 10,
        filter_bytes: Math.round((file.bytes / ENTRY_BYTES) * 1.9),
        filter_units: partitions.length * UNITS,
        filter_units_in_memory: partitions.reduce((sum, p) => sum + p[1], 0),
        has_model: level === 0 ? null : file.number % 5 !== 0,
        is_compacting: file.is_compacting,
        created_ms: file.created_ms,
      };
    }),
  }));
  const l0 = { l0_compaction_files: L0_COMPACT, l0_slowdown_files: L0_SLOW, l0_stop_files: 2 * L0_SLOW };
  const empty = (name: string) => ({
    name, memtable_bytes: 0, memtable_limit_bytes: MEMTABLE_LIMIT, immutable_memtables: 0, ...l0, levels: [],
  });
  return {
    epoch: engine.epoch,
    families: [
      {
        name: "default",
        memtable_bytes: Math.round(engine.memtable),
        memtable_limit_bytes: MEMTABLE_LIMIT,
        immutable_memtables: engine.immutables,
        ...l0,
        levels: engine.scenario === "empty" ? [] : levels,
      },
      { ...empty("collections"), memtable_bytes: engine.collections },
      empty("elements"),
    ],
    log_segments: 3,
    slot_bytes: engine.slots ? 2 : 0,
    ...(engine.scenario === "empty" ? { value_segments: 0, value_bytes: 0, garbage_bytes: 0 } : { value_segments: 12, value_bytes: 640 * MIB, garbage_bytes: 87 * MIB }),
  };
}

export function memory(engine: Engine): Memory {
  const living = engine.scenario !== "empty";
  const filters = living ? 9.5 * MIB + 2.2 * MIB * Math.sin(engine.time_s / 31) : 0;
  const pools = [
    {
      name: "memtables", used_bytes: engine.memtable + engine.immutables * MEMTABLE_LIMIT,
      limit_bytes: 4 * MEMTABLE_LIMIT, lent_bytes: living ? MEMTABLE_LIMIT : 0, saved_reads_per_mib_s: living ? 2.1 : null,
    },
    {
      name: "blocks", used_bytes: living ? 41 * MIB + 1.4 * MIB * Math.sin(engine.time_s / 5) : 0, limit_bytes: 44 * MIB,
      saved_reads_per_mib_s: living ? 31 + 6 * Math.sin(engine.time_s / 13) : null,
    },
    { name: "filters", used_bytes: filters, limit_bytes: 13 * MIB, saved_reads_per_mib_s: living ? 24 + 11 * Math.sin(engine.time_s / 31 + 2) : null },
    { name: "models", used_bytes: living ? 0.7 * MIB : 0, limit_bytes: null, saved_reads_per_mib_s: living ? 0.4 : null },
    { name: "tables", used_bytes: living ? 3.1 * MIB : 0, limit_bytes: null, saved_reads_per_mib_s: null },
  ].map((pool) => ({ lent_bytes: 0, ...pool, used_bytes: Math.round(pool.used_bytes) }));
  const used_bytes = pools.reduce((sum, pool) => sum + pool.used_bytes, 0);
  return { budget_bytes: BUDGET, used_bytes, rss_bytes: Math.round(used_bytes * 1.12 + 9 * MIB), pools, decision: null, moves: 0 };
}

export function summary(engine: Engine): Summary {
  const living = engine.scenario !== "empty";
  const jitter = () => 0.92 + 0.16 * engine.random();
  const slow = engine.stall_cause === null ? 1 : 6;
  const percentiles = (p50: number, p99: number, p999: number) => ({
    samples: living ? 9000 : 0,
    p50: living ? Math.round(p50 * jitter() * 10) / 10 : null,
    p99: living ? Math.round(p99 * jitter() * 10) / 10 : null,
    p999: living ? Math.round(p999 * jitter() * 10) / 10 : null,
  });
  const { budget_bytes, used_bytes, rss_bytes } = memory(engine);
  const bytes = engine.files.reduce((sum, files) => sum + total(files), 0);
  const round = (x: number) => Math.round(x);
  const reads = round(engine.reads_per_s);
  const writes = round(engine.writes_per_s);
  return {
    version: "0.5.0-mock",
    now_ms: Date.now(), started_ms: engine.started_ms,
    uptime_s: round((Date.now() - engine.started_ms) / 1000),
    connected_clients: living ? 50 : 0,
    ops_per_s: reads + writes, reads_per_s: reads, writes_per_s: writes, commands_total: round(engine.commands),
    hits: round(engine.hits), misses: round(engine.misses),
    block_hits: round(engine.block_hits), block_misses: round(engine.block_misses),
    latency_us: { read: percentiles(6.4, 88, 240), write: percentiles(9 * slow ** 0.3, 61 * slow, 410 * slow) },
    write_amplification: engine.written > 0 ? (engine.written + engine.flushed + engine.compacted) / engine.written : null,
    space_amplification: living ? 1.12 + 0.05 * Math.sin(engine.time_s / 17) : null,
    stall: {
      cause: engine.stall_cause, is_stopped: false,
      seconds_total: Math.round(engine.stall_seconds * 10) / 10, count: engine.stall_count,
    },
    writes_refused: engine.refused,
    device_reads_per_get: living ? Math.round((0.05 + 0.025 * Math.sin(engine.time_s / 19)) * 1000) / 1000 : null,
    device_reads_per_s: living ? round(reads * (0.05 + 0.025 * Math.sin(engine.time_s / 19))) : 0,
    memory: { rss_bytes, budget_bytes, used_bytes },
    dbsize_estimate: Math.round((bytes / ENTRY_BYTES) * 0.9),
    disk_bytes: bytes + (living ? 700 * MIB : 0),
  };
}

export function jobs(engine: Engine): Job[] {
  return engine.jobs.map(({ files: _, speed: __, ...job }) => job);
}

export function live(engine: Engine, finished: Live["finished"]): Live {
  return { summary: summary(engine), shape: shape(engine, false), memory: memory(engine), jobs: jobs(engine), finished };
}

export function filters(engine: Engine, family: string, file: number | null): Filters {
  const files: FileFilters[] = [];
  if (family === "default") {
    engine.files.forEach((level, index) => {
      for (const one of level) {
        if (file !== null && one.number !== file) continue;
        files.push({ file: one.number, level: index, partitions: partitionsOf(engine, one) });
      }
    });
  }
  return { family, files };
}

export function model(engine: Engine, number: number): Model | null {
  const file = engine.files.flat().find((one) => one.number === number);
  if (file === undefined || file.level === 0 || number % 5 === 0) return null;
  const random = rng(number);
  const keys = Math.round(file.bytes / ENTRY_BYTES);
  const blocks = Math.round(file.bytes / 4096);
  const count = 3 + Math.floor(random() * 14);
  const steps = Array.from({ length: count }, () => 0.15 + random() ** 2);
  const widths = Array.from({ length: count }, () => 0.3 + random());
  const sums = [steps.reduce((a, b) => a + b), widths.reduce((a, b) => a + b)] as const;
  let start = 0;
  let block = 0;
  const segments = steps.map((step, i) => {
    const segment = {
      start, first_block: Math.round(block), keys: Math.round((keys * step) / sums[0]),
      slope: (step / sums[0]) * blocks / (widths[i]! / sums[1]),
    };
    start += widths[i]! / sums[1];
    block += (step / sums[0]) * blocks;
    return segment;
  });
  const error_counts = [0.42, 0.2, 0.13, 0.09, 0.06, 0.045, 0.03, 0.02, 0.005].map((share) => Math.round(share * blocks * (0.8 + 0.4 * random())));
  return { file: number, keys, blocks, model_bytes: 40 + count * 14, index_bytes: blocks * 22, segment_count: count, segments, error_counts };
}

export function hotkeys(engine: Engine): HotKeys {
  if (engine.scenario === "empty") return { sampled_one_in: 16, window_s: 60, read: [], write: [] };
  const list = (base: number, offset: number, wander: number) => Array.from({ length: 20 }, (_, i) => {
    const per_s = (base / (i + 1) ** 0.8) * (0.95 + 0.1 * engine.random());
    const at = 0.5 + 0.33 * Math.sin(Math.floor(engine.time_s / 20) / 2.35 + wander) + 0.0007 * ((i * 37 + offset) % 20);
    return { db: 0, key: keyOf(nameAt(Math.abs(at) % 1)), per_s: Math.round(per_s), error_per_s: Math.round(per_s * 0.02) };
  }).sort((a, b) => b.per_s - a.per_s);
  return { sampled_one_in: 16, window_s: 60, read: list(2900, 3, 0), write: list(610, 11, 2) };
}

export function slowlog(engine: Engine): SlowLog {
  if (engine.scenario === "empty") return { threshold_us: 10_000, entries: [] };
  const newest = Math.floor(engine.time_s / 7) + 14;
  const kinds = [["HGETALL", "cart:00418842"], ["TSCAN", "session:0", "session:9", "LIMIT", "10000"], ["SET", "feed:8812003311", "… (104857 bytes)"], ["ZRANGE", "board", "0", "-1"], ["MGET", "user:000000017", "user:000000018", "… (510 more)"]];
  const entries = Array.from({ length: 14 }, (_, i) => {
    const id = newest - i;
    const random = rng(id);
    return {
      id, at_ms: Math.round(engine.started_ms + (id - 14) * 7000 - 3000 * random()),
      duration_us: Math.round(10_000 + 60_000 * random() ** 3),
      args: kinds[Math.floor(random() * kinds.length)]!, client: `127.0.0.1:${40000 + Math.floor(random() * 9000)}`,
      client_name: random() < 0.3 ? "reporting" : "",
    };
  });
  return { threshold_us: 10_000, entries };
}

export function latency(engine: Engine): CommandLatencies {
  if (engine.scenario === "empty") return { commands: [] };
  const of = (name: string, share: number, p50: number, failed = 0) => ({
    name, calls: Math.round(engine.commands * share), failed, p50_us: p50, p99_us: p50 * 9.5, p999_us: p50 * 31,
  });
  return { commands: [of("get", 0.61, 6.4), of("set", 0.22, 9.8), of("hget", 0.08, 8.1), of("hset", 0.05, 12.4, 31), of("mget", 0.02, 58), of("zadd", 0.015, 21), of("tscan", 0.001, 804)] };
}

export function config(): Config {
  return {
    options: [
      { name: "bind", value: "127.0.0.1", is_live: false }, { name: "port", value: "6379", is_live: false },
      { name: "memory-budget", value: String(BUDGET), is_live: true }, { name: "sync", value: "every-second", is_live: true },
      { name: "maxclients", value: "10000", is_live: true }, { name: "slowlog-log-slower-than", value: "10000", is_live: true },
    ],
  };
}
