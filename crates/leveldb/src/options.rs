//! Options of stores, reads and writes, and what Terrace makes of LevelDB's.

use crate::memory::{free, handle};
use crate::order::Order;
use crate::policies::{Cache, Comparator, Env, FilterPolicy, Logger};
use crate::snapshot::Snapshot;
use libc::{c_int, c_uchar, size_t};
use terrace::{
    CfOptions, Compression, MIN_MEMORY_BUDGET, MemoryShares, ReadOptions as Reading, SyncMode,
    WriteOptions as Writing, vfs,
};
use terrace_binding::{Kept, Outcome};

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

    /// The options of Terrace.
    pub(crate) fn of_terrace(&self) -> terrace::Options {
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
            max_open_files: open_files(self.max_open_files, vfs::open_file_soft_limit()),
            default_family: family,
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

/// LevelDB's own least `max_open_files`: 64 tables and 10 other files.
const LEAST_OPEN_FILES: u64 = 74;

/// How many files a store may have open, if a program asks for `wanted` and the process may have `limit`. LevelDB's
/// default is more than many processes may have, and LevelDB gets along with any limit. The limit is the program's,
/// and is not raised.
fn open_files(wanted: c_int, limit: u64) -> u64 {
    u64::try_from(wanted).unwrap_or(0).max(LEAST_OPEN_FILES).min(limit / 4 * 3)
}

#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_create() -> *mut Options {
    handle(Options {
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
    })
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
    /// It may hold a snapshot, which in a forked process is not to be given back.
    kept: Kept<Reading>,
}

impl ReadOptions {
    pub(crate) fn reading(&self) -> Outcome<&Reading> {
        self.kept.get()
    }
}

/// Changes read options, unless they are NULL or of the process that this one was forked from.
///
/// # Safety
/// NULL or live, and no other thread uses them.
unsafe fn change_reading(options: *mut ReadOptions, change: impl FnOnce(&mut Reading)) {
    // SAFETY: said above.
    if let Some(Ok(reading)) = unsafe { options.as_mut() }.map(|options| options.kept.get_mut()) {
        change(reading);
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn leveldb_readoptions_create() -> *mut ReadOptions {
    handle(ReadOptions { kept: Kept::new(Reading::default()) })
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
    unsafe { change_reading(options, |reading| reading.fill_cache = on != 0) };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_readoptions_set_snapshot(
    options: *mut ReadOptions,
    snapshot: *const Snapshot,
) {
    // SAFETY: the rules of LevelDB.
    unsafe {
        if let Ok(snapshot) = snapshot.as_ref().map(Snapshot::held).transpose() {
            change_reading(options, |reading| reading.snapshot = snapshot);
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

    #[test]
    fn no_store_opens_more_files_than_the_process_may() {
        let limit = vfs::open_file_soft_limit();
        for wanted in [c_int::MIN, -1, 0, 1, 50, 1000, c_int::MAX] {
            let options = leveldb_options_create();
            // SAFETY: the handle of this function.
            let files = unsafe {
                leveldb_options_set_max_open_files(options, wanted);
                let files = (*options).of_terrace().max_open_files;
                leveldb_options_destroy(options);
                files
            };
            let most = u64::try_from(wanted).unwrap_or(0).max(LEAST_OPEN_FILES);
            assert!(files > 0 && files < limit && files <= most, "{wanted}");
        }
        assert_eq!(open_files(1000, 1024), 768);
        assert_eq!(open_files(100, 1024), 100);
        assert_eq!(open_files(-1, 1024), 74);
        assert_eq!(vfs::open_file_soft_limit(), limit, "the limit is the program's");
    }
}
