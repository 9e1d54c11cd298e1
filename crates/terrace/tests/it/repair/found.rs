//! SSTs that were lost and are found again after the store has gone on without them.

use super::single::Fixture;
use crate::harness::{DIR, eventually};
use std::path::{Path, PathBuf};
use terrace::Db;
use terrace::vfs::{Fault, FaultKind, OpClass, Vfs};
use terrace_base::SeqNo;
use terrace_manifest::Manifest;

type Files = Vec<(PathBuf, Vec<u8>)>;

fn get(db: &Db, key: &str) -> Option<String> {
    db.get(key).unwrap().map(|value| String::from_utf8(value.to_vec()).unwrap())
}

/// Takes all SSTs but those in `kept` away, and repairs.
fn lose_ssts(fixture: &Fixture, kept: &[PathBuf]) -> Files {
    let paths = fixture.files(".sst").into_iter().filter(|path| !kept.contains(path));
    let files: Files =
        paths.map(|path| (path.clone(), fixture.sim.read_file(&path).unwrap())).collect();
    files.iter().for_each(|(path, _)| fixture.sim.remove(path).unwrap());
    assert!(!fixture.repair(false).lost.is_empty());
    files
}

/// Puts SSTs that were lost into `lost/`, without what tells when they went if `is_numbered`, and takes them back.
fn find(fixture: &Fixture, files: Files, is_numbered: bool) -> terrace::RepairReport {
    let lost = Path::new(DIR).join("lost");
    for (path, bytes) in files {
        assert!(fixture.sim.write_file(lost.join(path.file_name().unwrap()), bytes));
    }
    let mut manifests = fixture.sim.list(&lost).unwrap();
    manifests.retain(|name| name.starts_with("MANIFEST"));
    assert!(!manifests.is_empty());
    if is_numbered {
        manifests.iter().for_each(|name| fixture.sim.remove(&lost.join(name)).unwrap());
    }
    let report = fixture.repair(true);
    assert!(report.lost.is_empty(), "{report:?}");
    assert!(fixture.repair(false).was_sound);
    report
}

fn keys_of_many_blocks() -> Vec<String> {
    (0..200).map(|n| format!("k{n:03}")).collect()
}

/// The last of [`keys_of_many_blocks`].
const LAST: &str = "k199";

/// A store with two SSTs, which are given: one with old values of [`keys_of_many_blocks`], whose sequence numbers were set to 0,
/// and one with a newer value of [`LAST`].
fn store_of_two_ssts() -> (Fixture, Files) {
    let fixture = Fixture::without_compactions();
    let keys = keys_of_many_blocks();
    merge_down(&fixture, &keys.iter().map(String::as_str).collect::<Vec<_>>(), "old");
    let db = fixture.open();
    db.put(LAST, "new").unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    let paths = fixture.files(".sst");
    assert_eq!(paths.len(), 2);
    let files = paths.into_iter().map(|path| (path.clone(), fixture.sim.read_file(&path).unwrap()));
    let files: Files = files.collect();
    (fixture, files)
}

fn assert_newest_of_all(fixture: &Fixture, keys: &[String], case: &str) {
    let db = fixture.open();
    for key in keys {
        let wanted = if key == LAST { "new" } else { "old" };
        assert_eq!(get(&db, key).as_deref(), Some(wanted), "{key}, {case}");
    }
    db.close().unwrap();
}

/// Writes `value` under all `keys`, and merges everything down, which sets sequence numbers to 0.
fn merge_down(fixture: &Fixture, keys: &[&str], value: &str) {
    let db = fixture.open();
    for written in ["before", value] {
        keys.iter().for_each(|key| db.put(key, written).unwrap());
        db.flush().unwrap();
    }
    db.compact_range::<&[u8]>(..).unwrap();
    db.close().unwrap();
    let state = Manifest::read(&fixture.sim, Path::new(DIR)).unwrap();
    let mut files = state.families.values().flat_map(|family| family.version.files());
    assert!(files.all(|(_, file)| file.smallest_seqno == SeqNo::ZERO));
}

/// A store that has lost its SST with an older `k` and with `other`, and has gone on without it.
fn store_without_its_sst() -> (Fixture, Files) {
    let fixture = Fixture::without_compactions();
    let db = fixture.open();
    db.put("k", "old").unwrap();
    db.put("other", "1").unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    let files = lose_ssts(&fixture, &[]);
    merge_down(&fixture, &["k", "x", "z"], "new");
    (fixture, files)
}

#[test]
fn what_was_written_since_an_sst_was_lost_wins_over_it_when_it_is_found() {
    for is_numbered in [false, true] {
        let (fixture, files) = store_without_its_sst();
        let report = find(&fixture, files, is_numbered);
        let told = |line: &String| line.contains("1 of its 2 entries are not taken in");
        assert!(report.notes.iter().any(told), "{report:?}");
        let db = fixture.open();
        for key in ["k", "x", "z"] {
            assert_eq!(get(&db, key).as_deref(), Some("new"), "{key}: {report:?}");
        }
        assert_eq!(get(&db, "other").as_deref(), Some("1"), "{report:?}");
    }
}

/// Repairs the store again and again, cut short one call later each time, until a repair ends; `check` gets what each of them
/// leaves, and the number of the call. Gives how often that was.
fn cut_short_at_each_call(
    fixture: &Fixture,
    from_lost: bool,
    mut check: impl FnMut(&Fixture, u64),
) -> u64 {
    let (mut calls, mut ended) = (0, false);
    while !ended {
        let cut = fixture.over(fixture.sim.kill_image());
        cut.sim.crash_after(calls);
        ended = cut.try_to_repair(from_lost).is_ok();
        check(&cut, calls);
        calls += 1;
    }
    calls
}

/// The next repair is not the one that has taken it back, and nothing proves what the manifest says.
#[test]
fn what_was_written_since_wins_also_when_the_repair_that_finds_an_sst_is_cut_short() {
    let (fixture, files) = store_without_its_sst();
    let (sst, lost) = (files[0].0.clone(), Path::new(DIR).join("lost"));
    assert!(fixture.sim.write_file(lost.join(sst.file_name().unwrap()), &files[0].1));
    fixture.files("SYNCED").iter().for_each(|path| fixture.sim.remove(path).unwrap());
    // A power cut does not bring them back.
    fixture.sim.sync_dir(Path::new(DIR)).unwrap();
    let mut taken = 0;
    let calls = cut_short_at_each_call(&fixture, true, |cut, calls| {
        taken += u64::from(cut.sim.kill_image().exists(&sst).unwrap());
        for (left, from_lost) in [
            (cut.sim.kill_image(), true),
            (cut.sim.kill_image(), false),
            (cut.sim.crash_image(calls), false),
        ] {
            let left = fixture.over(left);
            let report = left.repair(from_lost);
            let db = left.open();
            for key in ["k", "x", "z"] {
                let value = get(&db, key);
                assert_eq!(value.as_deref(), Some("new"), "{key}, call {calls}: {report:?}");
            }
            if from_lost {
                assert_eq!(get(&db, "other").as_deref(), Some("1"), "call {calls}: {report:?}");
            }
            db.close().unwrap();
            assert!(!left.sim.exists(&lost.join("FOUND")).unwrap(), "call {calls}");
        }
    });
    assert!(taken > 4 && calls > 20, "{taken} of {calls}");
}

#[test]
fn a_range_tombstone_that_is_found_deletes_nothing_that_was_written_since() {
    for is_numbered in [false, true] {
        let fixture = Fixture::without_compactions();
        let db = fixture.open();
        // Between what is written later, and beside it.
        ["a", "k2x"].iter().for_each(|key| db.put(key, "old").unwrap());
        db.flush().unwrap();
        db.delete_range("a", "zz").unwrap();
        db.flush().unwrap();
        db.put("zz", "old").unwrap();
        db.flush().unwrap();
        db.close().unwrap();
        let files = lose_ssts(&fixture, &[]);
        assert_eq!(files.len(), 3);
        merge_down(&fixture, &["k1", "k2", "k3"], "new");
        let report = find(&fixture, files, is_numbered);
        let db = fixture.open();
        for key in ["k1", "k2", "k3"] {
            assert_eq!(get(&db, key).as_deref(), Some("new"), "{key}: {report:?}");
        }
        assert_eq!(get(&db, "zz").as_deref(), Some("old"), "{report:?}");
        // What comes from there is deleted by what comes from there.
        assert_eq!(["a", "k2x"].map(|key| get(&db, key)), [None, None], "{report:?}");
    }
}

#[test]
fn what_had_been_merged_down_before_an_sst_was_lost_gives_way_to_it_when_it_is_found() {
    for is_numbered in [false, true] {
        let fixture = Fixture::without_compactions();
        merge_down(&fixture, &["k", "l", "m"], "old");
        let old = fixture.files(".sst");
        let db = fixture.open();
        db.put("k", "new").unwrap();
        db.delete_range("l", "m").unwrap();
        db.flush().unwrap();
        db.close().unwrap();
        let files = lose_ssts(&fixture, &old);
        assert_eq!(files.len(), 1);
        assert_eq!(get(&fixture.open(), "k").as_deref(), Some("old"));
        let report = find(&fixture, files, is_numbered);
        let db = fixture.open();
        assert_eq!(get(&db, "k").as_deref(), Some("new"), "{report:?}");
        assert_eq!(get(&db, "l"), None, "{report:?}");
        assert_eq!(get(&db, "m").as_deref(), Some("old"), "{report:?}");
    }
}

/// A part of the older one is lost and all of the newer one, and nothing is written after that.
#[test]
fn what_a_repair_has_written_anew_is_no_newer_than_what_it_was_made_of() {
    for (is_numbered, rounds) in [(false, 1), (true, 1), (false, 2), (true, 2)] {
        let (fixture, files) = store_of_two_ssts();
        for round in 0..rounds {
            for path in fixture.files(".sst") {
                assert!(fixture.sim.corrupt(&path, 4, 0xff));
            }
            assert!(!fixture.repair(false).lost.is_empty());
            let left = fixture.files(".sst");
            assert_eq!(left.len(), 1, "round {round}");
            assert!(files.iter().all(|(path, _)| *path != left[0]), "written anew");
            assert_eq!(get(&fixture.open(), LAST).as_deref(), Some("old"));
        }
        let report = find(&fixture, files, is_numbered);
        assert_newest_of_all(&fixture, &keys_of_many_blocks(), &format!("{report:?}"));
    }
}

/// A store that has lost the SST with the values of [`keys_of_many_blocks`], and has the range tombstone that came after it. The
/// SST is in `lost/`, with a block of the first half damaged if that is wanted; it is given as it was.
fn store_without_what_it_deletes(is_damaged: bool) -> (Fixture, PathBuf, Vec<u8>) {
    let fixture = Fixture::without_compactions();
    let keys = keys_of_many_blocks();
    merge_down(&fixture, &keys.iter().map(String::as_str).collect::<Vec<_>>(), "old");
    let values = fixture.files(".sst");
    let db = fixture.open();
    db.delete_range(DELETED.start, DELETED.end).unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    let mut newer = fixture.files(".sst");
    newer.retain(|path| !values.contains(path));
    let mut files = lose_ssts(&fixture, &newer);
    assert_eq!((files.len(), newer.len()), (1, 1));
    let (path, bytes) = files.remove(0);
    let in_lost = Path::new(DIR).join("lost").join(path.file_name().unwrap());
    assert!(fixture.sim.write_file(&in_lost, &bytes));
    if is_damaged {
        assert!(fixture.sim.corrupt(&in_lost, 4, 0xff));
    }
    (fixture, in_lost, bytes)
}

/// Keys of the second half of [`keys_of_many_blocks`].
const DELETED: std::ops::Range<&str> = "k150".."k160";

/// Takes back what is in `lost/`: what is [`DELETED`] is not there, and the other keys of the second half are if nothing
/// `was_lost`.
fn take_back_and_check_deleted(fixture: &Fixture, was_lost: bool, case: &str) {
    let report = fixture.repair(true);
    let db = fixture.open();
    let keys = keys_of_many_blocks();
    for key in &keys[keys.len() / 2..] {
        let value = get(&db, key);
        match DELETED.contains(&key.as_str()) {
            true => assert_eq!(value, None, "{key}, {case}: {report:?}"),
            false if was_lost => {}
            false => assert_eq!(value.as_deref(), Some("old"), "{key}, {case}: {report:?}"),
        }
    }
    db.close().unwrap();
    assert!(!fixture.sim.exists(&list_of_merged()).unwrap(), "{case}");
}

fn list_of_merged() -> PathBuf {
    Path::new(DIR).join("lost").join("MERGED")
}

/// When its manifest is in force, what was merged stands beside it for a while, and the tombstone was merged away.
#[test]
fn what_was_deleted_does_not_come_back_when_the_repair_that_finds_its_values_is_cut_short() {
    for is_damaged in [false, true] {
        let (fixture, in_lost, sound) = store_without_what_it_deletes(is_damaged);
        let current = Path::new(DIR).join("CURRENT");
        let before = fixture.sim.read_file(&current).unwrap();
        let (mut listed, mut switched, mut full) = (0, 0, 0);
        let calls = cut_short_at_each_call(&fixture, true, |cut, calls| {
            let left = || fixture.over(cut.sim.kill_image());
            let case = format!("damaged: {is_damaged}, call {calls}");
            take_back_and_check_deleted(&left(), false, &case);
            let opened = left();
            opened.open().close().unwrap();
            take_back_and_check_deleted(&opened, false, &format!("{case}, opened"));
            let repaired = left();
            repaired.repair(false);
            take_back_and_check_deleted(&repaired, false, &format!("{case}, repaired"));
            let without_power = fixture.over(cut.sim.crash_image(calls));
            take_back_and_check_deleted(&without_power, true, &format!("{case}, power cut"));
            if left().sim.exists(&list_of_merged()).unwrap() {
                listed += 1;
                cut_short_again(&left, calls, &case);
                if left().sim.read_file(&current).unwrap() != before {
                    switched += 1;
                    let dry = left().look_at_all();
                    let takes_in = |line: &String| line.contains("that no manifest names");
                    assert!(!dry.saved.iter().any(takes_in), "{case}: {dry:?}");
                    // What is found by then has what was damaged.
                    let found = left();
                    assert!(found.sim.write_file(&in_lost, &sound));
                    let report = found.repair(true);
                    let first = get(&found.open(), "k000");
                    assert_eq!(first.as_deref(), Some("old"), "{case}: {report:?}");
                    let opened = left();
                    full += u64::from(open_without_room_to_move(&opened));
                    let case = format!("{case}, opened on a full disk");
                    take_back_and_check_deleted(&opened, false, &case);
                }
            }
        });
        assert!(switched > 3 && listed > switched, "{switched}, {listed} of {calls}");
        assert!(full > 0, "no open has found the disk full");
    }
}

/// Opens it on a disk without room to move a file, and writes as soon as there is some. Gives whether the open met that.
fn open_without_room_to_move(fixture: &Fixture) -> bool {
    let (kind, filter) = (FaultKind::Enospc, Some(OpClass::Rename));
    fixture.sim.set_fault(Some(Fault { at_op: 0, kind, forever: true, filter }));
    let db = fixture.open();
    let was_full = db.is_disk_full();
    fixture.sim.set_fault(None);
    eventually("writes resume", || db.put("after", "room").is_ok());
    db.close().unwrap();
    was_full
}

/// Cuts short what follows a repair that was cut short at call `calls`, too: another one, or an open.
fn cut_short_again(left: &dyn Fn() -> Fixture, calls: u64, case: &str) {
    for second in (calls % 4..28).step_by(4) {
        for is_open in [false, true] {
            let again = left();
            again.sim.crash_after(second);
            match is_open {
                true => drop(again.try_to_open()),
                false => drop(again.try_to_repair(true)),
            }
            let again = again.over(again.sim.kill_image());
            let case = format!("{case}, then call {second}, open: {is_open}");
            take_back_and_check_deleted(&again, false, &case);
        }
    }
}

/// Where nothing tells which manifest is in force.
#[test]
fn after_a_repair_that_was_cut_short_before_its_manifest_no_loss_is_reported_of_what_it_has_merged()
{
    let (fixture, _) = store_of_two_ssts();
    for part in ["MANIFEST", "CURRENT", "SYNCED"] {
        fixture.files(part).iter().for_each(|path| fixture.sim.remove(path).unwrap());
    }
    let mut listed = 0;
    let calls = cut_short_at_each_call(&fixture, false, |cut, calls| {
        let left = fixture.over(cut.sim.kill_image());
        if left.sim.exists(&list_of_merged()).unwrap() && left.files("MANIFEST").is_empty() {
            listed += 1;
            let report = left.repair(false);
            let told = |line: &String| line.contains("has merged already");
            assert!(!report.lost.iter().any(told), "call {calls}: {report:?}");
            assert_newest_of_all(&left, &keys_of_many_blocks(), &format!("call {calls}"));
        }
    });
    assert!(listed > 0, "{calls} calls");
}

/// What it has written by then is as old as what it was made of.
#[test]
fn a_newer_sst_wins_also_when_the_repair_that_writes_an_older_one_anew_is_cut_short() {
    let (fixture, files) = store_of_two_ssts();
    lose_ssts(&fixture, &[]);
    let lost = Path::new(DIR).join("lost");
    for (path, bytes) in &files {
        assert!(fixture.sim.write_file(lost.join(path.file_name().unwrap()), bytes));
    }
    assert!(fixture.sim.corrupt(lost.join(files[0].0.file_name().unwrap()), 4, 0xff));
    let keys = keys_of_many_blocks();
    let mut beside = 0;
    let calls = cut_short_at_each_call(&fixture, true, |cut, calls| {
        let left = fixture.over(cut.sim.kill_image());
        beside += u64::from(left.files(".sst").len() > files.len());
        let report = left.repair(true);
        // The others are what is damaged.
        assert_newest_of_all(&left, &keys[keys.len() / 2..], &format!("call {calls}: {report:?}"));
    });
    assert!(beside > 4 && calls > 20, "{beside} of {calls}");
}

/// What was merged is as old as the newest of it.
#[test]
fn ssts_of_one_loss_are_the_same_when_they_are_found_one_after_the_other() {
    for (is_numbered, is_newest_first) in
        [(false, false), (true, false), (false, true), (true, true)]
    {
        let fixture = Fixture::without_compactions();
        merge_down(&fixture, &["k", "x", "y", "z"], "old");
        let old = fixture.files(".sst");
        let db = fixture.open();
        for (keys, value) in [(["x", "z"], "newer"), (["k", "x"], "newest")] {
            keys.iter().for_each(|key| db.put(key, value).unwrap());
            db.flush().unwrap();
        }
        db.close().unwrap();
        let mut files = lose_ssts(&fixture, &old);
        assert_eq!(files.len(), 2);
        files.sort();
        if is_newest_first {
            files.reverse();
        }
        files.into_iter().for_each(|file| drop(find(&fixture, vec![file], is_numbered)));
        let db = fixture.open();
        let case = format!("numbered: {is_numbered}, newest first: {is_newest_first}");
        // Numbers alone do not tell that the newest was in force beside the other.
        let z = if is_numbered && is_newest_first { "old" } else { "newer" };
        for (key, wanted) in [("k", "newest"), ("x", "newest"), ("y", "old"), ("z", z)] {
            assert_eq!(get(&db, key).as_deref(), Some(wanted), "{key}, {case}");
        }
    }
}

#[test]
fn what_the_list_of_what_was_taken_back_does_not_say_is_a_loss_only_if_it_matters() {
    let list = Path::new(DIR).join("lost").join("FOUND");
    let damage = |fixture: &Fixture, is_directory| match is_directory {
        true => assert!(fixture.sim.write_file(list.join("in it"), b"of the user")),
        false => assert!(fixture.sim.write_file(&list, b"what is left of it")),
    };
    for is_directory in [true, false] {
        let fixture = Fixture::without_compactions();
        merge_down(&fixture, &["k"], "value");
        damage(&fixture, is_directory);
        let report = fixture.repair(false);
        assert!(report.was_sound && report.lost.is_empty(), "{report:?}");
        assert!(!fixture.sim.exists(&list).unwrap());
        // Nothing tells when this one was written.
        let (fixture, files) = store_without_its_sst();
        assert!(fixture.sim.write_file(&files[0].0, &files[0].1));
        fixture.files("SYNCED").iter().for_each(|path| fixture.sim.remove(path).unwrap());
        damage(&fixture, is_directory);
        let report = fixture.repair(false);
        let told = |line: &&String| line.contains("has taken back from lost/");
        assert_eq!(report.lost.iter().filter(told).count(), 1, "{report:?}");
        assert!(fixture.repair(false).was_sound);
    }
}

/// The list that cannot be read makes way for that of a repair which takes more back, and is cut short.
#[test]
fn an_unreadable_list_is_reported_also_when_the_repair_that_replaces_it_is_cut_short() {
    let fixture = Fixture::without_compactions();
    let db = fixture.open();
    for key in ["k", "other"] {
        db.put(key, "old").unwrap();
        db.flush().unwrap();
    }
    db.close().unwrap();
    let files = lose_ssts(&fixture, &[]);
    assert_eq!(files.len(), 2);
    merge_down(&fixture, &["k", "x"], "new");
    let lost = Path::new(DIR).join("lost");
    // One was taken back, and the other one has come to light since.
    assert!(fixture.sim.write_file(&files[0].0, &files[0].1));
    assert!(fixture.sim.write_file(lost.join(files[1].0.file_name().unwrap()), &files[1].1));
    assert!(fixture.sim.write_file(lost.join("FOUND"), b"what is left of it"));
    fixture.files("SYNCED").iter().for_each(|path| fixture.sim.remove(path).unwrap());
    let mut calls = 0;
    let mut ended = false;
    while !ended {
        let cut = fixture.over(fixture.sim.kill_image());
        cut.sim.crash_after(calls);
        ended = cut.try_to_repair(true).is_ok();
        if !ended {
            let report = fixture.over(cut.sim.kill_image()).repair(false);
            let told = |line: &String| line.contains("has taken back from lost/");
            assert!(report.lost.iter().any(told), "call {calls}: {report:?}");
        }
        calls += 1;
    }
    assert!(calls > 20, "{calls}");
}
