//! `terrace repair`: stores that do not open, and what comes out of them.
//!
//! The oracle: a repair and the open after it succeed; no value shows that was never written under its
//! key; what stood in sound files is there; and what is not there was told.

mod crash;
mod found;
mod kept;
mod misplaced;
mod no_room;
mod sectors;
mod single;

use crate::harness::{DIR, Store, effort, key, over_seeds, small_options, stopped_clock};
use crate::held::{FLUSH, Held};
use crate::model::Op;
use crate::mutants::{Specimen, specimen};
use std::collections::{BTreeMap, HashSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace::vfs::{SimVfs, Vfs};
use terrace::{Db, Error, RepairOptions, RepairReport};
use terrace_base::SegmentNumber;
use terrace_base::rng::{Rng, SplitMix64};
use terrace_log::{LogReader, RecordKind, Step};
use terrace_manifest::{FileMeta, Manifest};
use terrace_vfs::{BeforeCalls, Call};

const DRY_RUN: RepairOptions = RepairOptions { dry_run: true, from_lost: false, family_signs: &[] };

pub fn repair(
    specimen: &Specimen,
    image: &SimVfs,
    how: RepairOptions,
) -> Result<RepairReport, Error> {
    let mut options = specimen.options.clone();
    options.advanced.vfs = Arc::new(image.clone());
    terrace::repair(DIR, options, how)
}

fn repaired(specimen: &Specimen, image: &SimVfs) -> RepairReport {
    repair(specimen, image, RepairOptions::default()).unwrap()
}

fn of_kind(specimen: &Specimen, kind: &str) -> Vec<PathBuf> {
    let files = specimen.sim.files().into_iter().map(|(path, _)| path);
    files.filter(|path| specimen.kind_of(path) == kind).collect()
}

fn name(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}

/// A key that shows another value than it should.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    family: usize,
    key: String,
    /// Whether it shows nothing.
    absent: bool,
}

/// Opens and verifies a repaired store. Gives the keys that do not show what they should. None may show what
/// was never written under it.
pub fn wrong(specimen: &Specimen, image: &SimVfs) -> Vec<Wrong> {
    let store: Store = specimen.open(image, false).unwrap();
    store.db.verify().unwrap();
    let contents = store.contents().unwrap();
    let written: HashSet<(usize, &[u8], &[u8])> = specimen
        .history
        .batches
        .iter()
        .flatten()
        .filter_map(|op| match op {
            Op::Put { family, key, value, .. } => Some((*family, &key[..], &value[..])),
            _ => None,
        })
        .collect();
    let mut wrong = Vec::new();
    for (family, (got, want)) in contents.iter().zip(&specimen.contents).enumerate() {
        for key in got.keys().chain(want.keys().filter(|key| !got.contains_key(*key))) {
            let shown = got.get(key);
            if let Some(value) = shown {
                assert!(written.contains(&(family, key, value)), "an invented value");
                assert_eq!(store.families[family].get(key).unwrap().as_deref(), Some(&value[..]));
            }
            if shown != want.get(key) {
                let key = String::from_utf8_lossy(key).into_owned();
                wrong.push(Wrong { family, key, absent: shown.is_none() });
            }
        }
    }
    store.db.close().unwrap();
    let vfs: Arc<dyn Vfs> = Arc::new(image.clone());
    let checked = terrace_inspect::check_store(&vfs, Path::new(DIR)).unwrap();
    assert!(checked.problems.is_empty(), "{:?}", checked.problems);
    wrong
}

#[test]
fn a_sound_store_is_only_opened_and_closed() {
    let specimen = specimen(60);
    let image = specimen.sim.kill_image();
    let report = repaired(&specimen, &image);
    assert!(report.was_sound && report.lost.is_empty(), "{report:?}");
    assert!(!image.exists(&Path::new(DIR).join("lost")).unwrap());
    assert_eq!(wrong(&specimen, &image), []);
    assert!(repaired(&specimen, &image).was_sound);
}

#[test]
fn without_current_or_evidence_nothing_is_lost() {
    let specimen = specimen(60);
    for lost in ["CURRENT", "evidence"] {
        let image = specimen.sim.kill_image();
        of_kind(&specimen, lost).iter().for_each(|path| image.remove(path).unwrap());
        let before = image.files();
        let dry = repair(&specimen, &image, DRY_RUN).unwrap();
        let but_lock = |files: Vec<(PathBuf, u64)>| {
            files.into_iter().filter(|(path, _)| !path.ends_with("LOCK")).collect::<Vec<_>>()
        };
        assert_eq!(but_lock(image.files()), but_lock(before), "a dry run writes nothing");
        let report = repaired(&specimen, &image);
        assert!(report.lost.is_empty() && dry.lost.is_empty(), "{report:?}");
        assert_eq!(wrong(&specimen, &image), []);
    }
}

/// On a mount that is read-only, or in the directory of another user.
#[test]
fn a_dry_run_needs_no_right_to_write() {
    let specimen = specimen(60);
    let image = specimen.sim.kill_image();
    let manifest = of_kind(&specimen, "manifest").pop().unwrap();
    assert!(image.truncate(&manifest, image.len(&manifest).unwrap() / 2));
    assert!(image.write_file(Path::new(DIR).join("LOCK"), b""));
    for is_mine in [true, false] {
        let refuses = move |call: Call<'_>, path: &Path| {
            let kind = match call {
                Call::LockShared if !is_mine => ErrorKind::PermissionDenied,
                Call::Open | Call::List | Call::Len | Call::Exists | Call::LockShared => {
                    return Ok(());
                }
                _ => ErrorKind::ReadOnlyFilesystem,
            };
            Err(terrace_base::Error::io("write", path, kind.into()))
        };
        let mut options = specimen.options.clone();
        options.advanced.vfs = Arc::new(BeforeCalls::new(image.clone(), refuses));
        let dry = terrace::repair(DIR, options, DRY_RUN).unwrap();
        assert_eq!(dry.notes.iter().any(|note| note.contains("the lock file")), !is_mine);
        let report = repaired(&specimen, &image.kill_image());
        assert!(!dry.lost.is_empty() && dry.lost == report.lost, "{dry:?}");
    }
}

/// Where the records of a manifest end.
fn boundaries(sim: &SimVfs, manifest: &Path) -> Vec<u64> {
    let (_, digits) = name(manifest).rsplit_once('-').unwrap();
    let mut reader = LogReader::open(sim, manifest, digits.parse().unwrap()).unwrap();
    let mut found = vec![0, reader.position()];
    while let Step::Record(_) = reader.next().unwrap() {
        found.push(reader.position());
    }
    found
}

#[test]
fn a_manifest_that_is_cut_anywhere_is_made_anew_and_nothing_is_lost() {
    let specimen = specimen(60);
    let manifest = of_kind(&specimen, "manifest").pop().unwrap();
    let mut cuts = boundaries(&specimen.sim, &manifest);
    // The last record is a marker that nobody waits for.
    let last = cuts[cuts.len() - 2];
    cuts.truncate(cuts.len() - 2);
    let mut rng = SplitMix64::new(5);
    cuts.extend((0..effort(40)).map(|_| rng.below(last)));
    for cut in cuts {
        let image = specimen.sim.kill_image();
        assert!(image.truncate(&manifest, cut));
        assert!(specimen.open(&image, false).is_err(), "cut at {cut}");
        let report = repaired(&specimen, &image);
        let told =
            report.lost.iter().any(|line| line.contains("manifest") || line.contains("MANIFEST"));
        assert!(told, "cut at {cut}: {report:?}");
        assert_eq!(wrong(&specimen, &image), [], "cut at {cut}: {report:?}");
        let kept = Path::new(DIR).join("lost").join(name(&manifest));
        assert_eq!(image.len(&kept).unwrap(), cut, "the old manifest is kept");
        assert!(repaired(&specimen, &image).was_sound, "cut at {cut}");
    }
}

#[test]
fn without_any_manifest_and_evidence_everything_comes_from_ssts_and_log() {
    let specimen = specimen(60);
    for kinds in [&["manifest"][..], &["manifest", "CURRENT"], &["manifest", "CURRENT", "evidence"]]
    {
        let image = specimen.sim.kill_image();
        for kind in kinds {
            of_kind(&specimen, kind).iter().for_each(|path| image.remove(path).unwrap());
        }
        let report = repaired(&specimen, &image);
        assert!(report.lost.iter().any(|line| line.contains("the manifest")), "{report:?}");
        assert_eq!(wrong(&specimen, &image), [], "{report:?}");
        assert!(repaired(&specimen, &image).was_sound);
    }
}

/// The SSTs that the manifest names, with their families.
fn ssts(specimen: &Specimen) -> BTreeMap<u64, (usize, FileMeta)> {
    let state = Manifest::read(&specimen.sim, Path::new(DIR)).unwrap();
    let families = state.families.values().enumerate();
    let files = families.flat_map(|(at, family)| {
        family.version.files().map(move |(_, file)| (file.number.get(), (at, (**file).clone())))
    });
    files.collect()
}

#[test]
fn a_lost_sst_costs_keys_in_its_range_only_and_is_told_with_it() {
    let specimen = specimen(60);
    for (number, (family, meta)) in ssts(&specimen) {
        for lost in ["removed", "cut", "footer", "block"] {
            let path = Path::new(DIR).join(format!("{number:06}.sst"));
            let image = specimen.sim.kill_image();
            match lost {
                "removed" => image.remove(&path).unwrap(),
                "cut" => assert!(image.truncate(&path, meta.size_bytes / 2)),
                "footer" => assert!(image.corrupt(&path, meta.size_bytes - 9, 1)),
                _ => assert!(image.corrupt(&path, 9, 1)),
            }
            let report = repaired(&specimen, &image);
            assert!(
                report.lost.iter().any(|l| l.contains(&format!("SST {number} "))),
                "{report:?}"
            );
            let wrong = wrong(&specimen, &image);
            let inside = |key: &Wrong| key.family == family && meta.contains(key.key.as_bytes());
            assert!(wrong.iter().all(inside), "{lost} {meta:?}: {wrong:?}");
            if lost == "block" {
                // The other blocks are saved.
                assert!((wrong.len() as u64) < meta.entry_count.max(7), "{meta:?}: {wrong:?}");
            }
            let kept = format!("lost/{number:06}.sst.damaged");
            assert_eq!(image.exists(&Path::new(DIR).join(kept)).unwrap(), lost != "removed");
            assert!(repaired(&specimen, &image).was_sound);
        }
    }
}

#[test]
fn a_lost_log_segment_costs_its_writes_and_what_follows_it_is_saved() {
    let specimen = specimen(60);
    let logs = of_kind(&specimen, "log");
    assert!(logs.len() >= 2);
    for path in &logs {
        let image = specimen.sim.kill_image();
        image.remove(path).unwrap();
        let report = repaired(&specimen, &image);
        let number = crate::mutants::file_number(path);
        assert!(
            report.lost.iter().any(|line| line.contains(&format!("segment {number}"))),
            "{report:?}"
        );
        let all: usize = specimen.contents.iter().map(BTreeMap::len).sum();
        let wrong = wrong(&specimen, &image);
        assert!(!wrong.is_empty() && wrong.len() < all / 2, "{}: {wrong:?}", path.display());
        assert!(repaired(&specimen, &image).was_sound);
    }
}

/// The evidence has what was durable of it, which a segment that begins anew under its number has not.
#[test]
fn the_number_of_a_lost_log_segment_is_not_given_again() {
    let held = Held::new(FLUSH);
    let mut options = small_options(held.clone(), &stopped_clock());
    options.column_families.clear();
    let db = Db::open(DIR, options.clone()).unwrap();
    let _lets_go = held.let_go_on_drop();
    // Segments that no manifest knows of.
    let mut n = 0;
    while db.shape().families[0].immutable_memtables < 2 {
        n += 1;
        db.put(key(n), [1; 100]).unwrap();
    }
    (0..20).for_each(|more| db.put(key(n + more), [1; 100]).unwrap());
    db.sync().unwrap();
    let image = held.sim.kill_image();
    held.let_go();
    db.close().unwrap();
    let is_log = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "log");
    // Without records nothing else takes a number before the new segment.
    let logs = image.files().into_iter().map(|(path, _)| path).filter(is_log);
    logs.for_each(|path| image.remove(&path).unwrap());
    options.advanced.vfs = Arc::new(image.clone());
    terrace::repair(DIR, options.clone(), RepairOptions::default()).unwrap();
    let db = Db::open(DIR, options.clone()).unwrap();
    db.put("after", "1").unwrap();
    db.sync().unwrap();
    options.advanced.vfs = Arc::new(image.crash_image(1));
    let after = Db::open(DIR, options).unwrap();
    assert_eq!(after.get("after").unwrap().as_deref(), Some(&b"1"[..]));
}

#[test]
fn a_lost_value_segment_costs_its_values() {
    let specimen = specimen(60);
    let segments = of_kind(&specimen, "values");
    assert!(segments.len() >= 2);
    for path in &segments {
        let image = specimen.sim.kill_image();
        image.remove(path).unwrap();
        let report = repaired(&specimen, &image);
        let number = crate::mutants::file_number(path);
        let told = format!("value segment {number} is missing");
        assert!(report.lost.iter().any(|line| line.contains(&told)), "{report:?}");
        assert!(!wrong(&specimen, &image).is_empty());
        assert!(repaired(&specimen, &image).was_sound);
    }
}

#[test]
fn a_segment_with_a_damaged_header_keeps_its_records_and_its_values() {
    let specimen = specimen(60);
    for path in of_kind(&specimen, "values").into_iter().chain(of_kind(&specimen, "log")) {
        let image = specimen.sim.kill_image();
        assert!(image.corrupt(&path, 9, 1));
        let report = repaired(&specimen, &image);
        assert_eq!(wrong(&specimen, &image), [], "{}: {report:?}", path.display());
        assert!(image.exists(&Path::new(DIR).join("lost").join(name(&path))).unwrap());
    }
}

#[test]
fn a_damaged_record_in_the_log_costs_that_record() {
    let specimen = specimen(60);
    let log = of_kind(&specimen, "log").pop().unwrap();
    let number = crate::mutants::file_number(&log);
    let mut reader = LogReader::open(&specimen.sim, &log, SegmentNumber::new(number)).unwrap();
    let mut records = Vec::new();
    while let Step::Record(record) = reader.next().unwrap() {
        if record.kind == RecordKind::Data {
            records.push(record.offset);
        }
    }
    assert!(records.len() > 5);
    let mut costs = 0;
    for offset in records {
        let image = specimen.sim.kill_image();
        assert!(image.corrupt(&log, offset + 12, 0x40));
        assert!(specimen.open(&image, false).is_err());
        let report = repaired(&specimen, &image);
        assert!(report.lost[0].contains(&format!("offset {offset}")), "{report:?}");
        // A batch of the specimen has one operation or two; a range deletion hides up to 14 keys.
        let wrong = wrong(&specimen, &image);
        assert!(wrong.len() <= 14, "{wrong:?}");
        costs += wrong.len();
        // The damaged segment is kept.
        let kept = Path::new(DIR).join("lost").join(name(&log));
        assert!(image.exists(&kept).unwrap());
    }
    assert!(costs > 0);
}

/// Damages up to three places or files; gives the paths.
fn damage(specimen: &Specimen, image: &SimVfs, rng: &mut SplitMix64) -> Vec<PathBuf> {
    let files: Vec<(PathBuf, u64)> = specimen
        .sim
        .files()
        .into_iter()
        .filter(|(path, bytes)| specimen.kind_of(path) != "other" && *bytes > 0)
        .collect();
    let count = 1 + rng.below(3);
    let mut damaged = Vec::new();
    for _ in 0..count {
        let (path, bytes) = &files[rng.below(files.len() as u64) as usize];
        let at = rng.below(*bytes);
        match rng.below(6) {
            0 => drop(image.remove(path)),
            1 => {
                image.truncate(path, at);
            }
            2 => (at..(at + 600).min(*bytes)).for_each(|at| {
                image.corrupt(path, at, 0x5a);
            }),
            _ => {
                image.corrupt(path, at, 1 + rng.below(255) as u8);
            }
        }
        damaged.push(path.clone());
    }
    damaged
}

#[test]
fn whatever_is_damaged_a_repair_saves_the_rest_and_invents_nothing() {
    let specimen = specimen(60);
    let ssts = ssts(&specimen);
    let (mut exact, mut sound) = (0, 0);
    let wanted = effort(300);
    let runs = over_seeds("repair", wanted, |seed, _| {
        let mut rng = SplitMix64::new(seed ^ 0x4e9a);
        let image = specimen.sim.kill_image();
        let damaged = damage(&specimen, &image, &mut rng);
        let report = repaired(&specimen, &image);
        let wrong = wrong(&specimen, &image);
        let kinds: HashSet<&str> = damaged.iter().map(|path| specimen.kind_of(path)).collect();
        let context = || format!("seed {seed}: {damaged:?}: {report:?}: {wrong:?}");
        if !kinds.iter().any(|kind| ["log", "sst", "values"].contains(kind)) {
            assert!(wrong.is_empty(), "{}", context());
            exact += 1;
        }
        if kinds.iter().all(|kind| *kind == "sst") {
            let lost: Vec<&(usize, FileMeta)> =
                damaged.iter().map(|path| &ssts[&crate::mutants::file_number(path)]).collect();
            let inside = |key: &Wrong| {
                lost.iter().any(|(family, meta)| {
                    key.family == *family && meta.contains(key.key.as_bytes())
                })
            };
            assert!(wrong.iter().all(inside), "{}", context());
            exact += 1;
        }
        // With the evidence damaged as well, a cut log looks as if a crash had cut it: the report says so.
        let told = !report.lost.is_empty() || !report.notes.is_empty();
        assert!(wrong.is_empty() || told, "untold: {}", context());
        sound += u64::from(report.was_sound);
        assert!(repaired(&specimen, &image).was_sound, "{}", context());
        1
    });
    println!(
        "{runs} damaged stores repaired, {sound} of them were sound, {exact} compared by range"
    );
}

#[test]
fn a_store_that_is_open_is_not_repaired_and_what_is_none_is_refused() {
    let specimen = specimen(60);
    let image = specimen.sim.kill_image();
    let store = specimen.open(&image, false).unwrap();
    for how in [RepairOptions::default(), DRY_RUN] {
        let refused = repair(&specimen, &image, how);
        assert!(matches!(refused, Err(Error::Locked(_))), "{refused:?}");
    }
    drop(store);
    let empty = SimVfs::new(1);
    let refused = repair(&specimen, &empty, RepairOptions::default());
    assert!(matches!(refused, Err(Error::NotAStore { .. })), "{refused:?}");
    empty.create_dir_all(Path::new(DIR)).unwrap();
    let refused = repair(&specimen, &empty, RepairOptions::default());
    assert!(matches!(refused, Err(Error::NotAStore { .. })), "{refused:?}");
    assert_eq!(empty.files(), [], "nothing is made in a directory that is none of a store");
}
