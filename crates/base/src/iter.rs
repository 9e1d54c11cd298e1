//! The iterator over internal keys that memtables, SSTs, levels and merges implement.

use crate::error::Result;

/// A cursor over entries in internal order (user key ascending, trailer descending).
///
/// A fresh cursor is not valid; one that passed either end is not valid and stays so until the
/// next seek. After an error the cursor is not valid. `user_key`, `trailer` and `value` may be
/// called only while valid; what they return lives until the cursor moves. Range tombstones are
/// not among the entries.
pub trait InternalIter {
    /// Whether the cursor stands on an entry.
    fn valid(&self) -> bool;
    /// Moves to the first entry.
    fn seek_to_first(&mut self) -> Result<()>;
    /// Moves to the last entry.
    fn seek_to_last(&mut self) -> Result<()>;
    /// Asks for memory that a [`Self::seek`] to `user_key` reads first, without waiting for it, so that cursors
    /// which seek one after another wait together. Reads nothing. To be followed by that seek, before which the
    /// cursor may not be valid.
    fn prepare_seek(&mut self, _user_key: &[u8]) {}
    /// Moves to the first entry at or after `(user_key, trailer)` in internal order.
    fn seek(&mut self, user_key: &[u8], trailer: u64) -> Result<()>;
    /// Moves to the last entry strictly before `(user_key, trailer)` in internal order.
    fn seek_before(&mut self, user_key: &[u8], trailer: u64) -> Result<()>;
    /// Moves one entry on. Must be valid.
    fn next(&mut self) -> Result<()>;
    /// Moves one entry back. Must be valid.
    fn prev(&mut self) -> Result<()>;
    /// The user key of the entry.
    fn user_key(&self) -> &[u8];
    /// The trailer of the entry.
    fn trailer(&self) -> u64;
    /// The stored value of the entry: with its expiry in front for `PutTtl`, empty for `Delete`.
    fn value(&self) -> &[u8];
}
