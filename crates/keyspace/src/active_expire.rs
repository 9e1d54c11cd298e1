//! Collections that have expired are removed: expired strings are the engine's to drop, collections
//! are found through the notes of when they expire.
//!
//! A note may be stale: what it speaks of has been removed with its whole database, or lives longer
//! now. So every note is only a hint where to look; what is there is read again under the lock of
//! the key, and if it is not what the note says, the note alone goes. A read of a collection
//! looks at the clock itself: removing it frees space, and nobody sees a difference.

use crate::background_thread::BackgroundThread;
use crate::command_batch::Mode;
use crate::encode::{self, EXPIRIES};
use crate::error::{Error, Result};
use crate::keyspace::Keyspace;
use crate::slot_expiries::SlotExpiries;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;
use terrace::{Iter, Options, ReadOptions};
use terrace_cluster::{Placement, SLOT_COUNT, Slot};

/// Notes that one step looks at.
const STEP_NOTES: usize = 64;

/// How long the thread sleeps if there is nothing to do.
const PAUSE: Duration = Duration::from_millis(500);
/// How long it sleeps between two steps, so that others get their batch.
const BREATH: Duration = Duration::from_millis(1);

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExpireProgress {
    /// Collections that were removed.
    pub collections: u64,
    /// Notes that were due: if 0, there is nothing more to do now.
    pub notes: u64,
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
        let mut swept = ExpireProgress::default();
        let notes = self.due_notes()?;
        if notes.is_empty() {
            return Ok(swept);
        }
        let mut batch = self.command_batch(Mode::Device);
        batch.lock_for_sweep(notes.iter().map(|note| (note.db, &note.key[..])))?;
        for note in &notes {
            swept.notes += 1;
            match batch.stored_meta(note.db, &note.key)? {
                Some(meta)
                    if meta.expires_at_ms == note.expires_at_ms
                        && meta.is_expired(batch.now_ms()) =>
                {
                    batch.drop_collection(note.db, &note.key, &meta)?;
                    swept.collections += 1;
                }
                _ => batch.forget_stale_note(&note.engine_key),
            }
        }
        batch.commit()?;
        Ok(swept)
    }

    /// Notes of all databases that are due: each database's are in the order of time.
    fn due_notes(&self) -> Result<Vec<Note>> {
        let mut notes = Vec::new();
        if self.with_collections.is_empty() {
            return Ok(notes);
        }
        let now_ms = self.now_ms();
        match &self.slot_expiries {
            None => {
                let options = ReadOptions {
                    prefix: Some(vec![EXPIRIES]),
                    keys_only: true,
                    ..ReadOptions::default()
                };
                let mut iter = self.notes().iter_with(&options)?;
                iter.seek_to_first()?;
                self.gather_notes(&mut iter, &[EXPIRIES], now_ms, &mut notes)?;
            }
            Some(times) => {
                let due = times.take_due(now_ms);
                let mut visited = 0;
                let outcome = self.gather_from_slots(times, &due, &mut visited, now_ms, &mut notes);
                due.iter().skip(visited).for_each(|(slot, time)| times.lower(*slot, *time));
                outcome?;
            }
        }
        Ok(notes)
    }

    /// Goes to the slots of `due`, in order, until there are enough notes. `visited`: this many slots have
    /// got their new times.
    fn gather_from_slots(
        &self,
        times: &SlotExpiries,
        due: &[(Slot, u64)],
        visited: &mut usize,
        now_ms: u64,
        notes: &mut Vec<Note>,
    ) -> Result<()> {
        let options = ReadOptions {
            upper_bound: Some(SLOT_COUNT.to_be_bytes().to_vec()),
            keys_only: true,
            ..ReadOptions::default()
        };
        let mut iter = self.notes().iter_with(&options)?;
        for (number, (slot, time)) in due.iter().enumerate() {
            let [high, low] = slot.number().to_be_bytes();
            let stem = [high, low, EXPIRIES];
            // Where it stands there is no earlier key: if that is behind, the slot has no notes.
            let is_behind = iter.valid() && iter.key() >= &[high, low, EXPIRIES + 1][..];
            if number == 0 || (iter.valid() && !is_behind) {
                iter.seek(&stem)?;
            }
            let before = notes.len();
            let Gathered { is_full, next } = self.gather_notes(&mut iter, &stem, now_ms, notes)?;
            if is_full {
                return Ok(());
            }
            if notes.len() > before {
                // To be looked at again: their removal may fail.
                times.lower(*slot, *time);
            }
            if let Some(next) = next {
                times.lower(*slot, next);
            }
            *visited = number + 1;
        }
        Ok(())
    }

    /// From where `iter` stands, as long as keys begin with `stem`.
    fn gather_notes(
        &self,
        iter: &mut Iter,
        stem: &[u8],
        now_ms: u64,
        notes: &mut Vec<Note>,
    ) -> Result<Gathered> {
        let mut gathered = Gathered::default();
        while iter.valid() && iter.key().starts_with(stem) {
            let Some((db, expires_at_ms, key)) = encode::expiry_of(self.layout, iter.key()) else {
                iter.next()?;
                continue;
            };
            if expires_at_ms > now_ms {
                let next = gathered.next.map_or(expires_at_ms, |next| expires_at_ms.min(next));
                gathered.next = Some(next);
                iter.seek(&[stem, &[db + 1]].concat())?;
                continue;
            }
            if notes.len() >= STEP_NOTES {
                gathered.is_full = true;
                break;
            }
            let (engine_key, key) = (iter.key().to_vec(), key.to_vec());
            notes.push(Note { engine_key, db, expires_at_ms, key });
            iter.next()?;
        }
        Ok(gathered)
    }
}

/// What a walk over notes came by.
#[derive(Debug, Default)]
struct Gathered {
    /// There were more that are due.
    is_full: bool,
    /// When the first of the others is.
    next: Option<u64>,
}

/// Starts the thread that calls [`Keyspace::expire_due`] and [`Keyspace::renew_watches`] as long as the keyspace lives.
fn start(space: Weak<Keyspace>) -> std::io::Result<BackgroundThread> {
    BackgroundThread::start("terrace-expire", PAUSE, move || {
        let space = space.upgrade()?;
        space.renew_watches();
        Some(match space.expire_due() {
            Ok(done) if done.notes > 0 => BREATH,
            Ok(_) => PAUSE,
            Err(error) => {
                tracing::warn!(%error, "expired collections are not removed now");
                PAUSE
            }
        })
    })
}
