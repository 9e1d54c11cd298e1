//! Snapshots.

use crate::arguments::place;
use crate::error::{Error, call, free};
use crate::store::Db;
use terrace_binding::Kept;

/// A consistent view of the whole store at one moment. Any number of threads may read at it.
pub struct Snapshot {
    pub(crate) kept: Kept<terrace::Snapshot>,
}

/// Takes a snapshot of the store as of now, all column families. Read at it by
/// terrace_read_options_set_snapshot. While it lives, what it sees keeps its disk space: free it with
/// terrace_snapshot_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_snapshot_new(
    db: *const Db,
    snapshot: *mut *mut Snapshot,
) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let out = unsafe { place(snapshot, "snapshot") }?;
        out.set(std::ptr::null_mut());
        // SAFETY: the rules of terrace.h.
        let opened = unsafe { Db::of(db) }?;
        out.give(Snapshot { kept: Kept::new(opened.db.snapshot()) });
        Ok(())
    })
}

/// Frees a snapshot. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_snapshot_free(snapshot: *mut Snapshot) {
    // SAFETY: NULL, or a handle that is given back.
    unsafe { free(snapshot) };
}
