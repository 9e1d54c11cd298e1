//! One job: one engine, one repeat, one fresh store and the workloads that run on it. The driver
//! makes jobs; a process of its own carries each out and tells what happened in [`Event`]s.

use crate::catalog::elastic::AVERAGE_BITS;
use crate::catalog::skew::exponents::Exponents;
use crate::catalog::skew::layout::Layouts;
use crate::catalog::{StoreKind, Workload};
use crate::catalog::{large_values, learned, skew};
use crate::engine::Engine;
use crate::report::{Facts, Row};
use crate::store::EngineConfig;
use crate::store_size::StoreSize;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_workload::distribution::Distribution;

/// About a millisecond's: what disturbs a slice is no part of most others.
const SLICE_PUTS: u64 = 500;

/// Everything a process needs to know to measure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Who is measured.
    pub engine: Engine,
    /// The engine's shared library, if it has one.
    pub library: Option<PathBuf>,
    /// Which repeat, from 1.
    pub repeat: u32,
    /// How many repeats there are to be.
    pub repeats: u32,
    /// An empty directory for the store.
    pub dir: PathBuf,
    /// The engine's settings while the workloads run.
    pub config: EngineConfig,
    /// Those of the two stores of `paired`; none for other workloads.
    pub sides: Vec<EngineConfig>,
    /// Which store to make.
    pub store: StoreKind,
    /// What to run on it, in this order.
    pub workloads: Vec<Workload>,
    /// What `learned` opens the store as, in turns; of no meaning to other workloads.
    pub variants: Vec<learned::Variant>,
    /// Its size.
    pub shape: StoreSize,
    /// What `--distribution` said, if anything.
    pub distribution: Option<Distribution>,
    /// What `--missing` said, if anything.
    pub missing: Option<f64>,
    /// Threads that run operations.
    pub threads: usize,
    /// What `--ops` and `--duration` said.
    pub limit: Limit,
    /// The other settings of the workloads.
    pub settings: Settings,
    /// For the report.
    pub machine: String,
    /// For the report.
    pub commit: String,
    /// Tell the engine's own statistics after the workloads.
    pub stats: bool,
}

impl Job {
    /// What the rows of its store have alike, once the engine has told its options and version.
    pub fn facts(&self, options: String, version: String) -> Facts {
        Facts {
            engine: self.engine,
            repeat: self.repeat,
            repeats: self.repeats,
            variant: self.store.variant().to_owned(),
            merged: false,
            options,
            version,
            library: self.library.as_deref().and_then(Path::file_name).map(|name| {
                // Where it lies is of no meaning elsewhere.
                name.to_string_lossy().into_owned()
            }),
            machine: self.machine.clone(),
            commit: self.commit.clone(),
        }
    }
}

/// When a workload that is not a fill stops: at the first bound that is set, else by its default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// After this many operations.
    pub ops: Option<u64>,
    /// After this many seconds.
    pub duration_s: Option<f64>,
}

/// `--set name=value` of the workloads themselves.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Seeds keys, values and choices.
    pub seed: u64,
    /// Have the engine merge everything before reads.
    pub merged: bool,
    /// `next` calls after a seek of `seekrandom`.
    pub seek_nexts: u64,
    /// Filter bits per key that `elastic` keeps in memory on average.
    pub average_bits: f64,
    /// Lookups per `multi_get` of `readrandom` and `readmissing`; 1 uses `get`.
    pub multi_get: usize,
    /// Bytes per second that the writer of `readwhilewriting` writes; 0 is unbounded.
    pub write_rate: u64,
    /// Load the store of `tiny-cache` in random instead of key order.
    pub tiny_cache_random_load: bool,
    /// How many times `large-values` overwrites as many keys as there are.
    pub passes: f64,
    /// Entries of a scan of `large-values`.
    pub scan_length: u64,
    /// Milliseconds between two looks at the size of the directory of `large-values`.
    pub sample_ms: u64,
    /// Turns that each variant of `learned` gets.
    pub rounds: u64,
    /// Seconds of lookups after which `learned` no longer waits for models of whole levels.
    pub level_wait_s: f64,
    /// The exponents that `skew` goes through.
    pub zipf: Exponents,
    /// Where `cluster-skew` has keys.
    pub layouts: Layouts,
    /// The share of the writes after which its plans are carried out.
    pub plan_after: f64,
    /// Its plans are made of exact counts.
    pub exact_top: bool,
    /// Bytes per second that clients write in `skew` and `cluster-skew`; 0 is unbounded.
    pub rate: u64,
    /// Puts of a slice of `paired`.
    pub slice_puts: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            seed: 1,
            merged: false,
            seek_nexts: 10,
            average_bits: AVERAGE_BITS,
            multi_get: 1,
            write_rate: 2 << 20,
            tiny_cache_random_load: false,
            passes: large_values::PASSES,
            scan_length: large_values::SCAN_LENGTH,
            sample_ms: large_values::SAMPLE_MS,
            rounds: learned::ROUNDS,
            level_wait_s: learned::LEVEL_WAIT_S,
            zipf: Exponents::default(),
            layouts: Layouts::default(),
            plan_after: skew::PLAN_AFTER,
            exact_top: false,
            rate: 0,
            slice_puts: SLICE_PUTS,
        }
    }
}

/// What the process that carries out a job tells, one JSON object a line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// The engine is open with these options.
    Options(String),
    /// Something the user should know.
    Note(String),
    /// A stretch of this many operations begins.
    Begin {
        /// What it is.
        what: String,
        /// How long it may get.
        ops: u64,
    },
    /// This many of them are done.
    Progress(u64),
    /// A workload is measured.
    Row(Box<Row>),
    /// The engine's own statistics.
    Stats(String),
    /// The job ended early.
    Failed(String),
    /// All workloads ran; this many rows were told.
    Done(u64),
}

/// Takes events from a job.
pub struct Observer {
    sink: Box<dyn Fn(Event) + Send + Sync>,
    /// Operations done of the stretch under way.
    pub done: AtomicU64,
    rows: AtomicU64,
}

impl Observer {
    /// An observer that hands events to `sink`.
    pub fn new(sink: impl Fn(Event) + Send + Sync + 'static) -> Self {
        Self { sink: Box::new(sink), done: AtomicU64::new(0), rows: AtomicU64::new(0) }
    }

    /// Tells one event.
    pub fn tell(&self, event: Event) {
        self.rows.fetch_add(u64::from(matches!(event, Event::Row(_))), Ordering::Relaxed);
        (self.sink)(event);
    }

    /// How many rows were told.
    pub fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }
}
