//! Curves of the kinds, and that the climb is a hull.

use super::*;
use proptest::prelude::*;

#[test]
fn ribbon_columns_halve_the_rate_and_each_next_one_is_worth_half() {
    let curve = ribbon(16_000, 10, 0);
    assert_eq!(curve.units(), 9);
    let slopes: Vec<f64> = curve.climb().map(|step| step.slope).collect();
    assert_eq!(slopes.len(), 9);
    assert!((slopes[0] - 0.75 / 4000.0).abs() < 1e-12);
    assert!((slopes[1] - 0.125 / 2000.0).abs() < 1e-12);
    assert!(slopes[1..].windows(2).all(|pair| (pair[0] / pair[1] - 2.0).abs() < 1e-9));
    assert_eq!(curve.up(9), None);
    assert_eq!(curve.down(0), None);
    let down = curve.down(9).unwrap();
    assert_eq!((down.units, down.bytes), (8, 2000));
}

#[test]
fn a_large_header_makes_the_first_step_longer() {
    // 16-byte planes behind a header of 256 bytes: one unit alone is not worth its header.
    let curve = ribbon(128, 10, 256);
    let first = curve.climb().next().unwrap();
    assert!(first.units > 1, "{first:?}");
    // And going down, the last units go together.
    assert_eq!(curve.down(first.units).unwrap().units, 0);
}

proptest! {
    /// The climb is the lower convex hull: it ends with all units that save anything, its
    /// slopes fall, and no point lies below it.
    #[test]
    fn the_climb_is_a_hull(
        rates in prop::collection::vec(0.0f64..1.0, 1..12),
        bytes in prop::collection::vec(1usize..5000, 12),
    ) {
        let units = rates.len() as u8;
        let mut fpr = vec![1.0];
        for rate in &rates {
            fpr.push(fpr[fpr.len() - 1] * rate);
        }
        let mut charge = vec![0];
        for more in &bytes {
            charge.push(charge[charge.len() - 1] + more);
        }
        let curve = Curve::new(units, |u| fpr[usize::from(u)], |u| charge[usize::from(u)]);
        let steps: Vec<Step> = curve.climb().collect();
        prop_assert!(steps.windows(2).all(|p| p[0].slope >= p[1].slope * (1.0 - 1e-9)));
        prop_assert_eq!(steps.last().unwrap().units, units);
        let mut at = 0u8;
        for step in steps {
            for between in at..step.units {
                let chord = fpr[usize::from(at)]
                    - step.slope * (charge[usize::from(between)] - charge[usize::from(at)]) as f64;
                prop_assert!(fpr[usize::from(between)] >= chord - 1e-9);
            }
            at = step.units;
        }
    }
}

#[test]
fn more_units_never_take_less_memory() {
    let curve =
        Curve::new(3, |u| 1.0 / (1.0 + f64::from(u)), |u| [0, 112, 96, 200][usize::from(u)]);
    assert_eq!([0, 1, 2, 3].map(|u| curve.charge_bytes(u)), [0, 112, 112, 200]);
    let step = curve.up(1).unwrap();
    assert!(step.slope > 0.0 && !step.slope.is_nan(), "{step:?}");
}
