//! The exception list of a shard: which of its keys are at another instance. The mirror, in the memory of
//! the shard's owner, of records in the store of the shard's instance.
//!
//! It has moved keys only. A lookup is O(1), and one comparison while the list is empty.

use crate::id::ShardId;
use crate::key::{DbKey, MoveId};
use crate::plan::Assignment;
use std::collections::{BTreeMap, HashMap};

/// Where a key is that is not at home.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Exception {
    /// The shard whose instance has it.
    pub at: ShardId,
    /// The move that brought it there.
    pub move_id: MoveId,
}

type KeyMap = HashMap<Box<[u8]>, Exception>;

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExceptionList {
    key_count: usize,
    /// Of the databases that have exceptions; few.
    databases: Vec<(u8, KeyMap)>,
}

/// A key that is not where it shall be.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Misplaced {
    /// The key.
    pub key: DbKey,
    /// Where it is; `None`: at home.
    pub from: Option<ShardId>,
    /// Where it shall be; `None`: at home.
    pub to: Option<ShardId>,
}

impl ExceptionList {
    /// How many keys are away.
    pub fn len(&self) -> usize {
        self.key_count
    }

    /// Whether all keys are at home.
    pub fn is_empty(&self) -> bool {
        self.key_count == 0
    }

    /// Where a key is; `None` if it is at home.
    #[inline]
    pub fn get(&self, db: u8, key: &[u8]) -> Option<Exception> {
        if self.is_empty() {
            return None;
        }
        let (_, keys) = self.databases.iter().find(|(number, _)| *number == db)?;
        keys.get(key).copied()
    }

    /// A key is away now.
    pub fn insert(&mut self, key: &DbKey, exception: Exception) {
        let at = match self.databases.iter().position(|(number, _)| *number == key.db) {
            Some(at) => at,
            None => {
                self.databases.push((key.db, HashMap::new()));
                self.databases.len() - 1
            }
        };
        let before = self.databases[at].1.insert(key.key.as_slice().into(), exception);
        self.key_count += usize::from(before.is_none());
    }

    /// A key is at home now.
    pub fn remove(&mut self, db: u8, key: &[u8]) {
        let Some(at) = self.databases.iter().position(|(number, _)| *number == db) else { return };
        let keys = &mut self.databases[at].1;
        self.key_count -= usize::from(keys.remove(key).is_some());
        if keys.is_empty() {
            self.databases.swap_remove(at);
        }
    }

    /// All keys that are away, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (u8, &[u8], Exception)> {
        self.databases
            .iter()
            .flat_map(|(db, keys)| keys.iter().map(|(key, exception)| (*db, &**key, *exception)))
    }

    /// What is to be moved so that the list is as `part` of a plan says, in order of keys. Keys that come
    /// home are among them. Cost: O(n log n).
    pub fn misplaced(&self, part: &[Assignment]) -> Vec<Misplaced> {
        let mut wanted: BTreeMap<(u8, &[u8]), ShardId> =
            part.iter().map(|it| ((it.key.db, it.key.key.as_slice()), it.at)).collect();
        let mut misplaced = Vec::new();
        let mut add = |(db, key): (u8, &[u8]), from, to| {
            misplaced.push(Misplaced { key: DbKey::new(db, key), from, to });
        };
        for (db, key, exception) in self.iter() {
            let to = wanted.remove(&(db, key));
            if to != Some(exception.at) {
                add((db, key), Some(exception.at), to);
            }
        }
        wanted.into_iter().for_each(|(key, to)| add(key, None, Some(to)));
        misplaced.sort();
        misplaced
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(shard: u32) -> Exception {
        Exception { at: ShardId(shard), move_id: MoveId::default() }
    }

    #[test]
    fn the_list_agrees_with_a_map() {
        let mut list = ExceptionList::default();
        let mut model = BTreeMap::new();
        let mut state = 7u32;
        for _ in 0..20_000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let key = DbKey::new((state >> 8) as u8 % 3, [b'k', (state >> 16) as u8 % 40]);
            match state >> 30 {
                0 | 1 => {
                    list.insert(&key, at(state >> 24 & 3));
                    model.insert(key.clone(), at(state >> 24 & 3));
                }
                2 => {
                    list.remove(key.db, &key.key);
                    model.remove(&key);
                }
                _ => {}
            }
            assert_eq!(list.get(key.db, &key.key), model.get(&key).copied());
            assert_eq!((list.len(), list.is_empty()), (model.len(), model.is_empty()));
        }
        let listed: BTreeMap<_, _> =
            list.iter().map(|(db, key, exception)| (DbKey::new(db, key), exception)).collect();
        assert_eq!(listed, model);
        for key in model.keys() {
            list.remove(key.db, &key.key);
        }
        assert_eq!(list, ExceptionList::default());
    }

    #[test]
    fn what_is_misplaced_is_the_difference_to_the_plan() {
        let mut list = ExceptionList::default();
        let key = |name: &str| DbKey::new(0, name);
        for (name, shard) in [("comes home", 2), ("changes", 2), ("stays", 3)] {
            list.insert(&key(name), at(shard));
        }
        let part: Vec<Assignment> = [("changes", 3), ("goes", 2), ("stays", 3)]
            .map(|(name, shard)| Assignment { key: key(name), at: ShardId(shard) })
            .to_vec();
        let misplaced = |name, from: Option<u32>, to: Option<u32>| Misplaced {
            key: key(name),
            from: from.map(ShardId),
            to: to.map(ShardId),
        };
        assert_eq!(
            list.misplaced(&part),
            [
                misplaced("changes", Some(2), Some(3)),
                misplaced("comes home", Some(2), None),
                misplaced("goes", None, Some(2)),
            ]
        );
        assert_eq!(list.misplaced(&[]).len(), 3);
        let other_db = [Assignment { key: DbKey::new(1, "stays"), at: ShardId(3) }];
        assert_eq!(list.misplaced(&other_db).len(), 4);
    }
}
