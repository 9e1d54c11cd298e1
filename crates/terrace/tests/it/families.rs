//! Column families: apart in keys, together in batches, gone when dropped.

use terrace::{CfOptions, Db, Error, Options, WriteBatch};

#[test]
fn families_keep_their_keys_apart_and_batches_span_them() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), Options::default()).unwrap();
    let users = db.create_column_family("users", CfOptions::default()).unwrap();
    let mut batch = WriteBatch::new();
    batch.put(b"k", b"default");
    batch.put_cf(&users, b"k", b"users");
    db.write(batch).unwrap();
    assert_eq!(db.get(b"k").unwrap().as_deref(), Some(&b"default"[..]));
    assert_eq!(users.get(b"k").unwrap().as_deref(), Some(&b"users"[..]));
    assert!(matches!(
        db.create_column_family("users", CfOptions::default()),
        Err(Error::InvalidArgument(_))
    ));
    drop(users);
    db.close().unwrap();

    let db = Db::open(dir.path(), Options::default()).unwrap();
    assert_eq!(db.column_families(), ["default", "users"]);
    let users = db.column_family("users").unwrap();
    assert_eq!(users.get(b"k").unwrap().as_deref(), Some(&b"users"[..]));
    assert!(db.drop_column_family("default").is_err());
    db.drop_column_family("users").unwrap();
    assert!(matches!(users.put(b"k", b"v"), Err(Error::NoSuchFamily(_))));
    assert!(db.column_family("users").is_none());
    let mut batch = WriteBatch::new();
    batch.put_cf(&users, b"k", b"late");
    assert!(matches!(db.write(batch), Err(Error::NoSuchFamily(_))));
    drop(users);
    db.close().unwrap();

    let db = Db::open(dir.path(), Options::default()).unwrap();
    assert_eq!(db.column_families(), ["default"]);
    assert_eq!(db.get(b"k").unwrap().as_deref(), Some(&b"default"[..]));
}

#[test]
fn a_family_that_is_seldom_written_does_not_keep_the_log_for_ever() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = Options { memory_budget: 4 << 20, ..Options::default() };
    options.advanced.memtable_bytes = 64 << 10;
    let db = Db::open(dir.path(), options).unwrap();
    let rare = db.create_column_family("rare", CfOptions::default()).unwrap();
    rare.put(b"once", b"value").unwrap();
    let bound = 4 * (1 << 20) + (2 << 20);
    for n in 0..120_000u32 {
        db.put(n.to_be_bytes(), [7; 100]).unwrap();
    }
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while db.metrics().live_log_bytes > bound {
        assert!(std::time::Instant::now() < deadline, "{} log bytes", db.metrics().live_log_bytes);
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(rare.get(b"once").unwrap().as_deref(), Some(&b"value"[..]));
}
