//! What an expert sets, in the words of RocksDB's option strings.

use crate::filter::PeerFilter;
use crate::store::{Compression, Durability, EngineConfig, MetadataPlace};
use anyhow::Result;
use std::fmt::Write as _;

/// What an expert sets for this configuration, in RocksDB's words.
pub fn options_string(config: &EngineConfig, format_version: u32) -> Result<String> {
    let compression = match config.compression {
        Compression::None => "kNoCompression",
        Compression::Lz4 => "kLZ4Compression",
        Compression::Zstd => "kZSTD",
    };
    let write_buffers = (config.write_bytes / config.memtable_bytes).max(2);
    let mut text = format!(
        "create_if_missing=true;max_background_jobs={};max_subcompactions={};\
         write_buffer_size={};max_write_buffer_number={write_buffers};\
         level_compaction_dynamic_level_bytes=true;compression={compression};\
         bytes_per_sync=1048576;max_open_files=-1;use_direct_reads={direct};\
         use_direct_io_for_flush_and_compaction={direct};manual_wal_flush={};\
         stats_dump_period_sec=0;stats_persist_period_sec=0;",
        config.background_jobs,
        config.subcompactions,
        config.memtable_bytes,
        config.sync == Durability::Buffered,
        direct = config.direct_io,
    );
    let filter = match config.peer_filter()? {
        PeerFilter::None => "nullptr".to_owned(),
        PeerFilter::Bloom(bits) => format!("bloomfilter:{bits}:false"),
        // -1: on every level, as the other engines do.
        PeerFilter::Ribbon(bits) => format!("ribbonfilter:{bits}:-1"),
        PeerFilter::Paired(bits) => format!("speedb.PairedBloomFilter:{bits}"),
    };
    let mut table = format!(
        "format_version={format_version};block_size={};filter_policy={filter};\
         data_block_index_type=kDataBlockBinaryAndHash;data_block_hash_table_util_ratio=0.75;",
        config.block_size
    );
    match config.metadata {
        MetadataPlace::Fastest => table.push_str("cache_index_and_filter_blocks=false;"),
        MetadataPlace::InCache { partitioned } => {
            table.push_str(
                "cache_index_and_filter_blocks=true;\
                 cache_index_and_filter_blocks_with_high_priority=true;\
                 pin_l0_filter_and_index_blocks_in_cache=false;",
            );
            if partitioned {
                table.push_str(
                    "index_type=kTwoLevelIndexSearch;partition_filters=true;\
                     metadata_block_size=4096;pin_top_level_index_and_filter=true;",
                );
            }
        }
    }
    for (name, value) in &config.extra {
        match name.strip_prefix("table.") {
            Some(name) => write!(table, "{name}={value};")?,
            None if name == "cache" => {}
            None => write!(text, "{name}={value};")?,
        }
    }
    write!(text, "block_based_table_factory={{{table}}}")?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::FilterMemory;

    fn config() -> EngineConfig {
        EngineConfig {
            cache_bytes: 8 << 20,
            write_bytes: 256 << 20,
            memtable_bytes: 64 << 20,
            filter: Some("blocked:10".parse().unwrap()),
            filter_memory: FilterMemory::AsMetadata,
            fill_cache: true,
            statistics: false,
            compression: Compression::None,
            sync: Durability::None,
            direct_io: true,
            background_jobs: 2,
            subcompactions: 1,
            block_size: 4096,
            metadata: MetadataPlace::InCache { partitioned: true },
            extra: Vec::new(),
        }
    }

    #[test]
    fn settings_become_rocksdbs_words() {
        let text = options_string(&config(), 6).unwrap();
        for want in [
            "max_background_jobs=2;",
            "max_write_buffer_number=4;",
            "use_direct_reads=true;",
            "manual_wal_flush=false;",
            "format_version=6;",
            "filter_policy=bloomfilter:10:false;",
            "partition_filters=true;",
        ] {
            assert!(text.contains(want), "{want} is not in {text}");
        }
        let off =
            EngineConfig { metadata: MetadataPlace::InCache { partitioned: false }, ..config() };
        let off = options_string(&off, 6).unwrap();
        assert!(off.contains("cache_index_and_filter_blocks=true;") && !off.contains("partition_"));
        let fastest = EngineConfig { metadata: MetadataPlace::Fastest, ..config() };
        let fastest = options_string(&fastest, 6).unwrap();
        assert!(fastest.contains("cache_index_and_filter_blocks=false;"));
    }

    #[test]
    fn filters_become_rocksdbs_words() {
        let policy = |filter: &str| {
            let filter = Some(filter.parse().unwrap());
            let text = options_string(&EngineConfig { filter, ..config() }, 6).unwrap();
            let (_, rest) = text.split_once("filter_policy=").unwrap();
            rest.split_once(';').unwrap().0.to_owned()
        };
        assert_eq!(policy("none"), "nullptr");
        assert_eq!(policy("bloom:4"), "bloomfilter:4:false");
        assert_eq!(policy("paired:23.4"), "speedb.PairedBloomFilter:23.4");
        assert!(
            policy("ribbon:10").starts_with("ribbonfilter:1")
                && policy("ribbon:10").ends_with(":-1")
        );
        let units = EngineConfig { filter: Some("bloom:4x6".parse().unwrap()), ..config() };
        assert!(options_string(&units, 6).unwrap_err().to_string().contains("only terrace"));
    }

    #[test]
    fn settings_by_name_land_where_they_belong() {
        let set = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let extra = vec![set("ttl", "7"), set("table.checksum", "kxxHash"), set("cache", "lru")];
        let text = options_string(&EngineConfig { extra, ..config() }, 7).unwrap();
        let (outer, table) = text.split_once("block_based_table_factory={").unwrap();
        assert!(outer.ends_with("ttl=7;") && table.ends_with("checksum=kxxHash;}"), "{text}");
        assert!(!text.contains("cache=lru"));
    }
}
