//! A cluster of processes with real etcd: what happens to acknowledged writes when a process is killed, and to
//! reads when one stands still for longer than its lease.

use crate::etcd::{EtcdCluster, continue_process, stop_process};
use crate::recorder::Backoff;
use crate::servers::Process;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tempfile::TempDir;
use terrace_cluster::{KeyRange, NodeId, Placement, ShardId, slot_of};
use terrace_metadata::{Etcd, EtcdOptions};
use terrace_resp::Reply;
use terrace_resp::test_client::{Client, HANG_GUARD, free_port, ok, text, until};

const NODES: usize = 3;

/// The node that owns no shard. Its shard is owned by one of the others.
const INSTANCE_ONLY: usize = 1;

/// Node `n` has the instance of the `n`th third of the slots.
struct Cluster {
    etcd: EtcdCluster,
    nodes: Vec<Process>,
    dirs: Vec<TempDir>,
}

impl Cluster {
    fn start() -> Self {
        let mut cluster = Self { etcd: EtcdCluster::start(1), nodes: Vec::new(), dirs: Vec::new() };
        for at in 0..NODES {
            cluster.dirs.push(tempfile::tempdir().unwrap());
            let node = cluster.process(at);
            cluster.nodes.push(node);
        }
        let shard = |at: usize| {
            let mut id: Option<NodeId> = None;
            until("a node does not join", || {
                let reply = cluster.client(at).say("CLUSTER MYID");
                if let Reply::Bulk(_) = reply {
                    id = text(&reply).parse().ok();
                }
                id.is_some()
            });
            let id = id.unwrap();
            let bound = |at: usize| (16_384 * at / NODES) as u16;
            (ShardId(at as u32 + 1), id, vec![KeyRange::Slots(bound(at), bound(at + 1) - 1)])
        };
        let shards: Vec<_> = (0..NODES).map(shard).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let created = runtime.block_on(async {
            let metadata = Etcd::new(&cluster.etcd.urls(), EtcdOptions::default()).unwrap();
            terrace_node::create_cluster(&metadata, "test", Placement::Slots, &shards).await
        });
        assert!(created.unwrap());
        (0..NODES).for_each(|at| cluster.wait_until_served(at));
        cluster
    }

    /// A node's process on its directory.
    fn process(&self, at: usize) -> Process {
        let port = free_port().to_string();
        let is_coordinator = if at == INSTANCE_ONLY { "no" } else { "yes" };
        let url = self.etcd.url(0);
        let flags = [
            ("--cluster-enabled", "yes"),
            ("--cluster-name", "test"),
            ("--cluster-etcd", &url),
            ("--cluster-port", &port),
            ("--cluster-lease", "2000"),
            ("--cluster-coordinator", is_coordinator),
            ("--maxmemory", "32mb"),
        ];
        let flags: Vec<&str> = flags.iter().flat_map(|(name, value)| [*name, *value]).collect();
        Process::terrace_in(self.dirs[at].path(), &flags)
    }

    fn client(&self, at: usize) -> Client {
        self.nodes[at].connect()
    }

    /// Waits until every shard is served through a node.
    fn wait_until_served(&self, by: usize) {
        for of in 0..NODES {
            let get = format!("GET {}", key_of(of, "waited-for"));
            until("a shard is not served", || {
                let mut client = self.client(by);
                client.send_words(&[&get]);
                matches!(client.try_reply(), Some(Reply::Null | Reply::Bulk(_)))
            });
        }
    }

    /// Whether a node acknowledges a `SET`.
    fn is_set(&self, key: &str, value: &str, by: usize) -> bool {
        let mut client = self.client(by);
        client.send_words(&[&format!("SET {key} {value}")]);
        client.try_reply() == Some(ok())
    }

    /// What a node says to `GET`, once the key's shard is served: it may be handed over at the moment.
    fn get(&self, key: &str, by: usize) -> String {
        let mut found = None;
        until("a shard is not served", || {
            let mut client = self.client(by);
            client.send_words(&[&format!("GET {key}")]);
            found = client.try_reply();
            matches!(found, Some(Reply::Bulk(_)))
        });
        text(&found.unwrap())
    }

    /// The node whose port `CLUSTER SLOTS` shows for a key.
    fn owner_of(&self, key: &str, by: usize) -> Option<usize> {
        let Reply::Array(ranges) = self.client(by).say("CLUSTER SLOTS") else { return None };
        let slot = i64::from(slot_of(key.as_bytes()).number());
        let port = ranges.iter().find_map(|range| match range {
            Reply::Array(parts) => match &parts[..] {
                [Reply::Integer(first), Reply::Integer(last), Reply::Array(node), ..]
                    if (first..=last).contains(&&slot) =>
                {
                    match node[1] {
                        Reply::Integer(port) => Some(port),
                        _ => None,
                    }
                }
                _ => None,
            },
            _ => None,
        })?;
        self.nodes.iter().position(|node| i64::from(node.port) == port)
    }
}

/// A key of the slots of node `of`.
fn key_of(of: usize, name: &str) -> String {
    let is_of = |key: &String| usize::from(slot_of(key.as_bytes()).number()) * NODES / 16_384 == of;
    (0..).map(|number| format!("{name}{number}")).find(is_of).unwrap()
}

/// Clients of one node that count keys up: of each, how often that was acknowledged and how often it was sent.
struct Load {
    stop: Arc<AtomicBool>,
    keys: Vec<String>,
    acked: Arc<Vec<AtomicU64>>,
    sent: Arc<Vec<AtomicU64>>,
    clients: Vec<std::thread::JoinHandle<()>>,
}

impl Load {
    fn start(port: u16, keys: Vec<String>) -> Self {
        let counts = || Arc::new(keys.iter().map(|_| AtomicU64::new(0)).collect::<Vec<_>>());
        let (acked, sent) = (counts(), counts());
        let stop = Arc::new(AtomicBool::new(false));
        let client = |number: usize| {
            let (stop, acked, sent) = (stop.clone(), acked.clone(), sent.clone());
            let keys = keys.clone();
            std::thread::spawn(move || {
                let (mut connection, mut backoff) = (None, Backoff::default());
                let mut at = number;
                while !stop.load(Ordering::SeqCst) {
                    let client = connection.get_or_insert_with(|| connect(port));
                    at = (at + 1) % keys.len();
                    sent[at].fetch_add(1, Ordering::SeqCst);
                    client.send_words(&[&format!("INCR {}", keys[at])]);
                    match client.try_reply() {
                        Some(Reply::Integer(_)) => {
                            acked[at].fetch_add(1, Ordering::SeqCst);
                            backoff = Backoff::default();
                        }
                        Some(Reply::Error(_)) => backoff.wait(),
                        Some(other) => panic!("{other:?}"),
                        None => connection = None,
                    }
                }
            })
        };
        let clients = (0..4).map(client).collect();
        Self { stop, keys, acked, sent, clients }
    }

    fn acked(&self, at: usize) -> u64 {
        self.acked[at].load(Ordering::SeqCst)
    }

    /// Waits until a key was counted up this many times more.
    fn let_pass(&self, at: usize, more: u64) {
        let target = self.acked(at) + more;
        until("no more writes are acknowledged", || self.acked(at) >= target);
    }

    fn unanswered(&self, at: usize) -> u64 {
        self.sent[at].load(Ordering::SeqCst) - self.acked(at)
    }

    /// Ends it. Every acknowledged write is there, and none that was not sent.
    fn check(self, cluster: &Cluster) {
        self.stop.store(true, Ordering::SeqCst);
        for client in self.clients {
            client.join().unwrap();
        }
        for by in 0..NODES {
            for (at, key) in self.keys.iter().enumerate() {
                let value: u64 = cluster.get(key, by).parse().unwrap();
                let (acked, sent) = (self.acked[at].load(Ordering::SeqCst), &self.sent[at]);
                let sent = sent.load(Ordering::SeqCst);
                assert!((acked..=sent).contains(&value), "{key}: {acked} <= {value} <= {sent}");
                println!("{key} by node {by}: {acked} acknowledged, {value} there, {sent} sent");
            }
        }
    }
}

fn connect(port: u16) -> Client {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(HANG_GUARD)).unwrap();
    Client::over(stream)
}

#[test]
#[ignore = "needs etcd; run by cargo xtask test"]
fn processes_are_killed_and_stopped_and_no_acknowledged_write_is_lost() {
    let mut cluster = Cluster::start();
    let keys: Vec<String> = (0..NODES).map(|of| key_of(of, "counted")).collect();
    let load = Load::start(cluster.nodes[INSTANCE_ONLY].port, keys);

    let killed = 2;
    for _ in 0..2 {
        load.let_pass(killed, 200);
        let unanswered = load.unanswered(killed);
        cluster.nodes[killed].kill();
        until("clients notice nothing", || load.unanswered(killed) > unanswered + 4);
        let node = cluster.process(killed);
        cluster.nodes[killed] = node;
        load.let_pass(killed, 200);
    }

    // A node that owns a shard of another store stands still, and what it could answer becomes old.
    let key = key_of(INSTANCE_ONLY, "read");
    until("the key cannot be written", || cluster.is_set(&key, "old", INSTANCE_ONLY));
    let mut owner = None;
    until("nobody owns the shard", || {
        owner = cluster.owner_of(&key, INSTANCE_ONLY);
        owner.is_some()
    });
    let owner = owner.unwrap();
    assert_ne!(owner, INSTANCE_ONLY);
    let mut reader = cluster.client(owner);
    let mut was = None;
    until("the owner does not answer", || {
        reader = cluster.client(owner);
        reader.send_words(&[&format!("GET {key}")]);
        was = reader.try_reply();
        matches!(was, Some(Reply::Bulk(_)))
    });
    assert_eq!(text(&was.unwrap()), "old");
    // The question comes after the pause began, so nothing can have answered it before.
    stop_process(cluster.nodes[owner].id());
    reader.send_words(&[&format!("GET {key}")]);
    until("nobody took the shard over", || cluster.is_set(&key, "new", INSTANCE_ONLY));
    assert_ne!(cluster.owner_of(&key, INSTANCE_ONLY), Some(owner));
    continue_process(cluster.nodes[owner].id());
    let shown = reader.try_reply();
    println!("after the pause: {shown:?}");
    assert!(!matches!(&shown, Some(Reply::Bulk(value)) if &value[..] == b"old"), "{shown:?}");
    (0..NODES).for_each(|at| cluster.wait_until_served(at));
    for at in 0..NODES {
        load.let_pass(at, 100);
        assert_eq!(cluster.get(&key, at), "new");
    }
    load.check(&cluster);
}
