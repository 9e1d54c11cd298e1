//! The command line of `terrace-bench`, as typed.

use crate::catalog::Workload;
use crate::catalog::elastic::Variant;
use crate::catalog::key_set::KeySet;
use crate::engine::Engine;
use std::path::PathBuf;

/// Measure workloads on Terrace and its peers, side by side, on this machine.
#[derive(Debug, Clone, clap::Args)]
#[command(after_long_help = after_help())]
pub struct BenchArgs {
    /// What to run; several on the same kind of store share one load
    #[arg(required = true, value_name = "WORKLOAD")]
    pub workloads: Vec<String>,

    /// Engines, taking turns: terrace,rocksdb,speedb,leveldb,fjall,lmdb,redb
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "terrace")]
    pub engine: Vec<String>,

    /// Keys in the store [default: 10 million; ycsb 2 million; tiny-cache 13 million; elastic 8
    /// million; packages all; large-values 524,288; learned 5 million;
    /// skew 4 million; paired 8 million]
    #[arg(long, value_name = "N")]
    pub keys: Option<u64>,

    /// Bytes of a key [default: 16; skew 8]
    #[arg(long, value_name = "BYTES")]
    pub key_size: Option<usize>,

    /// Bytes of a value [default: 100; ycsb 1000; tiny-cache 400; elastic 1024; large-values 4096;
    /// learned 64; skew 4096]
    #[arg(long, value_name = "BYTES")]
    pub value_size: Option<usize>,

    /// uniform, zipf:0.99, latest, real:FILE [default: uniform; ycsb zipf:0.99, ycsb-d latest]
    #[arg(long, value_name = "LAW")]
    pub distribution: Option<String>,

    /// Share of lookups for absent keys in readrandom, readwhilewriting [default: 0], packages and
    /// elastic [default: 0.5]
    #[arg(long, value_name = "SHARE")]
    pub missing: Option<f64>,

    /// Threads that run operations
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub threads: usize,

    /// Seconds of each workload that is not a fill [default: reads 15, ycsb 30, elastic 30 each
    /// law, learned 5 each turn, writes unbounded]; not for skew and cluster-skew
    #[arg(long, value_name = "S")]
    pub duration: Option<f64>,

    /// Operations of each workload that is not a fill [default: as many as keys]
    #[arg(long, value_name = "N", conflicts_with = "duration")]
    pub ops: Option<u64>,

    /// Memory of each engine, cache and memtables, such as 512MiB [default: twice the data; of the
    /// cache alone: tiny-cache 8 MiB, large-values a 64th of the data]
    #[arg(long, value_name = "BYTES")]
    pub memory: Option<String>,

    /// Filters: blocked:BITS, bloom:BITS (peers: their Bloom filter), paired:BITS (terrace, speedb),
    /// ribbon:COLUMNS (terrace, rocksdb, speedb), bloom:BITSxUNITS and the like (terrace), none
    /// [default: blocked:10; filters: all kinds; elastic has its own]
    #[arg(long, value_name = "KIND:SIZE")]
    pub filter: Option<String>,

    /// Reads and compaction bypass the page cache (tiny-cache, elastic and large-values always
    /// do)
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

    /// Draw the medians as bars, and the series of elastic-shift and large-values as lines, into a
    /// file named .svg or .png
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
    let variants = Variant::ALL.map(|v| if v.name().is_empty() { "default" } else { v.name() });
    let variants = variants.join(", ");
    let key_sets = KeySet::ALL.map(|set| set.to_string()).join(", ");
    format!(
        "Workloads: {workloads}\n\
         Engines: {engines}; `cargo xtask peers` fetches the libraries of rocksdb, speedb, leveldb\n\n\
         filters: false positives and bits of every kind of filter at five sizes; terrace's alone, with the time \
         to build and to ask; rocksdb's and speedb's through a store\n\
         elastic: 8 GB of 1 KB values, direct I/O, no data cached, 4 bits per key of filters in memory, \
         half of the lookups absent, under a uniform and two contiguous Zipf laws; Terrace in five \
         variants, one load each ({variants}), rocksdb and speedb with bloom:4\n\
         elastic-shift: on the same store, the hot range jumps by half of the key space\n\
         large-values: 2 GiB of 4 KiB values, direct I/O, a cache of a 64th: load, lookups, scans of 100 \
         before and after values are sorted, three overwrites of everything with the size on disk over \
         time; variants terrace, terrace-inline, rocksdb, rocksdb-blob, speedb, speedb-blob, fjall, \
         fjall-blob, leveldb (the last three are not read from). In a few minutes:\n  \
         terrace-bench large-values --keys 49152 --repeat 1 --duration 3 --engine terrace,rocksdb \
         --set sample_ms=100 --json FILE --plot FILE\n\
         learned: 5 million keys of 16 bytes, values of 64, in memory, as {key_sets}; variants terrace, \
         terrace-off, terrace-level, rocksdb, rocksdb-interpolation (a library of RocksDB 11 by \
         --rocksdb-lib) and the like take turns on one store. In a few minutes:\n  \
         terrace-bench learned --keys 300000 --repeat 1 --duration 1 --engine terrace,rocksdb \
         --json FILE --plot FILE\n\n\
         skew: as many puts as keys under Zipf's law of exponents 0.5 to 1.8 into empty stores, bytes written with and \
         without the log; variants terrace, terrace-hot, terrace-tiered, terrace-tiered-hot, terrace-separated, \
         terrace-separated-hot, rocksdb. In a few minutes:\n  \
         terrace-bench skew --keys 250000 --value-size 1024 --repeat 1 --engine terrace,rocksdb \
         --set variants=terrace,terrace-hot --json FILE --plot FILE\n\
         cluster-skew: the same of exponent 0.9 into three stores with a router before them, by hash, by range, and \
         with the most written keys moved; the same variants\n\
         mixed-phases: hits, misses, overwrites and scans by turns, direct I/O, 32 MiB of memory; Terrace with memory \
         that moves and with fixed splits: variants terrace-auto, terrace-fixed-default, terrace-fixed-reads, \
         terrace-fixed-filters, terrace-fixed-writes\n\
         budget-curve: the reads of tiny-cache over memory of 0.05 to 20 percent of the data (terrace, rocksdb, speedb)\n\
         bulkload: the keys of fillrandom through the engine's loader, which sorts them (terrace); ingest: keys in order, \
         in files that are taken in (terrace, rocksdb, speedb); backup: a backup, one more after a hundredth of the keys \
         was overwritten, and a restore (the same engines)\n\
         paired: two stores that differ by --set a.NAME=VALUE and --set b.NAME=VALUE take turns putting the same keys in \
         one process; what b costs over a with a 95 % interval, for differences of 1 %. Without sides it says what the method \
         itself errs:\n  \
         terrace-bench paired --repeat 1 --set b.terrace.log_retention_bytes=1000000000\n\n\
         Settings for all engines: compression=none|lz4|zstd, sync=none|buffered|batch, \
         background_jobs=2, subcompactions=1, block_size=4096, memtable=BYTES\n\
         Settings of workloads: seed=1, merged=true (everything is merged by the engine's full manual compaction before \
         reads of db_bench's and YCSB's stores, of tiny-cache, budget-curve, packages and learned), seek_nexts=10, multi_get=1, write_rate=BYTES, \
         tiny_load=seq|random (of tiny-cache and budget-curve), average_bits=4 (of elastic), value_bytes=4096, passes=3, scan_length=100, \
         sample_ms=1000 (of large-values), keysets=NAME,NAME, rounds=3, level_wait=20 (of learned), \
         zipf=0.9,1.2, rate=BYTES (of skew), layouts=NAME,NAME, plan_after=0.25, \
         top=sketch|exact, rate=BYTES (of cluster-skew), variants=NAME,NAME (of these and elastic), slice=500 (puts of a slice of paired)\n\
         Settings of one engine: rocksdb.NAME=VALUE, rocksdb.table.NAME=VALUE (its option string), \
         rocksdb.cache=lru|hyperclock, leveldb.max_file_size=, \
         fjall.separation_threshold=BYTES, fjall.hash_ratio=, terrace.NAME=VALUE (such as learning=build|analyze|off, \
         value_separation_threshold=BYTES|off, gc_garbage_ratio=0.3)"
    )
}
