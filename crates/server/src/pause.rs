//! `CLIENT PAUSE`: until when no commands of clients are executed, or none that write. The loops look at it.

use std::sync::atomic::{AtomicU64, Ordering};

/// The pause, if there is one.
#[derive(Debug, Default)]
pub struct Pause {
    /// Twice the time at which it ends, in ms since 1970, and 1 more if it holds for commands that do not write, too;
    /// 0 without one. In one word: who looks sees the end and the mode of the same pause.
    state: AtomicU64,
    /// Clients whose next command waits for its end.
    waiting: AtomicU64,
}

/// The latest end that there is room for.
const MAX_END_MS: u64 = u64::MAX >> 1;

impl Pause {
    /// Begins one. If there is one, the later end and the stricter mode hold, as in Redis.
    pub fn begin(&self, now_ms: u64, until_ms: u64, is_for_all: bool) {
        let fresh = until_ms.min(MAX_END_MS) << 1 | u64::from(is_for_all);
        let joined = |known: u64| match now_ms < known >> 1 {
            true => (known >> 1).max(fresh >> 1) << 1 | (known | fresh) & 1,
            false => fresh,
        };
        let begun = |known| Some(joined(known));
        let _always = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, begun);
    }

    /// Ends it.
    pub fn end(&self) {
        self.state.store(0, Ordering::Release);
    }

    /// Whether a command waits; `now_ms` is asked for only if there may be a pause.
    #[inline]
    pub fn holds(&self, writes: impl FnOnce() -> bool, now_ms: impl FnOnce() -> u64) -> bool {
        let state = self.state.load(Ordering::Acquire);
        state > 0 && now_ms() < state >> 1 && (state & 1 == 1 || writes())
    }

    /// What it is: another number when it is ended, or begun anew in another mode or for another time.
    pub(crate) fn state(&self) -> u64 {
        self.state.load(Ordering::Acquire)
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
        pause.begin(0, 10, false);
        assert!(holds(true, 9) && !holds(false, 9) && !holds(true, 10));
        pause.begin(5, 20, true);
        assert!(holds(true, 19) && holds(false, 19));
        pause.end();
        assert!(!holds(true, 19));
    }

    #[test]
    fn a_pause_in_a_pause_makes_it_neither_shorter_nor_milder() {
        let pause = Pause::default();
        let holds = |writes: bool, now_ms: u64| pause.holds(|| writes, || now_ms);
        pause.begin(5, 100, true);
        pause.begin(5, 50, false);
        assert!(holds(false, 99) && !holds(true, 100));
        // One that is over leaves nothing.
        pause.begin(101, 150, false);
        assert!(!holds(false, 149) && holds(true, 149));
        pause.begin(101, u64::MAX, true);
        assert!(holds(false, MAX_END_MS - 1));
    }
}
