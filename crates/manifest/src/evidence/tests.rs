//! Evidence files, whole, cut, damaged and swapped.

use super::*;
use terrace_base::{FileNumber, SegmentNumber};
use terrace_vfs::{Fault, FaultKind, OpClass, SimVfs};

const DIR: &str = "/store";

fn claims(n: u64) -> Claims {
    Claims {
        store_id: 7,
        manifest: LogPosition { segment: SegmentNumber::new(1 + n / 10), offset: 100 + n },
        log: LogPosition { segment: SegmentNumber::new(3 + n / 5), offset: 44 + n },
        last_seqno: SeqNo::new(n),
        next_file_number: FileNumber::new(n / 2),
    }
}

fn written(count: u64) -> SimVfs {
    let vfs = SimVfs::new(1);
    let dir = Path::new(DIR);
    vfs.create_dir_all(dir).unwrap();
    let mut files: Vec<EvidenceFile> =
        (1..=2).map(|n| EvidenceFile::create(&vfs, dir, n, &claims(0)).unwrap()).collect();
    for n in 1..count {
        files[0].note(&claims(n)).unwrap();
        if n.is_multiple_of(4) {
            files[1].note(&claims(n)).unwrap();
            files[1].sync().unwrap();
        }
    }
    vfs.sync_dir(dir).unwrap();
    vfs
}

#[test]
fn what_was_noted_is_read_and_every_number_is_the_largest() {
    let found = read(&written(30), Path::new(DIR)).unwrap();
    assert_eq!(found, Evidence { claims: claims(29), problems: Vec::new() });
    assert_eq!(Claims::decode(&claims(5).encode()[1..]), None);
    assert_eq!(Claims::decode(&claims(5).encode()), Some(claims(5)));
}

#[test]
fn one_lost_or_cut_file_leaves_what_the_other_says() {
    let vfs = written(30);
    let dir = Path::new(DIR);
    for (number, left) in [(1, 28), (2, 29)] {
        let path = names::evidence_path(dir, number);
        let len = vfs.len(&path).unwrap();
        for cut in 0..len {
            let image = vfs.kill_image();
            assert!(image.truncate(&path, cut));
            let found = read(&image, dir).unwrap();
            assert!(
                found.claims.last_seqno >= SeqNo::new(left),
                "cut of {number} at {cut}: {found:?}"
            );
        }
        let image = vfs.kill_image();
        image.remove(&path).unwrap();
        let found = read(&image, dir).unwrap();
        assert_eq!(found.claims, claims(left));
        assert_eq!(found.problems, [(path, "it is missing".to_string())]);
    }
}

#[test]
fn a_damaged_byte_costs_one_record() {
    let vfs = written(30);
    let (dir, path) = (Path::new(DIR), names::evidence_path(Path::new(DIR), 1));
    for at in 0..vfs.len(&path).unwrap() {
        assert!(vfs.corrupt(&path, at, 0x10));
        let found = read(&vfs, dir).unwrap();
        assert!(found.claims.last_seqno >= SeqNo::new(28), "byte {at}: {found:?}");
        assert!(vfs.corrupt(&path, at, 0x10));
    }
}

#[test]
fn a_power_cut_leaves_only_true_claims() {
    for seed in 0..50 {
        let found = read(&written(30).crash_image(seed), Path::new(DIR)).unwrap();
        assert!((28..30).contains(&found.claims.last_seqno.get()), "{found:?}");
    }
}

#[test]
fn files_of_two_stores_are_refused() {
    let vfs = written(3);
    let dir = Path::new(DIR);
    EvidenceFile::create(&vfs, dir, 2, &Claims { store_id: 8, ..claims(1) }).unwrap();
    assert!(read(&vfs, dir).unwrap_err().is_corruption());
}

#[test]
fn a_sector_that_cannot_be_read_costs_the_records_in_it() {
    let vfs = written(300);
    let dir = Path::new(DIR);
    for (number, left) in [(1, 296), (2, 299)] {
        let path = names::evidence_path(dir, number);
        let len = vfs.len(&path).unwrap();
        for sector in 0..len.div_ceil(4096) {
            let image = vfs.kill_image();
            assert!(image.lose_sector(&path, sector * 4096..(sector + 1) * 4096));
            let found = read(&image, dir).unwrap();
            let last = found.claims.last_seqno;
            assert!(last >= SeqNo::new(left), "sector {sector} of {number}: {last}");
        }
    }
}

#[test]
fn two_files_that_cannot_be_read_are_an_error() {
    let vfs = written(3);
    let dir = Path::new(DIR);
    let fault =
        Fault { at_op: 0, kind: FaultKind::Eio, forever: true, filter: Some(OpClass::Open) };
    vfs.set_fault(Some(fault));
    assert!(read(&vfs, dir).is_err());
    vfs.set_fault(Some(Fault { at_op: vfs.op_count(), forever: false, ..fault }));
    let found = read(&vfs, dir).unwrap();
    assert!(found.claims.store_id == 7 && found.problems.len() == 1, "{found:?}");
}

#[test]
fn a_directory_in_the_place_of_one_file_leaves_what_the_other_says() {
    let dir = Path::new(DIR);
    for number in [1, 2] {
        let vfs = written(3);
        let path = names::evidence_path(dir, number);
        vfs.remove(&path).unwrap();
        vfs.create_dir_all(&path).unwrap();
        let found = read(&vfs, dir).unwrap();
        assert!(found.claims.store_id == 7 && found.problems.len() == 1, "{found:?}");
        let other = names::evidence_path(dir, 3 - number);
        vfs.remove(&other).unwrap();
        vfs.create_dir_all(&other).unwrap();
        assert!(read(&vfs, dir).is_err());
    }
}
