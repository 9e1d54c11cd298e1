//! LevelDB through its C API.
//!
//! LevelDB has one background thread, no direct I/O, and a C API whose `get` copies the value;
//! the adapter cannot change that and adds nothing.
#![allow(unsafe_code, reason = "calls into a C library")]

use crate::engine::c_library::{self, Lookup, c_api};
use crate::engine::wait_until_idle;
use crate::filter::PeerFilter;
use crate::store::{Compression, Cursor, Durability, EngineConfig, MetadataBytes, Store};
use anyhow::{Context, Result, bail};
use std::ffi::{CString, c_char, c_int, c_uchar, c_void};
use std::path::Path;
use std::ptr;
use terrace_workload::usage;

/// Where the library is found.
pub const LEVELDB: Lookup = Lookup {
    engine: "leveldb",
    variable: "TERRACE_LEVELDB_LIB",
    peer_files: &["libleveldb.so"],
    system_names: &["libleveldb.so.1d", "libleveldb.so.1", "libleveldb.so"],
    probe: "leveldb_open",
    advice: "Run `cargo xtask peers`, or `apt-get install libleveldb1d`",
};

/// SSTs of LevelDB are 2 MiB by default, which with a large memtable means hundreds of tiny
/// compactions; experts raise it.
const MAX_FILE_BYTES: usize = 32 << 20;
const MAX_OPEN_FILES: c_int = 5000;

type Handle = *mut c_void;
type ErrorOut = *mut *mut c_char;

c_api! {
    /// The functions of `leveldb/c.h` in use.
    Api, "leveldb_" {
        open(Handle, *const c_char, ErrorOut) -> Handle;
        close(Handle);
        put(Handle, Handle, *const u8, usize, *const u8, usize, ErrorOut);
        delete(Handle, Handle, *const u8, usize, ErrorOut);
        get(Handle, Handle, *const u8, usize, *mut usize, ErrorOut) -> *mut c_char;
        free(*mut c_void);
        property_value(Handle, *const c_char) -> *mut c_char;
        compact_range(Handle, *const u8, usize, *const u8, usize);
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
        cache_destroy(Handle);
        filterpolicy_create_bloom(c_int) -> Handle;
        filterpolicy_destroy(Handle);
        readoptions_create() -> Handle;
        readoptions_destroy(Handle);
        writeoptions_create() -> Handle;
        writeoptions_destroy(Handle);
        writeoptions_set_sync(Handle, c_uchar);
        major_version() -> c_int;
        minor_version() -> c_int;
    }
}

struct LeveldbStore {
    api: Api,
    db: Handle,
    read_options: Handle,
    write_options: Handle,
    cache: Handle,
    filter: Handle,
    options: String,
}

// SAFETY: leveldb's database, cache, filter and option objects may be used from any thread
// without external synchronisation (leveldb/db.h, doc/index.md "Concurrency").
unsafe impl Send for LeveldbStore {}
// SAFETY: as above.
unsafe impl Sync for LeveldbStore {}

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
    let api = Api::load(c_library::load(library, LEVELDB.probe)?)?;
    let path = c_library::c_path(dir)?;
    let mut error = ptr::null_mut();
    // SAFETY: every handle passed was made by the function of its type just above; the cache and
    // the filter policy outlive the database (destroyed after it in `close`).
    let store = unsafe {
        let options = (api.options_create)();
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
        (api.options_destroy)(options);
        let write_options = (api.writeoptions_create)();
        (api.writeoptions_set_sync)(write_options, c_uchar::from(config.sync == Durability::Batch));
        LeveldbStore {
            api,
            db,
            read_options: (api.readoptions_create)(),
            write_options,
            cache,
            filter,
            options: format!(
                "write_buffer_size={};cache_lru={};bloom_bits_per_key={bits};block_size={};\
                 block_restart_interval={restart_interval};max_file_size={max_file_bytes};\
                 max_open_files={MAX_OPEN_FILES};compression=none;sync={}",
                config.memtable_bytes,
                config.cache_bytes,
                config.block_size,
                config.sync == Durability::Batch
            ),
        }
    };
    c_library::check(error, api.free)?;
    Ok(Box::new(store))
}

impl LeveldbStore {
    fn property(&self, name: &str) -> Option<String> {
        let name = CString::new(name).ok()?;
        // SAFETY: the name is NUL-terminated; the result is null or a string for the caller to free.
        c_library::take_text(
            unsafe { (self.api.property_value)(self.db, name.as_ptr()) },
            self.api.free,
        )
    }
}

impl Store for LeveldbStore {
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
        // SAFETY: the handles are live; a non-null result is `len` bytes for the caller to free.
        unsafe {
            let value = (self.api.get)(
                self.db,
                self.read_options,
                key.as_ptr(),
                key.len(),
                &raw mut len,
                &raw mut error,
            );
            c_library::check(error, self.api.free)?;
            if value.is_null() {
                return Ok(false);
            }
            see(std::slice::from_raw_parts(value.cast(), len));
            (self.api.free)(value.cast());
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
        let mut found = 0;
        for key in keys {
            found += usize::from(self.get(key, see)?);
        }
        Ok(found)
    }

    fn cursor(&self) -> Result<Box<dyn Cursor + '_>> {
        // SAFETY: the handles are live, and the cursor's lifetime keeps the store open.
        let iter = unsafe { (self.api.create_iterator)(self.db, self.read_options) };
        Ok(Box::new(LeveldbCursor { api: &self.api, iter }))
    }

    /// A compaction of a range that holds nothing writes the memtable out and does no more.
    fn flush(&self) -> Result<()> {
        let past_all = [0xff; 64];
        // SAFETY: the handle is live and the bounds are read only during the call.
        unsafe {
            (self.api.compact_range)(
                self.db,
                past_all.as_ptr(),
                past_all.len(),
                past_all.as_ptr(),
                past_all.len(),
            );
        }
        Ok(())
    }

    /// LevelDB cannot be asked whether it is compacting; it is idle when the process has neither
    /// used the processor nor read or written for a while.
    fn settle(&self) -> Result<()> {
        let mut before = usage::Totals::now()?;
        wait_until_idle(|| {
            let now = usage::Totals::now()?;
            let idle = now.cpu_s - before.cpu_s < 0.002
                && now.written_bytes == before.written_bytes
                && now.read_bytes == before.read_bytes;
            before = now;
            Ok(idle)
        })
    }

    fn metadata_bytes(&self) -> Result<MetadataBytes> {
        Ok(MetadataBytes::default())
    }

    fn sort_values(&self) -> Result<()> {
        self.flush()?;
        // SAFETY: the handle is live; null bounds mean all keys.
        unsafe { (self.api.compact_range)(self.db, ptr::null(), 0, ptr::null(), 0) };
        self.settle()
    }

    fn stats_text(&self) -> String {
        self.property("leveldb.stats").unwrap_or_default()
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

impl Drop for LeveldbStore {
    fn drop(&mut self) {
        // SAFETY: each handle was made by the matching create function and is destroyed once, the
        // database before what it uses; cursors borrow the store, so none is left.
        unsafe {
            if !self.db.is_null() {
                (self.api.close)(self.db);
            }
            (self.api.readoptions_destroy)(self.read_options);
            (self.api.writeoptions_destroy)(self.write_options);
            (self.api.cache_destroy)(self.cache);
            if !self.filter.is_null() {
                (self.api.filterpolicy_destroy)(self.filter);
            }
        }
    }
}

struct LeveldbCursor<'a> {
    api: &'a Api,
    iter: Handle,
}

impl LeveldbCursor<'_> {
    fn status(&self) -> Result<()> {
        let mut error = ptr::null_mut();
        // SAFETY: the iterator is live.
        unsafe { (self.api.iter_get_error)(self.iter, &raw mut error) };
        c_library::check(error, self.api.free)
    }

    fn valid(&self) -> bool {
        // SAFETY: the iterator is live.
        unsafe { (self.api.iter_valid)(self.iter) != 0 }
    }
}

impl Cursor for LeveldbCursor<'_> {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        // SAFETY: the iterator is live and the key is read only during the call.
        unsafe { (self.api.iter_seek)(self.iter, key.as_ptr(), key.len()) };
        if self.valid() { Ok(()) } else { self.status() }
    }

    fn next(&mut self) -> Result<()> {
        // SAFETY: the iterator is live and, by this trait's contract, on an entry.
        unsafe { (self.api.iter_next)(self.iter) };
        if self.valid() { Ok(()) } else { self.status() }
    }

    fn entry(&self) -> Option<(&[u8], &[u8])> {
        if !self.valid() {
            return None;
        }
        let (mut key_len, mut value_len) = (0, 0);
        // SAFETY: the iterator is on an entry; its key and value live until it moves, and moving
        // it needs `&mut self`.
        unsafe {
            let key = (self.api.iter_key)(self.iter, &raw mut key_len);
            let value = (self.api.iter_value)(self.iter, &raw mut value_len);
            Some((
                std::slice::from_raw_parts(key, key_len),
                std::slice::from_raw_parts(value, value_len),
            ))
        }
    }
}

impl Drop for LeveldbCursor<'_> {
    fn drop(&mut self) {
        // SAFETY: made by create_iterator and destroyed once.
        unsafe { (self.api.iter_destroy)(self.iter) };
    }
}
