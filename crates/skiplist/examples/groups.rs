//! Inserts batches of 1,000 entries into a list that grows to a million: one by one beside in
//! groups, in turns. Medians of five rounds, of each the median batch of the last fifth:
//! `cargo run --release -p terrace-skiplist --example groups [kind]`.

#![allow(clippy::expect_used)] // a failed comparison should say so and end

use std::time::Instant;

use terrace_base::{Rng, SplitMix64};
use terrace_skiplist::{Entry, Hint, Skiplist};

const ENTRIES: usize = 1_000_000;
const BATCH: usize = 1_000;
const ROUNDS: usize = 5;
const ARENA_BYTES: usize = 128 << 20;
const VALUE: &[u8] = b"val";

/// The keys of the batch that starts with the `n`th entry.
type BatchOf = fn(&mut SplitMix64, n: usize) -> Vec<u64>;

fn random(rng: &mut SplitMix64, below: u64) -> Vec<u64> {
    (0..BATCH).map(|_| rng.below(below)).collect()
}

fn sorted(rng: &mut SplitMix64, below: u64) -> Vec<u64> {
    let mut keys = random(rng, below);
    keys.sort_unstable();
    keys
}

/// Runs of ten neighbours in random places.
fn clusters(rng: &mut SplitMix64) -> Vec<u64> {
    let mut starts: Vec<u64> = (0..BATCH / 10).map(|_| rng.below(100_000_000)).collect();
    starts.sort_unstable();
    starts.iter().flat_map(|start| (0..10).map(move |n| start + n)).collect()
}

const KINDS: [(&str, BatchOf, usize); 8] = [
    ("sorted, below 100,000", |rng, _| sorted(rng, 100_000), ENTRIES),
    ("sorted, below 10 million", |rng, _| sorted(rng, 10_000_000), ENTRIES),
    ("unsorted, below 100,000", |rng, _| random(rng, 100_000), ENTRIES),
    ("unsorted, below 10 million", |rng, _| random(rng, 10_000_000), ENTRIES),
    ("sorted, 20,000 entries", |rng, _| sorted(rng, 10_000_000), 20_000),
    ("sorted, 80,000 entries", |rng, _| sorted(rng, 10_000_000), 80_000),
    ("ascending", |_, n| (n as u64..).take(BATCH).collect(), ENTRIES),
    ("clusters of ten", |rng, _| clusters(rng), ENTRIES),
];

/// Nanoseconds an entry in the median batch.
fn fill(batch_of: BatchOf, entry_count: usize, in_groups: bool) -> f64 {
    let list = Skiplist::with_capacity(ARENA_BYTES).expect("address space");
    let mut rng = SplitMix64::new(7);
    let mut hint = Hint::default();
    let untimed = entry_count / 5 * 4;
    let mut nanos = Vec::new();
    for n in (0..entry_count).step_by(BATCH) {
        let keys: Vec<String> =
            batch_of(&mut rng, n).iter().map(|key| format!("{key:016}")).collect();
        let entry = |(trailer, key)| Entry { user_key: str::as_bytes(key), trailer, value: VALUE };
        let trailers = n as u64..;
        let entries: Vec<Entry<'_, _>> =
            trailers.zip(&keys).map(|(trailer, key)| entry((trailer, key.as_str()))).collect();
        let start = Instant::now();
        if in_groups || n < untimed {
            assert_eq!(list.insert_all(&entries, &mut hint), BATCH);
        } else {
            for entry in &entries {
                list.insert(entry.user_key, entry.trailer, entry.value, &mut hint).expect("room");
            }
        }
        if n >= untimed {
            nanos.push(start.elapsed().as_nanos() as f64 / BATCH as f64);
        }
    }
    assert_eq!(list.entry_count(), entry_count);
    median(nanos)
}

fn median(mut nanos: Vec<f64>) -> f64 {
    nanos.sort_unstable_by(f64::total_cmp);
    nanos[nanos.len() / 2]
}

fn main() {
    let only = std::env::args().nth(1).unwrap_or_default();
    for (name, batch_of, count) in KINDS.iter().filter(|(name, ..)| name.contains(&only)) {
        let (singly, in_groups): (Vec<f64>, Vec<f64>) = (0..ROUNDS)
            .map(|_| (fill(*batch_of, *count, false), fill(*batch_of, *count, true)))
            .unzip();
        let (singly, in_groups) = (median(singly), median(in_groups));
        let ratio = singly / in_groups;
        println!("{name}: {singly:.0} ns singly, {in_groups:.0} ns in groups, {ratio:.2} times");
    }
}
