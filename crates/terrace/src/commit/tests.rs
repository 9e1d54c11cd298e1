//! Writes for which there is no memory.

use crate::memtable::NO_MEMORY;
use crate::{CfOptions, Db, Error, Options};
use std::sync::Arc;
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
    for n in 0..2000 {
        let result = match n % 3 {
            0 => without_memory(|| db.put(key(n), [1; 100])),
            _ => db.put(key(n), [1; 100]),
        };
        match result {
            Ok(()) => {}
            Err(Error::Io(_)) if n % 3 == 0 => refused.push(n),
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
