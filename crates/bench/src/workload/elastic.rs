//! `elastic` and `elastic-shift`: the setting of ElasticBF (Li et al., "ElasticBF: Elastic Bloom
//! Filter with Hotness Awareness for Boosting Read Performance in Large Key-Value Stores", 2019).
//!
//! More than 8 GB of 1 KB values, direct I/O, nothing of the data in any cache, and filter memory for
//! [`AVERAGE_BITS`] bits per key on average. Half of the lookups are for absent keys (`--missing`),
//! each between two neighbours that are stored and as popular as they are. One thread.
//!
//! | variant | filters on disk | in memory |
//! |---|---|---|
//! | (none) | Terrace's default: a ribbon by columns | the columns that save most reads, within the budget |
//! | `budget-bloom:4x6` | six Bloom units of 4 bits | the units that save most reads |
//! | `mq-bloom:4x6` | the same | units as ElasticBF's queues hand them out |
//! | `uniform-bloom:4` | one Bloom filter of 4 bits | all of it |
//! | `uniform-ribbon:4` | a ribbon of 4 columns | all of it |
//!
//! RocksDB and Speedb (variant: none) have their Bloom filter of 4 bits, all of it in memory; an
//! engine without direct I/O is left out. The budget is exactly [`AVERAGE_BITS`] a key; the uniform
//! variants may take `UNIFORM_SLACK` times as much, so that all of their filters are resident.
//!
//! - **Load**: every key once in random order, in [`FLUSHES`] pieces, each flushed and the compactions
//!   that are due waited for, so that the shape of the store follows from the data and not from how
//!   fast this went: all variants have the same levels. Four files of level 0 start a merge, in
//!   every engine, and two are left at the end; below, sizes follow the data (the first level takes
//!   four pieces), so that a small store has as many runs as a large one. No more is merged than
//!   what is due: Terrace's merging when idle is off. The column `runs` says what there is.
//! - **Indexes** are in memory: peers hold them in their readers; Terrace's are in a cache that has
//!   room for all of them and takes no data (`fill_cache = false`), and one stored key in every
//!   `WARM_UP_STRIDE` is looked up first to bring them there.
//! - `elastic-uniform`, `elastic-zipf-0.99`, `elastic-zipf-1.1`: keys are drawn by this law; in the
//!   Zipf laws the popular ones are neighbours ([`crate::hot_range`]). Before each, a
//!   sixteenth as many lookups as there are keys (500,000 at full size, at most a minute) let the
//!   allocators settle. 30 seconds each, less with few keys, or as `--duration` and `--ops` say.
//! - `elastic-shift` is in `elastic/shift`.
//!
//! `wasted_reads_per_op` is the kernel's count of read calls during the lookups, less one for each
//! key that was found, over the lookups. The engine's own count stands beside it, with Terrace's
//! reads of indexes and its loads of filter units, which go through `io_uring` and are not among
//! those calls unless the kernel has none. `filter_bytes` are those in memory afterwards. A store
//! that finds keys without reading is an error: something cached data.

pub mod series;
mod shift;

use super::fill;
use super::point_read::PointReader;
use super::{Bench, Workload, touch};
use crate::distribution::{Distribution, Sampler};
use crate::filter::FilterSpec;
use crate::hot_range::HotRange;
use crate::job::{Event, Job, Observer, Shape};
use crate::phase::{Outcome, Phase, Tally, Worker};
use crate::report::Row;
use crate::report::figures::{ElasticFigures, ShiftFigures};
use crate::store::{EngineConfig, FilterCounts, FilterMemory};
use crate::usage::{Usage, Window};
use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Bits per key of filters in memory, on average.
pub const AVERAGE_BITS: f64 = 4.0;
/// Memory of the uniform variants, relative to the budget of the others.
pub const UNIFORM_SLACK: f64 = 1.25;
/// Pieces in which the store is loaded, unless they get too large: a multiple of `L0_TRIGGER` and
/// two.
pub const FLUSHES: u64 = 130;
/// Files of level 0 that start a merge.
const L0_TRIGGER: u64 = 4;
const MAX_PIECE_BYTES: u64 = 64 << 20;
/// A memtable takes a key with so many bytes beside it, at most, so that it is never full before
/// its piece is complete.
const MEMTABLE_BYTES_PER_KEY: u64 = 192;
const MIN_MEMTABLE_BYTES: u64 = 256 << 10;
const MIN_FILE_BYTES: u64 = 4096;
/// Data bytes per byte of cache for indexes; an index takes about 1/150 of the data.
const DATA_PER_INDEX_CACHE: u64 = 32;
const MIN_INDEX_CACHE_BYTES: usize = 8 << 20;
/// Of the stored keys, one in so many is looked up to bring indexes into memory.
const WARM_UP_STRIDE: u64 = 64;
/// Share of absent keys.
const MISSING: f64 = 0.5;
/// Longest measurement and longest warm-up under one law.
const LAW_SECONDS: u64 = 30;
const WARM_UP_SECONDS: u64 = 60;
const MIN_WARM_UP_OPS: u64 = 20_000;
const MAX_WARM_UP_OPS: u64 = 500_000;
/// A law is not measured for longer than a quarter of the keys takes, unless they are this few.
const MIN_LAW_OPS: u64 = 50_000;
/// The hottest position, as a part of the key space: not at an end.
const HOT_PART: u64 = 3;
/// If fewer than this share of the found keys needed a read, data came from some cache.
const LEAST_READS_PER_FOUND: f64 = 0.95;

/// What is built and who holds it in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Variant {
    /// The engine's default; for peers, Bloom filters of [`AVERAGE_BITS`] in memory.
    Default,
    /// Bloom units where they save most reads.
    BudgetBloom,
    /// Bloom units by ElasticBF's queues.
    MqBloom,
    /// A Bloom filter for every partition.
    UniformBloom,
    /// A ribbon for every partition.
    UniformRibbon,
}

impl Variant {
    /// All, the default first.
    pub const ALL: [Self; 5] =
        [Self::Default, Self::BudgetBloom, Self::MqBloom, Self::UniformBloom, Self::UniformRibbon];

    /// The `variant` column.
    pub fn name(self) -> &'static str {
        match self {
            Self::Default => "",
            Self::BudgetBloom => "budget-bloom:4x6",
            Self::MqBloom => "mq-bloom:4x6",
            Self::UniformBloom => "uniform-bloom:4",
            Self::UniformRibbon => "uniform-ribbon:4",
        }
    }

    /// The filters to build, unless they are the engine's default.
    fn filter(self) -> Result<Option<FilterSpec>> {
        let text = match self {
            Self::Default => return Ok(None),
            Self::BudgetBloom | Self::MqBloom => "bloom:4x6",
            Self::UniformBloom => "bloom:4",
            Self::UniformRibbon => "ribbon:4",
        };
        text.parse().map(Some)
    }

    /// Bytes of filters in memory, at most.
    fn budget_bytes(self, keys: u64, average_bits: f64) -> usize {
        let average = keys as f64 * average_bits / 8.0;
        match self {
            Self::UniformBloom | Self::UniformRibbon => (average * UNIFORM_SLACK) as usize,
            _ => average as usize,
        }
    }

    fn filter_memory(self, keys: u64, average_bits: f64) -> FilterMemory {
        let bytes = self.budget_bytes(keys, average_bits);
        if self == Self::MqBloom {
            FilterMemory::Queues(bytes)
        } else {
            FilterMemory::Budget(bytes)
        }
    }
}

impl FromStr for Variant {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let name = if text == "default" { "" } else { text };
        let known = Self::ALL.into_iter().find(|variant| variant.name() == name);
        let names: Vec<&str> = Self::ALL.iter().skip(1).map(|variant| variant.name()).collect();
        known.ok_or_else(|| {
            let names = names.join(", ");
            anyhow::anyhow!("--set variants: `{text}` is none of default, {names}")
        })
    }
}

/// Pieces in which a store of `shape` is loaded: two more than a multiple of `L0_TRIGGER`.
fn pieces(shape: Shape) -> u64 {
    let needed = shape.raw_bytes().div_ceil(MAX_PIECE_BYTES);
    FLUSHES + needed.saturating_sub(FLUSHES).next_multiple_of(L0_TRIGGER)
}

/// Sets what `elastic` needs for a store of `shape`. Names of settings are the engine's own.
pub fn configure(
    config: &mut EngineConfig,
    is_terrace: bool,
    variant: Variant,
    shape: Shape,
    average_bits: f64,
) -> Result<()> {
    let piece_keys = shape.keys.div_ceil(pieces(shape));
    let piece_bytes = piece_keys * (shape.key_size + shape.value_size) as u64;
    let memtable = piece_bytes + piece_keys * MEMTABLE_BYTES_PER_KEY + MIN_MEMTABLE_BYTES;
    config.memtable_bytes = memtable as usize;
    config.write_bytes = config.memtable_bytes * 4;
    config.cache_bytes =
        ((shape.raw_bytes() / DATA_PER_INDEX_CACHE) as usize).max(MIN_INDEX_CACHE_BYTES);
    config.direct_io = true;
    config.fill_cache = false;
    config.statistics = true;
    config.filter_memory = variant.filter_memory(shape.keys, average_bits);
    config.filter = match is_terrace {
        true => variant.filter()?,
        false => Some("blocked:4".parse()?),
    };
    let mut set = |name: &str, value: u64| config.extra.push((name.to_owned(), value.to_string()));
    let file = piece_bytes.max(MIN_FILE_BYTES);
    if is_terrace {
        set("level_base_bytes", 4 * file);
        set("target_file_bytes", file);
        set("l0_compaction_trigger", L0_TRIGGER);
        // Level 0 is merged at the trigger even if its files came fast.
        set("l0_slowdown", L0_TRIGGER);
        config.extra.push(("compact_when_idle".to_owned(), "false".to_owned()));
    } else {
        set("max_bytes_for_level_base", 4 * file);
        set("target_file_size_base", file);
        set("level0_file_num_compaction_trigger", L0_TRIGGER);
    }
    Ok(())
}

/// How keys are drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Law {
    Uniform,
    /// Zipf's law over neighbours, with this exponent.
    Zipf(f64),
}

const LAWS: [Law; 3] = [Law::Uniform, Law::Zipf(0.99), Law::Zipf(1.1)];

impl fmt::Display for Law {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => write!(f, "uniform"),
            Self::Zipf(exponent) => write!(f, "zipf-{exponent}"),
        }
    }
}

/// The hot range of a Zipf law before any jump.
fn hot_range(exponent: f64, keys: u64) -> HotRange {
    HotRange::new(exponent, keys, keys / HOT_PART)
}

/// Loads, warms up and runs what was asked for.
pub fn run(job: &Job, observer: &Observer, variant: Variant) -> Result<()> {
    let bench = Bench::open(job, observer, &job.config)?;
    fill::load_in_pieces(&bench, pieces(job.shape))?;
    let elastic = Elastic { bench, variant };
    elastic.bring_in_indexes()?;
    for workload in &job.workloads {
        match workload {
            Workload::Elastic => LAWS.into_iter().try_for_each(|law| elastic.measure_law(law))?,
            Workload::ElasticShift => shift::run(&elastic)?,
            _ => {}
        }
    }
    elastic.bench.close()
}

/// The loaded store.
struct Elastic<'a> {
    bench: Bench<'a>,
    variant: Variant,
}

impl Elastic<'_> {
    fn keys(&self) -> u64 {
        self.bench.shape().keys
    }

    fn missing(&self) -> f64 {
        self.bench.job.missing.unwrap_or(MISSING)
    }

    /// Lookups that let allocators settle: a sixteenth of the keys, within bounds.
    fn warm_up_ops(&self) -> u64 {
        let keys = self.keys();
        (keys / 16).clamp(keys.min(MIN_WARM_UP_OPS), MAX_WARM_UP_OPS)
    }

    fn bring_in_indexes(&self) -> Result<()> {
        let phase = Phase {
            threads: 1,
            ops: self.keys().div_ceil(WARM_UP_STRIDE),
            duration: None,
            time_every: 1,
        };
        let make = |_| Ok(Strider { bench: &self.bench, key: Vec::new() });
        self.bench.run_phase("reading indexes", phase, make).map(drop)
    }

    /// Lookups by `sampler` that are not measured.
    fn settle_allocators(&self, sampler: &Sampler) -> Result<()> {
        let phase = Phase {
            threads: 1,
            ops: self.warm_up_ops(),
            duration: Some(Duration::from_secs(WARM_UP_SECONDS)),
            time_every: 1,
        };
        self.bench.run_phase("warming up", phase, |thread| {
            Ok(self.reader("warming up", thread, sampler))
        })?;
        Ok(())
    }

    fn reader(&self, name: &str, thread: usize, sampler: &Sampler) -> PointReader<'_> {
        PointReader::new(&self.bench, name, thread, sampler.clone(), self.missing())
    }

    fn measure_law(&self, law: Law) -> Result<()> {
        let keys = self.keys();
        let sampler = match law {
            Law::Uniform => Sampler::new(&Distribution::Uniform, keys, 0)?,
            Law::Zipf(exponent) => Sampler::contiguous(hot_range(exponent, keys), keys),
        };
        self.settle_allocators(&sampler)?;
        let name = format!("elastic-{law}");
        let bound = super::Bound::ops_or_seconds((keys / 4).max(MIN_LAW_OPS), LAW_SECONDS);
        let phase = self.bench.phase(bound, 1);
        let before = self.bench.store.filter_counts()?;
        let window = Window::open()?;
        let outcome = self
            .bench
            .run_phase(&name, phase, |thread| Ok(self.reader(&name, thread, &sampler)))?;
        let usage = window.usage()?;
        self.report(&name, &law.to_string(), phase, &outcome, usage, before, None)
    }

    #[allow(clippy::too_many_arguments, reason = "a row is made of that many things")]
    fn report(
        &self,
        name: &str,
        law: &str,
        phase: Phase,
        outcome: &Outcome,
        usage: Usage,
        before: FilterCounts,
        shift: Option<ShiftFigures>,
    ) -> Result<()> {
        let after = self.bench.store.filter_counts()?;
        let (ops, found) = (outcome.ops as f64, outcome.tally.found as f64);
        let reads = usage.read_calls as f64;
        ensure!(
            reads >= found * LEAST_READS_PER_FOUND,
            "{found} keys were found with {reads} reads: data came from a cache, so that these \
             figures would mean nothing"
        );
        let since = |field: fn(&FilterCounts) -> Option<u64>| {
            let (now, then) = (field(&after)?, field(&before)?);
            Some(now.saturating_sub(then) as f64 / ops)
        };
        let live = self.keys() * self.bench.item_bytes();
        let row = self.bench.row(name, phase, outcome, usage, self.keys(), Some(live))?;
        let index_reads_per_op = since(|counts| counts.index_reads);
        let average_bits = self.bench.job.settings.average_bits;
        let figures = ElasticFigures {
            law: law.to_owned(),
            filter_budget_bytes: self.variant.budget_bytes(self.keys(), average_bits) as u64,
            filter_disk_bytes: row.filter_bytes,
            wasted_reads_by_engine: since(|counts| counts.wasted_reads)
                .map(|wasted| wasted + index_reads_per_op.unwrap_or(0.0)),
            index_reads_per_op,
            unit_loads_per_op: since(|counts| counts.unit_loads),
            sorted_runs: after.sorted_runs,
        };
        let row = Row {
            wasted_reads_per_op: Some((reads - found) / ops),
            filter_bytes: after.resident_bytes,
            elastic: Some(figures),
            shift,
            ..row
        };
        self.bench.observer.tell(Event::Row(Box::new(row)));
        Ok(())
    }
}

/// Looks every so-manieth stored key up, in key order.
struct Strider<'a> {
    bench: &'a Bench<'a>,
    key: Vec<u8>,
}

impl Worker for Strider<'_> {
    fn step(&mut self, sequence: u64) -> Result<()> {
        self.bench.keys.present(sequence * WARM_UP_STRIDE, &mut self.key);
        let found = self.bench.store.get(&self.key, &mut touch)?;
        ensure!(found, "wrong answer: key {:02x?} is stored, the store says otherwise", self.key);
        Ok(())
    }

    fn tally(&self) -> Tally {
        Tally::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_are_found_by_name() {
        for variant in Variant::ALL {
            let name = if variant == Variant::Default { "default" } else { variant.name() };
            assert_eq!(name.parse::<Variant>().unwrap(), variant);
            assert!(variant.filter().is_ok());
        }
        let text = "lru".parse::<Variant>().unwrap_err().to_string();
        assert!(text.contains("mq-bloom:4x6"), "{text}");
    }

    #[test]
    fn two_pieces_are_left_in_level_0_whatever_the_size() {
        for keys in [3_000, 100_000, 8_000_000, 80_000_000, 1_234_567_890] {
            let shape = Shape { keys, key_size: 16, value_size: 1024 };
            let pieces = pieces(shape);
            assert!(shape.raw_bytes() / pieces <= MAX_PIECE_BYTES, "{keys}");
            assert_eq!(pieces % L0_TRIGGER, 2, "{keys}");
        }
    }

    #[test]
    fn the_budget_is_four_bits_a_key() {
        assert_eq!(Variant::Default.budget_bytes(8_000_000, AVERAGE_BITS), 4_000_000);
        assert_eq!(Variant::UniformBloom.budget_bytes(8_000_000, AVERAGE_BITS), 5_000_000);
        assert_eq!(Variant::MqBloom.filter_memory(800, AVERAGE_BITS), FilterMemory::Queues(400));
    }
}
