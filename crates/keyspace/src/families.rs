//! The families of a keyspace in the store.

use crate::key_layout::{KeyLayout, MAX_DATABASES};
use terrace::{ColumnFamily, ReadOptions};
use terrace_cluster::SLOT_COUNT;

/// The families of a keyspace. One to read may lack some; then another stands for it in which nothing is
/// found that would be looked for.
#[derive(Clone)]
pub(crate) struct Families {
    pub strings: ColumnFamily,
    pub collections: ColumnFamily,
    pub elements: ColumnFamily,
}

/// Reads to where the rows of the store itself, and notes of what will expire, begin in `collections`.
pub(crate) fn of_keys(layout: KeyLayout, keys_only: bool) -> ReadOptions {
    let end = match layout.has_slots() {
        true => SLOT_COUNT.to_be_bytes().to_vec(),
        false => vec![MAX_DATABASES as u8],
    };
    ReadOptions { upper_bound: Some(end), keys_only, ..ReadOptions::default() }
}
