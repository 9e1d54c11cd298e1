//! A look at the store: its shape, its memory and its jobs, as JSON has them. Costs a walk over all
//! files, so it is taken when somebody asks, and shared by all who ask within [`FRESH`].

use super::ServerStatus;
use super::api_error::ApiError;
use super::blocking::{blocking, to_json};
use super::json::{
    FamilyShape, FinishedJob, Job, JobInput, JobKind, LevelShape, Memory, Pool, QuarantinedFile,
    STREAM_FILES_MAX, Shape,
};
use super::listed_files::listed;
use crate::process::resident_bytes;
use axum::body::Bytes;
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace::JobShape;
use tokio::sync::OnceCell;
use xxhash_rust::xxh3::Xxh3;

/// How old a look may be.
pub(super) const FRESH: Duration = Duration::from_millis(500);
/// Inputs, and outputs, of a job that are listed.
const MAX_JOB_FILES: usize = 1000;
/// Quarantined files that are listed; the metrics count all.
const MAX_QUARANTINED: usize = 100;
/// Numbers of JavaScript are exact below 2^53.
const EXACT_BITS: u64 = (1 << 53) - 1;

/// What was seen.
#[derive(Debug)]
pub(super) struct StoreView {
    pub at: Instant,
    pub shape: Shape,
    pub memory: Memory,
    /// Jobs that run.
    pub jobs: Vec<Job>,
    /// Jobs that ended within the last seconds.
    pub ended: Vec<FinishedJob>,
    /// `shape` as JSON, once somebody has asked for it.
    shape_json: OnceCell<Bytes>,
}

impl StoreView {
    /// Looks now.
    pub fn take(status: &dyn ServerStatus) -> Self {
        let at = Instant::now();
        let engine = status.engine();
        let seen = engine.shape();
        let memory = memory(&engine.memory());
        let running = seen.jobs.iter().filter(|job| job.finished_ms.is_none());
        let jobs = running.map(job).collect();
        let ended = seen.jobs.iter().filter_map(|job| finished(job, &seen)).collect();
        let slot_bytes = status.layout().slot_bytes() as u8;
        let mut shape = shape(&seen, &engine.options().advanced, slot_bytes);
        shape.quarantined = quarantined(&engine.quarantined_files());
        Self { at, shape, memory, jobs, ended, shape_json: OnceCell::new() }
    }

    /// The shape as JSON, which is made once for all who ask.
    pub async fn shape_json(self: &Arc<Self>) -> Result<Bytes, ApiError> {
        let make = || {
            let view = self.clone();
            async move { blocking(move || to_json(&view.shape)).await? }
        };
        self.shape_json.get_or_try_init(make).await.cloned()
    }

    /// The shape for events: without the files of a store that has many.
    pub fn brief(&self) -> Shape {
        let files: u64 =
            self.shape.families.iter().flat_map(|f| &f.levels).map(|level| level.file_count).sum();
        if files <= STREAM_FILES_MAX as u64 {
            return self.shape.clone();
        }
        let level = |level: &LevelShape| LevelShape { files: None, ..*level };
        let family = |family: &FamilyShape| FamilyShape {
            name: family.name.clone(),
            levels: family.levels.iter().map(level).collect(),
            ..*family
        };
        Shape {
            families: self.shape.families.iter().map(family).collect(),
            quarantined: self.shape.quarantined.clone(),
            ..self.shape
        }
    }
}

fn shape(seen: &terrace::Shape, options: &terrace::AdvancedOptions, slot_bytes: u8) -> Shape {
    let files = seen.families.iter().flat_map(|family| &family.levels).map(Vec::len).sum();
    Shape {
        epoch: epoch(seen),
        slot_bytes,
        families: seen.families.iter().map(|seen| family(seen, options, files)).collect(),
        log_segments: seen.log_segments,
        value_segments: seen.value_segments,
        value_bytes: seen.value_bytes,
        garbage_bytes: seen.garbage_bytes,
        quarantined: Vec::new(),
    }
}

fn quarantined(files: &[terrace::QuarantinedFile]) -> Vec<QuarantinedFile> {
    let file = |file: &terrace::QuarantinedFile| QuarantinedFile {
        number: file.number,
        family: file.family.clone(),
        level: file.level as u8,
        error: file.error.to_string(),
    };
    files.iter().take(MAX_QUARANTINED).map(file).collect()
}

/// The same for the same files in the same places.
fn epoch(seen: &terrace::Shape) -> u64 {
    let mut hash = Xxh3::new();
    for family in &seen.families {
        hash.update(&(family.name.len() as u64).to_le_bytes());
        hash.update(family.name.as_bytes());
        for level in &family.levels {
            hash.update(&(level.len() as u64).to_le_bytes());
            for file in level {
                hash.update(&file.number.to_le_bytes());
            }
        }
    }
    hash.digest() & EXACT_BITS
}

/// A family of a store that has `files` files.
fn family(
    seen: &terrace::FamilyShape,
    options: &terrace::AdvancedOptions,
    files: usize,
) -> FamilyShape {
    let used = seen.levels.iter().rposition(|files| !files.is_empty()).map_or(0, |last| last + 1);
    FamilyShape {
        name: seen.name.clone(),
        memtable_bytes: seen.memtable_bytes,
        memtable_limit_bytes: seen.memtable_limit_bytes,
        immutable_memtables: seen.immutable_memtables,
        l0_compaction_files: options.l0_compaction_trigger as u64,
        l0_slowdown_files: options.l0_slowdown as u64,
        l0_stop_files: options.l0_stop as u64,
        levels: (0..used).map(|number| level(seen, number, files)).collect(),
    }
}

fn level(seen: &terrace::FamilyShape, number: usize, all_files: usize) -> LevelShape {
    let files = &seen.levels[number];
    LevelShape {
        file_count: files.len() as u64,
        size_bytes: files.iter().map(|file| file.size_bytes).sum(),
        target_bytes: seen.level_targets.get(number).copied().flatten(),
        entry_count: files.iter().map(|file| file.entry_count).sum(),
        files: Some(listed(files, all_files)),
    }
}

fn memory(seen: &terrace::MemoryShape) -> Memory {
    let pool = |pool: &terrace::PoolShape| Pool {
        name: pool.name.to_string(),
        used_bytes: pool.used_bytes,
        limit_bytes: Some(pool.limit_bytes),
        lent_bytes: pool.lent_bytes,
        saved_reads_per_mib_s: pool.saved_reads_per_mib_s,
    };
    Memory {
        budget_bytes: seen.budget_bytes,
        used_bytes: seen.pools.iter().map(|pool| pool.used_bytes).sum(),
        rss_bytes: resident_bytes(),
        pools: seen.pools.iter().map(pool).collect(),
        decision: seen.decision.clone(),
        moves: seen.moves,
    }
}

fn job(seen: &JobShape) -> Job {
    let kind = match seen.kind {
        terrace::JobKind::Flush => JobKind::Flush,
        terrace::JobKind::Compaction => JobKind::Compaction,
        terrace::JobKind::GarbageCollection => JobKind::GarbageCollection,
    };
    let listed = seen.inputs.iter().take(MAX_JOB_FILES);
    let inputs = listed.map(|(level, file)| JobInput { level: *level, file: *file });
    let is_cut = seen.inputs.len() > MAX_JOB_FILES;
    Job {
        id: seen.id,
        kind,
        family: seen.family.clone(),
        inputs: inputs.collect(),
        input_count: is_cut.then_some(seen.inputs.len() as u64),
        output_level: (kind != JobKind::GarbageCollection).then_some(seen.output_level),
        started_ms: seen.started_ms,
        input_bytes: seen.input_bytes,
        read_bytes: seen.read_bytes,
        written_bytes: seen.written_bytes,
    }
}

/// A job that is over. Its outputs are the files of its family and level that were made meanwhile or
/// were moved there: those of a job beside it in the same level may be among them, and those that
/// another job has already consumed are not.
fn finished(seen: &JobShape, shape: &terrace::Shape) -> Option<FinishedJob> {
    let ended_ms = seen.finished_ms?;
    let families = shape.families.iter().filter(|family| family.name == seen.family);
    let level = families.flat_map(|family| family.levels.get(usize::from(seen.output_level)));
    let of_it = |file: &&terrace::FileShape| {
        let moved =
            |(level, number): &(u8, u64)| *number == file.number && *level != seen.output_level;
        (seen.started_ms..=ended_ms).contains(&file.created_ms) || seen.inputs.iter().any(moved)
    };
    let outputs = level.flatten().filter(of_it).map(|file| file.number);
    let outputs = outputs.take(MAX_JOB_FILES).collect();
    Some(FinishedJob { job: job(seen), ended_ms, outputs })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(number: u64, created_ms: u64) -> terrace::FileShape {
        terrace::FileShape { number, created_ms, ..terrace::FileShape::default() }
    }

    fn store(files: Vec<terrace::FileShape>) -> terrace::Shape {
        let levels = vec![Vec::new(), Vec::new(), files, Vec::new()];
        let name = "f".to_string();
        let family = terrace::FamilyShape { name, levels, ..terrace::FamilyShape::default() };
        terrace::Shape { families: vec![family], ..terrace::Shape::default() }
    }

    #[test]
    fn a_finished_job_names_the_files_that_it_made_or_moved() {
        let shape = store(vec![file(3, 50), file(7, 150), file(8, 200), file(4, 90), file(9, 201)]);
        let seen = JobShape {
            id: 1,
            kind: terrace::JobKind::Compaction,
            family: "f".into(),
            inputs: vec![(1, 4), (2, 3)],
            output_level: 2,
            started_ms: 100,
            finished_ms: Some(200),
            input_bytes: 1,
            read_bytes: 1,
            written_bytes: 1,
        };
        let finished_job = finished(&seen, &shape).unwrap();
        assert_eq!(finished_job.outputs, [7, 8, 4]);
        assert_eq!(finished(&JobShape { finished_ms: None, ..seen.clone() }, &shape), None);
        let elsewhere = JobShape { family: "g".into(), ..seen };
        assert!(finished(&elsewhere, &shape).unwrap().outputs.is_empty());
    }

    #[test]
    fn of_a_job_with_very_many_files_some_are_listed_and_all_are_counted() {
        let seen = |count: u64| JobShape {
            id: 1,
            kind: terrace::JobKind::Compaction,
            family: "f".into(),
            inputs: (0..count).map(|number| (1, number)).collect(),
            output_level: 2,
            started_ms: 100,
            finished_ms: Some(200),
            input_bytes: 1,
            read_bytes: 1,
            written_bytes: 1,
        };
        let made = store((0..5000).map(|number| file(number, 150)).collect());
        let many = finished(&seen(5000), &made).unwrap();
        assert_eq!((many.job.inputs.len(), many.job.input_count), (1000, Some(5000)));
        assert_eq!(many.outputs.len(), 1000);
        let few = job(&seen(1000));
        assert_eq!((few.inputs.len(), few.input_count), (1000, None));
    }

    #[test]
    fn the_epoch_is_that_of_the_set_of_files() {
        let one = store(vec![file(3, 1), file(4, 1)]);
        assert_eq!(epoch(&one), epoch(&store(vec![file(3, 9), file(4, 9)])));
        assert_ne!(epoch(&one), epoch(&store(vec![file(3, 1)])));
        assert!(epoch(&one) < 1 << 53);
        let shape = shape(&one, &terrace::AdvancedOptions::default(), 0);
        assert_eq!(shape.families[0].levels.len(), 3, "empty levels at the end are left out");
    }

    #[test]
    fn levels_that_have_a_target_show_it() {
        let mut store = store(vec![file(3, 1)]);
        store.families[0].level_targets = vec![None, Some(5), Some(50), None];
        let shape = shape(&store, &terrace::AdvancedOptions::default(), 0);
        let targets = shape.families[0].levels.iter().map(|level| level.target_bytes);
        assert_eq!(targets.collect::<Vec<_>>(), [None, Some(5), Some(50)]);
    }

    #[test]
    fn events_of_large_stores_list_no_files() {
        let options = terrace::AdvancedOptions::default();
        let of_files = |count| shape(&store((0..count).map(|n| file(n, 0)).collect()), &options, 2);
        let mut look = StoreView {
            at: Instant::now(),
            shape: of_files(1000),
            memory: memory(&terrace::MemoryShape::default()),
            jobs: Vec::new(),
            ended: Vec::new(),
            shape_json: OnceCell::new(),
        };
        assert!(look.brief().families[0].levels[2].files.is_some());
        look.shape = of_files(1001);
        let brief = look.brief();
        assert!(brief.families[0].levels[2].files.is_none());
        assert_eq!(brief.families[0].levels[2].file_count, 1001);
        assert_eq!((brief.epoch, brief.slot_bytes), (look.shape.epoch, 2));
    }

    #[test]
    fn a_shape_of_very_many_files_is_bounded() {
        let options = terrace::AdvancedOptions::default();
        let shape = shape(&store((0..100_000).map(|n| file(n, 0)).collect()), &options, 0);
        let level = &shape.families[0].levels[2];
        assert_eq!(level.file_count, 100_000);
        let listed = level.files.as_ref().unwrap();
        assert!(listed.len() <= crate::http::listed_files::MAX_LISTED, "{}", listed.len());
        let counted: u64 = listed.iter().map(|file| file.file_count.unwrap_or(1)).sum();
        assert_eq!(counted, 100_000);
    }
}
