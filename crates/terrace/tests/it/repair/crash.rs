//! A repair that a crash cuts short, at every operation on the file system.

use super::{of_kind, repair, wrong};
use crate::harness::{DIR, effort, key, small_options, stopped_clock};
use crate::mutants::{Specimen, specimen};
use std::path::Path;
use std::sync::Arc;
use terrace::vfs::{SimVfs, Vfs};
use terrace::{Db, Error, Options, RepairOptions, RepairReport, SyncMode, repair_telling};
use terrace_vfs::LOST_SECTOR_BYTES;

/// Repairs on a device that dies after each number of operations, and again what that leaves: after a power cut
/// and after a mere kill. Between the two, every open must show at least what the report says. Of the losses that a repair
/// tells which is not cut short, each is in the report of one of the two; the third finds nothing and tells nothing.
fn interrupted(specimen: &Specimen, damaged: &SimVfs, most_wrong: usize) {
    let rehearsal = damaged.kill_image();
    let losses = repair(specimen, &rehearsal, RepairOptions::default()).unwrap().lost;
    assert!(!losses.is_empty());
    let ops = rehearsal.op_count();
    let step = (ops / effort(120)).max(1);
    let (mut failed, mut crashes) = (0, 0);
    for at in (0..ops).step_by(step as usize) {
        let image = damaged.kill_image();
        image.crash_after(at);
        let (told, ended) = repair_and_note(specimen, &image);
        failed += u64::from(!ended);
        for killed in [true, false] {
            let left = if killed { image.kill_image() } else { image.crash_image(at) };
            // A store that opens now shows what was repaired.
            let opens = left.kill_image();
            if specimen.open(&opens, true).is_ok() {
                let wrong = wrong(specimen, &opens);
                assert!(wrong.len() <= most_wrong, "operation {at}, killed {killed}: {wrong:?}");
            }
            let report = repair(specimen, &left, RepairOptions::default());
            let report = report.unwrap_or_else(|e| panic!("operation {at}, killed {killed}: {e}"));
            let is_told = |loss: &&String| told.contains(loss) || report.lost.contains(loss);
            let untold: Vec<&String> = losses.iter().filter(|loss| !is_told(loss)).collect();
            assert!(untold.is_empty(), "operation {at}, killed {killed}: {report:?}: {untold:?}");
            let wrong = wrong(specimen, &left);
            assert!(
                wrong.len() <= most_wrong,
                "operation {at}, killed {killed}: {report:?}: {wrong:?}"
            );
            let third = repair(specimen, &left, RepairOptions::default()).unwrap();
            assert!(third.was_sound && third.lost.is_empty(), "operation {at}: {third:?}");
            crashes += 1;
        }
    }
    println!("{crashes} crashes in {ops} operations of a repair, {failed} repairs failed");
    assert!(failed > crashes / 4, "most crashes came too late: {failed} of {crashes}");
}

/// Gives the losses that were told, and whether the repair came to its end.
fn repair_and_note(specimen: &Specimen, image: &SimVfs) -> (Vec<String>, bool) {
    let mut options = specimen.options.clone();
    options.advanced.vfs = Arc::new(image.clone());
    let mut told = Vec::new();
    let tell = |report: &RepairReport| {
        told.clone_from(&report.lost);
        Ok::<_, Error>(())
    };
    let ended = repair_telling(DIR, options, RepairOptions::default(), tell).is_ok();
    (told, ended)
}

#[test]
fn a_repair_that_is_cut_short_is_repeated_when_the_manifest_is_lost() {
    let specimen = specimen(60);
    let image = specimen.sim.kill_image();
    for (path, _) in specimen.sim.files() {
        if ["manifest", "CURRENT"].contains(&specimen.kind_of(&path)) {
            image.remove(&path).unwrap();
        }
    }
    // A power cut does not bring them back.
    image.sync_dir(Path::new(DIR)).unwrap();
    interrupted(&specimen, &image, 0);
}

#[test]
fn a_repair_that_is_cut_short_is_repeated_when_an_sst_and_the_log_are_damaged() {
    let specimen = specimen(60);
    let image = specimen.sim.kill_image();
    let newest = |extension: &str| {
        let files = specimen.sim.files().into_iter().map(|(path, _)| path);
        let of = files.filter(|path| path.extension().is_some_and(|e| e == extension));
        of.filter(|path| path.starts_with(Path::new(DIR))).max().unwrap()
    };
    for (path, bytes) in specimen.sim.files() {
        if specimen.kind_of(&path) == "sst" {
            assert!(image.corrupt(&path, bytes / 3, 1));
        }
    }
    let log = newest("log");
    assert!(image.corrupt(&log, specimen.sim.len(&log).unwrap() / 2, 0x40));
    interrupted(&specimen, &image, cost(&specimen, &image));
}

#[test]
fn a_repair_that_is_cut_short_is_repeated_when_segments_are_written_anew() {
    let specimen = specimen(60);
    let image = specimen.sim.kill_image();
    for kind in ["log", "values"] {
        let path = of_kind(&specimen, kind).into_iter().max().unwrap();
        let sector = LOST_SECTOR_BYTES as u64;
        let at = specimen.sim.len(&path).unwrap() / 2 / sector * sector;
        assert!(image.lose_sector(&path, at..at + sector), "{}", path.display());
    }
    interrupted(&specimen, &image, cost(&specimen, &image));
}

/// A segment in the middle of the log is another one: an open would take the hole for the end, were it moved before the replay.
#[test]
fn a_repair_that_is_cut_short_is_repeated_when_something_else_stands_under_names() {
    let specimen = specimen(60);
    let logs = of_kind(&specimen, "log");
    assert!(logs.len() >= 2);
    let image = specimen.sim.kill_image();
    assert!(image.write_file(&logs[0], specimen.sim.read_file(&logs[1]).unwrap()));
    for directory in ["CURRENT", "SYNCED-1", "000901.sst"] {
        let path = Path::new(DIR).join(directory);
        if image.exists(&path).unwrap() {
            image.remove(&path).unwrap();
        }
        assert!(image.write_file(path.join("precious"), b"of the user"));
    }
    image.sync_dir(Path::new(DIR)).unwrap();
    interrupted(&specimen, &image, cost(&specimen, &image));
}

const KEYS: u64 = 80;

/// How many of [`KEYS`] show, if the store opens for writing.
fn shown(options: &Options, image: &SimVfs) -> Result<usize, Error> {
    let db = Db::open(DIR, over(options, image))?;
    let count = (0..KEYS).filter(|n| db.get(key(*n)).unwrap().is_some()).count();
    db.close()?;
    Ok(count)
}

fn over(options: &Options, image: &SimVfs) -> Options {
    let mut options = options.clone();
    options.advanced.vfs = Arc::new(image.clone());
    options
}

/// Nothing but that it cannot be read says that the log goes on behind the lost sector: an open takes zeros there for its end.
#[test]
fn an_open_after_a_repair_that_is_cut_short_never_loses_what_stands_behind_a_lost_sector() {
    let sim = SimVfs::new(1);
    let mut options = small_options(Arc::new(sim.clone()), &stopped_clock());
    options.column_families.clear();
    options.sync = SyncMode::None;
    options.advanced.log_retention_bytes = 0;
    let db = Db::open(DIR, options.clone()).unwrap();
    (0..KEYS).for_each(|n| db.put(key(n), [b'v'; 60]).unwrap());
    db.sync().unwrap();
    let damaged = sim.kill_image();
    drop(db);
    for number in 1..=2 {
        damaged.remove(Path::new(&format!("{DIR}/SYNCED-{number}"))).unwrap();
    }
    // A power cut does not bring them back.
    damaged.sync_dir(Path::new(DIR)).unwrap();
    let is_log = |path: &Path| path.extension().is_some_and(|ending| ending == "log");
    let logs = damaged.files().into_iter().map(|(path, _)| path).filter(|path| is_log(path));
    let log = logs.max().unwrap();
    let sector = LOST_SECTOR_BYTES..2 * LOST_SECTOR_BYTES;
    let mut zeroed = damaged.read_file(&log).unwrap();
    zeroed[sector.clone()].fill(0);
    let trap = damaged.kill_image();
    assert!(trap.write_file(&log, zeroed));
    assert!(damaged.lose_sector(&log, sector.start as u64..sector.end as u64));
    let repair =
        |image: &SimVfs| terrace::repair(DIR, over(&options, image), RepairOptions::default());
    let rehearsal = damaged.kill_image();
    repair(&rehearsal).unwrap();
    let ops = rehearsal.op_count();
    let saved = shown(&options, &rehearsal).unwrap();
    let before_zeros = shown(&options, &trap).unwrap();
    assert!(saved > before_zeros + 20 && saved < KEYS as usize, "{saved}, {before_zeros}");
    let (mut opened, mut refused) = (0, 0);
    for at in (0..ops).step_by((ops / effort(120)).max(1) as usize) {
        let image = damaged.kill_image();
        image.crash_after(at);
        let _ = repair(&image);
        for left in [image.kill_image(), image.crash_image(at)] {
            match shown(&options, &left.kill_image()) {
                Ok(count) => {
                    assert_eq!(count, saved, "operation {at}");
                    opened += 1;
                }
                Err(Error::Io(_)) => refused += 1,
                Err(error) => panic!("operation {at}: {error}"),
            }
            repair(&left).unwrap_or_else(|error| panic!("operation {at}: {error}"));
            assert_eq!(shown(&options, &left).unwrap(), saved, "operation {at}");
        }
    }
    println!("{opened} opens, {refused} refused, in {ops} operations of a repair");
    assert!(opened > 3 && refused > 3, "{opened}, {refused}");
}

/// How many keys a repair that is not cut short loses.
fn cost(specimen: &Specimen, damaged: &SimVfs) -> usize {
    let rehearsal = damaged.kill_image();
    repair(specimen, &rehearsal, RepairOptions::default()).unwrap();
    let lost = wrong(specimen, &rehearsal).len();
    assert!(lost > 0);
    lost
}
