//! Ingests files: they are copied into the directory while writes go on; then writers are held while the
//! family's memtables are flushed (above existing data), the files get their sequence numbers and their end, and one edit puts all
//! of them in force.
//!
//! Above existing data all entries of a file have one new sequence number, so snapshots of before do not see
//! them. Each file has one of its own: files of L0 with equal ones would lose their order when some of them are
//! merged. As the memtables are flushed first and a fresh one comes with the files, what a read finds in a
//! memtable is newer than any file, as everywhere. The log is synced beside writers, once more as soon as they are held, since
//! nobody else can do it until they go on, and again with a note of the files, for change feeds, before they are in force: after a power cut
//! no write of before may be missing while the files are there.

use crate::background::compact::Claim;
use crate::background::compaction::pick::{LAST_LEVEL, Span};
use crate::background::env::JobEnv;
use crate::background::flush;
use crate::batch;
use crate::error::{Error, Result};
use crate::event;
use crate::ingest::calls::RunningCall;
use crate::ingest::copied::Copied;
use crate::ingest::place::Levels;
use crate::jobs::scheduler::SchedulerState;
use crate::kill_point::kill_point;
use crate::listener::{Event, FilesIngested};
use crate::memtable::MemTable;
use crate::version::family::Family;
use crate::version::install::{self, Change};
use crate::version::unpublished::{check_names, remove_unpublished};
use crate::write::log_segments;
use crate::write::queue::LogState;
use crate::write::stall;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_base::sync::Instant;
use terrace_base::{MAX_SEQNO, SeqNo};
use terrace_manifest::{FamilyEdit, FileMeta};
use terrace_sst::Stamp;

/// What becomes of the files that were ingested. Either way their bytes are copied once: the checksum of
/// a block covers the number of its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IngestSource {
    /// They stay as they are.
    #[default]
    Copy,
    /// They are removed once the store has them durably. One that cannot be removed stays, with an event.
    Move,
}

/// Whether ingested entries or existing ones count where both have a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IngestPosition {
    /// The ingested ones, as if they had been written just then.
    #[default]
    Above,
    /// The existing ones (RocksDB: `ingest_behind`), for filling up a store with old data. The last level must
    /// have no file in the key ranges of the ingested ones, and the family no merge operator. They become visible to snapshots of
    /// before too, transactions do not notice them, and a key whose deletion a compaction has dropped
    /// already counts as never written.
    Below,
}

/// How files are ingested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IngestOptions {
    /// What becomes of the files.
    pub source: IngestSource,
    /// Which entries count.
    pub position: IngestPosition,
}

/// What was ingested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ingested {
    /// The last new sequence number: the entries of each file have one, in the order of the files; 0 below existing data.
    pub seqno: u64,
    /// The files, in key order.
    pub files: Vec<IngestedFile>,
    /// Entries, deletions and range deletions.
    pub entry_count: u64,
}

/// A file that is part of the store now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IngestedFile {
    /// The level that it lies in.
    pub level: usize,
    /// Its length.
    pub size_bytes: u64,
}

/// Ingests `sources` into `family`.
pub(crate) fn ingest(
    env: &JobEnv,
    family: &Arc<Family>,
    sources: &[PathBuf],
    options: &IngestOptions,
) -> Result<Ingested> {
    let start = Instant::now();
    env.commit.queue()?;
    env.base.health.check_writable()?;
    family.check_exists()?;
    if sources.is_empty() {
        return Err(Error::InvalidArgument("there are no files to ingest".into()));
    }
    check_position(family, options.position)?;
    let running = RunningCall::begin(env)?;
    let copied = Copied::new(env, family, sources)?;
    kill_point("ingest:copied");
    let done = match options.position {
        IngestPosition::Above => above(env, family, copied)?,
        IngestPosition::Below => below(env, family, copied)?,
    };
    drop(running);
    env.jobs.scheduler.wake();
    if options.source == IngestSource::Move {
        for source in sources {
            if let Err(error) = env.base.vfs.remove(source) {
                event::ingested_file_stays(&error);
            }
        }
    }
    let bytes = done.files.iter().map(|file| file.size_bytes).sum();
    let took_us = start.elapsed().as_micros() as u64;
    event::ingested(&family.name, done.files.len(), done.entry_count, bytes, took_us);
    env.base.events.tell(|| {
        Event::FilesIngested(FilesIngested {
            family: family.name.clone(),
            files: done.files.len(),
            entry_count: done.entry_count,
            size_bytes: bytes,
            took: start.elapsed(),
        })
    });
    Ok(done)
}

/// Refuses what `family` never takes.
pub(super) fn check_position(family: &Family, position: IngestPosition) -> Result<()> {
    if position == IngestPosition::Below && family.merge_operator().is_some() {
        let text = "in a column family with a merge operator nothing is ingested below: operands may have become \
                    values already";
        return Err(Error::InvalidArgument(text.into()));
    }
    Ok(())
}

fn above(env: &JobEnv, family: &Arc<Family>, copied: Copied<'_>) -> Result<Ingested> {
    // Most of what is in memtables is flushed while writes go on.
    flush::families(env, std::slice::from_ref(family))?;
    wait_for_l0(env, family, &copied)?;
    // And most of the log made durable.
    log_segments::sync(&env.commit)?;
    let lead = env.commit.queue()?.lead();
    let mut log = lead.log();
    env.base.health.check_writable()?;
    family.check_exists()?;
    log_segments::sync_under_lead(&env.commit, &mut log)?;
    flush::one_under_lead(env, &mut log, family)?;
    let numbers @ (first, last) = next_numbers(&log, copied.len())?;
    let fresh = fresh_memtable(env, family)?;
    let files = shared(copied.finish(stamp(env, family), first.onward())?);
    kill_point("ingest:finished");
    // Whether the edit is in force is unknown if it fails: nothing else may have these numbers.
    note_in_log(env, &mut log, family, &files, numbers).inspect_err(|_| remove(env, &files))?;
    let claimed =
        env.jobs.scheduler.wait_until(|jobs| Ok(Some(claim_above(env, family, jobs, &files))));
    let (levels, claim) = claimed.inspect_err(|_| remove(env, &files))?;
    let done = install(env, family, (&files, levels), last, Some(fresh));
    // Release: a thread that reads this number finds the files.
    env.read.visible_seqno.store(last, Ordering::Release);
    // Only now may a merge take the files: it would drop what is still read before them.
    drop(claim);
    done
}

/// Waits as a writer does while L0 is full, if it is to take any of these files: no writer might come who would wait.
fn wait_for_l0(env: &JobEnv, family: &Family, copied: &Copied<'_>) -> Result<()> {
    if !stall::is_l0_full(family) {
        return Ok(());
    }
    let levels = levels_above(family, &env.jobs.scheduler.lock(), copied.spans());
    match levels.contains(&0) {
        true => stall::wait_for_l0(&env.commit, family),
        false => Ok(()),
    }
}

fn below(env: &JobEnv, family: &Arc<Family>, copied: Copied<'_>) -> Result<Ingested> {
    let files = shared(copied.finish(stamp(env, family), std::iter::repeat(SeqNo::ZERO))?);
    kill_point("ingest:finished");
    if keeps_old_log(family) {
        // Most of it without the lead.
        flush::families(env, std::slice::from_ref(family)).inspect_err(|_| remove(env, &files))?;
    }
    loop {
        // Without the lead: the compactions that are in the way may take long.
        let is_free = |jobs: &mut SchedulerState| {
            check_below(family, jobs, &files).map(|is_free| is_free.then_some(()))
        };
        env.jobs.scheduler.wait_until(is_free).inspect_err(|_| remove(env, &files))?;
        if let Some(done) = below_under_lead(env, family, &files)? {
            return Ok(done);
        }
    }
}

/// Whether the log is in force for what is hot, or was and is not flushed yet, from before what has been flushed.
/// After a crash deletions would be replayed that no longer hide anything, and hide what is ingested below.
fn keeps_old_log(family: &Family) -> bool {
    let state = family.state();
    state.hot.is_some() || state.immutables.iter().any(|memtable| memtable.is_cooled())
}

/// Installs files below existing data while nobody writes; not if a compaction that has begun since is in the way.
/// On an error the files are removed.
fn below_under_lead(
    env: &JobEnv,
    family: &Arc<Family>,
    files: &[Arc<FileMeta>],
) -> Result<Option<Ingested>> {
    let begin = || -> Result<_> {
        // Most of the log while writes go on.
        log_segments::sync(&env.commit)?;
        let lead = env.commit.queue()?.lead();
        let mut log = lead.log();
        env.base.health.check_writable()?;
        if keeps_old_log(family) {
            log_segments::sync_under_lead(&env.commit, &mut log)?;
            flush::one_under_lead(env, &mut log, family)?;
        }
        let chosen = vec![LAST_LEVEL; files.len()];
        let claimed = env.jobs.scheduler.wait_until(|jobs| {
            let is_free = check_below(family, jobs, files)?;
            let outputs = files.iter().map(|file| (LAST_LEVEL, file));
            Ok(Some(is_free.then(|| Claim::of_outputs(env, jobs, family.id, outputs, true))))
        });
        let Some(claim) = claimed? else { return Ok(None) };
        let numbers @ (_, last) = next_numbers(&log, files.len())?;
        note_in_log(env, &mut log, family, files, numbers)?;
        Ok(Some((lead, log, chosen, claim, last)))
    };
    let begun = begin().inspect_err(|_| remove(env, files))?;
    let Some((_lead, _log, levels, claim, last)) = begun else { return Ok(None) };
    let done = install(env, family, (files, levels), SeqNo::ZERO, None);
    drop(claim);
    // Release: a feed that reads this number finds the files.
    env.read.visible_seqno.store(last, Ordering::Release);
    done.map(Some)
}

/// The sequence numbers of `count` files.
fn next_numbers(log: &LogState, count: usize) -> Result<(SeqNo, SeqNo)> {
    let (first, last) = (log.last_seqno.next(), log.last_seqno + count as u64);
    match last < MAX_SEQNO {
        true => Ok((first, last)),
        false => Err(Error::InvalidArgument("all 2^56 sequence numbers are used up".into())),
    }
}

/// Says in the log, durably, that `files` are ingested: change feeds have nothing else of them. Each takes one of the
/// numbers from `first` to `last`.
fn note_in_log(
    env: &JobEnv,
    log: &mut LogState,
    family: &Family,
    files: &[Arc<FileMeta>],
    (first, last): (SeqNo, SeqNo),
) -> Result<()> {
    // Nothing that can be known before is left to the install.
    check_names(&*env.base.vfs, &env.base.dir, files.iter().map(|file| file.number))?;
    let bounds = files.iter().map(|file| (file.smallest.as_slice(), file.largest.as_slice()));
    let note = batch::of_ingestion(first, family.id, bounds);
    log_segments::append_unapplied(&env.commit, log, &note, last)?;
    kill_point("ingest:logged");
    Ok(())
}

fn shared(files: Vec<FileMeta>) -> Vec<Arc<FileMeta>> {
    files.into_iter().map(Arc::new).collect()
}

/// Removes files that will not be installed.
fn remove(env: &JobEnv, files: &[Arc<FileMeta>]) {
    let numbers = files.iter().map(|file| file.number);
    remove_unpublished(&env.base.vfs, &env.base.dir, numbers);
}

/// What the end of all files says, but for the sequence number.
fn stamp(env: &JobEnv, family: &Family) -> Stamp {
    Stamp {
        seqno: SeqNo::ZERO,
        // Above existing data, all that was written before is flushed.
        flushed_seqno: SeqNo::ZERO,
        family: family.options().family.clone(),
        created_ms: env.base.clock.wall_ms(),
    }
}

fn fresh_memtable(env: &JobEnv, family: &Family) -> Result<Arc<MemTable>> {
    let id = family.take_memtable_id();
    let fresh = MemTable::with_capacity(id, env.base.dynamic.memtable_bytes());
    let no_memory = |e| terrace_base::Error::io("reserve memory for", &env.base.dir, e);
    Ok(Arc::new(fresh.map_err(no_memory)?))
}

/// Installs files into the levels that were chosen and claimed for them.
fn install(
    env: &JobEnv,
    family: &Arc<Family>,
    (files, levels): (&[Arc<FileMeta>], Vec<usize>),
    seqno: SeqNo,
    fresh: Option<Arc<MemTable>>,
) -> Result<Ingested> {
    let placed = levels.iter().zip(files);
    let edit = FamilyEdit {
        id: family.id,
        flushed_seqno: (seqno > SeqNo::ZERO).then_some(seqno),
        added: placed.map(|(level, file)| (*level as u8, (**file).clone())).collect(),
        ..FamilyEdit::default()
    };
    let (flushed, segments) = (Vec::new(), Vec::new());
    let change = Change { family: family.clone(), edit, flushed, segments, fresh };
    install::install(&env.versions, vec![change])?;
    kill_point("ingest:installed");
    family.check_exists()?;
    let placed = levels.into_iter().zip(files);
    let placed = placed.map(|(level, file)| IngestedFile { level, size_bytes: file.size_bytes });
    Ok(Ingested {
        seqno: seqno.get(),
        files: placed.collect(),
        entry_count: files.iter().map(|f| f.entry_count + f.range_tombstone_count).sum(),
    })
}

/// Levels for files of these key ranges that are newer than all there is.
fn levels_above<'s>(
    family: &Family,
    jobs: &SchedulerState,
    spans: impl Iterator<Item = Span<'s>>,
) -> Vec<usize> {
    let version = family.state().version.clone();
    let (style, running) = (family.options().style, &jobs.running);
    let levels = Levels { family: family.id, version: &version, style, running };
    spans.map(|span| levels.above(&span)).collect()
}

/// Levels for files that are newer than all there is, claimed against compactions.
fn claim_above<'a>(
    env: &'a JobEnv,
    family: &Family,
    jobs: &mut SchedulerState,
    files: &[Arc<FileMeta>],
) -> (Vec<usize>, Claim<'a>) {
    let chosen = levels_above(family, jobs, files.iter().filter_map(|file| Span::of([file])));
    let outputs = chosen.iter().copied().zip(files);
    let claim = Claim::of_outputs(env, jobs, family.id, outputs, false);
    (chosen, claim)
}

/// Whether files that are older than all there is may go into the last level; not yet while a compaction has keys
/// of theirs.
///
/// # Errors
/// What is there is in the way.
fn check_below(family: &Family, jobs: &SchedulerState, files: &[Arc<FileMeta>]) -> Result<bool> {
    let version = family.state().version.clone();
    let (style, running) = (family.options().style, &jobs.running);
    let levels = Levels { family: family.id, version: &version, style, running };
    let spans = || files.iter().filter_map(|file| Span::of([file]));
    if !spans().all(|span| levels.has_room_below(&span)) {
        let text = format!(
            "the last level of `{}` has files in the key ranges of the ingested ones: they cannot lie below",
            family.name
        );
        return Err(Error::InvalidArgument(text));
    }
    if spans().any(|span| levels.is_compacted(&span)) {
        return Ok(false);
    }
    if spans().any(|span| levels.has_entries_without_number(&span)) {
        let text = format!(
            "entries of `{}` in the key ranges of the ingested files have lost their sequence numbers: nothing can lie \
             below them",
            family.name
        );
        return Err(Error::InvalidArgument(text));
    }
    Ok(true)
}
