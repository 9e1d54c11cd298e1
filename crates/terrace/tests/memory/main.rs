//! The promise about memory: a process that holds one store has at most the memory budget and 64 MiB more
//! resident, at any moment, while the workload shifts and memory moves between the pools.
//!
//! What counts is the peak that the kernel has noted of a process, so each case is a process of its own:
//! this binary again. Seconds are those of a clock that a thread turns fifty times as fast as the machine's.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg(target_os = "linux")]

mod filled;
mod range_deletes;
mod resident;
mod smaller;
mod threads;

use resident::peak;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use terrace::{Db, HotTableMode, MemorySplit, Options, SyncMode};
use terrace_base::ManualClock;
use terrace_base::rng::{Rng, SplitMix64};

const MIB: u64 = 1 << 20;
/// Beside the budget: the program, its threads, buffers of flushes and compactions.
const BESIDE_THE_BUDGET: u64 = 64 * MIB;
/// Says to a process of this binary which case it is.
const CASE: &str = "TERRACE_MEMORY_CASE";
/// How long a second of the store's clock takes.
const SECOND: Duration = Duration::from_millis(20);
/// Of a phase, by the store's clock.
const PHASE_MS: u64 = 30_000;
/// Of all phases: a machine that stands still may let the first ones pass with hardly an operation.
const MAX_ROUNDS: u32 = 50;
const VALUE_BYTES: usize = 500;
/// Of values that stay in the log; one in this many is one.
const LARGE_VALUE_BYTES: usize = 20_000;
const LARGE_ONE_IN: u64 = 100;

struct Bed {
    db: Db,
    clock: ManualClock,
    rng: SplitMix64,
    keys: u64,
    budget: u64,
}

fn key(n: u64) -> [u8; 8] {
    // Spread over the key space, so that neighbours in time are none there.
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

impl Bed {
    fn open(dir: &Path, budget: u64, split: MemorySplit) -> Self {
        let clock = ManualClock::at(1_000_000);
        let mut options = Options { memory_budget: budget as usize, ..Options::default() };
        options.sync = SyncMode::None;
        options.advanced.clock = Arc::new(clock.clone());
        options.advanced.memory_split = split;
        options.advanced.hot_table = HotTableMode::Auto;
        options.default_family.value_separation_threshold = 4096;
        let turned = clock.clone();
        // Ends with the process, which has one case.
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(SECOND);
                turned.advance(1000);
            }
        });
        let db = Db::open(dir, options).unwrap();
        // Twice the budget.
        let keys = 2 * budget / VALUE_BYTES as u64;
        Self { db, clock, rng: SplitMix64::new(7), keys, budget }
    }

    fn put(&mut self, n: u64) {
        let large = self.rng.one_in(LARGE_ONE_IN);
        let len = if large { LARGE_VALUE_BYTES } else { VALUE_BYTES };
        let mut value = vec![0; len];
        // Not to be compressed away.
        for part in value.chunks_exact_mut(8) {
            part.copy_from_slice(&self.rng.next_u64().to_le_bytes());
        }
        self.db.put(key(n), value).unwrap();
    }

    /// Bytes that a pool may use.
    fn limit(&self, name: &str) -> u64 {
        self.db.memory().pools.iter().find(|pool| pool.name == name).unwrap().limit_bytes
    }

    /// Does `op` for as long as each phase is.
    fn phase(&mut self, name: &str, op: fn(&mut Self)) {
        let end = self.clock.now_ms() + PHASE_MS;
        while self.clock.now_ms() < end {
            op(self);
        }
        let memtables = self.limit("memtables") * 100 / self.budget;
        let moves = self.db.memory().moves;
        println!("{name}: memtables {memtables} %, {moves} moves, peak {} MiB", peak() / MIB);
    }

    fn read(&mut self) {
        let n = self.rng.below(self.keys);
        assert!(self.db.get(key(n)).unwrap().is_some());
    }

    fn read_absent(&mut self) {
        let n = self.keys + self.rng.below(self.keys);
        assert!(self.db.get(key(n)).unwrap().is_none());
    }

    fn overwrite(&mut self) {
        let n = self.rng.below(self.keys);
        self.put(n);
    }

    /// A few keys again and again, which the hot table takes in.
    fn overwrite_hot(&mut self) {
        let n = self.rng.below(self.keys);
        self.put(if n.is_multiple_of(8) { n } else { n % 200 });
    }

    fn scan(&mut self) {
        if !self.rng.one_in(50) {
            return;
        }
        let mut iter = self.db.iter().unwrap();
        iter.seek(&key(self.rng.below(self.keys))).unwrap();
        for _ in 0..100 {
            if !iter.valid() {
                break;
            }
            assert!(iter.value().len() >= VALUE_BYTES);
            iter.next().unwrap();
        }
    }

    /// Loads, and then lets the workload shift: each kind of traffic at least twice, and until memory has moved.
    fn live(&mut self) {
        for n in 0..self.keys {
            self.put(n);
        }
        println!("loaded: peak {} MiB", peak() / MIB);
        for round in 1.. {
            self.phase("reads", Self::read);
            self.phase("overwrites", Self::overwrite);
            self.phase("scans", Self::scan);
            self.phase("absent keys", Self::read_absent);
            self.phase("hot keys", Self::overwrite_hot);
            let memory = self.db.memory();
            let is_moved = memory.moves > 0;
            if round >= 2 && (is_moved || memory.split == MemorySplit::Fixed) {
                assert_eq!(is_moved, memory.split == MemorySplit::Auto, "{memory:?}");
                return;
            }
            assert!(round < MAX_ROUNDS, "nothing ever moves: {memory:?}");
        }
    }
}

/// What a process of a case does; in the process that the tests run in it does nothing.
#[test]
fn one_case() {
    let Ok(case) = std::env::var(CASE) else { return };
    let (mib, split) = case.split_once(' ').unwrap();
    let (budget, split) = (mib.parse::<u64>().unwrap() * MIB, split.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let mut bed = Bed::open(dir.path(), budget, split);
    bed.live();
    let memory = bed.db.memory();
    bed.db.close().unwrap();
    let most = budget + BESIDE_THE_BUDGET;
    assert!(peak() <= most, "{} MiB of {}: {memory:?}", peak() / MIB, most / MIB);
}

fn check(mib: u64, split: MemorySplit) {
    let mut process = Command::new(std::env::current_exe().unwrap());
    process.args(["--exact", "one_case", "--nocapture"]).env(CASE, format!("{mib} {split}"));
    let out = process.output().unwrap();
    let text = format!(
        "{}\n{}",
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    );
    println!("{mib} MiB, {split}:\n{text}");
    assert!(out.status.success() && text.contains("loaded"), "{mib} MiB, {split}:\n{text}");
}

#[test]
fn a_process_keeps_to_16_mib_that_move() {
    check(16, MemorySplit::Auto);
}

#[test]
fn a_process_keeps_to_16_mib_that_stay() {
    check(16, MemorySplit::Fixed);
}

#[test]
fn a_process_keeps_to_64_mib_that_move() {
    check(64, MemorySplit::Auto);
}

#[test]
fn a_process_keeps_to_64_mib_that_stay() {
    check(64, MemorySplit::Fixed);
}
