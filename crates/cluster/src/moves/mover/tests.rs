//! What waits for its move, and what goes on from home.

use super::*;
use crate::moves::key_move::MoveCall;

const FROM: ShardId = ShardId(2);
const TO: ShardId = ShardId(3);

/// What happens next to a move of one key after these effects, all answers good; `None` when it is over.
fn next_event(effects: &[Effect<u32>]) -> Option<MoveEvent<u32>> {
    effects.iter().find_map(|effect| match effect {
        Effect::Hold | Effect::DrainCalls => Some(MoveEvent::Drained),
        Effect::Send { call, ticket, .. } => {
            let answer = match call {
                MoveCall::Begin => MoveAnswer::Begun(vec![Ok(())]),
                MoveCall::Export => MoveAnswer::Exported(vec![1]),
                _ => MoveAnswer::Done,
            };
            Some(MoveEvent::Answered(*ticket, answer))
        }
        _ => None,
    })
}

/// Else each batch of a plan that sends keys from one instance to another would make its caller look at all of them.
#[test]
fn a_key_goes_on_from_home_although_what_is_wanted_is_looked_at_meanwhile() {
    const STEPS: usize = 7;
    for looked_at in 0..STEPS {
        let key = DbKey::new(0, "k");
        let limits = MoveLimits::default();
        let mut mover = Mover::new(Epoch(5), limits, Duration::ZERO, |_: &u32| 1);
        mover.want([Misplaced { key: key.clone(), from: Some(FROM), to: Some(TO) }]);
        let (id, mut effects) = mover.poll(Duration::ZERO).unwrap();
        let mut step = 0;
        while let Some(event) = next_event(&effects) {
            if step == looked_at {
                mover.want([]);
                mover.send_on(key.clone(), TO);
                mover.send_on(DbKey::new(0, "in no move"), TO);
            }
            step += 1;
            effects = mover.on(id, event);
        }
        assert_eq!(step, STEPS);
        let finished = mover.take_finished();
        assert_eq!(finished[0].onward, BTreeMap::from([(key.clone(), TO)]));
        let leaves = |at, wanted| finished[0].leaves_misplaced(&key, at, wanted);
        assert!(!leaves(None, Some(TO)) && !leaves(None, None));
        assert!(leaves(None, Some(FROM)) && leaves(Some(FROM), None));
        let (id, _) = mover.poll(Duration::ZERO).unwrap();
        let next = mover.get(id).unwrap();
        assert_eq!((next.direction(), next.other(), next.keys()), (Direction::Out, TO, &[key][..]));
        assert_eq!(mover.waiting_count(), 0);
    }
}

#[test]
fn what_is_wanted_of_one_key_leaves_what_is_wanted_of_others() {
    let named = |name: &str, from, to| Misplaced { key: DbKey::new(0, name), from, to };
    let limits = MoveLimits { keys_per_move: 1, ..MoveLimits::default() };
    let mut mover = Mover::new(Epoch(5), limits, Duration::ZERO, |_: &u32| 1);
    mover.want([
        named("a", None, Some(FROM)),
        named("b", None, Some(FROM)),
        named("c", Some(FROM), Some(TO)),
    ]);
    mover.recall(DbKey::new(0, "a"), FROM);
    // It waits once, and not at all when it is where it shall be.
    for (to, waiting) in [(Some(TO), 3), (None, 2), (Some(FROM), 3)] {
        mover.want_one(named("a", None, to));
        assert_eq!(mover.waiting_count(), waiting);
    }
    mover.want_one(named("c", Some(FROM), None));
    let mut moved = Vec::new();
    while let Some((id, mut effects)) = mover.poll(Duration::ZERO) {
        let it = mover.get(id).unwrap();
        moved.push((it.direction(), it.other(), it.keys().to_vec()));
        while let Some(event) = next_event(&effects) {
            effects = mover.on(id, event);
        }
    }
    let mut expected = [("a", Direction::Out), ("b", Direction::Out), ("c", Direction::Home)]
        .map(|(name, direction)| (direction, FROM, vec![DbKey::new(0, name)]));
    moved.sort();
    expected.sort();
    assert_eq!(moved, expected);
}

/// It is looked at again at the end of its move, and does not leave again when it comes home later.
#[test]
fn a_key_that_goes_out_is_not_sent_on() {
    let key = DbKey::new(0, "k");
    let mut mover = Mover::new(Epoch(5), MoveLimits::default(), Duration::ZERO, |_: &u32| 1);
    mover.want([Misplaced { key: key.clone(), from: None, to: Some(FROM) }]);
    let (id, mut effects) = mover.poll(Duration::ZERO).unwrap();
    mover.send_on(key.clone(), TO);
    while let Some(event) = next_event(&effects) {
        effects = mover.on(id, event);
    }
    let finished = mover.take_finished();
    assert!(finished[0].onward.is_empty());
    assert!(finished[0].leaves_misplaced(&key, Some(FROM), Some(TO)));
    assert!(!finished[0].leaves_misplaced(&key, Some(FROM), Some(FROM)));
    assert!(!finished[0].is_overtaken(Some(TO)), "it was moved");
    assert_eq!((mover.poll(Duration::ZERO), mover.waiting_count()), (None, 0));
}

/// The one that has to drop the copy may be away for long.
#[test]
fn a_move_out_that_is_undone_says_so_before_it_is_over() {
    for answers in [false, true] {
        let key = DbKey::new(0, "k");
        let limits = MoveLimits::default();
        let mut mover = Mover::new(Epoch(5), limits, Duration::ZERO, |_: &u32| 1);
        mover.want([Misplaced { key, from: None, to: Some(TO) }]);
        let (id, mut effects) = mover.poll(Duration::ZERO).unwrap();
        let mut drops = 0;
        while let Some(event) = next_event(&effects) {
            let call = effects.iter().find_map(|effect| match effect {
                Effect::Send { call, ticket, .. } => Some((call.name(), *ticket)),
                _ => None,
            });
            let stays_undone = mover.get(id).unwrap().stays_undone();
            let event = match call {
                Some(("import", ticket)) => MoveEvent::Answered(ticket, MoveAnswer::Unknown),
                Some(("drop", ticket)) => {
                    assert_eq!(stays_undone, drops > 0);
                    drops += 1;
                    match answers || drops > 3 {
                        true => event,
                        false => MoveEvent::Answered(ticket, MoveAnswer::Unknown),
                    }
                }
                _ => {
                    assert!(!stays_undone, "{call:?}");
                    event
                }
            };
            effects = mover.on(id, event);
        }
        assert_eq!(drops, if answers { 1 } else { 4 });
        assert_eq!(mover.take_finished()[0].outcome, Outcome::Undone(None));
    }
}

/// Writes under way at home may take any time; that they have ended means nothing later.
#[test]
fn a_move_is_undone_whose_calls_under_way_take_too_long() {
    let out = (None, Some(FROM), ["begin", "undo", "drop", "forget"]);
    let home = (Some(FROM), None, ["begin", "undo", "release", "forget"]);
    for (from, to, steps) in [out, home] {
        let key = DbKey::new(0, "k");
        let mut mover = Mover::new(Epoch(5), MoveLimits::default(), Duration::ZERO, |_: &u32| 1);
        mover.want([Misplaced { key, from, to }]);
        let (id, mut effects) = mover.poll(Duration::ZERO).unwrap();
        let mut calls = Vec::new();
        while let Some(event) = next_event(&effects) {
            calls.extend(effects.iter().filter_map(|effect| match effect {
                Effect::Send { call, .. } => Some(call.name()),
                _ => None,
            }));
            let drains = event == MoveEvent::Drained;
            effects = mover.on(id, if drains { MoveEvent::Undrained } else { event });
            if drains {
                assert!(mover.on(id, MoveEvent::Drained).is_empty());
                assert!(mover.on(id, MoveEvent::Undrained).is_empty(), "once");
            }
        }
        assert_eq!(calls, steps);
        assert_eq!(mover.take_finished()[0].outcome, Outcome::Undone(None));
    }
}
