//! `kill -9` while `terrace load --sync` runs, again and again on the same store.
//!
//! Record n of the input is a function of n, and a new process goes on where the store ends. So at
//! any time the store must hold records 0..n of it, no hole and nothing else, and n must be at
//! least what was reported durable. A process is killed at a random moment: in the recovery of
//! what the one before left, in a flush, in a merge, between two batches.

use crate::program::Program;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use terrace_base::{Rng, SplitMix64};

/// A store with more records than this is replaced by a new one.
const MAX_RECORDS: u64 = 60_000;

fn record(n: u64) -> (String, String) {
    let mut rng = SplitMix64::new(n);
    let filler = "x".repeat(rng.below(300) as usize);
    (format!("key{n:012}"), format!("{:016x}{filler}", rng.next_u64()))
}

/// Kills at the default effort.
const KILLS: f64 = 12.0;

/// `TERRACE_TEST_EFFORT` (1) multiplies how many there are.
fn kills() -> u64 {
    let effort = std::env::var("TERRACE_TEST_EFFORT").ok().and_then(|e| e.parse::<f64>().ok());
    (KILLS * effort.unwrap_or(1.0)).ceil().max(1.0) as u64
}

/// Of the moments of the kills and the options of the loads; `SEED` searches with another one.
fn seed() -> u64 {
    std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1)
}

#[test]
fn no_durable_write_is_lost_and_there_is_no_hole() {
    let (seed, kills) = (seed(), kills());
    println!("SEED={seed}, {kills} kills");
    let mut rng = SplitMix64::new(seed);
    let mut program = Program::new();
    let (mut there, mut reported, mut survivals) = (0, 0, 0);
    for kill in 0..kills {
        if there > MAX_RECORDS {
            program = Program::new();
            there = 0;
        }
        let durable = there + load_and_kill(&program, there, &mut rng);
        reported += durable - there;
        let found = check(&program);
        assert!(
            found >= durable,
            "SEED={seed}, kill {kill}: {durable} records were durable, {found} are there"
        );
        survivals += found - durable;
        there = found;
    }
    println!("{kills} kills: {reported} durable records, all there; {survivals} more survived");
    assert!(reported > 0, "nothing became durable: the processes were all killed too early");
}

/// Loads from record `first` on and kills the process; returns how many it had called durable.
fn load_and_kill(program: &Program, first: u64, rng: &mut SplitMix64) -> u64 {
    let batch = (1 + rng.below(300)).to_string();
    let memory = ["4M", "8M", "64M"][rng.below(3) as usize];
    let arguments =
        ["load", "-", "--sync", "--report-durable", "--batch", &batch, "--memory", memory];
    let mut command = program.command(&arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let feeder = std::thread::spawn(move || {
        for n in first.. {
            let (key, value) = record(n);
            // The killed process reads no more.
            if writeln!(input, "{key}\t{value}").is_err() {
                return;
            }
        }
    });
    let (told, durable) = mpsc::channel();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let reader = std::thread::spawn(move || {
        let mut line = String::new();
        while output.read_line(&mut line).unwrap_or(0) > 0 {
            let whole = line.ends_with('\n');
            let count = line.trim().strip_prefix("durable ").and_then(|n| n.parse::<u64>().ok());
            if let Some(count) = count.filter(|_| whole) {
                let _ = told.send(count);
            }
            line.clear();
        }
    });
    // One in four is killed by the clock alone, perhaps still opening; the others some time after
    // a first batch became durable.
    let mut last = 0;
    if !rng.one_in(4) {
        last = durable.recv_timeout(Duration::from_secs(600)).unwrap_or(0);
    }
    let deadline = Instant::now() + Duration::from_millis(rng.below(500));
    loop {
        match durable.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(count) => last = count,
            Err(RecvTimeoutError::Timeout) => break,
            Err(RecvTimeoutError::Disconnected) => fail(child),
        }
        if Instant::now() >= deadline {
            break;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap();
    feeder.join().unwrap();
    durable.try_iter().last().unwrap_or(last)
}

/// The process ended by itself, which it must not: its input has no end.
fn fail(child: Child) -> ! {
    let output = child.wait_with_output().unwrap();
    panic!("load ended: {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
}

/// What is in the store must be a prefix of the input; returns its length.
fn check(program: &Program) -> u64 {
    if !program.store().join("CURRENT").exists() {
        return 0;
    }
    let verified = program.run(&["verify"]);
    assert_eq!(verified.code, 0, "{}{}", verified.out, verified.err);
    let mut count = 0;
    for line in program.ok(&["scan"]).lines() {
        let (key, value) = line.split_once('\t').unwrap();
        let (want_key, want_value) = record(count);
        assert_eq!((key, value), (&*want_key, &*want_value), "record {count}");
        count += 1;
    }
    if count > 0 {
        let (key, value) = record(count - 1);
        assert_eq!(program.ok(&["get", &key]), format!("{value}\n"));
    }
    assert_eq!(program.run(&["get", &record(count).0]).code, 1);
    count
}
