//! A flush of databases: what it writes, and what that means for keys that are watched.

use super::{CommandBatch, WrittenText};
use crate::encode::{EXPIRIES, Meta, end_of};
use crate::error::Result;
use crate::key_layout::{KeyLayout, MAX_DATABASES};
use crate::keyspace::Keyspace;
use crate::locks::STRIPES;
use crate::store_marks;
use crate::watch::{Keys, Watch};
use std::sync::Arc;
use terrace::{ColumnFamily, ReadOptions, WriteBatch};
use terrace_cluster::{SLOT_COUNT, Slot};

impl CommandBatch {
    /// Removes everything in the databases from `first` to `last`, both included. All locks are
    /// held. A range of each family, unless one of several databases of a store with slots is removed: then
    /// a range for each slot that has something of it. Of what the batch has flushed before, only what it put there
    /// since then.
    pub(crate) fn flush_range(&mut self, first: u8, last: u8) -> Result<()> {
        debug_assert_eq!(self.held.list.len(), STRIPES, "a flush holds all locks");
        self.flushes += 1;
        if (first..=last).all(|db| self.put_since_flush.contains_key(&db)) {
            return self.flush_again(first, last);
        }
        let mut are_in_ranges = true;
        let Keyspace { strings, collections, elements, layout, .. } = &*self.space;
        match layout.has_slots() {
            false => {
                for family in [strings, collections, elements] {
                    self.batch.delete_range_cf(family, [first], [last + 1]);
                }
                let notes = |db| [EXPIRIES, db];
                self.batch.delete_range_cf(collections, notes(first), notes(last + 1));
            }
            true if self.is_everything(first, last)? => {
                for family in [strings, collections, elements] {
                    self.batch.delete_range_cf(family, [], SLOT_COUNT.to_be_bytes());
                }
            }
            true => {
                for db in first..=last {
                    for family in [strings, collections, elements] {
                        flush_slots(&mut self.batch, family, *layout, &[db])?;
                    }
                    flush_slots(&mut self.batch, self.space.notes(), *layout, &[EXPIRIES, db])?;
                }
                are_in_ranges = false;
            }
        }
        self.undo_open_moves(first, last)?;
        let layout = self.space.layout;
        let is_of = |key: &[u8]| (first..=last).contains(&layout.db_of(key));
        let texts = self.texts.latest().filter(|(_, text, _)| **text != WrittenText::Deleted);
        let texts = texts.map(|(key, ..)| key).filter(|key| is_of(key)).map(<[u8]>::to_vec);
        let texts: Vec<Vec<u8>> = texts.collect();
        let metas = self.metas.latest().filter(|(_, meta, _)| meta.is_some());
        let metas = metas.map(|(key, ..)| key).filter(|key| is_of(key)).map(<[u8]>::to_vec);
        let metas: Vec<Vec<u8>> = metas.collect();
        texts.iter().for_each(|key| self.texts.put(key, &[], WrittenText::Deleted));
        match are_in_ranges {
            true => metas.iter().for_each(|key| self.metas.put(key, &[], None)),
            // Nothing may be stored yet in their slots.
            false => metas.iter().try_for_each(|key| self.drop_written(key))?,
        }
        for db in first..=last {
            self.flushed |= 1 << db;
            self.put_since_flush.insert(db, Vec::new());
        }
        Ok(())
    }

    /// As [`Self::flush_range`], of databases of which all that is stored is gone already.
    fn flush_again(&mut self, first: u8, last: u8) -> Result<()> {
        for db in first..=last {
            let keys = self.put_since_flush.get_mut(&db).map(std::mem::take);
            for user_key in keys.into_iter().flatten() {
                if self.has_put_text(&user_key) {
                    self.texts.put(&user_key, &[], WrittenText::Deleted);
                }
                self.drop_written(&user_key)?;
            }
        }
        Ok(())
    }

    /// Removes the collection that the batch has put under a user key, if there is one, with its elements.
    fn drop_written(&mut self, user_key: &[u8]) -> Result<()> {
        let meta = self.metas.get(user_key).and_then(|(meta, _)| *meta);
        match (meta, self.space.layout.parts(user_key)) {
            (Some(meta), Some((db, key))) => self.drop_collection(db, key, &meta),
            _ => Ok(()),
        }
    }

    fn has_put_text(&self, user_key: &[u8]) -> bool {
        self.texts.get(user_key).is_some_and(|(text, _)| *text != WrittenText::Deleted)
    }

    /// A string or a collection is about to be put under a user key: a later flush looks for it.
    pub(super) fn note_put(&mut self, user_key: &[u8]) {
        if self.flushed == 0 {
            return;
        }
        // Those that are there are known.
        let is_known = self.has_put_text(user_key)
            || self.metas.get(user_key).is_some_and(|(meta, _)| meta.is_some());
        let db = self.space.layout.db_of(user_key);
        if !is_known && let Some(keys) = self.put_since_flush.get_mut(&db) {
            keys.push(user_key.to_vec());
        }
    }

    /// Those who watch, with their keys, and for whom what is about to be committed changes nothing, although the
    /// engine will say so: a flush. All locks are held.
    pub(crate) fn unmoved(&self) -> Vec<(Arc<Watch>, Keys)> {
        if self.flushed == 0 {
            return Vec::new();
        }
        let all = self.space.watches.live().into_iter().map(|watch| {
            let keys = watch.keys();
            (watch, keys)
        });
        // Who cannot be asked counts as changed.
        all.filter(|(watch, keys)| self.leaves_as_it_is(watch, keys).unwrap_or(false)).collect()
    }

    /// With slots: whether nothing was ever written in other databases, in this batch neither.
    fn is_everything(&self, first: u8, last: u8) -> Result<bool> {
        if first == 0 && usize::from(last) == MAX_DATABASES - 1 {
            return Ok(true);
        }
        let mut texts = self.texts.latest().map(|(key, ..)| key);
        let mut metas = self.metas.latest().map(|(key, ..)| key);
        let is_own = |key: &[u8]| self.space.layout.db_of(key) == first;
        let seems_alone = first == last
            && self.space.written.has_none_but(first)
            && texts.all(is_own)
            && metas.all(is_own);
        if !seems_alone {
            return Ok(false);
        }
        // A repair may have left out the record of the log that notes a database, and kept what came later. It is looked
        // for once: what is written into another one from then on is noted. Where nothing can be read the notes hold.
        let Keyspace { strings, collections, layout, alone, .. } = &*self.space;
        if !alone.has(first) {
            let has_other =
                |family| store_marks::has_other_database(family, *layout, first).unwrap_or(false);
            if [strings, collections].into_iter().any(has_other) {
                return Ok(false);
            }
            alone.add(first);
        }
        Ok(true)
    }

    fn leaves_as_it_is(&self, watch: &Watch, keys: &Keys) -> Result<bool> {
        if !watch.is_unchanged(&self.space.db)? {
            return Ok(false);
        }
        for (db, key) in keys {
            let user_key = self.space.layout.user_key(*db, key);
            if self.has_written(&user_key) {
                return Ok(false);
            }
            if self.is_flushed(*db) && self.is_stored(&user_key)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn is_stored(&self, user_key: &[u8]) -> Result<bool> {
        if self.space.strings.get(user_key)?.is_some() {
            return Ok(true);
        }
        let meta = self.space.collections.get(user_key)?;
        let meta = meta.map(|bytes| Meta::read(&bytes)).transpose()?;
        Ok(meta.is_some_and(|meta| !meta.is_expired(self.now_ms())))
    }

    /// It is committed, and all locks are still held: they watch from now on.
    pub(crate) fn watch_anew(&self, watches: &[(Arc<Watch>, Keys)]) {
        for (watch, keys) in watches {
            let now_us = self.space.monotonic_us();
            watch.renew(keys, now_us, |keys| self.space.reads_of(keys));
        }
    }
}

/// Removes the keys of every slot that go on with `after_slot`.
fn flush_slots(
    batch: &mut WriteBatch,
    family: &ColumnFamily,
    layout: KeyLayout,
    after_slot: &[u8],
) -> Result<()> {
    let bytes = layout.slot_bytes();
    let options = ReadOptions {
        upper_bound: Some(SLOT_COUNT.to_be_bytes().to_vec()),
        keys_only: true,
        ..ReadOptions::default()
    };
    let mut iter = family.iter_with(&options)?;
    iter.seek_to_first()?;
    while iter.valid()
        && let Some((slot, rest)) = iter.key().split_at_checked(bytes)
    {
        let slot = slot.to_vec();
        let start = [&slot[..], after_slot].concat();
        if rest < after_slot {
            iter.seek(&start)?;
            continue;
        }
        if rest.starts_with(after_slot)
            && let Some(end) = end_of(&start)
        {
            batch.delete_range_cf(family, start, end);
        }
        let next = u16::from_be_bytes([slot[0], slot[1]]) + 1;
        match Slot::new(next) {
            Some(_) => iter.seek(&next.to_be_bytes())?,
            None => break,
        }
    }
    Ok(())
}
