//! Options of a column family.

use super::refuse::{built_in, range};
use super::{CompactionStyle, DEFAULT_FILTER, DEFAULT_VALUE_SEPARATION_THRESHOLD, Learning};
use crate::compaction_filter::CompactionFilter;
use crate::error::{Error, Result};
use crate::merge_operator::{MAX_OPERATOR_NAME_BYTES, MergeOperator};
use std::sync::Arc;
use terrace_base::key::MAX_KEY_BYTES;
use terrace_sst::{Compression, FilterPolicy};

/// What can differ between column families of one store.
///
/// All of it but what is code, the merge operator and the compaction filter, is stored with the family: when it is
/// created, and whenever it changes. What an open says of a family wins, and is stored in its turn; where it says nothing,
/// the family has what is stored (RocksDB: `LoadLatestOptions`). It says something if it names the family, in
/// [`Options::column_families`](crate::Options::column_families) or by
/// [`Options::default_family`](crate::Options::default_family) for the default family, and any of the stored options that it gives
/// it is other than its default: then it says all of them, the defaults among them too. So an open with
/// `Options::default()` finds every family as it was, and to name one so that it is created if it is not there changes nothing
/// if it is. To put a family back to nothing but defaults, change its options while it is
/// open ([`ColumnFamily::set_option`](crate::ColumnFamily::set_option)), or open the store once with
/// [`StoredOptions::Replace`](crate::StoredOptions::Replace). [`ColumnFamily::options`](crate::ColumnFamily::options) says
/// what is in force.
///
/// Code is for the families that the open names with it. What [`Options::default_family`](crate::Options::default_family) has is
/// for the default family, and for others without a name only with [`StoredOptions::Replace`](crate::StoredOptions::Replace),
/// or, a merge operator, if it is the one that is stored with them.
#[derive(Debug, Clone, PartialEq)]
pub struct CfOptions {
    /// Block compression by level; the last entry serves all deeper levels. Default: none for
    /// L0 and L1, lz4 below (none in a build without the feature `lz4`).
    pub compression: Vec<Compression>,
    /// Filters by level; the last entry serves all deeper levels ([`DEFAULT_FILTER`] for all). As
    /// text: `"ribbon:10".parse()`; see [`FilterPolicy`].
    pub filter: Vec<FilterPolicy>,
    /// Filters also know the first this many bytes of every key, so that a scan of a prefix of at
    /// least this length skips SSTs without it ([`ReadOptions::prefix`](crate::ReadOptions)); at
    /// most [`MAX_KEY_BYTES`](crate::MAX_KEY_BYTES). `None`: whole keys only.
    pub prefix_len: Option<usize>,
    /// How SSTs are merged.
    pub compaction: CompactionStyle,
    /// Values of at least this many bytes are written once, to the log, and SSTs refer to them
    /// ([`DEFAULT_VALUE_SEPARATION_THRESHOLD`]); `usize::MAX` keeps all values in SSTs. Can be
    /// changed while the store is open:
    /// [`ColumnFamily::set_value_separation_threshold`](crate::ColumnFamily::set_value_separation_threshold).
    pub value_separation_threshold: usize,
    /// How separated values are compressed, each by itself (none).
    pub value_compression: Compression,
    /// When SSTs get a model ([`Learning::Build`]).
    pub learning: Learning,
    /// What [`Db::merge`](crate::Db::merge) does (none: it is refused). Its name is stored with the family at
    /// the first open with it, and stays: an open with an operator of another name is refused, and one with none,
    /// unless the stored name is that of a built-in operator, which is then used. A family with a
    /// merge operator has no hot table.
    pub merge_operator: Option<Arc<dyn MergeOperator>>,
    /// Which entries compactions remove or change (none). It is not stored: it applies while the store is open with it.
    /// A family with a compaction filter has no hot table.
    pub compaction_filter: Option<Arc<dyn CompactionFilter>>,
}

impl Default for CfOptions {
    fn default() -> Self {
        Self {
            compression: vec![Compression::None, Compression::None, Compression::default()],
            filter: vec![DEFAULT_FILTER],
            prefix_len: None,
            compaction: CompactionStyle::Leveled,
            value_separation_threshold: DEFAULT_VALUE_SEPARATION_THRESHOLD,
            value_compression: Compression::None,
            learning: Learning::default(),
            merge_operator: None,
            compaction_filter: None,
        }
    }
}

impl CfOptions {
    /// Refuses values that cannot work, naming the field, the value and the range.
    pub(crate) fn check(&self) -> Result<()> {
        range(!self.filter.is_empty(), "filter", &"empty", "one entry or more")?;
        for policy in &self.filter {
            policy.check().map_err(|e| Error::InvalidArgument(format!("filter: {e}")))?;
        }
        range(
            self.prefix_len.is_none_or(|len| (1..=MAX_KEY_BYTES).contains(&len)),
            "prefix_len",
            &self.prefix_len.unwrap_or(0),
            "1 to 65536, or none",
        )?;
        let name_bytes = self.merge_operator.as_ref().map_or(1, |operator| operator.name().len());
        range(
            (1..=MAX_OPERATOR_NAME_BYTES).contains(&name_bytes),
            "merge_operator",
            &format_args!("called by a name of {name_bytes} bytes"),
            "called by one of 1 to 256 bytes",
        )?;
        range(!self.compression.is_empty(), "compression", &"empty", "one entry or more")?;
        self.compression.iter().try_for_each(|codec| built_in("compression", *codec))?;
        built_in("value_compression", self.value_compression)
    }
}

/// The options of the pages, compiled as documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/filters.md")]
struct FiltersPage;

/// As [`FiltersPage`].
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/value-separation.md")]
struct ValuesPage;
