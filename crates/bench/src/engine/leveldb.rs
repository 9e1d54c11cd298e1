//! LevelDB through its C API.
//!
//! LevelDB has one background thread, no direct I/O, and a C API whose `get` copies the value;
//! the adapter cannot change that and adds nothing.
#![allow(unsafe_code, reason = "calls into a C library")]

use crate::engine::c_database::{CDatabase, CommonApi, ErrorOut, Handle};
use crate::engine::c_library::{self, Lookup, c_api};
use crate::engine::{LONG_CALM_POLLS, wait_until_idle};
use crate::filter::PeerFilter;
use crate::store::{Compression, Cursor, Durability, EngineConfig, MetadataBytes, Store};
use anyhow::{Context, Result, bail};
use std::ffi::{c_char, c_int, c_uchar};
use std::path::Path;
use std::ptr;
use std::time::Instant;
use terrace_workload::usage::Totals;

/// Where the library is found.
pub const LEVELDB: Lookup = Lookup {
    engine: "leveldb",
    variable: "TERRACE_LEVELDB_LIB",
    peer_files: &["libleveldb.so"],
    system_names: &["libleveldb.so.1d", "libleveldb.so.1", "libleveldb.so"],
    prefix: "leveldb_",
    functions: &[CommonApi::NAMES, Api::NAMES],
    advice: "Run `cargo xtask peers`, or `apt-get install libleveldb1d`",
};

/// SSTs of LevelDB are 2 MiB by default, which with a large memtable means hundreds of tiny
/// compactions; experts raise it.
const MAX_FILE_BYTES: usize = 32 << 20;
const MAX_OPEN_FILES: c_int = 5000;
/// Processor seconds of the process between two polls, below which nothing but the polls is running.
const IDLE_CPU_S: f64 = 0.002;

c_api! {
    /// The functions of `leveldb/c.h` in use that RocksDB does not have, or not alike.
    Api {
        open(Handle, *const c_char, ErrorOut) -> Handle;
        get(Handle, Handle, *const u8, usize, *mut usize, ErrorOut) -> *mut c_char;
        compact_range(Handle, *const u8, usize, *const u8, usize);
        options_set_create_if_missing(Handle, c_uchar);
        options_set_write_buffer_size(Handle, usize);
        options_set_max_open_files(Handle, c_int);
        options_set_max_file_size(Handle, usize);
        options_set_block_size(Handle, usize);
        options_set_block_restart_interval(Handle, c_int);
        options_set_cache(Handle, Handle);
        options_set_filter_policy(Handle, Handle);
        options_set_compression(Handle, c_int);
        cache_create_lru(usize) -> Handle;
        filterpolicy_create_bloom(c_int) -> Handle;
        filterpolicy_destroy(Handle);
        major_version() -> c_int;
        minor_version() -> c_int;
    }
}

struct LeveldbStore {
    api: Api,
    /// Dropped before what it uses.
    base: CDatabase,
    _used: Used,
    options: String,
}

/// Whether the process did nothing between two polls. The first has none before it, and says nothing.
fn was_idle(before: Option<&Totals>, now: &Totals) -> bool {
    before.is_some_and(|before| {
        now.cpu_s - before.cpu_s < IDLE_CPU_S
            && now.written_bytes == before.written_bytes
            && now.read_bytes == before.read_bytes
    })
}

/// The cache and the filter policy of a database.
struct Used {
    api: Api,
    shared: CommonApi,
    cache: Handle,
    filter: Handle,
}

// SAFETY: leveldb's cache and filter policy may be used from any thread without external
// synchronisation (leveldb/db.h, doc/index.md "Concurrency").
unsafe impl Send for Used {}
// SAFETY: as above.
unsafe impl Sync for Used {}

impl Drop for Used {
    fn drop(&mut self) {
        // SAFETY: each was made by the matching create function and is destroyed once, after the
        // database.
        unsafe {
            (self.shared.cache_destroy)(self.cache);
            if !self.filter.is_null() {
                (self.api.filterpolicy_destroy)(self.filter);
            }
        }
    }
}

/// Opens or creates the store in `dir` with the library at `library`.
pub fn open(library: &Path, dir: &Path, config: &EngineConfig) -> Result<Box<dyn Store>> {
    if config.compression != Compression::None {
        bail!(
            "leveldb knows only snappy, which no other engine here uses; use --set compression=none"
        );
    }
    if config.sync == Durability::Buffered {
        bail!("leveldb hands every write to the kernel; --set sync=buffered is not possible");
    }
    let (mut restart_interval, mut max_file_bytes) = (16, MAX_FILE_BYTES);
    for (name, value) in &config.extra {
        let parse = || format!("--set leveldb.{name}={value}: not a number");
        match name.as_str() {
            "block_restart_interval" => restart_interval = value.parse().with_context(parse)?,
            "max_file_size" => max_file_bytes = value.parse().with_context(parse)?,
            _ => bail!(
                "leveldb has the settings block_restart_interval and max_file_size, not `{name}`"
            ),
        }
    }
    let bits = match config.peer_filter()? {
        PeerFilter::Bloom(bits) => bits.round() as c_int,
        _ => 0,
    };
    let library = c_library::load(library)?;
    let api = Api::load(library, LEVELDB.prefix)?;
    let shared = CommonApi::load(library, LEVELDB.prefix)?;
    let sync = config.sync == Durability::Batch;
    let path = c_library::c_path(dir)?;
    let mut error = ptr::null_mut();
    // SAFETY: every handle passed was made by the function of its type just above; the cache and
    // the filter policy outlive the database (`Used`).
    let store = unsafe {
        let options = (shared.options_create)();
        let cache = (api.cache_create_lru)(config.cache_bytes);
        let filter = if bits > 0 { (api.filterpolicy_create_bloom)(bits) } else { ptr::null_mut() };
        (api.options_set_create_if_missing)(options, 1);
        (api.options_set_write_buffer_size)(options, config.memtable_bytes);
        (api.options_set_max_open_files)(options, MAX_OPEN_FILES);
        (api.options_set_max_file_size)(options, max_file_bytes);
        (api.options_set_block_size)(options, config.block_size);
        (api.options_set_block_restart_interval)(options, restart_interval);
        (api.options_set_cache)(options, cache);
        (api.options_set_filter_policy)(options, filter);
        (api.options_set_compression)(options, 0);
        let db = (api.open)(options, path.as_ptr(), &raw mut error);
        (shared.options_destroy)(options);
        LeveldbStore {
            api,
            base: CDatabase::new(shared, db, sync),
            _used: Used { api, shared, cache, filter },
            options: format!(
                "write_buffer_size={};cache_lru={};bloom_bits_per_key={bits};block_size={};\
                 block_restart_interval={restart_interval};max_file_size={max_file_bytes};\
                 max_open_files={MAX_OPEN_FILES};compression=none;sync={sync}",
                config.memtable_bytes, config.cache_bytes, config.block_size
            ),
        }
    };
    store.base.check(error)?;
    Ok(Box::new(store))
}

impl Store for LeveldbStore {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.base.put(key, value)
    }

    fn get(&self, key: &[u8], see: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let (mut error, mut len) = (ptr::null_mut(), 0);
        // SAFETY: the handles are live; a non-null result is `len` bytes for the caller to free.
        unsafe {
            let value = (self.api.get)(
                self.base.db,
                self.base.read_options,
                key.as_ptr(),
                key.len(),
                &raw mut len,
                &raw mut error,
            );
            self.base.check(error)?;
            if value.is_null() {
                return Ok(false);
            }
            see(std::slice::from_raw_parts(value.cast(), len));
            (self.base.api.free)(value.cast());
        }
        Ok(true)
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.base.delete(key)
    }

    fn multi_get(&self, keys: &[Vec<u8>], see: &mut dyn FnMut(&[u8])) -> Result<usize> {
        let mut found = 0;
        for key in keys {
            found += usize::from(self.get(key, see)?);
        }
        Ok(found)
    }

    fn cursor(&self) -> Result<Box<dyn Cursor + '_>> {
        Ok(self.base.cursor())
    }

    /// A compaction of a range that holds nothing writes the memtable out and does no more.
    fn flush(&self) -> Result<()> {
        let past_all = [0xff; 64];
        // SAFETY: the handle is live and the bounds are read only during the call.
        unsafe {
            (self.api.compact_range)(
                self.base.db,
                past_all.as_ptr(),
                past_all.len(),
                past_all.as_ptr(),
                past_all.len(),
            );
        }
        Ok(())
    }

    /// LevelDB cannot be asked whether it is compacting; it is idle when the process has neither
    /// used the processor nor read or written for a second.
    fn settle(&self) -> Result<Instant> {
        let mut before = None;
        wait_until_idle(LONG_CALM_POLLS, || {
            let now = Totals::now()?;
            let idle = was_idle(before.as_ref(), &now);
            before = Some(now);
            Ok(idle)
        })
    }

    fn metadata_bytes(&self) -> Result<MetadataBytes> {
        Ok(MetadataBytes::default())
    }

    fn sorted_runs(&self) -> Result<Option<u64>> {
        Ok(self.base.sorted_runs("leveldb"))
    }

    fn merge_all(&self) -> Result<()> {
        self.flush()?;
        // SAFETY: the handle is live; null bounds mean all keys.
        unsafe { (self.api.compact_range)(self.base.db, ptr::null(), 0, ptr::null(), 0) };
        self.settle().map(drop)
    }

    fn stats_text(&self) -> String {
        self.base.property("leveldb.stats").unwrap_or_default()
    }

    fn options_text(&self) -> String {
        self.options.clone()
    }

    fn version(&self) -> String {
        // SAFETY: two functions without arguments or preconditions.
        unsafe { format!("{}.{}", (self.api.major_version)(), (self.api.minor_version)()) }
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_was_idle_if_it_did_nothing_since_the_poll_before() {
        let at = |cpu_s, read_bytes, written_bytes| Totals {
            cpu_s,
            read_bytes,
            written_bytes,
            ..Totals::default()
        };
        let now = at(1.0, 10, 20);
        assert!(!was_idle(None, &now), "nothing is known of the time before the first poll");
        assert!(was_idle(Some(&now), &at(1.001, 10, 20)));
        for busy in [at(1.01, 10, 20), at(1.0, 11, 20), at(1.0, 10, 21)] {
            assert!(!was_idle(Some(&now), &busy), "{busy:?}");
        }
    }
}
