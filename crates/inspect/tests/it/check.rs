//! `check_store`: every kind of damage is found, and a sound store is called sound.

use crate::store::{DIR, Store, batch, sst};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use terrace_base::{SegmentNumber, SeqNo, ValueKind};
use terrace_inspect::{Contents, Report, check_store, check_store_with, contents};
use terrace_log::{LogOptions, LogPosition, LogWriter};
use terrace_manifest::{FamilyEdit, Manifest, VersionEdit};
use terrace_vfs::{BeforeCalls, Call, SimVfs, Vfs};

pub fn check(store: &Store) -> Report {
    check_store(&store.shared(), Path::new(DIR)).unwrap()
}

/// The only problem, which must be of the file `name`.
pub fn problem(store: &Store, name: &str) -> String {
    let report = check(store);
    assert_eq!(report.problems.len(), 1, "{report}");
    let problem = report.problems[0].to_string();
    assert!(problem.contains(name), "{problem}");
    problem
}

#[test]
fn a_sound_store_is_sound_and_counted() {
    let store = Store::new();
    let mut last = 0;
    let mut tell = |progress: terrace_inspect::Progress| {
        assert!(progress.done_bytes > last && progress.done_bytes <= progress.total_bytes);
        last = progress.done_bytes;
    };
    let report = check_store_with(&store.shared(), Path::new(DIR), &mut tell).unwrap();
    assert!(report.is_sound() && report.notes.is_empty(), "{report}");
    let c = report.counts;
    assert_eq!((c.families, c.ssts, c.entries), (2, 3, 1100));
    assert_eq!((c.log_segments, c.log_records, c.log_ops), (2, 3, 4));
    assert!(report.to_string().ends_with("sound"));
}

/// A reader that has the beginning of a segment as it was, and what is behind that as it is now, sees zeros in front of records
/// that had been durable.
#[test]
fn a_log_that_grows_while_it_is_read_is_sound() {
    for nth in 0..8 {
        let store = Store::new();
        let report = check_store(&store.beside_writer(nth), Path::new(DIR)).unwrap();
        assert!(report.is_sound(), "before read {nth}: {report}");
    }
}

#[test]
fn nothing_is_written() {
    let store = Store::new();
    let before = store.vfs.files();
    let ops =
        |vfs: &SimVfs| vfs.files().into_iter().map(|(path, _)| vfs.read_file(&path)).collect();
    let bytes: Vec<_> = ops(&store.vfs);
    store.vfs.corrupt(store.path("000001.sst"), 100, 1);
    check(&store);
    store.vfs.corrupt(store.path("000001.sst"), 100, 1);
    assert_eq!(store.vfs.files(), before);
    let after: Vec<_> = ops(&store.vfs);
    assert_eq!(after, bytes);
}

#[test]
fn a_directory_without_a_store_is_an_error() {
    let vfs = SimVfs::new(0);
    let dir = Path::new(DIR);
    let shared: std::sync::Arc<dyn Vfs> = std::sync::Arc::new(vfs.clone());
    assert!(check_store(&shared, dir).unwrap_err().is_not_found());
    assert_eq!(contents(&vfs, dir).unwrap(), Contents::Missing);
    vfs.create_dir_all(dir).unwrap();
    assert!(check_store(&shared, dir).unwrap_err().is_not_found());
    assert_eq!(contents(&vfs, dir).unwrap(), Contents::Empty);
    vfs.write_file(dir.join("LOCK"), Vec::new());
    vfs.write_file(dir.join("MANIFEST-000001"), Vec::new());
    assert_eq!(contents(&vfs, dir).unwrap(), Contents::Empty);
    vfs.write_file(dir.join("notes.txt"), Vec::new());
    assert_eq!(contents(&vfs, dir).unwrap(), Contents::Foreign("notes.txt".into()));
    vfs.write_file(dir.join("000001.sst"), Vec::new());
    assert_eq!(contents(&vfs, dir).unwrap(), Contents::Remains);
    assert_eq!(contents(&Store::new().vfs, dir).unwrap(), Contents::Store);
}

#[test]
fn a_flipped_bit_anywhere_in_an_sst_is_found() {
    let store = Store::new();
    let path = store.path("000002.sst");
    let length = store.vfs.len(&path).unwrap();
    for at in 0..length {
        store.vfs.corrupt(&path, at, 0x10);
        let found = problem(&store, "000002.sst");
        assert!(found.contains("offset"), "byte {at}: {found}");
        store.vfs.corrupt(&path, at, 0x10);
    }
    assert!(check(&store).is_sound());
}

#[test]
fn a_flipped_bit_anywhere_in_current_or_the_manifest_is_found_or_harmless() {
    let store = Store::new();
    let sound = check(&store);
    for name in ["CURRENT".to_string(), store.manifest()] {
        let path = store.path(&name);
        for at in 0..store.vfs.len(&path).unwrap() {
            store.vfs.corrupt(&path, at, 0x10);
            let report = check(&store);
            // The last marker says nothing that the records before it do not.
            let harmless = report.counts == sound.counts && name != "CURRENT";
            assert!(!report.is_sound() || harmless, "byte {at} of {name}: {report}");
            assert!(report.counts.ssts <= 3);
            store.vfs.corrupt(&path, at, 0x10);
        }
    }
}

#[test]
fn a_flipped_bit_anywhere_in_the_log_is_found_or_an_unfinished_tail() {
    let store = Store::new();
    for name in ["000004.log", "000005.log"] {
        let path = store.path(name);
        for at in 0..store.vfs.len(&path).unwrap() {
            store.vfs.corrupt(&path, at, 0x10);
            let report = check(&store);
            let told = !report.is_sound() || report.notes.iter().any(|n| n.contains("unfinished"));
            assert!(told, "byte {at} of {name}: {report}");
            store.vfs.corrupt(&path, at, 0x10);
        }
    }
}

/// An open or a job that is to write a file of this name fails. The log begins with segment 4, and numbers from 6 on are free.
#[test]
fn a_directory_with_the_name_of_a_file_to_come_is_a_problem() {
    let harmless =
        ["lost", "notes.log", "5000000000.log", "000002.log", "000004.sst", "000003.tmp"];
    for name in ["000006.log", "000009.log", "000006.sst", "000007.vlog", "000008.tmp"] {
        let store = Store::new();
        for harmless in harmless {
            store.vfs.create_dir_all(&store.path(harmless)).unwrap();
        }
        assert!(check(&store).is_sound(), "{}", check(&store));
        store.vfs.create_dir_all(&store.path(name)).unwrap();
        let found = problem(&store, name);
        assert!(found.contains("is a directory") && found.contains("`terrace repair`"), "{found}");
    }
}

/// While it stands in place of segment 6 the running store gives its log segment 7. What no header tells may have been lost.
#[test]
fn a_directory_with_a_number_that_the_log_passed_over_is_none() {
    for (is_linked, problems) in [(true, 0), (false, 1)] {
        let store = Store::new();
        store.vfs.create_dir_all(&store.path("000006.log")).unwrap();
        let offset = store.vfs.len(&store.path("000005.log")).unwrap();
        let end = LogPosition { segment: SegmentNumber::new(5), offset };
        let (path, number) = (store.path("000007.log"), SegmentNumber::new(7));
        let (options, end) = (LogOptions::default(), Some(end).filter(|_| is_linked));
        let made = LogWriter::create_after(&store.vfs, &path, number, &options, end);
        made.unwrap().append(&[&batch(12, &[(ValueKind::Put, 0, b"k", b"v")])]).unwrap();
        let report = check(&store);
        assert_eq!(report.problems.len(), problems, "{report}");
        assert!(is_linked || report.to_string().contains("000006.log"), "{report}");
        // One in the place of a segment that was there is not passed over.
        let fifth = store.path("000005.log");
        store.vfs.remove(&fifth).unwrap();
        store.vfs.create_dir_all(&fifth).unwrap();
        let report = check(&store).to_string();
        let is_told = |line: &str| line.contains("000005.log") && line.contains("is a directory");
        assert!(report.lines().any(is_told), "{report}");
    }
}

/// For the value segments, for the log, and for what belongs to nothing: its files, and the directories in it.
#[test]
fn of_a_sound_store_the_directory_is_listed_four_times() {
    let store = Store::new();
    let listings = Arc::new(AtomicUsize::new(0));
    let count = listings.clone();
    let vfs: Arc<dyn Vfs> = Arc::new(BeforeCalls::new(store.vfs.clone(), move |call, _: &Path| {
        count.fetch_add(usize::from(matches!(call, Call::List)), Ordering::Relaxed);
        Ok(())
    }));
    assert!(check_store(&vfs, Path::new(DIR)).unwrap().is_sound());
    assert_eq!(listings.load(Ordering::Relaxed), 4);
}

#[test]
fn missing_short_and_swapped_files_are_named() {
    let store = Store::new();
    let (one, three) = (store.path("000001.sst"), store.path("000003.sst"));
    let bytes = store.vfs.read_file(&one).unwrap();
    store.vfs.truncate(&one, bytes.len() as u64 - 1);
    assert!(problem(&store, "000001.sst").contains("bytes, not"));
    store.vfs.remove(&one).unwrap();
    assert!(problem(&store, "000001.sst").contains("does not exist"));
    store.vfs.write_file(&one, bytes.clone());
    assert!(check(&store).is_sound());
    let other = store.vfs.read_file(&three).unwrap();
    store.vfs.write_file(&three, bytes);
    store.vfs.write_file(&one, other);
    let report = check(&store);
    assert_eq!(report.problems.len(), 2, "{report}");
}

#[test]
fn a_damaged_manifest_does_not_hide_damage_in_ssts() {
    let store = Store::new();
    let name = store.manifest();
    store.vfs.corrupt(store.path("CURRENT"), 3, 0xff);
    store.vfs.corrupt(store.path("000003.sst"), 40, 0xff);
    let report = check(&store);
    let text = report.to_string();
    assert!(text.contains("CURRENT") && text.contains("000003.sst"), "{text}");
    assert_eq!(report.counts.ssts, 2, "{text}");
    // Without any manifest there is nothing to follow.
    store.vfs.remove(&store.path(&name)).unwrap();
    let report = check(&store);
    assert!(!report.is_sound() && report.counts.ssts == 0, "{report}");
}

#[test]
fn what_the_manifest_says_must_fit_the_file() {
    type Change = fn(&mut terrace_manifest::FileMeta);
    let wrong: [(&str, Change); 6] = [
        ("entries", |file| file.entry_count += 1),
        ("tombstones", |file| file.tombstone_count += 1),
        ("bytes of keys", |file| file.raw_bytes += 1),
        ("the first key", |file| file.smallest = b"key02001".to_vec()),
        ("the last key", |file| file.largest = b"key02098".to_vec()),
        ("seqnos", |file| file.smallest_seqno += 1),
    ];
    for (want, change) in wrong {
        let store = Store::new();
        let mut file = sst(&store.vfs, 9, 2000..2100, 18);
        file.largest_seqno = SeqNo::new(19);
        change(&mut file);
        let (mut manifest, mut state) = Manifest::recover(store.shared(), Path::new(DIR)).unwrap();
        let family = FamilyEdit { id: 1, added: vec![(0, file)], ..Default::default() };
        let edit = VersionEdit { families: vec![family], ..Default::default() };
        manifest.append(&mut state, &edit).unwrap();
        assert!(problem(&store, "000009.sst").contains(want), "{want}");
    }
}

#[test]
fn records_that_are_no_batches_are_found() {
    let whole = batch(12, &[(ValueKind::Put, 0, b"k", b"v")]);
    let going_back = batch(3, &[(ValueKind::Put, 0, b"k", b"v")]);
    let cases: [(&[u8], &str); 3] = [
        (b"short", "is no batch"),
        (&whole[..whole.len() - 1], "cut off"),
        (&going_back, "should be next"),
    ];
    for (payload, want) in cases {
        let store = Store::new();
        let last = store.path("000005.log");
        let next = store.path("000006.log");
        let options = LogOptions::default();
        let offset = store.vfs.len(&last).unwrap();
        let end = Some(LogPosition { segment: SegmentNumber::new(5), offset });
        let mut writer =
            LogWriter::create_after(&store.vfs, &next, SegmentNumber::new(6), &options, end)
                .unwrap();
        writer.append(&[payload]).unwrap();
        assert!(problem(&store, "000006.log").contains(want), "{want}");
    }
}

#[test]
fn a_log_segment_of_another_store_behind_the_end_is_found() {
    let store = Store::new();
    let (mut manifest, mut state) = Manifest::recover(store.shared(), Path::new(DIR)).unwrap();
    let edit = VersionEdit { keeps_evidence: true, ..Default::default() };
    manifest.append(&mut state, &edit).unwrap();
    drop(manifest);
    let (path, number) = (store.path("000006.log"), SegmentNumber::new(6));
    let mut writer = LogWriter::create(&store.vfs, &path, number, &LogOptions::default()).unwrap();
    // An open that was cut short leaves as much.
    writer.append(&[&batch(12, &[])]).unwrap();
    let report = check(&store);
    assert!(report.is_sound(), "{report}");
    for seqno in [30, 31] {
        writer.append(&[&batch(seqno, &[(ValueKind::Put, 0, b"k", b"v")])]).unwrap();
    }
    assert!(problem(&store, "000006.log").contains("another store"));
}

/// It continues, from behind its header, a segment that is not there either, and says that it was durable.
#[test]
fn a_log_segment_with_a_number_far_past_all_others_is_not_read() {
    let store = Store::new();
    let sound = check(&store);
    let (path, number) = (store.path("5000000000.log"), SegmentNumber::new(5_000_000_000));
    let end = Some(LogPosition { segment: SegmentNumber::new(4_999_999_999), offset: 100 });
    let options = LogOptions::default();
    let made = LogWriter::create_after(&store.vfs, &path, number, &options, end);
    let mut writer = made.unwrap();
    for seqno in [30, 31] {
        writer.append(&[&batch(seqno, &[(ValueKind::Put, 0, b"k", b"v")])]).unwrap();
        writer.sync().unwrap();
    }
    let report = check(&store);
    assert!(report.is_sound(), "{report}");
    assert_eq!(report.counts, sound.counts);
    assert!(report.notes.len() == 1 && report.notes[0].contains("5000000000.log"), "{report}");
}

#[test]
fn files_that_nothing_needs_are_told_and_harmless() {
    let store = Store::new();
    sst(&store.vfs, 8, 0..10, 1);
    let options = LogOptions::default();
    drop(
        LogWriter::create(&store.vfs, &store.path("000002.log"), SegmentNumber::new(2), &options)
            .unwrap(),
    );
    store.vfs.write_file(store.path("000007.tmp"), vec![1]);
    store.vfs.write_file(store.path("read me"), vec![1]);
    let report = check(&store);
    assert!(report.is_sound(), "{report}");
    let notes = report.notes.join("\n");
    for name in ["000008.sst", "000002.log", "000007.tmp", "read me"] {
        assert!(notes.contains(name), "{name}: {notes}");
    }
}
