//! The block codec against a plain sorted list.

use super::writer::{BlockWriter, VISITS};
use super::*;
use format::{FLAG_HANDLES, FLAG_PUTS, HANDLE_TRAILER, PUT_TRAILER};
use proptest::collection::vec;
use proptest::prelude::*;
use terrace_base::key::{compare_internal, pack_trailer, seek_trailer};
use terrace_base::{HANDLE_BYTES, SegmentNumber, SeqNo, ValueHandle, ValueKind};

type Model = Vec<(Vec<u8>, u64, Vec<u8>)>;

fn build(model: &Model) -> Vec<u8> {
    let mut writer = BlockWriter::default();
    let mut out = b"front".to_vec();
    for (key, trailer, value) in model {
        writer.add(key, *trailer, value);
    }
    let estimate = writer.size_bytes();
    writer.finish(&mut out);
    let bytes = out.split_off(5);
    let slack = 3 + 4 * model.len() + model.iter().filter(|e| e.0.len() > 100).count() * 2;
    assert!(
        estimate <= bytes.len() && bytes.len() <= estimate + slack,
        "{estimate} for {}",
        bytes.len()
    );
    assert!(writer.is_empty());
    bytes
}

/// A block is cut to the byte.
fn check_exceeds(model: &Model, len: usize) {
    let Some(((key, trailer, value), before @ [_, ..])) = model.split_last() else { return };
    let mut writer = BlockWriter::default();
    for (key, trailer, value) in before {
        writer.add(key, *trailer, value);
    }
    assert!(!writer.exceeds(len, key, *trailer, value));
    assert!(writer.exceeds(len - 1, key, *trailer, value));
}

/// Keys with few distinct bytes, so that prefixes, equal heads and short keys abound.
fn key() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![Just(0u8), Just(b'a'), Just(b'b'), Just(255)];
    (prop_oneof![Just(""), Just("shared-prefix"), Just("shared")], vec(byte, 0..8))
        .prop_map(|(front, back)| [front.as_bytes(), &back].concat())
}

/// The trailers of a block.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Trailers {
    Any,
    /// Sequence number 0: of puts, of separated values, of some of both.
    Puts,
    Handles,
    Both,
}

fn trailers() -> impl Strategy<Value = Trailers> {
    use Trailers::{Any, Both, Handles, Puts};
    prop_oneof![Just(Any), Just(Puts), Just(Handles), Just(Both)]
}

fn model(entries: Vec<(Vec<u8>, u64, Vec<u8>)>, trailers: Trailers) -> Model {
    let kind =
        |seqno: u64| if seqno.is_multiple_of(5) { ValueKind::Delete } else { ValueKind::Put };
    let entry = |(key, seqno, value): (Vec<u8>, u64, Vec<u8>)| {
        let is_handle =
            trailers == Trailers::Handles || trailers == Trailers::Both && seqno.is_multiple_of(3);
        match (trailers, is_handle) {
            (Trailers::Any, _) => (key, pack_trailer(SeqNo::new(seqno), kind(seqno)), value),
            (_, true) => {
                let (segment, len) = (SegmentNumber::new(seqno), value.len() as u32);
                let handle = ValueHandle { segment, offset: seqno, len, compression: 0 };
                (key, HANDLE_TRAILER, handle.encode().to_vec())
            }
            (_, false) => (key, PUT_TRAILER, value),
        }
    };
    let mut model: Model = entries.into_iter().map(entry).collect();
    model.sort_by(|a, b| compare_internal(&a.0, a.1, &b.0, b.1));
    model.dedup_by(|a, b| a.0 == b.0 && a.1 == b.1);
    model
}

fn lower_bound(model: &Model, key: &[u8], trailer: u64) -> usize {
    model.partition_point(|e| compare_internal(&e.0, e.1, key, trailer) == Ordering::Less)
}

fn check(model: &Model, probes: &[(Vec<u8>, u64)]) {
    let bytes = build(model);
    check_exceeds(model, bytes.len());
    let block = DataBlock::load(Buf::from(&bytes[..])).unwrap();
    let block = block.block();
    assert_eq!(block.count(), model.len());
    let mut key = Vec::new();
    for (at, (user_key, trailer, value)) in model.iter().enumerate() {
        block.read_key(at, &mut key);
        let entry = block.entry(at);
        assert_eq!(
            (&key, entry.trailer, block.value(entry.value)),
            (user_key, *trailer, &value[..])
        );
    }
    let exact = model.iter().map(|e| (e.0.clone(), e.1));
    for (user_key, trailer) in probes.iter().cloned().chain(exact) {
        let want = lower_bound(model, &user_key, trailer);
        assert_eq!(block.lower_bound(&user_key, trailer), want, "{user_key:?} @ {trailer}");
        let found = match (block.find(&user_key, trailer), model.get(want)) {
            (Located::Found { trailer, value }, Some(e)) => {
                e.0 == user_key && e.1 == trailer && e.2 == block.value(value)
            }
            (Located::Absent, Some(e)) => e.0 > user_key,
            (Located::PastEnd, None) => true,
            _ => false,
        };
        assert!(found, "{user_key:?} @ {trailer}");
    }
}

#[test]
fn a_block_may_hold_one_huge_value_or_the_empty_key() {
    let huge = vec![7u8; 1 << 20];
    check(
        &vec![(b"k".to_vec(), pack_trailer(SeqNo::new(9), ValueKind::Put), huge)],
        &[(b"".to_vec(), 0)],
    );
    check(&vec![(Vec::new(), PUT_TRAILER, Vec::new())], &[(b"\0".to_vec(), 0)]);
    let long = vec![1u8; terrace_base::key::MAX_KEY_BYTES];
    let mut longer = long.clone();
    longer[65_535] = 2;
    check(&vec![(long, PUT_TRAILER, vec![1]), (longer, PUT_TRAILER, vec![2])], &[]);
}

/// Eight bytes less for each entry: half of what a key tree over separated values takes is handles.
#[test]
fn blocks_of_handles_that_all_readers_see_store_no_trailers() {
    let block_bytes = |seqno| {
        let entry = |n: u64| {
            let handle = [n as u8; HANDLE_BYTES].to_vec();
            let trailer = pack_trailer(SeqNo::new(seqno), ValueKind::PutHandle);
            (n.to_be_bytes().to_vec(), trailer, handle)
        };
        build(&(0..100).map(entry).collect()).len()
    };
    assert_eq!(block_bytes(1) - block_bytes(0), 100 * ENTRY_TRAILER_BYTES);
}

#[test]
fn a_block_with_two_common_trailers_or_a_short_handle_is_refused() {
    let handle = vec![0; HANDLE_BYTES];
    let bytes = build(&vec![(b"key".to_vec(), HANDLE_TRAILER, handle)]);
    assert_eq!(bytes[6], FLAG_HANDLES);
    assert!(format::parse(&bytes).is_ok());
    let with_flags = |flags: u8| [&bytes[..6], &[flags], &bytes[7..]].concat();
    let other = format::parse(&with_flags(FLAG_PUTS)).unwrap();
    assert_eq!(u64::from(other.common_trailer), PUT_TRAILER);
    for flags in [FLAG_PUTS | FLAG_HANDLES, 8, 8 | FLAG_HANDLES] {
        assert!(format::parse(&with_flags(flags)).is_err(), "{flags}");
    }
    let short = build(&vec![(b"key".to_vec(), PUT_TRAILER, vec![0; HANDLE_BYTES - 1])]);
    let as_handle = [&short[..6], &[FLAG_HANDLES], &short[7..]].concat();
    assert!(format::parse(&short).is_ok() && format::parse(&as_handle).is_err());
}

#[test]
fn a_block_whose_entries_are_out_of_order_is_refused() {
    let put = |key: &str, seqno: u64| {
        (key.as_bytes().to_vec(), pack_trailer(SeqNo::new(seqno), ValueKind::Put), b"v".to_vec())
    };
    for (first, second) in [
        (put("a", 9), put("b", 9)),
        (put("a", 9), put("a", 8)),
        (put("a", 0), put("aa", 0)),
        (put("a", 9), put("a\0", 10)),
        (put("aaaa", 9), put("aaaaa", 10)),
        (put("aaaab", 9), put("aaaac", 9)),
    ] {
        // With and without bytes that all keys begin with.
        for front in [vec![], vec![put("", 9)]] {
            let is_sound = |rest: [&(Vec<u8>, u64, Vec<u8>); 2]| {
                let model: Model = front.iter().chain(rest).cloned().collect();
                format::parse(&build(&model)).is_ok()
            };
            assert!(is_sound([&first, &second]), "{first:?} {second:?}");
            assert!(!is_sound([&second, &first]), "{second:?} {first:?}");
            assert!(!is_sound([&first, &first]), "{first:?} twice");
        }
    }
}

#[test]
fn many_versions_of_one_key_are_found_by_halving() {
    let versions = (1..2000)
        .rev()
        .map(|s| (b"key".to_vec(), pack_trailer(SeqNo::new(s), ValueKind::Put), vec![]));
    let model: Model = versions.collect();
    let probes: Vec<_> =
        (0..2001).map(|s| (b"key".to_vec(), seek_trailer(SeqNo::new(s)))).collect();
    check(&model, &probes);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn blocks_round_trip(
        entries in vec((key(), 0u64..40, vec(any::<u8>(), 0..20)), 1..80),
        probes in vec((key(), (0u64..42).prop_map(|s| seek_trailer(SeqNo::new(s)))), 0..30),
        trailers in trailers(),
    ) {
        check(&model(entries, trailers), &probes);
    }

    #[test]
    fn damaged_blocks_never_panic(
        entries in vec((key(), 0u64..40, vec(any::<u8>(), 0..20)), 1..20),
        damage in vec((any::<usize>(), any::<u8>()), 1..4),
        cut: usize,
        probe in key(),
        trailers in trailers(),
    ) {
        let mut bytes = build(&model(entries, trailers));
        for (at, byte) in damage {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        if cut % 3 == 0 {
            bytes.truncate(cut % bytes.len());
        }
        if let Ok(block) = DataBlock::load(Buf::from(&bytes[..])) {
            let mut key = Vec::new();
            for at in 0..block.block().count() {
                block.block().read_key(at, &mut key);
            }
            block.block().find(&probe, seek_trailer(SeqNo::new(20)));
        }
    }
}

/// Rests that end inside their heads are counted exactly, and each only once.
#[test]
fn a_large_block_of_short_rests_is_not_counted_again_and_again() {
    let mut writer = BlockWriter::default();
    VISITS.set(0);
    let (mut blocks, target) = (0, 256 << 10);
    let mut out = Vec::new();
    for n in 0..100_000u64 {
        let (key, trailer) = (n.to_be_bytes(), pack_trailer(SeqNo::new(n), ValueKind::Put));
        if !writer.is_empty() && writer.exceeds(target, &key, trailer, b"v") {
            blocks += 1;
            out.clear();
            writer.finish(&mut out);
            assert!(out.len() <= target && out.len() > target * 9 / 10, "{}", out.len());
        }
        writer.add(&key, trailer, b"v");
    }
    assert!(blocks > 3);
    assert!(VISITS.get() < 1_000_000, "{} entries counted", VISITS.get());
}
