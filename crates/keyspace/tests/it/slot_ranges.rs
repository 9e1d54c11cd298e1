//! With placement `slots`, everything of a slot is one range of every family.

use crate::slots::harness::{small_options, stopped_clock};
use std::sync::Arc;
use terrace::vfs::SimVfs;
use terrace_base::ManualClock;
use terrace_keyspace::{
    AddRule, End, ExpireIf, KeyRange, Keyspace, Mode, Placement, PutOptions, Result,
};

/// Slots of these tags, as `CLUSTER KEYSLOT` of Redis gives them.
const TAGS: [(&str, u16); 3] = [("foo", 12_182), ("bar", 5_061), ("hello", 866)];

const NAMES: [&str; 5] = ["text", "hash", "set", "zset", "list"];

fn key(tag: &str, name: &str) -> Vec<u8> {
    format!("{name}{{{tag}}}").into_bytes()
}

fn made(clock: &ManualClock) -> Arc<Keyspace> {
    let options = small_options(&SimVfs::new(1), clock);
    let slots = Some(Placement::Slots);
    let space = Keyspace::open_without_active_expire("/db", options, slots).unwrap();
    let mut batch = space.command_batch(Mode::Device);
    batch.lock_everything();
    let mut fill = || -> Result<()> {
        for (tag, _) in TAGS {
            for db in [0, 9] {
                batch.put(db, &key(tag, "text"), b"v", &PutOptions::default())?;
                batch.hash_set(db, &key(tag, "hash"), [(&b"f"[..], &b"v"[..])].into_iter())?;
                batch.set_add(db, &key(tag, "set"), [&b"m"[..], b"n"].into_iter())?;
                let (rule, zset) = (AddRule::default(), key(tag, "zset"));
                batch.sorted_set_increment(db, &zset, rule, 1.0, b"m")?;
                batch.list_push(
                    db,
                    &key(tag, "list"),
                    End::Back,
                    false,
                    [&b"v"[..]].into_iter(),
                )?;
                for name in ["hash", "list"] {
                    let later = batch.now_ms() + 100;
                    batch.expire(db, &key(tag, name), later, ExpireIf::default())?;
                }
            }
        }
        Ok(())
    };
    fill().unwrap();
    batch.commit().unwrap();
    space
}

/// Of the elements, without what the store says of itself.
fn elements_of(space: &Keyspace) -> terrace::Iter {
    let upper_bound = Some(vec![0xFF]);
    let options = terrace::ReadOptions { upper_bound, ..terrace::ReadOptions::default() };
    space.elements().iter_with(&options).unwrap()
}

fn keys(space: &Arc<Keyspace>, db: u8, prefix: &[u8]) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    let range = KeyRange { prefix, ..KeyRange::default() };
    let mut batch = space.command_batch(Mode::Device);
    batch
        .walk_keys(db, range, false, |seen| {
            keys.push(seen.key.to_vec());
            true
        })
        .unwrap();
    keys
}

#[test]
fn the_keys_of_a_slot_are_shown_with_what_the_batch_wrote() {
    let space = made(&stopped_clock());
    for (tag, slot) in TAGS {
        let mut batch = space.command_batch(Mode::Device);
        let shown = |batch: &mut terrace_keyspace::CommandBatch, most: usize| {
            let mut keys = Vec::new();
            batch.next_command();
            let slot = terrace_cluster::Slot::new(slot).unwrap();
            batch
                .walk_slot(9, slot, |seen| {
                    keys.push(seen.key.to_vec());
                    keys.len() < most
                })
                .unwrap();
            keys
        };
        let mut wanted = NAMES.map(|name| key(tag, name)).to_vec();
        wanted.sort();
        assert_eq!(shown(&mut batch, usize::MAX), wanted);
        assert_eq!(shown(&mut batch, 2), wanted[..2]);
        wanted.push(key(tag, "zzz"));
        batch.lock(9, [&wanted[5][..]].into_iter()).unwrap();
        batch.put(9, &wanted[5], b"v", &PutOptions::default()).unwrap();
        assert_eq!(shown(&mut batch, usize::MAX), wanted);
    }
}

/// Removes what is in a slot, and nothing else, by its range alone.
#[test]
fn the_range_of_a_slot_has_all_of_its_keys_and_no_other() {
    let clock = stopped_clock();
    for (gone, slot) in TAGS {
        let space = made(&clock);
        for family in [space.strings(), space.collections(), space.elements()] {
            family.delete_range(slot.to_be_bytes(), (slot + 1).to_be_bytes()).unwrap();
        }
        let mut batch = space.command_batch(Mode::Device);
        for (tag, _) in TAGS {
            for (db, name) in [0, 9].into_iter().flat_map(|db| NAMES.map(|name| (db, name))) {
                let kind = batch.key_type(db, &key(tag, name)).unwrap();
                assert_eq!(kind.is_some(), tag != gone, "{tag} {name}");
            }
        }
        assert_eq!(keys(&space, 0, b"").len(), 2 * NAMES.len());
        // Two hashes and two lists of the others have notes of when they expire, in each database.
        clock.advance(100);
        let mut swept = 0;
        loop {
            let progress = space.expire_due().unwrap();
            swept += progress.collections;
            if progress.notes == 0 {
                break;
            }
        }
        assert_eq!(swept, 8);
        assert_eq!(keys(&space, 0, b"").len(), 2 * (NAMES.len() - 2));
        // What the others have left: two members, and a member and its place, for each.
        let mut iter = elements_of(&space);
        iter.seek_to_first().unwrap();
        let mut elements = 0;
        while iter.valid() {
            assert!(!iter.key().starts_with(&slot.to_be_bytes()));
            elements += 1;
            iter.next().unwrap();
        }
        assert_eq!(elements, 2 * 2 * (2 + 2));
    }
}

/// Many collections in few steps, over several of them, also after the store is opened again.
#[test]
fn what_is_due_is_found_in_every_slot() {
    let (vfs, clock) = (SimVfs::new(1), stopped_clock());
    let open = || {
        let options = small_options(&vfs, &clock);
        Keyspace::open_without_active_expire("/db", options, Some(Placement::Slots)).unwrap()
    };
    let mut space = open();
    let mut left = 300;
    let mut batch = space.command_batch(Mode::Device);
    batch.lock_everything();
    for number in 0..left {
        let key = format!("set:{number}").into_bytes();
        batch.set_add(0, &key, [&b"m"[..]].into_iter()).unwrap();
        let at = batch.now_ms() + 1 + number % 3 * 1_000;
        batch.expire(0, &key, at, ExpireIf::default()).unwrap();
    }
    batch.commit().unwrap();
    drop(batch);
    for reopens in [false, true, false] {
        if reopens {
            space.close().unwrap();
            drop(space);
            space = open();
        }
        clock.advance(10);
        while space.expire_due().unwrap().notes > 0 {}
        left -= 100;
        let mut batch = space.command_batch(Mode::Device);
        assert_eq!(batch.count_keys(0).unwrap(), left);
        let mut iter = elements_of(&space);
        iter.seek_to_first().unwrap();
        let mut entries = 0;
        while iter.valid() {
            entries += 1;
            iter.next().unwrap();
        }
        assert_eq!(entries, 2 * left, "elements and notes");
        drop(iter);
        clock.advance(990);
    }
}
