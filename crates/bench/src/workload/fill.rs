//! `fillseq` and `fillrandom`, and the order of everything on db_bench's store.
//!
//! Both insert every key exactly once: in key order, or in a random permutation. (db_bench draws
//! `fillrandom`'s keys with replacement, which leaves 37 % of them unwritten and makes the size of
//! the store a matter of chance; `overwrite` has the repeated keys.) `--ops` and `--duration` do
//! not shorten a fill.

use super::{Bench, delete, mixed, overwrite, point_read, range};
use crate::catalog::Workload;
use crate::job::{Job, Observer};
use crate::store::Store;
use anyhow::Result;
use terrace_workload::keys::{KeySpace, Permutation};
use terrace_workload::phase::{Phase, Tally, Worker};
use terrace_workload::values::Values;

/// Fills a fresh store, then reads, then writes.
pub fn run_basic(job: &Job, observer: &Observer) -> Result<()> {
    let mut bench = Bench::open(job, observer, &job.config)?;
    let fill = job.workloads.iter().copied().find(|workload| workload.is_fill());
    match fill {
        Some(workload) => measure_fill(&bench, workload)?,
        None => load(&bench, Order::Random)?,
    }
    let others: Vec<Workload> = job.workloads.iter().copied().filter(|w| !w.is_fill()).collect();
    if !others.is_empty() {
        bench.calm()?;
    }
    if others.iter().copied().any(reads) {
        bench.merge_if_asked()?;
    }
    if !others.is_empty() {
        bench.warm_up_by_scan()?;
    }
    for workload in others {
        bench.facts.merged &= reads(workload);
        match workload {
            Workload::Readrandom => point_read::readrandom(&bench)?,
            Workload::Readmissing => point_read::readmissing(&bench)?,
            Workload::Seekrandom => range::seekrandom(&bench)?,
            Workload::Scan => range::scan(&bench)?,
            Workload::Readwhilewriting => mixed::readwhilewriting(&bench)?,
            Workload::Overwrite => overwrite::overwrite(&bench)?,
            Workload::Deleterandom => delete::deleterandom(&bench)?,
            _ => {}
        }
    }
    bench.close()
}

/// Whether a workload finds the store as it was loaded. Those that do come before those that do not.
fn reads(workload: Workload) -> bool {
    !matches!(workload, Workload::Overwrite | Workload::Deleterandom)
}

/// In which order keys are inserted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// By key.
    Sequential,
    /// A random permutation.
    Random,
}

fn measure_fill(bench: &Bench<'_>, workload: Workload) -> Result<()> {
    let order = if workload == Workload::Fillseq { Order::Sequential } else { Order::Random };
    let keys = bench.shape().keys;
    let live = keys * bench.item_bytes();
    bench.measure_to_settled(
        workload.name(),
        whole(bench),
        keys,
        |_| live,
        |thread| Ok(Filler::new(bench, order, thread)),
    )
}

/// Fills the store without measuring, and settles it.
pub fn load(bench: &Bench<'_>, order: Order) -> Result<()> {
    bench.run_phase("loading", whole(bench), |thread| Ok(Filler::new(bench, order, thread)))?;
    bench.calm()
}

/// As [`load`] with one thread and in random order, flushed and settled after each of `pieces` equal
/// parts of the keys: which files the store then has depends on the data, not on how fast it came.
pub fn load_in_pieces(bench: &Bench<'_>, pieces: u64) -> Result<()> {
    let phase = Phase { threads: 1, ..whole(bench) };
    let keys = bench.shape().keys;
    bench.run_phase("loading", phase, |thread| {
        Ok(PieceFiller { filler: Filler::new(bench, Order::Random, thread), keys, pieces })
    })?;
    bench.calm()
}

/// Every key once, whatever the user's limits. Every put is timed: stalls are part of the story.
pub fn whole(bench: &Bench<'_>) -> Phase {
    Phase { threads: bench.job.threads, ops: bench.shape().keys, duration: None, time_every: 1 }
}

/// A thread that puts keys, each once.
pub struct Filler<'a> {
    store: &'a dyn Store,
    keys: KeySpace,
    order: Option<Permutation>,
    values: Values,
    key: Vec<u8>,
    tally: Tally,
}

impl<'a> Filler<'a> {
    /// A writer of the bench's keys in this order.
    pub fn new(bench: &'a Bench<'_>, order: Order, thread: usize) -> Self {
        let seed = bench.job.settings.seed.wrapping_add(thread as u64);
        Self {
            store: &*bench.store,
            keys: bench.keys,
            order: (order == Order::Random).then(|| bench.load_order()),
            values: Values::new(bench.shape().value_size, seed),
            key: Vec::new(),
            tally: Tally::default(),
        }
    }
}

impl Worker for Filler<'_> {
    fn step(&mut self, sequence: u64) -> Result<()> {
        let item = self.order.as_ref().map_or(sequence, |order| order.apply(sequence));
        self.keys.present(item, &mut self.key);
        let value = self.values.next_value();
        self.store.put(&self.key, value)?;
        self.tally.user_bytes += (self.key.len() + value.len()) as u64;
        Ok(())
    }

    fn tally(&self) -> Tally {
        self.tally
    }
}

struct PieceFiller<'a> {
    filler: Filler<'a>,
    keys: u64,
    pieces: u64,
}

/// Whether key number `sequence` is the last of one of `pieces` equal parts of `keys`.
fn ends_piece(sequence: u64, keys: u64, pieces: u64) -> bool {
    (sequence + 1) * pieces / keys > sequence * pieces / keys
}

impl Worker for PieceFiller<'_> {
    fn step(&mut self, sequence: u64) -> Result<()> {
        self.filler.step(sequence)?;
        if ends_piece(sequence, self.keys, self.pieces) {
            self.filler.store.flush()?;
            self.filler.store.settle()?;
        }
        Ok(())
    }

    fn tally(&self) -> Tally {
        self.filler.tally()
    }
}

#[cfg(test)]
mod tests {
    use super::ends_piece;

    #[test]
    fn keys_fall_into_as_many_equal_pieces_as_asked_for() {
        for (keys, pieces) in [(3000, 130), (130, 130), (1001, 2), (17, 5), (7, 1)] {
            let ends: Vec<u64> = (0..keys).filter(|at| ends_piece(*at, keys, pieces)).collect();
            assert_eq!((ends.len() as u64, ends.last().copied()), (pieces, Some(keys - 1)));
            let lengths = std::iter::once(ends[0] + 1).chain(ends.windows(2).map(|w| w[1] - w[0]));
            assert!(lengths.into_iter().all(|len| len.abs_diff(keys / pieces) <= 1), "{ends:?}");
        }
    }
}
