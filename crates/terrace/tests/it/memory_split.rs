//! The memory budget moves with the workload (`MemorySplit::Auto`), or stays (`MemorySplit::Fixed`).
//!
//! Seconds are those of a clock that the tests turn; how fast the machine is does not matter.

use crate::harness::{DIR, eventually};
use crate::stop_on_drop::StopOnDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use terrace::vfs::SimVfs;
use terrace::{
    Db, FilterAllocator, HotTableMode, MemoryShape, MemorySplit, ModelCosts, Options, ReadOptions,
};
use terrace_base::ManualClock;
use terrace_base::rng::{Rng, SplitMix64};

const BUDGET: u64 = 8 << 20;
const KEYS: u64 = 30_000;
/// Operations of a second.
const OPS: u64 = 1000;
const VALUE: [u8; 600] = [7; 600];

fn key(n: u64) -> [u8; 8] {
    // Spread over the key space, so that neighbours in time are none there.
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

struct Bed {
    clock: ManualClock,
    options: Options,
    db: Db,
    rng: SplitMix64,
}

impl Bed {
    fn new(split: MemorySplit) -> Self {
        let bed = Self::empty(split);
        for n in 0..KEYS {
            bed.db.put(key(n), VALUE).unwrap();
        }
        bed.db.flush().unwrap();
        bed.db.wait_idle().unwrap();
        bed
    }

    fn empty(split: MemorySplit) -> Self {
        let (sim, clock) = (SimVfs::new(3), ManualClock::at(1_000_000));
        let mut options = Options { memory_budget: BUDGET as usize, ..Options::default() };
        let a = &mut options.advanced;
        a.vfs = Arc::new(sim.clone());
        a.clock = Arc::new(clock.clone());
        a.memory_split = split;
        a.level_base_bytes = 2 << 20;
        a.target_file_bytes = 1 << 20;
        // What is measured is not to decide.
        a.model_costs = Some(ModelCosts {
            training_ns_per_key: 100.0,
            index_ns: 1000.0,
            model_ns: 500.0,
            find_file_ns: 100.0,
        });
        let db = Db::open(DIR, options.clone()).unwrap();
        Self { clock, options, db, rng: SplitMix64::new(5) }
    }

    /// A second of reads, each key alike.
    fn read(&mut self, db: &Db) {
        for _ in 0..OPS {
            let n = self.rng.below(KEYS);
            db.get_with(key(n), &ReadOptions::default()).unwrap().unwrap();
        }
        self.clock.advance(1000);
    }

    /// A second of overwrites.
    fn write(&mut self) {
        for _ in 0..OPS {
            let n = self.rng.below(KEYS);
            self.db.put(key(n), VALUE).unwrap();
        }
        self.clock.advance(1000);
    }
}

fn limit(memory: &MemoryShape, name: &str) -> u64 {
    memory.pools.iter().find(|pool| pool.name == name).unwrap().limit_bytes
}

/// The pools never have more than the budget together.
fn check_sum(db: &Db) {
    let memory = db.memory();
    let sum: u64 = memory.pools[..3].iter().map(|pool| pool.limit_bytes - pool.lent_bytes).sum();
    assert!(sum <= memory.budget_bytes, "{sum}: {memory:?}");
}

#[test]
fn the_budget_follows_reads_then_writes_then_reads() {
    let mut bed = Bed::new(MemorySplit::Auto);
    let db = bed.db.clone();
    let start = db.memory();
    for round in 0..2 {
        eventually("reads get memory", || {
            bed.read(&db);
            check_sum(&db);
            limit(&db.memory(), "memtables") <= BUDGET / 6
        });
        let reading = db.memory();
        assert!(limit(&reading, "blocks") > limit(&start, "blocks"), "{reading:?}");
        // A third of a quarter.
        assert!(limit(&reading, "memtables") >= BUDGET / 12, "below the floor: {reading:?}");
        let why = reading.last_move.unwrap();
        assert!(why.contains("KiB from") && why.contains("to blocks: a MiB more"), "{why}");
        if round == 1 {
            break;
        }
        eventually("writes get memory", || {
            bed.write();
            check_sum(&db);
            limit(&db.memory(), "memtables") >= BUDGET * 3 / 8
        });
        let m = db.metrics();
        assert!(m.memory_moves > 5 && m.memory_moved_bytes > BUDGET / 8, "{m}");
    }
    for n in 0..KEYS {
        assert_eq!(db.get(key(n)).unwrap().as_deref(), Some(&VALUE[..]));
    }
}

#[test]
fn a_fixed_split_stays() {
    let mut bed = Bed::new(MemorySplit::Fixed);
    let db = bed.db.clone();
    let before = limit(&db.memory(), "memtables");
    for _ in 0..20 {
        bed.read(&db);
        bed.write();
    }
    let after = db.memory();
    assert_eq!((limit(&after, "memtables"), after.moves, after.decision), (before, 0, None));
    assert_eq!(db.metrics().memory_moves, 0);
}

#[test]
fn it_can_be_switched_while_the_store_is_open() {
    let mut bed = Bed::new(MemorySplit::Fixed);
    let db = bed.db.clone();
    let before = limit(&db.memory(), "memtables");
    db.set_option("memory_split", "auto").unwrap();
    eventually("it moves", || {
        bed.read(&db);
        db.memory().moves > 3
    });
    assert!(limit(&db.memory(), "memtables") != before);
    db.set_memory_split(MemorySplit::Fixed);
    let moves = db.memory().moves;
    for _ in 0..5 {
        bed.read(&db);
    }
    let after = db.memory();
    assert_eq!((limit(&after, "memtables"), after.moves), (before, moves));
}

#[test]
fn a_changed_budget_keeps_the_split_and_the_smallest_one_works() {
    let mut bed = Bed::new(MemorySplit::Auto);
    let db = bed.db.clone();
    eventually("reads get memory", || {
        bed.read(&db);
        limit(&db.memory(), "memtables") <= BUDGET / 6
    });
    let part =
        |memory: &MemoryShape| limit(memory, "memtables") as f64 / memory.budget_bytes as f64;
    let mut last = BUDGET as usize;
    for budget in [64 << 20, 16 << 20, BUDGET as usize] {
        // Memory may move just between the two looks; then the budget changes once more.
        let (before, now) = loop {
            db.set_memory_budget(last).unwrap();
            let before = db.memory();
            db.set_memory_budget(budget).unwrap();
            let now = db.memory();
            if now.moves == before.moves {
                break (part(&before), part(&now));
            }
        };
        assert!((now / before - 1.0).abs() < 0.01, "{budget}: {now} {before}");
        last = budget;
        check_sum(&db);
        if budget > BUDGET as usize {
            // More than filters have of the next budget is lent then.
            eventually("filters lend", || {
                bed.read(&db);
                check_sum(&db);
                db.metrics().filter_lent_bytes > budget as u64 / 8
            });
        }
    }
    db.set_memory_budget(4 << 20).unwrap();
    for _ in 0..10 {
        bed.read(&db);
        bed.write();
        check_sum(&db);
    }
    assert!(limit(&db.memory(), "memtables") >= (4 << 20) / 12);
    assert!(limit(&db.memory(), "blocks") >= (4 << 20) / 8);
}

/// Threads write and read while the budget changes and the seconds pass.
#[test]
fn the_budget_may_change_under_load() {
    let bed = Bed::new(MemorySplit::Auto);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for seed in 0..2 {
            let (db, done) = (&bed.db, &done);
            scope.spawn(move || {
                let mut rng = SplitMix64::new(seed);
                while !done.load(Ordering::Relaxed) {
                    let n = rng.below(KEYS);
                    match rng.one_in(2) {
                        true => db.put(key(n), VALUE).unwrap(),
                        false => assert!(db.get(key(n)).unwrap().is_some()),
                    }
                }
            });
        }
        let _done = StopOnDrop(&done);
        for round in 0..15usize {
            bed.db.set_memory_budget([4 << 20, 32 << 20, 7 << 20][round % 3]).unwrap();
            let before = bed.db.metrics().gets;
            eventually("reads go on", || bed.db.metrics().gets > before + 50);
            bed.clock.advance(1000);
            check_sum(&bed.db);
        }
    });
    bed.db.close().unwrap();
}

/// What a reader has replayed of the log stays in memory: only blocks and filters share anew.
#[test]
fn a_read_only_store_leaves_its_memtables() {
    let mut bed = Bed::new(MemorySplit::Auto);
    let reader = Db::open_read_only(DIR, bed.options.clone()).unwrap();
    let before = limit(&reader.memory(), "memtables");
    for _ in 0..20 {
        bed.read(&reader);
        check_sum(&reader);
    }
    eventually("a decision", || {
        bed.read(&reader);
        reader.memory().decision.is_some()
    });
    assert_eq!(limit(&reader.memory(), "memtables"), before);
}

/// There is no thread that looks after filters.
#[test]
fn the_budget_of_a_read_only_store_is_looked_at_without_a_thread_for_filters() {
    let mut bed = Bed::new(MemorySplit::Auto);
    let mut options = bed.options.clone();
    options.advanced.filter_allocator = FilterAllocator::Cached;
    let reader = Db::open_read_only(DIR, options).unwrap();
    eventually("a decision", || {
        bed.read(&reader);
        reader.memory().decision.is_some()
    });
}

/// One store is read, another one written: each moves its own budget, and nothing of the other's.
#[test]
fn stores_of_one_process_move_their_own_budgets() {
    let (mut reads, mut writes) = (Bed::new(MemorySplit::Auto), Bed::new(MemorySplit::Auto));
    let still = Bed::empty(MemorySplit::Auto);
    let before = still.db.memory();
    let read_db = reads.db.clone();
    eventually("both move", || {
        reads.read(&read_db);
        writes.write();
        still.clock.advance(1000);
        check_sum(&reads.db);
        check_sum(&writes.db);
        limit(&reads.db.memory(), "memtables") <= BUDGET / 6
            && limit(&writes.db.memory(), "memtables") >= BUDGET * 3 / 8
    });
    let after = still.db.memory();
    assert_eq!(after.moves, 0, "{after:?}");
    assert_eq!(limit(&after, "memtables"), limit(&before, "memtables"));
}

/// Column families share the memtables' memory, and hot keys stay hot while it moves.
#[test]
fn families_and_the_hot_table_follow() {
    let mut bed = Bed::new(MemorySplit::Auto);
    let db = bed.db.clone();
    db.set_hot_table(HotTableMode::Auto);
    let other = db.create_column_family("other", terrace::CfOptions::default()).unwrap();
    let mut newest = vec![0u64; 50];
    let mut round = 0;
    let mut second = |bed: &mut Bed| {
        round += 1;
        for n in 0..OPS {
            let at = (n % 50) as usize;
            newest[at] = round * 10_000 + n;
            let mut value = VALUE;
            value[..8].copy_from_slice(&newest[at].to_le_bytes());
            bed.db.put(key(at as u64), value).unwrap();
            other.put(key(bed.rng.below(KEYS)), VALUE).unwrap();
        }
        bed.clock.advance(1000);
    };
    for _ in 0..1 {
        eventually("writes get memory", || {
            second(&mut bed);
            check_sum(&db);
            limit(&db.memory(), "memtables") >= BUDGET * 3 / 8 && db.metrics().hot_keys > 0
        });
        eventually("reads get memory", || {
            bed.read(&db);
            check_sum(&db);
            limit(&db.memory(), "memtables") <= BUDGET / 6
        });
    }
    db.wait_idle().unwrap();
    // A limit that has just become smaller is kept once the house thread has seen to it.
    eventually("memtables keep to their limit", || {
        db.metrics().memtable_bytes <= limit(&db.memory(), "memtables")
    });
    for (n, newest) in newest.iter().enumerate() {
        let value = db.get(key(n as u64)).unwrap().unwrap();
        assert_eq!(value[..8], newest.to_le_bytes(), "key {n}");
    }
}

/// Metrics and `Db::memory` report decisions, in figures and in words.
#[test]
fn metrics_and_words_tell_of_moves() {
    let mut bed = Bed::new(MemorySplit::Auto);
    let db = bed.db.clone();
    assert_eq!(db.metrics().memory_moves, 0);
    eventually("it moves", || {
        bed.read(&db);
        db.memory().moves > 3
    });
    // Memory may move between two looks: then both are taken again.
    let (memory, m) = loop {
        let (memory, m) = (db.memory(), db.metrics());
        if db.memory().moves == memory.moves {
            break (memory, m);
        }
    };
    assert!(m.memory_moves == memory.moves && m.memory_moved_bytes > 0, "{m}");
    assert!(m.memory_gains_us[1] > m.memory_gains_us[0], "blocks gain most: {m}");
    assert_eq!(m.memtable_limit_bytes, limit(&memory, "memtables"));
    // "moved", "moving" or "nothing moves".
    assert!(memory.decision.unwrap().contains("mov"), "{m}");
    let text = m.to_prometheus();
    for name in ["terrace_memory_moves_total", "terrace_memory_gain_us{pool=\"blocks\"}"] {
        assert!(text.contains(name), "{text}");
    }
    db.set_memory_split(MemorySplit::Fixed);
    assert_eq!(db.metrics().memory_gains_us, [0.0; 3]);
}
