//! Files above the only input of a merge in place that stay where they are: what they hide of it goes. Chosen by
//! `under_deletions`, read by `hiding`.

use std::sync::Arc;
use terrace_base::{FileNumber, SeqNo};
use terrace_manifest::FileMeta;

/// The files, all of which delete something.
#[derive(Debug, Clone)]
pub(crate) struct Above {
    /// By level, shallowest first; L0 newest first, deeper levels by key; no level is empty.
    pub runs: Vec<(u8, Vec<Arc<FileMeta>>)>,
    /// Files that delete something, and are not among them since they may not be read now.
    pub skipped: Vec<FileNumber>,
    /// Bytes of the input that are expected to be left.
    pub left_bytes: u64,
}

impl Above {
    /// All of them.
    pub fn files(&self) -> impl Iterator<Item = &Arc<FileMeta>> {
        self.runs.iter().flat_map(|(_, files)| files)
    }

    /// The newest sequence number in them.
    pub fn newest_seqno(&self) -> SeqNo {
        self.files().map(|file| file.largest_seqno).max().unwrap_or_default()
    }
}
