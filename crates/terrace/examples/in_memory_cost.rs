//! What `ReadOptions::in_memory` adds to a point read that memory answers: the same lookups with and
//! without, in rounds that take turns, so that other work on the machine meets both, in processor time.
//!
//! `cargo run --release -p terrace --example in_memory_cost [keys] [lookups per round] [rounds]`

use std::hint::black_box;
use std::time::Instant;
use terrace::{Db, Options, ReadOptions};
use terrace_base::{Rng, SplitMix64};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn key(number: u64) -> Vec<u8> {
    format!("user{number:012}").into_bytes()
}

/// Processor time of this thread, where the system tells it.
fn thread_ns(since: Instant) -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let told = text.split(' ').next().and_then(|field| field.parse().ok());
    told.unwrap_or_else(|| since.elapsed().as_nanos() as u64)
}

/// Nanoseconds of processor time per lookup.
fn round(db: &Db, keys: &[Vec<u8>], options: &ReadOptions, is_there: bool) -> Outcome<f64> {
    let start = Instant::now();
    let before = thread_ns(start);
    for key in keys {
        let found = black_box(db.get_with(key, options)?);
        if found.is_some() != is_there {
            return Err("a lookup found what it should not, or did not find what it should".into());
        }
    }
    Ok((thread_ns(start) - before) as f64 / keys.len() as f64)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let keys = arguments.next().transpose()?.unwrap_or(200_000);
    let lookups = arguments.next().transpose()?.unwrap_or(50_000);
    let rounds = arguments.next().transpose()?.unwrap_or(9);
    let dir = tempfile::tempdir()?;
    let db = Db::open(dir.path(), Options { memory_budget: 512 << 20, ..Options::default() })?;
    for number in 0..keys {
        db.put(key(number * 7), [number as u8; 100])?;
    }
    db.compact_range::<&[u8]>(..)?;
    db.wait_idle()?;
    let mut rng = SplitMix64::new(1);
    let plain = ReadOptions::default();
    let in_memory = ReadOptions { in_memory: true, ..ReadOptions::default() };
    for (what, offset, is_there) in [("present", 0, true), ("absent", 3, false)] {
        let drawn: Vec<_> = (0..lookups).map(|_| key(rng.below(keys) * 7 + offset)).collect();
        // Until filters and blocks are there.
        for _ in 0..3 {
            round(&db, &drawn, &plain, is_there)?;
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
        let reads = db.metrics().reads.device_reads;
        let (mut one, mut other, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for turn in 0..rounds {
            let (mut a, mut b) = (0.0, 0.0);
            // Each goes first every other time.
            for plain_now in [turn % 2 == 0, turn % 2 == 1] {
                match plain_now {
                    true => a = round(&db, &drawn, &plain, is_there)?,
                    false => b = round(&db, &drawn, &in_memory, is_there)?,
                }
            }
            one.push(a);
            other.push(b);
            ratios.push(b / a);
        }
        let (one, other) = (median(one), median(other));
        println!(
            "{what}: plain {one:.1} ns, in_memory {other:.1} ns, ratio of medians {:.4}, median of \
             ratios {:.4}, {rounds} rounds of {lookups}, {} device reads",
            other / one,
            median(ratios),
            db.metrics().reads.device_reads - reads,
        );
    }
    Ok(db.close()?)
}
