//! The hot table: what it keeps from being flushed, and that readers, crashes, snapshots and range deletes never notice it.

mod bounds;
mod filtered;
mod ingested;
mod recovery;
mod refused;

use crate::harness::{DIR, HANG_GUARD, SeedNote, effort, eventually, small_options, stopped_clock};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use terrace::vfs::SimVfs;
use terrace::{
    CompactionStyle, Db, HotTableMode, Options, ReadOptions, Snapshot, SyncMode, WriteBatch,
};
use terrace_base::rng::{Rng, SplitMix64};

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// Keys that are written most of the time.
const HOT: u64 = 24;
const KEYS: u64 = 4000;

fn key(n: u64) -> Vec<u8> {
    format!("key-{n:06}").into_bytes()
}

fn options(sim: &SimVfs, mode: HotTableMode) -> Options {
    let mut options = small_options(Arc::new(sim.clone()), &stopped_clock());
    options.default_family.value_separation_threshold = usize::MAX;
    options.advanced.hot_table = mode;
    options.advanced.memtable_bytes = 32 << 10;
    options
}

/// One of the hot keys mostly, else any key.
fn draw(rng: &mut SplitMix64) -> u64 {
    match rng.below(10) {
        0..7 => rng.below(HOT),
        _ => rng.below(KEYS),
    }
}

struct Store {
    db: Db,
    contents: Contents,
    /// Every write since `floor`, in order: the key, and the value if it is no deletion.
    history: Vec<(u64, Option<Vec<u8>>)>,
    written: u64,
}

impl Store {
    fn open(sim: &SimVfs, mode: HotTableMode) -> Self {
        Self::of(Db::open(DIR, options(sim, mode)).unwrap())
    }

    fn of(db: Db) -> Self {
        Self { db, contents: Contents::new(), history: Vec::new(), written: 0 }
    }

    fn put(&mut self, n: u64, len: usize) {
        self.written += 1;
        let mut value = self.written.to_be_bytes().to_vec();
        value.resize(8 + len, b'.');
        self.db.put(key(n), &value).unwrap();
        self.contents.insert(key(n), value.clone());
        self.history.push((n, Some(value)));
    }

    fn delete(&mut self, n: u64) {
        self.db.delete(key(n)).unwrap();
        self.contents.remove(&key(n));
        self.history.push((n, None));
    }

    /// Writes with skew until keys are hot and a checkpoint of them has been made.
    fn heat(&mut self, rng: &mut SplitMix64) {
        let start = Instant::now();
        let before = self.db.metrics().hot_checkpoints;
        loop {
            for _ in 0..200 {
                self.put(draw(rng), 100);
            }
            let m = self.db.metrics();
            if m.hot_keys > 0 && m.hot_checkpoints > before + 1 {
                return;
            }
            assert!(start.elapsed() < HANG_GUARD, "nothing becomes hot: {m}");
        }
    }
}

fn all(db: &Db, snapshot: Option<&Snapshot>) -> Contents {
    let read = ReadOptions { snapshot: snapshot.cloned(), ..ReadOptions::default() };
    db.iter_with(&read).unwrap().entries().map(|entry| entry.unwrap()).collect()
}

/// Every way to read agrees with `contents`.
fn check(db: &Db, contents: &Contents, snapshot: Option<&Snapshot>) {
    let found = all(db, snapshot);
    let wrong = found.iter().find(|(k, v)| contents.get(*k) != Some(v));
    let missing = contents.keys().find(|k| !found.contains_key(*k));
    assert!(found == *contents, "wrong: {wrong:?}, missing: {missing:?}");
    let read = ReadOptions { snapshot: snapshot.cloned(), ..ReadOptions::default() };
    let keys: Vec<Vec<u8>> = (0..KEYS).map(key).collect();
    for (key, found) in keys.iter().zip(db.multi_get_with(&keys, &read).unwrap()) {
        let expected = contents.get(key).map(Vec::as_slice);
        assert_eq!(found.as_deref(), expected, "{}", String::from_utf8_lossy(key));
        assert_eq!(db.get_with(key, &read).unwrap().as_deref(), expected);
    }
    let mut backward: Vec<Vec<u8>> = Vec::new();
    let mut iter = db.iter_with(&read).unwrap();
    iter.seek_to_last().unwrap();
    while iter.valid() {
        backward.push(iter.key().to_vec());
        iter.prev().unwrap();
    }
    backward.reverse();
    assert!(backward.iter().eq(contents.keys()));
}

#[test]
fn hot_keys_are_never_flushed_and_all_reads_see_them() {
    let sim = SimVfs::new(1);
    let mut store = Store::open(&sim, HotTableMode::Auto);
    let mut rng = SplitMix64::new(1);
    store.heat(&mut rng);
    check(&store.db, &store.contents, None);
    store.db.wait_idle().unwrap();
    let before = store.db.metrics();
    assert!(before.hot_keys <= HOT + 8, "{} keys are hot, {HOT} should be", before.hot_keys);
    assert!(before.hot_keys >= HOT / 2, "{} keys are hot, {HOT} should be", before.hot_keys);
    // Only hot keys now: no memtable ever fills.
    for n in 0..20_000 {
        store.put(n % 4, 100);
    }
    let after = store.db.metrics();
    let flushed = after.flush_bytes - before.flush_bytes;
    assert!(flushed < 40 << 10, "{flushed} bytes flushed of 2 MB: {after}");
    let checkpoints = after.hot_checkpoint_bytes - before.hot_checkpoint_bytes;
    assert!(checkpoints < 400 << 10, "{checkpoints} bytes of checkpoints: {after}");
    assert!(after.hot_swaps > before.hot_swaps + 10);
    check(&store.db, &store.contents, None);
    store.db.close().unwrap();
    let db = Db::open(DIR, options(&sim, HotTableMode::Off)).unwrap();
    check(&db, &store.contents, None);
    db.verify().unwrap();
}

#[test]
fn without_the_option_nothing_is_hot() {
    let sim = SimVfs::new(2);
    let mut store = Store::open(&sim, HotTableMode::Off);
    let mut rng = SplitMix64::new(2);
    for _ in 0..20_000 {
        store.put(draw(&mut rng), 100);
    }
    let m = store.db.metrics();
    assert_eq!((m.hot_keys, m.hot_swaps, m.hot_bytes), (0, 0, 0));
}

#[test]
fn the_option_can_change_while_the_store_is_open() {
    let sim = SimVfs::new(21);
    let mut store = Store::open(&sim, HotTableMode::Off);
    let mut rng = SplitMix64::new(21);
    for _ in 0..3 {
        store.db.set_hot_table(HotTableMode::Auto);
        store.heat(&mut rng);
        store.db.set_hot_table(HotTableMode::Off);
        assert!(store.db.metrics().hot_keys > 0, "it is the next write that ends it");
        store.put(0, 100);
        let m = store.db.metrics();
        assert_eq!(m.hot_keys, 0, "{m}");
        check(&store.db, &store.contents, None);
        let swaps = m.hot_swaps;
        for _ in 0..5_000 {
            store.put(draw(&mut rng), 100);
        }
        assert_eq!(store.db.metrics().hot_swaps, swaps);
        store.db.wait_idle().unwrap();
        eventually("what was known of keys is forgotten", || store.db.metrics().hot_bytes == 0);
        let image = sim.kill_image();
        let names = image.files();
        assert!(names.iter().any(|(path, _)| path.extension().is_some_and(|e| e == "sst")));
        check(&Db::open(DIR, options(&image, HotTableMode::Off)).unwrap(), &store.contents, None);
        check(&store.db, &store.contents, None);
    }
}

#[test]
fn the_log_is_bounded_by_checkpoints() {
    let sim = SimVfs::new(3);
    let mut store = Store::open(&sim, HotTableMode::Auto);
    let mut rng = SplitMix64::new(3);
    store.heat(&mut rng);
    for _ in 0..10 {
        for _ in 0..4000 {
            store.put(draw(&mut rng), 100);
        }
        store.db.wait_idle().unwrap();
        eventually("the log is short again", || store.db.metrics().live_log_bytes < 400 << 10);
    }
    assert!(store.db.metrics().hot_checkpoints > 5);
}

/// A crash with the machine's memory gone, at any moment: what is there is a prefix of the history with
/// everything that was synced.
#[test]
fn after_a_power_cut_a_prefix_of_the_history_is_there() {
    for seed in 0..effort(40) {
        let _note = SeedNote("a power cut with hot keys", seed);
        let sim = SimVfs::new(seed);
        let mut store = Store::open(&sim, HotTableMode::Auto);
        let mut rng = SplitMix64::new(seed);
        for _ in 0..1 + rng.below(3) {
            store.heat(&mut rng);
        }
        for n in 0..rng.below(3000) {
            match rng.below(50) {
                0 => store.delete(draw(&mut rng)),
                _ => store.put(draw(&mut rng), 100),
            }
            if n == 1000 {
                store.db.sync().unwrap();
            }
        }
        let synced = match rng.one_in(2) {
            true => {
                store.db.sync().unwrap();
                store.history.len()
            }
            false => 0,
        };
        for _ in 0..rng.below(2000) {
            store.put(draw(&mut rng), 100);
        }
        let image = match rng.one_in(3) {
            true => sim.kill_image(),
            false => sim.crash_image(seed),
        };
        let mode = if rng.one_in(2) { HotTableMode::Auto } else { HotTableMode::Off };
        let reader = Db::open_read_only(DIR, options(&image, mode)).unwrap();
        let read = all(&reader, None);
        drop(reader);
        let db = Db::open(DIR, options(&image, mode)).unwrap();
        let found = all(&db, None);
        assert_eq!(read, found, "a reader beside the writer sees the same");
        let prefix = prefix_of(&store.history, &found).expect("a hole in the history");
        assert!(prefix >= synced, "{synced} writes were synced, {prefix} are there");
        db.verify().unwrap();
        db.close().unwrap();
        let db = Db::open(DIR, options(&image, HotTableMode::Off)).unwrap();
        assert_eq!(all(&db, None), found);
    }
}

/// The longest prefix of the history that amounts to `found`.
fn prefix_of(history: &[(u64, Option<Vec<u8>>)], found: &Contents) -> Option<usize> {
    let mut contents = Contents::new();
    let mut longest = found.is_empty().then_some(0);
    for (at, (n, value)) in history.iter().enumerate() {
        match value {
            Some(value) => drop(contents.insert(key(*n), value.clone())),
            None => drop(contents.remove(&key(*n))),
        }
        // Cheap first.
        let may_be = contents.len() == found.len() && found.get(&key(*n)) == value.as_ref();
        if may_be && contents == *found {
            longest = Some(at + 1);
        }
    }
    longest
}

#[test]
fn snapshots_and_iterators_keep_what_they_saw() {
    let sim = SimVfs::new(5);
    let mut store = Store::open(&sim, HotTableMode::Auto);
    let mut rng = SplitMix64::new(5);
    store.heat(&mut rng);
    let mut held: Vec<(Snapshot, Contents)> = Vec::new();
    for round in 0..12 {
        held.push((store.db.snapshot(), store.contents.clone()));
        let mut iter = store.db.iter().unwrap();
        iter.seek(&key(HOT / 2)).unwrap();
        let expected: Contents =
            store.contents.range(key(HOT / 2)..).map(|(k, v)| (k.clone(), v.clone())).collect();
        for _ in 0..700 {
            match rng.below(20) {
                0 => store.delete(draw(&mut rng)),
                _ => store.put(draw(&mut rng), 100),
            }
        }
        if round % 3 == 0 {
            let (from, to) = (rng.below(HOT), rng.below(HOT * 2));
            if from < to {
                store.db.delete_range(key(from), key(to)).unwrap();
                store.contents.retain(|k, _| *k < key(from) || *k >= key(to));
            }
        }
        let seen: Contents = iter.entries().map(|entry| entry.unwrap()).collect();
        assert_eq!(seen, expected);
        held.iter().for_each(|(snapshot, contents)| check(&store.db, contents, Some(snapshot)));
        check(&store.db, &store.contents, None);
        if held.len() > 4 {
            held.remove(round % 4);
        }
    }
    assert!(store.db.metrics().hot_swaps > 5, "{}", store.db.metrics());
}

#[test]
fn a_range_delete_covers_hot_keys_before_and_after_swaps_and_crashes() {
    let sim = SimVfs::new(6);
    let mut store = Store::open(&sim, HotTableMode::Auto);
    let mut rng = SplitMix64::new(6);
    for round in 0..20 {
        store.heat(&mut rng);
        store.db.delete_range(key(2), key(HOT / 2)).unwrap();
        store.contents.retain(|k, _| *k < key(2) || *k >= key(HOT / 2));
        check(&store.db, &store.contents, None);
        // Others go on, so that the table is swapped while the range is deleted.
        for _ in 0..rng.below(600) {
            store.put(HOT / 2 + rng.below(HOT / 2), 100);
        }
        check(&store.db, &store.contents, None);
        let image = sim.kill_image();
        let db = Db::open(DIR, options(&image, HotTableMode::Off)).unwrap();
        assert_eq!(all(&db, None), store.contents, "round {round}");
    }
}

/// What a range delete says of cold keys goes to disk with them, where their sequence numbers are
/// forgotten; the hot table must not go on saying it.
#[test]
fn a_range_delete_is_forgotten_with_the_memtable_that_it_came_with() {
    let sim = SimVfs::new(61);
    let mut options = options(&sim, HotTableMode::Auto);
    options.advanced.l0_compaction_trigger = 1;
    let db = Db::open(DIR, options).unwrap();
    let mut store = Store { db, contents: Contents::new(), history: Vec::new(), written: 0 };
    let mut rng = SplitMix64::new(61);
    store.heat(&mut rng);
    for round in 0..20 {
        store.db.delete_range(key(HOT), key(KEYS)).unwrap();
        store.contents.retain(|k, _| *k < key(HOT));
        for n in 0..3 * KEYS / 10 {
            store.put(HOT + n, 100);
            if n % 4 == 0 {
                store.put(n / 4 % HOT, 100);
            }
            if n % 100 == 0 {
                store.db.wait_idle().unwrap();
                check(&store.db, &store.contents, None);
            }
        }
        assert!(store.db.metrics().hot_keys > 0, "round {round}");
    }
}

/// Keys become hot and cool while files of L0 are merged with each other: an older version of a key may
/// then lie in a file that also has newer writes than the hot table, its checkpoint, or what is replayed.
#[test]
fn a_hot_set_that_moves_is_never_behind_merged_files() {
    for seed in 0..effort(2) {
        let _note = SeedNote("moving hot set", seed);
        let sim = SimVfs::new(62 + seed);
        let mut options = options(&sim, HotTableMode::Auto);
        options.default_family.compaction = CompactionStyle::Tiered;
        options.advanced.l0_compaction_trigger = 2;
        options.advanced.l0_slowdown = 3;
        let db = Db::open(DIR, options).unwrap();
        let mut store = Store { db, contents: Contents::new(), history: Vec::new(), written: 0 };
        let mut rng = SplitMix64::new(62 + seed);
        let (mut from, mut cold, mut swaps, mut checkpoints) = (0, 1, 0, 0);
        for n in 0..12_000 {
            if rng.below(2_000) == 0 {
                (from, cold) = (rng.below(KEYS - HOT), rng.below(4) + 1);
            }
            match rng.below(10) < cold {
                true => store.put(rng.below(KEYS), 100),
                false => store.put(from + rng.below(HOT), 100),
            }
            if rng.below(3_000) == 0 {
                store.db.flush().unwrap();
            }
            if std::mem::replace(&mut swaps, store.db.metrics().hot_swaps) != swaps {
                // If a checkpoint is due now, then before any other write.
                store.db.wait_idle().unwrap();
            }
            let before = std::mem::replace(&mut checkpoints, store.db.metrics().hot_checkpoints);
            if checkpoints == before && n % 500 != 0 {
                continue;
            }
            assert!(all(&store.db, None) == store.contents);
            let image = sim.kill_image();
            let mut others = self::options(&image, HotTableMode::Auto);
            // The files are read as recovery has left them.
            others.advanced.l0_compaction_trigger = 20;
            others.advanced.compact_when_idle = false;
            if rng.below(2) == 0 {
                // Recovery writes several files.
                others.advanced.memtable_bytes = 16 << 10;
                let shares = &mut others.advanced.memory_shares;
                shares.cache += shares.memtables - 0.01;
                shares.memtables = 0.01;
                others.memory_budget = 4 << 20;
            }
            let db = Db::open(DIR, others).unwrap();
            check(&db, &store.contents, None);
        }
        assert!(store.db.metrics().hot_checkpoints > 1, "{}", store.db.metrics());
    }
}

#[test]
fn a_flush_takes_everything_and_a_checkpoint_directory_has_what_is_hot() {
    let sim = SimVfs::new(7);
    let mut store = Store::open(&sim, HotTableMode::Auto);
    let mut rng = SplitMix64::new(7);
    store.heat(&mut rng);
    store.db.checkpoint("/copy").unwrap();
    let copy = Db::open("/copy", options(&sim, HotTableMode::Off)).unwrap();
    check(&copy, &store.contents, None);
    copy.verify().unwrap();
    store.db.verify().unwrap();
    store.db.flush().unwrap();
    let m = store.db.metrics();
    assert_eq!(m.hot_keys, 0, "{m}");
    check(&store.db, &store.contents, None);
    // Nothing of it is left in the log or in a checkpoint.
    let image = sim.kill_image();
    for (path, _) in image.files() {
        if path.starts_with(DIR) && path.extension().is_some_and(|ending| ending == "log") {
            image.write_file(&path, &image.read_file(&path).unwrap()[..32]);
        }
    }
    store.db.compact_range::<&[u8]>(..).unwrap();
    check(&store.db, &store.contents, None);
    store.heat(&mut rng);
    check(&store.db, &store.contents, None);
}

#[test]
fn transactions_see_changes_of_hot_keys() {
    let sim = SimVfs::new(8);
    let mut store = Store::open(&sim, HotTableMode::Auto);
    let mut rng = SplitMix64::new(8);
    store.heat(&mut rng);
    let (mut conflicts, mut committed) = (0, 0);
    for _ in 0..2000 {
        let n = rng.below(HOT);
        let mut transaction = store.db.transaction();
        let old = transaction.get(key(n)).unwrap();
        assert_eq!(old.as_deref(), store.contents.get(&key(n)).map(Vec::as_slice));
        let other = rng.below(HOT);
        let interferes = rng.one_in(3);
        if interferes {
            store.put(other, 100);
        }
        let value = format!("transaction {committed}").into_bytes();
        transaction.put(key(n), &value);
        match transaction.commit() {
            Ok(()) => {
                assert!(!interferes || other != n, "a lost update");
                store.contents.insert(key(n), value);
                committed += 1;
            }
            Err(terrace::Error::Conflict) => {
                assert!(interferes && other == n, "a conflict with nobody");
                conflicts += 1;
            }
            Err(error) => panic!("{error}"),
        }
        store.put(draw(&mut rng), 100);
    }
    assert!(conflicts > 5 && committed > 500, "{conflicts} and {committed}");
    check(&store.db, &store.contents, None);
}

#[test]
fn a_hot_key_with_a_separated_value_leaves_the_table() {
    let sim = SimVfs::new(9);
    let mut separating = options(&sim, HotTableMode::Auto);
    separating.default_family.value_separation_threshold = 600;
    let db = Db::open(DIR, separating.clone()).unwrap();
    let mut store = Store { db, contents: Contents::new(), history: Vec::new(), written: 0 };
    let mut rng = SplitMix64::new(9);
    for _ in 0..6 {
        store.heat(&mut rng);
        for _ in 0..20 {
            store.put(rng.below(HOT), 1000);
            store.put(draw(&mut rng), 100);
        }
        check(&store.db, &store.contents, None);
        store.db.collect_garbage(0.0).unwrap();
        check(&store.db, &store.contents, None);
    }
    let image = sim.kill_image();
    separating.advanced.vfs = Arc::new(image);
    check(&Db::open(DIR, separating).unwrap(), &store.contents, None);
}

/// A reader of all keys of a batch never sees it in parts, whichever memtable each of its keys is in.
#[test]
fn a_batch_of_hot_and_cold_keys_is_seen_whole() {
    let sim = SimVfs::new(10);
    let mut store = Store::open(&sim, HotTableMode::Auto);
    let mut rng = SplitMix64::new(10);
    store.heat(&mut rng);
    let members: Vec<Vec<u8>> = (0..4).map(key).chain((KEYS..KEYS + 3).map(key)).collect();
    let done = AtomicBool::new(false);
    let write = |n: u64| {
        let mut batch = WriteBatch::new();
        members.iter().for_each(|member| batch.put(member, n.to_be_bytes()));
        store.db.write(batch).unwrap();
    };
    write(0);
    let reads = std::thread::scope(|scope| {
        let read = || {
            let (mut reads, mut newest) = (0u64, 0);
            while !done.load(Ordering::Relaxed) {
                let found = store.db.multi_get(&members).unwrap();
                let numbers: Vec<u64> = found
                    .iter()
                    .map(|v| u64::from_be_bytes(v.as_deref().unwrap()[..8].try_into().unwrap()))
                    .collect();
                assert!(numbers.iter().all(|n| *n == numbers[0]), "{numbers:?}");
                assert!(numbers[0] >= newest, "time goes back");
                newest = numbers[0];
                let mut iter = store.db.iter().unwrap();
                let mut seen = Vec::new();
                for member in &members {
                    iter.seek(member).unwrap();
                    seen.push(u64::from_be_bytes(iter.value()[..8].try_into().unwrap()));
                }
                assert!(seen.iter().all(|n| *n == seen[0] && *n >= newest), "{seen:?}");
                newest = seen[0];
                reads += 1;
            }
            reads
        };
        let readers = [scope.spawn(read), scope.spawn(read)];
        let mut rng = SplitMix64::new(11);
        for n in 1..effort(6000) {
            write(n);
            for _ in 0..3 {
                store.db.put(key(4 + draw(&mut rng) % (KEYS - 8)), [7; 100]).unwrap();
            }
        }
        done.store(true, Ordering::Relaxed);
        readers.map(|reader| reader.join().unwrap()).iter().sum::<u64>()
    });
    assert!(reads > 10, "{reads}");
    let m = store.db.metrics();
    assert!(m.hot_swaps > 10, "{m}");
}

#[test]
fn readers_beside_the_writer_see_what_is_hot() {
    let sim = SimVfs::new(12);
    let mut store = Store::open(&sim, HotTableMode::Auto);
    let mut rng = SplitMix64::new(12);
    store.heat(&mut rng);
    let reader = Db::open_read_only(DIR, options(&sim, HotTableMode::Off)).unwrap();
    for _ in 0..30 {
        for _ in 0..rng.below(800) {
            store.put(draw(&mut rng), 100);
        }
        reader.refresh().unwrap();
        check(&reader, &store.contents, None);
    }
}

/// What a checkpoint makes durable never is newer than what the log may lose.
#[test]
fn a_store_that_syncs_every_write_loses_none() {
    for seed in 0..effort(6) {
        let _note = SeedNote("synced writes with hot keys", seed);
        let sim = SimVfs::new(seed);
        let mut synced = options(&sim, HotTableMode::Auto);
        synced.sync = SyncMode::Batch;
        let db = Db::open(Path::new(DIR), synced).unwrap();
        let mut store = Store { db, contents: Contents::new(), history: Vec::new(), written: 0 };
        let mut rng = SplitMix64::new(seed);
        store.heat(&mut rng);
        for _ in 0..8 {
            for _ in 0..rng.below(500) {
                store.put(draw(&mut rng), 100);
            }
            let image = sim.crash_image(rng.next_u64());
            let db = Db::open(DIR, options(&image, HotTableMode::Auto)).unwrap();
            assert_eq!(all(&db, None), store.contents);
        }
    }
}
