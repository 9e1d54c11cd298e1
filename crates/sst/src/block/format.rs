//! The layout of a data block (uncompressed), shared by its writer and its readers.
//!
//! ```text
//! ┌──────────────┬─────────────────┬──────────┬───────────┬───────────────┬─────────────┐
//! │ count u32    │ prefix          │ 0..3     │ heads     │ offsets       │ entries     │
//! │ prefix len u16│ common to all   │ zeros to │ u32 × n   │ u16|u32 × n+1 │             │
//! │ flags u8, 0  │ keys of a block │ 4 bytes  │           │               │             │
//! └──────────────┴─────────────────┴──────────┴───────────┴───────────────┴─────────────┘
//! entry: ┌──────────────────┬──────────────────────┬────────────┬───────┐
//!        │ rest len: varint │ key bytes after      │ trailer u64│ value │
//!        │                  │ prefix and head      │            │       │
//!        └──────────────────┴──────────────────────┴────────────┴───────┘
//! ```
//! *Rest* is a key without the prefix. Its first four bytes are the *head* (big-endian number,
//! zero-padded, stored little-endian) and stand in no other place; the entry holds what follows.
//! Offsets are relative to the first entry; the last one is where the last entry ends. Invariants,
//! all checked by [`parse`]: at least one entry, offsets ascending up to the end of the block,
//! every entry's fields inside it, padding of short heads zero, kinds known, entries in internal order.

use super::search::{HEAD_BYTES, Head};
use crate::block_handle::Checked;
use crate::options::MAX_BLOCK_BYTES;
use std::cmp::Ordering;
use terrace_base::codec::get_varint;
use terrace_base::key::{MAX_KEY_BYTES, pack_trailer, trailer_kind};
use terrace_base::{SeqNo, ValueKind};

/// Bytes of the fixed fields at the front.
pub(crate) const HEADER_BYTES: usize = 8;

/// Offsets are `u32` instead of `u16`.
pub(crate) const FLAG_WIDE: u8 = 1;

/// Every trailer is [`PUT_TRAILER`] and none is stored.
pub(crate) const FLAG_PUTS: u8 = 2;

/// Every trailer is [`HANDLE_TRAILER`] and none is stored.
pub(crate) const FLAG_HANDLES: u8 = 4;

/// Bytes of a stored trailer.
pub(crate) const ENTRY_TRAILER_BYTES: usize = 8;

/// The trailer of an entry that every reader sees: sequence number 0, `Put`.
pub(crate) const PUT_TRAILER: u64 = 1;

/// The same with a separated value: sequence number 0, `PutHandle`.
pub(crate) const HANDLE_TRAILER: u64 = 3;

const _: () = assert!(PUT_TRAILER == ValueKind::Put as u64);
const _: () = assert!(HANDLE_TRAILER == ValueKind::PutHandle as u64);

/// The longest prefix the header can say.
pub(crate) const MAX_PREFIX_BYTES: usize = u16::MAX as usize;

/// The parsed header of a block whose bytes have passed [`parse`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    pub count: u32,
    pub prefix_len: u16,
    pub wide: bool,
    /// The trailer of all entries, if none is stored, else 0: as a sequence number of 0 and a kind, it has one byte.
    pub common_trailer: u8,
}

/// What the flags of a block say of trailers.
#[inline]
fn common_trailer(flags: u8) -> u8 {
    ((flags & FLAG_PUTS) / FLAG_PUTS * PUT_TRAILER as u8)
        | ((flags & FLAG_HANDLES) / FLAG_HANDLES * HANDLE_TRAILER as u8)
}

impl Layout {
    /// Whether no trailer is stored.
    #[inline]
    pub fn is_bare(self) -> bool {
        self.common_trailer != 0
    }

    /// The header of `bytes`, which have passed [`parse`].
    #[inline]
    pub fn checked(bytes: &[u8]) -> Self {
        let Some([a, b, c, d, low, high, flags, _]) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Self { count: 0, prefix_len: 0, wide: false, common_trailer: 0 };
        };
        Self {
            count: u32::from_le_bytes([*a, *b, *c, *d]),
            prefix_len: u16::from_le_bytes([*low, *high]),
            wide: flags & FLAG_WIDE != 0,
            common_trailer: common_trailer(*flags),
        }
    }

    #[inline]
    pub fn heads_at(self) -> usize {
        (HEADER_BYTES + self.prefix_len as usize).next_multiple_of(HEAD_BYTES)
    }

    #[inline]
    pub fn offsets_at(self) -> usize {
        self.heads_at() + self.count as usize * HEAD_BYTES
    }

    /// The heads; as many as there are entries.
    #[inline]
    pub fn heads(self, bytes: &[u8]) -> &[Head] {
        bytes[self.heads_at()..self.offsets_at()].as_chunks().0
    }

    #[inline]
    pub fn offset_bytes(self) -> usize {
        if self.wide { 4 } else { 2 }
    }

    #[inline]
    pub fn entries_at(self) -> usize {
        self.offsets_at() + (self.count as usize + 1) * self.offset_bytes()
    }

    /// Offset `at` (of `0..=count`), relative to the first entry.
    #[inline]
    pub fn offset(self, bytes: &[u8], at: usize) -> usize {
        let from = self.offsets_at() + at * self.offset_bytes();
        let rest = bytes.get(from..).unwrap_or_default();
        if self.wide {
            rest.first_chunk().map_or(0, |chunk| u32::from_le_bytes(*chunk) as usize)
        } else {
            rest.first_chunk().map_or(0, |chunk| u16::from_le_bytes(*chunk) as usize)
        }
    }
}

/// Bytes of a rest that are not in its head.
#[inline]
pub(crate) fn tail_len(rest_len: usize) -> usize {
    rest_len.saturating_sub(HEAD_BYTES)
}

/// Checks a whole block; what is wrong with it otherwise.
pub(crate) fn parse(bytes: &[u8]) -> Checked<Layout> {
    let layout = parse_header(bytes)?;
    let entries = &bytes[layout.entries_at()..];
    let most = MAX_KEY_BYTES - usize::from(layout.prefix_len);
    let heads = layout.heads(bytes);
    let mut start = layout.offset(bytes, 0);
    if start != 0 {
        return Err("the first entry does not start at 0");
    }
    let mut before: Option<Rank<'_>> = None;
    for (at, head) in heads.iter().enumerate() {
        let end = layout.offset(bytes, at + 1);
        let Some(entry) = entries.get(start..end) else {
            return Err("entry offsets are not ascending or pass the end");
        };
        let rank = check_entry(entry, u32::from_le_bytes(*head), layout, most)?;
        // A cursor that seeks past what it has seen would else come back to it again and again.
        if before.is_some_and(|before| !before.precedes(&rank)) {
            return Err("entries are out of order");
        }
        before = Some(rank);
        start = end;
    }
    if start != entries.len() {
        return Err("bytes after the last entry");
    }
    Ok(layout)
}

/// What the place of an entry among those of its block follows from.
#[derive(Clone, Copy)]
struct Rank<'a> {
    head: u32,
    rest_len: usize,
    tail: &'a [u8],
    trailer: u64,
}

impl Rank<'_> {
    /// Whether it comes before `next` in internal order. Most often the heads say so.
    #[inline]
    fn precedes(&self, next: &Self) -> bool {
        self.head < next.head || (self.head == next.head && self.rest_precedes(next))
    }

    /// As [`Self::precedes`], for equal heads.
    fn rest_precedes(&self, next: &Self) -> bool {
        let order = compare_rests((self.rest_len, self.tail), (next.rest_len, next.tail));
        order.then_with(|| next.trailer.cmp(&self.trailer)) == Ordering::Less
    }
}

/// Compares two rests with equal heads, each given by its length and its tail.
///
/// With equal heads, the shorter of two rests of which one is at most four bytes long is a prefix
/// of the other (the padding is zeros), so lengths up to four decide, then the tails.
#[inline]
pub(super) fn compare_rests(left: (usize, &[u8]), right: (usize, &[u8])) -> Ordering {
    let lengths = left.0.min(HEAD_BYTES).cmp(&right.0.min(HEAD_BYTES));
    lengths.then_with(|| left.1.cmp(right.1))
}

fn parse_header(bytes: &[u8]) -> Checked<Layout> {
    let Some([c0, c1, c2, c3, p0, p1, flags, 0]) = bytes.first_chunk::<HEADER_BYTES>() else {
        return Err("block header is cut off or unknown");
    };
    // Both common trailers at once, and flags that are not known.
    if bytes.len() > MAX_BLOCK_BYTES || *flags >= FLAG_PUTS | FLAG_HANDLES {
        return Err("block too long or with unknown flags");
    }
    let layout = Layout {
        count: u32::from_le_bytes([*c0, *c1, *c2, *c3]),
        prefix_len: u16::from_le_bytes([*p0, *p1]),
        wide: flags & FLAG_WIDE != 0,
        common_trailer: common_trailer(*flags),
    };
    // Every entry takes a head, so this also keeps the sums below from overflowing.
    if layout.count == 0 || layout.count as usize > bytes.len() / HEAD_BYTES {
        return Err("impossible entry count");
    }
    if layout.entries_at() > bytes.len() {
        return Err("heads and offsets pass the end of the block");
    }
    Ok(layout)
}

fn check_entry(entry: &[u8], head: u32, layout: Layout, most_rest: usize) -> Checked<Rank<'_>> {
    let Some((rest_len, at)) = get_varint(entry) else { return Err("malformed key length") };
    let rest_len = usize::try_from(rest_len).unwrap_or(usize::MAX);
    if rest_len > most_rest {
        return Err("key over the limit");
    }
    if rest_len < HEAD_BYTES && head & (u32::MAX >> (8 * rest_len)) != 0 {
        return Err("short key with bytes in the padding of its head");
    }
    let trailer_at = at + tail_len(rest_len);
    let Some(tail) = entry.get(at..trailer_at) else {
        return Err("key passes the end of its entry");
    };
    let (trailer, value_at) = if layout.is_bare() {
        (u64::from(layout.common_trailer), trailer_at)
    } else {
        match entry.get(trailer_at..).and_then(<[u8]>::first_chunk) {
            Some(bytes) => (u64::from_le_bytes(*bytes), trailer_at + ENTRY_TRAILER_BYTES),
            None => return Err("trailer passes the end of its entry"),
        }
    };
    check_value(trailer, &entry[value_at..])?;
    Ok(Rank { head, rest_len, tail, trailer })
}

/// Checks that the kind in `trailer` is one of an entry, and `value` one of that kind.
fn check_value(trailer: u64, value: &[u8]) -> Checked<()> {
    match trailer_kind(trailer) {
        Some(ValueKind::Delete | ValueKind::Put | ValueKind::Merge) => Ok(()),
        Some(ValueKind::PutTtl) => match value.len() < terrace_base::key::EXPIRY_BYTES {
            true => Err("expiring entry without an expiry"),
            false => Ok(()),
        },
        Some(ValueKind::Merged) => match value.len() < terrace_base::key::OLDEST_SEQNO_BYTES {
            true => Err("combined operand without its oldest sequence number"),
            false => Ok(()),
        },
        Some(kind @ (ValueKind::PutHandle | ValueKind::PutTtlHandle)) => {
            match terrace_base::ValueHandle::of_entry(kind, value) {
                None => Err("value handle of the wrong length"),
                Some(_) => Ok(()),
            }
        }
        Some(ValueKind::RangeDelete) | None => Err("entry of unknown kind"),
    }
}

/// `trailer`, if a block of which all entries have it stores none, else 0.
pub(crate) fn unstored(trailer: u64) -> u64 {
    debug_assert_eq!(PUT_TRAILER, pack_trailer(SeqNo::ZERO, ValueKind::Put));
    debug_assert_eq!(HANDLE_TRAILER, pack_trailer(SeqNo::ZERO, ValueKind::PutHandle));
    if trailer == PUT_TRAILER || trailer == HANDLE_TRAILER { trailer } else { 0 }
}

/// The flag of blocks of which all entries have `trailer` and store none; 0 if they store theirs.
pub(crate) fn trailer_flag(trailer: u64) -> u8 {
    match unstored(trailer) {
        PUT_TRAILER => FLAG_PUTS,
        HANDLE_TRAILER => FLAG_HANDLES,
        _ => 0,
    }
}
