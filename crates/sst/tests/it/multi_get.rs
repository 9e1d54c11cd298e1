//! What lookups of many keys at once read of filters, indexes and models that are not in memory: as little as gets would;
//! and what is left of those that may not read.

use crate::files::*;
use std::sync::Arc;
use terrace_base::key::pack_trailer;
use terrace_base::{Error, MAX_SEQNO, RangeTombstones, SeqNo, ValueKind};
use terrace_sst::{
    Compression, FilterMemory, FilterUses, Lookup, ReadCounts, ReaderOptions, SstOptions,
    SstReader, UnitLoad, load_filter_units,
};
use terrace_vfs::SimVfs;

const KEYS: u64 = 3000;

fn present(number: u64) -> Vec<u8> {
    format!("{:016}", number * 2).into_bytes()
}

fn absent(number: u64) -> Vec<u8> {
    format!("{:016}", number * 2 + 1).into_bytes()
}

/// A file of [`KEYS`] keys with one filter partition and one index partition.
fn opened(options: &ReaderOptions) -> Arc<SstReader> {
    let vfs = SimVfs::new(1);
    let put = !pack_trailer(SeqNo::new(5), ValueKind::Put);
    let model: Model = (0..KEYS).map(|n| ((present(n), put), vec![n as u8; 20])).collect();
    let written = SstOptions {
        block_size: 400,
        partitioned: false,
        compression: Compression::None,
        filter: "ribbon:10".parse().unwrap(),
        ..SstOptions::default()
    };
    write(&vfs, 1, written, &model, RangeTombstones::default()).unwrap();
    open(&vfs, 1, options).unwrap()
}

/// A file of which nothing stays in memory.
struct Cold {
    reader: Arc<SstReader>,
    shared: ReaderOptions,
}

impl Cold {
    fn new(models: bool) -> Self {
        let shared = ReaderOptions { models, ..reader_options(0) };
        let reader = opened(&shared);
        assert_eq!((reader.filter_partition_count(), reader.has_model()), (1, models));
        Self { reader, shared }
    }

    fn get(&self, key: &[u8], is_there: bool) {
        let found = self.reader.get(&Lookup::new(key, MAX_SEQNO)).unwrap();
        assert_eq!(found.is_some(), is_there, "{}", key.escape_ascii());
    }

    fn multi_get(&self, keys: &[Vec<u8>], are_there: bool) {
        let lookups: Vec<_> = keys.iter().map(|key| Lookup::new(key, MAX_SEQNO)).collect();
        let found = self.reader.multi_get(&lookups).unwrap();
        assert!(found.iter().all(|found| found.is_some() == are_there));
    }

    fn counts(&self) -> ReadCounts {
        self.shared.counters.snapshot()
    }
}

#[test]
fn absent_keys_of_one_batch_do_not_all_skip_the_filter_that_present_ones_skip() {
    let cold = Cold::new(false);
    for number in 0..1000 {
        cold.get(&present(number), true);
    }
    let before = cold.counts();
    cold.multi_get(&(0..10).map(|n| present(n * 300)).collect::<Vec<_>>(), true);
    let few = cold.counts();
    assert_eq!(few.filter_misses, before.filter_misses, "a few present keys need no filter");
    cold.multi_get(&(0..1000).map(|n| absent(n * 3)).collect::<Vec<_>>(), false);
    let many = cold.counts();
    assert_eq!(many.filter_misses - few.filter_misses, 1);
    // Those that skip the filter, and false positives of one in a thousand.
    let read = many.data_block_misses - few.data_block_misses;
    assert!(read <= 30, "{read} data blocks");
}

#[test]
fn an_index_partition_is_read_with_the_filter_only_where_gets_read_both_together() {
    // Nothing is known of a file yet: keys may be there.
    let cold = Cold::new(false);
    cold.multi_get(&[absent(7)], false);
    let counts = cold.counts();
    assert_eq!((counts.filter_misses, counts.index_misses), (1, 1));
    for number in 0..100 {
        cold.get(&absent(number), false);
    }
    // Most keys are absent.
    let before = cold.counts();
    for number in 0..100 {
        cold.multi_get(&[absent(number * 29)], false);
    }
    let after = cold.counts();
    assert_eq!(after.filter_misses - before.filter_misses, 100);
    let read = after.index_misses - before.index_misses;
    assert!(read <= 5, "{read} index partitions, more than false positives of the filter");
}

#[test]
fn a_model_is_read_after_the_filter_and_as_often_as_by_gets() {
    let (alone, together) = (Cold::new(true), Cold::new(true));
    together.multi_get(&[absent(7)], false);
    alone.get(&absent(7), false);
    assert_eq!((together.counts().model_loads, together.counts().index_misses), (0, 0));
    for number in 0..200 {
        for (key, is_there) in [(absent(number), false), (present(number), true)] {
            alone.get(&key, is_there);
            together.multi_get(&[key], is_there);
        }
    }
    let (alone, together) = (alone.counts(), together.counts());
    assert!(alone.model_loads > 0);
    assert_eq!(together.model_loads, alone.model_loads);
    assert_eq!(together.filter_misses, alone.filter_misses);
}

fn in_memory(key: &[u8]) -> Lookup<'_> {
    Lookup { in_memory: true, ..Lookup::new(key, MAX_SEQNO) }
}

#[test]
fn what_a_refused_call_has_counted_for_filters_is_taken_back() {
    for units in [0, u8::MAX] {
        let filter_memory = FilterMemory::Elastic;
        let shared = ReaderOptions { filter_memory, models: false, ..reader_options(16 << 20) };
        let reader = opened(&shared);
        load_filter_units(&[UnitLoad { reader: &reader, partition: 0, units }]);
        for number in 0..300 {
            assert!(reader.get(&Lookup::new(&present(number), MAX_SEQNO)).unwrap().is_some());
        }
        reader.take_filter_uses(0);
        // So few that all of them are counted.
        let keys: Vec<Vec<u8>> = (0..20).flat_map(|n| [present(n), absent(n)]).collect();
        let mut lookups: Vec<_> = keys.iter().map(|key| in_memory(key)).collect();
        assert_eq!(reader.multi_get(&lookups).unwrap().iter().flatten().count(), 20);
        let uses = reader.take_filter_uses(0);
        assert_eq!((uses.found, uses.wasted()), (20, 20));
        assert_eq!(uses.stopped > 0, units > 0);
        let far = present(KEYS - 1);
        lookups.push(in_memory(&far));
        let refused = reader.multi_get(&lookups);
        assert!(matches!(refused, Err(Error::NotInMemory)), "{refused:?}");
        assert_eq!(reader.take_filter_uses(0), FilterUses::default());
    }
}
