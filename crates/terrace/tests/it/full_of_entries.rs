//! A disk that is full of small values, which lie in SSTs: deletions by key are taken, what they delete goes file by file,
//! and the store is written again.

use crate::harness::{DIR, eventually, key};
use std::collections::BTreeSet;
use std::sync::Arc;
use terrace::vfs::SimVfs;
use terrace::{CompactionStyle, Compression, Db, Error, Options};
use terrace_base::rng::{Rng, SplitMix64};

const CAPACITY: u64 = 6 << 20;
const VALUE: [u8; 300] = [b'v'; 300];

fn options(sim: &SimVfs, style: CompactionStyle) -> Options {
    // A memtable of it has 4 MiB.
    let mut options = Options { memory_budget: 64 << 20, ..Options::default() };
    options.advanced.vfs = Arc::new(sim.clone());
    options.advanced.reserve_bytes = 256 << 10;
    options.default_family.compaction = style;
    options.default_family.compression = vec![Compression::None];
    options.default_family.value_separation_threshold = usize::MAX;
    options
}

/// Whether a write was taken; not to be is only for want of room.
fn taken(outcome: terrace::Result<()>) -> bool {
    match outcome {
        Ok(()) => true,
        Err(Error::DiskFull(_)) => false,
        Err(other) => panic!("{other}"),
    }
}

fn check(db: &Db, there: &BTreeSet<u64>, count: u64) {
    for number in 0..count {
        assert_eq!(db.get(key(number)).unwrap().is_some(), there.contains(&number), "{number}");
    }
}

/// Fills the disk, deletes about `percent` of all keys, in their order or another one, and writes again.
fn empty(style: CompactionStyle, percent: u64, in_order: bool) {
    let sim = SimVfs::new(percent);
    let db = Db::open(DIR, options(&sim, style)).unwrap();
    sim.set_capacity_bytes(Some(CAPACITY));
    let mut count = 0;
    while taken(db.put(key(count), VALUE)) {
        count += 1;
        assert!(count < 100_000, "the disk is never full");
    }
    assert!(count > CAPACITY / 2000, "{count}");
    let mut rng = SplitMix64::new(percent);
    let mut order: Vec<u64> = (0..count).filter(|_| rng.below(100) < percent).collect();
    if !in_order {
        for at in (1..order.len()).rev() {
            order.swap(at, rng.below(at as u64 + 1) as usize);
        }
    }
    let mut there: BTreeSet<u64> = (0..count).collect();
    for number in order {
        eventually("a deletion is taken", || taken(db.delete(key(number))));
        there.remove(&number);
    }
    eventually("writes resume", || taken(db.put(key(count), VALUE)));
    there.insert(count);
    check(&db, &there, count + 1);
    db.verify().unwrap();
    db.close().unwrap();
    drop(db);
    let image = sim.kill_image();
    image.set_capacity_bytes(None);
    let db = Db::open(DIR, options(&image, style)).unwrap();
    check(&db, &there, count + 1);
}

#[test]
fn deletions_of_most_keys_in_their_order_empty_a_full_disk() {
    empty(CompactionStyle::Leveled, 95, true);
}

#[test]
fn deletions_of_half_of_all_keys_in_any_order_make_room() {
    empty(CompactionStyle::Leveled, 50, false);
}

#[test]
fn deletions_of_half_of_all_keys_in_their_order_make_room() {
    empty(CompactionStyle::Leveled, 50, true);
}

#[test]
fn deletions_of_keys_make_room_in_a_tiered_family_too() {
    empty(CompactionStyle::Tiered, 70, false);
}
