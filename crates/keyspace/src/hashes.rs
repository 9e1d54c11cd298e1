//! Hashes: fields with values. A field costs what a string costs, whatever the number of fields.
//!
//! A command looks up the hash once ([`CommandBatch::hash`]) and reads through what it got.

use crate::command_batch::{CommandBatch, Value};
use crate::encode::{self, Kind, Meta};
use crate::error::{Error, Result};
use crate::integer::{self, Digits};
use crate::long_double::LongDouble;
use crate::members::{MEMBER_KEY_BYTES, Page};
use crate::result_size::check_added;

impl CommandBatch {
    /// The hash under `key`, to be read in this command.
    pub fn hash(&mut self, db: u8, key: &[u8]) -> Result<Option<Meta>> {
        self.read_collection(db, key, Kind::Hash)
    }

    /// The value of a field.
    pub fn hash_field(&self, db: u8, hash: &Meta, field: &[u8]) -> Result<Option<Value>> {
        self.element(&encode::member_key(db, hash.id, field))
    }

    /// The length of the value of a field, if there is one. The value is read only if it is compressed by itself.
    pub fn hash_field_len(&self, db: u8, hash: &Meta, field: &[u8]) -> Result<Option<usize>> {
        self.element_len(&encode::member_key(db, hash.id, field))
    }

    /// Whether there is a field. Its value is not read.
    pub fn hash_has(&self, db: u8, hash: &Meta, field: &[u8]) -> Result<bool> {
        self.has_element(&encode::member_key(db, hash.id, field))
    }

    /// Shows all fields with their values until `seen` says no more. Costs O(fields).
    pub fn hash_each(
        &self,
        db: u8,
        hash: &Meta,
        seen: impl FnMut(&[u8], &[u8]) -> Result<bool>,
    ) -> Result<()> {
        self.each_member(db, hash, seen)
    }

    /// Shows all fields until `seen` says no more. No value is read. Costs O(fields).
    pub fn hash_each_field(
        &self,
        db: u8,
        hash: &Meta,
        seen: impl FnMut(&[u8]) -> Result<bool>,
    ) -> Result<()> {
        self.each_member_name(db, hash, seen)
    }

    /// About `count` fields with their values from `cursor` on.
    ///
    /// # Errors
    /// No page has given this cursor ([`Error::UnknownCursor`](crate::Error::UnknownCursor)). More than `count` are of
    /// equal hashes, which one page has to show, and take more than `most_bytes`
    /// ([`Error::TooLong`](crate::Error::TooLong)). Those of the engine.
    pub fn hash_page(
        &self,
        db: u8,
        hash: &Meta,
        cursor: u64,
        count: u64,
        most_bytes: usize,
    ) -> Result<Page<(Vec<u8>, Vec<u8>)>> {
        let mut items = Vec::new();
        let cursor =
            self.page_of_members(db, hash, cursor, count, most_bytes, |field, value| {
                items.push((field.to_vec(), value.to_vec()));
                Ok(())
            })?;
        Ok(Page { cursor, items })
    }

    /// Shows a random field and its value, `times` times, until `seen` says no more.
    pub fn hash_random(
        &self,
        db: u8,
        hash: &Meta,
        times: u64,
        seen: impl FnMut(&[u8], &[u8]) -> Result<bool>,
    ) -> Result<()> {
        self.repeated_members(db, hash, times, false, seen)
    }

    /// As [`Self::hash_random`], without reading values.
    pub fn hash_random_fields(
        &self,
        db: u8,
        hash: &Meta,
        times: u64,
        mut seen: impl FnMut(&[u8]) -> Result<bool>,
    ) -> Result<()> {
        self.repeated_members(db, hash, times, true, |field, _| seen(field))
    }

    /// Shows `count` different random fields, or all, until `seen` says no more. Costs O(fields) if that is many of
    /// them.
    pub fn hash_sample(
        &self,
        db: u8,
        hash: &Meta,
        count: u64,
        seen: impl FnMut(&[u8], &[u8]) -> Result<bool>,
    ) -> Result<()> {
        self.random_members(db, hash, count, false, seen).map(drop)
    }

    /// As [`Self::hash_sample`], without reading values.
    pub fn hash_sample_fields(
        &self,
        db: u8,
        hash: &Meta,
        count: u64,
        mut seen: impl FnMut(&[u8]) -> Result<bool>,
    ) -> Result<()> {
        self.random_members(db, hash, count, true, |field, _| seen(field)).map(drop)
    }

    /// Sets fields, and gives how many were not there. The lock is held.
    ///
    /// # Errors
    /// [`Error::TooLong`] if they take more than [`MAX_ADDED_BYTES`](crate::MAX_ADDED_BYTES); those of the engine.
    pub fn hash_set<'k>(
        &mut self,
        db: u8,
        key: &[u8],
        pairs: impl Iterator<Item = (&'k [u8], &'k [u8])> + Clone,
    ) -> Result<u64> {
        for (field, _) in pairs.clone() {
            encode::check_member(field)?;
        }
        let size = |(field, value): (&[u8], &[u8])| MEMBER_KEY_BYTES + field.len() + value.len();
        check_added(pairs.clone().map(size))?;
        let mut hash = self.open_collection(db, key, Kind::Hash)?;
        let mut writes = Vec::with_capacity(pairs.size_hint().0);
        let mut added = Vec::new();
        for (field, value) in pairs {
            let element_key = encode::member_key(db, hash.id, field);
            if !self.has_stored_element(&hash, &element_key)? {
                added.push(field);
            }
            writes.push((element_key, value));
        }
        added.sort_unstable();
        added.dedup();
        self.clear_dead_rows(db, &hash)?;
        for (element_key, value) in writes {
            self.put_element(element_key, value);
        }
        hash.count += added.len() as u64;
        self.put_meta(db, key, &hash);
        Ok(added.len() as u64)
    }

    /// Sets a field that is not there, and says whether it was not. The lock is held.
    pub fn hash_set_absent(
        &mut self,
        db: u8,
        key: &[u8],
        field: &[u8],
        value: &[u8],
    ) -> Result<bool> {
        encode::check_member(field)?;
        let mut hash = self.open_collection(db, key, Kind::Hash)?;
        let element_key = encode::member_key(db, hash.id, field);
        if self.has_stored_element(&hash, &element_key)? {
            return Ok(false);
        }
        self.clear_dead_rows(db, &hash)?;
        self.put_element(element_key, value);
        hash.count += 1;
        self.put_meta(db, key, &hash);
        Ok(true)
    }

    /// Removes fields, and gives how many were there. The lock is held.
    pub fn hash_remove<'k>(
        &mut self,
        db: u8,
        key: &[u8],
        fields: impl Iterator<Item = &'k [u8]>,
    ) -> Result<u64> {
        let Some(mut hash) = self.write_collection(db, key, Kind::Hash)? else { return Ok(0) };
        self.remove_members(db, key, &mut hash, fields)
    }

    /// Removes what is there of `members` from a hash or a set, and gives how many that were.
    pub(crate) fn remove_members<'k>(
        &mut self,
        db: u8,
        key: &[u8],
        meta: &mut Meta,
        members: impl Iterator<Item = &'k [u8]>,
    ) -> Result<u64> {
        let mut present = Vec::new();
        for member in members {
            let element_key = encode::member_key(db, meta.id, member);
            if self.has_element(&element_key)? {
                present.push(element_key);
            }
        }
        present.sort_unstable();
        present.dedup();
        let removed = present.len() as u64;
        if removed > 0 {
            self.clear_dead_rows(db, meta)?;
            for element_key in present {
                self.delete_element(element_key);
            }
            meta.count = meta.count.saturating_sub(removed);
            self.put_meta(db, key, meta);
        }
        Ok(removed)
    }

    /// Adds to a field's integer, 0 if it is not there, and gives the sum. The lock is held.
    pub fn hash_add(&mut self, db: u8, key: &[u8], field: &[u8], delta: i64) -> Result<i64> {
        encode::check_member(field)?;
        let mut hash = self.open_collection(db, key, Kind::Hash)?;
        let element_key = encode::member_key(db, hash.id, field);
        let before = self.stored_element(&hash, &element_key)?;
        let number = match &before {
            Some(text) => integer::parse(text).ok_or(Error::HashValueNotAnInteger)?,
            None => 0,
        };
        let sum = number.checked_add(delta).ok_or(Error::Overflow)?;
        self.clear_dead_rows(db, &hash)?;
        self.put_element(element_key, &Digits::of(sum));
        hash.count += u64::from(before.is_none());
        self.put_meta(db, key, &hash);
        Ok(sum)
    }

    /// Adds to a field's number, 0 if it is not there, and gives the sum as it is stored. The lock
    /// is held.
    pub fn hash_add_float(
        &mut self,
        db: u8,
        key: &[u8],
        field: &[u8],
        delta: LongDouble,
    ) -> Result<String> {
        encode::check_member(field)?;
        let mut hash = self.open_collection(db, key, Kind::Hash)?;
        let element_key = encode::member_key(db, hash.id, field);
        let before = self.stored_element(&hash, &element_key)?;
        let number = LongDouble::parse(before.as_deref().unwrap_or(b"0"));
        let sum = number.ok_or(Error::HashValueNotAFloat)?.plus(delta);
        let sum = sum.filter(|sum| sum.is_finite()).ok_or(Error::NotFinite)?.to_string();
        self.clear_dead_rows(db, &hash)?;
        self.put_element(element_key, sum.as_bytes());
        hash.count += u64::from(before.is_none());
        self.put_meta(db, key, &hash);
        Ok(sum)
    }
}
