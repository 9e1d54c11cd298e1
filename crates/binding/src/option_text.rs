//! Options by name and text, for callers that cannot fill Rust's structs. The names are those of
//! [`Options`], [`terrace::AdvancedOptions`] and [`CfOptions`]; what is out of range is refused by the open.

use crate::failure::{Failure, Outcome};
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use terrace::vfs::{PosixVfs, Vfs};
use terrace::{
    CfOptions, CompactionStyle, Compression, FilterPolicy, Learning, Options, ReadOptions,
    SyncMode, builtin_merge_operator,
};
use terrace_encryption::{EncryptedVfs, KeyRing};

/// The names that [`set_store_option`] takes.
pub const STORE_OPTIONS: [&str; 30] = [
    "memory_budget",
    "memory_split",
    "create_if_missing",
    "sync",
    "max_open_files",
    "background_jobs",
    "direct_reads",
    "direct_writes",
    "memtable_bytes",
    "hot_table",
    "block_size",
    "metadata_block_size",
    "l0_compaction_trigger",
    "l0_slowdown",
    "l0_stop",
    "level_base_bytes",
    "level_multiplier",
    "target_file_bytes",
    "max_subcompactions",
    "rate_limit_bytes_per_s",
    "compact_when_idle",
    "pending_compaction_slowdown_bytes",
    "reserve_bytes",
    "segment_bytes",
    "gc_garbage_ratio",
    "level_model_files",
    "log_retention_bytes",
    "max_reader_pinned_bytes",
    "stored_options",
    KEY_FILE_OPTION,
];

/// The name of the option whose value is a file of keys.
const KEY_FILE_OPTION: &str = "encryption_key_file";

/// The names that [`set_family_option`] takes.
pub const FAMILY_OPTIONS: [&str; 8] = [
    "compression",
    "filter",
    "prefix_len",
    "compaction",
    "value_separation_threshold",
    "value_compression",
    "learning",
    "merge_operator",
];

/// Sets the option `name` of a store, or of its default column family, to what `text` says.
///
/// Sizes are bytes, or have a unit: `64MiB`. `sync` is `none`, `buffered`, `batch` or `interval:` with
/// milliseconds. `encryption_key_file` names a file of keys, which is read at once.
///
/// # Errors
/// An unknown name; a file that has no keys; text that is none of what the option can be.
pub fn set_store_option(options: &mut Options, name: &str, text: &str) -> Outcome<()> {
    let advanced = &mut options.advanced;
    match name {
        "memory_budget" => options.memory_budget = size(name, text)?,
        "memory_split" => advanced.memory_split = text.parse().map_err(Failure::from)?,
        "create_if_missing" => options.create_if_missing = flag(name, text)?,
        "sync" => options.sync = parse_sync(text)?,
        "max_open_files" => options.max_open_files = number(name, text)?,
        "background_jobs" => options.background_jobs = number(name, text)?,
        "direct_reads" => options.direct_io.reads = flag(name, text)?,
        "direct_writes" => options.direct_io.writes = flag(name, text)?,
        "memtable_bytes" => advanced.memtable_bytes = size(name, text)?,
        "hot_table" => advanced.hot_table = text.parse().map_err(Failure::from)?,
        "block_size" => advanced.block_size = size(name, text)?,
        "metadata_block_size" => advanced.metadata_block_size = size(name, text)?,
        "l0_compaction_trigger" => advanced.l0_compaction_trigger = number(name, text)?,
        "l0_slowdown" => advanced.l0_slowdown = number(name, text)?,
        "l0_stop" => advanced.l0_stop = number(name, text)?,
        "level_base_bytes" => advanced.level_base_bytes = size(name, text)?,
        "level_multiplier" => advanced.level_multiplier = number(name, text)?,
        "target_file_bytes" => advanced.target_file_bytes = size(name, text)?,
        "max_subcompactions" => advanced.max_subcompactions = number(name, text)?,
        "rate_limit_bytes_per_s" => advanced.rate_limit_bytes_per_s = size(name, text)?,
        "compact_when_idle" => advanced.compact_when_idle = flag(name, text)?,
        "pending_compaction_slowdown_bytes" => {
            advanced.pending_compaction_slowdown_bytes = size(name, text)?;
        }
        "reserve_bytes" => advanced.reserve_bytes = size(name, text)?,
        "segment_bytes" => advanced.segment_bytes = size(name, text)?,
        "gc_garbage_ratio" => advanced.gc_garbage_ratio = number(name, text)?,
        "level_model_files" => advanced.level_model_files = number(name, text)?,
        "log_retention_bytes" => advanced.log_retention_bytes = size(name, text)?,
        "max_reader_pinned_bytes" => {
            advanced.max_reader_pinned_bytes = unless_none(text, |text| size(name, text))?;
        }
        "stored_options" => options.stored_options = text.parse().map_err(Failure::from)?,
        KEY_FILE_OPTION => advanced.vfs = encrypted_vfs(text.as_ref())?,
        _ if FAMILY_OPTIONS.contains(&name) => {
            return set_family_option(&mut options.default_family, name, text);
        }
        _ => {
            let all = [&STORE_OPTIONS[..], &FAMILY_OPTIONS[..]].concat().join(", ");
            return Err(Failure::argument(format!("there is no option `{name}`, but {all}")));
        }
    }
    Ok(())
}

/// The file system of what is encrypted with the keys in `key_file`, which is read at once: a store, a directory of backups,
/// sorted files.
///
/// # Errors
/// A file that is missing or has no keys; the message names the option `encryption_key_file`.
pub fn encrypted_vfs(key_file: &Path) -> Outcome<Arc<dyn Vfs>> {
    let refused = |error| Failure::argument(format!("{KEY_FILE_OPTION}: {error}"));
    let keys = KeyRing::load(key_file).map_err(refused)?;
    Ok(Arc::new(EncryptedVfs::new(PosixVfs::shared(), keys)))
}

/// Sets the option `name` of a column family to what `text` says. `compression` and `filter` are lists with
/// commas, by level, of which the last entry serves all deeper levels.
///
/// # Errors
/// As [`set_store_option`].
pub fn set_family_option(options: &mut CfOptions, name: &str, text: &str) -> Outcome<()> {
    match name {
        "compression" => options.compression = list(text, |text| compression(name, text))?,
        "filter" => {
            options.filter = list(text, |text| {
                text.parse::<FilterPolicy>().map_err(|e| Failure::argument(format!("filter: {e}")))
            })?;
        }
        "prefix_len" => options.prefix_len = unless_none(text, |text| number(name, text))?,
        "compaction" => {
            options.compaction = match text {
                "leveled" => CompactionStyle::Leveled,
                "tiered" => CompactionStyle::Tiered,
                _ => return Err(refusal(name, text, "leveled or tiered")),
            };
        }
        "value_separation_threshold" => {
            let threshold = unless_none(text, |text| size(name, text))?;
            options.value_separation_threshold = threshold.unwrap_or(usize::MAX);
        }
        "value_compression" => options.value_compression = compression(name, text)?,
        "learning" => {
            options.learning = match text {
                "build" => Learning::Build,
                "analyze" => Learning::Analyze,
                "off" => Learning::Off,
                _ => return Err(refusal(name, text, "build, analyze or off")),
            };
        }
        "merge_operator" => {
            let wants = "counter, max, append, append: and a separator, or none";
            options.merge_operator = unless_none(text, |text| {
                builtin_merge_operator(text).ok_or_else(|| refusal(name, text, wants))
            })?;
        }
        _ => {
            let all = FAMILY_OPTIONS.join(", ");
            let text = format!("there is no option `{name}` of column families, but {all}");
            return Err(Failure::argument(text));
        }
    }
    Ok(())
}

/// Sets the option `name` of reads: `fill_cache`, `in_memory`, `keys_only` or `readahead_bytes`.
///
/// # Errors
/// As [`set_store_option`].
pub fn set_read_option(options: &mut ReadOptions, name: &str, text: &str) -> Outcome<()> {
    match name {
        "fill_cache" => options.fill_cache = flag(name, text)?,
        "in_memory" => options.in_memory = flag(name, text)?,
        "keys_only" => options.keys_only = flag(name, text)?,
        "readahead_bytes" => options.readahead_bytes = size(name, text)?,
        _ => {
            let all = "fill_cache, in_memory, keys_only, readahead_bytes";
            let text = format!("there is no option `{name}` of reads, but {all}");
            return Err(Failure::argument(text));
        }
    }
    Ok(())
}

/// When a write is durable: `none`, `buffered`, `batch` or `interval:` with milliseconds.
///
/// # Errors
/// Any other text.
pub fn parse_sync(text: &str) -> Outcome<SyncMode> {
    let interval = |text: &str| text.strip_prefix("interval:")?.parse().ok();
    match text {
        "none" => Ok(SyncMode::None),
        "buffered" => Ok(SyncMode::Buffered),
        "batch" => Ok(SyncMode::Batch),
        _ => match interval(text) {
            Some(ms) => Ok(SyncMode::Interval(Duration::from_millis(ms))),
            None => Err(refusal("sync", text, "none, buffered, batch or interval:<ms>")),
        },
    }
}

/// Bytes: a number, or one with a unit of 1024 (`64MiB`, `64 MiB`). `None` if it is neither.
pub fn parse_size(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim_start() {
        "" | "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        "TiB" => 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

fn size<T: TryFrom<u64>>(name: &str, text: &str) -> Outcome<T> {
    let bytes = parse_size(text).and_then(|bytes| T::try_from(bytes).ok());
    bytes.ok_or_else(|| refusal(name, text, "a number of bytes, such as 65536 or 64MiB"))
}

fn number<T: FromStr>(name: &str, text: &str) -> Outcome<T> {
    text.parse().map_err(|_| refusal(name, text, "a number"))
}

fn flag(name: &str, text: &str) -> Outcome<bool> {
    match text {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err(refusal(name, text, "true or false")),
    }
}

fn compression(name: &str, text: &str) -> Outcome<Compression> {
    let all = [Compression::None, Compression::Lz4, Compression::Zstd];
    let found = all.into_iter().find(|compression| compression.name() == text);
    found.ok_or_else(|| refusal(name, text, "none, lz4 or zstd"))
}

fn list<T>(text: &str, parse: impl Fn(&str) -> Outcome<T>) -> Outcome<Vec<T>> {
    text.split(',').map(|part| parse(part.trim())).collect()
}

fn unless_none<T>(text: &str, parse: impl Fn(&str) -> Outcome<T>) -> Outcome<Option<T>> {
    if text == "none" { Ok(None) } else { parse(text).map(Some) }
}

fn refusal(name: &str, text: &str, allowed: &str) -> Failure {
    Failure::argument(format!("{name} is \"{text}\"; it must be {allowed}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A text for each option that is not its default.
    const OTHER: [(&str, &str); 37] = [
        ("memory_budget", "64MiB"),
        ("memory_split", "auto"),
        ("create_if_missing", "false"),
        ("sync", "interval:20"),
        ("max_open_files", "100"),
        ("background_jobs", "3"),
        ("direct_reads", "true"),
        ("direct_writes", "1"),
        ("memtable_bytes", "1 MiB"),
        ("hot_table", "auto"),
        ("block_size", "8192"),
        ("metadata_block_size", "8KiB"),
        ("l0_compaction_trigger", "5"),
        ("l0_slowdown", "30"),
        ("l0_stop", "50"),
        ("level_base_bytes", "1GiB"),
        ("level_multiplier", "8.5"),
        ("target_file_bytes", "32MiB"),
        ("max_subcompactions", "4"),
        ("rate_limit_bytes_per_s", "10MiB"),
        ("compact_when_idle", "0"),
        ("pending_compaction_slowdown_bytes", "1GiB"),
        ("reserve_bytes", "0"),
        ("segment_bytes", "8MiB"),
        ("gc_garbage_ratio", "0.5"),
        ("level_model_files", "8"),
        ("log_retention_bytes", "1GiB"),
        ("max_reader_pinned_bytes", "1GiB"),
        ("stored_options", "replace"),
        ("compression", "none, lz4,zstd"),
        ("filter", "bloom:10,none"),
        ("prefix_len", "4"),
        ("compaction", "tiered"),
        ("value_separation_threshold", "none"),
        ("value_compression", "zstd"),
        ("learning", "analyze"),
        ("merge_operator", "append:, "),
    ];

    #[test]
    fn every_option_changes_something_and_refuses_nonsense() {
        let names = STORE_OPTIONS.iter().chain(&FAMILY_OPTIONS).copied();
        // It has a test of its own: its file must be there.
        let names: Vec<_> = names.filter(|name| *name != "encryption_key_file").collect();
        assert_eq!(names, OTHER.map(|(name, _)| name));
        let default = format!("{:?}", Options::default());
        for (name, text) in OTHER {
            let mut options = Options::default();
            set_store_option(&mut options, name, text).unwrap();
            assert_ne!(format!("{options:?}"), default, "{name}");
            for nonsense in ["", "x", "64QiB", "none,x", "0x10", "- 1"] {
                let failure = set_store_option(&mut options, name, nonsense).unwrap_err();
                let knows = failure.message.contains(name.trim_end_matches('s'));
                assert!(knows && failure.code == crate::Code::InvalidArgument, "{failure}");
            }
        }
        let failure = set_store_option(&mut Options::default(), "colour", "1").unwrap_err();
        assert!(failure.message.contains("memory_budget, "), "{failure}");
        assert!(set_family_option(&mut CfOptions::default(), "sync", "none").is_err());
    }

    #[test]
    fn a_key_file_encrypts_the_store_or_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys");
        std::fs::write(&path, format!("1 {}\n", "0123456789abcdef".repeat(4))).unwrap();
        let mut options = Options::default();
        assert!(!options.advanced.vfs.is_encrypted());
        set_store_option(&mut options, "encryption_key_file", path.to_str().unwrap()).unwrap();
        assert!(options.advanced.vfs.is_encrypted());
        std::fs::write(&path, "1 abc\n").unwrap();
        for file in [path.to_str().unwrap(), "", "/nowhere"] {
            let failure = set_store_option(&mut options, "encryption_key_file", file).unwrap_err();
            assert!(failure.message.contains("encryption_key_file: "), "{failure}");
            assert_eq!(failure.code, crate::Code::InvalidArgument);
        }
    }

    #[test]
    fn options_of_reads() {
        let mut options = ReadOptions::default();
        for (name, text) in [
            ("fill_cache", "false"),
            ("in_memory", "true"),
            ("keys_only", "1"),
            ("readahead_bytes", "64KiB"),
        ] {
            set_read_option(&mut options, name, text).unwrap();
            assert!(set_read_option(&mut options, name, "x").is_err(), "{name}");
        }
        assert!(!options.fill_cache && options.in_memory && options.keys_only);
        assert_eq!(options.readahead_bytes, 64 << 10);
        assert!(set_read_option(&mut options, "prefix", "a").is_err());
    }

    #[test]
    fn sizes() {
        for (text, bytes) in [("7", 7), ("7B", 7), ("2 KiB", 2048), ("3TiB", 3 << 40)] {
            assert_eq!(parse_size(text), Some(bytes), "{text}");
        }
        for text in ["", "KiB", "1.5MiB", "1MB", "18446744073709551615KiB", "+1", " 1"] {
            assert_eq!(parse_size(text), None, "{text}");
        }
    }
}
