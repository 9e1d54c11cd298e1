//! Time as a trait, so that a simulation can supply its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// A source of time.
pub trait Clock: Send + Sync + 'static {
    /// Wall-clock time in milliseconds since the Unix epoch; used for expiries, may jump.
    fn wall_ms(&self) -> u64;
    /// Monotonic time in microseconds since some fixed moment.
    fn monotonic_us(&self) -> u64;
}

/// The machine's clocks.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    start: Instant,
}

impl Default for SystemClock {
    fn default() -> Self {
        Self { start: Instant::now() }
    }
}

impl Clock for SystemClock {
    fn wall_ms(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
    }

    fn monotonic_us(&self) -> u64 {
        self.start.elapsed().as_micros() as u64
    }
}

/// A clock that stands until it is turned, for tests. Clones are the same clock.
#[derive(Debug, Clone)]
pub struct ManualClock {
    wall_ms: Arc<AtomicU64>,
    monotonic: Monotonic,
}

/// What [`ManualClock`] gives as monotonic time.
#[derive(Debug, Clone, Copy)]
enum Monotonic {
    /// What passed on its wall clock since this time.
    Turned(u64),
    /// What passed on the machine since this moment.
    Machine(Instant),
}

impl ManualClock {
    /// Stands at `wall_ms`; its monotonic time stands at 0, and is turned with the wall clock.
    pub fn at(wall_ms: u64) -> Self {
        let monotonic = Monotonic::Turned(wall_ms);
        Self { wall_ms: Arc::new(AtomicU64::new(wall_ms)), monotonic }
    }

    /// As [`Self::at`], but its monotonic time is the machine's: for stores whose threads wait for
    /// time to pass.
    pub fn wall_at(wall_ms: u64) -> Self {
        Self { monotonic: Monotonic::Machine(Instant::now()), ..Self::at(wall_ms) }
    }

    /// Turns it.
    pub fn advance(&self, ms: u64) {
        self.wall_ms.fetch_add(ms, Ordering::SeqCst);
    }

    /// What its wall clock shows.
    pub fn now_ms(&self) -> u64 {
        self.wall_ms.load(Ordering::SeqCst)
    }
}

impl Clock for ManualClock {
    fn wall_ms(&self) -> u64 {
        self.now_ms()
    }

    fn monotonic_us(&self) -> u64 {
        match self.monotonic {
            Monotonic::Turned(start_ms) => (self.now_ms() - start_ms) * 1000,
            Monotonic::Machine(start) => start.elapsed().as_micros() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_stands_until_it_is_turned() {
        let (all, wall) = (ManualClock::at(500), ManualClock::wall_at(500));
        for clock in [&all, &wall] {
            assert_eq!(clock.wall_ms(), 500);
            clock.clone().advance(7);
            assert_eq!(clock.wall_ms(), 507);
        }
        assert_eq!(all.monotonic_us(), 7000);
        let before = wall.monotonic_us();
        while wall.monotonic_us() == before {}
        assert_eq!(all.monotonic_us(), 7000);
    }
}
