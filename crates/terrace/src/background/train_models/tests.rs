//! The learner without its thread, step by step, on stores that nothing else touches; and what the
//! ways of a lookup take.

use super::*;
use crate::db::Db;
use crate::inner::Inner;
use crate::observe::current_metrics;
use crate::open::read_only;
use crate::options::{CfOptions, ModelCosts, Options};
use crate::read::get::{self, Reading};
use terrace_base::ManualClock;
use terrace_base::rng::{Rng, SplitMix64};
use terrace_sst::Compression;
use terrace_vfs::{PosixVfs, SimVfs, Vfs};

fn key(n: u64) -> Vec<u8> {
    format!("{:016}", n * 3).into_bytes()
}

fn options(vfs: Arc<dyn Vfs>, learning: Learning) -> Options {
    let mut options = Options { memory_budget: 64 << 20, ..Options::default() };
    options.default_family = CfOptions {
        learning,
        compression: vec![Compression::None],
        value_separation_threshold: usize::MAX,
        ..CfOptions::default()
    };
    options.advanced.vfs = vfs;
    options.advanced.target_file_bytes = 1 << 20;
    options.advanced.level_model_files = 2;
    options
}

/// What the decisions rest on, on every machine.
const COSTS: ModelCosts =
    ModelCosts { training_ns_per_key: 60.0, index_ns: 600.0, model_ns: 400.0, find_file_ns: 20.0 };

/// A store of one level of several files: written by two flushes that meet everywhere, so that they
/// are merged and never just moved down.
fn fill(dir: &str, options: &Options, keys: u64) {
    let db = Db::open(dir, options.clone()).unwrap();
    let mut rng = SplitMix64::new(1);
    let mut order: Vec<u64> = (0..keys).collect();
    for at in (1..keys).rev() {
        order.swap(at as usize, rng.below(at + 1) as usize);
    }
    for half in order.chunks(keys.div_ceil(2) as usize) {
        for n in half {
            db.put(key(*n), [*n as u8; 64]).unwrap();
        }
        db.flush().unwrap();
    }
    db.compact_range::<&[u8]>(..).unwrap();
    db.wait_idle().unwrap();
    db.close().unwrap();
}

fn read(inner: &Inner, rng: &mut SplitMix64, keys: u64, lookups: u64) {
    let families = inner.read.families.load_full();
    for _ in 0..lookups {
        let n = rng.below(keys);
        let found = get::get(&inner.read, &families[0], &key(n), Reading::default()).unwrap();
        assert_eq!(found.as_deref(), Some(&[n as u8; 64][..]));
    }
}

#[test]
fn files_wait_before_they_are_trained_one_at_a_time_and_then_the_level() {
    const KEYS: u64 = 40_000;
    let clock = Arc::new(ManualClock::at(1_000_000));
    let mut options = options(Arc::new(SimVfs::new(1)), Learning::Analyze);
    options.advanced.model_costs = Some(COSTS);
    fill("/db", &options, KEYS);
    options.advanced.clock = clock.clone();
    let inner = read_only::open("/db".as_ref(), options).unwrap();
    let mut learner = Learner::default();
    let mut rng = SplitMix64::new(2);
    assert!(!learner.step(&inner.background), "files are new");
    clock.advance(49);
    assert!(!learner.step(&inner.background));
    clock.advance(1);
    let files =
        current_metrics::of(&inner).levels.iter().map(|level| level.file_count).sum::<u64>();
    assert!(files >= 3, "{files}");
    for trained in 1..=files {
        assert!(learner.step(&inner.background));
        assert_eq!(current_metrics::of(&inner).models_built, trained);
    }
    assert!(!learner.step(&inner.background));
    read(&inner, &mut rng, KEYS, 1000);
    let m = current_metrics::of(&inner);
    assert!(m.reads.lookups_by_model > 900 && m.reads.lookups_by_index < 50, "{m}");
    // The level has been quiet, but was hardly read: training it takes 60 ns x 40,000 keys, so
    // 120,000 lookups that save 20 ns.
    clock.advance(10_000);
    assert!(!learner.step(&inner.background));
    assert_eq!(current_metrics::of(&inner).level_models, 0);
    read(&inner, &mut rng, KEYS, 60_000);
    clock.advance(10_000);
    assert!(!learner.step(&inner.background));
    read(&inner, &mut rng, KEYS, 90_000);
    clock.advance(10_000);
    assert!(learner.step(&inner.background));
    let m = current_metrics::of(&inner);
    assert_eq!((m.level_models, m.level_models_built), (1, 1), "{m}");
    let before = m.reads.lookups_by_level_model;
    read(&inner, &mut rng, KEYS, 10_000);
    let m = current_metrics::of(&inner);
    assert!(m.reads.lookups_by_level_model - before > 9900, "{m}");
}

#[test]
fn a_level_model_of_other_files_is_not_taken() {
    const KEYS: u64 = 40_000;
    let options = options(Arc::new(SimVfs::new(3)), Learning::Build);
    fill("/db", &options, KEYS);
    let inner = read_only::open("/db".as_ref(), options).unwrap();
    let family = inner.read.families.load()[0].clone();
    let version = family.state().version.clone();
    let level = (1..LEVEL_COUNT).find(|n| version.level(*n).len() > 1).unwrap();
    let files = version.level(level).files();
    let learn = |files: &[Arc<terrace_manifest::FileMeta>]| {
        let mut builder = LevelModelBuilder::default();
        for file in files {
            builder.add(file, &inner.read.table_cache.reader(file).unwrap()).unwrap();
        }
        builder.finish(&inner.read.table_cache).model.unwrap()
    };
    drop(learn(files));
    // With all readers open.
    let pinned = inner.read.table_cache.pinned_bytes();
    let partial = learn(&files[1..]);
    assert!(inner.read.table_cache.pinned_bytes() >= pinned + partial.memory_bytes());
    assert!(!family.add_level_model(level, partial));
    assert_eq!(current_metrics::of(&inner).level_models, 0);
    assert_eq!(inner.read.table_cache.pinned_bytes(), pinned, "its memory is given back");
    assert!(!family.add_level_model(level - 1, learn(files)), "it is of another level");
    assert!(family.add_level_model(level, learn(files)));
    // It stays with the files through other changes, and goes with the first of them.
    family.install(version.clone(), &[], None, &inner.read.table_cache);
    assert_eq!(current_metrics::of(&inner).level_models, 1);
    let gone = terrace_manifest::FamilyEdit {
        removed: vec![(level as u8, files[0].number)],
        ..Default::default()
    };
    family.install(Arc::new(version.apply(&gone).unwrap()), &[], None, &inner.read.table_cache);
    assert_eq!(current_metrics::of(&inner).level_models, 0);
}

#[test]
fn a_level_whose_model_would_take_too_much_is_not_read_to_its_end() {
    let options = options(Arc::new(SimVfs::new(4)), Learning::Analyze);
    fill("/db", &options, 40_000);
    let inner = read_only::open("/db".as_ref(), options).unwrap();
    let family = inner.read.families.load()[0].clone();
    let version = family.state().version.clone();
    let level = (1..LEVEL_COUNT).find(|n| version.level(*n).len() > 1).unwrap();
    let table_cache = &inner.read.table_cache;
    // A file has some 250 blocks, and a model no fewer bytes.
    table_cache.set_cache_memory(50 * CACHE_PART, 0);
    let before = table_cache.open_count();
    let mut work = Duration::ZERO;
    let learned =
        learn_level(&inner.background, &family, level, version.level(level), &mut work).unwrap();
    assert!(matches!(learned, Learned::Refused(NoModel::TooManyBytes)));
    assert_eq!(table_cache.open_count(), before + 1, "the first file says enough");
}

/// Nanoseconds of processor time of this thread.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|field| field.parse().ok()).unwrap_or(0)
}

/// Puts the filters of all files into memory.
fn load_filters(inner: &Inner) {
    let open = |file: &terrace_manifest::FileMeta| inner.read.table_cache.reader(file).ok();
    for round in 0..1000 {
        let lookups = inner.base.counters.gets.get();
        if !inner.read.filters.step(lookups + round, true, &open).more && round > 20 {
            break;
        }
    }
}

/// Least processor time of a lookup in several rounds, all with the filters in memory.
fn lookup_ns(inner: &Inner, keys: u64) -> f64 {
    let family = inner.read.families.load()[0].clone();
    let mut rng = SplitMix64::new(5);
    let probes: Vec<Vec<u8>> = (0..300_000).map(|_| key(rng.below(keys))).collect();
    for probe in &probes {
        let mut absent = probe.clone();
        absent.push(b'+');
        get::get(&inner.read, &family, &absent, Reading::default()).unwrap();
    }
    load_filters(inner);
    let mut least = f64::INFINITY;
    for _ in 0..9 {
        let start = cpu_ns();
        for probe in &probes {
            let found = get::get(&inner.read, &family, probe, Reading::default()).unwrap();
            assert!(std::hint::black_box(found).is_some());
        }
        least = least.min((cpu_ns() - start) as f64 / probes.len() as f64);
    }
    least
}

/// Lookups by index, by the models of files, and by a model of the level, all in memory:
/// `cargo test --release -p terrace --lib ways_of_a_lookup -- --ignored --nocapture`.
#[test]
#[ignore = "measures"]
fn ways_of_a_lookup() {
    let keys = std::env::var("KEYS").ok().and_then(|n| n.parse().ok()).unwrap_or(2_000_000);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let mut options = options(PosixVfs::shared(), Learning::Build);
    options.memory_budget = 2 << 30;
    options.advanced.target_file_bytes =
        std::env::var("FILE_BYTES").ok().and_then(|n| n.parse().ok()).unwrap_or(4 << 20);
    let start = Instant::now();
    options.default_family.learning = Learning::Off;
    fill(dir.path().join("without").to_str().unwrap(), &options, keys);
    println!("filled without models in {:.2} s", start.elapsed().as_secs_f64());
    options.default_family.learning = Learning::Build;
    let start = Instant::now();
    fill(path.to_str().unwrap(), &options, keys);
    println!("filled with models in {:.2} s", start.elapsed().as_secs_f64());
    options.default_family.learning = Learning::Off;
    let inner = read_only::open(&path, options.clone()).unwrap();
    println!("by index          {:.0} ns", lookup_ns(&inner, keys));
    options.default_family.learning = Learning::Build;
    let inner = read_only::open(&path, options).unwrap();
    println!("by models of files {:.0} ns", lookup_ns(&inner, keys));
    let family = inner.read.families.load()[0].clone();
    let mut own = FamilyFileStats::default();
    own.look(&inner.background, &family, 0);
    let files = family.state().version.clone();
    let level = (1..LEVEL_COUNT).max_by_key(|n| files.level(*n).len()).unwrap();
    println!(
        "{} files in L{level}, {:?}",
        files.level(level).len(),
        family.samples.level_costs(level)
    );
    let start = Instant::now();
    own.train_level(&inner.background, &family, level, 0);
    println!("level trained in {:.1} ms", start.elapsed().as_secs_f64() * 1e3);
    assert_eq!(current_metrics::of(&inner).level_models, 1);
    println!("by a level model  {:.0} ns", lookup_ns(&inner, keys));
    println!("{:?}\n{}", family.samples.level_costs(level), current_metrics::of(&inner));
}
