//! A process that is short of descriptors, readers that pin much memory, and files that are not open.

use super::*;
use crate::{Db, Options};
use std::ops::RangeInclusive;
use terrace_base::range_tombstone::Fragment;
use terrace_base::{RangeTombstones, SeqNo};
use terrace_sst::{SstOptions, SstWriter};
use terrace_vfs::{Fault, FaultKind, OpClass, SimVfs};

#[test]
fn without_a_descriptor_a_reader_takes_that_of_another() {
    let sim = SimVfs::new(1);
    let mut options = Options { memory_budget: 16 << 20, ..Options::default() };
    options.advanced.vfs = Arc::new(sim.clone());
    options.advanced.reserve_bytes = 0;
    options.advanced.compact_when_idle = false;
    let db = Db::open("/db", options.clone()).unwrap();
    for key in [b"a", b"b", b"c"] {
        db.put(key, b"value").unwrap();
        db.flush().unwrap();
    }
    db.close().unwrap();
    let db = Db::open("/db", options).unwrap();
    let read = &db.inner().read;
    let (cache, family) = (&read.table_cache, read.family(0).unwrap());
    let version = family.hold_state().version.clone();
    let files: Vec<&Arc<FileMeta>> = version.all_files().map(|(_, file)| file).collect();
    let [first, second, third] = files[..] else { panic!("{} files", files.len()) };
    let lack = |forever| {
        let (at_op, kind, filter) = (sim.op_count(), FaultKind::NoDescriptors, Some(OpClass::Open));
        sim.set_fault(Some(Fault { at_op, kind, forever, filter }));
    };
    cache.reader(first).unwrap();
    cache.reader(second).unwrap();
    let (open, before) = (cache.open_count(), sim.executed_faults());
    lack(false);
    cache.reader(third).unwrap();
    assert_eq!((sim.executed_faults() - before, cache.open_count()), (1, open));

    // If there is none all the same, or no reader to close, that is an error.
    for file in files {
        cache.forget(file.number);
    }
    lack(true);
    assert!(cache.reader(first).err().unwrap().is_transient());
    sim.set_fault(None);
    cache.reader(first).unwrap();
}

/// A directory of its own, and a cache of many readers over it.
fn many_readers() -> (Arc<dyn Vfs>, TableCache) {
    let vfs: Arc<dyn Vfs> = Arc::new(SimVfs::new(1));
    let dir = Path::new("/store");
    vfs.create_dir_all(dir).unwrap();
    let cache = Arc::new(BlockCache::new(64 << 20));
    let counters = Arc::new(ReadCounters::default());
    let filters = FilterBudget::cached();
    (vfs.clone(), TableCache::new(vfs, dir, cache, counters, filters, false, 1000))
}

/// Files of these numbers, whose readers pin 120 KB for each of `tombstone_count` range tombstones.
fn files(
    vfs: &dyn Vfs,
    dir: &Path,
    numbers: RangeInclusive<u64>,
    tombstone_count: u8,
) -> Vec<FileMeta> {
    let mut tombstones = RangeTombstones::default();
    for byte in 0..tombstone_count {
        let start = vec![byte; 60_000];
        let end = [&start[..], &[0]].concat();
        tombstones.push(Fragment { start: &start, end: &end, seqnos: &[SeqNo::new(1)] });
    }
    let write = |number| {
        let number = FileNumber::new(number);
        let path = names::sst_path(dir, number);
        let mut writer = SstWriter::create(vfs, &path, number, SstOptions::default()).unwrap();
        writer.set_range_tombstones(tombstones.clone());
        let end = writer.finish().unwrap();
        FileMeta {
            number,
            size_bytes: end.size_bytes,
            range_tombstone_count: end.range_tombstone_count,
            raw_bytes: end.raw_bytes,
            ..FileMeta::default()
        }
    };
    numbers.map(write).collect()
}

#[test]
fn readers_that_pin_more_than_they_may_are_closed() {
    let (vfs, readers) = many_readers();
    let files = files(&*vfs, readers.dir(), 1..=16, 12);
    for file in &files {
        readers.reader(file).unwrap();
    }
    let pinned = readers.pinned_bytes();
    assert!(pinned > BESIDE_SHARE_BYTES + (2 << 20), "{pinned}");
    assert_eq!(readers.open_count(), files.len());
    assert!(readers.has_room());

    // A share of which they may pin little more.
    readers.set_cache_memory((pinned - BESIDE_SHARE_BYTES) / 7 * 8 + 64, 0);
    assert_eq!((readers.open_count(), readers.pinned_bytes()), (files.len(), pinned));
    assert!(!readers.has_room(), "none is opened ahead that another one is closed for");

    // A smaller one closes some at once, and then each that is opened others.
    readers.set_cache_memory(1 << 20, 0);
    for file in &files {
        let (open, pinned) = (readers.open_count(), readers.pinned_bytes());
        assert!(pinned <= readers.most_reader_bytes() && open >= LEAST_OPEN, "{open}: {pinned}");
        readers.reader(file).unwrap();
    }
    // All of them stay open where they may.
    readers.set_cache_memory(64 << 20, 0);
    for file in &files {
        readers.reader(file).unwrap();
    }
    assert_eq!((readers.open_count(), readers.pinned_bytes()), (files.len(), pinned));
}

#[test]
fn what_is_not_open_is_not_closed_again() {
    let mut options = Options { memory_budget: 16 << 20, ..Options::default() };
    options.advanced.vfs = Arc::new(SimVfs::new(1));
    let db = Db::open("/db", options).unwrap();
    let cache = &db.inner().read.table_cache;
    let slots: Vec<_> = (1000..1100).map(|n| cache.slot(FileNumber::new(n))).collect();
    slots.iter().for_each(|slot| slot.touched.store(true, Ordering::Relaxed));
    // One that another thread is about to close.
    cache.open.fetch_add(1, Ordering::Relaxed);
    let turn = cache.turn.lock();
    // Would wait for ever for the lock of its own thread.
    cache.close_down_to(0, &slots[0]);
    drop(turn);
    cache.open.fetch_sub(1, Ordering::Relaxed);
    assert!(slots.iter().all(|slot| slot.touched.load(Ordering::Relaxed)));
}

#[test]
fn a_reader_that_pins_more_than_all_may_closes_no_small_ones() {
    let (vfs, readers) = many_readers();
    let small = files(&*vfs, readers.dir(), 1..=6, 1);
    let large = files(&*vfs, readers.dir(), 7..=7, 160);
    readers.set_cache_memory(1 << 20, 0);
    let again = || {
        readers.forget(small[0].number);
        readers.reader(&small[0]).unwrap();
        readers.open_count()
    };
    for file in small.iter().chain(&large) {
        readers.reader(file).unwrap();
    }
    assert!(readers.pinned_bytes() > readers.most_reader_bytes());
    assert_eq!(readers.open_count(), 7);
    // What is in use stays when others are opened, and alone is closed when it is not.
    readers.reader(&large[0]).unwrap();
    assert_eq!(again(), 7);
    assert_eq!(again(), 6);
    assert!(readers.pinned_bytes() < readers.most_reader_bytes());
}
