//! Who may write which key: one lock for every this many keys, by hash.
//!
//! A batch takes the locks of the keys it writes and gives them back after its commit, from whatever
//! thread. Only a batch that holds none may wait for one, and takes several in ascending order, so
//! no circle of waiting turns can form. One that must not wait can have itself called when a lock
//! that it wanted is given back.

use parking_lot::{Condvar, Mutex, RwLock};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// How many there are: many times more than turns hold, so that two turns seldom want the same one
/// for different keys.
pub(crate) const STRIPES: usize = 1 << 15;

/// How often a taken lock is looked at before the caller sleeps: some microseconds.
const SPINS: u32 = 200;

/// The states of a lock.
const FREE: u8 = 0;
const TAKEN: u8 = 1;
/// Taken, and somebody is to be called when it is free.
const WANTED: u8 = 2;

/// Who is called.
type Call = Box<dyn Fn() + Send + Sync>;

/// The locks of a keyspace.
pub(crate) struct Locks {
    states: Box<[AtomicU8]>,
    calls: RwLock<Vec<Call>>,
    waiters: AtomicUsize,
    waiting: Mutex<()>,
    freed: Condvar,
}

impl Locks {
    pub fn new() -> Self {
        Self {
            states: (0..STRIPES).map(|_| AtomicU8::new(FREE)).collect(),
            calls: RwLock::default(),
            waiters: AtomicUsize::new(0),
            waiting: Mutex::new(()),
            freed: Condvar::new(),
        }
    }

    /// The lock of a key.
    pub fn stripe(db: u8, key: &[u8]) -> u16 {
        (xxh3_64_with_seed(key, u64::from(db)) % STRIPES as u64) as u16
    }

    /// Is called whenever a lock that [`Self::take_or_want`] refused has been given back.
    pub fn on_release(&self, call: Call) {
        self.calls.write().push(call);
    }

    /// Takes a lock unless another batch has it; then there is a call when it has not any more.
    pub fn take_or_want(&self, stripe: u16) -> bool {
        let state = &self.states[stripe as usize];
        loop {
            if self.take_now(stripe) {
                return true;
            }
            let wanted = state.compare_exchange(TAKEN, WANTED, Ordering::SeqCst, Ordering::SeqCst);
            if wanted != Err(FREE) {
                return false;
            }
        }
    }

    /// Acquire: what the last holder wrote is seen. SeqCst: see [`Self::take`].
    fn take_now(&self, stripe: u16) -> bool {
        let state = &self.states[stripe as usize];
        state.compare_exchange(FREE, TAKEN, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Takes a lock, waiting for it.
    pub fn take(&self, stripe: u16) {
        for _ in 0..SPINS {
            if self.take_now(stripe) {
                return;
            }
            std::hint::spin_loop();
        }
        let mut waiting = self.waiting.lock();
        // SeqCst: either the holder sees this waiter, or this waiter sees the lock free.
        self.waiters.fetch_add(1, Ordering::SeqCst);
        while !self.take_now(stripe) {
            self.freed.wait(&mut waiting);
        }
        self.waiters.fetch_sub(1, Ordering::SeqCst);
    }

    /// Gives a lock back.
    pub fn give_back(&self, stripe: u16) {
        let was = self.states[stripe as usize].swap(FREE, Ordering::SeqCst);
        if self.waiters.load(Ordering::SeqCst) > 0 {
            let _waiting = self.waiting.lock();
            self.freed.notify_all();
        }
        if was == WANTED {
            self.calls.read().iter().for_each(|call| call());
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
                            while !locks.take_or_want(7) {
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
    fn a_taken_lock_is_refused_and_its_release_is_announced() {
        let locks = Locks::new();
        let calls = Arc::new(AtomicU64::new(0));
        let count = calls.clone();
        locks.on_release(Box::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
        }));
        let called = || calls.swap(0, Ordering::Relaxed);
        assert!(locks.take_or_want(1));
        locks.give_back(1);
        assert!(locks.take_or_want(1) && locks.take_or_want(2));
        assert_eq!(called(), 0, "nobody wanted it");
        assert!(!locks.take_or_want(1) && !locks.take_or_want(1));
        locks.give_back(2);
        assert_eq!(called(), 0, "it is another one");
        locks.give_back(1);
        assert_eq!(called(), 1);
        locks.take(1);
        locks.give_back(1);
        assert_eq!(called(), 0, "it was told");
    }
}
