//! Something else under the names of files: other segments, directories. It is moved to `lost/`, and the repair goes on.

use super::{name, of_kind, repair, repaired, wrong};
use crate::harness::{DIR, small_options, stopped_clock};
use crate::mutants::{file_number, specimen};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace::vfs::{SimVfs, Vfs};
use terrace::{Db, RepairOptions, RepairReport};
use terrace_base::key::pack_trailer;
use terrace_base::{FileNumber, SegmentNumber, SeqNo, ValueKind};
use terrace_log::{LogOptions, LogWriter};
use terrace_sst::{SstOptions, SstWriter};

/// Where it is after the repair.
fn in_lost(path: &Path) -> PathBuf {
    Path::new(DIR).join("lost").join(format!("{}.misplaced", name(path)))
}

fn tells_gap(report: &RepairReport, log: &Path) -> bool {
    let told = format!("log segment {} at offset 0: ", file_number(log));
    report.lost.iter().any(|line| line.starts_with(&told) && line.contains("this is log segment"))
}

fn notes(report: &RepairReport, path: &Path) -> bool {
    report.notes.iter().any(|line| line.starts_with(name(path)) && line.contains("moves to lost/"))
}

/// Nothing of it counts, and nothing but the segment is lost.
#[test]
fn a_log_segment_under_the_name_of_another_is_moved_and_the_rest_is_saved() {
    let specimen = specimen(60);
    let logs = of_kind(&specimen, "log");
    assert!(logs.len() >= 2);
    for (at, path) in logs.iter().enumerate() {
        let [image, without] = [(); 2].map(|()| specimen.sim.kill_image());
        let other = specimen.sim.read_file(&logs[(at + 1) % logs.len()]).unwrap();
        assert!(image.write_file(path, &other));
        specimen.open(&image, false).map(drop).unwrap_err();
        without.remove(path).unwrap();
        let report = repaired(&specimen, &image);
        assert!(tells_gap(&report, path) && notes(&report, path), "{report:?}");
        repaired(&specimen, &without);
        assert_eq!(wrong(&specimen, &image), wrong(&specimen, &without), "{}", path.display());
        assert!(!image.exists(path).unwrap());
        assert!(image.read_file(in_lost(path)).unwrap() == other);
        // Nothing takes it back.
        let from_lost = RepairOptions { from_lost: true, ..RepairOptions::default() };
        repair(&specimen, &image, from_lost).unwrap();
        assert!(!image.exists(path).unwrap());
        assert!(repaired(&specimen, &image).was_sound);
    }
}

#[test]
fn a_copy_of_a_log_segment_behind_the_end_of_the_log_is_moved_and_nothing_is_lost() {
    let specimen = specimen(60);
    let logs = of_kind(&specimen, "log");
    let newest = logs.iter().map(|path| file_number(path)).max().unwrap();
    for is_linked in [true, false] {
        let image = specimen.sim.kill_image();
        let stray = Path::new(DIR).join(format!("{:06}.log", newest + 50));
        match is_linked {
            true => image.hard_link(&logs[0], &stray).unwrap(),
            false => {
                assert!(image.write_file(&stray, specimen.sim.read_file(&logs[0]).unwrap()));
            }
        }
        specimen.open(&image, false).map(drop).unwrap_err();
        let report = repaired(&specimen, &image);
        assert!(tells_gap(&report, &stray) && notes(&report, &stray), "{report:?}");
        assert_eq!(wrong(&specimen, &image), []);
        assert!(!image.exists(&stray).unwrap() && image.exists(&in_lost(&stray)).unwrap());
        assert!(repaired(&specimen, &image).was_sound);
    }
}

#[test]
fn a_value_segment_under_the_name_of_another_is_as_one_that_is_missing() {
    let specimen = specimen(60);
    let segments = of_kind(&specimen, "values");
    assert!(segments.len() >= 2);
    for (at, path) in segments.iter().enumerate() {
        let [image, without] = [(); 2].map(|()| specimen.sim.kill_image());
        let other = &segments[(at + 1) % segments.len()];
        assert!(image.write_file(path, specimen.sim.read_file(other).unwrap()));
        without.remove(path).unwrap();
        let report = repaired(&specimen, &image);
        assert!(notes(&report, path) && !report.lost.is_empty(), "{report:?}");
        repaired(&specimen, &without);
        assert_eq!(wrong(&specimen, &image), wrong(&specimen, &without), "{}", path.display());
        assert!(image.exists(&in_lost(path)).unwrap());
        assert!(repaired(&specimen, &image).was_sound);
    }
}

/// The manifest says which of its two names a segment has. What stands under the other one is of another store.
#[test]
fn a_file_under_the_other_name_of_a_value_segment_costs_nothing() {
    let specimen = specimen(60);
    let segments = of_kind(&specimen, "values");
    assert!(segments.len() >= 2);
    for path in &segments {
        let is_log = path.extension().is_some_and(|extension| extension == "log");
        let stray = path.with_extension(if is_log { "vlog" } else { "log" });
        for is_empty in [true, false] {
            let image = specimen.sim.kill_image();
            if is_empty {
                assert!(image.write_file(&stray, b""));
            } else {
                let number = SegmentNumber::new(file_number(path));
                let options = LogOptions::default();
                let mut writer = LogWriter::create(&image, &stray, number, &options).unwrap();
                writer.append(&[&b"of another store"[..]]).unwrap();
                writer.sync().unwrap();
            }
            let report = repaired(&specimen, &image);
            assert!(report.was_sound && report.lost.is_empty(), "{report:?}");
            assert_eq!(wrong(&specimen, &image), [], "{}", path.display());
            assert!(image.exists(path).unwrap() && !image.exists(&stray).unwrap());
            let kept = Path::new(DIR).join("lost").join(name(&stray));
            assert_eq!(image.exists(&kept).unwrap(), !is_empty || !is_log, "{}", stray.display());
        }
    }
}

/// Puts a directory of somebody's in the place of a file.
fn put_directory(image: &SimVfs, path: &Path) {
    if image.exists(path).unwrap() {
        image.remove(path).unwrap();
    }
    assert!(image.write_file(path.join("precious"), b"of the user"));
}

#[test]
fn a_directory_under_the_name_of_a_file_is_moved_and_the_rest_is_saved() {
    let specimen = specimen(60);
    let of_store = specimen.sim.files().into_iter().map(|(path, _)| path);
    let free = ["CURRENT.tmp", "SYNCED-2.tmp", "000001.tmp", "RESERVE", "READERS-000099"];
    let free = free.into_iter().chain(["000901.sst", "000902.log", "000903.vlog", "000904.tmp"]);
    let free = free.map(|name| Path::new(DIR).join(name));
    let mut tried = 0;
    for path in of_store.chain(free).filter(|path| !path.ends_with("LOCK")) {
        let [image, without] = [(); 2].map(|()| specimen.sim.kill_image());
        put_directory(&image, &path);
        let before = image.files();
        let dry = super::repair(&specimen, &image, super::DRY_RUN).unwrap();
        assert_eq!(image.files().len(), before.len(), "{dry:?}");
        if without.exists(&path).unwrap() {
            without.remove(&path).unwrap();
        }
        let report = repaired(&specimen, &image);
        let is_told = |line: &String| line.contains(name(&path)) && line.contains("a directory");
        assert!(report.lost.iter().chain(&report.notes).any(is_told), "{report:?}");
        assert_eq!(report.lost, dry.lost);
        repaired(&specimen, &without);
        assert_eq!(wrong(&specimen, &image), wrong(&specimen, &without), "{}", path.display());
        let kept = image.read_file(in_lost(&path).join("precious"));
        assert_eq!(kept.as_deref(), Some(&b"of the user"[..]), "{report:?}");
        assert!(repaired(&specimen, &image).was_sound, "{}", path.display());
        tried += 1;
    }
    assert!(tried > 15, "{tried}");
}

/// Its number lies far past all others, as that of a file that somebody has copied there.
#[test]
fn a_directory_with_a_number_far_past_all_others_is_left_alone() {
    let specimen = specimen(60);
    let image = specimen.sim.kill_image();
    let path = Path::new(DIR).join("5000000000.log");
    put_directory(&image, &path);
    assert!(repaired(&specimen, &image).was_sound);
    assert!(image.exists(&path.join("precious")).unwrap());
}

/// The store that a repair makes of SSTs with a key each, which say that they are of these families.
fn made_of(ssts: &[(&str, Option<u32>)]) -> Db {
    let (sim, dir) = (SimVfs::new(1), Path::new(DIR));
    sim.create_dir_all(dir).unwrap();
    for (number, (key, family)) in (10..).zip(ssts) {
        let family = family.map(|id| (id, format!("family-{id}")));
        let options = SstOptions { family, ..SstOptions::default() };
        let path = dir.join(format!("{number:06}.sst"));
        let mut writer = SstWriter::create(&sim, &path, FileNumber::new(number), options).unwrap();
        let trailer = pack_trailer(SeqNo::new(number), ValueKind::Put);
        writer.add(key.as_bytes(), trailer, b"value").unwrap();
        writer.finish().unwrap();
    }
    let mut options = small_options(Arc::new(sim), &stopped_clock());
    options.column_families.clear();
    terrace::repair(DIR, options.clone(), RepairOptions::default()).unwrap();
    Db::open(DIR, options).unwrap()
}

/// A manifest that names it is refused, since none can come after it: the repaired store did not open.
#[test]
fn an_sst_of_the_last_family_that_there_can_be_counts_as_one_that_names_none() {
    let db = made_of(&[("key", Some(u32::MAX))]);
    assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"value"[..]));
    db.close().unwrap();
}

/// Else it gets a family of its own, which would be the last that there can be.
#[test]
fn an_sst_that_names_none_is_of_the_default_family_if_no_other_can_come() {
    let db = made_of(&[("elsewhere", Some(u32::MAX - 1)), ("key", None)]);
    assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"value"[..]));
    assert!(db.get("elsewhere").unwrap().is_none());
    db.close().unwrap();
}
