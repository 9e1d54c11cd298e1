//! The payload of a commit log record: a batch of writes. Floors 0-3 do not know it, so it is
//! decoded here, from the drawing in the engine's `batch` module.
//!
//! ```text
//! batch := first_seqno:u64le  op_count:u32le  op*
//! op    := kind:u8  family:varint  key:bytes  value:bytes      (bytes := varint length, data)
//! ```
//! `value` is empty for a delete, the end key for a range delete, and starts with the expiry for
//! a value with a TTL. Op number i has sequence number `first_seqno + i`.

use crate::text::Abridged;
use terrace_base::key::{EXPIRY_BYTES, MAX_KEY_BYTES};
use terrace_base::{Decoder, MAX_SEQNO, SeqNo, ValueKind};

/// Bytes of a key or value that [`describe`] shows.
const SHOWN_BYTES: usize = 60;

/// One write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Op<'a> {
    /// Its sequence number.
    pub seqno: SeqNo,
    /// The column family's id.
    pub family: u32,
    /// What it does.
    pub kind: ValueKind,
    /// The key, or the first key of a range.
    pub key: &'a [u8],
    /// The stored value, or the key after a range.
    pub value: &'a [u8],
}

/// A payload taken apart as far as it goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch<'a> {
    /// The sequence number of the first op.
    pub first_seqno: SeqNo,
    /// How many ops the header announces.
    pub op_count: u32,
    /// The ops that could be decoded.
    pub ops: Vec<Op<'a>>,
    /// Why there are not `op_count` of them and nothing else, and at which byte of the payload.
    pub fault: Option<(usize, &'static str)>,
}

/// Decodes `payload`; `None` if even the header is cut off.
pub fn decode(payload: &[u8]) -> Option<Batch<'_>> {
    let mut decoder = Decoder::new(payload);
    let (first_seqno, op_count) = (decoder.u64()?, decoder.u32()?);
    let mut batch = Batch { first_seqno, op_count, ops: Vec::new(), fault: None };
    if first_seqno.checked_add(u64::from(op_count)).is_none_or(|last| last > MAX_SEQNO) {
        batch.fault = Some((0, "the sequence numbers are out of range"));
        return Some(batch);
    }
    for seqno in (first_seqno..).take(op_count as usize) {
        let at = decoder.position();
        match op(&mut decoder, seqno) {
            Ok(op) => batch.ops.push(op),
            Err(why) => {
                batch.fault = Some((at, why));
                return Some(batch);
            }
        }
    }
    if !decoder.is_empty() {
        batch.fault = Some((decoder.position(), "bytes follow the last op"));
    }
    Some(batch)
}

fn op<'a>(decoder: &mut Decoder<'a>, seqno: SeqNo) -> Result<Op<'a>, &'static str> {
    const CUT: &str = "the op is cut off or malformed";
    let kind = decoder.u8().ok_or(CUT)?;
    let kind = ValueKind::from_byte(kind).ok_or("the op is of an unknown kind")?;
    let family = decoder.varint().and_then(|id| u32::try_from(id).ok()).ok_or(CUT)?;
    let (key, value) = (decoder.bytes().ok_or(CUT)?, decoder.bytes().ok_or(CUT)?);
    if key.len() > MAX_KEY_BYTES || (kind == ValueKind::RangeDelete && value.len() > MAX_KEY_BYTES)
    {
        return Err("the key is over the limit");
    }
    match kind {
        ValueKind::Delete if !value.is_empty() => Err("a delete with a value"),
        ValueKind::PutTtl if value.len() < EXPIRY_BYTES => Err("an expiring value without expiry"),
        _ => Ok(Op { seqno, family, kind, key, value }),
    }
}

/// What `payload` means, a line for the batch and one per op, and how many faults that names.
pub fn describe(payload: &[u8]) -> (Vec<String>, u64) {
    let Some(batch) = decode(payload) else {
        let line = format!("NOT A BATCH: {} bytes are less than its header", payload.len());
        return (vec![line], 1);
    };
    let Batch { first_seqno, op_count, .. } = batch;
    let mut lines = vec![match op_count {
        0 => "batch without ops".to_string(),
        1 => format!("batch of 1 op, seqno {first_seqno}"),
        n => {
            let last = first_seqno.saturating_add(u64::from(n) - 1);
            format!("batch of {n} ops, seqnos {first_seqno}-{last}")
        }
    }];
    lines.extend(batch.ops.iter().map(describe_op));
    if let Some((at, why)) = batch.fault {
        lines.push(format!("NOT A BATCH at byte {at} of the payload: {why}"));
    }
    (lines, u64::from(batch.fault.is_some()))
}

/// One op in one line.
fn describe_op(op: &Op<'_>) -> String {
    let shown = |bytes| Abridged(bytes, SHOWN_BYTES);
    let family = match op.family {
        0 => String::new(),
        id => format!("family {id} "),
    };
    let what = match (op.kind, op.value.split_first_chunk::<EXPIRY_BYTES>()) {
        (ValueKind::Delete, _) => format!("delete {}", shown(op.key)),
        (ValueKind::RangeDelete, _) => {
            format!("delete [{}, {})", shown(op.key), shown(op.value))
        }
        (ValueKind::PutTtl, Some((expiry, value))) => {
            let expiry_ms = u64::from_le_bytes(*expiry);
            format!("put {} = {} until {expiry_ms} ms", shown(op.key), shown(value))
        }
        _ => format!("put {} = {}", shown(op.key), shown(op.value)),
    };
    format!("  {} {family}{what}", op.seqno)
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_base::codec::{put_bytes, put_varint};

    pub(crate) fn encode(
        first: u64,
        count: u32,
        ops: &[(ValueKind, u32, &[u8], &[u8])],
    ) -> Vec<u8> {
        let mut out = first.to_le_bytes().to_vec();
        out.extend_from_slice(&count.to_le_bytes());
        for (kind, family, key, value) in ops {
            out.push(*kind as u8);
            put_varint(&mut out, u64::from(*family));
            put_bytes(&mut out, key);
            put_bytes(&mut out, value);
        }
        out
    }

    #[test]
    fn every_kind_is_told_op_by_op() {
        let until = [&99u64.to_le_bytes()[..], b"v"].concat();
        let ops: [(ValueKind, u32, &[u8], &[u8]); 4] = [
            (ValueKind::Put, 0, b"a", b"1\n"),
            (ValueKind::Delete, 3, b"b", b""),
            (ValueKind::RangeDelete, 0, b"c", b"e"),
            (ValueKind::PutTtl, 0, b"d", &until),
        ];
        let (lines, faults) = describe(&encode(7, 4, &ops));
        let want = [
            "batch of 4 ops, seqnos 7-10",
            "  7 put a = 1\\n",
            "  8 family 3 delete b",
            "  9 delete [c, e)",
            "  10 put d = v until 99 ms",
        ];
        assert_eq!((lines, faults), (want.map(String::from).to_vec(), 0));
    }

    #[test]
    fn what_can_be_decoded_of_a_broken_batch_is_told() {
        let whole =
            encode(7, 2, &[(ValueKind::Put, 0, b"a", b"1"), (ValueKind::Put, 0, b"b", b"2")]);
        for cut in 0..whole.len() {
            let (lines, faults) = describe(&whole[..cut]);
            assert_eq!(faults, 1, "{cut}: {lines:?}");
            assert!(lines.last().unwrap().starts_with("NOT A BATCH"), "{lines:?}");
        }
        assert!(describe(&whole[..whole.len() - 1]).0[1].ends_with("put a = 1"));
        let longer = [&whole[..], b"x"].concat();
        assert!(describe(&longer).0.last().unwrap().contains("follow the last op"));
        assert_eq!(describe(&encode(MAX_SEQNO, 2, &[])).1, 1);
        assert_eq!(describe(&encode(1, 1, &[(ValueKind::Delete, 0, b"a", b"1")])).1, 1);
    }
}
