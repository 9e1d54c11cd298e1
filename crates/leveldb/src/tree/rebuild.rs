//! Another tree in the place of one that is not whole:
//!
//! 1. Every key that a leaf names and whose value is there goes into a tree of new nodes. Values stay where they are.
//!    An old state of a leaf may name a key that a newer leaf names too: the value that was made later is its value.
//! 2. One write, synced, says where the new root is and removes the old nodes.
//! 3. Values that no leaf names are removed.
//!
//! A crash before step 2 leaves new nodes besides the old ones, which a further rebuild takes for old leaves.

use super::damaged;
use super::edit::Edit;
use super::meta::Meta;
use super::node::Entry;
use super::records::{ALL, count, each_entry, each_node, values};
use super::view::{META, View, node_key, value_key};
use crate::order::Order;
use std::cmp::Ordering;
use terrace::{Db, MAX_KEY_BYTES, SyncMode, WriteBatch, WriteOptions};
use terrace_binding::{Failure, Outcome};

/// Values that one write removes.
const REMOVED_TOGETHER: usize = 10_000;

const UNSYNCED: WriteOptions = WriteOptions { sync: Some(SyncMode::None) };
const SYNCED: WriteOptions = WriteOptions { sync: Some(SyncMode::Batch) };

/// Makes the tree that `view` shows anew. `ids_together` says how many values are looked at together.
///
/// # Errors
/// `InvalidArgument` if `order` is not that of the keys, with nothing changed.
pub fn rebuild(db: &Db, view: &View, order: &Order, ids_together: u64) -> Outcome<()> {
    let before = view.meta()?;
    match &before {
        Some(meta) => meta.check_order(order)?,
        None => refuse_keys_of_bytes(db, order)?,
    }
    let max_id = check_leaves(view, order)?.max(count(view)?.max_id);
    let first_new = max_id.checked_add(1).filter(|id| ALL.contains(id));
    let first_new = first_new.ok_or_else(|| damaged("its ids are used up"))?;
    let first_new = before.as_ref().map_or(1, |meta| meta.next_id).max(first_new);
    let mut meta = Meta { next_id: first_new, ..Meta::new(order.name()) };

    let mut from = 0;
    while let Some(there) = values(view, from, ids_together)? {
        from = there.end();
        each_node(view, 0..first_new, |nodes| {
            let mut edit = Edit::new(view.clone(), order, meta.clone(), WriteBatch::new());
            let mut linked = Ok(());
            each_entry(nodes, |key, id| {
                if linked.is_ok() && there.has(id) {
                    linked = edit.link(key, id);
                }
            });
            linked?;
            let (batch, after) = edit.finish_nodes();
            db.write_with(batch, &UNSYNCED)?;
            meta = after;
            Ok(())
        })?;
    }

    let mut batch = WriteBatch::new();
    if before.is_none() && meta.root == 0 {
        // Nothing says in which order the keys were that are lost.
        batch.delete_range_cf(&view.family, b"", b"\xff");
        return Ok(db.write_with(batch, &SYNCED)?);
    }
    batch.put_cf(&view.family, META, meta.encode());
    batch.delete_range_cf(&view.family, node_key(0), node_key(first_new));
    db.write_with(batch, &SYNCED)?;
    remove_unnamed(db, view, ids_together)
}

/// Refuses a comparator of the program's if the engine has keys in the order of bytes.
fn refuse_keys_of_bytes(db: &Db, order: &Order) -> Outcome<()> {
    let mut iter = db.iter()?;
    iter.seek_to_first()?;
    match iter.valid() && !order.is_bytes() {
        true => Err(another_order(order)),
        false => Ok(()),
    }
}

/// Refuses an order that is not that of the keys of a leaf. Gives the largest id that a leaf names.
fn check_leaves(view: &View, order: &Order) -> Outcome<u64> {
    let mut max_id = 0;
    each_node(view, ALL, |nodes| {
        each_entry(nodes, |_, id| max_id = max_id.max(id));
        for (_, leaf) in nodes.iter().filter(|(_, node)| node.is_leaf) {
            let follows = |pair: &[Entry]| match pair {
                [a, b] => order.compare(&a.key, &b.key) == Ordering::Less,
                _ => true,
            };
            let is_ordered = leaf.entries.windows(2).all(follows);
            // In the order of bytes the engine has the others.
            let is_long = leaf.entries.iter().all(|entry| entry.key.len() > MAX_KEY_BYTES);
            if !is_ordered || (order.is_bytes() && !is_long) {
                return Err(another_order(order));
            }
        }
        Ok(())
    })?;
    Ok(max_id)
}

fn another_order(order: &Order) -> Failure {
    Failure::argument(format!(
        "the keys are not in the order of {order:?}: RepairDB needs the comparator that they were written with"
    ))
}

/// Removes the values that no leaf names.
fn remove_unnamed(db: &Db, view: &View, ids_together: u64) -> Outcome<()> {
    let mut from = 0;
    while let Some(mut unnamed) = values(view, from, ids_together)? {
        from = unnamed.end();
        each_node(view, ALL, |nodes| {
            each_entry(nodes, |_, id| unnamed.remove(id));
            Ok(())
        })?;
        let mut batch = WriteBatch::new();
        for id in unnamed.iter() {
            batch.delete_cf(&view.family, value_key(id));
            if batch.len() == REMOVED_TOGETHER {
                db.write_with(std::mem::take(&mut batch), &UNSYNCED)?;
            }
        }
        db.write_with(batch, &UNSYNCED)?;
    }
    Ok(())
}
