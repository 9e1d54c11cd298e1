//! Ingestion of sorted files: what is seen then and by whom, where the files lie, what is refused, and that
//! refusal changes nothing. Crashes meet it in the random workloads (`power_cut`, `crash`), failing
//! calls in `faults_in_turn`.

use crate::harness::{
    DIR, Generator, Mix, Run, Store, at_step, effort, eventually, key, over_seeds, scan,
    small_options, stopped_clock,
};
use crate::ingesting::{write_file, write_numbered};
use crate::left_over::left_over;
use crate::stop_on_drop::StopOnDrop;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use terrace::vfs::{SimVfs, Vfs};
use terrace::{
    CfOptions, CompactionStyle, Db, Error, HotTableMode, IngestOptions, IngestPosition,
    IngestSource, Options, ReadOptions, SstWriter,
};
use terrace_base::rng::Rng;

fn store(sim: &SimVfs) -> Store {
    Store::open(options(sim)).unwrap()
}

fn options(sim: &SimVfs) -> Options {
    let mut options = small_options(Arc::new(sim.clone()), &stopped_clock());
    options.advanced.compact_when_idle = false;
    options
}

fn above() -> IngestOptions {
    IngestOptions::default()
}

fn below() -> IngestOptions {
    IngestOptions { position: IngestPosition::Below, ..IngestOptions::default() }
}

fn value(store: &Store, key: &str) -> Option<String> {
    store.db.get(key).unwrap().map(|value| String::from_utf8(value.to_vec()).unwrap())
}

fn all(store: &Store) -> Vec<(String, String)> {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let seen = scan(&store.families[0], &ReadOptions::default(), false).unwrap();
    seen.into_iter().map(|(key, value)| (text(key), text(value))).collect()
}

fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
}

#[test]
fn what_is_ingested_takes_the_place_of_what_was_there() {
    let sim = SimVfs::new(1);
    let store = store(&sim);
    let db = &store.db;
    for (key, value) in [("a", "old"), ("b", "old"), ("c", "old"), ("d", "old"), ("x", "old")] {
        db.put(key, value).unwrap();
    }
    db.flush().unwrap();
    db.put("b", "in the memtable").unwrap();
    let snapshot = db.snapshot();
    let mut before = db.iter().unwrap();
    let mut writer =
        SstWriter::create_on(Arc::new(sim.clone()), "/outside.sst", &CfOptions::default()).unwrap();
    // The range is about the store: "c" of the file stays.
    writer.delete_range("c", "e").unwrap();
    writer.put("b", "new").unwrap();
    writer.put("c", "new").unwrap();
    writer.put_until("e", "for a while", 1_000_100).unwrap();
    writer.delete("x").unwrap();
    let file = writer.finish().unwrap();
    assert_eq!((file.entry_count, file.deletion_count, file.range_deletion_count), (4, 1, 1));
    assert_eq!((&file.smallest[..], &file.largest[..]), (&b"b"[..], &b"x"[..]));
    let done = db.ingest(&[&file.path], &above()).unwrap();
    assert_eq!(done.entry_count, 5);
    let now = pairs(&[("a", "old"), ("b", "new"), ("c", "new"), ("e", "for a while")]);
    assert_eq!(all(&store), now);
    assert_eq!(value(&store, "d"), None);
    let many = db.multi_get(&["b", "c", "d", "x"]).unwrap();
    let many: Vec<_> = many.iter().map(|value| value.as_deref()).collect();
    assert_eq!(many, [Some(&b"new"[..]), Some(b"new"), None, None]);
    // Who looked before sees what was there before.
    let then = ReadOptions { snapshot: Some(snapshot), ..ReadOptions::default() };
    assert_eq!(db.get_with("b", &then).unwrap().as_deref(), Some(&b"in the memtable"[..]));
    assert_eq!(db.get_with("e", &then).unwrap().as_deref(), None);
    let seen: Vec<Vec<u8>> = scan(&store.families[0], &then, true).unwrap().into_keys().collect();
    assert_eq!(seen, [b"a", b"b", b"c", b"d", b"x"]);
    before.seek_to_first().unwrap();
    assert_eq!(before.by_ref_keys(), ["a", "b", "c", "d", "x"]);
    // What is written later is newer.
    db.put("c", "newer").unwrap();
    db.delete("b").unwrap();
    let later = pairs(&[("a", "old"), ("c", "newer"), ("e", "for a while")]);
    assert_eq!(all(&store), later);
    db.compact_range::<&[u8]>(..).unwrap();
    assert_eq!(all(&store), later);
    assert_eq!(db.get_with("b", &then).unwrap().as_deref(), Some(&b"in the memtable"[..]));
    drop((then, before));
    db.verify().unwrap();
    drop(store);
    assert_eq!(all(&self::store(&sim.crash_image(7))), later);
}

trait Keys {
    fn by_ref_keys(&mut self) -> Vec<String>;
}

impl Keys for terrace::Iter {
    fn by_ref_keys(&mut self) -> Vec<String> {
        let mut keys = Vec::new();
        while self.valid() {
            keys.push(String::from_utf8(self.key().to_vec()).unwrap());
            self.next().unwrap();
        }
        keys
    }
}

#[test]
fn files_lie_as_deep_as_what_is_there_allows() {
    let sim = SimVfs::new(1);
    let store = store(&sim);
    let db = &store.db;
    let first = write_file(&store, "/1.sst", &[("d", Some("1")), ("m", Some("1"))]);
    let second = write_file(&store, "/2.sst", &[("n", Some("1"))]);
    // The order in which they are named does not matter.
    let levels = |done: terrace::Ingested| done.files.iter().map(|f| f.level).collect::<Vec<_>>();
    assert_eq!(levels(db.ingest(&[&second, &first], &above()).unwrap()), [6, 6]);
    let inside = write_file(&store, "/3.sst", &[("e", Some("2"))]);
    let beside = write_file(&store, "/4.sst", &[("x", Some("2"))]);
    assert_eq!(levels(db.ingest(&[&inside, &beside], &above()).unwrap()), [5, 6]);
    assert_eq!(levels(db.ingest(&[&inside], &above()).unwrap()), [4]);
    db.put("e", "3").unwrap();
    assert_eq!(levels(db.ingest(&[&inside], &above()).unwrap()), [0]);
    assert_eq!(value(&store, "e").as_deref(), Some("2"));
    assert_eq!(value(&store, "d").as_deref(), Some("1"));
    assert_eq!(all(&store).len(), 5);
    db.verify().unwrap();
    db.compact_range::<&[u8]>(..).unwrap();
    assert_eq!(all(&store).len(), 5);
}

#[test]
fn a_tiered_family_takes_files_as_its_newest_runs() {
    let sim = SimVfs::new(1);
    let mut options = options(&sim);
    options.default_family.compaction = CompactionStyle::Tiered;
    let store = Store::open(options).unwrap();
    for round in 0..6 {
        let path = format!("/{round}.sst");
        let file = write_numbered(&store, &path, &[1, 2, 3, 10 + round], &round.to_string());
        store.db.ingest(&[file], &above()).unwrap();
        let key = String::from_utf8(key(2)).unwrap();
        assert_eq!(value(&store, &key), Some(round.to_string()));
    }
    store.db.wait_idle().unwrap();
    assert_eq!(all(&store).len(), 9);
    store.db.verify().unwrap();
}

#[test]
fn the_writer_refuses_what_is_out_of_order() {
    let sim: Arc<dyn Vfs> = Arc::new(SimVfs::new(1));
    let create = |path| SstWriter::create_on(sim.clone(), path, &CfOptions::default());
    let mut writer = create("/1.sst").unwrap();
    writer.put("b", "1").unwrap();
    let refused = |result: terrace::Result<()>| match result {
        Err(Error::InvalidArgument(text)) => text,
        other => panic!("{other:?}"),
    };
    assert!(refused(writer.put("a", "2")).contains("`a` comes after `b`"));
    assert!(refused(writer.put("b", "2")).contains("each once"));
    assert!(refused(writer.delete("b")).contains("each once"));
    refused(writer.put(vec![b'c'; terrace::MAX_KEY_BYTES + 1], "2"));
    refused(writer.delete_range("a", vec![b'c'; terrace::MAX_KEY_BYTES + 1]));
    writer.put("c", "3").unwrap();
    assert_eq!(writer.finish().unwrap().entry_count, 2);
    assert!(matches!(create("/1.sst"), Err(Error::Io(_))), "it writes over a file");
    // Nothing in it, an empty range, and one that was not finished: no file is left.
    let mut empty = create("/2.sst").unwrap();
    empty.delete_range("b", "b").unwrap();
    assert!(matches!(empty.finish(), Err(Error::InvalidArgument(_))));
    let mut dropped = create("/3.sst").unwrap();
    dropped.put("b", "1").unwrap();
    drop(dropped);
    assert!(!sim.exists(Path::new("/2.sst")).unwrap() && !sim.exists(Path::new("/3.sst")).unwrap());
}

#[test]
fn what_is_refused_changes_nothing() {
    let sim = SimVfs::new(1);
    let store = store(&sim);
    let db = &store.db;
    db.put("b", "old").unwrap();
    db.flush().unwrap();
    let good = write_file(&store, "/good.sst", &[("a", Some("new")), ("c", Some("new"))]);
    let other = write_file(&store, "/other.sst", &[("c", Some("new"))]);
    let damaged = write_file(&store, "/damaged.sst", &[("x", Some("new"))]);
    assert!(sim.corrupt(&damaged, 3, 1));
    let cut = write_file(&store, "/cut.sst", &[("x", Some("new"))]);
    assert!(sim.truncate(&cut, 100));
    let files = || -> Vec<_> {
        // Log segments go when they like.
        let is_log = |path: &Path| path.extension().is_none_or(|extension| extension == "log");
        sim.files().into_iter().filter(|(path, _)| !is_log(path)).collect()
    };
    let (before, shape) = (files(), db.shape().families[0].levels.len());
    let is_own = |path: &Path| path.starts_with(DIR) && path.extension() == Some("sst".as_ref());
    let own = before.iter().find(|(path, _)| is_own(path)).unwrap().0.clone();
    let check = |list: &[&PathBuf], options: &IngestOptions, is_it: fn(&Error) -> bool| {
        let error = db.ingest(list, options).unwrap_err();
        assert!(is_it(&error), "{list:?}: {error:?}");
        assert_eq!(all(&store), pairs(&[("b", "old")]), "{list:?}");
        assert_eq!(files(), before, "{list:?}");
        assert_eq!(db.shape().families[0].levels.len(), shape);
    };
    let invalid = |error: &Error| matches!(error, Error::InvalidArgument(_));
    let corrupt = |error: &Error| matches!(error, Error::Corruption(_));
    check(&[], &above(), invalid);
    check(&[&good, &other], &above(), invalid);
    check(&[&good, &good], &above(), invalid);
    check(&[&good, &damaged], &above(), corrupt);
    check(&[&cut, &good], &above(), corrupt);
    check(&[&good, &own], &above(), corrupt);
    check(&[&good, &PathBuf::from("/none.sst")], &above(), |e| matches!(e, Error::Io(_)));
    db.compact_range::<&[u8]>(..).unwrap();
    let error = db.ingest(&[&good], &below()).unwrap_err();
    assert!(invalid(&error), "{error:?}");
    let read_only = Store::open_read_only(options(&sim)).unwrap();
    let error = read_only.db.ingest(&[&good], &above()).unwrap_err();
    assert!(matches!(error, Error::ReadOnly(_)), "{error:?}");
    drop(read_only);
    db.create_column_family("gone", CfOptions::default()).unwrap();
    let gone = db.column_family("gone").unwrap();
    db.drop_column_family("gone").unwrap();
    let error = gone.ingest(&[&good], &above()).unwrap_err();
    assert!(matches!(error, Error::NoSuchFamily(_)), "{error:?}");
    db.close().unwrap();
    let error = db.ingest(&[&good], &above()).unwrap_err();
    assert!(matches!(error, Error::Closed), "{error:?}");
    assert_eq!(left_over(&sim, Path::new(DIR)).unwrap(), [""; 0]);
}

#[test]
fn files_are_copied_or_moved() {
    let sim = SimVfs::new(1);
    let store = store(&sim);
    let copied = write_file(&store, "/copied.sst", &[("a", Some("1"))]);
    let moved = write_file(&store, "/moved.sst", &[("b", Some("1"))]);
    store.db.ingest(&[&copied], &above()).unwrap();
    let source = IngestSource::Move;
    store.db.ingest(&[&moved], &IngestOptions { source, ..above() }).unwrap();
    assert!(sim.exists(&copied).unwrap() && !sim.exists(&moved).unwrap());
    assert_eq!(all(&store).len(), 2);
}

#[test]
fn below_existing_data_what_is_there_counts() {
    for style in [CompactionStyle::Leveled, CompactionStyle::Tiered] {
        let sim = SimVfs::new(1);
        let mut options = options(&sim);
        options.default_family.compaction = style;
        let store = Store::open(options).unwrap();
        let db = &store.db;
        db.put("a", "there").unwrap();
        db.delete("c").unwrap();
        db.delete_range("e", "f").unwrap();
        db.flush().unwrap();
        db.put("b", "there").unwrap();
        let all_keys = ["a", "b", "c", "d", "e", "f"];
        let entries: Vec<_> = all_keys.iter().map(|key| (*key, Some("old"))).collect();
        let file = write_file(&store, "/old.sst", &entries);
        let done = db.ingest(&[&file], &below()).unwrap();
        assert_eq!((done.seqno, done.files[0].level), (0, 6));
        let want = pairs(&[("a", "there"), ("b", "there"), ("d", "old"), ("f", "old")]);
        assert_eq!(all(&store), want, "{style:?}");
        assert_eq!(value(&store, "a").as_deref(), Some("there"));
        assert_eq!(value(&store, "c"), None);
        db.flush().unwrap();
        db.compact_range::<&[u8]>(..).unwrap();
        assert_eq!(all(&store), want, "{style:?}, merged");
        db.verify().unwrap();
        drop(store);
        let again = Store::open(self::options(&sim)).unwrap();
        assert_eq!(all(&again), want, "{style:?}, reopened");
    }
}

#[test]
fn below_existing_data_needs_room_in_the_last_level() {
    let sim = SimVfs::new(1);
    let store = store(&sim);
    let db = &store.db;
    let first = write_file(&store, "/1.sst", &[("a", Some("1")), ("z", Some("1"))]);
    db.ingest(&[&first], &above()).unwrap();
    // Above the last level, where nothing lies below "m".
    let second = write_file(&store, "/2.sst", &[("k", Some("there")), ("m", Some("there"))]);
    assert_eq!(db.ingest(&[&second], &above()).unwrap().files[0].level, 5);
    let file = write_file(&store, "/3.sst", &[("k", Some("old")), ("l", Some("old"))]);
    let error = db.ingest(&[&file], &below()).unwrap_err();
    assert!(matches!(&error, Error::InvalidArgument(text) if text.contains("last level")));
    assert_eq!(value(&store, "k").as_deref(), Some("there"));
    assert_eq!(value(&store, "l"), None);
    // Merged down, the existing key has the number 0 as well.
    let store = self::store(&SimVfs::new(2));
    let db = &store.db;
    let lower = write_file(&store, "/1.sst", &[("a", Some("lower")), ("b", Some("lower"))]);
    db.put("a", "upper").unwrap();
    db.flush().unwrap();
    db.ingest(&[&lower], &below()).unwrap();
    for _ in 0..3 {
        assert_eq!(all(&store), pairs(&[("a", "upper"), ("b", "lower")]));
        assert_eq!(scan(&store.families[0], &ReadOptions::default(), true).unwrap().len(), 2);
        db.compact_range::<&[u8]>(..).unwrap();
    }
}

#[test]
fn a_transaction_that_read_what_is_ingested_conflicts() {
    let sim = SimVfs::new(1);
    let store = store(&sim);
    let db = &store.db;
    db.put("read", "1").unwrap();
    for (name, entries) in [
        ("a key", vec![("read", Some("2"))]),
        ("a deletion", vec![("read", None)]),
        ("an absent key", vec![("absent", Some("2"))]),
        ("others", vec![("other", Some("2"))]),
    ] {
        let mut transaction = db.transaction();
        transaction.get("read").unwrap();
        transaction.get("absent").unwrap();
        transaction.put("written", name);
        let path = format!("/{}.sst", name.replace(' ', "-"));
        let file = write_file(&store, &path, &entries);
        db.ingest(&[&file], &above()).unwrap();
        // Something in the memtable that says nothing of the key.
        db.put("beside", "1").unwrap();
        match transaction.commit() {
            Err(Error::Conflict) => assert_ne!(name, "others"),
            result => assert!(name == "others" && result.is_ok(), "{name}: {result:?}"),
        }
    }
}

#[test]
fn hot_keys_give_way_to_what_is_ingested() {
    let sim = SimVfs::new(1);
    let mut options = options(&sim);
    options.advanced.hot_table = HotTableMode::Auto;
    let store = Store::open(options).unwrap();
    let db = &store.db;
    let heat = || {
        let mut round = 0u64;
        while db.metrics().hot_keys == 0 {
            round += 1;
            assert!(round < 400_000, "no hot table comes");
            db.put(key(round % 3), vec![b'h'; 50]).unwrap();
            if round.is_multiple_of(40) {
                db.put(key(100 + round % 1000), vec![b'c'; 50]).unwrap();
            }
        }
    };
    heat();
    let file = write_numbered(&store, "/1.sst", &[0, 1, 2], "ingested");
    db.ingest(&[&file], &above()).unwrap();
    for number in 0..3 {
        assert_eq!(db.get(key(number)).unwrap().as_deref(), Some(&b"ingested"[..]));
    }
    let held = sim.kill_image();
    db.put(key(1), "later").unwrap();
    assert_eq!(db.get(key(1)).unwrap().as_deref(), Some(&b"later"[..]));
    let again = self::store(&held);
    for number in 0..3 {
        assert_eq!(again.db.get(key(number)).unwrap().as_deref(), Some(&b"ingested"[..]));
    }
}

/// A reader that took the files of before must not see writes from after the ingestion without it.
#[test]
fn nobody_sees_what_came_after_an_ingestion_without_it() {
    let sim = SimVfs::new(1);
    let store = store(&sim);
    let db = &store.db;
    let over = AtomicBool::new(false);
    let reads = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Ordering::SeqCst) {
                    let seen = all(&store);
                    let number = |key: &str| {
                        let found = seen.iter().find(|(k, _)| k == key);
                        found.map_or(0, |(_, value)| value.parse::<u64>().unwrap())
                    };
                    let (before, ingested, after) = (number("a"), number("i"), number("z"));
                    let ordered = before >= ingested && ingested >= after && before <= after + 1;
                    assert!(ordered, "seen: {before}, then {ingested}, then {after}");
                    reads.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let _over = StopOnDrop(&over);
        let mut round = 0u64;
        while round < 150 || reads.load(Ordering::SeqCst) < 300 {
            round += 1;
            db.put("a", round.to_string()).unwrap();
            let text = round.to_string();
            let file = write_file(&store, &format!("/{round}.sst"), &[("i", Some(&text))]);
            let source = IngestSource::Move;
            db.ingest(&[&file], &IngestOptions { source, ..above() }).unwrap();
            db.put("z", round.to_string()).unwrap();
        }
    });
}

#[test]
fn writers_go_on_beside_ingestions() {
    let sim = SimVfs::new(1);
    let store = store(&sim);
    let db = &store.db;
    std::thread::scope(|scope| {
        for writer in 0..3u64 {
            scope.spawn(move || {
                for n in 0..400u64 {
                    db.put(format!("w{writer}-{:03}", n % 100), n.to_string()).unwrap();
                }
            });
        }
        for thread in 0..2u64 {
            let store = &store;
            scope.spawn(move || {
                for n in 0..30u64 {
                    let keys: Vec<String> = (0..20).map(|k| format!("i{thread}-{k:03}")).collect();
                    let text = n.to_string();
                    let entries: Vec<_> =
                        keys.iter().map(|key| (key.as_str(), Some(text.as_str()))).collect();
                    let file = write_file(store, &format!("/{thread}-{n}.sst"), &entries);
                    db.ingest(&[&file], &above()).unwrap();
                    let seen = db.get(format!("i{thread}-005")).unwrap().unwrap().to_vec();
                    assert_eq!(seen, n.to_string().into_bytes());
                }
            });
        }
    });
    db.verify().unwrap();
    let check = |store: &Store| {
        for writer in 0..3 {
            for n in 0..100 {
                let got = value(store, &format!("w{writer}-{n:03}"));
                assert_eq!(got, Some((300 + n).to_string()));
            }
        }
        for key in (0..2).flat_map(|t| (0..20).map(move |k| format!("i{t}-{k:03}"))) {
            assert_eq!(value(store, &key).as_deref(), Some("29"));
        }
    };
    check(&store);
    db.compact_range::<&[u8]>(..).unwrap();
    check(&store);
    let killed = sim.kill_image();
    drop(store);
    check(&self::store(&killed));
}

/// A family that is dropped, or a store that is closed, while files are being copied.
#[test]
fn a_family_that_goes_meanwhile_takes_no_files() {
    for position in [IngestPosition::Above, IngestPosition::Below] {
        let sim = SimVfs::new(1);
        let store = store(&sim);
        store.db.create_column_family("gone", CfOptions::default()).unwrap();
        let gone = store.db.column_family("gone").unwrap();
        let file = write_file(&store, "/1.sst", &[("a", Some("1"))]);
        let db = store.db.clone();
        at_step("ingest:copied", move || db.drop_column_family("gone").unwrap());
        let result = gone.ingest(&[&file], &IngestOptions { position, ..above() });
        assert!(matches!(result, Err(Error::NoSuchFamily(_))), "{result:?}");
        store.db.close().unwrap();
        assert_eq!(left_over(&sim, Path::new(DIR)).unwrap(), [""; 0]);
    }
}

#[test]
fn close_waits_for_the_files_of_an_ingestion() {
    let sim = SimVfs::new(1);
    let store = store(&sim);
    let file = write_file(&store, "/1.sst", &[("a", Some("1"))]);
    let db = store.db.clone();
    let begun = Arc::new(AtomicBool::new(false));
    let (closing, image) = (begun.clone(), sim.clone());
    let closer = Arc::new(std::sync::Mutex::new(None));
    let started = closer.clone();
    at_step("ingest:copied", move || {
        let close = std::thread::spawn(move || {
            closing.store(true, Ordering::SeqCst);
            db.close().unwrap();
            // An open from now on finds no file that is still being written.
            left_over(&image, Path::new(DIR)).unwrap()
        });
        *started.lock().unwrap() = Some(close);
    });
    let result = store.db.ingest(&[&file], &above());
    eventually("the close begins", || begun.load(Ordering::SeqCst));
    let left = closer.lock().unwrap().take().unwrap().join().unwrap();
    assert_eq!(left, [""; 0]);
    let again = self::store(&sim);
    match result {
        Ok(_) => assert_eq!(all(&again).len(), 1),
        Err(error) => assert!(matches!(error, Error::Closed), "{error:?}"),
    }
}

#[test]
fn checkpoints_readers_and_repair_know_ingested_files() {
    let sim = SimVfs::new(1);
    let store = store(&sim);
    let db = &store.db;
    db.put("a", "old").unwrap();
    db.put("b", "old").unwrap();
    let file = write_file(&store, "/1.sst", &[("b", Some("new")), ("c", Some("new"))]);
    db.ingest(&[&file], &above()).unwrap();
    let reader = Store::open_read_only(options(&sim)).unwrap();
    db.put("c", "newer").unwrap();
    let want = pairs(&[("a", "old"), ("b", "new"), ("c", "newer")]);
    assert_eq!(all(&reader), pairs(&[("a", "old"), ("b", "new"), ("c", "new")]));
    let more = write_file(&store, "/2.sst", &[("d", Some("new"))]);
    db.ingest(&[&more], &above()).unwrap();
    reader.db.refresh().unwrap();
    assert_eq!(all(&reader).len(), 4);
    drop(reader);
    let want = [want, pairs(&[("d", "new")])].concat();
    db.checkpoint("/checkpoint").unwrap();
    let copy = Db::open_read_only("/checkpoint", options(&sim)).unwrap();
    assert_eq!(all(&Store::of(copy.clone())), want);
    copy.verify().unwrap();
    drop(copy);
    // A store of which the manifest is lost: the files say what they are.
    let broken = sim.kill_image();
    drop(store);
    for (path, _) in broken.files() {
        let name = path.file_name().unwrap().to_str().unwrap().to_string();
        if path.starts_with(DIR) && (name.starts_with("MANIFEST") || name == "CURRENT") {
            broken.remove(&path).unwrap();
        }
    }
    let repair = terrace::RepairOptions::default();
    terrace::repair(DIR, options(&broken), repair).unwrap();
    assert_eq!(all(&self::store(&broken)), want);
}

/// Random ingestions between random writes, read in every way, against the model.
#[test]
fn random_ingestions_agree_with_the_model() {
    over_seeds("ingestions", effort(12), |seed, _| {
        let sim = SimVfs::new(seed);
        let clock = stopped_clock();
        let mut options = small_options(Arc::new(sim), &clock);
        crate::harness::draw_separation(
            &mut options,
            &mut terrace_base::rng::SplitMix64::new(seed),
        );
        let mix = Mix { keys: 80, maintain_one_in: 12, ..Mix::default() };
        let generator = Generator::new(seed, mix, &clock);
        let mut run = Run::new(options, &clock, generator, Arc::default());
        for _ in 0..250 {
            if run.generator.rng.one_in(6) {
                let (family, files) = run.generator.ingestion(mix);
                run.ingest(family, &files);
                run.read();
            } else {
                run.step();
            }
        }
        let want = run.state.contents(clock.now_ms());
        let keys = run.generator.universe();
        run.store.compare(&want, &keys).unwrap().unwrap();
        run.store.db.verify().unwrap();
        1
    });
}
