//! Zipf's law over ranks.

use terrace_base::{Rng, SplitMix64};

/// Zipf ranks `0..n`, exact, in constant time.
#[derive(Debug, Clone)]
pub struct Zipf {
    items: f64,
    exponent: f64,
    /// The integral of the hat at the left and right ends.
    left: f64,
    right: f64,
    /// Ranks this close above their draw are accepted without evaluating the law.
    squeeze: f64,
}

impl Zipf {
    pub(crate) fn new(items: u64, exponent: f64) -> Self {
        let items = items as f64;
        Self {
            items,
            exponent,
            left: integral(1.5, exponent) - 1.0,
            right: integral(items + 0.5, exponent),
            squeeze: 2.0 - inverse(integral(2.5, exponent) - 2f64.powf(-exponent), exponent),
        }
    }

    /// The next rank, from 0.
    #[inline]
    pub(crate) fn rank(&self, rng: &mut SplitMix64) -> u64 {
        loop {
            let u = self.right + rng.unit() * (self.left - self.right);
            let x = inverse(u, self.exponent);
            let rank = x.round().clamp(1.0, self.items);
            if rank - x <= self.squeeze
                || u >= integral(rank + 0.5, self.exponent) - rank.powf(-self.exponent)
            {
                return rank as u64 - 1;
            }
        }
    }
}

/// The integral of `x^-s`, continued through `s = 1`.
fn integral(x: f64, exponent: f64) -> f64 {
    let log = x.ln();
    let t = (1.0 - exponent) * log;
    if t.abs() > 1e-8 { log * t.exp_m1() / t } else { log * (1.0 + t / 2.0) }
}

/// The inverse of [`integral`].
fn inverse(y: f64, exponent: f64) -> f64 {
    let t = (y * (1.0 - exponent)).max(-1.0);
    if t.abs() > 1e-8 { (y * t.ln_1p() / t).exp() } else { (y * (1.0 - t / 2.0)).exp() }
}
