//! What the manifest says: the sum of its edits.

use crate::version::Version;
use std::collections::BTreeMap;
use std::sync::Arc;
use terrace_base::SeqNo;

/// One column family.
#[derive(Debug, Clone, PartialEq)]
pub struct FamilyState {
    /// Never reused, not even after the family is dropped.
    pub id: u32,
    /// Unique among the families.
    pub name: String,
    /// Its live files.
    pub version: Arc<Version>,
    /// Log segments below this one hold nothing that the family still needs.
    pub min_log_segment: u64,
    /// Every write of the family up to here is in its SSTs.
    pub flushed_seqno: SeqNo,
}

/// Everything a manifest says.
#[derive(Debug, Clone, PartialEq)]
pub struct ManifestState {
    /// The column families by id.
    pub families: BTreeMap<u32, FamilyState>,
    /// No file number at or above this one has been used.
    pub next_file_number: u64,
    /// The newest sequence number known to be used.
    pub last_seqno: SeqNo,
    /// The id of the next family.
    pub next_family_id: u32,
    /// Drawn when the store was made.
    pub store_id: u64,
}
