//! `backup`: the first backup of a store, a second one after a hundredth of the keys was overwritten, and the store
//! made again from the second (`restore`).
//!
//! An operation is one entry of the store, so a rate is that of its live bytes. What is restored is opened and some of
//! its keys are read.

use super::fill::{self, Order};
use super::{Bench, point_read};
use crate::job::{Job, Observer};
use anyhow::Result;
use terrace_workload::phase::{Phase, Tally, Worker};
use terrace_workload::values::Values;

/// Directories inside that of the job, which ends with it.
const STORE: &str = "store";
const BACKUPS: &str = "backups";
const RESTORED: &str = "restored";
/// Of the keys, one of this many is overwritten before the second backup.
const OVERWRITTEN_ONE_OF: u64 = 100;

/// Fills a store, backs it up twice and restores it.
pub fn run(job: &Job, observer: &Observer) -> Result<()> {
    let of_store = Job { dir: job.dir.join(STORE), ..job.clone() };
    let bench = Bench::open(&of_store, observer, &job.config)?;
    fill::load(&bench, Order::Random)?;
    let (backups, restored) = (job.dir.join(BACKUPS), job.dir.join(RESTORED));
    std::fs::create_dir_all(&backups)?;
    measure(&bench, "backup", || bench.store.back_up(&backups))?;
    overwrite_some(&bench)?;
    bench.calm()?;
    measure(&bench, "backup-again", || bench.store.back_up(&backups))?;
    measure(&bench, "restore", || bench.store.restore(&backups, &restored))?;
    bench.close()?;
    let again = Job { dir: restored, ..job.clone() };
    let bench = Bench::open(&again, observer, &job.config)?;
    point_read::check(&bench)?;
    bench.close()
}

/// Runs and reports `act`, which handles every entry of the store.
fn measure(bench: &Bench<'_>, name: &str, act: impl Fn() -> Result<()> + Sync) -> Result<()> {
    let keys = bench.shape().keys;
    let phase = Phase { threads: 1, ops: 1, duration: None, time_every: 1 };
    let user_bytes = keys * bench.item_bytes();
    let window = terrace_workload::usage::Window::open()?;
    let mut outcome = bench.run_phase(name, phase, |_| Ok(Act { act: &act, user_bytes }))?;
    let usage = window.usage()?;
    outcome.ops = keys;
    bench.report(name, phase, &outcome, usage, keys, None)
}

/// Every hundredth key anew.
fn overwrite_some(bench: &Bench<'_>) -> Result<()> {
    let seed = bench.job.settings.seed ^ 0xbac;
    let mut values = Values::new(bench.shape().value_size, seed);
    let mut key = Vec::new();
    for item in (0..bench.shape().keys).step_by(OVERWRITTEN_ONE_OF as usize) {
        bench.keys.present(item, &mut key);
        bench.store.put(&key, values.next_value())?;
    }
    Ok(())
}

struct Act<'a, F> {
    act: &'a F,
    user_bytes: u64,
}

impl<F: Fn() -> Result<()>> Worker for Act<'_, F> {
    fn step(&mut self, _sequence: u64) -> Result<()> {
        (self.act)()
    }

    fn tally(&self) -> Tally {
        Tally { user_bytes: self.user_bytes, ..Tally::default() }
    }
}
