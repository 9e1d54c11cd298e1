//! What administrators ask a node for, beside what its other methods do.

use super::{Node, create_cluster};
use crate::error::Error;
use crate::part::Part;
use crate::part_check::stray_text;
use crate::rpc::api;
use crate::shared::Shared;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_cluster::{DbKey, KeyRange, NodeId, Placement, ShardId};

/// A node in numbers, for monitoring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeFigures {
    /// Shards that it serves.
    pub shards_served: u64,
    /// Keys of these that are not at home.
    pub exceptions: u64,
    /// Keys that it moved as owner.
    pub moved_keys: u64,
    /// Milliseconds since the last confirmed keep-alive was sent.
    pub lease_age_ms: u64,
    /// It gives its shards up.
    pub is_draining: bool,
    /// It makes plans by itself at the moment.
    pub leads_partitioner: bool,
}

impl Node {
    /// What it knows by itself at the moment. Waits for nothing.
    pub fn figures(&self) -> NodeFigures {
        let (shared, view) = (&self.shared, self.shared.view.load());
        let exceptions = view.owned.values().map(|shard| shard.keys.read().exceptions.len());
        NodeFigures {
            shards_served: view.owned.len() as u64,
            exceptions: exceptions.sum::<usize>() as u64,
            moved_keys: shared.moved_keys.load(Ordering::Relaxed),
            lease_age_ms: shared.stamp.age_ms(),
            is_draining: *shared.is_draining.borrow(),
            leads_partitioner: shared.leads(),
        }
    }

    /// All nodes that ever joined this cluster, also before it was created; none before the metadata was read.
    pub fn known_nodes(&self) -> Vec<terrace_cluster::Node> {
        let directory = self.shared.directory.borrow().clone();
        directory.map(|directory| directory.members()).unwrap_or_default()
    }

    /// Creates the cluster that this node joined, of nodes that are alive, unless it exists. Whether it was
    /// created.
    ///
    /// # Errors
    /// The placement is not that of this node's store, a node is not known or not alive or does not answer, or has another
    /// part of the keys in its store than it would be given, or a key that is not of that one; else as [`create_cluster`].
    pub async fn create(
        &self,
        placement: Placement,
        shards: &[(ShardId, NodeId, Vec<KeyRange>)],
    ) -> Result<bool, Error> {
        let shared = &self.shared;
        if let Some(own) = shared.config.placement.filter(|own| *own != placement) {
            let why = format!("the store of this node has placement {own}, not {placement}");
            return Err(Error::Config(why));
        }
        let known = self.known_nodes();
        for (_, id, _) in shards {
            match known.iter().find(|node| node.id == *id) {
                Some(node) if node.is_alive => {}
                Some(_) => return Err(Error::Unserved(format!("node {id} is not alive"))),
                None => return Err(Error::Unserved(format!("node {id} has not joined"))),
            }
        }
        self.check_parts(placement, shards)?;
        self.check_strays(placement, shards).await?;
        create_cluster(&*shared.metadata, &shared.config.cluster, placement, shards).await
    }

    /// Refuses a cluster in which a store would not have what it had in an earlier one, whose metadata are lost.
    fn check_parts(
        &self,
        placement: Placement,
        shards: &[(ShardId, NodeId, Vec<KeyRange>)],
    ) -> Result<(), Error> {
        let (shared, nodes) = (&self.shared, self.known_nodes());
        let directory = shared.directory.borrow().clone();
        let mut parts = directory.map(|directory| directory.parts()).unwrap_or_default();
        parts.extend(shared.part_check.known().map(|part| (shared.me, part)));
        let node_of = |id: &NodeId| nodes.iter().find(|node| node.id == *id);
        // One that is away, and is not wanted, may be gone for good.
        parts.retain(|id, _| {
            let is_wanted = shards.iter().any(|(_, node, _)| node == id);
            is_wanted || node_of(id).is_some_and(|node| node.is_alive)
        });
        let is_other = |(id, part): &(&NodeId, &Part)| {
            Part::of(placement, shards, **id).as_ref() != Some(*part)
        };
        let Some((id, part)) = parts.iter().find(is_other) else { return Ok(()) };
        let address =
            |id: &NodeId| node_of(id).map_or(id.to_string(), |it| it.redis_address.clone());
        let wanted = Part::of(placement, shards, *id).map_or("none".into(), |it| it.describe());
        let mut order: Vec<_> = parts.iter().collect();
        order.sort_by_key(|(_, part)| part.first_shard());
        let order: Vec<String> = order
            .iter()
            .map(|(id, part)| format!("{} ({})", address(id), part.describe()))
            .collect();
        Err(Error::Config(format!(
            "the store of {} has {} of an earlier cluster, and would be given {wanted}; the order that fits: {}",
            address(id),
            part.describe(),
            order.join(", ")
        )))
    }

    /// Refuses a cluster in which keys of a store would not be found. All nodes are asked at the same time.
    async fn check_strays(
        &self,
        placement: Placement,
        shards: &[(ShardId, NodeId, Vec<KeyRange>)],
    ) -> Result<(), Error> {
        let mut asked = tokio::task::JoinSet::new();
        for node in self.known_nodes() {
            let Some(part) = Part::of(placement, shards, node.id) else { continue };
            let shared = self.shared.clone();
            asked.spawn(async move {
                let stray = stray_key_at(&shared, &node, &part).await;
                (node, part, stray)
            });
        }
        while let Some(told) = asked.join_next().await {
            // It fails only when the runtime ends.
            let Ok((node, part, stray)) = told else { continue };
            if let Some(key) = stray.map_err(Error::Unserved)? {
                let (id, address, why) = (node.id, &node.redis_address, stray_text(&part, &key));
                return Err(Error::Config(format!("node {id} at {address}: {why}")));
            }
        }
        Ok(())
    }

    /// What all nodes do at the moment, or why they do not say. All are asked at the same time; one that is
    /// away costs the time limit of a link.
    pub async fn cluster_status(&self) -> BTreeMap<NodeId, Result<api::StatusReply, String>> {
        let mut asked = tokio::task::JoinSet::new();
        for node in self.known_nodes() {
            let shared = self.shared.clone();
            asked.spawn(async move {
                let away = || "the node is not alive".to_string();
                if !node.is_alive {
                    return (node.id, Err(away()));
                }
                // Before the cluster was created only this node is known as a peer.
                let status = match shared.peer_at(node.id, &node.rpc_address) {
                    Some(peer) => peer.status().await.map_err(|it| it.message().to_string()),
                    None => Err(format!("\"{}\" is no address", node.rpc_address.escape_debug())),
                };
                (node.id, status)
            });
        }
        let mut all = BTreeMap::new();
        while let Some(told) = asked.join_next().await {
            // It fails only when the runtime ends.
            all.extend(told.ok());
        }
        all
    }
}

/// A key of a node's store that is not of this part, or why that is not known.
async fn stray_key_at(
    shared: &Arc<Shared>,
    node: &terrace_cluster::Node,
    part: &Part,
) -> Result<Option<DbKey>, String> {
    if node.id == shared.me {
        return shared.stray_key(part.clone()).await.map_err(|why| why.to_string());
    }
    let Some(peer) = shared.peer_at(node.id, &node.rpc_address) else {
        return Err(format!("\"{}\" is no address", node.rpc_address.escape_debug()));
    };
    match peer.stray_key(part).await {
        // One of an earlier build looks when its store is first served on.
        Err(status) if status.code() == tonic::Code::Unimplemented => Ok(None),
        told => told.map_err(|status| status.message().to_string()),
    }
}
