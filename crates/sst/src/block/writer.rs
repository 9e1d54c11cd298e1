//! Builds one data block after another without an allocation per entry. Called by the SST writer.

use super::format::{
    ENTRY_TRAILER_BYTES, FLAG_BARE, FLAG_WIDE, HEADER_BYTES, MAX_PREFIX_BYTES, is_bare, tail_len,
};
use super::search::{HEAD_BYTES, head_of};
use terrace_base::codec::put_varint;
use terrace_base::key::common_prefix;

/// Memory kept for the next block; more, left by a huge value, is given back.
const KEEP_BYTES: usize = 1 << 20;

/// Entries of the block being built, as they came: the common prefix, and with it every entry's
/// form, is known only when the block is full.
#[derive(Default)]
pub(crate) struct BlockWriter {
    /// Keys and values, one after another.
    raw: Vec<u8>,
    entries: Vec<RawEnd>,
    /// Length of what all keys share.
    prefix_len: usize,
    key_bytes: usize,
    value_bytes: usize,
    all_bare: bool,
}

#[derive(Clone, Copy)]
struct RawEnd {
    key_end: usize,
    value_end: usize,
    trailer: u64,
}

impl BlockWriter {
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    fn first_key(&self) -> &[u8] {
        self.entries.first().map_or(&[], |first| &self.raw[..first.key_end])
    }

    /// The prefix that would be left with `key` among the keys.
    fn prefix_with(&self, key: &[u8]) -> usize {
        match self.is_empty() {
            true => key.len().min(MAX_PREFIX_BYTES),
            false => {
                let prefix = &self.first_key()[..self.prefix_len];
                if key.starts_with(prefix) { prefix.len() } else { common_prefix(prefix, key) }
            }
        }
    }

    /// About the size of the block (exact but for keys that end inside their head).
    pub fn size_bytes(&self) -> usize {
        self.size_of(self.len(), self.prefix_len, self.key_bytes, self.value_bytes, self.all_bare)
    }

    /// About the size of the block with one more entry.
    pub fn size_with(&self, key: &[u8], trailer: u64, value: &[u8]) -> usize {
        self.size_of(
            self.len() + 1,
            self.prefix_with(key),
            self.key_bytes + key.len(),
            self.value_bytes + value.len(),
            self.all_bare && is_bare(trailer),
        )
    }

    fn size_of(&self, n: usize, prefix: usize, keys: usize, values: usize, bare: bool) -> usize {
        let trailers = if bare { 0 } else { n * ENTRY_TRAILER_BYTES };
        let tails = keys.saturating_sub(n * (prefix + HEAD_BYTES));
        let region = n + tails + trailers + values;
        let offset_bytes = if region > usize::from(u16::MAX) { 4 } else { 2 };
        HEADER_BYTES + prefix + n * HEAD_BYTES + (n + 1) * offset_bytes + region
    }

    /// Appends an entry; the caller keeps internal order.
    pub fn add(&mut self, key: &[u8], trailer: u64, value: &[u8]) {
        self.prefix_len = self.prefix_with(key);
        self.all_bare = (self.all_bare || self.is_empty()) && is_bare(trailer);
        self.key_bytes += key.len();
        self.value_bytes += value.len();
        self.raw.extend_from_slice(key);
        let key_end = self.raw.len();
        self.raw.extend_from_slice(value);
        self.entries.push(RawEnd { key_end, value_end: self.raw.len(), trailer });
    }

    /// Appends the block to `out` and starts the next one.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        let n = self.entries.len();
        let offset_bytes = if self.region_bytes() > usize::from(u16::MAX) { 4 } else { 2 };
        let flags = if offset_bytes == 4 { FLAG_WIDE } else { 0 }
            | if self.all_bare { FLAG_BARE } else { 0 };
        let start = out.len();
        out.extend_from_slice(&(n as u32).to_le_bytes());
        out.extend_from_slice(&(self.prefix_len as u16).to_le_bytes());
        out.extend_from_slice(&[flags, 0]);
        out.extend_from_slice(&self.first_key()[..self.prefix_len]);
        let heads_at = start + (out.len() - start).next_multiple_of(HEAD_BYTES);
        let offsets_at = heads_at + n * HEAD_BYTES;
        let entries_at = offsets_at + (n + 1) * offset_bytes;
        out.resize(entries_at, 0);
        let mut from = 0;
        for (at, entry) in self.entries.iter().enumerate() {
            let rest = &self.raw[from + self.prefix_len..entry.key_end];
            let head_at = heads_at + at * HEAD_BYTES;
            out[head_at..head_at + HEAD_BYTES].copy_from_slice(&head_of(rest).to_le_bytes());
            put_varint(out, rest.len() as u64);
            out.extend_from_slice(&rest[rest.len() - tail_len(rest.len())..]);
            if !self.all_bare {
                out.extend_from_slice(&entry.trailer.to_le_bytes());
            }
            out.extend_from_slice(&self.raw[entry.key_end..entry.value_end]);
            // The number of offset 0 is zero already.
            let offset = ((out.len() - entries_at) as u32).to_le_bytes();
            let offset_at = offsets_at + (at + 1) * offset_bytes;
            out[offset_at..offset_at + offset_bytes].copy_from_slice(&offset[..offset_bytes]);
            from = entry.value_end;
        }
        self.clear();
    }

    /// The exact bytes of all entries.
    fn region_bytes(&self) -> usize {
        let mut from = 0;
        let mut sum = 0;
        for entry in &self.entries {
            let rest_len = entry.key_end - from - self.prefix_len;
            let length_bytes = (rest_len.max(1).ilog2() / 7 + 1) as usize;
            sum += length_bytes + tail_len(rest_len) + entry.value_end - entry.key_end;
            from = entry.value_end;
        }
        sum + if self.all_bare { 0 } else { self.entries.len() * ENTRY_TRAILER_BYTES }
    }

    fn clear(&mut self) {
        self.raw.clear();
        self.raw.shrink_to(KEEP_BYTES);
        self.entries.clear();
        self.prefix_len = 0;
        self.key_bytes = 0;
        self.value_bytes = 0;
        self.all_bare = false;
    }
}
