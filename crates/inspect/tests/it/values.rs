//! A store whose values lie in a sealed segment, in the log, and in a segment of garbage
//! collection: shown, checked, and damaged in every way.

use crate::check::{check, problem};
use crate::store::{DIR, Store, file_meta};
use std::path::{Path, PathBuf};
use terrace_base::codec::{put_bytes, put_varint};
use terrace_base::key::pack_trailer;
use terrace_base::{FileNumber, SegmentNumber, SeqNo, ValueHandle, ValueKind, ValueRef};
use terrace_inspect::{log, lsm, manifest};
use terrace_log::value::{ValueWriter, checksum, pack_length, place_mask};
use terrace_log::{LogOptions, LogWriter};
use terrace_manifest::{
    FamilyEdit, FileMeta, Manifest, SegmentKind, SegmentMeta, VersionEdit, names,
};
use terrace_sst::{Compression, SstOptions, SstWriter};
use terrace_vfs::{SimVfs, Vfs};

const SEALED: &str = "000004.log";
const ACTIVE: &str = "000005.log";
const MOVED: &str = "000006.vlog";
const SST: &str = "000007.sst";

const FOUR: SegmentNumber = SegmentNumber::new(4);
const FIVE: SegmentNumber = SegmentNumber::new(5);
const SIX: SegmentNumber = SegmentNumber::new(6);

type Handles = Vec<(Vec<u8>, ValueHandle)>;

/// Appends a batch of one separated value; returns its handle.
fn append(writer: &mut LogWriter, seqno: u64, key: &[u8], stored: &[u8]) -> ValueHandle {
    let (segment, payload_at) = (writer.segment(), writer.next_payload_offset());
    let mut batch = [&seqno.to_le_bytes()[..], &1u32.to_le_bytes()].concat();
    batch.push(ValueKind::PutHandle as u8);
    put_varint(&mut batch, 0);
    put_bytes(&mut batch, key);
    put_varint(&mut batch, pack_length(stored.len() as u32, 0));
    let offset = payload_at + batch.len() as u64;
    batch.extend_from_slice(stored);
    let sum = checksum(key, stored) ^ place_mask(segment, offset);
    batch.extend_from_slice(&sum.to_le_bytes());
    writer.append(&[&batch]).unwrap();
    ValueHandle { segment, offset, len: stored.len() as u32, compression: 0 }
}

fn path(name: &str) -> PathBuf {
    Path::new(DIR).join(name)
}

/// Segments 4 (to be sealed) and 5 of the log, and 6 of garbage collection.
fn segments(vfs: &SimVfs) -> Handles {
    let (options, mut handles) = (LogOptions::default(), Vec::new());
    let key = |what: &str, at: u64| format!("{what} {at}").into_bytes();
    let mut sealed = LogWriter::create(vfs, &path(SEALED), FOUR, &options).unwrap();
    for at in 0..5 {
        let stored = vec![at as u8; 100 + at as usize];
        handles.push((key("a", at), append(&mut sealed, at + 1, &key("a", at), &stored)));
    }
    sealed.sync().unwrap();
    sealed.finish().unwrap();
    let end = Some(sealed.end());
    let mut active = LogWriter::create_after(vfs, &path(ACTIVE), FIVE, &options, end).unwrap();
    handles.push((b"b".to_vec(), append(&mut active, 6, b"b", &[7; 50])));
    active.sync().unwrap();
    let mut moved = ValueWriter::create(vfs, &path(MOVED), SIX, 0).unwrap();
    for at in 0..5 {
        let (mut stored, plain) = (Vec::new(), vec![at as u8; 1000]);
        let stored_as = terrace_compression::compress(&plain, Compression::Lz4, &mut stored);
        let handle = moved.add(&key("c", at), &stored, stored_as as u8).unwrap();
        handles.push((key("c", at), handle));
    }
    moved.finish().unwrap();
    handles
}

/// An SST that holds `handles`.
fn write_sst(vfs: &SimVfs, number: u64, handles: &Handles) -> FileMeta {
    let options = SstOptions { block_size: 512, ..Default::default() };
    let number = FileNumber::new(number);
    let file = names::sst_path(Path::new(DIR), number);
    let mut writer = SstWriter::create(vfs, &file, number, options).unwrap();
    for (at, (key, handle)) in handles.iter().enumerate() {
        let trailer = pack_trailer(SeqNo::new(at as u64 + 1), ValueKind::PutHandle);
        writer.add(key, trailer, &handle.encode()).unwrap();
    }
    file_meta(number, writer.finish().unwrap())
}

fn meta(vfs: &SimVfs, number: u64, kind: SegmentKind, name: &str) -> SegmentMeta {
    SegmentMeta {
        number: SegmentNumber::new(number),
        kind,
        size_bytes: vfs.len(&path(name)).unwrap(),
    }
}

fn store() -> (Store, Handles) {
    store_with(|_| {})
}

/// A store whose first edit `change` may spoil.
fn store_with(change: impl FnOnce(&mut VersionEdit)) -> (Store, Handles) {
    let store = Store { vfs: SimVfs::new(1) };
    store.vfs.create_dir_all(Path::new(DIR)).unwrap();
    let (mut manifest, mut state) =
        Manifest::create(store.shared(), Path::new(DIR), 0xfeed).unwrap();
    let handles = segments(&store.vfs);
    let file = write_sst(&store.vfs, 7, &handles);
    let family =
        FamilyEdit { added: vec![(6, file)], min_log_segment: Some(FIVE), ..Default::default() };
    let mut edit = VersionEdit {
        next_file_number: Some(FileNumber::new(8)),
        last_seqno: Some(SeqNo::new(20)),
        families: vec![family],
        segments_added: vec![
            meta(&store.vfs, 4, SegmentKind::CommitLog, SEALED),
            meta(&store.vfs, 6, SegmentKind::Values, MOVED),
        ],
        ..VersionEdit::default()
    };
    change(&mut edit);
    manifest.append(&mut state, &edit).unwrap();
    (store, handles)
}

fn name_of(handle: &ValueHandle) -> &'static str {
    [SEALED, ACTIVE, MOVED][handle.segment.get() as usize - 4]
}

#[test]
fn a_sound_store_is_sound_and_its_values_are_counted() {
    let (store, handles) = store();
    let report = check(&store);
    assert!(report.is_sound() && report.notes.is_empty(), "{report}");
    let c = report.counts;
    let bytes: u64 = handles.iter().map(|(_, handle)| u64::from(handle.len)).sum();
    assert_eq!((c.values, c.value_bytes), (11, bytes));
    assert_eq!((c.value_segments, c.log_segments, c.log_ops), (2, 1, 1));
    assert!(report.to_string().contains("11 separated values"), "{report}");
}

#[test]
fn a_flipped_bit_in_any_live_value_is_found() {
    let (store, handles) = store();
    for (key, handle) in &handles {
        let file = path(name_of(handle));
        for at in handle.offset..handle.end() {
            store.vfs.corrupt(&file, at, 0x10);
            let report = check(&store);
            // In the log a recovery meets the damage too; there it is an unfinished tail.
            assert_eq!(report.problems.len(), 1, "{handle:?} byte {at}: {report}");
            let problem = report.problems[0].to_string();
            let shown = format!("the value of `{}`", String::from_utf8_lossy(key));
            assert!(problem.contains(name_of(handle)) && problem.contains(&shown), "{problem}");
            store.vfs.corrupt(&file, at, 0x10);
        }
    }
    assert!(check(&store).is_sound());
}

#[test]
fn many_damaged_values_are_told_in_few_lines() {
    let (store, mut handles) = store();
    let one = handles[0].1;
    handles = (0..50u32).map(|at| (format!("k{at:02}").into_bytes(), one)).collect();
    let file = write_sst(&store.vfs, 9, &handles);
    let (mut manifest, mut state) = Manifest::recover(store.shared(), Path::new(DIR)).unwrap();
    let family = FamilyEdit { added: vec![(0, file)], ..Default::default() };
    let edit = VersionEdit { families: vec![family], ..Default::default() };
    manifest.append(&mut state, &edit).unwrap();
    let report = check(&store);
    let text = report.to_string();
    assert!(report.problems.len() == 20 && text.contains("and 30 more of this SST"), "{text}");
}

#[test]
fn missing_short_foreign_and_overlong_segments_are_named() {
    let (store, _) = store();
    for name in [SEALED, MOVED] {
        let bytes = store.vfs.read_file(path(name)).unwrap();
        store.vfs.truncate(path(name), bytes.len() as u64 - 1);
        let report = check(&store);
        assert!(report.to_string().contains("the manifest states"), "{report}");
        assert!(report.problems.iter().all(|p| p.path == path(name)), "{report}");
        store.vfs.remove(&path(name)).unwrap();
        assert!(problem(&store, name).contains("does not exist"));
        store.vfs.write_file(path(name), [&bytes[..], b"more"].concat());
        let report = check(&store);
        assert!(report.is_sound() && report.notes[0].contains("has 4 bytes that"), "{report}");
        store.vfs.write_file(path(name), &bytes);
        store.vfs.corrupt(path(name), 20, 1);
        assert!(problem(&store, name).contains("checksum"));
        store.vfs.corrupt(path(name), 20, 1);
    }
    let [sealed, moved] = [SEALED, MOVED].map(|name| store.vfs.read_file(path(name)).unwrap());
    store.vfs.write_file(path(SEALED), &moved);
    store.vfs.write_file(path(MOVED), &sealed);
    let text = check(&store).to_string();
    assert!(text.contains("header is that of segment 6"), "{text}");
    assert!(text.contains("header is that of segment 4"), "{text}");
}

#[test]
fn references_to_segments_that_are_none_are_found() {
    let (store, _) = store_with(|edit| edit.segments_added.clear());
    let text = check(&store).to_string();
    assert!(text.contains("000004.log: 1 SSTs refer to values in it, and it is neither"), "{text}");
    assert!(text.contains("000006.log: 1 SSTs refer to values in it and it does not"), "{text}");
    let notes = check(&store).notes.join("\n");
    assert!(notes.contains(SEALED) && notes.contains(MOVED), "{notes}");
}

#[test]
fn references_in_the_manifest_must_be_those_of_the_file() {
    let (store, _) = store_with(|edit| edit.families[0].added[0].1.value_refs[0].bytes -= 1);
    assert!(problem(&store, SST).contains("other references"));
    let (store, _) = store_with(|edit| {
        edit.families[0].added[0]
            .1
            .value_refs
            .push(ValueRef { segment: SegmentNumber::new(99), bytes: 1 });
    });
    let text = check(&store).to_string();
    assert!(text.contains("000099.log") && text.contains("other references"), "{text}");
}

#[test]
fn segments_that_nothing_needs_are_told_and_harmless() {
    let (store, _) = store();
    ValueWriter::create(&store.vfs, &path("000009.vlog"), SegmentNumber::new(9), 0)
        .unwrap()
        .finish()
        .unwrap();
    drop(
        LogWriter::create(
            &store.vfs,
            &path("000003.log"),
            SegmentNumber::new(3),
            &LogOptions::default(),
        )
        .unwrap(),
    );
    let report = check(&store);
    assert!(report.is_sound() && report.notes.len() == 2, "{report}");
    let notes = report.notes.join("\n");
    assert!(notes.contains("000009.vlog") && notes.contains("000003.log"), "{notes}");
}

#[test]
fn a_damaged_manifest_still_says_which_segments_there_are() {
    let (store, handles) = store();
    store.vfs.corrupt(path("CURRENT"), 3, 0xff);
    let report = check(&store);
    assert!(report.problems.len() == 1 && report.counts.value_segments == 2, "{report}");
    assert_eq!(report.counts.values, 11);
    store.vfs.corrupt(path(MOVED), handles[8].1.offset, 1);
    assert_eq!(check(&store).problems.len(), 2);
}

fn text(print: impl FnOnce(&mut Vec<u8>) -> terrace_base::Result<u64>) -> (String, u64) {
    let mut out = Vec::new();
    let problems = print(&mut out).unwrap();
    (String::from_utf8(out).unwrap(), problems)
}

fn assert_holds(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no `{part}` in:\n{text}");
    }
}

#[test]
fn the_log_of_a_store_shows_values_with_their_handles_and_how_much_is_live() {
    let (store, handles) = store();
    let detail = terrace_inspect::LogDetail::Records;
    let (found, problems) = text(|out| log(&store.vfs, Path::new(DIR), detail, out));
    assert_eq!(problems, 0, "{found}");
    let place = |at: usize| {
        let ValueHandle { segment, offset, len, .. } = handles[at].1;
        format!("{segment}:{offset}+{len}")
    };
    assert_holds(
        &found,
        &[
            "/store/000004.log\nsegment 4",
            "/store/000006.vlog\nsegment 6",
            &format!("1 put a 0 = {}", "\\x00".repeat(20)),
            &format!("at {}", place(0)),
            &format!("value of \"c 0\" at {}, compression lz4, checksum correct", place(6)),
            "recovery would replay 1 records from 1 segments (from number 5 on)",
            "value segments: 3",
            "garbage collection",
            "still part of the commit log",
        ],
    );
    store.vfs.corrupt(path(MOVED), handles[7].1.offset, 1);
    let (found, problems) = text(|out| log(&store.vfs, &path(MOVED), detail, out));
    assert_eq!(problems, 1, "{found}");
    assert_holds(&found, &["DAMAGE at", "value of \"c 0\"", "value of \"c 2\""]);
}

#[test]
fn the_manifest_and_the_lsm_show_segments_and_references() {
    let (store, handles) = store();
    let detail = terrace_inspect::LogDetail::Records;
    let (found, problems) = text(|out| manifest(&store.vfs, Path::new(DIR), detail, out));
    assert_eq!(problems, 0);
    let live = |segment| -> u64 {
        let of = handles.iter().filter(|(_, handle)| handle.segment == segment);
        of.map(|(key, handle)| handle.weight_bytes(key.len())).sum()
    };
    let refs = format!("values=4:{}B,5:{}B,6:{}B", live(FOUR), live(FIVE), live(SIX));
    assert_holds(&found, &["+ value segment 4,", "+ value segment 6,", &refs]);
    let (found, problems) = text(|out| lsm(&store.vfs, Path::new(DIR), out));
    assert_eq!(problems, 0);
    let size = store.vfs.len(&path(SEALED)).unwrap();
    let share = format!("{:.1} %", 100.0 * (size - live(FOUR)) as f64 / size as f64);
    assert_holds(&found, &["value segments: 3", "    000004", "    000006", &share, "sum"]);
}

#[test]
fn no_byte_of_a_value_segment_makes_a_dump_or_check_fail() {
    let (store, _) = store();
    let detail = terrace_inspect::LogDetail::Bytes { payload_bytes: 20 };
    let whole = store.vfs.read_file(path(MOVED)).unwrap();
    for at in 0..whole.len() as u64 {
        store.vfs.corrupt(path(MOVED), at, 0x40);
        let (found, problems) = text(|out| log(&store.vfs, &path(MOVED), detail, out));
        assert!(problems > 0, "byte {at}: {found}");
        check(&store);
        store.vfs.corrupt(path(MOVED), at, 0x40);
    }
    for cut in (0..whole.len() as u64).step_by(7).collect::<Vec<_>>().into_iter().rev() {
        store.vfs.truncate(path(MOVED), cut);
        text(|out| log(&store.vfs, &path(MOVED), detail, out));
        assert!(!check(&store).is_sound());
    }
}
