//! Moves step by step, and how they are batched. What they promise when messages are lost and nodes
//! crash is shown by the models in `tests/it`.

use super::*;
use crate::exceptions::{Exception, ExceptionList, Misplaced};
use crate::id::{Epoch, ShardId};
use crate::key::{DbKey, MoveId};
use std::time::Duration;

const OTHER: ShardId = ShardId(2);

fn id(number: u64) -> MoveId {
    MoveId { epoch: Epoch(5), number }
}

fn key(name: &str) -> DbKey {
    DbKey::new(0, name)
}

/// A move, with the ticket of its last message.
struct Walk {
    it: KeyMove<u32>,
    ticket: u32,
}

impl Walk {
    fn begin(direction: Direction, keys: &[&str]) -> (Self, String) {
        let keys = keys.iter().map(|name| key(name)).collect();
        let (it, effects) = KeyMove::begin(id(1), direction, OTHER, keys);
        let mut walk = Self { it, ticket: 0 };
        let shown = walk.show(effects);
        (walk, shown)
    }

    fn show(&mut self, effects: Vec<Effect<u32>>) -> String {
        let shown = effects.into_iter().map(|effect| match effect {
            Effect::Send { to, call, ticket, attempt } => {
                self.ticket = ticket;
                let again = if attempt > 0 { " again" } else { "" };
                format!("{to:?} {call:?}{again}")
            }
            other => format!("{other:?}"),
        });
        shown.collect::<Vec<_>>().join(" | ")
    }

    fn on(&mut self, event: MoveEvent<u32>) -> String {
        let effects = self.it.on(event);
        self.show(effects)
    }

    fn answer(&mut self, answer: MoveAnswer<u32>) -> String {
        self.on(MoveEvent::Answered(self.ticket, answer))
    }

    fn done(&mut self) -> String {
        self.answer(MoveAnswer::Done)
    }

    fn exporting(direction: Direction) -> Self {
        let (mut walk, _) = Self::begin(direction, &["x", "y"]);
        walk.answer(MoveAnswer::Begun(vec![Ok(()), Ok(())]));
        walk.on(MoveEvent::Drained);
        walk
    }
}

#[test]
fn a_move_out_goes_step_by_step() {
    let (mut walk, effects) = Walk::begin(Direction::Out, &["x", "y", "z"]);
    assert_eq!(effects, "Home Begin");
    let begun = vec![Ok(()), Err(Refusal::TooLarge), Ok(())];
    assert_eq!(walk.answer(MoveAnswer::Begun(begun)), "Hold");
    assert_eq!(walk.it.keys(), [key("x"), key("z")]);
    assert_eq!(walk.it.refused(), [(key("y"), Refusal::TooLarge)]);
    assert_eq!(walk.on(MoveEvent::Drained), "Home Export");
    assert_eq!(walk.answer(MoveAnswer::Exported(vec![7, 8])), "Other Import([7, 8])");
    assert_eq!(walk.done(), "Home Commit([])");
    assert_eq!(walk.done(), "SetExceptions | ReleaseHold | Other Finish");
    assert_eq!(walk.done(), "Home Forget");
    assert_eq!(walk.done(), "Over(Moved)");
    assert_eq!(walk.done(), "");
}

#[test]
fn a_move_home_goes_step_by_step() {
    let mut walk = Walk::exporting(Direction::Home);
    assert_eq!(walk.answer(MoveAnswer::Exported(vec![7, 8])), "Home Commit([7, 8])");
    assert_eq!(walk.done(), "ClearExceptions | ReleaseHold | DrainCalls");
    assert_eq!(walk.done(), "");
    assert_eq!(walk.on(MoveEvent::Drained), "Other Drop");
    assert_eq!(walk.done(), "Home Forget");
    assert_eq!(walk.done(), "Over(Moved)");
}

#[test]
fn before_the_commit_a_move_is_undone_and_from_then_on_it_is_not() {
    let undone = "Home Undo";
    let mut walk = Walk::exporting(Direction::Out);
    walk.answer(MoveAnswer::Exported(vec![7, 8]));
    assert_eq!(walk.answer(MoveAnswer::Refused(Refusal::TooLarge)), undone);
    assert_eq!(walk.answer(MoveAnswer::Unknown), "Home Undo again");
    assert_eq!(walk.done(), "ReleaseHold | Other Drop");
    assert_eq!(walk.done(), "Home Forget");
    assert_eq!(walk.done(), "Over(Undone(Some(TooLarge)))");

    let mut walk = Walk::exporting(Direction::Home);
    for _ in 0..3 {
        assert_eq!(walk.answer(MoveAnswer::Unknown), "Other Export again");
    }
    assert_eq!(walk.answer(MoveAnswer::Unknown), undone);
    assert_eq!(walk.done(), "Other Release");
    assert_eq!(walk.done(), "ReleaseHold | Home Forget");

    let mut walk = Walk::exporting(Direction::Out);
    walk.answer(MoveAnswer::Exported(vec![7, 8]));
    walk.done();
    walk.on(MoveEvent::Cancel);
    for _ in 0..100 {
        assert_eq!(walk.answer(MoveAnswer::Unknown), "Home Commit([]) again");
    }
    assert_eq!(walk.done(), "SetExceptions | ReleaseHold | Other Finish");
    for _ in 0..100 {
        assert_eq!(walk.answer(MoveAnswer::Unknown), "Other Finish again");
    }
}

#[test]
fn a_begin_without_an_answer_is_undone() {
    let (mut walk, _) = Walk::begin(Direction::Out, &["x"]);
    for _ in 0..3 {
        assert_eq!(walk.answer(MoveAnswer::Unknown), "Home Begin again");
    }
    assert_eq!(walk.answer(MoveAnswer::Unknown), "Home Undo");
}

#[test]
fn a_full_disk_undoes_a_move_at_once() {
    let full = || MoveAnswer::Refused(Refusal::Full);
    let (mut walk, _) = Walk::begin(Direction::Out, &["x"]);
    assert_eq!(walk.answer(full()), "Home Undo");
    assert_eq!(walk.done(), "ReleaseHold | Other Drop");
    assert_eq!(walk.done(), "Home Forget");
    assert_eq!(walk.done(), "Over(Undone(Some(Full)))");
    let mut walk = Walk::exporting(Direction::Home);
    assert_eq!(walk.answer(MoveAnswer::Exported(vec![7, 8])), "Home Commit([7, 8])");
    assert_eq!(walk.answer(full()), "Home Undo");
    assert_eq!(walk.done(), "Other Release");
}

/// A message of which nobody knew what had become has found room, a later one none.
#[test]
fn a_commit_that_comes_before_the_undo_counts() {
    let (full, late) = (Refusal::Full, Refusal::Late);
    let committed = [
        (Direction::Out, "SetExceptions | ReleaseHold | Other Finish"),
        (Direction::Home, "ClearExceptions | ReleaseHold | DrainCalls"),
    ];
    for (direction, expected) in committed {
        let mut walk = Walk::exporting(direction);
        walk.answer(MoveAnswer::Exported(vec![7, 8]));
        if direction == Direction::Out {
            walk.done();
        }
        assert!(walk.answer(MoveAnswer::Unknown).ends_with("again"));
        assert_eq!(walk.answer(MoveAnswer::Refused(full)), "Home Undo");
        assert_eq!(walk.answer(MoveAnswer::Refused(late)), expected);
    }
}

#[test]
fn a_cancelled_move_is_undone_at_its_next_event() {
    let (mut walk, _) = Walk::begin(Direction::Out, &["x"]);
    assert_eq!(walk.on(MoveEvent::Cancel), "");
    assert_eq!(walk.answer(MoveAnswer::Begun(vec![Ok(())])), "Home Undo");
    let mut walk = Walk::exporting(Direction::Out);
    walk.on(MoveEvent::Cancel);
    assert_eq!(walk.answer(MoveAnswer::Exported(vec![7, 8])), "Home Undo");
}

#[test]
fn a_late_answer_is_not_taken_for_that_to_a_later_message() {
    let mut walk = Walk::exporting(Direction::Out);
    walk.answer(MoveAnswer::Exported(vec![7, 8]));
    let first = walk.ticket;
    assert_eq!(walk.answer(MoveAnswer::Unknown), "Other Import([7, 8]) again");
    assert_eq!(walk.done(), "Home Commit([])");
    assert_eq!(walk.on(MoveEvent::Answered(first, MoveAnswer::Done)), "");
    // An answer of another kind or length says nothing.
    let mut walk = Walk::exporting(Direction::Out);
    assert_eq!(walk.answer(MoveAnswer::Exported(vec![7])), "Home Export again");
}

#[test]
fn a_later_owner_ends_it() {
    let mut walk = Walk::exporting(Direction::Out);
    assert_eq!(walk.answer(MoveAnswer::Deposed), "ReleaseHold | Over(Deposed)");
}

#[test]
fn a_new_owner_undoes_open_moves_and_goes_on_with_others() {
    let intent =
        |number, direction, state| Intent { id: id(number), direction, other: OTHER, state };
    let intents = [
        (key("a"), intent(1, Direction::Out, IntentState::Open)),
        (key("b"), intent(2, Direction::Out, IntentState::Committed)),
        (key("c"), intent(1, Direction::Out, IntentState::Open)),
        (key("d"), intent(3, Direction::Home, IntentState::Committed)),
        (key("e"), intent(4, Direction::Home, IntentState::Undone)),
    ];
    let shown: Vec<String> = KeyMove::<u32>::resume(intents)
        .into_iter()
        .map(|(it, effects)| {
            let mut walk = Walk { it, ticket: 0 };
            let shown = walk.show(effects);
            format!("{} {}: {shown}", walk.it.id(), walk.it.keys().len())
        })
        .collect();
    assert_eq!(
        shown,
        [
            "5.1 2: HoldDrained | Home Undo",
            "5.2 1: Other Finish",
            "5.3 1: Other Drop",
            "5.4 1: HoldDrained | Other Release",
        ]
    );
}

/// Home undoes one key after the other where its disk has no room for all together.
#[test]
fn a_new_owner_undoes_a_move_that_was_undone_in_part() {
    let intent = |state| Intent { id: id(1), direction: Direction::Out, other: OTHER, state };
    let intents = [
        (key("a"), intent(IntentState::Undone)),
        (key("b"), intent(IntentState::Open)),
        (key("c"), intent(IntentState::Undone)),
    ];
    let mut mover = mover(MoveLimits::default());
    let resumed = mover.resume(intents);
    let [(of, effects)] = &resumed[..] else { panic!("{resumed:?}") };
    let undo = matches!(
        effects[..],
        [Effect::HoldDrained, Effect::Send { to: Site::Home, call: MoveCall::Undo, .. }]
    );
    assert!(undo && *of == id(1), "{resumed:?}");
    assert_eq!(mover.get(id(1)).unwrap().keys().len(), 3);
    assert!(["a", "b", "c"].iter().all(|name| mover.is_busy(&key(name))));
}

/// Runs every move of a mover to its end, all answers good.
fn run_all(mover: &mut Mover<u32>, now: Duration) -> Vec<(MoveId, Direction, ShardId, usize)> {
    let mut begun = Vec::new();
    while let Some((id, mut effects)) = mover.poll(now) {
        let it = mover.get(id).unwrap();
        let keys = it.keys().len();
        begun.push((id, it.direction(), it.other(), keys));
        while let Some(effect) = effects.pop() {
            let answer = |ticket, answer| MoveEvent::Answered(ticket, answer);
            let event = match effect {
                Effect::Hold | Effect::DrainCalls => MoveEvent::Drained,
                Effect::Send { call: MoveCall::Begin, ticket, .. } => {
                    answer(ticket, MoveAnswer::Begun(vec![Ok(()); keys]))
                }
                Effect::Send { call: MoveCall::Export, ticket, .. } => {
                    answer(ticket, MoveAnswer::Exported(vec![100; keys]))
                }
                Effect::Send { ticket, .. } => answer(ticket, MoveAnswer::Done),
                _ => continue,
            };
            effects.extend(mover.on(id, event));
        }
        assert!(mover.is_idle());
    }
    begun
}

fn misplaced(name: &str, from: Option<u32>, to: Option<u32>) -> Misplaced {
    Misplaced { key: key(name), from: from.map(ShardId), to: to.map(ShardId) }
}

fn mover(limits: MoveLimits) -> Mover<u32> {
    Mover::new(Epoch(5), limits, Duration::ZERO, |value| u64::from(*value))
}

#[test]
fn keys_are_moved_in_batches_of_one_direction_and_instance() {
    let mut mover = mover(MoveLimits { keys_per_move: 2, ..MoveLimits::default() });
    mover.want([
        misplaced("a", None, Some(2)),
        misplaced("b", None, Some(3)),
        misplaced("c", None, Some(2)),
        misplaced("d", Some(2), Some(3)),
        misplaced("e", None, Some(2)),
        misplaced("f", Some(2), None),
    ]);
    assert_eq!(mover.waiting_count(), 6);
    let begun = run_all(&mut mover, Duration::ZERO);
    let out = Direction::Out;
    let expected = [
        (id(1), out, ShardId(2), 2),
        (id(2), out, ShardId(3), 1),
        (id(3), Direction::Home, ShardId(2), 2),
        (id(4), out, ShardId(2), 1),
        // The key that changed its instance, once it was home.
        (id(5), out, ShardId(3), 1),
    ];
    assert_eq!(begun, expected);
    assert!(mover.take_finished().iter().all(|it| it.outcome == Outcome::Moved));
}

#[test]
fn moves_are_no_faster_than_their_limits() {
    let limits = MoveLimits { keys_per_move: 10, keys_per_second: 100, ..MoveLimits::default() };
    let names: Vec<String> = (0..200).map(|at| format!("k{at:03}")).collect();
    let all = || names.iter().map(|name| misplaced(name, None, Some(2)));
    // How many keys are moved in 21 steps of 50 ms.
    let moved = |limits| {
        let mut mover = mover(limits);
        mover.want(all());
        let mut moved = 0;
        for at in 0..=20 {
            let now = Duration::from_millis(50 * at);
            let keys = run_all(&mut mover, now).iter().map(|it| it.3).sum::<usize>();
            assert_eq!(mover.poll(now), None);
            moved += keys;
        }
        moved
    };
    assert!((100..=120).contains(&moved(limits)), "{}", moved(limits));
    // 100 bytes each.
    let limits = MoveLimits { keys_per_second: 100_000, bytes_per_second: 5_000, ..limits };
    assert!((50..=70).contains(&moved(limits)), "{}", moved(limits));
    let mut mover = mover(limits);
    mover.want(all());
    run_all(&mut mover, Duration::ZERO);
    let wait = mover.wait(Duration::ZERO).unwrap();
    assert!(mover.poll(wait - Duration::from_millis(1)).is_none());
    assert!(mover.poll(wait).is_some());
    // The next begins only after home has answered the begin of this one.
    assert_eq!(mover.wait(Duration::from_secs(9)), None);
}

#[test]
fn a_key_is_in_one_move_at_a_time_and_a_recall_comes_first() {
    let mut mover = mover(MoveLimits { keys_per_move: 1, ..MoveLimits::default() });
    mover.want([misplaced("a", None, Some(2)), misplaced("b", None, Some(2))]);
    let (first, effects) = mover.poll(Duration::ZERO).unwrap();
    let Effect::Send { ticket, .. } = effects[0] else { panic!("{effects:?}") };
    mover.on(first, MoveEvent::Answered(ticket, MoveAnswer::Begun(vec![Ok(())])));
    assert!(mover.is_busy(&key("a")));
    mover.want([misplaced("a", None, Some(3)), misplaced("z", Some(3), Some(2))]);
    mover.recall(key("q"), ShardId(4));
    let (second, _) = mover.poll(Duration::ZERO).unwrap();
    assert_eq!(mover.get(second).unwrap().keys().len(), 1);
    assert_ne!(mover.get(second).unwrap().keys(), [key("a")]);
    mover.cancel();
    assert_eq!(mover.waiting_count(), 0);
}

/// Answers the messages of a move with what `answer` gives, until it gives nothing.
fn drive(
    mover: &mut Mover<u32>,
    (id, mut effects): (MoveId, Vec<Effect<u32>>),
    answer: impl Fn(&MoveCall<u32>, &[DbKey]) -> Option<MoveAnswer<u32>>,
) {
    while let Some(effect) = effects.pop() {
        let keys = mover.get(id).map(|it| it.keys().to_vec()).unwrap_or_default();
        let event = match effect {
            Effect::Hold | Effect::DrainCalls => MoveEvent::Drained,
            Effect::Send { call, ticket, .. } => match answer(&call, &keys) {
                Some(answer) => MoveEvent::Answered(ticket, answer),
                None => continue,
            },
            _ => continue,
        };
        effects.extend(mover.on(id, event));
    }
}

fn good_answer(call: &MoveCall<u32>, keys: &[DbKey]) -> MoveAnswer<u32> {
    match call {
        MoveCall::Begin => MoveAnswer::Begun(vec![Ok(()); keys.len()]),
        MoveCall::Export => MoveAnswer::Exported(vec![1; keys.len()]),
        _ => MoveAnswer::Done,
    }
}

#[test]
fn an_instance_that_is_away_stops_only_moves_to_and_from_it() {
    let mut mover = mover(MoveLimits { keys_per_move: 1, moves: 2, ..MoveLimits::default() });
    let away = ["a", "b", "c", "d"].map(|name| misplaced(name, None, Some(2)));
    let there = ["u", "v", "w"].map(|name| misplaced(name, None, Some(3)));
    mover.want(away.into_iter().chain(there));
    mover.recall(key("r"), ShardId(2));
    mover.recall(key("s"), ShardId(3));
    // Shard 2 does not answer: what goes there is undone, and does not end.
    let mut begun = Vec::new();
    while let Some((id, effects)) = mover.poll(Duration::ZERO) {
        let it = mover.get(id).unwrap();
        let (is_away, name) = (it.other() == ShardId(2), it.keys()[0].clone());
        begun.push(name.key[0]);
        drive(&mut mover, (id, effects), |call, keys| match call {
            MoveCall::Import(_) if is_away => Some(MoveAnswer::Unknown),
            MoveCall::Drop if is_away => None,
            _ => Some(good_answer(call, keys)),
        });
    }
    // Recalls come first; two moves to shard 2 are left to settle, with the recall from there.
    assert_eq!(begun, b"rsauvw");
    assert_eq!((mover.moves().count(), mover.waiting_count()), (2, 3));
    assert!(mover.moves().all(|it| it.is_decided() && it.other() == ShardId(2)));
}

#[test]
fn a_key_that_a_command_needs_has_a_place_beside_moves_that_take_long() {
    let mut mover = mover(MoveLimits { keys_per_move: 1, moves: 2, ..MoveLimits::default() });
    mover.want(["a", "b", "c"].map(|name| misplaced(name, None, Some(2))));
    let mut begun = Vec::new();
    for recalled in ["r", "s"] {
        while let Some((id, effects)) = mover.poll(Duration::ZERO) {
            begun.push(mover.get(id).unwrap().keys()[0].key[0]);
            let begins = |call: &MoveCall<u32>, keys: &[DbKey]| {
                matches!(call, MoveCall::Begin).then(|| good_answer(call, keys))
            };
            drive(&mut mover, (id, effects), begins);
        }
        mover.recall(key(recalled), ShardId(3));
    }
    assert_eq!(begun, b"abr", "one place");
    assert_eq!(mover.poll(Duration::ZERO), None);
    assert_eq!((mover.moves().count(), mover.waiting_count()), (3, 2));
}

/// Commands need keys that are at several instances.
#[test]
fn recalls_of_one_instance_do_not_hold_up_those_of_others() {
    let mut mover = mover(MoveLimits { keys_per_move: 2, ..MoveLimits::default() });
    for number in 0..6 {
        mover.recall(key(&format!("a{number}")), ShardId(2));
    }
    mover.recall(key("b"), ShardId(3));
    mover.recall(key("c"), ShardId(4));
    let others: Vec<u32> =
        run_all(&mut mover, Duration::ZERO).iter().map(|(_, _, other, _)| other.0).collect();
    assert_eq!(others, [2, 3, 4, 2, 2]);
}

/// As many commands wait for a key as there are clients that use it.
#[test]
fn a_key_that_many_commands_need_is_recalled_once() {
    let mut mover = mover(MoveLimits { keys_per_move: 1, ..MoveLimits::default() });
    for _ in 0..100 {
        mover.recall(key("a"), ShardId(2));
        mover.recall(key("b"), ShardId(2));
    }
    assert_eq!(mover.waiting_count(), 2);
    assert_eq!(run_all(&mut mover, Duration::ZERO).len(), 2);
    assert_eq!(mover.waiting_count(), 0);
    // It has gone away again.
    mover.recall(key("a"), ShardId(3));
    assert_eq!(run_all(&mut mover, Duration::ZERO).len(), 1);
}

/// A recall whose key is in a move begins none, and what waits behind it obeys the limits.
#[test]
fn recalls_that_begin_no_move_do_not_lift_the_limits_of_others() {
    let limits = MoveLimits { keys_per_move: 10, keys_per_second: 100, ..MoveLimits::default() };
    let mut mover = mover(limits);
    let names: Vec<String> = (0..30).map(|at| format!("k{at:02}")).collect();
    mover.want(names.iter().map(|name| misplaced(name, None, Some(2))));
    let begins = |call: &MoveCall<u32>, keys: &[DbKey]| {
        matches!(call, MoveCall::Begin).then(|| good_answer(call, keys))
    };
    // What may go at once has gone.
    let begun = mover.poll(Duration::ZERO).unwrap();
    drive(&mut mover, begun, begins);
    assert_eq!(mover.poll(Duration::ZERO), None);
    // One command has heard that the key is here, another one that it is there.
    mover.recall(key("r"), ShardId(3));
    mover.recall(key("r"), ShardId(4));
    let begun = mover.poll(Duration::ZERO).unwrap();
    assert_eq!(mover.get(begun.0).unwrap().keys(), [key("r")]);
    drive(&mut mover, begun, begins);
    assert_eq!(mover.wait(Duration::ZERO), Some(Duration::ZERO), "the other recall");
    assert_eq!(mover.poll(Duration::ZERO), None);
    assert!(mover.wait(Duration::ZERO).unwrap() > Duration::ZERO);
    assert_eq!((mover.moves().count(), mover.waiting_count()), (2, 20));
}

#[test]
fn a_key_that_is_too_large_stays_alone() {
    let limits = MoveLimits { keys_per_second: 1 << 20, ..MoveLimits::default() };
    for large in [0, 20, 63] {
        let mut mover = mover(limits);
        let names: Vec<String> = (0..64).map(|at| format!("k{at:02}")).collect();
        let mut left: Vec<&String> = names.iter().collect();
        let (mut refused, mut moves) = (Vec::new(), 0);
        while !left.is_empty() {
            mover.want(left.iter().map(|name| misplaced(name, None, Some(2))));
            while let Some(begun) = mover.poll(Duration::ZERO) {
                moves += 1;
                drive(&mut mover, begun, |call, keys| {
                    let is_large = keys.contains(&key(&names[large]));
                    Some(match call {
                        MoveCall::Export if is_large => MoveAnswer::Refused(Refusal::TooLarge),
                        _ => good_answer(call, keys),
                    })
                });
            }
            for finished in mover.take_finished() {
                if finished.outcome != Outcome::Moved && !finished.is_split {
                    refused.extend(finished.keys.iter().cloned());
                }
                left.retain(|name| finished.is_split || !finished.keys.contains(&key(name)));
            }
        }
        assert_eq!(refused, [key(&names[large])]);
        assert!(moves < 20, "{moves} moves of 64 keys");
    }
}

/// Four keys that are too large together go in pairs, as long as they are wanted.
#[test]
fn what_is_known_of_keys_that_are_not_wanted_any_more_is_forgotten() {
    let names = ["a", "b", "c", "d"];
    let split = || {
        let mut mover = mover(MoveLimits::default());
        mover.want(names.map(|name| misplaced(name, None, Some(2))));
        let begun = mover.poll(Duration::ZERO).unwrap();
        drive(&mut mover, begun, |call, keys| {
            Some(match call {
                MoveCall::Export => MoveAnswer::Refused(Refusal::TooLarge),
                _ => good_answer(call, keys),
            })
        });
        assert!(mover.take_finished()[0].is_split);
        mover
    };
    let next = |mut mover: Mover<u32>| {
        let (id, _) = mover.poll(Duration::ZERO).unwrap();
        mover.get(id).unwrap().keys().len()
    };
    let mut wanted = split();
    (0..3).for_each(|_| wanted.want(names.map(|name| misplaced(name, None, Some(2)))));
    assert_eq!(next(wanted), 2);
    // Commands need them at home, which is said after each plan.
    let mut recalled = split();
    for _ in 0..3 {
        recalled.want([]);
        names.iter().for_each(|name| recalled.recall(key(name), ShardId(2)));
    }
    assert_eq!(next(recalled), 2);
    let mut forgotten = split();
    (0..2).for_each(|_| forgotten.want([]));
    forgotten.want(names.map(|name| misplaced(name, None, Some(2))));
    assert_eq!(next(forgotten), 4);
}

#[test]
fn a_move_that_never_began_leaves_the_copy_of_an_earlier_one() {
    let there = Some(KeyCopy { id: id(1), state: CopyState::Live });
    let home =
        HomeKey { exception: Some(Exception { at: OTHER, move_id: id(1) }), ..HomeKey::default() };
    let (mut walk, _) = Walk::begin(Direction::Out, &["x"]);
    let begun = home.begin(id(1), id(2), Direction::Out, OTHER, Ok(()));
    assert_eq!(begun, Err(Refusal::NotHere));
    for _ in 0..4 {
        walk.answer(MoveAnswer::Unknown);
    }
    assert_eq!(home.undo(id(2)), Ok(home));
    assert_eq!(walk.done(), "ReleaseHold | Other Drop");
    assert_eq!(KeyCopy::drop(there, id(2)), CopyChange::Keep);
    // Those that brought it, or took it home, remove it.
    assert_eq!(KeyCopy::drop(there, id(1)), CopyChange::Remove);
    let left = Some(KeyCopy { id: id(1), state: CopyState::Leaving(id(2)) });
    assert_eq!(KeyCopy::drop(left, id(2)), CopyChange::Remove);
}

#[test]
fn copies_that_no_exception_names_are_stale() {
    let mut mover = mover(MoveLimits::default());
    let mut exceptions = ExceptionList::default();
    exceptions.insert(&key("here"), Exception { at: OTHER, move_id: id(1) });
    exceptions.insert(&key("elsewhere"), Exception { at: ShardId(3), move_id: id(2) });
    mover.want([misplaced("busy", None, Some(2))]);
    mover.poll(Duration::ZERO);
    let copy = |number, state| KeyCopy { id: id(number), state };
    let copies = [
        (key("here"), copy(1, CopyState::Live)),
        (key("elsewhere"), copy(1, CopyState::Live)),
        (key("late"), copy(3, CopyState::Hidden)),
        (key("left"), copy(3, CopyState::Leaving(id(4)))),
        (key("busy"), copy(5, CopyState::Hidden)),
    ];
    let stale =
        mover.stale_copies(&exceptions, OTHER, copies.iter().map(|(key, copy)| (key, *copy)));
    assert_eq!(stale, [(key("elsewhere"), id(1)), (key("late"), id(3)), (key("left"), id(4))]);
}
