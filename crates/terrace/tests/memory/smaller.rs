//! What the block cache gives up goes back to the system, though what it evicts lies between blocks that stay: a process
//! keeps to a budget that was made smaller. In a process of its own, as for the whole store.

use crate::filled::{self, check_alone};
use crate::resident::now;
use crate::{BESIDE_THE_BUDGET, MIB};
use std::time::Duration;

const BUDGET: u64 = 96 * MIB;
const SMALLER_BUDGET: u64 = 16 * MIB;
const KEYS: u64 = 120_000;
/// So that most blocks are read for another time, and new ones lie where old ones were.
const LOOKUPS: u64 = 2 * KEYS;
/// Says to a process of this binary that it is the one.
const CASE: &str = "TERRACE_SMALLER_BUDGET";
/// Looks until the memory is back, and the time between two. Many: the thread that moves blocks together rests for twenty times
/// as long as that took, which on a busy machine is a minute and more.
const LOOKS: u32 = 60_000;
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

/// What the process does; in the process that the tests run in it does nothing.
#[test]
fn one_store() {
    if std::env::var_os(CASE).is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let db = filled::open(dir.path(), BUDGET, KEYS);
    filled::read(&db, KEYS, LOOKUPS, 1);
    let full = now();
    db.set_memory_budget(SMALLER_BUDGET as usize).unwrap();
    let most = SMALLER_BUDGET + BESIDE_THE_BUDGET;
    let is_back = (0..LOOKS).any(|_| {
        std::thread::sleep(BETWEEN_LOOKS);
        now() <= most
    });
    assert!(is_back, "{} MiB of {}", now() / MIB, most / MIB);
    assert!(full > most + 16 * MIB, "there is nothing to give back: {} MiB", full / MIB);
    db.close().unwrap();
}

#[test]
fn a_process_keeps_to_a_budget_that_was_made_smaller() {
    check_alone("smaller::one_store", CASE);
}
