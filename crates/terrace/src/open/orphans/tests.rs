//! What an open does with files that nothing names.

use super::*;
use crate::{Db, Options, RepairOptions};
use std::sync::Arc;
use terrace_base::{Error, FileNumber};
use terrace_manifest::Manifest;
use terrace_vfs::{BeforeCalls, Call, EIO, SimVfs};

const DIR: &str = "/store";

fn options(sim: &SimVfs) -> Options {
    options_over(Arc::new(sim.clone()))
}

fn options_over(vfs: Arc<dyn Vfs>) -> Options {
    let mut options = Options { memory_budget: 16 << 20, ..Options::default() };
    options.advanced.vfs = vfs;
    options
}

/// A store with one SST, closed; the number of the SST.
fn store() -> (SimVfs, FileNumber) {
    let sim = SimVfs::new(1);
    let db = Db::open(DIR, options(&sim)).unwrap();
    db.put(b"key", b"value").unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    let state = Manifest::read(&sim, Path::new(DIR)).unwrap();
    let file = state.families[&0].version.files().next().unwrap().1.number;
    (sim, file)
}

fn names(sim: &SimVfs, dir: &Path) -> Vec<String> {
    if !sim.exists(dir).unwrap() { Vec::new() } else { sim.list(dir).unwrap() }
}

#[test]
fn an_sst_that_no_version_names_is_set_aside_and_never_deleted() {
    let (sim, file) = store();
    let bytes = sim.read_file(names::sst_path(Path::new(DIR), file)).unwrap();
    let stray = names::sst_path(Path::new(DIR), file + 100);
    for round in 0..2 {
        assert!(sim.write_file(&stray, &bytes));
        Db::open(DIR, options(&sim)).unwrap().close().unwrap();
        assert!(!sim.exists(&stray).unwrap());
        let lost = names(&sim, &names::lost_dir(Path::new(DIR)));
        assert_eq!(lost.len(), round + 1, "{lost:?}");
        let kept = names::lost_dir(Path::new(DIR)).join(&lost[round]);
        assert_eq!(sim.read_file(kept).unwrap(), bytes);
    }
}

/// A closed store with one SST, a segment with its values, and an SST that was taken out.
struct Separated {
    sim: SimVfs,
    file: FileNumber,
    segment: SegmentNumber,
    gone: FileNumber,
}

impl Separated {
    fn new() -> Self {
        // Some compactions collect the segment, as far as it has been let go of: another file has the values then.
        (0..100).find_map(|_| Self::uncollected()).expect("a segment of the log with its values")
    }

    fn uncollected() -> Option<Self> {
        let (sim, gone) = store();
        let db = Db::open(DIR, options(&sim)).unwrap();
        db.default_family().set_value_separation_threshold(16).unwrap();
        db.put(b"key", vec![7; 100]).unwrap();
        db.flush().unwrap();
        db.compact_range::<&[u8]>(..).unwrap();
        db.close().unwrap();
        Db::open(DIR, options(&sim)).unwrap().close().unwrap();
        let state = Manifest::read(&sim, Path::new(DIR)).unwrap();
        let file = state.families[&0].version.files().next().unwrap().1.number;
        let segment = *state.segments.keys().next().unwrap();
        if state.segments[&segment].kind != SegmentKind::CommitLog {
            return None;
        }
        assert!(state.retired.contains(&gone));
        assert!(gone.segment() < state.families[&0].min_log_segment && gone.segment() != segment);
        Some(Self { sim, file, segment, gone })
    }
}

/// What is in `lost/` of the file that was at `path`.
fn misplaced(sim: &SimVfs, path: &Path) -> Option<Vec<u8>> {
    let mut kept = path.file_name().unwrap().to_os_string();
    kept.push(MISPLACED);
    sim.read_file(names::lost_dir(Path::new(DIR)).join(kept))
}

/// Somebody has renamed the only SST, or the segment with its values.
#[test]
fn a_file_that_has_the_name_of_one_that_was_taken_out_is_set_aside_and_never_deleted() {
    let dir = Path::new(DIR);
    let Separated { sim, file, segment, gone } = Separated::new();
    for (from, to) in [
        (names::sst_path(dir, file), names::sst_path(dir, gone)),
        (names::sst_path(dir, file), names::log_path(dir, file.segment())),
        (names::sst_path(dir, file), names::value_log_path(dir, file.segment())),
        (names::sst_path(dir, file), names::log_path(dir, gone.segment())),
        (names::sst_path(dir, file), names::value_log_path(dir, gone.segment())),
        (names::log_path(dir, segment), names::log_path(dir, gone.segment())),
    ] {
        let image = sim.kill_image();
        let bytes = image.read_file(&from).unwrap();
        image.rename(&from, &to).unwrap();
        drop(Db::open(DIR, options(&image)).unwrap());
        assert!(!image.exists(&to).unwrap());
        assert_eq!(misplaced(&image, &to), Some(bytes), "{to:?}");
    }
}

/// Somebody has hidden them.
#[test]
fn a_temporary_file_with_the_number_of_a_missing_one_is_set_aside_and_never_deleted() {
    let dir = Path::new(DIR);
    let Separated { sim, file, segment, .. } = Separated::new();
    for (from, number) in
        [(names::sst_path(dir, file), file), (names::log_path(dir, segment), segment.file())]
    {
        let hidden = names::temp_path(dir, number);
        for repairs in [false, true] {
            let image = sim.kill_image();
            let bytes = image.read_file(&from).unwrap();
            image.rename(&from, &hidden).unwrap();
            match repairs {
                true => {
                    let how = RepairOptions::default();
                    assert!(!crate::repair(DIR, options(&image), how).unwrap().lost.is_empty());
                }
                false => drop(Db::open(DIR, options(&image)).unwrap()),
            }
            assert!(!image.exists(&hidden).unwrap());
            assert_eq!(misplaced(&image, &hidden), Some(bytes), "{hidden:?}, {repairs}");
        }
        // Beside its file it is what a crash has left.
        let image = sim.kill_image();
        assert!(image.write_file(&hidden, b"half"));
        drop(Db::open(DIR, options(&image)).unwrap());
        assert!(!image.exists(&hidden).unwrap() && misplaced(&image, &hidden).is_none());
    }
}

/// Nothing was written there since the store was opened: what stands in its place is a torn header to the replay.
#[test]
fn an_sst_in_the_place_of_the_newest_segment_is_set_aside_and_never_deleted() {
    let dir = Path::new(DIR);
    let (sim, file) = store();
    let options = || {
        let mut options = options(&sim);
        options.advanced.log_retention_bytes = 0;
        options
    };
    Db::open(DIR, options()).unwrap().close().unwrap();
    let state = Manifest::read(&sim, dir).unwrap();
    let newest = names::log_path(dir, state.families[&0].min_log_segment);
    let sst = names::sst_path(dir, file);
    let bytes = sim.read_file(&sst).unwrap();
    assert!(sim.exists(&newest).unwrap());
    sim.rename(&sst, &newest).unwrap();
    drop(Db::open(DIR, options()).unwrap());
    assert_eq!(misplaced(&sim, &newest), Some(bytes));
}

/// Neither a file that was never finished nor one that nothing needs.
#[test]
fn a_file_that_cannot_be_removed_keeps_no_store_closed_and_goes_when_it_can() {
    let (sim, file) = store();
    let dir = Path::new(DIR);
    let temp = names::temp_path(dir, file + 100);
    let values = names::value_log_path(dir, (file + 101).segment());
    for path in [&temp, &values] {
        assert!(sim.write_file(path, b""));
    }
    let stubborn = [temp.clone(), values.clone()];
    let vfs = BeforeCalls::new(sim.clone(), move |call, path| match call {
        Call::Remove if stubborn.iter().any(|kept| kept == path) => {
            Err(Error::io("remove", path, std::io::Error::from_raw_os_error(EIO)))
        }
        _ => Ok(()),
    });
    let db = Db::open(DIR, options_over(Arc::new(vfs))).unwrap();
    assert!(db.get(b"key").unwrap().is_some());
    db.close().unwrap();
    assert!(sim.exists(&temp).unwrap() && sim.exists(&values).unwrap());
    Db::open(DIR, options(&sim)).unwrap().close().unwrap();
    assert!(!sim.exists(&temp).unwrap() && !sim.exists(&values).unwrap());
}

/// The next switch of the manifest, or new evidence, would find it in its way.
#[test]
fn a_temporary_file_that_is_written_again_has_to_go_before_a_store_opens() {
    let dir = Path::new(DIR);
    for temp in [names::current_temp_path(dir), names::evidence_temp_path(dir, 2)] {
        let (sim, _) = store();
        assert!(sim.write_file(&temp, b""));
        let stubborn = temp.clone();
        let vfs = BeforeCalls::new(sim.clone(), move |call, path| match call {
            Call::Remove if *path == *stubborn => {
                Err(Error::io("remove", path, std::io::Error::from_raw_os_error(EIO)))
            }
            _ => Ok(()),
        });
        assert!(Db::open(DIR, options_over(Arc::new(vfs))).is_err(), "{temp:?}");
        let db = Db::open(DIR, options(&sim)).unwrap();
        assert!(db.get(b"key").unwrap().is_some());
        db.close().unwrap();
        assert!(!sim.exists(&temp).unwrap());
    }
}

#[test]
fn what_a_crash_leaves_of_a_job_is_deleted() {
    let (sim, file) = store();
    let bytes = sim.read_file(names::sst_path(Path::new(DIR), file)).unwrap();
    let temp = names::temp_path(Path::new(DIR), file + 100);
    assert!(sim.write_file(&temp, &bytes[..bytes.len() / 2]));
    Db::open(DIR, options(&sim)).unwrap().close().unwrap();
    assert!(!sim.exists(&temp).unwrap());
    assert_eq!(names(&sim, &names::lost_dir(Path::new(DIR))), [""; 0]);
}

/// A program may keep files of its own beside the store's.
#[test]
fn a_temporary_file_of_somebody_else_stays() {
    let (sim, _) = store();
    let (theirs, ours) = (Path::new(DIR).join("notes.tmp"), Path::new(DIR).join("CURRENT.tmp"));
    assert!(sim.write_file(&theirs, b"mine") && sim.write_file(&ours, b"half"));
    Db::open(DIR, options(&sim)).unwrap().close().unwrap();
    assert_eq!(sim.read_file(&theirs).unwrap(), b"mine");
    assert!(!sim.exists(&ours).unwrap());
}

/// Also where backups have their checkpoint, and where that is a link.
#[test]
fn what_no_backup_has_left_stays() {
    let dir = tempfile::tempdir().unwrap();
    let (store, elsewhere) = (dir.path().join("store"), dir.path().join("elsewhere"));
    let open = || Db::open(&store, Options { memory_budget: 16 << 20, ..Options::default() });
    open().unwrap().close().unwrap();
    std::fs::create_dir(&elsewhere).unwrap();
    for name in ["mine", "000001.sst"] {
        std::fs::write(elsewhere.join(name), b"mine").unwrap();
    }
    let [work, partial] = terrace_manifest::backup_work::dirs(&store);
    std::os::unix::fs::symlink(&elsewhere, &partial).unwrap();
    std::fs::create_dir(&work).unwrap();
    for name in ["mine", "000001.sst"] {
        std::fs::write(work.join(name), b"mine").unwrap();
    }
    open().unwrap().close().unwrap();
    assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 2);
    assert!(work.join("mine").exists());
    // What a backup may have left goes.
    assert!(!work.join("000001.sst").exists());
}

#[test]
fn what_has_the_name_of_the_reserve_and_is_no_file_hinders_no_write() {
    for is_new in [true, false] {
        let sim = if is_new { SimVfs::new(1) } else { store().0 };
        let mine = names::reserve_path(Path::new(DIR)).join("mine");
        if sim.exists(&names::reserve_path(Path::new(DIR))).unwrap() {
            sim.remove(&names::reserve_path(Path::new(DIR))).unwrap();
        }
        assert!(sim.write_file(&mine, b"mine"));
        let db = Db::open(DIR, options(&sim)).unwrap();
        db.put(b"another", b"value").unwrap();
        db.flush().unwrap();
        db.close().unwrap();
        let kept = names::lost_dir(Path::new(DIR)).join("RESERVE/mine");
        assert_eq!(sim.read_file(kept).unwrap(), b"mine");
    }
}

#[test]
fn files_of_somebody_are_not_lost_where_a_store_is_made_beside_them() {
    let dir = Path::new(DIR);
    let sim = SimVfs::new(1);
    assert!(sim.write_file(names::reserve_path(dir), b"mine"));
    let db = Db::open(DIR, options(&sim)).unwrap();
    db.put(b"key", b"value").unwrap();
    db.close().unwrap();
    assert_eq!(sim.read_file(names::lost_dir(dir).join("RESERVE")).unwrap(), b"mine");
    // Its own reserve stays where it is.
    Db::open(DIR, options(&sim)).unwrap().close().unwrap();
    assert!(!sim.exists(&names::lost_dir(dir).join("RESERVE.1")).unwrap());

    let sim = SimVfs::new(1);
    let mine = dir.join("000007.tmp");
    assert!(sim.write_file(&mine, b"mine"));
    let error = Db::open(DIR, options(&sim)).err().unwrap();
    assert!(matches!(error, crate::Error::NotAStore { .. }), "{error}");
    assert!(error.to_string().contains("move 000007.tmp away"), "{error}");
    assert_eq!(sim.read_file(&mine).unwrap(), b"mine");
}

#[test]
fn what_has_the_name_of_the_reserve_or_of_an_old_manifest_is_no_other_file_when_it_is_removed() {
    let (sim, file) = store();
    Db::open(DIR, options(&sim)).unwrap().close().unwrap();
    let dir = Path::new(DIR);
    let in_force = current::read(&sim, dir).unwrap();
    let bytes = sim.read_file(names::sst_path(dir, file)).unwrap();
    let manifests = [in_force - 1, in_force + 1].map(|number| names::manifest_path(dir, number));
    for taken in manifests.into_iter().chain([names::reserve_path(dir)]) {
        let image = sim.kill_image();
        image.rename(&names::sst_path(dir, file), &taken).unwrap();
        // Whether it opens without the file makes no difference.
        drop(Db::open(DIR, options(&image)));
        let name = taken.file_name().unwrap().to_str().unwrap();
        let kept = names::lost_dir(dir).join(format!("{name}{MISPLACED}"));
        assert_eq!(image.read_file(kept).as_ref(), Some(&bytes), "{name}");
    }
}

/// The manifest itself says that a file was merged away: if a crash comes before it is deleted, the
/// next open does that, and so does one after a crash in that open.
#[test]
fn a_file_that_the_manifest_took_out_is_deleted() {
    let (sim, file) = store();
    let path = names::sst_path(Path::new(DIR), file);
    let bytes = sim.read_file(&path).unwrap();
    let db = Db::open(DIR, options(&sim)).unwrap();
    db.delete(b"key").unwrap();
    db.compact_range::<&[u8]>(..).unwrap();
    // A killed process: nothing is closed.
    let sim = sim.kill_image();
    drop(db);
    assert!(sim.write_file(&path, &bytes));
    for read_before in [false, true] {
        let image = sim.kill_image();
        if read_before {
            // An open that came as far as the new manifest.
            Manifest::recover(Arc::new(image.clone()), Path::new(DIR)).unwrap();
        }
        let db = Db::open(DIR, options(&image)).unwrap();
        assert_eq!(db.get(b"key").unwrap(), None);
        assert!(!image.exists(&path).unwrap());
        assert_eq!(names(&image, &names::lost_dir(Path::new(DIR))), [""; 0]);
    }
}
