//! Who is in the cluster, and which shard a key belongs to: one consistent look at the metadata.
//!
//! A topology never changes; a newer one has a larger revision. Shards cover the whole key space and
//! do not overlap, which [`Topology::check`] makes sure of, so [`Topology::shard_of`] always has an
//! answer.

use crate::id::{Epoch, NodeId, Revision, ShardId};
use crate::slot::{SLOT_COUNT, Slot, slot_of};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

/// How keys are distributed, chosen when a cluster is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Placement {
    /// By hash: Redis Cluster's slots.
    Slots,
    /// By range: the order of keys is kept.
    Range,
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Slots => "slots",
            Self::Range => "range",
        })
    }
}

/// A part of the key space.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KeyRange {
    /// Slots, the first and the last both included.
    Slots(u16, u16),
    /// Keys from `start` on, below `end` (`None`: to the last).
    Keys {
        /// The first key.
        start: Vec<u8>,
        /// The first key after it.
        end: Option<Vec<u8>>,
    },
}

/// A process of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub id: NodeId,
    /// `host:port` of its Redis protocol, for clients.
    pub redis_address: String,
    /// `host:port` of its gRPC, for other nodes.
    pub rpc_address: String,
    /// Whether its lease was alive.
    pub is_alive: bool,
}

/// Who serves a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The coordinator.
    pub node: NodeId,
    /// Its term.
    pub epoch: Epoch,
    /// Whether its claim (with its lease) was there. If not, this is only who owned it last.
    pub is_claimed: bool,
}

/// A part of the key space with its instance and its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shard {
    /// Its name.
    pub id: ShardId,
    /// The node whose store has its keys, but for the exceptions.
    pub instance: NodeId,
    /// `None` until somebody owned it.
    pub owner: Option<Owner>,
    /// What belongs to it, in order.
    pub ranges: Vec<KeyRange>,
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    /// Of the metadata.
    pub revision: Revision,
    /// How keys are distributed.
    pub placement: Placement,
    /// All nodes that ever joined and did not leave.
    pub nodes: BTreeMap<NodeId, Node>,
    /// All shards.
    pub shards: BTreeMap<ShardId, Shard>,
    /// Of [`Placement::Slots`]: first slots, in order, with their shards; slots in a row that one shard has are one
    /// entry. Few, so they stay in the processor's cache, unlike a table of all slots.
    slots: Vec<(u16, ShardId)>,
    /// Of [`Placement::Range`]: first keys, in order, with their shards.
    starts: Vec<(Vec<u8>, ShardId)>,
}

/// What is wrong with the shards' ranges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TopologyError {
    /// There is no shard.
    Empty,
    /// A range of the other placement.
    OtherPlacement(ShardId),
    /// A range that ends before it starts, or a slot above the last.
    Backwards(ShardId),
    /// A slot or key that two shards have.
    Overlap(ShardId, ShardId),
    /// A slot, or a first key, that no shard has.
    Gap(String),
    /// Its instance is no node.
    UnknownNode(ShardId, NodeId),
}

impl fmt::Display for TopologyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the cluster has no shards"),
            Self::OtherPlacement(shard) => {
                write!(f, "shard {shard} has a range of the other placement")
            }
            Self::Backwards(shard) => write!(f, "shard {shard} has a range that holds nothing"),
            Self::Overlap(one, other) => write!(f, "shards {one} and {other} overlap"),
            Self::Gap(at) => write!(f, "no shard has {at}"),
            Self::UnknownNode(shard, node) => {
                write!(f, "the instance of shard {shard} is {node}, which is no node")
            }
        }
    }
}

impl std::error::Error for TopologyError {}

impl Node {
    /// Where clients connect to, as Redis Cluster tells it: without brackets around an IPv6 address.
    pub fn told_address(&self) -> Cow<'_, str> {
        match self.redis_address.strip_prefix('[').and_then(|rest| rest.split_once("]:")) {
            Some((ip, port)) => Cow::Owned(format!("{ip}:{port}")),
            None => Cow::Borrowed(&self.redis_address),
        }
    }
}

impl Topology {
    /// Puts one together.
    ///
    /// # Errors
    /// The shards do not cover the key space once.
    pub fn new(
        revision: Revision,
        placement: Placement,
        nodes: impl IntoIterator<Item = Node>,
        shards: impl IntoIterator<Item = Shard>,
    ) -> Result<Self, TopologyError> {
        let mut topology = Self {
            revision,
            placement,
            nodes: nodes.into_iter().map(|node| (node.id, node)).collect(),
            shards: shards.into_iter().map(|shard| (shard.id, shard)).collect(),
            slots: Vec::new(),
            starts: Vec::new(),
        };
        if topology.shards.is_empty() {
            return Err(TopologyError::Empty);
        }
        for shard in topology.shards.values() {
            if !topology.nodes.contains_key(&shard.instance) {
                return Err(TopologyError::UnknownNode(shard.id, shard.instance));
            }
        }
        match placement {
            Placement::Slots => topology.slots = topology.by_slot()?,
            Placement::Range => topology.starts = topology.by_key()?,
        }
        Ok(topology)
    }

    /// The shard that a key belongs to. Cost: O(log ranges).
    pub fn shard_of(&self, key: &[u8]) -> ShardId {
        match self.placement {
            // One shard has everything.
            Placement::Slots if self.slots.len() == 1 => self.slots[0].1,
            Placement::Slots => self.shard_of_slot(slot_of(key)),
            Placement::Range => {
                let after = self.starts.partition_point(|(start, _)| start.as_slice() <= key);
                self.starts[after - 1].1
            }
        }
    }

    /// The shard of a slot.
    ///
    /// # Panics
    /// The placement is [`Placement::Range`].
    pub fn shard_of_slot(&self, slot: Slot) -> ShardId {
        let after = self.slots.partition_point(|(first, _)| *first <= slot.number());
        self.slots[after - 1].1
    }

    fn by_slot(&self) -> Result<Vec<(u16, ShardId)>, TopologyError> {
        let mut slots = vec![None; usize::from(SLOT_COUNT)];
        for shard in self.shards.values() {
            for range in &shard.ranges {
                let KeyRange::Slots(first, last) = *range else {
                    return Err(TopologyError::OtherPlacement(shard.id));
                };
                if first > last || last >= SLOT_COUNT {
                    return Err(TopologyError::Backwards(shard.id));
                }
                for slot in &mut slots[usize::from(first)..=usize::from(last)] {
                    if let Some(other) = slot.replace(shard.id) {
                        return Err(TopologyError::Overlap(other, shard.id));
                    }
                }
            }
        }
        let mut firsts: Vec<(u16, ShardId)> = Vec::new();
        for (number, shard) in (0..).zip(slots) {
            let shard = shard.ok_or_else(|| TopologyError::Gap(format!("slot {number}")))?;
            if firsts.last().is_none_or(|(_, last)| *last != shard) {
                firsts.push((number, shard));
            }
        }
        Ok(firsts)
    }

    fn by_key(&self) -> Result<Vec<(Vec<u8>, ShardId)>, TopologyError> {
        let mut ranges = Vec::new();
        for shard in self.shards.values() {
            for range in &shard.ranges {
                let KeyRange::Keys { start, end } = range else {
                    return Err(TopologyError::OtherPlacement(shard.id));
                };
                if end.as_ref().is_some_and(|end| end <= start) {
                    return Err(TopologyError::Backwards(shard.id));
                }
                ranges.push((start.clone(), end.clone(), shard.id));
            }
        }
        ranges.sort();
        let gap = |at: &[u8]| TopologyError::Gap(format!("the key \"{}\"", at.escape_ascii()));
        // Where the next range must start; `None` after the last key.
        let mut next: Option<Vec<u8>> = Some(Vec::new());
        let mut before: Option<ShardId> = None;
        for (start, end, shard) in &ranges {
            match (&next, before) {
                (Some(next), _) if next == start => {}
                (Some(next), _) if next < start => return Err(gap(next)),
                (_, Some(other)) => return Err(TopologyError::Overlap(other, *shard)),
                (_, None) => return Err(gap(b"")),
            }
            (next, before) = (end.clone(), Some(*shard));
        }
        if let Some(next) = next {
            return Err(gap(&next));
        }
        Ok(ranges.into_iter().map(|(start, _, shard)| (start, shard)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: u8) -> Node {
        Node {
            id: NodeId([number; 20]),
            redis_address: format!("127.0.0.1:{}", 7000 + u16::from(number)),
            rpc_address: format!("127.0.0.1:{}", 17_000 + u16::from(number)),
            is_alive: true,
        }
    }

    fn shard(id: u32, ranges: Vec<KeyRange>) -> Shard {
        Shard { id: ShardId(id), instance: NodeId([1; 20]), owner: None, ranges }
    }

    fn made(placement: Placement, shards: Vec<Shard>) -> Result<Topology, TopologyError> {
        Topology::new(Revision(1), placement, [node(1), node(2)], shards)
    }

    fn keys(start: &str, end: Option<&str>) -> KeyRange {
        KeyRange::Keys { start: start.into(), end: end.map(Into::into) }
    }

    #[test]
    fn an_ipv6_address_is_told_without_brackets() {
        let told = |address: &str| {
            let node = Node { redis_address: address.into(), ..node(1) };
            node.told_address().into_owned()
        };
        assert_eq!(told("[2001:db8::1]:7000"), "2001:db8::1:7000");
        for other in ["10.0.0.1:7000", "host.example:7000"] {
            assert_eq!(told(other), other);
        }
    }

    #[test]
    fn every_slot_has_its_shard() {
        let shards = vec![
            shard(1, vec![KeyRange::Slots(0, 99), KeyRange::Slots(200, 16_383)]),
            shard(2, vec![KeyRange::Slots(100, 199)]),
        ];
        let topology = made(Placement::Slots, shards).unwrap();
        for (slot, id) in [(0, 1), (99, 1), (100, 2), (199, 2), (200, 1), (16_383, 1)] {
            assert_eq!(topology.shard_of_slot(Slot::new(slot).unwrap()), ShardId(id), "{slot}");
        }
        assert_eq!(topology.shard_of(b"{foo}x"), topology.shard_of(b"foo"));
    }

    #[test]
    fn every_key_has_its_shard() {
        let shards = vec![
            shard(1, vec![keys("m", Some("t"))]),
            shard(2, vec![keys("", Some("m")), keys("t", None)]),
        ];
        let topology = made(Placement::Range, shards).unwrap();
        for (key, id) in [("", 2), ("lzzz", 2), ("m", 1), ("szz", 1), ("t", 2), ("zz", 2)] {
            assert_eq!(topology.shard_of(key.as_bytes()), ShardId(id), "{key}");
        }
    }

    #[test]
    fn slots_that_do_not_cover_everything_once_are_refused() {
        let of = |ranges: &[(u16, u16)]| {
            let ranges = ranges.iter().map(|(first, last)| KeyRange::Slots(*first, *last));
            made(Placement::Slots, vec![shard(1, ranges.collect())]).map(|_| ()).unwrap_err()
        };
        assert_eq!(of(&[(1, 16_383)]), TopologyError::Gap("slot 0".into()));
        assert_eq!(of(&[(0, 16_382)]), TopologyError::Gap("slot 16383".into()));
        assert_eq!(of(&[(0, 9), (9, 16_383)]), TopologyError::Overlap(ShardId(1), ShardId(1)));
        assert_eq!(of(&[(0, 16_384)]), TopologyError::Backwards(ShardId(1)));
        assert_eq!(of(&[(5, 4)]), TopologyError::Backwards(ShardId(1)));
        assert_eq!(made(Placement::Slots, vec![]), Err(TopologyError::Empty));
        let foreign = vec![shard(1, vec![keys("", None)])];
        assert_eq!(made(Placement::Slots, foreign), Err(TopologyError::OtherPlacement(ShardId(1))));
        let mut lost = shard(1, vec![KeyRange::Slots(0, 16_383)]);
        lost.instance = NodeId([9; 20]);
        let error = TopologyError::UnknownNode(ShardId(1), NodeId([9; 20]));
        assert_eq!(made(Placement::Slots, vec![lost]), Err(error));
    }

    #[test]
    fn ranges_that_do_not_cover_everything_once_are_refused() {
        let of = |ranges: Vec<KeyRange>| {
            made(Placement::Range, vec![shard(1, ranges)]).map(|_| ()).unwrap_err()
        };
        let overlap = TopologyError::Overlap(ShardId(1), ShardId(1));
        assert_eq!(of(vec![keys("a", None)]), TopologyError::Gap("the key \"\"".into()));
        assert_eq!(of(vec![keys("", Some("b"))]), TopologyError::Gap("the key \"b\"".into()));
        assert_eq!(of(vec![keys("", Some("b")), keys("a", None)]), overlap);
        assert_eq!(of(vec![keys("", None), keys("a", None)]), overlap);
        let gap = of(vec![keys("", Some("b")), keys("c", None)]);
        assert_eq!(gap, TopologyError::Gap("the key \"b\"".into()));
        assert_eq!(of(vec![keys("", Some(""))]), TopologyError::Backwards(ShardId(1)));
    }
}
