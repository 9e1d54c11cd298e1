//! Compaction filters: a program's own rule for which entries flush and compaction keep. The words are
//! RocksDB's. The engine's side, which calls a filter and bears with it, is `background/filter.rs`.

use std::cell::{OnceCell, RefCell};
use std::fmt;
use terrace_base::key::EXPIRY_BYTES;
use terrace_base::{Result, ValueHandle, ValueKind};
use terrace_buf::Slice;

/// What becomes of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilterDecision {
    /// It stays as it is.
    Keep,
    /// The key is absent from now on, as if this version had been deleted: older versions do not come back.
    Remove,
    /// The entry has this value from now on; when it expires does not change. The value lies in the SST, whatever
    /// its length; one of more than [`MAX_VALUE_BYTES`](crate::MAX_VALUE_BYTES) is a failure of the filter.
    Change(Vec<u8>),
}

/// Why a filter cannot decide, in words for the event that is logged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterError(pub String);

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for FilterError {}

/// What writes the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FilterJob {
    /// A flush of memtables into L0.
    Flush,
    /// A compaction.
    Compaction,
}

/// The flush or compaction that asks a filter.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FilterContext {
    /// Name of the column family.
    pub family: String,
    /// What writes the files.
    pub job: FilterJob,
    /// The first level that is read; 0 for a flush.
    pub start_level: usize,
    /// The level that is written.
    pub output_level: usize,
    /// Whether every SST of the family is read: no other version of a key is in any file.
    pub is_full: bool,
    /// Whether `compact_range` asked for it.
    pub is_manual: bool,
}

/// Reads a separated value.
pub(crate) type ReadSeparated<'a> = dyn Fn(&[u8], ValueHandle) -> Result<Slice> + 'a;

/// An entry that a filter decides on: the newest version of its key in a flush or compaction.
pub struct FilterEntry<'a> {
    key: &'a [u8],
    expires_at_ms: Option<u64>,
    stored: &'a [u8],
    handle: Option<ValueHandle>,
    read: &'a ReadSeparated<'a>,
    value: OnceCell<Slice>,
    failed: RefCell<Option<terrace_base::Error>>,
}

impl<'a> FilterEntry<'a> {
    /// The entry of `kind`; `None` if it has no value, or not the bytes of one.
    pub(crate) fn new(
        key: &'a [u8],
        kind: ValueKind,
        stored: &'a [u8],
        read: &'a ReadSeparated<'a>,
    ) -> Option<Self> {
        let (expires_at_ms, rest) = match kind.expires() {
            true => {
                let (expiry, rest) = stored.split_first_chunk::<EXPIRY_BYTES>()?;
                (Some(u64::from_le_bytes(*expiry)), rest)
            }
            false => (None, stored),
        };
        let handle = match kind {
            ValueKind::Put | ValueKind::PutTtl => None,
            ValueKind::PutHandle | ValueKind::PutTtlHandle => {
                Some(ValueHandle::of_entry(kind, stored)?)
            }
            _ => return None,
        };
        let (value, failed) = (OnceCell::new(), RefCell::new(None));
        Some(Self { key, expires_at_ms, stored: rest, handle, read, value, failed })
    }

    /// The key.
    pub fn key(&self) -> &[u8] {
        self.key
    }

    /// The value. A separated one is read now, by one read of the device unless the cache has it; so ask only if
    /// the key does not decide.
    ///
    /// # Errors
    /// It cannot be read. Whatever the filter then says, the entry stays; but if the device refused the read, a
    /// compaction fails, and is tried again.
    pub fn value(&self) -> std::result::Result<&[u8], FilterError> {
        let Some(handle) = self.handle else { return Ok(self.stored) };
        if let Some(value) = self.value.get() {
            return Ok(value);
        }
        match (self.read)(self.key, handle) {
            Ok(value) => Ok(self.value.get_or_init(|| value)),
            Err(error) => {
                let why = FilterError(error.to_string());
                *self.failed.borrow_mut() = Some(error);
                Err(why)
            }
        }
    }

    /// Whether the value lies in the log, so that [`Self::value`] costs a read.
    pub fn is_separated(&self) -> bool {
        self.handle.is_some()
    }

    /// When the entry expires, in milliseconds since 1970.
    pub fn expires_at_ms(&self) -> Option<u64> {
        self.expires_at_ms
    }

    /// What went wrong while the value was read.
    pub(crate) fn read_error(self) -> Option<terrace_base::Error> {
        self.failed.into_inner()
    }
}

/// The value is not read for it.
impl fmt::Debug for FilterEntry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FilterEntry")
            .field("key", &self.key.escape_ascii().to_string())
            .field("expires_at_ms", &self.expires_at_ms)
            .field("is_separated", &self.is_separated())
            .finish_non_exhaustive()
    }
}

/// A program's rule for which entries of a column family are kept. Given in
/// [`CfOptions::compaction_filter`](crate::CfOptions::compaction_filter).
///
/// Compactions call it, and flushes if it wants, for the newest version of each key that they read, if that is a value:
/// not for tombstones, operands of merges, values that operands of the same job lie on, and values that have expired
/// or are covered by a range tombstone. Nothing is promised about when, or how often, an entry comes by: files that
/// only change their level are not read. After [`Db::compact_range`](crate::Db::compact_range) over a range, every
/// entry that was there has been asked about, unless a snapshot protects it.
///
/// What a snapshot sees does not change, by default: an entry that a live snapshot sees is not given to the filter,
/// and a job that has changed something while a snapshot was taken is repeated without the filter
/// ([`Self::ignores_snapshots`]).
///
/// It is called from several threads at once and must not call the store. If it returns an error, or panics, the entry
/// stays as it is; after a panic the job does not call it again. Metrics count both
/// (`compaction_filter_failures`), and the first of a job is logged.
///
/// ```
/// # fn main() -> terrace::Result<()> {
/// # let dir = std::env::temp_dir().join(format!("terrace-doc-filter-{}", std::process::id()));
/// use std::sync::Arc;
/// use terrace::{
///     CfOptions, CompactionFilter, Db, FilterContext, FilterDecision, FilterEntry, FilterError, Options,
/// };
///
/// /// Removes what belongs to sessions that have ended.
/// struct EndedSessions;
///
/// impl CompactionFilter for EndedSessions {
///     fn name(&self) -> &str {
///         "ended sessions"
///     }
///
///     fn filter(
///         &self,
///         _job: &FilterContext,
///         entry: &FilterEntry<'_>,
///     ) -> Result<FilterDecision, FilterError> {
///         if !entry.key().starts_with(b"session/") || entry.value()? != b"ended" {
///             return Ok(FilterDecision::Keep);
///         }
///         Ok(FilterDecision::Remove)
///     }
/// }
///
/// let default_family =
///     CfOptions { compaction_filter: Some(Arc::new(EndedSessions)), ..Default::default() };
/// let db = Db::open(&dir, Options { default_family, ..Default::default() })?;
/// db.put(b"session/1", b"ended")?;
/// db.put(b"session/2", b"active")?;
/// db.compact_range::<&[u8]>(..)?;
/// assert!(db.get(b"session/1")?.is_none());
/// assert!(db.get(b"session/2")?.is_some());
/// # db.close()?;
/// # std::fs::remove_dir_all(&dir).ok();
/// # Ok(())
/// # }
/// ```
pub trait CompactionFilter: Send + Sync {
    /// The name in events.
    fn name(&self) -> &str;

    /// What becomes of `entry`.
    ///
    /// # Errors
    /// It cannot be decided: the entry stays as it is.
    fn filter(
        &self,
        job: &FilterContext,
        entry: &FilterEntry<'_>,
    ) -> std::result::Result<FilterDecision, FilterError>;

    /// Whether `job` asks the filter at all; asked once, before it begins. The default is all compactions and no
    /// flush. A flush only makes a tombstone of what is removed, since older versions may lie below, but what
    /// is not written to L0 need not be merged down.
    fn applies_to(&self, job: &FilterContext) -> bool {
        job.job == FilterJob::Compaction
    }

    /// Whether entries that a snapshot sees are given to the filter as well, so that reads at a snapshot can find less
    /// than before (RocksDB: always so since 6.0). False by default. Only the newest version of a key is ever given
    /// to the filter; what older snapshots see of the key stays.
    fn ignores_snapshots(&self) -> bool {
        false
    }
}

/// The example of the page, compiled as a documentation test.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/compaction-filter.md")]
struct Page;

/// The filter's name.
impl fmt::Debug for dyn CompactionFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CompactionFilter({:?})", self.name())
    }
}

/// Filters are the same if they have the same name.
impl PartialEq for dyn CompactionFilter {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}
