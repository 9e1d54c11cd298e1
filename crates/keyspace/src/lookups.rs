//! How many keys were looked for to read them: the hits and misses of INFO.

use std::ops::AddAssign;

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lookups {
    /// There was something under the key, whatever its type.
    pub hits: u64,
    /// There was nothing.
    pub misses: u64,
}

impl AddAssign for Lookups {
    fn add_assign(&mut self, other: Self) {
        self.hits += other.hits;
        self.misses += other.misses;
    }
}
