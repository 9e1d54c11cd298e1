//! Several servers in this process that are one cluster, with metadata that they share, and links over the
//! loopback interface.

use crate::client::{Client, until};
use crate::ranges::range;
use crate::served::Served;
use std::sync::Arc;
use tempfile::TempDir;
use terrace::{Db, Options, SystemClock};
use terrace_cluster::{Coordinator, DbKey, Placement, ShardId};
use terrace_keyspace::Mode;
use terrace_metadata::{Embedded, Metadata};
use terrace_node::create_cluster;
use terrace_resp::Reply;
use terrace_server::cluster::Membership;

/// See the module. Node `n` has the instance of shard `n + 1`.
pub struct NodeCluster {
    pub served: Vec<Option<Served>>,
    metadata: Arc<dyn Metadata>,
    flags: Vec<(String, String)>,
    _metadata_dir: TempDir,
}

impl NodeCluster {
    pub fn start(placement: Placement, count: usize, flags: &[(&str, &str)]) -> Self {
        let metadata_dir = tempfile::tempdir().unwrap();
        let db = Db::open(metadata_dir.path(), Options::default()).unwrap();
        let metadata = Embedded::open(&db, Arc::new(SystemClock::default())).unwrap();
        let placement_name = placement.to_string();
        let own = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
        let mut flags: Vec<_> = flags.iter().map(own).collect();
        flags.push(("cluster-placement".into(), placement_name));
        // No lease ends because the machine is busy.
        flags.push(("cluster-lease".into(), "60000".into()));
        let mut this = Self {
            served: (0..count).map(|_| None).collect(),
            metadata: Arc::new(metadata),
            flags,
            _metadata_dir: metadata_dir,
        };
        for at in 0..count {
            this.start_node(at, Arc::new(tempfile::tempdir().unwrap()));
        }
        let shards: Vec<_> = (0..count)
            .map(|at| {
                let id = ShardId(at as u32 + 1);
                (id, this.membership(at).id(), vec![range(placement, at, count)])
            })
            .collect();
        let create = create_cluster(&*this.metadata, "terrace", placement, &shards);
        assert!(this.membership(0).runtime().block_on(create).unwrap());
        // A node that is slow for half a second is preceded by another one, which moves no keys, and hands the shard over
        // after a second: to an owner that sweeps it.
        this.wait_until_home();
        this
    }

    /// Starts a node on a directory.
    pub fn start_node(&mut self, at: usize, dir: Arc<TempDir>) {
        let flags: Vec<_> = self.flags.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        self.served[at] = Some(Served::node(dir, &flags, Some(&self.metadata)));
    }

    /// Ends a node politely, and gives its directory.
    pub fn end_node(&mut self, at: usize) -> Arc<TempDir> {
        self.served[at].take().unwrap().end()
    }

    pub fn one(&self, at: usize) -> &Served {
        self.served[at].as_ref().unwrap()
    }

    pub fn membership(&self, at: usize) -> &Membership {
        self.one(at).running().membership().unwrap()
    }

    pub fn coordinator(&self, at: usize) -> Arc<dyn Coordinator> {
        self.membership(at).coordinator()
    }

    pub fn client(&self, at: usize) -> Client {
        self.one(at).client()
    }

    /// Waits until every node that runs answers for every shard.
    pub fn wait_until_served(&self) {
        for at in (0..self.served.len()).filter(|at| self.served[*at].is_some()) {
            until("a node does not know the cluster", || self.coordinator(at).topology().is_some());
            let mut client = self.client(at);
            for of in 0..self.served.len() {
                let key = self.key_of(of, "waited-for-");
                until("a shard is not served", || {
                    !matches!(client.say(&format!("GET {key}")), Reply::Error(_))
                });
            }
        }
    }

    /// Waits until each shard is owned by the node of its instance, and all know it.
    pub fn wait_until_home(&self) {
        for at in (0..self.served.len()).filter(|at| self.served[*at].is_some()) {
            until("a shard did not come back to its node", || {
                self.coordinator(at).topology().is_some_and(|topology| {
                    topology.shards.values().all(|shard| {
                        shard.owner.is_some_and(|it| it.is_claimed && it.node == shard.instance)
                    })
                })
            });
        }
        self.wait_until_served();
    }

    /// Waits until no owner looks for copies that were left behind: it would drop those that a test makes
    /// behind its back. It looks when it takes a shard over, and after moves.
    pub fn wait_until_swept(&self) {
        for at in (0..self.served.len()).filter(|at| self.served[*at].is_some()) {
            let member = self.membership(at);
            until("an owner still asks for copies", || {
                let status = member.runtime().block_on(member.node().status());
                status.shards.iter().all(|shard| !shard.is_sweeping)
            });
        }
    }

    /// Keys of the shard of node `at`.
    pub fn keys_of(&self, at: usize, name: &str, count: usize) -> Vec<String> {
        let running = self.served.iter().position(Option::is_some).unwrap();
        let topology = self.coordinator(running).topology().unwrap();
        let is_of = |key: &String| topology.shard_of(key.as_bytes()) == ShardId(at as u32 + 1);
        let names = (0..26 * count as u32 * 100).map(|number| match topology.placement {
            Placement::Slots => format!("{name}{number}"),
            Placement::Range => format!("{}{name}{number}", char::from(b'a' + (number % 26) as u8)),
        });
        names.filter(is_of).take(count).collect()
    }

    pub fn key_of(&self, at: usize, name: &str) -> String {
        self.keys_of(at, name, 1).remove(0)
    }

    /// Moves a key to the store of a node, by way of any node.
    pub fn move_key(&self, by: usize, key: &str, to: Option<usize>) {
        let member = self.membership(by);
        let to = to.map(|at| ShardId(at as u32 + 1));
        let moved = member.node().move_key(DbKey::new(0, key), to);
        member.runtime().block_on(moved).unwrap();
    }

    /// The nodes whose stores have a string, or anything else, under a key. A step of a move that is not over yet may have
    /// changed that, and not the records of the store (`move_state`), which follow when the device has synced it.
    pub fn places_of(&self, key: &str) -> Vec<usize> {
        let has = |at: &usize| {
            let mut batch = self.one(*at).server().space.command_batch(Mode::Device);
            batch.exists(0, [key.as_bytes()].into_iter()).unwrap() == 1
        };
        (0..self.served.len()).filter(has).collect()
    }
}
