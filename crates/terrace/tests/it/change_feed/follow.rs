//! Feeds that follow: beside writers in the same process, and in a read-only store beside one.

use super::{keys, log_files, options, rest};
use crate::harness::{DIR, eventually};
use crate::held::{FLUSH, Held};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use terrace::vfs::SimVfs;
use terrace::{Db, Error, Options, RepairOptions, SyncMode, UpdateOp, Updates, WriteBatch};
use terrace_base::SegmentNumber;
use terrace_manifest::names;

const WRITERS: u64 = 3;
const BATCHES: u64 = 300;

/// Every batch of a writer has its number in all of its keys.
fn write(db: &Db, writer: u64) {
    for n in 0..BATCHES {
        let mut batch = WriteBatch::new();
        for at in 0..1 + n % 4 {
            let value = vec![writer as u8; if n % 16 == 0 { 1500 } else { 100 }];
            batch.put(format!("{writer}/{n:05}/{at}"), value);
        }
        db.write(batch).unwrap();
    }
}

#[test]
fn a_feed_follows_concurrent_writers_in_every_mode() {
    let modes = [
        SyncMode::None,
        SyncMode::Buffered,
        SyncMode::Batch,
        SyncMode::Interval(Duration::from_millis(1)),
    ];
    for sync in modes {
        let sim = SimVfs::new(1);
        let mut options = options(&sim);
        options.sync = sync;
        let db = Db::open(DIR, options).unwrap();
        let mut feed = db.updates_since(1).unwrap();
        let done = AtomicU64::new(0);
        let mut seen = vec![0; WRITERS as usize];
        let mut next = 1;
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let (db, done) = (&db, &done);
                scope.spawn(move || {
                    write(db, writer);
                    done.fetch_add(1, Ordering::SeqCst);
                });
            }
            loop {
                let all_done = done.load(Ordering::SeqCst) == WRITERS;
                for batch in &mut feed {
                    let batch = batch.unwrap();
                    assert_eq!(batch.first_seqno(), next, "{sync:?}");
                    next = batch.last_seqno() + 1;
                    assert!(next - 1 <= db.latest_seqno(), "what is given is visible");
                    let first = batch.updates().next().unwrap().unwrap();
                    let UpdateOp::Put { key, .. } = first.op else { panic!("{first:?}") };
                    let key = std::str::from_utf8(key).unwrap();
                    let writer: usize = key[..1].parse().unwrap();
                    assert!(key.contains(&format!("/{:05}/0", seen[writer])), "{key}");
                    assert_eq!(batch.len(), 1 + seen[writer] % 4, "a batch comes whole");
                    seen[writer] += 1;
                }
                if all_done {
                    break;
                }
                std::thread::yield_now();
            }
        });
        assert_eq!(seen, vec![BATCHES as usize; WRITERS as usize], "{sync:?}");
        assert_eq!(next, db.latest_seqno() + 1);
    }
}

#[test]
fn a_feed_of_a_read_only_store_goes_as_far_as_the_last_refresh() {
    let sim = SimVfs::new(1);
    let db = Db::open(DIR, options(&sim)).unwrap();
    db.put("a", "1").unwrap();
    let reader = Db::open_read_only(DIR, options(&sim)).unwrap();
    let mut feed = reader.updates_since(1).unwrap();
    db.put("b", "2").unwrap();
    assert_eq!(keys(&mut feed), ["a"]);
    assert!(feed.next().is_none());
    reader.refresh().unwrap();
    assert_eq!(keys(&mut feed), ["b"]);
    // Across segments, each of which is let go of by the writer when it is flushed.
    let mut want = Vec::new();
    for round in 0..3 {
        for n in 0..100 {
            want.push(format!("{round}/{n:03}"));
            db.put(&want[want.len() - 1], [1; 300]).unwrap();
        }
        reader.refresh().unwrap();
        db.flush().unwrap();
        if round < 2 {
            let given = keys(&mut feed);
            assert_eq!(given, want);
            want.clear();
        }
    }
    eventually("the writer needs one segment", || db.metrics().live_log_bytes < 1000);
    assert_eq!(keys(&mut feed), want, "the reader's pin keeps what it looked at");
    drop((feed, reader));
    eventually("what the reader has kept is gone", || log_files(&sim).len() == 1);
    db.put("z", "26").unwrap();
    let reader = Db::open_read_only(DIR, options(&sim)).unwrap();
    let oldest = reader.oldest_update().unwrap();
    assert!(
        matches!(reader.updates_since(1), Err(Error::UpdatesGone { oldest: o, .. }) if o == oldest)
    );
    assert_eq!(keys(&mut reader.updates_since(reader.latest_seqno()).unwrap()), ["z"]);
}

#[test]
fn a_read_only_store_sees_what_the_writer_keeps() {
    let sim = SimVfs::new(1);
    let mut options = options(&sim);
    options.advanced.log_retention_bytes = 1 << 30;
    let db = Db::open(DIR, options.clone()).unwrap();
    for n in 0..300 {
        db.put(format!("{n:03}"), [1; 300]).unwrap();
    }
    db.close().unwrap();
    let db = Db::open(DIR, options.clone()).unwrap();
    db.put("last", "1").unwrap();
    let reader = Db::open_read_only(DIR, options).unwrap();
    assert_eq!(reader.oldest_update().unwrap(), 1);
    let mine = rest(&mut reader.updates_since(1).unwrap());
    let theirs = rest(&mut db.updates_since(1).unwrap());
    assert_eq!(mine.len(), 301);
    let numbers = |batches: &[terrace::UpdateBatch]| -> Vec<u64> {
        batches.iter().map(terrace::UpdateBatch::first_seqno).collect()
    };
    assert_eq!(numbers(&mine), numbers(&theirs));
}

/// What the writer lets go of between two looks of a feed waits for the lock of the first look.
#[test]
fn a_feed_of_a_read_only_store_keeps_what_it_has_not_come_to_across_a_refresh() {
    let held = Held::new(FLUSH);
    let mut options = options(&held.sim);
    let reading = options.clone();
    options.advanced.vfs = held.clone();
    let db = Db::open(DIR, options).unwrap();
    let _lets_go = held.let_go_on_drop();
    db.put("a", "1").unwrap();
    let reader = Db::open_read_only(DIR, reading).unwrap();
    let mut feed = reader.updates_since(1).unwrap();
    assert_eq!(keys(&mut feed), ["a"]);
    // Segments that are let go of together.
    let mut want = Vec::new();
    while db.shape().families[0].immutable_memtables < 2 {
        want.push(format!("{:05}", want.len()));
        db.put(&want[want.len() - 1], [1; 100]).unwrap();
    }
    reader.refresh().unwrap();
    held.let_go();
    db.flush().unwrap();
    eventually("the writer needs one segment", || db.metrics().live_log_bytes < 1000);
    reader.refresh().unwrap();
    let first = feed.next().unwrap().unwrap();
    assert_eq!(first.first_seqno(), 2);
    // Time for the writer to remove what nobody holds.
    for _ in 0..3 {
        db.wait_idle().unwrap();
        std::thread::sleep(Duration::from_millis(150));
    }
    assert_eq!(keys(&mut feed), want[1..]);
}

/// A full disk goes before feeds.
#[test]
fn a_feed_whose_segments_a_full_disk_has_taken_says_so() {
    let sim = SimVfs::new(1);
    let mut options = options(&sim);
    options.advanced.reserve_bytes = 64 << 10;
    options.advanced.log_retention_bytes = 1 << 30;
    let db = Db::open(DIR, options).unwrap();
    let mut feeds: Vec<Updates> = Vec::new();
    for n in 0..400u32 {
        db.put(format!("{n:05}"), [1; 300]).unwrap();
        if n % 50 == 0 {
            db.flush().unwrap();
            feeds.push(db.updates_since(1).unwrap());
        }
    }
    for (taken, feed) in feeds.iter_mut().enumerate() {
        feed.take(taken * 30 + 1).for_each(|batch| drop(batch.unwrap()));
    }
    let used: u64 = sim.files().into_iter().map(|(_, bytes)| bytes).sum();
    sim.set_capacity_bytes(Some(used + (100 << 10)));
    let before: Vec<u64> = log_files(&sim).into_iter().map(|(number, _)| number).collect();
    // Merges may make room before the log is looked at: then writes go on until the disk is full again.
    let mut was_full = false;
    eventually("the log of a full disk is let go of", || {
        match db.put("filler", vec![7; 2000]) {
            Ok(()) => {}
            Err(Error::DiskFull(_)) => was_full = true,
            Err(error) => panic!("{error}"),
        }
        let now = log_files(&sim);
        now.iter().filter(|(number, _)| before.contains(number)).count() < before.len() / 2
    });
    // Or a flush or merge has found it full, and room was made before the next write.
    assert!(was_full || db.metrics().background_errors > 0);
    let mut gone = 0;
    for mut feed in feeds {
        for _ in 0..3 {
            match feed.by_ref().find(Result::is_err) {
                None => break,
                Some(Err(Error::UpdatesGone { .. })) => gone += 1,
                Some(Err(error)) => panic!("{error}"),
                Some(Ok(_)) => unreachable!("only errors are looked for"),
            }
        }
    }
    assert!(gone > 0);
}

/// A closed store of twenty writes in four segments that only feeds need: its options, the keys, and the numbers of these.
fn store_of_kept_segments(sim: &SimVfs) -> (Options, Vec<String>, Vec<u64>) {
    let mut options = options(sim);
    options.advanced.log_retention_bytes = 1 << 30;
    let db = Db::open(DIR, options.clone()).unwrap();
    let mut written = Vec::new();
    for n in 0..20 {
        written.push(format!("{n:02}"));
        db.put(&written[n], [1; 300]).unwrap();
        if n % 5 == 4 {
            db.flush().unwrap();
        }
    }
    db.close().unwrap();
    // Whatever the close has left to do: from here on they are kept for feeds only.
    Db::open(DIR, options.clone()).unwrap().close().unwrap();
    let kept = log_files(sim).into_iter().filter(|(_, bytes)| *bytes > 1500);
    let mut kept: Vec<u64> = kept.map(|(number, _)| number).collect();
    kept.sort_unstable();
    assert_eq!(kept.len(), 4);
    (options, written, kept)
}

/// The store without a sector of each of these segments: the number, what is lost, and what is left.
fn losses(sim: &SimVfs, kept: &[u64]) -> Vec<(u64, String, SimVfs)> {
    let mut all = Vec::new();
    // The header, and records behind it.
    for lost in [0..8, 512..1024] {
        for number in kept {
            let image = sim.kill_image();
            let path = names::log_path(Path::new(DIR), SegmentNumber::new(*number));
            assert!(image.lose_sector(path, lost.clone()));
            all.push((*number, format!("{lost:?} of segment {number}"), image));
        }
    }
    all
}

#[test]
fn a_feed_of_a_read_only_store_needs_no_segment_before_the_one_that_it_begins_in() {
    let sim = SimVfs::new(1);
    let (mut options, _, kept) = store_of_kept_segments(&sim);
    for (number, what, image) in losses(&sim, &kept) {
        options.advanced.vfs = Arc::new(image);
        let db = Db::open_read_only(DIR, options.clone()).unwrap();
        let since =
            |seqno| db.updates_since(seqno).and_then(|feed| feed.collect::<Result<Vec<_>, _>>());
        let newest = since(db.latest_seqno());
        match kept.last() == Some(&number) {
            true => assert!(matches!(newest, Err(Error::Io(_))), "{what}: {newest:?}"),
            false => assert_eq!(newest.unwrap().len(), 1, "{what}"),
        }
        let all = since(1);
        assert!(matches!(all, Err(Error::Io(_))), "{what}: {all:?}");
    }
}

/// The store needs nothing of what is kept for feeds only.
#[test]
fn a_kept_segment_that_the_device_does_not_give_costs_updates_and_not_the_store() {
    let sim = SimVfs::new(1);
    let (mut options, written, kept) = store_of_kept_segments(&sim);
    for (_, what, image) in losses(&sim, &kept) {
        options.advanced.vfs = Arc::new(image);
        let report = terrace::repair(
            DIR,
            options.clone(),
            RepairOptions { dry_run: true, ..Default::default() },
        );
        report.unwrap_or_else(|error| panic!("{what}: {error}"));
        let db = Db::open(DIR, options.clone()).unwrap_or_else(|error| panic!("{what}: {error}"));
        for key in &written {
            assert_eq!(db.get(key).unwrap().as_deref(), Some(&[1; 300][..]), "{what}: {key}");
        }
        let all = db.updates_since(1).and_then(|feed| feed.collect::<Result<Vec<_>, _>>());
        let is_told = matches!(all, Err(Error::UpdatesGone { .. } | Error::Io(_)));
        assert!(is_told, "{what}: {all:?}");
        db.put("new", "value").unwrap();
        let mut feed = db.updates_since(db.latest_seqno()).unwrap();
        assert_eq!(keys(&mut feed), ["new"], "{what}");
        drop(feed);
        db.close().unwrap();
        drop(db);
        Db::open(DIR, options.clone()).unwrap_or_else(|error| panic!("{what}, again: {error}"));
    }
}
