//! Messages that come to a node which they are not for, as after a change of addresses.

use crate::harness::{HANG, TestCluster, wait_for};
use std::net::SocketAddr;
use std::sync::Arc;
use terrace::{Db, Options, SystemClock};
use terrace_cluster::{
    CallTarget, DbKey, Direction, Epoch, MoveAnswer, MoveCall, MoveId, OutgoingCall, ReplyProtocol,
    ShardCall, ShardId, Unserved,
};
use terrace_metadata::{Embedded, Metadata};
use terrace_node::rpc::{LinkOptions, MoveMessage, Peer, Secret};

fn metadata(dir: &tempfile::TempDir) -> Arc<dyn Metadata> {
    let db = Db::open(dir.path(), Options::default()).unwrap();
    Arc::new(Embedded::open(&db, Arc::new(SystemClock::default())).unwrap())
}

/// Kills the second node and starts the third one at its address, which the metadata still has for both.
async fn reuse_the_address(cluster: &mut TestCluster) -> SocketAddr {
    let address = cluster.nodes[1].node().rpc_listen();
    cluster.nodes[1].kill();
    cluster.nodes[2].kill();
    wait_for("the port", async || std::net::TcpListener::bind(address).ok().map(drop)).await;
    cluster.nodes[2].start(|config| config.rpc_listen = address).await;
    let third = cluster.nodes[2].id();
    wait_for("the new address", async || {
        let topology = cluster.nodes[0].node().coordinator().topology()?;
        (topology.nodes[&third].rpc_address == address.to_string()).then_some(())
    })
    .await;
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_at_the_address_of_another_takes_no_keys_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = TestCluster::start_leased(metadata(&dir), 3, "reused").await;
    let key = cluster.keys_of(0, 1).remove(0);
    let front = cluster.nodes[0].front.clone();
    let (set, get) = (format!("SET {key} 1"), format!("GET {key}"));
    wait_for("a write", async || front.run(&set).await.ok()).await;
    reuse_the_address(&mut cluster).await;
    let (node, moved) = (cluster.nodes[0].node.clone().unwrap(), DbKey::new(0, key.clone()));
    let order = tokio::spawn(async move { node.move_key(moved, Some(ShardId(2))).await });
    let (home, third) = (&cluster.nodes[0].store, &cluster.nodes[2].store);
    wait_for("the end of the attempts", async || {
        (home.steps("undo") > 0 || third.steps("import") > 0).then_some(())
    })
    .await;
    assert_eq!(third.steps("import"), 0, "the message was for another node");
    // A request for the second node, by its address, is refused.
    assert!(cluster.nodes[0].node().drain(cluster.nodes[1].id(), false).await.is_err());
    assert!(!cluster.nodes[2].node().status().await.is_draining);
    let (coordinator, instance) = (cluster.nodes[0].node().coordinator(), cluster.nodes[1].id());
    let reply = wait_for("a reply in a term of the first node", async || {
        let epoch = coordinator.topology()?.shards[&ShardId(1)].owner?.epoch;
        let shard = ShardCall { instance, shard: ShardId(1), epoch };
        let requests = Arc::new(format!("SET {key} 2").into_bytes());
        let call = OutgoingCall { db: 0, protocol: ReplyProtocol::Resp2, requests };
        let (done, reply) = tokio::sync::oneshot::channel();
        let done = Box::new(move |reply| _ = done.send(reply));
        coordinator.call(CallTarget::Instance(shard), call, done);
        match reply.await.unwrap() {
            Err(Unserved::Moved(_)) => None,
            reply => Some(reply),
        }
    })
    .await;
    assert_eq!(reply, Err(Unserved::Unreachable(instance)));
    // The move is settled when the second node is back, and the key is where it was.
    cluster.nodes[1].start(|_| {}).await;
    assert!(order.await.unwrap().is_err());
    assert_eq!(wait_for("a read", async || front.run(&get).await.ok()).await, b"1");
    assert_eq!(cluster.places_of(&key), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_of_a_move_is_done_at_the_instance_that_it_is_for() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = TestCluster::start(metadata(&dir), 3, "steps").await;
    let (second, secret) = (cluster.nodes[1].node(), Secret::none());
    // A link that no pause of a loaded machine ends.
    let options = LinkOptions { timeout: HANG / 10, ping: HANG / 10 };
    let address = second.rpc_listen().to_string();
    let peer = Peer::new(second.id(), &address, &secret, &options).unwrap();
    let key = DbKey::new(0, cluster.keys_of(0, 1).remove(0));
    let (epoch, values) = (Epoch(1000), vec![vec![1, b'x']]);
    let send = async |shard: u32, other: u32, direction, call| {
        let (shard, other, keys) = (ShardId(shard), ShardId(other), vec![key.clone()]);
        let id = MoveId { epoch, number: 1 };
        peer.apply_move(MoveMessage { shard, id, direction, other, keys, call }, epoch).await
    };
    let (out, home) = (Direction::Out, Direction::Home);
    for (direction, call) in [
        (out, MoveCall::Import(values.clone())),
        (out, MoveCall::Finish),
        (out, MoveCall::Drop),
        (home, MoveCall::Export),
        (home, MoveCall::Drop),
        (home, MoveCall::Release),
    ] {
        // The instances of shards 3 and 9 are another node, and none.
        for other in [3, 9] {
            assert_eq!(send(1, other, direction, call.clone()).await, MoveAnswer::Unknown);
        }
        assert_eq!(cluster.nodes[1].store.steps(call.name()), 0, "{direction:?} {call:?}");
    }
    for (direction, call) in [
        (out, MoveCall::Begin),
        (out, MoveCall::Export),
        (out, MoveCall::Commit(Vec::new())),
        (home, MoveCall::Commit(values.clone())),
        (out, MoveCall::Undo),
        (home, MoveCall::Forget),
    ] {
        assert_eq!(send(1, 2, direction, call.clone()).await, MoveAnswer::Unknown);
        assert_eq!(cluster.nodes[1].store.steps(call.name()), 0, "{direction:?} {call:?}");
    }
    assert_eq!(send(1, 2, out, MoveCall::Import(values)).await, MoveAnswer::Done);
}
