//! `filters`: what filters of a size are worth. One row per kind and size, `filters-KIND-SIZE`.
//! Terrace's are measured alone, without a store; those of RocksDB and Speedb through a store that has
//! them (`in_store`), which gives their false positive rate and their bits per key.
//!
//! Every kind at 4, 8, 10, 16 and 23.4 bits per key (ribbon: 4, 8, 10, 16 and 23 columns), or the
//! one that `--filter` names. RocksDB's and Speedb's Bloom filters keep all probes of a key in one
//! cache line, so they stand beside Terrace's `blocked`; their ribbons are built for the false
//! positive rate of Terrace's, 2^-columns; Speedb's paired filter stands beside `paired`.
//!
//! - **Keys** are those of the other workloads, `--keys` of them, dealt to filters of the size at
//!   which Terrace's store cuts them: [`PARTITION_BYTES`] for the largest unit.
//! - **FPR**: [`PROBES_PER_KEY`] probes per key, all for absent keys, spread over all filters. Every
//!   stored key is looked up first: a filter that denies one ends the job.
//! - **Build** is from key to bytes; **bits per key** are those of the bytes.
//! - **Hot** queries go to one filter over and over, with [`HOT_KEYS`] keys in turn; **cold** ones
//!   each to another of as many copies of the filters as fill [`COLD_BYTES`], in random order.
//!   Queries follow each other without waiting for the last one's answer, so a processor overlaps
//!   what it can. Medians over passes. The columns `ops_per_s`, `p50_us` and so on are of hot
//!   queries for absent keys, pass by pass.
//! - Every query starts from the key's bytes, so hashing is in it; `hash_ns`
//!   says how much that is: the store hashes once per lookup.

mod alone;
pub(super) mod in_store;

use crate::engine::Engine;
use crate::filter::{FilterPolicy, FilterSpec};
use crate::job::{Event, Job, Observer};
use crate::report::figures::FilterFigures;
use crate::report::{Facts, Row, StoreState};
use crate::store::{EngineConfig, MetadataBytes};
use alone::{Keys, TerraceFilter, TerraceFilters};
use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use std::hint::black_box;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use terrace_workload::keys::{KeySpace, Permutation};
use terrace_workload::phase::{self, Outcome, Tally};
use terrace_workload::usage::Window;

/// The largest unit of a filter partition, as the store cuts them.
const PARTITION_BYTES: usize = 4096;
/// Probes for absent keys, per stored key.
const PROBES_PER_KEY: u64 = 4;
/// Keys that hot queries ask for in turn: too many for branch prediction to learn their answers.
const HOT_KEYS: u64 = 8192;
/// The least time hot queries are repeated for.
const HOT_TIME: Duration = Duration::from_millis(200);
/// Unmeasured passes of hot queries.
const WARM_UP_PASSES: usize = 4;
/// Memory of the filters that cold queries go to: more than any cache holds.
const COLD_BYTES: usize = 256 << 20;
/// Passes over that memory; each touches other lines of it.
const COLD_PASSES: u64 = 5;
const BITS: [&str; 5] = ["4", "8", "10", "16", "23.4"];
const COLUMNS: [&str; 5] = ["4", "8", "10", "16", "23"];

/// Every kind and size, or the one that was asked for.
pub fn run(job: &Job, observer: &Observer) -> Result<()> {
    let version = version(job)?;
    let wanted = match job.config.filter {
        Some(spec) => vec![spec],
        None => all_sizes()?,
    };
    for spec in wanted.into_iter().filter(|spec| stands_for_own_kind(job.engine, *spec)) {
        let bench = FilterBench { job, observer, version: &version, spec };
        match job.engine {
            Engine::Terrace => bench.run(TerraceFilters::new(spec))?,
            _ => in_store::measure(job, observer, spec, &row_name(spec))?,
        }
    }
    Ok(())
}

/// Kinds and sizes that are measured unless the user says otherwise.
fn all_sizes() -> Result<Vec<FilterSpec>> {
    let bloom_like = ["bloom", "blocked", "paired"].into_iter().flat_map(|k| BITS.map(|b| (k, b)));
    let ribbon = COLUMNS.map(|columns| ("ribbon", columns));
    bloom_like.chain(ribbon).map(|(kind, size)| format!("{kind}:{size}").parse()).collect()
}

/// Whether the engine has a filter of just this construction: no peer has a textbook Bloom filter.
fn stands_for_own_kind(engine: Engine, spec: FilterSpec) -> bool {
    let textbook = matches!(spec.0, FilterPolicy::Bloom { .. });
    engine.has_filter(spec) && (engine == Engine::Terrace || !textbook)
}

/// The engine's version, which peers tell only of an open store.
fn version(job: &Job) -> Result<String> {
    let config =
        EngineConfig { filter: Some(FilterSpec(FilterPolicy::None)), ..job.config.clone() };
    let store = job.engine.open(&job.dir, &config, job.library.as_deref())?;
    let version = store.version();
    store.close()?;
    Ok(version)
}

/// `filters-blocked-10`.
fn row_name(spec: FilterSpec) -> String {
    format!("filters-{}", spec.to_string().replace(':', "-"))
}

/// Keys of one filter as the store cuts them.
fn keys_per_filter(policy: FilterPolicy) -> u64 {
    policy.largest_unit_keys(PARTITION_BYTES) as u64
}

struct FilterBench<'a> {
    job: &'a Job,
    observer: &'a Observer,
    version: &'a str,
    spec: FilterSpec,
}

/// The filters of all keys, as they were built.
struct Built {
    filters: Vec<TerraceFilter>,
    bytes: u64,
    build_time: Duration,
    model_fpr: f64,
    /// The stored keys of the filter that hot queries go to.
    hot_keys: Vec<u8>,
}

/// Time of one query, pass by pass.
struct Passes(Vec<f64>);

impl Passes {
    fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
    }
}

impl FilterBench<'_> {
    fn run(&self, mut kit: TerraceFilters) -> Result<()> {
        let name = row_name(self.spec);
        let facts = self.facts(kit.describe());
        self.observer.tell(Event::Options(format!("{name}: {}", facts.options)));
        let (window, start) = (Window::open()?, Instant::now());
        let keys = self.job.shape.keys;
        let probes = keys * PROBES_PER_KEY;
        self.observer.done.store(0, Ordering::Relaxed);
        self.observer.tell(Event::Begin { what: name.clone(), ops: keys + probes });
        let context = || format!("{name} of {}", self.job.engine);
        let built = self.build(&mut kit).with_context(context)?;
        let passed = self.count_passed(&kit, &built, probes)?;
        let fpr = passed as f64 / probes as f64;
        check_plausible(fpr, probes, built.model_fpr).with_context(context)?;

        let absent = self.keys(0, HOT_KEYS, KeySpace::absent)?;
        let (absent, stored) = (self.list(&absent), self.list(&built.hot_keys));
        let hot = &built.filters[built.filters.len() / 2];
        let misses = time_hot(absent, |key| kit.may_contain(hot, key));
        let hits = time_hot(stored, |key| kit.may_contain(hot, key));
        let hashing = time_hot(absent, |key| kit.hash(key) == 0);
        let cold = time_cold(&kit, &built, absent);
        let figures = FilterFigures {
            fpr,
            model_fpr: Some(built.model_fpr),
            probes,
            bits_per_key: built.bytes as f64 * 8.0 / keys as f64,
            keys_per_filter: Some(keys / built.filters.len() as u64),
            build_ns_per_key: Some(built.build_time.as_nanos() as f64 / keys as f64),
            query_hot_ns: Some(misses.median()),
            query_hot_positive_ns: Some(hits.median()),
            query_cold_ns: Some(cold.median()),
            hash_ns: Some(hashing.median()),
        };
        let usage = window.usage()?;
        let outcome = hot_outcome(&misses)?;
        let state = StoreState {
            keys,
            metadata: MetadataBytes { filters: Some(built.bytes), indexes: None },
            ..StoreState::default()
        };
        let row = Row::new(&name, &facts, 1, &outcome, usage, state);
        self.observer.tell(Event::Row(Box::new(Row { filters: Some(figures), ..row })));
        if self.job.stats {
            self.observer.tell(Event::Stats(format!("{name} took {:.1?}", start.elapsed())));
        }
        Ok(())
    }

    /// Builds a filter for every piece of the keys and asks it for all of them.
    fn build(&self, kit: &mut TerraceFilters) -> Result<Built> {
        let keys = self.job.shape.keys;
        let pieces = keys.div_ceil(keys_per_filter(self.spec.0));
        let mut built = Built {
            filters: Vec::new(),
            bytes: 0,
            build_time: Duration::ZERO,
            model_fpr: 0.0,
            hot_keys: Vec::new(),
        };
        let mut model_sum = 0.0;
        for piece in 0..pieces {
            let (first, end) = (keys * piece / pieces, keys * (piece + 1) / pieces);
            let bytes = self.keys(first, end, KeySpace::present)?;
            let list = self.list(&bytes);
            let (filter, time) = kit.build(list);
            let denied = list.iter().filter(|key| !kit.may_contain(&filter, key)).count();
            ensure!(denied == 0, "wrong answer: a filter denies {denied} keys it was built from");
            built.bytes += kit.len(&filter) as u64;
            built.build_time += time;
            model_sum += kit.model_fpr(&filter);
            built.model_fpr = model_sum / (piece + 1) as f64;
            built.filters.push(filter);
            if piece == pieces / 2 {
                built.hot_keys = bytes;
            }
            self.observer.done.fetch_add(end - first, Ordering::Relaxed);
        }
        Ok(built)
    }

    /// Of this many absent keys, those that filters let through.
    fn count_passed(&self, kit: &TerraceFilters, built: &Built, probes: u64) -> Result<u64> {
        let pieces = built.filters.len() as u64;
        let mut passed = 0;
        for (piece, filter) in built.filters.iter().enumerate() {
            let piece = piece as u64;
            let (first, end) = (probes * piece / pieces, probes * (piece + 1) / pieces);
            let bytes = self.keys(first, end, KeySpace::absent)?;
            let keys = self.list(&bytes);
            passed += keys.iter().filter(|key| kit.may_contain(filter, key)).count() as u64;
            self.observer.done.fetch_add(end - first, Ordering::Relaxed);
        }
        Ok(passed)
    }

    /// The keys of items `first..end`, one after another.
    fn keys(&self, first: u64, end: u64, make: fn(KeySpace, u64, &mut Vec<u8>)) -> Result<Vec<u8>> {
        let size = self.job.shape.key_size;
        let space = KeySpace::new(size, self.job.shape.keys * PROBES_PER_KEY)?;
        let mut bytes = Vec::with_capacity((end - first) as usize * size);
        let mut key = Vec::new();
        for item in first..end {
            make(space, item, &mut key);
            bytes.extend_from_slice(&key);
        }
        Ok(bytes)
    }

    fn list<'b>(&self, bytes: &'b [u8]) -> Keys<'b> {
        Keys { bytes, key_size: self.job.shape.key_size }
    }

    fn facts(&self, options: String) -> Facts {
        self.job.facts(options, self.version.to_owned())
    }
}

/// A rate that is far from the engine's own model says that something else than its filter was
/// asked. Ten times is far enough for the roughest model; few false positives say nothing.
fn check_plausible(fpr: f64, probes: u64, model: f64) -> Result<()> {
    let noise = 20.0 / probes as f64;
    ensure!(
        fpr <= model * 10.0 + noise && fpr >= model / 10.0 - noise,
        "a false positive rate of {fpr} does not fit a filter that should have {model}"
    );
    Ok(())
}

/// Asks for all keys in turn, again and again.
fn time_hot(keys: Keys<'_>, mut ask: impl FnMut(&[u8]) -> bool) -> Passes {
    let mut passes = Vec::new();
    let mut spent = Duration::ZERO;
    for pass in 0.. {
        let start = Instant::now();
        let passed = keys.iter().filter(|key| ask(key)).count();
        black_box(passed);
        let time = start.elapsed();
        if pass >= WARM_UP_PASSES {
            passes.push(time.as_nanos() as f64 / keys.count().max(1) as f64);
            spent += time;
        }
        if spent >= HOT_TIME {
            break;
        }
    }
    Passes(passes)
}

/// Asks copies of the filters that no cache holds, one query each in random order.
fn time_cold(kit: &TerraceFilters, built: &Built, keys: Keys<'_>) -> Passes {
    let per_round: usize = built.filters.iter().map(|filter| kit.len(filter)).sum();
    let wanted = (COLD_BYTES * built.filters.len()).div_ceil(per_round.max(1));
    let originals = built.filters.iter().cycle().take(wanted);
    let copies: Vec<TerraceFilter> = originals.map(|filter| kit.copy(filter)).collect();
    let keys: Vec<&[u8]> = keys.iter().collect();
    let mut passes = Vec::new();
    for pass in 0..COLD_PASSES {
        let order = Permutation::new(copies.len() as u64, pass + 1);
        let order: Vec<u32> = (0..copies.len() as u64).map(|i| order.apply(i) as u32).collect();
        let start = Instant::now();
        let mut passed = 0u64;
        for (turn, at) in order.iter().enumerate() {
            // Another key than the last time this filter was asked: other lines of it.
            let key = keys[(turn + pass as usize * 97) % keys.len()];
            passed += u64::from(kit.may_contain(&copies[*at as usize], key));
        }
        black_box(passed);
        passes.push(start.elapsed().as_nanos() as f64 / copies.len() as f64);
    }
    Passes(passes)
}

/// Hot queries as a stretch of operations; a pass is one timed operation.
fn hot_outcome(misses: &Passes) -> Result<Outcome> {
    let mut latencies: Histogram<u64> = phase::histogram()?;
    for ns in &misses.0 {
        latencies.saturating_record(ns.round().max(1.0) as u64);
    }
    let ops = HOT_KEYS * misses.0.len() as u64;
    let seconds = misses.median() * ops as f64 / 1e9;
    Ok(Outcome { ops, seconds, latencies, tally: Tally::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_five_sizes_and_peers_have_theirs() {
        let all = all_sizes().unwrap();
        let names: Vec<String> = all.iter().map(|spec| row_name(*spec)).collect();
        assert_eq!(names.len(), 20);
        for name in
            ["filters-bloom-4", "filters-blocked-10", "filters-paired-23.4", "filters-ribbon-23"]
        {
            assert!(names.iter().any(|known| known == name), "{name} is not in {names:?}");
        }
        let count = |engine| all.iter().filter(|spec| stands_for_own_kind(engine, **spec)).count();
        assert_eq!(
            (count(Engine::Terrace), count(Engine::Rocksdb), count(Engine::Speedb)),
            (20, 10, 15)
        );
    }

    #[test]
    fn partitions_have_the_stores_size() {
        let keys = |text: &str| keys_per_filter(text.parse().unwrap());
        assert_eq!((keys("blocked:10"), keys("bloom:4x6")), (3276, 8192));
        assert!((15_500..16_384).contains(&keys("ribbon:10")));
    }

    #[test]
    fn implausible_rates_are_refused() {
        assert!(check_plausible(0.011, 1_000_000, 0.01).is_ok());
        assert!(check_plausible(0.2, 1_000_000, 0.01).is_err());
        assert!(check_plausible(0.0, 1_000_000, 0.01).is_err());
        assert!(check_plausible(0.0, 1_000_000, 1e-7).is_ok());
    }
}
