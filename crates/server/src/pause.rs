//! `CLIENT PAUSE`: until when no commands of clients are executed, or none that write. The loops look at it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The pause, if there is one.
#[derive(Debug, Default)]
pub struct Pause {
    /// When it ends, in ms since 1970; 0 without one.
    until_ms: AtomicU64,
    /// Whether it holds for commands that do not write, too.
    is_for_all: AtomicBool,
    /// Clients whose next command waits for its end.
    waiting: AtomicU64,
}

impl Pause {
    /// Begins one in the place of the one there is.
    pub fn begin(&self, until_ms: u64, is_for_all: bool) {
        self.is_for_all.store(is_for_all, Ordering::Relaxed);
        // Release: who sees it sees for whom it is.
        self.until_ms.store(until_ms, Ordering::Release);
    }

    /// Ends it.
    pub fn end(&self) {
        self.until_ms.store(0, Ordering::Release);
    }

    /// Whether a command waits; `now_ms` is asked for only if there may be a pause.
    #[inline]
    pub fn holds(&self, writes: impl FnOnce() -> bool, now_ms: impl FnOnce() -> u64) -> bool {
        let until_ms = self.until_ms.load(Ordering::Acquire);
        until_ms > 0 && now_ms() < until_ms && (self.is_for_all.load(Ordering::Relaxed) || writes())
    }

    /// Clients whose next command waits for its end.
    pub fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// A client waits.
    pub(crate) fn enter(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    /// It waits no longer.
    pub(crate) fn leave(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_wait_and_reads_only_in_a_pause_for_all() {
        let pause = Pause::default();
        let holds = |writes: bool, now_ms: u64| pause.holds(|| writes, || now_ms);
        assert!(!holds(true, 1));
        pause.begin(10, false);
        assert!(holds(true, 9) && !holds(false, 9) && !holds(true, 10));
        pause.begin(20, true);
        assert!(holds(true, 19) && holds(false, 19));
        pause.end();
        assert!(!holds(true, 19));
    }
}
