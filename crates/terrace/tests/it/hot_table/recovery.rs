//! The order in which recovery puts what it replays.

use super::*;
use std::collections::BTreeSet;
use std::path::Path;
use terrace::RepairOptions;
use terrace::vfs::Vfs;
use terrace_manifest::Manifest;
use terrace_manifest::names::{self, FileName};

/// The numbers by which the files of L0 are ordered.
fn order_of_l0(sim: &SimVfs) -> Vec<u64> {
    let state = Manifest::read(sim, Path::new(DIR)).unwrap();
    let families = state.families.values();
    let files = families.flat_map(|family| family.version.level(0).files().to_vec());
    files.map(|file| file.largest_seqno.get()).collect()
}

/// Recovery may write more than one file of L0. The first has what was hot, which is older by its sequence
/// numbers than a file that was merged in L0 and that has a yet older version of the key.
#[test]
fn what_recovery_writes_first_is_newer_than_merged_files_of_l0() {
    let sim = SimVfs::new(31);
    let tiered = |sim: &SimVfs| {
        let mut options = options(sim, HotTableMode::Auto);
        options.default_family.compaction = CompactionStyle::Tiered;
        options.advanced.l0_compaction_trigger = 2;
        options.advanced.l0_slowdown = 3;
        options.advanced.compact_when_idle = false;
        options
    };
    // One large file, below which nothing lies: what is merged above it stays in L0.
    let mut large = tiered(&sim);
    large.advanced.memtable_bytes = 512 << 10;
    let mut store = Store::of(Db::open(DIR, large).unwrap());
    (0..KEYS).for_each(|n| store.put(n, 80));
    store.db.close().unwrap();
    store.db = Db::open(DIR, tiered(&sim)).unwrap();
    let mut cold = HOT;
    let mut put_cold = |store: &mut Store, count: u64| {
        for _ in 0..count {
            cold = HOT + (cold + 1 - HOT) % (KEYS - HOT);
            store.put(cold, 100);
        }
    };
    // Until the keys are hot; the first memtables had them, and were flushed.
    let start = Instant::now();
    while store.db.metrics().hot_keys < HOT {
        (0..HOT).for_each(|n| store.put(n, 100));
        put_cold(&mut store, 6);
        assert!(start.elapsed() < HANG_GUARD, "nothing becomes hot: {}", store.db.metrics());
    }
    (0..HOT).for_each(|n| store.put(n, 100));
    let (mut images, mut merged) = (0, 0);
    for _ in 0..60 {
        put_cold(&mut store, 20);
        store.db.wait_idle().unwrap();
        let m = store.db.metrics();
        if m.hot_keys < HOT {
            break;
        }
        merged += u64::from(m.compactions > 0 && m.levels[0].file_count > 0);
        let image = sim.kill_image();
        let mut tiny = tiered(&image);
        (tiny.advanced.l0_compaction_trigger, tiny.advanced.l0_slowdown) = (20, 20);
        tiny.advanced.memtable_bytes = 16 << 10;
        tiny.advanced.memory_shares.cache += tiny.advanced.memory_shares.memtables - 0.008;
        tiny.advanced.memory_shares.memtables = 0.008;
        let db = Db::open(DIR, tiny).unwrap();
        // Files of equal numbers would change places when one of them is written again.
        let order = order_of_l0(&image);
        let distinct: BTreeSet<u64> = order.iter().copied().collect();
        assert_eq!(distinct.len(), order.len(), "{order:?}");
        check(&db, &store.contents, None);
        db.close().unwrap();
        let db = Db::open(DIR, tiered(&image)).unwrap();
        db.wait_idle().unwrap();
        check(&db, &store.contents, None);
        images += 1;
    }
    assert!(images > 10 && merged > 10, "{images} images, {merged} with merged files");
}

/// A range delete that is replayed after what was hot has been written to a file lies in a newer file than versions that
/// are newer than it is. A merge of theirs alone takes their sequence numbers from them.
#[test]
fn a_range_delete_that_is_replayed_covers_no_newer_version_of_a_hot_key() {
    let sim = SimVfs::new(34);
    let tiered = |sim: &SimVfs| {
        let mut options = options(sim, HotTableMode::Auto);
        options.default_family.compaction = CompactionStyle::Tiered;
        options.advanced.l0_compaction_trigger = 2;
        options.advanced.l0_slowdown = 3;
        options.advanced.compact_when_idle = false;
        options
    };
    let mut store = Store::of(Db::open(DIR, tiered(&sim)).unwrap());
    let mut rng = SplitMix64::new(34);
    let mut images = 0;
    for round in 0..400 {
        if round >= 40 && images > 3 {
            break;
        }
        store.heat(&mut rng);
        store.db.flush().unwrap();
        store.heat(&mut rng);
        store.db.wait_idle().unwrap();
        // Enough that recovery writes a file before it comes to the range delete.
        let flushes = store.db.metrics().flushes;
        for _ in 0..90 {
            store.put(HOT + rng.below(KEYS - HOT), 100);
        }
        let range = 0..HOT;
        store.db.delete_range(key(range.start), key(range.end)).unwrap();
        range.clone().for_each(|n| drop(store.contents.remove(&key(n))));
        range.for_each(|n| store.put(n, 100));
        let (before, start) = (store.db.metrics(), Instant::now());
        while store.db.metrics().hot_checkpoints < before.hot_checkpoints + 2 {
            (0..200).for_each(|n| store.put(n % 4, 100));
            store.db.wait_idle().unwrap();
            assert!(start.elapsed() < HANG_GUARD, "no checkpoint: {}", store.db.metrics());
        }
        if store.db.metrics().flushes != flushes {
            // The memtable with the range delete has been flushed.
            continue;
        }
        images += 1;
        let image = sim.kill_image();
        let mut tiny = tiered(&image);
        (tiny.advanced.l0_compaction_trigger, tiny.advanced.l0_slowdown) = (20, 20);
        tiny.advanced.memtable_bytes = 16 << 10;
        tiny.advanced.memory_shares.cache += tiny.advanced.memory_shares.memtables - 0.002;
        tiny.advanced.memory_shares.memtables = 0.002;
        let db = Db::open(DIR, tiny).unwrap();
        check(&db, &store.contents, None);
        db.close().unwrap();
        let db = Db::open(DIR, tiered(&image)).unwrap();
        db.wait_idle().unwrap();
        check(&db, &store.contents, None);
        db.close().unwrap();
    }
    assert!(images > 3, "{images} images with a range delete in the log");
}

/// A table that is refreshed keeps its range tombstones and what they cover. A checkpoint of it has no tombstones,
/// and those in files may be merged away.
#[test]
fn a_checkpoint_has_nothing_that_a_range_tombstone_covers() {
    let sim = SimVfs::new(32);
    let mut store = Store::open(&sim, HotTableMode::Auto);
    let mut rng = SplitMix64::new(32);
    let mut refreshed = 0;
    // A memtable that is nearly full may be rotated in between, and then the tombstone leaves with it.
    for _ in 0..20 {
        store.heat(&mut rng);
        store.db.wait_idle().unwrap();
        let range = 8..HOT;
        store.db.delete_range(key(range.start), key(range.end)).unwrap();
        range.for_each(|n| drop(store.contents.remove(&key(n))));
        let (before, start) = (store.db.metrics(), Instant::now());
        // Hot keys only, so that the table is refreshed and no memtable is rotated.
        while store.db.metrics().hot_checkpoints < before.hot_checkpoints + 2 {
            (0..200).for_each(|n| store.put(n % 4, 100));
            store.db.wait_idle().unwrap();
            assert!(start.elapsed() < HANG_GUARD, "no checkpoint: {}", store.db.metrics());
        }
        let flushes = store.db.metrics().flushes;
        refreshed += u64::from(flushes == before.flushes);
        // The tombstone leaves the log for a file.
        while store.db.metrics().flushes < flushes + 2 {
            store.put(HOT + rng.below(KEYS - HOT), 100);
        }
        store.db.wait_idle().unwrap();
        check(&store.db, &store.contents, None);
        let reopened = Db::open(DIR, options(&sim.kill_image(), HotTableMode::Auto)).unwrap();
        check(&reopened, &store.contents, None);
        if refreshed > 0 {
            return;
        }
    }
    panic!("a memtable was flushed every time: the table was not refreshed");
}

/// What was not hot is in the log only when a checkpoint of the hot table is made beside it.
#[test]
fn a_repair_replays_what_was_not_hot_when_a_checkpoint_was_made() {
    let sim = SimVfs::new(33);
    let mut store = Store::open(&sim, HotTableMode::Auto);
    let mut rng = SplitMix64::new(33);
    let mut images = 0;
    for round in 0..300 {
        store.heat(&mut rng);
        store.db.wait_idle().unwrap();
        let cold: Vec<u64> = (0..5).map(|_| HOT + rng.below(KEYS - HOT)).collect();
        cold.iter().for_each(|n| store.put(*n, 100));
        let (before, start) = (store.db.metrics(), Instant::now());
        while store.db.metrics().hot_checkpoints < before.hot_checkpoints + 2 {
            (0..200).for_each(|n| store.put(n % 4, 100));
            store.db.wait_idle().unwrap();
            assert!(start.elapsed() < HANG_GUARD, "no checkpoint: {}", store.db.metrics());
        }
        if store.db.metrics().flushes != before.flushes {
            // The memtable with the cold keys has been flushed.
            continue;
        }
        images += 1;
        let image = sim.kill_image();
        let state = Manifest::read(&image, Path::new(DIR)).unwrap();
        let family = &state.families[&0];
        assert!(!family.version.hot().is_empty(), "a checkpoint is in force");
        match images % 2 {
            // Nothing but the files themselves says what they are.
            0 => {
                for name in image.list(Path::new(DIR)).unwrap() {
                    if matches!(names::parse(&name), FileName::Manifest(_) | FileName::Current) {
                        image.remove(&Path::new(DIR).join(name)).unwrap();
                    }
                }
            }
            // A file of the levels has a damaged byte; what it has of these keys is older.
            _ => {
                let (_, file) = family.version.files().next().unwrap();
                let path = names::sst_path(Path::new(DIR), file.number);
                assert!(image.corrupt(&path, file.size_bytes / 2, 1));
            }
        }
        let options = options(&image, HotTableMode::Auto);
        let report = terrace::repair(DIR, options.clone(), RepairOptions::default()).unwrap();
        assert!(!report.was_sound);
        let db = Db::open(DIR, options).unwrap();
        for n in (0..HOT).chain(cold) {
            let want = store.contents.get(&key(n)).map(Vec::as_slice);
            let found = db.get(key(n)).unwrap();
            assert_eq!(found.as_deref(), want, "key {n}, round {round}: {report:?}");
        }
        if images % 2 == 0 {
            check(&db, &store.contents, None);
        }
        if images > 3 {
            return;
        }
    }
    panic!("{images} checkpoints beside writes that are not flushed");
}
