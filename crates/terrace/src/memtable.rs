//! The memtable: a skiplist of point entries, a set of range tombstones, and what recovery needs
//! to know of it (put, step 4 of 4; get, step 2 of 6).

use crate::batch::{Op, StoredHandle};
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use terrace_base::key::pack_trailer;
use terrace_base::{RangeTombstone, RangeTombstones, SeqNo, ValueKind};
use terrace_log::LogEnd;
use terrace_skiplist::{Full, Hint, Skiplist};

/// Room for what an empty skiplist takes itself.
const LIST_BYTES: usize = 4096;

/// Sorted writes in memory. Inserts are serialised by the commit (or run in parallel on distinct
/// entries); reads need no lock.
pub(crate) struct MemTable {
    /// Grows with every memtable of a family.
    pub id: u64,
    list: Arc<Skiplist>,
    /// The first log segment with entries of this memtable; `u64::MAX` while empty.
    first_segment: AtomicU64,
    max_seqno: AtomicU64,
    /// Stored bytes of the values that entries refer to.
    separated_bytes: AtomicU64,
    range: RangeSet,
}

/// Range tombstones: appended under a lock, fragmented when a reader first needs them.
#[derive(Default)]
struct RangeSet {
    count: AtomicUsize,
    bytes: AtomicUsize,
    all: Mutex<Vec<RangeTombstone>>,
    fragmented: ArcSwap<Fragmented>,
}

/// The set made of the first `count` tombstones.
#[derive(Default)]
struct Fragmented {
    set: Arc<RangeTombstones>,
    count: usize,
}

impl MemTable {
    /// An empty memtable with room for `capacity_bytes`; address space only until it is used.
    pub fn with_capacity(id: u64, capacity_bytes: usize) -> io::Result<Self> {
        Ok(Self {
            id,
            list: Skiplist::with_capacity(capacity_bytes + LIST_BYTES)?,
            first_segment: AtomicU64::new(u64::MAX),
            max_seqno: AtomicU64::new(0),
            separated_bytes: AtomicU64::new(0),
            range: RangeSet::default(),
        })
    }

    /// Notes that entries up to `max_seqno`, logged in `segment`, are about to be inserted.
    pub fn note_commit(&self, segment: u64, max_seqno: SeqNo) {
        self.first_segment.fetch_min(segment, Ordering::Relaxed);
        self.max_seqno.fetch_max(max_seqno, Ordering::Relaxed);
    }

    /// Notes the sequence number of an entry that follows one already noted.
    #[inline]
    pub fn note_seqno(&self, seqno: SeqNo) {
        // Only the commit's leader writes here, so load and store do.
        if self.max_seqno.load(Ordering::Relaxed) < seqno {
            self.max_seqno.store(seqno, Ordering::Relaxed);
        }
    }

    /// Inserts an operation of a batch that lies at this place of the log; `Full` changes nothing.
    #[inline]
    pub fn insert_op(
        &self,
        op: &Op<'_>,
        seqno: SeqNo,
        (segment, batch_at): LogEnd,
        hint: &mut Hint,
    ) -> Result<(), Full> {
        let Some(separated) = &op.separated else {
            return self.insert(op.key, seqno, op.kind, op.value, hint);
        };
        // A segment that takes values has a number of 32 bits.
        let handle = StoredHandle::new(op, separated, segment as u32, batch_at);
        self.insert(op.key, seqno, op.kind, handle.as_bytes(), hint)?;
        // Only the commit's leader writes here, so load and store do.
        let sum = self.separated_bytes.load(Ordering::Relaxed) + op.value.len() as u64;
        self.separated_bytes.store(sum, Ordering::Relaxed);
        Ok(())
    }

    /// Stored bytes of the values that its entries refer to, overwritten ones included.
    pub fn separated_bytes(&self) -> u64 {
        self.separated_bytes.load(Ordering::Relaxed)
    }

    /// Inserts one entry; `Full` changes nothing.
    #[inline]
    pub fn insert(
        &self,
        key: &[u8],
        seqno: SeqNo,
        kind: ValueKind,
        value: &[u8],
        hint: &mut Hint,
    ) -> Result<(), Full> {
        if kind == ValueKind::RangeDelete {
            self.range.add(RangeTombstone { start: key.to_vec(), end: value.to_vec(), seqno });
            return Ok(());
        }
        self.list.insert(key, pack_trailer(seqno, kind), value, hint)
    }

    /// The newest version of `key` at or below `trailer`: its trailer and stored value.
    #[inline]
    pub fn get(&self, key: &[u8], trailer: u64) -> Option<(u64, &[u8])> {
        self.list.get(key, trailer)
    }

    /// Whether there is any range tombstone.
    #[inline]
    pub fn has_range_tombstones(&self) -> bool {
        // Acquire: pairs with the Release in `add`.
        self.range.count.load(Ordering::Acquire) > 0
    }

    /// The range tombstones as one fragmented set. Free while there are none.
    pub fn range_tombstones(&self) -> Arc<RangeTombstones> {
        self.range.fragmented()
    }

    /// A cursor over the point entries.
    pub fn iter(&self) -> terrace_skiplist::Iter {
        self.list.iter()
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty() && !self.has_range_tombstones()
    }

    /// Whether there are no point entries.
    #[inline]
    pub fn has_no_entries(&self) -> bool {
        self.list.is_empty()
    }

    /// Bytes of memory in use.
    pub fn size_bytes(&self) -> usize {
        self.list.allocated_bytes() + self.range.bytes.load(Ordering::Relaxed)
    }

    /// Bytes that still fit.
    pub fn room_bytes(&self) -> usize {
        self.list.capacity_bytes().saturating_sub(self.list.allocated_bytes())
    }

    /// Point entries.
    pub fn entry_count(&self) -> usize {
        self.list.entry_count()
    }

    /// The first log segment that must outlive this memtable, if it holds anything.
    pub fn first_segment(&self) -> Option<u64> {
        Some(self.first_segment.load(Ordering::Relaxed)).filter(|segment| *segment != u64::MAX)
    }

    /// The largest sequence number inserted.
    pub fn max_seqno(&self) -> SeqNo {
        self.max_seqno.load(Ordering::Relaxed)
    }
}

impl RangeSet {
    fn add(&self, tombstone: RangeTombstone) {
        let bytes = tombstone.start.len() + tombstone.end.len() + size_of::<RangeTombstone>();
        self.all.lock().push(tombstone);
        self.bytes.fetch_add(3 * bytes, Ordering::Relaxed);
        // Release: a reader that sees the count finds the tombstone under the lock.
        self.count.fetch_add(1, Ordering::Release);
    }

    fn fragmented(&self) -> Arc<RangeTombstones> {
        let current = self.fragmented.load();
        // Acquire: pairs with the Release in `add`.
        if current.count >= self.count.load(Ordering::Acquire) {
            return current.set.clone();
        }
        let all = self.all.lock();
        let current = self.fragmented.load();
        if current.count >= all.len() {
            return current.set.clone();
        }
        let set = Arc::new(RangeTombstones::new(all.iter().cloned()));
        self.fragmented.store(Arc::new(Fragmented { set: set.clone(), count: all.len() }));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_base::key::seek_trailer;

    #[test]
    fn the_newest_visible_version_wins_and_range_tombstones_are_seen_at_once() {
        let table = MemTable::with_capacity(1, 1 << 20).unwrap();
        let mut hint = Hint::default();
        table.insert(b"k", 3, ValueKind::Put, b"three", &mut hint).unwrap();
        table.insert(b"k", 5, ValueKind::Put, b"five", &mut hint).unwrap();
        assert_eq!(table.get(b"k", seek_trailer(4)).unwrap().1, b"three");
        assert_eq!(table.get(b"k", seek_trailer(9)).unwrap().1, b"five");
        assert!(table.get(b"k", seek_trailer(2)).is_none());
        assert!(!table.has_range_tombstones());
        table.insert(b"a", 6, ValueKind::RangeDelete, b"z", &mut hint).unwrap();
        assert_eq!(table.range_tombstones().covering_seqno(b"k", 9), Some(6));
        table.insert(b"a", 8, ValueKind::RangeDelete, b"l", &mut hint).unwrap();
        assert_eq!(table.range_tombstones().covering_seqno(b"k", 9), Some(8));
        assert_eq!(table.range_tombstones().covering_seqno(b"k", 7), Some(6));
    }
}
