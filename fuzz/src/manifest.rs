//! Targets for the manifest: its file, one edit of it, and `CURRENT`.

use crate::log::resealed;
use std::path::Path;
use terrace_base::{FileNumber, SegmentNumber, SeqNo, SplitMix64};
use terrace_log::{LogOptions, LogWriter};
use terrace_manifest::codec::{ManifestRecord, SnapshotHead, decode_record, encode_record};
use terrace_manifest::{FamilyEdit, Manifest, VersionEdit, current, dump, names};
use terrace_vfs::SimVfs;

/// The directory of the store that targets make of their input.
pub const DIR: &str = "store";

/// The number of the manifest that targets make of their input.
pub const NUMBER: u64 = 1;

/// Reads the bytes as the manifest in force, as they are and with right checksums.
pub fn file(data: &[u8]) -> bool {
    read(data) | read(&resealed(data, NUMBER))
}

fn read(data: &[u8]) -> bool {
    let vfs = SimVfs::new(0);
    let dir = Path::new(DIR);
    vfs.write_file(names::manifest_path(dir, NUMBER), data);
    vfs.write_file(names::current_path(dir), current::encode(NUMBER));
    let Ok(state) = Manifest::read(&vfs, dir) else { return false };
    for family in state.families.values() {
        let _ = family.version.to_string();
    }
    // What was read must be writable again, and be the same when it is.
    let (manifest, again) =
        Manifest::recover(std::sync::Arc::new(vfs.clone()), dir).expect("it was read just now");
    drop(manifest);
    assert_eq!(summary(&state), summary(&again));
    let rewritten = Manifest::read(&vfs, dir).expect("it was written just now");
    assert_eq!(summary(&state), summary(&rewritten));
    true
}

fn summary(state: &terrace_manifest::ManifestState) -> String {
    let families = state.families.values().map(|family| {
        format!(
            "{} {:?} {} {}\n{}",
            family.id, family.name, family.min_log_segment, family.flushed_seqno, family.version
        )
    });
    let numbers = format!(
        "{} {} {} {}\n",
        state.next_file_number, state.last_seqno, state.next_family_id, state.store_id
    );
    numbers + &families.collect::<String>() + &format!("{:?}", state.segments)
}

/// Decodes the bytes as one record; then applies them to a small state.
pub fn edit(data: &[u8]) -> bool {
    let _ = dump::describe(data);
    if let Ok(record) = decode_record(data) {
        let mut encoded = Vec::new();
        encode_record(&record, &mut encoded);
        assert_eq!(decode_record(&encoded).as_ref(), Ok(&record), "does not survive a round trip");
    }
    let vfs = SimVfs::new(0);
    let dir = Path::new(DIR);
    write_manifest(&vfs, dir, &[&first_record(), data]);
    Manifest::read(&vfs, dir).is_ok()
}

/// Decodes the bytes as the content of `CURRENT`.
pub fn current(data: &[u8]) -> bool {
    if let Some(number) = current::decode(data) {
        assert_eq!(current::encode(number).as_bytes(), data, "two spellings of one number");
    }
    let vfs = SimVfs::new(0);
    let dir = Path::new(DIR);
    write_manifest(&vfs, dir, &[&first_record()]);
    vfs.write_file(names::current_path(dir), data);
    Manifest::read(&vfs, dir).is_ok()
}

/// The snapshot that the other records of a test manifest change: two families, and two files in
/// the first.
pub fn first_record() -> Vec<u8> {
    let mut rng = SplitMix64::new(1);
    let added = vec![
        (0, crate::samples::file_meta(&mut rng, 4, b"a", b"m")),
        (6, crate::samples::file_meta(&mut rng, 5, b"a", b"z")),
    ];
    let family = |id, name: &str, added| FamilyEdit {
        id,
        create: Some(name.to_string()),
        min_log_segment: Some(SegmentNumber::new(3)),
        flushed_seqno: Some(SeqNo::new(100)),
        added,
        ..FamilyEdit::default()
    };
    let edit = VersionEdit {
        next_file_number: Some(FileNumber::new(20)),
        last_seqno: Some(SeqNo::new(1000)),
        families: vec![family(0, "default", added), family(1, "other", Vec::new())],
        ..VersionEdit::default()
    };
    let snapshot = Some(SnapshotHead { store_id: 99, next_family_id: 2 });
    let mut payload = Vec::new();
    encode_record(&ManifestRecord { snapshot, edit }, &mut payload);
    payload
}

/// Makes a store directory whose manifest holds `records`.
pub fn write_manifest(vfs: &SimVfs, dir: &Path, records: &[&[u8]]) {
    vfs.write_file(names::current_path(dir), current::encode(NUMBER));
    let path = names::manifest_path(dir, NUMBER);
    let writer = LogWriter::create(vfs, &path, SegmentNumber::new(NUMBER), &LogOptions::default());
    let written = writer.and_then(|mut writer| {
        writer.append(records)?;
        writer.sync()?;
        // The marker that says so: without it a damaged record would be a torn tail.
        writer.append(&[])
    });
    assert!(written.is_ok(), "{written:?}");
}
