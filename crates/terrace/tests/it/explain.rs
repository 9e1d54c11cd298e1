//! Explained lookups: they find what every lookup finds, and what they say of files is so.

use crate::filters::wait_for_filters;
use crate::harness::stopped_clock;
use proptest::prelude::*;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use terrace::{
    CfOptions, ColumnFamily, Db, ExplainOutcome, ExplainPart, Explanation, FilterAllocator,
    JobKind, Learning, Options,
};
use terrace_base::{FileNumber, ManualClock};
use terrace_manifest::names;
use terrace_sst::{BlockCache, Lookup, ReadCounters, ReaderOptions, SstReader};

/// What the stores differ in.
#[derive(Debug, Clone)]
struct Kind {
    partitioned: bool,
    allocator: FilterAllocator,
    learning: Learning,
    separation: usize,
    filter: &'static str,
}

#[derive(Debug, Clone)]
enum Op {
    Put(u16, usize),
    PutTtl(u16, u64),
    Delete(u16),
    DeleteRange(u16, u16),
    Flush,
    Compact,
    Wait(u64),
}

fn kind() -> impl Strategy<Value = Kind> {
    let allocators =
        [FilterAllocator::Budget, FilterAllocator::Mq, FilterAllocator::Cached].to_vec();
    let learning = [Learning::Build, Learning::Analyze, Learning::Off].to_vec();
    (
        any::<bool>(),
        prop::sample::select(allocators),
        prop::sample::select(learning),
        prop::sample::select(vec![24usize, usize::MAX]),
        prop::sample::select(vec!["ribbon:16", "blocked:10", "none"]),
    )
        .prop_map(|(partitioned, allocator, learning, separation, filter)| Kind {
            partitioned,
            allocator,
            learning,
            separation,
            filter,
        })
}

const KEYS: u16 = 400;

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        60 => (0..KEYS, 0usize..60).prop_map(|(key, len)| Op::Put(key, len)),
        8 => (0..KEYS, 1u64..2000).prop_map(|(key, ms)| Op::PutTtl(key, ms)),
        10 => (0..KEYS).prop_map(Op::Delete),
        3 => (0..KEYS, 1u16..60).prop_map(|(key, count)| Op::DeleteRange(key, count)),
        3 => Just(Op::Flush),
        1 => Just(Op::Compact),
        2 => (1u64..500).prop_map(Op::Wait),
    ]
}

fn options(kind: &Kind, clock: &ManualClock) -> Options {
    let family = CfOptions {
        learning: kind.learning,
        value_separation_threshold: kind.separation,
        filter: vec![kind.filter.parse().unwrap()],
        ..CfOptions::default()
    };
    let mut options = Options { memory_budget: 4 << 20, ..Options::default() };
    options.default_family = family.clone();
    options.column_families = vec![("other".to_string(), family)];
    options.advanced.clock = Arc::new(clock.clone());
    options.advanced.partitioned_metadata = kind.partitioned;
    options.advanced.filter_allocator = kind.allocator;
    options.advanced.block_size = 256;
    options.advanced.metadata_block_size = 256;
    options.advanced.target_file_bytes = 4 << 10;
    options.advanced.level_base_bytes = 16 << 10;
    options.advanced.reserve_bytes = 0;
    options.advanced.compact_when_idle = false;
    options
}

fn key(n: u16) -> Vec<u8> {
    format!("key{n:05}").into_bytes()
}

fn apply(family: &ColumnFamily, db: &Db, clock: &ManualClock, op: &Op) {
    match op {
        Op::Put(n, len) => family.put(key(*n), vec![*n as u8; *len]).unwrap(),
        Op::PutTtl(n, ms) => {
            family.put_with_ttl(key(*n), b"for a while", Duration::from_millis(*ms)).unwrap();
        }
        Op::Delete(n) => family.delete(key(*n)).unwrap(),
        Op::DeleteRange(n, count) => family.delete_range(key(*n), key(*n + *count)).unwrap(),
        Op::Flush => db.flush().unwrap(),
        Op::Compact => family.compact_range::<&[u8]>(..).unwrap(),
        Op::Wait(ms) => clock.advance(*ms),
    }
}

/// What a file says of a key when it is asked by itself.
fn file_has(dir: &Path, number: u64, key: &[u8]) -> bool {
    let options = ReaderOptions {
        cache: Arc::new(BlockCache::new(1 << 20)),
        filter_memory: terrace_sst::FilterMemory::Cached,
        models: false,
        direct: false,
        counters: Arc::new(ReadCounters::new()),
    };
    let vfs: Arc<dyn terrace::vfs::Vfs> = Arc::new(terrace::vfs::PosixVfs::new());
    let number = FileNumber::new(number);
    let path = names::sst_path(dir, number);
    let len = std::fs::metadata(&path).unwrap().len();
    let reader = SstReader::open(&vfs, &path, number, len, &options).unwrap();
    reader.get_unfiltered(&Lookup::new(key, terrace_base::MAX_SEQNO)).unwrap().is_some()
}

/// Everything an explanation says that can be checked.
fn check(db: &Db, family: &ColumnFamily, key: &[u8]) -> Explanation {
    let before = family.get(key).unwrap();
    let told = family.explain(key).unwrap();
    assert_eq!(told.found.as_deref(), before.as_deref());
    let entry = family.get_entry(key, &terrace::ReadOptions::default()).unwrap();
    assert_eq!(told.expires_at_ms, entry.and_then(|entry| entry.expires_at_ms));
    let shape = db.shape();
    let live = shape.families.iter().find(|shape| shape.name == family.name()).unwrap();
    assert!(!told.steps.is_empty(), "the memtable is asked at least");
    assert!(told.steps.iter().map(|step| step.ns).sum::<u64>() <= told.ns);
    let mut last_level = None;
    for (at, step) in told.steps.iter().enumerate() {
        assert!(!step.place.is_empty() && !step.asked.is_empty() && !step.answer.is_empty());
        let Some(level) = step.level else { continue };
        let number = step.file.unwrap();
        let file = live.levels[usize::from(level)].iter().find(|file| file.number == number);
        let file = file.expect("a live file of this level");
        assert!(last_level <= Some(level), "upper levels come first");
        last_level = Some(level);
        assert!(step.place.contains(&format!("L{level} {number:06}.sst")), "{}", step.place);
        if step.part == ExplainPart::Level && step.answer.contains("bounds") {
            assert!(&file.smallest[..] <= key && key <= &file.largest[..]);
        }
        let has = || file_has(db.path(), number, key);
        match step.part {
            ExplainPart::Filter if step.outcome == ExplainOutcome::No => assert!(!has()),
            ExplainPart::Block if step.is_hit => assert!(has(), "{step:?}"),
            ExplainPart::Block if step.answer.contains("not in the file") => assert!(!has()),
            ExplainPart::RangeTombstones => assert!(file.range_tombstone_count > 0),
            _ => {}
        }
        if step.is_hit {
            let rest = &told.steps[at + 1..];
            assert!(rest.iter().all(|step| step.level.is_none()), "a hit ends the search");
        }
    }
    if told.found.is_some() {
        assert!(told.steps.iter().any(|step| step.is_hit), "{told:?}");
        let last = told.steps.last().unwrap();
        assert_eq!(last.part, ExplainPart::Version);
        assert!(last.answer.starts_with("it is the value"), "{last:?}");
    }
    for (at, step) in told.steps.iter().enumerate() {
        let decides = matches!(step.outcome, ExplainOutcome::Found | ExplainOutcome::Deleted);
        assert_eq!(decides, step.part == ExplainPart::Version, "{step:?}");
        assert!(!decides || at + 1 == told.steps.len(), "{told:?}");
        assert_eq!(step.outcome == ExplainOutcome::Found, decides && told.found.is_some());
    }
    told
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]
    #[test]
    fn an_explanation_finds_what_a_lookup_finds_and_says_what_is_so(
        kind in kind(),
        ops in prop::collection::vec((any::<bool>(), op()), 50..600),
        asked in prop::collection::vec(0..KEYS + 20, 20),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let clock = stopped_clock();
        let db = Db::open(dir.path(), options(&kind, &clock)).unwrap();
        let families = [db.default_family(), db.column_family("other").unwrap()];
        for (second, op) in &ops {
            apply(&families[usize::from(*second)], &db, &clock, op);
        }
        // With what is in memtables, and then without.
        for _ in 0..2 {
            // Files stay while they are looked at.
            db.wait_idle().unwrap();
            for family in &families {
                for n in &asked {
                    check(&db, family, &key(*n));
                }
            }
            db.flush().unwrap();
        }
        db.close().unwrap();
    }
}

fn plain() -> Kind {
    Kind {
        partitioned: true,
        allocator: FilterAllocator::Budget,
        learning: Learning::Off,
        separation: usize::MAX,
        filter: "ribbon:16",
    }
}

fn parts(told: &Explanation) -> Vec<ExplainPart> {
    told.steps.iter().map(|step| step.part).collect()
}

#[test]
fn every_part_of_the_store_speaks_for_itself() {
    use ExplainPart::{Block, Filter, Index, Level, Memtable, RangeTombstones, Value, Version};
    let dir = tempfile::tempdir().unwrap();
    let clock = stopped_clock();
    let kind = Kind { separation: 40, ..plain() };
    let db = Db::open(dir.path(), options(&kind, &clock)).unwrap();
    let family = db.default_family();
    assert_eq!(parts(&check(&db, &family, b"nothing")), [Memtable]);
    db.put(b"a", b"1").unwrap();
    let told = check(&db, &family, b"a");
    assert_eq!(parts(&told), [Memtable, Version]);
    assert!(told.steps[0].is_hit && told.steps[0].answer.starts_with("put at sequence number"));
    for n in 0..100 {
        db.put(key(n), [n as u8; 30]).unwrap();
    }
    db.put(b"long", [7; 100]).unwrap();
    db.flush().unwrap();
    wait_for_filters(&db);
    let told = check(&db, &family, &key(50));
    let [Memtable, Level, .., Index, Block, Version] = parts(&told)[..] else {
        panic!("{told:?}");
    };
    assert!(parts(&told).contains(&Filter), "{told:?}");
    assert!(told.steps.iter().all(|step| step.device_reads == 0), "get has read it: {told:?}");
    let told = check(&db, &family, b"long");
    assert_eq!(parts(&told).last_chunk::<2>().unwrap(), &[Value, Version]);
    let value = &told.steps[told.steps.len() - 2];
    assert!(value.is_hit && value.place.starts_with("log segment"), "{value:?}");
    assert!(value.answer.contains("from the cache") && value.file.is_some());
    let told = check(&db, &family, b"absent");
    assert!(told.steps.iter().all(|step| !step.is_hit));
    db.delete_range(b"key00040", b"key00060").unwrap();
    db.flush().unwrap();
    let told = check(&db, &family, &key(50));
    assert!(told.found.is_none() && parts(&told).contains(&RangeTombstones), "{told:?}");
    assert!(told.steps.last().unwrap().answer.contains("range tombstone"), "{told:?}");
    db.delete(key(10)).unwrap();
    let told = check(&db, &family, &key(10));
    assert_eq!(told.steps.last().unwrap().answer, "absent: it is a tombstone");
    db.put_with_ttl(b"brief", b"x", Duration::from_millis(10)).unwrap();
    assert!(check(&db, &family, b"brief").expires_at_ms.is_some());
    clock.advance(11);
    let told = check(&db, &family, b"brief");
    assert_eq!(told.steps.last().unwrap().answer, "absent: it has expired");
}

#[test]
fn what_was_not_in_memory_is_read_and_then_it_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let clock = stopped_clock();
    let fill = |db: &Db| {
        for n in 0..300 {
            db.put(key(n), [n as u8; 50]).unwrap();
        }
        db.flush().unwrap();
    };
    let db = Db::open(dir.path(), options(&plain(), &clock)).unwrap();
    fill(&db);
    db.compact_range::<&[u8]>(..).unwrap();
    db.close().unwrap();
    let db = Db::open(dir.path(), options(&plain(), &clock)).unwrap();
    let family = db.default_family();
    let told = family.explain(key(77)).unwrap();
    assert_eq!(told.found.as_deref(), Some(&[77; 50][..]));
    let reads = |part| {
        let steps = told.steps.iter().filter(|step| step.part == part);
        steps.map(|step| step.device_reads).sum::<u32>()
    };
    assert!(reads(ExplainPart::Index) == 1 && reads(ExplainPart::Block) == 1, "{told:?}");
    let again = family.explain(key(77)).unwrap();
    assert!(again.steps.iter().all(|step| step.device_reads == 0), "{again:?}");
    assert!(again.steps.iter().all(|step| step.part != ExplainPart::Open));
}

#[test]
fn models_are_named_where_they_are_used() {
    let dir = tempfile::tempdir().unwrap();
    let clock = stopped_clock();
    let mut options = options(&Kind { learning: Learning::Build, ..plain() }, &clock);
    options.memory_budget = 16 << 20;
    options.advanced.target_file_bytes = 256 << 10;
    let db = Db::open(dir.path(), options).unwrap();
    for n in 0..10_000u32 {
        db.put(format!("user:{:09}", n * 3).as_bytes(), [n as u8; 20]).unwrap();
    }
    db.compact_range::<&[u8]>(..).unwrap();
    let family = db.default_family();
    let with_model: Vec<u64> = db.shape().families[0].levels[6]
        .iter()
        .filter(|file| file.has_model.unwrap_or(false))
        .map(|file| file.number)
        .collect();
    let told = check(&db, &family, b"user:000000300");
    assert!(parts(&told).contains(&ExplainPart::Model), "{told:?}");
    let file = told.steps.iter().find_map(|step| step.file).unwrap();
    let shape = db.model_shape(file).unwrap().expect("a model");
    assert!(with_model.is_empty() || with_model.contains(&file) || shape.file == file);
    assert_eq!(shape.file, file);
    assert!(shape.blocks > 10 && shape.keys > 1000 && shape.model_bytes > 0);
    assert!(shape.model_bytes < shape.index_bytes);
    assert_eq!(shape.error_counts.len(), terrace::MODEL_ERROR_SLOTS);
    assert!(shape.error_counts.iter().sum::<u64>() > 0);
    let blocks = shape.segments.iter().map(|segment| segment.last_block).max().unwrap();
    assert!(blocks.abs_diff(shape.blocks) <= u64::from(shape.error_bound) + 1, "{shape:?}");
    for pair in shape.segments.windows(2) {
        assert!(pair[0].first_key < pair[1].first_key && pair[0].last_key == pair[1].first_key);
    }
    assert!(shape.segments.iter().all(|segment| segment.slope >= 0.0));
    // Another store's file, and one without a model.
    assert_eq!(db.model_shape(u64::MAX).unwrap(), None);
}

#[test]
fn jobs_are_listed_while_they_run_and_a_little_after() {
    let dir = tempfile::tempdir().unwrap();
    let clock = ManualClock::at(1_700_000_000_000);
    let db = Db::open(dir.path(), options(&plain(), &clock)).unwrap();
    let other = db.column_family("other").unwrap();
    for n in 0..400 {
        db.put(key(n), [n as u8; 50]).unwrap();
        other.put(key(n), [n as u8; 50]).unwrap();
    }
    db.flush().unwrap();
    for n in 0..400 {
        db.put(key(n), [n as u8; 60]).unwrap();
    }
    db.compact_range::<&[u8]>(..).unwrap();
    let jobs = db.shape().jobs;
    let flushes: Vec<_> = jobs.iter().filter(|job| job.kind == JobKind::Flush).collect();
    assert!(flushes.iter().any(|job| job.family == "other"), "{jobs:?}");
    for job in &flushes {
        assert!(job.inputs.is_empty() && job.output_level == 0);
        assert!(job.input_bytes > 0 && job.read_bytes == job.input_bytes, "{job:?}");
    }
    let merges: Vec<_> = jobs.iter().filter(|job| job.kind == JobKind::Compaction).collect();
    let last = merges.last().expect("a compaction");
    assert!(!last.inputs.is_empty() && last.finished_ms.is_some());
    assert!(last.read_bytes == last.input_bytes && last.written_bytes > 0, "{last:?}");
    let live: u64 = db.shape().families[0].levels[6].iter().map(|file| file.size_bytes).sum();
    assert!(merges.iter().any(|job| job.written_bytes >= live / 2));
    // One that has done its work may be about to end.
    db.wait_idle().unwrap();
    clock.advance(3001);
    assert!(db.shape().jobs.is_empty());
}
