//! What a batch knows of collections: their records, their ids, when they expire.

use super::{CommandBatch, Direction, Mode, WrittenText};
use crate::encode::{self, Kind, Meta, WRITTEN};
use crate::error::{Error, Result};
use crate::first_expiries::Part;
use crate::key_layout::MAX_DATABASES;
use crate::keyspace::Keyspace;
use crate::move_point::move_point;
use crate::store_marks;
use terrace_cluster::slot_of;

/// What lies under a key where a collection is to be written.
enum Underneath {
    /// A collection of that kind.
    Live(Meta),
    /// One of any kind that has expired.
    DeadCollection(Meta),
    /// A string that has expired.
    DeadText,
    /// Neither.
    Nothing,
}

impl CommandBatch {
    /// Whether there may be any collection in a database. A command that has pinned its moment sees
    /// those that are gone since.
    pub(crate) fn may_hold_collections(&self, db: u8) -> bool {
        self.view.is_some() || self.space.with_collections.has(db)
    }

    /// After a commit that flushed databases, and with all locks still held: they hold what the batch
    /// wrote after that.
    pub(super) fn note_flushed(&self, written: u128) {
        self.space.with_collections.remove(self.flushed, written);
        self.space.vain_counts.forget(self.flushed, self.space.monotonic_us());
    }

    /// With slots: the batch says in which databases something is written for the first time.
    pub(super) fn mark_databases(&mut self) {
        if !self.space.layout.has_slots() {
            return;
        }
        let layout = self.space.layout;
        let texts = self.texts.latest().filter(|(_, text, _)| **text != WrittenText::Deleted);
        let metas = self.metas.latest().filter(|(_, meta, _)| meta.is_some());
        let keys = texts.map(|(key, ..)| key).chain(metas.map(|(key, ..)| key));
        let dbs = keys.fold(0_u128, |dbs, key| dbs | 1 << layout.db_of(key));
        for db in (0..MAX_DATABASES as u8).filter(|db| dbs >> db & 1 == 1) {
            if !self.space.written.has(db) {
                let mark = [WRITTEN, &[db]].concat();
                let Keyspace { collections, elements, .. } = &*self.space;
                store_marks::put(&mut self.batch, collections, elements, &mark, &[]);
                self.marked |= 1 << db;
            }
        }
    }

    /// After the commit: what others may rely on from now on.
    pub(super) fn note_committed(&mut self) {
        for db in (0..MAX_DATABASES as u8).filter(|db| self.marked >> db & 1 == 1) {
            self.space.written.add(db);
        }
        for (part, expires_at_ms) in &self.expiries {
            self.space.first_expiries.lower(*part, *expires_at_ms);
        }
        if !self.record_changes.is_empty() {
            move_point("instance", "records", "visible");
            self.space.moves.apply(self.record_changes.drain(..));
        }
    }

    /// What is stored of the collection under `key`, also of one that has expired.
    pub(crate) fn stored_meta(&mut self, db: u8, key: &[u8]) -> Result<Option<Meta>> {
        if !self.may_hold_collections(db) {
            return Ok(None);
        }
        let user_key = self.take_user_key(db, key);
        let found = self.stored_meta_at(&user_key);
        self.scratch = user_key;
        found
    }

    fn stored_meta_at(&self, user_key: &[u8]) -> Result<Option<Meta>> {
        if let Some((written, _)) = self.metas.get(user_key) {
            self.saw_written(true);
            return Ok(*written);
        }
        if self.is_flushed(self.space.layout.db_of(user_key)) {
            return Ok(None);
        }
        let found = self.space.collections.get_with(user_key, &self.reading)?;
        found.map(|bytes| Meta::read(&bytes)).transpose()
    }

    /// What is known of the collection under `key`; `None` if there is none.
    pub(crate) fn meta(&mut self, db: u8, key: &[u8]) -> Result<Option<Meta>> {
        let now_ms = self.now_ms;
        Ok(self.stored_meta(db, key)?.filter(|meta| !meta.is_expired(now_ms)))
    }

    /// The collection of `kind` under `key`, to be read: all further reads of the command see the
    /// same moment.
    pub(crate) fn read_collection(
        &mut self,
        db: u8,
        key: &[u8],
        kind: Kind,
    ) -> Result<Option<Meta>> {
        self.read_collection_of(db, key, &[kind])
    }

    /// As [`Self::read_collection`], of any of these kinds.
    pub(crate) fn read_collection_of(
        &mut self,
        db: u8,
        key: &[u8],
        kinds: &[Kind],
    ) -> Result<Option<Meta>> {
        self.pin_view(db, key);
        let found = match self.meta(db, key)? {
            Some(meta) if kinds.contains(&meta.kind) => Ok(Some(meta)),
            Some(_) => Err(Error::WrongType),
            None if self.text_info(db, key)?.is_some() => Err(Error::WrongType),
            None => Ok(None),
        };
        self.note_lookup(!matches!(found, Ok(None)));
        found
    }

    /// The collection of `kind` under `key`, to be written. What is left of one that has expired stays: who watches the
    /// key sees no write where there is nothing to be changed. The lock is held.
    pub(crate) fn write_collection(
        &mut self,
        db: u8,
        key: &[u8],
        kind: Kind,
    ) -> Result<Option<Meta>> {
        Ok(match self.look_to_write(db, key, kind)? {
            Underneath::Live(meta) => Some(meta),
            Underneath::Nothing | Underneath::DeadCollection(_) | Underneath::DeadText => None,
        })
    }

    /// The collection of `kind` under `key`, to be added to: a new one if there is none. The lock
    /// is held.
    pub(crate) fn open_collection(&mut self, db: u8, key: &[u8], kind: Kind) -> Result<Meta> {
        let underneath = self.look_to_write(db, key, kind)?;
        if let Underneath::Live(meta) = underneath {
            return Ok(meta);
        }
        let meta = self.fresh_collection(key, kind)?;
        // It would come to life again in a batch that began before it expired, or when the clock is set back.
        match underneath {
            Underneath::DeadCollection(dead) => self.drop_collection(db, key, &dead)?,
            Underneath::DeadText => self.delete_text(db, key),
            Underneath::Live(_) | Underneath::Nothing => {}
        }
        Ok(meta)
    }

    /// What lies under `key`, where a collection of `kind` may be written.
    fn look_to_write(&mut self, db: u8, key: &[u8], kind: Kind) -> Result<Underneath> {
        self.expect_lock(db, key);
        self.check_key(key)?;
        match self.stored_meta(db, key)? {
            Some(meta) if meta.is_expired(self.now_ms) => Ok(Underneath::DeadCollection(meta)),
            Some(meta) if meta.kind == kind => Ok(Underneath::Live(meta)),
            Some(_) => Err(Error::WrongType),
            None => match self.stored_text_info(db, key)? {
                Some(text) if text.is_live(self.now_ms) => Err(Error::WrongType),
                Some(_) => Ok(Underneath::DeadText),
                None => Ok(Underneath::Nothing),
            },
        }
    }

    /// A collection to be stored under `key`, which it is not before [`Self::put_meta`].
    pub(crate) fn fresh_collection(&mut self, key: &[u8], kind: Kind) -> Result<Meta> {
        let id = self.space.fresh_id(key, self.mode == Mode::Device)?;
        Ok(Meta { kind, id, count: 0, expires_at_ms: 0, first: 0 })
    }

    /// Stores what is known of a collection; one without elements goes. To be called by every
    /// command that changes any element, so that clients that watch the key notice it.
    pub(crate) fn put_meta(&mut self, db: u8, key: &[u8], meta: &Meta) {
        self.expect_lock(db, key);
        let user_key = self.space.layout.user_key(db, key);
        if meta.count == 0 {
            self.forget_expiry(&user_key, meta);
            self.note_meta(&user_key, None);
            return;
        }
        // Before it can be read by anybody.
        self.space.with_collections.add(db);
        self.note_meta(&user_key, Some(*meta));
    }

    fn note_meta(&mut self, user_key: &[u8], meta: Option<Meta>) {
        if meta.is_some() {
            self.note_put(user_key);
        }
        self.metas.put(user_key, &[], meta);
    }

    /// Removes a collection and everything in it. The lock is held.
    pub(crate) fn drop_collection(&mut self, db: u8, key: &[u8], meta: &Meta) -> Result<()> {
        /// Up to this many elements are deleted one by one: a range tombstone costs every later read
        /// of its neighbourhood a look.
        const FEW: u64 = 32;
        self.expect_lock(db, key);
        let prefix = encode::elements_of(db, meta.id);
        if meta.count <= FEW {
            let mut keys = Vec::new();
            self.visit_keys(&prefix, None, Direction::Up, |key| {
                keys.push(key.to_vec());
                Ok(true)
            })?;
            for key in keys {
                self.delete_element(key);
            }
        } else if let Some(end) = encode::end_of(&prefix) {
            // What this batch wrote of it is not looked for any more: the id is never used again.
            self.batch.delete_range_cf(&self.space.elements, prefix, end);
        }
        let user_key = self.space.layout.user_key(db, key);
        self.forget_expiry(&user_key, meta);
        self.note_meta(&user_key, None);
        Ok(())
    }

    /// Removes the record of a collection, whose elements go on under another key. The lock is held.
    pub(crate) fn forget_collection(&mut self, db: u8, key: &[u8], meta: &Meta) {
        self.expect_lock(db, key);
        let user_key = self.space.layout.user_key(db, key);
        self.forget_expiry(&user_key, meta);
        self.note_meta(&user_key, None);
    }

    /// Changes when a collection expires; 0 never. The caller stores the meta.
    pub(crate) fn set_expiry(&mut self, db: u8, key: &[u8], meta: &mut Meta, expires_at_ms: u64) {
        let user_key = self.space.layout.user_key(db, key);
        self.forget_expiry(&user_key, meta);
        meta.expires_at_ms = expires_at_ms;
        if expires_at_ms != 0 {
            let note = encode::expiry_key(self.space.layout, expires_at_ms, &user_key);
            self.batch.put_cf(self.space.notes(), note, meta.id.to_le_bytes());
            let slot = if self.space.layout.has_slots() { slot_of(key).number() } else { 0 };
            self.expiries.push((Part { slot, db }, expires_at_ms));
        }
    }

    fn forget_expiry(&mut self, user_key: &[u8], meta: &Meta) {
        if meta.expires_at_ms != 0 {
            let note = encode::expiry_key(self.space.layout, meta.expires_at_ms, user_key);
            self.batch.delete_cf(self.space.notes(), note);
        }
    }
}
