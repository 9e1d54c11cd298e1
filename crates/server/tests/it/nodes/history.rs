//! Random commands of several clients through all nodes while keys move: the history of each key is that of one
//! copy of it, by porcupine (`tests/porcupine`).

use super::harness::NodeCluster;
use crate::client::{Client, text};
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;
use terrace_base::{Rng, SplitMix64};
use terrace_cluster::{DbKey, Placement, ShardId};
use terrace_resp::Reply;

const NODES: usize = 3;
const CLIENTS: usize = 5;

/// What each client sends: this many times some commands together.
const ROUNDS: usize = 250;

/// One command on one key, or the part of a command on several.
struct Step {
    kind: &'static str,
    key: String,
    value: String,
}

/// What clients share.
struct Shared {
    addresses: Vec<SocketAddr>,
    start: Instant,
    next_value: AtomicU64,
    working: AtomicUsize,
    keys: Vec<String>,
}

struct Recorder {
    shared: Arc<Shared>,
    number: usize,
    random: SplitMix64,
    client: Option<Client>,
    lines: Vec<String>,
}

impl Recorder {
    fn step(&mut self, kind: &'static str, key: &str) -> Step {
        let number = self.shared.next_value.fetch_add(1, Ordering::Relaxed);
        let value = match kind {
            "set" => format!("v{number}."),
            "append" => format!("a{number}."),
            _ => String::new(),
        };
        Step { kind, key: key.into(), value }
    }

    /// A command with the steps that it is made of.
    fn command(&mut self) -> (String, Vec<Step>) {
        let count = self.shared.keys.len() as u64;
        let first = self.random.below(count) as usize;
        let second = (first + 1 + self.random.below(count - 1) as usize) % count as usize;
        let keys = self.shared.keys.clone();
        let (a, b) = (&keys[first], &keys[second]);
        match self.random.below(11) {
            0..3 => (format!("GET {a}"), vec![self.step("get", a)]),
            3..5 => {
                let set = self.step("set", a);
                (format!("SET {a} {}", set.value), vec![set])
            }
            5 | 6 => {
                let append = self.step("append", a);
                (format!("APPEND {a} {}", append.value), vec![append])
            }
            7 => (format!("GETDEL {a}"), vec![self.step("getdel", a)]),
            8 => (format!("DEL {a}"), vec![self.step("del", a)]),
            9 => {
                let (one, other) = (self.step("set", a), self.step("set", b));
                (format!("MSET {a} {} {b} {}", one.value, other.value), vec![one, other])
            }
            _ => (format!("MGET {a} {b}"), vec![self.step("get", a), self.step("get", b)]),
        }
    }

    fn now(&self) -> u64 {
        self.shared.start.elapsed().as_nanos() as u64
    }

    fn connect(&mut self) -> Client {
        Client::connect(self.shared.addresses[self.random.below(NODES as u64) as usize])
    }

    fn round(&mut self) {
        // A key once: the checker takes what was sent together for concurrent, and is slow with many of those.
        let mut commands: Vec<(String, Vec<Step>)> = Vec::new();
        for _ in 0..1 + self.random.below(4) {
            let (words, steps) = self.command();
            let mut used = commands.iter().flat_map(|(_, steps)| steps);
            if !used.any(|used| steps.iter().any(|step| step.key == used.key)) {
                commands.push((words, steps));
            }
        }
        let mut client = match self.client.take() {
            Some(client) => client,
            None => self.connect(),
        };
        let call = self.now();
        let mut is_open = true;
        for (words, _) in &commands {
            is_open &= client.try_send(&words.split(' ').collect::<Vec<_>>());
        }
        for (words, steps) in commands {
            let reply = if is_open { client.try_reply() } else { None };
            is_open &= reply.is_some();
            self.note(&words, &steps, reply, call);
        }
        // Sometimes to another node.
        self.client = (is_open && self.random.below(20) > 0).then_some(client);
    }

    fn note(&mut self, words: &str, steps: &[Step], reply: Option<Reply<'static>>, call: u64) {
        let is_whole = steps.len() == 1;
        let replies: Vec<Option<String>> = match &reply {
            Some(Reply::Error(why)) => {
                let why = String::from_utf8_lossy(why);
                let is_known = why.starts_with("CLUSTERDOWN") || why.starts_with("TRYAGAIN");
                assert!(is_known, "{words}: {why}");
                if is_whole && !why.contains("may have happened") {
                    return;
                }
                steps.iter().map(|_| None).collect()
            }
            Some(Reply::Array(all)) => all.iter().map(|one| Some(shown(one))).collect(),
            Some(one) => steps.iter().map(|_| Some(shown(one))).collect(),
            None => steps.iter().map(|_| None).collect(),
        };
        assert_eq!(replies.len(), steps.len(), "{words}: {reply:?}");
        for (step, reply) in steps.iter().zip(replies) {
            if step.kind == "get" && reply.is_none() {
                continue;
            }
            let line = serde_json::json!({
                "key": step.key, "client": self.number, "kind": step.kind, "value": step.value,
                "call": call, "return": self.now(), "known": reply.is_some(),
                "reply": reply.unwrap_or_default(),
            });
            self.lines.push(line.to_string());
        }
    }
}

fn shown(reply: &Reply<'_>) -> String {
    match reply {
        Reply::Null => String::new(),
        Reply::Integer(number) => number.to_string(),
        other => text(other),
    }
}

/// Moves keys until all clients are done. How many moves there were.
fn disturb(cluster: &NodeCluster, shared: &Shared, random: &mut SplitMix64) -> usize {
    let mut moves = 0;
    while shared.working.load(Ordering::SeqCst) > 0 {
        let key = &shared.keys[random.below(shared.keys.len() as u64) as usize];
        let to = [None, Some(1), Some(2), Some(3)][random.below(4) as usize].map(ShardId);
        let member = cluster.membership(random.below(NODES as u64) as usize);
        let moved = member.node().move_key(DbKey::new(0, key.as_str()), to);
        moves += usize::from(member.runtime().block_on(moved).is_ok());
    }
    moves
}

fn check(lines: &[String]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/porcupine");
    let mut go = Command::new("go");
    go.args(["run", "."]).current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut go = go.spawn().unwrap();
    go.stdin.take().unwrap().write_all((lines.join("\n") + "\n").as_bytes()).unwrap();
    let output = go.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    println!("{told}");
    assert!(output.status.success() && told.contains("all histories are linearizable"), "{told}");
}

fn run(seed: u64, flags: &[(&str, &str)]) {
    let cluster = NodeCluster::start(Placement::Slots, NODES, flags);
    let keys = (0..NODES).flat_map(|at| cluster.keys_of(at, "k", 3)).collect();
    let addresses = (0..NODES).map(|at| cluster.one(at).address()).collect();
    let shared = Arc::new(Shared {
        addresses,
        start: Instant::now(),
        next_value: AtomicU64::new(0),
        working: AtomicUsize::new(CLIENTS),
        keys,
    });
    let client = |number: usize| {
        let shared = shared.clone();
        std::thread::spawn(move || {
            let random = SplitMix64::new(seed * 100 + number as u64);
            let (client, lines) = (None, Vec::new());
            let mut one = Recorder { shared: shared.clone(), number, random, client, lines };
            // Counted down also by one that panics.
            struct Done(Arc<Shared>);
            impl Drop for Done {
                fn drop(&mut self) {
                    self.0.working.fetch_sub(1, Ordering::SeqCst);
                }
            }
            let _done = Done(shared);
            (0..ROUNDS).for_each(|_| one.round());
            one.lines
        })
    };
    let clients: Vec<_> = (0..CLIENTS).map(client).collect();
    let moves = disturb(&cluster, &shared, &mut SplitMix64::new(seed));
    let lines: Vec<String> =
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect();
    println!(
        "seed {seed}: {} operations, {moves} moves, by {:?}",
        lines.len(),
        shared.start.elapsed()
    );
    assert!(moves > 5, "nothing moved");
    check(&lines);
}

#[test]
#[ignore = "needs Go and porcupine: run `cargo xtask test`"]
fn the_history_of_every_key_is_that_of_one_copy() {
    run(1, &[]);
    run(2, &[("appendfsync", "always")]);
}
