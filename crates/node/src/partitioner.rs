//! The partitioner: collects what instances counted, merges it into a plan, and sends the owners their
//! parts. It keeps nothing: any node can do it at any time; by itself only the leader does, who has a key with a
//! lease. That two lead for a moment does no harm, since a plan is checked by those who execute it.

use crate::config::PartitionerConfig;
use crate::error::Error;
use crate::shared::Shared;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use terrace_cluster::{NodeId, Plan, PlanSpec, ShardId, TopList, make_plan};
use terrace_keyspace::move_point;
use terrace_metadata::Transaction;

const ROLE: &str = "partitioner";

/// How often a node looks whether the leader is gone.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// What came of a plan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Repartition {
    /// Keys that shall not be at home.
    pub plan_keys: usize,
    /// Keys that are going to be moved.
    pub moves: u64,
    /// Owners that did not take their part, or not that of one of their shards, and why; for a shard without an owner,
    /// the node of its instance.
    pub failed: Vec<(NodeId, String)>,
}

/// Plans at the interval, while this node leads. One task, for ever.
pub(crate) async fn run(shared: Arc<Shared>, config: PartitionerConfig) {
    let mut next = tokio::time::Instant::now() + config.interval;
    loop {
        tokio::time::sleep(LOOK_INTERVAL.min(config.interval)).await;
        let leads = lead(&shared).await;
        shared.leads_partitioner.store(leads, Ordering::Relaxed);
        // Without a topology the cluster is not created yet, and there is nothing to plan.
        let is_due = leads && shared.topology().is_some() && tokio::time::Instant::now() >= next;
        if !is_due {
            continue;
        }
        next = tokio::time::Instant::now() + config.interval;
        match repartition(&shared, &config.plan, config.keys).await {
            Ok(done) => {
                tracing::info!("{}: {} keys are moved", config.plan, done.moves);
                for (node, why) in done.failed {
                    tracing::warn!("{}: node {node} does not take its part: {why}", config.plan);
                }
            }
            Err(error) => tracing::warn!("{}: {error}", config.plan),
        }
    }
}

/// Whether this node leads; it tries to, if nobody does.
async fn lead(shared: &Shared) -> bool {
    let (lease, directory) = (*shared.lease.borrow(), shared.directory.borrow().clone());
    let (Some(lease), Some(directory)) = (lease, directory) else { return false };
    let key = shared.layout.leader(ROLE);
    let is_mine = || {
        let is_me = directory.value::<NodeId>(&key) == Some(shared.me);
        is_me && directory.lease(&key) == Some(lease)
    };
    if directory.mod_revision(&key) == 0 {
        let claim = Transaction::new().when(key.clone(), 0);
        let claim = claim.put_leased(key.clone(), shared.me.to_string(), lease);
        // The directory will show it.
        let _ = shared.metadata.commit(claim).await;
    }
    is_mine() && shared.stamp.covers(shared.stamp.generation())
}

/// Collects, plans, sends.
pub(crate) async fn repartition(
    shared: &Arc<Shared>,
    spec: &PlanSpec,
    keys: usize,
) -> Result<Repartition, Error> {
    let topology = shared.topology();
    let topology = topology.ok_or_else(|| Error::Unserved("there is no topology yet".into()))?;
    // One list for each instance, by the first of its shards: plans move keys between instances.
    let mut instances: BTreeMap<NodeId, ShardId> = BTreeMap::new();
    for shard in topology.shards.values() {
        instances.entry(shard.instance).or_insert(shard.id);
    }
    let mut lists = Vec::new();
    for (instance, shard) in instances {
        let unserved = |why: &str| Error::Unserved(format!("instance {instance}: {why}"));
        let counts = if instance == shared.me {
            shared.top_counts(keys).await.map_err(|error| unserved(&error.to_string()))?
        } else {
            let peer = shared.known_peer(instance).map_err(|why| unserved(why.message()))?;
            peer.top_counts(keys).await.map_err(|why| unserved(why.message()))?
        };
        lists.push(TopList {
            shard,
            writes: counts.writes,
            write_bytes: counts.write_bytes,
            memtable_bytes: counts.memtable_bytes,
            hot_bytes: counts.hot_bytes,
            keys: counts.keys,
        });
    }
    move_point("partitioner", "plan", "collected");
    let mut plan = make_plan(spec, &topology, &lists).map_err(Error::Plan)?;
    // A shard that the plan does not mention has no exceptions by it.
    topology.shards.keys().for_each(|shard| _ = plan.parts.entry(*shard).or_default());
    let mut done = Repartition { plan_keys: plan.key_count(), ..Repartition::default() };
    let mut parts: BTreeMap<NodeId, Plan> = BTreeMap::new();
    for (shard, part) in plan.parts {
        let Some(known) = topology.shards.get(&shard) else { continue };
        match known.owner.filter(|owner| owner.is_claimed) {
            Some(owner) => _ = parts.entry(owner.node).or_default().parts.insert(shard, part),
            None => done.failed.push((known.instance, format!("shard {shard} has no owner"))),
        }
    }
    move_point("partitioner", "plan", "made");
    for (owner, plan) in parts {
        let sent = match shared.known_peer(owner) {
            Ok(peer) => peer.repartition(plan).await,
            Err(status) => Err(status),
        };
        match sent {
            Ok(taken) => {
                done.moves += taken.moves;
                let refused = taken.refused.into_iter();
                done.failed
                    .extend(refused.map(|(shard, why)| (owner, format!("shard {shard}: {why}"))));
            }
            Err(status) => done.failed.push((owner, status.message().to_string())),
        }
    }
    move_point("partitioner", "plan", "sent");
    Ok(done)
}
