//! Scans of a read state of memtables and SSTs against the naive reader.

use super::*;
use crate::iter::tests::cursors::{Entry, History, NOW_MS, key, sort};
use crate::memory::filter_budget::FilterBudget;
use proptest::prelude::*;
use std::path::Path;
use terrace_base::key::{trailer_kind, trailer_seqno};
use terrace_base::{FileNumber, MAX_SEQNO, ManualClock, RangeTombstones, Rng, SplitMix64};
use terrace_manifest::{FamilyEdit, FileMeta, Version, names};
use terrace_sst::{BlockCache, ReadCounters, SstOptions, SstWriter};
use terrace_vfs::{SimVfs, Vfs};

fn memtable(entries: &[Entry], tombstones: &[terrace_base::RangeTombstone]) -> Arc<MemTable> {
    let table = MemTable::with_capacity(1, 1 << 20).expect("memory");
    let mut hint = terrace_skiplist::Hint::default();
    // In the order of their numbers, as commits insert them.
    let mut entries: Vec<&Entry> = entries.iter().collect();
    entries.sort_by_key(|entry| trailer_seqno(entry.1));
    let mut entries = entries.into_iter().peekable();
    for t in tombstones.iter().map(Some).chain([None]) {
        while let Some((key, trailer, value)) =
            entries.next_if(|e| t.is_none_or(|t| trailer_seqno(e.1) < t.seqno))
        {
            let kind = trailer_kind(*trailer).expect("a known kind");
            assert!(table.insert(key, trailer_seqno(*trailer), kind, value, &mut hint).is_ok());
        }
        if let Some(t) = t {
            let kind = terrace_base::ValueKind::RangeDelete;
            assert!(table.insert(&t.start, t.seqno, kind, &t.end, &mut hint).is_ok());
        }
    }
    Arc::new(table)
}

fn sst(
    vfs: &dyn Vfs,
    number: FileNumber,
    entries: &[Entry],
    tombstones: RangeTombstones,
) -> FileMeta {
    let path = names::sst_path(Path::new("/store"), number);
    let options = SstOptions { block_size: 256, ..SstOptions::default() };
    let mut writer = SstWriter::create(vfs, &path, number, options).expect("a file");
    for (key, trailer, value) in entries {
        writer.add(key, *trailer, value).expect("in order");
    }
    writer.set_range_tombstones(tombstones);
    let s = writer.finish().expect("a file");
    FileMeta {
        number,
        size_bytes: s.size_bytes,
        smallest: s.smallest,
        largest: s.largest,
        largest_exclusive: s.largest_exclusive,
        smallest_seqno: s.smallest_seqno,
        largest_seqno: s.largest_seqno,
        entry_count: s.entry_count,
        tombstone_count: s.tombstone_count,
        range_tombstone_count: s.range_tombstone_count,
        raw_bytes: s.raw_bytes,
        ..FileMeta::default()
    }
}

/// The runs of `history` as a store: newest first `memtables` memtables, then `level0` files of L0,
/// then one level each, cut into files at random keys.
fn store(
    history: &History,
    memtables: usize,
    level0: usize,
    rng: &mut SplitMix64,
) -> (Arc<ReadState>, Arc<TableCache>) {
    let vfs: Arc<dyn Vfs> = Arc::new(SimVfs::new(1));
    vfs.create_dir_all(Path::new("/store")).expect("a directory");
    let mut tables = Vec::new();
    let mut edit = FamilyEdit::default();
    let mut number = 100;
    for (run, (entries, tombstones)) in history.runs.iter().zip(&history.tombstones).enumerate() {
        if run < memtables {
            tables.push(memtable(entries, tombstones));
            continue;
        }
        let mut entries = entries.clone();
        sort(&mut entries);
        let tombstones = RangeTombstones::new(tombstones.iter().cloned());
        let level =
            (run - memtables).saturating_sub(level0) + usize::from(run - memtables >= level0);
        let mut cuts: Vec<Vec<u8>> = match level {
            0 => Vec::new(),
            _ => (0..rng.below(4)).map(|_| key(rng.below(30))).collect(),
        };
        cuts.sort();
        let mut start: Option<Vec<u8>> = None;
        for end in cuts.into_iter().map(Some).chain([None]) {
            let inside = |e: &&Entry| {
                start.as_ref().is_none_or(|s| e.0 >= *s) && end.as_ref().is_none_or(|s| e.0 < *s)
            };
            let part: Vec<Entry> = entries.iter().filter(inside).cloned().collect();
            let covers = tombstones.clip(start.as_deref(), end.as_deref());
            if !part.is_empty() || !covers.is_empty() {
                // Newer files of L0 have larger numbers.
                number -= 1;
                edit.added
                    .push((level as u8, sst(vfs.as_ref(), FileNumber::new(number), &part, covers)));
            }
            start = end;
        }
    }
    let version = Version::empty().apply(&edit).expect("disjoint levels");
    let counters = Arc::new(ReadCounters::default());
    let cache = Arc::new(BlockCache::new(1 << 20));
    let table_cache = Arc::new(TableCache::new(
        vfs,
        Path::new("/store"),
        cache,
        counters,
        FilterBudget::cached(),
        false,
        64,
    ));
    if tables.is_empty() {
        tables.push(memtable(&[], &[]));
    }
    let first = tables.remove(0);
    let state = ReadState::of_version(first, tables, Arc::new(version), &table_cache);
    (Arc::new(state), table_cache)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn shows_what_the_model_shows(
        seed: u64,
        writes in 0u64..400,
        (memtables, level0, levels) in (0usize..3, 0usize..4, 0usize..4),
        which: (bool, bool, bool),
    ) {
        let mut rng = SplitMix64::new(seed);
        let most_keys = if rng.one_in(2) { 30 } else { 300 };
        let keys = 1 + rng.below(most_keys);
        let runs = (memtables + level0 + levels).max(1) as u64;
        let history = History::random(&mut rng, keys, writes, runs);
        let (state, table_cache) = store(&history, memtables, level0, &mut rng);
        let bound = |rng: &mut SplitMix64| key(rng.below(keys));
        let options = ReadOptions {
            lower_bound: which.0.then(|| bound(&mut rng)),
            upper_bound: which.1.then(|| bound(&mut rng)),
            prefix: which.2.then(|| [&b"k0"[..], b"k", b"prefix/0", b"", b"none"][rng.below(5) as usize].to_vec()),
            readahead_bytes: if rng.one_in(2) { 0 } else { 1024 },
            ..ReadOptions::default()
        };
        let seqno = if rng.one_in(2) { MAX_SEQNO } else { SeqNo::new(rng.below(writes + 1)) };
        let (lower, upper) = options.bounds();
        let model = history.shown(seqno, lower, upper.as_deref());
        for (key, _) in &model {
            prop_assert!(options.prefix.as_ref().is_none_or(|prefix| key.starts_with(prefix)));
        }
        let window_bytes = [1, 20, 1 << 20][rng.below(3) as usize];
        let reading = || Reading::Values(Box::new(history.values.clone()), window_bytes);
        let open =
            || open(state.clone(), table_cache.clone(), seqno, &ManualClock::at(NOW_MS), &options, (reading(), None));
        let entries: Result<Vec<_>> = open().expect("a scan").entries().collect();
        prop_assert_eq!(&entries.expect("sound files"), &model);
        let mut iter = open().expect("a scan");
        let mut at: Option<usize> = None;
        for _ in 0..100 {
            let target = key(rng.below(keys + 2));
            let before = model.partition_point(|e| e.0 < target);
            let through = model.partition_point(|e| e.0 <= target);
            let (moved, to) = match (rng.below(12), at) {
                (0, _) => (iter.seek_to_first(), Some(0)),
                (1, _) => (iter.seek_to_last(), model.len().checked_sub(1)),
                (2 | 3, _) => (iter.seek(&target), Some(before)),
                (4, _) => (iter.seek_for_prev(&target), through.checked_sub(1)),
                (5..9, at) => (iter.next(), at.map(|at| at + 1)),
                (_, at) => (iter.prev(), at.and_then(|at| at.checked_sub(1))),
            };
            moved.expect("sound files");
            at = to.filter(|to| *to < model.len());
            let shown = iter.valid().then(|| (iter.key().to_vec(), iter.value().to_vec()));
            prop_assert_eq!(shown, at.map(|at| model[at].clone()));
        }
    }
}

#[test]
fn prefix_and_bounds_are_intersected() {
    let options = |lower: &[u8], upper: &[u8], prefix: &[u8]| ReadOptions {
        lower_bound: Some(lower.to_vec()),
        upper_bound: Some(upper.to_vec()),
        prefix: Some(prefix.to_vec()),
        ..ReadOptions::default()
    };
    let o = options(b"a", b"z", b"key");
    assert_eq!(o.bounds(), (Some(&b"key"[..]), Some(b"kez".to_vec())));
    let o = options(b"key2", b"key3", b"key");
    assert_eq!(o.bounds(), (Some(&b"key2"[..]), Some(b"key3".to_vec())));
    let o = ReadOptions { prefix: Some(vec![0xff]), ..ReadOptions::default() };
    assert_eq!(o.bounds(), (Some(&[0xff][..]), None));
    assert_eq!(ReadOptions::default().bounds(), (None, None));
}

#[test]
fn entries_start_where_the_iterator_stands() {
    let put = |key: &[u8]| (key.to_vec(), (1 << 8) | 1, b"v".to_vec());
    let history = History {
        runs: vec![vec![put(b"a"), put(b"b"), put(b"c")]],
        tombstones: vec![vec![]],
        last_seqno: SeqNo::new(1),
        ..History::default()
    };
    let (state, table_cache) = store(&history, 1, 0, &mut SplitMix64::new(0));
    let open = || {
        let options = ReadOptions::default();
        let reading = Reading::Values(Box::new(history.values.clone()), 100);
        open(
            state.clone(),
            table_cache.clone(),
            SeqNo::new(1),
            &ManualClock::at(NOW_MS),
            &options,
            (reading, None),
        )
        .expect("a scan")
    };
    let keys =
        |iter: Iter| -> Vec<u8> { iter.entries().map(|e| e.expect("memory").0[0]).collect() };
    assert_eq!(keys(open()), b"abc");
    let mut iter = open();
    iter.seek(b"b").expect("memory");
    assert_eq!(keys(iter), b"bc");
    let mut iter = open();
    iter.seek(b"d").expect("memory");
    assert_eq!(keys(iter), b"");
    fn is_send<T: Send>(_: &T) {}
    is_send(&open());
}

#[test]
fn options_of_reads_are_set_by_name() {
    let mut options = ReadOptions::default();
    for (name, text) in [
        ("fill_cache", "false"),
        ("in_memory", "true"),
        ("keys_only", "1"),
        ("readahead_bytes", "64KiB"),
    ] {
        options.set_option(name, text).unwrap();
        assert!(options.set_option(name, "x").unwrap_err().to_string().contains(name));
    }
    assert!(!options.fill_cache && options.in_memory && options.keys_only);
    assert_eq!(options.readahead_bytes, 64 << 10);
    let error = options.set_option("prefix", "a").unwrap_err().to_string();
    assert!(error.contains("fill_cache, in_memory"), "{error}");
}
