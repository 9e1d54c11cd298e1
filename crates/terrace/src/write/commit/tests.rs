//! Writes for which there is no memory, and writes beside a group that is being inserted.

use crate::memtable::NO_MEMORY;
use crate::{CfOptions, Db, Error, Options};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use terrace_base::{SeqNo, ValueKind};
use terrace_skiplist::Hint;
use terrace_vfs::SimVfs;

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
    lead.pass_on_unless_asleep();
    assert!(lead.is_passed_on());
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
    lead.pass_on_unless_asleep();
    thread::scope(|scope| {
        let writer = scope.spawn(|| db.put(b"k", [1; 1000]));
        let_others_run();
        memtable.note_commit(segment, SeqNo::new(1));
        let mut hint = Hint::default();
        for n in 0..u32::MAX {
            if memtable
                .insert(&key(n), SeqNo::new(1), ValueKind::Put, &[2; 100], &mut hint)
                .is_err()
            {
                break;
            }
        }
        drop(turn);
        writer.join().unwrap().unwrap();
    });
    assert_ne!(db.default_family().family().state().memtable.id, memtable.id);
    assert_eq!(db.get(b"k").unwrap().as_deref(), Some(&[1; 1000][..]));
}
