//! Filter units in and out of memory: any prefix in any order, damage, charges, counts, prefixes.

use crate::files::*;
use std::sync::Arc;
use terrace_base::key::pack_trailer;
use terrace_base::{MAX_SEQNO, RangeTombstones, Rng, SeqNo, SplitMix64, ValueKind};
use terrace_sst::{
    FilterMemory, Lookup, ReaderOptions, SstOptions, SstReader, UnitLoad, drop_filter_units,
    filter_charge_bytes, load_filter_units,
};
use terrace_vfs::{Fault, FaultKind, OpClass, SimVfs};

const POLICIES: [&str; 5] = ["ribbon:8", "bloom:4x6", "paired:8x3", "blocked:5x2", "blocked:10"];
const KEYS: u64 = 3000;

fn key(at: u64) -> Vec<u8> {
    format!("{:02}-{:06}", at / 100, at * 2).into_bytes()
}

fn absent(at: u64) -> Vec<u8> {
    format!("{:02}-{:06}", at / 100, at * 2 + 1).into_bytes()
}

fn elastic() -> ReaderOptions {
    ReaderOptions { filter_memory: FilterMemory::Elastic, ..reader_options(1 << 20) }
}

/// A file of [`KEYS`] keys in several filter partitions.
fn sample(vfs: &SimVfs, policy: &str, prefix_len: usize) -> (Arc<SstReader>, ReaderOptions) {
    let put = |at| (key(at), !pack_trailer(SeqNo::new(1), ValueKind::Put));
    let model: Model = (0..KEYS).map(|at| (put(at), at.to_be_bytes().to_vec())).collect();
    let options = SstOptions {
        filter: policy.parse().unwrap(),
        prefix_len,
        metadata_block_size: 512,
        ..SstOptions::default()
    };
    write(vfs, 1, options, &model, RangeTombstones::default()).unwrap();
    let options = elastic();
    (open(vfs, 1, &options).unwrap(), options)
}

fn check_all(reader: &SstReader) {
    for at in 0..KEYS {
        let found = reader.get(&Lookup::new(&key(at), MAX_SEQNO)).unwrap();
        assert_eq!(found.unwrap().value, at.to_be_bytes());
    }
}

fn load(reader: &SstReader, partition: usize, units: u8) -> u8 {
    let loaded = load_filter_units(&[UnitLoad { reader, partition, units }]).pop().unwrap();
    assert!(loaded.error.is_none());
    loaded.units
}

/// Lookups of absent keys that searched the data in vain.
fn wasted(reader: &SstReader, options: &ReaderOptions) -> u64 {
    let before = options.counters.snapshot().wasted_lookups;
    for at in 0..KEYS {
        assert!(reader.get(&Lookup::new(&absent(at), MAX_SEQNO)).unwrap().is_none());
    }
    options.counters.snapshot().wasted_lookups - before
}

#[test]
fn any_units_in_any_order_deny_no_key_and_cost_what_they_say() {
    let mut rng = SplitMix64::new(5);
    for policy in POLICIES {
        let vfs = SimVfs::new(1);
        let (reader, options) = sample(&vfs, policy, 0);
        let partitions = reader.filter_partition_count();
        assert!(partitions > 2, "{policy}");
        check_all(&reader);
        assert_eq!(options.counters.snapshot().filter_checks, 0);
        assert_eq!(reader.resident_filter_bytes(), 0);
        for _ in 0..8 {
            let mut bytes = 0;
            for at in 0..partitions {
                let shape = reader.filter_partition(at).shape;
                let units = rng.below(u64::from(shape.unit_count) + 1) as u8;
                drop_filter_units(&reader, at, units);
                load(&reader, at, units);
                assert_eq!(reader.filter_partition(at).resident_units, units);
                bytes += filter_charge_bytes(&shape, units);
            }
            assert_eq!(reader.resident_filter_bytes(), bytes);
            check_all(&reader);
        }
        (0..partitions).for_each(|at| drop_filter_units(&reader, at, 0));
        let mut most = wasted(&reader, &options);
        assert!(most >= KEYS - 1, "{policy}: without units {most} lookups are wasted");
        for units in 1..=reader.filter_partition(0).shape.unit_count {
            (0..partitions).for_each(|at| assert!(load(&reader, at, units) <= units));
            let now = wasted(&reader, &options);
            assert!(now <= most, "{policy}: {units} units waste {now}, fewer {most}");
            most = now;
        }
        let shape = reader.filter_partition(0).shape;
        let expected = shape.expected_fpr(shape.unit_count, 300) * KEYS as f64;
        assert!((most as f64) < 3.0 * expected + 20.0, "{policy}: {most} of {expected}");
        reader.verify().unwrap();
    }
}

#[test]
fn many_partitions_load_in_one_batch() {
    let vfs = SimVfs::new(1);
    let (reader, _) = sample(&vfs, "ribbon:6", 0);
    let want = |at: usize| (at % 6) as u8;
    let loads: Vec<_> = (0..reader.filter_partition_count())
        .map(|partition| UnitLoad { reader: &reader, partition, units: want(partition) })
        .collect();
    let loaded: Vec<u8> = load_filter_units(&loads).iter().map(|load| load.units).collect();
    assert_eq!(loaded, (0..loads.len()).map(want).collect::<Vec<_>>());
    check_all(&reader);
    // More than there is, and what is there already.
    assert_eq!(load(&reader, 0, 200), reader.filter_partition(0).shape.unit_count);
    assert_eq!(load(&reader, 0, 1), reader.filter_partition(0).shape.unit_count);
    check_all(&reader);
}

#[test]
fn a_damaged_or_unreadable_unit_costs_only_time() {
    for damaged in [0u8, 2] {
        let vfs = SimVfs::new(1);
        let (reader, options) = sample(&vfs, "ribbon:8", 0);
        let whole = reader.filter_partition(1).shape;
        // The units lie one after another behind the data, each with a trailer of five bytes.
        let mut offset = reader.properties().data_bytes;
        let trailers = |shape: terrace_sst::FilterShape, units| {
            (shape.prefix_bytes(units) + 5 * usize::from(units)) as u64
        };
        let first = reader.filter_partition(0).shape;
        offset += trailers(first, first.unit_count) + trailers(whole, damaged);
        assert!(vfs.corrupt(path(1), offset + 3, 0x40));
        let loaded = load_filter_units(&[UnitLoad { reader: &reader, partition: 1, units: 7 }])
            .pop()
            .unwrap();
        assert_eq!(loaded.units, damaged);
        let error = loaded.error.unwrap();
        assert!(error.is_corruption() && error.to_string().contains("000001.sst"), "{error}");
        let info = reader.filter_partition(1);
        assert_eq!((info.resident_units, info.usable_units), (damaged, damaged));
        assert_eq!(options.counters.snapshot().filter_unit_damages, 1);
        assert_eq!(load(&reader, 1, 7), damaged);
        assert_eq!(options.counters.snapshot().filter_unit_damages, 1);
        check_all(&reader);
        assert!(reader.verify().unwrap_err().is_corruption());
    }
    let vfs = SimVfs::new(1);
    let (reader, _) = sample(&vfs, "bloom:4x3", 0);
    assert_eq!(load(&reader, 0, 1), 1);
    vfs.set_fault(Some(Fault {
        at_op: vfs.op_count(),
        kind: FaultKind::Eio,
        forever: false,
        filter: Some(OpClass::Read),
    }));
    let loaded =
        load_filter_units(&[UnitLoad { reader: &reader, partition: 0, units: 3 }]).pop().unwrap();
    assert!(loaded.units == 1 && loaded.error.is_some());
    assert_eq!(load(&reader, 0, 3), 3);
    check_all(&reader);
}

#[test]
fn uses_are_counted_where_they_happen_and_taken_once() {
    let vfs = SimVfs::new(1);
    let (reader, _) = sample(&vfs, "ribbon:12", 0);
    load(&reader, 1, 11);
    let covers = |at: usize, key: &[u8]| {
        let from = at.checked_sub(1).map(|at| reader.filter_partition(at).separator);
        from.is_none_or(|from| from < key) && key <= reader.filter_partition(at).separator
    };
    let in_partition = |at: usize| (0..KEYS).filter(|n| covers(at, &absent(*n))).count() as u32;
    for at in 0..KEYS {
        for _ in 0..8 {
            reader.get(&Lookup::new(&absent(at), MAX_SEQNO)).unwrap();
            reader.get(&Lookup::new(&key(at), MAX_SEQNO)).unwrap();
        }
    }
    for at in 0..reader.filter_partition_count() {
        let (uses, keys) = (reader.take_filter_uses(at), in_partition(at));
        let close = |found: u32| found.abs_diff(8 * keys) < 2 * keys + 16;
        assert!(close(uses.wasted()) && close(uses.found), "{uses:?} for {keys}");
        assert_eq!(uses.stopped == 0, at != 1, "{uses:?}");
        assert_eq!(reader.take_filter_uses(at), terrace_sst::FilterUses::default());
    }
}

#[test]
fn what_a_refused_lookup_counted_is_taken_back() {
    for (units, times) in [(0, 40), (4, 40), (4, 20_000)] {
        let vfs = SimVfs::new(1);
        let (reader, _) = sample(&vfs, "ribbon:8", 0);
        load(&reader, 0, units);
        check_all(&reader);
        reader.take_filter_uses(0);
        let (there, not_there) = (key(5), absent(5));
        let found = Lookup { in_memory: true, ..Lookup::new(&there, MAX_SEQNO) };
        let wasted = Lookup { in_memory: true, ..Lookup::new(&not_there, MAX_SEQNO) };
        let ask = || {
            for _ in 0..times {
                assert!(reader.get(&found).unwrap().is_some());
                assert!(reader.get(&wasted).unwrap().is_none());
            }
        };
        ask();
        let counted = reader.take_filter_uses(0);
        assert!(counted.found >= times / 2 && counted.wasted() >= times / 2, "{counted:?}");
        ask();
        for _ in 0..times {
            reader.take_back(&found, true);
            reader.take_back(&wasted, false);
        }
        // What is sampled is taken back on average.
        let left = reader.take_filter_uses(0);
        let most = if times < 64 { 0 } else { times / 10 };
        assert!(left.found <= most && left.wasted() <= most, "{left:?}");
    }
}

#[test]
fn prefixes_are_denied_only_if_no_key_has_them() {
    let vfs = SimVfs::new(1);
    for policy in POLICIES {
        let (reader, _) = sample(&vfs, policy, 2);
        assert!(reader.may_contain_prefix(b"1A"), "nothing is known without units");
        for at in 0..reader.filter_partition_count() {
            load(&reader, at, 200);
        }
        for prefix in 0..KEYS / 100 {
            let prefix = format!("{prefix:02}");
            for longer in ["", "-", "-000"] {
                assert!(reader.may_contain_prefix(format!("{prefix}{longer}").as_bytes()));
            }
        }
        assert!(reader.may_contain_prefix(b"0") && reader.may_contain_prefix(b""));
        let absent: Vec<[u8; 2]> = (0..30u8).map(|n| [b'0' + n / 10, b'A' + n]).collect();
        let passed = absent.iter().filter(|prefix| reader.may_contain_prefix(&prefix[..])).count();
        assert!(passed < 15, "{policy}: {passed} of 30");
        assert!(!reader.may_contain_prefix(b"zz"));
        vfs_without(&vfs);
    }
}

/// Removes the file, so that the next can be written.
fn vfs_without(vfs: &SimVfs) {
    terrace_vfs::Vfs::remove(vfs, &path(1)).unwrap();
}
