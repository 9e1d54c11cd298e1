//! What the writer hands over, when, and that the reader gets it back.

use super::*;
use crate::SegmentFile;
use crate::reader::{LogReader, RecordKind, Step};
use proptest::prelude::*;
use terrace_vfs::SimVfs;

const ONE: SegmentNumber = SegmentNumber::new(1);
const SEVEN: SegmentNumber = SegmentNumber::new(7);

fn position(segment: u64, offset: u64) -> LogPosition {
    LogPosition { segment: SegmentNumber::new(segment), offset }
}

fn path() -> &'static Path {
    Path::new("/1.log")
}

fn create(vfs: &SimVfs, buffered: bool) -> LogWriter {
    let options = LogOptions { buffered, ..LogOptions::default() };
    LogWriter::create(vfs, path(), ONE, &options).unwrap()
}

/// Offsets, kinds and payloads of all records; the end must be clean.
fn read(vfs: &SimVfs) -> Vec<(u64, RecordKind, Vec<u8>)> {
    let mut reader = LogReader::open(vfs, path(), ONE).unwrap();
    let mut records = Vec::new();
    loop {
        match reader.next().unwrap() {
            Step::Record(record) => {
                records.push((record.offset, record.kind, record.payload.to_vec()));
            }
            Step::End { offset, torn } => {
                assert_eq!((torn, offset), (None, reader.position()));
                return records;
            }
        }
    }
}

fn data(vfs: &SimVfs) -> Vec<Vec<u8>> {
    read(vfs).into_iter().filter(|r| r.1 == RecordKind::Data).map(|r| r.2).collect()
}

#[test]
fn one_call_is_one_append() {
    let vfs = SimVfs::new(0);
    let mut writer = create(&vfs, false);
    let before = vfs.op_count();
    assert_eq!(writer.append(&[b"one", b"two", b""]).unwrap(), format::HEADER_BYTES);
    assert_eq!(vfs.op_count(), before + 1);
    assert_eq!(data(&vfs), [&b"one"[..], b"two", b""]);
    assert_eq!(writer.append(&[]).unwrap(), writer.len_bytes(), "nothing to write");
}

#[test]
fn a_buffered_writer_hands_over_when_told_or_full() {
    let vfs = SimVfs::new(0);
    let mut writer = create(&vfs, true);
    let before = vfs.op_count();
    writer.append(&[&[1; 1000]]).unwrap();
    assert_eq!(vfs.op_count(), before);
    assert_eq!(writer.len_bytes(), format::HEADER_BYTES + 1009);
    let offset = format::HEADER_BYTES;
    assert_eq!(writer.end(), LogPosition { segment: ONE, offset }, "the kernel has nothing yet");
    writer.flush().unwrap();
    let end = LogPosition { segment: ONE, offset: writer.len_bytes() };
    assert_eq!((data(&vfs).len(), writer.end()), (1, end));
    let before = vfs.op_count();
    for _ in 0..100 {
        writer.append(&[&[1; 1000]]).unwrap();
    }
    assert_eq!(vfs.op_count(), before + 1);
    writer.finish().unwrap();
    assert_eq!(data(&vfs).len(), 101);
}

#[test]
fn a_marker_follows_each_sync_that_says_something() {
    let vfs = SimVfs::new(0);
    let mut writer = create(&vfs, false);
    writer.sync().unwrap();
    writer.append(&[b"a"]).unwrap();
    writer.sync().unwrap();
    let through = LogPosition { segment: ONE, offset: writer.len_bytes() };
    writer.note_synced(LogPosition { segment: ONE, offset: format::HEADER_BYTES + 1 });
    let offset = writer.append(&[b"b"]).unwrap();
    let kinds: Vec<_> = read(&vfs).into_iter().map(|r| (r.0, r.1)).collect();
    let first = format::HEADER_BYTES;
    assert_eq!(
        kinds,
        [
            (first, RecordKind::Data),
            (first + 10, RecordKind::SyncMarker(through)),
            (offset, RecordKind::Data)
        ]
    );
    writer.note_synced(through);
    writer.append(&[]).unwrap();
    assert_eq!(read(&vfs).len(), 3, "stated already");
}

#[test]
fn after_a_failed_sync_nothing_is_synced_again() {
    let vfs = SimVfs::new(0);
    let mut writer = create(&vfs, true);
    writer.append(&[b"a"]).unwrap();
    writer.flush().unwrap();
    let kind = terrace_vfs::FaultKind::SyncFails;
    let at_op = vfs.op_count();
    vfs.set_fault(Some(terrace_vfs::Fault { at_op, kind, forever: false, filter: None }));
    assert!(writer.sync().is_err());
    assert!(writer.sync().is_err() && writer.sync_to_end().is_err() && writer.append(&[]).is_err());
}

#[test]
fn a_large_payload_is_handed_over_without_a_copy_and_read_back() {
    let vfs = SimVfs::new(0);
    let mut writer = create(&vfs, false);
    let large: Vec<u8> = (0..3 * STREAM_BYTES + 17).map(|at| (at * 7) as u8).collect();
    let middle = &large[..STREAM_BYTES - 5];
    writer.append(&[b"before", &large, middle, middle, b"after"]).unwrap();
    assert!(writer.buffer.capacity() < 2 * STREAM_BYTES, "{}", writer.buffer.capacity());
    let found = data(&vfs);
    assert!(found == [&b"before"[..], &large, middle, middle, b"after"]);
}

#[test]
fn payloads_stand_where_they_were_promised_to() {
    let large = vec![7; STREAM_BYTES + 1];
    let middle = &large[..STREAM_BYTES - 5];
    for buffered in [false, true] {
        let vfs = SimVfs::new(0);
        let mut writer = create(&vfs, buffered);
        let mut promised = Vec::new();
        let mut append = |writer: &mut LogWriter, payloads: &[&[u8]]| {
            let mut at = writer.next_payload_offset();
            for payload in payloads {
                promised.push((at, payload.to_vec()));
                at += (payload.len() + RECORD_HEADER_BYTES) as u64;
            }
            writer.append(payloads).unwrap();
        };
        append(&mut writer, &[b"first"]);
        append(&mut writer, &[b"in the buffer or not", b"", b"x"]);
        writer.sync().unwrap();
        assert!(writer.pending.is_some());
        append(&mut writer, &[b"behind a marker", &large, b"behind what was streamed"]);
        writer.sync().unwrap();
        append(&mut writer, &[middle, middle, &large]);
        append(&mut writer, &[b"last"]);
        writer.finish().unwrap();
        let bytes = vfs.read_file(path()).unwrap();
        for (at, payload) in promised {
            assert!(bytes[at as usize..].starts_with(&payload), "{buffered} {at}");
        }
        assert_eq!(data(&vfs).len(), 11);
    }
}

#[test]
fn damage_in_a_large_record_is_found_before_memory_is_taken_for_it() {
    let vfs = SimVfs::new(0);
    let mut writer = create(&vfs, false);
    writer.append(&[&vec![1; 9 << 20]]).unwrap();
    vfs.corrupt(path(), 5 << 20, 1);
    let mut reader = LogReader::open(&vfs, path(), ONE).unwrap();
    let Step::End { torn: Some(_), .. } = reader.next().unwrap() else { panic!() };
    assert!(reader.buffered_bytes() <= 1 << 20, "{}", reader.buffered_bytes());
}

#[test]
fn numbers_that_do_not_ascend_and_existing_files_are_refused() {
    let vfs = SimVfs::new(0);
    let options = LogOptions::default();
    for (segment, previous) in [
        (0, None),
        (3, Some(position(3, 44))),
        (3, Some(position(4, 44))),
        (3, Some(LogPosition::START)),
    ] {
        let segment = SegmentNumber::new(segment);
        let made = LogWriter::create_after(&vfs, path(), segment, &options, previous);
        assert!(matches!(made.err(), Some(Error::InvalidArgument(_))));
    }
    create(&vfs, false);
    assert!(LogWriter::create(&vfs, path(), ONE, &options).is_err());
}

#[test]
fn another_format_version_and_unknown_records_are_unsupported_not_damage() {
    let vfs = SimVfs::new(0);
    let mut writer = create(&vfs, false);
    writer.append(&[b"a"]).unwrap();
    let bytes = vfs.read_file(path()).unwrap();
    let mut newer = bytes.clone();
    newer[8] = 2;
    let checksum = crc32c::crc32c(&newer[..40]);
    newer[40..44].copy_from_slice(&checksum.to_le_bytes());
    vfs.write_file(path(), &newer);
    let error = LogReader::open(&vfs, path(), ONE).err().unwrap();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    let seed = format::segment_seed(ONE);
    let offset = format::HEADER_BYTES;
    let mut head = format::record_header(seed, offset, RecordType::Value, b"v");
    head[8] = 4;
    let checksum = crc32c::crc32c_append(format::checksum_start(seed, offset, &head), b"v");
    head[..4].copy_from_slice(&checksum.to_le_bytes());
    vfs.write_file(path(), [&bytes[..offset as usize], &head, b"v"].concat());
    let error = LogReader::open(&vfs, path(), ONE).unwrap().next().unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_is_appended_is_read_back_at_its_offset(
        calls in proptest::collection::vec(
            (proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 0..4), 0u8..4),
            0..40,
        ),
        buffered: bool,
        preallocate_bytes in 0u64..9000,
        previous in proptest::option::of((1u64..7, any::<u64>())),
    ) {
        let vfs = SimVfs::new(0);
        let options = LogOptions { preallocate_bytes, buffered, ..LogOptions::default() };
        let previous = previous.map(|(segment, offset)| position(segment, offset));
        let mut writer = LogWriter::create_after(&vfs, path(), SEVEN, &options, previous).unwrap();
        let mut want = Vec::new();
        for (payloads, then) in &calls {
            let slices: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).collect();
            let promised = writer.next_payload_offset();
            let mut offset = writer.append(&slices).unwrap();
            prop_assert_eq!(promised, offset + RECORD_HEADER_BYTES as u64);
            for payload in payloads {
                want.push((offset, payload.clone()));
                offset += (RECORD_HEADER_BYTES + payload.len()) as u64;
            }
            prop_assert_eq!(offset, writer.len_bytes());
            match then {
                0 => writer.sync().unwrap(),
                1 => writer.flush().unwrap(),
                _ => {}
            }
        }
        writer.finish().unwrap();
        writer.finish().unwrap();
        prop_assert_eq!(vfs.len(path()).unwrap(), writer.len_bytes());
        let mut reader = LogReader::open(&vfs, path(), SEVEN).unwrap();
        prop_assert_eq!(reader.previous(), previous);
        let mut found = Vec::new();
        while let Step::Record(record) = reader.next().unwrap() {
            if record.kind == RecordKind::Data {
                found.push((record.offset, record.payload.to_vec()));
            }
        }
        prop_assert_eq!(found, want);
        let clean = Step::End { offset: writer.len_bytes(), torn: None };
        prop_assert_eq!(reader.next().unwrap(), clean);
    }

    #[test]
    fn headers_and_markers_round_trip(
        segment in 2u64.., before in 1u64.., end: u64, linked: bool, cut in 0usize..44,
    ) {
        let before = position(before % (segment - 1) + 1, end);
        let segment = SegmentNumber::new(segment);
        let previous = linked.then_some(before).filter(|before| before.segment < segment);
        let header = Header { segment, previous };
        let bytes = format::encode_header(&header);
        prop_assert_eq!(format::decode_header(&bytes), Ok(header));
        prop_assert!(format::decode_header(&bytes[..cut]).is_err());
        let through = LogPosition { segment, offset: end };
        let marker = format::encode_marker(through);
        prop_assert_eq!(format::decode_marker(&marker), Some(through));
        prop_assert_eq!(format::decode_marker(&marker[1..]), None);
    }

    #[test]
    fn any_bytes_after_a_header_are_read_without_a_panic(
        tail in proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(2), any::<u8>()], 0..200),
    ) {
        let vfs = SimVfs::new(0);
        create(&vfs, false);
        let mut bytes = vfs.read_file(path()).unwrap();
        bytes.extend(&tail);
        vfs.write_file(path(), &bytes);
        let mut reader = LogReader::open(&vfs, path(), ONE).unwrap();
        while let Ok(Step::Record(_)) = reader.next() {}
        while reader.resync().unwrap().is_some() {}
        let segments = [SegmentFile { number: ONE, path: path().to_path_buf() }];
        prop_assert!(crate::recover(&vfs, &segments, &mut |_, _, _| Ok(())).is_ok());
    }
}

#[test]
fn a_failed_call_leaves_none_of_its_records_in_the_log() {
    // Two payloads that take two appends: the kernel has the first when the second fails.
    let vfs = SimVfs::new(3);
    vfs.create_dir_all(Path::new("/w")).unwrap();
    let path = Path::new("/w/1");
    let mut writer = LogWriter::create(&vfs, path, ONE, &LogOptions::default()).unwrap();
    writer.append(&[b"before"]).unwrap();
    let end = writer.end();
    let half = vec![7; STREAM_BYTES / 2 + 1];
    let at_op = vfs.op_count() + 1;
    let kind = terrace_vfs::FaultKind::Enospc;
    vfs.set_fault(Some(terrace_vfs::Fault { at_op, kind, forever: false, filter: None }));
    writer.append(&[&half, &half]).unwrap_err();
    assert!(vfs.len(path).unwrap() > end.offset + STREAM_BYTES as u64 / 2, "the first was taken");
    assert_eq!(writer.end(), end);
}

#[test]
fn what_a_failed_call_has_left_in_the_file_is_taken_back() {
    let third = vec![7; STREAM_BYTES / 3];
    for large in [&b"a"[..], &third, &[5; STREAM_BYTES]] {
        let vfs = SimVfs::new(3);
        let mut writer = create(&vfs, false);
        writer.append(&[b"before"]).unwrap();
        let before = read(&vfs);
        let room = writer.len_bytes() + 3 * (large.len() + RECORD_HEADER_BYTES) as u64 + 5;
        vfs.set_capacity_bytes(Some(room));
        writer.append(&[large, large, large, large]).unwrap_err();
        assert_eq!(vfs.len(path()).unwrap(), room, "three of them stand there whole");
        writer.take_back().unwrap();
        assert_eq!(read(&vfs), before);
        assert_eq!(vfs.len(path()).unwrap(), writer.end().offset);
        writer.append(&[b"x"]).unwrap_err();
        assert_eq!(writer.sync_to_end().unwrap(), writer.end());
    }
}

#[test]
fn what_a_buffered_writer_holds_goes_on_in_the_next_segment() {
    for (fits, through) in [(0, false), (0, true), (30, false), (30, true)] {
        let vfs = SimVfs::new(0);
        let mut writer = create(&vfs, true);
        let first = b"handed over".to_vec();
        writer.append_through(&[&first]).unwrap();
        let end = writer.end();
        // A marker goes before the records that are held, and not with them.
        writer.note_synced(end);
        writer.append(&[b"held", b"", b"held too"]).unwrap();
        vfs.set_capacity_bytes(Some(
            vfs.files().iter().map(|(_, bytes)| bytes).sum::<u64>() + fits,
        ));
        let refused = vec![7; if through { 100 } else { BUFFER_BYTES }];
        let failed = match through {
            true => writer.append_through(&[&refused]),
            false => writer.append(&[&refused]),
        };
        assert!(failed.is_err() && writer.holds_records());
        assert_eq!(writer.end(), end, "records behind the end are no part of the log");
        vfs.set_capacity_bytes(None);
        let two = SegmentNumber::new(2);
        let options = LogOptions { buffered: true, ..LogOptions::default() };
        let mut next =
            LogWriter::create_after(&vfs, Path::new("/2.log"), two, &options, Some(end)).unwrap();
        assert_eq!(next.carry_over(&mut writer), Some(b"held".to_vec()));
        assert!(!writer.holds_records());
        next.append_through(&[b"new"]).unwrap();

        let files = [(1, "/1.log"), (2, "/2.log")].map(|(number, path)| SegmentFile {
            number: SegmentNumber::new(number),
            path: path.into(),
        });
        let mut records = Vec::new();
        let mut keep = |_, _, payload: &[u8]| {
            records.push(payload.to_vec());
            Ok(())
        };
        crate::recover(&vfs, &files, &mut keep).unwrap();
        assert_eq!(records, [&first[..], b"held", b"", b"held too", b"new"], "{fits} {through}");
    }
}
