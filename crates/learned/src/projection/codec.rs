//! The stored form of a projection, a few dozen bytes:
//!
//! ```text
//! varint part count, then per part a tag u8 (kind, + 4 if keys end at the position) and
//!     kind 0  literal:  varint length (not 0), bytes
//!     kind 1  range:    varint positions, low u8, high u8
//!     kind 2  ranges:   varint positions, count u8 (2 to 15), (low u8, high u8) each
//!     kind 3  bitmap:   varint positions, 32 bytes, byte b is bit b % 8 of byte b / 8
//! ```
//! Checked when read: kinds known, ranges ascending and apart, at least two symbols per alphabet,
//! and at most 2^64 numbers in all.

use super::{Alphabet, Part, Projection};
use terrace_base::Decoder;
use terrace_base::codec::{put_bytes, put_varint};

const LITERAL: u8 = 0;
const RANGE: u8 = 1;
const RANGES: u8 = 2;
const BITMAP: u8 = 3;
const HAS_END: u8 = 4;

/// Ranges beyond this take more room than a bitmap.
const MAX_RANGES: usize = 15;

/// Parts of which at most 64 are positions, and no two literals are neighbours.
const MAX_PARTS: u64 = 129;

impl Projection {
    /// Appends the stored form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let parts = self.parts();
        put_varint(out, parts.len() as u64);
        for part in &parts {
            match part {
                Part::Literal(bytes) => {
                    out.push(LITERAL);
                    put_bytes(out, bytes);
                }
                Part::Positions(alphabet, count) => put_positions(out, alphabet, *count),
            }
        }
    }

    /// Reads what [`Self::encode`] wrote off the front. `None` if it is cut off or malformed; never
    /// panics, and allocates for no more than the bytes there are and 64 positions.
    pub fn decode(decoder: &mut Decoder<'_>) -> Option<Self> {
        let count = decoder.varint().filter(|count| *count <= MAX_PARTS)?;
        let mut parts = Vec::new();
        for _ in 0..count {
            let part = part(decoder)?;
            if matches!((parts.last(), &part), (Some(Part::Literal(_)), Part::Literal(_))) {
                return None;
            }
            parts.push(part);
        }
        Self::from_parts(&parts)
    }
}

fn put_positions(out: &mut Vec<u8>, alphabet: &Alphabet, count: u32) {
    let ranges = alphabet.ranges();
    let kind = match ranges.len() {
        1 => RANGE,
        2..=MAX_RANGES => RANGES,
        _ => BITMAP,
    };
    out.push(kind | if alphabet.has_end() { HAS_END } else { 0 });
    put_varint(out, u64::from(count));
    match kind {
        BITMAP => out.extend_from_slice(&alphabet.bitmap()),
        _ => {
            if kind == RANGES {
                out.push(ranges.len() as u8);
            }
            out.extend(ranges.iter().flat_map(|(low, high)| [*low, *high]));
        }
    }
}

fn part(decoder: &mut Decoder<'_>) -> Option<Part> {
    let tag = decoder.u8()?;
    if tag == LITERAL {
        let bytes = decoder.bytes().filter(|bytes| !bytes.is_empty())?;
        return Some(Part::Literal(bytes.to_vec()));
    }
    let (kind, has_end) = (tag & !HAS_END, tag & HAS_END != 0);
    let count = u32::try_from(decoder.varint()?).ok()?;
    let mut alphabet = if has_end { Alphabet::of(None) } else { Alphabet::default() };
    match kind {
        RANGE | RANGES => {
            let ranges = match kind {
                RANGE => 1,
                _ => decoder.u8().filter(|count| (2..=MAX_RANGES as u8).contains(count))?,
            };
            let mut least = 0u16;
            for _ in 0..ranges {
                let [low, high] = decoder.array()?;
                if u16::from(low) < least || high < low {
                    return None;
                }
                alphabet.insert_range(low, high);
                least = u16::from(high) + 2;
            }
        }
        BITMAP => {
            let bitmap = decoder.array()?;
            if bitmap == [0; 32] {
                return None;
            }
            alphabet = Alphabet::from_bitmap(bitmap, has_end);
        }
        _ => return None,
    }
    Some(Part::Positions(alphabet, count))
}
