//! Which nodes shall own a shard, in which order.

use crate::id::{NodeId, ShardId};
use crate::topology::Topology;

/// The place of `me` among the nodes that may own the shard: 0 is the preferred one. That is the node of
/// the shard's instance if it is alive; the others follow in an order that differs from shard to shard.
/// `None` if `me` is not alive, or excluded (a node that is drained), or there is no such shard.
pub fn claim_rank(
    topology: &Topology,
    shard: ShardId,
    me: NodeId,
    is_excluded: impl Fn(NodeId) -> bool,
) -> Option<u32> {
    let instance = topology.shards.get(&shard)?.instance;
    let order = |node: NodeId| (node != instance, mixed(shard, node), node);
    let may = |node: NodeId| {
        topology.nodes.get(&node).is_some_and(|node| node.is_alive) && !is_excluded(node)
    };
    let before = topology.nodes.keys().filter(|&&node| may(node) && order(node) < order(me));
    may(me).then(|| before.count() as u32)
}

/// FNV-1a of both.
fn mixed(shard: ShardId, node: NodeId) -> u64 {
    let bytes = shard.0.to_le_bytes().into_iter().chain(node.0);
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Revision;
    use crate::topology::{KeyRange, Node, Placement, Shard};

    #[test]
    fn the_node_of_the_instance_is_preferred_and_all_ranks_differ() {
        let node = |number: u8, is_alive| Node {
            id: NodeId([number; 20]),
            redis_address: String::new(),
            rpc_address: String::new(),
            is_alive,
        };
        let shard = |id: u32, first, last| Shard {
            id: ShardId(id),
            instance: NodeId([id as u8; 20]),
            owner: None,
            ranges: vec![KeyRange::Slots(first, last)],
        };
        let shards = [shard(1, 0, 99), shard(2, 100, 199), shard(3, 200, 16_383)];
        let nodes = [node(1, true), node(2, true), node(3, false), node(4, true), node(5, true)];
        let topology = Topology::new(Revision(1), Placement::Slots, nodes, shards).unwrap();
        let ranks = |shard: u32, excluded: u8| {
            let ranks = (1..=5u8).map(|number| {
                let is_excluded = |node| node == NodeId([excluded; 20]);
                claim_rank(&topology, ShardId(shard), NodeId([number; 20]), is_excluded)
            });
            ranks.collect::<Vec<_>>()
        };
        assert_eq!(ranks(1, 0)[0], Some(0));
        assert_eq!(ranks(2, 0)[1], Some(0));
        assert_eq!(ranks(2, 2)[1], None);
        assert_eq!(ranks(9, 0), [None; 5]);
        for (shard, excluded, count) in [(1, 0, 4), (2, 0, 4), (3, 0, 4), (2, 2, 3)] {
            let mut ranks: Vec<u32> = ranks(shard, excluded).into_iter().flatten().collect();
            ranks.sort();
            assert_eq!(ranks, (0..count).collect::<Vec<u32>>(), "{shard} {excluded}");
        }
    }
}
