//! Values come back as they were written, only for their key and place, and nothing else passes.

use super::*;
use crate::SegmentFile;
use crate::format::{HEADER_BYTES, RECORD_HEADER_BYTES};
use proptest::prelude::*;
use std::path::Path;
use std::sync::Arc;
use terrace_base::key::MAX_KEY_BYTES;
use terrace_base::{Error, Result, SegmentNumber};
use terrace_buf::Slice;
use terrace_vfs::{OpenMode, RandomFile, SimVfs, Vfs};

const SEGMENT: SegmentNumber = SegmentNumber::new(9);

fn path() -> &'static Path {
    Path::new("/000009.vlog")
}

/// Key, stored bytes, compression, and the value that they are.
type Written = (Vec<u8>, Vec<u8>, u8, Vec<u8>);

fn write(vfs: &SimVfs, values: &[Written], preallocate_bytes: u64) -> Vec<ValueHandle> {
    let mut writer = ValueWriter::create(vfs, path(), SEGMENT, preallocate_bytes).unwrap();
    let mut handles = Vec::new();
    for (key, stored, compression, _) in values {
        let handle = writer.add(key, stored, *compression).unwrap();
        assert_eq!(writer.len_bytes(), handle.end());
        handles.push(handle);
    }
    let len = writer.len_bytes();
    assert_eq!((writer.finish().unwrap(), vfs.len(path()).unwrap()), (len, len));
    handles
}

fn open(vfs: &SimVfs) -> Arc<dyn RandomFile> {
    vfs.open(path(), OpenMode::default()).unwrap()
}

fn value(key: &[u8], plain: &[u8], compression: Compression) -> Written {
    let mut stored = Vec::new();
    let stored_as = terrace_compression::compress(plain, compression, &mut stored);
    (key.to_vec(), stored, stored_as as u8, plain.to_vec())
}

fn get(file: &dyn RandomFile, key: &[u8], handle: ValueHandle) -> Result<Slice> {
    read_value(&ValueRead { file, key, handle })
}

#[test]
fn the_layout_is_the_one_of_the_contract() {
    let vfs = SimVfs::new(0);
    let handles = write(&vfs, &[value(b"key", b"some value", Compression::None)], 0);
    let offset = HEADER_BYTES + RECORD_HEADER_BYTES as u64 + 4 + 1;
    assert_eq!(handles, [ValueHandle { segment: SEGMENT, offset, len: 10, compression: 0 }]);
    let bytes = vfs.read_file(path()).unwrap();
    let payload = &bytes[HEADER_BYTES as usize + RECORD_HEADER_BYTES..];
    assert_eq!(bytes[HEADER_BYTES as usize + 8], 3);
    assert_eq!(payload[..15], *b"\x03key\x28some value");
    let keyed = crc32c(b"\x03\0\0\0keysome value");
    let place = crc32c(&[9, 0, 0, 0, offset as u8, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(payload[15..], (keyed ^ place).to_le_bytes());
}

/// Whatever is stored of them: these have some bytes each.
#[test]
fn no_more_values_are_made_than_may_be_in_memory() {
    let vfs = SimVfs::new(0);
    let compressed = |n: u8| value(&[n], &vec![n; 100_000], Compression::Lz4);
    let mut values: Vec<Written> = (0..20).map(compressed).collect();
    let handles = write(&vfs, &values, 0);
    assert!(handles.iter().all(|handle| handle.len < 1000));
    let file = open(&vfs);
    // The key of this one is another.
    values[13].0 = vec![99];
    let reads: Vec<ValueRead<'_>> = values
        .iter()
        .zip(&handles)
        .map(|((key, ..), handle)| ValueRead { file: &*file, key, handle: *handle })
        .collect();
    let counts = |max_bytes| {
        let (mut rest, mut counts) = (&reads[..], Vec::new());
        while !rest.is_empty() {
            let got = read_values_within(&vfs, rest, max_bytes);
            for (read, got) in rest.iter().zip(&got) {
                assert_eq!(got.is_ok(), read.key != [99]);
                assert!(got.iter().all(|value| value[..] == vec![read.key[0]; 100_000]));
            }
            counts.push(got.len());
            rest = &rest[got.len()..];
        }
        counts
    };
    assert_eq!(counts(0), [1; 20]);
    assert_eq!(counts(250_000), [3, 3, 3, 3, 4, 3, 1]);
    assert_eq!(counts(usize::MAX), [20]);
}

#[test]
fn sizes_at_the_edges_round_trip() {
    let vfs = SimVfs::new(0);
    let long_key = vec![b'k'; MAX_KEY_BYTES];
    let mut values = Vec::new();
    for len in [0, 1, 4095, 300_000, VALUE_WRITE_BYTES - 1, VALUE_WRITE_BYTES, 3 << 20] {
        let noise: Vec<u8> = (0..len).map(|at| (at * at / 7) as u8).collect();
        for key in [&b""[..], b"key", &long_key] {
            values.push(value(key, &noise, Compression::None));
            values.push(value(key, &vec![7; len], Compression::Zstd));
        }
    }
    let handles = write(&vfs, &values, 1 << 20);
    let file = open(&vfs);
    let reads: Vec<ValueRead<'_>> = values
        .iter()
        .zip(&handles)
        .map(|((key, ..), handle)| ValueRead { file: &*file, key, handle: *handle })
        .collect();
    for ((read, result), written) in reads.iter().zip(read_values(&vfs, &reads)).zip(&values) {
        assert!(result.unwrap() == written.3, "{:?}", read.handle);
        assert!(read_value(read).unwrap() == written.3, "{:?}", read.handle);
        assert_eq!(read_value_len(read).unwrap(), written.3.len(), "{:?}", read.handle);
    }
    assert_eq!(scan(&vfs).unwrap().len(), values.len());
}

#[test]
fn one_value_is_one_device_read_and_neighbours_share_one() {
    let vfs = SimVfs::new(0);
    let values: Vec<Written> = (0..100u8)
        .map(|at| value(&[at], &vec![at; 1000 + usize::from(at)], Compression::None))
        .collect();
    let handles = write(&vfs, &values, 0);
    let file = open(&vfs);
    let read = |at: usize| ValueRead { file: &*file, key: &values[at].0, handle: handles[at] };
    let before = vfs.op_count();
    assert!(read_value(&read(5)).unwrap() == values[5].3);
    assert_eq!(vfs.op_count() - before, 1);
    // In any order, and one of them twice; 100 values of about a thousand bytes each.
    let order: Vec<usize> = (0..100).map(|at| at * 37 % 100).chain([3]).collect();
    let reads: Vec<ValueRead<'_>> = order.iter().map(|at| read(*at)).collect();
    let before = vfs.op_count();
    for (at, result) in order.iter().zip(read_values(&vfs, &reads)) {
        assert!(result.unwrap() == values[*at].3);
    }
    assert_eq!(vfs.op_count() - before, 1);
    // Four values apart is within the gap, six is not.
    for (step, count) in [(4, 1), (6, 17)] {
        let reads: Vec<ValueRead<'_>> = (0..100).step_by(step).map(read).collect();
        let before = vfs.op_count();
        assert!(read_values(&vfs, &reads).iter().all(Result::is_ok));
        assert_eq!(vfs.op_count() - before, count, "{step}");
    }
    assert!(read_values(&vfs, &[]).is_empty());
}

#[test]
fn a_joined_read_is_bounded() {
    let vfs = SimVfs::new(0);
    let values: Vec<Written> =
        (0..40u8).map(|at| value(&[at], &[at; 30_000], Compression::None)).collect();
    let handles = write(&vfs, &values, 0);
    let file = open(&vfs);
    let reads: Vec<ValueRead<'_>> = values
        .iter()
        .zip(handles)
        .map(|((key, ..), handle)| ValueRead { file: &*file, key, handle })
        .collect();
    let results = read_values(&vfs, &reads);
    for result in &results {
        let pinned = result.as_ref().unwrap().pinned_bytes() as u64;
        assert!(pinned <= JOINED_READ_BYTES + (64 << 10), "{pinned}");
    }
}

#[test]
fn one_damaged_value_of_a_joined_read_fails_alone() {
    let vfs = SimVfs::new(0);
    let values: Vec<Written> =
        (0..10u8).map(|at| value(&[at], &[at; 100], Compression::None)).collect();
    let mut handles = write(&vfs, &values, 0);
    vfs.corrupt(path(), handles[4].offset + 7, 1);
    handles[9].len = 1000;
    let file = open(&vfs);
    let reads: Vec<ValueRead<'_>> = values
        .iter()
        .zip(&handles)
        .map(|((key, ..), handle)| ValueRead { file: &*file, key, handle: *handle })
        .collect();
    for (at, result) in read_values(&vfs, &reads).into_iter().enumerate() {
        match at {
            4 | 9 => assert!(result.unwrap_err().is_corruption()),
            _ => assert!(result.unwrap() == values[at].3),
        }
    }
}

#[test]
fn a_file_may_have_grown_since_it_was_opened() {
    let vfs = SimVfs::new(0);
    let small = value(b"a", &[1; 100], Compression::None);
    let large = value(b"b", &[2; 2 << 20], Compression::None);
    let handles = write(&vfs, &[small.clone(), large.clone()], 0);
    let bytes = vfs.read_file(path()).unwrap();
    vfs.truncate(path(), HEADER_BYTES);
    let stale = open(&vfs);
    for ((key, ..), handle) in [&small, &large].into_iter().zip(&handles) {
        assert!(get(&*stale, key, *handle).unwrap_err().is_corruption());
    }
    vfs.write_file(path(), &bytes);
    for ((key, .., plain), handle) in [&small, &large].into_iter().zip(&handles) {
        assert!(get(&*stale, key, *handle).unwrap() == *plain);
    }
    let nowhere = ValueHandle { offset: 1 << 39, len: (1 << 30) - 1, ..handles[0] };
    assert!(get(&*stale, b"a", nowhere).unwrap_err().is_corruption());
}

#[test]
fn errors_name_the_file_the_place_and_both_checksums() {
    let vfs = SimVfs::new(0);
    let handles = write(&vfs, &[value(b"key", b"some value", Compression::None)], 0);
    let error = get(&*open(&vfs), b"kez", handles[0]).unwrap_err();
    let Error::Corruption { path: at, offset, detail } = &error else { panic!("{error}") };
    assert_eq!((at.as_path(), *offset), (path(), handles[0].offset));
    let mask = place_mask(SEGMENT, handles[0].offset);
    for (key, what) in [(b"kez", "found"), (b"key", "stored")] {
        let sum = format!("{:08x}", checksum(key, b"some value") ^ mask);
        assert!(detail.contains(&sum), "{what}: {sum} is not in {detail}");
    }
}

#[test]
fn what_no_handle_can_say_is_refused_and_the_writer_goes_on() {
    let vfs = SimVfs::new(0);
    assert!(ValueWriter::create(&vfs, Path::new("/0"), SegmentNumber::ZERO, 0).is_err());
    let mut writer = ValueWriter::create(&vfs, path(), SEGMENT, 0).unwrap();
    let long = vec![0; MAX_KEY_BYTES + 1];
    for (key, compression) in [(&long[..], 0), (b"k", 3)] {
        let refused = writer.add(key, b"v", compression);
        assert!(matches!(refused, Err(Error::InvalidArgument(_))));
    }
    let handle = writer.add(b"k", b"v", 0).unwrap();
    writer.finish().unwrap();
    assert_eq!(get(&*open(&vfs), b"k", handle).unwrap(), b"v");
}

#[test]
fn the_log_and_recovery_refuse_values_of_garbage_collection() {
    let vfs = SimVfs::new(0);
    write(&vfs, &[value(b"k", b"v", Compression::None)], 0);
    let segments = [SegmentFile { number: SEGMENT, path: path().to_path_buf() }];
    let recovered = crate::recover(&vfs, &segments, &mut |_, _, _| Ok(()));
    assert!(recovered.unwrap_err().is_corruption());
}

/// Key and handle of every value; all the steps up to a clean end.
fn scan(vfs: &SimVfs) -> Result<Vec<(Vec<u8>, ValueHandle)>> {
    let mut scan = ValueScan::open(vfs, path(), SEGMENT)?;
    let mut found = Vec::new();
    loop {
        match scan.next()? {
            ValueStep::Value(value) => found.push((value.key.to_vec(), value.handle)),
            ValueStep::End { offset, torn: None } => {
                assert_eq!(offset, scan.position());
                return Ok(found);
            }
            ValueStep::End { offset, torn: Some(why) } => {
                return Err(Error::corruption(path(), offset, why));
            }
        }
    }
}

fn written() -> impl Strategy<Value = Written> {
    let key = proptest::collection::vec(any::<u8>(), 0..20);
    let plain = (proptest::collection::vec(any::<u8>(), 0..50), 0usize..20);
    (key, plain, 0u8..3).prop_map(|(key, (part, repeat), kind)| {
        value(&key, &part.repeat(repeat), Compression::from_byte(kind).unwrap_or_default())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn values_round_trip(
        values in proptest::collection::vec(written(), 0..20), preallocate_bytes in 0u64..9000,
    ) {
        let vfs = SimVfs::new(0);
        let handles = write(&vfs, &values, preallocate_bytes);
        let file = open(&vfs);
        for ((key, .., plain), handle) in values.iter().zip(&handles) {
            prop_assert!(get(&*file, key, *handle).unwrap() == *plain);
        }
        let want: Vec<_> = values.iter().map(|v| v.0.clone()).zip(handles).collect();
        prop_assert_eq!(scan(&vfs).unwrap(), want);
    }

    #[test]
    fn every_flipped_byte_is_detected(
        values in proptest::collection::vec(written(), 1..5), xor in 1u8..,
    ) {
        let vfs = SimVfs::new(0);
        let handles = write(&vfs, &values, 0);
        for ((key, ..), handle) in values.iter().zip(&handles) {
            for at in handle.offset..handle.end() {
                vfs.corrupt(path(), at, xor);
                prop_assert!(get(&*open(&vfs), key, *handle).unwrap_err().is_corruption());
                vfs.corrupt(path(), at, xor);
            }
        }
        for at in 0..vfs.len(path()).unwrap() {
            vfs.corrupt(path(), at, xor);
            prop_assert!(scan(&vfs).is_err(), "byte {}", at);
            vfs.corrupt(path(), at, xor);
        }
    }

    #[test]
    fn a_handle_to_anything_else_is_detected(
        values in proptest::collection::vec(written(), 1..5),
        at: prop::sample::Index, moved in 0u64..600, other_key: Vec<u8>, len in 0u32..500,
    ) {
        let vfs = SimVfs::new(0);
        let handles = write(&vfs, &values, 0);
        let at = at.index(values.len());
        let (key, handle) = (&values[at].0, handles[at]);
        let file = open(&vfs);
        if other_key != *key {
            prop_assert!(get(&*file, &other_key, handle).unwrap_err().is_corruption());
        }
        for wrong in [
            ValueHandle { segment: SEGMENT.next(), ..handle },
            ValueHandle { offset: moved, ..handle },
            ValueHandle { len, ..handle },
        ] {
            if wrong != handle {
                prop_assert!(get(&*file, key, wrong).unwrap_err().is_corruption());
            }
        }
        // The same bytes under another number, as if files had been swapped.
        let unknown = ValueHandle { compression: 3, ..handle };
        prop_assert!(get(&*file, key, unknown).unwrap_err().is_corruption());
    }

    #[test]
    fn a_truncated_segment_loses_values_but_gives_no_wrong_ones(
        values in proptest::collection::vec(written(), 1..6), cut: prop::sample::Index,
    ) {
        let vfs = SimVfs::new(0);
        let handles = write(&vfs, &values, 0);
        let cut = cut.index(vfs.len(path()).unwrap() as usize) as u64;
        let (long, _) = (open(&vfs), vfs.truncate(path(), cut));
        for file in [long, open(&vfs)] {
            for ((key, .., plain), handle) in values.iter().zip(&handles) {
                match get(&*file, key, *handle) {
                    Ok(found) => prop_assert!(handle.end() <= cut && found == *plain),
                    Err(error) => prop_assert!(handle.end() > cut && error.is_corruption()),
                }
            }
        }
    }

    #[test]
    fn any_payload_is_decoded_without_a_panic(payload: Vec<u8>, segment: u32, offset: u64) {
        let segment = SegmentNumber::new(segment.into());
        if let Some(value) = StoredValue::decode(&payload, segment, offset) {
            prop_assert_eq!(value.stored.len(), value.handle.len as usize);
            let _ = value.is_sound();
        }
    }

    #[test]
    fn lengths_round_trip(len in 0..=MAX_STORED_VALUE_BYTES as u32, compression in 0u8..4) {
        prop_assert_eq!(unpack_length(pack_length(len, compression)), Some((len, compression)));
        prop_assert_eq!(unpack_length(pack_length(1 << 30, compression)), None);
    }
}
