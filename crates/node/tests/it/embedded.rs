//! The scenarios with metadata in a store of this process.

use crate::harness::{TestCluster, wait_for};
use crate::scenarios;
use std::sync::Arc;
use terrace::{Db, Options, SystemClock};
use terrace_metadata::{Embedded, Metadata};
use terrace_node::Error;

fn metadata(dir: &tempfile::TempDir) -> Arc<dyn Metadata> {
    let db = Db::open(dir.path(), Options::default()).unwrap();
    Arc::new(Embedded::open(&db, Arc::new(SystemClock::default())).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_move_under_load() {
    let dir = tempfile::tempdir().unwrap();
    scenarios::keys_move_under_load(metadata(&dir)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hottest_keys_are_moved() {
    let dir = tempfile::tempdir().unwrap();
    scenarios::the_hottest_keys_are_moved(metadata(&dir)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_node_takes_its_shard_over_again() {
    let dir = tempfile::tempdir().unwrap();
    scenarios::a_killed_node_takes_its_shard_over_again(metadata(&dir)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_metadata_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    scenarios::a_node_without_metadata_is_replaced(metadata(&dir)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_read_before_a_pause_is_not_shown() {
    let dir = tempfile::tempdir().unwrap();
    scenarios::what_was_read_before_a_pause_is_not_shown(metadata(&dir)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_node_gives_its_shards_up() {
    let dir = tempfile::tempdir().unwrap();
    scenarios::a_drained_node_gives_its_shards_up(metadata(&dir)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_drains_at_once_leave_a_node_that_serves() {
    let dir = tempfile::tempdir().unwrap();
    scenarios::two_drains_at_once_leave_a_node_that_serves(metadata(&dir)).await;
}

/// Who drains a node looks at the metadata again when that has given up its shards.
#[tokio::test(flavor = "multi_thread")]
async fn a_drain_that_fails_half_way_is_undone() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = TestCluster::start(metadata(&dir), 2, "undone").await;
    let [drained, by] = [0, 1].map(|at: usize| &cluster.nodes[at]);
    // The drain is not over before others can see it.
    drained.metadata.cut(true);
    let (node, id) = (by.node.clone().unwrap(), drained.id());
    let draining = tokio::spawn(async move { node.drain(id, false).await });
    let is_draining = async || drained.node().status().await.is_draining;
    wait_for("the drain to begin", async || is_draining().await.then_some(())).await;
    by.metadata.cut(true);
    drained.metadata.cut(false);
    let failed = draining.await.unwrap().unwrap_err();
    assert!(matches!(failed, Error::Metadata(_)), "{failed}");
    assert!(!is_draining().await);
    by.metadata.cut(false);
    cluster.wait_until_served_by(0, 0).await;
}
