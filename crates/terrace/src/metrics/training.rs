//! What training came to since the open: counted where SSTs are written and where models are made
//! later.

use crate::metrics::{MODEL_ERROR_SLOTS, Metrics, add};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use terrace_learned::ModelStats;
use terrace_sst::{NoModel, Training};

/// Counts of trainings.
#[derive(Debug, Default)]
pub(crate) struct TrainingTally {
    built: AtomicU64,
    refused: AtomicU64,
    refused_ties: AtomicU64,
    refused_segments: AtomicU64,
    refused_bytes: AtomicU64,
    level_models_built: AtomicU64,
    training_ns: AtomicU64,
    error_max: AtomicU32,
    error_sum: AtomicU64,
    errors: [AtomicU64; MODEL_ERROR_SLOTS],
}

impl TrainingTally {
    /// Counts a model of one file.
    pub fn note(&self, training: &Training) {
        self.note_outcome(training.model.as_ref().err(), &training.stats, training.training_ns);
        if training.model.is_ok() {
            add(&self.built, 1);
        }
    }

    /// Counts a model of a level.
    pub fn note_level(&self, refused: Option<&NoModel>, stats: &ModelStats, ns: u64) {
        self.note_outcome(refused, stats, ns);
        if refused.is_none() {
            add(&self.level_models_built, 1);
        }
    }

    fn note_outcome(&self, refused: Option<&NoModel>, stats: &ModelStats, ns: u64) {
        add(&self.training_ns, ns);
        // Before its reason, which is read first.
        if refused.is_some_and(|why| !matches!(why, NoModel::Empty)) {
            add(&self.refused, 1);
        }
        match refused {
            None => {
                self.error_max.fetch_max(stats.errors.max, Ordering::Relaxed);
                add(&self.error_sum, stats.errors.sum);
                for (sum, slot) in self.errors.iter().zip(stats.errors.slots) {
                    add(sum, slot);
                }
            }
            Some(NoModel::TooManyTies) => add(&self.refused_ties, 1),
            Some(NoModel::TooManySegments) => add(&self.refused_segments, 1),
            Some(NoModel::TooManyBytes) => add(&self.refused_bytes, 1),
            // The first: a file of range tombstones alone.
            Some(
                NoModel::Empty | NoModel::OutOfOrder | NoModel::BufferFull | NoModel::Unproven,
            ) => {}
        }
    }

    /// Enters the counts.
    pub fn fill(&self, m: &mut Metrics) {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        m.models_built = get(&self.built);
        m.models_refused_ties = get(&self.refused_ties);
        m.models_refused_segments = get(&self.refused_segments);
        m.models_refused_bytes = get(&self.refused_bytes);
        m.models_refused = get(&self.refused);
        m.level_models_built = get(&self.level_models_built);
        m.model_training_ns = get(&self.training_ns);
        m.model_error_max = u64::from(self.error_max.load(Ordering::Relaxed));
        m.model_errors = std::array::from_fn(|slot| get(&self.errors[slot]));
        let count: u64 = m.model_errors.iter().sum();
        m.model_error_mean = match count {
            0 => 0.0,
            count => get(&self.error_sum) as f64 / count as f64,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_and_refusals_are_counted_by_reason() {
        let tally = TrainingTally::default();
        let mut stats = ModelStats::default();
        stats.errors.slots[0] = 3;
        stats.errors.slots[8] = 1;
        (stats.errors.sum, stats.errors.max) = (2, 2);
        let training = |model| Training { model, stats, training_ns: 10 };
        tally.note(&training(Ok(100)));
        tally.note(&training(Ok(100)));
        tally.note(&training(Err(NoModel::TooManyTies)));
        tally.note(&training(Err(NoModel::Empty)));
        tally.note_level(Some(&NoModel::BufferFull), &stats, 5);
        tally.note_level(None, &stats, 5);
        let mut m = Metrics::default();
        tally.fill(&mut m);
        assert_eq!((m.models_built, m.level_models_built, m.model_training_ns), (2, 1, 50));
        assert_eq!((m.models_refused, m.models_refused_ties, m.models_refused_bytes), (2, 1, 0));
        assert_eq!((m.model_errors[0], m.model_errors[8], m.model_error_max), (9, 3, 2));
        assert!((m.model_error_mean - 0.5).abs() < 1e-9, "{}", m.model_error_mean);
    }
}
