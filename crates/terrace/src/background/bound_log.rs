//! Which families are flushed for the sake of the log, although their memtables are not full (flush). A memtable keeps the
//! log from its first write on, and with it all values that others have written and overwritten since: one that is
//! seldom written would keep as much of them as the disk has.
//!
//! - Garbage among the values of the log is held by such memtables up to the floor of garbage collection
//!   (`values/garbage`). Beyond that, those that need the oldest segments are flushed, until what the others hold is
//!   half of it. So a family is flushed for this once per half a floor of values at most, and leaves one small file in its L0 each
//!   time. A full disk is rid of all such garbage at once, and an idle store of all but an eighth of the floor.
//! - The log as a whole, values or not, has some times the memory of memtables.
//! - A batch that is larger than all memtables together may be has memtables of its own size, one in each family, which the next
//!   writes make immutable. If none come they are flushed all the same, or an idle store would be over its budget for ever.

use crate::background::env::JobEnv;
use crate::background::gc;
use crate::error::{Error, Result};
use crate::values::open_log::OpenLog;
use crate::version::family::Family;
use crate::write::log_segments;
use crate::write::room;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_base::SegmentNumber;

/// Live log bytes, in memtable shares, past which the family that needs the oldest segment is
/// flushed.
const MAX_LOG_SHARES: u64 = 4;
/// Of the floor this part stays held when memtables have been flushed for it.
const KEPT_PARTS: u64 = 2;
/// An idle store holds one part in this many of the floor at most.
const IDLE_PARTS: u64 = 8;
/// A store that committed nothing for this long is idle.
const IDLE_AFTER_US: u64 = 400_000;
/// A hot table that is written has a checkpoint before the log since the last one has this many times the bytes of a memtable:
/// one that needs more is not written any more.
const HOT_MEMTABLES: u64 = 8;

/// When something was written last.
#[derive(Debug, Default)]
pub(super) struct LastWrite {
    groups: u64,
    /// `None` before the first look.
    since_us: Option<u64>,
}

impl LastWrite {
    /// Whether nothing has been committed for a while.
    fn is_idle(&mut self, env: &JobEnv) -> bool {
        let groups = env.base.counters.groups.load(Ordering::Relaxed);
        let is_quiet = self.is_quiet(groups, env.base.clock.monotonic_us());
        is_quiet && env.base.dynamic.compact_when_idle()
    }

    /// A look at `now_us` finds `groups` committed.
    fn is_quiet(&mut self, groups: u64, now_us: u64) -> bool {
        if std::mem::replace(&mut self.groups, groups) != groups {
            self.since_us = None;
        }
        now_us.saturating_sub(*self.since_us.get_or_insert(now_us)) >= IDLE_AFTER_US
    }
}

/// Held garbage: from how much on memtables are flushed for it, and how much is left then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bounds {
    most_bytes: u64,
    kept_bytes: u64,
}

impl Bounds {
    fn of(floor_bytes: u64, is_idle: bool) -> Self {
        match is_idle {
            true => Self { most_bytes: floor_bytes / IDLE_PARTS, kept_bytes: 0 },
            false => Self { most_bytes: floor_bytes, kept_bytes: floor_bytes / KEPT_PARTS },
        }
    }
}

/// Begins the flushes that the log needs now.
pub(super) fn run(env: &JobEnv, last: &mut LastWrite) -> Result<()> {
    let is_idle = last.is_idle(env);
    if let Some(floor_bytes) = env.garbage.floor_bytes() {
        release(env, Bounds::of(floor_bytes, is_idle))?;
    }
    release_oversized(env)?;
    bound_length(env)
}

/// The same on a full disk. Without room for another segment of the log a later look tries it again.
pub(super) fn on_full_disk(env: &JobEnv) -> Result<()> {
    match release(env, Bounds { most_bytes: 0, kept_bytes: 0 }) {
        Err(Error::DiskFull(_)) => Ok(()),
        released => released,
    }
}

/// Makes the memtables immutable that hold too much garbage.
fn release(env: &JobEnv, bounds: Bounds) -> Result<()> {
    let open = gc::open_log(env);
    if open.held_bytes() <= bounds.most_bytes {
        return Ok(());
    }
    let families = env.read.families.load_full();
    if !families.iter().any(|family| holder(env, family, &open, bounds).is_some()) {
        return Ok(());
    }
    let lead = env.commit.queue()?.lead();
    let mut log = lead.log();
    for family in families.iter() {
        match holder(env, family, &open, bounds) {
            None => {}
            // What is hot stays so.
            Some(Holder::Memtable) => room::rotate(&env.commit, &mut log, family, 0)?,
            Some(Holder::HotTable) => {
                room::rotate_under_lead(&env.commit, &mut log, family).map(drop)?;
            }
        }
    }
    Ok(())
}

/// Makes the largest memtable immutable if those that can be are together larger than all may be. One at a look, and none while
/// another waits for its flush: that comes first, may have failed, and writers of all families would wait for it behind this thread.
fn release_oversized(env: &JobEnv) -> Result<()> {
    let totals = env.read.table_cache.totals();
    let are_oversized = || {
        totals.memtables().mutable > env.base.dynamic.memtables_bytes() && totals.waiting.is_empty()
    };
    if !are_oversized() {
        return Ok(());
    }
    let lead = env.commit.queue()?.lead();
    let mut log = lead.log();
    // A writer may have made room meanwhile.
    if !are_oversized() {
        return Ok(());
    }
    let families = env.read.families.load_full();
    let there = families.iter().filter(|family| !family.is_dropped());
    match there.max_by_key(|family| family.state().memtable.rotatable_bytes()) {
        Some(largest) => room::rotate(&env.commit, &mut log, largest, 0),
        None => Ok(()),
    }
}

/// What of a family holds garbage and can be made immutable.
enum Holder {
    Memtable,
    HotTable,
}

/// What of `family` holds more garbage of `open` than is kept; `None` also while memtables of it wait for their flush, which
/// comes first and may have failed.
fn holder(env: &JobEnv, family: &Family, open: &OpenLog, bounds: Bounds) -> Option<Holder> {
    let state = family.state();
    if family.is_dropped() || !state.immutables.is_empty() {
        return None;
    }
    let holds = |first: SegmentNumber| open.held_bytes_since(first) > bounds.kept_bytes;
    let memtable_bytes = env.base.dynamic.memtable_bytes() as u64;
    let most_logged = if bounds.kept_bytes == 0 { 0 } else { HOT_MEMTABLES * memtable_bytes };
    let logged = env.base.counters.log_bytes.load(Ordering::Relaxed);
    let is_left = state.hot.as_ref().map(|hot| hot.log.since()).is_some_and(|since| {
        holds(since.segment) && logged.saturating_sub(since.log_bytes) > most_logged
    });
    if is_left {
        return Some(Holder::HotTable);
    }
    state.memtable.first_segment().is_some_and(holds).then_some(Holder::Memtable)
}

/// Flushes the families that keep the oldest log segments alive when the log has grown too long,
/// as happens when one family is seldom written.
fn bound_length(env: &JobEnv) -> Result<()> {
    let limit = (env.base.dynamic.memtables_bytes() as u64).saturating_mul(MAX_LOG_SHARES);
    let Some(bytes) = env.commit.queue()?.try_log_bytes() else { return Ok(()) };
    if bytes <= limit {
        return Ok(());
    }
    let holders = holders_of_oldest(&env.read.families.load());
    if holders.is_empty() {
        return Ok(());
    }
    room::rotate_all(&env.commit, &holders).map(drop)?;
    log_segments::retire_segments(&env.commit)
}

/// Those of `families` that keep the oldest segment of the log alive by what nobody flushes yet. Where a memtable that waits for its flush
/// does, that comes first: to make one more immutable would only be a short file more, and writers of all families would wait
/// for the flush where no more may wait for it.
fn holders_of_oldest(families: &[Arc<Family>]) -> Vec<Arc<Family>> {
    let oldest = families.iter().filter_map(|family| family.first_segment()).min();
    let is_on_its_way = |family: &Family| {
        let state = family.state();
        state.immutables.iter().any(|memtable| memtable.first_segment() == oldest)
    };
    let holds = |family: &&Arc<Family>| family.first_segment() == oldest && !is_on_its_way(family);
    families.iter().filter(holds).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Db, Options};
    use std::sync::{Condvar, Mutex};
    use terrace_vfs::{BeforeCalls, Call, SimVfs};

    #[test]
    fn a_family_whose_flush_is_to_come_is_not_rotated_for_the_length_of_the_log() {
        let hold = Arc::new((Mutex::new(false), Condvar::new()));
        let set_held = |is_held: bool| {
            *hold.0.lock().unwrap() = is_held;
            hold.1.notify_all();
        };
        let held = hold.clone();
        let vfs = BeforeCalls::new(SimVfs::new(1), move |call, path| {
            let is_output = path.extension().is_some_and(|end| end == "tmp");
            if matches!(call, Call::Create) && is_output {
                drop(held.1.wait_while(held.0.lock().unwrap(), |is_held| *is_held).unwrap());
            }
            Ok(())
        });
        let mut options = Options { memory_budget: 16 << 20, ..Options::default() };
        options.advanced.vfs = Arc::new(vfs);
        let db = Db::open("/db", options).unwrap();
        let (family, env) = (db.default_family().family().clone(), &db.inner().commit);
        let holders = || holders_of_oldest(&env.read.families.load()).len();
        db.put(b"k", b"1").unwrap();
        let before = holders();
        set_held(true);
        {
            let lead = env.queue().unwrap().lead();
            room::rotate(env, &mut lead.log(), &family, 0).unwrap();
        }
        db.put(b"k", b"2").unwrap();
        let during = holders();
        set_held(false);
        while !family.state().immutables.is_empty() {
            std::thread::yield_now();
        }
        assert_eq!((before, during, holders()), (1, 0, 1));
    }

    #[test]
    fn memtables_of_one_large_batch_are_flushed_although_nothing_is_written_any_more() {
        for families in [1_usize, 4] {
            let mut options = Options { memory_budget: 4 << 20, ..Options::default() };
            options.advanced.vfs = Arc::new(SimVfs::new(1));
            let names = (1..families).map(|number| number.to_string());
            options.column_families =
                names.map(|name| (name, crate::CfOptions::default())).collect();
            let db = Db::open("/db", options).unwrap();
            let env = &db.inner().commit;
            let most_bytes = env.base.dynamic.memtables_bytes();
            // Nothing else flushes them, and in several families none is too large alone.
            let family_bytes = most_bytes * 3 / (families + 1);
            let mut batch = crate::WriteBatch::new();
            for name in db.column_families() {
                let family = db.column_family(&name).unwrap();
                for number in 0..(family_bytes / 110) as u32 {
                    batch.put_cf(&family, number.to_be_bytes(), [0; 100]);
                }
            }
            db.write(batch).unwrap();
            let begun = std::time::Instant::now();
            while env.read.memtable_bytes() > most_bytes || db.metrics().flushes == 0 {
                assert!(begun.elapsed().as_secs() < 600, "they are in memory still: {families}");
                std::thread::yield_now();
            }
        }
    }

    #[test]
    fn a_store_is_idle_when_several_looks_have_found_no_write() {
        let mut last = LastWrite::default();
        // It has just been opened, in a process that has run for long.
        let now_us = 1 << 40;
        assert!(!last.is_quiet(0, now_us));
        assert!(!last.is_quiet(0, now_us + IDLE_AFTER_US - 1));
        assert!(last.is_quiet(0, now_us + IDLE_AFTER_US));
        assert!(!last.is_quiet(1, now_us + IDLE_AFTER_US));
        assert!(last.is_quiet(1, now_us + 2 * IDLE_AFTER_US));
    }

    #[test]
    fn memtables_are_flushed_for_a_floor_of_garbage_and_hold_half_of_it_then() {
        let (most_bytes, kept_bytes) = (800, 400);
        assert_eq!(Bounds::of(800, false), Bounds { most_bytes, kept_bytes });
        assert_eq!(Bounds::of(800, true), Bounds { most_bytes: 100, kept_bytes: 0 });
    }
}
