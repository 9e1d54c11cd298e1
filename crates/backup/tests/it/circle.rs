//! Backups restored: each gives what the store held, and new ones copy little.

use super::*;
use std::io::ErrorKind;
use terrace_backup::Error;
use terrace_vfs::{BeforeCalls, Call, CreateOptions};

#[test]
fn each_backup_gives_what_the_store_held_at_its_time() {
    let sim = SimVfs::new(1);
    let db = open(&sim);
    let backups = backups(&sim);
    let mut held = Vec::new();
    for round in 0..4 {
        write(&db, round, round * 100..round * 100 + 250);
        db.delete(format!("{:06}", round * 100 + 7)).unwrap();
        if round % 2 == 0 {
            db.flush().unwrap();
        }
        let created = backups.create(&db, &mut quiet()).unwrap();
        assert_eq!(created.backup.id, round as u64 + 1);
        held.push(contents(&db));
    }
    write(&db, 9, 0..500);
    db.compact_range::<&[u8]>(..).unwrap();
    for (number, held) in held.iter().enumerate() {
        backups.verify(number as u64 + 1, &mut quiet()).unwrap();
        assert_eq!(&restored(&sim, &backups, number as u64 + 1), held, "backup {}", number + 1);
    }
    assert_eq!(
        sim.files().iter().filter(|(path, _)| path.starts_with("/store/backup-work")).count(),
        0
    );
    db.close().unwrap();
}

#[test]
fn a_backup_copies_what_no_earlier_one_has() {
    let sim = SimVfs::new(2);
    let db = open(&sim);
    let backups = backups(&sim);
    write(&db, 0, 0..2000);
    db.flush().unwrap();
    let first = backups.create(&db, &mut quiet()).unwrap();
    assert_eq!(first.copied_files, first.backup.files.len());
    assert_eq!(first.copied_bytes, first.backup.size_bytes());
    write(&db, 1, 5000..5010);
    let second = backups.create(&db, &mut quiet()).unwrap();
    assert!(second.copied_bytes * 10 < first.copied_bytes, "{second:?} after {first:?}");
    let shared = second.backup.files.iter().filter(|file| first.backup.files.contains(file));
    assert!(shared.count() > 0, "nothing is shared");
    db.close().unwrap();
}

#[test]
fn removed_backups_leave_the_files_that_others_need_and_no_other() {
    let sim = SimVfs::new(3);
    let db = open(&sim);
    let backups = backups(&sim);
    let mut held = Vec::new();
    for round in 0..5 {
        write(&db, round, 0..300);
        db.flush().unwrap();
        db.compact_range::<&[u8]>(..).unwrap();
        backups.create(&db, &mut quiet()).unwrap();
        held.push(contents(&db));
    }
    assert!(backups.remove(2).unwrap() > 0);
    assert!(matches!(backups.remove(2), Err(Error::NoSuchBackup(2))));
    assert_eq!(restored(&sim, &backups, 3), held[2]);
    backups.keep_latest(1).unwrap();
    let ids: Vec<_> = backups.list().unwrap().iter().map(|listed| listed.id).collect();
    assert_eq!(ids, [5]);
    assert_eq!(restored(&sim, &backups, 5), held[4]);
    let needed = backups.get(5).unwrap();
    let stored = sim.files().iter().filter(|(path, _)| path.starts_with("/backups/files")).count();
    assert!(stored <= needed.files.len(), "{stored} files for {}", needed.files.len());
    // Numbers are not used again while a later one is there.
    assert_eq!(backups.create(&db, &mut quiet()).unwrap().backup.id, 6);
    db.close().unwrap();
}

#[test]
fn two_processes_do_not_work_at_once_and_other_directories_are_refused() {
    let sim = SimVfs::new(4);
    let first = backups(&sim);
    let second = Backups::open_with(Arc::new(sim.clone()), BACKUPS);
    assert!(matches!(second, Err(Error::Busy(_))));
    drop(first);
    drop(backups(&sim));
    let db = open(&sim);
    assert!(matches!(Backups::open_with(Arc::new(sim.clone()), STORE), Err(Error::NotBackups(_))));
    let backups = backups(&sim);
    backups.create(&db, &mut quiet()).unwrap();
    db.close().unwrap();
    let onto_a_store = backups.restore(1, STORE, &mut quiet());
    assert!(matches!(onto_a_store, Err(Error::TargetNotEmpty(_))));
    assert!(matches!(backups.restore(9, "/new", &mut quiet()), Err(Error::NoSuchBackup(9))));
}

#[test]
fn backups_that_can_only_be_read_are_listed_verified_and_restored() {
    let sim = SimVfs::new(7);
    let db = open(&sim);
    write(&db, 1, 0..300);
    backups(&sim).create(&db, &mut quiet()).unwrap();
    let denied = |call: Call<'_>, path: &Path| match call {
        Call::Lock if path.starts_with(BACKUPS) => {
            Err(terrace_vfs::Error::io("lock", path, ErrorKind::ReadOnlyFilesystem.into()))
        }
        _ => Ok(()),
    };
    let snapshot = Arc::new(BeforeCalls::new(sim.clone(), denied));
    let look = || Backups::open_with(snapshot.clone(), BACKUPS);
    let (first, second) = (look().unwrap(), look().unwrap());
    assert_eq!(first.list().unwrap().len(), 1);
    second.verify(1, &mut quiet()).unwrap();
    assert_eq!(restored(&sim, &first, 1), contents(&db));
    let changes = [
        first.create(&db, &mut quiet()).map(drop),
        first.remove(1).map(drop),
        first.keep_latest(0).map(drop),
    ];
    for change in changes {
        let why = change.unwrap_err().to_string();
        assert!(why.contains("lock /backups/LOCK"), "{why}");
    }
    // Nobody changes what they read, nor do they read what somebody changes.
    assert!(matches!(Backups::open_with(Arc::new(sim.clone()), BACKUPS), Err(Error::Busy(_))));
    drop((first, second));
    let changing = backups(&sim);
    assert_eq!(changing.list().unwrap().len(), 1);
    assert!(matches!(look(), Err(Error::Busy(_))));
    db.close().unwrap();
}

#[test]
fn files_of_the_user_stay_whatever_their_directories_are_called() {
    let sim = SimVfs::new(6);
    let put = |path: &str| {
        sim.create_dir_all(Path::new(path).parent().unwrap()).unwrap();
        let mut file = sim.create(Path::new(path), &CreateOptions::default()).unwrap();
        file.append(b"precious").unwrap();
        file.finish().unwrap();
    };
    let is_there = |path: &str| sim.exists(Path::new(path)).unwrap();
    // Of an application, not of backups.
    put("/app/files/photo.jpg");
    put("/app/backups/monday.tar");
    for dir in ["/app", "/app/backups"] {
        let refused = Backups::open_with(Arc::new(sim.clone()), dir);
        assert!(matches!(refused, Err(Error::NotBackups(_))), "{dir}");
    }
    let backups = backups(&sim);
    let db = open(&sim);
    let content = format!("{BACKUPS}/files/photo.jpg");
    put(&content);
    put("/new.partial/photo.jpg");
    put(&format!("{BACKUPS}/README"));
    backups.create(&db, &mut quiet()).unwrap();
    assert!(matches!(backups.restore(1, "/new", &mut quiet()), Err(Error::Target(_))));
    assert!(matches!(backups.restore(1, "", &mut quiet()), Err(Error::Target(_))));
    // With a backup there it is a directory of backups, whatever else is in it.
    drop(backups);
    let backups = Backups::open_with(Arc::new(sim.clone()), BACKUPS).unwrap();
    backups.verify(1, &mut quiet()).unwrap();
    backups.keep_latest(0).unwrap();
    for path in
        ["/app/files/photo.jpg", "/app/backups/monday.tar", "/new.partial/photo.jpg", &content]
    {
        assert!(is_there(path), "{path}");
    }
    db.close().unwrap();
}

#[test]
fn a_store_that_was_restored_is_backed_up_beside_the_one_it_came_from() {
    let sim = SimVfs::new(5);
    let db = open(&sim);
    let backups = backups(&sim);
    write(&db, 0, 0..300);
    db.flush().unwrap();
    backups.create(&db, &mut quiet()).unwrap();
    backups.restore(1, "/twin", &mut quiet()).unwrap();
    let twin = Db::open("/twin", options(&sim)).unwrap();
    // The same file numbers and sizes, other contents.
    write(&db, 1, 0..300);
    write(&twin, 2, 0..300);
    for store in [&db, &twin] {
        store.flush().unwrap();
        backups.create(store, &mut quiet()).unwrap();
    }
    assert_eq!(restored(&sim, &backups, 2), contents(&db));
    assert_eq!(restored(&sim, &backups, 3), contents(&twin));
    twin.close().unwrap();
    db.close().unwrap();
}

/// The directory where a store is backed up is its writer's: another process, which only reads the store or has it no
/// longer open, must not touch it.
#[test]
fn a_store_that_cannot_be_written_is_refused_before_its_directory_is_touched() {
    let sim = SimVfs::new(7);
    let db = open(&sim);
    write(&db, 0, 0..100);
    let backups = backups(&sim);
    let working = "/store/backup-work/000007.sst";
    sim.create_dir_all(Path::new("/store/backup-work")).unwrap();
    sim.create(Path::new(working), &CreateOptions::default()).unwrap().finish().unwrap();
    let refused = |db: &Db| {
        let error = backups.create(db, &mut quiet()).unwrap_err();
        assert!(sim.exists(Path::new(working)).unwrap(), "{error}");
        assert!(!sim.exists(Path::new("/store/backup-work.partial")).unwrap(), "{error}");
        assert!(backups.list().unwrap().is_empty());
        error
    };
    let reader = Db::open_read_only("/store", db.options().clone()).unwrap();
    assert!(matches!(refused(&reader), Error::Store(terrace::Error::ReadOnly(_))));
    assert!(reader.checkpoint("/checkpoint").is_err());
    assert!(!sim.exists(Path::new("/checkpoint.partial")).unwrap());
    reader.close().unwrap();
    db.close().unwrap();
    assert!(matches!(refused(&db), Error::Store(terrace::Error::Closed)));
    // A directory that is no store is another's.
    let other = "/other/backup-work/precious";
    sim.create_dir_all(Path::new("/other/backup-work")).unwrap();
    sim.create(Path::new(other), &CreateOptions::default()).unwrap().finish().unwrap();
    Db::open("/other", options(&sim)).unwrap().close().unwrap();
    assert!(sim.exists(Path::new(other)).unwrap());
    // It was left by a backup that was killed, as far as the next open knows.
    let db = open(&sim);
    assert!(!sim.exists(Path::new(working)).unwrap());
    db.close().unwrap();
}

/// It would be removed by the next backup, or taken for what the store lacks by a repair.
#[test]
fn no_store_is_made_where_another_has_files_of_its_own() {
    let sim = SimVfs::new(10);
    let (db, backups) = (open(&sim), backups(&sim));
    write(&db, 0, 0..10);
    for round in 0..2 {
        backups.create(&db, &mut quiet()).unwrap();
        for own in ["/store/lost", "/store/backup-work", "/store/backup-work.partial"] {
            let refused = backups.restore(1, own, &mut quiet());
            assert!(matches!(refused, Err(Error::Target(_))), "{round}: {own}: {refused:?}");
            let refused = db.checkpoint(own);
            let is_refused = matches!(refused, Err(terrace::Error::InvalidArgument(_)));
            assert!(is_refused, "{round}: {own}: {refused:?}");
        }
    }
    db.checkpoint("/store/copy").unwrap();
    db.close().unwrap();
}

/// A store is not backed up into its own directory, and what somebody has put where its checkpoint is made stays.
#[test]
fn no_backup_is_made_over_the_files_of_somebody_else_or_into_the_store() {
    let sim = SimVfs::new(9);
    let db = open(&sim);
    write(&db, 0, 0..100);
    let names_of = |error: Error| match error {
        Error::Store(terrace::Error::InvalidArgument(why)) => why,
        other => panic!("{other}"),
    };
    let inside = Backups::open_with(Arc::new(sim.clone()), "/store/backup-work").unwrap();
    let why = names_of(inside.create(&db, &mut quiet()).unwrap_err());
    assert!(why.contains("/store/backup-work is inside of the store /store"), "{why}");
    drop(inside);
    let backups = backups(&sim);
    // What that has made is in nobody's way.
    backups.create(&db, &mut quiet()).unwrap();
    for dir in ["/store/backup-work", "/store/backup-work.partial"] {
        let path = format!("{dir}/precious");
        assert!(sim.write_file(&path, b"mine"));
        let why = names_of(backups.create(&db, &mut quiet()).unwrap_err());
        assert!(why.contains(&path), "{why}");
        assert_eq!(sim.read_file(&path).unwrap(), b"mine");
        sim.remove(Path::new(&path)).unwrap();
    }
    backups.create(&db, &mut quiet()).unwrap();
    assert_eq!(backups.list().unwrap().len(), 2);
    db.close().unwrap();
}

#[test]
fn numbers_of_backups_end() {
    let sim = SimVfs::new(8);
    let db = open(&sim);
    write(&db, 0, 0..10);
    let backups = backups(&sim);
    let path = format!("/backups/backups/{}", u64::MAX);
    sim.create(Path::new(&path), &CreateOptions::default()).unwrap().finish().unwrap();
    let error = backups.create(&db, &mut quiet()).unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
    db.close().unwrap();
}

#[test]
fn a_file_in_the_place_of_the_directory_is_called_one_and_stays() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "mine").unwrap();
    let said = Backups::open(&file).err().unwrap().to_string();
    assert!(said.contains(&format!("{}: it is no directory; name", file.display())), "{said}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
    let sim = SimVfs::new(1);
    assert!(sim.write_file("/file", b"mine"));
    let said = Backups::open_with(Arc::new(sim), "/file").err().unwrap().to_string();
    assert!(said.contains("/file: it is no directory; name"), "{said}");
}
