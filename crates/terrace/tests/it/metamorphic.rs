//! R8: the same operations under random options give the same answers; and threads that write,
//! transfer, and read at once see what one after the other could have seen.

use crate::harness::{
    Generator, Mix, Run, Store, draw_separation, effort, family_options, over_seeds, small_options,
    stopped_clock,
};
use crate::model::FAMILIES;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use terrace::vfs::{PosixVfs, SimVfs};
use terrace::{
    CfOptions, CompactionStyle, Compression, Db, FilterAllocator, FilterPolicy, Learning,
    MemoryShares, Options, ReadOptions, SyncMode, WriteBatch,
};
use terrace_base::ManualClock;
use terrace_base::rng::{Rng, SplitMix64};

/// Options of a family that change while it is written and read.
const CHANGES: [(&str, &str); 10] = [
    ("filter", "none"),
    ("filter", "bloom:4x6,ribbon:12"),
    ("compression", "none"),
    ("compression", "lz4,zstd"),
    ("value_compression", "lz4"),
    ("value_compression", "none"),
    ("prefix_len", "2"),
    ("prefix_len", "none"),
    ("learning", "build"),
    ("learning", "off"),
];

fn random_filters(rng: &mut SplitMix64) -> Vec<FilterPolicy> {
    let texts = ["none", "blocked:2", "blocked:10", "bloom:4x6", "paired:9.5x2", "ribbon:12"];
    let policy = |rng: &mut SplitMix64| texts[rng.below(6) as usize].parse().unwrap();
    (0..1 + rng.below(3)).map(|_| policy(rng)).collect()
}

fn random_family(rng: &mut SplitMix64) -> CfOptions {
    let kinds = [Compression::None, Compression::Lz4, Compression::Zstd];
    let levels = 1 + rng.below(4);
    CfOptions {
        compression: (0..levels).map(|_| kinds[rng.below(3) as usize]).collect(),
        filter: random_filters(rng),
        prefix_len: [None, Some(1), Some(3)][rng.below(3) as usize],
        compaction: match rng.one_in(2) {
            true => CompactionStyle::Tiered,
            false => CompactionStyle::Leveled,
        },
        learning: [Learning::Build, Learning::Analyze, Learning::Off][rng.below(3) as usize],
        ..CfOptions::default()
    }
}

/// Options drawn from everything that must not change an answer.
fn random_options(rng: &mut SplitMix64, clock: &ManualClock, posix: bool) -> Options {
    let mut options = small_options(Arc::new(SimVfs::new(rng.next_u64())), clock);
    if posix {
        options.advanced.vfs = PosixVfs::shared();
        options.direct_io.reads = rng.one_in(2);
        options.direct_io.writes = rng.one_in(2);
    }
    options.memory_budget = (4 << 20) << rng.below(3);
    options.default_family = random_family(rng);
    options.column_families =
        FAMILIES[1..].iter().map(|name| (name.to_string(), random_family(rng))).collect();
    for (name, family) in &mut options.column_families {
        family.merge_operator = family_options(name).merge_operator;
    }
    options.background_jobs = 1 + rng.below(4) as usize;
    options.max_open_files = [0, 1, 3, 100][rng.below(4) as usize];
    let ms = Duration::from_millis(2);
    options.sync = [SyncMode::None, SyncMode::Buffered, SyncMode::Interval(ms), SyncMode::Batch]
        [rng.below(4) as usize];
    let a = &mut options.advanced;
    a.memtable_bytes = (16 << 10) << rng.below(4);
    a.memory_shares = match rng.one_in(3) {
        true => MemoryShares { memtables: 0.5, cache: 0.01, filters: 0.001 },
        false => MemoryShares { filters: 0.2 * rng.below(2) as f64, ..MemoryShares::default() },
    };
    a.filter_allocator = [FilterAllocator::Budget, FilterAllocator::Mq, FilterAllocator::Cached]
        [rng.below(3) as usize];
    a.block_size = [128, 300, 1024, 4096, 32 << 10][rng.below(5) as usize];
    a.metadata_block_size = [128, 256, 4096][rng.below(3) as usize];
    a.partitioned_metadata = !rng.one_in(3);
    a.l0_compaction_trigger = 1 + rng.below(4) as usize;
    a.l0_slowdown = a.l0_compaction_trigger + rng.below(8) as usize;
    a.l0_stop = a.l0_slowdown + 4;
    a.level_base_bytes = (4 << 10) << rng.below(5);
    a.level_multiplier = [2.0, 4.0, 10.0][rng.below(3) as usize];
    a.target_file_bytes = (4 << 10) << rng.below(4);
    a.max_subcompactions = 1 + rng.below(4) as usize;
    a.compact_when_idle = rng.one_in(2);
    a.reserve_bytes = [0, 4096][rng.below(2) as usize];
    draw_separation(&mut options, rng);
    options
}

#[test]
fn r8_options_never_change_an_answer() {
    let variants = 4;
    let wanted = effort(80);
    let mut reads = 0;
    let mut steps = 0;
    let (mut separated, mut moved) = (0, 0);
    let runs = over_seeds("R8", wanted, |seed, _| {
        let mut rng = SplitMix64::new(seed ^ 0x8888);
        let mix = Mix {
            keys: [40, 200, 600][rng.below(3) as usize],
            value_bytes: [20, 150, 700][rng.below(3) as usize],
            checkpoints: false,
            ingestions: false,
            sync_one_in: 0,
            maintain_one_in: [15, 60, 200][rng.below(3) as usize],
            ttl: rng.one_in(2),
        };
        let length = 150 + rng.below(450);
        for variant in 0..variants {
            let posix = variant == 3 && seed % 3 == 0;
            let clock = stopped_clock();
            let options = random_options(&mut rng, &clock, posix);
            let directory = tempfile::tempdir().unwrap();
            let path = if posix { directory.path() } else { Path::new(crate::harness::DIR) };
            let note = format!("R8: seed {seed}, variant {variant}, {options:?}");
            let panic_note = PanicNote(&note);
            let db = Db::open(path, options.clone()).unwrap();
            let generator = Generator::new(seed, mix, &clock);
            let mut run = Run::with(Store::of(db), &clock, generator, Arc::default());
            for _ in 0..length {
                if rng.one_in(80) {
                    // Options of families may change at any time.
                    let family = &run.store.families[rng.below(FAMILIES.len() as u64) as usize];
                    let bytes = [0, 30, 200, usize::MAX][rng.below(4) as usize];
                    family.set_value_separation_threshold(bytes).unwrap();
                    let (name, value) = CHANGES[rng.below(CHANGES.len() as u64) as usize];
                    family.set_option(name, value).unwrap();
                }
                run.step();
            }
            steps += length;
            let metrics = run.store.db.metrics();
            separated += metrics.values_separated;
            moved += metrics.gc_moved_values;
            for _ in 0..4 {
                run.read();
                reads += 1;
            }
            let Run { store, state, generator, .. } = run;
            let universe = generator.universe();
            if rng.one_in(2) {
                store.db.wait_idle().unwrap();
            }
            let want = state.contents(clock.now_ms());
            store.compare(&want, &universe).unwrap().unwrap();
            store.db.close().unwrap();
            drop(store);
            // Options may change from one open to the next.
            let mut reopened = random_options(&mut rng, &clock, posix);
            reopened.advanced.vfs = options.advanced.vfs.clone();
            let store = Store::of(Db::open(path, reopened).unwrap());
            store.compare(&want, &universe).unwrap().unwrap();
            clock.advance(1_000_000);
            if rng.one_in(2) {
                store.db.compact_range::<&[u8]>(..).unwrap();
            }
            let want = state.contents(clock.now_ms());
            store.compare(&want, &universe).unwrap().unwrap();
            store.db.verify().unwrap();
            drop(panic_note);
        }
        variants
    });
    println!(
        "R8: {runs} runs of {steps} steps in all under random options, identical answers ({reads} extra reads, \
         {separated} separated values, {moved} of them moved)"
    );
    assert!(separated > steps / 8, "{separated} separated values in {steps} steps");
    assert!(moved > steps / 100, "{moved} values moved in {steps} steps");
}

/// Prints a text if the test fails while this lives.
struct PanicNote<'a>(&'a str);

impl Drop for PanicNote<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.0);
        }
    }
}

const WRITERS: u64 = 3;
const ACCOUNTS: u64 = 24;
const START_BALANCE: u64 = 1000;

fn account(writer: u64, number: u64) -> Vec<u8> {
    format!("{writer}/account-{number:04}").into_bytes()
}

fn number(bytes: &[u8]) -> u64 {
    std::str::from_utf8(bytes).unwrap().split(' ').next().unwrap().parse().unwrap()
}

/// Balances padded so that memtables fill and files are cut.
fn amount(value: u64) -> Vec<u8> {
    format!("{value} {}", "-".repeat(150)).into_bytes()
}

/// Moves money within one writer's accounts, which lie in all families; every batch also counts.
fn transfer_on(store: &Store, writer: u64, count: u64, seed: u64) {
    let mut rng = SplitMix64::new(seed + writer);
    let mut balances = vec![START_BALANCE; ACCOUNTS as usize];
    for turn in 1..=count {
        let (from, to) = (rng.below(ACCOUNTS), rng.below(ACCOUNTS));
        let sum = rng.below(50).min(balances[from as usize]);
        balances[from as usize] -= sum;
        balances[to as usize] += sum;
        let mut batch = WriteBatch::new();
        for number in [from, to] {
            let family = &store.families[number as usize % FAMILIES.len()];
            batch.put_cf(family, account(writer, number), amount(balances[number as usize]));
        }
        if turn % 4 == 0 {
            // A batch that takes a while: nobody may see a part of it.
            for (number, balance) in (0..ACCOUNTS).zip(&balances) {
                let family = &store.families[number as usize % FAMILIES.len()];
                batch.put_cf(family, account(writer, number), amount(*balance));
            }
        }
        batch.put_cf(&store.families[0], format!("{writer}/turn"), amount(turn));
        store.db.write(batch).unwrap();
        if rng.one_in(400) {
            store.db.flush().unwrap();
        }
        // What this writer wrote it reads.
        let family = &store.families[to as usize % FAMILIES.len()];
        let got = family.get(account(writer, to)).unwrap().unwrap();
        assert_eq!(self::number(&got), balances[to as usize], "a writer misses its own write");
    }
}

/// The sum of one writer's accounts at a snapshot, read in one of three ways.
fn sum_at(store: &Store, writer: u64, options: &ReadOptions, way: u64) -> u64 {
    let mut sum = 0;
    for (index, family) in store.families.iter().enumerate() {
        let mine = (0..ACCOUNTS).filter(|n| *n as usize % FAMILIES.len() == index);
        let keys: Vec<Vec<u8>> = mine.map(|n| account(writer, n)).collect();
        sum += match way {
            0 => keys
                .iter()
                .map(|key| number(&family.get_with(key, options).unwrap().unwrap()))
                .sum::<u64>(),
            1 => family
                .multi_get_with(&keys, options)
                .unwrap()
                .iter()
                .map(|value| number(value.as_ref().unwrap()))
                .sum::<u64>(),
            _ => {
                let prefix = Some(format!("{writer}/account").into_bytes());
                let options = ReadOptions { prefix, ..options.clone() };
                let backward = way == 3;
                crate::harness::scan(family, &options, backward)
                    .unwrap()
                    .values()
                    .map(|value| number(value))
                    .sum::<u64>()
            }
        };
    }
    sum
}

#[test]
fn r8_concurrent_readers_see_whole_batches_in_order() {
    let rounds = effort(6);
    let turns = 1200;
    let checks = AtomicU64::new(0);
    for round in 0..rounds {
        let _note = crate::harness::SeedNote("R8 threads", round);
        let clock = stopped_clock();
        let mut rng = SplitMix64::new(round);
        let mut options = random_options(&mut rng, &clock, false);
        options.advanced.memtable_bytes = 16 << 10;
        let store = Store::open(options).unwrap();
        let mut batch = WriteBatch::new();
        for writer in 0..WRITERS {
            for n in 0..ACCOUNTS {
                let family = &store.families[n as usize % FAMILIES.len()];
                batch.put_cf(family, account(writer, n), amount(START_BALANCE));
            }
            batch.put(format!("{writer}/turn"), amount(0));
        }
        store.db.write(batch).unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    scope.spawn({
                        let store = &store;
                        move || transfer_on(store, writer, turns, round)
                    })
                })
                .collect();
            for reader in 0..2u64 {
                let (store, done, checks) = (&store, &done, &checks);
                scope.spawn(move || {
                    let mut rng = SplitMix64::new(round * 7 + reader);
                    let mut last = [0; WRITERS as usize];
                    while !done.load(Ordering::SeqCst) {
                        let writer = rng.below(WRITERS);
                        let snapshot = store.db.snapshot();
                        let options =
                            ReadOptions { snapshot: Some(snapshot), ..Default::default() };
                        let turn_key = format!("{writer}/turn");
                        let before =
                            number(&store.db.get_with(&turn_key, &options).unwrap().unwrap());
                        let way = rng.below(4);
                        let sum = sum_at(store, writer, &options, way);
                        assert_eq!(sum, ACCOUNTS * START_BALANCE, "read in way {way}");
                        let again =
                            number(&store.db.get_with(&turn_key, &options).unwrap().unwrap());
                        assert_eq!(before, again, "a snapshot moved");
                        let now = number(&store.db.get(&turn_key).unwrap().unwrap());
                        assert!(
                            now >= before && before >= last[writer as usize],
                            "time ran backward"
                        );
                        last[writer as usize] = now;
                        checks.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
            done.store(true, Ordering::SeqCst);
            ended.into_iter().for_each(|ended| ended.unwrap());
        });
        store.db.wait_idle().unwrap();
        for writer in 0..WRITERS {
            assert_eq!(
                sum_at(&store, writer, &ReadOptions::default(), 2),
                ACCOUNTS * START_BALANCE
            );
        }
    }
    let checks = checks.load(Ordering::Relaxed);
    println!(
        "R8: {} transfers by {WRITERS} threads, {checks} snapshots with the right sum",
        rounds * turns * WRITERS
    );
    assert!(checks > 20 * rounds, "{checks} checks");
}
