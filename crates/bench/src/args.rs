//! The command line of `terrace bench`, as typed.

use crate::engine::Engine;
use crate::workload::Workload;
use std::path::PathBuf;

/// Measure workloads on Terrace and its peers, side by side, on this machine.
#[derive(Debug, Clone, clap::Args)]
#[command(after_long_help = after_help())]
pub struct BenchArgs {
    /// What to run; several on the same kind of store share one load
    #[arg(required = true, value_name = "WORKLOAD")]
    pub workloads: Vec<String>,

    /// Engines, taking turns: terrace,rocksdb,speedb,leveldb,fjall
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "terrace")]
    pub engine: Vec<String>,

    /// Keys in the store [default: 10 million; ycsb 2 million; tiny-cache 13 million; packages all]
    #[arg(long, value_name = "N")]
    pub keys: Option<u64>,

    /// Bytes of a key
    #[arg(long, value_name = "BYTES", default_value_t = 16)]
    pub key_size: usize,

    /// Bytes of a value [default: 100; ycsb 1000; tiny-cache 400]
    #[arg(long, value_name = "BYTES")]
    pub value_size: Option<usize>,

    /// uniform, zipf:0.99, latest, real:FILE [default: uniform; ycsb zipf:0.99, ycsb-d latest]
    #[arg(long, value_name = "LAW")]
    pub distribution: Option<String>,

    /// Share of lookups for absent keys in readrandom, readwhilewriting [default: 0] and
    /// packages [default: 0.5]
    #[arg(long, value_name = "SHARE")]
    pub missing: Option<f64>,

    /// Threads that run operations
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub threads: usize,

    /// Seconds of each workload that is not a fill [default: reads 15, ycsb 30, writes unbounded]
    #[arg(long, value_name = "S")]
    pub duration: Option<f64>,

    /// Operations of each workload that is not a fill [default: as many as keys]
    #[arg(long, value_name = "N", conflicts_with = "duration")]
    pub ops: Option<u64>,

    /// Memory of each engine, cache and memtables, such as 512MiB [default: twice the data;
    /// tiny-cache: 8 MiB, the cache alone]
    #[arg(long, value_name = "BYTES")]
    pub memory: Option<String>,

    /// Filters: bloom:BITS, ribbon:BITS (rocksdb, speedb), paired:BITS (speedb), none
    #[arg(long, value_name = "KIND:BITS", default_value = "bloom:10")]
    pub filter: String,

    /// Reads and compaction bypass the page cache (tiny-cache always does)
    #[arg(long)]
    pub direct_io: bool,

    /// Repeats; the table shows medians
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub repeat: u32,

    /// Where stores are made and removed [default: /var/tmp]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,

    /// Write every measurement as a JSON array
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Draw the medians as bars, into a file named .svg or .png
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,

    /// A setting by name; see below
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,

    /// RocksDB's shared library
    #[arg(long, value_name = "FILE")]
    pub rocksdb_lib: Option<PathBuf>,

    /// Print each engine's own statistics
    #[arg(long)]
    pub stats: bool,
}

fn after_help() -> String {
    let workloads = Workload::ALL.map(Workload::name).join(" ");
    let engines = Engine::ALL.map(Engine::name).join(" ");
    format!(
        "Workloads: {workloads}\n\
         Engines: {engines}; `cargo xtask peers` fetches the libraries of rocksdb, speedb, leveldb\n\n\
         Settings for all engines: compression=none|lz4|zstd, sync=none|buffered|batch, \
         background_jobs=2, subcompactions=1, block_size=4096, memtable=BYTES\n\
         Settings of workloads: seed=1, seek_nexts=10, multi_get=1, write_rate=BYTES, \
         tiny_load=seq|random\n\
         Settings of one engine: rocksdb.NAME=VALUE, rocksdb.table.NAME=VALUE (its option string), \
         rocksdb.cache=lru|hyperclock, leveldb.max_file_size=, terrace.NAME=VALUE"
    )
}
