//! Builds with all features and with fewer: what a build lacks is refused by the name of the feature, and never taken for
//! damage. `cargo xtask test features` runs this without any.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

use std::path::Path;
use terrace::{CfOptions, Compression, Db, Error, Options};

const CODECS: [Compression; 2] = [Compression::Lz4, Compression::Zstd];

/// A store of which the families `lz4` and `zstd` are compressed so.
fn copy_of_fixture() -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/v1");
    for entry in std::fs::read_dir(fixture).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    copy
}

/// Every entry is read whole.
fn scan(db: &Db, family: &str) -> terrace::Result<usize> {
    let family = db.column_family(family).unwrap();
    let mut count = 0;
    for entry in family.iter()?.entries() {
        entry?;
        count += 1;
    }
    Ok(count)
}

#[test]
fn a_store_with_default_options_works_in_every_build() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { memory_budget: 8 << 20, ..Options::default() };
    let db = Db::open(dir.path(), options.clone()).unwrap();
    let key = |n: u32| format!("key{n:05}");
    for n in 0..5000 {
        db.put(key(n), vec![n as u8; 50 + n as usize % 2000]).unwrap();
    }
    db.flush().unwrap();
    db.compact_range::<&[u8]>(..).unwrap();
    db.close().unwrap();
    let db = Db::open(dir.path(), options).unwrap();
    let keys: Vec<String> = (0..5000).map(key).collect();
    for (n, value) in db.multi_get(&keys).unwrap().into_iter().enumerate() {
        assert_eq!(value.as_deref(), Some(&vec![n as u8; 50 + n % 2000][..]), "{n}");
    }
    db.verify().unwrap();
    #[cfg(feature = "metrics")]
    assert!(db.metrics().to_prometheus().contains("terrace_flushes_total"));
}

#[test]
fn compression_that_is_not_built_in_is_refused_at_the_open() {
    let family = |blocks, values| CfOptions {
        compression: vec![Compression::None, blocks],
        value_compression: values,
        ..CfOptions::default()
    };
    for codec in CODECS {
        for (option, family) in [
            ("compression is", family(codec, Compression::None)),
            ("value_compression is", family(Compression::None, codec)),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let options = Options { default_family: family, ..Options::default() };
            let opened = Db::open(dir.path(), options);
            if codec.is_built_in() {
                opened.unwrap();
                continue;
            }
            let Err(Error::InvalidArgument(why)) = opened else { panic!("{option} {codec:?}") };
            let names_it = why.starts_with(option) && why.contains(codec.name());
            assert!(names_it && why.contains("feature"), "{why}");
        }
    }
}

#[test]
fn data_that_this_build_cannot_decompress_is_not_taken_for_damage() {
    let copy = copy_of_fixture();
    let db = Db::open(copy.path(), Options::default()).unwrap();
    let all = scan(&db, "default").unwrap();
    assert!(all > 1000, "{all}");
    for codec in CODECS {
        let read = scan(&db, codec.name());
        if codec.is_built_in() {
            assert_eq!(read.unwrap(), all);
            continue;
        }
        let Err(Error::Unsupported(why)) = read else { panic!("{codec:?}: {read:?}") };
        assert!(why.to_string().contains(&format!("feature `{}`", codec.name())), "{why}");
        let family = db.column_family(codec.name()).unwrap();
        assert!(family.compact_range::<&[u8]>(..).is_err());
        assert!(!db.metrics().poisoned, "{}", db.metrics());
    }
    // What can be read and written still is.
    db.put(b"new", b"written").unwrap();
    db.flush().unwrap();
    assert_eq!(scan(&db, "default").unwrap(), all + 1);
    db.close().unwrap();
}
