//! Files that are not the store's but look like it: somebody has put them into the directory.

use std::path::Path;
use std::sync::Arc;
use terrace::vfs::{SimVfs, Vfs};
use terrace::{Db, Options, RepairOptions};
use terrace_manifest::names::{self, FileName};
use terrace_vfs::CreateOptions;

fn options(vfs: &SimVfs) -> Options {
    let mut options = Options { memory_budget: 4 << 20, ..Options::default() };
    options.advanced.vfs = Arc::new(vfs.clone());
    // Only calls take numbers, however long they take.
    options.advanced.compact_when_idle = false;
    options
}

/// The largest number among the files of the store, strays aside.
fn largest_number(vfs: &SimVfs, stray: &str) -> u64 {
    let listing = vfs.list(Path::new("/db")).unwrap();
    let number = |name: &String| match names::parse(name) {
        FileName::Manifest(n) => n,
        FileName::Sst(n) => n.get(),
        FileName::Log(n) | FileName::ValueLog(n) => n.get(),
        _ => 0,
    };
    listing.iter().filter(|name| *name != stray).map(number).max().unwrap()
}

/// Of every kind of file: past the numbers of segments with values, past those of the file system's
/// larger half, the last one, and the last but one.
#[test]
fn a_file_with_a_number_far_past_all_others_is_left_alone_and_changes_nothing() {
    let numbers =
        ["5000000000", "9223372036854775808", "18446744073709551614", "18446744073709551615"];
    let kinds = [("", ".sst"), ("", ".log"), ("", ".vlog"), ("", ".tmp"), ("MANIFEST-", "")];
    for (before, after) in kinds {
        for number in numbers {
            let stray = format!("{before}{number}{after}");
            let vfs = SimVfs::new(1);
            let db = Db::open("/db", options(&vfs)).unwrap();
            db.put(b"old", vec![1; 5000]).unwrap();
            db.close().unwrap();
            let path = Path::new("/db").join(&stray);
            let mut file = vfs.create(&path, &CreateOptions::default()).unwrap();
            file.append(b"not yours").unwrap();
            drop(file);
            for round in 0..3u8 {
                let db = Db::open("/db", options(&vfs)).unwrap();
                assert_eq!(db.get(b"old").unwrap().as_deref(), Some(&vec![1; 5000][..]), "{stray}");
                let separated = db.metrics().values_separated;
                db.put([round], vec![2; 5000]).unwrap();
                assert_eq!(db.metrics().values_separated, separated + 1, "{stray}");
                db.flush().unwrap();
                db.compact_range::<&[u8]>(..).unwrap();
                db.collect_garbage(0.0).unwrap();
                assert_eq!(db.get([round]).unwrap().as_deref(), Some(&vec![2; 5000][..]));
                if round == 1 {
                    drop(db);
                } else {
                    db.close().unwrap();
                }
                let read_only = Db::open_read_only("/db", options(&vfs)).unwrap();
                assert!(read_only.get([round]).unwrap().is_some(), "{stray}");
            }
            assert_eq!(vfs.len(&path).unwrap(), 9, "{stray} was touched");
            assert!(largest_number(&vfs, &stray) < 200, "{stray} raised the file numbers");
        }
    }
}

/// Under the names of the next SSTs, while the store is open: a flush and a merge go on under other numbers.
#[test]
fn a_file_that_somebody_puts_under_the_next_numbers_is_not_written_over() {
    let vfs = SimVfs::new(1);
    let db = Db::open("/db", options(&vfs)).unwrap();
    let dir = Path::new("/db");
    let mut strays = Vec::new();
    let mut put_strays = || {
        let listing = vfs.list(dir).unwrap();
        let next = largest_number(&vfs, "") + 1;
        for number in next..next + 2 {
            let name = format!("{number:06}.sst");
            assert!(!listing.contains(&name));
            let mut file = vfs.create(&dir.join(&name), &CreateOptions::default()).unwrap();
            file.append(b"not yours").unwrap();
            strays.push(name);
        }
    };
    let until_done = |call: &dyn Fn() -> terrace::Result<()>| {
        for _ in 0..10 {
            let Err(error) = call() else { return };
            assert!(error.to_string().contains("somebody has put a file there"), "{error}");
        }
        panic!("it is refused again and again");
    };
    for round in 0..2u8 {
        db.put(b"key", [round; 100]).unwrap();
        put_strays();
        until_done(&|| db.flush());
    }
    put_strays();
    until_done(&|| db.compact_range::<&[u8]>(..));
    until_done(&|| db.wait_idle());
    assert!(!db.metrics().poisoned && db.metrics().background_errors > 0);
    assert_eq!(db.get(b"key").unwrap().as_deref(), Some(&[1; 100][..]));
    db.verify().unwrap();
    let content = |path: &Path| vfs.read_file(path);
    for name in &strays {
        assert_eq!(content(&dir.join(name)).as_deref(), Some(&b"not yours"[..]), "{name}");
    }
    let is_left = |name: &String| name.starts_with('0') && name.ends_with(".tmp");
    assert!(!vfs.list(dir).unwrap().iter().any(is_left), "nothing is left of what was refused");
    db.close().unwrap();
    // The next open sets them aside, as all that looks like data and is named by nothing.
    let db = Db::open("/db", options(&vfs)).unwrap();
    assert_eq!(db.get(b"key").unwrap().as_deref(), Some(&[1; 100][..]));
    let lost = names::lost_dir(dir);
    assert!(strays.iter().all(|name| content(&lost.join(name)).is_some()));
}

/// No listing of files has it, so that nothing keeps a new segment from its name. A repair moves it away.
#[test]
fn a_directory_with_the_name_of_the_next_segment_is_told_with_what_to_do() {
    let vfs = SimVfs::new(1);
    let db = Db::open("/db", options(&vfs)).unwrap();
    db.put(b"key", b"value").unwrap();
    db.close().unwrap();
    let next = largest_number(&vfs, "") + 1;
    for number in next..next + 8 {
        assert!(vfs.write_file(format!("/db/{number:06}.log/mine"), b"mine"));
    }
    let error = Db::open("/db", options(&vfs)).err().unwrap().to_string();
    assert!(error.contains("move it away") && error.contains("`terrace repair`"), "{error}");
    terrace::repair("/db", options(&vfs), RepairOptions::default()).unwrap();
    let db = Db::open("/db", options(&vfs)).unwrap();
    assert_eq!(db.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
}
