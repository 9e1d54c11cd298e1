//! What lookups take, by level and by the way that they go: measured at one point read in some
//! dozens, so that the others pay nothing for it.
//!
//! `get` takes the times, on its sampled path; `books` decides by their means.

use std::sync::OnceLock;
use terrace_base::sync::{Instant, Mutex};
use terrace_learned::analyzer::{Costs, LookupCosts, RunningMean};
use terrace_manifest::LEVEL_COUNT;
use terrace_sst::Way;

/// A lookup that took longer met the device, or another thread; it says nothing of models.
const LONGEST_NS: u64 = 20_000;

/// Nanoseconds to train a key, until it was measured: reading the data is most of it.
const FIRST_TRAINING_NS_PER_KEY: f64 = 60.0;

/// A lookup through the index, until it was measured.
const FIRST_LOOKUP_NS: f64 = 600.0;

/// How many times as fast lookups are with models as long as not both ways were measured: the
/// least that Bourbon found (OSDI 2020, section 5.2).
const FIRST_SPEED_UP: f64 = 1.23;

/// Samples of one way before its mean counts.
const ENOUGH_SAMPLES: u64 = 64;

/// A measured lookup in one file of a level.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    pub way: Way,
    /// Whether the key was found.
    pub found: bool,
    /// What finding the file took.
    pub find_ns: u64,
    /// What the lookup in the file took.
    pub ns: u64,
    /// Both, with what lies between.
    pub total_ns: u64,
}

/// A mean, once there are enough samples.
#[derive(Debug, Clone, Copy, Default)]
struct Mean {
    mean: RunningMean,
    samples: u64,
}

impl Mean {
    fn add(&mut self, ns: u64) {
        self.mean.add(ns as f64, 1.0);
        self.samples += 1;
    }

    fn get(&self) -> Option<f64> {
        self.mean.get().filter(|_| self.samples >= ENOUGH_SAMPLES)
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct ByOutcome {
    positive: Mean,
    negative: Mean,
}

impl ByOutcome {
    fn add(&mut self, sample: &Sample) {
        if sample.found { &mut self.positive } else { &mut self.negative }.add(sample.ns);
    }
}

/// The means of one level.
#[derive(Debug, Clone, Copy, Default)]
struct Means {
    index: ByOutcome,
    model: ByOutcome,
    /// By index or model, with the search for the file, of keys that were found.
    file: Mean,
    find: Mean,
    /// Through a model of the level, of keys that were found.
    level: Mean,
}

/// What lookups of one family take.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    levels: [Mutex<Means>; LEVEL_COUNT],
    training: Mutex<RunningMean>,
}

/// What a lookup takes in a level without and with a model of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LevelCosts {
    pub file_path_ns: f64,
    pub level_path_ns: f64,
}

impl Samples {
    /// Notes a lookup at `level`; skipped while another thread is at it.
    pub fn note(&self, level: usize, sample: &Sample) {
        if sample.total_ns > LONGEST_NS {
            return;
        }
        let Some(mut means) = self.levels.get(level).and_then(Mutex::try_lock) else { return };
        match sample.way {
            Way::Filter => return,
            Way::Index => means.index.add(sample),
            Way::Model => means.model.add(sample),
        }
        if sample.found {
            // The clock was read at either end of the lookup, and after the search.
            means.file.add(sample.total_ns.saturating_sub(3 * clock_ns()));
            means.find.add(sample.find_ns.saturating_sub(clock_ns()));
        }
    }

    /// Notes a lookup through a model of `level` that found its key, and took `ns` in all.
    pub fn note_by_level(&self, level: usize, ns: u64) {
        if ns <= LONGEST_NS
            && let Some(mut means) = self.levels.get(level).and_then(Mutex::try_lock)
        {
            means.level.add(ns.saturating_sub(clock_ns()));
        }
    }

    /// Notes a training over so many keys.
    pub fn note_training(&self, ns: u64, keys: u64) {
        self.training.lock().add(ns as f64, keys as f64);
    }

    /// A model of `level` has gone. What it was worth says little of the next one, and if that is
    /// never made, would never be measured again.
    pub fn forget_level(&self, level: usize) {
        if let Some(means) = self.levels.get(level) {
            means.lock().level = Mean::default();
        }
    }

    /// What training and lookups in files of `level` take.
    pub fn costs(&self, level: usize) -> Costs {
        let training_ns_per_key = self.training.lock().get();
        let means = self.levels.get(level).map(|means| *means.lock()).unwrap_or_default();
        let positive = both(means.index.positive.get(), means.model.positive.get(), None);
        let negative = both(means.index.negative.get(), means.model.negative.get(), Some(positive));
        Costs {
            training_ns_per_key: training_ns_per_key.unwrap_or(FIRST_TRAINING_NS_PER_KEY),
            index: LookupCosts { positive_ns: positive.0, negative_ns: negative.0 },
            model: LookupCosts { positive_ns: positive.1, negative_ns: negative.1 },
        }
    }

    /// What lookups in `level` take without and with a model of it; `None` before it was measured.
    /// Until a model of the level was, it is taken to save the search for the file.
    pub fn level_costs(&self, level: usize) -> Option<LevelCosts> {
        let means = *self.levels.get(level)?.lock();
        let (file, find) = (means.file.get()?, means.find.get()?);
        let level_path_ns = means.level.get().unwrap_or(file - find);
        Some(LevelCosts { file_path_ns: file, level_path_ns })
    }
}

/// What reading the clock takes: times of the two ways of a level differ by one reading.
fn clock_ns() -> u64 {
    static CLOCK_NS: OnceLock<u64> = OnceLock::new();
    *CLOCK_NS.get_or_init(|| {
        let pair = |_| Instant::now().elapsed().as_nanos() as u64;
        (0..64).map(pair).min().unwrap_or(0)
    })
}

/// Nanoseconds through the index and through a model, what is missing guessed from the other, or
/// from `like`.
fn both(index: Option<f64>, model: Option<f64>, like: Option<(f64, f64)>) -> (f64, f64) {
    match (index, model) {
        (Some(index), Some(model)) => (index, model),
        (Some(index), None) => (index, index / FIRST_SPEED_UP),
        (None, Some(model)) => (model * FIRST_SPEED_UP, model),
        (None, None) => like.unwrap_or((FIRST_LOOKUP_NS, FIRST_LOOKUP_NS / FIRST_SPEED_UP)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(samples: &Samples, count: u64, way: Way, found: bool, ns: u64) {
        let total_ns = ns + 20 + 3 * clock_ns();
        let sample = Sample { way, found, find_ns: 20 + clock_ns(), ns, total_ns };
        (0..count).for_each(|_| samples.note(2, &sample));
    }

    #[test]
    fn what_was_not_measured_is_guessed_from_what_was() {
        let samples = Samples::default();
        let first = samples.costs(2);
        assert_eq!(first.training_ns_per_key, FIRST_TRAINING_NS_PER_KEY);
        assert!(first.index.positive_ns > first.model.positive_ns);
        assert_eq!(first.index, LookupCosts { positive_ns: 600.0, negative_ns: 600.0 });
        note(&samples, ENOUGH_SAMPLES - 1, Way::Index, true, 1000);
        assert_eq!(samples.costs(2), first, "a few samples are not enough");
        note(&samples, 1, Way::Index, true, 1000);
        note(&samples, 9, Way::Index, true, LONGEST_NS + 1);
        let costs = samples.costs(2);
        assert!((costs.index.positive_ns - 1000.0).abs() < 1e-6);
        assert!((costs.model.positive_ns - 1000.0 / 1.23).abs() < 1e-6);
        assert_eq!(costs.index.negative_ns, costs.index.positive_ns);
        note(&samples, ENOUGH_SAMPLES, Way::Model, true, 1100);
        assert!(samples.costs(2).model.positive_ns > 1099.0, "models may turn out to be slower");
        assert_eq!(samples.costs(3), first, "levels are measured apart");
        samples.note_training(1_000, 100);
        assert_eq!(samples.costs(3).training_ns_per_key, 10.0);
    }

    #[test]
    fn a_model_of_the_level_is_taken_to_save_the_search_until_it_was_measured() {
        let samples = Samples::default();
        assert_eq!(samples.level_costs(2), None);
        note(&samples, ENOUGH_SAMPLES, Way::Model, true, 400);
        note(&samples, ENOUGH_SAMPLES, Way::Filter, false, 10);
        let costs = samples.level_costs(2).unwrap();
        assert_eq!(costs, LevelCosts { file_path_ns: 420.0, level_path_ns: 400.0 });
        (0..ENOUGH_SAMPLES).for_each(|_| samples.note_by_level(2, 450 + clock_ns()));
        assert_eq!(samples.level_costs(2).unwrap().level_path_ns, 450.0);
        samples.forget_level(2);
        assert_eq!(samples.level_costs(2), Some(costs));
    }
}
