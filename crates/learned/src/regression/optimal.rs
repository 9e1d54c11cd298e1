//! Optimal regression: no other cut within the bound has fewer segments.
//!
//! O'Rourke, "An on-line algorithm for fitting straight lines between data ranges" (CACM 24, 1981),
//! in the form that the PGM-index uses (Ferragina, Vinciguerra, PVLDB 13, 2020, section 2.1). A
//! line fits a segment if it passes above the floor and below the ceiling of every point. Two
//! extreme lines bound all that fit: the *shallow* one from a ceiling down to a later floor, the
//! *steep* one from a floor up to a later ceiling. A point is refused when its ceiling lies below
//! the shallow line or its floor above the steep one; else it may pull either line in, whose other
//! end is then found on a convex hull. Hulls lose their points in order, so a point costs constant
//! time on average.
//!
//! Decisions are made in integers and exact; only the line that is picked in the end, halfway
//! between the extremes, is in `f64`.

use super::{MAX_DELTA, Point, Regression, Segment, UNITS, window};
use std::cmp::Ordering;

/// Optimal regression. See the module's head. Memory: the hulls of the open segment, a few corners
/// for keys from any distribution, 32 bytes per point at worst.
#[derive(Debug, Clone)]
pub struct Optimal {
    delta: u32,
    /// The first point of the open segment; its other fields mean nothing without.
    first: Option<Point>,
    last_x: u64,
    shallow: Line,
    steep: Line,
    ceilings: Hull,
    floors: Hull,
}

/// A bound of a line, relative to the segment's first point; `y` in units.
#[derive(Debug, Clone, Copy, Default)]
struct Corner {
    x: u64,
    y: i64,
}

/// A line through two corners, the left one first.
#[derive(Debug, Clone, Copy, Default)]
struct Line {
    left: Corner,
    right: Corner,
}

impl Line {
    /// Compares slopes. Exact: heights are below 2^42 and `x` below 2^64.
    #[inline]
    fn cmp_slope(&self, other: &Self) -> Ordering {
        let rise = |line: &Self| i128::from(line.right.y - line.left.y);
        let run = |line: &Self| i128::from(line.right.x - line.left.x);
        (rise(self) * run(other)).cmp(&(rise(other) * run(self)))
    }

    fn slope(&self) -> f64 {
        (self.right.y - self.left.y) as f64 / (self.right.x - self.left.x) as f64
    }

    /// Its height at the segment's first point.
    fn height(&self) -> f64 {
        self.left.y as f64 - self.slope() * self.left.x as f64
    }
}

/// One side of a convex hull; corners before `from` can be no end of an extreme line any more.
#[derive(Debug, Clone, Default)]
struct Hull {
    corners: Vec<Corner>,
    from: usize,
}

impl Hull {
    fn restart(&mut self, corner: Corner) {
        self.corners.clear();
        self.corners.push(corner);
        self.from = 0;
    }

    /// The line to `right` from the corner that makes it least (or greatest) in slope: the one
    /// whose slope compares as `best` to all others. Drops the corners before it.
    #[inline]
    fn tangent(&mut self, right: Corner, best: Ordering) -> Line {
        let mut line = Line { left: self.corners[self.from], right };
        for at in self.from + 1..self.corners.len() {
            let next = Line { left: self.corners[at], right };
            if next.cmp_slope(&line) == best.reverse() {
                break;
            }
            line = next;
            self.from = at;
        }
        line
    }

    /// Adds a corner at the right end, and drops those that are no corners any more: where the turn
    /// to the new one does not go as `turn` says.
    #[inline]
    fn push(&mut self, corner: Corner, turn: Ordering) {
        while let [.., before, last] = self.corners[self.from..] {
            let (into, out) =
                (Line { left: before, right: last }, Line { left: last, right: corner });
            if out.cmp_slope(&into) == turn {
                break;
            }
            self.corners.pop();
        }
        self.corners.push(corner);
    }
}

impl Optimal {
    /// Regression with error bound `delta`, taken as 1 to [`MAX_DELTA`].
    pub fn new(delta: u32) -> Self {
        Self {
            delta: delta.clamp(1, MAX_DELTA),
            first: None,
            last_x: 0,
            shallow: Line::default(),
            steep: Line::default(),
            ceilings: Hull::default(),
            floors: Hull::default(),
        }
    }

    fn begin(&mut self, point: Point) {
        let (floor, ceiling) = window(point, point.first, self.delta);
        self.first = Some(point);
        self.last_x = point.x;
        self.floors.restart(Corner { x: 0, y: floor });
        self.ceilings.restart(Corner { x: 0, y: ceiling });
    }

    /// Takes the point into the segment that began with `first`, if a line can.
    #[inline]
    fn accept(&mut self, first: Point, point: Point) -> bool {
        let (floor, ceiling) = window(point, first.first, self.delta);
        let x = point.x - first.x;
        let (floor, ceiling) = (Corner { x, y: floor }, Corner { x, y: ceiling });
        if self.last_x == first.x {
            self.shallow = Line { left: self.ceilings.corners[0], right: floor };
            self.steep = Line { left: self.floors.corners[0], right: ceiling };
            self.ceilings.corners.push(ceiling);
            self.floors.corners.push(floor);
            self.last_x = point.x;
            return true;
        }
        let to_ceiling = |line: &Line| Line { left: line.right, right: ceiling }.cmp_slope(line);
        let to_floor = |line: &Line| Line { left: line.right, right: floor }.cmp_slope(line);
        if to_ceiling(&self.shallow).is_lt() || to_floor(&self.steep).is_gt() {
            return false;
        }
        let pulls_steep = to_ceiling(&self.steep).is_lt();
        let pulls_shallow = to_floor(&self.shallow).is_gt();
        if pulls_steep {
            self.steep = self.floors.tangent(ceiling, Ordering::Less);
        }
        if pulls_shallow {
            self.shallow = self.ceilings.tangent(floor, Ordering::Greater);
        }
        if pulls_steep {
            self.ceilings.push(ceiling, Ordering::Greater);
        }
        if pulls_shallow {
            self.floors.push(floor, Ordering::Less);
        }
        self.last_x = point.x;
        true
    }

    fn segment(&self, first: Point) -> Segment {
        let (slope, height) = if self.last_x == first.x {
            (0.0, (self.floors.corners[0].y as f64).midpoint(self.ceilings.corners[0].y as f64))
        } else {
            let (low, high) = (self.shallow.slope(), self.steep.slope());
            // Any mean of two lines that fit is one. The steep one goes up, since windows do; if
            // half is still downwards, as much of it as makes the line level.
            let share = if low + high >= 0.0 { 0.5 } else { -low / (high - low) };
            let height = self.shallow.height() * (1.0 - share) + self.steep.height() * share;
            ((low * (1.0 - share) + high * share).max(0.0), height)
        };
        Segment {
            first_x: first.x,
            last_x: self.last_x,
            start: first.first,
            slope: slope / UNITS as f64,
            offset: height / UNITS as f64,
        }
    }
}

impl Regression for Optimal {
    fn push(&mut self, point: Point) -> Option<Segment> {
        if let Some(first) = self.first
            && self.accept(first, point)
        {
            return None;
        }
        let finished = self.finish();
        self.begin(point);
        finished
    }

    fn finish(&mut self) -> Option<Segment> {
        self.first.take().map(|first| self.segment(first))
    }
}
