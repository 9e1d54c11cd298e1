//! What hashes, sets and sorted sets have in common: members in the order of their hashes.
//!
//! Walks, pages of a scan and random members. A page ends between two groups, never among members of one, which are
//! those whose hashes have the same upper 53 bits. Its cursor is these bits of the group that the next page begins with:
//! nothing is remembered between pages, and a member that is there all the time is in one of them. Called by the files
//! of the types.

use crate::command_batch::{CommandBatch, Direction, MOST_GAPS, Value};
use crate::encode::{self, ELEMENT_PREFIX_BYTES, Kind, Meta};
use crate::error::{Error, Result};
use crate::random;
use crate::result_size::MAX_STORED_BYTES;
use std::collections::HashSet;
use std::ops::RangeInclusive;

/// Bytes of the hash in front of a member.
const PLACE_BYTES: usize = 8;

/// Bytes in front of the member in the key of an element of a hash or set.
pub(crate) const MEMBER_KEY_BYTES: usize = ELEMENT_PREFIX_BYTES + PLACE_BYTES;

/// Bits of a cursor. As many are exact as floating-point numbers and as integers with a sign, which some clients take
/// cursors for.
const CURSOR_BITS: u32 = 53;

/// Lower bits of a hash, which a cursor does not have.
const GROUP_SHIFT: u32 = u64::BITS - CURSOR_BITS;

/// Up to this many members, a random one is found by counting, and all are equally likely.
const FEW: u64 = 128;

/// A page of a scan ends behind this many bytes of members and values.
pub(crate) const MAX_PAGE_BYTES: usize = 4 << 20;

/// What an item of a page takes beside its own bytes, about.
const ITEM_BYTES: usize = 64;

/// After more deleted rows than this in front of a member that is popped, they are cleared by one range deletion.
const MANY_DEAD: u64 = 250;

/// As [`MANY_DEAD`], of the steps over deleted rows, those that ranges cover included. A range that knows all newer keys
/// within it takes fewer; one that does not is replaced, since a new one has none.
const MANY_STEPS: u64 = 1000;

/// Members passed by after a random place. The gap before a place is larger the more likely it
/// is hit; the sum of many gaps varies less.
const STEPS: u64 = 16;

/// A part of a collection that a scan shows.
#[derive(Debug, Clone, PartialEq)]
pub struct Page<T> {
    /// Where the next page begins; 0 if this is the last. Below 2^53.
    pub cursor: u64,
    /// What is in it.
    pub items: Vec<T>,
}

/// The ranks that `first` and `last` mean in a row of `count`, both included; below 0 they count
/// from the end, -1 being the last. `None` if there are none.
pub fn ranks(first: i64, last: i64, count: u64) -> Option<RangeInclusive<u64>> {
    let rank = |at: i64| match at < 0 {
        true => count.checked_sub(at.unsigned_abs()),
        false => Some(at.unsigned_abs()),
    };
    let (first, last) = (rank(first).unwrap_or(0), rank(last)?);
    let last = last.min(count.checked_sub(1)?);
    (first <= last).then_some(first..=last)
}

/// The prefix of the keys of a collection's members.
fn members_of(db: u8, meta: &Meta) -> Vec<u8> {
    let mut prefix = Vec::with_capacity(ELEMENT_PREFIX_BYTES + 1);
    prefix.extend_from_slice(&encode::elements_of(db, meta.id));
    if meta.kind == Kind::SortedSet {
        prefix.push(0);
    }
    prefix
}

/// The hash and the member in a key.
fn parts<'k>(key: &'k [u8], prefix: &[u8]) -> (u64, &'k [u8]) {
    let rest = key.get(prefix.len()..).unwrap_or_default();
    match rest.split_first_chunk::<PLACE_BYTES>() {
        Some((place, member)) => (u64::from_be_bytes(*place), member),
        None => (0, rest),
    }
}

fn from_place(prefix: &[u8], place: u64) -> Vec<u8> {
    [prefix, &place.to_be_bytes()].concat()
}

impl CommandBatch {
    /// An element of a collection. One that is not stored yet has none: nothing is looked up.
    pub(crate) fn stored_element(&self, meta: &Meta, element_key: &[u8]) -> Result<Option<Value>> {
        if meta.count == 0 {
            return Ok(None);
        }
        self.element(element_key)
    }

    /// Whether there is an element, as [`Self::stored_element`].
    pub(crate) fn has_stored_element(&self, meta: &Meta, element_key: &[u8]) -> Result<bool> {
        Ok(meta.count > 0 && self.has_element(element_key)?)
    }

    /// Shows all members with their values until `seen` says no more.
    pub(crate) fn each_member(
        &self,
        db: u8,
        meta: &Meta,
        mut seen: impl FnMut(&[u8], &[u8]) -> Result<bool>,
    ) -> Result<()> {
        self.allow_walk(meta.count)?;
        let prefix = members_of(db, meta);
        self.visit_noting(&prefix, None, Direction::Up, false, |key, value| {
            seen(parts(key, &prefix).1, value)
        })
    }

    /// As [`Self::each_member`], without reading values.
    pub(crate) fn each_member_name(
        &self,
        db: u8,
        meta: &Meta,
        mut seen: impl FnMut(&[u8]) -> Result<bool>,
    ) -> Result<()> {
        self.allow_walk(meta.count)?;
        let prefix = members_of(db, meta);
        self.visit_noting(&prefix, None, Direction::Up, true, |key, _| seen(parts(key, &prefix).1))
    }

    /// Shows about `count` members from `cursor` on, fewer if they are large, and gives the cursor behind them, 0 at
    /// the end: a number of 53 bits. More are shown if they are of one group, up to `most_bytes` with what they take in
    /// memory: hashes have no seed, so that a client can make members of one group without end.
    ///
    /// # Errors
    /// A cursor that none of these pages has given ([`Error::UnknownCursor`]): a larger number leads nowhere, and the
    /// end would be a silent one. [`Error::TooLong`] if members of one group take more than `most_bytes` or
    /// [`MAX_STORED_BYTES`]. Those of the engine and of `seen`.
    pub(crate) fn page_of_members(
        &self,
        db: u8,
        meta: &Meta,
        cursor: u64,
        count: u64,
        most_bytes: usize,
        mut seen: impl FnMut(&[u8], &[u8]) -> Result<()>,
    ) -> Result<u64> {
        if cursor >> CURSOR_BITS != 0 {
            return Err(Error::UnknownCursor);
        }
        let prefix = members_of(db, meta);
        let (mut shown, mut bytes, mut held_bytes, mut last, mut next) = (0, 0, 0, cursor, 0);
        let most_bytes = most_bytes.min(MAX_STORED_BYTES);
        let from = from_place(&prefix, cursor << GROUP_SHIFT);
        self.visit_noting(&prefix, Some(&from), Direction::Up, false, |key, value| {
            let (place, member) = parts(key, &prefix);
            let group = place >> GROUP_SHIFT;
            // The next group is above this one, so that its number is not 0, which would say that this is the end.
            let is_full = shown >= count || bytes >= MAX_PAGE_BYTES;
            if is_full && group != last {
                next = group;
                return Ok(false);
            }
            (shown, last) = (shown + 1, group);
            bytes += member.len() + value.len();
            held_bytes += member.len() + value.len() + ITEM_BYTES;
            self.allow_walk(shown)?;
            self.allow_bytes(held_bytes)?;
            if is_full && held_bytes > most_bytes {
                return Err(Error::TooLong(format!(
                    "a page of members whose hashes are equal takes more than {most_bytes} bytes"
                )));
            }
            seen(member, value)?;
            Ok(true)
        })?;
        Ok(next)
    }

    /// Shows a random member `times` times, until `seen` says no more. Of more than 128, one with a wide gap before it comes
    /// a little more often: its probability is that of sixteen neighbours divided by sixteen. If it is to be `keys_only`,
    /// without values.
    pub(crate) fn repeated_members(
        &self,
        db: u8,
        meta: &Meta,
        times: u64,
        keys_only: bool,
        mut seen: impl FnMut(&[u8], &[u8]) -> Result<bool>,
    ) -> Result<()> {
        self.allow_walk(times.saturating_mul(STEPS))?;
        if times == 1 || meta.count > FEW {
            let mut more = true;
            for _ in 0..times {
                self.random_member(db, meta, keys_only, |member, value| {
                    more = seen(member, value)?;
                    Ok(())
                })?;
                if !more {
                    break;
                }
            }
            return Ok(());
        }
        let prefix = members_of(db, meta);
        // Values may be large: each is read when it is drawn.
        let mut keys = Vec::new();
        self.visit_keys(&prefix, None, Direction::Up, |key| {
            keys.push(key.to_vec());
            Ok(true)
        })?;
        for _ in 0..times {
            let Some(key) = keys.get(random::below(keys.len() as u64) as usize) else { break };
            let member = parts(key, &prefix).1;
            let more = match keys_only {
                true => seen(member, b"")?,
                false => self.element(key)?.map_or(Ok(true), |value| seen(member, &value))?,
            };
            if !more {
                break;
            }
        }
        Ok(())
    }

    /// Shows a random member. If it takes many steps over deleted rows to find it, gives the range of the keys of the
    /// row of them that took most: who has the lock may clear it, so that the next one does not step over them. If it is
    /// to be `keys_only`, without its value.
    pub(crate) fn random_member(
        &self,
        db: u8,
        meta: &Meta,
        keys_only: bool,
        mut seen: impl FnMut(&[u8], &[u8]) -> Result<()>,
    ) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let prefix = members_of(db, meta);
        let (mut from, mut skip) = match meta.count <= FEW {
            true => (None, random::below(meta.count)),
            false => (Some(from_place(&prefix, random::word())), random::below(STEPS)),
        };
        let (mut dead, mut most_steps) = (None, 0);
        loop {
            let mut found = None;
            let mut start = from.clone();
            let (mut rows_before, mut steps_before) = (self.rows_passed(), self.deleted_steps());
            // Values may be large: one is read.
            self.visit_keys(&prefix, from.as_deref(), Direction::Up, |key| {
                let rows = self.rows_passed() - rows_before;
                let steps = self.deleted_steps() - steps_before;
                if (rows > MANY_DEAD || steps > MANY_STEPS) && steps > most_steps {
                    let start = start.clone().unwrap_or_else(|| prefix.clone());
                    (dead, most_steps) = (Some((start, key.to_vec())), steps);
                }
                (rows_before, steps_before) = (self.rows_passed(), self.deleted_steps());
                let behind = start.get_or_insert_default();
                behind.clear();
                behind.extend_from_slice(key);
                behind.push(0);
                match skip {
                    0 => found = Some(key.to_vec()),
                    _ => skip -= 1,
                }
                Ok(found.is_none())
            })?;
            if let Some(key) = &found {
                let member = parts(key, &prefix).1;
                match keys_only {
                    true => seen(member, b"")?,
                    false => self.element(key)?.map_or(Ok(()), |value| seen(member, &value))?,
                }
            }
            // At the end it goes on at the beginning; `take` sees to it that it does so once.
            if found.is_some() || from.take().is_none() {
                return Ok(dead);
            }
        }
    }

    /// The key of the next member behind the one with `key`, or the end of them all.
    pub(crate) fn next_member(&self, db: u8, meta: &Meta, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let prefix = members_of(db, meta);
        let mut next = encode::end_of(&prefix);
        self.visit(&prefix, Some(key), Direction::Up, |found, _| {
            let is_next = found != key;
            if is_next {
                next = Some(found.to_vec());
            }
            Ok(!is_next)
        })?;
        Ok(next)
    }

    /// Shows `count` different random members, or all, until `seen` says no more. Costs O(all) if that is many of
    /// them, else O(count). Gives ranges of deleted rows as [`Self::random_member`] does. If it is to be `keys_only`,
    /// without values.
    pub(crate) fn random_members(
        &self,
        db: u8,
        meta: &Meta,
        count: u64,
        keys_only: bool,
        mut seen: impl FnMut(&[u8], &[u8]) -> Result<bool>,
    ) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        /// Up to this many, walking by all of them is as cheap as going to random places.
        const SHORT: u64 = 512;
        /// Random places are tried this often, and four times more for each member that was found: where that does not do,
        /// members are not all over.
        const SPARE_TRIES: u64 = 64;
        let many = meta.count <= SHORT || count.saturating_mul(3) >= meta.count;
        let (mut picked, mut more) = (HashSet::new(), true);
        let mut dead: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        // A third are wanted at most, so that each try finds another one with 2/3. Not among members whose hashes a client
        // has chosen: all places may lead to the same few.
        let (mut tries, mut most_tries) = (0, if many { 0 } else { SPARE_TRIES });
        while more && tries < most_tries && (picked.len() as u64) < count {
            tries += 1;
            self.allow_walk(tries * STEPS)?;
            let passed = self.random_member(db, meta, keys_only, |member, value| {
                if picked.insert(member.to_vec()) {
                    most_tries += 4;
                    more = seen(member, value)?;
                }
                Ok(())
            })?;
            // The same may have been passed from another place.
            if let Some((start, end)) = passed
                && dead.len() < MOST_GAPS
                && dead.iter().all(|(_, other)| *other != end)
            {
                dead.push((start, end));
            }
        }
        let mut wanted = count.saturating_sub(picked.len() as u64);
        if wanted == 0 || !more {
            return Ok(dead);
        }
        // Selection sampling: Knuth, The Art of Computer Programming 2, 3.4.2, algorithm S.
        let mut left = meta.count - picked.len() as u64;
        // Values may be large: of few fields each is read by itself.
        let reads_each = !keys_only && meta.kind == Kind::Hash && wanted.saturating_mul(4) < left;
        self.allow_walk(meta.count)?;
        let prefix = members_of(db, meta);
        let walks_keys = keys_only || reads_each;
        self.visit_noting(&prefix, None, Direction::Up, walks_keys, |key, value| {
            let member = parts(key, &prefix).1;
            if picked.contains(member) {
                return Ok(true);
            }
            if random::below(left) < wanted {
                more = match reads_each {
                    true => self.element(key)?.map_or(Ok(true), |value| seen(member, &value))?,
                    false => seen(member, value)?,
                };
                wanted -= 1;
            }
            left = left.saturating_sub(1);
            Ok(more && wanted > 0)
        })?;
        Ok(dead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_those_of_redis() {
        for ((first, last, count), expected) in [
            ((0, -1, 3), Some(0..=2)),
            ((-2, -1, 3), Some(1..=2)),
            ((-100, 100, 3), Some(0..=2)),
            ((1, 0, 3), None),
            ((3, 5, 3), None),
            ((0, -4, 3), None),
            ((0, -1, 0), None),
            ((i64::MIN, i64::MAX, 1), Some(0..=0)),
            ((0, i64::MIN, 1), None),
        ] {
            assert_eq!(ranks(first, last, count), expected, "{first} {last} of {count}");
        }
    }
}
