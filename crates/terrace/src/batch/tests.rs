//! Batches: limits, expiries, and what stays in the log.

use super::*;
use proptest::prelude::*;
use terrace_base::{ManualClock, SegmentNumber};

#[test]
fn limits_are_refused_at_the_write_and_name_the_limit() {
    let mut batch = WriteBatch::new();
    batch.put(b"fine", b"fine");
    batch.put(vec![0; MAX_KEY_BYTES + 1], b"");
    let error = batch.seal(&ManualClock::at(0), &|_| Separation::DEFAULT).unwrap_err();
    assert!(error.to_string().contains("65536"), "{error}");
}

#[test]
fn lengths_over_the_limits_get_no_room() {
    assert!(WriteBatch::for_one(9, 1000).bytes.capacity() >= 1009);
    for (key_len, value_len) in
        [(MAX_KEY_BYTES + 1, 0), (0, MAX_VALUE_BYTES + 1), (usize::MAX, usize::MAX)]
    {
        let batch = WriteBatch::for_one(key_len, value_len);
        assert!(batch.is_empty() && batch.bytes.capacity() < 1000, "{key_len} {value_len}");
    }
}

#[test]
fn a_full_disk_takes_removals_and_a_few_bytes_that_may_use_the_reserve() {
    let mut batch = WriteBatch::new();
    batch.delete(b"a");
    assert!(batch.is_taken_when_full());
    batch.put(b"b", b"v");
    assert!(!batch.is_taken_when_full());
    batch.use_reserve();
    assert!(batch.is_taken_when_full());
    batch.put(b"c", [0; MAX_RESERVE_BYTES]);
    assert!(!batch.is_taken_when_full());
    batch.clear();
    batch.put(b"b", b"v");
    assert!(!batch.is_taken_when_full());
}

#[test]
fn a_batch_may_use_the_reserve_whatever_its_family_separates() {
    for (len, threshold) in [(100, 10), (5, 10)] {
        let mut batch = WriteBatch::new();
        batch.use_reserve();
        batch.put(b"k", vec![7; len]);
        let separation = Separation { threshold, ..Separation::DEFAULT };
        batch.seal(&ManualClock::at(0), &|_| separation).unwrap();
        assert_eq!(batch.separated().0, usize::from(len >= threshold));
        assert!(batch.is_taken_when_full(), "{len} bytes");
    }
}

/// As one is that a full disk has refused, and that finds room in the next segment.
#[test]
fn values_of_a_batch_that_is_placed_again_are_good_at_its_last_place() {
    let placed_at = |places: &[(u64, u64)]| {
        let mut batch = WriteBatch::new();
        batch.put(b"k", vec![7; 2000]);
        batch.put(b"l", vec![8; 3000]);
        batch.seal(&ManualClock::at(0), &|_| Separation::DEFAULT).unwrap();
        for (segment, at) in places {
            batch.place(SegmentNumber::new(*segment), *at);
        }
        batch.encoded().to_vec()
    };
    assert_eq!(placed_at(&[(3, 100), (4, 32)]), placed_at(&[(4, 32)]));
    assert_ne!(placed_at(&[(3, 100)]), placed_at(&[(4, 32)]));
}

#[test]
fn the_last_of_the_reserve_is_for_deleted_ranges() {
    let mut batch = WriteBatch::new();
    batch.delete_range(b"a", b"b");
    assert!(batch.is_taken_to_the_last());
    batch.delete(b"c");
    assert!(!batch.is_taken_to_the_last());
    batch.clear();
    batch.put(b"b", b"v");
    assert!(!batch.is_taken_to_the_last());
    batch.use_reserve();
    assert!(!batch.is_taken_to_the_last(), "many of them would use it up");
}

#[test]
fn ttl_counts_from_the_commit() {
    let mut batch = WriteBatch::new();
    batch.put_with_ttl(b"k", b"v", Duration::from_millis(7));
    batch.seal(&ManualClock::at(1000), &|_| Separation::DEFAULT).unwrap();
    let op = batch.ops().next().unwrap().unwrap();
    assert_eq!(op.value, [&1007u64.to_le_bytes()[..], b"v"].concat());
}

/// What an op means to a reader: family, kind without regard to where the value is, key, expiry and
/// value.
type Meaning = (u32, ValueKind, Vec<u8>, Option<[u8; 8]>, Vec<u8>);

fn meaning(op: &Op<'_>) -> Meaning {
    let (kind, expiry, value) = match op.kind {
        ValueKind::PutHandle => (ValueKind::Put, None, op.value),
        ValueKind::PutTtlHandle => (ValueKind::PutTtl, op.separated.unwrap().expiry, op.value),
        ValueKind::PutTtl => {
            let (expiry, value) = op.value.split_first_chunk::<8>().unwrap();
            (ValueKind::PutTtl, Some(*expiry), value)
        }
        kind => (kind, None, op.value),
    };
    let value = match op.separated {
        Some(s) => {
            let compression = Compression::from_byte(s.compression).unwrap();
            terrace_compression::decompress(value, compression, 1 << 20).unwrap()
        }
        None => value.to_vec(),
    };
    (op.family, kind, op.key.to_vec(), expiry, value)
}

proptest! {
    #[test]
    fn exactly_the_values_that_their_family_wants_are_separated_and_found_in_their_place(
        ops in proptest::collection::vec(
            (0u32..3, 0u8..4, any::<Vec<u8>>(), any::<u8>(), 0usize..3000, 0usize..9), 0..20),
        thresholds in proptest::array::uniform3(prop_oneof![
            Just(0usize), Just(1), Just(900), Just(1024), Just(2000), Just(usize::MAX)]),
        compression in prop_oneof![
            Just(Compression::None), Just(Compression::Lz4), Just(Compression::Zstd)],
        known: bool,
        at in 0u64..1 << 40,
    ) {
        let separation = |family: u32| Separation { threshold: thresholds[family as usize], compression };
        let mut batch = WriteBatch::new();
        let mut want: Vec<Meaning> = Vec::new();
        for (family, what, key, byte, len, noise) in &ops {
            let mut value = vec![*byte; *len];
            // Some values compress and some hardly do.
            for (n, b) in value.iter_mut().enumerate().filter(|_| *noise > 4) {
                *b = (n * n * (*noise) + n / 3) as u8;
            }
            let assumed = if known { separation(*family) } else { Separation::DEFAULT };
            match what {
                0 => {
                    batch.push(*family, ValueKind::Delete, key, &[]);
                    want.push((*family, ValueKind::Delete, key.clone(), None, vec![]));
                }
                1 => {
                    let ttl = Some(Duration::from_millis(5));
                    batch.put_value(*family, key, ttl, &value, assumed);
                    let expiry = Some(1005u64.to_le_bytes());
                    want.push((*family, ValueKind::PutTtl, key.clone(), expiry, value));
                }
                _ => {
                    batch.put_value(*family, key, None, &value, assumed);
                    want.push((*family, ValueKind::Put, key.clone(), None, value));
                }
            }
        }
        let bytes = batch.user_bytes();
        batch.seal(&ManualClock::at(1000), &separation).unwrap();
        prop_assert_eq!(batch.user_bytes(), bytes);
        batch.number(SeqNo::new(7));
        batch.place(SegmentNumber::new(3), at);
        let (_, _, decoded) = decode(batch.encoded()).unwrap();
        let decoded: Vec<_> = decoded.map(|op| op.unwrap()).collect();
        prop_assert_eq!(decoded.iter().map(meaning).collect::<Vec<_>>(), want);
        for op in &decoded {
            let threshold = thresholds[op.family as usize];
            let is_value = !matches!(op.kind, ValueKind::Delete);
            prop_assert_eq!(op.separated.is_some(), is_value && meaning(op).4.len() >= threshold);
            let Some(separated) = op.separated else { continue };
            let end = separated.at + op.value.len();
            let sum = u32::from_le_bytes(*batch.encoded()[end..].first_chunk().unwrap());
            let offset = at + separated.at as u64;
            let mask = value::place_mask(SegmentNumber::new(3), offset);
            prop_assert_eq!(sum, value::checksum(op.key, op.value) ^ mask);
            let stored = StoredHandle::new(op, &separated, SegmentNumber::new(3), at);
            let handle = terrace_base::ValueHandle::of_entry(op.kind, stored.as_bytes()).unwrap();
            prop_assert_eq!((handle.segment, handle.offset), (SegmentNumber::new(3), offset));
            prop_assert_eq!(handle.len as usize, op.value.len());
            prop_assert_eq!(handle.compression, separated.compression);
        }
        let (count, stored) = batch.separated();
        prop_assert_eq!(count, decoded.iter().filter(|op| op.separated.is_some()).count());
        let separated = decoded.iter().filter(|op| op.separated.is_some());
        prop_assert_eq!(separated.map(|op| op.value.len()).sum::<usize>(), stored);
    }

    #[test]
    fn ops_round_trip(
        ops in proptest::collection::vec((0u32..300, 0u8..3, any::<Vec<u8>>(), any::<Vec<u8>>()), 0..20),
        first in 0u64..1000,
    ) {
        let mut batch = WriteBatch::new();
        let mut want = Vec::new();
        for (family, kind, key, value) in &ops {
            let kind = [ValueKind::Put, ValueKind::Delete, ValueKind::RangeDelete][*kind as usize];
            let value = if kind == ValueKind::Delete { &[][..] } else { value };
            match kind {
                ValueKind::Put => batch.put_value(*family, key, None, value, Separation::DEFAULT),
                _ => batch.push(*family, kind, key, value),
            }
            if kind != ValueKind::RangeDelete || key.as_slice() < value {
                want.push(Op { family: *family, kind, key, value, separated: None });
            }
        }
        batch.number(SeqNo::new(first));
        let (seqno, count, decoded) = decode(batch.encoded()).unwrap();
        prop_assert_eq!((seqno, count as usize), (SeqNo::new(first), want.len()));
        let got: Vec<_> = decoded.map(|op| op.unwrap()).collect();
        prop_assert_eq!(got, want);
    }

    #[test]
    fn malformed_bytes_end_in_an_error_not_a_panic(bytes: Vec<u8>) {
        if let Some((_, _, ops)) = decode(&bytes) {
            prop_assert!(ops.take(1000).filter(|op| op.is_err()).count() <= 1);
        }
    }
}
