//! A power cut, a kill and a full disk at every operation of a backup: those before it stay whole, it is
//! there whole or not at all, and the next one works.

use super::*;
use terrace::vfs::{Fault, FaultKind, OpClass};

/// Keys with their values, in order.
type Contents = Vec<(Vec<u8>, Vec<u8>)>;

/// A store with one backup and more in it since.
fn prepared(seed: u64) -> (SimVfs, Contents, Contents) {
    let sim = SimVfs::new(seed);
    let db = open(&sim);
    write(&db, 0, 0..60);
    db.flush().unwrap();
    backups(&sim).create(&db, &mut quiet()).unwrap();
    let before = contents(&db);
    write(&db, 1, 30..90);
    let now = contents(&db);
    db.close().unwrap();
    (sim, before, now)
}

/// What a crash may leave: the first backup, perhaps the second, and room for another.
fn check(image: &SimVfs, before: &[(Vec<u8>, Vec<u8>)], now: &[(Vec<u8>, Vec<u8>)]) -> bool {
    let backups = backups(image);
    let listed = backups.list().unwrap();
    assert!(listed.iter().all(|listed| listed.backup.is_ok()), "{listed:?}");
    assert_eq!(restored(image, &backups, 1), before);
    let is_there = listed.len() == 2;
    if is_there {
        assert_eq!(restored(image, &backups, 2), now);
    }
    let db = open(image);
    assert_eq!(contents(&db), now);
    let created = backups.create(&db, &mut quiet()).unwrap();
    assert_eq!(created.backup.id, listed.len() as u64 + 1);
    assert_eq!(restored(image, &backups, created.backup.id), now);
    db.close().unwrap();
    let stored = image.files().into_iter().filter(|(path, _)| path.starts_with("/backups/files"));
    let mut needed = std::collections::HashSet::new();
    for listed in backups.list().unwrap() {
        needed.extend(listed.backup.unwrap().files.iter().map(|file| (file.hash, file.size_bytes)));
    }
    assert_eq!(stored.count(), needed.len(), "files that no backup needs");
    is_there
}

#[test]
fn a_power_cut_or_a_kill_at_every_operation_leaves_whole_backups() {
    let (sim, before, now) = prepared(11);
    let (mut crashes, mut finished) = (0, 0);
    for op in 0.. {
        let image = sim.kill_image();
        let db = open(&image);
        let backups = backups(&image);
        image.crash_after(image.op_count() + op);
        let ended = backups.create(&db, &mut quiet()).is_ok();
        drop((db, backups));
        let left = if op % 3 == 0 { image.kill_image() } else { image.crash_image(op) };
        let is_there = check(&left, &before, &now);
        assert!(is_there || !ended, "operation {op}: acknowledged and gone");
        crashes += 1;
        if ended {
            finished += 1;
            if finished == 3 {
                break;
            }
        }
    }
    println!("{crashes} crashes");
    assert!(crashes > 30, "{crashes}");
}

/// Records and contents of all backups, and what is left of failed ones.
fn stored(sim: &SimVfs) -> Vec<std::path::PathBuf> {
    let files = sim.files().into_iter().map(|(path, _)| path);
    files.filter(|path| path.starts_with(BACKUPS)).collect()
}

#[test]
fn a_full_disk_at_every_write_gives_an_error_and_leaves_whole_backups() {
    let (sim, before, now) = prepared(12);
    let mut faults = 0;
    for skip in 0.. {
        let image = sim.kill_image();
        let db = open(&image);
        let backups = backups(&image);
        image.set_fault(Some(Fault {
            at_op: image.op_count() + skip,
            kind: FaultKind::Enospc,
            forever: true,
            filter: Some(OpClass::Append),
        }));
        let had = stored(&image);
        let outcome = backups.create(&db, &mut quiet());
        let executed = image.executed_faults();
        image.set_fault(None);
        drop((db, backups));
        if executed == 0 {
            outcome.unwrap();
            break;
        }
        faults += 1;
        if outcome.is_err() {
            assert_eq!(stored(&image), had, "operation {skip}: the room is free again");
        }
        let is_there = check(&image.kill_image(), &before, &now);
        assert!(is_there || outcome.is_err(), "operation {skip}: acknowledged and gone");
    }
    println!("{faults} full disks");
    assert!(faults > 3, "{faults}");
}
