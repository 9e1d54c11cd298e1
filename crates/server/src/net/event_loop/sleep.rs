//! How long a loop sleeps where nothing comes.

use super::{ACCEPT_PAUSE, EventLoop, TICK, paused};
use std::time::{Duration, Instant};

impl EventLoop {
    /// How long it may sleep now.
    pub(super) fn longest_sleep(&self) -> Duration {
        let looks_soon = self.stops_by.is_some() || self.accepts_again.is_some();
        let accepts_now = self.accepts_again.is_some_and(|at| at <= Instant::now());
        longest_sleep(accepts_now || !self.ready.is_empty(), looks_soon, !self.paused.is_empty())
    }
}

/// As long as clients have more to do, or wait to be accepted, not at all, whatever else there is to look at.
fn longest_sleep(has_work: bool, looks_soon: bool, has_paused: bool) -> Duration {
    match (has_work, looks_soon, has_paused) {
        (true, ..) => Duration::ZERO,
        (false, _, true) => paused::LOOK,
        (false, true, false) => ACCEPT_PAUSE,
        (false, false, false) => TICK,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_with_work_does_not_sleep() {
        const _: () = assert!(paused::LOOK.as_millis() < ACCEPT_PAUSE.as_millis());
        for (looks_soon, has_paused, longest) in [
            (false, false, TICK),
            (true, false, ACCEPT_PAUSE),
            (false, true, paused::LOOK),
            (true, true, paused::LOOK),
        ] {
            assert_eq!(longest_sleep(false, looks_soon, has_paused), longest);
            assert_eq!(longest_sleep(true, looks_soon, has_paused), Duration::ZERO);
        }
    }
}
