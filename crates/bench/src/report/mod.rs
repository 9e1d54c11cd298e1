//! What was measured: one [`Row`] per workload, engine and repeat; written as JSON, summed up as
//! a table of medians, drawn as bars.

pub mod cells;
pub mod figures;
pub mod median;
pub mod plot;
mod plot_series;
pub mod table;
mod table_filters;
mod table_learned;
mod table_paired;
mod table_skew;
mod table_values;

use crate::engine::Engine;
use crate::store::MetadataBytes;
use anyhow::{Context, Result};
use figures::{
    BudgetFigures, ElasticFigures, FilterFigures, LargeValueFigures, LearnedFigures, PairedFigures,
    ShiftFigures, SkewFigures, WriterFigures,
};
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::Path;
use terrace_workload::phase::Outcome;
use terrace_workload::usage::{DEVICE_READ_BYTES, Usage};

/// One measurement. Fields that an engine does not tell, or that have no meaning for the workload,
/// are null.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The workload or sub-workload.
    pub workload: String,
    /// Empty for the engine's default configuration.
    pub variant: String,
    /// Who was measured.
    pub engine: Engine,
    /// Which repeat, from 1.
    pub repeat: u32,
    /// How many repeats were asked for.
    pub repeats: u32,
    /// The job failed after this was measured: it is in no median.
    pub failed: bool,
    /// Threads that ran operations.
    pub threads: usize,
    /// Keys in the store when the workload began (for fills: that were inserted).
    pub keys: u64,
    /// Operations carried out.
    pub ops: u64,
    /// Wall time.
    pub seconds: f64,
    /// `ops / seconds`.
    pub ops_per_s: f64,
    /// Median latency of the timed operations.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// 99.99th percentile; null in rows of builds that did not record it.
    pub p9999_us: Option<f64>,
    /// The longest.
    pub max_us: f64,
    /// Bytes the process wrote towards the device, by the kernel's count.
    pub bytes_written: u64,
    /// Bytes of keys and values the workload wrote.
    pub user_bytes: u64,
    /// `bytes_written / user_bytes`.
    pub write_amp: Option<f64>,
    /// Size of the store's directory over the keys and values that live in it.
    pub space_amp: Option<f64>,
    /// Bytes fetched from the device, by the kernel's count, in units of 4096, per operation.
    pub device_reads_per_op: f64,
    /// Reads for which there was nothing to find, per lookup: known where all lookups miss (then
    /// in units of 4096), and in `elastic` (then read calls beyond the one that a stored key needs).
    pub wasted_reads_per_op: Option<f64>,
    /// Filters on disk; in `elastic`, in memory.
    pub filter_bytes: Option<u64>,
    /// Indexes on disk.
    pub index_bytes: Option<u64>,
    /// Sorted runs of the store when the workload had ended, each of which a lookup may have to search.
    pub sorted_runs: Option<u64>,
    /// Everything had been merged by the engine's full manual compaction right before.
    pub merged: bool,
    /// Peak resident set of the process during the workload.
    pub rss_bytes: u64,
    /// Processor seconds of all the process's threads.
    pub cpu_s: f64,
    /// Every option that was set, in the engine's words.
    pub options: String,
    /// The engine's version.
    pub version: String,
    /// The engine's shared library, of one that has it.
    pub library: Option<String>,
    /// Processor, cores, memory, kernel.
    pub machine: String,
    /// The commit of this project, `-dirty` if files differ from it.
    pub commit: String,
    /// What only `readwhilewriting` measures.
    #[serde(flatten)]
    pub writer: Option<WriterFigures>,
    /// What only `filters` measures.
    #[serde(flatten)]
    pub filters: Option<FilterFigures>,
    /// What only `elastic` and `elastic-shift` measure.
    #[serde(flatten)]
    pub elastic: Option<ElasticFigures>,
    /// What only `elastic-shift` measures.
    #[serde(flatten)]
    pub shift: Option<ShiftFigures>,
    /// What only `large-values` measures.
    #[serde(flatten)]
    pub large_values: Option<LargeValueFigures>,
    /// What only `learned` measures.
    #[serde(flatten)]
    pub learned: Option<LearnedFigures>,
    /// What only `skew` and `cluster-skew` measure.
    #[serde(flatten)]
    pub skew: Option<SkewFigures>,
    /// What only `paired` measures.
    #[serde(flatten)]
    pub paired: Option<PairedFigures>,
    /// What only `budget-curve` measures.
    #[serde(flatten)]
    pub budget: Option<BudgetFigures>,
}

/// What is the same for all rows of one store.
#[derive(Debug, Clone)]
pub struct Facts {
    /// Who is measured.
    pub engine: Engine,
    /// Which repeat, from 1.
    pub repeat: u32,
    /// How many were asked for.
    pub repeats: u32,
    /// Empty for the default configuration.
    pub variant: String,
    /// Everything in the store was just merged.
    pub merged: bool,
    /// The engine's options.
    pub options: String,
    /// The engine's version.
    pub version: String,
    /// Its shared library.
    pub library: Option<String>,
    /// The machine.
    pub machine: String,
    /// This project's commit.
    pub commit: String,
}

/// The state of the store a row speaks of.
#[derive(Debug, Clone, Copy, Default)]
pub struct StoreState {
    /// Keys in the store.
    pub keys: u64,
    /// Bytes of the keys and values that live in it, where known.
    pub live_bytes: Option<u64>,
    /// Size of its directory.
    pub dir_bytes: u64,
    /// Sizes of filters and indexes.
    pub metadata: MetadataBytes,
    /// Its sorted runs, where known.
    pub sorted_runs: Option<u64>,
}

impl Row {
    /// A row of workload `workload`.
    pub fn new(
        workload: &str,
        facts: &Facts,
        threads: usize,
        outcome: &Outcome,
        usage: Usage,
        store: StoreState,
    ) -> Self {
        let quantile = |q| outcome.latencies.value_at_quantile(q) as f64 / 1000.0;
        let per = |part: f64, whole: f64| (whole > 0.0).then(|| part / whole);
        let reads = usage.read_bytes as f64 / DEVICE_READ_BYTES;
        let device_reads_per_op = per(reads, outcome.ops as f64).unwrap_or(0.0);
        let all_missed = outcome.tally.missed > 0 && outcome.tally.found == 0;
        let user_bytes = outcome.tally.user_bytes;
        Self {
            workload: workload.to_owned(),
            variant: facts.variant.clone(),
            engine: facts.engine,
            repeat: facts.repeat,
            repeats: facts.repeats,
            failed: false,
            threads,
            keys: store.keys,
            ops: outcome.ops,
            seconds: outcome.seconds,
            ops_per_s: per(outcome.ops as f64, outcome.seconds).unwrap_or(0.0),
            p50_us: quantile(0.5),
            p99_us: quantile(0.99),
            p999_us: quantile(0.999),
            p9999_us: Some(quantile(0.9999)),
            max_us: outcome.latencies.max() as f64 / 1000.0,
            bytes_written: usage.written_bytes,
            user_bytes,
            write_amp: per(usage.written_bytes as f64, user_bytes as f64),
            space_amp: store.live_bytes.and_then(|live| per(store.dir_bytes as f64, live as f64)),
            device_reads_per_op,
            wasted_reads_per_op: all_missed.then_some(device_reads_per_op),
            filter_bytes: store.metadata.filters,
            index_bytes: store.metadata.indexes,
            sorted_runs: store.sorted_runs,
            merged: facts.merged,
            rss_bytes: usage.rss_bytes,
            cpu_s: usage.cpu_s,
            options: facts.options.clone(),
            version: facts.version.clone(),
            library: facts.library.clone(),
            machine: facts.machine.clone(),
            commit: facts.commit.clone(),
            writer: None,
            filters: None,
            elastic: None,
            shift: None,
            large_values: None,
            learned: None,
            skew: None,
            paired: None,
            budget: None,
        }
    }
}

/// Writes the rows as one JSON array, replacing the file at once.
pub fn write_json(path: &Path, rows: &[Row]) -> Result<()> {
    let context = || format!("writing {}", path.display());
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(dir).with_context(context)?;
    serde_json::to_writer_pretty(&mut file, rows)?;
    file.write_all(b"\n").with_context(context)?;
    // A temporary file is private; a report is not.
    use std::os::unix::fs::PermissionsExt;
    file.as_file().set_permissions(std::fs::Permissions::from_mode(0o644)).with_context(context)?;
    file.persist(path).with_context(context)?;
    Ok(())
}

#[cfg(test)]
mod tests;
