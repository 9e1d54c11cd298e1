//! What a store tells a program about its work, as typed values: the facts of the events that are logged. How they get
//! to a listener is `env/notify.rs`.

use crate::error::{Error, ErrorSeverity};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// An SST.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SstInfo {
    /// Its number, by which its file is named.
    pub number: u64,
    /// The level that it lies in.
    pub level: usize,
    /// Its length.
    pub size_bytes: u64,
    /// Its entries.
    pub entry_count: u64,
}

/// A memtable became immutable; it waits for its flush.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemtableSealed {
    /// Name of the column family.
    pub family: String,
    /// Entries in it.
    pub entry_count: u64,
    /// Memory that it takes.
    pub size_bytes: u64,
}

/// A flush begins.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FlushBegun {
    /// Number of the job, which its end has as well.
    pub job: u64,
    /// Name of the column family.
    pub family: String,
    /// Memtables that it makes one SST of.
    pub memtables: usize,
    /// Entries in them.
    pub entry_count: u64,
}

/// A flush has ended. If it failed it is tried again, as another job.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct FlushEnded {
    /// As in [`FlushBegun`].
    pub job: u64,
    /// Name of the column family.
    pub family: String,
    /// What was written: one file, or none if nothing of the memtables was left.
    pub files: Vec<SstInfo>,
    /// How long it took.
    pub took: Duration,
    /// Why it failed.
    pub error: Option<Error>,
}

/// A compaction begins.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompactionBegun {
    /// Number of the job, which its end has as well.
    pub job: u64,
    /// Name of the column family.
    pub family: String,
    /// Why it is done: `l0-files`, `l0-backlog`, `level-size`, `tombstones`, `ttl`, `values`, `idle`, `manual`,
    /// `run-count`, `size-ratio` or `space-amplification`.
    pub reason: &'static str,
    /// What it reads.
    pub inputs: Vec<SstInfo>,
    /// The level that it writes.
    pub output_level: usize,
    /// Whether files only change their level: nothing is read or written.
    pub is_move: bool,
}

/// A compaction has ended. If it failed nothing has changed, and it is tried again.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CompactionEnded {
    /// As in [`CompactionBegun`].
    pub job: u64,
    /// Name of the column family.
    pub family: String,
    /// As in [`CompactionBegun`].
    pub reason: &'static str,
    /// What it wrote, or moved.
    pub outputs: Vec<SstInfo>,
    /// Bytes read and written, those of separated values that were moved among them.
    pub read_bytes: u64,
    /// See `read_bytes`.
    pub written_bytes: u64,
    /// How long it took.
    pub took: Duration,
    /// Why it failed.
    pub error: Option<Error>,
}

/// How writes go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum StallCondition {
    /// As fast as they come.
    #[default]
    Normal,
    /// Slowed.
    Slowed,
    /// Not at all, until background work has caught up.
    Stopped,
}

/// Writes are slowed, stopped, or no longer so. Found out when something is written, and when the family is dropped: of a
/// store to which nothing is written the last condition stays.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StallChanged {
    /// Name of the column family that writes wait for; all writes to it wait, and those behind them.
    pub family: String,
    /// The condition before.
    pub before: StallCondition,
    /// The condition now.
    pub now: StallCondition,
    /// Name of the [`StallCause`](crate::StallCause), unless the condition is normal.
    pub cause: Option<&'static str>,
}

/// Background work failed, or a failure has stopped writes.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct BackgroundError {
    /// What failed, in words.
    pub doing: String,
    /// The error.
    pub error: Error,
    /// How bad it is.
    pub severity: ErrorSeverity,
}

/// An SST is part of the store from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileCreated {
    /// Name of the column family.
    pub family: String,
    /// The file.
    pub file: SstInfo,
    /// Where it lies.
    pub path: PathBuf,
}

/// A file that was part of the store was deleted: an SST, or a segment of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileDeleted {
    /// Where it lay.
    pub path: PathBuf,
}

/// Files were ingested.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FilesIngested {
    /// Name of the column family.
    pub family: String,
    /// How many files.
    pub files: usize,
    /// Entries in them.
    pub entry_count: u64,
    /// Their length.
    pub size_bytes: u64,
    /// How long it took.
    pub took: Duration,
}

/// Receives the events of a store. Given in
/// [`AdvancedOptions::event_listeners`](crate::AdvancedOptions::event_listeners); every method does nothing unless it
/// is written.
///
/// All methods are called by one thread of the store's own, one after the other, in the order in which things
/// happened, and no lock is held; so they come a little later, and may call the store. A listener that blocks holds
/// nothing up but other events: when [`MAX_WAITING_EVENTS`](crate::MAX_WAITING_EVENTS) wait, further ones are
/// lost, and [`Self::on_events_lost`] says how many. A panic is caught and logged. [`Db::close`](crate::Db::close)
/// returns when all has been told. What happens during the open is not told.
///
/// ```
/// # fn main() -> terrace::Result<()> {
/// # let dir = std::env::temp_dir().join(format!("terrace-doc-listener-{}", std::process::id()));
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use terrace::{AdvancedOptions, Db, EventListener, FlushEnded, Options};
///
/// #[derive(Default)]
/// struct FlushedBytes(AtomicU64);
///
/// impl EventListener for FlushedBytes {
///     fn on_flush_ended(&self, event: &FlushEnded) {
///         let bytes = event.files.iter().map(|file| file.size_bytes).sum();
///         self.0.fetch_add(bytes, Ordering::Relaxed);
///     }
/// }
///
/// let flushed = Arc::new(FlushedBytes::default());
/// let advanced = AdvancedOptions { event_listeners: vec![flushed.clone()], ..Default::default() };
/// let db = Db::open(&dir, Options { advanced, ..Default::default() })?;
/// db.put(b"k", b"v")?;
/// db.flush()?;
/// db.close()?;
/// assert!(flushed.0.load(Ordering::Relaxed) > 0);
/// # std::fs::remove_dir_all(&dir).ok();
/// # Ok(())
/// # }
/// ```
pub trait EventListener: Send + Sync {
    /// A memtable became immutable.
    fn on_memtable_sealed(&self, _event: &MemtableSealed) {}

    /// A flush begins.
    fn on_flush_begun(&self, _event: &FlushBegun) {}

    /// A flush has ended.
    fn on_flush_ended(&self, _event: &FlushEnded) {}

    /// A compaction begins.
    fn on_compaction_begun(&self, _event: &CompactionBegun) {}

    /// A compaction has ended.
    fn on_compaction_ended(&self, _event: &CompactionEnded) {}

    /// Writes are slowed, stopped, or no longer so.
    fn on_stall_changed(&self, _event: &StallChanged) {}

    /// Background work failed, or a failure has stopped writes.
    fn on_background_error(&self, _event: &BackgroundError) {}

    /// An SST is part of the store from now on.
    fn on_file_created(&self, _event: &FileCreated) {}

    /// A file was deleted.
    fn on_file_deleted(&self, _event: &FileDeleted) {}

    /// Files were ingested.
    fn on_files_ingested(&self, _event: &FilesIngested) {}

    /// This many events were dropped since too many waited.
    fn on_events_lost(&self, _count: u64) {}
}

/// The example of the page, compiled as a documentation test.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/events.md")]
struct Page;

impl fmt::Debug for dyn EventListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EventListener")
    }
}

/// Something that happened.
#[derive(Debug)]
pub(crate) enum Event {
    MemtableSealed(MemtableSealed),
    FlushBegun(FlushBegun),
    FlushEnded(FlushEnded),
    CompactionBegun(CompactionBegun),
    CompactionEnded(CompactionEnded),
    StallChanged(StallChanged),
    BackgroundError(BackgroundError),
    FileCreated(FileCreated),
    FileDeleted(FileDeleted),
    FilesIngested(FilesIngested),
    EventsLost(u64),
}

impl Event {
    /// Tells `listener`.
    pub fn tell(&self, listener: &dyn EventListener) {
        match self {
            Self::MemtableSealed(event) => listener.on_memtable_sealed(event),
            Self::FlushBegun(event) => listener.on_flush_begun(event),
            Self::FlushEnded(event) => listener.on_flush_ended(event),
            Self::CompactionBegun(event) => listener.on_compaction_begun(event),
            Self::CompactionEnded(event) => listener.on_compaction_ended(event),
            Self::StallChanged(event) => listener.on_stall_changed(event),
            Self::BackgroundError(event) => listener.on_background_error(event),
            Self::FileCreated(event) => listener.on_file_created(event),
            Self::FileDeleted(event) => listener.on_file_deleted(event),
            Self::FilesIngested(event) => listener.on_files_ingested(event),
            Self::EventsLost(count) => listener.on_events_lost(*count),
        }
    }
}
