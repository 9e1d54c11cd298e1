//! Which files a change takes out, and when they go.

use super::*;
use crate::{Db, Options};
use std::path::Path;
use std::time::Duration;
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
    // A thread that looks at files may have one for a moment.
    let all_go = (0..60_000).any(|_| {
        purge(&inner.versions).unwrap();
        std::thread::sleep(Duration::from_millis(1));
        there() == 0
    });
    assert!(all_go, "{} files stay", there());
}

#[test]
fn files_are_found_by_their_places_in_the_order_of_the_version() {
    let shape = "L0: 9:[a-b] 1KB 8:[a-b] 1KB\nL2: 3:[a-b] 1KB 7:[c-d] 1KB 5:[e-f] 1KB";
    let version = Version::parse_shape(shape).unwrap();
    let find = |places: &[(u8, u64)]| -> Vec<(u8, u64)> {
        let places = places.iter().map(|(level, number)| (*level, FileNumber::new(*number)));
        let found = files_at(&version, places).into_iter();
        found.map(|(level, file)| (level, file.number.get())).collect()
    };
    assert_eq!(find(&[(2, 5), (0, 8), (2, 3), (1, 7), (HOT_LEVEL, 9)]), [(0, 8), (2, 3), (2, 5)]);
    assert!(find(&[]).is_empty());
}

/// A merge takes a file that moves, one that it rewrites, and leaves the others.
#[test]
fn what_a_change_removes_for_good_does_not_move() {
    let shape = "L1: 3:[a-b] 1KB 4:[c-d] 1KB 6:[x-z] 1KB\nL2: 5:[c-d] 1KB";
    let version = Arc::new(Version::parse_shape(shape).unwrap());
    let file = |number| {
        let found = version.files().find(|(_, file)| file.number == FileNumber::new(number));
        FileMeta::clone(found.unwrap().1)
    };
    let fresh = FileMeta { number: FileNumber::new(9), ..file(4) };
    let edit = FamilyEdit {
        added: vec![(2, file(3)), (2, fresh)],
        removed: [(2, 5), (1, 4), (1, 3)].map(|(n, file)| (n, FileNumber::new(file))).to_vec(),
        ..FamilyEdit::default()
    };
    let removed = files_at(&version, edit.removed.iter().copied());
    let before = Before { version: version.clone(), removed };
    let gone: Vec<u64> = before.gone(&edit).iter().map(|gone| gone.number.get()).collect();
    assert_eq!((before.removed.len(), gone), (3, vec![4, 5]));
}
