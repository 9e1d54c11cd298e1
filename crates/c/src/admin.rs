//! Flushes, compactions, checkpoints, repair and figures.

use crate::arguments::{path, place, range};
use crate::error::{Error, call};
use crate::family::Family;
use crate::options::Options;
use crate::store::Db;
use crate::text::handed_out;
use std::ffi::c_char;
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
/// lost, one sentence a line; free it with terrace_string_free. With `dry_run` nothing is written. An encrypted store is
/// repaired with the option encryption_key_file. What is replaced, and what cannot be read, is in `path`/lost afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_repair(
    path: *const c_char,
    options: *const Options,
    dry_run: bool,
    report: *mut *mut c_char,
) -> *mut Error {
    let how = RepairOptions { dry_run, ..RepairOptions::default() };
    // SAFETY: the rules of terrace.h.
    call(|| unsafe { repair(path, options, how, report) })
}

/// As terrace_repair, and first takes back what earlier opens and repairs moved to `path`/lost. The last resort: keys that were
/// deleted may come back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_repair_from_lost(
    path: *const c_char,
    options: *const Options,
    dry_run: bool,
    report: *mut *mut c_char,
) -> *mut Error {
    let how = RepairOptions { dry_run, from_lost: true, ..RepairOptions::default() };
    // SAFETY: the rules of terrace.h.
    call(|| unsafe { repair(path, options, how, report) })
}

/// # Safety
/// As the functions of the interface.
unsafe fn repair(
    at: *const c_char,
    options: *const Options,
    how: RepairOptions,
    report: *mut *mut c_char,
) -> Outcome<()> {
    // SAFETY: said above.
    let out = unsafe { place(report, "report") }?;
    out.set(ptr::null_mut());
    // SAFETY: said above.
    let (at, options) = unsafe { (path(at)?, Options::of(options)?) };
    let done = terrace_keyspace::repair(at, options, how)?;
    let mut lines = vec![if done.was_sound { "sound" } else { "damaged" }.to_string()];
    lines.extend(done.saved.iter().map(|text| format!("saved: {text}")));
    lines.extend(done.lost.iter().map(|text| format!("lost: {text}")));
    lines.extend(done.notes.iter().map(|text| format!("note: {text}")));
    out.set(handed_out(&lines.join("\n")));
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::terrace_string_free;
    use std::ffi::{CStr, CString};
    use std::os::unix::ffi::OsStrExt;
    use terrace_keyspace::{Keyspace, Mode, Placement};

    fn keyspace(dir: &tempfile::TempDir) -> std::sync::Arc<Keyspace> {
        Keyspace::open_placed(dir.path(), terrace::Options::default(), Placement::Range).unwrap()
    }

    /// What a killed server leaves that has written no sorted file, but for the manifest.
    fn left_by_a_server() -> tempfile::TempDir {
        let (store, left) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let space = keyspace(&store);
        let mut batch = space.command_batch(Mode::Device);
        batch.lock_everything();
        batch.set_add(0, b"set", [&b"member"[..]].into_iter()).unwrap();
        batch.commit().unwrap();
        drop(batch);
        for file in std::fs::read_dir(store.path()).unwrap() {
            let file = file.unwrap();
            let name = file.file_name().into_string().unwrap();
            if !["MANIFEST", "CURRENT", "SYNCED"].iter().any(|part| name.starts_with(part)) {
                std::fs::copy(file.path(), left.path().join(name)).unwrap();
            }
        }
        space.close().unwrap();
        left
    }

    #[test]
    fn a_servers_store_without_a_manifest_is_one_after_its_repair() {
        let left = left_by_a_server();
        let path = CString::new(left.path().as_os_str().as_bytes()).unwrap();
        let mut report = ptr::null_mut();
        // SAFETY: a string, and a place for the report, which is read before it is freed.
        let told = unsafe {
            assert!(terrace_repair(path.as_ptr(), ptr::null(), false, &raw mut report).is_null());
            let told = CStr::from_ptr(report).to_str().unwrap().to_string();
            terrace_string_free(report);
            told
        };
        assert!(told.contains("lost: ") && !told.contains("`family-"), "{told}");
        keyspace(&left).close().unwrap();
    }
}
