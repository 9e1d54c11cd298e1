//! Reads through the learned index against reads through index partitions: the same answers for
//! keys of all kinds, with files in any state.

use crate::files::*;
use crate::model::check_batch;
use std::collections::BTreeSet;
use std::sync::Arc;
use terrace_base::key::{MAX_KEY_BYTES, pack_trailer, seek_trailer};
use terrace_base::{
    FileNumber, InternalIter, MAX_SEQNO, RangeTombstones, Rng, SeqNo, SplitMix64, ValueKind,
};
use terrace_sst::{
    BlockPlace, Compression, DumpDetail, FilterPolicy, InLevel, Lookup, NoModel, ReaderOptions,
    ScanOptions, SstIter, SstOptions, SstReader, SstSummary, dump,
};
use terrace_vfs::{OpenMode, SimVfs, Vfs};

/// One version of each key.
fn single(keys: impl IntoIterator<Item = Vec<u8>>) -> Model {
    let put = !pack_trailer(SeqNo::new(5), ValueKind::Put);
    keys.into_iter().map(|key| ((key.clone(), put), key[key.len() / 2..].to_vec())).collect()
}

fn options(block_size: usize) -> SstOptions {
    SstOptions { block_size, compression: Compression::None, ..SstOptions::default() }
}

fn without_models(cache_bytes: usize) -> ReaderOptions {
    ReaderOptions { models: false, ..reader_options(cache_bytes) }
}

fn has_model(summary: &SstSummary) -> bool {
    summary.training.as_ref().is_some_and(|training| training.model.is_ok())
}

/// Near the keys, between them, and far away.
fn near(rng: &mut SplitMix64, model: &Model) -> Vec<Vec<u8>> {
    let mut keys = probes(rng, model);
    let part = 1 + model.len() / 500;
    keys.retain(|_| rng.one_in(part as u64));
    for (key, _) in model.keys().step_by(part) {
        keys.push([&key[..], &[0]].concat());
        keys.push([&key[..], &[255]].concat());
        let mut changed = key.clone();
        if let Some(at) = key.len().checked_sub(1) {
            let at = rng.below(at as u64 + 1) as usize;
            changed[at] = changed[at].wrapping_add([1, 255][rng.below(2) as usize]);
            keys.push(changed);
        }
    }
    keys
}

/// All ways of looking up, through the model and not, at every state of the cache.
fn check(seed: u64, model: &Model, options: SstOptions) -> SstSummary {
    let mut rng = SplitMix64::new(seed);
    let vfs = SimVfs::new(seed);
    let summary = write(&vfs, 1, options, model, RangeTombstones::default()).unwrap();
    for cache_bytes in [[0, 40_000][seed as usize % 2], 64 << 20] {
        let shared = reader_options(cache_bytes);
        let reader = open(&vfs, 1, &shared).unwrap();
        assert_eq!(reader.has_model(), has_model(&summary));
        // One that lives through all of it, and one for each state.
        let mut lasting = reader.iter(ScanOptions::default());
        for round in 0..4 {
            check_keys(&mut rng, &reader, model);
            check_seeks(&mut rng, &mut lasting, model);
            check_seeks(&mut rng, &mut reader.iter(ScanOptions::default()), model);
            match round {
                0 => reader.drop_model(),
                1 => drop(reader.train().unwrap()),
                2 => {
                    // The cache lets go of what it has, the model among it.
                    shared.cache.set_capacity_bytes(0);
                    shared.cache.set_capacity_bytes(cache_bytes);
                }
                _ => {}
            }
        }
        if has_model(&summary) && cache_bytes > 1 << 20 {
            let counts = shared.counters.snapshot();
            assert!(counts.lookups_by_model > 0 && counts.model_damages == 0, "{counts:?}");
        }
        let other = open(&vfs, 1, &without_models(cache_bytes)).unwrap();
        check_keys(&mut rng, &other, model);
        assert!(!other.has_model() && other.train().unwrap().is_none());
        reader.verify().unwrap();
    }
    summary
}

/// Seeks and the steps after them, by cursors that have and have not been prepared.
fn check_seeks(rng: &mut SplitMix64, iter: &mut SstIter, model: &Model) {
    let entries: Vec<_> = model.iter().collect();
    let keys = near(rng, model);
    let stands_on = |iter: &SstIter, at: usize| match entries.get(at) {
        None => assert!(!iter.valid()),
        Some(((key, inverted), value)) => {
            assert!(iter.valid());
            assert_eq!((iter.user_key(), iter.trailer()), (&key[..], !inverted));
            assert_eq!(iter.value(), &value[..]);
        }
    };
    for key in &keys {
        let trailer = [seek_trailer(SeqNo::new(rng.below(220))), 0, u64::MAX];
        let trailer = trailer[rng.below(3) as usize];
        let target = (key.clone(), !trailer);
        let mut at = entries.partition_point(|entry| *entry.0 < target);
        if rng.one_in(2) {
            let other = &keys[rng.below(keys.len() as u64) as usize];
            iter.prepare_seek(if rng.one_in(4) { other } else { key });
        }
        if rng.one_in(8) {
            iter.seek_to_first().unwrap();
            stands_on(iter, 0);
        }
        iter.seek(key, trailer).unwrap();
        stands_on(iter, at);
        for _ in 0..rng.below(30) {
            if !iter.valid() {
                break;
            }
            if rng.one_in(6) {
                iter.prev().unwrap();
                at = at.wrapping_sub(1);
            } else {
                iter.next().unwrap();
                at += 1;
            }
            stands_on(iter, at);
        }
    }
}

fn check_keys(rng: &mut SplitMix64, reader: &Arc<SstReader>, model: &Model) {
    let keys = near(rng, model);
    let mut lookups = Vec::new();
    for key in &keys {
        let seqno = [rng.below(220), 5, MAX_SEQNO.get()][rng.below(3) as usize];
        assert_eq!(got(reader, key, seqno).unwrap(), expected(model, key, seqno), "{key:?}");
        lookups.push(Lookup::new(key, SeqNo::new(seqno)));
    }
    for batch in lookups.chunks(64) {
        check_batch(rng, reader, model, batch);
    }
}

#[test]
fn seeks_in_memory_go_by_the_model() {
    let key = |at: u64| format!("{:016}", at * 7).into_bytes();
    let model = single((0..3000).map(key));
    let vfs = SimVfs::new(1);
    write(&vfs, 1, options(400), &model, RangeTombstones::default()).unwrap();
    let shared = reader_options(64 << 20);
    let reader = open(&vfs, 1, &shared).unwrap();
    // Until the model is read and every block is in its slot.
    for _ in 0..4 {
        for at in 0..3000 {
            assert!(got(&reader, &key(at), 5).unwrap().is_some());
        }
    }
    let index_uses = || {
        let counts = shared.counters.snapshot();
        counts.index_hits + counts.index_misses
    };
    let before = index_uses();
    let mut iter = reader.iter(ScanOptions::default());
    for at in (0..2990).rev() {
        // A cursor keeps the partition that it was in, and would use it unseen.
        iter = iter.moved_to(reader.clone());
        iter.seek(&key(at), u64::MAX).unwrap();
        for further in 0..10 {
            assert_eq!(iter.user_key(), key(at + further));
            iter.next().unwrap();
        }
    }
    // A key beside a block's first may still use one.
    let used = index_uses() - before;
    assert!(used < 2990 / 5, "{used} of 2990 seeks");
    // A cursor that moves to another file keeps nothing of the first.
    let other = single((0..100).map(|at| key(at * 3)));
    write(&vfs, 2, options(400), &other, RangeTombstones::default()).unwrap();
    let mut iter = iter.moved_to(open(&vfs, 2, &shared).unwrap());
    assert!(!iter.valid());
    iter.seek(&key(4), u64::MAX).unwrap();
    assert_eq!(iter.user_key(), key(6));
}

#[test]
fn integers_of_every_distribution_get_a_model() {
    let mut rng = SplitMix64::new(3);
    let decimal = |number: u64| format!("{number:016}").into_bytes();
    let clusters = |run: u64| {
        let mut base = 0;
        let mut rng = SplitMix64::new(run);
        single((0..1500u64).map(move |at| {
            base += if at.is_multiple_of(run) { 1 + rng.below(1 << 20) } else { 1 };
            decimal(base)
        }))
    };
    let sets = [
        single((0..1500).map(decimal)),
        clusters(100),
        clusters(10),
        single((0..1500).map(|_| decimal(rng.below(10_000_000_000_000_000)))),
        single((0..1500).map(|_| rng.next_u64().to_be_bytes().to_vec())),
        single((0..1500).map(|_| format!("user{:012}", rng.below(1 << 39)).into_bytes())),
    ];
    for (at, model) in sets.iter().enumerate() {
        let summary = check(at as u64, model, options(200));
        assert!(has_model(&summary), "set {at}: {:?}", summary.training);
        check(at as u64, model, SstOptions { compression: Compression::Lz4, ..options(700) });
    }
}

#[test]
fn keys_that_are_hard_to_tell_apart_are_found() {
    let equal_prefixes =
        single((0..600u32).map(|at| [vec![b'p'; 40], at.to_be_bytes().to_vec()].concat()));
    let ties = single(
        (0..700u32).map(|at| [vec![(at / 9 % 256) as u8; 9], at.to_be_bytes().to_vec()].concat()),
    );
    let mut extremes: BTreeSet<u64> = (0..300).map(|at| u64::MAX - at).collect();
    extremes.extend(0..300);
    extremes.extend((0..64).map(|shift| 1u64 << shift));
    let extremes = single(extremes.into_iter().map(|number| number.to_be_bytes().to_vec()));
    let mut rng = SplitMix64::new(9);
    let random = single(
        (0..800).map(|_| (0..rng.below(12)).map(|_| rng.next_u64() as u8).collect::<Vec<u8>>()),
    );
    let prefixes = single((0..400).map(|len| vec![b'x'; len]));
    let one = single([b"one".to_vec()]);
    let empty_key = single([Vec::new()]);
    for (at, model) in
        [equal_prefixes, ties, extremes, random, prefixes, one, empty_key, Model::new()]
            .iter()
            .enumerate()
    {
        check(at as u64, model, options([90, 300, 4096][at % 3]));
        check(at as u64 + 1, model, options([90, 300, 4096][(at + 1) % 3]));
    }
}

#[test]
fn keys_of_64_kib_are_found() {
    let keys = (0..40u32).map(|at| {
        let mut key = vec![b'k'; MAX_KEY_BYTES];
        let place = (at as usize * 7919) % key.len();
        key[place] = b'a' + (at % 26) as u8;
        key
    });
    check(1, &single(keys), options(4096));
}

#[test]
fn versions_that_span_blocks_are_seen_from_every_snapshot() {
    let mut rng = SplitMix64::new(4);
    for versions in [2, 40, 150] {
        let mut model = Model::new();
        for at in 0..900u64 {
            let many = at % 97 == 0;
            for seqno in 0..if many { versions } else { 1 } {
                let trailer =
                    pack_trailer(SeqNo::new(1 + seqno + rng.below(2) * 200), ValueKind::Put);
                model.insert((format!("key{at:09}").into_bytes(), !trailer), vec![seqno as u8; 9]);
            }
        }
        for block_size in [128, 256, 1024] {
            check(versions, &model, options(block_size));
        }
    }
}

#[test]
fn random_entries_are_found() {
    for seed in 0..12 {
        let mut rng = SplitMix64::new(seed);
        let model = random_model(&mut rng, 900);
        let model = with_handles(&mut rng, model);
        check(seed, &model, options([64, 200, 700][seed as usize % 3]));
    }
}

fn decimals(count: u64) -> Model {
    single((0..count).map(|at| format!("{:016}", at * 3).into_bytes()))
}

#[test]
fn a_damaged_model_costs_only_time() {
    let vfs = SimVfs::new(1);
    let model = decimals(700);
    let summary = write(&vfs, 1, options(200), &model, RangeTombstones::default()).unwrap();
    assert!(has_model(&summary));
    let size = summary.size_bytes;
    let read = |reader: &SstReader| {
        for (key, _) in model.keys().step_by(37) {
            assert_eq!(got(reader, key, 9).unwrap(), expected(&model, key, 9));
        }
    };
    let reader = open_at(&vfs, &path(1), 1, size).unwrap();
    let stored = reader.properties().model_bytes;
    let start = summary.data_bytes + summary.filter_bytes + summary.index_bytes;
    for offset in start..start + stored {
        assert!(vfs.corrupt(path(1), offset, 1 << (offset % 8)));
        let shared = reader_options(1 << 20);
        let reader = open(&vfs, 1, &shared).unwrap();
        assert!(reader.has_model());
        read(&reader);
        let counts = shared.counters.snapshot();
        assert_eq!((counts.model_damages, counts.lookups_by_model), (1, 0), "byte {offset}");
        assert!(!reader.has_model() && reader.verify().unwrap_err().is_corruption());
        assert!(vfs.corrupt(path(1), offset, 1 << (offset % 8)));
    }
    let shared = reader_options(1 << 20);
    let reader = open(&vfs, 1, &shared).unwrap();
    read(&reader);
    assert_eq!(shared.counters.snapshot().lookups_by_index, 0);
}

#[test]
fn training_afterwards_makes_the_same_model() {
    let vfs = SimVfs::new(1);
    let model = decimals(3000);
    let none = RangeTombstones::default();
    let built = write(&vfs, 1, options(300), &model, none.clone()).unwrap();
    let later = SstOptions { learning: false, ..options(300) };
    assert_eq!(write(&vfs, 2, later, &model, none).unwrap().training, None);
    let shared = reader_options(16 << 20);
    let reader = open(&vfs, 2, &shared).unwrap();
    assert!(!reader.has_model() && reader.model_memory_bytes() == 0);
    let training = reader.train().unwrap().unwrap();
    let at_writing = built.training.unwrap();
    assert_eq!((training.model, training.stats), (at_writing.model, at_writing.stats));
    assert!(reader.has_model() && reader.model_memory_bytes() > 0);
    check_keys(&mut SplitMix64::new(1), &reader, &model);
    let counts = shared.counters.snapshot();
    assert!(counts.training_ns > 0 && counts.lookups_by_model > 0);
    reader.drop_model();
    assert!(!reader.has_model() && reader.model_memory_bytes() == 0);
    check_keys(&mut SplitMix64::new(1), &reader, &model);
    assert_eq!(shared.counters.snapshot().lookups_by_model, counts.lookups_by_model);
}

#[test]
fn names_that_no_model_predicts_get_none() {
    let mut rng = SplitMix64::new(6);
    let mut names = BTreeSet::new();
    while names.len() < 2000 {
        let stem = ["react-native-", "types-", "babel-plugin-transform-"][rng.below(3) as usize];
        let digits = 4 * rng.below(7) + 4;
        names.insert(format!("{stem}{:x}", rng.below(1 << digits)).into_bytes());
    }
    let summary = check(1, &single(names), options(120));
    if let Err(why) = summary.training.unwrap().model {
        assert!(matches!(
            why,
            NoModel::TooManySegments | NoModel::TooManyTies | NoModel::TooManyBytes
        ));
    }
}

#[test]
fn every_block_answers_for_its_own_keys() {
    let vfs = SimVfs::new(1);
    let mut rng = SplitMix64::new(2);
    let mut model = random_model(&mut rng, 900);
    model.extend(decimals(500));
    // A filter that is not in memory leaves every question open.
    let options = SstOptions { filter: FilterPolicy::None, ..options(128) };
    write(&vfs, 1, options, &model, RangeTombstones::default()).unwrap();
    let (mut found, mut absent) = (0, 0);
    for shared in [reader_options(16 << 20), without_models(16 << 20)] {
        let reader = open(&vfs, 1, &shared).unwrap();
        let mut firsts: Vec<Vec<u8>> = Vec::new();
        reader
            .for_each_first_key(|ordinal, last_before, first| {
                assert_eq!(ordinal as usize, firsts.len());
                assert!(firsts.last().is_none_or(|before| before[..] <= *last_before));
                assert!(last_before <= first);
                firsts.push(first.to_vec());
            })
            .unwrap();
        assert_eq!(firsts.len() as u64, reader.block_count());
        for key in near(&mut rng, &model) {
            let seqno = [rng.below(220), MAX_SEQNO.get()][rng.below(2) as usize];
            let lookup = Lookup::new(&key, SeqNo::new(seqno));
            let want = expected(&model, &key, seqno);
            let after = firsts.partition_point(|first| *first <= key);
            let right = after.saturating_sub(1);
            for block in [0, right.saturating_sub(1), right, right + 1, firsts.len()] {
                let guess = BlockPlace { ordinal: block as u32, within: 0, likely: false };
                match reader.get_at_block(reader.prefetch_filter(&lookup), guess, &lookup).unwrap()
                {
                    InLevel::Found(entry) => {
                        assert_eq!(Some((entry.trailer, entry.value.to_vec())), want);
                        found += 1;
                    }
                    InLevel::Absent | InLevel::Stopped => {
                        assert_eq!(want, None, "{key:?} in {block}");
                        absent += 1;
                    }
                    // Nothing is known of a key outside the block's.
                    InLevel::Unknown => {}
                }
            }
        }
    }
    assert!(found > 50 && absent > 50, "{found} found, {absent} absent");
}

#[test]
fn a_model_can_be_looked_at() {
    let vfs = SimVfs::new(1);
    let none = RangeTombstones::default();
    write(&vfs, 1, options(200), &decimals(700), none.clone()).unwrap();
    let without = SstOptions { learning: false, ..options(200) };
    write(&vfs, 2, without, &decimals(700), none).unwrap();
    let reader = open(&vfs, 1, &reader_options(1 << 20)).unwrap();
    let (view, points) = reader.model_points().unwrap().unwrap();
    assert_eq!(points.len() as u64, reader.block_count());
    for (point, at) in points.iter().zip(0..) {
        let off = f64::from(point.block) - point.predicted.unwrap();
        assert!(point.block == at && off.abs() <= f64::from(view.error_bound) + 1.0, "{point:?}");
    }
    let other = open(&vfs, 2, &reader_options(1 << 20)).unwrap();
    assert!(other.model_points().unwrap().is_none());
    let file = vfs.open(&path(1), OpenMode::default()).unwrap();
    let mut text = String::new();
    dump(&*file, Some(FileNumber::new(1)), DumpDetail::Blocks, &mut text).unwrap();
    for words in
        ["learned index: ", "bytes a block tell blocks apart", "segment 0: 0 to", "errors: mean"]
    {
        assert!(text.contains(words), "{words} in {text}");
    }
    assert!(!text.contains('!'), "{text}");
}
