//! When files and levels get models (Bourbon, OSDI 2020, section 4.4), and what came of it.
//!
//! | `CfOptions::learning` | models of files | models of levels |
//! |---|---|---|
//! | `Build` | trained while the SST is written | when it pays |
//! | `Analyze` | trained here, when it pays | when it pays |
//! | `Off` | neither trained nor used | none |
//!
//! One thread of `worker` calls [`Learner::step`]: it looks at the versions and at what point reads
//! left behind (one in some dozens is followed through the files, `learned/lookup_costs`), keeps the stats
//! of files and levels (`learned/file_stats`, pure), and trains at most one file and one level at a time, while
//! neither flush nor compaction runs, or has run for long without a pause. Reads never wait for any of
//! this, and nothing here can change what they find.

use crate::background::env::JobEnv;
use crate::error::Result;
use crate::event;
use crate::learned::file_stats::{Counted, FileStats, FileVerdict, LiveFile};
use crate::learned::level_model::LevelModelBuilder;
use crate::memory::reader_slot::ReaderSlot;
use crate::options::Learning;
use crate::version::family::Family;
use crate::version::read_env::family_of;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;
use terrace_base::sync::Instant;
use terrace_learned::analyzer::Lookups;
use terrace_learned::analyzer::level::LevelDecision;
use terrace_manifest::{LEVEL_COUNT, Level, Version};
use terrace_sst::NoModel;

impl Counted for Arc<ReaderSlot> {
    fn lookups(&self) -> Lookups {
        ReaderSlot::lookups(self)
    }
}

/// How long training waits for flushes and compactions to end.
const MAX_WAIT_MS: u64 = 1000;

/// How long training waits before it looks again whether it may go on.
const YIELD: Duration = Duration::from_millis(50);

/// A level of more data blocks than this gets no model: while it is trained, its first keys are in
/// memory.
const MAX_BLOCKS: u64 = 1 << 20;

/// A model of a level takes at most one part in this many of the block cache.
const CACHE_PART: usize = 16;

/// Decides and trains for all families of a store.
#[derive(Default)]
pub(crate) struct Learner {
    families: HashMap<u32, FamilyFileStats>,
    /// Since when training waits for flushes and compactions to end.
    waits_since_ms: Option<u64>,
}

#[derive(Default)]
struct FamilyFileStats {
    /// The version that was looked at last; held no longer than reads hold it.
    seen: Weak<Version>,
    stats: FileStats<Arc<ReaderSlot>>,
    has_model: [bool; LEVEL_COUNT],
}

impl Learner {
    /// Looks at what has changed, and trains what is worth it most; whether it did, or would have
    /// if it did not have to wait.
    pub fn step(&mut self, env: &JobEnv) -> bool {
        let now_ms = env.base.clock.monotonic_us() / 1000;
        let families = env.read.families.load_full();
        self.families.retain(|id, _| family_of(&families, *id).is_some());
        let mut busy = false;
        for family in families.iter() {
            let learning = family.options().learning;
            if learning == Learning::Off || family.is_dropped() {
                continue;
            }
            let own = self.families.entry(family.id).or_default();
            own.look(env, family, now_ms);
            own.stats.for_each(|slot| {
                if let Some(reader) = &*slot.open_reader() {
                    reader.house_cached_blocks();
                }
            });
            family.samples.forget_stale(now_ms);
            let file = match learning {
                Learning::Analyze => own.next_file(env, family, now_ms),
                Learning::Build | Learning::Off => None,
            };
            let level = own.next_level(env, family, now_ms);
            if file.is_none() && level.is_none() {
                continue;
            }
            busy = true;
            if !is_free(env, &mut self.waits_since_ms, now_ms) {
                continue;
            }
            if let Some(verdict) = file {
                own.train_file(env, family, &verdict, now_ms);
            }
            if let Some(level) = level {
                own.train_level(env, family, level, now_ms);
            }
        }
        busy
    }
}

/// Whether training may start: nothing is being written, or has been for too long.
fn is_free(env: &JobEnv, waits_since_ms: &mut Option<u64>, now_ms: u64) -> bool {
    let since = *waits_since_ms.get_or_insert(now_ms);
    let free = env.jobs.scheduler.lock().is_quiet() || now_ms.saturating_sub(since) >= MAX_WAIT_MS;
    if free {
        *waits_since_ms = None;
    }
    free
}

impl FamilyFileStats {
    fn look(&mut self, env: &JobEnv, family: &Family, now_ms: u64) {
        let state = family.state();
        for (level, model) in state.level_models.iter().enumerate() {
            if std::mem::replace(&mut self.has_model[level], model.is_some()) && model.is_none() {
                event::level_model_dropped(&family.name, level);
            }
        }
        if std::ptr::eq(self.seen.as_ptr(), Arc::as_ptr(&state.version)) {
            return;
        }
        self.seen = Arc::downgrade(&state.version);
        let live: Vec<LiveFile> = state
            .version
            .files()
            .map(|(level, file)| LiveFile {
                level: usize::from(level),
                number: file.number,
                key_count: file.entry_count,
            })
            .collect();
        self.stats.observe(now_ms, &live, |number| env.read.table_cache.slot(number));
    }

    fn next_file(&mut self, env: &JobEnv, family: &Family, now_ms: u64) -> Option<FileVerdict> {
        self.stats.find_losses(now_ms, |slot| {
            slot.open_reader().as_ref().is_some_and(|reader| !reader.has_model())
        });
        if !env.read.table_cache.has_room() {
            return None;
        }
        self.stats.next_file(
            now_ms,
            |level| family.samples.costs(level),
            |verdict| {
                let FileVerdict { number, level, decision } = verdict;
                event::decided_on_model(&family.name, *level, *number, decision);
            },
        )
    }

    fn next_level(&mut self, env: &JobEnv, family: &Family, now_ms: u64) -> Option<usize> {
        let state = family.state();
        let least_files = env.base.dynamic.level_model_files();
        let paths = |level: usize| {
            let few = state.version.level(level).len() < least_files;
            if few || state.level_models[level].is_some() {
                return None;
            }
            family.samples.level_costs(level)
        };
        let note = |level: usize, decision: &LevelDecision| {
            event::decided_on_level_model(&family.name, level, decision);
        };
        let (level, decision) = self.stats.next_level(now_ms, paths, note)?;
        event::decided_on_level_model(&family.name, level, &decision);
        Some(level)
    }

    fn train_file(&mut self, env: &JobEnv, family: &Family, verdict: &FileVerdict, now_ms: u64) {
        let FileVerdict { number, level, .. } = *verdict;
        let version = family.state().version.clone();
        let files = version.level(level).files();
        let Some(file) = files.iter().find(|file| file.number == number) else { return };
        let start = Instant::now();
        let outcome = env.read.table_cache.reader_for_work(file).and_then(|reader| {
            // Written with a model, when the option was another.
            if reader.has_model() { Ok(None) } else { reader.train() }
        });
        let name = &family.name;
        let training = match outcome {
            Ok(Some(training)) => training,
            Ok(None) => return self.stats.trained(number, true),
            Err(error) => {
                event::model_refused(name, level, number, &error);
                return self.stats.failed(number, now_ms);
            }
        };
        let took = start.elapsed();
        family.samples.note_file_training(took.as_nanos() as u64, file.entry_count);
        env.read.table_cache.trainings().note(&training);
        match &training.model {
            Ok(bytes) => {
                event::model_trained(name, level, number, *bytes, took.as_micros() as u64);
            }
            Err(why) => event::model_refused(name, level, number, why),
        }
        self.stats.trained(number, training.model.is_ok());
    }

    fn train_level(&mut self, env: &JobEnv, family: &Family, level: usize, now_ms: u64) {
        let version = family.state().version.clone();
        let files = version.level(level);
        let mut work = Duration::ZERO;
        match learn_level(env, family, level, files, &mut work) {
            Ok(Learned::Interrupted) => {}
            Ok(Learned::Refused(why)) => {
                event::level_model_refused(&family.name, level, &why);
                self.stats.refuse_level(level);
            }
            Ok(Learned::Model { bytes }) => {
                let keys = files.files().iter().map(|file| file.entry_count).sum();
                family.samples.note_level_training(work.as_nanos() as u64, keys);
                let micros = work.as_micros() as u64;
                event::level_model_built(&family.name, level, files.len(), bytes, micros);
            }
            Err(error) => {
                event::level_model_refused(&family.name, level, &error);
                self.stats.level_failed(level, now_ms);
            }
        }
    }
}

/// What came of learning a level.
enum Learned {
    Model {
        bytes: usize,
    },
    Refused(NoModel),
    /// The level changed, or the store closes.
    Interrupted,
}

/// Adds to `work` how long it took, without the time that it waited for flushes and compactions.
fn learn_level(
    env: &JobEnv,
    family: &Family,
    level: usize,
    files: &Level,
    work: &mut Duration,
) -> Result<Learned> {
    if files.size_bytes() / env.base.options.advanced.block_size as u64 > MAX_BLOCKS {
        return Ok(Learned::Refused(NoModel::BufferFull));
    }
    let most_bytes = env.read.table_cache.cache_share_bytes() / CACHE_PART;
    let is_same = || family.state().version.level(level).numbers() == files.numbers();
    let mut builder = LevelModelBuilder::default();
    let mut waits_since_ms = None;
    for file in files.files() {
        while !is_free(env, &mut waits_since_ms, env.base.clock.monotonic_us() / 1000) {
            let mut jobs = env.jobs.scheduler.lock();
            if env.jobs.scheduler.is_stopping() {
                return Ok(Learned::Interrupted);
            }
            env.jobs.scheduler.wait_for_end(&mut jobs, YIELD);
        }
        if env.jobs.scheduler.is_stopping() || !is_same() {
            return Ok(Learned::Interrupted);
        }
        let start = Instant::now();
        builder.add(file, &env.read.table_cache.reader_for_work(file)?)?;
        *work += start.elapsed();
        // A byte for each block is the least: what comes of a level that is large beside the budget would be thrown away,
        // and until then its keys would be in memory, of which nobody has an account.
        if builder.block_count() as usize > most_bytes {
            return Ok(Learned::Refused(NoModel::TooManyBytes));
        }
    }
    let start = Instant::now();
    let training = builder.finish(&env.read.table_cache);
    let model = training.model.and_then(|model| match model.memory_bytes() > most_bytes {
        true => Err(NoModel::TooManyBytes),
        false => Ok(model),
    });
    let took = start.elapsed();
    *work += took;
    let ns = took.as_nanos() as u64;
    env.read.table_cache.trainings().note_level(model.as_ref().err(), &training.stats, ns);
    Ok(match model {
        Err(why) => Learned::Refused(why),
        Ok(model) => {
            let bytes = model.memory_bytes();
            match family.add_level_model(level, model) {
                true => Learned::Model { bytes },
                false => Learned::Interrupted,
            }
        }
    })
}

#[cfg(test)]
mod tests;
