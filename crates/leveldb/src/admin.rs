//! Stores as a whole: properties, sizes, compaction, destruction, repair, versions.

use crate::db::{Db, path};
use crate::directory;
use crate::memory::{bytes, call, copied, string};
use crate::options::Options;
use crate::order::Order;
use crate::repair;
use crate::store::Store;
use libc::{c_char, c_int, c_void, size_t};
use std::path::Path;
use std::ptr;
use terrace_binding::{Code, Outcome, guard};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_property_value(
    db: *mut Db,
    propname: *const c_char,
) -> *mut c_char {
    let text = guard(|| {
        // SAFETY: the rules of LevelDB.
        let (db, name) = unsafe { (Db::of(db)?, string(propname)) };
        let name = String::from_utf8_lossy(name);
        let Some(name) = name.strip_prefix("leveldb.") else { return Ok(None) };
        let metrics = db.db.metrics();
        Ok(match name {
            "stats" | "sstables" => Some(metrics.to_string()),
            "approximate-memory-usage" => {
                let cached = metrics.cache_used_bytes + metrics.filter_memory_bytes;
                Some((cached + metrics.memtable_bytes + metrics.pinned_bytes).to_string())
            }
            _ => {
                let level = name.strip_prefix("num-files-at-level");
                let level = level.and_then(|level| level.parse::<usize>().ok());
                let level = level.and_then(|level| metrics.levels.get(level));
                level.map(|level| level.file_count.to_string())
            }
        })
    });
    text.ok().flatten().map_or(ptr::null_mut(), |text| copied(text.as_bytes()))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_approximate_sizes(
    db: *mut Db,
    num_ranges: c_int,
    range_start_key: *const *const c_char,
    range_start_key_len: *const size_t,
    range_limit_key: *const *const c_char,
    range_limit_key_len: *const size_t,
    sizes: *mut u64,
) {
    for at in 0..usize::try_from(num_ranges).unwrap_or(0) {
        let size = guard(|| {
            // SAFETY: the rules of LevelDB: every array has this many entries.
            let (db, start, limit) = unsafe {
                let start = bytes(*range_start_key.add(at), *range_start_key_len.add(at));
                let limit = bytes(*range_limit_key.add(at), *range_limit_key_len.add(at));
                (Db::of(db)?, start, limit)
            };
            db.size_bytes(start, limit)
        });
        // SAFETY: as above.
        unsafe { *sizes.add(at) = size.unwrap_or(0) };
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_compact_range(
    db: *mut Db,
    start_key: *const c_char,
    start_key_len: size_t,
    limit_key: *const c_char,
    limit_key_len: size_t,
) {
    // LevelDB, too, tells nobody of an error.
    let _ = guard(|| {
        // SAFETY: the rules of LevelDB; NULL is no bound.
        let (db, start, limit) = unsafe {
            (Db::of(db)?, bytes(start_key, start_key_len), bytes(limit_key, limit_key_len))
        };
        let start = Some(start).filter(|_| !start_key.is_null());
        db.compact(start, Some(limit).filter(|_| !limit_key.is_null()))
    });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_destroy_db(
    _options: *const Options,
    name: *const c_char,
    errptr: *mut *mut c_char,
) {
    let destroy = || {
        // SAFETY: the rules of LevelDB.
        let dir = unsafe { path(name) }?;
        directory::refuse_leveldb(dir)?;
        directory::destroy(dir)
    };
    // SAFETY: the rules of LevelDB.
    unsafe { call(errptr, (), destroy) };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_repair_db(
    options: *const Options,
    name: *const c_char,
    errptr: *mut *mut c_char,
) {
    let repair = || {
        // SAFETY: the rules of LevelDB.
        let (options, dir) = unsafe { (options.as_ref(), path(name)?) };
        directory::refuse_leveldb(dir)?;
        let none = Options::default();
        let options = options.unwrap_or(&none);
        let files = options.open_files();
        let (opening, order) = (options.of_terrace(&files), options.order());
        match repair::repair(dir, opening.clone(), &order) {
            // There is no file of a store.
            Err(failure) if failure.code == Code::NotAStore => create(dir, opening, order),
            outcome => outcome,
        }
    };
    // SAFETY: the rules of LevelDB.
    unsafe { call(errptr, (), repair) };
}

/// Makes an empty store, whatever the options say of that: what LevelDB's repair does where there is none, also where
/// only the last directory is missing. It begins with its own `LOG` and takes that for a file of a store.
fn create(dir: &Path, options: terrace::Options, order: Order) -> Outcome<()> {
    directory::check_wanted(dir, true, false)?;
    let db = terrace::Db::open(dir, terrace::Options { create_if_missing: true, ..options })?;
    Ok(Store::open(db, order)?.db.close()?)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_free(pointer: *mut c_void) {
    // SAFETY: the rules of LevelDB: it came from `malloc`.
    unsafe { libc::free(pointer) };
}

#[unsafe(no_mangle)]
pub extern "C" fn leveldb_major_version() -> c_int {
    1
}

#[unsafe(no_mangle)]
pub extern "C" fn leveldb_minor_version() -> c_int {
    23
}
