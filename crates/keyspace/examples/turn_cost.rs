//! What a turn adds to the engine's own reads and writes: GET of strings in memory and blind SET,
//! in turns of many commands, beside the same keys through the engine.
//!
//! `cargo run --release -p terrace-keyspace --example turn_cost [keys] [commands per turn]`

use std::time::Instant;
use terrace::{ReadOptions, WriteBatch};
use terrace_keyspace::{Keyspace, Mode, PutOptions};

const VALUE: &[u8] = &[b'v'; 32];

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// Prints ns per command of the second of two runs.
fn time(what: &str, commands: usize, mut run: impl FnMut() -> Outcome) -> Outcome {
    run()?;
    let start = Instant::now();
    run()?;
    println!("{what:<28} {:>6.0} ns", start.elapsed().as_nanos() as f64 / commands as f64);
    Ok(())
}

fn main() -> Outcome {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse());
    let count: usize = args.next().transpose()?.unwrap_or(100_000);
    let per_turn: usize = args.next().transpose()?.unwrap_or(1_000).max(1);
    let dir = tempfile::tempdir()?;
    let space = Keyspace::open(dir.path(), terrace::Options::default())?;
    let keys: Vec<Vec<u8>> =
        (0..count).map(|number| format!("\0key:{:012}", number * 7919 % count).into()).collect();
    let strings = space.strings().clone();

    time("engine, batches of puts", count, || {
        for keys in keys.chunks(per_turn) {
            let mut batch = WriteBatch::new();
            keys.iter().for_each(|key| batch.put_cf(&strings, key, VALUE));
            space.db().write(batch)?;
        }
        Ok(())
    })?;
    let mut turn = space.turn(Mode::Memory);
    time("turn, SET", count, || {
        for keys in keys.chunks(per_turn) {
            for key in keys {
                turn.next_command();
                turn.lock(0, [&key[1..]].into_iter())?;
                turn.put(0, &key[1..], VALUE, &PutOptions::default())?;
            }
            turn.commit()?;
        }
        Ok(())
    })?;
    let reading = ReadOptions { in_memory: true, ..ReadOptions::default() };
    time("engine, get_entry", count, || {
        for key in &keys {
            assert!(strings.get_entry(key, &reading)?.is_some());
        }
        Ok(())
    })?;
    time("turn, GET", count, || {
        for key in &keys {
            turn.next_command();
            assert!(turn.get(0, &key[1..])?.is_some());
        }
        Ok(())
    })?;
    time("turn, INCR of one key", count, || {
        for keys in keys.chunks(per_turn) {
            for _ in keys {
                turn.next_command();
                turn.lock(0, [&b"counter"[..]].into_iter())?;
                turn.add(0, b"counter", 1)?;
            }
            turn.commit()?;
        }
        Ok(())
    })?;
    Ok(space.close()?)
}
