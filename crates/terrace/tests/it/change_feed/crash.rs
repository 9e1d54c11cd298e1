//! A crash takes back nothing that a feed of synced updates has given, and the feed goes on after it.

use super::{keys, model_batch, options, rest};
use crate::at_step::at_step;
use crate::harness::{DIR, Generator, Mix, Store, effort, over_seeds, stopped_clock};
use crate::model::{Op, State};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use terrace::vfs::SimVfs;
use terrace::{Db, Error, HotTableMode, SyncMode, UpdateOptions};
use terrace_base::rng::Rng;

const SYNCED: UpdateOptions = UpdateOptions { synced_only: true };

/// One family: with several, or with separated values, a flush syncs the log anyway.
#[test]
fn what_was_given_as_synced_survives_and_the_feed_goes_on_behind_it() {
    let mix = Mix { ttl: false, value_bytes: 200, ..Mix::default() };
    over_seeds("change_feed::crash", effort(60), |seed, _| {
        let clock = stopped_clock();
        let mut sim = SimVfs::new(seed);
        let mut generator = Generator::new(seed, mix, &clock);
        let mut options = options(&sim);
        options.advanced.log_retention_bytes = 1 << 30;
        let separates = generator.rng.one_in(3);
        options.default_family.value_separation_threshold =
            if separates { 100 } else { usize::MAX };
        if generator.rng.one_in(3) {
            options.advanced.hot_table = HotTableMode::Auto;
        }
        let mut source = Store::of(Db::open(DIR, options.clone()).unwrap());
        let (mut replica, mut next) = (State::default(), 1);
        for round in 0..6 {
            let mut feed = source.db.updates_with(next, &SYNCED).unwrap();
            for _ in 0..60 {
                let sync = generator.rng.one_in(20).then_some(SyncMode::Batch);
                let batch = vec![loop {
                    match generator.batch().swap_remove(0) {
                        Op::Put { key, value, .. } => {
                            break Op::Put { family: 0, key, value, expiry_ms: None };
                        }
                        Op::Delete { key, .. } => break Op::Delete { family: 0, key },
                        _ => {}
                    }
                }];
                source.write(&batch, sync, clock.now_ms()).unwrap();
                if generator.rng.one_in(30) {
                    source.db.flush().unwrap();
                }
                if generator.rng.one_in(4)
                    && let Some(batch) = feed.next()
                {
                    let batch = batch.unwrap();
                    assert!(
                        batch.first_seqno() >= next,
                        "numbers may be lost, and never come twice"
                    );
                    next = batch.last_seqno() + 1;
                    replica.apply(&model_batch(&batch));
                }
            }
            sim = sim.crash_image(seed * 100 + round);
            options.advanced.vfs = Arc::new(sim.clone());
            drop(feed);
            source = Store::of(Db::open(DIR, options.clone()).unwrap());
            // What was lost was not synced, and is in no file.
            let mut caught_up = replica.clone();
            for batch in source.db.updates_since(next).unwrap() {
                caught_up.apply(&model_batch(&batch.unwrap()));
            }
            let seen = source.contents().unwrap();
            assert!(caught_up.contents(clock.now_ms())[0] == seen[0], "round {round}");
        }
        1
    });
}

#[test]
fn a_synced_feed_waits_for_the_sync() {
    let sim = SimVfs::new(1);
    let db = Db::open(DIR, options(&sim)).unwrap();
    let mut synced = db.updates_with(1, &SYNCED).unwrap();
    let mut all = db.updates_since(1).unwrap();
    db.put("a", "1").unwrap();
    assert!(synced.next().is_none());
    assert_eq!(keys(&mut all), ["a"]);
    db.sync().unwrap();
    assert_eq!(keys(&mut synced), ["a"]);
    let durable = terrace::WriteOptions { sync: Some(SyncMode::Batch) };
    let mut batch = terrace::WriteBatch::new();
    batch.put("b", "2");
    db.write_with(batch, &durable).unwrap();
    assert_eq!(keys(&mut synced), ["b"], "it is durable when the write returns");
    let reader = Db::open_read_only(DIR, options(&sim)).unwrap();
    assert!(matches!(reader.updates_with(1, &SYNCED), Err(Error::InvalidArgument(_))));
}

/// A manifest that is durable says how far the numbers went; the log that is durable ends before. The numbers of
/// lost writes are not given out again, and a feed passes over them.
#[test]
fn numbers_that_a_crash_has_lost_are_passed_over() {
    let sim = SimVfs::new(1);
    let mut options = options(&sim);
    options.advanced.log_retention_bytes = 1 << 30;
    let db = Db::open(DIR, options.clone()).unwrap();
    for round in ["1", "2"] {
        db.put("kept", round).unwrap();
        db.flush().unwrap();
    }
    let other = db.clone();
    at_step("compaction:written", move || {
        (0..50).for_each(|n| other.put(format!("lost {n:02}"), [1; 100]).unwrap());
    });
    db.compact_range::<&[u8]>(..).unwrap();
    assert_eq!(db.latest_seqno(), 52);
    let mut has_passed_over = false;
    for seed in 0..20 {
        let image = sim.crash_image(seed);
        options.advanced.vfs = Arc::new(image.clone());
        let db = Db::open(DIR, options.clone()).unwrap();
        db.put("after", "3").unwrap();
        assert!(db.latest_seqno() > 52, "numbers are given out once");
        let batches = rest(&mut db.updates_since(1).unwrap());
        let numbers: Vec<u64> = batches.iter().map(|batch| batch.first_seqno()).collect();
        has_passed_over |= numbers.windows(2).any(|pair| pair[1] > pair[0] + 1);
        assert_eq!(numbers.last(), Some(&db.latest_seqno()));
        let given: BTreeSet<String> = keys(&mut db.updates_since(1).unwrap()).into_iter().collect();
        assert_eq!(given.len(), db.iter().unwrap().entries().count(), "given is what is there");
        // Also from a number that nobody has.
        assert_eq!(
            keys(&mut db.updates_since(52.max(db.latest_seqno() - 1)).unwrap()).last().unwrap(),
            "after"
        );
    }
    assert!(has_passed_over, "no image has lost a write");
}

/// Without the promise that flushes sync the log first, what is in files may be missing in it: a feed must not
/// pass over that.
#[test]
fn a_log_that_lacks_what_files_have_is_not_gone_on_with() {
    let sim = SimVfs::new(1);
    let mut options = options(&sim);
    options.default_family.value_separation_threshold = usize::MAX;
    let db = Db::open(DIR, options.clone()).unwrap();
    db.put("a", "1").unwrap();
    let (other, disk, images) = (db.clone(), sim.clone(), Arc::new(Mutex::new(Vec::new())));
    let taken = images.clone();
    // The log before is synced then, and no segment goes before the checkpoint ends.
    at_step("checkpoint:frozen", move || {
        other.put("b", [2; 3000]).unwrap();
        other.flush().unwrap();
        other.put("c", "3").unwrap();
        taken.lock().unwrap().extend((0..40).map(|seed| disk.crash_image(seed)));
    });
    db.checkpoint("/checkpoint").unwrap();
    options.advanced.log_retention_bytes = 1 << 30;
    let mut begins_anew = 0;
    for image in images.lock().unwrap().drain(..) {
        options.advanced.vfs = Arc::new(image);
        let db = Db::open(DIR, options.clone()).unwrap();
        let seen: Vec<String> = db
            .iter()
            .unwrap()
            .entries()
            .map(|entry| String::from_utf8(entry.unwrap().0.to_vec()).unwrap())
            .collect();
        assert!(seen.len() >= 2, "what was flushed is durable: {seen:?}");
        match db.updates_since(1) {
            Ok(mut feed) => assert_eq!(keys(&mut feed), seen, "nothing is passed over"),
            Err(Error::UpdatesGone { oldest, .. }) => {
                begins_anew += 1;
                assert_eq!(oldest, db.latest_seqno() + 1);
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(begins_anew > 0, "no image has lost a record that was flushed");
}

/// A segment without records, as a checkpoint leaves it, is a link between what a feed is to find and the end of the
/// log.
#[test]
fn what_is_kept_survives_a_power_cut_also_before_a_segment_without_records() {
    for seed in 0..20 {
        let sim = SimVfs::new(seed);
        let mut options = options(&sim);
        options.sync = SyncMode::Batch;
        options.advanced.log_retention_bytes = 1 << 30;
        let db = Db::open(DIR, options.clone()).unwrap();
        db.put("a", "1").unwrap();
        db.flush().unwrap();
        db.checkpoint("/checkpoint").unwrap();
        // Takes what is flushed out of force.
        db.collect_garbage(1.0).unwrap();
        db.put("b", "2").unwrap();
        let cut = sim.crash_image(seed);
        drop(db);
        options.advanced.vfs = Arc::new(cut);
        let db = Db::open(DIR, options).unwrap();
        assert_eq!(keys(&mut db.updates_since(1).unwrap()), ["a", "b"], "seed {seed}");
    }
}

/// Segments that only an open feed kept are found by the next open, which keeps more of the log.
#[test]
fn what_an_open_feed_has_kept_is_whole_after_a_power_cut() {
    let mut whole = 0;
    for seed in 0..40 {
        let sim = SimVfs::new(seed);
        let mut options = options(&sim);
        options.sync = SyncMode::None;
        options.default_family.value_separation_threshold = usize::MAX;
        let db = Db::open(DIR, options.clone()).unwrap();
        let feed = db.updates_since(1).unwrap();
        for n in 0..60 {
            db.put(format!("{n:06}"), [7; 300]).unwrap();
            if n % 20 == 19 {
                db.flush().unwrap();
                // Takes what is flushed out of force.
                db.collect_garbage(1.0).unwrap();
            }
        }
        options.advanced.log_retention_bytes = 1 << 30;
        options.advanced.vfs = Arc::new(sim.crash_image(seed));
        drop((feed, db));
        let db = Db::open(DIR, options).unwrap();
        match db.updates_since(1) {
            Ok(mut feed) => {
                let want: Vec<String> = (0..60).map(|n| format!("{n:06}")).collect();
                assert_eq!(keys(&mut feed), want, "seed {seed}");
                whole += 1;
            }
            Err(Error::UpdatesGone { .. }) => {}
            Err(other) => panic!("seed {seed}: {other}"),
        }
    }
    assert!(whole > 0);
}
