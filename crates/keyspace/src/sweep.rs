//! Collections that have expired are removed: expired strings are the engine's to drop, collections
//! are found through the notes of when they expire.
//!
//! A note may be stale: what it speaks of has been removed with its whole database, or lives longer
//! now. So every note is only a hint where to look; what is there is read again under the lock of
//! the key, and if it is not what the note says, the note alone goes. Whoever reads a collection
//! looks at the clock itself: a sweep frees space, and nobody sees a difference.

use crate::encode::{self, EXPIRIES};
use crate::error::Result;
use crate::space::Keyspace;
use crate::turn::Mode;
use parking_lot::{Condvar, Mutex};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;
use terrace::ReadOptions;

/// Notes that one step looks at.
const STEP_NOTES: usize = 64;

/// How long the thread sleeps if there is nothing to do.
const PAUSE: Duration = Duration::from_millis(500);
/// How long it sleeps between two steps, so that others get their turn.
const BREATH: Duration = Duration::from_millis(1);

/// What a step of sweeping did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Swept {
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
    /// Removes some of the collections that have expired. Waits for the locks of their keys.
    pub fn sweep(self: &Arc<Self>) -> Result<Swept> {
        let mut swept = Swept::default();
        let notes = self.due_notes()?;
        if notes.is_empty() {
            return Ok(swept);
        }
        let mut turn = self.turn(Mode::Device);
        turn.lock_in(notes.iter().map(|note| (note.db, &note.key[..])))?;
        for note in &notes {
            swept.notes += 1;
            match turn.stored_meta(note.db, &note.key)? {
                Some(meta)
                    if meta.expires_at_ms == note.expires_at_ms
                        && meta.is_expired(turn.now_ms()) =>
                {
                    turn.drop_collection(note.db, &note.key, &meta)?;
                    swept.collections += 1;
                }
                _ => turn.forget_stale_note(&note.engine_key),
            }
        }
        turn.commit()?;
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

/// The thread that sweeps.
pub(crate) struct Sweeper {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Sweeper {
    /// Sweeps `space` from time to time as long as it lives.
    pub fn start(space: Weak<Keyspace>) -> std::io::Result<Self> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let stops = stop.clone();
        let work = move || {
            let mut pause = PAUSE;
            loop {
                {
                    let mut stopped = stops.0.lock();
                    if !*stopped {
                        stops.1.wait_for(&mut stopped, pause);
                    }
                    if *stopped {
                        return;
                    }
                }
                let Some(space) = space.upgrade() else { return };
                pause = match space.sweep() {
                    Ok(swept) if swept.notes > 0 => BREATH,
                    Ok(_) => PAUSE,
                    Err(error) => {
                        tracing::warn!(%error, "expired collections are not removed now");
                        PAUSE
                    }
                };
            }
        };
        let thread = std::thread::Builder::new().name("terrace-sweep".into()).spawn(work)?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Stops the thread, and waits for its step to end.
    pub fn stop(&mut self) {
        *self.stop.0.lock() = true;
        self.stop.1.notify_all();
        let Some(thread) = self.thread.take() else { return };
        // The thread itself drops the keyspace if all others let go of it during a step.
        if thread.thread().id() != std::thread::current().id() {
            // Nothing is left to do about a panic there.
            let _ = thread.join();
        }
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        self.stop();
    }
}
