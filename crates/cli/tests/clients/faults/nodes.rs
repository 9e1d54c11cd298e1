//! Three nodes as processes, with etcd, and all that can be done to them.
//!
//! ```text
//! node 0  coordinator   instance of shard 1
//! node 1                instance of shard 2, which node 0 or 2 owns
//! node 2  coordinator   instance of shard 3
//! ```
//! Others reach a node, and a node reaches a member of etcd, through a [`Proxy`] of that way alone.

use super::clock::WallClock;
use super::proxy::Proxy;
use crate::etcd::{EtcdCluster, continue_process, stands_still, stop_process};
use crate::servers::Process;
use serde_json::Value;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;
use terrace_cluster::{KeyRange, NodeId, Placement, ShardId, slot_of};
use terrace_keyspace::{Keyspace, Mode};
use terrace_metadata::{Etcd, EtcdOptions};
use terrace_resp::Reply;
use terrace_resp::test_client::{Client, free_port, text, until};

pub const NODES: usize = 3;

/// The node that owns no shard.
pub const INSTANCE_ONLY: usize = 1;

/// See the module.
pub struct Nodes {
    pub etcd: EtcdCluster,
    pub nodes: Vec<Process>,
    /// To the port for other nodes, of each node.
    pub bus: Vec<Proxy>,
    /// Of each node, to each member.
    pub to_etcd: Vec<Vec<Proxy>>,
    pub clock: WallClock,
    ids: Vec<String>,
    dirs: Vec<TempDir>,
    bus_ports: Vec<u16>,
    lease_ms: u64,
    _clock_dir: TempDir,
}

impl Nodes {
    pub fn start(members: usize, lease_ms: u64) -> Self {
        let etcd = EtcdCluster::start(members);
        let member_port = |at: usize| etcd.url(at).rsplit(':').next().unwrap().parse().unwrap();
        let ways = |_| (0..members).map(|at| Proxy::to(member_port(at))).collect();
        let to_etcd = (0..NODES).map(ways).collect();
        let bus_ports: Vec<u16> = (0..NODES).map(|_| free_port()).collect();
        let clock_dir = tempfile::tempdir().unwrap();
        let mut this = Self {
            bus: bus_ports.iter().map(|port| Proxy::to(*port)).collect(),
            to_etcd,
            etcd,
            nodes: Vec::new(),
            clock: WallClock::compile(clock_dir.path()),
            ids: Vec::new(),
            dirs: (0..NODES).map(|_| tempfile::tempdir().unwrap()).collect(),
            bus_ports,
            lease_ms,
            _clock_dir: clock_dir,
        };
        for at in 0..NODES {
            let node = this.process(at);
            this.nodes.push(node);
        }
        this.create();
        (0..NODES).for_each(|by| this.wait_until_served(by));
        this
    }

    fn create(&mut self) {
        for at in 0..NODES {
            let mut id = None;
            until("a node does not join", || {
                let reply = self.client(at).say("CLUSTER MYID");
                id = matches!(reply, Reply::Bulk(_)).then(|| text(&reply));
                id.is_some()
            });
            self.ids.extend(id);
        }
        let shards: Vec<_> = (0..NODES)
            .map(|at| {
                let bound = |at: usize| (16_384 * at / NODES) as u16;
                let id: NodeId = self.ids[at].parse().unwrap();
                (ShardId(at as u32 + 1), id, vec![KeyRange::Slots(bound(at), bound(at + 1) - 1)])
            })
            .collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let created = runtime.block_on(async {
            let metadata = Etcd::new(&self.etcd.urls(), EtcdOptions::default()).unwrap();
            terrace_node::create_cluster(&metadata, "faults", Placement::Slots, &shards).await
        });
        assert!(created.unwrap());
    }

    fn process(&self, at: usize) -> Process {
        let urls = self.to_etcd[at].iter().map(|way| format!("http://127.0.0.1:{}", way.port));
        let urls = urls.collect::<Vec<_>>().join(",");
        let (port, announced) = (self.bus_ports[at].to_string(), self.bus[at].port.to_string());
        let is_coordinator = if at == INSTANCE_ONLY { "no" } else { "yes" };
        let lease = self.lease_ms.to_string();
        let flags = [
            ("--cluster-enabled", "yes"),
            ("--cluster-name", "faults"),
            ("--cluster-etcd", &urls),
            ("--cluster-port", &port),
            ("--cluster-announce-bus-port", &announced),
            ("--cluster-lease", &lease),
            ("--cluster-coordinator", is_coordinator),
            // It leads, and makes no plan by itself for the time of the test.
            ("--cluster-plan", "absorb"),
            ("--cluster-plan-interval", "86400"),
            ("--maxmemory", "32mb"),
        ];
        let flags: Vec<&str> = flags.iter().flat_map(|(name, value)| [*name, *value]).collect();
        let mut variables = self.clock.environment().to_vec();
        variables.push(("TERRACE_DIE_AT_MOVE_POINT_IN", self.point_file(at)));
        Process::terrace_with(self.dirs[at].path(), &flags, &variables)
    }

    fn point_file(&self, at: usize) -> PathBuf {
        self.dirs[at].path().join("point")
    }

    /// The node dies when it comes to this step of a move; the empty one: it does not.
    pub fn die_at(&self, at: usize, point: &str) {
        std::fs::write(self.point_file(at), point).unwrap();
    }

    /// Starts a node that is dead.
    pub fn start_again(&mut self, at: usize) {
        self.die_at(at, "");
        let node = self.process(at);
        self.nodes[at] = node;
    }

    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(|node| ([127, 0, 0, 1], node.port).into()).collect()
    }

    pub fn client(&self, at: usize) -> Client {
        self.nodes[at].connect()
    }

    /// Sends one command to a node; `None` if there is no reply in a moment.
    pub fn ask(&self, at: usize, words: &[&str]) -> Option<Reply<'static>> {
        ask(self.addresses()[at], words)
    }

    /// Waits until every shard is served through a node.
    pub fn wait_until_served(&self, by: usize) {
        for of in 0..NODES {
            let key = keys_of(of, "waited-for", 1).remove(0);
            until("a shard is not served", || {
                matches!(self.ask(by, &["GET", &key]), Some(Reply::Null | Reply::Bulk(_)))
            });
        }
    }

    /// Waits until all shards are served and nothing is being moved.
    pub fn wait_until_quiet(&self) {
        (0..NODES).for_each(|by| self.wait_until_served(by));
        until("moves do not end", || {
            let Some(status) = self.status(0) else { return false };
            let shards = status["shards"].as_array().unwrap();
            let is_quiet = |shard: &Value| {
                let moves = shard["moves"].as_array().is_some_and(Vec::is_empty);
                shard["is_served"] == true && moves && shard["waiting_moves"] == 0
            };
            shards.len() == NODES && shards.iter().all(is_quiet)
        });
    }

    pub fn status(&self, by: usize) -> Option<Value> {
        let reply = self.ask(by, &["CLUSTER", "STATUS"])?;
        matches!(reply, Reply::Bulk(_)).then(|| serde_json::from_str(&text(&reply)).unwrap())
    }

    /// Which node serves the shard of node `of`, and in which term, as another one says.
    pub fn owner_of(&self, of: usize, by: usize) -> Option<(usize, u64)> {
        let status = self.status(by)?;
        let mut shards = status["shards"].as_array()?.iter();
        let shard = shards.find(|shard| shard["id"] == of as u64 + 1)?;
        let owner = self.ids.iter().position(|id| shard["owner"] == id.as_str())?;
        (shard["is_served"] == true).then(|| (owner, shard["epoch"].as_u64().unwrap()))
    }

    /// Which nodes lead the partitioner, as they say.
    pub fn partitioners(&self, by: usize) -> Vec<usize> {
        let Some(status) = self.status(by) else { return Vec::new() };
        let leads = |node: &&Value| node["report"]["leads_partitioner"] == true;
        let leaders = status["nodes"].as_array().unwrap().iter().filter(leads);
        let at = |node: &Value| self.ids.iter().position(|id| node["id"] == id.as_str());
        leaders.filter_map(at).collect()
    }

    /// Makes a node stand still; returns when it does.
    pub fn stop(&self, at: usize) {
        stop_process(self.nodes[at].id());
    }

    /// Lets one go on that stood still until now.
    pub fn go_on(&self, at: usize) {
        assert!(stands_still(self.nodes[at].id()), "it went on by itself");
        continue_process(self.nodes[at].id());
    }

    /// What each node logged.
    pub fn logs(&self) -> String {
        let log = |(at, node): (usize, &Process)| format!("--- node {at}\n{}", node.log());
        self.nodes.iter().enumerate().map(log).collect()
    }

    /// Ends all nodes politely; every key is in exactly one store then, and no move is open.
    pub fn end_and_check(mut self, keys: &[String]) {
        self.wait_until_quiet();
        self.nodes.iter_mut().for_each(Process::stop);
        let stores: Vec<_> = self.dirs.iter().map(|dir| dir.path().join("store")).collect();
        let spaces: Vec<_> = stores
            .iter()
            .map(|store| {
                let options = terrace::Options::default();
                let placement = Some(Placement::Slots);
                Keyspace::open_without_active_expire(store, options, placement).unwrap()
            })
            .collect();
        for key in keys {
            let has = |at: &usize| {
                let mut batch = spaces[*at].command_batch(Mode::Device);
                batch.exists(0, [key.as_bytes()].into_iter()).unwrap() == 1
            };
            let places: Vec<usize> = (0..NODES).filter(has).collect();
            assert_eq!(places.len(), 1, "{key} is at {places:?}");
        }
        for space in spaces {
            let open =
                space.move_state().homes.into_iter().filter(|(_, home)| home.intent.is_some());
            assert_eq!(open.collect::<Vec<_>>(), []);
            space.close().unwrap();
        }
    }
}

/// Sends one command; `None` if there is no reply in a moment.
pub fn ask(address: SocketAddr, words: &[&str]) -> Option<Reply<'static>> {
    let stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
    let mut client = Client::over(stream);
    client.try_send(words).then(|| client.try_reply())?
}

/// Keys of the slots of node `of`.
pub fn keys_of(of: usize, name: &str, count: usize) -> Vec<String> {
    let is_of = |key: &String| usize::from(slot_of(key.as_bytes()).number()) * NODES / 16_384 == of;
    (0..).map(|number| format!("{name}{number}")).filter(is_of).take(count).collect()
}
