//! Waiting for a moment without a sleep: a sleep and the wake-up cost some 5 to 10 us, more than a small
//! write takes.

use super::{Instant, Mutex, MutexGuard, interleave, thread};
use std::time::Duration;

/// Looks in a tight loop before the processor is given to others, about a microsecond.
const SPINS: u32 = if cfg!(feature = "simulation") { 1 } else { 100 };
/// How long others are given the processor between looks.
const YIELDS_FOR: Duration =
    Duration::from_micros(if cfg!(feature = "simulation") { 0 } else { 100 });

/// Waits up to about 100 us for `done`; whether it came. While the machine has more threads to run than
/// processors, others run meanwhile.
pub fn spin_until(mut done: impl FnMut() -> bool) -> bool {
    interleave();
    for _ in 0..SPINS {
        if done() {
            return true;
        }
        std::hint::spin_loop();
    }
    let start = Instant::now();
    while start.elapsed() < YIELDS_FOR {
        thread::yield_now();
        if done() {
            return true;
        }
    }
    done()
}

/// Locks what is held for a few microseconds at a time.
pub fn lock_soon<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    let mut guard = mutex.try_lock();
    if guard.is_none() {
        spin_until(|| {
            guard = mutex.try_lock();
            guard.is_some()
        });
    }
    guard.unwrap_or_else(|| mutex.lock())
}
