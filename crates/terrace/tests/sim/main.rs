//! R9: the whole engine in a deterministic simulation. One seed decides who runs when, what several
//! clients do, what fails, when the power is cut, the time, and the options; the same seed gives the
//! same run, operation for operation and byte for byte.
//!
//! `SEED=N` runs one seed, `TERRACE_TEST_EFFORT` multiplies how many are run. A seed that fails is
//! shrunk to the smallest plan found that fails, and printed with the end of its trace.
//! `cargo test -p terrace --features simulation --test sim`

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../it/at_step.rs"]
#[allow(dead_code)]
mod at_step;
#[path = "../it/camera.rs"]
#[allow(dead_code)]
mod camera;
mod client;
mod disk;
#[path = "../it/drawn.rs"]
#[allow(dead_code)]
mod drawn;
mod families;
#[path = "../it/harness.rs"]
#[allow(dead_code, unused_imports)]
mod harness;
#[path = "../it/ingesting.rs"]
#[allow(dead_code)]
mod ingesting;
#[path = "../it/left_over.rs"]
mod left_over;
#[path = "../it/model.rs"]
#[allow(dead_code)]
mod model;
mod oracle;
mod plan;
mod room;
mod shrink;
mod world;

use plan::Plan;
use shrink::shrink;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use world::{Counts, run};

/// Seeds of a run on every change.
const SEEDS: u64 = 500;
/// One seed in this many is run twice.
const TWICE_ONE_IN: u64 = 20;
/// Simulations at the same time.
const AT_ONCE: usize = 2;
/// Seeds that may fail before no more are tried.
const MAX_FAILED: usize = 3;
/// Lines of the trace that a failure prints.
const TRACE_LINES: usize = 40;

/// What is wrong with a seed, if anything is.
fn check(seed: u64, counts: &Arc<Counts>) -> Result<(), String> {
    let plan = Plan::draw(seed);
    let twice =
        seed.is_multiple_of(TWICE_ONE_IN) || std::env::var_os("TERRACE_SIM_TWICE").is_some();
    let outcome = run(&plan, twice, counts);
    if let Some(why) = outcome.failure {
        return Err(explain(plan, why, counts));
    }
    if twice {
        let again = run(&plan, true, counts);
        if (again.hash, again.steps) != (outcome.hash, outcome.steps) {
            return Err(first_difference(&outcome.trace, &again.trace));
        }
    }
    Ok(())
}

/// The smallest plan found that fails, how it fails, and the end of its trace.
fn explain(plan: Plan, why: String, counts: &Arc<Counts>) -> String {
    if plan.len() == 0 || std::env::var_os("TERRACE_SIM_RAW").is_some() {
        return why;
    }
    let steps = plan.len();
    let (plan, why) = shrink(plan, why, |plan| run(plan, false, counts).failure);
    let trace = run(&plan, true, counts).trace;
    let tail = &trace[trace.len().saturating_sub(TRACE_LINES)..];
    format!(
        "{why}\nshrunk from {steps} steps to {}:\n{plan}the end of its trace:\n{}",
        plan.len(),
        tail.join("\n")
    )
}

fn first_difference(first: &[String], second: &[String]) -> String {
    let at = first.iter().zip(second).position(|(a, b)| a != b);
    let at = at.unwrap_or(first.len().min(second.len()));
    let before = first[at.saturating_sub(10)..at].join("\n");
    let end = "the end".to_string();
    let (a, b) = (first.get(at).unwrap_or(&end), second.get(at).unwrap_or(&end));
    format!("two runs of the same plan differ, after\n{before}\nfirst:  {a}\nsecond: {b}")
}

#[test]
fn r9_every_seed_gives_one_right_run() {
    let counts = Arc::new(Counts::default());
    if let Some(seed) = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()) {
        let outcome = run(&Plan::draw(seed), true, &counts);
        if let Ok(path) = std::env::var("TERRACE_SIM_TRACE") {
            std::fs::write(path, outcome.trace.join("\n")).unwrap();
        }
        println!("SEED={seed}: {} steps, hash {:016x}, {counts:?}", outcome.steps, outcome.hash);
        if let Err(why) = check(seed, &counts) {
            panic!("SEED={seed}: {why}");
        }
        return;
    }
    let wanted = harness::effort(SEEDS);
    let (next, failed) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let enough = failed.lock().unwrap().len() >= MAX_FAILED;
                    if seed >= wanted || enough {
                        return;
                    }
                    if let Err(why) = check(seed, &counts) {
                        eprintln!(
                            "SEED={seed} cargo test -p terrace --features simulation --test sim\n{why}"
                        );
                        failed.lock().unwrap().push(seed);
                    }
                }
            });
        }
    });
    println!("R9: {wanted} seeds, {counts:?}");
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "failed seeds: {failed:?}");
}
