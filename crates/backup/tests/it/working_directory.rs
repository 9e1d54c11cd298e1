//! A relative path is that of the call, wherever the program goes then. In a process of its own: the tests here share a working
//! directory.

use super::*;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use terrace::vfs::PosixVfs;
use terrace::{CfOptions, IngestOptions, RepairOptions, SstWriter};
use terrace_vfs::BeforeCalls;

/// Where the process works.
const HOME: &str = "TERRACE_TEST_HOME";

#[test]
#[ignore = "the process of the test below"]
fn child() {
    let Some(home) = std::env::var_os(HOME) else { return };
    let home = PathBuf::from(home);
    let go = |name: &str| std::env::set_current_dir(home.join(name)).unwrap();
    let relative = Arc::new(Mutex::new(Vec::<PathBuf>::new()));
    let seen = relative.clone();
    let files = BeforeCalls::new(PosixVfs::new(), move |_, path: &Path| {
        if path.is_relative() {
            seen.lock().unwrap().push(path.to_path_buf());
        }
        Ok(())
    });
    let vfs: Arc<dyn Vfs> = Arc::new(files);
    let options = || Options {
        memory_budget: 8 << 20,
        advanced: AdvancedOptions { vfs: vfs.clone(), ..AdvancedOptions::default() },
        ..Options::default()
    };
    go("a");
    let here = Db::open("store", options()).unwrap();
    let backups = Backups::open_with(vfs.clone(), "backups").unwrap();
    let family = CfOptions::default();
    let mut writer = SstWriter::create_on(vfs.clone(), "./file.sst", &family).unwrap();
    here.put(b"k", b"a").unwrap();
    let reader = Db::open_read_only("store", options()).unwrap();
    let place = std::env::current_dir().unwrap().join("store");
    assert_eq!((here.path(), reader.path()), (place.as_path(), place.as_path()));
    go("b");
    // Another store has the same path from here on.
    let there = Db::open("store", options()).unwrap();
    there.put(b"k", b"b").unwrap();
    here.put(b"l", b"a").unwrap();
    here.flush().unwrap();
    assert!(reader.refresh().unwrap());
    assert_eq!(contents(&reader).len(), 2);
    reader.close().unwrap();
    writer.put(b"file", b"a").unwrap();
    let file = writer.finish().unwrap();
    here.ingest(&[&file.path], &IngestOptions::default()).unwrap();
    backups.create(&here, &mut quiet()).unwrap();
    here.close().unwrap();
    there.flush().unwrap();
    there.close().unwrap();
    terrace::repair("store", options(), RepairOptions::default()).unwrap();
    assert_eq!(*relative.lock().unwrap(), Vec::<PathBuf>::new());
    // Also where the program goes while the call works.
    backups.restore(1, "restored", &mut |_| go("a")).unwrap();
}

#[test]
fn a_relative_path_is_that_of_the_call_wherever_the_program_goes() {
    let temp = tempfile::tempdir().unwrap();
    for name in ["a", "b"] {
        std::fs::create_dir(temp.path().join(name)).unwrap();
    }
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "working_directory::child", "--ignored"])
        .env(HOME, temp.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && said.contains("1 passed"), "{said}");
    let names = |dir: &str| -> BTreeSet<OsString> {
        let entries = std::fs::read_dir(temp.path().join(dir)).unwrap();
        entries.map(|entry| entry.unwrap().file_name()).collect()
    };
    assert_eq!(names("a"), BTreeSet::from(["backups", "file.sst", "store"].map(OsString::from)));
    assert_eq!(names("b"), BTreeSet::from(["restored", "store"].map(OsString::from)));
    let check = |dir: &str, keys: &[&str], value: &str| {
        let db = Db::open(temp.path().join(dir), Options::default()).unwrap();
        let entry = |key: &&str| (key.as_bytes().to_vec(), value.as_bytes().to_vec());
        assert_eq!(contents(&db), keys.iter().map(entry).collect::<Vec<_>>(), "{dir}");
        db.close().unwrap();
    };
    check("a/store", &["file", "k", "l"], "a");
    check("b/restored", &["file", "k", "l"], "a");
    check("b/store", &["k"], "b");
}
