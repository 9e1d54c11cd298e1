//! Moves of keys between two stores: whole, once, and over a power cut at every operation of every step.

use super::harness::{PLACEMENT, locked, small_options, stopped_clock, until};
use std::collections::BTreeMap;
use std::sync::Arc;
use terrace::vfs::SimVfs;
use terrace_cluster::{
    CopyState, DbKey, Direction, Epoch, HomeKey, IntentState, KeyCopy, MoveId, Refusal, ShardId,
};
use terrace_keyspace::{
    AddRule, CommandBatch, End, ExpireIf, ExportLimits, ExportedKey, KeyRange, Keyspace, Mode,
    PutOptions, Result,
};

const MAX: usize = 1 << 20;
const HERE: ShardId = ShardId(1);
const THERE: ShardId = ShardId(2);

pub(super) fn id(number: u64) -> MoveId {
    MoveId { epoch: Epoch(7), number }
}

fn open(vfs: &SimVfs) -> Arc<Keyspace> {
    let options = small_options(vfs, &stopped_clock());
    Keyspace::open_without_active_expire("/db", options, Some(PLACEMENT)).unwrap()
}

pub(super) fn keys() -> Vec<DbKey> {
    ["text", "text that expires", "hash", "set", "zset", "list", "nothing"]
        .iter()
        .map(|name| DbKey::new(1, *name))
        .collect()
}

pub(super) fn with_locks(
    space: &Arc<Keyspace>,
    write: impl FnOnce(&mut CommandBatch) -> Result<()>,
) {
    let mut batch = space.command_batch(Mode::Device);
    batch.lock_everything();
    write(&mut batch).unwrap();
    batch.commit().unwrap();
}

/// Something of every type under the keys; large ones, so that they are deleted by ranges.
fn fill(space: &Arc<Keyspace>) {
    with_locks(space, |batch| {
        let many: Vec<Vec<u8>> = (0..60_u8).map(|n| vec![n, 0, n]).collect();
        let options = PutOptions::default();
        batch.put(1, b"text", b"value", &options)?;
        batch.put(1, b"text that expires", b"", &options)?;
        batch.hash_set(1, b"hash", many.iter().map(|field| (&field[..], &b"v"[..])))?;
        batch.set_add(1, b"set", [&b"a"[..], b"b"].into_iter())?;
        for (score, member) in many.iter().enumerate() {
            let rule = AddRule::default();
            batch.sorted_set_increment(1, b"zset", rule, score as f64 - 7.5, member)?;
        }
        for value in &many {
            batch.list_push(1, b"list", End::Front, false, std::iter::once(&value[..]))?;
        }
        let later = batch.now_ms() + 5_000;
        for key in [&b"text that expires"[..], b"hash", b"list"] {
            batch.expire(1, key, later, ExpireIf::default())?;
        }
        batch.put(0, b"other", b"stays", &options)?;
        Ok(())
    });
}

fn export(space: &Arc<Keyspace>, key: &DbKey) -> ExportedKey {
    let mut batch = space.command_batch(Mode::Device);
    batch.export_key(key.db, &key.key, MAX).unwrap().unwrap()
}

/// What is written most, with keys as users know them; elements and marks are not among them.
#[test]
fn the_most_written_keys_are_those_of_users() {
    let (vfs, clock) = (SimVfs::new(1), stopped_clock());
    let mut options = small_options(&vfs, &clock);
    options.advanced.write_tracking.keys = 100;
    let space = Keyspace::open_without_active_expire("/db", options, Some(PLACEMENT)).unwrap();
    for round in 0..30_u32 {
        with_locks(&space, |batch| {
            batch.put(3, b"text", &round.to_le_bytes(), &PutOptions::default())?;
            if round % 3 == 0 {
                let fields: Vec<_> = (0..8_u32).map(|n| (round * 8 + n).to_le_bytes()).collect();
                batch.hash_set(0, b"hash", fields.iter().map(|field| (&field[..], &b"v"[..])))?;
            }
            Ok(())
        });
    }
    space.db().flush().unwrap();
    until("both are counted", || space.top_written(9).keys.len() >= 2);
    let top = space.top_written(9);
    let shown: Vec<_> = top.keys.iter().map(|key| (key.db, &key.key[..], key.count)).collect();
    assert_eq!(shown, [(3, &b"text"[..], 30), (0, b"hash", 10)]);
    assert!((40..50).contains(&top.writes), "{}", top.writes);
}

/// Writes until the disk is full, also when a merge has made room; `number` is that of the next key.
fn fill_disk(space: &Arc<Keyspace>, number: &mut u64) {
    while !space.db().is_disk_full() {
        let key = number.to_be_bytes();
        let mut batch = locked(space, &[&key]);
        batch.put(0, &key, &[b'v'; 300], &PutOptions::default()).unwrap();
        let _full = batch.commit();
        *number += 1;
        assert!(*number < 100_000, "the disk is never full");
    }
}

/// Without a new owner nobody could delete anything of the shard.
#[test]
fn an_epoch_becomes_known_while_the_disk_is_full() {
    let (vfs, space) = with_reserve();
    assert!(space.admit_epoch(HERE, Epoch(1)).unwrap());
    leave_little_room(&vfs);
    let (mut number, mut tries, mut known) = (0_u64, 1, 0);
    while known < 5 {
        fill_disk(&space, &mut number);
        tries += 1;
        assert!(tries < 10_000, "known {known} times");
        match space.admit_epoch(HERE, Epoch(tries)) {
            Ok(is_known) => known += u32::from(is_known && space.db().is_disk_full()),
            // A flush or merge holds what room there is, for a moment.
            Err(_) => std::thread::sleep(std::time::Duration::from_millis(1)),
        }
    }
    assert_eq!(space.fence(HERE), Epoch(tries));
    let image = vfs.crash_image(1);
    image.set_capacity_bytes(None);
    assert_eq!(open(&image).fence(HERE), Epoch(tries));
}

/// Their keys are held until then: those who would make room by deleting these wait. A move of many keys has more bytes than
/// may use the reserve: it is undone, each key by itself.
#[test]
fn moves_that_have_begun_end_while_the_disk_is_full() {
    end_while_the_disk_is_full((10, 1), |number| number % 2 == 0);
    end_while_the_disk_is_full((4, 40), |_| false);
}

fn end_while_the_disk_is_full(
    (moves, keys_per_move): (usize, usize),
    is_committed: impl Fn(u64) -> bool,
) {
    let (vfs, space) = with_reserve();
    let moved = (0..moves * keys_per_move).map(|n| DbKey::new(0, format!("moved {n}")));
    let moved: Vec<DbKey> = moved.collect();
    for (number, keys) in (1..).zip(moved.chunks(keys_per_move)) {
        for key in keys {
            with_locks(&space, |batch| {
                batch.put(0, &key.key, b"v", &PutOptions::default()).map(drop)
            });
        }
        let begun = space.begin_move(HERE, id(number), Direction::Out, THERE, keys).unwrap();
        assert_eq!(begun, vec![Ok(()); keys_per_move]);
        space.export_home(id(number), keys, MAX).unwrap().unwrap();
    }
    leave_little_room(&vfs);
    let (mut written, mut while_full) = (0_u64, 0);
    for (number, keys) in (1..).zip(moved.chunks(keys_per_move)) {
        take_on_a_full_disk(&space, &mut written, || {
            done(match is_committed(number) {
                true => space.commit_move(id(number), keys, &[]),
                false => space.undo_move(HERE, id(number), keys),
            })
        });
        while_full += u32::from(space.db().is_disk_full());
    }
    assert!(while_full > 0, "each of them waited for room");
    let homes: BTreeMap<DbKey, HomeKey> = space.move_state().homes.into_iter().collect();
    let is_open = |key: &DbKey| homes[key].intent.unwrap().state == IntentState::Open;
    assert!(!moved.iter().any(is_open) && homes.values().all(|home| !home.is_held));
    // One that never began does not wait for room either, and does not begin later.
    take_on_a_full_disk(&space, &mut written, || done(space.undo_move(HERE, id(99), &moved[..1])));
    assert_eq!(space.last_move(HERE), id(99));
}

/// Those that were to leave could not be written before.
#[test]
fn copies_stay_while_the_disk_is_full() {
    let (vfs, space) = with_reserve();
    let copies: Vec<DbKey> = (0..60).map(|n| DbKey::new(0, format!("copy {n}"))).collect();
    let values: Vec<_> = copies.iter().map(|key| ExportedKey::nothing(0, &key.key)).collect();
    space.import_keys(id(1), &copies, &values).unwrap().unwrap();
    let (leaving, hidden) = copies.split_at(30);
    space.finish_import(id(1), leaving).unwrap();
    space.export_copies(id(2), leaving, MAX).unwrap().unwrap();
    leave_little_room(&vfs);
    let mut written = 0;
    take_on_a_full_disk(&space, &mut written, || space.release_copies(id(2), leaving));
    take_on_a_full_disk(&space, &mut written, || space.finish_import(id(1), hidden));
    let state = space.move_state();
    assert_eq!(state.copies.len(), 60);
    assert!(state.copies.iter().all(|(_, copy)| copy.state == CopyState::Live));
}

fn with_reserve() -> (SimVfs, Arc<Keyspace>) {
    let vfs = SimVfs::new(1);
    let mut options = small_options(&vfs, &stopped_clock());
    options.advanced.reserve_bytes = 64 << 10;
    let space = Keyspace::open_without_active_expire("/db", options, Some(PLACEMENT)).unwrap();
    (vfs, space)
}

fn leave_little_room(vfs: &SimVfs) {
    let used: u64 = vfs.files().into_iter().map(|(_, bytes)| bytes).sum();
    vfs.set_capacity_bytes(Some(used + (200 << 10)));
}

/// Tries it on a full disk until it is taken: a flush or merge may hold what room there is, for a moment.
fn take_on_a_full_disk(space: &Arc<Keyspace>, written: &mut u64, step: impl Fn() -> Result<()>) {
    for _ in 0..10_000 {
        fill_disk(space, written);
        if step().is_ok() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("it is not taken");
}

/// What of `fill` is exported.
pub(super) fn values() -> Vec<ExportedKey> {
    let source = open(&SimVfs::new(9));
    fill(&source);
    keys().iter().map(|key| export(&source, key)).collect()
}

/// All that a store shows of keys and of moves.
#[derive(Debug, Clone, PartialEq)]
struct Seen {
    values: Vec<ExportedKey>,
    homes: BTreeMap<DbKey, HomeKey>,
    copies: BTreeMap<DbKey, KeyCopy>,
    listed: Vec<(u8, Vec<u8>)>,
    counted: u64,
    last: MoveId,
    fence: Epoch,
    /// Nothing of a collection is left behind.
    elements: usize,
}

fn entries(family: &terrace::ColumnFamily) -> usize {
    let mut iter = family.iter().unwrap();
    iter.seek_to_first().unwrap();
    let mut count = 0;
    // What begins so is what the store says of itself.
    while iter.valid() && !iter.key().starts_with(&[0xFF]) {
        count += 1;
        iter.next().unwrap();
    }
    count
}

fn observe(space: &Arc<Keyspace>) -> Seen {
    let state = space.move_state();
    let mut listed = Vec::new();
    let mut counted = 0;
    for db in [0, 1] {
        let mut batch = space.command_batch(Mode::Device);
        batch
            .walk_keys(db, KeyRange::default(), false, |seen| {
                listed.push((db, seen.key.to_vec()));
                true
            })
            .unwrap();
        counted += batch.count_keys(db).unwrap();
        let there = listed.iter().any(|(of, _)| *of == db);
        assert_eq!(batch.random_key(db).unwrap().is_some(), there);
    }
    listed.sort();
    let not_held = |(key, home): (DbKey, HomeKey)| (key, HomeKey { is_held: false, ..home });
    Seen {
        values: keys().iter().map(|key| export(space, key)).collect(),
        homes: state.homes.into_iter().map(not_held).collect(),
        copies: state.copies.into_iter().collect(),
        listed,
        counted,
        last: space.last_move(HERE),
        fence: space.fence(HERE),
        elements: entries(space.elements()),
    }
}

type Step<'s> = (&'s str, &'s dyn Fn(&Arc<Keyspace>) -> Result<()>);

/// Takes the steps one after the other. Cuts the power at every operation of each: what is found then is
/// the state before the step or the one after it, and if it returned, the one after it. Twice is as once.
fn cut_in_every_step(prepare: impl Fn(&Arc<Keyspace>), steps: &[Step<'_>]) -> Seen {
    let mut base = SimVfs::new(1);
    let space = open(&base);
    prepare(&space);
    space.close().unwrap();
    drop(space);
    let mut cuts = 0;
    for (name, step) in steps {
        let before = observe(&open(&base.kill_image()));
        let whole = base.kill_image();
        let space = open(&whole);
        step(&space).unwrap();
        let after = observe(&space);
        step(&space).unwrap();
        assert_eq!(observe(&space), after, "{name}, twice");
        space.close().unwrap();
        drop(space);
        assert_eq!(observe(&open(&whole.kill_image())), after, "{name}, opened again");
        for op in 0.. {
            assert!(op < 1_000, "{name} does not end");
            let vfs = base.kill_image();
            let space = open(&vfs);
            vfs.crash_after(vfs.op_count() + op);
            let has_returned = step(&space).is_ok();
            for seed in 0..3 {
                let seen = observe(&open(&vfs.crash_image(op * 3 + seed)));
                let is_known = seen == after || (seen == before && !has_returned);
                assert!(is_known, "{name}, cut at {op}, returned: {has_returned}\n{seen:#?}");
            }
            if has_returned {
                cuts += op;
                break;
            }
        }
        base = whole;
    }
    assert!(cuts as usize >= steps.len() / 2, "only {cuts} cuts");
    observe(&open(&base))
}

fn done<T>(answer: Result<std::result::Result<T, Refusal>>) -> Result<()> {
    answer.map(|answer| drop(answer.unwrap()))
}

fn begin(direction: Direction, number: u64) -> impl Fn(&Arc<Keyspace>) -> Result<()> {
    move |space| {
        let begun = space.begin_move(HERE, id(number), direction, THERE, &keys())?;
        assert!(begun.iter().all(|begun| *begun == Ok(())), "{begun:?}");
        Ok(())
    }
}

#[test]
fn a_key_goes_out_of_its_home_whole() {
    let (all, values) = (keys(), values());
    let seen = cut_in_every_step(
        fill,
        &[
            ("epoch", &|space| {
                space.admit_epoch(HERE, Epoch(7)).map(|is_latest| assert!(is_latest))
            }),
            ("begin", &begin(Direction::Out, 1)),
            ("export", &|space| {
                // After the commit a second one is refused; before it, it gives the same.
                let exported = space.export_home(id(1), &all, MAX)?;
                assert_eq!(exported.unwrap(), values);
                Ok(())
            }),
            ("commit", &|space| done(space.commit_move(id(1), &all, &[]))),
            ("forget", &|space| space.forget_move(id(1), &all)),
        ],
    );
    assert_eq!(seen.listed, [(0, b"other".to_vec())]);
    assert_eq!((seen.counted, seen.last, seen.fence), (1, id(1), Epoch(7)));
    assert!(seen.values.iter().all(|value| !value.exists()));
    let is_away = |home: &HomeKey| home.exception.is_some_and(|it| it.at == THERE);
    assert_eq!(seen.homes.values().filter(|home| is_away(home)).count(), all.len());
    assert_eq!(seen.elements, 0);
}

#[test]
fn a_move_that_is_undone_leaves_home_as_it_was() {
    let (all, values) = (keys(), values());
    let seen = cut_in_every_step(
        fill,
        &[
            ("begin", &begin(Direction::Out, 1)),
            ("undo", &|space| done(space.undo_move(HERE, id(1), &all))),
            ("forget", &|space| space.forget_move(id(1), &all)),
        ],
    );
    assert_eq!((seen.values, seen.homes.len(), seen.last), (values, 0, id(1)));
}

#[test]
fn a_key_comes_to_the_other_instance_whole_and_hidden_until_it_is_finished() {
    let (all, values) = (keys(), values());
    // What an earlier move left there is replaced.
    let old = |space: &Arc<Keyspace>| {
        with_locks(space, |batch| {
            batch.set_add(1, b"text", [&b"old"[..]].into_iter())?;
            batch.put(1, b"nothing", b"old", &PutOptions::default()).map(drop)
        });
    };
    let import = |space: &Arc<Keyspace>| done(space.import_keys(id(1), &all, &values));
    let hidden = cut_in_every_step(old, &[("import", &import)]);
    assert_eq!((&hidden.values, hidden.counted, hidden.listed.len()), (&values, 0, 0));
    let finish = |space: &Arc<Keyspace>| space.finish_import(id(1), &all);
    let seen = cut_in_every_step(old, &[("import", &import), ("finish", &finish)]);
    assert_eq!((&seen.values, seen.counted), (&values, all.len() as u64 - 1));
    let drop_it = |space: &Arc<Keyspace>| space.drop_copies(id(1), &all);
    let seen = cut_in_every_step(old, &[("import", &import), ("drop", &drop_it)]);
    assert!(seen.values.iter().all(|value| !value.exists()) && seen.copies.is_empty());
    assert_eq!(seen.elements, 0);
    // The first call finishes.
    let call = |space: &Arc<Keyspace>| all.iter().try_for_each(|key| done(space.call_copy(key)));
    let import_one = |space: &Arc<Keyspace>| done(space.import_keys(id(1), &all[..1], &values));
    let call_one = |space: &Arc<Keyspace>| done(space.call_copy(&all[0]));
    cut_in_every_step(old, &[("import", &import_one), ("call", &call_one)]);
    let space = open(&SimVfs::new(1));
    import(&space).unwrap();
    call(&space).unwrap();
    assert!(observe(&space).copies.values().all(|copy| copy.state == CopyState::Live));
}

#[test]
fn a_key_of_this_instance_is_not_imported_in_the_name_of_another_shard() {
    let (all, values) = (keys(), values());
    let space = open(&SimVfs::new(1));
    fill(&space);
    begin(Direction::Out, 1)(&space).unwrap();
    let import = || space.import_keys(id(2), &all, &values).unwrap();
    assert_eq!(import(), Err(Refusal::Busy), "a move of it is under way");
    space.export_home(id(1), &all, MAX).unwrap().unwrap();
    done(space.commit_move(id(1), &all, &[])).unwrap();
    space.forget_move(id(1), &all).unwrap();
    assert_eq!(import(), Err(Refusal::Busy), "it is away");
    assert!(observe(&space).copies.is_empty());
}

#[test]
fn a_key_comes_home_again() {
    let (all, values) = (keys(), values());
    let import = |space: &Arc<Keyspace>| done(space.import_keys(id(1), &all, &values)).unwrap();
    let export = |space: &Arc<Keyspace>| {
        let exported = space.export_copies(id(2), &all, MAX)?.unwrap();
        assert_eq!(exported, values);
        Ok(())
    };
    let drop_it = |space: &Arc<Keyspace>| space.drop_copies(id(2), &all);
    let seen = cut_in_every_step(import, &[("export", &export), ("drop", &drop_it)]);
    assert!(seen.values.iter().all(|value| !value.exists()) && seen.elements == 0);
    let release = |space: &Arc<Keyspace>| space.release_copies(id(2), &all);
    let seen = cut_in_every_step(import, &[("export", &export), ("release", &release)]);
    assert_eq!((&seen.values, seen.counted), (&values, all.len() as u64 - 1));
    let away = |space: &Arc<Keyspace>| {
        fill(space);
        begin(Direction::Out, 1)(space).unwrap();
        done(space.commit_move(id(1), &all, &[])).unwrap();
        space.forget_move(id(1), &all).unwrap();
    };
    let seen = cut_in_every_step(
        away,
        &[
            ("begin", &begin(Direction::Home, 2)),
            ("commit", &|space| done(space.commit_move(id(2), &all, &values))),
            ("forget", &|space| space.forget_move(id(2), &all)),
        ],
    );
    assert_eq!((&seen.values, seen.homes.len()), (&values, 0));
    assert_eq!(seen.counted, all.len() as u64);
}

#[test]
fn a_flush_at_home_ends_what_is_under_way_and_what_is_away_stays_away() {
    let all = keys();
    for flushes_all in [true, false] {
        let flush = |space: &Arc<Keyspace>| {
            let mut batch = space.command_batch(Mode::Device);
            batch.lock_everything();
            match flushes_all {
                true => batch.flush_all()?,
                false => batch.flush(1)?,
            }
            batch.commit_with(&terrace::WriteOptions { sync: Some(terrace::SyncMode::Batch) })
        };
        let seen = cut_in_every_step(
            |space| {
                fill(space);
                begin(Direction::Out, 1)(space).unwrap();
                done(space.commit_move(id(1), &all[..2], &[])).unwrap();
                space.forget_move(id(1), &all[..1]).unwrap();
            },
            &[("flush", &flush)],
        );
        let is_away = |key| seen.homes.get(key).is_some_and(|home| home.exception.is_some());
        assert!(all.iter().enumerate().all(|(at, key)| is_away(key) == (at < 2)));
        let states: Vec<_> = all.iter().map(|key| seen.homes.get(key)?.intent).collect();
        let state = |at: usize| states[at].map(|intent| intent.state);
        assert_eq!(state(0), None);
        assert_eq!(state(1), Some(IntentState::Committed));
        assert!((2..all.len()).all(|at| state(at) == Some(IntentState::Undone)));
        assert_eq!(seen.counted, if flushes_all { 0 } else { 1 });
    }
}

#[test]
fn a_flush_that_is_taken_back_leaves_the_records() {
    let (space, all) = (open(&SimVfs::new(1)), keys());
    fill(&space);
    begin(Direction::Out, 1)(&space).unwrap();
    let before = observe(&space);
    with_locks(&space, |batch| {
        let failed = batch.attempt(|batch| {
            batch.flush(1)?;
            Err::<(), _>(terrace_keyspace::Error::NoSuchKey)
        });
        assert!(failed.is_err());
        Ok(())
    });
    assert_eq!(observe(&space), before);
    done(space.commit_move(id(1), &all, &[])).unwrap();
}

#[test]
fn late_and_foreign_messages_change_nothing() {
    let (space, all, values) = (open(&SimVfs::new(1)), keys(), values());
    done(space.import_keys(id(3), &all, &values)).unwrap();
    let before = observe(&space);
    assert_eq!(space.import_keys(id(2), &all, &values).unwrap(), Err(Refusal::Late));
    space.drop_copies(id(2), &all).unwrap();
    space.finish_import(id(2), &all).unwrap();
    space.release_copies(id(2), &all).unwrap();
    assert_eq!(space.export_copies(id(2), &all, MAX).unwrap(), Err(Refusal::Late));
    assert_eq!(space.export_home(id(3), &all, MAX).unwrap(), Err(Refusal::Late));
    assert_eq!(space.commit_move(id(3), &all, &values).unwrap(), Err(Refusal::Late));
    assert_eq!(observe(&space), before);
    // Values of other keys, or none.
    let mut turned = values.clone();
    turned.rotate_left(1);
    assert!(space.import_keys(id(4), &all, &turned).is_err());
    assert!(space.import_keys(id(4), &all, &values[..2]).is_err());
    assert_eq!(observe(&space), before);
    // An import of a key that has a later one: none of the message.
    done(space.import_keys(id(9), &all[5..6], &values[5..6])).unwrap();
    let before = observe(&space);
    assert_eq!(space.import_keys(id(5), &all, &values).unwrap(), Err(Refusal::Late));
    assert_eq!(observe(&space), before);
    // Epochs.
    assert!(space.admit_epoch(HERE, Epoch(5)).unwrap());
    assert!(space.admit_epoch(HERE, Epoch(5)).unwrap());
    assert!(!space.admit_epoch(HERE, Epoch(4)).unwrap());
    assert!(space.admit_epoch(THERE, Epoch(4)).unwrap());
}

#[test]
fn what_is_too_large_stays_and_what_is_exported_is_not_written() {
    let (vfs, all) = (SimVfs::new(1), keys());
    let space = open(&vfs);
    fill(&space);
    begin(Direction::Out, 1)(&space).unwrap();
    let batch = space.command_batch(Mode::Device);
    let may_write = |batch: &CommandBatch| batch.check_home(1, b"hash", true);
    assert_eq!(may_write(&batch), Ok(()));
    assert_eq!(space.export_home(id(1), &all, 100).unwrap(), Err(Refusal::TooLarge));
    let sizes = values().iter().map(|value| value.as_bytes().len()).collect::<Vec<_>>();
    let (key_bytes, sum) = (*sizes.iter().max().unwrap(), sizes.iter().sum::<usize>());
    let limits = |move_bytes| ExportLimits { key_bytes, move_bytes };
    let exported = |limits| space.export_home(id(1), &all, limits).unwrap();
    assert_eq!(exported(limits(sum - 1)), Err(Refusal::TooLarge), "together");
    assert_eq!(may_write(&batch), Ok(()), "nothing is held after a refusal");
    assert_eq!(exported(limits(sum)).unwrap(), values());
    assert_eq!(may_write(&batch), Err(Refusal::Held));
    assert_eq!(batch.check_home(1, b"hash", false), Ok(()));
    assert_eq!(batch.check_home(0, b"hash", true), Ok(()));
    drop(batch);
    // An open move that is found is held: nobody knows whether it was exported.
    space.close().unwrap();
    drop(space);
    let space = open(&vfs);
    let batch = space.command_batch(Mode::Device);
    assert_eq!(may_write(&batch), Err(Refusal::Held));
    done(space.undo_move(HERE, id(1), &all)).unwrap();
    assert_eq!(may_write(&batch), Ok(()));
    assert_eq!(batch.check_copy(1, b"hash", false), Err(Refusal::NotHere));
}

#[test]
fn what_expired_on_its_way_is_gone() {
    let (vfs, clock) = (SimVfs::new(1), stopped_clock());
    clock.advance(5_000);
    let options = small_options(&vfs, &clock);
    let space = Keyspace::open_without_active_expire("/db", options, Some(PLACEMENT)).unwrap();
    done(space.import_keys(id(1), &keys(), &values())).unwrap();
    space.finish_import(id(1), &keys()).unwrap();
    let seen = observe(&space);
    let names: Vec<_> = seen.listed.iter().map(|(_, key)| &key[..]).collect();
    assert_eq!(names, [&b"set"[..], b"text", b"zset"]);
    // A copy that expires later is swept as any other collection.
    let space = open(&SimVfs::new(1));
    done(space.import_keys(id(1), &keys(), &values())).unwrap();
    assert_eq!(space.expire_due().unwrap().notes, 0);
}
