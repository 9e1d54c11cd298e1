//! Piecewise linear regression with an error bound: cutting a sorted sequence of points into
//! pieces, each near a line.
//!
//! A [`Point`] is a number and the positions of all keys that have it: a run of one, or of several
//! that tie. Lines go up or are level, and at every point of its segment a line is at most `delta`
//! below the last and above the first position of the run. The bound is kept with room to spare: a
//! line stays `ROUNDING_BELOW` and `ROUNDING_ABOVE` inside it, which is what `crate::line`
//! may lose when it rounds to fixed precision.
//!
//! Two ways, one trait: [`Greedy`] in constant memory per open segment, and [`Optimal`] with the
//! fewest segments there can be.

mod greedy;
mod optimal;

pub use greedy::Greedy;
pub use optimal::Optimal;

/// Lines are found in units of 1/256 position.
pub(crate) const UNITS: i64 = 256;

/// How far inside its lower bound a line stays, in units: three roundings downwards in
/// [`crate::line`], and one for floating point here.
pub(crate) const ROUNDING_BELOW: i64 = 4;

/// How far inside its upper bound a line stays, in units: floating point here.
pub(crate) const ROUNDING_ABOVE: i64 = 1;

/// The greatest error bound.
pub const MAX_DELTA: u32 = 1 << 15;

/// A number and the positions of the keys that have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    /// The projection of the keys.
    pub x: u64,
    /// The position of the first of them.
    pub first: u32,
    /// The position of the last of them: at most `first + delta`, or no line need be near.
    pub last: u32,
}

/// A line for the points with `first_x <= x <= last_x`:
/// `start + offset + slope * (x - first_x)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Segment {
    /// The number of its first point.
    pub first_x: u64,
    /// The number of its last point.
    pub last_x: u64,
    /// The first position of its first point.
    pub start: u32,
    /// Positions per unit of `x`, not negative.
    pub slope: f64,
    /// Where the line is at `first_x`, relative to `start`.
    pub offset: f64,
}

impl Segment {
    /// The position on the line at `x`, which is not below `first_x`.
    pub fn at(&self, x: u64) -> f64 {
        f64::from(self.start) + self.offset + self.slope * (x - self.first_x) as f64
    }
}

/// Cuts points into segments.
pub trait Regression {
    /// Adds a point: `x` above that of the point before, its run right after that point's or
    /// starting where that one ends. Returns the finished segment if the point begins another.
    fn push(&mut self, point: Point) -> Option<Segment>;

    /// Ends the open segment, if there is one. The next point begins another.
    fn finish(&mut self) -> Option<Segment>;
}

/// Which [`Regression`] a model is built with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fit {
    /// [`Greedy`].
    Greedy,
    /// [`Optimal`].
    #[default]
    Optimal,
}

/// The regression that a [`Fit`] names.
#[derive(Debug)]
pub(crate) enum AnyRegression {
    Greedy(Greedy),
    Optimal(Optimal),
}

impl AnyRegression {
    pub fn of(fit: Fit, delta: u32) -> Self {
        match fit {
            Fit::Greedy => Self::Greedy(Greedy::new(delta)),
            Fit::Optimal => Self::Optimal(Optimal::new(delta)),
        }
    }
}

impl Regression for AnyRegression {
    fn push(&mut self, point: Point) -> Option<Segment> {
        match self {
            Self::Greedy(greedy) => greedy.push(point),
            Self::Optimal(optimal) => optimal.push(point),
        }
    }

    fn finish(&mut self) -> Option<Segment> {
        match self {
            Self::Greedy(greedy) => greedy.finish(),
            Self::Optimal(optimal) => optimal.finish(),
        }
    }
}

/// Between which heights, in units above `start`, a line may pass `point`.
#[inline]
fn window(point: Point, start: u32, delta: u32) -> (i64, i64) {
    let above_start = |position: u32| i64::from(position) - i64::from(start);
    let floor = (above_start(point.last) - i64::from(delta)) * UNITS + ROUNDING_BELOW;
    let ceiling = (above_start(point.first) + i64::from(delta)) * UNITS - ROUNDING_ABOVE;
    (floor, ceiling)
}

#[cfg(test)]
mod tests;
