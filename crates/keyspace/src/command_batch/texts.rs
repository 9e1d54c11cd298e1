//! Strings: those that are stored, with what the batch wrote over them.

use super::{CommandBatch, Value, WrittenText};
use crate::error::Result;

/// A string and when it expires.
#[derive(Debug, Clone)]
pub struct Text {
    /// The bytes.
    pub value: Value,
    /// In ms since 1970.
    pub expires_at_ms: Option<u64>,
}

/// What is known of a string without its bytes, which are not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TextInfo {
    /// In ms since 1970.
    pub expires_at_ms: Option<u64>,
    /// `None` if only the bytes show it.
    pub len: Option<usize>,
    /// What has to be read for the bytes.
    pub stored_bytes: usize,
}

impl TextInfo {
    /// Whether it has not expired at this time.
    pub fn is_live(self, now_ms: u64) -> bool {
        self.expires_at_ms.is_none_or(|at| at > now_ms)
    }
}

impl CommandBatch {
    /// The string under `key`; `None` if there is none, whatever else there is.
    #[inline]
    pub(crate) fn text(&mut self, db: u8, key: &[u8]) -> Result<Option<Text>> {
        let user_key = self.take_user_key(db, key);
        let found = self.text_at(&user_key);
        self.scratch = user_key;
        found
    }

    #[inline]
    fn text_at(&self, user_key: &[u8]) -> Result<Option<Text>> {
        if let Some((written, bytes)) = self.texts.get(user_key) {
            self.saw_written(true);
            return Ok(match *written {
                WrittenText::Put(expires_at_ms) if written.is_live(self.now_ms) => {
                    Some(Text { value: Value::Written(bytes.into()), expires_at_ms })
                }
                _ => None,
            });
        }
        if self.flushed != 0 && self.is_flushed(self.space.layout.db_of(user_key)) {
            return Ok(None);
        }
        let found = self.space.strings.get_entry(user_key, &self.reading)?;
        Ok(found.map(|found| Text {
            value: Value::Stored(found.value),
            expires_at_ms: found.expires_at_ms,
        }))
    }

    /// The strings under `keys`, read together.
    pub(crate) fn texts(&self, db: u8, keys: &[&[u8]]) -> Result<Vec<Option<Value>>> {
        let user_keys: Vec<_> =
            keys.iter().map(|key| self.space.layout.user_key(db, key)).collect();
        let mut values = vec![None; keys.len()];
        let mut stored = Vec::with_capacity(keys.len());
        for (number, user_key) in user_keys.iter().enumerate() {
            let written = self.texts.get(user_key);
            self.saw_written(written.is_some());
            match written {
                Some((written, bytes)) if written.is_live(self.now_ms) => {
                    values[number] = Some(Value::Written(bytes.into()));
                }
                None if !self.is_flushed(db) => stored.push(number),
                _ => {}
            }
        }
        let wanted: Vec<_> = stored.iter().map(|number| &user_keys[*number]).collect();
        let found = self.space.strings.multi_get_with(&wanted, &self.reading)?;
        for (number, value) in stored.into_iter().zip(found) {
            values[number] = value.map(Value::Stored);
        }
        Ok(values)
    }

    /// As [`Self::text`], without the bytes.
    pub(crate) fn text_info(&mut self, db: u8, key: &[u8]) -> Result<Option<TextInfo>> {
        self.text_info_within(db, key, 0)
    }

    /// As [`Self::text_info`], with the length also if the bytes show it whose compressed form has at most `read_bytes`:
    /// that is read, and not decompressed.
    pub(crate) fn text_info_within(
        &mut self,
        db: u8,
        key: &[u8],
        read_bytes: usize,
    ) -> Result<Option<TextInfo>> {
        let user_key = self.take_user_key(db, key);
        let found = self.text_info_at(&user_key, read_bytes);
        self.scratch = user_key;
        Ok(found?.filter(|text| text.is_live(self.now_ms)))
    }

    /// As [`Self::text_info`], also of a string that has expired and was not dropped yet: batches that began before
    /// that time, and all when the clock is set back, take it for a live one.
    pub(crate) fn stored_text_info(&mut self, db: u8, key: &[u8]) -> Result<Option<TextInfo>> {
        let user_key = self.take_user_key(db, key);
        self.reading.now_ms = Some(0);
        let found = self.text_info_at(&user_key, 0);
        self.reading.now_ms = Some(self.now_ms);
        self.scratch = user_key;
        found
    }

    /// One that this batch wrote is found also if it has expired.
    fn text_info_at(&self, user_key: &[u8], read_bytes: usize) -> Result<Option<TextInfo>> {
        if let Some((written, bytes)) = self.texts.get(user_key) {
            self.saw_written(true);
            return Ok(match *written {
                WrittenText::Put(expires_at_ms) => {
                    let stored_bytes = bytes.len();
                    Some(TextInfo { expires_at_ms, len: Some(stored_bytes), stored_bytes })
                }
                WrittenText::Deleted => None,
            });
        }
        if self.flushed != 0 && self.is_flushed(self.space.layout.db_of(user_key)) {
            return Ok(None);
        }
        let found = self.space.strings.get_info_within(user_key, &self.reading, read_bytes)?;
        Ok(found.map(|info| TextInfo {
            expires_at_ms: info.expires_at_ms,
            len: info.value_bytes,
            stored_bytes: info.stored_bytes,
        }))
    }

    /// Writes a string; one that has expired already deletes what is there. The lock is held, there
    /// is no collection under the key, and the key is not too long.
    pub(crate) fn put_text(
        &mut self,
        db: u8,
        key: &[u8],
        value: &[u8],
        expires_at_ms: Option<u64>,
    ) {
        self.expect_lock(db, key);
        if expires_at_ms.is_some_and(|at| at <= self.now_ms) {
            return self.delete_text(db, key);
        }
        let user_key = self.take_user_key(db, key);
        self.note_put(&user_key);
        self.texts.put(&user_key, value, WrittenText::Put(expires_at_ms));
        self.scratch = user_key;
    }

    /// Removes a string. The lock is held.
    pub(crate) fn delete_text(&mut self, db: u8, key: &[u8]) {
        self.expect_lock(db, key);
        let user_key = self.take_user_key(db, key);
        self.texts.put(&user_key, &[], WrittenText::Deleted);
        self.scratch = user_key;
    }
}
