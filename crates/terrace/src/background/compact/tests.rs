//! Merges beside what else happens to their family.

use super::*;
use crate::{Db, Options};
use terrace_vfs::SimVfs;

/// It was chosen before the drop, and finds a segment gone to which only that family has referred. Another one that the same file
/// refers to is the values of a family that lives: nothing is wrong with it.
#[test]
fn a_merge_of_a_family_that_was_dropped_finds_no_damage() {
    let mut options = Options { memory_budget: 16 << 20, ..Options::default() };
    options.advanced.vfs = Arc::new(SimVfs::new(1));
    let db = Db::open("/store", options.clone()).unwrap();
    let gone = db.create_column_family("gone", options.default_family).unwrap();
    for round in 0..2 {
        gone.put([round], [round; 2000]).unwrap();
        if round == 0 {
            db.put(b"key", [7; 2000]).unwrap();
        }
        db.flush().unwrap();
    }
    gone.compact_range::<&[u8]>(..).unwrap();
    let inner = db.inner();
    let family = inner.read.family_named("gone").unwrap();
    let version = family.state().version.clone();
    let files: Vec<(u8, File)> =
        version.files().map(|(level, file)| (level, file.clone())).collect();
    let [(level, file)] = &files[..] else { panic!("{files:?}") };
    assert_eq!(file.value_refs.len(), 2, "{file:?}");
    let choice = Choice::Merge(Compaction {
        family: family.id,
        start_level: *level,
        output_level: *level,
        inputs: vec![(*level, vec![file.clone()])],
        grandparents: Vec::new(),
        above: None,
        reason: Reason::Values,
    });
    db.drop_column_family("gone").unwrap();
    while file.value_refs.iter().all(|refers| inner.read.value_log.has(refers.segment)) {
        install::drop_dead_segments(&inner.versions).unwrap();
        std::thread::yield_now();
    }
    let job = Job { family, choice, is_attempt: false };
    assert_eq!(execute(&inner.background, &job).unwrap(), (0, 0));
    assert!(db.quarantined_files().is_empty());
    db.collect_garbage(0.0).unwrap();
    assert_eq!(db.metrics().gc_excluded_segments, 0);
    assert_eq!(db.get(b"key").unwrap().as_deref(), Some(&[7; 2000][..]));
    db.close().unwrap();
}
