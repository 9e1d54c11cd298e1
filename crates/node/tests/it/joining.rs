//! What a node refuses at its start.

use crate::harness::{HANG, MemoryStore, wait_for};
use std::sync::Arc;
use std::time::Duration;
use terrace::{Db, Options, SystemClock};
use terrace_cluster::{CommandExecutor, IncomingCall, KeyRange, NodeId, Placement, Reply, ShardId};
use terrace_metadata::Embedded;
use terrace_node::{Error, InstanceStore, Node, NodeConfig, create_cluster, join_store};

struct Nobody;

impl CommandExecutor for Nobody {
    fn execute(&self, _: IncomingCall, _: Box<dyn FnOnce(Reply) + Send>) {}
}

#[test]
fn a_store_stays_with_its_cluster_and_its_node() {
    let store = MemoryStore::new(ShardId(1));
    let id = join_store(&store, "one").unwrap();
    assert_eq!(join_store(&store, "one").unwrap(), id);
    let error = join_store(&store, "two").unwrap_err();
    assert!(
        matches!(&error, Error::ForeignStore { found, wanted } if found == "one" && wanted == "two")
    );
    assert!(error.to_string().contains("\"one\""), "{error}");
    assert_ne!(join_store(&MemoryStore::new(ShardId(1)), "one").unwrap(), id);
    assert!(join_store(&MemoryStore::new(ShardId(1)), "no/name").is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_cannot_work_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), Options::default()).unwrap();
    let metadata = Arc::new(Embedded::open(&db, Arc::new(SystemClock::default())).unwrap());
    let start = async |change: fn(&mut NodeConfig)| {
        let mut config = NodeConfig::local("test", "127.0.0.1:1");
        change(&mut config);
        let store = Arc::new(MemoryStore::new(ShardId(1)));
        Node::start(config, metadata.clone(), store, Arc::new(Nobody)).await.map(|_| ())
    };
    let error = start(|it| it.rpc_listen = ([0, 0, 0, 0], 0).into()).await.unwrap_err();
    assert!(error.to_string().contains("secret"), "{error}");
    assert!(start(|it| it.lease = Duration::from_millis(10)).await.is_err());
    assert!(start(|it| it.cluster = String::new()).await.is_err());
    start(|_| {}).await.unwrap();

    let shard =
        |id, first, last| (ShardId(id), NodeId([1; 20]), vec![KeyRange::Slots(first, last)]);
    let create =
        async |shards: &[_]| create_cluster(&*metadata, "test", Placement::Slots, shards).await;
    let overlap = create(&[shard(1, 0, 9), shard(2, 9, 16_383)]).await.unwrap_err();
    assert!(overlap.to_string().contains("overlap"), "{overlap}");
    assert!(create(&[shard(1, 0, 9)]).await.is_err(), "a gap");
    assert!(create(&[shard(1, 0, 16_383)]).await.unwrap());
    assert!(!create(&[shard(1, 0, 16_383)]).await.unwrap(), "it exists");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_created_of_nodes_that_wait_and_they_tell_of_themselves() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), Options::default()).unwrap();
    let metadata = Arc::new(Embedded::open(&db, Arc::new(SystemClock::default())).unwrap());
    let start = async |address: &str, lease: Duration| {
        let mut config = NodeConfig::local("test", address);
        config.lease = lease;
        let store = Arc::new(MemoryStore::new(ShardId(1)));
        Node::start(config, metadata.clone(), store, Arc::new(Nobody)).await.unwrap()
    };
    // Of the second one the end is waited for. A pause of a loaded machine may end it before, so that what needs it is
    // tried again.
    let first = start("127.0.0.1:1", Duration::from_secs(60)).await;
    let second = start("127.0.0.1:2", Duration::from_secs(2)).await;
    let alive = |node: &Node| node.known_nodes().iter().filter(|it| it.is_alive).count();
    wait_for("both nodes", async || (alive(&first) == 2).then_some(())).await;
    let addresses: Vec<String> =
        first.known_nodes().into_iter().map(|node| node.redis_address).collect();
    assert!(addresses.contains(&"127.0.0.1:2".into()), "{addresses:?}");

    let shards = |other| {
        let slots = |first, last| vec![KeyRange::Slots(first, last)];
        [(ShardId(1), first.id(), slots(0, 9)), (ShardId(2), other, slots(10, 16_383))]
    };
    let stranger = first.create(Placement::Slots, &shards(NodeId([7; 20]))).await.unwrap_err();
    assert!(stranger.to_string().ends_with("has not joined"), "{stranger}");
    assert!(first.coordinator().topology().is_none(), "nothing was created");
    // Before there is a cluster, its nodes tell of themselves too.
    let tell = async || {
        let status = first.cluster_status().await;
        (status.len() == 2 && status.values().all(Result::is_ok)).then_some(())
    };
    wait_for("both tell their status", tell).await;
    let create = async |by: &Node| by.create(Placement::Slots, &shards(second.id())).await.ok();
    assert!(wait_for("the cluster", async || create(&first).await).await);
    assert!(!wait_for("the cluster", async || create(&second).await).await, "it exists");

    let serves = async |node: &Node, of: NodeId| {
        let status = node.cluster_status().await;
        let told = status.get(&of)?.as_ref().ok()?;
        let is_served = told.is_coordinator && told.shards.iter().any(|it| it.state == "serving");
        is_served.then_some(())
    };
    wait_for("the second node serves", async || serves(&first, second.id()).await).await;
    wait_for("the first node serves", async || serves(&second, first.id()).await).await;
    // If the second one has lost its lease meanwhile, it gets its shard back.
    let figures = async || {
        let figures = first.figures();
        let (served, away) = (figures.shards_served, figures.exceptions);
        ((served, away, figures.is_draining) == (1, 0, false)).then_some(())
    };
    wait_for("the first node serves its own shard only", figures).await;

    let gone = second.id();
    drop(second);
    let why = wait_for("the end of its lease", async || {
        let status = first.cluster_status().await;
        status.get(&gone)?.as_ref().err().filter(|why| why.contains("not alive")).cloned()
    });
    assert_eq!(why.await, "the node is not alive");
    let shard = vec![KeyRange::Slots(0, 16_383)];
    let dead = first.create(Placement::Slots, &[(ShardId(1), gone, shard)]).await.unwrap_err();
    assert!(dead.to_string().ends_with("is not alive"), "{dead}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_its_nodes_could_not_join_is_not_created() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), Options::default()).unwrap();
    let metadata = Arc::new(Embedded::open(&db, Arc::new(SystemClock::default())).unwrap());
    let mut config = NodeConfig::local("test", "127.0.0.1:1");
    config.placement = Some(Placement::Slots);
    let store = Arc::new(MemoryStore::new(ShardId(1)));
    let node = Node::start(config, metadata.clone(), store, Arc::new(Nobody)).await.unwrap();
    let alive = async || node.known_nodes().iter().any(|it| it.is_alive).then_some(());
    wait_for("the node to be alive", alive).await;
    let range = KeyRange::Keys { start: Vec::new(), end: None };
    let shards = [(ShardId(1), node.id(), vec![range])];
    let refused = node.create(Placement::Range, &shards).await.unwrap_err().to_string();
    assert!(refused.contains("placement slots"), "{refused}");
    let shards = [(ShardId(1), node.id(), vec![KeyRange::Slots(0, 16_383)])];
    assert!(node.create(Placement::Slots, &shards).await.unwrap(), "nothing was created before");
    wait_for("the cluster", async || node.coordinator().topology().map(drop)).await;
}

/// Both would own the same shards, each with its own keys.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_a_store_does_not_join_beside_its_original() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), Options::default()).unwrap();
    let metadata = Arc::new(Embedded::open(&db, Arc::new(SystemClock::default())).unwrap());
    let start = async |store: &Arc<MemoryStore>, lease_s: u64| {
        let mut config = NodeConfig::local("test", "127.0.0.1:1");
        config.lease = Duration::from_secs(lease_s);
        Node::start(config, metadata.clone(), store.clone(), Arc::new(Nobody)).await.unwrap()
    };
    let [original, copied] = [0, 1].map(|_| Arc::new(MemoryStore::new(ShardId(1))));
    // No pause of a loaded machine ends it, and with it the claim to be this node.
    let first = start(&original, 10).await;
    let shards = [(ShardId(1), first.id(), vec![KeyRange::Slots(0, 16_383)])];
    assert!(create_cluster(&*metadata, "test", Placement::Slots, &shards).await.unwrap());
    let owner = |node: &Node| node.coordinator().topology()?.shards[&ShardId(1)].owner;
    let epoch = wait_for("an owner", async || owner(&first).map(|owner| owner.epoch)).await;
    copied.set_identity(&original.identity().unwrap().unwrap()).unwrap();
    let second = start(&copied, 2).await;
    let why = tokio::time::timeout(HANG, second.refusal()).await.unwrap().unwrap();
    assert!(why.contains("is running already"), "{why}");
    let member = &first.known_nodes()[0];
    assert_eq!(member.rpc_address, first.rpc_listen().to_string(), "it is found as before");
    assert_eq!(second.figures().shards_served, 0);
    drop(second);

    // At other addresses after its end, it waits for its earlier lease only.
    drop(first);
    let again = start(&original, 10).await;
    let there = again.rpc_listen().to_string();
    wait_for("the new address", async || {
        again.known_nodes().iter().any(|node| node.rpc_address == there).then_some(())
    })
    .await;
    wait_for("another term", async || owner(&again).filter(|owner| owner.epoch > epoch)).await;
}
