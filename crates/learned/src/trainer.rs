//! Training on numbers: groups the positions of keys that tie, cuts the rest into segments, and
//! puts every number to the line that it got.
//!
//! A tie over at most `delta` positions is one [`Point`]; a longer one no line predicts, and it is
//! a piece of its own, a *run*: all a lookup learns is where it starts and ends. The points of the
//! open segment are kept until it is closed, to measure how far its line, rounded as it will be
//! stored, is from each; so that nothing is stored that was not tried.

use crate::line::{Line, roundest};
use crate::regression::{AnyRegression, Fit, Point, Regression, Segment};
use crate::stats::ErrorDistribution;

/// The longest segment, in points. Bounds the memory for the open one to 3 MiB at worst, 1 MiB for
/// keys from any distribution; one more segment is nothing among these keys.
const MAX_SEGMENT_POINTS: usize = 1 << 16;

/// How many keys tie.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ties {
    pub tie_count: u64,
    pub longest: u64,
    pub run_count: u64,
    pub run_key_count: u64,
}

/// What training has made.
#[derive(Debug, Default)]
pub(crate) struct Trained {
    /// The least number of each line.
    pub heads: Vec<u64>,
    pub lines: Vec<Line>,
    pub ties: Ties,
    pub errors: ErrorDistribution,
    /// Whether every number was within `delta` of its line.
    pub proven: bool,
}

/// Takes numbers and positions in order; both may repeat.
#[derive(Debug)]
pub(crate) struct Trainer {
    regression: AnyRegression,
    delta: u32,
    /// The number that is being pushed.
    point: Option<Point>,
    /// Its keys.
    point_keys: u64,
    /// The open segment.
    points: Vec<Point>,
    /// The last number before it.
    before: Option<u64>,
    trained: Trained,
}

impl Trainer {
    pub fn new(fit: Fit, delta: u32) -> Self {
        Self {
            regression: AnyRegression::of(fit, delta),
            delta,
            point: None,
            point_keys: 0,
            points: Vec::new(),
            before: None,
            trained: Trained { proven: true, ..Trained::default() },
        }
    }

    /// Adds a key.
    #[inline]
    pub fn push(&mut self, x: u64, position: u32) {
        match &mut self.point {
            Some(point) if point.x == x => {
                point.last = position;
                self.point_keys += 1;
                self.trained.ties.tie_count += 1;
            }
            _ => {
                self.close_point();
                self.point = Some(Point { x, first: position, last: position });
                self.point_keys = 1;
            }
        }
    }

    #[inline]
    fn close_point(&mut self) {
        let Some(point) = self.point.take() else { return };
        let ties = &mut self.trained.ties;
        ties.longest = ties.longest.max(self.point_keys);
        if point.last - point.first > self.delta {
            ties.run_count += 1;
            ties.run_key_count += self.point_keys;
            self.close_segment();
            self.close_run(point);
            return;
        }
        if self.points.len() == MAX_SEGMENT_POINTS {
            self.close_segment();
        }
        if let Some(segment) = self.regression.push(point) {
            self.add_line(&segment);
        }
        self.points.push(point);
    }

    fn close_run(&mut self, point: Point) {
        let least = self.before.map_or(0, |before| before.saturating_add(1));
        self.trained.heads.push(roundest(least, point.x));
        self.trained.lines.push(Line::run(point.first));
        self.before = Some(point.x);
    }

    fn close_segment(&mut self) {
        if let Some(segment) = self.regression.finish() {
            self.add_line(&segment);
        }
    }

    fn add_line(&mut self, segment: &Segment) {
        let (head, line) = Line::of(segment, self.before, self.delta);
        for point in self.points.drain(..) {
            let predicted = line.position(point.x - head, self.delta);
            let error = predicted.abs_diff(i64::from(point.first));
            let error = error.max(predicted.abs_diff(i64::from(point.last)));
            self.trained.proven &= error <= u64::from(self.delta);
            self.trained.errors.record(error as u32, self.delta);
        }
        self.trained.heads.push(head);
        self.trained.lines.push(line);
        self.before = Some(segment.last_x);
    }

    /// Lines so far, without the open one.
    pub fn line_count(&self) -> usize {
        self.trained.lines.len()
    }

    pub fn finish(mut self) -> Trained {
        self.close_point();
        self.close_segment();
        self.trained
    }
}
