//! Files of both layouts: what was appended is read, what was changed is not.

use super::{encrypted, path, ring};
use proptest::prelude::*;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use terrace::vfs::{Fault, FaultKind, OpClass, PosixVfs, SimVfs, Vfs};
use terrace_encryption::EncryptedVfs;
use terrace_vfs::{CreateOptions, Error, LOST_SECTOR_BYTES, OpenMode, RandomFile, ReadRequest};

pub fn new(seed: u64) -> (SimVfs, Arc<EncryptedVfs>) {
    let sim = SimVfs::new(seed);
    sim.create_dir_all(Path::new(super::DIR)).unwrap();
    let vfs = encrypted(&sim, &[3]);
    (sim, vfs)
}

/// Bytes that repeat in no way that a page has.
pub fn content(len: usize) -> Vec<u8> {
    (0..len as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

/// A name that allows the layout.
fn name(number: usize, grows: bool) -> String {
    format!("{number:06}.{}", if grows { "log" } else { "sst" })
}

fn write(vfs: &dyn Vfs, name: &str, bytes: &[u8], grows: bool) {
    let options = CreateOptions { grows, ..Default::default() };
    let mut file = vfs.create(&path(name), &options).unwrap();
    file.append(bytes).unwrap();
    file.finish().unwrap();
    file.sync().unwrap();
    assert_eq!(file.len(), bytes.len() as u64);
}

pub fn read(file: &dyn RandomFile, from: u64, len: usize) -> Result<Vec<u8>, Error> {
    let mut buffer = vec![0; len];
    file.read_at(from, &mut buffer).map(|()| buffer)
}

pub fn read_all(vfs: &dyn Vfs, name: &str) -> Result<Vec<u8>, Error> {
    let file = vfs.open(&path(name), OpenMode::default())?;
    read(&*file, 0, file.len() as usize)
}

#[test]
fn files_of_every_length_around_a_page_are_read_as_they_were_written() {
    let (sim, vfs) = new(1);
    for grows in [false, true] {
        for len in [0, 1, 15, 16, 17, 4095, 4096, 4097, 8191, 8192, 8193, 3 << 20] {
            let name = name(len, grows);
            write(&*vfs, &name, &content(len), grows);
            assert_eq!(vfs.len(&path(&name)).unwrap(), len as u64, "{name}");
            assert_eq!(read_all(&*vfs, &name).unwrap(), content(len), "{name}");
            let pages = len.div_ceil(4096).max(1);
            let frames = super::frames(&sim.read_file(path(&name)).unwrap()).len();
            let more = 128 + if grows { 26 * frames } else { 16 * pages };
            assert_eq!(sim.len(&path(&name)).unwrap(), (len + more) as u64, "{name}");
            // The header is in the first block, and a long append is sealed in pieces.
            let most = (len + 128).div_ceil(4070) + len / (1 << 20);
            assert!(!grows || frames <= most, "{name}: {frames} frames");
            let file = vfs.open(&path(&name), OpenMode::default()).unwrap();
            for (from, len) in [(len as u64, 1), (0, len + 1), (u64::MAX, 2)] {
                let error = read(&*file, from, len).unwrap_err();
                let is_end = matches!(&error, Error::Io { source, .. } if source.kind() == ErrorKind::UnexpectedEof);
                assert!(is_end, "{name}: {error}");
            }
        }
    }
}

#[test]
fn who_saves_what_is_left_of_a_file_loses_no_other_page_than_those_that_are_damaged_or_lost() {
    let (sim, vfs) = new(1);
    let want = content(7 * 4096 + 100);
    write(&*vfs, "000001.vlog", &want, false);
    let place = |page: u64| 128 + page * (4096 + 16);
    assert!(sim.corrupt(path("000001.vlog"), place(1) + 4000, 1));
    assert!(sim.lose_sector(path("000001.vlog"), place(4) + 4100..place(4) + 4101));
    assert!(sim.corrupt(path("000001.vlog"), place(7) + 110, 1));
    let file = vfs.open(&path("000001.vlog"), OpenMode::default()).unwrap();
    for from in [0, 3000, 4096] {
        let (mut bytes, mut damaged) = (vec![1; want.len() - from], Vec::new());
        file.read_around_damage(from as u64, &mut bytes, &mut damaged).unwrap_err();
        file.read_around_loss(from as u64, &mut bytes, &mut damaged, LOST_SECTOR_BYTES).unwrap();
        assert_eq!(damaged, [4096..8192, 4 * 4096..5 * 4096, 7 * 4096..7 * 4096 + 100]);
        for (at, byte) in (from..).zip(bytes) {
            let is_lost = damaged.iter().any(|range| range.contains(&(at as u64)));
            assert_eq!(byte, if is_lost { 0 } else { want[at] }, "{at}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn what_is_appended_in_pieces_is_read_in_pieces(
        pieces in prop::collection::vec(0_usize..10_000, 0..12),
        reads in prop::collection::vec((0.0..1.0_f64, 0.0..1.0_f64), 1..8),
        grows: bool,
    ) {
        let (_, vfs) = new(1);
        let all = content(pieces.iter().sum());
        let mut file =
            vfs.create(&path(&name(1, grows)), &CreateOptions { grows, ..Default::default() }).unwrap();
        let mut rest = &all[..];
        for piece in pieces {
            let (now, later) = rest.split_at(piece);
            file.append(now).unwrap();
            rest = later;
            prop_assert_eq!(file.len(), (all.len() - rest.len()) as u64);
        }
        file.finish().unwrap();
        drop(file);
        let file = vfs.open(&path(&name(1, grows)), OpenMode::default()).unwrap();
        prop_assert_eq!(file.len(), all.len() as u64);
        let ranges: Vec<_> = reads.iter().map(|(from, len)| {
            let from = (from * all.len() as f64) as usize;
            (from, (len * (all.len() - from) as f64) as usize)
        }).collect();
        for &(from, len) in &ranges {
            prop_assert_eq!(read(&*file, from as u64, len).unwrap(), &all[from..from + len]);
        }
        let mut buffers: Vec<_> = ranges.iter().map(|(_, len)| vec![0; *len]).collect();
        let mut requests: Vec<_> = ranges.iter().zip(&mut buffers).map(|((from, _), buffer)| {
            ReadRequest::new(&*file, *from as u64, buffer)
        }).collect();
        // One that cannot be answered does not disturb the others.
        let mut past = [0; 1];
        requests.push(ReadRequest::new(&*file, all.len() as u64, &mut past));
        vfs.read_batch(&mut requests);
        let outcomes: Vec<_> = requests.into_iter().map(|request| request.result.unwrap()).collect();
        prop_assert!(outcomes.last().unwrap().is_err());
        for (at, &(from, len)) in ranges.iter().enumerate() {
            prop_assert!(outcomes[at].is_ok());
            prop_assert_eq!(&buffers[at], &all[from..from + len]);
        }
    }
}

#[test]
fn batches_over_files_of_the_machine_are_read_as_one_by_one() {
    let dir = tempfile::tempdir().unwrap();
    let vfs = EncryptedVfs::new(PosixVfs::shared(), ring(&[3]));
    let mut files = Vec::new();
    for (number, grows, direct) in [(1, false, false), (2, true, false), (3, false, true)] {
        let at = dir.path().join(name(number, grows));
        let options = CreateOptions { grows, direct, ..Default::default() };
        let mut file = vfs.create(&at, &options).unwrap();
        file.append(&content(50_000)).unwrap();
        file.finish().unwrap();
        files.push(vfs.open(&at, OpenMode { direct, random: true }).unwrap());
    }
    let mut buffers = vec![vec![0; 5000]; 30];
    let mut requests: Vec<_> = buffers
        .iter_mut()
        .enumerate()
        .map(|(at, buffer)| ReadRequest::new(&*files[at % 3], at as u64 * 1500, buffer))
        .collect();
    vfs.read_batch(&mut requests);
    assert!(requests.iter().all(|request| matches!(request.result, Some(Ok(())))));
    for (at, buffer) in buffers.iter().enumerate() {
        assert_eq!(buffer, &content(50_000)[at * 1500..][..5000]);
    }
}

#[test]
fn every_changed_byte_of_a_finished_file_is_noticed() {
    let (sim, vfs) = new(1);
    let all = content(2 * 4096 + 100);
    write(&*vfs, "file", &all, false);
    let file_bytes = sim.len(&path("file")).unwrap();
    for at in 0..file_bytes {
        assert!(sim.corrupt(path("file"), at, 1 << (at % 8)));
        match read_all(&*vfs, "file") {
            Ok(_) => panic!("byte {at}"),
            Err(error) => assert!(error.is_corruption(), "byte {at}: {error}"),
        }
        // Pages are noticed one by one.
        if let Ok(file) = vfs.open(&path("file"), OpenMode::default()) {
            let page = (at - 128) / 4112;
            let others = (0..3).filter(|other| *other != page);
            for other in others {
                let len = (all.len() - other as usize * 4096).min(4096);
                assert!(read(&*file, other * 4096, len).is_ok(), "byte {at}, page {other}");
            }
        }
        assert!(sim.corrupt(path("file"), at, 1 << (at % 8)));
    }
    assert_eq!(read_all(&*vfs, "file").unwrap(), all);
}

#[test]
fn a_finished_file_that_was_cut_does_not_end_where_it_was_cut() {
    let (sim, vfs) = new(1);
    for len in [0, 100, 4096, 4097, 12_288] {
        let name = format!("{len}");
        write(&*vfs, &name, &content(len), false);
        let whole = sim.read_file(path(&name)).unwrap();
        for cut in 128..whole.len() {
            sim.write_file(path("cut"), &whole[..cut]);
            let file = match vfs.open(&path("cut"), OpenMode::default()) {
                Ok(file) => file,
                Err(error) => {
                    assert!(error.is_corruption(), "{len} cut at {cut}: {error}");
                    continue;
                }
            };
            assert!((1..=len as u64).contains(&file.len()), "{len} cut at {cut}");
            let error = read(&*file, file.len() - 1, 1).unwrap_err();
            assert!(error.is_corruption(), "{len} cut at {cut}: {error}");
        }
    }
}

/// Every page that is whole is saved, and what is missing behind them is damage, wherever the cut is.
#[test]
fn who_saves_what_is_left_of_a_file_that_was_cut_has_every_whole_page() {
    let (sim, vfs) = new(1);
    for len in [0, 100, 4096, 4097, 12_288] {
        let (name, want) = (format!("{len}"), content(len));
        write(&*vfs, &name, &want, false);
        let whole = sim.read_file(path(&name)).unwrap();
        let file = vfs.open_around_loss(&path(&name)).unwrap();
        assert_eq!(read(&*file, 0, len).unwrap(), want);
        assert_eq!(file.len(), len as u64);
        for cut in 129..whole.len() {
            sim.write_file(path("cut"), &whole[..cut]);
            let file = vfs.open_around_loss(&path("cut")).unwrap();
            let saved = (cut - 128) / (4096 + 16) * 4096;
            assert!((saved + 1..=len.max(1)).contains(&(file.len() as usize)), "{len} at {cut}");
            let (mut bytes, mut damaged) = (vec![1; file.len() as usize], Vec::new());
            file.read_around_loss(0, &mut bytes, &mut damaged, LOST_SECTOR_BYTES).unwrap();
            assert_eq!(damaged.len(), 1, "{len} at {cut}");
            assert_eq!(damaged[0], saved as u64..file.len(), "{len} at {cut}");
            assert_eq!(bytes[..saved], want[..saved], "{len} at {cut}");
            assert!(bytes[saved..].iter().all(|byte| *byte == 0), "{len} at {cut}");
            let mut last = [0];
            let mut requests = [ReadRequest::new(&*file, file.len() - 1, &mut last)];
            vfs.read_batch(&mut requests);
            let [request] = requests;
            assert!(request.result.unwrap().unwrap_err().is_corruption(), "{len} at {cut}");
        }
        sim.write_file(path("cut"), &whole[..128]);
        let Err(error) = vfs.open_around_loss(&path("cut")) else { panic!("{len}") };
        assert!(error.is_corruption(), "{error}");
    }
}

#[test]
fn pages_are_bound_to_their_place_and_to_their_file() {
    let (sim, vfs) = new(1);
    write(&*vfs, "one", &content(3 * 4096), false);
    write(&*vfs, "two", &content(3 * 4096), false);
    let (one, two) = (sim.read_file(path("one")).unwrap(), sim.read_file(path("two")).unwrap());
    let page = |bytes: &[u8], at: usize| bytes[128 + at * 4112..][..4112].to_vec();
    let moved = [page(&one, 1), page(&one, 0), page(&one, 2)].concat();
    let of_another = [page(&one, 0), page(&two, 1), page(&one, 2)].concat();
    for (pages, wrong) in [(moved, [0, 1]), (of_another, [1, 1])] {
        sim.write_file(path("one"), [&one[..128], &pages].concat());
        let file = vfs.open(&path("one"), OpenMode::default()).unwrap();
        for at in 0..3_u64 {
            let is_right = read(&*file, at * 4096, 4096).is_ok();
            assert_eq!(is_right, !wrong.contains(&at), "page {at}");
        }
    }
    // The same content, twice: nothing is alike but what is not secret.
    assert_ne!(one[28..60], two[28..60]);
    assert!((0..3).all(|at| page(&one, at) != page(&two, at)));
}

/// No nonce may be used again for other bytes.
#[test]
fn a_file_takes_nothing_more_after_an_append_that_failed() {
    for grows in [false, true] {
        let (sim, vfs) = new(1);
        let options = CreateOptions { grows, ..Default::default() };
        let at = path(&name(1, grows));
        let mut file = vfs.create(&at, &options).unwrap();
        file.append(&content(5000)).unwrap();
        sim.set_fault(Some(Fault {
            at_op: sim.op_count(),
            kind: FaultKind::Enospc,
            forever: false,
            filter: Some(OpClass::Append),
        }));
        assert!(file.append(&content(10_000)).unwrap_err().is_no_space());
        assert_eq!(sim.executed_faults(), 1);
        sim.set_fault(None);
        let before = sim.read_file(&at).unwrap();
        assert!(file.append(&content(10_000)).is_err());
        assert_eq!(sim.read_file(&at).unwrap(), before);
        assert_eq!(file.finish().is_ok(), grows, "pages have no end; frames end where they came");
    }
}

#[test]
fn a_file_without_room_for_its_header_is_not_created() {
    let (sim, vfs) = new(1);
    sim.set_capacity_bytes(Some(100));
    let refused = vfs.create(&path("file"), &CreateOptions::default());
    assert!(refused.is_err_and(|error| error.is_no_space()));
    assert!(!vfs.exists(&path("file")).unwrap());
    sim.set_capacity_bytes(None);
    write(&*vfs, "file", b"content", false);
}

#[test]
fn a_file_that_grows_is_read_meanwhile() {
    let (_, vfs) = new(1);
    let options = CreateOptions { grows: true, preallocate_bytes: 1 << 20, ..Default::default() };
    let at = path("000001.log");
    let mut file = vfs.create(&at, &options).unwrap();
    let all = content(20_000);
    file.append(&all[..100]).unwrap();
    let reader = vfs.open(&at, OpenMode::default()).unwrap();
    assert_eq!(reader.len(), 100);
    for (from, to) in [(100, 4500), (4500, 20_000)] {
        file.append(&all[from..to]).unwrap();
        assert_eq!(read(&*reader, 50, to - 50).unwrap(), &all[50..to]);
        assert_eq!(vfs.len(&at).unwrap(), to as u64);
    }
}

/// Its end is written later, as that of an ingested SST.
#[test]
fn a_file_in_pages_may_be_synced_before_it_is_finished() {
    let (sim, vfs) = new(1);
    let mut file = vfs.create(&path("000001.tmp"), &CreateOptions::default()).unwrap();
    file.append(&content(10_000)[..9000]).unwrap();
    file.sync().unwrap();
    file.append(&content(10_000)[9000..]).unwrap();
    file.finish().unwrap();
    file.sync().unwrap();
    drop(file);
    vfs.sync_dir(Path::new(super::DIR)).unwrap();
    let left = sim.crash_image(1);
    assert_eq!(read_all(&*encrypted(&left, &[3]), "000001.tmp").unwrap(), content(10_000));
}

#[test]
fn files_that_are_not_encrypted_are_told_from_damaged_ones() {
    let (sim, vfs) = new(1);
    let sst = [&content(500)[..], b"TerraSST"].concat();
    for plain in [&b"MANIFEST-000001 01234567\n"[..], b"TERRALOG and more", &sst] {
        sim.write_file(path("CURRENT"), plain);
        let opened = vfs.open(&path("CURRENT"), OpenMode::default());
        let Err(error) = opened else { panic!("{plain:?}") };
        assert!(error.to_string().contains("it is not encrypted"), "{error}");
        assert!(matches!(vfs.len(&path("CURRENT")), Err(Error::Unsupported { .. })));
    }
    for torn in [&content(500)[..], &[9; 30]] {
        sim.write_file(path("000001.sst"), torn);
        let opened = vfs.open(&path("000001.sst"), OpenMode::default());
        assert!(opened.is_err_and(|error| error.is_corruption()));
        // The log's evidence says whether something is lost.
        sim.write_file(path("000001.log"), torn);
        let (file, zeros) = (path("000001.log"), vec![0; torn.len().saturating_sub(128)]);
        assert_eq!(vfs.len(&file).unwrap(), zeros.len() as u64);
        assert_eq!(read_all(&*vfs, "000001.log").is_err(), !zeros.is_empty());
        let (mut bytes, mut damaged) = (vec![1; zeros.len()], Vec::new());
        let file = vfs.open(&file, OpenMode::default()).unwrap();
        file.read_around_damage(0, &mut bytes, &mut damaged).unwrap();
        assert_eq!(bytes, zeros);
        let all = 0..zeros.len() as u64;
        assert_eq!(damaged, if all.is_empty() { vec![] } else { vec![all] });
    }
}

/// Nothing says where a file that grows ends. It must not pass for one that says so.
#[test]
fn no_other_file_is_taken_for_one_that_grows() {
    let (sim, vfs) = new(1);
    write(&*vfs, "SYNCED-1", b"MANIFEST-000666 00000000", true);
    let raw = sim.read_file(path("SYNCED-1")).unwrap();
    for name in ["CURRENT", "000001.sst", "000002.vlog", "any"] {
        sim.write_file(path(name), &raw);
        let opened = vfs.open(&path(name), OpenMode::default());
        assert!(opened.is_err_and(|error| error.is_corruption()), "{name}");
    }
    // Nor the other way round.
    write(&*vfs, "000005.sst", b"TERRALOG", false);
    sim.write_file(path("000003.log"), sim.read_file(path("000005.sst")).unwrap());
    assert!(read_all(&*vfs, "000003.log").is_err_and(|error| error.is_corruption()));
    let options = CreateOptions { grows: true, ..Default::default() };
    assert!(vfs.create(&path("000004.sst"), &options).is_err());
}

#[test]
fn files_without_content_are_as_they_are_below() {
    let (sim, vfs) = new(1);
    let options = CreateOptions { preallocate_bytes: 70_000, ..Default::default() };
    let mut reserve = vfs.create(&path("RESERVE"), &options).unwrap();
    assert!(reserve.append(b"secret").is_err());
    drop(reserve);
    drop(vfs.create(&path("READERS-000001"), &CreateOptions::default()).unwrap());
    // Whatever keys there are later.
    let later = encrypted(&sim, &[9]);
    assert_eq!(later.len(&path("RESERVE")).unwrap(), sim.len(&path("RESERVE")).unwrap());
    assert_eq!(later.len(&path("READERS-000001")).unwrap(), 0);
}
