//! What changes from one state of the manifest to the next.

use crate::file_meta::FileMeta;
use std::sync::Arc;
use terrace_base::SeqNo;

/// One atomic change.
#[derive(Default, Clone, Debug, PartialEq)]
pub struct VersionEdit {
    /// No file number at or above this one has been used. Never goes down.
    pub next_file_number: Option<u64>,
    /// The newest sequence number known to be used. Never goes down.
    pub last_seqno: Option<SeqNo>,
    /// Changes per column family, at most one entry each.
    pub families: Vec<FamilyEdit>,
    /// Where filters are hot, in bytes that only the engine understands; takes the place of what
    /// was there. Advisory: whoever cannot read them goes without.
    pub filter_heat: Option<Arc<[u8]>>,
}

/// The change of one column family.
#[derive(Default, Clone, Debug, PartialEq)]
pub struct FamilyEdit {
    /// The family's id.
    pub id: u32,
    /// The family begins with this edit and has this name.
    pub create: Option<String>,
    /// The family ends with this edit: its files are no longer live.
    pub drop: bool,
    /// Log segments below this one hold nothing that this family still needs. Never goes down.
    pub min_log_segment: Option<u64>,
    /// Every write of the family up to here is in its SSTs. Never goes down.
    pub flushed_seqno: Option<SeqNo>,
    /// New files, each with its level.
    pub added: Vec<(u8, FileMeta)>,
    /// Files that are no longer live: level and number.
    pub removed: Vec<(u8, u64)>,
}
