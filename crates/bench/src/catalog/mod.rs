//! The names of workloads and of the stores they run on: which exist, how large they are, which
//! engines they suit.

pub mod budget_curve;
pub mod elastic;
pub mod key_set;
pub mod large_values;
pub mod learned;
pub mod mix;
pub mod mixed_phases;
pub mod skew;
pub mod tiny_cache;

use crate::engine::Engine;
use anyhow::{Result, bail};
use key_set::KeySet;
use mix::Mix;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use tiny_cache::TinyCache;

/// Bytes of a key.
const DEFAULT_KEY_BYTES: usize = 16;

/// A workload that can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[allow(
    missing_docs,
    reason = "the names are db_bench's and YCSB's; each family's file defines its own"
)]
pub enum Workload {
    Fillseq,
    Fillrandom,
    Readrandom,
    Readmissing,
    Seekrandom,
    Scan,
    Readwhilewriting,
    Overwrite,
    Deleterandom,
    Ycsb(Mix),
    TinyCache,
    BudgetCurve,
    Packages,
    Filters,
    Elastic,
    ElasticShift,
    LargeValues,
    Learned,
    Skew,
    ClusterSkew,
    MixedPhases,
    Bulkload,
    Ingest,
    Backup,
    Paired,
}

/// The stores workloads run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum StoreKind {
    /// db_bench's.
    Basic,
    /// YCSB's.
    Ycsb,
    /// A large store behind a tiny cache.
    TinyCache(TinyCache),
    /// The same, with more and more memory.
    BudgetCurve,
    /// Real names.
    Packages,
    /// Filters: alone, and in stores of peers.
    Filters,
    /// A large store with little memory for filters.
    Elastic(elastic::Variant),
    /// Values of pages behind a small cache.
    LargeValues(large_values::Variant),
    /// Small values in memory under keys of this kind.
    Learned(KeySet),
    /// Writes under Zipf's law into empty stores.
    Skew(skew::Variant),
    /// Traffic that changes, behind little memory.
    MixedPhases(mixed_phases::Variant),
    /// db_bench's, filled by the engine's bulk loader.
    BulkLoad,
    /// db_bench's, filled with files that were written outside it.
    Ingest,
    /// db_bench's, to be backed up.
    Backup,
    /// Two of db_bench's with different settings.
    Paired,
}

impl Workload {
    /// All, in the order in which they run on a store.
    pub const ALL: [Self; 30] = [
        Self::Fillseq,
        Self::Fillrandom,
        Self::Readrandom,
        Self::Readmissing,
        Self::Seekrandom,
        Self::Scan,
        Self::Readwhilewriting,
        Self::Overwrite,
        Self::Deleterandom,
        Self::Ycsb(Mix::C),
        Self::Ycsb(Mix::B),
        Self::Ycsb(Mix::A),
        Self::Ycsb(Mix::F),
        Self::Ycsb(Mix::D),
        Self::Ycsb(Mix::E),
        Self::TinyCache,
        Self::BudgetCurve,
        Self::Packages,
        Self::Filters,
        Self::Elastic,
        Self::ElasticShift,
        Self::LargeValues,
        Self::Learned,
        Self::Skew,
        Self::ClusterSkew,
        Self::MixedPhases,
        Self::Bulkload,
        Self::Ingest,
        Self::Backup,
        Self::Paired,
    ];

    /// The name used on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fillseq => "fillseq",
            Self::Fillrandom => "fillrandom",
            Self::Readrandom => "readrandom",
            Self::Readmissing => "readmissing",
            Self::Seekrandom => "seekrandom",
            Self::Scan => "scan",
            Self::Readwhilewriting => "readwhilewriting",
            Self::Overwrite => "overwrite",
            Self::Deleterandom => "deleterandom",
            Self::Ycsb(mix) => mix.name(),
            Self::TinyCache => "tiny-cache",
            Self::BudgetCurve => "budget-curve",
            Self::Packages => "packages",
            Self::Filters => "filters",
            Self::Elastic => "elastic",
            Self::ElasticShift => "elastic-shift",
            Self::LargeValues => "large-values",
            Self::Learned => "learned",
            Self::Skew => "skew",
            Self::ClusterSkew => "cluster-skew",
            Self::MixedPhases => "mixed-phases",
            Self::Bulkload => "bulkload",
            Self::Ingest => "ingest",
            Self::Backup => "backup",
            Self::Paired => "paired",
        }
    }

    /// The stores it needs.
    pub fn stores(self) -> &'static [StoreKind] {
        match self {
            Self::Ycsb(_) => &[StoreKind::Ycsb],
            Self::TinyCache => &[
                StoreKind::TinyCache(TinyCache::Partitioned),
                StoreKind::TinyCache(TinyCache::Whole),
                StoreKind::TinyCache(TinyCache::Default),
            ],
            Self::BudgetCurve => &[StoreKind::BudgetCurve],
            Self::Packages => &[StoreKind::Packages],
            Self::Filters => &[StoreKind::Filters],
            Self::Elastic | Self::ElasticShift => &[
                StoreKind::Elastic(elastic::Variant::Default),
                StoreKind::Elastic(elastic::Variant::BudgetBloom),
                StoreKind::Elastic(elastic::Variant::MqBloom),
                StoreKind::Elastic(elastic::Variant::UniformBloom),
                StoreKind::Elastic(elastic::Variant::UniformRibbon),
            ],
            Self::LargeValues => &[
                StoreKind::LargeValues(large_values::Variant::Default),
                StoreKind::LargeValues(large_values::Variant::Inline),
                StoreKind::LargeValues(large_values::Variant::Blob),
            ],
            Self::Learned => &[
                StoreKind::Learned(KeySet::Linear),
                StoreKind::Learned(KeySet::Segmented1),
                StoreKind::Learned(KeySet::Segmented10),
                StoreKind::Learned(KeySet::Normal),
                StoreKind::Learned(KeySet::Packages),
                StoreKind::Learned(KeySet::Ycsb),
            ],
            Self::Skew | Self::ClusterSkew => &[
                StoreKind::Skew(skew::Variant::Default),
                StoreKind::Skew(skew::Variant::Hot),
                StoreKind::Skew(skew::Variant::Tiered),
                StoreKind::Skew(skew::Variant::TieredHot),
                StoreKind::Skew(skew::Variant::Separated),
                StoreKind::Skew(skew::Variant::SeparatedHot),
            ],
            Self::MixedPhases => &[
                StoreKind::MixedPhases(mixed_phases::Variant::Auto),
                StoreKind::MixedPhases(mixed_phases::Variant::Fixed),
                StoreKind::MixedPhases(mixed_phases::Variant::FixedReads),
                StoreKind::MixedPhases(mixed_phases::Variant::FixedFilters),
                StoreKind::MixedPhases(mixed_phases::Variant::FixedWrites),
            ],
            Self::Bulkload => &[StoreKind::BulkLoad],
            Self::Ingest => &[StoreKind::Ingest],
            Self::Backup => &[StoreKind::Backup],
            Self::Paired => &[StoreKind::Paired],
            _ => &[StoreKind::Basic],
        }
    }

    /// True for the two that fill a fresh store.
    pub fn is_fill(self) -> bool {
        matches!(self, Self::Fillseq | Self::Fillrandom)
    }
}

impl StoreKind {
    /// Keys and value bytes unless the user says otherwise.
    pub fn default_size(self) -> (u64, usize) {
        match self {
            Self::Basic | Self::BulkLoad | Self::Ingest | Self::Backup => (10_000_000, 100),
            Self::Paired => (8_000_000, 100),
            Self::Ycsb => (2_000_000, 1000),
            Self::TinyCache(_) | Self::BudgetCurve => (13_000_000, 400),
            // Bounded by the lines of the file; values are summaries, a few dozen bytes.
            Self::Packages => (1_000_000, 100),
            Self::Filters => (10_000_000, 0),
            Self::Elastic(_) => (8_000_000, 1024),
            Self::LargeValues(_) => large_values::DEFAULT_SIZE,
            // Those of package names are bounded by the lines of their file.
            Self::Learned(_) => learned::DEFAULT_SIZE,
            Self::Skew(_) => skew::DEFAULT_SIZE,
            Self::MixedPhases(_) => mixed_phases::DEFAULT_SIZE,
        }
    }

    /// Bytes that its files may take at some moment, over the bytes of its keys and values. `merged` if everything is
    /// merged by hand, which writes all of it anew.
    pub fn space_factor(self, merged: bool) -> f64 {
        match self {
            // The store, its backup, and the store made of that.
            Self::Backup => 4.5,
            // Three overwrites of everything; 4.4 were seen. Two stores.
            Self::LargeValues(_) | Self::Paired => 5.0,
            // A second store is filled beside the first.
            Self::Learned(_) => 4.0,
            // Tiered, all runs are merged beside themselves.
            Self::Skew(_) => 4.0,
            // What the loader has sorted, beside the store.
            Self::BulkLoad | Self::Ingest => 3.0,
            _ if merged => 3.0,
            _ => 2.5,
        }
    }

    /// Whether the store is read as its load left it, so that `--set merged=true` has a meaning.
    pub fn is_read_as_loaded(self) -> bool {
        match self {
            Self::Basic | Self::Ycsb | Self::TinyCache(_) | Self::BudgetCurve => true,
            Self::Packages | Self::Learned(_) => true,
            // The shape is what is measured, everything is merged anyway, or nothing is only read.
            Self::Filters | Self::Elastic(_) | Self::LargeValues(_) | Self::MixedPhases(_) => false,
            Self::Skew(_) | Self::BulkLoad | Self::Ingest | Self::Backup | Self::Paired => false,
        }
    }

    /// Bytes of a key unless the user says otherwise.
    pub fn default_key_size(self) -> usize {
        match self {
            Self::Skew(_) => skew::KEY_BYTES,
            _ => DEFAULT_KEY_BYTES,
        }
    }

    /// Whether the engine has what this store is about, or why it is left out: an empty text where
    /// that goes without saying, since the store shows what only Terrace can be told.
    pub fn suits(self, engine: Engine) -> Result<(), String> {
        let name = match self {
            Self::TinyCache(tiny) if !tiny.suits(engine) => return Err(String::new()),
            Self::Elastic(variant)
                if variant != elastic::Variant::Default && engine != Engine::Terrace =>
            {
                return Err(String::new());
            }
            Self::LargeValues(variant) if !variant.suits(engine) => return Err(String::new()),
            Self::Skew(variant) if !variant.suits(engine) => {
                let is_first = variant == skew::Variant::Default;
                return Err(match is_first {
                    true => {
                        format!("{engine} is left out of skew: it does not count what it writes")
                    }
                    false => String::new(),
                });
            }
            Self::MixedPhases(_) if engine != Engine::Terrace => return Err(String::new()),
            Self::BulkLoad if !engine.has_bulk_loader() => {
                return Err(format!(
                    "{engine} is left out of bulkload: it has no loader that sorts"
                ));
            }
            Self::Ingest | Self::Backup if !engine.has_ingestion_and_backups() => {
                return Err(format!("{engine} is left out of ingest and backup: it has neither"));
            }
            Self::TinyCache(_) => "tiny-cache",
            Self::BudgetCurve => "budget-curve",
            Self::Elastic(_) => "elastic",
            Self::Filters if !engine.tells_of_filters() => {
                return Err(format!("{engine} is left out of filters: it does not count them"));
            }
            _ => return Ok(()),
        };
        match engine.has_direct_io() {
            true => Ok(()),
            false => Err(format!("{engine} is left out of {name}: it has no direct I/O")),
        }
    }

    /// What the user should know of this engine on this store, if anything.
    pub fn remark(self, engine: Engine) -> Option<String> {
        if engine == Engine::Lmdb {
            return Some(
                "lmdb: its cache is the page cache, which --memory does not bound".to_owned(),
            );
        }
        let without = matches!(self, Self::LargeValues(_)) && !engine.has_direct_io();
        without.then(|| {
            format!(
                "{engine} has no direct I/O: large-values measures its writes, not its reads, which \
                 would be the page cache's"
            )
        })
    }

    /// The `variant` column of its rows.
    pub fn variant(self) -> &'static str {
        match self {
            Self::TinyCache(tiny) => tiny.name(),
            Self::Elastic(variant) => variant.name(),
            Self::LargeValues(variant) => variant.name(),
            Self::Skew(variant) => variant.name(),
            Self::MixedPhases(variant) => variant.name(),
            _ => "",
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Workload {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        match Self::ALL.into_iter().find(|workload| workload.name() == text) {
            Some(workload) => Ok(workload),
            None => bail!(
                "there is no workload `{text}`; known are {}",
                Self::ALL.map(Self::name).join(" ")
            ),
        }
    }
}
