//! Checkpoints of the hot table (flush): what is hot, as one file that no read looks into.
//!
//! The log since the last checkpoint has the rest. When the log has grown by some times the bytes that
//! are hot, the table that was swapped in last is written, as it was then; then the log before that
//! swap can go, and the file before. A checkpoint may only take the place of the one before when
//! what has cooled in between is flushed: nothing else on disk may have it.

use crate::background::env::JobEnv;
use crate::background::flush::{job_parts, one_file};
use crate::background::output::Output;
use crate::error::Result;
use crate::jobs::job_list::{JobKind, JobProgress, JobStart};
use crate::kill_point::kill_point;
use crate::memtable::MemTable;
use crate::metrics::add;
use crate::version::family::Family;
use crate::version::hot_table::HotTable;
use crate::version::install::{self, Change};
use crate::version::read_state::ReadState;
use crate::version::unpublished::remove_unpublished;
use crate::write::log_segments;
use std::sync::Arc;
use terrace_base::checksum::hash_key;
use terrace_base::key::{seek_trailer, trailer_seqno};
use terrace_base::{FileNumber, RangeTombstones, SeqNo};
use terrace_manifest::{FamilyEdit, FileMeta, HOT_LEVEL};

/// Whether a checkpoint of the family's hot table is due and can be made now.
pub(crate) fn is_due(family: &Family) -> bool {
    due_table(&family.state()).is_some()
}

fn due_table(state: &ReadState) -> Option<&Arc<HotTable>> {
    let hot = state.hot.as_ref().filter(|hot| hot.is_checkpoint_due)?;
    let is_newer = hot.log.since().seqno < hot.base.seqno;
    (is_newer && !state.immutables.iter().any(|m| m.is_cooled())).then_some(hot)
}

/// Writes a checkpoint if one is due; whether it was. Called by the thread that flushes.
pub(crate) fn run(env: &JobEnv, family: &Arc<Family>) -> Result<bool> {
    let state = family.hold_state();
    let Some(hot) = due_table(&state).filter(|_| !family.is_dropped()) else { return Ok(false) };
    let job = JobStart {
        kind: JobKind::Flush,
        family: family.name.clone(),
        inputs: Vec::new(),
        output_level: 0,
        input_bytes: hot.table.size_bytes() as u64,
        to_read: hot.table.entry_count() as u64,
    };
    let entered = env.jobs.list.enter(&*env.base.clock, job);
    let files = write(env, family, &hot.table, hot.base.seqno, entered.progress());
    let files = files.map_err(|error| env.base.health.fail("write a hot table", error))?;
    kill_point("hot:written");
    let numbers: Vec<FileNumber> = files.iter().map(|file| file.number).collect();
    // Earlier writes of keys that are not hot are to be as durable as this.
    if let Err(error) = log_segments::sync_full_segments(&env.commit) {
        remove_unpublished(&env.base.vfs, &env.base.dir, numbers.iter().copied());
        return Err(error);
    }
    let bytes: u64 = files.iter().map(|file| file.size_bytes).sum();
    let edit = FamilyEdit {
        id: family.id,
        added: files.into_iter().map(|file| (HOT_LEVEL, file)).collect(),
        removed: state.version.hot().numbers().iter().map(|number| (HOT_LEVEL, *number)).collect(),
        ..FamilyEdit::default()
    };
    let (flushed, segments) = (Vec::new(), Vec::new());
    let change = Change { family: family.clone(), edit, flushed, segments, fresh: None };
    install::install(&env.versions, vec![change])?;
    hot.log.checkpointed(hot.base, numbers);
    kill_point("hot:installed");
    add(&env.base.counters.hot_checkpoints, 1);
    add(&env.base.counters.hot_checkpoint_bytes, bytes);
    Ok(true)
}

/// The newest versions in `table` up to `seqno`, as one file. Without those that a range tombstone up to there
/// covers: the file does not have the tombstone, and what has it may be merged away before the file is read.
fn write(
    env: &JobEnv,
    family: &Family,
    table: &MemTable,
    seqno: SeqNo,
    progress: &JobProgress,
) -> terrace_base::Result<Vec<FileMeta>> {
    let next_file_number = || env.versions.next_file_number();
    let parts = job_parts(env, &next_file_number, progress);
    let mut context = one_file(&parts, family, parts.clock.wall_ms(), seqno);
    context.sst_options.is_hot_checkpoint = true;
    let mut output = Output::new(context, RangeTombstones::default());
    let mut outcome = Ok(());
    table.for_each_key(|key, _| {
        if outcome.is_ok()
            && let Some((trailer, value)) = table.get(key, hash_key(key), seek_trailer(seqno))
            && table
                .covering_seqno(key, seqno)
                .is_none_or(|covered| covered < trailer_seqno(trailer))
        {
            outcome = output.add(key, trailer, value);
        }
    });
    outcome?;
    output.finish()
}
