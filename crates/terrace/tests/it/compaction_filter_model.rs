//! Compaction filters under random workloads, options and power cuts. The filter is a function of the value, and
//! keeps what it has changed, so that whatever it has come to by now, what is there is one of two things.

use crate::camera::{Camera, Shot, dump};
use crate::harness::{
    Action, Generator, Mix, Run, Store, drawn_options, effort, over_seeds, scan, stopped_clock,
};
use crate::model::{Batch, Contents, History, MERGING, Op, State};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use terrace::vfs::SimVfs;
use terrace::{
    CompactionFilter, FilterContext, FilterDecision, FilterEntry, FilterError, FilterJob, Options,
    ReadOptions, Snapshot,
};
use terrace_base::ManualClock;
use terrace_base::rng::{Rng, SplitMix64};

/// What is before a value that was changed.
const CHANGED: &[u8] = b"changed ";

/// Removes one value in four, changes another.
struct ByHash {
    flushes: bool,
}

fn decide(value: &[u8]) -> FilterDecision {
    let hash = value.iter().fold(7u64, |hash, byte| {
        hash.wrapping_mul(0x100_0000_01b3).wrapping_add(u64::from(*byte)).rotate_left(5)
    });
    match hash % 4 {
        _ if value.starts_with(CHANGED) => FilterDecision::Keep,
        0 => FilterDecision::Remove,
        1 => FilterDecision::Change([CHANGED, value].concat()),
        _ => FilterDecision::Keep,
    }
}

impl CompactionFilter for ByHash {
    fn name(&self) -> &str {
        "by hash"
    }

    fn filter(
        &self,
        _: &FilterContext,
        entry: &FilterEntry<'_>,
    ) -> Result<FilterDecision, FilterError> {
        Ok(decide(entry.value()?))
    }

    fn applies_to(&self, job: &FilterContext) -> bool {
        self.flushes || job.job == FilterJob::Compaction
    }
}

fn decided(value: Vec<u8>) -> Option<Vec<u8>> {
    match decide(&value) {
        FilterDecision::Keep => Some(value),
        FilterDecision::Remove => None,
        FilterDecision::Change(value) => Some(value),
    }
}

/// What is there when the filter has come to every entry.
fn all_decided(contents: &Contents) -> Contents {
    let family = |(at, family): (usize, &BTreeMap<Vec<u8>, Vec<u8>>)| {
        let decide = |(key, value): (Vec<u8>, Vec<u8>)| match at == MERGING {
            true => Some((key, value)),
            false => Some((key, decided(value)?)),
        };
        family.clone().into_iter().filter_map(decide).collect()
    };
    contents.iter().enumerate().map(family).collect()
}

fn assert_same(got: &Contents, want: &Contents, what: &str) {
    for (at, (got, want)) in got.iter().zip(want).enumerate() {
        for key in got.keys().chain(want.keys()) {
            let head = |family: &BTreeMap<Vec<u8>, Vec<u8>>| {
                let value = family.get(key)?;
                Some(value[..value.len().min(20)].escape_ascii().to_string())
            };
            if got.get(key) != want.get(key) {
                let (got, want) = (head(got), head(want));
                panic!("{what}: {at}/{}: {got:?}, not {want:?}", key.escape_ascii());
            }
        }
    }
}

/// The same of a history.
fn history_decided(history: &History) -> History {
    let one = |op: &Op| match op.clone() {
        Op::Put { family, key, value, expiry_ms } if family != MERGING => match decided(value) {
            Some(value) => Op::Put { family, key, value, expiry_ms },
            None => Op::Delete { family, key },
        },
        op => op,
    };
    let batch = |batch: &Batch| batch.iter().map(one).collect();
    History { batches: history.batches.iter().map(batch).collect() }
}

fn filtered_options(options: &mut Options, rng: &mut SplitMix64) {
    let mut filter = || {
        let filter = ByHash { flushes: rng.one_in(3) };
        Some(Arc::new(filter) as Arc<dyn CompactionFilter>)
    };
    options.default_family.compaction_filter = filter();
    for (_, family) in options.column_families.iter_mut().skip(MERGING) {
        family.compaction_filter = filter();
    }
}

/// A workload whose reads are compared here.
struct Filtered {
    run: Run,
    snapshots: Vec<(Snapshot, State, Contents)>,
    /// Values that the filter was seen to have come to.
    gone: HashSet<Vec<u8>>,
}

impl Filtered {
    fn step(&mut self) {
        match self.run.generator.next() {
            Action::Read => self.check(),
            Action::TakeSnapshot => {
                let snapshot = self.run.store.db.snapshot();
                let seen = self.at(&snapshot);
                self.snapshots.push((snapshot, self.run.state.clone(), seen));
            }
            Action::DropSnapshot => {
                if !self.snapshots.is_empty() {
                    let at = self.run.generator.rng.below(self.snapshots.len() as u64) as usize;
                    self.snapshots.swap_remove(at);
                }
            }
            action => self.run.execute(&action),
        }
    }

    fn at(&self, snapshot: &Snapshot) -> Contents {
        let options = ReadOptions { snapshot: Some(snapshot.clone()), ..ReadOptions::default() };
        let families = &self.run.store.families;
        families.iter().map(|family| scan(family, &options, false).unwrap()).collect()
    }

    /// What is there is what was written, or what the filter makes of it, and what it has made once stays; what
    /// snapshots see does not change.
    fn check(&mut self) {
        let now = self.run.clock.now_ms();
        let written = self.run.state.contents(now);
        let seen = self.run.store.contents().unwrap();
        assert_same(&all_decided(&seen), &all_decided(&written), "what is there");
        for (at, (written, seen)) in written.iter().zip(&seen).enumerate() {
            for (key, value) in written.iter().filter(|_| at != MERGING) {
                if seen.get(key) == Some(value) {
                    assert!(!self.gone.contains(value), "it came back: {key:?}");
                } else {
                    self.gone.insert(value.clone());
                }
            }
        }
        for (snapshot, state, then) in &self.snapshots {
            let alive = |at: usize, key: &[u8]| state.get(at, key, now).is_some();
            let want = then.iter().enumerate().map(|(at, family)| {
                let alive = family.iter().filter(|(key, _)| alive(at, key));
                alive.map(|(key, value)| (key.clone(), value.clone())).collect()
            });
            let mut want: Contents = want.collect();
            // Of operands on a value that has expired the operands are left.
            want[MERGING] = state.contents(now).swap_remove(MERGING);
            assert_same(&self.at(snapshot), &want, "what a snapshot sees");
        }
    }

    /// Lets the filter come to all entries.
    fn finish(mut self) -> (Store, History) {
        self.check();
        self.snapshots.clear();
        for family in &self.run.store.families {
            family.compact_range::<&[u8]>(..).unwrap();
        }
        let written = self.run.state.contents(self.run.clock.now_ms());
        assert_same(&self.run.store.contents().unwrap(), &all_decided(&written), "at the end");
        self.run.store.db.verify().unwrap();
        (self.run.store, self.run.history)
    }
}

/// A workload on a file system that is filmed.
fn filmed(seed: u64, images: u64) -> (Filtered, Options, ManualClock, Camera) {
    let mut rng = SplitMix64::new(seed ^ 0xf117e4);
    let clock = stopped_clock();
    let camera = Camera::new(SimVfs::new(seed), rng.next_u64(), 12, images);
    let mut options = drawn_options(Arc::new(camera.clone()), &clock, &mut rng);
    filtered_options(&mut options, &mut rng);
    let mix = Mix {
        keys: 20 + rng.below(150),
        value_bytes: [40, 250, 600][rng.below(3) as usize],
        maintain_one_in: [6, 12, 40][rng.below(3) as usize],
        ttl: rng.one_in(2),
        ..Mix::default()
    };
    let generator = Generator::new(seed, mix, &clock);
    let run = Run::new(options.clone(), &clock, generator, camera.marks.clone());
    let filtered = Filtered { run, snapshots: Vec::new(), gone: HashSet::new() };
    (filtered, options, clock, camera)
}

#[test]
fn what_is_there_is_what_was_written_or_what_the_filter_made_of_it() {
    let (mut removed, mut changed, mut gone) = (0, 0, 0);
    over_seeds("compaction filter", effort(12), |seed, _| {
        let (mut filtered, options, clock, _) = filmed(seed, 0);
        for _ in 0..2 {
            for _ in 0..200 {
                filtered.step();
            }
            filtered.check();
            gone += filtered.gone.len();
            // What was filtered stays so when the store is opened again.
            filtered.snapshots.clear();
            let Filtered { run, gone, .. } = filtered;
            let Run { store, generator, history, state, marks, .. } = run;
            let metrics = store.db.metrics();
            removed += metrics.compaction_filter_removed;
            changed += metrics.compaction_filter_changed;
            store.db.close().unwrap();
            drop(store);
            let store = Store::open(options.clone()).unwrap();
            let mut run = Run::with(store, &clock, generator, marks);
            (run.history, run.state) = (history, state);
            filtered = Filtered { run, snapshots: Vec::new(), gone };
            filtered.check();
        }
        filtered.finish().0.db.close().unwrap();
        1
    });
    println!("{removed} entries were removed, {changed} changed; {gone} were seen to be");
    assert!(removed > 0 && changed > 0 && gone > 0, "the filter was hardly asked");
}

/// R1 with compaction filters.
#[test]
fn no_power_cut_loses_a_synced_write_or_brings_an_older_one_back() {
    let mut dropped = 0;
    let images = over_seeds("R1 with compaction filters", effort(300), |seed, left| {
        let (mut filtered, options, clock, camera) = filmed(seed, left.min(60));
        for _ in 0..200 {
            filtered.step();
        }
        let Filtered { run: Run { store, history, .. }, snapshots, .. } = filtered;
        drop((snapshots, store));
        let history = history_decided(&history);
        let shots = camera.take_film();
        for shot in &shots {
            let left = shot.image.kill_image();
            let count = left_by(shot, &history, &options, &clock).unwrap_or_else(|why| {
                dump(&left);
                panic!("seed {seed}, image seed {}, operation {}: {why}", shot.seed, shot.op)
            });
            dropped += shot.ceiling - count as u64;
        }
        shots.len() as u64
    });
    println!("{images} images, {dropped} batches that were not synced were dropped");
    assert!(dropped > 0, "the images never lost anything: they test nothing");
}

/// Opens what a crash left; says how many batches it holds, or what is wrong.
fn left_by(
    shot: &Shot,
    history: &History,
    options: &Options,
    clock: &ManualClock,
) -> Result<usize, String> {
    let mut options = options.clone();
    options.advanced.vfs = Arc::new(shot.image.clone());
    let store = Store::open(options).map_err(|e| format!("the open failed: {e}"))?;
    let contents = store.contents().map_err(|e| format!("a scan failed: {e}"))?;
    let (floor, ceiling) = (shot.floor as usize, shot.ceiling as usize);
    let count = history.prefix_of(&all_decided(&contents), floor, ceiling, clock.now_ms());
    let count = count.map_err(|e| e.to_string())?;
    store.db.verify().map_err(|e| format!("verify failed: {e}"))?;
    store.db.close().map_err(|e| format!("the close failed: {e}"))?;
    Ok(count)
}
