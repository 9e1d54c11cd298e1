//! Moves of keys between instances: what an instance does for each message of `terrace-cluster`'s
//! `KeyMove`.
//!
//! Which records change, and whether a message comes late, is said by `HomeKey` and `KeyCopy`. Here it happens: under the
//! locks of the keys, in one batch with the keys themselves, durable before it returns, for all keys or none; on a full
//! disk what ends a move may be done for some keys, and comes again. What has been imported and is not finished is in the
//! store under its key, and scans, counts and random keys pass it by.

use crate::command_batch::{CommandBatch, Mode};
use crate::error::{Error, Result, Wait};
use crate::exported_key::ExportedKey;
use crate::keyspace::Keyspace;
use crate::move_records::RecordChange;
use std::sync::Arc;
use terrace::{SyncMode, WriteOptions};
use terrace_cluster::{
    CopyChange, CopyState, DbKey, Direction, Epoch, HomeKey, KeyCopy, MoveId, Refusal, ShardId,
};

/// What an instance answers: `Err` of the inner one if nothing was done.
pub type Answer<T> = Result<std::result::Result<T, Refusal>>;

const DURABLE: WriteOptions = WriteOptions { sync: Some(SyncMode::Batch) };

/// How much is exported together, as [`ExportedKey::as_bytes`] has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExportLimits {
    /// Bytes of one key.
    pub key_bytes: usize,
    /// Bytes of all keys of a move.
    pub move_bytes: usize,
}

/// Of each key; all together may have any number.
impl From<usize> for ExportLimits {
    fn from(key_bytes: usize) -> Self {
        Self { key_bytes, move_bytes: usize::MAX }
    }
}

impl ExportLimits {
    /// Exports a key within what is left, which becomes less.
    fn export(&mut self, batch: &mut CommandBatch, key: &DbKey) -> Answer<ExportedKey> {
        let most = self.key_bytes.min(self.move_bytes);
        let exported = batch.export_key(key.db, &key.key, most)?;
        if let Ok(value) = &exported {
            self.move_bytes = self.move_bytes.saturating_sub(value.as_bytes().len());
        }
        Ok(exported)
    }
}

/// What a store knows of moves of keys.
#[derive(Debug, Clone, Default)]
pub struct MoveState {
    /// Keys of this instance's shards that are away, or being moved.
    pub homes: Vec<(DbKey, HomeKey)>,
    /// Keys of other shards that are here.
    pub copies: Vec<(DbKey, KeyCopy)>,
}

impl Keyspace {
    /// All records, from memory; open moves that were found when the store was opened are held.
    pub fn move_state(&self) -> MoveState {
        MoveState { homes: self.moves.homes(), copies: self.moves.copies() }
    }

    /// Whether there are records of any key. Costs a load.
    pub fn has_moved_keys(&self) -> bool {
        self.moves.has_keys()
    }

    /// The latest move of a shard's keys that began here.
    pub fn last_move(&self, shard: ShardId) -> MoveId {
        self.moves.last(shard)
    }

    /// The highest epoch that was seen of a shard.
    pub fn fence(&self, shard: ShardId) -> Epoch {
        self.moves.fence(shard)
    }

    /// A message with this epoch has come. Durable, if it is a later one. Gives whether it is none of an
    /// earlier owner.
    ///
    /// # Errors
    /// The engine's: the epoch may be forgotten by a crash.
    pub fn admit_epoch(self: &Arc<Self>, shard: ShardId, epoch: Epoch) -> Result<bool> {
        if self.moves.fence(shard) >= epoch {
            return Ok(self.moves.fence(shard) == epoch);
        }
        let _turn = self.moves.turn.lock();
        let known = self.moves.fence(shard);
        if known < epoch {
            let mut batch = self.command_batch(Mode::Device);
            batch.change_record(RecordChange::Fence(shard, epoch))?;
            batch.commit_with(&DURABLE)?;
        }
        Ok(known <= epoch)
    }

    /// Step 1, at home, which `shard` is: for each key whether the move has begun.
    ///
    /// # Errors
    /// The engine's, and nothing has begun as far as is known.
    pub fn begin_move(
        self: &Arc<Self>,
        shard: ShardId,
        id: MoveId,
        direction: Direction,
        other: ShardId,
        keys: &[DbKey],
    ) -> Result<Vec<std::result::Result<(), Refusal>>> {
        let _turn = self.moves.turn.lock();
        let mut batch = self.batch_of(keys)?;
        let (last, may_move) = (self.moves.last(shard), self.moves.may_move());
        let mut begun = Vec::with_capacity(keys.len());
        for key in keys {
            let now = self.moves.home(key);
            let next = now.begin(last, id, direction, other, may_move);
            if let Ok(next) = next
                && next != now
            {
                batch.change_record(RecordChange::Home(key.clone(), next))?;
            }
            begun.push(next.map(drop));
        }
        if id > last {
            batch.change_record(RecordChange::Last(shard, id))?;
        }
        batch.commit_with(&DURABLE)?;
        Ok(begun)
    }

    /// Step 3 of a move out, at home: the values. Writes of the keys are refused from now on
    /// ([`CommandBatch::check_home`]). `TooLarge` if a value has more bytes than the limit of one, or all have more
    /// than that of all: no more is read than that.
    ///
    /// # Errors
    /// The engine's.
    pub fn export_home(
        self: &Arc<Self>,
        id: MoveId,
        keys: &[DbKey],
        limits: impl Into<ExportLimits>,
    ) -> Answer<Vec<ExportedKey>> {
        let mut batch = self.batch_of(keys)?;
        let mut exported = Vec::with_capacity(keys.len());
        let mut left = limits.into();
        for key in keys {
            let next = match self.moves.home(key).export(id) {
                Ok(next) => next,
                Err(why) => return Ok(Err(why)),
            };
            match left.export(&mut batch, key)? {
                Ok(value) => exported.push(value),
                Err(why) => return Ok(Err(why)),
            }
            // From the commit on writes of the key are kept away.
            batch.change_in_memory(RecordChange::Home(key.clone(), next));
        }
        batch.commit_with(&DURABLE)?;
        Ok(Ok(exported))
    }

    /// Step 5, at home: the commit point. Keys that go out are deleted, those that come home are put; `values`
    /// are those that were exported at the other instance.
    ///
    /// # Errors
    /// The engine's, and values that are not of these keys: nothing was done.
    pub fn commit_move(
        self: &Arc<Self>,
        id: MoveId,
        keys: &[DbKey],
        values: &[ExportedKey],
    ) -> Answer<()> {
        let mut batch = self.batch_of(keys)?;
        for (number, key) in keys.iter().enumerate() {
            let next = match self.moves.home(key).commit(id) {
                Ok(Some(next)) => next,
                Ok(None) => continue,
                Err(why) => return Ok(Err(why)),
            };
            // Written in any case, also if there is nothing: who watches it does not see what is written while it is away.
            batch.delete_text(key.db, &key.key);
            match next.exception {
                Some(_) => batch.clear_key(key.db, &key.key)?,
                None => batch.put_exported(value_of(key, values.get(number))?)?,
            }
            batch.change_record(RecordChange::Home(key.clone(), next))?;
        }
        batch.commit_with(&DURABLE)?;
        Ok(Ok(()))
    }

    /// The way out before step 5, at home, which `shard` is. The records of all keys together may be more than a full
    /// disk takes: then they are written for one key after the other, so that a crash may leave some of them open.
    ///
    /// # Errors
    /// The engine's: some keys may be undone.
    pub fn undo_move(self: &Arc<Self>, shard: ShardId, id: MoveId, keys: &[DbKey]) -> Answer<()> {
        let _turn = self.moves.turn.lock();
        let undone = match self.undo_keys(id, keys) {
            Err(error) if error.is_disk_full() && keys.len() > 1 => self.undo_each(id, keys),
            undone => undone,
        };
        match undone? {
            Ok(()) => self.refuse_begin(shard, id).map(Ok),
            Err(why) => Ok(Err(why)),
        }
    }

    fn undo_each(self: &Arc<Self>, id: MoveId, keys: &[DbKey]) -> Answer<()> {
        for key in keys {
            if let Err(why) = self.undo_keys(id, std::slice::from_ref(key))? {
                return Ok(Err(why));
            }
        }
        Ok(Ok(()))
    }

    fn undo_keys(self: &Arc<Self>, id: MoveId, keys: &[DbKey]) -> Answer<()> {
        let mut batch = self.batch_of(keys)?;
        for key in keys {
            let now = self.moves.home(key);
            match now.undo(id) {
                Ok(next) if next == now => {}
                Ok(next) => batch.change_record(RecordChange::Home(key.clone(), next))?,
                Err(why) => return Ok(Err(why)),
            }
        }
        batch.commit_with(&DURABLE)?;
        Ok(Ok(()))
    }

    /// A move that has not begun does not begin later. The turn is held.
    fn refuse_begin(self: &Arc<Self>, shard: ShardId, id: MoveId) -> Result<()> {
        if id <= self.moves.last(shard) {
            return Ok(());
        }
        let last = RecordChange::Last(shard, id);
        let mut batch = self.command_batch(Mode::Device);
        batch.use_reserve();
        batch.change_record(last.clone())?;
        match batch.commit_with(&DURABLE) {
            // No key is in it. The memory refuses a message that comes late as well, and none that was sent to this process
            // comes to the next one.
            Err(error) if error.is_disk_full() => {
                self.moves.apply(std::iter::once(last));
                Ok(())
            }
            outcome => outcome,
        }
    }

    /// Step 8, at home: the other instance has done its part.
    ///
    /// # Errors
    /// The engine's.
    pub fn forget_move(self: &Arc<Self>, id: MoveId, keys: &[DbKey]) -> Result<()> {
        let mut batch = self.batch_of(keys)?;
        for key in keys {
            let now = self.moves.home(key);
            let next = now.forget(id);
            if next != now {
                batch.change_record(RecordChange::Home(key.clone(), next))?;
            }
        }
        batch.commit_with(&DURABLE)
    }

    /// Step 4 of a move out, at the other instance: the keys are here, and scans do not see them. Refused as `Busy` if
    /// a key has a record as one of this instance's own: what is sent would take its place.
    ///
    /// # Errors
    /// The engine's, and values that are not of these keys: nothing was done.
    pub fn import_keys(
        self: &Arc<Self>,
        id: MoveId,
        keys: &[DbKey],
        values: &[ExportedKey],
    ) -> Answer<()> {
        let mut batch = self.batch_of(keys)?;
        if let Err(why) = self.moves.may_move() {
            return Ok(Err(why));
        }
        for (number, key) in keys.iter().enumerate() {
            if self.moves.home(key) != HomeKey::default() {
                return Ok(Err(Refusal::Busy));
            }
            match KeyCopy::import(self.moves.copy(key), id) {
                Ok(CopyChange::Put(copy)) => {
                    batch.put_exported(value_of(key, values.get(number))?)?;
                    batch.change_record(RecordChange::Copy(key.clone(), Some(copy)))?;
                }
                Ok(CopyChange::Keep | CopyChange::Remove) => {}
                Err(why) => return Ok(Err(why)),
            }
        }
        batch.commit_with(&DURABLE)?;
        Ok(Ok(()))
    }

    /// Step 7 of a move out, at the other instance: scans see the keys.
    ///
    /// # Errors
    /// The engine's.
    pub fn finish_import(self: &Arc<Self>, id: MoveId, keys: &[DbKey]) -> Result<()> {
        self.change_copies(keys, |copy| KeyCopy::finish(copy, id))
    }

    /// Step 7 of a move home, or the end of a move out that was undone, at the other instance: the keys
    /// are deleted, unless another move brought them.
    ///
    /// # Errors
    /// The engine's.
    pub fn drop_copies(self: &Arc<Self>, id: MoveId, keys: &[DbKey]) -> Result<()> {
        self.change_copies(keys, |copy| KeyCopy::drop(copy, id))
    }

    /// The end of a move home that was undone, at the other instance: the keys stay.
    ///
    /// # Errors
    /// The engine's.
    pub fn release_copies(self: &Arc<Self>, id: MoveId, keys: &[DbKey]) -> Result<()> {
        self.change_copies(keys, |copy| KeyCopy::release(copy, id))
    }

    /// Step 3 of a move home, at the other instance: as [`Self::export_home`].
    ///
    /// # Errors
    /// The engine's.
    pub fn export_copies(
        self: &Arc<Self>,
        id: MoveId,
        keys: &[DbKey],
        limits: impl Into<ExportLimits>,
    ) -> Answer<Vec<ExportedKey>> {
        let mut batch = self.batch_of(keys)?;
        let mut left = limits.into();
        if let Err(why) = self.moves.may_move() {
            return Ok(Err(why));
        }
        let mut exported = Vec::with_capacity(keys.len());
        for key in keys {
            match KeyCopy::export(self.moves.copy(key), id) {
                Ok(change) => batch.change_copy(key, change)?,
                Err(why) => return Ok(Err(why)),
            }
            match left.export(&mut batch, key)? {
                Ok(value) => exported.push(value),
                Err(why) => return Ok(Err(why)),
            }
        }
        batch.commit_with(&DURABLE)?;
        Ok(Ok(exported))
    }

    /// A command in the name of the key's shard comes to a key that was brought here: the first one finishes
    /// the move, durably. Others cost a look into memory. Afterwards, [`CommandBatch::check_copy`].
    ///
    /// # Errors
    /// The engine's.
    pub fn call_copy(self: &Arc<Self>, key: &DbKey) -> Answer<()> {
        match self.moves.copy(key) {
            None => Ok(Err(Refusal::NotHere)),
            Some(copy) if copy.state == CopyState::Hidden => {
                let change = |copy| KeyCopy::call(copy, false).unwrap_or(CopyChange::Keep);
                self.change_copies(std::slice::from_ref(key), change)?;
                Ok(Ok(()))
            }
            Some(_) => Ok(Ok(())),
        }
    }

    fn change_copies(
        self: &Arc<Self>,
        keys: &[DbKey],
        change: impl Fn(Option<KeyCopy>) -> CopyChange,
    ) -> Result<()> {
        match self.change_copies_together(keys, &change) {
            // Each by itself has few bytes.
            Err(error) if error.is_disk_full() && keys.len() > 1 => {
                let mut each = keys.iter().map(std::slice::from_ref);
                each.try_for_each(|key| self.change_copies_together(key, &change))
            }
            changed => changed,
        }
    }

    fn change_copies_together(
        self: &Arc<Self>,
        keys: &[DbKey],
        change: impl Fn(Option<KeyCopy>) -> CopyChange,
    ) -> Result<()> {
        let mut batch = self.batch_of(keys)?;
        for key in keys {
            batch.change_copy(key, change(self.moves.copy(key)))?;
        }
        batch.commit_with(&DURABLE)
    }

    fn batch_of(self: &Arc<Self>, keys: &[DbKey]) -> Result<CommandBatch> {
        let mut batch = self.command_batch(Mode::Device);
        batch.lock_in(keys.iter().map(|key| (key.db, &key.key[..])))?;
        Ok(batch)
    }
}

impl CommandBatch {
    /// As [`Keyspace::call_copy`], for the command that begins; in [`Mode::Memory`] it does not wait. In
    /// [`Mode::Device`] no lock is held yet.
    ///
    /// # Errors
    /// [`Error::Elsewhere`] if it would have to wait, and those of the engine.
    pub fn call_copy(&self, db: u8, key: &[u8]) -> Answer<()> {
        debug_assert!(self.mode() == Mode::Memory || self.lock_count() == 0);
        if self.mode() == Mode::Memory && self.space.moves.hides(db, key) {
            return Err(Error::Elsewhere(Wait::Device));
        }
        self.space.call_copy(&DbKey::new(db, key))
    }

    fn change_copy(&mut self, key: &DbKey, change: CopyChange) -> Result<()> {
        match change {
            CopyChange::Keep => Ok(()),
            CopyChange::Put(copy) => {
                self.change_record(RecordChange::Copy(key.clone(), Some(copy)))
            }
            CopyChange::Remove => {
                self.clear_key(key.db, &key.key)?;
                self.change_record(RecordChange::Copy(key.clone(), None))
            }
        }
    }
}

fn value_of<'v>(key: &DbKey, value: Option<&'v ExportedKey>) -> Result<&'v ExportedKey> {
    let of_key = value.filter(|value| value.name() == (key.db, &key.key[..]));
    of_key.ok_or_else(|| {
        let what = format!("the value that was sent for {key} is of another key");
        Error::Engine(terrace::Error::InvalidArgument(what))
    })
}
