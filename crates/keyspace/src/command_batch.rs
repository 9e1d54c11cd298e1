//! A batch: the writes of many commands, of many clients, that are committed together.
//!
//! Every read of a command sees what earlier commands of its batch wrote. Nobody else sees it before
//! [`CommandBatch::commit`], and no reply may be sent before. The locks of the keys that a command writes
//! are taken before it runs ([`CommandBatch::lock`]) and held until the commit.
//!
//! A command reads first and writes last, so one that fails has written nothing; those that cannot
//! are run inside [`CommandBatch::attempt`]. In [`Mode::Memory`] no read touches the device and no lock is
//! waited for: [`Error::Elsewhere`] says that the command must be run again in [`Mode::Device`], by
//! a thread that may wait.

mod collections;
mod dead_rows;
mod elements;
mod flush;
mod held_locks;
mod locking;
mod records;
mod removed_ranges;
mod sweep;
#[cfg(test)]
mod tests;
mod texts;

pub(crate) use dead_rows::{MANY_PASSED, MOST_GAPS, behind};
pub(crate) use elements::Direction;
pub use texts::Text;
pub(crate) use texts::TextInfo;

use crate::encode::{self, Meta};
use crate::error::{Error, Result, Wait};
use crate::first_expiries::Part;
use crate::keyspace::Keyspace;
use crate::locks::Locks;
use crate::lookups::Lookups;
use crate::move_records::RecordChange;
use crate::pending_writes::{PendingWrites, clear_list};
use crate::result_size::WRITTEN_ELEMENT_BYTES;
use held_locks::HeldLocks;
use removed_ranges::RemovedRanges;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use terrace::{ReadOptions, Slice, Snapshot, WriteBatch, WriteOptions};

/// Whether a batch's commands may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// No: only what is in memory is read.
    Memory,
    /// Yes.
    Device,
}

/// Bytes that a command read.
#[derive(Debug, Clone)]
pub enum Value {
    /// In a block of the engine.
    Stored(Slice),
    /// Written in this batch.
    Written(Arc<[u8]>),
}

impl Deref for Value {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Stored(slice) => slice,
            Self::Written(bytes) => bytes,
        }
    }
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// What a batch wrote under the key of a string; the bytes are beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WrittenText {
    Deleted,
    /// With when it expires, in ms since 1970.
    Put(Option<u64>),
}

impl WrittenText {
    pub fn is_live(self, now_ms: u64) -> bool {
        match self {
            Self::Deleted => false,
            Self::Put(expires_at_ms) => expires_at_ms.is_none_or(|at| at > now_ms),
        }
    }
}

/// What a batch wrote of an element: `None` deleted it.
type WrittenElement = Option<Arc<[u8]>>;

/// What was written before of an element in this batch, if anything.
struct Undo(Vec<u8>, Option<WrittenElement>);

/// See the module.
pub struct CommandBatch {
    pub(crate) space: Arc<Keyspace>,
    mode: Mode,
    batch: WriteBatch,
    texts: PendingWrites<WrittenText>,
    /// Written into the batch at the commit, once for all changes.
    metas: PendingWrites<Option<Meta>>,
    elements: BTreeMap<Vec<u8>, WrittenElement>,
    /// Elements of which nothing stored is left.
    removed: RemovedRanges,
    /// Databases, as bits, of which nothing stored is left.
    flushed: u128,
    /// Of those that were flushed: the user keys that were put there since then. One without an entry is not known.
    put_since_flush: BTreeMap<u8, Vec<Vec<u8>>>,
    /// How many flushes there were.
    flushes: u64,
    /// Where and when collections will expire, as their notes in the batch say.
    expiries: Vec<(Part, u64)>,
    /// Records of key moves as they are from the commit on.
    record_changes: Vec<RecordChange>,
    /// With slots: databases, as bits, that the batch marks as written to.
    marked: u128,
    held: HeldLocks,
    /// See [`Self::wait_for_keys`].
    waits_for_keys: bool,
    /// See [`Self::take_held_up`].
    is_held_up: bool,
    /// See [`Self::took_part`].
    took_part: Cell<bool>,
    undo: Vec<Undo>,
    /// See [`Self::rows_passed`].
    rows_passed: Cell<u64>,
    /// See [`Self::deleted_steps`].
    deleted_steps: Cell<u64>,
    /// Of them, those before the current command.
    steps_before: u64,
    /// See [`Self::take_lookups`].
    lookups: Cell<Lookups>,
    /// How many [`Self::attempt`] are around the current command.
    attempts: u32,
    /// The moment that a command reads which does not hold the lock of its key.
    view: Option<Snapshot>,
    reading: ReadOptions,
    now_ms: u64,
    scratch: Vec<u8>,
}

impl Keyspace {
    /// A batch without any command yet.
    pub fn command_batch(self: &Arc<Self>, mode: Mode) -> CommandBatch {
        CommandBatch::begin(self.clone(), mode)
    }
}

impl CommandBatch {
    fn begin(space: Arc<Keyspace>, mode: Mode) -> Self {
        let now_ms = space.now_ms();
        let in_memory = mode == Mode::Memory;
        let reading = ReadOptions { in_memory, now_ms: Some(now_ms), ..ReadOptions::default() };
        Self {
            mode,
            batch: WriteBatch::new(),
            texts: PendingWrites::new(space.seed),
            metas: PendingWrites::new(space.seed),
            elements: BTreeMap::new(),
            removed: RemovedRanges::default(),
            flushed: 0,
            put_since_flush: BTreeMap::new(),
            flushes: 0,
            expiries: Vec::new(),
            record_changes: Vec::new(),
            marked: 0,
            space,
            held: HeldLocks::default(),
            waits_for_keys: true,
            is_held_up: false,
            took_part: Cell::new(false),
            undo: Vec::new(),
            rows_passed: Cell::new(0),
            deleted_steps: Cell::new(0),
            steps_before: 0,
            lookups: Cell::default(),
            attempts: 0,
            view: None,
            reading,
            now_ms,
            scratch: Vec::new(),
        }
    }

    /// A command begins: it sees the present, unless this is inside a transaction that has begun
    /// to read.
    pub fn next_command(&mut self) {
        if self.attempts == 0 {
            self.end_view();
        }
        self.steps_before = self.deleted_steps.get();
        self.is_held_up = false;
        if self.mode == Mode::Device {
            self.look_at_the_clock();
        }
    }

    /// Commands from here on happen now. In [`Mode::Memory`], where they are short and many, they
    /// happen when this was called last.
    pub fn look_at_the_clock(&mut self) {
        self.now_ms = self.space.now_ms();
        self.reading.now_ms = Some(self.now_ms);
    }

    /// Whether its commands may wait.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The time of the current command, in ms since 1970.
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// The keyspace.
    pub fn space(&self) -> &Arc<Keyspace> {
        &self.space
    }

    /// Whether nothing has been written.
    pub fn is_clean(&self) -> bool {
        self.batch.is_empty() && self.metas.is_empty() && self.texts.is_empty()
    }

    /// Bytes written so far.
    pub fn size_bytes(&self) -> usize {
        self.batch.size_bytes() + self.texts.size_bytes() + self.metas.len() * Meta::BYTES
    }

    /// Bytes of memory for what was written so far, about: elements are held beside the batch too.
    pub fn written_bytes(&self) -> usize {
        self.size_bytes() + (self.elements.len() + self.undo.len()) * WRITTEN_ELEMENT_BYTES
    }

    /// How many deleted elements the walks of this batch have stepped over, those that it deleted itself included, and
    /// those that range deletions cover not.
    pub fn rows_passed(&self) -> u64 {
        self.rows_passed.get()
    }

    /// How many steps the walks of this batch made over what is deleted: [`Self::rows_passed`], and those that it took
    /// to get past what range deletions cover: one by one if there are many newer elements among it.
    pub fn deleted_steps(&self) -> u64 {
        self.deleted_steps.get()
    }

    /// How many keys commands have looked for to read them, and found or not, since the last call.
    pub fn take_lookups(&self) -> Lookups {
        self.lookups.take()
    }

    /// A key was looked for to read it.
    pub fn note_lookup(&self, is_found: bool) {
        let mut lookups = self.lookups.get();
        *(if is_found { &mut lookups.hits } else { &mut lookups.misses }) += 1;
        self.lookups.set(lookups);
    }

    /// How many locks it holds.
    pub fn lock_count(&self) -> usize {
        self.held.list.len()
    }

    /// Whether a command since the last call took part in what the batch writes: may have written,
    /// or read what the batch had written. Replies to others may be sent before the commit.
    pub fn took_part(&mut self) -> bool {
        self.took_part.take()
    }

    /// As [`Self::took_part`], which then still says so.
    pub fn is_taking_part(&self) -> bool {
        self.took_part.get()
    }

    /// Runs something that writes before it has read everything: if it fails, what it wrote is
    /// taken back.
    pub fn attempt<T, E>(
        &mut self,
        run: impl FnOnce(&mut Self) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let save_point = self.batch.save_point();
        let mark = self.undo.len();
        let (texts, metas) = (self.texts.begin_attempt(), self.metas.begin_attempt());
        let (flushed, flushes) = (self.flushed, self.flushes);
        let (records, removed) = (self.record_changes.len(), self.removed.mark());
        self.attempts += 1;
        let outcome = run(self);
        self.attempts -= 1;
        if outcome.is_ok() {
            self.texts.keep(texts);
            self.metas.keep(metas);
        } else {
            self.batch.roll_back_to(save_point);
            self.texts.take_back(texts);
            self.metas.take_back(metas);
            self.flushed = flushed;
            if self.flushes != flushes {
                self.put_since_flush.clear();
            }
            self.record_changes.truncate(records);
            self.removed.take_back(removed);
            for Undo(key, before) in self.undo.drain(mark..).rev() {
                match before {
                    Some(before) => self.elements.insert(key, before),
                    None => self.elements.remove(&key),
                };
            }
        }
        if self.attempts == 0 {
            clear_list(&mut self.undo);
            self.removed.keep();
        }
        outcome
    }

    /// Makes everything written visible at once, and gives the locks back. On an error nothing of
    /// the batch was written.
    pub fn commit(&mut self) -> Result<()> {
        self.commit_with(&WriteOptions::default())
    }

    /// As [`Self::commit`], with a durability of its own.
    pub fn commit_with(&mut self, options: &WriteOptions) -> Result<()> {
        self.commit_then(options, |_| ())
    }

    /// As [`Self::commit_with`]; `then` is called when it is visible, with the locks still held, and not after an error.
    fn commit_then(&mut self, options: &WriteOptions, then: impl FnOnce(&Self)) -> Result<()> {
        debug_assert_eq!(self.attempts, 0, "a turn is not committed from within an attempt");
        self.end_view();
        self.gather_texts();
        self.mark_databases();
        for (key, meta, _) in self.metas.latest() {
            match meta {
                Some(meta) => self.batch.put_cf(&self.space.collections, key, meta.encode()),
                None => self.batch.delete_cf(&self.space.collections, key),
            }
        }
        let unmoved = self.unmoved();
        // They are in the batch: long ones are not held twice.
        self.texts.clear();
        let batch = std::mem::take(&mut self.batch);
        let outcome = match batch.is_empty() {
            true => Ok(()),
            false => self.space.db.write_with(batch, options),
        };
        if outcome.is_ok() {
            self.note_committed();
        }
        if outcome.is_ok() && self.flushed != 0 {
            let holders = self.metas.latest().filter(|(_, meta, _)| meta.is_some());
            let layout = self.space.layout;
            self.note_flushed(holders.fold(0, |dbs, (key, ..)| dbs | 1 << layout.db_of(key)));
        }
        if outcome.is_ok() {
            self.watch_anew(&unmoved);
            then(self);
        }
        self.forget();
        Ok(outcome?)
    }

    /// Strings go into the batch at the end, each once and in the order of their keys: the memtable
    /// takes neighbours faster than strangers.
    fn gather_texts(&mut self) {
        let mut texts: Vec<_> = self.texts.latest().collect();
        texts.sort_unstable_by_key(|(key, ..)| *key);
        let strings = &self.space.strings;
        for (key, text, value) in texts {
            match text {
                WrittenText::Deleted => self.batch.delete_cf(strings, key),
                WrittenText::Put(None) => self.batch.put_cf(strings, key, value),
                WrittenText::Put(Some(at)) => self.batch.put_until_cf(strings, key, value, *at),
            }
        }
    }

    /// Forgets everything written, and gives the locks back.
    pub fn abandon(&mut self) {
        self.end_view();
        // Not cleared: it would keep the memory of a long one.
        self.batch = WriteBatch::new();
        self.forget();
    }

    /// Of what was written, and of the memory for it but for a little of each kind: a batch stays with its thread, and one large
    /// command would keep as much in every thread that has ever carried one out.
    fn forget(&mut self) {
        self.texts.clear();
        self.metas.clear();
        self.elements.clear();
        self.removed.clear();
        self.flushed = 0;
        self.put_since_flush.clear();
        clear_list(&mut self.expiries);
        clear_list(&mut self.record_changes);
        self.marked = 0;
        self.took_part.set(false);
        for stripe in self.held.list.drain(..) {
            self.held.bits[usize::from(stripe) / 64] &= !(1 << (stripe % 64));
            self.space.locks.give_back(stripe);
        }
    }

    /// From here to the end of the command all reads see one moment, unless the key cannot change
    /// because this batch holds its lock. Gives whether that moment is one after earlier reads.
    pub(crate) fn pin_view(&mut self, db: u8, key: &[u8]) -> bool {
        !self.held.has(Locks::stripe(db, key)) && self.pin()
    }

    /// From here to the end of the command all reads see one moment. Gives whether that moment is
    /// one after earlier reads.
    pub(crate) fn pin(&mut self) -> bool {
        if self.view.is_some() {
            return false;
        }
        let snapshot = self.space.db.snapshot();
        self.reading.snapshot = Some(snapshot.clone());
        self.view = Some(snapshot);
        true
    }

    /// From here to the end of the command all reads see one moment: for commands that look at keys
    /// which are not among their arguments.
    pub fn pin_now(&mut self) {
        self.pin();
    }

    /// How this command reads.
    pub(crate) fn reading(&self) -> &ReadOptions {
        &self.reading
    }

    fn end_view(&mut self) {
        if self.view.take().is_some() {
            self.reading.snapshot = None;
        }
    }

    /// The engine's key of a user's key, in the memory of the last one; to be given back.
    fn take_user_key(&mut self, db: u8, key: &[u8]) -> Vec<u8> {
        let mut user_key = std::mem::take(&mut self.scratch);
        user_key.clear();
        self.space.layout.write_user_key(&mut user_key, db, key);
        user_key
    }

    /// Whether nothing stored is left of a database.
    pub(crate) fn is_flushed(&self, db: u8) -> bool {
        let is_flushed = self.flushed >> db & 1 == 1;
        self.saw_written(is_flushed);
        is_flushed
    }

    /// Whether the batch wrote something under this key.
    pub(crate) fn has_written(&self, user_key: &[u8]) -> bool {
        self.texts.get(user_key).is_some() || self.metas.get(user_key).is_some()
    }

    /// What the batch wrote was read, if `saw`.
    fn saw_written(&self, saw: bool) {
        if saw {
            self.took_part.set(true);
        }
    }

    /// Puts what this batch wrote into order, before [`Self::written_texts`] and [`Self::written_metas`].
    pub(crate) fn sort_written(&mut self) {
        self.texts.sort();
        self.metas.sort();
        self.saw_written(!(self.texts.is_empty() && self.metas.is_empty()));
    }

    /// What this batch wrote of strings.
    pub(crate) fn written_texts(&self) -> &PendingWrites<WrittenText> {
        &self.texts
    }

    /// What this batch wrote of collections.
    pub(crate) fn written_metas(&self) -> &PendingWrites<Option<Meta>> {
        &self.metas
    }

    /// Refuses to look at this many elements one after the other in [`Mode::Memory`], where others
    /// wait meanwhile.
    pub fn allow_walk(&self, elements: u64) -> Result<()> {
        /// About a millisecond.
        const LONG: u64 = 4096;
        match self.mode == Mode::Memory && elements > LONG {
            true => Err(Error::Elsewhere(Wait::Walk)),
            false => Ok(()),
        }
    }

    /// Refuses to make, or look through, this many bytes in [`Mode::Memory`]: that takes long, and so does their commit.
    pub fn allow_bytes(&self, bytes: usize) -> Result<()> {
        /// About a millisecond, or some.
        const LONG: usize = 1 << 20;
        match self.mode == Mode::Memory && bytes > LONG {
            true => Err(Error::Elsewhere(Wait::Walk)),
            false => Ok(()),
        }
    }

    /// Removes the note that a collection expires, if it is not that of `meta`. The lock is held.
    pub(crate) fn forget_stale_note(&mut self, note: &[u8]) {
        self.batch.delete_cf(self.space.notes(), note);
    }

    /// Refuses a key that is too long to be written.
    pub(crate) fn check_key(&self, key: &[u8]) -> Result<()> {
        encode::check_key(self.space.layout, key)
    }

    fn expect_lock(&self, db: u8, key: &[u8]) {
        debug_assert!(self.held.has(Locks::stripe(db, key)), "a key is written without its lock");
    }
}

impl Drop for CommandBatch {
    fn drop(&mut self) {
        self.abandon();
    }
}
