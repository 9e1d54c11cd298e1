//! A bound on the bytes that flush and compaction write per second.
//!
//! Every request books its bytes on a clock of its own: `next_free` is the moment at which all
//! booked bytes will have been written at the rate. A request waits until its booking starts, so
//! that any number of threads share the rate, first come first served. Unused time is forgotten
//! beyond [`BURST`].

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use terrace_base::sync::{Instant, Mutex, thread};

/// What may be written at once after a pause, in time at the rate.
const BURST: Duration = Duration::from_millis(100);
/// How often a waiting request looks at its cancel flag.
const LOOK: Duration = Duration::from_millis(20);
/// The longest time one request books: a tiny rate must not stop a job for hours.
const MOST: Duration = Duration::from_secs(60);

/// Shared by all flushes and compactions of a store.
#[derive(Debug)]
pub(crate) struct RateLimiter {
    /// 0: unbounded.
    bytes_per_s: AtomicU64,
    next_free: Mutex<Instant>,
}

/// Bytes that were booked.
struct Booking {
    /// From then on they may be written.
    start: Instant,
    /// The bound that they were booked at.
    rate: u64,
}

impl RateLimiter {
    /// At most `bytes_per_s`; 0 is unbounded.
    pub fn new(bytes_per_s: u64) -> Self {
        Self { bytes_per_s: AtomicU64::new(bytes_per_s), next_free: Mutex::new(Instant::now()) }
    }

    /// The bound now.
    pub fn rate(&self) -> u64 {
        self.bytes_per_s.load(Ordering::Relaxed)
    }

    /// Changes the bound. What was booked at the old one is forgotten: requests that wait already book anew at this one, if
    /// it is another.
    pub fn set_rate(&self, bytes_per_s: u64) {
        let mut next_free = self.next_free.lock();
        self.bytes_per_s.store(bytes_per_s, Ordering::Relaxed);
        *next_free = Instant::now();
    }

    /// Waits until `bytes` may be written, or until `cancel` is set.
    pub fn request(&self, bytes: u64, cancel: &AtomicBool) {
        while let Some(booking) = self.reserve(bytes) {
            while self.rate() == booking.rate {
                let wait = booking.start.saturating_duration_since(Instant::now());
                if wait.is_zero() || cancel.load(Ordering::Relaxed) {
                    return;
                }
                thread::sleep(wait.min(LOOK));
            }
        }
    }

    /// Books `bytes`. Nothing without a bound.
    fn reserve(&self, bytes: u64) -> Option<Booking> {
        let now = Instant::now();
        let oldest = now.checked_sub(BURST).unwrap_or(now);
        let mut next_free = self.next_free.lock();
        // Under the lock: it is not changed in between.
        let rate = self.rate();
        if rate == 0 {
            return None;
        }
        let length = Duration::from_secs_f64(bytes as f64 / rate as f64).min(MOST);
        let start = next_free.max(oldest);
        *next_free = start + length;
        Some(Booking { start, rate })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::thread;

    static GO_ON: AtomicBool = AtomicBool::new(false);

    #[test]
    fn unbounded_does_not_wait() {
        let limiter = RateLimiter::new(0);
        assert!(limiter.reserve(u64::MAX).is_none());
        limiter.request(u64::MAX, &GO_ON);
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
    fn a_new_rate_holds_for_the_next_request() {
        let limiter = RateLimiter::new(1000);
        limiter.request(1 << 20, &GO_ON);
        limiter.set_rate(0);
        assert!(limiter.reserve(1 << 20).is_none());
        limiter.set_rate(1 << 40);
        for _ in 0..3 {
            let start = limiter.reserve(1 << 20).unwrap().start;
            let soon = Instant::now() + Duration::from_millis(1);
            assert!(start < soon, "what was booked before is left");
        }
        assert_eq!(limiter.rate(), 1 << 40);
        limiter.set_rate(1_000_000);
        let start = Instant::now();
        (0..4).for_each(|_| limiter.request(100_000, &GO_ON));
        assert!(start.elapsed() >= Duration::from_millis(150), "{:?}", start.elapsed());
    }

    #[test]
    fn who_waits_at_a_low_rate_goes_on_at_a_higher_one() {
        let limiter = Arc::new(RateLimiter::new(1));
        // An hour and more.
        for _ in 0..100 {
            let _booked = limiter.reserve(1 << 20);
        }
        let before = *limiter.next_free.lock();
        let waiter = thread::spawn({
            let limiter = limiter.clone();
            move || limiter.request(1 << 20, &GO_ON)
        });
        while *limiter.next_free.lock() == before && !waiter.is_finished() {
            thread::yield_now();
        }
        limiter.set_rate(1 << 40);
        waiter.join().unwrap();
        assert_eq!(limiter.rate(), 1 << 40);
    }

    #[test]
    fn cancel_ends_a_wait() {
        let limiter = Arc::new(RateLimiter::new(1));
        let cancel = Arc::new(AtomicBool::new(false));
        limiter.request(1 << 20, &cancel);
        let start = Instant::now();
        let waiter = thread::spawn({
            let (limiter, cancel) = (limiter.clone(), cancel.clone());
            move || limiter.request(1 << 20, &cancel)
        });
        thread::sleep(Duration::from_millis(30));
        cancel.store(true, Ordering::Relaxed);
        waiter.join().unwrap();
        assert!((30..50_000).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
    }
}
