//! Thousands of keys are moved by a plan while clients read and write them as fast as they can: no client sees an
//! error, every key has what was written last, and a line says how fast it was and what it cost the clients.
//!
//! For figures: `TERRACE_TEST_EFFORT=2 cargo test --release -p terrace-cli --test clients -- --ignored --nocapture
//! keys_are_moved_by_a_plan`, on a machine that does nothing else.

use crate::process::Server;
use serde_json::Value;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use terrace_base::{Rng, SplitMix64};
use terrace_cluster::slot_of;
use terrace_resp::Reply;
use terrace_resp::test_client::{Client, free_ports, ok, text, until};

const CLIENTS: usize = 8;

/// In the long version. Those of two shards of three are moved: 10,000.
const KEYS: usize = 15_000;

/// How long a command took, and the time of its end.
type Took = (Duration, Duration);

/// What a client does with its own keys until it is stopped; gives how long each command took, with the time of
/// its end, and what it wrote last to each key.
fn work(
    port: u16,
    keys: Vec<String>,
    seed: u64,
    shared: &(Instant, AtomicBool, AtomicU64),
) -> (Vec<Took>, Vec<(String, u64)>) {
    let (start, stop, done) = shared;
    let (mut random, mut took) = (SplitMix64::new(seed), Vec::new());
    let mut client = Client::connect(([127, 0, 0, 1], port).into());
    let mut last: Vec<(String, u64)> = keys.into_iter().map(|key| (key, 0)).collect();
    let mut next = 0;
    // All keys once, then any.
    while !stop.load(Ordering::SeqCst) || next < last.len() {
        let is_first = next < last.len();
        let at = if is_first { next } else { random.below(last.len() as u64) as usize };
        let (key, value) = &mut last[at];
        let asked = Instant::now();
        if is_first || random.one_in(2) {
            *value += 1;
            let reply = client.call(&["SET", key, &value.to_string()]);
            assert_eq!(reply, ok(), "SET {key}");
        } else {
            let reply = client.call(&["GET", key]);
            assert_eq!(reply, Reply::Bulk(value.to_string().into_bytes().into()), "GET {key}");
        }
        next += 1;
        took.push((asked.elapsed(), start.elapsed()));
        done.fetch_add(1, Ordering::SeqCst);
    }
    (took, last)
}

/// The 50th and the 99th percentile of what ended within a time.
fn percentiles(took: &[Took], within: std::ops::Range<Duration>) -> [Duration; 2] {
    let of_time = took.iter().filter(|(_, end)| within.contains(end));
    let mut sorted: Vec<Duration> = of_time.map(|(took, _)| *took).collect();
    sorted.sort_unstable();
    [2, 100].map(|part| sorted[(sorted.len() - 1) - (sorted.len() - 1) / part])
}

/// Keys that are not at home, and whether nothing more is to be moved.
fn exceptions(client: &mut Client) -> (u64, bool) {
    let status: Value = serde_json::from_str(&text(&client.say("CLUSTER STATUS"))).unwrap();
    let shards = status["shards"].as_array().unwrap();
    let away = shards.iter().map(|shard| shard["exceptions"].as_u64().unwrap_or(0)).sum();
    let is_over = |shard: &Value| {
        shard["waiting_moves"] == 0 && shard["moves"].as_array().is_some_and(Vec::is_empty)
    };
    (away, shards.iter().all(is_over))
}

#[test]
#[ignore = "runs for long; run by cargo xtask clients with TERRACE_TEST_EFFORT=2"]
fn keys_are_moved_by_a_plan_and_no_client_sees_an_error() {
    let effort = std::env::var("TERRACE_TEST_EFFORT").ok().and_then(|text| text.parse().ok());
    let count = if effort.unwrap_or(1_u64) > 1 { KEYS } else { KEYS / 10 };
    let dir = tempfile::tempdir().unwrap();
    let port = free_ports(3);
    let mut command = Command::new(env!("CARGO_BIN_EXE_terrace"));
    command.current_dir(dir.path()).args(["cluster", "up", "--http-port", "0"]);
    command.args(["--port", &port.to_string(), "--set", "maxmemory=64mb"]);
    command.args(["--set", &format!("cluster-plan-keys={count}")]);
    let _server = Server::start(Stdio::null(), command, port);
    let mut admin = Client::connect(([127, 0, 0, 1], port).into());
    until("not every shard is served", || {
        let status: Option<Value> = match admin.say("CLUSTER STATUS") {
            Reply::Bulk(json) => serde_json::from_slice(&json).ok(),
            _ => None,
        };
        status.is_some_and(|status| status["is_served"] == true)
    });
    let keys: Vec<String> = (0..count).map(|number| format!("key:{number}")).collect();
    let shared = (Instant::now(), AtomicBool::new(false), AtomicU64::new(0));
    let shared = Arc::new(shared);
    let clients: Vec<_> = keys
        .chunks(count.div_ceil(CLIENTS))
        .enumerate()
        .map(|(number, own)| {
            let (own, shared) = (own.to_vec(), shared.clone());
            let port = port + (number % 3) as u16;
            std::thread::spawn(move || work(port, own, number as u64, &shared))
        })
        .collect();
    let let_pass = |more: u64| {
        let target = shared.2.load(Ordering::SeqCst) + more;
        until("clients do nothing", || shared.2.load(Ordering::SeqCst) >= target);
    };
    let_pass(3 * count as u64);
    let before = shared.0.elapsed();
    let_pass(2 * count as u64);
    let begin = shared.0.elapsed();
    let plan = format!("top-n-to-one:{count}:1");
    let planned = admin.say(&format!("CLUSTER REPARTITION {plan} KEYS {count}"));
    assert!(matches!(planned, Reply::Array(_)), "{planned:?}");
    let mut moved = 0;
    until("moves do not end", || {
        let (away, is_over) = exceptions(&mut admin);
        moved = away;
        is_over
    });
    let end = shared.0.elapsed();
    shared.1.store(true, Ordering::SeqCst);
    let (mut took, mut last) = (Vec::new(), Vec::new());
    for client in clients {
        let (of_client, written) = client.join().unwrap();
        took.extend(of_client);
        last.extend(written);
    }
    for (key, value) in last {
        assert_eq!(admin.call(&["GET", &key]), Reply::Bulk(value.to_string().into_bytes().into()));
    }
    let elsewhere = keys.iter().filter(|key| slot_of(key.as_bytes()).number() > 16_384 / 3);
    let most = elsewhere.count() as u64;
    assert!(moved > 0 && moved <= most, "{moved} keys are away, of {most}");
    let [[p50, p99], [p50_then, p99_then]] =
        [percentiles(&took, before..begin), percentiles(&took, begin..end)];
    let seconds = (end - begin).as_secs_f64();
    println!(
        "{moved} keys in {seconds:.2} s, {:.0} keys/s; {CLIENTS} clients, no error; p50 {p50:?} before, {p50_then:?} \
         meanwhile; p99 {p99:?} before, {p99_then:?} meanwhile: {:.2}x",
        moved as f64 / seconds,
        p99_then.as_secs_f64() / p99.as_secs_f64()
    );
}
