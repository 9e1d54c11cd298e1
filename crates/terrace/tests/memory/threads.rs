//! Memory of blocks that one thread has read serves those that others read: a process keeps to its budget whichever
//! threads read. In a process of its own, as for the whole store.

use crate::filled::{self, check_alone};
use crate::resident::peak;
use crate::{BESIDE_THE_BUDGET, MIB};

const BUDGET: u64 = 96 * MIB;
const KEYS: u64 = 180_000;
const THREADS: u64 = 6;
/// Of each thread: more than fill the cache.
const LOOKUPS: u64 = 60_000;
/// Says to a process of this binary that it is the one.
const CASE: &str = "TERRACE_READING_THREADS";

/// What the process does; in the process that the tests run in it does nothing.
#[test]
fn one_after_the_other() {
    if std::env::var_os(CASE).is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let db = filled::open(dir.path(), BUDGET, KEYS);
    for seed in 0..THREADS {
        std::thread::scope(|scope| {
            scope.spawn(|| filled::read(&db, KEYS, LOOKUPS, seed));
        });
        println!("{} MiB after thread {seed}", peak() / MIB);
    }
    let most = BUDGET + BESIDE_THE_BUDGET;
    assert!(peak() <= most, "{} MiB of {}", peak() / MIB, most / MIB);
    db.close().unwrap();
}

#[test]
fn a_process_keeps_to_its_budget_while_other_threads_read_than_before() {
    check_alone("threads::one_after_the_other", CASE);
}
