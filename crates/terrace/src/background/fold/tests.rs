//! A naive reader over all versions must see the same before and after, at every snapshot, now and when
//! values have expired; and what can be folded must be folded.

mod filtered;

use super::*;
use crate::background::retain::{Below, collapse_tombstones, surviving_tombstones};
use crate::merge_operator::{AppendOperator, MergeError, associative};
use proptest::prelude::*;
use std::collections::BTreeMap;
use terrace_base::key::{OLDEST_SEQNO_BYTES, seek_trailer};
use terrace_base::{FileNumber, MAX_SEQNO, RangeTombstone, RangeTombstones, SegmentNumber, SeqNo};
use terrace_manifest::FileMeta;

const KEYS: u8 = 5;
const NOW_MS: u64 = 1000;
/// Sequence numbers of what lies below, of the inputs, and of what lies above: 1.., 31.., 61...
const BAND: u64 = 30;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    key: Vec<u8>,
    trailer: u64,
    value: Vec<u8>,
}

impl Entry {
    fn new(key: u8, seqno: u64, kind: ValueKind, value: &[u8]) -> Self {
        let trailer = pack_trailer(SeqNo::new(seqno), kind);
        Self { key: vec![key], trailer, value: value.to_vec() }
    }

    fn seqno(&self) -> SeqNo {
        trailer_seqno(self.trailer)
    }

    fn kind(&self) -> ValueKind {
        trailer_kind(self.trailer).unwrap()
    }
}

fn ttl_value(expiry_ms: u64, value: &[u8]) -> Vec<u8> {
    [&expiry_ms.to_le_bytes(), value].concat()
}

/// What a reader at `at` sees, without stripes and without the code under test: everything is appended.
fn read(
    entries: &[Entry],
    tombstones: &[RangeTombstone],
    key: &[u8],
    at: SeqNo,
    now_ms: u64,
) -> Option<Vec<u8>> {
    let covers = |t: &&RangeTombstone| t.start.as_slice() <= key && key < t.end.as_slice();
    let seen = tombstones.iter().filter(covers).filter(|t| t.seqno <= at);
    let deleted = seen.map(|t| t.seqno).max().unwrap_or_default();
    let mut newest_first: Vec<&Entry> =
        entries.iter().filter(|e| e.key == key && e.seqno() <= at && e.seqno() > deleted).collect();
    newest_first.sort_by_key(|e| std::cmp::Reverse(e.trailer));
    let mut parts: Vec<&[u8]> = Vec::new();
    for entry in newest_first {
        match entry.kind() {
            ValueKind::Merge => parts.push(&entry.value),
            ValueKind::Merged => parts.push(&entry.value[OLDEST_SEQNO_BYTES..]),
            ValueKind::Put => {
                parts.push(&entry.value);
                break;
            }
            ValueKind::PutTtl => {
                let (expiry, value) = entry.value.split_first_chunk::<8>().unwrap();
                if u64::from_le_bytes(*expiry) > now_ms {
                    parts.push(value);
                }
                break;
            }
            _ => break,
        }
    }
    parts.reverse();
    (!parts.is_empty()).then(|| parts.concat())
}

/// The output of a job.
#[derive(Default)]
struct Output {
    kept: Vec<Entry>,
    dropped: Vec<Entry>,
}

impl Sink for Output {
    fn keep(&mut self, user_key: &[u8], trailer: u64, value: &[u8]) -> Result<()> {
        self.kept.push(Entry { key: user_key.to_vec(), trailer, value: value.to_vec() });
        Ok(())
    }

    fn drop(&mut self, user_key: &[u8], trailer: u64, value: &[u8]) {
        self.dropped.push(Entry { key: user_key.to_vec(), trailer, value: value.to_vec() });
    }
}

/// Runs the inputs through the stage as a job does.
fn fold_all(
    inputs: &[Entry],
    tombstones: &RangeTombstones,
    snapshots: &[SeqNo],
    below: &mut Below,
    operator: &dyn MergeOperator,
) -> Output {
    let retain = Retain::new(snapshots, tombstones, NOW_MS, below, false);
    let read_value = |key: &[u8], handle: ValueHandle| {
        (handle.offset > 0).then(|| Slice::from([key, b"v"].concat()))
    };
    let folding = Folding { operator: Some(operator), read_value: &read_value };
    let mut fold = Fold::new(retain, folding);
    let mut output = Output::default();
    for entry in inputs {
        fold.next(&entry.key, entry.trailer, &entry.value, &mut output).unwrap();
    }
    fold.finish(&mut output).unwrap();
    output
}

type RawEntry = (u8, u64, u8);
type RawTombstone = (u8, u8, u64);

fn raw_entries(most: usize) -> impl Strategy<Value = Vec<RawEntry>> {
    proptest::collection::vec((0..KEYS, 1..=BAND, 0u8..12), 0..most)
}

fn raw_tombstones(most: usize) -> impl Strategy<Value = Vec<RawTombstone>> {
    proptest::collection::vec((0..KEYS, 0..=KEYS, 1..=BAND), 0..most)
}

/// Entries of one band in internal order; every sequence number is used once.
fn band(raw: &[RawEntry], taken: &[RawTombstone], offset: u64) -> Vec<Entry> {
    let mut entries = BTreeMap::new();
    for (key, seqno, what) in raw {
        if taken.iter().any(|t| t.2 == *seqno) {
            continue;
        }
        let tag = format!("<{}>", seqno + offset).into_bytes();
        let (kind, value) = match what {
            0 => (ValueKind::Delete, Vec::new()),
            1 => (ValueKind::PutTtl, ttl_value(NOW_MS, &tag)),
            2 => (ValueKind::PutTtl, ttl_value(NOW_MS + 1, &tag)),
            3 | 4 => (ValueKind::Put, tag),
            _ => (ValueKind::Merge, tag),
        };
        entries.entry(*seqno).or_insert_with(|| Entry::new(*key, seqno + offset, kind, &value));
    }
    let mut entries: Vec<Entry> = entries.into_values().collect();
    entries.sort_by(|a, b| a.key.cmp(&b.key).then(b.trailer.cmp(&a.trailer)));
    entries
}

fn range_tombstones(raw: &[RawTombstone], offset: u64) -> Vec<RangeTombstone> {
    let one = |(start, end, seqno): &RawTombstone| RangeTombstone {
        start: vec![*start],
        end: vec![*end],
        seqno: SeqNo::new(seqno + offset),
    };
    raw.iter().map(one).filter(|t| t.start < t.end).collect()
}

fn file(smallest: &[u8], largest: &[u8], largest_exclusive: bool) -> FileMeta {
    let (smallest, largest) = (smallest.to_vec(), largest.to_vec());
    FileMeta {
        number: FileNumber::new(1),
        smallest,
        largest,
        largest_exclusive,
        ..FileMeta::default()
    }
}

/// What a merge reads, with what lies below and above it in sequence numbers: in this order in the arrays.
#[derive(Debug)]
struct Bands {
    snapshots: Vec<SeqNo>,
    points: [Vec<Entry>; 3],
    tombstones: [Vec<RangeTombstone>; 3],
    /// What lies below, as files.
    files: Vec<FileMeta>,
    /// The tombstones of the inputs, collapsed, and which of them stay.
    set: RangeTombstones,
    survivors: RangeTombstones,
}

impl Bands {
    /// All entries and range tombstones once the inputs have become `out` and `survivors`.
    fn with_output(
        &self,
        out: &[Entry],
        survivors: &RangeTombstones,
    ) -> (Vec<Entry>, Vec<RangeTombstone>) {
        let kept: Vec<RangeTombstone> = survivors.iter().collect();
        let [below, _, above] = &self.points;
        let [below_t, _, above_t] = &self.tombstones;
        ([below, out, above].concat(), [&below_t[..], &kept, above_t].concat())
    }
}

fn bands() -> impl Strategy<Value = Bands> {
    let raw = [(6, 2), (25, 4), (5, 2)]
        .map(|(entries, tombstones)| (raw_entries(entries), raw_tombstones(tombstones)));
    let snapshots = proptest::collection::btree_set(0..=3 * BAND + 1, 0..4);
    (raw, snapshots).prop_map(|(raw, snapshots)| {
        let snapshots: Vec<SeqNo> = snapshots.into_iter().map(SeqNo::new).collect();
        let offsets = [0, BAND, 2 * BAND];
        let points = std::array::from_fn(|at| band(&raw[at].0, &raw[at].1, offsets[at]));
        let tombstones = std::array::from_fn(|at| range_tombstones(&raw[at].1, offsets[at]));
        let [below, ..]: &[Vec<Entry>; 3] = &points;
        let [below_t, inputs_t, _]: &[Vec<RangeTombstone>; 3] = &tombstones;
        let files: Vec<FileMeta> = below
            .iter()
            .map(|e| file(&e.key, &e.key, false))
            .chain(below_t.iter().map(|t| file(&t.start, &t.end, true)))
            .collect();
        let all: Vec<RangeTombstone> = RangeTombstones::new(inputs_t.clone()).iter().collect();
        let set = collapse_tombstones(all.iter().map(RangeTombstone::as_ref), &snapshots);
        let survivors = surviving_tombstones(&set, &snapshots, &Below::files(&files));
        Bands { snapshots, points, tombstones, files, set, survivors }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn every_reader_sees_the_same_before_and_after(
        bands in bands(),
        can_combine: bool,
    ) {
        let Bands { snapshots, points, tombstones, files, set, survivors } = &bands;
        let mut below = Below::files(files);
        let append = AppendOperator::default();
        let operator: &dyn MergeOperator = if can_combine { &append } else { &OnlyFull };
        let out = fold_all(&points[1], set, snapshots, &mut below, operator).kept;

        let (before, before_t) = (points.concat(), tombstones.concat());
        let (after, after_t) = bands.with_output(&out, survivors);
        for key in 0..KEYS {
            for at in snapshots.iter().copied().chain([MAX_SEQNO]) {
                for now_ms in [NOW_MS, NOW_MS + 1] {
                    prop_assert_eq!(
                        read(&before, &before_t, &[key], at, now_ms),
                        read(&after, &after_t, &[key], at, now_ms),
                        "key {} read at {} and {} ms", key, at, now_ms
                    );
                }
            }
        }
        prop_assert!(out.windows(2).all(|pair| {
            (&pair[0].key, pair[1].trailer) < (&pair[1].key, pair[0].trailer)
        }), "out of order: {:?}", out);

        // What can go is gone.
        let held = |key: &[u8]| files.iter().any(|f| {
            f.smallest.as_slice() <= key
                && (key < f.largest.as_slice() || (!f.largest_exclusive && key == f.largest))
        });
        let stripe = |e: &Entry| snapshots.partition_point(|snapshot| *snapshot < e.seqno());
        for (at, e) in out.iter().enumerate().filter(|(_, e)| e.kind().is_operand()) {
            let next = out.get(at + 1).filter(|next| next.key == e.key && stripe(next) == stripe(e));
            match next {
                None => prop_assert!(stripe(e) > 0 || held(&e.key), "{e:?} lies on nothing"),
                Some(next) if next.kind().is_operand() => prop_assert!(!can_combine, "{e:?}"),
                Some(next) => prop_assert_eq!(next.kind(), ValueKind::PutTtl, "under {:?}", e),
            }
        }
    }
}

/// As `append`, but it cannot make one operand of several.
struct OnlyFull;

impl MergeOperator for OnlyFull {
    fn name(&self) -> &str {
        "only full"
    }

    fn full_merge(
        &self,
        key: &[u8],
        existing: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> std::result::Result<Vec<u8>, MergeError> {
        AppendOperator::default().full_merge(key, existing, operands)
    }
}

fn none() -> RangeTombstones {
    RangeTombstones::default()
}

#[test]
fn what_an_operator_refuses_stays_with_what_it_lies_on() {
    let never = associative("never", |_, _, _| Err(MergeError("no".into())));
    for base in [ValueKind::Put, ValueKind::Delete] {
        let inputs = [
            Entry::new(1, 9, ValueKind::Merge, b"9"),
            Entry::new(1, 8, ValueKind::Merge, b"8"),
            Entry::new(1, 7, base, b""),
            Entry::new(1, 6, ValueKind::Put, b"hidden"),
        ];
        let out = fold_all(&inputs, &none(), &[], &mut Below::everywhere(), &*never);
        assert_eq!(out.kept, inputs[..3]);
        // At the bottom a tombstone is worth nothing: the operands lie on nothing as well.
        let out = fold_all(&inputs, &none(), &[], &mut Below::files([]), &*never);
        let left = if base == ValueKind::Put { 3 } else { 2 };
        assert_eq!(out.kept, inputs[..left]);
    }
}

#[test]
fn a_separated_value_is_folded_if_it_can_be_read_and_is_given_up_then() {
    let append = AppendOperator::default();
    for (offset, can_read) in [(7, true), (0, false)] {
        let handle = ValueHandle { segment: SegmentNumber::new(3), offset, len: 5, compression: 0 };
        let inputs = [
            Entry::new(1, 9, ValueKind::Merge, b"9"),
            Entry::new(1, 8, ValueKind::Merge, b"8"),
            Entry::new(1, 7, ValueKind::PutHandle, &handle.encode()),
        ];
        let out = fold_all(&inputs, &none(), &[], &mut Below::everywhere(), &append);
        let is_dropped = out.dropped.contains(&inputs[2]);
        assert_eq!(is_dropped, can_read);
        if can_read {
            assert_eq!(out.kept, [Entry::new(1, 9, ValueKind::Put, b"\x01v89")]);
        } else {
            let merged = [&8u64.to_le_bytes()[..], b"89"].concat();
            assert_eq!(out.kept[0], Entry::new(1, 9, ValueKind::Merged, &merged));
            assert_eq!(out.kept[1], inputs[2]);
        }
    }
}

#[test]
fn versions_that_are_there_twice_count_once() {
    let append = AppendOperator::default();
    let merged = [&6u64.to_le_bytes()[..], b"678"].concat();
    let inputs = [
        Entry::new(1, 9, ValueKind::Merge, b"9"),
        Entry::new(1, 8, ValueKind::Merged, &merged),
        Entry::new(1, 8, ValueKind::Merge, b"8"),
        Entry::new(1, 7, ValueKind::Merge, b"7"),
        Entry::new(1, 6, ValueKind::Merge, b"6"),
        Entry::new(1, 5, ValueKind::Merge, b"5"),
        Entry::new(1, 5, ValueKind::Put, b"12345"),
        Entry::new(1, 4, ValueKind::Merge, b"4"),
    ];
    assert!(inputs.windows(2).all(|pair| pair[0].trailer > pair[1].trailer));
    assert!(inputs.iter().all(|e| e.trailer <= seek_trailer(SeqNo::new(9))));
    let out = fold_all(&inputs, &none(), &[], &mut Below::everywhere(), &append);
    assert_eq!(out.kept, [Entry::new(1, 9, ValueKind::Put, b"123456789")]);
}
