//! The log as value log: the segments that separated values lie in, how they are read, and the
//! stats of what is still of use in them.
//!
//! ```text
//!   commit-log segment ──(its memtables are flushed)──> sealed ──(nothing refers to it)──> dead
//!   written by garbage collection ────────────────────> sealed
//! ```
//! Which segments there are is an immutable map behind one pointer. A holder of a map can read
//! every value in its segments: a file is deleted only when its segment has left the map and no
//! other map has it any more. A point read holds no map; if the segment of a handle is gone, newer
//! SSTs name another place for the same value, and the read starts again.
//!
//! Live bytes are counted from the SSTs of the current versions only
//! ([`terrace_manifest::FileMeta::value_refs`]), so that a file or family that goes takes its references with it.

mod live;
mod value_length;

use crate::event;
use crate::values::excluded::{Excluded, Try, Verdict};
use crate::values::segment_map::Segments;
use arc_swap::{ArcSwap, ArcSwapOption, Guard};
use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use terrace_base::checksum::hash_key;
use terrace_base::sync::Mutex;
use terrace_base::value_handle::MAX_SEGMENT_BYTES;
use terrace_base::{Clock, Error, Result, SegmentNumber, ValueHandle};
use terrace_buf::Slice;
use terrace_cache::CacheKey;
use terrace_log::value::{self, ValueRead};
use terrace_manifest::{SegmentMeta, names};
use terrace_sst::{BlockCache, CachedBlock};
use terrace_vfs::{OpenMode, RandomFile, Vfs};

/// The fewest files that may be kept open.
const LEAST_OPEN: usize = 4;

/// A file of the log that values lie in, opened when one is first read.
pub(crate) struct Segment {
    pub number: SegmentNumber,
    path: PathBuf,
    /// Its number in the block cache.
    cache_file: u64,
    file: ArcSwapOption<OpenSegment>,
    /// The file as values are moved out of it.
    moved_from: ArcSwapOption<OpenSegment>,
    touched: AtomicBool,
    /// As `touched`, of `moved_from`.
    moved_touched: AtomicBool,
    /// Whether the whole of it was asked to be read ahead.
    was_advised: AtomicBool,
    /// Length of the file once it is sealed; 0 before.
    sealed_bytes: AtomicU64,
    /// Bytes of values that had been written since the open when it began to take some.
    values_before: u64,
}

/// Counts itself among the open files for as long as it lives: also that of a segment which leaves
/// the map while it is open.
struct OpenSegment {
    file: Arc<dyn RandomFile>,
    open: Arc<AtomicUsize>,
}

impl Drop for OpenSegment {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The segments by number.
pub(crate) type SegmentMap = Segments<Segment>;

/// What is known of a sealed segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentStats {
    pub number: SegmentNumber,
    /// Length of the file.
    pub size_bytes: u64,
    /// Of that, what live SSTs refer to.
    pub live_bytes: u64,
}

impl SegmentStats {
    /// Bytes that nothing refers to.
    pub fn garbage_bytes(&self) -> u64 {
        self.size_bytes.saturating_sub(self.live_bytes)
    }

    /// Part of the segment that nothing refers to.
    pub fn garbage_share(&self) -> f64 {
        self.garbage_bytes() as f64 / self.size_bytes.max(1) as f64
    }
}

/// A segment that left the map; its file goes when nobody holds it.
struct PendingDelete {
    number: SegmentNumber,
    path: PathBuf,
    segment: Weak<Segment>,
}

/// All segments with values, and the stats.
pub(crate) struct ValueLog {
    vfs: Arc<dyn Vfs>,
    dir: PathBuf,
    /// Read sealed segments past the page cache.
    direct: bool,
    /// Another process may remove files.
    read_only: bool,
    /// Keeps values that point reads fetched.
    cache: Arc<BlockCache>,
    map: ArcSwap<SegmentMap>,
    /// Held while the map changes.
    change: Mutex<()>,
    /// Bytes that live SSTs refer to, by segment, sealed or not; never 0.
    live: Mutex<BTreeMap<SegmentNumber, u64>>,
    /// All of these together; changes under their lock.
    live_bytes: AtomicU64,
    /// How many references live SSTs have together; changes under the same lock.
    reference_count: AtomicUsize,
    /// Bytes that SSTs referred to when garbage collection had written a segment, by segment.
    collected: Mutex<BTreeMap<SegmentNumber, u64>>,
    victims: ArcSwap<HashSet<SegmentNumber>>,
    /// Segments with a value that cannot be read: they are not collected.
    excluded: Excluded,
    clock: Arc<dyn Clock>,
    pending_delete: Mutex<Vec<PendingDelete>>,
    open: Arc<AtomicUsize>,
    max_open: AtomicUsize,
    counters: ValueCounters,
}

/// What was read.
#[derive(Debug, Default)]
pub(crate) struct ValueCounters {
    pub reads: AtomicU64,
    pub read_bytes: AtomicU64,
    pub cache_hits: AtomicU64,
}

impl ValueLog {
    /// The value log of the store in `dir`, without segments. At most `max_open` files are kept
    /// open.
    pub fn new(
        vfs: Arc<dyn Vfs>,
        dir: &Path,
        direct: bool,
        cache: Arc<BlockCache>,
        max_open: usize,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            vfs,
            dir: dir.to_path_buf(),
            direct,
            read_only: false,
            cache,
            map: ArcSwap::default(),
            change: Mutex::new(()),
            live: Mutex::default(),
            live_bytes: AtomicU64::new(0),
            reference_count: AtomicUsize::new(0),
            collected: Mutex::default(),
            victims: ArcSwap::default(),
            excluded: Excluded::default(),
            clock,
            pending_delete: Mutex::default(),
            open: Arc::default(),
            max_open: AtomicUsize::new(max_open.max(LEAST_OPEN)),
            counters: ValueCounters::default(),
        }
    }

    /// The same, of a store that is open read-only if `read_only`.
    pub fn read_only(self, read_only: bool) -> Self {
        Self { read_only, ..self }
    }

    /// Changes how many files are kept open; what is over is closed as others are opened.
    pub fn set_max_open(&self, max_open: usize) {
        self.max_open.store(max_open.max(LEAST_OPEN), Ordering::Relaxed);
    }

    /// Whether there is any segment with values.
    pub fn is_used(&self) -> bool {
        !self.map.load().is_empty()
    }

    /// The segments there are now. What is in the map stays readable while it is held.
    pub fn hold(&self) -> Arc<SegmentMap> {
        self.map.load_full()
    }

    /// Values read, their stored bytes, and values found in the cache.
    pub fn reads(&self) -> (u64, u64, u64) {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let c = &self.counters;
        (get(&c.reads), get(&c.read_bytes), get(&c.cache_hits))
    }

    // Which segments there are.

    /// Commit-log segment `number` takes values from now on, after `values_before` bytes of them since the open.
    pub fn begin(&self, number: SegmentNumber, values_before: u64) {
        let path = names::log_path(&self.dir, number);
        self.change(|map| {
            map.get_or_insert_with(number, || self.segment(number, path, (0, values_before)));
        });
    }

    /// The segments of an edit that was written are sealed: commit-log segments whose memtables are
    /// flushed, and those that garbage collection wrote.
    pub fn seal(&self, segments: &[SegmentMeta]) {
        if segments.is_empty() {
            return;
        }
        self.change(|map| {
            for meta in segments {
                let segment = map.get_or_insert_with(meta.number, || {
                    self.segment(meta.number, meta.path(&self.dir), (meta.size_bytes, 0))
                });
                // The next read opens it as it is to be read from now on.
                segment.sealed_bytes.store(meta.size_bytes, Ordering::Relaxed);
                segment.file.store(None);
            }
        });
    }

    /// Takes segments out; the caller has taken them out of the manifest, or they never were in it.
    pub fn remove(&self, numbers: &[SegmentNumber]) {
        let mut gone = Vec::new();
        // Held meanwhile: who finds a segment neither in the map nor among these removes its file at once.
        let mut pending_delete = self.pending_delete.lock();
        self.change(|map| gone.extend(numbers.iter().filter_map(|number| map.remove(number))));
        pending_delete.extend(gone.iter().map(|segment| PendingDelete {
            number: segment.number,
            path: segment.path.clone(),
            segment: Arc::downgrade(segment),
        }));
        drop(pending_delete);
        {
            let mut live = self.live.lock();
            let bytes: u64 = numbers.iter().filter_map(|number| live.remove(number)).sum();
            self.live_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        let mut collected = self.collected.lock();
        numbers.iter().for_each(|number| _ = collected.remove(number));
        drop(collected);
        self.excluded.forget(numbers);
        let victims = self.victims.load();
        if numbers.iter().any(|number| victims.contains(number)) {
            let mut rest: HashSet<SegmentNumber> = victims.iter().copied().collect();
            numbers.iter().for_each(|number| _ = rest.remove(number));
            self.victims.store(Arc::new(rest));
        }
    }

    /// Whether commit-log segment `number` may hold values that somebody refers to.
    pub fn has(&self, number: SegmentNumber) -> bool {
        self.map.load().contains_key(&number)
    }

    fn change(&self, change: impl FnOnce(&mut SegmentMap)) {
        let _change = self.change.lock();
        let mut map = SegmentMap::clone(&self.map.load());
        change(&mut map);
        self.map.store(Arc::new(map));
    }

    /// Forgets the files of segments that left the map and that nobody holds: in a read-only store,
    /// which deletes none.
    pub fn forget_unheld(&self) {
        self.pending_delete
            .lock()
            .retain(|pending_delete| pending_delete.segment.strong_count() > 0);
    }

    /// Whether segment `number` has left the map and its file is still there.
    pub fn is_pending_delete(&self, number: SegmentNumber) -> bool {
        self.pending_delete.lock().iter().any(|pending_delete| pending_delete.number == number)
    }

    /// The files of segments that left the map and that nobody holds any more, nor needs as `is_kept` says. The
    /// caller deletes them, and says so before ([`ValueLog::forget`]).
    pub fn unheld(&self, is_kept: impl Fn(SegmentNumber) -> bool) -> Vec<PathBuf> {
        let pending_delete = self.pending_delete.lock();
        let unheld = pending_delete.iter().filter(|pending_delete| {
            pending_delete.segment.strong_count() == 0 && !is_kept(pending_delete.number)
        });
        unheld.map(|pending_delete| pending_delete.path.clone()).collect()
    }

    /// Files of [`ValueLog::unheld`] are in the care of the caller.
    pub fn forget(&self, paths: &[PathBuf]) {
        let gone: HashSet<&OsStr> = paths.iter().map(|path| path.as_os_str()).collect();
        let mut pending_delete = self.pending_delete.lock();
        pending_delete.retain(|pending_delete| !gone.contains(pending_delete.path.as_os_str()));
    }

    // Victims.

    /// Segments whose values compactions move away.
    pub fn victims(&self) -> Guard<Arc<HashSet<SegmentNumber>>> {
        self.victims.load()
    }

    /// Decides which segments are victims.
    pub fn set_victims(&self, victims: HashSet<SegmentNumber>) {
        self.victims.store(Arc::new(victims));
    }

    /// A try to move values that begins now.
    pub fn begin_try(&self) -> Try {
        self.excluded.begin_try()
    }

    /// A value in `segment` could not be read in `of_try`, so that it cannot be moved: the segment stays, at least for now.
    pub fn spare(&self, segment: SegmentNumber, error: &Error, of_try: Try) {
        match self.excluded.add(segment, error, self.clock.monotonic_us(), of_try) {
            Verdict::Known => {}
            Verdict::Outdated => return,
            Verdict::Pause(us) => event::value_not_moved(segment, Some(us), error),
            Verdict::ForGood => event::value_not_moved(segment, None, error),
        }
        if !self.has(segment) {
            // It has left meanwhile, and nobody says so again.
            self.excluded.forget(&[segment]);
        }
        let victims = self.victims.load();
        let rest = victims.iter().filter(|number| **number != segment).copied();
        self.victims.store(Arc::new(rest.collect()));
    }

    /// Why `segment` is not collected now.
    pub fn why_excluded(&self, segment: SegmentNumber) -> Option<Error> {
        let exclusion = self.excluded.why(segment, self.clock.monotonic_us())?;
        let path = self.map.load().get(&segment).map(|segment| segment.path.clone());
        let path = path.unwrap_or_else(|| names::log_path(&self.dir, segment));
        Some(match exclusion.is_damaged {
            true => Error::corruption(&path, 0, exclusion.why),
            // The device may give it another time.
            false => Error::io("move values of", &path, std::io::Error::other(exclusion.why)),
        })
    }

    /// Somebody asks for a collection: values that the device did not give are tried again at once.
    pub fn retry_excluded(&self) {
        self.excluded.hurry();
    }

    /// How many segments have a value that could not be read when it was last tried to move it.
    pub fn excluded_count(&self) -> usize {
        self.excluded.count()
    }

    // Reading.

    /// The value at `handle`, from the cache or by one device read, checked against `key`; `None` if
    /// the segment has left the store: the key is to be looked up again.
    pub fn get(&self, key: &[u8], handle: ValueHandle, fill_cache: bool) -> Result<Option<Slice>> {
        let map = self.map.load();
        match self.get_held(&map, key, handle, fill_cache) {
            // After a refresh nothing keeps the segments of before.
            Err(Error::Removed { .. }) if !self.has(handle.segment) => Ok(None),
            value => value,
        }
    }

    /// As [`ValueLog::get`], of the segments in `held`.
    pub fn get_held(
        &self,
        held: &SegmentMap,
        key: &[u8],
        handle: ValueHandle,
        fill_cache: bool,
    ) -> Result<Option<Slice>> {
        let Some(segment) = held.get(&handle.segment) else { return Ok(None) };
        let place = place_of(segment, key, &handle);
        if let Some(value) = self.cached(&place) {
            return Ok(Some(value));
        }
        let file = self.file(segment)?;
        self.note_read(1, u64::from(handle.len));
        let value = value::read_value(&ValueRead { file: &*file, key, handle })?;
        if fill_cache {
            self.cache.insert(place, CachedBlock::of_value(value.clone()));
        }
        Ok(Some(value))
    }

    /// The value of `key` at `handle` if the cache has it.
    pub fn get_in_memory(&self, key: &[u8], handle: &ValueHandle) -> Option<Slice> {
        self.cached_of(&self.map.load(), key, handle)
    }

    pub(super) fn cached_of(
        &self,
        held: &SegmentMap,
        key: &[u8],
        handle: &ValueHandle,
    ) -> Option<Slice> {
        self.cached(&place_of(held.get(&handle.segment)?, key, handle))
    }

    /// Whether the cache has the value of `key` at `handle`.
    pub fn has_in_memory(&self, key: &[u8], handle: &ValueHandle) -> bool {
        let map = self.map.load();
        let place = map.get(&handle.segment).map(|segment| place_of(segment, key, handle));
        place.is_some_and(|place| self.cache.get(&place).is_some())
    }

    fn cached(&self, place: &CacheKey) -> Option<Slice> {
        let value = self.cache.get(place).and_then(CachedBlock::into_value)?;
        self.counters.cache_hits.fetch_add(1, Ordering::Relaxed);
        Some(value)
    }

    /// The values at the handles, in the order asked, by one batch of device reads; only the first ones, at least one, if
    /// those have `max_bytes`.
    pub fn read_held(
        &self,
        held: &SegmentMap,
        wanted: &[(&[u8], ValueHandle)],
        max_bytes: usize,
    ) -> Vec<Result<Slice>> {
        self.read_from(held, wanted, max_bytes, |segment| self.file(segment))
    }

    fn read_from(
        &self,
        held: &SegmentMap,
        wanted: &[(&[u8], ValueHandle)],
        max_bytes: usize,
        file_of: impl Fn(&Segment) -> Result<Arc<dyn RandomFile>>,
    ) -> Vec<Result<Slice>> {
        let open = |handle: &ValueHandle| match held.get(&handle.segment) {
            Some(segment) => file_of(segment),
            None => Err(self.missing(handle)),
        };
        let mut files: BTreeMap<SegmentNumber, Option<Arc<dyn RandomFile>>> = BTreeMap::new();
        for (_, handle) in wanted {
            files.entry(handle.segment).or_insert_with(|| open(handle).ok());
        }
        let file = |handle: &ValueHandle| files.get(&handle.segment).and_then(Option::as_ref);
        let reads: Vec<ValueRead<'_>> = wanted
            .iter()
            .filter_map(|(key, handle)| {
                file(handle).map(|file| ValueRead { file: &**file, key, handle: *handle })
            })
            .collect();
        let bytes = reads.iter().map(|read| u64::from(read.handle.len)).sum();
        self.note_read(reads.len() as u64, bytes);
        let mut values = value::read_values_within(&*self.vfs, &reads, max_bytes).into_iter();
        wanted
            .iter()
            .map_while(|(key, handle)| match file(handle) {
                Some(_) => values.next(),
                // Asked again for the error.
                None => Some(open(handle).and_then(|file| {
                    value::read_value(&ValueRead { file: &*file, key, handle: *handle })
                })),
            })
            .collect()
    }

    /// As [`ValueLog::read_held`], the values as they are stored, for moving them: about half
    /// of a victim is wanted, in the order of keys, so it is read ahead as a whole into the
    /// page cache, where it often is already.
    pub fn read_stored_held(
        &self,
        held: &SegmentMap,
        wanted: &[(&[u8], ValueHandle)],
    ) -> Vec<Result<Slice>> {
        // The checksum is one of the stored bytes, whatever they mean.
        let raw =
            |(key, handle): &(_, ValueHandle)| (*key, ValueHandle { compression: 0, ..*handle });
        let raw: Vec<(&[u8], ValueHandle)> = wanted.iter().map(raw).collect();
        self.read_from(held, &raw, usize::MAX, |segment| self.file_to_move_from(segment))
    }

    fn file_to_move_from(&self, segment: &Segment) -> Result<Arc<dyn RandomFile>> {
        if let Some(open) = &*segment.moved_from.load() {
            segment.moved_touched.store(true, Ordering::Relaxed);
            return Ok(open.file.clone());
        }
        let file = self.vfs.open(&segment.path, OpenMode { direct: false, random: true })?;
        if !segment.was_advised.swap(true, Ordering::Relaxed) {
            file.advise_willneed(0, file.len());
        }
        if self.open.load(Ordering::Relaxed) > self.max_open.load(Ordering::Relaxed) {
            self.close_some();
        }
        segment.moved_touched.store(true, Ordering::Relaxed);
        segment.moved_from.store(Some(self.opened(&file)));
        Ok(file)
    }

    fn note_read(&self, values: u64, bytes: u64) {
        self.counters.reads.fetch_add(values, Ordering::Relaxed);
        self.counters.read_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// What to say of a handle whose segment does not exist.
    pub fn missing(&self, handle: &ValueHandle) -> Error {
        let path = names::log_path(&self.dir, handle.segment);
        let detail = "an SST refers to a value in this segment, and the store has no such segment";
        Error::corruption(&path, handle.offset, detail)
    }

    fn segment(
        &self,
        number: SegmentNumber,
        path: PathBuf,
        (sealed_bytes, values_before): (u64, u64),
    ) -> Arc<Segment> {
        Arc::new(Segment {
            number,
            path,
            cache_file: self.cache.next_file_id(),
            file: ArcSwapOption::empty(),
            moved_from: ArcSwapOption::empty(),
            touched: AtomicBool::new(false),
            moved_touched: AtomicBool::new(false),
            was_advised: AtomicBool::new(false),
            sealed_bytes: AtomicU64::new(sealed_bytes),
            values_before,
        })
    }

    /// The open file of a segment.
    fn file(&self, segment: &Segment) -> Result<Arc<dyn RandomFile>> {
        if let Some(open) = &*segment.file.load() {
            if !segment.touched.load(Ordering::Relaxed) {
                segment.touched.store(true, Ordering::Relaxed);
            }
            return Ok(open.file.clone());
        }
        let sealed = segment.sealed_bytes.load(Ordering::Relaxed) > 0;
        // What is still being written is in the page cache.
        let mode = OpenMode { direct: self.direct && sealed, random: true };
        let file = self.vfs.open(&segment.path, mode).map_err(|error| match self.read_only {
            true if error.is_not_found() => Error::Removed { path: segment.path.clone() },
            _ => error,
        })?;
        segment.touched.store(true, Ordering::Relaxed);
        segment.file.store(Some(self.opened(&file)));
        if self.open.load(Ordering::Relaxed) > self.max_open.load(Ordering::Relaxed) {
            self.close_some();
        }
        Ok(file)
    }

    fn opened(&self, file: &Arc<dyn RandomFile>) -> Arc<OpenSegment> {
        self.open.fetch_add(1, Ordering::Relaxed);
        Arc::new(OpenSegment { file: file.clone(), open: self.open.clone() })
    }

    /// Closes files that were not read since the last time.
    #[cold]
    fn close_some(&self) {
        let map = self.map.load();
        for segment in map.values() {
            if !segment.touched.swap(false, Ordering::Relaxed) {
                segment.file.store(None);
            }
            if !segment.moved_touched.swap(false, Ordering::Relaxed) {
                segment.moved_from.store(None);
            }
        }
    }
}

/// Under what the cache has the value of `key` at `handle`. What is read is checked to be of that key and length, and a value
/// that another entry has fetched is not: so 56 bits of a hash of both stand above the offset, which has 40, and above the
/// number of the file, which is counted in the process.
fn place_of(segment: &Segment, key: &[u8], handle: &ValueHandle) -> CacheKey {
    let packed = value::pack_length(handle.len, handle.compression);
    let entry = hash_key(key) ^ packed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    CacheKey {
        file: segment.cache_file ^ ((entry >> 32) << 32),
        offset: handle.offset ^ (entry << OFFSET_BITS),
    }
}

/// Bits of an offset that a handle can name.
const OFFSET_BITS: u32 = MAX_SEGMENT_BYTES.trailing_zeros();

#[cfg(test)]
mod tests;
