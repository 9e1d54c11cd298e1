//! Ownership, model-checked: two coordinators, a metadata store with leases, and an owner that may pause
//! before and after every single step. The machines are those of the product.
//!
//! An owner reads from a cache of its own, which no instance fences (as an owner with its own store of the
//! object tier will): so only the lease stands between a paused owner and a stale answer. Writes go to the
//! instance, which fences. Time is a small number that all clocks share; a lease ends at its time or at any
//! moment after.

use stateright::semantics::register::{Register, RegisterOp, RegisterRet};
use stateright::semantics::{ConsistencyTester, LinearizabilityTester};
use stateright::{Checker, HasDiscoveries, Model, Property};
use std::time::Duration;
use terrace_cluster::*;

const TTL: u8 = 2;

/// When a reply is checked against the lease, and what it is checked against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stamp {
    /// After the read, as the product does.
    AfterRead,
    /// Once for a batch, before its requests are read.
    BeforeRead,
    /// Never.
    Off,
    /// After the read, but the stamp is when the confirmation came.
    OfAnswer,
}

#[derive(Debug, Clone)]
struct Owners {
    stamp: Stamp,
    /// The instance does not refuse writes of former owners.
    is_unfenced: bool,
    /// Reads, writes, and keep-alives that are sent.
    reads: u8,
    writes: u32,
    keep_alives: u8,
    /// The clock ends here.
    end: u8,
    /// Whether the second node, which owns the shard first, hands it over.
    hand_over: bool,
}

/// What a client waits for. Epochs are those in which it was begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Call {
    Read(Epoch),
    HasRead(Epoch, u32),
    Write(Epoch, u32),
    Written(u32),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum KeepAlive {
    Sent(SendStamp),
    /// The store has it; whether the lease lived.
    Confirmed(SendStamp, bool),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct NodeState {
    lease: LeaseClock,
    ownership: Ownership,
    seen: u64,
    keep_alive: Option<KeepAlive>,
    request: Option<(Ticket, OwnerRequest)>,
    answer: Option<(Ticket, OwnerAnswer)>,
    cache: u32,
    /// A batch has begun while the lease was sure.
    is_checked: bool,
    call: Option<Call>,
}

#[derive(Debug, Clone, PartialEq, Hash)]
struct State {
    now: u8,
    nodes: Vec<NodeState>,
    /// When the store may end the lease of each node; `None`: it has.
    leases: [Option<u8>; 2],
    revision: u64,
    owner: Option<(usize, u64)>,
    claim: Option<usize>,
    instance: (u32, u64),
    reads: u8,
    writes: u32,
    keep_alives: u8,
    handed_over: bool,
    history: LinearizabilityTester<usize, Register<u32>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Clock,
    SendKeepAlive(usize),
    StoreKeepAlive(usize),
    Confirm(usize),
    Expire(usize),
    See(usize),
    Execute(usize),
    Answer(usize),
    Check(usize),
    Begin(usize, bool),
    Step(usize),
}

fn node(at: usize) -> NodeId {
    NodeId([at as u8 + 1; 20])
}

fn time(now: u8) -> Duration {
    Duration::from_secs(now.into())
}

impl State {
    fn view(&self) -> Option<Owner> {
        self.owner.map(|(at, epoch)| Owner {
            node: node(at),
            epoch: Epoch(epoch),
            is_claimed: self.claim == Some(at),
        })
    }

    fn on(&mut self, at: usize, event: OwnerEvent) {
        let it = &mut self.nodes[at];
        for effect in it.ownership.on(time(self.now), &it.lease, event) {
            match effect {
                OwnerEffect::Ask(ticket, OwnerRequest::Drain) => match it.call {
                    // Nothing runs.
                    None => it.answer = Some((ticket, OwnerAnswer::Drained)),
                    Some(_) => it.request = Some((ticket, OwnerRequest::Drain)),
                },
                OwnerEffect::Ask(ticket, request) => it.request = Some((ticket, request)),
                // Calls that run are not answered: their next step sees that.
                OwnerEffect::Serve(_) | OwnerEffect::StopServing => {}
            }
        }
    }

    /// What the store or the instance makes of a request.
    fn execute(&mut self, at: usize, request: OwnerRequest) -> OwnerAnswer {
        match request {
            OwnerRequest::Probe => OwnerAnswer::Probed(true),
            OwnerRequest::Claim { seen, replace, .. } => {
                let is_seen = self.owner.map(|(_, epoch)| Epoch(epoch)) == seen;
                let is_free = if replace { self.claim == Some(at) } else { self.claim.is_none() };
                if !is_seen || !is_free || self.leases[at].is_none() {
                    return OwnerAnswer::Claimed(ClaimAnswer::Lost);
                }
                self.revision += 1;
                (self.owner, self.claim) = (Some((at, self.revision)), Some(at));
                OwnerAnswer::Claimed(ClaimAnswer::Won(Epoch(self.revision)))
            }
            OwnerRequest::Fence(epoch) if epoch.0 < self.instance.1 => {
                OwnerAnswer::Fenced(FenceAnswer::Deposed(Epoch(self.instance.1)))
            }
            OwnerRequest::Fence(epoch) => {
                self.instance.1 = epoch.0;
                OwnerAnswer::Fenced(FenceAnswer::Done)
            }
            OwnerRequest::Load(_) => {
                self.nodes[at].cache = self.instance.0;
                OwnerAnswer::Loaded(true)
            }
            OwnerRequest::GiveUp(epoch) => {
                if self.owner == Some((at, epoch.0)) && self.claim == Some(at) {
                    self.revision += 1;
                    self.claim = None;
                    self.handed_over = true;
                }
                OwnerAnswer::GivenUp(true)
            }
            OwnerRequest::Drain => OwnerAnswer::Drained,
        }
    }

    /// The next step of the call that runs at a node.
    fn step(&mut self, model: &Owners, at: usize) {
        let now = time(self.now);
        let it = &mut self.nodes[at];
        let Some(call) = it.call.take() else { return };
        match call {
            Call::Read(epoch) => it.call = Some(Call::HasRead(epoch, it.cache)),
            Call::HasRead(epoch, value) => {
                let may = match model.stamp {
                    Stamp::AfterRead | Stamp::OfAnswer => {
                        it.ownership.may_reply(&it.lease, now, epoch)
                    }
                    Stamp::BeforeRead | Stamp::Off => it.ownership.serving() == Some(epoch),
                };
                if may {
                    self.history.on_return(at, RegisterRet::ReadOk(value)).unwrap();
                } else {
                    // An error: the client does not use this node again.
                    it.call = Some(Call::Written(u32::MAX));
                }
            }
            Call::Write(epoch, value) => {
                if epoch.0 >= self.instance.1 || model.is_unfenced {
                    self.instance = (value, self.instance.1.max(epoch.0));
                    it.call = Some(Call::Written(value));
                } else {
                    it.call = Some(Call::Written(u32::MAX));
                    self.on(at, OwnerEvent::Deposed(epoch, None));
                }
            }
            Call::Written(u32::MAX) => it.call = Some(call),
            Call::Written(value) => {
                it.cache = value;
                self.history.on_return(at, RegisterRet::WriteOk).unwrap();
            }
        }
    }
}

impl Model for Owners {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let times = OwnershipTimes {
            turn: Duration::ZERO,
            hand_over_after: if self.hand_over { Duration::ZERO } else { Duration::MAX },
            drain: Duration::MAX,
            retry: Duration::ZERO,
            unreachable: Duration::MAX,
        };
        let nodes = (0..2).map(|at| {
            let mut lease = LeaseClock::new(Duration::ZERO);
            let stamp = lease.sent(time(0));
            lease.granted(stamp, at as u64 + 1, time(TTL));
            let ownership = Ownership::new(node(at), times);
            NodeState {
                lease,
                ownership,
                seen: 0,
                keep_alive: None,
                request: None,
                answer: None,
                cache: 0,
                is_checked: false,
                call: None,
            }
        });
        let mut state = State {
            now: 0,
            nodes: nodes.collect(),
            leases: [Some(TTL); 2],
            revision: 1,
            owner: None,
            claim: None,
            instance: (0, 0),
            reads: 0,
            writes: 0,
            keep_alives: 0,
            handed_over: false,
            history: LinearizabilityTester::new(Register(0)),
        };
        // The first owner serves already: the one that is not preferred, if it is to hand over.
        let first = usize::from(self.hand_over);
        state.on(first, OwnerEvent::Rank(Some(0)));
        state.on(first, OwnerEvent::Seen(Revision(1), None));
        while let Some((ticket, request)) = state.nodes[first].request.take() {
            let answer = state.execute(first, request);
            state.on(first, OwnerEvent::Answered(ticket, answer));
        }
        assert!(state.nodes[first].ownership.serving().is_some());
        state.on(0, OwnerEvent::Rank(Some(0)));
        state.on(1, OwnerEvent::Rank(Some(1)));
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.now < self.end {
            actions.push(Action::Clock);
        }
        for (at, it) in state.nodes.iter().enumerate() {
            match &it.keep_alive {
                None if it.lease.lease().is_some() && state.keep_alives < self.keep_alives => {
                    actions.push(Action::SendKeepAlive(at));
                }
                None => {}
                Some(KeepAlive::Sent(_)) => actions.push(Action::StoreKeepAlive(at)),
                Some(KeepAlive::Confirmed(..)) => actions.push(Action::Confirm(at)),
            }
            if state.leases[at].is_some_and(|end| state.now >= end) {
                actions.push(Action::Expire(at));
            }
            if it.seen < state.revision {
                actions.push(Action::See(at));
            }
            match it.request {
                Some((_, OwnerRequest::Drain)) if it.call.is_some() => {}
                Some(_) => actions.push(Action::Execute(at)),
                None => {}
            }
            if it.answer.is_some() {
                actions.push(Action::Answer(at));
            }
            match it.call {
                None if it.ownership.serving().is_some() => {
                    let is_before = self.stamp == Stamp::BeforeRead;
                    if is_before && !it.is_checked && it.lease.is_sure(time(state.now)) {
                        actions.push(Action::Check(at));
                    }
                    if state.reads < self.reads && (it.is_checked || !is_before) {
                        actions.push(Action::Begin(at, false));
                    }
                    if state.writes < self.writes {
                        actions.push(Action::Begin(at, true));
                    }
                }
                None | Some(Call::Written(u32::MAX)) => {}
                Some(_) => actions.push(Action::Step(at)),
            }
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Clock => next.now += 1,
            Action::SendKeepAlive(at) => {
                next.keep_alives += 1;
                let stamp = next.nodes[at].lease.sent(time(next.now));
                next.nodes[at].keep_alive = Some(KeepAlive::Sent(stamp));
            }
            Action::StoreKeepAlive(at) => {
                let Some(KeepAlive::Sent(stamp)) = next.nodes[at].keep_alive.take() else {
                    return None;
                };
                let lives = next.leases[at].is_some();
                next.leases[at] = lives.then_some(next.now + TTL);
                next.nodes[at].keep_alive = Some(KeepAlive::Confirmed(stamp, lives));
            }
            Action::Confirm(at) => {
                let it = &mut next.nodes[at];
                let Some(KeepAlive::Confirmed(mut stamp, lives)) = it.keep_alive.take() else {
                    return None;
                };
                if self.stamp == Stamp::OfAnswer {
                    stamp = it.lease.sent(time(next.now));
                }
                let ttl = if lives { time(TTL) } else { Duration::ZERO };
                if !it.lease.confirmed(stamp, at as u64 + 1, ttl) {
                    next.on(at, OwnerEvent::LeaseLost);
                }
            }
            Action::Expire(at) => {
                next.leases[at] = None;
                if next.claim == Some(at) {
                    next.claim = None;
                    next.revision += 1;
                }
            }
            Action::See(at) => {
                next.nodes[at].seen = next.revision;
                let seen = OwnerEvent::Seen(Revision(next.revision), next.view());
                next.on(at, seen);
            }
            Action::Execute(at) => {
                let (ticket, request) = next.nodes[at].request.take()?;
                let answer = next.execute(at, request);
                next.nodes[at].answer = Some((ticket, answer));
            }
            Action::Answer(at) => {
                let (ticket, answer) = next.nodes[at].answer.take()?;
                next.on(at, OwnerEvent::Answered(ticket, answer));
            }
            Action::Check(at) => next.nodes[at].is_checked = true,
            Action::Begin(at, is_write) => {
                let epoch = next.nodes[at].ownership.serving()?;
                next.nodes[at].call = Some(if is_write {
                    next.writes += 1;
                    next.history.on_invoke(at, RegisterOp::Write(next.writes)).unwrap();
                    Call::Write(epoch, next.writes)
                } else {
                    next.reads += 1;
                    next.history.on_invoke(at, RegisterOp::Read).unwrap();
                    Call::Read(epoch)
                });
            }
            Action::Step(at) => next.step(self, at),
        }
        Some(next)
    }

    /// A hand-over to and fro would go on for ever.
    fn within_boundary(&self, state: &State) -> bool {
        state.revision <= 4
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("linearizable", |_, state: &State| state.history.is_consistent()),
            Property::always("one owner is sure", |_, state: &State| {
                let is_sure = |it: &&NodeState| {
                    let may = |epoch| it.ownership.may_reply(&it.lease, time(state.now), epoch);
                    it.ownership.serving().is_some_and(may)
                };
                state.nodes.iter().filter(is_sure).count() < 2
            }),
            Property::sometimes("another node takes over and serves", |model, state: &State| {
                let other = usize::from(!model.hand_over);
                state.nodes[other].ownership.serving().is_some()
                    && state.handed_over == model.hand_over
                    && state.reads == model.reads
            }),
        ]
    }
}

fn owners(stamp: Stamp) -> Owners {
    Owners {
        stamp,
        is_unfenced: false,
        reads: 1,
        writes: 1,
        keep_alives: 1,
        end: 4,
        hand_over: false,
    }
}

fn check(name: &str, model: Owners) {
    let checker = model.checker().spawn_bfs().join();
    println!("{name}: {} states", checker.unique_state_count());
    assert!(checker.unique_state_count() > 1_000, "{name}: it does nothing");
    checker.assert_properties();
}

fn violates(property: &'static str, model: Owners) {
    let checker =
        model.checker().finish_when(HasDiscoveries::AnyOf([property].into())).spawn_bfs().join();
    println!("{property}: violated after {} states", checker.unique_state_count());
    assert!(checker.discovery(property).is_some(), "{property} is not missed");
}

#[test]
fn an_owner_that_pauses_anywhere_shows_nothing_stale() {
    check("lease", owners(Stamp::AfterRead));
}

#[test]
fn a_hand_over_shows_nothing_stale() {
    check(
        "hand-over",
        Owners { hand_over: true, keep_alives: 0, end: 2, ..owners(Stamp::AfterRead) },
    );
}

#[test]
fn without_the_stamp_check_a_paused_owner_shows_old_values() {
    violates("linearizable", owners(Stamp::Off));
}

#[test]
fn a_stamp_that_is_checked_before_the_read_is_not_enough() {
    violates("linearizable", owners(Stamp::BeforeRead));
}

#[test]
fn a_stamp_of_the_answer_is_not_enough() {
    let model = Owners { reads: 0, writes: 0, keep_alives: 2, end: 3, ..owners(Stamp::OfAnswer) };
    violates("one owner is sure", model);
}

#[test]
fn without_the_fence_a_former_owner_writes() {
    let model = Owners { is_unfenced: true, writes: 2, end: 3, ..owners(Stamp::AfterRead) };
    violates("linearizable", model);
}
