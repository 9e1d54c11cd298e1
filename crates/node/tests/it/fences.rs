//! Epochs that become known at an instance while calls are under way.

use crate::harness::TestCluster;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use terrace::{Db, Options, SystemClock};
use terrace_cluster::{Epoch, ShardCall, ShardId};
use terrace_metadata::Embedded;

/// A call that is refused while the calls of earlier owners end is sent again and again, and there is always some
/// call under way.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_sent_again_and_again_is_admitted_once_the_earlier_ones_are_gone() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), Options::default()).unwrap();
    let metadata = Arc::new(Embedded::open(&db, Arc::new(SystemClock::default())).unwrap());
    let cluster = TestCluster::start(metadata, 2, "fences").await;
    let coordinator = cluster.nodes[0].node().coordinator();
    let instance = cluster.nodes[0].id();
    let call = ShardCall { instance, shard: ShardId(2), epoch: Epoch(1_000_000) };
    let mut under_way: VecDeque<_> = (0..20).map(|_| coordinator.guard()).collect();
    let mut tries = 0;
    while coordinator.admit(call).is_err() {
        tries += 1;
        assert!(tries < 5_000, "it is never admitted");
        under_way.push_back(coordinator.guard());
        tokio::time::sleep(Duration::from_millis(1)).await;
        under_way.pop_front();
    }
    assert!(tries >= 20, "those of before were waited for: {tries}");
}
