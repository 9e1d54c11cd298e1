//! LMDB, a memory-mapped B+ tree in C, as the heed crate, which compiles it.
//!
//! Every put and every lookup is a transaction of its own. LMDB has no cache: what is read is the page cache,
//! which no setting bounds. It needs no filter, whatever is asked for. Its map may grow to [`MAP_BYTES`].
#![allow(unsafe_code, reason = "maps a file, and a cursor that keeps its transaction")]

use crate::store::{Compression, Cursor, Durability, EngineConfig, MetadataBytes, Store};
use anyhow::{Result, bail, ensure};
use heed::types::Bytes;
use heed::{Database, Env, EnvFlags, EnvOpenOptions, RoRange, RoTxn, WithTls};
use std::ops::Bound;
use std::path::Path;
use std::time::Instant;

/// Address space for the map; memory and disk are used as data come.
const MAP_BYTES: usize = 1 << 40;
/// As many threads as the bench may have, and some of its own.
const MAX_READERS: u32 = 512;

struct LmdbStore {
    env: Env,
    tree: Database<Bytes, Bytes>,
    options: String,
}

/// Opens or creates the store in `dir`.
pub fn open(dir: &Path, config: &EngineConfig) -> Result<Box<dyn Store>> {
    ensure!(config.compression == Compression::None, "lmdb has no compression");
    if let Some((name, _)) = config.extra.first() {
        bail!("--set lmdb.{name}: lmdb has no settings here");
    }
    let mut options = EnvOpenOptions::new();
    options.map_size(MAP_BYTES).max_readers(MAX_READERS);
    let syncs = config.sync == Durability::Batch;
    // SAFETY: the directory is the bench's own: nobody else changes the file, and it is opened once at a time. A
    // crash of the machine may damage a store that does not sync, and none is opened after one.
    let env = unsafe {
        if !syncs {
            options.flags(EnvFlags::NO_SYNC);
        }
        options.open(dir)?
    };
    let mut txn = env.write_txn()?;
    let tree = env.create_database(&mut txn, None)?;
    txn.commit()?;
    let options = format!("map_size={MAP_BYTES};nosync={};one_transaction_per_call", !syncs);
    Ok(Box::new(LmdbStore { env, tree, options }))
}

impl Store for LmdbStore {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let mut txn = self.env.write_txn()?;
        self.tree.put(&mut txn, key, value)?;
        Ok(txn.commit()?)
    }

    fn get(&self, key: &[u8], see: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let txn = self.env.read_txn()?;
        let value = self.tree.get(&txn, key)?;
        if let Some(value) = value {
            see(value);
        }
        Ok(value.is_some())
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        let mut txn = self.env.write_txn()?;
        self.tree.delete(&mut txn, key)?;
        Ok(txn.commit()?)
    }

    /// All in one transaction, which is what LMDB has in place of such a call.
    fn multi_get(&self, keys: &[Vec<u8>], see: &mut dyn FnMut(&[u8])) -> Result<usize> {
        let txn = self.env.read_txn()?;
        let mut found = 0;
        for key in keys {
            if let Some(value) = self.tree.get(&txn, key)? {
                see(value);
                found += 1;
            }
        }
        Ok(found)
    }

    fn cursor(&self) -> Result<Box<dyn Cursor + '_>> {
        let txn = Box::new(self.env.read_txn()?);
        Ok(Box::new(LmdbCursor { entry: None, range: None, tree: self.tree, txn }))
    }

    fn flush(&self) -> Result<()> {
        Ok(self.env.force_sync()?)
    }

    fn settle(&self) -> Result<Instant> {
        Ok(Instant::now())
    }

    fn metadata_bytes(&self) -> Result<MetadataBytes> {
        let txn = self.env.read_txn()?;
        let stat = self.tree.stat(&txn)?;
        let branches = stat.branch_pages as u64 * u64::from(stat.page_size);
        Ok(MetadataBytes { filters: None, indexes: Some(branches) })
    }

    /// A tree is in order.
    fn merge_all(&self) -> Result<()> {
        self.flush()
    }

    fn stats_text(&self) -> String {
        let stat = self.env.read_txn().and_then(|txn| self.tree.stat(&txn));
        stat.map_or_else(|error| error.to_string(), |stat| format!("{stat:?}"))
    }

    fn options_text(&self) -> String {
        self.options.clone()
    }

    fn version(&self) -> String {
        let version = heed::lmdb_version();
        format!("{}.{}.{}", version.major, version.minor, version.patch)
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.flush()
    }
}

/// A transaction and a place in it. The order of the fields is that in which they are dropped: what borrows
/// from the transaction goes before it.
struct LmdbCursor<'a> {
    entry: Option<(&'a [u8], &'a [u8])>,
    range: Option<RoRange<'a, Bytes, Bytes>>,
    tree: Database<Bytes, Bytes>,
    txn: Box<RoTxn<'a, WithTls>>,
}

impl Cursor for LmdbCursor<'_> {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        (self.entry, self.range) = (None, None);
        // SAFETY: the transaction is boxed and stays where it is until this cursor is dropped, after what borrows
        // from it. Nothing of it is handed out for longer than the cursor is borrowed.
        let txn: &RoTxn<'_, WithTls> = unsafe { &*std::ptr::from_ref(&*self.txn) };
        // There is no empty key in LMDB.
        let start = if key.is_empty() { Bound::Unbounded } else { Bound::Included(key) };
        self.range = Some(self.tree.range(txn, &(start, Bound::Unbounded))?);
        self.next()
    }

    fn next(&mut self) -> Result<()> {
        self.entry = self.range.as_mut().and_then(Iterator::next).transpose()?;
        Ok(())
    }

    fn entry(&self) -> Option<(&[u8], &[u8])> {
        self.entry
    }
}
