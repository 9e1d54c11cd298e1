//! Asking a compaction filter (flush, compact): which entries it sees, and what its errors and panics do.
//!
//! The filter is a stage of `fold`, behind `retain`: it sees the newest version of a key among the inputs, if
//! that is a value which stays, and if no snapshot sees it. What it removes becomes a tombstone of the same sequence
//! number, which goes by `retain`'s rules: older versions in snapshots, or below, do not come back.
//!
//! A snapshot that is taken while a job runs sees all of its inputs. So a job that has changed something installs its
//! files only if no such snapshot lives (`Snapshots::seal_unless_taken`), and else is repeated without the filter.
//!
//! Whatever the filter does, no entry is lost by it: an error or a panic keeps the entry.

use crate::background::env::JobEnv;
use crate::compaction_filter::{
    CompactionFilter, FilterContext, FilterDecision, FilterEntry, FilterJob, ReadSeparated,
};
use crate::event;
use crate::metrics::{Counters, add};
use crate::values::excluded::is_of_segment;
use crate::version::install::{self, Change};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use terrace_base::caught::message_of;
use terrace_base::key::MAX_VALUE_BYTES;
use terrace_base::{Result, SeqNo, ValueKind};

/// A job's use of its family's filter, and what came of it; shared by the pieces of the job.
pub(crate) struct Filtering<'a> {
    filter: &'a dyn CompactionFilter,
    name: String,
    context: FilterContext,
    ignores_snapshots: bool,
    /// Whether it has panicked: it is not called again.
    panicked: AtomicBool,
    removed: AtomicU64,
    changed: AtomicU64,
    failures: AtomicU64,
}

/// How many entries a filter removed and changed, and for how many it failed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FilterCounts {
    pub removed: u64,
    pub changed: u64,
    pub failures: u64,
}

impl<'a> Filtering<'a> {
    /// For the job of `context`; `None` if the filter does not apply to it, or cannot say.
    pub fn begin(filter: &'a dyn CompactionFilter, context: FilterContext) -> Option<Self> {
        let asked = catch_unwind(AssertUnwindSafe(|| {
            (filter.applies_to(&context), filter.ignores_snapshots(), filter.name().to_string())
        }));
        let (applies, ignores_snapshots, name) = asked.unwrap_or_else(|panic| {
            event::filter_failed(&context.family, "", &[], &message_of(panic));
            (false, false, String::new())
        });
        applies.then_some(Self {
            filter,
            name,
            context,
            ignores_snapshots,
            panicked: AtomicBool::new(false),
            removed: AtomicU64::new(0),
            changed: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        })
    }

    /// Whether entries that snapshots see are judged, too.
    #[inline]
    pub fn ignores_snapshots(&self) -> bool {
        self.ignores_snapshots
    }

    /// What has come of it so far.
    pub fn counts(&self) -> FilterCounts {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        FilterCounts {
            removed: get(&self.removed),
            changed: get(&self.changed),
            failures: get(&self.failures),
        }
    }

    /// Whether a snapshot that was taken meanwhile could see what the job changes.
    fn must_seal(&self) -> bool {
        let counts = self.counts();
        !self.ignores_snapshots && counts.removed + counts.changed > 0
    }

    /// What becomes of an entry that `retain` keeps.
    ///
    /// # Errors
    /// Its value could not be read for a compaction, for a reason that is not its own.
    pub fn judge(
        &self,
        key: &[u8],
        kind: ValueKind,
        stored: &[u8],
        read: &ReadSeparated<'_>,
    ) -> Result<FilterDecision> {
        if self.panicked.load(Ordering::Relaxed) {
            return Ok(FilterDecision::Keep);
        }
        let Some(entry) = FilterEntry::new(key, kind, stored, read) else {
            return Ok(FilterDecision::Keep);
        };
        let asked = catch_unwind(AssertUnwindSafe(|| self.filter.filter(&self.context, &entry)));
        let asked = asked.map_err(message_of);
        if asked.is_err() {
            self.panicked.store(true, Ordering::Relaxed);
        }
        if let Some(error) = entry.read_error() {
            // A flush that fails would stop all writes.
            if !is_of_segment(&error) && self.context.job != FilterJob::Flush {
                return Err(error);
            }
            return Ok(self.failed(key, &error.to_string()));
        }
        match asked {
            Ok(Ok(FilterDecision::Change(value))) if value.len() > MAX_VALUE_BYTES => {
                let why = format!("it made a value of {} bytes, which are too many", value.len());
                Ok(self.failed(key, &why))
            }
            Ok(Ok(decision)) => {
                match decision {
                    FilterDecision::Keep => {}
                    FilterDecision::Remove => add_one(&self.removed),
                    FilterDecision::Change(_) => add_one(&self.changed),
                }
                Ok(decision)
            }
            Ok(Err(why)) => Ok(self.failed(key, &why.0)),
            Err(what) => {
                let why = format!("it panicked, and this job goes on without it: {what}");
                Ok(self.failed(key, &why))
            }
        }
    }

    /// Counts a failure, and logs the first of the job.
    #[cold]
    fn failed(&self, key: &[u8], why: &str) -> FilterDecision {
        if self.failures.fetch_add(1, Ordering::Relaxed) == 0 {
            event::filter_failed(&self.context.family, &self.name, key, why);
        }
        FilterDecision::Keep
    }
}

/// Installs what a job has made that began with `snapshots` alive. Says whether it did: not, and nothing has changed,
/// if the filter has changed something that a snapshot sees which was taken meanwhile.
pub(crate) fn install(
    env: &JobEnv,
    change: Change,
    snapshots: &[SeqNo],
    filtering: Option<&Filtering<'_>>,
) -> crate::error::Result<bool> {
    if filtering.is_some_and(Filtering::must_seal) {
        let permit = || env.read.snapshots.seal_unless_taken(snapshots);
        return install::install_if(&env.versions, vec![change], permit);
    }
    install::install(&env.versions, vec![change]).map(|()| true)
}

/// Adds what filters did to the store's counters.
pub(crate) fn count(counters: &Counters, counts: FilterCounts) {
    add(&counters.compaction_filter_removed, counts.removed);
    add(&counters.compaction_filter_changed, counts.changed);
    add(&counters.compaction_filter_failures, counts.failures);
}

fn add_one(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

/// A job's filter, and how it reads separated values.
#[derive(Clone, Copy)]
pub(crate) struct Filter<'a> {
    pub filtering: &'a Filtering<'a>,
    pub read_value: &'a ReadSeparated<'a>,
}
