//! Damage in the directory of backups is noticed before anything is restored from it.

use super::*;
use std::path::PathBuf;
use terrace_backup::Error;

fn two_backups(seed: u64) -> SimVfs {
    let sim = SimVfs::new(seed);
    let db = open(&sim);
    let backups = backups(&sim);
    for round in 0..2 {
        write(&db, round, round * 50..round * 50 + 100);
        db.flush().unwrap();
        backups.create(&db, &mut quiet()).unwrap();
    }
    db.close().unwrap();
    sim
}

fn files(sim: &SimVfs, below: &str) -> Vec<(PathBuf, u64)> {
    sim.files().into_iter().filter(|(path, _)| path.starts_with(below)).collect()
}

/// Whether the backup is refused, by `verify` and `restore` alike, with nothing left at the target.
fn is_refused(sim: &SimVfs, id: u64) -> bool {
    let backups = backups(sim);
    let verified = backups.verify(id, &mut quiet());
    let target = format!("/target-{id}");
    let restored = backups.restore(id, &target, &mut quiet());
    assert_eq!(verified.is_err(), restored.is_err(), "{verified:?} {restored:?}");
    if restored.is_err() {
        assert!(files(sim, &target).is_empty());
        assert!(files(sim, &format!("{target}.partial")).is_empty());
    }
    restored.is_err()
}

#[test]
fn every_changed_cut_or_lost_file_is_refused_by_the_backups_that_need_it() {
    let sim = two_backups(1);
    let needed = |id| backups(&sim).get(id).unwrap();
    let (first, second) = (needed(1), needed(2));
    let names = |backup: &terrace_backup::Backup| -> Vec<String> {
        backup.files.iter().map(|file| format!("{:032x}-{}", file.hash, file.size_bytes)).collect()
    };
    let (first, second) = (names(&first), names(&second));
    let all = files(&sim, "/backups/files");
    assert!(all.len() > 5);
    for (path, len) in all {
        let name = path.file_name().unwrap().to_str().unwrap().to_string();
        for damage in 0..3 {
            let image = sim.kill_image();
            let harmed = match damage {
                0 => image.corrupt(&path, len / 2, 0x10),
                1 => len > 0 && image.truncate(&path, len - 1),
                _ => image.remove(&path).is_ok(),
            };
            if !harmed {
                continue;
            }
            assert_eq!(is_refused(&image, 1), first.contains(&name), "{name} in 1, {damage}");
            assert_eq!(is_refused(&image, 2), second.contains(&name), "{name} in 2, {damage}");
        }
    }
}

#[test]
fn with_a_damaged_record_no_content_is_removed() {
    let sim = two_backups(2);
    let before = files(&sim, "/backups/files");
    assert!(sim.corrupt("/backups/backups/1", 40, 1));
    let backups = backups(&sim);
    let listed = backups.list().unwrap();
    assert!(matches!(listed[0].backup, Err(Error::Damaged { .. })) && listed[1].backup.is_ok());
    assert!(matches!(backups.remove(2), Err(Error::Damaged { .. })));
    assert_eq!(files(&sim, "/backups/files"), before);
    let db = open(&sim);
    let refused = backups.create(&db, &mut quiet());
    assert!(matches!(refused, Err(Error::Damaged { .. })), "{refused:?}");
    assert_eq!(files(&sim, "/backups/files"), before);
    // Who removes the damaged one can go on.
    backups.remove(1).unwrap();
    backups.create(&db, &mut quiet()).unwrap();
    db.close().unwrap();
}

#[test]
fn keep_latest_removes_nothing_if_a_backup_that_would_stay_is_damaged() {
    let sim = two_backups(3);
    let before = files(&sim, "/backups");
    assert!(sim.corrupt("/backups/backups/2", 40, 1));
    let backups = backups(&sim);
    let refused = backups.keep_latest(1);
    assert!(matches!(refused, Err(Error::Damaged { .. })), "{refused:?}");
    assert_eq!(files(&sim, "/backups"), before);
    assert!(backups.get(1).is_ok());
    // Its owner removes it by its number; one that is too old to stay may be damaged.
    backups.remove(2).unwrap();
    let db = open(&sim);
    backups.create(&db, &mut quiet()).unwrap();
    db.close().unwrap();
    assert!(sim.corrupt("/backups/backups/1", 40, 1));
    backups.keep_latest(1).unwrap();
    let left: Vec<u64> = backups.list().unwrap().iter().map(|listed| listed.id).collect();
    assert_eq!(left, [2]);
    backups.verify(2, &mut quiet()).unwrap();
}

/// It would be new content, and sound backups would go where the latest few are kept.
#[test]
fn a_store_with_a_damaged_sst_is_backed_up_only_if_that_is_asked_for() {
    let sim = two_backups(4);
    let before = files(&sim, BACKUPS);
    let is_sst = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "sst");
    let sst = files(&sim, STORE).into_iter().map(|(path, _)| path).find(is_sst).unwrap();
    assert!(sim.corrupt(&sst, 9, 1));
    let mut options = options(&sim);
    options.advanced.compact_when_idle = false;
    let db = Db::open(STORE, options).unwrap();
    let backups = backups(&sim);
    for _ in 0..2 {
        let refused = backups.create(&db, &mut quiet()).unwrap_err();
        assert!(matches!(&refused, Error::Damaged { path, .. } if *path == sst), "{refused}");
        assert!(refused.to_string().contains("offset"), "{refused}");
        assert_eq!(files(&sim, BACKUPS), before);
    }
    let created = backups.create_as_is(&db, &mut quiet()).unwrap();
    assert!(created.backup.id == 3 && created.copied_files > 0, "{created:?}");
    backups.verify(3, &mut quiet()).unwrap();
}
