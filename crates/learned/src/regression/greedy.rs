//! Greedy regression in constant time and memory per point: a cone of slopes with a fixed apex.
//!
//! Xie, Pang, Zhou, Zhang, Deng, "Maximum error-bounded Piecewise Linear Representation for online
//! stream approximation" (VLDB Journal 23, 2014), section 3; what Bourbon (OSDI 2020) trains with.
//! The apex is where the two extreme lines through the windows of the first two points cross, and
//! every further point narrows the cone; one that closes it begins the next segment.
//!
//! In `f64`, with `x` relative to the segment's first: the apex lies in the middle third between
//! the first two points, so `x` minus apex loses no digits, and each height on a line is off by at
//! most the segment's rise times 2^-50.

use super::{MAX_DELTA, Point, Regression, Segment, UNITS, window};

/// Greedy regression. See the module's head.
#[derive(Debug, Clone)]
pub struct Greedy {
    delta: u32,
    open: Option<Open>,
}

#[derive(Debug, Clone, Copy)]
struct Open {
    first: Point,
    last_x: u64,
    floor: f64,
    ceiling: f64,
    cone: Option<Cone>,
}

/// Lines through `(apex_x, apex_y)` with slopes from `low` to `high`.
#[derive(Debug, Clone, Copy)]
struct Cone {
    apex_x: f64,
    apex_y: f64,
    low: f64,
    high: f64,
}

impl Greedy {
    /// Regression with error bound `delta`, taken as 1 to [`MAX_DELTA`].
    pub fn new(delta: u32) -> Self {
        Self { delta: delta.clamp(1, MAX_DELTA), open: None }
    }

    fn begin(&mut self, point: Point) {
        let (floor, ceiling) = window(point, point.first, self.delta);
        self.open = Some(Open {
            first: point,
            last_x: point.x,
            floor: floor as f64,
            ceiling: ceiling as f64,
            cone: None,
        });
    }
}

impl Open {
    /// Takes the point in, if a line can.
    #[inline]
    fn accept(&mut self, point: Point, delta: u32) -> bool {
        let (floor, ceiling) = window(point, self.first.first, delta);
        let (floor, ceiling) = (floor as f64, ceiling as f64);
        let x = (point.x - self.first.x) as f64;
        let cone = match self.cone {
            None => {
                let widths = (self.ceiling - self.floor, ceiling - floor);
                let share = widths.0 / (widths.0 + widths.1);
                Cone {
                    apex_x: x * share,
                    apex_y: self.floor + (ceiling - self.floor) * share,
                    low: (floor - self.ceiling) / x,
                    high: (ceiling - self.floor) / x,
                }
            }
            Some(cone) => {
                let away = x - cone.apex_x;
                let low = cone.low.max((floor - cone.apex_y) / away);
                let high = cone.high.min((ceiling - cone.apex_y) / away);
                Cone { low, high, ..cone }
            }
        };
        if cone.low > cone.high {
            return false;
        }
        self.cone = Some(cone);
        self.last_x = point.x;
        true
    }

    fn segment(&self) -> Segment {
        let (slope, height) = match self.cone {
            None => (0.0, self.floor.midpoint(self.ceiling)),
            Some(cone) => {
                // The steepest line goes up, since windows do.
                let slope = cone.low.midpoint(cone.high).max(0.0);
                (slope, cone.apex_y - slope * cone.apex_x)
            }
        };
        Segment {
            first_x: self.first.x,
            last_x: self.last_x,
            start: self.first.first,
            slope: slope / UNITS as f64,
            offset: height / UNITS as f64,
        }
    }
}

impl Regression for Greedy {
    fn push(&mut self, point: Point) -> Option<Segment> {
        if let Some(open) = &mut self.open
            && open.accept(point, self.delta)
        {
            return None;
        }
        let finished = self.finish();
        self.begin(point);
        finished
    }

    fn finish(&mut self) -> Option<Segment> {
        self.open.take().map(|open| open.segment())
    }
}
