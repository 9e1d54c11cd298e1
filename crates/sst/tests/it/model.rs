//! Every way of reading against a `BTreeMap`, over random entries, options and cache sizes.

use crate::files::*;
use terrace_base::key::{MAX_KEY_BYTES, pack_trailer, seek_trailer};
use terrace_base::{
    FileNumber, InternalIter, MAX_SEQNO, RangeTombstone, RangeTombstones, Rng, SeqNo, SplitMix64,
    ValueKind,
};
use terrace_sst::{
    BatchLookup, Compression, Lookup, ScanOptions, SstIter, SstOptions, SstReader, SstWriter,
    multi_get,
};
use terrace_vfs::SimVfs;

const POLICIES: [&str; 6] =
    ["none", "blocked:2.5", "blocked:10", "bloom:3x4", "paired:8.5x2", "ribbon:9"];

pub fn random_options(rng: &mut SplitMix64) -> SstOptions {
    let pick = |rng: &mut SplitMix64, of: &[usize]| of[rng.below(of.len() as u64) as usize];
    SstOptions {
        block_size: pick(rng, &[64, 128, 512, 4096, 10_000]),
        metadata_block_size: pick(rng, &[128, 200, 512, 4096, 65536]),
        compression: COMPRESSIONS[rng.below(3) as usize],
        filter: POLICIES[rng.below(POLICIES.len() as u64) as usize].parse().unwrap(),
        prefix_len: pick(rng, &[0, 1, 4]),
        partitioned: !rng.one_in(4),
        learning: !rng.one_in(4),
        direct_write: rng.one_in(2),
        write_bytes: 64 << 10,
        created_ms: 7,
        family: rng.one_in(2).then(|| (3, "three".into())),
        flushed_seqno: SeqNo::new(rng.below(2)),
        is_hot_checkpoint: false,
        as_old_as: None,
        merge_operator: None,
    }
}

pub fn random_tombstones(rng: &mut SplitMix64) -> RangeTombstones {
    let count = [0, 0, 1, 20][rng.below(4) as usize];
    RangeTombstones::new((0..count).map(|_| RangeTombstone {
        start: random_key(rng, 0),
        end: random_key(rng, 0),
        seqno: SeqNo::new(rng.below(300)),
    }))
}

pub fn random_scan(rng: &mut SplitMix64) -> ScanOptions {
    ScanOptions {
        fill_cache: rng.one_in(2),
        in_memory: false,
        readahead_bytes: [0, 0, 100, 5000][rng.below(4) as usize],
        prefetch_blocks: rng.below(10) as usize,
    }
}

pub fn check_lookups(rng: &mut SplitMix64, reader: &SstReader, model: &Model) {
    let keys = probes(rng, model);
    let mut lookups = Vec::new();
    for key in &keys {
        let seqno = [0, rng.below(220), MAX_SEQNO.get()][rng.below(3) as usize];
        let want = expected(model, key, seqno);
        let lookup = Lookup::new(key, SeqNo::new(seqno));
        let at = (reader.prefetch_filter(&lookup), reader.prefetch_entry(key));
        let located = reader.get_at(at, &lookup, &mut ()).unwrap();
        assert_eq!(located.map(|e| (e.trailer, e.value.to_vec())), want);
        assert_eq!(got(reader, key, seqno).unwrap(), want, "{key:?} @ {seqno}");
        let filtered = reader.get(&lookup).unwrap();
        assert_eq!(filtered.map(|e| (e.trailer, e.value.to_vec())), want);
        lookups.push(lookup);
    }
    for batch in lookups.chunks(1 + rng.below(70) as usize) {
        check_batch(rng, reader, model, batch);
    }
}

/// Lookups together, those of some keys as of keys that most likely are there.
pub fn check_batch(
    rng: &mut SplitMix64,
    reader: &SstReader,
    model: &Model,
    lookups: &[Lookup<'_>],
) {
    let one_in = 1 + rng.below(3);
    let mut batch: Vec<_> =
        lookups.iter().map(|lookup| BatchLookup::new(reader, *lookup)).collect();
    batch.iter_mut().for_each(|batch| batch.is_likely = rng.one_in(one_in));
    multi_get(&mut batch).unwrap();
    for BatchLookup { lookup, found, .. } in batch {
        let want = expected(model, lookup.user_key, lookup.trailer >> 8);
        assert_eq!(found.map(|e| (e.trailer, e.value.to_vec())), want, "{:?}", lookup.user_key);
    }
}

type ModelEntry<'a> = (&'a (Vec<u8>, u64), &'a Vec<u8>);

fn stands_on(iter: &SstIter, want: Option<ModelEntry<'_>>) {
    match want {
        None => assert!(!iter.valid()),
        Some(((key, inverted), value)) => {
            assert!(iter.valid());
            assert_eq!((iter.user_key(), iter.trailer()), (&key[..], !inverted));
            assert_eq!(iter.value(), value);
            assert_eq!(iter.value_slice(), *value);
        }
    }
}

pub fn check_iterator(rng: &mut SplitMix64, mut iter: SstIter, model: &Model) {
    let entries: Vec<_> = model.iter().collect();
    iter.seek_to_first().unwrap();
    for entry in &entries {
        stands_on(&iter, Some(*entry));
        iter.next().unwrap();
    }
    stands_on(&iter, None);
    iter.seek_to_last().unwrap();
    for entry in entries.iter().rev() {
        stands_on(&iter, Some(*entry));
        iter.prev().unwrap();
    }
    stands_on(&iter, None);
    for key in probes(rng, model).iter().take(60) {
        let trailer =
            [seek_trailer(SeqNo::new(rng.below(220))), 0, u64::MAX][rng.below(3) as usize];
        let target = (key.clone(), !trailer);
        let mut at = entries.partition_point(|entry| *entry.0 < target);
        match rng.below(3) {
            0 => iter.prepare_seek(key),
            // Another key than the one that is sought: what was prepared proves nothing.
            1 => iter.prepare_seek(&random_key(rng, 0)),
            _ => {}
        }
        if rng.one_in(2) {
            iter.seek(key, trailer).unwrap();
        } else {
            iter.seek_before(key, trailer).unwrap();
            at = at.wrapping_sub(1);
        }
        stands_on(&iter, entries.get(at).copied());
        for _ in 0..rng.below(12) {
            if !iter.valid() {
                break;
            }
            if rng.one_in(2) {
                iter.next().unwrap();
                at = at.wrapping_add(1);
            } else {
                iter.prev().unwrap();
                at = at.wrapping_sub(1);
            }
            stands_on(&iter, entries.get(at).copied());
        }
    }
}

#[test]
fn every_read_agrees_with_a_map() {
    for seed in 0..80 {
        let mut rng = SplitMix64::new(seed);
        let vfs = SimVfs::new(seed);
        let model = random_model(&mut rng, [20, 400, 1500][seed as usize % 3]);
        let model = with_handles(&mut rng, model);
        let (options, tombstones) = (random_options(&mut rng), random_tombstones(&mut rng));
        let summary = write(&vfs, seed, options.clone(), &model, tombstones.clone()).unwrap();
        let cache_bytes = [0, 10_000, 100_000, 16 << 20][rng.below(4) as usize];
        let reader = open(&vfs, seed, &reader_options(cache_bytes)).unwrap();
        assert_eq!(*reader.range_tombstones(), tombstones);
        assert_eq!(summary.entry_count, reader.properties().entry_count);
        check_lookups(&mut rng, &reader, &model);
        for _ in 0..3 {
            let scan = random_scan(&mut rng);
            check_iterator(&mut rng, reader.iter(scan), &model);
        }
        check_iterator(&mut rng, reader.iter(ScanOptions::compaction()), &model);
        let report = reader.verify().unwrap();
        assert_eq!((report.entries, report.bytes), (summary.entry_count, summary.size_bytes));
        if !options.partitioned {
            assert_eq!(report.index_partitions, 1);
            assert!(report.filter_partitions <= 1);
        }
    }
}

#[test]
fn huge_keys_and_values_come_back() {
    let mut model = Model::new();
    let put = |seqno| !pack_trailer(seqno, ValueKind::Put);
    model.insert((vec![], put(SeqNo::new(1))), vec![1; 10]);
    for (at, len) in [1usize << 20, 65_535, 65_536, 4096, 100_000].into_iter().enumerate() {
        let mut key = vec![b'a'; MAX_KEY_BYTES - at];
        key.push(b'b');
        key.truncate(MAX_KEY_BYTES);
        let value = (0..len).map(|i| (i / 3) as u8).collect();
        model.insert((key, put(SeqNo::new(at as u64))), value);
    }
    model.insert((b"z".to_vec(), put(SeqNo::new(9))), vec![9; 3 << 20]);
    for compression in COMPRESSIONS {
        let vfs = SimVfs::new(1);
        let options = SstOptions { compression, ..SstOptions::default() };
        write(&vfs, 1, options, &model, RangeTombstones::default()).unwrap();
        for cache_bytes in [1 << 14, 64 << 20] {
            let reader = open(&vfs, 1, &reader_options(cache_bytes)).unwrap();
            let mut rng = SplitMix64::new(5);
            check_lookups(&mut rng, &reader, &model);
            check_iterator(&mut rng, reader.iter(ScanOptions::default()), &model);
            check_iterator(&mut rng, reader.iter(ScanOptions::compaction()), &model);
            reader.verify().unwrap();
        }
    }
}

#[test]
fn a_file_may_hold_range_tombstones_only_or_nothing() {
    let vfs = SimVfs::new(1);
    let tombstone =
        RangeTombstone { start: b"b".to_vec(), end: b"d".to_vec(), seqno: SeqNo::new(7) };
    for (number, list) in [(1, vec![tombstone]), (2, vec![])] {
        let set = RangeTombstones::new(list);
        let summary =
            write(&vfs, number, SstOptions::default(), &Model::new(), set.clone()).unwrap();
        let reader = open(&vfs, number, &reader_options(1 << 20)).unwrap();
        assert_eq!(*reader.range_tombstones(), set);
        assert_eq!(reader.filter_partition_count(), 0);
        assert!(reader.get(&Lookup::new(b"c", SeqNo::new(9))).unwrap().is_none());
        assert_eq!(got(&reader, b"c", 9).unwrap(), None);
        check_iterator(&mut SplitMix64::new(1), reader.iter(ScanOptions::default()), &Model::new());
        assert_eq!(reader.index_separators(4).unwrap(), Vec::<Vec<u8>>::new());
        reader.verify().unwrap();
        if number == 1 {
            assert_eq!((&summary.smallest[..], &summary.largest[..]), (&b"b"[..], &b"d"[..]));
            assert!(summary.largest_exclusive);
            assert_eq!(
                (summary.smallest_seqno, summary.largest_seqno),
                (SeqNo::new(7), SeqNo::new(7))
            );
            assert_eq!(summary.range_tombstone_count, 1);
        }
    }
}

#[test]
fn the_summary_tells_bounds_counts_and_expiry() {
    let vfs = SimVfs::new(1);
    let mut model = Model::new();
    for at in 0..100u64 {
        let mut value = (1000 + at).to_le_bytes().to_vec();
        value.extend_from_slice(&[0; 92]);
        model.insert(
            (at.to_be_bytes().to_vec(), !pack_trailer(SeqNo::new(50), ValueKind::PutTtl)),
            value,
        );
    }
    model.insert((b"m".to_vec(), !pack_trailer(SeqNo::new(3), ValueKind::Delete)), vec![]);
    let tombstone = |start: &[u8], end: &[u8]| {
        let (start, end) = (start.to_vec(), end.to_vec());
        RangeTombstones::new([RangeTombstone { start, end, seqno: SeqNo::new(90) }])
    };
    let options = SstOptions { created_ms: 42, ..SstOptions::default() };
    let summary = write(&vfs, 1, options.clone(), &model, tombstone(b"a", b"m")).unwrap();
    assert_eq!(summary.smallest, 0u64.to_be_bytes());
    // The end of the tombstone is a key of the file, so the bound is that key.
    assert_eq!((&summary.largest[..], summary.largest_exclusive), (&b"m"[..], false));
    assert_eq!((summary.smallest_seqno, summary.largest_seqno), (SeqNo::new(3), SeqNo::new(90)));
    assert_eq!((summary.entry_count, summary.tombstone_count), (101, 1));
    assert_eq!(summary.raw_bytes, 100 * 108 + 1);
    assert!((1029..=1031).contains(&summary.ttl_due_ms.unwrap()));
    let reader = open(&vfs, 1, &reader_options(1 << 20)).unwrap();
    let properties = reader.properties();
    assert_eq!((properties.created_ms, properties.ttl_due_ms), (42, summary.ttl_due_ms));
    assert_eq!(properties.data_bytes, summary.data_bytes);
    assert!(reader.pinned_bytes() < 4000);

    let summary = write(&vfs, 2, options, &model, tombstone(b"", b"n")).unwrap();
    assert_eq!((&summary.smallest[..], &summary.largest[..]), (&b""[..], &b"n"[..]));
    assert!(summary.largest_exclusive);
}

#[test]
fn the_writer_refuses_what_readers_could_not_read() {
    let vfs = SimVfs::new(1);
    let mut writer =
        terrace_sst::SstWriter::create(&vfs, &path(1), FileNumber::new(1), SstOptions::default())
            .unwrap();
    let put = |seqno| pack_trailer(seqno, ValueKind::Put);
    writer.add(b"b", put(SeqNo::new(5)), b"1").unwrap();
    assert!(writer.add(b"b", put(SeqNo::new(5)), b"again").is_err());
    assert!(writer.add(b"b", put(SeqNo::new(6)), b"newer after older").is_err());
    assert!(writer.add(b"a", put(SeqNo::new(9)), b"backwards").is_err());
    assert!(writer.add(b"c", 77, b"unknown kind").is_err());
    assert!(writer.add(b"c", pack_trailer(SeqNo::new(1), ValueKind::RangeDelete), b"").is_err());
    assert!(writer.add(b"c", pack_trailer(SeqNo::new(1), ValueKind::PutTtl), b"short").is_err());
    assert!(writer.add(&vec![b'c'; MAX_KEY_BYTES + 1], put(SeqNo::new(1)), b"").is_err());
    writer.add(b"b", put(SeqNo::new(4)), b"2").unwrap();
    assert_eq!(writer.finish().unwrap().entry_count, 2);
    let reader = open(&vfs, 1, &reader_options(0)).unwrap();
    assert_eq!(got(&reader, b"b", 4).unwrap(), Some((put(SeqNo::new(4)), b"2".to_vec())));
    reader.verify().unwrap();
}

#[test]
fn the_estimate_is_near_the_size_all_along() {
    let vfs = SimVfs::new(1);
    let mut rng = SplitMix64::new(8);
    for entries in [1, 50, 3000, 30_000u64] {
        let options = SstOptions { compression: Compression::None, ..SstOptions::default() };
        let mut writer =
            SstWriter::create(&vfs, &path(entries), FileNumber::new(entries), options).unwrap();
        for at in 0..entries {
            let value = vec![7; rng.below(120) as usize];
            let key = format!("user{at:012}");
            writer
                .add(key.as_bytes(), pack_trailer(SeqNo::new(at), ValueKind::Put), &value)
                .unwrap();
        }
        let estimate = writer.estimated_bytes() as f64;
        let size = writer.finish().unwrap().size_bytes as f64;
        assert!((estimate - size).abs() < 500.0 + size * 0.003, "{estimate} for {size}");
    }
}

#[test]
fn separators_split_the_data_evenly_and_offsets_ascend() {
    let vfs = SimVfs::new(1);
    let mut model = Model::new();
    for at in 0..20_000u64 {
        let trailer = !pack_trailer(SeqNo::new(at), ValueKind::Put);
        model.insert((format!("key{at:08}").into_bytes(), trailer), vec![at as u8; 20]);
    }
    for metadata_block_size in [512, 1 << 20] {
        let number = metadata_block_size as u64;
        let options = SstOptions { metadata_block_size, ..SstOptions::default() };
        let summary = write(&vfs, number, options, &model, RangeTombstones::default()).unwrap();
        let reader = open(&vfs, number, &reader_options(8 << 20)).unwrap();
        for count in [0, 1, 3, 7] {
            let keys = reader.index_separators(count).unwrap();
            assert_eq!(keys.len(), count);
            assert!(keys.is_sorted());
            for (part, key) in keys.iter().enumerate() {
                let below = model.range(..(key.clone(), 0)).count() as f64;
                let want = 20_000.0 * (part + 1) as f64 / (count + 1) as f64;
                assert!((below - want).abs() < 700.0, "{below} for {want}");
            }
        }
        let offsets = |reader: &SstReader| -> Vec<u64> {
            let keys = ["", "key00005000", "key00010000", "key00015000", "z"];
            keys.iter().map(|key| reader.approximate_offset(key.as_bytes())).collect()
        };
        let rough = offsets(&reader);
        check_lookups(&mut SplitMix64::new(1), &reader, &model);
        for offsets in [rough, offsets(&reader)] {
            assert!(offsets.is_sorted() && offsets[4] == summary.data_bytes, "{offsets:?}");
        }
        let share = offsets(&reader)[2] as f64 / summary.data_bytes as f64;
        assert!((share - 0.5).abs() < 0.02, "{share}");
    }
}

#[test]
fn a_lookup_that_is_not_to_fill_the_cache_leaves_data_blocks_out() {
    let vfs = SimVfs::new(1);
    let mut rng = SplitMix64::new(12);
    let model = random_model(&mut rng, 500);
    write(&vfs, 1, SstOptions::default(), &model, RangeTombstones::default()).unwrap();
    let options = reader_options(8 << 20);
    let reader = open(&vfs, 1, &options).unwrap();
    for round in 1..=2 {
        let misses = options.counters.snapshot().data_block_misses;
        for (key, _) in model.keys() {
            let lookup = Lookup { fill_cache: false, ..Lookup::new(key, MAX_SEQNO) };
            assert!(reader.get(&lookup).unwrap().is_some());
            assert!(reader.multi_get(&[lookup]).unwrap()[0].is_some());
        }
        let read = options.counters.snapshot().data_block_misses - misses;
        assert_eq!(read, 2 * model.len() as u64, "round {round}");
    }
}
