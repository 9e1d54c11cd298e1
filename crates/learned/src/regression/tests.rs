//! Lines stay within the bound on adversarial points; optimal is the fewest, by brute force.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use terrace_base::{Rng, SplitMix64};

fn segments(regression: &mut dyn Regression, points: &[Point]) -> Vec<Segment> {
    let mut segments: Vec<Segment> =
        points.iter().filter_map(|point| regression.push(*point)).collect();
    segments.extend(regression.finish());
    segments
}

/// Every point is near the line of its segment, segments follow each other, and none is empty.
fn check(segments: &[Segment], points: &[Point], delta: u32) {
    let mut at = 0;
    for segment in segments {
        assert_eq!((points[at].x, points[at].first), (segment.first_x, segment.start));
        assert!(segment.slope >= 0.0 && segment.slope.is_finite(), "{segment:?}");
        while at < points.len() && points[at].x <= segment.last_x {
            let (height, bound) = (segment.at(points[at].x), f64::from(delta));
            let (low, high) =
                (f64::from(points[at].last) - bound, f64::from(points[at].first) + bound);
            // Room for the roundings of the fixed form, which only go down.
            assert!(height - 3.0 / UNITS as f64 >= low && height <= high, "{height} {segment:?}");
            at += 1;
        }
    }
    assert_eq!(at, points.len());
}

/// Points with these gaps between numbers and these lengths of runs.
fn points(from: u64, gaps: &[u64], runs: &[u32]) -> Vec<Point> {
    let mut points: Vec<Point> = Vec::new();
    for (gap, run) in gaps.iter().zip(runs) {
        let (x, first) = match points.last() {
            None => (from, 0),
            Some(before) => match before.x.checked_add((*gap).max(1)) {
                Some(x) => (x, before.last + 1),
                None => break,
            },
        };
        points.push(Point { x, first, last: first + run });
    }
    points
}

/// Whether one line passes through all windows: through two bounds of them, if at all. Exact.
fn one_line_fits(points: &[Point], delta: u32) -> bool {
    if points.len() <= 2 {
        return true;
    }
    let windows: Vec<(i128, i128, i128)> = points
        .iter()
        .map(|point| {
            let (floor, ceiling) = window(*point, points[0].first, delta);
            (i128::from(point.x), i128::from(floor), i128::from(ceiling))
        })
        .collect();
    let bounds: Vec<(i128, i128)> =
        windows.iter().flat_map(|(x, floor, ceiling)| [(*x, *floor), (*x, *ceiling)]).collect();
    bounds.iter().any(|(x0, y0)| {
        bounds.iter().filter(|(x1, _)| x1 > x0).any(|(x1, y1)| {
            windows.iter().all(|(x, floor, ceiling)| {
                let height = (y1 - y0) * (x - x0);
                (floor - y0) * (x1 - x0) <= height && height <= (ceiling - y0) * (x1 - x0)
            })
        })
    })
}

/// The fewest segments: each as long as it can be.
fn fewest(points: &[Point], delta: u32) -> usize {
    let (mut count, mut from) = (0, 0);
    while from < points.len() {
        let mut to = from + 1;
        while to < points.len() && one_line_fits(&points[from..=to], delta) {
            to += 1;
        }
        (count, from) = (count + 1, to);
    }
    count
}

#[test]
fn a_straight_sequence_is_one_segment_whatever_its_numbers() {
    for (from, gap) in [(0, 1), (u64::MAX - 9999, 1), (1, u64::MAX / 10_000), (7, 10)] {
        let points = points(from, &vec![gap; 10_000], &vec![0; 10_000]);
        assert_eq!(points.len(), 10_000);
        for segments in
            [segments(&mut Greedy::new(1), &points), segments(&mut Optimal::new(1), &points)]
        {
            assert_eq!(segments.len(), 1);
            check(&segments, &points, 1);
        }
    }
}

#[test]
fn optimal_needs_fewer_segments_than_greedy_on_random_numbers() {
    let mut rng = SplitMix64::new(7);
    let mut numbers: Vec<u64> = (0..100_000).map(|_| rng.next_u64()).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let points: Vec<Point> =
        (0..).zip(&numbers).map(|(at, x)| Point { x: *x, first: at, last: at }).collect();
    let greedy = segments(&mut Greedy::new(8), &points);
    let optimal = segments(&mut Optimal::new(8), &points);
    check(&greedy, &points, 8);
    check(&optimal, &points, 8);
    assert!(optimal.len() * 10 < greedy.len() * 9, "{} {}", optimal.len(), greedy.len());
}

#[test]
fn nothing_and_one_point() {
    for fit in [Fit::Greedy, Fit::Optimal] {
        let mut regression = AnyRegression::of(fit, 8);
        assert_eq!(regression.finish(), None);
        let points = points(u64::MAX, &[1], &[3]);
        check(&segments(&mut regression, &points), &points, 8);
        assert_eq!(regression.finish(), None);
    }
}

fn gap() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 1u64..5,
        4 => 1u64..1000,
        2 => (0u32..64).prop_map(|shift| 1 << shift),
        1 => any::<u64>().prop_map(|gap| gap >> 8),
    ]
}

fn adversarial() -> impl Strategy<Value = (Vec<Point>, u32)> {
    let delta = prop_oneof![Just(1u32), Just(2), Just(8), Just(100), Just(MAX_DELTA)];
    (delta, any::<u64>(), 0u32..64, vec((gap(), any::<u32>()), 1..120)).prop_map(
        |(delta, from, shift, steps)| {
            let (gaps, runs): (Vec<u64>, Vec<u32>) = steps.into_iter().unzip();
            let runs: Vec<u32> =
                runs.iter().map(|run| if run % 3 == 0 { run % (delta + 1) } else { 0 }).collect();
            (points(from >> shift, &gaps, &runs), delta)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn lines_stay_within_the_bound((points, delta) in adversarial()) {
        check(&segments(&mut Greedy::new(delta), &points), &points, delta);
        check(&segments(&mut Optimal::new(delta), &points), &points, delta);
    }

    #[test]
    fn optimal_is_optimal((points, delta) in adversarial()) {
        let points = &points[..points.len().min(24)];
        let optimal = segments(&mut Optimal::new(delta), points).len();
        prop_assert_eq!(optimal, fewest(points, delta));
        prop_assert!(optimal <= segments(&mut Greedy::new(delta), points).len());
    }
}
