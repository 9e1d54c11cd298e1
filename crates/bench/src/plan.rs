//! From the command line to jobs: everything is checked here, before anything is measured.

use crate::args::BenchArgs;
use crate::distribution::Distribution;
use crate::engine::Engine;
use crate::filter::FilterSpec;
use crate::job::{Job, Limit, Settings, Shape};
use crate::keys::KeySpace;
use crate::report::plot;
use crate::store::{EngineConfig, FilterMemory, MetadataPlace};
use crate::usage;
use crate::workload::elastic::{self, Variant};
use crate::workload::{StoreKind, TinyCache, Workload, find_packages, tiny_cache_defaults};
use anyhow::{Context, Result, bail, ensure};
use settings::{parse_bytes, set_engine, set_workload};
use std::path::{Path, PathBuf};

mod settings;

const DEFAULT_FILTER: &str = "blocked:10";
const DEFAULT_DIR: &str = "/var/tmp";
/// Memtables get a quarter of the memory, up to this much.
const MAX_WRITE_BYTES: usize = 256 << 20;
/// A memtable gets a quarter of that, up to this much.
const MAX_MEMTABLE_BYTES: usize = 64 << 20;
/// The least `--memory`.
const MIN_MEMORY_BYTES: usize = 4 << 20;
/// The least default memory, and the step it grows in.
const MEMORY_STEP_BYTES: u64 = 256 << 20;
const MAX_THREADS: usize = 256;
const MAX_REPEATS: u32 = 1000;

/// What to run, checked.
#[derive(Debug)]
pub struct Plan {
    /// Where stores are made.
    pub dir: PathBuf,
    /// Jobs in order: repeat by repeat, store by store, engine by engine. Their directories are
    /// filled in by the driver.
    pub jobs: Vec<Job>,
    /// Where to write JSON.
    pub json: Option<PathBuf>,
    /// Where to draw.
    pub plot: Option<PathBuf>,
    /// What the user should know before.
    pub notes: Vec<String>,
}

impl Plan {
    /// Checks the arguments and everything they name.
    pub fn new(args: &BenchArgs) -> Result<Self> {
        let engines = parse_engines(args)?;
        let workloads = parse_workloads(args)?;
        let request = Request::new(args)?;
        let mut notes = Vec::new();
        let mut templates = Vec::new();
        for (store, workloads) in stores_for(&workloads) {
            for (engine, library) in &engines {
                if let Err(note) = store.suits(*engine) {
                    if !note.is_empty() && !notes.contains(&note) {
                        notes.push(note);
                    }
                    continue;
                }
                if !request.wants(store, *engine) {
                    continue;
                }
                templates.push(request.job(args, *engine, library.clone(), store, &workloads)?);
            }
        }
        ensure!(!templates.is_empty(), "nothing is left to run: {}", notes.join("; "));
        let dir = args.dir.clone().unwrap_or_else(|| PathBuf::from(DEFAULT_DIR));
        check_dir(&dir, &templates)?;
        for path in args.json.iter().chain(&args.plot) {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            ensure!(
                parent.is_none_or(Path::is_dir),
                "{}: there is no such directory to write into",
                path.display()
            );
        }
        if let Some(path) = &args.plot {
            plot::checked_extension(path)?;
        }
        let jobs = (1..=args.repeat)
            .flat_map(|repeat| templates.iter().map(move |job| Job { repeat, ..job.clone() }))
            .collect();
        Ok(Self { dir, jobs, json: args.json.clone(), plot: args.plot.clone(), notes })
    }
}

fn parse_engines(args: &BenchArgs) -> Result<Vec<(Engine, Option<PathBuf>)>> {
    let mut engines: Vec<(Engine, Option<PathBuf>)> = Vec::new();
    for name in &args.engine {
        let engine: Engine = name.trim().parse()?;
        ensure!(engines.iter().all(|(known, _)| *known != engine), "--engine names {engine} twice");
        engines.push((engine, engine.library(args.rocksdb_lib.as_deref())?));
    }
    let without: Vec<&str> =
        engines.iter().map(|(e, _)| *e).filter(|e| !e.has_direct_io()).map(Engine::name).collect();
    ensure!(
        !args.direct_io || without.is_empty(),
        "--direct-io: {} cannot bypass the page cache; leave it out of --engine",
        without.join(" and ")
    );
    Ok(engines)
}

fn parse_workloads(args: &BenchArgs) -> Result<Vec<Workload>> {
    let mut workloads: Vec<Workload> = Vec::new();
    for name in &args.workloads {
        let workload = name.parse()?;
        ensure!(!workloads.contains(&workload), "the workload {workload} is named twice");
        workloads.push(workload);
    }
    if workloads.contains(&Workload::Packages) {
        find_packages()?;
    }
    Ok(workloads)
}

/// Which stores to make and what to run on each. Workloads share a store where they can; a
/// second fill gets its own, and reads run on the store of the last one.
fn stores_for(asked: &[Workload]) -> Vec<(StoreKind, Vec<Workload>)> {
    let mut stores: Vec<(StoreKind, Vec<Workload>)> = Vec::new();
    // In the order in which they run, whatever the order on the command line.
    for workload in Workload::ALL.into_iter().filter(|workload| asked.contains(workload)) {
        for kind in workload.stores() {
            let shared = stores.iter_mut().rev().find(|(known, _)| known == kind);
            match shared {
                Some((_, workloads)) if !workload.is_fill() => workloads.push(workload),
                _ => stores.push((*kind, vec![workload])),
            }
        }
    }
    stores
}

/// What the command line asks of every job alike.
struct Request {
    settings: Settings,
    filter: Option<FilterSpec>,
    /// Variants of `elastic`; all if there are none.
    variants: Vec<Variant>,
    distribution: Option<Distribution>,
    memory_bytes: Option<usize>,
    sets: Vec<(String, String)>,
    machine: String,
    commit: String,
}

impl Request {
    fn new(args: &BenchArgs) -> Result<Self> {
        let bounded = |name, value: Option<f64>, least: f64, most: f64| match value {
            Some(value) if !(least..=most).contains(&value) => {
                bail!("--{name} is {value}; it must be {least} to {most}")
            }
            _ => Ok(()),
        };
        bounded("missing", args.missing, 0.0, 1.0)?;
        bounded("duration", args.duration, 0.01, 86400.0)?;
        bounded("threads", Some(args.threads as f64), 1.0, MAX_THREADS as f64)?;
        bounded("repeat", Some(f64::from(args.repeat)), 1.0, f64::from(MAX_REPEATS))?;
        bounded("ops", args.ops.map(|n| n as f64), 1.0, 1e15)?;
        bounded("keys", args.keys.map(|n| n as f64), 1.0, 1e12)?;
        bounded("value-size", args.value_size.map(|n| n as f64), 0.0, (1u64 << 30) as f64)?;
        let memory_bytes = args.memory.as_deref().map(parse_bytes).transpose()?;
        ensure!(
            memory_bytes.is_none_or(|bytes| bytes >= MIN_MEMORY_BYTES),
            "--memory must be at least 4MiB"
        );
        let mut settings = Settings::default();
        let mut variants = Vec::new();
        let mut sets = Vec::new();
        for set in &args.set {
            let (name, value) =
                set.split_once('=').with_context(|| format!("--set {set}: want KEY=VALUE"))?;
            if name == "variants" {
                variants = value.split(',').map(str::parse).collect::<Result<_>>()?;
            } else if !set_workload(&mut settings, name, value)? {
                sets.push((name.to_owned(), value.to_owned()));
            }
        }
        Ok(Self {
            settings,
            filter: args.filter.as_deref().map(str::parse).transpose()?,
            variants,
            distribution: args.distribution.as_deref().map(str::parse).transpose()?,
            memory_bytes,
            sets,
            machine: usage::machine(),
            commit: commit(),
        })
    }

    /// Whether `--set variants=` leaves this store in; for peers it always does.
    fn wants(&self, store: StoreKind, engine: Engine) -> bool {
        match store {
            StoreKind::Elastic(variant) if engine == Engine::Terrace => {
                self.variants.is_empty() || self.variants.contains(&variant)
            }
            _ => true,
        }
    }

    fn job(
        &self,
        args: &BenchArgs,
        engine: Engine,
        library: Option<PathBuf>,
        store: StoreKind,
        workloads: &[Workload],
    ) -> Result<Job> {
        let (keys, value_size) = store.default_size();
        let shape = Shape {
            keys: args.keys.unwrap_or(keys),
            key_size: args.key_size,
            value_size: args.value_size.unwrap_or(value_size),
        };
        KeySpace::new(shape.key_size, shape.keys)?;
        let config = self.config(args, engine, store, shape)?;
        if let Some(spec) = config.filter {
            ensure!(
                engine.has_filter(spec),
                "--filter {spec}: {engine} has no such filter; leave it out of --engine"
            );
        }
        Ok(Job {
            engine,
            library,
            repeat: 0,
            dir: PathBuf::new(),
            config,
            store,
            workloads: workloads.to_vec(),
            shape,
            distribution: self.distribution.clone(),
            missing: args.missing,
            threads: args.threads,
            limit: Limit { ops: args.ops, duration_s: args.duration },
            settings: self.settings,
            machine: self.machine.clone(),
            commit: self.commit.clone(),
            stats: args.stats,
        })
    }

    fn config(
        &self,
        args: &BenchArgs,
        engine: Engine,
        store: StoreKind,
        shape: Shape,
    ) -> Result<EngineConfig> {
        let memory = self.memory_bytes.unwrap_or_else(|| default_memory(shape.raw_bytes()));
        let write_bytes = (memory / 4).min(MAX_WRITE_BYTES);
        let mut config = EngineConfig {
            cache_bytes: memory - write_bytes,
            write_bytes,
            memtable_bytes: (write_bytes / 4).min(MAX_MEMTABLE_BYTES),
            filter: Some(self.filter.map_or_else(|| DEFAULT_FILTER.parse(), Ok)?),
            filter_memory: FilterMemory::AsMetadata,
            fill_cache: true,
            statistics: false,
            compression: crate::store::Compression::None,
            sync: crate::store::Durability::None,
            direct_io: args.direct_io,
            background_jobs: 2,
            subcompactions: 1,
            block_size: 4096,
            metadata: MetadataPlace::Fastest,
            extra: Vec::new(),
        };
        match store {
            StoreKind::TinyCache(tiny) => self.configure_tiny_cache(&mut config, tiny),
            StoreKind::Elastic(variant) => {
                let bits = self.settings.average_bits;
                elastic::configure(&mut config, engine == Engine::Terrace, variant, shape, bits)?;
            }
            // The sizes that the workload has of its own, unless one was asked for.
            StoreKind::Filters => config.filter = self.filter,
            StoreKind::Basic | StoreKind::Ycsb | StoreKind::Packages => {}
        }
        for (name, value) in &self.sets {
            set_engine(&mut config, engine, name, value)?;
        }
        Ok(config)
    }

    fn configure_tiny_cache(&self, config: &mut EngineConfig, tiny: TinyCache) {
        let (cache, write, memtable) = tiny_cache_defaults();
        config.cache_bytes = self.memory_bytes.unwrap_or(cache);
        (config.write_bytes, config.memtable_bytes) = (write, memtable);
        config.direct_io = true;
        config.metadata = MetadataPlace::InCache { partitioned: tiny != TinyCache::Whole };
        if tiny == TinyCache::ElasticFilters {
            config.filter = self.filter;
            config.filter_memory = FilterMemory::Default;
        }
    }
}

/// Twice the data, so that all of it is cached, but at most half of the machine's memory.
fn default_memory(raw_bytes: u64) -> usize {
    let wanted = raw_bytes.saturating_mul(2).max(1).next_multiple_of(MEMORY_STEP_BYTES);
    let half = (usage::memory_bytes() / 2).max(MEMORY_STEP_BYTES);
    usize::try_from(wanted.min(half)).unwrap_or(usize::MAX)
}

/// The directory must exist, with room for the largest store being compacted.
fn check_dir(dir: &Path, jobs: &[Job]) -> Result<()> {
    ensure!(dir.is_dir(), "--dir {}: there is no such directory", dir.display());
    let raw = jobs
        .iter()
        .filter(|job| job.store != StoreKind::Packages && job.store.is_on_disk())
        .map(|job| job.shape.raw_bytes())
        .max()
        .unwrap_or(0);
    let (need, free) = (raw.saturating_mul(5) / 2, usage::free_bytes(dir)?);
    ensure!(
        free >= need,
        "--dir {} has {} free; the largest store may need {}: use fewer --keys or another --dir",
        dir.display(),
        crate::report::table::bytes(free),
        crate::report::table::bytes(need)
    );
    Ok(())
}

/// The commit of the sources this was built from, as far as git tells.
fn commit() -> String {
    let git = |args: &[&str]| {
        let output = std::process::Command::new("git")
            .args(["-C", env!("CARGO_MANIFEST_DIR")])
            .args(args)
            .output();
        output
            .ok()
            .filter(|out| out.status.success())
            .map(|out| String::from_utf8_lossy(&out.stdout).trim().to_owned())
    };
    match git(&["rev-parse", "--short=12", "HEAD"]) {
        None => "unknown".to_owned(),
        Some(hash) => match git(&["status", "--porcelain", "--untracked-files=no"]) {
            Some(changes) if changes.is_empty() => hash,
            _ => format!("{hash}-dirty"),
        },
    }
}

#[cfg(test)]
mod tests;
