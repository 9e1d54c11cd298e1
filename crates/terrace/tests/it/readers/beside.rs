//! Readers and a writer at the same time, on the machine's file system.

use super::*;
use crate::harness::{effort, eventually};
use crate::stop_on_drop::StopOnDrop;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use terrace::vfs::PosixVfs;
use terrace::{Compression, SyncMode};

/// What the writer does between batches, over and over.
fn work(writer: &Writer, rounds: u64) {
    let db = &writer.db;
    for round in 0..rounds {
        writer.write(7);
        match round % 9 {
            1 | 5 => db.flush().unwrap(),
            2 => db.compact_range::<&[u8]>(..).unwrap(),
            3 => db.collect_garbage(0.0).unwrap(),
            4 => {
                let passing = db.create_column_family("passing", CfOptions::default()).unwrap();
                passing.put(b"k", value(round)).unwrap();
            }
            7 => db.drop_column_family("passing").unwrap(),
            8 => writer.replace_all_files(),
            _ => {}
        }
    }
}

/// A writer with one reader that opens the store again and again and one that refreshes it; gives how
/// often they did.
fn beside(sync: SyncMode, rounds: u64) -> (u64, u64) {
    let dir = tempfile::tempdir().unwrap();
    let mut options = options(PosixVfs::shared());
    options.sync = sync;
    let writer = Writer::open(dir.path(), options.clone());
    // What a buffered log holds back nobody else sees.
    let floor = || match sync {
        SyncMode::Buffered => 0,
        _ => writer.acknowledged(),
    };
    let open = || Db::open_read_only(dir.path(), options.clone()).unwrap();
    let done = AtomicBool::new(false);
    let counts = std::thread::scope(|scope| {
        let opener = scope.spawn(|| {
            let (mut opens, mut before) = (0, 0);
            while !done.load(Ordering::SeqCst) {
                let least = floor().max(before);
                let newest = seen(&open()).unwrap();
                assert!(newest >= least, "open {opens}: {newest} after {least}");
                (opens, before) = (opens + 1, newest);
            }
            opens
        });
        let refresher = scope.spawn(|| {
            let reader = open();
            let (mut refreshes, mut before) = (0, 0);
            let mut kept = None;
            while !done.load(Ordering::SeqCst) {
                let least = floor().max(before);
                reader.refresh().unwrap();
                let newest = seen(&reader).unwrap();
                assert!(newest >= least, "refresh {refreshes}: {newest} after {least}");
                if let Some((snapshot, newest)) = kept.replace((reader.snapshot(), newest)) {
                    assert_eq!(seen_at(&reader, &snapshot).unwrap(), newest);
                }
                (refreshes, before) = (refreshes + 1, newest);
            }
            refreshes
        });
        {
            let _done = StopOnDrop(&done);
            work(&writer, rounds);
        }
        (opener.join().unwrap(), refresher.join().unwrap())
    });
    writer.replace_all_files();
    assert_eq!(writer.db.metrics().reader_pinned_files, 0, "nobody reads any more");
    writer.db.sync().unwrap();
    assert_eq!(seen(&open()).unwrap(), writer.acknowledged());
    counts
}

#[test]
fn readers_beside_a_writer_see_a_prefix_and_no_error() {
    let modes = [
        SyncMode::None,
        SyncMode::Batch,
        SyncMode::Interval(Duration::from_millis(1)),
        SyncMode::Buffered,
    ];
    for sync in modes {
        let (opens, refreshes) = beside(sync, effort(45));
        println!("{sync:?}: {opens} opens, {refreshes} refreshes");
        assert!(opens > 0 && refreshes > 0);
    }
}

/// An iterator goes on over files that are gone after two refreshes, of which the first one finds them there. They are
/// closed once nobody reads them.
#[test]
fn files_that_only_an_earlier_iterator_reads_are_counted_and_closed() {
    for max_open_files in [4, 1000] {
        let sim = SimVfs::new(1);
        let mut options = sim_options(&sim);
        options.max_open_files = max_open_files;
        options.default_family.compression = vec![Compression::None];
        let writer = Writer::open(DIR.as_ref(), options.clone());
        let open = || Db::open_read_only(DIR, options.clone()).unwrap();
        // Of several files in a level an iterator opens one after the other.
        writer.write(600);
        writer.replace_all_files();
        let reader = open();
        assert!(reader.metrics().levels.iter().any(|level| level.file_count > 3));
        for round in 0..6 {
            let newest = seen(&reader).unwrap();
            let snapshot = reader.snapshot();
            let mut iter = reader.iter_with(&at(&snapshot)).unwrap().entries();
            let mut keys = vec![iter.next().unwrap().unwrap().0];
            writer.write(1);
            reader.refresh().unwrap();
            writer.replace_all_files();
            reader.refresh().unwrap();
            keys.extend(iter.by_ref().map(|entry| entry.unwrap().0));
            let entries = keys.iter().filter(|key| key.starts_with(b"entry")).count();
            assert_eq!(entries as u64, newest, "round {round}");
            drop((iter, snapshot));
            writer.write(1);
            reader.refresh().unwrap();
            let open_files = reader.metrics().open_files;
            assert!(open_files <= max_open_files, "round {round}: {open_files} are open");
        }
        if max_open_files == 1000 {
            let fresh = open();
            seen(&fresh).unwrap();
            seen(&reader).unwrap();
            let counts = |db: &Db| (db.metrics().open_files, db.metrics().pinned_bytes);
            // What the iterators held is counted until the house thread has looked again.
            eventually("nothing is pinned", || counts(&reader) == counts(&fresh));
        }
    }
}
