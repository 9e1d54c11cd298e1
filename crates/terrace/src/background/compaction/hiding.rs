//! What files above the input of a merge hide of it: versions of which every reader who sees them finds a newer version,
//! or a range tombstone, in one of those files. They go although the files are no inputs and stay as they are. Operands of
//! merges hide nothing, since they need what lies below. Used by `job`.
//!
//! A job that takes one of the files away meanwhile leaves what hides: the input lies below its output.

use crate::iter::RunIter;
use crate::iter::merge::MergingIter;
use terrace_base::key::{trailer_kind, trailer_seqno};
use terrace_base::{InternalIter, MAX_SEQNO, RangeTombstones, Result, SeqNo};

/// Steps over entries before the next key is sought.
const MAX_STEPS: usize = 8;

/// The files, as far as keys have been asked for.
pub(super) struct Hiding<'a> {
    /// On the first entry after `key`.
    entries: MergingIter<RunIter>,
    tombstones: RangeTombstones,
    /// Live snapshots, ascending.
    snapshots: &'a [SeqNo],
    /// The key that was asked for last.
    key: Option<Vec<u8>>,
    /// The sequence numbers of its versions in the files, newest first.
    seqnos: Vec<SeqNo>,
}

impl<'a> Hiding<'a> {
    /// Of files with these entries and range tombstones, for keys from `start` on.
    pub fn new(
        mut entries: MergingIter<RunIter>,
        tombstones: RangeTombstones,
        snapshots: &'a [SeqNo],
        start: Option<&[u8]>,
    ) -> Result<Self> {
        match start {
            Some(start) => entries.seek(start, u64::MAX)?,
            None => entries.seek_to_first()?,
        }
        Ok(Self { entries, tombstones, snapshots, key: None, seqnos: Vec::new() })
    }

    /// Whether a version of `user_key` with this trailer is hidden. Keys must not descend from call to call.
    pub fn hides(&mut self, user_key: &[u8], trailer: u64) -> Result<bool> {
        if self.key.as_deref() != Some(user_key) {
            self.enter(user_key)?;
        }
        let seqno = trailer_seqno(trailer);
        // Who sees the version sees everything up to here as well.
        let at = self.snapshots.partition_point(|snapshot| *snapshot < seqno);
        let seen = self.snapshots.get(at).copied().unwrap_or(MAX_SEQNO);
        let newest = self.seqnos.iter().copied().find(|newer| *newer <= seen);
        let is_newer = |newest: Option<SeqNo>| newest.is_some_and(|newest| newest > seqno);
        Ok(is_newer(newest) || is_newer(self.tombstones.covering_seqno(user_key, seen)))
    }

    /// Gathers the versions of `user_key`.
    fn enter(&mut self, user_key: &[u8]) -> Result<()> {
        let key = self.key.get_or_insert_default();
        key.clear();
        key.extend_from_slice(user_key);
        self.seqnos.clear();
        let entries = &mut self.entries;
        let mut steps = 0;
        while entries.valid() && entries.user_key() < user_key {
            match steps < MAX_STEPS {
                true => entries.next()?,
                false => entries.seek(user_key, u64::MAX)?,
            }
            steps += 1;
        }
        while entries.valid() && entries.user_key() == user_key {
            let trailer = entries.trailer();
            if trailer_kind(trailer).is_some_and(|kind| !kind.is_operand()) {
                self.seqnos.push(trailer_seqno(trailer));
            }
            entries.next()?;
        }
        Ok(())
    }
}
