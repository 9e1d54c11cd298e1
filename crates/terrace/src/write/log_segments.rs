//! The segments of the commit log: the next one is begun, what is in them becomes durable, and those
//! that no memtable needs any more are let go of. Called by the commit's leader, by flush, by open and
//! by the house thread.

use crate::batch;
use crate::env::reserve;
use crate::error::{Error, Result};
use crate::kill_point::kill_point;
use crate::metrics::add;
use crate::options::SyncMode;
use crate::values::segment_length;
use crate::version::install;
use crate::version::log_history::{HistorySegment, Retention};
use crate::write::count_written::count_segments;
use crate::write::env::CommitEnv;
use crate::write::flush_room::FlushRoom;
use crate::write::led::sync_or_poison;
use crate::write::log_syncs::{Asked, LogTail};
use crate::write::queue::{Lead, LogState};
use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_base::sync::Instant;
use terrace_base::{SegmentNumber, SeqNo};
use terrace_log::{LogOptions, LogPosition, LogWriter, Recovered, SegmentFile};
use terrace_manifest::names;
use terrace_vfs::{MOST_ZEROS_AHEAD_BYTES, Vfs};

/// Reports that the kernel did not take records, while `doing` this. Nothing more goes into this segment. Those of a failed
/// append are refused, and before anybody learns that, what they have left is cut off. One of them can stand whole in the file, and somebody who
/// reads beside this writer, or recovers after a kill, would take it for written. A reader that comes between the append
/// and the cut may do so until its next refresh. If the cut fails, such records are seen until the next segment says
/// where this one ends. What a buffered log still holds was acknowledged, and goes into that one.
pub(crate) fn not_taken(
    env: &CommitEnv,
    log: &mut LogState,
    doing: &str,
    error: terrace_base::Error,
) -> Error {
    log.broken = true;
    let error = env.base.health.fail(doing, error);
    // Of a store that takes no more writes it is unknown what was written, and stays so.
    if !env.base.health.is_poisoned() {
        let _ = log.writer.take_back();
    }
    error
}

/// Finishes the segment and starts another one, which names the place where this one ends. A memtable
/// knows by then that it needs the segment.
pub(crate) fn next_segment(env: &CommitEnv, log: &mut LogState) -> Result<()> {
    // `close` has led before another process may open the directory.
    env.base.health.check_open()?;
    env.queue()?.drain();
    take_in_synced(env, log)?;
    // Of several without durable names a power cut could leave a newer one only.
    name_segments(env)?;
    if !log.broken {
        let finished = log.writer.finish();
        log.broken = true;
        finished.map_err(|error| not_taken(env, log, "finish a log segment", error))?;
    }
    make_room_for_held(env, log.writer.held_bytes())?;
    let fresh = create_segment(env, log.writer.end())?;
    kill_point("segment:started");
    env.queue()?.names.begin(fresh.segment());
    env.jobs.scheduler.ahead.ask_for_names();
    let mut old = std::mem::replace(&mut log.writer, fresh);
    log.broken = false;
    log.has_values = false;
    // What was acknowledged and did not get into the old segment is the first in this one.
    let carried = log.writer.carry_over(&mut old);
    let carried = carried.and_then(|payload| batch::decode(&payload).map(|(first, ..)| first));
    let number = log.writer.segment();
    let first_seqno = carried.unwrap_or_else(|| log.last_seqno.next());
    if old.segment() == SegmentNumber::ZERO {
        // There was none: see `unfinished_log`.
        log.dirty = false;
        env.versions.log_history.begin(number, first_seqno, old.end());
        return Ok(());
    }
    // Up to its end: what a failed append had in hand is not in the file, or no part of the log.
    let LogPosition { segment, offset } = old.end();
    log.segments.push_back((segment, offset));
    // The new segment names this one: without records too its header must not be torn.
    let end = old.end();
    if log.dirty || !old.is_synced() {
        env.queue()?.push_unsynced(old);
    }
    // After that: what counts as full is synced, or will be by the next sync of full segments.
    env.versions.log_history.begin(number, first_seqno, end);
    Ok(())
}

/// As [`next_segment`], where what was written before is to be durable before something newer: that syncs full segments only.
/// So what a full disk has left in the process, which is carried over and in none of them, is synced here.
pub(crate) fn end_segment(env: &CommitEnv, log: &mut LogState) -> Result<()> {
    next_segment(env, log)?;
    match log.writer.holds_records() {
        true => sync_log(env, log),
        false => Ok(()),
    }
}

/// Sees to it that a new segment can take `held_bytes` that were acknowledged and did not get into the one before: with the
/// room of the reserve, if it needs that. Without room every try would leave a segment without records.
fn make_room_for_held(env: &CommitEnv, held_bytes: u64) -> Result<()> {
    let (vfs, dir) = (&*env.base.vfs, &*env.base.dir);
    if held_bytes == 0 || vfs.free_space_bytes(dir).unwrap_or(u64::MAX) >= held_bytes {
        return Ok(());
    }
    // The house thread sets some of it aside again.
    let released = reserve::release(vfs, dir);
    released.map_err(|error| env.base.health.fail("give the reserve back", error))?;
    if vfs.free_space_bytes(dir).unwrap_or(u64::MAX) >= held_bytes {
        return Ok(());
    }
    let error = io::Error::from(io::ErrorKind::StorageFull);
    let error = terrace_base::Error::io("append to the log in", dir, error);
    Err(env.base.health.fail("start a log segment", error))
}

/// Makes the names of all log segments durable that were begun so far, if they are not: before anything in them is called
/// durable, before the manifest says that the log begins with one, and before another one is begun. Needs no lead.
pub(crate) fn name_segments(env: &CommitEnv) -> Result<()> {
    let (doing, health) = ("name a log segment", &env.base.health);
    let names = &env.queue()?.names;
    let named = names.make_durable(&*env.base.vfs, &env.base.dir);
    named.map_err(|error| match error.is_failed_sync() {
        // Also for want of room: records may be in the segment whose name is lost.
        true => health.poison(doing, error),
        false => health.fail(doing, error),
    })
}

/// Creates a log segment. Its name does not survive a power cut yet: the sync of a directory takes milliseconds, and writers
/// wait here. See [`name_segments`].
fn create_segment(env: &CommitEnv, previous: LogPosition) -> Result<LogWriter> {
    let previous = Some(previous).filter(|end| end.segment > SegmentNumber::ZERO);
    // On a full disk room that is set aside for later records is room that deletions do not have: the first attempt
    // that fails says that it is full, and the second one would take all of the reserve.
    let mut is_short = env.base.health.is_disk_full();
    let make = || {
        let free_bytes = match std::mem::replace(&mut is_short, true) {
            true => 0,
            // Unknown room is no reason to set less aside.
            false => env.base.vfs.free_space_bytes(&env.base.dir).unwrap_or(u64::MAX),
        };
        let options = with_room(env.base.options.log(), free_bytes);
        let vfs = &*env.base.vfs;
        loop {
            let number = env.versions.next_file_number();
            let path = names::log_path(&env.base.dir, number.segment());
            let made = LogWriter::create_after(vfs, &path, number.segment(), &options, previous);
            match &made {
                // Somebody has put it there since the store was opened.
                Err(error) if error.is_already_there() => continue,
                // Without records, and nothing continues it: whether it stays makes no difference.
                Err(_) => drop(vfs.remove(&path)),
                Ok(_) => {}
            }
            return made;
        }
    };
    // The log is what deletions need.
    let reserve_bytes = env.base.dynamic.reserve_bytes();
    let made = reserve::with_reserve(&*env.base.vfs, &env.base.dir, reserve_bytes, make);
    made.map_err(|error| env.base.health.fail("start a log segment", error))
}

/// How a segment is written that begins with `free_bytes` on the disk: where that is little, little is set aside for later records,
/// and no zeros go ahead of them.
pub(crate) fn with_room(mut options: LogOptions, free_bytes: u64) -> LogOptions {
    let aside = |wanted_bytes| segment_length::preallocated_bytes(free_bytes, wanted_bytes);
    options.preallocate_bytes = aside(options.preallocate_bytes);
    options.zeros_ahead &= aside(MOST_ZEROS_AHEAD_BYTES) == MOST_ZEROS_AHEAD_BYTES;
    options
}

/// The log of a store for which there was no room to begin another one: `segments` are still in
/// force as far as they were `replayed`, and the first write starts a segment that continues them. Gives the
/// segments that may not be durable besides.
pub(crate) fn unfinished_log(
    vfs: &Arc<dyn Vfs>,
    segments: &[SegmentFile],
    replayed: &Recovered,
    last_seqno: SeqNo,
) -> terrace_base::Result<(LogState, Vec<LogWriter>)> {
    let finished = |path: &Path, end: LogPosition| LogWriter::finished(vfs.clone(), path, end);
    let mut full = VecDeque::new();
    let mut unsynced = Vec::new();
    let end = replayed.end;
    let last = end.unwrap_or_default().segment;
    // Those after the end were dropped, and those that no link leads to end nowhere.
    for file in segments.iter().filter(|file| file.number < last) {
        let known = replayed.ends.iter().find(|end| end.segment == file.number);
        let end = known.copied().map_or_else(
            || vfs.len(&file.path).map(|offset| LogPosition { segment: file.number, offset }),
            Ok,
        )?;
        full.push_back((end.segment, end.offset));
        unsynced.push(finished(&file.path, end));
    }
    let path = segments.iter().find(|file| file.number == last).map(|file| file.path.as_path());
    // The memtables are flushed although no write has ended the last segment, and SSTs will refer to
    // its values.
    if let (Some(path), Some(end)) = (path, end) {
        unsynced.push(finished(path, end));
    }
    let log = LogState {
        writer: finished(path.unwrap_or(Path::new("")), end.unwrap_or_default()),
        has_values: false,
        longest_bytes: 0,
        segments: full,
        last_seqno,
        // What was replayed may not be on the device.
        dirty: end.is_some(),
        synced: Instant::now(),
        broken: true,
        flush_room: FlushRoom::default(),
    };
    Ok((log, unsynced))
}

/// The segments of [`unfinished_log`] as change feeds read them.
pub(crate) fn unfinished_history(replayed: &Recovered) -> Vec<HistorySegment> {
    let segment = |end: &LogPosition| HistorySegment {
        number: end.segment,
        end: Some(end.offset),
        first_seqno: None,
    };
    replayed.sound_ends().iter().map(segment).collect()
}

/// The log of a store that was just recovered: the segments before `segment` are out of force. It continues
/// the history of the log at `previous`, if that is known. With `states_number` it says durably, by a batch
/// without operations, which sequence number comes next: the next open can then be sure that nothing is
/// missing between the two.
pub(crate) fn first_log(
    vfs: &dyn Vfs,
    dir: &Path,
    (segment, previous): (SegmentNumber, Option<LogPosition>),
    (last_seqno, states_number): (SeqNo, bool),
    options: &LogOptions,
) -> terrace_base::Result<LogState> {
    let path = names::log_path(dir, segment);
    let writer = LogWriter::create_after(vfs, &path, segment, options, previous);
    let mut writer = writer.map_err(|error| match error.is_already_there() {
        // The number is above those of all files, and whether it may be passed over nobody knows: a link may lead to what is
        // not mounted.
        true => {
            let why = "what has the name of the next log segment is no file; move it away, or let \
                       `terrace repair` move it to lost/";
            let source = io::Error::new(io::ErrorKind::AlreadyExists, why);
            terrace_base::Error::io("create", &path, source)
        }
        false => error,
    })?;
    if states_number {
        writer.append(&[&batch::without_ops(last_seqno.next())])?;
        writer.sync()?;
    }
    vfs.sync_dir(dir)?;
    Ok(LogState {
        writer,
        has_values: false,
        longest_bytes: 0,
        segments: VecDeque::new(),
        last_seqno,
        dirty: false,
        synced: Instant::now(),
        broken: false,
        flush_room: FlushRoom::default(),
    })
}

/// Makes everything appended so far durable, older segments first so that there is never a hole.
pub(crate) fn sync_log(env: &CommitEnv, log: &mut LogState) -> Result<()> {
    // A sync is noted in the evidence, which may be another process's once the store is closed.
    env.base.health.check_open()?;
    hand_over_under_lead(env, log)?;
    sync_full_segments(env)?;
    let synced = match log.broken {
        // The failed append is no part of the log; what stands before it is.
        true => log.writer.sync_to_end().map(drop),
        false => log.writer.sync(),
    };
    synced.map_err(|error| env.base.health.poison("sync the log", error))?;
    let end = log.writer.end();
    log.writer.note_synced(end);
    log.dirty = false;
    log.synced = Instant::now();
    note_durable(env, end, log.last_seqno);
    Ok(())
}

/// Notes a sync: the log is durable up to `end`, the numbers up to `last` with it.
fn note_durable(env: &CommitEnv, end: LogPosition, last: SeqNo) {
    env.versions.evidence.note_log(end, last);
    env.versions.log_history.note_synced(last);
    add(&env.base.counters.log_syncs, 1);
}

/// Makes the full segments of the log durable, and the name of the one that is being written. For a flush, which must not wait for the lead: its
/// file may be durable only after what was written before to other families.
pub(crate) fn sync_full_segments(env: &CommitEnv) -> Result<()> {
    let upto = env.versions.log_history.last_full_seqno();
    name_segments(env)?;
    let synced = env.queue()?.sync_full_segments();
    synced.map_err(|error| env.base.health.poison("sync the log", error))?;
    env.versions.log_history.note_synced(upto);
    Ok(())
}

/// Appends a record that no memtable takes, with numbers up to `last`, and makes the log durable.
pub(crate) fn append_unapplied(
    env: &CommitEnv,
    log: &mut LogState,
    payload: &[u8],
    last: SeqNo,
) -> Result<()> {
    if log.broken {
        next_segment(env, log)?;
    }
    name_segments(env)?;
    if let Err(error) = log.writer.append_through(&[payload]) {
        return Err(not_taken(env, log, "append to the log", error));
    }
    // Whatever becomes of the caller, the log has these numbers.
    log.last_seqno = last;
    log.dirty = true;
    sync_log(env, log)
}

/// Makes the log durable and starts a new segment, so that all earlier ones are immutable and durable: also one without
/// records, which a copy of the store proves to be there by its own segment.
pub(crate) fn seal_segment(env: &CommitEnv, log: &mut LogState) -> Result<()> {
    if is_dirty(env, log)? || !log.writer.is_synced() {
        sync_log(env, log)?;
    }
    next_segment(env, log)
}

/// Makes what was written so far durable. Others write meanwhile.
pub(crate) fn sync(env: &CommitEnv) -> Result<()> {
    let lead = env.queue()?.lead();
    env.base.health.check_open()?;
    let tail = {
        let mut log = lead.log();
        if !is_dirty(env, &mut log)? {
            return Ok(());
        }
        hand_over_under_lead(env, &mut log)?;
        let tail = log.tail(log.last_seqno);
        match tail {
            Some(tail) => tail,
            None => return sync_log(env, &mut log),
        }
    };
    drop(lead);
    name_segments(env)?;
    sync_beside_writers(env, tail)
}

/// Makes the log durable up to `tail`, in which all segments have durable names, while others append: one at a time, for all
/// who wait for no more than that. What fails stops writes: readers may see what is in the log.
pub(crate) fn sync_beside_writers(env: &CommitEnv, tail: LogTail) -> Result<()> {
    let (queue, end, last) = (env.queue()?, tail.end, tail.last);
    let (history, evidence) = (&env.versions.log_history, &env.versions.evidence);
    // Of what a flush has synced meanwhile, since the segment has ended, there is no evidence.
    let is_over = || match history.synced() >= last && evidence.claims().log >= end {
        true => Some(Ok(())),
        // Nor after a close is anything written, as evidence is after a sync: the close has synced all of it, or failed.
        false => env.base.health.check_may_free().err().map(Err),
    };
    let (turn, LogTail { file, end, last }) = match queue.syncs.ask(tail, is_over) {
        Asked::Over(result) => return result,
        Asked::Syncs(turn, tail) => (turn, tail),
    };
    // Older segments first, so that there is never a hole.
    let sync = || queue.sync_full_segments().and_then(|()| file.sync());
    sync_or_poison(env, sync).map_err(|error| env.base.health.poison("sync the log", error))?;
    note_durable(env, end, last);
    // Only now may somebody find that nothing is left to be synced.
    turn.note_done(end, last);
    Ok(())
}

/// Takes in what was made durable without the lead: the next record says so.
pub(crate) fn take_in_synced(env: &CommitEnv, log: &mut LogState) -> Result<()> {
    let Some((end, last)) = env.queue()?.syncs.take_done() else { return Ok(()) };
    if end.segment == log.writer.segment() {
        log.writer.note_synced(end);
    }
    log.dirty &= last < log.last_seqno;
    Ok(())
}

/// Closes the store for writes: what was acknowledged so far is durable, and all that comes later is
/// refused. Under the lead, so that no write can come in between.
pub(crate) fn end(env: &CommitEnv) -> Result<()> {
    let queue = env.queue()?;
    let lead = queue.lead();
    // Evidence of a sync without the lead is written behind it, and may be another process's once the store is closed.
    let _turn = queue.syncs.turn();
    let synced = sync_under_lead(env, &mut lead.log());
    env.base.health.close();
    synced
}

/// Syncs the log if anything was appended since the last sync; the caller has the lead.
pub(crate) fn sync_under_lead(env: &CommitEnv, log: &mut LogState) -> Result<()> {
    match is_dirty(env, log)? {
        true => sync_log(env, log),
        false => Ok(()),
    }
}

/// Whether anything was appended since the last sync.
///
/// # Errors
/// What was acknowledged may never have reached the log.
fn is_dirty(env: &CommitEnv, log: &mut LogState) -> Result<bool> {
    if env.base.health.is_poisoned() {
        env.base.health.check_writable()?;
    }
    take_in_synced(env, log)?;
    Ok(log.dirty)
}

/// Hands what a buffered log still holds to the kernel.
pub(crate) fn hand_over(env: &CommitEnv) -> Result<()> {
    let lead = env.queue()?.lead();
    env.base.health.check_open()?;
    hand_over_under_lead(env, &mut lead.log())
}

/// As [`hand_over`], again and again: what a full disk has refused once waits until there is room.
pub(crate) fn hand_over_now_and_then(env: &CommitEnv) -> Result<()> {
    let lead = env.queue()?.lead();
    env.base.health.check_open()?;
    hand_over_if_it_may_go(env, &mut lead.log())
}

fn hand_over_if_it_may_go(env: &CommitEnv, log: &mut LogState) -> Result<()> {
    // Another segment for it would take what the reserve keeps for deletions.
    match log.broken && env.base.health.is_disk_full() {
        true => Ok(()),
        false => hand_over_under_lead(env, log),
    }
}

/// What is done for the log now and then, for a leader who waits: nobody else can do it meanwhile. Costs nothing
/// until it is time.
pub(crate) fn settle(env: &CommitEnv, log: &mut LogState) -> Result<()> {
    match env.base.dynamic.sync() {
        SyncMode::Interval(interval) if log.synced.elapsed() >= interval => {
            sync_under_lead(env, log)
        }
        _ if env.base.options.sync == SyncMode::Buffered => hand_over_if_it_may_go(env, log),
        _ => Ok(()),
    }
}

fn hand_over_under_lead(env: &CommitEnv, log: &mut LogState) -> Result<()> {
    if log.broken {
        if !log.writer.holds_records() {
            return Ok(());
        }
        next_segment(env, log)?;
    }
    let handed = log.writer.flush();
    handed.map_err(|error| not_taken(env, log, "write the log", error))
}

/// Lets go of log segments that no memtable needs any more: those with values that SSTs refer to
/// become value segments, the others are deleted, or kept for change feeds as long as these may have them. The
/// manifest says first that they are out of force: what a crash leaves of them, or of their removal,
/// then means nothing.
pub(crate) fn retire_segments(env: &CommitEnv) -> Result<()> {
    retire(env, None)
}

/// As [`retire_segments`], for the leader once what is in the log is in the memtables.
pub(crate) fn retire_segments_under_lead(env: &CommitEnv, lead: &Lead<'_>) -> Result<()> {
    retire(env, Some(lead))
}

/// Gives the log to `f`, under `lead` or one that is taken for that.
fn with_log<T>(
    env: &CommitEnv,
    lead: Option<&Lead<'_>>,
    f: impl FnOnce(&mut LogState) -> T,
) -> Result<T> {
    match lead {
        Some(lead) => Ok(f(&mut lead.log())),
        None => {
            let lead = env.queue()?.lead();
            Ok(f(&mut lead.log()))
        }
    }
}

fn retire(env: &CommitEnv, lead: Option<&Lead<'_>>) -> Result<()> {
    if env.versions.deletions_held.load(Ordering::SeqCst) > 0 {
        return Ok(());
    }
    let (needed, flushed) = with_log(env, lead, |log| {
        let families = env.read.families.load();
        let needed =
            families.iter().filter(|f| !f.is_dropped()).filter_map(|f| f.first_segment()).min();
        let needed = needed.unwrap_or_else(|| log.writer.segment());
        let flushed = log.segments.iter().take_while(|(number, _)| *number < needed);
        (needed, flushed.copied().collect::<Vec<_>>())
    })?;
    // Read once: what is kept is what was made durable for that. What is kept for nobody leaves the history at once:
    // no feed that is opened from here on finds it.
    let is_disk_full = env.base.health.is_disk_full();
    let limit_bytes = if is_disk_full { 0 } else { env.base.dynamic.log_retention_bytes() };
    let retention = Retention { limit_bytes, in_force: needed, regardless: is_disk_full };
    let trim_older = || {
        let mut dropped = trim_history(env, retention);
        // Those are still in the log, and are let go of with it.
        dropped.retain(|number| !flushed.iter().any(|(n, _)| n == number));
        dropped
    };
    let mut older = trim_older();
    let keeps = env.versions.log_history.begins_before(needed);
    let mut retired = Vec::new();
    if !flushed.is_empty() {
        // What change feeds are to find after a power cut is linked through the headers of these segments, also of
        // those without records. The next open may keep them all, whatever is kept now.
        let synced = match keeps {
            true => sync_full_segments(env),
            // The manifest is to name the oldest one that is needed, which a power cut must not take.
            false => name_segments(env),
        };
        let told =
            synced.and_then(|()| install::retire_log_before(&env.versions, needed, &flushed));
        if let Err(error) = told {
            // They are in no list any more.
            install::drop_log_segments(&env.versions, &older);
            return Err(error);
        }
        kill_point("retire:out_of_force");
        let queue = env.queue()?;
        let is_held = with_log(env, lead, |log| {
            // A checkpoint lists the segments while it leads: those it saw stay, and are retired another time.
            if env.versions.deletions_held.load(Ordering::SeqCst) > 0 {
                return true;
            }
            while let Some((number, _)) = log.segments.front().copied()
                && number < needed
            {
                log.segments.pop_front();
                retired.push(number);
            }
            queue.forget_unsynced(needed);
            false
        })?;
        if is_held {
            install::drop_log_segments(&env.versions, &older);
            return Ok(());
        }
    }
    older.extend(trim_older());
    if retired.is_empty() && older.is_empty() {
        return Ok(());
    }
    count_segments(env, &retired, false);
    retired.extend(older);
    install::drop_log_segments(&env.versions, &retired);
    Ok(())
}

/// Takes segments out of the history that change feeds read, as far as it must not keep them.
fn trim_history(env: &CommitEnv, retention: Retention) -> Vec<SegmentNumber> {
    env.versions.log_history.trim(retention, |number| env.read.value_log.has(number))
}

#[cfg(test)]
mod tests;
