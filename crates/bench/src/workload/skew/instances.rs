//! Some stores with a router before them: a key is at the instance where its placement has it, or, if a
//! plan has moved it, where that says.

use super::plans::{self, Move};
use crate::catalog::StoreKind;
use crate::catalog::skew::{HOT_SHARE, memtable_bytes};
use crate::job::Job;
use crate::store::{MetadataBytes, Store, WriteCounts};
use anyhow::{Result, ensure};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use terrace_cluster::{DbKey, Placement, TopKey, TopList, Topology};
use terrace_sketch::TopKeys;
use terrace_workload::keys::KeySpace;

/// Keys that each instance counts.
const COUNTERS: usize = 8192;

/// Open stores. Writes may come from many threads.
pub struct Instances {
    stores: Vec<Box<dyn Store>>,
    dirs: Vec<PathBuf>,
    space: KeySpace,
    topology: Topology,
    moved: HashMap<Vec<u8>, usize>,
    /// What a plan needs to know of each.
    memtable_bytes: u64,
    hot_bytes: u64,
    entry_bytes: u64,
    /// What clients wrote to each.
    user_bytes: Vec<AtomicU64>,
    /// How often each item was written.
    writes: Vec<AtomicU32>,
    /// What each instance knows of that, if it is asked for.
    sketches: Option<Vec<Mutex<TopKeys>>>,
}

impl Instances {
    /// Opens `count` stores below the directory `name` of the job.
    pub fn open(
        job: &Job,
        name: &str,
        count: usize,
        placement: Placement,
        space: KeySpace,
    ) -> Result<Self> {
        let dirs: Vec<PathBuf> =
            (0..count).map(|number| job.dir.join(format!("{name}-{number}"))).collect();
        let open = |dir: &PathBuf| job.engine.open(dir, &job.config, job.library.as_deref());
        let keys = job.shape.keys;
        let sketch = |_| Mutex::new(TopKeys::new(COUNTERS, job.shape.key_size, job.settings.seed));
        let sketches = count > 1 && !job.settings.exact_top;
        let memtable_bytes = memtable_bytes(job.shape);
        let is_hot = matches!(job.store, StoreKind::Skew(variant) if variant.is_hot());
        Ok(Self {
            stores: dirs.iter().map(open).collect::<Result<_>>()?,
            dirs,
            space,
            topology: plans::topology(placement, count, space, keys)?,
            moved: HashMap::new(),
            memtable_bytes,
            entry_bytes: (job.shape.key_size + job.shape.value_size) as u64,
            hot_bytes: if is_hot { memtable_bytes / HOT_SHARE } else { 0 },
            user_bytes: (0..count).map(|_| AtomicU64::new(0)).collect(),
            writes: (0..keys).map(|_| AtomicU32::new(0)).collect(),
            sketches: sketches.then(|| (0..count).map(sketch).collect()),
        })
    }

    /// The stores, in their order.
    pub fn stores(&self) -> &[Box<dyn Store>] {
        &self.stores
    }

    /// The directories of the stores.
    pub fn dirs(&self) -> &[PathBuf] {
        &self.dirs
    }

    fn place_of(&self, key: &[u8]) -> usize {
        let moved = if self.moved.is_empty() { None } else { self.moved.get(key) };
        moved.copied().unwrap_or_else(|| plans::instance(self.topology.shard_of(key)))
    }

    /// A client's write.
    pub fn put(&self, item: u64, key: &[u8], value: &[u8]) -> Result<()> {
        let place = self.place_of(key);
        self.stores[place].put(key, value)?;
        self.user_bytes[place].fetch_add((key.len() + value.len()) as u64, Ordering::Relaxed);
        self.writes[item as usize].fetch_add(1, Ordering::Relaxed);
        if let Some(sketches) = &self.sketches {
            let mut sketch = sketches[place].lock().unwrap_or_else(PoisonError::into_inner);
            sketch.observe(key, 1);
        }
        Ok(())
    }

    /// Items that were written, each once.
    pub fn distinct_items(&self) -> u64 {
        self.writes.iter().filter(|writes| writes.load(Ordering::Relaxed) > 0).count() as u64
    }

    /// What clients wrote to each instance.
    pub fn user_bytes(&self) -> Vec<u64> {
        self.user_bytes.iter().map(|bytes| bytes.load(Ordering::Relaxed)).collect()
    }

    /// How the keys are distributed.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// What each instance knows of its most written keys: by its sketch, or exactly. From now on nothing
    /// is counted by sketches any more.
    pub fn top_lists(&mut self) -> Vec<TopList> {
        let keys = match self.sketches.take() {
            Some(sketches) => sketches.into_iter().map(counted).collect(),
            None => self.exact(),
        };
        let bytes = self.user_bytes();
        let lists = keys.into_iter().zip(bytes).enumerate();
        let list = |(number, (keys, write_bytes)): (usize, (Vec<TopKey>, u64))| TopList {
            shard: plans::shard(number),
            writes: write_bytes / self.entry_bytes,
            write_bytes,
            memtable_bytes: self.memtable_bytes,
            hot_bytes: self.hot_bytes,
            keys,
        };
        lists.map(list).collect()
    }

    /// All keys that were written more than once, by instance.
    fn exact(&self) -> Vec<Vec<TopKey>> {
        let mut lists = vec![Vec::new(); self.stores.len()];
        let mut key = Vec::new();
        for (item, writes) in (0..).zip(&self.writes) {
            let count = u64::from(writes.load(Ordering::Relaxed));
            if count > 1 {
                self.space.present(item, &mut key);
                let place = self.place_of(&key);
                lists[place].push(top_key(&key, count, 0));
            }
        }
        lists
    }

    /// Carries a plan out: each key is read where it is, written where it shall be, and deleted where it
    /// was. Gives how many were moved.
    pub fn carry_out(&mut self, moves: Vec<Move>) -> Result<u64> {
        let mut moved = 0;
        for Move { key, to } in moves {
            ensure!(to < self.stores.len(), "a plan moves a key to instance {to}");
            let from = self.place_of(&key);
            if from == to {
                continue;
            }
            let mut value = Vec::new();
            let found = self.stores[from].get(&key, &mut |bytes| value.extend_from_slice(bytes))?;
            ensure!(found, "a key that was written often is not there");
            self.stores[to].put(&key, &value)?;
            self.stores[from].delete(&key)?;
            self.moved.insert(key, to);
            moved += 1;
        }
        Ok(moved)
    }

    /// What each instance wrote.
    pub fn write_counts(&self) -> Result<Vec<WriteCounts>> {
        self.stores.iter().map(|store| store.write_counts()).collect()
    }

    /// Bytes of filters and indexes of all of them, where the engine tells.
    pub fn metadata_bytes(&self) -> Result<MetadataBytes> {
        let all = self.stores.iter().map(|store| store.metadata_bytes());
        let all: Vec<MetadataBytes> = all.collect::<Result<_>>()?;
        Ok(MetadataBytes {
            filters: all.iter().map(|bytes| bytes.filters).sum(),
            indexes: all.iter().map(|bytes| bytes.indexes).sum(),
        })
    }

    /// Writes memtables out and waits until no work is left; gives since when the last of them has none.
    pub fn settle(&self) -> Result<Option<Instant>> {
        self.stores.iter().try_for_each(|store| store.flush())?;
        let settled: Vec<Instant> =
            self.stores.iter().map(|store| store.settle()).collect::<Result<_>>()?;
        Ok(settled.into_iter().max())
    }

    /// Every item has the instance that it is said to have, and is at no other. Looks at one in
    /// `every` of the items.
    pub fn check(&self, every: usize) -> Result<()> {
        let mut key = Vec::new();
        for (item, writes) in (0..).zip(&self.writes).step_by(every) {
            let is_written = writes.load(Ordering::Relaxed) > 0;
            self.space.present(item, &mut key);
            for (number, store) in self.stores.iter().enumerate() {
                let found = store.get(&key, &mut |_| {})?;
                let expected = is_written && number == self.place_of(&key);
                ensure!(found == expected, "item {item} at instance {number}: found is {found}");
            }
        }
        Ok(())
    }

    /// Closes the stores and removes them.
    pub fn close(self) -> Result<()> {
        for store in self.stores {
            store.close()?;
        }
        for dir in self.dirs {
            std::fs::remove_dir_all(dir)?;
        }
        Ok(())
    }
}

/// What a sketch has counted.
fn counted(sketch: Mutex<TopKeys>) -> Vec<TopKey> {
    let sketch = sketch.into_inner().unwrap_or_else(PoisonError::into_inner);
    sketch.top(COUNTERS).into_iter().map(|hot| top_key(&hot.key, hot.count, hot.error)).collect()
}

fn top_key(key: &[u8], count: u64, error: u64) -> TopKey {
    TopKey { key: DbKey::new(0, key), count, error, entry_bytes: 0 }
}
