//! Whole jobs on a simulated disk: against a merge in memory, with faults at every operation, with
//! inputs that lost an entry, and cancelled.

mod hidden;
mod values;

use super::*;
use crate::background::compaction::pick::Reason;
use crate::background::compaction::tests::simulation;
use crate::background::retain::Verdict;
use crate::memory::filter_budget::FilterBudget;
use crate::values::value_log::ValueLog;
use crate::version::unpublished::publish;
use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;
use terrace_base::key::pack_trailer;
use terrace_base::{
    FileNumber, ManualClock, RangeTombstone, Rng, SegmentNumber, SplitMix64, SystemClock, ValueKind,
};
use terrace_sst::{BlockCache, ReadCounters};
use terrace_vfs::{Fault, FaultKind, SimVfs};

const DIR: &str = "/store";
const NOW_MS: u64 = 1000;

type Entry = (Vec<u8>, u64, Vec<u8>);

/// Files on a disk and the version they form.
struct Store {
    sim: SimVfs,
    vfs: Arc<dyn Vfs>,
    table_cache: Arc<TableCache>,
    options: FamilyOptions,
    limiter: RateLimiter,
    next: AtomicU64,
    version: Version,
    /// All entries and range tombstones of the inputs.
    entries: Vec<Entry>,
    tombstones: Vec<RangeTombstone>,
    inputs: Vec<(u8, Vec<File>)>,
    snapshots: Vec<SeqNo>,
    log: ValueLog,
    victims: HashSet<SegmentNumber>,
    /// What a merge leaves free; `None`: nothing.
    kept_bytes: Option<u64>,
}

impl Store {
    fn new() -> Self {
        let sim = SimVfs::new(1);
        let vfs: Arc<dyn Vfs> = Arc::new(sim.clone());
        let dir = Path::new(DIR);
        vfs.create_dir_all(dir).unwrap();
        let cache = Arc::new(BlockCache::new(1 << 20));
        let counters = Arc::new(ReadCounters::default());
        let clock = Arc::new(SystemClock::default());
        let log = ValueLog::new(vfs.clone(), dir, false, cache.clone(), 100, clock);
        let table_cache =
            TableCache::new(vfs.clone(), dir, cache, counters, FilterBudget::cached(), false, 100);
        Self {
            sim,
            vfs,
            table_cache: Arc::new(table_cache),
            options: FamilyOptions {
                target_file_bytes: 8 << 10,
                max_subcompactions: 3,
                ..simulation::options(1 << 20)
            },
            limiter: RateLimiter::new(0),
            next: AtomicU64::new(1),
            version: Version::empty(),
            entries: Vec::new(),
            tombstones: Vec::new(),
            inputs: Vec::new(),
            snapshots: Vec::new(),
            log,
            victims: HashSet::new(),
            kept_bytes: None,
        }
    }

    /// Writes a run into `level`; `input` says whether the compaction will read it.
    fn add_run(
        &mut self,
        level: u8,
        mut entries: Vec<Entry>,
        tombstones: Vec<RangeTombstone>,
        input: bool,
    ) {
        entries.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
        entries.dedup_by(|a, b| (&a.0, a.1) == (&b.0, b.1));
        let next = || FileNumber::new(self.next.fetch_add(1, Ordering::Relaxed));
        let context = OutputContext {
            vfs: &self.vfs,
            dir: Path::new(DIR),
            next_file_number: &next,
            sst_options: self.options.sst(usize::from(level), NOW_MS),
            target_file_bytes: if level == 0 { u64::MAX } else { 4 << 10 },
            max_writer_bytes: usize::MAX,
            limiter: &self.limiter,
            trainings: self.table_cache.trainings(),
            progress: &JobProgress::default(),
        };
        let mut output = Output::new(context, RangeTombstones::new(tombstones.clone()));
        for (key, trailer, value) in &entries {
            output.add(key, *trailer, value).unwrap();
        }
        let files = output.finish().unwrap();
        publish(&*self.vfs, Path::new(DIR), files.iter().map(|file| file.number)).unwrap();
        let added = files.iter().map(|f| (level, f.clone())).collect();
        self.version = self.version.apply(&FamilyEdit { added, ..FamilyEdit::default() }).unwrap();
        if input {
            self.entries.extend(entries);
            self.tombstones.extend(tombstones);
            let numbers: BTreeSet<FileNumber> = files.iter().map(|f| f.number).collect();
            let level_files = self.version.level(usize::from(level)).files().iter();
            let files: Vec<File> =
                level_files.filter(|f| numbers.contains(&f.number)).cloned().collect();
            match self.inputs.iter_mut().find(|(l, _)| *l == level) {
                Some((_, all)) => all.splice(0..0, files).for_each(drop),
                None => self.inputs.push((level, files)),
            }
        }
    }

    /// Random runs: L0 files over a level below them, and something deeper that is no input.
    fn random(seed: u64) -> Self {
        let mut rng = SplitMix64::new(seed);
        let mut store = Self::new();
        let keys = 50 + rng.below(600);
        let mut seqno = 0;
        for (level, runs, input) in [(6, 1, false), (5, 1, true), (0, 1 + rng.below(4), true)] {
            for _ in 0..runs {
                let (mut entries, mut ranges) = (Vec::new(), Vec::new());
                for _ in 0..rng.below(500) {
                    seqno += 1;
                    let key = if input { rng.below(keys) } else { rng.below(keys / 3) };
                    let key = format!("key{key:05}").into_bytes();
                    let (kind, value) = match rng.below(12) {
                        0 | 1 => (ValueKind::Delete, Vec::new()),
                        2 => (ValueKind::PutTtl, (NOW_MS - 1 + rng.below(3)).to_le_bytes().into()),
                        3 if rng.one_in(8) => {
                            let end = format!("key{:05}", rng.below(keys)).into_bytes();
                            ranges.push(RangeTombstone {
                                start: key,
                                end,
                                seqno: SeqNo::new(seqno),
                            });
                            continue;
                        }
                        _ => (ValueKind::Put, vec![seqno as u8; rng.below(60) as usize]),
                    };
                    entries.push((key, pack_trailer(SeqNo::new(seqno), kind), value));
                }
                store.add_run(level, entries, ranges, input);
            }
        }
        let mut snapshots: BTreeSet<SeqNo> =
            (0..rng.below(3)).map(|_| SeqNo::new(rng.below(seqno + 1))).collect();
        store.snapshots.extend(std::mem::take(&mut snapshots));
        store.inputs.sort_by_key(|(level, _)| *level);
        store.inputs.retain(|(_, files)| !files.is_empty());
        store
    }

    fn compaction(&self, output_level: u8) -> Compaction {
        let start_level = self.inputs.first().map_or(0, |(level, _)| *level);
        Compaction {
            family: 3,
            start_level,
            output_level,
            inputs: self.inputs.clone(),
            grandparents: self.version.level(6).files().to_vec(),
            above: None,
            reason: Reason::Manual,
        }
    }

    fn run(&self, compaction: &Compaction, cancel: &AtomicBool) -> Result<Option<JobOutput>> {
        let room = self.kept_bytes.map(|bytes| KeptRoom::new(&self.sim, Path::new(DIR), bytes));
        run(
            &JobContext {
                vfs: &self.vfs,
                dir: Path::new(DIR),
                table_cache: &self.table_cache,
                next_file_number: &|| FileNumber::new(self.next.fetch_add(1, Ordering::Relaxed)),
                options: &self.options,
                flushed_seqno: SeqNo::ZERO,
                snapshots: self.snapshots.clone(),
                clock: &ManualClock::at(NOW_MS),
                limiter: &self.limiter,
                cancel,
                version: &self.version,
                progress: &JobProgress::default(),
                moving: Some(Moving {
                    log: &self.log,
                    held: self.log.hold(),
                    victims: Arc::new(self.victims.clone()),
                    victims_live_bytes: 0,
                    segment_bytes: 4 << 10,
                    of_try: self.log.begin_try(),
                }),
                filtering: None,
                kept_room: room.as_ref(),
            },
            compaction,
        )
    }

    fn file_names(&self) -> BTreeSet<String> {
        self.vfs.list(Path::new(DIR)).unwrap().into_iter().collect()
    }

    /// What must come out, by one pass over all entries.
    fn expected(&self, compaction: &Compaction) -> (Vec<Entry>, RangeTombstones) {
        let mut below = below(&self.version, compaction);
        let tombstones = self.tombstones.iter().map(RangeTombstone::as_ref);
        let tombstones = collapse_tombstones(tombstones, &self.snapshots);
        let survivors = surviving_tombstones(&tombstones, &self.snapshots, &below);
        let mut entries = self.entries.clone();
        entries.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
        let mut retain = Retain::new(&self.snapshots, &tombstones, NOW_MS, &mut below, true);
        let judged = entries.into_iter().filter_map(|(key, trailer, value)| {
            match retain.next(&key, trailer, &value) {
                Verdict::Keep { trailer } => Some((key, trailer, value)),
                Verdict::Tombstone { trailer } => Some((key, trailer, Vec::new())),
                Verdict::Operand { .. } | Verdict::Drop => None,
            }
        });
        (judged.collect(), survivors)
    }

    /// Publishes files that a job has just written, and reads them.
    fn read(&self, files: &[(u8, FileMeta)]) -> (Vec<Entry>, RangeTombstones) {
        let numbers = files.iter().map(|(_, file)| file.number);
        publish(&*self.vfs, Path::new(DIR), numbers).unwrap();
        let (entries, tombstones) = self.contents(files.iter().map(|(_, file)| file));
        (entries, RangeTombstones::new(tombstones))
    }

    /// The entries and range tombstones of files.
    fn contents<'f>(
        &self,
        files: impl Iterator<Item = &'f FileMeta>,
    ) -> (Vec<Entry>, Vec<RangeTombstone>) {
        let mut entries = Vec::new();
        let mut tombstones = Vec::new();
        for file in files {
            let reader = self.table_cache.reader(file).unwrap();
            tombstones.extend(reader.range_tombstones().iter());
            let mut iter = reader.iter(ScanOptions::default());
            iter.seek_to_first().unwrap();
            while iter.valid() {
                entries.push((iter.user_key().to_vec(), iter.trailer(), iter.value().to_vec()));
                iter.next().unwrap();
            }
        }
        (entries, tombstones)
    }
}

/// It may be what makes room.
#[test]
fn a_merge_that_writes_nothing_ends_for_no_want_of_room() {
    let mut store = Store::new();
    let put = pack_trailer(SeqNo::new(1), ValueKind::Put);
    let entries = (0..2000).map(|n| (format!("key{n:05}").into_bytes(), put, vec![7; 60]));
    store.add_run(6, entries.collect(), Vec::new(), true);
    let all = RangeTombstone { start: b"k".to_vec(), end: b"l".to_vec(), seqno: SeqNo::new(2) };
    store.add_run(0, Vec::new(), vec![all], true);
    store.inputs.sort_by_key(|(level, _)| *level);
    let used_bytes: u64 = store.sim.files().into_iter().map(|(_, bytes)| bytes).sum();
    store.sim.set_capacity_bytes(Some(used_bytes + (32 << 10)));
    store.kept_bytes = Some(64 << 10);
    let merge = |store: &Store| {
        let compaction = Compaction { grandparents: Vec::new(), ..store.compaction(6) };
        store.run(&compaction, &AtomicBool::new(false))
    };
    let done = merge(&store).unwrap().unwrap();
    assert!(done.edit.added.is_empty() && done.stats.dropped_entries == 2000);
    // Without the range everything stays.
    store.inputs.remove(0);
    let before = store.file_names();
    assert!(merge(&store).unwrap_err().is_no_space());
    assert_eq!(store.file_names(), before);
}

/// Whether `part` covers nothing that `whole` does not, and with `exact` nothing less either,
/// however the two are cut.
fn covers_alike(part: &RangeTombstones, whole: &RangeTombstones, exact: bool) -> bool {
    let both = part.fragments().chain(whole.fragments());
    let bounds: BTreeSet<&[u8]> = both.flat_map(|f| [f.start, f.end]).collect();
    let seqnos = |set: &RangeTombstones, key: &[u8]| {
        set.fragment_at(key).map_or_else(Vec::new, |f| f.seqnos.to_vec())
    };
    bounds.iter().all(|key| {
        let (part, whole) = (seqnos(part, key), seqnos(whole, key));
        part == whole || (!exact && part.iter().all(|seqno| whole.contains(seqno)))
    })
}

/// Also where there are hundreds of files in L0.
#[test]
fn inputs_share_the_buffers_however_many_they_are() {
    for buffer_bytes in [256 << 10, 1 << 20, 8 << 20] {
        let one = readahead_bytes(buffer_bytes, 1);
        assert_eq!(one, buffer_bytes.min(MAX_READAHEAD_BYTES));
        for runs in [0, 2, 8, 16, 36, 100, 1000] {
            let each = readahead_bytes(buffer_bytes, runs);
            let most = (MOST_BUFFERS * buffer_bytes).max(runs * LEAST_READAHEAD_BYTES);
            assert!(each * runs <= most && each >= LEAST_READAHEAD_BYTES, "{runs}: {each}");
        }
    }
    assert_eq!(readahead_bytes(8 << 20, 36), (8 << 20) / 36);
    assert_eq!(readahead_bytes(1 << 20, 16), MIN_READAHEAD_BYTES);
}

#[test]
fn jobs_agree_with_a_merge_in_memory() {
    agree_with_a_merge_in_memory();
}

#[test]
fn jobs_for_which_there_are_no_threads_do_all_pieces_themselves() {
    NO_THREADS.set(true);
    agree_with_a_merge_in_memory();
}

fn agree_with_a_merge_in_memory() {
    let mut most_pieces = 0;
    let mut dropped = 0;
    for seed in 0..40 {
        let mut store = Store::random(seed);
        store.options.max_subcompactions = 1 + seed as usize % 3;
        if store.inputs.is_empty() {
            continue;
        }
        let compaction = store.compaction(5);
        let before = store.file_names();
        let output = store.run(&compaction, &AtomicBool::new(false)).unwrap().unwrap();
        let (entries, tombstones) = store.read(&output.edit.added);
        let (want_entries, want_tombstones) = store.expected(&compaction);
        assert_eq!(entries, want_entries, "seed {seed}");
        // A fragment cut between pieces is judged part by part: more of it can go.
        let exact = output.stats.pieces == 1;
        assert!(covers_alike(&tombstones, &want_tombstones, exact), "seed {seed}");
        store.version.apply(&output.edit).unwrap();
        let stats = output.stats;
        assert_eq!(stats.read_entries, store.entries.len() as u64);
        assert_eq!(stats.read_entries - stats.dropped_entries, entries.len() as u64);
        let fresh = store.file_names().difference(&before).count();
        assert_eq!(fresh, output.edit.added.len());
        most_pieces = most_pieces.max(stats.pieces);
        dropped += stats.dropped_entries;
    }
    assert_eq!(most_pieces, 3);
    assert!(dropped > 1000, "{dropped}");
}

/// Runs the job on stores of `make` with a fault at each of its operations in turn: one that fails
/// leaves no file behind. Gives how many failed, and of how many.
fn fail_every_operation(make: impl Fn() -> Store) -> (u64, u64) {
    let mut failed = 0;
    let operations = {
        let store = make();
        let before = store.sim.op_count();
        store.run(&store.compaction(5), &AtomicBool::new(false)).unwrap();
        store.sim.op_count() - before
    };
    for at in 0..operations {
        let store = make();
        let compaction = store.compaction(5);
        let before = store.file_names();
        let at_op = store.sim.op_count() + at;
        let fault = Fault { at_op, kind: FaultKind::Eio, forever: false, filter: None };
        store.sim.set_fault(Some(fault));
        let result = store.run(&compaction, &AtomicBool::new(false));
        store.sim.set_fault(None);
        if result.is_err() {
            failed += 1;
            assert_eq!(store.file_names(), before, "fault at operation {at} of {operations}");
        }
    }
    (failed, operations)
}

#[test]
fn a_fault_anywhere_leaves_no_file_behind() {
    let (failed, operations) = fail_every_operation(|| Store::random(7));
    // A read of more than a block is tried again for the block alone.
    assert!(failed > 12, "{failed} of {operations}");
}

#[test]
fn a_cancelled_job_leaves_no_file_behind() {
    let store = Store::random(7);
    let before = store.file_names();
    assert!(store.run(&store.compaction(5), &AtomicBool::new(true)).unwrap().is_none());
    assert_eq!(store.file_names(), before);
}

#[test]
fn an_input_that_lost_an_entry_stops_the_job() {
    let store = Store::random(7);
    let mut compaction = store.compaction(5);
    let file = &mut compaction.inputs[0].1[0];
    // Its reader is open, and was of the right file then.
    store.table_cache.reader(file).unwrap();
    *file = Arc::new(FileMeta { entry_count: file.entry_count + 1, ..FileMeta::clone(file) });
    let before = store.file_names();
    let error = store.run(&compaction, &AtomicBool::new(false)).unwrap_err();
    assert!(error.is_corruption() && error.to_string().contains("lost count"), "{error}");
    assert_eq!(store.file_names(), before);
}

#[test]
fn an_output_in_l0_is_one_file() {
    let mut store = Store::random(11);
    store.inputs.retain(|(level, _)| *level == 0);
    let mut compaction = store.compaction(0);
    compaction.grandparents.clear();
    let output = store.run(&compaction, &AtomicBool::new(false)).unwrap().unwrap();
    assert_eq!((output.edit.added.len(), output.stats.pieces), (1, 1));
    assert!(output.edit.added[0].1.smallest_seqno > SeqNo::ZERO);
}

/// The manifest may order a file before what its entries say, and a merge may drop its newest entries.
#[test]
fn an_output_in_l0_has_the_place_of_its_newest_input() {
    let mut store = Store::random(11);
    store.inputs.retain(|(level, _)| *level == 0);
    let mut compaction = store.compaction(0);
    compaction.grandparents.clear();
    let file = &mut compaction.inputs[0].1[0];
    let place = SeqNo::new(1 << 40);
    *file = Arc::new(FileMeta { largest_seqno: place, ..FileMeta::clone(file) });
    let output = store.run(&compaction, &AtomicBool::new(false)).unwrap().unwrap();
    assert_eq!(output.edit.added[0].1.largest_seqno, place);
}

#[test]
fn what_is_below_is_everything_older_that_is_no_input() {
    let mut store = Store::new();
    let put = |n: u64, seqno: u64| -> Entry {
        (format!("k{n}").into_bytes(), pack_trailer(SeqNo::new(seqno), ValueKind::Put), vec![1])
    };
    store.add_run(6, vec![put(1, 1)], vec![], false);
    store.add_run(0, vec![put(2, 2)], vec![], false);
    store.add_run(0, vec![put(0, 3), put(9, 4)], vec![], true);
    store.add_run(0, vec![put(3, 5)], vec![], false);
    let delete =
        |n: u64| (format!("k{n}").into_bytes(), pack_trailer(SeqNo::new(6), ValueKind::Delete));
    let compaction = store.compaction(0);
    let mut below = below(&store.version, &compaction);
    let none = RangeTombstones::default();
    let mut retain = Retain::new(&[], &none, NOW_MS, &mut below, false);
    let mut verdict = |n: u64| {
        let (key, trailer) = delete(n);
        retain.next(&key, trailer, &[])
    };
    assert_eq!(verdict(0), Verdict::Drop);
    assert!(matches!(verdict(1), Verdict::Keep { .. }), "a deeper level");
    assert!(matches!(verdict(2), Verdict::Keep { .. }), "an older L0 file");
    assert_eq!(verdict(3), Verdict::Drop, "a newer L0 file hides nothing");
}

/// Seconds that this thread has been on a processor; other load does not move it.
fn thread_cpu_s() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(f64::NAN) / 1e9
}

/// `cargo test --release -p terrace job::tests::speed -- --ignored --nocapture`
#[test]
#[ignore = "measures; asserts nothing about time"]
fn speed() {
    let dir = tempfile::tempdir().unwrap();
    let vfs: Arc<dyn Vfs> = terrace_vfs::PosixVfs::shared();
    let cache = Arc::new(BlockCache::new(1 << 20));
    let counters = Arc::new(ReadCounters::default());
    let table_cache = Arc::new(TableCache::new(
        vfs.clone(),
        dir.path(),
        cache,
        counters,
        FilterBudget::cached(),
        false,
        100,
    ));
    let options = simulation::options(64 << 20);
    let (limiter, next) = (RateLimiter::new(0), AtomicU64::new(1));
    let mut rng = SplitMix64::new(1);
    let mut version = Version::empty();
    for run in 0..6u64 {
        let mut keys: Vec<u64> = (0..300_000).map(|_| rng.next_u64()).collect();
        keys.sort_unstable();
        let context = OutputContext {
            vfs: &vfs,
            dir: dir.path(),
            next_file_number: &|| FileNumber::new(next.fetch_add(1, Ordering::Relaxed)),
            sst_options: options.sst(0, NOW_MS),
            target_file_bytes: u64::MAX,
            max_writer_bytes: usize::MAX,
            limiter: &limiter,
            trainings: table_cache.trainings(),
            progress: &JobProgress::default(),
        };
        let mut output = Output::new(context, RangeTombstones::default());
        for (n, key) in keys.iter().enumerate() {
            let trailer = pack_trailer(SeqNo::new(run * 300_000 + n as u64 + 1), ValueKind::Put);
            output.add(format!("{key:016x}").as_bytes(), trailer, &[run as u8; 100]).unwrap();
        }
        let files = output.finish().unwrap();
        publish(&*vfs, dir.path(), files.iter().map(|file| file.number)).unwrap();
        let added = files.into_iter().map(|f| (0, f)).collect();
        version = version.apply(&FamilyEdit { added, ..FamilyEdit::default() }).unwrap();
    }
    let compaction = Compaction {
        family: 0,
        start_level: 0,
        output_level: 6,
        inputs: vec![(0, version.level(0).files().to_vec())],
        grandparents: Vec::new(),
        above: None,
        reason: Reason::L0Files,
    };
    for pieces in [1, 1, 2] {
        let options = FamilyOptions { max_subcompactions: pieces, ..options.clone() };
        let context = JobContext {
            vfs: &vfs,
            dir: dir.path(),
            table_cache: &table_cache,
            next_file_number: &|| FileNumber::new(next.fetch_add(1, Ordering::Relaxed)),
            options: &options,
            flushed_seqno: SeqNo::ZERO,
            snapshots: Vec::new(),
            clock: &ManualClock::at(NOW_MS),
            limiter: &limiter,
            cancel: &AtomicBool::new(false),
            version: &version,
            progress: &JobProgress::default(),
            moving: None,
            filtering: None,
            kept_room: None,
        };
        let (start, start_cpu_s) = (std::time::Instant::now(), thread_cpu_s());
        let output = run(&context, &compaction).unwrap().unwrap();
        let (seconds, cpu_s) = (start.elapsed().as_secs_f64(), thread_cpu_s() - start_cpu_s);
        let mb = output.stats.read_bytes as f64 / 1e6;
        println!(
            "{pieces} pieces: {mb:.0} MB in {seconds:.2} s, {:.0} MB/s; {:.0} MB per second of CPU",
            mb / seconds,
            mb / cpu_s / pieces as f64
        );
    }
}
