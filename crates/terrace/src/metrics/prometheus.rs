//! Metrics in the text format of Prometheus; part of the feature `metrics`.

use super::stalls::StallMetrics;
use super::{MEMORY_POOLS, Metrics};
use std::fmt::{Display, Write as _};

/// The types of metrics in use.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
}
use Kind::{Counter, Gauge};

/// The text of OpenMetrics that is being made; every name in it begins with `terrace_`.
#[derive(Default)]
struct Text(String);

impl Text {
    /// A metric begins, of which samples follow.
    fn begin(&mut self, name: &str, kind: Kind, help: &str) {
        let kind = if kind == Counter { "counter" } else { "gauge" };
        // Writing into memory does not fail.
        let _ = write!(self.0, "# HELP terrace_{name} {help}.\n# TYPE terrace_{name} {kind}\n");
    }

    /// A sample. `labels` need no escapes: they are names of this crate.
    fn sample(
        &mut self,
        name: &str,
        kind: Kind,
        labels: &[(&str, &dyn Display)],
        value: &dyn Display,
    ) {
        let suffix = if kind == Counter { "_total" } else { "" };
        let _ = write!(self.0, "terrace_{name}{suffix}");
        for (at, (label, text)) in labels.iter().enumerate() {
            let before = if at == 0 { '{' } else { ',' };
            let _ = write!(self.0, "{before}{label}=\"{text}\"");
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{end} {value}");
    }

    /// A metric with one sample.
    fn single(&mut self, name: &str, kind: Kind, help: &str, value: &dyn Display) {
        self.begin(name, kind, help);
        self.sample(name, kind, &[], value);
    }

    /// A metric with a sample for each value of a label.
    fn by<L: Display, V: Display>(
        &mut self,
        (name, kind, help): (&str, Kind, &str),
        label: &str,
        samples: impl IntoIterator<Item = (L, V)>,
    ) {
        self.begin(name, kind, help);
        for (of, value) in samples {
            self.sample(name, kind, &[(label, &of)], &value);
        }
    }
}

/// A number that need not be whole, as OpenMetrics writes it.
struct Real(f64);

impl Display for Real {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            f64::INFINITY => f.write_str("+Inf"),
            f64::NEG_INFINITY => f.write_str("-Inf"),
            value => write!(f, "{value:?}"),
        }
    }
}

impl Metrics {
    /// The Prometheus text exposition of everything here; every name starts with `terrace_`.
    pub fn to_prometheus(&self) -> String {
        let mut text = Text::default();
        self.write_counters(&mut text);
        self.write_stalls(&mut text);
        self.write_gauges(&mut text);
        self.write_levels(&mut text);
        let name = "latency_seconds";
        text.begin(name, Gauge, "Sampled latencies by operation and quantile");
        for (op, l) in self.latencies() {
            for (quantile, us) in
                [("0.5", l.p50_us), ("0.99", l.p99_us), ("0.999", l.p999_us), ("1", l.max_us)]
            {
                let labels: [(&str, &dyn Display); 2] = [("op", &op), ("quantile", &quantile)];
                text.sample(name, Gauge, &labels, &Real(us / 1e6));
            }
        }
        text.0.push_str("# EOF\n");
        text.0
    }

    fn write_counters(&self, text: &mut Text) {
        let counters = [
            ("gets", "Point reads", self.gets),
            ("gets_found", "Point reads that found their key", self.gets_found),
            ("gets_in_memtable", "Point reads that a memtable answered", self.gets_in_memtable),
            ("seeks", "Iterator seeks", self.seeks),
            ("memory_moves", "Moves of memory between pools", self.memory_moves),
            ("memory_moved_bytes", "Bytes of these moves", self.memory_moved_bytes),
            ("memory_turns", "Moves against a pool's last direction", self.memory_turns),
            ("batches", "Batches committed", self.batches),
            ("ops_written", "Operations committed", self.ops_written),
            ("groups", "Writes to the commit log", self.groups),
            ("user_bytes", "Bytes of keys and values committed", self.user_bytes),
            ("log_bytes", "Bytes appended to the commit log", self.log_bytes),
            ("log_syncs", "Syncs of the commit log", self.log_syncs),
            ("conflicts", "Batches refused because a key read had changed", self.conflicts),
            ("flushes", "Flushes", self.flushes),
            ("flush_bytes", "Bytes flushed", self.flush_bytes),
            ("hot_swaps", "Fresh hot tables", self.hot_swaps),
            ("hot_checkpoints", "Checkpoints of hot tables", self.hot_checkpoints),
            (
                "hot_checkpoint_bytes",
                "Bytes of checkpoints of hot tables",
                self.hot_checkpoint_bytes,
            ),
            ("compactions", "Compactions that rewrote data", self.compactions),
            ("trivial_moves", "Files moved down without rewriting", self.trivial_moves),
            ("compaction_read_bytes", "Bytes compactions read", self.compaction_read_bytes),
            ("compaction_written_bytes", "Bytes compactions wrote", self.compaction_written_bytes),
            ("entries_dropped", "Entries that flush and compaction dropped", self.entries_dropped),
            (
                "compaction_filter_removed",
                "Entries that compaction filters removed",
                self.compaction_filter_removed,
            ),
            (
                "compaction_filter_changed",
                "Entries that compaction filters changed",
                self.compaction_filter_changed,
            ),
            (
                "compaction_filter_failures",
                "Entries that stayed because a compaction filter failed",
                self.compaction_filter_failures,
            ),
            ("values_separated", "Values left in the log", self.values_separated),
            ("separated_bytes", "Bytes of values left in the log", self.separated_bytes),
            ("value_reads", "Values read from the log", self.value_reads),
            ("value_read_bytes", "Bytes of values read from the log", self.value_read_bytes),
            ("value_cache_hits", "Values found in the block cache", self.value_cache_hits),
            ("gc_moved_values", "Values that garbage collection moved", self.gc_moved_values),
            ("gc_moved_bytes", "Bytes that garbage collection wrote", self.gc_moved_bytes),
            ("gc_freed_bytes", "Bytes of value segments given back", self.gc_freed_bytes),
            ("background_errors", "Failed flushes, compactions and syncs", self.background_errors),
            ("filter_checks", "Filter partitions asked", self.reads.filter_checks),
            ("filter_negatives", "Filter answers: absent", self.reads.filter_negatives),
            (
                "filter_false_positives",
                "Filter answers: maybe, wrongly",
                self.reads.filter_false_positives,
            ),
            ("filters_absent", "Lookups that met no filter in memory", self.reads.filters_absent),
            ("filter_unit_damages", "Filter units found damaged", self.reads.filter_unit_damages),
            ("wasted_lookups", "Searches of an SST that found nothing", self.reads.wasted_lookups),
            ("data_block_hits", "Data blocks found in the cache", self.reads.data_block_hits),
            ("data_block_misses", "Data blocks read from the device", self.reads.data_block_misses),
            ("index_hits", "Index partitions found in memory", self.reads.index_hits),
            ("index_misses", "Index partitions read from the device", self.reads.index_misses),
            ("filter_hits", "Filter partitions found in memory", self.reads.filter_hits),
            ("filter_misses", "Filter partitions read from the device", self.reads.filter_misses),
            ("lookups_by_model", "Lookups through learned indexes", self.reads.lookups_by_model),
            ("lookups_by_index", "Lookups through index partitions", self.reads.lookups_by_index),
            (
                "lookups_by_level_model",
                "Lookups through models of levels",
                self.reads.lookups_by_level_model,
            ),
            ("model_training_nanoseconds", "Time spent training", self.model_training_ns),
            ("models_built", "SSTs that got a learned index", self.models_built),
            ("models_damaged", "Learned indexes found damaged", self.reads.model_damages),
            ("level_models_built", "Models of levels made", self.level_models_built),
            ("device_reads", "Reads of SSTs", self.reads.device_reads),
            ("device_read_bytes", "Bytes of SST reads", self.reads.device_read_bytes),
        ];
        for (name, help, value) in counters {
            text.single(name, Counter, help, &value);
        }
    }

    fn write_stalls(&self, text: &mut Text) {
        type Column = (&'static str, &'static str, fn(StallMetrics) -> u64);
        let columns: [Column; 3] = [
            ("slowdowns", "Times that writes were slowed", |row| row.slowdowns),
            ("stops", "Times that writes stopped", |row| row.stops),
            ("stall_microseconds", "Time writers spent stalled", |row| row.stall_us),
        ];
        for (name, help, value) in columns {
            let samples = self.stalls_by_cause().map(|(cause, row)| (cause.name(), value(row)));
            text.by((name, Counter, help), "cause", samples);
        }
    }

    fn write_gauges(&self, text: &mut Text) {
        let gauges = [
            ("live_log_bytes", "Bytes of log segments that must be kept", self.live_log_bytes),
            (
                "retained_log_bytes",
                "Bytes of log segments kept for change feeds",
                self.retained_log_bytes,
            ),
            ("value_segments", "Files of the log that only SSTs need", self.value_segments),
            ("value_segment_bytes", "Length of these files", self.value_segment_bytes),
            ("value_live_bytes", "Bytes in the log that SSTs refer to", self.value_live_bytes),
            ("gc_victim_segments", "Value segments being collected", self.gc_victim_segments),
            (
                "gc_excluded_segments",
                "Value segments not collected, since a value could not be read",
                self.gc_excluded_segments,
            ),
            ("cache_used_bytes", "Bytes the block cache holds", self.cache_used_bytes),
            ("cache_capacity_bytes", "Bytes the block cache may hold", self.cache_capacity_bytes),
            ("filter_memory_bytes", "Bytes of filter units in memory", self.filter_memory_bytes),
            ("filter_budget_bytes", "Bytes that they may take", self.filter_budget_bytes),
            ("filter_lent_bytes", "Filter bytes that the cache has", self.filter_lent_bytes),
            ("filter_borrowed_bytes", "Cache bytes that filters have", self.filter_borrowed_bytes),
            ("memtable_lent_bytes", "Memtable bytes that the cache has", self.memtable_lent_bytes),
            ("model_bytes", "Bytes of models in memory", self.model_bytes),
            ("level_models", "Levels that have one model", self.level_models),
            ("model_error_max_blocks", "The most that a model was off", self.model_error_max),
            ("memtable_bytes", "Bytes of memtables", self.memtable_bytes),
            ("memtable_limit_bytes", "Bytes that they may take", self.memtable_limit_bytes),
            ("hot_keys", "Keys in hot tables", self.hot_keys),
            ("hot_bytes", "Bytes of hot tables and what decides on them", self.hot_bytes),
            ("pinned_bytes", "Bytes that are taken from the cache's share", self.pinned_bytes),
            ("open_files", "Open SST readers", self.open_files),
            ("reader_pinned_files", "Files kept for readers", self.reader_pinned_files),
            ("reader_pinned_bytes", "Bytes of those", self.reader_pinned_bytes),
            ("snapshots", "Live snapshots", self.snapshots),
            ("disk_full", "1 while writes wait for disk room", u64::from(self.disk_full)),
            (
                "quarantined_files",
                "SSTs that cannot be read and are left out of compactions",
                self.quarantined_files,
            ),
            ("poisoned", "1 when writes are refused until reopened", u64::from(self.poisoned)),
            ("evidence_stale", "1 while evidence is not written", u64::from(self.evidence_stale)),
        ];
        for (name, help, value) in gauges {
            text.single(name, Gauge, help, &value);
        }
        let ratios = [
            (
                "filter_lambda",
                "Wasted lookups saved per lookup and byte by the marginal filter unit",
                self.filter_lambda,
            ),
            (
                "filter_expected_waste",
                "Wasted lookups expected per lookup",
                self.filter_expected_waste,
            ),
            ("model_error_mean_blocks", "How far models are off on average", self.model_error_mean),
            ("write_amplification", "Bytes written per user byte", self.write_amplification()),
            (
                "space_amplification",
                "SST bytes per live byte (estimate)",
                self.space_amplification(),
            ),
        ];
        for (name, help, value) in ratios {
            text.single(name, Gauge, help, &Real(value));
        }
        let gains = MEMORY_POOLS.into_iter().zip(self.memory_gains_us.map(Real));
        let help = "Device time per second that one more MiB would save";
        text.by(("memory_gain_us", Gauge, help), "pool", gains);
    }

    fn write_filter_levels(&self, text: &mut Text) {
        type Figure = fn(&super::LevelMetrics) -> u64;
        let figures: [(&str, &str, Figure); 6] = [
            ("stopped", "Lookups ended by a filter", |row| row.filter_stopped),
            ("vain", "Lookups let through that found nothing", |row| row.filter_vain),
            ("found", "Lookups let through that found their key", |row| row.filter_found),
            ("units_loaded", "Filter units loaded", |row| row.filter_units_loaded),
            ("units_dropped", "Filter units dropped", |row| row.filter_units_dropped),
            ("memory_bytes", "Bytes of filter units in memory", |row| row.filter_memory_bytes),
        ];
        for (name, help, figure) in figures {
            let rows = self.levels.iter().map(figure).enumerate();
            text.by((&format!("level_filter_{name}"), Gauge, help), "level", rows);
        }
    }

    fn write_models(&self, text: &mut Text) {
        let known = [
            ("ties", self.models_refused_ties),
            ("segments", self.models_refused_segments),
            ("bytes", self.models_refused_bytes),
        ];
        // A training that is counted meanwhile may be in one figure and not in the other.
        let known_count: u64 = known.iter().map(|(_, count)| count).sum();
        let others = self.models_refused.saturating_sub(known_count);
        let refused = known.into_iter().chain([("other", others)]);
        let help = "Files and levels without a model";
        text.by(("models_refused", Counter, help), "reason", refused);
        let help = "Keys by how far off their model is, in eighths of its error bound";
        let errors = self.model_errors.iter().enumerate();
        text.by(("model_errors", Counter, help), "eighths", errors);
        let files = self.levels.iter().map(|row| row.model_files).enumerate();
        text.by(("level_model_files", Gauge, "Open SSTs with a learned index"), "level", files);
        let levels = self.levels.iter().map(|row| row.level_models).enumerate();
        text.by(("level_has_model", Gauge, "Families with a model of the level"), "level", levels);
    }

    fn write_levels(&self, text: &mut Text) {
        type Figure = fn(&super::LevelMetrics) -> u64;
        self.write_filter_levels(text);
        self.write_models(text);
        let figures: [(&str, &str, Figure); 6] = [
            ("level_files", "SSTs by level", |row| row.file_count),
            ("level_size_bytes", "Bytes of SSTs by level", |row| row.size_bytes),
            ("level_entries", "Entries of SSTs by level", |row| row.entry_count),
            ("level_tombstones", "Tombstones among these entries", |row| row.tombstone_count),
            ("level_raw_bytes", "Bytes of keys and values by level", |row| row.raw_bytes),
            ("level_written_bytes", "Bytes written into a level since the open", |row| {
                row.written_bytes
            }),
        ];
        for (name, help, figure) in figures {
            text.by((name, Gauge, help), "level", self.levels.iter().map(figure).enumerate());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_of_open_metrics() {
        let mut metrics = Metrics { gets: 7, ..Metrics::default() };
        metrics.memory_gains_us = [f64::INFINITY, 1.0, 2.5e-7];
        let text = metrics.to_prometheus();
        assert!(text.starts_with(
            "# HELP terrace_gets Point reads.\n# TYPE terrace_gets counter\nterrace_gets_total 7\n"
        ));
        for line in [
            "# TYPE terrace_memory_gain_us gauge",
            "terrace_memory_gain_us{pool=\"blocks\"} 1.0",
            "terrace_latency_seconds{op=\"get\",quantile=\"0.5\"} 0.0",
        ] {
            assert!(text.contains(&format!("\n{line}\n")), "{line} is not in {text}");
        }
        let gains: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("terrace_memory_gain_us{")?.rsplit(' ').next())
            .collect();
        assert_eq!(gains, ["+Inf", "1.0", "2.5e-7"]);
        assert!(text.ends_with("\n# EOF\n") && !text.contains("\n\n"));
        // Every sample is under its own head, and no metric comes twice.
        let mut seen = std::collections::HashSet::new();
        let mut name = "";
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                name = rest.split(' ').next().unwrap();
                assert!(seen.insert(name), "{name} twice");
            } else if !line.starts_with('#') {
                assert!(line.starts_with(name), "{line} under {name}");
            }
        }
    }

    /// The metrics are read while a training counts.
    #[test]
    fn a_reason_that_is_counted_before_its_refusal_is_no_failure() {
        let metrics = Metrics { models_refused: 2, models_refused_ties: 3, ..Metrics::default() };
        let prometheus = metrics.to_prometheus();
        assert!(prometheus.contains("terrace_models_refused_total{reason=\"other\"} 0"));
    }

    #[test]
    fn the_text_carries_the_figures() {
        let mut metrics = Metrics { gets: 7, ..Metrics::default() };
        metrics.levels[6].file_count = 3;
        metrics.levels[6].filter_stopped = 40;
        let level = &mut metrics.levels[5];
        (level.entry_count, level.tombstone_count, level.raw_bytes) = (12, 2, 345);
        metrics.groups = 9;
        metrics.filter_lambda = 1.5e-9;
        (metrics.models_refused, metrics.models_refused_ties) = (3, 2);
        (metrics.reads.lookups_by_model, metrics.levels[6].model_files) = (11, 2);
        metrics.model_errors[8] = 5;
        metrics.stalls[2] = StallMetrics { slowdowns: 0, stops: 4, stall_us: 2_500_000 };
        let prometheus = metrics.to_prometheus();
        for line in [
            "terrace_models_refused_total{reason=\"ties\"} 2",
            "terrace_models_refused_total{reason=\"other\"} 1",
            "terrace_model_errors_total{eighths=\"8\"} 5",
            "terrace_level_model_files{level=\"6\"} 2",
            "terrace_lookups_by_model_total 11",
            "terrace_stops_total{cause=\"memtables\"} 4",
            "terrace_stall_microseconds_total{cause=\"memtables\"} 2500000",
            "terrace_slowdowns_total{cause=\"garbage_collection\"} 0",
            "terrace_level_filter_stopped{level=\"6\"} 40",
            "terrace_level_entries{level=\"5\"} 12",
            "terrace_level_tombstones{level=\"5\"} 2",
            "terrace_level_raw_bytes{level=\"5\"} 345",
            "terrace_groups_total 9",
        ] {
            assert!(prometheus.contains(line), "{line} is not in {prometheus}");
        }
        assert!(prometheus.contains("terrace_filter_lambda 1.5e-9"), "{prometheus}");
        assert!(prometheus.contains("terrace_gets_total 7"), "{prometheus}");
        assert!(prometheus.contains("terrace_level_files{level=\"6\"} 3"), "{prometheus}");
        assert!(prometheus.trim_end().ends_with("# EOF"), "{prometheus}");
    }
}
