//! Many readers over a cache that evicts all the time.

use crate::files::*;
use crate::model::check_batch;
use std::sync::Arc;
use terrace_base::{InternalIter, MAX_SEQNO, RangeTombstones, Rng, SplitMix64};
use terrace_sst::{BatchLookup, Lookup, ScanOptions, SstOptions, SstReader, multi_get};
use terrace_vfs::SimVfs;

fn some_file(seed: u64, vfs: &SimVfs) -> Model {
    let mut rng = SplitMix64::new(seed);
    let model = random_model(&mut rng, 3000);
    let options = SstOptions { block_size: 512, metadata_block_size: 256, ..SstOptions::default() };
    write(vfs, seed, options, &model, RangeTombstones::default()).unwrap();
    model
}

fn read_at_random(files: &[(Arc<SstReader>, Model)], seed: u64) {
    let mut rng = SplitMix64::new(seed);
    for round in 0..400 {
        let (reader, model) = &files[rng.below(files.len() as u64) as usize];
        let skip = rng.below(model.len() as u64) as usize;
        let (key, _) = model.keys().nth(skip).unwrap();
        let want = expected(model, key, MAX_SEQNO.get());
        let lookup = Lookup::new(key, MAX_SEQNO);
        let answer = match round % 5 {
            0 => reader.get_unfiltered(&lookup).unwrap(),
            1 => reader.get(&lookup).unwrap(),
            2 => reader.multi_get(&[lookup]).unwrap().remove(0),
            _ => {
                let at = (reader.prefetch_filter(&lookup), reader.prefetch_entry(key));
                reader.get_at(at, &lookup, &mut ()).unwrap()
            }
        };
        assert_eq!(answer.map(|e| (e.trailer, e.value.to_vec())), want);
        if round % 10 == 0 {
            // Stored keys, and one beside each.
            let near = model.keys().skip(skip).take(20);
            let near = near.flat_map(|(key, _)| [key.clone(), [&key[..], b"!"].concat()]);
            let near: Vec<Vec<u8>> = near.collect();
            let batch: Vec<_> = near.iter().map(|key| Lookup::new(key, MAX_SEQNO)).collect();
            check_batch(&mut rng, reader, model, &batch);
        }
        if round % 40 == 0 {
            let mut iter = reader.iter(ScanOptions::default());
            iter.seek(key, u64::MAX).unwrap();
            for ((key, inverted), value) in model.range((key.clone(), 0)..).take(200) {
                assert_eq!((iter.user_key(), iter.trailer()), (&key[..], !inverted));
                assert_eq!(iter.value(), value);
                iter.next().unwrap();
            }
        }
    }
}

#[test]
fn readers_share_an_evicting_cache() {
    for cache_bytes in [0, 8 << 10, 64 << 10, 8 << 20] {
        let vfs = SimVfs::new(1);
        let options = reader_options(cache_bytes);
        let files: Vec<_> = (1..5)
            .map(|seed| {
                let model = some_file(seed, &vfs);
                (open(&vfs, seed, &options).unwrap(), model)
            })
            .collect();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let files = &files;
                scope.spawn(move || read_at_random(files, thread));
            }
        });
        let counts = options.counters.snapshot();
        assert!(counts.data_block_hits + counts.data_block_misses >= 4 * 400);
        assert!(counts.device_reads > 0 && counts.device_read_bytes > counts.device_reads);
        assert!(options.cache.used_bytes() <= cache_bytes);
        // Partitions leave with their reader; data blocks age out.
        let high = |options: &terrace_sst::ReaderOptions| options.cache.stats().high_used_bytes;
        assert!(high(&options) > 0 || cache_bytes < 64 << 10);
        drop(files);
        assert_eq!(high(&options), 0);
    }
}

#[test]
fn blocks_that_are_read_again_and_again_bypass_the_hash_table() {
    let vfs = SimVfs::new(1);
    let options = reader_options(8 << 20);
    let model = some_file(1, &vfs);
    let reader = open(&vfs, 1, &options).unwrap();
    let read_all = || {
        for (key, _) in model.keys() {
            assert!(reader.get_unfiltered(&Lookup::new(key, MAX_SEQNO)).unwrap().is_some());
        }
    };
    (0..4).for_each(|_| read_all());
    let through_the_table = options.cache.stats().hits;
    let (misses, used) =
        (options.counters.snapshot().data_block_misses, options.cache.used_bytes());
    read_all();
    let stats = options.cache.stats();
    assert_eq!((stats.hits, stats.used_bytes), (through_the_table, used));
    // A smaller cache empties slots, and what is read next is right all the same.
    for capacity in [used / 2, used / 8, 0, used] {
        options.cache.set_capacity_bytes(capacity);
        read_all();
        // Of the one shard an entry may be over it, until the next is inserted; the largest is the model with its slots.
        let used = options.cache.used_bytes();
        assert!(used <= capacity + 1024, "{used} of {capacity}");
    }
    assert!(options.counters.snapshot().data_block_misses > misses);
    (0..4).for_each(|_| read_all());
    drop(reader);
    // What has a slot leaves with the reader; here that is nearly all.
    let left = options.cache.used_bytes();
    assert!(left * 4 < used, "{left} of {used}");
}

#[test]
fn a_batch_spans_files_and_reads_each_block_once() {
    let vfs = SimVfs::new(1);
    let options = reader_options(8 << 20);
    let models = [some_file(1, &vfs), some_file(2, &vfs)];
    let readers = [1, 2].map(|number| open(&vfs, number, &options).unwrap());
    let opened = options.counters.snapshot().device_reads;
    let mut batch = Vec::new();
    for (reader, model) in readers.iter().zip(&models) {
        for (key, _) in model.keys() {
            batch.push(BatchLookup::new(reader, Lookup::new(key, MAX_SEQNO)));
        }
    }
    let before = vfs.op_count();
    multi_get(&mut batch).unwrap();
    assert!(vfs.op_count() > before);
    for lookup in &batch {
        let model = &models[usize::from(std::ptr::eq(lookup.reader, &*readers[1]))];
        let want = expected(model, lookup.lookup.user_key, MAX_SEQNO.get());
        let found = lookup.found.as_ref().map(|e| (e.trailer, e.value.to_vec()));
        assert_eq!(found, want);
    }
    let blocks: u64 = readers.iter().map(|r| r.properties().data_block_count).sum();
    let partitions: u64 = readers
        .iter()
        .map(|r| r.verify().unwrap())
        .map(|report| report.index_partitions + report.filter_partitions)
        .sum();
    drop(batch);
    let counts = options.counters.snapshot();
    assert!(counts.data_block_misses <= blocks && counts.data_block_misses > blocks / 2);
    // Verification read the partitions once more.
    let metadata = counts.index_misses + counts.filter_misses;
    assert!(metadata <= 2 * partitions);
    assert!(counts.device_reads >= opened + counts.data_block_misses + metadata);
}

#[test]
fn a_cached_lookup_reads_nothing_and_a_denied_one_no_index() {
    let vfs = SimVfs::new(1);
    let options = reader_options(8 << 20);
    let model = some_file(1, &vfs);
    let reader = open(&vfs, 1, &options).unwrap();
    let lookups = |keys: &mut dyn Iterator<Item = Vec<u8>>| {
        for key in keys {
            reader.get(&Lookup::new(&key, MAX_SEQNO)).unwrap();
        }
    };
    lookups(&mut model.keys().map(|(key, _)| key.clone()));
    let warm = options.counters.snapshot();
    let operations = vfs.op_count();
    lookups(&mut model.keys().map(|(key, _)| key.clone()));
    assert_eq!(vfs.op_count(), operations);
    let again = options.counters.snapshot();
    assert_eq!(again.device_reads, warm.device_reads);
    assert_eq!(again.filter_false_positives, 0);
    let absent = |key: &(Vec<u8>, u64)| [&key.0[..], b"!!"].concat();
    lookups(&mut model.keys().map(absent));
    let denied = options.counters.snapshot();
    let checks = denied.filter_checks - again.filter_checks;
    let negatives = denied.filter_negatives - again.filter_negatives;
    assert!(checks == model.len() as u64 && negatives * 10 > checks * 9, "{negatives}/{checks}");
    assert_eq!(denied.filter_false_positives, checks - negatives);
    assert_eq!(denied.index_hits - again.index_hits, checks - negatives);
}
