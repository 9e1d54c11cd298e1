//! The key move, model-checked: every order in which messages of moves and calls of clients can arrive,
//! with messages that are late, lost, or come twice, an owner that stops anywhere, a later owner beside
//! one that does not know of it, a home that restarts, full disks, and flushes of both stores. The machines are
//! those of the product.
//!
//! One key of shard 1, whose other instance is that of shard 2. An owner that crashes is one that takes
//! no more steps; a message that is lost is one that is never delivered. What happens is bounded by
//! counts, and everything within them is looked at.

use crate::instance::*;
use stateright::semantics::register::{Register, RegisterOp, RegisterRet};
use stateright::semantics::{ConsistencyTester, LinearizabilityTester};
use stateright::{Model, Property};
use std::hash::{DefaultHasher, Hash, Hasher};
use terrace_cluster::*;

const HOME: ShardId = ShardId(1);
const OTHER: ShardId = ShardId(2);
pub const REACHED: &str = "a move succeeds and clients are answered";
/// A call is routed again at most this often.
const MAX_TRIES: u8 = 2;

/// What happens in a model.
#[derive(Debug, Clone, Default)]
pub struct KeyMoves {
    /// What each client does, in this order.
    pub clients: Vec<Vec<Op>>,
    /// How many moves each owner begins: out if it has the key at home, else home. A second owner takes
    /// over at any time.
    pub owners: Vec<u8>,
    /// Answers to messages of moves, and ends of writes under way, that do not come in time.
    pub timeouts: u8,
    /// Calls of clients that do not come in time.
    pub give_ups: u8,
    /// Messages of moves that find a full disk.
    pub fulls: u8,
    /// Messages of moves that come twice. Calls of clients do not: the transport sends none again.
    pub duplicates: u8,
    /// Restarts of the home instance.
    pub restarts: u8,
    /// Flushes of both stores, one after the other; led by somebody who sends every message once and waits
    /// for the answers.
    pub flushes: u8,
    /// Stores that wait no longer for a flush that was announced.
    pub lapses: u8,
    pub off: Off,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Message {
    Move { owner: usize, head: MoveHead, call: MoveCall<Value>, ticket: u32 },
    MoveAnswer { owner: usize, id: MoveId, ticket: u32, answer: MoveAnswer<Value> },
    Call { owner: usize, at: ShardId, client: usize, number: u8, op: Op },
    CallAnswer { owner: usize, client: usize, number: u8, answer: CallAnswer },
    Flush { at: ShardId, round: Round, id: FlushId },
    FlushAnswer { is_done: bool, id: FlushId },
}

/// The flush that is under way.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Flushing {
    id: FlushId,
    round: Round,
    /// Stores that have not answered in this round.
    awaited: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClientState {
    /// Its next operation is to be sent, or sent again.
    Ready,
    /// In flight through this owner.
    Waiting(usize),
    /// It does not know what became of its last operation, and does nothing more.
    GaveUp,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Client {
    state: ClientState,
    /// Operations that are done.
    done: usize,
    /// Calls that were sent for the one that is not.
    tries: u8,
    /// Of the last call.
    number: u8,
    place: ShardId,
}

/// Which calls are waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Draining {
    Writes,
    Calls,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OwnerState {
    is_alive: bool,
    /// The mirror of the exception list.
    exception: Option<Exception>,
    current: Option<KeyMove<Value>>,
    ticket: u32,
    is_held: bool,
    draining: Option<Draining>,
    begun: u8,
    moved: u8,
}

#[derive(Debug, Clone, PartialEq)]
pub struct State {
    home: Instance,
    other: Instance,
    owners: Vec<OwnerState>,
    /// In flight, in no order; equal ones are one.
    pub network: Vec<Message>,
    clients: Vec<Client>,
    history: LinearizabilityTester<usize, Register<Value>>,
    flushing: Option<Flushing>,
    flushes: u8,
    lapses: u8,
    timeouts: u8,
    fulls: u8,
    give_ups: u8,
    duplicates: u8,
    restarts: u8,
}

impl Hash for State {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.home, &self.other, &self.owners, &self.clients, &self.history).hash(state);
        (&self.flushing, self.flushes, self.lapses).hash(state);
        (self.timeouts, self.give_ups, self.duplicates, self.restarts).hash(state);
        self.fulls.hash(state);
        let hashes = self.network.iter().map(|message| {
            let mut hasher = DefaultHasher::new();
            message.hash(&mut hasher);
            hasher.finish()
        });
        hashes.fold(0u64, u64::wrapping_add).hash(state);
    }
}

/// Messages by their place in the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Begin(usize),
    Timeout(usize),
    Route {
        client: usize,
        owner: usize,
    },
    GiveUp(usize),
    Deliver(usize),
    DeliverAndKeep(usize),
    /// To an instance whose disk is full.
    DeliverFull(usize),
    RestartHome,
    TakeOver,
    BeginFlush,
    /// At home, or else at the other.
    Lapse(bool),
}

fn key() -> DbKey {
    DbKey::new(0, "x")
}

/// Whether a full disk refuses this message. What ends a move finds room, or is sent again.
fn may_find_full(message: &Message) -> bool {
    let Message::Move { call, .. } = message else { return false };
    matches!(call, MoveCall::Begin | MoveCall::Export | MoveCall::Import(_) | MoveCall::Commit(_))
}

fn sender(owner: usize) -> Sender {
    Sender { home: HOME, epoch: Epoch(owner as u64 + 1) }
}

impl OwnerState {
    fn new() -> Self {
        Self {
            is_alive: true,
            exception: None,
            current: None,
            ticket: 0,
            is_held: false,
            draining: None,
            begun: 0,
            moved: 0,
        }
    }

    fn awaits(&self, id: MoveId, ticket: u32) -> bool {
        let is_current = self.current.as_ref().is_some_and(|current| current.id() == id);
        self.is_alive && is_current && ticket == self.ticket
    }
}

impl State {
    fn send(&mut self, message: Message) {
        if self.is_awaited(&message) && !self.network.contains(&message) {
            self.network.push(message);
        }
    }

    /// Answers that nobody waits for change nothing.
    fn is_awaited(&self, message: &Message) -> bool {
        match message {
            Message::MoveAnswer { owner, id, ticket, .. } => {
                self.owners[*owner].awaits(*id, *ticket)
            }
            Message::CallAnswer { owner, client, number, .. } => {
                let client = &self.clients[*client];
                client.state == ClientState::Waiting(*owner) && client.number == *number
            }
            Message::FlushAnswer { id, .. } => {
                self.flushing.as_ref().is_some_and(|flushing| flushing.id == *id)
            }
            Message::Move { .. } | Message::Call { .. } | Message::Flush { .. } => true,
        }
    }

    fn apply(&mut self, owner: usize, effects: Vec<Effect<Value>>) {
        for effect in effects {
            let it = &mut self.owners[owner];
            let Some(current) = &it.current else { return };
            match effect {
                Effect::Hold => (it.is_held, it.draining) = (true, Some(Draining::Writes)),
                Effect::DrainCalls => it.draining = Some(Draining::Calls),
                Effect::HoldDrained => it.is_held = true,
                Effect::ReleaseHold => (it.is_held, it.draining) = (false, None),
                Effect::SetExceptions => {
                    it.exception = Some(Exception { at: current.other(), move_id: current.id() });
                }
                Effect::ClearExceptions => it.exception = None,
                Effect::Over(outcome) => {
                    it.current = None;
                    it.is_alive &= outcome != Outcome::Deposed;
                    it.moved += u8::from(outcome == Outcome::Moved);
                }
                Effect::Send { call, ticket, .. } => {
                    it.ticket = ticket;
                    let head = MoveHead::of(current);
                    self.send(Message::Move { owner, head, call, ticket });
                }
            }
        }
    }

    fn on(&mut self, owner: usize, event: MoveEvent<Value>) {
        if let Some(current) = &mut self.owners[owner].current {
            let effects = current.on(event);
            self.apply(owner, effects);
        }
    }

    fn deliver(&mut self, model: &KeyMoves, message: Message) {
        match message {
            Message::Move { owner, head, call, ticket } => {
                let is_at_home = match call {
                    MoveCall::Export => head.direction == Direction::Out,
                    MoveCall::Begin | MoveCall::Commit(_) | MoveCall::Undo | MoveCall::Forget => {
                        true
                    }
                    _ => false,
                };
                let at = if is_at_home { &mut self.home } else { &mut self.other };
                let answer = at.on_move(sender(owner), &head, &call);
                self.send(Message::MoveAnswer { owner, id: head.id, ticket, answer });
            }
            Message::MoveAnswer { owner, ticket, answer, .. } => {
                self.on(owner, MoveEvent::Answered(ticket, answer));
            }
            Message::Call { owner, at, client, number, op } => {
                let at = if at == HOME { &mut self.home } else { &mut self.other };
                let answer = at.on_call(sender(owner), &key(), op);
                self.send(Message::CallAnswer { owner, client, number, answer });
            }
            Message::Flush { at, round, id } => {
                let at = if at == HOME { &mut self.home } else { &mut self.other };
                let is_done = match round {
                    Round::Announce if at.announce(id) => true,
                    // It comes again.
                    Round::Announce => {
                        let at = at.shard;
                        return self.send(Message::Flush { at, round, id });
                    }
                    Round::Execute => at.flush(id),
                };
                self.network.push(Message::FlushAnswer { is_done, id });
            }
            Message::FlushAnswer { is_done, .. } => self.flush_answered(is_done),
            Message::CallAnswer { owner, client: at, answer, .. } => {
                // A later owner is there only after the lease of the former has ended.
                let is_sure = owner + 1 == self.owners.len() || model.off.stamp_check;
                let client = &mut self.clients[at];
                client.state = ClientState::Ready;
                match answer {
                    CallAnswer::Done(_) if !is_sure => client.state = ClientState::GaveUp,
                    CallAnswer::Done(value) => {
                        let returned = match model.clients[at][client.done] {
                            Op::Read => RegisterRet::ReadOk(value),
                            Op::Write(_) => RegisterRet::WriteOk,
                        };
                        (client.done, client.tries) = (client.done + 1, 0);
                        self.history.on_return(at, returned).unwrap();
                    }
                    CallAnswer::Refused(_) => {}
                    CallAnswer::Deposed => self.owners[owner].is_alive = false,
                }
            }
        }
    }

    /// A message of a move finds a full disk.
    fn refuse_full(&mut self, message: Message) {
        let Message::Move { owner, head, call, ticket } = message else { return };
        let at = match call.site(head.direction) {
            Site::Home => &mut self.home,
            Site::Other => &mut self.other,
        };
        let answer = match at.fence(sender(owner)) {
            true => MoveAnswer::Refused(Refusal::Full),
            false => MoveAnswer::Deposed,
        };
        self.send(Message::MoveAnswer { owner, id: head.id, ticket, answer });
    }

    /// A flush counts as a write of every key, by somebody who comes after the clients.
    fn begin_flush(&mut self, model: &KeyMoves) {
        self.flushes += 1;
        let flusher = self.clients.len();
        self.history.on_invoke(flusher, RegisterOp::Write(None)).unwrap();
        self.begin_round(match model.off.flush_rounds {
            true => Round::Execute,
            false => Round::Announce,
        });
    }

    fn begin_round(&mut self, round: Round) {
        let id = FlushId(u64::from(self.flushes));
        self.flushing = Some(Flushing { id, round, awaited: 2 });
        for at in [HOME, OTHER] {
            self.send(Message::Flush { at, round, id });
        }
    }

    /// A store has answered. One that refused the flush has lapsed, and nothing is promised.
    fn flush_answered(&mut self, is_done: bool) {
        let Some(flushing) = &mut self.flushing else { return };
        flushing.awaited -= 1;
        match (is_done, flushing.awaited, flushing.round) {
            (false, ..) => self.flushing = None,
            (true, 0, Round::Announce) => self.begin_round(Round::Execute),
            (true, 0, Round::Execute) => {
                self.flushing = None;
                let flusher = self.clients.len();
                self.history.on_return(flusher, RegisterRet::WriteOk).unwrap();
            }
            _ => {}
        }
    }

    fn route(&mut self, model: &KeyMoves, at: usize, owner: usize) {
        let op = model.clients[at][self.clients[at].done];
        let client = &mut self.clients[at];
        if client.tries == 0 {
            let invoked = match op {
                Op::Read => RegisterOp::Read,
                Op::Write(value) => RegisterOp::Write(Some(value)),
            };
            self.history.on_invoke(at, invoked).unwrap();
        }
        (client.tries, client.number) = (client.tries + 1, client.number + 1);
        client.state = ClientState::Waiting(owner);
        let number = client.number;
        let place = self.owners[owner].exception.map_or(HOME, |exception| exception.at);
        self.clients[at].place = place;
        self.send(Message::Call { owner, at: place, client: at, number, op });
    }

    fn take_over(&mut self) {
        let owner = self.owners.len();
        self.home.fence(sender(owner));
        let (exceptions, intents) = self.home.load();
        let mut new = OwnerState::new();
        new.exception = exceptions.first().map(|(_, exception)| *exception);
        self.owners.push(new);
        for (resumed, effects) in KeyMove::resume(intents) {
            self.owners[owner].current = Some(resumed);
            self.apply(owner, effects);
        }
    }

    /// What happens by itself: what is drained goes on, and answers that are not awaited are gone.
    fn settle(&mut self, model: &KeyMoves) {
        for owner in 0..self.owners.len() {
            let is_under_way = |of: &dyn Fn(&Client, Op) -> bool| {
                let clients = self.clients.iter().zip(&model.clients);
                clients.into_iter().any(|(client, ops)| {
                    client.state == ClientState::Waiting(owner) && of(client, ops[client.done])
                })
            };
            let is_drained = match self.owners[owner].draining {
                None => continue,
                Some(Draining::Writes) => {
                    model.off.owner_hold || !is_under_way(&|_, op| op != Op::Read)
                }
                Some(Draining::Calls) => {
                    model.off.drain_calls || !is_under_way(&|client, _| client.place == OTHER)
                }
            };
            if is_drained {
                self.owners[owner].draining = None;
                self.on(owner, MoveEvent::Drained);
            }
        }
        let network = std::mem::take(&mut self.network);
        self.network = network.into_iter().filter(|message| self.is_awaited(message)).collect();
    }

    fn is_at_other(&self) -> bool {
        self.home.homes.get(&key()).is_some_and(|home| home.exception.is_some())
    }

    /// Nothing is under way, for the newest owner.
    fn is_quiet(&self) -> bool {
        self.network.is_empty() && self.owners.last().is_some_and(|it| it.current.is_none())
    }
}

impl Model for KeyMoves {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let (mut home, other) = (Instance::new(HOME, self.off), Instance::new(OTHER, self.off));
        home.values.insert(key(), 0);
        home.fence(sender(0));
        let client =
            Client { state: ClientState::Ready, done: 0, tries: 0, number: 0, place: HOME };
        vec![State {
            home,
            other,
            owners: vec![OwnerState::new()],
            network: Vec::new(),
            clients: vec![client; self.clients.len()],
            history: LinearizabilityTester::new(Register(Some(0))),
            flushing: None,
            flushes: 0,
            lapses: 0,
            timeouts: 0,
            fulls: 0,
            give_ups: 0,
            duplicates: 0,
            restarts: 0,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (at, owner) in state.owners.iter().enumerate().filter(|(_, owner)| owner.is_alive) {
            match &owner.current {
                None if owner.begun < self.owners[at] => actions.push(Action::Begin(at)),
                Some(_) if state.timeouts < self.timeouts => {
                    let may = owner.draining != Some(Draining::Calls);
                    actions.extend(may.then_some(Action::Timeout(at)));
                }
                _ => {}
            }
        }
        for (at, client) in state.clients.iter().enumerate() {
            let Some(&op) = self.clients[at].get(client.done) else { continue };
            match client.state {
                ClientState::Ready if client.tries < MAX_TRIES => {
                    let may = |owner: &OwnerState| {
                        owner.is_alive && (op == Op::Read || !owner.is_held || self.off.owner_hold)
                    };
                    let owners = state.owners.iter().enumerate().filter(|(_, owner)| may(owner));
                    actions.extend(owners.map(|(owner, _)| Action::Route { client: at, owner }));
                }
                ClientState::Waiting(_) if state.give_ups < self.give_ups => {
                    actions.push(Action::GiveUp(at));
                }
                _ => {}
            }
        }
        for (at, message) in state.network.iter().enumerate() {
            actions.push(Action::Deliver(at));
            let is_move = matches!(message, Message::Move { .. });
            if state.duplicates < self.duplicates && is_move {
                actions.push(Action::DeliverAndKeep(at));
            }
            if state.fulls < self.fulls && may_find_full(message) {
                actions.push(Action::DeliverFull(at));
            }
        }
        if state.restarts < self.restarts {
            actions.push(Action::RestartHome);
        }
        if state.owners.len() < self.owners.len() {
            actions.push(Action::TakeOver);
        }
        if state.flushing.is_none() && state.flushes < self.flushes {
            actions.push(Action::BeginFlush);
        }
        if state.lapses < self.lapses {
            let waits = |at: &Instance| at.flushes != Flushes::default();
            actions.extend(waits(&state.home).then_some(Action::Lapse(true)));
            actions.extend(waits(&state.other).then_some(Action::Lapse(false)));
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Begin(owner) => {
                let it = &mut next.owners[owner];
                it.begun += 1;
                let id = MoveId { epoch: sender(owner).epoch, number: u64::from(it.begun) };
                let direction =
                    if it.exception.is_some() { Direction::Home } else { Direction::Out };
                let (begun, effects) = KeyMove::begin(id, direction, OTHER, vec![key()]);
                it.current = Some(begun);
                next.apply(owner, effects);
            }
            Action::Timeout(owner) => {
                next.timeouts += 1;
                let it = &mut next.owners[owner];
                let unanswered = MoveEvent::Answered(it.ticket, MoveAnswer::Unknown);
                let event = it.draining.take().map_or(unanswered, |_| MoveEvent::Undrained);
                next.on(owner, event);
            }
            Action::Route { client, owner } => next.route(self, client, owner),
            Action::GiveUp(client) => {
                next.give_ups += 1;
                next.clients[client].state = ClientState::GaveUp;
            }
            Action::Deliver(at) => {
                let message = next.network.remove(at);
                next.deliver(self, message);
            }
            Action::DeliverAndKeep(at) => {
                next.duplicates += 1;
                let message = next.network[at].clone();
                next.deliver(self, message);
            }
            Action::DeliverFull(at) => {
                next.fulls += 1;
                let message = next.network.remove(at);
                next.refuse_full(message);
            }
            Action::RestartHome => {
                next.restarts += 1;
                next.home.restart();
            }
            Action::TakeOver => next.take_over(),
            Action::BeginFlush => next.begin_flush(self),
            Action::Lapse(at_home) => {
                next.lapses += 1;
                let at = if at_home { &mut next.home } else { &mut next.other };
                at.flushes = Flushes::default();
            }
        }
        next.settle(self);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("linearizable", |_, state: &State| state.history.is_consistent()),
            Property::always("what is away is there", |_, state: &State| {
                !state.is_at_other() || state.other.copies.contains_key(&key())
            }),
            // Late messages may leave a hidden copy, which the owner's sweep removes.
            Property::always("in one place when all is quiet", |_, state: &State| {
                let is_late = state.timeouts + state.duplicates > 0;
                let home = state.home.homes.get(&key());
                let is_settled = home.is_none_or(|home| home.intent.is_none())
                    && match state.other.copies.get(&key()) {
                        None => !state.is_at_other(),
                        Some(copy) => state.is_at_other() && copy.state == CopyState::Live,
                    };
                let known = state.owners.last().and_then(|owner| owner.exception);
                let is_known = known == home.and_then(|home| home.exception);
                is_late || !state.is_quiet() || is_settled && is_known
            }),
            Property::sometimes(REACHED, |model, state: &State| {
                let is_done = |at: usize| state.clients[at].done == model.clients[at].len();
                state.owners.iter().any(|owner| owner.moved > 0)
                    && (0..state.clients.len()).all(is_done)
            }),
        ]
    }
}
