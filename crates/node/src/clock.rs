//! Time that goes on while the machine sleeps: what leases are measured with.

use rustix::time::{ClockId, clock_gettime};

/// A clock that never goes back, is not set, and counts the time in which the machine was suspended.
/// (A process that was stopped is no problem of the clock; one on a machine that slept is, for
/// `CLOCK_MONOTONIC` stands then.)
pub trait BootClock: Send + Sync + 'static {
    /// Milliseconds since some fixed moment.
    fn now_ms(&self) -> u64;
}

/// The machine's, `CLOCK_BOOTTIME`.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemBootClock;

impl BootClock for SystemBootClock {
    fn now_ms(&self) -> u64 {
        let now = clock_gettime(ClockId::Boottime);
        u64::try_from(now.tv_sec).unwrap_or(0) * 1000
            + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_never_goes_back() {
        let mut last = SystemBootClock.now_ms();
        let start = last;
        while last < start + 3 {
            let now = SystemBootClock.now_ms();
            assert!(now >= last);
            last = now;
        }
    }
}
