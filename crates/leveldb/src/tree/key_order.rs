//! Whether an order is that of a store's keys, as far as what is there tells. A tree is made anew in no other order.

use super::node::Entry;
use super::records::{ALL, each_key, each_node};
use super::view::View;
use crate::order::Order;
use std::cmp::Ordering;
use terrace::{Db, MAX_KEY_BYTES};
use terrace_binding::{Code, Failure, Outcome};

/// Looks at all that tells the order.
///
/// # Errors
/// `InvalidArgument` if it is another one; the error of a record that cannot be read.
pub fn check(db: &Db, view: &View, order: &Order) -> Outcome<()> {
    check_name(db, view, order)?;
    check_leaves(view, order)?;
    check_lengths(view, order)
}

/// As [`check`], of a store that is damaged: what cannot be read tells nothing.
///
/// # Errors
/// `InvalidArgument` if it is another one.
pub fn check_readable(db: &Db, view: Option<&View>, order: &Order) -> Outcome<()> {
    let Some(view) = view else { return readable(refuse_keys_of_bytes(db, order)) };
    readable(check_name(db, view, order))?;
    readable(check_leaves(view, order))?;
    readable(check_lengths(view, order))
}

fn readable(checked: Outcome<()>) -> Outcome<()> {
    checked.or_else(|failure| match failure.code {
        Code::InvalidArgument => Err(failure),
        _ => Ok(()),
    })
}

fn check_name(db: &Db, view: &View, order: &Order) -> Outcome<()> {
    match view.meta()? {
        Some(meta) => meta.check_order(order),
        None => refuse_keys_of_bytes(db, order),
    }
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

/// Refuses an order that is not that of the keys of a leaf.
fn check_leaves(view: &View, order: &Order) -> Outcome<()> {
    each_node(view, ALL, |nodes| {
        for (_, leaf) in nodes.iter().filter(|(_, node)| node.is_leaf) {
            let follows = |pair: &[Entry]| match pair {
                [a, b] => order.compare(&a.key, &b.key) == Ordering::Less,
                _ => true,
            };
            let is_ordered = leaf.entries.windows(2).all(follows);
            if !is_ordered || leaf.entries.iter().any(|entry| is_of_engine(order, &entry.key)) {
                return Err(another_order(order));
            }
        }
        Ok(())
    })
}

fn check_lengths(view: &View, order: &Order) -> Outcome<()> {
    each_key(view, ALL, |keys| match keys.iter().any(|(_, key)| is_of_engine(order, key)) {
        true => Err(another_order(order)),
        false => Ok(()),
    })
}

/// Whether the engine has this key, in a store of this order.
fn is_of_engine(order: &Order, key: &[u8]) -> bool {
    order.is_bytes() && key.len() <= MAX_KEY_BYTES
}

fn another_order(order: &Order) -> Failure {
    Failure::argument(format!(
        "the keys are not in the order of {order:?}: RepairDB needs the comparator that they were written with"
    ))
}
