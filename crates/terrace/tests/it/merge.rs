//! Merge operators: what is refused, what is kept, and what reads and compactions make of operands. The
//! random workloads of the harness merge, too.

use crate::harness::{Bomb, DIR, stopped_clock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use terrace::vfs::SimVfs;
use terrace::{
    AppendOperator, CfOptions, CounterOperator, Db, Error, HotTableMode, MaxOperator, MergeError,
    MergeOperator, Options, ReadOptions, RepairOptions, WriteBatch, associative,
    builtin_merge_operator, repair,
};
use terrace_base::ManualClock;
use terrace_buf::Slice;

fn options(vfs: &SimVfs, operator: Option<Arc<dyn MergeOperator>>) -> Options {
    let mut options = Options { memory_budget: 4 << 20, ..Options::default() };
    options.default_family.merge_operator = operator;
    options.default_family.value_separation_threshold = 100;
    options.advanced.vfs = Arc::new(vfs.clone());
    options.advanced.clock = Arc::new(stopped_clock());
    options.advanced.compact_when_idle = false;
    options.advanced.l0_compaction_trigger = 100;
    options.advanced.l0_slowdown = 200;
    options.advanced.l0_stop = 300;
    options
}

fn append() -> Option<Arc<dyn MergeOperator>> {
    Some(Arc::new(AppendOperator::new("+")))
}

fn get(db: &Db, key: &str) -> Option<String> {
    let value = db.get(key).unwrap();
    let many = db.multi_get(&[key.as_bytes(), b"absent"]).unwrap();
    assert_eq!(many[0].as_deref(), value.as_deref());
    assert!(many[1].is_none());
    value.map(|value| String::from_utf8_lossy(&value).into_owned())
}

fn entries_of_the_store(db: &Db) -> u64 {
    let shape = db.shape();
    shape.families.iter().flat_map(|f| f.levels.iter().flatten()).map(|f| f.entry_count).sum()
}

#[test]
fn operands_count_once_whatever_lies_between_them() {
    let vfs = SimVfs::new(1);
    let db = Db::open(DIR, options(&vfs, append())).unwrap();
    let large = "v".repeat(300);
    db.put("k", &large).unwrap();
    db.merge("k", "1").unwrap();
    db.flush().unwrap();
    db.merge("k", "2").unwrap();
    let before = db.snapshot();
    db.merge("k", "3").unwrap();
    db.flush().unwrap();
    db.merge("k", "4").unwrap();
    assert_eq!(get(&db, "k").unwrap(), format!("{large}+1+2+3+4"));
    let at = ReadOptions { snapshot: Some(before), ..ReadOptions::default() };
    let seen = || db.get_with("k", &at).unwrap().unwrap().to_vec();
    assert_eq!(seen(), format!("{large}+1+2").into_bytes());
    db.compact_range::<&[u8]>(..).unwrap();
    assert_eq!(seen(), format!("{large}+1+2").into_bytes());
    assert_eq!(get(&db, "k").unwrap(), format!("{large}+1+2+3+4"));
    drop(at);
    db.compact_range::<&[u8]>(..).unwrap();
    db.merge("k", "5").unwrap();
    db.delete("k").unwrap();
    db.merge("k", "6").unwrap();
    assert_eq!(get(&db, "k").unwrap(), "6");
    db.delete_range("a", "z").unwrap();
    assert_eq!(get(&db, "k"), None);
    db.merge("k", "7").unwrap();
    db.compact_range::<&[u8]>(..).unwrap();
    assert_eq!(get(&db, "k").unwrap(), "7");
    db.close().unwrap();
}

#[test]
fn a_compaction_leaves_one_entry_of_a_thousand_increments() {
    let vfs = SimVfs::new(1);
    let db = Db::open(DIR, options(&vfs, Some(Arc::new(CounterOperator)))).unwrap();
    for round in 0..10 {
        let mut batch = WriteBatch::new();
        (0..100).for_each(|_| batch.merge("hits", CounterOperator::encode(2)));
        db.write(batch).unwrap();
        if round % 3 == 0 {
            db.flush().unwrap();
        }
    }
    let hits = || CounterOperator::decode(&db.get("hits").unwrap().unwrap());
    assert_eq!(hits(), Some(2000));
    db.flush().unwrap();
    assert_eq!(entries_of_the_store(&db), 4, "a flush makes one operand of several");
    db.compact_range::<&[u8]>(..).unwrap();
    assert_eq!(entries_of_the_store(&db), 1);
    assert_eq!(hits(), Some(2000));
    db.close().unwrap();
}

#[test]
fn the_stored_operator_is_the_one_that_counts() {
    let vfs = SimVfs::new(1);
    let own = || associative("own", |_, _, operand| Ok(operand.to_vec()));
    let db = Db::open(DIR, options(&vfs, None)).unwrap();
    assert!(matches!(db.merge("k", "1"), Err(Error::InvalidArgument(_))));
    let mut batch = WriteBatch::new();
    batch.put("other", "1");
    batch.merge("k", "1");
    assert!(matches!(db.write(batch), Err(Error::InvalidArgument(_))));
    assert_eq!(get(&db, "other"), None, "all of a batch or nothing");
    db.close().unwrap();
    // Given once, it is there for good.
    let db = Db::open(DIR, options(&vfs, append())).unwrap();
    let with_own = CfOptions { merge_operator: Some(own()), ..CfOptions::default() };
    let family = db.create_column_family("own", with_own.clone()).unwrap();
    family.merge("k", "mine").unwrap();
    db.merge("k", "1").unwrap();
    db.close().unwrap();
    let refused = |operator, family: Option<&CfOptions>| {
        let mut options = options(&vfs, operator);
        options.column_families.extend(family.map(|family| ("own".to_string(), family.clone())));
        match Db::open(DIR, options) {
            Err(Error::InvalidArgument(text)) => text,
            opened => panic!("{:?}", opened.map(drop)),
        }
    };
    let text = refused(None, None);
    assert!(text.contains("`own`") && text.contains("none was given"), "{text}");
    let text = refused(Some(Arc::new(MaxOperator)), Some(&with_own));
    assert!(text.contains("`append:+`") && text.contains("`max` was given"), "{text}");
    // A built-in one is known by its name.
    let mut known = options(&vfs, None);
    known.column_families = vec![("own".to_string(), with_own)];
    for db in [Db::open(DIR, known.clone()), Db::open_read_only(DIR, known)] {
        let db = db.unwrap();
        assert_eq!(get(&db, "k").unwrap(), "1");
        let own = db.column_family("own").unwrap();
        assert_eq!(own.get("k").unwrap().as_deref(), Some(&b"mine"[..]));
        db.close().unwrap();
    }
}

#[test]
fn a_reader_learns_of_the_operator_that_its_writer_was_given_since() {
    let vfs = SimVfs::new(1);
    let db = Db::open(DIR, options(&vfs, None)).unwrap();
    db.put("k", "1").unwrap();
    db.close().unwrap();
    let reader = Db::open_read_only(DIR, options(&vfs, None)).unwrap();
    let before = reader.snapshot();
    let db = Db::open(DIR, options(&vfs, append())).unwrap();
    db.merge("k", "2").unwrap();
    assert!(reader.refresh().unwrap());
    assert_eq!(get(&reader, "k").unwrap(), "1+2");
    assert_eq!(reader.default_family().merge_operator(), Some("append:+"));
    let at_before = ReadOptions { snapshot: Some(before), ..ReadOptions::default() };
    assert_eq!(reader.get_with("k", &at_before).unwrap().as_deref(), Some(&b"1"[..]));
    db.close().unwrap();
}

#[test]
fn what_an_operator_refuses_is_kept_until_it_takes_it() {
    static REFUSES: AtomicBool = AtomicBool::new(true);
    let moody = associative("moody", |_, existing, operand| match REFUSES.load(Ordering::SeqCst) {
        true => Err(MergeError("not today".into())),
        false => Ok([existing.unwrap_or_default(), operand].concat()),
    });
    let vfs = SimVfs::new(1);
    let db = Db::open(DIR, options(&vfs, Some(moody))).unwrap();
    db.put("k", "a").unwrap();
    for operand in ["b", "c"] {
        db.merge("k", operand).unwrap();
        db.flush().unwrap();
    }
    db.put("l", "sound").unwrap();
    db.compact_range::<&[u8]>(..).unwrap();
    assert!(matches!(db.get("k"), Err(Error::MergeFailed(text)) if text.contains("not today")));
    assert!(matches!(db.multi_get(&["k", "l"]), Err(Error::MergeFailed(_))));
    let mut iter = db.iter().unwrap();
    assert!(matches!(iter.seek_to_first(), Err(Error::MergeFailed(_))));
    iter.seek(b"l").unwrap();
    assert_eq!(iter.value(), b"sound");
    let keys = ReadOptions { keys_only: true, ..ReadOptions::default() };
    assert_eq!(db.iter_with(&keys).unwrap().entries().count(), 2);
    REFUSES.store(false, Ordering::SeqCst);
    assert_eq!(get(&db, "k").unwrap(), "abc");
    db.compact_range::<&[u8]>(..).unwrap();
    assert_eq!(get(&db, "k").unwrap(), "abc");
    drop(iter);
    db.close().unwrap();
}

#[test]
fn operands_on_a_value_that_expires_count_from_nothing_then() {
    let vfs = SimVfs::new(1);
    let clock: ManualClock = stopped_clock();
    let mut options = options(&vfs, append());
    options.advanced.clock = Arc::new(clock.clone());
    let db = Db::open(DIR, options).unwrap();
    db.put_with_ttl("k", "lease", Duration::from_secs(5)).unwrap();
    db.merge("k", "1").unwrap();
    db.flush().unwrap();
    db.merge("k", "2").unwrap();
    db.compact_range::<&[u8]>(..).unwrap();
    assert_eq!(get(&db, "k").unwrap(), "lease+1+2");
    clock.advance(5_000);
    assert_eq!(get(&db, "k").unwrap(), "1+2");
    db.compact_range::<&[u8]>(..).unwrap();
    assert_eq!(get(&db, "k").unwrap(), "1+2");
    assert_eq!(db.get_entry("k", &ReadOptions::default()).unwrap().unwrap().expires_at_ms, None);
    db.close().unwrap();
}

#[test]
fn a_transaction_sees_its_own_operands_and_conflicts_only_if_it_read() {
    let vfs = SimVfs::new(1);
    let db = Db::open(DIR, options(&vfs, append())).unwrap();
    db.put("k", "0").unwrap();
    let mut blind = db.transaction();
    blind.merge("k", "blind");
    let mut reads = db.transaction();
    reads.merge("k", "1");
    let point = reads.save_point();
    reads.merge("k", "2");
    assert_eq!(reads.get("k").unwrap().as_deref(), Some(&b"0+1+2"[..]));
    reads.roll_back_to(point);
    assert_eq!(reads.get("k").unwrap().as_deref(), Some(&b"0+1"[..]));
    db.merge("k", "between").unwrap();
    blind.commit().unwrap();
    assert!(matches!(reads.commit(), Err(Error::Conflict)));
    let mut fresh = db.transaction();
    fresh.delete_range("a", "z");
    fresh.merge("k", "x");
    fresh.merge("k", "y");
    assert_eq!(fresh.get("k").unwrap().as_deref(), Some(&b"x+y"[..]));
    db.put("k", "meanwhile").unwrap();
    fresh.commit().unwrap();
    assert_eq!(get(&db, "k").unwrap(), "x+y");
    db.close().unwrap();
}

#[test]
fn a_family_with_an_operator_has_no_hot_table() {
    let vfs = SimVfs::new(1);
    let mut options = options(&vfs, append());
    options.advanced.hot_table = HotTableMode::Auto;
    options.advanced.memtable_bytes = 16 << 10;
    let plain = CfOptions::default();
    options.column_families = vec![("plain".into(), plain)];
    let db = Db::open(DIR, options.clone()).unwrap();
    let plain = db.column_family("plain").unwrap();
    let mut want = String::new();
    for round in 0..400 {
        plain.put("hot", format!("{round}")).unwrap();
        db.merge("hot", "x").unwrap();
        want.push_str(if round == 0 { "x" } else { "+x" });
        if round % 50 == 49 {
            db.put("filler", "f".repeat(90)).unwrap();
            db.flush().unwrap();
        }
    }
    assert_eq!(get(&db, "hot").unwrap(), want);
    // As after a killed process: the log is replayed.
    std::mem::forget(db);
    let image = vfs.kill_image();
    options.advanced.vfs = Arc::new(image);
    let db = Db::open(DIR, options).unwrap();
    let got = get(&db, "hot").unwrap_or_default();
    assert!(want.starts_with(&got) && got.len() % 2 == 1, "no operand twice: {}", got.len());
    db.close().unwrap();
}

#[test]
fn a_repair_without_the_operator_keeps_operands_and_counts_none_twice() {
    let own = || {
        Some(associative("own", |_, existing, operand| {
            Ok([existing.unwrap_or_default(), operand].concat())
        }))
    };
    let vfs = SimVfs::new(1);
    let db = Db::open(DIR, options(&vfs, own())).unwrap();
    db.put("k", "a").unwrap();
    for operand in ["b", "c", "d"] {
        db.flush().unwrap();
        db.merge("k", operand).unwrap();
    }
    db.flush().unwrap();
    // Keeps the inputs of the compaction in the directory.
    let mut iter = db.iter().unwrap();
    iter.seek_to_first().unwrap();
    db.compact_range::<&[u8]>(..).unwrap();
    db.merge("k", "e").unwrap();
    db.sync().unwrap();
    let image = vfs.kill_image();
    drop(iter);
    db.close().unwrap();
    let with = |operator| {
        let mut options = options(&vfs, operator);
        options.advanced.vfs = Arc::new(image.clone());
        options
    };
    // Nothing says which of the files count any more.
    let names: Vec<String> = with(None).advanced.vfs.list(DIR.as_ref()).unwrap();
    for name in names.iter().filter(|name| name.starts_with("MANIFEST") || *name == "CURRENT") {
        with(None).advanced.vfs.remove(&std::path::Path::new(DIR).join(name)).unwrap();
    }
    repair(DIR, with(None), RepairOptions::default()).unwrap();
    let db = Db::open(DIR, with(own())).unwrap();
    assert_eq!(get(&db, "k").unwrap(), "abcde");
    db.close().unwrap();
}

#[test]
fn built_in_operators_are_those_of_their_names() {
    for name in ["counter", "max", "append", "append: and "] {
        let vfs = SimVfs::new(1);
        let db = Db::open(DIR, options(&vfs, builtin_merge_operator(name))).unwrap();
        db.merge("k", 3i64.to_le_bytes()).unwrap();
        db.merge("k", 4i64.to_le_bytes()).unwrap();
        let got = db.get("k").unwrap().unwrap().to_vec();
        let (three, four) = (3i64.to_le_bytes().to_vec(), 4i64.to_le_bytes().to_vec());
        let want = match name {
            "counter" => 7i64.to_le_bytes().to_vec(),
            "max" => four,
            "append" => [three, four].concat(),
            _ => [three, four].join(&b" and "[..]),
        };
        assert_eq!(got, want, "{name}");
        db.close().unwrap();
    }
}

/// A panic would end the store, and in recovery it would end every open of it.
#[test]
fn an_operator_that_panics_has_refused() {
    let vfs = SimVfs::new(1);
    let bomb = || associative("bomb", |_, _, _| std::panic::panic_any(Bomb));
    let db = Db::open(DIR, options(&vfs, Some(bomb()))).unwrap();
    db.put("k", "a").unwrap();
    db.merge("k", "b").unwrap();
    db.merge("k", "c").unwrap();
    db.put("l", "sound").unwrap();
    let check = |db: &Db| {
        assert!(matches!(db.get("k"), Err(Error::MergeFailed(text)) if text.contains("panicked")));
        assert_eq!(get(db, "l").unwrap(), "sound");
    };
    check(&db);
    // Whole memtables are replayed as well as files.
    let replayed = Db::open(DIR, options(&vfs.kill_image(), Some(bomb()))).unwrap();
    check(&replayed);
    replayed.close().unwrap();
    db.flush().unwrap();
    db.compact_range::<&[u8]>(..).unwrap();
    check(&db);
    db.close().unwrap();
    let joins = associative("bomb", |_, existing, operand| {
        Ok([existing.unwrap_or_default(), operand].concat())
    });
    let db = Db::open(DIR, options(&vfs, Some(joins))).unwrap();
    assert_eq!(get(&db, "k").unwrap(), "abc");
}

#[test]
fn many_reads_fold_the_keys_that_were_asked_for_and_no_others() {
    let refuses = associative("moody", |key, existing, operand| match key {
        b"m" => Err(MergeError("never".into())),
        _ => Ok([existing.unwrap_or_default(), operand].concat()),
    });
    let vfs = SimVfs::new(1);
    let db = Db::open(DIR, options(&vfs, Some(refuses))).unwrap();
    db.put("m", "1").unwrap();
    db.merge("m", "2").unwrap();
    for operand in ["x", "y"] {
        db.merge("a", operand).unwrap();
        let large = operand.repeat(300);
        db.put("large", &large).unwrap();
        let a = if operand == "x" { "x" } else { "xy" };
        let want = |value: &str| Some(value.to_string());
        let read = |keys: &[&str], in_memory| -> Vec<Option<String>> {
            let read = ReadOptions { in_memory, ..ReadOptions::default() };
            let text = |value: Slice| String::from_utf8_lossy(&value).into_owned();
            let many = db.multi_get_with(keys, &read).unwrap();
            many.into_iter().map(|value| value.map(text)).collect()
        };
        for _ in 0..2 {
            let many = read(&["a", "b", "l", "large", "n"], false);
            assert_eq!(many, [want(a), None, None, want(&large), None]);
            if operand == "x" {
                assert_eq!(read(&["a", "b", "l", "n"], true), [want(a), None, None, None]);
            }
            db.flush().unwrap();
        }
    }
    assert!(matches!(db.multi_get(&["a", "m"]), Err(Error::MergeFailed(_))));
}

/// What cannot be read does not count any more.
#[test]
fn a_transaction_scans_over_entries_that_it_has_written_over() {
    let refuses = associative("moody", |key, existing, operand| match key[0] {
        b'm' => Err(MergeError("never".into())),
        _ => Ok([existing.unwrap_or_default(), operand].concat()),
    });
    let vfs = SimVfs::new(1);
    let db = Db::open(DIR, options(&vfs, Some(refuses))).unwrap();
    for key in ["a", "m1", "m2", "m3", "m4", "z"] {
        db.put(key, "1").unwrap();
        db.merge(key, "2").unwrap();
    }
    let mut transaction = db.transaction();
    transaction.put("m1", "mine");
    transaction.delete("m2");
    transaction.delete_range("m3", "m5");
    let seen = |transaction: &mut terrace::Transaction, limit| -> Vec<String> {
        let entries = transaction.scan::<&str>(.., limit).unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        entries.iter().map(|(key, value)| text(key) + "=" + &text(value)).collect()
    };
    assert_eq!(seen(&mut transaction, 10), ["a=12", "m1=mine", "z=12"]);
    assert_eq!(seen(&mut transaction, 2), ["a=12", "m1=mine"]);
    transaction.merge("m5", "3");
    db.put("m5", "1").unwrap();
    let mut other = db.transaction();
    other.put("m1", "mine");
    assert!(matches!(other.scan("m".., 10), Err(Error::MergeFailed(_))));
}
