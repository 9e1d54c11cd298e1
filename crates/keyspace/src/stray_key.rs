//! Keys that a store has from before it was in a cluster, and that nobody would find there: those of other shards, and of
//! databases that a cluster has not. A node asks for one before its store is first served on.

use crate::encode::Meta;
use crate::error::Result;
use crate::families::of_keys;
use crate::keyspace::Keyspace;
use terrace::Iter;
use terrace_cluster::{DbKey, KeyRange, slot_of};

/// How a walk goes on from a key.
enum Step {
    /// It is where it shall be, and so are all before this key of the engine.
    Seek(Vec<u8>),
    /// It may stay where it is.
    Next,
    Stray(DbKey),
}

impl Keyspace {
    /// A key that is in another database than 0, or in none of these ranges, and that no move brought here; any, if there are
    /// several. Looks once into each range, with placement `slots` into each slot that has keys.
    ///
    /// # Errors
    /// The engine's.
    pub fn stray_key(&self, ranges: &[KeyRange]) -> Result<Option<DbKey>> {
        for (family, is_string) in [(&self.strings, true), (&self.collections, false)] {
            let mut iter = family.iter_with(&of_keys(self.layout, is_string))?;
            iter.seek_to_first()?;
            while iter.valid() {
                match self.look_for_stray(&iter, is_string, ranges)? {
                    Step::Seek(next) => iter.seek(&next)?,
                    Step::Next => iter.next()?,
                    Step::Stray(key) => return Ok(Some(key)),
                }
            }
        }
        Ok(None)
    }

    fn look_for_stray(&self, iter: &Iter, is_string: bool, ranges: &[KeyRange]) -> Result<Step> {
        let Some((db, key)) = self.layout.parts(iter.key()) else { return Ok(Step::Next) };
        if let Some(range) = ranges.iter().find(|range| db == 0 && has(range, key)) {
            let next = behind(range, key);
            // Never back, were the ranges of another placement than the store.
            return Ok(if next.as_slice() > iter.key() { Step::Seek(next) } else { Step::Next });
        }
        let is_gone = !is_string && Meta::read(iter.value())?.is_expired(self.now_ms());
        let key = DbKey::new(db, key);
        let is_fine = is_gone || self.moves.copy(&key).is_some();
        Ok(if is_fine { Step::Next } else { Step::Stray(key) })
    }
}

fn has(range: &KeyRange, key: &[u8]) -> bool {
    match range {
        KeyRange::Slots(first, last) => (*first..=*last).contains(&slot_of(key).number()),
        KeyRange::Keys { start, end } => {
            start.as_slice() <= key && end.as_deref().is_none_or(|end| key < end)
        }
    }
}

/// The first of the engine's keys behind those of database 0 in a range; of slots, behind those in the slot of `key`.
fn behind(range: &KeyRange, key: &[u8]) -> Vec<u8> {
    match range {
        KeyRange::Slots(..) => [&slot_of(key).number().to_be_bytes()[..], &[1]].concat(),
        KeyRange::Keys { end: Some(end), .. } => [&[0], &end[..]].concat(),
        KeyRange::Keys { end: None, .. } => vec![1],
    }
}
