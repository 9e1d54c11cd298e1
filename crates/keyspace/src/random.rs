//! Random numbers for commands that pick members. Not for secrets.

use std::hash::{BuildHasher, Hasher, RandomState};

/// A number between 0 and `end`, exclusive; 0 if that is 0. From the seeds of the standard
/// library's hash maps, which differ from process to process and from call to call.
pub(crate) fn below(end: u64) -> u64 {
    let random = RandomState::new().build_hasher().finish();
    ((u128::from(random) * u128::from(end)) >> 64) as u64
}

/// A number of 64 bits.
pub(crate) fn word() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_below_the_end_comes_about_as_often_as_any_other() {
        let mut counts = [0; 10];
        for _ in 0..10_000 {
            counts[below(10) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (800..1200).contains(count)), "{counts:?}");
        assert_eq!(below(0), 0);
        assert_eq!(below(1), 0);
    }
}
