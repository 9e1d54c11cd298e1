//! Which keys are read and written most, sampled.

use parking_lot::Mutex;
use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_sketch::{Gaps, Hot, TopKeys};

/// One of this many commands is looked at, after random gaps of that mean.
pub const SAMPLED_ONE_IN: u32 = 16;

/// Keys that are counted at a time; those that are listed are the first few of them.
const COUNTED: usize = 512;

/// Longer keys are counted by their beginning.
const KEY_BYTES: usize = 256;

/// What was hot long ago fades.
const HALVED_EVERY_S: u64 = 30;

thread_local! {
    /// Commands of this thread until the next sample; 0 before its first.
    static LEFT: Cell<u32> = const { Cell::new(0) };
}

/// The keys.
pub struct HotKeys {
    gaps: Gaps,
    read: Mutex<TopKeys>,
    written: Mutex<TopKeys>,
    ticks: AtomicU64,
}

impl Default for HotKeys {
    fn default() -> Self {
        // Std's own seed, which no client knows.
        Self::with_seed(RandomState::new().hash_one(SAMPLED_ONE_IN))
    }
}

impl HotKeys {
    fn with_seed(seed: u64) -> Self {
        let keys = || Mutex::new(TopKeys::new(COUNTED, KEY_BYTES, seed));
        let gaps = Gaps::new(SAMPLED_ONE_IN, seed);
        Self { gaps, read: keys(), written: keys(), ticks: AtomicU64::new(0) }
    }

    /// A command was executed; `keys_of` gives its keys. Cost: a countdown, and a sample now and then.
    #[inline]
    pub fn note<'k, K: Iterator<Item = &'k [u8]>>(
        &self,
        is_write: bool,
        db: u8,
        keys_of: impl FnOnce() -> K,
    ) {
        match LEFT.get() {
            left @ 2.. => LEFT.set(left - 1),
            left => self.end_gap(left == 0, is_write, db, keys_of),
        }
    }

    #[cold]
    fn end_gap<'k, K: Iterator<Item = &'k [u8]>>(
        &self,
        is_first: bool,
        is_write: bool,
        db: u8,
        keys_of: impl FnOnce() -> K,
    ) {
        LEFT.set(self.gaps.draw());
        if !is_first {
            self.count(is_write, db, keys_of());
        }
    }

    fn count<'k>(&self, is_write: bool, db: u8, of_command: impl Iterator<Item = &'k [u8]>) {
        let keys = if is_write { &self.written } else { &self.read };
        // Another thread is counting: a sample more or less.
        let Some(mut keys) = keys.try_lock() else { return };
        let mut name = Vec::with_capacity(KEY_BYTES);
        for key in of_command {
            name.clear();
            name.push(db);
            name.extend_from_slice(key);
            keys.observe(&name, 1);
        }
    }

    /// The keys that are read most, their database in front.
    pub fn read(&self, count: usize) -> Vec<Hot> {
        self.read.lock().top(count)
    }

    /// The keys that are written most, their database in front.
    pub fn written(&self, count: usize) -> Vec<Hot> {
        self.written.lock().top(count)
    }

    /// How many seconds of operations the counts stand for: those since the last halving, half of those between it and
    /// the one before, a quarter of those before that, and so on back to the start.
    pub fn window_s(&self) -> f64 {
        let ticks = self.ticks.load(Ordering::Relaxed);
        let (halvings, since) = (ticks / HALVED_EVERY_S, ticks % HALVED_EVERY_S);
        let left = 1.0 - 0.5_f64.powi(halvings.min(64) as i32);
        (since as f64 + HALVED_EVERY_S as f64 * left).max(1.0)
    }

    /// Once a second: from time to time all counts are halved.
    pub fn tick(&self) {
        if self.ticks.fetch_add(1, Ordering::Relaxed) % HALVED_EVERY_S == HALVED_EVERY_S - 1 {
            self.read.lock().age();
            self.written.lock().age();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds of clients that take turns.
    const ROUNDS: u64 = 1 << 15;

    #[test]
    fn a_steady_rate_is_the_same_whenever_it_is_looked_at() {
        let hot = HotKeys::with_seed(7);
        for second in 1..=10 * HALVED_EVERY_S {
            (0..16).for_each(|_| hot.count(false, 0, std::iter::once(&b"key"[..])));
            hot.tick();
            let told = hot.read(1);
            let rate = told[0].count as f64 / hot.window_s();
            assert!((15.0..=17.0).contains(&rate), "{rate} after {second} s");
        }
    }

    #[test]
    fn a_rhythm_of_the_sample_gives_every_key_its_share() {
        let hot = HotKeys::with_seed(7);
        let keys: Vec<[u8; 1]> = (0..SAMPLED_ONE_IN as u8).map(|key| [key]).collect();
        for _ in 0..ROUNDS {
            keys.iter().for_each(|key| hot.note(false, 3, || std::iter::once(&key[..])));
        }
        let told = hot.read(usize::MAX);
        assert_eq!(told.len(), keys.len());
        for one in told {
            assert_eq!((one.key[0], one.error), (3, 0));
            let estimate = one.count * u64::from(SAMPLED_ONE_IN);
            let share = ROUNDS * 4 / 5..ROUNDS * 6 / 5;
            assert!(share.contains(&estimate), "{one:?} instead of {ROUNDS}");
        }
        assert!(hot.written(1).is_empty());
    }
}
