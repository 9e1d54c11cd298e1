//! Options that change while the store is open: what each of them does from then on.

use crate::filters::wait_for_filters;
use crate::harness::{DIR, eventually, small_options, stopped_clock};
use std::sync::Arc;
use std::time::Duration;
use terrace::vfs::SimVfs;
use terrace::{
    Db, Error, FilterAllocator, LIVE_OPTIONS, MemoryShares, SyncMode, WriteBatch, WriteOptions,
};

fn open(sync: SyncMode) -> (SimVfs, Db) {
    let sim = SimVfs::new(5);
    let mut options = small_options(Arc::new(sim.clone()), &stopped_clock());
    options.memory_budget = 64 << 20;
    options.sync = sync;
    let db = Db::open(DIR, options).unwrap();
    (sim, db)
}

/// Of every live option a value that it does not have, and that those beside it allow.
pub const OTHERS: [(&str, &str); 27] = [
    ("sync", "interval:50"),
    ("memory_budget", "100000000"),
    ("memory_split", "auto"),
    ("rate_limit_bytes_per_s", "123456789"),
    ("gc_garbage_ratio", "0.5"),
    ("hot_table", "auto"),
    ("log_retention_bytes", "1000000"),
    ("max_open_files", "16"),
    ("background_jobs", "5"),
    ("l0_compaction_trigger", "3"),
    ("l0_slowdown", "21"),
    ("l0_stop", "40"),
    ("level_base_bytes", "32768"),
    ("level_multiplier", "5.5"),
    ("target_file_bytes", "16384"),
    ("max_subcompactions", "3"),
    ("compact_when_idle", "false"),
    ("pending_compaction_slowdown_bytes", "1000000"),
    ("level_model_files", "5"),
    ("reserve_bytes", "4096"),
    ("max_reader_pinned_bytes", "1000"),
    ("compression", "none,zstd"),
    ("filter", "bloom:4x6"),
    ("prefix_len", "3"),
    ("value_separation_threshold", "77"),
    ("value_compression", "lz4"),
    ("learning", "off"),
];

#[test]
fn every_live_option_is_what_it_was_set_to_and_others_are_refused() {
    let (_, db) = open(SyncMode::None);
    assert_eq!(OTHERS.map(|(name, _)| name), LIVE_OPTIONS);
    for (name, value) in OTHERS {
        let before = db.option(name).unwrap();
        db.set_option(name, value).unwrap();
        assert_eq!(db.option(name).as_deref(), Some(value), "{name}");
        assert_ne!(before, value);
        assert!(matches!(db.set_option(name, "much"), Err(Error::InvalidArgument(_))), "{name}");
        assert_eq!(db.option(name).as_deref(), Some(value), "{name}");
        db.set_option(name, &before).unwrap();
        assert_eq!(db.option(name), Some(before));
    }
    for (name, value) in
        [("sync", "buffered"), ("gc_garbage_ratio", "NaN"), ("block_size", "4096"), ("", "")]
    {
        let error = db.set_option(name, value).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(_)), "{name}: {error}");
    }
    let family = db.default_family();
    for (name, value) in [("compaction", "tiered"), ("sync", "none"), ("l0_stop", "40")] {
        assert!(matches!(family.set_option(name, value), Err(Error::InvalidArgument(_))), "{name}");
    }
    assert_eq!(family.option("compaction").as_deref(), Some("leveled"));
    assert!(db.option("block_size").is_none() && family.option("sync").is_none());
}

#[test]
fn a_sync_mode_holds_from_the_next_commit_on() {
    let (sim, db) = open(SyncMode::None);
    db.put(b"a", b"not synced").unwrap();
    db.set_sync(SyncMode::Batch).unwrap();
    db.put(b"b", b"synced, and all before it").unwrap();
    db.set_sync(SyncMode::None).unwrap();
    db.put(b"c", b"not synced").unwrap();
    for seed in 0..8 {
        let image = sim.crash_image(seed);
        let mut options = small_options(Arc::new(image), &stopped_clock());
        options.column_families.clear();
        let after = Db::open(DIR, options).unwrap();
        assert!(after.get(b"a").unwrap().is_some() && after.get(b"b").unwrap().is_some());
    }
    let syncs = db.metrics().log_syncs;
    db.set_sync(SyncMode::Interval(Duration::from_millis(5))).unwrap();
    db.put(b"d", b"synced soon").unwrap();
    eventually("a sync in the background", || db.metrics().log_syncs > syncs);
}

#[test]
fn a_buffered_store_can_become_stricter_and_buffered_again() {
    let (sim, db) = open(SyncMode::Buffered);
    let survives = |key: &[u8]| {
        let mut options = small_options(Arc::new(sim.kill_image()), &stopped_clock());
        options.column_families.clear();
        Db::open(DIR, options).unwrap().get(key).unwrap().is_some()
    };
    db.set_option("sync", "none").unwrap();
    db.put(b"a", b"in the kernel").unwrap();
    assert!(survives(b"a"));
    db.set_option("sync", "buffered").unwrap();
    assert_eq!(db.option("sync").as_deref(), Some("buffered"));
    db.put(b"b", b"in the process, for a while").unwrap();
    assert!(survives(b"a"));
}

/// Writes that were acknowledged as buffered, before the mode changed or by their own wish, are not left in the
/// process for ever.
#[test]
fn a_buffered_store_hands_its_log_over_whatever_its_mode_is_now() {
    let (sim, db) = open(SyncMode::Buffered);
    let survives = |key: &[u8]| {
        let mut options = small_options(Arc::new(sim.kill_image()), &stopped_clock());
        options.column_families.clear();
        Db::open(DIR, options).unwrap().get(key).unwrap().is_some()
    };
    for mode in [SyncMode::None, SyncMode::Batch] {
        db.set_sync(SyncMode::Buffered).unwrap();
        let name = format!("{mode:?}");
        db.put(&name, b"v").unwrap();
        db.set_sync(mode).unwrap();
        assert!(survives(name.as_bytes()), "{mode:?}: before the change");
        let own = format!("{mode:?}, by itself");
        let mut batch = WriteBatch::new();
        batch.put(&own, b"v");
        let buffered = WriteOptions { sync: Some(SyncMode::Buffered) };
        db.write_with(batch, &buffered).unwrap();
        eventually("the log is handed over", || survives(own.as_bytes()));
    }
}

/// One that was asked to be larger than the memory that all of them have would hold more than the budget.
#[test]
fn a_memtable_has_no_more_than_half_of_the_memtables_share() {
    let mut options = small_options(Arc::new(SimVfs::new(5)), &stopped_clock());
    options.advanced.memtable_bytes = 64 << 20;
    let budget = options.memory_budget;
    let db = Db::open(DIR, options).unwrap();
    let limit = || db.shape().families[0].memtable_limit_bytes;
    let at_open = limit();
    assert_eq!(at_open, budget as u64 / 8);
    for n in 0..8000u32 {
        db.put(n.to_be_bytes(), [7; 500]).unwrap();
        let all = db.metrics().memtable_bytes;
        assert!(all <= budget as u64 / 2, "{all}");
    }
    assert!(db.metrics().flushes >= 1);
    db.set_memory_budget(budget).unwrap();
    assert_eq!(limit(), at_open);
}

#[test]
fn every_pool_takes_and_gives_its_share_of_what_the_budget_changes_by() {
    let (_, db) = open(SyncMode::None);
    let share = |db: &Db, name: &str| {
        let (memory, m) = (db.memory(), db.metrics());
        let pool = |name: &str| memory.pools.iter().find(|pool| pool.name == name).unwrap();
        let own_bytes = match name {
            // What filters and memtables do not use is lent to them, step by step.
            "blocks" => {
                let of_filters = m.filter_budget_bytes + m.filter_lent_bytes;
                let both = pool("blocks").limit_bytes + pool("filters").limit_bytes;
                both - pool("memtables").lent_bytes + m.filter_borrowed_bytes - of_filters
            }
            name => pool(name).limit_bytes,
        };
        own_bytes as f64 / memory.budget_bytes as f64
    };
    let before = ["memtables", "blocks"].map(|name| share(&db, name));
    for budget in [96 << 20, 40 << 20, 8 << 20, 4 << 20, 64 << 20] {
        db.set_memory_budget(budget).unwrap();
        assert_eq!(db.option("memory_budget"), Some(budget.to_string()));
        let now = ["memtables", "blocks"].map(|name| share(&db, name));
        for (now, before) in now.into_iter().zip(before) {
            assert!((now / before - 1.0).abs() < 0.05, "{budget}: {now} {before}");
        }
    }
    assert!(db.set_memory_budget((4 << 20) - 1).is_err());
    assert_eq!(db.option("memory_budget"), Some((64 << 20).to_string()), "what was refused");
}

/// Memtables that are too large now are flushed although nobody writes, and those to come are smaller.
#[test]
fn memtables_shrink_with_the_budget() {
    let mut options = small_options(Arc::new(SimVfs::new(5)), &stopped_clock());
    options.memory_budget = 256 << 20;
    options.advanced.memtable_bytes = 0;
    let db = Db::open(DIR, options).unwrap();
    let write = |from: u32, count: u32| {
        for n in from..from + count {
            db.put(n.to_be_bytes(), [7; 500]).unwrap();
        }
    };
    write(0, 10_000);
    assert!(db.metrics().memtable_bytes > 5 << 20 && db.metrics().flushes == 0);
    db.set_memory_budget(8 << 20).unwrap();
    eventually("a flush without a write", || db.metrics().memtable_bytes < 1 << 20);
    for round in 1..20 {
        write(round * 10_000, 1000);
        let used = db.metrics().memtable_bytes;
        assert!(used <= 4 << 20, "{used}");
    }
    db.set_memory_budget(256 << 20).unwrap();
    db.wait_idle().unwrap();
    let flushes = db.metrics().flushes;
    write(1_000_000, 10_000);
    // The one that was there when the budget grew, and none of those after it.
    assert!(db.metrics().flushes <= flushes + 1, "they are large again");
    assert_eq!(db.get(7u32.to_be_bytes()).unwrap().as_deref(), Some(&[7; 500][..]));
}

/// Also back to what the store was opened with.
#[test]
fn memtables_shrink_when_the_budget_is_what_it_was_again() {
    let mut options = small_options(Arc::new(SimVfs::new(5)), &stopped_clock());
    options.memory_budget = 8 << 20;
    options.advanced.memtable_bytes = 0;
    let db = Db::open(DIR, options).unwrap();
    db.set_memory_budget(256 << 20).unwrap();
    for n in 0..12_000u32 {
        db.put(n.to_be_bytes(), [7; 500]).unwrap();
    }
    assert!(db.metrics().memtable_bytes > 5 << 20);
    db.set_memory_budget(8 << 20).unwrap();
    eventually("a flush without a write", || db.metrics().memtable_bytes < 1 << 20);
}

/// Filters that have a budget of their own give bytes back as well.
#[test]
fn filters_shrink_with_the_budget() {
    for allocator in [FilterAllocator::Budget, FilterAllocator::Mq] {
        let mut options = small_options(Arc::new(SimVfs::new(5)), &stopped_clock());
        options.memory_budget = 256 << 20;
        options.advanced.filter_allocator = allocator;
        options.advanced.memory_shares =
            MemoryShares { memtables: 0.25, cache: 0.73, filters: 0.02 };
        let db = Db::open(DIR, options).unwrap();
        for n in 0..400_000u32 {
            db.put(n.to_be_bytes(), b"v").unwrap();
        }
        db.flush().unwrap();
        db.wait_idle().unwrap();
        let lookups = || {
            for n in 0..20_000u32 {
                let key = [&(n * 20).to_be_bytes()[..], b"absent"].concat();
                assert!(db.get(&key).unwrap().is_none());
            }
        };
        eventually("filters in memory", || {
            lookups();
            db.metrics().filter_memory_bytes > 150 << 10
        });
        db.set_memory_budget(4 << 20).unwrap();
        let most = (4 << 20) / 50;
        // They may borrow of the smaller budget's block cache.
        let fit = || {
            let m = db.metrics();
            m.filter_memory_bytes <= most + m.filter_borrowed_bytes
        };
        eventually("filters leave", fit);
        lookups();
        assert!(fit());
    }
}

/// Also while they lend most of it and nobody asks for anything; and they keep what the smaller budget has room for.
#[test]
fn filters_that_lend_shrink_with_the_budget_of_an_idle_store() {
    let mut options = small_options(Arc::new(SimVfs::new(5)), &stopped_clock());
    options.memory_budget = 256 << 20;
    options.advanced.memory_shares = MemoryShares { memtables: 0.25, cache: 0.73, filters: 0.01 };
    let db = Db::open(DIR, options).unwrap();
    for n in 0..200_000u32 {
        db.put(n.to_be_bytes(), b"v").unwrap();
    }
    db.flush().unwrap();
    db.wait_idle().unwrap();
    let memory = || {
        let m = db.metrics();
        (m.filter_memory_bytes, m.filter_lent_bytes)
    };
    eventually("filters in memory, that lend", || {
        for n in 0..20_000u32 {
            let key = [&(n * 10).to_be_bytes()[..], b"absent"].concat();
            assert!(db.get(&key).unwrap().is_none());
        }
        let (used, lent) = memory();
        used > 150 << 10 && lent > 1 << 20
    });
    let (used, _) = memory();
    // The thread that looks after filters looks seldom by now.
    std::thread::sleep(Duration::from_secs(2));
    // Room for them, but not for what they lend as well.
    let share = used + used / 2;
    db.set_memory_budget(share as usize * 100).unwrap();
    eventually("filters leave", || {
        let (used, lent) = memory();
        used + lent <= share
    });
    wait_for_filters(&db);
    let (used, _) = memory();
    assert!(used > share / 2, "{used} of {share}");
}

/// A thread that syncs in no time would do nothing else.
#[test]
fn an_interval_of_no_length_is_refused_wherever_a_sync_mode_is_set() {
    let (_, db) = open(SyncMode::None);
    for interval in [Duration::ZERO, Duration::from_nanos(1), Duration::from_micros(999)] {
        let refused = db.set_sync(SyncMode::Interval(interval));
        assert!(matches!(refused, Err(Error::InvalidArgument(_))), "{interval:?}");
    }
    assert!(matches!(db.set_option("sync", "interval:0"), Err(Error::InvalidArgument(_))));
    assert_eq!(db.option("sync").as_deref(), Some("none"), "what was refused is not in force");
    db.set_sync(SyncMode::Interval(terrace::MIN_SYNC_INTERVAL)).unwrap();
    db.set_sync(SyncMode::Interval(Duration::MAX)).unwrap();
    db.put(b"k", b"v").unwrap();
}

/// One write cannot start syncs in the background, so it cannot ask for them.
#[test]
fn an_interval_is_no_durability_of_a_single_write() {
    let (_, db) = open(SyncMode::None);
    let sync = Some(SyncMode::Interval(Duration::from_secs(1)));
    let mut batch = terrace::WriteBatch::new();
    batch.put(b"k", b"v");
    let refused = db.write_with(batch, &terrace::WriteOptions { sync });
    assert!(matches!(refused, Err(Error::InvalidArgument(_))));
    assert!(db.get(b"k").unwrap().is_none());
}

/// Nothing that is reckoned with them overflows.
#[test]
fn a_store_works_with_the_largest_values_of_its_options() {
    let (sim, db) = open(SyncMode::None);
    // Not enough for the reserve.
    sim.set_capacity_bytes(Some(1 << 30));
    let most = u64::MAX.to_string();
    for name in [
        "l0_stop",
        "l0_slowdown",
        "level_base_bytes",
        "target_file_bytes",
        "pending_compaction_slowdown_bytes",
        "level_model_files",
        "log_retention_bytes",
        "rate_limit_bytes_per_s",
        "reserve_bytes",
    ] {
        db.set_option(name, &most).unwrap();
    }
    for round in 0..6_u8 {
        for n in 0..100_u8 {
            db.put([n], [round; 100]).unwrap();
        }
        db.flush().unwrap();
    }
    db.wait_idle().unwrap();
    db.compact_range::<&[u8]>(..).unwrap();
    for n in 0..100_u8 {
        assert_eq!(db.get([n]).unwrap().as_deref(), Some(&[5; 100][..]));
    }
    assert!(!db.metrics().poisoned);
}
