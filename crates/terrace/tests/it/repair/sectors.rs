//! Sectors that the device does not give any more: a repair costs what stands in them, and tells.

use super::{of_kind, repaired, wrong};
use crate::harness::DIR;
use crate::mutants::specimen;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace::RepairOptions;
use terrace::vfs::{SimVfs, Vfs};
use terrace_base::Error;
use terrace_vfs::{BeforeCalls, Call, LOST_SECTOR_BYTES, OpenMode};

/// What is read again by itself around a sector that cannot be read.
const PAGE_BYTES: u64 = 4096;

/// Loses page after page of all files of a kind; gives how many keys are wrong at most after one.
fn lose_pages_of(kind: &str) -> usize {
    let specimen = specimen(60);
    let mut most = 0;
    let files = of_kind(&specimen, kind);
    assert!(!files.is_empty());
    for path in files {
        let bytes = specimen.sim.files().into_iter().find(|(of, _)| *of == path).unwrap().1;
        for page in 0..bytes.div_ceil(PAGE_BYTES) {
            let image = specimen.sim.kill_image();
            assert!(image.lose_sector(&path, page * PAGE_BYTES..page * PAGE_BYTES + 512));
            let report = repaired(&specimen, &image);
            let wrong = wrong(&specimen, &image);
            let told = !report.lost.is_empty() || !report.notes.is_empty();
            assert!(wrong.is_empty() || told, "page {page} of {}: {report:?}", path.display());
            most = most.max(wrong.len());
            assert_whole(&image, &format!("page {page} of {}", path.display()));
            assert!(repaired(&specimen, &image).was_sound, "page {page} of {}", path.display());
        }
    }
    most
}

/// Backups read every file of the store to its end.
fn assert_whole(image: &SimVfs, what: &str) {
    let of_store = |(path, _): &(PathBuf, u64)| path.parent() == Some(Path::new(DIR));
    for (path, bytes) in image.files().into_iter().filter(of_store) {
        let file = image.open(&path, OpenMode::default()).unwrap();
        let read = file.read_at(0, &mut vec![0; bytes as usize]);
        read.unwrap_or_else(|error| panic!("{what}: {error}"));
    }
}

#[test]
fn of_the_log_it_costs_what_stands_there() {
    let most = lose_pages_of("log");
    assert!((1..60).contains(&most), "{most}");
}

#[test]
fn of_values_it_costs_those_values() {
    lose_pages_of("values");
}

#[test]
fn of_a_manifest_or_the_evidence_it_costs_nothing() {
    for kind in ["manifest", "evidence", "CURRENT"] {
        assert_eq!(lose_pages_of(kind), 0, "{kind}");
    }
}

#[test]
fn of_an_sst_it_costs_its_keys() {
    lose_pages_of("sst");
}

/// As on FAT.
#[test]
fn without_hard_links_it_costs_the_same_and_the_copy_has_zeros_there() {
    let specimen = specimen(60);
    for kind in ["log", "values", "manifest", "CURRENT"] {
        let path = of_kind(&specimen, kind).into_iter().max().unwrap();
        let bytes = specimen.sim.read_file(&path).unwrap();
        let sector = LOST_SECTOR_BYTES as u64;
        let at = bytes.len() as u64 / 2 / sector * sector;
        let (linked, copied) = (specimen.sim.kill_image(), specimen.sim.kill_image());
        for image in [&linked, &copied] {
            assert!(image.lose_sector(&path, at..at + sector));
        }
        let mut options = specimen.options.clone();
        options.advanced.vfs =
            Arc::new(BeforeCalls::new(copied.clone(), |call, path| match call {
                Call::HardLink(_) => Err(Error::io("link", path, ErrorKind::Unsupported.into())),
                _ => Ok(()),
            }));
        let report = terrace::repair(DIR, options, RepairOptions::default()).unwrap();
        assert_eq!(report.lost, repaired(&specimen, &linked).lost, "{kind}");
        assert_eq!(wrong(&specimen, &copied), wrong(&specimen, &linked), "{kind}");
        assert_whole(&copied, kind);
        let kept = Path::new(DIR).join("lost").join(path.file_name().unwrap());
        let mut want = bytes;
        let end = want.len().min((at + sector) as usize);
        want[at as usize..end].fill(0);
        assert!(copied.read_file(&kept).unwrap() == want, "{kind}");
    }
}
