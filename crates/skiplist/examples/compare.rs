//! Fills a 64 MiB list with 16-byte keys and 100-byte values and reads it back, beside
//! crossbeam-skiplist holding the same entries. Best of three rounds per kind of key and step: `cargo run --release -p terrace-skiplist --example compare [threads]`.

#![allow(clippy::expect_used)] // a failed comparison should say so and end

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use crossbeam_skiplist::SkipMap;
use terrace_base::{InternalIter, MAX_SEQNO, Rng, SplitMix64};
use terrace_skiplist::{Hint, Skiplist};

/// What the first versions take, about; there is as much again for the second.
const ENTRY_BYTES: usize = 64 << 20;
const ARENA_BYTES: usize = 2 * ENTRY_BYTES + (8 << 20);
const ROUNDS: usize = 3;
const VALUE: [u8; 100] = [0x5a; 100];

type Peer = SkipMap<(Box<[u8]>, Reverse<u64>), Box<[u8]>>;
type KeyOf = fn(&mut SplitMix64, u64) -> Vec<u8>;

/// Random 16-digit decimals below ten million, as of a benchmark's key space.
fn decimal(rng: &mut SplitMix64, _: u64) -> Vec<u8> {
    format!("{:016}", rng.below(10_000_000)).into_bytes()
}

fn binary(rng: &mut SplitMix64, _: u64) -> Vec<u8> {
    [rng.next_u64().to_be_bytes(), rng.next_u64().to_be_bytes()].concat()
}

fn user(rng: &mut SplitMix64, _: u64) -> Vec<u8> {
    format!("user{:012}", rng.below(1_000_000_000_000)).into_bytes()
}

/// Tenants of different sizes: no prefix fits all.
fn tenant(rng: &mut SplitMix64, _: u64) -> Vec<u8> {
    let tenant = rng.below(8) * rng.below(8);
    format!("t{tenant:02}/item/{:07}", rng.below(10_000_000)).into_bytes()
}

fn ascending(_: &mut SplitMix64, n: u64) -> Vec<u8> {
    format!("{n:016}").into_bytes()
}

/// The shortest time of each step over the rounds: what other processes add is left out.
#[derive(Default)]
struct Times(BTreeMap<&'static str, f64>);

impl Times {
    fn time(&mut self, step: &'static str, operations: usize, run: impl FnOnce()) {
        let start = Instant::now();
        run();
        let nanos = start.elapsed().as_nanos() as f64 / operations as f64;
        let best = self.0.entry(step).or_insert(nanos);
        *best = best.min(nanos);
    }
}

/// Runs `work` on `threads` threads over equal parts of `items`.
fn in_parts<T: Sync>(items: &[T], threads: usize, work: impl Fn(&[T], usize) + Sync) {
    let part = items.len().div_ceil(threads);
    std::thread::scope(|scope| {
        for (n, items) in items.chunks(part).enumerate() {
            let work = &work;
            scope.spawn(move || work(items, n * part));
        }
    });
}

fn round(times: &mut Times, key_of: KeyOf, threads: usize) -> usize {
    let mut rng = SplitMix64::new(7);
    let entries = ENTRY_BYTES / (116 + 40);
    let keys: Vec<Vec<u8>> = (0..entries as u64).map(|n| key_of(&mut rng, n)).collect();
    let mut lookups = keys.clone();
    for at in (1..lookups.len()).rev() {
        lookups.swap(at, rng.below(at as u64 + 1) as usize);
    }
    let absent: Vec<Vec<u8>> = lookups.iter().map(|key| [&key[..15], b"~"].concat()).collect();

    let list = Skiplist::with_capacity(ARENA_BYTES).expect("address space");
    times.time("insert", entries, || {
        in_parts(&keys, threads, |keys, from| {
            let mut hint = Hint::default();
            for (n, key) in keys.iter().enumerate() {
                list.insert(key, (from + n) as u64, &VALUE, &mut hint).expect("room");
            }
        });
    });
    times.time("get", entries, || {
        in_parts(&lookups, threads, |keys, _| {
            for key in keys {
                black_box(list.get(key, MAX_SEQNO.get())).expect("present");
            }
        });
    });
    times.time("get absent", entries, || {
        in_parts(&absent, threads, |keys, _| {
            for key in keys {
                black_box(list.get(key, MAX_SEQNO.get()));
            }
        });
    });
    times.time("scan", entries, || {
        let mut iter = list.iter();
        let mut bytes = 0;
        iter.seek_to_first().expect("in memory");
        while iter.valid() {
            bytes += iter.user_key().len() + iter.value().len();
            iter.next().expect("in memory");
        }
        black_box(bytes);
    });

    let entry_bytes = (list.allocated_bytes() + list.index_bytes()) / entries;
    times.time("insert again", entries, || {
        in_parts(&lookups, threads, |keys, from| {
            let mut hint = Hint::default();
            for (n, key) in keys.iter().enumerate() {
                let trailer = (entries + from + n) as u64;
                list.insert(key, trailer, &VALUE, &mut hint).expect("room");
            }
        });
    });

    let peer = Arc::new(Peer::new());
    times.time("crossbeam insert", entries, || {
        in_parts(&keys, threads, |keys, from| {
            for (n, key) in keys.iter().enumerate() {
                let key = (key.as_slice().into(), Reverse((from + n) as u64));
                peer.insert(key, VALUE.as_slice().into());
            }
        });
    });
    times.time("crossbeam get", entries, || {
        in_parts(&lookups, threads, |keys, _| {
            for key in keys {
                let from = (key.as_slice().into(), Reverse(MAX_SEQNO.get()));
                let found = peer.lower_bound(std::ops::Bound::Included(&from));
                black_box(found).expect("present");
            }
        });
    });
    entry_bytes
}

fn main() {
    let threads = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1);
    let only = std::env::args().nth(2).unwrap_or_default();
    let kinds: [(&str, KeyOf); 5] = [
        ("decimal", decimal),
        ("binary", binary),
        ("user", user),
        ("tenant", tenant),
        ("ascending", ascending),
    ];
    for (name, key_of) in kinds {
        if name.contains(&only) {
            let mut times = Times::default();
            let entry_bytes =
                (0..ROUNDS).map(|_| round(&mut times, key_of, threads)).max().unwrap_or(0);
            println!("{name}, {entry_bytes} bytes an entry, {threads} threads, ns per operation:");
            for (step, nanos) in &times.0 {
                print!("  {step} {nanos:.0}");
            }
            println!();
        }
    }
}
