//! Whole nodes in one process, on the loopback interface: a store in memory that follows the rules of
//! `terrace-cluster`, and a front that knows `GET key`, `SET key value` and `INCR key`.

#![allow(dead_code, reason = "each test binary uses its part")]

mod front;
mod metadata;
mod store;

pub use front::Front;
pub use metadata::Cuttable;
pub use store::MemoryStore;

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use terrace_cluster::{
    CommandExecutor, IncomingCall, KeyRange, NodeId, Placement, Reply, ShardId, Unserved,
};
use terrace_metadata::Metadata;
use terrace_node::rpc::LinkOptions;
use terrace_node::{BootClock, Node, NodeConfig, create_cluster, join_store};

/// Waiting for longer than this is a hang.
pub const HANG: Duration = Duration::from_secs(600);

/// The lease of nodes in tests that wait for the end of one. A pause of a loaded machine may end one, too: what needs
/// one to hold is tried again.
const SHORT_LEASE: Duration = Duration::from_secs(2);

/// The lease of all others: no pause of a loaded machine ends it.
pub const LONG_LEASE: Duration = Duration::from_secs(60);

/// Waits until there is something.
pub async fn wait_for<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(start.elapsed() < HANG, "waited for {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The machine's time, and what is added to it.
#[derive(Default)]
pub struct SkippingClock {
    skipped_ms: AtomicU64,
}

impl SkippingClock {
    /// As if the process had been stopped for this long.
    pub fn skip(&self, time: Duration) {
        self.skipped_ms.fetch_add(time.as_millis() as u64, Ordering::SeqCst);
    }
}

impl BootClock for SkippingClock {
    fn now_ms(&self) -> u64 {
        terrace_node::SystemBootClock.now_ms() + self.skipped_ms.load(Ordering::SeqCst)
    }
}

/// The executor of a node, which is there before the node's coordinator.
#[derive(Default)]
struct LateFront(Mutex<Option<Arc<Front>>>);

impl CommandExecutor for LateFront {
    fn execute(&self, call: IncomingCall, done: Box<dyn FnOnce(Reply) + Send>) {
        // Not locked while it executes: that may come here again.
        let front = self.0.lock().clone();
        match front {
            Some(front) => front.incoming(call, done),
            None => done(Err(Unserved::NoTopology)),
        }
    }
}

/// A node with what is outside of it.
pub struct TestNode {
    pub store: Arc<MemoryStore>,
    pub metadata: Arc<Cuttable>,
    pub clock: Arc<SkippingClock>,
    pub front: Arc<Front>,
    pub node: Option<Arc<Node>>,
    cluster: String,
    lease: Duration,
}

impl TestNode {
    pub fn id(&self) -> NodeId {
        self.store.id()
    }

    /// As `kill -9`: nothing is given up.
    pub fn kill(&mut self) {
        self.front.stop();
        drop(self.node.take());
    }

    /// Starts it on what it has.
    pub async fn start(&mut self, change: impl FnOnce(&mut NodeConfig)) {
        let mut config = NodeConfig::local(&self.cluster, "127.0.0.1:1");
        config.lease = self.lease;
        // A busy machine makes no hand-over take too long.
        config.hand_over = self.lease;
        (config.leave, config.hold_limit) = (HANG, HANG);
        // What a test waits for when a node is away is that it does not answer, not that it is slow.
        let patience = (self.lease / 3).max(LinkOptions::default().timeout);
        config.links = LinkOptions { timeout: patience, ping: patience };
        config.clock = self.clock.clone();
        change(&mut config);
        let late = Arc::new(LateFront::default());
        let (metadata, store) = (self.metadata.clone(), self.store.clone());
        let node = Node::start(config, metadata, store, late.clone()).await.unwrap();
        self.front = Front::new(node.coordinator(), self.store.clone());
        *late.0.lock() = Some(self.front.clone());
        self.node = Some(Arc::new(node));
    }

    pub fn node(&self) -> &Node {
        self.node.as_ref().unwrap()
    }
}

/// Shards for the nodes of these stores, in this order, with equal parts of the slots.
pub fn shards_of(stores: &[Arc<MemoryStore>], name: &str) -> Vec<(ShardId, NodeId, Vec<KeyRange>)> {
    let count = stores.len();
    let shard = |(number, store): (usize, &Arc<MemoryStore>)| {
        let first = 16_384 * number / count;
        let last = 16_384 * (number + 1) / count - 1;
        let ranges = vec![KeyRange::Slots(first as u16, last as u16)];
        (ShardId(number as u32 + 1), join_store(&**store, name).unwrap(), ranges)
    };
    stores.iter().enumerate().map(shard).collect()
}

async fn create(metadata: &dyn Metadata, stores: &[Arc<MemoryStore>], name: &str) {
    let shards = shards_of(stores, name);
    assert!(create_cluster(metadata, name, Placement::Slots, &shards).await.unwrap());
}

/// A cluster in which node `n` has the instance of shard `n + 1`, with equal parts of the slots.
pub struct TestCluster {
    pub nodes: Vec<TestNode>,
}

impl TestCluster {
    pub async fn start(metadata: Arc<dyn Metadata>, count: usize, name: &str) -> Self {
        Self::start_with(metadata, count, name, LONG_LEASE).await
    }

    /// With leases that end after two seconds.
    pub async fn start_leased(metadata: Arc<dyn Metadata>, count: usize, name: &str) -> Self {
        Self::start_with(metadata, count, name, SHORT_LEASE).await
    }

    async fn start_with(
        metadata: Arc<dyn Metadata>,
        count: usize,
        name: &str,
        lease: Duration,
    ) -> Self {
        let stores = (1..=count as u32).map(|number| Arc::new(MemoryStore::new(ShardId(number))));
        let stores: Vec<_> = stores.collect();
        create(&*metadata, &stores, name).await;
        let cluster = Self::waiting_with(metadata, &stores, name, lease).await;
        cluster.wait_until_served().await;
        cluster
    }

    /// Makes a cluster of the nodes of these stores, in this order, and starts them.
    pub async fn start_on(
        metadata: Arc<dyn Metadata>,
        stores: &[Arc<MemoryStore>],
        name: &str,
    ) -> Self {
        create(&*metadata, stores, name).await;
        Self::waiting(metadata, stores, name).await
    }

    /// Starts nodes on these stores.
    pub async fn waiting(
        metadata: Arc<dyn Metadata>,
        stores: &[Arc<MemoryStore>],
        name: &str,
    ) -> Self {
        Self::waiting_with(metadata, stores, name, LONG_LEASE).await
    }

    async fn waiting_with(
        metadata: Arc<dyn Metadata>,
        stores: &[Arc<MemoryStore>],
        name: &str,
        lease: Duration,
    ) -> Self {
        let node = |store: &Arc<MemoryStore>| TestNode {
            front: Front::nowhere(store.clone()),
            store: store.clone(),
            metadata: Arc::new(Cuttable::new(metadata.clone())),
            clock: Arc::default(),
            node: None,
            cluster: name.to_string(),
            lease,
        };
        let mut cluster = Self { nodes: stores.iter().map(node).collect() };
        for node in &mut cluster.nodes {
            node.start(|_| {}).await;
        }
        cluster
    }

    /// Waits until each node serves the shard of its instance, and all see it.
    pub async fn wait_until_served(&self) {
        for number in 0..self.nodes.len() {
            self.wait_until_served_by(number, number).await;
        }
    }

    /// Waits until a node serves a shard, and all nodes that run see it.
    pub async fn wait_until_served_by(&self, shard: usize, node: usize) {
        let id = self.nodes[node].id();
        for seen_by in self.nodes.iter().filter(|node| node.node.is_some()) {
            wait_for("the owner to be seen", async || {
                let topology = seen_by.node().coordinator().topology()?;
                let owner = topology.shards[&ShardId(shard as u32 + 1)].owner?;
                (owner.is_claimed && owner.node == id).then_some(())
            })
            .await;
        }
        wait_for("the shard to be served", async || {
            let status = self.nodes[node].node().status().await;
            status.shards.iter().find(|it| it.shard == shard as u32 + 1).map(|_| ())
        })
        .await;
    }

    /// Keys of the shard of node `number`.
    pub fn keys_of(&self, number: usize, count: usize) -> Vec<String> {
        let topology = self.nodes[0].node().coordinator().topology().unwrap();
        let mine = |key: &String| topology.shard_of(key.as_bytes()) == ShardId(number as u32 + 1);
        (0..).map(|n| format!("key-{n}")).filter(mine).take(count).collect()
    }

    /// How many stores have a key, hidden copies not counted.
    pub fn places_of(&self, key: &str) -> usize {
        self.nodes.iter().filter(|node| node.store.has(key)).count()
    }
}
