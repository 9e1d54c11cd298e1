//! What administrators ask for, done by the node behind the server.

use super::admin::{AdminAnswer, AdminReply, AdminRequest, ClusterAdmin, Repartitioned};
use super::status::{ClusterFigures, ClusterStatus, NodeReport, NodeStatus, ShardStatus};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;
use terrace_cluster::{KeyRange, NodeId, Shard, Topology};
use terrace_node::Node;
use terrace_node::rpc::api;
use tokio::runtime::Handle;

/// How long an answer may take. What is not done by then goes on.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// See the module.
pub struct NodeAdmin {
    /// The cluster's name.
    name: String,
    /// The server has it, and ends it.
    node: Weak<Node>,
    runtime: Handle,
}

/// Called with the answer; with an error if it is dropped.
struct Done(Option<Box<dyn FnOnce(AdminAnswer) + Send>>);

impl Done {
    fn answer(mut self, answer: AdminAnswer) {
        if let Some(done) = self.0.take() {
            done(answer);
        }
    }
}

impl Drop for Done {
    fn drop(&mut self) {
        if let Some(done) = self.0.take() {
            done(Err("the node is ending".into()));
        }
    }
}

impl NodeAdmin {
    /// Of a node whose tasks are in this runtime.
    pub fn new(name: &str, node: &Arc<Node>, runtime: &Handle) -> Self {
        let (name, node, runtime) = (name.to_string(), Arc::downgrade(node), runtime.clone());
        Self { name, node, runtime }
    }
}

impl ClusterAdmin for NodeAdmin {
    fn begin(&self, request: AdminRequest, done: Box<dyn FnOnce(AdminAnswer) + Send>) {
        let done = Done(Some(done));
        let Some(node) = self.node.upgrade() else { return };
        let name = self.name.clone();
        self.runtime.spawn(async move {
            // A task of its own: what takes longer than the answer may goes on.
            let acting = tokio::spawn(async move { act(&name, &node, request).await });
            let answer = match tokio::time::timeout(ANSWER_TIMEOUT, acting).await {
                Ok(acted) => acted.unwrap_or_else(|_| Err("the node is ending".into())),
                Err(_) => Err(format!(
                    "not over after {} s; it goes on, see CLUSTER STATUS",
                    ANSWER_TIMEOUT.as_secs()
                )),
            };
            done.answer(answer);
        });
    }

    fn figures(&self) -> ClusterFigures {
        let Some(node) = self.node.upgrade() else { return ClusterFigures::default() };
        let known = node.figures();
        ClusterFigures {
            shards_served: known.shards_served,
            exceptions: known.exceptions,
            moved_keys: known.moved_keys,
            lease_age_ms: known.lease_age_ms,
            is_draining: known.is_draining,
            leads_partitioner: known.leads_partitioner,
            ..ClusterFigures::default()
        }
    }
}

async fn act(name: &str, node: &Node, request: AdminRequest) -> AdminAnswer {
    let text = |error: terrace_node::Error| error.to_string();
    match request {
        AdminRequest::Create(new) => match node.create(new.placement, &new.shards).await {
            Ok(true) => Ok(AdminReply::Done),
            Ok(false) => Err("the cluster exists already".into()),
            Err(error) => Err(text(error)),
        },
        AdminRequest::Status => Ok(AdminReply::Status(Box::new(status(name, node).await))),
        AdminRequest::MoveKey { key, to } => {
            node.move_key(key, to).await.map(|()| AdminReply::Done).map_err(text)
        }
        AdminRequest::Repartition { plan, keys } => {
            let done = node.repartition(&plan, keys).await.map_err(text)?;
            let (plan_keys, moves, failed) = (done.plan_keys, done.moves, done.failed);
            Ok(AdminReply::Repartition(Repartitioned { plan_keys, moves, failed }))
        }
        AdminRequest::Drain { node: id, is_over } => {
            node.drain(id, is_over).await.map(|()| AdminReply::Done).map_err(text)
        }
    }
}

async fn status(name: &str, node: &Node) -> ClusterStatus {
    let told = node.cluster_status().await;
    let topology = node.coordinator().topology();
    let (nodes, told) = (node.known_nodes(), &told);
    let mut status = of_topology(topology.as_deref(), told);
    status.name = name.to_string();
    status.me = node.id().to_string();
    let node_status = |node: terrace_cluster::Node| {
        let told = told.get(&node.id);
        NodeStatus {
            id: node.id.to_string(),
            redis_address: node.redis_address,
            bus_address: node.rpc_address,
            is_alive: node.is_alive,
            error: told.and_then(|told| told.as_ref().err().cloned()),
            report: told.and_then(|told| told.as_ref().ok()).map(report),
        }
    };
    status.nodes = nodes.into_iter().map(node_status).collect();
    status
}

fn report(told: &api::StatusReply) -> NodeReport {
    NodeReport {
        revision: told.revision,
        lease_age_ms: told.lease_age_ms,
        lease_ttl_ms: told.lease_ttl_ms,
        is_coordinator: told.is_coordinator,
        leads_partitioner: told.leads_partitioner,
        is_draining: told.is_draining,
        moved_keys: told.moved_keys,
        reads: told.reads,
        writes: told.writes,
        user_bytes: told.user_bytes,
        device_bytes: told.device_bytes,
        keys: told.keys,
    }
}

type Told = BTreeMap<NodeId, Result<api::StatusReply, String>>;

/// The shards, and whether they are served. Nodes are left out.
fn of_topology(topology: Option<&Topology>, told: &Told) -> ClusterStatus {
    let Some(topology) = topology else { return ClusterStatus::default() };
    let mut shards: Vec<ShardStatus> =
        topology.shards.values().map(|shard| shard_status(shard, told)).collect();
    shards.sort_by_key(|shard| (shard.is_served, shard.id));
    ClusterStatus {
        placement: Some(topology.placement.to_string()),
        revision: topology.revision.0,
        is_served: shards.iter().all(|shard| shard.is_served),
        shards,
        ..ClusterStatus::default()
    }
}

fn shard_status(shard: &Shard, told: &Told) -> ShardStatus {
    let owner = shard.owner;
    let by_owner = owner.filter(|owner| owner.is_claimed).and_then(|owner| told.get(&owner.node));
    let of_shard =
        |told: &api::StatusReply| told.shards.iter().find(|it| it.shard == shard.id.0).cloned();
    let by_instance = told.get(&shard.instance).and_then(|told| told.as_ref().ok());
    let refusal = by_instance.map(|told| &told.refusal).filter(|why| !why.is_empty());
    let (mut state, detail) = match (owner, by_owner) {
        (None, _) => ("never owned".to_string(), None),
        (Some(owner), _) if !owner.is_claimed => ("no owner".to_string(), None),
        (Some(_), Some(Ok(told))) => match of_shard(told) {
            Some(detail) => (detail.state.clone(), Some(detail)),
            None => ("being taken over".to_string(), None),
        },
        (Some(_), Some(Err(why))) => (format!("owner not asked: {why}"), None),
        (Some(_), None) => ("owner not known".to_string(), None),
    };
    let is_of_store = by_instance.is_some_and(|told| told.refuses_part);
    if let Some(why) = refusal.filter(|_| is_of_store || state != "serving") {
        state = format!("its instance refuses: {why}");
    }
    ShardStatus {
        id: shard.id.0,
        ranges: shard.ranges.iter().map(range).collect(),
        instance: shard.instance.to_string(),
        owner: owner.map(|owner| owner.node.to_string()),
        epoch: owner.map_or(0, |owner| owner.epoch.0),
        is_served: state == "serving",
        state,
        exceptions: detail.as_ref().map(|detail| detail.exceptions),
        waiting_moves: detail.as_ref().map_or(0, |detail| detail.waiting_moves),
        moves: detail.map(|detail| detail.moves).unwrap_or_default(),
    }
}

fn range(range: &KeyRange) -> String {
    let key = |key: &[u8]| format!("\"{}\"", key.escape_ascii());
    match range {
        KeyRange::Slots(first, last) if first == last => first.to_string(),
        KeyRange::Slots(first, last) => format!("{first}-{last}"),
        KeyRange::Keys { start, end } => {
            let start = if start.is_empty() { String::new() } else { key(start) };
            let end = end.as_deref().map(key).unwrap_or_default();
            format!("{start}..{end}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_cluster::{Epoch, Owner, Placement, Revision, ShardId};

    fn id(number: u8) -> NodeId {
        NodeId([number; 20])
    }

    #[test]
    fn a_shard_is_served_only_if_its_owner_says_so() {
        let node = |number| terrace_cluster::Node {
            id: id(number),
            redis_address: format!("127.0.0.1:{number}"),
            rpc_address: String::new(),
            is_alive: true,
        };
        let owner = |node, is_claimed| Some(Owner { node: id(node), epoch: Epoch(9), is_claimed });
        let slots = |first, last| vec![KeyRange::Slots(first, last)];
        let shard =
            |shard, owner, ranges| Shard { id: ShardId(shard), instance: id(1), owner, ranges };
        let shards = [
            shard(1, owner(1, true), slots(0, 99)),
            shard(2, owner(1, true), slots(100, 199)),
            shard(3, owner(2, true), slots(200, 299)),
            shard(4, owner(2, false), slots(300, 300)),
            shard(5, None, slots(301, 16_383)),
        ];
        let nodes = [node(1), node(2)];
        let topology = Topology::new(Revision(5), Placement::Slots, nodes, shards).unwrap();
        let serving = api::ShardStatus {
            shard: 1,
            state: "serving".into(),
            exceptions: 3,
            waiting_moves: 2,
            moves: vec!["9.1 exporting".into()],
            ..api::ShardStatus::default()
        };
        let told = api::StatusReply { shards: vec![serving], ..api::StatusReply::default() };
        let refusal = "another part".to_string();
        let refused = api::StatusReply { refusal, refuses_part: true, ..told.clone() };
        let told: Told = [(id(1), Ok(told)), (id(2), Err("away".into()))].into();
        let status = of_topology(Some(&topology), &told);
        assert!(!status.is_served);
        let seen: Vec<_> = status
            .shards
            .iter()
            .map(|shard| (shard.id, shard.is_served, &*shard.state, &*shard.ranges[0]))
            .collect();
        let wanted = [
            (2, false, "being taken over", "100-199"),
            (3, false, "owner not asked: away", "200-299"),
            (4, false, "no owner", "300"),
            (5, false, "never owned", "301-16383"),
            (1, true, "serving", "0-99"),
        ];
        assert_eq!(seen, wanted);
        let served = &status.shards[4];
        assert_eq!((served.exceptions, served.waiting_moves, served.moves.len()), (Some(3), 2, 1));
        assert_eq!(status.shards[0].exceptions, None);
        let status = of_topology(Some(&topology), &[(id(1), Ok(refused))].into());
        assert!(status.shards.iter().all(|it| !it.is_served && it.state.ends_with("another part")));
        let none = of_topology(None, &told);
        assert!(!none.is_served && none.placement.is_none() && none.shards.is_empty());
    }

    #[test]
    fn ranges_of_keys_are_shown_as_text() {
        let keys = |start: &[u8], end: Option<&[u8]>| {
            range(&KeyRange::Keys { start: start.into(), end: end.map(Into::into) })
        };
        assert_eq!(keys(b"", Some(b"g")), "..\"g\"");
        assert_eq!(keys(b"g\xff\"", None), "\"g\\xff\\\"\"..");
    }
}
