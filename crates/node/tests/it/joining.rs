//! What a node refuses at its start.

use crate::harness::MemoryStore;
use std::sync::Arc;
use std::time::Duration;
use terrace::{Db, Options, SystemClock};
use terrace_cluster::{CommandExecutor, IncomingCall, KeyRange, NodeId, Placement, Reply, ShardId};
use terrace_metadata::Embedded;
use terrace_node::{Error, Node, NodeConfig, create_cluster, join_store};

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
