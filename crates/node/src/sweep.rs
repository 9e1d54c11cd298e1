//! The sweep of a shard: its owner asks the other instances which copies of keys they keep in the shard's
//! name, and has those dropped that late messages of moves left behind.

use crate::epochs;
use crate::rpc::MoveMessage;
use crate::shared::Shared;
use crate::view::Order;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use terrace_cluster::{
    DbKey, Direction, Epoch, ExceptionList, KeyCopy, MoveAnswer, MoveCall, MoveId, Mover, NodeId,
    ShardId,
};
use tokio::sync::mpsc;

/// How long after a move the instances are asked: what comes late is late by less, mostly.
const AFTER_MOVE: Duration = Duration::from_secs(5);

/// How long after an instance has not answered it is asked again.
const AGAIN: Duration = Duration::from_secs(10);

/// When a shard is swept next, since the start of its task.
pub(crate) struct Sweep {
    due: Option<Duration>,
    /// Instances that were asked for their copies, or to drop some, and have not answered.
    asked_count: usize,
}

impl Sweep {
    /// A shard is taken over: it is swept at once, and then after moves.
    pub fn new() -> Self {
        Self { due: Some(Duration::ZERO), asked_count: 0 }
    }

    /// A move is over.
    pub fn note_move(&mut self, now: Duration) {
        self.due.get_or_insert(now + AFTER_MOVE);
    }

    /// An instance has not answered.
    pub fn note_failure(&mut self, now: Duration) {
        self.due.get_or_insert(now + AGAIN);
    }

    /// This many instances are asked.
    pub fn note_asked(&mut self, count: usize) {
        self.asked_count += count;
    }

    /// One of them has answered, or will not.
    pub fn note_answer(&mut self) {
        self.asked_count -= 1;
    }

    /// Whether an instance is still to be asked, or to answer.
    pub fn is_under_way(&self) -> bool {
        self.due.is_some() || self.asked_count > 0
    }

    /// How long to wait for the next sweep, if there is one.
    pub fn wait(&self, now: Duration) -> Option<Duration> {
        self.due.map(|due| due.saturating_sub(now))
    }

    /// Whether it is time; once.
    pub fn is_due(&mut self, now: Duration) -> bool {
        let is_due = self.due.is_some_and(|due| due <= now);
        if is_due {
            self.due = None;
        }
        is_due
    }
}

/// Asks all other instances for the copies that they keep in the name of a shard; the answers come as
/// [`Order::Copies`]. Returns how many will come; `None` if it is not known whom to ask.
pub(crate) fn ask(
    shared: &Arc<Shared>,
    (shard, epoch, home): (ShardId, Epoch, NodeId),
    orders: &mpsc::UnboundedSender<Order>,
) -> Option<usize> {
    let topology = shared.topology()?;
    let mut instances: BTreeMap<NodeId, Vec<ShardId>> = BTreeMap::new();
    for one in topology.shards.values().filter(|one| one.instance != home) {
        instances.entry(one.instance).or_default().push(one.id);
    }
    let count = instances.len();
    for (instance, shards) in instances {
        let (shared, orders) = (shared.clone(), orders.clone());
        tokio::spawn(async move {
            let copies = copies_at(&shared, instance, shard, epoch).await;
            let _ = orders.send(Order::Copies { instance, shards, copies });
        });
    }
    Some(count)
}

/// What an instance keeps in the name of a shard, or why it does not say.
async fn copies_at(
    shared: &Arc<Shared>,
    instance: NodeId,
    shard: ShardId,
    epoch: Epoch,
) -> Result<Vec<(DbKey, KeyCopy)>, String> {
    if !epochs::introduce(shared, instance, shard, epoch).await? {
        return Err("it knows a later epoch".into());
    }
    let records = shared.records_at(instance, shard, epoch).await;
    records.map(|records| records.copies).map_err(|why| why.to_string())
}

/// Which copies of an instance, that has these shards, are left behind, each as of a move. `copies` is its
/// list, read in this term of the owner.
pub(crate) fn stale<V: Clone>(
    mover: &Mover<V>,
    exceptions: &ExceptionList,
    shards: &[ShardId],
    copies: &[(DbKey, KeyCopy)],
) -> Vec<(DbKey, MoveId)> {
    let Some(at) = shards.first() else { return Vec::new() };
    let is_there = |key: &DbKey| {
        exceptions.get(key.db, &key.key).is_some_and(|exception| shards.contains(&exception.at))
    };
    let others = copies.iter().filter(|(key, _)| !is_there(key));
    mover.stale_copies(exceptions, *at, others.map(|(key, copy)| (key, *copy)))
}

/// Has copies of an instance dropped; whether they are comes as [`Order::Dropped`]. What fails is found by the next sweep.
pub(crate) fn drop_copies(
    shared: &Arc<Shared>,
    (shard, epoch): (ShardId, Epoch),
    (instance, other): (NodeId, ShardId),
    stale: Vec<(DbKey, MoveId)>,
    orders: &mpsc::UnboundedSender<Order>,
) {
    let (shared, orders) = (shared.clone(), orders.clone());
    tokio::spawn(async move {
        tracing::info!("{} copies are left behind at node {instance}: dropped", stale.len());
        for (key, id) in stale {
            let (direction, keys, call) = (Direction::Out, vec![key], MoveCall::Drop);
            let message = MoveMessage { shard, id, direction, other, keys, call };
            if shared.apply_move_at(instance, message, epoch).await != MoveAnswer::Done {
                return drop(orders.send(Order::Dropped(false)));
            }
        }
        let _ = orders.send(Order::Dropped(true));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_is_under_way_until_all_have_answered() {
        let now = Duration::ZERO;
        let mut sweep = Sweep::new();
        assert!(sweep.is_under_way(), "due");
        assert!(sweep.is_due(now));
        sweep.note_asked(2);
        sweep.note_answer();
        assert!(sweep.is_under_way(), "one has not answered");
        sweep.note_answer();
        assert!(!sweep.is_under_way());
        sweep.note_failure(now);
        assert!(sweep.is_under_way(), "due again");
    }
}
