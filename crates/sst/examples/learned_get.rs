//! Cached lookups in one SST through the index partitions and through its model, side by side:
//!
//! ```text
//! cargo run --release -p terrace-sst --example learned_get [-- [--keys N] [--lookups N] [--set NAME]]
//! ```
//!
//! Keys of 16 bytes, values of 64. `linear`, `segmented` (a gap after 100 and after 10 keys in a
//! row) and `normal` are the synthetic data sets of Bourbon (OSDI 2020), as decimals; `names` are
//! package names from `crates/cli/data/packages.tsv.zst`. Times are medians
//! of short turns, so that other work on the machine matters little.

use std::collections::BTreeSet;
use std::fs::File;
use std::hint::black_box;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use terrace_base::key::pack_trailer;
use terrace_base::{FileNumber, MAX_SEQNO, Result, Rng, SeqNo, SplitMix64, ValueKind};
use terrace_sst::{
    BlockCache, Compression, FilterMemory, Lookup, ReadCounters, ReaderOptions, SstOptions,
    SstReader, SstWriter,
};
use terrace_vfs::{PosixVfs, Vfs};

const NAMES: &str = "crates/cli/data/packages.tsv.zst";
const VALUE_BYTES: usize = 64;
const REPEATS: usize = 3;
/// Lookups on one side before it is the other's turn.
const TURN_LOOKUPS: usize = 1000;
const SETS: [&str; 8] =
    ["linear", "segmented-1", "segmented-10", "normal", "ycsb", "uuid", "random", "names"];

type Keys = Vec<Vec<u8>>;

struct Arguments {
    keys: usize,
    lookups: usize,
    set: Option<String>,
}

fn arguments() -> Arguments {
    let mut parsed = Arguments { keys: 1_000_000, lookups: 1_000_000, set: None };
    let mut words = std::env::args().skip(1);
    while let (Some(name), Some(value)) = (words.next(), words.next()) {
        match (name.as_str(), value.parse()) {
            ("--keys", Ok(count)) => parsed.keys = count,
            ("--lookups", Ok(count)) => parsed.lookups = count,
            ("--set", _) => parsed.set = Some(value),
            _ => eprintln!("ignored: {name} {value}"),
        }
    }
    parsed
}

fn keys_of(set: &str, count: usize) -> Keys {
    let mut rng = SplitMix64::new(42);
    let decimal = |number: u64| format!("{number:016}").into_bytes();
    let mut keys: Keys = match set {
        "linear" => (0..count as u64).map(decimal).collect(),
        "segmented-1" | "segmented-10" => {
            let run = if set == "segmented-1" { 100 } else { 10 };
            let mut base = 0;
            let mut next = |at: usize| {
                base += if at.is_multiple_of(run) { 1 + rng.below(1 << 20) } else { 1 };
                decimal(base)
            };
            (0..count).map(&mut next).collect()
        }
        "normal" => {
            let mut numbers = BTreeSet::new();
            while numbers.len() < count {
                let sum: f64 = (0..12).map(|_| rng.unit()).sum::<f64>() - 6.0;
                numbers.insert(((sum + 8.0) * 1e14) as u64);
            }
            numbers.into_iter().map(decimal).collect()
        }
        "ycsb" => {
            (0..count).map(|_| format!("user{:012}", rng.below(1 << 39)).into_bytes()).collect()
        }
        "uuid" => (0..count)
            .map(|_| {
                let digits = format!("{:016x}{:016x}", rng.next_u64(), rng.next_u64());
                let fields =
                    [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
                fields.join("-").into_bytes()
            })
            .collect(),
        "random" => (0..count)
            .map(|_| [rng.next_u64().to_be_bytes(), rng.next_u64().to_be_bytes()].concat())
            .collect(),
        _ => read_names().unwrap_or_default().into_iter().take(count).collect(),
    };
    keys.sort();
    keys.dedup();
    keys
}

fn read_names() -> std::io::Result<Keys> {
    let reader = BufReader::new(zstd::Decoder::new(File::open(NAMES)?)?);
    let name = |line: Vec<u8>| line.split(|byte| *byte == b'\t').next().unwrap_or(&[]).to_vec();
    reader.split(b'\n').map(|line| line.map(name)).collect()
}

fn ns_per(count: usize, run: impl FnOnce() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    run()?;
    Ok(start.elapsed().as_nanos() as f64 / count as f64)
}

fn main() -> Result<()> {
    let arguments = arguments();
    println!("| keys | write ns | hit | hit, filtered | miss | miss, filtered | index bytes |");
    println!("|---|---|---|---|---|---|---|");
    for set in SETS.iter().filter(|set| arguments.set.as_ref().is_none_or(|only| only == *set)) {
        let keys = keys_of(set, arguments.keys);
        if !keys.is_empty() {
            measure(set, &keys, arguments.lookups)?;
        }
    }
    Ok(())
}

/// Of each figure: without models, with, and how many times the one is the other. The two take
/// turns, so that other work on the machine disturbs both.
fn measure(set: &str, keys: &Keys, lookups: usize) -> Result<()> {
    let vfs: Arc<dyn Vfs> = PosixVfs::shared();
    let paths = ["off", "on"].map(|side| {
        std::env::temp_dir().join(format!("learned-get-{}-{side}.sst", std::process::id()))
    });
    let mut write_ns = [f64::INFINITY; 2];
    let mut sizes = [0; 2];
    for _ in 0..REPEATS {
        for (side, path) in paths.iter().enumerate() {
            let _ = vfs.remove(path);
            write_ns[side] = write_ns[side].min(ns_per(keys.len(), || {
                sizes[side] = write(&*vfs, path, set, keys, side == 1)?;
                Ok(())
            })?);
        }
    }
    let open = |side: usize| {
        let options = ReaderOptions {
            cache: Arc::new(BlockCache::new(2 * sizes[side] as usize + (64 << 20))),
            filter_memory: FilterMemory::Cached,
            models: side == 1,
            direct: false,
            counters: Arc::new(ReadCounters::new()),
        };
        SstReader::open(&vfs, &paths[side], FileNumber::new(1), sizes[side], &options)
    };
    let readers = [open(0)?, open(1)?];
    let times = times(&readers, keys, lookups)?;
    let per_block = |bytes: usize| bytes as f64 / readers[0].block_count() as f64;
    let index = per_block(readers[0].index_memory_bytes());
    let learned = per_block(match readers[1].has_model() {
        true => readers[1].model_memory_bytes(),
        false => readers[1].index_memory_bytes(),
    });
    let pair = |[off, on]: [f64; 2]| format!("{off:.0} → {on:.0}: {:.2}", off / on);
    println!(
        "| {set} | {} | {} | {} | {} | {} | {index:.2} → {learned:.2}: {:.2} |",
        pair(write_ns),
        pair(times[0]),
        pair(times[1]),
        pair(times[2]),
        pair(times[3]),
        index / learned,
    );
    paths.iter().try_for_each(|path| vfs.remove(path))
}

fn write(vfs: &dyn Vfs, path: &Path, set: &str, keys: &Keys, learning: bool) -> Result<u64> {
    let options = SstOptions { compression: Compression::None, learning, ..SstOptions::default() };
    let mut writer = SstWriter::create(vfs, path, FileNumber::new(1), options)?;
    for (number, key) in (0..).zip(keys) {
        writer.add(
            key,
            pack_trailer(SeqNo::new(number), ValueKind::Put),
            &[number as u8; VALUE_BYTES],
        )?;
    }
    let summary = writer.finish()?;
    if let Some(Err(why)) = summary.training.map(|training| training.model) {
        eprintln!("{set}: no model: {why}");
    }
    Ok(summary.size_bytes)
}

/// Nanoseconds per lookup: hits without and with filter, then misses; of both readers.
fn times(readers: &[Arc<SstReader>; 2], keys: &Keys, lookups: usize) -> Result<[[f64; 2]; 4]> {
    for reader in readers {
        for _ in 0..3 {
            for key in keys {
                assert!(reader.get(&Lookup::new(key, MAX_SEQNO))?.is_some());
                assert!(reader.get_unfiltered(&Lookup::new(key, MAX_SEQNO))?.is_some());
            }
        }
    }
    let mut rng = SplitMix64::new(2);
    let (mut probes, mut ends) = (Vec::new(), Vec::new());
    let kinds = [(false, false), (true, false), (false, true), (true, true)];
    let mut medians = [[0.0; 2]; 4];
    for ((filtered, absent), medians) in kinds.into_iter().zip(&mut medians) {
        let mut samples = [Vec::new(), Vec::new()];
        for turn in 0..lookups / TURN_LOOKUPS {
            probes.clear();
            ends.clear();
            for _ in 0..TURN_LOOKUPS {
                probes.extend_from_slice(&keys[rng.below(keys.len() as u64) as usize]);
                probes.extend_from_slice(if absent { b"!" } else { b"" });
                ends.push(probes.len());
            }
            let side = turn % 2;
            samples[side].push(ns_per(TURN_LOOKUPS, || {
                let mut start = 0;
                for end in &ends {
                    let lookup = Lookup::new(&probes[start..*end], MAX_SEQNO);
                    black_box(match filtered {
                        true => readers[side].get(&lookup)?,
                        false => readers[side].get(&lookup)?,
                    });
                    start = *end;
                }
                Ok(())
            })?);
        }
        for (samples, median) in samples.iter_mut().zip(medians) {
            samples.sort_by(f64::total_cmp);
            *median = samples[samples.len() / 2];
        }
    }
    Ok(medians)
}
