//! How many false positives an array of bits gives: the part that the models of the Bloom kinds
//! share.

/// The expected `fill^probes` of an array of `size` bits after `thrown` bits of it were set at
/// random: the textbook's `(1 - e^(-thrown / size))^probes`, exact for small arrays in the mean of
/// the fill, and to second order in its variance. Tens of nanoseconds.
pub(crate) fn array_fpr(size: f64, thrown: f64, probes: u32) -> f64 {
    let one_stays_empty = (thrown * (-1.0 / size).ln_1p()).exp();
    let two_stay_empty = (thrown * (-2.0 / size).ln_1p()).exp();
    power_of_fill(size, one_stays_empty, two_stay_empty, probes)
}

/// [`array_fpr`] for those who know the probabilities that one given bit, and that two given bits,
/// are still 0.
#[inline]
pub(crate) fn power_of_fill(
    size: f64,
    one_stays_empty: f64,
    two_stay_empty: f64,
    probes: u32,
) -> f64 {
    let fill = 1.0 - one_stays_empty;
    let variance = (1.0 - 1.0 / size) * two_stay_empty + one_stays_empty / size
        - one_stays_empty * one_stays_empty;
    if probes < 2 {
        return fill.powi(probes as i32);
    }
    let base = fill.powi(probes as i32 - 2);
    let pairs = f64::from(probes * (probes - 1)) / 2.0;
    (base * (fill * fill + pairs * variance.max(0.0))).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_array_is_the_textbooks() {
        for (bits, probes) in [(4.0, 3), (10.0, 7), (23.4, 16)] {
            let textbook = (1.0 - (-f64::from(probes) / bits).exp()).powi(probes as i32);
            let ratio = array_fpr(1e7, 1e7 / bits * f64::from(probes), probes) / textbook;
            assert!((ratio - 1.0).abs() < 1e-4, "{bits} bits: {ratio}");
        }
    }

    #[test]
    fn tiny_arrays_are_counted_out() {
        // Two bits, two throws: one bit is set with probability 1/2, else both.
        assert!((array_fpr(2.0, 2.0, 1) - 0.75).abs() < 1e-9);
        assert!((array_fpr(2.0, 2.0, 2) - 0.625).abs() < 1e-9);
        assert_eq!(array_fpr(512.0, 0.0, 4), 0.0);
    }
}
