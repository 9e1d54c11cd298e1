//! What tests build merges and scans from: a cursor over a sorted vector, which can be told to
//! fail, separated values that can fail to be read, and random histories of writes with the answer
//! of a naive reader.

use crate::iter::ScanCursor;
use crate::values::value_source::ValueSource;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use terrace_base::key::{compare_internal, pack_trailer, trailer_kind, trailer_seqno};
use terrace_base::sync::Mutex;
use terrace_base::{
    Error, InternalIter, RangeTombstone, Result, Rng, SegmentNumber, SeqNo, SplitMix64,
    ValueHandle, ValueKind,
};
use terrace_buf::Slice;

/// The segment that all separated values are in.
const SEGMENT: SegmentNumber = SegmentNumber::new(7);

/// An entry: user key, trailer, stored value.
pub(crate) type Entry = (Vec<u8>, u64, Vec<u8>);

/// Sorts entries in internal order; entries that are equal in it stay as they are.
pub(crate) fn sort(entries: &mut [Entry]) {
    entries.sort_by(|a, b| compare_internal(&a.0, a.1, &b.0, b.1));
}

/// A cursor over entries in internal order.
pub(crate) struct VecIter {
    entries: Vec<Entry>,
    at: Option<usize>,
    /// Moves left until the one that fails; counted down by every move of all cursors that share
    /// it.
    fuse: Option<Rc<Cell<u64>>>,
    moves: Rc<Cell<u64>>,
}

impl VecIter {
    pub fn new(mut entries: Vec<Entry>) -> Self {
        sort(&mut entries);
        Self { entries, at: None, fuse: None, moves: Rc::default() }
    }

    /// The cursor whose move fails when `fuse` is at 0; every move before takes one off.
    pub fn with_fuse(mut self, fuse: &Rc<Cell<u64>>) -> Self {
        self.fuse = Some(Rc::clone(fuse));
        self
    }

    /// The cursor that adds its moves to `moves`.
    pub fn counted_by(mut self, moves: &Rc<Cell<u64>>) -> Self {
        self.moves = Rc::clone(moves);
        self
    }

    fn go(&mut self, to: Option<usize>) -> Result<()> {
        self.at = None;
        self.moves.set(self.moves.get() + 1);
        if let Some(fuse) = &self.fuse {
            if fuse.get() == 0 {
                return Err(Error::corruption(Path::new("test"), 0, "fuse"));
            }
            fuse.set(fuse.get() - 1);
        }
        self.at = to.filter(|at| *at < self.entries.len());
        Ok(())
    }

    fn position(&self, user_key: &[u8], trailer: u64) -> usize {
        self.entries.partition_point(|e| compare_internal(&e.0, e.1, user_key, trailer).is_lt())
    }

    fn entry(&self) -> &Entry {
        &self.entries[self.at.expect("the cursor is valid")]
    }
}

impl InternalIter for VecIter {
    fn valid(&self) -> bool {
        self.at.is_some()
    }
    fn seek_to_first(&mut self) -> Result<()> {
        self.go(Some(0))
    }
    fn seek_to_last(&mut self) -> Result<()> {
        self.go(self.entries.len().checked_sub(1))
    }
    fn seek(&mut self, user_key: &[u8], trailer: u64) -> Result<()> {
        self.go(Some(self.position(user_key, trailer)))
    }
    fn seek_before(&mut self, user_key: &[u8], trailer: u64) -> Result<()> {
        self.go(self.position(user_key, trailer).checked_sub(1))
    }
    fn next(&mut self) -> Result<()> {
        self.go(Some(self.at.expect("the cursor is valid") + 1))
    }
    fn prev(&mut self) -> Result<()> {
        self.go(self.at.expect("the cursor is valid").checked_sub(1))
    }
    fn user_key(&self) -> &[u8] {
        &self.entry().0
    }
    fn trailer(&self) -> u64 {
        self.entry().1
    }
    fn value(&self) -> &[u8] {
        &self.entry().2
    }
}

impl ScanCursor for VecIter {
    /// As a level does, if it holds nothing newer.
    fn skip_covered(&mut self, end: &[u8], seqno: SeqNo) -> Result<()> {
        match self.entries.iter().all(|e| trailer_seqno(e.1) < seqno) {
            true => self.seek(end, u64::MAX),
            false => Ok(()),
        }
    }

    fn skip_covered_back(&mut self, start: &[u8], seqno: SeqNo) -> Result<()> {
        match self.entries.iter().all(|e| trailer_seqno(e.1) < seqno) {
            true => self.seek_before(start, u64::MAX),
            false => Ok(()),
        }
    }
}

/// Pairs of a key and its value.
pub(crate) type KeysAndValues = Vec<(Vec<u8>, Vec<u8>)>;

/// Separated values with their keys; a handle has the index of its value as offset.
#[derive(Clone, Default)]
pub(crate) struct FakeValues {
    pub values: Arc<Mutex<KeysAndValues>>,
    /// Of which of them the read fails.
    pub damaged: Arc<Mutex<BTreeSet<usize>>>,
    /// What was asked for, batch by batch.
    pub batches: Arc<Mutex<Vec<Vec<usize>>>>,
}

impl FakeValues {
    /// Adds a value; gives the handle to store in its place.
    pub fn add(&self, key: &[u8], value: &[u8]) -> ValueHandle {
        let mut values = self.values.lock();
        values.push((key.to_vec(), value.to_vec()));
        let offset = values.len() as u64 - 1;
        ValueHandle { segment: SEGMENT, offset, len: value.len() as u32, compression: 0 }
    }

    /// Adds a value that takes `stored` bytes compressed.
    pub fn add_compressed(&self, key: &[u8], value: &[u8], stored: u32) -> ValueHandle {
        ValueHandle { len: stored, compression: 1, ..self.add(key, value) }
    }

    /// The value at `handle`.
    pub fn value(&self, handle: ValueHandle) -> Vec<u8> {
        self.values.lock()[handle.offset as usize].1.clone()
    }
}

impl ValueSource for FakeValues {
    fn read(&self, wanted: &[(&[u8], ValueHandle)], max_bytes: usize) -> Vec<Result<Slice>> {
        let values = self.values.lock();
        let (mut bytes, mut count) = (0, 0);
        let fits = |(_, handle): &&(&[u8], ValueHandle)| {
            let fits = count == 0 || bytes < max_bytes;
            (bytes, count) = (bytes + values[handle.offset as usize].1.len(), count + 1);
            fits
        };
        let wanted: Vec<_> = wanted.iter().take_while(fits).copied().collect();
        self.batches.lock().push(wanted.iter().map(|(_, h)| h.offset as usize).collect());
        let read = |(key, handle): &(&[u8], ValueHandle)| {
            let at = handle.offset as usize;
            assert_eq!((values[at].0.as_slice(), handle.segment), (*key, SEGMENT));
            match self.damaged.lock().contains(&at) {
                true => Err(Error::corruption(Path::new("value"), handle.offset, "test")),
                false => Ok(Slice::from(values[at].1.as_slice())),
            }
        };
        wanted.iter().map(read).collect()
    }
}

/// The time of the reads: some expiries lie around it.
pub(crate) const NOW_MS: u64 = 1_000;

/// A history of writes spread over runs, newest run first.
#[derive(Default)]
pub(crate) struct History {
    pub runs: Vec<Vec<Entry>>,
    pub tombstones: Vec<Vec<RangeTombstone>>,
    pub last_seqno: SeqNo,
    /// The separated values.
    pub values: FakeValues,
}

/// A key out of few, some of them prefixes of others up to the last bytes.
pub(crate) fn key(n: u64) -> Vec<u8> {
    match n % 3 {
        0 => format!("k{n:03}").into_bytes(),
        1 => format!("k{n:03}-with-a-longer-tail").into_bytes(),
        _ => format!("prefix/{n:03}").into_bytes(),
    }
}

impl History {
    /// `writes` random writes to `keys` keys, in `runs` runs.
    pub fn random(rng: &mut SplitMix64, keys: u64, writes: u64, runs: u64) -> Self {
        let mut history = Self { last_seqno: SeqNo::new(writes), ..Self::default() };
        let mut bounds: Vec<u64> = (1..runs).map(|_| rng.below(writes + 1)).collect();
        bounds.sort_unstable();
        for (start, end) in
            [0].iter().chain(&bounds).zip(bounds.iter().chain(&[writes])).map(|(a, b)| (*a, *b))
        {
            let (mut run, mut tombstones) = (Vec::new(), Vec::new());
            for number in start + 1..=end {
                let seqno = SeqNo::new(number);
                let key = key(rng.below(keys));
                let value = number.to_le_bytes()[..(number % 9) as usize].to_vec();
                match rng.below(20) {
                    0..4 => run.push((key, pack_trailer(seqno, ValueKind::Delete), vec![])),
                    4..8 => {
                        let expiry = NOW_MS - 2 + rng.below(5);
                        let (kind, value) = match rng.one_in(3) {
                            true => (
                                ValueKind::PutTtlHandle,
                                history.values.add(&key, &value).encode().to_vec(),
                            ),
                            false => (ValueKind::PutTtl, value),
                        };
                        let stored = [&expiry.to_le_bytes(), value.as_slice()].concat();
                        run.push((key, pack_trailer(seqno, kind), stored));
                    }
                    8 => {
                        let end = self::key(rng.below(keys));
                        tombstones.push(RangeTombstone { start: key, end, seqno });
                    }
                    9..12 => {
                        let handle = history.values.add(&key, &value).encode().to_vec();
                        run.push((key, pack_trailer(seqno, ValueKind::PutHandle), handle));
                    }
                    _ => run.push((key, pack_trailer(seqno, ValueKind::Put), value)),
                }
            }
            history.runs.insert(0, run);
            history.tombstones.insert(0, tombstones);
        }
        history
    }

    /// What a read at `seqno` shows within the bounds, by looking at every version of every key.
    pub fn shown(
        &self,
        seqno: SeqNo,
        lower: Option<&[u8]>,
        upper: Option<&[u8]>,
    ) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut newest: BTreeMap<&[u8], (u64, &[u8])> = BTreeMap::new();
        for (key, trailer, value) in self.runs.iter().flatten() {
            let seen = newest.get(key.as_slice()).map_or(0, |v| v.0);
            if trailer_seqno(*trailer) <= seqno && *trailer > seen {
                newest.insert(key, (*trailer, value));
            }
        }
        let mut shown = Vec::new();
        for (key, (trailer, value)) in newest {
            let covered = self.tombstones.iter().flatten().any(|t| {
                t.start.as_slice() <= key
                    && key < t.end.as_slice()
                    && t.seqno <= seqno
                    && t.seqno > trailer_seqno(trailer)
            });
            let outside = lower.is_some_and(|l| key < l) || upper.is_some_and(|u| key >= u);
            let kind = trailer_kind(trailer).expect("a known kind");
            if kind == ValueKind::Delete {
                continue;
            }
            let mut value = value;
            if kind.expires() {
                let (expiry, rest) = value.split_at(8);
                if u64::from_le_bytes(expiry.try_into().expect("8")) <= NOW_MS {
                    continue;
                }
                value = rest;
            }
            let value = match kind.is_handle() {
                true => self.values.value(ValueHandle::decode(value.try_into().expect("13"))),
                false => value.to_vec(),
            };
            if !covered && !outside {
                shown.push((key.to_vec(), value));
            }
        }
        shown
    }
}
