//! Models that come and go: no answer changes, whatever the keys and whenever a file or a level gets
//! one or loses it.

use crate::harness::{DIR, eventually, small_options, stopped_clock};
use crate::stop_on_drop::StopOnDrop;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use terrace::vfs::{SimVfs, Vfs};
use terrace::{
    CfOptions, Compression, Db, FilterAllocator, Learning, ModelCosts, Options, WriteBatch,
};
use terrace_base::FileNumber;
use terrace_base::rng::{Rng, SplitMix64};
use terrace_manifest::names;
use terrace_sst::{BlockCache, ReadCounters, ReaderOptions, SstReader};

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// What the decisions rest on, on every machine: models pay after a few lookups.
const COSTS: ModelCosts =
    ModelCosts { training_ns_per_key: 1.0, index_ns: 900.0, model_ns: 300.0, find_file_ns: 200.0 };

fn options(vfs: &Arc<SimVfs>, learning: Learning) -> Options {
    let mut options = small_options(vfs.clone(), &stopped_clock());
    options.memory_budget = 32 << 20;
    options.advanced.model_costs = Some(COSTS);
    options.column_families.clear();
    options.default_family = CfOptions {
        learning,
        compression: vec![Compression::None],
        value_separation_threshold: usize::MAX,
        ..CfOptions::default()
    };
    options.advanced.target_file_bytes = 64 << 10;
    options.advanced.level_model_files = 2;
    options.advanced.level_base_bytes = 256 << 10;
    options.advanced.memtable_bytes = 128 << 10;
    options
}

/// Sets of keys that models are bad at, or that are at the ends of what they know.
fn key_sets(rng: &mut SplitMix64) -> Vec<(&'static str, Vec<Vec<u8>>)> {
    let mut bytes = |len: u64| -> Vec<u8> {
        let len = rng.below(len + 1);
        (0..len).map(|_| rng.next_u64() as u8).collect()
    };
    let random = (0..3000).map(|_| bytes(12)).filter(|key| !key.is_empty()).collect();
    let long_prefix = "the same beginning of every key, longer than what a number holds/".repeat(3);
    let prefixed = (0..3000).map(|n| format!("{long_prefix}{n:07}").into_bytes()).collect();
    // Of each sixteen keys fifteen differ only far behind.
    let ties = (0..3000)
        .map(|n| format!("{:020}{}{:03}", n / 16 * 997, "-".repeat(40), n % 16).into_bytes())
        .collect();
    let mut extremes: Vec<Vec<u8>> = Vec::new();
    for n in 0..500u64 {
        for number in [n, u64::MAX - n, (1 << 63) - 250 + n, n << 55, 1 << (n % 64)] {
            extremes.push(number.to_be_bytes().to_vec());
        }
    }
    let huge = (0..40u8)
        .map(|n| {
            let mut key = vec![b'k'; 64 << 10];
            key[(64 << 10) - 1 - usize::from(n) * 1500] = n + 1;
            key
        })
        .collect();
    let counted = (0..4000).map(|n| format!("user:{:09}:name", n * 3).into_bytes()).collect();
    vec![
        ("random", random),
        ("prefixed", prefixed),
        ("ties", ties),
        ("extremes", extremes),
        ("huge", huge),
        ("counted", counted),
    ]
}

/// Writes, overwrites and deletes, by key and by range, in an order of no meaning.
fn fill(db: &Db, rng: &mut SplitMix64, keys: &[Vec<u8>]) -> Contents {
    let mut contents = Contents::new();
    for round in 0..3u8 {
        for at in 0..keys.len() {
            let key = &keys[(at * 7919 + usize::from(round)) % keys.len()];
            if round > 0 && !rng.one_in(4) {
                continue;
            }
            if rng.one_in(8) {
                db.delete(key).unwrap();
                contents.remove(key);
            } else {
                let value = [&[round; 30], &key[key.len() / 2..]].concat();
                let value = value[..value.len().min(60)].to_vec();
                db.put(key, &value).unwrap();
                contents.insert(key.clone(), value);
            }
        }
        let (a, b) = (&keys[keys.len() / 3], &keys[keys.len() / 3 + 5]);
        let (from, to) = (a.min(b).clone(), a.max(b).clone());
        if from < to {
            db.delete_range(&from, &to).unwrap();
            contents.retain(|key, _| !(from <= *key && *key < to));
        }
        db.flush().unwrap();
    }
    contents
}

/// Every key, and places near each, by one read and by many.
fn check(db: &Db, contents: &Contents, keys: &[Vec<u8>]) {
    let mut probes: Vec<Vec<u8>> = keys.to_vec();
    for key in keys {
        probes.push([key.as_slice(), &[0]].concat());
        probes.push(key[..key.len() - 1].to_vec());
        let mut near = key.clone();
        *near.last_mut().unwrap() ^= 1;
        probes.push(near);
    }
    probes.retain(|key| (1..=64 << 10).contains(&key.len()));
    for key in &probes {
        let found = db.get(key).unwrap();
        assert_eq!(found.as_deref(), contents.get(key).map(Vec::as_slice), "{key:02x?}");
    }
    for some in probes.chunks(61) {
        for (key, found) in some.iter().zip(db.multi_get(some).unwrap()) {
            assert_eq!(found.as_deref(), contents.get(key).map(Vec::as_slice), "{key:02x?}");
        }
    }
}

#[test]
fn no_setting_changes_an_answer() {
    let mut rng = SplitMix64::new(1);
    for (name, keys) in key_sets(&mut rng) {
        for learning in [Learning::Build, Learning::Analyze, Learning::Off] {
            let vfs = Arc::new(SimVfs::new(1));
            let mut options = options(&vfs, learning);
            if rng.one_in(2) {
                options.advanced.filter_allocator = FilterAllocator::Cached;
            }
            let db = Db::open(DIR, options.clone()).unwrap();
            let contents = fill(&db, &mut rng, &keys);
            check(&db, &contents, &keys);
            db.compact_range::<&[u8]>(..).unwrap();
            check(&db, &contents, &keys);
            if learning == Learning::Analyze {
                eventually("files are judged", || {
                    check(&db, &contents, &keys[..20]);
                    let m = db.metrics();
                    m.models_built + m.models_refused > 0
                });
            }
            check(&db, &contents, &keys);
            let m = db.metrics();
            if learning == Learning::Off {
                assert_eq!((m.models_built, m.models_refused, m.level_models), (0, 0, 0), "{m}");
                assert_eq!(
                    (m.reads.lookups_by_model, m.model_bytes, m.model_training_ns),
                    (0, 0, 0)
                );
            } else if name == "counted" {
                eventually("lookups go through models", || {
                    check(&db, &contents, &keys[..50]);
                    db.metrics().reads.lookups_by_model > 100
                });
                assert!(db.metrics().models_built > 0);
            }
            db.close().unwrap();
            // Whatever the files have, the option of now counts.
            options.default_family.learning = Learning::Off;
            let db = Db::open(DIR, options).unwrap();
            check(&db, &contents, &keys);
            assert_eq!(db.metrics().reads.lookups_by_model, 0, "{name}");
            db.close().unwrap();
        }
    }
}

const KEYS: u64 = 30_000;

fn key(n: u64) -> Vec<u8> {
    format!("item/{:08}", n * 5).into_bytes()
}

fn value(n: u64) -> Vec<u8> {
    format!("{n:030}").into_bytes()
}

/// A store of one level with many files.
fn filled(vfs: &Arc<SimVfs>, learning: Learning) -> (Db, Options) {
    filled_with(options(vfs, learning))
}

fn filled_with(options: Options) -> (Db, Options) {
    let db = Db::open(DIR, options.clone()).unwrap();
    // In an order in which every flush spans all keys: files that are merged are cut at the size
    // of the level, files that are only moved keep the size that the moment of the flush gave them.
    for n in (0..KEYS).map(|n| n * 7919 % KEYS) {
        db.put(key(n), value(n)).unwrap();
    }
    db.compact_range::<&[u8]>(..).unwrap();
    db.wait_idle().unwrap();
    (db, options)
}

fn read(db: &Db, rng: &mut SplitMix64, lookups: u64) {
    for _ in 0..lookups {
        let n = rng.below(KEYS + 10);
        let want = (n < KEYS).then(|| value(n));
        assert_eq!(db.get(key(n)).unwrap().as_deref(), want.as_deref());
        if n.is_multiple_of(4) {
            assert_eq!(db.get([key(n).as_slice(), b"+"].concat()).unwrap(), None);
        }
    }
}

fn read_until_level_model(db: &Db, rng: &mut SplitMix64) {
    eventually("a quiet level gets a model", || {
        read(db, rng, 5000);
        db.metrics().level_models > 0
    });
}

#[test]
fn a_quiet_level_gets_a_model_and_the_first_compaction_takes_it() {
    for (seed, learning) in [(2, Learning::Build), (3, Learning::Analyze)] {
        let mut options = options(&Arc::new(SimVfs::new(seed)), learning);
        // It would merge the flush into the level, sooner or later.
        options.advanced.compact_when_idle = false;
        let (db, options) = filled_with(options);
        let mut rng = SplitMix64::new(seed);
        let pinned = db.metrics().pinned_bytes;
        read_until_level_model(&db, &mut rng);
        let m = db.metrics();
        assert!(
            m.levels.iter().any(|level| level.level_models == 1 && level.file_count > 5),
            "{m}"
        );
        assert!(m.model_bytes > 500 && m.level_models_built == 1, "{m}");
        assert!(m.pinned_bytes > pinned, "it is charged: {m}");
        read(&db, &mut rng, 20_000);
        let by_level = db.metrics().reads.lookups_by_level_model - m.reads.lookups_by_level_model;
        assert!(by_level > 15_000, "{by_level} of some 24,000 lookups: {}", db.metrics());
        // A flush is no concern of the level.
        db.put(key(KEYS + 100), b"later").unwrap();
        db.flush().unwrap();
        assert_eq!(db.metrics().level_models, 1);
        read(&db, &mut rng, 1000);
        db.put(key(7), value(7)).unwrap();
        db.compact_range::<&[u8]>(..).unwrap();
        assert_eq!(db.metrics().level_models, 0, "{}", db.metrics());
        read(&db, &mut rng, 1000);
        // So does a store that is opened read-only.
        db.delete(key(KEYS + 100)).unwrap();
        db.close().unwrap();
        drop(db);
        let db = Db::open_read_only(DIR, options).unwrap();
        read_until_level_model(&db, &mut rng);
        read(&db, &mut rng, 2000);
    }
}

#[test]
fn analyze_trains_files_that_live_and_are_read() {
    let mut options = options(&Arc::new(SimVfs::new(4)), Learning::Analyze);
    // A model of the level that comes first would take all lookups, and files get none for nothing.
    options.advanced.level_model_files = usize::MAX;
    let (db, _) = filled_with(options);
    let mut rng = SplitMix64::new(4);
    eventually("files get models", || {
        read(&db, &mut rng, 2000);
        let m = db.metrics();
        let trained = |level: &terrace::LevelMetrics| {
            // A file that is cut off with few keys is refused a model, and where files are cut depends on the
            // moments of flushes.
            level.model_files > 5 && level.model_files + m.models_refused >= level.file_count
        };
        m.levels.iter().any(trained) && m.reads.lookups_by_model > 0
    });
    let m = db.metrics();
    assert!(m.models_built > 5 && m.model_training_ns > 0 && m.model_bytes > 0, "{m}");
    assert_eq!(
        m.model_errors.iter().sum::<u64>() > 0,
        m.model_error_max > 0 || m.model_errors[0] > 0
    );
    assert!(m.to_prometheus().contains("terrace_level_models "), "{}", m.to_prometheus());
    db.close().unwrap();
}

/// Readers that know what they must find go on while a writer overwrites, deletes in its own part,
/// flushes and compacts, and levels get and lose models.
#[test]
fn readers_miss_nothing_while_models_come_and_go() {
    let vfs = Arc::new(SimVfs::new(5));
    let (db, _) = filled(&vfs, Learning::Build);
    let (stop, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for seed in 0..3 {
            let (db, stop, reads) = (&db, &stop, &reads);
            scope.spawn(move || {
                let mut rng = SplitMix64::new(seed);
                while !stop.load(Ordering::Relaxed) {
                    let n = rng.below(KEYS);
                    let found = db.get(key(n)).unwrap();
                    assert!(found.is_some(), "{n} is missing");
                    assert_eq!(found.unwrap()[..20], value(n)[..20], "{n}");
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let _stop = StopOnDrop(&stop);
        let mut rng = SplitMix64::new(9);
        for round in 0..6 {
            eventually("the level gets a model", || db.metrics().level_models > 0);
            // It is used before it goes.
            let used = db.metrics().reads.lookups_by_level_model;
            eventually("lookups go by it", || db.metrics().reads.lookups_by_level_model > used);
            let mut batch = WriteBatch::new();
            for _ in 0..200 {
                let n = rng.below(KEYS);
                batch.put(key(n), [&value(n)[..20], b"0123456789"].concat());
            }
            db.write(batch).unwrap();
            db.compact_range::<&[u8]>(..).unwrap();
            let built = db.metrics().level_models_built;
            assert!(built > round, "{built} after {round} rounds");
        }
        let before = reads.load(Ordering::Relaxed);
        eventually("readers go on", || reads.load(Ordering::Relaxed) > before + 10_000);
    });
    db.close().unwrap();
}

#[test]
fn a_damaged_model_costs_time_only() {
    let vfs = Arc::new(SimVfs::new(6));
    let (db, mut options) = filled(&vfs, Learning::Build);
    db.close().unwrap();
    drop(db);
    let shared: Arc<dyn Vfs> = vfs.clone();
    let mut damaged = HashSet::new();
    for (path, size) in vfs.files() {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let names::FileName::Sst(number) = names::parse(&name) else { continue };
        let reader_options = ReaderOptions {
            cache: Arc::new(BlockCache::new(1 << 20)),
            filter_memory: Default::default(),
            models: true,
            direct: false,
            counters: Arc::new(ReadCounters::new()),
        };
        let reader = SstReader::open(&shared, &path, number, size, &reader_options).unwrap();
        let p = reader.properties();
        if p.model_bytes > 0 {
            let at = p.data_bytes + p.filter_bytes + p.index_bytes + p.model_bytes / 2;
            assert!(vfs.corrupt(&path, at, 0x10));
            damaged.insert(number);
            assert!(reader.verify().is_err(), "{name}: the model lies elsewhere");
        }
    }
    // Files stay what they are, and no lookup passes them by through a model of their level.
    let least_files = std::mem::replace(&mut options.advanced.level_model_files, usize::MAX);
    let db = Db::open_read_only(DIR, options.clone()).unwrap();
    let shape = db.shape();
    let files = shape.families.iter().flat_map(|family| family.levels.iter().flatten());
    let damaged =
        files.filter(|file| damaged.contains(&FileNumber::new(file.number))).count() as u64;
    assert!(damaged > 5);
    // A model is read once its file has had some lookups.
    const ROUNDS: u64 = 3;
    for round in 0..=ROUNDS {
        for n in 0..KEYS {
            assert_eq!(db.get(key(n)).unwrap().as_deref(), Some(&value(n)[..]));
        }
        let m = db.metrics();
        assert_eq!(m.reads.lookups_by_model, 0, "{m}");
        assert!(m.reads.model_damages <= damaged, "one is read again and again: {m}");
        assert!(round < ROUNDS || m.reads.model_damages == damaged, "damage is not met: {m}");
    }
    db.close().unwrap();
    drop(db);
    // A level model does not need them.
    options.advanced.level_model_files = least_files;
    let db = Db::open_read_only(DIR, options).unwrap();
    let mut rng = SplitMix64::new(6);
    read_until_level_model(&db, &mut rng);
    read(&db, &mut rng, 5000);
    assert_eq!(db.metrics().reads.lookups_by_model, 0);
    db.close().unwrap();
}
