//! Where room is short but not gone: merges that do not fit, a file system that does not say what is free, files that
//! cannot be removed, and merges that run when there is room again.

use crate::harness::{DIR, eventually, key, small_options, stopped_clock};
use crate::held::{COMPACTION, Held};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use terrace::vfs::SimVfs;
use terrace::{CompactionEnded, Compression, Db, Error, EventListener, Options};
use terrace_base::ManualClock;
use terrace_vfs::{BeforeCalls, Call, Vfs};

const RESERVE: u64 = 8 << 10;

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

fn options(vfs: Arc<dyn Vfs>, clock: &ManualClock) -> Options {
    let mut options = small_options(vfs, clock);
    options.column_families.clear();
    options.default_family.compression = vec![Compression::None];
    let a = &mut options.advanced;
    a.reserve_bytes = RESERVE;
    (a.l0_compaction_trigger, a.l0_slowdown, a.l0_stop) = (3, 4, 24);
    a.compact_when_idle = false;
    // L0 is merged straight into the last level.
    a.level_base_bytes = 64 << 20;
    options
}

fn used_bytes(sim: &SimVfs) -> u64 {
    sim.files().into_iter().map(|(_, bytes)| bytes).sum()
}

fn sst_bytes(sim: &SimVfs) -> u64 {
    let is_sst = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "sst");
    sim.files().into_iter().filter(|(path, _)| is_sst(path)).map(|(_, bytes)| bytes).sum()
}

fn value(number: u64, round: u64) -> Vec<u8> {
    format!("value {round} of {number} ").repeat(20).into_bytes()
}

/// Writes every `step`th key below `count`, and flushes.
fn write(
    db: &Db,
    there: &mut Contents,
    (count, step): (u64, usize),
    round: u64,
) -> terrace::Result<()> {
    for number in (0..count).step_by(step) {
        db.put(key(number), value(number, round))?;
        there.insert(key(number), value(number, round));
    }
    db.flush()
}

fn check(db: &Db, there: &Contents) {
    for (key, value) in there {
        assert_eq!(db.get(key).unwrap().as_deref(), Some(&value[..]));
    }
}

/// Whether a write was taken; not to be is only for want of room.
fn taken(outcome: terrace::Result<()>) -> bool {
    match outcome {
        Ok(()) => true,
        Err(Error::DiskFull(_)) => false,
        Err(other) => panic!("{other}"),
    }
}

/// Counts merges that failed.
#[derive(Default)]
struct FailedMerges(AtomicU64);

impl EventListener for FailedMerges {
    fn on_compaction_ended(&self, event: &CompactionEnded) {
        if event.error.is_some() {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// A store of one deep level and room for less than a merge of it, in which such a merge has just failed.
fn store_without_room_for_its_merge(
    clock: &ManualClock,
    failed: &Arc<FailedMerges>,
    target_file_bytes: u64,
) -> (SimVfs, Db, Contents) {
    let sim = SimVfs::new(1);
    let mut options = options(Arc::new(sim.clone()), clock);
    options.advanced.target_file_bytes = target_file_bytes;
    let listener: Arc<dyn EventListener> = failed.clone();
    options.advanced.event_listeners = vec![listener];
    let db = Db::open(DIR, options).unwrap();
    let mut there = Contents::new();
    (0..2).for_each(|round| write(&db, &mut there, (800, 1), round).unwrap());
    db.compact_range::<&[u8]>(..).unwrap();
    db.wait_idle().unwrap();
    let level_bytes = db.metrics().levels.iter().map(|level| level.size_bytes).sum::<u64>();
    sim.set_capacity_bytes(Some(used_bytes(&sim) + level_bytes * 6 / 10));
    // All of L0 overlaps all of the level below.
    for round in 2..5 {
        // What is not new is merged as soon as there is enough of it.
        clock.advance(60_000);
        while !taken(write(&db, &mut there, (800, 80), round)) {}
    }
    clock.advance(60_000);
    eventually("the merge finds no room", || {
        let _ = db.put(b"a", b"wakes the background");
        let _ = db.flush();
        failed.0.load(Ordering::SeqCst) > 0
    });
    (sim, db, there)
}

/// Each try of it would fill the disk, and fail writers.
#[test]
fn a_merge_that_does_not_fit_is_not_begun_while_there_is_room_for_writes() {
    let (clock, failed) = (stopped_clock(), Arc::default());
    let (sim, db, mut there) = store_without_room_for_its_merge(&clock, &failed, 8 << 10);
    eventually("writes resume", || !db.is_disk_full());
    let before = failed.0.load(Ordering::SeqCst);
    for round in 0..30 {
        clock.advance(60_000);
        eventually("writes go on", || taken(write(&db, &mut there, (800, 200), 10 + round)));
    }
    let failures = failed.0.load(Ordering::SeqCst) - before;
    assert!(failures < 5, "{failures} merges have failed");
    // Smaller ones are found.
    eventually("smaller ones are found", || db.metrics().levels[0].file_count < 24);
    check(&db, &there);
    sim.set_capacity_bytes(None);
    clock.advance(60_000);
    db.compact_range::<&[u8]>(..).unwrap();
    db.wait_idle().unwrap();
    // One that had met too little room may have ended since there is some.
    let before = failed.0.load(Ordering::SeqCst);
    write(&db, &mut there, (800, 1), 50).unwrap();
    db.compact_range::<&[u8]>(..).unwrap();
    assert_eq!(failed.0.load(Ordering::SeqCst), before);
    db.verify().unwrap();
    check(&db, &there);
}

#[test]
fn deletions_make_room_where_a_merge_does_not_fit() {
    for sinks in [false, true] {
        let (clock, failed) = (stopped_clock(), Arc::default());
        // What lies below the deletion is no more than a merge takes beside writes: 24 files.
        let (sim, db, _) = store_without_room_for_its_merge(&clock, &failed, 16 << 10);
        if sinks {
            // Then what deletes has a level of its own above what it deletes.
            sink_l0(&clock, &db);
        }
        let before = sst_bytes(&sim);
        eventually("all is deleted", || taken(db.delete_range(b"", b"\xff")));
        eventually("files go", || {
            clock.advance(60_000);
            // As writers do that go on.
            let _ = db.put(b"a", b"wakes the background");
            let _ = db.flush();
            sst_bytes(&sim) < before / 2
        });
        eventually("writes resume", || taken(db.put(b"after", b"room")));
    }
}

/// What is deleted there is little, so that the attempt at it is in vain.
#[test]
fn an_attempt_at_deleted_ranges_does_not_fill_the_disk() {
    let (clock, failed) = (stopped_clock(), Arc::default());
    let (_, db, mut there) = store_without_room_for_its_merge(&clock, &failed, 8 << 10);
    eventually("writes resume", || !db.is_disk_full());
    let before = failed.0.load(Ordering::SeqCst);
    let mut number = 1;
    eventually("an attempt fails", || {
        clock.advance(60_000);
        let deleted = key(number);
        db.delete_range(&deleted, [&deleted[..], b"\0"].concat()).unwrap();
        db.flush().unwrap();
        there.remove(&deleted);
        number += 2;
        failed.0.load(Ordering::SeqCst) > before
    });
    for round in 0..3 {
        write(&db, &mut there, (800, 200), 10 + round).unwrap();
    }
    check(&db, &there);
}

/// A caller gets the error, and nobody else notices: writes go on, and what was written for nothing is gone.
#[test]
fn a_merge_that_is_asked_for_and_finds_no_room_leaves_the_store_as_it_was() {
    let count = 10_000;
    for (separation, when_idle) in [(usize::MAX, false), (100, false), (100, true)] {
        let (sim, clock) = (SimVfs::new(1), stopped_clock());
        let mut options = options(Arc::new(sim.clone()), &clock);
        // The background merges nothing for the number of files, but moves what is asked for as well.
        (options.advanced.l0_compaction_trigger, options.advanced.l0_slowdown) = (12, 16);
        options.advanced.compact_when_idle = when_idle;
        // Much more than what a merge writes between two looks at what is free.
        options.advanced.reserve_bytes = 1 << 20;
        options.default_family.value_separation_threshold = separation;
        let db = Db::open(DIR, options).unwrap();
        let mut there = Contents::new();
        write(&db, &mut there, (count, 1), 0).unwrap();
        db.compact_range::<&[u8]>(..).unwrap();
        db.wait_idle().unwrap();
        // It overlaps all of the level below, and is not merged by itself.
        write(&db, &mut there, (count, 1000), 1).unwrap();
        let ask = || match separation {
            usize::MAX => db.compact_range::<&[u8]>(..),
            _ => db.collect_garbage(0.0),
        };
        let (used, room) = (used_bytes(&sim), 3 << 19);
        sim.set_capacity_bytes(Some(used + room));
        for n in 0..3 {
            let outcome = ask();
            assert!(matches!(outcome, Err(Error::DiskFull(_))), "{outcome:?}");
            assert!(!db.is_disk_full());
            eventually("what it has written goes", || used_bytes(&sim) < used + room / 4);
            clock.advance(1000);
            db.put(key(count + n), b"writes go on").unwrap();
            there.insert(key(count + n), b"writes go on".to_vec());
        }
        sim.set_capacity_bytes(None);
        // One that was tried by itself may have looked before, and those who ask get its error, too.
        eventually("the merge finds room", || {
            clock.advance(60_000);
            match ask() {
                Err(Error::DiskFull(_)) => false,
                outcome => outcome.map(|()| true).unwrap(),
            }
        });
        db.wait_idle().unwrap();
        check(&db, &there);
        db.verify().unwrap();
    }
}

/// Writes until merges that fit have brought L0 into the level above the last one.
fn sink_l0(clock: &ManualClock, db: &Db) {
    let mut round = 100;
    eventually("a smaller merge is found", || {
        clock.advance(60_000);
        round += 1;
        let _ = write(db, &mut Contents::new(), (800, 200), round);
        db.metrics().levels[5].file_count > 0
    });
}

/// As in a server, where the deletion of every large collection is one of a range.
#[test]
fn small_deleted_ranges_are_no_reason_to_try_what_does_not_fit() {
    let (clock, failed) = (stopped_clock(), Arc::default());
    let (_, db, mut there) = store_without_room_for_its_merge(&clock, &failed, 8 << 10);
    eventually("writes resume", || !db.is_disk_full());
    let before = failed.0.load(Ordering::SeqCst);
    for round in 0..30 {
        clock.advance(60_000);
        let deleted = key(1 + 7 * round);
        let end = [&deleted[..], b"\0"].concat();
        // One of the first is tried, since the files that delete hold little else by then.
        eventually("a range is deleted", || taken(db.delete_range(&deleted, &end)));
        there.remove(&deleted);
        eventually("writes go on", || taken(write(&db, &mut there, (800, 200), 10 + round)));
    }
    let failures = failed.0.load(Ordering::SeqCst) - before;
    assert!(failures < 5, "{failures} merges have failed");
    check(&db, &there);
}

/// A flush takes about as much room as the log has taken, which gives it back only afterwards.
#[test]
fn memtables_end_while_there_is_room_for_their_flush() {
    let (sim, clock) = (SimVfs::new(1), stopped_clock());
    let mut options = options(Arc::new(sim.clone()), &clock);
    options.memory_budget = 64 << 20;
    options.advanced.memtable_bytes = 4 << 20;
    options.advanced.reserve_bytes = 256 << 10;
    let db = Db::open(DIR, options).unwrap();
    sim.set_capacity_bytes(Some(used_bytes(&sim) + (4 << 20)));
    let mut there = Contents::new();
    fill(&db, &mut there);
    let in_memory = db.metrics().memtable_bytes;
    assert!(in_memory < 512 << 10, "{in_memory} bytes are not flushed");
    eventually("all of it is flushed, on the full disk", || {
        let families = db.shape().families;
        let waiting: u64 = families.iter().map(|family| family.immutable_memtables).sum();
        waiting == 0 && db.metrics().memtable_bytes < 64 << 10
    });
    check(&db, &there);
}

/// Writes until the disk is full.
fn fill(db: &Db, there: &mut Contents) {
    for number in 0..100_000 {
        if !taken(db.put(key(number), value(number, 0))) {
            return;
        }
        there.insert(key(number), value(number, 0));
    }
    panic!("the disk is never full");
}

#[test]
fn writes_resume_beside_a_merge_that_takes_long() {
    let held = Held::new(COMPACTION);
    let clock = stopped_clock();
    let mut options = options(held.clone(), &clock);
    options.advanced.l0_slowdown = 1000;
    options.advanced.l0_stop = 2000;
    let db = Db::open(DIR, options).unwrap();
    let _lets_go = held.let_go_on_drop();
    let mut there = Contents::new();
    // More than one merge is due, and every piece of the first one waits at its first file.
    (0..4).for_each(|round| write(&db, &mut there, (200, 1), round).unwrap());
    clock.advance(60_000);
    write(&db, &mut there, (200, 1), 4).unwrap();
    eventually("both pieces of a merge wait", || {
        clock.advance(60_000);
        held.waits() > 1
    });
    held.sim.set_capacity_bytes(Some(used_bytes(&held.sim) + (100 << 10)));
    fill(&db, &mut there);
    held.sim.set_capacity_bytes(None);
    eventually("writes resume", || taken(db.put(b"after", b"room")));
    held.let_go();
    db.wait_idle().unwrap();
    check(&db, &there);
}

#[test]
fn a_file_system_that_does_not_say_what_is_free_is_written_again_when_there_is_room() {
    for (reserve_bytes, preallocates) in [(RESERVE, true), (RESERVE, false), (0, true), (0, false)]
    {
        let sim = SimVfs::new(1);
        sim.hide_free_space();
        if !preallocates {
            sim.refuse_preallocation();
        }
        let mut options = options(Arc::new(sim.clone()), &stopped_clock());
        options.advanced.reserve_bytes = reserve_bytes;
        let db = Db::open(DIR, options).unwrap();
        let mut there = Contents::new();
        for round in 0..2 {
            sim.set_capacity_bytes(Some(used_bytes(&sim) + (100 << 10)));
            fill(&db, &mut there);
            sim.set_capacity_bytes(None);
            let (key, value) = (key(200_000 + round), b"room".to_vec());
            eventually("writes resume", || taken(db.put(&key, &value)));
            there.insert(key, value);
            check(&db, &there);
        }
        let wanted = if preallocates { reserve_bytes } else { 0 };
        // It is given back for a moment if a job says late that it has met the full disk.
        eventually("the reserve is as large as it should be", || {
            let kept = sim.files().into_iter().find(|(path, _)| path.ends_with("RESERVE"));
            kept.map_or(0, |(_, bytes)| bytes) == wanted
        });
        eventually("what was written is flushed", || taken(db.flush()));
        db.close().unwrap();
    }
}

fn files(sim: &SimVfs) -> Vec<PathBuf> {
    let paths = sim.files().into_iter().map(|(path, _)| path);
    let is_kept = |path: &PathBuf| {
        let ending = path.extension().and_then(|ending| ending.to_str());
        path.starts_with(DIR) && matches!(ending, Some("sst" | "vlog"))
    };
    paths.filter(is_kept).collect()
}

#[test]
fn a_file_that_cannot_be_removed_holds_up_neither_others_nor_calls_nor_a_full_disk() {
    let sim = &SimVfs::new(1);
    // These files it does not remove.
    let keeps = Arc::new(Mutex::new(Vec::<PathBuf>::new()));
    let stays = keeps.clone();
    let vfs = BeforeCalls::new(sim.clone(), move |call, path| match call {
        Call::Remove if stays.lock().unwrap().iter().any(|kept| kept == path) => {
            let error = std::io::Error::from_raw_os_error(5);
            Err(terrace_base::Error::io("remove", path, error))
        }
        _ => Ok(()),
    });
    let mut options = options(Arc::new(vfs), &stopped_clock());
    options.default_family.value_separation_threshold = 100;
    let db = Db::open(DIR, options.clone()).unwrap();
    let mut there = Contents::new();
    (0..3).for_each(|round| write(&db, &mut there, (40, 1), round).unwrap());
    let before = files(sim);
    *keeps.lock().unwrap() = vec![before[0].clone()];
    db.compact_range::<&[u8]>(..).unwrap();
    db.collect_garbage(0.0).unwrap();
    db.wait_idle().unwrap();
    let left = |sim: &SimVfs| files(sim).into_iter().filter(|path| before.contains(path)).count();
    eventually("the others go", || left(sim) == 1);
    sim.set_capacity_bytes(Some(used_bytes(sim) + (100 << 10)));
    fill(&db, &mut there);
    sim.set_capacity_bytes(None);
    eventually("writes resume", || taken(db.put(b"after", b"room")));
    check(&db, &there);
    keeps.lock().unwrap().clear();
    eventually("it goes when it can", || left(sim) == 0);
    *keeps.lock().unwrap() = files(sim);
    db.compact_range::<&[u8]>(..).unwrap();
    db.close().unwrap();
    drop(db);
    let db = Db::open_read_only(DIR, options).unwrap();
    check(&db, &there);
}

/// A merge of the deletions with all that they meet has no room. What they leave of one file has, though less would be free
/// meanwhile than what is left by merges that may not fit.
#[test]
fn keys_that_were_deleted_where_room_is_short_give_theirs_back_while_nothing_is_written() {
    const COUNT: u64 = 700;
    /// Free besides the reserve.
    const FREE: u64 = 160 << 10;
    let (sim, clock) = (SimVfs::new(1), stopped_clock());
    let failed = Arc::new(FailedMerges::default());
    let listener: Arc<dyn EventListener> = failed.clone();
    let mut options = options(Arc::new(sim.clone()), &clock);
    // One merge at a time, each of files that take more than a look at what is free.
    options.background_jobs = 1;
    options.default_family.value_separation_threshold = usize::MAX;
    let a = &mut options.advanced;
    a.event_listeners = vec![listener];
    (a.reserve_bytes, a.memtable_bytes, a.target_file_bytes) = (64 << 10, 128 << 10, 64 << 10);
    let db = Db::open(DIR, options).unwrap();
    let write = |step: usize, round: u64| {
        for number in (0..COUNT).step_by(step) {
            db.put(key(number), value(number, round).repeat(6))?;
        }
        db.flush()
    };
    write(1, 0).unwrap();
    db.compact_range::<&[u8]>(..).unwrap();
    db.wait_idle().unwrap();
    sim.set_capacity_bytes(Some(used_bytes(&sim) + sst_bytes(&sim) * 6 / 10));
    for round in 1..4 {
        clock.advance(60_000);
        while !taken(write(80, round)) {}
    }
    eventually("the merge finds no room", || {
        clock.advance(60_000);
        failed.0.load(Ordering::SeqCst) > 0
    });
    eventually("writes resume", || !db.is_disk_full() && db.shape().jobs.is_empty());
    let leave_free = || sim.set_capacity_bytes(Some(used_bytes(&sim) + FREE));
    leave_free();
    for number in (0..COUNT).step_by(2) {
        eventually("a deletion is taken", || taken(db.delete(key(number))));
    }
    eventually("they are flushed", || taken(db.flush()));
    eventually("what was begun ends", || !db.is_disk_full() && db.shape().jobs.is_empty());
    leave_free();
    let (before, failures) = (sst_bytes(&sim), failed.0.load(Ordering::SeqCst));
    assert!(!db.is_disk_full());
    db.set_option("compact_when_idle", "true").unwrap();
    eventually("the room comes back", || {
        clock.advance(200);
        assert_eq!(failed.0.load(Ordering::SeqCst), failures, "a merge was given up");
        sst_bytes(&sim) < before * 3 / 4
    });
    for number in 0..COUNT {
        let wanted = (number % 2 == 1).then(|| value(number, 0).repeat(6));
        assert_eq!(db.get(key(number)).unwrap().as_deref(), wanted.as_deref(), "{number}");
    }
    db.verify().unwrap();
}
