//! The file set of an open store: the manifest that names it, and what removes the files that left
//! it. Changed by [`crate::version::install`] alone.

use crate::env::BaseEnv;
use crate::jobs::Jobs;
use crate::version::evidence::Evidence;
use crate::version::file_numbers::FileNumbers;
use crate::version::log_history::LogHistory;
use crate::version::read_env::ReadEnv;
use crate::version::read_state::ReadState;
use crate::version::reader_pins::ReaderPins;
use crate::version::snapshots::{Snapshot, View};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use terrace_base::sync::Mutex;
use terrace_base::{FileNumber, SeqNo};
use terrace_manifest::{FileMeta, Manifest, ManifestState, Version};

/// Work that has to be done before something; once more after it failed.
pub(crate) type BeforeNext = Box<dyn Fn() -> terrace_base::Result<()> + Send>;

/// The manifest (none in a read-only store) and the state it describes.
pub(crate) struct ManifestLog {
    pub manifest: Option<Manifest>,
    pub state: ManifestState,
    /// Whether the last append failed and its edit may or may not be on disk.
    pub torn: bool,
    /// Files that go once it is known that the manifest does not name them.
    pub undecided: Vec<PathBuf>,
    /// Until it has succeeded no next manifest is put in force, nor is anything appended to the one that is.
    pub before_next: Option<BeforeNext>,
}

/// A file that left its version and goes when nobody reads it any more.
pub(crate) struct Obsolete {
    pub number: FileNumber,
    pub file: Weak<FileMeta>,
}

/// The file set, and what its changes need.
pub(crate) struct VersionSet {
    pub base: Arc<BaseEnv>,
    pub read: Arc<ReadEnv>,
    pub jobs: Arc<Jobs>,
    pub file_numbers: FileNumbers,
    pub manifest: Mutex<ManifestLog>,
    /// What was synced, written down beside it.
    pub evidence: Evidence,
    pub obsolete: Mutex<Vec<Obsolete>>,
    /// Files that nobody in this process needs, until no reader does.
    pub reader_pins: ReaderPins,
    /// Held while obsolete files are removed: a thread that has waited for it finds them gone.
    pub purging: Mutex<()>,
    /// The segments of the log that change feeds read.
    pub log_history: Arc<LogHistory>,
    /// While above 0, no file is deleted (a checkpoint links them, what is in the log is counted).
    pub deletions_held: AtomicU64,
}

/// Holds file deletions back while it lives.
pub(crate) struct HeldDeletions<'a>(&'a AtomicU64);

impl Drop for HeldDeletions<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl VersionSet {
    /// Holds file deletions back.
    pub fn hold_deletions(&self) -> HeldDeletions<'_> {
        // SeqCst: a purge that reads 0 afterwards must not happen.
        self.deletions_held.fetch_add(1, Ordering::SeqCst);
        HeldDeletions(&self.deletions_held)
    }

    /// A snapshot of what is visible now.
    pub fn snapshot(&self) -> Snapshot {
        let read = &self.read;
        if !self.base.read_only {
            return read.snapshots.take(&read.visible_seqno);
        }
        // A refresh changes what is shown under this lock.
        let _shown = self.manifest.lock();
        let families = read.families.load();
        let states: BTreeMap<u32, Arc<ReadState>> =
            families.iter().map(|family| (family.id, family.hold_state())).collect();
        // Nobody writes to the memtable of a read-only store.
        let nothing = states.values().next().map(|state| {
            let (memtable, version) = (state.memtable.clone(), Arc::new(Version::empty()));
            Arc::new(ReadState::of_version(memtable, Vec::new(), version, &read.table_cache))
        });
        let view = View { states, nothing, segments: read.value_log.hold() };
        read.snapshots.take_of(&read.visible_seqno, Some(view))
    }

    /// Every write of family `id` up to here is in its SSTs.
    pub fn flushed_seqno(&self, id: u32) -> SeqNo {
        self.manifest
            .lock()
            .state
            .families
            .get(&id)
            .map_or(SeqNo::ZERO, |family| family.flushed_seqno)
    }

    /// A number for a file that is about to be created.
    pub fn next_file_number(&self) -> FileNumber {
        self.file_numbers.take()
    }
}
