//! A column family: its options and the read state that its readers and its verbs share.

use crate::batch::Separation;
use crate::compaction_filter::CompactionFilter;
use crate::error::{Error, Result};
use crate::learned::level_model::LevelModel;
use crate::learned::lookup_costs::Samples;
use crate::memory::family_totals::{FamilyTotals, MemtableBytes, Standing};
use crate::memory::table_cache::TableCache;
use crate::memtable::MemTable;
use crate::merge_operator::{MergeOperator, Operands};
use crate::metrics::StallCause;
use crate::options::dynamic_options::DynamicOptions;
use crate::options::{CfOptions, FamilyOptions, HotTableMode, Learning, Options};
use crate::values::value_log::{SegmentMap, ValueLog};
use crate::version::hot_keys::HotKeys;
use crate::version::read_state::{HotChange, ReadState, changed_part};
use crate::version::reader_pins::ReaderPin;
use arc_swap::{ArcSwap, Guard};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use terrace_base::sync::{self, Mutex};
use terrace_base::{SegmentNumber, SeqNo};
use terrace_manifest::Version;

/// Pending compaction slows writes at most this much.
const MAX_PENDING_PRESSURE: f64 = 0.9;

#[cfg(test)]
thread_local! {
    /// How often this thread has looked at the state of some family.
    pub(crate) static LOOKS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// One key space of a store.
pub(crate) struct Family {
    pub id: u32,
    pub name: String,
    /// A read-only store may learn of it after the open.
    merge_operator: OnceLock<Arc<dyn MergeOperator>>,
    pub compaction_filter: Option<Arc<dyn CompactionFilter>>,
    /// What was chosen for it; held while it changes.
    chosen: Mutex<CfOptions>,
    /// What follows from that.
    options: ArcSwap<FamilyOptions>,
    state: ArcSwap<ReadState>,
    /// What lookups in the family's SSTs take.
    pub samples: Samples,
    /// Serialises changes of `state`; readers never take it.
    change: Mutex<()>,
    next_memtable_id: AtomicU64,
    dropped: AtomicBool,
    /// Which keys are written often.
    pub hot_keys: Mutex<HotKeys>,
    /// Bytes that compaction has to write before every level is within its target, as of the
    /// last look.
    pending_bytes: AtomicU64,
    /// What is kept of all families.
    totals: Arc<FamilyTotals>,
}

impl Family {
    /// A family at `version` with an empty memtable, and with the options that were chosen for it and what follows from them.
    pub fn new(
        id: u32,
        name: String,
        (chosen, mut options): (CfOptions, FamilyOptions),
        version: Arc<Version>,
        table_cache: &TableCache,
    ) -> io::Result<Self> {
        options.family = Some((id, name.clone()));
        let memtable = Arc::new(MemTable::with_capacity(0, options.memtable_bytes)?);
        settle_models(&options, &version, &Version::empty(), table_cache);
        let state = ReadState::of_version(memtable, Vec::new(), version, table_cache);
        let family = Self {
            id,
            name,
            samples: Samples::new(options.model_costs),
            merge_operator: options.merge_operator.clone().map(OnceLock::from).unwrap_or_default(),
            compaction_filter: options.compaction_filter.clone(),
            chosen: Mutex::new(chosen),
            options: ArcSwap::from_pointee(options),
            state: ArcSwap::from_pointee(state),
            change: Mutex::new(()),
            next_memtable_id: AtomicU64::new(1),
            dropped: AtomicBool::new(false),
            hot_keys: Mutex::default(),
            pending_bytes: AtomicU64::new(0),
            totals: table_cache.totals().clone(),
        };
        family.totals.count(MemtableBytes::default(), bytes_of(&family.state.load()));
        family.note_change();
        Ok(family)
    }

    /// Whether keys of it may be hot while the store's mode is `mode`. Not with a merge operator: what is replayed over
    /// SSTs that have some of it already would be merged twice. Nor with a compaction filter: what is replayed would
    /// bring back what the filter has removed.
    pub fn hot_table(&self, mode: HotTableMode) -> HotTableMode {
        match self.merge_operator().is_some() || self.compaction_filter.is_some() {
            true => HotTableMode::Off,
            false => mode,
        }
    }

    /// Which values stay in the log.
    #[inline]
    pub fn separation(&self) -> Separation {
        let options = self.options.load();
        let threshold = options.value_separation_threshold;
        Separation { threshold, compression: options.value_compression }
    }

    /// The options that are in force, for the length of a decision.
    #[inline]
    pub fn options(&self) -> Guard<Arc<FamilyOptions>> {
        self.options.load()
    }

    /// The options that are in force, for the length of a job, with buffers for the budget of now.
    pub fn job_options(&self, dynamic: &DynamicOptions) -> Arc<FamilyOptions> {
        self.options.load_full().of_budget(dynamic.memory_budget())
    }

    /// What was chosen for it, at open or since.
    pub fn chosen(&self) -> CfOptions {
        self.chosen.lock().clone()
    }

    /// Puts in force what follows from `chosen` in a store with `options`. What is decided at open stays; jobs that run go
    /// on with what they began with.
    pub fn choose(&self, options: &Options, chosen: CfOptions) {
        let mut in_force = self.chosen.lock();
        let before = self.options.load();
        self.options.store(Arc::new(before.changed(options.family(&chosen))));
        *in_force = chosen;
        self.note_change();
    }

    /// What a read sees now, for the length of the read. No shared counter is touched.
    #[inline]
    pub fn state(&self) -> Guard<Arc<ReadState>> {
        #[cfg(test)]
        LOOKS.set(LOOKS.get() + 1);
        self.state.load()
    }

    /// What a read sees now, to keep.
    pub fn hold_state(&self) -> Arc<ReadState> {
        self.state.load_full()
    }

    /// What a read sees now, to keep, the sequence number that `seqno` gives then, and the value
    /// segments with every value that the state refers to up to that number.
    pub fn hold_with_values(
        &self,
        values: &ValueLog,
        seqno: impl Fn() -> SeqNo,
    ) -> (Arc<ReadState>, SeqNo, Arc<SegmentMap>) {
        loop {
            let state = self.state.load_full();
            // Segments that newer writes begin are in the map before the number is visible.
            let seqno = seqno();
            let held = values.hold();
            sync::interleave();
            // A segment leaves the map only after a state that does not refer to it has come in:
            // while the state is the same, the map has all of its segments.
            if Arc::ptr_eq(&state, &self.state.load()) {
                let seqno = state.readable_seqno(seqno);
                return (state, seqno, held);
            }
        }
    }

    /// Puts `fresh`, which is empty and gets its id here, in front; the old memtable, whose last write is
    /// at or before `seqno`, becomes immutable, and the hot table changes with it. Gives the largest
    /// id of a memtable that waits for its flush now. Only the commit's leader calls this.
    pub fn rotate(
        &self,
        mut fresh: MemTable,
        seqno: SeqNo,
        change: Option<HotChange>,
        table_cache: &TableCache,
    ) -> u64 {
        fresh.id = self.take_memtable_id();
        let _change = self.change.lock();
        let old = self.state.load();
        old.memtable.seal(seqno);
        let mut upto = old.memtable.id;
        let mut state = old.rotated(Arc::new(fresh));
        if let Some(change) = change {
            leave_hot(&old, seqno, table_cache);
            upto = change.cooled.as_ref().map_or(upto, |cooled| upto.max(cooled.id));
            state = state.with_hot_change(change);
        }
        self.set_state(state);
        upto
    }

    /// Puts a fresh hot table in the place of the old one, whose last write is at or before `seqno`.
    /// Only the commit's leader calls this.
    pub fn swap_hot(&self, seqno: SeqNo, change: HotChange, table_cache: &TableCache) {
        let _change = self.change.lock();
        let old = self.state.load();
        leave_hot(&old, seqno, table_cache);
        let state = old.with_immutables(old.immutables.clone()).with_hot_change(change);
        self.set_state(state);
    }

    /// An id for a memtable that is about to be made.
    pub fn take_memtable_id(&self) -> u64 {
        self.next_memtable_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Makes `version` the one that reads see and lets go of the flushed memtables. `fresh` takes the place
    /// of the mutable memtable, which must be empty then.
    pub fn install(
        &self,
        version: Arc<Version>,
        flushed: &[u64],
        fresh: Option<Arc<MemTable>>,
        table_cache: &TableCache,
    ) {
        let _change = self.change.lock();
        let old = self.state.load();
        settle_models(&self.options(), &version, &old.version, table_cache);
        let waits = |m: &&Arc<MemTable>| !flushed.contains(&m.id);
        let (immutables, left): (Vec<_>, Vec<_>) =
            old.immutables.iter().cloned().partition(|m| waits(&m));
        let memtable = fresh.unwrap_or_else(|| old.memtable.clone());
        left.iter().for_each(|memtable| table_cache.left_memtables().note(memtable));
        let state = old.with_version(memtable, immutables, version, table_cache);
        let state = state.with_level_models(&old.level_models).with_hot(old.hot.clone());
        self.set_state(state);
    }

    /// Lets reads of `level` go through `model`; false if it is not of the level's files any more.
    pub fn add_level_model(&self, level: usize, model: Arc<LevelModel>) -> bool {
        let _change = self.change.lock();
        let old = self.state.load();
        let Some(files) = old.version.levels().get(level).filter(|files| model.is_of(files)) else {
            return false;
        };
        debug_assert!(!files.is_empty(), "a model of no files");
        let mut models = old.level_models.clone();
        models[level] = Some(model);
        let state = old.with_immutables(old.immutables.clone()).with_level_models(&models);
        self.set_state(state);
        true
    }

    /// Takes over memtables that were replayed from the log (oldest first) as immutable ones. The
    /// mutable one, which must be empty, is replaced: memtables of a family differ in their ids.
    pub fn adopt(&self, memtables: Vec<Arc<MemTable>>) -> io::Result<()> {
        let id = memtables.iter().map(|m| m.id + 1).max().unwrap_or(0).max(1);
        let fresh = Arc::new(MemTable::with_capacity(id, self.options().memtable_bytes)?);
        let _change = self.change.lock();
        self.next_memtable_id.store(id + 1, Ordering::Relaxed);
        let immutables = memtables.into_iter().rev().collect();
        let state = self.state.load().rotated(fresh).with_immutables(immutables);
        self.set_state(state);
        Ok(())
    }

    /// Makes `version` and memtables that were replayed from the log (oldest first) all that reads
    /// see, in a read-only store. `pin` keeps the files.
    pub fn show(
        &self,
        version: Arc<Version>,
        memtables: Vec<Arc<MemTable>>,
        pin: Option<Arc<ReaderPin>>,
        table_cache: &TableCache,
    ) {
        let _change = self.change.lock();
        let old = self.state.load();
        settle_models(&self.options(), &version, &old.version, table_cache);
        let immutables = memtables.into_iter().rev().collect();
        let memtable = old.memtable.clone();
        old.immutables.iter().for_each(|memtable| table_cache.left_memtables().note(memtable));
        let state = old
            .with_version(memtable, immutables, version, table_cache)
            .with_level_models(&old.level_models)
            .pinned_by(pin);
        self.set_state(state);
    }

    /// Marks the family as dropped: jobs stop, and all calls for it are refused. Its files go with [`Self::let_go`].
    pub fn mark_dropped(&self) {
        let _change = self.change.lock();
        if !self.dropped.swap(true, Ordering::Relaxed) {
            self.totals.count(bytes_of(&self.state.load()), MemtableBytes::default());
        }
        self.note_change();
    }

    /// Lets go of the files and memtables of a family that was dropped: somebody may keep the family for long. Reads that
    /// find nothing ask whether it was dropped. Without memory for an empty memtable they stay as long as the family.
    pub fn let_go(&self, table_cache: &TableCache) {
        debug_assert!(self.is_dropped(), "a family that is in use");
        let _change = self.change.lock();
        if let Ok(empty) = MemTable::with_capacity(self.take_memtable_id(), 0) {
            let state =
                ReadState::of_version(Arc::new(empty), Vec::new(), Arc::default(), table_cache);
            let old = self.set_state(state);
            old.memtables().for_each(|memtable| table_cache.left_memtables().note(memtable));
        }
    }

    /// `NoSuchFamily` if the family was dropped.
    #[inline]
    pub fn check_exists(&self) -> Result<()> {
        match self.is_dropped() {
            true => Err(Error::NoSuchFamily(self.name.clone())),
            false => Ok(()),
        }
    }

    /// What `merge` does, if the family has an operator.
    pub fn merge_operator(&self) -> Option<&Arc<dyn MergeOperator>> {
        self.merge_operator.get()
    }

    /// Gives the family of a read-only store the operator that its writer has given it since. The one that it has stays.
    pub fn learn_operator(&self, operator: Arc<dyn MergeOperator>) {
        let _has_one = self.merge_operator.set(operator);
    }

    /// `InvalidArgument` if the family has no merge operator.
    pub fn check_merges(&self) -> Result<()> {
        match self.merge_operator() {
            Some(_) => Ok(()),
            None => Err(Error::InvalidArgument(format!(
                "the column family `{}` has no merge operator: name one in its options at open",
                self.name
            ))),
        }
    }

    /// The value of `key` after `operands`, oldest first, on top of `existing`.
    pub fn merged(
        &self,
        key: &[u8],
        existing: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Vec<u8>> {
        self.check_merges()?;
        let operator = self.merge_operator().map(|operator| &**operator);
        Ok(Operands::merge(operator, key, existing, operands)?)
    }

    /// How far its L0 is between slowing writers (0) and stopping them (1); `None` below the slowdown.
    pub fn l0_pressure(&self) -> Option<f64> {
        let options = self.options();
        let over = self.state().version.level(0).len().checked_sub(options.l0_slowdown)?;
        let steps = (options.l0_stops_at() - options.l0_slowdown).max(1);
        Some(over as f64 / steps as f64)
    }

    /// How far it is between slowing writers (0) and stopping them (1), and by what; `None` below the slowdown, and of one that
    /// was dropped.
    pub fn pressure(&self) -> Option<(f64, StallCause)> {
        if self.is_dropped() {
            return None;
        }
        let pending = self.pending_bytes.load(Ordering::Relaxed);
        let slow_at = self.options().pending_compaction_slowdown_bytes;
        let of_l0 = self.l0_pressure().map(|pressure| (pressure, StallCause::L0Files));
        // Pending bytes slow writes down but never stop them: at twice the limit the rate is lowest.
        let of_pending = (pending >= slow_at && slow_at > 0).then(|| {
            let over = (pending - slow_at) as f64 / slow_at as f64;
            (over.min(MAX_PENDING_PRESSURE), StallCause::PendingCompaction)
        });
        [of_l0, of_pending].into_iter().flatten().reduce(|a, b| if b.0 > a.0 { b } else { a })
    }

    /// Takes over how many bytes compaction has to write before every level is within its target.
    pub fn set_pending_bytes(&self, bytes: u64) {
        if self.pending_bytes.swap(bytes, Ordering::Relaxed) != bytes {
            self.note_change();
        }
    }

    /// Makes `state` the one that reads see, under `change`; gives the one before. Nothing is being inserted into a memtable
    /// that only one of them has.
    fn set_state(&self, state: ReadState) -> Arc<ReadState> {
        let state = Arc::new(state);
        let old = self.state.swap(state.clone());
        if !self.is_dropped() {
            self.totals.count(bytes_besides(&old, &state), bytes_besides(&state, &old));
        }
        self.note_change();
        old
    }

    /// Brings what is kept of all families up to date, but for memtables. Comes after each change of what that follows from: the
    /// read state, the options, pending compaction, whether the family was dropped.
    fn note_change(&self) {
        self.totals.note(self.id, || {
            if self.is_dropped() {
                return Standing::default();
            }
            let (is_slowed, state) = (self.pressure().is_some(), self.state.load());
            Standing { is_slowed, waits: !state.immutables.is_empty(), is_hot: state.hot.is_some() }
        });
    }

    /// By an insertion, memtables of the read state that had what is `before` have what is `now`. Comes in the insert turn, in which
    /// no such memtable comes or goes, and the family is not dropped.
    #[inline]
    pub fn count_inserted(&self, before: MemtableBytes, now: MemtableBytes) {
        self.totals.count(before, now);
    }

    /// Whether the family was dropped.
    #[inline]
    pub fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Relaxed)
    }

    /// The first log segment that some memtable of the family, or its hot table, still needs.
    pub fn first_segment(&self) -> Option<SegmentNumber> {
        let state = self.state.load();
        let all = state.immutables.iter().chain(std::iter::once(&state.memtable));
        let hot = state.hot.as_ref().map(|hot| hot.log.since().segment);
        all.filter_map(|m| m.first_segment()).chain(hot).min()
    }

    /// Bytes of all memtables, the hot table among them.
    pub fn memtable_bytes(&self) -> usize {
        self.state.load().memtables().map(|m| m.size_bytes()).sum()
    }

    /// Bytes of the memtables that are flushed: all but the hot table.
    pub fn flushed_memtable_bytes(&self) -> usize {
        let state = self.state.load();
        let waiting = state.immutables.iter().map(|m| m.size_bytes());
        waiting.sum::<usize>() + state.memtable.size_bytes()
    }
}

impl Drop for Family {
    /// It may never have been among those of the store.
    fn drop(&mut self) {
        self.totals.note(self.id, Standing::default);
        if !self.is_dropped() {
            self.totals.count(bytes_of(&self.state.load()), MemtableBytes::default());
        }
    }
}

/// What the memtables of `state` take.
fn bytes_of(state: &ReadState) -> MemtableBytes {
    let all = state.memtables().map(|memtable| memtable.size_bytes()).sum();
    MemtableBytes { all, mutable: state.memtable.rotatable_bytes() }
}

/// What those memtables of `state` take that `other` does not have. Those of both may be growing: who inserts into them counts that.
fn bytes_besides(state: &ReadState, other: &ReadState) -> MemtableBytes {
    let is_other = |memtable: &&Arc<MemTable>| {
        !other.memtables().any(|in_other| Arc::ptr_eq(in_other, memtable))
    };
    let mutable = match Arc::ptr_eq(&state.memtable, &other.memtable) {
        true => 0,
        false => state.memtable.rotatable_bytes(),
    };
    let all = state.memtables().filter(is_other).map(|memtable| memtable.size_bytes()).sum();
    MemtableBytes { all, mutable }
}

/// The hot table of `state`, whose last write is at or before `seqno`, is about to be replaced.
fn leave_hot(state: &ReadState, seqno: SeqNo, table_cache: &TableCache) {
    if let Some(hot) = &state.hot {
        hot.table.seal(seqno);
        table_cache.left_memtables().note(&hot.table);
    }
}

/// Says how the readers of the files that were not there `before` are to be opened, before anybody opens them.
fn settle_models(
    options: &FamilyOptions,
    version: &Version,
    before: &Version,
    table_cache: &TableCache,
) {
    if options.learning == Learning::Off {
        for (level, before) in version.levels().iter().zip(before.levels()) {
            let (fresh, _) = changed_part(level.files(), before.files());
            level.files()[fresh].iter().for_each(|file| table_cache.forgo_models(file.number));
        }
    }
}
