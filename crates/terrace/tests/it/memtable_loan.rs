//! The block cache has what memtables do not use of their memory, and gives it back before a write needs it.

use crate::harness::{DIR, eventually};
use crate::stop_on_drop::StopOnDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use terrace::vfs::SimVfs;
use terrace::{Compression, Db, MemoryShares, MemorySplit, Options, WriteBatch};
use terrace_base::ManualClock;
use terrace_base::rng::{Rng, SplitMix64};

const KEYS: u64 = 50_000;
const VALUE_BYTES: usize = 400;
const BUDGET: usize = 4 << 20;
/// Of it, what memtables have.
const SHARE: u64 = 2 << 20;

fn key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

struct Bed {
    db: Db,
    rng: SplitMix64,
}

impl Bed {
    /// A store of five times its budget, with empty memtables.
    fn new() -> Self {
        let mut options = Options { memory_budget: BUDGET, ..Options::default() };
        options.default_family.compression = vec![Compression::None];
        options.advanced.vfs = Arc::new(SimVfs::new(3));
        options.advanced.clock = Arc::new(ManualClock::at(1_000_000));
        options.advanced.memory_shares = MemoryShares { memtables: 0.5, cache: 0.3, filters: 0.2 };
        let mut bed = Self { db: Db::open(DIR, options).unwrap(), rng: SplitMix64::new(1) };
        bed.write(KEYS);
        bed.db.flush().unwrap();
        bed.db.wait_idle().unwrap();
        bed
    }

    fn value(&mut self) -> [u8; VALUE_BYTES] {
        let mut value = [0u8; VALUE_BYTES];
        for part in value.chunks_exact_mut(8) {
            part.copy_from_slice(&self.rng.next_u64().to_le_bytes());
        }
        value
    }

    fn write(&mut self, count: u64) {
        for n in 0..count {
            let value = self.value();
            self.db.put(key(n), value).unwrap();
        }
    }

    fn read(&mut self, count: u64) {
        for _ in 0..count {
            let n = self.rng.below(KEYS);
            assert!(self.db.get(key(n)).unwrap().is_some());
        }
    }

    fn lent(&self) -> u64 {
        self.db.metrics().memtable_lent_bytes
    }

    fn read_until_lent(&mut self, bytes: u64) {
        eventually("memtables lend", || {
            self.read(1000);
            self.check();
            self.lent() >= bytes
        });
    }

    /// All pools together never have more than the budget; memtables never use what they lend.
    fn check(&self) {
        let memory = self.db.memory();
        let limits = memory.pools[..3].iter().map(|pool| pool.limit_bytes - pool.lent_bytes);
        assert!(limits.sum::<u64>() <= memory.budget_bytes, "{memory:?}");
        let memtables = &memory.pools[0];
        assert_eq!(memtables.name, "memtables");
        assert!(memtables.used_bytes + memtables.lent_bytes <= memtables.limit_bytes, "{memory:?}");
    }
}

#[test]
fn the_cache_has_what_memtables_do_not_use_until_a_write_needs_it() {
    let mut bed = Bed::new();
    for _ in 0..2 {
        bed.read_until_lent(SHARE * 9 / 10);
        let own = (BUDGET as f64 * 0.5) as u64;
        eventually("blocks use it", || {
            bed.read(1000);
            bed.check();
            bed.db.memory().pools[1].used_bytes > own
        });
        let before = bed.lent();
        let mut least = before;
        for _ in 0..2 * SHARE / VALUE_BYTES as u64 {
            bed.write(1);
            bed.check();
            least = least.min(bed.lent());
        }
        assert!(least + 100_000 < before, "{least} of {before}");
        bed.db.flush().unwrap();
    }
    bed.db.close().unwrap();
}

/// What a large batch needs is there before it is written, whatever was lent.
#[test]
fn a_batch_as_large_as_all_memtables_takes_back_all() {
    let mut bed = Bed::new();
    bed.read_until_lent(SHARE * 9 / 10);
    let mut batch = WriteBatch::new();
    for n in 0..(SHARE / 2 / VALUE_BYTES as u64) {
        batch.put(key(n), bed.value());
    }
    bed.db.write(batch).unwrap();
    bed.check();
    bed.db.close().unwrap();
}

/// Also while somebody reads, so that a thread that lends looks beside them, writes find their memory.
#[test]
fn writes_from_several_threads_take_back_what_they_use() {
    let mut bed = Bed::new();
    bed.read_until_lent(SHARE / 2);
    let is_done = AtomicBool::new(false);
    let db = &bed.db;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut rng = SplitMix64::new(7);
            while !is_done.load(Ordering::Relaxed) {
                assert!(db.get(key(rng.below(KEYS))).unwrap().is_some());
            }
        });
        let _done = StopOnDrop(&is_done);
        for round in 0..40u64 {
            let writers: Vec<_> = (0..2u64)
                .map(|writer| {
                    scope.spawn(move || {
                        for n in 0..20 * writer {
                            db.put(key(n), [7; VALUE_BYTES]).unwrap();
                        }
                        let mut batch = WriteBatch::new();
                        for n in 0..(round * 37) % 500 {
                            batch.put(key(n), [8; VALUE_BYTES]);
                        }
                        db.write(batch).unwrap();
                    })
                })
                .collect();
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            bed.check();
        }
    });
    bed.db.close().unwrap();
}

/// A program that never asks for single keys gets it as well.
#[test]
fn scans_alone_are_a_reason_to_lend() {
    let mut bed = Bed::new();
    eventually("memtables lend", || {
        for _ in 0..100 {
            let mut iter = bed.db.iter().unwrap();
            iter.seek(&key(bed.rng.below(KEYS))).unwrap();
            assert!(iter.valid());
        }
        bed.lent() >= SHARE / 2
    });
    bed.db.close().unwrap();
}

/// The arbiter moves what each pool has itself, and a changed budget begins with nothing lent.
#[test]
fn nothing_stays_lent_when_the_budget_moves() {
    let mut bed = Bed::new();
    bed.read_until_lent(SHARE / 2);
    bed.db.set_memory_split(MemorySplit::Auto);
    assert_eq!(bed.lent(), 0);
    bed.check();
    bed.read(20_000);
    assert_eq!(bed.lent(), 0);
    bed.db.set_memory_split(MemorySplit::Fixed);
    bed.read_until_lent(SHARE / 2);
    bed.db.set_memory_budget(2 * BUDGET).unwrap();
    bed.check();
    bed.read_until_lent(SHARE);
    bed.db.set_memory_budget(BUDGET).unwrap();
    bed.check();
    bed.db.close().unwrap();
}
