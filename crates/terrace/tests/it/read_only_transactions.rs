//! Transactions, read sets and snapshots of a read-only store, whose writer knows nothing of them.

use crate::transactions::open;
use terrace::{CfOptions, Db, Error, Options, ReadOptions};

#[test]
fn a_transaction_that_wrote_nothing_commits_in_a_read_only_store() {
    let (dir, db) = open();
    db.put(b"k", b"value").unwrap();
    db.flush().unwrap();
    let reader = Db::open_read_only(dir.path(), Options::default()).unwrap();
    let mut transaction = reader.transaction();
    assert!(transaction.get(b"k").unwrap().is_some());
    transaction.commit().unwrap();
    let mut transaction = reader.transaction();
    transaction.put(vec![0; 1 << 20], b"refused");
    assert!(matches!(transaction.commit(), Err(Error::InvalidArgument(_))));
    let transaction = reader.transaction();
    reader.close().unwrap();
    assert!(matches!(transaction.commit(), Err(Error::Closed)));
}

/// The writer gives numbers back that only a snapshot of this store would need.
#[test]
fn a_read_set_of_a_read_only_store_sees_what_a_refresh_has_changed() {
    let (dir, db) = open();
    for key in [&b"k"[..], b"gone"] {
        db.put(key, b"old").unwrap();
    }
    let reader = Db::open_read_only(dir.path(), Options::default()).unwrap();
    for change in ["k", "gone"] {
        let mut reads = reader.read_set();
        reads.watch(&reader.default_family(), change);
        match change {
            "k" => db.put(change, b"new").unwrap(),
            _ => db.delete(change).unwrap(),
        }
        db.flush().unwrap();
        db.compact_range::<&[u8]>(..).unwrap();
        assert!(reader.is_unchanged(&reads).unwrap(), "nothing was refreshed");
        reader.refresh().unwrap();
        assert!(!reader.is_unchanged(&reads).unwrap());
    }
    // What else changes in the family is nothing to it.
    let mut reads = reader.read_set();
    reads.watch(&reader.default_family(), b"k");
    reads.watch(&reader.default_family(), b"gone");
    reads.watch_range::<&[u8]>(&reader.default_family(), &b"a"[..]..&b"m"[..]);
    db.put(b"other", b"1").unwrap();
    db.flush().unwrap();
    db.compact_range::<&[u8]>(..).unwrap();
    reader.refresh().unwrap();
    assert!(reader.is_unchanged(&reads).unwrap());
    db.put(b"b", b"1").unwrap();
    db.flush().unwrap();
    db.compact_range::<&[u8]>(..).unwrap();
    reader.refresh().unwrap();
    assert!(!reader.is_unchanged(&reads).unwrap(), "a key came into the range");
}

#[test]
fn a_snapshot_of_a_read_only_store_has_nothing_of_a_family_that_came_later() {
    let (dir, db) = open();
    let reader = Db::open_read_only(dir.path(), Options::default()).unwrap();
    let snapshot = reader.snapshot();
    let family = db.create_column_family("later", CfOptions::default()).unwrap();
    family.put(b"k", b"value").unwrap();
    db.flush().unwrap();
    db.compact_range::<&[u8]>(..).unwrap();
    family.compact_range::<&[u8]>(..).unwrap();
    reader.refresh().unwrap();
    let family = reader.column_family("later").unwrap();
    assert!(family.get(b"k").unwrap().is_some());
    let at = ReadOptions { snapshot: Some(snapshot), ..ReadOptions::default() };
    assert!(family.get_with(b"k", &at).unwrap().is_none());
    assert!(family.multi_get_with(&[b"k"], &at).unwrap()[0].is_none());
    assert_eq!(family.iter_with(&at).unwrap().entries().count(), 0);
}
