//! A time series of wasted reads, and how soon it was back after a disturbance.

/// Being back means being within this factor of the steady state.
pub const TOLERANCE: f64 = 1.2;
/// For this many steps on average: a step alone may be low by chance.
pub const WINDOW_STEPS: usize = 3;

/// Counts at one moment since some beginning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sample {
    /// Lookups.
    pub lookups: u64,
    /// Lookups that found their key, and needed one read for it.
    pub found: u64,
    /// Read calls.
    pub reads: u64,
}

/// Wasted reads per lookup between each sample and the next, `overhead` read calls of sampling
/// itself taken off. Not below 0: a read in flight when a sample was taken counts in the next step.
pub fn wasted_per_lookup(samples: &[Sample], overhead: u64) -> Vec<f64> {
    let between = |pair: &[Sample]| {
        let (from, to) = (pair[0], pair[1]);
        let lookups = to.lookups - from.lookups;
        let needed = (to.found - from.found + overhead) as f64;
        let wasted = (to.reads - from.reads) as f64 - needed;
        if lookups == 0 { 0.0 } else { (wasted / lookups as f64).max(0.0) }
    };
    samples.windows(2).map(between).collect()
}

/// The mean of the steps before the disturbance, which came after `steady_steps` of them.
pub fn steady(series: &[f64], steady_steps: usize) -> f64 {
    let before = &series[..steady_steps.min(series.len())];
    if before.is_empty() { 0.0 } else { before.iter().sum::<f64>() / before.len() as f64 }
}

/// Lookups after the disturbance until the series was back: to the end of the first step that begins
/// [`WINDOW_STEPS`] whose mean is within [`TOLERANCE`] of the steady state (or within one read a
/// step, where that is more). `None` if there are no such steps.
pub fn recovery_ops(series: &[f64], steady_steps: usize, step_ops: u64) -> Option<u64> {
    let bound = (steady(series, steady_steps) * TOLERANCE).max(1.0 / step_ops as f64);
    let after = series.get(steady_steps..)?;
    let back = after
        .windows(WINDOW_STEPS)
        .position(|window| window.iter().sum::<f64>() / WINDOW_STEPS as f64 <= bound)?;
    Some((back as u64 + 1) * step_ops)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_differences_less_what_was_needed() {
        let sample = |lookups, found, reads| Sample { lookups, found, reads };
        let samples = [
            sample(0, 0, 7),
            sample(100, 50, 7 + 50 + 20 + 2),
            sample(200, 110, 7 + 110 + 25 + 4),
            sample(300, 160, 7 + 158 + 25 + 6),
            sample(300, 160, 200),
        ];
        assert_eq!(wasted_per_lookup(&samples, 2), [0.2, 0.05, 0.0, 0.0]);
        assert!(wasted_per_lookup(&samples[..1], 2).is_empty());
    }

    #[test]
    fn recovery_is_counted_from_the_jump_to_the_end_of_the_step() {
        let series = [0.1, 0.1, 0.9, 0.5, 0.2, 0.13, 0.11, 0.11, 0.10, 0.12];
        assert!((steady(&series, 2) - 0.1).abs() < 1e-12);
        // Steps 5, 6 and 7 have a mean of 0.117; step 5 is the fourth after the jump.
        assert_eq!(recovery_ops(&series, 2, 1000), Some(4000));
    }

    #[test]
    fn a_single_low_step_is_not_back() {
        let series = [0.1, 0.9, 0.1, 0.9, 0.9, 0.9];
        assert_eq!(recovery_ops(&series, 1, 10), None);
        assert_eq!(recovery_ops(&series[..3], 1, 10), None);
        assert_eq!(recovery_ops(&[], 1, 10), None);
    }

    #[test]
    fn without_any_disturbance_it_is_back_after_one_step() {
        assert_eq!(recovery_ops(&[0.3; 8], 4, 10_000), Some(10_000));
        // Nothing wasted at all: one read in a step is no disturbance.
        assert_eq!(recovery_ops(&[0.0, 0.0, 1e-4, 0.0, 1e-4], 2, 10_000), Some(10_000));
    }
}
