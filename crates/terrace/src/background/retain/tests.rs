//! A naive reader over all versions must see the same before and after, at every snapshot; and
//! what can go must be gone. Drawn cases are in `testdata/retain`.

pub(crate) mod script;

use super::*;
use proptest::prelude::*;
use std::fmt::Write as _;
use std::path::Path;
use terrace_base::RangeTombstone;
use terrace_base::{FileNumber, MAX_SEQNO};

/// One version: key, sequence number, kind, expiry for `PutTtl`, and a tag standing for the value.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    key: Vec<u8>,
    seqno: SeqNo,
    kind: ValueKind,
    value: Vec<u8>,
}

impl Entry {
    fn trailer(&self) -> u64 {
        pack_trailer(self.seqno, self.kind)
    }
}

fn ttl_value(expiry_ms: u64, tag: &[u8]) -> Vec<u8> {
    [&expiry_ms.to_le_bytes()[..], tag].concat()
}

/// What a reader at `at` sees: by definition, without stripes.
fn read<'e>(
    entries: &'e [Entry],
    tombstones: &[RangeTombstone],
    key: &[u8],
    at: SeqNo,
    now_ms: u64,
) -> Option<&'e [u8]> {
    let newest =
        entries.iter().filter(|e| e.key == key && e.seqno <= at).max_by_key(|e| e.seqno)?;
    let deleted = tombstones.iter().any(|t| {
        t.start.as_slice() <= key
            && key < t.end.as_slice()
            && t.seqno <= at
            && t.seqno > newest.seqno
    });
    let gone = deleted
        || newest.kind == ValueKind::Delete
        || (newest.kind == ValueKind::PutTtl && is_expired(&newest.value, now_ms));
    (!gone).then_some(newest.value.as_slice())
}

/// What a job makes of the tombstones of its inputs.
fn collapsed(tombstones: &RangeTombstones, snapshots: &[SeqNo]) -> RangeTombstones {
    let all: Vec<RangeTombstone> = tombstones.iter().collect();
    collapse_tombstones(all.iter().map(RangeTombstone::as_ref), snapshots)
}

/// Runs the inputs through `Retain` as a job does.
fn retain_all(
    inputs: &[Entry],
    tombstones: &RangeTombstones,
    snapshots: &[SeqNo],
    now_ms: u64,
    below: &mut Below,
    zero_seqnos: bool,
) -> (Vec<Entry>, RangeTombstones) {
    let collapsed = collapsed(tombstones, snapshots);
    let survivors = surviving_tombstones(&collapsed, snapshots, below);
    let tombstones = &collapsed;
    let mut retain = Retain::new(snapshots, tombstones, now_ms, below, zero_seqnos);
    let mut out = Vec::new();
    for e in inputs {
        let mut e = e.clone();
        match retain.next(&e.key, e.trailer(), &e.value) {
            Verdict::Drop => continue,
            Verdict::Operand { .. } => panic!("there is no operand"),
            Verdict::Keep { trailer } => {
                assert_eq!(trailer_kind(trailer), Some(e.kind));
                e.seqno = trailer_seqno(trailer);
            }
            Verdict::Tombstone { trailer } => {
                assert_eq!(trailer_kind(trailer), Some(ValueKind::Delete));
                assert_eq!(trailer_seqno(trailer), e.seqno);
                e.kind = ValueKind::Delete;
                e.value.clear();
            }
        }
        out.push(e);
    }
    (out, survivors)
}

const KEYS: u8 = 8;
const NOW_MS: u64 = 1000;
/// Sequence numbers of what lies below, of the inputs, and of what lies above: 1.., 31.., 61...
const BAND: u64 = 30;

type RawEntry = (u8, u64, u8);
type RawTombstone = (u8, u8, u64);

fn raw_entries(most: usize) -> impl Strategy<Value = Vec<RawEntry>> {
    proptest::collection::vec((0..KEYS, 1..=BAND, 0u8..6), 0..most)
}

fn raw_tombstones(most: usize) -> impl Strategy<Value = Vec<RawTombstone>> {
    proptest::collection::vec((0..KEYS, 0..=KEYS, 1..=BAND), 0..most)
}

/// Entries of one band in internal order. The sequence number decides what kind a write has, so
/// that no two writes share one.
fn band(raw: &[RawEntry], taken: &[RawTombstone], offset: u64) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    for (key, seqno, what) in raw {
        let seqno_here = SeqNo::new(seqno + offset);
        if entries.iter().any(|e| e.seqno == seqno_here) || taken.iter().any(|t| t.2 == *seqno) {
            continue;
        }
        let tag = seqno_here.to_string().into_bytes();
        let (kind, value) = match what {
            0 | 1 => (ValueKind::Delete, Vec::new()),
            2 => (ValueKind::PutTtl, ttl_value(NOW_MS, &tag)),
            3 => (ValueKind::PutTtl, ttl_value(NOW_MS + 1, &tag)),
            _ => (ValueKind::Put, tag),
        };
        entries.push(Entry { key: vec![*key], seqno: seqno_here, kind, value });
    }
    entries.sort_by(|a, b| a.key.cmp(&b.key).then(b.seqno.cmp(&a.seqno)));
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
    FileMeta {
        number: FileNumber::new(1),
        size_bytes: 1,
        smallest: smallest.to_vec(),
        largest: largest.to_vec(),
        largest_exclusive,
        smallest_seqno: SeqNo::ZERO,
        largest_seqno: SeqNo::ZERO,
        entry_count: 1,
        tombstone_count: 0,
        range_tombstone_count: 0,
        raw_bytes: 1,
        created_ms: 0,
        ttl_due_ms: None,
        value_refs: Vec::new(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn every_reader_sees_the_same_before_and_after(
        raw_below in raw_entries(8),
        raw_inputs in raw_entries(20),
        raw_above in raw_entries(4),
        raw_below_t in raw_tombstones(2),
        raw_inputs_t in raw_tombstones(5),
        raw_above_t in raw_tombstones(2),
        snapshots in proptest::collection::btree_set(0..=3 * BAND + 1, 0..4),
        zero_seqnos: bool,
    ) {
        let snapshots: Vec<SeqNo> = snapshots.into_iter().map(SeqNo::new).collect();
        let below_points = band(&raw_below, &raw_below_t, 0);
        let below_t = range_tombstones(&raw_below_t, 0);
        let inputs = band(&raw_inputs, &raw_inputs_t, BAND);
        let inputs_t = range_tombstones(&raw_inputs_t, BAND);
        let above = band(&raw_above, &raw_above_t, 2 * BAND);
        let above_t = range_tombstones(&raw_above_t, 2 * BAND);
        let files: Vec<FileMeta> = below_points
            .iter()
            .map(|e| file(&e.key, &e.key, false))
            .chain(below_t.iter().map(|t| file(&t.start, &t.end, true)))
            .collect();
        let mut below = Below::files(&files);
        let set = RangeTombstones::new(inputs_t.clone());
        let (out, survivors) =
            retain_all(&inputs, &set, &snapshots, NOW_MS, &mut below, zero_seqnos);

        let before: Vec<Entry> = [&below_points[..], &inputs, &above].concat();
        let before_t: Vec<RangeTombstone> = [&below_t[..], &inputs_t, &above_t].concat();
        let after: Vec<Entry> = [&below_points[..], &out, &above].concat();
        let after_t: Vec<RangeTombstone> =
            below_t.iter().cloned().chain(survivors.iter()).chain(above_t.iter().cloned()).collect();
        for key in 0..KEYS {
            for at in snapshots.iter().copied().chain([MAX_SEQNO]) {
                prop_assert_eq!(
                    read(&before, &before_t, &[key], at, NOW_MS),
                    read(&after, &after_t, &[key], at, NOW_MS),
                    "key {} read at {}", key, at
                );
            }
        }

        // What can go is gone.
        let held = |key: &[u8]| files.iter().any(|f| {
            f.smallest.as_slice() <= key
                && (key < f.largest.as_slice() || (!f.largest_exclusive && key == f.largest))
        });
        for pair in out.windows(2) {
            if pair[0].key == pair[1].key {
                prop_assert_ne!(
                    stripe_of(&snapshots, pair[0].seqno), stripe_of(&snapshots, pair[1].seqno)
                );
            }
        }
        for e in &out {
            let bottom = stripe_of(&snapshots, e.seqno) == 0 && !held(&e.key);
            prop_assert!(!(bottom && e.kind == ValueKind::Delete), "{e:?}");
            let expired = e.kind == ValueKind::PutTtl && is_expired(&e.value, NOW_MS);
            prop_assert!(!expired, "{e:?}");
            let spanned = set.fragment_at(&e.key).is_some();
            prop_assert_eq!(e.seqno == SeqNo::ZERO, bottom && zero_seqnos && !spanned, "{:?}", e);
        }
        for fragment in survivors.fragments() {
            for pair in fragment.seqnos.windows(2) {
                prop_assert_ne!(stripe_of(&snapshots, pair[0]), stripe_of(&snapshots, pair[1]));
            }
        }
        if files.is_empty() && snapshots.is_empty() {
            prop_assert!(survivors.is_empty());
            prop_assert!(out.iter().all(|e| e.kind != ValueKind::Delete));
        }
    }

    #[test]
    fn below_agrees_with_a_walk_over_all_files(
        list in proptest::collection::vec((0u8..30, 0u8..30, any::<bool>()), 0..8),
        range in (0u8..32, 0u8..32),
    ) {
        let files: Vec<FileMeta> = list
            .iter()
            .filter(|(a, b, exclusive)| a < b || (a == b && !exclusive))
            .map(|(a, b, exclusive)| file(&[*a], &[*b], *exclusive))
            .collect();
        let holds = |key: u8| files.iter().any(|f| {
            f.smallest[0] <= key && (key < f.largest[0] || (key == f.largest[0] && !f.largest_exclusive))
        });
        let mut below = Below::files(&files);
        for key in 0..32 {
            prop_assert_eq!(below.may_hold(&[key]), holds(key), "key {}", key);
        }
        // Keys between the one-byte keys make a range wider than the bytes it names, so that only
        // one direction is exact; the other one is bounded by whole files.
        if (range.0..range.1).any(holds) {
            prop_assert!(below.may_hold_in(&[range.0], &[range.1]));
        }
        let near = files.iter().any(|f| f.smallest[0] < range.1 && f.largest[0] >= range.0);
        if range.0 < range.1 && !near {
            prop_assert!(!below.may_hold_in(&[range.0], &[range.1]));
        }
    }
}

#[test]
fn a_flush_that_does_not_ask_keeps_every_tombstone() {
    let inputs = [Entry {
        key: b"a".to_vec(),
        seqno: SeqNo::new(5),
        kind: ValueKind::Delete,
        value: vec![],
    }];
    let set = RangeTombstones::new([RangeTombstone {
        start: b"b".to_vec(),
        end: b"c".to_vec(),
        seqno: SeqNo::new(4),
    }]);
    let (out, survivors) = retain_all(&inputs, &set, &[], 0, &mut Below::everywhere(), true);
    assert_eq!(out, inputs);
    assert_eq!(survivors, set);
}

#[test]
fn damaged_values_are_kept_for_a_reader_to_report() {
    let short = Entry {
        key: b"a".to_vec(),
        seqno: SeqNo::new(5),
        kind: ValueKind::PutTtl,
        value: vec![1, 2],
    };
    let none = RangeTombstones::default();
    let (out, _) = retain_all(
        std::slice::from_ref(&short),
        &none,
        &[],
        u64::MAX,
        &mut Below::everywhere(),
        true,
    );
    assert_eq!(out, [short]);
}

/// Runs one script: `snapshots N...`, `below a-c d-e)...`, `now MS`, `keep-seqnos`,
/// `tombstone a-d@7`, `a@5 put v`, `a@5 ttl MS v`, `a@5 del`; prints verdicts and survivors.
fn run_script(script: &str) -> String {
    let mut snapshots: Vec<SeqNo> = Vec::new();
    let mut files = Vec::new();
    let (mut now_ms, mut zero_seqnos) = (0, true);
    let mut tombstones = Vec::new();
    let mut entries = Vec::new();
    for line in script.lines().filter(|l| !l.is_empty() && !l.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[0] {
            "snapshots" => snapshots.extend(words[1..].iter().map(|w| w.parse::<SeqNo>().unwrap())),
            "now" => now_ms = words[1].parse().unwrap(),
            "keep-seqnos" => zero_seqnos = false,
            "below" => files.extend(words[1..].iter().map(|w| {
                let (start, end) = w.split_once('-').unwrap();
                let bare = end.trim_end_matches(')');
                file(start.as_bytes(), bare.as_bytes(), bare != end)
            })),
            "tombstone" => {
                let (range, seqno) = words[1].split_once('@').unwrap();
                let (start, end) = range.split_once('-').unwrap();
                tombstones.push(RangeTombstone {
                    start: start.into(),
                    end: end.into(),
                    seqno: seqno.parse().unwrap(),
                });
            }
            at => {
                let (key, seqno) = at.split_once('@').unwrap();
                let (kind, value) = match words[1] {
                    "put" => (ValueKind::Put, words[2].as_bytes().to_vec()),
                    "del" => (ValueKind::Delete, Vec::new()),
                    "ttl" => {
                        let due = words[2].parse().unwrap();
                        (ValueKind::PutTtl, ttl_value(due, words[3].as_bytes()))
                    }
                    other => panic!("unknown word {other}"),
                };
                entries.push(Entry { key: key.into(), seqno: seqno.parse().unwrap(), kind, value });
            }
        }
    }
    let set = collapsed(&RangeTombstones::new(tombstones), &snapshots);
    let mut below = Below::files(&files);
    let survivors = surviving_tombstones(&set, &snapshots, &below);
    let mut retain = Retain::new(&snapshots, &set, now_ms, &mut below, zero_seqnos);
    let mut out = String::new();
    for e in &entries {
        let key = String::from_utf8_lossy(&e.key);
        let verdict = match retain.next(&e.key, e.trailer(), &e.value) {
            Verdict::Drop => "drop".to_string(),
            Verdict::Operand { .. } => panic!("there is no operand"),
            Verdict::Keep { trailer } if trailer == e.trailer() => "keep".to_string(),
            Verdict::Keep { trailer } => format!("keep as @{}", trailer_seqno(trailer)),
            Verdict::Tombstone { .. } => "tombstone".to_string(),
        };
        writeln!(out, "{key}@{}: {verdict}", e.seqno).unwrap();
    }
    for t in survivors.iter() {
        let (start, end) = (String::from_utf8_lossy(&t.start), String::from_utf8_lossy(&t.end));
        writeln!(out, "tombstone {start}-{end}@{}", t.seqno).unwrap();
    }
    out
}

#[test]
fn scripts() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/retain");
    script::check_all(&dir, run_script);
}
