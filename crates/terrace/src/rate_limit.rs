//! A bound on the bytes that flush and compaction write per second.
//!
//! Every request books its bytes on a clock of its own: `next_free` is the moment at which all
//! booked bytes will have been written at the rate. A request waits until its booking starts, so
//! that any number of threads share the rate, first come first served. Unused time is forgotten
//! beyond [`BURST`].

use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What may be written at once after a pause, in time at the rate.
const BURST: Duration = Duration::from_millis(100);
/// How often a waiting request looks at its cancel flag.
const LOOK: Duration = Duration::from_millis(20);
/// The longest time one request books: a tiny rate must not stop a job for hours.
const MOST: Duration = Duration::from_secs(60);

/// Shared by all flushes and compactions of a store.
#[derive(Debug)]
pub(crate) struct RateLimiter {
    /// 0: unbounded. Read without the lock on the way past an unbounded limiter.
    bytes_per_s: AtomicU64,
    booked: Mutex<Booked>,
    changed: Condvar,
}

#[derive(Debug)]
struct Booked {
    next_free: Instant,
    /// Grows with every change of the rate, which frees all that wait.
    generation: u64,
}

impl RateLimiter {
    /// At most `bytes_per_s`; 0 is unbounded.
    pub fn new(bytes_per_s: u64) -> Self {
        Self {
            bytes_per_s: AtomicU64::new(bytes_per_s),
            booked: Mutex::new(Booked { next_free: Instant::now(), generation: 0 }),
            changed: Condvar::new(),
        }
    }

    /// Changes the rate from now on; requests that wait go through.
    pub fn set_rate(&self, bytes_per_s: u64) {
        let mut booked = self.booked.lock();
        self.bytes_per_s.store(bytes_per_s, Ordering::Relaxed);
        booked.next_free = Instant::now();
        booked.generation += 1;
        drop(booked);
        self.changed.notify_all();
    }

    /// Waits until `bytes` may be written, or until `cancel` is set.
    pub fn request(&self, bytes: u64, cancel: &AtomicBool) {
        if self.bytes_per_s.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut booked = self.booked.lock();
        let rate = self.bytes_per_s.load(Ordering::Relaxed);
        if rate == 0 {
            return;
        }
        let now = Instant::now();
        let oldest = now.checked_sub(BURST).unwrap_or(now);
        let start = booked.next_free.max(oldest);
        let length = Duration::from_secs_f64(bytes as f64 / rate as f64).min(MOST);
        booked.next_free = start + length;
        let generation = booked.generation;
        loop {
            let wait = start.saturating_duration_since(Instant::now());
            if wait.is_zero() || booked.generation != generation || cancel.load(Ordering::Relaxed) {
                return;
            }
            self.changed.wait_for(&mut booked, wait.min(LOOK));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::thread;

    const GO_ON: AtomicBool = AtomicBool::new(false);

    #[test]
    fn unbounded_does_not_wait() {
        let start = Instant::now();
        RateLimiter::new(0).request(u64::MAX, &GO_ON);
        assert!(start.elapsed() < Duration::from_millis(50));
    }

    #[test]
    fn threads_share_the_rate() {
        let limiter = RateLimiter::new(1_000_000);
        let start = Instant::now();
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..15).for_each(|_| limiter.request(10_000, &GO_ON)));
            }
        });
        // 300 kB at 1 MB/s less the burst and the last booking.
        assert!(start.elapsed() >= Duration::from_millis(180), "{:?}", start.elapsed());
    }

    #[test]
    fn cancel_and_a_new_rate_end_a_wait() {
        for by_rate in [false, true] {
            let limiter = Arc::new(RateLimiter::new(1));
            let cancel = Arc::new(AtomicBool::new(false));
            limiter.request(1 << 20, &cancel);
            let start = Instant::now();
            let waiter = thread::spawn({
                let (limiter, cancel) = (limiter.clone(), cancel.clone());
                move || limiter.request(1 << 20, &cancel)
            });
            thread::sleep(Duration::from_millis(30));
            match by_rate {
                true => limiter.set_rate(0),
                false => cancel.store(true, Ordering::Relaxed),
            }
            waiter.join().unwrap();
            assert!((30..5000).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
        }
    }
}
