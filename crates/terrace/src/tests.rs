//! What the tests inside the engine share: they wait for what comes, and fail if it never does.

use std::thread;
use std::time::{Duration, Instant};

/// What takes longer hangs.
pub(crate) const HANG_GUARD: Duration = Duration::from_secs(600);

/// Waits until `is_so`; panics if that never comes.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < HANG_GUARD, "never: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}
