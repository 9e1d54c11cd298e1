//! Which directories are refused as LevelDB's, and what `leveldb_destroy_db` removes of a store.

use super::*;
use crate::admin::{leveldb_destroy_db, leveldb_repair_db};
use crate::db::{leveldb_close, leveldb_open};
use crate::options::{
    leveldb_options_create, leveldb_options_destroy, leveldb_options_set_create_if_missing,
};
use libc::c_char;
use std::collections::BTreeSet;
use std::ffi::CStr;
use std::path::PathBuf;
use std::ptr;

fn c_path(dir: &Path) -> CString {
    CString::new(dir.as_os_str().as_bytes()).unwrap()
}

/// What a function of LevelDB's interface left in `errptr`.
fn outcome(error: *mut c_char) -> Result<(), String> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: the error of a call, which is freed once.
    unsafe {
        let text = CStr::from_ptr(error).to_string_lossy().into_owned();
        libc::free(error.cast());
        Err(text)
    }
}

fn open(dir: &Path) -> Result<(), String> {
    let mut error = ptr::null_mut();
    // SAFETY: handles of this function.
    unsafe {
        let options = leveldb_options_create();
        leveldb_options_set_create_if_missing(options, 1);
        let db = leveldb_open(options, c_path(dir).as_ptr(), &mut error);
        leveldb_close(db);
        leveldb_options_destroy(options);
    }
    outcome(error)
}

fn destroy_db(dir: &Path) -> Result<(), String> {
    let mut error = ptr::null_mut();
    // SAFETY: NULL options are allowed here.
    unsafe { leveldb_destroy_db(ptr::null(), c_path(dir).as_ptr(), &mut error) };
    outcome(error)
}

fn repair_db(dir: &Path) -> Result<(), String> {
    let mut error = ptr::null_mut();
    // SAFETY: NULL options are allowed here.
    unsafe { leveldb_repair_db(ptr::null(), c_path(dir).as_ptr(), &mut error) };
    outcome(error)
}

/// A closed store with a log, an SST and a value segment.
fn store(dir: &Path) {
    let db = terrace::Db::open(dir, terrace::Options::default()).unwrap();
    db.put("key", "v".repeat(100_000)).unwrap();
    db.flush().unwrap();
    db.put("other", "value").unwrap();
    db.close().unwrap();
}

fn write(dir: &Path, names: &[&str], text: &str) {
    std::fs::create_dir_all(dir).unwrap();
    for name in names {
        std::fs::write(dir.join(name), text).unwrap();
    }
}

fn there(dir: &Path) -> BTreeSet<String> {
    names_in(dir).unwrap().into_iter().collect()
}

#[test]
fn an_interrupted_destruction_is_finished_by_the_next() {
    let temp = tempfile::tempdir().unwrap();
    let dir: PathBuf = temp.path().join("store");
    store(&dir);
    let count = files_to_remove(&dir).unwrap().len();
    assert!(count > 5);
    for has_log in [false, true] {
        for removed in 0..=count {
            store(&dir);
            if has_log {
                write(&dir, &["LOG"], "a program's own");
            }
            let files = files_to_remove(&dir).unwrap();
            assert_eq!((files[0].as_str(), files[files.len() - 1].as_str()), ("CURRENT", "LOCK"));
            for name in &files[..removed.min(files.len())] {
                std::fs::remove_file(dir.join(name)).unwrap();
            }
            destroy_db(&dir).unwrap();
            match has_log {
                true => assert_eq!(there(&dir), BTreeSet::from(["LOG".into()]), "{removed}"),
                false => assert!(!dir.exists(), "{removed}"),
            }
            open(&dir).unwrap();
            destroy_db(&dir).unwrap();
        }
    }
}

/// As LevelDB, which does not ask what had been in it.
#[test]
fn an_empty_directory_is_destroyed_and_no_other() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("store");
    std::fs::create_dir(&dir).unwrap();
    destroy_db(&dir).unwrap();
    assert!(!dir.exists());
    destroy_db(&dir).unwrap();
    std::fs::create_dir_all(dir.join("photos")).unwrap();
    destroy_db(&dir).unwrap();
    assert!(dir.join("photos").exists());
}

#[test]
fn what_cannot_be_removed_keeps_nothing_else_but_the_signs_of_a_store() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("store");
    store(&dir);
    // The first of the data, and a sign beside which no `LOG` makes them files of LevelDB.
    std::fs::create_dir(dir.join("000000.sst")).unwrap();
    write(&dir, &["LOG"], "a program's own");
    let error = destroy_db(&dir).unwrap_err();
    assert!(error.starts_with("IO error: ") && error.contains("000000.sst"), "{error}");
    let left = there(&dir);
    assert!(
        left.iter().all(|name| turn(name) > Turn::Data
            || names::parse(name) == FileName::Other
            || name == "000000.sst"),
        "{left:?}"
    );
    std::fs::remove_dir(dir.join("000000.sst")).unwrap();
    destroy_db(&dir).unwrap();
    assert_eq!(there(&dir), BTreeSet::from(["LOG".into()]));
}

#[test]
fn a_store_without_a_name_is_not_that_of_the_working_directory() {
    let error = open(Path::new("")).unwrap_err();
    assert!(error.starts_with("Invalid argument: ") && error.contains("is empty"), "{error}");
    assert_eq!(destroy_db(Path::new("")).unwrap_err(), error);
    let mut refused = ptr::null_mut();
    // SAFETY: NULL options and names are allowed here.
    unsafe { leveldb_repair_db(ptr::null(), ptr::null(), &mut refused) };
    assert_eq!(outcome(refused).unwrap_err(), error);
}

#[test]
fn a_store_that_is_open_is_not_destroyed() {
    let temp = tempfile::tempdir().unwrap();
    let db = terrace::Db::open(temp.path(), terrace::Options::default()).unwrap();
    let before = there(temp.path());
    let error = destroy_db(temp.path()).unwrap_err();
    assert!(error.starts_with("IO error: "), "{error}");
    assert_eq!(there(temp.path()), before);
    db.close().unwrap();
    destroy_db(temp.path()).unwrap();
    assert!(!temp.path().exists());
}

#[test]
fn files_of_others_are_left_by_open_and_destroy() {
    let temp = tempfile::tempdir().unwrap();
    let names = ["LOG", "notes.tmp", "notes.ldb", "words.sst"];
    write(temp.path(), &names, "mine");
    open(temp.path()).unwrap();
    open(temp.path()).unwrap();
    destroy_db(temp.path()).unwrap();
    assert_eq!(there(temp.path()), names.iter().map(|name| name.to_string()).collect());
    for name in names {
        assert_eq!(std::fs::read_to_string(temp.path().join(name)).unwrap(), "mine");
    }
}

#[test]
fn a_log_beside_files_with_names_of_leveldb_is_of_leveldb() {
    let temp = tempfile::tempdir().unwrap();
    for (at, beside) in
        ["CURRENT", "MANIFEST-000002", "000003.log", "000005.sst"].iter().enumerate()
    {
        let dir = temp.path().join(at.to_string());
        write(&dir, &["LOG", beside], "x");
        let before = there(&dir);
        for refused in [open(&dir), destroy_db(&dir)] {
            assert!(refused.unwrap_err().contains("(LOG)"), "{beside}");
        }
        assert_eq!(there(&dir), before);
    }
    let dir = temp.path().join("table");
    write(&dir, &["000005.ldb"], "x");
    assert!(open(&dir).unwrap_err().contains("(000005.ldb)"));
}

/// A store that lacks an SST is an error at once, and not only where it is read.
#[test]
fn a_store_without_one_of_its_ssts_is_damaged() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("store");
    store(&dir);
    open(&dir).unwrap();
    let is_sst = |name: &&String| matches!(names::parse(name), FileName::Sst(_));
    let names = there(&dir);
    let sst = names.iter().find(is_sst).unwrap();
    std::fs::remove_file(dir.join(sst)).unwrap();
    let error = open(&dir).unwrap_err();
    assert!(
        error.starts_with("Corruption: ") && error.contains(" missing files; e.g.: "),
        "{error}"
    );
    assert!(error.contains(sst), "{error}");
}

#[test]
fn a_store_without_its_current_is_damaged_and_not_absent() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("store");
    store(&dir);
    std::fs::remove_file(dir.join("CURRENT")).unwrap();
    let before = there(&dir);
    let error = open(&dir).unwrap_err();
    assert!(error.starts_with("Corruption: "), "{error}");
    let refused = check_wanted(&dir, false, true).unwrap_err();
    assert_eq!(refused.code, Code::Corruption);
    assert_eq!(there(&dir), before);
    let absent = temp.path().join("absent");
    assert_eq!(check_wanted(&absent, false, false).unwrap_err().code, Code::InvalidArgument);
}

#[test]
fn a_file_in_the_place_of_the_directory_is_an_io_error_as_in_leveldb() {
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("file");
    std::fs::write(&file, "mine").unwrap();
    for path in [file.clone(), file.join("store")] {
        let refused = check_wanted(&path, false, false).unwrap_err();
        assert_eq!(refused.code, Code::Io, "{}", refused.message);
        assert!(refused.message.contains("Not a directory"), "{}", refused.message);
        let error = open(&path).unwrap_err();
        assert!(error.starts_with("IO error: "), "{error}");
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
}

/// As if another process had made it after the look, and closed it.
#[test]
fn a_store_that_was_made_in_the_meantime_is_not_taken_for_a_new_one() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("store");
    check_wanted(&dir, true, true).unwrap();
    let db = terrace::Db::open(&dir, terrace::Options::default()).unwrap();
    check_new(&dir, &db).unwrap();
    db.put("key", "value").unwrap();
    db.delete("key").unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    let db = terrace::Db::open(&dir, terrace::Options::default()).unwrap();
    let refused = check_new(&dir, &db).unwrap_err();
    assert_eq!(refused.code, Code::InvalidArgument);
    assert_eq!(refused, check_wanted(&dir, true, true).unwrap_err());
}

#[test]
fn a_pipe_in_the_place_of_current_is_refused_without_a_wait() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("store");
    store(&dir);
    std::fs::remove_file(dir.join("CURRENT")).unwrap();
    let made = std::process::Command::new("mkfifo").arg(dir.join("CURRENT")).status();
    assert!(made.unwrap().success());
    let error = open(&dir).unwrap_err();
    assert!(error.contains("CURRENT"), "{error}");
    destroy_db(&dir).unwrap();
    assert!(!dir.exists());
}

/// As in LevelDB 1.23, whose `RepairDB` makes the directory and a `LOG` before it looks for files.
#[test]
fn a_repair_where_there_is_no_store_makes_an_empty_one() {
    let temp = tempfile::tempdir().unwrap();
    let [absent, empty, other] = ["absent", "empty", "other"].map(|name| temp.path().join(name));
    std::fs::create_dir(&empty).unwrap();
    write(&other, &["notes"], "mine");
    for dir in [&absent, &empty, &other] {
        repair_db(dir).unwrap();
        check_wanted(dir, false, false).unwrap();
        let options = terrace::Options { create_if_missing: false, ..Default::default() };
        let db = terrace::Db::open(dir, options).unwrap();
        assert_eq!(db.latest_seqno(), 0);
        db.put("key", "value").unwrap();
        db.close().unwrap();
        // Where there is one now it is repaired.
        repair_db(dir).unwrap();
        let db = terrace::Db::open(dir, terrace::Options::default()).unwrap();
        assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"value"[..]));
    }
    assert_eq!(std::fs::read_to_string(other.join("notes")).unwrap(), "mine");
}

#[test]
fn only_the_last_directory_is_made() {
    let temp = tempfile::tempdir().unwrap();
    for opened in [open, repair_db] {
        let error = opened(&temp.path().join("absent/store")).unwrap_err();
        assert!(error.starts_with("IO error: "), "{error}");
        assert!(there(temp.path()).is_empty());
    }
    open(&temp.path().join("store/")).unwrap();
    assert!(has_parent(Path::new("store")) && has_parent(Path::new("/")));
}
