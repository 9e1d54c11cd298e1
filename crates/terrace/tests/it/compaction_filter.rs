//! Compaction filters: what they are asked about and told, what snapshots keep, and what a filter that fails does.

use crate::harness::{Bomb, DIR, eventually, stopped_clock};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use terrace::vfs::SimVfs;
use terrace::{
    AppendOperator, CfOptions, CompactionFilter, CompactionStyle, Compression, Db, FilterContext,
    FilterDecision, FilterEntry, FilterError, FilterJob, HotTableMode, Options, ReadOptions,
};

type Decision = Result<FilterDecision, FilterError>;

/// A filter made of a function; it applies to flushes if told so.
struct With<F> {
    filter: F,
    flushes: bool,
    ignores_snapshots: bool,
}

impl<F> CompactionFilter for With<F>
where
    F: Fn(&FilterContext, &FilterEntry<'_>) -> Decision + Send + Sync,
{
    fn name(&self) -> &str {
        "with"
    }

    fn filter(&self, job: &FilterContext, entry: &FilterEntry<'_>) -> Decision {
        (self.filter)(job, entry)
    }

    fn applies_to(&self, job: &FilterContext) -> bool {
        self.flushes || job.job == FilterJob::Compaction
    }

    fn ignores_snapshots(&self) -> bool {
        self.ignores_snapshots
    }
}

fn with<F>(filter: F) -> Arc<dyn CompactionFilter>
where
    F: Fn(&FilterContext, &FilterEntry<'_>) -> Decision + Send + Sync + 'static,
{
    Arc::new(With { filter, flushes: false, ignores_snapshots: false })
}

/// By the first byte of the value: `-` is removed, `~` changed.
fn by_value(_: &FilterContext, entry: &FilterEntry<'_>) -> Decision {
    Ok(match entry.value()?.first() {
        Some(b'-') => FilterDecision::Remove,
        Some(b'~') => FilterDecision::Change(b"changed".to_vec()),
        _ => FilterDecision::Keep,
    })
}

/// Nothing compacts but for `compact_range`.
fn options(vfs: &SimVfs, filter: Arc<dyn CompactionFilter>) -> Options {
    let mut options = Options { memory_budget: 4 << 20, ..Options::default() };
    options.default_family.compaction_filter = Some(filter);
    options.default_family.value_separation_threshold = 100;
    options.advanced.vfs = Arc::new(vfs.clone());
    options.advanced.clock = Arc::new(stopped_clock());
    options.advanced.compact_when_idle = false;
    options.advanced.l0_compaction_trigger = 100;
    options.advanced.l0_slowdown = 200;
    options.advanced.l0_stop = 300;
    options
}

fn open(options: Options) -> Db {
    Db::open(DIR, options).unwrap()
}

fn get(db: &Db, key: &str) -> Option<String> {
    db.get(key).unwrap().map(|value| String::from_utf8_lossy(&value).into_owned())
}

fn compact(db: &Db) {
    db.compact_range::<&[u8]>(..).unwrap();
}

fn long(head: &str) -> String {
    head.to_string() + &"x".repeat(300)
}

#[test]
fn compact_range_asks_about_every_entry_wherever_it_lies() {
    for style in [CompactionStyle::Leveled, CompactionStyle::Tiered] {
        let vfs = SimVfs::new(1);
        // Written without a filter, into the deepest level by a move and by a merge, and into L0.
        let mut without = options(&vfs, with(by_value));
        without.default_family.compaction_filter = None;
        without.default_family.compaction = style;
        let with_filter =
            CfOptions { compaction_filter: Some(with(by_value)), ..without.default_family.clone() };
        let db = open(without.clone());
        for (key, value) in [("a", "-"), ("b", "~"), ("c", "keep"), ("d", "-old")] {
            db.put(key, value).unwrap();
        }
        compact(&db);
        db.put("e", long("-")).unwrap();
        db.put("f", long("keep")).unwrap();
        db.flush().unwrap();
        db.put("d", "new").unwrap();
        db.put("g", "-").unwrap();
        db.close().unwrap();

        let db = open(Options { default_family: with_filter, ..without });
        compact(&db);
        let read: Vec<_> = "abcdefg".chars().map(|key| get(&db, &key.to_string())).collect();
        let want = [None, Some("changed"), Some("keep"), Some("new"), None];
        assert_eq!(read[..5], want.map(|value| value.map(String::from)), "{style:?}");
        assert_eq!(read[5..], [Some(long("keep")), None]);
        let metrics = db.metrics();
        assert_eq!(metrics.compaction_filter_failures, 0);
        assert_eq!(metrics.compaction_filter_changed, 1);
        // `d`'s old value is hidden when it is merged with the new one.
        assert!((3..=4).contains(&metrics.compaction_filter_removed), "{style:?}");
        let entries: u64 = metrics.levels.iter().map(|level| level.entry_count).sum();
        assert_eq!((entries, metrics.levels[6].entry_count), (4, 4), "{style:?}");
        db.collect_garbage(0.0).unwrap();
        assert_eq!(get(&db, "f"), Some(long("keep")));
        db.verify().unwrap();
        db.close().unwrap();
    }
}

#[test]
fn compact_range_asks_about_files_that_it_need_only_move_and_about_the_deepest() {
    for style in [CompactionStyle::Leveled, CompactionStyle::Tiered] {
        for compactions in 0..3 {
            let vfs = SimVfs::new(1);
            let mut options = options(&vfs, with(by_value));
            options.default_family.compression = vec![Compression::None];
            options.default_family.compaction = style;
            let filter = options.default_family.compaction_filter.take();
            let db = open(options.clone());
            db.put("a", "-").unwrap();
            db.put("b", "~").unwrap();
            db.flush().unwrap();
            (0..compactions).for_each(|_| compact(&db));
            db.close().unwrap();
            options.default_family.compaction_filter = filter;
            let db = open(options);
            compact(&db);
            let seen = (get(&db, "a"), get(&db, "b"));
            assert_eq!(seen, (None, Some("changed".into())), "{style:?}, {compactions}");
            db.close().unwrap();
        }
    }
}

#[test]
fn what_is_removed_hides_older_versions() {
    let vfs = SimVfs::new(1);
    let mut options = options(
        &vfs,
        with(|_, entry| match entry.value()? {
            b"old" => Ok(FilterDecision::Keep),
            _ => Ok(FilterDecision::Remove),
        }),
    );
    options.advanced.level_base_bytes = 4096;
    let db = open(options);
    // `old` lies in the deepest level.
    db.put("k", "old").unwrap();
    db.put("z", "old").unwrap();
    compact(&db);
    let before = db.snapshot();
    db.put("k", "new").unwrap();
    db.flush().unwrap();
    compact(&db);
    assert_eq!(get(&db, "k"), None);
    let at = ReadOptions { snapshot: Some(before), ..ReadOptions::default() };
    assert_eq!(db.get_with("k", &at).unwrap().as_deref(), Some(&b"old"[..]));
    drop(at);
    compact(&db);
    assert_eq!(get(&db, "k"), None);
    assert_eq!(get(&db, "z").as_deref(), Some("old"));
    db.close().unwrap();
}

#[test]
fn what_a_live_snapshot_sees_stays_unless_the_filter_ignores_snapshots() {
    for ignores_snapshots in [false, true] {
        let vfs = SimVfs::new(1);
        let filter = With { filter: by_value, flushes: false, ignores_snapshots };
        let db = open(options(&vfs, Arc::new(filter)));
        db.put("seen", "-").unwrap();
        db.put("overwritten", "-first").unwrap();
        let snapshot = db.snapshot();
        db.put("unseen", "-").unwrap();
        db.put("overwritten", "-second").unwrap();
        compact(&db);
        let at = ReadOptions { snapshot: Some(snapshot), ..ReadOptions::default() };
        let seen = |key: &str| db.get_with(key, &at).unwrap().is_some();
        assert_eq!(seen("seen"), !ignores_snapshots);
        assert!(seen("overwritten"), "only the newest version is ever filtered");
        assert!(!seen("unseen"));
        assert_eq!(get(&db, "seen").is_some(), !ignores_snapshots);
        assert_eq!((get(&db, "unseen"), get(&db, "overwritten")), (None, None));
        drop(at);
        compact(&db);
        assert_eq!(get(&db, "seen"), None);
        db.close().unwrap();
    }
}

/// A filter that removes all; the first call waits for a word.
fn gated(flushes: bool) -> (Arc<dyn CompactionFilter>, Receiver<()>, Sender<()>) {
    let (begun, begins) = channel();
    let (go, goes) = channel();
    let gate = Mutex::new(Some((begun, goes)));
    let filter = move |_: &FilterContext, _: &FilterEntry<'_>| {
        if let Some((begun, goes)) = gate.lock().unwrap().take() {
            begun.send(()).unwrap();
            let _: Result<(), _> = goes.recv();
        }
        Ok(FilterDecision::Remove)
    };
    (Arc::new(With { filter, flushes, ignores_snapshots: false }), begins, go)
}

#[test]
fn a_snapshot_that_is_taken_while_a_filter_runs_keeps_what_it_sees() {
    for flush in [false, true] {
        let vfs = SimVfs::new(1);
        let (filter, begins, go) = gated(flush);
        let db = open(options(&vfs, filter));
        db.put("a", "1").unwrap();
        db.put("b", long("2")).unwrap();
        let snapshot = thread::scope(|scope| {
            let run = scope.spawn(|| match flush {
                true => db.flush().unwrap(),
                false => compact(&db),
            });
            begins.recv().unwrap();
            let snapshot = db.snapshot();
            go.send(()).unwrap();
            run.join().unwrap();
            snapshot
        });
        let at = ReadOptions { snapshot: Some(snapshot), ..ReadOptions::default() };
        let seen = |key: &str| db.get_with(key, &at).unwrap().map(|value| value.to_vec());
        assert_eq!((seen("a"), seen("b")), (Some(b"1".to_vec()), Some(long("2").into_bytes())));
        assert_eq!(get(&db, "a").as_deref(), Some("1"), "the job was repeated without the filter");
        assert_eq!(db.metrics().compaction_filter_removed, 0);
        drop(at);
        compact(&db);
        assert_eq!((get(&db, "a"), get(&db, "b")), (None, None));
        assert_eq!(db.metrics().compaction_filter_removed, 2);
        db.verify().unwrap();
        db.close().unwrap();
    }
}

#[test]
fn a_snapshot_that_came_and_went_while_a_filter_runs_changes_nothing() {
    let vfs = SimVfs::new(1);
    let (filter, begins, go) = gated(false);
    let db = open(options(&vfs, filter));
    db.put("a", "1").unwrap();
    thread::scope(|scope| {
        let run = scope.spawn(|| compact(&db));
        begins.recv().unwrap();
        drop(db.snapshot());
        go.send(()).unwrap();
        run.join().unwrap();
    });
    assert_eq!(get(&db, "a"), None);
    db.close().unwrap();
}

#[test]
fn a_flush_leaves_a_tombstone_of_what_is_removed() {
    let vfs = SimVfs::new(1);
    let filter = With { filter: by_value, flushes: true, ignores_snapshots: false };
    let db = open(options(&vfs, Arc::new(filter)));
    db.put("k", "keep").unwrap();
    db.flush().unwrap();
    db.put("k", long("-")).unwrap();
    db.put("l", long("~")).unwrap();
    db.flush().unwrap();
    assert_eq!(get(&db, "k"), None, "and not the version below");
    assert_eq!(get(&db, "l").as_deref(), Some("changed"));
    assert_eq!(db.metrics().levels[0].tombstone_count, 1);
    // Counted once the file is in force.
    eventually("the flush is counted", || {
        let metrics = db.metrics();
        (metrics.compaction_filter_removed, metrics.compaction_filter_changed) == (1, 1)
    });
    db.verify().unwrap();
    db.close().unwrap();
    // The log is not replayed over it.
    let mut options = options(&vfs, with(by_value));
    options.default_family.compaction_filter = None;
    let db = open(options);
    assert_eq!((get(&db, "k"), get(&db, "l").as_deref()), (None, Some("changed")));
    db.close().unwrap();
}

#[test]
fn the_filter_is_told_what_asks() {
    let vfs = SimVfs::new(1);
    let told = Arc::new(Mutex::new(Vec::new()));
    let filter = {
        let told = told.clone();
        move |job: &FilterContext, entry: &FilterEntry<'_>| {
            told.lock().unwrap().push((entry.key().to_vec(), job.clone()));
            Ok(FilterDecision::Keep)
        }
    };
    let filter = With { filter, flushes: true, ignores_snapshots: false };
    let mut options = options(&vfs, Arc::new(filter));
    let default_family = std::mem::take(&mut options.default_family);
    options.column_families = vec![("logs".into(), default_family)];
    let db = open(options);
    let logs = db.column_family("logs").unwrap();
    let told = || std::mem::take(&mut *told.lock().unwrap());
    logs.put("a", "1").unwrap();
    db.put("no filter", "1").unwrap();
    db.flush().unwrap();
    let [(key, job)] = &told()[..] else { panic!("one entry was flushed") };
    assert_eq!((key.as_slice(), job.family.as_str()), (&b"a"[..], "logs"));
    assert_eq!((job.job, job.start_level, job.output_level), (FilterJob::Flush, 0, 0));
    assert!(!job.is_full && !job.is_manual);
    logs.put("a", "2").unwrap();
    logs.put("b", "2").unwrap();
    db.flush().unwrap();
    assert_eq!(told().len(), 2);
    logs.compact_range::<&[u8]>(..).unwrap();
    let asked = told();
    assert_eq!(asked.iter().map(|(key, _)| key.as_slice()).collect::<Vec<_>>(), [b"a", b"b"]);
    for (_, job) in &asked {
        assert_eq!((job.job, job.start_level), (FilterJob::Compaction, 0));
        assert!(job.output_level > 0 && job.is_full && job.is_manual);
    }
    db.close().unwrap();
}

#[test]
fn tombstones_operands_and_the_expired_are_not_given() {
    let vfs = SimVfs::new(1);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let filter = {
        let seen = seen.clone();
        with(move |_, entry| {
            let key = String::from_utf8(entry.key().to_vec()).unwrap();
            seen.lock().unwrap().push((key, entry.expires_at_ms().is_some()));
            Ok(FilterDecision::Remove)
        })
    };
    let mut options = options(&vfs, filter);
    let clock = stopped_clock();
    options.advanced.clock = Arc::new(clock.clone());
    options.default_family.merge_operator = Some(Arc::new(AppendOperator::new("+")));
    let db = open(options);
    let second = std::time::Duration::from_secs(1);
    db.put("covered", "1").unwrap();
    db.delete_range("covered", "covered!").unwrap();
    db.put("deleted", "1").unwrap();
    db.delete("deleted").unwrap();
    db.put_with_ttl("expired", "1", second).unwrap();
    db.put_with_ttl("expires", "1", 5 * second).unwrap();
    db.put("merged", "1").unwrap();
    db.merge("merged", "2").unwrap();
    db.put("plain", "0").unwrap();
    db.put("plain", "1").unwrap();
    clock.advance(2000);
    // In one file, so that every version is there.
    db.flush().unwrap();
    let first = || std::mem::take(&mut *seen.lock().unwrap());
    assert!(first().is_empty(), "a flush does not ask");
    compact(&db);
    let asked = first();
    assert_eq!(asked[0], ("expires".to_string(), true));
    assert!(asked.iter().any(|asked| *asked == ("plain".to_string(), false)));
    let never = ["covered", "deleted", "expired"];
    assert!(asked.iter().all(|(key, _)| !never.contains(&key.as_str())), "{asked:?}");
    assert_eq!((get(&db, "expires"), get(&db, "plain")), (None, None));
    db.close().unwrap();
}

#[test]
fn a_filter_that_fails_or_panics_loses_nothing_and_stops_nothing() {
    let vfs = SimVfs::new(1);
    let calls = Arc::new(AtomicU64::new(0));
    let filter = {
        let calls = calls.clone();
        with(move |_, entry| {
            calls.fetch_add(1, Ordering::Relaxed);
            match entry.key() {
                b"b" => Err(FilterError("planted".into())),
                b"d" => std::panic::panic_any(Bomb),
                _ => Ok(FilterDecision::Remove),
            }
        })
    };
    let db = open(options(&vfs, filter));
    for key in ["a", "b", "c", "d", "e"] {
        db.put(key, "1").unwrap();
    }
    db.flush().unwrap();
    db.put("a", "2").unwrap();
    db.flush().unwrap();
    compact(&db);
    assert_eq!(calls.load(Ordering::Relaxed), 4, "a job does not call it again after a panic");
    let left: Vec<bool> = ["a", "b", "c", "d", "e"].map(|key| get(&db, key).is_some()).to_vec();
    assert_eq!(left, [false, true, false, true, true]);
    assert_eq!(db.metrics().compaction_filter_failures, 2);
    db.put("f", "1").unwrap();
    db.flush().unwrap();
    db.verify().unwrap();
    db.close().unwrap();
}

#[test]
fn a_family_with_a_filter_has_no_hot_table() {
    let hot_options = |vfs: &SimVfs, filter: Option<Arc<dyn CompactionFilter>>| {
        let mut options = options(vfs, with(by_value));
        options.default_family.compaction_filter = filter;
        options.default_family.value_separation_threshold = usize::MAX;
        options.advanced.hot_table = HotTableMode::Auto;
        options.advanced.memtable_bytes = 32 << 10;
        options
    };
    let write = |db: &Db, round: u64| {
        for key in 0..24u64 {
            db.put(format!("hot {key}"), format!("-{round}").repeat(20)).unwrap();
            db.put(format!("cold {}", round * 24 + key), "-".repeat(20)).unwrap();
        }
    };
    // Without a filter this makes keys hot.
    let db = open(hot_options(&SimVfs::new(1), None));
    let mut rounds = 0;
    eventually("keys are hot", || {
        rounds += 1;
        write(&db, rounds);
        db.metrics().hot_keys > 0 && db.metrics().hot_swaps > 0
    });
    db.close().unwrap();
    let db = open(hot_options(&SimVfs::new(1), Some(with(by_value))));
    (0..rounds * 2 + 100).for_each(|round| write(&db, round));
    db.flush().unwrap();
    assert_eq!((db.metrics().hot_keys, db.metrics().hot_swaps), (0, 0));
    compact(&db);
    assert!((0..24).all(|key| get(&db, &format!("hot {key}")).is_none()));
    db.close().unwrap();
}
