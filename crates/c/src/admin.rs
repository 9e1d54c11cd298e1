//! Flushes, compactions, checkpoints, repair and figures.

use crate::arguments::{bound, path, place};
use crate::error::{Error, call};
use crate::family::Family;
use crate::options::Options;
use crate::store::Db;
use crate::text::handed_out;
use std::ffi::c_char;
use std::ops::Bound;
use std::ptr;
use terrace::RepairOptions;
use terrace_binding::Outcome;

/// Makes everything written so far durable, whatever the option "sync" says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_sync(db: *const Db) -> *mut Error {
    // SAFETY: the rules of terrace.h.
    call(|| Ok(unsafe { Db::of(db) }?.db.sync()?))
}

/// Writes all memtables to sorted files and returns when they are durable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_flush(db: *const Db) -> *mut Error {
    // SAFETY: the rules of terrace.h.
    call(|| Ok(unsafe { Db::of(db) }?.db.flush()?))
}

/// Merges everything from `start` on and below `end` down to the last level, dropping what nobody can see any
/// more. A NULL bound with length 0 is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_compact_range(
    db: *const Db,
    family: *const Family,
    start: *const u8,
    start_len: usize,
    end: *const u8,
    end_len: usize,
) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let (family, range) = unsafe {
            let family = Family::of(family, Db::of(db)?)?;
            (family, range((start, start_len), (end, end_len))?)
        };
        Ok(family.compact_range::<&[u8]>(range)?)
    })
}

/// About how many keys there are from `start` on and below `end`, and bytes on the device and in memory. A
/// NULL bound with length 0 is none.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "two bounds and two results")]
pub unsafe extern "C" fn terrace_estimate(
    db: *const Db,
    family: *const Family,
    start: *const u8,
    start_len: usize,
    end: *const u8,
    end_len: usize,
    keys: *mut u64,
    bytes: *mut u64,
) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let (family, range, keys, bytes) = unsafe {
            let family = Family::of(family, Db::of(db)?)?;
            let range = range((start, start_len), (end, end_len))?;
            (family, range, place(keys, "keys")?, place(bytes, "bytes")?)
        };
        let estimate = family.estimate::<&[u8]>(range)?;
        keys.set(estimate.keys);
        bytes.set(estimate.bytes);
        Ok(())
    })
}

/// Collects every segment of the value log of which at least the part `min_share`, 0 to 1, is garbage, and
/// waits until they are gone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_collect_garbage(db: *const Db, min_share: f64) -> *mut Error {
    // SAFETY: the rules of terrace.h.
    call(|| Ok(unsafe { Db::of(db) }?.db.collect_garbage(min_share)?))
}

/// Waits until no flush or compaction is running or wanted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_wait_idle(db: *const Db) -> *mut Error {
    // SAFETY: the rules of terrace.h.
    call(|| Ok(unsafe { Db::of(db) }?.db.wait_idle()?))
}

/// Makes directory `path` (new or empty) a store with the present contents of this one, of hard links where
/// the file system allows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_checkpoint(db: *const Db, path: *const c_char) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let (opened, path) = unsafe { (Db::of(db)?, self::path(path)?) };
        Ok(opened.db.checkpoint(path)?)
    })
}

/// Reads every sorted file and checks every checksum and the order of all entries. *files is how many there
/// are; NULL if that is of no interest. The first damage is the error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_verify(db: *const Db, files: *mut u64) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let count = unsafe { Db::of(db) }?.db.verify()?;
        // SAFETY: the rules of terrace.h.
        if let Ok(out) = unsafe { place(files, "files") } {
            out.set(count);
        }
        Ok(())
    })
}

/// The state of the store and what it did since the open, for people. Free *text with terrace_string_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_metrics_text(db: *const Db, text: *mut *mut c_char) -> *mut Error {
    // SAFETY: the rules of terrace.h.
    unsafe { metrics(db, text, |metrics| metrics.to_string()) }
}

/// As terrace_metrics_text, in the format of Prometheus.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_metrics_prometheus(
    db: *const Db,
    text: *mut *mut c_char,
) -> *mut Error {
    // SAFETY: the rules of terrace.h.
    unsafe { metrics(db, text, terrace::Metrics::to_prometheus) }
}

/// Makes the store in `path` one that opens, out of what is sound of it. *report says what was saved and
/// lost, one sentence a line; free it with terrace_string_free. With `dry_run` nothing is written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_repair(
    path: *const c_char,
    options: *const Options,
    dry_run: bool,
    report: *mut *mut c_char,
) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let out = unsafe { place(report, "report") }?;
        out.set(ptr::null_mut());
        // SAFETY: the rules of terrace.h.
        let (path, options) = unsafe { (self::path(path)?, Options::of(options)?) };
        let how = RepairOptions { dry_run, ..RepairOptions::default() };
        let done = terrace::repair(path, options, how)?;
        let mut lines = vec![if done.was_sound { "sound" } else { "damaged" }.to_string()];
        lines.extend(done.saved.iter().map(|text| format!("saved: {text}")));
        lines.extend(done.lost.iter().map(|text| format!("lost: {text}")));
        lines.extend(done.notes.iter().map(|text| format!("note: {text}")));
        out.set(handed_out(&lines.join("\n")));
        Ok(())
    })
}

/// # Safety
/// As the functions of the interface.
unsafe fn metrics(
    db: *const Db,
    text: *mut *mut c_char,
    format: impl FnOnce(&terrace::Metrics) -> String,
) -> *mut Error {
    call(|| {
        // SAFETY: said above.
        let out = unsafe { place(text, "text") }?;
        out.set(ptr::null_mut());
        // SAFETY: said above.
        let opened = unsafe { Db::of(db) }?;
        out.set(handed_out(&format(&opened.db.metrics())));
        Ok(())
    })
}

/// A range of keys.
type Range<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// # Safety
/// As [`bound`], for both.
unsafe fn range<'a>(
    (start, start_len): (*const u8, usize),
    (end, end_len): (*const u8, usize),
) -> Outcome<Range<'a>> {
    // SAFETY: said above.
    let (start, end) = unsafe { (bound(start, start_len, "start")?, bound(end, end_len, "end")?) };
    let start = start.map_or(Bound::Unbounded, Bound::Included);
    Ok((start, end.map_or(Bound::Unbounded, Bound::Excluded)))
}
