//! What is deleted is not stepped over for ever: ends that are cleared become ranges, and ranges are renewed. Counted,
//! not timed.

use super::harness::{
    PLACEMENT, add_sorted_members, locked, roomy_store, small_options, stopped_clock,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use terrace::Compression;
use terrace::vfs::SimVfs;
use terrace_keyspace::{AddRule, CommandBatch, ExpireIf, Keyspace, Mode, Order, Range, ScoreEnd};

/// A queue is emptied from an end, in one batch or in many, and before any compaction.
#[test]
fn pops_do_not_step_over_all_that_was_popped_before() {
    const MEMBERS: usize = 6000;
    let space = roomy_store(Compression::None);
    let mut member = 0;
    for (order, by_range, commits) in [
        (Order::Up, false, false),
        (Order::Down, false, false),
        (Order::Up, false, true),
        (Order::Up, true, true),
        (Order::Down, true, true),
    ] {
        let names = add_sorted_members(&space, MEMBERS);
        let mut passed = 0;
        let mut turn = locked(&space, &[b"z"]);
        for at in 0..MEMBERS {
            let place = if order == Order::Up { at } else { MEMBERS - 1 - at };
            if by_range {
                let end = |score| ScoreEnd { score, excluded: false };
                let range = match order {
                    Order::Up => Range::Scores(end(f64::NEG_INFINITY), end(place as f64)),
                    // As of a board that holds a fixed number.
                    Order::Down => Range::Ranks(place as u64..=place as u64),
                };
                assert_eq!(turn.sorted_set_remove_range(0, b"z", &range).unwrap(), 1);
            } else {
                let popped = turn.sorted_set_pop(0, b"z", order, 1).unwrap();
                assert_eq!(popped, [(names[place].clone().into_bytes(), place as f64)]);
            }
            // What comes in at the end that was cleared is there.
            if at % 1500 == 1499 && order == Order::Up && !by_range {
                let name = format!("new{member}");
                member += 1;
                let pair = [(-1.0, name.as_bytes())].into_iter();
                turn.sorted_set_add(0, b"z", AddRule::default(), pair).unwrap();
                let popped = turn.sorted_set_pop(0, b"z", order, 1).unwrap();
                assert_eq!(popped, [(name.into_bytes(), -1.0)]);
            }
            if commits && at % 10 == 9 {
                passed += turn.deleted_steps();
                turn.commit().unwrap();
                turn = locked(&space, &[b"z"]);
            }
        }
        passed += turn.deleted_steps();
        turn.commit().unwrap();
        assert_eq!(space.command_batch(Mode::Device).key_type(0, b"z").unwrap(), None);
        let most = MEMBERS as u64 * 1100;
        assert!(passed < most, "{passed} graves were passed for {MEMBERS} members, {order:?}");
    }
}

/// A client asks for the first member, and removes it by name.
#[test]
fn a_queue_that_is_polled_is_not_walked_from_its_beginning() {
    const MEMBERS: usize = 6000;
    for order in [Order::Up, Order::Down] {
        let space = roomy_store(Compression::None);
        let names = add_sorted_members(&space, MEMBERS);
        let end = |score| ScoreEnd { score, excluded: false };
        let mut passed = 0;
        for at in 0..MEMBERS {
            let place = if order == Order::Up { at } else { MEMBERS - 1 - at };
            let range = match at % 2 {
                0 => Range::Scores(end(0.0), end(1e9)),
                _ => Range::Ranks(0..=0),
            };
            let mut turn = space.command_batch(Mode::Device);
            turn.next_command();
            let set = turn.sorted_set(0, b"z").unwrap().unwrap();
            let mut first = Vec::new();
            turn.sorted_set_each(0, &set, &range, order, |member, _| {
                first = member.to_vec();
                Ok(false)
            })
            .unwrap();
            passed += turn.deleted_steps();
            assert_eq!(first, names[place].as_bytes());
            let mut turn = locked(&space, &[b"z"]);
            assert_eq!(turn.sorted_set_remove(0, b"z", [&first[..]].into_iter()).unwrap(), 1);
            passed += turn.deleted_steps();
            turn.commit().unwrap();
        }
        let most = MEMBERS as u64 * 1100;
        assert!(passed < most, "{passed} graves were passed for {MEMBERS} members, {order:?}");
    }
}

/// As long as a round takes no more steps at the end than at the beginning, it takes no more for ever.
fn last_quarter_is_as_cheap(steps: &[u64]) {
    last_quarter_costs_at_most(2, steps);
}

/// Less than `times` what the first does.
fn last_quarter_costs_at_most(times: u64, steps: &[u64]) {
    let quarter = steps.len() / 4;
    let (first, last) = (&steps[..quarter], &steps[steps.len() - quarter..]);
    let (first, last) = (first.iter().sum::<u64>(), last.iter().sum::<u64>());
    assert!(last < times * first, "{first} steps in the first quarter, {last} in the last");
}

/// A set `s` of these members.
fn make_set(space: &Arc<Keyspace>, members: &BTreeSet<Vec<u8>>) {
    let mut turn = locked(space, &[b"s"]);
    turn.set_add(0, b"s", members.iter().map(|member| &member[..])).unwrap();
    turn.commit().unwrap();
}

/// The members of the set `s`, each walked to, and how many it says it has.
fn members_of(turn: &mut CommandBatch) -> (BTreeSet<Vec<u8>>, u64) {
    let set = turn.set(0, b"s").unwrap().unwrap();
    let mut members = BTreeSet::new();
    turn.set_each(0, &set, |member| Ok(members.insert(member.to_vec()))).unwrap();
    (members, set.count)
}

/// Members come in and are popped again and again, and before any compaction.
#[test]
fn members_that_are_popped_at_random_are_not_stepped_over_for_ever() {
    const ROUNDS: usize = 12_000;
    let space = roomy_store(Compression::None);
    let mut members = BTreeSet::from([b"first".to_vec()]);
    let mut steps = Vec::new();
    make_set(&space, &members);
    for round in 0..ROUNDS {
        let mut turn = locked(&space, &[b"s"]);
        let member = format!("m{round}").into_bytes();
        turn.set_add(0, b"s", std::iter::once(&member[..])).unwrap();
        members.insert(member);
        let popped = turn.set_pop(0, b"s", 1).unwrap();
        assert!(popped.len() == 1 && members.remove(&popped[0]), "{popped:?}");
        steps.push(turn.deleted_steps());
        turn.commit().unwrap();
    }
    let mut turn = space.command_batch(Mode::Device);
    assert_eq!(members_of(&mut turn), (members, 1));
    let passed: u64 = steps.iter().sum();
    // What is popped is drawn anew in every run: the costs of two quarters differ more than elsewhere.
    last_quarter_costs_at_most(4, &steps);
    assert!(passed < 600 * ROUNDS as u64, "{passed} steps over deleted rows in {ROUNDS} rounds");
}

/// As the last test, several at a time.
#[test]
fn members_that_are_popped_together_are_not_stepped_over_for_ever() {
    const ROUNDS: usize = 6000;
    const STAY: u64 = 3;
    let space = roomy_store(Compression::None);
    let mut members: BTreeSet<_> = (0..STAY).map(|at| format!("f{at}").into_bytes()).collect();
    make_set(&space, &members);
    let mut steps = Vec::new();
    for round in 0..ROUNDS {
        let mut turn = locked(&space, &[b"s"]);
        let added = ["a", "b"].map(|name| format!("{name}{round}").into_bytes());
        turn.set_add(0, b"s", added.iter().map(|member| &member[..])).unwrap();
        members.extend(added);
        let popped = turn.set_pop(0, b"s", 2).unwrap();
        assert_eq!(popped.len(), 2);
        assert!(popped.iter().all(|member| members.remove(member)), "{popped:?}");
        steps.push(turn.deleted_steps());
        turn.commit().unwrap();
    }
    let mut turn = space.command_batch(Mode::Device);
    assert_eq!(members_of(&mut turn), (members, STAY));
    // Seven times as much if each round steps over all that was popped.
    last_quarter_costs_at_most(5, &steps);
}

/// The score of the first one of a board grows and grows, and somebody looks at the board.
#[test]
fn a_board_is_shown_without_all_scores_of_before() {
    const ROUNDS: usize = 12_000;
    for order in [Order::Up, Order::Down] {
        let space = roomy_store(Compression::None);
        numbered(&space, 20);
        let (leader, delta) = if order == Order::Down { ("00019", 1.0) } else { ("00000", -1.0) };
        let wanted: Vec<String> = match order {
            Order::Down => (10..20).rev().map(|at| format!("{at:05}")).collect(),
            Order::Up => (0..10).map(|at| format!("{at:05}")).collect(),
        };
        let mut steps = Vec::new();
        for round in 0..ROUNDS {
            let mut turn = locked(&space, &[b"z"]);
            let rule = AddRule::default();
            turn.sorted_set_increment(0, b"z", rule, delta, leader.as_bytes()).unwrap();
            let mut passed = turn.deleted_steps();
            turn.commit().unwrap();
            if round % 10 == 9 {
                let mut turn = space.command_batch(Mode::Device);
                turn.next_command();
                let set = turn.sorted_set(0, b"z").unwrap().unwrap();
                let mut shown = Vec::new();
                turn.sorted_set_each(0, &set, &Range::Ranks(0..=9), order, |member, _| {
                    shown.push(String::from_utf8_lossy(member).into_owned());
                    Ok(true)
                })
                .unwrap();
                assert_eq!(shown, wanted);
                passed += turn.deleted_steps();
            }
            steps.push(passed);
        }
        last_quarter_is_as_cheap(&steps);
    }
}

/// A client looks at all members of a set, and removes and adds some by name.
#[test]
fn a_set_that_is_polled_is_not_walked_through_all_that_was_in_it() {
    const ROUNDS: usize = 8000;
    let space = roomy_store(Compression::None);
    let mut members: BTreeSet<_> = (0..2).map(|at| format!("stays{at}").into_bytes()).collect();
    make_set(&space, &members);
    let mut steps = Vec::new();
    for round in 0..ROUNDS {
        let member = format!("m{round}").into_bytes();
        let mut turn = locked(&space, &[b"s"]);
        assert_eq!(turn.set_add(0, b"s", [&member[..]].into_iter()).unwrap(), 1);
        members.insert(member.clone());
        let mut passed = turn.deleted_steps();
        turn.commit().unwrap();
        let mut turn = space.command_batch(Mode::Device);
        turn.next_command();
        assert_eq!(members_of(&mut turn).0, members);
        passed += turn.deleted_steps();
        let mut turn = locked(&space, &[b"s"]);
        assert_eq!(turn.set_remove(0, b"s", [&member[..]].into_iter()).unwrap(), 1);
        members.remove(&member);
        passed += turn.deleted_steps();
        turn.commit().unwrap();
        steps.push(passed);
    }
    // As above.
    last_quarter_costs_at_most(5, &steps);
}

/// Members come in within what a range deletion has cleared, and are popped.
#[test]
fn members_that_come_in_among_deleted_ones_are_not_behind_them_for_ever() {
    const ROUNDS: usize = 6000;
    for order in [Order::Up, Order::Down] {
        let space = roomy_store(Compression::None);
        let mut steps = Vec::new();
        for round in 0..ROUNDS {
            let mut turn = locked(&space, &[b"z"]);
            let name = format!("{round:05}");
            // The first stays, so that the set does.
            let score = match (round, order) {
                (0, Order::Up) => 100.0,
                (0, Order::Down) => -100.0,
                _ => (round % 5) as f64,
            };
            let pair = [(score, name.as_bytes())].into_iter();
            turn.sorted_set_add(0, b"z", AddRule::default(), pair).unwrap();
            if round > 0 {
                let popped = turn.sorted_set_pop(0, b"z", order, 1).unwrap();
                assert_eq!(popped, [(name.into_bytes(), score)]);
            }
            steps.push(turn.deleted_steps());
            turn.commit().unwrap();
        }
        last_quarter_is_as_cheap(&steps);
    }
}

/// As the last test, by a client who asks for the first member and removes it by name.
#[test]
fn members_that_are_polled_among_deleted_ones_are_not_behind_them_for_ever() {
    const ROUNDS: usize = 6000;
    for order in [Order::Up, Order::Down] {
        let space = roomy_store(Compression::None);
        let mut steps = Vec::new();
        let stays = if order == Order::Up { 100.0 } else { -100.0 };
        for round in 0..ROUNDS {
            let mut turn = locked(&space, &[b"z"]);
            let name = format!("{round:05}");
            let pairs = [(stays, &b"stays"[..]), ((round % 5) as f64, name.as_bytes())];
            turn.sorted_set_add(0, b"z", AddRule::default(), pairs.into_iter()).unwrap();
            turn.commit().unwrap();
            let mut turn = space.command_batch(Mode::Device);
            turn.next_command();
            let set = turn.sorted_set(0, b"z").unwrap().unwrap();
            let mut first = Vec::new();
            turn.sorted_set_each(0, &set, &Range::Ranks(0..=0), order, |member, _| {
                first = member.to_vec();
                Ok(false)
            })
            .unwrap();
            assert_eq!(first, name.as_bytes());
            let mut passed = turn.deleted_steps();
            let mut turn = locked(&space, &[b"z"]);
            assert_eq!(turn.sorted_set_remove(0, b"z", [&first[..]].into_iter()).unwrap(), 1);
            passed += turn.deleted_steps();
            turn.commit().unwrap();
            steps.push(passed);
        }
        last_quarter_is_as_cheap(&steps);
    }
}

/// A sorted set of numbered members under `z`, lowest first.
fn numbered(space: &Arc<Keyspace>, count: usize) {
    let names: Vec<String> = (0..count).map(|at| format!("{at:05}")).collect();
    let mut turn = locked(space, &[b"z"]);
    let pairs = names.iter().enumerate().map(|(at, name)| (at as f64, name.as_bytes()));
    turn.sorted_set_add(0, b"z", AddRule::default(), pairs).unwrap();
    turn.commit().unwrap();
}

/// The first two members in an order, and the steps over deleted rows.
fn first_two(space: &Arc<Keyspace>, mode: Mode, order: Order) -> (Vec<Vec<u8>>, u64) {
    let mut turn = space.command_batch(mode);
    turn.next_command();
    let set = turn.sorted_set(0, b"z").unwrap().unwrap();
    let mut members = Vec::new();
    turn.sorted_set_each(0, &set, &Range::Ranks(0..=1), order, |member, _| {
        members.push(member.to_vec());
        Ok(members.len() < 2)
    })
    .unwrap();
    (members, turn.deleted_steps())
}

/// One range deletion covers all but the first member and the last.
#[test]
fn what_a_range_deletion_covers_is_not_walked_over() {
    const MEMBERS: usize = 20_000;
    // As an event loop reads a memtable, and as an executor reads files.
    for mode in [Mode::Memory, Mode::Device] {
        let space = roomy_store(Compression::None);
        numbered(&space, MEMBERS);
        if mode == Mode::Device {
            space.db().flush().unwrap();
        }
        let mut turn = locked(&space, &[b"z"]);
        let range = Range::Ranks(1..=MEMBERS as u64 - 2);
        let removed = turn.sorted_set_remove_range(0, b"z", &range).unwrap();
        assert_eq!(removed, MEMBERS as u64 - 2);
        turn.commit().unwrap();
        for _ in 0..2 {
            for order in [Order::Up, Order::Down] {
                let (members, steps) = first_two(&space, mode, order);
                assert_eq!(members.len(), 2);
                assert!(steps < 50, "{steps} steps, {mode:?} {order:?}");
            }
            // What comes in is there, and the rest still passed.
            let mut turn = locked(&space, &[b"z"]);
            let pair = [(9_000.5, &b"new"[..])].into_iter();
            turn.sorted_set_add(0, b"z", AddRule::default(), pair).unwrap();
            turn.commit().unwrap();
            assert_eq!(first_two(&space, mode, Order::Up).0, [&b"00000"[..], b"new"]);
        }
    }
}

/// Each removes more than are deleted one by one.
#[test]
fn large_pops_leave_ranges_that_are_passed_together() {
    const ROUNDS: usize = 40;
    const POPPED: usize = 600;
    for (order, by_range, flushes) in [
        (Order::Up, false, false),
        (Order::Down, false, false),
        (Order::Up, true, false),
        (Order::Up, false, true),
        (Order::Down, false, true),
    ] {
        let space = roomy_store(Compression::None);
        numbered(&space, ROUNDS * POPPED + 10);
        space.db().flush().unwrap();
        for round in 0..ROUNDS {
            let mut turn = locked(&space, &[b"z"]);
            let removed = match by_range {
                true => {
                    let range = Range::Ranks(0..=POPPED as u64 - 1);
                    turn.sorted_set_remove_range(0, b"z", &range).unwrap() as usize
                }
                false => turn.sorted_set_pop(0, b"z", order, POPPED as u64).unwrap().len(),
            };
            assert_eq!(removed, POPPED);
            let steps = turn.deleted_steps();
            turn.commit().unwrap();
            assert!(steps < 50, "{steps} steps in round {round}, {order:?} {by_range} {flushes}");
            if flushes && round % 3 == 2 {
                space.db().flush().unwrap();
            }
        }
        let mut turn = locked(&space, &[b"z"]);
        assert_eq!(turn.sorted_set_pop(0, b"z", order, 100).unwrap().len(), 10);
    }
}

/// In one batch too, whose own ranges it looks at itself.
#[test]
fn large_pops_of_one_batch_are_passed_together() {
    let space = roomy_store(Compression::None);
    numbered(&space, 20 * 600 + 10);
    let mut turn = locked(&space, &[b"z"]);
    for _ in 0..20 {
        assert_eq!(turn.sorted_set_pop(0, b"z", Order::Up, 600).unwrap().len(), 600);
    }
    let steps = turn.deleted_steps();
    assert!(steps < 50, "{steps} steps");
    turn.commit().unwrap();
    let mut turn = locked(&space, &[b"z"]);
    assert_eq!(turn.sorted_set_pop(0, b"z", Order::Up, 100).unwrap().len(), 10);
}

/// More come in above a range that was deleted than it knows by name.
#[test]
fn what_a_range_deletion_covers_is_not_walked_over_from_above_what_came_in() {
    const MEMBERS: u64 = 10_000;
    let space = roomy_store(Compression::None);
    numbered(&space, MEMBERS as usize);
    let mut turn = locked(&space, &[b"z"]);
    let range = Range::Ranks(MEMBERS / 2..=MEMBERS - 1);
    assert_eq!(turn.sorted_set_remove_range(0, b"z", &range).unwrap(), MEMBERS / 2);
    turn.commit().unwrap();
    let mut turn = locked(&space, &[b"z"]);
    let names: Vec<String> = (0..200).map(|at| format!("new{at:03}")).collect();
    let pairs = names.iter().zip(MEMBERS..).map(|(name, at)| (at as f64, name.as_bytes()));
    turn.sorted_set_add(0, b"z", AddRule::default(), pairs).unwrap();
    turn.commit().unwrap();
    let mut turn = space.command_batch(Mode::Device);
    turn.next_command();
    let set = turn.sorted_set(0, b"z").unwrap().unwrap();
    let mut scores = Vec::new();
    turn.sorted_set_each(0, &set, &Range::Ranks(0..=200), Order::Down, |_, score| {
        scores.push(score as u64);
        Ok(true)
    })
    .unwrap();
    let wanted: Vec<u64> = (MEMBERS..MEMBERS + 200).rev().chain([MEMBERS / 2 - 1]).collect();
    assert_eq!(scores, wanted);
    let steps = turn.deleted_steps();
    assert!(steps < 50, "{steps} steps");
}

/// In the batch, which has its lock: a set that expires at this time.
fn add_until(batch: &mut CommandBatch, db: u8, key: &[u8], at_ms: u64) {
    batch.set_add(db, key, [&b"m"[..]].into_iter()).unwrap();
    batch.expire(db, key, at_ms, ExpireIf::default()).unwrap();
}

/// Thousands that expire at one moment, or one after the other, or in one slot of any database, are removed before any
/// compaction. One of them comes when others of its time have been removed: its batch had begun before.
#[test]
fn a_sweep_does_not_step_over_all_that_was_swept_before() {
    const SETS: u64 = 4000;
    for (apart_ms, tag, db) in
        [(0, "", 0), (1, "", 0), (0, "{tag}", 0), (0, "{tag}", 1), (1, "{tag}", 1)]
    {
        let clock = stopped_clock();
        let mut options = small_options(&SimVfs::new(1), &clock);
        options.memory_budget = 64 << 20;
        options.advanced.memtable_bytes = 16 << 20;
        let space = Keyspace::open_without_active_expire("/db", options, Some(PLACEMENT)).unwrap();
        let mut batch = space.command_batch(Mode::Device);
        batch.lock_everything();
        let first_ms = batch.now_ms() + 1;
        for number in 0..SETS {
            let key = format!("{tag}set:{number:05}");
            add_until(&mut batch, db, key.as_bytes(), first_ms + number * apart_ms);
        }
        add_until(&mut batch, 0, format!("{tag}b").as_bytes(), first_ms);
        batch.commit().unwrap();
        let late_key = format!("{tag}a").into_bytes();
        let mut late = space.command_batch(Mode::Device);
        late.lock(db, std::iter::once(&late_key[..])).unwrap();
        add_until(&mut late, db, &late_key, first_ms);
        clock.advance(SETS + 1);
        let (mut passed, mut swept) = (0, 0);
        for steps in 0.. {
            let step = space.expire_due().unwrap();
            (passed, swept) = (passed + step.passed, swept + step.collections);
            if steps == 0 {
                assert!(step.collections > 0);
                late.commit().unwrap();
            } else if step.notes == 0 {
                break;
            }
        }
        assert_eq!(swept, SETS + 2);
        assert!(passed < 8 * SETS, "{passed} entries were passed for {SETS} sets");
        assert_eq!(space.expire_due().unwrap().passed, 0, "nothing is due");
    }
}
