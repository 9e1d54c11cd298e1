//! What the file system knows to be damaged is never read as a header, record or marker, although every checksum fits:
//! checksums are for accidents, and somebody may have changed the file on purpose.

use super::*;
use crate::{LogOptions, LogWriter, SegmentFile, recover, salvage};
use std::ops::Range;
use terrace_vfs::SimVfs;

const NUMBER: SegmentNumber = SegmentNumber::new(3);

fn path() -> &'static Path {
    Path::new("/log/000003.log")
}

/// A synced segment with a marker behind each record; the places of data records, and of markers.
fn log() -> (SimVfs, Vec<Range<u64>>, Vec<Range<u64>>) {
    let sim = SimVfs::new(1);
    sim.create_dir_all(Path::new("/log")).unwrap();
    let mut writer = LogWriter::create(&sim, path(), NUMBER, &LogOptions::default()).unwrap();
    for len in [10, 300, CHUNK_BYTES - 100, 70, WHOLE_BYTES + CHUNK_BYTES + 5, 20] {
        writer.append(&[&vec![b'r'; len]]).unwrap();
        writer.sync().unwrap();
    }
    let (mut records, mut markers) = (Vec::new(), Vec::new());
    let mut reader = LogReader::open(&sim, path(), NUMBER).unwrap();
    while let Step::Record(record) = reader.next().unwrap() {
        let (from, kind) = (record.offset, record.kind);
        let to = reader.position();
        match kind {
            RecordKind::Data => records.push(from..to),
            _ => markers.push(from..to),
        }
    }
    assert_eq!((records.len(), markers.len()), (6, 5));
    (sim, records, markers)
}

fn damaged(sim: &SimVfs, at: u64) -> SimVfs {
    let image = sim.kill_image();
    assert!(image.know_damage(path(), at..at + 1));
    image
}

/// Bytes of a record at both of its ends, around its header, and in every chunk of a long one.
fn bytes_of(record: &Range<u64>) -> Vec<u64> {
    let (start, end) = (record.start, record.end);
    let mut bytes: Vec<u64> = (start..end.min(start + 12)).chain([end - 1]).collect();
    bytes.extend((start..end).step_by(CHUNK_BYTES / 2 + 1));
    bytes
}

fn files() -> Vec<SegmentFile> {
    vec![SegmentFile { number: NUMBER, path: path().to_path_buf() }]
}

#[test]
fn a_damaged_header_is_none() {
    let (sim, _, _) = log();
    for at in 0..HEADER_BYTES {
        let image = damaged(&sim, at);
        assert!(matches!(
            read_header_around_loss(&image, path()),
            Ok(Err(HeaderFault::Damaged(_)))
        ));
        let mut reader = LogReader::open(&image, path(), NUMBER).unwrap();
        assert!(!reader.has_header());
        assert!(matches!(reader.next().unwrap(), Step::End { offset: 0, torn: Some(_) }));
    }
}

#[test]
fn a_damaged_record_is_none_and_the_others_are_found() {
    let (sim, records, markers) = log();
    for record in records.iter().chain(&markers) {
        for at in bytes_of(record) {
            let image = damaged(&sim, at);
            let mut reader = LogReader::open(&image, path(), NUMBER).unwrap();
            let (mut found, mut ends) = (Vec::new(), Vec::new());
            loop {
                match reader.next().unwrap() {
                    Step::Record(record) => found.push(record.offset),
                    Step::End { offset, torn } => {
                        ends.push((offset, torn.is_some()));
                        if reader.resync().unwrap().is_none() {
                            break;
                        }
                    }
                }
            }
            assert!(!found.contains(&record.start), "byte {at} of {record:?}");
            assert_eq!(found.len(), records.len() + markers.len() - 1, "byte {at} of {record:?}");
            assert_eq!(ends[0], (record.start, true), "byte {at} of {record:?}");
            // A salvage goes on behind it, too, and tells.
            let mut salvaged = 0;
            let mut apply = |_: SegmentNumber, _: u64, _: &[u8]| {
                salvaged += 1;
                Ok(())
            };
            let (_, gaps) = salvage(&image, &files(), &mut apply).unwrap();
            let lost = usize::from(records.contains(record));
            assert_eq!((salvaged, gaps.len()), (records.len() - lost, 1));
        }
    }
}

#[test]
fn a_recovery_ends_at_damage_and_damaged_markers_prove_nothing() {
    let (sim, records, markers) = log();
    for (n, record) in records.iter().enumerate() {
        for at in bytes_of(record) {
            // A marker behind it proves that it was durable.
            let image = damaged(&sim, at);
            let refused = recover(&image, &files(), &mut |_, _, _| Ok(()));
            let is_proven = markers.iter().any(|marker| marker.start >= record.end);
            assert_eq!(refused.is_err_and(|error| error.is_corruption()), is_proven, "byte {at}");
            // But not if all of these are damaged.
            for marker in markers.iter().filter(|marker| marker.start >= record.end) {
                assert!(image.know_damage(path(), marker.start + 3..marker.start + 4));
            }
            let found = recover(&image, &files(), &mut |_, _, _| Ok(())).unwrap();
            assert_eq!(found.records, n as u64, "byte {at}");
            assert!(found.torn.is_some() && found.dropped_bytes > 0, "byte {at}");
        }
    }
}

#[test]
fn damage_behind_the_last_record_is_no_clean_end() {
    let (sim, records, _) = log();
    let mut bytes = sim.read_file(path()).unwrap();
    let end = records.last().unwrap().end;
    assert_eq!(end, bytes.len() as u64);
    bytes.extend([0; 5000]);
    sim.write_file(path(), &bytes);
    let mut apply = |_: SegmentNumber, _: u64, _: &[u8]| Ok(());
    assert!(recover(&sim, &files(), &mut apply).unwrap().torn.is_none());
    for at in [end, end + 20, end + 4999] {
        let found = recover(&damaged(&sim, at), &files(), &mut apply).unwrap();
        assert!(found.torn.is_some() && found.records == records.len() as u64, "byte {at}");
        assert_eq!(found.dropped_bytes, at + 1 - end);
    }
}

/// Not byte by byte, each with a read of what follows.
#[test]
fn a_long_piece_that_is_damaged_is_passed_with_few_reads() {
    let sim = SimVfs::new(1);
    sim.create_dir_all(Path::new("/log")).unwrap();
    let mut writer = LogWriter::create(&sim, path(), NUMBER, &LogOptions::default()).unwrap();
    for _ in 0..9 {
        writer.append(&[&vec![b'r'; 1 << 20]]).unwrap();
    }
    writer.append(&[b"last"]).unwrap();
    let end = writer.len_bytes();
    drop(writer);
    assert!(sim.know_damage(path(), 0..end - 5000));
    assert!(sim.know_damage(path(), end - 4000..end - 100));
    let mut reader = LogReader::open(&sim, path(), NUMBER).unwrap();
    assert!(matches!(reader.next().unwrap(), Step::End { torn: Some(_), .. }));
    let before = sim.op_count();
    let found = reader.resync().unwrap().expect("the last record");
    assert!(found > end - 100 && sim.op_count() - before < 200, "{}", sim.op_count() - before);
}

/// Every fifth offset of the value looks like the header of a record of 256 KiB.
#[test]
fn a_value_that_looks_like_many_long_records_costs_no_checksum_for_each() {
    let sim = SimVfs::new(1);
    sim.create_dir_all(Path::new("/log")).unwrap();
    let mut writer = LogWriter::create(&sim, path(), NUMBER, &LogOptions::default()).unwrap();
    writer.append(&[b"first"]).unwrap();
    let value: Vec<u8> = [2, 0, 4, 0, 1].into_iter().cycle().take(1 << 20).collect();
    writer.append(&[&value]).unwrap();
    for len in [100_000, 10, 200_000, 20] {
        writer.append(&[&vec![b'r'; len]]).unwrap();
    }
    writer.sync().unwrap();
    drop(writer);
    // The record with the value, in its header.
    let mut reader = LogReader::open(&sim, path(), NUMBER).unwrap();
    reader.next().unwrap();
    let offset = reader.position();
    assert!(sim.corrupt(path(), offset, 1));
    let mut reader = LogReader::open(&sim, path(), NUMBER).unwrap();
    reader.next().unwrap();
    assert!(matches!(reader.next().unwrap(), Step::End { torn: Some(_), .. }));
    let before = sim.op_count();
    assert_eq!(reader.resync().unwrap(), Some(offset + 9 + (1 << 20)));
    assert!(sim.op_count() - before < 1000, "{}", sim.op_count() - before);
    let mut records = 0;
    while let Step::Record(record) = reader.next().unwrap() {
        records += u64::from(record.kind == RecordKind::Data);
    }
    assert_eq!(records, 4);
}

/// In room that was set aside, behind a value that has used up what may be summed up.
#[test]
fn a_long_last_record_is_found_behind_a_value_that_looks_like_many_long_records() {
    let sim = SimVfs::new(1);
    sim.create_dir_all(Path::new("/log")).unwrap();
    for preallocate_bytes in [0, 4 << 20] {
        let options = LogOptions { preallocate_bytes, ..LogOptions::default() };
        let mut writer = LogWriter::create(&sim, path(), NUMBER, &options).unwrap();
        writer.append(&[b"first"]).unwrap();
        let offset = writer.len_bytes();
        let value: Vec<u8> = [2, 0, 4, 0, 1].into_iter().cycle().take(1 << 20).collect();
        writer.append(&[&value]).unwrap();
        let last = writer.len_bytes();
        writer.append(&[&vec![b'r'; 200_000]]).unwrap();
        drop(writer);
        assert!(sim.corrupt(path(), offset, 1));
        let mut reader = LogReader::open(&sim, path(), NUMBER).unwrap();
        reader.next().unwrap();
        assert!(matches!(reader.next().unwrap(), Step::End { torn: Some(_), .. }));
        let before = sim.op_count();
        assert_eq!(reader.resync().unwrap(), Some(last));
        assert!(reader.sums.is_short());
        assert!(sim.op_count() - before < 2000, "{}", sim.op_count() - before);
        sim.remove(path()).unwrap();
    }
}
