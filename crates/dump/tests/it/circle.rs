//! Dump, restore, dump again: the same bytes.

use crate::{NEXT_CENTURY, dump, open, read, restore};
use proptest::prelude::*;
use std::sync::Arc;
use terrace::vfs::SimVfs;
use terrace::{CfOptions, CompactionStyle, Db, Options, WriteBatch, builtin_merge_operator};
use terrace_base::clock::ManualClock;
use terrace_dump::{DumpedFamily, Error, RecordReader};

#[test]
fn a_full_circle_gives_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    for name in ["zebra", "ähre", "empty", "A"] {
        db.create_column_family(name, CfOptions::default()).unwrap();
    }
    let mut batch = WriteBatch::new();
    for n in 0..3000_u32 {
        // Longer than a chunk, incompressible, compressible, empty; of all lengths of a varint.
        let value = vec![n as u8; [0, 1, 127, 128, 300, 20_000][n as usize % 6]];
        batch.put(n.to_be_bytes(), &value);
    }
    batch.put(b"\xff\xff", vec![7; 3 << 20]);
    batch.put_until(b"\x00", b"expires", NEXT_CENTURY);
    db.write(batch).unwrap();
    let mut batch = WriteBatch::new();
    let zebra = db.column_family("zebra").unwrap();
    batch.put_until_cf(&zebra, b"late", b"\x00\xff", u64::MAX);
    batch.put_until_cf(&zebra, b"gone", b"expired long ago", 1);
    batch.put_cf(&zebra, b"deleted", b"");
    batch.delete_cf(&zebra, b"deleted");
    batch.put_cf(&db.column_family("A").unwrap(), b"a", b"");
    db.write(batch).unwrap();

    let (first, counts) = dump(&db);
    assert_eq!((counts.families, counts.entries), (5, 3004));
    let (_dir, again, restored) = restore(&first).unwrap();
    assert_eq!(restored, counts);
    let mut names = again.column_families();
    names.sort();
    assert_eq!(names, ["A", "default", "empty", "zebra", "ähre"]);
    let (second, _) = dump(&again);
    assert!(first == second, "the dumps differ");
    let zebra = again.column_family("zebra").unwrap();
    let entry = zebra.get_entry(b"late", &terrace::ReadOptions::default()).unwrap().unwrap();
    assert_eq!(entry.expires_at_ms, Some(u64::MAX));
    assert_eq!(zebra.get(b"gone").unwrap(), None);
}

#[test]
fn an_empty_store_has_a_dump() {
    let dir = tempfile::tempdir().unwrap();
    let (bytes, counts) = dump(&open(dir.path()));
    assert_eq!((counts.families, counts.entries), (1, 0));
    let (_dir, db, _) = restore(&bytes).unwrap();
    assert_eq!(dump(&db).0, bytes);
}

#[test]
fn a_dump_shows_one_moment() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let other = db.create_column_family("other", CfOptions::default()).unwrap();
    for n in 0..5000_u32 {
        db.put(n.to_be_bytes(), [0; 100]).unwrap();
    }
    other.put(b"k", b"before").unwrap();
    let writer = db.clone();
    // Told of progress while the default family is written: the other one is to come.
    let mut calls = 0;
    let mut write = |_| {
        calls += 1;
        writer.column_family("other").unwrap().put(b"k", b"after").unwrap();
        writer.delete_range(b"", b"\xff").unwrap();
    };
    let (bytes, counts) = terrace_dump::dump(&db, Vec::new(), &mut write).unwrap();
    assert!(calls >= 5 && counts.entries == 5001, "{counts:?}");
    let (_dir, db, _) = restore(&bytes).unwrap();
    assert_eq!(&*db.column_family("other").unwrap().get(b"k").unwrap().unwrap(), b"before");
}

/// A family that is read later shows what it held when the dump began.
#[test]
fn what_expires_while_a_dump_is_made_is_in_it() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), ManualClock::wall_at(1_000_000));
    let mut options = Options { memory_budget: 8 << 20, ..Options::default() };
    options.advanced.clock = Arc::new(clock.clone());
    let db = Db::open(dir.path(), options).unwrap();
    let other = db.create_column_family("other", CfOptions::default()).unwrap();
    let mut batch = WriteBatch::new();
    for n in 0..2000_u32 {
        batch.put_until(n.to_be_bytes(), b"value", clock.now_ms() + 500);
    }
    batch.put_until_cf(&other, b"k", b"value", clock.now_ms() + 500);
    db.write(batch).unwrap();
    // Told of progress while the default family is written: the other one is to come.
    let mut calls = 0;
    let mut wait = |_| {
        calls += 1;
        clock.advance(1000);
    };
    let (_, counts) = terrace_dump::dump(&db, Vec::new(), &mut wait).unwrap();
    assert!(calls >= 1 && counts.entries == 2001, "{counts:?}");
    assert_eq!(dump(&db).1.entries, 0);
}

/// A restored store opens with the operators of the dumped one, and with no others.
#[test]
fn merge_operators_keep_their_names() {
    let first = |name: &str| {
        terrace::associative(name, |_, existing, operand| Ok(existing.unwrap_or(operand).to_vec()))
    };
    let family = |merge_operator| CfOptions { merge_operator, ..CfOptions::default() };
    let options = |theirs: &str| Options {
        memory_budget: 8 << 20,
        default_family: family(builtin_merge_operator("counter")),
        column_families: vec![
            ("plain".into(), family(None)),
            ("theirs".into(), family(Some(first(theirs)))),
        ],
        ..Options::default()
    };
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), options("first")).unwrap();
    db.put(b"k", 7_i64.to_le_bytes()).unwrap();
    db.column_family("theirs").unwrap().merge(b"k", b"operand").unwrap();
    let (dumped, _) = dump(&db);

    let (dir, restored, _) = restore(&dumped).unwrap();
    restored.close().unwrap();
    let mut records = RecordReader::start(&dumped[..]).unwrap();
    while records.next().unwrap().is_some() {}
    let unnamed = Options { memory_budget: 8 << 20, ..Options::default() };
    terrace_dump::finish_families(dir.path(), unnamed.clone(), records.families()).unwrap();
    for refused in [unnamed, options("another")] {
        let error = Db::open(dir.path(), refused).map(drop).unwrap_err();
        assert!(error.to_string().contains("has the merge operator `first`"), "{error}");
    }
    let db = Db::open(dir.path(), options("first")).unwrap();
    let operator = |name: &str| db.column_family(name).unwrap().merge_operator().map(String::from);
    let expected = [Some("counter".to_string()), None, Some("first".into())];
    assert_eq!(["default", "plain", "theirs"].map(operator), expected);
    assert!(dump(&db).0 == dumped);
}

/// A restored store opens with the options of the dumped one, where the open says nothing.
#[test]
fn options_of_families_come_back() {
    let tiered = CfOptions { compaction: CompactionStyle::Tiered, ..CfOptions::default() };
    let tuned = |texts: &[(&str, &str)]| {
        let mut options = CfOptions::default();
        texts.iter().for_each(|(name, text)| options.set_option(name, text).unwrap());
        options
    };
    let plain = Options { memory_budget: 8 << 20, ..Options::default() };
    for (default_family, others, version) in [
        (tiered.clone(), vec![], 3),
        (tuned(&[("filter", "bloom:10,none"), ("prefix_len", "3")]), vec![], 3),
        (CfOptions::default(), vec![("other", CfOptions::default())], 1),
        (
            CfOptions::default(),
            vec![
                ("a", tiered.clone()),
                ("b", CfOptions::default()),
                ("c", tuned(&[("value_separation_threshold", "none"), ("learning", "off")])),
                ("z", tuned(&[("merge_operator", "counter"), ("value_compression", "zstd")])),
            ],
            3,
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let column_families = others.iter().map(|(name, cf)| (name.to_string(), cf.clone()));
        let options = Options {
            default_family: default_family.clone(),
            column_families: column_families.collect(),
            ..plain.clone()
        };
        let db = Db::open(dir.path(), options).unwrap();
        db.put(b"k", b"v").unwrap();
        let (dumped, _) = dump(&db);
        assert_eq!(dumped[8..10], [version, 0]);

        let (dir, restored, _) = restore(&dumped).unwrap();
        restored.close().unwrap();
        let mut records = RecordReader::start(&dumped[..]).unwrap();
        while records.next().unwrap().is_some() {}
        terrace_dump::finish_families(dir.path(), plain.clone(), records.families()).unwrap();
        let db = Db::open(dir.path(), plain.clone()).unwrap();
        assert_eq!(db.default_family().options(), default_family);
        for (name, options) in others {
            assert_eq!(db.column_family(name).unwrap().options(), options, "{name}");
        }
        assert!(dump(&db).0 == dumped);
    }
}

/// Names that a store keeps in memory until there is room end with the process.
#[test]
fn names_of_merge_operators_without_room_are_an_error() {
    let sim = SimVfs::new(1);
    let mut options = Options { memory_budget: 8 << 20, ..Options::default() };
    options.advanced.vfs = Arc::new(sim.clone());
    options.advanced.reserve_bytes = 0;
    Db::open("db", options.clone()).unwrap().close().unwrap();
    let counter = Some("counter".to_string());
    let families =
        [DumpedFamily { name: "default".into(), merge_operator: counter, options: None }];
    let name = || terrace_dump::finish_families("db".as_ref(), options.clone(), &families);
    sim.set_capacity_bytes(Some(0));
    let error = name().unwrap_err();
    assert!(matches!(error, Error::Store(terrace::Error::DiskFull(_))), "{error}");
    sim.set_capacity_bytes(None);
    name().unwrap();
    options.default_family.merge_operator = terrace::builtin_merge_operator("max");
    let error = Db::open("db", options.clone()).map(drop).unwrap_err();
    assert!(error.to_string().contains("has the merge operator `counter`"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn any_content_comes_back(
        entries in proptest::collection::btree_map(
            proptest::collection::vec(any::<u8>(), 1..40),
            (proptest::collection::vec(any::<u8>(), 0..300), proptest::option::of(NEXT_CENTURY..)),
            0..60,
        )
    ) {
        let mut records = terrace_dump::RecordWriter::start(Vec::new()).unwrap();
        records.family("default").unwrap();
        for (key, (value, expiry)) in &entries {
            records.entry(key, value, *expiry).unwrap();
        }
        let (bytes, counts) = records.finish().unwrap();
        prop_assert_eq!(read(&bytes).unwrap(), counts);
        let (_dir, db, _) = restore(&bytes).unwrap();
        prop_assert_eq!(dump(&db).0, bytes);
    }
}
