//! What changes from one state of the manifest to the next.

use crate::file_meta::FileMeta;
use crate::names;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace_base::{FileNumber, SegmentNumber, SeqNo};

/// The most bytes that the options of a family take.
pub const MAX_OPTIONS_BYTES: usize = 4096;

/// One atomic change.
#[derive(Default, Clone, Debug, PartialEq)]
pub struct VersionEdit {
    /// No file number at or above this one has been used. Never goes down.
    pub next_file_number: Option<FileNumber>,
    /// The newest sequence number known to be used. Never goes down.
    pub last_seqno: Option<SeqNo>,
    /// Changes per column family, at most one entry each.
    pub families: Vec<FamilyEdit>,
    /// Where filters are hot, in bytes that only the engine understands; takes the place of what
    /// was there. Advisory: a reader that cannot use them goes without.
    pub filter_heat: Option<Arc<[u8]>>,
    /// Segments that are value segments from now on.
    pub segments_added: Vec<SegmentMeta>,
    /// Value segments that nothing refers to any more.
    pub segments_removed: Vec<SegmentNumber>,
    /// From now on every log segment that the manifest needs exists, and evidence files
    /// say what was synced. Never taken back.
    pub keeps_evidence: bool,
    /// Files that earlier records took out of the store and that may still lie in its directory.
    /// Only a snapshot says this: edits name what they remove.
    pub retired: Vec<FileNumber>,
}

/// How a value segment came to be, and with it the name of its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SegmentKind {
    /// A commit-log segment whose memtables are all flushed.
    CommitLog,
    /// Written by garbage collection: values in key order.
    Values,
}

/// One value segment: a file that live SSTs refer to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentMeta {
    /// Its number.
    pub number: SegmentNumber,
    /// How it came to be.
    pub kind: SegmentKind,
    /// Length of the file.
    pub size_bytes: u64,
}

impl SegmentMeta {
    /// Its file in the store's directory `dir`.
    pub fn path(&self, dir: &Path) -> PathBuf {
        match self.kind {
            SegmentKind::CommitLog => names::log_path(dir, self.number),
            SegmentKind::Values => names::value_log_path(dir, self.number),
        }
    }
}

/// The change of one column family.
#[derive(Default, Clone, Debug, PartialEq)]
pub struct FamilyEdit {
    /// The family's id.
    pub id: u32,
    /// The family begins with this edit and has this name.
    pub create: Option<String>,
    /// From this edit on the family has the merge operator of this name. It is given once and stays.
    pub merge_operator: Option<String>,
    /// From this edit on the family has these options, in text of at most [`MAX_OPTIONS_BYTES`] that only the
    /// engine understands; takes the place of what was there.
    pub options: Option<Arc<str>>,
    /// The family ends with this edit: its files are no longer live.
    pub drop: bool,
    /// Log segments below this one hold nothing that this family still needs. Never goes down.
    pub min_log_segment: Option<SegmentNumber>,
    /// Every write of the family up to here is in its SSTs. Never goes down.
    pub flushed_seqno: Option<SeqNo>,
    /// New files, each with its level.
    pub added: Vec<(u8, FileMeta)>,
    /// Files that are no longer live: level and number.
    pub removed: Vec<(u8, FileNumber)>,
}
