//! All records of a tree, in the order of their ids, for what looks at every one of them ([`super::mend`]). Some are in
//! memory at a time.

use super::damaged;
use super::id_set::IdSet;
use super::node::Node;
use super::view::{KEY, META, NODE, VALUE, View, id_of, key_key, node_key, value_key};
use std::ops::Range;
use terrace::{Iter, ReadOptions};
use terrace_binding::Outcome;

/// Bytes of nodes or keys that are held together.
const BYTES_TOGETHER: usize = 256 << 10;

/// Keys that are held together: each may belong to another leaf, which the caller holds too.
const KEYS_TOGETHER: usize = 1000;

/// Every id of a tree: the key of a record with another one is that of none.
pub const ALL: Range<u64> = 0..u64::MAX;

/// How many records there are.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub keys: u64,
    pub nodes: u64,
    pub values: u64,
    /// The largest id of a record; 0 if there is none.
    pub max_id: u64,
}

/// An iterator over the records with keys from `start` on, below `end` if that is given, at the first of them.
fn records(view: &View, start: &[u8], end: Option<&[u8]>, keys_only: bool) -> Outcome<Iter> {
    let reading = ReadOptions {
        lower_bound: Some(start.to_vec()),
        upper_bound: end.map(<[u8]>::to_vec),
        fill_cache: false,
        keys_only,
        ..view.reading.clone()
    };
    let mut iter = view.family.iter_with(&reading)?;
    iter.seek_to_first()?;
    Ok(iter)
}

/// Counts the records.
///
/// # Errors
/// One of them is none of a tree.
pub fn count(view: &View) -> Outcome<Counts> {
    let mut counts = Counts::default();
    let mut iter = records(view, &[], None, true)?;
    while iter.valid() {
        let (node, value) = (id_of(NODE, iter.key()), id_of(VALUE, iter.key()));
        let key = id_of(KEY, iter.key());
        match node.or(value).or(key) {
            Some(id) if ALL.contains(&id) => counts.max_id = counts.max_id.max(id),
            None if iter.key() == META => {}
            _ => return Err(damaged("a record is none of a tree")),
        }
        counts.keys += u64::from(key.is_some());
        counts.nodes += u64::from(node.is_some());
        counts.values += u64::from(value.is_some());
        iter.next()?;
    }
    Ok(counts)
}

/// Calls `each` with the nodes that have these ids, some at a time. It may write nodes with other ids.
pub fn each_node(
    view: &View,
    ids: Range<u64>,
    mut each: impl FnMut(&[(u64, Node)]) -> Outcome<()>,
) -> Outcome<()> {
    let mut from = ids.start;
    loop {
        let nodes = nodes_together(view, from..ids.end)?;
        let Some((last, _)) = nodes.last() else { return Ok(()) };
        from = last + 1;
        each(&nodes)?;
    }
}

/// The first of the nodes that have these ids; none only if there are none.
fn nodes_together(view: &View, ids: Range<u64>) -> Outcome<Vec<(u64, Node)>> {
    let mut iter = records(view, &node_key(ids.start), Some(&node_key(ids.end)), false)?;
    let (mut nodes, mut bytes) = (Vec::new(), 0);
    while iter.valid() && bytes < BYTES_TOGETHER {
        if let Some(id) = id_of(NODE, iter.key()) {
            nodes.push((id, Node::decode(iter.value())?));
        }
        bytes += iter.value().len();
        iter.next()?;
    }
    Ok(nodes)
}

/// What the leaves among these nodes name: keys, each with the id of its value.
pub fn entries(nodes: &[(u64, Node)]) -> impl Iterator<Item = (&[u8], u64)> {
    let leaves = nodes.iter().filter(|(_, node)| node.is_leaf);
    leaves.flat_map(|(_, leaf)| &leaf.entries).map(|entry| (&entry.key[..], entry.id))
}

/// Calls `each` with the records of keys that have these ids, some at a time, whether or not their values are there.
pub fn each_key(
    view: &View,
    ids: Range<u64>,
    mut each: impl FnMut(&[(u64, Vec<u8>)]) -> Outcome<()>,
) -> Outcome<()> {
    let mut from = ids.start;
    loop {
        let mut iter = records(view, &key_key(from), Some(&key_key(ids.end)), false)?;
        let (mut keys, mut bytes) = (Vec::new(), 0);
        while iter.valid() && bytes < BYTES_TOGETHER && keys.len() < KEYS_TOGETHER {
            if let Some(id) = id_of(KEY, iter.key()) {
                keys.push((id, iter.value().to_vec()));
            }
            bytes += iter.value().len();
            iter.next()?;
        }
        let Some((last, _)) = keys.last() else { return Ok(()) };
        from = last + 1;
        each(&keys)?;
    }
}

/// The ids of the values that are there, from the first one that is not before `from`, of a stretch of about `count`
/// ids. None if there is none.
pub fn values(view: &View, from: u64, count: u64) -> Outcome<Option<IdSet>> {
    let mut iter = records(view, &value_key(from), Some(&value_key(ALL.end)), true)?;
    let mut found: Option<IdSet> = None;
    while iter.valid() {
        if let Some(id) = id_of(VALUE, iter.key())
            && !found.get_or_insert_with(|| IdSet::new(id, count)).insert(id)
        {
            break;
        }
        iter.next()?;
    }
    Ok(found)
}

/// Calls `each` with the ids of the values that no leaf names, as far as there are any among those that are looked at
/// together. It may remove these values.
pub fn each_unnamed(
    view: &View,
    ids_together: u64,
    mut each: impl FnMut(&IdSet) -> Outcome<()>,
) -> Outcome<()> {
    let mut from = 0;
    while let Some(mut unnamed) = values(view, from, ids_together)? {
        from = unnamed.end();
        each_node(view, ALL, |nodes| {
            for (_, id) in entries(nodes) {
                unnamed.remove(id);
            }
            Ok(())
        })?;
        if !unnamed.is_empty() {
            each(&unnamed)?;
        }
    }
    Ok(())
}

/// As [`values`], without those that have a record of their key. The set may be empty.
pub fn values_without_key(view: &View, from: u64, count: u64) -> Outcome<Option<IdSet>> {
    let Some(mut without) = values(view, from, count)? else { return Ok(None) };
    let mut keys = records(view, &key_key(from), Some(&key_key(without.end())), true)?;
    while keys.valid() {
        if let Some(id) = id_of(KEY, keys.key()) {
            without.remove(id);
        }
        keys.next()?;
    }
    Ok(Some(without))
}

/// The ids, from `from` on, of at most `most` records of keys whose values are not there.
pub fn keys_without_value(view: &View, from: u64, most: usize) -> Outcome<Vec<u64>> {
    let mut keys = records(view, &key_key(from), Some(&key_key(ALL.end)), true)?;
    let mut values = records(view, &value_key(from), Some(&value_key(ALL.end)), true)?;
    let mut without = Vec::new();
    while keys.valid() && without.len() < most {
        let value = if values.valid() { id_of(VALUE, values.key()) } else { None };
        match (id_of(KEY, keys.key()), value) {
            (Some(key), Some(value)) if value < key => {
                values.next()?;
                continue;
            }
            (Some(key), Some(value)) if value == key => {}
            (Some(key), _) => without.push(key),
            (None, _) => {}
        }
        keys.next()?;
    }
    Ok(without)
}
