//! The vocabulary of choosing a compaction: what a choice is made from, what it is, and the key
//! ranges behind it. Pure: no I/O, no clock, no lock. `leveled` and `tiered` choose with it.
//!
//! Rules every choice obeys; a wrong one loses data:
//!
//! - **Order.** All versions of a key in a shallower run are newer than those in a deeper one. So
//!   what moves down takes along every older version that lies on its way: of L0 all files, or
//!   files that overlap no older L0 file; of the levels up to the output all overlapping files.
//! - **Disjointness.** Levels below L0 hold disjoint files, and files are cut between user keys, so
//!   the files of the output level that overlap the inputs are all that can meet the output.
//! - **Damage.** A file that cannot be read is never an input either. As it stays where it is, newer
//!   versions of its keys stay in the levels above it.
//! - **Concurrency.** A busy file is never an input. Two compactions that write the same level
//!   must not write overlapping ranges ([`PickInput::may_write`]): only files that exist can be
//!   busy, and an empty range of a level has none. An L0 compaction excludes another one, because
//!   it takes all of L0.
//! - **No overtaking.** Nothing can sink through a running compaction from above: it would have to
//!   be written into one of its levels (busy or refused by range) or into a deeper one, and what
//!   goes from level S to level T takes along all that overlaps between them.
//! - **In place.** Files may be rewritten into their own level. Older versions then stay below, so
//!   all deeper levels count as below the output (`job::below`), whose tombstones and sequence
//!   numbers stay as they are where something is. Nothing new can come to lie below the inputs
//!   meanwhile: it would have to pass through them.

use super::above::Above;
use crate::jobs::scheduler::RunningCompaction;
use crate::options::FamilyOptions;
use std::cmp::{Ordering, Reverse};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::{Bound, Range};
use std::sync::Arc;
#[cfg(test)]
use std::sync::LazyLock;
use terrace_base::{FileNumber, SegmentNumber, SeqNo};
use terrace_manifest::{FamilyEdit, FileMeta, LEVEL_COUNT, Version};

/// The deepest level.
pub(crate) const LAST_LEVEL: usize = LEVEL_COUNT - 1;

/// A file is young for so long: writes are heavy if several new ones are.
const YOUNG_MS: u64 = 15_000;

/// What is merged for the sake of deleted ranges alone, where it is not known how much they cover: a mebibyte a second.
const BYTES_PER_MS_OF_AGE: u64 = 1 << 10;

/// A slowdown of writes counts for merges up to this many times the files that start one. One that is further off is to be out
/// of the writers' way: L0 must not grow towards it.
const MOST_TRIGGERS: usize = 20;

/// L0 files at which writes are slowed, as far as merges go by that.
pub(crate) fn slowdown(options: &FamilyOptions) -> usize {
    options.l0_slowdown.min(options.l0_compaction_trigger.saturating_mul(MOST_TRIGGERS))
}

/// L0 files, or sorted runs of a tiered family, that start a merge while writes are heavy.
pub(crate) fn patience(options: &FamilyOptions) -> usize {
    options.l0_compaction_trigger.midpoint(slowdown(options)).max(options.l0_compaction_trigger)
}

/// A file as versions share it.
pub(crate) type File = Arc<FileMeta>;

/// What a choice is made from.
#[derive(Clone, Copy)]
pub(crate) struct PickInput<'a> {
    pub family: u32,
    pub version: &'a Version,
    pub options: &'a FamilyOptions,
    /// Numbers of the input files of running compactions.
    pub in_progress: &'a HashSet<FileNumber>,
    /// Numbers of files that cannot be read: as busy, but nothing ends that they wait for.
    pub quarantined: &'a HashSet<FileNumber>,
    /// Running compactions of all families.
    pub running: &'a [RunningCompaction],
    /// The oldest live snapshot.
    pub snapshots_oldest: Option<SeqNo>,
    /// Wall-clock time.
    pub now_ms: u64,
    pub values: Values<'a>,
}

/// What a choice is made from that concerns separated values.
#[derive(Clone, Copy)]
pub(crate) struct Values<'a> {
    /// Segments whose values compactions move away.
    pub victims: &'a HashSet<SegmentNumber>,
    /// Whether files that refer to victim segments are rewritten now for that reason alone, even
    /// those that merges of L0 come to by themselves while there are writes.
    pub force: bool,
    /// Bytes of garbage that merging a file down would reveal, by file number; empty while there
    /// is little garbage.
    pub hidden: &'a HashMap<FileNumber, u64>,
    /// Bytes that live SSTs refer to.
    pub live_bytes: u64,
    /// Length of a segment.
    pub segment_bytes: u64,
}

/// Garbage is worth a merge that reveals it from one part in this many of the live bytes on …
pub(crate) const MIN_HIDDEN_PART: u64 = 40;
/// … and from this many bytes per byte of SSTs that the merge reads.
const MIN_HIDDEN_PER_BYTE: u64 = 3;
/// As [`MIN_HIDDEN_PER_BYTE`], when it must be now.
const MIN_HIDDEN_WHEN_FORCED: u64 = 1;

#[cfg(test)]
impl Values<'static> {
    /// A store without separated values.
    pub fn none() -> Self {
        static NOTHING: LazyLock<(HashSet<SegmentNumber>, HashMap<FileNumber, u64>)> =
            LazyLock::new(Default::default);
        let (victims, hidden) = &*NOTHING;
        Self { victims, force: false, hidden, live_bytes: 0, segment_bytes: 1 << 20 }
    }
}

impl Values<'_> {
    /// Bytes that `file` refers to in victim segments.
    pub fn victim_bytes(&self, file: &FileMeta) -> u64 {
        victim_bytes(file, self.victims)
    }

    /// Whether a merge of `bytes` that brings `files` down reveals garbage that is worth it.
    pub fn reveals<'f>(&self, files: impl IntoIterator<Item = &'f File>, bytes: u64) -> bool {
        if self.hidden.is_empty() {
            return false;
        }
        let hidden = |f: &File| self.hidden.get(&f.number).copied().unwrap_or(0);
        let hidden: u64 = files.into_iter().map(hidden).sum();
        let (part, per_byte) = match self.force {
            true => (0, MIN_HIDDEN_WHEN_FORCED),
            false => (self.live_bytes / MIN_HIDDEN_PART, MIN_HIDDEN_PER_BYTE),
        };
        hidden > 0 && hidden >= part.max(bytes.saturating_mul(per_byte))
    }
}

/// Why a compaction is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// Many L0 files.
    L0Files,
    /// Many L0 files, and the level below is busy.
    L0Backlog,
    /// A level is over its target.
    LevelSize,
    /// Files full of tombstones.
    Tombstones,
    /// Files full of expired values.
    Ttl,
    /// Values lie in victim segments, or garbage in the value log is to be found.
    Values,
    /// The store is idle: fewer runs for reads.
    Idle,
    /// `compact_range`.
    Manual,
    /// Tiered: many runs.
    RunCount,
    /// Tiered: runs of similar size.
    SizeRatio,
    /// Tiered: the runs above the oldest one are large beside it.
    SpaceAmplification,
}

impl Reason {
    /// The name in events and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::L0Files => "l0-files",
            Self::L0Backlog => "l0-backlog",
            Self::LevelSize => "level-size",
            Self::Tombstones => "tombstones",
            Self::Ttl => "ttl",
            Self::Values => "values",
            Self::Idle => "idle",
            Self::Manual => "manual",
            Self::RunCount => "run-count",
            Self::SizeRatio => "size-ratio",
            Self::SpaceAmplification => "space-amplification",
        }
    }
}

/// What to do next.
#[derive(Debug, Clone)]
pub(crate) enum Choice {
    /// Nothing, until something changes.
    Nothing,
    /// Files change their level and stay as they are: one edit, no I/O.
    Move(Move),
    /// Files are merged.
    Merge(Compaction),
}

/// Files that change their level.
#[derive(Debug, Clone)]
pub(crate) struct Move {
    pub family: u32,
    pub from: u8,
    pub to: u8,
    pub files: Vec<File>,
    pub reason: Reason,
}

impl Move {
    /// The edit that does it.
    pub fn edit(&self) -> FamilyEdit {
        FamilyEdit {
            id: self.family,
            added: self.files.iter().map(|f| (self.to, FileMeta::clone(f))).collect(),
            removed: self.files.iter().map(|f| (self.from, f.number)).collect(),
            ..FamilyEdit::default()
        }
    }
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (reason, count) = (self.reason.name(), self.files.len());
        write!(f, "{reason} L{}:{count} -> L{}", self.from, self.to)
    }
}

/// Files to merge into one level.
#[derive(Debug, Clone)]
pub(crate) struct Compaction {
    pub family: u32,
    pub start_level: u8,
    pub output_level: u8,
    /// By level, shallowest first; L0 newest first, deeper levels by key; no level is empty.
    pub inputs: Vec<(u8, Vec<File>)>,
    /// Files of the level after the output's that overlap it: outputs are cut at their bounds.
    pub grandparents: Vec<File>,
    /// What hides some of the only input and stays.
    pub above: Option<Above>,
    pub reason: Reason,
}

impl Compaction {
    /// All inputs.
    pub fn files(&self) -> impl Iterator<Item = &File> {
        self.inputs.iter().flat_map(|(_, files)| files)
    }

    /// Sum of the inputs' lengths.
    pub fn input_bytes(&self) -> u64 {
        total_bytes(self.files())
    }

    /// What the scheduler must know while it runs.
    pub fn running(&self, id: u64) -> RunningCompaction {
        let span = Span::of(self.files());
        RunningCompaction {
            id,
            family: self.family,
            output_level: self.output_level,
            smallest: span.map_or_else(Vec::new, |s| s.start.to_vec()),
            largest: span.map_or_else(Vec::new, |s| s.end.to_vec()),
            files: Vec::new(),
            brings_older: false,
            needs_bytes: self.input_bytes(),
        }
    }
}

impl fmt::Display for Compaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.reason.name())?;
        for (level, files) in &self.inputs {
            write!(f, " L{level}:{}", files.len())?;
        }
        write!(f, " -> L{}", self.output_level)
    }
}

/// How far a `compact_range` has come.
#[derive(Debug, Clone)]
pub(crate) struct Manual {
    pub start: Bound<Vec<u8>>,
    pub end: Bound<Vec<u8>>,
    /// The level whose files are next.
    pub level: usize,
    /// Files of `level` that start before this key have had their turn.
    pub done_before: Option<Vec<u8>>,
    /// Files with smaller numbers have not been merged since it began, and are to be, even alone: a compaction filter
    /// is to see their entries.
    pub rewrites_before: Option<FileNumber>,
}

impl Manual {
    /// At the start.
    pub fn new(start: Bound<Vec<u8>>, end: Bound<Vec<u8>>) -> Self {
        Self { start, end, level: 0, done_before: None, rewrites_before: None }
    }

    /// Whether `file` is to be merged for the sake of a compaction filter alone.
    pub fn rewrites(&self, file: &FileMeta) -> bool {
        self.rewrites_before.is_some_and(|number| file.number < number)
    }

    /// Whether `file` lies in the range and has not had its turn.
    pub fn wants(&self, file: &FileMeta) -> bool {
        let fresh = self.done_before.as_ref().is_none_or(|key| file.smallest >= *key);
        let (start, end) = (self.start.as_ref(), self.end.as_ref());
        fresh && file.overlaps(start.map(Vec::as_slice), end.map(Vec::as_slice))
    }

    /// Goes on with the next level.
    pub fn next_level(&mut self) {
        self.level += 1;
        self.done_before = None;
    }
}

/// What a `compact_range` does next. A choice counts as done once it is handed out.
#[derive(Debug, Clone)]
pub(crate) enum ManualStep {
    /// This.
    Do(Choice),
    /// Wait for a running compaction, then ask again.
    Wait,
    /// Nothing more.
    Done,
}

/// Whether `file` deletes ranges.
pub(crate) fn deletes_ranges(file: &FileMeta) -> bool {
    file.range_tombstone_count > 0
}

/// Whether there is more than one tombstone, of a key or a range, for each `part` of the file's entries.
pub(crate) fn is_dense(file: &FileMeta, part: u64) -> bool {
    let tombstones = file.tombstone_count.saturating_add(file.range_tombstone_count);
    tombstones.saturating_mul(part) > file.entry_count
}

/// Whether more than half of the file's entries are tombstones of keys.
pub(crate) fn mostly_deletes_keys(file: &FileMeta) -> bool {
    file.tombstone_count.saturating_mul(2) > file.entry_count
}

/// Whether `file` deletes ranges and holds little else.
pub(crate) fn mostly_deletes_ranges(file: &FileMeta) -> bool {
    deletes_ranges(file) && is_dense(file, 2)
}

/// Whether all that `file` holds is one deleted range, so that its bounds are those of the range.
pub(crate) fn is_one_range(file: &FileMeta) -> bool {
    file.range_tombstone_count == 1 && file.entry_count == 0
}

/// Bytes that `file` refers to in victim segments.
pub(crate) fn victim_bytes(file: &FileMeta, victims: &HashSet<SegmentNumber>) -> u64 {
    if victims.is_empty() {
        return 0;
    }
    let victims = file.value_refs.iter().filter(|r| victims.contains(&r.segment));
    victims.map(|r| r.bytes).sum()
}

/// Sum of lengths.
pub(crate) fn total_bytes<'f>(files: impl IntoIterator<Item = &'f File>) -> u64 {
    files.into_iter().map(|f| f.size_bytes).sum()
}

/// The hull of some files' key ranges.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span<'f> {
    pub start: &'f [u8],
    pub end: &'f [u8],
    pub end_exclusive: bool,
}

impl<'f> Span<'f> {
    /// The hull of `files`; `None` if there are none.
    pub fn of(files: impl IntoIterator<Item = &'f File>) -> Option<Self> {
        let one = |f: &'f File| Span {
            start: &f.smallest,
            end: &f.largest,
            end_exclusive: f.largest_exclusive,
        };
        files.into_iter().map(one).reduce(Span::join)
    }

    fn join(self, other: Self) -> Self {
        let (end, end_exclusive) = match self.end.cmp(other.end) {
            Ordering::Less => (other.end, other.end_exclusive),
            Ordering::Greater => (self.end, self.end_exclusive),
            Ordering::Equal => (self.end, self.end_exclusive && other.end_exclusive),
        };
        Span { start: self.start.min(other.start), end, end_exclusive }
    }

    /// The bounds as ranges are asked for.
    pub fn bounds(&self) -> (Bound<&'f [u8]>, Bound<&'f [u8]>) {
        let end = match self.end_exclusive {
            true => Bound::Excluded(self.end),
            false => Bound::Included(self.end),
        };
        (Bound::Included(self.start), end)
    }

    /// Whether `file` may hold a key of the hull.
    pub fn overlaps(&self, file: &FileMeta) -> bool {
        let (start, end) = self.bounds();
        file.overlaps(start, end)
    }
}

impl<'a> PickInput<'a> {
    /// Files of `level`, in its order.
    pub fn files(&self, level: usize) -> &'a [File] {
        self.version.level(level).files()
    }

    /// Whether `file` was written a short time ago.
    pub fn is_young(&self, file: &FileMeta) -> bool {
        self.now_ms.saturating_sub(file.created_ms) < YOUNG_MS
    }

    /// Whether `file` is so old that merges of `bytes`, for the sake of deleted ranges which may be a small part of them,
    /// write [`BYTES_PER_MS_OF_AGE`] on average at most.
    pub fn has_waited_for(&self, file: &FileMeta, bytes: u64) -> bool {
        let age_ms = self.now_ms.saturating_sub(file.created_ms);
        age_ms.saturating_mul(BYTES_PER_MS_OF_AGE) >= bytes
    }

    /// Whether no snapshot is older than what `file` holds: what its tombstones delete is needed by none.
    pub fn is_seen_by_all(&self, file: &FileMeta) -> bool {
        self.snapshots_oldest.is_none_or(|oldest| file.largest_seqno <= oldest)
    }

    /// Whether `file` may not be an input: a running compaction reads it, or it cannot be read.
    pub fn is_busy(&self, file: &FileMeta) -> bool {
        self.in_progress.contains(&file.number) || self.quarantined.contains(&file.number)
    }

    /// Whether any of `files` may not be an input.
    pub fn any_busy<'f>(&self, files: impl IntoIterator<Item = &'f File>) -> bool {
        files.into_iter().any(|f| self.is_busy(f))
    }

    /// The files of a level below L0 that overlap `span`.
    pub fn overlapping(&self, level: usize, span: &Span<'_>) -> &'a [File] {
        let (start, end) = span.bounds();
        self.version.level(level).overlapping(start, end)
    }

    /// Whether no running compaction of this family writes keys of `span` into `level`, and no ingestion brings older
    /// ones. L0 takes overlapping files, ordered by age.
    pub fn may_write(&self, level: usize, span: &Span<'_>) -> bool {
        may_write(self.running, self.family, level, span)
    }

    /// Whether files can change from level `from` to level `to` as they are: not if `to` stores
    /// blocks with a compression that `from` does not use.
    pub fn same_format(&self, from: usize, to: usize) -> bool {
        self.options.compression[from] == self.options.compression[to]
    }

    /// Completes inputs of levels up to `output_level` with what they overlap there and between,
    /// and says what to do: a merge, a plain move if there is nothing to merge with, or `None`
    /// if something running is in the way. `inputs` are files of `start_level`, in its order.
    pub fn complete(
        &self,
        start_level: usize,
        inputs: Vec<File>,
        output_level: usize,
        reason: Reason,
    ) -> Option<Choice> {
        let span = Span::of(&inputs)?;
        if self.any_busy(&inputs) {
            return None;
        }
        let mut hull = span;
        let mut deeper = Vec::new();
        for level in start_level + 1..=output_level {
            // Each level is met by what comes from above it, so the hull grows on the way.
            let met = self.overlapping(level, &hull);
            if self.any_busy(met) {
                return None;
            }
            if let Some(their) = Span::of(met) {
                hull = hull.join(their);
                deeper.push((level as u8, met.to_vec()));
            }
        }
        if !self.may_write(output_level, &hull) {
            return None;
        }
        let grandparents = match output_level {
            LAST_LEVEL => Vec::new(),
            level => self.overlapping(level + 1, &hull).to_vec(),
        };
        let mut all = vec![(start_level as u8, inputs)];
        all.extend(deeper);
        Some(self.merge_or_move(start_level, all, output_level, grandparents, reason))
    }

    /// A plain move if the inputs are of one level and disjoint and nothing speaks against it,
    /// else a merge.
    pub fn merge_or_move(
        &self,
        start_level: usize,
        inputs: Vec<(u8, Vec<File>)>,
        output_level: usize,
        grandparents: Vec<File>,
        reason: Reason,
    ) -> Choice {
        let (from, to) = (start_level as u8, output_level as u8);
        let family = self.family;
        if let [(_, files)] = inputs.as_slice()
            && from != to
            && self.same_format(start_level, output_level)
            && are_disjoint(files)
            && total_bytes(&grandparents) <= self.most_grandparent_bytes()
        {
            return Choice::Move(Move { family, from, to, files: files.clone(), reason });
        }
        Choice::Merge(Compaction {
            family,
            start_level: from,
            output_level: to,
            inputs,
            grandparents,
            above: None,
            reason,
        })
    }

    /// Rewrites files of `level` that refer to victim segments in place: the run of neighbours that
    /// refers to the most, at least one file, at most about a segment's worth.
    pub fn empty_victims(&self, level: usize, most_bytes: u64) -> Option<Choice> {
        if self.values.victims.is_empty() {
            return None;
        }
        let files = self.files(level);
        let mut windows: Vec<(u64, Range<usize>)> = Vec::new();
        let mut at = 0;
        while let Some(first) = files.get(at) {
            let start = at;
            let (mut bytes, mut victims) = (first.size_bytes, self.values.victim_bytes(first));
            at += 1;
            if victims == 0 || self.is_busy(first) {
                continue;
            }
            // Each file of L0 is a run of its own.
            while level > 0
                && victims < self.values.segment_bytes
                && let Some(next) = files.get(at)
                && !self.is_busy(next)
                && self.values.victim_bytes(next) > 0
                && bytes + next.size_bytes <= most_bytes
            {
                bytes += next.size_bytes;
                victims += self.values.victim_bytes(next);
                at += 1;
            }
            windows.push((victims, start..at));
        }
        windows.sort_by_key(|(victims, window)| (Reverse(*victims), window.start));
        let mut tries = windows.into_iter();
        tries.find_map(|(_, window)| {
            self.complete(level, files[window].to_vec(), level, Reason::Values)
        })
    }

    /// Bytes of the next level that one file may overlap before it is cut or not moved.
    pub fn most_grandparent_bytes(&self) -> u64 {
        self.options.target_file_bytes.saturating_mul(10)
    }
}

/// Whether a running compaction has keys of `span`.
pub(crate) fn has_keys_of(running: &RunningCompaction, family: u32, span: &Span<'_>) -> bool {
    running.has_keys(family, span.start, span.end)
}

/// As [`PickInput::may_write`].
pub(crate) fn may_write(
    running: &[RunningCompaction],
    family: u32,
    level: usize,
    span: &Span<'_>,
) -> bool {
    let is_written = |r: &RunningCompaction| level > 0 && usize::from(r.output_level) == level;
    !running.iter().any(|r| (r.brings_older || is_written(r)) && has_keys_of(r, family, span))
}

/// Whether no two of `files` overlap.
pub(crate) fn are_disjoint(files: &[File]) -> bool {
    let mut sorted: Vec<&File> = files.iter().collect();
    sorted.sort_by(|a, b| a.smallest.cmp(&b.smallest));
    sorted.windows(2).all(|pair| pair[0].precedes(pair[1]))
}
