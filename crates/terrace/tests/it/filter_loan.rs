//! Filters borrow from the block cache where they save more reads with its memory than it does, and give back.
//!
//! The store is 600 times as large as the memory for blocks and filters, and has few files: what a file pins
//! is in proportion to it then. Device reads are counted, and nothing depends on how long anything takes.

use crate::harness::{DIR, eventually};
use std::sync::Arc;
use terrace::vfs::SimVfs;
use terrace::{Compression, Db, MemoryShares, MemorySplit, Options};
use terrace_base::ManualClock;
use terrace_base::rng::{Rng, SplitMix64};

const KEYS: u64 = 400_000;
const VALUE_BYTES: usize = 400;
/// Memory for blocks and filters.
const MEMORY_BYTES: f64 = KEYS as f64 * 400.0 / 600.0;
const BUDGET: f64 = (4 << 20) as f64;
/// Lookups of a measurement.
const LOOKUPS: u64 = 20_000;

/// Numbers as they are in many key spaces: the odd ones are absent.
fn key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

struct Bed {
    db: Db,
    rng: SplitMix64,
}

impl Bed {
    fn new() -> Self {
        let mut rng = SplitMix64::new(1);
        let mut options = Options { memory_budget: 512 << 20, ..Options::default() };
        options.default_family.compression = vec![Compression::None];
        options.advanced.vfs = Arc::new(SimVfs::new(3));
        // The budget moves when a test says so.
        options.advanced.clock = Arc::new(ManualClock::at(1_000_000));
        options.advanced.memtable_bytes = 64 << 20;
        let db = Db::open(DIR, options.clone()).unwrap();
        for n in 0..KEYS {
            let mut value = [0u8; VALUE_BYTES];
            for part in value.chunks_exact_mut(8) {
                part.copy_from_slice(&rng.next_u64().to_le_bytes());
            }
            db.put(key(2 * n), value).unwrap();
        }
        db.flush().unwrap();
        db.wait_idle().unwrap();
        db.close().unwrap();

        options.memory_budget = BUDGET as usize;
        options.advanced.memtable_bytes = 16 << 10;
        // It stands, so that a budget that moves does so when the test says so, and never by itself.
        options.advanced.clock = Arc::new(ManualClock::at(1_700_000_000_000));
        // As divided by default, but that memtables have hardly anything, which they could lend.
        let part = MEMORY_BYTES / BUDGET;
        options.advanced.memory_shares = MemoryShares {
            memtables: 0.001,
            cache: part * 0.55 / 0.75,
            filters: part * 0.2 / 0.75,
        };
        Self { db: Db::open(DIR, options).unwrap(), rng }
    }

    fn look_up_absent(&mut self, count: u64) {
        for _ in 0..count {
            let n = self.rng.below(KEYS - 1);
            assert!(self.db.get(key(2 * n + 1)).unwrap().is_none());
        }
    }

    /// Looks up keys of so few blocks that the cache's share holds them.
    fn look_up_cached(&mut self, count: u64) {
        for _ in 0..count {
            let n = self.rng.below(16) * 20_000;
            assert!(self.db.get(key(2 * n)).unwrap().is_some());
        }
    }

    /// Blocks in the cache, and room for them.
    fn cached(&self) -> (u64, u64) {
        let blocks = &self.db.memory().pools[1];
        assert_eq!(blocks.name, "blocks");
        (blocks.used_bytes, blocks.limit_bytes)
    }

    fn borrowed(&self) -> u64 {
        self.db.metrics().filter_borrowed_bytes
    }

    /// Reads of the device per lookup of `lookups`.
    fn reads(&mut self, lookups: fn(&mut Self, u64)) -> f64 {
        let before = self.db.metrics().reads.device_reads;
        lookups(self, LOOKUPS);
        (self.db.metrics().reads.device_reads - before) as f64 / LOOKUPS as f64
    }

    /// Both pools together never have more than their share of the budget, and use no more.
    fn check(&self) {
        let memory = self.db.memory();
        let pool = |name: &str| memory.pools.iter().find(|pool| pool.name == name).unwrap();
        let (blocks, filters, pinned) = (pool("blocks"), pool("filters"), pool("pinned"));
        let sum = blocks.limit_bytes + filters.limit_bytes + pinned.used_bytes;
        assert!(sum as f64 <= MEMORY_BYTES * 1.02, "{sum}: {memory:?}");
        assert!(filters.used_bytes <= filters.limit_bytes, "{memory:?}");
    }
}

#[test]
fn filters_borrow_for_absent_keys_and_give_back_for_cached_ones() {
    let mut bed = Bed::new();
    for _ in 0..2 {
        let mut reads = 1.0;
        eventually("absent keys are hardly read for", || {
            reads = bed.reads(Bed::look_up_absent);
            bed.check();
            reads < 0.13
        });
        let m = bed.db.metrics();
        assert!(m.filter_borrowed_bytes > 0 && m.filter_lent_bytes == 0, "{m}");
        let absent = reads;
        eventually("the cache has its memory again", || {
            reads = bed.reads(Bed::look_up_cached);
            bed.check();
            bed.borrowed() == 0 && reads < 0.01
        });
        println!("{absent} reads for an absent key, then {reads} for a cached one");
    }
    bed.db.close().unwrap();
}

/// Scans look nothing up: they get the memory back too.
#[test]
fn filters_give_back_to_scans() {
    let mut bed = Bed::new();
    eventually("filters borrow", || {
        bed.look_up_absent(1000);
        bed.borrowed() > 10_000
    });
    eventually("the cache has its memory again", || {
        for _ in 0..100 {
            let mut iter = bed.db.iter().unwrap();
            iter.seek(&key(bed.rng.below(KEYS))).unwrap();
            assert!(iter.valid());
        }
        bed.check();
        bed.borrowed() == 0
    });
    bed.db.close().unwrap();
}

/// The arbiter goes on from where the loan was, and a fixed split begins anew.
#[test]
fn what_is_borrowed_stays_when_the_budget_begins_to_move() {
    let mut bed = Bed::new();
    let limit = |bed: &Bed, at: usize| bed.db.memory().pools[at].limit_bytes;
    let share = limit(&bed, 2);
    eventually("filters borrow", || {
        bed.look_up_absent(1000);
        bed.borrowed() > 10_000
    });
    let before = limit(&bed, 2);
    let (used, room) = bed.cached();
    assert!(used * 10 > room * 9, "{used} of {room}");
    bed.db.set_memory_split(MemorySplit::Auto);
    bed.check();
    let still = bed.cached().0;
    assert!(still * 10 > used * 9, "hardly a block leaves for that: {still} of {used}");
    assert_eq!(bed.borrowed(), 0);
    assert!(limit(&bed, 2) + 10_000 >= before, "{} {before}", limit(&bed, 2));
    bed.db.set_memory_split(MemorySplit::Fixed);
    assert_eq!(limit(&bed, 2), share);
    bed.db.close().unwrap();
}

/// A smaller budget leaves filters no more of the cache's memory than it can do without.
#[test]
fn a_smaller_budget_shrinks_the_loan() {
    let mut bed = Bed::new();
    bed.db.set_memory_budget(16 << 20).unwrap();
    eventually("filters borrow", || {
        bed.look_up_absent(1000);
        bed.borrowed() > 2 << 10
    });
    bed.db.set_memory_budget(8 << 20).unwrap();
    let (used, room) = bed.cached();
    assert!(used * 10 > room * 9, "only what has no room leaves: {used} of {room}");
    bed.db.set_memory_budget(4 << 20).unwrap();
    bed.look_up_absent(1000);
    let memory = bed.db.memory();
    let sum: u64 = memory.pools[..3].iter().map(|pool| pool.limit_bytes - pool.lent_bytes).sum();
    assert!(sum <= memory.budget_bytes, "{memory:?}");
    eventually("filters keep to it", || {
        bed.look_up_absent(100);
        bed.db.memory().pools[2].used_bytes <= bed.db.memory().pools[2].limit_bytes
    });
    bed.db.close().unwrap();
}
