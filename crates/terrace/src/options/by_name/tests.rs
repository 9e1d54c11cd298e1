//! Every option is said by its name, and comes back as text.

use super::*;

/// A text for each option that is not its default.
const OTHER: [(&str, &str); 37] = [
    ("sync", "interval:20"),
    ("memory_budget", "64MiB"),
    ("memory_split", "auto"),
    ("rate_limit_bytes_per_s", "10MiB"),
    ("gc_garbage_ratio", "0.5"),
    ("hot_table", "auto"),
    ("log_retention_bytes", "1GiB"),
    ("max_open_files", "100"),
    ("background_jobs", "3"),
    ("l0_compaction_trigger", "5"),
    ("l0_slowdown", "30"),
    ("l0_stop", "50"),
    ("level_base_bytes", "1GiB"),
    ("level_multiplier", "8.5"),
    ("target_file_bytes", "32MiB"),
    ("max_subcompactions", "4"),
    ("compact_when_idle", "0"),
    ("pending_compaction_slowdown_bytes", "1GiB"),
    ("level_model_files", "8"),
    ("reserve_bytes", "0"),
    ("max_reader_pinned_bytes", "1GiB"),
    ("create_if_missing", "false"),
    ("stored_options", "replace"),
    ("direct_reads", "true"),
    ("direct_writes", "1"),
    ("memtable_bytes", "1 MiB"),
    ("block_size", "8192"),
    ("metadata_block_size", "8KiB"),
    ("segment_bytes", "8MiB"),
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
fn every_option_changes_something_comes_back_as_text_and_refuses_nonsense() {
    assert_eq!(OPTIONS, OTHER.map(|(name, _)| name));
    let default = format!("{:?}", Options::default());
    for (name, text) in OTHER {
        let mut options = Options::default();
        options.set_option(name, text).unwrap();
        let changed = format!("{options:?}");
        assert_ne!(changed, default, "{name}");
        let (before, now) =
            (Options::default().option(name).unwrap(), options.option(name).unwrap());
        assert_ne!(before, now, "{name}");
        options.set_option(name, &before).unwrap();
        assert_eq!(format!("{options:?}"), default, "{name} is {before}");
        options.set_option(name, &now).unwrap();
        assert_eq!(format!("{options:?}"), changed, "{name} is {now}");
        for nonsense in ["", "x", "64QiB", "none,x", "0x10", "- 1"] {
            let error = options.set_option(name, nonsense).unwrap_err();
            assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
            assert!(error.to_string().contains(name), "{error}");
            assert_eq!(format!("{options:?}"), changed, "{name} is {nonsense}");
        }
    }
}

#[test]
fn other_names_are_refused_with_all_that_there_are() {
    let mut options = Options::default();
    let error = options.set_option("colour", "1").unwrap_err().to_string();
    assert!(OPTIONS.iter().all(|name| error.contains(name)), "{error}");
    let error = options.default_family.set_option("sync", "none").unwrap_err().to_string();
    assert!(FAMILY_OPTIONS.iter().all(|name| error.contains(name)), "{error}");
    assert!(options.option("colour").is_none() && options.default_family.option("sync").is_none());
}

#[test]
fn what_a_merge_is_made_of_changes_at_an_open_and_operators_are_not_stored() {
    assert!(!LIVE_OPTIONS.contains(&"compaction") && STORED.contains(&"compaction"));
    assert!(!LIVE_OPTIONS.contains(&"merge_operator") && !STORED.contains(&"merge_operator"));
    assert!(LIVE_OPTIONS.ends_with(&LIVE_FAMILY_OPTIONS) && OPTIONS.ends_with(&FAMILY_OPTIONS));
}
