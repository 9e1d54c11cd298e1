//! Commands on keys of any type.
//!
//! Under a key is a string or a collection, never both. A command without the lock of the key that finds
//! no string takes a snapshot and repeats the read before it looks for a collection: the key might become
//! a string between the two reads.

use crate::command_batch::{CommandBatch, Text, TextInfo, Value};
use crate::encode::{Kind, Meta};
use crate::error::{Error, Result};

/// What is under a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Type {
    /// Bytes.
    String,
    /// One of the collections.
    Collection(Kind),
}

impl Type {
    /// Redis's name of the type.
    pub fn name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Collection(Kind::Hash) => "hash",
            Self::Collection(Kind::Set) => "set",
            Self::Collection(Kind::SortedSet) => "zset",
            Self::Collection(Kind::List) => "list",
        }
    }
}

/// On which condition [`CommandBatch::expire`] changes when a key expires; all that are set must hold. A
/// key that does not expire does so later than any other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExpireIf {
    /// Only if it does not expire now (`NX`).
    pub unlimited: bool,
    /// Only if it expires now (`XX`).
    pub limited: bool,
    /// Only if it is to expire later than now (`GT`).
    pub later: bool,
    /// Only if it is to expire earlier than now (`LT`).
    pub earlier: bool,
}

impl ExpireIf {
    fn allows(self, now: Option<u64>, wanted: u64) -> bool {
        (!self.unlimited || now.is_none())
            && (!self.limited || now.is_some())
            && (!self.later || now.is_some_and(|now| wanted > now))
            && (!self.earlier || now.is_none_or(|now| wanted < now))
    }
}

/// What has been found under a key.
#[derive(Debug)]
pub(crate) enum Content {
    Nothing,
    Text(Text),
    Collection(Meta),
}

impl Content {
    pub fn exists(&self) -> bool {
        !matches!(self, Self::Nothing)
    }

    pub fn expires_at_ms(&self) -> Option<u64> {
        match self {
            Self::Nothing => None,
            Self::Text(text) => text.expires_at_ms,
            Self::Collection(meta) => (meta.expires_at_ms != 0).then_some(meta.expires_at_ms),
        }
    }

    pub fn into_string(self) -> Result<Option<Value>> {
        Ok(self.into_text()?.map(|(value, _)| value))
    }

    pub fn into_text(self) -> Result<Option<(Value, Option<u64>)>> {
        match self {
            Self::Nothing => Ok(None),
            Self::Text(text) => Ok(Some((text.value, text.expires_at_ms))),
            Self::Collection(_) => Err(Error::WrongType),
        }
    }

    /// The bytes of the string, none if there is nothing, and when it expires.
    pub fn text(&self) -> Result<(&[u8], Option<u64>)> {
        match self {
            Self::Nothing => Ok((&[], None)),
            Self::Text(text) => Ok((&text.value, text.expires_at_ms)),
            Self::Collection(_) => Err(Error::WrongType),
        }
    }
}

/// What is under a key, without the bytes of a string: a large one need not be read.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Outline {
    Nothing,
    Text(TextInfo),
    Collection(Meta),
}

impl Outline {
    pub fn exists(&self) -> bool {
        !matches!(self, Self::Nothing)
    }

    pub fn expires_at_ms(&self) -> Option<u64> {
        match self {
            Self::Nothing => None,
            Self::Text(text) => text.expires_at_ms,
            Self::Collection(meta) => (meta.expires_at_ms != 0).then_some(meta.expires_at_ms),
        }
    }
}

impl CommandBatch {
    /// As [`Self::content`], without the bytes of a string.
    pub(crate) fn outline(&mut self, db: u8, key: &[u8]) -> Result<Outline> {
        Ok(match self.text_or_meta(db, key, |batch| batch.text_info(db, key))? {
            (Some(text), _) => Outline::Text(text),
            (None, Some(meta)) => Outline::Collection(meta),
            (None, None) => Outline::Nothing,
        })
    }

    /// What is under `key`.
    pub(crate) fn content(&mut self, db: u8, key: &[u8]) -> Result<Content> {
        Ok(match self.text_or_meta(db, key, |batch| batch.text(db, key))? {
            (Some(text), _) => Content::Text(text),
            (None, Some(meta)) => Content::Collection(meta),
            (None, None) => Content::Nothing,
        })
    }

    /// What `text` finds of the string under `key`, or the collection there; neither if there is nothing.
    fn text_or_meta<T>(
        &mut self,
        db: u8,
        key: &[u8],
        text: impl Fn(&mut Self) -> Result<Option<T>>,
    ) -> Result<(Option<T>, Option<Meta>)> {
        // One that was there may have given way to a string since, by a batch that flushed the database before.
        let held_before = self.may_hold_collections(db);
        if let Some(text) = text(self)? {
            return Ok((Some(text), None));
        }
        if !held_before && !self.may_hold_collections(db) {
            return Ok((None, None));
        }
        if self.pin_view(db, key)
            && let Some(text) = text(self)?
        {
            return Ok((Some(text), None));
        }
        Ok((None, self.meta(db, key)?))
    }

    /// Removes the collection under `key`, also one that has expired, so that a string can be
    /// written. The lock is held.
    pub(crate) fn drop_any_collection(&mut self, db: u8, key: &[u8]) -> Result<()> {
        match self.stored_meta(db, key)? {
            Some(meta) => self.drop_collection(db, key, &meta),
            None => Ok(()),
        }
    }

    /// The type of what is under `key`.
    pub fn key_type(&mut self, db: u8, key: &[u8]) -> Result<Option<Type>> {
        Ok(match self.outline(db, key)? {
            Outline::Nothing => None,
            Outline::Text(_) => Some(Type::String),
            Outline::Collection(meta) => Some(Type::Collection(meta.kind)),
        })
    }

    /// How many of `keys` exist; one that is named twice counts twice.
    pub fn exists<'k>(
        &mut self,
        db: u8,
        keys: impl ExactSizeIterator<Item = &'k [u8]>,
    ) -> Result<u64> {
        if keys.len() > 1 {
            self.pin();
        }
        let mut count = 0;
        for key in keys {
            let exists = self.outline(db, key)?.exists();
            self.note_lookup(exists);
            count += u64::from(exists);
        }
        Ok(count)
    }

    /// Removes keys, and gives how many of them there were. The locks are held.
    pub fn delete<'k>(
        &mut self,
        db: u8,
        mut keys: impl ExactSizeIterator<Item = &'k [u8]>,
    ) -> Result<u64> {
        if keys.len() == 1
            && let Some(key) = keys.next()
        {
            return Ok(u64::from(self.delete_key(db, key)?));
        }
        self.attempt(|turn| {
            let mut count = 0;
            for key in keys {
                count += u64::from(turn.delete_key(db, key)?);
            }
            Ok(count)
        })
    }

    fn delete_key(&mut self, db: u8, key: &[u8]) -> Result<bool> {
        match self.outline(db, key)? {
            Outline::Nothing => return Ok(false),
            Outline::Text(_) => self.delete_text(db, key),
            Outline::Collection(meta) => self.drop_collection(db, key, &meta)?,
        }
        Ok(true)
    }

    /// Lets a key expire at `at_ms`, in ms since 1970; at once if that has passed. Gives whether
    /// the key exists and the condition allows it. The lock is held. A string is written again.
    pub fn expire(&mut self, db: u8, key: &[u8], at_ms: u64, condition: ExpireIf) -> Result<bool> {
        let outline = self.outline(db, key)?;
        if !outline.exists() || !condition.allows(outline.expires_at_ms(), at_ms) {
            return Ok(false);
        }
        let is_past = at_ms <= self.now_ms();
        match outline {
            Outline::Nothing => {}
            Outline::Text(_) if is_past => self.delete_text(db, key),
            Outline::Text(_) => self.put_text_again(db, key, Some(at_ms))?,
            Outline::Collection(meta) if is_past => self.drop_collection(db, key, &meta)?,
            Outline::Collection(mut meta) => {
                self.set_expiry(db, key, &mut meta, at_ms);
                self.put_meta(db, key, &meta);
            }
        }
        Ok(true)
    }

    /// Lets a key live for ever. Gives whether it would have expired. The lock is held.
    pub fn persist(&mut self, db: u8, key: &[u8]) -> Result<bool> {
        let outline = self.outline(db, key)?;
        if outline.expires_at_ms().is_none() {
            return Ok(false);
        }
        match outline {
            Outline::Nothing => {}
            Outline::Text(_) => self.put_text_again(db, key, None)?,
            Outline::Collection(mut meta) => {
                self.set_expiry(db, key, &mut meta, 0);
                self.put_meta(db, key, &meta);
            }
        }
        Ok(true)
    }

    /// Writes the string that is under `key` with another expiry.
    fn put_text_again(&mut self, db: u8, key: &[u8], expires_at_ms: Option<u64>) -> Result<()> {
        if let Some(text) = self.text(db, key)? {
            self.allow_bytes(text.value.len())?;
            self.put_text(db, key, &text.value, expires_at_ms);
        }
        Ok(())
    }

    /// `None` if there is no such key; else when it expires, if it does, in ms since 1970.
    pub fn expiry(&mut self, db: u8, key: &[u8]) -> Result<Option<Option<u64>>> {
        let outline = self.outline(db, key)?;
        self.note_lookup(outline.exists());
        Ok(outline.exists().then(|| outline.expires_at_ms()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_without_expiry_expires_last() {
        let later = ExpireIf { later: true, ..ExpireIf::default() };
        let earlier = ExpireIf { earlier: true, ..ExpireIf::default() };
        assert!(!later.allows(None, 9) && earlier.allows(None, 9));
        assert!(later.allows(Some(8), 9) && !earlier.allows(Some(8), 9));
        assert!(!later.allows(Some(9), 9) && !earlier.allows(Some(9), 9));
        let limited_later = ExpireIf { limited: true, ..later };
        assert!(limited_later.allows(Some(8), 9) && !limited_later.allows(None, 9));
        let unlimited = ExpireIf { unlimited: true, ..ExpireIf::default() };
        assert!(unlimited.allows(None, 9) && !unlimited.allows(Some(1), 9));
    }
}
