//! Options of a column family as text: by name, as callers say them, and all together, as the manifest keeps them
//! (`docs/format/manifest.md`): `compression=none,none,lz4;filter=ribbon:16`.

use super::refuse::refusal;
use super::{CfOptions, CompactionStyle, Learning};
use crate::error::{Error, Result};
use std::str::FromStr;
use terrace_manifest::{LEVEL_COUNT, MAX_OPTIONS_BYTES};
use terrace_sst::{Compression, FilterPolicy};

/// The options that are stored, in this order.
pub(crate) const STORED: [&str; 7] = [
    "compression",
    "filter",
    "prefix_len",
    "compaction",
    "value_separation_threshold",
    "value_compression",
    "learning",
];

/// Between two options.
const BETWEEN: char = ';';

/// What option `name` is, as [`set`] takes it; `None` for what is not among [`STORED`].
pub(crate) fn get(options: &CfOptions, name: &str) -> Option<String> {
    Some(match name {
        "compression" => list(&options.compression, |codec| codec.name().to_string()),
        "filter" => list(&options.filter, FilterPolicy::to_string),
        "prefix_len" => options.prefix_len.map_or("none".into(), |len| len.to_string()),
        "compaction" => match options.compaction {
            CompactionStyle::Leveled => "leveled".into(),
            CompactionStyle::Tiered => "tiered".into(),
        },
        "value_separation_threshold" => match options.value_separation_threshold {
            usize::MAX => "none".into(),
            bytes => bytes.to_string(),
        },
        "value_compression" => options.value_compression.name().into(),
        "learning" => match options.learning {
            Learning::Build => "build".into(),
            Learning::Analyze => "analyze".into(),
            Learning::Off => "off".into(),
        },
        _ => return None,
    })
}

/// Sets one of [`STORED`]. `compression` and `filter` are lists with commas, by level.
///
/// # Errors
/// `InvalidArgument`: another name, or text that is none of what the option can be. Whether it is in range,
/// [`CfOptions::check`] says.
pub(crate) fn set(options: &mut CfOptions, name: &str, text: &str) -> Result<()> {
    match name {
        "compression" => options.compression = parse_list(text, |text| codec(name, text))?,
        "filter" => options.filter = parse_list(text, filter)?,
        "prefix_len" => options.prefix_len = unless_none(name, text)?,
        "compaction" => {
            options.compaction = match text {
                "leveled" => CompactionStyle::Leveled,
                "tiered" => CompactionStyle::Tiered,
                _ => return Err(refusal(name, &text, "leveled or tiered")),
            };
        }
        "value_separation_threshold" => {
            options.value_separation_threshold = unless_none(name, text)?.unwrap_or(usize::MAX);
        }
        "value_compression" => options.value_compression = codec(name, text)?,
        "learning" => {
            options.learning = match text {
                "build" => Learning::Build,
                "analyze" => Learning::Analyze,
                "off" => Learning::Off,
                _ => return Err(refusal(name, &text, "build, analyze or off")),
            };
        }
        _ => {
            let all = STORED.join(", ");
            let text = format!("there is no option `{name}` of column families, but {all}");
            return Err(Error::InvalidArgument(text));
        }
    }
    Ok(())
}

/// All of [`STORED`], as the manifest keeps them. Of `before`, what it has kept so far, those stay that this build does not
/// know, as far as there is room.
pub(crate) fn encode(options: &CfOptions, before: Option<&str>) -> String {
    let known = STORED.iter().filter_map(|name| Some(format!("{name}={}", get(options, name)?)));
    let mut text = known.collect::<Vec<String>>().join(&BETWEEN.to_string());
    for (name, value) in before.into_iter().flat_map(parts) {
        let more_bytes = BETWEEN.len_utf8() + name.len() + "=".len() + value.len();
        if !STORED.contains(&name) && text.len() + more_bytes <= MAX_OPTIONS_BYTES {
            text.push(BETWEEN);
            text.push_str(&format!("{name}={value}"));
        }
    }
    text
}

/// What [`encode`] has made of options; what it does not say has its default, and names that this build does not know are
/// ignored. There are no operators and filters in it.
///
/// # Errors
/// `InvalidArgument`: a value that this build does not know.
pub(crate) fn decode(text: &str) -> Result<CfOptions> {
    let mut options = CfOptions::default();
    for (name, value) in parts(text).filter(|(name, _)| STORED.contains(name)) {
        set(&mut options, name, value)?;
    }
    Ok(options)
}

/// Whether the options that are stored are all as they are where nothing is said.
pub(crate) fn are_defaults(options: &CfOptions) -> bool {
    encode(options, None) == encode(&CfOptions::default(), None)
}

fn parts(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split(BETWEEN).filter_map(|part| part.split_once('='))
}

/// Entries beyond the last level say nothing.
fn list<T>(entries: &[T], show: impl Fn(&T) -> String) -> String {
    entries.iter().take(LEVEL_COUNT).map(show).collect::<Vec<String>>().join(",")
}

fn parse_list<T>(text: &str, parse: impl Fn(&str) -> Result<T>) -> Result<Vec<T>> {
    text.split(',').map(|entry| parse(entry.trim())).collect()
}

fn filter(text: &str) -> Result<FilterPolicy> {
    text.parse().map_err(|error| Error::InvalidArgument(format!("filter: {error}")))
}

fn codec(name: &str, text: &str) -> Result<Compression> {
    let all = [Compression::None, Compression::Lz4, Compression::Zstd];
    let found = all.into_iter().find(|codec| codec.name() == text);
    found.ok_or_else(|| refusal(name, &text, "none, lz4 or zstd"))
}

fn unless_none<T: FromStr>(name: &str, text: &str) -> Result<Option<T>> {
    match text {
        "none" => Ok(None),
        _ => text.parse().map(Some).map_err(|_| refusal(name, &text, "a number, or none")),
    }
}

#[cfg(test)]
mod tests;
