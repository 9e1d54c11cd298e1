//! How an option that cannot work is refused: with its name, its value and what it must be.

use crate::error::{Error, Result};
use std::fmt;
use terrace_sst::Compression;

/// Refuses an option unless it is `ok`, naming it, its value and what it must be.
pub(super) fn range(ok: bool, what: &str, got: &dyn fmt::Display, want: &str) -> Result<()> {
    match ok {
        true => Ok(()),
        false => Err(refusal(what, got, want)),
    }
}

/// Why an option is refused.
pub(crate) fn refusal(what: &str, got: &dyn fmt::Display, want: &str) -> Error {
    Error::InvalidArgument(format!("{what} is {got}; it must be {want}"))
}

/// The longest column family name, in bytes.
const MAX_FAMILY_NAME_BYTES: usize = 256;

/// Refuses names of column families that are empty or too long.
pub(crate) fn family_name(name: &str) -> Result<()> {
    match (1..=MAX_FAMILY_NAME_BYTES).contains(&name.len()) {
        true => Ok(()),
        false => Err(Error::InvalidArgument(format!(
            "a column family name has 1 to {MAX_FAMILY_NAME_BYTES} bytes, not {}",
            name.len()
        ))),
    }
}

/// Why the text of an option is refused that says none of what it can be.
pub(super) fn unreadable(name: &str, text: &str, want: &str) -> Error {
    refusal(name, &format_args!("{text:?}"), want)
}

/// Refuses compression by a codec that this build is without.
pub(super) fn built_in(what: &str, compression: Compression) -> Result<()> {
    let name = compression.name();
    let want = format!("built in: this build is without the feature `{name}`");
    range(compression.is_built_in(), what, &name, &want)
}
