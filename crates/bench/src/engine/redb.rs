//! redb, a copy-on-write B tree in Rust, as a crate.
//!
//! Every put and every lookup is a transaction of its own. A commit that need not be durable stays in memory until
//! one that is ([`Store::flush`] makes one). It needs no filter, whatever is asked for.

use crate::store::{Compression, Cursor, EngineConfig, MetadataBytes, Store};
use anyhow::{Context, Result, bail, ensure};
use redb::{
    AccessGuard, Database, Durability, Range, ReadOnlyTable, ReadableDatabase,
    ReadableTableMetadata, TableDefinition, WriteTransaction,
};
use std::path::Path;
use std::time::Instant;

/// The version of the redb crate linked in; a test holds it to `Cargo.lock`.
pub const VERSION: &str = "4.6.0";

type Bytes = &'static [u8];
const TABLE: TableDefinition<'_, Bytes, Bytes> = TableDefinition::new("default");

struct RedbStore {
    database: Database,
    durability: Durability,
    options: String,
}

/// Opens or creates the store in `dir`.
pub fn open(dir: &Path, config: &EngineConfig) -> Result<Box<dyn Store>> {
    ensure!(config.compression == Compression::None, "redb has no compression");
    if let Some((name, _)) = config.extra.first() {
        bail!("--set redb.{name}: redb has no settings here");
    }
    let cache_bytes = config.cache_bytes + config.write_bytes;
    let database = Database::builder().set_cache_size(cache_bytes).create(dir.join("data.redb"))?;
    let durability = match config.sync {
        crate::store::Durability::Batch => Durability::Immediate,
        _ => Durability::None,
    };
    let options =
        format!("cache_size={cache_bytes};durability={durability:?};one_transaction_per_call");
    let store = RedbStore { database, durability, options };
    // The table is there for those who read first.
    store.write(Durability::Immediate, |txn| {
        txn.open_table(TABLE)?;
        Ok(())
    })?;
    Ok(Box::new(store))
}

impl RedbStore {
    fn write(
        &self,
        durability: Durability,
        change: impl FnOnce(&WriteTransaction) -> Result<()>,
    ) -> Result<()> {
        let mut txn = self.database.begin_write()?;
        txn.set_durability(durability)?;
        change(&txn)?;
        Ok(txn.commit()?)
    }

    fn table(&self) -> Result<ReadOnlyTable<Bytes, Bytes>> {
        Ok(self.database.begin_read()?.open_table(TABLE)?)
    }
}

impl Store for RedbStore {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(self.durability, |txn| {
            txn.open_table(TABLE)?.insert(key, value)?;
            Ok(())
        })
    }

    fn get(&self, key: &[u8], see: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.table()?.get(key)?;
        if let Some(value) = &value {
            see(value.value());
        }
        Ok(value.is_some())
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.write(self.durability, |txn| {
            txn.open_table(TABLE)?.remove(key)?;
            Ok(())
        })
    }

    /// All in one transaction, which is what redb has in place of such a call.
    fn multi_get(&self, keys: &[Vec<u8>], see: &mut dyn FnMut(&[u8])) -> Result<usize> {
        let table = self.table()?;
        let mut found = 0;
        for key in keys {
            if let Some(value) = table.get(key.as_slice())? {
                see(value.value());
                found += 1;
            }
        }
        Ok(found)
    }

    fn cursor(&self) -> Result<Box<dyn Cursor + '_>> {
        Ok(Box::new(RedbCursor { table: self.table()?, range: None, entry: None }))
    }

    /// A commit that is durable makes those before it so.
    fn flush(&self) -> Result<()> {
        self.write(Durability::Immediate, |_| Ok(()))
    }

    fn settle(&self) -> Result<Instant> {
        Ok(Instant::now())
    }

    fn metadata_bytes(&self) -> Result<MetadataBytes> {
        let stats = self.table()?.stats()?;
        Ok(MetadataBytes { filters: None, indexes: Some(stats.metadata_bytes()) })
    }

    /// A tree is in order.
    fn merge_all(&self) -> Result<()> {
        self.flush()
    }

    fn stats_text(&self) -> String {
        let stats = self.table().and_then(|table| table.stats().context("the tree's statistics"));
        stats.map_or_else(|error| format!("{error:#}"), |stats| format!("{stats:?}"))
    }

    fn options_text(&self) -> String {
        self.options.clone()
    }

    fn version(&self) -> String {
        VERSION.to_owned()
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.flush()
    }
}

type Entry = (AccessGuard<'static, Bytes>, AccessGuard<'static, Bytes>);

struct RedbCursor {
    table: ReadOnlyTable<Bytes, Bytes>,
    range: Option<Range<'static, Bytes, Bytes>>,
    entry: Option<Entry>,
}

impl Cursor for RedbCursor {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.range = Some(self.table.range(key..)?);
        self.next()
    }

    fn next(&mut self) -> Result<()> {
        self.entry = self.range.as_mut().and_then(Iterator::next).transpose()?;
        Ok(())
    }

    fn entry(&self) -> Option<(&[u8], &[u8])> {
        self.entry.as_ref().map(|(key, value)| (key.value(), value.value()))
    }
}
