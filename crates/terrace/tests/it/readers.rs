//! Read-only stores beside a writer: what they see is a prefix of what was acknowledged, at least
//! as new as when they were opened, whatever the writer does meanwhile; and it stays readable.
//!
//! The history is a chain: batch `n` sets every member key, of both families, to `n`, adds the key
//! `entry n`, adds `short n` and deletes the `short` of [`SHORT_LIVED`] batches before. A reader that
//! sees batch `n` sees all members at `n`, the entries 1 to `n` without a hole, and as many `short`
//! keys as there are to be.

mod beside;
mod interposed;

use crate::harness::{DIR, eventually, small_options, stopped_clock};
use crate::held::{COMPACTION, Held};
use crate::left_over::left_over;
use interposed::{ActBefore, Step};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace::vfs::{SimVfs, Vfs};
use terrace::{
    CfOptions, ColumnFamily, CompactionFilter, Db, Error, FilterContext, FilterDecision,
    FilterEntry, FilterError, FilterJob, IngestOptions, Options, ReadOptions, Snapshot, SstWriter,
    WriteBatch,
};

/// Keys that every batch sets in every family.
const MEMBERS: u64 = 3;
/// Batches that a `short` key lives for.
const SHORT_LIVED: u64 = 4;

fn member(n: u64) -> Vec<u8> {
    format!("member {n}").into_bytes()
}

fn entry(n: u64) -> Vec<u8> {
    format!("entry {n:08}").into_bytes()
}

fn short(n: u64) -> Vec<u8> {
    format!("short {n:08}").into_bytes()
}

/// A value that is separated for one batch in three.
fn value(batch: u64) -> Vec<u8> {
    let mut value = vec![b'.'; if batch.is_multiple_of(3) { 1500 } else { 100 }];
    value[..8].copy_from_slice(&batch.to_be_bytes());
    value
}

fn batch_of(value: &[u8]) -> u64 {
    u64::from_be_bytes(value[..8].try_into().unwrap())
}

/// The writer of the chain.
struct Writer {
    db: Db,
    second: ColumnFamily,
    acknowledged: Arc<AtomicU64>,
}

impl Writer {
    fn open(dir: &Path, options: Options) -> Self {
        let db = Db::open(dir, options).unwrap();
        let second = db.column_family("second").unwrap();
        Self { db, second, acknowledged: Arc::default() }
    }

    fn write(&self, batches: u64) {
        for _ in 0..batches {
            let n = self.acknowledged() + 1;
            let mut batch = WriteBatch::new();
            for m in 0..MEMBERS {
                batch.put(member(m), value(n));
                batch.put_cf(&self.second, member(m), value(n));
            }
            batch.put(entry(n), value(n));
            batch.put(short(n), value(n));
            if n > SHORT_LIVED {
                batch.delete(short(n - SHORT_LIVED));
            }
            self.db.write(batch).unwrap();
            self.acknowledged.store(n, Ordering::SeqCst);
        }
    }

    /// Makes the log segments, SSTs and value segments that there were go away.
    fn replace_all_files(&self) {
        self.write(10);
        self.db.flush().unwrap();
        self.db.compact_range::<&[u8]>(..).unwrap();
        self.second.compact_range::<&[u8]>(..).unwrap();
        self.db.collect_garbage(0.0).unwrap();
        self.db.wait_idle().unwrap();
    }

    fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::SeqCst)
    }
}

/// Options for the chain.
fn options(vfs: Arc<dyn Vfs>) -> Options {
    let mut options = small_options(vfs, &stopped_clock());
    options.column_families = vec![("second".into(), CfOptions::default())];
    options
}

fn sim_options(sim: &SimVfs) -> Options {
    options(Arc::new(sim.clone()))
}

fn at(snapshot: &Snapshot) -> ReadOptions {
    ReadOptions { snapshot: Some(snapshot.clone()), ..ReadOptions::default() }
}

/// The newest batch that `db` shows at a snapshot, after a check that it shows exactly the batches up
/// to it.
fn seen_at(db: &Db, snapshot: &Snapshot) -> Result<u64, Error> {
    let read = at(snapshot);
    let newest = db.get_with(member(0), &read)?.map_or(0, |value| batch_of(&value));
    let (mut entries, mut members, mut shorts) = (0, 0, 0);
    for found in db.iter_with(&read)?.entries() {
        let (key, value) = found?;
        if key.starts_with(b"member") {
            assert_eq!(batch_of(&value), newest, "the members are not of one batch");
            members += 1;
        } else if key.starts_with(b"short") {
            shorts += 1;
            assert!(batch_of(&value) + SHORT_LIVED > newest, "a deleted key is back");
        } else {
            entries += 1;
            assert_eq!(key, entry(entries), "a hole in the history up to {newest}");
            assert_eq!(batch_of(&value), entries);
        }
    }
    assert_eq!(entries, newest, "the history ends too early");
    assert_eq!((members, shorts), (MEMBERS * newest.min(1), newest.min(SHORT_LIVED)));
    let second = db.column_family("second").unwrap();
    let keys: Vec<Vec<u8>> = (0..MEMBERS).map(member).collect();
    for value in second.multi_get_with(&keys, &read)? {
        assert_eq!(value.map_or(0, |value| batch_of(&value)), newest, "the families differ");
    }
    Ok(newest)
}

fn seen(db: &Db) -> Result<u64, Error> {
    seen_at(db, &db.snapshot())
}

/// As [`seen`], of a reader without a pin: the writer may remove what it shows at any time, since
/// collection may begin by itself. The reader says so, and is refreshed.
fn seen_unpinned(db: &Db) -> u64 {
    for _ in 0..100 {
        match seen(db) {
            Err(Error::Outdated(_)) => drop(db.refresh().unwrap()),
            other => return other.unwrap(),
        }
    }
    panic!("the writer does not stop to replace its files");
}

/// Opens read-only while the writer acts just before a call of the reader. What the writer does by
/// itself afterwards is waited for: without locks it may remove what the reader shows.
fn open_while(before: Step, locks: bool, times: u64, act: fn(&Writer)) {
    let sim = SimVfs::new(1);
    let writer = Arc::new(Writer::open(DIR.as_ref(), sim_options(&sim)));
    writer.write(30);
    writer.db.flush().unwrap();
    writer.write(20);
    let floor = writer.acknowledged();
    let (acting, disk) = (writer.clone(), sim.clone());
    let vfs = ActBefore::new(&sim, locks, before, times, move || {
        act(&acting);
        acting.db.wait_idle().unwrap();
        if !locks {
            nothing_obsolete_is_left(&disk);
        }
    });
    let reader = Db::open_read_only(DIR, options(vfs.clone())).unwrap();
    assert_eq!(vfs.left(), 0, "the writer did not act");
    let newest = if locks { seen(&reader).unwrap() } else { seen_unpinned(&reader) };
    assert!(newest >= floor, "{newest} of {floor} acknowledged before");
}

/// Waits until what is obsolete is gone: a thread that has ended its job may still hold a file for a moment.
fn nothing_obsolete_is_left(sim: &SimVfs) {
    eventually("what is obsolete goes", || {
        left_over(sim, DIR.as_ref()).is_ok_and(|names| names.is_empty())
    });
}

fn flush(writer: &Writer) {
    writer.write(1);
    writer.db.flush().unwrap();
}

#[test]
fn a_flush_between_the_manifest_and_the_listing_leaves_no_hole() {
    for locks in [false, true] {
        open_while(Step::ListAfterManifest, locks, 1, flush);
        open_while(Step::ListAfterManifest, locks, 1, Writer::replace_all_files);
    }
    open_while(Step::ListAfterManifest, false, 3, Writer::replace_all_files);
}

#[test]
fn a_flush_between_the_listing_and_the_log_leaves_no_hole() {
    for locks in [false, true] {
        open_while(Step::OpenLog, locks, 1, flush);
        open_while(Step::OpenLog, locks, 1, Writer::replace_all_files);
    }
    open_while(Step::OpenLog, false, 3, Writer::replace_all_files);
}

#[test]
fn a_manifest_that_is_replaced_while_it_is_opened_is_read_again() {
    for locks in [false, true] {
        let sim = SimVfs::new(1);
        let writer = Writer::open(DIR.as_ref(), sim_options(&sim));
        writer.write(30);
        drop(writer);
        let acting = sim.clone();
        // Every open of the store begins a new manifest.
        let act = move || Db::open(DIR, sim_options(&acting)).unwrap().close().unwrap();
        let vfs = ActBefore::new(&sim, locks, Step::OpenManifest, 3, act);
        let reader = Db::open_read_only(DIR, options(vfs.clone())).unwrap();
        assert_eq!(vfs.left(), 0, "the writer did not act");
        assert_eq!(seen(&reader).unwrap(), 30);
    }
}

/// What the log shows of a moment, the families show as well: no batch is there in parts because one
/// of its families is not yet known, and none without the drop of a family before it.
#[test]
fn a_family_that_comes_or_goes_during_an_open_does_so_before_the_writes_that_follow() {
    for before in [Step::ListAfterManifest, Step::OpenLog] {
        for drops in [false, true] {
            let sim = SimVfs::new(9);
            let writer = Arc::new(Writer::open(DIR.as_ref(), sim_options(&sim)));
            writer.write(3);
            let create = |db: &Db| db.create_column_family("passing", CfOptions::default());
            if drops {
                create(&writer.db).unwrap();
            }
            let acting = writer.clone();
            let act = move || {
                match drops {
                    true => acting.db.drop_column_family("passing").unwrap(),
                    false => drop(create(&acting.db).unwrap()),
                }
                acting.write(1);
            };
            let vfs = ActBefore::new(&sim, true, before, 1, act);
            let reader = Db::open_read_only(DIR, options(vfs.clone())).unwrap();
            assert_eq!(vfs.left(), 0, "the writer did not act");
            let (newest, is_there) =
                (seen(&reader).unwrap(), reader.column_family("passing").is_some());
            assert_eq!(newest > 3, is_there != drops, "{newest} batches, the family: {is_there}");
        }
    }
}

/// What was ingested before a write is shown with it, although the log, which shows the write, does not have what
/// was ingested.
#[test]
fn files_that_are_ingested_during_an_open_come_before_the_writes_that_follow() {
    for before in [Step::ListAfterManifest, Step::OpenLog] {
        let sim = SimVfs::new(9);
        let writer = Arc::new(Writer::open(DIR.as_ref(), sim_options(&sim)));
        writer.write(3);
        let (acting, disk) = (writer.clone(), sim.clone());
        let act = move || {
            let path = Path::new("/outside.sst");
            let cf_options = CfOptions::default();
            let mut file = SstWriter::create_on(Arc::new(disk.clone()), path, &cf_options).unwrap();
            file.put(b"ingested", b"1").unwrap();
            file.finish().unwrap();
            acting.second.ingest(&[path], &IngestOptions::default()).unwrap();
            acting.second.put(b"later", b"2").unwrap();
        };
        let vfs = ActBefore::new(&sim, true, before, 1, act);
        let reader = Db::open_read_only(DIR, options(vfs.clone())).unwrap();
        assert_eq!(vfs.left(), 0, "the writer did not act");
        let second = reader.column_family("second").unwrap();
        let is_there = |key: &str| second.get(key).unwrap().is_some();
        assert_eq!(is_there("ingested"), is_there("later"), "before {before:?}");
        reader.refresh().unwrap();
        assert!(is_there("ingested") && is_there("later"));
    }
}

/// Without a pin there is no promise but this: a clear error, and never a hole.
#[test]
fn a_reader_that_loses_every_race_says_so() {
    let sim = SimVfs::new(1);
    let writer = Arc::new(Writer::open(DIR.as_ref(), sim_options(&sim)));
    writer.write(30);
    let (acting, disk) = (writer.clone(), sim.clone());
    let act = move || {
        acting.replace_all_files();
        nothing_obsolete_is_left(&disk);
    };
    let vfs = ActBefore::new(&sim, false, Step::ListAfterManifest, u64::MAX, act);
    match Db::open_read_only(DIR, options(vfs)) {
        Err(Error::Outdated(_)) => {}
        other => panic!("{:?}", other.map(|db| seen(&db))),
    }
    // One that is open, and whose files go, says so too, and can be refreshed.
    let vfs = ActBefore::new(&sim, false, Step::OpenSst, 0, || {});
    let reader = Db::open_read_only(DIR, options(vfs)).unwrap();
    writer.replace_all_files();
    nothing_obsolete_is_left(&sim);
    assert!(matches!(seen(&reader), Err(Error::Outdated(_))), "{:?}", seen(&reader));
    assert!(reader.refresh().unwrap());
    assert_eq!(seen_unpinned(&reader), writer.acknowledged());
}

#[test]
fn an_open_reader_keeps_what_it_shows_and_lets_go_of_it() {
    let sim = SimVfs::new(2);
    let writer = Writer::open(DIR.as_ref(), sim_options(&sim));
    writer.write(40);
    writer.db.flush().unwrap();
    writer.write(3);
    let first = writer.acknowledged();
    // Nothing of it is read yet.
    let reader = Db::open_read_only(DIR, sim_options(&sim)).unwrap();
    let snapshot = reader.snapshot();
    let iter = reader.iter().unwrap();
    for _ in 0..3 {
        writer.replace_all_files();
    }
    assert!(writer.db.metrics().reader_pinned_bytes > 0);
    assert_eq!(seen(&reader).unwrap(), first);
    assert!(reader.refresh().unwrap());
    assert!(!reader.refresh().unwrap(), "nothing was written since");
    assert_eq!(seen(&reader).unwrap(), writer.acknowledged());
    assert_eq!(seen_at(&reader, &snapshot).unwrap(), first);
    let entries = iter.entries().map(Result::unwrap).filter(|(key, _)| key.starts_with(b"entry"));
    assert_eq!(entries.count() as u64, first);
    drop(snapshot);
    writer.replace_all_files();
    reader.refresh().unwrap();
    writer.write(1);
    reader.refresh().unwrap();
    drop(reader);
    writer.replace_all_files();
    let metrics = writer.db.metrics();
    assert_eq!((metrics.reader_pinned_files, metrics.reader_pinned_bytes), (0, 0));
}

/// What one reader lets go of last, another may still read.
#[test]
fn a_reader_that_is_closed_removes_no_file() {
    let sim = SimVfs::new(10);
    let writer = Writer::open(DIR.as_ref(), sim_options(&sim));
    writer.write(40);
    writer.db.flush().unwrap();
    writer.write(3);
    let first = writer.acknowledged();
    let one = Db::open_read_only(DIR, sim_options(&sim)).unwrap();
    let other = Db::open_read_only(DIR, sim_options(&sim)).unwrap();
    let iters = (one.iter().unwrap(), one.column_family("second").unwrap().iter().unwrap());
    writer.replace_all_files();
    // A writer that is open removes what waited, at a time of its own.
    writer.db.close().unwrap();
    assert!(one.refresh().unwrap());
    let files = |sim: &SimVfs| sim.files().into_iter().map(|(path, _)| path).collect::<Vec<_>>();
    let before = files(&sim);
    drop(iters);
    one.close().unwrap();
    drop(one);
    assert_eq!(files(&sim), before);
    assert_eq!(seen(&other).unwrap(), first);
}

/// A reader that is closed holds nothing, though a handle of it is left.
#[test]
fn a_closed_reader_holds_nothing() {
    let sim = SimVfs::new(3);
    let writer = Writer::open(DIR.as_ref(), sim_options(&sim));
    writer.write(40);
    writer.db.flush().unwrap();
    let reader = Db::open_read_only(DIR, sim_options(&sim)).unwrap();
    let handle = reader.column_family("second").unwrap();
    reader.close().unwrap();
    writer.replace_all_files();
    assert_eq!(writer.db.metrics().reader_pinned_files, 0);
    assert!(matches!(handle.get(member(0)), Err(Error::Closed)));
    assert!(matches!(reader.refresh(), Err(Error::Closed)));
}

#[test]
fn what_readers_pin_has_the_configured_bound() {
    let sim = SimVfs::new(4);
    let mut options = sim_options(&sim);
    options.advanced.max_reader_pinned_bytes = Some(0);
    let writer = Writer::open(DIR.as_ref(), options);
    writer.write(40);
    writer.db.flush().unwrap();
    let reader = Db::open_read_only(DIR, sim_options(&sim)).unwrap();
    writer.replace_all_files();
    assert_eq!(writer.db.metrics().reader_pinned_bytes, 0);
    nothing_obsolete_is_left(&sim);
    assert!(matches!(seen(&reader), Err(Error::Outdated(_))));
    assert!(reader.refresh().unwrap());
    assert_eq!(seen_unpinned(&reader), writer.acknowledged());
}

/// A writer that starts anew minds the readers of the one before, and removes what they held.
#[test]
fn a_reader_outlives_its_writer() {
    let sim = SimVfs::new(5);
    let writer = Writer::open(DIR.as_ref(), sim_options(&sim));
    writer.write(40);
    writer.db.flush().unwrap();
    writer.write(5);
    let reader = Db::open_read_only(DIR, sim_options(&sim)).unwrap();
    writer.replace_all_files();
    let before = writer.acknowledged();
    drop(writer);
    let next = Writer::open(DIR.as_ref(), sim_options(&sim));
    next.acknowledged.store(before, Ordering::SeqCst);
    next.replace_all_files();
    assert_eq!(seen(&reader).unwrap(), 45);
    assert!(reader.refresh().unwrap());
    assert_eq!(seen(&reader).unwrap(), next.acknowledged());
    drop(reader);
    next.db.close().unwrap();
    drop(next);
    let last = Writer::open(DIR.as_ref(), sim_options(&sim));
    last.db.close().unwrap();
    assert_eq!(left_over(&sim, DIR.as_ref()).unwrap(), [""; 0]);
}

#[test]
fn families_come_and_go_with_a_refresh() {
    let sim = SimVfs::new(6);
    let writer = Writer::open(DIR.as_ref(), sim_options(&sim));
    writer.write(3);
    let early = writer.db.create_column_family("early", CfOptions::default()).unwrap();
    early.put(b"k", vec![1; 3000]).unwrap();
    writer.db.flush().unwrap();
    let reader = Db::open_read_only(DIR, sim_options(&sim)).unwrap();
    let early_there = reader.column_family("early").unwrap();
    let iter = early_there.iter().unwrap();
    let late = writer.db.create_column_family("late", CfOptions::default()).unwrap();
    late.put(b"k", b"in the log").unwrap();
    writer.db.drop_column_family("early").unwrap();
    writer.replace_all_files();
    assert!(reader.column_family("late").is_none());
    assert_eq!(early_there.get(b"k").unwrap().as_deref(), Some(&[1; 3000][..]));
    assert!(reader.refresh().unwrap());
    assert!(reader.column_family("early").is_none());
    let late_there = reader.column_family("late").unwrap();
    assert_eq!(late_there.get(b"k").unwrap().as_deref(), Some(&b"in the log"[..]));
    assert!(matches!(early_there.iter(), Err(Error::NoSuchFamily(_))));
    // What began before goes on.
    assert_eq!(iter.entries().map(|e| e.unwrap().1).collect::<Vec<_>>(), [vec![1; 3000]]);
    drop(early_there);
    reader.refresh().unwrap();
    writer.replace_all_files();
    assert_eq!(seen(&reader).unwrap() + 10, writer.acknowledged());
}

/// With [`SyncMode::Buffered`](terrace::SyncMode::Buffered) an install may say how far the writer
/// has come before the log, which holds its end back, shows it.
#[test]
fn a_refresh_tells_of_writes_that_the_log_held_back_from_an_install() {
    let held = Held::new(COMPACTION);
    let mut roomy = options(held.clone());
    roomy.advanced.memtable_bytes = 1 << 20;
    let writer = Writer::open(DIR.as_ref(), roomy);
    let _lets_go = held.let_go_on_drop();
    for _ in 0..2 {
        writer.write(2);
        writer.db.flush().unwrap();
    }
    let newest_log = || {
        let logs = held.sim.files().into_iter().map(|(path, _)| path);
        let log = logs
            .filter(|path| path.extension().is_some_and(|ending| ending == "log"))
            .max()
            .unwrap();
        let bytes = held.sim.read_file(&log).unwrap();
        (log, bytes)
    };
    let (log, early) = newest_log();
    writer.write(2);
    held.let_go();
    eventually("files are merged", || writer.db.metrics().compactions > 0);
    writer.db.wait_idle().unwrap();
    let (same_log, late) = newest_log();
    assert_eq!(log, same_log);
    let killed = held.sim.kill_image();
    assert!(killed.write_file(&log, &early));
    let reader = Db::open_read_only(DIR, sim_options(&killed)).unwrap();
    let before = reader.snapshot();
    assert_eq!(seen(&reader).unwrap(), 4, "the newest two are in no file");
    assert!(killed.write_file(&log, &late));
    assert!(reader.refresh().unwrap(), "there is something new");
    assert_eq!(seen(&reader).unwrap(), 6);
    assert_eq!(seen_at(&reader, &before).unwrap(), 4);
    assert!(!reader.refresh().unwrap());
}

/// Removes what begins with `-`.
struct Removes(FilterJob);

impl CompactionFilter for Removes {
    fn name(&self) -> &str {
        "removes"
    }

    fn filter(
        &self,
        _: &FilterContext,
        entry: &FilterEntry<'_>,
    ) -> Result<FilterDecision, FilterError> {
        Ok(match entry.value()?.first() {
            Some(b'-') => FilterDecision::Remove,
            _ => FilterDecision::Keep,
        })
    }

    fn applies_to(&self, job: &FilterContext) -> bool {
        job.job == self.0
    }
}

#[test]
fn a_refresh_tells_of_what_only_a_compaction_filter_has_changed() {
    for job in [FilterJob::Flush, FilterJob::Compaction] {
        let sim = SimVfs::new(1);
        let mut with_filter = sim_options(&sim);
        with_filter.default_family.compaction_filter = Some(Arc::new(Removes(job)));
        // The filter is applied after the first look.
        with_filter.advanced.compact_when_idle = false;
        let writer = Db::open(DIR, with_filter).unwrap();
        writer.put("goes", "-").unwrap();
        writer.put("stays", "+").unwrap();
        if job == FilterJob::Compaction {
            writer.flush().unwrap();
        }
        let reader = Db::open_read_only(DIR, sim_options(&sim)).unwrap();
        let seen = || ["goes", "stays"].map(|key| reader.get(key).unwrap().is_some());
        assert_eq!(seen(), [true, true], "{job:?}");
        match job {
            FilterJob::Flush => writer.flush().unwrap(),
            _ => writer.compact_range::<&[u8]>(..).unwrap(),
        }
        assert!(reader.refresh().unwrap(), "{job:?}");
        assert_eq!(seen(), [false, true], "{job:?}");
        assert!(!reader.refresh().unwrap(), "{job:?}");
    }
}

#[test]
fn a_refresh_that_fails_leaves_what_was_shown() {
    let sim = SimVfs::new(7);
    let writer = Writer::open(DIR.as_ref(), sim_options(&sim));
    writer.write(20);
    let mut options = sim_options(&sim);
    options.memory_budget = 4 << 20;
    let reader = Db::open_read_only(DIR, options).unwrap();
    writer.write(20);
    writer.db.flush().unwrap();
    let current = Path::new(DIR).join("CURRENT");
    let content = sim.read_file(&current).unwrap();
    assert!(sim.corrupt(&current, 3, 1));
    assert!(matches!(reader.refresh(), Err(Error::Corruption(_))));
    assert_eq!(seen(&reader).unwrap(), 20);
    assert!(sim.write_file(&current, content));
    assert!(reader.refresh().unwrap());
    assert_eq!(seen(&reader).unwrap(), 40);
    assert!(!writer.db.refresh().unwrap(), "a writer is always up to date");
}

/// The log that a reader replays is held to its memory budget.
#[test]
fn a_log_that_does_not_fit_a_readers_memory_is_refused() {
    let sim = SimVfs::new(8);
    let mut options = sim_options(&sim);
    options.memory_budget = 64 << 20;
    options.advanced.memtable_bytes = 16 << 20;
    let db = Db::open(DIR, options.clone()).unwrap();
    for n in 0..5000u64 {
        db.put(entry(n), [7; 900]).unwrap();
    }
    options.advanced.memtable_bytes = 0;
    let whole = Db::open_read_only(DIR, options.clone()).unwrap();
    assert_eq!(whole.iter().unwrap().entries().count(), 5000);
    options.memory_budget = 4 << 20;
    match Db::open_read_only(DIR, options) {
        Err(Error::InvalidArgument(why)) => assert!(why.contains("memory_budget"), "{why}"),
        other => panic!("{:?}", other.map(|_| ())),
    }
}
