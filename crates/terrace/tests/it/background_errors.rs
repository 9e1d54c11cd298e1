//! Background work that fails: a file that cannot be read stops itself, not the tree, and no call
//! waits for what cannot happen.

use crate::harness::{DIR, HANG_GUARD, eventually, key, small_options, stopped_clock};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use terrace::vfs::{Fault, FaultKind, OpClass, SimVfs};
use terrace::{Compression, Db, Error, Options};

fn options(sim: &SimVfs) -> Options {
    let mut options = small_options(Arc::new(sim.clone()), &stopped_clock());
    options.column_families.clear();
    options.default_family.compression = vec![Compression::None];
    let a = &mut options.advanced;
    a.reserve_bytes = 0;
    (a.l0_compaction_trigger, a.l0_slowdown, a.l0_stop) = (3, 20, 24);
    a.compact_when_idle = false;
    options
}

/// Runs `call` on a thread of its own: fails if it does not return.
fn returns<T: Send + 'static>(what: &str, call: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let _ = sender.send(call());
    });
    match receiver.recv_timeout(HANG_GUARD) {
        Ok(value) => {
            thread.join().unwrap();
            value
        }
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("{what} does not return"),
        Err(mpsc::RecvTimeoutError::Disconnected) => match thread.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(()) => unreachable!("it sends before it ends"),
        },
    }
}

fn ssts(sim: &SimVfs) -> BTreeSet<PathBuf> {
    let paths = sim.files().into_iter().map(|(path, _)| path);
    paths.filter(|path| path.starts_with(DIR) && path.extension() == Some("sst".as_ref())).collect()
}

/// Overwrites the keys from `first` on and flushes.
fn write_file(db: &Db, first: u64, count: u64, round: u64) -> terrace::Result<()> {
    for number in first..first + count {
        db.put(key(number), value(number, round))?;
    }
    db.flush()
}

fn value(number: u64, round: u64) -> Vec<u8> {
    format!("value {round} of {number} ").repeat(8).into_bytes()
}

/// Writes one file and damages its first block.
fn write_damaged_file(sim: &SimVfs, db: &Db, round: u64) -> PathBuf {
    let before = ssts(sim);
    write_file(db, 0, 40, round).unwrap();
    let fresh: Vec<PathBuf> = ssts(sim).difference(&before).cloned().collect();
    assert!(!fresh.is_empty(), "a flush writes a file");
    let fresh = fresh.last().unwrap().clone();
    assert!(sim.corrupt(&fresh, 30, 0x10));
    fresh
}

fn names(error: &Error, file: &Path) -> bool {
    let name = file.file_name().unwrap().to_str().unwrap();
    error.to_string().contains(name)
}

fn l0_files(db: &Db) -> u64 {
    db.metrics().levels[0].file_count
}

#[test]
fn a_damaged_l0_file_stops_neither_writers_nor_the_compaction_of_others() {
    let sim = SimVfs::new(3);
    let db = Db::open(DIR, options(&sim)).unwrap();
    let damaged = write_damaged_file(&sim, &db, 0);
    let writer = db.clone();
    returns("writing beside a damaged file", move || {
        for round in 1..80 {
            write_file(&writer, 0, 40, round).unwrap();
        }
        // Keys that the damaged file does not have.
        for round in 0..10 {
            write_file(&writer, 1000, 40, round).unwrap();
        }
    });
    let waiter = db.clone();
    let error = returns("wait_idle", move || waiter.wait_idle()).unwrap_err();
    assert!(matches!(error, Error::Corruption(_)) && names(&error, &damaged), "{error}");
    let m = db.metrics();
    assert_eq!((m.quarantined_files, m.poisoned), (1, false), "{m}");
    assert!(m.compactions > 3, "{m}");
    assert!(l0_files(&db) < 20, "{m}");
    for number in (0..40).chain(1000..1040) {
        let round = if number < 40 { 79 } else { 9 };
        assert_eq!(db.get(key(number)).unwrap().as_deref(), Some(&value(number, round)[..]));
    }
    let quarantined = db.quarantined_files();
    assert_eq!(quarantined.len(), 1);
    assert!(names(&quarantined[0].error, &damaged) && quarantined[0].level == 0);
    assert!(names(&db.verify().unwrap_err(), &damaged));
    let caller = db.clone();
    let all = || returns("compact_range", move || caller.compact_range::<&[u8]>(..));
    assert!(names(&all().unwrap_err(), &damaged));
    db.close().unwrap();
}

#[test]
fn a_damaged_file_of_the_last_level_does_not_keep_l0_from_being_merged() {
    let sim = SimVfs::new(3);
    let db = Db::open(DIR, options(&sim)).unwrap();
    // Twice, since a file that overlaps no other would move down as it is.
    (0..2).for_each(|_| write_file(&db, 0, 400, 0).unwrap());
    db.compact_range::<&[u8]>(..).unwrap();
    let start = Instant::now();
    while db.verify().unwrap() != ssts(&sim).len() as u64 {
        assert!(start.elapsed() < HANG_GUARD, "files that nothing names are never removed");
    }
    let deep = ssts(&sim);
    assert!(deep.len() > 2, "{deep:?}");
    let damaged = deep.iter().nth(deep.len() / 2).unwrap().clone();
    assert!(sim.corrupt(&damaged, 30, 0x10));
    let writer = db.clone();
    returns("writing above a damaged file", move || {
        for round in 1..40 {
            write_file(&writer, 0, 400, round).unwrap();
        }
    });
    let waiter = db.clone();
    let error = returns("wait_idle", move || waiter.wait_idle()).unwrap_err();
    assert!(names(&error, &damaged), "{error}");
    // While writes come fast L0 waits for fifteen files that are as small as these.
    assert!(l0_files(&db) < 16 && db.metrics().levels[5].file_count > 0, "{}", db.metrics());
    // An error comes before what was merged is removed.
    eventually("files beside the damaged one are merged", || {
        ssts(&sim).intersection(&deep).count() < deep.len()
    });
    for number in 0..400 {
        assert_eq!(db.get(key(number)).unwrap().as_deref(), Some(&value(number, 39)[..]));
    }
}

#[test]
fn tiered_compaction_goes_on_around_a_damaged_file() {
    let sim = SimVfs::new(3);
    let mut options = options(&sim);
    options.default_family.compaction = terrace::CompactionStyle::Tiered;
    let db = Db::open(DIR, options).unwrap();
    write_file(&db, 0, 40, 0).unwrap();
    let damaged = write_damaged_file(&sim, &db, 0);
    let writer = db.clone();
    returns("writing beside a damaged file", move || {
        for round in 1..60 {
            write_file(&writer, 0, 40, round).unwrap();
        }
    });
    let waiter = db.clone();
    let error = returns("wait_idle", move || waiter.wait_idle()).unwrap_err();
    assert!(names(&error, &damaged), "{error}");
    assert!(l0_files(&db) < 12, "{}", db.metrics());
}

#[test]
fn writers_hear_which_file_is_damaged_when_nothing_of_l0_can_be_merged() {
    let sim = SimVfs::new(3);
    let mut options = options(&sim);
    (options.advanced.l0_compaction_trigger, options.advanced.l0_stop) = (20, 24);
    let db = Db::open(DIR, options.clone()).unwrap();
    let damaged: Vec<PathBuf> = (0..23).map(|round| write_damaged_file(&sim, &db, round)).collect();
    let writer = db.clone();
    let error = returns("a write into a full L0", move || {
        (0..1000).find_map(|round| write_file(&writer, 0, 40, round).err())
    });
    let error = error.expect("nothing can make room in L0");
    assert!(matches!(error, Error::WriteStopped(_)), "{error}");
    assert!(damaged.iter().any(|file| names(&error, file)), "{error}");
    // Reads go on, and so does everything after a reopen: the damage is found anew.
    assert!(db.get(key(39)).unwrap().is_some());
    let closer = db.clone();
    returns("close", move || closer.close()).unwrap();
    drop(db);
    let db = Db::open(DIR, options).unwrap();
    assert!(db.get(key(39)).unwrap().is_some());
}

#[test]
fn a_file_that_cannot_be_read_for_a_while_is_merged_when_it_can() {
    let sim = SimVfs::new(3);
    let db = Db::open(DIR, options(&sim)).unwrap();
    write_file(&db, 0, 40, 0).unwrap();
    write_file(&db, 0, 40, 1).unwrap();
    let fault = Fault {
        at_op: sim.op_count(),
        kind: FaultKind::Eio,
        forever: true,
        filter: Some(OpClass::Read),
    };
    sim.set_fault(Some(fault));
    let writer = db.clone();
    returns("writing", move || {
        (2..18).for_each(|round| write_file(&writer, 0, 40, round).unwrap())
    });
    let waiter = db.clone();
    let error = returns("wait_idle", move || waiter.wait_idle()).unwrap_err();
    assert!(matches!(error, Error::Io(_)), "{error}");
    assert!(!db.metrics().poisoned && db.metrics().quarantined_files > 0);
    sim.set_fault(None);
    let start = Instant::now();
    while db.wait_idle().is_err() {
        assert!(start.elapsed() < HANG_GUARD, "it is never tried again");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(db.metrics().compactions > 0 && l0_files(&db) < 15, "{}", db.metrics());
    db.compact_range::<&[u8]>(..).unwrap();
    assert_eq!(db.metrics().quarantined_files, 0);
    db.verify().unwrap();
}

/// The first try has written what lies before the sector. The next ones would write that as well, again and again.
#[test]
fn a_merge_that_has_met_a_lost_sector_writes_nothing_before_it_has_read_the_file_again() {
    let sim = SimVfs::new(3);
    let mut options = options(&sim);
    options.memory_budget = 64 << 20;
    let a = &mut options.advanced;
    // For files of some times what a merge reads at once.
    a.memtable_bytes = 4 << 20;
    (a.l0_compaction_trigger, a.l0_slowdown, a.l0_stop) = (30, 40, 50);
    let db = Db::open(DIR, options).unwrap();
    for round in 0..2_u8 {
        for number in 0..3000 {
            db.put(key(number), [round; 900]).unwrap();
        }
        db.flush().unwrap();
    }
    let lost = ssts(&sim).first().unwrap().clone();
    let at = sim.read_file(&lost).unwrap().len() as u64 / 4 * 3;
    assert!(at > 1 << 20 && sim.lose_sector(&lost, at..at + 512));
    let merge = || {
        let caller = db.clone();
        returns("compact_range", move || caller.compact_range::<&[u8]>(..)).unwrap_err()
    };
    let first = merge();
    assert!(matches!(first, Error::Io(_)) && names(&first, &lost), "{first}");
    // From now on no file can be created.
    let (at_op, filter) = (sim.op_count(), Some(OpClass::Create));
    sim.set_fault(Some(Fault { at_op, kind: FaultKind::Eio, forever: true, filter }));
    let second = merge();
    assert!(matches!(second, Error::Io(_)) && names(&second, &lost), "{second}");
    assert_eq!(db.metrics().quarantined_files, 1);
    sim.set_fault(None);
    db.close().unwrap();
}

#[test]
fn a_compaction_that_cannot_write_is_tried_again_and_poisons_nothing() {
    for kind in [FaultKind::Eio, FaultKind::NoDescriptors] {
        let sim = SimVfs::new(3);
        let db = Db::open(DIR, options(&sim)).unwrap();
        (0..2).for_each(|round| write_file(&db, 0, 40, round).unwrap());
        db.put(key(0), b"newest").unwrap();
        db.flush().unwrap();
        let (at_op, filter) = (sim.op_count(), Some(OpClass::Create));
        sim.set_fault(Some(Fault { at_op, kind, forever: true, filter }));
        let caller = db.clone();
        let failed = returns("compact_range", move || caller.compact_range::<&[u8]>(..));
        assert!(matches!(failed, Err(Error::Io(_))), "{kind:?}: {failed:?}");
        assert!(!db.metrics().poisoned, "{kind:?}");
        sim.set_fault(None);
        let start = Instant::now();
        while db.compact_range::<&[u8]>(..).is_err() {
            assert!(start.elapsed() < HANG_GUARD, "{kind:?}: it is never tried again");
        }
        db.put(key(1), b"after").unwrap();
        assert_eq!(db.get(key(0)).unwrap().as_deref(), Some(&b"newest"[..]));
    }
}

/// Files are opened some at a time, newest first.
#[test]
fn a_lost_file_does_not_hide_what_a_newer_one_has() {
    let sim = SimVfs::new(3);
    let mut options = options(&sim);
    (options.advanced.l0_compaction_trigger, options.advanced.l0_slowdown) = (30, 40);
    options.advanced.l0_stop = 50;
    let db = Db::open(DIR, options.clone()).unwrap();
    let mut files = Vec::new();
    for round in 0..6 {
        let before = ssts(&sim);
        write_file(&db, 0, 40, round).unwrap();
        files.extend(ssts(&sim).difference(&before).cloned());
    }
    db.close().unwrap();
    files.pop();
    for lost in files {
        let image = sim.kill_image();
        options.advanced.vfs = Arc::new(image.clone());
        let db = Db::open(DIR, options.clone()).unwrap();
        terrace_vfs::Vfs::remove(&image, &lost).unwrap();
        assert_eq!(
            db.get(key(7)).unwrap().as_deref(),
            Some(&value(7, 5)[..]),
            "{}",
            lost.display()
        );
        assert_eq!(db.multi_get(&[key(7)]).unwrap()[0].as_deref(), Some(&value(7, 5)[..]));
    }
}
