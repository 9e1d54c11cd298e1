//! The `mq` allocator: the multi-queue of ElasticBF (Li et al., USENIX ATC 2019, section 3.3).
//!
//! Queue Q_i holds the filter partitions with exactly i units resident, in the order of their last
//! access. An access adds 1 to the partition's frequency f, makes it the most recent of its queue,
//! and lets it expire `life_time` lookups later. If one more unit for it, paid for with units of
//! others, lowers E = sum of f * fpr, that is done: partitions that have expired lose one unit
//! each, looked for from Q_m down to Q_1, each from its least recent end, until there is room. A
//! queue whose least recent partition has not expired is passed over, and if there is not enough
//! room in all, nothing is done.
//!
//! ```text
//!   Q_m   [least recent ... most recent]   m units each    demotions are looked for here first
//!   ...
//!   Q_1   [least recent ... most recent]   1 unit each
//!   Q_0   [least recent ... most recent]   none
//! ```
//!
//! As published, f counts all accesses, those that find their key as well, and never decays.

use super::allocator::{Allocator, Moves, Offer, PartitionId, Room};
use super::curve::Curve;
use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Gains and losses nearer to each other than this part of them are the same.
const TIE: f64 = 1e-9;
/// Accesses of one partition that one slice acts upon at most: more find nothing else to do.
const MAX_ACCESSES: u32 = 32;

struct Entry {
    curve: Arc<Curve>,
    /// Accesses so far.
    frequency: u64,
    units: u8,
    /// The order of the last access among all.
    order: u64,
    expired_time: u64,
}

/// The queues.
#[derive(Default)]
pub(crate) struct MultiQueue {
    entries: HashMap<PartitionId, Entry>,
    /// By number of units, by order of the last access.
    queues: Vec<BTreeMap<u64, PartitionId>>,
    accesses: u64,
}

impl MultiQueue {
    pub fn new() -> Self {
        Self::default()
    }

    fn queue(&mut self, units: u8) -> &mut BTreeMap<u64, PartitionId> {
        let at = usize::from(units);
        if self.queues.len() <= at {
            self.queues.resize_with(at + 1, BTreeMap::new);
        }
        &mut self.queues[at]
    }

    /// Takes the partition in with the units it has; it counts as accessed just now.
    pub fn insert(&mut self, id: PartitionId, curve: Arc<Curve>, units: u8, expired_time: u64) {
        self.remove(id);
        self.accesses += 1;
        let order = self.accesses;
        self.queue(units).insert(order, id);
        self.entries.insert(id, Entry { curve, frequency: 0, units, order, expired_time });
    }

    /// Forgets a partition.
    pub fn remove(&mut self, id: PartitionId) {
        if let Some(entry) = self.entries.remove(&id) {
            self.queue(entry.units).remove(&entry.order);
        }
    }

    /// Moves a partition to the queue of `units`, at its place by last access.
    fn set_units(&mut self, id: PartitionId, units: u8) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let (order, before) = (entry.order, std::mem::replace(&mut entry.units, units));
        self.queue(before).remove(&order);
        self.queue(units).insert(order, id);
    }

    /// One access of `id` at lookup number `now`, with this many bytes free: the demotions that make
    /// room for one more unit of `id`, each to one unit less and in the order in which they were
    /// found; `None` if there is to be no change. The change is made.
    pub fn access(
        &mut self,
        id: PartitionId,
        now: u64,
        life_time: u64,
        free_bytes: usize,
    ) -> Option<Vec<PartitionId>> {
        self.accesses += 1;
        let order = self.accesses;
        let entry = self.entries.get_mut(&id)?;
        entry.frequency += 1;
        entry.expired_time = now + life_time;
        let (units, before) = (entry.units, std::mem::replace(&mut entry.order, order));
        let (curve, frequency) = (entry.curve.clone(), entry.frequency as f64);
        let queue = self.queue(units);
        queue.remove(&before);
        queue.insert(order, id);
        if units >= curve.units() {
            return None;
        }
        let need = curve.charge_bytes(units + 1) - curve.charge_bytes(units);
        let demotions = self.find_room(need, now, free_bytes)?;
        let gain = frequency * (curve.fpr(units) - curve.fpr(units + 1));
        let loss: f64 = demotions.iter().map(|(_, loss)| loss).sum();
        if gain <= loss * (1.0 + TIE) {
            // E would not fall: what was looked at stays as it was.
            for (demoted, _) in demotions.iter().rev() {
                let units = self.entries.get(demoted).map_or(0, |entry| entry.units);
                self.set_units(*demoted, units + 1);
            }
            return None;
        }
        self.set_units(id, units + 1);
        Some(demotions.into_iter().map(|(demoted, _)| demoted).collect())
    }

    /// Demotes expired partitions until `need` bytes are free; with what each adds to E. If there
    /// is not enough room, none is demoted.
    fn find_room(
        &mut self,
        need: usize,
        now: u64,
        mut free_bytes: usize,
    ) -> Option<Vec<(PartitionId, f64)>> {
        let mut demotions = Vec::new();
        for units in (1..self.queues.len()).rev() {
            while free_bytes < need
                && let Some(&id) = self.queues[units].values().next()
                && let Some(entry) = self.entries.get(&id)
                && entry.expired_time < now
            {
                let (units, curve) = (entry.units, &entry.curve);
                let added = curve.fpr(units - 1) - curve.fpr(units);
                demotions.push((id, entry.frequency as f64 * added));
                free_bytes += curve.charge_bytes(units) - curve.charge_bytes(units - 1);
                self.set_units(id, units - 1);
            }
        }
        if free_bytes >= need {
            return Some(demotions);
        }
        for (id, _) in demotions.iter().rev() {
            let units = self.entries.get(id).map_or(0, |entry| entry.units);
            self.set_units(*id, units + 1);
        }
        None
    }

    /// Units of a partition.
    pub fn units(&self, id: PartitionId) -> Option<u8> {
        self.entries.get(&id).map(|entry| entry.units)
    }
}

/// Units that partitions start with while there is room: what the budget allows to all.
fn fair_units(offer: &Offer, room: &Room) -> u8 {
    let share = room.budget_bytes / room.partitions.max(1);
    let fits = |units: &u8| offer.curve.charge_bytes(*units) <= share;
    (0..=offer.curve.units()).rev().find(fits).unwrap_or(0)
}

/// Bytes that are free, and those that one step may still load.
struct Purse {
    free_bytes: usize,
    load_bytes: usize,
}

impl Purse {
    fn pay(&mut self, bytes: usize) {
        self.free_bytes -= bytes;
        self.load_bytes -= bytes;
    }
}

impl MultiQueue {
    /// Makes the entry of an offer what the offer says; a partition that is new or was emptied
    /// gets its fair share while there is room.
    fn take_in(&mut self, offer: &Offer, room: &Room, purse: &mut Purse) {
        if self.units(offer.id) != Some(offer.units) {
            let frequency = self.entries.get(&offer.id).map_or(0, |entry| entry.frequency);
            let expires = room.lookups + room.partitions as u64;
            self.insert(offer.id, offer.curve.clone(), offer.units, expires);
            if let Some(entry) = self.entries.get_mut(&offer.id) {
                entry.frequency = frequency;
            }
        }
        let fair = fair_units(offer, room);
        if offer.units < fair {
            let charge = |units| offer.curve.charge_bytes(units);
            let need = charge(fair) - charge(offer.units);
            if need <= purse.free_bytes.min(purse.load_bytes) {
                purse.pay(need);
                self.set_units(offer.id, fair);
            }
        }
    }

    /// Goes through the accesses of an offer; notes in `before` the units that partitions had
    /// which lose some.
    fn go_through(
        &mut self,
        offer: &Offer,
        room: &Room,
        purse: &mut Purse,
        before: &mut BTreeMap<PartitionId, u8>,
    ) {
        let charge = |units| offer.curve.charge_bytes(units);
        let skipped = offer.accesses.saturating_sub(MAX_ACCESSES);
        if let Some(entry) = self.entries.get_mut(&offer.id) {
            entry.frequency += u64::from(skipped);
        }
        for _ in skipped..offer.accesses {
            let units = self.units(offer.id).unwrap_or(0);
            let need = match units < offer.curve.units() {
                true => charge(units + 1) - charge(units),
                false => 0,
            };
            if need > purse.load_bytes {
                break;
            }
            let life_time = room.partitions as u64;
            let Some(demoted) = self.access(offer.id, room.lookups, life_time, purse.free_bytes)
            else {
                continue;
            };
            for (at, id) in demoted.iter().enumerate() {
                if let Some(entry) = self.entries.get(id) {
                    // One that is demoted again below has lost less by now.
                    let again = demoted[at + 1..].iter().filter(|later| *later == id).count();
                    let units = entry.units + again as u8;
                    before.entry(*id).or_insert(units + 1);
                    let charge = |units| entry.curve.charge_bytes(units);
                    purse.free_bytes += charge(units + 1) - charge(units);
                }
            }
            purse.pay(need);
        }
    }

    /// Takes units away, expired or not, until `over_bytes` are free: the budget has shrunk. Demotions go
    /// in the order of [`find_room`](Self::find_room).
    fn shed(&mut self, mut over_bytes: usize, before: &mut BTreeMap<PartitionId, u8>) {
        for queue in (1..self.queues.len()).rev() {
            while over_bytes > 0
                && let Some(&id) = self.queues[queue].values().next()
                && let Some(entry) = self.entries.get(&id)
            {
                let (units, curve) = (entry.units, &entry.curve);
                let freed = curve.charge_bytes(units) - curve.charge_bytes(units - 1);
                over_bytes = over_bytes.saturating_sub(freed);
                before.entry(id).or_insert(units);
                self.set_units(id, units - 1);
            }
        }
    }
}

impl Allocator for MultiQueue {
    fn decide(&mut self, offers: &[Offer], room: &Room) -> Moves {
        let mut purse = Purse { free_bytes: room.free_bytes(), load_bytes: room.load_bytes };
        // Units before this step of all partitions that it touches.
        let mut before: BTreeMap<PartitionId, u8> =
            offers.iter().map(|offer| (offer.id, offer.units)).collect();
        for offer in offers {
            self.take_in(offer, room, &mut purse);
        }
        for offer in offers {
            self.go_through(offer, room, &mut purse, &mut before);
        }
        self.shed(room.used_bytes.saturating_sub(room.budget_bytes), &mut before);
        let mut moves = Moves::default();
        for (id, before) in before {
            let after = self.units(id).unwrap_or(before);
            match after.cmp(&before) {
                Ordering::Less => moves.drops.push((id, after)),
                Ordering::Equal => {}
                Ordering::Greater => moves.loads.push((id, after)),
            }
        }
        moves
    }

    fn forget(&mut self, id: PartitionId) {
        self.remove(id);
    }

    fn lambda(&self) -> f64 {
        0.0
    }

    fn wanted_bytes(&self) -> usize {
        let all = self.entries.values();
        all.map(|entry| entry.curve.charge_bytes(entry.curve.units())).sum()
    }
}

#[cfg(test)]
mod tests;
