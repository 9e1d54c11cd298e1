//! Recovery: the checkpoints of hot tables are read and the commit log is replayed into memtables, which
//! become L0 files, so that the store starts with an empty log. A crash at any point leaves either the old log or the new files in
//! force: the manifest edit that names the files also says from which segment on the log counts.

use crate::background::flush::{self, Parts};
use crate::batch::{self, Op};
use crate::error::Result;
use crate::event;
use crate::memory::table_cache::TableCache;
use crate::memtable::{Gathered, MemTable};
use crate::version::family::Family;
use crate::version::file_numbers::FileNumbers;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use terrace_base::checksum::hash_key;
use terrace_base::key::{trailer_kind, trailer_seqno};
use terrace_base::{InternalIter, MAX_SEQNO, SegmentNumber, SeqNo, ValueKind};
use terrace_log::format::RECORD_HEADER_BYTES;
use terrace_log::{
    Gap, LogPosition, LogReader, LogSegments, RecordKind, Recovered, SegmentFile, Setting, Step,
};
use terrace_manifest::evidence::Claims;
use terrace_manifest::{FileMeta, ManifestState, names};
use terrace_skiplist::{Full, Hint, Skiplist};
use terrace_sst::ScanOptions;
use terrace_vfs::Vfs;

/// What replay gathers for one family.
pub(crate) struct Replayed {
    pub family: Arc<Family>,
    /// Oldest first; the last one takes the entries.
    pub memtables: Vec<Arc<MemTable>>,
    /// Written while replay went on, because the memtables outgrew their share.
    pub files: Vec<FileMeta>,
    /// Those that began with what was hot.
    hot: Vec<Arc<MemTable>>,
    /// What the log has up to here is in SSTs, or was hot.
    flushed_seqno: SeqNo,
    /// The largest sequence number in `files`.
    spilled_seqno: SeqNo,
    /// The largest sequence number by which an SST is ordered, those in `files` included.
    newest_file: SeqNo,
    hint: Hint,
}

impl Replayed {
    fn new(family: Arc<Family>, flushed_seqno: SeqNo) -> Self {
        let files = family.hold_state();
        let newest_file = files.version.files().map(|(_, file)| file.largest_seqno).max();
        Self {
            newest_file: newest_file.unwrap_or_default(),
            family,
            memtables: Vec::new(),
            files: Vec::new(),
            hot: Vec::new(),
            flushed_seqno,
            spilled_seqno: SeqNo::ZERO,
            hint: Hint::default(),
        }
    }

    /// The largest sequence number replayed, or what was flushed before.
    pub fn max_seqno(&self) -> SeqNo {
        let replayed = self.memtables.iter().map(|m| m.max_seqno()).max().unwrap_or_default();
        self.flushed_seqno.max(replayed).max(self.spilled_seqno)
    }

    /// The number that the file of the memtables has to have, if what was hot is among them.
    fn number_for_hot(&self) -> Option<SeqNo> {
        (!self.hot.is_empty()).then(|| MAX_SEQNO.min(self.newest_file + 1))
    }

    /// Bytes of the memtables.
    pub fn bytes(&self) -> usize {
        self.memtables.iter().map(|m| m.size_bytes()).sum()
    }

    /// Takes what was hot when `file`, a checkpoint of the hot table, was made. Comes before the log, which
    /// has what was written since then.
    fn take_hot(&mut self, file: &FileMeta, table_cache: &TableCache) -> terrace_base::Result<()> {
        let mut iter = table_cache.reader_for_work(file)?.iter(ScanOptions::compaction());
        iter.seek_to_first()?;
        let no_memory = |e| terrace_base::Error::io("reserve memory for", table_cache.dir(), e);
        while iter.valid() {
            let (key, value, trailer) = (iter.user_key(), iter.value(), iter.trailer());
            self.put_hot(key, trailer, value).map_err(no_memory)?;
            iter.next()?;
        }
        self.hot.clone_from(&self.memtables);
        Ok(())
    }

    /// Inserts a version of a key that was hot.
    fn put_hot(&mut self, key: &[u8], trailer: u64, value: &[u8]) -> std::io::Result<()> {
        let bound = Skiplist::entry_upper_bound(key.len(), value.len());
        let memtable = self.with_room(bound)?.clone();
        let (seqno, kind) = (trailer_seqno(trailer), trailer_kind(trailer));
        let kind = kind.unwrap_or(ValueKind::Delete);
        memtable.insert(key, seqno, kind, value, &mut self.hint).map_err(full)?;
        memtable.note_seqno(seqno);
        Ok(())
    }

    /// The memtable that takes entries, with room for `bytes`.
    fn with_room(&mut self, bytes: usize) -> std::io::Result<&Arc<MemTable>> {
        if self.memtables.is_empty() || self.room_bytes() < bytes {
            let capacity = self.family.options().memtable_bytes.max(bytes);
            let id = self.memtables.len() as u64;
            self.memtables.push(Arc::new(MemTable::with_capacity(id, capacity)?));
            self.hint = Hint::default();
        }
        self.memtables.last().ok_or_else(|| std::io::ErrorKind::OutOfMemory.into())
    }

    /// Takes an operation of the batch that lies at `placed`; [`Self::settle`] ends a run of them.
    fn take<'a>(
        &mut self,
        placed: LogPosition,
        seqno: SeqNo,
        op: &Op<'a>,
        gathered: &mut Gathered<'a>,
    ) -> std::io::Result<()> {
        let is_flushed = seqno <= self.flushed_seqno || self.is_older_than_hot(seqno, op);
        // An ingested file is in force, or it never was.
        if is_flushed || op.ingested().is_some() {
            return Ok(());
        }
        let bound = batch::entry_room_bytes(op);
        if op.kind == ValueKind::RangeDelete {
            self.take_hot_again(seqno, (op.key, op.value), gathered)?;
        }
        if self.room_bytes() < gathered.bound_bytes() + bound {
            self.settle(gathered)?;
        }
        // A range tombstone needs no room, but the memtable.
        let memtable = self.with_room(bound)?.clone();
        memtable.note_commit(placed.segment, seqno);
        memtable.take(op, seqno, placed, gathered, &mut self.hint).map_err(full)
    }

    /// A range tombstone that is older than versions of the checkpoint must not lie in a newer file than they: a merge of
    /// theirs alone may take their sequence numbers from them. Those that were spilled before it come with it once more.
    fn take_hot_again(
        &mut self,
        seqno: SeqNo,
        (start, end): (&[u8], &[u8]),
        gathered: &mut Gathered<'_>,
    ) -> std::io::Result<()> {
        if self.hot.is_empty() || self.spilled_seqno == SeqNo::ZERO {
            return Ok(());
        }
        self.settle(gathered)?;
        for hot in self.hot.clone() {
            let mut iter = hot.iter();
            // A cursor over memory does not fail.
            let mut moved = iter.seek(start, u64::MAX);
            while moved.is_ok() && iter.valid() && iter.user_key() < end {
                let (key, trailer) = (iter.user_key(), iter.trailer());
                // Nobody sees older versions of the key any more.
                let is_here = |memtable: &Arc<MemTable>| {
                    let newest = memtable.get(key, hash_key(key), u64::MAX);
                    newest.is_some_and(|(of, _)| trailer_seqno(of) >= trailer_seqno(trailer))
                };
                if trailer_seqno(trailer) > seqno && !self.memtables.iter().any(is_here) {
                    self.put_hot(key, trailer, iter.value())?;
                }
                moved = iter.next();
            }
        }
        Ok(())
    }

    /// Whether the checkpoint of the hot table has a newer version, or this one, of the operation's key.
    /// Memtables rely on it that the versions of a key come in their order.
    fn is_older_than_hot(&self, seqno: SeqNo, op: &Op<'_>) -> bool {
        op.kind != ValueKind::RangeDelete
            && self.hot.iter().any(|memtable| {
                let newest = memtable.get(op.key, hash_key(op.key), u64::MAX);
                newest.is_some_and(|(trailer, _)| trailer_seqno(trailer) >= seqno)
            })
    }

    /// Bytes that still fit into the last memtable.
    fn room_bytes(&self) -> usize {
        self.memtables.last().map_or(0, |m| m.room_bytes())
    }

    /// Inserts what was gathered for this family.
    fn settle(&mut self, gathered: &mut Gathered<'_>) -> std::io::Result<()> {
        match self.memtables.last() {
            Some(memtable) => memtable.settle(gathered, &mut self.hint).map_err(full),
            None => Ok(()),
        }
    }

    /// Writes the gathered memtables to an L0 file.
    pub fn spill(&mut self, parts: &Parts<'_>) -> Result<()> {
        if self.memtables.iter().all(|m| m.is_empty()) {
            return Ok(());
        }
        let newest_first: Vec<_> = self.memtables.drain(..).rev().collect();
        self.spilled_seqno =
            newest_first.iter().map(|m| m.max_seqno()).fold(self.spilled_seqno, SeqNo::max);
        let mut files =
            flush::write_l0(parts, &self.family, &newest_first, &[], SeqNo::ZERO, None)?;
        // With a hot table the log goes back further than some SSTs do, and its hot keys are in none of them: what is
        // replayed comes before all SSTs in the order of L0, and before files with what was hot that were spilled earlier.
        // No two files have the same number: their order would then be that of their names, which a merge changes.
        for file in &mut files {
            if file.largest_seqno <= self.newest_file {
                file.largest_seqno = MAX_SEQNO.min(self.newest_file + 1);
            }
            self.newest_file = file.largest_seqno;
        }
        self.files.extend(files);
        Ok(())
    }
}

/// Log segments in `dir` that the manifest still needs, as far as they are there, ascending.
pub(crate) fn segments_in(
    dir: &Path,
    listing: &[String],
    state: &ManifestState,
    numbers: &FileNumbers,
) -> Vec<SegmentFile> {
    let oldest = state.oldest_log_segment();
    let mut segments: Vec<SegmentFile> = listing
        .iter()
        .filter_map(|name| match names::parse(name) {
            names::FileName::Log(number)
                if number >= oldest && !numbers.is_foreign(number.file()) =>
            {
                let in_force = !state.segments.contains_key(&number);
                in_force.then(|| SegmentFile { number, path: names::log_path(dir, number) })
            }
            _ => None,
        })
        .collect();
    segments.sort();
    segments
}

/// Log segments in `dir` that the manifest still needs, ascending.
///
/// # Errors
/// `Corruption` if the oldest one is missing. Only stores that no build with evidence has opened may
/// have none at all: earlier builds named the first segment before they made it.
pub(crate) fn live_segments(
    dir: &Path,
    listing: &[String],
    state: &ManifestState,
    numbers: &FileNumbers,
) -> terrace_base::Result<Vec<SegmentFile>> {
    let oldest = state.oldest_log_segment();
    let segments = segments_in(dir, listing, state, numbers);
    let first = segments.first().map(|file| file.number);
    if oldest > SegmentNumber::ZERO
        && first != Some(oldest)
        && (first.is_some() || state.keeps_evidence)
    {
        let detail = format!(
            "it is missing, and the manifest says that the log begins with it: writes would be \
             lost. Put it back, restore the store from a checkpoint, or save what is left with \
             `terrace repair {}`",
            dir.display()
        );
        return Err(terrace_base::Error::corruption(&names::log_path(dir, oldest), 0, detail));
    }
    Ok(segments)
}

/// Whether a segment has a batch with operations, also behind damage: a repair would replay it.
fn has_writes(reader: &mut LogReader) -> terrace_base::Result<bool> {
    loop {
        while let Step::Record(record) = reader.next()? {
            if record.kind == RecordKind::Data
                && batch::decode(record.payload).is_some_and(|(_, count, _)| count > 0)
            {
                return Ok(true);
            }
        }
        if reader.resync()?.is_none() {
            return Ok(false);
        }
    }
}

/// Those of `segments`, which are all of the log in force, that are of another store ([`Place::is_unlinked`]). What cannot be
/// read counts as this store's.
pub(crate) fn of_another_store(
    vfs: &dyn Vfs,
    segments: &[SegmentFile],
    state: &ManifestState,
) -> Vec<SegmentNumber> {
    if !state.keeps_evidence {
        return Vec::new();
    }
    let open = |file: &SegmentFile| LogReader::open(vfs, &file.path, file.number).ok();
    let mut readers: Vec<LogReader> = segments.iter().filter_map(open).collect();
    let unlinked = terrace_log::unlinked(&readers, state.oldest_log_segment());
    readers.retain_mut(|reader| {
        unlinked.contains(&reader.segment()) && has_writes(reader).unwrap_or(false)
    });
    readers.iter().map(LogReader::segment).collect()
}

/// What to say of writes at a [`Place`] that is unlinked.
pub(crate) const OF_ANOTHER_STORE: &str = "the log does not begin with this segment, and it names none that it continues: it \
                                           is of another store; move it away, or run `terrace repair`";

/// Where a record of the log stands.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub segment: SegmentNumber,
    pub offset: u64,
    /// In a segment behind the one with which the log begins that names none before it. The store makes such a one when it is
    /// opened, and the manifest says that the log begins with it before there are writes in it. So one with writes is of another
    /// store. A repair that salvages may have a manifest that says too little: nothing is unlinked for it.
    pub is_unlinked: bool,
}

/// The log that is replayed.
pub(crate) struct Log<'a> {
    pub vfs: &'a dyn Vfs,
    pub dir: &'a Path,
    /// Ascending.
    pub segments: &'a [SegmentFile],
    /// What is known of it.
    pub setting: Setting,
    /// Replay what is sound, whatever is not: for a repair.
    pub salvages: bool,
}

impl<'a> Log<'a> {
    /// The log in `dir`, of which `claims` are known. What they say of segments that the manifest does
    /// not need any more counts no longer.
    pub fn new(
        vfs: &'a dyn Vfs,
        dir: &'a Path,
        segments: &'a [SegmentFile],
        claims: &Claims,
        state: &ManifestState,
    ) -> Self {
        let log = claims.log;
        let proven = Some(log).filter(|log| {
            log.segment > SegmentNumber::ZERO && log.segment >= state.oldest_log_segment()
        });
        let setting = Setting { proven, beside_writer: false };
        Self { vfs, dir, segments, setting, salvages: false }
    }

    /// Gives every record to `apply`; what was read, and if it is salvaged, what could not be.
    pub fn read(
        &self,
        state: &ManifestState,
        apply: &mut dyn FnMut(Place, &[u8]) -> terrace_base::Result<()>,
    ) -> terrace_base::Result<(Recovered, Vec<Gap>)> {
        if self.salvages {
            return terrace_log::salvage(
                self.vfs,
                self.segments,
                &mut |segment, offset, payload| {
                    apply(Place { segment, offset, is_unlinked: false }, payload)
                },
            );
        }
        let log = LogSegments::open(self.vfs, self.segments)?;
        let unlinked = state.keeps_evidence.then(|| log.unlinked(state.oldest_log_segment()));
        let unlinked = unlinked.unwrap_or_default();
        let recovered = log.replay(self.setting, &mut |segment, offset, payload| {
            let is_unlinked = unlinked.contains(&segment);
            apply(Place { segment, offset, is_unlinked }, payload)
        })?;
        Ok((recovered, Vec::new()))
    }

    /// The same, while another process may be appending to it.
    pub fn beside_writer(mut self) -> Self {
        self.setting.beside_writer = true;
        self
    }
}

/// What [`replay`] reports.
pub(crate) struct Outcome {
    pub families: BTreeMap<u32, Replayed>,
    /// The last sequence number that was given out: new writes get larger ones.
    pub last_seqno: SeqNo,
    /// The last one that the log knows of; 0 if it has no records.
    pub log_seqno: SeqNo,
    /// Whether the log notes an ingestion that came after the manifest: its files are not in the state.
    pub ingests_later: bool,
    pub log: Recovered,
}

impl Outcome {
    /// Writes everything that was replayed to L0 files.
    pub fn spill_all(&mut self, parts: &Parts<'_>) -> Result<()> {
        for family in self.families.values_mut() {
            family.spill(parts)?;
            self.last_seqno = self.last_seqno.max(family.newest_file);
        }
        Ok(())
    }

    /// Uses up the numbers of the files that are flushed when there is room.
    pub fn use_up_for_hot(&mut self) {
        let numbers = self.families.values().filter_map(Replayed::number_for_hot);
        self.last_seqno = numbers.fold(self.last_seqno, SeqNo::max);
    }

    /// The sequence number of the newest write that is there. A manifest may count further: a
    /// writer with a buffered log names writes in it that the log does not show yet.
    pub fn newest_seqno(&self, state: &ManifestState) -> SeqNo {
        let replayed = self.families.values().map(Replayed::max_seqno);
        // Of families with a hot table more is in SSTs than they count as flushed.
        let files = state.families.values().flat_map(|family| family.version.all_files());
        replayed.chain(files.map(|(_, file)| file.largest_seqno)).max().unwrap_or_default()
    }
}

/// Inserts what was gathered for a family.
fn settle(
    replayed: &mut BTreeMap<u32, Replayed>,
    family: Option<u32>,
    gathered: &mut Gathered<'_>,
) -> std::io::Result<()> {
    match family.and_then(|id| replayed.get_mut(&id)) {
        Some(family) => family.settle(gathered),
        None => Ok(()),
    }
}

/// A memtable that had room refused an entry.
fn full(_: Full) -> std::io::Error {
    std::io::ErrorKind::OutOfMemory.into()
}

/// What replay goes on from.
pub(crate) struct OnDisk<'a> {
    pub families: &'a [Arc<Family>],
    pub state: &'a ManifestState,
    pub table_cache: &'a TableCache,
}

impl OnDisk<'_> {
    /// Every family with what was hot at its last checkpoint.
    fn begin(&self) -> terrace_base::Result<BTreeMap<u32, Replayed>> {
        let mut replayed = BTreeMap::new();
        for family in self.families {
            let known = self.state.families.get(&family.id);
            let flushed = known.map_or(SeqNo::ZERO, |family| family.flushed_seqno);
            let mut begun = Replayed::new(family.clone(), flushed);
            for file in known.iter().flat_map(|family| family.version.hot().files()) {
                begun.take_hot(file, self.table_cache)?;
            }
            replayed.insert(family.id, begun);
        }
        Ok(replayed)
    }
}

/// Replays a log. When the memtables pass `limit_bytes`, `spill` is called with the largest family.
pub(crate) fn replay(
    log @ &Log { dir, setting, .. }: &Log<'_>,
    on_disk: &OnDisk<'_>,
    limit_bytes: usize,
    spill: &mut dyn FnMut(&mut Replayed) -> Result<()>,
) -> Result<Outcome> {
    let mut replayed = on_disk.begin()?;
    let state = on_disk.state;
    let mut last_seqno = state.last_seqno;
    let mut next_seqno = SeqNo::ZERO;
    let mut ingests_later = false;
    let mut failure = None;
    let path_of = |segment| names::log_path(dir, segment);
    let apply = &mut |Place { segment, offset, is_unlinked }: Place, payload: &[u8]| {
        let wrong = |why| terrace_base::Error::corruption(&path_of(segment), offset, why);
        let malformed = |at| wrong(batch::not_a_batch(at));
        let (first, count, ops) = batch::decode_next(payload, next_seqno).map_err(wrong)?;
        if count > 0 && is_unlinked {
            return Err(wrong(OF_ANOTHER_STORE.into()));
        }
        // What is salvaged is whole batches.
        if log.salvages
            && let Some(Err(at)) = ops.clone().find(|op| op.is_err())
        {
            return Err(malformed(at));
        }
        next_seqno = first + u64::from(count);
        let no_memory = |e| terrace_base::Error::io("reserve memory for", dir, e);
        let mut gathered = Gathered::for_ops(count as usize);
        let mut run_of = None;
        for (seqno, op) in first.onward().zip(ops) {
            let op = op.map_err(malformed)?;
            ingests_later |= op.ingested().is_some() && seqno > state.last_seqno;
            if run_of != Some(op.family) {
                settle(&mut replayed, run_of, &mut gathered).map_err(no_memory)?;
                run_of = Some(op.family);
            }
            if let Some(family) = replayed.get_mut(&op.family) {
                let offset = offset + RECORD_HEADER_BYTES as u64;
                let placed = LogPosition { segment, offset };
                family.take(placed, seqno, &op, &mut gathered).map_err(no_memory)?;
            }
        }
        settle(&mut replayed, run_of, &mut gathered).map_err(no_memory)?;
        last_seqno = last_seqno.max(next_seqno.previous());
        if replayed.values().map(Replayed::bytes).sum::<usize>() > limit_bytes
            && let Some(largest) = replayed.values_mut().max_by_key(|family| family.bytes())
            && let Err(error) = spill(largest)
        {
            let text = error.to_string();
            failure = Some(error);
            return Err(terrace_base::Error::InvalidArgument(text));
        }
        Ok(())
    };
    let log = log.read(state, apply).map(|(log, _)| log);
    if let Some(error) = failure {
        return Err(error);
    }
    let log = log?;
    // Beside a writer it is an append that was half seen.
    if let (Some(why), Some(end), false) = (&log.torn, log.end, setting.beside_writer) {
        event::torn_log(end, log.dropped_bytes, why);
    }
    let log_seqno = next_seqno.previous();
    Ok(Outcome { families: replayed, last_seqno, log_seqno, ingests_later, log })
}
