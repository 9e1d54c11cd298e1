//! How a job's process ends, and what becomes of its rows.

use super::*;
use crate::engine::Engine;
use crate::report::{Facts, StoreState};
use anyhow::anyhow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use terrace_workload::phase::{Outcome, Tally, histogram};
use terrace_workload::usage::Usage;

/// A process that tells progress for ever has its driver wait for ever.
#[test]
fn a_panic_of_a_job_ends_the_thread_that_tells_progress() {
    let observer = Observer::new(|_| {});
    let work = || -> u32 { panic!("as asked") };
    let panics = AssertUnwindSafe(|| telling_progress(&observer, work));
    assert!(catch_unwind(panics).is_err());
    assert_eq!(telling_progress(&observer, || 7), 7);
}

fn row() -> Row {
    let facts = Facts {
        engine: Engine::Terrace,
        repeat: 1,
        repeats: 1,
        variant: String::new(),
        merged: false,
        options: String::new(),
        version: String::new(),
        library: None,
        machine: String::new(),
        commit: String::new(),
    };
    let (latencies, tally) = (histogram().unwrap(), Tally::default());
    let outcome = Outcome { ops: 1, seconds: 1.0, latencies, tally };
    Row::new("fillseq", &facts, 1, &outcome, Usage::default(), StoreState::default())
}

#[test]
fn rows_of_a_job_count_once_it_has_ended_well_and_all_are_there() {
    let mut told = [row(), row()];
    all_arrived(Ok(2), &mut told).unwrap();
    assert!(told.iter().all(|row| !row.failed));
    let lost = all_arrived(Ok(3), &mut told).unwrap_err().to_string();
    assert!(lost.contains("2 of its 3 rows") && told.iter().all(|row| row.failed), "{lost}");
    let mut told = [row()];
    assert!(all_arrived(Err(anyhow!("as asked")), &mut told).is_err() && told[0].failed);
}

#[test]
fn an_observer_counts_the_rows_that_it_tells() {
    let observer = Observer::new(|_| {});
    observer.tell(Event::Note(String::new()));
    observer.tell(Event::Row(Box::new(row())));
    assert_eq!(observer.rows(), 1);
}

/// No process has the number, here.
#[test]
fn an_abandoned_store_is_removed_unless_somebody_holds_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join(format!("{DIR_PREFIX}{}-x", u32::MAX));
    let own = dir.path().join(format!("{DIR_PREFIX}{}-x", std::process::id()));
    let other = dir.path().join("something-else");
    for path in [&store, &own, &other] {
        std::fs::create_dir(path).unwrap();
    }
    let held = hold(&store).unwrap();
    sweep_abandoned(dir.path());
    assert!(store.is_dir());
    drop(held);
    sweep_abandoned(dir.path());
    assert!(!store.exists() && own.is_dir() && other.is_dir());
}
