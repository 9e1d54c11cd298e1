//! Terrace's filters outside of any store: built from keys, asked for keys, hashing included. (Inside a
//! store a key is hashed once per lookup, however many filters are asked; what that costs is measured
//! apart.)

use crate::filter::FilterSpec;
use std::time::{Duration, Instant};
use terrace_base::checksum::hash_key;
use terrace_filter::{FilterBuilder, FilterShape};

/// Bytes of a cache line; Terrace's filters begin at one.
const LINE_BYTES: usize = 64;

/// Keys of one length, one after another.
#[derive(Debug, Clone, Copy)]
pub struct Keys<'a> {
    /// All their bytes.
    pub bytes: &'a [u8],
    /// Bytes of each.
    pub key_size: usize,
}

impl<'a> Keys<'a> {
    /// One after another.
    pub fn iter(self) -> std::slice::ChunksExact<'a, u8> {
        self.bytes.chunks_exact(self.key_size)
    }

    /// How many there are.
    pub fn count(self) -> usize {
        self.bytes.len() / self.key_size
    }
}

/// Terrace's filters, whole: all units loaded.
pub struct TerraceFilters {
    builder: FilterBuilder,
    hashes: Vec<u64>,
    bytes: Vec<u8>,
}

/// A filter in memory that begins at a cache line, as in the store.
pub struct TerraceFilter {
    shape: FilterShape,
    key_count: u64,
    buffer: Vec<u8>,
    start: usize,
}

impl TerraceFilters {
    /// Filters as `spec` says.
    pub fn new(spec: FilterSpec) -> Self {
        Self { builder: FilterBuilder::new(spec.0), hashes: Vec::new(), bytes: Vec::new() }
    }
}

impl TerraceFilter {
    fn new(shape: FilterShape, key_count: u64, bytes: &[u8]) -> Self {
        let mut buffer = vec![0; bytes.len() + LINE_BYTES];
        let start = buffer.as_ptr().align_offset(LINE_BYTES).min(LINE_BYTES);
        buffer[start..start + bytes.len()].copy_from_slice(bytes);
        buffer.truncate(start + bytes.len());
        Self { shape, key_count, buffer, start }
    }

    fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..]
    }
}

impl TerraceFilters {
    /// The filter of `keys`, and how long it took from keys to bytes.
    pub fn build(&mut self, keys: Keys<'_>) -> (TerraceFilter, Duration) {
        let start = Instant::now();
        self.hashes.clear();
        self.hashes.extend(keys.iter().map(hash_key));
        self.bytes.clear();
        let shape = self.builder.build(&self.hashes, &mut self.bytes);
        let duration = start.elapsed();
        (TerraceFilter::new(shape, keys.count() as u64, &self.bytes), duration)
    }

    /// The same filter in memory of its own.
    pub fn copy(&self, filter: &TerraceFilter) -> TerraceFilter {
        TerraceFilter::new(filter.shape, filter.key_count, filter.bytes())
    }

    /// Bytes of the filter.
    pub fn len(&self, filter: &TerraceFilter) -> usize {
        filter.bytes().len()
    }

    /// Whether the key may be among those the filter was built from.
    #[inline]
    pub fn may_contain(&self, filter: &TerraceFilter, key: &[u8]) -> bool {
        filter.shape.may_contain(filter.bytes(), filter.shape.unit_count, hash_key(key))
    }

    /// The false positive rate to expect.
    pub fn model_fpr(&self, filter: &TerraceFilter) -> f64 {
        filter.shape.expected_fpr(filter.shape.unit_count, filter.key_count)
    }

    /// The key's hash.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> u64 {
        hash_key(key)
    }

    /// What is built.
    pub fn describe(&self) -> String {
        format!("filter={}", self.builder.policy())
    }
}
