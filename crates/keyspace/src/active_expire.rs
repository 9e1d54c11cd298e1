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
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;
use terrace::{Options, ReadOptions};

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
        let space = Self::open_without_active_expire(path, options)?;
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
        batch.lock_in(notes.iter().map(|note| (note.db, &note.key[..])))?;
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

    /// Notes of all databases: each database's are in the order of time.
    fn due_notes(&self) -> Result<Vec<Note>> {
        let mut notes = Vec::new();
        if self.with_collections.is_empty() {
            return Ok(notes);
        }
        let now_ms = self.now_ms();
        let prefix = Some(vec![EXPIRIES]);
        let options = ReadOptions { prefix, keys_only: true, ..ReadOptions::default() };
        let mut iter = self.collections.iter_with(&options)?;
        iter.seek_to_first()?;
        while iter.valid() && notes.len() < STEP_NOTES {
            let Some((db, expires_at_ms, key)) = encode::expiry_of(iter.key()) else {
                iter.next()?;
                continue;
            };
            if expires_at_ms > now_ms {
                iter.seek(&[EXPIRIES, db + 1])?;
                continue;
            }
            let (engine_key, key) = (iter.key().to_vec(), key.to_vec());
            notes.push(Note { engine_key, db, expires_at_ms, key });
            iter.next()?;
        }
        Ok(notes)
    }
}

/// Starts the thread that calls [`Keyspace::expire_due`] as long as the keyspace lives.
fn start(space: Weak<Keyspace>) -> std::io::Result<BackgroundThread> {
    BackgroundThread::start("terrace-expire", PAUSE, move || {
        Some(match space.upgrade()?.expire_due() {
            Ok(done) if done.notes > 0 => BREATH,
            Ok(_) => PAUSE,
            Err(error) => {
                tracing::warn!(%error, "expired collections are not removed now");
                PAUSE
            }
        })
    })
}
