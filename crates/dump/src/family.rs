//! What a dump says of a column family besides its entries: the name of its merge operator, and those of its options that are
//! not the default, as `compression=none,zstd;compaction=tiered`.

use crate::chunk::{MAJOR, MAJOR_WITH_OPERATORS, MAJOR_WITH_OPTIONS};
use crate::error::{Error, Result};
use terrace::{CfOptions, ColumnFamily, FAMILY_OPTIONS};

/// The option that is not among the others: its name is in a dump for itself, and need not be one that is built in.
const MERGE_OPERATOR: &str = "merge_operator";

/// A column family of a dump.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DumpedFamily {
    /// Its name.
    pub name: String,
    /// The name of its merge operator, if it has one.
    pub merge_operator: Option<String>,
    /// Those of its options that are not the default, as text, if there are any.
    pub options: Option<String>,
}

impl DumpedFamily {
    /// What there is to say of `family`.
    pub(crate) fn of(family: &ColumnFamily) -> Self {
        Self {
            name: family.name().into(),
            merge_operator: family.merge_operator().map(Into::into),
            options: changed(&family.options()),
        }
    }

    /// The lowest major version of a dump that can say it.
    pub(crate) fn major(&self) -> u16 {
        match (&self.options, &self.merge_operator) {
            (Some(_), _) => MAJOR_WITH_OPTIONS,
            (None, Some(_)) => MAJOR_WITH_OPERATORS,
            (None, None) => MAJOR,
        }
    }

    /// `options`, and among them those that the dump says.
    ///
    /// # Errors
    /// This build does not know one of them, or its value.
    pub(crate) fn options_over(&self, mut options: CfOptions) -> Result<CfOptions> {
        let refused = |why: String| {
            let what = format!("options of column family `{}` in the dump: {why}", self.name);
            Error::Unsupported(what)
        };
        for part in self.options.iter().flat_map(|text| text.split(';')) {
            match part.split_once('=') {
                Some((name, value)) if name != MERGE_OPERATOR => {
                    options.set_option(name, value).map_err(|error| refused(error.to_string()))?;
                }
                _ => return Err(refused(format!("`{part}` is none"))),
            }
        }
        Ok(options)
    }
}

/// In the order of [`FAMILY_OPTIONS`].
fn changed(options: &CfOptions) -> Option<String> {
    let defaults = CfOptions::default();
    let changed =
        FAMILY_OPTIONS.iter().filter(|name| **name != MERGE_OPERATOR).filter_map(|name| {
            let value =
                options.option(name).filter(|value| Some(value) != defaults.option(name).as_ref());
            Some(format!("{name}={}", value?))
        });
    let text = changed.collect::<Vec<String>>().join(";");
    (!text.is_empty()).then_some(text)
}
