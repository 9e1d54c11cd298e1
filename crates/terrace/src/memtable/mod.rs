//! The memtable: a skiplist of point entries, a set of range tombstones, and what recovery needs
//! to know of it (put, get).

mod newer_keys;
mod range_set;

use crate::batch::{Op, StoredHandle};
use range_set::RangeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_base::key::pack_trailer;
use terrace_base::range_tombstone::CoverSpan;
use terrace_base::{AtomicSeqNo, InternalIter, RangeTombstoneRef, SegmentNumber, SeqNo, ValueKind};
use terrace_log::LogPosition;
use terrace_skiplist::{Entry, Full, GROUP, Hint, MemoryAhead, SMALL_GROUP, Skiplist};

/// Room for what an empty skiplist takes itself.
const LIST_BYTES: usize = 4096;

/// The most operations that are gathered before they are inserted; a few groups of the skiplist.
const MAX_GATHERED: usize = 4 * GROUP;

/// Operations on their way into one memtable, which they enter together.
pub(crate) struct Gathered<'a> {
    entries: Vec<Entry<'a, Stored<'a>>>,
    /// How many are gathered; 0: each is inserted at once.
    most: usize,
    /// Stored bytes of the values that the entries refer to.
    separated_bytes: u64,
    bound_bytes: usize,
}

impl Gathered<'_> {
    /// For a run of `ops` operations: too few for a group of the skiplist are not worth gathering.
    pub fn for_ops(ops: usize) -> Self {
        let most = if ops < SMALL_GROUP { 0 } else { ops.min(MAX_GATHERED) };
        Self { entries: Vec::with_capacity(most), most, separated_bytes: 0, bound_bytes: 0 }
    }

    /// The most bytes that what is gathered will take in the memtable.
    pub fn bound_bytes(&self) -> usize {
        self.bound_bytes
    }
}

/// What a memtable holds as the value of an entry.
enum Stored<'a> {
    Inline(&'a [u8]),
    Handle(StoredHandle),
}

impl AsRef<[u8]> for Stored<'_> {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Inline(value) => value,
            Self::Handle(handle) => handle.as_bytes(),
        }
    }
}

/// Sorted writes in memory. Inserts are serialised by the commit (or run in parallel on distinct
/// entries); reads need no lock.
pub(crate) struct MemTable {
    /// Grows with every memtable of a family.
    pub id: u64,
    list: Arc<Skiplist>,
    /// The first log segment with entries of this memtable; `u64::MAX` while empty.
    first_segment: AtomicU64,
    max_seqno: AtomicSeqNo,
    /// Stored bytes of the values that entries refer to.
    separated_bytes: AtomicU64,
    range: RangeSet,
    /// The last write that may be read with it; `u64::MAX` while it takes writes.
    sealed_at: AtomicSeqNo,
    /// Whether it holds what was hot and is no longer, in place of writes of its time.
    is_cooled: bool,
}

#[cfg(test)]
thread_local! {
    /// Whether this thread finds no memory for a memtable.
    pub(crate) static NO_MEMORY: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

impl MemTable {
    /// An empty memtable with room for `capacity_bytes`; address space only until it is used.
    pub fn with_capacity(id: u64, capacity_bytes: usize) -> io::Result<Self> {
        #[cfg(test)]
        if NO_MEMORY.get() {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        Ok(Self {
            id,
            list: Skiplist::with_capacity(capacity_bytes + LIST_BYTES)?,
            first_segment: AtomicU64::new(u64::MAX),
            max_seqno: AtomicSeqNo::default(),
            separated_bytes: AtomicU64::new(0),
            range: RangeSet::default(),
            sealed_at: AtomicSeqNo::new(terrace_base::MAX_SEQNO),
            is_cooled: false,
        })
    }

    /// An empty memtable for entries that were hot: they may be older than those of memtables that
    /// come after it.
    pub fn cooled(id: u64, capacity_bytes: usize) -> io::Result<Self> {
        Ok(Self { is_cooled: true, ..Self::with_capacity(id, capacity_bytes)? })
    }

    /// Whether it was made by [`Self::cooled`].
    pub fn is_cooled(&self) -> bool {
        self.is_cooled
    }

    /// It takes no writes after `seqno`: those go to another memtable. Comes before that is so.
    pub fn seal(&self, seqno: SeqNo) {
        // Release: a thread that reads a later number finds the bound.
        self.sealed_at.store(seqno, Ordering::Release);
    }

    /// The last write that may be read with it.
    #[inline]
    pub fn sealed_at(&self) -> SeqNo {
        self.sealed_at.load(Ordering::Acquire)
    }

    /// Notes that entries up to `max_seqno`, logged in `segment`, are about to be inserted.
    pub fn note_commit(&self, segment: SegmentNumber, max_seqno: SeqNo) {
        self.first_segment.fetch_min(segment.get(), Ordering::Relaxed);
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

    /// Takes an operation of a batch that lies at this place of the log. It is in the memtable at
    /// the next [`Self::settle`] at the latest, which must come before anything is gathered for
    /// another memtable. `Full`: this operation or one gathered before it, and all after that one,
    /// are left out.
    #[inline]
    pub fn take<'a>(
        &self,
        op: &Op<'a>,
        seqno: SeqNo,
        LogPosition { segment, offset: batch_at }: LogPosition,
        gathered: &mut Gathered<'a>,
        hint: &mut Hint,
    ) -> Result<(), Full> {
        if op.kind == ValueKind::RangeDelete {
            return self.insert(op.key, seqno, op.kind, op.value, hint);
        }
        // Before a reader may see the entry, and before any tombstone that comes after it.
        self.note_seqno(seqno);
        self.range.note_entry(op.key, seqno);
        let value = match &op.separated {
            None => Stored::Inline(op.value),
            Some(separated) => {
                gathered.separated_bytes += op.value.len() as u64;
                // A segment that takes values has a number of 32 bits.
                Stored::Handle(StoredHandle::new(op, separated, segment, batch_at))
            }
        };
        if gathered.most == 0 {
            self.insert(op.key, seqno, op.kind, value.as_ref(), hint)?;
            self.note_separated(gathered);
            return Ok(());
        }
        gathered.bound_bytes += Skiplist::entry_upper_bound(op.key.len(), value.as_ref().len());
        let trailer = pack_trailer(seqno, op.kind);
        gathered.entries.push(Entry { user_key: op.key, trailer, value });
        match gathered.entries.len() < gathered.most {
            true => Ok(()),
            false => self.settle(gathered, hint),
        }
    }

    /// Inserts what was gathered. `Full`: an entry and all after it are left out.
    pub fn settle(&self, gathered: &mut Gathered<'_>, hint: &mut Hint) -> Result<(), Full> {
        let inserted = self.list.insert_all(&gathered.entries, hint);
        let is_full = inserted < gathered.entries.len();
        gathered.entries.clear();
        gathered.bound_bytes = 0;
        self.note_separated(gathered);
        if is_full { Err(Full) } else { Ok(()) }
    }

    fn note_separated(&self, gathered: &mut Gathered<'_>) {
        let more = std::mem::take(&mut gathered.separated_bytes);
        if more > 0 {
            // Only the commit's leader writes here, so load and store do.
            let sum = self.separated_bytes.load(Ordering::Relaxed) + more;
            self.separated_bytes.store(sum, Ordering::Relaxed);
        }
    }

    /// Stored bytes of the values that its entries refer to, overwritten ones included.
    pub fn separated_bytes(&self) -> u64 {
        self.separated_bytes.load(Ordering::Relaxed)
    }

    /// Inserts one entry; `Full` changes nothing that is seen.
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
            self.range.add(key, value, seqno, self.max_seqno() <= seqno);
            return Ok(());
        }
        self.note_seqno(seqno);
        self.range.note_entry(key, seqno);
        self.list.insert(key, pack_trailer(seqno, kind), value, hint)
    }

    /// The newest version of `key` at or below `trailer`: its trailer and stored value. `hash` is
    /// `hash_key` of the key.
    #[inline]
    pub fn get(&self, key: &[u8], hash: u64, trailer: u64) -> Option<(u64, &[u8])> {
        self.list.get_hashed(key, hash, trailer)
    }

    /// Asks for the memory that [`Self::get`] reads first; [`Self::prefetch_entry`], a little later, for what it reads
    /// next.
    #[inline]
    pub fn prefetch_index(&self, hash: u64) {
        self.list.prefetch_index(hash);
    }

    /// See [`Self::prefetch_index`].
    #[inline]
    pub fn prefetch_entry(&self, hash: u64) {
        self.list.prefetch_node(hash);
    }

    /// Whether there is any range tombstone.
    #[inline]
    pub fn has_range_tombstones(&self) -> bool {
        !self.range.is_empty()
    }

    /// The range tombstones, oldest first.
    pub fn range_tombstones(&self) -> impl Iterator<Item = RangeTombstoneRef<'_>> {
        self.range.iter()
    }

    /// The range tombstones above `since`, oldest first.
    pub fn range_tombstones_since(
        &self,
        since: SeqNo,
    ) -> impl Iterator<Item = RangeTombstoneRef<'_>> {
        self.range.iter_since(since)
    }

    /// The newest range tombstone at or below `read_seqno` that covers `key`.
    #[inline]
    pub fn covering_seqno(&self, key: &[u8], read_seqno: SeqNo) -> Option<SeqNo> {
        self.range.covering_seqno(key, read_seqno)
    }

    /// The keys around `key` for which a read at `read_seqno` meets the same range tombstone.
    pub fn cover_span(&self, key: &[u8], read_seqno: SeqNo) -> CoverSpan<'_> {
        self.range.span_at(key, read_seqno)
    }

    /// Where a cursor over the point entries that moves up from `key` may go on, if a range tombstone of `seqno` covers
    /// all older entries below `end`: it passes none but those. `None` if that is not known.
    pub fn covered_until<'a>(
        &'a self,
        key: &[u8],
        end: &'a [u8],
        seqno: SeqNo,
    ) -> Option<&'a [u8]> {
        match self.max_seqno() < seqno {
            true => Some(end),
            false => self.range.covered_until(key, end, seqno),
        }
    }

    /// As [`Self::covered_until`], down to `start`: a key to stop at, if there is one, and where to go on before if
    /// there is none.
    pub fn covered_from<'a>(
        &'a self,
        key: &[u8],
        start: &'a [u8],
        seqno: SeqNo,
    ) -> Option<(Option<&'a [u8]>, &'a [u8])> {
        match self.max_seqno() < seqno {
            true => Some((None, start)),
            false => self.range.covered_from(key, start, seqno),
        }
    }

    /// A cursor over the point entries.
    pub fn iter(&self) -> terrace_skiplist::Iter {
        self.list.iter()
    }

    /// Calls `each` with every key and the trailers of its versions, newest first.
    pub fn for_each_key(&self, mut each: impl FnMut(&[u8], &[u64])) {
        let mut iter = self.iter();
        let (mut key, mut trailers) = (Vec::new(), Vec::new());
        // A cursor over memory does not fail.
        let mut moved = iter.seek_to_first();
        while moved.is_ok() && iter.valid() {
            if iter.user_key() != key.as_slice() {
                if !trailers.is_empty() {
                    each(&key, &trailers);
                }
                key.clear();
                key.extend_from_slice(iter.user_key());
                trailers.clear();
            }
            trailers.push(iter.trailer());
            moved = iter.next();
        }
        if !trailers.is_empty() {
            each(&key, &trailers);
        }
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
        let list = self.list.allocated_bytes() + self.list.index_bytes();
        list + self.range.size_bytes()
    }

    /// As [`Self::size_bytes`]; 0 if nothing was written: to rotate it frees nothing then.
    pub fn rotatable_bytes(&self) -> usize {
        if self.is_empty() { 0 } else { self.size_bytes() }
    }

    /// Bytes that still fit.
    pub fn room_bytes(&self) -> usize {
        self.list.capacity_bytes().saturating_sub(self.list.allocated_bytes())
    }

    /// Memory that it will soon fill, for somebody who has the time to wait for it; each piece is given once.
    #[inline]
    pub fn memory_ahead(&self) -> Option<MemoryAhead> {
        self.list.memory_ahead()
    }

    /// Keys of point entries; costs a walk over all of them.
    pub fn key_count(&self) -> usize {
        let mut count = 0;
        self.for_each_key(|_, _| count += 1);
        count
    }

    /// Point entries.
    pub fn entry_count(&self) -> usize {
        self.list.entry_count()
    }

    /// Keys of point entries; those being inserted may count already.
    pub fn keys(&self) -> usize {
        self.list.key_count()
    }

    /// Calls `each` with some hundreds of its keys, in order.
    pub fn for_each_sampled(&self, each: impl FnMut(&[u8])) {
        self.list.for_each_sampled(each);
    }

    /// About which part of its keys lies below `key`, within some hundredths.
    pub fn part_below(&self, key: &[u8]) -> f64 {
        self.list.part_below(key)
    }

    /// The first log segment that must outlive this memtable, if it holds anything.
    pub fn first_segment(&self) -> Option<SegmentNumber> {
        Some(self.first_segment.load(Ordering::Relaxed))
            .filter(|segment| *segment != u64::MAX)
            .map(SegmentNumber::new)
    }

    /// The largest sequence number inserted.
    pub fn max_seqno(&self) -> SeqNo {
        self.max_seqno.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_base::checksum::hash_key;
    use terrace_base::key::seek_trailer;

    #[test]
    fn the_newest_visible_version_wins_and_range_tombstones_are_seen_at_once() {
        let table = MemTable::with_capacity(1, 1 << 20).unwrap();
        let mut hint = Hint::default();
        table.insert(b"k", SeqNo::new(3), ValueKind::Put, b"three", &mut hint).unwrap();
        table.insert(b"k", SeqNo::new(5), ValueKind::Put, b"five", &mut hint).unwrap();
        assert_eq!(
            table.get(b"k", hash_key(b"k"), seek_trailer(SeqNo::new(4))).unwrap().1,
            b"three"
        );
        assert_eq!(
            table.get(b"k", hash_key(b"k"), seek_trailer(SeqNo::new(9))).unwrap().1,
            b"five"
        );
        assert!(table.get(b"k", hash_key(b"k"), seek_trailer(SeqNo::new(2))).is_none());
        assert!(!table.has_range_tombstones());
        table.insert(b"a", SeqNo::new(6), ValueKind::RangeDelete, b"z", &mut hint).unwrap();
        assert_eq!(table.covering_seqno(b"k", SeqNo::new(9)), Some(SeqNo::new(6)));
        table.insert(b"a", SeqNo::new(8), ValueKind::RangeDelete, b"l", &mut hint).unwrap();
        assert_eq!(table.covering_seqno(b"k", SeqNo::new(9)), Some(SeqNo::new(8)));
        assert_eq!(table.covering_seqno(b"k", SeqNo::new(7)), Some(SeqNo::new(6)));
    }

    #[test]
    fn gathered_operations_are_in_after_settling_as_far_as_there_is_room() {
        let table = MemTable::with_capacity(1, 2_000).unwrap();
        let keys: Vec<[u8; 2]> =
            (0..1_000u16).map(|n| n.wrapping_mul(7919).to_be_bytes()).collect();
        let mut hint = Hint::default();
        let mut gathered = Gathered::for_ops(keys.len());
        let (kind, value) = (ValueKind::Put, b"value".as_slice());
        let placed = LogPosition { segment: SegmentNumber::new(1), offset: 0 };
        let mut full = false;
        for (key, seqno) in keys.iter().zip(1..) {
            let op = Op { family: 0, kind, key, value, separated: None };
            if table.take(&op, SeqNo::new(seqno), placed, &mut gathered, &mut hint).is_err() {
                full = true;
                break;
            }
        }
        assert!(full, "6 KB have room for less");
        let held = table.entry_count();
        assert!(held > MAX_GATHERED / 2);
        for (n, (key, seqno)) in keys.iter().zip(1..).enumerate() {
            let expected = (n < held).then(|| (pack_trailer(SeqNo::new(seqno), kind), value));
            assert_eq!(table.get(key, hash_key(key), seek_trailer(SeqNo::new(seqno))), expected);
        }
        // What is too little for a group goes in at once.
        let table = MemTable::with_capacity(1, 2_000).unwrap();
        let mut gathered = Gathered::for_ops(SMALL_GROUP - 1);
        let op = Op { family: 0, kind, key: b"k", value, separated: None };
        table.take(&op, SeqNo::new(1), placed, &mut gathered, &mut Hint::default()).unwrap();
        assert_eq!(table.entry_count(), 1);
    }

    /// As documents are replaced whose parts are entries.
    #[test]
    fn a_range_tombstone_with_one_newer_key_is_small() {
        const COUNT: u64 = 20_000;
        let table = MemTable::with_capacity(1, 16 << 20).unwrap();
        let mut hint = Hint::default();
        for n in 0..COUNT {
            let [start, end, key] = ["/", "0", "/k"].map(|tail| format!("{n:08}{tail}"));
            let seqno = SeqNo::new(2 * n + 1);
            let kind = ValueKind::RangeDelete;
            table.insert(start.as_bytes(), seqno, kind, end.as_bytes(), &mut hint).unwrap();
            let seqno = SeqNo::new(2 * n + 2);
            table.insert(key.as_bytes(), seqno, ValueKind::Put, b"value", &mut hint).unwrap();
        }
        let each = table.size_bytes() as u64 / COUNT;
        assert!(each <= 600, "{each} bytes");
    }
}
