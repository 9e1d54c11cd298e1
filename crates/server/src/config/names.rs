//! Options by their names: those of the table and those without effect.

use super::error::{ConfigError, nearest};
use super::table::{OPTIONS, OptionSpec};
use super::without_effect::WITHOUT_EFFECT;

/// Every option, those of the table first.
pub fn all_options() -> impl Iterator<Item = &'static OptionSpec> + Clone {
    OPTIONS.iter().chain(WITHOUT_EFFECT)
}

/// The option called `name`, in any case; also by its other name.
pub fn option(name: &str) -> Option<&'static OptionSpec> {
    all_options().find(|option| option.names().any(|known| known.eq_ignore_ascii_case(name)))
}

/// As [`option`], or an error with the name that was probably meant.
pub(super) fn required(name: &str) -> Result<&'static OptionSpec, ConfigError> {
    option(name).ok_or_else(|| ConfigError::Unknown {
        name: name.to_string(),
        nearest: nearest(name, all_options().flat_map(OptionSpec::names)),
    })
}
