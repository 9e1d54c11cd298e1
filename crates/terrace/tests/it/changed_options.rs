//! What a changed option does to a store that goes on: under writes, to files, and to one family alone.

use crate::harness::{DIR, eventually, small_options, stopped_clock};
use crate::live_options::OTHERS;
use crate::stop_on_drop::StopOnDrop;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use terrace::vfs::{SimVfs, Vfs};
use terrace::{CfOptions, CompactionStyle, Db, Error, LIVE_FAMILY_OPTIONS, Options};
use terrace_manifest::names;

fn store() -> (SimVfs, Options) {
    let sim = SimVfs::new(3);
    let mut options = small_options(Arc::new(sim.clone()), &stopped_clock());
    options.column_families.clear();
    (sim, options)
}

fn open() -> (SimVfs, Db) {
    let (sim, options) = store();
    (sim, Db::open(DIR, options).unwrap())
}

fn key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

/// Puts keys in `range`, with values that do not compress to nothing and are not separated.
fn put(db: &Db, range: std::ops::Range<u64>) {
    for n in range {
        db.put(key(n), format!("{n} {}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).repeat(3)).unwrap();
    }
}

/// The refusal of `name` when it is `value`, live and at an open.
fn refusals(name: &str, value: &str, set: impl Fn(&mut Options)) -> [String; 2] {
    let (_, mut options) = store();
    let db = Db::open(DIR, options.clone()).unwrap();
    let live = db.set_option(name, value).unwrap_err().to_string();
    set(&mut options);
    let Err(Error::InvalidArgument(at_open)) = Db::open(DIR, options) else { panic!("{name}") };
    [live, at_open]
}

#[test]
fn what_no_store_opens_with_is_refused_in_the_same_words() {
    let all = [
        refusals("memory_budget", "7", |o| o.memory_budget = 7),
        refusals("background_jobs", "65", |o| o.background_jobs = 65),
        refusals("gc_garbage_ratio", "0.01", |o| o.advanced.gc_garbage_ratio = 0.01),
        refusals("l0_compaction_trigger", "0", |o| o.advanced.l0_compaction_trigger = 0),
        refusals("l0_compaction_trigger", "21", |o| o.advanced.l0_compaction_trigger = 21),
        refusals("l0_slowdown", "1", |o| o.advanced.l0_slowdown = 1),
        refusals("l0_stop", "19", |o| o.advanced.l0_stop = 19),
        refusals("level_base_bytes", "7", |o| o.advanced.level_base_bytes = 7),
        refusals("level_multiplier", "1", |o| o.advanced.level_multiplier = 1.0),
        refusals("target_file_bytes", "7", |o| o.advanced.target_file_bytes = 7),
        refusals("max_subcompactions", "65", |o| o.advanced.max_subcompactions = 65),
        refusals("prefix_len", "0", |o| o.default_family.prefix_len = Some(0)),
    ];
    for [live, at_open] in all {
        assert_eq!(live, at_open);
    }
}

/// Every option changes there and back while two threads write; between two changes there are some writes.
#[test]
fn options_change_under_writes_and_nothing_is_lost() {
    let (sim, options) = store();
    let db = Db::open(DIR, options.clone()).unwrap();
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let counts = std::thread::scope(|scope| {
        let writer = |first: u64| {
            let (db, stop, written) = (&db, &stop, &written);
            move || {
                let mut n = first;
                while !stop.load(Ordering::Relaxed) {
                    let value = vec![n as u8; 20 + n as usize % 150];
                    db.put(key(n), value).unwrap();
                    n += 2;
                    written.fetch_add(1, Ordering::Relaxed);
                }
                n
            }
        };
        let writers = [scope.spawn(writer(0)), scope.spawn(writer(1))];
        let stops = StopOnDrop(&stop);
        for (name, value) in OTHERS {
            let before = db.option(name).unwrap();
            for value in [value, before.as_str()] {
                let seen = written.load(Ordering::Relaxed);
                eventually(name, || written.load(Ordering::Relaxed) > seen + 50);
                db.set_option(name, value).unwrap();
                assert_eq!(db.option(name).as_deref(), Some(value), "{name}");
            }
        }
        drop(stops);
        writers.map(|writer| writer.join().unwrap())
    });
    let check = |db: &Db| {
        for (first, end) in (0..).zip(counts) {
            for n in (first..end).step_by(2) {
                let found = db.get(key(n)).unwrap();
                let want = vec![n as u8; 20 + n as usize % 150];
                assert_eq!(found.as_deref(), Some(&want[..]), "{n}");
            }
        }
        db.verify().unwrap();
    };
    check(&db);
    db.compact_range::<&[u8]>(..).unwrap();
    check(&db);
    db.close().unwrap();
    drop(sim);
    check(&Db::open(DIR, options).unwrap());
}

#[test]
fn files_have_the_filter_that_was_in_force_when_they_were_written() {
    let clock = stopped_clock();
    let mut options = small_options(Arc::new(SimVfs::new(3)), &clock);
    options.column_families.clear();
    let db = Db::open(DIR, options).unwrap();
    db.set_option("compact_when_idle", "false").unwrap();
    db.set_option("l0_slowdown", "30").unwrap();
    db.set_option("l0_compaction_trigger", "30").unwrap();
    for (filter, has_filter) in [("ribbon:8", true), ("none", false), ("bloom:10", true)] {
        db.set_option("filter", filter).unwrap();
        put(&db, 0..50);
        db.flush().unwrap();
        // Only of a file that is open is it known.
        assert!(db.get(key(7)).unwrap().is_some());
        let shape = db.shape();
        let newest = shape.families[0].levels[0].iter().max_by_key(|file| file.number).unwrap();
        assert_eq!(newest.filter_units > 0, has_filter, "{filter}");
    }
    db.set_option("filter", "none").unwrap();
    db.compact_range::<&[u8]>(..).unwrap();
    assert!(db.get(key(7)).unwrap().is_some());
    let shape = db.shape();
    let mut files = shape.families[0].levels.iter().flatten();
    assert!(files.all(|file| file.filter_units == 0));
}

#[test]
fn merges_cut_files_and_compress_blocks_as_is_said_when_they_begin() {
    let (_, db) = open();
    // Nothing is merged before all of it is there,
    db.set_option("compact_when_idle", "false").unwrap();
    for name in ["l0_stop", "l0_slowdown", "l0_compaction_trigger"] {
        db.set_option(name, "100").unwrap();
    }
    let merged = || {
        // and files that overlap have to be written anew, where others are only moved.
        (0..2).for_each(|_| put(&db, 0..2000));
        db.compact_range::<&[u8]>(..).unwrap();
        let shape = db.shape();
        let files: Vec<u64> =
            shape.families[0].levels.iter().flatten().map(|file| file.size_bytes).collect();
        (files.len(), files.iter().sum::<u64>())
    };
    db.set_option("compression", "none").unwrap();
    db.set_option("target_file_bytes", "1000000").unwrap();
    let (count, bytes) = merged();
    db.set_option("target_file_bytes", "8192").unwrap();
    let (more, all) = merged();
    assert!(more > count, "{count} files of {bytes} bytes, {more} of {all}");
    db.set_option("compression", "zstd").unwrap();
    let compressed = merged().1;
    assert!(compressed < bytes, "{bytes} bytes became {compressed}");
}

#[test]
fn a_lower_trigger_begins_merges_of_files_that_are_there() {
    let clock = stopped_clock();
    let mut options = small_options(Arc::new(SimVfs::new(3)), &clock);
    options.column_families.clear();
    let db = Db::open(DIR, options).unwrap();
    db.set_option("compact_when_idle", "false").unwrap();
    for name in ["l0_stop", "l0_slowdown", "l0_compaction_trigger"] {
        db.set_option(name, "100").unwrap();
    }
    for _ in 0..12 {
        put(&db, 0..20);
        db.flush().unwrap();
    }
    db.wait_idle().unwrap();
    let l0_files = || db.shape().families[0].levels[0].len();
    assert_eq!(l0_files(), 12);
    // While files are young more of them are waited for.
    clock.advance(60_000);
    db.set_option("l0_compaction_trigger", "4").unwrap();
    eventually("the files are merged", || l0_files() < 4);
}

#[test]
fn files_over_a_lower_bound_are_closed_as_others_are_opened() {
    let (_, db) = open();
    put(&db, 0..4000);
    db.set_option("target_file_bytes", "8192").unwrap();
    db.compact_range::<&[u8]>(..).unwrap();
    let read_all = || {
        for n in 0..4000 {
            assert!(db.get(key(n)).unwrap().is_some());
        }
        db.metrics().open_files
    };
    let before = read_all();
    assert!(before > 16, "{before} files");
    db.set_option("max_open_files", "16").unwrap();
    // What is written anew is opened anew.
    put(&db, 0..4000);
    db.compact_range::<&[u8]>(..).unwrap();
    db.wait_idle().unwrap();
    let after = read_all();
    // A quarter of them is for segments with values.
    assert!(after <= 12, "{after} of {before} files are open");
    db.verify().unwrap();
}

#[test]
fn the_reserve_is_as_large_as_it_is_to_be() {
    let (sim, db) = open();
    let path = names::reserve_path(Path::new(DIR));
    for bytes in [4096, 65_536, 0, 8192] {
        db.set_option("reserve_bytes", &bytes.to_string()).unwrap();
        match bytes {
            0 => assert!(!sim.exists(&path).unwrap()),
            bytes => eventually("the reserve fits", || sim.len(&path).is_ok_and(|n| n == bytes)),
        }
    }
}

#[test]
fn a_family_changes_alone_and_a_reader_for_itself() {
    let (_, options) = store();
    let db = Db::open(DIR, options.clone()).unwrap();
    let other = db.create_column_family("other", CfOptions::default()).unwrap();
    let others = OTHERS.iter().filter(|(name, _)| LIVE_FAMILY_OPTIONS.contains(name));
    for (name, value) in others {
        other.set_option(name, value).unwrap();
        assert_eq!(other.option(name).as_deref(), Some(*value));
        assert_ne!(db.option(name).as_deref(), Some(*value), "{name}");
    }
    let tuned = other.options();
    other.set_options(&CfOptions::default()).unwrap();
    assert_eq!(other.options(), CfOptions::default());
    other.set_options(&tuned).unwrap();
    let tiered = CfOptions { compaction: CompactionStyle::Tiered, ..CfOptions::default() };
    assert!(matches!(other.set_options(&tiered), Err(Error::InvalidArgument(_))));
    assert_eq!(other.options(), tuned);
    let before = db.default_family().options();
    db.set_family_options(&tuned).unwrap();
    assert_eq!((db.default_family().options(), other.options()), (tuned.clone(), tuned.clone()));
    db.default_family().set_options(&before).unwrap();
    let reader = Db::open_read_only(DIR, options.clone()).unwrap();
    let theirs = reader.column_family("other").unwrap();
    assert_eq!(theirs.options(), other.options());
    theirs.set_option("filter", "none").unwrap();
    assert_ne!(theirs.options(), other.options());
    drop((reader, theirs));
    // A store's options hold for a family that is made later.
    db.set_option("target_file_bytes", "4096").unwrap();
    let made = db.create_column_family("made", CfOptions::default()).unwrap();
    for n in 0..2000 {
        made.put(key(n), [n as u8; 30]).unwrap();
    }
    made.compact_range::<&[u8]>(..).unwrap();
    let shape = db.shape();
    let files = shape.families.iter().find(|family| family.name == "made").unwrap();
    assert!(files.levels.iter().flatten().count() > 4);
    db.drop_column_family("other").unwrap();
    assert!(matches!(other.set_option("filter", "none"), Err(Error::NoSuchFamily(_))));
    db.close().unwrap();
    assert!(matches!(made.set_option("filter", "none"), Err(Error::Closed)));
}
