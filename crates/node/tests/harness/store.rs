//! A store in memory that keeps the records of moves as the rules say. It outlives its node, as a
//! directory does.

use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, HashMap};
use terrace_cluster::{
    CopyChange, CopyState, DbKey, Direction, Epoch, HomeKey, KeyCopy, KeyRange, MoveAnswer,
    MoveCall, MoveId, NodeId, Refusal, ShardId, TopKey, slot_of,
};
use terrace_node::rpc::{MoveMessage, ShardRecords, TopCounts};
use terrace_node::{Identity, InstanceStore, Part, StoreError, StoreLoad};

#[derive(Default)]
struct State {
    identity: Option<Identity>,
    part: Option<Part>,
    epochs: HashMap<ShardId, Epoch>,
    values: BTreeMap<DbKey, Vec<u8>>,
    home: HashMap<DbKey, HomeKey>,
    copies: HashMap<(ShardId, DbKey), KeyCopy>,
    last: MoveId,
    writes: HashMap<DbKey, u64>,
    steps: HashMap<&'static str, usize>,
    /// Steps of moves that wait, before anything is done.
    paused: Option<&'static str>,
    /// Exports with more bytes of values are refused.
    most_bytes: Option<usize>,
    /// Steps of moves that need room are refused.
    is_full: bool,
    /// Keys are not let into moves.
    is_flushing: bool,
    /// Epochs are not made durable.
    refuses_epochs: bool,
    /// How often one was to be made durable.
    epoch_tries: usize,
}

pub struct MemoryStore {
    /// Whose instance it is.
    shard: ShardId,
    state: Mutex<State>,
    resumed: Condvar,
}

type Answer = MoveAnswer<Vec<u8>>;

impl MemoryStore {
    pub fn new(shard: ShardId) -> Self {
        Self { shard, state: Mutex::default(), resumed: Condvar::new() }
    }

    pub fn id(&self) -> NodeId {
        self.state.lock().identity.as_ref().unwrap().node
    }

    /// Whether it has a key that is not hidden.
    pub fn has(&self, key: &str) -> bool {
        let (key, state) = (DbKey::new(0, key), self.state.lock());
        let is_hidden = |(at, copy): (&(ShardId, DbKey), &KeyCopy)| {
            at.1 == key && copy.state == CopyState::Hidden
        };
        state.values.contains_key(&key) && !state.copies.iter().any(is_hidden)
    }

    /// A key of another shard, and the record of it, are not here any more: the store has gone back to an older state.
    pub fn lose(&self, key: &str) {
        let (key, mut state) = (DbKey::new(0, key), self.state.lock());
        state.values.remove(&key);
        state.copies.retain(|(_, copy), _| *copy != key);
    }

    /// How often a step of a move was done here.
    pub fn steps(&self, name: &str) -> usize {
        self.state.lock().steps.get(name).copied().unwrap_or(0)
    }

    /// Lets a step of all moves wait here; it is counted when it comes.
    pub fn pause(&self, step: &'static str) {
        self.state.lock().paused = Some(step);
    }

    /// Lets what waits go on.
    pub fn resume(&self) {
        self.state.lock().paused = None;
        self.resumed.notify_all();
    }

    /// Exports with more bytes of values, in one or in all, are refused from now on.
    pub fn limit_exports(&self, bytes: usize) {
        self.state.lock().most_bytes = Some(bytes);
    }

    /// Has no room for moves from now on, or has room again.
    pub fn fill(&self, is_full: bool) {
        self.state.lock().is_full = is_full;
    }

    /// Waits for a flush of all stores from now on, or does no longer.
    pub fn announce_flush(&self, is_flushing: bool) {
        self.state.lock().is_flushing = is_flushing;
    }

    /// Makes no epoch durable from now on, or does again.
    pub fn refuse_epochs(&self, refuses: bool) {
        self.state.lock().refuses_epochs = refuses;
    }

    /// How often an epoch was to be made durable.
    pub fn epoch_tries(&self) -> usize {
        self.state.lock().epoch_tries
    }

    /// Executes a command in the name of a shard.
    pub fn execute(&self, shard: ShardId, words: &[&str]) -> Result<Vec<u8>, Refusal> {
        let mut state = self.state.lock();
        let key = DbKey::new(0, words[1]);
        let is_write = words[0] != "GET";
        if shard == self.shard {
            let home = state.home.get(&key).copied().unwrap_or_default();
            if is_write { home.may_write()? } else { home.may_read()? }
        } else {
            let at = (shard, key.clone());
            let change = KeyCopy::call(state.copies.get(&at).copied(), is_write)?;
            state.change(at, change);
        }
        let before = state.values.get(&key).cloned();
        let value = match words[0] {
            "GET" => return Ok(before.unwrap_or_else(|| b"nil".to_vec())),
            "SET" => words[2].as_bytes().to_vec(),
            "INCR" => {
                let number = before.map_or(0, |it| String::from_utf8(it).unwrap().parse().unwrap());
                let number: u64 = number;
                (number + 1).to_string().into_bytes()
            }
            other => panic!("{other}"),
        };
        *state.writes.entry(key.clone()).or_default() += 1;
        state.values.insert(key, value.clone());
        Ok(value)
    }
}

impl State {
    /// Applies what the rules of a copy say.
    fn change(&mut self, at: (ShardId, DbKey), change: CopyChange) {
        match change {
            CopyChange::Keep => {}
            CopyChange::Put(copy) => _ = self.copies.insert(at, copy),
            CopyChange::Remove => {
                self.values.remove(&at.1);
                self.copies.remove(&at);
            }
        }
    }

    fn put(&mut self, key: &DbKey, exported: &[u8]) {
        match exported.split_first() {
            Some((1, value)) => _ = self.values.insert(key.clone(), value.to_vec()),
            _ => _ = self.values.remove(key),
        }
    }

    fn exported(&self, key: &DbKey) -> Vec<u8> {
        match self.values.get(key) {
            Some(value) => [&[1], &value[..]].concat(),
            None => vec![0],
        }
    }

    fn bytes_of(&self, keys: &[DbKey]) -> usize {
        keys.iter().filter_map(|key| self.values.get(key)).map(Vec::len).sum()
    }

    fn home_of(&self, key: &DbKey) -> HomeKey {
        self.home.get(key).copied().unwrap_or_default()
    }

    fn apply(&mut self, message: &MoveMessage) -> Result<Answer, Refusal> {
        let MoveMessage { shard, id, direction, other, keys, call } = message;
        let copy = |state: &Self, key: &DbKey| state.copies.get(&(*shard, key.clone())).copied();
        match call {
            MoveCall::Begin | MoveCall::Export | MoveCall::Import(_) | MoveCall::Commit(_)
                if self.is_full =>
            {
                return Err(Refusal::Full);
            }
            MoveCall::Begin => {
                let last = self.last;
                let may_move = if self.is_flushing { Err(Refusal::Flushing) } else { Ok(()) };
                let mut begun = Vec::new();
                for key in keys {
                    let result = self.home_of(key).begin(last, *id, *direction, *other, may_move);
                    if let Ok(home) = result {
                        self.home.insert(key.clone(), home);
                    }
                    begun.push(result.map(|_| ()));
                }
                self.last = last.max(*id);
                return Ok(MoveAnswer::Begun(begun));
            }
            MoveCall::Export if self.bytes_of(keys) > self.most_bytes.unwrap_or(usize::MAX) => {
                return Err(Refusal::TooLarge);
            }
            MoveCall::Export if *direction == Direction::Out => {
                let homes = keys.iter().map(|key| self.home_of(key).export(*id));
                let homes = homes.collect::<Result<Vec<_>, _>>()?;
                self.home.extend(keys.iter().cloned().zip(homes));
                return Ok(MoveAnswer::Exported(keys.iter().map(|k| self.exported(k)).collect()));
            }
            MoveCall::Export => {
                let changes = keys.iter().map(|key| KeyCopy::export(copy(self, key), *id));
                let changes = changes.collect::<Result<Vec<_>, _>>()?;
                for (key, change) in keys.iter().zip(changes) {
                    self.change((*shard, key.clone()), change);
                }
                return Ok(MoveAnswer::Exported(keys.iter().map(|k| self.exported(k)).collect()));
            }
            MoveCall::Import(values) => {
                let changes = keys.iter().map(|key| KeyCopy::import(copy(self, key), *id));
                let changes = changes.collect::<Result<Vec<_>, _>>()?;
                for ((key, change), value) in keys.iter().zip(changes).zip(values) {
                    if change != CopyChange::Keep {
                        self.put(key, value);
                    }
                    self.change((*shard, key.clone()), change);
                }
            }
            MoveCall::Commit(values) => {
                let homes = keys.iter().map(|key| self.home_of(key).commit(*id));
                let homes = homes.collect::<Result<Vec<_>, _>>()?;
                for (number, (key, home)) in keys.iter().zip(homes).enumerate() {
                    let Some(home) = home else { continue };
                    match direction {
                        Direction::Out => _ = self.values.remove(key),
                        Direction::Home => self.put(key, &values[number]),
                    }
                    self.home.insert(key.clone(), home);
                }
            }
            MoveCall::Undo => {
                let homes = keys.iter().map(|key| self.home_of(key).undo(*id));
                let homes = homes.collect::<Result<Vec<_>, _>>()?;
                self.home.extend(keys.iter().cloned().zip(homes));
                self.last = self.last.max(*id);
            }
            MoveCall::Forget => {
                for key in keys {
                    let home = self.home_of(key).forget(*id);
                    self.home.insert(key.clone(), home);
                }
            }
            MoveCall::Finish | MoveCall::Drop | MoveCall::Release => {
                for key in keys {
                    let current = copy(self, key);
                    let change = match call {
                        MoveCall::Finish => KeyCopy::finish(current, *id),
                        MoveCall::Drop => KeyCopy::drop(current, *id),
                        _ => KeyCopy::release(current, *id),
                    };
                    self.change((*shard, key.clone()), change);
                }
            }
        }
        Ok(MoveAnswer::Done)
    }
}

fn name_of(call: &MoveCall<Vec<u8>>) -> &'static str {
    match call {
        MoveCall::Begin => "begin",
        MoveCall::Export => "export",
        MoveCall::Import(_) => "import",
        MoveCall::Commit(_) => "commit",
        MoveCall::Finish => "finish",
        MoveCall::Drop => "drop",
        MoveCall::Release => "release",
        MoveCall::Undo => "undo",
        MoveCall::Forget => "forget",
    }
}

impl InstanceStore for MemoryStore {
    fn identity(&self) -> Result<Option<Identity>, StoreError> {
        Ok(self.state.lock().identity.clone())
    }

    fn set_identity(&self, identity: &Identity) -> Result<(), StoreError> {
        self.state.lock().identity = Some(identity.clone());
        Ok(())
    }

    fn part(&self) -> Result<Option<Part>, StoreError> {
        Ok(self.state.lock().part.clone())
    }

    fn set_part(&self, part: &Part) -> Result<(), StoreError> {
        let is_empty = self.is_empty()?;
        let before = self.state.lock().part.replace(part.clone());
        assert!(before.is_none() || is_empty, "it changes only without keys");
        Ok(())
    }

    fn is_empty(&self) -> Result<bool, StoreError> {
        let state = self.state.lock();
        let is_known = |home: &HomeKey| home.exception.is_some() || home.intent.is_some();
        let has_moved = state.home.values().any(is_known) || !state.copies.is_empty();
        Ok(state.values.is_empty() && !has_moved)
    }

    fn stray_key(&self, part: &Part) -> Result<Option<DbKey>, StoreError> {
        let (state, slots) = (self.state.lock(), |range: &KeyRange| match range {
            KeyRange::Slots(first, last) => *first..=*last,
            KeyRange::Keys { .. } => panic!("clusters of tests have slots"),
        });
        let is_of_part = |key: &DbKey| {
            part.ranges().any(|range| slots(range).contains(&slot_of(&key.key).number()))
        };
        let is_copy = |key: &DbKey| state.copies.keys().any(|(_, copy)| copy == key);
        Ok(state.values.keys().find(|key| !is_of_part(key) && !is_copy(key)).cloned())
    }

    fn epoch(&self, shard: ShardId) -> Result<Epoch, StoreError> {
        Ok(self.state.lock().epochs.get(&shard).copied().unwrap_or_default())
    }

    fn set_epoch(&self, shard: ShardId, epoch: Epoch) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        state.epoch_tries += 1;
        if state.refuses_epochs {
            return Err(StoreError("the disk is full".into()));
        }
        let before = state.epochs.insert(shard, epoch);
        assert!(before.is_none_or(|before| before < epoch), "an epoch never goes back");
        Ok(())
    }

    fn records(&self) -> Result<ShardRecords, StoreError> {
        let mut state = self.state.lock();
        let mut records = ShardRecords::default();
        for (key, home) in &mut state.home {
            // As after a restart.
            *home = HomeKey::recovered(home.exception, home.intent);
            records.exceptions.extend(home.exception.map(|it| (key.clone(), it)));
            records.intents.extend(home.intent.map(|it| (key.clone(), it)));
        }
        records.copies = state.copies.iter().map(|(at, copy)| (at.1.clone(), *copy)).collect();
        Ok(records)
    }

    fn apply_move(&self, message: &MoveMessage) -> Result<Answer, StoreError> {
        let mut state = self.state.lock();
        let step = name_of(&message.call);
        *state.steps.entry(step).or_default() += 1;
        while state.paused == Some(step) {
            self.resumed.wait(&mut state);
        }
        Ok(state.apply(message).unwrap_or_else(MoveAnswer::Refused))
    }

    fn export_of_nothing(&self, _: &DbKey) -> Vec<u8> {
        vec![0]
    }

    fn top_counts(&self, keys: usize) -> Result<TopCounts, StoreError> {
        let mut state = self.state.lock();
        let writes = std::mem::take(&mut state.writes);
        let all = writes.values().sum();
        let top = |(key, count)| TopKey { key, count, error: 0, entry_bytes: 100 };
        let mut top: Vec<TopKey> = writes.into_iter().map(top).collect();
        top.sort_by_key(|top| std::cmp::Reverse(top.count));
        top.truncate(keys);
        let (write_bytes, memtable_bytes) = (100 * all, 1 << 20);
        Ok(TopCounts { writes: all, write_bytes, memtable_bytes, hot_bytes: 0, keys: top })
    }

    fn load(&self) -> StoreLoad {
        let writes = self.state.lock().writes.values().sum();
        StoreLoad { writes, ..StoreLoad::default() }
    }
}
