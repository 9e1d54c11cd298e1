//! The regressions against brute force over data sets of several kinds: no segment of [`Optimal`]
//! could be longer, none of [`Greedy`] is, and every point is near its line.
//!
//! Whether one line can be near some points is decided pair by pair: a slope works for two points
//! if it lies between those of the steepest and the flattest line through their windows, and one
//! slope works for all points if the intervals of all pairs have one in common (Helly's theorem in
//! one dimension: two by two is enough). In exact arithmetic over `i128` fractions.

use std::cmp::Ordering;
use terrace_base::{Rng, SplitMix64};
use terrace_learned::regression::{Greedy, Optimal, Point, Regression, Segment};

const DELTA: u32 = 8;

/// Points per data set: brute force looks at all pairs of a segment.
const POINTS: u64 = 3000;

/// Heights in 1/256 position: the bound, and what lines keep inside it for rounding.
const UNITS: i128 = 256;
const INNER_BELOW: i128 = DELTA as i128 * UNITS - 4;
const INNER_ABOVE: i128 = DELTA as i128 * UNITS - 1;

/// Further points that a segment must not be able to take, with the room that rounding in floating
/// point may cost.
const SLACK: i128 = 1;

fn data_sets() -> Vec<(&'static str, Vec<u64>)> {
    let mut rng = SplitMix64::new(11);
    let uniform: Vec<u64> = (0..POINTS).map(|_| rng.below(1 << 40)).collect();
    let sums: Vec<u64> =
        (0..POINTS).map(|_| (0..12).map(|_| rng.below(1 << 36)).sum::<u64>()).collect();
    let linear: Vec<u64> = (0..300).collect();
    let segmented: Vec<u64> =
        (0..POINTS).map(|at| at + (at / 10) * (1 + rng.below(1000))).collect();
    let squares: Vec<u64> = (0..POINTS).map(|at| at * at).collect();
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

/// A fraction with a positive denominator.
#[derive(Clone, Copy)]
struct Slope(i128, i128);

impl Slope {
    fn cmp(self, other: Self) -> Ordering {
        (self.0 * other.1).cmp(&(other.0 * self.1))
    }
}

/// Whether one line that does not fall passes within the inner bound, less `slack`, of all points.
fn one_line_is_near(points: &[Point], slack: i128) -> bool {
    let (mut flattest, mut steepest) = (Slope(0, 1), Slope(i128::from(u64::MAX), 1));
    for (at, left) in points.iter().enumerate() {
        for right in &points[at + 1..] {
            let run = i128::from(right.x - left.x);
            let rise = (i128::from(right.first) - i128::from(left.first)) * UNITS;
            let room = INNER_BELOW + INNER_ABOVE - 2 * slack;
            let (low, high) = (Slope(rise - room, run), Slope(rise + room, run));
            flattest = if flattest.cmp(low) == Ordering::Less { low } else { flattest };
            steepest = if steepest.cmp(high) == Ordering::Greater { high } else { steepest };
        }
    }
    flattest.cmp(steepest) != Ordering::Greater
}

fn segments(regression: &mut dyn Regression, points: &[Point]) -> Vec<Segment> {
    let mut segments: Vec<Segment> =
        points.iter().filter_map(|point| regression.push(*point)).collect();
    segments.extend(regression.finish());
    segments
}

#[test]
fn no_segment_could_be_longer() {
    for (name, numbers) in data_sets() {
        let points: Vec<Point> =
            (0..).zip(&numbers).map(|(at, x)| Point { x: *x, first: at, last: at }).collect();
        let optimal = segments(&mut Optimal::new(DELTA), &points);
        let greedy = segments(&mut Greedy::new(DELTA), &points);
        assert!(optimal.len() <= greedy.len(), "{name}");
        for (segments, longest) in [(&optimal, true), (&greedy, false)] {
            let mut at = 0;
            for segment in segments {
                let own = points[at..].iter().take_while(|point| point.x <= segment.last_x).count();
                assert_eq!(points[at].x, segment.first_x, "{name}");
                let taken = &points[at..at + own];
                for point in taken {
                    let off = segment.at(point.x) - f64::from(point.first);
                    assert!(off.abs() <= f64::from(DELTA), "{name}: {point:?} is {off} off");
                }
                assert!(one_line_is_near(taken, 0), "{name}: {segment:?}");
                at += own;
                if longest && at < points.len() {
                    let more = &points[at - own..=at];
                    assert!(!one_line_is_near(more, SLACK), "{name}: {segment:?} could go on");
                }
            }
            assert_eq!(at, points.len(), "{name}");
        }
    }
}
