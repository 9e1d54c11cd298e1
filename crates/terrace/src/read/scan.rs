//! A scan: what a reader sees of a family between two keys, in order, both ways.
//!
//! [`iter`] takes hold of what the scan needs to its end. [`open`] gathers the runs of a read
//! state, newest first: memtables that hold anything, the files of L0 one by one, every other level
//! as one. Runs and files outside the bounds are left out. The runs are merged (`iter/merge`) and
//! filtered (`iter/visible`), separated values are read (`iter/values`); [`Iter`] is the public
//! face.

use crate::error::{Error, Result};
use crate::iter::RunIter;
use crate::iter::cover::{Cover, CoverSource};
use crate::iter::level::{FileCover, LevelIter, SstFiles};
use crate::iter::merge::MergingIter;
use crate::iter::values::{MAX_WINDOW_BYTES, Reading, Values};
use crate::iter::visible::{Fold, View, Visible};
use crate::memory::table_cache::TableCache;
use crate::memtable::MemTable;
use crate::options::text::{Flag, Size, Text};
use crate::values::held_values::HeldValues;
use crate::values::value_log::SegmentMap;
use crate::version::family::Family;
use crate::version::read_env::ReadEnv;
use crate::version::read_state::ReadState;
use crate::version::snapshots::Snapshot;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;
use terrace_base::key::prefix_end;
use terrace_base::{Clock, SeqNo};
use terrace_sst::ScanOptions;

/// The share of the memory budget that one iterator may hold as values read ahead.
const WINDOW_SHARE: usize = 64;

/// Most keys that an iterator with [`ReadOptions::in_memory`] steps over and does not show; about a millisecond.
pub const MAX_STEPPED_OVER_IN_MEMORY: u64 = 4096;

/// What a read sees and how it reads.
///
/// ```
/// # fn main() -> terrace::Result<()> {
/// # let dir = std::env::temp_dir().join(format!("terrace-doc-read-{}", std::process::id()));
/// # let db = terrace::Db::open(&dir, terrace::Options::default())?;
/// for key in ["apple", "pear", "plum"] {
///     db.put(key.as_bytes(), b"fruit")?;
/// }
/// let options = terrace::ReadOptions { prefix: Some(b"p".to_vec()), ..Default::default() };
/// let mut iter = db.iter_with(&options)?;
/// iter.seek_to_last()?;
/// assert_eq!(iter.key(), b"plum");
/// # drop(iter);
/// # db.close()?;
/// # std::fs::remove_dir_all(&dir).ok();
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct ReadOptions {
    /// Read at this snapshot; `None` reads what is there when the read starts.
    pub snapshot: Option<Snapshot>,
    /// An iterator shows no key below this one.
    pub lower_bound: Option<Vec<u8>>,
    /// An iterator shows only keys below this one.
    pub upper_bound: Option<Vec<u8>>,
    /// An iterator shows only keys that start with this.
    pub prefix: Option<Vec<u8>>,
    /// Whether data blocks that had to be read go into the cache (true). Turn it off for a scan
    /// over much more than the cache holds.
    pub fill_cache: bool,
    /// Make do with what is in the memory of the process (false): a read that would need the device
    /// (to open an SST, for an index partition, a data block, or a separated value that the cache
    /// does not have) gives [`NotInMemory`](crate::Error::NotInMemory) instead, with nothing read and nothing changed,
    /// so that a thread which must not wait can leave it to another one. Filters and learned
    /// indexes that are not in memory are done without. An iterator gives the same error before it steps over more
    /// than [`MAX_STEPPED_OVER_IN_MEMORY`] keys that are deleted, expired, covered by range deletes, or first written after
    /// the moment that it reads at. A refused read costs no more than a cached one, and the repetition counts as one read.
    pub in_memory: bool,
    /// Above 0: an iterator reads ahead in sequential pieces of at least this size.
    pub readahead_bytes: usize,
    /// An iterator shows every value as empty (false): separated values are not read.
    pub keys_only: bool,
    /// The time at which it is judged what has expired, in Unix milliseconds; `None` is the wall clock's, asked by each
    /// point read, and by an iterator when it is made. So that several reads agree.
    pub now_ms: Option<u64>,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self {
            snapshot: None,
            lower_bound: None,
            upper_bound: None,
            prefix: None,
            fill_cache: true,
            in_memory: false,
            readahead_bytes: 0,
            keys_only: false,
            now_ms: None,
        }
    }
}

impl ReadOptions {
    /// Sets the option `name`, which is `fill_cache`, `in_memory`, `keys_only` or `readahead_bytes`, to what `text` says: `true`
    /// or `false`, or bytes as [`Options::set_option`](crate::Options::set_option) takes them.
    ///
    /// # Errors
    /// `InvalidArgument`: another name, or text that is none of what the option can be.
    pub fn set_option(&mut self, name: &str, text: &str) -> Result<()> {
        match name {
            "fill_cache" => self.fill_cache = Flag::parse(name, text)?,
            "in_memory" => self.in_memory = Flag::parse(name, text)?,
            "keys_only" => self.keys_only = Flag::parse(name, text)?,
            "readahead_bytes" => self.readahead_bytes = Size::parse(name, text)?,
            _ => {
                let all = "fill_cache, in_memory, keys_only, readahead_bytes";
                let text = format!("there is no option `{name}` of reads, but {all}");
                return Err(Error::InvalidArgument(text));
            }
        }
        Ok(())
    }

    /// The first key shown and the first key past those shown: bounds and prefix together.
    fn bounds(&self) -> (Option<&[u8]>, Option<Vec<u8>>) {
        let prefix = self.prefix.as_deref();
        let lower = self.lower_bound.as_deref().max(prefix);
        let end = prefix.and_then(prefix_end);
        let upper = match (&self.upper_bound, end) {
            (Some(upper), Some(end)) => Some(upper.clone().min(end)),
            (Some(upper), None) => Some(upper.clone()),
            (None, end) => end,
        };
        (lower, upper)
    }

    fn scan_options(&self) -> ScanOptions {
        ScanOptions {
            fill_cache: self.fill_cache,
            in_memory: self.in_memory,
            readahead_bytes: self.readahead_bytes,
            ..ScanOptions::default()
        }
    }
}

/// A family at one moment: what there is, the number to read at, and where the separated values lie.
#[derive(Clone)]
pub(crate) struct Moment {
    pub state: Arc<ReadState>,
    pub seqno: SeqNo,
    pub held: Arc<SegmentMap>,
}

/// `family` as of `snapshot`, or as of now.
pub(crate) fn moment(
    env: &ReadEnv,
    family: &Family,
    snapshot: Option<&Snapshot>,
) -> Result<Moment> {
    let snapshot = env.snapshots.check(snapshot)?;
    // The map has every segment that the state refers to, and keeps their files: garbage collection
    // may take them out of the store, and the scan goes on.
    let (state, seqno, held) = match snapshot.and_then(|snapshot| snapshot.view_of(family.id)) {
        Some((state, held)) => (state.clone(), env.visible_seqno(), held.clone()),
        None => family.hold_with_values(&env.value_log, || env.visible_seqno()),
    };
    let seqno = snapshot.map_or(seqno, Snapshot::seqno);
    // The values of a dropped family may be gone.
    family.check_exists()?;
    Ok(Moment { state, seqno, held })
}

/// An iterator over `family` as of the snapshot in `options`, or as of now.
pub(crate) fn iter(env: &ReadEnv, family: &Family, options: &ReadOptions) -> Result<Iter> {
    env.base.health.check_open()?;
    let moment = moment(env, family, options.snapshot.as_ref())?;
    iter_at(env, family, options, moment)
}

/// As [`iter`], at a moment that was taken before.
pub(crate) fn iter_at(
    env: &ReadEnv,
    family: &Family,
    options: &ReadOptions,
    Moment { state, seqno, held }: Moment,
) -> Result<Iter> {
    let (mut reading, mut fold) = (Reading::KeysOnly, None);
    match options.keys_only {
        true => {}
        false => {
            let in_memory = options.in_memory;
            // Where nothing is read, nothing is to be read ahead.
            let window_bytes = match in_memory {
                true => 0,
                false => (env.base.dynamic.memory_budget() / WINDOW_SHARE).min(MAX_WINDOW_BYTES),
            };
            let log = env.value_log.clone();
            fold = family.merge_operator().cloned().map(|operator| {
                let (log, held) = (log.clone(), held.clone());
                Fold { operator, values: Box::new(HeldValues { log, held, in_memory }) }
            });
            reading = Reading::Values(Box::new(HeldValues { log, held, in_memory }), window_bytes);
        }
    }
    let clock = env.base.clock.as_ref();
    open(state, env.table_cache.clone(), seqno, clock, options, (reading, fold))
}

/// An iterator over `state` as of `seqno`: the number of the snapshot in `options`, which is held
/// until the iterator is dropped, or one loaded after `state`. `reading` finds every separated value
/// that `state` refers to. Nothing is read before the first seek.
fn open(
    state: Arc<ReadState>,
    table_cache: Arc<TableCache>,
    seqno: SeqNo,
    clock: &dyn Clock,
    options: &ReadOptions,
    (reading, fold): (Reading, Option<Fold>),
) -> Result<Iter> {
    let (lower, upper) = options.bounds();
    let mut runs = Vec::new();
    let mut covers: Vec<Box<dyn CoverSource>> = Vec::new();
    let is_empty =
        matches!((lower, &upper), (Some(lower), Some(upper)) if lower >= upper.as_slice());
    if !is_empty {
        for memtable in state.memtables() {
            push_memtable(memtable, &mut runs, &mut covers);
        }
        let bounds = (
            lower.map_or(Bound::Unbounded, Bound::Included),
            upper.as_deref().map_or(Bound::Unbounded, Bound::Excluded),
        );
        let scan_options = options.scan_options();
        let prefix: Option<Arc<[u8]>> = options.prefix.as_deref().map(Arc::from);
        for (index, file) in state.version.level(0).files().iter().enumerate() {
            if file.smallest_seqno <= seqno && file.overlaps(bounds.0, bounds.1) {
                let files = SstFiles::level0_file(&table_cache, &state, index, scan_options);
                if file.range_tombstone_count > 0 {
                    covers.push(Box::new(FileCover::new(files.clone())));
                }
                let files = files.with_prefix(prefix.clone());
                runs.push(RunIter::Level(LevelIter::over(files)));
            }
        }
        for level in 1..state.version.levels().len() {
            if state.version.level(level).is_empty() {
                continue;
            }
            let files = SstFiles::level(&table_cache, &state, level, bounds, scan_options);
            if files.is_empty() {
                continue;
            }
            if state.has_range_tombstones && files.have_range_tombstones() {
                covers.push(Box::new(FileCover::new(files.clone())));
            }
            let files = files.with_prefix(prefix.clone());
            runs.push(RunIter::Level(LevelIter::over(files)));
        }
    }
    let view = View {
        seqno,
        now_ms: options.now_ms.unwrap_or_else(|| clock.wall_ms()),
        lower: lower.map(<[u8]>::to_vec),
        upper,
        cover: Cover::new(covers, seqno),
        keys_only: options.keys_only,
        fold,
    };
    let most = if options.in_memory { MAX_STEPPED_OVER_IN_MEMORY } else { u64::MAX };
    let mut visible = Visible::new(MergingIter::new(runs), view);
    visible.step_over_at_most(most);
    let entries = Values::new(visible, reading);
    Ok(Iter {
        entries,
        positioned: false,
        table_cache,
        _snapshot: options.snapshot.clone(),
        _state: state,
    })
}

/// A memtable that is empty now holds nothing that a read which has its sequence number may see.
fn push_memtable(
    memtable: &Arc<MemTable>,
    runs: &mut Vec<RunIter>,
    covers: &mut Vec<Box<dyn CoverSource>>,
) {
    if !memtable.has_no_entries() {
        runs.push(RunIter::Mem(memtable.iter(), Arc::clone(memtable)));
    }
    if memtable.has_range_tombstones() {
        covers.push(Box::new(Arc::clone(memtable)));
    }
}

/// A cursor over the keys and values of a column family at one moment, in both directions.
///
/// With [`ReadOptions::in_memory`] the call that would need the device gives
/// [`NotInMemory`](crate::Error::NotInMemory), as any other error.
///
/// A fresh iterator stands nowhere; seek first. Past either end it is not valid, and a step from
/// there does nothing. After an error it is not valid; a seek may be tried again. A value that
/// cannot be read is the error of the call that moves the iterator onto its entry. Separated values
/// are read ahead, one batch of device reads for up to 64 entries or 1 MiB (less with a small memory
/// budget); a seek reads one. Writes after its creation are not seen. It keeps what it reads from being deleted: drop it when done. Seeking
/// an iterator again is cheaper than making another.
///
/// ```
/// # fn main() -> terrace::Result<()> {
/// # let dir = std::env::temp_dir().join(format!("terrace-doc-iter-{}", std::process::id()));
/// # let db = terrace::Db::open(&dir, terrace::Options::default())?;
/// for key in ["a", "b", "c"] {
///     db.put(key.as_bytes(), key.to_uppercase().as_bytes())?;
/// }
/// let mut iter = db.iter()?;
/// iter.seek(b"b")?;
/// while iter.valid() {
///     println!("{:?} is {:?}", iter.key(), iter.value());
///     iter.next()?;
/// }
/// iter.seek_for_prev(b"bb")?;
/// assert_eq!((iter.key(), iter.value()), (&b"b"[..], &b"B"[..]));
/// # drop(iter);
/// # db.close()?;
/// # std::fs::remove_dir_all(&dir).ok();
/// # Ok(())
/// # }
/// ```
pub struct Iter {
    entries: Values<MergingIter<RunIter>>,
    /// Whether there was a seek.
    positioned: bool,
    /// Counts the seeks.
    table_cache: Arc<TableCache>,
    // Held, not read: what the runs read stays until they are gone.
    _snapshot: Option<Snapshot>,
    _state: Arc<ReadState>,
}

impl Iter {
    /// Whether the iterator stands on an entry.
    #[inline]
    pub fn valid(&self) -> bool {
        self.entries.valid()
    }

    /// How many keys this iterator has stepped over since they are deleted or expired, as of its moment: each costs
    /// about as much as one that it shows. What range deletes cover does not count; see [`Self::covered_steps`].
    pub fn stepped_over(&self) -> u64 {
        self.entries.stepped_over()
    }

    /// How many steps it took this iterator to get past keys that range deletes cover: a few for each range as a rule,
    /// one for each key where there may be newer entries in between.
    pub fn covered_steps(&self) -> u64 {
        self.entries.covered_steps()
    }

    /// From now on a call that would step over more keys than this, in all calls together, gives
    /// [`NotInMemory`](crate::Error::NotInMemory): keys that are deleted, expired, covered by range deletes, or first written
    /// after the moment that it reads at. So a walk over many of them can be done in parts: see [`Self::refused_at`].
    pub fn step_over_at_most(&mut self, most: u64) {
        self.entries.step_over_at_most(most);
    }

    /// After a call that would have stepped over too many keys: the last one that it has stepped over. A forward walk has seen
    /// all that is shown up to it, and goes on with a seek behind it.
    pub fn refused_at(&self) -> Option<&[u8]> {
        self.entries.refused_at()
    }

    /// Notes a seek; what became of it. One that needs the device is repeated elsewhere, and counts there.
    #[inline]
    fn sought(&mut self, outcome: terrace_base::Result<()>) -> Result<()> {
        self.positioned = true;
        if !matches!(outcome, Err(terrace_base::Error::NotInMemory)) {
            self.table_cache.seeks().add(1);
        }
        Ok(outcome?)
    }

    /// Moves to the first entry.
    pub fn seek_to_first(&mut self) -> Result<()> {
        let outcome = self.entries.seek_to_first();
        self.sought(outcome)
    }

    /// Moves to the last entry.
    pub fn seek_to_last(&mut self) -> Result<()> {
        let outcome = self.entries.seek_to_last();
        self.sought(outcome)
    }

    /// Moves to the first entry whose key is at or after `key`.
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        let outcome = self.entries.seek(key);
        self.sought(outcome)
    }

    /// Moves to the last entry whose key is at or before `key`.
    pub fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        let outcome = self.entries.seek_for_prev(key);
        self.sought(outcome)
    }

    /// Moves to the next entry.
    #[inline]
    #[allow(clippy::should_implement_trait, reason = "a cursor, not an iterator of owned items")]
    pub fn next(&mut self) -> Result<()> {
        Ok(self.entries.next()?)
    }

    /// Moves to the previous entry.
    #[inline]
    pub fn prev(&mut self) -> Result<()> {
        Ok(self.entries.prev()?)
    }

    /// The key of the entry; empty if not valid.
    #[inline]
    pub fn key(&self) -> &[u8] {
        self.entries.key()
    }

    /// The value of the entry; empty if not valid, or if only keys are wanted.
    #[inline]
    pub fn value(&self) -> &[u8] {
        self.entries.value()
    }

    /// When the entry expires, in Unix milliseconds; `None` if it does not, or if not valid.
    #[inline]
    pub fn expires_at_ms(&self) -> Option<u64> {
        self.entries.expires_at_ms()
    }

    /// The entries from the current one on (from the first, if there was no seek yet), as owned
    /// keys and values. Ends after the first error.
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = std::env::temp_dir().join(format!("terrace-doc-ents-{}", std::process::id()));
    /// # let db = terrace::Db::open(&dir, terrace::Options::default())?;
    /// db.put(b"a", b"1")?;
    /// for entry in db.iter()?.entries() {
    ///     let (key, value) = entry?;
    ///     assert_eq!((key.as_slice(), value.as_slice()), (&b"a"[..], &b"1"[..]));
    /// }
    /// # db.close()?;
    /// # std::fs::remove_dir_all(&dir).ok();
    /// # Ok(())
    /// # }
    /// ```
    pub fn entries(self) -> impl Iterator<Item = Result<(Vec<u8>, Vec<u8>)>> {
        Entries { stands_on_next: self.positioned, is_backward: false, iter: self }
    }

    /// As [`Iter::entries`], the other way: from the current entry to the first (from the last, if there was
    /// no seek yet).
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = std::env::temp_dir().join(format!("terrace-doc-back-{}", std::process::id()));
    /// # let db = terrace::Db::open(&dir, terrace::Options::default())?;
    /// db.put(b"event 1", b"")?;
    /// db.put(b"event 2", b"")?;
    /// let mut newest_first = db.range("event "..)?.entries_backward();
    /// assert_eq!(newest_first.next().transpose()?.unwrap().0, b"event 2");
    /// # drop(newest_first);
    /// # db.close()?;
    /// # std::fs::remove_dir_all(&dir).ok();
    /// # Ok(())
    /// # }
    /// ```
    pub fn entries_backward(self) -> impl Iterator<Item = Result<(Vec<u8>, Vec<u8>)>> {
        Entries { stands_on_next: self.positioned, is_backward: true, iter: self }
    }
}

impl fmt::Debug for Iter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iter").field("valid", &self.valid()).finish_non_exhaustive()
    }
}

struct Entries {
    iter: Iter,
    /// Whether the entry the iterator stands on is still to be returned.
    stands_on_next: bool,
    is_backward: bool,
}

impl Iterator for Entries {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        let moved = match (self.stands_on_next, self.iter.positioned, self.is_backward) {
            (true, _, _) => Ok(()),
            (false, true, false) => self.iter.next(),
            (false, true, true) => self.iter.prev(),
            (false, false, false) => self.iter.seek_to_first(),
            (false, false, true) => self.iter.seek_to_last(),
        };
        self.stands_on_next = false;
        match moved {
            Ok(()) if !self.iter.valid() => None,
            Ok(()) => Some(Ok((self.iter.key().to_vec(), self.iter.value().to_vec()))),
            Err(error) => Some(Err(error)),
        }
    }
}

#[cfg(test)]
mod tests;
