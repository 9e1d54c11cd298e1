//! With one etcd member, and with three of which the leader is killed.

use crate::harness::{TestCluster, wait_for};
use crate::scenarios;
use crate::servers::EtcdCluster;
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace_metadata::{Etcd, EtcdOptions};

fn client(etcd: &EtcdCluster) -> Arc<Etcd> {
    // A slow device may keep etcd from answering for a while.
    let options = EtcdOptions { call_timeout: Duration::from_secs(5), ..EtcdOptions::default() };
    Arc::new(Etcd::new(&etcd.urls(), options).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs etcd; run by cargo xtask test"]
async fn everything_happens_with_etcd_too() {
    let etcd = EtcdCluster::start(1);
    scenarios::keys_move_under_load(client(&etcd)).await;
    scenarios::the_hottest_keys_are_moved(client(&etcd)).await;
    scenarios::a_killed_node_takes_its_shard_over_again(client(&etcd)).await;
    scenarios::a_node_without_metadata_is_replaced(client(&etcd)).await;
    scenarios::what_was_read_before_a_pause_is_not_shown(client(&etcd)).await;
    scenarios::a_drained_node_gives_its_shards_up(client(&etcd)).await;
    scenarios::two_drains_at_once_leave_a_node_that_serves(client(&etcd)).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs etcd; run by cargo xtask test"]
async fn the_cluster_survives_the_death_of_etcds_leader() {
    let mut etcd = EtcdCluster::start(3);
    let mut cluster = TestCluster::start_leased(client(&etcd), 2, "leader").await;
    let key = cluster.keys_of(0, 1).remove(0);
    let set = format!("SET {key} 7");
    wait_for("a write", async || cluster.nodes[1].front.run(&set).await.ok()).await;
    let leader = etcd.leader();
    etcd.kill_member(leader);
    let killed = Instant::now();
    // A coordinator dies as well, and comes back while etcd elects.
    cluster.nodes[0].kill();
    cluster.nodes[0].start(|_| {}).await;
    cluster.wait_until_served().await;
    println!(
        "served {} ms after etcd's leader and a node were killed",
        killed.elapsed().as_millis()
    );
    assert_ne!(etcd.leader(), leader);
    let value =
        wait_for("a read", async || cluster.nodes[1].front.run(&format!("GET {key}")).await.ok());
    assert_eq!(value.await, b"7");
}
