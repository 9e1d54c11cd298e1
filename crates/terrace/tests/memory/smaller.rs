//! What the block cache gives up goes back to the system, though what it evicts lies between blocks that stay: a process
//! keeps to a budget that was made smaller. In a process of its own, as for the whole store.

use crate::resident::now;
use crate::{BESIDE_THE_BUDGET, MIB, key};
use std::process::Command;
use std::time::Duration;
use terrace::{Db, Options, SyncMode};
use terrace_base::rng::{Rng, SplitMix64};

const BUDGET: u64 = 96 * MIB;
const SMALLER_BUDGET: u64 = 16 * MIB;
const KEYS: u64 = 120_000;
const VALUE_BYTES: usize = 900;
/// So that most blocks are read for another time, and new ones lie where old ones were.
const LOOKUPS: u64 = 2 * KEYS;
/// Says to a process of this binary that it is the one.
const CASE: &str = "TERRACE_SMALLER_BUDGET";
/// Looks until the memory is back, and the time between two.
const LOOKS: u32 = 3_000;
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

/// What the process does; in the process that the tests run in it does nothing.
#[test]
fn one_store() {
    if std::env::var_os(CASE).is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let memory_budget = BUDGET as usize;
    let options = Options { memory_budget, sync: SyncMode::None, ..Options::default() };
    let db = Db::open(dir.path(), options).unwrap();
    let mut rng = SplitMix64::new(11);
    let mut value = vec![0; VALUE_BYTES];
    for n in 0..KEYS {
        // Not to be compressed away.
        for part in value.chunks_mut(8) {
            part.copy_from_slice(&rng.next_u64().to_le_bytes()[..part.len()]);
        }
        db.put(key(n), &value).unwrap();
    }
    db.flush().unwrap();
    db.wait_idle().unwrap();
    for _ in 0..LOOKUPS {
        assert!(db.get(key(rng.below(KEYS))).unwrap().is_some());
    }
    let full = now();
    db.set_memory_budget(SMALLER_BUDGET as usize).unwrap();
    let most = SMALLER_BUDGET + BESIDE_THE_BUDGET;
    let is_back = (0..LOOKS).any(|_| {
        std::thread::sleep(BETWEEN_LOOKS);
        now() <= most
    });
    println!("{} MiB of {} are left", now() / MIB, full / MIB);
    assert!(is_back, "{} MiB of {}", now() / MIB, most / MIB);
    assert!(full > most + 16 * MIB, "there is nothing to give back: {} MiB", full / MIB);
    db.close().unwrap();
}

#[test]
fn a_process_keeps_to_a_budget_that_was_made_smaller() {
    let mut process = Command::new(std::env::current_exe().unwrap());
    process.args(["--exact", "smaller::one_store", "--nocapture"]).env(CASE, "1");
    let out = process.output().unwrap();
    let (said, why) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    println!("{said}\n{why}");
    assert!(out.status.success() && said.contains("are left"), "{said}\n{why}");
}
