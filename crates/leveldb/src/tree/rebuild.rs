//! Another tree in the place of one that is not whole:
//!
//! 1. Every key whose value is there goes into a tree of new nodes. Values stay where they are. Which key a value has
//!    a leaf names, or, where that leaf is lost, the record `k`. An old state of a leaf may name a key that a newer leaf
//!    names too: the value that was made later is its value, and the record `k` of the other one is removed.
//! 2. One write, synced, says where the new root is and removes the old nodes.
//! 3. Values that no leaf names, and keys without a value, are removed.
//!
//! A crash before step 2 leaves new nodes besides the old ones, which a further rebuild takes for old leaves.

use super::damaged;
use super::edit::Edit;
use super::key_order;
use super::meta::Meta;
use super::records::{
    ALL, count, each_key, each_node, each_unnamed, entries, keys_without_value, values,
    values_without_key,
};
use super::view::{META, View, key_key, node_key, value_key};
use crate::order::Order;
use terrace::{Db, SyncMode, WriteBatch, WriteOptions};
use terrace_binding::Outcome;

/// Records that one write removes.
const REMOVED_TOGETHER: usize = 10_000;

const UNSYNCED: WriteOptions = WriteOptions { sync: Some(SyncMode::None) };
const SYNCED: WriteOptions = WriteOptions { sync: Some(SyncMode::Batch) };

/// Makes the tree that `view` shows anew. `ids_together` says how many values are looked at together.
///
/// # Errors
/// `InvalidArgument` if `order` is not that of the keys, with nothing changed.
pub fn rebuild(db: &Db, view: &View, order: &Order, ids_together: u64) -> Outcome<()> {
    let before = view.meta()?;
    key_order::check(db, view, order)?;
    let max_id = max_named(view)?.max(count(view)?.max_id);
    let first_new = max_id.checked_add(1).filter(|id| ALL.contains(id));
    let first_new = first_new.ok_or_else(|| damaged("its ids are used up"))?;
    let first_new = before.as_ref().map_or(1, |meta| meta.next_id).max(first_new);
    let meta = Meta { next_id: first_new, ..Meta::new(order.name()) };
    let mut made = Rebuilt { db, view, order, meta };

    let mut from = 0;
    while let Some(mut unlinked) = values(view, from, ids_together)? {
        each_node(view, 0..first_new, |nodes| {
            made.link(entries(nodes).filter(|(_, id)| unlinked.remove(*id)))
        })?;
        each_key(view, from..unlinked.end(), |keys| {
            let keys = keys.iter().map(|(id, key)| (&key[..], *id));
            made.link(keys.filter(|(_, id)| unlinked.remove(*id)))
        })?;
        from = unlinked.end();
    }

    let meta = made.meta;
    let mut batch = WriteBatch::new();
    if before.is_none() && meta.root == 0 {
        // Nothing says in which order the keys were that are lost.
        batch.delete_range_cf(&view.family, b"", b"\xff");
        return Ok(db.write_with(batch, &SYNCED)?);
    }
    batch.put_cf(&view.family, META, meta.encode());
    batch.delete_range_cf(&view.family, node_key(0), node_key(first_new));
    db.write_with(batch, &SYNCED)?;
    remove_unnamed(db, view, ids_together)?;
    remove_keys_without_value(db, view)
}

/// The largest id of a value that a leaf names, whether or not it is there.
fn max_named(view: &View) -> Outcome<u64> {
    let mut max_id = 0;
    each_node(view, ALL, |nodes| {
        max_id = entries(nodes).map(|(_, id)| id).fold(max_id, u64::max);
        Ok(())
    })?;
    Ok(max_id)
}

/// The tree that is being made, which is not in force yet.
struct Rebuilt<'a> {
    db: &'a Db,
    view: &'a View,
    order: &'a Order,
    meta: Meta,
}

impl Rebuilt<'_> {
    /// Adds keys, each with the id of its value, by one write.
    fn link<'k>(&mut self, mut entries: impl Iterator<Item = (&'k [u8], u64)>) -> Outcome<()> {
        let (view, meta) = (self.view.clone(), self.meta.clone());
        let mut edit = Edit::new(view, self.order, meta, WriteBatch::new());
        entries.try_for_each(|(key, id)| edit.link(key, id))?;
        let (batch, after) = edit.finish_nodes();
        self.db.write_with(batch, &UNSYNCED)?;
        self.meta = after;
        Ok(())
    }
}

/// Writes the records of keys that are lost in a tree that is whole, as its leaves name them.
pub fn write_lost_keys(db: &Db, view: &View, ids_together: u64) -> Outcome<()> {
    let mut from = 0;
    while let Some(mut without) = values_without_key(view, from, ids_together)? {
        from = without.end();
        if without.is_empty() {
            continue;
        }
        each_node(view, ALL, |nodes| {
            let mut batch = WriteBatch::new();
            for (key, id) in entries(nodes).filter(|(_, id)| without.remove(*id)) {
                batch.put_cf(&view.family, key_key(id), key);
            }
            match batch.is_empty() {
                true => Ok(()),
                false => Ok(db.write_with(batch, &UNSYNCED)?),
            }
        })?;
    }
    Ok(())
}

/// Removes the values that no leaf names, with their keys.
fn remove_unnamed(db: &Db, view: &View, ids_together: u64) -> Outcome<()> {
    each_unnamed(view, ids_together, |unnamed| {
        let mut batch = WriteBatch::new();
        for id in unnamed.iter() {
            batch.delete_cf(&view.family, value_key(id));
            batch.delete_cf(&view.family, key_key(id));
            if batch.len() >= REMOVED_TOGETHER {
                db.write_with(std::mem::take(&mut batch), &UNSYNCED)?;
            }
        }
        Ok(db.write_with(batch, &UNSYNCED)?)
    })
}

fn remove_keys_without_value(db: &Db, view: &View) -> Outcome<()> {
    let mut from = 0;
    loop {
        let without = keys_without_value(view, from, REMOVED_TOGETHER)?;
        let Some(last) = without.last() else { return Ok(()) };
        from = last + 1;
        let mut batch = WriteBatch::new();
        without.iter().for_each(|id| batch.delete_cf(&view.family, key_key(*id)));
        db.write_with(batch, &UNSYNCED)?;
    }
}
