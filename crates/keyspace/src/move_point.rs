//! Named steps of key moves at which a test kills the process, stops it or waits, as `terrace::KILL_POINTS` are for
//! the engine. A release build has none: the call is empty. A test names a function, in debug builds, that is called at
//! every step, by its thread; what it does there is its business.
//!
//! ```text
//! owner:<message>:sent         the owner of a shard is about to send a message of a move
//! owner:<message>:answered     its answer has come, and nothing has followed from it yet
//! instance:<message>:received  an instance has a message of the owner's epoch
//! instance:<message>:applied   what it asks for is durable, and the answer is not sent
//! instance:records:visible     a batch with records of keys is in the store, and who looks for them sees the earlier ones
//! partitioner:plan:collected   what was counted is here
//! partitioner:plan:made        no owner knows the plan
//! partitioner:plan:sent        all owners have their part
//! ```
//! Messages are begin, export, import, commit, undo, finish, drop, release, forget.

#[cfg(debug_assertions)]
use std::sync::OnceLock;

#[cfg(debug_assertions)]
static WATCHER: OnceLock<fn(&str)> = OnceLock::new();

/// Calls `watcher` at every step, in all stores of the process, from now on. The first watcher stays. False in a
/// release build, where there are no such points.
pub fn watch_move_points(watcher: fn(&str)) -> bool {
    #[cfg(debug_assertions)]
    return WATCHER.set(watcher).is_ok();
    #[cfg(not(debug_assertions))]
    {
        let _ = watcher;
        false
    }
}

/// The calling thread is at a step: who, of which message, and how far.
#[inline(always)]
pub fn move_point(who: &str, message: &str, moment: &str) {
    #[cfg(debug_assertions)]
    if let Some(watcher) = WATCHER.get() {
        watcher(&format!("{who}:{message}:{moment}"));
    }
    #[cfg(not(debug_assertions))]
    let _ = (who, message, moment);
}
