//! What random commands meet too rarely: limits, old cursors, large stores, ends of threads.

use super::harness::{
    LeapingClock, PLACEMENT, roomy_store, small_options, stopped_clock, store, until,
};
use std::sync::Arc;
use terrace::vfs::SimVfs;
use terrace::{ColumnFamily, Compression, ReadOptions};
use terrace_keyspace::{
    CommandBatch, Error, ExpireIf, KeyScan, Keyspace, LongDouble, MAX_KEY_BYTES, MAX_STRING_BYTES,
    Mode, Placement, PutOptions,
};

fn write<T>(
    space: &Arc<Keyspace>,
    key: &[u8],
    run: impl FnOnce(&mut CommandBatch) -> terrace_keyspace::Result<T>,
) -> terrace_keyspace::Result<T> {
    let mut turn = space.command_batch(Mode::Device);
    turn.lock(0, [key].into_iter())?;
    let done = run(&mut turn)?;
    turn.commit()?;
    Ok(done)
}

fn entries(family: &ColumnFamily) -> usize {
    let mut iter = family.iter_with(&ReadOptions::default()).unwrap();
    iter.seek_to_first().unwrap();
    let mut count = 0;
    while iter.valid() {
        count += 1;
        iter.next().unwrap();
    }
    count
}

/// Without what the store says of itself.
fn own_entries(family: &ColumnFamily) -> usize {
    let options = ReadOptions { upper_bound: Some(vec![0xFF]), ..ReadOptions::default() };
    let mut iter = family.iter_with(&options).unwrap();
    iter.seek_to_first().unwrap();
    let mut count = 0;
    while iter.valid() {
        count += 1;
        iter.next().unwrap();
    }
    count
}

#[test]
fn what_is_too_long_is_refused_before_anything_is_written() {
    let (space, _vfs, _clock) = store();
    let max_key_bytes = match PLACEMENT {
        Placement::Range => MAX_KEY_BYTES,
        Placement::Slots => MAX_KEY_BYTES - 2,
    };
    let longest = vec![b'k'; max_key_bytes];
    write(&space, &longest, |turn| turn.put(0, &longest, b"v", &PutOptions::default())).unwrap();
    let too_long = vec![b'k'; max_key_bytes + 1];
    let mut turn = space.command_batch(Mode::Device);
    turn.lock(0, [&too_long[..], b"a"].into_iter()).unwrap();
    assert!(turn.get(0, &too_long).unwrap().is_none());
    let refused = [
        turn.put(0, &too_long, b"v", &PutOptions::default()).err(),
        turn.put_many(0, [(&b"a"[..], &b"v"[..]), (&too_long[..], b"v")].into_iter()).err(),
        turn.append(0, &too_long, b"v").err(),
        turn.add(0, &too_long, 1).err(),
        turn.add_float(0, &too_long, LongDouble::parse(b"1").unwrap()).err(),
        turn.put_range(0, b"a", MAX_STRING_BYTES as u64, b"v").err(),
        turn.put_range(0, b"a", u64::MAX, b"v").err(),
    ];
    for error in refused {
        assert!(matches!(error, Some(Error::TooLong(_))), "{error:?}");
    }
    assert!(turn.is_clean());
}

#[test]
fn numbers_are_added_as_redis_adds_them() {
    let (space, _vfs, _clock) = store();
    let float = |text: &str| LongDouble::parse(text.as_bytes()).unwrap();
    let sum = |before: &str, delta: &str| {
        write(&space, b"n", |turn| {
            turn.put(0, b"n", before.as_bytes(), &PutOptions::default())?;
            turn.add_float(0, b"n", float(delta))
        })
    };
    assert_eq!(sum("10.50", "0.1").unwrap(), "10.6");
    assert_eq!(sum("5.0e3", "2.0e2").unwrap(), "5200");
    assert_eq!(sum("3", "-3").unwrap(), "0");
    assert!(matches!(sum("", "1"), Err(Error::NotAFloat)));
    assert!(matches!(sum("1", "inf"), Err(Error::NotFinite)));
    let add = |before: &[u8], delta| {
        write(&space, b"n", |turn| {
            turn.put(0, b"n", before, &PutOptions::default())?;
            turn.add(0, b"n", delta)
        })
    };
    assert_eq!(add(b"-5", 10).unwrap(), 5);
    assert!(matches!(add(b"9223372036854775807", 1), Err(Error::Overflow)));
    for text in ["", "1.0", " 1", "01", "+1", "9223372036854775808"] {
        assert!(matches!(add(text.as_bytes(), 1), Err(Error::NotAnInteger)), "{text}");
    }
}

#[test]
fn cursors_are_of_one_database_and_old_ones_are_forgotten() {
    let (space, _vfs, _clock) = store();
    let mut turn = space.command_batch(Mode::Device);
    // One slot: in order with every placement.
    let [a, b, c] = [&b"{t}a"[..], b"{t}b", b"{t}c"];
    turn.lock(0, [a, b, c].into_iter()).unwrap();
    for key in [a, b, c] {
        turn.put(0, key, b"", &PutOptions::default()).unwrap();
    }
    let scan = |cursor| KeyScan { cursor, prefix: b"", kind: None, count: 2 };
    let page = turn.scan_keys(0, &scan(0), |_| true).unwrap();
    assert_eq!(page.items, [a, b]);
    assert!(page.cursor != 0);
    let rest = turn.scan_keys(0, &scan(page.cursor), |_| true).unwrap();
    assert_eq!((rest.items, rest.cursor), (vec![c.to_vec()], 0));
    for (db, cursor) in [(1, page.cursor), (0, page.cursor + 1), (0, u64::MAX)] {
        let refused = turn.scan_keys(db, &scan(cursor), |_| true);
        assert!(matches!(refused, Err(Error::UnknownCursor)));
    }
    assert_eq!(turn.scan_keys(0, &scan(page.cursor), |_| true).unwrap().cursor, 0);
}

#[test]
fn many_keys_are_counted_and_any_may_be_drawn() {
    const KEYS: u64 = 10_000;
    let (space, _vfs, _clock) = store();
    let mut turn = space.command_batch(Mode::Device);
    assert_eq!(turn.random_key(0).unwrap(), None);
    turn.lock_everything();
    for number in 0..KEYS {
        let key = format!("{number:08}");
        turn.put(0, key.as_bytes(), b"v", &PutOptions::default()).unwrap();
    }
    turn.commit().unwrap();
    let mut turn = space.command_batch(Mode::Device);
    let count = turn.count_keys(0).unwrap();
    assert_eq!(count, KEYS);
    let counted_beside_others = space.command_batch(Mode::Memory).count_keys(0);
    assert!(matches!(counted_beside_others, Err(Error::Elsewhere(_))), "it takes long");
    let drawn: std::collections::BTreeSet<_> =
        (0..200).map(|_| turn.random_key(0).unwrap().unwrap()).collect();
    // The four last digits are drawn one by one: 200 of 10,000 are seldom the same.
    assert!(drawn.len() > 180, "{drawn:?}");
    let there = turn.exists(0, drawn.iter().map(Vec::as_slice)).unwrap();
    assert_eq!(there as usize, drawn.len());
    assert_eq!(turn.random_key(1).unwrap(), None);
}

/// More than are counted are not walked over again at once.
#[test]
fn keys_are_not_counted_in_vain_again_and_again() {
    const KEYS: u64 = 150_000;
    let space = roomy_store(Compression::None);
    for first in (0..KEYS).step_by(10_000) {
        let mut turn = space.command_batch(Mode::Device);
        turn.lock_everything();
        for number in first..first + 10_000 {
            let key = format!("{number:08}");
            turn.put(0, key.as_bytes(), b"v", &PutOptions::default()).unwrap();
        }
        turn.commit().unwrap();
    }
    keys_are_not_counted_again(&space);
    // Beside another database, with placement `slots` the keys are no range.
    let mut turn = space.command_batch(Mode::Device);
    turn.lock(1, std::iter::once(&b"other"[..])).unwrap();
    turn.put(1, b"other", b"v", &PutOptions::default()).unwrap();
    turn.commit().unwrap();
    keys_are_not_counted_again(&space);
    let mut turn = space.command_batch(Mode::Device);
    turn.lock_everything();
    turn.flush(0).unwrap();
    assert_eq!(turn.count_keys(0).unwrap(), 0, "within the batch");
    turn.commit().unwrap();
    assert_eq!(space.command_batch(Mode::Device).count_keys(0).unwrap(), 0);
}

fn keys_are_not_counted_again(space: &Arc<Keyspace>) {
    let mut turn = space.command_batch(Mode::Device);
    assert!(turn.count_keys(0).unwrap() > 100_000);
    let seeks = space.db().metrics().seeks;
    assert!(turn.count_keys(0).unwrap() > 100_000);
    assert_eq!(space.db().metrics().seeks, seeks, "they are walked over again");
}

#[test]
fn only_who_writes_or_reads_what_was_written_takes_part_in_a_turn() {
    let (space, _vfs, _clock) = store();
    let mut turn = space.command_batch(Mode::Device);
    turn.lock_everything();
    let field = || [(&b"field"[..], &b"v"[..])].into_iter();
    for db in [0, 1] {
        turn.put(db, b"text", b"v", &PutOptions::default()).unwrap();
        turn.hash_set(db, b"hash", field()).unwrap();
    }
    assert!(turn.took_part() && !turn.took_part());
    turn.commit().unwrap();
    let mut turn = space.command_batch(Mode::Memory);
    turn.lock(0, [&b"text"[..], b"hash", b"gone"].into_iter()).unwrap();
    assert!(turn.took_part(), "it may write");
    turn.put(0, b"text", b"w", &PutOptions::default()).unwrap();
    turn.hash_set(0, b"hash", field()).unwrap();
    // Database 1 has nothing of it but what all walks may meet.
    for (db, sees) in [(0, true), (1, false)] {
        turn.next_command();
        turn.get(db, b"text").unwrap();
        assert_eq!(turn.took_part(), sees, "a string of {db}");
        turn.get_many(db, &[b"text", b"absent"]).unwrap();
        assert_eq!(turn.took_part(), sees, "strings of {db}");
        turn.key_type(db, b"hash").unwrap();
        assert_eq!(turn.took_part(), sees, "a type in {db}");
        let hash = turn.hash(db, b"hash").unwrap().unwrap();
        assert_eq!(turn.took_part(), sees, "a hash of {db}");
        turn.hash_field(db, &hash, b"field").unwrap();
        assert_eq!(turn.took_part(), sees, "a field in {db}");
        turn.get(db, b"absent").unwrap();
        assert!(!turn.took_part(), "nothing was written there");
    }
    turn.count_keys(0).unwrap();
    assert!(turn.took_part(), "a walk over what was written");
    turn.commit().unwrap();
    turn.get(0, b"text").unwrap();
    assert!(!turn.took_part(), "it is everybody's");
}

#[test]
fn every_kind_of_key_is_drawn_also_those_that_others_begin_with() {
    let (space, _vfs, _clock) = store();
    let texts: [&[u8]; 4] = [b"", b"a", b"a\xff", b"b"];
    let hashes: [&[u8]; 3] = [b"aa", b"a\0", b"\xff\xff"];
    let mut turn = space.command_batch(Mode::Device);
    turn.lock_everything();
    for key in texts {
        turn.put(0, key, b"v", &PutOptions::default()).unwrap();
    }
    for key in hashes {
        turn.hash_set(0, key, [(&b"field"[..], &b"v"[..])].into_iter()).unwrap();
    }
    turn.commit().unwrap();
    let mut turn = space.command_batch(Mode::Device);
    // The rarest, `a` and what comes right behind it, come once in 700 times.
    let drawn: std::collections::BTreeSet<_> =
        (0..20_000).map(|_| turn.random_key(0).unwrap().unwrap()).collect();
    let all = texts.into_iter().chain(hashes).map(<[u8]>::to_vec).collect();
    assert_eq!(drawn, all);
}

#[test]
fn the_thread_removes_what_expired_and_ends_with_the_keyspace() {
    let (vfs, clock) = (SimVfs::new(1), stopped_clock());
    let space = Keyspace::open_placed("/db", small_options(&vfs, &clock), PLACEMENT).unwrap();
    let fields: Vec<Vec<u8>> = (0..50_u8).map(|field| vec![field]).collect();
    let pairs = || fields.iter().map(|field| (&field[..], &b"v"[..]));
    for key in [&b"short"[..], b"long", b"renewed"] {
        write(&space, key, |turn| {
            turn.hash_set(0, key, pairs())?;
            let until = if key == b"long" { 10_000 } else { 10 };
            turn.expire(0, key, turn.now_ms() + until, ExpireIf::default())
        })
        .unwrap();
    }
    write(&space, b"renewed", |turn| turn.persist(0, b"renewed")).unwrap();
    clock.advance(100);
    // With slots, the note is among the elements.
    until("it is swept", || own_entries(space.elements()) <= 100 + marks(1));
    assert_eq!(
        space
            .command_batch(Mode::Device)
            .exists(0, [&b"short"[..], b"long", b"renewed"].into_iter())
            .unwrap(),
        2
    );
    // Two collections, a note or the mark of a database, the note of ids, and the mark.
    assert_eq!(entries(space.collections()), 5);
    drop(space);
    // The store is closed, when the step ends that the thread may be in: it can be opened.
    until("it can be opened", || {
        let opened = Keyspace::open_placed("/db", small_options(&vfs, &clock), PLACEMENT);
        opened.map(|space| space.close().unwrap()).is_ok()
    });
}

#[test]
fn notes_of_a_flushed_database_are_gone_and_those_of_others_are_not() {
    let (space, _vfs, clock) = store();
    for db in [0, 1] {
        let mut turn = space.command_batch(Mode::Device);
        turn.lock(db, [&b"k"[..]].into_iter()).unwrap();
        turn.hash_set(db, b"k", [(&b"f"[..], &b"v"[..])].into_iter()).unwrap();
        turn.expire(db, b"k", turn.now_ms() + 10, ExpireIf::default()).unwrap();
        turn.commit().unwrap();
    }
    let mut turn = space.command_batch(Mode::Device);
    turn.lock_everything();
    turn.flush(0).unwrap();
    assert_eq!(turn.key_type(0, b"k").unwrap(), None);
    turn.commit().unwrap();
    assert_eq!(entries(space.collections()) + own_entries(space.elements()), 5 + marks(2));
    clock.advance(10);
    let swept = space.expire_due().unwrap();
    assert_eq!((swept.collections, swept.notes), (1, 1));
    assert_eq!(entries(space.collections()) + own_entries(space.elements()), 2 + marks(2));
}

/// Within one batch, beside another database: what is put between the flushes goes, and one with nothing to remove is free.
#[test]
fn a_database_is_flushed_again_and_again() {
    let (space, _vfs, _clock) = store();
    write(&space, b"other", |turn| turn.set_add(0, b"other", [&b"m"[..]].into_iter())).unwrap();
    let names: Vec<Vec<u8>> = (0..100_u8).map(|name| vec![name]).collect();
    let members = || names.iter().map(|name| &name[..]);
    let put = |turn: &mut CommandBatch, few: bool| {
        let members = members().take(if few { 2 } else { names.len() });
        turn.set_add(1, b"set", members).unwrap();
        turn.expire(1, b"set", turn.now_ms() + 10, ExpireIf::default()).unwrap();
        turn.put(1, b"text", b"v", &PutOptions::default()).unwrap();
        assert_eq!(turn.count_keys(1).unwrap(), 2);
    };
    let mut turn = space.command_batch(Mode::Device);
    turn.lock_everything();
    for few in [true, false, true] {
        put(&mut turn, few);
        turn.flush(1).unwrap();
        assert_eq!(turn.count_keys(1).unwrap(), 0);
        let written = turn.written_bytes();
        for _ in 0..100 {
            turn.flush(1).unwrap();
        }
        assert_eq!(turn.written_bytes(), written);
    }
    turn.commit().unwrap();
    let left = [space.collections(), space.elements()].map(own_entries);
    assert_eq!(left, [1, 1], "the other one, its member, and no notes");
    // One that is taken back with what was put after it.
    turn.lock_everything();
    put(&mut turn, false);
    turn.flush(1).unwrap();
    put(&mut turn, false);
    let outcome: Result<(), ()> = turn.attempt(|turn| {
        turn.flush(1).unwrap();
        turn.put(1, b"another", b"v", &PutOptions::default()).unwrap();
        turn.flush(1).unwrap();
        Err(())
    });
    assert!(outcome.is_err());
    assert_eq!(turn.count_keys(1).unwrap(), 2);
    turn.flush_all().unwrap();
    turn.put(1, b"last", b"v", &PutOptions::default()).unwrap();
    turn.flush(0).unwrap();
    assert_eq!((turn.count_keys(0).unwrap(), turn.count_keys(1).unwrap()), (0, 1));
    turn.commit().unwrap();
    assert_eq!(space.command_batch(Mode::Device).count_keys(1).unwrap(), 1);
    assert_eq!(own_entries(space.elements()), 0);
}

/// Else it would keep all that expire later, for ever. It is removed once it can be read.
#[test]
fn a_collection_that_is_damaged_keeps_no_other_from_being_removed_when_it_has_expired() {
    const VALUE: &[u8] = b"of the damaged one";
    let (vfs, clock) = (SimVfs::new(1), stopped_clock());
    let mut options = small_options(&vfs, &clock);
    options.advanced.compact_when_idle = false;
    let pauses = Arc::new(LeapingClock::with_wall(&clock));
    options.advanced.clock = pauses.clone();
    let space = Keyspace::open_without_active_expire("/db", options, Some(PLACEMENT)).unwrap();
    let expiring = |key: &[u8], value: &[u8], in_ms: u64| {
        let written = write(&space, key, |turn| {
            turn.hash_set(0, key, [(&b"f"[..], value)].into_iter())?;
            let at_ms = turn.now_ms() + in_ms;
            turn.expire(0, key, at_ms, ExpireIf::default())
        });
        written.unwrap();
    };
    let fill = |side: char| {
        for n in 0..100 {
            let key = format!("{{t}}{side}{n}");
            let filled = write(&space, key.as_bytes(), |turn| {
                turn.hash_set(0, key.as_bytes(), [(&b"f"[..], &[0; 100][..])].into_iter())
            });
            filled.unwrap();
        }
    };
    // It shares no block with notes: its neighbours are others by their names and by their age.
    fill('c');
    expiring(b"{t}damaged", VALUE, 10);
    fill('e');
    space.db().flush().unwrap();
    let place = vfs.files().into_iter().find_map(|(path, _)| {
        let bytes = vfs.read_file(&path).filter(|_| path.extension() == Some("sst".as_ref()))?;
        let at = bytes.windows(VALUE.len()).position(|part| part == VALUE)?;
        Some((path, at as u64))
    });
    let (path, at) = place.unwrap();
    assert!(vfs.corrupt(&path, at, 0x10));
    expiring(b"other", b"v", 20);
    clock.advance(30);
    let swept = space.expire_due().unwrap();
    assert_eq!((swept.collections, swept.notes, swept.left), (1, 1, 1));
    assert_eq!(space.expire_due().unwrap().notes, 0, "it is no reason to hurry");
    let after_a_pause = || {
        pauses.leap(1_000_000_000);
        let swept = space.expire_due().unwrap();
        (swept.collections, swept.notes, swept.left)
    };
    assert_eq!([after_a_pause(), after_a_pause()], [(0, 0, 1); 2], "it is tried again");
    assert!(vfs.corrupt(&path, at, 0x10), "as it was");
    assert_eq!([after_a_pause(), after_a_pause()], [(1, 1, 0), (0, 0, 0)]);
}

/// As above, of notes: those of each database, with slots of each in a slot, are searched on their own.
#[test]
fn notes_that_are_damaged_keep_no_others_from_being_found() {
    const TAIL: &[u8] = b"whose note is damaged";
    let (vfs, clock) = (SimVfs::new(1), stopped_clock());
    let open = || {
        let mut options = small_options(&vfs, &clock);
        options.memory_budget = 64 << 20;
        options.advanced.memtable_bytes = 16 << 20;
        options.advanced.compact_when_idle = false;
        Keyspace::open_without_active_expire("/db", options, Some(PLACEMENT)).unwrap()
    };
    let space = open();
    let mut turn = space.command_batch(Mode::Device);
    turn.lock_everything();
    let mut expiring = |db: u8, key: &[u8], in_ms: u64| {
        turn.hash_set(db, key, [(&b"f"[..], &b"v"[..])].into_iter()).unwrap();
        turn.expire(db, key, turn.now_ms() + in_ms, ExpireIf::default()).unwrap();
    };
    // Its record and its note share no block with those of the other one.
    for n in 0..200 {
        let side = if n % 2 == 0 { 'c' } else { 'e' };
        expiring(0, format!("{{t}}{side}{n}").as_bytes(), 1_000_000);
        expiring(2, format!("{{t}}{side}{n}").as_bytes(), 1_000_000);
    }
    expiring(0, &[&b"{t}d"[..], TAIL].concat(), 10);
    expiring(1, b"other", 20);
    turn.commit().unwrap();
    assert_eq!(space.expire_due().unwrap().notes, 0, "it knows the parts from here on");
    space.db().flush().unwrap();
    let mut places = 0;
    for (path, _) in vfs.files() {
        if path.extension() != Some("sst".as_ref()) {
            continue;
        }
        let bytes = vfs.read_file(&path).unwrap();
        // The first bytes of a key lie apart from the others.
        let (_, end) = TAIL.split_at(6);
        for (at, _) in bytes.windows(end.len()).enumerate().filter(|(_, part)| *part == end) {
            assert!(vfs.corrupt(&path, at as u64, 0x10));
            places += 1;
        }
    }
    assert!(places >= 2, "a record and a note: {places}");
    clock.advance(30);
    let swept = space.expire_due().unwrap();
    assert_eq!((swept.collections, swept.notes), (1, 1), "the other one");
    for _ in 0..2 {
        assert!(space.expire_due().is_err(), "it is looked for again and again");
    }
    if PLACEMENT != Placement::Slots {
        // An open reads from the damaged block, which has the marks of the store.
        return;
    }
    // When the store is opened, all parts have to be looked for. Some elements are beside the damaged note.
    drop(turn);
    space.close().unwrap();
    drop(space);
    let space = open();
    clock.advance(1_000_000);
    let mut collections = 0;
    while let Ok(swept) = space.expire_due() {
        collections += swept.collections;
        if swept.notes + swept.left == 0 {
            break;
        }
    }
    assert!((150..=200).contains(&collections), "of the other database: {collections}");
}

/// Marks of databases in which something was written.
fn marks(databases: usize) -> usize {
    if PLACEMENT == Placement::Slots { databases } else { 0 }
}

fn hash_in(space: &Arc<Keyspace>, db: u8) {
    let mut turn = space.command_batch(Mode::Device);
    turn.lock(db, [&b"k"[..]].into_iter()).unwrap();
    turn.hash_set(db, b"k", [(&b"f"[..], &b"v"[..])].into_iter()).unwrap();
    turn.commit().unwrap();
}

/// Strings look for a collection only in databases that may hold one. Which do is known after a
/// reopening, after a flush, and after what a turn writes behind its flush.
#[test]
fn a_string_takes_the_place_of_a_collection_wherever_one_is() {
    let (space, vfs, clock) = store();
    let put = |space: &Arc<Keyspace>, db: u8| {
        let mut turn = space.command_batch(Mode::Device);
        turn.lock(db, [&b"k"[..]].into_iter()).unwrap();
        turn.put(db, b"k", b"text", &PutOptions::default()).unwrap();
        turn.commit().unwrap();
        let metas = entries(space.collections());
        let mut turn = space.command_batch(Mode::Device);
        assert_eq!(&*turn.get(db, b"k").unwrap().unwrap(), b"text");
        metas
    };
    [3, 70, 127].iter().for_each(|db| hash_in(&space, *db));
    space.close().unwrap();
    drop(space);
    let space =
        Keyspace::open_without_active_expire("/db", small_options(&vfs, &clock), Some(PLACEMENT))
            .unwrap();
    // Beside the note of reserved ids and the mark.
    assert_eq!(entries(space.collections()), 5 + marks(3));
    assert_eq!(put(&space, 70), 4 + marks(3));
    let mut turn = space.command_batch(Mode::Device);
    turn.lock_everything();
    turn.flush_all().unwrap();
    turn.hash_set(5, b"k", [(&b"f"[..], &b"v"[..])].into_iter()).unwrap();
    turn.commit().unwrap();
    assert_eq!(put(&space, 127), 3 + marks(4));
    assert_eq!(put(&space, 5), 2 + marks(4));
    hash_in(&space, 3);
    assert_eq!(put(&space, 3), 2 + marks(4));
}

/// A command that has pinned its moment sees what was there then, also if the database has been
/// flushed since.
#[test]
fn a_moment_before_a_flush_still_has_its_collections() {
    let (space, _vfs, _clock) = store();
    hash_in(&space, 0);
    let mut reader = space.command_batch(Mode::Device);
    reader.next_command();
    assert_eq!(reader.exists(0, [&b"a"[..], &b"b"[..]].into_iter()).unwrap(), 0);
    let mut turn = space.command_batch(Mode::Device);
    turn.lock_everything();
    turn.flush_all().unwrap();
    turn.commit().unwrap();
    assert_eq!(reader.exists(0, [&b"a"[..], &b"k"[..]].into_iter()).unwrap(), 1);
    reader.next_command();
    assert_eq!(reader.exists(0, [&b"a"[..], &b"k"[..]].into_iter()).unwrap(), 0);
}

/// So a transaction is refused for what it will write, not for how often it does.
#[test]
fn what_is_written_again_and_again_counts_once() {
    const LEN: usize = 1 << 20;
    let (space, _vfs, _clock) = store();
    let mut turn = space.command_batch(Mode::Device);
    turn.lock(0, [&b"k"[..], b"l"].into_iter()).unwrap();
    let done: Result<(), ()> = turn.attempt(|turn| {
        for round in 0..50 {
            turn.put_range(0, b"k", round, &[1; LEN]).unwrap();
        }
        assert!((LEN..3 * LEN).contains(&turn.written_bytes()), "{}", turn.written_bytes());
        for value in 0..50_u8 {
            turn.hash_set(0, b"l", [(&[value][..], &[2; LEN][..])].into_iter()).unwrap();
        }
        assert!(turn.written_bytes() > 50 * LEN);
        Err(())
    });
    assert!(done.is_err());
    assert!(turn.written_bytes() < 1000, "{}", turn.written_bytes());
}
