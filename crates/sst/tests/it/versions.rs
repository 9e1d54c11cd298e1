//! Files of earlier format versions are read as ever. They were written by the builds of their time, from the
//! entries of `golden.rs`; a build that needs others has to raise the format version first.

use crate::external::{GLOBAL, check_copy, tombstones_at, with_seqno};
use crate::files::*;
use crate::golden::{golden_model, golden_tombstones};
use crate::model::{check_iterator, check_lookups};
use std::path::PathBuf;
use terrace_base::{FileNumber, RangeTombstones, SeqNo, SplitMix64};
use terrace_sst::{DumpDetail, ScanOptions, dump};
use terrace_vfs::{OpenMode, SimVfs, Vfs};

fn fixture(name: &str) -> Vec<u8> {
    let name = format!("tests/golden/{name}.sst");
    std::fs::read(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

fn version(vfs: &SimVfs, number: u64) -> String {
    let file = vfs.open(&path(number), OpenMode::default()).unwrap();
    let mut text = String::new();
    dump(&*file, Some(FileNumber::new(number)), DumpDetail::Summary, &mut text).unwrap();
    let line = text.lines().find(|line| line.contains("format version")).unwrap();
    line.rsplit(' ').next().unwrap().to_string()
}

fn check(vfs: &SimVfs, number: u64, model: &Model, tombstones: &RangeTombstones) {
    let reader = open(vfs, number, &reader_options(100_000)).unwrap();
    assert_eq!(reader.range_tombstones(), tombstones);
    reader.verify().unwrap();
    let mut rng = SplitMix64::new(number);
    check_lookups(&mut rng, &reader, model);
    check_iterator(&mut rng, reader.iter(ScanOptions::default()), model);
    check_iterator(&mut rng, reader.iter(ScanOptions::compaction()), model);
}

/// The file that a build of this version wrote has what was written.
fn check_fixture(of_version: &str) {
    let vfs = SimVfs::new(1);
    assert!(vfs.write_file(path(12), fixture(&format!("version-{of_version}"))));
    assert_eq!(version(&vfs, 12), of_version);
    check(&vfs, 12, &golden_model(), &golden_tombstones());
}

#[test]
fn a_file_of_version_1_is_read() {
    check_fixture("1");
}

#[test]
fn an_ingested_file_of_version_2_is_read() {
    let vfs = SimVfs::new(1);
    assert!(vfs.write_file(path(13), fixture("version-2")));
    assert_eq!(version(&vfs, 13), "2");
    let tombstones = tombstones_at(&golden_tombstones(), GLOBAL);
    check(&vfs, 13, &with_seqno(&golden_model(), GLOBAL), &tombstones);
}

#[test]
fn a_file_of_version_3_is_read() {
    check_fixture("3");
}

#[test]
fn a_file_of_version_1_that_belongs_to_no_store_is_ingested() {
    let model = with_seqno(&golden_model(), SeqNo::ZERO);
    let vfs = check_copy(&fixture("version-1-external"), 14, &model);
    assert_eq!(version(&vfs, 14), "4");
    let tombstones = tombstones_at(&golden_tombstones(), GLOBAL);
    check(&vfs, 14, &with_seqno(&golden_model(), GLOBAL), &tombstones);
}
