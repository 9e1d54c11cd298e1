//! All moves of the keys of one shard, as its owner drives them: what is to be moved waits here, goes in
//! batches, and no faster than the limits allow. No I/O and no clock: time is an input.
//!
//! A batch is of one direction and one other instance. A key that changes from one instance to another
//! comes home first. A key is in one move at a time, and moves begin one after the other, in the order of
//! their ids.
//!
//! An instance that does not answer keeps moves from their end for as long as it is away. Those that are committed or
//! undone hold back only further moves to and from the same instance; until they are, which takes as many attempts as a
//! move has, it may have all places. A key that a command needs at home waits for none of these places, nor for the
//! limits of keys and bytes per second.

use crate::exceptions::{ExceptionList, Misplaced};
use crate::id::{Epoch, ShardId};
use crate::key::{DbKey, MoveId};
use crate::moves::copy::{CopyState, KeyCopy};
use crate::moves::intent::{Direction, Intent, Refusal};
use crate::moves::key_move::{Effect, KeyMove, MoveAnswer, MoveEvent, Outcome};
use crate::moves::key_queue::KeyQueue;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::time::Duration;

/// How fast keys are moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MoveLimits {
    /// At most this many keys in one move: all of them are held while it is under way.
    pub keys_per_move: usize,
    /// At most this many moves at a time that are not committed or undone, and one more for keys that commands need at
    /// home. Further ones of another instance that has as many which are, and has not heard of that, do not begin.
    pub moves: usize,
    /// Keys per second.
    pub keys_per_second: u64,
    /// Bytes of values per second. What a move has is known when it is exported: a large one delays the
    /// next.
    pub bytes_per_second: u64,
}

impl Default for MoveLimits {
    fn default() -> Self {
        Self { keys_per_move: 64, moves: 4, keys_per_second: 5_000, bytes_per_second: 32 << 20 }
    }
}

/// A token bucket that may be overdrawn.
#[derive(Debug, Clone, PartialEq)]
struct Budget {
    per_second: f64,
    level: f64,
    at: Duration,
}

impl Budget {
    /// What may be used at once after a pause, in seconds of the rate.
    const BURST_SECONDS: f64 = 0.1;

    fn new(per_second: u64, now: Duration) -> Self {
        let per_second = per_second.max(1) as f64;
        Self { per_second, level: per_second * Self::BURST_SECONDS, at: now }
    }

    fn spend(&mut self, amount: u64) {
        self.level -= amount as f64;
    }

    /// How long until something may be used again; zero: now.
    fn wait(&mut self, now: Duration) -> Duration {
        let gained = now.saturating_sub(self.at).as_secs_f64() * self.per_second;
        self.level = (self.level + gained).min(self.per_second * Self::BURST_SECONDS);
        self.at = self.at.max(now);
        match self.level > 0.0 {
            true => Duration::ZERO,
            // A little more, since exactly nothing is not enough.
            false => Duration::from_secs_f64((1.0 - self.level) / self.per_second),
        }
    }
}

/// A move that is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinishedMove {
    /// Its name.
    pub id: MoveId,
    /// Which way.
    pub direction: Direction,
    /// The shard of the other instance.
    pub other: ShardId,
    /// The keys that were in it until the end.
    pub keys: Vec<DbKey>,
    /// It was undone since its keys are too large together, or one of them is not where it was to come from. If they are
    /// wanted again, they go in smaller moves.
    pub is_split: bool,
    /// Those that home did not let go.
    pub refused: Vec<(DbKey, Refusal)>,
    /// Those that have come home and wait to go on from there, and where to.
    pub onward: BTreeMap<DbKey, ShardId>,
    /// How it ended.
    pub outcome: Outcome,
}

impl FinishedMove {
    /// Whether a key of it that is `at` this place now (`None`: at home) is not on its way to where it is `wanted`. Then
    /// it is to be said anew where it shall be ([`Mover::want_one`]).
    pub fn leaves_misplaced(
        &self,
        key: &DbKey,
        at: Option<ShardId>,
        wanted: Option<ShardId>,
    ) -> bool {
        at != wanted && (wanted.is_none() || self.onward.get(key).copied() != wanted)
    }

    /// Whether a key of it stayed at home and is `wanted` at another instance by now. Why it did not go to this one says
    /// nothing of that.
    pub fn is_overtaken(&self, wanted: Option<ShardId>) -> bool {
        let stayed = self.direction == Direction::Out && matches!(self.outcome, Outcome::Undone(_));
        stayed && wanted.is_some_and(|to| to != self.other)
    }
}

/// What is to be done for a move.
pub type MoveEffects<V> = (MoveId, Vec<Effect<V>>);

/// A queue of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Queue {
    /// Keys that commands need at home, at this other instance.
    Recalls(ShardId),
    /// Of [`Mover::waiting`].
    Waiting(Direction, ShardId),
}

/// What is known of a key that was in a move that is to be split.
#[derive(Debug, Clone, Copy)]
struct BatchLimit {
    /// At most this many keys in its next move.
    keys: usize,
    /// Whether it was to be moved at some time since the last [`Mover::want`].
    is_wanted: bool,
}

/// See the module.
#[derive(Debug, Clone)]
pub struct Mover<V> {
    epoch: Epoch,
    limits: MoveLimits,
    /// The bytes of a value.
    size_of: fn(&V) -> u64,
    next_number: u64,
    waiting: BTreeMap<(Direction, ShardId), KeyQueue>,
    /// Keys that commands need at home, by where they are.
    recalls: BTreeMap<ShardId, KeyQueue>,
    /// Of `waiting`, the queue that was served last.
    turn: Option<(Direction, ShardId)>,
    /// The same of `recalls`.
    recall_turn: Option<ShardId>,
    /// Where keys go once they are home.
    onward: HashMap<DbKey, ShardId>,
    moves: BTreeMap<MoveId, KeyMove<V>>,
    /// The keys of `moves`, and which way they go.
    busy: HashMap<DbKey, Direction>,
    /// Of keys that were in a move that is to be split. Few: until they are moved, or not wanted any more.
    batch_limits: HashMap<DbKey, BatchLimit>,
    keys: Budget,
    bytes: Budget,
    finished: Vec<FinishedMove>,
}

impl<V: Clone> Mover<V> {
    /// For a shard in a term of its owner. `size_of` gives the bytes of a value.
    pub fn new(epoch: Epoch, limits: MoveLimits, now: Duration, size_of: fn(&V) -> u64) -> Self {
        Self {
            epoch,
            limits,
            size_of,
            next_number: 1,
            waiting: BTreeMap::new(),
            recalls: BTreeMap::new(),
            turn: None,
            recall_turn: None,
            onward: HashMap::new(),
            moves: BTreeMap::new(),
            busy: HashMap::new(),
            batch_limits: HashMap::new(),
            keys: Budget::new(limits.keys_per_second, now),
            bytes: Budget::new(limits.bytes_per_second, now),
            finished: Vec::new(),
        }
    }

    /// Goes on with what the last owner left; see [`KeyMove::resume`].
    pub fn resume(
        &mut self,
        intents: impl IntoIterator<Item = (DbKey, Intent)>,
    ) -> Vec<MoveEffects<V>> {
        let resumed = KeyMove::resume(intents).into_iter().map(|(resumed, effects)| {
            let (id, direction) = (resumed.id(), resumed.direction());
            self.busy.extend(resumed.keys().iter().map(|key| (key.clone(), direction)));
            self.moves.insert(id, resumed);
            (id, effects)
        });
        resumed.collect()
    }

    /// What is to be moved now; replaces what waits. Moves that have begun go on.
    pub fn want(&mut self, misplaced: impl IntoIterator<Item = Misplaced>) {
        self.waiting.clear();
        self.recalls.clear();
        self.onward.clear();
        // Those that are recalled are said after this call.
        self.batch_limits.retain(|_, limit| std::mem::take(&mut limit.is_wanted));
        misplaced.into_iter().for_each(|it| self.want_misplaced(it));
    }

    /// What is to be moved of one key, which may be where it shall be: replaces what waits of it. Others wait on. One that is
    /// in a move is looked at again when that is over. Cost: O(log n).
    pub fn want_one(&mut self, it: Misplaced) {
        let is_left = |queue: &mut KeyQueue| {
            queue.remove(&it.key);
            !queue.is_empty()
        };
        self.waiting.retain(|_, queue| is_left(queue));
        self.recalls.retain(|_, queue| is_left(queue));
        self.onward.remove(&it.key);
        match (self.is_busy(&it.key), it.to) {
            (false, to) if it.from == to => _ = self.batch_limits.remove(&it.key),
            (false, _) => self.want_misplaced(it),
            (true, Some(to)) if it.from != it.to => self.send_on(it.key, to),
            (true, _) => {}
        }
    }

    fn want_misplaced(&mut self, Misplaced { key, from, to }: Misplaced) {
        self.keep_limit(&key);
        match (from, to) {
            (Some(from), Some(to)) => {
                self.onward.insert(key.clone(), to);
                self.enqueue(Direction::Home, from, key);
            }
            (Some(from), None) => self.enqueue(Direction::Home, from, key),
            (None, Some(to)) => self.enqueue(Direction::Out, to, key),
            (None, None) => {}
        }
    }

    /// A key that is in a move goes there from home, if that is where the move brings it: [`Self::want`] has forgotten it.
    pub fn send_on(&mut self, key: DbKey, to: ShardId) {
        if self.busy.get(&key) == Some(&Direction::Home) {
            self.onward.insert(key, to);
        }
    }

    /// A command needs the key at home: it comes before all others, and does not go away again by the
    /// present plan.
    pub fn recall(&mut self, key: DbKey, from: ShardId) {
        self.onward.remove(&key);
        self.keep_limit(&key);
        if !self.busy.contains_key(&key) {
            self.recalls.entry(from).or_default().push_back(key);
        }
    }

    /// A key is to be moved.
    fn keep_limit(&mut self, key: &DbKey) {
        if let Some(limit) = self.batch_limits.get_mut(key) {
            limit.is_wanted = true;
        }
    }

    fn enqueue(&mut self, direction: Direction, other: ShardId, key: DbKey) {
        self.waiting.entry((direction, other)).or_default().push_back(key);
    }

    /// How many keys wait.
    pub fn waiting_count(&self) -> usize {
        self.waiting.values().chain(self.recalls.values()).map(KeyQueue::count).sum()
    }

    /// The moves that are under way.
    pub fn moves(&self) -> impl Iterator<Item = &KeyMove<V>> {
        self.moves.values()
    }

    /// A move that is under way.
    pub fn get(&self, id: MoveId) -> Option<&KeyMove<V>> {
        self.moves.get(&id)
    }

    /// Whether a key is in a move that is under way.
    pub fn is_busy(&self, key: &DbKey) -> bool {
        self.busy.contains_key(key)
    }

    /// Whether nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.moves.is_empty()
    }

    /// Moves that are over, since the last call.
    pub fn take_finished(&mut self) -> Vec<FinishedMove> {
        std::mem::take(&mut self.finished)
    }

    /// Nothing more is moved. What can be undone is undone; wait until [`Self::is_idle`].
    pub fn cancel(&mut self) {
        self.waiting.clear();
        self.recalls.clear();
        self.onward.clear();
        self.batch_limits.clear();
        for it in self.moves.values_mut() {
            // A cancelled move says nothing until its next event.
            it.on(MoveEvent::Cancel);
        }
    }

    /// How long until [`Self::poll`] may begin a move; `None`: not before an event.
    pub fn wait(&mut self, now: Duration) -> Option<Duration> {
        if self.moves.values().any(KeyMove::is_beginning) {
            return None;
        }
        let budgets = self.budgets(now);
        self.next().map(|queue| match queue {
            // A command waits for it. What it takes delays the others.
            Queue::Recalls(_) => Duration::ZERO,
            Queue::Waiting(..) => budgets,
        })
    }

    /// How long until the limits of keys and bytes per second allow a move.
    fn budgets(&mut self, now: Duration) -> Duration {
        self.keys.wait(now).max(self.bytes.wait(now))
    }

    /// The queue whose turn it is, of those that may be served now.
    fn next(&self) -> Option<Queue> {
        let most = self.limits.moves.max(1);
        let active = self.moves.values().filter(|it| !it.is_decided()).count();
        let is_open = |other: ShardId| {
            let of_other = |it: &&KeyMove<V>| it.is_decided() && it.other() == other;
            self.moves.values().filter(of_other).count() < most
        };
        if active <= most {
            let after = self.recall_turn.map_or(Bound::Unbounded, Bound::Excluded);
            let rest = self.recalls.range((after, Bound::Unbounded)).chain(self.recalls.iter());
            let mut others = rest.map(|(&other, _)| other);
            if let Some(other) = others.find(|other| is_open(*other)) {
                return Some(Queue::Recalls(other));
            }
        }
        if active >= most {
            return None;
        }
        let after = self.turn.map_or(Bound::Unbounded, Bound::Excluded);
        let rest = self.waiting.range((after, Bound::Unbounded)).chain(self.waiting.iter());
        let mut queues = rest.map(|(&queue, _)| queue);
        let next = queues.find(|(_, other)| is_open(*other));
        next.map(|(direction, other)| Queue::Waiting(direction, other))
    }

    /// Begins the next move, if there is one and it may begin now.
    pub fn poll(&mut self, now: Duration) -> Option<MoveEffects<V>> {
        if self.wait(now) != Some(Duration::ZERO) {
            return None;
        }
        for _ in 0..self.waiting.len() + self.recalls.len() {
            let (direction, other, keys) = match self.next()? {
                Queue::Recalls(other) => {
                    self.recall_turn = Some(other);
                    let mut queue = self.recalls.remove(&other).unwrap_or_default();
                    // A key that is busy has been found by another move, whose end says what is to be done.
                    let (keys, _) = self.take_batch(&mut queue);
                    if !queue.is_empty() {
                        self.recalls.insert(other, queue);
                    }
                    (Direction::Home, other, keys)
                }
                // Behind recalls of which none began.
                Queue::Waiting(..) if self.budgets(now) > Duration::ZERO => return None,
                Queue::Waiting(direction, other) => {
                    let at = (direction, other);
                    self.turn = Some(at);
                    let mut queue = self.waiting.remove(&at).unwrap_or_default();
                    let (keys, busy) = self.take_batch(&mut queue);
                    busy.into_iter().for_each(|key| queue.push_back(key));
                    if !queue.is_empty() {
                        self.waiting.insert(at, queue);
                    }
                    (direction, other, keys)
                }
            };
            if !keys.is_empty() {
                return Some(self.begin(direction, other, keys));
            }
        }
        None
    }

    /// The next keys of a queue that are in no move, and those before them that are in one.
    fn take_batch(&self, queue: &mut KeyQueue) -> (Vec<DbKey>, Vec<DbKey>) {
        let mut most = self.limits.keys_per_move.max(1);
        let (mut keys, mut busy) = (Vec::new(), Vec::new());
        while keys.len() < most
            && let Some(key) = queue.front()
        {
            let limit = self.batch_limits.get(key).map_or(most, |limit| limit.keys);
            let is_busy = self.is_busy(key);
            if !is_busy && limit <= keys.len() {
                break;
            }
            let first = queue.pop_front();
            if is_busy {
                busy.extend(first);
            } else {
                most = most.min(limit);
                keys.extend(first);
            }
        }
        (keys, busy)
    }

    fn begin(&mut self, direction: Direction, other: ShardId, keys: Vec<DbKey>) -> MoveEffects<V> {
        let id = MoveId { epoch: self.epoch, number: self.next_number };
        self.next_number += 1;
        self.keys.spend(keys.len() as u64);
        self.busy.extend(keys.iter().map(|key| (key.clone(), direction)));
        let (begun, effects) = KeyMove::begin(id, direction, other, keys);
        self.moves.insert(id, begun);
        (id, effects)
    }

    /// Takes what happened to a move.
    pub fn on(&mut self, id: MoveId, event: MoveEvent<V>) -> Vec<Effect<V>> {
        let Some(it) = self.moves.get_mut(&id) else { return Vec::new() };
        if let MoveEvent::Answered(_, MoveAnswer::Exported(values)) = &event {
            self.bytes.spend(values.iter().map(self.size_of).sum());
        }
        let was_beginning = it.is_beginning();
        let effects = it.on(event);
        if was_beginning {
            it.refused().iter().for_each(|(key, _)| _ = self.busy.remove(key));
        }
        let outcome = effects.iter().find_map(|effect| match effect {
            Effect::Over(outcome) => Some(*outcome),
            _ => None,
        });
        if let Some(outcome) = outcome
            && let Some(it) = self.moves.remove(&id)
        {
            self.finish(&it, outcome);
        }
        effects
    }

    fn finish(&mut self, it: &KeyMove<V>, outcome: Outcome) {
        let key_count = it.keys().len();
        let is_of_one =
            matches!(outcome, Outcome::Undone(Some(Refusal::TooLarge | Refusal::NotHere)));
        let is_split = is_of_one && key_count > 1;
        let mut onward = BTreeMap::new();
        for key in it.keys() {
            self.busy.remove(key);
            match is_split {
                true => {
                    let limit = BatchLimit { keys: key_count / 2, is_wanted: true };
                    self.batch_limits.insert(key.clone(), limit);
                }
                false => _ = self.batch_limits.remove(key),
            }
            if it.direction() == Direction::Home
                && outcome == Outcome::Moved
                && let Some(to) = self.onward.remove(key)
            {
                self.enqueue(Direction::Out, to, key.clone());
                onward.insert(key.clone(), to);
            }
        }
        self.finished.push(FinishedMove {
            id: it.id(),
            direction: it.direction(),
            other: it.other(),
            keys: it.keys().to_vec(),
            is_split,
            refused: it.refused().to_vec(),
            onward,
            outcome,
        });
    }

    /// Copies that the instance of `at` keeps in this shard's name, and shall drop, each as of this move:
    /// what late messages left behind. `copies` is its list, read in this term of the owner.
    pub fn stale_copies<'a>(
        &self,
        exceptions: &ExceptionList,
        at: ShardId,
        copies: impl IntoIterator<Item = (&'a DbKey, KeyCopy)>,
    ) -> Vec<(DbKey, MoveId)> {
        let is_stale = |key: &DbKey| {
            let is_there = exceptions.get(key.db, &key.key).is_some_and(|it| it.at == at);
            !is_there && !self.busy.contains_key(key)
        };
        let stale = copies.into_iter().filter(|(key, _)| is_stale(key));
        let newest = |copy: KeyCopy| match copy.state {
            CopyState::Leaving(by) => by.max(copy.id),
            CopyState::Hidden | CopyState::Live => copy.id,
        };
        stale.map(|(key, copy)| (key.clone(), newest(copy))).collect()
    }
}

#[cfg(test)]
mod tests;
