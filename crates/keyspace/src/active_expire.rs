//! Collections that have expired are removed: expired strings are the engine's to drop, collections
//! are found through the notes of when they expire.
//!
//! A note may be stale: what it speaks of has been removed with its whole database, or lives longer
//! now. So every note is only a hint where to look; what is there is read again under the lock of
//! the key, and if it is not what the note says, the note alone goes. A read of a collection
//! looks at the clock itself: removing it frees space, and nobody sees a difference.

use crate::background_thread::BackgroundThread;
use crate::command_batch::{CommandBatch, Mode};
use crate::encode::{self, EXPIRIES};
use crate::error::{Error, Result};
use crate::first_expiries::{DuePart, Part};
use crate::key_layout::MAX_DATABASES;
use crate::keyspace::Keyspace;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;
use terrace::{Iter, Options, ReadOptions};
use terrace_cluster::{Placement, SLOT_COUNT};

/// Notes that one step looks at.
const STEP_NOTES: usize = 64;

/// Times that one step looks for the next part of the store.
const STEP_PARTS: usize = 1024;

/// Parts of the store that cannot be read, at which a step ends: a device may take seconds to say so.
const MAX_UNREAD: usize = 8;

/// How long the thread sleeps if there is nothing to do.
const PAUSE: Duration = Duration::from_millis(500);
/// How long it sleeps between two steps, so that others get their batch.
const BREATH: Duration = Duration::from_millis(1);

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExpireProgress {
    /// Collections that were removed.
    pub collections: u64,
    /// Notes that were due, and are done with: if 0, there is nothing more to do now.
    pub notes: u64,
    /// Collections that stay for now, with their notes: what is stored of them is damaged, or the device does not give it.
    /// They are tried again later.
    pub left: u64,
    /// Removed entries of the store that the search for notes stepped over.
    pub passed: u64,
}

/// A note that is due.
struct Note {
    engine_key: Vec<u8>,
    db: u8,
    expires_at_ms: u64,
    key: Vec<u8>,
}

impl Keyspace {
    /// Opens the store at `path`, or creates it if the options say so. A thread removes collections
    /// that have expired, until the keyspace is dropped.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Arc<Self>> {
        Self::open_active(path, options, None)
    }

    /// As [`Self::open`], with the placement of a new store, which an old one must have.
    ///
    /// # Errors
    /// The store has another placement ([`Error::OtherStore`]), and those of the engine.
    pub fn open_placed(
        path: impl AsRef<Path>,
        options: Options,
        placement: Placement,
    ) -> Result<Arc<Self>> {
        Self::open_active(path, options, Some(placement))
    }

    fn open_active(
        path: impl AsRef<Path>,
        options: Options,
        placement: Option<Placement>,
    ) -> Result<Arc<Self>> {
        let space = Self::open_without_active_expire(path, options, placement)?;
        let active_expire = start(Arc::downgrade(&space)).map_err(|error| {
            let what = format!("the thread that removes what expires cannot be started ({error})");
            Error::Engine(terrace::Error::InvalidArgument(what))
        })?;
        *space.active_expire.lock() = Some(active_expire);
        Ok(space)
    }

    /// Removes some of the collections that have expired. Waits for the locks of their keys.
    pub fn expire_due(self: &Arc<Self>) -> Result<ExpireProgress> {
        let found = self.due_notes()?;
        let removed = match found.notes.is_empty() {
            true => Ok(ExpireProgress::default()),
            false => self.remove_due(&found.notes),
        };
        if removed.is_err() {
            self.look_again(&found);
        }
        Ok(ExpireProgress { passed: found.passed, ..removed? })
    }

    fn remove_due(self: &Arc<Self>, notes: &[Note]) -> Result<ExpireProgress> {
        let mut swept = ExpireProgress::default();
        let mut batch = self.command_batch(Mode::Device);
        batch.lock_in(notes.iter().map(|note| (note.db, &note.key[..])))?;
        for note in notes {
            match remove_one(&mut batch, note) {
                Ok(is_collection) => {
                    swept.notes += 1;
                    swept.collections += u64::from(is_collection);
                }
                // Nothing of it is in the batch. It would keep all that expire later.
                Err(error) if is_of_stored(&error) => {
                    swept.left += 1;
                    let part = self.part_of(&note.engine_key, note.db);
                    self.first_expiries.leave(part, note.expires_at_ms, self.monotonic_us());
                }
                Err(error) => return Err(error),
            }
        }
        batch.commit_sweep(&notes.iter().map(|note| (note.db, note.key.clone())).collect())?;
        Ok(swept)
    }

    /// Some of the notes that are due.
    fn due_notes(&self) -> Result<DueNotes> {
        let mut found = DueNotes::default();
        if self.with_collections.is_empty() {
            return Ok(found);
        }
        self.first_expiries.retry_left(self.monotonic_us());
        let mut outcome = match self.first_expiries.next_to_learn() {
            Some(next) => self.learn_parts(next, &mut found.passed),
            None => Ok(()),
        };
        let now_ms = self.now_ms();
        let mut unread = 0;
        while found.notes.len() < STEP_NOTES && unread < MAX_UNREAD {
            let Some(due) = self.first_expiries.take_due(now_ms) else {
                // All others have had their turn.
                self.first_expiries.put_back_aside();
                break;
            };
            match self.gather_from(&due, now_ms, &mut found) {
                Ok(()) => {}
                Err(error) if is_of_stored(&error) => {
                    self.first_expiries.set_aside(due);
                    unread += 1;
                    outcome = Err(error);
                }
                Err(error) => {
                    self.first_expiries.put_back(due);
                    self.look_again(&found);
                    return Err(error);
                }
            }
        }
        // What is found is removed first.
        if found.notes.is_empty() {
            outcome?;
        }
        Ok(found)
    }

    /// What was found is not removed.
    fn look_again(&self, found: &DueNotes) {
        for (part, since_ms) in &found.parts {
            self.first_expiries.lower(*part, *since_ms);
        }
    }

    /// Looks once into parts of the store that have notes, from `first` on, for the first one of each. Goes on behind what
    /// is damaged. `passed`: removed entries that were stepped over.
    fn learn_parts(&self, first: Part, passed: &mut u64) -> Result<()> {
        let behind = match self.layout.has_slots() {
            true => SLOT_COUNT.to_be_bytes().to_vec(),
            false => vec![EXPIRIES + 1],
        };
        let options =
            ReadOptions { upper_bound: Some(behind), keys_only: true, ..ReadOptions::default() };
        let mut iter = self.notes().iter_with(&options)?;
        let (mut next, mut outcome, mut unread) = (Some(first), Ok(()), 0);
        for _ in 0..STEP_PARTS {
            let Some(part) = next.filter(|_| unread < MAX_UNREAD) else { break };
            next = match self.learn_next(&mut iter, part) {
                Ok(next) => next,
                Err(error) if is_of_stored(&error) => {
                    self.first_expiries.leave_unknown(self.monotonic_us());
                    // The device does not wait for what is damaged.
                    unread += usize::from(!is_damage(&error));
                    outcome = Err(error);
                    self.part_behind(part)
                }
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            };
        }
        *passed += iter.stepped_over();
        self.first_expiries.learnt_up_to(next);
        outcome
    }

    /// Looks for the first note of this part or of one behind it. Gives the part to go on with.
    fn learn_next(&self, iter: &mut Iter, part: Part) -> Result<Option<Part>> {
        iter.seek(&encode::expiries_of(self.layout, part))?;
        if !iter.valid() {
            return Ok(None);
        }
        let found = self.part_of(iter.key(), 0);
        Ok(match iter.key().get(self.layout.slot_bytes()..) {
            Some([EXPIRIES, db, ..]) => {
                let part = Part { db: *db, ..found };
                let note = encode::expiry_of(self.layout, iter.key());
                self.first_expiries.lower(part, note.map_or(0, |(_, at_ms, _)| at_ms));
                let behind = db.checked_add(1).map(|db| Part { db, ..found });
                behind.or_else(|| self.slot_behind(found))
            }
            // Behind the notes of the slot.
            Some([first, ..]) if *first > EXPIRIES => self.slot_behind(found),
            Some(_) => Some(found),
            None => None,
        })
    }

    /// The part of this database, in the slot of a key of the engine.
    fn part_of(&self, engine_key: &[u8], db: u8) -> Part {
        let slot = engine_key.first_chunk().filter(|_| self.layout.has_slots());
        Part { slot: slot.map_or(0, |slot| u16::from_be_bytes(*slot)), db }
    }

    /// The part behind this one that may have notes.
    fn part_behind(&self, part: Part) -> Option<Part> {
        let used = if self.layout.has_slots() { &self.written } else { &self.with_collections };
        let mut dbs = (0..MAX_DATABASES as u8).filter(|db| *db > part.db && used.has(*db));
        dbs.next().map(|db| Part { db, ..part }).or_else(|| self.slot_behind(part))
    }

    /// The first part of the slot behind that of this one.
    fn slot_behind(&self, part: Part) -> Option<Part> {
        let slot = part.slot.saturating_add(1);
        (self.layout.has_slots() && slot < SLOT_COUNT).then_some(Part { slot, db: 0 })
    }

    /// Whether there may be parts that it has not looked into since the store was opened, or since a pause.
    fn is_learning(&self) -> bool {
        !self.with_collections.is_empty() && self.first_expiries.next_to_learn().is_some()
    }

    /// Goes to a part of the store, whose notes are in the order of time, until there are enough.
    fn gather_from(&self, due: &DuePart, now_ms: u64, found: &mut DueNotes) -> Result<()> {
        let DuePart { part, since_ms, next } = due;
        let stem = encode::expiries_of(self.layout, *part);
        let options =
            ReadOptions { prefix: Some(stem.clone()), keys_only: true, ..ReadOptions::default() };
        let mut iter = self.notes().iter_with(&options)?;
        // Not from the beginning: there is what was removed before.
        match next {
            Some(key) => iter.seek(key)?,
            None => iter.seek(&[&stem[..], &since_ms.to_be_bytes()].concat())?,
        }
        let before = found.notes.len();
        let left = self.gather_notes(&mut iter, &stem, now_ms, &mut found.notes)?;
        found.passed += iter.stepped_over();
        if found.notes.len() > before {
            found.parts.push((*part, *since_ms));
        }
        match left {
            Some(NoteLeft { expires_at_ms, is_due: true }) => {
                let key = iter.key().to_vec();
                self.first_expiries.lower_to_next(*part, expires_at_ms, key);
            }
            Some(NoteLeft { expires_at_ms, is_due: false }) => {
                self.first_expiries.lower(*part, expires_at_ms);
            }
            None => {}
        }
        Ok(())
    }

    /// From where `iter` stands, as long as keys begin with `stem`, which is of one part: its notes are in the order
    /// of time. Gives the first one that is left, where `iter` stands then.
    fn gather_notes(
        &self,
        iter: &mut Iter,
        stem: &[u8],
        now_ms: u64,
        notes: &mut Vec<Note>,
    ) -> Result<Option<NoteLeft>> {
        while iter.valid() && iter.key().starts_with(stem) {
            let Some((db, expires_at_ms, key)) = encode::expiry_of(self.layout, iter.key()) else {
                iter.next()?;
                continue;
            };
            let is_due = expires_at_ms <= now_ms;
            if !is_due || notes.len() >= STEP_NOTES {
                return Ok(Some(NoteLeft { expires_at_ms, is_due }));
            }
            let (engine_key, key) = (iter.key().to_vec(), key.to_vec());
            notes.push(Note { engine_key, db, expires_at_ms, key });
            iter.next()?;
        }
        Ok(None)
    }
}

/// Removes what a note speaks of, if that has expired, and the note; whether there was a collection.
fn remove_one(batch: &mut CommandBatch, note: &Note) -> Result<bool> {
    let meta = batch
        .stored_meta(note.db, &note.key)?
        .filter(|meta| meta.expires_at_ms == note.expires_at_ms && meta.is_expired(batch.now_ms()));
    match &meta {
        Some(meta) => batch.drop_collection(note.db, &note.key, meta)?,
        None => batch.forget_stale_note(&note.engine_key),
    }
    Ok(meta.is_some())
}

/// Whether `error` is of what is stored: reads of something else do not meet it.
fn is_of_stored(error: &Error) -> bool {
    match error {
        Error::Engine(terrace::Error::Io(cause)) => !cause.is_transient(),
        _ => is_damage(error),
    }
}

/// Whether `error` says that what is stored is damaged.
fn is_damage(error: &Error) -> bool {
    matches!(error, Error::Engine(terrace::Error::Corruption(_)))
}

/// What a search has found.
#[derive(Default)]
struct DueNotes {
    notes: Vec<Note>,
    /// What they are of: parts, and since when to search them if the notes are not removed.
    parts: Vec<(Part, u64)>,
    /// See [`ExpireProgress::passed`].
    passed: u64,
}

/// The first note of a part that was not gathered.
struct NoteLeft {
    expires_at_ms: u64,
    /// There were enough.
    is_due: bool,
}

/// Starts the thread that calls [`Keyspace::expire_due`] and [`Keyspace::renew_watches`] as long as the keyspace lives.
fn start(space: Weak<Keyspace>) -> std::io::Result<BackgroundThread> {
    // What the log has last, so that it has it once: an error is met at every step as long as it lasts.
    let (mut last_error, mut is_told) = (None, false);
    BackgroundThread::start("terrace-expire", PAUSE, move || {
        let space = space.upgrade()?;
        space.renew_watches();
        let step = space.expire_due();
        let error = step.as_ref().err().map(ToString::to_string);
        if let Some(error) = error.as_ref().filter(|_| error != last_error) {
            tracing::warn!(%error, "expired collections are not removed now");
        }
        last_error = error;
        let Ok(done) = step else { return Some(PAUSE) };
        if done.left > 0 && !std::mem::replace(&mut is_told, true) {
            tracing::warn!("expired collections that are damaged, or cannot be read, stay for now");
        }
        // What is left is not tried again before a pause is over.
        let goes_on = done.notes + done.left > 0 || space.is_learning();
        Some(if goes_on { BREATH } else { PAUSE })
    })
}
