// The HTTP API under /api/v1 as types: the contract between the server and this page.
//
// JSON, snake_case. Every field is always there; what is unknown is `null`, never left out, unless it
// is marked with `?`. Numbers are JSON numbers: bytes, milliseconds of the wall clock (`_ms`, since
// 1970), microseconds (`_us`), nanoseconds (`ns`). Ids and file numbers are below 2^53 in practice and
// are plain numbers, too. Counters count since the store was opened and never fall while it is open;
// `started_ms` tells a restart. NaN and infinities are never sent (`null` instead).
//
// Errors: the HTTP status says what went wrong and the body is `ApiError`. 401: log in (HTTP Basic);
// 403: the user may not see this; 404: no such endpoint, family or file; 400: a parameter is wrong; 500: the
// server or its device has failed here, as where a block is damaged; 503: not now.

/** Body of every answer whose status is not 200. */
export interface ApiError {
  error: string;
}

/** Bytes that may be anything: `text` is for people, `hex` is exact (lower case, two digits a byte). */
export interface Key {
  /** UTF-8 as it is where printable, else `\xNN`; `\\` for a backslash. */
  text: string;
  /** The bytes; at most the first 256 of them, unless something else is said. */
  hex: string;
  /** Length of the whole key in bytes: more than `hex` shows if the key was cut. */
  len: number;
}

// ---------------------------------------------------------------- GET /api/v1

export interface Index {
  endpoints: Endpoint[];
}

export interface Endpoint {
  path: string;
  summary: string;
}

// ---------------------------------------------------------------- GET /api/v1/summary

export interface Percentiles {
  /** Operations timed in the window. */
  samples: number;
  /** `null` while nothing was timed. */
  p50: number | null;
  p99: number | null;
  p999: number | null;
}

export interface Stall {
  /** What held writers back within the last second, most of the time if it was more than one cause,
   *  as the engine counted it, in words
   *  ("too many L0 files", "memtables wait for their flush", "pending compaction",
   *  "garbage collection is behind"); `null`: nothing did. */
  cause: string | null;
  /** Writes are not only slowed but stopped. */
  is_stopped: boolean;
  /** Time that writers spent held back, since the open. */
  seconds_total: number;
  /** How often, since the open. */
  count: number;
}

/** Rates are over the last second; percentiles over the last 10 seconds or so. */
export interface Summary {
  version: string;
  /** Wall clock of this sample. */
  now_ms: number;
  /** Wall clock of the start of the server: changes when it was restarted. */
  started_ms: number;
  uptime_s: number;
  connected_clients: number;
  /** Commands of all kinds. */
  ops_per_s: number;
  /** Commands that only read keys. */
  reads_per_s: number;
  /** Commands that may change keys. */
  writes_per_s: number;
  /** Commands since the start (INFO: total_commands_processed). */
  commands_total: number;
  /** Lookups of keys that were there, and that were not (INFO: keyspace_hits, keyspace_misses). */
  hits: number;
  misses: number;
  /** Data blocks found in the cache, and read from the device, since the open. */
  block_hits: number;
  block_misses: number;
  latency_us: { read: Percentiles; write: Percentiles };
  /** Bytes written to the device per byte that users wrote, since the open; `null`: nothing written. */
  write_amplification: number | null;
  /** Bytes on the device per live byte; `null`: nothing stored. An estimate. */
  space_amplification: number | null;
  stall: Stall;
  /** Why writes are refused, in words ("the disk is full", "an earlier failure": until the store is opened again); `null`: they are not. */
  writes_refused: string | null;
  /** Device reads per point read over the last second, where each key of a command is one; `null`: no reads. */
  device_reads_per_get: number | null;
  /** Device reads a second, of lookups and scans: one command may look up many keys. */
  device_reads_per_s: number;
  memory: {
    /** Resident set of the process; `null` where the system does not say. */
    rss_bytes: number | null;
    budget_bytes: number;
    /** What the pools of GET /memory use together. */
    used_bytes: number;
  };
  /** Keys, all databases: an estimate, as DBSIZE. */
  dbsize_estimate: number;
  /** Bytes of all files of the store. */
  disk_bytes: number;
}

// ---------------------------------------------------------------- GET /api/v1/shape

export interface Shape {
  /** Changes whenever any file comes or goes; the same for the same set of files. */
  epoch: number;
  families: FamilyShape[];
  log_segments: number;
  value_segments: number;
  value_bytes: number;
  garbage_bytes: number;
  /** Files that cannot be read and are left out of compactions, at most 100; `terrace_quarantined_files` of `/metrics` counts all. */
  quarantined?: QuarantinedFile[];
  /** Bytes in front of the database in keys of files: 2 in a store with placement `slots`; 0, or left out, in any other. */
  slot_bytes?: number;
}

export interface QuarantinedFile {
  /** Of `000012.sst` 12. */
  number: number;
  family: string;
  level: number;
  /** What went wrong. Damage lasts until the file is restored and the store is opened again; what else fails is tried again. */
  error: string;
}

export interface FamilyShape {
  name: string;
  memtable_bytes: number;
  /** Size at which a memtable is flushed. */
  memtable_limit_bytes: number;
  immutable_memtables: number;
  /** Files of L0 at which they are merged, at which writes are slowed, and at which they stop. */
  l0_compaction_files: number;
  l0_slowdown_files: number;
  l0_stop_files: number;
  /** Index = level; trailing empty levels may be left out. */
  levels: LevelShape[];
}

export interface LevelShape {
  file_count: number;
  size_bytes: number;
  /** Size from which on the level is merged into the next one; `null`: no target by bytes. L0 and levels of tiered families go by the
   *  number of files or runs, and the last level is never merged into another one. */
  target_bytes: number | null;
  entry_count: number;
  /** By smallest key; L0: newest first. Of a store with more than 4,000 files (`SHAPE_FILES_MAX`), neighbours are
   *  listed together (`FileShape.file_count`). `null` only inside `live` events, when the store has more
   *  than 1,000 files (`STREAM_FILES_MAX`): then GET /shape has them. */
  files: FileShape[] | null;
}

export const STREAM_FILES_MAX = 1000;
export const SHAPE_FILES_MAX = 4000;

export interface FileShape {
  number: number;
  /** How many neighbours of the level this stands for, `number` being that of the first. What is a size or a number of things is of all
   *  of them together, `heat` the mean, `created_ms` of the newest. Left out: it is one file. */
  file_count?: number;
  size_bytes: number;
  entry_count: number;
  smallest: Key;
  largest: Key;
  /** Lookups that reached the file recently (a decaying count, any unit, comparable among files). */
  heat: number;
  /** Bytes of all its filter units on the device, and how many there are, over all partitions. */
  filter_bytes: number;
  filter_units: number;
  filter_units_in_memory: number;
  /** `null`: not known before the file is opened, or not the same of all. */
  has_model: boolean | null;
  is_compacting: boolean;
  created_ms: number;
}

// ---------------------------------------------------------------- GET /api/v1/jobs

export type JobKind = "flush" | "compaction" | "garbage_collection";

/** A job that runs now. GET /jobs answers `Job[]`. */
export interface Job {
  id: number;
  kind: JobKind;
  family: string;
  /** Level and file number of each input; empty for a flush and for garbage collection. */
  inputs: { level: number; file: number }[];
  /** How many there are, where not all are in `inputs`, but the first 1,000. */
  input_count?: number;
  /** Level of the output; 0 for a flush; `null` for garbage collection. */
  output_level: number | null;
  started_ms: number;
  /** Sum of the input files (flush: of the memtables); 0 if unknown. */
  input_bytes: number;
  /** Of these, what it has read; exact at the end. */
  read_bytes: number;
  /** At the end mostly less than `input_bytes`: versions that nobody sees any more are dropped. */
  written_bytes: number;
}

/** A job that is over. Inside `live` events: those that ended since the event before. */
export interface FinishedJob extends Job {
  ended_ms: number;
  /** File numbers it wrote, at most 1,000. */
  outputs: number[];
}

// ---------------------------------------------------------------- GET /api/v1/memory

export interface Memory {
  budget_bytes: number;
  used_bytes: number;
  rss_bytes: number | null;
  pools: Pool[];
  /** What moves between the pools, or why nothing does, in words; `null`: the split is fixed. */
  decision: string | null;
  /** Moves since the open. */
  moves: number;
}

export interface Pool {
  /** "memtables", "blocks", "filters", "models", "tables", … */
  name: string;
  used_bytes: number;
  /** `null`: no limit of its own. */
  limit_bytes: number | null;
  /** Bytes of the limit that `blocks` may use as well, until a write needs them. */
  lent_bytes: number;
  /** Device reads (or their worth) per second that one more MiB would save; `null`: not known. */
  saved_reads_per_mib_s: number | null;
}

// ---------------------------------------------------------------- GET /api/v1/stream (SSE)
// `event: live` with `data: Live` at once and then every second; a comment line every 15 s at least.

export interface Live {
  summary: Summary;
  shape: Shape;
  memory: Memory;
  jobs: Job[];
  /** Those that ended since the last event of this stream, at most 64. */
  finished: FinishedJob[];
}

/** GET /api/v1/live answers one `Live` (`finished` empty). */

// ---------------------------------------------------------------- GET /api/v1/history?seconds=600
// What the page would have seen, oldest first. Up to 600 s one value a second; for more seconds, up to a day, one
// value for each step of 30 s: the mean of rates, percentiles over the whole step. All arrays have the length of
// `t_ms`. Kept across restarts (option `http-history`), so that there may be gaps; a crash may take the last 5 minutes.

export interface History {
  /** Seconds from one value to the next: 1 or 30. */
  step_s: number;
  /** Starts and changed options of the last day, at most 200, oldest first, whatever `seconds` is. */
  marks: Mark[];
  t_ms: number[];
  reads_per_s: number[];
  writes_per_s: number[];
  read_p50_us: (number | null)[];
  read_p99_us: (number | null)[];
  read_p999_us: (number | null)[];
  write_p50_us: (number | null)[];
  write_p99_us: (number | null)[];
  write_p999_us: (number | null)[];
  write_amplification: (number | null)[];
  space_amplification: (number | null)[];
  device_reads_per_get: (number | null)[];
  stall_cause: (string | null)[];
  /** Seconds of that second or step that writers were held back (may be more than it has, with several writers). */
  stall_seconds: number[];
}

export interface Mark {
  t_ms: number;
  /** `start`: the server started; `options`: CONFIG SET, or the file read again, changed options. */
  kind: "start" | "options";
  /** Of the server. */
  version: string;
  /** Names of the options that changed; of a start, since the run before. */
  options: string[];
}

// ---------------------------------------------------------------- GET /api/v1/filters?family=NAME[&file=N]

export interface Filters {
  family: string;
  files: FileFilters[];
}

export interface FileFilters {
  file: number;
  level: number;
  /** In key order: `[units, units_in_memory, heat]`, heat in the unit of `FileShape.heat`. */
  partitions: [number, number, number][];
}

// ---------------------------------------------------------------- GET /api/v1/model?family=NAME&file=N
// `null` if the file has no model now (it is too small, was refused, or is not open).

export interface Model {
  file: number;
  keys: number;
  blocks: number;
  model_bytes: number;
  /** Bytes of the index partitions that the model stands for. */
  index_bytes: number;
  segment_count: number;
  /** All of them if these are not too many to be drawn, else some, evenly spread, with the first and the last. */
  segments: ModelSegment[];
  /** Predictions by error. Slot 0: exact; slot i: over i-1 and at most i eighths of the error bound. */
  error_counts: number[];
}

export interface ModelSegment {
  /** Where the segment begins in the file's numbers, 0 = smallest key, 1 = largest key. */
  start: number;
  /** Block of its first key. */
  first_block: number;
  keys: number;
  /** Blocks per unit of the file's numbers, as stored; for reading, not for drawing. */
  slope: number;
}

// ---------------------------------------------------------------- GET /api/v1/explain?db=N&key=… | &hex=…
// `key`: the key as percent-encoded UTF-8; or `hex`: its bytes. One of the two.

export interface Explanation {
  db: number;
  key: Key;
  /** What was looked up, in the form of the keys of files: `slot_bytes` of a slot, the database, the key. Two digits a byte. */
  engine_key: string;
  /** As TYPE says: "string", "hash", …; `null`: not there. */
  type: string | null;
  found: Found | null;
  steps: ExplainStep[];
  total_ns: number;
  device_reads: number;
  /** Where more memory would save the most, and what moves, in words; `null`: nothing was read. */
  memory: string | null;
}

export interface Found {
  /** The value, or what stands for a collection; `text` and `hex` cut at 256 bytes, `len` exact. */
  value: Key;
  expires_at_ms: number | null;
}

export interface ExplainStep {
  family: string;
  /** "memtable", "immutable memtable 1", "log segment 000007", or for files
   *  "L<level> <number>.sst" and, after a blank, the part: "L3 000123.sst filter". Parts: "keys" (the key
   *  range), "range tombstones", "filter", "model", "index", "block". */
  place: string;
  asked: string;
  answer: string;
  /** How the answer decides: `no`: not here, go on; `maybe`: look closer; `found`: here it is;
   *  `deleted`: a tombstone or an expired value; `skip`: not asked. */
  outcome: "no" | "maybe" | "found" | "deleted" | "skip";
  ns: number;
  device_reads: number;
}

// ---------------------------------------------------------------- GET /api/v1/keys?db=N&prefix=…|hex=…[&after=HEX]
// Keys of this server's store that begin with `prefix` (percent-encoded UTF-8) or `hex`; without either all of them.

export interface KeyList {
  db: number;
  prefix: Key;
  /** In order, at most 100; fewer, or none, where many deleted or expired keys are in between. */
  keys: KeyRow[];
  has_more: boolean;
  /** What `after` is for the next page: the last key that was looked at, in full. `null`: no more, or that key is longer than 4,096 bytes. */
  next: string | null;
}

export interface KeyRow {
  key: Key;
  /** As TYPE says. */
  type: string;
}

// ---------------------------------------------------------------- GET /api/v1/value?db=N&key=… | &hex=…

export interface KeyValue {
  db: number;
  key: Key;
  /** As TYPE says; `null`: not there. */
  type: string | null;
  expires_at_ms: number | null;
  /** Bytes of a string, elements of a collection; `null` of a string that is compressed by itself and not read. */
  size: number | null;
  /** Of a string: the first 4,096 bytes of it; `null` of one of more than 1 MiB, or of more than 64 KiB in compressed form, which is not
   *  read. */
  text: Key | null;
  /** Of a collection: the first 100, or those up to 1 MiB together; of a sorted set those with the lowest scores. */
  elements: ValueElement[];
}

export interface ValueElement {
  /** Field of a hash, member of a set or sorted set; `null` in a list. */
  name: Key | null;
  /** Of a hash or list. */
  value: Key | null;
  /** Of a sorted set. */
  score: string | null;
}

// ---------------------------------------------------------------- GET /api/v1/command?db=N&line=…
// Executes a command that only reads, as the user who is logged in. `line` is written as for redis-cli, at most 4,096 bytes. Any other
// command answers 403 and does nothing; so does, in a cluster, one whose keys are not all in this node's store: the error says where they are.

export interface CommandAnswer {
  db: number;
  /** What RESP3 would answer, errors among it. */
  reply: CommandReply;
  /** Some of it is left out: elements behind the first 1,000, or bytes of strings. */
  is_cut: boolean;
}

export interface CommandReply {
  /** RESP's type. */
  type: "simple" | "error" | "integer" | "string" | "null" | "double" | "boolean" | "big_number" | "verbatim" | "array" | "map" | "set";
  /** What it says, numbers in decimal; at most 4,096 bytes of it. `null` of what has elements, and of null. */
  text: Key | null;
  /** Of an array or set the elements; of a map each key with its value behind it. */
  elements: CommandReply[];
  /** How many elements there are, also those that are left out. */
  size: number;
}

// ---------------------------------------------------------------- GET /api/v1/hotkeys

export interface HotKeys {
  /** One operation of this many is counted; counts are scaled up. */
  sampled_one_in: number;
  /** About how far back the counts reach, in seconds. */
  window_s: number;
  /** Most first, at most 32. */
  read: HotKey[];
  write: HotKey[];
}

export interface HotKey {
  db: number;
  key: Key;
  per_s: number;
  /** `per_s` may be too high by this much (Space-Saving). */
  error_per_s: number;
}

// ---------------------------------------------------------------- GET /api/v1/slowlog

export interface SlowLog {
  /** Commands that took this long or longer are kept; `null`: none are. */
  threshold_us: number | null;
  /** Newest first, at most 128. */
  entries: SlowEntry[];
}

export interface SlowEntry {
  id: number;
  at_ms: number;
  duration_us: number;
  /** Command and arguments, escaped as `Key.text`, cut as SLOWLOG GET does. */
  args: string[];
  client: string;
  client_name: string;
}

// ---------------------------------------------------------------- GET /api/v1/latency

export interface CommandLatencies {
  /** Most calls first. */
  commands: CommandLatency[];
}

export interface CommandLatency {
  /** Lower case: "get". */
  name: string;
  calls: number;
  failed: number;
  p50_us: number | null;
  p99_us: number | null;
  p999_us: number | null;
}

// ---------------------------------------------------------------- GET /api/v1/cluster
// `null` without a cluster. Every request asks all nodes: not more often than once a second.

export interface Cluster {
  name: string;
  /** "slots" or "range"; `null` before the cluster was created. */
  placement: string | null;
  /** Of the metadata that this was read from. */
  revision: number;
  /** Every shard is served. */
  is_served: boolean;
  /** Id of the node that was asked. */
  me: string;
  /** By id. */
  nodes: ClusterNode[];
  /** Those that are not served first, then by number. */
  shards: ClusterShard[];
}

export interface ClusterNode {
  /** 40 hexadecimal digits. */
  id: string;
  /** `host:port` for clients, and for other nodes. */
  redis_address: string;
  bus_address: string;
  /** Its lease is there. */
  is_alive: boolean;
  /** Why it did not tell more; `null` if it did. */
  error: string | null;
  report: NodeReport | null;
}

/** Counters are of the node's store, since it was opened. */
export interface NodeReport {
  revision: number;
  /** Milliseconds since the last confirmed keep-alive was sent, and how long the lease lasts. */
  lease_age_ms: number;
  lease_ttl_ms: number;
  /** It may own shards. */
  is_coordinator: boolean;
  /** It makes plans by itself at the moment. */
  leads_partitioner: boolean;
  /** It is giving its shards up. */
  is_draining: boolean;
  /** Keys that it moved as owner. */
  moved_keys: number;
  /** Lookups; keys and elements written; their bytes; bytes that were written to the device. */
  reads: number;
  writes: number;
  user_bytes: number;
  device_bytes: number;
  /** Keys of its store, about. */
  keys: number;
}

export interface ClusterShard {
  id: number;
  /** Slots as "0-5460", keys as "\"g\"..\"q\"". */
  ranges: string[];
  /** Ids of nodes: whose store has the keys, and who owns it (`null` before the first). */
  instance: string;
  owner: string | null;
  /** The owner's term. */
  epoch: number;
  is_served: boolean;
  /** "serving", or what is wrong. */
  state: string;
  /** Keys that are not at home; `null` if the owner did not tell. */
  exceptions: number | null;
  /** Keys that wait for a move. */
  waiting_moves: number;
  /** The step of each move that is under way. */
  moves: string[];
}

// ---------------------------------------------------------------- GET /api/v1/config (category admin)

export interface Config {
  options: ConfigOption[];
}

export interface ConfigOption {
  name: string;
  /** As CONFIG GET gives it. Passwords and the like are not listed. */
  value: string;
  /** CONFIG SET changes it while the server runs. */
  is_live: boolean;
}
