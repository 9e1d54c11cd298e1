//! Which keys are read and written most, sampled.

use crate::command::{CommandSpec, Flags};
use parking_lot::Mutex;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_resp::Command;
use terrace_sketch::{Hot, TopKeys};

/// One of so many commands is looked at.
pub const SAMPLED_ONE_IN: u32 = 16;

/// Keys that are counted at a time; those that are listed are the first few of them.
const COUNTED: usize = 512;

/// Longer keys are counted by their beginning.
const KEY_BYTES: usize = 256;

/// What was hot long ago fades.
const HALVED_EVERY_S: u64 = 30;

thread_local! {
    static COUNTDOWN: Cell<u32> = const { Cell::new(SAMPLED_ONE_IN) };
}

/// The keys.
pub struct HotKeys {
    read: Mutex<TopKeys>,
    written: Mutex<TopKeys>,
    ticks: AtomicU64,
}

impl Default for HotKeys {
    fn default() -> Self {
        let keys = || Mutex::new(TopKeys::new(COUNTED, KEY_BYTES));
        Self { read: keys(), written: keys(), ticks: AtomicU64::new(0) }
    }
}

impl HotKeys {
    /// A command was executed.
    #[inline]
    pub fn note(&self, spec: &CommandSpec, args: &Command<'_>, db: u8) {
        let is_sampled = COUNTDOWN.with(|left| {
            let now = left.get() - 1;
            left.set(if now == 0 { SAMPLED_ONE_IN } else { now });
            now == 0
        });
        if is_sampled {
            self.count(spec, args, db);
        }
    }

    #[cold]
    fn count(&self, spec: &CommandSpec, args: &Command<'_>, db: u8) {
        let keys = if spec.flags.has(Flags::WRITE) { &self.written } else { &self.read };
        // Another thread is counting: a sample more or less.
        let Some(mut keys) = keys.try_lock() else { return };
        let mut name = Vec::with_capacity(KEY_BYTES);
        for key in spec.keys.of(args) {
            name.clear();
            name.push(db);
            name.extend_from_slice(key);
            keys.observe(&name, 1);
        }
    }

    /// The keys that are read most, their database in front.
    pub fn read(&self, count: usize) -> Vec<Hot> {
        self.read.lock().top(count)
    }

    /// The keys that are written most, their database in front.
    pub fn written(&self, count: usize) -> Vec<Hot> {
        self.written.lock().top(count)
    }

    /// How many seconds of operations the counts stand for: with halving, those since the last
    /// time, and as many as lie between two.
    pub fn window_s(&self) -> f64 {
        let ticks = self.ticks.load(Ordering::Relaxed);
        let since_halving = ticks % HALVED_EVERY_S;
        let whole = if ticks >= HALVED_EVERY_S { HALVED_EVERY_S } else { 0 };
        ((since_halving + whole) as f64).max(1.0)
    }

    /// Once a second: from time to time all counts are halved.
    pub fn tick(&self) {
        if self.ticks.fetch_add(1, Ordering::Relaxed) % HALVED_EVERY_S == HALVED_EVERY_S - 1 {
            self.read.lock().age();
            self.written.lock().age();
        }
    }
}
