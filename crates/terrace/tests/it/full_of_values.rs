//! A disk that is full of separated values: deletions of some of them make room for others, though no segment is
//! without live values.

use crate::harness::{DIR, eventually, key, small_options, stopped_clock};
use std::collections::BTreeMap;
use std::sync::Arc;
use terrace::vfs::SimVfs;
use terrace::{CompactionStyle, Compression, Db, Error, Options};
use terrace_base::rng::{Rng, SplitMix64};

const CAPACITY: u64 = 24 << 20;

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// Whether a write was taken; not to be is only for want of room.
fn taken(outcome: terrace::Result<()>) -> bool {
    match outcome {
        Ok(()) => true,
        Err(Error::DiskFull(_)) => false,
        Err(other) => panic!("{other}"),
    }
}

/// Puts new values until the disk is full; how many bytes of them it took.
fn fill(db: &Db, there: &mut Contents, rng: &mut SplitMix64, numbers: &mut u64) -> u64 {
    let mut bytes = 0;
    loop {
        let (key, len) = (key(*numbers), 1000 + rng.below(60_000) as usize);
        let value: Vec<u8> = (0..len).map(|_| rng.below(256) as u8).collect();
        *numbers += 1;
        if !taken(db.put(&key, &value)) {
            return bytes;
        }
        bytes += len as u64;
        there.insert(key, value);
    }
}

fn check(db: &Db, there: &Contents) {
    for (key, value) in there {
        assert!(db.get(key).unwrap().as_deref() == Some(&value[..]));
    }
    let (mut iter, mut count) = (db.iter().unwrap(), 0);
    iter.seek_to_first().unwrap();
    while iter.valid() {
        count += 1;
        iter.next().unwrap();
    }
    assert_eq!(count, there.len());
}

#[test]
fn half_of_all_values_deleted_at_random_make_room_for_others() {
    for seed in 0..3 {
        let sim = SimVfs::new(seed);
        let mut options = small_options(Arc::new(sim.clone()), &stopped_clock());
        options.column_families.clear();
        options.memory_budget = 8 << 20;
        options.default_family.compression = vec![Compression::None];
        options.default_family.value_separation_threshold = 512;
        options.advanced.reserve_bytes = 1 << 20;
        let db = Db::open(DIR, options).unwrap();
        sim.set_capacity_bytes(Some(CAPACITY));
        let (mut rng, mut numbers, mut there) = (SplitMix64::new(seed), 0, Contents::new());
        fill(&db, &mut there, &mut rng, &mut numbers);
        for _ in 0..2 {
            for key in there.keys().cloned().collect::<Vec<_>>() {
                if rng.below(2) == 0 {
                    eventually("a deletion is taken", || taken(db.delete(&key)));
                    there.remove(&key);
                }
            }
            eventually("writes resume", || !db.is_disk_full());
            check(&db, &there);
            // What has been deleted is collected as room is wanted.
            let mut bytes = 0;
            eventually("others find room", || {
                bytes += fill(&db, &mut there, &mut rng, &mut numbers);
                bytes > CAPACITY / 8
            });
        }
        check(&db, &there);
        assert!(db.verify().is_ok());
    }
}

/// It is less than two memtables take. A snapshot has kept what was deleted in the oldest run, with the deletions.
#[test]
fn half_of_a_small_disk_is_room_enough_for_writes_once_a_snapshot_is_gone() {
    for style in [CompactionStyle::Leveled, CompactionStyle::Tiered] {
        let sim = SimVfs::new(1);
        let mut options = Options { memory_budget: 64 << 20, ..Options::default() };
        options.default_family.compaction = style;
        options.default_family.compression = vec![Compression::None];
        options.advanced.vfs = Arc::new(sim.clone());
        options.advanced.reserve_bytes = 256 << 10;
        let db = Db::open(DIR, options).unwrap();
        sim.set_capacity_bytes(Some(12 << 20));
        let mut count = 0;
        while taken(db.put(key(count), [7; 3000])) {
            count += 1;
            assert!(count < 10_000, "the disk is never full");
        }
        let snapshot = db.snapshot();
        for number in (0..count).step_by(2) {
            eventually("a deletion is taken", || taken(db.delete(key(number))));
        }
        drop(snapshot);
        eventually("writes resume", || taken(db.put(b"after", [7; 900])));
        for number in 0..count {
            assert_eq!(db.get(key(number)).unwrap().is_some(), number % 2 > 0, "{number}");
        }
    }
}
