//! The dumps: what they show, and that damage neither stops nor fools them.

use crate::store::{DIR, Store, batch};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use terrace_base::{FileNumber, SegmentNumber, ValueKind};
use terrace_inspect::{log, lsm, manifest, sst};
use terrace_log::dump::Detail;
use terrace_log::{LogOptions, LogPosition, LogWriter};
use terrace_manifest::{FamilyEdit, Manifest, VersionEdit};
use terrace_sst::DumpDetail;
use terrace_vfs::{BeforeCalls, Call, Vfs};

type Dump = fn(&Store, &Path, &mut Vec<u8>) -> terrace_base::Result<u64>;

const SST: Dump = |store, path, out| sst(&store.vfs, path, DumpDetail::Entries, out);
const LOG: Dump = |store, path, out| log(&store.vfs, path, Detail::Records, out);
const MANIFEST: Dump = |store, path, out| manifest(&store.vfs, path, Detail::Records, out);
const LSM: Dump = |store, _, out| lsm(&store.vfs, Path::new(DIR), out);

fn text(store: &Store, dump: Dump, path: &Path) -> (String, u64) {
    let mut out = Vec::new();
    let problems = dump(store, path, &mut out).unwrap();
    (String::from_utf8(out).unwrap(), problems)
}

fn assert_holds(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no `{part}` in:\n{text}");
    }
}

#[test]
fn the_lsm_is_shown_by_family_and_level() {
    let (text, problems) = text(&Store::new(), LSM, Path::new(DIR));
    assert_eq!(problems, 0);
    assert_holds(
        &text,
        &[
            "store 000000000000feed: last seqno 20, next file number 6",
            "family 0 \"default\": 2 files",
            "L6: 2 files",
            "[key00000 .. key00899]",
            "[key00900 .. key01100)",
            "family 1 \"other\": 1 files",
            "L0: 1 files",
            "7-7",
        ],
    );
}

#[test]
fn the_log_is_shown_op_by_op_with_what_a_recovery_makes_of_it() {
    let store = Store::new();
    let (text, problems) = text(&store, LOG, Path::new(DIR));
    assert_eq!(problems, 0);
    assert_holds(
        &text,
        &[
            "/store/000004.log\nsegment 4,",
            "8 put alpha = one",
            "9 family 1 delete beta",
            "sync marker: durable up to",
            "batch of 2 ops, seqnos 10-11",
            "10 delete [gamma, omega)",
            "recovery would replay 3 records from 2 segments (from number 4 on)",
        ],
    );
}

/// As in `check::a_log_that_grows_while_it_is_read_is_sound`.
#[test]
fn a_log_that_grows_while_it_is_read_is_shown_without_damage() {
    for nth in 0..12 {
        let vfs = Store::new().beside_writer(nth);
        let mut out = Vec::new();
        let problems = log(&*vfs, Path::new(DIR), Detail::Records, &mut out).unwrap();
        let shown = String::from_utf8(out).unwrap();
        assert_eq!(problems, 0, "before read {nth}:\n{shown}");
        assert!(!shown.contains("DAMAGE"), "before read {nth}:\n{shown}");
    }
}

/// As in `check::a_log_segment_with_a_number_far_past_all_others_is_not_read`.
#[test]
fn a_recovery_would_not_read_a_log_segment_with_a_number_far_past_all_others() {
    let store = Store::new();
    let (path, number) = (store.path("5000000000.log"), SegmentNumber::new(5_000_000_000));
    let end = Some(LogPosition { segment: SegmentNumber::new(4_999_999_999), offset: 100 });
    let options = LogOptions::default();
    let made = LogWriter::create_after(&store.vfs, &path, number, &options, end);
    made.unwrap().append(&[&batch(30, &[(ValueKind::Put, 0, b"k", b"v")])]).unwrap();
    let (text, problems) = text(&store, LOG, Path::new(DIR));
    assert_eq!(problems, 0, "{text}");
    let want = "recovery would replay 3 records from 2 segments (from number 4 on)";
    assert_holds(&text, &["/store/5000000000.log", want]);
}

/// To print a long log takes a while, in which a writer begins segments and removes others.
#[test]
fn what_a_recovery_would_make_of_the_log_is_said_of_the_log_as_it_is_then() {
    let store = Store::new();
    let [four, five, six] = [4, 5, 6].map(|number| store.path(&format!("00000{number}.log")));
    let (sim, is_flushed) = (store.vfs.clone(), AtomicBool::new(false));
    let vfs = BeforeCalls::with_reads(store.vfs.clone(), move |call, path: &Path| {
        let is_read = matches!(call, Call::Read(..)) && path == five.as_path();
        if is_read && !is_flushed.swap(true, Ordering::Relaxed) {
            let (number, offset) = (SegmentNumber::new(6), sim.len(&five)?);
            let end = Some(LogPosition { segment: SegmentNumber::new(5), offset });
            let options = LogOptions::default();
            let mut writer = LogWriter::create_after(&sim, &six, number, &options, end)?;
            writer.append(&[&batch(12, &[(ValueKind::Put, 0, b"late", b"three")])])?;
            let shared: Arc<dyn Vfs> = Arc::new(sim.clone());
            let (mut manifest, mut state) = Manifest::recover(shared, Path::new(DIR))?;
            let min_log_segment = Some(number);
            let family = |id| FamilyEdit { id, min_log_segment, ..FamilyEdit::default() };
            let edit = VersionEdit {
                next_file_number: Some(FileNumber::new(7)),
                families: vec![family(0), family(1)],
                ..VersionEdit::default()
            };
            manifest.append(&mut state, &edit)?;
            sim.remove(&four)?;
        }
        Ok(())
    });
    let mut out = Vec::new();
    let problems = log(&vfs, Path::new(DIR), Detail::Records, &mut out).unwrap();
    let shown = String::from_utf8(out).unwrap();
    assert_eq!(problems, 0, "{shown}");
    let want = "recovery would replay 1 records from 1 segments (from number 6 on)";
    assert_holds(&shown, &["8 put alpha = one", want]);
}

#[test]
fn the_manifest_is_shown_edit_by_edit() {
    let (text, problems) = text(&Store::new(), MANIFEST, Path::new(DIR));
    assert_eq!(problems, 0);
    assert_holds(
        &text,
        &["CURRENT names manifest 1", "in force", "snapshot of store", "+ L6  1:["],
    );
}

#[test]
fn a_manifest_that_comes_in_force_while_the_files_are_listed_is_shown() {
    let store = Store::new();
    let (sim, has_moved) = (store.vfs.clone(), AtomicBool::new(false));
    let vfs = BeforeCalls::new(store.vfs.clone(), move |call, path: &Path| {
        let is_current = matches!(call, Call::Open) && path.ends_with("CURRENT");
        if is_current && !has_moved.swap(true, Ordering::Relaxed) {
            let shared: Arc<dyn Vfs> = Arc::new(sim.clone());
            Manifest::recover(shared, Path::new(DIR))?;
        }
        Ok(())
    });
    let mut out = Vec::new();
    let problems = manifest(&vfs, Path::new(DIR), Detail::Records, &mut out).unwrap();
    let shown = String::from_utf8(out).unwrap();
    assert_eq!(problems, 0, "{shown}");
    assert_holds(&shown, &["CURRENT names manifest 2", "MANIFEST-000002, in force"]);
}

#[test]
fn an_sst_is_shown_entry_by_entry() {
    let store = Store::new();
    let (text, problems) = text(&store, SST, &store.path("000002.sst"));
    assert_eq!(problems, 0);
    assert_holds(
        &text,
        &["footer", "properties", "data block 0.0", "key00913", "Delete", "range tombstones"],
    );
}

#[test]
fn damage_is_counted_and_the_rest_still_shown() {
    let store = Store::new();
    let sst_path = store.path("000001.sst");
    store.vfs.corrupt(&sst_path, 100, 0xff);
    let (shown, problems) = text(&store, SST, &sst_path);
    assert_eq!(problems, 1, "{shown}");
    assert_holds(&shown, &["DAMAGE: ", "at offset 0", "key00899", "footer"]);
    assert!(!shown.contains("key00000 "), "a damaged block was shown");

    let log_path = store.path("000004.log");
    store.vfs.corrupt(&log_path, 60, 0xff);
    let (shown, problems) = text(&store, LOG, Path::new(DIR));
    // The record itself, and what a recovery says of it: a sync marker follows.
    assert_eq!(problems, 2, "{shown}");
    assert_holds(&shown, &["DAMAGE at 44", "delete beta", "put delta", "recovery would fail"]);

    let manifest_path = store.path(&store.manifest());
    store.vfs.corrupt(&manifest_path, 60, 0xff);
    let (shown, problems) = text(&store, MANIFEST, Path::new(DIR));
    assert_eq!(problems, 1, "{shown}");
    assert_holds(&shown, &["DAMAGE at 44", "created as \"other\""]);

    let (shown, problems) = text(&store, LSM, Path::new(DIR));
    assert!(problems >= 1, "{shown}");
    assert_holds(&shown, &["as far as it can be read", "key00899", "family 1 \"other\""]);
}

#[test]
fn no_byte_makes_a_dump_fail() {
    let store = Store::new();
    let files: [(String, Dump); 5] = [
        ("000003.sst".into(), SST),
        ("000004.log".into(), LOG),
        ("CURRENT".into(), LSM),
        (store.manifest(), MANIFEST),
        (store.manifest(), LSM),
    ];
    for (name, dump) in files {
        let path = store.path(&name);
        let whole = store.vfs.read_file(&path).unwrap();
        for at in 0..whole.len() as u64 {
            store.vfs.corrupt(&path, at, 0x40);
            let mut out = Vec::new();
            let problems = dump(&store, &path, &mut out).unwrap();
            let tail = String::from_utf8_lossy(&out).into_owned();
            let harmless = dump as usize == LSM as usize && name != "CURRENT";
            assert!(problems > 0 || harmless, "byte {at} of {name}:\n{tail}");
            store.vfs.corrupt(&path, at, 0x40);
        }
        for cut in (0..whole.len() as u64).step_by(7).collect::<Vec<_>>().into_iter().rev() {
            store.vfs.truncate(&path, cut);
            assert!(dump(&store, &path, &mut Vec::new()).is_ok(), "{name} cut at {cut}");
        }
        store.vfs.write_file(&path, whole);
    }
}

#[test]
fn other_kinds_of_files_are_called_damaged_and_missing_ones_are_errors() {
    let store = Store::new();
    store.vfs.write_file(store.path("000001.log"), vec![7; 300]);
    store.vfs.write_file(store.path("000011.sst"), b"short");
    for (dump, name) in
        [(SST, "000004.log"), (SST, "000011.sst"), (LOG, "000001.sst"), (MANIFEST, "000001.sst")]
    {
        let (shown, problems) = text(&store, dump, &store.path(name));
        assert!(problems > 0, "{name}: {shown}");
    }
    for dump in [SST, LOG, MANIFEST] {
        let error = dump(&store, &store.path("nowhere"), &mut Vec::new()).unwrap_err();
        assert!(error.is_not_found(), "{error}");
    }
    store.vfs.create_dir_all(Path::new("/empty")).unwrap();
    assert!(lsm(&store.vfs, Path::new("/empty"), &mut Vec::new()).unwrap_err().is_not_found());
}
