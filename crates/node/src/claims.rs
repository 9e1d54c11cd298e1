//! Which shards this node owns: feeds what happens into one [`Ownership`] per shard, and does what that
//! says. One task, for ever.
//!
//! ```text
//! directory, lease, time, answers -> Ownership -> probe, claim, fence, load, drain, give up -> answers
//! ```

use crate::directory::{Directory, NodeState};
use crate::epochs::{self, Passed};
use crate::error::Error;
use crate::owner::{self, TakenOver};
use crate::part::Part;
use crate::shared::Shared;
use crate::too_far::TooFar;
use crate::view::Order;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use terrace_cluster::{
    ClaimAnswer, Epoch, FenceAnswer, NodeId, OwnerAnswer, OwnerEffect, OwnerEvent, OwnerRequest,
    Ownership, OwnershipTimes, ShardId, Ticket, Topology, claim_rank,
};
use terrace_metadata::{LeaseId, Transaction};
use tokio::sync::{mpsc, oneshot};

/// A node gives up if another process is alive as it is for this many of its leases. One that has ended is gone after one
/// lease of its own.
const RIVAL_LEASES: u32 = 3;

/// A shard, as this node sees it.
struct Shard {
    ownership: Ownership,
    instance: NodeId,
    /// Of the lease that the last claim was made with.
    generation: u64,
    serving: Option<(Epoch, TakenOver)>,
}

/// What spawned work reports.
enum Report {
    Answered(ShardId, Ticket, OwnerAnswer),
    /// The shard is loaded, for this term.
    Loaded(ShardId, Ticket, Epoch, TakenOver),
}

struct Claims {
    shared: Arc<Shared>,
    shards: HashMap<ShardId, Shard>,
    reports: mpsc::UnboundedSender<Report>,
    directory: Option<Arc<Directory>>,
    /// The last attempt to register failed: said once for each time that the metadata store is away.
    is_away: bool,
    /// It is a member under its present lease. Nothing is claimed before.
    has_registered: bool,
    /// The lease of another process that is alive as this node, and since when that is seen.
    rival: Option<(LeaseId, Duration)>,
}

pub(crate) async fn run(
    shared: Arc<Shared>,
    mut deposed: mpsc::UnboundedReceiver<(ShardId, Epoch, Option<Epoch>)>,
) {
    let (reports, mut reported) = mpsc::unbounded_channel();
    let (mut directory, mut lease) = (shared.directory.subscribe(), shared.lease.subscribe());
    let mut draining = shared.is_draining.subscribe();
    let mut generation = shared.stamp.generation();
    let mut tick = tokio::time::interval(OwnershipTimes::default().retry / 2);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut claims = Claims {
        shared,
        shards: HashMap::new(),
        reports,
        directory: None,
        is_away: false,
        has_registered: false,
        rival: None,
    };
    loop {
        tokio::select! {
            Some((shard, epoch, later)) = deposed.recv() => {
                claims.on(shard, OwnerEvent::Deposed(epoch, later));
            }
            Some(report) = reported.recv() => claims.take(report),
            _ = directory.changed() => {}
            _ = lease.changed() => {}
            _ = draining.changed() => {}
            _ = tick.tick() => {}
        }
        let generation_now = claims.shared.stamp.generation();
        if generation_now != generation {
            generation = generation_now;
            // Another process may be this node by now: nothing is claimed before it is registered again.
            (claims.rival, claims.has_registered) = (None, false);
            claims.on_all(OwnerEvent::LeaseLost);
        }
        let (latest, lease) = (directory.borrow_and_update().clone(), *lease.borrow_and_update());
        let is_draining = *draining.borrow_and_update();
        if let (Some(latest), Some(lease)) = (&latest, lease) {
            claims.register(latest, lease, is_draining).await;
        }
        if claims.has_registered {
            if let Some(latest) = latest {
                claims.see(latest);
            }
            claims.on_all(OwnerEvent::Tick);
        }
    }
}

impl Claims {
    /// Makes this node a member, alive as long as its lease.
    async fn register(&mut self, directory: &Directory, lease: LeaseId, is_draining: bool) {
        let (shared, layout) = (&self.shared, &self.shared.layout);
        let (redis, rpc) = (&shared.config.redis_address, &shared.rpc_address);
        let state = match (is_draining, shared.config.is_coordinator) {
            (true, _) => NodeState::Draining,
            (false, true) => NodeState::Coordinator,
            (false, false) => NodeState::Instance,
        };
        let (member, alive) = (layout.member(shared.me), layout.alive(shared.me));
        let addresses = format!("{redis} {rpc}");
        let is_member = directory.value::<String>(&member).is_some_and(|it| it == addresses);
        // Told for the case that the metadata are lost and the cluster is created again.
        let (part_key, part) = (layout.part(shared.me), shared.part_check.known());
        let is_told = directory.value::<Part>(&part_key) == part;
        let is_alive = directory.lease(&alive) == Some(lease)
            && directory.value::<NodeState>(&alive) == Some(state);
        if is_member && is_alive && is_told {
            (self.has_registered, self.rival) = (true, None);
            return;
        }
        let holder = directory.lease(&alive).filter(|of| *of != lease);
        // At this node's addresses it was an earlier process of its own, or an earlier lease.
        if let Some(holder) = holder.filter(|_| !is_member) {
            return self.wait_for_rival(holder);
        }
        self.rival = None;
        let seen = directory.mod_revision(&alive);
        let write = Transaction::new().when(alive.clone(), seen).put(member, addresses);
        let mut write = write.put_leased(alive, state.to_string(), lease);
        write = match part {
            _ if is_told => write,
            Some(part) => write.put(part_key, part.to_string()),
            None => write.delete(part_key),
        };
        let registered = shared.metadata.commit(write).await;
        match &registered {
            Ok(Some(_)) => self.has_registered = true,
            // Another process was faster, or the directory is behind.
            Ok(None) => shared.refresh.notify_one(),
            Err(error) if self.is_away => {
                tracing::debug!("node {} is not registered: {error}", shared.me);
            }
            Err(error) => {
                tracing::warn!("node {} is not registered, and tries again: {error}", shared.me);
            }
        }
        self.is_away = registered.is_err();
    }

    /// A process at other addresses is alive as this node. If it was an earlier one of this store, it has ended, since a
    /// store is open once, and its lease ends soon. If its lease does not end, one of the two stores is a copy, and the process
    /// that came later gives up: keys would be written to the one and read from the other.
    fn wait_for_rival(&mut self, holder: LeaseId) {
        let shared = &self.shared;
        let now = shared.stamp.now();
        let Some((_, since)) = self.rival.filter(|(of, _)| *of == holder) else {
            tracing::warn!(
                "node {} is alive at other addresses; it joins when that lease ends",
                shared.me
            );
            self.rival = Some((holder, now));
            return;
        };
        if now.saturating_sub(since) > RIVAL_LEASES * shared.config.lease {
            let why = Error::Running(shared.me);
            let why = format!(
                "{why}: this store is a copy of its store, or the other way round; or its earlier \
                 lease was a longer one and has not ended yet"
            );
            shared.refusal.send_if_modified(|known| {
                let is_first = known.is_none();
                known.get_or_insert(why);
                is_first
            });
        }
    }

    /// What the directory says, to every shard of it.
    fn see(&mut self, directory: Arc<Directory>) {
        let is_seen = |known: &Arc<Directory>| Arc::ptr_eq(known, &directory);
        if self.directory.as_ref().is_some_and(is_seen) {
            return;
        }
        self.directory = Some(directory.clone());
        let Ok(topology) = directory.topology() else { return };
        let is_excluded = |node: NodeId| directory.state_of(node) != Some(NodeState::Coordinator);
        for shard in topology.shards.values() {
            let instance = shard.instance;
            let ownership = || Ownership::new(self.shared.me, OwnershipTimes::default());
            self.shards.entry(shard.id).or_insert_with(|| Shard {
                ownership: ownership(),
                instance,
                generation: 0,
                serving: None,
            });
            self.set_instance(shard.id, instance);
            let rank = claim_rank(&topology, shard.id, self.shared.me, is_excluded);
            self.on(shard.id, OwnerEvent::Rank(rank));
            self.on(shard.id, OwnerEvent::Seen(topology.revision, shard.owner));
        }
        self.drop_unknown(&topology);
    }

    /// The instance of a shard changes only if the cluster was created again.
    fn set_instance(&mut self, id: ShardId, instance: NodeId) {
        let is_other = |shard: &Shard| shard.instance != instance;
        if self.shards.get(&id).is_some_and(is_other) {
            // What was asked of the other one is not waited for.
            self.on(id, OwnerEvent::LeaseLost);
            if let Some(shard) = self.shards.get_mut(&id) {
                shard.instance = instance;
            }
        }
    }

    /// Shards that do not exist any more.
    fn drop_unknown(&mut self, topology: &Topology) {
        let shared = &self.shared;
        self.shards.retain(|id, shard| {
            let exists = topology.shards.contains_key(id);
            if !exists && let Some((epoch, _)) = shard.serving.take() {
                shared.forget_shard(*id, |owned| owned == epoch);
            }
            exists
        });
    }

    fn on_all(&mut self, event: OwnerEvent) {
        let all: Vec<ShardId> = self.shards.keys().copied().collect();
        all.into_iter().for_each(|shard| self.on(shard, event));
    }

    fn on(&mut self, id: ShardId, event: OwnerEvent) {
        let (now, lease) = (self.shared.stamp.now(), self.shared.stamp.lease_clock());
        let Some(shard) = self.shards.get_mut(&id) else { return };
        let before = shard.ownership.state_name();
        let effects = shard.ownership.on(now, &lease, event);
        let after = shard.ownership.state_name();
        if before != after {
            tracing::debug!("node {}, shard {id}: {before} -> {after}", self.shared.me);
        }
        for effect in effects {
            match effect {
                OwnerEffect::Ask(ticket, request) => self.ask(id, ticket, request),
                OwnerEffect::Serve(epoch) => {
                    let serving = self.shards.get(&id).and_then(|shard| shard.serving.as_ref());
                    if let Some((_, taken)) = serving.filter(|(of, _)| *of == epoch) {
                        let _ = taken.orders().send(Order::Serve);
                    }
                }
                OwnerEffect::StopServing => self.stop(id),
            }
        }
    }

    fn stop(&mut self, id: ShardId) {
        let serving = self.shards.get_mut(&id).and_then(|shard| shard.serving.take());
        if let Some((epoch, _)) = serving {
            self.shared.forget_shard(id, |owned| owned == epoch);
        }
    }

    fn take(&mut self, report: Report) {
        match report {
            Report::Answered(shard, ticket, answer) => {
                self.on(shard, OwnerEvent::Answered(ticket, answer));
            }
            Report::Loaded(id, ticket, epoch, taken) => {
                let held = self.shards.get(&id).and_then(|shard| shard.ownership.held_epoch());
                if held != Some(epoch) {
                    // Of a term that is over: a later one may serve already, and `taken` ends here.
                    return;
                }
                // The one before it, if the load was asked for twice.
                self.stop(id);
                if let Some(shard) = self.shards.get_mut(&id) {
                    shard.serving = Some((epoch, taken));
                }
                self.on(id, OwnerEvent::Answered(ticket, OwnerAnswer::Loaded(true)));
                // Not if it was given up meanwhile.
                let serves = self.shards.get(&id).and_then(|shard| shard.ownership.serving());
                if serves != Some(epoch) {
                    self.stop(id);
                }
            }
        }
    }

    /// Does what is asked for in the background.
    fn ask(&mut self, id: ShardId, ticket: Ticket, request: OwnerRequest) {
        let Some(shard) = self.shards.get_mut(&id) else { return };
        let (shared, reports, instance) =
            (self.shared.clone(), self.reports.clone(), shard.instance);
        let answer = move |answer| _ = reports.send(Report::Answered(id, ticket, answer));
        match request {
            OwnerRequest::Probe => {
                tokio::spawn(async move {
                    // A claim would be given up at once.
                    let is_too_far = shared.too_far.lock().get(&id).is_some_and(TooFar::is_fresh);
                    let answers = !is_too_far && probe(&shared, instance).await == Probed::Answers;
                    answer(OwnerAnswer::Probed(answers));
                });
            }
            OwnerRequest::Claim { seen, replace, lease } => {
                let Some(generation) = shared.stamp.generation_of(lease) else {
                    return answer(OwnerAnswer::Claimed(ClaimAnswer::Lost));
                };
                shard.generation = generation;
                let claim = self.directory.as_ref().and_then(|directory| directory.claim(id));
                let before = claim.filter(|_| replace).map_or(0, |claim| claim.mod_revision);
                tokio::spawn(async move {
                    let claimed = claim_shard(&shared, id, seen, before, lease).await;
                    answer(OwnerAnswer::Claimed(claimed));
                });
            }
            OwnerRequest::Fence(epoch) => {
                tokio::spawn(async move {
                    answer(OwnerAnswer::Fenced(fence(&shared, instance, id, epoch).await));
                });
            }
            OwnerRequest::Load(epoch) => {
                let (generation, reports) = (shard.generation, self.reports.clone());
                tokio::spawn(async move {
                    match owner::take_over(shared, id, instance, epoch, generation).await {
                        Ok(taken) => _ = reports.send(Report::Loaded(id, ticket, epoch, taken)),
                        Err(why) => {
                            tracing::warn!("shard {id} is not loaded: {why}");
                            answer(OwnerAnswer::Loaded(false));
                        }
                    }
                });
            }
            OwnerRequest::Drain => {
                let serving = shard.serving.as_ref();
                let orders = serving.map(|(epoch, taken)| (*epoch, taken.orders().clone()));
                tokio::spawn(async move {
                    if let Some((epoch, orders)) = orders {
                        let (stopped, is_stopped) = oneshot::channel();
                        let _ = orders.send(Order::Stop(stopped));
                        let _ = is_stopped.await;
                        shared.forget_shard(id, |owned| owned == epoch);
                        shared.gate.drain().await;
                    }
                    answer(OwnerAnswer::Drained);
                });
            }
            OwnerRequest::GiveUp(epoch) => {
                let claim = self.directory.as_ref().and_then(|directory| directory.claim(id));
                tokio::spawn(async move {
                    let revision = claim.map_or(epoch.0, |claim| claim.mod_revision);
                    answer(OwnerAnswer::GivenUp(give_up(&shared, id, epoch, revision).await));
                });
            }
        }
    }
}

/// What an instance says when it is asked whether it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Probed {
    Answers,
    /// It is used in the name of no shard.
    Refuses,
    Silent,
}

/// Asks a shard's instance: without it, a claim serves nobody.
async fn probe(shared: &Shared, instance: NodeId) -> Probed {
    let refuses = match (instance == shared.me, shared.peer(instance)) {
        (true, _) => Some(shared.part_check.is_refused()),
        (false, Some(peer)) => peer.status().await.ok().map(|told| told.refuses_part),
        (false, None) => None,
    };
    match refuses {
        Some(false) => Probed::Answers,
        Some(true) => Probed::Refuses,
        None => Probed::Silent,
    }
}

/// Fences a shard's instance for a claim of this node.
async fn fence(shared: &Arc<Shared>, instance: NodeId, id: ShardId, epoch: Epoch) -> FenceAnswer {
    let known = match shared.fence_at(instance, id, epoch).await {
        Ok(known) if known == epoch => {
            shared.too_far.lock().remove(&id);
            return FenceAnswer::Done;
        }
        Ok(known) => known,
        Err(_) if probe(shared, instance).await == Probed::Refuses => return FenceAnswer::Refused,
        Err(_) => return FenceAnswer::Unknown,
    };
    tracing::warn!("shard {id}: epoch {epoch}, and its instance knows {known}");
    match epochs::pass(shared, id, epoch, known).await {
        Ok(Passed::Yes) => FenceAnswer::Deposed(known),
        // The claim serves nobody, and would be taken for an owner.
        Ok(Passed::TooFar) => FenceAnswer::Refused,
        Err(why) => {
            tracing::warn!("epochs up to {known} are not passed: {why}");
            FenceAnswer::Unknown
        }
    }
}

async fn claim_shard(
    shared: &Shared,
    shard: ShardId,
    seen: Option<Epoch>,
    claim_revision: u64,
    lease: u64,
) -> ClaimAnswer {
    let (owner, claim) = (shared.layout.owner(shard), shared.layout.claim(shard));
    let me = shared.me.to_string();
    let transaction = Transaction::new()
        .when(owner.clone(), seen.map_or(0, |epoch| epoch.0))
        .when(claim.clone(), claim_revision)
        .put(owner, me.clone())
        .put_leased(claim, me, LeaseId(lease.cast_signed()));
    match shared.metadata.commit(transaction).await {
        Ok(Some(revision)) => {
            tracing::info!("node {} claims shard {shard}, epoch {revision}", shared.me);
            ClaimAnswer::Won(Epoch(revision))
        }
        Ok(None) | Err(terrace_metadata::Error::LeaseGone) => {
            shared.refresh.notify_one();
            ClaimAnswer::Lost
        }
        Err(error) => {
            tracing::warn!("shard {shard} is not claimed: {error}");
            ClaimAnswer::Unknown
        }
    }
}

/// Whether the claim is known to be gone, or another's.
async fn give_up(shared: &Shared, shard: ShardId, epoch: Epoch, claim_revision: u64) -> bool {
    let (owner, claim) = (shared.layout.owner(shard), shared.layout.claim(shard));
    let delete = Transaction::new().when(owner, epoch.0).when(claim.clone(), claim_revision);
    match shared.metadata.commit(delete.delete(claim)).await {
        Ok(_) => {
            tracing::info!("node {} gives up shard {shard}", shared.me);
            shared.refresh.notify_one();
            true
        }
        Err(error) => {
            tracing::warn!("the claim of shard {shard} stays: {error}");
            false
        }
    }
}
