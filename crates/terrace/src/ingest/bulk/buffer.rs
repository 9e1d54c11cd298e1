//! The buffer of a bulk load: entries in the order in which they were given, sorted when it is full.

use super::{Entry, Sorted};
use crate::error::{Error, Result};
use terrace_base::ValueKind;

/// An entry in the buffer; its key lies at `start`, its value behind it.
#[derive(Clone, Copy)]
struct Slot {
    /// The first bytes of the key, which decide most comparisons.
    head: u64,
    start: usize,
    key_len: u32,
    value_len: u32,
    kind: ValueKind,
}

const SLOT_BYTES: usize = size_of::<Slot>();

/// The default takes nothing.
#[derive(Default)]
pub(super) struct SortBuffer {
    limit_bytes: usize,
    bytes: Vec<u8>,
    slots: Vec<Slot>,
}

impl SortBuffer {
    /// A buffer that is full at `limit_bytes`, bytes and slots together. Both lists can take all of it from the start,
    /// so that none is copied when it grows; the system gives memory only for what is used.
    ///
    /// # Errors
    /// The system does not promise as much.
    pub fn new(limit_bytes: usize) -> Result<Self> {
        let (mut bytes, mut slots) = (Vec::new(), Vec::new());
        let reserved = bytes
            .try_reserve_exact(limit_bytes)
            .and_then(|()| slots.try_reserve_exact(limit_bytes / SLOT_BYTES));
        if reserved.is_err() {
            let text = format!("memory_bytes is {limit_bytes}; the system does not give as much");
            return Err(Error::InvalidArgument(text));
        }
        Ok(Self { limit_bytes, bytes, slots })
    }

    pub fn used_bytes(&self) -> usize {
        self.bytes.len() + self.slots.len() * SLOT_BYTES
    }

    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Whether an entry of `bytes` fits.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.used_bytes() + SLOT_BYTES + bytes <= self.limit_bytes
    }

    /// Takes an entry, also one that does not fit.
    pub fn push(&mut self, key: &[u8], kind: ValueKind, prefix: &[u8], value: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(prefix);
        self.bytes.extend_from_slice(value);
        if self.bytes.len() == start {
            // The next one has another place.
            self.bytes.push(0);
        }
        // Keys and values have limits far below that.
        let (key_len, value_len) = (key.len() as u32, (prefix.len() + value.len()) as u32);
        self.slots.push(Slot { head: head(key), start, key_len, value_len, kind });
    }

    /// The entries in the order of their keys; of those with the same key the last one.
    pub fn sorted(&mut self) -> SortedBuffer<'_> {
        let Self { bytes, slots, .. } = self;
        let key = |slot: &Slot| &bytes[slot.start..slot.start + slot.key_len as usize];
        // Where keys are equal, the place says which came first.
        slots.sort_unstable_by(|a, b| {
            a.head.cmp(&b.head).then_with(|| key(a).cmp(key(b))).then(a.start.cmp(&b.start))
        });
        SortedBuffer { bytes, slots, at: 0 }
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
        self.slots.clear();
        // One that was too large for it.
        self.bytes.shrink_to(self.limit_bytes);
    }
}

/// The first eight bytes of a key as a number that compares as they do.
fn head(key: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let len = key.len().min(8);
    bytes[..len].copy_from_slice(&key[..len]);
    u64::from_be_bytes(bytes)
}

/// A sorted buffer, from its smallest key on.
pub(super) struct SortedBuffer<'a> {
    bytes: &'a [u8],
    slots: &'a [Slot],
    at: usize,
}

impl<'a> SortedBuffer<'a> {
    fn entry(&self, at: usize) -> Option<Entry<'a>> {
        let slot = self.slots.get(at)?;
        let (key, rest) = self.bytes[slot.start..].split_at(slot.key_len as usize);
        Some(Entry { key, kind: slot.kind, value: &rest[..slot.value_len as usize] })
    }
}

impl Sorted for SortedBuffer<'_> {
    fn next(&mut self) -> Result<Option<Entry<'_>>> {
        while let (Some(entry), Some(after)) = (self.entry(self.at), self.entry(self.at + 1))
            && entry.key == after.key
        {
            self.at += 1;
        }
        let entry = self.entry(self.at);
        self.at += 1;
        Ok(entry)
    }
}
