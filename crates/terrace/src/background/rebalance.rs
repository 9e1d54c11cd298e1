//! Moves the memory budget between memtables, block cache and filters, a small step every second or so by
//! the clock of the store, if [`MemorySplit::Auto`] says so; and divides a changed budget anew.
//!
//! Called by the house thread, in a read-only store by the thread that looks after models. What is in the
//! hands of each pool is where it always was: `DynamicOptions` for memtables, the table cache for blocks,
//! the filter budget for filters. The lock of the arbiter's state is held while that changes.

use crate::background::env::JobEnv;
use crate::memory::arbiter::{ArbiterState, Pending, Pool};
use crate::memory::filter_budget::signed;
use crate::memory::pool_gains::{self, DeviceCosts, PoolFacts, PoolGains};
use crate::metrics::trends::{Counts, Growth};
use crate::options::{DEFAULT_MEMTABLE_BYTES, MemorySplit, Options};
use crate::version::read_env::ReadEnv;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_arbiter::{Decision, PoolReading, gains};
use terrace_manifest::LEVEL_COUNT;

/// A pool keeps one part in this many of its share of `memory_shares`, so that the first seconds of other
/// traffic do not find it empty: memory comes back by small steps only.
const FLOOR_PART: usize = 3;
/// Parts of a changed budget that memtables and blocks get at least.
const MIN_PART: u64 = 32;
/// Memtables never get more than this many full ones of the largest size.
const MOST_MEMTABLES: u64 = 4;
/// Moves are multiples of a page.
const GRAIN_BYTES: u64 = 4096;
/// One key in this many is watched by the cache's ghost list.
const GHOST_SAMPLE: f64 = 8.0;
/// How far the measured flow of writes, and the price of filters, may be off.
const WRITE_NOISE: f64 = 0.15;
const FILTER_NOISE: f64 = 0.1;
/// A pool that leaves less than one part in this many unused is full.
const UNUSED_PART: u64 = 16;

/// What the store has counted since the open.
pub(crate) fn counts(read: &ReadEnv) -> Counts {
    let c = &read.base.counters;
    let reads = read.table_cache.counters().snapshot();
    let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let (get_samples, get_ns) = c.get_latency.total();
    let (_, compaction_ns) = c.compaction_latency.total();
    Counts {
        lookups: c.gets.get(),
        seeks: read.table_cache.seeks().get(),
        block_hits: reads.data_block_hits,
        block_misses: reads.data_block_misses,
        ghost_hits: read.table_cache.cache().stats().ghost_hits,
        memtable_bytes: get(&c.user_bytes).saturating_sub(get(&c.separated_bytes)),
        flush_bytes: get(&c.flush_bytes),
        compaction_bytes: get(&c.compaction_read_bytes) + get(&c.compaction_written_bytes),
        compaction_ns,
        get_samples,
        get_ns,
    }
}

/// What one MiB more would save in each pool, and what that was reckoned with.
pub(crate) fn measure(read: &ReadEnv, all: &Counts, growth: &Growth) -> (PoolGains, PoolFacts) {
    let base = &read.base;
    let cache = read.table_cache.cache().stats();
    let filters = read.filters.memory();
    // What is fixed for tests and simulations is not to depend on how fast the machine is.
    let costs = match base.options.advanced.model_costs {
        Some(_) => DeviceCosts::default(),
        None => DeviceCosts::measured(all, &growth.counts),
    };
    let facts = PoolFacts {
        memtables_bytes: base.dynamic.memtables_bytes() as u64,
        memtable_bytes: base.dynamic.memtable_bytes() as u64,
        largest_level_bytes: largest_level_bytes(read),
        ghost_bytes: cache.ghost_bytes,
        evictions: cache.evictions,
        allocator: base.options.advanced.filter_allocator,
        lambda: filters.lambda,
        lent_bytes: filters.lent_bytes() as u64,
        costs,
    };
    (pool_gains::of(all, growth, &facts), facts)
}

/// The bytes of the largest level, all families together.
fn largest_level_bytes(read: &ReadEnv) -> u64 {
    let mut levels = [0; LEVEL_COUNT];
    for family in read.families.load().iter() {
        for (sum, level) in levels.iter_mut().zip(family.state().version.levels()) {
            *sum += level.files().iter().map(|file| file.size_bytes).sum::<u64>();
        }
    }
    levels.into_iter().max().unwrap_or(0)
}

/// Lets the arbiter take a step if it is time for one and the budget is to move.
pub(crate) fn step(env: &JobEnv) {
    let base = &env.base;
    let now_us = base.clock.monotonic_us();
    let mut state = env.arbiter.lock();
    settle(env, &mut state);
    if base.dynamic.memory_split() != MemorySplit::Auto || !state.is_due(now_us) {
        return;
    }
    let all = counts(&env.read);
    let Some((at_us, before)) = state.begin_step(now_us, &all) else { return };
    // What is measured beside a device that is full or broken says nothing; nor is there anything to
    // decide before the last move is done.
    if base.health.is_disk_full() || base.health.is_poisoned() || state.pending.is_some() {
        return;
    }
    let seconds = (now_us - at_us) as f64 / 1e6;
    let growth = Growth { counts: all.since(&before), seconds };
    let readings = readings(env, &all, &growth);
    let total = readings.iter().map(|pool| pool.bytes).sum();
    let decision = state.policy.step(total, &readings);
    state.note(decision);
    if let Decision::Move(moved) = decision {
        let (from, to) = (Pool::ALL[moved.from], Pool::ALL[moved.to]);
        let bytes = moved.bytes as usize;
        let left = pool_bytes(env, from).saturating_sub(bytes);
        set_pool_bytes(env, from, left);
        state.pending = Some(Pending { from, to, bytes });
        settle(env, &mut state);
    }
}

fn readings(env: &JobEnv, all: &Counts, growth: &Growth) -> [PoolReading; 3] {
    let base = &env.base;
    let (gains, facts) = measure(&env.read, all, growth);
    let memory_budget = base.dynamic.memory_budget();
    let budget = memory_budget as u64;
    let floors = opened_shares(&Options { memory_budget, ..base.options.clone() });
    let cache = env.read.table_cache.cache();
    let (cache_used, cache_most) = (cache.used_bytes() as u64, cache.capacity_bytes() as u64);
    let pinned = env.read.table_cache.pinned_bytes() as u64;
    let filters = env.read.filters.memory();
    // Sizes that were asked for, and the log that a reader has replayed, stay as they are.
    let memtables_move = base.options.advanced.memtable_bytes == 0 && !base.read_only;
    Pool::ALL.map(|pool| {
        let bytes = pool_bytes(env, pool) as u64;
        let reading = PoolReading {
            name: pool.name(),
            bytes,
            floor_bytes: ((floors[pool as usize] / FLOOR_PART) as u64).min(bytes),
            ceiling_bytes: budget,
            gain: None,
            noise: 0.0,
            is_full: true,
            grain_bytes: GRAIN_BYTES,
        };
        match pool {
            Pool::Memtables => PoolReading {
                ceiling_bytes: (MOST_MEMTABLES * DEFAULT_MEMTABLE_BYTES as u64).max(bytes),
                gain: gains.memtables.filter(|_| memtables_move),
                noise: WRITE_NOISE,
                ..reading
            },
            Pool::Blocks => PoolReading {
                // What is pinned is taken from its share, and cannot be evicted.
                floor_bytes: (reading.floor_bytes + pinned).min(bytes),
                gain: gains.blocks,
                noise: gains::counting_noise(growth.counts.ghost_hits as f64, GHOST_SAMPLE),
                is_full: cache_used + cache_most / UNUSED_PART >= cache_most,
                ..reading
            },
            Pool::Filters => PoolReading {
                gain: gains.filters,
                noise: FILTER_NOISE,
                is_full: facts.lent_bytes == 0
                    && filters.used_bytes as u64 + bytes / UNUSED_PART >= bytes,
                ..reading
            },
        }
    })
}

/// The second half of a move, as soon as the pool that gave does without.
fn settle(env: &JobEnv, state: &mut ArbiterState) {
    let Some(Pending { from, to, bytes }) = state.pending else { return };
    let used = match from {
        Pool::Memtables => env.read.memtable_bytes(),
        // A smaller cache is smaller at once.
        Pool::Blocks => 0,
        Pool::Filters => {
            let filters = env.read.filters.memory();
            filters.used_bytes + filters.lent_bytes()
        }
    };
    if used <= pool_bytes(env, from) {
        set_pool_bytes(env, to, pool_bytes(env, to) + bytes);
        state.pending = None;
    }
}

fn pool_bytes(env: &JobEnv, pool: Pool) -> usize {
    match pool {
        Pool::Memtables => env.base.dynamic.memtables_bytes(),
        Pool::Blocks => env.read.table_cache.cache_share_bytes(),
        Pool::Filters => env.read.filters.memory().budget_bytes,
    }
}

fn set_pool_bytes(env: &JobEnv, pool: Pool, bytes: usize) {
    match pool {
        Pool::Memtables => {
            let asked = env.base.options.advanced.memtable_bytes;
            env.base.dynamic.set_memtables_bytes(bytes, asked);
        }
        Pool::Blocks => {
            // Filters have no more of a smaller one than it may do without; a larger one waits until they have given back.
            let before = env.read.filters.memory().loan_bytes;
            let loan = match bytes < env.read.table_cache.cache_share_bytes() {
                true => before.max(-signed(env.read.table_cache.most_borrowed_bytes(bytes))),
                false => before,
            };
            env.read.table_cache.set_cache_memory(bytes, loan);
            if loan != before {
                env.read.filters.confirm_loan(loan);
            }
        }
        Pool::Filters => {
            env.read.filters.set_budget_bytes(bytes);
            // Else the cache would have what another pool gets, or what filters use still.
            let memory = env.read.filters.memory();
            let free = bytes.saturating_sub(memory.used_bytes);
            if memory.lent_bytes() > free {
                env.read.table_cache.lend(signed(free));
                env.read.filters.confirm_loan(signed(free));
            }
        }
    }
}

/// Changes the budget to that of `options`. The pools get the shares that they were opened with or, if the
/// budget moves, as much of it as they have of the old one.
pub(crate) fn set_budget(env: &JobEnv, options: &Options) {
    let mut state = env.arbiter.lock();
    give_back_pending(env, &mut state);
    env.read.table_cache.end_memtable_loan();
    let split = shares(env, options);
    env.base.dynamic.set_memory_budget(options.memory_budget);
    for (pool, bytes) in Pool::ALL.into_iter().zip(split) {
        set_pool_bytes(env, pool, bytes);
    }
}

/// Lets the budget move from now on or, as it was opened, stay.
pub(crate) fn set_split(env: &JobEnv, split: MemorySplit) {
    let mut state = env.arbiter.lock();
    give_back_pending(env, &mut state);
    let before = env.base.dynamic.set_memory_split(split);
    env.read.table_cache.end_memtable_loan();
    if split == MemorySplit::Auto {
        // What filters have borrowed is theirs from now on, until the arbiter moves it.
        let blocks = pool_bytes(env, Pool::Blocks);
        let kept = env.read.filters.keep_borrowed();
        if kept > 0 {
            env.read.table_cache.set_cache_memory(blocks.saturating_sub(kept), 0);
        }
    }
    if split == MemorySplit::Fixed && before != split {
        let memory_budget = env.base.dynamic.memory_budget();
        let options = Options { memory_budget, ..env.base.options.clone() };
        for (pool, bytes) in Pool::ALL.into_iter().zip(shares(env, &options)) {
            set_pool_bytes(env, pool, bytes);
        }
    }
}

/// Bytes for each pool from the budget of `options`.
fn shares(env: &JobEnv, options: &Options) -> [usize; 3] {
    let opened = opened_shares(options);
    // With filters in the cache, or sizes that were asked for, there may be nothing to scale.
    if env.base.dynamic.memory_split() == MemorySplit::Fixed {
        return opened;
    }
    let all: usize = opened.iter().sum();
    let have = Pool::ALL.map(|pool| pool_bytes(env, pool));
    let sum = have.iter().sum::<usize>().max(1) as f64;
    let part = |at: usize| (have[at] as f64 / sum * all as f64) as usize;
    let floor = all / MIN_PART as usize;
    let memtables = part(0).max(floor);
    let memtables = memtables.min(all);
    let filters = part(2).min(all.saturating_sub(memtables + floor));
    [memtables, all - memtables - filters, filters]
}

/// What a store that is opened with `options` gives each pool.
fn opened_shares(options: &Options) -> [usize; 3] {
    [options.memtables_bytes(), options.cache_bytes(), options.filter_bytes()]
}

/// A move that is half done is given up: what the giver does not have any more, it gets again.
fn give_back_pending(env: &JobEnv, state: &mut ArbiterState) {
    if let Some(Pending { from, bytes, .. }) = state.pending.take() {
        set_pool_bytes(env, from, pool_bytes(env, from) + bytes);
    }
}
