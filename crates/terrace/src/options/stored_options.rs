//! The option that says what an open makes of the options that column families were stored with, and its text.

use crate::error::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// What an open makes of the options that column families were stored with; see [`CfOptions`](crate::CfOptions).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StoredOptions {
    /// A family of which the open says nothing keeps them.
    #[default]
    Keep,
    /// Every family gets what the open says, and that is stored: those without an entry in
    /// [`column_families`](crate::Options::column_families) get
    /// [`default_family`](crate::Options::default_family), also if it has nothing but defaults. For programs
    /// that keep the options of their stores elsewhere, such as in a configuration file.
    Replace,
}

impl fmt::Display for StoredOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Keep => "keep",
            Self::Replace => "replace",
        })
    }
}

impl FromStr for StoredOptions {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let all = [Self::Keep, Self::Replace];
        all.into_iter().find(|choice| choice.to_string() == text).ok_or_else(|| {
            Error::InvalidArgument(format!(
                "stored_options is \"{text}\"; it must be keep or replace"
            ))
        })
    }
}
