//! What is stored of options is what comes back.

use super::*;
use crate::error::Error;
use crate::options::{CompactionStyle, DEFAULT_FILTER, Learning};
use proptest::prelude::*;
use terrace_manifest::LEVEL_COUNT;
use terrace_sst::{Compression, FilterPolicy};

fn codecs() -> impl Strategy<Value = Vec<Compression>> {
    let all = vec![Compression::None, Compression::Lz4, Compression::Zstd];
    proptest::collection::vec(proptest::sample::select(all), 1..LEVEL_COUNT + 3)
}

fn filters() -> impl Strategy<Value = Vec<FilterPolicy>> {
    let policy = prop_oneof![
        Just(FilterPolicy::None),
        (2u8..=32).prop_map(|columns| FilterPolicy::Ribbon { columns }),
        (1.0..=64.0, 1u8..=32)
            .prop_map(|(bits_per_unit, units)| FilterPolicy::Bloom { bits_per_unit, units }),
        (1.0..=64.0, 1u8..=32)
            .prop_map(|(bits_per_unit, units)| FilterPolicy::BlockedBloom { bits_per_unit, units }),
        (1.0..=64.0, 1u8..=32)
            .prop_map(|(bits_per_unit, units)| FilterPolicy::PairedBloom { bits_per_unit, units }),
    ];
    proptest::collection::vec(policy, 1..LEVEL_COUNT + 3)
}

prop_compose! {
    fn options()(
        compression in codecs(),
        filter in filters(),
        prefix_len in proptest::option::of(1usize..65_536),
        is_tiered: bool,
        value_separation_threshold in prop_oneof![Just(usize::MAX), any::<usize>()],
        value_compression in codecs(),
        learning in proptest::sample::select(vec![Learning::Build, Learning::Analyze, Learning::Off]),
    ) -> CfOptions {
        CfOptions {
            compression,
            filter,
            prefix_len,
            compaction: match is_tiered {
                true => CompactionStyle::Tiered,
                false => CompactionStyle::Leveled,
            },
            value_separation_threshold,
            value_compression: value_compression[0],
            learning,
            ..CfOptions::default()
        }
    }
}

/// What the levels get of them.
fn for_levels(options: &CfOptions) -> CfOptions {
    let mut options = options.clone();
    options.compression.truncate(LEVEL_COUNT);
    options.filter.truncate(LEVEL_COUNT);
    options
}

proptest! {
    #[test]
    fn all_options_come_back_and_fit(options in options()) {
        let text = encode(&options, None);
        prop_assert!(text.len() <= MAX_OPTIONS_BYTES / 2, "{}", text);
        prop_assert_eq!(decode(&text).unwrap(), for_levels(&options));
        for name in STORED {
            let value = options.option(name).unwrap();
            let mut one = CfOptions::default();
            one.set_option(name, &value).unwrap();
            prop_assert_eq!(one.option(name), Some(value));
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in ".{0,64}", name in proptest::sample::select(STORED.to_vec())) {
        let _ = decode(&text);
        let _ = decode(&format!("{name}={text}"));
    }
}

#[test]
fn what_is_not_said_has_its_default_and_unknown_names_are_kept() {
    let found = decode("learning=off;colour=red;;nothing").unwrap();
    assert_eq!(found, CfOptions { learning: Learning::Off, ..CfOptions::default() });
    let text = encode(&found, Some("colour=red;learning=build;shape=round"));
    assert!(text.ends_with(";learning=off;colour=red;shape=round"), "{text}");
    assert_eq!(encode(&found, Some(&text)), text);
    let long = format!("colour={}", "r".repeat(MAX_OPTIONS_BYTES));
    assert_eq!(encode(&found, Some(&long)), encode(&found, None));
}

#[test]
fn values_of_later_builds_are_refused_by_their_names() {
    for (text, name) in [
        ("compression=none,brotli", "compression"),
        ("filter=cuckoo:8", "filter"),
        ("prefix_len=-1", "prefix_len"),
        ("compaction=lazy", "compaction"),
        ("value_separation_threshold=much", "value_separation_threshold"),
        ("value_compression=", "value_compression"),
        ("learning=deep", "learning"),
    ] {
        let error = decode(text).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
        assert!(error.to_string().contains(name), "{error}");
    }
}

#[test]
fn operators_and_filters_are_code_and_no_options_of_their_own() {
    let operator = crate::merge_operator::builtin_merge_operator("counter");
    let mut options = CfOptions { merge_operator: operator, ..CfOptions::default() };
    assert!(are_defaults(&options));
    options.filter = vec![DEFAULT_FILTER; 2];
    assert!(!are_defaults(&options));
}

/// A new field is stored, or named here as one that is not.
#[test]
fn every_field_is_stored_or_code() {
    let shown = format!("{:?}", CfOptions::default());
    let fields = ["merge_operator", "compaction_filter"].into_iter().chain(STORED);
    let fields: Vec<&str> = fields.collect();
    let found = shown.matches(": ").count();
    assert!(fields.iter().all(|field| shown.contains(&format!("{field}: "))), "{shown}");
    assert_eq!(found, fields.len() + shown.matches("columns: ").count(), "{shown}");
}
