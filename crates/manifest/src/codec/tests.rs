//! What is encoded is decoded; anything else is refused without a panic.

use super::*;
use proptest::prelude::*;
use terrace_base::key::MAX_KEY_BYTES;
use terrace_base::{FileNumber, SegmentNumber, SeqNo};

fn key() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(prop_oneof![Just(b'a'), any::<u8>()], 0..12)
}

/// Few or no references, ascending.
fn value_refs() -> impl Strategy<Value = Vec<ValueRef>> {
    proptest::collection::btree_map(any::<u32>(), any::<u64>(), 0..4).prop_map(|refs| {
        refs.into_iter()
            .map(|(segment, bytes)| ValueRef { segment: SegmentNumber::new(segment.into()), bytes })
            .collect()
    })
}

fn file_number() -> impl Strategy<Value = FileNumber> {
    any::<u64>().prop_map(FileNumber::new)
}

fn segment_number() -> impl Strategy<Value = SegmentNumber> {
    any::<u32>().prop_map(|number| SegmentNumber::new(number.into()))
}

fn segment() -> impl Strategy<Value = SegmentMeta> {
    (segment_number(), any::<bool>(), any::<u64>()).prop_map(|(number, log, size_bytes)| {
        SegmentMeta {
            number,
            kind: if log { SegmentKind::CommitLog } else { SegmentKind::Values },
            size_bytes,
        }
    })
}

prop_compose! {
    pub(crate) fn file()(
        (number, size_bytes) in (any::<u64>(), any::<u64>()),
        (smallest, largest, largest_exclusive) in (key(), key(), any::<bool>()),
        (a, b) in (any::<u64>(), any::<u64>()),
        counts in any::<[u64; 5]>(),
        ttl_due_ms in proptest::option::of(any::<u64>()),
        value_refs in value_refs(),
    ) -> FileMeta {
        FileMeta {
            number: FileNumber::new(number), size_bytes, smallest, largest, largest_exclusive,
            smallest_seqno: SeqNo::new(a.min(b)), largest_seqno: SeqNo::new(a.max(b)),
            entry_count: counts[0], tombstone_count: counts[1], range_tombstone_count: counts[2],
            raw_bytes: counts[3], created_ms: counts[4], ttl_due_ms, value_refs,
        }
    }
}

prop_compose! {
    fn family()(
        id: u32, create in proptest::option::of(".{0,8}"), drop: bool,
        min_log_segment in proptest::option::of(any::<u64>().prop_map(SegmentNumber::new)),
        flushed_seqno in proptest::option::of(any::<u64>()),
        merge_operator in proptest::option::of(".{0,8}"),
        options in proptest::option::of(".{0,8}"),
        added in proptest::collection::vec((any::<u8>(), file()), 0..6),
        removed in proptest::collection::vec((any::<u8>(), file_number()), 0..6),
    ) -> FamilyEdit {
        FamilyEdit {
            id, create, merge_operator, options: options.map(Into::into), drop, min_log_segment,
            flushed_seqno: flushed_seqno.map(SeqNo::new), added, removed,
        }
    }
}

prop_compose! {
    fn record()(
        snapshot in proptest::option::of(any::<(u64, u32)>()),
        next_file_number in proptest::option::of(file_number()),
        last_seqno in proptest::option::of(any::<u64>()),
        families in proptest::collection::vec(family(), 0..4),
        heat in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..9)),
        segments_added in proptest::collection::vec(segment(), 0..4),
        segments_removed in proptest::collection::vec(segment_number(), 0..9),
        keeps_evidence: bool,
        retired in proptest::collection::vec(file_number(), 0..9),
    ) -> ManifestRecord {
        ManifestRecord {
            snapshot: snapshot.map(|(store_id, next_family_id)| SnapshotHead { store_id, next_family_id }),
            edit: VersionEdit {
                next_file_number,
                last_seqno: last_seqno.map(SeqNo::new),
                families,
                filter_heat: heat.map(Into::into),
                segments_added,
                segments_removed,
                keeps_evidence,
                retired,
            },
        }
    }
}

proptest! {
    #[test]
    fn any_record_round_trips_and_no_part_of_it_does(record in record()) {
        let mut bytes = Vec::new();
        encode_record(&record, &mut bytes);
        prop_assert_eq!(decode_record(&bytes), Ok(record));
        for cut in 0..bytes.len() {
            prop_assert!(decode_record(&bytes[..cut]).is_err(), "cut at {}", cut);
        }
        bytes.push(0);
        prop_assert!(decode_record(&bytes).is_err(), "a byte too many");
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(mut bytes: Vec<u8>, kind in 1u8..3) {
        let _ = decode_record(&bytes);
        bytes.insert(0, kind);
        if let Ok(record) = decode_record(&bytes) {
            let mut again = Vec::new();
            encode_record(&record, &mut again);
            prop_assert_eq!(decode_record(&again), Ok(record));
        }
    }
}

#[test]
fn unknown_kinds_and_bits_are_told_from_damage() {
    assert_eq!(decode_record(&[9]), Err(Malformed::Unknown("record kind", 9)));
    assert_eq!(decode_record(&[EDIT, 64]), Err(Malformed::Unknown("edit field", 64)));
    assert_eq!(decode_record(&[EDIT]), Err(Malformed::Field("edit field", 1)));
}

#[test]
fn a_count_beyond_the_record_takes_no_memory() {
    let mut bytes = vec![EDIT, 0];
    put_varint(&mut bytes, u64::MAX);
    assert_eq!(decode_record(&bytes), Err(Malformed::Field("family count", bytes.len())));
    let mut bytes = vec![EDIT, 0, 1, 0, 0, 0];
    put_varint(&mut bytes, 1 << 40);
    assert!(matches!(decode_record(&bytes), Err(Malformed::Field("added count", _))));
}

#[test]
fn the_options_of_a_family_are_bounded_text() {
    let payload = |options: &[u8]| {
        let mut bytes = vec![EDIT, 0, 1, 0, OPTIONS as u8];
        put_bytes(&mut bytes, options);
        bytes.extend_from_slice(&[0, 0]);
        bytes
    };
    let longest = vec![b'o'; MAX_OPTIONS_BYTES];
    let record = decode_record(&payload(&longest)).unwrap();
    let found = record.edit.families[0].options.as_ref().map(|text| text.len());
    assert_eq!(found, Some(MAX_OPTIONS_BYTES));
    for refused in [[&longest[..], b"o"].concat(), b"\xff".to_vec()] {
        let refused = decode_record(&payload(&refused));
        assert!(matches!(refused, Err(Malformed::Field("family options", _))), "{refused:?}");
    }
    let unknown = [EDIT, 0, 1, 0, 64, 0, 0];
    assert_eq!(decode_record(&unknown), Err(Malformed::Unknown("family field", 64)));
}

#[test]
fn the_smallest_file_takes_no_less_than_counts_are_checked_against() {
    let mut bytes = Vec::new();
    put_added(1, [(0u8, &FileMeta::default())].into_iter(), &mut bytes);
    assert_eq!(bytes.len() - 1, MIN_FILE_BYTES);
}

/// The payload of an edit that adds `count` files with the keys of `file`, of which all but the first share theirs.
fn files_that_share(count: u64, file: &FileMeta) -> Vec<u8> {
    let mut both = Vec::new();
    put_added(2, [(0, file), (0, file)].into_iter(), &mut both);
    let mut one = Vec::new();
    put_added(1, [(0, file)].into_iter(), &mut one);
    let mut bytes = vec![EDIT, 0, 1, 0, 0, 0];
    put_varint(&mut bytes, count);
    bytes.extend_from_slice(&both[1..]);
    (2..count).for_each(|_| bytes.extend_from_slice(&both[one.len()..]));
    bytes
}

#[test]
fn keys_that_are_shared_take_memory_in_proportion_only() {
    let key = vec![b'k'; MAX_KEY_BYTES];
    let file = FileMeta { smallest: key.clone(), largest: key, ..FileMeta::default() };
    assert!(decode_record(&files_that_share(100, &file)).is_ok());
    let many = files_that_share(3000, &file);
    assert!(many.len() < 200_000);
    assert!(matches!(decode_record(&many), Err(Malformed::Field("key", _))));
}

#[test]
fn a_key_that_no_store_takes_is_refused() {
    for len in [MAX_KEY_BYTES, MAX_KEY_BYTES + 1] {
        let file = FileMeta { largest: vec![b'k'; len], ..FileMeta::default() };
        let decoded = decode_record(&files_that_share(2, &file));
        assert_eq!(decoded.is_ok(), len == MAX_KEY_BYTES);
    }
}

/// Whatever the keys of a store, what is written is read.
#[test]
fn any_number_of_files_with_long_keys_round_trips() {
    let key = vec![b'k'; MAX_KEY_BYTES];
    let file = FileMeta { smallest: key.clone(), largest: key, ..FileMeta::default() };
    let added = vec![(0, file); 3000];
    let family = FamilyEdit { added, ..FamilyEdit::default() };
    let edit = VersionEdit { families: vec![family], ..VersionEdit::default() };
    let mut bytes = Vec::new();
    encode_edit(&edit, &mut bytes);
    assert!(bytes.len() < 16 << 20, "{}", bytes.len());
    assert!(decode_record(&bytes).is_ok_and(|record| record.edit == edit));
}
