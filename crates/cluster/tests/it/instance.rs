//! An instance as the models and the simulation have it: keys in a map, and the rules of the product. Every
//! message is one atomic step, and what it changes is durable, but for what `restart` takes away.

use std::collections::BTreeMap;
use std::time::Duration;
use terrace_cluster::*;

/// A value; `None`: the key does not exist.
pub type Value = Option<u32>;

/// What is switched off, to see that it is missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Off {
    /// Instances execute calls of former owners.
    pub epoch_check: bool,
    /// Home keeps no intents.
    pub intent: bool,
    /// Home executes writes of keys that were exported.
    pub instance_hold: bool,
    /// Owners route writes of keys that they move.
    pub owner_hold: bool,
    /// Owners drop a copy while calls are under way to it.
    pub drain_calls: bool,
    /// Owners reply although they are not sure of their lease.
    pub stamp_check: bool,
    /// Stores are flushed without an announcement.
    pub flush_rounds: bool,
    /// A flush does not wait until copies of keys that came home are dropped.
    pub flush_waits: bool,
    /// Moves that are open go on when a flush is announced.
    pub flush_undoes: bool,
}

/// What a client wants of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Op {
    Read,
    Write(u32),
}

/// What an instance says to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CallAnswer {
    /// What was read; `None` for a write.
    Done(Value),
    Refused(Refusal),
    Deposed,
}

/// In whose name a message comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sender {
    /// The shard.
    pub home: ShardId,
    /// The term of its owner.
    pub epoch: Epoch,
}

/// What a message of a move says besides the call.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MoveHead {
    pub id: MoveId,
    pub direction: Direction,
    pub other: ShardId,
    pub keys: Vec<DbKey>,
}

impl MoveHead {
    /// That of the messages of a move.
    pub fn of(current: &KeyMove<Value>) -> Self {
        Self {
            id: current.id(),
            direction: current.direction(),
            other: current.other(),
            keys: current.keys().to_vec(),
        }
    }
}

/// Exceptions and intents of a shard.
pub type Loaded = (Vec<(DbKey, Exception)>, Vec<(DbKey, Intent)>);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Instance {
    pub shard: ShardId,
    pub off: Off,
    pub values: BTreeMap<DbKey, u32>,
    pub fences: BTreeMap<ShardId, Epoch>,
    pub last: MoveId,
    /// Keys of its own shard that have an exception or an intent.
    pub homes: BTreeMap<DbKey, HomeKey>,
    /// Keys of other shards.
    pub copies: BTreeMap<DbKey, KeyCopy>,
    pub flushes: Flushes,
    /// What flushes lapse by. It stands still in the models: there they lapse when it is said.
    pub clock: Duration,
}

/// A round of a flush of all stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Round {
    Announce,
    Execute,
}

impl Instance {
    pub fn new(shard: ShardId, off: Off) -> Self {
        Self {
            shard,
            off,
            values: BTreeMap::new(),
            fences: BTreeMap::new(),
            last: MoveId::default(),
            homes: BTreeMap::new(),
            copies: BTreeMap::new(),
            flushes: Flushes::default(),
            clock: Duration::ZERO,
        }
    }

    /// Loses what is not durable.
    pub fn restart(&mut self) {
        for key in self.homes.values_mut() {
            *key = HomeKey::recovered(key.exception, key.intent);
            key.is_held &= !self.off.instance_hold;
        }
        self.flushes = Flushes::default();
    }

    fn may_move(&self) -> Result<(), Refusal> {
        match self.off.flush_rounds {
            true => Ok(()),
            false => self.flushes.may_move(self.clock),
        }
    }

    /// A flush of all stores is coming: whether this store is ready for it.
    pub fn announce(&mut self, id: FlushId) -> bool {
        self.undo_open_moves();
        self.flushes.announce(id, self.clock);
        self.off.flush_waits || !self.homes.values().any(|home| home.has_left_a_copy())
    }

    /// Removes all keys: whether the flush is announced.
    pub fn flush(&mut self, id: FlushId) -> bool {
        let is_announced = self.off.flush_rounds || self.flushes.is_announced(id, self.clock);
        if is_announced {
            self.undo_open_moves();
            self.values.clear();
            self.flushes.end(id);
        }
        is_announced
    }

    fn undo_open_moves(&mut self) {
        for (key, home) in self.homes.clone() {
            let next = if self.off.flush_undoes { home } else { home.flush() };
            self.set_home(&key, next);
        }
    }

    /// Refuses former owners, remembers later ones.
    pub fn fence(&mut self, sender: Sender) -> bool {
        if self.off.epoch_check {
            return true;
        }
        let epoch = self.fences.entry(sender.home).or_default();
        *epoch = sender.epoch.max(*epoch);
        *epoch == sender.epoch
    }

    /// What a new owner of the shard reads after the fence.
    pub fn load(&self) -> Loaded {
        let exceptions =
            self.homes.iter().filter_map(|(key, it)| Some((key.clone(), it.exception?)));
        let intents = self.homes.iter().filter_map(|(key, it)| Some((key.clone(), it.intent?)));
        (exceptions.collect(), intents.collect())
    }

    fn put(&mut self, key: &DbKey, value: Value) {
        match value {
            Some(value) => self.values.insert(key.clone(), value),
            None => self.values.remove(key),
        };
    }

    fn set_home(&mut self, key: &DbKey, mut home: HomeKey) {
        home.is_held &= !self.off.instance_hold;
        match home.exception.is_none() && home.intent.is_none() {
            true => self.homes.remove(key),
            false => self.homes.insert(key.clone(), home),
        };
    }

    fn set_copy(&mut self, key: &DbKey, change: CopyChange) {
        match change {
            CopyChange::Keep => {}
            CopyChange::Put(copy) => _ = self.copies.insert(key.clone(), copy),
            CopyChange::Remove => {
                self.copies.remove(key);
                self.values.remove(key);
            }
        }
    }

    fn home_key(&self, key: &DbKey) -> HomeKey {
        self.homes.get(key).copied().unwrap_or_default()
    }

    pub fn on_call(&mut self, sender: Sender, key: &DbKey, op: Op) -> CallAnswer {
        if !self.fence(sender) {
            return CallAnswer::Deposed;
        }
        let is_write = op != Op::Read;
        let allowed = match sender.home == self.shard {
            true if is_write => self.home_key(key).may_write().map(|()| CopyChange::Keep),
            true => self.home_key(key).may_read().map(|()| CopyChange::Keep),
            false => KeyCopy::call(self.copies.get(key).copied(), is_write),
        };
        match allowed {
            Err(why) => return CallAnswer::Refused(why),
            Ok(change) => self.set_copy(key, change),
        }
        match op {
            Op::Read => CallAnswer::Done(self.values.get(key).copied()),
            Op::Write(value) => {
                self.put(key, Some(value));
                CallAnswer::Done(None)
            }
        }
    }

    pub fn on_move(
        &mut self,
        sender: Sender,
        head: &MoveHead,
        call: &MoveCall<Value>,
    ) -> MoveAnswer<Value> {
        if !self.fence(sender) {
            return MoveAnswer::Deposed;
        }
        let answer = match sender.home == self.shard {
            true if self.off.intent => Ok(self.at_home_without_intents(head, call)),
            true => self.at_home(head, call),
            false => self.at_other(head, call),
        };
        answer.unwrap_or_else(MoveAnswer::Refused)
    }

    fn exported(&self, head: &MoveHead) -> MoveAnswer<Value> {
        let values = head.keys.iter().map(|key| self.values.get(key).copied());
        MoveAnswer::Exported(values.collect())
    }

    /// Applies a rule to all keys, or to none.
    fn all_homes(
        &mut self,
        head: &MoveHead,
        rule: impl Fn(HomeKey) -> Result<HomeKey, Refusal>,
    ) -> Result<(), Refusal> {
        let homes = head.keys.iter().map(|key| rule(self.home_key(key)));
        let homes = homes.collect::<Result<Vec<_>, _>>()?;
        head.keys.iter().zip(homes).for_each(|(key, home)| self.set_home(key, home));
        Ok(())
    }

    fn at_home(
        &mut self,
        head: &MoveHead,
        call: &MoveCall<Value>,
    ) -> Result<MoveAnswer<Value>, Refusal> {
        match call {
            MoveCall::Begin => {
                let may_move = self.may_move();
                let begin = |key: &DbKey| {
                    let home = self.home_key(key);
                    home.begin(self.last, head.id, head.direction, head.other, may_move)
                };
                let begun: Vec<_> = head.keys.iter().map(begin).collect();
                for (key, home) in head.keys.iter().zip(&begun) {
                    if let Ok(home) = home {
                        self.set_home(key, *home);
                    }
                }
                self.last = self.last.max(head.id);
                Ok(MoveAnswer::Begun(begun.into_iter().map(|it| it.map(|_| ())).collect()))
            }
            MoveCall::Export => {
                self.all_homes(head, |home| home.export(head.id))?;
                Ok(self.exported(head))
            }
            MoveCall::Commit(values) => {
                let homes = head.keys.iter().map(|key| self.home_key(key).commit(head.id));
                let homes = homes.collect::<Result<Vec<_>, _>>()?;
                for (at, (key, home)) in head.keys.iter().zip(homes).enumerate() {
                    if let Some(home) = home {
                        self.set_home(key, home);
                        self.put(key, values.get(at).copied().flatten());
                    }
                }
                Ok(MoveAnswer::Done)
            }
            MoveCall::Undo => {
                self.all_homes(head, |home| home.undo(head.id))?;
                self.last = self.last.max(head.id);
                Ok(MoveAnswer::Done)
            }
            MoveCall::Forget => {
                self.all_homes(head, |home| Ok(home.forget(head.id)))?;
                Ok(MoveAnswer::Done)
            }
            MoveCall::Import(_) | MoveCall::Finish | MoveCall::Drop | MoveCall::Release => {
                Err(Refusal::NotHere)
            }
        }
    }

    /// A home that trusts its owner to remember what is under way.
    fn at_home_without_intents(
        &mut self,
        head: &MoveHead,
        call: &MoveCall<Value>,
    ) -> MoveAnswer<Value> {
        match call {
            MoveCall::Begin => MoveAnswer::Begun(vec![Ok(()); head.keys.len()]),
            MoveCall::Export => self.exported(head),
            MoveCall::Commit(values) => {
                for (at, key) in head.keys.iter().enumerate() {
                    let exception = match head.direction {
                        Direction::Out => Some(Exception { at: head.other, move_id: head.id }),
                        Direction::Home => None,
                    };
                    self.set_home(key, HomeKey { exception, ..HomeKey::default() });
                    self.put(key, values.get(at).copied().flatten());
                }
                MoveAnswer::Done
            }
            _ => MoveAnswer::Done,
        }
    }

    fn all_copies(
        &mut self,
        head: &MoveHead,
        values: Option<&[Value]>,
        rule: impl Fn(Option<KeyCopy>) -> Result<CopyChange, Refusal>,
    ) -> Result<(), Refusal> {
        let changes = head.keys.iter().map(|key| rule(self.copies.get(key).copied()));
        let changes = changes.collect::<Result<Vec<_>, _>>()?;
        for (at, (key, change)) in head.keys.iter().zip(changes).enumerate() {
            self.set_copy(key, change);
            if let (Some(values), CopyChange::Put(_)) = (values, change) {
                self.put(key, values[at]);
            }
        }
        Ok(())
    }

    fn at_other(
        &mut self,
        head: &MoveHead,
        call: &MoveCall<Value>,
    ) -> Result<MoveAnswer<Value>, Refusal> {
        let id = head.id;
        match call {
            MoveCall::Export => {
                self.may_move()?;
                self.all_copies(head, None, |copy| KeyCopy::export(copy, id))?;
                return Ok(self.exported(head));
            }
            MoveCall::Import(values) => {
                self.may_move()?;
                self.all_copies(head, Some(values), |copy| KeyCopy::import(copy, id))?;
            }
            MoveCall::Finish => {
                self.all_copies(head, None, |copy| Ok(KeyCopy::finish(copy, id)))?
            }
            MoveCall::Drop => self.all_copies(head, None, |copy| Ok(KeyCopy::drop(copy, id)))?,
            MoveCall::Release => {
                self.all_copies(head, None, |copy| Ok(KeyCopy::release(copy, id)))?;
            }
            MoveCall::Begin | MoveCall::Commit(_) | MoveCall::Undo | MoveCall::Forget => {
                return Err(Refusal::NotHere);
            }
        }
        Ok(MoveAnswer::Done)
    }
}
