//! Format version 1 is frozen: a store written when it was must open, and read the same, for ever.
//!
//! The fixture under `tests/fixtures/v1` has every kind of file and of content: SSTs of all
//! compressions with all kinds of filters, models, range tombstones and expiries, value segments of
//! both origins, a log that was never flushed, several column families, a deleted family. A build
//! that has to change it has to change the format version first.

use crate::basics::copy_without_lock;
use std::path::{Path, PathBuf};
use std::time::Duration;
use terrace::{CfOptions, Compression, Db, Options, RepairOptions};

/// Families with what differs between them: compression and filter.
const FAMILIES: [(&str, Compression, &str); 5] = [
    ("default", Compression::None, "ribbon:16"),
    ("lz4", Compression::Lz4, "blocked:10"),
    ("zstd", Compression::Zstd, "bloom:4x6"),
    ("paired", Compression::Lz4, "paired:23.4"),
    ("bare", Compression::None, "none"),
];

const KEYS: u64 = 1500;
/// Keys that were written after the last flush.
const LATE: std::ops::Range<u64> = 100..140;
/// Keys under a range tombstone, and the later ones among them that were written again.
const ERASED: std::ops::Range<u64> = 600..700;
const REWRITTEN: std::ops::Range<u64> = 650..660;
/// Longer than any build of version 1 will be read.
const TTL: Duration = Duration::from_secs(400 * 365 * 86_400);

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/v1")
}

fn options() -> Options {
    let family = |compression, filter: &str| CfOptions {
        compression: vec![compression],
        filter: vec![filter.parse().unwrap()],
        value_compression: compression,
        value_separation_threshold: 600,
        ..CfOptions::default()
    };
    let (_, compression, filter) = FAMILIES[0];
    let mut options = Options { memory_budget: 16 << 20, ..Options::default() };
    options.default_family = family(compression, filter);
    options.column_families = FAMILIES[1..]
        .iter()
        .map(|(name, compression, filter)| (name.to_string(), family(*compression, filter)))
        .collect();
    options.advanced.reserve_bytes = 0;
    options.advanced.segment_bytes = 16 << 10;
    options.advanced.target_file_bytes = 32 << 10;
    // Many blocks, so that models pay.
    options.advanced.block_size = 256;
    options.advanced.compact_when_idle = false;
    options
}

fn key(n: u64) -> Vec<u8> {
    format!("key/{:07}", n * 37).into_bytes()
}

fn value(n: u64, round: u64) -> Vec<u8> {
    // One in fifty is separated.
    let len = if n % 50 == 7 { 700 } else { 12 + n % 9 };
    let text = format!("{n}.{round} ");
    text.bytes().cycle().take(len as usize).collect()
}

/// What the fixture holds under key `n`.
fn expected(n: u64) -> Option<Vec<u8>> {
    match n {
        n if LATE.contains(&n) => Some(value(n, 3)),
        n if REWRITTEN.contains(&n) => Some(value(n, 2)),
        n if ERASED.contains(&n) || n % 11 == 3 => None,
        n => Some(value(n, 1)),
    }
}

fn check(db: &Db) {
    for (name, ..) in FAMILIES {
        let family = db.column_family(name).unwrap();
        for n in 0..KEYS {
            assert_eq!(
                family.get(key(n)).unwrap().as_deref(),
                expected(n).as_deref(),
                "{name} {n}"
            );
            assert!(family.get(format!("key/{:07}", n * 37 + 1)).unwrap().is_none());
        }
        let want = (0..KEYS).filter_map(|n| expected(n).map(|value| (key(n), value)));
        let found = family.iter().unwrap().entries().map(|entry| entry.unwrap());
        assert!(found.eq(want), "a scan of {name}");
    }
    assert!(db.column_family("dropped").is_none());
    db.verify().unwrap();
}

/// Its SSTs do not say whose they are. All families have the same content.
#[test]
fn without_its_manifest_it_is_repaired_into_a_family_that_is_called_unknown() {
    let copy = copy();
    for entry in std::fs::read_dir(copy.path()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if name == "CURRENT" || name.starts_with("MANIFEST") {
            std::fs::remove_file(&path).unwrap();
        }
    }
    let report = terrace::repair(copy.path(), options(), RepairOptions::default()).unwrap();
    assert!(report.lost.iter().any(|line| line.contains("`unknown`")), "{report:?}");
    let db = Db::open(copy.path(), Options { column_families: Vec::new(), ..options() }).unwrap();
    let unknown = db.column_family("unknown").unwrap();
    for n in (0..KEYS).filter(|n| !LATE.contains(n)) {
        assert_eq!(unknown.get(key(n)).unwrap().as_deref(), expected(n).as_deref(), "{n}");
    }
    // What was never flushed.
    for n in LATE {
        assert_eq!(db.get(key(n)).unwrap().as_deref(), expected(n).as_deref(), "{n}");
    }
    db.verify().unwrap();
}

fn copy() -> tempfile::TempDir {
    copy_without_lock(&directory())
}

#[test]
fn a_store_of_format_version_1_opens_and_reads_the_same() {
    let copy = copy();
    check(&Db::open_read_only(copy.path(), options()).unwrap());
    let db = Db::open(copy.path(), options()).unwrap();
    check(&db);
    // Its values can be moved and its files merged.
    db.collect_garbage(0.0).unwrap();
    for (name, ..) in FAMILIES {
        db.column_family(name).unwrap().compact_range::<&[u8]>(..).unwrap();
    }
    check(&db);
    db.close().unwrap();
    check(&Db::open(copy.path(), Options::default()).unwrap());
    // From the first open for writing on it has evidence of what was synced, and needs it.
    let manifest = std::fs::read_dir(copy.path()).unwrap().map(|entry| entry.unwrap().path());
    let manifest = manifest.filter(|path| path.to_string_lossy().contains("MANIFEST-"));
    let manifest = manifest.last().unwrap();
    let len = std::fs::metadata(&manifest).unwrap().len();
    std::fs::OpenOptions::new().write(true).open(&manifest).unwrap().set_len(len - 30).unwrap();
    assert!(Db::open(copy.path(), Options::default()).is_err());
}

#[test]
fn the_fixture_has_every_kind_of_file() {
    let names: Vec<String> = std::fs::read_dir(directory())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    for end in [".sst", ".log", ".vlog", "CURRENT"] {
        assert!(names.iter().any(|name| name.ends_with(end)), "{end}: {names:?}");
    }
    assert!(names.iter().any(|name| name.starts_with("MANIFEST-")), "{names:?}");
    let db = Db::open_read_only(copy().keep(), options()).unwrap();
    let m = db.metrics();
    assert!(
        m.value_segments >= 2 && m.levels[0].file_count > 0 && m.levels[6].file_count > 0,
        "{m}"
    );
    assert!(m.memtable_bytes > 0, "there are writes in the log: {m}");
    check(&db);
    let m = db.metrics();
    assert!(m.reads.lookups_by_model > 0, "there are models: {m}");
}

/// Makes the fixture anew: only together with a new format version.
#[test]
#[ignore = "writes the fixture"]
fn make_the_fixture() {
    let dir = directory();
    let _ = std::fs::remove_dir_all(&dir);
    let db = Db::open(&dir, options()).unwrap();
    let dropped = db.create_column_family("dropped", CfOptions::default()).unwrap();
    dropped.put(b"gone", vec![1; 5000]).unwrap();
    for (name, ..) in FAMILIES {
        let family = db.column_family(name).unwrap();
        for n in 0..KEYS {
            family.put(key(n * 7 % KEYS), value(n * 7 % KEYS, 0)).unwrap();
        }
    }
    db.flush().unwrap();
    for (name, ..) in FAMILIES {
        let family = db.column_family(name).unwrap();
        for n in 0..KEYS {
            match n % 5 {
                0 => family.put_with_ttl(key(n), value(n, 1), TTL).unwrap(),
                _ => family.put(key(n), value(n, 1)).unwrap(),
            }
        }
        for n in (0..KEYS).filter(|n| n % 11 == 3) {
            family.delete(key(n)).unwrap();
        }
    }
    db.flush().unwrap();
    // Moves values of the first round's segments.
    db.collect_garbage(0.0).unwrap();
    for (name, ..) in FAMILIES {
        db.column_family(name).unwrap().compact_range::<&[u8]>(..).unwrap();
    }
    db.drop_column_family("dropped").unwrap();
    for (name, ..) in FAMILIES {
        let family = db.column_family(name).unwrap();
        family.delete_range(key(ERASED.start), key(ERASED.end)).unwrap();
        for n in REWRITTEN {
            family.put(key(n), value(n, 2)).unwrap();
        }
    }
    db.flush().unwrap();
    for (name, ..) in FAMILIES {
        let family = db.column_family(name).unwrap();
        for n in LATE {
            family.put(key(n), value(n, 3)).unwrap();
        }
    }
    std::mem::forget(db);
    std::fs::remove_file(dir.join("LOCK")).unwrap();
}
