//! What survives which crash and which failing disk, one case at a time; each of them once went
//! wrong.

use crate::harness::{DIR, HANG_GUARD, Store, eventually, key, small_options, stopped_clock};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace::vfs::{Fault, FaultKind, OpClass, SimVfs};
use terrace::{Compression, Db, Error, Options, SyncMode, WriteBatch};

fn store(sync: SyncMode) -> (SimVfs, Options, Store) {
    store_with(sync, 16 << 10)
}

fn store_with(sync: SyncMode, memtable_bytes: usize) -> (SimVfs, Options, Store) {
    let sim = SimVfs::new(7);
    let mut options = small_options(Arc::new(sim.clone()), &stopped_clock());
    options.advanced.memtable_bytes = memtable_bytes;
    options.sync = sync;
    options.default_family.compression = vec![Compression::None];
    options.advanced.reserve_bytes = 0;
    let store = Store::open(options.clone()).unwrap();
    (sim, options, store)
}

fn reopen(image: SimVfs, options: &Options) -> terrace::Result<Store> {
    let mut options = options.clone();
    options.advanced.vfs = Arc::new(image);
    Store::open(options)
}

fn logs(sim: &SimVfs) -> Vec<PathBuf> {
    let paths = sim.files().into_iter().map(|(path, _)| path);
    paths
        .filter(|path| path.starts_with(DIR) && path.extension().is_some_and(|e| e == "log"))
        .collect()
}

fn fault(sim: &SimVfs, class: OpClass, after: u64) {
    let kind = FaultKind::Enospc;
    let at_op = sim.op_count() + after;
    sim.set_fault(Some(Fault { at_op, kind, forever: false, filter: Some(class) }));
}

/// Writes until one is taken.
fn write_again(store: &Store) -> terrace::Result<()> {
    let deadline = Instant::now() + HANG_GUARD;
    loop {
        match store.db.put(b"again", b"written") {
            Err(Error::DiskFull(_)) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(20));
            }
            outcome => return outcome,
        }
    }
}

#[test]
fn a_power_cut_does_not_keep_a_flushed_family_without_older_writes_to_another() {
    let (sim, options, store) = store(SyncMode::None);
    store.families[1].put(b"first", b"of all").unwrap();
    for number in 0..120 {
        store.db.put(key(number), [b'v'; 200]).unwrap();
    }
    eventually("one family is flushed by itself", || store.db.metrics().flushes > 0);
    for seed in 0..60 {
        let after = reopen(sim.crash_image(seed), &options).unwrap();
        assert!(after.db.get(key(0)).unwrap().is_some(), "it was flushed");
        assert!(after.families[1].get(b"first").unwrap().is_some(), "an older write is missing");
    }
}

#[test]
fn a_power_cut_leaves_a_prefix_of_several_segments_that_were_never_synced() {
    let sim = SimVfs::new(9);
    let mut options = small_options(Arc::new(sim.clone()), &stopped_clock());
    options.column_families.clear();
    let db = Db::open(DIR, options.clone()).unwrap();
    let mut lost = 0;
    for number in 0..400 {
        db.put(key(number), [b'v'; 200]).unwrap();
        if number % 10 > 0 {
            continue;
        }
        for seed in 0..6 {
            let mut options = options.clone();
            options.advanced.vfs = Arc::new(sim.crash_image(seed));
            let after = Db::open(DIR, options).unwrap();
            let there: Vec<bool> =
                (0..=number).map(|n| after.get(key(n)).unwrap().is_some()).collect();
            let count = there.iter().take_while(|there| **there).count();
            assert!(!there[count..].contains(&true), "a hole at {count} of {number}, seed {seed}");
            lost += there.len() - count;
        }
    }
    assert!(lost > 100, "{lost} writes lost in all: too few to test anything");
}

#[test]
fn a_log_segment_that_comes_back_after_its_removal_is_not_replayed() {
    let (sim, options, store) = store(SyncMode::Batch);
    let first = logs(&sim)[0].clone();
    store.db.put(b"k", b"old").unwrap();
    let mut stale = sim.read_file(&first).unwrap();
    store.db.flush().unwrap();
    store.db.put(b"k", b"new").unwrap();
    eventually("the first segment is removed", || !logs(&sim).contains(&first));
    // The removal was not durable, and half of the segment was never synced.
    stale.truncate(50);
    let image = sim.kill_image();
    assert!(image.write_file(&first, stale));
    let after = reopen(image, &options).unwrap();
    assert_eq!(after.db.get(b"k").unwrap().as_deref(), Some(&b"new"[..]));
}

#[test]
fn a_log_segment_without_records_does_not_keep_the_store_from_opening() {
    let (sim, options, store) = store(SyncMode::Batch);
    for round in 0..4u8 {
        store.families.iter().for_each(|family| family.put(b"k", [round]).unwrap());
        // Every family starts a segment; only the last one gets records.
        store.db.flush().unwrap();
        store.db.put(b"k", [round + 100]).unwrap();
        store.db.put(b"k", [round + 200]).unwrap();
        for seed in 0..40 {
            let after = reopen(sim.crash_image(seed), &options).unwrap();
            assert_eq!(after.db.get(b"k").unwrap().as_deref(), Some(&[round + 200][..]));
        }
    }
}

#[test]
fn one_append_that_finds_the_disk_full_passes_wherever_it_is() {
    let mut refused = 0;
    for after in 0..40 {
        let (sim, options, store) = store(SyncMode::None);
        store.db.put(b"k", b"v").unwrap();
        fault(&sim, OpClass::Append, after);
        for number in 0..6 {
            let calls = [
                store.db.put(key(number), [b'v'; 300]),
                store.db.sync(),
                store.families[1].put(key(number), [b'v'; 300]),
                store.db.flush(),
                store.db.sync(),
            ];
            for call in calls {
                match call {
                    Ok(()) => {}
                    Err(Error::DiskFull(_)) => refused += 1,
                    Err(other) => panic!("append {after}: {other:?}"),
                }
            }
        }
        sim.set_fault(None);
        write_again(&store).unwrap_or_else(|error| panic!("append {after}: {error:?}"));
        // A job that met the full disk may say so only now.
        eventually("a flush finds room", || match store.db.flush() {
            Err(Error::DiskFull(_)) => false,
            outcome => outcome.map(|()| true).unwrap(),
        });
        let after = reopen(sim.crash_image(after), &options).unwrap();
        assert_eq!(after.db.get(b"again").unwrap().as_deref(), Some(&b"written"[..]));
        assert!(after.db.get(b"k").unwrap().is_some());
    }
    assert!(refused > 10, "{refused} calls failed");
}

#[test]
fn a_log_sync_that_fails_stops_writes_even_if_only_the_disk_was_full() {
    let (sim, options, store) = store(SyncMode::Batch);
    store.db.put(b"before", b"synced").unwrap();
    fault(&sim, OpClass::Sync, 0);
    assert!(matches!(store.db.put(b"during", b"?"), Err(Error::Poisoned(_))));
    assert!(matches!(write_again(&store), Err(Error::Poisoned(_))));
    assert!(matches!(store.db.sync(), Err(Error::Poisoned(_))));
    assert_eq!(store.db.get(b"before").unwrap().as_deref(), Some(&b"synced"[..]));
    for seed in 0..20 {
        let after = reopen(sim.crash_image(seed), &options).unwrap();
        assert!(after.db.get(b"before").unwrap().is_some());
        assert!(after.db.get(b"again").unwrap().is_none());
    }
}

#[test]
fn what_a_buffered_log_has_acknowledged_outlives_an_append_without_room() {
    let mut acknowledged = 0;
    for (after, memtable_bytes) in (0..8).flat_map(|after| [(after, 512 << 10), (after, 16 << 10)])
    {
        let (sim, options, store) = store_with(SyncMode::Buffered, memtable_bytes);
        fault(&sim, OpClass::Append, after);
        let mut taken = 0;
        // Records that only the process holds, until there are too many or a full memtable ends their segment; what the
        // fault strikes may be a flush, or something that the open has left to do.
        while sim.executed_faults() == 0 && store.db.put(key(taken), [b'v'; 3000]).is_ok() {
            taken += 1;
            assert!(taken < 1000, "the fault never struck");
        }
        acknowledged += taken;
        write_again(&store).unwrap();
        store.db.sync().unwrap();
        for seed in 0..3 {
            let after = reopen(sim.crash_image(seed), &options).unwrap();
            assert!((0..taken).all(|n| after.db.get(key(n)).unwrap().is_some()), "seed {seed}");
            assert!(after.db.get(b"again").unwrap().is_some());
        }
    }
    assert!(acknowledged > 20, "{acknowledged}");
}

/// A memtable is flushed whose log a full disk has left in the process, with older writes to another family.
#[test]
fn what_a_full_disk_has_left_in_the_process_is_durable_before_a_flush_that_is_newer() {
    let (sim, options, store) = store(SyncMode::Buffered);
    store.families[1].put(b"first", b"of all").unwrap();
    store.db.put(key(0), [b'v'; 300]).unwrap();
    fault(&sim, OpClass::Append, 0);
    let mut taken = 1;
    // Until the end of the segment is not written, when the memtable is full.
    while store.db.put(key(taken), [b'v'; 300]).is_ok() {
        taken += 1;
        assert!(taken < 1000, "the fault never struck");
    }
    // Needs no room for writes, and makes the full memtable immutable.
    store.db.delete(b"none").unwrap();
    eventually("one family is flushed by itself", || {
        store.db.shape().families[0].levels.iter().any(|files| !files.is_empty())
    });
    for seed in 0..20 {
        let after = reopen(sim.crash_image(seed), &options).unwrap();
        assert!(after.db.get(key(0)).unwrap().is_some(), "it was flushed");
        assert!(after.families[1].get(b"first").unwrap().is_some(), "an older write is missing");
    }
}

#[test]
fn what_a_full_disk_has_left_in_the_process_leaves_no_segment_with_every_try() {
    let (sim, _options, store) = store(SyncMode::Buffered);
    let used: u64 = sim.files().into_iter().map(|(_, bytes)| bytes).sum();
    // For the headers of segments, not for what is written, whichever thread hands it over first.
    sim.set_capacity_bytes(Some(used + (4 << 10)));
    let mut batch = WriteBatch::new();
    (0..40).for_each(|number| batch.put(key(number), [b'v'; 300]));
    store.db.write(batch).unwrap();
    let before = logs(&sim).len();
    let flushed = store.db.flush();
    assert!(matches!(flushed, Err(Error::DiskFull(_))), "{flushed:?}");
    for number in 0..20 {
        // It comes behind what was acknowledged, and is taken if the house thread has made room for both.
        let deleted = store.db.delete(key(number));
        assert!(matches!(deleted, Ok(()) | Err(Error::DiskFull(_))), "{deleted:?}");
    }
    assert!(logs(&sim).len() <= before + 2, "{:?}", logs(&sim));
    sim.set_capacity_bytes(None);
    eventually("there is room", || store.db.flush().is_ok());
    assert!(store.db.get(key(39)).unwrap().is_some());
}

#[test]
fn a_full_disk_takes_deletions_of_a_buffered_store_and_it_goes_on_when_there_is_room() {
    let (sim, options, store) = store(SyncMode::Buffered);
    sim.set_capacity_bytes(Some(sim.files().iter().map(|(_, bytes)| bytes).sum::<u64>() + 90_000));
    let mut acknowledged = 0;
    let refused = loop {
        if let Err(error) = store.db.put(key(acknowledged), [b'v'; 3000]) {
            break error;
        }
        acknowledged += 1;
        assert!(acknowledged < 1000, "the disk is never full");
    };
    assert!(matches!(refused, Error::DiskFull(_)) && acknowledged > 10, "{refused}");
    // A kill loses what only the process has, and leaves no hole.
    let image = sim.kill_image();
    image.set_capacity_bytes(None);
    let killed = reopen(image, &options).unwrap();
    let there = (0..acknowledged).filter(|n| killed.db.get(key(*n)).unwrap().is_some()).count();
    assert!((0..there as u64).all(|n| killed.db.get(key(n)).unwrap().is_some()), "a hole");
    drop(killed);

    sim.set_capacity_bytes(None);
    write_again(&store).unwrap();
    store.db.delete(key(0)).unwrap();
    store.db.close().unwrap();
    let after = reopen(sim.kill_image(), &options).unwrap();
    assert!(after.db.get(key(0)).unwrap().is_none());
    assert!((1..acknowledged).all(|n| after.db.get(key(n)).unwrap().is_some()));
}

#[test]
fn a_buffered_log_that_the_device_does_not_take_leaves_no_hole() {
    // No flush comes before the log is written.
    let (sim, options, store) = store_with(SyncMode::Buffered, 512 << 10);
    let at_op = sim.op_count();
    let filter = Some(OpClass::Append);
    sim.set_fault(Some(Fault { at_op, kind: FaultKind::Eio, forever: false, filter }));
    let mut taken = 0;
    while store.db.put(key(taken), [b'v'; 3000]).is_ok() {
        taken += 1;
        assert!(taken < 1000, "the fault never struck");
    }
    assert!(matches!(write_again(&store), Err(Error::Poisoned(_))));
    assert!(store.db.sync().is_err(), "a sync cannot promise what is lost");
    for number in 0..taken {
        assert!(store.db.get(key(number)).unwrap().is_some(), "reads go on");
    }
    let after = reopen(sim.kill_image(), &options).unwrap();
    let there = (0..taken).filter(|n| after.db.get(key(*n)).unwrap().is_some()).count() as u64;
    assert!((0..there).all(|n| after.db.get(key(n)).unwrap().is_some()), "a hole");
}

#[test]
fn an_iterator_from_before_a_file_moved_still_reads_it_after_its_removal() {
    let mut options = small_options(Arc::new(SimVfs::new(7)), &stopped_clock());
    // With one compression for all levels a lone file moves down as it is.
    options.default_family.compression = vec![terrace::Compression::None];
    let store = Store::open(options).unwrap();
    for number in 0..40 {
        store.db.put(key(number), b"old").unwrap();
    }
    store.db.flush().unwrap();
    // Opened now, and no file before its first seek.
    let mut iter = store.db.iter().unwrap();
    store.db.wait_idle().unwrap();
    assert!(store.db.metrics().trivial_moves > 0);
    for number in 0..40 {
        store.db.put(key(number), b"new").unwrap();
    }
    store.db.compact_range::<&[u8]>(..).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    iter.seek_to_first().unwrap();
    let mut seen = 0;
    while iter.valid() {
        assert_eq!(iter.value(), b"old");
        seen += 1;
        iter.next().unwrap();
    }
    assert_eq!(seen, 40);
}

/// A range delete takes no room in a memtable's list: replay makes the memtable all the same.
#[test]
fn a_range_delete_that_is_all_the_log_has_of_a_family_is_replayed() {
    let (sim, options, store) = store(SyncMode::Batch);
    store.db.put(b"a", b"gone").unwrap();
    store.db.put(b"z", b"stays").unwrap();
    store.db.flush().unwrap();
    store.db.delete_range(b"a", b"b").unwrap();
    for image in [sim.kill_image(), sim.crash_image(3)] {
        let after = reopen(image, &options).unwrap();
        assert!(after.db.get(b"a").unwrap().is_none());
        assert!(after.db.get(b"z").unwrap().is_some());
    }
}

#[test]
fn an_interval_goes_on_syncing_what_was_acknowledged_while_the_disk_is_full() {
    let (sim, options, store) = store(SyncMode::Interval(Duration::from_millis(20)));
    sim.set_capacity_bytes(Some(sim.files().iter().map(|(_, bytes)| bytes).sum::<u64>() + 9000));
    let mut acknowledged = 0;
    while store.db.put(key(acknowledged), [b'v'; 100]).is_ok() {
        acknowledged += 1;
        assert!(acknowledged < 10_000, "the disk is never full");
    }
    assert!(store.db.is_disk_full() && acknowledged > 10);
    // What is not synced survives one power cut or another by luck, but not all of them.
    eventually("everything acknowledged survives every power cut", || {
        (0..16).all(|seed| {
            let image = sim.crash_image(seed);
            image.set_capacity_bytes(None);
            let after = reopen(image, &options).unwrap();
            (0..acknowledged).all(|number| after.db.get(key(number)).unwrap().is_some())
        })
    });
}

#[test]
fn close_tells_that_acknowledged_writes_were_lost() {
    let (sim, options, store) = store(SyncMode::Buffered);
    store.db.put(b"k", b"acknowledged").unwrap();
    let at_op = sim.op_count();
    let filter = Some(OpClass::Append);
    sim.set_fault(Some(Fault { at_op, kind: FaultKind::Eio, forever: true, filter }));
    eventually("the log cannot be written", || store.db.metrics().poisoned);
    sim.set_fault(None);
    assert!(matches!(store.db.close(), Err(Error::Poisoned(_))));
    let after = reopen(sim.kill_image(), &options).unwrap();
    assert!(after.db.get(b"k").unwrap().is_none(), "it was not lost");
}

#[test]
fn a_synced_batch_that_writes_nothing_makes_durable_what_was_written_before() {
    let void_range = || {
        let mut batch = terrace::WriteBatch::new();
        batch.delete_range(b"b", b"a");
        batch
    };
    for batch in [terrace::WriteBatch::new(), void_range()] {
        let (sim, options, store) = store(SyncMode::None);
        (0..20).for_each(|number| store.db.put(key(number), b"v").unwrap());
        let durable = terrace::WriteOptions { sync: Some(SyncMode::Batch) };
        store.db.write_with(batch, &durable).unwrap();
        for seed in 0..20 {
            let after = reopen(sim.crash_image(seed), &options).unwrap();
            assert!((0..20).all(|number| after.db.get(key(number)).unwrap().is_some()));
        }
    }
}

#[test]
fn nothing_is_left_over_of_a_flush_or_compaction_that_failed() {
    let (mut struck, mut failed) = (0, 0);
    for kind in [FaultKind::Enospc, FaultKind::NoDescriptors, FaultKind::Eio] {
        for after in 0..60 {
            let (sim, _, store) = store(SyncMode::None);
            for _ in 0..2 {
                (0..30).for_each(|number| store.db.put(key(number), [b'v'; 100]).unwrap());
                store.db.flush().unwrap();
            }
            store.db.wait_idle().unwrap();
            store.db.put(key(1), b"v").unwrap();
            let at_op = sim.op_count() + after;
            sim.set_fault(Some(Fault { at_op, kind, forever: false, filter: None }));
            failed += u32::from(store.db.flush().is_err());
            failed += u32::from(store.db.compact_range::<&[u8]>(..).is_err());
            struck += u32::from(sim.executed_faults() > 0);
            sim.set_fault(None);
            if store.db.metrics().poisoned {
                continue;
            }
            // The fault may have struck a thread of the background that is yet to say so.
            match write_again(&store) {
                Err(Error::Poisoned(_)) => continue,
                outcome => outcome.unwrap(),
            }
            let live = || {
                store.db.flush().and_then(|()| store.db.wait_idle()).ok()?;
                store.db.verify().ok()
            };
            let ssts = || {
                let files = sim.files();
                files.iter().filter(|(path, _)| path.extension() == Some("sst".as_ref())).count()
            };
            eventually("nothing is left over", || {
                store.db.metrics().poisoned || live() == Some(ssts() as u64)
            });
        }
    }
    assert!(struck > 60 && failed > 20, "{struck} {failed}");
}

#[test]
fn a_directory_that_cannot_be_opened_is_not_a_failed_sync() {
    for after in 0..3 {
        let (sim, options, store) = store(SyncMode::Batch);
        let at_op = sim.op_count() + after;
        let kind = FaultKind::NoDescriptors;
        let filter = Some(OpClass::SyncDir);
        sim.set_fault(Some(Fault { at_op, kind, forever: true, filter }));
        store.db.put(b"k", b"v").unwrap();
        assert!(matches!(store.db.flush(), Err(Error::Io(_) | Error::WriteStopped(_))));
        assert!(sim.executed_faults() > 0 && !store.db.metrics().poisoned);
        sim.set_fault(None);
        eventually("the flush is tried again", || store.db.flush().is_ok());
        store.db.put(b"l", b"w").unwrap();
        let after = reopen(sim.crash_image(after), &options).unwrap();
        assert_eq!(after.db.get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
        assert_eq!(after.db.get(b"l").unwrap().as_deref(), Some(&b"w"[..]));
    }
}

/// A store moves what a family has to another one and drops the first: after a power cut one of them has it.
#[test]
fn a_family_is_not_dropped_before_what_was_written_earlier_is_durable() {
    for sync in [SyncMode::None, SyncMode::Buffered, SyncMode::Interval(Duration::from_secs(3600))]
    {
        let (sim, options, store) = store(sync);
        store.db.create_column_family("old", terrace::CfOptions::default()).unwrap();
        (0..20).for_each(|number| store.db.put(key(number), b"moved").unwrap());
        store.db.drop_column_family("old").unwrap();
        for image in (0..40).map(|seed| sim.crash_image(seed)).chain([sim.kill_image()]) {
            let after = reopen(image, &options).unwrap();
            let is_gone = after.db.column_family("old").is_none();
            let there = (0..20).filter(|number| after.db.get(key(*number)).unwrap().is_some());
            assert!(!is_gone || there.count() == 20, "{sync:?}");
        }
    }
}

#[test]
fn a_bound_on_writes_does_not_hold_the_open_up() {
    let sim = SimVfs::new(7);
    let mut options = small_options(Arc::new(sim.clone()), &stopped_clock());
    options.advanced.memtable_bytes = 512 << 10;
    let store = Store::open(options.clone()).unwrap();
    (0..150).for_each(|number| store.db.put(key(number), [b'v'; 2000]).unwrap());
    // At a byte per second what is replayed would take days to be flushed.
    options.advanced.rate_limit_bytes_per_s = 1;
    let after = reopen(sim.kill_image(), &options).unwrap();
    assert!(
        after.db.metrics().levels.iter().any(|level| level.file_count > 0),
        "it is not flushed"
    );
    assert!((0..150).all(|number| after.db.get(key(number)).unwrap().is_some()));
    assert_eq!(after.db.option("rate_limit_bytes_per_s").as_deref(), Some("1"));
    after.db.close().unwrap();
}
