//! `--filter`: which filters to build, in Terrace's words, and what the peers make of them.
//!
//! | text | Terrace | peers |
//! |---|---|---|
//! | `blocked:10` | all probes of a key in one cache line | their own Bloom filter of 10 bits |
//! | `bloom:10` | textbook Bloom filter | the same |
//! | `paired:23.4` | paired Bloom filter | Speedb's |
//! | `ribbon:10` | 10 columns, a false positive rate of 2^-10 | RocksDB's and Speedb's ribbon of that rate |
//! | `bloom:4x6` | six units of four bits | none |
//! | `none` | none | none |
//!
//! A ribbon's size is given to RocksDB as the bits per key at which its Bloom filter would have the
//! wanted rate; [`bloom_equivalent_bits`] finds them, so that `ribbon:10` is the same filter in
//! every engine that has one: equal rate, and bytes equal but for the construction.

use anyhow::{Error, anyhow};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
pub use terrace_filter::FilterPolicy;

/// Bits of a cache line, within which RocksDB's Bloom filter keeps a key's probes.
const LINE_BITS: f64 = 512.0;
/// More bits per key than this RocksDB does not take.
const MAX_BITS: f64 = 100.0;

/// A filter policy that travels between processes as the text it was given as.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FilterSpec(pub FilterPolicy);

/// What an engine that is not Terrace builds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PeerFilter {
    /// Nothing.
    None,
    /// The engine's Bloom filter, with this many bits per key.
    Bloom(f64),
    /// A ribbon, as small as a Bloom filter of this many bits per key is precise.
    Ribbon(f64),
    /// Speedb's paired Bloom filter, with this many bits per key.
    Paired(f64),
}

impl FilterSpec {
    /// What peers build; `None` if no peer has such a filter.
    pub fn for_peers(self) -> Option<PeerFilter> {
        match self.0 {
            FilterPolicy::None => Some(PeerFilter::None),
            FilterPolicy::Bloom { bits_per_unit, units: 1 }
            | FilterPolicy::BlockedBloom { bits_per_unit, units: 1 } => {
                Some(PeerFilter::Bloom(bits_per_unit))
            }
            FilterPolicy::PairedBloom { bits_per_unit, units: 1 } => {
                Some(PeerFilter::Paired(bits_per_unit))
            }
            FilterPolicy::Ribbon { columns } => {
                Some(PeerFilter::Ribbon(bloom_equivalent_bits(columns)))
            }
            _ => None,
        }
    }
}

impl FromStr for FilterSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        text.parse().map(Self).map_err(|error| anyhow!("--filter: {error}"))
    }
}

impl fmt::Display for FilterSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl TryFrom<String> for FilterSpec {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<FilterSpec> for String {
    fn from(spec: FilterSpec) -> Self {
        spec.to_string()
    }
}

/// Bits per key at which RocksDB's Bloom filter has a false positive rate of `2^-columns`, at most
/// `MAX_BITS`.
pub fn bloom_equivalent_bits(columns: u8) -> f64 {
    let wanted = 0.5f64.powi(i32::from(columns));
    let (mut low, mut high) = (1.0, MAX_BITS);
    for _ in 0..40 {
        let middle = (low + high) / 2.0;
        if rocksdb_bloom_fpr(middle) > wanted { low = middle } else { high = middle }
    }
    // RocksDB counts in thousandths.
    (high * 1000.0).round() / 1000.0
}

/// The false positive rate that RocksDB expects of its Bloom filter and sizes its ribbon by: the
/// mean of lines one standard deviation fuller and emptier than the average line
/// (`util/bloom_impl.h`, `CacheLocalFpRate` and `ChooseNumProbes`).
pub fn rocksdb_bloom_fpr(bits_per_key: f64) -> f64 {
    const PROBES_UP_TO: [f64; 12] =
        [2.08, 3.58, 5.1, 6.64, 8.3, 10.07, 11.72, 14.001, 16.05, 18.3, 22.001, 25.501];
    let probes = match PROBES_UP_TO.iter().position(|most| bits_per_key <= *most) {
        Some(fewer) => fewer as f64 + 1.0,
        None if bits_per_key > 50.0 => 24.0,
        None => ((bits_per_key - 0.001) / 2.0 - 1.0).floor(),
    };
    let keys = LINE_BITS / bits_per_key;
    let rate = |keys: f64| (1.0 - (-probes * keys / LINE_BITS).exp()).powf(probes);
    (rate(keys + keys.sqrt()) + rate((keys - keys.sqrt()).max(0.0))) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peers(text: &str) -> Option<PeerFilter> {
        text.parse::<FilterSpec>().unwrap().for_peers()
    }

    #[test]
    fn texts_survive_the_trip_to_another_process() {
        for text in ["none", "blocked:10", "bloom:4x6", "paired:23.4", "ribbon:10"] {
            let spec: FilterSpec = text.parse().unwrap();
            let json = serde_json::to_string(&spec).unwrap();
            assert_eq!(json, format!("\"{text}\""));
            assert_eq!(serde_json::from_str::<FilterSpec>(&json).unwrap(), spec);
        }
        for bad in ["bloom", "cuckoo:10", "bloom:x", "bloom:-1", "ribbon:9.5", "ribbon:1"] {
            let text = format!("{:#}", bad.parse::<FilterSpec>().unwrap_err());
            assert!(text.starts_with("--filter: "), "{text}");
        }
    }

    #[test]
    fn peers_build_what_they_have() {
        assert_eq!(peers("none"), Some(PeerFilter::None));
        assert_eq!(peers("blocked:10"), Some(PeerFilter::Bloom(10.0)));
        assert_eq!(peers("bloom:7.5"), Some(PeerFilter::Bloom(7.5)));
        assert_eq!(peers("paired:23.4"), Some(PeerFilter::Paired(23.4)));
        assert!(matches!(peers("ribbon:10"), Some(PeerFilter::Ribbon(_))));
        assert_eq!((peers("bloom:4x6"), peers("paired:4x2")), (None, None));
    }

    #[test]
    fn a_ribbon_is_asked_for_by_its_rate() {
        for columns in [2, 4, 7, 10, 16, 20] {
            let rate = rocksdb_bloom_fpr(bloom_equivalent_bits(columns));
            let wanted = 0.5f64.powi(i32::from(columns));
            assert!((0.9..=1.001).contains(&(rate / wanted)), "{columns} columns: {rate}");
        }
    }

    #[test]
    fn the_rate_at_ten_bits_is_the_published_one() {
        // RocksDB's documentation: 10 bits, 0.95 %.
        let rate = rocksdb_bloom_fpr(10.0);
        assert!((0.0090..0.0100).contains(&rate), "{rate}");
    }
}
