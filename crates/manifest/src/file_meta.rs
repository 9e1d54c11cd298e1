//! What is known of an SST without opening it.

use std::ops::Bound;
use terrace_base::{FileNumber, SeqNo, ValueRef};

/// One live SST.
///
/// Its keys lie in `smallest..=largest`, or in `smallest..largest` if `largest_exclusive`.
/// `Default` is only there for building one field by field in tests.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FileMeta {
    /// File number; unique in the store.
    pub number: FileNumber,
    /// Length of the file.
    pub size_bytes: u64,
    /// Smallest user key, starts of range tombstones included.
    pub smallest: Vec<u8>,
    /// Largest user key, or the end of the last range tombstone.
    pub largest: Vec<u8>,
    /// Whether `largest` comes from a range tombstone's end and is itself not in the file.
    pub largest_exclusive: bool,
    /// Oldest sequence number.
    pub smallest_seqno: SeqNo,
    /// Newest sequence number.
    pub largest_seqno: SeqNo,
    /// Point entries, tombstones included.
    pub entry_count: u64,
    /// Point tombstones among the entries.
    pub tombstone_count: u64,
    /// Range tombstone fragments.
    pub range_tombstone_count: u64,
    /// Keys and values before compression.
    pub raw_bytes: u64,
    /// Wall-clock time at which the file was made.
    pub created_ms: u64,
    /// Wall-clock time from which at least 30 % of its bytes will have expired.
    pub ttl_due_ms: Option<u64>,
    /// The value segments that its entries refer to, ascending.
    pub value_refs: Vec<ValueRef>,
}

impl FileMeta {
    /// What the file says of itself too, by which another file under its number is distinguished from it:
    /// entries, tombstones, range tombstones, bytes, and when it was made.
    pub fn marks(&self) -> [u64; 5] {
        [
            self.entry_count,
            self.tombstone_count,
            self.range_tombstone_count,
            self.raw_bytes,
            self.created_ms,
        ]
    }

    /// All of what sums over files are made of, in one sum.
    pub(crate) fn total(&self) -> u64 {
        let [entries, tombstones, range_tombstones, raw_bytes, _] = self.marks();
        let counts = [entries, tombstones, range_tombstones, raw_bytes, self.size_bytes];
        let referred = self.value_refs.iter().map(|reference| reference.bytes);
        counts.into_iter().chain(referred).fold(0, u64::saturating_add)
    }

    /// Whether the file may hold `key`.
    #[inline]
    pub fn contains(&self, key: &[u8]) -> bool {
        self.smallest.as_slice() <= key && !self.ends_before(key)
    }

    /// Whether every key of the file is below `key`.
    #[inline]
    pub fn ends_before(&self, key: &[u8]) -> bool {
        let largest = self.largest.as_slice();
        largest < key || (self.largest_exclusive && largest == key)
    }

    /// Whether every key of the file is above `key`.
    #[inline]
    pub fn starts_after(&self, key: &[u8]) -> bool {
        self.smallest.as_slice() > key
    }

    /// Whether every key of this file is below every key of `next`.
    pub fn precedes(&self, next: &FileMeta) -> bool {
        self.ends_before(&next.smallest)
    }

    /// Whether the file may hold a key between the bounds.
    pub fn overlaps(&self, start: Bound<&[u8]>, end: Bound<&[u8]>) -> bool {
        !self.ends_before_bound(start) && !self.starts_after_bound(end)
    }

    /// Whether every key of the file is below a range that starts at `start`.
    pub fn ends_before_bound(&self, start: Bound<&[u8]>) -> bool {
        match start {
            Bound::Included(key) => self.ends_before(key),
            Bound::Excluded(key) => self.largest.as_slice() <= key,
            Bound::Unbounded => false,
        }
    }

    /// Whether every key of the file is above a range that ends at `end`.
    pub fn starts_after_bound(&self, end: Bound<&[u8]>) -> bool {
        match end {
            Bound::Included(key) => self.starts_after(key),
            Bound::Excluded(key) => self.smallest.as_slice() >= key,
            Bound::Unbounded => false,
        }
    }

    /// The largest key as the bound of a range that ends where the file does.
    pub fn end_bound(&self) -> Bound<&[u8]> {
        if self.largest_exclusive {
            Bound::Excluded(&self.largest)
        } else {
            Bound::Included(&self.largest)
        }
    }

    /// The smallest key as the bound of a range that starts where the file does.
    pub fn start_bound(&self) -> Bound<&[u8]> {
        Bound::Included(&self.smallest)
    }
}
