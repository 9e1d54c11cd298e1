//! The oracle of files and bytes refuses what it is for.

use super::*;
use crate::harness::{small_options, stopped_clock};
use crate::plan::key;
use std::sync::Arc;
use terrace_base::{FileNumber, SegmentNumber};

const ENTRIES: u64 = 100;
/// More than the log of all entries.
const LOG_BYTES: u64 = 2 * ENTRIES * 100;

/// A closed store with some SSTs, and its options.
fn closed() -> (SimVfs, Options) {
    let sim = SimVfs::new(1);
    let options = small_options(Arc::new(sim.clone()), &stopped_clock());
    let store = Store::open(options.clone()).unwrap();
    for n in 0..ENTRIES {
        store.db.put(key(n), [7_u8; 100]).unwrap();
    }
    store.db.close().unwrap();
    (sim.kill_image(), options)
}

/// The store with one of its files changed, and what is said of it.
fn refused(change: impl FnOnce(&SimVfs)) -> String {
    let (sim, options) = closed();
    change(&sim);
    check_closed(&sim, &options, None).unwrap_err()
}

#[test]
fn a_closed_store_is_accounted_for_and_nothing_beside_it() {
    let (sim, options) = closed();
    check_closed(&sim, &options, Some(LOG_BYTES)).unwrap();
    let why = refused(|sim| {
        let is_sst = |(name, ..): &(FileName, PathBuf, u64)| matches!(name, FileName::Sst(_));
        let (_, path, _) = files(sim).into_iter().find(is_sst).expect("there is an SST");
        let mut bytes = sim.read_file(&path).unwrap();
        bytes.push(0);
        assert!(sim.write_file(&path, bytes));
    });
    assert!(why.contains(".sst has"), "{why}");
    let too_long = vec![0_u8; options.advanced.reserve_bytes as usize + 1];
    let reserve = names::reserve_path(Path::new(DIR));
    let why = refused(|sim| assert!(sim.write_file(&reserve, too_long)));
    assert!(why.contains("RESERVE has"), "{why}");
    let stray = names::sst_path(Path::new(DIR), FileNumber::new(999));
    let why = refused(|sim| assert!(sim.write_file(&stray, b"nobody's")));
    assert!(why.contains("named by nothing"), "{why}");
}

#[test]
fn log_that_the_store_does_not_know_of_is_noticed() {
    let (sim, options) = closed();
    let log = names::log_path(Path::new(DIR), SegmentNumber::new(999));
    assert!(sim.write_file(&log, vec![1_u8; 1 << 20]));
    let why = check_closed(&sim, &options, Some(LOG_BYTES)).unwrap_err();
    assert!(why.contains("bytes of log"), "{why}");
}

#[test]
fn a_store_that_was_emptied_has_no_data_and_one_that_was_not_is_refused() {
    let (sim, options) = closed();
    let why = check_nothing_left(&sim, &options).unwrap_err();
    assert!(why.contains("an empty store has") && why.contains(".sst"), "{why}");
    let mut again = options.clone();
    again.advanced.vfs = Arc::new(sim.clone());
    empty(again).unwrap();
    check_nothing_left(&sim.kill_image(), &options).unwrap();
}
