//! What the store says of itself: shape, memory, estimates, jobs, and explained lookups.

use crate::harness::eventually;
use terrace::{CfOptions, Db, Error, FilterAllocator, Options, ReadOptions};

fn small() -> Options {
    let mut options = Options { memory_budget: 8 << 20, ..Options::default() };
    options.advanced.memtable_bytes = 64 << 10;
    options.advanced.level_base_bytes = 256 << 10;
    options.advanced.target_file_bytes = 64 << 10;
    options
}

fn key(n: u64) -> Vec<u8> {
    format!("key{n:08}").into_bytes()
}

fn value(n: u64) -> Vec<u8> {
    format!("value-{n}-").repeat(4).into_bytes()
}

fn fill(db: &Db, count: u64) {
    for n in 0..count {
        db.put(key(n * 7919 % count), value(n * 7919 % count)).unwrap();
    }
}

#[test]
fn every_seek_of_an_iterator_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), small()).unwrap();
    fill(&db, 100);
    // The open has looked at families and values.
    let before = db.metrics().seeks;
    let seeks = || db.metrics().seeks - before;
    let mut iter = db.iter().unwrap();
    assert_eq!(seeks(), 0, "it has not been anywhere");
    for n in 0..1000 {
        iter.seek(&key(n % 100)).unwrap();
        iter.next().unwrap();
    }
    iter.seek_for_prev(&key(50)).unwrap();
    iter.seek_to_last().unwrap();
    assert_eq!(seeks(), 1002);
    assert_eq!(db.iter().unwrap().entries().count(), 100);
    assert_eq!(seeks(), 1003);
    drop(iter);
    db.flush().unwrap();
    db.close().unwrap();
    drop(db);
    // What memory does not have is sought once more where waiting is allowed, and counts once.
    let db = Db::open(dir.path(), small()).unwrap();
    let in_memory = ReadOptions { in_memory: true, ..ReadOptions::default() };
    let refused = db.iter_with(&in_memory).unwrap().seek(&key(5));
    assert!(matches!(refused, Err(Error::NotInMemory)), "{refused:?}");
    db.iter().unwrap().seek(&key(5)).unwrap();
    assert_eq!(db.metrics().seeks, 1);
}

#[test]
fn an_empty_store_has_a_shape() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), small()).unwrap();
    let shape = db.shape();
    assert_eq!(shape.families.len(), 1);
    let family = &shape.families[0];
    assert_eq!((family.name.as_str(), family.levels.len()), ("default", 7));
    assert!(family.levels.iter().all(Vec::is_empty) && shape.jobs.is_empty());
    assert_eq!(family.level_targets, [None::<u64>; 7]);
    assert_eq!((shape.log_segments, shape.value_segments), (1, 0));
    assert!(db.filter_heat(10).is_empty());
    assert_eq!(db.model_shape(1).unwrap(), None);
    let memory = db.memory();
    assert_eq!(memory.budget_bytes, 8 << 20);
    let names: Vec<_> = memory.pools.iter().map(|pool| pool.name).collect();
    assert_eq!(names, ["memtables", "blocks", "filters", "pinned"]);
    for pool in &memory.pools {
        assert!(pool.used_bytes <= pool.limit_bytes, "{pool:?}");
        assert!(pool.saved_reads_per_mib_s.is_none_or(|gain| gain == 0.0), "{pool:?}");
    }
    let family = db.default_family();
    assert_eq!(family.estimate::<&[u8]>(..).unwrap().keys, 0);
    assert_eq!(family.explain(b"k").unwrap().found, None);
}

#[test]
fn the_shape_tells_when_a_memtable_is_full() {
    let limit = |memtable_bytes| {
        let dir = tempfile::tempdir().unwrap();
        let mut options = small();
        options.advanced.memtable_bytes = memtable_bytes;
        let budget = options.memory_budget as f64 * options.advanced.memory_shares.memtables;
        let db = Db::open(dir.path(), options).unwrap();
        (db.shape().families[0].memtable_limit_bytes, budget as u64)
    };
    assert_eq!(limit(80 << 10).0, 80 << 10);
    // Derived from the budget: at most a quarter of what all memtables have.
    let (derived, budget) = limit(0);
    assert!(derived >= 256 << 10 && derived <= budget / 4, "{derived} of {budget}");
}

#[test]
fn the_shape_shows_every_file_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), small()).unwrap();
    let other = db.create_column_family("other", CfOptions::default()).unwrap();
    other.put(b"a", b"b").unwrap();
    fill(&db, 20_000);
    db.flush().unwrap();
    db.wait_idle().unwrap();
    for n in 0..20_000 {
        db.get(key(n)).unwrap();
    }
    let shape = db.shape();
    let names: Vec<_> = shape.families.iter().map(|family| family.name.as_str()).collect();
    assert_eq!(names, ["default", "other"]);
    let metrics = db.metrics();
    for level in 0..7 {
        let files = shape.families.iter().flat_map(|family| &family.levels[level]);
        let files: Vec<_> = files.collect();
        assert_eq!(files.len() as u64, metrics.levels[level].file_count);
        for file in files {
            let path = dir.path().join(format!("{:06}.sst", file.number));
            assert_eq!(std::fs::metadata(path).unwrap().len(), file.size_bytes);
            assert!(file.smallest <= file.largest && file.entry_count > 0);
            assert!(!file.is_compacting && file.created_ms > 0);
        }
    }
    let files = || shape.families[0].levels.iter().flatten();
    assert_eq!(files().map(|file| file.entry_count).sum::<u64>(), 20_000);
    assert!(files().any(|file| file.heat > 0.0), "lookups were followed");
    assert!(files().all(|file| file.filter_units_in_memory <= file.filter_units));
    eventually("filters are in memory", || {
        let shape = db.shape();
        let mut files = shape.families[0].levels.iter().flatten();
        files.any(|file| file.filter_units_in_memory > 0 && file.filter_bytes > 0)
    });
    // They may leave between two looks.
    eventually("filters of files are what is counted", || {
        let shape = db.shape();
        let files = shape.families.iter().flat_map(|family| family.levels.iter().flatten());
        let used: u64 = files.map(|file| file.filter_bytes).sum();
        used > 0 && used <= db.metrics().filter_memory_bytes
    });
}

#[test]
fn estimates_are_near_what_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), small()).unwrap();
    fill(&db, 20_000);
    let family = db.default_family();
    let check = |slack: u64| {
        let all = family.estimate::<&[u8]>(..).unwrap();
        assert!(all.keys.abs_diff(20_000) <= slack, "{all:?}");
        for (from, to) in [(0, 10_000), (5_000, 5_500), (19_000, 30_000), (700, 701)] {
            let part = family.estimate(key(from)..key(to)).unwrap();
            let exact = to.min(20_000) - from;
            assert!(part.keys.abs_diff(exact) <= slack.max(exact / 20), "{from}..{to}: {part:?}");
            assert!(part.bytes < all.bytes && (part.bytes > 0 || part.keys == 0));
        }
        assert_eq!(family.estimate(key(9)..key(9)).unwrap().keys, 0);
        assert_eq!(family.estimate(key(9)..key(3)).unwrap().keys, 0);
        assert_eq!(family.estimate(&b"z"[..]..).unwrap().keys, 0);
    };
    // In every run an end of the range is exact to a block: few runs, little error.
    db.wait_idle().unwrap();
    check(800);
    db.flush().unwrap();
    db.compact_range::<&[u8]>(..).unwrap();
    check(300);
    let halves = [family.estimate(..key(10_000)).unwrap(), family.estimate(key(10_000)..).unwrap()];
    assert!(halves[0].keys.abs_diff(halves[1].keys) < 100, "neither side is favoured: {halves:?}");
    let before = family.estimate::<&[u8]>(..).unwrap();
    assert!(before.bytes.abs_diff(db.metrics().levels[6].size_bytes) < 1000);
    for n in 0..5_000 {
        db.delete(key(n)).unwrap();
    }
    db.flush().unwrap();
    db.compact_range::<&[u8]>(..).unwrap();
    assert!(family.estimate::<&[u8]>(..).unwrap().keys.abs_diff(15_000) < 10);
}

#[test]
fn what_a_newer_range_tombstone_covers_is_not_estimated() {
    let large = || {
        let mut options = small();
        options.memory_budget = 64 << 20;
        options.advanced.memtable_bytes = 16 << 20;
        options
    };
    // No merge, so that the files are the same each time.
    let unmerged = || {
        let mut options = small();
        let a = &mut options.advanced;
        (a.l0_compaction_trigger, a.l0_slowdown, a.l0_stop) = (1000, 2000, 3000);
        a.compact_when_idle = false;
        options
    };
    // In many small files and in one large memtable, of which only a sample is looked at.
    for (options, is_flushed) in [(unmerged(), true), (large(), false)] {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path(), options).unwrap();
        let family = db.default_family();
        let estimate = || family.estimate(key(0)..key(99_999_999)).unwrap().keys;
        for round in 0..4 {
            fill(&db, 30_000);
            let keys = estimate();
            assert!(keys.abs_diff(30_000) < 3_000, "round {round}: {keys} of 30000");
            if is_flushed {
                db.flush().unwrap();
            }
            db.delete_range(key(0), key(99_999_999)).unwrap();
            assert!(estimate() < 1_500, "round {round}: {} of none", estimate());
        }
    }
}

#[test]
fn keys_that_are_deleted_in_a_memtable_are_not_estimated() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = small();
    options.memory_budget = 64 << 20;
    options.advanced.memtable_bytes = 16 << 20;
    let db = Db::open(dir.path(), options).unwrap();
    let family = db.default_family();
    let estimate = || family.estimate::<&[u8]>(..).unwrap().keys;
    // Few enough to be walked, and too many.
    for (count, slack) in [(6_000, 0), (40_000, 4_000)] {
        fill(&db, count);
        for n in 0..count / 2 {
            db.delete(key(n)).unwrap();
        }
        assert!(estimate().abs_diff(count / 2) <= slack, "{} of {}", estimate(), count / 2);
        db.flush().unwrap();
        // The other half is in a file now, and deleted by entries of the memtable.
        for n in count / 2..count {
            db.delete(key(n)).unwrap();
        }
        assert!(estimate() <= slack, "{} of none", estimate());
        db.flush().unwrap();
        db.compact_range::<&[u8]>(..).unwrap();
    }
}

#[test]
fn a_dropped_family_is_not_estimated_nor_listed() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), small()).unwrap();
    let gone = db.create_column_family("gone", CfOptions::default()).unwrap();
    gone.put(b"k", b"v").unwrap();
    db.flush().unwrap();
    assert_eq!(db.shape().families.len(), 2);
    db.drop_column_family("gone").unwrap();
    assert_eq!(db.shape().families.len(), 1);
    assert!(matches!(gone.estimate::<&[u8]>(..), Err(terrace::Error::NoSuchFamily(_))));
    db.close().unwrap();
    assert!(matches!(db.default_family().explain(b"k"), Err(terrace::Error::Closed)));
    db.shape();
    db.memory();
}

#[test]
fn whole_metadata_and_filters_in_the_cache_show_too() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = small();
    options.memory_budget = 4 << 20;
    options.advanced.partitioned_metadata = false;
    options.advanced.filter_allocator = FilterAllocator::Cached;
    let db = Db::open(dir.path(), options).unwrap();
    fill(&db, 20_000);
    db.flush().unwrap();
    db.wait_idle().unwrap();
    for n in 0..20_000 {
        db.get(key(n)).unwrap();
    }
    let shape = db.shape();
    assert!(shape.families[0].levels.iter().flatten().any(|file| file.heat > 0.0));
    for file in db.filter_heat(usize::MAX) {
        assert!(file.partitions.len() <= 1 && file.partitions.iter().all(|p| p.heat == 0.0));
    }
    let memory = db.memory();
    assert_eq!(memory.pools[2].saved_reads_per_mib_s, None);
    assert_eq!(memory.pools[2].limit_bytes, 0);
}
