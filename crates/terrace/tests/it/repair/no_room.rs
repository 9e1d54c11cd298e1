//! Repairs that find no room for what they write.

use crate::harness::{DIR, key, small_options, stopped_clock};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use terrace::vfs::SimVfs;
use terrace::{Db, Error, RepairOptions};
use terrace_vfs::{BeforeCalls, Call};

const KEYS: u64 = 60;

/// Each try would take more of the room that is missing.
#[test]
fn a_repair_that_finds_no_room_leaves_no_sst_that_it_has_written() {
    let sim = SimVfs::new(1);
    let mut options = small_options(Arc::new(sim.clone()), &stopped_clock());
    options.column_families.clear();
    options.advanced.l0_compaction_trigger = 10;
    options.advanced.compact_when_idle = false;
    let db = Db::open(DIR, options.clone()).unwrap();
    for round in 0..2_u8 {
        (0..KEYS).for_each(|n| db.put(key(n), [round; 40]).unwrap());
        db.flush().unwrap();
    }
    db.close().unwrap();
    let numbered = || -> Vec<PathBuf> {
        let files = sim.files().into_iter().map(|(path, _)| path);
        files.filter(|path| path.extension().is_some_and(|e| e == "sst" || e == "tmp")).collect()
    };
    let before = numbered();
    assert_eq!(before.len(), 2, "{before:?}");
    assert!(before.iter().all(|path| sim.corrupt(path, 4, 0xff)));

    let written = Arc::new(AtomicU32::new(0));
    let mut short_of_room = options.clone();
    let count = written.clone();
    short_of_room.advanced.vfs = Arc::new(BeforeCalls::new(sim.clone(), move |call, path| {
        let is_written = matches!(call, Call::Create)
            && path.parent() == Some(Path::new(DIR))
            && path.extension().is_some_and(|ending| ending == "tmp");
        // There is room for the first one.
        match is_written && count.fetch_add(1, Ordering::Relaxed) == 1 {
            true => Err(terrace_base::Error::io("create", path, ErrorKind::StorageFull.into())),
            false => Ok(()),
        }
    }));
    let refused = terrace::repair(DIR, short_of_room, RepairOptions::default());
    assert!(matches!(refused, Err(Error::DiskFull(_))), "{refused:?}");
    assert_eq!(written.load(Ordering::Relaxed), 2);
    assert_eq!(numbered(), before);

    let report = terrace::repair(DIR, options.clone(), RepairOptions::default()).unwrap();
    let db = Db::open(DIR, options).unwrap();
    // The last key: what is damaged is the first block of each file.
    assert!(db.get(key(55)).unwrap().is_some(), "{report:?}");
}
