//! The memtable core: an ordered map of internal keys with concurrent inserts and shared reads.
//!
//! Called by the engine's memtables and by flushes (through [`Iter`]).
#![allow(unsafe_code)] // entries are never removed, so borrowed values outlive the lock

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use terrace_base::{InternalIter, Result};

type Map = BTreeMap<(Box<[u8]>, Reverse<u64>), Box<[u8]>>;

/// The arena has no room: nothing was inserted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

impl std::fmt::Display for Full {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the memtable arena has no room for the entry")
    }
}

impl std::error::Error for Full {}

/// The position of a previous insert, for ascending or near inserts.
#[derive(Debug, Default)]
pub struct Hint;

/// An ordered map of `(user key, trailer)` to value; entries live until the whole list drops.
#[derive(Debug)]
pub struct Skiplist {
    capacity: usize,
    state: Mutex<(Map, usize)>,
}

impl Skiplist {
    /// A list whose arena holds `bytes` bytes.
    pub fn with_capacity(bytes: usize) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self { capacity: bytes, state: Mutex::default() }))
    }

    fn locked(&self) -> MutexGuard<'_, (Map, usize)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an entry. `(user_key, trailer)` must be new; a repeat is ignored.
    pub fn insert(
        &self,
        user_key: &[u8],
        trailer: u64,
        value: &[u8],
        _hint: &mut Hint,
    ) -> std::result::Result<(), Full> {
        let mut state = self.locked();
        let size = Self::entry_upper_bound(user_key.len(), value.len());
        if state.1 + size > self.capacity {
            return Err(Full);
        }
        state.1 += size;
        state.0.entry((user_key.into(), Reverse(trailer))).or_insert_with(|| value.into());
        Ok(())
    }

    /// The first entry of `user_key` at or after `trailer`: the newest visible there.
    pub fn get(&self, user_key: &[u8], trailer: u64) -> Option<(u64, &[u8])> {
        let state = self.locked();
        let from = (Box::from(user_key), Reverse(trailer));
        let ((key, found), value) = state.0.range(from..).next()?;
        // SAFETY: values are never removed or changed while `self` lives.
        let value = unsafe { std::slice::from_raw_parts(value.as_ptr(), value.len()) };
        (**key == *user_key).then_some((found.0, value))
    }

    /// A cursor over the entries, before which it stands nowhere.
    pub fn iter(self: &Arc<Self>) -> Iter {
        Iter { list: Arc::clone(self), at: None }
    }

    /// Arena bytes in use.
    pub fn allocated_bytes(&self) -> usize {
        self.locked().1
    }

    /// Memory committed for the arena.
    pub fn resident_bytes(&self) -> usize {
        self.allocated_bytes()
    }

    /// Arena size.
    pub fn capacity_bytes(&self) -> usize {
        self.capacity
    }

    /// Entries in the list.
    pub fn entry_count(&self) -> usize {
        self.locked().0.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.entry_count() == 0
    }

    /// The most arena bytes one entry may take.
    pub const fn entry_upper_bound(key_len: usize, value_len: usize) -> usize {
        key_len + value_len + 160
    }
}

/// A cursor over a [`Skiplist`], which it keeps alive.
#[derive(Debug)]
pub struct Iter {
    list: Arc<Skiplist>,
    at: Option<(Box<[u8]>, u64, Box<[u8]>)>,
}

impl Iter {
    fn first_from(&mut self, bound: Bound<(Box<[u8]>, Reverse<u64>)>) {
        let state = self.list.locked();
        let found = state.0.range((bound, Bound::Unbounded)).next();
        self.at = found.map(|((key, trailer), value)| (key.clone(), trailer.0, value.clone()));
    }

    fn last_before(&mut self, bound: Bound<(Box<[u8]>, Reverse<u64>)>) {
        let state = self.list.locked();
        let found = state.0.range((Bound::Unbounded, bound)).next_back();
        self.at = found.map(|((key, trailer), value)| (key.clone(), trailer.0, value.clone()));
    }
}

impl InternalIter for Iter {
    fn valid(&self) -> bool {
        self.at.is_some()
    }

    fn seek_to_first(&mut self) -> Result<()> {
        self.first_from(Bound::Unbounded);
        Ok(())
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.last_before(Bound::Unbounded);
        Ok(())
    }

    fn seek(&mut self, user_key: &[u8], trailer: u64) -> Result<()> {
        self.first_from(Bound::Included((user_key.into(), Reverse(trailer))));
        Ok(())
    }

    fn seek_before(&mut self, user_key: &[u8], trailer: u64) -> Result<()> {
        self.last_before(Bound::Excluded((user_key.into(), Reverse(trailer))));
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        if let Some((key, trailer, _)) = self.at.take() {
            self.first_from(Bound::Excluded((key, Reverse(trailer))));
        }
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        if let Some((key, trailer, _)) = self.at.take() {
            self.last_before(Bound::Excluded((key, Reverse(trailer))));
        }
        Ok(())
    }

    fn user_key(&self) -> &[u8] {
        self.at.as_ref().map_or(&[], |at| &at.0)
    }

    fn trailer(&self) -> u64 {
        self.at.as_ref().map_or(0, |at| at.1)
    }

    fn value(&self) -> &[u8] {
        self.at.as_ref().map_or(&[], |at| &at.2)
    }
}
