//! What commands do not do: read values that they do not need, look everything up one by one, walk for long over what
//! is deleted; see also `deleted_rows.rs`. Counted, not timed.

use super::harness::{
    PLACEMENT, add_sorted_members, locked, roomy_store, small_options, stopped_clock, store,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace::vfs::SimVfs;
use terrace::{Clock, Compression};
use terrace_keyspace::{
    AddRule, CommandBatch, End, Error, ExpireIf, KeyRange, KeyScan, Keyspace, Lifetime, MemberEnd,
    Meta, Mode, Order, Placement, PutOptions, Range, Type, Wait, When,
};

const LARGE: usize = 1 << 20;

/// How many values were asked for that do not lie beside their keys.
fn values_read(space: &Arc<Keyspace>) -> u64 {
    let metrics = space.db().metrics();
    metrics.value_reads + metrics.value_cache_hits
}

#[test]
fn what_needs_no_value_reads_none() {
    for compression in [Compression::None, Compression::Lz4] {
        let space = roomy_store(compression);
        let large = vec![7; LARGE];
        let until = PutOptions {
            lifetime: Lifetime::Until(space.now_ms() + 1000),
            ..PutOptions::default()
        };
        let mut turn = locked(&space, &[b"string", b"hash", b"small"]);
        turn.put(0, b"string", &large, &until).unwrap();
        let fields = [b"a", b"b", b"c"].map(|field| (&field[..], &large[..]));
        turn.hash_set(0, b"hash", fields.into_iter()).unwrap();
        turn.hash_set(0, b"small", fields.into_iter()).unwrap();
        turn.commit().unwrap();
        space.db().flush().unwrap();
        assert!(space.db().metrics().values_separated >= 7);
        let before = values_read(&space);
        let mut turn = locked(&space, &[b"string", b"hash", b"small"]);
        assert_eq!(turn.exists(0, [&b"string"[..]].into_iter()).unwrap(), 1);
        assert_eq!(turn.key_type(0, b"string").unwrap(), Some(Type::String));
        assert_eq!(turn.expiry(0, b"string").unwrap(), Some(Some(space.now_ms() + 1000)));
        let absent = PutOptions { when: When::Absent, ..PutOptions::default() };
        assert!(!turn.put(0, b"string", b"", &absent).unwrap().is_set);
        assert!(matches!(turn.set(0, b"string"), Err(Error::WrongType)));
        let hash = turn.hash(0, b"hash").unwrap().unwrap();
        assert!(turn.hash_has(0, &hash, b"a").unwrap());
        assert!(!turn.hash_has(0, &hash, b"x").unwrap());
        assert_eq!(turn.hash_set(0, b"hash", [(&b"a"[..], &b"v"[..])].into_iter()).unwrap(), 0);
        assert!(!turn.hash_set_absent(0, b"hash", b"b", b"v").unwrap());
        assert_eq!(turn.hash_remove(0, b"hash", [&b"b"[..], b"x"].into_iter()).unwrap(), 1);
        assert_eq!(values_read(&space), before, "{compression:?}");
        // The length, too, if it is that of what is stored.
        let is_read = u64::from(compression != Compression::None);
        assert_eq!(turn.string_len(0, b"string").unwrap(), LARGE);
        assert_eq!(turn.hash_field_len(0, &hash, b"c").unwrap(), Some(LARGE));
        assert_eq!(turn.hash_field_len(0, &hash, b"a").unwrap(), Some(1));
        // And what a key takes.
        assert!(turn.usage_bytes(0, b"string").unwrap().is_some_and(|bytes| bytes > LARGE as u64));
        assert_eq!(values_read(&space), before + 3 * is_read, "{compression:?}");
        let before = values_read(&space);
        assert_eq!(turn.delete(0, [&b"string"[..], b"small"].into_iter()).unwrap(), 2);
        assert_eq!(turn.string_len(0, b"string").unwrap(), 0);
        turn.commit().unwrap();
        assert_eq!(values_read(&space), before, "{compression:?}");
    }
}

/// Goes on with every look at it.
struct TickingClock(AtomicU64);

impl Clock for TickingClock {
    fn wall_ms(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }

    fn monotonic_us(&self) -> u64 {
        self.wall_ms() * 1000
    }
}

/// All commands of a transaction happen at one time.
#[test]
fn nothing_expires_within_a_transaction() {
    let vfs = SimVfs::new(1);
    let mut options = small_options(&vfs, &stopped_clock());
    let clock = Arc::new(TickingClock(AtomicU64::new(1_000_000)));
    options.advanced.clock = clock.clone();
    let space = Keyspace::open_without_active_expire("/db", options, Some(PLACEMENT)).unwrap();
    for is_flushed in [false, true] {
        let mut turn = locked(&space, &[b"k", b"l"]);
        let until = Lifetime::Until(turn.now_ms() + 1_000_000);
        let options = PutOptions { lifetime: until, ..PutOptions::default() };
        turn.put(0, b"k", b"v", &options).unwrap();
        turn.put(0, b"l", b"v", &options).unwrap();
        turn.commit().unwrap();
        if is_flushed {
            space.db().flush().unwrap();
        }
        let mut turn = space.command_batch(Mode::Device);
        turn.next_command();
        assert!(turn.get(0, b"k").unwrap().is_some());
        clock.0.fetch_add(2_000_000, Ordering::Relaxed);
        for round in 0..3 {
            assert!(turn.get(0, b"k").unwrap().is_some(), "{round}");
            assert_eq!(turn.exists(0, [&b"l"[..]].into_iter()).unwrap(), 1);
            let many = turn.get_many(0, &[b"k", b"l"]).unwrap();
            assert!(many.iter().all(Option::is_some), "{round}");
            let mut seen = 0;
            turn.walk_keys(0, KeyRange::default(), true, |_| {
                seen += 1;
                true
            })
            .unwrap();
            assert_eq!(seen, 2, "{round}");
        }
        turn.next_command();
        assert!(turn.get(0, b"k").unwrap().is_none());
    }
}

/// A set of these members, to be read.
fn set_of(space: &Arc<Keyspace>, key: &str, members: &BTreeSet<Vec<u8>>) {
    let mut turn = locked(space, &[key.as_bytes()]);
    turn.set_add(0, key.as_bytes(), members.iter().map(|member| &member[..])).unwrap();
    turn.commit().unwrap();
}

#[test]
fn many_small_sets_are_combined_without_a_lookup_for_each_pair() {
    const SETS: usize = 200;
    let (space, _vfs, _clock) = store();
    let member = |number: usize| format!("m{number}").into_bytes();
    let mut model = Vec::new();
    for at in 0..SETS {
        // Each has some of its neighbours', and the first one has many.
        let count = if at == 0 { 300 } else { 5 };
        let members: BTreeSet<_> = (3 * at..3 * at + count).map(member).collect();
        set_of(&space, &format!("s{at}"), &members);
        model.push(members);
    }
    let mut turn = space.command_batch(Mode::Device);
    turn.pin_now();
    for chosen in [(0..SETS).collect::<Vec<_>>(), vec![0, 1, 5], vec![0, 1, 2, 3, 150, 199, 3]] {
        let sets: Vec<Option<Meta>> =
            chosen.iter().map(|at| turn.set(0, format!("s{at}").as_bytes()).unwrap()).collect();
        let before = space.db().metrics().gets;
        let mut union = Vec::new();
        turn.set_union(0, &sets, |member| {
            union.push(member.to_vec());
            Ok(true)
        })
        .unwrap();
        let mut difference = Vec::new();
        turn.set_difference(0, &sets, |member| {
            difference.push(member.to_vec());
            Ok(true)
        })
        .unwrap();
        let lookups = space.db().metrics().gets - before;
        assert!(lookups < 5000, "{lookups} lookups for {} sets", chosen.len());
        let wanted: BTreeSet<_> = chosen.iter().flat_map(|at| model[*at].iter().cloned()).collect();
        assert_eq!(union.len(), wanted.len());
        assert_eq!(union.into_iter().collect::<BTreeSet<_>>(), wanted);
        let mut wanted = model[chosen[0]].clone();
        wanted.retain(|member| !chosen[1..].iter().any(|at| model[*at].contains(member)));
        assert_eq!(difference.len(), wanted.len());
        assert_eq!(difference.into_iter().collect::<BTreeSet<_>>(), wanted);
    }
}

#[test]
fn a_page_of_large_values_ends_early_and_random_fields_are_read_alone() {
    const FIELDS: usize = 20;
    let space = roomy_store(Compression::None);
    let large = vec![7; LARGE];
    for at in 0..FIELDS {
        let mut turn = locked(&space, &[b"hash"]);
        let field = format!("f{at}");
        turn.hash_set(0, b"hash", [(field.as_bytes(), &large[..])].into_iter()).unwrap();
        turn.commit().unwrap();
    }
    space.db().flush().unwrap();
    let mut turn = space.command_batch(Mode::Device);
    let hash = turn.hash(0, b"hash").unwrap().unwrap();
    let (mut cursor, mut shown) = (0, BTreeSet::new());
    loop {
        let page = turn.hash_page(0, &hash, cursor, 1000, usize::MAX).unwrap();
        assert!(page.items.len() <= 5, "{} values", page.items.len());
        shown.extend(page.items.into_iter().map(|(field, _)| field));
        cursor = page.cursor;
        if cursor == 0 {
            break;
        }
    }
    assert_eq!(shown.len(), FIELDS);
    let before = values_read(&space);
    let mut drawn = 0;
    turn.hash_random(0, &hash, 1000, |_, value| {
        assert_eq!(value.len(), LARGE);
        drawn += 1;
        Ok(drawn < 3)
    })
    .unwrap();
    assert_eq!((drawn, values_read(&space) - before), (3, 3));
}

/// Fields are shown without their values, and drawn ones with none but theirs.
#[test]
fn fields_are_walked_by_without_their_values() {
    const FIELDS: u64 = 200;
    let space = roomy_store(Compression::None);
    let names: Vec<String> = (0..FIELDS).map(|at| format!("f{at}")).collect();
    let large = vec![7; 16 << 10];
    let mut turn = locked(&space, &[b"hash"]);
    let pairs = names.iter().map(|name| (name.as_bytes(), &large[..]));
    turn.hash_set(0, b"hash", pairs).unwrap();
    turn.commit().unwrap();
    space.db().flush().unwrap();
    assert!(space.db().metrics().values_separated >= FIELDS);
    let before = values_read(&space);
    let mut turn = space.command_batch(Mode::Device);
    let hash = turn.hash(0, b"hash").unwrap().unwrap();
    let mut shown = BTreeSet::new();
    turn.hash_each_field(0, &hash, |field| Ok(shown.insert(field.to_vec()))).unwrap();
    assert_eq!(shown.len() as u64, FIELDS);
    assert_eq!(values_read(&space), before);
    let mut drawn = 0;
    turn.hash_random(0, &hash, 5, |field, value| {
        assert!(shown.contains(field) && value.len() == large.len());
        drawn += 1;
        Ok(true)
    })
    .unwrap();
    assert_eq!((drawn, values_read(&space) - before), (5, 5));
    let before = values_read(&space);
    let mut draw = |field: &[u8]| {
        drawn += 1;
        Ok(shown.contains(field))
    };
    turn.hash_sample_fields(0, &hash, 10, &mut draw).unwrap();
    turn.hash_sample_fields(0, &hash, FIELDS, &mut draw).unwrap();
    turn.hash_random_fields(0, &hash, 30, &mut draw).unwrap();
    assert_eq!((drawn, values_read(&space) - before), (5 + 10 + FIELDS + 30, 0));
    // Of a few among many, theirs.
    let different = |field: &[u8], value: &[u8]| Ok(shown.remove(field) && value == large);
    turn.hash_sample(0, &hash, 5, different).unwrap();
    assert_eq!((shown.len() as u64, values_read(&space) - before), (FIELDS - 5, 5));
}

/// Whatever is asked for: the members with the highest scores have their places among the lowest, too.
#[test]
fn a_place_in_a_large_sorted_set_is_counted_from_the_nearer_end() {
    const MEMBERS: usize = 10_000;
    let space = roomy_store(Compression::None);
    let names = add_sorted_members(&space, MEMBERS);
    let mut turn = space.command_batch(Mode::Memory);
    let set = turn.sorted_set(0, b"z").unwrap().unwrap();
    let rank = |turn: &CommandBatch, at: usize, order: Order| {
        let found = turn.sorted_set_rank(0, &set, names[at].as_bytes(), order);
        found.unwrap().map(|(rank, _)| rank as usize)
    };
    let last = MEMBERS - 1;
    // Where no more than some thousands are walked by, from where the order begins.
    assert_eq!(rank(&turn, 10, Order::Up), Some(10));
    assert_eq!(rank(&turn, last - 10, Order::Down), Some(10));
    space.db().flush().unwrap();
    space.db().wait_idle().unwrap();
    let blocks_read = || {
        let reads = space.db().metrics().reads;
        reads.data_block_hits + reads.data_block_misses
    };
    let turn = space.command_batch(Mode::Device);
    for (at, order) in [10, last - 10].into_iter().zip([Order::Down, Order::Up]) {
        let before = blocks_read();
        let expected = if order == Order::Up { at } else { last - at };
        assert_eq!(rank(&turn, at, order), Some(expected));
        // All of them lie in many hundreds.
        let blocks = blocks_read() - before;
        assert!(blocks < 100, "{blocks} for member {at}");
    }
}

/// The reservation of ids is a commit of its own, which may wait for a sync.
#[test]
fn ids_are_reserved_by_who_may_wait() {
    let (space, _vfs, _clock) = store();
    let add = |mode: Mode, key: &[u8]| {
        let mut turn = space.command_batch(mode);
        turn.lock(0, std::iter::once(key)).unwrap();
        let added = turn.set_add(0, key, std::iter::once(&b"member"[..]));
        turn.commit().unwrap();
        added
    };
    assert!(matches!(add(Mode::Memory, b"k"), Err(Error::Elsewhere(Wait::Device))));
    assert_eq!(add(Mode::Device, b"k").unwrap(), 1);
    assert_eq!(add(Mode::Memory, b"l").unwrap(), 1);
}

/// What was popped at an end of a list is not walked over by those who look for elements.
#[test]
fn lists_are_searched_from_their_first_element_to_their_last() {
    const COUNT: usize = 4000;
    let space = roomy_store(Compression::None);
    let elements: Vec<_> = (0..COUNT).map(|at| format!("{at}").into_bytes()).collect();
    let mut turn = locked(&space, &[b"l"]);
    turn.list_push(0, b"l", End::Back, false, elements.iter().map(|one| &one[..])).unwrap();
    turn.commit().unwrap();
    for end in [End::Front, End::Back] {
        for _ in 0..COUNT / 2 - 10 {
            let mut turn = locked(&space, &[b"l"]);
            assert_eq!(turn.list_pop(0, b"l", end, 1).unwrap().unwrap().len(), 1);
            turn.commit().unwrap();
        }
    }
    let mut turn = locked(&space, &[b"l"]);
    let list = turn.list(0, b"l").unwrap().unwrap();
    assert_eq!(list.count, 20);
    for from in [End::Front, End::Back] {
        let first = format!("{}", COUNT / 2 - 10);
        let find = |turn: &CommandBatch, value: &[u8]| {
            let mut places = Vec::new();
            turn.list_each_place(0, &list, from, (0, u64::MAX, u64::MAX), value, |place| {
                places.push(place);
                true
            })
            .unwrap();
            places
        };
        assert_eq!(find(&turn, first.as_bytes()), [0]);
        assert_eq!(find(&turn, format!("{}", COUNT / 2 + 9).as_bytes()), [19]);
        assert!(find(&turn, b"0").is_empty() && find(&turn, b"absent").is_empty());
    }
    assert_eq!(turn.list_remove(0, b"l", 0, b"2000").unwrap(), 1);
    assert_eq!(turn.deleted_steps(), 0);
}

/// An event loop leaves walks over many deleted rows to the executor, wherever these are.
#[test]
fn walks_over_many_graves_are_left_to_others() {
    const MEMBERS: usize = 20_000;
    let space = roomy_store(Compression::None);
    let members: BTreeSet<_> = (0..MEMBERS).map(|at| format!("m{at}").into_bytes()).collect();
    set_of(&space, "s", &members);
    let mut turn = locked(&space, &[b"s"]);
    let most = members.iter().skip(1).map(|member| &member[..]);
    assert_eq!(turn.set_remove(0, b"s", most).unwrap(), MEMBERS as u64 - 1);
    turn.commit().unwrap();
    let show = |mode: Mode| {
        let mut turn = space.command_batch(mode);
        turn.next_command();
        let set = turn.set(0, b"s").unwrap().unwrap();
        let mut shown = 0;
        let outcome = turn.set_each(0, &set, |_| {
            shown += 1;
            Ok(true)
        });
        (outcome, shown, turn.deleted_steps())
    };
    let (outcome, shown, passed) = show(Mode::Memory);
    assert!(matches!(outcome, Err(Error::Elsewhere(_))), "{outcome:?}");
    assert!(shown <= 1 && passed <= 5000, "{passed} rows were passed");
    let (outcome, shown, _) = show(Mode::Device);
    outcome.unwrap();
    assert_eq!(shown, 1);
}

/// With slots, what a slot has of other databases, or in front of a prefix, is passed by a search in each of them.
#[test]
fn searches_in_many_slots_are_left_to_others() {
    let space = roomy_store(Compression::None);
    let mut turn = space.command_batch(Mode::Device);
    turn.lock_everything();
    for at in 0..700 {
        let key = format!("{at}");
        turn.put(0, key.as_bytes(), b"v", &PutOptions::default()).unwrap();
    }
    turn.commit().unwrap();
    let scan = |mode: Mode, db: u8, prefix: &[u8]| {
        let mut turn = space.command_batch(mode);
        let scan = KeyScan { cursor: 0, prefix, kind: None, count: 10 };
        turn.scan_keys(db, &scan, |_| true).map(|page| page.items.len())
    };
    let has_slots = PLACEMENT == Placement::Slots;
    for (db, prefix) in [(1, &b""[..]), (0, &b"x"[..])] {
        match scan(Mode::Memory, db, prefix) {
            Err(Error::Elsewhere(Wait::Walk)) => assert!(has_slots),
            outcome => assert_eq!((outcome.unwrap(), has_slots), (0, false)),
        }
        assert_eq!(scan(Mode::Device, db, prefix).unwrap(), 0);
    }
    assert_eq!(scan(Mode::Memory, 0, b"").unwrap(), 10);
}

/// Expired collections are removed some at a time; until then a walk over keys passes them.
#[test]
fn walks_over_many_expired_collections_are_left_to_others() {
    let (vfs, clock) = (SimVfs::new(1), stopped_clock());
    let mut options = small_options(&vfs, &clock);
    options.memory_budget = 64 << 20;
    options.advanced.memtable_bytes = 16 << 20;
    let space = Keyspace::open_without_active_expire("/db", options, Some(PLACEMENT)).unwrap();
    let mut turn = space.command_batch(Mode::Device);
    turn.lock_everything();
    let expires_at_ms = turn.now_ms() + 10;
    for at in 0..5000 {
        let key = format!("{at}");
        turn.set_add(0, key.as_bytes(), std::iter::once(&b"m"[..])).unwrap();
        let condition = ExpireIf::default();
        assert!(turn.expire(0, key.as_bytes(), expires_at_ms, condition).unwrap());
    }
    turn.commit().unwrap();
    let scan = |mode: Mode| {
        let mut turn = space.command_batch(mode);
        let scan = KeyScan { cursor: 0, prefix: b"", kind: None, count: 10 };
        turn.scan_keys(0, &scan, |_| true).map(|page| page.items.len())
    };
    assert_eq!(scan(Mode::Memory).unwrap(), 10);
    clock.advance(20);
    let outcome = scan(Mode::Memory);
    assert!(matches!(outcome, Err(Error::Elsewhere(Wait::Walk))), "{outcome:?}");
    assert_eq!(scan(Mode::Device).unwrap(), 0);
}

/// By name, members of several scores: others lie between those that go.
#[test]
fn a_range_of_names_goes_and_nothing_between_its_members() {
    let space = roomy_store(Compression::None);
    let names: Vec<String> = (0..2000).map(|at| format!("{}{at:05}", ["a", "k"][at % 2])).collect();
    let mut turn = locked(&space, &[b"z"]);
    let pairs = names.iter().enumerate().map(|(at, name)| (at as f64, name.as_bytes()));
    turn.sorted_set_add(0, b"z", AddRule::default(), pairs).unwrap();
    turn.commit().unwrap();
    let mut turn = locked(&space, &[b"z"]);
    let range = Range::Members(MemberEnd::Included(b"k"), MemberEnd::Highest);
    let removed = turn.sorted_set_remove_range(0, b"z", &range).unwrap() as usize;
    assert!(removed > 512, "{removed}");
    turn.commit().unwrap();
    // Which go is said nowhere; that each is there or not is.
    let mut turn = locked(&space, &[b"z"]);
    let left = turn.sorted_set_pop(0, b"z", Order::Up, 600).unwrap();
    assert_eq!(left.len(), 600);
    let rest = turn.sorted_set_pop(0, b"z", Order::Up, 5000).unwrap();
    assert_eq!(left.len() + rest.len(), names.len() - removed);
    let is_ordered = |pair: &[(Vec<u8>, f64)]| pair[0].1 < pair[1].1;
    assert!([left, rest].concat().windows(2).all(is_ordered));
}

/// What is shown of many has its end where the reader has enough.
#[test]
fn who_has_seen_enough_sees_no_more() {
    const COUNT: usize = 4000;
    const ENOUGH: usize = 7;
    let space = roomy_store(Compression::None);
    let names: Vec<Vec<u8>> = (0..COUNT).map(|at| format!("{at}").into_bytes()).collect();
    let members = || names.iter().map(|name| &name[..]);
    let mut turn = locked(&space, &[b"s", b"h", b"z", b"l"]);
    turn.set_add(0, b"s", members()).unwrap();
    turn.hash_set(0, b"h", members().map(|name| (name, name))).unwrap();
    turn.sorted_set_add(0, b"z", AddRule::default(), members().map(|name| (1.0, name))).unwrap();
    let equal = std::iter::repeat_n(&b"e"[..], COUNT);
    turn.list_push(0, b"l", End::Back, false, equal).unwrap();
    turn.commit().unwrap();
    let mut turn = space.command_batch(Mode::Device);
    turn.pin_now();
    let [set, hash] = [turn.set(0, b"s").unwrap().unwrap(), turn.hash(0, b"h").unwrap().unwrap()];
    let sorted_set = turn.sorted_set(0, b"z").unwrap().unwrap();
    let list = turn.list(0, b"l").unwrap().unwrap();
    let mut seen = 0;
    let mut enough = || {
        seen += 1;
        seen % ENOUGH != 0
    };
    // Few of them, which are drawn, and many, which are walked by.
    for count in [1000, COUNT as u64] {
        turn.set_sample(0, &set, count, |_| Ok(enough())).unwrap();
        turn.hash_sample(0, &hash, count, |_, _| Ok(enough())).unwrap();
        turn.sorted_set_sample(0, &sorted_set, count, |_, _| Ok(enough())).unwrap();
    }
    for from in [End::Front, End::Back] {
        let all = (0, u64::MAX, u64::MAX);
        turn.list_each_place(0, &list, from, all, b"e", |_| enough()).unwrap();
    }
    assert_eq!(seen, 8 * ENOUGH);
}

/// A string is written again when it gets another time to live.
#[test]
fn long_strings_are_copied_by_who_may_take_long() {
    let space = roomy_store(Compression::None);
    // Else it would be the device that is waited for.
    space.strings().set_value_separation_threshold(usize::MAX).unwrap();
    let mut turn = locked(&space, &[b"long", b"short"]);
    let until = |ms: u64| Lifetime::Until(space.now_ms() + ms);
    let options = PutOptions { lifetime: until(1000), ..PutOptions::default() };
    turn.put(0, b"long", &vec![b'x'; 2 * LARGE], &options).unwrap();
    turn.put(0, b"short", b"x", &options).unwrap();
    turn.commit().unwrap();
    let (at_ms, always) = (space.now_ms() + 2000, ExpireIf::default());
    for (mode, key, is_refused) in [
        (Mode::Memory, &b"long"[..], true),
        (Mode::Memory, b"short", false),
        (Mode::Device, b"long", false),
    ] {
        let is = |outcome: Result<(), Error>| match outcome {
            Ok(()) => !is_refused,
            Err(Error::Elsewhere(Wait::Walk)) => is_refused,
            Err(error) => panic!("{error}"),
        };
        let mut turn = space.command_batch(mode);
        turn.lock(0, std::iter::once(key)).unwrap();
        assert!(is(turn.expire(0, key, at_ms, always).map(drop)));
        assert!(is(turn.get_and_expire(0, key, until(3000)).map(drop)));
        assert!(is(turn.get_and_expire(0, key, Lifetime::Unlimited).map(drop)));
        turn.abandon();
        turn.lock(0, std::iter::once(key)).unwrap();
        assert!(is(turn.persist(0, key).map(drop)));
        // What copies nothing is done.
        turn.abandon();
        turn.lock(0, std::iter::once(key)).unwrap();
        assert!(turn.get_and_expire(0, key, Lifetime::Kept).unwrap().is_some());
        assert!(turn.expire(0, key, 1, always).unwrap());
    }
}
