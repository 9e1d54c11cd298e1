//! A gain as it was lately, and how far it can be trusted.
//!
//! Two exponentially weighted means: of the gain, and of how far single measurements lie from it. A gain
//! that jumps to and fro from step to step has a mean that nothing can be built on, and its bounds say
//! so; one that has changed for good is known again after some [`MEMORY_STEPS`].

/// Measurements that count, about.
const MEMORY_STEPS: f64 = 4.0;
/// Weight of a new measurement.
const WEIGHT: f64 = 1.0 / MEMORY_STEPS;

/// See the module's head.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Smoothed {
    mean: f64,
    deviation: f64,
    /// Of one measurement, as the caller says, relative.
    noise: f64,
    count: u32,
}

impl Smoothed {
    /// Takes in a measurement with this relative standard error.
    pub fn note(&mut self, gain: f64, noise: f64) {
        let gain = if gain.is_finite() { gain.max(0.0) } else { 0.0 };
        // The first ones count alike.
        let weight = WEIGHT.max(1.0 / f64::from(self.count + 1));
        let off = (gain - self.mean).abs();
        if self.count > 0 {
            let weight = WEIGHT.max(1.0 / f64::from(self.count));
            self.deviation += weight * (off - self.deviation);
        }
        self.mean += weight * (gain - self.mean);
        self.noise += weight * (noise.clamp(0.0, 1.0) - self.noise);
        self.count = self.count.saturating_add(1);
    }

    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// The standard error of the mean: that of a weighted mean of as many as count, each off by what was
    /// seen or, if that is more, by what the caller says.
    fn error(&self) -> f64 {
        let weight = WEIGHT.max(1.0 / f64::from(self.count.max(1)));
        let one = self.deviation.max(self.noise * self.mean);
        one * (weight / (2.0 - weight)).sqrt()
    }

    /// It is hardly less than this.
    pub fn least(&self) -> f64 {
        (self.mean - self.error()).max(0.0)
    }

    /// It is hardly more than this.
    pub fn most(&self) -> f64 {
        self.mean + self.error()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(gains: impl IntoIterator<Item = f64>) -> Smoothed {
        let mut smoothed = Smoothed::default();
        gains.into_iter().for_each(|gain| smoothed.note(gain, 0.05));
        smoothed
    }

    #[test]
    fn what_is_steady_is_known_well() {
        let steady = after(std::iter::repeat_n(10.0, 20));
        assert_eq!(steady.mean(), 10.0);
        assert!((9.7..10.0).contains(&steady.least()) && (10.0..10.3).contains(&steady.most()));
        let first = after([10.0]);
        assert!(first.least() < 9.6, "{first:?}");
    }

    #[test]
    fn what_jumps_to_and_fro_is_not() {
        let jumps = after((0..40).map(|n| if n % 2 == 0 { 0.0 } else { 100.0 }));
        assert!((30.0..70.0).contains(&jumps.mean()), "{jumps:?}");
        assert!(jumps.most() > 1.5 * jumps.least(), "{jumps:?}");
    }

    #[test]
    fn what_has_changed_is_known_again_soon() {
        let changed = after(std::iter::repeat_n(1.0, 50).chain(std::iter::repeat_n(100.0, 16)));
        assert!(changed.least() > 90.0, "{changed:?}");
        let over = after(std::iter::repeat_n(100.0, 50).chain(std::iter::repeat_n(0.0, 16)));
        assert!(over.most() < 5.0, "{over:?}");
    }

    #[test]
    fn what_is_no_number_counts_as_nothing() {
        assert_eq!(after([f64::NAN, f64::INFINITY, -3.0]).most(), 0.0);
    }
}
