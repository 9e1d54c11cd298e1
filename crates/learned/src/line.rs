//! A segment in fixed precision: whole numbers, evaluated the same everywhere.
//!
//! ```text
//! position(x) = start - delta + floor((offset + slope * (x - head) / 2^(shift - 8)) / 256)
//! ```
//! `head` is the least `x` that belongs to the line, `slope` counts 2^-`shift` positions per unit
//! of `x`, and `offset` counts 1/256 position above `start - delta` at the head.
//!
//! Invariant: at every point of its segment the result is at least `last - delta` and at most
//! `first + delta` ([`crate::regression::Point`]). Each rounding goes down, and together they take
//! less than [`ROUNDING_BELOW`] units of 1/256 position, by which the regression stays inside the
//! bound: `offset` at the first point loses one unit; the slope loses less than 2^-`shift` per unit
//! of `x`, where 2^(`shift` - 8) is above the segment's length, so one unit at most; moving the
//! offset to the head loses one. Floating point has the fourth. The last floor costs nothing, since
//! positions are whole.
//!
//! The head is not the first point's number but the one with the most trailing zeros between it
//! and the segment before, which takes 3 bytes to store instead of 8; it stays so near that
//! the line is not below `start - delta` there.

use crate::regression::{ROUNDING_BELOW, Segment, UNITS};

/// Fraction bits of an offset.
const UNIT_BITS: u32 = UNITS.trailing_zeros();

const _: () = assert!(ROUNDING_BELOW == 4);

/// The greatest shift: that of a segment over all numbers.
pub(crate) const MAX_SHIFT: u32 = UNIT_BITS + u64::BITS;

/// Bits that a slope takes at most: a rise below 2^33 positions over a length of at least
/// 2^(`shift` - 9).
pub(crate) const SLOPE_BITS: u32 = 48;

/// A line without its head. 16 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Line {
    /// The slope times 256, plus the shift. A shift of 0 is no line but a run: all keys from the
    /// head to the next have one number.
    slope_and_shift: u64,
    start: u32,
    offset: u32,
}

/// Between which positions a key is: see [`crate::Model::search_range`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SearchRange {
    /// The least position it can have.
    pub low: u32,
    /// The greatest.
    pub high: u32,
}

impl Line {
    /// A run that starts at `start`; also what ends the list of lines.
    pub fn run(start: u32) -> Self {
        Self { slope_and_shift: 0, start, offset: 0 }
    }

    /// The line with these fields. `None` if they are none that [`Self::of`] makes.
    pub fn from_fields(
        start: u32,
        shift: u32,
        slope: u64,
        offset: u32,
        delta: u32,
    ) -> Option<Self> {
        let sound = (UNIT_BITS..=MAX_SHIFT).contains(&shift)
            && slope >> SLOPE_BITS == 0
            && offset <= greatest_offset(delta);
        let slope_and_shift = slope << 8 | u64::from(shift);
        sound.then_some(Self { slope_and_shift, start, offset })
    }

    /// The line of `segment`, and its head, which is above `before`, the last number of the segment
    /// before it.
    pub fn of(segment: &Segment, before: Option<u64>, delta: u32) -> (u64, Self) {
        let length = segment.last_x - segment.first_x;
        let shift = UNIT_BITS + (u64::BITS - length.leading_zeros());
        let scaled = segment.slope * 2f64.powi(shift as i32);
        let slope = (scaled as u64).min((1 << SLOPE_BITS) - 1);
        let height = ((segment.offset + f64::from(delta)) * UNITS as f64) as u32;
        let height = height.min(greatest_offset(delta));
        let scale = shift - UNIT_BITS;
        let room = match u128::from(slope) {
            0 => u128::from(u64::MAX),
            slope => (u128::from(height) << scale) / slope,
        };
        let least = segment.first_x.saturating_sub(u64::try_from(room).unwrap_or(u64::MAX));
        let least = least.max(before.map_or(0, |before| before.saturating_add(1)));
        let head = roundest(least, segment.first_x);
        let drop = u128::from(slope) * u128::from(segment.first_x - head);
        let offset = ((u128::from(height) << scale).saturating_sub(drop) >> scale) as u32;
        let slope_and_shift = slope << 8 | u64::from(shift);
        (head, Self { slope_and_shift, start: segment.start, offset })
    }

    pub fn start(&self) -> u32 {
        self.start
    }

    pub fn is_run(&self) -> bool {
        self.shift() == 0
    }

    pub fn shift(&self) -> u32 {
        (self.slope_and_shift & 0xff) as u32
    }

    pub fn slope(&self) -> u64 {
        self.slope_and_shift >> 8
    }

    pub fn offset(&self) -> u32 {
        self.offset
    }

    /// How far the line is above `start - delta` at `along` from the head, in whole positions.
    /// Never falls as `along` rises. Not of a run.
    #[inline]
    fn height(&self, along: u64) -> u64 {
        let rise = u128::from(self.slope()) * u128::from(along);
        // Cutting off the rise's fraction first changes nothing: the offset has none.
        let units = u64::try_from(rise >> (self.shift() - UNIT_BITS)).unwrap_or(u64::MAX);
        units.saturating_add(u64::from(self.offset)) >> UNIT_BITS
    }

    /// How far the line is above `start - delta` at `along` from the head, in steps of 2^-`bits`
    /// position. Never falls as `along` rises. Not of a run.
    #[inline]
    pub fn fine_height(&self, along: u64, bits: u32) -> u64 {
        // An offset has 8 bits after the point: what is rounded is the sum.
        let fine = bits.max(UNIT_BITS);
        let rise = u128::from(self.slope()) * u128::from(along);
        let rise = match self.shift().checked_sub(fine) {
            Some(shift) => rise >> shift,
            None => rise.saturating_mul(1 << (fine - self.shift())),
        };
        let offset = u64::from(self.offset()) << (fine - UNIT_BITS);
        // Far beyond any position, and with room for sums.
        let height = u64::try_from(rise).unwrap_or(u64::MAX).min(u64::MAX >> 1) + offset;
        height >> (fine - bits)
    }

    /// The position on the line at `along` from the head, to measure errors by. Not of a run.
    pub fn position(&self, along: u64, delta: u32) -> i64 {
        let height = self.height(along).min(u64::from(u32::MAX) << 1) as i64;
        i64::from(self.start) - i64::from(delta) + height
    }

    /// Where a key can be whose number is `along` from the head; `next` is the start of the line
    /// after this one.
    #[inline]
    pub fn range(&self, along: u64, next: u32, delta: u32) -> SearchRange {
        if self.is_run() {
            return SearchRange { low: self.start, high: next };
        }
        // Beyond its last point the line is held at the start of the next.
        let most = u64::from(next - self.start) + u64::from(delta);
        let height = self.height(along).min(most);
        let low = u64::from(self.start) + height.saturating_sub(2 * u64::from(delta));
        let high = (u64::from(self.start) + height + 1).min(u64::from(next));
        SearchRange { low: low as u32, high: high as u32 }
    }
}

/// The greatest offset of a line: `start + delta`.
fn greatest_offset(delta: u32) -> u32 {
    2 * delta * UNITS as u32
}

/// The number with the most trailing zeros in `least..=most`.
pub(crate) fn roundest(least: u64, most: u64) -> u64 {
    let Some(below) = least.checked_sub(1) else { return 0 };
    let differing = u64::BITS - (below ^ most).leading_zeros();
    most & (u64::MAX << differing.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::regression::{Greedy, Optimal, Point, Regression};
    use proptest::collection::vec;
    use proptest::prelude::*;

    #[test]
    fn the_roundest_number() {
        assert_eq!(roundest(0, 77), 0);
        assert_eq!(roundest(77, 77), 77);
        assert_eq!(roundest(65, 77), 72);
        assert_eq!(roundest(1, u64::MAX), 1 << 63);
        assert_eq!(roundest(u64::MAX, u64::MAX), u64::MAX);
    }

    #[test]
    fn extreme_lines_do_not_overflow() {
        let greatest = greatest_offset(1 << 15);
        let slope = (1 << SLOPE_BITS) - 1;
        for shift in UNIT_BITS..=MAX_SHIFT {
            let line = Line::from_fields(u32::MAX, shift, slope, greatest, 1 << 15).unwrap();
            for along in [0, 1, u64::MAX] {
                let range = line.range(along, u32::MAX, 1 << 15);
                assert!(range.low <= range.high);
                line.position(along, 1 << 15);
            }
        }
        assert_eq!(Line::from_fields(0, 7, 0, 0, 8), None);
        assert_eq!(Line::from_fields(0, 73, 0, 0, 8), None);
        assert_eq!(Line::from_fields(0, 8, 1 << SLOPE_BITS, 0, 8), None);
        assert_eq!(Line::from_fields(0, 8, 0, greatest_offset(8) + 1, 8), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        #[test]
        fn rounding_stays_inside_the_error_bound(
            from: u64, shift in 0u32..64, greedy: bool, before in proptest::option::of(any::<u64>()),
            delta in prop_oneof![Just(1u32), Just(8), Just(1000), Just(1 << 15)],
            steps in vec((0u32..64, any::<u64>(), 0u32..4), 1..300),
        ) {
            let mut points = vec![Point { x: from >> shift, first: 0, last: 0 }];
            for (shift, gap, run) in steps {
                let last = points[points.len() - 1];
                let Some(x) = last.x.checked_add((gap >> shift).max(1)) else { break };
                points.push(Point { x, first: last.last + 1, last: last.last + 1 + run.min(delta) });
            }
            let mut regression: Box<dyn Regression> = match greedy {
                true => Box::new(Greedy::new(delta)),
                false => Box::new(Optimal::new(delta)),
            };
            let mut segments: Vec<Segment> =
                points.iter().filter_map(|point| regression.push(*point)).collect();
            segments.extend(regression.finish());
            let mut before = before.filter(|before| *before < points[0].x);
            for segment in segments {
                let (head, line) = Line::of(&segment, before, delta);
                prop_assert!(head <= segment.first_x && before.is_none_or(|before| head > before));
                let fields = (line.shift(), line.slope(), line.offset());
                let again = Line::from_fields(line.start(), fields.0, fields.1, fields.2, delta);
                prop_assert_eq!(again, Some(line));
                let own = points.iter().filter(|point| (segment.first_x..=segment.last_x).contains(&point.x));
                for point in own {
                    let position = line.position(point.x - head, delta);
                    prop_assert!(position >= i64::from(point.last) - i64::from(delta), "{:?} {:?}", point, line);
                    prop_assert!(position <= i64::from(point.first) + i64::from(delta), "{:?} {:?}", point, line);
                }
                before = Some(segment.last_x);
            }
        }
    }
}
