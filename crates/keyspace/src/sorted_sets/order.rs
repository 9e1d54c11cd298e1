//! Walks through a sorted set in the order of scores, members of equal scores in that of their
//! bytes.
//!
//! Scores and members are found by a seek. A rank is counted from the nearer end.

use crate::command_batch::{CommandBatch, Direction, Mode};
use crate::encode::{self, ELEMENT_PREFIX_BYTES, Meta};
use crate::error::Result;
use std::ops::RangeInclusive;

/// In a set of no more members a place is counted from where the order begins: that takes less than an estimate.
const FEW_MEMBERS: u64 = 8192;

/// Bytes of a key in order in front of the score.
const PREFIX_BYTES: usize = ELEMENT_PREFIX_BYTES + 1;

/// Which way a walk goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// From the lowest score.
    Up,
    /// From the highest score.
    Down,
}

impl Order {
    fn other(self) -> Self {
        match self {
            Self::Up => Self::Down,
            Self::Down => Self::Up,
        }
    }
}

/// One end of a range of scores.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScoreEnd {
    /// The score, no NaN.
    pub score: f64,
    /// Whether members with this very score are outside.
    pub excluded: bool,
}

/// One end of a range of members that have equal scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberEnd<'a> {
    /// Before all (`-`).
    Lowest,
    /// Behind all (`+`).
    Highest,
    /// At this one.
    Included(&'a [u8]),
    /// At this one, which is outside.
    Excluded(&'a [u8]),
}

/// Members that are next to each other.
#[derive(Debug, Clone, PartialEq)]
pub enum Range<'a> {
    /// By place, the first in the walk's order being 0.
    Ranks(RangeInclusive<u64>),
    /// By score: lower and upper end.
    Scores(ScoreEnd, ScoreEnd),
    /// By member: lower and upper end. Says nothing useful if scores differ.
    Members(MemberEnd<'a>, MemberEnd<'a>),
}

impl Range<'_> {
    /// Whether it certainly begins with the first member, going up.
    pub(super) fn has_first(&self) -> bool {
        match self {
            Self::Ranks(ranks) => *ranks.start() == 0,
            Self::Scores(lower, _) => lower.score == f64::NEG_INFINITY && !lower.excluded,
            Self::Members(lower, _) => *lower == MemberEnd::Lowest,
        }
    }

    /// Whether it certainly ends with the last member of `count`, going up.
    pub(super) fn has_last(&self, count: u64) -> bool {
        match self {
            Self::Ranks(ranks) => ranks.end().checked_add(1).is_none_or(|end| end >= count),
            Self::Scores(_, upper) => upper.score == f64::INFINITY && !upper.excluded,
            Self::Members(_, upper) => *upper == MemberEnd::Highest,
        }
    }

    fn is_above_lower(&self, member: &[u8], score: f64) -> bool {
        match self {
            Self::Ranks(_) => true,
            Self::Scores(lower, _) => {
                if lower.excluded {
                    score > lower.score
                } else {
                    score >= lower.score
                }
            }
            Self::Members(lower, _) => match lower {
                MemberEnd::Lowest => true,
                MemberEnd::Highest => false,
                MemberEnd::Included(end) => member >= *end,
                MemberEnd::Excluded(end) => member > *end,
            },
        }
    }

    fn is_below_upper(&self, member: &[u8], score: f64) -> bool {
        match self {
            Self::Ranks(_) => true,
            Self::Scores(_, upper) => {
                if upper.excluded {
                    score < upper.score
                } else {
                    score <= upper.score
                }
            }
            Self::Members(_, upper) => match upper {
                MemberEnd::Lowest => false,
                MemberEnd::Highest => true,
                MemberEnd::Included(end) => member <= *end,
                MemberEnd::Excluded(end) => member < *end,
            },
        }
    }
}

impl CommandBatch {
    /// Shows the members of `range` with their scores in `order`, until `seen` says no more.
    ///
    /// Costs O(log members + shown); for ranks, also the distance to the nearer end.
    pub fn sorted_set_each(
        &self,
        db: u8,
        set: &Meta,
        range: &Range<'_>,
        order: Order,
        mut seen: impl FnMut(&[u8], f64) -> Result<bool>,
    ) -> Result<()> {
        if let Range::Ranks(ranks) = range {
            return self.each_of_ranks(db, set, ranks, order, seen);
        }
        let Some(from) = self.start_of(db, set, range, order)? else { return Ok(()) };
        let mut walked = 0;
        self.walk_in_order(db, set, from.as_deref(), order, |_, member, score| {
            walked += 1;
            self.allow_walk(walked)?;
            let (lower, upper) =
                (range.is_above_lower(member, score), range.is_below_upper(member, score));
            let (entered, left) = match order {
                Order::Up => (lower, !upper),
                Order::Down => (upper, !lower),
            };
            match (entered, left) {
                (_, true) => Ok(false),
                (false, false) => Ok(true),
                (true, false) => seen(member, score),
            }
        })
    }

    /// The place and the score of a member in an order, the first being 0. Costs O(place); of many members, O(distance to
    /// the nearer end), as far as the engine's estimate knows which is nearer.
    pub fn sorted_set_rank(
        &self,
        db: u8,
        set: &Meta,
        member: &[u8],
        order: Order,
    ) -> Result<Option<(u64, f64)>> {
        let Some(score) = self.sorted_set_score(db, set, member)? else { return Ok(None) };
        let wanted = encode::score_key(db, set.id, score, member);
        let from = self.nearer_end(db, set, &wanted, order);
        let (mut passed, mut found) = (0, false);
        self.walk_in_order(db, set, None, from, |key, _, _| {
            found = key == wanted;
            passed += u64::from(!found);
            self.allow_walk(passed)?;
            Ok(!found)
        })?;
        let rank = match from == order {
            true => passed,
            false => set.count.saturating_sub(1 + passed),
        };
        Ok(found.then_some((rank, score)))
    }

    /// The order that comes to the member with this key soonest, where the set has many; else `order`. An estimate may read
    /// the device, and one that is wrong or fails costs time only.
    fn nearer_end(&self, db: u8, set: &Meta, key: &[u8], order: Order) -> Order {
        if set.count <= FEW_MEMBERS || self.mode() == Mode::Memory {
            return order;
        }
        let lowest = prefix_of(db, set);
        let Some(end) = encode::end_of(&lowest) else { return order };
        let elements = self.space().elements();
        // Both sides: where scores change often, each has several versions of its members.
        match (elements.estimate(&lowest[..]..key), elements.estimate(key..&end[..])) {
            (Ok(below), Ok(above)) if below.keys > above.keys => Order::Down,
            (Ok(_), Ok(_)) => Order::Up,
            _ => order,
        }
    }

    fn each_of_ranks(
        &self,
        db: u8,
        set: &Meta,
        ranks: &RangeInclusive<u64>,
        order: Order,
        mut seen: impl FnMut(&[u8], f64) -> Result<bool>,
    ) -> Result<()> {
        let (first, last) = (*ranks.start(), (*ranks.end()).min(set.count.saturating_sub(1)));
        if first > last || first >= set.count {
            return Ok(());
        }
        let behind = set.count - 1 - first;
        let from = match behind < first {
            true => self.key_at(db, set, behind, order.other())?,
            false => None,
        };
        let mut skip = if from.is_some() { 0 } else { first };
        let mut wanted = last - first + 1;
        let mut walked = 0;
        self.walk_in_order(db, set, from.as_deref(), order, |_, member, score| {
            walked += 1;
            self.allow_walk(walked)?;
            if skip > 0 {
                skip -= 1;
                return Ok(true);
            }
            wanted -= 1;
            Ok(seen(member, score)? && wanted > 0)
        })
    }

    /// The key of the member at a place.
    fn key_at(&self, db: u8, set: &Meta, at: u64, order: Order) -> Result<Option<Vec<u8>>> {
        self.allow_walk(at)?;
        let (mut skip, mut found) = (at, None);
        self.walk_in_order(db, set, None, order, |key, _, _| {
            if skip == 0 {
                found = Some(key.to_vec());
            }
            skip = skip.saturating_sub(1);
            Ok(found.is_none())
        })?;
        Ok(found)
    }

    /// Where a walk through a range starts, `Some(None)` being the end; `None` if there is nothing
    /// in it. At most one member outside of the range comes before its first.
    #[expect(clippy::option_option)]
    fn start_of(
        &self,
        db: u8,
        set: &Meta,
        range: &Range<'_>,
        order: Order,
    ) -> Result<Option<Option<Vec<u8>>>> {
        let prefix = prefix_of(db, set);
        Ok(match (range, order) {
            (Range::Ranks(_), _) => Some(None),
            (Range::Scores(end, _), Order::Up) | (Range::Scores(_, end), Order::Down) => {
                let place = [&prefix[..], &encode::ordered_score(end.score)].concat();
                // Before or behind all members with this score.
                let behind = end.excluded == (order == Order::Up);
                Some(if behind { encode::end_of(&place) } else { Some(place) })
            }
            (Range::Members(end, _), Order::Up) | (Range::Members(_, end), Order::Down) => {
                let member = match (end, order) {
                    (MemberEnd::Lowest, Order::Up) | (MemberEnd::Highest, Order::Down) => {
                        return Ok(Some(None));
                    }
                    (MemberEnd::Lowest | MemberEnd::Highest, _) => return Ok(None),
                    (MemberEnd::Included(member) | MemberEnd::Excluded(member), _) => member,
                };
                // All have the score of the first one.
                let first = self.key_at(db, set, 0, order)?;
                first.and_then(|key| {
                    let score = key.get(..PREFIX_BYTES + 8)?;
                    Some(Some([score, member].concat()))
                })
            }
        })
    }

    pub(super) fn walk_in_order(
        &self,
        db: u8,
        set: &Meta,
        from: Option<&[u8]>,
        order: Order,
        mut seen: impl FnMut(&[u8], &[u8], f64) -> Result<bool>,
    ) -> Result<()> {
        let direction = match order {
            Order::Up => Direction::Up,
            Order::Down => Direction::Down,
        };
        self.visit_noting(&prefix_of(db, set), from, direction, true, |key, _| {
            let rest = key.get(PREFIX_BYTES..).unwrap_or_default();
            let Some((score, member)) = rest.split_first_chunk::<8>() else { return Ok(true) };
            seen(key, member, encode::score_of(*score))
        })
    }
}

pub(super) fn prefix_of(db: u8, set: &Meta) -> Vec<u8> {
    let mut prefix = encode::elements_of(db, set.id).to_vec();
    prefix.push(1);
    prefix
}
