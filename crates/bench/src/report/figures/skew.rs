//! What `skew` and `cluster-skew` measure.

use super::{known, known_count};
use crate::report::Row;
use serde::{Deserialize, Serialize};

/// What `skew` and `cluster-skew` measure beside what every row has. Bytes are the engine's own count,
/// of all instances; null where it does not tell.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SkewFigures {
    /// The exponent of Zipf's law.
    pub zipf: f64,
    /// Bytes written to tables, checkpoints and moved values: all but the log.
    pub table_bytes: Option<u64>,
    /// Bytes written to the log.
    pub log_bytes: Option<u64>,
    /// `table_bytes` over the bytes of keys and values that clients wrote.
    pub table_write_amp: Option<f64>,
    /// The log included.
    pub total_write_amp: Option<f64>,
    /// Keys in hot tables at the end of the writes.
    pub hot_keys: Option<u64>,
    /// Sorted runs at the end, of all instances.
    pub run_count: Option<u64>,
    /// Keys that a plan moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved_keys: Option<u64>,
    /// `table_write_amp` of each instance: over what clients wrote to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instance_write_amps: Vec<f64>,
    /// Their mean, which the published experiments tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_instance_write_amp: Option<f64>,
    /// The share of the clients' writes that each instance got.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instance_shares: Vec<f64>,
}

impl SkewFigures {
    /// Medians, field by field, of lists those of the first; `None` without rows that have such
    /// figures.
    pub(in crate::report) fn median(rows: &[&Row]) -> Option<Self> {
        let all: Vec<&Self> = rows.iter().filter_map(|row| row.skew.as_ref()).collect();
        let first = *all.first()?;
        Some(Self {
            table_bytes: known_count(&all, |f| f.table_bytes),
            log_bytes: known_count(&all, |f| f.log_bytes),
            table_write_amp: known(&all, |f| f.table_write_amp),
            total_write_amp: known(&all, |f| f.total_write_amp),
            hot_keys: known_count(&all, |f| f.hot_keys),
            run_count: known_count(&all, |f| f.run_count),
            moved_keys: known_count(&all, |f| f.moved_keys),
            mean_instance_write_amp: known(&all, |f| f.mean_instance_write_amp),
            ..first.clone()
        })
    }
}
