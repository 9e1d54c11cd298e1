//! Servers as nodes of a real cluster: leases, owners, links and moves of keys as between processes.

mod harness;
mod history;
mod moving;
mod recorder;
mod refusals;
mod slow;

use crate::client::{Client, array, bulk, error, int, ok, text};
use crate::served::Served;
use harness::NodeCluster;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use terrace_cluster::{DbKey, Direction, Epoch, MoveId, Placement, PlanSpec, ShardId};
use terrace_keyspace::{Keyspace, Mode, PutOptions};
use terrace_resp::Reply;

fn scanned(client: &mut Client, count: usize) -> Vec<String> {
    let (mut cursor, mut found) = ("0".to_string(), Vec::new());
    loop {
        let Reply::Array(page) = client.say(&format!("SCAN {cursor} COUNT {count}")) else {
            panic!("no page")
        };
        cursor = text(&page[0]);
        let Reply::Array(keys) = &page[1] else { panic!("no keys") };
        found.extend(keys.iter().map(text));
        if cursor == "0" {
            return found;
        }
    }
}

/// Commands of all kinds through every node: their keys are where they belong, and nothing is lost or doubled.
fn any_node_serves_every_key(placement: Placement) {
    let cluster = NodeCluster::start(placement, 3, &[]);
    let keys: BTreeSet<String> = (0..3).flat_map(|at| cluster.keys_of(at, "key:", 60)).collect();
    for at in 0..3 {
        let (mut writer, mut reader) = (cluster.client(at), cluster.client((at + 1) % 3));
        let sets: Vec<String> = keys.iter().map(|key| format!("SET {key} {at}-{key}")).collect();
        let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
        assert!(writer.pipeline(&sets).iter().all(|reply| *reply == ok()));
        for key in &keys {
            assert_eq!(reader.say(&format!("GET {key}")), bulk(&format!("{at}-{key}")));
        }
        let mut found = scanned(&mut reader, 7);
        found.sort();
        assert!(found.iter().eq(&keys), "a scan at node {at}: {found:?}");
    }
    for of in 0..3 {
        for key in cluster.keys_of(of, "key:", 60) {
            assert_eq!(cluster.places_of(&key), [of], "{key}");
        }
    }
    let [a, b, c] = [0, 1, 2].map(|at| cluster.key_of(at, "many"));
    for at in 0..3 {
        let mut client = cluster.client(at);
        assert_eq!(client.say(&format!("MSET {a} 1 {b} {at} {c} 3")), ok());
        let got = client.say(&format!("MGET {c} none {a} {b}"));
        assert_eq!(got, array([bulk("3"), Reply::Null, bulk("1"), bulk(&at.to_string())]));
        assert_eq!(client.say("DBSIZE"), int(keys.len() as i64 + 3));
        assert_eq!(client.say(&format!("DEL {a} {b} none {c}")), int(3));
    }
    let mut client = cluster.client(1);
    assert_eq!(client.say("FLUSHALL"), ok());
    for at in 0..3 {
        assert_eq!(cluster.client(at).say("DBSIZE"), int(0));
    }
}

#[test]
fn any_node_serves_every_key_by_slots() {
    any_node_serves_every_key(Placement::Slots);
}

#[test]
fn any_node_serves_every_key_by_ranges() {
    any_node_serves_every_key(Placement::Range);
}

#[test]
fn a_transaction_is_executed_where_its_keys_are() {
    let cluster = NodeCluster::start(Placement::Slots, 3, &[]);
    for of in 0..3 {
        let tag = cluster.key_of(of, "tag");
        for at in 0..3 {
            let mut client = cluster.client(at);
            let (a, b) = (format!("{{{tag}}}a"), format!("{{{tag}}}b"));
            let words = [
                "MULTI",
                &format!("SET {a} {at}"),
                &format!("INCR {b}"),
                &format!("GET {a}"),
                "EXEC",
            ];
            let replies = client.pipeline(&words);
            let wanted = array([ok(), int(at as i64 + 1), bulk(&at.to_string())]);
            assert_eq!(replies[4], wanted, "at {at}, keys of {of}");
        }
        let other = cluster.key_of((of + 1) % 3, "tag");
        let replies = cluster.client(0).pipeline(&[
            "MULTI",
            &format!("SET {{{tag}}}a x"),
            &format!("SET {other} x"),
            "EXEC",
        ]);
        assert!(error(&replies[2]).starts_with("CROSSSLOT"));
        assert!(error(&replies[3]).starts_with("EXECABORT"));
    }
}

/// Clients that count keys up through all nodes, and what was acknowledged.
struct Load {
    stop: Arc<AtomicBool>,
    acked: Arc<Vec<AtomicU64>>,
    clients: Vec<std::thread::JoinHandle<Vec<String>>>,
}

impl Load {
    /// Each of the clients has its own kind of command, so that all ways of a write are gone; some only read.
    fn start(cluster: &NodeCluster, keys: &[String], count: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let acked: Arc<Vec<AtomicU64>> = Arc::new(keys.iter().map(|_| AtomicU64::new(0)).collect());
        let client = |number: usize| {
            let mut client = cluster.client(number % cluster.served.len());
            let (stop, acked, keys) = (stop.clone(), acked.clone(), keys.to_vec());
            std::thread::spawn(move || {
                let mut errors = Vec::new();
                let mut at = number;
                let mut seen = vec![0; keys.len()];
                while !stop.load(Ordering::SeqCst) {
                    at = (at + 1) % keys.len();
                    let incr = format!("INCR {}", keys[at]);
                    if number % 4 == 3 {
                        // What was read before is not taken back.
                        let reply = client.say(&format!("GET {}", keys[at]));
                        match &reply {
                            Reply::Bulk(_) => match text(&reply).parse::<u64>().unwrap() {
                                value if value >= seen[at] => seen[at] = value,
                                value => errors.push(format!("{value} after {}", seen[at])),
                            },
                            Reply::Null if seen[at] == 0 => {}
                            other => errors.push(format!("GET {}: {other:?}", keys[at])),
                        }
                        continue;
                    }
                    let replies = match number % 4 {
                        0 => vec![client.say(&incr)],
                        1 => client.pipeline(&[&incr, &incr, &incr, &incr]),
                        _ => {
                            let replies = client.pipeline(&["MULTI", &incr, &incr, "EXEC"]);
                            match &replies[3] {
                                Reply::Array(all) => all.clone(),
                                other => vec![other.clone()],
                            }
                        }
                    };
                    for reply in replies {
                        match reply {
                            Reply::Integer(_) => _ = acked[at].fetch_add(1, Ordering::SeqCst),
                            other => errors.push(format!("{incr}: {other:?}")),
                        }
                    }
                }
                errors
            })
        };
        let clients = (0..count).map(client).collect();
        Self { stop, acked, clients }
    }

    fn sum(&self) -> u64 {
        self.acked.iter().map(|count| count.load(Ordering::SeqCst)).sum()
    }

    fn let_pass(&self, more: u64) {
        let target = self.sum() + more;
        crate::client::until("no more writes", || self.sum() >= target);
    }

    /// Ends it: how often each key was counted up, and that no client saw an error.
    fn end(self) -> Vec<u64> {
        self.stop.store(true, Ordering::SeqCst);
        for client in self.clients {
            let errors = client.join().unwrap();
            assert!(
                errors.is_empty(),
                "{} errors: {:?}",
                errors.len(),
                &errors[..errors.len().min(3)]
            );
        }
        self.acked.iter().map(|count| count.load(Ordering::SeqCst)).collect()
    }
}

/// Keys are moved out, on, and home while they are written in all ways. No client sees an error, every
/// acknowledged write is there exactly once, and every key in one store.
fn keys_move_under_writes(flags: &[(&str, &str)], rounds: usize) {
    let cluster = NodeCluster::start(Placement::Slots, 3, flags);
    let keys = cluster.keys_of(0, "moved:", 3);
    let load = Load::start(&cluster, &keys, 8);
    for round in 0..rounds {
        for to in [Some(1), Some(2), None] {
            for key in &keys {
                cluster.move_key(round % 3, key, to);
            }
            load.let_pass(60);
        }
    }
    for (key, to) in keys.iter().zip([Some(1), None, Some(2)]) {
        cluster.move_key(0, key, to);
    }
    load.let_pass(60);
    let counted = load.end();
    for ((key, counted), at) in keys.iter().zip(counted).zip([1, 0, 2]) {
        for node in 0..3 {
            let got = cluster.client(node).say(&format!("GET {key}"));
            assert_eq!(got, bulk(&counted.to_string()), "{key} at node {node}");
        }
        crate::client::until("a copy is left behind", || cluster.places_of(key) == [at]);
    }
}

#[test]
fn keys_move_under_writes_and_none_is_lost() {
    keys_move_under_writes(&[], 4);
}

#[test]
fn keys_move_under_writes_that_are_synced() {
    keys_move_under_writes(&[("appendfsync", "always"), ("server-threads", "2")], 2);
}

#[test]
fn what_is_written_after_a_flush_is_there_after_a_restart() {
    let mut cluster = NodeCluster::start(Placement::Slots, 2, &[]);
    let keys = cluster.keys_of(0, "away:", 2);
    let mut client = cluster.client(1);
    for key in &keys {
        assert_eq!(client.say(&format!("SET {key} before")), ok());
    }
    cluster.move_key(0, &keys[0], Some(1));
    assert_eq!(client.say("FLUSHALL"), ok());
    assert_eq!(client.say("DBSIZE"), int(0));
    for key in &keys {
        assert_eq!(client.say(&format!("SET {key} after")), ok());
    }
    let dir = cluster.end_node(0);
    cluster.start_node(0, dir);
    cluster.wait_until_home();
    for key in &keys {
        assert_eq!(cluster.client(0).say(&format!("GET {key}")), bulk("after"));
    }
    assert_eq!(cluster.client(0).say("DBSIZE"), int(2));
}

#[test]
fn a_server_alone_is_a_cluster_of_one_and_stays_it() {
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let mut ids = BTreeSet::new();
    // No pause of a loaded machine ends it: what was counted then and had no answer would be counted once more.
    let lease = [("cluster-lease", "60000")];
    for round in 0..2 {
        let served = Served::node(dir.clone(), &lease, None);
        let mut client = served.client();
        crate::client::until("it is not served", || client.say("INCR n") == int(round + 1));
        let info = text(&client.say("CLUSTER INFO"));
        assert!(info.contains("cluster_state:ok"), "{info}");
        ids.insert(text(&client.say("CLUSTER MYID")));
        served.end();
    }
    assert_eq!(ids.len(), 1, "the node of a store is always the same");
}

/// A key as another store exported it.
fn exported(key: &str, value: &str) -> terrace_keyspace::ExportedKey {
    let dir = tempfile::tempdir().unwrap();
    let space = Keyspace::open(dir.path(), terrace::Options::default()).unwrap();
    let mut batch = space.command_batch(Mode::Device);
    batch.lock(0, [key.as_bytes()].into_iter()).unwrap();
    batch.put(0, key.as_bytes(), value.as_bytes(), &PutOptions::default()).unwrap();
    batch.commit().unwrap();
    let (keys, id) = ([DbKey::new(0, key)], MoveId { epoch: Epoch(1), number: 1 });
    space.begin_move(ShardId(1), id, Direction::Out, ShardId(2), &keys).unwrap();
    let mut values = space.export_home(id, &keys, 1 << 20).unwrap().unwrap();
    space.close().unwrap();
    values.remove(0)
}

#[test]
fn copies_that_late_messages_leave_behind_are_swept() {
    let mut cluster = NodeCluster::start(Placement::Slots, 2, &[]);
    cluster.wait_until_swept();
    let [late, moved] = ["late", "moved"].map(|name| cluster.key_of(0, name));
    let mut client = cluster.client(0);
    assert_eq!(client.say(&format!("SET {moved} 2")), ok());
    let leave_behind = |cluster: &NodeCluster| {
        // An import of a move that was over long ago.
        let id = MoveId { epoch: Epoch(1), number: 1 };
        let space = cluster.one(1).server().space.clone();
        let keys = [DbKey::new(0, late.clone())];
        space.import_keys(id, &keys, &[exported(&late, "old")]).unwrap().unwrap();
        assert_eq!(cluster.places_of(&late), [1]);
        space
    };
    let space = leave_behind(&cluster);
    cluster.move_key(0, &moved, Some(1));
    crate::client::until("it is not swept after a move", || cluster.places_of(&late).is_empty());
    // The store shows that it is gone before the device has synced it, and its record stays until then.
    cluster.wait_until_swept();
    let copies = space.move_state().copies.into_iter().map(|(key, _)| key);
    assert_eq!(copies.collect::<Vec<_>>(), [DbKey::new(0, &*moved)], "the other one stays");
    leave_behind(&cluster);
    let dir = cluster.end_node(0);
    cluster.start_node(0, dir);
    cluster.wait_until_home();
    crate::client::until("it is not swept by a new owner", || cluster.places_of(&late).is_empty());
    assert_eq!(cluster.client(0).say(&format!("GET {late}")), Reply::Null);
}

#[test]
fn absorb_moves_what_a_store_cannot_keep_in_memory() {
    let flags = [("hot-table", "auto"), ("maxmemory", "8mb"), ("cluster-plan-keys", "2000")];
    let cluster = NodeCluster::start(Placement::Slots, 2, &flags);
    let space = &cluster.one(0).server().space;
    let (memtable, value) = (space.db().memtable_bytes(), "v".repeat(900));
    // More than half of a memtable, which is what it keeps hot; less than one.
    let keys = cluster.keys_of(0, "hot:", memtable * 6 / 10 / 950);
    let sets: Vec<String> = keys.iter().map(|key| format!("SET {key} {value}")).collect();
    let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
    let mut client = cluster.client(0);
    for _ in 0..12 {
        assert!(client.pipeline(&sets).iter().all(|reply| *reply == ok()));
        space.db().flush().unwrap();
    }
    let member = cluster.membership(0);
    let plan = member.node().repartition(&PlanSpec::Absorb, 2000);
    let done = member.runtime().block_on(plan).unwrap();
    assert!(done.failed.is_empty() && done.moves > 0, "{done:?}, of {} keys", keys.len());
    assert!(done.plan_keys < keys.len() / 2, "{done:?}, of {} keys", keys.len());
    crate::client::until("the keys are not moved", || {
        cluster.one(1).server().space.move_state().copies.len() == done.plan_keys
    });
    for key in &keys {
        assert_eq!(cluster.client(1).say(&format!("GET {key}")), bulk(&value));
    }
}
