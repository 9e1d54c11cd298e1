//! Named steps of the engine at which a crash test kills the process (RocksDB: kill points). A
//! release build has none: the call is empty. A test names a function, in debug builds, that is
//! told of every step by its thread; what it does there is its business.
//!
//! A step is named where a crash leaves something on disk that no crash a step earlier or later
//! leaves. Single file-system calls need no name here: a test counts those in its `Vfs`.

#[cfg(debug_assertions)]
use std::sync::OnceLock;

/// Every step there is.
pub const KILL_POINTS: [&str; 35] = [
    "open:manifest_recovered",
    "open:spilled",
    "open:replayed",
    "open:installed",
    "open:orphans_removed",
    "commit:logged",
    "commit:synced",
    "commit:inserted",
    "segment:started",
    "flush:written",
    "flush:installed",
    "hot:swapped",
    "hot:written",
    "hot:installed",
    "install:directory_synced",
    "install:manifest_written",
    "compaction:written",
    "compaction:installed",
    "collection:segment_written",
    "purge:sst_removed",
    "purge:segment_removed",
    "retire:out_of_force",
    "retire:file_removed",
    "dead_segment:out_of_force",
    "family:created",
    "family:dropped",
    "ingest:copied",
    "ingest:finished",
    "ingest:logged",
    "ingest:installed",
    "checkpoint:frozen",
    "checkpoint:linked",
    "checkpoint:filled",
    "close:flushed",
    "close:stopped",
];

#[cfg(debug_assertions)]
static WATCHER: OnceLock<fn(&'static str)> = OnceLock::new();

/// Has `watcher` told of every step, in all stores of the process, from now on. The first watcher
/// stays. False in a release build, where there are no kill points.
pub fn watch_kill_points(watcher: fn(&'static str)) -> bool {
    #[cfg(debug_assertions)]
    return WATCHER.set(watcher).is_ok();
    #[cfg(not(debug_assertions))]
    {
        let _ = watcher;
        false
    }
}

/// The calling thread is at the step `name`, one of [`KILL_POINTS`].
#[inline(always)]
pub(crate) fn kill_point(name: &'static str) {
    #[cfg(debug_assertions)]
    if let Some(watcher) = WATCHER.get() {
        watcher(name);
    }
    #[cfg(not(debug_assertions))]
    let _ = name;
}
