//! One move, as the owner of the keys' shard drives it: a state machine without I/O. Events in, effects
//! out. A move is of one or several keys of the shard, between home and one other instance.
//!
//! ```text
//!        out                                home again
//! 1      Begin at home                      Begin at home
//! 2      Hold: writes wait, drain           Hold: writes wait, drain
//! 3      Export at home                     Export at the other
//! 4      Import at the other                -
//! 5      Commit at home = commit point      Commit at home, with the values = commit point
//! 6      Release: writes go on, there       Release: writes go on, here; drain calls there
//! 7      Finish at the other                Drop at the other
//! 8      Forget at home                     Forget at home
//! ```
//! Before step 5 a move can be undone: Undo at home, then Drop (out) or Release (home) at the other, Forget
//! at home; writes go on after the Undo (out) or the Release (home). From step 5 on it only goes forward: a
//! message without an answer is sent again until there is one. Every message may be sent twice; the rules in
//! `intent.rs` and `copy.rs` make that harmless.
//!
//! Calls that take long may keep the drain of step 2 from ending: then the move is undone. Nothing was exported, so it does not matter
//! that they are still under way.
//!
//! An instance whose disk is full refuses steps 1 to 5, and the move is undone. An earlier Commit, which had no
//! answer, may come before the Undo: then home refuses that, and the move is committed. Home may write the Undo for one
//! key after the other, so that a new owner finds some keys undone and others open: the Undo of all goes on.
//!
//! Why calls are drained before the Drop of step 7: an Import that comes twice, the second time after the
//! Drop, brings back a copy of old. No call that anybody waits for may be under way to it; the next
//! Import replaces it, or the owner's sweep removes it ([`Mover::stale_copies`](crate::Mover)).
//!
//! The caller sends one message at a time for each move ([`Effect::Send`]), each with the shard's epoch,
//! and reports its answer with the ticket of the message. A new owner of the shard goes on with what intents
//! say ([`KeyMove::resume`]).

use crate::id::ShardId;
use crate::key::{DbKey, MoveId};
use crate::moves::intent::{Direction, Intent, IntentState, Refusal};
use std::collections::BTreeMap;

/// A message without an answer is sent this often before a move is undone that still can be.
const MAX_ATTEMPTS: u32 = 4;

/// To which instance a message goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Site {
    /// That of the keys' shard.
    Home,
    /// The one at the other end of the move.
    Other,
}

/// What the instance is asked to do. All of it is durable before the answer, for all keys in one batch.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum MoveCall<V> {
    /// [`HomeKey::begin`](crate::HomeKey::begin) for each key; those that are refused are left out.
    Begin,
    /// Values of all keys, or a refusal of all. At home, [`HomeKey::export`](crate::HomeKey::export); at
    /// the other, [`KeyCopy::export`](crate::KeyCopy::export).
    Export,
    /// [`KeyCopy::import`](crate::KeyCopy::import) of these values, one per key.
    Import(Vec<V>),
    /// [`HomeKey::commit`](crate::HomeKey::commit); with values, if the keys come home.
    Commit(Vec<V>),
    /// [`KeyCopy::finish`](crate::KeyCopy::finish).
    Finish,
    /// [`KeyCopy::drop`](crate::KeyCopy::drop).
    Drop,
    /// [`KeyCopy::release`](crate::KeyCopy::release).
    Release,
    /// [`HomeKey::undo`](crate::HomeKey::undo).
    Undo,
    /// [`HomeKey::forget`](crate::HomeKey::forget).
    Forget,
}

impl<V> MoveCall<V> {
    /// Its name, for people and tests.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Begin => "begin",
            Self::Export => "export",
            Self::Import(_) => "import",
            Self::Commit(_) => "commit",
            Self::Finish => "finish",
            Self::Drop => "drop",
            Self::Release => "release",
            Self::Undo => "undo",
            Self::Forget => "forget",
        }
    }

    /// Whose instance does it, in a move of this direction.
    pub fn site(&self, direction: Direction) -> Site {
        match (self, direction) {
            (Self::Begin | Self::Commit(_) | Self::Undo | Self::Forget, _)
            | (Self::Export, Direction::Out) => Site::Home,
            (Self::Import(_) | Self::Finish | Self::Drop | Self::Release, _)
            | (Self::Export, Direction::Home) => Site::Other,
        }
    }
}

/// The answer to a [`MoveCall`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum MoveAnswer<V> {
    /// It is done, and durable.
    Done,
    /// To `Begin`: whether the move of each key has begun.
    Begun(Vec<Result<(), Refusal>>),
    /// To `Export`: one value per key. A key that does not exist has a value, too.
    Exported(Vec<V>),
    /// Nothing was done.
    Refused(Refusal),
    /// The instance knows a later owner of the shard. Nothing was done.
    Deposed,
    /// There is no answer: it may have been done.
    Unknown,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum MoveEvent<V> {
    /// After [`Effect::Hold`] or [`Effect::DrainCalls`]: the calls are answered, or given up. Whatever
    /// comes of one that was given up is ignored.
    Drained,
    /// After [`Effect::Hold`]: the calls have taken too long, and the keys are not held any longer. That they are drained may be
    /// reported all the same.
    Undrained,
    /// The answer to the message with this ticket. Only that to the last one matters.
    Answered(u32, MoveAnswer<V>),
    /// The operator wants no more moves, or the shard is handed over.
    Cancel,
}

/// What the caller is to do, in this order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Effect<V> {
    /// Let new writes of these keys wait, and report when those under way are drained.
    Hold,
    /// Report when the calls of these keys that are under way to the other instance, reads too, are
    /// drained. No new ones go there.
    DrainCalls,
    /// As `Hold`, and there are none under way.
    HoldDrained,
    /// Send this to an instance and report the answer. From the second attempt on with a growing delay.
    Send {
        /// To whom.
        to: Site,
        /// What.
        call: MoveCall<V>,
        /// Names the message among those of this move.
        ticket: u32,
        /// 0 for the first.
        attempt: u32,
    },
    /// The keys are at the other instance: put them into the exception list.
    SetExceptions,
    /// The keys are at home: take them from the exception list.
    ClearExceptions,
    /// Let waiting writes go on.
    ReleaseHold,
    /// The move is over.
    Over(Outcome),
}

/// How a move ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The keys are where they shall be.
    Moved,
    /// The keys are where they were. `None`: no instance refused, one did not answer, calls took too long, or it was cancelled.
    Undone(Option<Refusal>),
    /// The shard has a later owner, who goes on.
    Deposed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Step {
    Begin,
    Drain,
    Export,
    Import,
    Commit,
    /// Of a move home.
    DrainCalls,
    /// Finish or Drop at the other.
    Settle,
    Undo,
    /// Drop or Release at the other.
    SettleUndone,
    Forget,
    Over,
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct KeyMove<V> {
    id: MoveId,
    direction: Direction,
    other: ShardId,
    keys: Vec<DbKey>,
    /// Keys that home refused at the begin.
    refused: Vec<(DbKey, Refusal)>,
    step: Step,
    ticket: u32,
    attempt: u32,
    is_cancelled: bool,
    /// After the export.
    values: Vec<V>,
    outcome: Outcome,
}

impl<V: Clone> KeyMove<V> {
    /// A move, and its first effects.
    pub fn begin(
        id: MoveId,
        direction: Direction,
        other: ShardId,
        keys: Vec<DbKey>,
    ) -> (Self, Vec<Effect<V>>) {
        let mut this = Self::at(Step::Begin, id, direction, other, keys);
        let effects = vec![this.send()];
        (this, effects)
    }

    fn at(step: Step, id: MoveId, direction: Direction, other: ShardId, keys: Vec<DbKey>) -> Self {
        Self {
            id,
            direction,
            other,
            keys,
            refused: Vec::new(),
            step,
            ticket: 0,
            attempt: 0,
            is_cancelled: false,
            values: Vec::new(),
            outcome: Outcome::Undone(None),
        }
    }

    /// The moves that a new owner found as intents, with their first effects, which come before the first
    /// call of a client is served. An open one is undone, the others go on.
    pub fn resume(
        intents: impl IntoIterator<Item = (DbKey, Intent)>,
    ) -> Vec<(Self, Vec<Effect<V>>)> {
        let mut moves: BTreeMap<Intent, Vec<DbKey>> = BTreeMap::new();
        for (key, intent) in intents {
            moves.entry(intent).or_default().push(key);
        }
        join_undone(&mut moves);
        let resumed = moves.into_iter().map(|(intent, keys)| {
            let (step, outcome) = match intent.state {
                IntentState::Open => (Step::Undo, Outcome::Undone(None)),
                IntentState::Committed => (Step::Settle, Outcome::Moved),
                IntentState::Undone => (Step::SettleUndone, Outcome::Undone(None)),
            };
            let mut this = Self::at(step, intent.id, intent.direction, intent.other, keys);
            this.outcome = outcome;
            let is_held = match intent.state {
                IntentState::Open => true,
                IntentState::Undone => intent.direction == Direction::Home,
                IntentState::Committed => false,
            };
            let hold = is_held.then_some(Effect::HoldDrained);
            let effects = hold.into_iter().chain([this.send()]).collect();
            (this, effects)
        });
        resumed.collect()
    }

    /// Its name.
    pub fn id(&self) -> MoveId {
        self.id
    }

    /// Which way.
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// The shard of the other instance.
    pub fn other(&self) -> ShardId {
        self.other
    }

    /// The keys that it is of, without those that were refused at the begin.
    pub fn keys(&self) -> &[DbKey] {
        &self.keys
    }

    /// Keys that home did not let go, and why.
    pub fn refused(&self) -> &[(DbKey, Refusal)] {
        &self.refused
    }

    /// Whether the answer to its begin is awaited: no other move of the shard begins meanwhile, so that
    /// they begin in the order of their ids.
    pub fn is_beginning(&self) -> bool {
        self.step == Step::Begin
    }

    /// Whether the answer to its export is awaited.
    pub fn is_exporting(&self) -> bool {
        self.step == Step::Export
    }

    /// Whether it is committed or undone. What is left to do waits for the other instance, or for home to forget it,
    /// and holds no key, but for those that an undone move home releases at the other instance.
    pub fn is_decided(&self) -> bool {
        matches!(
            self.step,
            Step::DrainCalls | Step::Settle | Step::SettleUndone | Step::Forget | Step::Over
        )
    }

    /// Whether its keys were to go out and stay at home, since an instance did not answer, and the one that has to drop their copies
    /// before it is over does not answer either: it may be away for long.
    pub fn stays_undone(&self) -> bool {
        let is_undone = self.step == Step::SettleUndone && self.outcome == Outcome::Undone(None);
        is_undone && self.direction == Direction::Out && self.attempt > 0
    }

    /// What was exported, from then on until the commit.
    pub fn values(&self) -> &[V] {
        &self.values
    }

    /// The name of the step for people.
    pub fn step_name(&self) -> &'static str {
        match self.step {
            Step::Begin => "begin",
            Step::Drain => "drain",
            Step::Export => "export",
            Step::Import => "import",
            Step::Commit => "commit",
            Step::DrainCalls => "drain calls",
            Step::Settle => "settle",
            Step::Undo => "undo",
            Step::SettleUndone => "settle undone",
            Step::Forget => "forget",
            Step::Over => "over",
        }
    }

    /// Takes what happened, and says what is to be done. What is not expected at this step is ignored.
    pub fn on(&mut self, event: MoveEvent<V>) -> Vec<Effect<V>> {
        match event {
            MoveEvent::Drained if self.step == Step::Drain && self.is_cancelled => self.undo(None),
            MoveEvent::Drained if self.step == Step::Drain => self.go(Step::Export),
            MoveEvent::Drained if self.step == Step::DrainCalls => self.go(Step::Settle),
            MoveEvent::Undrained if self.step == Step::Drain => self.undo(None),
            MoveEvent::Drained | MoveEvent::Undrained => Vec::new(),
            MoveEvent::Cancel => {
                self.is_cancelled = true;
                Vec::new()
            }
            MoveEvent::Answered(ticket, _) if ticket != self.ticket => Vec::new(),
            MoveEvent::Answered(..) if !self.is_sent() => Vec::new(),
            MoveEvent::Answered(_, MoveAnswer::Deposed) => self.over(Outcome::Deposed),
            MoveEvent::Answered(_, MoveAnswer::Unknown) => self.repeat(),
            MoveEvent::Answered(_, answer) => self.answered(answer),
        }
    }

    /// Whether an answer is awaited.
    fn is_sent(&self) -> bool {
        !matches!(self.step, Step::Drain | Step::DrainCalls | Step::Over)
    }

    fn answered(&mut self, answer: MoveAnswer<V>) -> Vec<Effect<V>> {
        match (self.step, answer) {
            (Step::Begin, MoveAnswer::Begun(results)) if results.len() == self.keys.len() => {
                self.begun(results)
            }
            // A begin that comes late, or twice, finds room: it must not begin.
            (
                Step::Begin | Step::Export | Step::Import | Step::Commit,
                MoveAnswer::Refused(why),
            ) => self.undo(Some(why)),
            (Step::Export | Step::Import, _) if self.is_cancelled => self.undo(None),
            (Step::Export, MoveAnswer::Exported(values)) if values.len() == self.keys.len() => {
                self.values = values;
                match self.direction {
                    Direction::Out => self.go(Step::Import),
                    Direction::Home => self.go(Step::Commit),
                }
            }
            (Step::Import, MoveAnswer::Done) => self.go(Step::Commit),
            (Step::Commit, MoveAnswer::Done) => self.committed(),
            // By a message that had no answer.
            (Step::Undo, MoveAnswer::Refused(_)) => self.committed(),
            (Step::Settle, MoveAnswer::Done | MoveAnswer::Refused(_)) => self.go(Step::Forget),
            // A key that stays at the other instance is not written there before the release.
            (Step::Undo, MoveAnswer::Done) if self.direction == Direction::Home => {
                self.go(Step::SettleUndone)
            }
            (Step::Undo, MoveAnswer::Done) => {
                [vec![Effect::ReleaseHold], self.go(Step::SettleUndone)].concat()
            }
            (Step::SettleUndone, MoveAnswer::Done | MoveAnswer::Refused(_)) => {
                let is_held = self.direction == Direction::Home;
                let release = is_held.then_some(Effect::ReleaseHold);
                release.into_iter().chain(self.go(Step::Forget)).collect()
            }
            (Step::Forget, MoveAnswer::Done | MoveAnswer::Refused(_)) => self.over(self.outcome),
            // No answer to what was asked.
            _ => self.repeat(),
        }
    }

    fn committed(&mut self) -> Vec<Effect<V>> {
        self.values = Vec::new();
        self.outcome = Outcome::Moved;
        if self.direction == Direction::Home {
            self.step = Step::DrainCalls;
            return vec![Effect::ClearExceptions, Effect::ReleaseHold, Effect::DrainCalls];
        }
        let known = vec![Effect::SetExceptions, Effect::ReleaseHold];
        [known, self.go(Step::Settle)].concat()
    }

    fn begun(&mut self, results: Vec<Result<(), Refusal>>) -> Vec<Effect<V>> {
        let keys = std::mem::take(&mut self.keys);
        for (key, result) in keys.into_iter().zip(results) {
            match result {
                Ok(()) => self.keys.push(key),
                Err(why) => self.refused.push((key, why)),
            }
        }
        if self.keys.is_empty() {
            let why = self.refused.first().map(|(_, why)| *why);
            return self.over(Outcome::Undone(why));
        }
        if self.is_cancelled {
            // Nothing is held; the release does nothing.
            return self.undo(None);
        }
        self.step = Step::Drain;
        vec![Effect::Hold]
    }

    /// Sends the message again, or gives up.
    fn repeat(&mut self) -> Vec<Effect<V>> {
        self.attempt += 1;
        match self.step {
            Step::Export | Step::Import if self.attempt >= MAX_ATTEMPTS || self.is_cancelled => {
                self.undo(None)
            }
            // It may have begun: only home can say so, and is asked to undo it.
            Step::Begin if self.attempt >= MAX_ATTEMPTS => self.undo(None),
            _ => vec![self.send()],
        }
    }

    fn undo(&mut self, why: Option<Refusal>) -> Vec<Effect<V>> {
        self.values = Vec::new();
        self.outcome = Outcome::Undone(why);
        self.go(Step::Undo)
    }

    fn over(&mut self, outcome: Outcome) -> Vec<Effect<V>> {
        let is_held = !matches!(self.step, Step::DrainCalls | Step::Settle | Step::Forget);
        self.step = Step::Over;
        self.values = Vec::new();
        let release = is_held.then_some(Effect::ReleaseHold);
        release.into_iter().chain([Effect::Over(outcome)]).collect()
    }

    fn go(&mut self, step: Step) -> Vec<Effect<V>> {
        (self.step, self.attempt) = (step, 0);
        vec![self.send()]
    }

    /// The message of this step.
    fn send(&mut self) -> Effect<V> {
        let call = match (self.step, self.direction) {
            (Step::Begin, _) => MoveCall::Begin,
            (Step::Export, _) => MoveCall::Export,
            (Step::Import, _) => MoveCall::Import(self.values.clone()),
            (Step::Commit, Direction::Out) => MoveCall::Commit(Vec::new()),
            (Step::Commit, Direction::Home) => MoveCall::Commit(self.values.clone()),
            (Step::Settle, Direction::Out) => MoveCall::Finish,
            (Step::Settle, Direction::Home) | (Step::SettleUndone, Direction::Out) => {
                MoveCall::Drop
            }
            (Step::SettleUndone, Direction::Home) => MoveCall::Release,
            (Step::Undo, _) => MoveCall::Undo,
            // Nothing is sent at the last three.
            (Step::Forget | Step::Drain | Step::DrainCalls | Step::Over, _) => MoveCall::Forget,
        };
        let to = call.site(self.direction);
        self.ticket += 1;
        Effect::Send { to, call, ticket: self.ticket, attempt: self.attempt }
    }
}

/// The keys of a move that are undone, where others of it are open still: all are to be undone.
fn join_undone(moves: &mut BTreeMap<Intent, Vec<DbKey>>) {
    let open = moves.keys().filter(|intent| intent.state == IntentState::Open);
    for intent in open.copied().collect::<Vec<_>>() {
        let undone = moves.remove(&Intent { state: IntentState::Undone, ..intent });
        moves.entry(intent).or_default().extend(undone.into_iter().flatten());
    }
}
