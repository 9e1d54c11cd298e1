//! Models of files, or one model over a whole level: which a level should have.
//!
//! A model over the level saves the search for the file, and is worth nothing after the next
//! compaction into the level. So a level has to have been quiet for a while. How long it will stay
//! so is not known; the guess is, as long again as it has been (the median, if the chance of an end
//! falls with the time gone by), with as many lookups.

use super::MIN_WAIT_MS;
use std::fmt;

/// What a model of a level takes and saves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LevelCosts {
    /// Nanoseconds to train one key.
    pub training_ns_per_key: f64,
    /// What a lookup takes through its files' models, the search for the file included.
    pub file_path_ns: f64,
    /// What one takes through a model of the level.
    pub level_path_ns: f64,
}

/// A level, as its counters see it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LevelState {
    /// Since files last came or went.
    pub quiet_ms: u64,
    /// Keys in all its files.
    pub key_count: u64,
    /// Lookups that reached it in that time.
    pub lookup_count: u64,
    /// What is gained and what it takes.
    pub costs: LevelCosts,
}

/// What models a level should have.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LevelDecision {
    /// Those of its files: it changes too often, has too few lookups, or a model over it saves
    /// nothing.
    Files {
        /// Cost less benefit of a model over the level; `None` before it was quiet for long enough.
        deficit_ns: Option<f64>,
    },
    /// One over all.
    Level {
        /// Benefit less cost.
        surplus_ns: f64,
    },
}

impl fmt::Display for LevelDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Files { deficit_ns: None } => {
                write!(f, "file models: the level has just changed")
            }
            Self::Files { deficit_ns: Some(ns) } => {
                write!(f, "file models: a level model would cost {:.3} ms", ns / 1e6)
            }
            Self::Level { surplus_ns } => {
                write!(f, "level model: saves {:.3} ms", surplus_ns / 1e6)
            }
        }
    }
}

/// Decides on one level without a model over it. One that has it keeps it until the level changes.
pub fn decide(level: &LevelState) -> LevelDecision {
    let costs = &level.costs;
    let cost = costs.training_ns_per_key * level.key_count as f64;
    let wait_ms = MIN_WAIT_MS.max((cost / 1e6).ceil() as u64);
    if level.quiet_ms < wait_ms {
        return LevelDecision::Files { deficit_ns: None };
    }
    let benefit = (costs.file_path_ns - costs.level_path_ns) * level.lookup_count as f64;
    match benefit > cost {
        true => LevelDecision::Level { surplus_ns: benefit - cost },
        false => LevelDecision::Files { deficit_ns: Some(cost - benefit) },
    }
}
