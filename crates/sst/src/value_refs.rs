//! How much of which value segment a file refers to: tallied by the writer, checked by
//! verification, stored as a property.

use terrace_base::codec::put_varint;
use terrace_base::{Decoder, SegmentNumber, ValueHandle, ValueRef};

/// Counts references; ascending by segment at any time.
#[derive(Debug, Default)]
pub(crate) struct ValueTally {
    refs: Vec<ValueRef>,
    /// Where the segment of the last handle stands: entries in key order often stay with it.
    last: usize,
}

impl ValueTally {
    /// Counts the value of an entry with a key of `key_len` bytes.
    #[inline]
    pub fn add(&mut self, handle: &ValueHandle, key_len: usize) {
        if self.refs.get(self.last).is_none_or(|last| last.segment != handle.segment) {
            self.last = self.place_of(handle.segment);
        }
        self.refs[self.last].bytes += handle.weight_bytes(key_len);
    }

    fn place_of(&mut self, segment: SegmentNumber) -> usize {
        self.refs.binary_search_by_key(&segment, |known| known.segment).unwrap_or_else(|at| {
            self.refs.insert(at, ValueRef { segment, bytes: 0 });
            at
        })
    }

    /// What was counted, ascending by segment.
    pub fn finish(self) -> Vec<ValueRef> {
        self.refs
    }
}

/// `refs`, ascending by segment, as pairs of varints: what is added to the segment before, and
/// the bytes.
pub(crate) fn encode(refs: &[ValueRef]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut before = SegmentNumber::ZERO;
    for ValueRef { segment, bytes } in refs {
        put_varint(&mut out, *segment - before);
        put_varint(&mut out, *bytes);
        before = *segment;
    }
    out
}

/// The references in `bytes`; `None` if they do not ascend or are cut off.
pub(crate) fn decode(bytes: &[u8]) -> Option<Vec<ValueRef>> {
    let mut decoder = Decoder::new(bytes);
    let mut refs: Vec<ValueRef> = Vec::new();
    while !decoder.is_empty() {
        let (more, bytes) = (decoder.varint()?, decoder.varint()?);
        let segment = match refs.last() {
            Some(_) if more == 0 => return None,
            Some(before) => before.segment.checked_add(more)?,
            None => SegmentNumber::new(more),
        };
        if !segment.fits_handles() {
            return None;
        }
        refs.push(ValueRef { segment, bytes });
    }
    Some(refs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn the_tally_is_the_sum_by_segment_and_round_trips(
            entries in proptest::collection::vec(
                (prop_oneof![0u32..4, any::<u32>()], 0u32..1000, 0usize..100), 0..60,
            ),
        ) {
            let (mut tally, mut want) = (ValueTally::default(), BTreeMap::<u64, u64>::new());
            for (segment, len, key_len) in entries {
                tally.add(&ValueHandle { segment: SegmentNumber::new(segment.into()), offset: 44, len, compression: 0 }, key_len);
                *want.entry(segment.into()).or_default() += u64::from(len) + key_len as u64 + 4;
            }
            let refs = tally.finish();
            let found: Vec<_> = refs.iter().map(|r| (r.segment.get(), r.bytes)).collect();
            prop_assert_eq!(found, want.into_iter().collect::<Vec<_>>());
            let bytes = encode(&refs);
            prop_assert_eq!(decode(&bytes), Some(refs.clone()));
            if let Some(cut) = bytes.len().checked_sub(1) {
                prop_assert_ne!(decode(&bytes[..cut]), Some(refs));
            }
        }

        #[test]
        fn what_is_decoded_ascends(bytes in proptest::collection::vec(0u8..200, 0..30)) {
            let refs = decode(&bytes).unwrap_or_default();
            prop_assert!(refs.is_sorted_by(|a, b| a.segment < b.segment));
        }
    }
}
