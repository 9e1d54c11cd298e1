//! Filter partitions: the filter of one contiguous key range of an SST.
//!
//! The payload is what `terrace_filter::build` made, nothing else; which kind it is and which
//! keys it covers stands in the top-level index. Never compressed, so that it is used from the
//! very buffer it was read into. A cut never falls between versions of one user key, and knows
//! nothing of the cuts between index partitions.

use crate::stored::Checked;
use std::ops::Range;
use terrace_base::checksum::hash_key;
use terrace_base::key::shortest_separator;
use terrace_filter::FilterKind;
use terrace_vfs::Buf;

/// Filters come in multiples of this many bytes.
const FILTER_STEP_BYTES: usize = 64;

/// The kind that is written.
const WRITTEN_KIND: FilterKind = FilterKind::BlockedBloom;

/// A filter partition in memory.
#[derive(Debug)]
pub(crate) struct FilterPartition {
    buf: Buf,
    kind: FilterKind,
}

impl FilterPartition {
    pub fn load(buf: Buf, kind: FilterKind) -> Checked<Self> {
        match buf.is_empty() || !buf.len().is_multiple_of(FILTER_STEP_BYTES) {
            true => Err("impossible filter length"),
            false => Ok(Self { buf, kind }),
        }
    }

    #[inline]
    pub fn may_contain(&self, hash: u64) -> bool {
        terrace_filter::may_contain(self.kind, &self.buf, hash)
    }

    #[inline]
    pub fn prefetch(&self, hash: u64) {
        terrace_filter::prefetch(self.kind, &self.buf, hash);
    }

    pub fn charge_bytes(&self) -> usize {
        self.buf.charge_bytes()
    }

    pub fn payload_bytes(&self) -> usize {
        self.buf.len()
    }
}

/// A finished filter partition that waits for its place in the file.
#[derive(Debug)]
pub(crate) struct FinishedFilter {
    /// Its bytes in [`FilterWriter::finish`]'s buffer.
    pub range: Range<usize>,
    /// At or above its keys, below those of the next.
    pub separator: Vec<u8>,
    pub key_count: u64,
}

/// Collects hashes and builds a partition whenever it has its size.
pub(crate) struct FilterWriter {
    bits_per_key: f64,
    /// Keys after which a partition is cut.
    most_keys: usize,
    hashes: Vec<u64>,
    built: Vec<u8>,
    finished: Vec<FinishedFilter>,
}

impl FilterWriter {
    /// Partitions of at most `target_bytes` (at least one step), or one whatever its size.
    pub fn new(bits_per_key: f64, target_bytes: Option<usize>) -> Self {
        let most_keys = target_bytes.map_or(usize::MAX, |target| {
            let bytes = (target / FILTER_STEP_BYTES).max(1) * FILTER_STEP_BYTES;
            ((bytes * 8) as f64 / bits_per_key.max(0.01)) as usize
        });
        Self {
            bits_per_key,
            most_keys: most_keys.max(1),
            hashes: Vec::new(),
            built: Vec::new(),
            finished: Vec::new(),
        }
    }

    pub fn kind(&self) -> Option<FilterKind> {
        (self.bits_per_key > 0.0).then_some(WRITTEN_KIND)
    }

    /// Adds a user key that differs from `previous`, the one before it (none for the first).
    pub fn add(&mut self, user_key: &[u8], previous: Option<&[u8]>) {
        if self.bits_per_key <= 0.0 {
            return;
        }
        if self.hashes.len() >= self.most_keys
            && let Some(previous) = previous
        {
            self.cut(shortest_separator(previous, user_key));
        }
        self.hashes.push(hash_key(user_key));
    }

    fn cut(&mut self, separator: Vec<u8>) {
        let start = self.built.len();
        terrace_filter::build(WRITTEN_KIND, &self.hashes, self.bits_per_key, &mut self.built);
        let key_count = self.hashes.len() as u64;
        self.finished.push(FinishedFilter { range: start..self.built.len(), separator, key_count });
        self.hashes.clear();
    }

    /// About the bytes that filters will take so far.
    pub fn estimated_bytes(&self) -> usize {
        self.built.len() + (self.hashes.len() as f64 * self.bits_per_key.max(0.0) / 8.0) as usize
    }

    /// Builds the last partition, which ends with `last_key`; returns all bytes and partitions.
    pub fn finish(mut self, last_key: &[u8]) -> (Vec<u8>, Vec<FinishedFilter>) {
        if !self.hashes.is_empty() {
            self.cut(last_key.to_vec());
        }
        (self.built, self.finished)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_by_size_and_separates_the_key_ranges() {
        let keys: Vec<Vec<u8>> = (0..1000u32).map(|i| format!("{i:05}").into_bytes()).collect();
        let mut writer = FilterWriter::new(10.0, Some(200));
        let mut previous: Option<&[u8]> = None;
        for key in &keys {
            writer.add(key, previous);
            previous = Some(key);
        }
        let (bytes, partitions) = writer.finish(&keys[999]);
        assert_eq!(partitions.len(), 1000usize.div_ceil(192 * 8 / 10));
        assert_eq!(partitions.iter().map(|p| p.key_count).sum::<u64>(), 1000);
        for key in &keys {
            let at = partitions.partition_point(|p| p.separator < *key);
            let filter = Buf::from(&bytes[partitions[at].range.clone()]);
            assert!(filter.len() <= 192);
            let filter = FilterPartition::load(filter, WRITTEN_KIND).unwrap();
            assert!(filter.may_contain(hash_key(key)));
        }
    }

    #[test]
    fn one_partition_without_a_target_and_none_without_bits() {
        for (bits, partitions) in [(10.0, 1), (0.0, 0)] {
            let mut writer = FilterWriter::new(bits, None);
            (0..5000u32).for_each(|i| writer.add(&i.to_be_bytes(), Some(b"")));
            assert_eq!(writer.kind().is_some(), partitions == 1);
            assert_eq!(writer.finish(b"z").1.len(), partitions);
        }
    }

    #[test]
    fn filters_of_impossible_length_are_refused() {
        for len in [0, 1, 63, 65] {
            assert!(FilterPartition::load(Buf::from(&vec![0; len][..]), WRITTEN_KIND).is_err());
        }
    }
}
