//! `bulkload` and `ingest`: every key once into an empty store, past its memtables.
//!
//! `bulkload` gives the engine's own loader all keys in the order of `fillrandom`, and the loader sorts them.
//! `ingest` writes all keys in their order into files outside the store, which takes them in. Both are measured from
//! the first entry until the store is settled, with one thread, and some keys are read afterwards.

use super::fill::{Order, whole};
use super::{Bench, point_read};
use crate::catalog::{StoreKind, Workload};
use crate::job::{Job, Observer};
use crate::store::{Loader, Store};
use anyhow::{Context, Result};
use std::path::Path;
use terrace_workload::keys::{KeySpace, Permutation};
use terrace_workload::phase::{Phase, Tally, Worker};
use terrace_workload::values::Values;

/// The directory, inside that of the store's, in which files are written that are ingested.
const OUTSIDE: &str = "outside";

/// Loads an empty store.
pub fn run(job: &Job, observer: &Observer) -> Result<()> {
    let bench = Bench::open(job, observer, &job.config)?;
    let (workload, order) = match job.store {
        StoreKind::BulkLoad => (Workload::Bulkload, Order::Random),
        _ => (Workload::Ingest, Order::Sequential),
    };
    let outside = job.dir.join(OUTSIDE);
    std::fs::create_dir_all(&outside)?;
    let keys = bench.shape().keys;
    let live = keys * bench.item_bytes();
    let phase = Phase { threads: 1, ..whole(&bench) };
    bench.measure_to_settled(
        workload.name(),
        phase,
        keys,
        |_| live,
        |_| Load::new(&bench, order, &outside),
    )?;
    point_read::check(&bench)?;
    bench.close()
}

struct Load<'a> {
    /// Until it is finished, by the last operation.
    loader: Option<Box<dyn Loader + 'a>>,
    keys: KeySpace,
    count: u64,
    order: Option<Permutation>,
    values: Values,
    key: Vec<u8>,
    tally: Tally,
}

impl<'a> Load<'a> {
    fn new(bench: &'a Bench<'_>, order: Order, outside: &Path) -> Result<Self> {
        let store: &'a dyn Store = &*bench.store;
        let (loader, order) = match order {
            Order::Random => (store.bulk_loader()?, Some(bench.load_order())),
            Order::Sequential => (store.ingester(outside)?, None),
        };
        Ok(Self {
            loader: Some(loader),
            keys: bench.keys,
            count: bench.shape().keys,
            order,
            values: Values::new(bench.shape().value_size, bench.job.settings.seed),
            key: Vec::new(),
            tally: Tally::default(),
        })
    }
}

impl Worker for Load<'_> {
    fn step(&mut self, sequence: u64) -> Result<()> {
        let item = self.order.as_ref().map_or(sequence, |order| order.apply(sequence));
        self.keys.present(item, &mut self.key);
        let value = self.values.next_value();
        let loader = self.loader.as_mut().context("the load is finished")?;
        loader.put(&self.key, value)?;
        self.tally.user_bytes += (self.key.len() + value.len()) as u64;
        if sequence + 1 == self.count
            && let Some(loader) = self.loader.take()
        {
            loader.finish()?;
        }
        Ok(())
    }

    fn tally(&self) -> Tally {
        self.tally
    }
}
