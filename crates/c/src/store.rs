//! A store: opened, refreshed, closed, and its handle freed.

use crate::arguments::{path, place, shared, text};
use crate::error::{Error, call, free};
use crate::options::Options;
use crate::text::handed_out;
use std::ffi::c_char;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace::ColumnFamily;
use terrace_binding::{Failure, Kept, Outcome};

/// An open store. Any number of threads may use it at the same time.
pub struct Db {
    kept: Kept<Opened>,
}

/// What a handle of a store holds.
pub(crate) struct Opened {
    pub db: terrace::Db,
    pub default: ColumnFamily,
    /// A number that no other open store of this process has.
    pub id: u64,
}

impl Opened {
    fn handle(db: terrace::Db) -> Db {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let default = db.default_family();
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Db { kept: Kept::new(Self { db, default, id }) }
    }
}

impl Db {
    /// The store behind `pointer`.
    ///
    /// # Safety
    /// NULL, or a handle that lives until the function returns.
    #[inline]
    pub(crate) unsafe fn of<'a>(pointer: *const Self) -> Outcome<&'a Opened> {
        // SAFETY: said above.
        unsafe { shared(pointer, "db") }?.kept.get()
    }
}

/// Opens the store in directory `path`, which is created unless the option create_if_missing is "false".
/// NULL options are the defaults. On success *db is a handle: close it with terrace_close, then free it with
/// terrace_db_free. On failure *db is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_open(
    path: *const c_char,
    options: *const Options,
    db: *mut *mut Db,
) -> *mut Error {
    // SAFETY: the rules of terrace.h.
    call(|| unsafe { open(path, options, db, |path, options| terrace::Db::open(path, options)) })
}

/// Opens a store as it is now without writing anything; another process may have it open for writing. See
/// terrace_refresh.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_open_read_only(
    path: *const c_char,
    options: *const Options,
    db: *mut *mut Db,
) -> *mut Error {
    let open_so = |path: &std::path::Path, options| terrace::Db::open_read_only(path, options);
    // SAFETY: the rules of terrace.h.
    call(|| unsafe { open(path, options, db, open_so) })
}

/// # Safety
/// As the functions of the interface.
unsafe fn open(
    at: *const c_char,
    options: *const Options,
    db: *mut *mut Db,
    how: impl Fn(&std::path::Path, terrace::Options) -> terrace::Result<terrace::Db>,
) -> Outcome<()> {
    // SAFETY: said above.
    let out = unsafe { place(db, "db") }?;
    out.set(std::ptr::null_mut());
    // SAFETY: said above.
    let (at, options) = unsafe { (path(at)?, Options::of(options)?) };
    out.give(Opened::handle(how(at, options)?));
    Ok(())
}

/// Shows, in a store that is open read-only, what was written since it was opened or refreshed. *is_changed
/// is whether there may be anything new; NULL if that is of no interest.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_refresh(db: *const Db, is_changed: *mut bool) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let opened = unsafe { Db::of(db) }?;
        let changed = opened.db.refresh()?;
        // SAFETY: the rules of terrace.h.
        if let Ok(out) = unsafe { place(is_changed, "is_changed") } {
            out.set(changed);
        }
        Ok(())
    })
}

/// Flushes, stops the threads and releases the directory. Every later call with this handle, or with one
/// made from it, that reads, writes or works on files fails with TERRACE_CLOSED; what needs only memory, as
/// terrace_metrics_text or terrace_get_option, still answers. Closing again gives the same. The handle is still to be
/// freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_close(db: *const Db) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let opened = unsafe { Db::of(db) }?;
        Ok(opened.db.close()?)
    })
}

/// Frees the handle; no thread may use it any more. A store that was not closed is closed when the last
/// of its families and transactions is freed too, and an error of that is lost: call terrace_close first.
/// NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_db_free(db: *mut Db) {
    // SAFETY: NULL, or a handle that is given back.
    unsafe { free(db) };
}

/// Changes an option of the open store: "sync", "memory_budget", "memory_split", "rate_limit_bytes_per_s",
/// "gc_garbage_ratio", "hot_table", "log_retention_bytes", "max_open_files", "background_jobs",
/// "l0_compaction_trigger", "l0_slowdown", "l0_stop", "level_base_bytes", "level_multiplier", "target_file_bytes",
/// "max_subcompactions", "compact_when_idle", "pending_compaction_slowdown_bytes", "level_model_files",
/// "reserve_bytes", "max_reader_pinned_bytes"; of all its column families together: "compression", "filter",
/// "prefix_len", "value_separation_threshold", "value_compression", "learning". Sizes may have a unit: 64MiB.
/// Those of column families are stored with them, the others are not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_set_option(
    db: *const Db,
    name: *const c_char,
    value: *const c_char,
) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let (opened, name, value) =
            unsafe { (Db::of(db)?, text(name, "name")?, text(value, "value")?) };
        Ok(opened.db.set_option(name, value)?)
    })
}

/// What an option that terrace_set_option takes is now. Free *value with terrace_string_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_get_option(
    db: *const Db,
    name: *const c_char,
    value: *mut *mut c_char,
) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let out = unsafe { place(value, "value") }?;
        out.set(std::ptr::null_mut());
        // SAFETY: the rules of terrace.h.
        let (opened, name) = unsafe { (Db::of(db)?, text(name, "name")?) };
        let value = opened.db.option(name).ok_or_else(|| {
            let all = terrace::LIVE_OPTIONS.join(", ");
            Failure::argument(format!("there is no option `{name}`, but {all}"))
        })?;
        out.set(handed_out(&value));
        Ok(())
    })
}
