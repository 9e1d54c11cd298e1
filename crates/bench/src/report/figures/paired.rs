//! What `paired` measures.

use super::middle;
use crate::estimate::Ratio;
use crate::report::Row;
use serde::{Deserialize, Serialize};

/// How a store with other settings compares with one beside it, in turns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PairedFigures {
    /// Turns, each of two slices on both sides.
    pub turns: u64,
    /// Puts of a slice.
    pub slice_puts: u64,
    /// Nanoseconds of a put of each side, by the clock of the wall.
    pub wall_ns: [f64; 2],
    /// The same of the processor, of the thread that puts alone.
    pub cpu_ns: [f64; 2],
    /// `b` over `a` of all that passed by the clock of the wall.
    pub wall_ratio: Ratio,
    /// The same of the processor.
    pub cpu_ratio: Ratio,
    /// `b` over `a` in a typical turn, by the clock of the wall.
    pub wall_typical: Ratio,
    /// The same of the processor.
    pub cpu_typical: Ratio,
}

impl PairedFigures {
    /// Medians, field by field; `None` without rows that have such figures.
    pub(in crate::report) fn median(rows: &[&Row]) -> Option<Self> {
        let all: Vec<&Self> = rows.iter().filter_map(|row| row.paired.as_ref()).collect();
        let first = *all.first()?;
        let of = |field: &dyn Fn(&Self) -> f64| middle(all.iter().map(|f| field(f)).collect());
        let ratio = |field: fn(&Self) -> Ratio| Ratio {
            ratio: of(&|f| field(f).ratio),
            low: of(&|f| field(f).low),
            high: of(&|f| field(f).high),
        };
        Some(Self {
            wall_ns: [of(&|f| f.wall_ns[0]), of(&|f| f.wall_ns[1])],
            cpu_ns: [of(&|f| f.cpu_ns[0]), of(&|f| f.cpu_ns[1])],
            wall_ratio: ratio(|f| f.wall_ratio),
            cpu_ratio: ratio(|f| f.cpu_ratio),
            wall_typical: ratio(|f| f.wall_typical),
            cpu_typical: ratio(|f| f.cpu_typical),
            ..first.clone()
        })
    }
}
