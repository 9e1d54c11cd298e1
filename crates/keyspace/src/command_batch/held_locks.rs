//! Which locks a batch holds.

use crate::locks::STRIPES;

/// The locks that a batch holds.
pub(super) struct HeldLocks {
    pub bits: Box<[u64; STRIPES / 64]>,
    pub list: Vec<u16>,
}

impl Default for HeldLocks {
    fn default() -> Self {
        Self { bits: Box::new([0; STRIPES / 64]), list: Vec::new() }
    }
}

impl HeldLocks {
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
