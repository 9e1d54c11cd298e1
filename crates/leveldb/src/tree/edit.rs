//! Changes of a tree on their way into one batch: nodes that were read or changed are kept until the end.

use super::meta::Meta;
use super::node::{Entry, Node};
use super::view::{META, View, key_key, node_key, value_key};
use super::{MAX_LEVELS, damaged};
use crate::order::Order;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry as MapEntry;
use terrace::WriteBatch;
use terrace_binding::{Failure, Outcome};

/// Where `key` is among the entries of a leaf, or where it would be.
pub fn position(leaf: &Node, order: &Order, key: &[u8]) -> Result<usize, usize> {
    leaf.entries.binary_search_by(|entry| order.compare(&entry.key, key))
}

/// Which entry of an inner node leads to `key`. The first key is no bound.
pub fn child(inner: &Node, order: &Order, key: &[u8]) -> usize {
    let rest = inner.entries.get(1..).unwrap_or_default();
    rest.partition_point(|entry| order.compare(&entry.key, key) != Ordering::Greater)
}

/// The inner nodes from the root to a leaf, each with the entry that leads on.
type Path = Vec<(u64, usize)>;

/// A node that the edit has read or made.
struct Kept {
    /// None if it was removed.
    node: Option<Node>,
    is_changed: bool,
}

/// A tree and what is to become of it.
pub struct Edit<'a> {
    view: View,
    order: &'a Order,
    meta: Meta,
    nodes: BTreeMap<u64, Kept>,
    batch: WriteBatch,
}

impl<'a> Edit<'a> {
    /// An edit of the tree that `view` shows and `meta` describes; it is added to `batch`.
    pub fn new(view: View, order: &'a Order, meta: Meta, batch: WriteBatch) -> Self {
        Self { view, order, meta, nodes: BTreeMap::new(), batch }
    }

    /// The batch, and what the tree is once it is written.
    pub fn finish(self) -> (WriteBatch, Meta) {
        let family = self.view.family.clone();
        let (mut batch, meta) = self.finish_nodes();
        batch.put_cf(&family, META, meta.encode());
        (batch, meta)
    }

    /// As [`Self::finish`], of a tree that is not in force: the batch does not say where its root is.
    pub fn finish_nodes(mut self) -> (WriteBatch, Meta) {
        let family = &self.view.family;
        for (id, kept) in self.nodes.iter().filter(|(_, kept)| kept.is_changed) {
            match &kept.node {
                Some(node) => self.batch.put_cf(family, node_key(*id), node.encode()),
                None => self.batch.delete_cf(family, node_key(*id)),
            }
        }
        (self.batch, self.meta)
    }

    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Outcome<()> {
        self.make_root();
        let (path, leaf) = self.find(key)?;
        let order = self.order;
        let at = position(self.node(leaf)?, order, key);
        let id = match at {
            Ok(at) => {
                let entry = &self.node(leaf)?.entries[at];
                let id = entry.id;
                // Keys may be equal and of other bytes; the newest is shown.
                if entry.key != key {
                    self.node_mut(leaf)?.entries[at].key = key.to_vec();
                    self.put_key(id, key);
                    // It may be longer than the one before.
                    self.split(path, leaf)?;
                }
                id
            }
            Err(at) => {
                let id = self.take_id();
                self.node_mut(leaf)?.entries.insert(at, Entry { key: key.to_vec(), id });
                self.put_key(id, key);
                self.split(path, leaf)?;
                id
            }
        };
        self.batch.put_cf(&self.view.family, value_key(id), value);
        Ok(())
    }

    fn put_key(&mut self, id: u64, key: &[u8]) {
        self.batch.put_cf(&self.view.family, key_key(id), key);
    }

    fn delete_key(&mut self, id: u64) {
        self.batch.delete_cf(&self.view.family, key_key(id));
    }

    /// Gives `key` a value that is there. Of two values for a key it has the one that was made later; the other one keeps no
    /// record of the key, by which it could come back when the key has been deleted.
    pub fn link(&mut self, key: &[u8], id: u64) -> Outcome<()> {
        self.make_root();
        let (path, leaf) = self.find(key)?;
        let order = self.order;
        let found = position(self.node(leaf)?, order, key);
        let entry = Entry { key: key.to_vec(), id };
        match found {
            Ok(at) => {
                let there = self.node(leaf)?.entries[at].id;
                if there > id {
                    self.delete_key(id);
                    return Ok(());
                }
                if there < id {
                    self.delete_key(there);
                }
                self.node_mut(leaf)?.entries[at] = entry;
                self.split(path, leaf)?;
            }
            Err(at) => {
                self.node_mut(leaf)?.entries.insert(at, entry);
                self.split(path, leaf)?;
            }
        }
        self.put_key(id, key);
        Ok(())
    }

    /// Gives a tree without nodes its first leaf.
    fn make_root(&mut self) {
        if self.meta.root == 0 {
            self.meta.root = self.take_id();
            let root = Node { is_leaf: true, entries: Vec::new() };
            self.keep(self.meta.root, Some(root));
        }
    }

    pub fn delete(&mut self, key: &[u8]) -> Outcome<()> {
        if self.meta.root == 0 {
            return Ok(());
        }
        let (path, leaf) = self.find(key)?;
        let order = self.order;
        let Ok(at) = position(self.node(leaf)?, order, key) else { return Ok(()) };
        let removed = self.node_mut(leaf)?.entries.remove(at);
        self.batch.delete_cf(&self.view.family, value_key(removed.id));
        self.delete_key(removed.id);
        self.remove_empty(path, leaf)
    }

    fn take_id(&mut self) -> u64 {
        let id = self.meta.next_id;
        self.meta.next_id += 1;
        id
    }

    /// The leaf for `key` and the way to it.
    fn find(&mut self, key: &[u8]) -> Outcome<(Path, u64)> {
        let (mut path, mut id) = (Path::new(), self.meta.root);
        let order = self.order;
        while path.len() < MAX_LEVELS {
            let node = self.node(id)?;
            if node.is_leaf {
                return Ok((path, id));
            }
            let at = child(node, order, key);
            path.push((id, at));
            id = node.entries[at].id;
        }
        Err(damaged("the nodes form a circle"))
    }

    /// Splits a node that has grown too large, and those above it that do because of that.
    fn split(&mut self, mut path: Path, mut id: u64) -> Outcome<()> {
        while self.node(id)?.must_split() {
            let mut right = self.node_mut(id)?.split();
            let key = match right.entries.first_mut() {
                Some(first) if right.is_leaf => first.key.clone(),
                // The first key of an inner node is no bound; it becomes that of the node.
                Some(first) => std::mem::take(&mut first.key),
                None => return Err(damaged("a split left nothing")),
            };
            let right_id = self.take_id();
            self.keep(right_id, Some(right));
            let (above, at) = match path.pop() {
                Some(place) => place,
                None => {
                    let root = self.take_id();
                    let entries = vec![Entry { key: Vec::new(), id }];
                    self.keep(root, Some(Node { is_leaf: false, entries }));
                    self.meta.root = root;
                    (root, 0)
                }
            };
            self.node_mut(above)?.entries.insert(at + 1, Entry { key, id: right_id });
            id = above;
        }
        Ok(())
    }

    /// Removes a node that has no entries left, those above it that have none because of that, and roots
    /// that have only one child.
    fn remove_empty(&mut self, mut path: Path, mut id: u64) -> Outcome<()> {
        while self.node(id)?.entries.is_empty() {
            self.keep(id, None);
            let Some((above, at)) = path.pop() else {
                self.meta.root = 0;
                return Ok(());
            };
            let node = self.node_mut(above)?;
            node.entries.remove(at);
            if let Some(first) = node.entries.first_mut() {
                first.key.clear();
            }
            id = above;
        }
        loop {
            let root = self.meta.root;
            let node = self.node(root)?;
            match node.entries.as_slice() {
                [only] if !node.is_leaf => self.meta.root = only.id,
                _ => return Ok(()),
            }
            self.keep(root, None);
        }
    }

    fn keep(&mut self, id: u64, node: Option<Node>) {
        self.nodes.insert(id, Kept { node, is_changed: true });
    }

    /// The node, from the store unless the edit has it.
    fn load(&mut self, id: u64) -> Outcome<&mut Kept> {
        Ok(match self.nodes.entry(id) {
            MapEntry::Occupied(there) => there.into_mut(),
            MapEntry::Vacant(place) => {
                place.insert(Kept { node: Some(self.view.node(id)?), is_changed: false })
            }
        })
    }

    fn node(&mut self, id: u64) -> Outcome<&Node> {
        self.load(id)?.node.as_ref().ok_or_else(gone)
    }

    fn node_mut(&mut self, id: u64) -> Outcome<&mut Node> {
        let kept = self.load(id)?;
        kept.is_changed = true;
        kept.node.as_mut().ok_or_else(gone)
    }
}

/// A node that was removed by this edit is named by another one.
fn gone() -> Failure {
    damaged("two nodes have the same child")
}
