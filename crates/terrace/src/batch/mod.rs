//! A batch of writes, encoded once: the encoding is the log payload and what the memtables are
//! filled from (put).
//!
//! ```text
//! batch := first_seqno:u64le  op_count:u32le  op*
//! op    := kind:u8  family:varint  key:bytes  value:bytes      (bytes := varint length, data)
//!        | kind:u8  family:varint  key:bytes  [expiry:u64le]  size:varint  stored  checksum:u32le
//! ```
//! `value` is empty for a delete, the end key for a range delete, and starts with the expiry for
//! a value with a TTL. A range delete that ends where it starts or before stands for an ingested file. Op number i has sequence number `first_seqno + i`.
//!
//! The second form is that of a value which stays in the log (kinds `PutHandle` and, with an
//! expiry, `PutTtlHandle`): `size` is the length of `stored` times four plus the compression, and
//! the checksum is that of `terrace_log::value`. Which values do is the family's to say; a batch
//! that guessed otherwise when the value was added is encoded again when it is sealed.

mod ops;
mod room;
mod save_point;
mod touched;
mod unapplied;

pub use save_point::SavePoint;

pub(crate) use ops::{Op, Ops, StoredHandle, decode, decode_next, not_a_batch};
pub(crate) use room::entry_room_bytes;
pub(crate) use unapplied::{of_ingestion, without_ops};

use crate::error::{Error, Result};
use crate::options::DEFAULT_VALUE_SEPARATION_THRESHOLD;
use std::time::Duration;
use terrace_base::codec::{put_bytes, put_varint};
use terrace_base::key::{EXPIRY_BYTES, MAX_KEY_BYTES, MAX_VALUE_BYTES};
use terrace_base::value_handle::{MAX_STORED_VALUE_BYTES, VALUE_CHECKSUM_BYTES};
use terrace_base::{Clock, SegmentNumber, SeqNo, ValueKind};
use terrace_log::value;
use terrace_sst::Compression;
use touched::Touched;

/// Bytes before the first op.
pub(crate) const HEADER_BYTES: usize = 12;

/// The largest batch that may use the reserve, in encoded bytes.
const MAX_RESERVE_BYTES: usize = 1 << 10;

/// The largest batch, in encoded bytes (3 GiB).
pub const MAX_BATCH_BYTES: usize = 3 << 30;

/// Which values of a family stay in the log, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Separation {
    /// Values of at least this many bytes.
    pub threshold: usize,
    pub compression: Compression,
}

impl Separation {
    /// What a batch assumes that does not know the family.
    pub const DEFAULT: Self =
        Self { threshold: DEFAULT_VALUE_SEPARATION_THRESHOLD, compression: Compression::None };

    /// All values are inline.
    pub const OFF: Self = Self { threshold: usize::MAX, compression: Compression::None };
}

/// A separated value's place in the batch.
#[derive(Debug, Clone, Copy)]
struct Place {
    key_at: usize,
    key_len: usize,
    at: usize,
    len: usize,
    /// What its checksum has of the place in the log; 0 as long as that is unknown.
    mask: u32,
}

/// Writes that become visible together or not at all.
///
/// A key or value over the limits is remembered and refused by `Db::write`, with nothing written.
///
/// ```
/// let mut batch = terrace::WriteBatch::new();
/// batch.put(b"account:1", b"90");
/// batch.put(b"account:2", b"110");
/// assert_eq!(batch.len(), 2);
/// ```
#[derive(Debug, Clone)]
pub struct WriteBatch {
    bytes: Vec<u8>,
    count: u32,
    /// Where time-to-live values stand; the commit turns them into expiries.
    ttl_offsets: Vec<usize>,
    /// The families written to.
    touched: Touched,
    /// Whose families they are, if any was named by a handle.
    store: Option<u64>,
    /// Bytes of keys and values.
    user_bytes: u64,
    /// The values that stay in the log.
    separated: Vec<Place>,
    /// Their stored bytes.
    separated_bytes: usize,
    /// The longest inline value and the shortest separated one, before compression.
    longest_inline: usize,
    shortest_separated: usize,
    /// Whether there was an operand of a merge; it may have been rolled back.
    has_operands: bool,
    /// What a sealed batch needs in the memtable of each family, if there are several.
    rooms: Vec<usize>,
    refused: Option<String>,
    /// See [`Self::use_reserve`].
    uses_reserve: bool,
    history: save_point::History,
}

impl Default for WriteBatch {
    fn default() -> Self {
        Self::new()
    }
}

impl WriteBatch {
    /// An empty batch.
    pub fn new() -> Self {
        Self { bytes: vec![0; HEADER_BYTES], ..Self::empty() }
    }

    fn empty() -> Self {
        Self {
            bytes: Vec::new(),
            count: 0,
            ttl_offsets: Vec::new(),
            touched: Touched::default(),
            store: None,
            user_bytes: 0,
            separated: Vec::new(),
            separated_bytes: 0,
            longest_inline: 0,
            shortest_separated: usize::MAX,
            has_operands: false,
            rooms: Vec::new(),
            refused: None,
            uses_reserve: false,
            history: save_point::History::default(),
        }
    }

    /// An empty batch with room for one operation of these lengths, unless they are over the limits: that one is
    /// refused, and a length that no memory has must not end the process.
    pub(crate) fn for_one(key_len: usize, value_len: usize) -> Self {
        let is_taken = key_len <= MAX_KEY_BYTES && value_len <= MAX_VALUE_BYTES;
        let room = if is_taken { 64 + key_len + value_len } else { HEADER_BYTES };
        let mut batch = Self { bytes: Vec::with_capacity(room), ..Self::empty() };
        batch.bytes.resize(HEADER_BYTES, 0);
        batch
    }

    /// Sets `key` to `value`.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.put_value(0, key.as_ref(), None, value.as_ref(), Separation::DEFAULT);
    }

    /// Sets `key` to `value` until `ttl` from the commit on; then the key is absent.
    pub fn put_with_ttl(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, ttl: Duration) {
        self.put_value(0, key.as_ref(), Some(ttl), value.as_ref(), Separation::DEFAULT);
    }

    /// Sets `key` to `value` until the wall clock shows `expires_at_ms`, in Unix milliseconds; then
    /// the key is absent, and its disk space is freed by itself. A time that has passed makes it
    /// absent at once.
    pub fn put_until(
        &mut self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expires_at_ms: u64,
    ) {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.put_value_until(0, key, expires_at_ms, value, Separation::DEFAULT);
    }

    /// Removes `key`.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) {
        self.push(0, ValueKind::Delete, key.as_ref(), &[]);
    }

    /// Removes every key in `[start, end)`; nothing if `start >= end`.
    pub fn delete_range(&mut self, start: impl AsRef<[u8]>, end: impl AsRef<[u8]>) {
        self.push(0, ValueKind::RangeDelete, start.as_ref(), end.as_ref());
    }

    /// Merges `operand` into the value of `key`, as the merge operator of the column family says
    /// ([`CfOptions::merge_operator`](crate::CfOptions::merge_operator)); without one the write is refused.
    /// Operands are stored as they are, also long ones: they stay in SSTs until they are folded.
    pub fn merge(&mut self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) {
        self.push(0, ValueKind::Merge, key.as_ref(), operand.as_ref());
    }

    /// The number of operations.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there are no operations.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Encoded size in bytes.
    pub fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Removes all operations and keeps the memory.
    pub fn clear(&mut self) {
        self.history.note_cut(0);
        self.bytes.truncate(HEADER_BYTES);
        self.count = 0;
        self.ttl_offsets.clear();
        self.touched.cut(0);
        self.store = None;
        self.user_bytes = 0;
        self.separated.clear();
        self.separated_bytes = 0;
        self.longest_inline = 0;
        self.shortest_separated = usize::MAX;
        self.has_operands = false;
        self.rooms.clear();
        self.refused = None;
        self.uses_reserve = false;
    }

    /// Lets the batch be written while the disk is full, as one that only removes is: with the room of the reserve
    /// ([`AdvancedOptions::reserve_bytes`](crate::AdvancedOptions::reserve_bytes)). For a few bytes without which nobody could empty the disk; a
    /// batch of more than 1 KiB is refused as any other.
    pub fn use_reserve(&mut self) {
        self.uses_reserve = true;
    }

    /// Notes that what comes next is for a family of the open store `store`.
    #[inline]
    pub(crate) fn note_store(&mut self, store: u64) {
        if *self.store.get_or_insert(store) != store {
            let text = "the batch writes to column families of two stores";
            self.refused.get_or_insert_with(|| text.into());
        }
    }

    /// The open store whose families were named by a handle.
    pub(crate) fn store(&self) -> Option<u64> {
        self.store
    }

    /// Adds a delete, a range delete or an operand.
    pub(crate) fn push(&mut self, family: u32, kind: ValueKind, key: &[u8], value: &[u8]) {
        if !self.fits(key, value.len()) {
            return;
        }
        if kind == ValueKind::RangeDelete {
            if value.len() > MAX_KEY_BYTES {
                self.refused.get_or_insert_with(|| too_long_key(value.len()));
                return;
            }
            if key >= value {
                return;
            }
        }
        self.has_operands |= kind == ValueKind::Merge;
        self.start_op(family, kind, key);
        put_bytes(&mut self.bytes, value);
        self.user_bytes += value.len() as u64;
    }

    /// Adds a value, with a time to live that the commit turns into an expiry.
    pub(crate) fn put_value(
        &mut self,
        family: u32,
        key: &[u8],
        ttl: Option<Duration>,
        value: &[u8],
        separation: Separation,
    ) {
        let ttl = ttl.map(|ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX).to_le_bytes());
        let expiry_at = self.put_with_expiry(family, key, ttl, value, separation);
        if ttl.is_some() {
            self.ttl_offsets.extend(expiry_at);
        }
    }

    /// Adds a value that expires at `expires_at_ms`.
    pub(crate) fn put_value_until(
        &mut self,
        family: u32,
        key: &[u8],
        expires_at_ms: u64,
        value: &[u8],
        separation: Separation,
    ) {
        let expiry = Some(expires_at_ms.to_le_bytes());
        self.put_with_expiry(family, key, expiry, value, separation);
    }

    /// Gives the place of the expiry, if there is one; nothing if the value is refused.
    fn put_with_expiry(
        &mut self,
        family: u32,
        key: &[u8],
        expiry: Option<[u8; EXPIRY_BYTES]>,
        value: &[u8],
        separation: Separation,
    ) -> Option<usize> {
        if !self.fits(key, value.len()) {
            return None;
        }
        let separate = value.len() >= separation.threshold && value.len() <= MAX_STORED_VALUE_BYTES;
        Some(match separate {
            true => self.put_separated(family, key, expiry, (value, 0), value.len()),
            false => self.put_inline(family, key, expiry, value),
        })
    }

    /// Gives the place of the expiry, if there is one.
    fn put_inline(
        &mut self,
        family: u32,
        key: &[u8],
        expiry: Option<[u8; EXPIRY_BYTES]>,
        value: &[u8],
    ) -> usize {
        let kind = if expiry.is_some() { ValueKind::PutTtl } else { ValueKind::Put };
        let expiry = expiry.as_ref().map_or(&[][..], |bytes| bytes);
        self.start_op(family, kind, key);
        put_varint(&mut self.bytes, (expiry.len() + value.len()) as u64);
        self.bytes.reserve(expiry.len() + value.len());
        let at = self.bytes.len();
        self.bytes.extend_from_slice(expiry);
        self.bytes.extend_from_slice(value);
        self.user_bytes += (expiry.len() + value.len()) as u64;
        // A value too long for the log is inline whatever its family wants: no reason to encode again.
        if value.len() <= MAX_STORED_VALUE_BYTES {
            self.longest_inline = self.longest_inline.max(value.len());
        }
        at
    }

    /// As `put_inline`; `stored` with its compression stays in the log, for a value of `len` bytes.
    fn put_separated(
        &mut self,
        family: u32,
        key: &[u8],
        expiry: Option<[u8; EXPIRY_BYTES]>,
        (stored, compression): (&[u8], u8),
        len: usize,
    ) -> usize {
        let kind = if expiry.is_some() { ValueKind::PutTtlHandle } else { ValueKind::PutHandle };
        self.start_op(family, kind, key);
        let after_key = self.bytes.len();
        self.bytes.extend_from_slice(expiry.as_ref().map_or(&[][..], |bytes| bytes));
        put_varint(&mut self.bytes, (stored.len() as u64) << 2 | u64::from(compression));
        let at = self.bytes.len();
        let key_at = after_key - key.len();
        self.separated.push(Place { key_at, key_len: key.len(), at, len: stored.len(), mask: 0 });
        // At once: to grow for the checksum would double what a large value takes.
        self.bytes.reserve(stored.len() + VALUE_CHECKSUM_BYTES);
        self.bytes.extend_from_slice(stored);
        self.bytes.extend_from_slice(&[0; VALUE_CHECKSUM_BYTES]);
        self.separated_bytes += stored.len();
        self.user_bytes += (expiry.map_or(0, |bytes| bytes.len()) + len) as u64;
        self.shortest_separated = self.shortest_separated.min(len);
        after_key
    }

    fn start_op(&mut self, family: u32, kind: ValueKind, key: &[u8]) {
        self.bytes.push(kind as u8);
        put_varint(&mut self.bytes, u64::from(family));
        put_bytes(&mut self.bytes, key);
        self.count += 1;
        self.user_bytes += key.len() as u64;
        self.touched.note(family);
    }

    fn fits(&mut self, key: &[u8], value_len: usize) -> bool {
        let refusal = if key.len() > MAX_KEY_BYTES {
            too_long_key(key.len())
        } else if value_len > MAX_VALUE_BYTES {
            format!("a value of {value_len} bytes is over the limit of {MAX_VALUE_BYTES} bytes")
        } else if self.bytes.len() + key.len() + value_len > MAX_BATCH_BYTES
            || self.count == u32::MAX
        {
            format!("the batch is over the limit of {MAX_BATCH_BYTES} bytes; split it")
        } else {
            return self.refused.is_none();
        };
        self.refused.get_or_insert(refusal);
        false
    }

    /// What was refused of it, as an error.
    pub(crate) fn check_refused(&self) -> Result<()> {
        match &self.refused {
            Some(refused) => Err(Error::InvalidArgument(refused.clone())),
            None => Ok(()),
        }
    }

    /// Turns times to live into expiries, sees to it that exactly those values are separated that
    /// `separation` of their family says, sums them up, measures what the memtables need for it, and
    /// says whether the batch may be written at all.
    pub(crate) fn seal(
        &mut self,
        clock: &dyn Clock,
        separation: &dyn Fn(u32) -> Separation,
    ) -> Result<()> {
        self.check_refused()?;
        if !self.ttl_offsets.is_empty() {
            let now_ms = clock.wall_ms();
            for at in std::mem::take(&mut self.ttl_offsets) {
                let field = self.bytes.get_mut(at..).and_then(|b| b.first_chunk_mut::<8>());
                if let Some(field) = field {
                    *field = now_ms.saturating_add(u64::from_le_bytes(*field)).to_le_bytes();
                }
            }
        }
        if self.families().any(|family| self.differs(separation(family))) {
            *self = self.encoded_again(separation)?;
        }
        for place in &self.separated {
            let (front, rest) = self.bytes.split_at_mut(place.at + place.len);
            let key = &front[place.key_at..place.key_at + place.key_len];
            let sum = value::checksum(key, &front[place.at..]);
            rest[..VALUE_CHECKSUM_BYTES].copy_from_slice(&sum.to_le_bytes());
        }
        self.measure()
    }

    /// Whether a value of this batch may be encoded otherwise than a family wants it.
    fn differs(&self, wanted: Separation) -> bool {
        self.longest_inline >= wanted.threshold
            || self.shortest_separated < wanted.threshold
            || (wanted.compression != Compression::None && !self.separated.is_empty())
    }

    /// The same operations with the values separated and compressed as `separation` says.
    #[cold]
    fn encoded_again(&self, separation: &dyn Fn(u32) -> Separation) -> Result<Self> {
        let (bytes, uses_reserve) = (Vec::with_capacity(self.bytes.len()), self.uses_reserve);
        let mut again = Self { bytes, uses_reserve, ..Self::empty() };
        again.bytes.resize(HEADER_BYTES, 0);
        let mut compressed = Vec::new();
        for op in self.ops() {
            let malformed = |at| Error::InvalidArgument(format!("malformed batch at byte {at}"));
            let op = op.map_err(malformed)?;
            let (expiry, value) = match op.kind {
                ValueKind::Put => (None, op.value),
                ValueKind::PutTtl => {
                    op.value.split_first_chunk().map_or((None, op.value), |(e, v)| (Some(*e), v))
                }
                ValueKind::PutHandle | ValueKind::PutTtlHandle => {
                    (op.separated.and_then(|separated| separated.expiry), op.value)
                }
                kind => {
                    again.push(op.family, kind, op.key, op.value);
                    continue;
                }
            };
            let wanted = separation(op.family);
            if value.len() < wanted.threshold || value.len() > MAX_STORED_VALUE_BYTES {
                again.put_inline(op.family, op.key, expiry, value);
                continue;
            }
            let stored = match wanted.compression {
                Compression::None => (value, Compression::None),
                compression => {
                    compressed.clear();
                    let stored_as =
                        terrace_compression::compress(value, compression, &mut compressed);
                    (compressed.as_slice(), stored_as)
                }
            };
            let stored = (stored.0, stored.1 as u8);
            again.put_separated(op.family, op.key, expiry, stored, value.len());
        }
        // Separated, it is longer.
        again.refused.take().map_or(Ok(again), |why| Err(Error::InvalidArgument(why)))
    }

    /// Says where the batch lies in the log, so that the checksums of separated values hold there
    /// and nowhere else. To be called after `seal`, and again for another place if there was no room at that one.
    pub(crate) fn place(&mut self, segment: SegmentNumber, batch_at: u64) {
        for place in &mut self.separated {
            let mask = value::place_mask(segment, batch_at + place.at as u64);
            let change = std::mem::replace(&mut place.mask, mask) ^ mask;
            let field = self.bytes.get_mut(place.at + place.len..);
            if let Some(field) = field.and_then(|bytes| bytes.first_chunk_mut::<4>()) {
                *field = (u32::from_le_bytes(*field) ^ change).to_le_bytes();
            }
        }
    }

    /// Values that stay in the log, and their stored bytes.
    pub(crate) fn separated(&self) -> (usize, usize) {
        (self.separated.len(), self.separated_bytes)
    }

    /// Gives the first operation its sequence number; the others follow.
    pub(crate) fn number(&mut self, first_seqno: SeqNo) {
        self.bytes[..8].copy_from_slice(&first_seqno.get().to_le_bytes());
        self.bytes[8..HEADER_BYTES].copy_from_slice(&self.count.to_le_bytes());
    }

    /// The families written to.
    pub(crate) fn families(&self) -> impl Iterator<Item = u32> {
        self.touched.iter()
    }

    /// The families that get operands of merges; the same one more than once.
    pub(crate) fn merged_families(&self) -> impl Iterator<Item = u32> {
        let ops = self.has_operands.then(|| self.ops().flatten());
        ops.into_iter().flatten().filter(|op| op.kind == ValueKind::Merge).map(|op| op.family)
    }

    /// Whether it is taken while the disk is full: it only removes, or may use the reserve.
    pub(crate) fn is_taken_when_full(&self) -> bool {
        let removes = |op: &Op<'_>| matches!(op.kind, ValueKind::Delete | ValueKind::RangeDelete);
        self.may_use_reserve() || self.ops().all(|op| op.is_ok_and(|op| removes(&op)))
    }

    /// Whether it is a few bytes that may use the reserve.
    pub(crate) fn may_use_reserve(&self) -> bool {
        self.uses_reserve && self.bytes.len() <= MAX_RESERVE_BYTES
    }

    /// Whether it is taken as long as there is any room on a full disk: it deletes ranges, which need next to none and give
    /// the most back.
    pub(crate) fn is_taken_to_the_last(&self) -> bool {
        self.ops().all(|op| op.is_ok_and(|op| op.kind == ValueKind::RangeDelete))
    }

    /// Whether anything is written to `family`.
    pub(crate) fn touches(&self, family: u32) -> bool {
        self.touched.place_of(family).is_some()
    }

    /// Bytes of keys and values.
    pub(crate) fn user_bytes(&self) -> u64 {
        self.user_bytes
    }

    /// Where the value of the last operation lies in the encoded batch, if that is a put of `len`
    /// bytes and the batch was not sealed.
    pub(crate) fn last_value(&self, len: usize) -> std::ops::Range<usize> {
        let stored_end = self.bytes.len() - VALUE_CHECKSUM_BYTES.min(self.bytes.len());
        let is_separated = self.separated.last().is_some_and(|p| p.at + p.len == stored_end);
        let end = if is_separated { stored_end } else { self.bytes.len() };
        end.saturating_sub(len)..end
    }

    /// The log payload.
    pub(crate) fn encoded(&self) -> &[u8] {
        &self.bytes
    }

    /// The operations of this batch. Its bytes were made here, so nothing can be malformed.
    pub(crate) fn ops(&self) -> Ops<'_> {
        Ops::new(&self.bytes, HEADER_BYTES, self.count)
    }
}

fn too_long_key(len: usize) -> String {
    format!("a key of {len} bytes is over the limit of {MAX_KEY_BYTES} bytes")
}

#[cfg(test)]
mod tests;
