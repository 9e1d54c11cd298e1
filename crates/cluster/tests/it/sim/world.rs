//! The world of the simulation: time, messages with their delays, losses and doubles, cuts, pauses and
//! crashes. One thread, one seed; the same seed gives the same run.

use super::metadata::{Metadata, View};
use super::node::{Node, Purpose};
use super::rng::Rng;
use crate::history::Recorded;
use crate::instance::*;
use std::collections::BTreeMap;
use terrace_cluster::*;

pub const NODES: usize = 3;
pub const TTL_MS: u64 = 1_000;
const CALL_TIMEOUT_MS: u64 = 150;

/// Who sends and receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    Node(usize),
    Metadata,
    /// Clients and partitioners.
    Client(usize),
}

#[derive(Debug, Clone)]
pub enum Request {
    Grant(NodeId),
    KeepAlive(u64),
    View,
    Owner(ShardId, NodeId, OwnerRequest),
    Load(Sender),
    Move(Sender, MoveHead, MoveCall<Value>),
    Call(Sender, DbKey, Op),
    Copies(Sender),
    Drop(Sender, Vec<(DbKey, MoveId)>),
    Client(DbKey, Op),
    /// Of a client: a flush of all stores.
    Flush,
    /// A round of one at the store of this shard: to the shard's owner, and from there to the store.
    Round(ShardId, Round, FlushId),
    RoundAt(Sender, Round, FlushId),
    Repartition(ShardId, Vec<Assignment>),
}

#[derive(Debug, Clone)]
pub enum Response {
    Granted(u64),
    Alive(bool),
    View(View),
    Owner(OwnerAnswer),
    /// `None`: the sender is not the owner any more.
    Loaded(Option<Loaded>),
    Move(MoveAnswer<Value>),
    Call(CallAnswer),
    Copies(Option<Vec<(DbKey, KeyCopy)>>),
    Client(ClientAnswer),
    Round(RoundAnswer),
    Done,
}

/// What became of a round of a flush at a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoundAnswer {
    Done,
    /// It was not executed, and comes again.
    NotDone,
    /// It is refused for good: the flush is not announced.
    NotAnnounced,
    /// It may have been executed.
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientAnswer {
    Done(Value),
    /// It was not executed; ask that node, if there is one.
    NotDone(Option<usize>),
    /// It may have been.
    Unknown,
}

pub enum Event {
    Arrive {
        call: u64,
        from: Place,
        to: Place,
        request: Request,
    },
    Reply {
        call: u64,
        to: Place,
        response: Response,
    },
    Timeout(u64),
    Tick(usize, u64),
    Restart(usize),
    Client(usize),
    Partitioner(usize),
    Fault,
    /// A round of a flush comes again, at the store of this shard.
    RoundAgain {
        node: usize,
        incarnation: u64,
        flush: FlushId,
        shard: ShardId,
    },
    /// A read or a write at the node's own instance is about to be answered.
    Answer {
        node: usize,
        incarnation: u64,
        running: u64,
    },
}

/// A call that somebody waits for.
pub struct Pending {
    pub place: Place,
    incarnation: u64,
    pub purpose: Purpose,
}

/// What the runs did, to be sure that they did something.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Counts(pub BTreeMap<&'static str, u64>);

impl Counts {
    pub fn add(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }
}

/// What is planted beside [`Off`].
#[derive(Debug, Clone, Copy, Default)]
pub struct Planted {
    pub off: Off,
    /// What is imported is lost if the instance restarts before the finish.
    pub imports_lost: bool,
    /// Writes that run are not waited for, and their keys are not held at the instance.
    pub not_drained: bool,
    /// No disk is ever full, so that what is planted is met in the same runs.
    pub has_room: bool,
}

pub struct Client {
    pub left: u32,
    pub target: Option<usize>,
    pub current: Option<Operation>,
}

/// What a client does.
#[derive(Debug, Clone)]
pub struct Operation {
    /// `None`: a flush of all stores.
    pub op: Option<Op>,
    /// Its key, or all of them, each with the place in its history.
    pub keys: Vec<(DbKey, usize)>,
    /// How often it was sent.
    pub tries: u32,
}

pub struct World {
    pub rng: Rng,
    pub now: u64,
    events: BTreeMap<(u64, u64), Event>,
    next_event: u64,
    next_call: u64,
    pub pending: BTreeMap<u64, Pending>,
    pub nodes: Vec<Node>,
    pub metadata: Metadata,
    metadata_away_until: u64,
    /// From, to, until.
    cuts: Vec<(Place, Place, u64)>,
    pub is_calm: bool,
    pub clients: Vec<Client>,
    pub keys: Vec<DbKey>,
    pub history: BTreeMap<DbKey, Vec<Recorded>>,
    pub moment: u64,
    pub next_value: u32,
    /// Whether clients flush all stores.
    pub has_flushes: bool,
    pub next_flush: u64,
    /// What is wrong, if that was seen on the way.
    pub wrong: Option<String>,
    pub planted: Planted,
    pub counts: Counts,
    /// `TRACE=1` prints what arrives at nodes.
    pub is_traced: bool,
}

pub fn node_id(at: usize) -> NodeId {
    NodeId([at as u8 + 1; 20])
}

pub fn node_at(id: NodeId) -> usize {
    usize::from(id.0[0]) - 1
}

/// The node of the instance of a shard.
pub fn place_of(shard: ShardId) -> usize {
    shard.0 as usize - 1
}

/// Three shards, by range; this node alive or not.
pub fn topology(view: &View) -> Topology {
    let bounds = ["", "h", "p"].map(|text| text.as_bytes().to_vec());
    let nodes = (0..NODES).map(|at| Node_ {
        id: node_id(at),
        redis_address: String::new(),
        rpc_address: String::new(),
        is_alive: view.alive.contains(&node_id(at)),
    });
    let shards = (0..NODES).map(|at| Shard {
        id: ShardId(at as u32 + 1),
        instance: node_id(at),
        owner: None,
        ranges: vec![KeyRange::Keys {
            start: bounds[at].clone(),
            end: bounds.get(at + 1).cloned(),
        }],
    });
    Topology::new(view.revision, Placement::Range, nodes, shards).unwrap()
}

use terrace_cluster::Node as Node_;

impl World {
    pub fn new(seed: u64, planted: Planted) -> Self {
        let keys = ["a", "b", "h", "i", "p", "q"].map(|name| DbKey::new(0, name)).to_vec();
        let mut world = Self {
            rng: Rng(seed),
            now: 1,
            events: BTreeMap::new(),
            next_event: 0,
            next_call: 0,
            pending: BTreeMap::new(),
            nodes: (0..NODES).map(|at| Node::new(at, planted.off)).collect(),
            metadata: Metadata::new(TTL_MS),
            metadata_away_until: 0,
            cuts: Vec::new(),
            is_calm: false,
            clients: Vec::new(),
            history: keys.iter().map(|key| (key.clone(), Vec::new())).collect(),
            keys,
            moment: 0,
            next_value: 0,
            has_flushes: !seed.is_multiple_of(2),
            next_flush: 0,
            wrong: None,
            planted,
            counts: Counts::default(),
            is_traced: std::env::var_os("TRACE").is_some(),
        };
        for at in 0..NODES {
            world.after(at as u64, Event::Tick(at, 0));
        }
        world
    }

    pub fn time(&self) -> std::time::Duration {
        std::time::Duration::from_millis(self.now)
    }

    pub fn moment(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    pub fn after(&mut self, wait: u64, event: Event) {
        self.next_event += 1;
        self.events.insert((self.now + wait, self.next_event), event);
    }

    /// Runs until nothing happens before `end`.
    pub fn run_until(&mut self, end: u64) {
        while let Some(entry) = self.events.first_entry()
            && entry.key().0 <= end
        {
            let ((now, _), event) = entry.remove_entry();
            self.now = self.now.max(now);
            self.metadata.expire(self.now);
            self.happen(event);
        }
        self.now = end;
    }

    fn incarnation(&self, place: Place) -> u64 {
        match place {
            Place::Node(at) => self.nodes[at].incarnation,
            Place::Metadata | Place::Client(_) => 0,
        }
    }

    fn is_cut(&self, from: Place, to: Place) -> bool {
        self.cuts.iter().any(|cut| (cut.0, cut.1) == (from, to) && self.now < cut.2)
    }

    /// A delay; `None`: the message is lost.
    fn delay(&mut self, from: Place, to: Place) -> Option<u64> {
        if from == to {
            return Some(self.rng.below(2));
        }
        if self.is_cut(from, to) || (!self.is_calm && self.rng.per_mille(15)) {
            return None;
        }
        Some(match self.rng.below(100) {
            _ if self.is_calm => 1,
            // After its sender has given it up.
            0 => self.rng.between(CALL_TIMEOUT_MS, 2_000),
            1..5 => self.rng.between(10, 100),
            _ => self.rng.between(1, 4),
        })
    }

    /// Sends a request; the answer, or that there is none, comes to `answered`.
    pub fn call(&mut self, from: Place, to: Place, request: Request, purpose: Purpose) {
        self.next_call += 1;
        let call = self.next_call;
        let incarnation = self.incarnation(from);
        self.pending.insert(call, Pending { place: from, incarnation, purpose });
        let timeout = match request {
            Request::Client(..) => 4 * CALL_TIMEOUT_MS,
            Request::Flush => 10 * CALL_TIMEOUT_MS,
            Request::Round(..) => 2 * CALL_TIMEOUT_MS,
            _ => CALL_TIMEOUT_MS,
        };
        self.after(timeout, Event::Timeout(call));
        // Calls of clients are executed at most once: the transport sends none again.
        let is_flush =
            matches!(request, Request::Flush | Request::Round(..) | Request::RoundAt(..));
        let is_once = is_flush || matches!(request, Request::Client(..) | Request::Call(..));
        let times = 1 + usize::from(!self.is_calm && !is_once && self.rng.per_mille(30));
        for _ in 0..times {
            if let Some(delay) = self.delay(from, to) {
                let request = request.clone();
                self.after(delay, Event::Arrive { call, from, to, request });
            }
        }
    }

    pub fn reply(&mut self, call: u64, from: Place, to: Place, response: Response) {
        if let Some(delay) = self.delay(from, to) {
            self.after(delay, Event::Reply { call, to, response });
        }
    }

    fn happen(&mut self, event: Event) {
        let node = match &event {
            Event::Arrive { to: Place::Node(at), .. }
            | Event::Reply { to: Place::Node(at), .. } => Some(*at),
            Event::Tick(at, _)
            | Event::Answer { node: at, .. }
            | Event::RoundAgain { node: at, .. } => Some(*at),
            Event::Timeout(call) => match self.pending.get(call).map(|pending| pending.place) {
                Some(Place::Node(at)) => Some(at),
                _ => None,
            },
            _ => None,
        };
        if let Some(at) = node {
            let it = &self.nodes[at];
            if it.is_up && self.now < it.paused_until {
                let wait = it.paused_until - self.now;
                return self.after(wait, event);
            }
            if !it.is_up {
                return;
            }
        }
        match event {
            Event::Arrive { call, from, to, request } => self.arrive(call, from, to, request),
            Event::Reply { call, response, .. } => self.ended(call, Some(response)),
            Event::Timeout(call) => self.ended(call, None),
            Event::Tick(at, incarnation) if self.nodes[at].incarnation == incarnation => {
                self.tick(at);
                self.after(20, Event::Tick(at, incarnation));
            }
            Event::Tick(..) => {}
            Event::Restart(at) => {
                self.nodes[at].is_up = true;
                let incarnation = self.nodes[at].incarnation;
                self.after(0, Event::Tick(at, incarnation));
            }
            Event::Client(at) => self.client(at),
            Event::Partitioner(at) => self.partitioner(at),
            Event::Fault => self.fault(),
            Event::Answer { node, incarnation, running } => {
                if self.nodes[node].incarnation == incarnation {
                    self.answer_local(node, running);
                }
            }
            Event::RoundAgain { node, incarnation, flush, shard } => {
                if self.nodes[node].incarnation == incarnation {
                    self.send_round(node, flush, shard);
                }
            }
        }
    }

    fn ended(&mut self, call: u64, response: Option<Response>) {
        let Some(pending) = self.pending.remove(&call) else { return };
        if pending.incarnation == self.incarnation(pending.place) {
            self.answered(pending.place, pending.purpose, response);
        }
    }

    fn arrive(&mut self, call: u64, from: Place, to: Place, request: Request) {
        match to {
            Place::Metadata if self.now < self.metadata_away_until => {}
            Place::Metadata => {
                let response = self.at_metadata(request);
                self.reply(call, to, from, response);
            }
            Place::Node(at) => self.at_node(call, from, at, request),
            Place::Client(_) => {}
        }
    }

    fn at_metadata(&mut self, request: Request) -> Response {
        let now = self.now;
        match request {
            Request::Grant(node) => Response::Granted(self.metadata.grant(now, node)),
            Request::KeepAlive(lease) => Response::Alive(self.metadata.keep_alive(now, lease)),
            Request::Owner(shard, node, OwnerRequest::Claim { seen, replace, lease }) => {
                let answer = self.metadata.claim(shard, node, seen, replace, lease);
                Response::Owner(OwnerAnswer::Claimed(answer))
            }
            Request::Owner(shard, node, OwnerRequest::GiveUp(epoch)) => {
                self.metadata.give_up(shard, node, epoch);
                Response::Owner(OwnerAnswer::GivenUp(true))
            }
            _ => Response::View(self.metadata.view()),
        }
    }

    /// One random fault.
    fn fault(&mut self) {
        if self.is_calm {
            return;
        }
        let (at, other) = (self.rng.below(3) as usize, self.rng.below(3) as usize);
        let until = self.now + self.rng.between(100, 2_500);
        match self.rng.below(7) {
            0 | 1 if self.nodes[at].is_up => {
                self.counts.add("crash");
                self.crash(at);
                let wait = self.rng.between(20, 2_000);
                self.after(wait, Event::Restart(at));
            }
            2 | 3 => {
                self.counts.add("pause");
                self.nodes[at].paused_until = until;
            }
            4 => {
                self.counts.add("cut from the metadata");
                self.cuts.push((Place::Node(at), Place::Metadata, until));
                if self.rng.below(2) == 0 {
                    self.cuts.push((Place::Metadata, Place::Node(at), until));
                }
            }
            5 => {
                self.counts.add("cut between nodes");
                self.cuts.push((Place::Node(at), Place::Node(other), until));
                if self.rng.below(2) == 0 {
                    self.cuts.push((Place::Node(other), Place::Node(at), until));
                }
            }
            _ => {
                self.counts.add("metadata away");
                self.metadata_away_until = self.now + self.rng.between(50, 1_200);
                self.metadata.restart_leases(self.metadata_away_until);
            }
        }
        let wait = self.rng.between(200, 1_200);
        self.after(wait, Event::Fault);
    }

    fn crash(&mut self, at: usize) {
        let planted = self.planted;
        let it = &mut self.nodes[at];
        it.crash();
        if planted.imports_lost {
            let hidden =
                it.instance.copies.iter().filter(|(_, copy)| copy.state == CopyState::Hidden);
            for key in hidden.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
                it.instance.copies.remove(&key);
                it.instance.values.remove(&key);
            }
        }
    }

    /// Everything heals; what runs may end.
    pub fn calm_down(&mut self) {
        self.is_calm = true;
        self.cuts.clear();
        self.metadata_away_until = 0;
        for it in &mut self.nodes {
            it.paused_until = 0;
        }
    }
}
