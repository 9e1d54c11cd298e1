//! Opening RocksDB's and Speedb's databases: options, cache, table format.
#![allow(unsafe_code, reason = "calls into a C library")]

use super::options::options_string;
use super::{Api, PREFIX, RocksdbStore};
use crate::engine::c_database::{CDatabase, CommonApi, Handle};
use crate::engine::{Engine, c_library};
use crate::store::{Durability, EngineConfig, Store};
use anyhow::{Result, anyhow, bail, ensure};
use libloading::Library;
use std::ffi::{CString, c_int, c_uchar};
use std::path::Path;
use std::ptr;

/// Table formats, newest first; the first that the library knows is used.
const FORMAT_VERSIONS: [u32; 3] = [7, 6, 5];
/// `rocksdb_options_set_statistics_level`.
type SetLevel = unsafe extern "C" fn(Handle, c_int);
/// `rocksdb_statistics_level_except_histogram_or_timers`: nothing but tickers. Histograms and timers read the clock
/// in every operation.
const TICKERS_ONLY: c_int = 1;
/// A cache shard has at least this much, so that no block of metadata exceeds its shard.
const MIN_CACHE_SHARD_BYTES: usize = 32 << 20;
const MAX_CACHE_SHARD_BITS: c_int = 4;

/// Opens or creates the store in `dir` with the library at `library`.
pub fn open(
    engine: Engine,
    library: &Path,
    dir: &Path,
    config: &EngineConfig,
) -> Result<Box<dyn Store>> {
    let library = c_library::load(library)?;
    let api = Api::load(library, PREFIX)?;
    let shared = CommonApi::load(library, PREFIX)?;
    let mut last_error = anyhow!("no table format was tried");
    for format_version in FORMAT_VERSIONS {
        let options = options_string(config, format_version)?;
        match open_with(library, (api, shared), dir, config, &options) {
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

fn open_with(
    library: &'static Library,
    (api, shared): (Api, CommonApi),
    dir: &Path,
    config: &EngineConfig,
    options: &str,
) -> Result<RocksdbStore> {
    let path = c_library::c_path(dir)?;
    let text = CString::new(options)?;
    let (cache, cache_text) = make_cache(&api, config)?;
    let (mut parse_error, mut open_error) = (ptr::null_mut(), ptr::null_mut());
    let mut family: Handle = ptr::null_mut();
    // SAFETY: handles are used with functions of their type and destroyed once; the database
    // holds its own references to the cache and the table options.
    let (db, db_options, statistics) = unsafe {
        let base = (shared.options_create)();
        let statistics = match config.statistics {
            true => count_tickers(library, &api, base),
            false => "none",
        };
        let tables = (api.block_based_options_create)();
        (api.block_based_options_set_block_cache)(tables, cache);
        (api.options_set_block_based_table_factory)(base, tables);
        let merged = (shared.options_create)();
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
        (shared.options_destroy)(base);
        (api.block_based_options_destroy)(tables);
        (shared.cache_destroy)(cache);
        if db.is_null() {
            (shared.options_destroy)(merged);
        }
        (db, merged, statistics)
    };
    c_library::check(parse_error, shared.free)?;
    c_library::check(open_error, shared.free)?;
    ensure!(!db.is_null(), "rocksdb_open returned neither a database nor an error");
    let sync = config.sync == Durability::Batch;
    // SAFETY: the database was just opened, and holds references to what it uses.
    let base = unsafe { CDatabase::new(shared, db, sync) };
    // SAFETY: a setter on the object just made.
    unsafe {
        (api.readoptions_set_fill_cache)(base.read_options, c_uchar::from(config.fill_cache));
    }
    let store = RocksdbStore {
        api,
        library,
        base,
        db_options,
        family,
        statistics: config.statistics,
        blob_collection: blob_collection(config)?,
        options: format!(
            "{options};{cache_text};sync={sync};fill_cache={};statistics={statistics}",
            config.fill_cache
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

/// Has `options` count tickers, without measuring times where the library can do the one without the other; says what
/// is counted.
///
/// # Safety
/// `options` is a live options object of `library`.
unsafe fn count_tickers(library: &Library, api: &Api, options: Handle) -> &'static str {
    // SAFETY: setters on a live object; the signature is that of the library's public C header.
    unsafe {
        (api.options_enable_statistics)(options);
        match library.get::<SetLevel>(b"rocksdb_options_set_statistics_level") {
            Ok(set_level) => {
                set_level(options, TICKERS_ONLY);
                "tickers"
            }
            // Versions before 8.
            Err(_) => "all",
        }
    }
}

/// The values of [`super::BLOB_COLLECTION`], if there are blob files.
fn blob_collection(config: &EngineConfig) -> Result<Option<[CString; 2]>> {
    let set = |wanted: &str| {
        let found = config.extra.iter().rev().find(|(name, _)| name == wanted);
        found.map(|(_, value)| value.as_str())
    };
    if set("enable_blob_files") != Some("true") {
        return Ok(None);
    }
    // RocksDB's own defaults.
    let cutoff = set("blob_garbage_collection_age_cutoff").unwrap_or("0.25");
    let threshold = set("blob_garbage_collection_force_threshold").unwrap_or("1.0");
    Ok(Some([CString::new(cutoff)?, CString::new(threshold)?]))
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
