//! Threads of one process that back up at the same time: each gets a whole backup.

use crate::{BACKUPS, STORE, backups, contents, open, quiet, restored};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use terrace::Db;
use terrace::vfs::{SimVfs, Vfs};
use terrace_backup::{Backups, Error};
use terrace_vfs::{BeforeCalls, Call};

/// Time for a call that does not wait for its turn to do harm. One that waits does none, however long it takes.
const HEAD_START: Duration = Duration::from_millis(100);

/// A store with some files.
fn store(sim: &SimVfs) -> Db {
    let db = open(sim);
    for round in 0..4_u64 {
        for key in 0..200_u64 {
            db.put((round * 150 + key).to_be_bytes(), round.to_be_bytes()).unwrap();
        }
        db.flush().unwrap();
    }
    db
}

/// Backs `db` up, with `other` in another thread from the first file on.
fn create_beside<T: Send + 'static>(
    backups: &Backups,
    db: &Db,
    other: impl FnOnce() -> T + Send + 'static,
) -> (u64, T) {
    let mut other = Some(other);
    let thread: Mutex<Option<JoinHandle<T>>> = Mutex::default();
    let created = backups.create(db, &mut |_| {
        if let Some(other) = other.take() {
            *thread.lock().unwrap() = Some(std::thread::spawn(other));
            std::thread::sleep(HEAD_START);
        }
    });
    let beside = thread.lock().unwrap().take().expect("a store has files").join().unwrap();
    (created.unwrap().backup.id, beside)
}

#[test]
fn two_backups_at_once_are_both_whole() {
    let sim = SimVfs::new(1);
    let db = store(&sim);
    let backups = Arc::new(backups(&sim));
    let (shared, same) = (backups.clone(), db.clone());
    let (one, other) =
        create_beside(&backups, &db, move || shared.create(&same, &mut quiet()).unwrap().backup.id);
    assert_ne!(one, other);
    for id in [one, other] {
        backups.verify(id, &mut quiet()).unwrap();
        assert!(restored(&sim, &backups, id) == contents(&db), "backup {id}");
    }
}

#[test]
fn one_store_is_backed_up_to_two_directories_at_once() {
    let sim = SimVfs::new(1);
    let db = store(&sim);
    let first = backups(&sim);
    let second = Backups::open_with(Arc::new(sim.clone()), "/elsewhere").unwrap();
    let same = db.clone();
    let (one, (second, other)) = create_beside(&first, &db, move || {
        let created = second.create(&same, &mut quiet()).unwrap();
        (second, created.backup.id)
    });
    assert!(restored(&sim, &first, one) == contents(&db));
    assert!(restored(&sim, &second, other) == contents(&db));
    let left = sim.list(&Path::new(STORE).join("backup-work")).unwrap();
    assert!(left.is_empty(), "{left:?}");
}

/// Its directory is another process's then, which has checkpoints with files of the same names.
#[test]
fn a_backup_ends_when_its_store_is_closed_and_leaves_the_checkpoint_of_the_next_writer() {
    let sim = SimVfs::new(1);
    let (db, backups) = (store(&sim), backups(&sim));
    let mut next = None;
    let created = backups.create(&db, &mut |_| {
        if next.is_none() {
            db.close().unwrap();
            let writer = open(&sim);
            writer.put(b"later", b"").unwrap();
            writer.checkpoint_for_backup().unwrap();
            next = Some(writer);
        }
    });
    let closed = matches!(created, Err(Error::Store(terrace::Error::Closed)));
    assert!(closed, "{created:?}");
    assert!(backups.list().unwrap().is_empty());
    let writer = next.expect("a store has files");
    let work = Path::new(STORE).join("backup-work");
    assert!(sim.list(&work).unwrap().iter().any(|name| name == "CURRENT"));
    // What stays there hinders no backup.
    let id = backups.create(&writer, &mut quiet()).unwrap().backup.id;
    assert!(restored(&sim, &backups, id) == contents(&writer));
    writer.close().unwrap();
}

#[test]
fn a_removal_beside_a_backup_leaves_its_files() {
    let sim = SimVfs::new(1);
    let db = store(&sim);
    let backups = Arc::new(backups(&sim));
    let old = backups.create(&db, &mut quiet()).unwrap().backup.id;
    db.compact_range::<&[u8]>(..).unwrap();
    let shared = backups.clone();
    let (id, removed) = create_beside(&backups, &db, move || shared.remove(old));
    removed.unwrap();
    backups.verify(id, &mut quiet()).unwrap();
    assert!(restored(&sim, &backups, id) == contents(&db));
}

/// As the last step of a removal in another thread, just before the record is opened.
#[test]
fn a_backup_that_is_removed_while_all_are_listed_is_left_out() {
    let sim = SimVfs::new(1);
    let db = store(&sim);
    let made = backups(&sim);
    let ids = [0; 3].map(|_| made.create(&db, &mut quiet()).unwrap().backup.id);
    drop(made);
    let files = sim.clone();
    let gone = Path::new(BACKUPS).join("backups").join(ids[1].to_string());
    let vfs = BeforeCalls::new(sim.clone(), move |call, path| match call {
        Call::Open if *path == *gone && files.exists(path)? => files.remove(path),
        _ => Ok(()),
    });
    let backups = Backups::open_with(Arc::new(vfs), BACKUPS).unwrap();
    let listed = backups.list().unwrap();
    let all: Vec<_> = listed.iter().map(|listed| (listed.id, listed.backup.is_ok())).collect();
    assert_eq!(all, [(ids[0], true), (ids[2], true)]);
}

#[test]
fn a_backup_is_not_removed_while_it_is_restored() {
    let sim = SimVfs::new(1);
    let db = store(&sim);
    let backups = Arc::new(backups(&sim));
    let id = backups.create(&db, &mut quiet()).unwrap().backup.id;
    let mut removal = None;
    let target = "/restored-beside";
    backups
        .restore(id, Path::new(target), &mut |_| {
            if removal.is_none() {
                let shared = backups.clone();
                removal = Some(std::thread::spawn(move || shared.keep_latest(0).unwrap()));
                std::thread::sleep(HEAD_START);
            }
        })
        .unwrap();
    removal.expect("a store has files").join().unwrap();
    assert!(sim.list(&Path::new(BACKUPS).join("backups")).unwrap().is_empty());
    let store = Db::open(target, crate::options(&sim)).unwrap();
    assert!(contents(&store) == contents(&db));
}
