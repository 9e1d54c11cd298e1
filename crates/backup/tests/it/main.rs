//! Backups from outside: what comes back, what is shared, damage, crashes and a full disk.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod circle;
mod crash;
mod damage;
mod turns;
mod working_directory;

use std::path::Path;
use std::sync::Arc;
use terrace::vfs::{SimVfs, Vfs};
use terrace::{AdvancedOptions, Db, Options, SyncMode};
use terrace_backup::Backups;

const STORE: &str = "/store";
const BACKUPS: &str = "/backups";

fn options(sim: &SimVfs) -> Options {
    let vfs: Arc<dyn Vfs> = Arc::new(sim.clone());
    Options {
        memory_budget: 8 << 20,
        sync: SyncMode::Batch,
        advanced: AdvancedOptions { vfs, ..AdvancedOptions::default() },
        ..Options::default()
    }
}

fn open(sim: &SimVfs) -> Db {
    Db::open(STORE, options(sim)).unwrap()
}

fn backups(sim: &SimVfs) -> Backups {
    Backups::open_with(Arc::new(sim.clone()), BACKUPS).unwrap()
}

fn quiet() -> impl FnMut(u64) {
    |_| ()
}

/// Every key with its value, in order.
fn contents(db: &Db) -> Vec<(Vec<u8>, Vec<u8>)> {
    let all = db.iter().unwrap().entries();
    all.map(|entry| entry.unwrap()).map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

/// What the store restored from a backup holds.
fn restored(sim: &SimVfs, backups: &Backups, id: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
    let target = format!("/restored-{id}-{}", sim.op_count());
    backups.restore(id, Path::new(&target), &mut quiet()).unwrap();
    let db = Db::open(&target, options(sim)).unwrap();
    db.verify().unwrap();
    let found = contents(&db);
    db.close().unwrap();
    found
}

/// Values that are separated and such that are not, with a round in each.
fn write(db: &Db, round: usize, keys: std::ops::Range<usize>) {
    for key in keys {
        let size = if key % 3 == 0 { 2000 } else { 20 };
        let value = format!("{round}-{key}-{}", "v".repeat(size));
        db.put(format!("{key:06}"), value).unwrap();
    }
}
