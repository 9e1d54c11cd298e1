//! `terrace stats`: the metrics of a store.

use crate::level_json::level_json;
use crate::outcome::Outcome;
use crate::print::Grouped;
use crate::standard_output;
use crate::store::StoreArgs;
use anyhow::Result;
use serde_json::{Value, json};
use std::io::Write;
use terrace::{LatencySummary, LevelMetrics, Metrics, StallMetrics};

/// Arguments of `stats`.
#[derive(Debug, clap::Args)]
pub struct StatsArgs {
    /// In the Prometheus exposition format
    #[arg(long, conflicts_with = "json")]
    prometheus: bool,

    /// As one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    store: StoreArgs,
}

/// Figures that the files of the store hold; every open finds them again.
const DURABLE: [&str; 7] = [
    "levels.file_count",
    "levels.size_bytes",
    "levels.entry_count",
    "levels.tombstone_count",
    "levels.raw_bytes",
    "space_amplification",
    "live_log_bytes",
];

/// Figures about this process at this moment: memory, open files, health.
const NOW: [&str; 11] = [
    "cache_used_bytes",
    "cache_capacity_bytes",
    "memtable_bytes",
    "pinned_bytes",
    "open_files",
    "snapshots",
    "disk_full",
    "reader_pinned_files",
    "reader_pinned_bytes",
    "poisoned",
    "quarantined_files",
];

/// Prints the state of the store. Counters begin at the open, so those of this process are about
/// opening only; the text and the JSON say which figures these are.
pub fn run(args: &StatsArgs) -> Result<Outcome> {
    let metrics = args.store.open_read_only()?.metrics();
    let mut out = standard_output::until_unread();
    if args.prometheus {
        write!(out, "{}", metrics.to_prometheus())?;
    } else if args.json {
        writeln!(out, "{:#}", with_scopes(json(&metrics)))?;
    } else {
        write!(out, "{}{metrics}", durable_text(&metrics))?;
    }
    Ok(Outcome::Done)
}

/// What is durable, and a line that says what the figures below it are.
fn durable_text(m: &Metrics) -> String {
    let sum = |field: fn(&LevelMetrics) -> u64| m.levels.iter().map(field).sum::<u64>();
    format!(
        "durable, in the store's files: {} SSTs of {} bytes, {} entries, {} tombstones; {} bytes of log\n\
         of this process, since it opened the store: all below, except what the levels hold\n",
        Grouped(sum(|level| level.file_count)),
        Grouped(sum(|level| level.size_bytes)),
        Grouped(sum(|level| level.entry_count)),
        Grouped(sum(|level| level.tombstone_count)),
        Grouped(m.live_log_bytes),
    )
}

/// Adds `scopes`: which fields are durable, which describe this process now, and which (all the
/// others) count since this open.
fn with_scopes(mut metrics: Value) -> Value {
    let Some(fields) = metrics.as_object_mut() else { return metrics };
    let counted = |name: &&str| !DURABLE.contains(name) && !NOW.contains(name);
    let since_open: Vec<&str> = fields
        .keys()
        .map(String::as_str)
        .map(|name| if name == "levels" { "levels.written_bytes" } else { name })
        .filter(counted)
        .collect();
    let scopes = json!({ "durable": DURABLE, "now": NOW, "since_open": since_open });
    fields.insert("scopes".to_string(), scopes);
    metrics
}

/// Every metric, by the name of its field.
pub fn json(m: &Metrics) -> Value {
    json!({
        "levels": m.levels.iter().map(level_json).collect::<Vec<_>>(),
        "write_amplification": m.write_amplification(),
        "space_amplification": m.space_amplification(),
        "gets": m.gets, "gets_found": m.gets_found, "gets_in_memtable": m.gets_in_memtable,
        "seeks": m.seeks, "batches": m.batches, "ops_written": m.ops_written,
        "user_bytes": m.user_bytes, "groups": m.groups, "log_bytes": m.log_bytes,
        "live_log_bytes": m.live_log_bytes, "log_syncs": m.log_syncs, "flushes": m.flushes,
        "flush_bytes": m.flush_bytes, "compactions": m.compactions,
        "trivial_moves": m.trivial_moves, "compaction_read_bytes": m.compaction_read_bytes,
        "compaction_written_bytes": m.compaction_written_bytes,
        "entries_dropped": m.entries_dropped, "slowdowns": m.slowdowns, "stops": m.stops,
        "stall_us": m.stall_us, "stalls": stalls(m), "background_errors": m.background_errors,
        "reads": reads(m),
        "cache_used_bytes": m.cache_used_bytes, "cache_capacity_bytes": m.cache_capacity_bytes,
        "memtable_bytes": m.memtable_bytes, "pinned_bytes": m.pinned_bytes,
        "open_files": m.open_files, "snapshots": m.snapshots, "disk_full": m.disk_full,
        "reader_pinned_files": m.reader_pinned_files,
        "reader_pinned_bytes": m.reader_pinned_bytes,
        "poisoned": m.poisoned, "quarantined_files": m.quarantined_files,
        "get_latency": latency(&m.get_latency), "commit_latency": latency(&m.commit_latency),
        "flush_latency": latency(&m.flush_latency),
        "compaction_latency": latency(&m.compaction_latency),
    })
}

/// Stalls by cause.
fn stalls(m: &Metrics) -> Value {
    let row = |row: StallMetrics| json!({ "slowdowns": row.slowdowns, "stops": row.stops, "stall_us": row.stall_us });
    m.stalls_by_cause().map(|(cause, counted)| (cause.name().to_string(), row(counted))).collect()
}

fn reads(m: &Metrics) -> Value {
    json!({
        "filter_checks": m.reads.filter_checks, "filter_negatives": m.reads.filter_negatives,
        "filter_false_positives": m.reads.filter_false_positives,
        "data_block_hits": m.reads.data_block_hits, "data_block_misses": m.reads.data_block_misses,
        "index_hits": m.reads.index_hits, "index_misses": m.reads.index_misses,
        "filter_hits": m.reads.filter_hits, "filter_misses": m.reads.filter_misses,
        "device_reads": m.reads.device_reads, "device_read_bytes": m.reads.device_read_bytes,
    })
}

fn latency(l: &LatencySummary) -> Value {
    json!({
        "samples": l.samples, "mean_us": l.mean_us, "p50_us": l.p50_us, "p99_us": l.p99_us,
        "p999_us": l.p999_us, "max_us": l.max_us,
    })
}
