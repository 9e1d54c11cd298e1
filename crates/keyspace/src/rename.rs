//! Keys that get another name, and copies of them.
//!
//! A collection's elements lie under its id, not under its name, so another name in the same slot costs one
//! record. A name in another slot costs what a copy costs. A copy has an id of its own and is gathered in
//! memory until the commit, up to the limit of [`ResultSize`].

use crate::command_batch::{CommandBatch, Direction};
use crate::encode::{self, Meta};
use crate::error::{Error, Result};
use crate::keys::Content;
use crate::result_size::ResultSize;
use terrace_cluster::slot_of;

/// Elements that are read before they are written again.
const PAGE: usize = 1024;

/// Bytes of elements that are read before they are written again, but for the last element.
const PAGE_BYTES: usize = 4 << 20;

impl CommandBatch {
    /// Gives what is under `from` the name `to`, in the place of what is there; with `only_absent`
    /// only if nothing is. Gives whether. It expires when it did. The locks of both are held.
    ///
    /// # Errors
    /// [`Error::NoSuchKey`], [`Error::TooLong`], and those of the engine.
    pub fn rename(&mut self, db: u8, from: &[u8], to: &[u8], only_absent: bool) -> Result<bool> {
        self.check_key(to)?;
        let content = self.content(db, from)?;
        if !content.exists() {
            return Err(Error::NoSuchKey);
        }
        if from == to {
            return Ok(!only_absent);
        }
        if only_absent && self.outline(db, to)?.exists() {
            return Ok(false);
        }
        self.attempt(|turn| {
            turn.clear_key(db, to)?;
            match content {
                Content::Nothing => {}
                Content::Text(text) => {
                    turn.allow_bytes(text.value.len())?;
                    turn.delete_text(db, from);
                    turn.put_text(db, to, &text.value, text.expires_at_ms);
                }
                // Elements are in the slot of their key.
                Content::Collection(_) if turn.are_in_two_slots(from, to) => {
                    turn.copy((db, from), (db, to), true)?;
                    turn.clear_key(db, from)?;
                }
                Content::Collection(meta) => {
                    turn.forget_collection(db, from, &meta);
                    turn.name_collection(db, to, meta);
                }
            }
            Ok(true)
        })
    }

    /// Copies what is under a key to another one, perhaps of another database; with `replace` also
    /// if something is there. Gives whether. The copy expires when the original does. The lock of
    /// the second key is held. Costs O(elements), in memory too.
    ///
    /// # Errors
    /// [`Error::TooLong`], also for a collection of more than [`crate::MAX_STORED_BYTES`], and those
    /// of the engine.
    pub fn copy(
        &mut self,
        (from_db, from): (u8, &[u8]),
        (to_db, to): (u8, &[u8]),
        replace: bool,
    ) -> Result<bool> {
        self.check_key(to)?;
        let content = self.content(from_db, from)?;
        if !content.exists() || (!replace && self.outline(to_db, to)?.exists()) {
            return Ok(false);
        }
        self.attempt(|turn| {
            turn.clear_key(to_db, to)?;
            match content {
                Content::Nothing => {}
                Content::Text(text) => {
                    turn.allow_bytes(text.value.len())?;
                    turn.put_text(to_db, to, &text.value, text.expires_at_ms);
                }
                Content::Collection(meta) => {
                    let id = turn.fresh_collection(to, meta.kind)?.id;
                    turn.copy_elements((from_db, meta.id), (to_db, id), meta.count)?;
                    turn.name_collection(to_db, to, Meta { id, ..meta });
                }
            }
            Ok(true)
        })
    }

    /// Moves what is under a key to another database, if nothing is there under the same key. Gives
    /// whether. The locks of both are held. Costs what a copy costs.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn move_key(&mut self, from: u8, to: u8, key: &[u8]) -> Result<bool> {
        self.attempt(|turn| {
            let copied = turn.copy((from, key), (to, key), false)?;
            if copied {
                turn.clear_key(from, key)?;
            }
            Ok(copied)
        })
    }

    /// Removes whatever is under a key, also what has expired. The lock is held.
    pub(crate) fn clear_key(&mut self, db: u8, key: &[u8]) -> Result<()> {
        self.check_key(key)?;
        if self.stored_text_info(db, key)?.is_some() {
            self.delete_text(db, key);
        }
        self.drop_any_collection(db, key)
    }

    /// Removes whatever is under a key, as the result to be stored there has no elements; gives how many it has. What
    /// has expired stays: who watches the key sees no write. The lock is held.
    pub(crate) fn replace_with_nothing(&mut self, db: u8, key: &[u8]) -> Result<u64> {
        self.check_key(key)?;
        self.delete(db, std::iter::once(key))?;
        Ok(0)
    }

    fn are_in_two_slots(&self, one: &[u8], other: &[u8]) -> bool {
        self.space().layout().has_slots() && slot_of(one) != slot_of(other)
    }

    /// Stores the record of a collection under a key that has none.
    fn name_collection(&mut self, db: u8, key: &[u8], meta: Meta) {
        let mut named = Meta { expires_at_ms: 0, ..meta };
        if meta.expires_at_ms != 0 {
            self.set_expiry(db, key, &mut named, meta.expires_at_ms);
        }
        self.put_meta(db, key, &named);
    }

    fn copy_elements(&mut self, from: (u8, u64), to: (u8, u64), count: u64) -> Result<()> {
        self.allow_walk(count)?;
        let prefix = encode::elements_of(from.0, from.1);
        let copy_prefix = encode::elements_of(to.0, to.1);
        let mut start: Option<Vec<u8>> = None;
        let mut result_size = ResultSize::default();
        loop {
            let (mut page, mut bytes) = (Vec::new(), 0);
            self.visit(&prefix, start.as_deref(), Direction::Up, |key, value| {
                result_size.add(key.len() + value.len())?;
                bytes += value.len();
                page.push((key.to_vec(), value.to_vec()));
                Ok(page.len() < PAGE && bytes < PAGE_BYTES)
            })?;
            let more = page.len() == PAGE || bytes >= PAGE_BYTES;
            for (mut key, value) in page {
                // The least key above this one.
                start = more.then(|| [&key[..], &[0]].concat());
                key[..copy_prefix.len()].copy_from_slice(&copy_prefix);
                self.put_element(key, &value);
            }
            if !more {
                return Ok(());
            }
        }
    }
}
