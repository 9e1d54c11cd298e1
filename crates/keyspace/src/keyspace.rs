//! The keyspace: one engine with three families, ids for collections, and the locks of writers.

use crate::background_thread::BackgroundThread;
use crate::cursors::Cursors;
use crate::databases::Databases;
use crate::dead_runs::DeadRuns;
use crate::encode::{self, COLLECTIONS, ELEMENTS, IDS};
use crate::error::{Error, Result, Wait};
use crate::families::{Families, of_keys};
use crate::first_expiries::FirstExpiries;
use crate::key_layout::{KeyLayout, MAX_DATABASES};
use crate::locks::Locks;
use crate::move_records::{CLUSTER, MoveRecords};
use crate::store_kind::{self, StoreKind};
use crate::store_marks::{self, StoreMarks};
use crate::vain_counts::VainCounts;
use crate::watch::{Keys, Watch, Watches};
use parking_lot::Mutex;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use terrace::{Clock, ColumnFamily, Db, Options, ReadSet, WriteBatch};
use terrace_cluster::{Placement, slot_of};

/// Ids that are reserved by one write.
const RESERVED_IDS: u64 = 1 << 20;

/// How long a round of renewals of watches goes on, besides the last one of them.
const RENEWAL_US: u64 = 50_000;

/// What to say where there is no keyspace.
const PLAIN: &str =
    "it holds plain keys and values, not the data of a server; name another directory";

/// As [`PLAIN`], where a server's families are.
const UNMARKED: &str = "it has families `collections` and `elements` and none of a server's marks: they are of \
    another program, or the marks are lost with a damaged store; restore a backup, or name another directory";

/// Redis's databases in one store.
pub struct Keyspace {
    pub(crate) db: Db,
    pub(crate) strings: ColumnFamily,
    pub(crate) collections: ColumnFamily,
    pub(crate) elements: ColumnFamily,
    pub(crate) layout: KeyLayout,
    pub(crate) locks: Locks,
    pub(crate) clock: Arc<dyn Clock>,
    /// Databases that may hold a collection: in others, strings need not look for one.
    pub(crate) with_collections: Databases,
    /// With slots: databases in which anything was ever written. In others there is nothing.
    pub(crate) written: Databases,
    /// With slots: databases beside which no keys of others were found.
    pub(crate) alone: Databases,
    /// When the first collection of each part of the store may expire.
    pub(crate) first_expiries: FirstExpiries,
    /// Of hashes of keys that are in memory only.
    pub(crate) seed: u64,
    pub(crate) cursors: Cursors,
    pub(crate) watches: Watches,
    pub(crate) dead_runs: DeadRuns,
    pub(crate) vain_counts: VainCounts,
    pub(crate) moves: MoveRecords,
    pub(crate) active_expire: Mutex<Option<BackgroundThread>>,
    /// See [`Self::set_max_string_bytes`].
    pub(crate) max_string_bytes: AtomicUsize,
    next_id: AtomicU64,
    /// Ids from this one on are not reserved.
    reserved: AtomicU64,
    /// Held by who reserves more.
    reserving: Mutex<()>,
}

impl Keyspace {
    /// `call` is called whenever a key is free again that a batch was refused
    /// because another batch was writing it ([`Wait::Key`]). It must not wait, nor use the keyspace.
    ///
    /// [`Wait::Key`]: crate::Wait::Key
    pub fn on_release(&self, call: impl Fn() + Send + Sync + 'static) {
        self.locks.on_release(Box::new(call));
    }

    /// As [`Self::open`], without the thread: somebody calls [`Self::expire_due`] and [`Self::renew_watches`].
    /// `placement` is as in [`Self::open_placed`]; `None`: as the store has it, and `Range` if it is made.
    pub fn open_without_active_expire(
        path: impl AsRef<Path>,
        options: Options,
        placement: Option<Placement>,
    ) -> Result<Arc<Self>> {
        let clock = options.advanced.clock.clone();
        let mut options = options;
        // Every write of an element comes with one of its collection's record.
        let except = &mut options.advanced.write_tracking.except_families;
        except.extend([ELEMENTS.to_string(), CLUSTER.to_string()]);
        let db = Db::open(path, options)?;
        if StoreKind::of(&db)? == StoreKind::Plain {
            return Err(no_keyspace(&db));
        }
        let family = |name: &str| match db.column_family(name) {
            Some(family) => Ok(family),
            None => db.create_column_family(name, db.options().default_family.clone()),
        };
        let (collections, elements) = (family(COLLECTIONS)?, family(ELEMENTS)?);
        let families = Families { strings: db.default_family(), collections, elements };
        let marks = StoreMarks::open(&db, &families, placement)?;
        Self::over(db, families, marks, clock)
    }

    /// A keyspace to read, over a store that is open read-only: a batch can read, and cannot commit
    /// anything.
    ///
    /// # Errors
    /// The store holds something else, or nothing, or its mark is lost.
    pub fn read_only(db: Db) -> Result<Arc<Self>> {
        if StoreKind::of(&db)? != StoreKind::Keyspace {
            return Err(no_keyspace(&db));
        }
        let clock = db.options().advanced.clock.clone();
        let families = store_kind::families_to_read(&db)?;
        let marks = StoreMarks::read(&families)?;
        Self::over(db, families, marks, clock)
    }

    fn over(
        db: Db,
        families: Families,
        marks: StoreMarks,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Self>> {
        let Families { strings, collections, elements } = families;
        let StoreMarks { layout, first_id, written, .. } = marks;
        let with_collections = match layout.has_slots() {
            // Which have any is not known; what is written into others is said when the store is opened next.
            true if has_user_keys(&collections)? => Databases::all(),
            true => Databases::default(),
            false => databases_of(&collections)?,
        };
        let cursors = Cursors::new(clock.wall_ms());
        let space = Self {
            strings,
            collections,
            elements,
            layout,
            locks: Locks::new(),
            clock,
            with_collections,
            written,
            alone: Databases::default(),
            first_expiries: FirstExpiries::default(),
            seed: RandomState::new().hash_one(0),
            cursors,
            watches: Watches::default(),
            dead_runs: DeadRuns::default(),
            vain_counts: VainCounts::default(),
            moves: MoveRecords::load(&db, layout)?,
            active_expire: Mutex::new(None),
            max_string_bytes: AtomicUsize::new(usize::MAX),
            next_id: AtomicU64::new(first_id),
            // The first collection reserves: a store of strings has no such note.
            reserved: AtomicU64::new(first_id),
            reserving: Mutex::new(()),
            db,
        };
        Ok(Arc::new(space))
    }

    /// Stops the thread that removes what has expired and closes the engine; nothing can be read or written any more.
    pub fn close(&self) -> Result<()> {
        if let Some(mut active_expire) = self.active_expire.lock().take() {
            active_expire.stop();
        }
        Ok(self.db.close()?)
    }

    /// The engine.
    pub fn db(&self) -> &Db {
        &self.db
    }

    /// The family of strings.
    pub fn strings(&self) -> &ColumnFamily {
        &self.strings
    }

    /// The family of what is known of collections.
    pub fn collections(&self) -> &ColumnFamily {
        &self.collections
    }

    /// The family of the elements of collections.
    pub fn elements(&self) -> &ColumnFamily {
        &self.elements
    }

    /// Whether no key is stored. One that has expired may count.
    pub fn is_empty(&self) -> Result<bool> {
        for family in [&self.strings, &self.collections] {
            let mut iter = family.iter_with(&of_keys(self.layout, true))?;
            iter.seek_to_first()?;
            if iter.valid() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// How its keys lie.
    pub fn layout(&self) -> KeyLayout {
        self.layout
    }

    /// The family of notes of which collections will expire.
    pub(crate) fn notes(&self) -> &ColumnFamily {
        if self.layout.has_slots() { &self.elements } else { &self.collections }
    }

    /// The wall clock, in ms since 1970.
    pub fn now_ms(&self) -> u64 {
        self.clock.wall_ms()
    }

    /// The monotonic clock, in us since some moment.
    pub fn monotonic_us(&self) -> u64 {
        self.clock.monotonic_us()
    }

    /// Makes a set of watched keys notice every write to this key from now on.
    pub fn watch(&self, watched: &mut ReadSet, db: u8, key: &[u8]) {
        let user_key = self.layout.user_key(db, key);
        watched.watch(&self.strings, &user_key);
        watched.watch(&self.collections, &user_key);
    }

    /// Watches keys from now on, besides those that `before` watches from earlier on. What this gives is `before`,
    /// if there is one; `None` if all of them would take more than `most_bytes` of memory, and then nothing is changed.
    pub fn watch_keys<'k>(
        &self,
        before: Option<&Arc<Watch>>,
        keys: impl Iterator<Item = (u8, &'k [u8])>,
        most_bytes: usize,
    ) -> Option<Arc<Watch>> {
        let watch = before.cloned().unwrap_or_else(|| {
            let watch = Watch::new(self.db.read_set(), self.monotonic_us());
            self.watches.add(&watch);
            watch
        });
        let fits = watch.add(keys, most_bytes, |reads, db, key| {
            let user_key = self.layout.user_key(db, key);
            reads.watch_from_now(&self.strings, &user_key);
            reads.watch_from_now(&self.collections, &user_key);
        });
        fits.then_some(watch)
    }

    /// Once a second: watches of more than some seconds hold on to no versions of before. Reads the device where
    /// something was flushed since.
    pub fn renew_watches(&self) {
        let now_us = self.monotonic_us();
        for watch in self.watches.to_look_at(now_us) {
            if self.monotonic_us().saturating_sub(now_us) > RENEWAL_US {
                // The others are old then as well.
                return;
            }
            let _renewal = self.watches.hold_renewals();
            let renewed = watch.renew_if_old(
                now_us,
                |keys| self.reads_of(keys),
                |reads| Ok(self.db.is_unchanged(reads)?),
            );
            if let Err(error) = renewed {
                tracing::warn!(%error, "a watch holds on to old versions for longer");
            }
        }
    }

    pub(crate) fn reads_of(&self, keys: &Keys) -> ReadSet {
        let mut reads = self.db.read_set();
        for (db, key) in keys {
            self.watch(&mut reads, *db, key);
        }
        reads
    }

    /// An id that no collection ever had, for one under `key`.
    pub(crate) fn fresh_id(&self, key: &[u8], may_wait: bool) -> Result<u64> {
        let counter = self.fresh_counter(may_wait)?;
        match self.layout.has_slots() {
            false => Ok(counter),
            true => encode::id_in_slot(slot_of(key), counter).ok_or_else(|| {
                Error::Engine(terrace::Error::InvalidArgument("there are no more ids".into()))
            }),
        }
    }

    /// To reserve more, which may have to wait for a sync, is left to who may wait.
    fn fresh_counter(&self, may_wait: bool) -> Result<u64> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        // Acquire: the reservation is in the log.
        if id < self.reserved.load(Ordering::Acquire) {
            return Ok(id);
        }
        if !may_wait {
            return Err(Error::Elsewhere(Wait::Device));
        }
        let _reserving = self.reserving.lock();
        if id >= self.reserved.load(Ordering::Acquire) {
            // In the log before anything that uses one of them.
            let end = id + RESERVED_IDS;
            let mut batch = WriteBatch::new();
            let note = end.to_le_bytes();
            store_marks::put(&mut batch, &self.collections, &self.elements, IDS, &note);
            self.db.write(batch)?;
            self.reserved.store(end, Ordering::Release);
        }
        Ok(id)
    }
}

/// Where a server's keys begin. Another program may have written the one before them, which has no bytes.
const FIRST_KEY: &[u8] = &[0];

fn no_keyspace(db: &Db) -> Error {
    let has_families = [COLLECTIONS, ELEMENTS].iter().all(|name| db.column_family(name).is_some());
    Error::OtherStore(if has_families { UNMARKED } else { PLAIN }.into())
}

/// Databases of placement `range` that have a collection.
fn databases_of(collections: &ColumnFamily) -> Result<Databases> {
    let found = Databases::default();
    let mut iter = collections.iter()?;
    iter.seek(FIRST_KEY)?;
    while let Some(&db) = iter.key().first().filter(|db| usize::from(**db) < MAX_DATABASES) {
        found.add(db);
        iter.seek(&[db + 1])?;
    }
    Ok(found)
}

/// Whether there is a collection, of whatever database.
fn has_user_keys(collections: &ColumnFamily) -> Result<bool> {
    let mut iter = collections.iter()?;
    iter.seek(FIRST_KEY)?;
    Ok(iter.key().first().is_some_and(|first| usize::from(*first) < MAX_DATABASES))
}
