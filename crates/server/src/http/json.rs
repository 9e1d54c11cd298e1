//! What the API says, as types: those of `dashboard/src/api.ts`, which says what the fields mean.
//! Numbers that are none (NaN, infinities) become `null`.

use super::escape;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use terrace_base::hex::Hex;

/// Bytes of a key or a value that are shown.
pub const SHOWN_BYTES: usize = 256;
/// Events list no files of stores that have more.
pub(super) const STREAM_FILES_MAX: usize = 1000;

/// Bytes that may be anything, and the first of them, [`SHOWN_BYTES`] mostly.
#[derive(Debug, Clone, Serialize)]
pub struct Key {
    /// For people: UTF-8 where it is printable, else `\xNN`.
    pub text: String,
    /// Exact: two digits a byte.
    pub hex: String,
    /// How many bytes there are.
    pub len: u64,
}

impl Key {
    /// The first [`SHOWN_BYTES`] of `bytes`, and how many there are.
    pub fn of(bytes: &[u8]) -> Self {
        Self::cut(bytes, SHOWN_BYTES)
    }

    /// At most `most` of `bytes`, and how many there are.
    pub(super) fn cut(bytes: &[u8], most: usize) -> Self {
        let shown = bytes.get(..most).unwrap_or(bytes);
        Self { text: escape::text(shown), hex: Hex(shown).to_string(), len: bytes.len() as u64 }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct CommandAnswer {
    pub db: u8,
    pub reply: CommandReply,
    pub is_cut: bool,
}

#[derive(Debug, Serialize)]
pub(super) struct CommandReply {
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub text: Option<Key>,
    pub elements: Vec<CommandReply>,
    pub size: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct Index {
    pub endpoints: Vec<Endpoint>,
}

#[derive(Debug, Serialize)]
pub(super) struct Endpoint {
    pub path: String,
    pub summary: String,
}

#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct Percentiles {
    pub samples: u64,
    pub p50: Option<f64>,
    pub p99: Option<f64>,
    pub p999: Option<f64>,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct LatencyUs {
    pub read: Percentiles,
    pub write: Percentiles,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Stall {
    pub cause: Option<&'static str>,
    pub is_stopped: bool,
    pub seconds_total: f64,
    pub count: u64,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct MemoryNow {
    pub rss_bytes: Option<u64>,
    pub budget_bytes: u64,
    pub used_bytes: u64,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Summary {
    pub version: &'static str,
    pub now_ms: u64,
    pub started_ms: u64,
    pub uptime_s: u64,
    pub connected_clients: u64,
    pub ops_per_s: f64,
    pub reads_per_s: f64,
    pub writes_per_s: f64,
    pub commands_total: u64,
    pub hits: u64,
    pub misses: u64,
    pub block_hits: u64,
    pub block_misses: u64,
    pub latency_us: LatencyUs,
    pub write_amplification: Option<f64>,
    pub space_amplification: Option<f64>,
    pub stall: Stall,
    pub writes_refused: Option<&'static str>,
    pub device_reads_per_get: Option<f64>,
    pub device_reads_per_s: f64,
    pub memory: MemoryNow,
    pub dbsize_estimate: u64,
    pub disk_bytes: u64,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Shape {
    pub epoch: u64,
    pub slot_bytes: u8,
    pub families: Vec<FamilyShape>,
    pub log_segments: u64,
    pub value_segments: u64,
    pub value_bytes: u64,
    pub garbage_bytes: u64,
    pub quarantined: Vec<QuarantinedFile>,
}

/// A file that cannot be read and is left out of compactions.
#[derive(Debug, Clone, Serialize)]
pub(super) struct QuarantinedFile {
    pub number: u64,
    pub family: String,
    pub level: u8,
    pub error: String,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct FamilyShape {
    pub name: String,
    pub memtable_bytes: u64,
    pub memtable_limit_bytes: u64,
    pub immutable_memtables: u64,
    pub l0_compaction_files: u64,
    pub l0_slowdown_files: u64,
    pub l0_stop_files: u64,
    pub levels: Vec<LevelShape>,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct LevelShape {
    pub file_count: u64,
    pub size_bytes: u64,
    pub target_bytes: Option<u64>,
    pub entry_count: u64,
    pub files: Option<Vec<FileShape>>,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct FileShape {
    pub number: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_count: Option<u64>,
    pub size_bytes: u64,
    pub entry_count: u64,
    pub smallest: Key,
    pub largest: Key,
    pub heat: f64,
    pub filter_bytes: u64,
    pub filter_units: u32,
    pub filter_units_in_memory: u32,
    pub has_model: Option<bool>,
    pub is_compacting: bool,
    pub created_ms: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum JobKind {
    Flush,
    Compaction,
    GarbageCollection,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct JobInput {
    pub level: u8,
    pub file: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Job {
    pub id: u64,
    pub kind: JobKind,
    pub family: String,
    pub inputs: Vec<JobInput>,
    /// Where not all are listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_count: Option<u64>,
    pub output_level: Option<u8>,
    pub started_ms: u64,
    pub input_bytes: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct FinishedJob {
    #[serde(flatten)]
    pub job: Job,
    pub ended_ms: u64,
    pub outputs: Vec<u64>,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Memory {
    pub budget_bytes: u64,
    pub used_bytes: u64,
    pub rss_bytes: Option<u64>,
    pub pools: Vec<Pool>,
    /// What the budget's last move was, or why it does not move, in words.
    pub decision: Option<String>,
    pub moves: u64,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Pool {
    pub name: String,
    pub used_bytes: u64,
    pub limit_bytes: Option<u64>,
    pub lent_bytes: u64,
    pub saved_reads_per_mib_s: Option<f64>,
}

/// One event, and the answer of `/live`.
#[derive(Debug, Serialize)]
pub(super) struct Live<'a> {
    pub summary: &'a Summary,
    pub shape: &'a Shape,
    pub memory: &'a Memory,
    pub jobs: &'a [Job],
    pub finished: &'a [FinishedJob],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum MarkKind {
    Start,
    Options,
}

/// The server started, or options changed. Kept in a file, too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mark {
    pub t_ms: u64,
    pub kind: MarkKind,
    pub version: String,
    /// Names only: values are for users with `@admin`.
    pub options: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct History {
    pub step_s: u32,
    pub marks: Vec<Mark>,
    #[serde(flatten)]
    pub columns: Columns,
}

/// One value for each time in `t_ms`. Kept in a file, too.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Columns {
    pub t_ms: Vec<u64>,
    pub reads_per_s: Vec<f32>,
    pub writes_per_s: Vec<f32>,
    pub read_p50_us: Vec<Option<f32>>,
    pub read_p99_us: Vec<Option<f32>>,
    pub read_p999_us: Vec<Option<f32>>,
    pub write_p50_us: Vec<Option<f32>>,
    pub write_p99_us: Vec<Option<f32>>,
    pub write_p999_us: Vec<Option<f32>>,
    pub write_amplification: Vec<Option<f32>>,
    pub space_amplification: Vec<Option<f32>>,
    pub device_reads_per_get: Vec<Option<f32>>,
    pub stall_cause: Vec<Option<Cow<'static, str>>>,
    pub stall_seconds: Vec<f32>,
}

#[derive(Debug, Serialize)]
pub(super) struct Filters {
    pub family: String,
    pub files: Vec<FileFilters>,
}

#[derive(Debug, Serialize)]
pub(super) struct FileFilters {
    pub file: u64,
    pub level: u8,
    /// Units, units in memory, heat.
    pub partitions: Vec<(u32, u32, f64)>,
}

#[derive(Debug, Serialize)]
pub(super) struct Model {
    pub file: u64,
    pub keys: u64,
    pub blocks: u64,
    pub model_bytes: u64,
    pub index_bytes: u64,
    pub segment_count: u64,
    pub segments: Vec<ModelSegment>,
    pub error_counts: Vec<u64>,
}

#[derive(Debug, Serialize)]
pub(super) struct ModelSegment {
    pub start: f64,
    pub first_block: u64,
    pub keys: u64,
    pub slope: f64,
}

#[derive(Debug, Serialize)]
pub(super) struct HotKeys {
    pub sampled_one_in: u32,
    pub window_s: f64,
    pub read: Vec<HotKey>,
    pub write: Vec<HotKey>,
}

#[derive(Debug, Serialize)]
pub(super) struct HotKey {
    pub db: u8,
    pub key: Key,
    pub per_s: f64,
    pub error_per_s: f64,
}

#[derive(Debug, Serialize)]
pub(super) struct SlowLog {
    pub threshold_us: Option<u64>,
    pub entries: Vec<SlowEntry>,
}

#[derive(Debug, Serialize)]
pub(super) struct SlowEntry {
    pub id: u64,
    pub at_ms: u64,
    pub duration_us: u64,
    pub args: Vec<String>,
    pub client: String,
    pub client_name: String,
}

#[derive(Debug, Serialize)]
pub(super) struct CommandLatencies {
    pub commands: Vec<CommandLatency>,
}

#[derive(Debug, Serialize)]
pub(super) struct CommandLatency {
    pub name: &'static str,
    pub calls: u64,
    pub failed: u64,
    pub p50_us: Option<f64>,
    pub p99_us: Option<f64>,
    pub p999_us: Option<f64>,
}

#[derive(Debug, Serialize)]
pub(super) struct Config {
    pub options: Vec<ConfigOption>,
}

#[derive(Debug, Serialize)]
pub(super) struct ConfigOption {
    pub name: String,
    pub value: String,
    pub is_live: bool,
}

#[derive(Debug, Serialize)]
pub(super) struct Error {
    pub error: String,
}

/// Keys of a database, in order.
#[derive(Debug, Serialize)]
pub(super) struct KeyList {
    pub db: u8,
    pub prefix: Key,
    pub keys: Vec<KeyRow>,
    pub has_more: bool,
    pub next: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct KeyRow {
    pub key: Key,
    #[serde(rename = "type")]
    pub kind: &'static str,
}

/// What is under a key.
#[derive(Debug, Serialize)]
pub(super) struct KeyValue {
    pub db: u8,
    pub key: Key,
    #[serde(rename = "type")]
    pub kind: Option<&'static str>,
    pub expires_at_ms: Option<u64>,
    /// `None`: only reading it would show it.
    pub size: Option<u64>,
    pub text: Option<Key>,
    pub elements: Vec<Element>,
}

#[derive(Debug, Serialize)]
pub(super) struct Element {
    pub name: Option<Key>,
    pub value: Option<Key>,
    pub score: Option<String>,
}

/// A key looked up step by step.
#[derive(Debug, Clone, Serialize)]
pub struct Explanation {
    /// The database.
    pub db: u8,
    /// What was looked up.
    pub key: Key,
    /// The same as the engine's key: two digits a byte.
    pub engine_key: String,
    /// As `TYPE` says it; `None`: the key is not there.
    #[serde(rename = "type")]
    pub kind: Option<&'static str>,
    /// What was found.
    pub found: Option<Found>,
    /// What was asked, in this order.
    pub steps: Vec<ExplanationStep>,
    /// Time of all steps in nanoseconds.
    pub total_ns: u64,
    /// Reads of the device by all steps.
    pub device_reads: u64,
    /// Where more memory would save the most, and what moves, in words; `None`: nothing was read.
    pub memory: Option<String>,
}

/// What a lookup found.
#[derive(Debug, Clone, Serialize)]
pub struct Found {
    /// The value, or what stands for a collection.
    pub value: Key,
    /// When it expires, in ms since 1970.
    pub expires_at_ms: Option<u64>,
}

/// One step of a lookup.
#[derive(Debug, Clone, Serialize)]
pub struct ExplanationStep {
    /// The column family.
    pub family: String,
    /// "memtable", "L3 000123.sst filter".
    pub place: String,
    /// What was asked, for people.
    pub asked: String,
    /// What the answer was, for people.
    pub answer: String,
    /// How it decides.
    pub outcome: Outcome,
    /// Time in nanoseconds.
    pub ns: u64,
    /// Reads of the device.
    pub device_reads: u32,
}

/// How the answer of a step decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Not here: go on.
    No,
    /// Perhaps here: look closer.
    Maybe,
    /// Here it is.
    Found,
    /// Here is that it was deleted, or has expired.
    Deleted,
    /// Not asked.
    Skip,
}
