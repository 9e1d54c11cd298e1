//! From a key's hash to its slot: open addressing with linear probing, so that no key is kept twice.
//!
//! The table is at most half full and of a fixed size; removal shifts later entries back (Knuth,
//! TAOCP 3, algorithm R), so there are no tombstones to clean up.

/// An empty place.
const EMPTY: u32 = u32::MAX;

/// The table. Hashes of entries belong to the caller, who passes a way to look them up.
#[derive(Debug, Clone)]
pub(crate) struct Index {
    /// A power of two of slots or [`EMPTY`].
    places: Vec<u32>,
}

impl Index {
    /// For at most `count` entries.
    pub fn new(count: usize) -> Self {
        Self { places: vec![EMPTY; (count.max(1) * 2).next_power_of_two()] }
    }

    fn home(&self, hash: u64) -> usize {
        // The length is a power of two.
        hash as usize & (self.places.len() - 1)
    }

    fn after(&self, place: usize) -> usize {
        (place + 1) & (self.places.len() - 1)
    }

    /// The slot among those with this hash's probes for which `is_it` holds.
    pub fn find(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let mut place = self.home(hash);
        loop {
            match self.places[place] {
                EMPTY => return None,
                slot if is_it(slot) => return Some(slot),
                _ => place = self.after(place),
            }
        }
    }

    /// Adds a slot that is not there.
    pub fn insert(&mut self, hash: u64, slot: u32) {
        let mut place = self.home(hash);
        while self.places[place] != EMPTY {
            place = self.after(place);
        }
        self.places[place] = slot;
    }

    /// Removes a slot that is there.
    pub fn remove(&mut self, hash: u64, slot: u32, hash_of: impl Fn(u32) -> u64) {
        let mut hole = self.home(hash);
        while self.places[hole] != slot {
            if self.places[hole] == EMPTY {
                return;
            }
            hole = self.after(hole);
        }
        let mask = self.places.len() - 1;
        let mut place = self.after(hole);
        while self.places[place] != EMPTY {
            let home = self.home(hash_of(self.places[place]));
            // It may move to the hole unless its home lies behind the hole.
            if place.wrapping_sub(home) & mask >= place.wrapping_sub(hole) & mask {
                self.places[hole] = self.places[place];
                hole = place;
            }
            place = self.after(place);
        }
        self.places[hole] = EMPTY;
    }

    /// Removes everything.
    pub fn clear(&mut self) {
        self.places.fill(EMPTY);
    }
}
