//! Filter partitions: the filter of one contiguous key range of an SST, in units.
//!
//! ```text
//! stored block: unit 0 │ stored block: unit 1 │ …     as the top-level index lists them
//! ```
//! The payloads of the units are what `terrace_filter` made; what they are and which keys they
//! cover stands in the top-level index. Never compressed. In memory there is any prefix of the
//! units, one after another without their trailers. A cut never falls between versions of one user
//! key, and knows nothing of the cuts between index partitions; with prefix filters it may fall
//! between keys of one prefix, which then is in both partitions.

use crate::block_handle::Checked;
use std::ops::Range;
use terrace_base::checksum::hash_key;
use terrace_base::key::shortest_separator;
use terrace_buf::{Buf, Slice};
use terrace_filter::{FilterBuilder, FilterPolicy, FilterShape};

/// Partitions have at most this many keys whatever their units: what a builder holds in memory
/// stays bounded, and so does the share of keys that one hotness speaks for.
const MAX_KEYS: usize = 1 << 16;

/// Some of the units of a filter partition in memory.
#[derive(Debug)]
pub(crate) struct FilterPartition {
    /// The whole buffer, with its length: that in front of the bytes is a line of memory more.
    bytes: Slice,
    shape: FilterShape,
    units: u8,
}

impl FilterPartition {
    /// The first `units` units of a filter of `shape`, which `buf` holds.
    pub fn load(buf: Buf, shape: FilterShape, units: u8) -> Checked<Self> {
        match units > 0 && units <= shape.unit_count && buf.len() == shape.prefix_bytes(units) {
            true => Ok(Self { bytes: buf.into(), shape, units }),
            false => Err("impossible filter length"),
        }
    }

    #[inline]
    pub fn may_contain(&self, hash: u64) -> bool {
        self.shape.may_contain(&self.bytes, self.units, hash)
    }

    #[inline]
    pub fn prefetch(&self, hash: u64) {
        self.shape.prefetch(&self.bytes, hash);
    }

    /// Asks for what [`Self::may_contain`] reads after what [`Self::prefetch`] asks for.
    #[inline]
    pub fn prefetch_rest(&self, hash: u64) {
        self.shape.prefetch_rest(&self.bytes, hash);
    }

    pub fn charge_bytes(&self) -> usize {
        self.bytes.pinned_bytes()
    }

    /// The same in another place, if it is to be moved ([`Buf::packed`]).
    pub fn packed(&self) -> Option<Self> {
        Some(Self { bytes: self.bytes.packed()?, ..*self })
    }

    /// The units' bytes, one unit after another.
    pub fn payload(&self) -> &[u8] {
        &self.bytes
    }

    /// How many of the units there are.
    pub fn units(&self) -> u8 {
        self.units
    }
}

/// A finished filter partition that waits for its place in the file.
#[derive(Debug)]
pub(crate) struct FinishedFilter {
    /// Its bytes in [`FilterWriter::finish`]'s buffer.
    pub range: Range<usize>,
    pub shape: FilterShape,
    /// At or above its keys, below those of the next.
    pub separator: Vec<u8>,
    /// Hashes it was built from.
    pub key_count: u64,
}

/// Collects hashes and builds a partition whenever it has its size.
pub(crate) struct FilterWriter {
    builder: FilterBuilder,
    /// Length of the key prefixes to be added; 0 for none.
    prefix_len: usize,
    /// Hashes after which a partition is cut.
    most_hashes: usize,
    hashes: Vec<u64>,
    built: Vec<u8>,
    finished: Vec<FinishedFilter>,
}

impl FilterWriter {
    /// Partitions whose largest unit has at most `unit_bytes`, or one partition whatever its size.
    pub fn new(policy: FilterPolicy, prefix_len: usize, unit_bytes: Option<usize>) -> Self {
        let most_hashes = unit_bytes.map_or(usize::MAX, |bytes| {
            // A key with its prefix is two hashes.
            policy.largest_unit_keys(bytes).clamp(2, MAX_KEYS)
        });
        Self {
            builder: FilterBuilder::new(policy),
            prefix_len,
            most_hashes,
            hashes: Vec::new(),
            built: Vec::new(),
            finished: Vec::new(),
        }
    }

    /// Adds a user key that differs from `previous`, the one before it (none for the first).
    pub fn add(&mut self, user_key: &[u8], previous: Option<&[u8]>) {
        if self.builder.kind().is_none() {
            return;
        }
        if self.hashes.len() + usize::from(self.prefix_len > 0) >= self.most_hashes
            && let Some(previous) = previous
        {
            self.cut(shortest_separator(previous, user_key));
        }
        self.hashes.push(hash_key(user_key));
        if let Some(prefix) = self.prefix_of(user_key)
            && (self.hashes.len() == 1
                || previous.and_then(|key| self.prefix_of(key)) != Some(prefix))
        {
            self.hashes.push(hash_prefix(prefix));
        }
    }

    fn prefix_of<'a>(&self, user_key: &'a [u8]) -> Option<&'a [u8]> {
        match self.prefix_len {
            0 => None,
            len => user_key.get(..len),
        }
    }

    fn cut(&mut self, separator: Vec<u8>) {
        let start = self.built.len();
        let shape = self.builder.build(&self.hashes, &mut self.built);
        let range = start..self.built.len();
        let key_count = self.hashes.len() as u64;
        self.finished.push(FinishedFilter { range, shape, separator, key_count });
        self.hashes.clear();
    }

    /// About the bytes that filters will take so far.
    pub fn estimated_bytes(&self) -> usize {
        let bits = self.builder.policy().bits_per_key();
        self.built.len() + (self.hashes.len() as f64 * bits / 8.0) as usize
    }

    /// Memory held until the file ends, without the separators.
    pub fn memory_bytes(&self) -> usize {
        self.built.capacity() + self.hashes.capacity() * size_of::<u64>()
    }

    /// Builds the last partition, which ends with `last_key`; returns all bytes and partitions.
    pub fn finish(mut self, last_key: &[u8]) -> (Vec<u8>, Vec<FinishedFilter>) {
        if !self.hashes.is_empty() {
            self.cut(last_key.to_vec());
        }
        (self.built, self.finished)
    }
}

/// The hash under which a key prefix stands in a filter: never that of a whole key, so that a key
/// as long as a prefix says nothing of other keys with this prefix.
pub(crate) fn hash_prefix(prefix: &[u8]) -> u64 {
    !hash_key(prefix).rotate_left(32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> Vec<Vec<u8>> {
        (0..1000u32).map(|i| format!("{i:05}").into_bytes()).collect()
    }

    fn written(
        policy: &str,
        prefix_len: usize,
        unit: Option<usize>,
    ) -> (Vec<u8>, Vec<FinishedFilter>) {
        let mut writer = FilterWriter::new(policy.parse().unwrap(), prefix_len, unit);
        let keys = keys();
        let mut previous: Option<&[u8]> = None;
        for key in &keys {
            writer.add(key, previous);
            previous = Some(key);
        }
        writer.finish(&keys[999])
    }

    #[test]
    fn cuts_by_the_size_of_a_unit_and_separates_the_key_ranges() {
        for policy in ["blocked:10", "bloom:4x6", "paired:8x2", "ribbon:12"] {
            let (bytes, partitions) = written(policy, 0, Some(256));
            assert!(partitions.len() > 1, "{policy}");
            assert_eq!(partitions.iter().map(|p| p.key_count).sum::<u64>(), 1000);
            for key in keys() {
                let at = partitions.partition_point(|p| p.separator < key);
                let part = &partitions[at];
                let bytes = &bytes[part.range.clone()];
                assert_eq!(bytes.len(), part.shape.prefix_bytes(part.shape.unit_count));
                assert!(
                    part.shape.first_unit_bytes <= 256 && part.shape.unit_bytes <= 256,
                    "{policy}"
                );
                for units in 1..=part.shape.unit_count {
                    let loaded = Buf::from(&bytes[..part.shape.prefix_bytes(units)]);
                    let filter = FilterPartition::load(loaded, part.shape, units).unwrap();
                    assert!(filter.may_contain(hash_key(&key)));
                }
            }
        }
    }

    #[test]
    fn every_partition_knows_the_prefixes_of_its_keys() {
        let (bytes, partitions) = written("blocked:20", 3, Some(512));
        let holds = |part: &FinishedFilter, prefix: &[u8]| {
            let bytes = &bytes[part.range.clone()];
            part.shape.may_contain(bytes, part.shape.unit_count, hash_prefix(prefix))
        };
        assert_eq!(
            partitions.iter().map(|p| p.key_count).sum::<u64>() as usize,
            1000 + 10 + partitions.len() - 1
        );
        for key in keys() {
            let at = partitions.partition_point(|p| p.separator < key);
            assert!(holds(&partitions[at], &key[..3]));
        }
        let absent = (0..1000u32).filter(|n| holds(&partitions[0], &n.to_be_bytes()[1..]));
        assert!(absent.count() < 20);
    }

    #[test]
    fn one_partition_without_a_target_and_none_without_a_policy() {
        assert_eq!(written("blocked:10", 0, None).1.len(), 1);
        assert_eq!(written("none", 3, None).1.len(), 0);
    }

    #[test]
    fn filters_of_impossible_length_are_refused() {
        let (bytes, partitions) = written("ribbon:5", 0, None);
        let shape = partitions[0].shape;
        for len in [0, 1, bytes.len() - 1] {
            for units in 0..=shape.unit_count + 1 {
                assert!(FilterPartition::load(Buf::from(&bytes[..len]), shape, units).is_err());
            }
        }
    }
}
