//! Files that come into force while merges and snapshots come and go.

use crate::harness::{Store, at_step, small_options, stopped_clock};
use crate::ingesting::write_file;
use std::sync::Arc;
use terrace::vfs::SimVfs;
use terrace::{IngestOptions, ReadOptions};

/// A merge that took the files before their number can be seen would drop what is still read.
#[test]
fn a_snapshot_that_is_taken_while_files_come_into_force_sees_them_or_what_was_before() {
    let sim = SimVfs::new(1);
    let mut options = small_options(Arc::new(sim.clone()), &stopped_clock());
    options.advanced.compact_when_idle = false;
    (options.advanced.l0_compaction_trigger, options.advanced.l0_slowdown) = (2, 2);
    let store = Store::open(options).unwrap();
    let db = store.db.clone();
    db.put("k", "old").unwrap();
    db.flush().unwrap();
    write_file(&store, "/outside.sst", &[("k", Some("new"))]);
    let (taken, takes) = std::sync::mpsc::channel();
    let other = db.clone();
    at_step("ingest:installed", move || {
        let merges = other.metrics().compactions;
        // No merge comes; one that does has time.
        for _ in 0..20 {
            std::thread::sleep(std::time::Duration::from_millis(10));
            if other.metrics().compactions > merges {
                break;
            }
        }
        assert!(other.get("k").unwrap().is_some());
        taken.send(other.snapshot()).unwrap();
    });
    store.families[0].ingest(&["/outside.sst"], &IngestOptions::default()).unwrap();
    db.wait_idle().unwrap();
    let snapshot = takes.recv().unwrap();
    let seqno = snapshot.sequence_number();
    let at = ReadOptions { snapshot: Some(snapshot), ..ReadOptions::default() };
    let seen = db.get_with("k", &at).unwrap();
    let want: &[u8] = if seqno == db.latest_seqno() { b"new" } else { b"old" };
    assert_eq!(seen.as_deref(), Some(want));
}
