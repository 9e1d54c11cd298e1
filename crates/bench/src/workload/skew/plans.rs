//! Plans of `cluster-skew`: who has which keys, and which are to go where. Made by `terrace-cluster`.

use anyhow::{Context, Result};
use terrace_cluster::{
    KeyRange, Node, NodeId, Placement, PlanSpec, Revision, SLOT_COUNT, Shard, ShardId, TopList,
    Topology, make_plan,
};
use terrace_workload::keys::KeySpace;

/// A key, and the instance where it shall be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// The key.
    pub key: Vec<u8>,
    /// The instance.
    pub to: usize,
}

/// The name of an instance in a topology.
pub fn shard(instance: usize) -> ShardId {
    ShardId(instance as u32)
}

/// The instance of a name.
pub fn instance(shard: ShardId) -> usize {
    shard.0 as usize
}

/// `count` instances that have equal parts of the slots, or of the `items` of a key space in their order.
pub fn topology(
    placement: Placement,
    count: usize,
    space: KeySpace,
    items: u64,
) -> Result<Topology> {
    let node = Node {
        id: NodeId([0; 20]),
        redis_address: String::new(),
        rpc_address: String::new(),
        is_alive: true,
    };
    let part = |whole: u64, number: usize| {
        (u128::from(whole) * number as u128 / count.max(1) as u128) as u64
    };
    let range = |number: usize| match placement {
        Placement::Slots => {
            let bound = |number| part(u64::from(SLOT_COUNT), number) as u16;
            KeyRange::Slots(bound(number), bound(number + 1) - 1)
        }
        Placement::Range => {
            let bound = |number| {
                let mut key = Vec::new();
                space.present(part(items, number), &mut key);
                key
            };
            let start = if number == 0 { Vec::new() } else { bound(number) };
            KeyRange::Keys { start, end: (number + 1 < count).then(|| bound(number + 1)) }
        }
    };
    let shards = (0..count).map(|number| Shard {
        id: shard(number),
        instance: node.id,
        owner: None,
        ranges: vec![range(number)],
    });
    let shards: Vec<Shard> = shards.collect();
    Topology::new(Revision(1), placement, [node.clone()], shards).context("making a topology")
}

/// What the plan moves.
pub fn moves(spec: &PlanSpec, topology: &Topology, lists: &[TopList]) -> Result<Vec<Move>> {
    let plan = make_plan(spec, topology, lists)?;
    let assignments = plan.parts.into_values().flatten();
    let moves = assignments.map(|one| Move { key: one.key.key, to: instance(one.at) });
    Ok(moves.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_have_equal_parts_of_all_keys() {
        for placement in [Placement::Slots, Placement::Range] {
            for count in [1, 3] {
                let space = KeySpace::new(8, 9000).unwrap();
                let topology = topology(placement, count, space, 9000).unwrap();
                let mut keys = vec![0; count];
                let mut key = Vec::new();
                for item in 0..9000 {
                    space.present(item, &mut key);
                    keys[instance(topology.shard_of(&key))] += 1;
                }
                let fair = 9000 / count;
                let is_fair = |n: &usize| n.abs_diff(fair) <= fair / 10;
                assert!(keys.iter().all(is_fair), "{placement} {keys:?}");
            }
        }
    }
}
