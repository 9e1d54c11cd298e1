//! The range tombstones block: the fragments of the set, in key order.
//!
//! Varint fragment count, then per fragment: start and end (length varint, bytes each), varint
//! sequence number count, the sequence numbers as varints, newest first.

use crate::stored::Checked;
use terrace_base::codec::{put_bytes, put_varint};
use terrace_base::{Decoder, MAX_SEQNO, RangeTombstone, RangeTombstones};

pub(crate) fn encode(tombstones: &RangeTombstones, out: &mut Vec<u8>) {
    put_varint(out, tombstones.fragments().len() as u64);
    for fragment in tombstones.fragments() {
        put_bytes(out, &fragment.start);
        put_bytes(out, &fragment.end);
        put_varint(out, fragment.seqnos.len() as u64);
        fragment.seqnos.iter().for_each(|seqno| put_varint(out, *seqno));
    }
}

/// Decodes and checks: fragments ascending and apart, sequence numbers descending.
pub(crate) fn decode(bytes: &[u8]) -> Checked<RangeTombstones> {
    let mut decoder = Decoder::new(bytes);
    let list = decode_list(&mut decoder).ok_or("range tombstones are malformed")?;
    if !decoder.is_empty() {
        return Err("bytes after the range tombstones");
    }
    Ok(RangeTombstones::new(list))
}

fn decode_list(decoder: &mut Decoder<'_>) -> Option<Vec<RangeTombstone>> {
    let mut list: Vec<RangeTombstone> = Vec::new();
    let mut past: &[u8] = &[];
    for _ in 0..decoder.varint()? {
        let (start, end) = (decoder.bytes()?, decoder.bytes()?);
        if start >= end || start < past {
            return None;
        }
        past = end;
        let mut below = MAX_SEQNO + 1;
        for _ in 0..decoder.varint().filter(|count| *count > 0)? {
            below = decoder.varint().filter(|seqno| *seqno < below)?;
            list.push(RangeTombstone { start: start.to_vec(), end: end.to_vec(), seqno: below });
        }
    }
    Some(list)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trip(
            list in vec((vec(any::<u8>(), 0..3), vec(any::<u8>(), 0..3), 0..=MAX_SEQNO), 0..12),
            damage: Vec<(usize, u8)>,
        ) {
            let tombstone = |(start, end, seqno)| RangeTombstone { start, end, seqno };
            let set = RangeTombstones::new(list.into_iter().map(tombstone));
            let mut bytes = Vec::new();
            encode(&set, &mut bytes);
            prop_assert_eq!(decode(&bytes).unwrap(), set);
            prop_assert!(decode(&bytes[..bytes.len() - 1]).is_err());
            for (at, byte) in damage {
                let at = at % bytes.len();
                bytes[at] = byte;
            }
            let _ = decode(&bytes);
        }
    }
}
