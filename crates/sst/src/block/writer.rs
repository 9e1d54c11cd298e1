//! Builds one data block after another without an allocation per entry. Called by the SST writer.

use super::format::{
    ENTRY_TRAILER_BYTES, FLAG_WIDE, HEADER_BYTES, MAX_PREFIX_BYTES, tail_len, trailer_flag,
    unstored,
};
use super::search::{HEAD_BYTES, head_of};
use std::cell::Cell;
use terrace_base::codec::put_varint;
use terrace_base::key::common_prefix;

/// Memory kept for the next block; more, left by a huge value, is given back.
const KEEP_BYTES: usize = 1 << 20;

/// Rests from this length on have a length of several bytes.
const MAX_ONE_BYTE_LEN: usize = 128;

/// What an estimate leaves out per entry at most: a head, two bytes of a length, and two of an offset, which
/// there is once more than entries.
const MAX_UNCOUNTED_BYTES: usize = HEAD_BYTES + 2 + 2 * 2;

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
    /// The trailer of all entries, if none is to be stored, else 0.
    common_trailer: u64,
    shortest_key: usize,
    longest_key: usize,
    /// What was last counted exactly.
    counted: Cell<Counted>,
}

/// The exact bytes of the first entries of a block.
#[derive(Clone, Copy, Default)]
struct Counted {
    /// How many, and where the last of them ends.
    entries: usize,
    end: usize,
    /// In what form.
    prefix_len: usize,
    bare: bool,
    bytes: usize,
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

    /// Whether no trailer is stored.
    fn is_bare(&self) -> bool {
        self.common_trailer != 0
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

    /// About the size of the block: exact but for rests that end inside their heads and those whose length takes
    /// several bytes, and never more than it is.
    pub fn size_bytes(&self) -> usize {
        self.size_of(self.len(), self.prefix_len, self.key_bytes, self.value_bytes, self.is_bare())
    }

    /// Whether the block, which is not empty, would take more than `target` bytes with one more entry.
    pub fn exceeds(&self, target: usize, key: &[u8], trailer: u64, value: &[u8]) -> bool {
        let prefix_len = self.prefix_with(key);
        let bare = self.is_bare() && trailer == self.common_trailer;
        let (keys, values) = (self.key_bytes + key.len(), self.value_bytes + value.len());
        let n = self.len() + 1;
        let about = self.size_of(n, prefix_len, keys, values, bare);
        let shortest = self.shortest_key.min(key.len()) - prefix_len;
        let longest = self.longest_key.max(key.len()) - prefix_len;
        let is_exact = shortest >= HEAD_BYTES && longest < MAX_ONE_BYTE_LEN;
        if is_exact || about > target || about + n * MAX_UNCOUNTED_BYTES <= target {
            return about > target;
        }
        let region = self.region_bytes(prefix_len, bare)
            + entry_bytes(key.len() - prefix_len, value.len(), bare);
        block_bytes(n, prefix_len, region) > target
    }

    fn size_of(&self, n: usize, prefix: usize, keys: usize, values: usize, bare: bool) -> usize {
        let trailers = if bare { 0 } else { n * ENTRY_TRAILER_BYTES };
        let tails = keys.saturating_sub(n * (prefix + HEAD_BYTES));
        block_bytes(n, prefix, n + tails + trailers + values)
    }

    /// Appends an entry; the caller keeps internal order.
    pub fn add(&mut self, key: &[u8], trailer: u64, value: &[u8]) {
        self.prefix_len = self.prefix_with(key);
        self.common_trailer = match self.is_empty() {
            true => unstored(trailer),
            false if trailer == self.common_trailer => trailer,
            false => 0,
        };
        self.shortest_key =
            if self.is_empty() { key.len() } else { self.shortest_key.min(key.len()) };
        self.longest_key = self.longest_key.max(key.len());
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
        let offset_bytes = offset_bytes(self.region_bytes(self.prefix_len, self.is_bare()));
        let flags =
            if offset_bytes == 4 { FLAG_WIDE } else { 0 } | trailer_flag(self.common_trailer);
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
            if !self.is_bare() {
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

    /// The exact bytes of all entries, with a prefix of this length. What was counted in this form is not counted
    /// again: all come in another form at most once for every byte of a key.
    fn region_bytes(&self, prefix_len: usize, bare: bool) -> usize {
        let known = self.counted.get();
        let mut counted = match (known.prefix_len, known.bare) == (prefix_len, bare) {
            true => known,
            false => Counted { prefix_len, bare, ..Counted::default() },
        };
        for entry in &self.entries[counted.entries..] {
            let rest_len = entry.key_end - counted.end - prefix_len;
            counted.bytes += entry_bytes(rest_len, entry.value_end - entry.key_end, bare);
            counted.end = entry.value_end;
        }
        #[cfg(test)]
        VISITS.set(VISITS.get() + self.entries.len() - counted.entries);
        counted.entries = self.entries.len();
        self.counted.set(counted);
        counted.bytes
    }

    fn clear(&mut self) {
        self.raw.clear();
        self.raw.shrink_to(KEEP_BYTES);
        self.entries.clear();
        self.prefix_len = 0;
        self.key_bytes = 0;
        self.value_bytes = 0;
        self.common_trailer = 0;
        self.shortest_key = 0;
        self.longest_key = 0;
        self.counted.set(Counted::default());
    }
}

#[cfg(test)]
thread_local! {
    /// Entries that were counted exactly.
    pub(super) static VISITS: Cell<usize> = const { Cell::new(0) };
}

/// The exact bytes of an entry.
fn entry_bytes(rest_len: usize, value_len: usize, bare: bool) -> usize {
    let length_bytes = (rest_len.max(1).ilog2() / 7 + 1) as usize;
    let trailer_bytes = if bare { 0 } else { ENTRY_TRAILER_BYTES };
    length_bytes + tail_len(rest_len) + trailer_bytes + value_len
}

fn offset_bytes(region: usize) -> usize {
    if region > usize::from(u16::MAX) { 4 } else { 2 }
}

/// The bytes of a block of `n` entries that take `region` bytes.
fn block_bytes(n: usize, prefix_len: usize, region: usize) -> usize {
    let heads_at = (HEADER_BYTES + prefix_len).next_multiple_of(HEAD_BYTES);
    heads_at + n * HEAD_BYTES + (n + 1) * offset_bytes(region) + region
}
