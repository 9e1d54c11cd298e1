//! Sorted sets: members with scores, twice: by member, and in order. What changes them.
//!
//! Walks in order are in `sorted_sets/order.rs`. A score is never NaN, and -0 is stored as 0, as in
//! Redis's small sorted sets.

mod order;

pub use order::{MemberEnd, Order, Range, ScoreEnd};

use crate::command_batch::{CommandBatch, MANY_PASSED, behind};
use crate::encode::{self, Kind, Meta};
use crate::error::{Error, Result};
use crate::members::{MEMBER_KEY_BYTES, Page};
use crate::result_size::{ResultSize, check_added};
use std::collections::HashMap;

/// Up to this many are deleted one by one: a range tombstone costs every later read of its neighbourhood a look.
const FEW: usize = 512;

/// Bytes of a key of a member, or of the other one and the score under it, without the member.
const SCORED_KEY_BYTES: usize = MEMBER_KEY_BYTES + 1;

/// Which members [`CommandBatch::sorted_set_add`] may add or change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AddRule {
    /// None is changed (`NX`).
    pub only_new: bool,
    /// None is added (`XX`).
    pub only_existing: bool,
    /// None gets a lower score (`GT`).
    pub only_greater: bool,
    /// None gets a higher score (`LT`).
    pub only_less: bool,
}

/// What [`CommandBatch::sorted_set_add`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Added {
    /// Members that were not there.
    pub added: u64,
    /// Members that got another score.
    pub changed: u64,
}

/// How a walk found members that are next to each other.
#[derive(Clone, Copy)]
struct Run {
    order: Order,
    /// Whether they certainly begin with the lowest of the set, or end with the highest.
    has_lowest: bool,
    has_highest: bool,
    /// [`CommandBatch::deleted_steps`] before the walk.
    steps_before: u64,
}

impl AddRule {
    /// The score that a member gets: `None` if it keeps the one it has, or stays away.
    fn decide(self, before: Option<f64>, score: f64) -> Option<f64> {
        let allowed = match before {
            None => !self.only_existing,
            Some(before) => {
                !(self.only_new
                    || self.only_greater && score <= before
                    || self.only_less && score >= before)
            }
        };
        allowed.then_some(score)
    }
}

impl CommandBatch {
    /// The sorted set under `key`, to be read in this command.
    pub fn sorted_set(&mut self, db: u8, key: &[u8]) -> Result<Option<Meta>> {
        self.read_collection(db, key, Kind::SortedSet)
    }

    /// The score of a member.
    pub fn sorted_set_score(&self, db: u8, set: &Meta, member: &[u8]) -> Result<Option<f64>> {
        let found = self.stored_element(set, &encode::scored_member_key(db, set.id, member))?;
        found.map(|bytes| stored_score(&bytes)).transpose()
    }

    /// About `count` members with their scores from `cursor` on, in no order.
    ///
    /// # Errors
    /// No page has given this cursor ([`Error::UnknownCursor`](crate::Error::UnknownCursor)). More than `count` are of
    /// equal hashes, which one page has to show, and take more than `most_bytes`
    /// ([`Error::TooLong`](crate::Error::TooLong)). Those of the engine.
    pub fn sorted_set_page(
        &self,
        db: u8,
        set: &Meta,
        cursor: u64,
        count: u64,
        most_bytes: usize,
    ) -> Result<Page<(Vec<u8>, f64)>> {
        let mut items = Vec::new();
        let cursor =
            self.page_of_members(db, set, cursor, count, most_bytes, |member, score| {
                items.push((member.to_vec(), stored_score(score)?));
                Ok(())
            })?;
        Ok(Page { cursor, items })
    }

    /// Shows a random member and its score, `times` times, until `seen` says no more.
    pub fn sorted_set_random(
        &self,
        db: u8,
        set: &Meta,
        times: u64,
        mut seen: impl FnMut(&[u8], f64) -> Result<bool>,
    ) -> Result<()> {
        self.repeated_members(db, set, times, false, |member, score| {
            seen(member, stored_score(score)?)
        })
    }

    /// Shows `count` different random members, or all, until `seen` says no more. Costs O(members) if that is many of
    /// them.
    pub fn sorted_set_sample(
        &self,
        db: u8,
        set: &Meta,
        count: u64,
        mut seen: impl FnMut(&[u8], f64) -> Result<bool>,
    ) -> Result<()> {
        let seen = |member: &[u8], score: &[u8]| seen(member, stored_score(score)?);
        self.random_members(db, set, count, false, seen).map(drop)
    }

    /// Adds members or changes their scores. The lock is held.
    ///
    /// # Errors
    /// [`Error::TooLong`] if they take more than [`MAX_ADDED_BYTES`](crate::MAX_ADDED_BYTES); those of the engine.
    pub fn sorted_set_add<'k>(
        &mut self,
        db: u8,
        key: &[u8],
        rule: AddRule,
        pairs: impl Iterator<Item = (f64, &'k [u8])> + Clone,
    ) -> Result<Added> {
        for (score, member) in pairs.clone() {
            encode::check_member(member)?;
            check_score(score)?;
        }
        // Each is there twice: with its score, and in order.
        let sizes = |(_, member): (f64, &[u8])| [SCORED_KEY_BYTES + member.len(); 2];
        check_added(pairs.clone().flat_map(sizes))?;
        let Some(mut set) = self.sorted_set_to_add_to(db, key, rule)? else {
            return Ok(Added::default());
        };
        let mut outcome = Added::default();
        // What each member has in the store, and what it shall have.
        let mut scores: HashMap<&[u8], (Option<f64>, Option<f64>)> = HashMap::new();
        for (score, member) in pairs {
            let (stored, now) = match scores.get(member) {
                Some(known) => *known,
                None => {
                    let stored = self.sorted_set_score(db, &set, member)?;
                    (stored, stored)
                }
            };
            let after = rule.decide(now, score).filter(|after| now != Some(*after));
            if after.is_some() {
                let counter = if now.is_none() { &mut outcome.added } else { &mut outcome.changed };
                *counter += 1;
            }
            scores.insert(member, (stored, after.or(now)));
        }
        if outcome != Added::default() {
            self.clear_dead_rows(db, &set)?;
        }
        for (member, (stored, after)) in scores {
            if let Some(after) = after.filter(|after| stored != Some(*after)) {
                self.put_score(db, &set, member, stored, after);
            }
        }
        if outcome != Added::default() {
            set.count += outcome.added;
            self.put_meta(db, key, &set);
        }
        Ok(outcome)
    }

    /// Adds to the score of a member, 0 if it is not there, and gives the sum; `None` if the rule
    /// does not allow it. The lock is held.
    pub fn sorted_set_increment(
        &mut self,
        db: u8,
        key: &[u8],
        rule: AddRule,
        delta: f64,
        member: &[u8],
    ) -> Result<Option<f64>> {
        encode::check_member(member)?;
        let Some(mut set) = self.sorted_set_to_add_to(db, key, rule)? else { return Ok(None) };
        let before = self.sorted_set_score(db, &set, member)?;
        if rule.only_new && before.is_some() {
            return Ok(None);
        }
        // Not 0 + delta: the reply to -0 is -0.
        let sum = before.map_or(delta, |before| before + delta);
        check_score(sum)?;
        let Some(sum) = rule.decide(before, sum) else { return Ok(None) };
        if before != Some(sum) {
            self.clear_dead_rows(db, &set)?;
            self.put_score(db, &set, member, before, sum);
            set.count += u64::from(before.is_none());
            self.put_meta(db, key, &set);
        }
        Ok(Some(sum))
    }

    fn sorted_set_to_add_to(&mut self, db: u8, key: &[u8], rule: AddRule) -> Result<Option<Meta>> {
        match rule.only_existing {
            true => self.write_collection(db, key, Kind::SortedSet),
            false => self.open_collection(db, key, Kind::SortedSet).map(Some),
        }
    }

    pub(crate) fn put_score(
        &mut self,
        db: u8,
        set: &Meta,
        member: &[u8],
        before: Option<f64>,
        after: f64,
    ) {
        if let Some(before) = before {
            self.delete_element(encode::score_key(db, set.id, before, member));
        }
        let by_member = encode::scored_member_key(db, set.id, member);
        self.put_element(by_member, &encode::ordered_score(after));
        self.put_element(encode::score_key(db, set.id, after, member), b"");
    }

    /// Removes members, and gives how many were there. The lock is held.
    pub fn sorted_set_remove<'k>(
        &mut self,
        db: u8,
        key: &[u8],
        members: impl Iterator<Item = &'k [u8]>,
    ) -> Result<u64> {
        let Some(set) = self.write_collection(db, key, Kind::SortedSet)? else { return Ok(0) };
        let mut present = HashMap::new();
        for member in members {
            if let Some(score) = self.sorted_set_score(db, &set, member)? {
                present.insert(member, score);
            }
        }
        if !present.is_empty() {
            self.clear_dead_rows(db, &set)?;
        }
        self.take_out(db, key, set, present.into_iter())
    }

    /// Removes a range, and gives how many members were in it. Costs what a walk through it costs, and memory for its
    /// members up to [`MAX_STORED_BYTES`](crate::MAX_STORED_BYTES); little if everything goes. The lock is held.
    pub fn sorted_set_remove_range(
        &mut self,
        db: u8,
        key: &[u8],
        range: &Range<'_>,
    ) -> Result<u64> {
        let Some(set) = self.write_collection(db, key, Kind::SortedSet)? else { return Ok(0) };
        if set.count > FEW as u64 && range.has_first() && range.has_last(set.count) {
            self.drop_collection(db, key, &set)?;
            return Ok(set.count);
        }
        let steps_before = self.deleted_steps();
        let members = self.gather(db, &set, range, Order::Up, u64::MAX)?;
        if let Range::Members(..) = range {
            // Unless all have one score, others lie between them.
            let members = members.iter().map(|(member, score)| (&member[..], *score));
            return self.take_out(db, key, set, members);
        }
        let (has_lowest, has_highest) = (range.has_first(), range.has_last(set.count));
        let run = Run { order: Order::Up, has_lowest, has_highest, steps_before };
        self.take_out_run(db, key, set, &members, run)
    }

    /// Takes out the `count` first members in an order, and gives them; at most
    /// [`MAX_STORED_BYTES`](crate::MAX_STORED_BYTES) at a time. The lock is held.
    pub fn sorted_set_pop(
        &mut self,
        db: u8,
        key: &[u8],
        order: Order,
        count: u64,
    ) -> Result<Vec<(Vec<u8>, f64)>> {
        let everything = Range::Ranks(0..=u64::MAX);
        let steps_before = self.deleted_steps();
        let Some(set) = self.write_collection(db, key, Kind::SortedSet)? else {
            return Ok(Vec::new());
        };
        let members = self.gather(db, &set, &everything, order, count)?;
        if members.len() > FEW && members.len() as u64 >= set.count {
            self.drop_collection(db, key, &set)?;
            return Ok(members);
        }
        let (has_lowest, has_highest) = (order == Order::Up, order == Order::Down);
        let run = Run { order, has_lowest, has_highest, steps_before };
        self.take_out_run(db, key, set, &members, run)?;
        Ok(members)
    }

    /// The first `count` members of a range, which are going to be removed.
    fn gather(
        &self,
        db: u8,
        set: &Meta,
        range: &Range<'_>,
        order: Order,
        count: u64,
    ) -> Result<Vec<(Vec<u8>, f64)>> {
        let (mut members, mut size) = (Vec::new(), ResultSize::default());
        if count > 0 {
            self.sorted_set_each(db, set, range, order, |member, score| {
                size.add(member.len())?;
                members.push((member.to_vec(), score));
                Ok((members.len() as u64) < count)
            })?;
        }
        Ok(members)
    }

    /// As [`Self::take_out`], of members that are next to each other in order. Many go as one range; so do few if the
    /// walk that found them took many steps to get from an end to them.
    ///
    /// A range reaches to the end of the order that the members are at: so the newest one covers all earlier ones, and a
    /// walk gets past all together. Behind many steps it reaches to the next member that stays, too: of what the batch
    /// itself wrote, the walk has looked for that as well.
    fn take_out_run(
        &mut self,
        db: u8,
        key: &[u8],
        mut set: Meta,
        members: &[(Vec<u8>, f64)],
        run: Run,
    ) -> Result<u64> {
        let (Some(first), Some(last)) = (members.first(), members.last()) else { return Ok(0) };
        let (low, high) = match run.order {
            Order::Up => (first, last),
            Order::Down => (last, first),
        };
        let is_from_end = run.has_lowest || run.has_highest;
        let is_behind_many = is_from_end && self.deleted_steps() - run.steps_before > MANY_PASSED;
        if members.len() <= FEW && !is_behind_many {
            let members = members.iter().map(|(member, score)| (&member[..], *score));
            return self.take_out(db, key, set, members);
        }
        let prefix = order::prefix_of(db, &set);
        let whole_end = encode::end_of(&prefix);
        let low = encode::score_key(db, set.id, low.1, &low.0);
        let high = encode::score_key(db, set.id, high.1, &high.0);
        let start = match (run.has_lowest, is_behind_many) {
            (true, _) => Some(prefix),
            (false, true) => {
                self.next_in_order(db, &set, &low, Order::Down)?.map(behind).or(Some(prefix))
            }
            (false, false) => None,
        };
        let end = match (run.has_highest, is_behind_many) {
            (true, _) => whole_end,
            (false, true) => self.next_in_order(db, &set, &high, Order::Up)?.or(whole_end),
            (false, false) => None,
        };
        self.delete_elements(start.unwrap_or(low), end.unwrap_or_else(|| behind(high)));
        for (member, _) in members {
            self.delete_element(encode::scored_member_key(db, set.id, member));
        }
        let removed = members.len() as u64;
        set.count = set.count.saturating_sub(removed);
        self.put_meta(db, key, &set);
        Ok(removed)
    }

    /// The key of the next member behind the one with `key`.
    fn next_in_order(
        &self,
        db: u8,
        set: &Meta,
        key: &[u8],
        order: Order,
    ) -> Result<Option<Vec<u8>>> {
        let mut next = None;
        self.walk_in_order(db, set, Some(key), order, |found, _, _| {
            let is_next = found != key;
            next = is_next.then(|| found.to_vec());
            Ok(!is_next)
        })?;
        Ok(next)
    }

    /// Removes members that are there, with the scores that they have; none of them twice.
    fn take_out<'m>(
        &mut self,
        db: u8,
        key: &[u8],
        mut set: Meta,
        members: impl ExactSizeIterator<Item = (&'m [u8], f64)>,
    ) -> Result<u64> {
        let removed = members.len() as u64;
        if removed == 0 {
            return Ok(0);
        }
        for (member, score) in members {
            self.delete_element(encode::scored_member_key(db, set.id, member));
            self.delete_element(encode::score_key(db, set.id, score, member));
        }
        set.count = set.count.saturating_sub(removed);
        self.put_meta(db, key, &set);
        Ok(removed)
    }
}

fn check_score(score: f64) -> Result<()> {
    if score.is_nan() { Err(Error::ScoreNotANumber) } else { Ok(()) }
}

pub(crate) fn stored_score(bytes: &[u8]) -> Result<f64> {
    match bytes.try_into() {
        Ok(bytes) => Ok(encode::score_of(bytes)),
        Err(_) => {
            let what = "a score has not 8 bytes".into();
            Err(Error::Engine(terrace::Error::InvalidArgument(what)))
        }
    }
}
