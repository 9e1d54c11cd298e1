//! Training on numbers: groups the positions of keys that tie, and cuts the rest into segments.
//!
//! A tie over at most `delta` positions is one [`Point`]; a longer one no line predicts, and it is a
//! piece of its own, a *run*: all a lookup learns is where it starts and ends.

use crate::regression::{AnyRegression, Fit, Point, Regression, Segment};

/// What a model is made of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Piece {
    /// A line for some points.
    Segment(Segment),
    /// Keys that have one number, over more than `delta` positions.
    Run { x: u64, start: u32 },
}

impl Piece {
    /// The greatest number of its keys.
    pub fn last_x(&self) -> u64 {
        match self {
            Self::Segment(segment) => segment.last_x,
            Self::Run { x, .. } => *x,
        }
    }
}

/// How many keys tie.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ties {
    pub tie_count: u64,
    pub longest: u64,
    pub run_count: u64,
    pub run_key_count: u64,
}

/// Takes numbers and positions in order; both may repeat.
#[derive(Debug)]
pub(crate) struct Trainer {
    regression: AnyRegression,
    delta: u32,
    open: Option<Point>,
    /// Keys in `open`.
    open_keys: u64,
    pieces: Vec<Piece>,
    ties: Ties,
}

impl Trainer {
    pub fn new(fit: Fit, delta: u32) -> Self {
        Self {
            regression: AnyRegression::of(fit, delta),
            delta,
            open: None,
            open_keys: 0,
            pieces: Vec::new(),
            ties: Ties::default(),
        }
    }

    /// Adds a key.
    #[inline]
    pub fn push(&mut self, x: u64, position: u32) {
        match &mut self.open {
            Some(open) if open.x == x => {
                open.last = position;
                self.open_keys += 1;
                self.ties.tie_count += 1;
            }
            _ => {
                self.close_point();
                self.open = Some(Point { x, first: position, last: position });
                self.open_keys = 1;
            }
        }
    }

    #[inline]
    fn close_point(&mut self) {
        let Some(point) = self.open.take() else { return };
        self.ties.longest = self.ties.longest.max(self.open_keys);
        if point.last - point.first <= self.delta {
            self.pieces.extend(self.regression.push(point).map(Piece::Segment));
            return;
        }
        self.pieces.extend(self.regression.finish().map(Piece::Segment));
        self.pieces.push(Piece::Run { x: point.x, start: point.first });
        self.ties.run_count += 1;
        self.ties.run_key_count += self.open_keys;
    }

    /// Pieces so far.
    pub fn piece_count(&self) -> usize {
        self.pieces.len()
    }

    pub fn finish(mut self) -> (Vec<Piece>, Ties) {
        self.close_point();
        self.pieces.extend(self.regression.finish().map(Piece::Segment));
        (self.pieces, self.ties)
    }
}
