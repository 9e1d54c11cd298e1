//! What `large-values` measures.

use super::{known, known_count};
use crate::report::Row;
use serde::{Deserialize, Serialize};

/// What `large-values` measures beside what every row has. What a part of it does not measure is
/// null or empty.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LargeValueFigures {
    /// Bytes of a value.
    pub value_bytes: u64,
    /// Bytes written to files, by the engine's count.
    pub engine_written_bytes: Option<u64>,
    /// The same over the bytes of keys and values written.
    pub engine_write_amp: Option<f64>,
    /// The longest time in which no write ended.
    pub longest_gap_us: Option<f64>,
    /// The largest size of the directory over the bytes that live, of all samples.
    pub space_amp_max: Option<f64>,
    /// Read calls, by the kernel's count, where it has all of them: it leaves out what goes through an `io_uring`.
    pub read_calls_per_op: Option<f64>,
    /// Reads of values that are kept apart, by the engine's count.
    pub value_reads_per_op: Option<f64>,
    /// Entries that scans saw.
    pub entries_per_s: Option<f64>,
    /// Bytes of keys and values that scans saw.
    pub bytes_per_s: Option<f64>,
    /// Bytes of the files that hold values kept apart, at the end.
    pub value_file_bytes: Option<u64>,
    /// How many of these are still wanted.
    pub value_live_bytes: Option<u64>,
    /// Bytes of values that garbage collection moved.
    pub moved_bytes: Option<u64>,
    /// When samples were taken, in seconds since the phase began.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub series_seconds: Vec<f64>,
    /// The size of the directory over the bytes that live, at each sample.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub space_series: Vec<f64>,
    /// Operations per second since the sample before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rate_series: Vec<f64>,
}

impl LargeValueFigures {
    /// Medians, field by field, and the series of the first repeat; `None` without rows that have
    /// such figures. The longest gap and the most space are those of all repeats.
    pub(in crate::report) fn median(rows: &[&Row]) -> Option<Self> {
        let all: Vec<&Self> = rows.iter().filter_map(|row| row.large_values.as_ref()).collect();
        let first = *all.first()?;
        let most =
            |field: fn(&Self) -> Option<f64>| all.iter().filter_map(|f| field(f)).reduce(f64::max);
        Some(Self {
            engine_written_bytes: known_count(&all, |f| f.engine_written_bytes),
            engine_write_amp: known(&all, |f| f.engine_write_amp),
            longest_gap_us: most(|f| f.longest_gap_us),
            space_amp_max: most(|f| f.space_amp_max),
            read_calls_per_op: known(&all, |f| f.read_calls_per_op),
            value_reads_per_op: known(&all, |f| f.value_reads_per_op),
            entries_per_s: known(&all, |f| f.entries_per_s),
            bytes_per_s: known(&all, |f| f.bytes_per_s),
            value_file_bytes: known_count(&all, |f| f.value_file_bytes),
            value_live_bytes: known_count(&all, |f| f.value_live_bytes),
            moved_bytes: known_count(&all, |f| f.moved_bytes),
            ..first.clone()
        })
    }
}
