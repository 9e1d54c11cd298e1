//! `mixed-phases`: traffic that changes, on one store with little memory, with direct I/O.
//!
//! Rows, in this order: `phase-hit` (stored keys), `phase-miss` (absent keys), `phase-write` (overwrites),
//! `phase-scan` (seeks and some nexts), `phase-hit-again` and `phase-write-again`. Keys are drawn by Zipf 0.9 unless
//! `--distribution` says otherwise. A phase ends after [`PHASE_SECONDS`] or a fixed number of operations; with the
//! number (`--ops`), counts of reads and bytes written do not depend on how busy the machine is. Variants are
//! Terrace with memory that moves and with several fixed splits; `--memory` is all of it.

use super::fill::{self, Order};
use super::overwrite::Overwriter;
use super::point_read::PointReader;
use super::range::Seeker;
use super::{Bench, Bound};
use crate::job::{Job, Observer};
use anyhow::Result;
use terrace_workload::distribution::Distribution;

/// Seconds of a phase unless the user says otherwise.
const PHASE_SECONDS: u64 = 40;
/// Skew of the keys.
const THETA: f64 = 0.9;

/// What a phase consists of.
enum Traffic {
    /// Lookups, all of them of absent keys if so.
    Lookups {
        absent: bool,
    },
    Overwrites,
    Seeks,
}

const PHASES: [(&str, Traffic); 6] = [
    ("phase-hit", Traffic::Lookups { absent: false }),
    ("phase-miss", Traffic::Lookups { absent: true }),
    ("phase-write", Traffic::Overwrites),
    ("phase-scan", Traffic::Seeks),
    ("phase-hit-again", Traffic::Lookups { absent: false }),
    ("phase-write-again", Traffic::Overwrites),
];

/// Loads, then one phase after the other.
pub fn run(job: &Job, observer: &Observer) -> Result<()> {
    let bench = Bench::open(job, observer, &job.config)?;
    fill::load(&bench, Order::Random)?;
    let keys = job.shape.keys;
    let live = keys * bench.item_bytes();
    let sampler = bench.sampler(&Distribution::Zipf(THETA), keys)?;
    let phase = bench.phase(Bound::ops_or_seconds(4 * keys, PHASE_SECONDS), 1);
    for (name, traffic) in PHASES {
        let sampler = || sampler.clone();
        match traffic {
            Traffic::Lookups { absent } => bench.measure(name, phase, keys, |thread| {
                let missing = if absent { 1.0 } else { 0.0 };
                Ok(PointReader::new(&bench, name, thread, sampler(), missing))
            })?,
            Traffic::Seeks => bench.measure(name, phase, keys, |thread| {
                Seeker::new(&bench, name, thread, sampler())
            })?,
            Traffic::Overwrites => {
                let make = |thread| Ok(Overwriter::new(&bench, name, thread, sampler()));
                bench.measure_to_settled(name, phase, keys, |_| live, make)?;
            }
        }
    }
    bench.close()
}
