//! The `budget` allocator: every next unit has a gain, wasted lookups saved per byte, and one
//! threshold lambda parts the units that are resident from those that are not.
//!
//! All gains of a pass go into a histogram on a logarithmic scale, from whose top the budget is
//! filled: that gives lambda. In a slice, steps up are taken best first. One that finds no free
//! bytes takes them from the cheapest steps down of the slice, if these cost less by the factor
//! [`HYSTERESIS`]; where a pass has several slices, units far below lambda are also dropped for
//! the sake of other slices. Gains fall with every step of a partition (`curve`), so taking the
//! best step each time is as good as looking at all partitions at once.
//!
//! For ribbon columns this is `c_i = log2(f_i / keys_i) + const`.

use super::allocator::{Allocator, Moves, Offer, PartitionId, Room};
use super::curve::Step;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// A step up must gain so much more than the steps down that make room for it cost.
pub(crate) const HYSTERESIS: f64 = 1.25;
/// Steps up in a row that find no room before a slice is left as it is.
const MAX_FAILURES: usize = 64;
/// In a store of so few partitions the bytes of every two are shared out anew now and then.
const POLISHED_PARTITIONS: usize = 64;
/// In a store of so few, of every three, and of every four.
const TRIED_BY_THREES: usize = 8;
const TRIED_BY_FOURS: usize = 5;
/// Every how many steps that is done.
const POLISH_EVERY: u32 = 16;
/// Rounds of that in one step.
const MAX_ROUNDS: usize = 4;
/// The same as [`HYSTERESIS`] there.
const POLISH_HYSTERESIS: f64 = 1.05;

/// Buckets per doubling of the gain.
const BUCKETS_PER_OCTAVE: f64 = 8.0;
/// Gains below two to the minus this count as that.
const MIN_OCTAVE: f64 = 96.0;
const BUCKETS: usize = (MIN_OCTAVE * BUCKETS_PER_OCTAVE) as usize + 1;

/// Bytes of units by what they gain.
#[derive(Debug)]
struct Demand {
    bytes: Box<[u64]>,
}

impl Demand {
    fn new() -> Self {
        Self { bytes: vec![0; BUCKETS].into() }
    }

    fn bucket(gain: f64) -> usize {
        let place = (gain.max(f64::MIN_POSITIVE).log2() + MIN_OCTAVE) * BUCKETS_PER_OCTAVE;
        (place.max(0.0) as usize).min(BUCKETS - 1)
    }

    /// The least gain of a bucket.
    fn floor_of(bucket: usize) -> f64 {
        (bucket as f64 / BUCKETS_PER_OCTAVE - MIN_OCTAVE).exp2()
    }

    fn add(&mut self, offer: &Offer) {
        if offer.heat <= 0.0 {
            return;
        }
        for step in offer.curve.climb() {
            self.bytes[Self::bucket(offer.heat * step.slope)] += step.bytes as u64;
        }
    }

    /// The least gain whose units, with all that gain more, take at most `budget_bytes`; 0 if all
    /// fit.
    fn price(&self, budget_bytes: usize) -> f64 {
        let mut taken = 0;
        for (bucket, bytes) in self.bytes.iter().enumerate().rev() {
            taken += bytes;
            if taken > budget_bytes as u64 {
                return Self::floor_of(bucket + 1);
            }
        }
        0.0
    }

    /// Bytes of units that gain more than `gain`.
    fn bytes_above(&self, gain: f64) -> usize {
        let from = if gain > 0.0 { Self::bucket(gain) } else { 0 };
        self.bytes[from..].iter().sum::<u64>() as usize
    }
}

/// The allocator.
#[derive(Debug)]
pub(crate) struct Price {
    /// Of the pass that goes on.
    demand: Demand,
    lambda: f64,
    wanted_bytes: usize,
    /// Bytes that steps worth more than lambda found no room for in other slices.
    unmet_bytes: usize,
    unmet_in_pass: usize,
    steps: u32,
}

impl Price {
    pub fn new() -> Self {
        Self {
            demand: Demand::new(),
            lambda: 0.0,
            wanted_bytes: 0,
            unmet_bytes: 0,
            unmet_in_pass: 0,
            steps: 0,
        }
    }

    /// Adds a slice to the pass; at its end the price is known.
    fn survey(&mut self, offers: &[Offer], room: &Room) {
        if room.begins_pass {
            self.demand.bytes.fill(0);
        }
        offers.iter().for_each(|offer| self.demand.add(offer));
        if room.ends_pass {
            self.lambda = self.demand.price(room.budget_bytes);
            self.wanted_bytes = self.demand.bytes_above(room.least_gain);
        }
    }
}

impl Allocator for Price {
    fn decide(&mut self, offers: &[Offer], room: &Room) -> Moves {
        self.survey(offers, room);
        let whole = room.begins_pass && room.ends_pass;
        let waits = self.unmet_bytes > 0;
        let mut slice = Slice::new(offers, room, self.lambda, whole, waits);
        slice.fit();
        slice.rise();
        self.steps = self.steps.wrapping_add(1);
        let polish = whole && offers.len() <= POLISHED_PARTITIONS;
        if polish && self.steps.is_multiple_of(POLISH_EVERY) {
            slice.polish();
        }
        if whole {
            self.unmet_bytes = 0;
        } else {
            self.unmet_bytes += slice.unmet_bytes;
            self.unmet_in_pass += slice.unmet_bytes;
            self.unmet_bytes -= slice.make_way(self.unmet_bytes, self.lambda / HYSTERESIS.sqrt());
            if room.ends_pass {
                // What is still wanted has been counted again.
                self.unmet_bytes = self.unmet_bytes.min(std::mem::take(&mut self.unmet_in_pass));
            }
        }
        slice.into_moves()
    }

    fn forget(&mut self, _id: PartitionId) {}

    fn lambda(&self) -> f64 {
        self.lambda
    }

    fn wanted_bytes(&self) -> usize {
        self.wanted_bytes
    }
}

/// A step of a partition, ordered by what it gains (or, reversed, costs).
#[derive(Debug, Clone, Copy)]
struct Priced {
    gain: f64,
    at: usize,
    from: u8,
    step: Step,
}

impl PartialEq for Priced {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Priced {}

impl PartialOrd for Priced {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Priced {
    fn cmp(&self, other: &Self) -> Ordering {
        self.gain.total_cmp(&other.gain).then(other.at.cmp(&self.at))
    }
}

/// One slice while it is decided.
struct Slice<'a> {
    offers: &'a [Offer],
    /// Units so far decided.
    units: Vec<u8>,
    budget_bytes: usize,
    used_bytes: usize,
    load_bytes: usize,
    lambda: f64,
    least_gain: f64,
    ups: BinaryHeap<Priced>,
    downs: BinaryHeap<std::cmp::Reverse<Priced>>,
    unmet_bytes: usize,
}

impl<'a> Slice<'a> {
    fn new(offers: &'a [Offer], room: &Room, lambda: f64, whole: bool, waits: bool) -> Self {
        let mut slice = Self {
            offers,
            units: offers.iter().map(|offer| offer.units.min(offer.curve.units())).collect(),
            budget_bytes: room.budget_bytes,
            used_bytes: room.used_bytes,
            load_bytes: room.load_bytes,
            lambda,
            least_gain: 0.0,
            ups: BinaryHeap::new(),
            downs: BinaryHeap::new(),
            unmet_bytes: 0,
        };
        let over = slice.used_bytes > slice.budget_bytes;
        // Of several slices none takes what is worth less than lambda from those to come; but
        // lambda is an estimate, from a histogram.
        let low = match (whole, waits) {
            (true, _) => 0.0,
            (false, true) => lambda * HYSTERESIS.sqrt(),
            (false, false) => lambda / HYSTERESIS.sqrt(),
        };
        slice.least_gain = low;
        let high = lambda * HYSTERESIS;
        for at in 0..offers.len() {
            if let Some(up) = slice.up(at) {
                slice.ups.push(up);
            }
            if let Some(down) = slice.down(at).filter(|down| down.gain <= high || over || whole) {
                slice.downs.push(std::cmp::Reverse(down));
            }
        }
        slice
    }

    fn up(&self, at: usize) -> Option<Priced> {
        let (offer, from) = (&self.offers[at], self.units[at]);
        let step = offer.curve.up(from)?;
        let gain = offer.heat * step.slope;
        (gain > self.least_gain).then_some(Priced { gain, at, from, step })
    }

    fn down(&self, at: usize) -> Option<Priced> {
        let (offer, from) = (&self.offers[at], self.units[at]);
        let step = offer.curve.down(from)?;
        Some(Priced { gain: offer.heat * step.slope, at, from, step })
    }

    fn free_bytes(&self) -> usize {
        self.budget_bytes.saturating_sub(self.used_bytes)
    }

    /// Takes a step down, and offers the next one.
    fn take_down(&mut self, down: &Priced) {
        self.units[down.at] = down.step.units;
        self.used_bytes = self.used_bytes.saturating_sub(down.step.bytes);
        if let Some(next) = self.down(down.at) {
            self.downs.push(std::cmp::Reverse(next));
        }
    }

    fn undo_down(&mut self, down: &Priced) {
        self.units[down.at] = down.from;
        self.used_bytes += down.step.bytes;
        self.downs.push(std::cmp::Reverse(*down));
    }

    /// The cheapest step down that still holds.
    fn pop_down(&mut self) -> Option<Priced> {
        while let Some(std::cmp::Reverse(down)) = self.downs.pop() {
            if self.units[down.at] == down.from {
                return Some(down);
            }
        }
        None
    }

    /// A budget that has shrunk: the cheapest units go.
    fn fit(&mut self) {
        while self.used_bytes > self.budget_bytes
            && let Some(down) = self.pop_down()
        {
            self.take_down(&down);
        }
    }

    /// Takes steps up, best first.
    fn rise(&mut self) {
        let mut failures = 0;
        while failures < MAX_FAILURES
            && let Some(up) = self.ups.pop()
        {
            if self.units[up.at] != up.from {
                continue;
            }
            if up.step.bytes > self.load_bytes {
                break;
            }
            if up.step.bytes > self.free_bytes() && !self.make_room(&up) {
                self.unmet_bytes += self.wanted_from(&up);
                failures += 1;
                continue;
            }
            self.take_up(&up);
        }
    }

    /// Bytes of `up` and the steps after it that are worth more than lambda.
    fn wanted_from(&self, up: &Priced) -> usize {
        let offer = &self.offers[up.at];
        let worthy = |step: &Step| offer.heat * step.slope >= self.lambda * HYSTERESIS.sqrt();
        let steps = std::iter::successors(Some(up.step), |step| offer.curve.up(step.units));
        steps.take_while(worthy).map(|step| step.bytes).sum()
    }

    fn take_up(&mut self, up: &Priced) {
        self.units[up.at] = up.step.units;
        self.used_bytes += up.step.bytes;
        self.load_bytes = self.load_bytes.saturating_sub(up.step.bytes);
        if let Some(next) = self.up(up.at) {
            self.ups.push(next);
        }
        // Its step down from here is not offered: what was just gained is not given away.
    }

    /// Takes steps down until `up` fits, if these cost less than it gains.
    fn make_room(&mut self, up: &Priced) -> bool {
        let worth = up.gain * up.step.bytes as f64;
        let mut taken: Vec<Priced> = Vec::new();
        let mut cost = 0.0;
        while up.step.bytes > self.free_bytes() {
            let down = self.pop_down().filter(|down| {
                let more = down.gain * down.step.bytes as f64;
                let pays = (cost + more) * HYSTERESIS <= worth && down.at != up.at;
                if !pays {
                    self.downs.push(std::cmp::Reverse(*down));
                }
                pays
            });
            let Some(down) = down else {
                for down in taken.iter().rev() {
                    self.undo_down(down);
                }
                return false;
            };
            cost += down.gain * down.step.bytes as f64;
            self.take_down(&down);
            taken.push(down);
        }
        true
    }

    /// Shares the bytes of every two partitions (of every three if there are few) and those left
    /// over out anew, every number of units for each: what steps of different lengths leave
    /// undone.
    fn polish(&mut self) {
        let count = self.offers.len();
        let group = if count <= TRIED_BY_FOURS {
            4.min(count)
        } else if count <= TRIED_BY_THREES {
            3
        } else {
            2
        };
        if group == 0 {
            return;
        }
        for _ in 0..MAX_ROUNDS {
            let mut changed = false;
            let mut members: Vec<usize> = (0..group).collect();
            loop {
                changed |= self.share_anew(&members);
                if !next_combination(&mut members, count) {
                    break;
                }
            }
            if !changed {
                break;
            }
        }
    }

    /// The cheapest units for `members` within their bytes and the free ones, if that is worth it.
    fn share_anew(&mut self, members: &[usize]) -> bool {
        let charge = |at: usize, units: u8| self.offers[at].curve.charge_bytes(units);
        let held: usize = members.iter().map(|at| charge(*at, self.units[*at])).sum();
        let most_bytes = held + self.free_bytes();
        let most_loads = held.saturating_add(self.load_bytes);
        let mut units = vec![0u8; members.len()];
        let mut best: Option<(f64, Vec<u8>)> = None;
        loop {
            let bytes: usize = members.iter().zip(&units).map(|(at, u)| charge(*at, *u)).sum();
            if bytes <= most_bytes && bytes <= most_loads {
                let net = self.saving(members, &units);
                if net > 0.0 && best.as_ref().is_none_or(|(most, _)| net > *most) {
                    best = Some((net, units.clone()));
                }
            }
            let top = |i: &usize| units[*i] >= self.offers[members[*i]].curve.units();
            let Some(i) = (0..units.len()).find(|i| !top(i)) else { break };
            units[..i].fill(0);
            units[i] += 1;
        }
        let Some((_, units)) = best else { return false };
        for (at, after) in members.iter().zip(units) {
            let (had, has) = (charge(*at, self.units[*at]), charge(*at, after));
            self.used_bytes = self.used_bytes + has - had;
            self.load_bytes = self.load_bytes.saturating_sub(has.saturating_sub(had));
            self.units[*at] = after;
        }
        true
    }

    /// What E falls by if `members` have `units`, counting what they lose a little more.
    fn saving(&self, members: &[usize], units: &[u8]) -> f64 {
        let parts = members.iter().zip(units).map(|(at, after)| {
            let Offer { curve, heat, .. } = &self.offers[*at];
            let saved = heat * (curve.fpr(self.units[*at]) - curve.fpr(*after));
            if saved > 0.0 { saved } else { saved * POLISH_HYSTERESIS }
        });
        parts.sum()
    }

    /// Frees up to `bytes` of units that gain less than `gain`; gives what was freed.
    fn make_way(&mut self, bytes: usize, gain: f64) -> usize {
        let mut freed = 0;
        while freed < bytes
            && let Some(down) = self.pop_down().filter(|down| down.gain < gain)
        {
            freed += down.step.bytes;
            self.take_down(&down);
        }
        freed.min(bytes)
    }

    fn into_moves(self) -> Moves {
        let mut moves = Moves::default();
        for (offer, units) in self.offers.iter().zip(self.units) {
            match units.cmp(&offer.units) {
                Ordering::Less => moves.drops.push((offer.id, units)),
                Ordering::Equal => {}
                Ordering::Greater => moves.loads.push((offer.id, units)),
            }
        }
        moves
    }
}

/// The next ascending choice out of `count`; whether there is one.
fn next_combination(members: &mut [usize], count: usize) -> bool {
    let size = members.len();
    let Some(i) = (0..size).rev().find(|i| members[*i] + (size - i) < count) else { return false };
    members[i] += 1;
    for j in i + 1..size {
        members[j] = members[j - 1] + 1;
    }
    true
}

#[cfg(test)]
mod tests;
