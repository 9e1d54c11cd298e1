//! The metadata store of the simulation: owners, claims and leases, changed by transactions.

use std::collections::BTreeMap;
use terrace_cluster::*;

/// What a node reads of it.
#[derive(Debug, Clone, Default)]
pub struct View {
    pub revision: Revision,
    pub owners: BTreeMap<ShardId, Owner>,
    /// Nodes whose lease lives.
    pub alive: Vec<NodeId>,
}

pub struct Metadata {
    ttl_ms: u64,
    revision: u64,
    owners: BTreeMap<ShardId, (NodeId, Epoch)>,
    /// The lease of the claim.
    claims: BTreeMap<ShardId, u64>,
    leases: BTreeMap<u64, (NodeId, u64)>,
    next_lease: u64,
}

impl Metadata {
    pub fn new(ttl_ms: u64) -> Self {
        Self {
            ttl_ms,
            revision: 1,
            owners: BTreeMap::new(),
            claims: BTreeMap::new(),
            leases: BTreeMap::new(),
            next_lease: 1,
        }
    }

    /// Ends leases whose time is over.
    pub fn expire(&mut self, now: u64) {
        let over = self.leases.iter().filter(|(_, (_, end))| now >= *end);
        for lease in over.map(|(lease, _)| *lease).collect::<Vec<_>>() {
            self.leases.remove(&lease);
            self.claims.retain(|_, of| *of != lease);
            self.revision += 1;
        }
    }

    /// A new leader: all leases begin anew.
    pub fn restart_leases(&mut self, now: u64) {
        for (_, end) in self.leases.values_mut() {
            *end = now + self.ttl_ms;
        }
    }

    pub fn grant(&mut self, now: u64, node: NodeId) -> u64 {
        let lease = self.next_lease;
        self.next_lease += 1;
        self.revision += 1;
        self.leases.insert(lease, (node, now + self.ttl_ms));
        lease
    }

    pub fn keep_alive(&mut self, now: u64, lease: u64) -> bool {
        match self.leases.get_mut(&lease) {
            Some((_, end)) => {
                *end = now + self.ttl_ms;
                true
            }
            None => false,
        }
    }

    pub fn view(&self) -> View {
        let owners = self.owners.iter().map(|(&shard, &(node, epoch))| {
            let is_claimed = self.claims.contains_key(&shard);
            (shard, Owner { node, epoch, is_claimed })
        });
        View {
            revision: Revision(self.revision),
            owners: owners.collect(),
            alive: self.leases.values().map(|(node, _)| *node).collect(),
        }
    }

    pub fn claim(
        &mut self,
        shard: ShardId,
        node: NodeId,
        seen: Option<Epoch>,
        replace: bool,
        lease: u64,
    ) -> ClaimAnswer {
        let owner = self.owners.get(&shard).copied();
        let is_seen = owner.map(|(_, epoch)| epoch) == seen;
        let is_free = match self.claims.contains_key(&shard) {
            true => replace && owner.is_some_and(|(of, _)| of == node),
            false => !replace,
        };
        if !is_seen || !is_free {
            return ClaimAnswer::Lost;
        }
        if !self.leases.contains_key(&lease) {
            return ClaimAnswer::Unknown;
        }
        self.revision += 1;
        let epoch = Epoch(self.revision);
        self.owners.insert(shard, (node, epoch));
        self.claims.insert(shard, lease);
        ClaimAnswer::Won(epoch)
    }

    pub fn give_up(&mut self, shard: ShardId, node: NodeId, epoch: Epoch) {
        if self.owners.get(&shard) == Some(&(node, epoch)) && self.claims.remove(&shard).is_some() {
            self.revision += 1;
        }
    }
}
