//! The stored form of a model, about 12 bytes a segment:
//!
//! ```text
//! version u8 = 1
//! delta varint (1 to 2^15)
//! projection (see projection/codec.rs)
//! statistics: keys, ties, longest tie, runs, keys in runs, greatest error, sum of errors,
//!     9 slots of the error distribution: varints
//! end varint: the position after the last key's
//! segment count varint (not 0), then per segment
//!     start          varint: first position, less that of the segment before
//!     zeros          u8:     trailing zeros of the next field, which are cut off
//!     head           varint: least number, less that of the segment before, >> zeros
//!     shift          u8:     0 for a run, which ends here; else 8 to 72
//!     slope          varint: positions * 2^shift per number, below 2^48
//!     offset         varint: positions * 256 above start - delta at the head, up to 2 delta
//! ```
//! Checked when read: every field in its limits, heads strictly ascending, starts never falling
//! and not above the end, no bytes after the last segment.

use super::Model;
use crate::line::Line;
use crate::projection::Projection;
use crate::regression::MAX_DELTA;
use crate::stats::ModelStats;
use std::fmt;
use terrace_base::Decoder;
use terrace_base::codec::put_varint;

const VERSION: u8 = 1;

/// The fewest bytes that a segment takes.
const MIN_SEGMENT_BYTES: usize = 4;

/// What is wrong with the bytes of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Malformed {}

impl Model {
    /// Appends the stored form, and notes its size in the statistics.
    pub(crate) fn encode(&mut self, out: &mut Vec<u8>) {
        let start = out.len();
        out.push(VERSION);
        put_varint(out, u64::from(self.delta));
        let projection_start = out.len();
        self.projection.encode(out);
        self.stats.projection_bytes = (out.len() - projection_start) as u64;
        self.stats.segment_count = self.heads.as_slice().len() as u64;
        self.stats.encode(out);
        put_varint(out, u64::from(self.end()));
        put_varint(out, self.stats.segment_count);
        let (mut head_before, mut start_before) = (0, 0);
        for (head, line) in self.heads.as_slice().iter().zip(&self.lines) {
            put_varint(out, u64::from(line.start() - start_before));
            let step = head - head_before;
            let zeros = if step == 0 { 0 } else { step.trailing_zeros() };
            out.push(zeros as u8);
            put_varint(out, step >> zeros);
            out.push(line.shift() as u8);
            if !line.is_run() {
                put_varint(out, line.slope());
                put_varint(out, u64::from(line.offset()));
            }
            (head_before, start_before) = (*head, line.start());
        }
        self.stats.bytes = (out.len() - start) as u64;
    }

    /// Reads and checks the bytes of [`crate::Training::model`].
    ///
    /// # Errors
    /// [`Malformed`] if the bytes are none; whatever they are, nothing panics, and no more is
    /// allocated than a multiple of their number.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut decoder = Decoder::new(bytes);
        if decoder.u8() != Some(VERSION) {
            return Err(Malformed("model of an unknown version"));
        }
        let delta = narrow(&mut decoder).filter(|delta| (1..=MAX_DELTA).contains(delta));
        let delta = delta.ok_or(Malformed("impossible error bound"))?;
        let projection_start = decoder.position();
        let projection = Projection::decode(&mut decoder);
        let projection = projection.ok_or(Malformed("malformed key projection"))?;
        let projection_bytes = (decoder.position() - projection_start) as u64;
        let stats = ModelStats::decode(&mut decoder).ok_or(Malformed("malformed statistics"))?;
        let end = narrow(&mut decoder).ok_or(Malformed("impossible position"))?;
        let segment_count = decoder.varint().unwrap_or(0);
        let most = decoder.rest().len() / MIN_SEGMENT_BYTES;
        let count = usize::try_from(segment_count).ok().filter(|count| (1..=most).contains(count));
        let count = count.ok_or(Malformed("impossible segment count"))?;
        let (heads, lines) =
            segments(&mut decoder, count, delta, end).ok_or(Malformed("malformed segment"))?;
        if !decoder.is_empty() {
            return Err(Malformed("bytes after the last segment"));
        }
        let bytes = bytes.len() as u64;
        let stats = ModelStats { projection_bytes, bytes, segment_count, ..stats };
        Ok(Self::of(projection, delta, heads, lines, end, stats))
    }
}

fn narrow(decoder: &mut Decoder<'_>) -> Option<u32> {
    u32::try_from(decoder.varint()?).ok()
}

/// Heads and lines.
fn segments(
    decoder: &mut Decoder<'_>,
    count: usize,
    delta: u32,
    end: u32,
) -> Option<(Vec<u64>, Vec<Line>)> {
    let mut heads = Vec::with_capacity(count);
    let mut lines = Vec::with_capacity(count + 1);
    let mut start = 0u32;
    for _ in 0..count {
        start = start.checked_add(narrow(decoder)?).filter(|start| *start <= end)?;
        let zeros = u32::from(decoder.u8()?);
        let step = decoder.varint()?;
        if zeros >= u64::BITS || step.leading_zeros() < zeros {
            return None;
        }
        let head = match heads.last() {
            None => step << zeros,
            Some(_) if step == 0 => return None,
            Some(before) => (step << zeros).checked_add(*before)?,
        };
        heads.push(head);
        lines.push(match u32::from(decoder.u8()?) {
            0 => Line::run(start),
            shift => {
                let slope = decoder.varint()?;
                Line::from_fields(start, shift, slope, narrow(decoder)?, delta)?
            }
        });
    }
    Some((heads, lines))
}
