//! Keys in an order that is not the engine's: a B+-tree (Comer 1979, "The Ubiquitous B-Tree", section 3) whose
//! nodes and values are records of one column family. It holds all keys of a store with a comparator of
//! the program's, and of any other store the keys that are too long for the engine.
//!
//! A batch becomes one write of the engine: the nodes that it changed, the values, and where the root is.
//! So a crash leaves all of it or nothing, and a snapshot of the engine is one of the tree. Writers take turns;
//! readers wait for nobody. Nodes that run empty are removed; nodes that are only less full are not merged.
//!
//! Records that a repair of the engine has lost, or of which it has found an older state, make a tree that is not
//! whole: [`mend`] makes another one of what is there.

mod check;
mod cursor;
mod edit;
mod id_set;
mod key_order;
mod meta;
mod node;
mod rebuild;
mod records;
mod view;

#[cfg(test)]
mod tests;

pub use cursor::Cursor;
pub use view::META;

use crate::order::Order;
use edit::Edit;
use meta::Meta;
use parking_lot::Mutex;
use std::cmp::Ordering;
use terrace::{ColumnFamily, Db, ReadOptions, Slice, WriteBatch, WriteOptions};
use terrace_binding::{Code, Failure, Outcome};
use view::View;

/// The column family of the tree.
pub const FAMILY: &str = "leveldb.ordered";

/// More levels than any tree can have; a tree with more has a circle.
const MAX_LEVELS: usize = 64;

/// How many values [`mend`] looks at together, at a bit each.
const IDS_TOGETHER: u64 = 1 << 26;

/// The failure of records that are not those of a tree.
fn damaged(what: &str) -> Failure {
    Failure { code: Code::Corruption, message: format!("column family {FAMILY}: {what}") }
}

/// A change of one key: its value, or none to remove it.
pub type Op<'a> = (&'a [u8], Option<&'a [u8]>);

/// The tree of an open store.
pub struct Tree {
    family: ColumnFamily,
    order: Order,
    /// What the newest write left. Held over a write, so that writers take turns.
    meta: Mutex<Meta>,
}

impl Tree {
    /// The tree in `family`, which may have nothing yet.
    ///
    /// # Errors
    /// The tree is of another order; it is not whole, as far as that shows at once.
    pub fn open(family: ColumnFamily, order: Order) -> Outcome<Self> {
        let view = View { family: family.clone(), reading: ReadOptions::default() };
        let meta = view.meta()?.unwrap_or_else(|| Meta::new(order.name()));
        meta.check_order(&order)?;
        // It is an older one, and what is written with it would take the places of others.
        if view.max_id()? >= meta.next_id {
            return Err(damaged(check::USED_ID));
        }
        Ok(Self { family, order, meta: Mutex::new(meta) })
    }

    /// Writes what the tree is, durably: from then on the store has no other order.
    pub fn create(&self, db: &Db) -> Outcome<()> {
        self.write(
            db,
            WriteBatch::new(),
            [].into_iter(),
            &WriteOptions { sync: Some(terrace::SyncMode::Batch) },
        )
    }

    /// Whether nothing has been written to `family` yet.
    ///
    /// # Errors
    /// There are records, and not the one that says what the tree is.
    pub fn is_new(family: &ColumnFamily) -> Outcome<bool> {
        let view = View { family: family.clone(), reading: ReadOptions::default() };
        match view.meta()?.is_none() {
            true if !view.is_empty()? => Err(damaged(check::LOST_META)),
            is_new => Ok(is_new),
        }
    }

    /// Writes `ops`, in their order, together with `batch`, which is for other families.
    pub fn write<'a>(
        &self,
        db: &Db,
        batch: WriteBatch,
        ops: impl Iterator<Item = Op<'a>>,
        options: &WriteOptions,
    ) -> Outcome<()> {
        let mut meta = self.meta.lock();
        let view = View { family: self.family.clone(), reading: ReadOptions::default() };
        let mut edit = Edit::new(view, &self.order, meta.clone(), batch);
        for (key, value) in ops {
            match value {
                Some(value) => edit.put(key, value)?,
                None => edit.delete(key)?,
            }
        }
        let (batch, after) = edit.finish();
        db.write_with(batch, options)?;
        *meta = after;
        Ok(())
    }

    /// The value of `key` at the snapshot of `reading`, which has one.
    pub fn get(&self, key: &[u8], reading: ReadOptions) -> Outcome<Option<Slice>> {
        let view = View { family: self.family.clone(), reading };
        let Some(meta) = view.meta()?.filter(|meta| meta.root != 0) else { return Ok(None) };
        let mut node = view.node(meta.root)?;
        for _ in 0..MAX_LEVELS {
            if node.is_leaf {
                let found = edit::position(&node, &self.order, key);
                return found.ok().map(|at| view.value(node.entries[at].id)).transpose();
            }
            node = view.node(node.entries[edit::child(&node, &self.order, key)].id)?;
        }
        Err(damaged("the nodes form a circle"))
    }

    /// A cursor over all keys at the snapshot of `reading`, which has one.
    pub fn cursor(&self, reading: ReadOptions) -> Outcome<Cursor> {
        let view = View { family: self.family.clone(), reading };
        let root = view.meta()?.map_or(0, |meta| meta.root);
        Ok(Cursor::new(view, self.order.clone(), root))
    }

    /// About which part of all keys lies between two keys, from 0 to 1: exact to a node for an even tree.
    pub fn share(&self, start: &[u8], limit: &[u8], reading: ReadOptions) -> Outcome<f64> {
        if self.order.compare(start, limit) != Ordering::Less {
            return Ok(0.0);
        }
        let view = View { family: self.family.clone(), reading };
        let root = view.meta()?.map_or(0, |meta| meta.root);
        let rank = |key| rank(&view, &self.order, root, key);
        Ok((rank(limit)? - rank(start)?).clamp(0.0, 1.0))
    }

    pub fn family(&self) -> &ColumnFamily {
        &self.family
    }
}

/// Creates the family of a tree that is not there yet.
pub fn create_family(db: &Db) -> Outcome<ColumnFamily> {
    // As it is opened later, since no options are named for it.
    let options = db.options().default_family.clone();
    Ok(db.create_column_family(FAMILY, options)?)
}

/// Refuses another order than that of the keys in `db`. The store may be damaged: what cannot be read tells nothing.
///
/// # Errors
/// `InvalidArgument` if it is another one.
pub fn refuse_other_order(db: &Db, order: &Order) -> Outcome<()> {
    let view = |family| View { family, reading: ReadOptions::default() };
    key_order::check_readable(db, db.column_family(FAMILY).map(view).as_ref(), order)
}

/// Makes a tree of the records in `family` if they are not one that is whole: each key whose value is there, and that a
/// leaf or a record of its own names. In one that is whole only records of keys that are lost are written again. `db` has
/// nothing else to do meanwhile. Memory is bounded; an interruption leaves the records as they were, and more of them.
///
/// # Errors
/// `InvalidArgument` if the keys have another order than `order`, with nothing changed.
pub fn mend(db: &Db, family: &ColumnFamily, order: &Order) -> Outcome<()> {
    mend_with(db, family, order, IDS_TOGETHER)
}

fn mend_with(db: &Db, family: &ColumnFamily, order: &Order, ids_together: u64) -> Outcome<()> {
    let view = View { family: family.clone(), reading: ReadOptions::default() };
    match check::check(&view, order, ids_together) {
        Ok(()) => return rebuild::write_lost_keys(db, &view, ids_together),
        Err(failure) if failure.code == Code::Corruption => {}
        Err(failure) => return Err(failure),
    }
    rebuild::rebuild(db, &view, order, ids_together)?;
    check::check(&view, order, ids_together)
}

/// About which part of all keys lies before `key`, if all subtrees of a node are equally large.
fn rank(view: &View, order: &Order, root: u64, key: &[u8]) -> Outcome<f64> {
    let (mut id, mut before, mut width) = (root, 0.0, 1.0);
    for _ in 0..MAX_LEVELS {
        if id == 0 {
            return Ok(0.0);
        }
        let node = view.node(id)?;
        width /= node.entries.len() as f64;
        if node.is_leaf {
            let at = edit::position(&node, order, key).unwrap_or_else(|at| at);
            return Ok(before + width * at as f64);
        }
        let at = edit::child(&node, order, key);
        before += width * at as f64;
        id = node.entries[at].id;
    }
    Err(damaged("the nodes form a circle"))
}
