//! `--set variants=` and `--set keysets=`: which stores, and which of their variants, are measured.
//!
//! Variants of `elastic` have names of their own, which are Terrace's. Those of `large-values`, `skew` and
//! `learned` are named by engine and variant: `terrace`, `terrace-off`, `rocksdb-blob`; the ones of an
//! engine of which none is named are all measured.

use crate::catalog::key_set::KeySet;
use crate::catalog::learned;
use crate::catalog::{StoreKind, Workload, elastic};
use crate::engine::Engine;
use anyhow::{Result, bail};

/// What is wanted.
#[derive(Debug, Default)]
pub struct Choice {
    /// Variants of `elastic`; all if there are none.
    elastic: Vec<elastic::Variant>,
    /// Variants of the others, by engine and name.
    named: Vec<(Engine, &'static str)>,
    /// Key sets of `learned`; all if there are none.
    pub key_sets: Vec<KeySet>,
}

impl Choice {
    /// Takes over a list of variants, each of which some of `workloads` must have.
    pub fn set_variants(&mut self, list: &str, workloads: &[Workload]) -> Result<()> {
        let has_elastic = workloads.iter().any(|workload| {
            workload.stores().iter().any(|store| matches!(store, StoreKind::Elastic(_)))
        });
        let known = named_variants(workloads);
        for name in list.split(',') {
            let full = |(engine, variant): &(Engine, &'static str)| full_name(*engine, variant);
            if let Some(variant) = known.iter().find(|variant| full(variant) == name) {
                self.named.push(*variant);
                continue;
            }
            match name.parse() {
                Ok(variant) if has_elastic => self.elastic.push(variant),
                Err(error) if has_elastic && known.is_empty() => return Err(error),
                _ => {
                    let names: Vec<String> = known.iter().map(full).collect();
                    bail!(
                        "--set variants: `{name}` is no variant of these workloads; known are {}",
                        names.join(", ")
                    )
                }
            }
        }
        Ok(())
    }

    /// Whether this store of this engine is to be measured. `elastic`'s variants of peers always
    /// are.
    pub fn wants(&self, store: StoreKind, engine: Engine) -> bool {
        match store {
            StoreKind::Elastic(variant) if engine == Engine::Terrace => {
                self.elastic.is_empty() || self.elastic.contains(&variant)
            }
            StoreKind::LargeValues(variant) => self.allows(engine, variant.name()),
            StoreKind::Skew(variant) => self.allows(engine, variant.name()),
            StoreKind::TinyCache(tiny) => self.allows(engine, tiny.name()),
            StoreKind::MixedPhases(variant) => self.allows(engine, variant.name()),
            StoreKind::Learned(set) => self.key_sets.is_empty() || self.key_sets.contains(&set),
            _ => true,
        }
    }

    /// The variants of `learned` to measure of `engine`, `interpolation` telling whether its library
    /// has that. All if none of the named ones can be.
    pub fn learned(&self, engine: Engine, interpolation: bool) -> Vec<learned::Variant> {
        let all = learned::Variant::of(engine, interpolation);
        let wanted = all.iter().copied().filter(|variant| self.allows(engine, variant.name()));
        let wanted: Vec<learned::Variant> = wanted.collect();
        if wanted.is_empty() { all } else { wanted }
    }

    fn allows(&self, engine: Engine, variant: &str) -> bool {
        let mut of_engine = self.named.iter().filter(|(named, _)| *named == engine).peekable();
        of_engine.peek().is_none() || of_engine.any(|(_, named)| *named == variant)
    }
}

/// Every engine's variants of `large-values`, `skew` and `learned`, as far as they are among `workloads`.
fn named_variants(workloads: &[Workload]) -> Vec<(Engine, &'static str)> {
    let mut known = Vec::new();
    let mut add = |variant| {
        if !known.contains(&variant) {
            known.push(variant);
        }
    };
    for engine in Engine::ALL {
        for store in workloads.iter().flat_map(|workload| workload.stores()) {
            match store {
                StoreKind::LargeValues(variant) if variant.suits(engine) => {
                    add((engine, variant.name()));
                }
                StoreKind::Skew(variant) if variant.suits(engine) => {
                    add((engine, variant.name()));
                }
                StoreKind::TinyCache(tiny) if tiny.suits(engine) => add((engine, tiny.name())),
                StoreKind::MixedPhases(variant) if engine == Engine::Terrace => {
                    add((engine, variant.name()));
                }
                StoreKind::Learned(_) => {
                    let interpolation = matches!(engine, Engine::Rocksdb | Engine::Speedb);
                    let all = learned::Variant::of(engine, interpolation);
                    all.into_iter().for_each(|variant| add((engine, variant.name())));
                }
                _ => {}
            }
        }
    }
    known
}

fn full_name(engine: Engine, variant: &str) -> String {
    if variant.is_empty() { engine.to_string() } else { format!("{engine}-{variant}") }
}
