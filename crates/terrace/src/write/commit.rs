//! Commit (put): writers queue, one leads for a group; the leader makes room,
//! numbers the batches, appends them to the log with one write,
//! fills the memtables, and makes the group visible. The next group may be led to the log as soon as this one
//! is on its way into the memtables ([`crate::write::queue`]). Batches with a read set that has changed
//! ([`crate::write::validate`]) are taken out of the group first.
//!
//! If any of them asked for a sync, the leader syncs for those that did: in a store that syncs every commit before anything is
//! visible, else when it has passed the lead on, so that others do not wait for the device.
//!
//! Invariants: sequence numbers are handed out in log order; what is visible is always a prefix
//! of the log; nothing is acknowledged before it is where its [`SyncMode`] wants it; a memtable
//! never holds what the log does not.

use crate::batch::{Op, Separation, WriteBatch};
use crate::error::{Error, Result};
use crate::kill_point::kill_point;
use crate::memory::family_totals::MemtableBytes;
use crate::memtable::{Gathered, MemTable};
use crate::metrics::{Sampled, add, sample};
use crate::options::{SyncMode, WriteOptions};
use crate::values::segment_length;
use crate::version::family::Family;
use crate::version::hot_table::HotTable;
use crate::version::read_env::family_of;
use crate::write::env::CommitEnv;
use crate::write::full_disk;
use crate::write::led::{Held, or_poison};
use crate::write::log_segments::{
    name_segments, next_segment, not_taken, sync, sync_beside_writers, sync_log, take_in_synced,
};
use crate::write::log_syncs::LogTail;
use crate::write::queue::{
    Entered, InsertState, InsertTurn, Lead, LogState, MemtableId, Pending, Waiter,
};
use crate::write::read_set::{ReadSet, Reads};
use crate::write::room::make_room;
use crate::write::stall;
use crate::write::validate;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_base::sync::{self, Instant, Note, Origin};
use terrace_base::{MAX_SEQNO, SeqNo};
use terrace_log::LogPosition;
use terrace_log::format::RECORD_HEADER_BYTES;
use terrace_skiplist::{Full, Hint};

/// Batches are gathered into a group up to this many bytes: large enough to share a sync, small
/// enough that the first writer does not wait long.
const GROUP_BYTES: usize = 1 << 20;

/// Bytes, and groups, that a leader commits for others after its own batch: some tens of microseconds.
const MORE_BYTES: usize = 64 << 10;
const MORE_GROUPS: usize = 8;

/// Writes `batch` and returns when it is visible and as durable as asked.
pub(crate) fn write(env: &CommitEnv, batch: WriteBatch, options: &WriteOptions) -> Result<()> {
    check_allowed(env, &batch)?;
    submit(env, batch, options, None)
}

/// As [`write`], if no key of `reads` has changed by the time it becomes visible; else `Conflict`.
pub(crate) fn write_if_unchanged(
    env: &CommitEnv,
    batch: WriteBatch,
    reads: &ReadSet,
    options: &WriteOptions,
) -> Result<()> {
    check_allowed(env, &batch)?;
    let reads = validate::ahead(&env.read, reads)?;
    submit(env, batch, options, Some(reads))
}

/// Whether `batch` may be written now: while the disk is full, one that only removes, or may use the reserve.
#[inline]
fn check_allowed(env: &CommitEnv, batch: &WriteBatch) -> Result<()> {
    match env.base.health.check_writable() {
        Err(Error::DiskFull(_)) if batch.is_taken_when_full() => Ok(()),
        allowed => allowed,
    }
}

/// What of a group may not be written, by index, ascending: batches whose read set has changed, while the disk is full those
/// that do not only remove, or what there is no room for ([`full_disk`]), and what cannot be durable.
fn refusals(env: &CommitEnv, lead: &Lead<'_>, group: &[Pending]) -> Vec<(usize, Error)> {
    if group.iter().any(|pending| pending.reads.is_some()) {
        // Whether a key has changed, the memtables say.
        lead.drain();
    }
    let mut unwritten = refused_for_room(env, lead, group);
    add_refusals(&mut unwritten, refused_for_name(env, group));
    let mut refused = validate::refusals(&env.read, group, |index| has(&unwritten, index));
    add_refusals(&mut refused, unwritten);
    refused
}

fn has(refused: &[(usize, Error)], index: usize) -> bool {
    refused.binary_search_by_key(&index, |(index, _)| *index).is_ok()
}

/// Adds to `refused` what of `more` is not there. Both are ascending.
fn add_refusals(refused: &mut Vec<(usize, Error)>, more: Vec<(usize, Error)>) {
    if more.is_empty() {
        return;
    }
    let others: Vec<_> = more.into_iter().filter(|(index, _)| !has(refused, *index)).collect();
    refused.extend(others);
    refused.sort_by_key(|(index, _)| *index);
}

/// What of a group is not written since it is to be synced and the name of the segment cannot be made durable, by index,
/// ascending: it is no reason to refuse the others. Where all are to be synced the append says so.
fn refused_for_name(env: &CommitEnv, group: &[Pending]) -> Vec<(usize, Error)> {
    let is_synced = |pending: &Pending| pending.sync == SyncMode::Batch;
    if !group.iter().any(is_synced) || group.iter().all(is_synced) {
        return Vec::new();
    }
    let Err(error) = name_segments(env) else { return Vec::new() };
    let synced = group.iter().enumerate().filter(|(_, pending)| is_synced(pending));
    synced.map(|(index, _)| (index, error.clone())).collect()
}

/// What of a group is not written since the disk is full, by index, ascending.
fn refused_for_room(env: &CommitEnv, lead: &Lead<'_>, group: &[Pending]) -> Vec<(usize, Error)> {
    let Err(error @ Error::DiskFull(_)) = env.base.health.check_writable() else {
        return Vec::new();
    };
    let of_keys = full_disk::admit(env, lead, group).err();
    let takes_few = of_keys.is_some() && full_disk::takes_few_bytes(env, group);
    let is_other =
        |batch: &WriteBatch| batch.is_taken_to_the_last() || (takes_few && batch.may_use_reserve());
    let why = |pending: &Pending| match &of_keys {
        _ if !pending.batch.is_taken_when_full() => Some(error.clone()),
        Some(why) if !is_other(&pending.batch) => Some(why.clone()),
        _ => None,
    };
    let refused =
        group.iter().enumerate().filter_map(|(index, pending)| Some((index, why(pending)?)));
    refused.collect()
}

#[inline]
fn submit(
    env: &CommitEnv,
    mut batch: WriteBatch,
    options: &WriteOptions,
    reads: Option<Reads>,
) -> Result<()> {
    let queue = env.queue()?;
    {
        let families = env.read.families.load();
        batch.seal(&*env.base.clock, &|id| {
            family_of(&families, id).map_or(Separation::OFF, |f| f.separation())
        })?;
        for id in batch.merged_families() {
            let family = family_of(&families, id);
            family.map_or(Ok(()), |family| family.check_merges())?;
        }
    }
    if batch.is_empty() {
        // Nothing to write, but what was written before is to be as durable as asked.
        return match options.sync.unwrap_or_else(|| env.base.dynamic.sync()) {
            SyncMode::Batch => sync(env),
            _ => Ok(()),
        };
    }
    if matches!(options.sync, Some(SyncMode::Interval(_))) {
        let text = "an interval is no durability of one write: set it for the store";
        return Err(Error::InvalidArgument(text.into()));
    }
    let start = (sample() == Sampled::Timed).then(Instant::now);
    let sync = options.sync.unwrap_or_else(|| env.base.dynamic.sync());
    let result = match queue.enter(Pending { batch, sync, reads, origin: Origin::here() }) {
        Entered::Done(result) => result,
        Entered::Leads(lead, own) => or_poison(env, |held| lead_group(env, &lead, own, held)),
    };
    if let Some(start) = start {
        env.base.counters.commit_latency.record_ns(start.elapsed().as_nanos() as u64);
    }
    result
}

/// Commits the leader's batch with those of the writers behind it, and a few more groups of those who came
/// meanwhile: to hand over the lead costs a wake-up where nobody is awake.
fn lead_group<'q>(
    env: &CommitEnv,
    lead: &Lead<'q>,
    own: Pending,
    held: &mut Held<'q>,
) -> Result<()> {
    let (own_bytes, own_syncs) = (own.batch.size_bytes(), own.sync == SyncMode::Batch);
    let families = env.read.families.load();
    stall::admit(env, lead, &families, own_bytes)?;
    // What waits for a device is for its own writer to wait for.
    let others = lead.gather(GROUP_BYTES.saturating_sub(own_bytes), false, |p| {
        own_syncs || p.sync != SyncMode::Batch
    });
    let result = commit_together(env, lead, &families, (Some(own), others), held);
    let mut left = if own_syncs || result.is_err() { 0 } else { MORE_BYTES };
    while left > 0 && !lead.is_passed_on() && !stall::may_hold_back(env) {
        let others = lead.gather(left, true, |p| p.sync != SyncMode::Batch && p.reads.is_none());
        if others.is_empty() {
            break;
        }
        let bytes: usize = others.iter().map(|(_, p)| p.batch.size_bytes()).sum();
        left = left.saturating_sub(bytes.max(MORE_BYTES / MORE_GROUPS));
        // Their writers hear how it went.
        let families = env.read.families.load();
        let _own: Result<()> = commit_together(env, lead, &families, (None, others), held);
    }
    result
}

/// Commits batches as one group, and tells the waiters of `others` how it went; gives the fate of `own`.
fn commit_together<'q>(
    env: &CommitEnv,
    lead: &Lead<'q>,
    families: &[Arc<Family>],
    (own, others): (Option<Pending>, Vec<(Arc<Waiter>, Pending)>),
    held: &mut Held<'q>,
) -> Result<()> {
    if others.is_empty() {
        let Some(own) = own else { return Ok(()) };
        let mut group = [own];
        return match refusals(env, lead, &group).pop() {
            Some((_, error)) => Err(error),
            None => {
                let unsynced = commit(env, lead, families, &mut group, &mut held.turn)?;
                sync_without_lead(env, lead, unsynced)
            }
        };
    }
    let own = own.map(|own| (None, own)).into_iter();
    let others = others.into_iter().map(|(waiter, pending)| (Some(waiter), pending));
    let (waiters, mut group): (Vec<_>, Vec<_>) = own.chain(others).unzip();
    held.waiters = waiters;
    let own_refusal = take_out(refusals(env, lead, &group), &mut group, &mut held.waiters);
    let committed = match group.is_empty() {
        true => Ok(None),
        false => commit(env, lead, families, &mut group, &mut held.turn),
    };
    if committed.is_ok() {
        tell_unsynced(&group, &mut held.waiters);
    }
    let result = committed.and_then(|unsynced| sync_without_lead(env, lead, unsynced));
    held.tell(&result);
    own_refusal.map_or(result, Err)
}

/// Tells those of a group that was committed who asked for no sync.
fn tell_unsynced(group: &[Pending], waiters: &mut [Option<Arc<Waiter>>]) {
    for (pending, waiter) in group.iter().zip(waiters) {
        if pending.sync != SyncMode::Batch
            && let Some(waiter) = waiter.take()
        {
            waiter.done(Ok(()));
        }
    }
}

/// Passes the lead on, and then makes durable what the group has left to be synced.
fn sync_without_lead(env: &CommitEnv, lead: &Lead<'_>, unsynced: Option<LogTail>) -> Result<()> {
    let Some(tail) = unsynced else { return Ok(()) };
    lead.pass_on();
    sync_beside_writers(env, tail)?;
    kill_point("commit:synced");
    Ok(())
}

/// Takes the refused batches out of a group and tells their waiters. The leader's own batch has none: gives
/// its refusal.
fn take_out(
    refused: Vec<(usize, Error)>,
    group: &mut Vec<Pending>,
    waiters: &mut Vec<Option<Arc<Waiter>>>,
) -> Option<Error> {
    let mut own = None;
    // From the back, so that the indices hold.
    for (index, error) in refused.into_iter().rev() {
        group.remove(index);
        match waiters.remove(index) {
            Some(waiter) => waiter.done(Err(error)),
            None => own = Some(error),
        }
    }
    own
}

/// Commits a group, and gives what of the log is still to be made durable for it. One that only removes is tried again
/// while jobs that end may have given room back: when a full disk says so, nothing of the group counts in the log, though a
/// short write may have left some of it there ([`not_taken`]). The next try goes into another segment.
fn commit<'q>(
    env: &CommitEnv,
    lead: &Lead<'q>,
    families: &[Arc<Family>],
    group: &mut [Pending],
    turn: &mut Option<InsertTurn<'q>>,
) -> Result<Option<LogTail>> {
    let mut until = None;
    for _ in 1..full_disk::TRIES {
        match commit_once(env, lead, families, group, turn) {
            Err(Error::DiskFull(_)) if group.iter().all(|p| p.batch.is_taken_when_full()) => {
                let until = *until.get_or_insert_with(full_disk::end_of_search);
                if !full_disk::find_room(env, lead, until)? {
                    break;
                }
            }
            outcome => return outcome,
        }
    }
    commit_once(env, lead, families, group, turn)
}

fn commit_once<'q>(
    env: &CommitEnv,
    lead: &Lead<'q>,
    families: &[Arc<Family>],
    group: &mut [Pending],
    held_turn: &mut Option<InsertTurn<'q>>,
) -> Result<Option<LogTail>> {
    // The state may have changed while this writer waited for its turn.
    env.base.health.check_may_free()?;
    let room_bytes: usize = group.iter().map(|p| p.batch.total_room_bytes()).sum();
    let _claim = env.read.table_cache.claim_for_memtables(room_bytes);
    let mut log = lead.log();
    make_room(env, lead, &mut log, families, group)?;
    let separated: usize = group.iter().map(|p| p.batch.separated().0).sum();
    if separated > 0 {
        prepare_for_values(env, &mut log)?;
    }
    let first = log.last_seqno + 1;
    let ops: u64 = group.iter().map(|p| p.batch.len() as u64).sum();
    let last = log.last_seqno + ops;
    if last >= MAX_SEQNO {
        return Err(Error::InvalidArgument("all 2^56 sequence numbers are used up".into()));
    }
    let (placed, unsynced) = append(env, &mut log, group, first)?;
    log.last_seqno = last;
    let turn = held_turn.insert(lead.insert_turn(room_bytes));
    drop(log);
    lead.pass_on_unless_asleep();
    sync::interleave();
    let inserted = insert_in_turn(env, turn, families, group, (first, last), placed);
    *held_turn = None;
    inserted?;
    sync::note(Note::Visible, group.iter().map(|p| p.origin));
    let c = &env.base.counters;
    add(&c.groups, 1);
    add(&c.batches, group.len() as u64);
    add(&c.ops_written, ops);
    add(&c.user_bytes, group.iter().map(|p| p.batch.user_bytes()).sum());
    if separated > 0 {
        add(&c.values_separated, separated as u64);
        add(&c.separated_bytes, group.iter().map(|p| p.batch.separated().1 as u64).sum());
    }
    Ok(unsynced)
}

/// Inserts the group and makes it visible.
fn insert_in_turn(
    env: &CommitEnv,
    turn: &mut InsertTurn<'_>,
    families: &[Arc<Family>],
    group: &[Pending],
    (first, last): (SeqNo, SeqNo),
    placed: LogPosition,
) -> Result<()> {
    if turn.state.failed {
        return Err(insert_failed(env, "a group before this one is not in the memtables"));
    }
    let inserted = insert(env, &mut turn.state, families, group, first, placed);
    turn.state.failed = inserted.is_err();
    inserted?;
    kill_point("commit:inserted");
    sync::interleave();
    // Release: a thread that reads this number finds the entries up to it.
    env.read.visible_seqno.store(last, Ordering::Release);
    Ok(())
}

/// Sees to it that the group's values can go into the log segment and be read from it.
fn prepare_for_values(env: &CommitEnv, log: &mut LogState) -> Result<()> {
    let full = log.writer.len_bytes() >= log.longest_bytes;
    if log.broken || (full && log.has_values) {
        next_segment(env, log)?;
    }
    if !log.has_values {
        let segment = log.writer.segment();
        if !segment.fits_handles() {
            let used_up = "the 2^32 file numbers of value segments are used up".into();
            return Err(Error::InvalidArgument(used_up));
        }
        let values_before = env.base.counters.separated_bytes.load(Ordering::Relaxed);
        env.read.value_log.begin(segment, values_before);
        let segment_bytes = env.base.options.advanced.segment_bytes;
        let log_bytes = env.read.value_log.live_bytes();
        let (vfs, dir) = (&*env.base.vfs, &*env.base.dir);
        log.longest_bytes = segment_length::longest_bytes(vfs, dir, segment_bytes, log_bytes);
        log.has_values = true;
    }
    Ok(())
}

/// Appends the group to the log with one write. Gives the segment and where in it the first batch lies, and, if any of
/// the group must be durable and is not, what of the log is to be synced for that.
fn append(
    env: &CommitEnv,
    log: &mut LogState,
    group: &mut [Pending],
    first: SeqNo,
) -> Result<(LogPosition, Option<LogTail>)> {
    if log.broken {
        next_segment(env, log)?;
    }
    take_in_synced(env, log)?;
    let is_synced = group.iter().any(|p| p.sync == SyncMode::Batch);
    if is_synced {
        // What fails here refuses the group, and none of it is in the log.
        name_segments(env)?;
    }
    let placed =
        LogPosition { segment: log.writer.segment(), offset: log.writer.next_payload_offset() };
    let (mut seqno, mut batch_at) = (first, placed.offset);
    for pending in group.iter_mut() {
        pending.batch.number(seqno);
        // A segment that takes values has a number of 32 bits.
        pending.batch.place(placed.segment, batch_at);
        seqno += pending.batch.len() as u64;
        batch_at += (pending.batch.size_bytes() + RECORD_HEADER_BYTES) as u64;
    }
    sync::note(Note::Logged, group.iter().map(|p| p.origin));
    let before = log.writer.len_bytes();
    // Separated values are read from the file.
    let is_handed = |p: &Pending| p.sync != SyncMode::Buffered || p.batch.separated().0 > 0;
    let through = env.base.options.sync == SyncMode::Buffered && group.iter().any(is_handed);
    let mut write = |payloads: &[&[u8]]| match through {
        true => log.writer.append_through(payloads),
        false => log.writer.append(payloads),
    };
    let appended = match &*group {
        [only] => write(&[only.batch.encoded()]),
        _ => write(&group.iter().map(|p| p.batch.encoded()).collect::<Vec<_>>()),
    };
    if let Err(error) = appended {
        return Err(not_taken(env, log, "append to the log", error));
    }
    log.dirty = true;
    kill_point("commit:logged");
    add(&env.base.counters.log_bytes, log.writer.len_bytes().saturating_sub(before));
    if !is_synced {
        return Ok((placed, None));
    }
    let last = seqno.previous();
    // Readers of a store that syncs every commit see nothing that a power cut takes back.
    let may_wait = env.base.dynamic.sync() != SyncMode::Batch;
    let unsynced = if may_wait { log.tail(last) } else { None };
    if unsynced.is_none() {
        sync_log(env, log)?;
        env.versions.log_history.note_synced(last);
        kill_point("commit:synced");
    }
    Ok((placed, unsynced))
}

/// Fills the memtables. Room was made before, so nothing here fails in a sound store.
fn insert(
    env: &CommitEnv,
    state: &mut InsertState,
    families: &[Arc<Family>],
    group: &[Pending],
    first: SeqNo,
    LogPosition { segment, offset: mut batch_at }: LogPosition,
) -> Result<()> {
    let mut target = Target::default();
    let mut gathered = Gathered::for_ops(group.iter().map(|p| p.batch.len()).sum());
    let full = |_| insert_failed(env, "a memtable is full although room was made");
    let mut seqno = first;
    for pending in group {
        for op in pending.batch.ops() {
            let Ok(op) = op else {
                return Err(insert_failed(env, "a batch of our own encoding is malformed"));
            };
            if target.id != Some(op.family) {
                target.settle(env, &mut gathered, state).map_err(full)?;
                target = Target::of(families, op.family, state);
                sync::interleave();
            }
            let placed = LogPosition { segment, offset: batch_at };
            target.take(&op, seqno, placed, &mut gathered, state).map_err(full)?;
            seqno += 1;
        }
        batch_at += (pending.batch.size_bytes() + RECORD_HEADER_BYTES) as u64;
    }
    target.settle(env, &mut gathered, state).map_err(full)
}

/// What takes operations of one family: nothing if the family was dropped meanwhile, which takes its
/// writes with it.
#[derive(Default)]
struct Target<'f> {
    id: Option<u32>,
    family: Option<&'f Family>,
    memtable: Option<Arc<MemTable>>,
    /// Takes the writes of its keys.
    hot: Option<Arc<HotTable>>,
    /// What both took before.
    before: MemtableBytes,
    /// Whether the memtable knows that it gets something.
    is_noted: bool,
}

impl Drop for Target<'_> {
    /// What was inserted counts, also where something could not be.
    fn drop(&mut self) {
        if let Some(family) = self.family {
            family.count_inserted(self.before, self.bytes());
        }
    }
}

impl<'f> Target<'f> {
    fn of(families: &'f [Arc<Family>], id: u32, state: &mut InsertState) -> Self {
        let family = family_of(families, id).filter(|family| !family.is_dropped());
        let family = family.map(|family| &**family);
        let (memtable, hot) = match family.map(|f| f.state()) {
            Some(state) => (Some(state.memtable.clone()), state.hot.clone()),
            None => (None, None),
        };
        if let Some(memtable) = &memtable {
            let insert_into = MemtableId { family: id, id: memtable.id };
            if state.hint_of != insert_into {
                state.hint_of = insert_into;
                state.hint = Hint::default();
            }
        }
        let before = MemtableBytes::default();
        let mut target = Self { id: Some(id), family, memtable, hot, before, is_noted: false };
        target.before = target.bytes();
        target
    }

    /// What its memtables take.
    fn bytes(&self) -> MemtableBytes {
        let Some(memtable) = &self.memtable else { return MemtableBytes::default() };
        let hot_bytes = self.hot.as_ref().map_or(0, |hot| hot.table.size_bytes());
        let (all, mutable) = (memtable.size_bytes() + hot_bytes, memtable.rotatable_bytes());
        MemtableBytes { all, mutable }
    }

    #[inline]
    fn take<'a>(
        &mut self,
        op: &Op<'a>,
        seqno: SeqNo,
        placed: LogPosition,
        gathered: &mut Gathered<'a>,
        state: &mut InsertState,
    ) -> std::result::Result<(), Full> {
        let Some(memtable) = &self.memtable else { return Ok(()) };
        if let Some(hot) = &self.hot
            && hot.takes(op, seqno)?
        {
            return Ok(());
        }
        match self.is_noted {
            true => memtable.note_seqno(seqno),
            false => memtable.note_commit(placed.segment, seqno),
        }
        self.is_noted = true;
        memtable.take(op, seqno, placed, gathered, &mut state.hint)
    }

    /// Inserts what was gathered for this memtable, and sees to it that there will be memory for more.
    fn settle(
        &self,
        env: &CommitEnv,
        gathered: &mut Gathered<'_>,
        state: &mut InsertState,
    ) -> std::result::Result<(), Full> {
        let Some(memtable) = &self.memtable else { return Ok(()) };
        memtable.settle(gathered, &mut state.hint)?;
        if let Some(memory) = memtable.memory_ahead() {
            env.jobs.scheduler.ahead.ask_for_memory(memory);
        }
        Ok(())
    }
}

fn insert_failed(env: &CommitEnv, what: &str) -> Error {
    let error = terrace_base::Error::corruption(&env.base.dir, 0, what);
    env.base.health.fail("fill a memtable", error)
}

#[cfg(test)]
mod tests;
