//! RocksDB and Speedb through RocksDB's C API, tuned as an expert would.
//!
//! Options go in as one string in RocksDB's own words (`rocksdb_get_options_from_string`), which
//! is also what is printed; only the block cache, which a string cannot describe fully, is made
//! by its C functions. `--set rocksdb.NAME=VALUE` adds to the string, `rocksdb.table.NAME` to
//! its table options, and `rocksdb.cache=lru|hyperclock` chooses the cache.
#![allow(unsafe_code, reason = "calls into a C library")]

mod cursor;
pub mod filter_bits;
mod options;

use crate::engine::c_library::{self, Lookup, c_api};
use crate::engine::{Engine, wait_until_idle};
use crate::store::{Cursor, Durability, EngineConfig, FilterCounts, MetadataBytes, Store};
use anyhow::{Context, Result, anyhow, bail, ensure};
use cursor::RocksdbCursor;
use options::options_string;
use std::ffi::{CString, c_char, c_int, c_uchar, c_void};
use std::path::Path;
use std::ptr;

/// Where RocksDB's library is found.
pub const ROCKSDB: Lookup = Lookup {
    engine: "rocksdb",
    variable: "TERRACE_ROCKSDB_LIB",
    peer_files: &["librocksdbjni-linux64.so", "librocksdbjni-linux-aarch64.so", "librocksdb.so"],
    system_names: &["librocksdb.so", "librocksdb.so.11", "librocksdb.so.10", "librocksdb.so.9"],
    probe: "rocksdb_get_options_from_string",
    advice: "Run `cargo xtask peers`, or name one with --rocksdb-lib",
};

/// Where Speedb's library is found.
pub const SPEEDB: Lookup = Lookup {
    engine: "speedb",
    variable: "TERRACE_SPEEDB_LIB",
    peer_files: &["libspeedbjni-linux64.so", "libspeedbjni-linux-aarch64.so", "libspeedb.so"],
    system_names: &["libspeedb.so", "libspeedb.so.2"],
    probe: "rocksdb_get_options_from_string",
    advice: "Run `cargo xtask peers`",
};

/// Table formats, newest first; the first that the library knows is used.
const FORMAT_VERSIONS: [u32; 3] = [7, 6, 5];
/// A cache shard has at least this much, so that no block of metadata exceeds its shard.
const MIN_CACHE_SHARD_BYTES: usize = 32 << 20;
const MAX_CACHE_SHARD_BITS: c_int = 4;
/// Levels there can be.
const LEVELS: u32 = 7;

type Handle = *mut c_void;
type ErrorOut = *mut *mut c_char;

c_api! {
    /// The functions of `rocksdb/c.h` in use.
    Api, "rocksdb_" {
        open_column_families(Handle, *const c_char, c_int, *const *const c_char, *const Handle, *mut Handle, ErrorOut) -> Handle;
        column_family_handle_destroy(Handle);
        close(Handle);
        cancel_all_background_work(Handle, c_uchar);
        put(Handle, Handle, *const u8, usize, *const u8, usize, ErrorOut);
        delete(Handle, Handle, *const u8, usize, ErrorOut);
        get_pinned(Handle, Handle, *const u8, usize, ErrorOut) -> Handle;
        pinnableslice_value(Handle, *mut usize) -> *const u8;
        pinnableslice_destroy(Handle);
        batched_multi_get_cf(Handle, Handle, Handle, usize, *const *const u8, *const usize, *mut Handle, *mut *mut c_char, c_uchar);
        free(*mut c_void);
        flush(Handle, Handle, ErrorOut);
        flushoptions_create() -> Handle;
        flushoptions_destroy(Handle);
        flushoptions_set_wait(Handle, c_uchar);
        property_int(Handle, *const c_char, *mut u64) -> c_int;
        property_value(Handle, *const c_char) -> *mut c_char;
        create_iterator(Handle, Handle) -> Handle;
        iter_destroy(Handle);
        iter_valid(Handle) -> c_uchar;
        iter_seek(Handle, *const u8, usize);
        iter_next(Handle);
        iter_key(Handle, *mut usize) -> *const u8;
        iter_value(Handle, *mut usize) -> *const u8;
        iter_get_error(Handle, ErrorOut);
        options_create() -> Handle;
        options_destroy(Handle);
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
        cache_destroy(Handle);
        readoptions_create() -> Handle;
        readoptions_destroy(Handle);
        readoptions_set_fill_cache(Handle, c_uchar);
        writeoptions_create() -> Handle;
        writeoptions_destroy(Handle);
        writeoptions_set_sync(Handle, c_uchar);
    }
}

struct RocksdbStore {
    api: Api,
    db: Handle,
    /// The default column family, for calls that have no form without one.
    family: Handle,
    read_options: Handle,
    write_options: Handle,
    statistics: bool,
    options: String,
    version: String,
}

// SAFETY: a RocksDB database and its option objects may be used from any thread without external
// synchronisation (rocksdb/db.h).
unsafe impl Send for RocksdbStore {}
// SAFETY: as above.
unsafe impl Sync for RocksdbStore {}

/// Opens or creates the store in `dir` with the library at `library`.
pub fn open(
    engine: Engine,
    library: &Path,
    dir: &Path,
    config: &EngineConfig,
) -> Result<Box<dyn Store>> {
    let api = Api::load(c_library::load(library, ROCKSDB.probe)?)?;
    let mut last_error = anyhow!("no table format was tried");
    for format_version in FORMAT_VERSIONS {
        let options = options_string(config, format_version)?;
        match open_with(api, dir, config, &options) {
            Err(error) if error.to_string().contains("format_version") => last_error = error,
            Err(error) => return Err(error.context(format!("opening {engine} with {options}"))),
            Ok(mut store) => {
                store.version = written_version(dir, engine);
                return Ok(Box::new(store));
            }
        }
    }
    Err(last_error)
}

/// The block cache by its C functions, and its description.
fn make_cache(api: &Api, config: &EngineConfig) -> Result<(Handle, String)> {
    let capacity = config.cache_bytes;
    let kind = config.extra.iter().rev().find(|(name, _)| name == "cache");
    match kind.map_or("lru", |(_, kind)| kind) {
        "lru" => {
            let shards = (capacity / MIN_CACHE_SHARD_BYTES).max(1);
            let bits = (shards.ilog2() as c_int).min(MAX_CACHE_SHARD_BITS);
            // SAFETY: the options object is made, filled, used and destroyed here.
            let cache = unsafe {
                let options = (api.lru_cache_options_create)();
                (api.lru_cache_options_set_capacity)(options, capacity);
                (api.lru_cache_options_set_num_shard_bits)(options, bits);
                let cache = (api.cache_create_lru_opts)(options);
                (api.lru_cache_options_destroy)(options);
                cache
            };
            Ok((cache, format!("lru_cache={{capacity={capacity};num_shard_bits={bits}}}")))
        }
        "hyperclock" => {
            // SAFETY: a constructor; an entry charge of 0 lets the cache find its own.
            let cache = unsafe { (api.cache_create_hyper_clock)(capacity, 0) };
            Ok((cache, format!("hyper_clock_cache={{capacity={capacity}}}")))
        }
        other => bail!("--set rocksdb.cache={other}: known are lru, hyperclock"),
    }
}

fn open_with(api: Api, dir: &Path, config: &EngineConfig, options: &str) -> Result<RocksdbStore> {
    let path = c_library::c_path(dir)?;
    let text = CString::new(options)?;
    let (cache, cache_text) = make_cache(&api, config)?;
    let (mut parse_error, mut open_error) = (ptr::null_mut(), ptr::null_mut());
    let mut family: Handle = ptr::null_mut();
    // SAFETY: handles are used with functions of their type and destroyed once; the database
    // holds its own references to the cache and the table options.
    let db = unsafe {
        let base = (api.options_create)();
        if config.statistics {
            (api.options_enable_statistics)(base);
        }
        let tables = (api.block_based_options_create)();
        (api.block_based_options_set_block_cache)(tables, cache);
        (api.options_set_block_based_table_factory)(base, tables);
        let merged = (api.options_create)();
        (api.get_options_from_string)(base, text.as_ptr(), merged, &raw mut parse_error);
        let db = match parse_error.is_null() {
            true => (api.open_column_families)(
                merged,
                path.as_ptr(),
                1,
                &c"default".as_ptr(),
                &merged,
                &raw mut family,
                &raw mut open_error,
            ),
            false => ptr::null_mut(),
        };
        (api.options_destroy)(merged);
        (api.options_destroy)(base);
        (api.block_based_options_destroy)(tables);
        (api.cache_destroy)(cache);
        db
    };
    c_library::check(parse_error, api.free)?;
    c_library::check(open_error, api.free)?;
    ensure!(!db.is_null(), "rocksdb_open returned neither a database nor an error");
    // SAFETY: constructors and a setter on the object just made.
    let (read_options, write_options) = unsafe {
        let write_options = (api.writeoptions_create)();
        (api.writeoptions_set_sync)(write_options, c_uchar::from(config.sync == Durability::Batch));
        let read_options = (api.readoptions_create)();
        (api.readoptions_set_fill_cache)(read_options, c_uchar::from(config.fill_cache));
        (read_options, write_options)
    };
    let store = RocksdbStore {
        api,
        db,
        family,
        read_options,
        write_options,
        statistics: config.statistics,
        options: format!(
            "{options};{cache_text};sync={};fill_cache={};statistics={}",
            config.sync == Durability::Batch,
            config.fill_cache,
            config.statistics
        ),
        version: String::new(),
    };
    // The string parser starts from the table options set before it; should a version not, the
    // cache would silently be another.
    let capacity = store.number("rocksdb.block-cache-capacity")?;
    ensure!(
        capacity == config.cache_bytes as u64,
        "the block cache has {capacity} bytes, not as set"
    );
    Ok(store)
}

/// The version an engine writes into its OPTIONS file; the C API has no function for it.
fn written_version(dir: &Path, engine: Engine) -> String {
    let names = [format!("{engine}_version="), "rocksdb_version=".to_owned()];
    let files = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let text = files
        .filter(|file| file.file_name().to_string_lossy().starts_with("OPTIONS-"))
        .find_map(|file| std::fs::read_to_string(file.path()).ok())
        .unwrap_or_default();
    let find =
        |name: &String| text.lines().find_map(|line| line.trim().strip_prefix(name.as_str()));
    match (find(&names[0]), find(&names[1])) {
        (Some(own), _) => own.to_owned(),
        (None, Some(base)) if engine == Engine::Speedb => format!("on rocksdb {base}"),
        (None, found) => found.unwrap_or("unknown").to_owned(),
    }
}

impl RocksdbStore {
    fn number(&self, name: &str) -> Result<u64> {
        let c_name = CString::new(name)?;
        let mut value = 0;
        // SAFETY: the handle is live, the name NUL-terminated.
        let failed =
            unsafe { (self.api.property_int)(self.db, c_name.as_ptr(), &raw mut value) } != 0;
        ensure!(!failed, "the engine does not know the property {name}");
        Ok(value)
    }

    fn property(&self, name: &str) -> Option<String> {
        let name = CString::new(name).ok()?;
        // SAFETY: the name is NUL-terminated; the result is null or a string for the caller to free.
        c_library::take_text(
            unsafe { (self.api.property_value)(self.db, name.as_ptr()) },
            self.api.free,
        )
    }
}

impl Store for RocksdbStore {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let mut error = ptr::null_mut();
        // SAFETY: the handles are live and the slices are read only during the call.
        unsafe {
            (self.api.put)(
                self.db,
                self.write_options,
                key.as_ptr(),
                key.len(),
                value.as_ptr(),
                value.len(),
                &raw mut error,
            );
        }
        c_library::check(error, self.api.free)
    }

    fn get(&self, key: &[u8], see: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let (mut error, mut len) = (ptr::null_mut(), 0);
        // SAFETY: the handles are live; a non-null pinned slice holds `len` bytes until it is
        // destroyed here.
        unsafe {
            let pinned = (self.api.get_pinned)(
                self.db,
                self.read_options,
                key.as_ptr(),
                key.len(),
                &raw mut error,
            );
            if pinned.is_null() {
                c_library::check(error, self.api.free)?;
                return Ok(false);
            }
            let value = (self.api.pinnableslice_value)(pinned, &raw mut len);
            see(std::slice::from_raw_parts(value, len));
            (self.api.pinnableslice_destroy)(pinned);
        }
        Ok(true)
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        let mut error = ptr::null_mut();
        // SAFETY: the handles are live and the key is read only during the call.
        unsafe {
            (self.api.delete)(self.db, self.write_options, key.as_ptr(), key.len(), &raw mut error);
        }
        c_library::check(error, self.api.free)
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
                self.db,
                self.read_options,
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
        let results = errors.into_iter().map(|error| c_library::check(error, self.api.free));
        // Every error string is freed before the first error is reported.
        results.collect::<Vec<_>>().into_iter().collect::<Result<()>>()?;
        Ok(found)
    }

    fn cursor(&self) -> Result<Box<dyn Cursor + '_>> {
        // SAFETY: the handles are live, and the cursor's lifetime keeps the store open.
        let iter = unsafe { (self.api.create_iterator)(self.db, self.read_options) };
        Ok(Box::new(RocksdbCursor { api: &self.api, iter }))
    }

    fn flush(&self) -> Result<()> {
        let mut error = ptr::null_mut();
        // SAFETY: the options object is made, used and destroyed here.
        unsafe {
            let options = (self.api.flushoptions_create)();
            (self.api.flushoptions_set_wait)(options, 1);
            (self.api.flush)(self.db, options, &raw mut error);
            (self.api.flushoptions_destroy)(options);
        }
        c_library::check(error, self.api.free)
    }

    fn settle(&self) -> Result<()> {
        wait_until_idle(|| {
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
        let text = self
            .property("rocksdb.aggregated-table-properties")
            .context("the engine does not know rocksdb.aggregated-table-properties")?;
        Ok(MetadataBytes {
            filters: table_property(&text, "filter block size"),
            indexes: table_property(&text, "index block size"),
        })
    }

    /// Filters are in memory as a whole unless the block cache holds them.
    fn filter_counts(&self) -> Result<FilterCounts> {
        let files = |level| self.property(&format!("rocksdb.num-files-at-level{level}"));
        let files: Vec<u64> =
            (0..LEVELS).map_while(|level| files(level)?.trim().parse().ok()).collect();
        let runs = |files: &[u64]| {
            let (first, deeper) = files.split_first()?;
            Some(first + deeper.iter().filter(|files| **files > 0).count() as u64)
        };
        let text = self.statistics.then(|| self.property("rocksdb.options-statistics")).flatten();
        let ticker = |name| ticker(text.as_deref()?, name);
        let passed = ticker("rocksdb.bloom.filter.full.positive");
        let found = ticker("rocksdb.bloom.filter.full.true.positive");
        Ok(FilterCounts {
            wasted_reads: passed.zip(found).map(|(passed, found)| passed.saturating_sub(found)),
            resident_bytes: self.metadata_bytes()?.filters,
            sorted_runs: runs(&files),
            ..FilterCounts::default()
        })
    }

    fn stats_text(&self) -> String {
        self.property("rocksdb.stats").unwrap_or_default()
    }

    fn options_text(&self) -> String {
        self.options.clone()
    }

    fn version(&self) -> String {
        self.version.clone()
    }

    fn close(self: Box<Self>) -> Result<()> {
        // SAFETY: the handle is live; closing proper happens in `drop`.
        unsafe { (self.api.cancel_all_background_work)(self.db, 1) };
        Ok(())
    }
}

/// The count in a line `name COUNT : number` of the engine's statistics.
fn ticker(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" COUNT : "))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// The number after `name ...=` in a list `name (remark)=number; name=number; ...`.
fn table_property(text: &str, name: &str) -> Option<u64> {
    text.split(';')
        .find(|field| field.trim_start().starts_with(name))
        .and_then(|field| field.rsplit('=').next()?.trim().parse().ok())
}

impl Drop for RocksdbStore {
    fn drop(&mut self) {
        // SAFETY: each handle was made by the matching create function and is destroyed once;
        // cursors borrow the store, so none is left.
        unsafe {
            (self.api.column_family_handle_destroy)(self.family);
            (self.api.close)(self.db);
            (self.api.readoptions_destroy)(self.read_options);
            (self.api.writeoptions_destroy)(self.write_options);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_properties_are_read_from_text() {
        let text = "# entries=10; index block size (user-key? 1, delta-value? 1)=77; filter block size=1234; x=1";
        assert_eq!(table_property(text, "filter block size"), Some(1234));
        assert_eq!(table_property(text, "index block size"), Some(77));
        assert_eq!(table_property(text, "absent"), None);
    }

    #[test]
    fn tickers_are_read_from_text() {
        let text = "rocksdb.bloom.filter.full.positive COUNT : 12\n\
                    rocksdb.bloom.filter.full.positive.x COUNT : 13\n";
        assert_eq!(ticker(text, "rocksdb.bloom.filter.full.positive"), Some(12));
        assert_eq!(ticker(text, "rocksdb.bloom"), None);
    }
}
