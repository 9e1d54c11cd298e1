//! The block codec against a plain sorted list.

use super::writer::{BlockWriter, VISITS};
use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use terrace_base::key::{compare_internal, pack_trailer, seek_trailer};
use terrace_base::{SeqNo, ValueKind};

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

fn model(entries: Vec<(Vec<u8>, u64, Vec<u8>)>, bare: bool) -> Model {
    let kind =
        |seqno: u64| if seqno.is_multiple_of(5) { ValueKind::Delete } else { ValueKind::Put };
    let trailer = |seqno| match bare {
        true => BARE_TRAILER,
        false => pack_trailer(SeqNo::new(seqno), kind(seqno)),
    };
    let mut model: Model = entries.into_iter().map(|(k, s, v)| (k, trailer(s), v)).collect();
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
    check(&vec![(Vec::new(), BARE_TRAILER, Vec::new())], &[(b"\0".to_vec(), 0)]);
    let long = vec![1u8; terrace_base::key::MAX_KEY_BYTES];
    let mut longer = long.clone();
    longer[65_535] = 2;
    check(&vec![(long, BARE_TRAILER, vec![1]), (longer, BARE_TRAILER, vec![2])], &[]);
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
        bare: bool,
    ) {
        check(&model(entries, bare), &probes);
    }

    #[test]
    fn damaged_blocks_never_panic(
        entries in vec((key(), 0u64..40, vec(any::<u8>(), 0..20)), 1..20),
        damage in vec((any::<usize>(), any::<u8>()), 1..4),
        cut: usize,
        probe in key(),
    ) {
        let mut bytes = build(&model(entries, false));
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
