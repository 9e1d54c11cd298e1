//! Conflicts inside one write group and between the two checks, and what a check costs: what only
//! an inside view can arrange.

use super::*;
use crate::batch::Separation;
use crate::error::Error;
use crate::options::{CfOptions, Options, SyncMode};
use crate::tests::until;
use crate::write::queue::Pending;
use terrace_base::sync::Origin;

mod merged;

type Write<'a> = Box<dyn FnOnce() -> Result<()> + Send + 'a>;

fn open() -> (tempfile::TempDir, Db) {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), Options { memory_budget: 16 << 20, ..Options::default() });
    (dir, db.unwrap())
}

fn reads_of(db: &Db, cf: &ColumnFamily, keys: &[&str]) -> ReadSet {
    let mut reads = db.read_set();
    keys.iter().for_each(|key| reads.watch(cf, key));
    reads
}

/// Puts `puts` if `reads` did not change.
fn checked<'a>(db: &'a Db, reads: &'a ReadSet, puts: &'a [&'a str]) -> Write<'a> {
    Box::new(|| {
        let mut batch = WriteBatch::new();
        puts.iter().for_each(|key| batch.put(key, b"value"));
        db.write_if_unchanged(batch, reads, &WriteOptions::default())
    })
}

/// Lets the writes queue in this order, checked ahead but none of them written, and then go on.
fn queued_together(db: &Db, writes: Vec<Write<'_>>) -> Vec<Result<()>> {
    let queue = db.inner().commit.queue().unwrap();
    std::thread::scope(|scope| {
        let lead = queue.lead();
        let mut threads = Vec::new();
        for write in writes {
            threads.push(scope.spawn(write));
            until("a write queues", || queue.waiting() == threads.len());
        }
        drop(lead);
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// `+` for a write that was done, `C` for a conflict.
fn outcomes(results: &[Result<()>]) -> String {
    let sign = |result: &Result<()>| match result {
        Ok(()) => '+',
        Err(Error::Conflict) => 'C',
        Err(error) => panic!("{error}"),
    };
    results.iter().map(sign).collect()
}

#[test]
fn within_a_group_a_batch_sees_those_before_it_that_are_written() {
    let (_dir, db) = open();
    let cf = db.default_family();
    let other = db.create_column_family("other", CfOptions::default()).unwrap();
    let of = |keys: &[&str]| reads_of(&db, &cf, keys);
    let (a, b, c, m) = (of(&["x", "a"]), of(&["b"]), of(&["c"]), of(&["m"]));
    let (z, m_of_other) = (of(&["z"]), reads_of(&db, &other, &["m", "blind"]));
    let blind = of(&["blind"]);
    let groups = db.metrics().groups;
    let results = queued_together(
        &db,
        vec![
            checked(&db, &a, &["a"]),
            // Lost updates, if they were written.
            checked(&db, &a, &["a", "b"]),
            checked(&db, &a, &["a"]),
            // "b" was written only by a batch that is not.
            checked(&db, &b, &["b"]),
            Box::new(|| db.put(b"blind", b"value")),
            checked(&db, &blind, &["d"]),
            checked(&db, &c, &["c"]),
            Box::new(|| db.delete_range(b"k", b"z")),
            checked(&db, &m, &["e"]),
            // The end of the range, and other keys of the same bytes.
            checked(&db, &z, &["z"]),
            checked(&db, &m_of_other, &["f"]),
        ],
    );
    assert_eq!(outcomes(&results), "+CC++C++C++");
    let metrics = db.metrics();
    assert_eq!((metrics.groups - groups, metrics.conflicts), (1, 4));
    for key in ["a", "b", "blind", "c", "z", "f"] {
        assert!(db.get(key).unwrap().is_some(), "{key} is missing");
    }
    for key in ["d", "e"] {
        assert!(db.get(key).unwrap().is_none(), "{key} was written in spite of a conflict");
    }
}

#[test]
fn a_leader_that_is_refused_writes_the_others_and_each_hears_its_own_fate() {
    let (_dir, db) = open();
    let cf = db.default_family();
    let (k, free, l) = (
        reads_of(&db, &cf, &["k"]),
        reads_of(&db, &cf, &["free"]),
        reads_of(&db, &cf, &["k", "l"]),
    );
    // Larger than a group, so the next one leads a group of its own.
    let large = vec![7; 2 << 20];
    let groups = db.metrics().groups;
    let results = queued_together(
        &db,
        vec![
            Box::new(|| db.put(b"k", &large)),
            checked(&db, &k, &["refused leader"]),
            checked(&db, &free, &["one"]),
            checked(&db, &l, &["refused in the middle"]),
            Box::new(|| db.put(b"two", b"")),
        ],
    );
    assert_eq!(outcomes(&results), "+C+C+");
    assert_eq!(db.metrics().groups - groups, 2);
    assert!(db.get(b"one").unwrap().is_some() && db.get(b"two").unwrap().is_some());
    assert!(db.get(b"refused leader").unwrap().is_none());

    // A group of which nothing is left.
    let again = reads_of(&db, &cf, &["k"]);
    let results = queued_together(
        &db,
        vec![
            Box::new(|| db.put(b"k", &large)),
            checked(&db, &again, &["three"]),
            checked(&db, &again, &["four"]),
        ],
    );
    assert_eq!(outcomes(&results), "+CC");
    db.put(b"the queue goes on", b"").unwrap();
}

#[test]
fn what_is_flushed_and_merged_between_the_two_checks_is_seen() {
    let (_dir, db) = open();
    let cf = db.default_family();
    for key in ["put", "deleted", "in a range", "quiet"] {
        db.put(key, b"old").unwrap();
    }
    let keys = ["put", "deleted", "in a range", "quiet"];
    let pending = |key: &str| {
        let reads = validate::ahead(&db.inner().read, &reads_of(&db, &cf, &[key])).unwrap();
        let mut batch = WriteBatch::new();
        batch.put(b"result", b"");
        batch.seal(&*db.inner().base.clock, &|_| Separation::DEFAULT).unwrap();
        Pending { batch, sync: SyncMode::None, reads: Some(reads), origin: Origin::here() }
    };
    // Somebody else's snapshot keeps merges from going further than with any read set.
    let group: Vec<Pending> = keys.iter().map(|key| pending(key)).collect();
    let _held = db.snapshot();
    db.put(b"put", b"new").unwrap();
    db.delete(b"deleted").unwrap();
    db.delete_range(b"in", b"io").unwrap();
    for step in 0..3 {
        let refused = validate::refusals(&db.inner().read, &group, |_| false);
        let indices: Vec<usize> = refused.iter().map(|(index, _)| *index).collect();
        assert_eq!(indices, [0, 1, 2], "step {step}");
        match step {
            0 => db.flush().unwrap(),
            _ => db.compact_range::<&[u8]>(..).unwrap(),
        }
    }
}

/// As one for which the full disk has no room.
#[test]
fn what_is_refused_for_another_reason_is_no_conflict_for_those_behind_it() {
    let (_dir, db) = open();
    let cf = db.default_family();
    let pending = || {
        let reads = validate::ahead(&db.inner().read, &reads_of(&db, &cf, &["key"])).unwrap();
        let mut batch = WriteBatch::new();
        batch.put(b"key", b"");
        batch.seal(&*db.inner().base.clock, &|_| Separation::DEFAULT).unwrap();
        Pending { batch, sync: SyncMode::None, reads: Some(reads), origin: Origin::here() }
    };
    let group = [pending(), pending(), pending()];
    for (gone, conflicts) in [(None, &[1, 2][..]), (Some(0), &[2][..]), (Some(1), &[1, 2][..])] {
        let refused = validate::refusals(&db.inner().read, &group, |index| Some(index) == gone);
        let indices: Vec<usize> = refused.iter().map(|(index, _)| *index).collect();
        assert_eq!(indices, conflicts, "without {gone:?}");
    }
}

#[test]
fn a_check_asks_no_sst_that_is_older_than_the_reads() {
    let (_dir, db) = open();
    let cf = db.default_family();
    let keys: Vec<String> = (0..500).map(|n| format!("key {n}")).collect();
    keys.iter().for_each(|key| db.put(key, b"value").unwrap());
    db.flush().unwrap();
    // What is in L0 may be merged when nothing else is to be done, and that reads. Filters are waited for a while only.
    until("filters come to rest", || {
        db.wait_idle().unwrap();
        !db.inner().read.filters.has_work(true)
    });
    let mut reads = db.read_set();
    keys.iter().for_each(|key| reads.watch(&cf, key));
    assert_eq!(reads.len(), 500);
    let looked = || {
        let m = db.metrics();
        m.reads.filter_checks
            + m.reads.data_block_hits
            + m.reads.data_block_misses
            + m.reads.device_reads
    };
    let before = looked();
    let write = |key: &str| {
        let mut batch = WriteBatch::new();
        batch.put(key, b"");
        db.write_if_unchanged(batch, &reads, &WriteOptions::default())
    };
    write("another").unwrap();
    write("zebra").unwrap();
    assert_eq!(looked(), before);
    // Something newer was flushed, around the keys: now its file is asked.
    db.flush().unwrap();
    write("another").unwrap();
    assert!(looked() > before);
    write("key 7").unwrap();
    assert!(matches!(write("another"), Err(Error::Conflict)));
}

#[test]
fn within_a_group_a_range_that_was_read_is_touched_by_those_before() {
    let (_dir, db) = open();
    let cf = db.default_family();
    let other = db.create_column_family("other", CfOptions::default()).unwrap();
    let of = |cf: &ColumnFamily, from: &str, to: &str| {
        let mut reads = db.read_set();
        reads.watch_range(cf, from..to);
        reads
    };
    let none = db.read_set();
    let sets = [of(&cf, "m", "n"), of(&cf, "a", "b"), of(&other, "m", "n"), of(&cf, "m1", "m2")];
    let results = queued_together(
        &db,
        vec![
            checked(&db, &none, &["m"]),
            checked(&db, &sets[0], &["refused"]),
            checked(&db, &sets[1], &["m3"]),
            checked(&db, &sets[2], &["b"]),
            checked(&db, &sets[3], &["x"]),
        ],
    );
    assert_eq!(outcomes(&results), "+C+++");
    // Now all of that is in the memtable.
    let unchanged = sets.map(|set| db.is_unchanged(&set).unwrap());
    assert_eq!(unchanged, [false, true, true, true]);
    // A range delete of the group, over a part.
    let reads = of(&cf, "p", "q");
    let delete: Write<'_> = Box::new(|| {
        let mut batch = WriteBatch::new();
        batch.delete_range(b"p7", b"z");
        db.write_if_unchanged(batch, &none, &WriteOptions::default())
    });
    let results = queued_together(&db, vec![delete, checked(&db, &reads, &["z"])]);
    assert_eq!(outcomes(&results), "+C");
}
