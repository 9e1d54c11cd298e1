//! The regressions against the published `plr` crate, which takes less into a segment than it
//! might: a point must itself lie between the extreme lines, where its window would do. So each
//! bounds the other, segment by segment:
//!
//! - points near one line of `plr`, within the bound, are one segment of [`Optimal`];
//! - points near one line of [`Optimal`] are one segment of `plr` for twice the bound: that line
//!   moved up or down by the bound is near all points so far, and passes above or below the next.
//!
//! `plr` calculates in `f64`, so numbers stay below 2^40. That no segment could be longer is tested
//! by brute force beside the regressions themselves.

use plr::{GreedyPLR, OptimalPLR};
use terrace_base::{Rng, SplitMix64};
use terrace_learned::regression::{Greedy, Optimal, Point, Regression, Segment};

const DELTA: u32 = 8;

/// The bound that lines here keep before they are rounded: 4/256 position less.
const INNER_BOUND: f64 = 8.0 - 4.0 / 256.0;

/// Twice the bound, and room for `plr`'s comparisons, which are strict.
const DOUBLE_BOUND: f64 = 16.0 + 1e-6;

fn data_sets() -> Vec<(&'static str, Vec<u64>)> {
    let mut rng = SplitMix64::new(11);
    let uniform: Vec<u64> = (0..10_000).map(|_| rng.below(1 << 40)).collect();
    let sums: Vec<u64> =
        (0..10_000).map(|_| (0..12).map(|_| rng.below(1 << 36)).sum::<u64>()).collect();
    let linear: Vec<u64> = (0..10_000).collect();
    let segmented: Vec<u64> =
        (0..10_000).map(|at| at + (at / 10) * (1 + rng.below(1000))).collect();
    let squares: Vec<u64> = (0..10_000).map(|at| at * at).collect();
    let sets = [
        ("uniform", uniform),
        ("normal", sums),
        ("linear", linear),
        ("segmented", segmented),
        ("squares", squares),
    ];
    sets.map(|(name, mut numbers)| {
        numbers.sort_unstable();
        numbers.dedup();
        (name, numbers)
    })
    .into()
}

fn segments(regression: &mut dyn Regression, points: &[Point]) -> Vec<Segment> {
    let mut segments: Vec<Segment> =
        points.iter().filter_map(|point| regression.push(*point)).collect();
    segments.extend(regression.finish());
    segments
}

/// The points of each piece that begins at one of `starts`.
fn pieces<'a>(points: &'a [Point], starts: &[u64]) -> Vec<&'a [Point]> {
    let place = |start: &u64| points.partition_point(|point| point.x < *start);
    let ends = starts[1..].iter().map(place).chain([points.len()]);
    starts.iter().map(place).zip(ends).map(|(from, to)| &points[from..to]).collect()
}

fn coordinates(points: &[Point]) -> impl Iterator<Item = (f64, f64)> {
    points.iter().map(|point| (point.x as f64, f64::from(point.first)))
}

#[test]
fn each_segment_of_one_is_a_segment_of_the_other() {
    for (name, numbers) in data_sets() {
        let points: Vec<Point> =
            (0..).zip(&numbers).map(|(at, x)| Point { x: *x, first: at, last: at }).collect();
        let mut plr = GreedyPLR::new(INNER_BOUND);
        let mut starts: Vec<u64> = coordinates(&points)
            .filter_map(|(x, y)| plr.process(x, y))
            .map(|segment| segment.start as u64)
            .collect();
        starts.extend(plr.finish().map(|segment| segment.start as u64));
        for piece in pieces(&points, &starts) {
            let near: Vec<Segment> = segments(&mut Optimal::new(DELTA), piece);
            assert_eq!(near.len(), 1, "{name}: {:?}", piece[0]);
        }
        let optimal = segments(&mut Optimal::new(DELTA), &points);
        let own: Vec<u64> = optimal.iter().map(|segment| segment.first_x).collect();
        for piece in pieces(&points, &own).iter().filter(|piece| piece.len() > 1) {
            let mut plr = OptimalPLR::new(DOUBLE_BOUND);
            let closed = coordinates(piece).filter_map(|(x, y)| plr.process(x, y)).count();
            assert_eq!(closed, 0, "{name}: {:?}", piece[0]);
        }
        let greedy = segments(&mut Greedy::new(DELTA), &points);
        assert!(optimal.len() <= greedy.len() && greedy.len() <= starts.len(), "{name}");
    }
}
