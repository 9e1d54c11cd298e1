//! The printed manifest, as the format document shows it.

use super::*;
use crate::{Manifest, Version, VersionEdit, names};
use std::sync::Arc;
use terrace_base::{FileNumber, SegmentNumber, SeqNo};
use terrace_vfs::SimVfs;

const DIR: &str = "/store";

fn sample() -> SimVfs {
    let vfs = SimVfs::new(0);
    vfs.create_dir_all(Path::new(DIR)).unwrap();
    let shared: Arc<dyn Vfs> = Arc::new(vfs.clone());
    let (mut manifest, mut state) = Manifest::create(shared, Path::new(DIR), 0x7e44ace).unwrap();
    let shape = "L0: 4:[apple-melon] 3.1MB tombstones=10% seqnos=5-20 created=1000 ttl_due=9000\n\
                 L6: 3:[apple-apricot) 64MB range_tombstones=1 seqnos=1-4 created=500";
    let version = Version::parse_shape(shape).unwrap();
    let added = version.files().map(|(level, file)| (level, (**file).clone())).collect();
    let flush = FamilyEdit {
        min_log_segment: Some(SegmentNumber::new(5)),
        flushed_seqno: Some(SeqNo::new(20)),
        added,
        ..FamilyEdit::default()
    };
    let users = FamilyEdit { id: 1, create: Some("users".into()), ..FamilyEdit::default() };
    let edit = VersionEdit {
        next_file_number: Some(FileNumber::new(6)),
        last_seqno: Some(SeqNo::new(21)),
        families: vec![flush, users],
        ..VersionEdit::default()
    };
    manifest.append(&mut state, &edit).unwrap();
    let moved = (**state.families[&0].version.level(0).files().first().unwrap()).clone();
    let compaction = FamilyEdit {
        removed: vec![(0, FileNumber::new(4))],
        added: vec![(5, moved)],
        ..FamilyEdit::default()
    };
    let gone = FamilyEdit { id: 1, drop: true, ..FamilyEdit::default() };
    let edit = VersionEdit { families: vec![compaction, gone], ..VersionEdit::default() };
    manifest.append(&mut state, &edit).unwrap();
    vfs
}

fn print(vfs: &SimVfs, detail: Detail) -> (String, Dumped) {
    let mut out = Vec::new();
    let path = names::manifest_path(Path::new(DIR), 1);
    let dumped = dump(vfs, &path, 1, detail, &mut out).unwrap();
    (String::from_utf8(out).unwrap(), dumped)
}

/// Compares with a file under `testdata`; with `UPDATE=1` in the environment rewrites it.
fn golden(name: &str, found: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, found).unwrap();
    }
    let want = std::fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(found, want, "{} differs; UPDATE=1 rewrites it", file.display());
}

#[test]
fn a_manifest_is_printed_with_every_byte() {
    let (found, dumped) = print(&sample(), Detail::Bytes { payload_bytes: 64 });
    golden("manifest.txt", &found);
    assert_eq!(dumped, Dumped { records: 3, markers: 3, ..Dumped::default() });
}

#[test]
fn a_damaged_manifest_shows_what_is_left() {
    let vfs = sample();
    let path = names::manifest_path(Path::new(DIR), 1);
    vfs.corrupt(&path, 60, 1);
    let (found, dumped) = print(&vfs, Detail::Records);
    golden("damaged.txt", &found);
    assert_eq!(dumped, Dumped { records: 2, markers: 3, damaged: 1, ..Dumped::default() });
}

#[test]
fn the_options_of_a_family_are_printed() {
    let options = Some("filter=ribbon:16;learning=off".into());
    let family = FamilyEdit { id: 3, options, ..FamilyEdit::default() };
    let edit = VersionEdit { families: vec![family], ..VersionEdit::default() };
    let mut payload = Vec::new();
    codec::encode_edit(&edit, &mut payload);
    let lines = describe(&payload);
    assert_eq!(lines, ["edit", "  family 3, options \"filter=ribbon:16;learning=off\""]);
}

#[test]
fn a_payload_that_is_no_edit_is_named_so() {
    assert_eq!(describe(b"\x09"), ["NOT AN EDIT: unknown record kind 0x9"]);
}
