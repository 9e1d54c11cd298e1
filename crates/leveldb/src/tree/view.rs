//! What a reader of the tree sees: its records at one snapshot, or as they are now.
//!
//! ```text
//! k id:u64be the key of the value with this id
//! m          what the tree is: see `Meta`
//! n id:u64be a node
//! v id:u64be a value
//! ```
//! No id is 0 or `u64::MAX`, and none is given twice. Reads and writes go by the nodes; the records `k` stand for the
//! leaves where damage has taken those (`rebuild.rs`). A tree that had version 1 lacks them for what was written then; a
//! repair writes them.

use super::damaged;
use super::meta::Meta;
use super::node::Node;
use terrace::{ColumnFamily, ReadOptions, Slice};
use terrace_binding::Outcome;

pub const META: &[u8] = b"m";

// Not `pub`: they would be macros of leveldb/c.h.
pub(super) const KEY: u8 = b'k';
pub(super) const NODE: u8 = b'n';
pub(super) const VALUE: u8 = b'v';

/// Where the key of a value stands.
pub fn key_key(id: u64) -> [u8; 9] {
    key(KEY, id)
}

pub fn node_key(id: u64) -> [u8; 9] {
    key(NODE, id)
}

pub fn value_key(id: u64) -> [u8; 9] {
    key(VALUE, id)
}

/// The id in the key of a record of this kind; None if `key` is of another kind.
pub fn id_of(kind: u8, key: &[u8]) -> Option<u64> {
    let (first, id) = key.split_first()?;
    if *first != kind {
        return None;
    }
    Some(u64::from_be_bytes(id.try_into().ok()?))
}

fn key(kind: u8, id: u64) -> [u8; 9] {
    let mut key = [kind; 9];
    key[1..].copy_from_slice(&id.to_be_bytes());
    key
}

/// Reads of the records of a tree.
#[derive(Clone)]
pub struct View {
    pub family: ColumnFamily,
    pub reading: ReadOptions,
}

impl View {
    /// None if nothing has been written yet.
    pub fn meta(&self) -> Outcome<Option<Meta>> {
        match self.family.get_with(META, &self.reading)? {
            Some(bytes) => Meta::decode(&bytes).map(Some),
            None => Ok(None),
        }
    }

    /// Whether there is no record at all.
    pub fn is_empty(&self) -> Outcome<bool> {
        let reading = ReadOptions { keys_only: true, ..self.reading.clone() };
        let mut iter = self.family.iter_with(&reading)?;
        iter.seek_to_first()?;
        Ok(!iter.valid())
    }

    /// The largest id of a record; 0 if there is none.
    pub fn max_id(&self) -> Outcome<u64> {
        let reading = ReadOptions { keys_only: true, ..self.reading.clone() };
        let mut iter = self.family.iter_with(&reading)?;
        let mut max = 0;
        for kind in [KEY, NODE, VALUE] {
            iter.seek_for_prev(&key(kind, u64::MAX))?;
            if iter.valid() {
                max = id_of(kind, iter.key()).unwrap_or_default().max(max);
            }
        }
        Ok(max)
    }

    pub fn node(&self, id: u64) -> Outcome<Node> {
        let found = self.family.get_with(node_key(id), &self.reading)?;
        Node::decode(&found.ok_or_else(|| damaged("a node is missing"))?)
    }

    pub fn value(&self, id: u64) -> Outcome<Slice> {
        let found = self.family.get_with(value_key(id), &self.reading)?;
        found.ok_or_else(|| damaged("a value is missing"))
    }
}
