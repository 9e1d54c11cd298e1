//! A disk that is really full: deletions are taken and empty it, and the store opens, is read, and
//! is written again as soon as there is room.

use crate::harness::{DIR, Store, draw_separation, eventually, key, small_options, stopped_clock};
use crate::held::{COMPACTION, Held};
use crate::model::FAMILIES;
use std::collections::BTreeMap;
use std::sync::Arc;
use terrace::vfs::{Fault, FaultKind, OpClass, SimVfs, Vfs};
use terrace::{Error, Options, SyncMode, WriteBatch, WriteOptions};
use terrace_base::SplitMix64;

fn options(sim: &SimVfs, seed: u64, reserve_bytes: u64) -> Options {
    let mut options = small_options(Arc::new(sim.clone()), &stopped_clock());
    options.sync = [SyncMode::None, SyncMode::Batch][seed as usize % 2];
    options.advanced.reserve_bytes = reserve_bytes;
    draw_separation(&mut options, &mut SplitMix64::new(seed));
    options
}

fn used_bytes(sim: &SimVfs) -> u64 {
    sim.files().into_iter().map(|(_, bytes)| bytes).sum()
}

/// Puts until the disk is full. Gives what was acknowledged.
fn fill(store: &Store) -> BTreeMap<Vec<u8>, Vec<u8>> {
    fill_from(store, 0)
}

/// As [`fill`], with the keys of the numbers from `first` on.
fn fill_from(store: &Store, first: u64) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut there = BTreeMap::new();
    for number in first..first + 100_000 {
        let (key, value) = (key(number), number.to_string().repeat(40).into_bytes());
        match store.db.put(&key, &value) {
            Ok(()) => drop(there.insert(key, value)),
            Err(Error::DiskFull(_)) => return there,
            Err(other) => panic!("{other:?}"),
        }
    }
    panic!("the disk is never full");
}

fn check(store: &Store, there: &BTreeMap<Vec<u8>, Vec<u8>>) {
    for (key, value) in there {
        assert_eq!(store.db.get(key).unwrap().as_deref(), Some(&value[..]));
    }
    assert_eq!(store.contents().unwrap()[0], *there);
}

/// Whether a write was taken; not to be is only for want of room.
fn taken(seed: u64, outcome: terrace::Result<()>) -> bool {
    match outcome {
        Ok(()) => true,
        Err(Error::DiskFull(_)) => false,
        Err(other) => panic!("seed {seed}: {other}"),
    }
}

#[test]
fn a_full_disk_takes_deletions_and_is_emptied_by_them() {
    for seed in 0..8 {
        let sim = SimVfs::new(seed);
        let store = Store::open(options(&sim, seed, 64 << 10)).unwrap();
        sim.set_capacity_bytes(Some(used_bytes(&sim) + (300 << 10)));
        let mut there = fill(&store);
        let first = there.keys().next().unwrap().clone();
        // A flush or merge may hold what room there is, for a moment.
        eventually("a deletion is taken", || taken(seed, store.db.delete(&first)));
        there.remove(&first);
        check(&store, &there);
        // A batch that also puts is refused whole.
        let mut mixed = WriteBatch::new();
        mixed.put(b"new", b"value");
        mixed.delete(there.keys().next().unwrap());
        // The deletion may have made room for it.
        if store.db.is_disk_full() && !taken(seed, store.db.write(mixed)) {
            check(&store, &there);
        }
        eventually("all is deleted", || {
            let mut all = WriteBatch::new();
            for family in &store.families {
                all.delete_range_cf(family, b"", b"\xff");
            }
            taken(seed, store.db.write_with(all, &WriteOptions { sync: Some(SyncMode::Batch) }))
        });
        check(&store, &BTreeMap::new());
        eventually("deletions make room", || store.db.put(b"after", b"room").is_ok());
        eventually("a flush finds room", || store.db.flush().is_ok());
        assert!(!store.db.metrics().poisoned);
        let mut options = options(&sim, seed, 0);
        options.advanced.vfs = Arc::new(sim.crash_image(seed));
        let after = Store::open(options).unwrap();
        check(&after, &BTreeMap::from([(b"after".to_vec(), b"room".to_vec())]));
    }
}

/// The merges that would apply the deletions do not fit, and no write comes that would find the disk full once more.
#[test]
fn keys_that_were_deleted_on_a_full_disk_give_their_room_back_while_nothing_is_written() {
    for seed in 0..4 {
        let (sim, clock) = (SimVfs::new(seed), stopped_clock());
        let mut options = options(&sim, seed, 32 << 10);
        options.advanced.clock = Arc::new(clock.clone());
        let store = Store::open(options).unwrap();
        let capacity = used_bytes(&sim) + (600 << 10);
        sim.set_capacity_bytes(Some(capacity));
        for key in fill(&store).keys() {
            eventually("a deletion is taken", || {
                clock.advance(10);
                taken(seed, store.db.delete(key))
            });
        }
        eventually("the room comes back", || {
            clock.advance(200);
            used_bytes(&sim) < capacity / 3
        });
        check(&store, &BTreeMap::new());
    }
}

/// Something else has filled the disk, and the memtables are more than the reserve has room for: nothing that is deleted by
/// key can be flushed.
#[test]
fn a_range_is_deleted_when_keys_have_used_up_their_part_of_the_reserve() {
    let sim = SimVfs::new(1);
    let mut options = options(&sim, 0, 64 << 10);
    options.memory_budget = 16 << 20;
    options.advanced.memtable_bytes = 1 << 20;
    options.default_family.value_separation_threshold = usize::MAX;
    let store = Store::open(options).unwrap();
    for number in 0..2000 {
        store.db.put(key(number), [b'v'; 200]).unwrap();
    }
    sim.set_capacity_bytes(Some(used_bytes(&sim)));
    let (mut deleted, mut refused) = (0, 0);
    while refused < 5 {
        match taken(1, store.db.delete(key(10_000 + deleted))) {
            true => deleted += 1,
            false => refused += 1,
        }
        assert!(deleted < 10_000, "the reserve is never used up");
    }
    assert!(deleted > 100, "{deleted}");
    eventually("all is deleted", || taken(1, store.db.delete_range(b"", b"\xff")));
    check(&store, &BTreeMap::new());
    eventually("deletions make room", || store.db.put(b"after", b"room").is_ok());
}

/// Who deletes has the lead, and what makes room waits for that; a merge may take minutes.
#[test]
fn a_deletion_that_the_log_has_no_room_for_does_not_wait_for_a_merge_to_its_end() {
    let held = Held::new(COMPACTION);
    let mut options = options(&held.sim, 0, 64 << 10);
    options.advanced.vfs = held.clone();
    let store = Store::open(options).unwrap();
    let _lets_go = held.let_go_on_drop();
    for round in 0..3 {
        (0..20).for_each(|number| store.db.put(key(20 * round + number), [b'v'; 200]).unwrap());
        store.db.flush().unwrap();
    }
    eventually("a merge begins", || held.waits() > 0);
    // The log finds no room whatever is free, as where a quota is used up.
    let (at_op, kind, filter) = (held.sim.op_count(), FaultKind::Enospc, Some(OpClass::Append));
    held.sim.set_fault(Some(Fault { at_op, kind, forever: true, filter }));
    assert!(!taken(0, store.db.delete_range(b"", b"\xff")));
    held.sim.set_fault(None);
    held.let_go();
    eventually("all is deleted", || taken(0, store.db.delete_range(b"", b"\xff")));
    check(&store, &BTreeMap::new());
}

/// Nobody writes to the store, so no segment follows the one that the values lie in.
#[test]
fn values_in_a_log_that_was_replayed_on_a_full_disk_are_durable_before_an_sst_refers_to_them() {
    let mut cases = 0;
    for seed in 0..6 {
        let sim = SimVfs::new(seed);
        let mut options = options(&sim, seed, 0);
        options.default_family.value_separation_threshold = 1;
        let store = Store::open(options.clone()).unwrap();
        sim.set_capacity_bytes(Some(used_bytes(&sim) + (200 << 10)));
        let there = fill(&store);
        let image = sim.kill_image();
        image.set_capacity_bytes(Some(used_bytes(&image)));
        options.advanced.vfs = Arc::new(image.clone());
        let store = Store::open(options.clone()).unwrap();
        let waiting = || -> u64 {
            store.db.shape().families.iter().map(|family| family.immutable_memtables).sum()
        };
        if waiting() == 0 {
            continue;
        }
        image.set_capacity_bytes(None);
        eventually("what was replayed is flushed", || waiting() == 0);
        for cut in 0..4 {
            options.advanced.vfs = Arc::new(image.crash_image(seed * 10 + cut));
            check(&Store::open(options.clone()).unwrap(), &there);
        }
        cases += 1;
    }
    assert!(cases > 0);
}

#[test]
fn a_full_disk_opens_is_read_and_becomes_writable_when_there_is_room() {
    let (mut full, mut opens) = (0, 0);
    for seed in 0..6 {
        let sim = SimVfs::new(seed);
        let reserve_bytes = if seed < 3 { 0 } else { 4 << 10 };
        let store = Store::open(options(&sim, seed, reserve_bytes)).unwrap();
        sim.set_capacity_bytes(Some(used_bytes(&sim) + (200 << 10)));
        let there = fill(&store);
        // However little there is left, the open finds it too little at another place.
        for room in [0, 50, 200, 500, 1000, 2000, 4000, 8000, 12_000, 16_000, 30_000] {
            let image = sim.kill_image();
            image.set_capacity_bytes(Some(used_bytes(&image) + room));
            let mut options = options(&image, seed, reserve_bytes);
            let store = Store::open(options.clone())
                .unwrap_or_else(|error| panic!("seed {seed}, room {room}: {error}"));
            // Room may be found at any moment from now on.
            full += u64::from(store.db.is_disk_full());
            opens += 1;
            check(&store, &there);
            // Killed once more.
            options.advanced.vfs = Arc::new(image.kill_image());
            check(&Store::open(options.clone()).unwrap(), &there);
            match store.db.put(b"after", b"room") {
                Ok(()) | Err(Error::DiskFull(_)) => {}
                Err(other) => panic!("seed {seed}, room {room}: {other:?}"),
            }
            image.set_capacity_bytes(None);
            eventually("writes resume", || store.db.put(b"after", b"room").is_ok());
            store.db.flush().unwrap();
            store.db.sync().unwrap();
            let mut there = there.clone();
            there.insert(b"after".to_vec(), b"room".to_vec());
            check(&store, &there);
            options.advanced.vfs = Arc::new(image.crash_image(seed + room));
            check(&Store::open(options.clone()).unwrap(), &there);
            store.db.wait_idle().unwrap();
            store.db.verify().unwrap();
            store.db.close().unwrap();
            drop(store);
            options.advanced.vfs = Arc::new(image);
            check(&Store::open(options).unwrap(), &there);
        }
    }
    assert!(full > opens / 3, "{full} of {opens} opens found the disk full");
}

#[test]
fn a_store_that_was_opened_on_a_full_disk_takes_deletions_from_its_reserve() {
    let sim = SimVfs::new(1);
    let store = Store::open(options(&sim, 1, 64 << 10)).unwrap();
    sim.set_capacity_bytes(Some(used_bytes(&sim) + (200 << 10)));
    let there = fill(&store);
    // As if it was killed before it gave the reserve back.
    let image = sim.kill_image();
    let reserve = std::path::Path::new(DIR).join("RESERVE");
    image.set_capacity_bytes(None);
    if image.read_file(&reserve).is_none() {
        assert!(image.write_file(&reserve, vec![0; 64 << 10]));
    }
    image.set_capacity_bytes(Some(used_bytes(&image)));
    let store = Store::open(options(&image, 1, 64 << 10)).unwrap();
    check(&store, &there);
    // A flush may hold what room there is, for a moment.
    eventually("all is deleted", || taken(1, store.db.delete_range(b"", b"\xff")));
    check(&store, &BTreeMap::new());
    eventually("deletions make room", || store.db.put(b"after", b"room").is_ok());
}

/// What is written after each start until the disk is full again does not use up the room for deletions.
#[test]
fn a_disk_that_is_filled_again_after_every_kill_takes_deletions() {
    let mut refused = 0;
    for seed in 0..6 {
        let mut sim = SimVfs::new(seed);
        let mut store = Store::open(options(&sim, seed, 64 << 10)).unwrap();
        let capacity = used_bytes(&sim) + (300 << 10);
        sim.set_capacity_bytes(Some(capacity));
        let mut there = fill(&store);
        for round in 1..=10 {
            let image = sim.kill_image();
            image.set_capacity_bytes(Some(capacity));
            drop(store);
            store = Store::open(options(&image, seed, 64 << 10)).unwrap();
            sim = image;
            let more = fill_from(&store, round * 100_000);
            refused += u64::from(more.is_empty());
            there.extend(more);
        }
        check(&store, &there);
        let first = there.keys().next().unwrap().clone();
        eventually("a deletion is taken", || taken(seed, store.db.delete(&first)));
        eventually("all is deleted", || taken(seed, store.db.delete_range(b"", b"\xff")));
        check(&store, &BTreeMap::new());
        eventually("deletions make room", || store.db.put(b"after", b"room").is_ok());
    }
    assert!(refused > 0, "every start has found room for writes");
}

/// A deletion needs no more room than that, and other writes would use it up.
#[test]
fn a_store_without_room_for_its_reserve_takes_only_deletions_until_there_is() {
    const RESERVE: u64 = 64 << 10;
    let sim = SimVfs::new(1);
    // There is no room for it, and nothing to delete yet.
    sim.set_capacity_bytes(Some(RESERVE - 1));
    let store = Store::open(options(&sim, 1, RESERVE)).unwrap();
    store.db.put(b"key", b"value").unwrap();
    store.db.put(b"other key", b"value").unwrap();
    store.db.flush().unwrap();
    store.db.close().unwrap();
    drop(store);
    let store = Store::open_read_only(options(&sim, 1, RESERVE)).unwrap();
    assert!(!store.db.is_disk_full());
    drop(store);
    let store = Store::open(options(&sim, 1, RESERVE)).unwrap();
    assert!(store.db.is_disk_full());
    match store.db.put(b"new", b"value") {
        Err(error @ Error::DiskFull(_)) => {
            assert!(error.to_string().contains("reserve_bytes"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    eventually("a deletion is taken", || taken(1, store.db.delete(b"key")));
    check(&store, &BTreeMap::from([(b"other key".to_vec(), b"value".to_vec())]));
    // Less than a full disk wants besides the reserve.
    sim.set_capacity_bytes(Some(used_bytes(&sim) + RESERVE + (20 << 10)));
    eventually("writes resume", || taken(1, store.db.put(b"new", b"value")));
    drop(store);
    let store = Store::open(options(&sim, 1, 0)).unwrap();
    assert!(!store.db.is_disk_full());
    store.db.put(b"another", b"value").unwrap();
}

/// Room that a new segment of the log sets aside for its records would be all of the reserve, and stays taken after a kill.
#[test]
fn a_kill_on_a_full_disk_leaves_the_reserve_to_deletions() {
    const RESERVE: u64 = 64 << 10;
    let options = |sim: &SimVfs| {
        let mut options = options(sim, 1, RESERVE);
        options.advanced.memtable_bytes = RESERVE as usize;
        options
    };
    for seed in 0..4 {
        let mut sim = SimVfs::new(seed);
        let mut store = Store::open(options(&sim)).unwrap();
        let capacity = used_bytes(&sim) + (400 << 10);
        sim.set_capacity_bytes(Some(capacity));
        let mut there = fill(&store);
        for round in 0..6 {
            let first = there.keys().next().unwrap().clone();
            eventually("a deletion is taken", || taken(seed, store.db.delete(&first)));
            there.remove(&first);
            let image = sim.kill_image();
            image.set_capacity_bytes(Some(capacity));
            drop(store);
            store = Store::open(options(&image)).unwrap();
            sim = image;
            // Until that is the whole disk.
            there.extend(fill_from(&store, (round + 1) * 100_000));
        }
        check(&store, &there);
        eventually("all is deleted", || taken(seed, store.db.delete_range(b"", b"\xff")));
        check(&store, &BTreeMap::new());
    }
}

/// What it sets aside for later records others do not have.
#[test]
fn the_first_segment_of_an_open_store_sets_little_aside_where_room_is_short() {
    const ROOM: u64 = 256 << 10;
    let sim = SimVfs::new(1);
    let mut options = options(&sim, 1, 64 << 10);
    assert_eq!(options.sync, SyncMode::Batch);
    options.advanced.memtable_bytes = 128 << 10;
    let log_bytes = || {
        let is_log = |path: &std::path::PathBuf| path.extension().is_some_and(|e| e == "log");
        let logs = sim.files().into_iter().filter(|(path, _)| is_log(path));
        logs.map(|(_, bytes)| bytes).sum::<u64>()
    };
    let store = Store::open(options.clone()).unwrap();
    assert_eq!(log_bytes(), 128 << 10);
    store.db.close().unwrap();
    drop(store);
    sim.set_capacity_bytes(Some(used_bytes(&sim) + ROOM));
    let store = Store::open(options).unwrap();
    assert!(!store.db.is_disk_full());
    let bytes = log_bytes();
    assert!(bytes < ROOM / 8, "{bytes} bytes of log");
}

#[test]
fn deletions_wait_for_flushes_while_only_the_reserve_is_short() {
    const RESERVE: u64 = 8 << 20;
    let sim = SimVfs::new(1);
    sim.set_capacity_bytes(Some(RESERVE - 1));
    let store = Store::open(options(&sim, 0, RESERVE)).unwrap();
    store.db.put(b"key", b"value").unwrap();
    store.db.close().unwrap();
    drop(store);
    let store = Store::open(options(&sim, 0, RESERVE)).unwrap();
    assert!(store.db.is_disk_full());
    let mut most = 0;
    for n in 0..40_000 {
        store.db.delete(key(n)).unwrap();
        if n % 100 == 0 {
            most = most.max(store.db.metrics().memtable_bytes);
        }
    }
    assert!(store.db.is_disk_full());
    assert!(most < 2 << 20, "{most} bytes of memtables");
}

/// The log has used it, and no descriptor is left when it is to be set aside again: that is over soon, and the disk may be full
/// before ten minutes are.
#[test]
fn a_reserve_that_cannot_be_set_aside_for_a_moment_is_set_aside_soon() {
    const RESERVE: u64 = 64 << 10;
    let sim = SimVfs::new(1);
    sim.set_capacity_bytes(Some(64 << 20));
    let _store = Store::open(options(&sim, 1, RESERVE)).unwrap();
    let reserve = std::path::Path::new(DIR).join("RESERVE");
    let is_whole = || sim.len(&reserve).is_ok_and(|bytes| bytes >= RESERVE);
    assert!(is_whole());
    let (at_op, filter) = (sim.op_count(), Some(OpClass::Create));
    let (kind, faults) = (FaultKind::NoDescriptors, sim.executed_faults());
    sim.set_fault(Some(Fault { at_op, kind, forever: false, filter }));
    sim.remove(&reserve).unwrap();
    eventually("it cannot be set aside", || sim.executed_faults() > faults);
    eventually("it is set aside", is_whole);
}

/// The outputs of a merge that was killed have taken all room, and the reserve is gone.
#[test]
fn what_a_killed_job_has_begun_does_not_keep_a_full_disk_full() {
    let sim = SimVfs::new(1);
    let store = Store::open(options(&sim, 1, 64 << 10)).unwrap();
    store.db.put(b"key", b"value").unwrap();
    store.db.flush().unwrap();
    let image = sim.kill_image();
    let dir = std::path::Path::new(DIR);
    assert!(image.write_file(dir.join("RESERVE"), []));
    assert!(image.write_file(dir.join("000900.tmp"), vec![1; 100 << 10]));
    image.set_capacity_bytes(Some(used_bytes(&image)));
    let store = Store::open(options(&image, 1, 64 << 10)).unwrap();
    check(&store, &BTreeMap::from([(b"key".to_vec(), b"value".to_vec())]));
    eventually("there is room", || taken(1, store.db.put(b"after", b"room")));
}

/// A full disk cuts an append short. What failed is no part of the segment that the manifest later names.
#[test]
fn a_segment_that_a_full_disk_has_cut_short_is_as_long_as_the_manifest_says() {
    let mut checked = 0;
    for seed in 0..4 {
        let sim = SimVfs::new(seed);
        let mut options = options(&sim, seed, 4 << 10);
        options.default_family.value_separation_threshold = 1;
        let store = Store::open(options.clone()).unwrap();
        sim.set_capacity_bytes(Some(used_bytes(&sim) + (200 << 10)));
        let mut there = fill(&store);
        sim.set_capacity_bytes(None);
        eventually("writes resume", || store.db.put(b"after", b"room").is_ok());
        there.insert(b"after".to_vec(), b"room".to_vec());
        store.db.flush().unwrap();
        store.db.wait_idle().unwrap();
        store.db.close().unwrap();
        drop(store);
        let vfs = options.advanced.vfs.clone();
        let report = terrace_inspect::check_store(&vfs, std::path::Path::new(DIR)).unwrap();
        assert!(report.is_sound(), "seed {seed}: {report}");
        checked += report.counts.value_segments;
        check(&Store::open(options).unwrap(), &there);
    }
    assert!(checked > 0);
}

/// What a failed append left at the end of a segment is not in the store, and no update.
#[test]
fn a_feed_of_a_store_that_was_opened_on_a_full_disk_ends_segments_where_they_end() {
    let mut opened_full = 0;
    for seed in 0..8 {
        let sim = SimVfs::new(seed);
        let mut options = options(&sim, seed, 64 << 10);
        options.advanced.log_retention_bytes = 1 << 30;
        let store = Store::open(options.clone()).unwrap();
        let start = store.db.latest_seqno() + 1;
        sim.set_capacity_bytes(Some(used_bytes(&sim) + (100 << 10)));
        let there = fill(&store);
        let first = there.keys().next().unwrap().clone();
        eventually("a deletion is taken", || taken(seed, store.db.delete(&first)));
        let last = store.db.latest_seqno();
        let image = sim.kill_image();
        image.set_capacity_bytes(Some(used_bytes(&image)));
        options.advanced.vfs = Arc::new(image.clone());
        let after = Store::open(options).unwrap();
        let is_full = after.db.is_disk_full();
        opened_full += u64::from(is_full);
        let Ok(mut feed) = after.db.updates_since(start) else { continue };
        let mut next = start;
        let mut is_whole = true;
        for batch in &mut feed {
            let batch = match batch {
                // A full disk goes before feeds.
                Err(Error::UpdatesGone { .. }) if is_full => {
                    is_whole = false;
                    break;
                }
                batch => batch.unwrap_or_else(|error| panic!("seed {seed}: {error}")),
            };
            assert_eq!(batch.first_seqno(), next, "seed {seed}");
            next = batch.first_seqno() + batch.updates().count() as u64;
        }
        assert!(!is_whole || next == last + 1, "seed {seed}: {next} of {last}");
    }
    assert!(opened_full > 0);
}

/// It stays without records, however long the segments are that are written.
#[test]
fn a_checkpoint_takes_no_room_for_writes_that_do_not_come() {
    for sync in [SyncMode::Batch, SyncMode::Interval(std::time::Duration::from_secs(3600))] {
        let sim = SimVfs::new(1);
        let mut options = options(&sim, 1, 0);
        options.sync = sync;
        let store = Store::open(options.clone()).unwrap();
        store.db.put(b"key", b"value").unwrap();
        store.db.checkpoint("/copy").unwrap();
        let logs = sim.files().into_iter().filter(|(path, _)| {
            path.starts_with("/copy") && path.extension().is_some_and(|ending| ending == "log")
        });
        let (_, bytes) = logs.max().unwrap();
        assert_eq!(bytes, terrace_log::format::HEADER_BYTES);
    }
}

#[test]
fn a_column_family_is_dropped_on_a_full_disk_and_gives_its_room_back() {
    for seed in 0..4 {
        let sim = SimVfs::new(seed);
        let store = Store::open(options(&sim, seed, 64 << 10)).unwrap();
        sim.set_capacity_bytes(Some(used_bytes(&sim) + (300 << 10)));
        let mut filled = 0;
        while taken(seed, store.families[1].put(key(filled), [b'v'; 200])) {
            filled += 1;
            assert!(filled < 100_000, "the disk is never full");
        }
        // A flush or merge may hold what room there is, for a moment.
        eventually("the family is dropped", || {
            taken(seed, store.db.drop_column_family(FAMILIES[1]))
        });
        eventually("there is room", || taken(seed, store.db.put(b"after", [b'v'; 200])));
    }
}
