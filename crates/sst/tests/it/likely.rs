//! Keys that are searched before the filter is asked, alone and many at once: the same answers and the same counts as
//! of those whose filter comes first.

use crate::files::*;
use std::sync::Arc;
use terrace_base::key::pack_trailer;
use terrace_base::{MAX_SEQNO, RangeTombstones, SeqNo, ValueKind};
use terrace_sst::{
    BatchLookup, FilterMemory, FilterPolicy, Lookup, ReadCounts, ReaderOptions, SstOptions,
    SstReader, UnitLoad, load_filter_units, multi_get,
};
use terrace_vfs::SimVfs;

/// Keys in the file; those between them are absent.
const KEYS: u64 = 3000;

fn key(number: u64) -> Vec<u8> {
    format!("{number:016}").into_bytes()
}

fn value(number: u64) -> Vec<u8> {
    format!("value {number}").repeat(3).into_bytes()
}

/// How a key is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Alone { likely: bool },
    Together { likely: bool },
}

/// A reader with counters of its own of a file whose blocks are all in slots, and what a lookup of each number finds by
/// one of the ways.
fn counted(filter_memory: FilterMemory, units: u8, way: Way) -> (Vec<Option<Vec<u8>>>, ReadCounts) {
    let vfs = SimVfs::new(1);
    let put = !pack_trailer(SeqNo::new(5), ValueKind::Put);
    let model: Model = (0..KEYS).map(|n| ((key(n * 2), put), value(n * 2))).collect();
    let options = SstOptions {
        block_size: 400,
        filter: "ribbon:6".parse::<FilterPolicy>().unwrap(),
        ..SstOptions::default()
    };
    write(&vfs, 1, options, &model, RangeTombstones::default()).unwrap();
    let shared = ReaderOptions { filter_memory, ..reader_options(64 << 20) };
    let reader = open(&vfs, 1, &shared).unwrap();
    if units > 0 {
        let partitions = 0..reader.filter_partition_count();
        let loads: Vec<UnitLoad<'_>> =
            partitions.map(|partition| UnitLoad { reader: &reader, partition, units }).collect();
        for loaded in load_filter_units(&loads) {
            assert_eq!(loaded.units, units);
        }
    }
    for _ in 0..4 {
        for n in 0..KEYS {
            assert!(reader.get(&Lookup::new(&key(n * 2), MAX_SEQNO)).unwrap().is_some());
        }
    }
    let before = shared.counters.snapshot();
    let found = look_up(&reader, way);
    let after = shared.counters.snapshot();
    assert_eq!(after.device_reads, before.device_reads, "all is in memory");
    (found, difference(&before, &after))
}

fn look_up(reader: &Arc<SstReader>, way: Way) -> Vec<Option<Vec<u8>>> {
    let keys: Vec<Vec<u8>> = (0..2 * KEYS).map(key).collect();
    let lookups: Vec<Lookup<'_>> = keys.iter().map(|key| Lookup::new(key, MAX_SEQNO)).collect();
    let mut found = Vec::new();
    match way {
        Way::Alone { likely } => {
            for lookup in &lookups {
                let at = reader.prefetch_filter(lookup);
                let expected = match likely {
                    true => reader.prefetch_entry(lookup.user_key),
                    false => Default::default(),
                };
                assert_eq!(expected.is_in_memory(), likely);
                let entry = reader.get_at((at, expected), lookup, &mut ()).unwrap();
                found.push(entry.map(|entry| entry.value.to_vec()));
            }
        }
        Way::Together { likely } => {
            for some in lookups.chunks(50) {
                let mut batch: Vec<_> =
                    some.iter().map(|lookup| BatchLookup::new(reader, *lookup)).collect();
                batch.iter_mut().for_each(|batch| batch.is_likely = likely);
                multi_get(&mut batch).unwrap();
                found.extend(batch.into_iter().map(|b| b.found.map(|entry| entry.value.to_vec())));
            }
        }
    }
    found
}

/// What was counted in between, of everything that a lookup in memory counts.
fn difference(before: &ReadCounts, after: &ReadCounts) -> ReadCounts {
    ReadCounts {
        filter_checks: after.filter_checks - before.filter_checks,
        filter_negatives: after.filter_negatives - before.filter_negatives,
        filter_false_positives: after.filter_false_positives - before.filter_false_positives,
        data_block_hits: after.data_block_hits - before.data_block_hits,
        filter_hits: after.filter_hits - before.filter_hits,
        filters_absent: after.filters_absent - before.filters_absent,
        wasted_lookups: after.wasted_lookups - before.wasted_lookups,
        lookups_by_model: after.lookups_by_model - before.lookups_by_model,
        lookups_by_index: after.lookups_by_index - before.lookups_by_index,
        ..ReadCounts::default()
    }
}

#[test]
fn a_likely_key_counts_as_any_other() {
    let ways = [
        Way::Alone { likely: true },
        Way::Together { likely: false },
        Way::Together { likely: true },
    ];
    for units in [0, 1, 3] {
        let (found, counts) = counted(FilterMemory::Elastic, units, Way::Alone { likely: false });
        for (number, found) in (0..).zip(&found) {
            assert_eq!(*found, (number % 2 == 0).then(|| value(number)));
        }
        // The last key is above all that the filters cover.
        let asked = 2 * KEYS - 1;
        assert_eq!(counts.filter_hits, if units > 0 { asked } else { 0 });
        assert_eq!(counts.filters_absent, if units > 0 { 0 } else { asked });
        for way in ways {
            assert_eq!(
                counted(FilterMemory::Elastic, units, way),
                (found.clone(), counts),
                "{way:?}, {units}"
            );
        }
    }
}
