//! Commands on strings. Those that write have the lock of their keys.

use crate::command_batch::{CommandBatch, Mode, TextInfo, Value};
use crate::error::{Error, Result};
use crate::integer::{self, Digits};
use crate::keys::{Content, Outline};
use crate::keyspace::Keyspace;
use crate::long_double::LongDouble;
use crate::result_size::check_added;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// The longest string, in bytes: 512 MiB.
pub const MAX_STRING_BYTES: usize = 512 << 20;

/// When [`CommandBatch::put`] sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum When {
    /// In any case.
    #[default]
    Always,
    /// If there is nothing under the key (`NX`).
    Absent,
    /// If there is something under the key (`XX`).
    Present,
}

/// When what [`CommandBatch::put`] sets expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Lifetime {
    /// Never.
    #[default]
    Unlimited,
    /// In ms since 1970; a time that has passed leaves nothing under the key.
    Until(u64),
    /// As what is there now (`KEEPTTL`).
    Kept,
}

/// How [`CommandBatch::put`] sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PutOptions {
    /// On which condition.
    pub when: When,
    /// For how long.
    pub lifetime: Lifetime,
    /// Whether the string that was there is wanted; it is an error if it is none.
    pub get: bool,
}

/// What [`CommandBatch::put`] did.
#[derive(Debug)]
pub struct PutOutcome {
    /// Whether the condition held.
    pub is_set: bool,
    /// The string that was there, if it was wanted.
    pub before: Option<Value>,
}

/// What is known of the length of a string that is not read, or not decompressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnreadLen {
    /// Its length; `None` if only its compressed form shows it, which was too long to be read.
    pub bytes: Option<usize>,
    /// What reading it reads: its length, or that of its compressed form.
    pub stored_bytes: usize,
}

impl CommandBatch {
    /// The string under `key`.
    pub fn get(&mut self, db: u8, key: &[u8]) -> Result<Option<Value>> {
        // One that was there may have given way to a string since, by a batch that flushed the database before.
        let held_before = self.may_hold_collections(db);
        let content = match self.text(db, key)? {
            Some(text) => Content::Text(text),
            None if !held_before && !self.may_hold_collections(db) => Content::Nothing,
            None => self.content(db, key)?,
        };
        self.note_lookup(content.exists());
        content.into_string()
    }

    /// Sets `key` to a string, whatever was there. With default options nothing is read unless
    /// there are collections.
    pub fn put(
        &mut self,
        db: u8,
        key: &[u8],
        value: &[u8],
        options: &PutOptions,
    ) -> Result<PutOutcome> {
        self.check_key(key)?;
        check_length(value.len(), MAX_STRING_BYTES)?;
        self.allow_bytes(value.len())?;
        let PutOptions { when, lifetime, get } = *options;
        if when == When::Always && lifetime != Lifetime::Kept && !get {
            let expires_at_ms = match lifetime {
                Lifetime::Until(at) => Some(at),
                _ => None,
            };
            self.replace(db, key, value, expires_at_ms)?;
            return Ok(PutOutcome { is_set: true, before: None });
        }
        let (exists, kept_ms, before) = match get {
            true => {
                let content = self.content(db, key)?;
                (content.exists(), content.expires_at_ms(), content.into_string()?)
            }
            false => {
                let outline = self.outline(db, key)?;
                (outline.exists(), outline.expires_at_ms(), None)
            }
        };
        let expires_at_ms = match lifetime {
            Lifetime::Unlimited => None,
            Lifetime::Until(at) => Some(at),
            Lifetime::Kept => kept_ms,
        };
        let is_set = match when {
            When::Always => true,
            When::Absent => !exists,
            When::Present => exists,
        };
        if is_set {
            self.replace(db, key, value, expires_at_ms)?;
        }
        Ok(PutOutcome { is_set, before })
    }

    /// The string under `key`, which is removed.
    pub fn take_string(&mut self, db: u8, key: &[u8]) -> Result<Option<Value>> {
        let before = self.content(db, key)?.into_string()?;
        if before.is_some() {
            self.delete_text(db, key);
        }
        Ok(before)
    }

    /// The string under `key`, which is to live as long as `lifetime` says.
    pub fn get_and_expire(
        &mut self,
        db: u8,
        key: &[u8],
        lifetime: Lifetime,
    ) -> Result<Option<Value>> {
        let Some((value, expires_at_ms)) = self.content(db, key)?.into_text()? else {
            return Ok(None);
        };
        let until = match lifetime {
            Lifetime::Until(at) => Some(at),
            Lifetime::Unlimited if expires_at_ms.is_some() => None,
            Lifetime::Unlimited | Lifetime::Kept => return Ok(Some(value)),
        };
        self.allow_bytes(value.len())?;
        self.put_text(db, key, &value, until);
        Ok(Some(value))
    }

    /// The strings under `keys`, all as of one moment; `None` also where there is something else.
    pub fn get_many(&mut self, db: u8, keys: &[&[u8]]) -> Result<Vec<Option<Value>>> {
        if keys.len() > 1 {
            self.pin();
        }
        if self.mode() == Mode::Device && keys.len() > 1 {
            let values = self.texts(db, keys)?;
            values.iter().for_each(|value| self.note_lookup(value.is_some()));
            return Ok(values);
        }
        let mut value = |key| {
            let found = self.text(db, key)?;
            self.note_lookup(found.is_some());
            Ok(found.map(|text| text.value))
        };
        keys.iter().map(|key| value(key)).collect()
    }

    /// Sets many keys to strings, whatever was there. Of equal keys the last one counts.
    ///
    /// # Errors
    /// [`Error::TooLong`] if a key or string is too long, or they take more than
    /// [`MAX_ADDED_BYTES`](crate::MAX_ADDED_BYTES); those of the engine.
    pub fn put_many<'k>(
        &mut self,
        db: u8,
        pairs: impl Iterator<Item = (&'k [u8], &'k [u8])> + Clone,
    ) -> Result<()> {
        for (key, value) in pairs.clone() {
            self.check_key(key)?;
            check_length(value.len(), MAX_STRING_BYTES)?;
        }
        check_added(pairs.clone().map(|(key, value)| key.len() + value.len()))?;
        if !self.may_hold_collections(db) {
            pairs.for_each(|(key, value)| self.put_text(db, key, value, None));
            return Ok(());
        }
        self.attempt(|turn| {
            for (key, value) in pairs {
                turn.replace(db, key, value, None)?;
            }
            Ok(())
        })
    }

    /// As [`Self::put_many`] if there is nothing under any of the keys; gives whether.
    pub fn put_many_absent<'k>(
        &mut self,
        db: u8,
        pairs: impl Iterator<Item = (&'k [u8], &'k [u8])> + Clone,
    ) -> Result<bool> {
        for (key, _) in pairs.clone() {
            if self.outline(db, key)?.exists() {
                return Ok(false);
            }
        }
        self.put_many(db, pairs)?;
        Ok(true)
    }

    /// Appends to the string under `key`, which is empty if there is none, and gives its length.
    /// Costs the length of the whole string.
    pub fn append(&mut self, db: u8, key: &[u8], tail: &[u8]) -> Result<usize> {
        let content = self.content(db, key)?;
        let (before, expires_at_ms) = content.text()?;
        let len = before.len() + tail.len();
        self.check_key(key)?;
        self.space().check_string_length(len)?;
        self.allow_bytes(len)?;
        let mut value = Vec::with_capacity(len);
        value.extend_from_slice(before);
        value.extend_from_slice(tail);
        self.update(db, key, &value, expires_at_ms, &content)?;
        Ok(len)
    }

    /// The length of the string under `key`; 0 if there is none. The string is read only if it is compressed by itself.
    pub fn string_len(&mut self, db: u8, key: &[u8]) -> Result<usize> {
        let outline = self.outline(db, key)?;
        self.note_lookup(outline.exists());
        match outline {
            Outline::Nothing => Ok(0),
            Outline::Text(TextInfo { len: Some(len), .. }) => Ok(len),
            // There may be something else by now.
            Outline::Text(_) => {
                Ok(self.content(db, key)?.into_string()?.map_or(0, |value| value.len()))
            }
            Outline::Collection(_) => Err(Error::WrongType),
        }
    }

    /// What is known of the length of the string under `key`; `None` if there is none. Only a compressed form of at most
    /// `read_bytes` is read, and not decompressed.
    pub fn unread_len(
        &mut self,
        db: u8,
        key: &[u8],
        read_bytes: usize,
    ) -> Result<Option<UnreadLen>> {
        // It may be looked at twice, and become something else.
        self.pin_view(db, key);
        let outline = self.outline(db, key)?;
        self.note_lookup(outline.exists());
        let info = match outline {
            Outline::Nothing => None,
            Outline::Text(TextInfo { len: None, stored_bytes, .. })
                if stored_bytes <= read_bytes =>
            {
                self.text_info_within(db, key, read_bytes)?
            }
            Outline::Text(info) => Some(info),
            Outline::Collection(_) => return Err(Error::WrongType),
        };
        Ok(info.map(|info| UnreadLen { bytes: info.len, stored_bytes: info.stored_bytes }))
    }

    /// The string under `key` and which part of it is from `first` to `last`, both included;
    /// counted from the end if negative.
    pub fn get_range(
        &mut self,
        db: u8,
        key: &[u8],
        first: i64,
        last: i64,
    ) -> Result<Option<(Value, Range<usize>)>> {
        Ok(self.get(db, key)?.map(|value| {
            let range = part(value.len(), first, last);
            (value, range)
        }))
    }

    /// Overwrites the string under `key` from `offset` on, with zeros in between if it is shorter,
    /// and gives its length. Nothing is written if `bytes` is empty.
    pub fn put_range(&mut self, db: u8, key: &[u8], offset: u64, bytes: &[u8]) -> Result<usize> {
        let content = self.content(db, key)?;
        let (before, expires_at_ms) = content.text()?;
        if bytes.is_empty() {
            return Ok(before.len());
        }
        let end = usize::try_from(offset).unwrap_or(usize::MAX).saturating_add(bytes.len());
        self.check_key(key)?;
        self.space().check_string_length(end)?;
        self.allow_bytes(end.max(before.len()))?;
        let mut value = Vec::with_capacity(end.max(before.len()));
        value.extend_from_slice(before);
        value.resize(end.max(before.len()), 0);
        value[end - bytes.len()..end].copy_from_slice(bytes);
        self.update(db, key, &value, expires_at_ms, &content)?;
        Ok(value.len())
    }

    /// Changes the bytes of the string under `key`, none if there is none; nothing is written if
    /// `change` says so or fails. It makes the string no longer than `most_bytes`, unless it is already. Costs the
    /// length of the whole string.
    pub fn edit_string<T>(
        &mut self,
        db: u8,
        key: &[u8],
        most_bytes: usize,
        change: impl FnOnce(&mut Vec<u8>) -> Result<(bool, T)>,
    ) -> Result<T> {
        let content = self.content(db, key)?;
        let (before, expires_at_ms) = content.text()?;
        self.allow_bytes(before.len().max(most_bytes))?;
        let mut value = Vec::with_capacity(before.len().max(most_bytes));
        value.extend_from_slice(before);
        let (is_changed, outcome) = change(&mut value)?;
        if is_changed {
            self.check_key(key)?;
            if value.len() > before.len() {
                self.space().check_string_length(value.len())?;
            }
            self.update(db, key, &value, expires_at_ms, &content)?;
        }
        Ok(outcome)
    }

    /// Adds to the integer under `key`, 0 if there is nothing, and gives the sum.
    pub fn add(&mut self, db: u8, key: &[u8], delta: i64) -> Result<i64> {
        self.check_key(key)?;
        let content = self.content(db, key)?;
        let (before, expires_at_ms) = content.text()?;
        let number = match content.exists() {
            true => integer::parse(before).ok_or(Error::NotAnInteger)?,
            false => 0,
        };
        let sum = number.checked_add(delta).ok_or(Error::Overflow)?;
        self.update(db, key, &Digits::of(sum), expires_at_ms, &content)?;
        Ok(sum)
    }

    /// Adds to the number under `key`, 0 if there is nothing, and gives the sum as it is stored.
    pub fn add_float(&mut self, db: u8, key: &[u8], delta: LongDouble) -> Result<String> {
        self.check_key(key)?;
        let content = self.content(db, key)?;
        let (before, expires_at_ms) = content.text()?;
        let before = if content.exists() { before } else { b"0" };
        let number = LongDouble::parse(before).ok_or(Error::NotAFloat)?;
        let sum = number.plus(delta).filter(|sum| sum.is_finite());
        let sum = sum.ok_or(Error::NotFinite)?.to_string();
        self.update(db, key, sum.as_bytes(), expires_at_ms, &content)?;
        Ok(sum)
    }

    /// Writes a string over whatever is there.
    fn replace(
        &mut self,
        db: u8,
        key: &[u8],
        value: &[u8],
        expires_at_ms: Option<u64>,
    ) -> Result<()> {
        self.drop_any_collection(db, key)?;
        self.put_text(db, key, value, expires_at_ms);
        Ok(())
    }

    /// Writes a string where `content`, a string or nothing, has been found.
    fn update(
        &mut self,
        db: u8,
        key: &[u8],
        value: &[u8],
        expires_at_ms: Option<u64>,
        content: &Content,
    ) -> Result<()> {
        if !content.exists() {
            self.drop_any_collection(db, key)?;
        }
        self.put_text(db, key, value, expires_at_ms);
        Ok(())
    }
}

impl Keyspace {
    /// From now on no command that changes a string makes it longer than this, and never than [`MAX_STRING_BYTES`].
    pub fn set_max_string_bytes(&self, bytes: usize) {
        self.max_string_bytes.store(bytes, Ordering::Relaxed);
    }

    fn check_string_length(&self, len: usize) -> Result<()> {
        check_length(len, self.max_string_bytes.load(Ordering::Relaxed).min(MAX_STRING_BYTES))
    }
}

fn check_length(len: usize, most: usize) -> Result<()> {
    match len <= most {
        true => Ok(()),
        false => {
            Err(Error::TooLong("string exceeds maximum allowed size (proto-max-bulk-len)".into()))
        }
    }
}

/// The part of `len` bytes that `first` and `last` mean.
fn part(len: usize, first: i64, last: i64) -> Range<usize> {
    if len == 0 || (first < 0 && last < 0 && first > last) {
        return 0..0;
    }
    let len = len as i64;
    let from_start = |at: i64| if at < 0 { at.saturating_add(len).max(0) } else { at };
    let (first, last) = (from_start(first), from_start(last).min(len - 1));
    if first > last { 0..0 } else { first as usize..last as usize + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_those_of_redis() {
        for (len, first, last, wanted) in [
            (0, 0, -1, 0..0),
            (5, 0, -1, 0..5),
            (5, 1, 3, 1..4),
            (5, -3, -2, 2..4),
            (5, -2, -3, 0..0),
            (5, -100, 2, 0..3),
            // Both before the start, in order: the first byte, as Redis has it.
            (5, -100, -90, 0..1),
            (5, 3, 100, 3..5),
            (5, 5, 100, 0..0),
            (5, 4, 1, 0..0),
            (5, i64::MIN, i64::MAX, 0..5),
            (5, i64::MAX, i64::MIN, 0..0),
        ] {
            assert_eq!(part(len, first, last), wanted, "{len} {first} {last}");
        }
    }
}
