//! RocksDB's iterator as a cursor.
#![allow(unsafe_code, reason = "calls into a C library")]

use super::{Api, Handle};
use crate::engine::c_library;
use crate::store::Cursor;
use anyhow::Result;
use std::ptr;

/// A live iterator of a store that outlives it.
pub struct RocksdbCursor<'a> {
    pub(super) api: &'a Api,
    pub(super) iter: Handle,
}

impl RocksdbCursor<'_> {
    fn status(&self) -> Result<()> {
        let mut error = ptr::null_mut();
        // SAFETY: the iterator is live.
        unsafe { (self.api.iter_get_error)(self.iter, &raw mut error) };
        c_library::check(error, self.api.free)
    }

    fn valid(&self) -> bool {
        // SAFETY: the iterator is live.
        unsafe { (self.api.iter_valid)(self.iter) != 0 }
    }
}

impl Cursor for RocksdbCursor<'_> {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        // SAFETY: the iterator is live and the key is read only during the call.
        unsafe { (self.api.iter_seek)(self.iter, key.as_ptr(), key.len()) };
        if self.valid() { Ok(()) } else { self.status() }
    }

    fn next(&mut self) -> Result<()> {
        // SAFETY: the iterator is live and, by this trait's contract, on an entry.
        unsafe { (self.api.iter_next)(self.iter) };
        if self.valid() { Ok(()) } else { self.status() }
    }

    fn entry(&self) -> Option<(&[u8], &[u8])> {
        if !self.valid() {
            return None;
        }
        let (mut key_len, mut value_len) = (0, 0);
        // SAFETY: the iterator is on an entry; its key and value live until it moves, and moving
        // it needs `&mut self`.
        unsafe {
            let key = (self.api.iter_key)(self.iter, &raw mut key_len);
            let value = (self.api.iter_value)(self.iter, &raw mut value_len);
            Some((
                std::slice::from_raw_parts(key, key_len),
                std::slice::from_raw_parts(value, value_len),
            ))
        }
    }
}

impl Drop for RocksdbCursor<'_> {
    fn drop(&mut self) {
        // SAFETY: made by create_iterator and destroyed once.
        unsafe { (self.api.iter_destroy)(self.iter) };
    }
}
