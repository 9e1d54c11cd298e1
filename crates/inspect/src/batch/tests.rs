//! Batches of every kind, whole and broken.

use super::*;
use terrace_base::SegmentNumber;
use terrace_base::codec::{put_bytes, put_varint};
use terrace_log::value;

const PLACE: PayloadPlace = PayloadPlace { segment: SegmentNumber::new(9), offset: 1000 };

/// How the value of an op is given to [`encode`].
enum Given<'a> {
    Inline(&'a [u8]),
    /// Expiry, stored bytes, compression.
    Separated(Option<u64>, &'a [u8], u8),
}

fn encode(first: u64, count: u32, ops: &[(ValueKind, u32, &[u8], Given<'_>)]) -> Vec<u8> {
    let mut out = first.to_le_bytes().to_vec();
    out.extend_from_slice(&count.to_le_bytes());
    for (kind, family, key, given) in ops {
        out.push(*kind as u8);
        put_varint(&mut out, u64::from(*family));
        put_bytes(&mut out, key);
        match given {
            Given::Inline(value) => put_bytes(&mut out, value),
            Given::Separated(expiry_ms, stored, compression) => {
                out.extend(expiry_ms.map(u64::to_le_bytes).into_iter().flatten());
                put_varint(&mut out, value::pack_length(stored.len() as u32, *compression));
                let mask =
                    value::place_mask(SegmentNumber::new(9), PLACE.offset + out.len() as u64);
                out.extend_from_slice(stored);
                out.extend_from_slice(&(value::checksum(key, stored) ^ mask).to_le_bytes());
            }
        }
    }
    out
}

fn of_every_kind() -> Vec<u8> {
    let until = [&99u64.to_le_bytes()[..], b"v"].concat();
    let ops: [(ValueKind, u32, &[u8], Given<'_>); 6] = [
        (ValueKind::Put, 0, b"a", Given::Inline(b"1\n")),
        (ValueKind::Delete, 3, b"b", Given::Inline(b"")),
        (ValueKind::RangeDelete, 0, b"c", Given::Inline(b"e")),
        (ValueKind::PutTtl, 0, b"d", Given::Inline(&until)),
        (ValueKind::PutHandle, 2, b"e", Given::Separated(None, b"large", 0)),
        (ValueKind::PutTtlHandle, 0, b"f", Given::Separated(Some(99), b"packed", 1)),
    ];
    encode(7, 6, &ops)
}

#[test]
fn every_kind_is_told_op_by_op() {
    let (lines, faults) = describe(&of_every_kind(), PLACE);
    let want = [
        "batch of 6 ops, seqnos 7-12",
        "  7 put a = 1\\n",
        "  8 family 3 delete b",
        "  9 delete [c, e)",
        "  10 put d = v until 99 ms",
        "  11 family 2 put e = large at 9:1049+5",
        "  12 put f = lz4 at 9:1071+6 until 99 ms",
    ];
    assert_eq!((lines, faults), (want.map(String::from).to_vec(), 0));
}

#[test]
fn a_range_that_ends_before_it_starts_is_an_ingested_file() {
    let note: [(ValueKind, u32, &[u8], Given<'_>); 1] =
        [(ValueKind::RangeDelete, 4, b"m", Given::Inline(b"a"))];
    let (lines, faults) = describe(&encode(7, 1, &note), PLACE);
    assert_eq!((lines[1].as_str(), faults), ("  7 family 4 ingested a file of a to m", 0));
}

#[test]
fn a_separated_value_is_sound_only_as_it_is_and_where_it_is() {
    let whole = of_every_kind();
    for at in 49..49 + 9 {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        let (lines, faults) = describe(&damaged, PLACE);
        assert!(faults == 1 && lines[5].ends_with("DAMAGE: its checksum is wrong"), "{lines:?}");
    }
    let in_segment = |number| PayloadPlace { segment: SegmentNumber::new(number), ..PLACE };
    for elsewhere in [PayloadPlace { offset: 1001, ..PLACE }, in_segment(10)] {
        let batch = decode(&whole, elsewhere).unwrap();
        assert_eq!((batch.fault, batch.unsound_values().count()), (None, 2));
    }
    assert_eq!(decode(&whole, in_segment(1 << 32)).unwrap().ops.len(), 4);
    let unknown = [(ValueKind::PutHandle, 0, &b"k"[..], Given::Separated(None, b"v", 3))];
    assert_eq!(describe(&encode(1, 1, &unknown), PLACE).1, 1);
}

#[test]
fn what_can_be_decoded_of_a_broken_batch_is_told() {
    let whole = of_every_kind();
    for cut in 0..whole.len() {
        let (lines, faults) = describe(&whole[..cut], PLACE);
        assert_eq!(faults, 1, "{cut}: {lines:?}");
        assert!(lines.last().unwrap().starts_with("NOT A BATCH"), "{lines:?}");
    }
    assert!(describe(&whole[..whole.len() - 1], PLACE).0[5].contains("put e = large"));
    let longer = [&whole[..], b"x"].concat();
    assert!(describe(&longer, PLACE).0.last().unwrap().contains("follow the last op"));
    assert_eq!(describe(&encode(MAX_SEQNO.get(), 2, &[]), PLACE).1, 1);
    let full = [(ValueKind::Delete, 0, &b"a"[..], Given::Inline(b"1"))];
    assert_eq!(describe(&encode(1, 1, &full), PLACE).1, 1);
}
