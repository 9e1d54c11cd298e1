//! Epochs that become known at an instance while calls are under way.

use crate::harness::{TestCluster, wait_for};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use terrace::{Db, Options, SystemClock};
use terrace_cluster::{
    CallTarget, DbKey, Epoch, OutgoingCall, ReplyProtocol, Route, ShardCall, ShardId, Unserved,
};
use terrace_metadata::{Embedded, Metadata};

async fn two_nodes(dir: &tempfile::TempDir, name: &str) -> TestCluster {
    let db = Db::open(dir.path(), Options::default()).unwrap();
    let metadata = Arc::new(Embedded::open(&db, Arc::new(SystemClock::default())).unwrap());
    TestCluster::start(metadata, 2, name).await
}

/// A call that is refused while the calls of earlier owners end is sent again and again, and there is always some
/// call under way.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_sent_again_and_again_is_admitted_once_the_earlier_ones_are_gone() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = two_nodes(&dir, "fences").await;
    let coordinator = cluster.nodes[0].node().coordinator();
    let instance = cluster.nodes[0].id();
    let call = ShardCall { instance, shard: ShardId(2), epoch: Epoch(1_000_000) };
    let mut under_way: VecDeque<_> = (0..20).map(|_| coordinator.guard()).collect();
    let mut tries = 0;
    while coordinator.admit(call).is_err() {
        tries += 1;
        assert!(tries < 500_000, "it is never admitted");
        under_way.push_back(coordinator.guard());
        tokio::time::sleep(Duration::from_millis(1)).await;
        under_way.pop_front();
    }
    assert!(tries >= 20, "those of before were waited for: {tries}");
}

/// Every call that comes with a new epoch comes again at once, and a sync of the device may take long.
#[tokio::test(flavor = "multi_thread")]
async fn an_epoch_that_cannot_be_made_durable_is_not_tried_by_each_of_many_calls() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = two_nodes(&dir, "full").await;
    let (coordinator, store) = (cluster.nodes[0].node().coordinator(), &cluster.nodes[0].store);
    let instance = cluster.nodes[0].id();
    let call = ShardCall { instance, shard: ShardId(2), epoch: Epoch(1_000_000) };
    store.refuse_epochs(true);
    let before = store.epoch_tries();
    for _ in 0..400 {
        assert!(coordinator.admit(call).is_err());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    wait_for("the first try", async || (store.epoch_tries() > before).then_some(())).await;
    // One for each half a second, and 400 without a bound.
    let tries = store.epoch_tries() - before;
    assert!(tries < 200, "{tries} tries");
    store.refuse_epochs(false);
    wait_for("the call to be admitted", async || coordinator.admit(call).ok()).await;
}

/// The next owner's first call comes once, and again only when its epoch is known.
#[tokio::test(flavor = "multi_thread")]
async fn a_later_epoch_does_not_wait_for_an_earlier_one_that_could_not_be_made_durable() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = two_nodes(&dir, "later").await;
    let (coordinator, store) = (cluster.nodes[0].node().coordinator(), &cluster.nodes[0].store);
    let instance = cluster.nodes[0].id();
    let call = |epoch| ShardCall { instance, shard: ShardId(2), epoch: Epoch(epoch) };
    store.refuse_epochs(true);
    let before = store.epoch_tries();
    assert!(coordinator.admit(call(1_000_000)).is_err());
    wait_for("the first try", async || (store.epoch_tries() > before).then_some(())).await;
    store.refuse_epochs(false);
    assert!(coordinator.admit(call(1_000_001)).is_err());
    wait_for("the later one", async || (store.epoch_tries() > before + 1).then_some(())).await;
}

/// Without its lease nothing that it has executed may be answered.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_leaves_answers_what_is_under_way() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = two_nodes(&dir, "leaving").await;
    let node = cluster.nodes[0].node.clone().unwrap();
    let under_way = node.coordinator().guard();
    let leaving = tokio::spawn(async move { node.leave().await });
    // The other node claims the shard: a claim is given up after two seconds, whatever is under way.
    let (other, id) = (cluster.nodes[1].node().coordinator(), cluster.nodes[1].id());
    wait_for("the next claim", async || {
        let owner = other.topology()?.shards[&ShardId(1)].owner?;
        (owner.node == id).then_some(())
    })
    .await;
    assert!(under_way.may_reply() && !leaving.is_finished());
    drop(under_way);
    leaving.await.unwrap();
}

/// A thread that stood still since it routed a command may come after the node has lost its lease and got another one. What
/// has the key need not know by then that the term is over.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_of_a_term_that_is_over_is_not_made_under_a_later_lease() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), Options::default()).unwrap();
    let metadata = Arc::new(Embedded::open(&db, Arc::new(SystemClock::default())).unwrap());
    let cluster = TestCluster::start_leased(metadata, 2, "terms").await;
    let (node, key) = (&cluster.nodes[0], cluster.keys_of(0, 1).remove(0));
    let (moved, other) = (DbKey::new(0, key.clone()), cluster.nodes[1].id());
    // It takes no shard meanwhile.
    wait_for("the drain", async || node.node().drain(other, false).await.ok()).await;
    wait_for("a write", async || node.front.run(&format!("SET {key} 1")).await.ok()).await;
    let there = Some(ShardId(2));
    wait_for("the move", async || node.node().move_key(moved.clone(), there).await.ok()).await;
    let coordinator = node.node().coordinator();
    let route = || {
        drop(coordinator.guard());
        match coordinator.route(0, key.as_bytes()) {
            Route::Instance(call) => Some(call),
            _ => None,
        }
    };
    let before = wait_for("the first term", async || route()).await;
    cluster.nodes[1].store.refuse_epochs(true);
    let entries = node.metadata.snapshot(b"/terrace/").await.unwrap().entries;
    let alive = format!("/node/{}", node.id());
    let alive = entries.iter().find(|entry| entry.key.ends_with(alive.as_bytes()));
    // It may have been lost already.
    if let Some(lease) = alive.and_then(|entry| entry.lease) {
        let _gone = node.metadata.revoke(lease).await;
    }
    let later = async || route().filter(|call| call.epoch > before.epoch);
    wait_for("the next term", later).await;
    let requests = Arc::new(format!("GET {key}").into_bytes());
    let call = OutgoingCall { db: 0, protocol: ReplyProtocol::Resp2, requests };
    let (done, reply) = tokio::sync::oneshot::channel();
    let done = Box::new(move |reply| _ = done.send(reply));
    coordinator.call(CallTarget::Instance(before), call, done);
    let reply = reply.await.unwrap();
    assert!(matches!(reply, Err(Unserved::Moved(_))), "{reply:?}");
    cluster.nodes[1].store.refuse_epochs(false);
}
