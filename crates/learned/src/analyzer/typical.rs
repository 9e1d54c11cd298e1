//! What something typically takes, told from measurements of which some are wrong: a thread was
//! interrupted, a cache was cold, the machine had other work. Outliers do not count, and whatever
//! was measured is forgotten as later measurements come.

/// The latest `N` values.
#[derive(Debug, Clone, Copy)]
struct Latest<const N: usize> {
    values: [f32; N],
    next: usize,
    len: usize,
}

impl<const N: usize> Default for Latest<N> {
    fn default() -> Self {
        Self { values: [0.0; N], next: 0, len: 0 }
    }
}

impl<const N: usize> Latest<N> {
    fn push(&mut self, value: f32) {
        self.values[self.next] = value;
        self.next = (self.next + 1) % N;
        self.len = (self.len + 1).min(N);
    }

    /// `None` without values.
    fn median(&self) -> Option<f64> {
        let mut sorted = self.values;
        let sorted = &mut sorted[..self.len];
        sorted.sort_unstable_by(f32::total_cmp);
        let (low, high) = (sorted.get(self.len.checked_sub(1)? / 2)?, sorted.get(self.len / 2)?);
        Some(f64::from(low + high) / 2.0)
    }
}

/// Measurements that are judged together.
const BATCH: usize = 32;

/// Batches that are remembered, the latest.
const REMEMBERED_BATCHES: usize = 8;

/// Batches before there is an estimate.
const ENOUGH_BATCHES: usize = 2;

/// Measurements before there is an estimate.
pub const ENOUGH_SAMPLES: u64 = (BATCH * ENOUGH_BATCHES) as u64;

/// The typical length of something short that is measured often: of every 32 measurements the mean
/// of the middle half, and of the last eight of these means the median. So neither single long
/// ones count, nor a stretch of up to a hundred.
#[derive(Debug, Clone, Copy, Default)]
pub struct Typical {
    batch: [u16; BATCH],
    count: u64,
    means: Latest<REMEMBERED_BATCHES>,
}

impl Typical {
    /// Adds a measurement; more than 65,535 ns count as that.
    pub fn add(&mut self, ns: u64) {
        let at = (self.count % BATCH as u64) as usize;
        self.batch[at] = ns.min(u64::from(u16::MAX)) as u16;
        self.count += 1;
        if at == BATCH - 1 {
            self.batch.sort_unstable();
            let middle = &self.batch[BATCH / 4..BATCH - BATCH / 4];
            let sum: u32 = middle.iter().map(|ns| u32::from(*ns)).sum();
            self.means.push(sum as f32 / middle.len() as f32);
        }
    }

    /// Nanoseconds; `None` before [`ENOUGH_SAMPLES`] measurements.
    pub fn get(&self) -> Option<f64> {
        self.means.median().filter(|_| self.count >= ENOUGH_SAMPLES)
    }

    /// Measurements so far.
    pub fn count(&self) -> u64 {
        self.count
    }
}

/// Trainings that are remembered, the latest.
const REMEMBERED_TRAININGS: usize = 8;

/// How many trainings a guess weighs as much as, before there are any.
const GUESSES: usize = 3;

/// What training a key takes: the median of the last eight trainings. As long as these are few, a
/// guess counts as three of them, so that one that was disturbed decides nothing.
#[derive(Debug, Clone, Copy)]
pub struct TrainingCost {
    latest: Latest<REMEMBERED_TRAININGS>,
    count: u64,
}

impl TrainingCost {
    /// Before the first training.
    pub fn guess(ns_per_key: f64) -> Self {
        let mut latest = Latest::default();
        (0..GUESSES).for_each(|_| latest.push(ns_per_key as f32));
        Self { latest, count: 0 }
    }

    /// Notes a training over this many keys.
    pub fn add(&mut self, ns: u64, keys: u64) {
        if keys > 0 {
            self.latest.push((ns as f64 / keys as f64) as f32);
            self.count += 1;
        }
    }

    /// Nanoseconds for a key.
    pub fn get(&self) -> f64 {
        self.latest.median().unwrap_or_default()
    }

    /// Trainings so far.
    pub fn count(&self) -> u64 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typical(ns: impl IntoIterator<Item = u64>) -> Option<f64> {
        let mut typical = Typical::default();
        ns.into_iter().for_each(|ns| typical.add(ns));
        typical.get()
    }

    #[test]
    fn few_measurements_are_none() {
        assert_eq!(typical([]), None);
        assert_eq!(typical((1..ENOUGH_SAMPLES).map(|_| 5)), None);
        assert_eq!(typical((0..ENOUGH_SAMPLES).map(|_| 5)), Some(5.0));
    }

    #[test]
    fn outliers_and_disturbed_stretches_do_not_count() {
        // One in five was interrupted.
        let some = (0..256).map(|n| if n % 5 == 0 { 15_000 } else { 600 });
        assert_eq!(typical(some), Some(600.0));
        // For a third of the time the machine had other work.
        let stretch = (0..256).map(|n| if n < 96 { 9_000 } else { 600 });
        assert_eq!(typical(stretch), Some(600.0));
        assert_eq!(typical((0..256).map(|n| 500 + n % 3)), Some(501.0), "finer than a nanosecond");
        assert_eq!(typical((0..64).map(|_| 1 << 40)), Some(65_535.0));
    }

    #[test]
    fn what_was_measured_is_forgotten_as_more_comes() {
        let mut typical = Typical::default();
        (0..100_000).for_each(|_| typical.add(20_000));
        (0..160).for_each(|_| typical.add(300));
        assert_eq!(typical.get(), Some(300.0), "after 160, however much came before");
    }

    #[test]
    fn one_disturbed_training_decides_nothing() {
        let mut cost = TrainingCost::guess(60.0);
        assert_eq!(cost.get(), 60.0);
        cost.add(1_000_000_000, 1000);
        assert_eq!(cost.get(), 60.0);
        (0..5).for_each(|_| cost.add(40_000, 1000));
        assert_eq!(cost.get(), 40.0);
        cost.add(1_000_000_000, 1000);
        assert_eq!(cost.get(), 40.0);
        cost.add(5, 0);
        (0..8).for_each(|_| cost.add(500_000, 1000));
        assert_eq!((cost.get(), cost.count()), (500.0, 15), "if all say so, it is believed");
    }
}
