//! The operations of an encoded batch, taken apart one by one.
//!
//! Used by the commit, which fills memtables from batches it encoded itself, and by recovery, which
//! reads them from the log and trusts nothing.

use terrace_base::key::{EXPIRY_BYTES, MAX_KEY_BYTES, MAX_VALUE_BYTES};
use terrace_base::value_handle::{MAX_STORED_VALUE_BYTES, VALUE_CHECKSUM_BYTES};
use terrace_base::{Decoder, HANDLE_BYTES, SegmentNumber, SeqNo, ValueHandle, ValueKind};

/// One operation of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Op<'a> {
    pub family: u32,
    /// What the memtable will hold.
    pub kind: ValueKind,
    pub key: &'a [u8],
    /// What the memtable will hold, if the value is inline; otherwise the value as it is stored in
    /// the log.
    pub value: &'a [u8],
    /// Present if the value stays in the log.
    pub separated: Option<Separated>,
}

impl<'a> Op<'a> {
    /// The smallest and the largest key of an ingested file, if that is what it stands for: a range
    /// that ends where it starts, or before, and deletes nothing.
    pub fn ingested(&self) -> Option<(&'a [u8], &'a [u8])> {
        let is_note = self.kind == ValueKind::RangeDelete && self.key >= self.value;
        is_note.then_some((self.value, self.key))
    }
}

/// A value that stays in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Separated {
    /// Where its stored bytes start in the encoded batch.
    pub at: usize,
    pub compression: u8,
    pub expiry: Option<[u8; EXPIRY_BYTES]>,
}

/// A memtable value of an entry whose value is in the log: expiry, if there is one, and handle.
pub(crate) struct StoredHandle {
    bytes: [u8; EXPIRY_BYTES + HANDLE_BYTES],
    from: usize,
}

impl StoredHandle {
    /// The handle of `op`'s value when the batch's first byte lies at `batch_at` of `segment`.
    #[inline]
    pub fn new(op: &Op<'_>, separated: &Separated, segment: SegmentNumber, batch_at: u64) -> Self {
        let handle = ValueHandle {
            segment,
            offset: batch_at + separated.at as u64,
            len: op.value.len() as u32,
            compression: separated.compression,
        };
        let mut bytes = [0; EXPIRY_BYTES + HANDLE_BYTES];
        bytes[EXPIRY_BYTES..].copy_from_slice(&handle.encode());
        let mut from = EXPIRY_BYTES;
        if let Some(expiry) = separated.expiry {
            bytes[..EXPIRY_BYTES].copy_from_slice(&expiry);
            from = 0;
        }
        Self { bytes, from }
    }

    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[self.from..]
    }
}

/// Decodes operations one by one; `Err(position)` when the bytes are malformed.
#[derive(Debug, Clone)]
pub(crate) struct Ops<'a> {
    decoder: Decoder<'a>,
    /// Where the decoder's bytes start in the batch.
    start: usize,
    left: u32,
}

impl<'a> Ops<'a> {
    /// The `count` operations in `encoded`, which starts with a header of `header_bytes`.
    pub(super) fn new(encoded: &'a [u8], header_bytes: usize, count: u32) -> Self {
        let decoder = Decoder::new(encoded.get(header_bytes..).unwrap_or_default());
        Self { decoder, start: header_bytes, left: count }
    }

    fn place(&self) -> usize {
        self.start + self.decoder.position()
    }

    #[inline]
    fn op(&mut self) -> Option<Op<'a>> {
        let kind = ValueKind::from_byte(self.decoder.u8()?)?;
        let family = u32::try_from(self.decoder.varint()?).ok()?;
        let key = self.decoder.bytes()?;
        if key.len() > MAX_KEY_BYTES {
            return None;
        }
        if kind.is_handle() {
            let (value, separated) = self.separated(kind)?;
            return Some(Op { family, kind, key, value, separated: Some(separated) });
        }
        let value = self.decoder.bytes()?;
        let sound = match kind {
            ValueKind::Delete => value.is_empty(),
            ValueKind::Put | ValueKind::Merge => value.len() <= MAX_VALUE_BYTES,
            ValueKind::PutTtl => {
                (EXPIRY_BYTES..=MAX_VALUE_BYTES + EXPIRY_BYTES).contains(&value.len())
            }
            ValueKind::PutHandle | ValueKind::PutTtlHandle | ValueKind::Merged => false,
            ValueKind::RangeDelete => value.len() <= MAX_KEY_BYTES,
        };
        sound.then_some(Op { family, kind, key, value, separated: None })
    }

    #[inline]
    fn separated(&mut self, kind: ValueKind) -> Option<(&'a [u8], Separated)> {
        let expiry = match kind.expires() {
            true => Some(self.decoder.array::<EXPIRY_BYTES>()?),
            false => None,
        };
        let field = self.decoder.varint()?;
        let len = usize::try_from(field >> 2).ok().filter(|len| *len <= MAX_STORED_VALUE_BYTES)?;
        let at = self.place();
        let value = self.decoder.take(len)?;
        self.decoder.take(VALUE_CHECKSUM_BYTES)?;
        Some((value, Separated { at, compression: (field & 3) as u8, expiry }))
    }
}

/// A log payload taken apart: its first sequence number, its count, its operations.
pub(crate) fn decode(payload: &[u8]) -> Option<(SeqNo, u32, Ops<'_>)> {
    let mut decoder = Decoder::new(payload);
    let first_seqno = SeqNo::new(decoder.u64()?);
    let count = decoder.u32()?;
    let last = first_seqno.checked_add(u64::from(count))?;
    let ops = Ops::new(payload, decoder.position(), count);
    (last <= terrace_base::MAX_SEQNO).then_some((first_seqno, count, ops))
}

/// As [`decode`], of a batch that follows others in a log, which end before `next`: the commits of a log
/// number their operations in its order, and memtables rely on it.
///
/// # Errors
/// What is wrong with the batch.
pub(crate) fn decode_next(
    payload: &[u8],
    next: SeqNo,
) -> std::result::Result<(SeqNo, u32, Ops<'_>), String> {
    let (first, count, ops) = decode(payload).ok_or_else(|| not_a_batch(0))?;
    if first < next {
        return Err(format!("a batch starts at seqno {first}, {next} should be next"));
    }
    Ok((first, count, ops))
}

/// What is said of a payload that is malformed at byte `at`.
pub(crate) fn not_a_batch(at: usize) -> String {
    format!("a record passes its checksum but is no batch (at byte {at})")
}

impl<'a> Iterator for Ops<'a> {
    type Item = std::result::Result<Op<'a>, usize>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return match self.decoder.is_empty() {
                true => None,
                false => {
                    let at = self.place();
                    self.decoder = Decoder::new(&[]);
                    Some(Err(at))
                }
            };
        }
        let at = self.place();
        self.left -= 1;
        match self.op() {
            Some(op) => Some(Ok(op)),
            None => {
                self.left = 0;
                self.decoder = Decoder::new(&[]);
                Some(Err(at))
            }
        }
    }
}
