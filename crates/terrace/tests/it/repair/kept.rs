//! Value segments that nothing refers to after a repair: the store deletes them, and `lost/` has them.

use crate::harness::{DIR, key, small_options, stopped_clock};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use terrace::vfs::{SimVfs, Vfs};
use terrace::{Compression, Db, Options, RepairOptions, RepairReport};
use terrace_base::Error;
use terrace_vfs::{BeforeCalls, Call};

const VALUE: [u8; 200] = [0xAA; 200];
const KEYS: u64 = 10;

/// A store with one SST, the values of which stand in one segment that is not of the log any more.
struct Separated {
    sim: SimVfs,
    options: Options,
    sst: PathBuf,
    segment: PathBuf,
}

impl Separated {
    fn new() -> Self {
        let sim = SimVfs::new(1);
        let mut options = small_options(Arc::new(sim.clone()), &stopped_clock());
        options.column_families.clear();
        options.default_family.value_separation_threshold = 16;
        options.default_family.value_compression = Compression::None;
        options.advanced.log_retention_bytes = 0;
        let db = Db::open(DIR, options.clone()).unwrap();
        (0..KEYS).for_each(|n| db.put(key(n), VALUE).unwrap());
        db.flush().unwrap();
        db.close().unwrap();
        Db::open(DIR, options.clone()).unwrap().close().unwrap();
        let of = |ending: &str| -> Vec<PathBuf> {
            let files = sim.files().into_iter().map(|(path, _)| path);
            files.filter(|path| path.extension().is_some_and(|e| e == ending)).collect()
        };
        let (ssts, has_value) = (of("sst"), |path: &PathBuf| {
            sim.read_file(path).unwrap().windows(VALUE.len()).any(|bytes| bytes == VALUE)
        });
        assert_eq!(ssts.len(), 1, "{:?}", sim.files());
        let segments: Vec<PathBuf> = of("log").into_iter().filter(has_value).collect();
        assert_eq!(segments.len(), 1, "{:?}", sim.files());
        Self { options, sst: ssts[0].clone(), segment: segments[0].clone(), sim }
    }

    fn repair_over(&self, vfs: Arc<dyn Vfs>, from_lost: bool) -> RepairReport {
        let mut options = self.options.clone();
        options.advanced.vfs = vfs;
        let how = RepairOptions { from_lost, ..RepairOptions::default() };
        terrace::repair(DIR, options, how).unwrap()
    }

    fn repair(&self, from_lost: bool) -> RepairReport {
        self.repair_over(Arc::new(self.sim.clone()), from_lost)
    }

    /// Deletes what nothing needs.
    fn use_it(&self) {
        for _ in 0..2 {
            let db = Db::open(DIR, self.options.clone()).unwrap();
            db.put(key(KEYS), b"later").unwrap();
            db.flush().unwrap();
            db.close().unwrap();
        }
        assert!(!self.sim.exists(&self.segment).unwrap(), "nothing refers to it");
    }

    fn bytes(&self) -> Vec<u8> {
        self.sim.read_file(&self.segment).unwrap()
    }

    fn in_lost(path: &Path) -> PathBuf {
        Path::new(DIR).join("lost").join(path.file_name().unwrap())
    }

    /// The files of the store that have another content under their names in `lost/` of `image`.
    fn of_which_lost_has_a_part(&self, image: &SimVfs) -> Vec<String> {
        let lost = Path::new(DIR).join("lost");
        let mut names = match image.exists(&lost).unwrap() {
            true => image.list(&lost).unwrap(),
            false => Vec::new(),
        };
        names.retain(|name| {
            let original = self.sim.read_file(Path::new(DIR).join(name));
            original.is_some() && original != image.read_file(lost.join(name))
        });
        names
    }

    fn count(&self) -> usize {
        let db = Db::open(DIR, self.options.clone()).unwrap();
        let is_there = |n: &u64| db.get(key(*n)).unwrap().as_deref() == Some(&VALUE[..]);
        (0..KEYS).filter(is_there).count()
    }
}

#[test]
fn a_segment_with_a_damaged_value_is_in_lost_also_when_the_store_has_deleted_it() {
    // With one value damaged the others keep the segment; with all of them nothing does.
    for damaged in [1, KEYS as usize] {
        let store = Separated::new();
        let bytes = store.bytes();
        let mut at = 0;
        for _ in 0..damaged {
            let next = bytes[at..].windows(VALUE.len()).position(|part| part == VALUE).unwrap();
            at += next + VALUE.len();
            assert!(store.sim.corrupt(&store.segment, at as u64 - 90, 1));
        }
        let bytes = store.bytes();
        let report = store.repair(false);
        let mut keys: Vec<String> = (0..KEYS).map(|n| String::from_utf8(key(n)).unwrap()).collect();
        keys.sort();
        let (first, last) = (&keys[0], &keys[keys.len() - 1]);
        let told = match damaged {
            1 => format!("the value of key \"{first}\": "),
            _ => format!("the values of {damaged} entries, keys \"{first}\" to \"{last}\"; "),
        };
        assert!(report.lost.iter().any(|line| line.contains(&told)), "{report:?}");
        let noted = report.notes.iter().any(|line| line.contains("in lost/ as well"));
        assert!(noted, "{report:?}");
        if damaged == KEYS as usize {
            store.use_it();
        }
        assert!(store.sim.read_file(Separated::in_lost(&store.segment)).unwrap() == bytes);
        assert_eq!(store.count(), KEYS as usize - damaged);
        assert!(store.repair(false).was_sound);
    }
}

#[test]
fn values_of_a_lost_sst_are_there_when_it_is_found_again() {
    for is_removed in [true, false] {
        let store = Separated::new();
        let sst = store.sim.read_file(&store.sst).unwrap();
        match is_removed {
            true => store.sim.remove(&store.sst).unwrap(),
            false => assert!(store.sim.corrupt(&store.sst, sst.len() as u64 - 9, 1)),
        }
        let bytes = store.bytes();
        let report = store.repair(false);
        let noted = report.notes.iter().any(|line| line.contains("in lost/ as well"));
        assert!(!report.lost.is_empty() && noted, "{report:?}");
        store.use_it();
        assert!(store.sim.read_file(Separated::in_lost(&store.segment)).unwrap() == bytes);
        assert_eq!(store.count(), 0);
        // Without the SST nothing needs what is taken back.
        store.repair(true);
        store.use_it();
        assert!(store.sim.read_file(Separated::in_lost(&store.segment)).unwrap() == bytes);
        assert!(!store.sim.exists(&second_of(&store.segment)).unwrap(), "kept once");
        assert!(store.sim.write_file(Separated::in_lost(&store.sst), sst));
        let report = store.repair(true);
        assert!(report.lost.is_empty(), "{report:?}");
        assert_eq!(store.count(), KEYS as usize, "{report:?}");
    }
}

/// A repair that is killed while it copies leaves nothing that is taken for the segment, and each repair keeps it once.
#[test]
fn of_a_repair_that_is_cut_short_the_segment_is_in_lost_as_a_whole_or_not_at_all() {
    for links in [true, false] {
        let store = Separated::new();
        store.sim.remove(&store.sst).unwrap();
        // A power cut does not bring it back.
        store.sim.sync_dir(Path::new(DIR)).unwrap();
        let (bytes, kept) = (store.bytes(), Separated::in_lost(&store.segment));
        let (mut calls, mut ended, mut without) = (0, false, 0);
        while !ended {
            let image = store.sim.kill_image();
            let over = |image: &SimVfs| -> Arc<dyn Vfs> {
                match links {
                    true => Arc::new(image.clone()),
                    false => without_links(image, None),
                }
            };
            let mut options = store.options.clone();
            options.advanced.vfs = over(&image);
            image.crash_after(calls);
            ended = terrace::repair(DIR, options, RepairOptions::default()).is_ok();
            for left in [image.kill_image(), image.crash_image(calls)] {
                match left.exists(&kept).unwrap() {
                    true => assert!(left.read_file(&kept).unwrap() == bytes, "call {calls}"),
                    false => {
                        without += 1;
                        assert!(left.exists(&store.segment).unwrap(), "call {calls}");
                    }
                }
                // So is whatever else is copied: manifests, the log, the evidence.
                assert!(links || store.of_which_lost_has_a_part(&left).is_empty(), "call {calls}");
                store.repair_over(over(&left), false);
                assert!(left.read_file(&kept).unwrap() == bytes, "call {calls}");
                assert!(!left.exists(&second_of(&store.segment)).unwrap(), "call {calls}");
            }
            calls += 1;
        }
        assert!(without > 4 && calls > 20, "{without} of {calls}");
    }
}

/// What a segment is called of which `lost/` has another.
fn second_of(segment: &Path) -> PathBuf {
    PathBuf::from(format!("{}.1", Separated::in_lost(segment).display()))
}

/// As on FAT, with room for copies, but not for one of the file `full_for`.
fn without_links(sim: &SimVfs, full_for: Option<&Path>) -> Arc<dyn Vfs> {
    let full_for = full_for.map(Path::to_path_buf);
    // What was to be linked last is copied next.
    let is_full = AtomicBool::new(false);
    Arc::new(BeforeCalls::new(sim.clone(), move |call, path| match call {
        Call::HardLink(_) => {
            is_full.store(full_for.as_deref() == Some(path), Ordering::Relaxed);
            Err(Error::io("link", path, ErrorKind::Unsupported.into()))
        }
        Call::Create
            if path.ends_with("lost/rewrite.tmp") && is_full.swap(false, Ordering::Relaxed) =>
        {
            Err(Error::io("create", path, ErrorKind::StorageFull.into()))
        }
        _ => Ok(()),
    }))
}

#[test]
fn without_hard_links_a_copy_is_in_lost_and_where_there_is_no_room_the_report_says_so() {
    for is_full in [false, true] {
        let store = Separated::new();
        store.sim.remove(&store.sst).unwrap();
        let bytes = store.bytes();
        let full_for = is_full.then_some(&*store.segment);
        let report = store.repair_over(without_links(&store.sim, full_for), false);
        let told = report.lost.iter().any(|line| line.contains("no room for copies"));
        assert_eq!(told, is_full, "{report:?}");
        store.use_it();
        let kept = store.sim.read_file(Separated::in_lost(&store.segment));
        assert!(kept == (!is_full).then_some(bytes), "{report:?}");
        assert!(store.repair(false).was_sound);
    }
}

/// An open after a repair that was killed deletes what is taken back and no SST refers to.
#[test]
fn a_segment_that_is_taken_back_stays_in_lost_also_without_hard_links() {
    let store = Separated::new();
    let (bytes, kept) = (store.bytes(), Separated::in_lost(&store.segment));
    store.sim.remove(&store.sst).unwrap();
    store.repair(false);
    store.use_it();
    let (mut calls, mut ended, mut taken) = (0, false, 0);
    while !ended {
        let image = store.sim.kill_image();
        let mut options = store.options.clone();
        options.advanced.vfs = without_links(&image, None);
        image.crash_after(calls);
        let how = RepairOptions { from_lost: true, ..RepairOptions::default() };
        ended = terrace::repair(DIR, options.clone(), how).is_ok();
        let left = image.kill_image();
        taken += u64::from(left.exists(&store.segment).unwrap());
        options.advanced.vfs = Arc::new(left.clone());
        Db::open(DIR, options).unwrap().close().unwrap();
        assert!(left.read_file(&kept).as_ref() == Some(&bytes), "call {calls}");
        calls += 1;
    }
    assert!(taken > 4 && calls > 20, "{taken} of {calls}");
}

#[test]
fn a_segment_that_nothing_needs_is_in_lost_once_however_often_it_is_taken_back() {
    let store = Separated::new();
    let lost = Path::new(DIR).join("lost");
    assert!(store.sim.write_file(lost.join("000050.vlog"), b"of whatever"));
    for round in 0..3 {
        let report = store.repair(true);
        let is_taken = |line: &String| line == "000050.vlog: taken back from lost/";
        assert!(report.saved.iter().any(is_taken), "round {round}: {report:?}");
        let mut names = store.sim.list(&lost).unwrap();
        names.retain(|name| name.starts_with("000050"));
        assert_eq!(names, ["000050.vlog"], "round {round}: {report:?}");
        assert!(!store.sim.exists(&Path::new(DIR).join("000050.vlog")).unwrap());
    }
    assert_eq!(store.count(), KEYS as usize);
}

/// Where a file is that somebody had hidden.
fn in_lost_as_misplaced(hidden: &Path) -> PathBuf {
    PathBuf::from(format!("{}.misplaced", Separated::in_lost(hidden).display()))
}

/// Once no manifest names it any more an open would take it for unfinished.
#[test]
fn a_hidden_sst_is_kept_wherever_a_repair_is_cut_short() {
    let store = Separated::new();
    let bytes = store.sim.read_file(&store.sst).unwrap();
    let hidden = store.sst.with_extension("tmp");
    let kept = in_lost_as_misplaced(&hidden);
    store.sim.rename(&store.sst, &hidden).unwrap();
    let (mut calls, mut ended) = (0, false);
    while !ended {
        let image = store.sim.kill_image();
        let mut options = store.options.clone();
        options.advanced.vfs = Arc::new(image.clone());
        image.crash_after(calls);
        ended = terrace::repair(DIR, options.clone(), RepairOptions::default()).is_ok();
        let left = image.kill_image();
        options.advanced.vfs = Arc::new(left.clone());
        drop(Db::open(DIR, options).unwrap());
        assert!(left.read_file(&kept).as_ref() == Some(&bytes), "call {calls}");
        calls += 1;
    }
    assert!(calls > 20, "{calls}");
}

/// No open takes place without it, so that only a repair could delete it.
#[test]
fn a_hidden_segment_of_the_log_is_kept_by_a_repair() {
    let sim = SimVfs::new(1);
    let mut options = small_options(Arc::new(sim.clone()), &stopped_clock());
    options.advanced.log_retention_bytes = 0;
    let db = Db::open(DIR, options.clone()).unwrap();
    let other = db.column_family(&options.column_families[0].0).unwrap();
    // It is not flushed, and keeps the first segment; what fills memtables begins others.
    db.put(key(1), VALUE).unwrap();
    let logs_of = |sim: &SimVfs| {
        let files = sim.files().into_iter().map(|(path, _)| path);
        let mut logs: Vec<PathBuf> =
            files.filter(|path| path.extension().is_some_and(|e| e == "log")).collect();
        logs.sort();
        logs
    };
    let mut puts = 0;
    while logs_of(&sim).len() < 2 {
        other.put(key(puts), VALUE).unwrap();
        puts += 1;
        assert!(puts < 100_000);
    }
    db.put(key(2), VALUE).unwrap();
    db.sync().unwrap();
    let killed = sim.kill_image();
    let logs = logs_of(&killed);
    assert!(logs.len() > 1, "{logs:?}");
    for log in [&logs[0], &logs[logs.len() - 1]] {
        let image = killed.kill_image();
        let bytes = image.read_file(log).unwrap();
        let hidden = log.with_extension("tmp");
        image.rename(log, &hidden).unwrap();
        options.advanced.vfs = Arc::new(image.clone());
        assert!(Db::open(DIR, options.clone()).is_err(), "{log:?}");
        let report = terrace::repair(DIR, options.clone(), RepairOptions::default()).unwrap();
        assert!(!report.lost.is_empty(), "{report:?}");
        let kept = image.read_file(in_lost_as_misplaced(&hidden));
        assert!(kept == Some(bytes), "{log:?}: {report:?}");
    }
}
