//! Single cases of a repair: what must not come back, what keeps its name, what expires.

use crate::harness::{DIR, key, small_options, stopped_clock};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace::vfs::{SimVfs, Vfs};
use terrace::{
    CfOptions, CounterOperator, Db, Error, FamilySign, Options, RepairOptions, RepairReport,
    associative, builtin_merge_operator,
};
use terrace_base::ManualClock;
use terrace_manifest::{FamilyEdit, FileMeta, Manifest, VersionEdit, names};

pub(super) struct Fixture {
    pub sim: SimVfs,
    clock: ManualClock,
    options: Options,
}

impl Fixture {
    fn new() -> Self {
        let (sim, clock) = (SimVfs::new(1), stopped_clock());
        let mut options = small_options(Arc::new(sim.clone()), &clock);
        options.column_families.clear();
        options.default_family.value_separation_threshold = 16;
        options.default_family.value_compression = terrace::Compression::None;
        Self { sim, clock, options }
    }

    /// Flushed files stay as they are, until a repair.
    pub fn without_compactions() -> Self {
        let mut fixture = Self::new();
        fixture.options.advanced.l0_compaction_trigger = 10;
        fixture.options.advanced.compact_when_idle = false;
        fixture
    }

    pub fn open(&self) -> Db {
        self.try_to_open().unwrap()
    }

    pub fn try_to_open(&self) -> terrace::Result<Db> {
        Db::open(DIR, self.options.clone())
    }

    pub fn repair(&self, from_lost: bool) -> RepairReport {
        self.try_to_repair(from_lost).unwrap()
    }

    pub fn try_to_repair(&self, from_lost: bool) -> terrace::Result<RepairReport> {
        let how = RepairOptions { from_lost, ..RepairOptions::default() };
        terrace::repair(DIR, self.options.clone(), how)
    }

    /// What a repair says that takes in every SST and writes nothing.
    pub fn look_at_all(&self) -> RepairReport {
        let how = RepairOptions { from_lost: true, dry_run: true, ..RepairOptions::default() };
        terrace::repair(DIR, self.options.clone(), how).unwrap()
    }

    /// The store as it stands in `sim`.
    pub fn over(&self, sim: SimVfs) -> Self {
        let mut options = self.options.clone();
        options.advanced.vfs = Arc::new(sim.clone());
        Self { sim, clock: self.clock.clone(), options }
    }

    pub fn files(&self, part: &str) -> Vec<PathBuf> {
        let files = self.sim.files().into_iter().map(|(path, _)| path);
        let is = |path: &PathBuf| {
            path.parent() == Some(Path::new(DIR)) && path.to_string_lossy().contains(part)
        };
        files.filter(is).collect()
    }

    /// Nothing is left that says what the files are.
    fn lose_the_manifest(&self) {
        for part in ["MANIFEST", "CURRENT", "SYNCED"] {
            self.files(part).iter().for_each(|path| self.sim.remove(path).unwrap());
        }
    }
}

#[test]
fn a_deleted_key_does_not_come_back_from_a_segment_that_is_kept_for_other_values() {
    let fixture = Fixture::new();
    let db = fixture.open();
    db.put(key(1), [b'a'; 100]).unwrap();
    (2..30).for_each(|n| db.put(key(n), [b'b'; 100]).unwrap());
    db.flush().unwrap();
    db.close().unwrap();
    let db = fixture.open();
    db.delete(key(1)).unwrap();
    db.flush().unwrap();
    // Merges value and tombstone away and sets sequence numbers to 0; the other values stay where they are.
    db.compact_range::<&[u8]>(..).unwrap();
    db.close().unwrap();
    assert!(fixture.files(".log").len() >= 2, "{:?}", fixture.sim.files());
    fixture.lose_the_manifest();
    let report = fixture.repair(false);
    let db = fixture.open();
    assert_eq!(db.get(key(1)).unwrap(), None, "{report:?}");
    assert!((2..30).all(|n| db.get(key(n)).unwrap().as_deref() == Some(&[b'b'; 100][..])));
}

#[test]
fn families_keep_ids_and_names_and_one_that_is_in_the_log_only_gets_one() {
    let fixture = Fixture::new();
    let db = fixture.open();
    for name in ["one", "two", "three"] {
        let family = db.create_column_family(name, CfOptions::default()).unwrap();
        family.put(key(1), name).unwrap();
    }
    db.drop_column_family("two").unwrap();
    db.flush().unwrap();
    let late = db.create_column_family("late", CfOptions::default()).unwrap();
    late.put(key(2), b"late").unwrap();
    db.sync().unwrap();
    let image = fixture.sim.kill_image();
    drop(db);
    let mut options = fixture.options.clone();
    options.advanced.vfs = Arc::new(image.clone());
    let fixture = Fixture { sim: image, options, ..fixture };
    fixture.lose_the_manifest();
    let report = fixture.repair(false);
    assert!(report.lost.iter().any(|line| line.contains("the name of family 4")), "{report:?}");
    let db = fixture.open();
    let get = |name: &str, n| db.column_family(name).and_then(|f| f.get(key(n)).unwrap());
    assert_eq!(get("one", 1).as_deref(), Some(&b"one"[..]), "{report:?}");
    assert_eq!(get("three", 1).as_deref(), Some(&b"three"[..]));
    assert_eq!(get("family-4", 2).as_deref(), Some(&b"late"[..]));
    // A new family does not get the id of an old one.
    let fresh = db.create_column_family("fresh", CfOptions::default()).unwrap();
    assert_eq!(fresh.get(key(1)).unwrap(), None);
}

#[test]
fn keys_tell_the_name_of_a_family_that_is_in_the_log_only() {
    const SIGNS: &[FamilySign] = &[
        FamilySign { name: "one", id: Some(1), key_prefix: b"mark" },
        FamilySign { name: "two", id: Some(2), key_prefix: b"mark" },
        FamilySign { name: "three", id: None, key_prefix: b"of three" },
        FamilySign { name: "four", id: Some(7), key_prefix: b"mark" },
    ];
    let keys = [("one", "mark"), ("two", "mark 2"), ("three", "of three 3"), ("four", "mark")];
    // One that has none makes the others doubtful.
    for (count, named) in
        [(3, ["one", "two", "three", ""]), (4, ["family-1", "family-2", "family-3", "family-4"])]
    {
        let fixture = Fixture::new();
        let db = fixture.open();
        for (name, key) in &keys[..count] {
            let family = db.create_column_family(name, CfOptions::default()).unwrap();
            family.put(key, name).unwrap();
        }
        db.sync().unwrap();
        let image = fixture.sim.kill_image();
        drop(db);
        let mut options = fixture.options.clone();
        options.advanced.vfs = Arc::new(image.clone());
        let fixture = Fixture { sim: image, options, ..fixture };
        assert!(fixture.files(".sst").is_empty(), "{:?}", fixture.sim.files());
        fixture.lose_the_manifest();
        let how = RepairOptions { family_signs: SIGNS, ..RepairOptions::default() };
        let report = terrace::repair(DIR, fixture.options.clone(), how).unwrap();
        let is_lost = report.lost.iter().any(|loss| loss.contains("of family 1"));
        assert_eq!(is_lost, count == 4, "{report:?}");
        let db = fixture.open();
        for ((name, key), named) in keys[..count].iter().zip(named) {
            let family = db.column_family(named).unwrap_or_else(|| panic!("{named}: {report:?}"));
            assert_eq!(family.get(key).unwrap().as_deref(), Some(name.as_bytes()));
        }
    }
}

#[test]
fn what_expires_goes_on_to_expire() {
    let fixture = Fixture::new();
    let db = fixture.open();
    let ttl = std::time::Duration::from_secs(100);
    db.put_with_ttl(key(1), b"short", ttl).unwrap();
    db.put_with_ttl(key(2), [b'x'; 100], ttl).unwrap();
    db.put(key(3), b"stays").unwrap();
    db.flush().unwrap();
    db.put_with_ttl(key(4), b"in the log", ttl).unwrap();
    db.close().unwrap();
    fixture.lose_the_manifest();
    fixture.repair(false);
    let db = fixture.open();
    let there = |n| db.get(key(n)).unwrap().is_some();
    assert!((1..=4).all(there));
    fixture.clock.advance(100_001);
    assert_eq!([1, 2, 3, 4].map(there), [false, false, true, false]);
}

#[test]
fn what_lies_in_lost_is_taken_back_when_that_is_asked_for_and_only_then() {
    let fixture = Fixture::new();
    let db = fixture.open();
    (0..50).for_each(|n| db.put(key(n), b"value").unwrap());
    db.flush().unwrap();
    db.close().unwrap();
    let lost = Path::new(DIR).join("lost");
    fixture.sim.create_dir_all(&lost).unwrap();
    for path in fixture.files(".sst") {
        fixture.sim.rename(&path, &lost.join(path.file_name().unwrap())).unwrap();
    }
    let report = fixture.repair(false);
    assert!(!report.lost.is_empty(), "{report:?}");
    assert_eq!(fixture.open().get(key(7)).unwrap(), None);
    let report = fixture.repair(true);
    assert!(report.lost.is_empty(), "{report:?}");
    assert_eq!(fixture.open().get(key(7)).unwrap().as_deref(), Some(&b"value"[..]));
}

/// As somebody has found them elsewhere.
#[test]
fn of_ssts_alone_a_store_is_made() {
    let fixture = Fixture::new();
    let db = fixture.open();
    (0..50).for_each(|n| db.put(key(n), b"value").unwrap());
    db.flush().unwrap();
    db.close().unwrap();
    let ssts = fixture.files(".sst");
    let others = fixture.files("").into_iter().filter(|path| !ssts.contains(path));
    others.for_each(|path| fixture.sim.remove(&path).unwrap());
    let report = fixture.repair(false);
    assert!(report.lost.iter().any(|line| line.starts_with("the manifest")), "{report:?}");
    let db = fixture.open();
    assert!((0..50).all(|n| db.get(key(n)).unwrap().as_deref() == Some(&b"value"[..])));
    db.close().unwrap();
    assert!(fixture.repair(false).was_sound);
}

#[test]
fn a_file_with_a_number_far_past_all_others_is_left_alone() {
    let fixture = Fixture::new();
    let db = fixture.open();
    db.put(key(1), b"value").unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    let strays = ["5000000000.sst", "5000000000.log", "18446744073709551615.sst"];
    for stray in strays.iter().chain(&["MANIFEST-18446744073709551615"]) {
        assert!(fixture.sim.write_file(Path::new(DIR).join(stray), b"not the store's"));
    }
    fixture.lose_the_manifest();
    assert!(fixture.sim.write_file(Path::new(DIR).join("MANIFEST-18446744073709551615"), b"x"));
    fixture.repair(false);
    for stray in strays {
        assert!(fixture.sim.exists(&Path::new(DIR).join(stray)).unwrap(), "{stray}");
    }
    assert_eq!(fixture.open().get(key(1)).unwrap().as_deref(), Some(&b"value"[..]));
    assert!(fixture.repair(false).was_sound);
}

/// The store is sound by the time the report comes.
#[test]
fn what_could_not_be_told_is_told_by_the_next_repair_and_no_other() {
    let fixture = Fixture::new();
    let db = fixture.open();
    (0..50).for_each(|n| db.put(key(n), b"value").unwrap());
    db.flush().unwrap();
    db.close().unwrap();
    fixture.files(".sst").iter().for_each(|path| fixture.sim.remove(path).unwrap());
    let mut found = Vec::new();
    for round in 0..2 {
        let fails = |report: &RepairReport| {
            assert!(!report.was_sound && !report.lost.is_empty(), "{report:?}");
            match round {
                0 => found.clone_from(&report.lost),
                _ => assert_eq!(report.lost, found),
            }
            Err(Error::InvalidArgument("nobody is there".into()))
        };
        let how = RepairOptions::default();
        let told = terrace::repair_telling(DIR, fixture.options.clone(), how, fails);
        assert!(matches!(told, Err(Error::InvalidArgument(_))), "{told:?}");
        let how = RepairOptions { dry_run: true, ..how };
        let dry = terrace::repair(DIR, fixture.options.clone(), how).unwrap();
        assert!(!dry.was_sound && dry.lost == found, "{dry:?}");
        fixture.open().close().unwrap();
    }
    let report = fixture.repair(false);
    assert!(!report.was_sound && report.lost == found, "{report:?}");
    let kept = fixture.sim.read_file(Path::new(DIR).join("lost/REPORT.1")).unwrap();
    let kept = String::from_utf8(kept).unwrap();
    assert!(found.iter().all(|loss| kept.contains(&format!("LOST: {loss}\n"))), "{kept}");
    assert!(fixture.repair(false).was_sound);
}

#[test]
fn the_newest_reports_that_were_told_stay() {
    let fixture = Fixture::new();
    let lost = Path::new(DIR).join("lost");
    for round in 1..=20_u64 {
        let db = fixture.open();
        db.put(key(round), b"value").unwrap();
        db.flush().unwrap();
        db.close().unwrap();
        fixture.files(".sst").iter().for_each(|path| fixture.sim.remove(path).unwrap());
        assert!(!fixture.repair(false).lost.is_empty());
        let mut kept = fixture.sim.list(&lost).unwrap();
        kept.retain(|name| name.starts_with("REPORT"));
        assert_eq!(kept.len() as u64, round.min(16), "{kept:?}");
        assert!(kept.contains(&format!("REPORT.{round}")), "{kept:?}");
    }
}

#[test]
fn a_report_that_says_nothing_is_a_loss_of_its_own() {
    let fixture = Fixture::new();
    fixture.open().close().unwrap();
    let lost = Path::new(DIR).join("lost");
    fixture.sim.create_dir_all(&lost).unwrap();
    for bytes in [&b""[..], &[0; 70], b"LOST:\n", &[0xFF; 9]] {
        assert!(fixture.sim.write_file(lost.join("REPORT"), bytes));
        let report = fixture.repair(false);
        let is_told = report.lost.len() == 1 && report.lost[0].contains("cannot be read");
        assert!(is_told && !report.was_sound, "{report:?}");
        assert!(fixture.repair(false).was_sound);
    }
}

/// What `verify` refuses is not sound, even if all that was cut is garbage.
#[test]
fn a_value_segment_that_was_cut_is_one_that_is_shorter_after_a_repair() {
    for keep in [None, Some(0)] {
        let mut fixture = Fixture::new();
        // The garbage stays where it is.
        fixture.options.advanced.gc_garbage_ratio = 1.0;
        let db = fixture.open();
        (1..5).for_each(|n| db.put(key(n), [b'a'; 100]).unwrap());
        db.flush().unwrap();
        db.close().unwrap();
        let segment = fixture.files(".log").into_iter().min().unwrap();
        let db = fixture.open();
        db.delete(key(4)).unwrap();
        db.compact_range::<&[u8]>(..).unwrap();
        db.close().unwrap();
        let len = fixture.sim.len(&segment).unwrap();
        assert!(fixture.sim.truncate(&segment, keep.unwrap_or(len - 30)));
        let report = fixture.repair(false);
        assert!(!report.was_sound && report.lost.is_empty() == keep.is_none(), "{report:?}");
        assert!(fixture.repair(false).was_sound);
        let vfs: Arc<dyn Vfs> = Arc::new(fixture.sim.clone());
        let checked = terrace_inspect::check_store(&vfs, Path::new(DIR)).unwrap();
        assert!(checked.problems.is_empty(), "{:?}", checked.problems);
        let db = fixture.open();
        assert_eq!(db.get(key(1)).unwrap().is_some(), keep.is_none());
        assert_eq!(db.get(key(4)).unwrap(), None);
    }
}

/// Whatever refers to it: values, the log in force, or change feeds.
#[test]
fn a_segment_of_a_later_version_is_refused_and_stays() {
    let mut fixture = Fixture::new();
    fixture.options.advanced.log_retention_bytes = 1 << 30;
    for round in 0..3 {
        let db = fixture.open();
        // Values are separated in one round, and in another not.
        let bytes = if round == 1 { 10 } else { 100 };
        (0..20).for_each(|n| db.put(key(n), vec![b'a'; bytes]).unwrap());
        db.flush().unwrap();
        db.close().unwrap();
    }
    let segments = fixture.files(".log");
    assert!(segments.len() >= 3, "{segments:?}");
    for path in segments {
        let image = fixture.sim.kill_image();
        let mut bytes = image.read_file(&path).unwrap();
        // The layout of a header is that of docs/format/log.md.
        bytes[8..12].copy_from_slice(&2_u32.to_le_bytes());
        let checksum = terrace_base::checksum::crc32c(&[&bytes[..40]]);
        bytes[40..44].copy_from_slice(&checksum.to_le_bytes());
        assert!(image.write_file(&path, bytes));
        let contents = || -> Vec<(PathBuf, Option<Vec<u8>>)> {
            let names = image.files().into_iter().map(|(path, _)| path);
            names.map(|path| (path.clone(), image.read_file(path))).collect()
        };
        let before = contents();
        let mut options = fixture.options.clone();
        options.advanced.vfs = Arc::new(image.clone());
        let refused = terrace::repair(DIR, options, RepairOptions::default());
        assert!(matches!(refused, Err(Error::Unsupported(_))), "{}: {refused:?}", path.display());
        assert!(contents() == before, "{}", path.display());
    }
}

/// A crash may have left it so: what an open drops, and the survey of a repair with it, is not replayed by the repair.
#[test]
fn of_a_last_segment_without_header_nothing_is_replayed_that_the_report_does_not_count() {
    let mut fixture = Fixture::new();
    fixture.options.sync = terrace::SyncMode::None;
    fixture.options.advanced.log_retention_bytes = 0;
    let db = fixture.open();
    db.put(key(1), b"flushed").unwrap();
    db.flush().unwrap();
    (2..9).for_each(|n| db.put(key(n), b"in the log").unwrap());
    let image = fixture.sim.kill_image();
    drop(db);
    let mut options = fixture.options.clone();
    options.advanced.vfs = Arc::new(image.clone());
    let fixture = Fixture { sim: image, options, ..fixture };
    fixture.files("SYNCED").iter().for_each(|path| fixture.sim.remove(path).unwrap());
    let log = fixture.files(".log").into_iter().max().unwrap();
    assert!(fixture.sim.corrupt(&log, 21, 1));
    let opened = fixture.sim.kill_image();
    let report = fixture.repair(false);
    assert!(report.saved.contains(&format!("{} batches of the log", report.log_batches)));
    let kept = Path::new(DIR).join("lost").join(log.file_name().unwrap());
    assert!(fixture.sim.exists(&kept).unwrap(), "{report:?}");
    let shown = |fixture: &Fixture| -> Vec<bool> {
        let db = fixture.open();
        (1..9).map(|n| db.get(key(n)).unwrap().is_some()).collect()
    };
    let repaired = shown(&fixture);
    assert!(repaired[0]);
    let mut options = fixture.options.clone();
    options.advanced.vfs = Arc::new(opened.clone());
    assert_eq!(repaired, shown(&Fixture { sim: opened, options, ..fixture }), "{report:?}");
}

/// What a repair merges without the operator names it still.
#[test]
fn a_family_has_the_merge_operator_that_its_ssts_name() {
    let mine = associative("mine", |_, existing, operand| {
        Ok([existing.unwrap_or_default(), operand].concat())
    });
    let append = builtin_merge_operator("append:,").unwrap();
    for (operator, folded, rounds) in [(mine, "ab", 2), (append, "a,b", 1)] {
        let mut fixture = Fixture::without_compactions();
        let unnamed = fixture.options.clone();
        let mut other = fixture.options.clone();
        other.default_family.merge_operator = builtin_merge_operator("counter");
        fixture.options.default_family.merge_operator = Some(operator);
        let db = fixture.open();
        let plain = db.create_column_family("plain", CfOptions::default()).unwrap();
        plain.put(key(1), "plain").unwrap();
        for operand in ["a", "b"] {
            db.merge(key(1), operand).unwrap();
            db.flush().unwrap();
        }
        drop(plain);
        db.close().unwrap();
        assert_eq!(fixture.files(".sst").len(), 3);
        for _ in 0..rounds {
            fixture.lose_the_manifest();
            let refused = terrace::repair(DIR, other.clone(), RepairOptions::default());
            assert!(matches!(refused, Err(Error::InvalidArgument(_))), "{refused:?}");
            assert!(fixture.files("MANIFEST").is_empty(), "{:?}", fixture.sim.files());
            let how = RepairOptions::default();
            let report = terrace::repair(DIR, unnamed.clone(), how).unwrap();
            let is_told = report.saved.iter().any(|line| line.contains("its merge operator"));
            assert!(is_told && !tells_lost_operator(&report), "{report:?}");
            // A family without one does not get that of the default family.
            let state = Manifest::read(&fixture.sim, Path::new(DIR)).unwrap();
            assert_eq!(state.family_named("plain").unwrap().merge_operator, None);
        }
        assert!(matches!(Db::open(DIR, other), Err(Error::InvalidArgument(_))));
        let db = fixture.open();
        assert_eq!(db.get(key(1)).unwrap().as_deref(), Some(folded.as_bytes()));
    }
}

/// First there are operands in the log only, then in an SST that does not name their operator.
#[test]
fn a_merge_operator_that_nothing_names_is_lost_unless_the_repair_is_given_it() {
    let mut fixture = Fixture::without_compactions();
    let unnamed = fixture.options.clone();
    fixture.options.default_family.merge_operator = builtin_merge_operator("append:,");
    let db = fixture.open();
    db.merge(key(1), "a").unwrap();
    db.sync().unwrap();
    let image = fixture.sim.kill_image();
    drop(db);
    for (given, is_given) in [(&unnamed, false), (&fixture.options, true)] {
        let sim = image.kill_image();
        let on_image = |options: &Options| {
            let mut options = options.clone();
            options.advanced.vfs = Arc::new(sim.clone());
            options
        };
        let (options, unnamed) = (on_image(given), on_image(&unnamed));
        let fixture = Fixture { sim: sim.clone(), clock: fixture.clock.clone(), options };
        assert!(fixture.files(".sst").is_empty(), "{:?}", fixture.sim.files());
        for _ in 0..2 {
            fixture.lose_the_manifest();
            let report = fixture.repair(false);
            assert_eq!(tells_lost_operator(&report), !is_given, "{report:?}");
            assert!(!fixture.files(".sst").is_empty(), "{:?}", fixture.sim.files());
        }
        let db = Db::open(DIR, unnamed).unwrap();
        let family = db.column_family("default").unwrap();
        assert_eq!(family.merge_operator(), is_given.then_some("append:,"));
    }
}

/// An earlier build had forgotten it in a repair.
#[test]
fn of_ssts_that_name_several_merge_operators_the_newest_counts_and_the_others_are_told() {
    let mut fixture = Fixture::without_compactions();
    fixture.options.default_family.merge_operator = builtin_merge_operator("append:,");
    let db = fixture.open();
    db.merge(key(1), "a").unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    let old = fixture.files(".sst").pop().unwrap();
    let bytes = fixture.sim.read_file(&old).unwrap();
    fixture.files("").iter().for_each(|path| fixture.sim.remove(path).unwrap());
    fixture.options.default_family.merge_operator = builtin_merge_operator("counter");
    let db = fixture.open();
    for n in 2..5 {
        db.merge(key(n), CounterOperator::encode(7)).unwrap();
        db.flush().unwrap();
    }
    db.close().unwrap();
    assert!(fixture.files(".sst").iter().max().is_some_and(|newest| *newest > old));
    assert!(fixture.sim.write_file(&old, bytes));
    fixture.lose_the_manifest();
    fixture.options.default_family.merge_operator = None;
    let report = fixture.repair(false);
    let is_told = report.lost.iter().any(|line| line.ends_with("others name `append:,`"));
    assert!(is_told && tells_lost_operator(&report), "{report:?}");
    let db = fixture.open();
    assert_eq!(db.column_family("default").unwrap().merge_operator(), Some("counter"));
    assert_eq!(db.get(key(4)).unwrap().as_deref(), Some(&CounterOperator::encode(7)[..]));
}

fn tells_lost_operator(report: &RepairReport) -> bool {
    report.lost.iter().any(|line| line.starts_with("which merge operator the family `default` has"))
}

/// The numbers by which L0 is ordered may lie above those of the entries, as of a file with keys that were hot.
#[test]
fn a_damaged_file_of_l0_keeps_its_place_in_the_order_when_it_is_written_anew() {
    let fixture = Fixture::without_compactions();
    let keys: Vec<String> = (0..200).map(|n| format!("k{n:03}")).collect();
    let db = fixture.open();
    for value in ["old", "new"] {
        keys.iter().for_each(|key| db.put(key, value).unwrap());
        db.flush().unwrap();
    }
    db.close().unwrap();
    let vfs: Arc<dyn Vfs> = Arc::new(fixture.sim.clone());
    let (mut manifest, mut state) = Manifest::recover(vfs, Path::new(DIR)).unwrap();
    let files = state.families[&0].version.level(0).files();
    let files: Vec<FileMeta> = files.iter().map(|file| (**file).clone()).collect();
    assert_eq!(files.len(), 2);
    let raised = |(file, by): (&FileMeta, u64)| {
        (0, FileMeta { largest_seqno: file.largest_seqno + by, ..file.clone() })
    };
    let family = FamilyEdit {
        id: 0,
        added: files.iter().zip([2000, 1000]).map(raised).collect(),
        removed: files.iter().map(|file| (0, file.number)).collect(),
        ..FamilyEdit::default()
    };
    let edit = VersionEdit { families: vec![family], ..VersionEdit::default() };
    manifest.append(&mut state, &edit).unwrap();
    drop(manifest);
    let newest = names::sst_path(Path::new(DIR), files[0].number);
    assert!(fixture.sim.corrupt(&newest, 4, 0xff));
    let report = fixture.repair(false);
    assert!(!report.lost.is_empty());
    let db = fixture.open();
    // The others are what is damaged.
    for key in &keys[100..] {
        let value = db.get(key).unwrap();
        assert_eq!(value.as_deref(), Some(&b"new"[..]), "{key}: {report:?}");
    }
}
