//! Ingestions as actions of the workloads: one is a batch of the history, made of sorted files.

use crate::harness::{Generator, Mix, Run, Store, family_options, key};
use crate::model::{Batch, FAMILIES, Files, MERGING, Op};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace::{CfOptions, IngestOptions, IngestSource, Ingested, Result, SstWriter};
use terrace_base::rng::Rng;

/// Ingestions of this process, for the names of files.
static COUNT: AtomicU64 = AtomicU64::new(0);

impl Store {
    /// Writes `files` on the file system of the store and ingests them.
    pub fn ingest(&self, family: usize, files: &Files) -> Result<Ingested> {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let vfs = self.db.options().advanced.vfs.clone();
        let mut paths = Vec::new();
        for (at, ops) in files.iter().enumerate() {
            let path = PathBuf::from(format!("/outside-{number}-{at}.sst"));
            let mut writer =
                SstWriter::create_on(vfs.clone(), &path, &family_options(FAMILIES[family]))?;
            for op in ops {
                match op {
                    Op::Put { key, value, expiry_ms: None, .. } => writer.put(key, value)?,
                    Op::Put { key, value, expiry_ms: Some(expiry), .. } => {
                        writer.put_until(key, value, *expiry)?;
                    }
                    Op::Merge { key, operand, .. } => writer.merge(key, operand)?,
                    Op::Delete { key, .. } => writer.delete(key)?,
                    Op::DeleteRange { start, end, .. } => writer.delete_range(start, end)?,
                }
            }
            writer.finish()?;
            paths.push(path);
        }
        let source = if number.is_multiple_of(2) { IngestSource::Copy } else { IngestSource::Move };
        let options = IngestOptions { source, ..IngestOptions::default() };
        self.families[family].ingest(&paths, &options)
    }
}

impl Generator {
    /// Files to ingest into one family.
    pub fn ingestion(&mut self, Mix { keys, ttl, .. }: Mix) -> (usize, Files) {
        let family = self.rng.below(FAMILIES.len() as u64) as usize;
        let count = 1 + self.rng.below(keys / 4 + 1);
        let chosen: BTreeSet<Vec<u8>> = (0..count).map(|_| self.key()).collect();
        let chosen: Vec<Vec<u8>> = chosen.into_iter().collect();
        let per_file = chosen.len().div_ceil(1 + self.rng.below(3) as usize);
        let files = chosen.chunks(per_file).map(|keys| self.file(family, keys, ttl));
        (family, files.collect())
    }

    /// A change of `key` as a file to ingest has it.
    fn entry(&mut self, family: usize, key: Vec<u8>, ttl: bool) -> Op {
        self.writes += 1;
        if self.rng.one_in(6) {
            return Op::Delete { family, key };
        }
        if family == MERGING && self.rng.one_in(2) {
            return Op::Merge { family, key, operand: self.value(0) };
        }
        let expires = ttl && self.rng.one_in(6);
        self.put_until(family, key, expires, 0)
    }

    fn file(&mut self, family: usize, keys: &[Vec<u8>], ttl: bool) -> Batch {
        let mut ops = Vec::new();
        if let [first, .., last] = keys
            && self.rng.one_in(3)
        {
            ops.push(Op::DeleteRange { family, start: first.clone(), end: last.clone() });
        }
        for key in keys {
            ops.push(self.entry(family, key.clone(), ttl));
        }
        ops
    }
}

impl Run {
    /// Ingests; it is durable then, and all that was written before.
    pub fn ingest(&mut self, family: usize, files: &Files) {
        let batch: Batch = files.concat();
        let count = self.history.batches.len() as u64 + 1;
        self.history.batches.push(batch.clone());
        self.marks.issued.store(count, Ordering::SeqCst);
        self.store.ingest(family, files).unwrap();
        self.promise(count, true);
        self.state.apply(&batch);
    }
}

/// A file with these entries at `path`; a key without a value is deleted.
pub fn write_file(store: &Store, path: &str, entries: &[(&str, Option<&str>)]) -> PathBuf {
    let vfs = store.db.options().advanced.vfs.clone();
    let mut writer = SstWriter::create_on(vfs, path, &CfOptions::default()).unwrap();
    for (key, value) in entries {
        match value {
            Some(value) => writer.put(key, value).unwrap(),
            None => writer.delete(key).unwrap(),
        }
    }
    writer.finish().unwrap().path
}

/// A file with `keys`, as [`key`] numbers them, in their order.
pub fn write_numbered(store: &Store, path: &str, keys: &[u64], value: &str) -> PathBuf {
    let mut keys: Vec<String> = keys.iter().map(|n| String::from_utf8(key(*n)).unwrap()).collect();
    keys.sort();
    let entries: Vec<_> = keys.iter().map(|key| (key.as_str(), Some(value))).collect();
    write_file(store, path, &entries)
}
