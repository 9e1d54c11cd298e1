//! Sets: members without values. Unions and differences of a few sets look each member up in the other sets, and
//! hold none of them in memory.

use crate::command_batch::CommandBatch;
use crate::encode::{self, Kind, Meta};
use crate::error::Result;
use crate::members::{MEMBER_KEY_BYTES, Page};
use crate::result_size::{ResultSize, check_added};
use std::collections::HashSet;

/// Up to this many sets, each member is looked up in the others, and none is held in memory.
const FEW_SETS: usize = 4;

impl CommandBatch {
    /// The set under `key`, to be read in this command.
    pub fn set(&mut self, db: u8, key: &[u8]) -> Result<Option<Meta>> {
        self.read_collection(db, key, Kind::Set)
    }

    /// Whether a set has a member.
    pub fn set_has(&self, db: u8, set: &Meta, member: &[u8]) -> Result<bool> {
        self.has_element(&encode::member_key(db, set.id, member))
    }

    /// Shows all members until `seen` says no more. Costs O(members).
    pub fn set_each(
        &self,
        db: u8,
        set: &Meta,
        mut seen: impl FnMut(&[u8]) -> Result<bool>,
    ) -> Result<()> {
        self.each_member(db, set, |member, _| seen(member))
    }

    /// About `count` members from `cursor` on.
    ///
    /// # Errors
    /// No page has given this cursor ([`Error::UnknownCursor`](crate::Error::UnknownCursor)). More than `count` are of
    /// equal hashes, which one page has to show, and take more than `most_bytes`
    /// ([`Error::TooLong`](crate::Error::TooLong)). Those of the engine.
    pub fn set_page(
        &self,
        db: u8,
        set: &Meta,
        cursor: u64,
        count: u64,
        most_bytes: usize,
    ) -> Result<Page<Vec<u8>>> {
        let mut items = Vec::new();
        let cursor = self.page_of_members(db, set, cursor, count, most_bytes, |member, _| {
            items.push(member.to_vec());
            Ok(())
        })?;
        Ok(Page { cursor, items })
    }

    /// Shows a random member, `times` times, until `seen` says no more.
    pub fn set_random(
        &self,
        db: u8,
        set: &Meta,
        times: u64,
        mut seen: impl FnMut(&[u8]) -> Result<bool>,
    ) -> Result<()> {
        self.repeated_members(db, set, times, true, |member, _| seen(member))
    }

    /// Shows `count` different random members, or all, until `seen` says no more. Costs O(members) if that is many of
    /// them.
    pub fn set_sample(
        &self,
        db: u8,
        set: &Meta,
        count: u64,
        mut seen: impl FnMut(&[u8]) -> Result<bool>,
    ) -> Result<()> {
        self.random_members(db, set, count, true, |member, _| seen(member)).map(drop)
    }

    /// Shows what is in all of `sets`; one that does not exist is empty. Costs O(members of the
    /// smallest times sets).
    pub fn set_intersection(
        &self,
        db: u8,
        sets: &[Option<Meta>],
        mut seen: impl FnMut(&[u8]) -> Result<bool>,
    ) -> Result<()> {
        let Some(sets) = sets.iter().copied().collect::<Option<Vec<Meta>>>() else { return Ok(()) };
        let Some(smallest) = sets.iter().min_by_key(|set| set.count) else { return Ok(()) };
        self.allow_walk(smallest.count.saturating_mul(sets.len() as u64))?;
        self.set_each(db, smallest, |member| {
            for set in sets.iter().filter(|set| set.id != smallest.id) {
                if !self.set_has(db, set, member)? {
                    return Ok(true);
                }
            }
            seen(member)
        })
    }

    /// Shows what is in any of `sets`, each member once. Costs O(all members), and memory for them up to
    /// [`MAX_STORED_BYTES`](crate::MAX_STORED_BYTES); of a few sets, and of what is over that, O(members times sets).
    pub fn set_union(
        &self,
        db: u8,
        sets: &[Option<Meta>],
        mut seen: impl FnMut(&[u8]) -> Result<bool>,
    ) -> Result<()> {
        self.allow_walk(sets.iter().flatten().map(|set| set.count).sum())?;
        let (mut known, mut size) = (HashSet::new(), ResultSize::default());
        // The first of the sets whose members are not all in `known`.
        let mut unknown = if sets.len() > FEW_SETS { usize::MAX } else { 0 };
        for (at, set) in sets.iter().enumerate() {
            let Some(set) = set else { continue };
            let mut more = true;
            self.set_each(db, set, |member| {
                let others = sets.get(unknown..at).unwrap_or_default();
                if known.contains(member) || self.is_in_any(db, others, member)? {
                    return Ok(true);
                }
                if unknown > at {
                    match size.add(member.len()) {
                        Ok(()) => drop(known.insert(member.to_vec())),
                        Err(_) => unknown = at,
                    }
                }
                more = seen(member)?;
                Ok(more)
            })?;
            if !more {
                break;
            }
        }
        Ok(())
    }

    /// Shows what is in the first of `sets` and in no other. Costs O(its members times sets), or O(all members) if that
    /// is less; then also memory for those of the first.
    pub fn set_difference(
        &self,
        db: u8,
        sets: &[Option<Meta>],
        mut seen: impl FnMut(&[u8]) -> Result<bool>,
    ) -> Result<()> {
        let Some((Some(first), others)) = sets.split_first() else { return Ok(()) };
        let lookups = first.count.saturating_mul(others.len() as u64);
        let all: u64 = sets.iter().flatten().map(|set| set.count).sum();
        if others.len() > FEW_SETS
            && all < lookups
            && let Some(left) = self.left_of(db, first, others)?
        {
            return self.set_each(db, first, |member| match left.contains(member) {
                true => seen(member),
                false => Ok(true),
            });
        }
        self.allow_walk(lookups)?;
        self.set_each(db, first, |member| match self.is_in_any(db, others, member)? {
            true => Ok(true),
            false => seen(member),
        })
    }

    /// The members of a set that are in none of the others, found by walking through these; `None` if the set is too
    /// large to be held.
    fn left_of(
        &self,
        db: u8,
        set: &Meta,
        others: &[Option<Meta>],
    ) -> Result<Option<HashSet<Vec<u8>>>> {
        self.allow_walk(others.iter().flatten().map(|other| other.count).sum())?;
        let (mut left, mut size) = (HashSet::new(), ResultSize::default());
        let mut fits = true;
        self.set_each(db, set, |member| {
            fits = size.add(member.len()).is_ok();
            left.insert(member.to_vec());
            Ok(fits)
        })?;
        if !fits {
            return Ok(None);
        }
        for other in others.iter().flatten() {
            self.set_each(db, other, |member| {
                left.remove(member);
                Ok(!left.is_empty())
            })?;
        }
        Ok(Some(left))
    }

    fn is_in_any(&self, db: u8, sets: &[Option<Meta>], member: &[u8]) -> Result<bool> {
        for set in sets.iter().flatten() {
            if self.set_has(db, set, member)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Adds members, and gives how many were not there. The lock is held.
    ///
    /// # Errors
    /// [`Error::TooLong`](crate::Error::TooLong) if they take more than [`MAX_ADDED_BYTES`](crate::MAX_ADDED_BYTES);
    /// those of the engine.
    pub fn set_add<'k>(
        &mut self,
        db: u8,
        key: &[u8],
        members: impl Iterator<Item = &'k [u8]> + Clone,
    ) -> Result<u64> {
        for member in members.clone() {
            encode::check_member(member)?;
        }
        check_added(members.clone().map(|member| MEMBER_KEY_BYTES + member.len()))?;
        let mut set = self.open_collection(db, key, Kind::Set)?;
        let mut absent = Vec::new();
        for member in members {
            let element_key = encode::member_key(db, set.id, member);
            if !self.has_stored_element(&set, &element_key)? {
                absent.push(element_key);
            }
        }
        absent.sort_unstable();
        absent.dedup();
        let added = absent.len() as u64;
        if added > 0 {
            self.clear_dead_rows(db, &set)?;
            for element_key in absent {
                self.put_element(element_key, b"");
            }
            set.count += added;
            self.put_meta(db, key, &set);
        }
        Ok(added)
    }

    /// Removes members, and gives how many were there. The lock is held.
    pub fn set_remove<'k>(
        &mut self,
        db: u8,
        key: &[u8],
        members: impl Iterator<Item = &'k [u8]>,
    ) -> Result<u64> {
        let Some(mut set) = self.write_collection(db, key, Kind::Set)? else { return Ok(0) };
        self.remove_members(db, key, &mut set, members)
    }

    /// Moves a member from one set to another, and says whether it was there. The locks are held.
    pub fn set_move(&mut self, db: u8, from: &[u8], to: &[u8], member: &[u8]) -> Result<bool> {
        let Some(source) = self.write_collection(db, from, Kind::Set)? else { return Ok(false) };
        self.write_collection(db, to, Kind::Set)?;
        let is_there = self.set_has(db, &source, member)?;
        if is_there && from != to {
            self.attempt(|turn| {
                turn.set_remove(db, from, std::iter::once(member))?;
                turn.set_add(db, to, std::iter::once(member))
            })?;
        }
        Ok(is_there)
    }

    /// Replaces whatever is under `key` with a set of different members, and gives how many. The
    /// lock is held.
    pub fn set_replace(&mut self, db: u8, key: &[u8], members: &[Vec<u8>]) -> Result<u64> {
        if members.is_empty() {
            return self.replace_with_nothing(db, key);
        }
        self.attempt(|turn| {
            turn.clear_key(db, key)?;
            let mut set = turn.fresh_collection(key, Kind::Set)?;
            let mut result_size = ResultSize::default();
            for member in members {
                encode::check_member(member)?;
                result_size.add(member.len())?;
                turn.put_element(encode::member_key(db, set.id, member), b"");
            }
            set.count = members.len() as u64;
            turn.put_meta(db, key, &set);
            Ok(set.count)
        })
    }

    /// Takes `count` random members out of a set, or all; at most [`MAX_STORED_BYTES`](crate::MAX_STORED_BYTES) at a
    /// time. The lock is held.
    pub fn set_pop(&mut self, db: u8, key: &[u8], count: u64) -> Result<Vec<Vec<u8>>> {
        let Some(mut set) = self.write_collection(db, key, Kind::Set)? else {
            return Ok(Vec::new());
        };
        let (mut popped, mut size, mut dead) = (Vec::new(), ResultSize::default(), Vec::new());
        let mut keep = |member: &[u8]| {
            size.add(member.len())?;
            popped.push(member.to_vec());
            Ok(())
        };
        match count {
            0 => {}
            1 => dead.extend(self.random_member(db, &set, true, |member, _| keep(member))?),
            _ if count >= set.count => {
                self.set_each(db, &set, |member| keep(member).map(|()| true))?
            }
            _ => {
                let keep = |member: &[u8], _: &[u8]| keep(member).map(|()| true);
                dead = self.random_members(db, &set, count, true, keep)?;
            }
        }
        if popped.len() as u64 >= set.count {
            self.drop_collection(db, key, &set)?;
        } else if !popped.is_empty() {
            // What is behind a member that this batch wrote was stepped over as well.
            if let ([popped], Some((_, end))) = (&popped[..], dead.first_mut())
                && *end == encode::member_key(db, set.id, popped)
                && let Some(next) = self.next_member(db, &set, end)?
            {
                *end = next;
            }
            if count > 1 {
                self.clear_dead_rows(db, &set)?;
            }
            for (start, end) in dead {
                self.delete_elements(start, end);
            }
            for member in &popped {
                self.delete_element(encode::member_key(db, set.id, member));
            }
            set.count -= popped.len() as u64;
            self.put_meta(db, key, &set);
        }
        Ok(popped)
    }
}
