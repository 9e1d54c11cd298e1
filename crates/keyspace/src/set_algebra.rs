//! Unions, intersections and differences of sets and sorted sets, whose members have scores.
//!
//! A member of a set has the score 1. The result is gathered in memory, in the order of scores.

use crate::command_batch::CommandBatch;
use crate::encode::{self, Kind, Meta};
use crate::error::Result;
use crate::result_size::ResultSize;
use crate::sorted_sets::stored_score;
use std::cmp::Ordering;
use std::collections::HashMap;

/// Members with scores.
pub type Scored = Vec<(Vec<u8>, f64)>;

/// How the scores of one member in several sets become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Aggregation {
    /// Their sum.
    #[default]
    Sum,
    /// The lowest.
    Min,
    /// The highest.
    Max,
}

impl Aggregation {
    /// Infinities of both signs are 0 together. Of 0 and -0, `a` is the lowest and the highest, as in Redis.
    fn of(self, a: f64, b: f64) -> f64 {
        match self {
            Self::Sum => no_nan(a + b),
            Self::Min if b < a => b,
            Self::Max if b > a => b,
            Self::Min | Self::Max => a,
        }
    }
}

/// One of the sets that are combined.
#[derive(Debug, Clone, Copy)]
pub struct Weighted {
    /// The set or sorted set; `None` is empty.
    pub set: Option<Meta>,
    /// What its scores are multiplied by.
    pub weight: f64,
}

fn no_nan(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

impl CommandBatch {
    /// The set or sorted set under `key`, to be read in this command.
    pub fn scored_set(&mut self, db: u8, key: &[u8]) -> Result<Option<Meta>> {
        self.read_collection_of(db, key, &[Kind::SortedSet, Kind::Set])
    }

    /// The score of a member of a set or sorted set.
    fn scored_find(&self, db: u8, set: &Meta, member: &[u8]) -> Result<Option<f64>> {
        match set.kind {
            Kind::SortedSet => self.sorted_set_score(db, set, member),
            _ => Ok(self.set_has(db, set, member)?.then_some(1.0)),
        }
    }

    /// Shows the members of a set or sorted set, in no order, until `seen` says no more.
    fn scored_each(
        &self,
        db: u8,
        set: &Meta,
        mut seen: impl FnMut(&[u8], f64) -> Result<bool>,
    ) -> Result<()> {
        self.each_member(db, set, |member, value| match set.kind {
            Kind::SortedSet => seen(member, stored_score(value)?),
            _ => seen(member, 1.0),
        })
    }

    /// What is in any of the sets. Costs O(all members).
    pub fn scored_union(
        &self,
        db: u8,
        sets: &[Weighted],
        aggregation: Aggregation,
    ) -> Result<Scored> {
        self.allow_walk(sets.iter().filter_map(|one| one.set).map(|set| set.count).sum())?;
        let mut scores: HashMap<Vec<u8>, f64> = HashMap::new();
        let mut result_size = ResultSize::default();
        for Weighted { set, weight } in by_size(sets) {
            let Some(set) = set else { continue };
            self.scored_each(db, &set, |member, score| {
                let score = no_nan(score * weight);
                match scores.get_mut(member) {
                    Some(known) => *known = aggregation.of(*known, score),
                    None => {
                        result_size.add(member.len())?;
                        scores.insert(member.to_vec(), score);
                    }
                }
                Ok(true)
            })?;
        }
        Ok(in_order(scores.into_iter().collect()))
    }

    /// What is in all of the sets. Costs O(members of the smallest times sets).
    pub fn scored_intersection(
        &self,
        db: u8,
        sets: &[Weighted],
        aggregation: Aggregation,
    ) -> Result<Scored> {
        let (mut found, mut result_size) = (Vec::new(), ResultSize::default());
        self.each_shared(db, sets, aggregation, |member, score| {
            result_size.add(member.len())?;
            found.push((member.to_vec(), score));
            Ok(true)
        })?;
        Ok(in_order(found))
    }

    /// How many members are in all of the sets, counted up to `most`.
    pub fn scored_intersection_count(&self, db: u8, sets: &[Weighted], most: u64) -> Result<u64> {
        let mut count = 0;
        self.each_shared(db, sets, Aggregation::Sum, |_, _| {
            count += 1;
            Ok(count < most)
        })?;
        Ok(count)
    }

    fn each_shared(
        &self,
        db: u8,
        sets: &[Weighted],
        aggregation: Aggregation,
        mut seen: impl FnMut(&[u8], f64) -> Result<bool>,
    ) -> Result<()> {
        let mut all = Vec::new();
        for Weighted { set, weight } in by_size(sets) {
            let Some(set) = set else { return Ok(()) };
            all.push((set, weight));
        }
        let Some(((smallest, weight), others)) = all.split_first() else { return Ok(()) };
        self.allow_walk(smallest.count.saturating_mul(all.len() as u64))?;
        self.scored_each(db, smallest, |member, own_score| {
            let mut sum = no_nan(own_score * weight);
            for (set, weight) in others {
                let found = match set.id == smallest.id {
                    true => Some(own_score),
                    false => self.scored_find(db, set, member)?,
                };
                let Some(score) = found else { return Ok(true) };
                // As Redis: here the sum, not the product, is 0 if it is no number.
                sum = aggregation.of(sum, score * weight);
            }
            seen(member, sum)
        })
    }

    /// What is in the first set and in no other. Costs O(its members times sets).
    pub fn scored_difference(&self, db: u8, sets: &[Weighted]) -> Result<Scored> {
        let (mut found, mut result_size) = (Vec::new(), ResultSize::default());
        let Some((Weighted { set: Some(first), .. }, others)) = sets.split_first() else {
            return Ok(found);
        };
        let others: Vec<Meta> = others.iter().filter_map(|other| other.set).collect();
        if others.iter().any(|set| set.id == first.id) {
            return Ok(found);
        }
        self.allow_walk(first.count.saturating_mul(others.len() as u64))?;
        self.scored_each(db, first, |member, score| {
            for set in &others {
                if self.scored_find(db, set, member)?.is_some() {
                    return Ok(true);
                }
            }
            result_size.add(member.len())?;
            found.push((member.to_vec(), score));
            Ok(true)
        })?;
        Ok(in_order(found))
    }

    /// Replaces whatever is under `key` with a sorted set of different members, and gives how many.
    /// The lock is held.
    pub fn sorted_set_replace(&mut self, db: u8, key: &[u8], members: &Scored) -> Result<u64> {
        if members.is_empty() {
            return self.replace_with_nothing(db, key);
        }
        self.attempt(|turn| {
            turn.clear_key(db, key)?;
            let mut set = turn.fresh_collection(key, Kind::SortedSet)?;
            let mut result_size = ResultSize::default();
            for (member, score) in members {
                encode::check_member(member)?;
                result_size.add(member.len())?;
                turn.put_score(db, &set, member, None, *score);
            }
            set.count = members.len() as u64;
            turn.put_meta(db, key, &set);
            Ok(set.count)
        })
    }
}

/// The smallest first.
fn by_size(sets: &[Weighted]) -> Vec<Weighted> {
    let mut sets = sets.to_vec();
    sets.sort_by_key(|one| one.set.map_or(0, |set| set.count));
    sets
}

fn in_order(mut members: Scored) -> Scored {
    // None is NaN, and -0 is 0.
    let by_score = |a: f64, b: f64| a.partial_cmp(&b).unwrap_or(Ordering::Equal);
    members.sort_unstable_by(|a, b| by_score(a.1, b.1).then_with(|| a.0.cmp(&b.0)));
    members
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_zeros_of_both_signs_the_first_stays() {
        for aggregation in [Aggregation::Min, Aggregation::Max] {
            for (a, b) in [(0.0, -0.0), (-0.0, 0.0)] {
                let found = aggregation.of(a, b);
                assert_eq!(found.is_sign_negative(), a.is_sign_negative(), "{aggregation:?}");
            }
            assert_eq!(aggregation.of(3.0, f64::NAN), 3.0);
        }
        assert_eq!(Aggregation::Min.of(1.0, 2.0), 1.0);
        assert_eq!(Aggregation::Max.of(1.0, 2.0), 2.0);
    }
}
