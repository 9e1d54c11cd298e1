//! What programs hold on to, and what they use again and again: memtables of iterators, blocks of values, open files.

use crate::harness::{DIR, eventually, small_options, stopped_clock};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace::vfs::SimVfs;
use terrace::{Compression, Db, FilterAllocator, Options, WriteBatch};
use terrace_base::Result;
use terrace_vfs::{Call, Interposed};

/// Counts how often the file with this name is opened.
#[derive(Clone)]
struct Opens {
    sim: SimVfs,
    file: &'static str,
    count: Arc<AtomicU64>,
}

impl Interposed for Opens {
    type Files = SimVfs;

    fn files(&self) -> &SimVfs {
        &self.sim
    }

    fn around<T>(
        &self,
        call: Call<'_>,
        path: &Path,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        if matches!(call, Call::Open) && path.file_name().is_some_and(|name| name == self.file) {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
        work()
    }
}

fn key(n: u32) -> [u8; 4] {
    n.to_be_bytes()
}

const FILES: u32 = 24;

/// A store of [`FILES`] files with a key each, of which it may have eight open.
fn store_of_files(sim: &SimVfs) -> Options {
    let mut options = small_options(Arc::new(sim.clone()), &stopped_clock());
    options.column_families.clear();
    options.advanced.filter_allocator = FilterAllocator::Cached;
    options.advanced.compact_when_idle = false;
    options.advanced.l0_compaction_trigger = 100;
    options.advanced.l0_slowdown = 200;
    options.advanced.l0_stop = 300;
    let db = Db::open(DIR, options.clone()).unwrap();
    for n in 0..FILES {
        db.put(key(n), b"value").unwrap();
        db.flush().unwrap();
    }
    db.close().unwrap();
    options.max_open_files = 8;
    options
}

/// A file that `multi_get` reads is in use as much as one that `get` reads, when some have to be closed.
#[test]
fn a_file_that_is_read_by_batches_stays_open() {
    let count = |batched: bool| {
        let sim = SimVfs::new(1);
        let mut options = store_of_files(&sim);
        let files = sim.files().into_iter().filter_map(|(path, _)| {
            let name = path.file_name()?.to_str()?.to_owned();
            name.ends_with(".sst").then_some(name)
        });
        let first: &'static str = files.min().unwrap().leak();
        let opens = Opens { sim, file: first, count: Arc::default() };
        options.advanced.vfs = Arc::new(opens.clone());
        let db = Db::open(DIR, options).unwrap();
        for n in 0..10 * FILES {
            let found = match batched {
                true => db.multi_get(&[key(0)]).unwrap().remove(0),
                false => db.get(key(0)).unwrap(),
            };
            assert!(found.is_some());
            assert!(db.get(key(1 + n % (FILES - 1))).unwrap().is_some());
        }
        opens.count.load(Ordering::Relaxed)
    };
    let alone = count(false);
    assert!(alone > 0 && alone < u64::from(FILES) * 2, "{alone}");
    assert_eq!(count(true), alone);
}

/// Short values are copied out of their blocks, but a few.
#[test]
fn many_values_at_once_do_not_keep_all_blocks() {
    let mut options = Options { memory_budget: 16 << 20, ..Options::default() };
    options.advanced.vfs = Arc::new(SimVfs::new(1));
    options.default_family.compression = vec![Compression::None];
    let db = Db::open(DIR, options).unwrap();
    let value = |n: u32| vec![n as u8; if n.is_multiple_of(2) { 100 } else { 3000 }];
    for n in 0..4000 {
        db.put(key(n), value(n)).unwrap();
    }
    db.flush().unwrap();
    let keys: Vec<_> = (0..4000).map(key).collect();
    let found = db.multi_get(&keys).unwrap();
    for (n, found) in found.iter().enumerate() {
        let found = found.as_ref().unwrap();
        assert_eq!(**found, value(n as u32));
        if n >= 64 && n % 2 == 0 {
            assert!(found.pinned_bytes() <= 4 * found.len(), "{n}: {}", found.pinned_bytes());
        }
    }
    let few = db.multi_get(&[keys[0], keys[2]]).unwrap();
    assert!(few.iter().flatten().all(|value| value.pinned_bytes() > 1000), "copied");
}

/// A read-only store has the log in memory, and after each refresh another one.
#[test]
fn memtables_of_iterators_from_before_a_refresh_are_taken_from_the_cache() {
    let mut options = Options { memory_budget: 512 << 20, ..Options::default() };
    options.advanced.vfs = Arc::new(SimVfs::new(1));
    let writer = Db::open(DIR, options.clone()).unwrap();
    let fill = |round: u32| {
        let mut batch = WriteBatch::new();
        for n in 0..10_000 {
            batch.put(key(round * 10_000 + n), [7; 100]);
        }
        writer.write(batch).unwrap();
    };
    fill(0);
    options.memory_budget = 64 << 20;
    let reader = Db::open_read_only(DIR, options).unwrap();
    let before = reader.metrics().pinned_bytes;
    let mut iters = Vec::new();
    for round in 1..6 {
        let mut iter = reader.iter().unwrap();
        iter.seek_to_last().unwrap();
        iters.push(iter);
        fill(round);
        assert!(reader.refresh().unwrap());
    }
    assert_eq!(writer.metrics().flushes, 0);
    // One to five batches of a MiB and more.
    eventually("they are pinned", || reader.metrics().pinned_bytes > before + (12 << 20));
    for (round, iter) in iters.iter().enumerate() {
        assert_eq!(iter.key(), key(round as u32 * 10_000 + 9_999));
    }
    drop(iters);
    eventually("they are gone", || reader.metrics().pinned_bytes < before + (1 << 20));
    reader.close().unwrap();
    writer.close().unwrap();
}

/// Memtables that only iterators hold count against the block cache, and stop no writer.
#[test]
fn memtables_of_iterators_are_taken_from_the_cache() {
    let mut options = Options { memory_budget: 64 << 20, ..Options::default() };
    options.advanced.vfs = Arc::new(SimVfs::new(1));
    options.default_family.compression = vec![Compression::None];
    // Others lend what they do not use, the more the longer the test takes.
    options.advanced.filter_allocator = FilterAllocator::Cached;
    let db = Db::open(DIR, options).unwrap();
    let fill = |round: u32| {
        let mut batch = WriteBatch::new();
        for n in 0..10_000 {
            batch.put(key(round * 10_000 + n), [7; 100]);
        }
        db.write(batch).unwrap();
    };
    let limit = || {
        let memory = db.memory();
        memory.pools.iter().find(|pool| pool.name == "blocks").unwrap().limit_bytes
    };
    let before = (db.metrics().pinned_bytes, limit());
    let mut iters = Vec::new();
    for round in 0..100 {
        fill(round);
        let mut iter = db.iter().unwrap();
        iter.seek_to_first().unwrap();
        iters.push(iter);
        db.flush().unwrap();
        if round == 19 {
            eventually("they are pinned", || {
                db.metrics().pinned_bytes > before.0 + (19 << 20) && limit() + (19 << 20) < before.1
            });
        }
    }
    eventually("all of them are", || db.metrics().pinned_bytes > before.0 + (90 << 20));
    assert!(limit() >= 1 << 20, "some of the cache is left");
    for (round, iter) in iters.iter_mut().enumerate() {
        iter.seek_to_last().unwrap();
        assert_eq!(iter.key(), key(round as u32 * 10_000 + 9_999));
    }
    drop(iters);
    eventually("they are gone", || {
        db.metrics().pinned_bytes < before.0 + (1 << 20) && limit() + (1 << 20) > before.1
    });
    db.close().unwrap();
}
