//! The asynchronous interface: answers, the bound on calls, and what a dropped future leaves.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use terrace::{Db, Error, Options, ReadOptions, Result, WriteBatch};
use terrace_async::{AsyncDb, AsyncOptions};
use terrace_base::clock::ManualClock;
use tokio_stream::StreamExt;

fn in_runtime<F: Future<Output = ()>>(test: impl FnOnce(Db) -> F) {
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let db = Db::open(dir.path(), Options { memory_budget: 8 << 20, ..Options::default() });
    runtime.block_on(test(db.unwrap()));
}

fn poll_once<T>(future: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// A call that has its turn until it is let go.
struct Stuck {
    call: tokio::task::JoinHandle<Result<()>>,
    let_go: Sender<()>,
    started: Receiver<()>,
}

impl Stuck {
    fn new(db: &AsyncDb) -> Self {
        let ((let_go, until), (start, started)) = (channel::<()>(), channel());
        let db = db.clone();
        let work = move |_: &Db| {
            start.send(()).unwrap();
            until.recv().unwrap();
            Ok(())
        };
        Self { call: tokio::spawn(async move { db.run(work).await }), let_go, started }
    }

    async fn end(self) {
        self.let_go.send(()).unwrap();
        self.call.await.unwrap().unwrap();
    }
}

#[test]
fn what_is_written_is_read_and_scanned() {
    in_runtime(|db| async move {
        let db = AsyncDb::new(db, AsyncOptions::default());
        let key = |n: usize| format!("key-{n:05}");
        let value = |n: usize| format!("{n}-").repeat(n % 50);
        for n in 0..2000 {
            db.put(key(n), value(n)).await.unwrap();
        }
        db.delete(key(7)).await.unwrap();
        assert_eq!(db.get(key(5)).await.unwrap().as_deref(), Some(value(5).as_bytes()));
        assert!(db.get(key(7)).await.unwrap().is_none());
        for flushed in [false, true] {
            if flushed {
                db.flush().await.unwrap();
                db.db().compact_range::<&[u8]>(..).unwrap();
            }
            let mut scan = db.scan(key(3)..key(1500));
            let mut seen = Vec::new();
            while let Some(chunk) = scan.next().await {
                let chunk = chunk.unwrap();
                assert!(!chunk.is_empty());
                seen.extend(chunk);
                // What is written beside is not seen.
                db.put(format!("{}-{flushed}", key(1400)), "").await.unwrap();
                db.delete(format!("{}-{flushed}", key(1400))).await.unwrap();
            }
            let want: Vec<_> = (3..1500).filter(|n| *n != 7).map(|n| (key(n), value(n))).collect();
            assert_eq!(seen.len(), want.len());
            let same = seen.iter().zip(&want).all(|((key, value), (want_key, want_value))| {
                key == want_key.as_bytes() && value[..] == *want_value.as_bytes()
            });
            assert!(same);
        }
        assert!(db.scan("x"..).next().await.is_none());
        let snapshot = db.snapshot().await.unwrap();
        db.put(key(1), "new").await.unwrap();
        let then = ReadOptions { snapshot: Some(snapshot), ..ReadOptions::default() };
        let cf = db.db().default_family();
        let old = db.get_cf(&cf, key(1), &then).await.unwrap();
        assert_eq!(old.as_deref(), Some(value(1).as_bytes()));
        db.close().await.unwrap();
        assert!(matches!(db.get(key(1)).await, Err(Error::Closed)));
        assert!(matches!(db.scan::<&[u8]>(..).next().await, Some(Err(_))));
    });
}

#[test]
fn a_scan_shows_what_expires_between_two_chunks() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let (dir, clock) = (tempfile::tempdir().unwrap(), ManualClock::wall_at(1_000_000));
    let mut options = Options { memory_budget: 8 << 20, ..Options::default() };
    options.advanced.clock = Arc::new(clock.clone());
    let db = Db::open(dir.path(), options).unwrap();
    runtime.block_on(async {
        let db = AsyncDb::new(db, AsyncOptions::default());
        for has_snapshot in [false, true] {
            let mut batch = WriteBatch::new();
            for n in 0..1000_u32 {
                batch.put_until(n.to_be_bytes(), b"value", clock.now_ms() + 500);
            }
            db.write(batch).await.unwrap();
            let mut options = ReadOptions::default();
            if has_snapshot {
                options.snapshot = Some(db.snapshot().await.unwrap());
            }
            let mut scan = db.scan_cf(&db.db().default_family(), options);
            let (mut chunks, mut entries) = (0, 0);
            while let Some(chunk) = scan.next().await {
                entries += chunk.unwrap().len();
                chunks += 1;
                // Half of the time to live, and then all of it.
                clock.advance(if chunks <= 2 { 250 } else { 0 });
            }
            assert!(chunks > 2 && entries == 1000, "{entries} entries in {chunks} chunks");
            let mut later = db.scan::<&[u8]>(..);
            assert!(later.next().await.is_none());
        }
    });
}

#[test]
fn a_read_from_memory_needs_no_turn_and_another_waits_for_one() {
    in_runtime(|db| async move {
        db.put(b"on the device", vec![7; 100_000]).unwrap();
        db.flush().unwrap();
        let db = AsyncDb::new(db, AsyncOptions { max_calls: 1 });
        db.put("in memory", "here").await.unwrap();
        let stuck = Stuck::new(&db);
        stuck.started.recv().unwrap();
        {
            let mut here = pin!(db.get("in memory"));
            let Poll::Ready(Ok(Some(value))) = poll_once(here.as_mut()) else { panic!("waits") };
            assert_eq!(&value[..], b"here");
        }
        let mut waiting = pin!(db.get("on the device"));
        assert!(poll_once(waiting.as_mut()).is_pending());
        stuck.end().await;
        assert_eq!(waiting.await.unwrap().unwrap().len(), 100_000);
    });
}

#[test]
fn no_more_calls_run_than_may() {
    in_runtime(|db| async move {
        let db = AsyncDb::new(db, AsyncOptions { max_calls: 3 });
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let calls: Vec<_> = (0..50)
            .map(|n| {
                let (db, running, most) = (db.clone(), running.clone(), most.clone());
                tokio::spawn(async move {
                    let work = move |db: &Db| {
                        let now = running.fetch_add(1, Ordering::SeqCst) + 1;
                        most.fetch_max(now, Ordering::SeqCst);
                        let done = db.put([n], [n]);
                        std::thread::yield_now();
                        running.fetch_sub(1, Ordering::SeqCst);
                        done
                    };
                    db.run(work).await
                })
            })
            .collect();
        for call in calls {
            call.await.unwrap().unwrap();
        }
        assert!(most.load(Ordering::SeqCst) <= 3);
        assert_eq!(db.db().range::<&[u8]>(..).unwrap().entries().count(), 50);
    });
}

#[test]
fn a_write_that_is_dropped_before_its_turn_is_not_there_and_one_that_runs_is_there_whole() {
    in_runtime(|db| async move {
        let db = AsyncDb::new(db, AsyncOptions { max_calls: 1 });
        let stuck = Stuck::new(&db);
        stuck.started.recv().unwrap();
        {
            let mut early = pin!(db.put("early", "value"));
            assert!(poll_once(early.as_mut()).is_pending());
        }
        stuck.end().await;
        db.put("next", "").await.unwrap();
        assert!(db.get("early").await.unwrap().is_none());

        let ((let_go, until), (start, started)) = (channel::<()>(), channel());
        let until = Mutex::new(until);
        {
            let mut late = pin!(db.transact(move |transaction| {
                start.send(()).unwrap();
                until.lock().unwrap().recv().unwrap();
                transaction.put("late/1", "");
                transaction.put("late/2", "");
                Ok(())
            }));
            assert!(poll_once(late.as_mut()).is_pending());
            started.recv().unwrap();
        }
        let_go.send(()).unwrap();
        // Its turn comes back when it is done.
        db.put("next", "").await.unwrap();
        assert!(db.get("late/1").await.unwrap().is_some());
        assert!(db.get("late/2").await.unwrap().is_some());
    });
}

#[test]
fn a_transaction_conflicts_and_outlives_a_dropped_call() {
    in_runtime(|db| async move {
        let db = AsyncDb::new(db, AsyncOptions { max_calls: 1 });
        let own = db.transaction().await.unwrap();
        let stuck = Stuck::new(&db);
        stuck.started.recv().unwrap();
        {
            let mut dropped = pin!(own.get("key"));
            assert!(poll_once(dropped.as_mut()).is_pending());
        }
        stuck.end().await;
        assert!(own.scan("k".."l", 10).await.unwrap().is_empty());
        own.put("other", "value").await;
        assert_eq!(own.get("other").await.unwrap().as_deref(), Some(&b"value"[..]));
        db.put("key", "theirs").await.unwrap();
        assert!(matches!(own.commit().await, Err(Error::Conflict)));
        assert!(db.get("other").await.unwrap().is_none());
        let again = db.transaction().await.unwrap();
        again.put("other", "value").await;
        again.commit().await.unwrap();
        assert!(db.get("other").await.unwrap().is_some());
    });
}

#[test]
fn transactions_of_many_tasks_count_each_once() {
    in_runtime(|db| async move {
        let db = AsyncDb::new(db, AsyncOptions { max_calls: 4 });
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let db = db.clone();
                tokio::spawn(async move {
                    for _ in 0..20 {
                        let count = db.transact(|transaction| {
                            let count = transaction.get("count")?.map_or(0, |value| value[0]);
                            transaction.put("count", [count + 1]);
                            Ok(())
                        });
                        count.await.unwrap();
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(db.get("count").await.unwrap().as_deref(), Some(&[160][..]));
    });
}

#[test]
fn a_scan_that_is_dropped_gives_its_turn_back() {
    in_runtime(|db| async move {
        for n in 0..2000u32 {
            db.put(n.to_be_bytes(), [0; 100]).unwrap();
        }
        db.flush().unwrap();
        let db = AsyncDb::new(db, AsyncOptions { max_calls: 1 });
        let mut scan = db.scan::<&[u8]>(..);
        assert!(scan.next().await.unwrap().unwrap().len() < 2000);
        // Another one, between whose chunks nobody waits.
        assert!(db.scan::<&[u8]>(..).next().await.is_some());
        drop(scan);
        db.flush().await.unwrap();
    });
}

/// A store whose reads memory answers, in a runtime of one thread.
fn on_one_thread<F: Future<Output = ()>>(test: impl FnOnce(AsyncDb, ReadOptions) -> F) {
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let db =
        Db::open(dir.path(), Options { memory_budget: 8 << 20, ..Options::default() }).unwrap();
    for n in 0..1000_u32 {
        db.put(n.to_be_bytes(), b"value").unwrap();
    }
    // The first chunk of a scan is at once only if there is a snapshot.
    let snapshot = Some(db.snapshot());
    let options = ReadOptions { snapshot, ..ReadOptions::default() };
    runtime.block_on(test(AsyncDb::new(db, AsyncOptions::default()), options));
}

/// More reads than a task does before others have their turn.
const MANY: usize = 1000;

/// A task that says when it has had a turn.
fn another_task() -> Arc<AtomicUsize> {
    let turns = Arc::new(AtomicUsize::new(0));
    let counted = turns.clone();
    tokio::spawn(async move {
        loop {
            counted.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
        }
    });
    turns
}

#[test]
fn a_loop_of_reads_from_memory_lets_other_tasks_run() {
    on_one_thread(|db, _| async move {
        let turns = another_task();
        for _ in 0..10 {
            let before = turns.load(Ordering::SeqCst);
            for _ in 0..MANY {
                assert!(db.get(7_u32.to_be_bytes()).await.unwrap().is_some());
            }
            assert!(turns.load(Ordering::SeqCst) > before);
        }
    });
}

#[test]
fn a_loop_of_scans_from_memory_lets_other_tasks_run() {
    on_one_thread(|db, options| async move {
        let turns = another_task();
        let cf = db.db().default_family();
        for _ in 0..10 {
            let before = turns.load(Ordering::SeqCst);
            // Of four chunks each.
            for _ in 0..20 {
                let (mut scan, mut entries) = (db.scan_cf(&cf, options.clone()), 0);
                while let Some(chunk) = scan.next().await {
                    entries += chunk.unwrap().len();
                }
                assert_eq!(entries, 1000);
            }
            assert!(turns.load(Ordering::SeqCst) > before);
        }
    });
}

#[test]
fn a_timeout_ends_reads_from_memory_without_end() {
    // The timeout is over at once; these take far longer.
    const GETS: usize = 2_000_000;
    const SCANS: usize = 10_000;
    on_one_thread(|db, options| async move {
        let gets = async {
            for _ in 0..GETS {
                db.get(7_u32.to_be_bytes()).await.unwrap();
            }
        };
        assert!(tokio::time::timeout(Duration::ZERO, gets).await.is_err());
        let cf = db.db().default_family();
        let scans = async {
            for _ in 0..SCANS {
                let mut scan = db.scan_cf(&cf, options.clone());
                while let Some(chunk) = scan.next().await {
                    chunk.unwrap();
                }
            }
        };
        assert!(tokio::time::timeout(Duration::ZERO, scans).await.is_err());
    });
}

#[test]
fn a_scan_that_has_failed_or_ended_keeps_no_snapshot() {
    in_runtime(|db| async move {
        db.put(b"1", b"in memory").unwrap();
        db.put(b"on the device", vec![7; 100_000]).unwrap();
        db.flush().unwrap();
        let db = AsyncDb::new(db, AsyncOptions::default());
        let cf = db.db().default_family();
        let snapshots = || db.db().metrics().snapshots;
        for in_memory in [true, false] {
            let snapshot = Some(db.snapshot().await.unwrap());
            let mut scan =
                db.scan_cf(&cf, ReadOptions { snapshot, in_memory, ..ReadOptions::default() });
            assert_eq!(snapshots(), 1);
            let is_refused = matches!(scan.next().await.unwrap(), Err(Error::NotInMemory));
            assert_eq!(is_refused, in_memory);
            assert!(scan.next().await.is_none());
            assert_eq!(snapshots(), 0);
            drop(scan);
        }
    });
}
