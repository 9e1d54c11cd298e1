//! Which locks a turn holds.

use crate::locks::STRIPES;

/// The locks that a turn holds.
pub(super) struct Held {
    pub bits: Box<[u64; STRIPES / 64]>,
    pub list: Vec<u16>,
}

impl Default for Held {
    fn default() -> Self {
        Self { bits: Box::new([0; STRIPES / 64]), list: Vec::new() }
    }
}

impl Held {
    pub fn has(&self, stripe: u16) -> bool {
        self.bits[usize::from(stripe) / 64] >> (stripe % 64) & 1 == 1
    }

    pub fn add(&mut self, stripe: u16) {
        self.bits[usize::from(stripe) / 64] |= 1 << (stripe % 64);
        self.list.push(stripe);
    }

    pub fn forget(&mut self, stripe: u16) {
        self.bits[usize::from(stripe) / 64] &= !(1 << (stripe % 64));
    }
}
