//! `absorb`: a key is where a memtable absorbs its overwrites, as long as it absorbs more there than
//! it displaces.
//!
//! An instance fills its memtable `lives` times in an interval: bytes written / size of the memtable. A
//! key with entries of `s` bytes that is written `w` times per life *absorbs* `w * s` bytes if it is kept
//! in memory: none of them comes into a memtable that is flushed. It *displaces* `s` bytes of room,
//! which other keys no longer have in each life. It pays when `w * s > s`, with some margin. Then
//! both the bytes that are left and the room that is left are smaller, and the life is longer: the next
//! key is judged with that.
//!
//! Keys are taken from the most written on, by what is certain of their counts. Each stays where it is
//! if that instance has room for it; otherwise it goes home, or to the instance with the most room. What
//! its home can absorb is not moved: where a hot key is absorbed makes no difference for what is
//! flushed, but a key away from home costs a hop.
//!
//! Without a hot table (`hot_bytes` 0) nothing is assigned: a hot key that is overwritten in an
//! ordinary memtable is flushed once per life wherever it is. This is why the published experiments
//! gained nothing.

use crate::id::ShardId;
use crate::plan::assignment::{MAX_MOVED_KEY_BYTES, MAX_PLAN_KEYS, Plan};
use crate::plan::top_list::{MergedKey, TopList};
use crate::plan::top_n::empty;
use crate::topology::Topology;
use std::collections::BTreeMap;

/// A key is hot from this many writes per life on, as for the hot table (decision 0016).
const HOT_WRITES: f64 = 1.5;
/// One that was moved cools below this many and between the two it stays where it is.
const COOL_WRITES: f64 = 0.5;

/// An instance, with the keys that are assigned so far kept in its memory.
struct Instance {
    /// Bytes that come into its memtable per interval.
    write_bytes: f64,
    /// Size of the memtable, without what is kept.
    memtable_bytes: f64,
    /// What it may still keep.
    hot_bytes: f64,
}

impl Instance {
    fn new(list: &TopList) -> Self {
        Self {
            write_bytes: list.write_bytes as f64,
            memtable_bytes: list.memtable_bytes as f64,
            hot_bytes: list.hot_bytes.min(list.memtable_bytes / 2) as f64,
        }
    }

    /// Whether there is room for a key, and keeping it absorbs `least` times what it displaces.
    fn can_absorb(&self, key: &MergedKey, least: f64) -> bool {
        let lives = self.write_bytes / self.memtable_bytes.max(1.0);
        // An instance that writes less than a memtable per interval flushes nothing of it.
        let writes_per_life = key.least_count() as f64 / lives.max(1.0);
        key.entry_bytes as f64 <= self.hot_bytes && writes_per_life > least
    }
}

/// See the module. `merged` is of the same lists.
pub(super) fn absorb(topology: &Topology, lists: &[TopList], merged: &[MergedKey]) -> Plan {
    let mut instances: BTreeMap<ShardId, Instance> =
        lists.iter().map(|list| (list.shard, Instance::new(list))).collect();
    let (mut plan, mut moved) = (empty(topology), 0);
    let mut by_certain: Vec<&MergedKey> = merged.iter().collect();
    by_certain.sort_by_key(|key| std::cmp::Reverse(key.least_count()));
    for key in by_certain {
        let home = topology.shard_of(&key.key.key);
        let Some(at) = place(&instances, key, home) else { continue };
        if at != home {
            if key.key.key.len() > MAX_MOVED_KEY_BYTES || moved == MAX_PLAN_KEYS {
                continue;
            }
            plan.assign(topology, &key.key, at);
            moved += 1;
        }
        let bytes = key.entry_bytes as f64;
        if let Some(from) = instances.get_mut(&key.at) {
            let written = key.least_count() as f64 * bytes;
            from.write_bytes = (from.write_bytes - written).max(0.0);
        }
        if let Some(to) = instances.get_mut(&at) {
            to.memtable_bytes -= bytes;
            to.hot_bytes -= bytes;
        }
    }
    plan
}

/// Where a key is absorbed; `None` if nowhere.
fn place(
    instances: &BTreeMap<ShardId, Instance>,
    key: &MergedKey,
    home: ShardId,
) -> Option<ShardId> {
    let can = |shard: &ShardId, least| {
        instances.get(shard).is_some_and(|instance| instance.can_absorb(key, least))
    };
    if key.at != home && can(&key.at, COOL_WRITES) {
        return Some(key.at);
    }
    if can(&home, HOT_WRITES) {
        return Some(home);
    }
    let others = instances.iter().filter(|(shard, _)| can(shard, HOT_WRITES));
    // The first of those with the most room.
    others
        .rev()
        .max_by(|(_, a), (_, b)| a.hot_bytes.total_cmp(&b.hot_bytes))
        .map(|(shard, _)| *shard)
}
