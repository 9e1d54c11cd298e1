//! A node of the simulation: an instance, and a coordinator with the machines of the product.

use super::flushes::{Leading, execute_round};
use super::full_disks;
use super::world::*;
use crate::instance::*;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use terrace_cluster::*;

/// What an answer is for.
#[derive(Debug, Clone, Copy)]
pub enum Purpose {
    Grant(SendStamp),
    KeepAlive(SendStamp, u64),
    View,
    Owner(ShardId, Ticket),
    Load(ShardId, Ticket, Epoch),
    Move(ShardId, Epoch, MoveId, u32),
    Call(u64),
    Copies(ShardId, Epoch, ShardId),
    Client(usize),
    /// Of the leader of a flush, and of the owner who passed it on.
    Round(FlushId, ShardId),
    PassedRound {
        shard: ShardId,
        epoch: Epoch,
        call: u64,
        from: Place,
    },
    Nothing,
}

/// A client's call at the owner.
pub struct Running {
    pub shard: ShardId,
    pub epoch: Epoch,
    pub key: DbKey,
    pub op: Op,
    pub call: u64,
    pub from: Place,
    pub tries: u32,
    pub result: Value,
    /// The instance that it was sent to.
    pub at: ShardId,
}

/// A shard that this node owns.
pub struct Serving {
    pub epoch: Epoch,
    pub exceptions: ExceptionList,
    pub mover: Mover<Value>,
    pub held: BTreeSet<DbKey>,
    pub draining: Vec<(MoveId, Vec<DbKey>)>,
    /// Moves home whose copies are dropped when no call is under way to them.
    pub dropping: Vec<(MoveId, ShardId, Vec<DbKey>)>,
    pub waiting: Vec<u64>,
    /// Writes under way, by key.
    pub writes: BTreeMap<DbKey, usize>,
    pub drain: Option<Ticket>,
}

pub struct Node {
    pub is_up: bool,
    pub incarnation: u64,
    pub paused_until: u64,
    pub instance: Instance,
    pub lease: LeaseClock,
    pub is_asking: bool,
    pub ownerships: BTreeMap<ShardId, Ownership>,
    pub shards: BTreeMap<ShardId, Serving>,
    pub owners: BTreeMap<ShardId, Owner>,
    pub running: BTreeMap<u64, Running>,
    pub next_running: u64,
    /// Flushes that it leads.
    pub leading: BTreeMap<FlushId, Leading>,
    pub ticks: u64,
}

fn ownerships(at: usize) -> BTreeMap<ShardId, Ownership> {
    let times = OwnershipTimes {
        turn: Duration::from_millis(100),
        hand_over_after: Duration::from_millis(300),
        drain: Duration::from_millis(400),
        retry: Duration::from_millis(60),
        unreachable: Duration::from_millis(500),
    };
    let shards = (1..=NODES as u32).map(ShardId);
    shards.map(|shard| (shard, Ownership::new(node_id(at), times))).collect()
}

fn no_lease() -> LeaseClock {
    LeaseClock::new(Duration::from_millis(50))
}

impl Node {
    pub fn new(at: usize, off: Off) -> Self {
        Self {
            is_up: true,
            incarnation: 0,
            paused_until: 0,
            instance: Instance::new(ShardId(at as u32 + 1), off),
            lease: no_lease(),
            is_asking: false,
            ownerships: ownerships(at),
            shards: BTreeMap::new(),
            owners: BTreeMap::new(),
            running: BTreeMap::new(),
            next_running: 0,
            leading: BTreeMap::new(),
            ticks: 0,
        }
    }

    pub fn crash(&mut self) {
        (self.is_up, self.is_asking, self.incarnation) = (false, false, self.incarnation + 1);
        self.lease = no_lease();
        self.ownerships = ownerships(place_of(self.instance.shard));
        (self.shards, self.owners) = (BTreeMap::new(), BTreeMap::new());
        (self.running, self.leading) = (BTreeMap::new(), BTreeMap::new());
        self.instance.restart();
    }

    /// Whether no move and no call is under way.
    pub fn is_idle(&self) -> bool {
        self.running.is_empty()
            && self.shards.values().all(|it| it.mover.is_idle() && it.mover.waiting_count() == 0)
    }

    pub fn serving_count(&self) -> usize {
        self.ownerships.values().filter(|it| it.serving().is_some()).count()
    }
}

pub fn shard_of(key: &DbKey) -> ShardId {
    match key.key[0] {
        ..b'h' => ShardId(1),
        b'h'..b'p' => ShardId(2),
        _ => ShardId(3),
    }
}

impl World {
    /// Every 20 ms.
    pub fn tick(&mut self, at: usize) {
        let (now, me) = (self.time(), Place::Node(at));
        let node = &mut self.nodes[at];
        node.ticks += 1;
        let ticks = node.ticks;
        if !node.is_asking {
            let stamp = node.lease.keep_alive_in(now).is_none_or(|wait| wait.is_zero());
            match node.lease.lease() {
                Some(lease) if stamp => {
                    node.is_asking = true;
                    let stamp = node.lease.sent(now);
                    let purpose = Purpose::KeepAlive(stamp, lease);
                    self.call(me, Place::Metadata, Request::KeepAlive(lease), purpose);
                }
                None => {
                    node.is_asking = true;
                    let stamp = node.lease.sent(now);
                    let grant = Request::Grant(node_id(at));
                    self.call(me, Place::Metadata, grant, Purpose::Grant(stamp));
                }
                Some(_) => {}
            }
        }
        if ticks % 3 == 1 {
            self.call(me, Place::Metadata, Request::View, Purpose::View);
        }
        for shard in (1..=NODES as u32).map(ShardId) {
            self.owner_event(at, shard, OwnerEvent::Tick);
            if ticks % 25 == u64::from(shard.0) {
                self.sweep(at, shard);
            }
            self.begin_moves(at, shard);
        }
    }

    fn begin_moves(&mut self, at: usize, shard: ShardId) {
        let now = self.time();
        while self.nodes[at].ownerships[&shard].serving().is_some()
            && let Some(serving) = self.nodes[at].shards.get_mut(&shard)
            && let Some((id, effects)) = serving.mover.poll(now)
        {
            self.apply_move(at, shard, id, effects);
        }
    }

    /// Asks other instances for what they keep in the shard's name.
    fn sweep(&mut self, at: usize, shard: ShardId) {
        let Some(serving) = self.nodes[at].shards.get(&shard) else { return };
        let epoch = serving.epoch;
        for other in (1..=NODES as u32).map(ShardId).filter(|other| *other != shard) {
            let request = Request::Copies(Sender { home: shard, epoch });
            let purpose = Purpose::Copies(shard, epoch, other);
            self.call(Place::Node(at), Place::Node(place_of(other)), request, purpose);
        }
    }

    pub(super) fn owner_event(&mut self, at: usize, shard: ShardId, event: OwnerEvent) {
        let now = self.time();
        let node = &mut self.nodes[at];
        let Some(ownership) = node.ownerships.get_mut(&shard) else { return };
        for effect in ownership.on(now, &node.lease, event) {
            self.apply_owner(at, shard, effect);
        }
    }

    fn apply_owner(&mut self, at: usize, shard: ShardId, effect: OwnerEffect) {
        let (me, instance) = (Place::Node(at), Place::Node(place_of(shard)));
        match effect {
            OwnerEffect::Serve(_) => self.counts.add("serve"),
            OwnerEffect::StopServing => {
                self.counts.add("stop serving");
                let Some(serving) = self.nodes[at].shards.remove(&shard) else { return };
                for running in serving.waiting {
                    self.end(at, running, ClientAnswer::NotDone(None));
                }
            }
            OwnerEffect::Ask(ticket, request) => match request {
                OwnerRequest::Drain => {
                    if let Some(serving) = self.nodes[at].shards.get_mut(&shard) {
                        serving.drain = Some(ticket);
                        serving.mover.cancel();
                    }
                    self.check_drained(at, shard);
                }
                OwnerRequest::Load(epoch) => {
                    let load = Request::Load(Sender { home: shard, epoch });
                    self.call(me, instance, load, Purpose::Load(shard, ticket, epoch));
                }
                OwnerRequest::Probe | OwnerRequest::Fence(_) => {
                    let request = Request::Owner(shard, node_id(at), request);
                    self.call(me, instance, request, Purpose::Owner(shard, ticket));
                }
                OwnerRequest::Claim { .. } | OwnerRequest::GiveUp(_) => {
                    if matches!(request, OwnerRequest::GiveUp(_)) {
                        self.counts.add("give up");
                    }
                    let request = Request::Owner(shard, node_id(at), request);
                    self.call(me, Place::Metadata, request, Purpose::Owner(shard, ticket));
                }
            },
        }
    }

    /// A hand-over goes on when nothing runs any more.
    pub(super) fn check_drained(&mut self, at: usize, shard: ShardId) {
        let node = &mut self.nodes[at];
        let Some(serving) = node.shards.get_mut(&shard) else { return };
        let is_running = node.running.values().any(|it| it.shard == shard);
        if is_running || !serving.mover.is_idle() {
            return;
        }
        if let Some(ticket) = serving.drain.take() {
            self.counts.add("handed over");
            self.owner_event(at, shard, OwnerEvent::Answered(ticket, OwnerAnswer::Drained));
        }
    }

    fn apply_move(&mut self, at: usize, shard: ShardId, id: MoveId, effects: Vec<Effect<Value>>) {
        for effect in effects {
            let Some(serving) = self.nodes[at].shards.get_mut(&shard) else { return };
            let Some(current) = serving.mover.get(id) else {
                self.move_over(at, shard, id, effect);
                continue;
            };
            let head = MoveHead::of(current);
            match effect {
                Effect::Hold => {
                    serving.held.extend(head.keys.iter().cloned());
                    serving.draining.push((id, head.keys));
                }
                Effect::HoldDrained => serving.held.extend(head.keys),
                Effect::DrainCalls => serving.dropping.push((id, head.other, head.keys)),
                Effect::SetExceptions => {
                    let exception = Exception { at: head.other, move_id: id };
                    head.keys.iter().for_each(|key| serving.exceptions.insert(key, exception));
                }
                Effect::ClearExceptions => {
                    head.keys.iter().for_each(|key| serving.exceptions.remove(key.db, &key.key));
                }
                Effect::ReleaseHold => self.release(at, shard, &head.keys),
                Effect::Send { to, call, ticket, .. } => {
                    let epoch = self.nodes[at].shards[&shard].epoch;
                    let to = match to {
                        Site::Home => place_of(shard),
                        Site::Other => place_of(head.other),
                    };
                    let request = Request::Move(Sender { home: shard, epoch }, head, call);
                    let purpose = Purpose::Move(shard, epoch, id, ticket);
                    self.call(Place::Node(at), Place::Node(to), request, purpose);
                }
                Effect::Over(_) => {}
            }
        }
        self.check_holds(at, shard);
    }

    /// The last effects of a move that the mover has let go of.
    fn move_over(&mut self, at: usize, shard: ShardId, id: MoveId, effect: Effect<Value>) {
        let Some(serving) = self.nodes[at].shards.get_mut(&shard) else { return };
        for finished in serving.mover.take_finished().into_iter().filter(|it| it.id == id) {
            self.counts.add(match (finished.outcome, finished.direction) {
                (Outcome::Moved, Direction::Out) => "moved out",
                (Outcome::Moved, Direction::Home) => "moved home",
                (Outcome::Undone(_), _) => "undone",
                (Outcome::Deposed, _) => "deposed",
            });
            if finished.outcome == Outcome::Deposed {
                let epoch = self.nodes[at].shards[&shard].epoch;
                self.release(at, shard, &finished.keys);
                self.owner_event(at, shard, OwnerEvent::Deposed(epoch, None));
                return;
            }
        }
        if effect == Effect::ReleaseHold {
            self.release(at, shard, &[]);
        }
        self.check_drained(at, shard);
    }

    /// Writes of these keys go on.
    fn release(&mut self, at: usize, shard: ShardId, keys: &[DbKey]) {
        let Some(serving) = self.nodes[at].shards.get_mut(&shard) else { return };
        keys.iter().for_each(|key| _ = serving.held.remove(key));
        for running in std::mem::take(&mut serving.waiting) {
            self.route(at, running);
        }
    }

    /// Moves whose keys have no writes under way go on.
    pub(super) fn check_holds(&mut self, at: usize, shard: ShardId) {
        let node = &mut self.nodes[at];
        let Some(serving) = node.shards.get_mut(&shard) else { return };
        let is_planted = self.planted.not_drained;
        let is_drained = |(_, keys): &(MoveId, Vec<DbKey>)| {
            is_planted || keys.iter().all(|key| !serving.writes.contains_key(key))
        };
        let id = match serving.draining.iter().position(is_drained) {
            Some(next) => serving.draining.remove(next).0,
            None => {
                let running = &node.running;
                let is_free = |(_, other, keys): &(MoveId, ShardId, Vec<DbKey>)| {
                    !running.values().any(|it| it.at == *other && keys.contains(&it.key))
                };
                let Some(next) = serving.dropping.iter().position(is_free) else { return };
                serving.dropping.remove(next).0
            }
        };
        let effects = serving.mover.on(id, MoveEvent::Drained);
        self.apply_move(at, shard, id, effects);
        self.check_holds(at, shard);
    }

    /// A request arrives at a node.
    pub fn at_node(&mut self, call: u64, from: Place, at: usize, request: Request) {
        let shown = self.is_traced.then(|| format!("{request:?}"));
        let clock = self.flush_clock();
        let is_full = self.is_full(&request);
        let instance = &mut self.nodes[at].instance;
        instance.clock = clock;
        let response = match request {
            Request::Owner(shard, _, OwnerRequest::Fence(epoch)) => {
                let is_newest = instance.fence(Sender { home: shard, epoch });
                let answer = match is_newest {
                    true => FenceAnswer::Done,
                    false => FenceAnswer::Deposed(instance.fences[&shard]),
                };
                Response::Owner(OwnerAnswer::Fenced(answer))
            }
            Request::Owner(..) => Response::Owner(OwnerAnswer::Probed(true)),
            Request::Load(sender) => {
                Response::Loaded(instance.fence(sender).then(|| instance.load()))
            }
            Request::Move(sender, head, call) => Response::Move(match is_full {
                true => full_disks::refuse(instance, sender, head, &call),
                false => instance.on_move(sender, &head, &call),
            }),
            Request::Call(sender, key, op) => Response::Call(instance.on_call(sender, &key, op)),
            Request::Copies(sender) => Response::Copies(instance.fence(sender).then(|| {
                let of = instance.copies.iter().filter(|(key, _)| shard_of(key) == sender.home);
                of.map(|(key, copy)| (key.clone(), *copy)).collect()
            })),
            Request::Drop(sender, keys) => {
                if instance.fence(sender) {
                    for (key, id) in keys {
                        self.counts.add("stale copy dropped");
                        let head = MoveHead {
                            id,
                            direction: Direction::Out,
                            other: instance.shard,
                            keys: vec![key],
                        };
                        instance.on_move(sender, &head, &MoveCall::Drop);
                    }
                }
                Response::Done
            }
            Request::Client(key, op) => return self.client_call(call, from, at, key, op),
            Request::Flush => return self.lead_flush(call, from, at),
            Request::Round(..) => return self.pass_round((call, from), at, request),
            Request::RoundAt(sender, round, id) => {
                Response::Round(execute_round(instance, sender, round, id))
            }
            Request::Repartition(shard, part) => {
                if let Some(serving) = self.nodes[at].shards.get_mut(&shard) {
                    let misplaced = serving.exceptions.misplaced(&part);
                    serving.mover.want(misplaced);
                }
                Response::Done
            }
            Request::Grant(_) | Request::KeepAlive(_) | Request::View => Response::Done,
        };
        if let Some(request) = shown {
            println!("{} {from:?} -> node {at}: {request}: {response:?}", self.now);
        }
        self.reply(call, Place::Node(at), from, response);
    }

    /// An answer, or that there is none, comes to the sender.
    pub fn answered(&mut self, place: Place, purpose: Purpose, response: Option<Response>) {
        let at = match place {
            Place::Node(at) => at,
            Place::Client(_) => {
                if let Purpose::Client(client) = purpose {
                    self.client_answered(client, response);
                }
                return;
            }
            Place::Metadata => return,
        };
        match (purpose, response) {
            (Purpose::Grant(stamp), response) => {
                let node = &mut self.nodes[at];
                node.is_asking = false;
                if let Some(Response::Granted(lease)) = response {
                    node.lease.granted(stamp, lease, Duration::from_millis(TTL_MS));
                }
            }
            (Purpose::KeepAlive(stamp, lease), response) => {
                let node = &mut self.nodes[at];
                node.is_asking = false;
                if let Some(Response::Alive(lives)) = response {
                    let ttl = if lives { TTL_MS } else { 0 };
                    if !node.lease.confirmed(stamp, lease, Duration::from_millis(ttl)) {
                        self.counts.add("lease lost");
                        for shard in (1..=NODES as u32).map(ShardId) {
                            self.owner_event(at, shard, OwnerEvent::LeaseLost);
                        }
                    }
                }
            }
            (Purpose::View, Some(Response::View(view))) => {
                let topology = topology(&view);
                self.nodes[at].owners = view.owners.clone();
                for shard in (1..=NODES as u32).map(ShardId) {
                    let owner = view.owners.get(&shard).copied();
                    let rank = claim_rank(&topology, shard, node_id(at), |_| false);
                    self.owner_event(at, shard, OwnerEvent::Rank(rank.or(Some(9))));
                    self.owner_event(at, shard, OwnerEvent::Seen(view.revision, owner));
                }
            }
            (Purpose::Owner(shard, ticket), response) => {
                let answer = match response {
                    Some(Response::Owner(answer)) => answer,
                    _ => self.no_answer(at, shard),
                };
                self.owner_event(at, shard, OwnerEvent::Answered(ticket, answer));
            }
            (Purpose::Load(shard, ticket, epoch), response) => {
                self.loaded(at, shard, ticket, epoch, response);
            }
            (Purpose::Move(shard, epoch, id, ticket), response) => {
                let answer = match response {
                    Some(Response::Move(answer)) => answer,
                    _ => MoveAnswer::Unknown,
                };
                if let Some(serving) = self.nodes[at].shards.get_mut(&shard)
                    && serving.epoch == epoch
                {
                    let effects = serving.mover.on(id, MoveEvent::Answered(ticket, answer));
                    self.apply_move(at, shard, id, effects);
                }
            }
            (Purpose::Call(running), response) => {
                let answer = match response {
                    Some(Response::Call(answer)) => Some(answer),
                    _ => None,
                };
                self.call_ended(at, running, answer);
            }
            (Purpose::Round(..) | Purpose::PassedRound { .. }, response) => {
                self.round_ended(at, purpose, response);
            }
            (Purpose::Copies(shard, epoch, other), Some(Response::Copies(Some(copies)))) => {
                let Some(serving) = self.nodes[at].shards.get(&shard) else { return };
                if serving.epoch == epoch {
                    let listed = copies.iter().map(|(key, copy)| (key, *copy));
                    let stale = serving.mover.stale_copies(&serving.exceptions, other, listed);
                    let to = Place::Node(place_of(other));
                    let drop = Request::Drop(Sender { home: shard, epoch }, stale);
                    self.call(Place::Node(at), to, drop, Purpose::Nothing);
                }
            }
            _ => {}
        }
    }

    /// What no answer means to an ownership.
    fn no_answer(&self, at: usize, shard: ShardId) -> OwnerAnswer {
        match self.nodes[at].ownerships[&shard].state_name() {
            "probing" => OwnerAnswer::Probed(false),
            "claiming" => OwnerAnswer::Claimed(ClaimAnswer::Unknown),
            "giving up" => OwnerAnswer::GivenUp(false),
            _ => OwnerAnswer::Fenced(FenceAnswer::Unknown),
        }
    }

    fn loaded(
        &mut self,
        at: usize,
        shard: ShardId,
        ticket: Ticket,
        epoch: Epoch,
        response: Option<Response>,
    ) {
        let loaded = match response {
            Some(Response::Loaded(Some(loaded))) => Some(loaded),
            Some(Response::Loaded(None)) => {
                return self.owner_event(at, shard, OwnerEvent::Deposed(epoch, None));
            }
            _ => None,
        };
        let is_loaded = loaded.is_some();
        if let Some((exceptions, intents)) = loaded
            && self.nodes[at].ownerships[&shard].held_epoch() == Some(epoch)
            // Not if it was given up meanwhile.
            && self.nodes[at].ownerships[&shard].state_name() == "loading"
            && self.nodes[at].shards.get(&shard).is_none_or(|it| it.epoch != epoch)
        {
            let limits = MoveLimits {
                keys_per_move: 1 + self.rng.below(2) as usize,
                moves: 2,
                ..MoveLimits::default()
            };
            let mut mover = Mover::new(epoch, limits, self.time(), |_| 4);
            let resumed = mover.resume(intents);
            let mut list = ExceptionList::default();
            exceptions.iter().for_each(|(key, exception)| list.insert(key, *exception));
            let serving = Serving {
                epoch,
                exceptions: list,
                mover,
                held: BTreeSet::new(),
                draining: Vec::new(),
                dropping: Vec::new(),
                waiting: Vec::new(),
                writes: BTreeMap::new(),
                drain: None,
            };
            self.nodes[at].shards.insert(shard, serving);
            for (id, effects) in resumed {
                self.counts.add("resumed");
                self.apply_move(at, shard, id, effects);
            }
        }
        self.owner_event(at, shard, OwnerEvent::Answered(ticket, OwnerAnswer::Loaded(is_loaded)));
    }
}
