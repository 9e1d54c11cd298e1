//! Files that are ingested below what is hot.

use super::{Contents, HOT, Store, key, options};
use crate::harness::{DIR, eventually};
use crate::held::{FLUSH, Held};
use std::path::Path;
use std::sync::Arc;
use terrace::{CfOptions, Db, HotTableMode, IngestOptions, IngestPosition, SstWriter};
use terrace_base::rng::SplitMix64;

/// What is hot keeps the log in force, with deletions of which no file has anything any more; also if it is hot no
/// more and waits for its flush.
#[test]
fn a_replayed_deletion_does_not_hide_what_was_ingested_below() {
    for is_dissolved in [false, true] {
        let held = Held::new(FLUSH);
        held.let_go();
        let mut options = options(&held.sim, HotTableMode::Auto);
        options.advanced.vfs = held.clone();
        (options.advanced.l0_compaction_trigger, options.advanced.l0_slowdown) = (2, 2);
        let db = Db::open(DIR, options.clone()).unwrap();
        let mut store =
            Store { db: db.clone(), contents: Contents::new(), history: Vec::new(), written: 0 };
        let mut rng = SplitMix64::new(9);
        let tombstones = || -> u64 {
            let shape = db.shape();
            let files = shape.families.iter().flat_map(|f| f.levels.iter().flatten());
            files.map(|file| file.tombstone_count).sum()
        };
        let mut deleted = None;
        for attempt in 0..100 {
            store.heat(&mut rng);
            let gone = format!("zz{attempt}");
            // A checkpoint lets go of the log, so that there is time until the next; small values take more room in
            // memtables than in the log.
            let mut small = 0;
            let mut write = || {
                small += 1;
                db.put(format!("cold-{small}"), [7]).unwrap();
                db.put(key(small % HOT), [7]).unwrap();
            };
            let checkpoints = db.metrics().hot_checkpoints;
            while db.metrics().hot_checkpoints == checkpoints {
                write();
            }
            let before = db.metrics();
            db.delete(&gone).unwrap();
            while db.metrics().flushes < before.flushes + 2 {
                write();
            }
            db.wait_idle().unwrap();
            let after = db.metrics();
            let is_kept = after.hot_checkpoints == before.hot_checkpoints;
            if after.hot_keys > 0 && is_kept && tombstones() == 0 {
                deleted = Some(gone);
                break;
            }
        }
        let deleted = deleted.expect("a deletion is in the log only");
        let path = Path::new("/outside.sst");
        let outside: Arc<dyn terrace::vfs::Vfs> = Arc::new(held.sim.clone());
        let mut writer = SstWriter::create_on(outside, path, &CfOptions::default()).unwrap();
        writer.put(&deleted, b"below").unwrap();
        writer.finish().unwrap();
        let below = IngestOptions { position: IngestPosition::Below, ..IngestOptions::default() };
        let ingest = || db.default_family().ingest(&[path], &below).map(drop);
        let image = match is_dissolved {
            false => {
                ingest().unwrap();
                held.sim.kill_image()
            }
            true => std::thread::scope(|scope| {
                let _lets_go = held.let_go_on_drop();
                let waits = held.waits();
                held.hold();
                let flushing = scope.spawn(|| db.flush());
                eventually("the flush is held", || held.waits() > waits);
                // Nothing is ingested before the flush, or the image has it.
                let ingesting = scope.spawn(ingest);
                let mut image = held.sim.kill_image();
                for _ in 0..20 {
                    std::thread::sleep(std::time::Duration::from_millis(10));
                    image = held.sim.kill_image();
                }
                held.let_go();
                ingesting.join().unwrap().unwrap();
                flushing.join().unwrap().unwrap();
                image
            }),
        };
        assert_eq!(db.get(&deleted).unwrap().as_deref(), Some(&b"below"[..]));
        options.advanced.vfs = Arc::new(image.clone());
        let after = Db::open(DIR, options).unwrap();
        let shape = after.shape();
        let mut files = shape.families.iter().flat_map(|f| f.levels.iter().flatten());
        let is_there = files.any(|file| file.smallest == deleted.as_bytes());
        assert!(is_there || is_dissolved);
        let seen = after.get(&deleted).unwrap();
        assert_eq!(seen.as_deref(), is_there.then_some(&b"below"[..]), "{is_dissolved}");
    }
}
