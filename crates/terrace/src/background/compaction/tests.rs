//! Picking from LSMs drawn as text, in `testdata/pick`.

mod model;
pub(super) mod simulation;

use super::pick::{Choice, Compaction, File, Manual, ManualStep, PickInput, Values};
use super::under_deletions::{self, MOST_PAIRS};
use super::{
    level_targets, leveled, pending_bytes, pick, pick_deleted_ranges, pick_idle, pick_manual,
    pick_values, windows,
};
use crate::background::retain::tests::script;
use crate::jobs::scheduler::{Rewrites, RunningCompaction};
use crate::options::{CompactionStyle, FamilyOptions};
use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::ops::Bound;
use std::path::Path;
use terrace_base::{FileNumber, SegmentNumber, SeqNo, ValueRef};
use terrace_manifest::{FamilyEdit, FileMeta, Version};
use terrace_sst::Compression;

/// `64M` and the like.
fn bytes(word: &str) -> u64 {
    let (number, unit) = word.split_at(word.trim_end_matches(['K', 'M', 'G']).len());
    let unit = match unit {
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        _ => 1,
    };
    (number.parse::<f64>().unwrap() * f64::from(unit)) as u64
}

fn show_bytes(bytes: u64) -> String {
    format!("{}M", (bytes + (1 << 19)) >> 20)
}

/// `12:[a-m] 64M tombstones=0.6 entries=9 ranges=1 ttl=500 created=900 seqno=5`
fn parse_file(words: &[&str]) -> FileMeta {
    let (number, range) = words[0].split_once(':').unwrap();
    let number: FileNumber = number.parse().unwrap();
    let exclusive = range.ends_with(')');
    let (start, end) = range.trim_matches(['[', ']', ')']).split_once('-').unwrap();
    let size_bytes = bytes(words[1]);
    let mut file = FileMeta {
        number,
        size_bytes,
        smallest: start.into(),
        largest: end.into(),
        largest_exclusive: exclusive,
        smallest_seqno: SeqNo::new(number.get() * 10),
        largest_seqno: SeqNo::new(number.get() * 10 + 9),
        entry_count: (size_bytes / 100).max(1),
        raw_bytes: size_bytes,
        ..FileMeta::default()
    };
    for word in &words[2..] {
        let (name, value) = word.split_once('=').unwrap();
        let number = || value.parse::<u64>().unwrap();
        match name {
            "tombstones" => {
                let part: f64 = value.parse().unwrap();
                file.tombstone_count = (file.entry_count as f64 * part) as u64;
            }
            "entries" => file.entry_count = number(),
            "ranges" => file.range_tombstone_count = number(),
            "ttl" => file.ttl_due_ms = Some(number()),
            "created" => file.created_ms = number(),
            "refs" => {
                let segments = value.split(',').map(|one| one.split_once(':').unwrap());
                file.value_refs = segments
                    .map(|(n, size)| ValueRef { segment: n.parse().unwrap(), bytes: bytes(size) })
                    .collect();
            }
            "seqno" => {
                (file.smallest_seqno, file.largest_seqno) =
                    (SeqNo::new(number()), SeqNo::new(number()));
            }
            other => panic!("unknown word {other}"),
        }
    }
    file
}

struct Drawn {
    options: FamilyOptions,
    version: Version,
    busy: HashSet<FileNumber>,
    quarantined: HashSet<FileNumber>,
    running: Vec<RunningCompaction>,
    snapshot: Option<SeqNo>,
    now_ms: u64,
    victims: HashSet<SegmentNumber>,
    hidden: HashMap<FileNumber, u64>,
    force: bool,
    past: Rewrites,
}

impl Drawn {
    /// Without files.
    fn empty() -> Self {
        Self {
            options: simulation::options(64 << 20),
            version: Version::empty(),
            busy: HashSet::new(),
            quarantined: HashSet::new(),
            running: Vec::new(),
            snapshot: None,
            now_ms: 1_000_000,
            victims: HashSet::new(),
            hidden: HashMap::new(),
            force: false,
            past: Rewrites::default(),
        }
    }

    fn input(&self) -> PickInput<'_> {
        PickInput {
            family: 0,
            version: &self.version,
            options: &self.options,
            in_progress: &self.busy,
            quarantined: &self.quarantined,
            running: &self.running,
            snapshots_oldest: self.snapshot,
            now_ms: self.now_ms,
            values: Values {
                victims: &self.victims,
                force: self.force,
                hidden: &self.hidden,
                live_bytes: 2 << 30,
                segment_bytes: 64 << 20,
            },
        }
    }

    fn set_option(&mut self, name: &str, value: &str) {
        let o = &mut self.options;
        match name {
            "style" if value == "tiered" => o.style = CompactionStyle::Tiered,
            "memtable" => o.memtable_bytes = bytes(value) as usize,
            "trigger" => o.l0_compaction_trigger = value.parse().unwrap(),
            "slowdown" => o.l0_slowdown = value.parse().unwrap(),
            "stop" => o.l0_stop = value.parse().unwrap(),
            "base" => o.level_base_bytes = bytes(value),
            "target" => o.target_file_bytes = bytes(value),
            "lz4-from" => {
                let from: usize = value.parse().unwrap();
                o.compression[from..].fill(Compression::Lz4);
            }
            other => panic!("unknown option {other}"),
        }
    }
}

fn show_files(files: &[File]) -> String {
    files.iter().map(|f| f.number.to_string()).collect::<Vec<_>>().join(" ")
}

fn show(choice: &Choice) -> String {
    match choice {
        Choice::Nothing => "nothing".into(),
        Choice::Move(m) => {
            format!(
                "move ({}) L{}:[{}] -> L{}",
                m.reason.name(),
                m.from,
                show_files(&m.files),
                m.to
            )
        }
        Choice::Merge(c) => {
            let mut text = format!("merge ({})", c.reason.name());
            for (level, files) in &c.inputs {
                write!(text, " L{level}:[{}]", show_files(files)).unwrap();
            }
            write!(text, " -> L{}", c.output_level).unwrap();
            if let Some(above) = &c.above {
                write!(text, ", {} left of it below", show_bytes(above.left_bytes)).unwrap();
                for (level, files) in &above.runs {
                    write!(text, " L{level}:[{}]", show_files(files)).unwrap();
                }
            }
            if !c.grandparents.is_empty() {
                write!(text, ", grandparents [{}]", show_files(&c.grandparents)).unwrap();
            }
            text
        }
    }
}

fn show_manual(drawn: &Drawn, range: &str) -> String {
    let (start, end) = range.split_once('-').unwrap();
    let mut manual = Manual::new(Bound::Included(start.into()), Bound::Included(end.into()));
    let mut text = String::new();
    for _ in 0..20 {
        match pick_manual(&drawn.input(), &mut manual) {
            ManualStep::Do(choice) => writeln!(text, "{}", show(&choice)).unwrap(),
            ManualStep::Wait => return text + "wait\n",
            ManualStep::Done => return text + "done\n",
        }
    }
    panic!("no end: {text}")
}

/// What is chosen of files below deletions: `unfit=` is a file whose rewrite finds no room, a number the pairs of files that may
/// be looked at, of which it is shown then how many are left.
fn show_under_deletions(drawn: &Drawn, words: &[&str]) -> String {
    let (mut pairs, mut shows_pairs) = (MOST_PAIRS, false);
    let mut unfit: Vec<FileNumber> = Vec::new();
    for word in words {
        match word.strip_prefix("unfit=") {
            Some(file) => unfit.push(file.parse().unwrap()),
            None => (pairs, shows_pairs) = (word.parse().unwrap(), true),
        }
    }
    let fits = |merge: &Compaction| !merge.files().any(|f| unfit.contains(&f.number));
    let choice = under_deletions::pick(&drawn.input(), &drawn.past, &mut pairs, fits);
    let left = if shows_pairs { format!(", {pairs} pairs left") } else { String::new() };
    format!("{}{left}\n", show(&choice))
}

fn run_script(text: &str) -> String {
    let mut drawn = Drawn::empty();
    let mut out = String::new();
    for line in text.lines().filter(|l| !l.is_empty() && !l.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[0] {
            "options" => {
                for word in &words[1..] {
                    let (name, value) = word.split_once('=').unwrap();
                    drawn.set_option(name, value);
                }
            }
            "busy" => {
                drawn.busy.extend(words[1..].iter().map(|w| w.parse::<FileNumber>().unwrap()))
            }
            "quarantined" => {
                drawn.quarantined = words[1..].iter().map(|w| w.parse().unwrap()).collect();
            }
            "running" => {
                let (start, end) = words[2].split_once('-').unwrap();
                drawn.running.push(RunningCompaction {
                    id: 1,
                    family: 0,
                    output_level: words[1][1..].parse().unwrap(),
                    smallest: start.into(),
                    largest: end.into(),
                    files: Vec::new(),
                    brings_older: words.get(3) == Some(&"brings-older"),
                    needs_bytes: 0,
                });
            }
            "snapshot" => drawn.snapshot = Some(words[1].parse().unwrap()),
            "now" => drawn.now_ms = words[1].parse().unwrap(),
            "victims" => drawn.victims = words[1..].iter().map(|w| w.parse().unwrap()).collect(),
            "hidden" => {
                let pairs = words[1..].iter().map(|w| w.split_once('=').unwrap());
                drawn.hidden = pairs.map(|(n, size)| (n.parse().unwrap(), bytes(size))).collect();
            }
            "force" => drawn.force = true,
            "values" => {
                let choice = pick_values(&drawn.input()).unwrap_or(Choice::Nothing);
                writeln!(out, "{}", show(&choice)).unwrap();
            }
            "pick" => writeln!(out, "{}", show(&pick(&drawn.input()))).unwrap(),
            "deleted-ranges" => {
                writeln!(out, "{}", show(&pick_deleted_ranges(&drawn.input()))).unwrap();
            }
            "under-deletions" => out += &show_under_deletions(&drawn, &words[1..]),
            "applied" => {
                let (file, seqno) = words[1].split_once('=').unwrap();
                let file = std::iter::once(file.parse().unwrap());
                let skipped = words[2..].iter().map(|word| word.parse().unwrap());
                let skipped: Vec<FileNumber> = skipped.collect();
                drawn.past.note(file, seqno.parse().unwrap(), &skipped);
            }
            "in-vain" => {
                drawn.past.note_in_vain(words[1].parse().unwrap(), 0);
            }
            "idle" => writeln!(out, "{}", show(&pick_idle(&drawn.input()))).unwrap(),
            "manual" => out += &show_manual(&drawn, words[1]),
            "pending" => writeln!(out, "{}", show_bytes(pending_bytes(&drawn.input()))).unwrap(),
            "targets" => {
                let targets = leveled::targets(&drawn.version, &drawn.options);
                write!(out, "base L{}:", targets.base).unwrap();
                for (level, bytes) in targets.bytes.iter().enumerate().skip(targets.base) {
                    write!(out, " L{level} {}", show_bytes(*bytes)).unwrap();
                }
                out.push('\n');
            }
            level => {
                let level: u8 = level[1..].parse().unwrap();
                let added = vec![(level, parse_file(&words[1..]))];
                let edit = FamilyEdit { added, ..FamilyEdit::default() };
                drawn.version = drawn.version.apply(&edit).unwrap();
            }
        }
    }
    out
}

#[test]
fn a_level_is_merged_down_above_its_target_and_only_then() {
    let lsm = |bytes: u64| format!("L6 1:[a-z] 4G\nL5 2:[a-z] {bytes}\nL0 3:[a-z] 1M\n");
    let added = [(6, "1:[a-z] 4G"), (5, "2:[a-z] 1M"), (0, "3:[a-z] 1M")];
    let file = |words: &str| parse_file(&words.split(' ').collect::<Vec<_>>());
    let added = added.into_iter().map(|(level, words)| (level, file(words))).collect();
    let edit = FamilyEdit { added, ..FamilyEdit::default() };
    let version = Version::empty().apply(&edit).unwrap();
    let mut options = simulation::options(64 << 20);
    let targets = level_targets(&version, &options);
    let target = targets[5].expect("L5 is the base level");
    assert_eq!(run_script(&(lsm(target) + "pick")), "nothing\n");
    let over = run_script(&(lsm(target + 1) + "pick"));
    assert!(over.starts_with("merge (level-size) L5:[2]"), "{over}");
    assert!(targets[0].is_none() && targets[6].is_none(), "{targets:?}");
    options.style = CompactionStyle::Tiered;
    assert!(level_targets(&version, &options).iter().all(Option::is_none));
}

/// Files of 10 KiB above one of `below_bytes`.
fn many_small_files(below_bytes: u64) -> Drawn {
    const FILES: u64 = 3000;
    let file = |number: u64, (from, to): (u64, u64), size_bytes: u64| FileMeta {
        number: FileNumber::new(number),
        size_bytes,
        smallest: format!("{from:06}").into(),
        largest: format!("{to:06}").into(),
        ..FileMeta::default()
    };
    let small = (0..FILES).map(|at| (5, file(at + 2, (at, at), 10 << 10)));
    let added = small.chain([(6, file(1, (0, FILES), below_bytes))]).collect();
    let edit = FamilyEdit { added, ..FamilyEdit::default() };
    Drawn { version: Version::empty().apply(&edit).unwrap(), ..Drawn::empty() }
}

/// Several count as one: to look at all windows takes the square of their number, under the scheduler's lock.
#[test]
fn of_very_small_files_a_merge_takes_as_many_bytes_as_of_larger_ones() {
    let inputs = |choice: Choice| -> Vec<(u8, usize, u64)> {
        let Choice::Merge(merge) = choice else { panic!("{choice:?}") };
        let input = |(level, files): &(u8, Vec<File>)| (*level, files.len(), files[0].number.get());
        merge.inputs.iter().map(input).collect()
    };
    let mut drawn = many_small_files(1 << 20);
    drawn.set_option("target", "1M");
    assert_eq!(windows::part_count(&drawn.input(), 5, 6, 24 << 20), 750);
    // L5 is over its target by half of what it has.
    assert_eq!(inputs(pick(&drawn.input())), [(5, 1500, 2), (6, 1, 1)]);
    let mut manual = Manual::new(Bound::Unbounded, Bound::Unbounded);
    let ManualStep::Do(choice) = pick_manual(&drawn.input(), &mut manual) else {
        panic!("there is something to merge");
    };
    let (most, below) = (24 << 20, 1 << 20);
    assert_eq!(inputs(choice)[0].1, (most - below) / (10 << 10));
    // One that is busy divides them.
    drawn.busy.insert(FileNumber::new(702));
    assert_eq!(inputs(pick(&drawn.input())), [(5, 1500, 703), (6, 1, 1)]);
    // Idle, all of them write little per byte, and a part of them much.
    let drawn = many_small_files(64 << 20);
    assert_eq!(inputs(pick_idle(&drawn.input())), [(5, 3000, 2), (6, 1, 1)]);
}

/// The files that `compact_range` takes at a time are those that are within bounds with all that lies below from the first
/// of them to the last.
#[test]
fn a_step_of_compact_range_counts_what_lies_below_between_its_files() {
    // Of a target of 2M: 48M at a time.
    let below = "L6 1:[a-b] 10M\nL6 2:[c-c] 10M\nL6 3:[e-f] 10M\nL6 4:[h-h] 10M\nL6 5:[i-z] 10M\n";
    let lsm = |second: &str| {
        let files = format!("L5 11:[b-b] 1M\nL5 12:{second} 1M\nL5 13:[h-h] 16M\nL5 14:[k-k] 1M\n");
        run_script(&format!("options target=2M\n{below}{files}manual a-z"))
    };
    let shown = lsm("[f-f]");
    let first = shown.lines().next().unwrap();
    assert_eq!(first, "merge (manual) L5:[11 12] L6:[1 2 3] -> L6", "{shown}");
    // One that meets nothing of its own.
    let shown = lsm("[d-d]");
    let first = shown.lines().next().unwrap();
    assert_eq!(first, "merge (manual) L5:[11 12] L6:[1 2] -> L6", "{shown}");
}

#[test]
fn scripts() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/pick");
    script::check_all(&dir, run_script);
}
