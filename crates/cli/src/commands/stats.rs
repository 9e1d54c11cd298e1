//! `terrace stats`: the metrics of a store.

use crate::level_json::{fields, level_json};
use crate::outcome::Outcome;
use crate::print::Grouped;
use crate::standard_output;
use crate::store::StoreArgs;
use anyhow::Result;
use serde_json::{Value, json};
use std::io::Write;
use terrace::{LatencySummary, LevelMetrics, Metrics, ReadCounts, StallMetrics};

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
const DURABLE: [&str; 10] = [
    "levels.file_count",
    "levels.size_bytes",
    "levels.entry_count",
    "levels.tombstone_count",
    "levels.raw_bytes",
    "space_amplification",
    "live_log_bytes",
    "value_segments",
    "value_segment_bytes",
    "value_live_bytes",
];

/// Figures about this process at this moment: memory, open files, health.
const NOW: [&str; 31] = [
    "levels.filter_memory_bytes",
    "levels.model_files",
    "levels.level_models",
    "retained_log_bytes",
    "evidence_stale",
    "gc_victim_segments",
    "gc_excluded_segments",
    "hot_keys",
    "hot_bytes",
    "filter_memory_bytes",
    "filter_budget_bytes",
    "filter_lent_bytes",
    "filter_borrowed_bytes",
    "filter_lambda",
    "filter_expected_waste",
    "memory_gains_us",
    "model_bytes",
    "level_models",
    "memtable_limit_bytes",
    "memtable_lent_bytes",
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
    let of_level = metrics["levels"][0].as_object().map(|level| level.keys().cloned());
    let of_levels: Vec<String> =
        of_level.into_iter().flatten().map(|name| format!("levels.{name}")).collect();
    let Some(fields) = metrics.as_object_mut() else { return metrics };
    let counted = |name: &&str| !DURABLE.contains(name) && !NOW.contains(name);
    let names = fields.keys().filter(|name| *name != "levels").chain(&of_levels);
    let since_open: Vec<&str> = names.map(String::as_str).filter(counted).collect();
    let scopes = json!({ "durable": DURABLE, "now": NOW, "since_open": since_open });
    fields.insert("scopes".to_string(), scopes);
    metrics
}

/// Every metric, by the name of its field.
pub fn json(m: &Metrics) -> Value {
    let mut all = fields!(
        m; gets, gets_found, gets_in_memtable, seeks, batches, ops_written, user_bytes, groups, conflicts, log_bytes,
        live_log_bytes, retained_log_bytes, log_syncs, flushes, flush_bytes, hot_keys, hot_bytes, hot_swaps,
        hot_checkpoints, hot_checkpoint_bytes, compactions, trivial_moves, compaction_read_bytes,
        compaction_written_bytes, entries_dropped, compaction_filter_removed, compaction_filter_changed,
        compaction_filter_failures, values_separated, separated_bytes, value_reads, value_read_bytes, value_cache_hits,
        value_segments, value_segment_bytes, value_live_bytes, gc_moved_values, gc_moved_bytes, gc_freed_bytes,
        gc_victim_segments, gc_excluded_segments, slowdowns, stops, stall_us, background_errors, filter_memory_bytes, filter_budget_bytes,
        filter_lent_bytes, filter_borrowed_bytes, memtable_lent_bytes, memory_moves, memory_moved_bytes, memory_turns,
        memory_gains_us, filter_lambda, filter_expected_waste, model_bytes, model_training_ns, models_built,
        models_refused, models_refused_ties, models_refused_segments, models_refused_bytes, level_models,
        level_models_built, model_error_mean, model_error_max, model_errors, cache_used_bytes, cache_capacity_bytes,
        memtable_bytes, memtable_limit_bytes, pinned_bytes, open_files, reader_pinned_files, reader_pinned_bytes,
        snapshots, disk_full, quarantined_files, poisoned, evidence_stale
    );
    all.extend([
        ("levels".into(), m.levels.iter().map(level_json).collect()),
        ("write_amplification".into(), json!(m.write_amplification())),
        ("space_amplification".into(), json!(m.space_amplification())),
        ("stalls".into(), stalls(m)),
        ("reads".into(), reads(&m.reads)),
        ("get_latency".into(), latency(&m.get_latency)),
        ("commit_latency".into(), latency(&m.commit_latency)),
        ("flush_latency".into(), latency(&m.flush_latency)),
        ("compaction_latency".into(), latency(&m.compaction_latency)),
    ]);
    Value::Object(all)
}

/// Stalls by cause.
fn stalls(m: &Metrics) -> Value {
    let row = |row: StallMetrics| json!({ "slowdowns": row.slowdowns, "stops": row.stops, "stall_us": row.stall_us });
    m.stalls_by_cause().map(|(cause, counted)| (cause.name().to_string(), row(counted))).collect()
}

fn reads(r: &ReadCounts) -> Value {
    Value::Object(fields!(
        r; filter_checks, filter_negatives, filter_false_positives, data_block_hits, data_block_misses, index_hits,
        index_misses, filter_hits, filter_misses, filters_absent, filter_unit_loads, filter_unit_drops,
        filter_unit_damages, wasted_lookups, lookups_by_model, lookups_by_index, lookups_by_level_model, model_loads,
        model_damages, training_ns, device_reads, device_read_bytes
    ))
}

fn latency(l: &LatencySummary) -> Value {
    Value::Object(fields!(l; samples, mean_us, p50_us, p99_us, p999_us, max_us))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::fmt::Debug;

    /// The fields that `of` has, by what it shows of itself.
    fn names_of(of: &impl Debug) -> BTreeSet<String> {
        let shown = format!("{of:#?}");
        let lines = shown.lines().filter_map(|line| line.strip_prefix("    "));
        let names = lines.filter_map(|line| line.split_once(": "));
        names.map(|(name, _)| name.to_string()).filter(|name| !name.starts_with(' ')).collect()
    }

    fn missing(value: &Value, names: &BTreeSet<String>) -> Vec<String> {
        let fields = value.as_object().unwrap();
        names.iter().filter(|name| !fields.contains_key(*name)).cloned().collect()
    }

    /// A metric that is added to the engine is added here.
    #[test]
    fn the_json_has_every_metric() {
        let metrics = Metrics::default();
        let value = json(&metrics);
        let names = names_of(&metrics);
        assert!(names.len() > 80 && names.contains("evidence_stale"), "{names:?}");
        assert_eq!(missing(&value, &names), [""; 0]);
        assert_eq!(missing(&value["reads"], &names_of(&metrics.reads)), [""; 0]);
        assert_eq!(missing(&value["levels"][0], &names_of(&metrics.levels[0])), [""; 0]);
        assert_eq!(missing(&value["get_latency"], &names_of(&metrics.get_latency)), [""; 0]);
    }
}
