//! The range tombstones block: the fragments of the set, in key order.
//!
//! Varint fragment count, then per fragment: start and end (length varint, bytes each), varint
//! sequence number count, the sequence numbers as varints, newest first.

use crate::block_handle::Checked;
use terrace_base::codec::{put_bytes, put_varint};
use terrace_base::key::MAX_KEY_BYTES;
use terrace_base::range_tombstone::Fragment;
use terrace_base::{Decoder, MAX_SEQNO, RangeTombstones, SeqNo};

pub(crate) fn encode(tombstones: &RangeTombstones, out: &mut Vec<u8>) {
    put_varint(out, tombstones.fragment_count() as u64);
    for Fragment { start, end, seqnos } in tombstones.fragments() {
        put_bytes(out, start);
        put_bytes(out, end);
        put_varint(out, seqnos.len() as u64);
        seqnos.iter().for_each(|seqno| put_varint(out, seqno.get()));
    }
}

/// Decodes and checks: fragments ascending and apart, bounds that are keys, sequence numbers descending. What it takes
/// in memory is bounded by the length of the block.
pub(crate) fn decode(bytes: &[u8]) -> Checked<RangeTombstones> {
    let mut decoder = Decoder::new(bytes);
    let set = decode_set(&mut decoder).ok_or("range tombstones are malformed")?;
    if !decoder.is_empty() {
        return Err("bytes after the range tombstones");
    }
    Ok(set)
}

fn decode_set(decoder: &mut Decoder<'_>) -> Option<RangeTombstones> {
    let mut set = RangeTombstones::default();
    let mut past: &[u8] = &[];
    let mut seqnos = Vec::new();
    for _ in 0..decoder.varint()? {
        let (start, end) = (decoder.bytes()?, decoder.bytes()?);
        // Log and manifest name these bounds, and neither is read again with longer ones.
        if start >= end || start < past || start.len().max(end.len()) > MAX_KEY_BYTES {
            return None;
        }
        past = end;
        seqnos.clear();
        let mut below = MAX_SEQNO + 1;
        for _ in 0..decoder.varint().filter(|count| *count > 0)? {
            below = decoder.varint().map(SeqNo::new).filter(|seqno| *seqno < below)?;
            seqnos.push(below);
        }
        set.push(Fragment { start, end, seqnos: &seqnos });
    }
    set.shrink_to_fit();
    Some(set)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use terrace_base::RangeTombstone;

    #[test]
    fn a_bound_that_is_longer_than_any_key_is_refused() {
        for (bytes, is_sound) in [(MAX_KEY_BYTES, true), (MAX_KEY_BYTES + 1, false)] {
            let bounds = [(vec![b'a'; bytes], b"b".to_vec()), (b"a".to_vec(), vec![b'b'; bytes])];
            for (start, end) in bounds {
                let seqno = SeqNo::new(1);
                let mut block = Vec::new();
                encode(&RangeTombstones::new([RangeTombstone { start, end, seqno }]), &mut block);
                assert_eq!(decode(&block).is_ok(), is_sound, "{bytes}");
            }
        }
    }

    proptest! {
        #[test]
        fn round_trip(
            list in vec((vec(any::<u8>(), 0..3), vec(any::<u8>(), 0..3), 0..=MAX_SEQNO.get()), 0..12),
            damage: Vec<(usize, u8)>,
        ) {
            let tombstone =
                |(start, end, seqno)| RangeTombstone { start, end, seqno: SeqNo::new(seqno) };
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
