//! What instances say of their most written keys, and how the lists become one.

use crate::id::ShardId;
use crate::key::DbKey;
use crate::plan::assignment::PlanError;
use crate::topology::Topology;
use std::collections::{BTreeMap, BTreeSet};

/// A key that is written often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopKey {
    /// The key.
    pub key: DbKey,
    /// At most this many writes of it in the interval.
    pub count: u64,
    /// At most this many of `count` were not of it.
    pub error: u64,
    /// What one write takes in a memtable; 0 if that is not known: then the average of the instance.
    pub entry_bytes: u64,
}

/// What one instance counted in an interval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopList {
    /// The shard whose instance it is.
    pub shard: ShardId,
    /// All writes.
    pub writes: u64,
    /// Bytes of all writes.
    pub write_bytes: u64,
    /// The size of its memtable.
    pub memtable_bytes: u64,
    /// How much of that it may use to keep hot keys in memory (its hot table); 0 if it has none.
    pub hot_bytes: u64,
    /// The most written keys: of its shard, and of others that were moved to it.
    pub keys: Vec<TopKey>,
}

/// A key in all lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergedKey {
    /// The key.
    pub key: DbKey,
    /// The sum of all counts.
    pub count: u64,
    /// The sum of all errors.
    pub error: u64,
    /// What one write takes in a memtable.
    pub entry_bytes: u64,
    /// Where most of its writes were counted.
    pub at: ShardId,
}

impl MergedKey {
    /// This many writes are certain.
    pub fn least_count(&self) -> u64 {
        self.count.saturating_sub(self.error)
    }
}

/// One list of all keys, the most written first; equal ones with the smaller error first, then in
/// order of keys. A key was written at one instance at a time, so the counts of a key that was moved
/// meanwhile are added up. Cost: O(n log n).
///
/// # Errors
/// A list is of a shard that does not exist, or there are two of a shard.
pub fn merge(topology: &Topology, lists: &[TopList]) -> Result<Vec<MergedKey>, PlanError> {
    let mut shards = BTreeSet::new();
    // With the count at the place that is named in it.
    let mut merged: BTreeMap<&DbKey, (MergedKey, u64)> = BTreeMap::new();
    for list in lists {
        if !topology.shards.contains_key(&list.shard) {
            return Err(PlanError::UnknownShard(list.shard));
        }
        if !shards.insert(list.shard) {
            return Err(PlanError::ListTwice(list.shard));
        }
        let average = list.write_bytes.checked_div(list.writes).unwrap_or(0);
        for top in &list.keys {
            let entry_bytes = match top.entry_bytes {
                0 => average,
                bytes => bytes,
            };
            let new = || {
                let key = top.key.clone();
                (MergedKey { key, count: 0, error: 0, entry_bytes, at: list.shard }, 0)
            };
            let (key, most) = merged.entry(&top.key).or_insert_with(new);
            key.count = key.count.saturating_add(top.count);
            key.error = key.error.saturating_add(top.error);
            if top.count > *most {
                (key.at, key.entry_bytes, *most) = (list.shard, entry_bytes, top.count);
            }
        }
    }
    let mut merged: Vec<MergedKey> = merged.into_values().map(|(key, _)| key).collect();
    merged.sort_by(|a, b| {
        b.count.cmp(&a.count).then(a.error.cmp(&b.error)).then_with(|| a.key.cmp(&b.key))
    });
    Ok(merged)
}
