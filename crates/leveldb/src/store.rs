//! An open store: the keys that the engine orders, and the tree of those that it does not.
//!
//! | the store's order | keys up to the engine's limit | longer keys |
//! |---|---|---|
//! | bytes | default column family | tree, from the first one on |
//! | a comparator of the program's | tree | tree |

use crate::cursor::Cursor;
use crate::order::Order;
use crate::tree::{self, FAMILY, Tree};
use parking_lot::Mutex;
use std::ops::Bound;
use std::sync::OnceLock;
use terrace::{Db, Iter, MAX_KEY_BYTES, ReadOptions, Slice, WriteBatch, WriteOptions};
use terrace_binding::{Code, Failure, Outcome};

pub struct Store {
    pub db: Db,
    order: Order,
    tree: OnceLock<Tree>,
    /// Held while the tree of long keys is created.
    creates: Mutex<()>,
}

impl Store {
    /// The store in `db`.
    ///
    /// # Errors
    /// Its keys have another order.
    pub fn open(db: Db, order: Order) -> Outcome<Self> {
        let store = Self { db, order, tree: OnceLock::new(), creates: Mutex::new(()) };
        let family = store.db.column_family(FAMILY);
        let is_new = family.as_ref().map_or(Ok(true), Tree::is_new)?;
        match family.filter(|_| !is_new) {
            Some(family) => {
                let tree = Tree::open(family, store.order.clone())?;
                let _ = store.tree.set(tree);
            }
            None if !store.order.is_bytes() => {
                store.refuse_bytes()?;
                store.tree_or_create()?.create(&store.db)?;
            }
            // The first long key creates it.
            None => {}
        }
        Ok(store)
    }

    /// Refuses a store in which anything was ever written in the order of bytes, also if none of it is left. Where the
    /// family of the tree is there already, its keys tell: the tree was about to be created, or a repair has found nothing
    /// of it.
    fn refuse_bytes(&self) -> Outcome<()> {
        let is_of_bytes = match self.db.column_family(FAMILY) {
            None => self.db.latest_seqno() > 0,
            Some(_) => {
                let mut iter = self.db.iter()?;
                iter.seek_to_first()?;
                iter.valid()
            }
        };
        if !is_of_bytes {
            return Ok(());
        }
        let bytes = Order::bytes();
        let message = format!("{:?} does not match existing comparator {bytes:?}", self.order);
        Err(Failure { code: Code::InvalidArgument, message })
    }

    /// The tree, which is created if there is none.
    fn tree_or_create(&self) -> Outcome<&Tree> {
        if let Some(tree) = self.tree.get() {
            return Ok(tree);
        }
        let _creates = self.creates.lock();
        if let Some(tree) = self.tree.get() {
            return Ok(tree);
        }
        let family = match self.db.column_family(FAMILY) {
            Some(family) => family,
            None => tree::create_family(&self.db)?,
        };
        let tree = Tree::open(family, self.order.clone())?;
        Ok(self.tree.get_or_init(|| tree))
    }

    /// Whether the tree has `key`, and not the engine.
    fn is_in_tree(&self, key: &[u8]) -> bool {
        key.len() > MAX_KEY_BYTES || !self.order.is_bytes()
    }

    /// Writes `ops` together, in their order.
    pub fn write<'a>(
        &self,
        ops: impl Iterator<Item = tree::Op<'a>> + Clone,
        options: &WriteOptions,
    ) -> Outcome<()> {
        let mut batch = WriteBatch::new();
        let mut needs_tree = false;
        for (key, value) in ops.clone() {
            match value {
                _ if self.is_in_tree(key) => needs_tree = true,
                Some(value) => batch.put(key, value),
                None => batch.delete(key),
            }
        }
        if !needs_tree {
            return Ok(self.db.write_with(batch, options)?);
        }
        let ops = ops.filter(|(key, _)| self.is_in_tree(key));
        self.tree_or_create()?.write(&self.db, batch, ops, options)
    }

    pub fn get(&self, key: &[u8], reading: &ReadOptions) -> Outcome<Option<Slice>> {
        match self.tree.get() {
            _ if !self.is_in_tree(key) => Ok(self.db.get_with(key, reading)?),
            Some(tree) => tree.get(key, self.at_one_moment(reading)),
            None => Ok(None),
        }
    }

    /// A cursor over all keys, nowhere yet.
    pub fn cursor(&self, reading: &ReadOptions) -> Outcome<Cursor> {
        match self.tree.get() {
            Some(tree) => self.cursor_over_both(tree, reading),
            None => self.cursor_after(self.db.iter_with(reading)?, reading),
        }
    }

    /// A cursor over all keys, given one of the engine's. If there is no tree even now, all that is ever written to
    /// it is written after the moment of `plain`. Else `plain` may show one part of a batch for both.
    fn cursor_after(&self, plain: Iter, reading: &ReadOptions) -> Outcome<Cursor> {
        match self.tree.get() {
            Some(tree) => self.cursor_over_both(tree, reading),
            None => Ok(Cursor::new(Some(plain), None)),
        }
    }

    fn cursor_over_both(&self, tree: &Tree, reading: &ReadOptions) -> Outcome<Cursor> {
        let reading = self.at_one_moment(reading);
        let plain = match self.order.is_bytes() {
            true => Some(self.db.iter_with(&reading)?),
            false => None,
        };
        Ok(Cursor::new(plain, Some(tree.cursor(reading)?)))
    }

    /// `reading` with a snapshot: several records are read as of the same moment.
    fn at_one_moment(&self, reading: &ReadOptions) -> ReadOptions {
        let mut reading = reading.clone();
        reading.snapshot.get_or_insert_with(|| self.db.snapshot());
        reading
    }

    /// About how many bytes of the store the keys from `start` up to `limit` take.
    pub fn size_bytes(&self, start: &[u8], limit: &[u8]) -> Outcome<u64> {
        let mut bytes = 0;
        if self.order.is_bytes() && start < limit {
            let (start, limit) = (cut(start), cut(limit));
            bytes += self.db.default_family().estimate::<&[u8]>(start..limit)?.bytes;
        }
        if let Some(tree) = self.tree.get() {
            let all = tree.family().estimate::<&[u8]>(..)?.bytes;
            let share = tree.share(start, limit, self.at_one_moment(&ReadOptions::default()))?;
            bytes += (all as f64 * share) as u64;
        }
        Ok(bytes)
    }

    /// Merges what lies between two keys; of the tree, if there is one, everything.
    pub fn compact(&self, start: Option<&[u8]>, limit: Option<&[u8]>) -> Outcome<()> {
        if self.order.is_bytes() {
            let bound = |key: Option<&[u8]>| {
                key.map_or(Bound::Unbounded, |key| Bound::Included(cut(key).to_vec()))
            };
            self.db.compact_range::<Vec<u8>>((bound(start), bound(limit)))?;
        }
        match self.tree.get() {
            Some(tree) => Ok(tree.family().compact_range::<&[u8]>(..)?),
            None => Ok(()),
        }
    }
}

/// The part of a key that the engine can have.
fn cut(key: &[u8]) -> &[u8] {
    &key[..key.len().min(MAX_KEY_BYTES)]
}

#[cfg(test)]
mod tests;
