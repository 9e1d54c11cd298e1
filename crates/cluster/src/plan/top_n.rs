//! The plans of the published experiments (power-law partitioner, COS 518, 2019): the most written
//! keys to one instance, or in tiers to several.

use crate::id::ShardId;
use crate::plan::assignment::{MAX_MOVED_KEY_BYTES, Plan, PlanError};
use crate::plan::top_list::MergedKey;
use crate::topology::Topology;

/// Those that can be moved. A plan with another one would be refused as a whole.
fn movable(merged: &[MergedKey]) -> impl Iterator<Item = &MergedKey> {
    merged.iter().filter(|key| key.key.key.len() <= MAX_MOVED_KEY_BYTES)
}

/// The first `keys` of `merged` that can be moved to `shard`, or to the first one.
pub(super) fn to_one(
    topology: &Topology,
    merged: &[MergedKey],
    keys: usize,
    shard: Option<ShardId>,
) -> Result<Plan, PlanError> {
    let first = || topology.shards.keys().next().copied().unwrap_or(ShardId(0));
    let shard = shard.unwrap_or_else(first);
    if !topology.shards.contains_key(&shard) {
        return Err(PlanError::UnknownShard(shard));
    }
    let mut plan = empty(topology);
    movable(merged).take(keys).for_each(|key| plan.assign(topology, &key.key, shard));
    Ok(plan)
}

/// The first `tiers[0]` of `merged` that can be moved to the first shard, the next `tiers[1]` to the second, ...
pub(super) fn tiered(
    topology: &Topology,
    merged: &[MergedKey],
    tiers: &[usize],
) -> Result<Plan, PlanError> {
    let shards = topology.shards.len();
    if tiers.len() > shards {
        let why = format!("{} tiers, and there are {shards} shards", tiers.len());
        return Err(PlanError::Argument("top-n-tiered", why));
    }
    let mut plan = empty(topology);
    let mut merged = movable(merged);
    for (&shard, &keys) in topology.shards.keys().zip(tiers) {
        merged.by_ref().take(keys).for_each(|key| plan.assign(topology, &key.key, shard));
    }
    Ok(plan)
}

/// All keys at home.
pub(super) fn empty(topology: &Topology) -> Plan {
    Plan { parts: topology.shards.keys().map(|&shard| (shard, Vec::new())).collect() }
}
