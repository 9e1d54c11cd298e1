//! The hot table of a family: keys that are written again and again, kept in memory and never
//! flushed while they are hot.
//!
//! It is a memtable of its own beside the mutable one. A key that is in it has its newest version
//! there: all writes of that key go to it, and a read asks it first. What is overwritten stays in
//! it until it is full; then [`crate::write::hot_swap`] copies the newest versions (and those that
//! snapshots see) into a fresh one, as Accordion does with whole memtables (Bortnikov et al., VLDB
//! 2018). So a table never changes but by insertion, and a reader that holds an older one finds in
//! it what it saw.
//!
//! On disk is what was hot at some moment, the checkpoint ([`terrace_manifest::HOT_LEVEL`],
//! [`crate::background::hot_checkpoint`]), and the log since then: [`HotLog::since`].
//!
//! Which keys are hot is decided by [`HotKeys`](crate::version::hot_keys::HotKeys), from how often they
//! are written in the life of a memtable.

use crate::batch::Op;
use crate::memtable::MemTable;
use std::sync::Arc;
use terrace_base::checksum::hash_key;
use terrace_base::sync::Mutex;
use terrace_base::{FileNumber, SegmentNumber, SeqNo, ValueKind};
use terrace_skiplist::{Full, Hint};

/// The hot table has live entries of at most this part of a memtable.
const LIVE_SHARE: usize = 4;

/// The log is kept for this many times the bytes of hot entries: so much less is a checkpoint than
/// what was written since the last one.
const LOG_PER_CHECKPOINT: u64 = 16;

/// A place in the history of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogPlace {
    /// The writes up to here, and no others, lie before it.
    pub seqno: SeqNo,
    /// All later writes lie in this log segment or later ones.
    pub segment: SegmentNumber,
    /// Bytes of log written before it.
    pub log_bytes: u64,
}

/// What on disk has the hot keys: a checkpoint, and the log from some place on. Shared by the tables that
/// follow each other; one that follows none begins without a checkpoint.
pub(crate) struct HotLog {
    since: Mutex<LogPlace>,
    /// The files of the checkpoint.
    checkpoint: Mutex<Vec<FileNumber>>,
}

impl HotLog {
    /// From where on the log is needed.
    pub fn since(&self) -> LogPlace {
        *self.since.lock()
    }

    /// `files` have every hot entry up to `place`.
    pub fn checkpointed(&self, place: LogPlace, files: Vec<FileNumber>) {
        *self.since.lock() = place;
        *self.checkpoint.lock() = files;
    }

    /// Whether file `number` is of the checkpoint.
    pub fn has_file(&self, number: FileNumber) -> bool {
        self.checkpoint.lock().contains(&number)
    }
}

/// One hot table: from a swap to the next.
pub(crate) struct HotTable {
    /// Writes go to it by [`MemTable::insert`]; it is never flushed.
    pub table: Arc<MemTable>,
    /// What it was made with: its entries up to here are the newest of their keys then.
    pub base: LogPlace,
    /// Whether a checkpoint is to be made of what it was made with.
    pub is_checkpoint_due: bool,
    pub log: Arc<HotLog>,
    /// What it was made with.
    live_bytes: usize,
    /// It is full at this size.
    full_bytes: usize,
}

impl HotTable {
    /// A table around `table`, which holds what is hot at `base`. `before`: the one that it takes the
    /// place of. `is_checkpoint_due` only if a log segment begins at `base`: what a checkpoint makes
    /// durable is to lie in full segments.
    pub fn new(
        table: MemTable,
        base: LogPlace,
        before: Option<&Self>,
        is_checkpoint_due: bool,
        memtable_bytes: usize,
    ) -> Self {
        let fresh = || Arc::new(HotLog { since: Mutex::new(base), checkpoint: Mutex::default() });
        let log = before.map_or_else(fresh, |before| before.log.clone());
        let live_bytes = table.size_bytes();
        let full_bytes = full_bytes(live_bytes, memtable_bytes);
        Self { table: Arc::new(table), base, is_checkpoint_due, log, live_bytes, full_bytes }
    }

    /// Whether the one after it is due for a checkpoint, if the log has `log_bytes` by then.
    pub fn is_checkpoint_due_at(&self, log_bytes: u64, memtable_bytes: usize) -> bool {
        let written = log_bytes.saturating_sub(self.log.since().log_bytes);
        is_due(written, self.live_bytes, memtable_bytes)
    }

    /// Whether `key`, with `hash` as its `hash_key`, is hot.
    #[inline]
    pub fn contains(&self, key: &[u8], hash: u64) -> bool {
        self.table.get(key, hash, u64::MAX).is_some()
    }

    /// Takes an operation if it is for it alone: of a key that is hot. What a range delete covers of its
    /// keys it must know as well.
    #[inline]
    pub fn takes(&self, op: &Op<'_>, seqno: SeqNo) -> Result<bool, Full> {
        let is_range = op.kind == ValueKind::RangeDelete;
        if !is_range && !self.contains(op.key, hash_key(op.key)) {
            return Ok(false);
        }
        debug_assert!(op.separated.is_none(), "a hot key with a separated value");
        self.table.note_seqno(seqno);
        self.table.insert(op.key, seqno, op.kind, op.value, &mut Hint::default())?;
        Ok(!is_range)
    }

    /// Whether it is time for a fresh one.
    pub fn is_full(&self) -> bool {
        self.table.size_bytes() >= self.full_bytes
    }

    /// Whether it was made with more than may live in it: while snapshots hold many versions, or since values have grown.
    pub fn is_oversized(&self, memtable_bytes: usize) -> bool {
        self.live_bytes > 2 * live_limit_bytes(memtable_bytes)
    }

    /// Memory that it may take, which the mutable memtable must do without.
    pub fn full_bytes(&self) -> usize {
        self.full_bytes
    }
}

/// Live entries that the hot table may have beside memtables of `memtable_bytes`.
pub(crate) fn live_limit_bytes(memtable_bytes: usize) -> usize {
    memtable_bytes / LIVE_SHARE
}

/// What is overwritten may take half as much as what lives, and a little more so that swaps are rare. What
/// it takes the mutable memtable must do without, and then L0 is merged in smaller batches.
fn full_bytes(live: usize, memtable_bytes: usize) -> usize {
    (live + live / 2 + memtable_bytes / 16).min(memtable_bytes * 5 / 8).max(live + live / 4)
}

fn is_due(written: u64, live: usize, memtable_bytes: usize) -> bool {
    let memtable_bytes = memtable_bytes as u64;
    written >= (LOG_PER_CHECKPOINT * live as u64).clamp(2 * memtable_bytes, 4 * memtable_bytes)
}
