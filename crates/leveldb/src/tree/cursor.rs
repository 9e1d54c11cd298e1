//! A cursor over the tree, both ways.

use super::edit::{child, position};
use super::node::Node;
use super::view::View;
use super::{MAX_LEVELS, damaged};
use crate::order::Order;
use terrace::Slice;
use terrace_binding::Outcome;

/// A place among the keys of a tree, or none.
pub struct Cursor {
    view: View,
    order: Order,
    /// 0 if the tree is empty.
    root: u64,
    /// From the root to a leaf, each with the entry that leads on; empty if the cursor is nowhere.
    path: Vec<(Node, usize)>,
    value: Option<Slice>,
}

#[derive(Clone, Copy, PartialEq)]
enum End {
    First,
    Last,
}

impl Cursor {
    pub(super) fn new(view: View, order: Order, root: u64) -> Self {
        Self { view, order, root, path: Vec::new(), value: None }
    }

    pub fn valid(&self) -> bool {
        self.value.is_some()
    }

    /// The key; empty if not valid.
    pub fn key(&self) -> &[u8] {
        match self.path.last().filter(|_| self.valid()) {
            Some((leaf, at)) => leaf.entries.get(*at).map_or(&[], |entry| &entry.key),
            None => &[],
        }
    }

    /// The value; empty if not valid.
    pub fn value(&self) -> &[u8] {
        self.value.as_deref().unwrap_or_default()
    }

    pub fn seek_to_first(&mut self) -> Outcome<()> {
        self.start(End::First)
    }

    pub fn seek_to_last(&mut self) -> Outcome<()> {
        self.start(End::Last)
    }

    fn start(&mut self, end: End) -> Outcome<()> {
        self.leave();
        if self.root != 0 {
            self.descend(self.root, end)?;
        }
        self.settle()
    }

    /// Moves to the first key that is not before `key`.
    pub fn seek(&mut self, key: &[u8]) -> Outcome<()> {
        self.leave();
        let mut id = self.root;
        while id != 0 {
            if self.path.len() >= MAX_LEVELS {
                self.leave();
                return Err(damaged("the nodes form a circle"));
            }
            let node = self.view.node(id)?;
            if node.is_leaf {
                let at = position(&node, &self.order, key).unwrap_or_else(|at| at);
                let is_past = at == node.entries.len();
                self.path.push((node, at));
                if is_past {
                    self.step(End::First)?;
                }
                break;
            }
            let at = child(&node, &self.order, key);
            id = node.entries[at].id;
            self.path.push((node, at));
        }
        self.settle()
    }

    /// Moves to the last key that is before `key`.
    pub fn seek_before(&mut self, key: &[u8]) -> Outcome<()> {
        self.seek(key)?;
        match self.valid() {
            true => self.prev(),
            false => self.seek_to_last(),
        }
    }

    pub fn next(&mut self) -> Outcome<()> {
        self.step(End::First)?;
        self.settle()
    }

    pub fn prev(&mut self) -> Outcome<()> {
        self.step(End::Last)?;
        self.settle()
    }

    /// Moves one entry on, to the first entry (next) or the last one (prev) of the leaf beside.
    fn step(&mut self, end: End) -> Outcome<()> {
        self.value = None;
        while let Some((node, at)) = self.path.last_mut() {
            let moved = match end {
                End::First => Some(*at + 1).filter(|at| *at < node.entries.len()),
                End::Last => at.checked_sub(1),
            };
            let Some(moved) = moved else {
                self.path.pop();
                continue;
            };
            *at = moved;
            if node.is_leaf {
                return Ok(());
            }
            let id = node.entries[moved].id;
            return self.descend(id, end);
        }
        Ok(())
    }

    /// Goes down from a node to its first or last entry.
    fn descend(&mut self, mut id: u64, end: End) -> Outcome<()> {
        while self.path.len() < MAX_LEVELS {
            let node = self.view.node(id).inspect_err(|_| self.path.clear())?;
            let at = if end == End::First { 0 } else { node.entries.len().saturating_sub(1) };
            let below = node.entries.get(at).map(|entry| entry.id).filter(|_| !node.is_leaf);
            self.path.push((node, at));
            match below {
                Some(below) => id = below,
                None => return Ok(()),
            }
        }
        self.leave();
        Err(damaged("the nodes form a circle"))
    }

    /// Reads the value of the entry that was reached.
    fn settle(&mut self) -> Outcome<()> {
        self.value = None;
        let Some((leaf, at)) = self.path.last() else { return Ok(()) };
        let Some(entry) = leaf.entries.get(*at) else { return Ok(()) };
        let value = self.view.value(entry.id);
        if value.is_err() {
            self.leave();
        }
        self.value = Some(value?);
        Ok(())
    }

    fn leave(&mut self) {
        self.path.clear();
        self.value = None;
    }
}
