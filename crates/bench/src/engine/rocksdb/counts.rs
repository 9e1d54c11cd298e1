//! What RocksDB and Speedb tell about themselves: properties, table properties, tickers.

use super::RocksdbStore;
use crate::store::{FilterCounts, MetadataBytes, ValueCounts, WriteCounts};
use anyhow::{Context, Result};

/// Sizes of filters and indexes, from the properties of all tables.
pub fn metadata_bytes(store: &RocksdbStore) -> Result<MetadataBytes> {
    let text = store
        .base
        .property("rocksdb.aggregated-table-properties")
        .context("the engine does not know rocksdb.aggregated-table-properties")?;
    Ok(MetadataBytes {
        filters: table_property(&text, "filter block size"),
        indexes: table_property(&text, "index block size"),
    })
}

/// Filters are in memory as a whole unless the block cache holds them.
pub fn filter_counts(store: &RocksdbStore) -> Result<FilterCounts> {
    let text = statistics(store);
    let ticker = |name| ticker(text.as_deref()?, name);
    let passed = ticker("rocksdb.bloom.filter.full.positive");
    let found = ticker("rocksdb.bloom.filter.full.true.positive");
    Ok(FilterCounts {
        wasted_reads: passed.zip(found).map(|(passed, found)| passed.saturating_sub(found)),
        resident_bytes: metadata_bytes(store)?.filters,
        ..FilterCounts::default()
    })
}

/// What flushes and compactions write includes their blob files.
pub fn value_counts(store: &RocksdbStore) -> ValueCounts {
    let text = statistics(store);
    let ticker = |name| ticker(text.as_deref()?, name);
    let written = ["rocksdb.wal.bytes", "rocksdb.flush.write.bytes", "rocksdb.compact.write.bytes"];
    let file_bytes = store.number("rocksdb.live-blob-file-size").ok();
    let garbage = store.number("rocksdb.live-blob-file-garbage-size").ok();
    ValueCounts {
        written_bytes: written.into_iter().map(ticker).sum(),
        value_reads: None,
        value_file_bytes: file_bytes,
        value_live_bytes: file_bytes.zip(garbage).map(|(all, dead)| all.saturating_sub(dead)),
        moved_bytes: ticker("rocksdb.blobdb.gc.bytes.relocated"),
    }
}

/// What flushes and compactions write includes their blob files.
pub fn write_counts(store: &RocksdbStore) -> WriteCounts {
    let text = statistics(store);
    let ticker = |name| ticker(text.as_deref()?, name);
    let tables = ["rocksdb.flush.write.bytes", "rocksdb.compact.write.bytes"];
    WriteCounts {
        log_bytes: ticker("rocksdb.wal.bytes"),
        table_bytes: tables.into_iter().map(ticker).sum(),
        hot_keys: None,
    }
}

/// All tickers as text, if they are counted.
fn statistics(store: &RocksdbStore) -> Option<String> {
    store.statistics.then(|| store.base.property("rocksdb.options-statistics")).flatten()
}

/// The count in a line `name COUNT : number` of the engine's statistics.
fn ticker(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" COUNT : "))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// The number after `name ...=` in a list `name (remark)=number; name=number; ...`.
fn table_property(text: &str, name: &str) -> Option<u64> {
    text.split(';')
        .find(|field| field.trim_start().starts_with(name))
        .and_then(|field| field.rsplit('=').next()?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_properties_are_read_from_text() {
        let text = "# entries=10; index block size (user-key? 1, delta-value? 1)=77; filter block size=1234; x=1";
        assert_eq!(table_property(text, "filter block size"), Some(1234));
        assert_eq!(table_property(text, "index block size"), Some(77));
        assert_eq!(table_property(text, "absent"), None);
    }

    #[test]
    fn tickers_are_read_from_text() {
        let text = "rocksdb.bloom.filter.full.positive COUNT : 12\n\
                    rocksdb.bloom.filter.full.positive.x COUNT : 13\n";
        assert_eq!(ticker(text, "rocksdb.bloom.filter.full.positive"), Some(12));
        assert_eq!(ticker(text, "rocksdb.bloom"), None);
    }
}
