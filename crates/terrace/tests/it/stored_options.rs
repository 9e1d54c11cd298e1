//! Options that are stored with column families: who has them, what wins over them, and what a crash leaves of a change.

use crate::harness::{DIR, eventually, small_options, stopped_clock};
use std::path::Path;
use std::sync::Arc;
use terrace::vfs::{Fault, FaultKind, PosixVfs, SimVfs};
use terrace::{
    CfOptions, CompactionFilter, CompactionStyle, Compression, Db, Error, FilterContext,
    FilterDecision, FilterEntry, FilterError, Learning, Options, RepairOptions, StoredOptions,
    builtin_merge_operator,
};
use terrace_manifest::{FamilyEdit, Manifest, ManifestState, VersionEdit};

/// Other than the defaults in everything that is stored.
fn tuned() -> CfOptions {
    CfOptions {
        compression: vec![Compression::None, Compression::Zstd],
        filter: vec!["bloom:4x6".parse().unwrap(), "ribbon:12".parse().unwrap()],
        prefix_len: Some(3),
        compaction: CompactionStyle::Tiered,
        value_separation_threshold: 77,
        value_compression: Compression::Lz4,
        learning: Learning::Analyze,
        ..CfOptions::default()
    }
}

fn with_tuned(name: &str) -> Options {
    Options { column_families: vec![(name.into(), tuned())], ..Options::default() }
}

fn options_of(db: &Db, family: &str) -> CfOptions {
    db.column_family(family).unwrap().options()
}

/// A store with a tuned family `a`, and with a default family that is tuned but for one option.
fn tuned_store() -> (tempfile::TempDir, CfOptions) {
    let dir = tempfile::tempdir().unwrap();
    let default_family = CfOptions { learning: Learning::Off, ..tuned() };
    let options = Options { default_family: default_family.clone(), ..Options::default() };
    let db = Db::open(dir.path(), options).unwrap();
    let family = db.create_column_family("a", tuned()).unwrap();
    family.put(b"key", b"value").unwrap();
    db.put(b"key", b"value").unwrap();
    drop(family);
    db.close().unwrap();
    (dir, default_family)
}

fn state(dir: &Path) -> ManifestState {
    Manifest::read(&*PosixVfs::shared(), dir).unwrap()
}

/// Stores `text` with the family `a` of a closed store.
fn store_text(dir: &Path, text: &str) {
    let (mut manifest, mut state) = Manifest::recover(PosixVfs::shared(), dir).unwrap();
    let id = state.family_named("a").unwrap().id;
    let family = FamilyEdit { id, options: Some(text.into()), ..FamilyEdit::default() };
    let edit = VersionEdit { families: vec![family], ..VersionEdit::default() };
    manifest.append(&mut state, &edit).unwrap();
}

#[test]
fn families_are_as_they_were_when_an_open_says_nothing_of_them() {
    let (dir, default_family) = tuned_store();
    let check = |db: &Db| {
        assert_eq!(options_of(db, "a"), tuned());
        assert_eq!(options_of(db, "default"), default_family);
        assert_eq!(db.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
    };
    check(&Db::open_read_only(dir.path(), Options::default()).unwrap());
    let db = Db::open(dir.path(), Options::default()).unwrap();
    check(&db);
    let copies = tempfile::tempdir().unwrap();
    let copy = copies.path().join("copy");
    db.checkpoint(&copy).unwrap();
    db.close().unwrap();
    check(&Db::open(&copy, Options::default()).unwrap());
    // Naming a family without an option of its own makes it if it is not there, and no more.
    let named = vec![("a".to_string(), CfOptions::default())];
    let options = Options { column_families: named, ..Options::default() };
    check(&Db::open(dir.path(), options).unwrap());
    // What the default family is given is not for families that have their own.
    let given = CfOptions { learning: Learning::Build, ..tuned() };
    let options = Options { default_family: given.clone(), ..Options::default() };
    let db = Db::open(dir.path(), options).unwrap();
    assert_eq!((options_of(&db, "a"), options_of(&db, "default")), (tuned(), given));
}

#[test]
fn a_repaired_store_has_the_options_that_its_manifest_tells() {
    let (dir, default_family) = tuned_store();
    for is_damaged in [false, true] {
        if is_damaged {
            std::fs::remove_file(dir.path().join("CURRENT")).unwrap();
        }
        let how = RepairOptions::default();
        let report = terrace::repair(dir.path(), Options::default(), how).unwrap();
        assert_eq!(report.was_sound, !is_damaged, "{report:?}");
        let db = Db::open(dir.path(), Options::default()).unwrap();
        assert_eq!(options_of(&db, "a"), tuned());
        assert_eq!(options_of(&db, "default"), default_family);
    }
}

#[test]
fn what_an_open_says_wins_and_is_stored() {
    let (dir, _) = tuned_store();
    let said = CfOptions { filter: vec!["none".parse().unwrap()], ..CfOptions::default() };
    let named = vec![("a".to_string(), said.clone()), ("b".to_string(), tuned())];
    let options = Options { column_families: named, ..Options::default() };
    Db::open(dir.path(), options).unwrap().close().unwrap();
    let db = Db::open(dir.path(), Options::default()).unwrap();
    assert_eq!((options_of(&db, "a"), options_of(&db, "b")), (said, tuned()));
    db.close().unwrap();
    // A reader says something for itself alone.
    let reader = Db::open_read_only(dir.path(), with_tuned("a")).unwrap();
    assert_eq!(options_of(&reader, "a"), tuned());
    drop(reader);
    let replaced = Options { stored_options: StoredOptions::Replace, ..with_tuned("b") };
    Db::open(dir.path(), replaced).unwrap().close().unwrap();
    let db = Db::open(dir.path(), Options::default()).unwrap();
    assert_eq!(options_of(&db, "a"), CfOptions::default());
    assert_eq!(options_of(&db, "default"), CfOptions::default());
    assert_eq!(options_of(&db, "b"), tuned());
}

#[test]
fn an_open_that_finds_everything_as_it_is_writes_no_options() {
    let (dir, _) = tuned_store();
    let before = state(dir.path());
    for options in [Options::default(), with_tuned("a")] {
        Db::open(dir.path(), options).unwrap().close().unwrap();
        let after = state(dir.path());
        for (id, family) in &before.families {
            assert_eq!(after.families[id].options, family.options);
        }
    }
    let text = before.family_named("a").unwrap().options.clone().unwrap();
    assert_eq!(
        &*text,
        "compression=none,zstd;filter=bloom:4x6,ribbon:12;prefix_len=3;compaction=tiered;\
         value_separation_threshold=77;value_compression=lz4;learning=analyze"
    );
}

#[test]
fn a_store_of_before_has_what_it_is_opened_with_and_keeps_it() {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/v1");
    let copy = crate::basics::copy_without_lock(&fixture);
    assert!(state(copy.path()).families.values().all(|family| family.options.is_none()));
    let default_family = CfOptions { learning: Learning::Off, ..CfOptions::default() };
    let options = Options { default_family: default_family.clone(), ..with_tuned("zstd") };
    let reader = Db::open_read_only(copy.path(), options.clone()).unwrap();
    assert_eq!(options_of(&reader, "lz4"), default_family);
    drop(reader);
    assert!(state(copy.path()).families.values().all(|family| family.options.is_none()));
    Db::open(copy.path(), options).unwrap().close().unwrap();
    let db = Db::open(copy.path(), Options::default()).unwrap();
    for family in ["default", "lz4", "paired", "bare"] {
        assert_eq!(options_of(&db, family), default_family, "{family}");
    }
    assert_eq!(options_of(&db, "zstd"), tuned());
}

#[test]
fn a_family_that_was_dropped_leaves_no_options_to_its_successor() {
    let (dir, _) = tuned_store();
    let db = Db::open(dir.path(), Options::default()).unwrap();
    db.drop_column_family("a").unwrap();
    db.create_column_family("a", CfOptions::default()).unwrap();
    db.close().unwrap();
    let db = Db::open(dir.path(), Options::default()).unwrap();
    assert_eq!(options_of(&db, "a"), CfOptions::default());
}

#[test]
fn code_is_no_option_and_is_given_beside_those_that_are_stored() {
    let (dir, _) = tuned_store();
    let merge_operator = builtin_merge_operator("counter");
    let family = CfOptions { merge_operator: merge_operator.clone(), ..CfOptions::default() };
    let options = Options { column_families: vec![("a".into(), family)], ..Options::default() };
    for options in [options, Options::default()] {
        let db = Db::open(dir.path(), options).unwrap();
        assert_eq!(
            options_of(&db, "a"),
            CfOptions { merge_operator: merge_operator.clone(), ..tuned() }
        );
        assert_eq!(options_of(&db, "default").merge_operator, None);
    }
}

struct RemovesAll;

impl CompactionFilter for RemovesAll {
    fn name(&self) -> &str {
        "removes all"
    }

    fn filter(
        &self,
        _: &FilterContext,
        _: &FilterEntry<'_>,
    ) -> Result<FilterDecision, FilterError> {
        Ok(FilterDecision::Remove)
    }
}

#[test]
fn the_code_of_the_default_family_is_not_for_families_that_an_open_does_not_name() {
    let dir = tempfile::tempdir().unwrap();
    let default_family = CfOptions {
        merge_operator: builtin_merge_operator("counter"),
        compaction_filter: Some(Arc::new(RemovesAll)),
        ..CfOptions::default()
    };
    let options = Options { default_family, ..Options::default() };
    let db = Db::open(dir.path(), options.clone()).unwrap();
    let plain = db.create_column_family("plain", CfOptions::default()).unwrap();
    plain.put(b"key", b"value").unwrap();
    db.close().unwrap();
    let reader = Db::open_read_only(dir.path(), options.clone()).unwrap();
    assert_eq!(options_of(&reader, "plain"), CfOptions::default());
    reader.close().unwrap();
    for _ in 0..2 {
        let db = Db::open(dir.path(), options.clone()).unwrap();
        assert_eq!(options_of(&db, "plain"), CfOptions::default());
        let plain = db.column_family("plain").unwrap();
        plain.compact_range::<&[u8]>(..).unwrap();
        assert_eq!(plain.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
        db.close().unwrap();
        assert_eq!(state(dir.path()).family_named("plain").unwrap().merge_operator, None);
    }
    // It still takes one of its own.
    let merge_operator = builtin_merge_operator("append");
    let named = CfOptions { merge_operator, ..CfOptions::default() };
    let named = Options { column_families: vec![("plain".into(), named)], ..options.clone() };
    let db = Db::open(dir.path(), named).unwrap();
    let plain = db.column_family("plain").unwrap();
    plain.merge(b"key", b"s").unwrap();
    assert_eq!(plain.get(b"key").unwrap().as_deref(), Some(&b"values"[..]));
    db.close().unwrap();
    // The filter is for all families where what the open says is.
    let replacing = Options { stored_options: StoredOptions::Replace, ..options };
    let db = Db::open(dir.path(), replacing).unwrap();
    let plain = db.column_family("plain").unwrap();
    assert_eq!(plain.merge_operator(), Some("append"));
    plain.put(b"other", b"value").unwrap();
    plain.compact_range::<&[u8]>(..).unwrap();
    assert_eq!(plain.get(b"other").unwrap(), None);
    db.close().unwrap();
}

#[test]
fn options_of_later_builds_are_kept_and_their_values_refused() {
    let (dir, _) = tuned_store();
    store_text(dir.path(), "colour=red;learning=off");
    let db = Db::open(dir.path(), Options::default()).unwrap();
    let family = db.column_family("a").unwrap();
    assert_eq!(family.options(), CfOptions { learning: Learning::Off, ..CfOptions::default() });
    family.set_option("prefix_len", "7").unwrap();
    drop(family);
    db.close().unwrap();
    let text = state(dir.path()).family_named("a").unwrap().options.clone().unwrap();
    assert!(text.contains(";learning=off") && text.ends_with(";colour=red"), "{text}");
    assert!(text.contains(";prefix_len=7;"), "{text}");

    store_text(dir.path(), "filter=cuckoo:8");
    let opens = [
        Db::open(dir.path(), Options::default()),
        Db::open_read_only(dir.path(), Options::default()),
    ];
    for opened in opens {
        let Err(Error::InvalidArgument(why)) = opened else { panic!("it is not known") };
        assert!(
            why.contains("`a`") && why.contains("cuckoo:8") && why.contains("replace"),
            "{why}"
        );
    }
    let repaired = terrace::repair(dir.path(), Options::default(), RepairOptions::default());
    assert!(matches!(repaired, Err(Error::InvalidArgument(_))));
    let db = Db::open(dir.path(), with_tuned("a")).unwrap();
    assert_eq!(options_of(&db, "a"), tuned());
}

/// One flipped bit in the record is damage of the manifest, and never another option.
#[test]
fn damaged_options_are_no_options() {
    let sim = SimVfs::new(1);
    let mut options = small_options(Arc::new(sim.clone()), &stopped_clock());
    options.column_families = vec![("a".into(), tuned())];
    Db::open(DIR, options.clone()).unwrap().close().unwrap();
    let is_manifest = |path: &Path| path.to_string_lossy().contains("MANIFEST-");
    let (path, _) = sim.files().into_iter().find(|(path, _)| is_manifest(path)).unwrap();
    let bytes = sim.read_file(&path).unwrap();
    let text = b"learning=analyze";
    let place = bytes.windows(text.len()).position(|window| window == text).unwrap();
    for at in place..place + text.len() {
        let image = sim.kill_image();
        assert!(image.corrupt(&path, at as u64, 1));
        options.advanced.vfs = Arc::new(image);
        let opened = Db::open(DIR, options.clone());
        assert!(matches!(opened, Err(Error::Corruption(_))), "byte {at}");
    }
}

#[test]
fn a_change_that_returned_survives_a_power_cut() {
    let sim = SimVfs::new(7);
    let mut options = small_options(Arc::new(sim.clone()), &stopped_clock());
    let db = Db::open(DIR, options.clone()).unwrap();
    db.default_family().set_option("filter", "ribbon:8").unwrap();
    db.default_family().set_value_separation_threshold(99).unwrap();
    for seed in 0..8 {
        options.advanced.vfs = Arc::new(sim.crash_image(seed));
        let after = Db::open(DIR, options.clone()).unwrap();
        assert_eq!(after.option("filter").as_deref(), Some("ribbon:8"));
        assert_eq!(after.option("value_separation_threshold").as_deref(), Some("99"));
    }
}

/// A change that fails at any call leaves the old options in force; a crash finds the old or the new ones, of all families
/// alike; and the next change goes through.
#[test]
fn a_change_that_fails_changes_nothing_in_the_open_store() {
    let (mut failed, mut resumed) = (0, 0);
    for kind in [FaultKind::Enospc, FaultKind::Eio, FaultKind::SyncFails] {
        for after in 0.. {
            let sim = SimVfs::new(after);
            let mut options = small_options(Arc::new(sim.clone()), &stopped_clock());
            let db = Db::open(DIR, options.clone()).unwrap();
            db.wait_idle().unwrap();
            let at_op = sim.op_count() + after;
            sim.set_fault(Some(Fault { at_op, kind, forever: false, filter: None }));
            let changed = db.set_option("learning", "off");
            let struck = sim.executed_faults() > 0;
            sim.set_fault(None);
            let learning = |db: &Db| {
                let names = db.column_families();
                let mut all: Vec<_> = names.iter().map(|n| options_of(db, n).learning).collect();
                all.dedup();
                assert_eq!(all.len(), 1, "{all:?}");
                all[0]
            };
            let is = learning(&db);
            assert_eq!(is == Learning::Off, changed.is_ok(), "call {after}: {changed:?}");
            options.advanced.vfs = Arc::new(sim.kill_image());
            let found = learning(&Db::open(DIR, options).unwrap());
            assert!(changed.is_err() || found == Learning::Off, "call {after}: {found:?}");
            if !struck {
                changed.unwrap();
                break;
            }
            if changed.is_err() {
                failed += 1;
                if matches!(changed, Err(Error::DiskFull(_))) {
                    eventually("there is room", || db.set_option("learning", "off").is_ok());
                    assert_eq!(learning(&db), Learning::Off);
                    resumed += 1;
                }
            }
        }
    }
    assert!(failed > 2 && resumed > 0, "{failed} changes failed, {resumed} of them for a while");
}

#[test]
fn what_an_open_says_on_a_full_disk_is_stored_when_there_is_room() {
    let sim = SimVfs::new(4);
    let mut options = small_options(Arc::new(sim.clone()), &stopped_clock());
    options.advanced.reserve_bytes = 0;
    options.column_families.clear();
    Db::open(DIR, options.clone()).unwrap().close().unwrap();
    sim.set_capacity_bytes(Some(sim.files().iter().map(|(_, bytes)| bytes).sum()));
    options.default_family = tuned();
    let db = Db::open(DIR, options.clone()).unwrap();
    assert!(db.is_disk_full());
    assert_eq!(options_of(&db, "default"), tuned());
    sim.set_capacity_bytes(None);
    eventually("writes go on", || db.put(b"key", b"value").is_ok());
    db.close().unwrap();
    options.default_family = CfOptions::default();
    let db = Db::open(DIR, options).unwrap();
    assert_eq!(options_of(&db, "default"), tuned());
}
