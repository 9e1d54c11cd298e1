//! Keys that are searched before the filter is asked, alone and many at once: the same answers and the same counts as
//! of those whose filter comes first.

use crate::files::*;
use std::sync::Arc;
use terrace_base::key::pack_trailer;
use terrace_base::{MAX_SEQNO, RangeTombstones, SeqNo, ValueKind};
use terrace_sst::{
    BatchLookup, FilterMemory, FilterPolicy, FilterUses, Lookup, ReadCounts, ReaderOptions,
    SstOptions, SstReader, UnitLoad, load_filter_units, multi_get,
};
use terrace_vfs::SimVfs;

/// Keys in the file; those between them are absent.
const KEYS: u64 = 3000;
/// Lookups after which the uses of filters are taken: so few are all counted, and not sampled.
const LOOKUPS: usize = 50;

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

/// What lookups of each number have found, and what was counted of them.
#[derive(Debug, Clone, PartialEq)]
struct Outcome {
    found: Vec<Option<Vec<u8>>>,
    counts: ReadCounts,
    uses: FilterUses,
}

/// Looks each number up by one of the ways, with a reader and counters of its own, in a file whose blocks are all in
/// slots.
fn outcome(filter_memory: FilterMemory, units: u8, way: Way) -> Outcome {
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
    taken_uses(&reader);
    let before = shared.counters.snapshot();
    let (mut found, mut uses) = (Vec::new(), FilterUses::default());
    let keys: Vec<Vec<u8>> = (0..2 * KEYS).map(key).collect();
    for some in keys.chunks(LOOKUPS) {
        found.extend(look_up(&reader, some, way));
        let taken = taken_uses(&reader);
        uses.stopped += taken.stopped;
        uses.vain += taken.vain;
        uses.found += taken.found;
    }
    let after = shared.counters.snapshot();
    assert_eq!(after.device_reads, before.device_reads, "all is in memory");
    Outcome { found, counts: difference(&before, &after), uses }
}

/// The uses of all filters of the file since the last call.
fn taken_uses(reader: &SstReader) -> FilterUses {
    let mut sum = FilterUses::default();
    for at in 0..reader.filter_partition_count() {
        let FilterUses { stopped, vain, found } = reader.take_filter_uses(at);
        sum.stopped += stopped;
        sum.vain += vain;
        sum.found += found;
    }
    sum
}

fn look_up(reader: &Arc<SstReader>, keys: &[Vec<u8>], way: Way) -> Vec<Option<Vec<u8>>> {
    let lookups = keys.iter().map(|key| Lookup::new(key, MAX_SEQNO));
    let mut found = Vec::new();
    match way {
        Way::Alone { likely } => {
            for lookup in lookups {
                let at = reader.prefetch_filter(&lookup);
                let expected = match likely {
                    true => reader.prefetch_entry(lookup.user_key),
                    false => Default::default(),
                };
                assert_eq!(expected.is_in_memory(), likely);
                let entry = reader.get_at((at, expected), &lookup, &mut ()).unwrap();
                found.push(entry.map(|entry| entry.value.to_vec()));
            }
        }
        Way::Together { likely } => {
            let mut batch: Vec<_> =
                lookups.map(|lookup| BatchLookup::new(reader, lookup)).collect();
            batch.iter_mut().for_each(|batch| batch.is_likely = likely);
            multi_get(&mut batch).unwrap();
            found.extend(batch.into_iter().map(|b| b.found.map(|entry| entry.value.to_vec())));
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
    let elastic = [0, 1, 3].map(|units| (FilterMemory::Elastic, units));
    for (filter_memory, units) in elastic.into_iter().chain([(FilterMemory::Cached, 0)]) {
        let want = outcome(filter_memory, units, Way::Alone { likely: false });
        for (number, found) in (0..).zip(&want.found) {
            assert_eq!(*found, (number % 2 == 0).then(|| value(number)));
        }
        // The last key is above all that the filters cover.
        let asked = 2 * KEYS - 1;
        let is_cached = filter_memory == FilterMemory::Cached;
        let (hits, absent) = if units > 0 || is_cached { (asked, 0) } else { (0, asked) };
        assert_eq!((want.counts.filter_hits, want.counts.filters_absent), (hits, absent));
        // Of a filter in the block cache nobody asks what it is worth.
        let uses = if is_cached { want.counts.wasted_lookups } else { asked };
        assert_eq!(u64::from(want.uses.lookups()), uses);
        for way in ways {
            assert_eq!(outcome(filter_memory, units, way), want, "{way:?}, {units}");
        }
    }
}
