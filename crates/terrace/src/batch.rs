//! A batch of writes, encoded once: the encoding is the log payload and what the memtables are
//! filled from (put, step 1 of 4).
//!
//! ```text
//! batch := first_seqno:u64le  op_count:u32le  op*
//! op    := kind:u8  family:varint  key:bytes  value:bytes      (bytes := varint length, data)
//! ```
//! `value` is empty for a delete, the end key for a range delete, and starts with the expiry for
//! a value with a TTL. Op number i has sequence number `first_seqno + i`.

use crate::error::{Error, Result};
use std::time::Duration;
use terrace_base::codec::{put_bytes, put_varint};
use terrace_base::key::{EXPIRY_BYTES, MAX_KEY_BYTES, MAX_VALUE_BYTES};
use terrace_base::{Clock, Decoder, SeqNo, ValueKind};

/// Bytes before the first op.
pub(crate) const HEADER_BYTES: usize = 12;

/// The largest batch, in encoded bytes (3 GiB).
pub const MAX_BATCH_BYTES: usize = 3 << 30;

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
    /// The family written to first, and the others, without repeats.
    first_family: Option<u32>,
    more_families: Vec<u32>,
    /// Bytes of keys and values.
    user_bytes: u64,
    refused: Option<String>,
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
            first_family: None,
            more_families: Vec::new(),
            user_bytes: 0,
            refused: None,
        }
    }

    /// An empty batch with room for one operation of these lengths.
    pub(crate) fn for_one(key_len: usize, value_len: usize) -> Self {
        let mut batch =
            Self { bytes: Vec::with_capacity(64 + key_len + value_len), ..Self::empty() };
        batch.bytes.resize(HEADER_BYTES, 0);
        batch
    }

    /// Sets `key` to `value`.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.push(0, ValueKind::Put, key.as_ref(), value.as_ref());
    }

    /// Sets `key` to `value` until `ttl` from the commit on; then the key is absent.
    pub fn put_with_ttl(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, ttl: Duration) {
        self.push_ttl(0, key.as_ref(), value.as_ref(), ttl);
    }

    /// Removes `key`.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) {
        self.push(0, ValueKind::Delete, key.as_ref(), &[]);
    }

    /// Removes every key in `[start, end)`; nothing if `start >= end`.
    pub fn delete_range(&mut self, start: impl AsRef<[u8]>, end: impl AsRef<[u8]>) {
        self.push(0, ValueKind::RangeDelete, start.as_ref(), end.as_ref());
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
        self.bytes.truncate(HEADER_BYTES);
        self.count = 0;
        self.ttl_offsets.clear();
        self.first_family = None;
        self.more_families.clear();
        self.user_bytes = 0;
        self.refused = None;
    }

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
        self.op(family, kind, key, value.len());
        self.bytes.extend_from_slice(value);
    }

    pub(crate) fn push_ttl(&mut self, family: u32, key: &[u8], value: &[u8], ttl: Duration) {
        if !self.fits(key, value.len()) {
            return;
        }
        self.op(family, ValueKind::PutTtl, key, EXPIRY_BYTES + value.len());
        self.ttl_offsets.push(self.bytes.len());
        let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        self.bytes.extend_from_slice(&ttl_ms.to_le_bytes());
        self.bytes.extend_from_slice(value);
    }

    fn op(&mut self, family: u32, kind: ValueKind, key: &[u8], value_len: usize) {
        self.bytes.push(kind as u8);
        put_varint(&mut self.bytes, u64::from(family));
        put_bytes(&mut self.bytes, key);
        put_varint(&mut self.bytes, value_len as u64);
        self.count += 1;
        self.user_bytes += (key.len() + value_len) as u64;
        if !self.touches(family) {
            match self.first_family {
                None => self.first_family = Some(family),
                Some(_) => self.more_families.push(family),
            }
        }
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

    /// Turns times to live into expiries and says whether the batch may be written at all.
    pub(crate) fn seal(&mut self, clock: &dyn Clock) -> Result<()> {
        if let Some(refused) = &self.refused {
            return Err(Error::InvalidArgument(refused.clone()));
        }
        if self.ttl_offsets.is_empty() {
            return Ok(());
        }
        let now_ms = clock.wall_ms();
        for at in std::mem::take(&mut self.ttl_offsets) {
            if let Some(field) = self.bytes.get_mut(at..).and_then(|b| b.first_chunk_mut::<8>()) {
                *field = now_ms.saturating_add(u64::from_le_bytes(*field)).to_le_bytes();
            }
        }
        Ok(())
    }

    /// Gives the first operation its sequence number; the others follow.
    pub(crate) fn number(&mut self, first_seqno: SeqNo) {
        self.bytes[..8].copy_from_slice(&first_seqno.to_le_bytes());
        self.bytes[8..HEADER_BYTES].copy_from_slice(&self.count.to_le_bytes());
    }

    /// The families written to.
    pub(crate) fn families(&self) -> impl Iterator<Item = u32> {
        self.first_family.iter().chain(&self.more_families).copied()
    }

    /// Whether anything is written to `family`.
    pub(crate) fn touches(&self, family: u32) -> bool {
        self.first_family == Some(family) || self.more_families.contains(&family)
    }

    /// Bytes of keys and values.
    pub(crate) fn user_bytes(&self) -> u64 {
        self.user_bytes
    }

    /// The log payload.
    pub(crate) fn encoded(&self) -> &[u8] {
        &self.bytes
    }

    /// The operations of this batch. Its bytes were made here, so nothing can be malformed.
    pub(crate) fn ops(&self) -> Ops<'_> {
        Ops { decoder: Decoder::new(&self.bytes[HEADER_BYTES..]), left: self.count }
    }
}

fn too_long_key(len: usize) -> String {
    format!("a key of {len} bytes is over the limit of {MAX_KEY_BYTES} bytes")
}

/// One operation of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Op<'a> {
    pub family: u32,
    pub kind: ValueKind,
    pub key: &'a [u8],
    pub value: &'a [u8],
}

/// Decodes operations one by one; `Err(position)` when the bytes are malformed.
#[derive(Debug, Clone)]
pub(crate) struct Ops<'a> {
    decoder: Decoder<'a>,
    left: u32,
}

/// A log payload taken apart: its first sequence number, its count, its operations.
pub(crate) fn decode(payload: &[u8]) -> Option<(SeqNo, u32, Ops<'_>)> {
    let mut decoder = Decoder::new(payload);
    let first_seqno = decoder.u64()?;
    let count = decoder.u32()?;
    let last = first_seqno.checked_add(u64::from(count))?;
    (last <= terrace_base::MAX_SEQNO).then_some((first_seqno, count, Ops { decoder, left: count }))
}

impl<'a> Iterator for Ops<'a> {
    type Item = std::result::Result<Op<'a>, usize>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return match self.decoder.is_empty() {
                true => None,
                false => {
                    let at = self.decoder.position();
                    self.decoder = Decoder::new(&[]);
                    Some(Err(at))
                }
            };
        }
        let at = self.decoder.position();
        self.left -= 1;
        match op(&mut self.decoder) {
            Some(op) => Some(Ok(op)),
            None => {
                self.left = 0;
                self.decoder = Decoder::new(&[]);
                Some(Err(at))
            }
        }
    }
}

#[inline]
fn op<'a>(decoder: &mut Decoder<'a>) -> Option<Op<'a>> {
    let kind = ValueKind::from_byte(decoder.u8()?)?;
    let family = u32::try_from(decoder.varint()?).ok()?;
    let key = decoder.bytes()?;
    let value = decoder.bytes()?;
    let sound = key.len() <= MAX_KEY_BYTES
        && match kind {
            ValueKind::Delete => value.is_empty(),
            ValueKind::Put => value.len() <= MAX_VALUE_BYTES,
            ValueKind::PutTtl => {
                (EXPIRY_BYTES..=MAX_VALUE_BYTES + EXPIRY_BYTES).contains(&value.len())
            }
            ValueKind::PutHandle | ValueKind::PutTtlHandle => false,
            ValueKind::RangeDelete => value.len() <= MAX_KEY_BYTES,
        };
    sound.then_some(Op { family, kind, key, value })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    struct Fixed(u64);

    impl Clock for Fixed {
        fn wall_ms(&self) -> u64 {
            self.0
        }

        fn monotonic_us(&self) -> u64 {
            0
        }
    }

    #[test]
    fn limits_are_refused_at_the_write_and_name_the_limit() {
        let mut batch = WriteBatch::new();
        batch.put(b"fine", b"fine");
        batch.put(vec![0; MAX_KEY_BYTES + 1], b"");
        let error = batch.seal(&Fixed(0)).unwrap_err();
        assert!(error.to_string().contains("65536"), "{error}");
    }

    #[test]
    fn ttl_counts_from_the_commit() {
        let mut batch = WriteBatch::new();
        batch.put_with_ttl(b"k", b"v", Duration::from_millis(7));
        batch.seal(&Fixed(1000)).unwrap();
        let op = batch.ops().next().unwrap().unwrap();
        assert_eq!(op.value, [&1007u64.to_le_bytes()[..], b"v"].concat());
    }

    proptest! {
        #[test]
        fn ops_round_trip(
            ops in proptest::collection::vec((0u32..300, 0u8..3, any::<Vec<u8>>(), any::<Vec<u8>>()), 0..20),
            first in 0u64..1000,
        ) {
            let mut batch = WriteBatch::new();
            let mut want = Vec::new();
            for (family, kind, key, value) in &ops {
                let kind = [ValueKind::Put, ValueKind::Delete, ValueKind::RangeDelete][*kind as usize];
                let value = if kind == ValueKind::Delete { &[][..] } else { value };
                batch.push(*family, kind, key, value);
                if kind != ValueKind::RangeDelete || key.as_slice() < value {
                    want.push(Op { family: *family, kind, key, value });
                }
            }
            batch.number(first);
            let (seqno, count, decoded) = decode(batch.encoded()).unwrap();
            prop_assert_eq!((seqno, count as usize), (first, want.len()));
            let got: Vec<_> = decoded.map(|op| op.unwrap()).collect();
            prop_assert_eq!(got, want);
        }

        #[test]
        fn malformed_bytes_end_in_an_error_not_a_panic(bytes: Vec<u8>) {
            if let Some((_, _, ops)) = decode(&bytes) {
                prop_assert!(ops.take(1000).filter(|op| op.is_err()).count() <= 1);
            }
        }
    }
}
