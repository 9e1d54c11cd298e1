//! Hot keys beside records that the device has refused and the process still holds.

use super::*;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::time::Duration;
use terrace_vfs::{BeforeCalls, Call};

/// A hot table of which a checkpoint is due begins behind records of other keys that no full segment has.
#[test]
fn a_checkpoint_of_hot_keys_is_no_newer_than_what_is_durable_of_other_keys() {
    let (sim, refuses) = (SimVfs::new(41), Arc::new(AtomicBool::new(false)));
    let is_refused = refuses.clone();
    let device = BeforeCalls::new(sim.clone(), move |call, path: &Path| match call {
        // For want of memory, which passes.
        Call::Append(_)
            if path.extension() == Some(OsStr::new("log")) && is_refused.load(Ordering::SeqCst) =>
        {
            Err(terrace_base::Error::io("append to", path, ErrorKind::OutOfMemory.into()))
        }
        _ => Ok(()),
    });
    let mut buffered = options(&sim, HotTableMode::Auto);
    buffered.advanced.vfs = Arc::new(device);
    buffered.sync = SyncMode::Buffered;
    let mut store = Store::of(Db::open(DIR, buffered).unwrap());
    let mut rng = SplitMix64::new(41);
    store.heat(&mut rng);
    // Which swaps find a checkpoint due, and one that ends at once, differs from run to run: until one has been seen.
    let mut shown = 0;
    let waits_for_flush = |db: &Db| {
        let families = db.shape().families;
        families.iter().any(|family| family.immutable_memtables > 0)
    };
    for n in 0..1_000_000 {
        if shown == 1 {
            break;
        }
        // None is made before what has cooled is flushed.
        eventually("all is flushed", || !waits_for_flush(&store.db));
        store.put(HOT + n % (KEYS - HOT), 100);
        // One or two: the table is full after a fixed number of writes, which a fixed number of them might always miss.
        for _ in 0..=rng.below(2) {
            store.put(n % HOT, 100);
        }
        refuses.store(true, Ordering::SeqCst);
        let is_held = store.db.sync().is_err();
        refuses.store(false, Ordering::SeqCst);
        let before = store.db.metrics();
        // May find the hot table full, before it goes into another segment.
        store.put(n % HOT, 100);
        let has_checkpoint = || store.db.metrics().hot_checkpoints > before.hot_checkpoints;
        if !is_held || store.db.metrics().hot_swaps == before.hot_swaps {
            continue;
        }
        // If one is due.
        for _ in 0..100 {
            if has_checkpoint() {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        if !has_checkpoint() {
            continue;
        }
        shown += 1;
        for image in (0..10).map(|seed| sim.crash_image(seed)).chain([sim.kill_image()]) {
            let db = Db::open(DIR, options(&image, HotTableMode::Off)).unwrap();
            assert!(prefix_of(&store.history, &all(&db, None)).is_some(), "a hole in the history");
        }
    }
    assert_eq!(shown, 1, "{}", store.db.metrics());
}
