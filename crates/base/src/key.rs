//! User keys, sequence numbers, and the trailer that turns one into an internal key.
//!
//! An internal key is a user key plus a 64-bit trailer: the sequence number in the upper 56 bits
//! and the kind in the lower 8. Internal order is user key ascending (plain byte order), then
//! trailer *descending*, so that the newest version of a key comes first.

use crate::number::{MAX_SEQNO, SeqNo};
use std::cmp::Ordering;

/// The longest user key, in bytes (64 KiB).
pub const MAX_KEY_BYTES: usize = 64 << 10;

/// The longest value, in bytes (1 GiB).
pub const MAX_VALUE_BYTES: usize = 1 << 30;

/// Bytes of the expiry that precedes the value of a [`ValueKind::PutTtl`] entry: the wall-clock
/// time in Unix milliseconds, little-endian, from which the entry is absent.
pub const EXPIRY_BYTES: usize = 8;

/// Bytes of the sequence number that precedes the operand of a [`ValueKind::Merged`] entry, little-endian.
pub const OLDEST_SEQNO_BYTES: usize = 8;

/// What an entry means. The numbers are stored on disk and never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum ValueKind {
    /// The key is absent from this version on (a tombstone).
    Delete = 0,
    /// The value stands inline.
    Put = 1,
    /// As `Put`, but the value is preceded by its expiry ([`EXPIRY_BYTES`]).
    PutTtl = 2,
    /// As `Put`, but the value lies in a segment of the value log and a
    /// [`ValueHandle`](crate::ValueHandle) stands in its place.
    PutHandle = 3,
    /// As `PutHandle`, with an expiry before the handle.
    PutTtlHandle = 4,
    /// An operand for the column family's merge operator: the key's value is what the operator makes of
    /// the next older version and this.
    Merge = 5,
    /// Several operands in a row that the operator has made one of, preceded by the sequence number
    /// of the oldest of them ([`OLDEST_SEQNO_BYTES`]); the entry's own is that of the newest. Only in SSTs.
    Merged = 6,
    /// A range tombstone; only in batches and log records, never among point entries.
    RangeDelete = 15,
}

impl ValueKind {
    /// The kind stored as `byte`, or `None` for a number this version does not know.
    pub fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::Delete),
            1 => Some(Self::Put),
            2 => Some(Self::PutTtl),
            3 => Some(Self::PutHandle),
            4 => Some(Self::PutTtlHandle),
            5 => Some(Self::Merge),
            6 => Some(Self::Merged),
            15 => Some(Self::RangeDelete),
            _ => None,
        }
    }
}

impl ValueKind {
    /// Whether the stored value starts with an expiry.
    #[inline]
    pub fn expires(self) -> bool {
        matches!(self, Self::PutTtl | Self::PutTtlHandle)
    }

    /// Whether it is an operand of a merge: what it means depends on the versions below it.
    #[inline]
    pub fn is_operand(self) -> bool {
        matches!(self, Self::Merge | Self::Merged)
    }

    /// Whether the value lies in the value log.
    #[inline]
    pub fn is_handle(self) -> bool {
        matches!(self, Self::PutHandle | Self::PutTtlHandle)
    }
}

/// The trailer of an entry.
#[inline]
pub fn pack_trailer(seqno: SeqNo, kind: ValueKind) -> u64 {
    debug_assert!(seqno <= MAX_SEQNO);
    (seqno.get() << 8) | kind as u64
}

/// The trailer at which a read at `seqno` starts: at or before every entry it may see.
#[inline]
pub fn seek_trailer(seqno: SeqNo) -> u64 {
    (seqno.get() << 8) | 0xff
}

/// The sequence number in a trailer.
#[inline]
pub fn trailer_seqno(trailer: u64) -> SeqNo {
    SeqNo::new(trailer >> 8)
}

/// The kind in a trailer, or `None` if the byte names no known kind.
#[inline]
pub fn trailer_kind(trailer: u64) -> Option<ValueKind> {
    ValueKind::from_byte(trailer as u8)
}

/// Internal order: user key ascending, then trailer descending.
#[inline]
pub fn compare_internal(a_key: &[u8], a_trailer: u64, b_key: &[u8], b_trailer: u64) -> Ordering {
    a_key.cmp(b_key).then_with(|| b_trailer.cmp(&a_trailer))
}

/// The first eight bytes of `key` as a big-endian number, short keys padded with zeros.
/// `a <= b` implies `head(a) <= head(b)`; equal heads say nothing.
#[inline]
pub fn head(key: &[u8]) -> u64 {
    match key.first_chunk::<8>() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0u8; 8];
            bytes[..key.len()].copy_from_slice(key);
            u64::from_be_bytes(bytes)
        }
    }
}

/// `a == b`; for keys of 8 to 16 bytes by two overlapping words instead of a call.
#[inline]
pub fn same_key(a: &[u8], b: &[u8]) -> bool {
    match (a.first_chunk::<8>(), b.first_chunk::<8>(), a.last_chunk::<8>(), b.last_chunk::<8>()) {
        (Some(a_head), Some(b_head), Some(a_tail), Some(b_tail)) => {
            a.len() == b.len() && a_head == b_head && a_tail == b_tail && (a.len() <= 16 || a == b)
        }
        _ => a == b,
    }
}

/// Makes `key` its first `kept` bytes, of which it has as many, then `head`, then `tail`. Where its length stays, as in stores
/// whose keys have one, short pieces are written without a call.
#[inline]
pub fn set_end(key: &mut Vec<u8>, kept: usize, head: &[u8], tail: &[u8]) {
    let tail_at = kept + head.len();
    if key.len() == tail_at + tail.len() {
        let (front, end) = key.split_at_mut(tail_at);
        write_piece(&mut front[kept..], head);
        write_piece(end, tail);
    } else {
        key.truncate(kept);
        key.extend_from_slice(head);
        key.extend_from_slice(tail);
    }
}

/// Makes `key` the same as `other`; a short one of the same length is written without a call, as in [`set_end`].
#[inline]
pub fn set_key(key: &mut Vec<u8>, other: &[u8]) {
    set_end(key, 0, &[], other);
}

/// Copies `from` over `to`, which is as long.
#[inline]
fn write_piece(to: &mut [u8], from: &[u8]) {
    match from.len() {
        0 => {}
        4..=7 => write_words::<4>(to, from),
        8..=16 => write_words::<8>(to, from),
        _ => to.copy_from_slice(from),
    }
}

/// Copies one to two words as two, which may overlap.
#[inline]
fn write_words<const WORD: usize>(to: &mut [u8], from: &[u8]) {
    if let (Some(to), Some(from)) = (to.first_chunk_mut::<WORD>(), from.first_chunk()) {
        *to = *from;
    }
    if let (Some(to), Some(from)) = (to.last_chunk_mut::<WORD>(), from.last_chunk()) {
        *to = *from;
    }
}

/// The length of the longest common prefix of `a` and `b`.
#[inline]
pub fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

/// A short key `s` with `left <= s < right`, for an index separator. `left < right` must hold.
pub fn shortest_separator(left: &[u8], right: &[u8]) -> Vec<u8> {
    let shared = common_prefix(left, right);
    if shared < left.len() && shared < right.len() {
        // One byte past the shared prefix of `right`, if `left` stays below it.
        let mut candidate = left[..=shared].to_vec();
        if left[shared] + 1 < right[shared] || shared + 1 < right.len() {
            candidate[shared] += 1;
            if candidate.as_slice() < right {
                return candidate;
            }
        }
        // The byte itself must stay: raise the first later byte that can be raised.
        for at in shared + 1..left.len() {
            if left[at] < 0xff {
                let mut candidate = left[..=at].to_vec();
                candidate[at] += 1;
                return candidate;
            }
        }
    }
    left.to_vec()
}

/// The smallest key above every key that starts with `prefix`, or `None` if there is none
/// (an empty prefix, or one of 0xff bytes only).
pub fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn newest_version_sorts_first() {
        let newer = pack_trailer(SeqNo::new(7), ValueKind::Delete);
        let older = pack_trailer(SeqNo::new(6), ValueKind::PutTtl);
        assert_eq!(compare_internal(b"a", newer, b"a", older), Ordering::Less);
        assert_eq!(compare_internal(b"a", older, b"b", newer), Ordering::Less);
        assert!(seek_trailer(SeqNo::new(7)) > newer && seek_trailer(SeqNo::new(6)) < newer);
    }

    #[test]
    fn keys_are_the_same_in_every_byte_and_in_length() {
        for len in 0..40 {
            let key: Vec<u8> = (0..len).collect();
            assert!(same_key(&key, &key.clone()));
            assert!(!same_key(&key, &[&key[..], &[0]].concat()));
            for at in 0..key.len() {
                let mut other = key.clone();
                other[at] ^= 1;
                assert!(!same_key(&key, &other) && !same_key(&key, &key[..at]));
            }
        }
    }

    #[test]
    fn the_end_of_a_key_is_set_whatever_its_length_was_and_is() {
        let bytes: Vec<u8> = (1..=60).collect();
        for (before, kept) in
            [0, 1, 7, 20, 30].into_iter().flat_map(|n| [(n, 0), (n, n / 2), (n, n)])
        {
            for (head, tail) in (0..20).flat_map(|head| (0..40).map(move |tail| (head, tail))) {
                let mut key = vec![99; before];
                let (head, tail) = (&bytes[..head], &bytes[20..20 + tail]);
                set_end(&mut key, kept, head, tail);
                assert_eq!(key, [&vec![99; kept][..], head, tail].concat());
            }
        }
    }

    #[test]
    fn a_key_becomes_another_whatever_the_lengths_of_both() {
        let bytes: Vec<u8> = (1..=40).collect();
        for before in 0..40 {
            for len in 0..=bytes.len() {
                let mut key = vec![99; before];
                set_key(&mut key, &bytes[..len]);
                assert_eq!(key, bytes[..len]);
            }
        }
    }

    #[test]
    fn prefix_end_skips_bytes_that_cannot_grow() {
        assert_eq!(prefix_end(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(prefix_end(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!(prefix_end(b"\xff"), None);
        assert_eq!(prefix_end(b""), None);
    }

    proptest! {
        #[test]
        fn head_keeps_order(a: Vec<u8>, b: Vec<u8>) {
            if a <= b { prop_assert!(head(&a) <= head(&b)); }
        }

        #[test]
        fn separator_lies_between(
            a in proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(254), Just(255)], 0..6),
            b in proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(254), Just(255)], 0..6),
        ) {
            prop_assume!(a != b);
            let (left, right) = if a < b { (a, b) } else { (b, a) };
            let separator = shortest_separator(&left, &right);
            prop_assert!(left <= separator && separator < right);
            prop_assert!(separator.len() <= left.len().max(1));
        }

        #[test]
        fn trailer_round_trips(seqno in 0..=MAX_SEQNO.get()) {
            let seqno = SeqNo::new(seqno);
            let trailer = pack_trailer(seqno, ValueKind::Put);
            prop_assert_eq!(trailer_seqno(trailer), seqno);
            prop_assert_eq!(trailer_kind(trailer), Some(ValueKind::Put));
        }
    }
}
