//! Options of a column family as one text, as the manifest keeps them (`docs/format/manifest.md`):
//! `compression=none,none,lz4;filter=ribbon:16`.

use super::CfOptions;
use super::by_name::STORED;
use crate::error::Result;
use terrace_manifest::MAX_OPTIONS_BYTES;

/// Between two options.
const BETWEEN: char = ';';

/// All of [`STORED`], as the manifest keeps them. Of `before`, what it has kept so far, those stay that this build does not
/// know, as far as there is room.
pub(crate) fn encode(options: &CfOptions, before: Option<&str>) -> String {
    let known = STORED.iter().filter_map(|name| Some(format!("{name}={}", options.option(name)?)));
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
        options.set_option(name, value)?;
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

#[cfg(test)]
mod tests;
