//! The background threads: one flushes, one keeps house, one looks after the log, one does ahead what writers and readers will need, one looks after filters, one after models, the others compact. Each is a loop of
//! "find a job, run it, wake the waiters".
//!
//! The flush thread never waits for the lead of the write queue: a leader may be waiting for a
//! flush. Whatever needs the lead is done by the house thread, or that of the log.

use crate::background::ahead;
use crate::background::bound_log::{self, LastWrite};
use crate::background::compact;
use crate::background::env::{AFTER_ERROR, JobEnv};
use crate::background::flush;
use crate::background::full_disk::{LastLook, look_for_room};
use crate::background::gc;
use crate::background::hot_checkpoint;
use crate::background::log_care;
use crate::background::rebalance;
use crate::background::train_models::Learner;
use crate::env::reserve;
use crate::error::{ErrorSeverity, Result};
use crate::jobs::background_errors::Work;
use crate::memory::filter_budget::{CacheFacts, Loan};
use crate::memory::memtable_loan::MemtableLoan;
use crate::memory::packing::Packing;
use crate::memory::table_cache::TableCache;
use crate::metrics::add;
use crate::options::{MemorySplit, compaction_threads};
use crate::version::family::Family;
use crate::version::install;
use crate::write::log_segments;
use crate::write::room;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use terrace_base::caught::{discard, message_of};
use terrace_base::sync::{Instant, thread};
use terrace_manifest::FileMeta;

/// How often the house thread frees files, looks at the disk, at what the log keeps; and how long a thread
/// without work sleeps at most.
const TICK: Duration = Duration::from_millis(100);

/// How often the filter budget takes a step while there are lookups, and how long its thread
/// sleeps at most without.
const FILTER_TICK: Duration = Duration::from_millis(50);
/// It rests this many times as long as the step before was busy, loads aside, if that is longer.
const FILTER_RESTS: u32 = 20;
const LONGEST_FILTER_REST: Duration = Duration::from_millis(800);

/// How often files and levels are looked at for models while there are lookups, and how long that
/// thread sleeps at most without.
const LEARN_TICK: Duration = Duration::from_millis(50);
/// It rests this many times as long as it was busy, if that is longer.
const LEARN_RESTS: u32 = 4;
const LONGEST_LEARN_REST: Duration = Duration::from_millis(800);

/// How often the heat of filters is saved.
const SAVE_HEAT_EVERY: Duration = Duration::from_secs(300);

/// How often the house thread looks whether the reserve is whole.
const RESERVE_TICK: Duration = Duration::from_secs(1);
/// The same where nothing could be set aside.
const NO_RESERVE_TICK: Duration = Duration::from_secs(600);

/// The threads of a store.
pub(crate) struct Workers {
    threads: Vec<thread::JoinHandle<()>>,
}

/// What a thread does.
type ThreadWork = Box<dyn FnOnce() + Send>;

/// A thread that was asked for.
type Spawned = io::Result<thread::JoinHandle<()>>;

/// The name of a thread, and what it does until the store stops.
type Loop = (String, fn(&JobEnv));

/// The threads that `env` needs.
fn loops(env: &JobEnv) -> Vec<Loop> {
    let mut loops: Vec<Loop> = Vec::new();
    if env.read.filters.is_elastic() {
        loops.push(("terrace-filters".into(), filter_loop));
    }
    // Families with models may be created later.
    loops.push(("terrace-learn".into(), learn_loop));
    loops.push(("terrace-ahead".into(), ahead::run));
    if env.base.read_only {
        return loops;
    }
    loops.push(("terrace-flush".into(), flush_loop));
    loops.push(("terrace-house".into(), house_loop));
    loops.push(("terrace-log".into(), log_care::run));
    for n in 1..=compaction_threads(env.base.options.background_jobs) {
        loops.push((format!("terrace-compact-{n}"), compaction_loop));
    }
    loops
}

impl Workers {
    /// Starts the threads; for a read-only store only those that look after filters and
    /// models, and the one that waits for the system in place of readers.
    ///
    /// # Errors
    /// The system has no thread to give. Those that were started have ended.
    pub fn start(env: &Arc<JobEnv>) -> Result<Self> {
        Self::start_by(env, |name, work| thread::Builder::new().name(name).spawn(work))
    }

    fn start_by(
        env: &Arc<JobEnv>,
        mut spawn: impl FnMut(String, ThreadWork) -> Spawned,
    ) -> Result<Self> {
        let mut workers = Self { threads: Vec::new() };
        if !env.base.read_only {
            let threads = compaction_threads(env.base.options.background_jobs);
            let mut jobs = env.jobs.scheduler.lock();
            (jobs.compaction_threads, jobs.wanted_compaction_threads) = (threads, threads);
        }
        for one in loops(env) {
            if let Err(error) = workers.start_one(env, one, &mut spawn) {
                env.jobs.scheduler.stop();
                workers.join();
                return Err(error);
            }
        }
        Ok(workers)
    }

    fn start_one(
        &mut self,
        env: &Arc<JobEnv>,
        (name, run): Loop,
        spawn: &mut impl FnMut(String, ThreadWork) -> Spawned,
    ) -> Result<()> {
        let shared = env.clone();
        let work = {
            let name = name.clone();
            move || run_or_poison(&shared, &name, run)
        };
        let thread = spawn(name, Box::new(work));
        let no_thread = |e| terrace_base::Error::io("start a thread for", &env.base.dir, e);
        self.threads.push(thread.map_err(no_thread)?);
        Ok(())
    }

    /// Has as many threads merge as the options ask for now: starts those that are missing; those over that end when they
    /// have done what they do.
    ///
    /// # Errors
    /// The system has no thread to give; then fewer merge.
    pub fn fit(&mut self, env: &Arc<JobEnv>) -> Result<()> {
        self.fit_by(env, |name, work| thread::Builder::new().name(name).spawn(work))
    }

    fn fit_by(
        &mut self,
        env: &Arc<JobEnv>,
        mut spawn: impl FnMut(String, ThreadWork) -> Spawned,
    ) -> Result<()> {
        if env.base.read_only {
            return Ok(());
        }
        self.let_ended_go();
        let wanted = compaction_threads(env.base.dynamic.options().background_jobs);
        env.jobs.scheduler.lock().wanted_compaction_threads = wanted;
        env.jobs.scheduler.wake();
        loop {
            let number = {
                let mut jobs = env.jobs.scheduler.lock();
                if jobs.compaction_threads >= wanted {
                    return Ok(());
                }
                // Before it runs, and finds how many there are.
                jobs.compaction_threads += 1;
                jobs.compaction_threads
            };
            let name = format!("terrace-compact-{number}");
            if let Err(error) = self.start_one(env, (name, compaction_loop), &mut spawn) {
                env.jobs.scheduler.lock().compaction_threads -= 1;
                return Err(error);
            }
        }
    }

    /// Lets go of threads that have ended: each keeps its stack until it is joined.
    fn let_ended_go(&mut self) {
        let ended = self.threads.extract_if(.., |thread| thread.is_finished());
        ended.for_each(|thread| thread.join().unwrap_or_else(discard));
    }

    /// Waits until all have ended; the caller told them to stop.
    pub fn join(self) {
        for thread in self.threads {
            // `run_or_poison` has seen to a panic; the rest must still end.
            thread.join().unwrap_or_else(discard);
        }
    }
}

/// Runs a loop. If it panics, what it was changing may be half done and its work is done no more: the
/// store is poisoned, and waiters for a job get the error.
fn run_or_poison(env: &JobEnv, name: &str, run: fn(&JobEnv)) {
    let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(env))) else { return };
    let said = message_of(panic);
    let why = format!("the thread {name} panicked: {said}");
    let error = terrace_base::Error::io("work on", &env.base.dir, io::Error::other(why));
    env.base.health.poison("run a background thread", error);
    add(&env.base.counters.background_errors, 1);
    env.jobs.scheduler.job_ended();
    resume_unwind(Box::new(said));
}

fn flush_loop(env: &JobEnv) {
    let mut oldest_first = false;
    while !env.jobs.scheduler.is_stopping() {
        if let Some(family) = next_flush(env, oldest_first)
            && let Some(_running) = RunningFlush::begin(env, family.id)
        {
            oldest_first = !oldest_first;
            let done = match family.state().immutables.is_empty() {
                true => hot_checkpoint::run(env, &family),
                false => flush::run(env, &family),
            };
            match done {
                Ok(_) => {
                    env.jobs.errors.succeeded(Work::Flush, family.id, std::iter::empty());
                }
                Err(error) => {
                    env.base.report("flush", &error);
                    if error.severity() < ErrorSeverity::Fatal {
                        let now_us = env.base.clock.monotonic_us();
                        env.jobs.errors.job_failed(Work::Flush, family.id, &error, now_us);
                    }
                }
            }
            continue;
        }
        let mut jobs = env.jobs.scheduler.lock();
        if next_flush(env, oldest_first).is_none() && !env.jobs.scheduler.is_stopping() {
            env.jobs.scheduler.wait_for_work(&mut jobs, TICK);
        }
    }
}

/// A flush that the scheduler knows of until this is dropped, be it by a panic.
struct RunningFlush<'a> {
    env: &'a JobEnv,
    family: u32,
}

impl<'a> RunningFlush<'a> {
    /// `None` if only merges may run by now, or nothing may begin: who decides that holds the lock and has seen that no
    /// flush runs.
    fn begin(env: &'a JobEnv, family: u32) -> Option<Self> {
        let mut jobs = env.jobs.scheduler.lock();
        if !env.base.health.may_flush() {
            return None;
        }
        jobs.flushing.insert(family);
        Some(Self { env, family })
    }
}

impl Drop for RunningFlush<'_> {
    fn drop(&mut self) {
        self.env.jobs.scheduler.lock().flushing.remove(&self.family);
        self.env.jobs.scheduler.job_ended();
    }
}

/// The family with the most immutable memtables, if any waits and flushing makes sense, or the one that needs the oldest
/// log: by turns, so that a family which fills memtables all the time does not keep another from being flushed. Or one
/// whose hot table is due for a checkpoint.
fn next_flush(env: &JobEnv, oldest_first: bool) -> Option<Arc<Family>> {
    // While the disk is full it may free the log.
    if env.base.health.check_may_free().is_err() || !env.base.health.may_flush() {
        return None;
    }
    let families = env.read.families.load();
    let now_us = env.base.clock.monotonic_us();
    let waiting = families.iter().filter(|f| {
        (!f.state().immutables.is_empty() || hot_checkpoint::is_due(f))
            && !f.is_dropped()
            && env.jobs.errors.may_begin(Work::Flush, f.id, now_us)
    });
    match oldest_first {
        true => waiting.min_by_key(|f| f.first_segment()).cloned(),
        false => waiting.max_by_key(|f| f.state().immutables.len()).cloned(),
    }
}

fn compaction_loop(env: &JobEnv) {
    let scheduler = &env.jobs.scheduler;
    while !scheduler.is_stopping() && !scheduler.lock().lets_one_end() {
        let generation = scheduler.lock().generation;
        // What failed is not chosen again before its pause is over.
        let looked = match compact::run_next(env) {
            Ok(None) => continue,
            Ok(took) => took,
            Err(error) => {
                env.base.report("compaction", &error);
                None
            }
        };
        let mut jobs = scheduler.lock();
        match looked {
            _ if scheduler.is_stopping() => {}
            None => scheduler.wait_for_work(&mut jobs, TICK),
            Some(took) => {
                let breath = jobs.breath_after_look(took);
                scheduler.rest(&mut jobs, breath, || env.base.health.is_disk_full());
                let rest = jobs.rest_after_look(took, TICK);
                scheduler.wait_for_work_since(&mut jobs, generation, rest);
            }
        }
    }
}

fn house_loop(env: &JobEnv) {
    let mut last_look = LastLook::default();
    let mut last_write = LastWrite::default();
    let mut purge_at = Instant::now();
    let mut reserve_at = Instant::now();
    let mut next_step = gc::NextStep::now();
    let mut pinned = TableCache::pin(&env.read.table_cache, 0);
    let mut packing = Packing::default();
    while !env.jobs.scheduler.is_stopping() {
        env.pause(TICK);
        // A file that stays holds up nothing else.
        if Instant::now() >= purge_at && !env.purge() {
            purge_at = Instant::now() + AFTER_ERROR;
        }
        pinned.resize(env.read.bytes_to_pin());
        rebalance::step(env);
        packing.step(env.read.table_cache.cache());
        if env.base.health.is_disk_full() {
            env.attempt("look for room", || look_for_room(env, &mut last_look));
        } else {
            last_look.not_full(env);
            if Instant::now() >= reserve_at {
                // What fails, for want of descriptors perhaps, may succeed soon.
                let may_be = set_reserve_aside(env).unwrap_or(true);
                reserve_at = Instant::now() + if may_be { RESERVE_TICK } else { NO_RESERVE_TICK };
            }
        }
        if env.base.health.check_may_free().is_err() {
            continue;
        }
        if env.base.health.is_disk_full() {
            env.attempt("bound the log", || bound_log::on_full_disk(env));
            env.attempt("retire log segments", || log_segments::retire_segments(&env.commit));
            // With the room that there is now.
            gc::step(env);
            continue;
        }
        if env.read.value_log.is_used() {
            // A little at a time, so that a flush finds little left to wait for.
            let sync = || log_segments::sync_full_segments(&env.commit);
            env.attempt("sync full log segments", sync);
        }
        // Also when the last segment has just gone: writers would wait for its garbage.
        let drop_dead = || install::drop_dead_segments(&env.versions);
        next_step.take(env, || env.attempt("drop value segments", drop_dead));
        env.attempt("retire log segments", || log_segments::retire_segments(&env.commit));
        env.attempt("bound the log", || bound_log::run(env, &mut last_write));
        env.attempt("bound the memtables", || bound_memtables(env));
    }
}

/// Makes the reserve whole again after the log or the manifest has used some of it, if there is much more room than that
/// and nothing runs that could take it. False if that cannot be done here.
fn set_reserve_aside(env: &JobEnv) -> Result<bool> {
    let (vfs, dir) = (&*env.base.vfs, &*env.base.dir);
    let bytes = env.base.dynamic.reserve_bytes();
    if bytes == 0 || reserve::kept_bytes(vfs, dir)? >= bytes {
        return Ok(true);
    }
    env.base.health.check_writable()?;
    let free = vfs.free_space_bytes(dir)?;
    if free < bytes.saturating_mul(4) || !env.jobs.scheduler.lock().is_quiet() {
        return Ok(true);
    }
    // What is kept is given up for a moment: not where it is unknown what there is.
    Ok(free < u64::MAX
        && reserve::take(vfs, dir, bytes)?
        && reserve::kept_bytes(vfs, dir)? >= bytes)
}

/// Lets the filter budget take a step while there are lookups, new files, or work left over, and
/// saves what it knows now and then; without any of these it only looks at a counter now and then.
fn filter_loop(env: &JobEnv) {
    let open = |file: &FileMeta| match env.read.table_cache.has_room() {
        true => env.read.table_cache.reader_for_work(file).ok(),
        false => None,
    };
    let (mut seen, mut seen_blocks, mut groups, mut rest) = (0, 0, 0, FILTER_TICK);
    let mut saved = Instant::now();
    let mut memtable_loan = MemtableLoan::default();
    while !env.jobs.scheduler.is_stopping() {
        let lookups = env.base.counters.gets.get();
        let written = env.base.counters.groups.load(Ordering::Relaxed);
        let calm = is_calm(env, std::mem::replace(&mut groups, written) == written);
        let blocks = blocks_read(env);
        let reads = lookups != seen || std::mem::replace(&mut seen_blocks, blocks) != blocks;
        let busy = reads || env.read.filters.has_work(calm);
        if busy || rest == FILTER_TICK {
            seen = lookups;
            let progress = env.read.filters.step(lookups, calm, &open);
            lend_memtables(env, &mut memtable_loan);
            let lends = pass_loan_on(env);
            rest = match busy || progress.more || lends {
                true => FILTER_TICK.max(progress.took * FILTER_RESTS),
                false => rest * 2,
            };
        } else {
            rest = (rest * 2).min(LONGEST_FILTER_REST);
        }
        if saved.elapsed() >= SAVE_HEAT_EVERY {
            saved = Instant::now();
            install::save_filter_heat(&env.versions);
        }
        let mut jobs = env.jobs.scheduler.lock();
        if !env.jobs.scheduler.is_stopping() {
            env.jobs.scheduler.wait_for_end(&mut jobs, rest);
        }
    }
    install::save_filter_heat(&env.versions);
}

/// Lets the learner take a step while there are lookups or something waits to be trained. Of a read-only store, which has no
/// house thread and may have none for filters, this one looks after the memory, also while nobody reads.
fn learn_loop(env: &JobEnv) {
    let (mut learner, mut packing) = (Learner::default(), Packing::default());
    let (mut seen, mut rest) = (0, LEARN_TICK);
    let mut pinned = TableCache::pin(&env.read.table_cache, 0);
    while !env.jobs.scheduler.is_stopping() {
        if env.base.read_only {
            pinned.resize(env.read.bytes_to_pin());
            rebalance::step(env);
            packing.step(env.read.table_cache.cache());
        }
        let lookups = env.base.counters.gets.get();
        let asked = std::mem::replace(&mut seen, lookups) != lookups;
        let start = Instant::now();
        let busy = learner.step(env);
        rest = match asked || busy {
            true => LEARN_TICK.max(start.elapsed() * LEARN_RESTS),
            false => (rest * 2).min(LONGEST_LEARN_REST),
        };
        let wake = Instant::now() + rest;
        let mut jobs = env.jobs.scheduler.lock();
        // Jobs that end are no reason to look earlier.
        while !env.jobs.scheduler.is_stopping() && Instant::now() < wake {
            env.jobs
                .scheduler
                .wait_for_end(&mut jobs, wake.saturating_duration_since(Instant::now()));
        }
    }
}

/// Whether no file is being written, and none is about to be as far as one can see.
fn is_calm(env: &JobEnv, nothing_written: bool) -> bool {
    let jobs = env.jobs.scheduler.lock();
    jobs.is_quiet() && (nothing_written || jobs.settling > 0)
}

/// Lends the block cache a little of what filters do not need, or borrows a little of it; whether there may
/// be more to change.
fn pass_loan_on(env: &JobEnv) -> bool {
    // Who looks at the pools sees both sides of the loan, or none; and the budget stays what it is planned by.
    let _arbiter = env.arbiter.lock();
    match env.read.filters.plan_loan(&cache_facts(env)) {
        Loan::AsItIs => false,
        Loan::Soon => true,
        Loan::Change(bytes) => {
            env.read.table_cache.lend(bytes);
            env.read.filters.confirm_loan(bytes);
            true
        }
    }
}

/// Lends the block cache a little more of what memtables do not use. A budget that moves is the arbiter's alone, and
/// the memtables of a read-only store are not known to shrink.
fn lend_memtables(env: &JobEnv, loan: &mut MemtableLoan) {
    let _arbiter = env.arbiter.lock();
    let base = &env.base;
    if base.read_only || base.dynamic.memory_split() != MemorySplit::Fixed {
        return;
    }
    let reads = env.read.table_cache.counters().snapshot();
    let accesses = base.counters.gets.get().max(reads.data_block_hits + reads.data_block_misses);
    let share = base.dynamic.memtables_bytes();
    let table_cache = &env.read.table_cache;
    let used = || table_cache.claimed_bytes() + env.read.memtable_bytes();
    table_cache.lend_from_memtables(loan, accesses, used(), share);
    // A write that began meanwhile may have found the loan as it was.
    table_cache.give_back_to_memtables(used(), share);
}

/// What is to be known of the block cache to borrow from it. A budget that moves is the arbiter's alone.
fn cache_facts(env: &JobEnv) -> CacheFacts {
    let cache = env.read.table_cache.cache().stats();
    let reads = env.read.table_cache.counters().snapshot();
    CacheFacts {
        lookups: env.base.counters.gets.get(),
        wasted: reads.wasted_lookups,
        block_hits: reads.data_block_hits,
        block_misses: reads.data_block_misses,
        ghost_hits: cache.ghost_hits,
        ghost_bytes: cache.ghost_bytes,
        evictions: cache.evictions,
        capacity_bytes: cache.capacity_bytes,
        most_borrowed_bytes: match env.base.dynamic.memory_split() {
            MemorySplit::Fixed => {
                let share = env.read.table_cache.cache_share_bytes();
                env.read.table_cache.most_borrowed_bytes(share)
            }
            MemorySplit::Auto => 0,
        },
    }
}

/// Blocks that were read so far, if that is a reason to look at loans: scans alone may need the memory that memtables
/// do not use, or that filters borrow.
fn blocks_read(env: &JobEnv) -> u64 {
    let may_lend = !env.base.read_only && env.base.dynamic.memory_split() == MemorySplit::Fixed;
    if !may_lend && env.read.filters.memory().borrowed_bytes() == 0 {
        return 0;
    }
    let reads = env.read.table_cache.counters().snapshot();
    reads.data_block_hits + reads.data_block_misses
}

/// Flushes memtables that are larger than what they may be since their memory shrank: a write makes
/// room itself, but there may be none.
fn bound_memtables(env: &JobEnv) -> Result<()> {
    let dynamic = &env.base.dynamic;
    // What a write has made large beside sizes that stay is left to the next write, and to `bound_log` if it is very large.
    if !dynamic.take_large_memtables() && dynamic.memory_split() == MemorySplit::Fixed {
        return Ok(());
    }
    let most = dynamic.memtable_bytes();
    // Small steps are left to the next write, which does it without dissolving the hot table.
    let slack = most / 8;
    let families = env.read.families.load_full();
    let is_large = |f: &&Arc<Family>| f.state().memtable.size_bytes() > most + slack;
    let mut large: Vec<_> = families.iter().filter(is_large).cloned().collect();
    // Or all of them are too much together, with hot tables, and nothing is on its way out.
    let are_too_much = env.read.memtable_bytes() > dynamic.memtables_bytes();
    if large.is_empty()
        && are_too_much
        && families.iter().all(|family| family.state().immutables.is_empty())
    {
        large.extend(families.iter().max_by_key(|family| family.memtable_bytes()).cloned());
    }
    if are_too_much || !large.is_empty() {
        // There may be more of them.
        dynamic.note_large_memtables();
    }
    match large.is_empty() {
        true => Ok(()),
        false => room::rotate_all(&env.commit, &large).map(drop),
    }
}

#[cfg(test)]
mod tests;
