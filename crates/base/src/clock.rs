//! Time as a trait, so that a simulation can supply its own.

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
