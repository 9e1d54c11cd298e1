//! Handles that do not fit: snapshots and column families of another store, and families that were
//! dropped. Every call that takes one gives one and the same answer.

use std::sync::Arc;
use terrace::vfs::{SimVfs, Vfs};
use terrace::{
    CfOptions, ColumnFamily, Db, Error, Options, ReadOptions, Result, Snapshot, WriteBatch,
    WriteOptions,
};

/// A store with the family `a`, with `k` in both of its families.
fn store() -> (Db, ColumnFamily) {
    let mut options = Options { memory_budget: 4 << 20, ..Options::default() };
    options.advanced.vfs = Arc::new(SimVfs::new(1));
    let db = Db::open("/db", options).unwrap();
    let family = db.create_column_family("a", CfOptions::default()).unwrap();
    db.put(b"k", b"default").unwrap();
    family.put(b"k", [7; 2000]).unwrap();
    (db, family)
}

/// A program may open its store with these again and again.
#[test]
fn options_are_given_back_as_they_were() {
    let mut options = Options { memory_budget: 4 << 20, ..Options::default() };
    let vfs: Arc<dyn Vfs> = Arc::new(SimVfs::new(1));
    options.advanced.vfs = vfs.clone();
    for _ in 0..2 {
        let db = Db::open("/db", options).unwrap();
        options = db.options().clone();
        assert!(Arc::ptr_eq(&options.advanced.vfs, &vfs), "under something");
        db.close().unwrap();
    }
}

fn at(snapshot: &Snapshot) -> ReadOptions {
    ReadOptions { snapshot: Some(snapshot.clone()), ..ReadOptions::default() }
}

/// Every read that takes options, by name.
fn reads_with(family: &ColumnFamily, options: &ReadOptions) -> Vec<(&'static str, Result<()>)> {
    vec![
        ("get_with", family.get_with(b"k", options).map(drop)),
        ("get_entry", family.get_entry(b"k", options).map(drop)),
        ("multi_get_with", family.multi_get_with(&[b"k"], options).map(drop)),
        ("iter_with", family.iter_with(options).map(drop)),
    ]
}

/// A batch of one operation of every kind that names a family.
fn batches(family: &ColumnFamily) -> Vec<(&'static str, WriteBatch)> {
    let second = std::time::Duration::from_secs(1);
    let of = |fill: &dyn Fn(&mut WriteBatch)| {
        let mut batch = WriteBatch::new();
        fill(&mut batch);
        batch
    };
    vec![
        ("put_cf", of(&|b| b.put_cf(family, b"k", b"v"))),
        ("put_with_ttl_cf", of(&|b| b.put_with_ttl_cf(family, b"k", b"v", second))),
        ("put_until_cf", of(&|b| b.put_until_cf(family, b"k", b"v", u64::MAX))),
        ("delete_cf", of(&|b| b.delete_cf(family, b"k"))),
        ("delete_range_cf", of(&|b| b.delete_range_cf(family, b"a", b"z"))),
    ]
}

/// Every call of `db` that takes a handle of a family.
fn calls_of_another(db: &Db, family: &ColumnFamily) -> Vec<(&'static str, Result<()>)> {
    let mut calls = Vec::new();
    for (name, batch) in batches(family) {
        calls.push((name, db.write(batch.clone())));
        let written = db.write_if_unchanged(batch, &db.read_set(), &WriteOptions::default());
        calls.push((name, written));
    }
    let mut transaction = db.transaction();
    calls.push(("transaction get_cf", transaction.get_cf(family, b"k").map(drop)));
    calls.push(("get_untracked_cf", transaction.get_untracked_cf(family, b"k").map(drop)));
    // A read that was refused must not be what refuses the commit.
    transaction.put(b"t", b"v");
    transaction.commit().unwrap();
    type Write = fn(&mut terrace::Transaction, &ColumnFamily);
    let writes: [(&str, Write); 3] = [
        ("transaction put_cf", |t, cf| t.put_cf(cf, b"k", b"v")),
        ("transaction put_with_ttl_cf", |t, cf| {
            t.put_with_ttl_cf(cf, b"k", b"v", std::time::Duration::from_secs(1));
        }),
        ("transaction delete_cf", |t, cf| t.delete_cf(cf, b"k")),
    ];
    for (name, write) in writes {
        let mut transaction = db.transaction();
        write(&mut transaction, family);
        // Its own write is no way around the check.
        calls.push((name, transaction.get_cf(family, b"k").map(drop)));
        calls.push((name, transaction.commit()));
    }
    calls
}

fn all_are(calls: Vec<(&'static str, Result<()>)>, is_right: fn(&Error) -> bool) {
    for (name, outcome) in calls {
        match outcome {
            Err(error) => assert!(is_right(&error), "{name}: {error}"),
            Ok(()) => panic!("{name} is accepted"),
        }
    }
}

fn is_invalid(error: &Error) -> bool {
    matches!(error, Error::InvalidArgument(_))
}

fn is_no_such_family(error: &Error) -> bool {
    matches!(error, Error::NoSuchFamily(_))
}

#[test]
fn snapshots_of_another_store_are_refused_by_every_read() {
    let ((db, family), (other, _)) = (store(), store());
    let foreign = at(&other.snapshot());
    all_are(reads_with(&db.default_family(), &foreign), is_invalid);
    all_are(reads_with(&family, &foreign), is_invalid);
    all_are(vec![("Db::get_with", db.get_with(b"k", &foreign).map(drop))], is_invalid);
    for (name, outcome) in reads_with(&family, &at(&db.snapshot())) {
        outcome.unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    let reads = other.read_set();
    all_are(
        vec![
            ("is_unchanged", db.is_unchanged(&reads).map(drop)),
            (
                "write_if_unchanged",
                db.write_if_unchanged(WriteBatch::new(), &reads, &WriteOptions::default()),
            ),
        ],
        is_invalid,
    );
}

/// Families of both stores have the same numbers: only the handle tells them apart.
#[test]
fn families_of_another_store_are_refused_by_every_call() {
    let ((db, own), (other, foreign)) = (store(), store());
    all_are(calls_of_another(&db, &foreign), is_invalid);
    all_are(calls_of_another(&db, &other.default_family()), is_invalid);
    let mut reads = db.read_set();
    reads.watch(&foreign, b"k");
    all_are(vec![("watch", db.is_unchanged(&reads).map(drop))], is_invalid);
    assert_eq!(own.get(b"k").unwrap().as_deref(), Some(&[7; 2000][..]), "nothing was written");

    // A batch for two stores can be written to neither, until the second part is taken back.
    let mut batch = WriteBatch::new();
    batch.put_cf(&own, b"both", b"v");
    let point = batch.save_point();
    batch.put_cf(&foreign, b"both", b"v");
    all_are(
        vec![("own", db.write(batch.clone())), ("other", other.write(batch.clone()))],
        is_invalid,
    );
    batch.roll_back_to(point);
    db.write(batch.clone()).unwrap();
    all_are(vec![("still own", other.write(batch.clone()))], is_invalid);
    batch.clear();
    batch.put_cf(&foreign, b"both", b"v");
    other.write(batch).unwrap();

    // Opened again it is another store: what a handle from before says is not sure any more.
    let vfs = db.options().advanced.vfs.clone();
    let mut late = WriteBatch::new();
    late.put_cf(&own, b"late", b"v");
    let before = db.snapshot();
    db.close().unwrap();
    let mut options = Options::default();
    options.advanced.vfs = vfs;
    let again = Db::open("/db", options).unwrap();
    all_are(vec![("late", again.write(late))], is_invalid);
    all_are(reads_with(&again.default_family(), &at(&before)), is_invalid);
}

#[test]
fn every_call_for_a_dropped_family_says_that_there_is_none() {
    let (db, family) = store();
    db.flush().unwrap();
    family.put(b"m", b"in the memtable").unwrap();
    let mut standing = family.iter().unwrap();
    standing.seek_to_first().unwrap();
    let value = family.get(b"k").unwrap().unwrap();
    let before = db.snapshot();
    let mut transaction = db.transaction();
    transaction.get_cf(&family, b"k").unwrap();
    let reads = transaction.read_set().clone();
    db.drop_column_family("a").unwrap();

    let calls = || {
        vec![
            ("get", family.get(b"k").map(drop)),
            ("get of the memtable", family.get(b"m").map(drop)),
            ("get of nothing", family.get(b"n").map(drop)),
            ("multi_get", family.multi_get(&[b"k"]).map(drop)),
            ("multi_get of nothing", family.multi_get::<&[u8]>(&[]).map(drop)),
            ("iter", family.iter().map(drop)),
            ("range", family.range::<&[u8]>(..).map(drop)),
            ("prefix", family.prefix(b"k").map(drop)),
            ("explain", family.explain(b"k").map(drop)),
            ("estimate", family.estimate::<&[u8]>(..).map(drop)),
            ("put", family.put(b"k", b"v")),
            ("put_with_ttl", family.put_with_ttl(b"k", b"v", std::time::Duration::from_secs(1))),
            ("delete", family.delete(b"k")),
            ("delete_range", family.delete_range(b"a", b"z")),
            ("compact_range", family.compact_range::<&[u8]>(..)),
        ]
    };
    all_are(calls(), is_no_such_family);
    all_are(vec![("drop", db.drop_column_family("a"))], is_no_such_family);
    all_are(reads_with(&family, &ReadOptions::default()), is_no_such_family);
    all_are(reads_with(&family, &at(&before)), is_no_such_family);
    all_are(calls_of_another(&db, &family), is_no_such_family);
    let in_memory = ReadOptions { in_memory: true, ..ReadOptions::default() };
    all_are(reads_with(&family, &in_memory), is_no_such_family);

    // With the family its keys have gone: a transaction that read them gets a conflict.
    assert!(!db.is_unchanged(&reads).unwrap());
    transaction.put(b"t", b"v");
    assert!(matches!(transaction.commit(), Err(Error::Conflict)));
    // What was there before stays good.
    assert_eq!((standing.key(), standing.value()), (&b"k"[..], &[7; 2000][..]));
    assert_eq!(&*value, [7; 2000]);

    // Another family of that name is no reason to take the old handle for it.
    let fresh = db.create_column_family("a", CfOptions::default()).unwrap();
    fresh.put(b"k", b"fresh").unwrap();
    all_are(calls(), is_no_such_family);
    assert_eq!(fresh.get(b"k").unwrap().as_deref(), Some(&b"fresh"[..]));
    db.flush().unwrap();
    db.wait_idle().unwrap();
}
