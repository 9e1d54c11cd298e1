//! Options of stores, reads and writes, and what Terrace makes of LevelDB's.

use crate::memory::{free, handle};
use crate::open_files::OpenFiles;
use crate::order::Order;
use crate::policies::{Cache, Comparator, Env, FilterPolicy, Logger};
use crate::snapshot::Snapshot;
use libc::{c_int, c_uchar, size_t};
use std::sync::Weak;
use terrace::{
    CfOptions, Compression, MIN_MEMORY_BUDGET, MemoryShares, ReadOptions as Reading, SyncMode,
    WriteOptions as Writing,
};
use terrace_binding::{Failure, Kept, Outcome};

pub const LEVELDB_NO_COMPRESSION: i32 = 0;
pub const LEVELDB_SNAPPY_COMPRESSION: i32 = 1;

/// LevelDB's defaults.
const WRITE_BUFFER_BYTES: usize = 4 << 20;
const CACHE_BYTES: usize = 8 << 20;
const MAX_FILE_BYTES: usize = 2 << 20;

/// Bits per key that a filter of Terrace may have.
const FILTER_BITS: std::ops::RangeInclusive<i32> = 1..=64;

/// How a store is opened.
pub struct Options {
    order: Order,
    pub(crate) create_if_missing: bool,
    pub(crate) error_if_exists: bool,
    write_buffer_bytes: usize,
    cache_bytes: usize,
    block_bytes: usize,
    max_file_bytes: usize,
    max_open_files: c_int,
    compression: c_int,
    bits_per_key: Option<c_int>,
}

impl Options {
    /// The order of the keys.
    pub(crate) fn order(&self) -> Order {
        self.order.clone()
    }

    /// The files that a store which is opened with these options may have open.
    pub(crate) fn open_files(&self) -> OpenFiles {
        OpenFiles::take(self.max_open_files)
    }

    /// The options of Terrace, for a store that has `files`.
    pub(crate) fn of_terrace(&self, files: &OpenFiles) -> terrace::Options {
        // LevelDB holds two write buffers, and a cache beside them.
        let memtables = 2 * self.write_buffer_bytes.clamp(64 << 10, 1 << 30);
        let budget = (memtables + self.cache_bytes.max(1 << 20)).max(MIN_MEMORY_BUDGET);
        let share = memtables as f64 / budget as f64;
        let rest = 1.0 - share;
        let bits =
            self.bits_per_key.map(|bits| bits.clamp(*FILTER_BITS.start(), *FILTER_BITS.end()));
        let filter = match bits {
            Some(bits) => terrace::FilterPolicy::Bloom { bits_per_unit: f64::from(bits), units: 1 },
            None => terrace::FilterPolicy::None,
        };
        let compression = match self.compression {
            LEVELDB_NO_COMPRESSION => Compression::None,
            _ => Compression::Lz4,
        };
        let family = CfOptions {
            compression: vec![compression],
            filter: vec![filter],
            ..CfOptions::default()
        };
        let mut options = terrace::Options {
            memory_budget: budget,
            create_if_missing: self.create_if_missing,
            max_open_files: files.count(),
            default_family: family,
            // As LevelDB: what an open says, it says of the whole store.
            stored_options: terrace::StoredOptions::Replace,
            ..terrace::Options::default()
        };
        options.advanced.memory_shares =
            MemoryShares { memtables: share, cache: rest * 0.8, filters: rest * 0.2 };
        options.advanced.memtable_bytes = memtables / 2;
        options.advanced.block_size = self.block_bytes.clamp(1 << 10, 4 << 20);
        options.advanced.target_file_bytes = self.max_file_bytes.clamp(1 << 20, 1 << 30) as u64;
        options
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            order: Order::bytes(),
            create_if_missing: false,
            error_if_exists: false,
            write_buffer_bytes: WRITE_BUFFER_BYTES,
            cache_bytes: CACHE_BYTES,
            block_bytes: 4096,
            max_file_bytes: MAX_FILE_BYTES,
            max_open_files: 1000,
            compression: LEVELDB_SNAPPY_COMPRESSION,
            bits_per_key: None,
        }
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_create() -> *mut Options {
    handle(Options::default())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_destroy(options: *mut Options) {
    // SAFETY: the rules of LevelDB.
    unsafe { free(options) };
}

/// Changes options, unless they are NULL.
///
/// # Safety
/// NULL or live, and no other thread uses them.
unsafe fn change<T>(options: *mut T, change: impl FnOnce(&mut T)) {
    // SAFETY: said above.
    if let Some(options) = unsafe { options.as_mut() } {
        change(options);
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_comparator(
    options: *mut Options,
    comparator: *mut Comparator,
) {
    // SAFETY: the rules of LevelDB.
    unsafe {
        let order = comparator.as_ref().map_or_else(Order::bytes, Comparator::order);
        change(options, |options| options.order = order);
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_filter_policy(
    options: *mut Options,
    policy: *mut FilterPolicy,
) {
    // SAFETY: the rules of LevelDB.
    unsafe {
        let bits_per_key = policy.as_ref().and_then(|policy| policy.bits_per_key);
        change(options, |options| options.bits_per_key = bits_per_key);
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_create_if_missing(options: *mut Options, on: c_uchar) {
    // SAFETY: the rules of LevelDB.
    unsafe { change(options, |options| options.create_if_missing = on != 0) };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_error_if_exists(options: *mut Options, on: c_uchar) {
    // SAFETY: the rules of LevelDB.
    unsafe { change(options, |options| options.error_if_exists = on != 0) };
}

/// Everything is checked, always.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_paranoid_checks(_options: *mut Options, _on: c_uchar) {
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_env(_options: *mut Options, _env: *mut Env) {}

/// Taken, and nothing is written to it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_info_log(_options: *mut Options, _log: *mut Logger) {}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_write_buffer_size(
    options: *mut Options,
    bytes: size_t,
) {
    // SAFETY: the rules of LevelDB.
    unsafe { change(options, |options| options.write_buffer_bytes = bytes) };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_max_open_files(options: *mut Options, files: c_int) {
    // SAFETY: the rules of LevelDB.
    unsafe { change(options, |options| options.max_open_files = files) };
}

/// Each store that is opened with the cache gets one of its capacity.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_cache(options: *mut Options, cache: *mut Cache) {
    // SAFETY: the rules of LevelDB.
    unsafe {
        let bytes = cache.as_ref().map_or(CACHE_BYTES, |cache| cache.capacity);
        change(options, |options| options.cache_bytes = bytes.min(1 << 40));
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_block_size(options: *mut Options, bytes: size_t) {
    // SAFETY: the rules of LevelDB.
    unsafe { change(options, |options| options.block_bytes = bytes) };
}

/// There are no restart points in Terrace's blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_block_restart_interval(
    _options: *mut Options,
    _keys: c_int,
) {
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_max_file_size(options: *mut Options, bytes: size_t) {
    // SAFETY: the rules of LevelDB.
    unsafe { change(options, |options| options.max_file_bytes = bytes) };
}

/// Snappy means LZ4, which is as fast.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_compression(options: *mut Options, kind: c_int) {
    // SAFETY: the rules of LevelDB.
    unsafe { change(options, |options| options.compression = kind) };
}

/// How a read is done.
pub struct ReadOptions {
    fill_cache: bool,
    /// Not held: the program gives it back when it wants. It is of one process.
    snapshot: Option<Kept<Weak<terrace::Snapshot>>>,
}

impl ReadOptions {
    /// The options of Terrace.
    ///
    /// # Errors
    /// The snapshot was released, or is of the process that this one was forked from.
    pub(crate) fn reading(&self) -> Outcome<Reading> {
        let released = || Failure::argument("the snapshot of the read options was released");
        let snapshot = match &self.snapshot {
            Some(kept) => {
                Some(terrace::Snapshot::clone(&*kept.get()?.upgrade().ok_or_else(released)?))
            }
            None => None,
        };
        Ok(Reading { snapshot, fill_cache: self.fill_cache, ..Reading::default() })
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn leveldb_readoptions_create() -> *mut ReadOptions {
    handle(ReadOptions { fill_cache: true, snapshot: None })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_readoptions_destroy(options: *mut ReadOptions) {
    // SAFETY: the rules of LevelDB.
    unsafe { free(options) };
}

/// Checksums are verified, always.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_readoptions_set_verify_checksums(
    _options: *mut ReadOptions,
    _on: c_uchar,
) {
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_readoptions_set_fill_cache(
    options: *mut ReadOptions,
    on: c_uchar,
) {
    // SAFETY: the rules of LevelDB.
    unsafe { change(options, |options| options.fill_cache = on != 0) };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_readoptions_set_snapshot(
    options: *mut ReadOptions,
    snapshot: *const Snapshot,
) {
    // SAFETY: the rules of LevelDB.
    unsafe {
        if let Ok(snapshot) = snapshot.as_ref().map(Snapshot::named).transpose() {
            change(options, |options| options.snapshot = snapshot.map(Kept::new));
        }
    }
}

/// How a write is done.
pub struct WriteOptions {
    pub(crate) writing: Writing,
}

#[unsafe(no_mangle)]
pub extern "C" fn leveldb_writeoptions_create() -> *mut WriteOptions {
    handle(WriteOptions { writing: Writing { sync: Some(SyncMode::None) } })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writeoptions_destroy(options: *mut WriteOptions) {
    // SAFETY: the rules of LevelDB.
    unsafe { free(options) };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writeoptions_set_sync(options: *mut WriteOptions, on: c_uchar) {
    let sync = if on != 0 { SyncMode::Batch } else { SyncMode::None };
    // SAFETY: the rules of LevelDB.
    unsafe { change(options, |options| options.writing.sync = Some(sync)) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::{Db, leveldb_close, leveldb_create_snapshot, leveldb_get, leveldb_open};
    use crate::db::{leveldb_put, leveldb_release_snapshot};
    use libc::c_char;
    use std::ffi::{CStr, CString};
    use std::ptr;

    /// The value of "k", or the error.
    unsafe fn get(db: *mut Db, reading: *const ReadOptions) -> Result<String, String> {
        let (mut error, mut len): (*mut c_char, size_t) = (ptr::null_mut(), 0);
        // SAFETY: live handles of the caller.
        unsafe {
            let value = leveldb_get(db, reading, c"k".as_ptr(), 1, &mut len, &mut error);
            let text = if error.is_null() { value } else { error };
            let copy = CStr::from_ptr(text).to_string_lossy().into_owned();
            libc::free(text.cast());
            if error.is_null() { Ok(copy) } else { Err(copy) }
        }
    }

    #[test]
    fn read_options_do_not_hold_a_snapshot_that_was_released() {
        let dir = tempfile::tempdir().unwrap();
        let path = CString::new(dir.path().join("store").into_os_string().into_encoded_bytes());
        let (path, mut error) = (path.unwrap(), ptr::null_mut());
        // SAFETY: handles of this function.
        unsafe {
            let options = leveldb_options_create();
            leveldb_options_set_create_if_missing(options, 1);
            let db = leveldb_open(options, path.as_ptr(), &mut error);
            let writing = leveldb_writeoptions_create();
            let put = |value: &CStr| {
                let mut error = ptr::null_mut();
                leveldb_put(db, writing, c"k".as_ptr(), 1, value.as_ptr(), 1, &mut error);
                assert!(error.is_null());
            };
            put(c"1");
            let snapshot = leveldb_create_snapshot(db);
            put(c"2");
            let reading = leveldb_readoptions_create();
            leveldb_readoptions_set_snapshot(reading, snapshot);
            assert_eq!(get(db, reading), Ok("1".into()));
            let snapshots = || Db::of(db).unwrap().db.metrics().snapshots;
            assert_eq!(snapshots(), 1);
            leveldb_release_snapshot(db, snapshot);
            assert_eq!(snapshots(), 0);
            let refused = get(db, reading).unwrap_err();
            assert!(refused.starts_with("Invalid argument: "), "{refused}");
            leveldb_readoptions_set_snapshot(reading, ptr::null());
            assert_eq!(get(db, reading), Ok("2".into()));
            leveldb_readoptions_destroy(reading);
            leveldb_writeoptions_destroy(writing);
            leveldb_close(db);
            leveldb_options_destroy(options);
        }
    }
}
