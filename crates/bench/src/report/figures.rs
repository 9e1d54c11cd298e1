//! Figures that only some workloads have. Their fields lie beside a row's own in JSON, and are
//! left out where a workload has none of them.

mod budget;
mod learned;
mod paired;
mod skew;
mod values;
mod writer;

use crate::report::Row;
pub use budget::BudgetFigures;
pub use learned::LearnedFigures;
pub use paired::PairedFigures;
use serde::{Deserialize, Serialize};
pub use skew::SkewFigures;
pub use values::LargeValueFigures;
pub use writer::WriterFigures;

/// What `filters` measures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FilterFigures {
    /// Share of the probes for absent keys that were let through.
    pub fpr: f64,
    /// What the engine's own model says it should be.
    pub model_fpr: Option<f64>,
    /// How many absent keys were probed.
    pub probes: u64,
    /// Bits of all filters over all keys.
    pub bits_per_key: f64,
    /// Keys of one filter, on average.
    pub keys_per_filter: Option<u64>,
    /// From key to filter, hashing included.
    pub build_ns_per_key: Option<f64>,
    /// One query for an absent key, of a filter in the processor's first caches, hashing included.
    pub query_hot_ns: Option<f64>,
    /// The same for a key that is in the filter.
    pub query_hot_positive_ns: Option<f64>,
    /// One query for an absent key, each of another filter, none of them in any cache.
    pub query_cold_ns: Option<f64>,
    /// How much of a query is hashing, for an engine that needs to do it only once per lookup.
    pub hash_ns: Option<f64>,
}

/// What `elastic` measures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ElasticFigures {
    /// How keys are chosen.
    pub law: String,
    /// Bytes that filters in memory may take.
    pub filter_budget_bytes: u64,
    /// Bytes of all filters on disk.
    pub filter_disk_bytes: Option<u64>,
    /// `wasted_reads_per_op` by the engine's own count instead of the kernel's.
    pub wasted_reads_by_engine: Option<f64>,
    /// Parts of indexes that had to be read, per lookup; they are among the wasted reads.
    pub index_reads_per_op: Option<f64>,
    /// Filter units brought into memory, per lookup.
    pub unit_loads_per_op: Option<f64>,
}

/// How wasted reads went while the hot range jumped.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShiftFigures {
    /// Wasted reads per lookup, one value for every `series_step_ops` lookups.
    pub series: Vec<f64>,
    /// Lookups of a step.
    pub series_step_ops: u64,
    /// Lookups before the jump.
    pub shift_after_ops: u64,
    /// The mean of the steps before the jump.
    pub steady_wasted_reads: f64,
    /// Lookups after the jump until wasted reads were back; null if they never were.
    pub recovery_ops: Option<u64>,
}

impl FilterFigures {
    /// Medians, field by field; `None` without rows that have such figures.
    pub(super) fn median(rows: &[&Row]) -> Option<Self> {
        let all: Vec<&Self> = rows.iter().filter_map(|row| row.filters.as_ref()).collect();
        let first = *all.first()?;
        let of = |field: fn(&Self) -> f64| middle(all.iter().map(|f| field(f)).collect());
        Some(Self {
            fpr: of(|f| f.fpr),
            bits_per_key: of(|f| f.bits_per_key),
            build_ns_per_key: known(&all, |f| f.build_ns_per_key),
            query_hot_ns: known(&all, |f| f.query_hot_ns),
            query_hot_positive_ns: known(&all, |f| f.query_hot_positive_ns),
            query_cold_ns: known(&all, |f| f.query_cold_ns),
            hash_ns: known(&all, |f| f.hash_ns),
            ..first.clone()
        })
    }
}

impl ElasticFigures {
    /// Medians, field by field; `None` without rows that have such figures.
    pub(super) fn median(rows: &[&Row]) -> Option<Self> {
        let all: Vec<&Self> = rows.iter().filter_map(|row| row.elastic.as_ref()).collect();
        let first = *all.first()?;
        Some(Self {
            wasted_reads_by_engine: known(&all, |f| f.wasted_reads_by_engine),
            index_reads_per_op: known(&all, |f| f.index_reads_per_op),
            unit_loads_per_op: known(&all, |f| f.unit_loads_per_op),
            ..first.clone()
        })
    }
}

impl ShiftFigures {
    /// The series of the first repeat, with the median of the lookups until recovery, never being
    /// longer than any number.
    pub(super) fn median(rows: &[&Row]) -> Option<Self> {
        let all: Vec<&Self> = rows.iter().filter_map(|row| row.shift.as_ref()).collect();
        let first = *all.first()?;
        let recoveries =
            all.iter().map(|f| f.recovery_ops.map_or(f64::INFINITY, |ops| ops as f64)).collect();
        let recovery = middle(recoveries);
        Some(Self {
            recovery_ops: recovery.is_finite().then_some(recovery as u64),
            steady_wasted_reads: middle(all.iter().map(|f| f.steady_wasted_reads).collect()),
            ..first.clone()
        })
    }
}

/// The median of what is known of a field.
fn known<T>(all: &[&T], field: impl Fn(&T) -> Option<f64>) -> Option<f64> {
    let values: Vec<f64> = all.iter().filter_map(|figures| field(figures)).collect();
    (!values.is_empty()).then(|| middle(values))
}

/// The same of a count.
fn known_count<T>(all: &[&T], field: impl Fn(&T) -> Option<u64>) -> Option<u64> {
    known(all, |figures| field(figures).map(|n| n as f64)).map(|n| n as u64)
}

/// The middle value, or the mean of the two middle ones; 0 of nothing.
pub(super) fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match (values.len(), values.len() / 2) {
        (0, _) => 0.0,
        (len, middle) if len % 2 == 1 => values[middle],
        (_, middle) => (values[middle - 1] + values[middle]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::middle;

    #[test]
    fn the_middle_value_is_the_median() {
        assert_eq!(middle(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(middle(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(middle(vec![7.0]), 7.0);
        assert_eq!(middle(vec![]), 0.0);
    }
}
