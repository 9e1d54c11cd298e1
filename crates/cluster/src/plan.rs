//! Plans: which keys shall be at another instance than that of their shard. Pure functions of what
//! the instances counted; made by the partitioner, executed by coordinators.
//!
//! ```text
//! TopList of each instance -> merge -> PlanSpec -> Plan -> its parts, to the owners of the shards
//! ```

mod absorb;
mod assignment;
mod spec;
#[cfg(test)]
mod tests;
mod top_list;
mod top_n;

pub use assignment::{Assignment, MAX_MOVED_KEY_BYTES, MAX_PLAN_KEYS, Plan, PlanError};
pub use spec::PlanSpec;
pub use top_list::{MergedKey, TopKey, TopList, merge};

use crate::topology::Topology;

/// The plan of this name for these lists. It passes [`Plan::check`]. Cost: O(n log n) for n keys in all
/// lists.
///
/// # Errors
/// A list or the plan is of a shard that does not exist, there are more tiers than shards, or a key
/// that would be moved is too long.
pub fn make_plan(
    spec: &PlanSpec,
    topology: &Topology,
    lists: &[TopList],
) -> Result<Plan, PlanError> {
    let merged = merge(topology, lists)?;
    let mut plan = match spec {
        PlanSpec::TopNToOne { keys, shard } => top_n::to_one(topology, &merged, *keys, *shard)?,
        PlanSpec::TopNTiered(tiers) => top_n::tiered(topology, &merged, tiers)?,
        PlanSpec::Absorb => absorb::absorb(topology, lists, &merged),
    };
    plan.parts.values_mut().for_each(|part| part.sort());
    plan.check(topology)?;
    Ok(plan)
}
