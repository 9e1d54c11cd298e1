//! Runs of the model of the key move: nothing is violated within their bounds, and each rule of the protocol is
//! needed, since without it something is.

use crate::instance::*;
use crate::key_move_model::*;
use stateright::{Checker, HasDiscoveries, Model};
use std::fmt::Write as _;

/// The actions of a counterexample, with the messages.
fn story(model: &KeyMoves, actions: Vec<Action>) -> String {
    let mut state = model.init_states().remove(0);
    let mut story = String::new();
    for action in actions {
        let message = match action {
            Action::Deliver(at) | Action::DeliverAndKeep(at) | Action::DeliverFull(at) => {
                Some(&state.network[at])
            }
            _ => None,
        };
        let message = message.map_or(String::new(), |message| format!("{message:?}"));
        writeln!(story, "{action:?} {message}").unwrap();
        state = model.next_state(&state, action).unwrap();
    }
    story
}

/// Looks at everything, and says what was violated.
fn check(name: &str, model: KeyMoves) {
    let checker = model.clone().checker().spawn_bfs().join();
    for (property, path) in checker.discoveries() {
        if property != REACHED {
            panic!("{name}: {property} is violated:\n{}", story(&model, path.into_actions()));
        }
    }
    println!("{name}: {} states", checker.unique_state_count());
    assert!(checker.unique_state_count() > 1_000, "{name}: it does nothing");
    checker.assert_properties();
}

/// Looks until this property is violated.
fn violates(property: &'static str, model: KeyMoves) {
    let checker =
        model.checker().finish_when(HasDiscoveries::AnyOf([property].into())).spawn_bfs().join();
    println!("{property}: violated after {} states", checker.unique_state_count());
    assert!(checker.discovery(property).is_some(), "{property} is not missed");
}

fn with(off: impl FnOnce(&mut Off)) -> Off {
    let mut all_on = Off::default();
    off(&mut all_on);
    all_on
}

fn write_and_read() -> Vec<Vec<Op>> {
    vec![vec![Op::Write(1), Op::Read]]
}

#[test]
fn out_and_home_with_late_messages() {
    let model =
        KeyMoves { clients: write_and_read(), owners: vec![2], timeouts: 1, ..KeyMoves::default() };
    check("late", model);
}

#[test]
fn out_and_home_with_double_messages() {
    let model = KeyMoves {
        clients: write_and_read(),
        owners: vec![2],
        duplicates: 1,
        ..KeyMoves::default()
    };
    check("double", model);
}

#[test]
fn a_full_disk_undoes_a_move_unless_a_commit_of_before_finds_room() {
    let model = KeyMoves {
        clients: write_and_read(),
        owners: vec![2],
        timeouts: 1,
        fulls: 1,
        ..KeyMoves::default()
    };
    check("full disk", model);
}

#[test]
fn a_second_owner_takes_over_where_a_disk_is_full() {
    let model = KeyMoves {
        clients: vec![vec![Op::Write(1)]],
        owners: vec![2, 1],
        fulls: 1,
        ..KeyMoves::default()
    };
    check("take-over with a full disk", model);
}

#[test]
fn a_write_that_was_given_up_comes_late_and_home_restarts() {
    let model = KeyMoves {
        clients: vec![vec![Op::Write(1)], vec![Op::Read, Op::Read]],
        owners: vec![1],
        give_ups: 1,
        restarts: 1,
        ..KeyMoves::default()
    };
    check("given up", model);
}

#[test]
fn a_second_owner_takes_over_at_every_step_beside_the_first() {
    let model = KeyMoves {
        clients: vec![vec![Op::Write(1)], vec![Op::Read]],
        owners: vec![1, 1],
        ..KeyMoves::default()
    };
    check("take-over", model);
}

#[test]
fn a_second_owner_takes_over_a_move_home() {
    let model = KeyMoves { clients: write_and_read(), owners: vec![2, 1], ..KeyMoves::default() };
    check("take-over of a move home", model);
}

/// It moves the key away, and the later owner does not know.
#[test]
fn without_the_epoch_check_a_former_owner_does_harm() {
    let off = with(|off| off.epoch_check = true);
    let model =
        KeyMoves { clients: write_and_read(), owners: vec![1, 0], off, ..KeyMoves::default() };
    violates("in one place when all is quiet", model);
}

/// The first owner does not know that its move home is committed, and reads where the key was.
#[test]
fn without_the_stamp_check_a_former_owner_reads_the_copy_that_was_left() {
    let off = with(|off| off.stamp_check = true);
    let model =
        KeyMoves { clients: write_and_read(), owners: vec![2, 0], off, ..KeyMoves::default() };
    violates("linearizable", model);
}

/// An import that comes twice brings an old copy back, to which a read is still under way.
#[test]
fn without_draining_calls_an_old_copy_is_read() {
    let model = KeyMoves {
        clients: write_and_read(),
        owners: vec![2],
        duplicates: 1,
        off: with(|off| off.drain_calls = true),
        ..KeyMoves::default()
    };
    violates("linearizable", model);
}

#[test]
fn without_the_intent_a_move_is_forgotten_halfway() {
    let off = with(|off| off.intent = true);
    let model =
        KeyMoves { clients: write_and_read(), owners: vec![1, 0], off, ..KeyMoves::default() };
    violates("in one place when all is quiet", model);
}

#[test]
fn without_the_hold_a_write_during_a_move_is_lost() {
    let off = with(|off| (off.owner_hold, off.instance_hold) = (true, true));
    let model = KeyMoves { clients: write_and_read(), owners: vec![1], off, ..KeyMoves::default() };
    violates("linearizable", model);
}

#[test]
fn without_the_hold_at_the_instance_a_late_write_is_read_and_lost() {
    let model = KeyMoves {
        clients: vec![vec![Op::Write(1)], vec![Op::Read, Op::Read]],
        owners: vec![1],
        give_ups: 1,
        off: with(|off| off.instance_hold = true),
        ..KeyMoves::default()
    };
    violates("linearizable", model);
}

#[test]
fn a_flush_beside_moves_is_one_write_of_the_key() {
    for clients in [vec![vec![Op::Write(1)], vec![Op::Read]], vec![vec![Op::Read, Op::Read]]] {
        let model = KeyMoves { clients, owners: vec![2], flushes: 1, ..KeyMoves::default() };
        check("flush", model);
    }
}

#[test]
fn a_flush_that_a_store_did_not_wait_for_promises_nothing() {
    let model = KeyMoves {
        clients: vec![vec![Op::Read]],
        owners: vec![2],
        flushes: 1,
        lapses: 1,
        restarts: 1,
        ..KeyMoves::default()
    };
    check("flush that lapses", model);
}

/// The copy comes into a store after that one was flushed.
#[test]
fn without_an_announcement_a_key_outlives_a_flush() {
    let off = with(|off| off.flush_rounds = true);
    let model = KeyMoves {
        clients: vec![vec![Op::Read]],
        owners: vec![2],
        flushes: 1,
        off,
        ..KeyMoves::default()
    };
    violates("linearizable", model);
}

/// A read by a route of before finds it after another one found nothing at home.
#[test]
fn a_flush_that_does_not_wait_for_a_copy_that_was_left_is_seen_and_not_seen() {
    let model = KeyMoves {
        clients: vec![vec![Op::Read, Op::Read]],
        owners: vec![2],
        flushes: 1,
        off: with(|off| off.flush_waits = true),
        ..KeyMoves::default()
    };
    violates("linearizable", model);
}
