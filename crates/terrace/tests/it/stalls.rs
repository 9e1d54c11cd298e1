//! Writers that are held back: each cause really occurs, one at a time, and is counted under its
//! own name only.

use crate::harness::{DIR, HANG_GUARD, eventually, stopped_clock};
use crate::held::{COMPACTION, FLUSH, Held};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use terrace::vfs::{SimVfs, Vfs};
use terrace::{
    CfOptions, CompactionBegun, CompactionStyle, Db, Error, EventListener, IngestOptions, Metrics,
    Options, SstWriter, StallCause, StallMetrics, SyncMode,
};

/// Options under which nothing holds a writer back that flushes by hand.
fn calm_options(vfs: &Arc<Held>) -> Options {
    let mut options = Options { memory_budget: 64 << 20, ..Options::default() };
    let a = &mut options.advanced;
    a.vfs = vfs.clone();
    a.clock = Arc::new(stopped_clock());
    a.l0_compaction_trigger = 2;
    a.l0_slowdown = 10_000;
    a.l0_stop = 20_000;
    a.compact_when_idle = false;
    a.gc_garbage_ratio = 1.0;
    a.reserve_bytes = 0;
    options
}

/// Overwrites the same keys, so that files overlap.
fn overwrite(db: &Db, value_bytes: usize) {
    for n in 0..50u64 {
        db.put(n.to_be_bytes(), vec![n as u8; value_bytes]).unwrap();
    }
}

/// What was counted under `cause`; nothing was under any other, and the totals are the sums.
fn only(m: &Metrics, cause: StallCause) -> StallMetrics {
    for (other, row) in m.stalls_by_cause() {
        assert!(other == cause || row == StallMetrics::default(), "{other:?} in {m}");
    }
    let row = m.stalls[cause as usize];
    assert_eq!((row.slowdowns, row.stops, row.stall_us), (m.slowdowns, m.stops, m.stall_us));
    row
}

/// Writes until a writer stands still because of `cause`, sees how its time is counted meanwhile,
/// lets go and waits for the writer.
fn stop_by(vfs: &Held, db: &Db, cause: StallCause, write: impl Fn() + Send + Sync) {
    std::thread::scope(|scope| {
        let _lets_go = vfs.let_go_on_drop();
        let writing = scope.spawn(&write);
        let row = || only(&db.metrics(), cause);
        let waits = |stall_us: u64| {
            eventually("a writer stands still", || {
                assert!(row().stops > 0 || !writing.is_finished(), "nothing stops the writer");
                row().stall_us > stall_us && row().stops > 0
            });
            row().stall_us
        };
        let stalled_us = waits(row().stall_us);
        assert_eq!(row().stops, 1, "one stop, however long");
        waits(stalled_us);
        assert!(!writing.is_finished());
        vfs.let_go();
    });
}

#[test]
fn too_many_l0_files_slow_writers_and_then_stop_them() {
    let vfs = Held::new(COMPACTION);
    let mut options = calm_options(&vfs);
    (options.advanced.l0_slowdown, options.advanced.l0_stop) = (3, 6);
    let db = Db::open(DIR, options).unwrap();
    let _lets_go = vfs.let_go_on_drop();
    for files in 1..6 {
        overwrite(&db, 100);
        db.flush().unwrap();
        let row = only(&db.metrics(), StallCause::L0Files);
        // The writes before the flush met one file less.
        assert_eq!((row.slowdowns > 0, row.stops), (files > 3, 0), "{files} files: {row:?}");
    }
    overwrite(&db, 100);
    db.flush().unwrap();
    let slowed = only(&db.metrics(), StallCause::L0Files);
    assert!(slowed.slowdowns >= 150 && slowed.stops == 0, "{slowed:?}");
    stop_by(&vfs, &db, StallCause::L0Files, || overwrite(&db, 100));
    db.close().unwrap();
}

#[test]
fn ingestions_into_a_full_l0_wait_as_writers_do() {
    let vfs = Held::new(COMPACTION);
    let mut options = calm_options(&vfs);
    (options.advanced.l0_slowdown, options.advanced.l0_stop) = (3, 6);
    let db = Db::open(DIR, options).unwrap();
    let _lets_go = vfs.let_go_on_drop();
    for _ in 0..6 {
        overwrite(&db, 100);
        db.flush().unwrap();
    }
    let files: Arc<dyn Vfs> = Arc::new(vfs.sim.clone());
    let ingest = |name: &str, key: &[u8]| {
        let mut file = SstWriter::create_on(files.clone(), name, &CfOptions::default()).unwrap();
        file.put(key, b"ingested").unwrap();
        file.finish().unwrap();
        db.default_family().ingest(&[name], &IngestOptions::default()).unwrap()
    };
    // Not those that meet nothing there.
    assert!(ingest("/apart.sst", b"apart").files[0].level > 0);
    assert_eq!(only(&db.metrics(), StallCause::L0Files).stops, 0);
    let within = 7_u64.to_be_bytes();
    stop_by(&vfs, &db, StallCause::L0Files, || drop(ingest("/within.sst", &within)));
    assert_eq!(db.get(within).unwrap().as_deref(), Some(&b"ingested"[..]));
    db.close().unwrap();
}

#[test]
fn pending_compaction_slows_writers() {
    let vfs = Held::new(COMPACTION);
    let mut options = calm_options(&vfs);
    options.advanced.pending_compaction_slowdown_bytes = 1;
    let db = Db::open(DIR, options).unwrap();
    let _lets_go = vfs.let_go_on_drop();
    for _ in 0..2 {
        overwrite(&db, 100);
        db.flush().unwrap();
    }
    eventually("a compaction is due", || {
        overwrite(&db, 100);
        db.metrics().slowdowns > 0
    });
    let row = only(&db.metrics(), StallCause::PendingCompaction);
    assert!(row.stops == 0 && row.stall_us > 0, "{row:?}");
    vfs.let_go();
    db.close().unwrap();
}

#[test]
fn memtables_that_wait_for_their_flush_stop_writers() {
    let vfs = Held::new(FLUSH);
    let mut options = calm_options(&vfs);
    options.memory_budget = 4 << 20;
    options.advanced.memtable_bytes = 64 << 10;
    let db = Db::open(DIR, options).unwrap();
    let _lets_go = vfs.let_go_on_drop();
    stop_by(&vfs, &db, StallCause::Memtables, || {
        for _ in 0..100 {
            overwrite(&db, 500);
        }
    });
    assert_eq!(only(&db.metrics(), StallCause::Memtables).slowdowns, 0);
    db.close().unwrap();
}

/// Each of them has fewer than it may have waiting.
#[test]
fn memtables_of_many_families_stop_writers_by_what_they_take_together() {
    const FAMILIES: usize = 24;
    const SHARE: u64 = 1 << 20;
    let vfs = Held::new(FLUSH);
    let mut options = calm_options(&vfs);
    options.memory_budget = 4 << 20;
    options.advanced.memtable_bytes = 64 << 10;
    let name = |n| (format!("family-{n}"), CfOptions::default());
    options.column_families = (0..FAMILIES).map(name).collect();
    let db = Db::open(DIR, options).unwrap();
    let _lets_go = vfs.let_go_on_drop();
    assert_eq!(db.metrics().memtable_limit_bytes, SHARE);
    let families: Vec<_> = (0..FAMILIES).map(|n| db.column_family(&name(n).0).unwrap()).collect();
    let most = AtomicU64::new(0);
    stop_by(&vfs, &db, StallCause::Memtables, || {
        for family in &families {
            for n in 0..250u64 {
                family.put(n.to_be_bytes(), [7; 500]).unwrap();
                most.fetch_max(db.metrics().memtable_bytes, Ordering::SeqCst);
            }
        }
    });
    let most = most.into_inner();
    assert!(most <= SHARE + (128 << 10), "{most} bytes of memtables");
    db.close().unwrap();
}

/// Nobody else can sync the log while the leader waits.
#[test]
fn what_was_acknowledged_becomes_durable_while_writers_stand_still() {
    for threads in [FLUSH, COMPACTION] {
        let vfs = Held::new(threads);
        let mut options = calm_options(&vfs);
        options.memory_budget = 4 << 20;
        options.sync = SyncMode::Interval(Duration::from_millis(5));
        options.advanced.memtable_bytes = 64 << 10;
        (options.advanced.l0_slowdown, options.advanced.l0_stop) = (3, 6);
        let db = Db::open(DIR, options.clone()).unwrap();
        let acknowledged = AtomicU64::new(0);
        let is_durable = std::thread::scope(|scope| {
            let _lets_go = vfs.let_go_on_drop();
            let writing = scope.spawn(|| {
                for n in 0..5000u64 {
                    db.put(n.to_be_bytes(), [7; 500]).unwrap();
                    acknowledged.store(n + 1, Ordering::SeqCst);
                }
            });
            let mut stands = 0;
            while stands < 3 && !writing.is_finished() {
                let before = acknowledged.load(Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(100));
                let same = acknowledged.load(Ordering::SeqCst) == before;
                stands = if same && db.metrics().stops > 0 { stands + 1 } else { 0 };
            }
            let count = acknowledged.load(Ordering::SeqCst);
            let has_all = |seed| {
                let mut options = options.clone();
                options.advanced.vfs = Arc::new(vfs.sim.crash_image(seed));
                let after = Db::open(DIR, options).unwrap();
                (0..count).all(|n| after.get(n.to_be_bytes()).unwrap().is_some())
            };
            let is_durable = (0..1000).any(|_| {
                std::thread::sleep(Duration::from_millis(50));
                (0..4).all(has_all)
            });
            let stands = !writing.is_finished();
            vfs.let_go();
            assert!(stands, "{threads}: nothing stops the writer");
            is_durable
        });
        assert!(is_durable, "{threads}");
        db.close().unwrap();
    }
}

/// As long as files are ingested nobody else can sync the log: what was acknowledged before is durable by then, however
/// long that takes.
#[test]
fn what_was_acknowledged_is_durable_before_ingested_files_get_their_end() {
    let vfs = Held::at_end("ingesting");
    let mut options = calm_options(&vfs);
    // Only the ingestion syncs.
    options.sync = SyncMode::Interval(Duration::from_secs(3600));
    let db = Db::open(DIR, options.clone()).unwrap();
    let other = db.create_column_family("other", CfOptions::default()).unwrap();
    let files: Arc<dyn Vfs> = Arc::new(vfs.sim.clone());
    let mut file = SstWriter::create_on(files, "/outside.sst", &CfOptions::default()).unwrap();
    file.put(b"ingested", b"value").unwrap();
    file.finish().unwrap();
    other.put(b"written", b"value").unwrap();
    std::thread::scope(|scope| {
        let _lets_go = vfs.let_go_on_drop();
        let ingesting = std::thread::Builder::new().name("ingesting".into());
        let ingesting = ingesting
            .spawn_scoped(scope, || {
                db.default_family().ingest(&["/outside.sst"], &IngestOptions::default())
            })
            .unwrap();
        eventually("the file is to get its end", || vfs.waits() > 0);
        let has_it = |seed| {
            let mut options = options.clone();
            options.advanced.vfs = Arc::new(vfs.sim.crash_image(seed));
            let after = Db::open(DIR, options).unwrap();
            let other = after.column_family("other").unwrap();
            other.get(b"written").unwrap().is_some()
        };
        let is_durable = (0..16).all(has_it);
        vfs.let_go();
        assert!(is_durable);
        ingesting.join().unwrap().unwrap();
    });
    assert!(db.get(b"ingested").unwrap().is_some());
}

#[test]
fn a_compact_range_of_one_family_does_not_stop_writers_of_another() {
    let vfs = Held::new("by hand");
    let mut options = calm_options(&vfs);
    (options.advanced.l0_slowdown, options.advanced.l0_stop) = (4, 6);
    let db = Db::open(DIR, options).unwrap();
    let other = db.create_column_family("other", CfOptions::default()).unwrap();
    for _ in 0..2 {
        overwrite(&db, 100);
        db.flush().unwrap();
    }
    db.wait_idle().unwrap();
    overwrite(&db, 100);
    std::thread::scope(|scope| {
        let _lets_go = vfs.let_go_on_drop();
        let by_hand = std::thread::Builder::new().name("by hand".into());
        let compacting = by_hand.spawn_scoped(scope, || db.compact_range::<&[u8]>(..)).unwrap();
        eventually("the call merges", || vfs.waits() > 0);
        let writing = scope.spawn(|| {
            for n in 0..20u8 {
                other.put([n], [n; 100]).unwrap();
                other.put([0], [n; 100]).unwrap();
                db.flush().unwrap();
            }
        });
        let start = Instant::now();
        while !writing.is_finished() && start.elapsed() < HANG_GUARD {
            std::thread::sleep(Duration::from_millis(10));
        }
        let ends = writing.is_finished();
        assert!(!compacting.is_finished());
        vfs.let_go();
        assert!(ends, "the other family waits for the call");
        compacting.join().unwrap().unwrap();
    });
    db.close().unwrap();
}

/// The families whose compactions began, in order.
#[derive(Default)]
struct Begun(Mutex<Vec<String>>);

impl EventListener for Begun {
    fn on_compaction_begun(&self, event: &CompactionBegun) {
        self.0.lock().unwrap().push(event.family.clone());
    }
}

#[test]
fn compactions_serve_the_family_nearest_to_a_stop_and_then_take_turns() {
    let vfs = Held::new(COMPACTION);
    let begun = Arc::new(Begun::default());
    let mut options = calm_options(&vfs);
    (options.advanced.l0_slowdown, options.advanced.l0_stop) = (5, 100);
    // One of them flushes.
    options.background_jobs = 2;
    options.advanced.event_listeners = vec![begun.clone()];
    let db = Db::open(DIR, options).unwrap();
    let _lets_go = vfs.let_go_on_drop();
    let families: Vec<_> =
        ["a", "b"].map(|name| db.create_column_family(name, CfOptions::default()).unwrap()).into();
    for n in 0..4u8 {
        db.put([7], [n]).unwrap();
        db.flush().unwrap();
    }
    eventually("a compaction has begun", || vfs.waits() > 0);
    for n in 0..8u8 {
        families[1].put([7], [n]).unwrap();
        if n < 4 {
            db.put([7], [n]).unwrap();
            families[0].put([7], [n]).unwrap();
        }
        db.flush().unwrap();
    }
    vfs.let_go();
    db.wait_idle().unwrap();
    db.close().unwrap();
    let mut order = begun.0.lock().unwrap().clone();
    order.dedup();
    assert_eq!(order[..4], ["default", "b", "default", "a"], "{order:?}");
}

#[test]
fn garbage_that_is_not_collected_slows_writers() {
    let vfs = Held::new(COMPACTION);
    let mut options = calm_options(&vfs);
    options.default_family.value_separation_threshold = 100;
    options.advanced.gc_garbage_ratio = 0.05;
    options.advanced.segment_bytes = 16 << 10;
    let db = Db::open(DIR, options).unwrap();
    let _lets_go = vfs.let_go_on_drop();
    eventually("garbage collection is behind", || {
        overwrite(&db, 1000);
        db.flush().unwrap();
        db.metrics().slowdowns > 0
    });
    let row = only(&db.metrics(), StallCause::GarbageCollection);
    assert!(row.stops == 0 && row.stall_us > 0, "{row:?}");
    vfs.let_go();
    db.close().unwrap();
}

/// No call waits for a thread that is gone, reads go on, and the next open has everything.
#[test]
fn a_background_thread_that_panics_poisons_the_store_and_nobody_waits_for_it() {
    for threads in [FLUSH, COMPACTION] {
        let sim = SimVfs::new(1);
        let vfs = Held::panicking(threads, &sim);
        let mut options = calm_options(&vfs);
        (options.advanced.l0_slowdown, options.advanced.l0_stop) = (3, 6);
        let db = Db::open(DIR, options).unwrap();
        let error = loop {
            let flushed = db.put(b"key", b"value").and_then(|()| db.flush());
            if let Err(error) = flushed.and_then(|()| db.wait_idle()) {
                break error;
            }
            assert!(db.metrics().levels[0].file_count < 20, "nothing is merged");
        };
        for error in [error, db.put(b"key", b"other").unwrap_err(), db.flush().unwrap_err()] {
            assert!(matches!(error, Error::Poisoned(_)), "{threads}: {error}");
            let text = error.to_string();
            assert!(text.contains(threads) && text.contains("a planted panic"), "{text}");
        }
        assert_eq!(db.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
        let _ = db.close();
        drop(db);
        let mut options = calm_options(&vfs);
        options.advanced.vfs = Arc::new(sim);
        let db = Db::open(DIR, options).unwrap();
        assert_eq!(db.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
        db.put(b"key", b"other").unwrap();
        db.wait_idle().unwrap();
        db.close().unwrap();
    }
}

/// As many runs as tiered merges leave do not stop writers, however few may lie in L0.
#[test]
fn writers_of_a_tiered_family_do_not_wait_for_merges_that_nothing_asks_for() {
    for (trigger, slowdown, stop) in [(1, 1, 1), (1, 1, 2), (1, 2, 2), (2, 2, 2), (4, 4, 4)] {
        let mut options = Options { memory_budget: 64 << 20, ..Options::default() };
        let a = &mut options.advanced;
        a.vfs = Arc::new(SimVfs::new(1));
        a.clock = Arc::new(stopped_clock());
        a.compact_when_idle = false;
        (a.l0_compaction_trigger, a.l0_slowdown, a.l0_stop) = (trigger, slowdown, stop);
        options.default_family.compaction = CompactionStyle::Tiered;
        let db = Db::open(DIR, options).unwrap();
        let writer = db.clone();
        let writing = std::thread::spawn(move || {
            // The runs are of different sizes, so that none is merged for that.
            for count in [4000, 400, 40, 4, 1, 1, 1, 1, 1, 1] {
                for n in 0..count {
                    writer.put(u32::to_be_bytes(n), [7; 100])?;
                }
                writer.flush()?;
            }
            Ok::<(), Error>(())
        });
        eventually("all is written", || writing.is_finished());
        writing.join().unwrap().unwrap();
        db.close().unwrap();
    }
}
