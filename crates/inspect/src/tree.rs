//! The LSM tree as a manifest states it, sound or not, and the invariants it must keep.
//!
//! Unlike `ManifestState` it can hold files that overlap or a family without a name: what is left
//! of a damaged manifest.

use crate::directory::Listing;
use crate::problem::Problem;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use terrace_base::{FileNumber, MAX_SEQNO, SegmentNumber, SeqNo};
use terrace_log::SegmentFile;
use terrace_manifest::{FileMeta, LEVEL_COUNT, ManifestState, SegmentMeta, names};

/// The column families and counters of a store.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Tree {
    pub store_id: u64,
    pub next_file_number: FileNumber,
    pub last_seqno: SeqNo,
    pub families: BTreeMap<u32, FamilyTree>,
    pub segments: BTreeMap<SegmentNumber, SegmentMeta>,
    /// Every log segment that is needed exists, and evidence is kept.
    pub keeps_evidence: bool,
}

/// One column family.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct FamilyTree {
    pub name: String,
    pub min_log_segment: SegmentNumber,
    pub flushed_seqno: SeqNo,
    /// L0 newest first, every other level by smallest key.
    pub levels: [Vec<Arc<FileMeta>>; LEVEL_COUNT],
    /// Checkpoints of the hot table.
    pub hot: Vec<Arc<FileMeta>>,
}

impl From<ManifestState> for Tree {
    fn from(state: ManifestState) -> Self {
        let family = |family: terrace_manifest::FamilyState| FamilyTree {
            name: family.name,
            min_log_segment: family.min_log_segment,
            flushed_seqno: family.flushed_seqno,
            levels: std::array::from_fn(|n| family.version.level(n).files().to_vec()),
            hot: family.version.hot().files().to_vec(),
        };
        Self {
            store_id: state.store_id,
            next_file_number: state.next_file_number,
            last_seqno: state.last_seqno,
            families: state.families.into_iter().map(|(id, f)| (id, family(f))).collect(),
            segments: state.segments,
            keeps_evidence: state.keeps_evidence,
        }
    }
}

impl FamilyTree {
    /// All files, L0 first, checkpoints of the hot table last.
    pub fn files(&self) -> impl Iterator<Item = &Arc<FileMeta>> {
        self.levels.iter().flatten().chain(&self.hot)
    }
}

impl Tree {
    /// Log segments below this one hold nothing that any family needs.
    pub fn oldest_log_segment(&self) -> SegmentNumber {
        self.families.values().map(|family| family.min_log_segment).min().unwrap_or_default()
    }

    /// The segments of the log that an open would read, as far as they are there, ascending: of those that are needed not the ones
    /// that are not the store's.
    pub fn log_in_force(&self, listing: &Listing) -> Vec<SegmentFile> {
        let foreign = listing.foreign(self.next_file_number);
        let live = listing.segments_from(self.oldest_log_segment());
        let own = live.filter(|file| foreign.binary_search(&file.number.file()).is_err());
        own.filter(|file| !self.segments.contains_key(&file.number)).collect()
    }

    /// All files of all families.
    pub fn files(&self) -> impl Iterator<Item = &Arc<FileMeta>> {
        self.families.values().flat_map(FamilyTree::files)
    }

    /// What does not hold although it must, of the store in `dir`.
    pub fn faults(&self, dir: &Path) -> Vec<Problem> {
        let mut faults = Vec::new();
        let mut owners: BTreeMap<FileNumber, u32> = BTreeMap::new();
        for (id, family) in &self.families {
            for file in family.files() {
                let mut fault =
                    |detail| faults.push(Problem::of(&names::sst_path(dir, file.number), detail));
                if let Some(other) = owners.insert(file.number, *id) {
                    fault(format!("it is in the manifest twice, in families {other} and {id}"));
                }
                if let Some(why) = self.file_fault(file) {
                    fault(why);
                }
            }
            for (n, level) in family.levels.iter().enumerate().skip(1) {
                for pair in level.windows(2) {
                    if !pair[0].precedes(&pair[1]) {
                        let detail =
                            format!("its keys overlap those of {} in L{n}", pair[1].number);
                        faults.push(Problem::of(&names::sst_path(dir, pair[0].number), detail));
                    }
                }
            }
        }
        faults
    }

    fn file_fault(&self, file: &FileMeta) -> Option<String> {
        let empty = file.largest_exclusive && file.smallest == file.largest;
        if file.smallest > file.largest || empty {
            return Some("the bounds in the manifest are not in order".into());
        }
        let (first, last) = (file.smallest_seqno, file.largest_seqno);
        if first > last || last > self.last_seqno.min(MAX_SEQNO) {
            let newest = self.last_seqno;
            return Some(format!("seqnos {first}-{last} do not fit the store's newest, {newest}"));
        }
        if file.number >= self.next_file_number {
            return Some(format!("the next file number is only {}", self.next_file_number));
        }
        if file.tombstone_count > file.entry_count {
            return Some("the manifest counts more tombstones than entries".into());
        }
        None
    }
}
