//! Whether training pays: cost against benefit, from what was measured.
//!
//! Bourbon's analyzer (OSDI 2020, section 4.4). A file first waits, so that one which dies young is
//! never trained. Then training costs `ns per key * keys`, and brings, for each lookup left in the
//! file's life, what a lookup with a model is faster than one without; lookups that find their key
//! and those that do not are counted apart, since they cost differently. How many are left is
//! estimated from files of the same level that have died. Of those worth training, the one with the
//! largest surplus goes first. Until enough files of a level have died, all are trained.
//!
//! Pure arithmetic: the caller has the clock, the counters and the queue. Times are milliseconds
//! for lives and nanoseconds for work. [`level`] decides between models of files and of a level; [`typical`]
//! makes costs of measurements.

pub mod level;
pub mod typical;

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::fmt;

/// How long a file waits at least before it is considered (Bourbon's `T_wait`).
pub const MIN_WAIT_MS: u64 = 50;

/// Dead files of a level before estimates are made from them.
pub const ENOUGH_DEAD_FILES: usize = 8;

/// Dead files of a level that are remembered, the latest.
pub const REMEMBERED_DEAD_FILES: usize = 64;

/// Lookups that a file was asked.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Lookups {
    /// Those that found their key.
    pub positive: f64,
    /// Those that did not, past the filter.
    pub negative: f64,
}

/// What a lookup inside a file takes on average, without reading the block.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LookupCosts {
    /// Nanoseconds of one that finds its key.
    pub positive_ns: f64,
    /// Nanoseconds of one that does not.
    pub negative_ns: f64,
}

/// What training takes, and what lookups take with and without.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Costs {
    /// Nanoseconds to train one key.
    pub training_ns_per_key: f64,
    /// Lookups through the index.
    pub index: LookupCosts,
    /// Lookups through a model.
    pub model: LookupCosts,
}

/// A file whose life is over.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DeadFile {
    /// From its making to its removal from the level.
    pub life_ms: u64,
    /// Its keys.
    pub key_count: u64,
    /// What it was asked in all its life.
    pub lookups: Lookups,
}

/// A live file that has no model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// Since its making.
    pub age_ms: u64,
    /// Its keys.
    pub key_count: u64,
    /// What it was asked so far.
    pub lookups: Lookups,
}

/// What files of one level lived through.
#[derive(Debug, Clone, Default)]
pub struct LevelHistory {
    dead: VecDeque<DeadFile>,
}

impl LevelHistory {
    /// Notes a file that died. The oldest beyond [`REMEMBERED_DEAD_FILES`] is forgotten.
    pub fn record(&mut self, file: DeadFile) {
        if self.dead.len() == REMEMBERED_DEAD_FILES {
            self.dead.pop_front();
        }
        self.dead.push_back(file);
    }

    /// How many files are remembered.
    pub fn len(&self) -> usize {
        self.dead.len()
    }

    /// Whether no file is remembered.
    pub fn is_empty(&self) -> bool {
        self.dead.is_empty()
    }

    /// The lookups that `candidate` has yet to expect; `None` while too few files have died.
    ///
    /// The mean over the files that lived longer than the candidate has by now, of their lookups
    /// per key, for the rest of their life after that age. If none lived so long, as much
    /// again as it had so far.
    pub fn expected(&self, candidate: &Candidate) -> Option<Lookups> {
        if self.dead.len() < ENOUGH_DEAD_FILES {
            return None;
        }
        let survivors = self.dead.iter().filter(|dead| dead.life_ms > candidate.age_ms);
        let (mut sum, mut count) = (Lookups::default(), 0.0);
        for dead in survivors {
            let left = (dead.life_ms - candidate.age_ms) as f64 / dead.life_ms as f64;
            let scale = left * candidate.key_count as f64 / dead.key_count.max(1) as f64;
            sum.positive += dead.lookups.positive * scale;
            sum.negative += dead.lookups.negative * scale;
            count += 1.0;
        }
        if count == 0.0 {
            return Some(candidate.lookups);
        }
        Some(Lookups { positive: sum.positive / count, negative: sum.negative / count })
    }
}

/// What to do with a file that has no model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Decision {
    /// Ask again when it is this old.
    Wait {
        /// Its age then.
        until_ms: u64,
    },
    /// Train: too few files have died to say that it does not pay.
    TrainUnknown,
    /// Train: the benefit is larger than the cost.
    Train {
        /// Benefit less cost.
        surplus_ns: f64,
    },
    /// Do not train.
    Skip {
        /// Cost less benefit.
        deficit_ns: f64,
    },
}

impl Decision {
    /// The order of a queue of files to train: greater goes first. The largest surplus, then those
    /// of which nothing is known; the others are not trained.
    pub fn cmp_urgency(&self, other: &Self) -> Ordering {
        self.urgency().total_cmp(&other.urgency())
    }

    fn urgency(&self) -> f64 {
        match self {
            Self::Train { surplus_ns } => surplus_ns.max(0.0),
            Self::TrainUnknown => 0.0,
            Self::Wait { .. } | Self::Skip { .. } => f64::NEG_INFINITY,
        }
    }

    /// Whether the file is to be trained.
    pub fn trains(&self) -> bool {
        matches!(self, Self::Train { .. } | Self::TrainUnknown)
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wait { until_ms } => write!(f, "wait until it is {until_ms} ms old"),
            Self::TrainUnknown => write!(f, "train: too few files of the level have died to tell"),
            Self::Train { surplus_ns } => write!(f, "train: saves {:.3} ms", surplus_ns / 1e6),
            Self::Skip { deficit_ns } => write!(f, "skip: would cost {:.3} ms", deficit_ns / 1e6),
        }
    }
}

/// How long a file of this many keys waits: [`MIN_WAIT_MS`], or what training it takes if that is
/// longer.
pub fn wait_ms(key_count: u64, costs: &Costs) -> u64 {
    let training_ms = key_count as f64 * costs.training_ns_per_key / 1e6;
    MIN_WAIT_MS.max(training_ms.ceil() as u64)
}

/// Decides on one file.
pub fn decide(candidate: &Candidate, history: &LevelHistory, costs: &Costs) -> Decision {
    let until_ms = wait_ms(candidate.key_count, costs);
    if candidate.age_ms < until_ms {
        return Decision::Wait { until_ms };
    }
    let Some(expected) = history.expected(candidate) else { return Decision::TrainUnknown };
    let saved = |index: f64, model: f64, lookups: f64| (index - model) * lookups;
    let benefit = saved(costs.index.positive_ns, costs.model.positive_ns, expected.positive)
        + saved(costs.index.negative_ns, costs.model.negative_ns, expected.negative);
    let cost = costs.training_ns_per_key * candidate.key_count as f64;
    match benefit > cost {
        true => Decision::Train { surplus_ns: benefit - cost },
        false => Decision::Skip { deficit_ns: cost - benefit },
    }
}

#[cfg(test)]
mod tests;
