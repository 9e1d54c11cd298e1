//! Writes for which there is no memory, writes beside a group that is being inserted, writes that a full disk refuses,
//! writes to keys that become hot, writes beside many families, writes that wait for a sync, and leaders that panic.

use crate::memory::family_totals::MemtableBytes;
use crate::memtable::NO_MEMORY;
use crate::version::family::{Family, LOOKS};
use crate::version::hot_keys::note_life;
use crate::write::log_segments::next_segment;
use crate::write::room::rotate;
use crate::{CfOptions, Db, Error, HotTableMode, Options, SyncMode, UpdateOp, Updates};
use crate::{WriteBatch, WriteOptions};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use terrace_base::checksum::hash_key;
use terrace_base::rng::{Rng, SplitMix64};
use terrace_base::{SeqNo, ValueKind};
use terrace_skiplist::Hint;
use terrace_vfs::{BeforeCalls, Call, SimVfs};

mod panicked;
mod synced;

fn options(sim: &SimVfs) -> Options {
    let mut options = Options { memory_budget: 16 << 20, ..Options::default() };
    options.advanced.vfs = Arc::new(sim.clone());
    options.advanced.memtable_bytes = 16 << 10;
    options
}

fn key(n: u32) -> [u8; 4] {
    n.to_be_bytes()
}

/// `call` while this thread finds no memory for a memtable.
fn without_memory<T>(call: impl FnOnce() -> crate::Result<T>) -> crate::Result<T> {
    NO_MEMORY.set(true);
    let result = call();
    NO_MEMORY.set(false);
    result
}

#[track_caller]
fn assert_refused<T>(result: crate::Result<T>) {
    assert!(matches!(result.map(drop), Err(Error::Io(_))));
}

/// What needs a new memtable fails, leaves nothing behind, and succeeds when there is memory: a write
/// that finds its memtable full, a flush, a new family, an open.
#[test]
fn without_memory_for_a_memtable_calls_fail_and_nothing_is_lost() {
    let sim = SimVfs::new(1);
    let db = Db::open("/db", options(&sim)).unwrap();
    let mut refused = Vec::new();
    let is_segment = |path: &Path| path.extension().is_some_and(|ending| ending == "log");
    let segments = || sim.files().iter().filter(|(path, _)| is_segment(path)).count();
    for n in 0..2000 {
        let before = segments();
        let result = match n % 3 {
            0 => without_memory(|| db.put(key(n), [1; 100])),
            _ => db.put(key(n), [1; 100]),
        };
        match result {
            Ok(()) => {}
            Err(Error::Io(_)) if n % 3 == 0 => {
                assert!(segments() <= before, "write {n} was refused and left a log segment");
                refused.push(n);
            }
            Err(error) => panic!("write {n}: {error}"),
        }
    }
    assert!(refused.len() > 3, "only {refused:?} needed a memtable");
    assert_refused(without_memory(|| db.flush()));
    assert_refused(without_memory(|| db.create_column_family("new", CfOptions::default())));
    let check = |db: &Db| {
        for n in 0..2000 {
            let there = db.get(key(n)).unwrap().is_some();
            assert_eq!(there, !refused.contains(&n), "key {n}");
        }
    };
    check(&db);
    assert!(!db.metrics().poisoned);
    db.create_column_family("new", CfOptions::default()).unwrap().put(b"k", b"v").unwrap();
    let killed = sim.kill_image();
    db.flush().unwrap();
    db.close().unwrap();
    for sim in [sim.kill_image(), killed] {
        assert_refused(without_memory(|| Db::open("/db", options(&sim))));
        let db = Db::open("/db", options(&sim)).unwrap();
        check(&db);
        let family = db.column_family("new").unwrap();
        assert_eq!(family.get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
        db.close().unwrap();
    }
}

/// Lets other threads run: enough of it for what nothing holds back.
fn let_others_run() {
    for _ in 0..10_000 {
        thread::yield_now();
    }
}

#[test]
fn who_leads_without_a_batch_finds_no_group_on_its_way_into_the_memtables() {
    let sim = SimVfs::new(1);
    let db = Db::open("/db", options(&sim)).unwrap();
    let queue = db.inner().commit.queue().unwrap();
    let lead = queue.lead();
    let turn = lead.insert_turn(100);
    // Also to a thread of the background that sleeps for it by now.
    lead.pass_on();
    let in_flight = thread::scope(|scope| {
        let other = scope.spawn(|| queue.lead().in_flight_bytes());
        let_others_run();
        drop(turn);
        other.join().unwrap()
    });
    assert_eq!(in_flight, 0);
}

#[test]
fn room_that_a_group_on_its_way_may_need_is_not_given_away() {
    let sim = SimVfs::new(1);
    let db = Db::open("/db", options(&sim)).unwrap();
    let queue = db.inner().commit.queue().unwrap();
    let memtable = db.default_family().family().state().memtable.clone();
    let lead = queue.lead();
    let segment = lead.log().writer.segment();
    let turn = lead.insert_turn(memtable.room_bytes());
    lead.pass_on();
    thread::scope(|scope| {
        let writer = scope.spawn(|| db.put(b"k", [1; 1000]));
        let_others_run();
        memtable.note_commit(segment, SeqNo::new(1));
        let took = || {
            let (all, mutable) = (memtable.size_bytes(), memtable.rotatable_bytes());
            MemtableBytes { all, mutable }
        };
        let before = took();
        let mut hint = Hint::default();
        for n in 0..u32::MAX {
            if memtable
                .insert(&key(n), SeqNo::new(1), ValueKind::Put, &[2; 100], &mut hint)
                .is_err()
            {
                break;
            }
        }
        db.default_family().family().count_inserted(before, took());
        drop(turn);
        writer.join().unwrap().unwrap();
    });
    assert_ne!(db.default_family().family().state().memtable.id, memtable.id);
    assert_eq!(db.get(b"k").unwrap().as_deref(), Some(&[1; 1000][..]));
}

/// Puts two keys, each by a thread of its own, in one group, once `then` is done.
fn put_together(db: &Db, keys: [&[u8]; 2], then: impl FnOnce()) -> [crate::Result<()>; 2] {
    let queue = db.inner().commit.queue().unwrap();
    let lead = queue.lead();
    thread::scope(|scope| {
        let mut number = 0;
        let writers = keys.map(|key| {
            let writer = scope.spawn(move || db.put(key, [1; 100]));
            number += 1;
            while queue.waiting() < number {
                thread::yield_now();
            }
            writer
        });
        then();
        drop(lead);
        writers.map(|writer| writer.join().unwrap())
    })
}

fn keys(feed: &mut Updates) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    for batch in feed {
        for update in batch.unwrap().updates() {
            match update.unwrap().op {
                UpdateOp::Put { key, .. } => keys.push(key.to_vec()),
                other => panic!("{other:?}"),
            }
        }
    }
    keys
}

/// The disk is full in the middle of a group: the record of its first batch stands in the file whole.
#[test]
fn a_refused_batch_is_not_read_from_the_log() {
    for fail in [false, true] {
        let sim = SimVfs::new(1);
        let mut options = options(&sim);
        options.sync = SyncMode::None;
        options.advanced.reserve_bytes = 0;
        // A merge would take room of the disk, or give some back.
        options.advanced.compact_when_idle = false;
        let vfs = BeforeCalls::new(sim.clone(), move |call, path| match call {
            Call::Cut(_) if fail => {
                Err(terrace_base::Error::io("cut", path, ErrorKind::Unsupported.into()))
            }
            _ => Ok(()),
        });
        options.advanced.vfs = Arc::new(vfs);
        let db = Db::open("/db", options.clone()).unwrap();
        let used = || sim.files().iter().map(|(_, bytes)| bytes).sum::<u64>();
        db.put(b"0", [1; 100]).unwrap();
        let mut feed = db.updates_since(1).unwrap();
        // The segment ends here, and stays although the disk will be full.
        db.inner().versions.deletions_held.fetch_add(1, Ordering::SeqCst);
        db.flush().unwrap();
        let before = used();
        db.put(b"1", [1; 100]).unwrap();
        let record = used() - before;
        assert_eq!(keys(&mut feed), [b"0", b"1"]);
        let mut behind = db.updates_since(1).unwrap();
        let results = put_together(&db, [b"A", b"B"], || {
            sim.set_capacity_bytes(Some(used() + record + 10));
        });
        for result in results {
            assert!(matches!(result, Err(Error::DiskFull(_))), "{result:?}");
        }
        assert_eq!(db.get(b"A").unwrap(), None);
        let reader = Db::open_read_only("/db", options.clone()).unwrap();
        // Where no file can be cut it is seen until the next segment says where this one ends.
        assert_eq!(reader.get(b"A").unwrap().is_some(), fail);
        let killed = sim.kill_image();
        killed.set_capacity_bytes(None);
        options.advanced.vfs = Arc::new(killed);
        let after = Db::open("/db", options).unwrap();
        assert_eq!(after.get(b"A").unwrap().is_some(), fail);
        assert!(after.get(b"1").unwrap().is_some());
        sim.set_capacity_bytes(None);
        while let Err(error) = db.put(b"C", [1; 100]) {
            // The house thread looks for room now and then.
            assert!(matches!(error, Error::DiskFull(_)), "{error}");
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(keys(&mut feed), [b"C"]);
        assert_eq!(keys(&mut behind), [b"0", b"1", b"C"]);
        let mut anew = db.updates_since(1).unwrap();
        assert_eq!(keys(&mut anew), [b"0", b"1", b"C"]);
        reader.refresh().unwrap();
        assert_eq!(reader.get(b"A").unwrap(), None);
        assert!(reader.get(b"C").unwrap().is_some());
    }
}

/// The hot table has no place for handles. It is full and has grown too large, so that the write of such a value rotates
/// the memtable, and its key becomes hot with that.
#[test]
fn a_key_that_becomes_hot_as_it_gets_a_separated_value_does_not_stay_hot() {
    const MEMTABLE: usize = 256 << 10;
    let sim = SimVfs::new(1);
    let mut options = options(&sim);
    options.advanced.memtable_bytes = MEMTABLE;
    options.advanced.hot_table = HotTableMode::Auto;
    options.default_family.value_separation_threshold = 200 << 10;
    let (long, separated) = (vec![1_u8; 160 << 10], vec![3_u8; 300 << 10]);
    let db = Db::open("/db", options.clone()).unwrap();
    let family = db.default_family().family().clone();
    let hot = || family.state().hot.clone();
    // As the flush of a memtable in which it was written often.
    let plan = |key: &[u8]| {
        family.hot_keys.lock().note(hash_key(key), key, 100, 100);
        note_life(&family.hot_keys, &family.hold_state(), MEMTABLE);
    };
    db.put(b"k", [1; 100]).unwrap();
    plan(b"k");
    {
        let commit = &db.inner().commit;
        let lead = commit.queue().unwrap().lead();
        rotate(commit, &mut lead.log(), &family, 0).unwrap();
    }
    // It plans as well.
    while !family.state().immutables.is_empty() {
        thread::yield_now();
    }
    assert!(hot().is_some_and(|hot| hot.contains(b"k", hash_key(b"k"))));
    db.put(b"k", &long).unwrap();
    // The table is full, and the next one is made with the long value.
    db.put(b"x", [2; 100]).unwrap();
    db.put(b"k", &long).unwrap();
    assert!(hot().is_some_and(|hot| hot.is_full() && hot.is_oversized(MEMTABLE)));
    plan(b"x");
    db.put(b"x", &separated).unwrap();
    assert!(hot().is_none_or(|hot| !hot.contains(b"x", hash_key(b"x"))));
    let check = |db: &Db| {
        assert_eq!(db.get(b"x").unwrap().as_deref(), Some(&separated[..]));
        let all: Vec<_> = db.iter().unwrap().entries().map(|entry| entry.unwrap()).collect();
        assert_eq!(all, [(b"k".to_vec(), long.clone()), (b"x".to_vec(), separated.clone())]);
    };
    check(&db);
    options.advanced.vfs = Arc::new(sim.kill_image());
    check(&Db::open("/db", options).unwrap());
    db.flush().unwrap();
    check(&db);
    db.verify().unwrap();
}

#[test]
fn of_a_group_only_what_is_to_be_synced_is_refused_while_the_segment_has_no_durable_name() {
    let sim = SimVfs::new(1);
    let none_left = Arc::new(AtomicBool::new(false));
    let vfs = {
        let none_left = none_left.clone();
        BeforeCalls::new(sim.clone(), move |call, path| match call {
            Call::SyncDir if none_left.load(Ordering::SeqCst) => {
                Err(terrace_base::Error::io("open", path, ErrorKind::Interrupted.into()))
            }
            _ => Ok(()),
        })
    };
    let mut options = options(&sim);
    options.sync = SyncMode::None;
    options.advanced.vfs = Arc::new(vfs);
    let db = Db::open("/db", options).unwrap();
    let write = |key: &[u8], sync: SyncMode| {
        let mut batch = WriteBatch::new();
        batch.put(key, b"v");
        db.write_with(batch, &WriteOptions { sync: Some(sync) })
    };
    none_left.store(true, Ordering::SeqCst);
    let env = &db.inner().commit;
    let queue = env.queue().unwrap();
    let lead = queue.lead();
    next_segment(env, &mut lead.log()).unwrap();
    let (plain, synced) = thread::scope(|scope| {
        let synced = scope.spawn(|| write(&b"synced"[..], SyncMode::Batch));
        while queue.waiting() < 1 {
            thread::yield_now();
        }
        // The one before it leads for both.
        let plain = scope.spawn(|| write(&b"plain"[..], SyncMode::None));
        while queue.waiting() < 2 {
            thread::yield_now();
        }
        drop(lead);
        (plain.join().unwrap(), synced.join().unwrap())
    });
    plain.unwrap();
    assert!(matches!(synced, Err(Error::Io(_))), "{synced:?}");
    none_left.store(false, Ordering::SeqCst);
    write(&b"again"[..], SyncMode::Batch).unwrap();
    let is_there = [&b"plain"[..], b"synced", b"again"].map(|key| db.get(key).unwrap().is_some());
    assert_eq!(is_there, [true, false, true]);
}

#[test]
fn a_put_looks_at_few_families_however_many_there_are() {
    let sim = SimVfs::new(1);
    let db = Db::open("/db", options(&sim)).unwrap();
    for n in 0..100 {
        let family = db.create_column_family(&n.to_string(), CfOptions::default()).unwrap();
        family.put(b"k", b"v").unwrap();
    }
    let before = LOOKS.get();
    db.put(b"k", b"v").unwrap();
    let _may_wait = db.write_may_wait();
    let looks = LOOKS.get() - before;
    assert!((1..20).contains(&looks), "{looks}");
}

/// Waits until what is kept of all families is what they have: a thread that has just changed one may not have counted it yet.
#[track_caller]
fn assert_totals(db: &Db) {
    let read = &db.inner().read;
    let totals = read.table_cache.totals();
    let are_right = || {
        let families = read.families.load();
        let ids = |is_in: &dyn Fn(&Family) -> bool| -> Vec<u32> {
            families.iter().filter(|family| is_in(family)).map(|family| family.id).collect()
        };
        let mutable = |family: &Arc<Family>| family.state().memtable.rotatable_bytes();
        let bytes = MemtableBytes {
            all: families.iter().map(|family| family.memtable_bytes()).sum(),
            mutable: families.iter().map(mutable).sum(),
        };
        ids(&|family: &Family| family.pressure().is_some()) == **totals.slowed.load()
            && ids(&|family: &Family| !family.state().immutables.is_empty())
                == **totals.waiting.load()
            && ids(&|family: &Family| family.state().hot.is_some()) == **totals.hot.load()
            && bytes == totals.memtables()
    };
    for _ in 0..10_000 {
        if are_right() {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
    panic!("{totals:?}");
}

#[test]
fn what_is_kept_of_all_families_is_what_they_have() {
    let sim = SimVfs::new(1);
    let mut options = options(&sim);
    options.advanced.hot_table = HotTableMode::Auto;
    options.advanced.pending_compaction_slowdown_bytes = 1;
    let db = Db::open("/db", options.clone()).unwrap();
    let names = ["default", "1", "2", "3"];
    for name in &names[1..] {
        db.create_column_family(name, CfOptions::default()).unwrap();
    }
    let mut rng = SplitMix64::new(1);
    for n in 1..=2000 {
        let Some(family) = db.column_family(names[rng.below(4) as usize]) else { continue };
        let key = if rng.below(10) < 7 { rng.below(24) } else { rng.below(4000) };
        family.put(key.to_be_bytes(), [1; 100]).unwrap();
        match n {
            500 => family.delete_range(3_u64.to_be_bytes(), 9_u64.to_be_bytes()).unwrap(),
            1000 => db.flush().unwrap(),
            1500 => db.drop_column_family("2").unwrap(),
            _ => {}
        }
        if n % 100 == 0 {
            assert_totals(&db);
        }
    }
    db.flush().unwrap();
    assert_totals(&db);
    // One that is not made after all leaves nothing behind.
    let inner = db.inner();
    let before = inner.read.memtable_bytes();
    let chosen = CfOptions::default();
    let in_force = inner.base.dynamic.options().family(&chosen);
    let (name, table_cache) = ("4".to_string(), &inner.read.table_cache);
    drop(Family::new(9, name, (chosen, in_force), Arc::default(), table_cache).unwrap());
    assert_eq!(inner.read.memtable_bytes(), before);
    db.close().unwrap();
    let db = Db::open("/db", options).unwrap();
    assert_totals(&db);
}
