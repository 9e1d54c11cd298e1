//! RocksDB and Speedb through RocksDB's C API, tuned as an expert would.
//!
//! Options go in as one string in RocksDB's own words (`rocksdb_get_options_from_string`), which
//! is also what is printed; only the block cache, which a string cannot describe fully, is made
//! by its C functions. `--set rocksdb.NAME=VALUE` adds to the string, `rocksdb.table.NAME` to
//! its table options, and `rocksdb.cache=lru|hyperclock` chooses the cache.
#![allow(unsafe_code, reason = "calls into a C library")]

mod counts;
mod loads;
mod opening;
mod options;

use crate::engine::c_database::{CDatabase, CommonApi, ErrorOut, Handle};
use crate::engine::c_library::{Lookup, c_api};
use crate::engine::{CALM_POLLS, wait_until_idle};
use crate::store::{Cursor, FilterCounts, Loader, MetadataBytes, Store, ValueCounts, WriteCounts};
use anyhow::{Result, ensure};
use libloading::Library;
use std::ffi::{CStr, CString, c_char, c_int, c_uchar};
use std::path::Path;
use std::ptr;
use std::time::Instant;

pub use opening::open;

/// What the names of RocksDB's functions begin with.
const PREFIX: &str = "rocksdb_";
/// Those in use. Libraries of before version 8 lack some.
const FUNCTIONS: &[&[&str]] = &[CommonApi::NAMES, Api::NAMES, loads::LoadApi::NAMES];

/// Where RocksDB's library is found.
pub const ROCKSDB: Lookup = Lookup {
    engine: "rocksdb",
    variable: "TERRACE_ROCKSDB_LIB",
    peer_files: &["librocksdbjni-linux64.so", "librocksdbjni-linux-aarch64.so", "librocksdb.so"],
    system_names: &["librocksdb.so", "librocksdb.so.11", "librocksdb.so.10", "librocksdb.so.9"],
    prefix: PREFIX,
    functions: FUNCTIONS,
    advice: "Run `cargo xtask peers`, or name one with --rocksdb-lib",
};

/// Where Speedb's library is found.
pub const SPEEDB: Lookup = Lookup {
    engine: "speedb",
    variable: "TERRACE_SPEEDB_LIB",
    peer_files: &["libspeedbjni-linux64.so", "libspeedbjni-linux-aarch64.so", "libspeedb.so"],
    system_names: &["libspeedb.so", "libspeedb.so.2"],
    prefix: PREFIX,
    functions: FUNCTIONS,
    advice: "Run `cargo xtask peers`",
};

/// The table option that has an index block searched by interpolation; its name is in every library
/// that has it (RocksDB 11.0 and later).
pub const INTERPOLATION: &str = "index_block_search_type";
/// `BottommostLevelCompaction::kForceOptimized`: a manual compaction rewrites the last level, too, but
/// not the files that it has just made.
const FORCE_BOTTOMMOST: c_uchar = 3;
/// Options of the garbage collection of blob files: the share of files, the oldest first, that is
/// considered, and the share of garbage in them that has them collected.
const BLOB_COLLECTION: [&CStr; 2] =
    [c"blob_garbage_collection_age_cutoff", c"blob_garbage_collection_force_threshold"];
/// Their values while all blobs are rewritten in key order: all files, whatever is in them.
const REWRITE_ALL: [&CStr; 2] = [c"1.0", c"0.0"];

c_api! {
    /// The functions of `rocksdb/c.h` in use that LevelDB does not have, or not alike.
    Api {
        open_column_families(Handle, *const c_char, c_int, *const *const c_char, *const Handle, *mut Handle, ErrorOut) -> Handle;
        column_family_handle_destroy(Handle);
        cancel_all_background_work(Handle, c_uchar);
        get_pinned(Handle, Handle, *const u8, usize, ErrorOut) -> Handle;
        pinnableslice_value(Handle, *mut usize) -> *const u8;
        pinnableslice_destroy(Handle);
        batched_multi_get_cf(Handle, Handle, Handle, usize, *const *const u8, *const usize, *mut Handle, *mut *mut c_char, c_uchar);
        flush(Handle, Handle, ErrorOut);
        flushoptions_create() -> Handle;
        flushoptions_destroy(Handle);
        flushoptions_set_wait(Handle, c_uchar);
        property_int(Handle, *const c_char, *mut u64) -> c_int;
        options_enable_statistics(Handle);
        get_options_from_string(Handle, *const c_char, Handle, ErrorOut);
        options_set_block_based_table_factory(Handle, Handle);
        block_based_options_create() -> Handle;
        block_based_options_destroy(Handle);
        block_based_options_set_block_cache(Handle, Handle);
        lru_cache_options_create() -> Handle;
        lru_cache_options_destroy(Handle);
        lru_cache_options_set_capacity(Handle, usize);
        lru_cache_options_set_num_shard_bits(Handle, c_int);
        cache_create_lru_opts(Handle) -> Handle;
        cache_create_hyper_clock(usize, usize) -> Handle;
        readoptions_set_fill_cache(Handle, c_uchar);
        set_options(Handle, c_int, *const *const c_char, *const *const c_char, ErrorOut);
        compactoptions_create() -> Handle;
        compactoptions_destroy(Handle);
        compactoptions_set_bottommost_level_compaction(Handle, c_uchar);
        compact_range_opt(Handle, Handle, *const u8, usize, *const u8, usize);
    }
}

struct RocksdbStore {
    api: Api,
    library: &'static Library,
    base: CDatabase,
    /// The options that the database was opened with.
    db_options: Handle,
    /// The default column family, for calls that have no form without one.
    family: Handle,
    statistics: bool,
    /// If large values are kept in blob files, the values of [`BLOB_COLLECTION`].
    blob_collection: Option<[CString; 2]>,
    options: String,
    version: String,
}

// SAFETY: as the database, whose family may be used from any thread.
unsafe impl Send for RocksdbStore {}
// SAFETY: as above.
unsafe impl Sync for RocksdbStore {}

impl RocksdbStore {
    fn number(&self, name: &str) -> Result<u64> {
        let c_name = CString::new(name)?;
        let mut value = 0;
        // SAFETY: the handle is live, the name NUL-terminated.
        let failed =
            unsafe { (self.api.property_int)(self.base.db, c_name.as_ptr(), &raw mut value) } != 0;
        ensure!(!failed, "the engine does not know the property {name}");
        Ok(value)
    }

    /// Changes [`BLOB_COLLECTION`] of the open database.
    fn set_blob_collection(&self, values: [&CStr; 2]) -> Result<()> {
        let (names, values) = (BLOB_COLLECTION.map(CStr::as_ptr), values.map(CStr::as_ptr));
        let mut error = ptr::null_mut();
        // SAFETY: the handle is live; both arrays have as many NUL-terminated strings as is said.
        unsafe {
            let count = names.len() as c_int;
            (self.api.set_options)(
                self.base.db,
                count,
                names.as_ptr(),
                values.as_ptr(),
                &raw mut error,
            );
        }
        self.base.check(error)
    }

    /// Merges everything into the last level, which is rewritten even if it is all there is.
    fn compact_all(&self) {
        // SAFETY: the options object is made, used and destroyed here; null bounds mean all keys.
        unsafe {
            let options = (self.api.compactoptions_create)();
            (self.api.compactoptions_set_bottommost_level_compaction)(options, FORCE_BOTTOMMOST);
            (self.api.compact_range_opt)(self.base.db, options, ptr::null(), 0, ptr::null(), 0);
            (self.api.compactoptions_destroy)(options);
        }
    }
}

impl Store for RocksdbStore {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.base.put(key, value)
    }

    fn get(&self, key: &[u8], see: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let (mut error, mut len) = (ptr::null_mut(), 0);
        // SAFETY: the handles are live; a non-null pinned slice holds `len` bytes until it is
        // destroyed here.
        unsafe {
            let pinned = (self.api.get_pinned)(
                self.base.db,
                self.base.read_options,
                key.as_ptr(),
                key.len(),
                &raw mut error,
            );
            if pinned.is_null() {
                self.base.check(error)?;
                return Ok(false);
            }
            let value = (self.api.pinnableslice_value)(pinned, &raw mut len);
            see(std::slice::from_raw_parts(value, len));
            (self.api.pinnableslice_destroy)(pinned);
        }
        Ok(true)
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.base.delete(key)
    }

    fn multi_get(&self, keys: &[Vec<u8>], see: &mut dyn FnMut(&[u8])) -> Result<usize> {
        let pointers: Vec<*const u8> = keys.iter().map(|key| key.as_ptr()).collect();
        let lengths: Vec<usize> = keys.iter().map(Vec::len).collect();
        let mut values: Vec<Handle> = vec![ptr::null_mut(); keys.len()];
        let mut errors: Vec<*mut c_char> = vec![ptr::null_mut(); keys.len()];
        let mut found = 0;
        // SAFETY: the four arrays have the length that is passed; each non-null pinned slice is
        // valid until it is destroyed here.
        unsafe {
            (self.api.batched_multi_get_cf)(
                self.base.db,
                self.base.read_options,
                self.family,
                keys.len(),
                pointers.as_ptr(),
                lengths.as_ptr(),
                values.as_mut_ptr(),
                errors.as_mut_ptr(),
                0,
            );
            for pinned in values.into_iter().filter(|value| !value.is_null()) {
                let mut len = 0;
                let value = (self.api.pinnableslice_value)(pinned, &raw mut len);
                see(std::slice::from_raw_parts(value, len));
                (self.api.pinnableslice_destroy)(pinned);
                found += 1;
            }
        }
        let results = errors.into_iter().map(|error| self.base.check(error));
        // Every error string is freed before the first error is reported.
        results.collect::<Vec<_>>().into_iter().collect::<Result<()>>()?;
        Ok(found)
    }

    fn cursor(&self) -> Result<Box<dyn Cursor + '_>> {
        Ok(self.base.cursor())
    }

    fn flush(&self) -> Result<()> {
        let mut error = ptr::null_mut();
        // SAFETY: the options object is made, used and destroyed here.
        unsafe {
            let options = (self.api.flushoptions_create)();
            (self.api.flushoptions_set_wait)(options, 1);
            (self.api.flush)(self.base.db, options, &raw mut error);
            (self.api.flushoptions_destroy)(options);
        }
        self.base.check(error)
    }

    fn settle(&self) -> Result<Instant> {
        wait_until_idle(CALM_POLLS, || {
            let mut busy = 0;
            for name in [
                "rocksdb.num-running-flushes",
                "rocksdb.num-running-compactions",
                "rocksdb.mem-table-flush-pending",
                "rocksdb.compaction-pending",
            ] {
                busy += self.number(name)?;
            }
            Ok(busy == 0)
        })
    }

    fn metadata_bytes(&self) -> Result<MetadataBytes> {
        counts::metadata_bytes(self)
    }

    fn sorted_runs(&self) -> Result<Option<u64>> {
        Ok(self.base.sorted_runs("rocksdb"))
    }

    fn filter_counts(&self) -> Result<FilterCounts> {
        counts::filter_counts(self)
    }

    fn write_counts(&self) -> Result<WriteCounts> {
        Ok(counts::write_counts(self))
    }

    fn value_counts(&self) -> Result<ValueCounts> {
        Ok(counts::value_counts(self))
    }

    fn merge_all(&self) -> Result<()> {
        self.flush()?;
        self.compact_all();
        self.settle().map(drop)
    }

    /// Blobs are rewritten by a compaction of the last level alone, which has all of them once
    /// everything is merged.
    fn sort_values(&self) -> Result<()> {
        self.flush()?;
        self.compact_all();
        if let Some([cutoff, threshold]) = &self.blob_collection {
            self.set_blob_collection(REWRITE_ALL)?;
            self.compact_all();
            self.set_blob_collection([cutoff, threshold])?;
        }
        self.settle().map(drop)
    }

    fn ingester(&self, dir: &Path) -> Result<Box<dyn Loader + '_>> {
        Ok(Box::new(loads::Ingester::new(self, dir)?))
    }

    fn back_up(&self, dir: &Path) -> Result<()> {
        loads::back_up(self, dir)
    }

    fn restore(&self, dir: &Path, target: &Path) -> Result<()> {
        loads::restore(self, dir, target)
    }

    fn stats_text(&self) -> String {
        self.base.property("rocksdb.stats").unwrap_or_default()
    }

    fn options_text(&self) -> String {
        self.options.clone()
    }

    fn version(&self) -> String {
        self.version.clone()
    }

    fn close(self: Box<Self>) -> Result<()> {
        // SAFETY: the handle is live; closing proper happens in `drop`.
        unsafe { (self.api.cancel_all_background_work)(self.base.db, 1) };
        Ok(())
    }
}

impl Drop for RocksdbStore {
    fn drop(&mut self) {
        // SAFETY: made when the database was opened, which is closed after this and has a copy of the options;
        // destroyed once.
        unsafe {
            (self.api.column_family_handle_destroy)(self.family);
            (self.base.api.options_destroy)(self.db_options);
        }
    }
}
