//! What picking writes: a simulation without I/O. Keys are uniform, files are key ranges with entry
//! counts, a merge costs its output's bytes and the time to write them, one merge runs at a time
//! while memtables go on being flushed. `cargo test -p terrace simulation -- --nocapture` prints
//! the table; the assertions hold the marks.

use super::super::pick::{Choice, Compaction, File, PickInput, Values};
use crate::jobs::scheduler::RunningCompaction;
use crate::options::{CompactionStyle, FamilyOptions};
use std::collections::HashSet;
use terrace_base::{FileNumber, SeqNo};
use terrace_manifest::{FamilyEdit, FileMeta, LEVEL_COUNT, Version};
use terrace_sst::Compression;

const MIB: u64 = 1 << 20;
/// 16-byte keys, 100-byte values, what an entry takes beside them in an SST and in a memtable.
const ENTRY_BYTES: f64 = 122.0;
const MEMTABLE_ENTRY_BYTES: f64 = 148.0;
const LOG_ENTRY_BYTES: f64 = 130.0;
/// Bytes a merge writes per second, and puts per second.
const MERGE_BYTES_PER_S: f64 = 300e6;
const PUTS_PER_S: f64 = 250e3;

pub(in super::super) fn options(memtable_bytes: u64) -> FamilyOptions {
    FamilyOptions {
        compression: [Compression::None; LEVEL_COUNT],
        filter: [crate::options::DEFAULT_FILTER; LEVEL_COUNT],
        prefix_len: 0,
        style: CompactionStyle::Leveled,
        block_size: 4096,
        metadata_block_size: 4096,
        partitioned_metadata: true,
        direct_write: false,
        memtable_bytes: memtable_bytes as usize,
        l0_compaction_trigger: 4,
        l0_slowdown: 20,
        l0_stop: 36,
        level_base_bytes: 256 * MIB,
        level_multiplier: 10.0,
        target_file_bytes: 64 * MIB,
        job_buffer_bytes: 8 << 20,
        most_pieces: 2,
        max_subcompactions: 2,
        compact_when_idle: true,
        pending_compaction_slowdown_bytes: 64 << 30,
        value_separation_threshold: usize::MAX,
        value_compression: Compression::None,
        learning: crate::options::Learning::Off,
        merge_operator: None,
        compaction_filter: None,
        keeps_seqnos: false,
        model_costs: None,
        family: None,
        as_old_as: None,
    }
}

/// How keys are drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Keys {
    /// Every key once.
    Distinct,
    /// From this many keys, with repeats.
    From(f64),
    Ascending,
}

struct Simulation {
    options: FamilyOptions,
    version: Version,
    now_s: f64,
    next_file: FileNumber,
    seqno: SeqNo,
    keys: Keys,
    put_entries: f64,
    flushed_bytes: f64,
    merged_bytes: f64,
    moves: u64,
    most_l0: usize,
    biggest_merge: f64,
    waited_s: f64,
    running: Option<(f64, Compaction)>,
}

fn place(key: &[u8]) -> f64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&key[..8]);
    u64::from_be_bytes(bytes) as f64 / u64::MAX as f64
}

fn key_at(place: f64) -> Vec<u8> {
    ((place * u64::MAX as f64) as u64).to_be_bytes().to_vec()
}

impl Simulation {
    fn new(options: FamilyOptions, keys: Keys) -> Self {
        Self {
            options,
            version: Version::empty(),
            now_s: 1e6,
            next_file: FileNumber::new(1),
            seqno: SeqNo::new(1),
            keys,
            put_entries: 0.0,
            flushed_bytes: 0.0,
            merged_bytes: 0.0,
            moves: 0,
            most_l0: 0,
            biggest_merge: 0.0,
            waited_s: 0.0,
            running: None,
        }
    }

    fn file(&mut self, start: f64, end: f64, entries: f64, seqnos: (SeqNo, SeqNo)) -> FileMeta {
        self.next_file += 1;
        FileMeta {
            number: self.next_file,
            size_bytes: (entries * ENTRY_BYTES) as u64,
            smallest: key_at(start),
            largest: key_at(end),
            largest_exclusive: true,
            smallest_seqno: seqnos.0,
            largest_seqno: seqnos.1,
            entry_count: entries as u64,
            raw_bytes: (entries * ENTRY_BYTES) as u64,
            created_ms: (self.now_s * 1e3) as u64,
            ..FileMeta::default()
        }
    }

    fn apply(&mut self, edit: &FamilyEdit) {
        self.version = self.version.apply(edit).unwrap();
        self.most_l0 = self.most_l0.max(self.version.level(0).len());
    }

    /// Distinct keys of versions that hold `counts` in a part `width` of the key space.
    fn union(&self, counts: &[f64], width: f64) -> f64 {
        match self.keys {
            Keys::From(keys) => {
                let here = keys * width;
                here * (1.0 - counts.iter().map(|n| (1.0 - n / here).max(0.0)).product::<f64>())
            }
            _ => counts.iter().sum(),
        }
    }

    fn flush(&mut self, total: f64) {
        let puts = (self.options.memtable_bytes as f64 / MEMTABLE_ENTRY_BYTES)
            .min(total - self.put_entries);
        let (from, to) = match self.keys {
            Keys::Ascending => (self.put_entries / total, (self.put_entries + puts) / total),
            _ => (0.0, 1.0),
        };
        let entries = match self.keys {
            Keys::From(keys) => keys * (1.0 - (-puts / keys).exp()),
            _ => puts,
        };
        self.put_entries += puts;
        let seqnos = (self.seqno, self.seqno + puts as u64);
        self.seqno = seqnos.1.next();
        let file = self.file(from, to, entries, seqnos);
        self.flushed_bytes += file.size_bytes as f64;
        self.apply(&FamilyEdit { added: vec![(0, file)], ..FamilyEdit::default() });
    }

    fn merge(&mut self, compaction: &Compaction) {
        let files: Vec<&File> = compaction.files().collect();
        let ranges: Vec<(f64, f64, f64)> = files
            .iter()
            .map(|f| (place(&f.smallest), place(&f.largest), f.size_bytes as f64 / ENTRY_BYTES))
            .collect();
        let mut cuts: Vec<f64> = ranges.iter().flat_map(|r| [r.0, r.1]).collect();
        cuts.extend(compaction.grandparents.iter().map(|f| place(&f.smallest)));
        cuts.sort_by(f64::total_cmp);
        cuts.dedup();
        let grandparents: Vec<f64> =
            compaction.grandparents.iter().map(|f| place(&f.smallest)).collect();
        let seqnos = (
            files.iter().map(|f| f.smallest_seqno).min().unwrap(),
            files.iter().map(|f| f.largest_seqno).max().unwrap(),
        );
        let target = match compaction.output_level {
            0 => f64::INFINITY,
            _ => self.options.target_file_bytes as f64 / ENTRY_BYTES,
        };
        let mut added = Vec::new();
        let mut open: Option<(f64, f64)> = None;
        for pair in cuts.windows(2) {
            let (mut start, end) = (pair[0], pair[1]);
            let counts: Vec<f64> = ranges
                .iter()
                .filter(|r| r.0 <= start && end <= r.1)
                .map(|r| r.2 * (end - start) / (r.1 - r.0))
                .collect();
            if counts.is_empty() {
                continue;
            }
            let density = self.union(&counts, end - start) / (end - start);
            let at_boundary = grandparents.contains(&start);
            while start < end {
                let (first, have) = open.unwrap_or((start, 0.0));
                if at_boundary && start == pair[0] && have >= target / 2.0 {
                    added.push((first, start, have));
                    open = None;
                    continue;
                }
                let room = (target - have) / density;
                if room < end - start {
                    added.push((first, start + room, target));
                    start += room;
                    open = None;
                } else {
                    open = Some((first, have + density * (end - start)));
                    start = end;
                }
            }
        }
        if let Some((first, have)) = open {
            added.push((first, *cuts.last().unwrap(), have));
        }
        let level = compaction.output_level;
        let added: Vec<(u8, FileMeta)> = added
            .into_iter()
            .map(|(start, end, entries)| (level, self.file(start, end, entries, seqnos)))
            .collect();
        let written: u64 = added.iter().map(|(_, f)| f.size_bytes).sum();
        self.merged_bytes += written as f64;
        self.biggest_merge = self.biggest_merge.max(written as f64);
        let removed = compaction
            .inputs
            .iter()
            .flat_map(|(level, files)| files.iter().map(|f| (*level, f.number)))
            .collect();
        self.apply(&FamilyEdit { added, removed, ..FamilyEdit::default() });
    }

    fn choose(&self, idle: bool) -> Choice {
        let in_progress: HashSet<FileNumber> =
            self.running.iter().flat_map(|(_, c)| c.files().map(|f| f.number)).collect();
        let running: Vec<RunningCompaction> =
            self.running.iter().map(|(_, c)| c.running(1)).collect();
        let input = PickInput {
            family: 0,
            version: &self.version,
            options: &self.options,
            in_progress: &in_progress,
            quarantined: &HashSet::new(),
            running: &running,
            snapshots_oldest: None,
            now_ms: (self.now_s * 1e3) as u64,
            values: Values::none(),
        };
        if idle { super::super::pick_idle(&input) } else { super::super::pick(&input) }
    }

    /// Moves what can move and starts a merge if none runs.
    fn start(&mut self, idle: bool) {
        while self.running.is_none() {
            match self.choose(idle) {
                Choice::Nothing => return,
                Choice::Move(step) => {
                    self.moves += 1;
                    self.apply(&step.edit());
                }
                Choice::Merge(compaction) => {
                    let took_s = compaction.input_bytes() as f64 / MERGE_BYTES_PER_S;
                    self.running = Some((self.now_s + took_s, compaction));
                }
            }
        }
    }

    fn end_merge(&mut self) {
        if let Some((end_s, compaction)) = self.running.take() {
            self.now_s = self.now_s.max(end_s);
            self.merge(&compaction);
        }
    }

    fn settle(&mut self) {
        for idle in [false, true] {
            self.start(idle);
            while self.running.is_some() {
                self.end_merge();
                self.start(idle);
            }
        }
    }

    fn put(&mut self, entries: f64) {
        let total = self.put_entries + entries;
        let memtable_s = self.options.memtable_bytes as f64 / MEMTABLE_ENTRY_BYTES / PUTS_PER_S;
        while self.put_entries + 1.0 < total {
            self.now_s += memtable_s;
            while let Some((end_s, _)) = self.running
                && (end_s <= self.now_s || self.version.level(0).len() >= self.options.l0_slowdown)
            {
                self.waited_s += (end_s - self.now_s).max(0.0);
                self.end_merge();
                self.start(false);
            }
            self.flush(total);
            self.start(false);
        }
    }

    fn runs(&self) -> usize {
        let levels = self.version.levels();
        levels[0].len() + levels[1..].iter().filter(|l| !l.is_empty()).count()
    }

    fn report(&self, name: &str) -> f64 {
        let log = self.put_entries * LOG_ENTRY_BYTES;
        let total = log + self.flushed_bytes + self.merged_bytes;
        let levels: Vec<String> =
            self.version.levels().iter().map(|l| format!("{}", l.size_bytes() / MIB)).collect();
        println!(
            "{name:<44} {:>6.2} {:>6.2} {:>6.2} {:>6.2} {:>5.1} {:>4} {:>4} {:>4} {:>6.0} {:>5.1}  {}",
            total / 1e9,
            log / 1e9,
            self.flushed_bytes / 1e9,
            self.merged_bytes / 1e9,
            total / (self.put_entries * 116.0),
            self.runs(),
            self.most_l0,
            self.moves,
            self.biggest_merge / 1e6,
            self.waited_s,
            levels.join("/")
        );
        total / 1e9
    }
}

fn head() {
    println!(
        "{:<44} {:>6} {:>6} {:>6} {:>6} {:>5} {:>4} {:>4} {:>4} {:>6} {:>5}  MiB by level",
        "workload", "GB", "log", "flush", "merge", "amp", "runs", "L0", "move", "big MB", "wait"
    );
}

fn run(name: &str, options: FamilyOptions, keys: Keys, rounds: &[f64]) -> (f64, Simulation) {
    let mut simulation = Simulation::new(options, keys);
    let mut total = 0.0;
    for (round, entries) in rounds.iter().enumerate() {
        simulation.put(*entries);
        simulation.settle();
        total = simulation.report(&format!("{name}, round {}", round + 1));
    }
    (total, simulation)
}

#[test]
fn what_picking_writes() {
    let m = 1e6;
    head();
    let base = || options(64 * MIB);
    let (fill, after) = run("10 M distinct keys", base(), Keys::Distinct, &[10.0 * m]);
    assert!(fill < 5.4 && after.runs() <= 2, "{fill} GB, {} runs", after.runs());
    for n in [4.0, 6.0, 8.0, 12.0, 16.0, 20.0, 40.0, 80.0] {
        run(&format!("{n} M distinct keys"), base(), Keys::Distinct, &[n * m]);
    }
    run("overwrite 10 M of 10 M", base(), Keys::From(10.0 * m), &[10.0 * m, 10.0 * m, 10.0 * m]);
    run("bursts of 1 M of 10 M", base(), Keys::From(10.0 * m), &[m; 12]);
    for mib in [2, 8, 16, 32] {
        run(&format!("{mib} MiB memtables, 10 M"), options(mib * MIB), Keys::Distinct, &[10.0 * m]);
    }
    run("2 MiB memtables, 48 M", options(2 * MIB), Keys::Distinct, &[48.0 * m]);
    run("8 MiB memtables, 48 M", options(8 * MIB), Keys::Distinct, &[48.0 * m]);
    let (_, sequential) = run("10 M ascending", base(), Keys::Ascending, &[10.0 * m]);
    assert_eq!(sequential.merged_bytes, 0.0);
    assert_eq!(sequential.runs(), 1);
}
