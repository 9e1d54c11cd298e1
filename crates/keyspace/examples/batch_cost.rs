//! What a turn adds to the engine's own reads and writes: GET of strings in memory, blind SET and
//! INCR of one key, in turns of many commands, beside the same keys through the engine. The two take
//! turns themselves, so that other work on the machine meets both; what is shown are medians of
//! processor time.
//!
//! `cargo run --release -p terrace-keyspace --example batch_cost [keys] [commands per batch] [rounds]`

use std::time::Instant;
use terrace::{ReadOptions, WriteBatch};
use terrace_keyspace::{Keyspace, Mode, PutOptions};

const VALUE: &[u8] = &[b'v'; 32];

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Processor time of this thread, where the system tells it.
fn thread_ns(since: Instant) -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let told = text.split(' ').next().and_then(|field| field.parse().ok());
    told.unwrap_or_else(|| since.elapsed().as_nanos() as u64)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Prints ns per command of both, and what the second takes more.
fn beside(
    what: [&str; 2],
    (rounds, commands): (usize, usize),
    mut one: impl FnMut() -> Outcome<()>,
    mut other: impl FnMut() -> Outcome<()>,
) -> Outcome<()> {
    let start = Instant::now();
    let timed = |run: &mut dyn FnMut() -> Outcome<()>| -> Outcome<f64> {
        let before = thread_ns(start);
        run()?;
        Ok((thread_ns(start) - before) as f64 / commands as f64)
    };
    let (mut ones, mut others, mut more) = (Vec::new(), Vec::new(), Vec::new());
    timed(&mut one)?;
    timed(&mut other)?;
    for round in 0..rounds {
        let (mut a, mut b) = (0.0, 0.0);
        // Each goes first every other time.
        for is_one in [round % 2 == 0, round % 2 == 1] {
            match is_one {
                true => a = timed(&mut one)?,
                false => b = timed(&mut other)?,
            }
        }
        ones.push(a);
        others.push(b);
        more.push(b - a);
    }
    let (one, other) = (median(ones), median(others));
    println!("{:<24} {one:>6.0} ns", what[0]);
    println!(
        "{:<24} {other:>6.0} ns, {:.0} ns more (median of the differences {:.0} ns)",
        what[1],
        other - one,
        median(more)
    );
    Ok(())
}

fn main() -> Outcome<()> {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<usize>());
    let count = args.next().transpose()?.unwrap_or(100_000);
    let per_turn = args.next().transpose()?.unwrap_or(1_000).max(1);
    let rounds = args.next().transpose()?.unwrap_or(15).max(1);
    let size = (rounds, count);
    let dir = tempfile::tempdir()?;
    let space = Keyspace::open(dir.path(), terrace::Options::default())?;
    let keys: Vec<Vec<u8>> =
        (0..count).map(|number| format!("\0key:{:012}", number * 7919 % count).into()).collect();
    let strings = space.strings().clone();
    let mut turn = space.command_batch(Mode::Memory);
    let puts = || {
        for keys in keys.chunks(per_turn) {
            let mut batch = WriteBatch::new();
            keys.iter().for_each(|key| batch.put_cf(&strings, key, VALUE));
            space.db().write(batch)?;
        }
        Ok(())
    };
    let sets = || {
        for keys in keys.chunks(per_turn) {
            for key in keys {
                turn.next_command();
                turn.lock(0, [&key[1..]].into_iter())?;
                turn.put(0, &key[1..], VALUE, &PutOptions::default())?;
            }
            turn.commit()?;
        }
        Ok(())
    };
    beside(["engine, batches of puts", "turn, SET"], size, puts, sets)?;
    let increments = || {
        for keys in keys.chunks(per_turn) {
            for _ in keys {
                turn.next_command();
                turn.lock(0, [&b"counter"[..]].into_iter())?;
                turn.add(0, b"counter", 1)?;
            }
            turn.commit()?;
        }
        Ok(())
    };
    beside(["engine, batches of puts", "turn, INCR of one key"], size, puts, increments)?;
    // What was flushed meanwhile comes into memory.
    space.db().wait_idle()?;
    for key in &keys {
        strings.get(key)?;
    }
    let reading = ReadOptions { in_memory: true, ..ReadOptions::default() };
    let gets = || {
        for key in &keys {
            assert!(strings.get_entry(key, &reading)?.is_some());
        }
        Ok(())
    };
    let turn_gets = || {
        for key in &keys {
            turn.next_command();
            assert!(turn.get(0, &key[1..])?.is_some());
        }
        Ok(())
    };
    beside(["engine, get_entry", "turn, GET"], size, gets, turn_gets)?;
    Ok(space.close()?)
}
