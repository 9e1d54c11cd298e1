//! What the writer of `readwhilewriting` did.

use super::middle;
use crate::report::Row;
use serde::{Deserialize, Serialize};

/// What the thread that writes beside the reads did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WriterFigures {
    /// Bytes of keys and values that it wrote.
    pub writer_bytes: u64,
    /// The same per second.
    pub writer_bytes_per_s: f64,
    /// What it was to write per second; 0 is as much as it can.
    pub writer_asked_bytes_per_s: u64,
}

impl WriterFigures {
    /// Medians, field by field; `None` without rows that have such figures.
    pub(in crate::report) fn median(rows: &[&Row]) -> Option<Self> {
        let all: Vec<&Self> = rows.iter().filter_map(|row| row.writer.as_ref()).collect();
        let first = *all.first()?;
        let of = |field: fn(&Self) -> f64| middle(all.iter().map(|f| field(f)).collect());
        Some(Self {
            writer_bytes: of(|f| f.writer_bytes as f64) as u64,
            writer_bytes_per_s: of(|f| f.writer_bytes_per_s),
            writer_asked_bytes_per_s: first.writer_asked_bytes_per_s,
        })
    }
}
