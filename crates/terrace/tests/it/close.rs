//! What `Db::close` promises while other threads use the store: every write that was acknowledged is durable, all
//! later calls say that the store is closed, and nobody writes to the directory any more.

use crate::harness::{
    DIR, at_step, effort, eventually, key, over_seeds, small_options, stopped_clock,
};
use crate::left_over::left_over;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use terrace::vfs::{SimVfs, Vfs};
use terrace::{BulkOptions, Db, Error, EventListener, FlushEnded, Options, SyncMode, WriteOptions};
use terrace_base::rng::{Rng, SplitMix64};
use terrace_vfs::{Call, Interposed};

const MODES: [SyncMode; 4] = [
    SyncMode::Buffered,
    SyncMode::None,
    SyncMode::Interval(Duration::from_secs(3600)),
    SyncMode::Batch,
];

fn options(vfs: Arc<dyn Vfs>, sync: SyncMode) -> Options {
    let mut options = small_options(vfs, &stopped_clock());
    options.column_families.clear();
    options.sync = sync;
    options.memory_budget = 16 << 20;
    options
}

fn open(sim: &SimVfs, sync: SyncMode) -> Db {
    Db::open(DIR, options(Arc::new(sim.clone()), sync)).unwrap()
}

/// What is to be done before a call of the file system, and before which one.
type Act = (fn(&Call<'_>, &Path) -> bool, Box<dyn FnOnce() + Send>);

/// A file system that does something just before a certain call, by the thread that calls.
#[derive(Clone)]
struct Before {
    sim: SimVfs,
    act: Arc<Mutex<Option<Act>>>,
}

impl Before {
    fn new(seed: u64) -> Self {
        Self { sim: SimVfs::new(seed), act: Arc::default() }
    }

    fn open(&self) -> Db {
        Db::open(DIR, options(Arc::new(self.clone()), SyncMode::None)).unwrap()
    }

    fn set(&self, call: fn(&Call<'_>, &Path) -> bool, act: impl FnOnce() + Send + 'static) {
        *self.act.lock().unwrap() = Some((call, Box::new(act)));
    }

    fn has_acted(&self) -> bool {
        self.act.lock().unwrap().is_none()
    }
}

impl Interposed for Before {
    type Files = SimVfs;

    fn files(&self) -> &SimVfs {
        &self.sim
    }

    fn around<T>(
        &self,
        call: Call<'_>,
        path: &Path,
        work: impl FnOnce() -> terrace_base::Result<T>,
    ) -> terrace_base::Result<T> {
        let act = self.act.lock().unwrap().take_if(|(is_it, _)| is_it(&call, path));
        if let Some((_, act)) = act {
            act();
        }
        work()
    }
}

fn has_ending(path: &Path, ending: &str) -> bool {
    path.extension().is_some_and(|of_path| of_path == ending)
}

#[test]
fn a_write_at_any_step_of_a_close_is_durable_or_refused() {
    for (sync, step) in
        MODES.into_iter().flat_map(|mode| [(mode, "close:flushed"), (mode, "close:stopped")])
    {
        let sim = SimVfs::new(1);
        let db = open(&sim, sync);
        db.put(key(0), "before").unwrap();
        let meanwhile = db.clone();
        at_step(step, move || meanwhile.put(key(1), "meanwhile").unwrap());
        db.close().unwrap();
        assert!(matches!(db.put(key(2), "after"), Err(Error::Closed)));
        // What is not synced survives one power cut or another by luck, but not all of them.
        for seed in 0..16 {
            let after = open(&sim.crash_image(seed), sync);
            for (number, want) in [(0, true), (1, true), (2, false)] {
                let is_there = after.get(key(number)).unwrap().is_some();
                assert_eq!(is_there, want, "{sync:?}, {step}: write {number}");
            }
        }
        assert!(matches!(db.sync(), Err(Error::Closed)));
        let durable = WriteOptions { sync: Some(SyncMode::Batch) };
        let nothing = terrace::WriteBatch::new();
        assert!(matches!(db.write_with(nothing, &durable), Err(Error::Closed)));
    }
}

/// Threads write until they hear that the store is closed.
#[test]
fn what_threads_wrote_until_a_close_is_durable() {
    const WRITERS: usize = 3;
    over_seeds("writers while the store closes", effort(60), |seed, _| {
        let mut rng = SplitMix64::new(seed);
        let sim = SimVfs::new(seed);
        let sync = MODES[rng.below(4) as usize];
        let db = open(&sim, sync);
        let done: [AtomicU64; WRITERS] = Default::default();
        let name = |writer: usize, number: u64| format!("{writer}-{number:06}");
        let close_at = rng.below(60);
        std::thread::scope(|scope| {
            for (writer, done) in done.iter().enumerate() {
                let db = &db;
                scope.spawn(move || {
                    loop {
                        let number = done.load(Ordering::Relaxed);
                        match db.put(name(writer, number), vec![b'v'; 50 + number as usize % 300]) {
                            Ok(()) => done.store(number + 1, Ordering::Relaxed),
                            Err(error) => {
                                assert!(matches!(error, Error::Closed), "{error:?}");
                                break;
                            }
                        }
                    }
                });
            }
            let written = || done.iter().map(|done| done.load(Ordering::Relaxed)).sum::<u64>();
            eventually("there are writes", || written() >= close_at);
            db.close().unwrap();
        });
        let after = open(&sim.crash_image(seed), sync);
        for (writer, done) in done.iter().enumerate() {
            let done = done.load(Ordering::Relaxed);
            for number in 0..=done {
                let is_there = after.get(name(writer, number)).unwrap().is_some();
                assert_eq!(is_there, number < done, "{sync:?}: write {number} of {done}");
            }
        }
        1
    });
}

#[test]
fn a_second_close_waits_for_the_first() {
    let sim = SimVfs::new(1);
    let db = open(&sim, SyncMode::None);
    db.put("k", "v").unwrap();
    let (begun, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let second = Arc::new(Mutex::new(None));
    let (other, started, files) = (db.clone(), second.clone(), sim.clone());
    at_step("close:flushed", move || {
        let (begins, ends) = (begun.clone(), ended.clone());
        *started.lock().unwrap() = Some(std::thread::spawn(move || {
            begins.store(true, Ordering::SeqCst);
            other.close().unwrap();
            ends.store(true, Ordering::SeqCst);
            // The directory is free by now.
            Db::open(DIR, options(Arc::new(files), SyncMode::None)).map(drop)
        }));
        eventually("the second close begins", || begun.load(Ordering::SeqCst));
        // It has time to return too early.
        (0..1000).for_each(|_| std::thread::yield_now());
        assert!(!ended.load(Ordering::SeqCst), "it has returned before the first");
    });
    db.close().unwrap();
    second.lock().unwrap().take().unwrap().join().unwrap().unwrap();
}

/// It calls `close` while it handles a flush.
#[derive(Default)]
struct Closes {
    db: OnceLock<Db>,
    outcome: Mutex<Option<terrace::Result<()>>>,
}

impl EventListener for Closes {
    fn on_flush_ended(&self, _: &FlushEnded) {
        *self.outcome.lock().unwrap() = self.db.get().map(Db::close);
    }
}

#[test]
fn a_listener_may_close_the_store_while_another_thread_does() {
    let sim = SimVfs::new(1);
    let listener = Arc::new(Closes::default());
    let mut options = options(Arc::new(sim), SyncMode::None);
    options.advanced.event_listeners = vec![listener.clone()];
    let db = Db::open(DIR, options).unwrap();
    db.put("k", "v").unwrap();
    // The close itself flushes, and waits until the listener has returned.
    assert!(listener.db.set(db.clone()).is_ok());
    db.close().unwrap();
    assert!(matches!(*listener.outcome.lock().unwrap(), Some(Ok(()))));
}

fn load(db: &Db) -> terrace::Result<terrace::Ingested> {
    let mut loader =
        db.bulk_loader(&BulkOptions { memory_bytes: 1 << 20, ..Default::default() })?;
    for n in 0..20_000 {
        loader.put(format!("{:06}", n * 7919 % 20_000), [1; 100])?;
    }
    loader.finish()
}

fn is_temp_file(call: &Call<'_>, path: &Path) -> bool {
    matches!(call, Call::Create) && has_ending(path, "tmp")
}

#[test]
fn a_close_removes_the_files_of_a_load_that_is_not_finished() {
    let sim = SimVfs::new(1);
    let db = open(&sim, SyncMode::None);
    let small = BulkOptions { memory_bytes: 1 << 20, ..Default::default() };
    let mut loader = db.bulk_loader(&small).unwrap();
    for n in 0..20_000 {
        loader.put(format!("{n:06}"), [1; 100]).unwrap();
    }
    let temp =
        |sim: &SimVfs| sim.files().iter().filter(|(path, _)| has_ending(path, "tmp")).count();
    assert!(temp(&sim) > 0, "it has spilled");
    db.close().unwrap();
    assert_eq!(left_over(&sim, Path::new(DIR)).unwrap(), [""; 0]);
    assert!(matches!(loader.put("k", "v"), Err(Error::Closed)));
    // The directory, and these names, may be another one's now.
    let path = PathBuf::from(DIR).join("000001.tmp");
    assert!(sim.write_file(&path, "another one's"));
    let files = sim.files();
    assert!(matches!(loader.finish(), Err(Error::Closed)));
    assert_eq!(sim.files(), files);
}

/// Held at its n-th file, for every n, until the store refuses calls.
#[test]
fn a_close_ends_a_load_and_waits_until_its_files_are_gone() {
    let mut held = 0;
    for nth in 0.. {
        let vfs = Before::new(nth);
        let db = vfs.open();
        let (closing, asking, files) = (db.clone(), db.clone(), vfs.sim.clone());
        let closer = Arc::new(Mutex::new(None));
        let started = closer.clone();
        fn after(vfs: &Before, skipped: u64, act: Box<dyn FnOnce() + Send>) {
            let again = vfs.clone();
            match skipped {
                0 => vfs.set(is_temp_file, act),
                _ => vfs.set(is_temp_file, move || after(&again, skipped - 1, act)),
            }
        }
        let act = move || {
            *started.lock().unwrap() = Some(std::thread::spawn(move || {
                closing.close().unwrap();
                left_over(&files, Path::new(DIR)).unwrap()
            }));
            eventually("the store refuses calls", || matches!(asking.sync(), Err(Error::Closed)));
        };
        after(&vfs, nth, Box::new(act));
        let loaded = load(&db);
        let Some(closer) = closer.lock().unwrap().take() else {
            loaded.unwrap();
            break;
        };
        held += 1;
        assert!(matches!(loaded, Err(Error::Closed)), "file {nth}: {loaded:?}");
        assert_eq!(closer.join().unwrap(), [""; 0], "file {nth}");
        assert!(open(&vfs.sim, SyncMode::None).get("000000").unwrap().is_none());
    }
    assert!(held > 5, "{held}");
}

/// The segment that the feed is about to open is gone with the next open of the store.
#[test]
fn a_feed_that_is_opened_while_the_store_closes_says_so() {
    let vfs = Before::new(1);
    let mut options = options(Arc::new(vfs.clone()), SyncMode::None);
    options.advanced.log_retention_bytes = 1 << 20;
    let db = Db::open(DIR, options).unwrap();
    db.put("k", "v").unwrap();
    let (closing, sim) = (db.clone(), vfs.sim.clone());
    let is_log =
        |call: &Call<'_>, path: &Path| matches!(call, Call::Open) && has_ending(path, "log");
    vfs.set(is_log, move || {
        closing.close().unwrap();
        let next = open(&sim, SyncMode::None);
        next.put("k", "w").unwrap();
        next.flush().unwrap();
        next.wait_idle().unwrap();
        eventually("the log of before is gone", || next.oldest_update().unwrap() > 1);
        next.close().unwrap();
    });
    let feed = db.updates_since(1);
    assert!(vfs.has_acted());
    assert!(matches!(feed, Err(Error::Closed)), "{feed:?}");
}

#[test]
fn a_refresh_while_the_reader_closes_shows_nothing() {
    let vfs = Before::new(1);
    let writer = open(&vfs.sim, SyncMode::None);
    writer.put("k", "v").unwrap();
    writer.flush().unwrap();
    let reader = Db::open_read_only(DIR, options(Arc::new(vfs.clone()), SyncMode::None)).unwrap();
    writer.put("k", "w").unwrap();
    writer.flush().unwrap();
    let closing = reader.clone();
    let is_manifest = |call: &Call<'_>, path: &Path| {
        matches!(call, Call::Open) && path.to_string_lossy().contains("MANIFEST")
    };
    vfs.set(is_manifest, move || closing.close().unwrap());
    let refreshed = reader.refresh();
    assert!(vfs.has_acted());
    assert!(matches!(refreshed, Err(Error::Closed)), "{refreshed:?}");
    // It holds nothing, though a handle of it is left.
    writer.put("k", "x").unwrap();
    writer.compact_range::<&[u8]>(..).unwrap();
    assert_eq!(writer.metrics().reader_pinned_files, 0);
    assert!(matches!(reader.get("k"), Err(Error::Closed)));
}

#[test]
fn a_checkpoint_or_a_flush_after_a_close_begins_no_log_segment() {
    let vfs = Before::new(1);
    let db = vfs.open();
    db.put("k", "v").unwrap();
    let closing = db.clone();
    let is_target = |call: &Call<'_>, path: &Path| {
        matches!(call, Call::Exists) && path == Path::new("/checkpoint")
    };
    let files = Arc::new(Mutex::new(Vec::new()));
    let (sim, closed) = (vfs.sim.clone(), files.clone());
    vfs.set(is_target, move || {
        closing.close().unwrap();
        *closed.lock().unwrap() = sim.files();
    });
    let made = db.checkpoint("/checkpoint");
    assert!(vfs.has_acted());
    assert!(matches!(made, Err(Error::Closed)), "{made:?}");
    assert!(matches!(db.flush(), Err(Error::Closed)));
    assert_eq!(vfs.sim.files(), *files.lock().unwrap());
}

#[test]
fn a_second_checkpoint_to_the_same_place_is_refused_and_leaves_the_first_whole() {
    let vfs = Before::new(1);
    let db = vfs.open();
    db.put("k", "v").unwrap();
    db.flush().unwrap();
    db.put("l", "w").unwrap();
    let beside = db.clone();
    let outcome = Arc::new(Mutex::new(None));
    let second = outcome.clone();
    let is_rename = |call: &Call<'_>, _: &Path| matches!(call, Call::Rename(to) if *to == Path::new("/checkpoint"));
    vfs.set(is_rename, move || *second.lock().unwrap() = Some(beside.checkpoint("/checkpoint")));
    db.checkpoint("/checkpoint").unwrap();
    assert!(vfs.has_acted());
    let second = outcome.lock().unwrap().take();
    assert!(matches!(second, Some(Err(Error::InvalidArgument(_)))), "{second:?}");
    let copy = Db::open("/checkpoint", options(Arc::new(vfs.sim.clone()), SyncMode::None)).unwrap();
    assert_eq!(copy.get("k").unwrap().as_deref(), Some(&b"v"[..]));
    assert_eq!(copy.get("l").unwrap().as_deref(), Some(&b"w"[..]));
}

/// Nobody is left whom the writes of the last flush would slow down.
#[test]
fn a_close_does_not_wait_for_the_bound_on_writes() {
    let mut options = options(Arc::new(SimVfs::new(1)), SyncMode::None);
    options.advanced.rate_limit_bytes_per_s = 100;
    options.advanced.memtable_bytes = 2 << 20;
    options.default_family.compression = vec![terrace::Compression::None];
    let db = Db::open(DIR, options).unwrap();
    for n in 0..2000 {
        db.put(key(n), [7; 200]).unwrap();
    }
    // One flush waits already.
    let flushing = std::thread::spawn({
        let db = db.clone();
        move || db.flush()
    });
    let closing = std::thread::spawn(move || db.close());
    eventually("the store is closed", || closing.is_finished());
    closing.join().unwrap().unwrap();
    let _ended = flushing.join().unwrap();
}
