//! What the units of one filter cost and save: its false positive rate and its memory with every
//! number of units, and the steps between these numbers that are worth taking.
//!
//! Everything here is per lookup that the filter partition can only waste; how many of those there
//! are is its heat, by which the allocators multiply. Shared by all filter partitions of the same
//! shape.

/// One filter's false positive rates and memory by number of units.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Curve {
    points: Box<[Point]>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Point {
    /// False positives per lookup of an absent key.
    fpr: f64,
    charge_bytes: usize,
    up: Step,
    down: Step,
}

/// A change of the number of units.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Step {
    /// Units afterwards; those before if there is no step in this direction.
    pub units: u8,
    /// Bytes that the step takes or frees.
    pub bytes: usize,
    /// False positives per lookup of an absent key that the step removes or adds, per byte.
    pub slope: f64,
}

impl Curve {
    /// The curve of a filter with up to `units` units. Slots of memory come in sizes, so that a few bytes
    /// more may take less memory; here, no number of units takes less than a smaller one.
    pub fn new(units: u8, fpr: impl Fn(u8) -> f64, charge_bytes: impl Fn(u8) -> usize) -> Self {
        let none = Step { units: 0, bytes: 0, slope: 0.0 };
        let mut most_bytes = 0;
        let point = |units| {
            let fpr = fpr(units).clamp(0.0, 1.0);
            most_bytes = charge_bytes(units).max(most_bytes);
            Point { fpr, charge_bytes: most_bytes, up: none, down: none }
        };
        let mut points: Box<[Point]> = (0..=units).map(point).collect();
        for units in 0..points.len() {
            let steps = |others: std::ops::Range<usize>| {
                let points = &points;
                others.map(move |other| step(points, units, other))
            };
            let best = |a: Step, b: Step| if b.slope > a.slope { b } else { a };
            let up = steps(units + 1..points.len()).reduce(best);
            let worst = |a: Step, b: Step| if b.slope <= a.slope { b } else { a };
            let down = steps(0..units).reduce(worst);
            let stay = Step { units: units as u8, bytes: 0, slope: 0.0 };
            points[units].up = up.unwrap_or(stay);
            points[units].down = down.unwrap_or(stay);
        }
        Self { points }
    }

    fn point(&self, units: u8) -> &Point {
        &self.points[usize::from(units.min(self.units()))]
    }

    /// The most units.
    pub fn units(&self) -> u8 {
        (self.points.len() - 1) as u8
    }

    /// False positives per lookup of an absent key with `units` units.
    pub fn fpr(&self, units: u8) -> f64 {
        self.point(units).fpr
    }

    /// Memory of `units` units.
    pub fn charge_bytes(&self, units: u8) -> usize {
        self.point(units).charge_bytes
    }

    /// The step up that saves most per byte; `None` with all units loaded.
    #[inline]
    pub fn up(&self, units: u8) -> Option<Step> {
        Some(self.point(units).up).filter(|step| step.units > units)
    }

    /// The step down that costs least per byte; `None` without units.
    #[inline]
    pub fn down(&self, units: u8) -> Option<Step> {
        Some(self.point(units).down).filter(|step| step.units < units)
    }

    /// The steps from no units to all, each cheaper per saving than the next.
    pub fn climb(&self) -> impl Iterator<Item = Step> {
        let next = |step: &Step| self.up(step.units);
        std::iter::successors(self.up(0), next)
    }
}

fn step(points: &[Point], from: usize, to: usize) -> Step {
    let (low, high) = (points[from.min(to)], points[from.max(to)]);
    // A unit costs at least a byte, so that a slope is always a number.
    let bytes = high.charge_bytes.saturating_sub(low.charge_bytes).max(1);
    let slope = (low.fpr - high.fpr).max(0.0) / bytes as f64;
    Step { units: to as u8, bytes, slope }
}

/// Columns of a ribbon over `keys` keys, with a header of `header` bytes.
#[cfg(test)]
pub(super) fn ribbon(keys: usize, columns: u8, header: usize) -> Curve {
    let plane = keys.div_ceil(8);
    Curve::new(
        columns - 1,
        |units| if units == 0 { 1.0 } else { 0.5f64.powi(i32::from(units) + 1) },
        |units| if units == 0 { 0 } else { header + plane * (usize::from(units) + 1) },
    )
}

/// Bloom units of `bits` bits per key over `keys` keys, with a header of `header` bytes.
#[cfg(test)]
pub(super) fn bloom(keys: usize, bits: f64, units: u8, header: usize) -> Curve {
    let unit = (keys as f64 * bits / 8.0) as usize;
    Curve::new(
        units,
        |units| 0.6185f64.powf(bits * f64::from(units)),
        |units| if units == 0 { 0 } else { header + unit * usize::from(units) },
    )
}

#[cfg(test)]
mod tests;
