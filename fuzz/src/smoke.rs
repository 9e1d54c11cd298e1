//! The smoke rig: mutants of the seeds, one target after another, on any toolchain.
//!
//! Mutant number `i` of a target is a function of `SEED`, the target's name and `i`, so a finding
//! is replayed by naming the three. A finding is a panic in any thread, also one that somebody
//! caught, or an input that takes too long.

use crate::mutate::mutant;
use crate::{Target, seeds};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use terrace_base::checksum::hash_key;
use terrace_base::{Rng, SplitMix64};

/// An input that takes longer is a finding.
pub const MAX_INPUT_TIME: Duration = Duration::from_secs(20);

/// The first panic since it was last taken.
static PANIC: Mutex<Option<String>> = Mutex::new(None);

/// Whether a target is running: a panic at any other time is none of its.
static RUNNING: AtomicBool = AtomicBool::new(false);

/// What a hunt went through without a finding.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Inputs run, seeds included.
    pub inputs: u64,
    /// Mutants that the target took for sound.
    pub accepted: u64,
    /// The longest that one mutant took, and its number.
    pub slowest: (Duration, u64),
}

/// What a hunt found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Number of the mutant; `None` for a seed as it is.
    pub iteration: Option<u64>,
    /// The input.
    pub input: Vec<u8>,
    /// What happened.
    pub what: String,
}

/// Makes panics known to this rig that happen while a target runs, in whatever thread, instead of
/// printing them. Called once.
pub fn watch_panics() {
    let print = take_hook();
    set_hook(Box::new(move |info| {
        if !RUNNING.load(Ordering::SeqCst) {
            return print(info);
        }
        let mut first = PANIC.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let place = std::backtrace::Backtrace::force_capture();
        first.get_or_insert_with(|| format!("{info}\n{place}"));
    }));
}

fn take_panic() -> Option<String> {
    PANIC.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take()
}

/// Mutant number `iteration` of the target called `name`.
pub fn input(seed: u64, name: &str, seeds: &[Vec<u8>], iteration: u64) -> Vec<u8> {
    // Mixed twice: neighbouring iterations must not give neighbouring streams.
    let mut rng = SplitMix64::new(seed ^ hash_key(name.as_bytes()));
    let stream = rng.next_u64().wrapping_add(iteration);
    let mut rng = SplitMix64::new(SplitMix64::new(stream).next_u64());
    mutant(&mut rng, seeds)
}

/// Runs one input, one at a time; `Err` says what went wrong. [`watch_panics`] must have been
/// called.
pub fn check(target: Target, data: &[u8]) -> Result<(bool, Duration), String> {
    RUNNING.store(true, Ordering::SeqCst);
    let start = Instant::now();
    let outcome = catch_unwind(AssertUnwindSafe(|| target(data)));
    let took = start.elapsed();
    RUNNING.store(false, Ordering::SeqCst);
    match (take_panic(), outcome) {
        (Some(panic), _) => Err(panic),
        (None, Err(_)) => Err("a panic that nobody saw".into()),
        (None, Ok(_)) if took > MAX_INPUT_TIME => Err(format!("took {:.1} s", took.as_secs_f64())),
        (None, Ok(accepted)) => Ok((accepted, took)),
    }
}

/// Runs the seeds and then mutants for `duration`; stops at the first finding.
pub fn hunt(name: &str, target: Target, seed: u64, duration: Duration) -> Result<Tally, Finding> {
    let seeds = seeds::of(name);
    let mut tally = Tally::default();
    let start = Instant::now();
    for input in &seeds {
        check(target, input).map_err(|what| Finding {
            iteration: None,
            input: input.clone(),
            what,
        })?;
        tally.inputs += 1;
    }
    let mut iteration = 0;
    while start.elapsed() < duration {
        let input = input(seed, name, &seeds, iteration);
        match check(target, &input) {
            Ok((accepted, took)) => {
                tally.inputs += 1;
                tally.accepted += u64::from(accepted);
                tally.slowest = tally.slowest.max((took, iteration));
            }
            Err(what) => return Err(Finding { iteration: Some(iteration), input, what }),
        }
        iteration += 1;
    }
    Ok(tally)
}
