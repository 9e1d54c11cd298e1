//! What happens to a cluster, on any metadata: each scenario proves that its fault happened.

use crate::harness::{LONG_LEASE, TestCluster, wait_for};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use terrace_cluster::{
    CallTarget, DbKey, Epoch, OutgoingCall, PlanSpec, ReplyProtocol, ShardCall, ShardId, Unserved,
};
use terrace_metadata::Metadata;

/// Clients that count up keys through all nodes, and what became of it.
struct Load {
    stop: Arc<AtomicBool>,
    clients: tokio::task::JoinSet<()>,
    keys: Vec<String>,
    acked: Arc<Vec<AtomicU64>>,
    unknown: Arc<Vec<AtomicU64>>,
}

impl Load {
    fn start(cluster: &TestCluster, keys: &[String], fronts: &[usize]) -> Self {
        let counts = || Arc::new(keys.iter().map(|_| AtomicU64::new(0)).collect::<Vec<_>>());
        let (acked, unknown) = (counts(), counts());
        let stop = Arc::new(AtomicBool::new(false));
        let mut clients = tokio::task::JoinSet::new();
        for (number, front) in fronts.iter().enumerate() {
            let front = cluster.nodes[*front].front.clone();
            let (stop, acked, unknown) = (stop.clone(), acked.clone(), unknown.clone());
            let keys = keys.to_vec();
            clients.spawn(async move {
                let mut at = number;
                while !stop.load(Ordering::SeqCst) {
                    at = (at + 1) % keys.len();
                    match front.run(&format!("INCR {}", keys[at])).await {
                        Ok(_) => _ = acked[at].fetch_add(1, Ordering::SeqCst),
                        Err(_) => {
                            unknown[at].fetch_add(1, Ordering::SeqCst);
                            tokio::time::sleep(Duration::from_millis(5)).await;
                        }
                    }
                }
            });
        }
        Self { stop, clients, keys: keys.to_vec(), acked, unknown }
    }

    fn acked(&self) -> u64 {
        self.acked.iter().map(|count| count.load(Ordering::SeqCst)).sum()
    }

    fn unknown(&self) -> u64 {
        self.unknown.iter().map(|count| count.load(Ordering::SeqCst)).sum()
    }

    /// Waits until this many more commands were acknowledged.
    async fn let_pass(&self, more: u64) {
        let target = self.acked() + more;
        wait_for("acknowledged writes", async || (self.acked() >= target).then_some(())).await;
    }

    /// Ends the load. Every key has at least what was acknowledged, and no more than what was sent.
    async fn check(mut self, cluster: &TestCluster, by: usize) {
        self.stop.store(true, Ordering::SeqCst);
        while let Some(ended) = self.clients.join_next().await {
            ended.unwrap();
        }
        for (at, key) in self.keys.iter().enumerate() {
            let value = wait_for("a read", async || {
                let value = cluster.nodes[by].front.run(&format!("GET {key}")).await.ok()?;
                String::from_utf8(value).unwrap().parse::<u64>().ok()
            });
            let value = value.await;
            let acked = self.acked[at].load(Ordering::SeqCst);
            let sent = acked + self.unknown[at].load(Ordering::SeqCst);
            assert!((acked..=sent).contains(&value), "{key}: {acked} <= {value} <= {sent}");
            assert_eq!(cluster.places_of(key), 1, "{key} is at one place");
        }
    }
}

/// Keys go out, to another instance, and home, while clients write them. No client sees an error.
pub async fn keys_move_under_load(metadata: Arc<dyn Metadata>) {
    let cluster = TestCluster::start(metadata, 3, "moves").await;
    let keys = cluster.keys_of(0, 4);
    let load = Load::start(&cluster, &keys, &[0, 1, 2, 1]);
    load.let_pass(50).await;
    // Asked for at any node.
    for (round, to) in [Some(2), Some(3), None, Some(3), Some(2), Some(1)].into_iter().enumerate() {
        let to = to.map(ShardId);
        for key in &keys {
            let node = cluster.nodes[round % 3].node();
            // From one instance to another, a key goes by way of home.
            node.move_key(DbKey::new(0, key.clone()), to).await.unwrap();
            let at = to.map_or(0, |shard| shard.0 as usize - 1);
            assert!(cluster.nodes[at].store.has(key), "{key} is at {at}");
        }
        load.let_pass(50).await;
    }
    assert!(
        cluster.nodes[1].store.steps("import") >= 8 && cluster.nodes[2].store.steps("drop") >= 8
    );
    assert_eq!(load.unknown(), 0, "no client sees an error");
    let status = cluster.nodes[0].node().status().await;
    assert!(status.moved_keys >= 24, "{status:?}");
    load.check(&cluster, 1).await;
}

/// The partitioner moves the hottest keys, and moves nothing the second time.
pub async fn the_hottest_keys_are_moved(metadata: Arc<dyn Metadata>) {
    let cluster = TestCluster::start(metadata, 2, "plans").await;
    let node = cluster.nodes[0].node();
    let keys = cluster.keys_of(1, 30);
    for (heat, key) in keys.iter().enumerate() {
        for _ in 0..=heat {
            cluster.nodes[0].front.run(&format!("INCR {key}")).await.unwrap();
        }
    }
    let spec: PlanSpec = "top-n-to-one:10:1".parse().unwrap();
    let done = node.repartition(&spec, 100).await.unwrap();
    assert_eq!((done.plan_keys, done.moves, &done.failed[..]), (10, 10, &[][..]));
    let moved = wait_for("the moves", async || {
        let status = cluster.nodes[1].node().status().await;
        let shard = status.shards.iter().find(|shard| shard.shard == 2)?.clone();
        (shard.exceptions == 10 && shard.moves.is_empty()).then_some(())
    });
    moved.await;
    for (heat, key) in keys.iter().enumerate() {
        assert_eq!(cluster.nodes[0].store.has(key), heat >= 20, "{key}");
        let value = cluster.nodes[1].front.run(&format!("GET {key}")).await.unwrap();
        assert_eq!(String::from_utf8(value).unwrap(), (heat + 1).to_string());
    }
    // What nobody writes any more comes home.
    let done = node.repartition(&spec, 100).await.unwrap();
    assert_eq!((done.plan_keys, done.moves), (0, 10));
    let home = wait_for("the way home", async || {
        keys.iter().all(|key| cluster.nodes[1].store.has(key)).then_some(())
    });
    home.await;
    let unknown = node.repartition(&"top-n-to-one:5:9".parse().unwrap(), 100).await;
    assert!(unknown.unwrap_err().to_string().contains("no shard 9"));
    let to_nowhere = node.move_key(DbKey::new(0, "x"), Some(ShardId(7))).await;
    assert!(to_nowhere.unwrap_err().to_string().contains("no shard 7"));
}

/// A node is killed and started again on its store: what was acknowledged is there, and moves that were
/// under way are settled.
pub async fn a_killed_node_takes_its_shard_over_again(metadata: Arc<dyn Metadata>) {
    let mut cluster = TestCluster::start_leased(metadata, 2, "kill").await;
    let keys = cluster.keys_of(0, 3);
    let load = Load::start(&cluster, &keys, &[1, 1]);
    load.let_pass(50).await;
    for (round, key) in keys.iter().enumerate() {
        // At a moment that nobody chose: somewhere in a move.
        let key = DbKey::new(0, key.clone());
        let peer = cluster.nodes[1].node();
        let moving = peer.move_key(key, Some(ShardId(2)));
        let _ = tokio::time::timeout(Duration::from_millis(round as u64), moving).await;
        let epoch = wait_for("an owner", async || epoch_of(&cluster, 1, 1)).await;
        let unknown = load.unknown();
        cluster.nodes[0].kill();
        wait_for("clients to notice", async || (load.unknown() > unknown).then_some(())).await;
        let started = Instant::now();
        cluster.nodes[0].start(|_| {}).await;
        cluster.wait_until_served_by(0, 0).await;
        println!("served again {} ms after the start", started.elapsed().as_millis());
        // The other node may hear of it a moment later.
        let later = async || epoch_of(&cluster, 1, 1).filter(|now| *now > epoch);
        wait_for("another term", later).await;
        // The clients' front follows the new address.
        load.let_pass(50).await;
    }
    load.check(&cluster, 1).await;
}

fn epoch_of(cluster: &TestCluster, seen_by: usize, shard: u32) -> Option<Epoch> {
    let topology = cluster.nodes[seen_by].node().coordinator().topology()?;
    Some(topology.shards[&ShardId(shard)].owner?.epoch)
}

/// A node is cut from the metadata only: its lease ends, it serves nothing, another one takes its shard
/// over at the same instance, and gives it back.
pub async fn a_node_without_metadata_is_replaced(metadata: Arc<dyn Metadata>) {
    let cluster = TestCluster::start_leased(metadata, 2, "cut").await;
    let keys = cluster.keys_of(0, 3);
    let load = Load::start(&cluster, &keys, &[0, 1]);
    load.let_pass(50).await;
    let away = DbKey::new(0, keys[0].clone());
    let by = cluster.nodes[1].node();
    wait_for("a move", async || by.move_key(away.clone(), Some(ShardId(2))).await.ok()).await;
    let old = wait_for("an owner", async || epoch_of(&cluster, 1, 1)).await;
    let cut = Instant::now();
    cluster.nodes[0].metadata.cut(true);
    wait_for("the other node to serve it", async || {
        let status = cluster.nodes[1].node().status().await;
        status.shards.iter().find(|shard| shard.shard == 1).map(|_| ())
    })
    .await;
    println!("taken over {} ms after the cut, lease 2 s", cut.elapsed().as_millis());
    assert!(cluster.nodes[0].metadata.refused() > 0, "the cut happened");
    // It may serve before the topology that its commands are routed by says so.
    let later = async |than: Epoch| epoch_of(&cluster, 1, 1).filter(|now| *now > than);
    let term = wait_for("another term", async || later(old).await).await;
    // The old owner answers nothing, and its epoch is refused by the instance, which is its own.
    let reply = cluster.nodes[0].front.run(&format!("GET {}", keys[1])).await;
    assert_eq!(reply, Err(Unserved::NoOwner(ShardId(1))));
    let instance = cluster.nodes[0].id();
    let stale = ShardCall { instance, shard: ShardId(1), epoch: old };
    let refused = cluster.nodes[0].node().coordinator().admit(stale).map(|_| ());
    assert!(matches!(refused, Err(Unserved::Moved(_))), "{refused:?}");
    // Through the other node all goes on, exceptions too.
    let before = load.acked();
    wait_for("writes", async || (load.acked() > before + 50).then_some(())).await;
    for key in &keys {
        let get = format!("GET {key}");
        wait_for("a read", async || cluster.nodes[1].front.run(&get).await.ok()).await;
    }
    // Back again: the shard is handed over to the node of its instance.
    cluster.nodes[0].metadata.cut(false);
    cluster.wait_until_served_by(0, 0).await;
    wait_for("a third term", async || later(term).await).await;
    load.let_pass(50).await;
    load.check(&cluster, 1).await;
}

/// A node stands still for longer than its lease (as by SIGSTOP, or between the read and the reply):
/// what it read before is not shown after.
pub async fn what_was_read_before_a_pause_is_not_shown(metadata: Arc<dyn Metadata>) {
    let cluster = TestCluster::start(metadata, 2, "pause").await;
    let keys = cluster.keys_of(0, 2);
    let (key, away) = (&keys[0], &keys[1]);
    let node = &cluster.nodes[0];
    node.front.run(&format!("SET {key} 1")).await.unwrap();
    node.front.run(&format!("SET {away} 1")).await.unwrap();
    node.node().move_key(DbKey::new(0, away.clone()), Some(ShardId(2))).await.unwrap();
    let coordinator = node.node().coordinator();
    let guard = coordinator.guard();
    assert_eq!(coordinator.route(0, key.as_bytes()), terrace_cluster::Route::Local);
    assert!(guard.may_reply());
    let elsewhere = coordinator.route(0, away.as_bytes());
    let terrace_cluster::Route::Instance(elsewhere) = elsewhere else { panic!("{elsewhere:?}") };
    // No keep-alive may bring it back meanwhile.
    node.metadata.cut(true);
    node.clock.skip(LONG_LEASE);
    assert!(!guard.may_reply(), "after the read, before the reply");
    let no_owner = Unserved::NoOwner(ShardId(1));
    let route = coordinator.route(0, key.as_bytes());
    assert_eq!(route, terrace_cluster::Route::Unserved(no_owner));
    // Nor what another instance replies, which may have executed it.
    let requests = Arc::new(format!("GET {away}").into_bytes());
    let call = OutgoingCall { db: 0, protocol: ReplyProtocol::Resp2, requests };
    let (done, reply) = tokio::sync::oneshot::channel();
    let done = Box::new(move |reply| _ = done.send(reply));
    coordinator.call(CallTarget::Instance(elsewhere), call, done);
    assert_eq!(reply.await.unwrap(), Err(Unserved::Unreachable(node.id())));
    drop(guard);
    node.metadata.cut(false);
    cluster.wait_until_served().await;
    wait_for("reads", async || node.front.run(&format!("GET {key}")).await.ok()).await;
}

/// A drained node serves nothing, and does again when that is over. Commands wait while their shard changes its owner.
pub async fn a_drained_node_gives_its_shards_up(metadata: Arc<dyn Metadata>) {
    let cluster = TestCluster::start(metadata, 2, "drain").await;
    let keys = cluster.keys_of(0, 2);
    let load = Load::start(&cluster, &keys, &[1]);
    load.let_pass(20).await;
    let drained = cluster.nodes[0].id();
    cluster.nodes[1].node().drain(drained, false).await.unwrap();
    assert!(cluster.nodes[0].node().status().await.shards.is_empty());
    cluster.wait_until_served_by(0, 1).await;
    load.let_pass(20).await;
    // Nobody would take its shards.
    let other = cluster.nodes[1].id();
    for by in &cluster.nodes {
        let refused = by.node().drain(other, false).await.unwrap_err().to_string();
        assert!(refused.contains("no other node that is alive"), "{refused}");
    }
    assert!(!cluster.nodes[1].node().figures().is_draining);
    load.let_pass(20).await;
    cluster.nodes[1].node().drain(drained, true).await.unwrap();
    cluster.wait_until_served_by(0, 0).await;
    load.let_pass(20).await;
    cluster.nodes[0].node().drain(other, false).await.unwrap();
    cluster.wait_until_served_by(1, 0).await;
    cluster.nodes[0].node().drain(other, true).await.unwrap();
    cluster.wait_until_served_by(1, 1).await;
    load.let_pass(20).await;
    assert_eq!(load.unknown(), 0, "no client sees a hand-over");
    load.check(&cluster, 1).await;
}

/// Of two nodes that are drained at the same time one goes on, or both.
pub async fn two_drains_at_once_leave_a_node_that_serves(metadata: Arc<dyn Metadata>) {
    let cluster = TestCluster::start(metadata, 2, "drains").await;
    let keys = [cluster.keys_of(0, 2), cluster.keys_of(1, 2)].concat();
    let load = Load::start(&cluster, &keys, &[0, 1]);
    let [one, other] = [0, 1].map(|at: usize| &cluster.nodes[at]);
    for _ in 0..3 {
        load.let_pass(20).await;
        let (first, second) =
            tokio::join!(one.node().drain(other.id(), false), other.node().drain(one.id(), false));
        assert!(first.is_err() || second.is_err(), "nobody takes shards");
        load.let_pass(20).await;
        for node in [one, other] {
            node.node().drain(node.id(), true).await.unwrap();
        }
        cluster.wait_until_served().await;
    }
    load.check(&cluster, 1).await;
}
