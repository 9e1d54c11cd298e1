//! What a value is found by: [`CacheKey`] outside, [`Stored`] inside, which carries what the
//! sweep has to know about an entry without touching its value.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};

/// Where a cached value comes from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CacheKey {
    /// A number no other file of any store of the cache has: [`crate::Cache::next_file_id`].
    pub file: u64,
    /// Offset in that file.
    pub offset: u64,
}

/// A key as the cache keeps it. Equal and hashed as its [`CacheKey`]; the atomics change only
/// under the write lock of the entry's shard.
pub(crate) struct Stored {
    pub(crate) key: CacheKey,
    /// Bytes, at least 1, fixed at insertion.
    pub(crate) charge: u32,
    pub(crate) shard: u16,
    pub(crate) high: bool,
    /// Whether the charge has been entered in the state of the shard.
    pub(crate) entered: AtomicBool,
    /// How often the sweep will still pass over the entry.
    pub(crate) chances: AtomicU8,
}

// An entry (this, a value of two words, links and state) fits a cache line.
const _: () = assert!(size_of::<Stored>() <= 32);

impl Clone for Stored {
    fn clone(&self) -> Self {
        let entered = AtomicBool::new(self.entered.load(Relaxed));
        let chances = AtomicU8::new(self.chances.load(Relaxed));
        Self { entered, chances, ..*self }
    }
}

impl PartialEq for Stored {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for Stored {}

impl Hash for Stored {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key.hash(state);
    }
}

impl Borrow<CacheKey> for Stored {
    #[inline]
    fn borrow(&self) -> &CacheKey {
        &self.key
    }
}

/// Builds [`KeyHasher`]s; unseeded, since file numbers and offsets are not an attacker's choice.
#[derive(Clone)]
pub(crate) struct BuildKeyHasher;

impl BuildHasher for BuildKeyHasher {
    type Hasher = KeyHasher;

    #[inline]
    fn build_hasher(&self) -> KeyHasher {
        KeyHasher(0x243f_6a88_85a3_08d3)
    }
}

/// Two rounds of a folded 64 x 64 -> 128 bit multiplication, one per number of a [`CacheKey`]:
/// every bit of the result depends on every bit of both, as the shard choice (middle bits) and
/// the table inside (upper and lower bits) need.
pub(crate) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    #[inline]
    fn write_u64(&mut self, number: u64) {
        let wide = u128::from(self.0 ^ number) * 0x9e37_79b9_7f4a_7c15_u128;
        self.0 = (wide as u64) ^ ((wide >> 64) as u64);
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_many_files_spread_evenly() {
        for shift in [0, 24, 32, 57] {
            let mut counts = [0u32; 64];
            for file in 0..64 {
                for block in 0..1000 {
                    let key = CacheKey { file, offset: block * 4096 };
                    let hash = BuildKeyHasher.hash_one(key);
                    counts[(hash >> shift) as usize % 64] += 1;
                }
            }
            // 1,000 expected each, standard deviation 32.
            assert!(counts.iter().all(|n| (840..1160).contains(n)), "bits {shift}: {counts:?}");
        }
    }
}
