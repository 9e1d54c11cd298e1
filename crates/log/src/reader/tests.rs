//! A reader beside its writer: it sees every record once the writer has handed it over, never a half one, and no end that is
//! only what it had read ahead.

use super::*;
use crate::{LogOptions, LogWriter};
use std::sync::{Arc, Mutex};
use terrace_vfs::{BeforeCalls, Call, SimVfs};

const NUMBER: SegmentNumber = SegmentNumber::new(3);

fn path() -> &'static Path {
    Path::new("/log/000003.log")
}

fn writer(sim: &SimVfs, preallocate_bytes: u64) -> LogWriter {
    sim.create_dir_all(Path::new("/log")).unwrap();
    let options = LogOptions { preallocate_bytes, ..LogOptions::default() };
    LogWriter::create(sim, path(), NUMBER, &options).unwrap()
}

/// The records that are there now.
fn records_now(reader: &mut LogReader, sim: &SimVfs) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    while let Step::Record(record) = reader.next_beside_writer(sim).unwrap() {
        records.push(record.payload.to_vec());
    }
    records
}

#[test]
fn records_are_seen_as_they_come_also_in_preallocated_room_that_is_given_back() {
    for preallocate_bytes in [0, 1 << 20] {
        let sim = SimVfs::new(1);
        let mut writer = writer(&sim, preallocate_bytes);
        let mut reader = LogReader::open(&sim, path(), NUMBER).unwrap();
        assert_eq!(records_now(&mut reader, &sim), [b""; 0]);
        for n in 0..2000_u32 {
            writer.append(&[&n.to_le_bytes().repeat(1 + n as usize % 90)]).unwrap();
            if n % 7 == 0 {
                let records = records_now(&mut reader, &sim);
                assert_eq!(records.last().unwrap()[..4], n.to_le_bytes());
                assert!(records_now(&mut reader, &sim).is_empty());
            }
        }
        // The reader still has the file as it was before.
        writer.finish().unwrap();
        let rest = records_now(&mut reader, &sim);
        assert_eq!(rest.last().unwrap()[..4], 1999_u32.to_le_bytes());
        assert_eq!(reader.position(), writer.len_bytes());
    }
}

#[test]
fn a_half_record_is_an_end_until_it_is_whole() {
    let sim = SimVfs::new(1);
    let mut writer = writer(&sim, 0);
    writer.append(&[b"first"]).unwrap();
    let whole = sim.read_file(path()).unwrap();
    writer.append(&[b"second"]).unwrap();
    let both = sim.read_file(path()).unwrap();
    for cut in whole.len()..both.len() {
        let sim = SimVfs::new(1);
        sim.create_dir_all(Path::new("/log")).unwrap();
        assert!(sim.write_file(path(), &both[..cut]));
        let mut reader = LogReader::open(&sim, path(), NUMBER).unwrap();
        assert_eq!(records_now(&mut reader, &sim), [b"first"]);
        assert!(sim.write_file(path(), &both));
        assert_eq!(records_now(&mut reader, &sim), [b"second"], "cut at {cut}");
    }
}

#[test]
fn a_segment_that_is_finished_while_it_is_opened_is_read() {
    let sim = SimVfs::new(1);
    let mut writer = writer(&sim, 1 << 20);
    writer.append(&[b"first"]).unwrap();
    let writer = Arc::new(Mutex::new(Some(writer)));
    let of_writer = writer.clone();
    // Between the open and the first read.
    let vfs = BeforeCalls::with_reads(sim, move |call, _| {
        if matches!(call, Call::Read(..))
            && let Some(mut writer) = of_writer.lock().unwrap().take()
        {
            writer.finish().unwrap();
        }
        Ok(())
    });
    let mut reader = LogReader::open(&vfs, path(), NUMBER).unwrap();
    assert!(writer.lock().unwrap().is_none());
    assert!(matches!(reader.next().unwrap(), Step::Record(record) if record.payload == b"first"));
}

/// What was read ahead ends far before the room that was set aside did.
#[test]
fn a_segment_that_is_finished_while_it_is_read_ends_where_its_records_do() {
    for reads in [LogReader::open, LogReader::open_around_loss] {
        let sim = SimVfs::new(1);
        let mut writer = writer(&sim, 4 << 20);
        let payload = [7_u8; 1000];
        (0..500).for_each(|_| _ = writer.append(&[&payload]).unwrap());
        let mut reader = reads(&sim, path(), NUMBER).unwrap();
        assert_eq!(reader.file_bytes(), 4 << 20);
        let mut records = 0;
        loop {
            match reader.next().unwrap() {
                Step::Record(record) => assert_eq!(record.payload, payload),
                Step::End { offset, torn } => {
                    assert_eq!((offset, torn), (writer.len_bytes(), None));
                    break;
                }
            }
            records += 1;
            if records == 10 {
                writer.finish().unwrap();
            }
        }
        assert_eq!((records, reader.file_bytes()), (500, writer.len_bytes()));
        assert_eq!(reader.resync().unwrap(), None);
    }
}

/// Zeros behind damage are passed at once: looking at each of them would take days.
#[test]
fn damage_and_many_zeros_are_passed_and_the_record_behind_is_found() {
    let sim = SimVfs::new(1);
    let mut writer = writer(&sim, 0);
    writer.append(&[b"first", b"second"]).unwrap();
    let whole = sim.read_file(path()).unwrap();
    let second = whole.len() - RECORD_HEADER_BYTES - b"second".len();
    // The record stands where its checksum says, behind zeros in the place of the first one.
    let mut damaged = whole.clone();
    damaged[HEADER_BYTES as usize..second].fill(0);
    sim.write_file(path(), &damaged);
    let mut reader = LogReader::open(&sim, path(), NUMBER).unwrap();
    assert!(matches!(reader.next().unwrap(), Step::End { torn: Some(_), .. }));
    assert_eq!(reader.resync().unwrap(), Some(second as u64));
    let nothing = [&whole[..HEADER_BYTES as usize], &[7; 20], &vec![0; 8 << 20]].concat();
    sim.write_file(path(), &nothing);
    let mut reader = LogReader::open(&sim, path(), NUMBER).unwrap();
    assert!(matches!(reader.next().unwrap(), Step::End { torn: Some(_), .. }));
    assert_eq!(reader.resync().unwrap(), None);
}
