//! Keys that somebody watches: whether one of them has been written since.
//!
//! The engine tells whether a key was written, and what a flush removed counts as written, also
//! where nothing was. In Redis a flush changes only keys that are there: so the commit of a flush
//! looks at who watches, while it holds all locks, and those whose keys were not there and were not
//! written watch from then on. The sweep of collections that have expired does the same, for the keys that it removes.
//!
//! A key that expires is not written, and the engine tells nothing of it. In Redis a transaction fails then as well, if the
//! key was there when it was watched: so a watch knows when the first of its keys expires. Another expiry is a write.
//!
//! A read set keeps, of all keys of the store, what is overwritten or deleted after its moment. A client may watch for
//! days. So a watch that is old is renewed: if none of its keys was written, it watches them from now on, else it
//! keeps only that one was.

use crate::error::Result;
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use terrace::{Db, ReadSet};

/// Keys, with their databases.
pub type Keys = BTreeSet<(u8, Vec<u8>)>;

/// How old a watch gets until it is renewed.
const RENEWED_AFTER_US: u64 = 10_000_000;

/// So much older for each of its keys: to ask for one costs some microseconds.
const RENEWED_AFTER_US_PER_KEY: u64 = 100;

/// How often is looked for watches that are old.
const LOOK_EVERY_US: u64 = 1_000_000;

/// What a watched key takes in memory beside its bytes, about: it stands in the set of keys, and twice in the read set.
const KEY_BYTES: usize = 192;

/// Bytes of memory of a watched key, about.
fn held_bytes_of(key: &[u8]) -> usize {
    3 * key.len() + KEY_BYTES
}

/// The keys that one client watches.
pub struct Watch {
    state: Mutex<State>,
    held_bytes: AtomicUsize,
}

struct State {
    /// Each key from when it was watched first, or from a renewal on; `None`: one of them has been written.
    reads: Option<ReadSet>,
    /// The moment of `reads` by the monotonic clock.
    since_us: u64,
    keys: Keys,
    /// When the first of the keys expires that were there, in ms since 1970; `u64::MAX` if none does.
    first_expiry_ms: u64,
    /// Grows when keys are added and when they are watched from a later moment on.
    changes: u64,
}

/// All that watch.
#[derive(Default)]
pub(crate) struct Watches {
    all: Mutex<Vec<Weak<Watch>>>,
    /// When is looked for old ones next, by the monotonic clock.
    next_look_us: AtomicU64,
    renewals: Mutex<()>,
}

impl Watches {
    pub fn add(&self, watch: &Arc<Watch>) {
        let mut all = self.all.lock();
        if all.len() == all.capacity() {
            all.retain(|watch| watch.strong_count() > 0);
        }
        all.push(Arc::downgrade(watch));
    }

    pub fn live(&self) -> Vec<Arc<Watch>> {
        let mut all = self.all.lock();
        all.retain(|watch| watch.strong_count() > 0);
        all.iter().filter_map(Weak::upgrade).collect()
    }

    /// As long as it is held, none of them is renewed by others since it is old.
    pub fn hold_renewals(&self) -> MutexGuard<'_, ()> {
        self.renewals.lock()
    }

    /// All that watch, if it is time to look at them.
    pub fn to_look_at(&self, now_us: u64) -> Vec<Arc<Watch>> {
        if now_us < self.next_look_us.load(Ordering::Relaxed) {
            return Vec::new();
        }
        self.next_look_us.store(now_us + LOOK_EVERY_US, Ordering::Relaxed);
        self.live()
    }
}

impl Watch {
    /// No keys yet; `reads` is of now.
    pub(crate) fn new(reads: ReadSet, now_us: u64) -> Arc<Self> {
        let (keys, first_expiry_ms) = (Keys::new(), u64::MAX);
        let state =
            State { reads: Some(reads), since_us: now_us, keys, first_expiry_ms, changes: 0 };
        Arc::new(Self { state: Mutex::new(state), held_bytes: AtomicUsize::new(0) })
    }

    /// Watches `keys` too; `take_in` is called for those that are new, and watches one from now on. Gives whether all
    /// keys then take no more than `most_bytes` of memory; else nothing is changed.
    pub(crate) fn add<'k>(
        &self,
        keys: impl Iterator<Item = (u8, &'k [u8])>,
        most_bytes: usize,
        mut take_in: impl FnMut(&mut ReadSet, u8, &[u8]),
    ) -> bool {
        let State { reads, keys: known, changes, .. } = &mut *self.state.lock();
        let fresh = keys.filter(|(db, key)| !known.contains(&(*db, key.to_vec())));
        let fresh: BTreeSet<(u8, &[u8])> = fresh.collect();
        let more: usize = fresh.iter().map(|(_, key)| held_bytes_of(key)).sum();
        if self.held_bytes() + more > most_bytes {
            return false;
        }
        if !fresh.is_empty() {
            *changes += 1;
        }
        for (db, key) in fresh {
            known.insert((db, key.to_vec()));
            self.held_bytes.fetch_add(held_bytes_of(key), Ordering::Relaxed);
            if let Some(reads) = reads {
                take_in(reads, db, key);
            }
        }
        true
    }

    /// One of the keys expires at this time, in ms since 1970, as it is now that it is watched.
    pub fn note_expiry(&self, at_ms: u64) {
        let mut state = self.state.lock();
        state.first_expiry_ms = state.first_expiry_ms.min(at_ms);
    }

    /// Whether one of the keys has expired that were there when they were watched. Of keys that were written since it may
    /// say either.
    pub fn has_expired(&self, now_ms: u64) -> bool {
        self.state.lock().first_expiry_ms <= now_ms
    }

    /// Watches the same keys from a later moment on, if they are those of `keys` still.
    pub(crate) fn renew(&self, keys: &Keys, now_us: u64, reads_of: impl FnOnce(&Keys) -> ReadSet) {
        let mut state = self.state.lock();
        // None is ever taken out.
        if state.keys.len() == keys.len() {
            state.reads = Some(reads_of(&state.keys));
            state.since_us = now_us;
            state.changes += 1;
        }
    }

    /// If it is old and none of its keys has been written, as `is_unchanged` says, it watches them from now on, by what
    /// `reads_of` gives; if one has, it keeps that. Nobody waits for `is_unchanged`, which may read the device. If it is
    /// changed meanwhile, it stays as it is.
    ///
    /// # Errors
    /// Those of `is_unchanged`; it stays as it is.
    pub(crate) fn renew_if_old(
        &self,
        now_us: u64,
        reads_of: impl FnOnce(&Keys) -> ReadSet,
        is_unchanged: impl FnOnce(&ReadSet) -> Result<bool>,
    ) -> Result<()> {
        let (reads, later, changes, since_us) = {
            let mut state = self.state.lock();
            let age_us = now_us.saturating_sub(state.since_us);
            if age_us < RENEWED_AFTER_US + state.keys.len() as u64 * RENEWED_AFTER_US_PER_KEY {
                return Ok(());
            }
            let Some(reads) = state.reads.clone() else { return Ok(()) };
            // After an error, too, it is not looked at again at once.
            let since_us = std::mem::replace(&mut state.since_us, now_us);
            // Before the old one is asked: what is written from here on is newer than both.
            (reads, reads_of(&state.keys), state.changes, since_us)
        };
        let is_unchanged = is_unchanged(&reads)?;
        let mut state = self.state.lock();
        if state.changes == changes {
            state.reads = is_unchanged.then_some(later);
        } else if state.since_us == now_us {
            // Nobody else has renewed it: it is as old as it was.
            state.since_us = since_us;
        }
        Ok(())
    }

    /// What is watched.
    pub fn keys(&self) -> Keys {
        self.state.lock().keys.clone()
    }

    /// Bytes of memory that it takes, about.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// Those of these keys that it watches. Costs a search for each key of the fewer.
    pub(crate) fn among(&self, keys: &Keys) -> Keys {
        let state = self.state.lock();
        let (few, many) = match state.keys.len() < keys.len() {
            true => (&state.keys, keys),
            false => (keys, &state.keys),
        };
        few.iter().filter(|key| many.contains(*key)).cloned().collect()
    }

    /// Its keys, each from when it is watched; `None` if it knows that one of them has been written.
    pub(crate) fn reads(&self) -> Option<ReadSet> {
        self.state.lock().reads.clone()
    }

    /// Watches these of its keys from now on, by `take_in`, unless it knows that one of all has been written.
    pub(crate) fn watch_anew(&self, keys: &Keys, mut take_in: impl FnMut(&mut ReadSet, u8, &[u8])) {
        let State { reads, changes, .. } = &mut *self.state.lock();
        if let Some(reads) = reads.as_mut().filter(|_| !keys.is_empty()) {
            keys.iter().for_each(|(db, key)| take_in(reads, *db, key));
            *changes += 1;
        }
    }

    /// Whether none of the keys has been written.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn is_unchanged(&self, db: &Db) -> Result<bool> {
        // Not locked while it may read the device.
        match self.reads() {
            Some(reads) => Ok(db.is_unchanged(&reads)?),
            None => Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace::Options;
    use terrace::vfs::SimVfs;

    const OLD_US: u64 = 60_000_000;

    fn opened() -> Db {
        let mut options = Options::default();
        options.advanced.vfs = Arc::new(SimVfs::new(1));
        Db::open("/db", options).unwrap()
    }

    fn reads_of(db: &Db, keys: &Keys) -> ReadSet {
        let mut reads = db.read_set();
        keys.iter().for_each(|(_, key)| reads.watch(&db.default_family(), key));
        reads
    }

    fn add(db: &Db, watch: &Watch, key: &[u8]) {
        let take_in = |reads: &mut ReadSet, _: u8, key: &[u8]| {
            reads.watch_from_now(&db.default_family(), key);
        };
        assert!(watch.add(std::iter::once((0, key)), usize::MAX, take_in));
    }

    #[test]
    fn nobody_waits_for_a_renewal_that_reads_the_device() {
        let db = opened();
        let reads_of = |keys: &Keys| reads_of(&db, keys);
        let watch = Watch::new(db.read_set(), 0);
        add(&db, &watch, b"k");
        let mut asked = 0;
        let renewed = watch.renew_if_old(OLD_US, reads_of, |reads| {
            asked += 1;
            assert!(watch.state.try_lock().is_some(), "others wait");
            Ok(db.is_unchanged(reads)?)
        });
        renewed.unwrap();
        // A key that is added meanwhile is not forgotten, nor is what a flush leaves as it is taken for a change.
        let renewed = watch.renew_if_old(2 * OLD_US, reads_of, |_| {
            asked += 1;
            add(&db, &watch, b"l");
            Ok(true)
        });
        renewed.unwrap();
        let renewed = watch.renew_if_old(3 * OLD_US, reads_of, |_| {
            asked += 1;
            watch.renew(&watch.keys(), 3 * OLD_US, reads_of);
            Ok(false)
        });
        renewed.unwrap();
        assert_eq!((asked, watch.keys().len()), (3, 2));
        assert!(watch.is_unchanged(&db).unwrap());
        db.put(b"l", b"v").unwrap();
        assert!(!watch.is_unchanged(&db).unwrap());
    }

    #[test]
    fn the_first_expiry_of_its_keys_outlives_renewals() {
        let db = opened();
        let reads_of = |keys: &Keys| reads_of(&db, keys);
        let watch = Watch::new(db.read_set(), 0);
        add(&db, &watch, b"k");
        assert!(!watch.has_expired(u64::MAX - 1), "no key expires");
        [700, 500, 900].into_iter().for_each(|at_ms| watch.note_expiry(at_ms));
        watch.renew(&watch.keys(), OLD_US, reads_of);
        watch.renew_if_old(3 * OLD_US, reads_of, |_| Ok(true)).unwrap();
        assert!(watch.is_unchanged(&db).unwrap());
        assert!(!watch.has_expired(499) && watch.has_expired(500));
    }

    #[test]
    fn a_watch_is_renewed_although_its_client_goes_on_to_watch() {
        let db = opened();
        let reads_of = |keys: &Keys| reads_of(&db, keys);
        let watch = Watch::new(db.read_set(), 0);
        add(&db, &watch, b"k");
        // With a key that is new the renewal is in vain, and the next look tries again.
        let mut asked = 0;
        let renewed = watch.renew_if_old(OLD_US, reads_of, |_| {
            asked += 1;
            add(&db, &watch, b"l");
            Ok(false)
        });
        renewed.unwrap();
        assert!(watch.is_unchanged(&db).unwrap());
        // One that is watched already changes nothing.
        let renewed = watch.renew_if_old(OLD_US + LOOK_EVERY_US, reads_of, |_| {
            asked += 1;
            add(&db, &watch, b"k");
            Ok(false)
        });
        renewed.unwrap();
        assert_eq!(asked, 2);
        assert!(!watch.is_unchanged(&db).unwrap(), "what was found is forgotten");
    }
}
