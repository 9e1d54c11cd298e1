//! A store with more data than its cache holds, for cases that are a process of their own.

use crate::key;
use std::path::Path;
use std::process::Command;
use terrace::{Db, Options, SyncMode};
use terrace_base::rng::{Rng, SplitMix64};

const VALUE_BYTES: usize = 900;

/// A store in `dir` with this many keys, all of them in files.
pub fn open(dir: &Path, memory_budget: u64, keys: u64) -> Db {
    let memory_budget = memory_budget as usize;
    let options = Options { memory_budget, sync: SyncMode::None, ..Options::default() };
    let db = Db::open(dir, options).unwrap();
    let mut rng = SplitMix64::new(11);
    let mut value = vec![0; VALUE_BYTES];
    for n in 0..keys {
        // Not to be compressed away.
        for part in value.chunks_mut(8) {
            part.copy_from_slice(&rng.next_u64().to_le_bytes()[..part.len()]);
        }
        db.put(key(n), &value).unwrap();
    }
    db.flush().unwrap();
    db.wait_idle().unwrap();
    db
}

/// Reads this many of the `keys`, drawn from `seed`.
pub fn read(db: &Db, keys: u64, lookups: u64, seed: u64) {
    let mut rng = SplitMix64::new(seed);
    for _ in 0..lookups {
        assert!(db.get(key(rng.below(keys))).unwrap().is_some());
    }
}

/// Runs the test `name` of this binary in a process of its own, which has `case` in its environment, and fails as it does.
pub fn check_alone(name: &str, case: &str) {
    let mut process = Command::new(std::env::current_exe().unwrap());
    process.args(["--exact", name, "--nocapture"]).env(case, "1");
    let out = process.output().unwrap();
    let (said, why) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    println!("{said}\n{why}");
    assert!(out.status.success() && said.contains("1 passed"), "{said}\n{why}");
}
