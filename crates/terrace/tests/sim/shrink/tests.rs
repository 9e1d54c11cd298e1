//! Long plans that fail become short ones that fail the same way: by a rule that is known, and in real runs with a fault
//! that is planted.

use super::*;
use crate::plan::{Cut, Step};
use crate::world::{Counts, run};
use std::sync::Arc;

/// Steps of a long plan.
const LONG: usize = 100;
/// Steps that a planted fault needs at most: one would do, if what a crash leaves were not drawn.
const MINIMAL: usize = 5;
/// Seeds among which there must be what a test looks for.
const SEEDS: u64 = 100;

fn long_plan(wanted: impl Fn(&Plan) -> bool) -> Plan {
    let found = (0..SEEDS).map(Plan::draw).find(|plan| plan.len() >= LONG && wanted(plan));
    found.expect("some seed gives such a plan")
}

/// How many steps of a life `is` true of.
fn count(life: &Life, is: fn(&Step) -> bool) -> usize {
    life.clients.iter().flatten().filter(|step| is(step)).count()
}

fn is_flush(step: &Step) -> bool {
    matches!(step, Step::Flush)
}

fn is_write(step: &Step) -> bool {
    matches!(step, Step::Write(..))
}

#[test]
fn what_a_failure_needs_stays_and_nothing_else() {
    // Two writes and a flush in one life, and a power cut after its tenth operation.
    let fails = |plan: &Plan| {
        let bad = |life: &&Life| {
            count(life, is_write) >= 2
                && count(life, is_flush) >= 1
                && life.cut.is_some_and(|cut| cut.at_op > 10)
        };
        plan.lives.iter().find(bad).map(|life| format!("LOST: {} batches", count(life, is_write)))
    };
    let plan = long_plan(|plan| plan.lives.len() > 1 && fails(plan).is_some());
    let why = fails(&plan).unwrap();
    let (small, why) = shrink(plan, why, fails);
    assert_eq!(why, "LOST: 2 batches");
    assert_eq!((small.lives.len(), small.len()), (1, 3), "{small}");
    let life = &small.lives[0];
    assert_eq!((count(life, is_write), count(life, is_flush)), (2, 1), "{small}");
    assert!(life.troubles.is_empty() && life.clients.iter().all(|steps| !steps.is_empty()));
    assert!(matches!(life.cut, Some(Cut { at_op: 11, .. })), "{small}");
}

/// What is smaller and fails otherwise is another fault.
#[test]
fn a_plan_that_fails_in_another_way_does_not_take_the_place_of_one() {
    let fails = |plan: &Plan| {
        let writes: usize = plan.lives.iter().map(|life| count(life, is_write)).sum();
        match writes {
            0 => None,
            1..=4 => Some("HOLE: no prefix".to_string()),
            more => Some(format!("LOST: {more} batches \"{}\"", "x".repeat(more))),
        }
    };
    let plan = long_plan(|plan| fails(plan).is_some_and(|why| why.starts_with("LOST")));
    let why = fails(&plan).unwrap();
    let (small, why) = shrink(plan, why, fails);
    assert_eq!((small.len(), why.as_str()), (5, "LOST: 5 batches \"xxxxx\""), "{small}");
}

/// Real runs: what is promised is more than the store does, so the end of its life loses some of it.
#[test]
fn a_planted_fault_is_shrunk_to_a_few_steps_and_the_end_of_a_life() {
    let counts = Arc::new(Counts::default());
    let fails = |plan: &Plan| run(plan, false, &counts).failure;
    let plant = |seed| {
        let mut plan = Plan::draw(seed);
        for life in &mut plan.lives {
            life.believes_writes = true;
            // A full disk or a failing one loses what is not synced, too, and needs no end of the power for that.
            life.troubles.clear();
        }
        plan
    };
    let failing = |plan: Plan| {
        let why = fails(&plan).filter(|why| why.contains("after life 0: LOST: "))?;
        Some((plan, why))
    };
    let long = (0..SEEDS).map(plant).filter(|plan| plan.len() >= LONG);
    let (plan, why) = long.into_iter().find_map(failing).expect("the planted fault is found");
    let (small, small_why) = shrink(plan, why.clone(), fails);
    assert_eq!(kind_of(&small_why), kind_of(&why));
    assert_eq!(small.lives.len(), 1, "{small}");
    assert!((1..=MINIMAL).contains(&small.len()), "{small}");
    assert!(small.lives[0].cut.is_some(), "{small}");
    // The same again, and by nothing but the fault.
    assert_eq!(fails(&small), Some(small_why));
    let mut sound = small.clone();
    sound.lives[0].believes_writes = false;
    assert_eq!(fails(&sound), None, "{small}");
}
