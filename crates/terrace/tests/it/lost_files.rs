//! R9: files that are gone. Whichever file of a store is lost, and whichever two: the store says so and
//! does not open, or a read says so, or everything that was synced is there. It is never an older store.

use crate::mutants::{Outcome, Specimen, specimen};
use std::path::PathBuf;
use terrace::Error;
use terrace::vfs::Vfs;

/// The files that a store consists of.
fn files(specimen: &Specimen) -> Vec<PathBuf> {
    let all = specimen.sim.files().into_iter().map(|(path, _)| path);
    all.filter(|path| specimen.kind_of(path) != "other").collect()
}

#[test]
fn r9_without_the_oldest_log_segment_that_is_needed_the_store_does_not_open() {
    let specimen = specimen(60);
    let logs = files(&specimen).into_iter().filter(|path| specimen.kind_of(path) == "log");
    let logs: Vec<PathBuf> = logs.collect();
    assert!(logs.len() >= 2, "{logs:?}");
    for read_only in [true, false] {
        let image = specimen.sim.kill_image();
        image.remove(&logs[0]).unwrap();
        let error = specimen.open(&image, read_only).err().expect("a hole in the history");
        let name = logs[0].file_name().unwrap().to_str().unwrap();
        assert!(
            matches!(error, Error::Corruption(_)) && error.to_string().contains(name),
            "{error}"
        );
        assert_eq!(specimen.examine(&image, read_only, 0), Ok(Outcome::Refused));
    }
}
