//! A model of a whole store without files: random writes, flushes, snapshots, expiries and
//! concurrent compactions of both styles; whatever is picked, every reader must see what a list of
//! all writes says.

mod disturbed;

use super::super::pick::{Choice, Compaction, File, Manual, ManualStep, PickInput, Reason, Values};
use super::super::{
    MOST_PAIRS, job, pick, pick_deleted_ranges, pick_idle, pick_manual, pick_under_deletions,
    pick_values,
};
use super::simulation;
use crate::background::retain::{
    Below, Retain, Verdict, collapse_tombstones, surviving_tombstones,
};
use crate::jobs::scheduler::{Rewrites, RunningCompaction};
use crate::options::{CompactionStyle, FamilyOptions};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Bound;
use terrace_base::MAX_SEQNO;
use terrace_base::key::{EXPIRY_BYTES, pack_trailer, trailer_kind, trailer_seqno};
use terrace_base::range_tombstone::Fragment;
use terrace_base::{
    FileNumber, RangeTombstone, RangeTombstones, Rng, SegmentNumber, SeqNo, SplitMix64, ValueKind,
    ValueRef,
};
use terrace_manifest::{FamilyEdit, FileMeta, LEVEL_COUNT, Version};

/// Key, trailer, value; a value is its expiry (or 0), the sequence number of its write, and the
/// segment it lies in, which changes when it moves.
type Entry = (Vec<u8>, u64, Vec<u8>);

/// Bytes of a value before its segment.
const SHOWN_BYTES: usize = 16;

#[derive(Clone, Default)]
struct Content {
    entries: Vec<Entry>,
    tombstones: RangeTombstones,
}

struct Job {
    id: u64,
    compaction: Compaction,
    /// The files above that stay, as they were when it began.
    above: Vec<Content>,
    snapshots: Vec<SeqNo>,
    version: Version,
}

struct Store {
    rng: SplitMix64,
    options: FamilyOptions,
    key_count: u64,
    version: Version,
    contents: HashMap<FileNumber, Content>,
    next_file: FileNumber,
    seqno: SeqNo,
    now_ms: u64,
    snapshots: BTreeSet<SeqNo>,
    /// Every write there was.
    written: Vec<Entry>,
    deleted: Vec<RangeTombstone>,
    jobs: Vec<Job>,
    next_job: u64,
    merges: u64,
    moves: u64,
    victims: HashSet<SegmentNumber>,
    hidden: HashMap<FileNumber, u64>,
    /// Whether picking empties victim segments now.
    force: bool,
    rewrites: u64,
    /// Files that no merge may read.
    quarantined: HashSet<FileNumber>,
    /// What has been done about files below deletions.
    past: Rewrites,
    hidden_entries: u64,
}

fn expiry(value: &[u8]) -> u64 {
    u64::from_le_bytes(value[..EXPIRY_BYTES].try_into().unwrap())
}

/// The segment of a value; tombstones have none.
fn segment(value: &[u8]) -> Option<SegmentNumber> {
    let bytes = value.get(SHOWN_BYTES..)?;
    Some(SegmentNumber::new(u32::from_le_bytes(bytes.try_into().unwrap()).into()))
}

fn is_shown(trailer: u64, value: &[u8], now_ms: u64) -> bool {
    match trailer_kind(trailer) {
        Some(ValueKind::Put) => true,
        Some(ValueKind::PutTtl) => expiry(value) > now_ms,
        _ => false,
    }
}

impl Store {
    fn new(seed: u64, style: CompactionStyle) -> Self {
        let mut rng = SplitMix64::new(seed);
        let key_count = 20 + rng.below(300);
        let options = FamilyOptions {
            style,
            l0_compaction_trigger: 2 + rng.below(2) as usize,
            l0_slowdown: 5,
            level_base_bytes: 500 + rng.below(3000),
            level_multiplier: 2.0 + rng.unit() * 3.0,
            target_file_bytes: 300 + rng.below(2000),
            ..simulation::options(400 + rng.below(400))
        };
        Self {
            rng,
            options,
            key_count,
            version: Version::empty(),
            contents: HashMap::new(),
            next_file: FileNumber::new(1),
            seqno: SeqNo::ZERO,
            now_ms: 1000,
            snapshots: BTreeSet::new(),
            written: Vec::new(),
            deleted: Vec::new(),
            jobs: Vec::new(),
            next_job: 1,
            merges: 0,
            moves: 0,
            victims: HashSet::new(),
            hidden: HashMap::new(),
            force: false,
            rewrites: 0,
            quarantined: HashSet::new(),
            past: Rewrites::default(),
            hidden_entries: 0,
        }
    }

    fn key(&mut self) -> Vec<u8> {
        (self.rng.below(self.key_count) as u16).to_be_bytes().to_vec()
    }

    /// A memtable's worth of writes, flushed.
    fn flush(&mut self) {
        let mut content: Vec<Entry> = Vec::new();
        let mut ranges = Vec::new();
        let ascending = self.rng.one_in(5);
        let mut next = self.rng.below(self.key_count);
        for _ in 0..1 + self.rng.below(12) {
            self.seqno += 1;
            let key = match ascending {
                true => (next as u16).to_be_bytes().to_vec(),
                false => self.key(),
            };
            next = (next + 1) % self.key_count;
            let mut value = 0u64.to_le_bytes().to_vec();
            let kind = match self.rng.below(10) {
                0 | 1 => ValueKind::Delete,
                2 => {
                    value = (self.now_ms + self.rng.below(300)).to_le_bytes().to_vec();
                    ValueKind::PutTtl
                }
                3 if self.rng.one_in(3) => {
                    let end = self.key();
                    let t = RangeTombstone { start: key, end, seqno: self.seqno };
                    self.deleted.push(t.clone());
                    ranges.push(t);
                    continue;
                }
                _ => ValueKind::Put,
            };
            value.extend_from_slice(&self.seqno.get().to_le_bytes());
            value.extend_from_slice(&((self.seqno.get() / 40) as u32).to_le_bytes());
            if kind == ValueKind::Delete {
                value.clear();
            }
            let entry = (key, pack_trailer(self.seqno, kind), value);
            self.written.push(entry.clone());
            content.push(entry);
        }
        content.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
        let snapshots: Vec<SeqNo> = self.snapshots.iter().copied().collect();
        let ranges = ranges.iter().map(RangeTombstone::as_ref);
        let tombstones = collapse_tombstones(ranges, &snapshots);
        let below = Below::everywhere();
        let added = self.merge(content, &tombstones, &snapshots, below, 0, &[]);
        self.apply(&FamilyEdit { added, ..FamilyEdit::default() });
    }

    /// What a job does, with files cut at random, and where they would overlap too many of `grandparents`.
    fn merge(
        &mut self,
        entries: Vec<Entry>,
        tombstones: &RangeTombstones,
        snapshots: &[SeqNo],
        mut below: Below,
        level: u8,
        grandparents: &[File],
    ) -> Vec<(u8, FileMeta)> {
        let survivors = surviving_tombstones(tombstones, snapshots, &below);
        let mut retain = Retain::new(snapshots, tombstones, self.now_ms, &mut below, level > 0);
        let mut kept: Vec<Entry> = Vec::new();
        for (key, trailer, value) in entries {
            match retain.next(&key, trailer, &value) {
                Verdict::Keep { trailer } => kept.push((key, trailer, value)),
                Verdict::Tombstone { trailer } => kept.push((key, trailer, Vec::new())),
                Verdict::Operand { .. } | Verdict::Drop => {}
            }
        }
        let mut cuts: Vec<Vec<u8>> = Vec::new();
        let per_file = self.options.target_file_bytes / 100;
        for pair in kept.windows(2) {
            if level > 0 && pair[0].0 != pair[1].0 && self.rng.one_in(per_file.max(1)) {
                cuts.push(pair[1].0.clone());
            }
        }
        let mut passed_bytes = 0;
        for pair in grandparents.windows(2).filter(|_| level > 0) {
            passed_bytes += pair[0].size_bytes;
            if passed_bytes + pair[1].size_bytes > 10 * self.options.target_file_bytes {
                cuts.push(pair[1].smallest.clone());
                passed_bytes = 0;
            }
        }
        cuts.sort();
        cuts.dedup();
        let mut added = Vec::new();
        for at in 0..=cuts.len() {
            let start = at.checked_sub(1).map(|at| cuts[at].as_slice());
            let end = cuts.get(at).map(Vec::as_slice);
            let inside = |key: &[u8]| {
                start.is_none_or(|start| key >= start) && end.is_none_or(|end| key < end)
            };
            let entries: Vec<Entry> = kept.iter().filter(|e| inside(&e.0)).cloned().collect();
            let content = Content { entries, tombstones: survivors.clip(start, end) };
            added.extend(self.file(content).map(|file| (level, file)));
        }
        added
    }

    fn file(&mut self, content: Content) -> Option<FileMeta> {
        let first = content.entries.first().map(|e| e.0.clone());
        let last = content.entries.last().map(|e| e.0.clone());
        let mut fragments = content.tombstones.fragments();
        let start = fragments.clone().next().map(|f| f.start.to_vec());
        let end = fragments.next_back().map(|f| f.end.to_vec());
        let largest_exclusive = match (&last, &end) {
            (Some(last), Some(end)) => end > last,
            (None, Some(_)) => true,
            _ => false,
        };
        let seqnos = || {
            let points = content.entries.iter().map(|e| trailer_seqno(e.1));
            points.chain(content.tombstones.iter().map(|t| t.seqno))
        };
        let kind = |kind: ValueKind| {
            content.entries.iter().filter(move |e| trailer_kind(e.1) == Some(kind))
        };
        let number = self.next_file;
        self.next_file += 1;
        let mut refs: BTreeMap<SegmentNumber, u64> = BTreeMap::new();
        for segment in content.entries.iter().filter_map(|e| segment(&e.2)) {
            *refs.entry(segment).or_default() += 100;
        }
        let file = FileMeta {
            number,
            size_bytes: 100 * (content.entries.len() + content.tombstones.fragment_count()) as u64,
            smallest: first.into_iter().chain(start).min()?,
            largest: last.into_iter().chain(end).max()?,
            largest_exclusive,
            smallest_seqno: seqnos().min()?,
            largest_seqno: seqnos().max()?,
            entry_count: content.entries.len() as u64,
            tombstone_count: kind(ValueKind::Delete).count() as u64,
            range_tombstone_count: content.tombstones.iter().count() as u64,
            raw_bytes: 0,
            created_ms: if self.rng.one_in(2) { self.now_ms } else { 0 },
            ttl_due_ms: kind(ValueKind::PutTtl).map(|e| expiry(&e.2)).max(),
            value_refs: refs
                .into_iter()
                .map(|(segment, bytes)| ValueRef { segment, bytes })
                .collect(),
        };
        self.contents.insert(number, content);
        Some(file)
    }

    fn apply(&mut self, edit: &FamilyEdit) {
        self.version = self.version.apply(edit).unwrap();
        let moved: HashSet<FileNumber> = edit.added.iter().map(|(_, f)| f.number).collect();
        for (_, number) in edit.removed.iter().filter(|(_, n)| !moved.contains(n)) {
            self.contents.remove(number);
        }
    }

    fn with_input<T>(&self, f: impl FnOnce(&PickInput<'_>) -> T) -> T {
        let files = self.jobs.iter().flat_map(|job| job.compaction.files());
        let in_progress = files.map(|f| f.number).collect();
        let running: Vec<RunningCompaction> =
            self.jobs.iter().map(|job| job.compaction.running(job.id)).collect();
        f(&PickInput {
            family: 0,
            version: &self.version,
            options: &self.options,
            in_progress: &in_progress,
            quarantined: &self.quarantined,
            running: &running,
            snapshots_oldest: self.snapshots.first().copied(),
            now_ms: self.now_ms,
            values: Values {
                victims: &self.victims,
                force: self.force,
                hidden: &self.hidden,
                live_bytes: 10_000,
                segment_bytes: 2000,
            },
        })
    }

    /// The rewrite below deletions that leaves least.
    fn under_deletions(&self) -> Choice {
        let mut pairs = MOST_PAIRS;
        self.with_input(|input| pick_under_deletions(input, &self.past, &mut pairs, |_| true))
    }

    /// Starts what was chosen; false if that was nothing.
    fn begin(&mut self, choice: Choice) -> bool {
        match choice {
            Choice::Nothing => false,
            Choice::Move(step) => {
                self.moves += 1;
                self.apply(&step.edit());
                true
            }
            Choice::Merge(compaction) => {
                self.next_job += 1;
                let above = compaction.above.iter().flat_map(|above| above.files());
                let above = above.map(|file| self.contents[&file.number].clone()).collect();
                self.jobs.push(Job {
                    id: self.next_job,
                    compaction,
                    above,
                    snapshots: self.snapshots.iter().copied().collect(),
                    version: self.version.clone(),
                });
                true
            }
        }
    }

    /// Ends one of the running jobs.
    fn end(&mut self) {
        if self.jobs.is_empty() {
            return;
        }
        let at = self.rng.below(self.jobs.len() as u64) as usize;
        let job = self.jobs.swap_remove(at);
        self.merges += 1;
        // The engine takes the version some time after the choice.
        let version = if self.rng.one_in(2) { &job.version } else { &self.version };
        let below = job::below(version, &job.compaction);
        let files: Vec<&Content> =
            job.compaction.files().map(|f| &self.contents[&f.number]).collect();
        let fragments = files.iter().flat_map(|content| content.tombstones.fragments());
        let tombstones =
            collapse_tombstones(fragments.flat_map(Fragment::tombstones), &job.snapshots);
        let mut entries: Vec<Entry> =
            files.iter().flat_map(|content| content.entries.clone()).collect();
        entries.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
        let count = entries.len();
        entries.retain(|entry| !job.hides(entry));
        self.hidden_entries += (count - entries.len()) as u64;
        let level = job.compaction.output_level;
        self.rewrites += u64::from(job.compaction.start_level == level && level > 0);
        if job.compaction.reason == Reason::Values || self.rng.one_in(2) {
            let fresh = (1_000_000 + self.next_file.get()) as u32;
            for entry in entries.iter_mut() {
                if segment(&entry.2).is_some_and(|segment| self.victims.contains(&segment)) {
                    entry.2[SHOWN_BYTES..].copy_from_slice(&fresh.to_le_bytes());
                }
            }
        }
        let grandparents = &job.compaction.grandparents;
        let added = self.merge(entries, &tombstones, &job.snapshots, below, level, grandparents);
        let removed = job
            .compaction
            .inputs
            .iter()
            .flat_map(|(level, files)| files.iter().map(|f| (*level, f.number)))
            .collect();
        if let Some(above) = &job.compaction.above {
            self.past.note(
                added.iter().map(|(_, file)| file.number),
                above.newest_seqno(),
                &above.skipped,
            );
        }
        self.apply(&FamilyEdit { added, removed, ..FamilyEdit::default() });
    }

    /// What the list of all writes says.
    fn expected(&self, key: &[u8], at: SeqNo) -> Option<Vec<u8>> {
        let versions = self.written.iter().filter(|e| e.0 == key && trailer_seqno(e.1) <= at);
        let (_, trailer, value) = versions.max_by_key(|e| e.1)?;
        let deleted = self.deleted.iter().any(|t| {
            t.start.as_slice() <= key
                && key < t.end.as_slice()
                && t.seqno <= at
                && t.seqno > trailer_seqno(*trailer)
        });
        (!deleted && is_shown(*trailer, value, self.now_ms)).then(|| value[..SHOWN_BYTES].to_vec())
    }

    /// What a get finds: the first version met from the newest run down.
    fn get(&self, key: &[u8], at: SeqNo) -> Option<Vec<u8>> {
        let mut cover = SeqNo::ZERO;
        for file in self.version.levels().iter().flat_map(|level| level.files()) {
            if !file.contains(key) {
                continue;
            }
            let content = &self.contents[&file.number];
            cover = cover.max(content.tombstones.covering_seqno(key, at).unwrap_or_default());
            let visible = |e: &&Entry| e.0 == key && trailer_seqno(e.1) <= at;
            if let Some((_, trailer, value)) = content.entries.iter().find(visible) {
                let alive = trailer_seqno(*trailer) >= cover;
                return (alive && is_shown(*trailer, value, self.now_ms))
                    .then(|| value[..SHOWN_BYTES].to_vec());
            }
        }
        None
    }

    fn check(&mut self, keys: u64) {
        for _ in 0..keys {
            let key = self.key();
            for at in self.snapshots.iter().copied().chain([MAX_SEQNO]) {
                assert_eq!(
                    self.get(&key, at),
                    self.expected(&key, at),
                    "key {key:?} at {at}\n{}",
                    self.version
                );
            }
        }
    }

    fn step(&mut self) {
        // In one store of three some files cannot be read.
        if self.key_count.is_multiple_of(3) && self.rng.one_in(25) {
            self.quarantine();
        }
        match self.rng.below(16) {
            0..5 => self.flush(),
            5..8 if self.jobs.len() < 3 => {
                let choice = self.with_input(pick);
                self.begin(choice);
            }
            8 if self.jobs.len() < 3 => {
                // In one store of four the disk is full now and then.
                let is_full = self.key_count.is_multiple_of(4) && self.rng.one_in(2);
                let choice = match is_full && self.rng.one_in(2) {
                    true => self.under_deletions(),
                    false if is_full => self.with_input(pick_deleted_ranges),
                    false => self.with_input(pick_idle),
                };
                self.begin(choice);
            }
            9 if self.jobs.len() < 3 => {
                let (a, b) = (self.key(), self.key());
                let mut manual = Manual::new(Bound::Included(a), Bound::Excluded(b));
                for _ in 0..self.rng.below(4) {
                    match self.with_input(|input| pick_manual(input, &mut manual)) {
                        ManualStep::Do(choice) => self.begin(choice),
                        _ => break,
                    };
                }
            }
            10 => {
                self.snapshots.insert(self.seqno);
            }
            11 if !self.snapshots.is_empty() => {
                let at = self.rng.below(self.snapshots.len() as u64) as usize;
                let seqno = *self.snapshots.iter().nth(at).unwrap();
                self.snapshots.remove(&seqno);
            }
            12 => self.now_ms += self.rng.below(200),
            13 => self.victims(),
            14 if self.jobs.len() < 3 => {
                self.force = true;
                let choice = self.with_input(pick_values);
                self.force = self.rng.one_in(2);
                self.begin(choice.unwrap_or(Choice::Nothing));
            }
            _ => self.end(),
        }
    }

    fn settle(&mut self) {
        self.hidden.clear();
        for round in 0.. {
            assert!(round < 2000, "idle work has no end\n{}", self.version);
            while !self.jobs.is_empty() {
                self.end();
            }
            let choice = self.with_input(pick_idle);
            if !self.begin(choice) {
                break;
            }
        }
    }

    fn compact_all(&mut self) {
        let mut manual = Manual::new(Bound::Unbounded, Bound::Unbounded);
        for round in 0.. {
            assert!(round < 2000, "a manual compaction has no end\n{}", self.version);
            match self.with_input(|input| pick_manual(input, &mut manual)) {
                ManualStep::Do(choice) => {
                    self.begin(choice);
                    while !self.jobs.is_empty() {
                        self.end();
                    }
                }
                ManualStep::Wait => panic!("nothing runs"),
                ManualStep::Done => break,
            }
        }
    }

    fn runs(&self) -> usize {
        let deeper = (1..LEVEL_COUNT).filter(|l| !self.version.level(*l).is_empty());
        self.version.level(0).len() + deeper.count()
    }
}

fn model(style: CompactionStyle) {
    let (mut merges, mut moves, mut deepest, mut rewrites) = (0, 0, 0, 0);
    let (mut quarantined, mut hidden) = (0, 0);
    for seed in 0..150 {
        let mut store = Store::new(seed, style);
        for _ in 0..120 + seed {
            store.step();
            store.check(3);
        }
        deepest = deepest.max(store.runs());
        store.rewrite_under_deletions();
        store.check(60);
        store.settle();
        store.check(60);
        quarantined += u64::from(!store.quarantined.is_empty());
        store.quarantined.clear();
        store.settle();
        store.check(60);
        store.victims();
        store.empty_victims();
        store.check(60);
        store.settle();
        assert!(store.runs() <= store.options.l0_compaction_trigger + LEVEL_COUNT);
        store.snapshots.clear();
        store.now_ms += 10_000;
        store.compact_all();
        store.check(60);
        assert!(store.runs() <= 1, "seed {seed}\n{}", store.version);
        for content in store.contents.values() {
            assert!(content.tombstones.is_empty());
            assert!(content.entries.iter().all(|e| is_shown(e.1, &e.2, store.now_ms)));
        }
        merges += store.merges;
        moves += store.moves;
        rewrites += store.rewrites;
        hidden += store.hidden_entries;
    }
    assert!(merges > 2000 && moves > 20 && deepest > 3, "{merges} {moves} {deepest}");
    assert!(rewrites > 100 && quarantined > 10, "{rewrites} {quarantined}");
    assert!(hidden > 100, "{hidden}");
}

#[test]
fn readers_see_every_write_under_leveled_compaction() {
    model(CompactionStyle::Leveled);
}

#[test]
fn readers_see_every_write_under_tiered_compaction() {
    model(CompactionStyle::Tiered);
}
