//! Metrics as text for people.

use super::stalls::StallMetrics;
use super::{LatencySummary, Metrics};
use std::fmt::{self, Display};

/// A byte count as people read it.
struct Bytes(u64);

impl Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
        let mut value = self.0 as f64;
        let mut unit = 0;
        while value >= 1024.0 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        let text = match unit {
            0 => format!("{} B", self.0),
            _ => format!("{value:.1} {}", UNITS[unit]),
        };
        f.pad(&text)
    }
}

impl Metrics {
    /// All latencies, by what was timed.
    pub(super) fn latencies(&self) -> [(&'static str, &LatencySummary); 4] {
        [
            ("get", &self.get_latency),
            ("commit", &self.commit_latency),
            ("flush", &self.flush_latency),
            ("compaction", &self.compaction_latency),
        ]
    }

    /// What models do, if there are any.
    fn learning(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lookups = self.reads.lookups_by_model + self.reads.lookups_by_level_model;
        if lookups + self.models_built + self.models_refused + self.level_models == 0 {
            return Ok(());
        }
        writeln!(
            f,
            "models      {} lookups by model, {} by level model, {} by index; {} in memory, {} damaged",
            self.reads.lookups_by_model,
            self.reads.lookups_by_level_model,
            self.reads.lookups_by_index,
            Bytes(self.model_bytes),
            self.reads.model_damages,
        )?;
        writeln!(
            f,
            "            {} built and {} of levels in {:.1} ms; {} refused ({} ties, {} segments, {} bytes)",
            self.models_built,
            self.level_models_built,
            self.model_training_ns as f64 / 1e6,
            self.models_refused,
            self.models_refused_ties,
            self.models_refused_segments,
            self.models_refused_bytes,
        )?;
        write!(
            f,
            "            off by {:.2} blocks, at most {}; exact, then by eighths of the bound:",
            self.model_error_mean, self.model_error_max,
        )?;
        let total = self.model_errors.iter().sum();
        for count in self.model_errors {
            write!(f, " {:.1} %", percent(count, total))?;
        }
        writeln!(f)?;
        for (number, level) in self.levels.iter().enumerate() {
            if level.model_files + level.level_models > 0 {
                let whole = if level.level_models > 0 { ", and one of the level" } else { "" };
                writeln!(
                    f,
                    "L{number:<4}        {} of {} files have a model{whole}",
                    level.model_files, level.file_count,
                )?;
            }
        }
        Ok(())
    }

    /// How writers were held back, as a whole and by cause.
    fn stall_table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "stalls      {} slowdowns, {} stops, {:.3} s in all{}{}{}{}",
            self.slowdowns,
            self.stops,
            self.stall_us as f64 / 1e6,
            if self.quarantined_files > 0 { ", FILES QUARANTINED" } else { "" },
            if self.disk_full { ", DISK FULL" } else { "" },
            if self.poisoned { ", POISONED (reopen the store)" } else { "" },
            if self.evidence_stale { ", EVIDENCE STALE" } else { "" },
        )?;
        for (cause, row) in self.stalls_by_cause() {
            if row != StallMetrics::default() {
                writeln!(
                    f,
                    "            {}: {} slowdowns, {} stops, {:.3} s",
                    cause.text(),
                    row.slowdowns,
                    row.stops,
                    row.stall_us as f64 / 1e6,
                )?;
            }
        }
        Ok(())
    }

    /// What the value log holds, if it holds anything.
    fn value_log(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.values_separated + self.value_segments == 0 {
            return Ok(());
        }
        writeln!(
            f,
            "value log   {} values ({}) separated, {} segments of {} ({} referred to), {} read, {} moved, {} freed, {} victims",
            self.values_separated,
            Bytes(self.separated_bytes),
            self.value_segments,
            Bytes(self.value_segment_bytes),
            Bytes(self.value_live_bytes),
            self.value_reads,
            Bytes(self.gc_moved_bytes),
            Bytes(self.gc_freed_bytes),
            self.gc_victim_segments,
        )
    }

    /// What the filter budget does, if it does anything: as a whole and by level.
    fn filter_memory(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.levels.iter().all(|level| level.filter_lookups() + level.filter_units_loaded == 0) {
            return Ok(());
        }
        writeln!(
            f,
            "            {} of {} in memory, {} lent to the cache, {} borrowed from it, {:.4} wasted lookups expected per \
             lookup, lambda {:.2e}, {} units damaged",
            Bytes(self.filter_memory_bytes),
            Bytes(self.filter_budget_bytes),
            Bytes(self.filter_lent_bytes),
            Bytes(self.filter_borrowed_bytes),
            self.filter_expected_waste,
            self.filter_lambda,
            self.reads.filter_unit_damages,
        )?;
        writeln!(
            f,
            "level    lookups     stopped     in vain       found    units +/-      memory"
        )?;
        for (number, level) in self.levels.iter().enumerate() {
            if level.filter_lookups() + level.filter_units_loaded == 0 {
                continue;
            }
            writeln!(
                f,
                "L{number:<4} {:>10} {:>11} {:>11} {:>11} {:>12} {:>11}",
                level.filter_lookups(),
                level.filter_stopped,
                level.filter_vain,
                level.filter_found,
                format!("{}/{}", level.filter_units_loaded, level.filter_units_dropped),
                Bytes(level.filter_memory_bytes),
            )?;
        }
        Ok(())
    }

    /// What memtables and readers hold, and what has moved between pools.
    fn memory(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "memory      memtables {} of {}, {} lent to the cache, pinned {} in {} open files, {} snapshots, {} moves of {}",
            Bytes(self.memtable_bytes),
            Bytes(self.memtable_limit_bytes),
            Bytes(self.memtable_lent_bytes),
            Bytes(self.pinned_bytes),
            self.open_files,
            self.snapshots,
            self.memory_moves,
            Bytes(self.memory_moved_bytes),
        )
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
}

impl Display for Metrics {
    /// A screen of text: levels, writes, reads, memory, latencies.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "level  files        size     entries  tombstones     written")?;
        for (number, level) in self.levels.iter().enumerate() {
            if level.file_count == 0 && level.written_bytes == 0 {
                continue;
            }
            writeln!(
                f,
                "L{number:<4} {:>6} {:>11} {:>11} {:>11} {:>11}",
                level.file_count,
                Bytes(level.size_bytes),
                level.entry_count,
                level.tombstone_count,
                Bytes(level.written_bytes),
            )?;
        }
        writeln!(
            f,
            "writes      {} ops in {} batches, {} from the user, write amplification {:.2}, space amplification {:.2}",
            self.ops_written,
            self.batches,
            Bytes(self.user_bytes),
            self.write_amplification(),
            self.space_amplification(),
        )?;
        writeln!(
            f,
            "            log {} ({} live, {} syncs), flush {} in {}, compaction {} written in {} ({} read, {} moves)",
            Bytes(self.log_bytes),
            Bytes(self.live_log_bytes),
            self.log_syncs,
            Bytes(self.flush_bytes),
            self.flushes,
            Bytes(self.compaction_written_bytes),
            self.compactions,
            Bytes(self.compaction_read_bytes),
            self.trivial_moves,
        )?;
        if self.hot_swaps > 0 {
            writeln!(
                f,
                "            hot table {} keys in {}, {} swaps, {} in {} checkpoints",
                self.hot_keys,
                Bytes(self.hot_bytes),
                self.hot_swaps,
                Bytes(self.hot_checkpoint_bytes),
                self.hot_checkpoints,
            )?;
        }
        self.value_log(f)?;
        self.stall_table(f)?;
        writeln!(
            f,
            "reads       {} gets ({} found, {} in memtables), {} seeks, {:.3} device reads per get",
            self.gets,
            self.gets_found,
            self.gets_in_memtable,
            self.seeks,
            self.device_reads_per_get(),
        )?;
        writeln!(
            f,
            "filters     {} checks, {:.1} % answered absent, {} false positives, {} lookups without",
            self.reads.filter_checks,
            percent(self.reads.filter_negatives, self.reads.filter_checks),
            self.reads.filter_false_positives,
            self.reads.filters_absent,
        )?;
        self.filter_memory(f)?;
        self.learning(f)?;
        let hit = |hits: u64, misses: u64| percent(hits, hits + misses);
        writeln!(
            f,
            "cache       {} of {}; hits: data {:.1} %, index {:.1} %, filters {:.1} %",
            Bytes(self.cache_used_bytes),
            Bytes(self.cache_capacity_bytes),
            hit(self.reads.data_block_hits, self.reads.data_block_misses),
            hit(self.reads.index_hits, self.reads.index_misses),
            hit(self.reads.filter_hits, self.reads.filter_misses),
        )?;
        self.memory(f)?;
        writeln!(f, "latency us      p50       p99     p99.9       max   samples")?;
        for (name, l) in self.latencies() {
            if l.samples > 0 {
                writeln!(
                    f,
                    "{name:<10} {:>8.1} {:>9.1} {:>9.1} {:>9.1} {:>9}",
                    l.p50_us, l.p99_us, l.p999_us, l.max_us, l.samples,
                )?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
