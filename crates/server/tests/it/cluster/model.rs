//! Random commands through three front ends give what one server without a cluster gives, while keys move
//! between stores and shards between owners.

use super::fake::FakeCluster;
use crate::client::{Client, ok, text};
use crate::ranges::range;
use crate::served::Served;
use std::sync::Arc;
use terrace_base::{Rng, SplitMix64};
use terrace_cluster::{Placement, Shard, ShardId, Topology};
use terrace_resp::Reply;

const ROUNDS: usize = 400;

fn key(random: &mut SplitMix64) -> String {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let name = names[random.below(8) as usize];
    match random.below(3) {
        0 => name.into(),
        1 => format!("{{t}}{name}"),
        _ => format!("{{u}}{name}"),
    }
}

/// A command whose reply depends on nothing but the keys.
fn command(random: &mut SplitMix64) -> String {
    let (a, b, c) = (key(random), key(random), key(random));
    let tagged =
        |random: &mut SplitMix64| format!("{{t}}{}", ["x", "y", "z"][random.below(3) as usize]);
    let (s, t) = (tagged(random), tagged(random));
    let n = random.below(100);
    match random.below(22) {
        0..3 => format!("SET {a} {n}"),
        3..6 => format!("GET {a}"),
        6 => format!("INCRBY {a} {n}"),
        7 => format!("APPEND {a} {n}"),
        8 => format!("MGET {a} {b} {c}"),
        9 => format!("MSET {a} {n} {b} x{n}"),
        10 => format!("DEL {a} {b}"),
        11 => format!("EXISTS {a} {b} {c} {a}"),
        12 => format!("STRLEN {a}"),
        13 => format!("SADD set:{s} {n} {b}"),
        14 => format!("SCARD set:{s}"),
        15 => format!("SINTERCARD 2 set:{s} set:{t}"),
        16 => format!("SMOVE set:{s} set:{t} {n}"),
        17 => "DBSIZE".into(),
        18 => format!("GETDEL {a}"),
        19 => format!("TYPE {a}"),
        20 => format!("ECHO {n}"),
        _ => format!("RPUSH list:{s} {n}"),
    }
}

/// Commands that are sent together: some, or a transaction in one slot.
fn commands(random: &mut SplitMix64) -> Vec<String> {
    if random.below(6) > 0 {
        return (0..1 + random.below(12)).map(|_| command(random)).collect();
    }
    let mut all = vec!["MULTI".to_string()];
    for _ in 0..random.below(4) {
        let name = ["a", "b", "c"][random.below(3) as usize];
        all.push(match random.below(3) {
            0 => format!("APPEND {{t}}{name} {}", random.below(10)),
            1 => format!("GET {{t}}{name}"),
            _ => format!("MGET {{t}}{name} {{t}}b"),
        });
    }
    all.push(if random.below(5) == 0 { "DISCARD" } else { "EXEC" }.into());
    all
}

fn sorted(client: &mut Client, words: &str) -> Vec<String> {
    let Reply::Array(keys) = client.say(words) else { panic!("no array") };
    let mut keys: Vec<String> = keys.iter().map(crate::client::text).collect();
    keys.sort();
    keys
}

fn run(placement: Placement, flags: &[(&str, &str)], seed: u64) {
    let cluster = FakeCluster::new(placement, 3, flags);
    let alone = Served::with(flags);
    let mut model = alone.client();
    let mut clients: Vec<Client> = (0..3).map(|at| cluster.client(at)).collect();
    let random = &mut SplitMix64::new(seed);
    for round in 0..ROUNDS {
        match random.below(8) {
            0 => cluster.move_key(&key(random), random.below(3) as usize),
            1 => {
                let (shard, to) = (random.below(3) as u32, random.below(3) as usize);
                cluster.shared.hand_over(ShardId(shard), cluster.node(to));
            }
            2 => cluster.shared.state().misrouted += random.below(3) as u32,
            _ => {}
        }
        let words = commands(random);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let at = random.below(3) as usize;
        let held = key(random);
        if random.below(4) == 0 {
            // Writes wait, and go on in their order.
            cluster.shared.hold(&held);
            clients[at].send_words(&words);
            std::thread::yield_now();
            cluster.shared.release(&held);
        } else {
            clients[at].send_words(&words);
        }
        let got: Vec<_> = words.iter().map(|_| clients[at].reply()).collect();
        let wanted = model.pipeline(&words);
        assert_eq!(got, wanted, "seed {seed}, round {round}, node {at}: {words:?}");
    }
    let wanted = sorted(&mut model, "KEYS *");
    assert!(!wanted.is_empty());
    for client in &mut clients {
        assert_eq!(sorted(client, "KEYS *"), wanted);
    }
    cluster.settle();
}

/// How many seeds of each kind: `TERRACE_TEST_EFFORT` times as many as in CI.
fn seeds(first: u64, count: u64) -> std::ops::Range<u64> {
    let effort = std::env::var("TERRACE_TEST_EFFORT").ok().and_then(|effort| effort.parse().ok());
    first..first + count * effort.unwrap_or(1)
}

#[test]
fn random_commands_are_answered_as_by_one_server() {
    seeds(0, 3).for_each(|seed| run(Placement::Slots, &[], seed));
    seeds(1000, 1).for_each(|seed| run(Placement::Slots, &[("server-threads", "2")], seed));
    seeds(20, 3).for_each(|seed| run(Placement::Slots, &[("appendfsync", "always")], seed));
    seeds(3000, 1).for_each(|seed| run(Placement::Range, &[], seed));
}

/// Whichever of the nodes is asked for the next page, and whichever owns the shard.
#[test]
fn a_scan_of_one_store_goes_on_at_every_node() {
    let cluster = FakeCluster::new(Placement::Slots, 2, &[]);
    let shard = ShardId(0);
    let old = cluster.shared.state().topology.clone();
    let ranges = vec![range(Placement::Slots, 0, 1)];
    let whole = Shard { ranges, ..old.shards[&shard].clone() };
    let nodes = old.nodes.values().cloned();
    let topology = Topology::new(old.revision, old.placement, nodes, [whole]).unwrap();
    cluster.shared.state().topology = Arc::new(topology);
    let mut clients = [0, 1].map(|at| cluster.client(at));
    let mut keys: Vec<String> = (0..40).map(|number| format!("key:{number}")).collect();
    for key in &keys {
        assert_eq!(clients[1].say(&format!("SET {key} v")), ok());
    }
    let (mut cursor, mut found) = ("0".to_string(), Vec::new());
    for turn in 0.. {
        if turn % 3 == 2 {
            cluster.shared.hand_over(shard, cluster.node(turn % 2));
        }
        let reply = clients[turn % 2].say(&format!("SCAN {cursor} COUNT 2"));
        let Reply::Array(page) = &reply else { panic!("turn {turn}: {reply:?}") };
        let Reply::Array(shown) = &page[1] else { panic!("turn {turn}: {reply:?}") };
        found.extend(shown.iter().map(text));
        cursor = text(&page[0]);
        if cursor == "0" {
            assert!(turn > 4, "it was not long");
            break;
        }
    }
    keys.sort();
    found.sort();
    assert_eq!(found, keys);
    cluster.settle();
}
