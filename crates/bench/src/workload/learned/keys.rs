//! The keys of `learned`, in sorted or no particular order, by number.
//!
//! Those that are numbers are spelled as Bourbon's: decimal digits, zero-padded to the key size.

use crate::catalog::key_set::KeySet;
use crate::package_names::find_packages;
use anyhow::{Result, ensure};
use std::io::Write;
use terrace_base::{Rng, SplitMix64};
use terrace_workload::distribution::read_popularity;
use terrace_workload::keys::Permutation;

/// The mean gap of the segmented kinds, in runs.
const MEAN_GAP_RUNS: u64 = 10;
/// The normal distribution's standard deviation, and its mean in these.
const DEVIATION: f64 = (1u64 << 40) as f64;
const MEAN_DEVIATIONS: f64 = 8.0;

/// The keys of one store, all different.
#[derive(Debug)]
pub enum Keys {
    /// Numbers, in order, spelled with this many digits.
    Numbers(Vec<u64>, usize),
    /// This many of YCSB's.
    Hashed(u64),
    /// Names.
    Names(Vec<Vec<u8>>),
}

impl Keys {
    /// `count` keys of kind `set`, or as many as there are of it.
    pub fn new(set: KeySet, count: u64, digits: usize, seed: u64) -> Result<Self> {
        let mut rng = SplitMix64::new(seed ^ 0x1ea2);
        let numbers = match set {
            KeySet::Linear => (0..count).collect(),
            KeySet::Segmented1 => segmented(count, 100, &mut rng),
            KeySet::Segmented10 => segmented(count, 10, &mut rng),
            KeySet::Normal => normal(count, &mut rng),
            KeySet::Ycsb => return Ok(Self::Hashed(count)),
            KeySet::Packages => return names(count, seed),
        };
        let last = numbers.last().copied().unwrap_or(0);
        ensure!(
            last.to_string().len() <= digits,
            "--key-size {digits} is too short for the digits of {last}"
        );
        Ok(Self::Numbers(numbers, digits))
    }

    /// How many there are.
    pub fn len(&self) -> u64 {
        match self {
            Self::Numbers(numbers, _) => numbers.len() as u64,
            Self::Hashed(count) => *count,
            Self::Names(names) => names.len() as u64,
        }
    }

    /// Bytes of all of them.
    pub fn bytes(&self) -> u64 {
        let mut key = Vec::new();
        let mut length = |index| {
            self.write(index, &mut key);
            key.len() as u64
        };
        match self {
            Self::Numbers(numbers, digits) => (numbers.len() * digits) as u64,
            _ => (0..self.len()).map(&mut length).sum(),
        }
    }

    /// Writes key number `index` over `key`.
    pub fn write(&self, index: u64, key: &mut Vec<u8>) {
        key.clear();
        // Writing into memory does not fail.
        match self {
            Self::Numbers(numbers, digits) => {
                let number = numbers.get(index as usize).copied().unwrap_or(0);
                write!(key, "{number:0digits$}").ok();
            }
            Self::Hashed(_) => {
                write!(key, "user{}", hash(index)).ok();
            }
            Self::Names(names) => {
                key.extend_from_slice(names.get(index as usize).map_or(b"", |name| name));
            }
        }
    }
}

/// Numbers in a row, a gap after every `run` of them.
fn segmented(count: u64, run: u64, rng: &mut SplitMix64) -> Vec<u64> {
    let mut next = 0;
    (0..count)
        .map(|index| {
            let number = next;
            next += 1;
            if (index + 1).is_multiple_of(run) {
                next += 1 + rng.below(2 * MEAN_GAP_RUNS * run);
            }
            number
        })
        .collect()
}

/// Different numbers from a normal distribution, in order (Box and Muller, "A note on the
/// generation of random normal deviates", 1958).
fn normal(count: u64, rng: &mut SplitMix64) -> Vec<u64> {
    let mut numbers: Vec<u64> = Vec::with_capacity(count as usize);
    while (numbers.len() as u64) < count {
        while (numbers.len() as u64) < count {
            let radius = (-2.0 * (1.0 - rng.unit()).ln()).sqrt();
            let angle = std::f64::consts::TAU * rng.unit();
            numbers.push(((radius * angle.cos() + MEAN_DEVIATIONS) * DEVIATION).max(0.0) as u64);
        }
        numbers.sort_unstable();
        numbers.dedup();
    }
    numbers
}

/// YCSB's `Utils.hash`: FNV-1a over the eight bytes of the number, its sign dropped.
fn hash(number: u64) -> u64 {
    let mixed = number.to_le_bytes().into_iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    mixed.cast_signed().unsigned_abs()
}

/// `count` names, chosen at random, or all.
fn names(count: u64, seed: u64) -> Result<Keys> {
    let lines = read_popularity(&find_packages()?)?;
    let order = Permutation::new(lines.len() as u64, seed);
    let mut names: Vec<Vec<u8>> = (0..)
        .zip(lines)
        .filter(|(index, _)| order.apply(*index) < count)
        .map(|(_, line)| line.name)
        .collect();
    names.sort_unstable();
    names.dedup();
    Ok(Keys::Names(names))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn all(set: KeySet, count: u64) -> Vec<Vec<u8>> {
        let keys = Keys::new(set, count, 16, 7).unwrap();
        let mut key = Vec::new();
        let written = (0..keys.len()).map(|index| {
            keys.write(index, &mut key);
            key.clone()
        });
        let all: Vec<Vec<u8>> = written.collect();
        assert_eq!(keys.bytes(), all.iter().map(|key| key.len() as u64).sum::<u64>());
        all
    }

    #[test]
    fn keys_are_as_many_as_asked_for_and_all_different() {
        for set in KeySet::ALL {
            let keys = all(set, 3000);
            let different: BTreeSet<&Vec<u8>> = keys.iter().collect();
            assert_eq!((keys.len(), different.len()), (3000, 3000), "{set}");
            assert_eq!(all(set, 3000), keys, "{set}");
            assert_eq!(set.to_string().parse::<KeySet>().unwrap(), set);
        }
        assert!("cubic".parse::<KeySet>().unwrap_err().to_string().contains("segmented-10"));
    }

    #[test]
    fn numbers_are_spelled_in_order_with_16_digits() {
        assert_eq!(all(KeySet::Linear, 1001)[1000], b"0000000000001000");
        for set in [KeySet::Segmented1, KeySet::Segmented10, KeySet::Normal] {
            let keys = all(set, 3000);
            assert!(keys.is_sorted() && keys.iter().all(|key| key.len() == 16), "{set}");
        }
        assert!(Keys::new(KeySet::Linear, 1001, 3, 7).is_err());
        assert!(Keys::new(KeySet::Linear, 1000, 3, 7).is_ok());
    }

    #[test]
    fn segmented_keys_come_in_runs() {
        for (run, share) in [(100, 1), (10, 10)] {
            let numbers = segmented(100_000, run, &mut SplitMix64::new(1));
            let gaps = numbers.windows(2).filter(|pair| pair[1] - pair[0] > 1).count();
            assert_eq!(gaps, 1000 * share - 1, "runs of {run}");
            let mean = *numbers.last().unwrap() as f64 / 1e5;
            assert!((10.0..12.0).contains(&mean), "{mean} numbers per key");
        }
    }

    #[test]
    fn normal_keys_have_their_mean_and_deviation() {
        let numbers = normal(50_000, &mut SplitMix64::new(1));
        let scaled = || numbers.iter().map(|n| *n as f64 / DEVIATION - MEAN_DEVIATIONS);
        let mean = scaled().sum::<f64>() / 5e4;
        let variance = scaled().map(|x| (x - mean) * (x - mean)).sum::<f64>() / 5e4;
        assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.05, "{mean} {variance}");
        let inside = scaled().filter(|x| x.abs() < 1.0).count() as f64 / 5e4;
        assert!((0.66..0.70).contains(&inside), "{inside} within one deviation");
    }

    #[test]
    fn ycsb_keys_are_hashes_of_numbers() {
        let keys = all(KeySet::Ycsb, 1000);
        for key in &keys {
            let digits = key.strip_prefix(b"user").unwrap();
            let number: u64 = std::str::from_utf8(digits).unwrap().parse().unwrap();
            assert!(number <= 1 << 63);
        }
        assert!(!keys.is_sorted());
    }
}
