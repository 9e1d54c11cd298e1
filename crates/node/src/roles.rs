//! What this node does when another one asks: it executes calls and messages of moves, lists its shards' records,
//! counts and plans. See `rpc/services.rs` for how it is asked.

use crate::directory::NodeState;
use crate::follower;
use crate::part::Part;
use crate::rpc::{CallSink, MoveMessage, Roles, ShardRecords, TakenPlan, TopCounts, api};
use crate::shared::Shared;
use crate::view::{Order, OwnedShard, OwnerStatus};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use terrace_cluster::{
    Cancellation, DbKey, Epoch, IncomingCall, MoveAnswer, NodeId, Plan, Reply, Revision, ShardId,
};
use tokio::sync::oneshot;
use tonic::Status;

/// How long the answer to a drain takes, at most; the drain goes on after that. Administrators wait for a minute.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);

/// How often is looked whether shards are given up.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// How long a shard's task may take to answer.
const ORDER_TIMEOUT: Duration = Duration::from_secs(2);

/// See the module.
pub(crate) struct NodeRoles {
    pub shared: Arc<Shared>,
}

fn internal(error: impl std::fmt::Display) -> Status {
    Status::internal(error.to_string())
}

impl NodeRoles {
    /// Takes no shards from now on, and waits until none is served here, whether others see that or not, and what was under
    /// way for them is over: without the lease no answer counts.
    pub async fn give_up_shards(&self) {
        self.shared.is_draining.send_replace(true);
        while !self.shared.view.load().owned.is_empty() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        // First those who may have routed a call, then the calls.
        self.shared.gate.drain().await;
        self.shared.calls.drain().await;
    }

    fn owned(&self, shard: ShardId) -> Result<Arc<OwnedShard>, Status> {
        let view = self.shared.view.load();
        let owned = view.owned.get(&shard);
        let owned = owned.filter(|owned| self.shared.stamp.covers(owned.generation));
        owned.cloned().ok_or_else(|| {
            Status::failed_precondition(format!("shard {shard} is not served by this node"))
        })
    }
}

#[tonic::async_trait]
impl CallSink for NodeRoles {
    fn me(&self) -> NodeId {
        self.shared.me
    }

    fn revision(&self) -> Revision {
        *self.shared.published.borrow()
    }

    async fn wait_for_revision(&self, revision: Revision) {
        follower::wait_for(&self.shared, revision).await;
    }

    fn execute(&self, call: IncomingCall, done: Box<dyn FnOnce(Reply) + Send>) {
        self.shared.executor.execute(call, done);
    }

    fn execute_until(
        &self,
        call: IncomingCall,
        cancellation: Cancellation,
        done: Box<dyn FnOnce(Reply) + Send>,
    ) {
        self.shared.executor.execute_until(call, cancellation, done);
    }
}

#[tonic::async_trait]
impl Roles for NodeRoles {
    async fn top_counts(&self, keys: usize) -> Result<TopCounts, Status> {
        self.shared.top_counts(keys).await.map_err(internal)
    }

    async fn fence(&self, shard: ShardId, epoch: Epoch) -> Result<Epoch, Status> {
        self.shared.fence(shard, epoch).await.map_err(internal)
    }

    async fn records(&self, shard: ShardId, epoch: Epoch) -> Result<ShardRecords, Status> {
        self.shared.records(shard, epoch).await
    }

    async fn apply_move(&self, message: MoveMessage, epoch: Epoch) -> MoveAnswer<Vec<u8>> {
        self.shared.apply_move(message, epoch).await
    }

    async fn stray_key(&self, part: Part) -> Result<Option<DbKey>, Status> {
        self.shared.stray_key(part).await.map_err(internal)
    }

    async fn repartition(&self, plan: Plan) -> Result<TakenPlan, Status> {
        let topology = self.shared.topology();
        let topology = topology.ok_or_else(|| Status::unavailable("no topology yet"))?;
        plan.check(&topology).map_err(|why| Status::invalid_argument(why.to_string()))?;
        let mut taken = TakenPlan::default();
        // One that does not take its part, as it is served in another's place, stops no other.
        for (shard, part) in plan.parts {
            let asked = async {
                let owned = self.owned(shard)?;
                ask(&owned, ORDER_TIMEOUT, |done| Order::Repartition(part, done)).await
            };
            match asked.await {
                Ok(moves) => taken.moves += moves,
                Err(status) => taken.refused.push((shard, status.message().to_string())),
            }
        }
        Ok(taken)
    }

    async fn move_key(&self, key: DbKey, to: Option<ShardId>) -> Result<(), Status> {
        let topology = self.shared.topology();
        let topology = topology.ok_or_else(|| Status::unavailable("no topology yet"))?;
        if let Some(unknown) = to.filter(|to| !topology.shards.contains_key(to)) {
            return Err(Status::invalid_argument(format!("the cluster has no shard {unknown}")));
        }
        let home = topology.shard_of(&key.key);
        let instance = |shard: ShardId| topology.shards.get(&shard).map(|shard| shard.instance);
        if let Some(to) = to.filter(|to| *to != home && instance(*to) == instance(home)) {
            let why = format!("shards {home} and {to} have the same store");
            return Err(Status::invalid_argument(why));
        }
        let owned = self.owned(home)?;
        let (done, moved) = oneshot::channel();
        let ended = || Status::unavailable("the shard is not served any more");
        owned.orders.send(Order::MoveKey(key, to, done)).map_err(|_| ended())?;
        // It keeps the channel, and with it what comes into that after its end.
        drop(owned);
        moved.await.map_err(|_| ended())?.map_err(Status::failed_precondition)
    }

    async fn status(&self) -> api::StatusReply {
        let shared = &self.shared;
        let view = shared.view.load_full();
        let mut shards = Vec::new();
        for owned in view.owned.values() {
            let (done, status) = oneshot::channel();
            let _ = owned.orders.send(Order::Status(done));
            let status = tokio::time::timeout(ORDER_TIMEOUT, status).await;
            // Who does not answer may be at anything.
            let unknown = || OwnerStatus { is_sweeping: true, ..OwnerStatus::default() };
            let OwnerStatus { waiting_moves, moves, is_sweeping } =
                status.ok().and_then(Result::ok).unwrap_or_else(unknown);
            let is_sure = shared.stamp.covers(owned.generation);
            shards.push(api::ShardStatus {
                shard: owned.shard.0,
                epoch: owned.epoch.0,
                state: if is_sure { "serving" } else { "lease not sure" }.into(),
                exceptions: owned.keys.read().exceptions.len() as u64,
                waiting_moves,
                moves,
                is_sweeping,
            });
        }
        shards.sort_by_key(|shard| shard.shard);
        let load = shared.load().await;
        api::StatusReply {
            node: shared.me.0.to_vec(),
            revision: shared.revision.load(Ordering::SeqCst),
            lease_age_ms: shared.stamp.age_ms(),
            lease_ttl_ms: shared.config.lease.as_millis() as u64,
            leads_partitioner: shared.leads(),
            shards,
            is_draining: *shared.is_draining.borrow(),
            moved_keys: shared.moved_keys.load(Ordering::Relaxed),
            reads: load.reads,
            writes: load.writes,
            user_bytes: load.user_bytes,
            device_bytes: load.device_bytes,
            keys: load.keys,
            is_coordinator: shared.config.is_coordinator,
            refusal: shared.refusal_for_people().unwrap_or_default(),
            refuses_part: shared.part_check.is_refused(),
        }
    }

    async fn drain(&self, is_over: bool) -> Result<(), Status> {
        let draining = &self.shared.is_draining;
        draining.send_replace(!is_over);
        // Until all can see it.
        let takes_shards = || {
            let directory = self.shared.directory.borrow().clone();
            let state = directory.and_then(|directory| directory.state_of(self.shared.me));
            state == Some(NodeState::Coordinator)
        };
        let given_up = async {
            while !is_over && (takes_shards() || !self.shared.view.load().owned.is_empty()) {
                if !*draining.borrow() {
                    return Err(Status::aborted("it was asked to take shards again meanwhile"));
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
            Ok(())
        };
        let in_time = tokio::time::timeout(DRAIN_TIMEOUT, given_up).await;
        in_time.unwrap_or_else(|_| {
            let me = self.shared.me;
            let why = format!("node {me} is drained, but has not given up all of its shards yet");
            Err(Status::unavailable(why))
        })
    }
}

/// Asks the task of a shard, and waits for the answer for this long at most.
async fn ask<T>(
    owned: &OwnedShard,
    limit: Duration,
    order: impl FnOnce(oneshot::Sender<Result<T, String>>) -> Order,
) -> Result<T, Status> {
    let (done, answer) = oneshot::channel();
    let ended = || Status::unavailable("the shard is not served any more");
    owned.orders.send(order(done)).map_err(|_| ended())?;
    let answer = tokio::time::timeout(limit, answer).await.map_err(|_| {
        let why = format!(
            "the shard took longer than {limit:?} to answer, and may yet do what it was asked for"
        );
        Status::deadline_exceeded(why)
    })?;
    answer.map_err(|_| ended())?.map_err(Status::failed_precondition)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::AwayKeys;
    use parking_lot::RwLock;
    use tokio::sync::mpsc;

    #[tokio::test]
    async fn a_shard_that_answers_late_is_not_called_one_that_is_gone() {
        let (orders, mut taken) = mpsc::unbounded_channel();
        let owned = OwnedShard {
            shard: ShardId(7),
            epoch: Epoch(1),
            instance: NodeId([1; 20]),
            generation: 1,
            keys: RwLock::new(AwayKeys::default()),
            orders,
        };
        let answer = async || {
            let asked = ask(&owned, Duration::ZERO, |done| Order::Repartition(Vec::new(), done));
            asked.await.unwrap_err().message().to_string()
        };
        let late = answer().await;
        assert!(late.contains("took longer than 0ns"), "{late}");
        // It may do it yet.
        assert!(matches!(taken.try_recv(), Ok(Order::Repartition(..))));
        drop(taken);
        assert_eq!(answer().await, "the shard is not served any more");
    }
}
