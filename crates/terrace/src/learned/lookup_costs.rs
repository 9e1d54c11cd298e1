//! What lookups take, by level and by the way that they go: measured at one point read in some
//! dozens, so that the others pay nothing for it.
//!
//! `get` takes the times, on its sampled path; `stats` decides by what is typical of them. A
//! measurement decides nothing for good: outliers do not count, later ones push it out, and what
//! was not measured again for long is forgotten ([`Samples::forget_stale`]).

use crate::options::ModelCosts;
use std::sync::OnceLock;
use terrace_base::sync::{Instant, Mutex};
use terrace_learned::analyzer::level::LevelCosts;
use terrace_learned::analyzer::typical::{TrainingCost, Typical};
use terrace_learned::analyzer::{Costs, LookupCosts};
use terrace_manifest::LEVEL_COUNT;

/// A lookup that took longer met the device, or another thread; it says nothing of models.
const LONGEST_NS: u64 = 20_000;

/// Nanoseconds to train a key, until it was measured: reading the data is most of it.
const FIRST_TRAINING_NS_PER_KEY: f64 = 60.0;

/// A lookup through the index, until it was measured.
const FIRST_LOOKUP_NS: f64 = 600.0;

/// How many times as fast lookups are with models as long as not both ways were measured: the
/// least that Bourbon found (OSDI 2020, section 5.2).
const FIRST_SPEED_UP: f64 = 1.23;

/// What was not measured again for this long is forgotten: if it says that something does not pay,
/// nobody does it, and it would never be measured again.
const STALE_MS: u64 = 600_000;

/// Which way a lookup in a file went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// A filter ended it.
    Filter,
    /// Through index partitions.
    Index,
    /// Through the file's learned index.
    Model,
}

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

/// How long the number of measurements has been the same.
#[derive(Debug, Clone, Copy, Default)]
struct Pause {
    count: u64,
    since_ms: u64,
}

impl Pause {
    /// Whether nothing was measured for [`STALE_MS`]; `count` is how often it was so far.
    fn is_long(&mut self, count: u64, now_ms: u64) -> bool {
        if count == 0 || count != self.count {
            *self = Self { count, since_ms: now_ms };
        }
        now_ms.saturating_sub(self.since_ms) >= STALE_MS
    }
}

/// Lookups that went one way.
#[derive(Debug, Clone, Copy, Default)]
struct ByOutcome {
    positive: Typical,
    negative: Typical,
    pause: Pause,
}

impl ByOutcome {
    fn add(&mut self, sample: &Sample) {
        if sample.found { &mut self.positive } else { &mut self.negative }.add(sample.ns);
    }

    fn forget_stale(&mut self, now_ms: u64) {
        let count = self.positive.count() + self.negative.count();
        if self.pause.is_long(count, now_ms) {
            *self = Self::default();
        }
    }
}

/// What lookups in one level take.
#[derive(Debug, Clone, Copy, Default)]
struct ByWay {
    index: ByOutcome,
    model: ByOutcome,
    /// By index or model, with the search for the file, of keys that were found.
    file: Typical,
    find: Typical,
}

/// Trainings of files read all keys, trainings of levels only the first of each block.
#[derive(Debug, Clone, Copy)]
struct Trainings {
    cost: TrainingCost,
    pause: Pause,
}

impl Default for Trainings {
    fn default() -> Self {
        Self { cost: TrainingCost::guess(FIRST_TRAINING_NS_PER_KEY), pause: Pause::default() }
    }
}

impl Trainings {
    fn forget_stale(&mut self, now_ms: u64) {
        if self.pause.is_long(self.cost.count(), now_ms) {
            *self = Self::default();
        }
    }
}

/// What lookups of one family take.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    /// What counts instead of all that is measured.
    assumed: Option<ModelCosts>,
    levels: [Mutex<ByWay>; LEVEL_COUNT],
    file_trainings: Mutex<Trainings>,
    level_trainings: Mutex<Trainings>,
}

impl Samples {
    /// Nothing was measured, and will not be if it is `assumed`.
    pub fn new(assumed: Option<ModelCosts>) -> Self {
        Self { assumed, ..Self::default() }
    }

    /// Notes a lookup at `level`; skipped while another thread is at it.
    pub fn note(&self, level: usize, sample: &Sample) {
        if sample.total_ns > LONGEST_NS {
            return;
        }
        let Some(mut by_way) = self.levels.get(level).and_then(Mutex::try_lock) else { return };
        match sample.way {
            Way::Filter => return,
            Way::Index => by_way.index.add(sample),
            Way::Model => by_way.model.add(sample),
        }
        if sample.found {
            // The clock was read at either end of the lookup, and after the search.
            by_way.file.add(sample.total_ns.saturating_sub(3 * clock_ns()));
            by_way.find.add(sample.find_ns.saturating_sub(clock_ns()));
        }
    }

    /// Notes that a file of this many keys was trained.
    pub fn note_file_training(&self, ns: u64, keys: u64) {
        self.file_trainings.lock().cost.add(ns, keys);
    }

    /// Notes that a level of this many keys was trained; waiting is not part of it.
    pub fn note_level_training(&self, ns: u64, keys: u64) {
        self.level_trainings.lock().cost.add(ns, keys);
    }

    /// Forgets what was not measured again for long. To be called now and then.
    pub fn forget_stale(&self, now_ms: u64) {
        for level in &self.levels {
            let mut by_way = level.lock();
            by_way.index.forget_stale(now_ms);
            by_way.model.forget_stale(now_ms);
        }
        self.file_trainings.lock().forget_stale(now_ms);
        self.level_trainings.lock().forget_stale(now_ms);
    }

    /// What training and lookups in files of `level` take.
    pub fn costs(&self, level: usize) -> Costs {
        let flat = |ns| LookupCosts { positive_ns: ns, negative_ns: ns };
        if let Some(ModelCosts { training_ns_per_key, index_ns, model_ns, .. }) = self.assumed {
            return Costs { training_ns_per_key, index: flat(index_ns), model: flat(model_ns) };
        }
        let by_way = self.levels.get(level).map(|by_way| *by_way.lock()).unwrap_or_default();
        let ByWay { index, model, .. } = by_way;
        let positive = both(index.positive.get(), model.positive.get(), None);
        let negative = both(index.negative.get(), model.negative.get(), Some(positive));
        Costs {
            training_ns_per_key: self.file_trainings.lock().cost.get(),
            index: LookupCosts { positive_ns: positive.0, negative_ns: negative.0 },
            model: LookupCosts { positive_ns: positive.1, negative_ns: negative.1 },
        }
    }

    /// What lookups in `level` take without and with a model of it; `None` before it was measured.
    /// A model of the level saves the search for the file. What the last one saved is not asked: it
    /// was of other files, and if it says that none pays, would never be measured again.
    pub fn level_costs(&self, level: usize) -> Option<LevelCosts> {
        let (file, find, training_ns_per_key) = match self.assumed {
            Some(costs) => {
                (costs.model_ns + costs.find_file_ns, costs.find_file_ns, costs.training_ns_per_key)
            }
            None => {
                let by_way = *self.levels.get(level)?.lock();
                let training = self.level_trainings.lock().cost.get();
                (by_way.file.get()?, by_way.find.get()?, training)
            }
        };
        Some(LevelCosts { file_path_ns: file, level_path_ns: file - find, training_ns_per_key })
    }
}

/// What reading the clock takes.
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
    use terrace_learned::analyzer::typical::ENOUGH_SAMPLES;

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
        (0..8).for_each(|_| samples.note_file_training(1_000, 100));
        assert_eq!(samples.costs(3).training_ns_per_key, 10.0);
    }

    #[test]
    fn a_model_of_the_level_is_taken_to_save_the_search() {
        let samples = Samples::default();
        assert_eq!(samples.level_costs(2), None);
        note(&samples, ENOUGH_SAMPLES, Way::Model, true, 400);
        note(&samples, ENOUGH_SAMPLES, Way::Filter, false, 10);
        (0..8).for_each(|_| samples.note_level_training(500, 100));
        samples.note_file_training(1_000_000, 100);
        let want =
            LevelCosts { file_path_ns: 420.0, level_path_ns: 400.0, training_ns_per_key: 5.0 };
        assert_eq!(samples.level_costs(2), Some(want));
    }

    /// However badly a way or a training fared: it is tried again.
    #[test]
    fn what_is_not_measured_any_more_is_forgotten() {
        let samples = Samples::default();
        let first = samples.costs(2);
        note(&samples, 1000, Way::Index, true, 400);
        note(&samples, 1000, Way::Model, true, 9000);
        (0..20).for_each(|_| samples.note_file_training(1_000_000, 10));
        let bad = samples.costs(2);
        assert!(bad.model.positive_ns > 8999.0 && bad.training_ns_per_key > 99_999.0, "{bad:?}");
        samples.forget_stale(5);
        samples.forget_stale(4 + STALE_MS);
        assert_eq!(samples.costs(2), bad);
        // Lookups through the index go on.
        note(&samples, 1, Way::Index, true, 400);
        samples.forget_stale(5 + STALE_MS);
        let costs = samples.costs(2);
        assert_eq!(costs.index.positive_ns, 400.0);
        assert!((costs.model.positive_ns - 400.0 / FIRST_SPEED_UP).abs() < 1e-6, "{costs:?}");
        assert_eq!(costs.training_ns_per_key, FIRST_TRAINING_NS_PER_KEY);
        samples.forget_stale(5 + 2 * STALE_MS);
        assert_eq!(samples.costs(2), first);
    }

    #[test]
    fn assumed_costs_are_not_measured() {
        let assumed = ModelCosts {
            training_ns_per_key: 1.0,
            index_ns: 30.0,
            model_ns: 20.0,
            find_file_ns: 7.0,
        };
        let samples = Samples::new(Some(assumed));
        let both = |samples: &Samples| (samples.costs(2), samples.level_costs(2));
        let before = both(&samples);
        note(&samples, 1000, Way::Index, true, 400);
        note(&samples, 1000, Way::Model, true, 9000);
        samples.note_file_training(1 << 40, 1);
        samples.note_level_training(1 << 40, 1);
        assert_eq!(both(&samples), before);
        let flat = |ns| LookupCosts { positive_ns: ns, negative_ns: ns };
        let want = Costs { training_ns_per_key: 1.0, index: flat(30.0), model: flat(20.0) };
        let level =
            LevelCosts { file_path_ns: 27.0, level_path_ns: 20.0, training_ns_per_key: 1.0 };
        assert_eq!(before, (want, Some(level)));
    }
}
