//! One shard, as one coordinator sees it: whether it owns it, and what it does to own it. A state machine
//! without I/O and without a clock: events in, effects out.
//!
//! ```text
//! Idle --vacant, my turn--> Probing --answers--> Claiming --won--> Fencing --> Loading --> Serving
//!   ^                                                                                        |
//!   +------------------ GivingUp <------ drained ------- Draining <------- hand-over --------+
//! ```
//! - The claim is a transaction: the shard's `owner` is as it was seen and there is no `claim`; then both
//!   are written, the claim with this node's lease. Its revision is the epoch. A claim that another life
//!   of this node left behind may be replaced: the store's lock file says that the former process is dead.
//! - An instance is fenced with the epoch before anything is read from it, and the exceptions and intents
//!   of the shard are read after that.
//! - What was read may be shown only if [`Ownership::may_reply`] holds afterwards.
//! - A lost lease, a later owner, or a claim that is gone ends it at once, in every state.
//! - Who owns a shard that another node is preferred for hands it over: it stops taking calls, waits for
//!   those that run, gives the claim up, and the other, which sees that, claims.

use crate::id::{Epoch, NodeId, Revision};
use crate::owning::lease::LeaseClock;
use crate::topology::Owner;
use std::time::Duration;

/// Times of the protocol; none matters for what is promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OwnershipTimes {
    /// A node waits for this long for each node that is preferred to it before it claims.
    pub turn: Duration,
    /// A preferred node must have been there for this long before it is given the shard.
    pub hand_over_after: Duration,
    /// Calls that run may take this long before a hand-over goes on without them; they are refused then.
    pub drain: Duration,
    /// Between attempts at what had no answer.
    pub retry: Duration,
    /// A node that cannot reach the instance for this long lets others try.
    pub unreachable: Duration,
}

impl Default for OwnershipTimes {
    fn default() -> Self {
        Self {
            turn: Duration::from_millis(500),
            hand_over_after: Duration::from_secs(1),
            drain: Duration::from_secs(2),
            retry: Duration::from_millis(200),
            unreachable: Duration::from_secs(2),
        }
    }
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OwnerEvent {
    /// The metadata at this revision: who owns the shard, if anybody ever did.
    Seen(Revision, Option<Owner>),
    /// This node's place among those that may own the shard (`claim_rank`).
    Rank(Option<u32>),
    /// Time has passed. Between other events it comes at least every `retry`.
    Tick,
    /// The answer to a request. Those to requests that no longer matter are ignored.
    Answered(Ticket, OwnerAnswer),
    /// The lease is lost.
    LeaseLost,
    /// An instance refused a call of the first epoch: there is a later owner. The second is the epoch that it knows, if
    /// it said that: if its owner is not seen at that revision, there is none, as with [`FenceAnswer::Deposed`].
    Deposed(Epoch, Option<Epoch>),
}

/// Names a request, so that a late answer is not taken for that to a later one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Ticket(u64);

/// The answer to an [`OwnerRequest`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OwnerAnswer {
    /// To `Probe`: whether the instance answers.
    Probed(bool),
    /// To `Claim`.
    Claimed(ClaimAnswer),
    /// To `Fence`.
    Fenced(FenceAnswer),
    /// To `Load`: whether it worked.
    Loaded(bool),
    /// To `Drain`.
    Drained,
    /// To `GiveUp`: whether it is known to be done, or not needed.
    GivenUp(bool),
}

/// How the transaction of a claim ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClaimAnswer {
    /// The shard is owned in this term.
    Won(Epoch),
    /// The comparison failed: somebody was faster, or what was seen is old.
    Lost,
    /// There is no answer. If it worked, that will be seen.
    Unknown,
}

/// How the fencing of the instance ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FenceAnswer {
    /// The epoch is durable there, and no call of a former owner runs.
    Done,
    /// The instance knows this later epoch. If its owner is not seen at that revision, there is none: the metadata were
    /// lost, and began again.
    Deposed(Epoch),
    /// The instance serves the shard for nobody.
    Refused,
    /// There is no answer.
    Unknown,
}

/// What the caller is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OwnerEffect {
    /// Ask this, and report the answer.
    Ask(Ticket, OwnerRequest),
    /// Calls of clients are executed from now on.
    Serve(Epoch),
    /// No calls any more; those that run are not answered. Moves stop where they are.
    StopServing,
}

/// What is asked of the metadata, the instance, or the rest of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OwnerRequest {
    /// Ask the instance whether it is there.
    Probe,
    /// The transaction. `seen`: the epoch of the last owner; `None`: nobody ever owned it. `replace`: there
    /// is a claim, of this node; else there is none.
    Claim {
        /// The `mod_revision` that `owner` must still have.
        seen: Option<Epoch>,
        /// Whether the claim of this node must be there, instead of none.
        replace: bool,
        /// The lease that the claim gets.
        lease: u64,
    },
    /// Make the instance refuse former owners.
    Fence(Epoch),
    /// Read the shard's exceptions and intents from the instance, resume its moves.
    Load(Epoch),
    /// New calls wait; cancel moves; report when no call and no move is running.
    Drain,
    /// Take back the claim, if `owner` still has this revision and the claim is of this node.
    GiveUp(Epoch),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum State {
    Idle,
    Probing,
    Claiming,
    Fencing(Epoch),
    Loading(Epoch),
    Serving(Epoch),
    Draining(Epoch),
    GivingUp(Epoch),
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Ownership {
    me: NodeId,
    times: OwnershipTimes,
    state: State,
    revision: Revision,
    owner: Option<Owner>,
    rank: Option<u32>,
    /// Since when the shard has been vacant, another node preferred, or the state the same.
    vacant_since: Option<Duration>,
    outranked_since: Option<Duration>,
    state_since: Duration,
    /// When something without an answer is tried again.
    retry_at: Option<Duration>,
    ticket: Ticket,
    /// What the claim hangs on.
    lease: Option<u64>,
    /// What was seen up to here is known to be old.
    old_until: Option<Revision>,
}

impl Ownership {
    /// A shard that this node does not own.
    pub fn new(me: NodeId, times: OwnershipTimes) -> Self {
        Self {
            me,
            times,
            state: State::Idle,
            revision: Revision(0),
            owner: None,
            rank: None,
            vacant_since: None,
            outranked_since: None,
            state_since: Duration::ZERO,
            retry_at: None,
            ticket: Ticket::default(),
            lease: None,
            old_until: None,
        }
    }

    /// The term in which calls are executed.
    pub fn serving(&self) -> Option<Epoch> {
        match self.state {
            State::Serving(epoch) => Some(epoch),
            _ => None,
        }
    }

    /// The term in which this node holds the claim, as far as it knows.
    pub fn held_epoch(&self) -> Option<Epoch> {
        match self.state {
            State::Idle | State::Probing | State::Claiming => None,
            State::Fencing(epoch)
            | State::Loading(epoch)
            | State::Serving(epoch)
            | State::Draining(epoch)
            | State::GivingUp(epoch) => Some(epoch),
        }
    }

    /// Whether what was read in the term `epoch` *before* this was asked may be shown now.
    pub fn may_reply(&self, lease: &LeaseClock, now: Duration, epoch: Epoch) -> bool {
        let is_mine =
            matches!(self.state, State::Serving(mine) | State::Draining(mine) if mine == epoch);
        is_mine && lease.lease() == self.lease && lease.is_sure(now)
    }

    /// The state for people.
    pub fn state_name(&self) -> &'static str {
        match self.state {
            State::Idle => "idle",
            State::Probing => "probing",
            State::Claiming => "claiming",
            State::Fencing(_) => "fencing",
            State::Loading(_) => "loading",
            State::Serving(_) => "serving",
            State::Draining(_) => "draining",
            State::GivingUp(_) => "giving up",
        }
    }

    /// Takes what happened, and says what is to be done, in this order.
    pub fn on(&mut self, now: Duration, lease: &LeaseClock, event: OwnerEvent) -> Vec<OwnerEffect> {
        let mut effects = match event {
            OwnerEvent::Seen(revision, owner) => self.seen(now, revision, owner),
            OwnerEvent::Rank(rank) => self.ranked(now, rank),
            OwnerEvent::LeaseLost => self.stop(now),
            OwnerEvent::Deposed(epoch, later) if self.held_epoch() == Some(epoch) => {
                self.old_until = Some(later.map_or(self.revision, before));
                self.stop(now)
            }
            OwnerEvent::Answered(ticket, answer) if ticket == self.ticket => {
                self.answered(now, lease, answer)
            }
            OwnerEvent::Tick | OwnerEvent::Deposed(..) | OwnerEvent::Answered(..) => Vec::new(),
        };
        effects.extend(self.next(now, lease));
        effects
    }

    fn seen(
        &mut self,
        now: Duration,
        revision: Revision,
        owner: Option<Owner>,
    ) -> Vec<OwnerEffect> {
        if revision < self.revision {
            return Vec::new();
        }
        (self.revision, self.owner) = (revision, owner);
        let is_vacant = owner.is_none_or(|owner| !owner.is_claimed);
        self.vacant_since = is_vacant.then(|| self.vacant_since.unwrap_or(now));
        match (self.held_epoch(), owner) {
            // What was seen is older than the claim.
            (Some(epoch), _) if revision.0 < epoch.0 => Vec::new(),
            (Some(epoch), Some(owner)) if owner.is_claimed && owner.epoch == epoch => Vec::new(),
            (Some(_), _) => self.stop(now),
            (None, _) => Vec::new(),
        }
    }

    fn ranked(&mut self, now: Duration, rank: Option<u32>) -> Vec<OwnerEffect> {
        self.rank = rank;
        let is_outranked = rank != Some(0);
        self.outranked_since = is_outranked.then(|| self.outranked_since.unwrap_or(now));
        Vec::new()
    }

    fn answered(
        &mut self,
        now: Duration,
        lease: &LeaseClock,
        answer: OwnerAnswer,
    ) -> Vec<OwnerEffect> {
        match (self.state, answer) {
            (State::Probing, OwnerAnswer::Probed(true)) => return self.claim(now, lease),
            (State::Probing, OwnerAnswer::Probed(false)) => match self.own_claim() {
                // It serves nobody, and keeps others from theirs.
                Some(own) => return self.give_up(now, own.epoch),
                None => self.retry_idle(now),
            },
            (State::Claiming, OwnerAnswer::Claimed(ClaimAnswer::Unknown)) => self.retry_idle(now),
            (State::Claiming, OwnerAnswer::Claimed(ClaimAnswer::Won(epoch))) => {
                self.enter(now, State::Fencing(epoch));
                self.vacant_since = None;
                return vec![self.ask(OwnerRequest::Fence(epoch))];
            }
            (State::Claiming, OwnerAnswer::Claimed(ClaimAnswer::Lost))
            | (State::GivingUp(_), OwnerAnswer::GivenUp(true)) => {
                self.old_until = Some(self.revision);
                self.enter(now, State::Idle);
            }
            (State::Fencing(epoch), OwnerAnswer::Fenced(FenceAnswer::Done)) => {
                self.enter(now, State::Loading(epoch));
                return vec![self.ask(OwnerRequest::Load(epoch))];
            }
            (State::Fencing(_), OwnerAnswer::Fenced(FenceAnswer::Deposed(later))) => {
                self.old_until = Some(before(later));
                return self.stop(now);
            }
            (State::Fencing(epoch), OwnerAnswer::Fenced(FenceAnswer::Refused)) => {
                return self.give_up(now, epoch);
            }
            (State::Loading(epoch), OwnerAnswer::Loaded(true)) => {
                self.enter(now, State::Serving(epoch));
                return vec![OwnerEffect::Serve(epoch)];
            }
            (State::Fencing(_), OwnerAnswer::Fenced(FenceAnswer::Unknown))
            | (State::Loading(_), OwnerAnswer::Loaded(false))
            | (State::GivingUp(_), OwnerAnswer::GivenUp(false)) => {
                self.retry_at = Some(now + self.times.retry);
            }
            (State::Draining(epoch), OwnerAnswer::Drained) => return self.give_up(now, epoch),
            _ => {}
        }
        Vec::new()
    }

    /// Tries it again, a moment later.
    fn retry_idle(&mut self, now: Duration) {
        self.enter(now, State::Idle);
        self.retry_at = Some(now + self.times.retry);
    }

    /// What time, or what was just learnt, makes due.
    fn next(&mut self, now: Duration, lease: &LeaseClock) -> Vec<OwnerEffect> {
        let since = now.saturating_sub(self.state_since);
        match self.state {
            State::Idle => self.next_idle(now, lease),
            State::Serving(epoch) => {
                let outranked = self.outranked_since.map(|since| now.saturating_sub(since));
                let is_due = outranked.is_some_and(|it| it >= self.times.hand_over_after);
                if !is_due && self.rank.is_some() {
                    return Vec::new();
                }
                self.enter(now, State::Draining(epoch));
                vec![self.ask(OwnerRequest::Drain)]
            }
            State::Draining(epoch) if since >= self.times.drain => self.give_up(now, epoch),
            State::Fencing(epoch) | State::Loading(epoch)
                if since >= self.times.unreachable && self.rank != Some(0) =>
            {
                self.give_up(now, epoch)
            }
            State::Fencing(epoch) => self.retry(now, OwnerRequest::Fence(epoch)),
            State::Loading(epoch) => self.retry(now, OwnerRequest::Load(epoch)),
            State::GivingUp(epoch) => self.retry(now, OwnerRequest::GiveUp(epoch)),
            State::Probing | State::Claiming | State::Draining(_) => Vec::new(),
        }
    }

    fn next_idle(&mut self, now: Duration, lease: &LeaseClock) -> Vec<OwnerEffect> {
        let is_known = self.revision > self.old_until.unwrap_or(Revision(0));
        let may_try = self.retry_at.is_none_or(|at| now >= at);
        if !is_known || !may_try || !lease.is_sure(now) {
            return Vec::new();
        }
        let own = self.own_claim();
        let Some(rank) = self.rank else {
            // A claim that is not wanted, or of a transaction without an answer.
            return own.map_or(Vec::new(), |owner| self.give_up(now, owner.epoch));
        };
        let turn = self.times.turn * rank;
        let is_turn = self.vacant_since.is_some_and(|since| now.saturating_sub(since) >= turn);
        if own.is_none() && !is_turn {
            return Vec::new();
        }
        self.enter(now, State::Probing);
        vec![self.ask(OwnerRequest::Probe)]
    }

    /// The claim of this node that was seen last.
    fn own_claim(&self) -> Option<Owner> {
        self.owner.filter(|owner| owner.is_claimed && owner.node == self.me)
    }

    /// The instance answers.
    fn claim(&mut self, now: Duration, lease: &LeaseClock) -> Vec<OwnerEffect> {
        let claimed = self.owner.filter(|owner| owner.is_claimed);
        let is_other = claimed.is_some_and(|owner| owner.node != self.me);
        let (Some(id), false) = (lease.lease(), is_other) else {
            self.enter(now, State::Idle);
            return Vec::new();
        };
        self.enter(now, State::Claiming);
        self.lease = Some(id);
        let seen = self.owner.map(|owner| owner.epoch);
        vec![self.ask(OwnerRequest::Claim { seen, replace: claimed.is_some(), lease: id })]
    }

    /// Asks again, if it is time to.
    fn retry(&mut self, now: Duration, request: OwnerRequest) -> Vec<OwnerEffect> {
        if self.retry_at.is_none_or(|at| now < at) {
            return Vec::new();
        }
        self.retry_at = None;
        vec![self.ask(request)]
    }

    fn give_up(&mut self, now: Duration, epoch: Epoch) -> Vec<OwnerEffect> {
        let mut effects = self.stop(now);
        self.enter(now, State::GivingUp(epoch));
        effects.push(self.ask(OwnerRequest::GiveUp(epoch)));
        effects
    }

    fn ask(&mut self, request: OwnerRequest) -> OwnerEffect {
        self.ticket.0 += 1;
        OwnerEffect::Ask(self.ticket, request)
    }

    /// Not an owner any more.
    fn stop(&mut self, now: Duration) -> Vec<OwnerEffect> {
        let was_serving =
            matches!(self.state, State::Loading(_) | State::Serving(_) | State::Draining(_));
        self.enter(now, State::Idle);
        was_serving.then_some(OwnerEffect::StopServing).into_iter().collect()
    }

    fn enter(&mut self, now: Duration, state: State) {
        // What was asked before matters no longer.
        self.ticket.0 += 1;
        (self.state, self.state_since, self.retry_at) = (state, now, None);
    }
}

/// A later owner can be seen from the revision of its claim on, which may have been reached already: the last one at which
/// it cannot.
fn before(later: Epoch) -> Revision {
    Revision(later.0.saturating_sub(1))
}
