//! What administrators ask a cluster for: `CLUSTER CREATE`, `STATUS`, `MOVEKEY`, `REPARTITION` and `DRAIN`.
//!
//! ```text
//! command ── AdminRequest ──► ClusterAdmin ── AdminAnswer ──► AdminSlot of the client's session
//!    ▲                                                              │ the client is served further
//!    └────────────── the same command again: takes the answer ◄─────┘
//! ```
//! No thread waits for an answer: the client is blocked, as one whose key is being moved.

use super::status::{ClusterFigures, ClusterStatus};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use terrace_cluster::{
    DbKey, KeyRange, NodeId, Placement, PlanSpec, SLOT_COUNT, ShardId, Topology, TopologyError,
};

/// At most this many shards are created with a cluster.
pub const MAX_CREATED_SHARDS: usize = 40;

/// The longest boundary between two shards, in bytes.
const MAX_BOUNDARY_BYTES: usize = 1024;

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdminRequest {
    /// Creates the cluster.
    Create(ClusterSpec),
    /// What all nodes do.
    Status,
    /// Moves a key to a shard's instance, or home; answered when it is there.
    MoveKey {
        /// The key.
        key: DbKey,
        /// `None`: home.
        to: Option<ShardId>,
    },
    /// Makes a plan and sends it to the owners.
    Repartition {
        /// By which rule.
        plan: PlanSpec,
        /// How many keys each instance is asked for.
        keys: usize,
    },
    /// Takes a node's shards away from it; answered when it owns none.
    Drain {
        /// The node.
        node: NodeId,
        /// It may own shards again.
        is_over: bool,
    },
}

/// What a cluster is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterSpec {
    /// How keys are distributed.
    pub placement: Placement,
    /// Each with the node whose store has its keys.
    pub shards: Vec<(ShardId, NodeId, Vec<KeyRange>)>,
}

/// What came of a request.
#[derive(Debug, Clone, PartialEq)]
pub enum AdminReply {
    /// It was done.
    Done,
    /// Of [`AdminRequest::Status`].
    Status(Box<ClusterStatus>),
    /// Of [`AdminRequest::Repartition`].
    Repartition(Repartitioned),
}

/// What came of a plan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Repartitioned {
    /// Keys that shall not be at home.
    pub plan_keys: usize,
    /// Keys that are going to be moved.
    pub moves: u64,
    /// Owners that did not take their part, and why.
    pub failed: Vec<(NodeId, String)>,
}

/// The reply, or the text of an error.
pub type AdminAnswer = Result<AdminReply, String>;

/// Does what administrators ask for.
pub trait ClusterAdmin: Send + Sync {
    /// Begins it and returns; `done` is called once, from any thread. What is not over after a bounded time
    /// is answered with an error, and goes on.
    fn begin(&self, request: AdminRequest, done: Box<dyn FnOnce(AdminAnswer) + Send>);

    /// What this node knows by itself. Cheap, and waits for nothing.
    fn figures(&self) -> ClusterFigures;
}

/// Where the answer of one request goes.
#[derive(Debug, Clone, Default)]
pub struct AdminSlot(Arc<Mutex<Option<AdminAnswer>>>);

impl AdminSlot {
    /// Puts it there.
    pub fn lay(&self, answer: AdminAnswer) {
        *self.0.lock() = Some(answer);
    }

    /// Takes it, if it is there.
    pub fn take(&self) -> Option<AdminAnswer> {
        self.0.lock().take()
    }
}

/// Why no cluster can be made of something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClusterSpecError {
    /// Without a node.
    NoNodes,
    /// More than [`MAX_CREATED_SHARDS`].
    TooMany(usize),
    /// A node is named twice: a store is the instance of one shard.
    Twice(NodeId),
    /// Boundaries with placement `slots`.
    NotRange,
    /// There must be one boundary less than nodes: nodes, boundaries.
    Boundaries(usize, usize),
    /// A boundary is empty or too long.
    Length(usize),
    /// A boundary that is not behind the one before it.
    Order(Vec<u8>, Vec<u8>),
    /// The parts do not cover the key space once.
    Topology(TopologyError),
}

impl fmt::Display for ClusterSpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoNodes => f.write_str("a cluster needs at least one node"),
            Self::TooMany(count) => {
                write!(f, "{count} nodes: a cluster is created with at most {MAX_CREATED_SHARDS}")
            }
            Self::Twice(node) => write!(f, "node {node} is named twice"),
            Self::NotRange => f.write_str("only a cluster by RANGE has BOUNDARIES"),
            Self::Boundaries(nodes, boundaries) => write!(
                f,
                "{nodes} nodes need {} BOUNDARIES between their ranges, not {boundaries}",
                nodes - 1
            ),
            Self::Length(bytes) => {
                write!(f, "a boundary has {bytes} bytes: it must have 1 to {MAX_BOUNDARY_BYTES}")
            }
            Self::Order(before, after) => write!(
                f,
                "the boundary \"{}\" is not behind \"{}\": ranges would overlap",
                after.escape_ascii(),
                before.escape_ascii()
            ),
            Self::Topology(error) => error.fmt(f),
        }
    }
}

impl ClusterSpec {
    /// One shard for each node, with equal parts of the slots, or with the ranges between these boundaries. Shards
    /// are numbered from 1 on.
    ///
    /// # Errors
    /// No cluster can be made of it.
    pub fn of(
        placement: Placement,
        nodes: &[NodeId],
        boundaries: &[&[u8]],
    ) -> Result<Self, ClusterSpecError> {
        match nodes.len() {
            0 => return Err(ClusterSpecError::NoNodes),
            1..=MAX_CREATED_SHARDS => {}
            count => return Err(ClusterSpecError::TooMany(count)),
        }
        let mut seen = BTreeSet::new();
        if let Some(node) = nodes.iter().find(|node| !seen.insert(**node)) {
            return Err(ClusterSpecError::Twice(*node));
        }
        let parts = match placement {
            Placement::Slots if !boundaries.is_empty() => return Err(ClusterSpecError::NotRange),
            Placement::Slots => slots(nodes.len()),
            Placement::Range => ranges(nodes.len(), boundaries)?,
        };
        let all = (1..).map(ShardId).zip(nodes).zip(parts);
        let shards: Vec<_> = all.map(|((id, node), part)| (id, *node, vec![part])).collect();
        let this = Self { placement, shards };
        this.check().map_err(ClusterSpecError::Topology)?;
        Ok(this)
    }

    /// Whether the shards cover the key space once.
    fn check(&self) -> Result<(), TopologyError> {
        let node = |id| terrace_cluster::Node {
            id,
            redis_address: String::new(),
            rpc_address: String::new(),
            is_alive: true,
        };
        let nodes = self.shards.iter().map(|(_, id, _)| node(*id));
        let shards = self.shards.iter().map(|(id, instance, ranges)| terrace_cluster::Shard {
            id: *id,
            instance: *instance,
            owner: None,
            ranges: ranges.clone(),
        });
        let revision = terrace_cluster::Revision(0);
        Topology::new(revision, self.placement, nodes, shards).map(|_| ())
    }
}

/// As many equal parts of the slots.
fn slots(count: usize) -> Vec<KeyRange> {
    let start = |part: usize| (usize::from(SLOT_COUNT) * part / count) as u16;
    (0..count).map(|part| KeyRange::Slots(start(part), start(part + 1) - 1)).collect()
}

/// The ranges between boundaries: each belongs to the range behind it.
fn ranges(count: usize, boundaries: &[&[u8]]) -> Result<Vec<KeyRange>, ClusterSpecError> {
    if boundaries.len() + 1 != count {
        return Err(ClusterSpecError::Boundaries(count, boundaries.len()));
    }
    let is_wrong = |length: &usize| !(1..=MAX_BOUNDARY_BYTES).contains(length);
    if let Some(length) = boundaries.iter().map(|boundary| boundary.len()).find(is_wrong) {
        return Err(ClusterSpecError::Length(length));
    }
    if let Some(pair) = boundaries.windows(2).find(|pair| pair[0] >= pair[1]) {
        return Err(ClusterSpecError::Order(pair[0].to_vec(), pair[1].to_vec()));
    }
    let starts = std::iter::once(Vec::new()).chain(boundaries.iter().map(|it| it.to_vec()));
    let ends = boundaries.iter().map(|it| Some(it.to_vec())).chain([None]);
    Ok(starts.zip(ends).map(|(start, end)| KeyRange::Keys { start, end }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u8) -> NodeId {
        NodeId([number; 20])
    }

    fn ids(count: u8) -> Vec<NodeId> {
        (1..=count).map(id).collect()
    }

    fn refused(placement: Placement, nodes: &[NodeId], boundaries: &[&[u8]]) -> ClusterSpecError {
        ClusterSpec::of(placement, nodes, boundaries).unwrap_err()
    }

    #[test]
    fn slots_are_divided_as_equally_as_possible() {
        for count in 1..=MAX_CREATED_SHARDS as u8 {
            let new = ClusterSpec::of(Placement::Slots, &ids(count), &[]).unwrap();
            let sizes: Vec<u16> = new
                .shards
                .iter()
                .map(|(_, _, ranges)| match ranges[..] {
                    [KeyRange::Slots(first, last)] => last - first + 1,
                    _ => panic!("{ranges:?}"),
                })
                .collect();
            assert_eq!(sizes.iter().sum::<u16>(), SLOT_COUNT);
            let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
            assert!(most - least <= 1, "{sizes:?}");
        }
        let three = ClusterSpec::of(Placement::Slots, &ids(3), &[]).unwrap();
        assert_eq!(three.shards[0], (ShardId(1), id(1), vec![KeyRange::Slots(0, 5460)]));
        assert_eq!(three.shards[2], (ShardId(3), id(3), vec![KeyRange::Slots(10_922, 16_383)]));
    }

    #[test]
    fn ranges_are_those_between_the_boundaries() {
        let new = ClusterSpec::of(Placement::Range, &ids(3), &[b"g", b"q"]).unwrap();
        let keys = |start: &str, end: Option<&str>| {
            vec![KeyRange::Keys { start: start.into(), end: end.map(Into::into) }]
        };
        let parts: Vec<_> = new.shards.into_iter().map(|(_, _, ranges)| ranges).collect();
        assert_eq!(parts, [keys("", Some("g")), keys("g", Some("q")), keys("q", None)]);
        assert!(ClusterSpec::of(Placement::Range, &ids(1), &[]).is_ok());
    }

    #[test]
    fn what_makes_no_cluster_is_refused() {
        use ClusterSpecError as E;
        let (slots, range) = (Placement::Slots, Placement::Range);
        assert_eq!(refused(slots, &[], &[]), E::NoNodes);
        assert_eq!(refused(slots, &ids(41), &[]), E::TooMany(41));
        assert_eq!(refused(slots, &[id(1), id(2), id(1)], &[]), E::Twice(id(1)));
        assert_eq!(refused(slots, &ids(2), &[b"m"]), E::NotRange);
        assert_eq!(refused(range, &ids(2), &[]), E::Boundaries(2, 0));
        assert_eq!(refused(range, &ids(2), &[b"a", b"b"]), E::Boundaries(2, 2));
        assert_eq!(refused(range, &ids(2), &[b""]), E::Length(0));
        assert_eq!(refused(range, &ids(2), &[&[b'x'; 1025]]), E::Length(1025));
        let order = |before: &str, after: &str| E::Order(before.into(), after.into());
        assert_eq!(refused(range, &ids(3), &[b"q", b"g"]), order("q", "g"));
        assert_eq!(refused(range, &ids(3), &[b"g", b"g"]), order("g", "g"));
        let text = refused(range, &ids(3), &[b"q", b"g"]).to_string();
        assert_eq!(text, "the boundary \"g\" is not behind \"q\": ranges would overlap");
    }
}
