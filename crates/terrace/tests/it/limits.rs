//! Bad input: a typed error that says what to do, nothing lost.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use terrace::vfs::{SimVfs, Vfs};
use terrace::{Db, Error, FilterPolicy, MAX_KEY_BYTES, Options, SyncMode, WriteBatch};
use terrace_base::{FileNumber, SegmentNumber};
use terrace_manifest::{
    FamilyEdit, FamilyState, FileMeta, Manifest, ManifestState, ValueRef, Version,
};

#[test]
fn keys_and_batches_over_the_limits_are_refused_whole() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), Options::default()).unwrap();
    let longest = vec![b'k'; MAX_KEY_BYTES];
    db.put(&longest, b"v").unwrap();
    assert_eq!(db.get(&longest).unwrap().as_deref(), Some(&b"v"[..]));
    db.put(b"", b"the empty key is a key").unwrap();
    assert!(db.get(b"").unwrap().is_some());
    let mut batch = WriteBatch::new();
    batch.put(b"fine", b"v");
    batch.put(vec![b'k'; MAX_KEY_BYTES + 1], b"v");
    assert!(matches!(db.write(batch), Err(Error::InvalidArgument(_))));
    assert!(db.get(b"fine").unwrap().is_none());
}

#[test]
fn large_values_pass_through_memtable_log_and_sst() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = Options::default();
    options.advanced.memtable_bytes = 1 << 20;
    let db = Db::open(dir.path(), options.clone()).unwrap();
    let large: Vec<u8> = (0..40 << 20).map(|n: u32| (n % 251) as u8).collect();
    db.put(b"large", &large).unwrap();
    db.put(b"after", b"small").unwrap();
    assert_eq!(db.get(b"large").unwrap().as_deref(), Some(&large[..]));
    db.flush().unwrap();
    assert_eq!(db.get(b"large").unwrap().as_deref(), Some(&large[..]));
    db.close().unwrap();
    let db = Db::open(dir.path(), options).unwrap();
    assert_eq!(db.get(b"large").unwrap().as_deref(), Some(&large[..]));
    assert_eq!(db.get(b"after").unwrap().as_deref(), Some(&b"small"[..]));
}

#[test]
fn a_second_opener_and_wrong_directories_are_told_what_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), Options::default()).unwrap();
    assert!(matches!(Db::open(dir.path(), Options::default()), Err(Error::Locked(_))));
    db.close().unwrap();
    drop(Db::open(dir.path(), Options::default()).unwrap());

    let empty = tempfile::tempdir().unwrap();
    let options = Options { create_if_missing: false, ..Options::default() };
    for place in [empty.path().to_path_buf(), empty.path().join("none")] {
        let error = Db::open(place, options.clone()).err().unwrap();
        assert!(matches!(error, Error::NotAStore { .. }), "{error}");
        assert!(error.to_string().contains("create_if_missing is not set"), "{error}");
    }
    assert!(matches!(
        Db::open_read_only(empty.path(), Options::default()),
        Err(Error::NotAStore { .. })
    ));

    std::fs::remove_file(dir.path().join("CURRENT")).unwrap();
    let error = Db::open(dir.path(), Options::default()).err().unwrap();
    assert!(
        matches!(error, Error::NotAStore { .. }) && error.to_string().contains("CURRENT"),
        "{error}"
    );
    // It is set.
    assert!(!error.to_string().contains("create_if_missing"), "{error}");
}

#[test]
fn a_lost_manifest_is_told_with_what_to_do_to_readers_as_well() {
    let dir = tempfile::tempdir().unwrap();
    Db::open(dir.path(), Options::default()).unwrap().close().unwrap();
    let is_manifest = |path: &PathBuf| path.to_string_lossy().contains("MANIFEST-");
    let mut paths = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
    std::fs::remove_file(paths.find(is_manifest).unwrap()).unwrap();

    let errors = [
        Db::open(dir.path(), Options::default()).err().unwrap(),
        Db::open_read_only(dir.path(), Options::default()).err().unwrap(),
    ];
    for error in errors {
        let text = error.to_string();
        assert!(matches!(error, Error::Corruption(_)) && text.contains("terrace repair"), "{text}");
    }
}

#[test]
fn options_out_of_range_name_the_field_and_the_range() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |change: fn(&mut Options), field: &str| {
        let mut options = Options::default();
        change(&mut options);
        let error = Db::open(dir.path(), options).err().unwrap();
        assert!(matches!(error, Error::InvalidArgument(_)));
        assert!(error.to_string().contains(field), "{error}");
    };
    refused(|o| o.memory_budget = 1000, "memory_budget");
    refused(|o| o.background_jobs = 0, "background_jobs");
    refused(|o| o.sync = SyncMode::Interval(Duration::ZERO), "sync");
    refused(|o| o.sync = SyncMode::Interval(Duration::from_micros(999)), "sync");
    refused(|o| o.default_family.filter = vec![], "filter");
    refused(
        |o| {
            o.default_family.filter =
                vec![FilterPolicy::Bloom { bits_per_unit: f64::NAN, units: 1 }];
        },
        "filter",
    );
    refused(|o| o.default_family.prefix_len = Some(0), "prefix_len");
    refused(|o| o.advanced.block_size = 1, "block_size");
    refused(|o| o.advanced.l0_stop = 1, "l0_stop");
    refused(|o| o.advanced.memory_shares.cache = 0.9, "memory_shares");
    refused(|o| o.advanced.memory_shares.filters = -0.1, "memory_shares");
    refused(|o| o.advanced.memory_shares.filters = f64::NAN, "memory_shares");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing was created");
}

/// Makes a store with a manifest that says `state`, and opens it, for writing and not: both are refused as damage.
fn assert_damaged(state: &ManifestState) {
    let (sim, dir) = (SimVfs::new(1), Path::new("/store"));
    sim.create_dir_all(dir).unwrap();
    let vfs: Arc<dyn Vfs> = Arc::new(sim);
    Manifest::create_of(vfs.clone(), dir, state).unwrap();
    let mut options = Options::default();
    options.advanced.vfs = vfs;
    let written = Db::open(dir, options.clone()).err().unwrap();
    assert!(matches!(written, Error::Corruption(_)), "{written}");
    let read = Db::open_read_only(dir, options).err().unwrap();
    assert!(matches!(read, Error::Corruption(_)), "{read}");
}

/// The checksums of such a manifest are right: only what it says is not.
#[test]
fn a_manifest_without_the_default_family_is_damaged() {
    let mut state = ManifestState::fresh(7);
    let family = state.families.remove(&0).unwrap();
    assert_damaged(&state);
    state.families.insert(0, FamilyState { name: "other".into(), ..family });
    assert_damaged(&state);
}

/// Where files are added up, builds that check for overflow ended with a panic.
#[test]
fn a_manifest_with_numbers_that_no_files_have_is_damaged() {
    const HUGE: u64 = 1 << 62;
    let referred = |file: &mut FileMeta| {
        let segment = SegmentNumber::new(3);
        file.value_refs = vec![ValueRef { segment, bytes: HUGE }];
    };
    let changes: [fn(&mut FileMeta); 4] = [
        |file| file.size_bytes = HUGE,
        |file| file.entry_count = HUGE,
        |file| file.raw_bytes = HUGE,
        referred,
    ];
    for change in changes {
        let added = (10..15).map(|number| {
            let number = FileNumber::new(number);
            let (smallest, largest) = (b"a".to_vec(), b"b".to_vec());
            let mut file = FileMeta { number, smallest, largest, ..FileMeta::default() };
            change(&mut file);
            (number.get() as u8 - 10, file)
        });
        let edit = FamilyEdit { added: added.collect(), ..FamilyEdit::default() };
        let mut state = ManifestState::fresh(7);
        let family = state.families.get_mut(&0).unwrap();
        family.version = Arc::new(Version::empty().apply(&edit).unwrap());
        assert_damaged(&state);
    }
}
