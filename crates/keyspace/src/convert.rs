//! A store written again with another placement of its keys.

use crate::encode::{self, COLLECTIONS, ELEMENTS, IDS, Meta, WRITTEN};
use crate::error::{Error, Result};
use crate::families::Families;
use crate::key_layout::KeyLayout;
use crate::move_records::CLUSTER;
use crate::store_kind::{self, StoreKind};
use crate::store_marks::{self, StoreMarks};
use std::collections::BTreeSet;
use terrace::{ColumnFamily, Db, ReadOptions, WriteBatch};
use terrace_cluster::{Placement, slot_of};

/// A batch is written when it has this many bytes.
const BATCH_BYTES: usize = 4 << 20;

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Converted {
    /// Strings and collections.
    pub keys: u64,
    /// Elements of collections.
    pub elements: u64,
}

/// Copies all data of a server's store, as it is now, into an empty one, where its keys lie by `placement`. The
/// caller makes the copy durable.
///
/// # Errors
/// `from` holds something else, or `to` something, or an instance of a cluster that has keys elsewhere; and those of the
/// engine.
pub fn convert(from: &Db, to: &Db, placement: Placement) -> Result<Converted> {
    if StoreKind::of(from)? != StoreKind::Keyspace {
        return Err(Error::OtherStore("it holds no data of a server".into()));
    }
    if StoreKind::of(to)? != StoreKind::Empty {
        return Err(Error::OtherStore("the store to convert into is not empty".into()));
    }
    if from.column_family(CLUSTER).is_some_and(|family| has_keys(&family).unwrap_or(true)) {
        let what = "keys of it are at other instances of a cluster, or theirs are here";
        return Err(Error::OtherStore(what.into()));
    }
    let from_families = store_kind::families_to_read(from)?;
    let from_marks = StoreMarks::read(&from_families)?;
    let family = |name| to.create_column_family(name, to.options().default_family.clone());
    let (to_collections, to_elements) = (family(COLLECTIONS)?, family(ELEMENTS)?);
    let to_strings = to.default_family();
    let families = Families {
        strings: to_strings.clone(),
        collections: to_collections.clone(),
        elements: to_elements.clone(),
    };
    let to_layout = StoreMarks::open(to, &families, Some(placement))?.layout;
    let notes = if to_layout.has_slots() { to_elements.clone() } else { to_collections.clone() };
    let reading = ReadOptions { snapshot: Some(from.snapshot()), ..ReadOptions::default() };
    let mut conversion = Conversion {
        to,
        from_layout: from_marks.layout,
        first_id: from_marks.first_id,
        to_layout,
        strings: to_strings,
        collections: to_collections,
        elements: to_elements,
        notes,
        reading,
        batch: WriteBatch::new(),
        written: BTreeSet::new(),
        converted: Converted::default(),
    };
    conversion.strings(&from_families.strings)?;
    conversion.collections(&from_families.collections, &from_families.elements)?;
    conversion.finish()
}

/// Whether there are records of keys, and not only of shards.
fn has_keys(family: &ColumnFamily) -> Result<bool> {
    let mut iter = family.iter()?;
    iter.seek_to_first()?;
    Ok(iter.valid() && iter.key().first() != Some(&0xFF))
}

struct Conversion<'d> {
    to: &'d Db,
    from_layout: KeyLayout,
    first_id: u64,
    to_layout: KeyLayout,
    strings: ColumnFamily,
    collections: ColumnFamily,
    elements: ColumnFamily,
    notes: ColumnFamily,
    reading: ReadOptions,
    batch: WriteBatch,
    /// Databases.
    written: BTreeSet<u8>,
    converted: Converted,
}

impl Conversion<'_> {
    fn strings(&mut self, from: &ColumnFamily) -> Result<()> {
        let mut iter = from.iter_with(&self.reading)?;
        iter.seek_to_first()?;
        while iter.valid() {
            if let Some((db, key)) = self.from_layout.parts(iter.key()) {
                let user_key = self.to_layout.user_key(db, key);
                match iter.expires_at_ms() {
                    Some(at) => {
                        self.batch.put_until_cf(&self.strings, user_key, iter.value(), at);
                    }
                    None => self.batch.put_cf(&self.strings, user_key, iter.value()),
                }
                self.note_key(db)?;
            }
            iter.next()?;
        }
        Ok(())
    }

    fn collections(&mut self, from: &ColumnFamily, elements: &ColumnFamily) -> Result<()> {
        let mut iter = from.iter_with(&self.reading)?;
        iter.seek_to_first()?;
        while iter.valid() {
            if let Some((db, key)) = self.from_layout.parts(iter.key()) {
                let meta = Meta::read(iter.value())?;
                self.collection(db, key, meta, elements)?;
            }
            iter.next()?;
        }
        Ok(())
    }

    fn collection(
        &mut self,
        db: u8,
        key: &[u8],
        meta: Meta,
        elements: &ColumnFamily,
    ) -> Result<()> {
        let counter = encode::counter_of(meta.id);
        let id = match self.to_layout.has_slots() {
            true => encode::id_in_slot(slot_of(key), counter).ok_or_else(|| {
                Error::Engine(terrace::Error::InvalidArgument("there are no more ids".into()))
            })?,
            false => counter,
        };
        self.first_id = self.first_id.max(counter.saturating_add(1));
        let user_key = self.to_layout.user_key(db, key);
        if meta.expires_at_ms != 0 {
            let note = encode::expiry_key(self.to_layout, meta.expires_at_ms, &user_key);
            self.batch.put_cf(&self.notes, note, id.to_le_bytes());
        }
        self.batch.put_cf(&self.collections, user_key, Meta { id, ..meta }.encode());
        self.note_key(db)?;
        let (old, new) = (encode::elements_of(db, meta.id), encode::elements_of(db, id));
        let reading = ReadOptions { prefix: Some(old.to_vec()), ..self.reading.clone() };
        let mut iter = elements.iter_with(&reading)?;
        iter.seek_to_first()?;
        while iter.valid() {
            let element = [&new[..], &iter.key()[old.len()..]].concat();
            self.batch.put_cf(&self.elements, element, iter.value());
            self.converted.elements += 1;
            self.write_if_full()?;
            iter.next()?;
        }
        Ok(())
    }

    fn note_key(&mut self, db: u8) -> Result<()> {
        self.converted.keys += 1;
        self.written.insert(db);
        self.write_if_full()
    }

    fn write_if_full(&mut self) -> Result<()> {
        if self.batch.size_bytes() >= BATCH_BYTES {
            self.to.write(std::mem::take(&mut self.batch))?;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Converted> {
        let mut rows = Vec::new();
        if self.first_id > 1 {
            rows.push((IDS.to_vec(), self.first_id.to_le_bytes().to_vec()));
        }
        if self.to_layout.has_slots() {
            rows.extend(self.written.iter().map(|db| ([WRITTEN, &[*db]].concat(), Vec::new())));
        }
        for (key, value) in rows {
            store_marks::put(&mut self.batch, &self.collections, &self.elements, &key, &value);
        }
        if !self.batch.is_empty() {
            self.to.write(std::mem::take(&mut self.batch))?;
        }
        Ok(self.converted)
    }
}
