//! From the command line to jobs: everything is checked here, before anything is measured.

use crate::args::BenchArgs;
use crate::catalog::{StoreKind, Workload};
use crate::engine::Engine;
use crate::filter::FilterSpec;
use crate::job::{Job, Limit, Settings};
use crate::package_names::find_packages;
use crate::report::plot;
use crate::store_size::StoreSize;
use anyhow::{Context, Result, bail, ensure};
use choice::Choice;
use settings::{parse_bytes, set_workload};
use std::path::{Path, PathBuf};
use terrace_workload::distribution::Distribution;
use terrace_workload::keys::KeySpace;
use terrace_workload::usage;

mod choice;
mod config;
mod settings;

const DEFAULT_DIR: &str = "/var/tmp";
/// The least `--memory`.
const MIN_MEMORY_BYTES: usize = 4 << 20;
const MAX_THREADS: usize = 256;
const MAX_REPEATS: u32 = 1000;

/// What to run, checked.
#[derive(Debug)]
pub struct Plan {
    /// Where stores are made.
    pub dir: PathBuf,
    /// Jobs in order: repeat by repeat, store by store, engine by engine, another engine first in each repeat. Their
    /// directories are filled in by the driver.
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
        let request = Request::new(args, &workloads)?;
        let mut notes = Vec::new();
        let mut templates: Vec<Vec<Job>> = Vec::new();
        for (store, workloads) in stores_for(&workloads) {
            let mut jobs = Vec::new();
            for (engine, library) in &engines {
                if let Err(note) = store.suits(*engine) {
                    if !note.is_empty() && !notes.contains(&note) {
                        notes.push(note);
                    }
                    continue;
                }
                if !request.choice.wants(store, *engine) {
                    continue;
                }
                let job = request.job(args, *engine, library.clone(), store, &workloads)?;
                let remarks = store.remark(*engine).into_iter().chain(remark(&job));
                for remark in remarks {
                    if !notes.contains(&remark) {
                        notes.push(remark);
                    }
                }
                jobs.push(job);
            }
            templates.push(jobs);
        }
        ensure!(
            templates.iter().any(|jobs| !jobs.is_empty()),
            "nothing is left to run: {}",
            notes.join("; ")
        );
        let dir = args.dir.clone().unwrap_or_else(|| PathBuf::from(DEFAULT_DIR));
        check_dir(&dir, templates.iter().flatten())?;
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
        let jobs = in_turns(&templates, args.repeat);
        Ok(Self { dir, jobs, json: args.json.clone(), plot: args.plot.clone(), notes })
    }
}

/// The jobs of each store, again and again. Another one is first in each repeat: what changes on the machine with
/// time, and what one engine leaves behind for the next, hits all of them alike.
fn in_turns(templates: &[Vec<Job>], repeats: u32) -> Vec<Job> {
    let mut jobs = Vec::new();
    for repeat in 1..=repeats {
        for of_store in templates {
            let first = (repeat as usize - 1) % of_store.len().max(1);
            let turn = of_store.iter().cycle().skip(first).take(of_store.len());
            jobs.extend(turn.map(|job| Job { repeat, repeats, ..job.clone() }));
        }
    }
    jobs
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
    ensure!(
        !workloads.contains(&Workload::Paired) || args.threads == 1,
        "--threads: paired puts with one thread, whose processor time it counts"
    );
    let fixed = workloads.iter().find(|it| matches!(it, Workload::Skew | Workload::ClusterSkew));
    if let (Some(workload), Some(_)) = (fixed, args.duration) {
        bail!(
            "--duration: {workload} is bounded by the number of its puts alone; use --ops or --keys"
        );
    }
    if workloads.contains(&Workload::Packages) || workloads.contains(&Workload::Learned) {
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
    choice: Choice,
    /// Of `large-values`, where `--value-size` says nothing.
    value_bytes: Option<usize>,
    distribution: Option<Distribution>,
    memory_bytes: Option<usize>,
    sets: Vec<(String, String)>,
    /// Those of one side of `paired` alone.
    side_sets: [Vec<(String, String)>; 2],
    machine: String,
    commit: String,
}

impl Request {
    fn new(args: &BenchArgs, workloads: &[Workload]) -> Result<Self> {
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
        let mut choice = Choice::default();
        let mut value_bytes = None;
        let mut sets = Vec::new();
        let mut side_sets: [Vec<(String, String)>; 2] = Default::default();
        for set in &args.set {
            let (name, value) =
                set.split_once('=').with_context(|| format!("--set {set}: want KEY=VALUE"))?;
            if name == "variants" {
                choice.set_variants(value, workloads)?;
            } else if name == "keysets" {
                choice.key_sets = value.split(',').map(str::parse).collect::<Result<_>>()?;
            } else if name == "value_bytes" {
                value_bytes = Some(parse_bytes(value)?);
            } else if let Some((side, name)) = of_side(name) {
                ensure!(
                    workloads == [Workload::Paired],
                    "--set {set}: only paired has sides, and it runs alone with them"
                );
                side_sets[side].push((name.to_owned(), value.to_owned()));
            } else if !set_workload(&mut settings, name, value)? {
                sets.push((name.to_owned(), value.to_owned()));
            }
        }
        Ok(Self {
            settings,
            filter: args.filter.as_deref().map(str::parse).transpose()?,
            choice,
            value_bytes,
            distribution: args.distribution.as_deref().map(str::parse).transpose()?,
            memory_bytes,
            sets,
            side_sets,
            machine: usage::machine(),
            commit: commit_text(BUILT_FROM, checked_out().as_deref()),
        })
    }

    fn job(
        &self,
        args: &BenchArgs,
        engine: Engine,
        library: Option<PathBuf>,
        store: StoreKind,
        workloads: &[Workload],
    ) -> Result<Job> {
        let (keys, mut value_size) = store.default_size();
        if let (StoreKind::LargeValues(_), Some(bytes)) = (store, self.value_bytes) {
            value_size = bytes;
        }
        let shape = StoreSize {
            keys: args.keys.unwrap_or(keys),
            key_size: args.key_size.unwrap_or(store.default_key_size()),
            value_size: args.value_size.unwrap_or(value_size),
        };
        KeySpace::new(shape.key_size, shape.keys)?;
        ensure!(
            !self.settings.merged || store.is_read_as_loaded(),
            "--set merged: {} {}",
            workloads.first().map_or("", |workload| workload.name()),
            "has no reads of a store as a load left it; leave one of the two out"
        );
        let config = self.config(args, engine, store, shape)?;
        if let Some(spec) = config.filter {
            ensure!(
                engine.has_filter(spec),
                "--filter {spec}: {engine} has no such filter; leave it out of --engine"
            );
        }
        let sides = match store {
            StoreKind::Paired => self.sides(&config, engine)?,
            _ => Vec::new(),
        };
        let interpolation = engine.has_interpolation(library.as_deref());
        Ok(Job {
            engine,
            library,
            repeat: 0,
            repeats: 0,
            dir: PathBuf::new(),
            config,
            sides,
            store,
            workloads: workloads.to_vec(),
            variants: match store {
                StoreKind::Learned(_) => self.choice.learned(engine, interpolation),
                _ => Vec::new(),
            },
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
}

/// Which side a setting is of, and its name without that.
fn of_side(name: &str) -> Option<(usize, &str)> {
    let mut sides = ["a.", "b."].into_iter().enumerate();
    sides.find_map(|(side, prefix)| name.strip_prefix(prefix).map(|name| (side, name)))
}

/// What the user should know of a job beside what there is to know of its store.
fn remark(job: &Job) -> Option<String> {
    let peer = matches!(job.store, StoreKind::Learned(_)) && job.engine.tells_of_filters();
    let lacks =
        peer && job.library.is_some() && !job.engine.has_interpolation(job.library.as_deref());
    lacks.then(|| {
        format!(
            "{}: this library cannot search its index by interpolation (RocksDB 11.0 and later can): \
             learned measures its binary search alone",
            job.engine
        )
    })
}

/// Bytes that the files of a job may take at some moment: several times its data, by what is done with them.
fn needed_bytes(job: &Job) -> u64 {
    // Few, whatever their number is said to be.
    if job.store == StoreKind::Packages {
        return 0;
    }
    (job.shape.raw_bytes() as f64 * job.store.space_factor(job.settings.merged)) as u64
}

/// The directory must exist, with room for the largest store being compacted.
fn check_dir<'a>(dir: &Path, jobs: impl Iterator<Item = &'a Job>) -> Result<()> {
    ensure!(dir.is_dir(), "--dir {}: there is no such directory", dir.display());
    let (need, free) = (jobs.map(needed_bytes).max().unwrap_or(0), usage::free_bytes(dir)?);
    ensure!(
        free >= need,
        "--dir {} has {} free; the largest store may need {}: use fewer --keys or another --dir",
        dir.display(),
        crate::report::cells::bytes(free),
        crate::report::cells::bytes(need)
    );
    Ok(())
}

/// The commit of the sources that this is built from, `-dirty` if they differ from it; see `build.rs`.
const BUILT_FROM: &str = env!("TERRACE_BENCH_COMMIT");

/// The commit that is checked out where this was built, as far as git tells.
fn checked_out() -> Option<String> {
    let output = std::process::Command::new("git")
        .args(["-C", env!("CARGO_MANIFEST_DIR"), "rev-parse", "--short=12", "HEAD"])
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The commit that was built, and beside it the one that is checked out now, if it is another.
fn commit_text(built: &str, now: Option<&str>) -> String {
    let hash = built.trim_end_matches("-dirty");
    match now.filter(|now| *now != hash) {
        Some(now) => format!("{built} (checked out: {now})"),
        None => built.to_owned(),
    }
}

#[cfg(test)]
mod tests;
