//! The option that says what an open makes of the options that column families were stored with, and its text.

use super::words::spelled;

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

spelled!(StoredOptions, "stored_options", Keep = "keep", Replace = "replace");
