//! Hits and misses, counted without two threads writing one cache line.
//!
//! A thread claims a lane number for its lifetime, the same in all caches of the process; the
//! counters of a lane are then written by one thread only, with a plain load and store. Threads
//! beyond the number of lanes share the last one and pay for an atomic addition.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// The lane of threads that found no other free.
const SHARED: usize = 63;
const UNCLAIMED: usize = usize::MAX;

/// Bit n is set while a thread owns lane n; the bit of [`SHARED`] always is.
static CLAIMED: AtomicU64 = AtomicU64::new(1 << SHARED);

thread_local! {
    static LANE: Cell<usize> = const { Cell::new(UNCLAIMED) };
    static CLAIM: Cell<Option<Claim>> = const { Cell::new(None) };
}

/// Gives the lane back when the thread ends.
struct Claim(usize);

impl Drop for Claim {
    fn drop(&mut self) {
        LANE.set(SHARED);
        // Release: the next owner's loads see the counts stored so far.
        CLAIMED.fetch_and(!(1 << self.0), Ordering::Release);
    }
}

#[derive(Default)]
#[repr(align(128))]
struct Lane {
    hits: AtomicU64,
    misses: AtomicU64,
}

/// The counters of one cache.
pub(crate) struct Tally {
    lanes: Box<[Lane; SHARED + 1]>,
}

impl Default for Tally {
    fn default() -> Self {
        Self { lanes: Box::new(std::array::from_fn(|_| Lane::default())) }
    }
}

impl Tally {
    #[inline]
    pub(crate) fn count(&self, hit: bool) {
        let lane = LANE.get();
        if lane < SHARED {
            let lane = &self.lanes[lane];
            let counter = if hit { &lane.hits } else { &lane.misses };
            counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        } else {
            self.count_unclaimed(hit);
        }
    }

    #[cold]
    fn count_unclaimed(&self, hit: bool) {
        if LANE.get() == UNCLAIMED {
            LANE.set(claim_lane());
        }
        // Atomic even if the lane is this thread's own by now: it may be the shared one.
        let lane = &self.lanes[LANE.get()];
        let counter = if hit { &lane.hits } else { &lane.misses };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Hits and misses so far.
    pub(crate) fn totals(&self) -> (u64, u64) {
        self.lanes.iter().fold((0, 0), |(hits, misses), lane| {
            (hits + lane.hits.load(Ordering::Relaxed), misses + lane.misses.load(Ordering::Relaxed))
        })
    }
}

fn claim_lane() -> usize {
    // Acquire: pairs with the release of the lane's previous owner.
    let claimed = CLAIMED.fetch_update(Ordering::Acquire, Ordering::Relaxed, |claimed| {
        (claimed != u64::MAX).then(|| claimed | (claimed + 1))
    });
    let Ok(before) = claimed else { return SHARED };
    let claim = Claim(before.trailing_ones() as usize);
    let lane = claim.0;
    // A thread that is already ending gets the shared lane: its claim is dropped right here.
    match CLAIM.try_with(|slot| slot.set(Some(claim))) {
        Ok(()) => lane,
        Err(_) => SHARED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_count_is_lost_over_more_threads_than_lanes() {
        let tally = Tally::default();
        for _ in 0..2 {
            std::thread::scope(|scope| {
                for _ in 0..100 {
                    scope.spawn(|| {
                        for n in 0..1000 {
                            tally.count(n % 4 == 0);
                        }
                    });
                }
            });
        }
        assert_eq!(tally.totals(), (50_000, 150_000));
    }
}
