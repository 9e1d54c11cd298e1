//! Options of a column family of an open store: what they are, and changing them.

use super::{ColumnFamily, Db};
use crate::admin::families;
use crate::error::{Error, Result};
use crate::options::{CfOptions, LIVE_FAMILY_OPTIONS, STORED};

/// Changes one of [`LIVE_FAMILY_OPTIONS`] in `options`.
pub(super) fn set(options: &mut CfOptions, name: &str, value: &str) -> Result<()> {
    match LIVE_FAMILY_OPTIONS.contains(&name) {
        true => options.set_option(name, value),
        false => Err(Error::InvalidArgument(format!(
            "`{name}` of a column family cannot be changed while the store is open; these can: {}",
            LIVE_FAMILY_OPTIONS.join(", ")
        ))),
    }
}

/// Puts all that can change in `chosen` to what `options` have.
fn replace(chosen: &mut CfOptions, options: &CfOptions) -> Result<()> {
    if chosen.compaction != options.compaction {
        let text = "how a column family is merged cannot be changed while the store is open";
        return Err(Error::InvalidArgument(text.into()));
    }
    let CfOptions { merge_operator, compaction_filter, .. } = chosen.clone();
    *chosen = CfOptions { merge_operator, compaction_filter, ..options.clone() };
    Ok(())
}

impl Db {
    /// As [`ColumnFamily::set_options`], of all column families: of all of them, or of none. How each of them is merged
    /// stays, whatever `options` say of it.
    ///
    /// # Errors
    /// As [`ColumnFamily::set_option`].
    pub fn set_family_options(&self, options: &CfOptions) -> Result<()> {
        let change = |chosen: &mut CfOptions| {
            let compaction = chosen.compaction;
            replace(chosen, &CfOptions { compaction, ..options.clone() })
        };
        families::change_options(self.inner(), None, &change)
    }
}

impl ColumnFamily {
    /// The options that are in force: those of the open or the creation, or what was changed since.
    pub fn options(&self) -> CfOptions {
        let merge_operator = self.family.merge_operator().cloned();
        CfOptions { merge_operator, ..self.family.chosen() }
    }

    /// Changes one of [`LIVE_FAMILY_OPTIONS`] by its name, and stores it with the family. What is written from then on
    /// follows it; files and values that are there stay as they are until they are merged or overwritten.
    ///
    /// `compression` and `filter` are lists with commas, by level, of which the last entry serves all deeper levels;
    /// `prefix_len` and `value_separation_threshold` are numbers or `none`; `learning` is `build`, `analyze` or `off`.
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = std::env::temp_dir().join(format!("terrace-doc-cf-live-{}", std::process::id()));
    /// let db = terrace::Db::open(&dir, terrace::Options::default())?;
    /// db.default_family().set_option("filter", "ribbon:12,ribbon:8")?;
    /// db.close()?;
    /// let db = terrace::Db::open(&dir, terrace::Options::default())?;
    /// assert_eq!(db.default_family().option("filter").as_deref(), Some("ribbon:12,ribbon:8"));
    /// # db.close()?;
    /// # std::fs::remove_dir_all(&dir).ok();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument`: another name, or a value that no store opens with. `NoSuchFamily` if it was dropped. `DiskFull`
    /// and other errors of a write to the manifest: what was in force still is.
    pub fn set_option(&self, name: &str, value: &str) -> Result<()> {
        let change = |options: &mut CfOptions| set(options, name, value);
        families::change_options(self.inner(), Some(&self.family), &change)
    }

    /// Changes all of [`LIVE_FAMILY_OPTIONS`] together to what `options` have, and stores them with the family. The merge
    /// operator and the compaction filter stay as they are.
    ///
    /// # Errors
    /// As [`ColumnFamily::set_option`]; `InvalidArgument` too if `options` have another
    /// [`compaction`](CfOptions::compaction) than the family.
    pub fn set_options(&self, options: &CfOptions) -> Result<()> {
        let change = |chosen: &mut CfOptions| replace(chosen, options);
        families::change_options(self.inner(), Some(&self.family), &change)
    }

    /// What an option of the family is now, as [`ColumnFamily::set_option`] takes it, `compaction` too; `None`
    /// for other names.
    pub fn option(&self, name: &str) -> Option<String> {
        STORED.contains(&name).then(|| self.family.chosen().option(name))?
    }

    /// Values of at least this many bytes stay in the log from now on, and shorter ones in SSTs;
    /// `usize::MAX` turns separation off. What was written before stays as it is until it is
    /// overwritten.
    ///
    /// # Errors
    /// As [`ColumnFamily::set_option`].
    pub fn set_value_separation_threshold(&self, bytes: usize) -> Result<()> {
        let change = |options: &mut CfOptions| {
            options.value_separation_threshold = bytes;
            Ok(())
        };
        families::change_options(self.inner(), Some(&self.family), &change)
    }
}
