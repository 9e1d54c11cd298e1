//! Whether a tree is whole: from its root every node is reached, every value is that of a key, and keys and nodes stand
//! in their order. The records of keys beside the nodes are not needed for that.

use super::records::{count, each_unnamed};
use super::view::View;
use super::{MAX_LEVELS, damaged};
use crate::order::Order;
use std::cmp::Ordering;
use terrace_binding::Outcome;

/// What is wrong if there are records, and not the one that says what the tree is.
pub const LOST_META: &str = "what says where its root is was lost; RepairDB makes it anew";

/// What is wrong if the record that says what the tree is, is an older one.
pub const USED_ID: &str = "its next id is in use; RepairDB makes it anew";

/// Reads all nodes and the keys of all records.
///
/// # Errors
/// `Corruption` if the tree is not whole; `InvalidArgument` if it has another order.
pub fn check(view: &View, order: &Order, ids_together: u64) -> Outcome<()> {
    let counts = count(view)?;
    let Some(meta) = view.meta()? else {
        return match counts.keys + counts.nodes + counts.values {
            0 => Ok(()),
            _ => Err(damaged(LOST_META)),
        };
    };
    meta.check_order(order)?;
    if counts.max_id >= meta.next_id {
        return Err(damaged(USED_ID));
    }
    let mut walk = Walk { view, order, most: counts.nodes, nodes: 0, entries: 0, last: None };
    if meta.root != 0 {
        walk.subtree(meta.root, 0)?;
    }
    // No node twice: its keys would not have been in order.
    if (walk.nodes, walk.entries) != (counts.nodes, counts.values) {
        return Err(damaged("its root does not lead to every node and value"));
    }
    // There are as many keys as values. If every value is of one, every key has one.
    each_unnamed(view, ids_together, |_| Err(damaged("a value is of no key")))
}

/// A walk through the nodes in the order of their keys.
struct Walk<'a> {
    view: &'a View,
    order: &'a Order,
    /// How many nodes there are.
    most: u64,
    nodes: u64,
    entries: u64,
    /// The last key; true if it is that of an inner node, the bound of a subtree.
    last: Option<(Vec<u8>, bool)>,
}

impl Walk<'_> {
    fn subtree(&mut self, id: u64, level: usize) -> Outcome<()> {
        if level == MAX_LEVELS || self.nodes == self.most {
            return Err(damaged("the nodes form a circle"));
        }
        self.nodes += 1;
        let node = self.view.node(id)?;
        for (at, entry) in node.entries.iter().enumerate() {
            // The first key of an inner node is no bound.
            if node.is_leaf || at > 0 {
                self.pass(&entry.key, !node.is_leaf)?;
            }
            match node.is_leaf {
                true => self.entries += 1,
                false => self.subtree(entry.id, level + 1)?,
            }
        }
        Ok(())
    }

    /// A key comes after those before it. It may be the bound of its subtree.
    fn pass(&mut self, key: &[u8], is_bound: bool) -> Outcome<()> {
        if let Some((last, was_bound)) = &self.last {
            let follows = match self.order.compare(last, key) {
                Ordering::Less => true,
                Ordering::Equal => *was_bound,
                Ordering::Greater => false,
            };
            if !follows {
                return Err(damaged("its keys are not in order"));
            }
        }
        self.last = Some((key.to_vec(), is_bound));
        Ok(())
    }
}
