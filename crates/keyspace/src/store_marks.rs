//! What a store says of itself, apart from any key: its mark, the note of reserved ids and the databases of
//! placement `slots` in which something was written. Each row stands in two families, `collections` and `elements`,
//! so that one damaged file takes no more than one of them. A store of an earlier build has them in
//! `collections` only: its next open for writing adds the others.
//!
//! Where one of the two is missing, or they differ, the data themselves are searched, once; so they are after a repair that
//! has left something out ([`doubt_notes`]).

use crate::databases::Databases;
use crate::encode::{
    self, COLLECTIONS, ELEMENT_PREFIX_BYTES, ELEMENTS, IDS, Meta, WRITTEN, end_of,
};
use crate::error::{Error, Result};
use crate::families::{Families, of_keys};
use crate::key_layout::{KeyLayout, MAX_DATABASES};
use crate::move_records::{CLUSTER, FENCE};
use crate::store_kind::{self, MARK};
use std::ops::ControlFlow;
use terrace::{ColumnFamily, Db, FamilySign, Iter, ReadOptions, WriteBatch};
use terrace_cluster::Placement;

/// How a repair knows the families of a keyspace if nothing but the log is left. A new store makes those with the mark first,
/// in this order.
pub(crate) const FAMILY_SIGNS: &[FamilySign] = &[
    FamilySign { name: COLLECTIONS, id: Some(1), key_prefix: MARK },
    FamilySign { name: ELEMENTS, id: Some(2), key_prefix: MARK },
    FamilySign { name: CLUSTER, id: None, key_prefix: FENCE },
];

/// See the module.
pub(crate) struct StoreMarks {
    pub layout: KeyLayout,
    /// No collection has this id, nor a greater one; of a store that is read only, as is noted.
    pub first_id: u64,
    /// With slots: databases in which something was written.
    pub written: Databases,
    /// The rows stand in both families, as this build leaves them.
    is_complete: bool,
}

impl StoreMarks {
    /// Of a store that is read only. It may have to be searched for the databases that have something: a step or two
    /// for each slot.
    ///
    /// # Errors
    /// As [`KeyLayout::of_store`].
    pub fn read(families: &Families) -> Result<Self> {
        let layout = KeyLayout::of(store_kind::placement_of(families, None)?);
        Self::find(families, layout, false)
    }

    /// As [`Self::read`], and writes what is missing. `wanted` is the placement of a new store, and what an old one must
    /// have.
    ///
    /// # Errors
    /// Besides: the store has another placement, or cannot be written.
    pub fn open(db: &Db, families: &Families, wanted: Option<Placement>) -> Result<Self> {
        let found = store_kind::placement_of(families, wanted)?;
        let marks = Self::find(families, KeyLayout::of(found), true)?;
        if !marks.is_complete {
            // A full disk is no error if all this can be found again: the next open writes it.
            let may_be_found =
                found == Placement::Range || store_kind::stored_mark(families)?.is_some();
            match marks.write(db, families) {
                Err(Error::Engine(terrace::Error::DiskFull(_))) if may_be_found => {}
                outcome => outcome?,
            }
        }
        match wanted {
            Some(wanted) if wanted != found => Err(Error::OtherStore(format!(
                "its keys lie by placement {found}, and {wanted} is asked for; \
                 `terrace convert DIR TARGET --placement {wanted}` makes a store of it that has that"
            ))),
            _ => Ok(marks),
        }
    }

    /// `is_to_write`: there will be new collections, whose ids must be new.
    fn find(families: &Families, layout: KeyLayout, is_to_write: bool) -> Result<Self> {
        let Families { strings, collections, elements } = families;
        let marks = [collections.get(MARK)?, elements.get(MARK)?];
        let notes = [note_of_ids(collections)?, note_of_ids(elements)?];
        let rows = [written_databases(collections)?, written_databases(elements)?];
        let written = rows[0].clone();
        (0..MAX_DATABASES as u8).filter(|db| rows[1].has(*db)).for_each(|db| written.add(db));
        let is_marked = marks.iter().all(Option::is_some);
        if layout.has_slots() && !is_marked {
            for family in [strings, collections] {
                each_stem(family, layout, |_, stem| {
                    written.add(layout.db_of(stem));
                    Ok(ControlFlow::Continue(()))
                })?;
            }
        }
        let noted = notes.iter().flatten().max().copied().unwrap_or(1);
        let has_notes = is_marked && notes[0] == notes[1] && notes[0].is_some();
        let mut first_id = noted;
        // With `range` this is a step for each database. It finds ids whose note was in a gap of a repaired log.
        if is_to_write && (!has_notes || !layout.has_slots()) {
            first_id = first_id.max(after_ids_of_elements(elements, layout)?);
        }
        if is_to_write && !has_notes {
            first_id = first_id.max(after_ids_of_records(collections, layout)?);
        }
        let is_noted = notes == [Some(first_id); 2] || (first_id == 1 && notes == [None; 2]);
        let is_complete = is_marked && is_noted && rows.iter().all(|rows| *rows == written);
        Ok(Self { layout, first_id, written, is_complete })
    }

    /// All rows, in one batch.
    pub fn write(&self, db: &Db, families: &Families) -> Result<()> {
        let mut batch = WriteBatch::new();
        let mark = store_kind::number_of(self.layout.placement()).to_le_bytes();
        put(&mut batch, &families.collections, &families.elements, MARK, &mark);
        if self.first_id > 1 {
            let first = self.first_id.to_le_bytes();
            put(&mut batch, &families.collections, &families.elements, IDS, &first);
        }
        for number in (0..MAX_DATABASES as u8).filter(|number| self.written.has(*number)) {
            let key = [WRITTEN, &[number]].concat();
            put(&mut batch, &families.collections, &families.elements, &key, &[]);
        }
        Ok(db.write(batch)?)
    }
}

/// After a repair that has left something out of a store: the next open for writing of a server's searches for the ids and
/// the databases that are in use, since one record of the log may have had a note of them for both families.
///
/// # Errors
/// The store cannot be read, or not be written.
pub fn doubt_notes(db: &Db) -> Result<()> {
    let both = (db.column_family(COLLECTIONS), db.column_family(ELEMENTS));
    // Where a mark is missing that is done anyway.
    if let (Some(collections), Some(elements)) = both
        && collections.get(MARK)?.is_some()
        && elements.get(MARK)?.is_some()
    {
        elements.delete(MARK)?;
        db.sync()?;
    }
    Ok(())
}

/// Writes a row in both places.
pub(crate) fn put(
    batch: &mut WriteBatch,
    collections: &ColumnFamily,
    elements: &ColumnFamily,
    key: &[u8],
    value: &[u8],
) {
    for family in [collections, elements] {
        batch.put_cf(family, key, value);
    }
}

fn note_of_ids(family: &ColumnFamily) -> Result<Option<u64>> {
    let Some(bytes) = family.get(IDS)? else {
        return Ok(None);
    };
    match (*bytes).try_into() {
        Ok(bytes) => Ok(Some(u64::from_le_bytes(bytes))),
        Err(_) => {
            let what = "the note of reserved ids has not 8 bytes".into();
            Err(Error::Engine(terrace::Error::InvalidArgument(what)))
        }
    }
}

/// The databases of placement `slots` in which something was written, as this family says.
fn written_databases(family: &ColumnFamily) -> Result<Databases> {
    let found = Databases::default();
    let options = ReadOptions { prefix: Some(WRITTEN.to_vec()), ..ReadOptions::default() };
    let mut iter = family.iter_with(&options)?;
    iter.seek_to_first()?;
    while iter.valid() {
        if let [db] = iter.key()[WRITTEN.len()..]
            && usize::from(db) < MAX_DATABASES
        {
            found.add(db);
        }
        iter.next()?;
    }
    Ok(found)
}

/// Whether a family of keys has some of another database, whatever the notes of databases say.
pub(crate) fn has_other_database(family: &ColumnFamily, layout: KeyLayout, db: u8) -> Result<bool> {
    let mut has_other = false;
    each_stem(family, layout, |_, stem| {
        has_other = layout.db_of(stem) != db;
        Ok(if has_other { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    Ok(has_other)
}

/// Calls `see` with what the keys of each database start with (with slots: of each slot and database) that
/// has any, and an iterator, which it may move. `Break` ends it.
fn each_stem(
    family: &ColumnFamily,
    layout: KeyLayout,
    mut see: impl FnMut(&mut Iter, &[u8]) -> Result<ControlFlow<()>>,
) -> Result<()> {
    let mut iter = family.iter_with(&of_keys(layout, true))?;
    iter.seek_to_first()?;
    while iter.valid() {
        let Some(stem) = iter.key().get(..layout.prefix_bytes()) else {
            iter.next()?;
            continue;
        };
        let mut stem = stem.to_vec();
        match usize::from(layout.db_of(&stem)) < MAX_DATABASES {
            true => match see(&mut iter, &stem)? {
                ControlFlow::Continue(()) => {}
                ControlFlow::Break(()) => break,
            },
            // Notes of what will expire are the last of a slot.
            false => stem.truncate(layout.slot_bytes()),
        }
        match end_of(&stem) {
            Some(end) => iter.seek(&end)?,
            None => break,
        }
    }
    Ok(())
}

/// The id after the greatest of any element: steps for each database, with slots for each slot that has any.
fn after_ids_of_elements(elements: &ColumnFamily, layout: KeyLayout) -> Result<u64> {
    let mut first = 1;
    each_stem(elements, layout, |iter, stem| {
        if let Some(end) = end_of(stem) {
            // No element has so short a key.
            iter.seek_for_prev(&end)?;
        }
        if iter.valid()
            && iter.key().starts_with(stem)
            && let Some(id) = iter.key().get(stem.len()..ELEMENT_PREFIX_BYTES)
        {
            let id = id.iter().fold(0, |id, byte| id << 8 | u64::from(*byte));
            first = first.max(after(id));
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(first)
}

/// The id after the greatest of any collection: reads all of their records.
fn after_ids_of_records(collections: &ColumnFamily, layout: KeyLayout) -> Result<u64> {
    let mut first = 1;
    let mut iter = collections.iter_with(&of_keys(layout, false))?;
    iter.seek_to_first()?;
    while iter.valid() {
        if let Some(meta) = Meta::decode(iter.value()) {
            first = first.max(after(encode::counter_of(meta.id)));
        }
        iter.next()?;
    }
    Ok(first)
}

fn after(id: u64) -> u64 {
    id.saturating_add(1)
}
