//! The payload of a commit log record: a batch of writes. Floors 0-3 do not know it, so it is
//! decoded here, from the drawing in the engine's `batch` module.
//!
//! ```text
//! batch := first_seqno:u64le  op_count:u32le  op*
//! op    := kind:u8  family:varint  key:bytes  value:bytes      (bytes := varint length, data)
//!        | kind:u8  family:varint  key:bytes  [expiry:u64le]  size:varint  stored  checksum:u32le
//! ```
//! `value` is empty for a delete, the end key for a range delete, and starts with the expiry for
//! a value with a TTL. Op number i has sequence number `first_seqno + i`.
//!
//! The second form is that of a value that stays in the log (kinds 3 and, with an expiry, 4):
//! `size` is four times the length of `stored` plus its compression, and the checksum that of
//! [`terrace_log::value`], which covers key, stored bytes and place.

use crate::text::Abridged;
use terrace_base::key::{EXPIRY_BYTES, MAX_KEY_BYTES};
use terrace_base::{Decoder, MAX_SEQNO, SeqNo, ValueHandle, ValueKind};
pub use terrace_log::dump::PayloadPlace;
use terrace_log::value::StoredValue;
use terrace_sst::Compression;

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
    /// The stored value, or the key after a range; of a separated value the bytes as they lie in
    /// the segment.
    pub value: &'a [u8],
    /// What is known of a value that stays in the log.
    pub separated: Option<Separated>,
}

/// A value that stays in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Separated {
    /// Its place, which the memtable and SSTs keep.
    pub handle: ValueHandle,
    /// From when on the entry is absent, in Unix milliseconds.
    pub expiry_ms: Option<u64>,
    /// Whether its own checksum is right for key, bytes and place, and its compression known.
    pub sound: bool,
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

impl Batch<'_> {
    /// Separated values that are not what their keys and places say.
    pub fn unsound_values(&self) -> impl Iterator<Item = (&Op<'_>, ValueHandle)> {
        let separated = self.ops.iter().filter_map(|op| Some((op, op.separated?)));
        separated.filter(|(_, value)| !value.sound).map(|(op, value)| (op, value.handle))
    }
}

/// Decodes `payload`, which stands at `place`; `None` if even the header is cut off.
pub fn decode(payload: &[u8], place: PayloadPlace) -> Option<Batch<'_>> {
    let mut decoder = Decoder::new(payload);
    let (first_seqno, op_count) = (SeqNo::new(decoder.u64()?), decoder.u32()?);
    let mut batch = Batch { first_seqno, op_count, ops: Vec::new(), fault: None };
    if first_seqno.checked_add(u64::from(op_count)).is_none_or(|last| last > MAX_SEQNO) {
        batch.fault = Some((0, "the sequence numbers are out of range"));
        return Some(batch);
    }
    for seqno in first_seqno.onward().take(op_count as usize) {
        let at = decoder.position();
        match op(&mut decoder, seqno, place) {
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

const CUT: &str = "the op is cut off or malformed";

fn op<'a>(
    decoder: &mut Decoder<'a>,
    seqno: SeqNo,
    place: PayloadPlace,
) -> Result<Op<'a>, &'static str> {
    let kind = decoder.u8().ok_or(CUT)?;
    let kind = ValueKind::from_byte(kind).ok_or("the op is of an unknown kind")?;
    let family = decoder.varint().and_then(|id| u32::try_from(id).ok()).ok_or(CUT)?;
    let key = decoder.bytes().ok_or(CUT)?;
    if kind.is_handle() && key.len() <= MAX_KEY_BYTES {
        let (value, separated) = separated(decoder, kind, key, place)?;
        return Ok(Op { seqno, family, kind, key, value, separated: Some(separated) });
    }
    let value = decoder.bytes().ok_or(CUT)?;
    if key.len() > MAX_KEY_BYTES || (kind == ValueKind::RangeDelete && value.len() > MAX_KEY_BYTES)
    {
        return Err("the key is over the limit");
    }
    match kind {
        ValueKind::Delete if !value.is_empty() => Err("a delete with a value"),
        ValueKind::PutTtl if value.len() < EXPIRY_BYTES => Err("an expiring value without expiry"),
        ValueKind::Merged => Err("a combined operand, which only SSTs have"),
        _ => Ok(Op { seqno, family, kind, key, value, separated: None }),
    }
}

/// The rest of an op whose value stays in the log.
fn separated<'a>(
    decoder: &mut Decoder<'a>,
    kind: ValueKind,
    key: &'a [u8],
    place: PayloadPlace,
) -> Result<(&'a [u8], Separated), &'static str> {
    if !place.segment.fits_handles() {
        return Err("no handle can name this segment");
    }
    let expiry_ms = match kind.expires() {
        true => Some(decoder.u64().ok_or(CUT)?),
        false => None,
    };
    let value = StoredValue::decode_tail(decoder, key, place.segment, place.offset).ok_or(CUT)?;
    let sound = value.is_sound();
    Ok((value.stored, Separated { handle: value.handle, expiry_ms, sound }))
}

/// What `payload`, which stands at `place`, means: a line for the batch and one per op; and how
/// many faults that names.
pub fn describe(payload: &[u8], place: PayloadPlace) -> (Vec<String>, u64) {
    let Some(batch) = decode(payload, place) else {
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
    let faults = u64::from(batch.fault.is_some()) + batch.unsound_values().count() as u64;
    (lines, faults)
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
        // An empty range deletes nothing: it stands for a file.
        (ValueKind::RangeDelete, _) if op.key >= op.value => {
            format!("ingested a file of {} to {}", shown(op.value), shown(op.key))
        }
        (ValueKind::RangeDelete, _) => {
            format!("delete [{}, {})", shown(op.key), shown(op.value))
        }
        (ValueKind::PutTtl, Some((expiry, value))) => {
            let expiry_ms = u64::from_le_bytes(*expiry);
            format!("put {} = {} until {expiry_ms} ms", shown(op.key), shown(value))
        }
        (ValueKind::Merge, _) => format!("merge {} with {}", shown(op.key), shown(op.value)),
        _ => match &op.separated {
            Some(separated) => describe_separated(op, separated),
            None => format!("put {} = {}", shown(op.key), shown(op.value)),
        },
    };
    format!("  {} {family}{what}", op.seqno)
}

/// A separated value: its handle as `segment:offset+length`, its compression and expiry, the value
/// itself unless it is compressed, and whether its checksum is right.
fn describe_separated(op: &Op<'_>, separated: &Separated) -> String {
    let ValueHandle { segment, offset, len, compression } = separated.handle;
    let mut line = format!("put {} = ", Abridged(op.key, SHOWN_BYTES));
    match Compression::from_byte(compression) {
        Some(Compression::None) => {
            line.push_str(&format!("{} ", Abridged(op.value, SHOWN_BYTES)));
        }
        Some(codec) => line.push_str(&format!("{} ", codec.name())),
        None => line.push_str("of unknown compression "),
    }
    line.push_str(&format!("at {segment}:{offset}+{len}"));
    if let Some(expiry_ms) = separated.expiry_ms {
        line.push_str(&format!(" until {expiry_ms} ms"));
    }
    if !separated.sound {
        line.push_str(", DAMAGE: its checksum is wrong");
    }
    line
}

#[cfg(test)]
mod tests;
