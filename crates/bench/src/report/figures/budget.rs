//! The figures of `budget-curve`.

use serde::{Deserialize, Serialize};

/// What an engine was given. The same in all repeats of a row.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct BudgetFigures {
    /// Memory for everything: memtables, blocks, index and filters.
    pub memory_bytes: u64,
    /// The same in percent of the bytes of keys and values.
    pub memory_percent: f64,
}
