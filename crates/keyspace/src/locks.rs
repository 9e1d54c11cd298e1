//! Who may write which key: one lock for every so many keys, by hash.
//!
//! A turn takes the locks of the keys it writes and gives them back after its commit, from whatever
//! thread. Only a turn that holds none may wait for one, and takes several in ascending order, so
//! no circle of waiting turns can form.

use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// How many there are: many times more than turns hold, so that two turns seldom want the same one
/// for different keys.
pub(crate) const STRIPES: usize = 1 << 15;

/// How often a taken lock is looked at before the caller sleeps: some microseconds.
const SPINS: u32 = 200;

/// The locks of a keyspace.
pub(crate) struct Locks {
    taken: Box<[AtomicBool]>,
    waiters: AtomicUsize,
    waiting: Mutex<()>,
    freed: Condvar,
}

impl Locks {
    pub fn new() -> Self {
        Self {
            taken: (0..STRIPES).map(|_| AtomicBool::new(false)).collect(),
            waiters: AtomicUsize::new(0),
            waiting: Mutex::new(()),
            freed: Condvar::new(),
        }
    }

    /// The lock of a key.
    pub fn stripe(db: u8, key: &[u8]) -> u16 {
        (xxh3_64_with_seed(key, u64::from(db)) % STRIPES as u64) as u16
    }

    /// Takes a lock unless another turn has it.
    pub fn try_take(&self, stripe: u16) -> bool {
        let taken = &self.taken[stripe as usize];
        // Acquire: what the last holder wrote is seen.
        !taken.load(Ordering::Relaxed) && !taken.swap(true, Ordering::Acquire)
    }

    /// Takes a lock, waiting for it.
    pub fn take(&self, stripe: u16) {
        for _ in 0..SPINS {
            if self.try_take(stripe) {
                return;
            }
            std::hint::spin_loop();
        }
        let mut waiting = self.waiting.lock();
        // SeqCst: either the holder sees this waiter, or this waiter sees the lock free.
        self.waiters.fetch_add(1, Ordering::SeqCst);
        while self.taken[stripe as usize].swap(true, Ordering::SeqCst) {
            self.freed.wait(&mut waiting);
        }
        self.waiters.fetch_sub(1, Ordering::SeqCst);
    }

    /// Gives a lock back.
    pub fn give_back(&self, stripe: u16) {
        self.taken[stripe as usize].store(false, Ordering::SeqCst);
        if self.waiters.load(Ordering::SeqCst) > 0 {
            let _waiting = self.waiting.lock();
            self.freed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn one_holder_at_a_time_and_nobody_waits_for_ever() {
        const THREADS: u64 = 4;
        const TIMES: u64 = 20_000;
        let locks = Arc::new(Locks::new());
        // Read, then written: lost updates show.
        let count = Arc::new(AtomicU64::new(0));
        let threads: Vec<_> = (0..THREADS)
            .map(|n| {
                let (locks, count) = (locks.clone(), count.clone());
                std::thread::spawn(move || {
                    for time in 0..TIMES {
                        if (time + n) % 2 == 0 {
                            locks.take(7);
                        } else {
                            while !locks.try_take(7) {
                                std::thread::yield_now();
                            }
                        }
                        let seen = count.load(Ordering::Relaxed);
                        count.store(seen + 1, Ordering::Relaxed);
                        locks.give_back(7);
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(count.load(Ordering::Relaxed), THREADS * TIMES);
    }

    #[test]
    fn a_taken_lock_is_refused_and_others_are_not() {
        let locks = Locks::new();
        assert!(locks.try_take(1));
        assert!(!locks.try_take(1));
        assert!(locks.try_take(2));
        locks.give_back(1);
        assert!(locks.try_take(1));
    }
}
