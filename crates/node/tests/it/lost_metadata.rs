//! The metadata are lost, the stores are not, and the cluster is created again.

use crate::harness::{MemoryStore, TestCluster, TestNode, shards_of, wait_for};
use std::sync::Arc;
use std::time::Duration;
use terrace::{Db, Options, SystemClock};
use terrace_cluster::{DbKey, Epoch, Owner, Placement, ShardCall, ShardId};
use terrace_metadata::{Embedded, Metadata};
use terrace_node::InstanceStore;

fn metadata(dir: &tempfile::TempDir) -> Arc<dyn Metadata> {
    let db = Db::open(dir.path(), Options::default()).unwrap();
    Arc::new(Embedded::open(&db, Arc::new(SystemClock::default())).unwrap())
}

fn stores(count: u32) -> Vec<Arc<MemoryStore>> {
    (1..=count).map(|number| Arc::new(MemoryStore::new(ShardId(number)))).collect()
}

async fn end(mut cluster: TestCluster) {
    for node in &mut cluster.nodes {
        node.node().leave().await;
        node.kill();
    }
}

/// Writes a key of the shard of node `at`.
async fn write_one(cluster: &TestCluster, at: usize) {
    let set = format!("SET {} v", cluster.keys_of(at, 1)[0]);
    wait_for("a write", async || cluster.nodes[at].front.run(&set).await.ok()).await;
}

/// Nobody does anything in the cluster, so its revision does not grow by itself.
#[tokio::test(flavor = "multi_thread")]
async fn epochs_of_lost_metadata_are_passed() {
    let (stores, dir) = (stores(2), tempfile::tempdir().unwrap());
    let known = [Epoch(300), Epoch(340)];
    stores[0].set_epoch(ShardId(1), known[0]).unwrap();
    stores[1].set_epoch(ShardId(2), known[1]).unwrap();
    let cluster = TestCluster::start_on(metadata(&dir), &stores, "lost").await;
    cluster.wait_until_served().await;
    let coordinator = cluster.nodes[0].node().coordinator();
    // What another node did is seen a moment later.
    let topology = wait_for("the later epochs", async || {
        let topology = coordinator.topology()?;
        let epoch = |shard| Some(topology.shards[&ShardId(shard)].owner?.epoch);
        (epoch(1)? > known[0] && epoch(2)? > known[1]).then_some(topology)
    })
    .await;
    // Each node takes the steps for its own shard, some of them at the same time.
    assert!(topology.revision.0 < 340 + 300 + 200, "{:?}", topology.revision);
}

/// Of a shard's epoch that only another instance knows nothing is heard before that is asked.
#[tokio::test(flavor = "multi_thread")]
async fn epochs_that_other_instances_know_are_passed() {
    let (stores, dir) = (stores(2), tempfile::tempdir().unwrap());
    let known = Epoch(900);
    stores[1].set_epoch(ShardId(1), known).unwrap();
    let cluster = TestCluster::start_on(metadata(&dir), &stores, "lost").await;
    let nodes = [0, 1].map(|at: usize| cluster.nodes[at].node());
    wait_for("a later epoch", async || {
        let topology = nodes[0].coordinator().topology()?;
        let owner = topology.shards[&ShardId(1)].owner?;
        let status = nodes[0].status().await;
        let shard = status.shards.iter().find(|shard| shard.shard == 1)?;
        (owner.is_claimed && owner.epoch > known && !shard.is_sweeping).then_some(())
    })
    .await;
    cluster.wait_until_served().await;
    let key = cluster.keys_of(0, 1).remove(0);
    let front = &cluster.nodes[0].front;
    wait_for("a write", async || front.run(&format!("SET {key} v")).await.ok()).await;
    nodes[1].move_key(DbKey::new(0, key.as_str()), Some(ShardId(2))).await.unwrap();
    assert!(stores[1].has(&key));
    for node in &cluster.nodes {
        let read = async || node.front.run(&format!("GET {key}")).await.ok();
        assert_eq!(wait_for("a read", read).await, b"v");
    }
}

/// Nobody holds a claim that serves nobody.
#[tokio::test(flavor = "multi_thread")]
async fn a_shard_whose_epoch_is_too_far_away_is_owned_by_nobody() {
    let (stores, dir) = (stores(2), tempfile::tempdir().unwrap());
    stores[0].set_epoch(ShardId(1), Epoch(10_000_000_000)).unwrap();
    let cluster = TestCluster::start_on(metadata(&dir), &stores, "lost").await;
    cluster.wait_until_served_by(1, 1).await;
    for node in &cluster.nodes {
        wait_for("the reason", async || {
            let refusal = node.node().status().await.refusal;
            refusal.contains("epoch 10000000000 of shard 1").then_some(())
        })
        .await;
    }
    for node in &cluster.nodes {
        wait_for("the end of the claim", async || {
            let owner = node.node().coordinator().topology()?.shards[&ShardId(1)].owner;
            owner.is_some_and(|owner| !owner.is_claimed).then_some(())
        })
        .await;
    }
}

/// A call of a term that the store knows already, of which it does not know what it is of.
#[tokio::test(flavor = "multi_thread")]
async fn no_call_is_admitted_before_the_part_is_known() {
    let (stores, dir) = (stores(1), tempfile::tempdir().unwrap());
    stores[0].set_epoch(ShardId(2), Epoch(5)).unwrap();
    let cluster = TestCluster::waiting(metadata(&dir), &stores, "lost").await;
    let (instance, shard, epoch) = (cluster.nodes[0].id(), ShardId(2), Epoch(5));
    let admitted =
        cluster.nodes[0].node().coordinator().admit(ShardCall { instance, shard, epoch });
    assert!(admitted.map(|_| ()).is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn stores_may_get_another_part_while_they_have_no_keys() {
    for has_key in [false, true] {
        let (stores, first_dir) = (stores(2), tempfile::tempdir().unwrap());
        let cluster = TestCluster::start_on(metadata(&first_dir), &stores, "lost").await;
        cluster.wait_until_served().await;
        if has_key {
            write_one(&cluster, 0).await;
        }
        end(cluster).await;
        let second_dir = tempfile::tempdir().unwrap();
        let other = [stores[1].clone(), stores[0].clone()];
        let cluster = TestCluster::waiting(metadata(&second_dir), &other, "lost").await;
        let by = cluster.nodes[0].node();
        wait_for("the nodes", async || {
            (by.known_nodes().iter().filter(|node| node.is_alive).count() == 2).then_some(())
        })
        .await;
        let created = by.create(Placement::Slots, &shards_of(&other, "lost")).await;
        if has_key {
            assert!(created.unwrap_err().to_string().contains("the order that fits"));
            continue;
        }
        assert!(created.unwrap());
        cluster.wait_until_served().await;
        for (at, store) in other.iter().enumerate() {
            let part = store.part().unwrap().unwrap().describe();
            assert!(part.ends_with(&format!("as shard {}", at + 1)), "{part}");
        }
    }
}

/// Those of a server that was in no cluster before: in its new one some of them would not be found.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_with_keys_of_another_part_is_used_in_the_name_of_no_shard() {
    let (stores, dir) = (stores(2), tempfile::tempdir().unwrap());
    // Of slot 12,182, which the second one has.
    for (store, shard) in stores.iter().zip([1, 2]) {
        store.execute(ShardId(shard), &["SET", "foo", "v"]).unwrap();
    }
    let cluster = TestCluster::start_on(metadata(&dir), &stores, "lost").await;
    cluster.wait_until_served_by(1, 1).await;
    let refused = cluster.nodes[0].id();
    for node in &cluster.nodes {
        wait_for("the reason to be told", async || {
            let status = node.node().cluster_status().await;
            let told = status.get(&refused)?.as_ref().ok()?;
            (told.refuses_part && told.refusal.contains("\"foo\" in database 0")).then_some(())
        })
        .await;
        wait_for("no claim", async || {
            let owner = node.node().coordinator().topology()?.shards[&ShardId(1)].owner;
            owner.is_none_or(|owner| !owner.is_claimed).then_some(())
        })
        .await;
    }
    assert_eq!(cluster.nodes[0].node().figures().shards_served, 0);
    assert_eq!(stores[0].part().unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_in_which_keys_would_not_be_found_is_not_created() {
    let (stores, dir) = (stores(2), tempfile::tempdir().unwrap());
    // Of slot 12,182.
    stores[0].execute(ShardId(1), &["SET", "foo", "v"]).unwrap();
    let cluster = TestCluster::waiting(metadata(&dir), &stores, "lost").await;
    let other = [stores[1].clone(), stores[0].clone()];
    for by in &cluster.nodes {
        let by = by.node();
        wait_for("the nodes", async || {
            (by.known_nodes().iter().filter(|node| node.is_alive).count() == 2).then_some(())
        })
        .await;
        let refused = by.create(Placement::Slots, &shards_of(&stores, "lost")).await;
        let (why, id) = (refused.unwrap_err().to_string(), cluster.nodes[0].id());
        assert!(why.starts_with(&format!("node {id} at 127.0.0.1:1: ")), "{why}");
        assert!(why.contains("\"foo\" in database 0"), "{why}");
        assert!(by.coordinator().topology().is_none(), "nothing was created");
    }
    let by = cluster.nodes[1].node();
    assert!(by.create(Placement::Slots, &shards_of(&other, "lost")).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn in_another_order_nothing_is_swept_and_in_the_right_one_everything_is_there() {
    let stores = stores(3);
    let first_dir = tempfile::tempdir().unwrap();
    let cluster = TestCluster::start_on(metadata(&first_dir), &stores, "lost").await;
    cluster.wait_until_served().await;
    let keys: Vec<String> = (0..3).flat_map(|at| cluster.keys_of(at, 6)).collect();
    for (at, key) in keys.iter().enumerate() {
        cluster.nodes[0].front.run(&format!("SET {key} {at}")).await.unwrap();
        let to = Some(ShardId(at as u32 % 3 + 1));
        cluster.nodes[1].node().move_key(DbKey::new(0, key.as_str()), to).await.unwrap();
    }
    let places = || -> Vec<Vec<bool>> {
        keys.iter().map(|key| stores.iter().map(|store| store.has(key)).collect()).collect()
    };
    let before = places();
    assert!(before.iter().all(|places| places.iter().filter(|has| **has).count() == 1));
    end(cluster).await;

    let second_dir = tempfile::tempdir().unwrap();
    let other: Vec<_> = [1, 0, 2].map(|at: usize| stores[at].clone()).into();
    let cluster = TestCluster::start_on(metadata(&second_dir), &other, "lost").await;
    cluster.wait_until_served_by(2, 2).await;
    for node in &cluster.nodes[..2] {
        wait_for("the reason to be told", async || {
            let status = cluster.nodes[2].node().cluster_status().await;
            status.get(&node.id())?.as_ref().ok().filter(|told| told.refusal.contains("order"))?;
            Some(())
        })
        .await;
    }
    for shard in [1, 2] {
        // Nobody claims what the node of its instance cannot serve: it is counted, and the others would believe it.
        wait_for("no claim", async || {
            // As each of them sees it.
            let owner = |node: &TestNode| {
                Some(node.node().coordinator().topology()?.shards[&ShardId(shard)].owner)
            };
            let owners: Option<Vec<_>> = cluster.nodes.iter().map(owner).collect();
            let is_claimed = |it: &Option<Owner>| it.is_some_and(|owner| owner.is_claimed);
            (!owners?.iter().any(is_claimed)).then_some(())
        })
        .await;
    }
    // For longer than a sweep takes.
    for _ in 0..300 {
        assert_eq!(places(), before, "a copy was dropped");
        for node in &cluster.nodes[..2] {
            assert_eq!(node.node().figures().shards_served, 0, "a part that it does not have");
            let topology = node.node().coordinator().topology().unwrap();
            let owner = topology.shards[&ShardId(1)].owner;
            assert!(owner.is_none_or(|owner| !owner.is_claimed), "a claim that serves nobody");
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    end(cluster).await;

    let third_dir = tempfile::tempdir().unwrap();
    let cluster = TestCluster::start_on(metadata(&third_dir), &stores, "lost").await;
    cluster.wait_until_served().await;
    for (at, key) in keys.iter().enumerate() {
        let value = wait_for("a read", async || {
            cluster.nodes[at % 3].front.run(&format!("GET {key}")).await.ok()
        });
        assert_eq!(value.await, at.to_string().into_bytes(), "{key}");
    }
    assert_eq!(places(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_refuse_to_create_what_contradicts_their_stores_and_say_what_fits() {
    let stores = stores(3);
    let first_dir = tempfile::tempdir().unwrap();
    let cluster = TestCluster::start_on(metadata(&first_dir), &stores[..2], "lost").await;
    cluster.wait_until_served().await;
    write_one(&cluster, 0).await;
    write_one(&cluster, 1).await;
    end(cluster).await;

    let second_dir = tempfile::tempdir().unwrap();
    let cluster = TestCluster::waiting(metadata(&second_dir), &stores, "lost").await;
    let shards = |order: &[usize]| {
        shards_of(&order.iter().map(|at| stores[*at].clone()).collect::<Vec<_>>(), "lost")
    };
    for by in &cluster.nodes {
        let by = by.node();
        wait_for("the nodes", async || {
            (by.known_nodes().iter().filter(|node| node.is_alive).count() == 3).then_some(())
        })
        .await;
        let fits = "the order that fits: 127.0.0.1:1 (slots 0-8191 as shard 1), \
                    127.0.0.1:1 (slots 8192-16383 as shard 2)";
        for order in [&[1, 0][..], &[0, 1, 2], &[2, 1], &[0], &[2]] {
            let refused = by.create(Placement::Slots, &shards(order)).await.unwrap_err();
            assert!(refused.to_string().ends_with(fits), "{order:?}: {refused}");
        }
    }
    // The third one may be there, and was in no cluster.
    assert!(cluster.nodes[2].node().create(Placement::Slots, &shards(&[0, 1])).await.unwrap());
    for at in [0, 1] {
        cluster.wait_until_served_by(at, at).await;
    }
}
