//! When obsolete files go.

use super::*;
use crate::{Db, Options};
use std::path::Path;
use terrace_vfs::{SimVfs, Vfs};

/// The second look of a purge: a checkpoint that begins between the first look and the removal keeps every
/// file.
#[test]
fn a_purge_that_has_begun_removes_nothing_once_deletions_are_held() {
    let sim = SimVfs::new(1);
    let mut options = Options { memory_budget: 16 << 20, ..Options::default() };
    options.advanced.vfs = Arc::new(sim.clone());
    let db = Db::open("/store", options).unwrap();
    let inner = db.inner();
    inner.versions.deletions_held.fetch_add(1, Ordering::SeqCst);
    for round in 0..2 {
        db.put(b"key", [round; 10]).unwrap();
        db.flush().unwrap();
    }
    db.compact_range::<&[u8]>(..).unwrap();
    db.wait_idle().unwrap();
    let obsolete: Vec<PathBuf> = {
        let list = inner.versions.obsolete.lock();
        list.iter().map(|file| names::sst_path(Path::new("/store"), file.number)).collect()
    };
    let there = || obsolete.iter().filter(|path| sim.len(path).is_ok()).count();
    assert!(!obsolete.is_empty() && there() == obsolete.len(), "{obsolete:?}");

    std::thread::scope(|scope| {
        // The purge stops between its two looks.
        let list = inner.versions.obsolete.lock();
        inner.versions.deletions_held.fetch_sub(1, Ordering::SeqCst);
        let purging = scope.spawn(|| purge(&inner.versions));
        while inner.versions.purging.try_lock().is_some() {
            std::thread::yield_now();
        }
        inner.versions.deletions_held.fetch_add(1, Ordering::SeqCst);
        drop(list);
        purging.join().unwrap().unwrap();
    });
    assert_eq!(there(), obsolete.len(), "removed while deletions were held");
    inner.versions.deletions_held.fetch_sub(1, Ordering::SeqCst);
    purge(&inner.versions).unwrap();
    assert_eq!(there(), 0);
}
