//! Recovery of a store that is opened for writing: manifest, column families, log replay.
//!
//! SSTs are opened lazily, so the time does not depend on how many there are: it is the time to
//! read the manifest, to replay the log (empty after a clean close), and to list the directory.

use crate::admin::families;
use crate::background::env::JobEnv;
use crate::background::flush::Parts;
use crate::env::BaseEnv;
use crate::env::rate_limit::RateLimiter;
use crate::error::{Error, Result};
use crate::event;
use crate::inner::Inner;
use crate::jobs::Jobs;
use crate::jobs::job_list::JobProgress;
use crate::kill_point::kill_point;
use crate::memory::filter_budget::FilterBudget;
use crate::memory::table_cache::TableCache;
use crate::merge_operator::MergeOperator;
use crate::metrics::trends::Trends;
use crate::open::family_options;
use crate::open::kept_log::{self, ReplayedLog};
use crate::open::merged;
use crate::open::orphans;
use crate::open::recover::{self, OnDisk, Replayed};
use crate::options::{AdvancedOptions, FamilyOptions, Options, stored};
use crate::values::garbage::Garbage;
use crate::values::value_log::ValueLog;
use crate::version::evidence::Evidence;
use crate::version::family::Family;
use crate::version::file_numbers::FileNumbers;
use crate::version::log_history::LogHistory;
use crate::version::read_env::{ReadEnv, family_of};
use crate::version::reader_pins::ReaderPins;
use crate::version::unpublished;
use crate::version::version_set::{ManifestLog, VersionSet};
use crate::write::env::CommitEnv;
use crate::write::led;
use crate::write::queue::LogState;
use arc_swap::ArcSwap;
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use terrace_base::rng::{Rng, SplitMix64};
use terrace_base::sync::{self, Mutex};
use terrace_base::{AtomicSeqNo, FileNumber, SegmentNumber, SeqNo};
use terrace_log::{Recovered, SegmentFile};
use terrace_manifest::evidence::{self, Claims};
use terrace_manifest::names::{self, FileName};
use terrace_manifest::{
    FamilyEdit, FamilyState, HOT_LEVEL, Manifest, ManifestState, SegmentKind, SegmentMeta,
    VersionEdit,
};
use terrace_sst::{BlockCache, ReadCounters};
use terrace_vfs::Vfs;

/// Recovers the store and begins a new log.
pub(crate) fn recover_and_write(dir: &Path, options: &Options, start: u64) -> Result<Inner> {
    let vfs = options.advanced.vfs.clone();
    // Before CURRENT: what was written down earlier must still be there.
    let found = evidence::read(&*vfs, dir)?;
    merged::settle(&*vfs, dir)?;
    let (manifest, state) = open_manifest(&vfs, dir, options, &found.claims)?;
    if state.keeps_evidence {
        found.problems.iter().for_each(|(path, why)| event::evidence_damaged(path, why));
    }
    kill_point("open:manifest_recovered");
    let (inner, log) = recover_log(dir, options, (manifest, state), found.claims, false)?;
    let families = inner.read.families.load();
    let files = families.iter().map(|f| f.state().version.file_count()).sum();
    let took = options.advanced.clock.monotonic_us().saturating_sub(start);
    event::opened(dir, families.len(), files, log.records, took);
    drop(families);
    Ok(inner)
}

/// Replays the log of a store, of which `claims` are known, into SSTs, and begins a new one. With `salvages`,
/// for a repair, what is sound of it, whatever is not.
pub(crate) fn recover_log(
    dir: &Path,
    options: &Options,
    (manifest, mut state): (Manifest, ManifestState),
    claims: Claims,
    salvages: bool,
) -> Result<(Inner, Recovered)> {
    let vfs = options.advanced.vfs.clone();
    let mut log = ManifestLog {
        manifest: Some(manifest),
        state: state.clone(),
        torn: false,
        undecided: Vec::new(),
        before_next: None,
    };
    let listing = vfs.list(dir)?;
    let numbers = FileNumbers::new(&listing, state.next_file_number);
    create_families(&mut log, options)?;
    state = log.state.clone();

    let mut parts = Nouns::new(dir, options, false)?;
    parts.mind_readers(&listing, options);
    let families = open_families(&state, options, &parts.table_cache, &[])?;
    let spill_parts = Parts {
        vfs: &vfs,
        dir,
        clock: &*options.advanced.clock,
        limiter: &parts.limiter,
        next_file_number: &|| numbers.take(),
        trainings: parts.table_cache.trainings(),
        progress: &JobProgress::default(),
    };
    let segments = match salvages {
        true => recover::segments_in(dir, &listing, &state, &numbers),
        false => recover::live_segments(dir, &listing, &state, &numbers)?,
    };
    let mut log_files = recover::Log::new(&*vfs, dir, &segments, &claims, &state);
    log_files.salvages = salvages;
    let limit = options.memtables_bytes();
    let on_disk = OnDisk { families: &families, state: &state, table_cache: &parts.table_cache };
    let mut outcome = recover::replay(&log_files, &on_disk, limit, &mut |family| {
        family.spill(&spill_parts)?;
        kill_point("open:spilled");
        Ok(())
    })?;
    outcome.spill_all(&spill_parts)?;
    let fresh = outcome.families.values().flat_map(|family| &family.files);
    unpublished::publish(&*vfs, dir, fresh.map(|file| file.number))?;
    kill_point("open:replayed");
    let known = Claims { store_id: state.store_id, ..claims };
    let evidence = Evidence::start(vfs.clone(), dir, known);
    // Before the edit that says that the log begins with it: a needed segment always exists.
    let segment = (spill_parts.next_file_number)().segment();
    let replayed = ReplayedLog {
        vfs: &*vfs,
        dir,
        listing: &listing,
        numbers: &numbers,
        segments: &segments,
        state: &state,
        outcome: &outcome,
    };
    let (log_state, history) = replayed.go_on(segment, options, salvages)?;
    let mut edit =
        recovered_edit(outcome.families.values(), segment, numbers.next(), outcome.last_seqno);
    for family in &mut edit.families {
        if let Some(before) = log.state.families.get(&family.id) {
            let hot = before.version.hot().numbers().iter();
            family.removed.extend(hot.map(|number| (HOT_LEVEL, *number)));
        }
    }
    edit.segments_added = sealed_by_recovery(&*vfs, &segments, &state, &edit)?;
    if let Some(manifest) = log.manifest.as_mut() {
        manifest.append(&mut log.state, &edit)?;
        evidence.note_manifest(manifest.synced(), &log.state, Some(segment));
    }
    kill_point("open:installed");
    for family in &families {
        if let Some(state) = log.state.families.get(&family.id) {
            family.install(state.version.clone(), &[], None, &parts.table_cache);
        }
    }
    kept_log::trim(&history, options, &log.state, segment);
    let (segments, skipped) = (&segments[..], &outcome.log.skipped[..]);
    let before = orphans::LogBefore { segments, skipped, history: &history };
    orphans::settle(&*vfs, dir, &log.state, &before, &numbers, &parts.reader_pins)?;
    kill_point("open:orphans_removed");
    let last_seqno = outcome.last_seqno;
    let (manifest, file_numbers, log) = (log, numbers, Some(log_state));
    let opened = Opened { families, manifest, file_numbers, last_seqno, evidence, history, log };
    Ok((parts.into_inner(options.clone(), opened)?, outcome.log))
}

pub(crate) fn not_a_store(dir: &Path, why: impl Into<String>) -> Error {
    Error::NotAStore { dir: dir.to_path_buf(), why: why.into() }
}

/// The error of a look into the directory of a store, or of what should be one.
pub(crate) fn no_look(dir: &Path, error: terrace_base::Error) -> Error {
    match &error {
        terrace_base::Error::Io { source, .. }
            if source.kind() == std::io::ErrorKind::NotADirectory =>
        {
            not_a_store(dir, "it is no directory")
        }
        _ => error.into(),
    }
}

pub(crate) fn lock(vfs: &dyn Vfs, dir: &Path) -> Result<Box<dyn Send + Sync>> {
    if !vfs.exists(dir)? {
        return Err(not_a_store(dir, "the directory does not exist"));
    }
    vfs.lock(&names::lock_path(dir)).map_err(|error| match &error {
        terrace_base::Error::Io { source, .. }
            if source.kind() == std::io::ErrorKind::WouldBlock =>
        {
            Error::Locked(dir.to_path_buf())
        }
        _ => no_look(dir, error),
    })
}

/// Recovers the manifest, or creates one where there is no store yet. A directory with store
/// files but without CURRENT is damaged, not new: nothing in it is touched.
fn open_manifest(
    vfs: &Arc<dyn Vfs>,
    dir: &Path,
    options: &Options,
    claims: &Claims,
) -> Result<(Manifest, ManifestState)> {
    if vfs.exists(&names::current_path(dir))? {
        return Ok(Manifest::recover_proven(vfs.clone(), dir, claims)?);
    }
    let mut store_files = vfs.list(dir)?;
    // A store makes numbered temporary files only once CURRENT is durable; in a new one they would be removed.
    store_files.retain(|name| {
        use FileName::{Evidence, Log, Sst, ValueLog};
        matches!(names::parse(name), Sst(_) | Log(_) | ValueLog(_) | Evidence(_))
            || names::temp_number(name).is_some()
    });
    if let Some(name) = store_files.first() {
        let why = format!(
            "CURRENT is missing although there is {name}; restore it, or run `terrace repair`, or move \
             {name} away if it is no store's"
        );
        return Err(not_a_store(dir, why));
    }
    if !options.create_if_missing {
        return Err(not_a_store(dir, "there is no CURRENT file, and create_if_missing is not set"));
    }
    orphans::clear_name_of_reserve(&**vfs, dir, false)?;
    let seed = options.advanced.clock.wall_ms() ^ (u64::from(sync::process_id()) << 40);
    Ok(Manifest::create(vfs.clone(), dir, SplitMix64::new(seed).next_u64())?)
}

/// Creates the families that the options name and the store does not have, and gives families the merge
/// operators that the options have for them, and the options that they are opened with.
///
/// # Errors
/// As [`families::merge_operator`] and [`family_options::in_force`], with nothing changed.
fn create_families(log: &mut ManifestLog, options: &Options) -> Result<()> {
    let mut edit = VersionEdit::default();
    let mut next_id = log.state.next_family_id;
    let oldest_segment = log.state.families.values().map(|f| f.min_log_segment).min();
    for family in log.state.families.values() {
        let operator = merge_operator(options, family)?.filter(|_| family.merge_operator.is_none());
        let merge_operator = operator.map(|operator| operator.name().to_string());
        let options = family_options::to_store(options, family)?;
        if merge_operator.is_some() || options.is_some() {
            let id = family.id;
            edit.families.push(FamilyEdit { id, merge_operator, options, ..Default::default() });
        }
    }
    for (name, family) in &options.column_families {
        let exists = log.state.families.values().any(|f| f.name == *name)
            || edit.families.iter().any(|f| f.create.as_ref() == Some(name));
        if !exists {
            edit.families.push(FamilyEdit {
                id: next_id,
                create: Some(name.clone()),
                merge_operator: family.merge_operator.as_ref().map(|op| op.name().into()),
                options: Some(stored::encode(family, None).into()),
                min_log_segment: oldest_segment,
                ..FamilyEdit::default()
            });
            // No family can have the number after the last: the manifest refuses that edit.
            next_id = next_id.saturating_add(1);
        }
    }
    if let Some(manifest) = log.manifest.as_mut()
        && !edit.families.is_empty()
    {
        manifest.append(&mut log.state, &edit)?;
    }
    Ok(())
}

/// The merge operator that a family is opened with.
///
/// # Errors
/// As [`families::merge_operator`].
pub(crate) fn merge_operator(
    options: &Options,
    family: &FamilyState,
) -> Result<Option<Arc<dyn MergeOperator>>> {
    let stored = family.merge_operator.as_deref();
    let given = family_options::given_operator(options, family);
    families::merge_operator(&family.name, stored, given)
}

/// The families of `state`; those that are in `known` already as they are, but for an operator that they have got since.
pub(crate) fn open_families(
    state: &ManifestState,
    options: &Options,
    table_cache: &TableCache,
    known: &[Arc<Family>],
) -> Result<Vec<Arc<Family>>> {
    let open = |f: &FamilyState| {
        if let Some(family) = family_of(known, f.id) {
            // Without one that has to be given, what has no operands is read as before.
            if let Ok(Some(operator)) = merge_operator(options, f) {
                family.learn_operator(operator);
            }
            return Ok(family.clone());
        }
        let merge_operator = merge_operator(options, f)?;
        let keeps_seqnos = merge_operator.is_some();
        let chosen = family_options::in_force(options, f)?;
        let resolved = options.family(&chosen);
        let resolved = FamilyOptions { merge_operator, keeps_seqnos, ..resolved };
        Family::new(f.id, f.name.clone(), (chosen, resolved), f.version.clone(), table_cache)
            .map(Arc::new)
            .map_err(|e| terrace_base::Error::io("reserve memory for", table_cache.dir(), e).into())
    };
    state.families.values().map(open).collect()
}

/// The edit that puts the recovered files in force and the old log out of it.
fn recovered_edit<'a>(
    families: impl Iterator<Item = &'a Replayed>,
    segment: SegmentNumber,
    next_file: FileNumber,
    last_seqno: SeqNo,
) -> VersionEdit {
    let families = families.map(|replayed| FamilyEdit {
        id: replayed.family.id,
        min_log_segment: Some(segment),
        flushed_seqno: Some(replayed.max_seqno()),
        added: replayed.files.iter().map(|file| (0, file.clone())).collect(),
        ..FamilyEdit::default()
    });
    VersionEdit {
        next_file_number: Some(next_file),
        last_seqno: Some(last_seqno),
        families: families.collect(),
        keeps_evidence: true,
        ..VersionEdit::default()
    }
}

/// The log segments that SSTs refer to, made durable: they are value segments from now on.
fn sealed_by_recovery(
    vfs: &dyn Vfs,
    replayed: &[SegmentFile],
    state: &ManifestState,
    edit: &VersionEdit,
) -> Result<Vec<SegmentMeta>> {
    let old = state.families.values().flat_map(|family| family.version.files());
    let fresh = edit.families.iter().flat_map(|family| &family.added);
    let files = old.map(|(_, file)| &**file).chain(fresh.map(|(_, file)| file));
    let referred: HashSet<SegmentNumber> =
        files.flat_map(|file| &file.value_refs).map(|reference| reference.segment).collect();
    let mut sealed = Vec::new();
    for SegmentFile { number, path } in replayed {
        if !referred.contains(number) {
            continue;
        }
        // After a mere kill the device may not have all that was replayed.
        vfs.sync_file(path)?;
        let (kind, size_bytes) = (SegmentKind::CommitLog, vfs.len(path)?);
        sealed.push(SegmentMeta { number: *number, kind, size_bytes });
    }
    Ok(sealed)
}

/// The nouns that exist before a store is recovered.
pub(crate) struct Nouns {
    dir: std::path::PathBuf,
    filters: Arc<FilterBudget>,
    pub table_cache: Arc<TableCache>,
    pub value_log: ValueLog,
    limiter: Arc<RateLimiter>,
    reader_pins: ReaderPins,
}

/// What an open has read and recovered.
pub(crate) struct Opened {
    pub families: Vec<Arc<Family>>,
    pub manifest: ManifestLog,
    pub file_numbers: FileNumbers,
    pub last_seqno: SeqNo,
    pub evidence: Evidence,
    /// What change feeds read; empty in a read-only store.
    pub history: LogHistory,
    /// None: the store is read-only.
    pub log: Option<LogState>,
}

impl Nouns {
    pub(crate) fn new(dir: &Path, options: &Options, read_only: bool) -> Result<Self> {
        let cache = Arc::new(BlockCache::new(options.cache_bytes()));
        let allocator = options.advanced.filter_allocator;
        let filters = Arc::new(FilterBudget::new(allocator, options.filter_bytes()));
        let (sst_files, value_files) = options.open_files();
        let direct = options.direct_io.reads;
        let (vfs, clock) = (options.advanced.vfs.clone(), options.advanced.clock.clone());
        let value_log =
            ValueLog::new(vfs, dir, direct, cache.clone(), value_files, clock).read_only(read_only);
        let table_cache = TableCache::new(
            options.advanced.vfs.clone(),
            dir,
            cache,
            Arc::new(ReadCounters::new()),
            filters.clone(),
            direct,
            sst_files,
        );
        let table_cache = Arc::new(table_cache.read_only(read_only));
        // Until the store is open there is nobody whom its writes could slow down.
        let limiter = Arc::new(RateLimiter::new(0));
        let (reader_pins, dir) = (ReaderPins::none(dir), dir.to_path_buf());
        Ok(Self { dir, filters, table_cache, value_log, limiter, reader_pins })
    }

    /// From here on files may be removed, but not those that readers beside the writer need.
    /// `listing` is what is in the directory.
    pub(crate) fn mind_readers(&mut self, listing: &[String], options: &Options) {
        let AdvancedOptions { vfs, max_reader_pinned_bytes, .. } = &options.advanced;
        self.reader_pins = ReaderPins::open(&**vfs, &self.dir, listing, *max_reader_pinned_bytes);
    }

    /// The store.
    pub(crate) fn into_inner(self, options: Options, opened: Opened) -> Result<Inner> {
        let Opened { families, manifest, file_numbers, last_seqno, evidence, history, log } =
            opened;
        for family in &families {
            let state = family.state();
            for (level, file) in state.version.files() {
                self.filters.file_lives(usize::from(level), file);
            }
        }
        self.filters.restore(&manifest.state.filter_heat);
        for family in &families {
            let state = family.state();
            let files = state.version.files().map(|(_, file)| &**file);
            self.value_log.count(files, std::iter::empty());
        }
        let segments: Vec<SegmentMeta> = manifest.state.segments.values().copied().collect();
        self.value_log.seal(&segments);
        let (read_only, given) = (log.is_none(), options.clone());
        self.limiter.set_rate(options.advanced.rate_limit_bytes_per_s);
        let base = Arc::new(BaseEnv::new(&self.dir, options, self.limiter, read_only)?);
        let trends = Trends::new(base.clock.monotonic_us());
        let (jobs, garbage) = (Arc::<Jobs>::default(), Arc::<Garbage>::default());
        let read = Arc::new(ReadEnv {
            base: base.clone(),
            families: ArcSwap::from_pointee(families),
            table_cache: self.table_cache,
            filters: self.filters,
            value_log: Arc::new(self.value_log),
            snapshots: Arc::default(),
            visible_seqno: AtomicSeqNo::new(last_seqno),
        });
        let versions = Arc::new(VersionSet {
            base: base.clone(),
            read: read.clone(),
            jobs: jobs.clone(),
            file_numbers,
            manifest: Mutex::new(manifest),
            evidence: evidence.of(&base),
            obsolete: Mutex::default(),
            reader_pins: self.reader_pins,
            purging: Mutex::default(),
            log_history: Arc::new(history),
            deletions_held: AtomicU64::new(0),
        });
        let commit = Arc::new(CommitEnv {
            base: base.clone(),
            read: read.clone(),
            versions: versions.clone(),
            jobs: jobs.clone(),
            garbage: garbage.clone(),
            queue: log.map(|log| led::queue(log, base.clone())),
        });
        let background = Arc::new(JobEnv {
            base: base.clone(),
            read: read.clone(),
            versions: versions.clone(),
            jobs: jobs.clone(),
            garbage,
            arbiter: Mutex::default(),
            commit: commit.clone(),
            undeleted: Mutex::default(),
        });
        let (last_look, lock) = (Mutex::default(), Mutex::default());
        Ok(Inner { given, base, read, versions, jobs, commit, background, trends, last_look, lock })
    }
}
