//! Random commands of several clients through all nodes while keys move, plans change and nodes are started again: the
//! history of each key is that of one copy of it, by porcupine (`tests/porcupine`).

use super::harness::NodeCluster;
use super::moving::Pauses;
use super::recorder::{Clients, Pace, check};
use crate::client::until;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use terrace_base::{Rng, SplitMix64};
use terrace_cluster::{DbKey, Placement, PlanSpec, ShardId};
use terrace_resp::Reply;

const NODES: usize = 3;
const CLIENTS: usize = 5;

/// What each client does in the long version; in the short one, a fifth of it.
const ROUNDS: usize = 250;

/// Plans are of this many keys: about half of those that are used.
const PLANS: [&str; 3] = ["top-n-to-one:4:2", "top-n-tiered:2,1,2", "absorb"];

/// What happens beside the clients, but for moves of single keys.
#[derive(Clone, Copy)]
struct Faults {
    /// Nodes that end politely and are started again, one after the other.
    restarts: usize,
    /// Plans of each kind.
    plans: usize,
}

/// What was done beside the clients.
#[derive(Debug, Default)]
struct Done {
    moves: usize,
    /// Keys that plans moved, by kind.
    planned: [u64; PLANS.len()],
    plans: [usize; PLANS.len()],
    restarts: usize,
}

/// Moves keys until all clients are done, and does the rest in between.
fn disturb(
    cluster: &mut NodeCluster,
    clients: &Clients,
    random: &mut SplitMix64,
    faults: Faults,
) -> Done {
    let mut done = Done::default();
    let mut next = Vec::new();
    (0..faults.plans).for_each(|_| next.extend(0..PLANS.len()));
    next.extend((0..faults.restarts).map(|_| PLANS.len()));
    while clients.are_working() || !next.is_empty() || done.moves <= 5 {
        if !next.is_empty() && random.below(5) == 0 {
            match next.swap_remove(random.below(next.len() as u64) as usize) {
                plan if plan < PLANS.len() => {
                    done.planned[plan] += repartition(cluster, random, PLANS[plan]);
                    done.plans[plan] += 1;
                }
                _ => {
                    let at = random.below(NODES as u64) as usize;
                    let dir = cluster.end_node(at);
                    cluster.start_node(at, dir);
                    clients.set_address(at, cluster.one(at).address());
                    done.restarts += 1;
                }
            }
        }
        let key = &clients.keys()[random.below(clients.keys().len() as u64) as usize];
        let to = [None, Some(1), Some(2), Some(3)][random.below(4) as usize].map(ShardId);
        let member = cluster.membership(random.below(NODES as u64) as usize);
        let moved = member.node().move_key(DbKey::new(0, key.as_str()), to);
        done.moves += usize::from(member.runtime().block_on(moved).is_ok());
    }
    done
}

/// A plan of what is counted until now; how many keys it moves.
fn repartition(cluster: &NodeCluster, random: &mut SplitMix64, plan: &str) -> u64 {
    let spec: PlanSpec = plan.parse().unwrap();
    let mut moves = None;
    until("no plan is made", || {
        let member = cluster.membership(random.below(NODES as u64) as usize);
        let planned = member.runtime().block_on(member.node().repartition(&spec, 100));
        // A node that was started again may not be known yet, or have its shards.
        moves = planned.ok().filter(|planned| planned.failed.is_empty()).map(|it| it.moves);
        moves.is_some()
    });
    moves.unwrap()
}

/// Every key is where it is served, and nowhere else.
fn check_places(cluster: &NodeCluster, keys: &[String]) {
    cluster.wait_until_home();
    for key in keys {
        let of = (0..NODES).find(|at| cluster.keys_of(*at, "k", 3).contains(key)).unwrap();
        until("a key is in several places, or a move does not end", || {
            let state = cluster.one(of).server().space.move_state();
            let home = state.homes.into_iter().find(|(it, _)| it.key[..] == *key.as_bytes());
            let at = match home.map(|(_, home)| (home.exception, home.intent)) {
                None => of,
                Some((Some(exception), None)) => exception.at.0 as usize - 1,
                Some(_) => return false,
            };
            let is_there = cluster.client(of).say(&format!("EXISTS {key}")) == Reply::Integer(1);
            let places = if is_there { vec![at] } else { Vec::new() };
            cluster.places_of(key) == places
        });
    }
}

fn run(seed: u64, flags: &[(&str, &str)], faults: Faults, rounds: usize) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let _pauses = Pauses::start(seed);
    let start = Instant::now();
    let mut cluster = NodeCluster::start(Placement::Slots, NODES, flags);
    let keys: Vec<_> = (0..NODES).flat_map(|at| cluster.keys_of(at, "k", 3)).collect();
    let addresses = (0..NODES).map(|at| cluster.one(at).address()).collect();
    let pace = Pace { rounds: Some(rounds), pause: Duration::ZERO, deletes: true };
    let clients = Clients::start(addresses, keys.clone(), CLIENTS, pace, seed);
    let done = disturb(&mut cluster, &clients, &mut SplitMix64::new(seed), faults);
    let lines = clients.end();
    println!("seed {seed}: {} operations, {done:?}, by {:?}", lines.len(), start.elapsed());
    assert_eq!((done.restarts, done.plans), (faults.restarts, [faults.plans; PLANS.len()]));
    let planned: u64 = done.planned.iter().sum();
    assert!(faults.plans == 0 || planned > 0, "no plan moved anything");
    check_places(&cluster, &keys);
    check(&lines);
}

const ONLY_MOVES: Faults = Faults { restarts: 0, plans: 0 };

#[test]
#[ignore = "needs Go and porcupine: run `cargo xtask test`"]
fn the_history_of_every_key_is_that_of_one_copy() {
    run(1, &[], ONLY_MOVES, ROUNDS);
    run(2, &[("appendfsync", "always")], ONLY_MOVES, ROUNDS);
}

#[test]
#[ignore = "needs Go and porcupine: run `cargo xtask test`"]
fn the_history_of_every_key_is_that_of_one_copy_over_restarts_and_plans() {
    let long = Faults { restarts: 3, plans: 2 };
    let number_of = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    match (number_of("SEED"), number_of("TERRACE_TEST_EFFORT").unwrap_or(1)) {
        (Some(seed), _) => run(seed, &[], long, ROUNDS),
        (None, 2..) => [3, 4].into_iter().for_each(|seed| run(seed, &[], long, ROUNDS)),
        (None, _) => run(5, &[], Faults { restarts: 1, plans: 1 }, ROUNDS / 5),
    }
}
