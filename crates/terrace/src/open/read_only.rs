//! Stores that are open read-only, beside a writer or alone: the open, and the refresh.
//!
//! A look at the directory goes: take the pin ([`crate::version::reader_pins`]); read the manifest; replay
//! the log that it needs; see that no family came or went meanwhile. Under the pin the writer removes
//! nothing of that. Where no pin can be had, a look may miss what the writer has just removed. That is
//! seen, and the look is repeated: never is a log without its beginning taken for the whole.
//!
//! What is shown is a prefix of the writer's history, with at least everything that the kernel had
//! when the look began.

use crate::error::{Error, Result};
use crate::inner::{Inner, Look, ManifestInForce};
use crate::memory::table_cache::TableCache;
use crate::open::read_write::{self, Nouns, Opened, no_look, not_a_store};
use crate::open::recover::{self, Log, OnDisk, Outcome, Replayed};
use crate::options::Options;
use crate::values::value_log::ValueLog;
use crate::version::evidence::Evidence;
use crate::version::family::Family;
use crate::version::file_numbers::FileNumbers;
use crate::version::log_history::LogHistory;
use crate::version::reader_pins::ReaderPin;
use crate::version::version_set::{ManifestLog, Obsolete};
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_base::{FileNumber, SegmentNumber};
use terrace_log::LogPosition;
use terrace_log::format::RECORD_HEADER_BYTES;
use terrace_manifest::evidence::{self, Claims};
use terrace_manifest::names::{self, FileName};
use terrace_manifest::{
    FileMeta, HOT_LEVEL, Manifest, ManifestState, SegmentMeta, Version, current,
};
use terrace_vfs::{OpenMode, Vfs};

/// How often a look is repeated while the writer changes what is looked at.
const MAX_LOOKS: u32 = 10;

/// Where a look is taken, and with what.
struct Place<'a> {
    vfs: &'a dyn Vfs,
    dir: &'a Path,
    options: &'a Options,
    table_cache: &'a Arc<TableCache>,
}

/// What a look found.
struct Found {
    claims: Claims,
    pin: Option<Arc<ReaderPin>>,
    state: ManifestState,
    /// Those of before, as far as they are still there, and new ones.
    families: Vec<Arc<Family>>,
    /// The log.
    segments: Vec<SegmentNumber>,
    outcome: Outcome,
    look: Look,
}

/// Opens the store in `dir` as it is now, writing nothing. Another process may go on writing; what
/// it writes later is seen after a [`refresh`].
pub(crate) fn open(dir: &Path, options: Options) -> Result<Inner> {
    options.check()?;
    let vfs = options.advanced.vfs.clone();
    let dir = &vfs.absolute(dir);
    if !vfs.exists(&names::current_path(dir)).map_err(|error| no_look(dir, error))? {
        return Err(not_a_store(dir, "there is no CURRENT file"));
    }
    let parts = Nouns::new(dir, &options, true)?;
    let place = Place { vfs: &*vfs, dir, options: &options, table_cache: &parts.table_cache };
    let Found { claims, pin, state, families, segments, outcome, look } = place.look(&[])?;
    let last_seqno = outcome.newest_seqno(&state);
    show(outcome, &state, &pin, &parts.table_cache);
    begin_values(&parts.value_log, &segments);
    let file_numbers = FileNumbers::new(&[], state.next_file_number);
    let evidence = Evidence::unwritten(vfs, dir, claims);
    let (torn, undecided, before_next) = (false, Vec::new(), None);
    let manifest = ManifestLog { manifest: None, state, torn, undecided, before_next };
    let (history, log) = (LogHistory::default(), None);
    let opened = Opened { families, manifest, file_numbers, last_seqno, evidence, history, log };
    let inner = parts.into_inner(options, opened)?;
    *inner.last_look.lock() = Some(look);
    Ok(inner)
}

/// Shows what the writer has written since the last look. Gives whether there is anything new.
/// Iterators and snapshots of before keep what they show. On an error nothing has changed.
pub(crate) fn refresh(inner: &Inner) -> Result<bool> {
    inner.base.health.check_open()?;
    if !inner.base.read_only {
        return Ok(false);
    }
    let mut last = inner.last_look.lock();
    let (vfs, dir) = (&*inner.base.vfs, inner.base.dir.as_path());
    if last.as_ref().is_some_and(|look| is_as_before(vfs, dir, look).unwrap_or(false)) {
        return Ok(false);
    }
    let place =
        Place { vfs, dir, options: &inner.base.options, table_cache: &inner.read.table_cache };
    // What is shown stays until the log has been read again: of what both have, the memtables' share is there once.
    let share = inner.base.options.memtables_bytes();
    let shown = inner.read.memtable_bytes().min(share);
    let _both = TableCache::pin(&inner.read.table_cache, (2 * shown).saturating_sub(share));
    let mut found = place.look(&inner.read.families.load())?;
    // The memory of the look before is not given back while somebody may still read it.
    let look = std::mem::take(&mut found.look);
    let is_new = publish(inner, found)?;
    *last = Some(look);
    Ok(is_new)
}

/// Lets go of all files, when the store is closed.
pub(crate) fn let_go(inner: &Inner) {
    let _shown = inner.versions.manifest.lock();
    for family in inner.read.families.load().iter() {
        family.show(Arc::default(), Vec::new(), None, &inner.read.table_cache);
    }
}

impl Place<'_> {
    /// Looks until the look is whole.
    fn look(&self, known: &[Arc<Family>]) -> Result<Found> {
        let mut before = None;
        let mut looks = 1;
        loop {
            let error = match self.look_once(known) {
                Ok(Some(found)) => return Ok(found),
                Ok(None) => families_change(self.dir),
                Err(error) if may_be_the_writer(&error) => error,
                Err(error) => return Err(error),
            };
            let now = Stamp::take(self.vfs, self.dir).ok();
            if looks > 1 && now == before {
                // Nobody writes: it is as it looks, readable or not.
                return Err(error);
            }
            if looks == MAX_LOOKS {
                return Err(match error {
                    Error::Corruption(cause) | Error::Io(cause) => Error::Outdated(cause),
                    error => error,
                });
            }
            before = now;
            looks += 1;
        }
    }

    /// `None` if families came or went meanwhile, or files were ingested: the log may then show writes of after that,
    /// a batch in parts, or without what was ingested before them.
    fn look_once(&self, known: &[Arc<Family>]) -> Result<Option<Found>> {
        let Self { vfs, dir, options, table_cache } = *self;
        let pin = ReaderPin::take(vfs, dir)?.map(Arc::new);
        // Before anything that it speaks of: a writer beside this reader only adds to what it says.
        let claims = evidence::read(vfs, dir)?.claims;
        // Before the manifest is read: an edit that comes in between is seen as a change later.
        let manifest = manifest_in_force(vfs, dir)?;
        let state = Manifest::read(vfs, dir)?;
        let listing = vfs.list(dir)?;
        let numbers = FileNumbers::new(&listing, state.next_file_number);
        let segments = recover::live_segments(dir, &listing, &state, &numbers)?;
        let families = read_write::open_families(&state, options, table_cache, known)?;
        let (share, cache) = (options.memtables_bytes(), options.cache_bytes());
        let log = Log::new(vfs, dir, &segments, &claims, &state).beside_writer();
        let too_much = || {
            Error::InvalidArgument(format!(
                "the log holds more than {} bytes that are in no SST yet, and a read-only store has \
                 to keep them in memory; open it with a memory_budget above {} bytes",
                share + cache,
                options.memory_budget
            ))
        };
        let on_disk = OnDisk { families: &families, state: &state, table_cache };
        let outcome = recover::replay(&log, &on_disk, share + cache, &mut |_| Err(too_much()))?;
        if manifest_in_force(vfs, dir)? != manifest
            && (outcome.ingests_later
                || !Manifest::read(vfs, dir)?.families.keys().eq(state.families.keys()))
        {
            return Ok(None);
        }
        let bytes: usize = outcome.families.values().map(Replayed::bytes).sum();
        let excess = bytes.saturating_sub(share);
        let look = Look {
            manifest,
            next_file_number: state.next_file_number,
            newest_log: newest_log(&listing, state.next_file_number),
            log_end: outcome.log.end,
            _memory: (excess > 0).then(|| TableCache::pin(table_cache, excess)),
        };
        let segments = segments.into_iter().map(|file| file.number).collect();
        Ok(Some(Found { claims, pin, state, families, segments, outcome, look }))
    }
}

/// What to say of a store whose families or ingested files change during every look.
fn families_change(dir: &Path) -> Error {
    let why = "column families or ingested files come faster than they can be read";
    let source = std::io::Error::new(std::io::ErrorKind::ResourceBusy, why);
    terrace_base::Error::io("read the families of", dir, source).into()
}

/// Whether an error may come of reading while the writer removes, cuts or appends.
fn may_be_the_writer(error: &Error) -> bool {
    match error {
        Error::Corruption(_) | Error::Outdated(_) => true,
        Error::Io(cause) => {
            cause.is_not_found()
                || matches!(&**cause, terrace_base::Error::Io { source, .. }
                    if source.kind() == std::io::ErrorKind::UnexpectedEof)
        }
        _ => false,
    }
}

/// Values in the log can be read from these segments, as far as handles can name them.
fn begin_values(value_log: &ValueLog, segments: &[SegmentNumber]) {
    let named = segments.iter().filter(|segment| segment.fits_handles());
    named.for_each(|segment| value_log.begin(*segment, 0));
}

/// What a writer changes when it writes: the manifest in force, and the log segments with their
/// lengths.
#[derive(PartialEq, Eq)]
struct Stamp {
    manifest: ManifestInForce,
    logs: Vec<(String, u64)>,
}

impl Stamp {
    fn take(vfs: &dyn Vfs, dir: &Path) -> terrace_base::Result<Self> {
        let manifest = manifest_in_force(vfs, dir)?;
        let mut logs = Vec::new();
        for name in vfs.list(dir)? {
            if let FileName::Log(_) = names::parse(&name) {
                let bytes = vfs.len(&dir.join(&name))?;
                logs.push((name, bytes));
            }
        }
        logs.sort();
        Ok(Self { manifest, logs })
    }
}

fn manifest_in_force(vfs: &dyn Vfs, dir: &Path) -> terrace_base::Result<ManifestInForce> {
    let number = current::read(vfs, dir)?;
    match vfs.len(&names::manifest_path(dir, number)) {
        Ok(bytes) => Ok(ManifestInForce { number, bytes }),
        // That it is lost, and what to do, the manifest says itself. If it can be read, the writer has just moved to it.
        Err(error) if error.is_not_found() => Err(Manifest::read(vfs, dir).err().unwrap_or(error)),
        Err(error) => Err(error),
    }
}

/// The newest segment, of a store whose manifest says that numbers from `next_file_number` on are
/// free.
fn newest_log(listing: &[String], next_file_number: FileNumber) -> Option<SegmentNumber> {
    let numbers = FileNumbers::new(listing, next_file_number);
    let number = |name: &String| match names::parse(name) {
        FileName::Log(number) if !numbers.is_foreign(number.file()) => Some(number),
        _ => None,
    };
    listing.iter().filter_map(number).max()
}

/// Whether nothing was written since `look`. Costs a listing of the directory and a few reads.
fn is_as_before(vfs: &dyn Vfs, dir: &Path, look: &Look) -> terrace_base::Result<bool> {
    if manifest_in_force(vfs, dir)? != look.manifest
        || newest_log(&vfs.list(dir)?, look.next_file_number) != look.newest_log
    {
        return Ok(false);
    }
    let Some(LogPosition { segment, offset: end }) = look.log_end else {
        return Ok(look.newest_log.is_none());
    };
    if Some(segment) != look.newest_log {
        return Ok(false);
    }
    let file = vfs.open(&names::log_path(dir, segment), OpenMode::default())?;
    if file.len() < end {
        // What was found there belonged to an append that failed, and was cut off since.
        return Ok(false);
    }
    let rest = file.len() - end;
    let mut next = [0; RECORD_HEADER_BYTES];
    let next = &mut next[..rest.min(RECORD_HEADER_BYTES as u64) as usize];
    let mut damaged = Vec::new();
    file.read_around_damage(end, next, &mut damaged)?;
    // Reserved room is zeros.
    Ok(damaged.is_empty() && next.iter().all(|byte| *byte == 0))
}

/// Makes what was replayed, and the versions, visible.
fn show(
    outcome: Outcome,
    state: &ManifestState,
    pin: &Option<Arc<ReaderPin>>,
    table_cache: &TableCache,
) {
    for (id, Replayed { family, memtables, .. }) in outcome.families {
        let version = state.families.get(&id).map(|f| f.version.clone()).unwrap_or_default();
        family.show(version, memtables, pin.clone(), table_cache);
    }
}

/// Shows what a look has found; whether there is anything new.
///
/// # Errors
/// `Closed`, with nothing shown.
fn publish(inner: &Inner, found: Found) -> Result<bool> {
    let Found { pin, mut state, families, segments, outcome, .. } = found;
    let mut shown = inner.versions.manifest.lock();
    // A close comes before [`let_go`], which takes this lock, and nothing may be shown after that.
    inner.base.health.check_open()?;
    // Whether a file is still read, the holders of its metadata say: those of all looks hold the same.
    state.share_files(&shown.state);
    let old = std::mem::replace(&mut shown.state, state);
    let state = &shown.state;
    // What the new states refer to must be there before anybody sees them.
    begin_values(&inner.read.value_log, &segments);
    let sealed = state.segments.values().filter(|s| !old.segments.contains_key(&s.number));
    inner.read.value_log.seal(&sealed.copied().collect::<Vec<SegmentMeta>>());
    let (added, removed) = (files_not_in(state, &old), files_not_in(&old, state));
    let meta = |files: &[(u8, Arc<FileMeta>)]| files.iter().map(|(_, f)| f.clone()).collect();
    let (fresh, gone): (Vec<Arc<FileMeta>>, Vec<Arc<FileMeta>>) = (meta(&added), meta(&removed));
    inner.read.value_log.count(fresh.iter().map(|f| &**f), gone.iter().map(|f| &**f));
    let in_levels = added.iter().filter(|(level, _)| *level < HOT_LEVEL);
    in_levels.for_each(|(level, file)| inner.read.filters.file_lives(usize::from(*level), file));
    // Before the states: every one of them is to be read as of its own last write, or a later one.
    // Release: pairs with the Acquire of readers.
    let newest = outcome.newest_seqno(state);
    let before = inner.read.visible_seqno.fetch_max(newest, Ordering::Release);
    // Whose compaction filter has changed what is visible, only the writer knows.
    let is_rewritten = added.iter().chain(&removed).any(|(level, _)| *level < HOT_LEVEL);
    let is_new = newest > before || is_rewritten || !old.families.keys().eq(state.families.keys());
    show(outcome, state, &pin, &inner.read.table_cache);
    let dropped = inner.read.families.load_full();
    for family in dropped.iter().filter(|f| !state.families.contains_key(&f.id)) {
        family.mark_dropped();
        family.show(Arc::default(), Vec::new(), None, &inner.read.table_cache);
    }
    inner.read.families.store(Arc::new(families));
    let needed: HashSet<SegmentNumber> =
        segments.into_iter().chain(state.segments.keys().copied()).collect();
    let held = inner.read.value_log.hold();
    let left: Vec<SegmentNumber> = held.keys().filter(|n| !needed.contains(n)).copied().collect();
    drop(held);
    inner.read.value_log.remove(&left);
    gone.iter().for_each(|file| inner.read.filters.file_leaves(file.number));
    let weak = |file: &Arc<FileMeta>| Obsolete { number: file.number, file: Arc::downgrade(file) };
    inner.versions.obsolete.lock().extend(gone.iter().map(weak));
    drop((shown, old, removed, gone, dropped));
    forget_unheld(inner);
    Ok(is_new)
}

/// The files of `state` whose numbers `other` does not have, each with its level.
fn files_not_in(state: &ManifestState, other: &ManifestState) -> Vec<(u8, Arc<FileMeta>)> {
    let versions = |state: &ManifestState| -> Vec<Arc<Version>> {
        state.families.values().map(|family| family.version.clone()).collect()
    };
    let others = versions(other);
    let known: HashSet<FileNumber> =
        others.iter().flat_map(|version| version.all_files()).map(|(_, f)| f.number).collect();
    let ours = versions(state);
    let files = ours.iter().flat_map(|version| version.all_files());
    let fresh = files.filter(|(_, file)| !known.contains(&file.number));
    fresh.map(|(level, file)| (level, file.clone())).collect()
}

/// Closes the files of earlier looks that nobody reads any more.
fn forget_unheld(inner: &Inner) {
    let mut unheld = Vec::new();
    inner.versions.obsolete.lock().retain(|obsolete| {
        let held = obsolete.file.strong_count() > 0;
        if !held {
            unheld.push(obsolete.number);
        }
        held
    });
    unheld.into_iter().for_each(|number| inner.read.table_cache.forget(number));
    inner.read.value_log.forget_unheld();
}
