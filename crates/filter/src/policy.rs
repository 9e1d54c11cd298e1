//! Which filters to build, and how it is said in options: `none`, `ribbon:10` (columns),
//! `blocked:10`, `paired:23.4`, `bloom:10` (bits per key), `bloom:4x6` (six units of four bits).

use crate::layout::{FilterKind, MAX_UNITS};
use std::fmt;
use std::str::FromStr;

/// Fewest columns of a ribbon: its first unit holds two.
const MIN_COLUMNS: u8 = 2;
/// Most columns of a ribbon.
const MAX_COLUMNS: u8 = 32;
/// Fewest bits per key of a Bloom unit.
const MIN_BITS: f64 = 1.0;
/// Most bits per key of a Bloom unit.
const MAX_BITS: f64 = 64.0;
/// Units of Bloom filters come in multiples of this.
const BLOCK_BYTES: usize = 64;
/// At least what a ribbon of some thousand keys needs, rounding included.
const SLOTS_PER_KEY: f64 = 1.035;

/// Which filters to build.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FilterPolicy {
    /// None.
    None,
    /// Units of Bloom filters in the textbook's form.
    Bloom {
        /// Bits per key of each unit, 1 to 64.
        bits_per_unit: f64,
        /// Units, 1 to [`MAX_UNITS`].
        units: u8,
    },
    /// Units of Bloom filters with all probes of a key in one cache line.
    BlockedBloom {
        /// Bits per key of each unit, 1 to 64.
        bits_per_unit: f64,
        /// Units, 1 to [`MAX_UNITS`].
        units: u8,
    },
    /// Units of paired Bloom filters.
    PairedBloom {
        /// Bits per key of each unit, 1 to 64; fractions count.
        bits_per_unit: f64,
        /// Units, 1 to [`MAX_UNITS`].
        units: u8,
    },
    /// A ribbon filter in bit planes.
    Ribbon {
        /// Bit planes, 2 to 32; each takes about 1.02 bits per key and halves the false
        /// positives.
        columns: u8,
    },
}

impl FilterPolicy {
    /// The kind of filter, unless there is none.
    pub fn kind(&self) -> Option<FilterKind> {
        match self {
            Self::None => None,
            Self::Bloom { .. } => Some(FilterKind::Bloom),
            Self::BlockedBloom { .. } => Some(FilterKind::BlockedBloom),
            Self::PairedBloom { .. } => Some(FilterKind::PairedBloom),
            Self::Ribbon { .. } => Some(FilterKind::Ribbon),
        }
    }

    /// Bits per key of all units together, for a ribbon its columns; 0 without a filter.
    pub fn bits_per_key(&self) -> f64 {
        let (bits, units) = self.bits_and_units();
        bits * f64::from(units)
    }

    /// How many keys a partition may have so that its largest unit, which a reader loads at once,
    /// takes at most `bytes`; at least 1.
    pub fn largest_unit_keys(&self, bytes: usize) -> usize {
        let whole_blocks =
            |bits: f64| ((bytes / BLOCK_BYTES).max(1) * BLOCK_BYTES) as f64 * 8.0 / bits;
        let keys = match self {
            Self::None => f64::INFINITY,
            Self::Ribbon { .. } => whole_blocks(f64::from(MIN_COLUMNS)) / SLOTS_PER_KEY,
            _ => whole_blocks(self.bits_and_units().0),
        };
        (keys as usize).max(1)
    }

    pub(crate) fn bits_and_units(&self) -> (f64, u8) {
        match *self {
            Self::None => (0.0, 0),
            Self::Bloom { bits_per_unit, units }
            | Self::BlockedBloom { bits_per_unit, units }
            | Self::PairedBloom { bits_per_unit, units } => (bits_per_unit, units),
            Self::Ribbon { columns } => (1.0, columns),
        }
    }

    /// Refuses numbers out of range, saying which and what the range is.
    pub fn check(&self) -> Result<(), PolicyError> {
        match *self {
            Self::None => Ok(()),
            Self::Ribbon { columns } if (MIN_COLUMNS..=MAX_COLUMNS).contains(&columns) => Ok(()),
            Self::Ribbon { columns } => Err(PolicyError(format!(
                "a ribbon has {MIN_COLUMNS} to {MAX_COLUMNS} columns, not {columns}"
            ))),
            _ => {
                let (bits, units) = self.bits_and_units();
                if !(MIN_BITS..=MAX_BITS).contains(&bits) {
                    let range = format!("{MIN_BITS} to {MAX_BITS}");
                    return Err(PolicyError(format!(
                        "a filter unit has {range} bits per key, not {bits}"
                    )));
                }
                if !(1..=MAX_UNITS).contains(&units) {
                    return Err(PolicyError(format!(
                        "a filter has 1 to {MAX_UNITS} units, not {units}"
                    )));
                }
                Ok(())
            }
        }
    }
}

impl fmt::Display for FilterPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(kind) = self.kind() else { return f.write_str("none") };
        match *self {
            Self::Ribbon { columns } => write!(f, "{}:{columns}", kind.name()),
            _ => match self.bits_and_units() {
                (bits, 1) => write!(f, "{}:{bits}", kind.name()),
                (bits, units) => write!(f, "{}:{bits}x{units}", kind.name()),
            },
        }
    }
}

/// Why a text or its numbers are no [`FilterPolicy`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyError(String);

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PolicyError {}

impl FromStr for FilterPolicy {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let malformed = || {
            PolicyError(format!(
                "\"{text}\" is no filter: say none, ribbon:COLUMNS, or blocked, paired or bloom \
                 with :BITS or :BITSxUNITS, such as ribbon:10, paired:23.4, bloom:4x6"
            ))
        };
        if text == "none" {
            return Ok(Self::None);
        }
        let (kind, size) = text.split_once(':').ok_or_else(malformed)?;
        let policy = if kind == "ribbon" {
            Self::Ribbon { columns: size.parse().map_err(|_| malformed())? }
        } else {
            let (bits, units) = size.split_once('x').unwrap_or((size, "1"));
            let bits_per_unit = bits.parse().map_err(|_| malformed())?;
            let units = units.parse().map_err(|_| malformed())?;
            match kind {
                "bloom" => Self::Bloom { bits_per_unit, units },
                "blocked" => Self::BlockedBloom { bits_per_unit, units },
                "paired" => Self::PairedBloom { bits_per_unit, units },
                _ => return Err(malformed()),
            }
        };
        policy.check()?;
        Ok(policy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_round_trip() {
        for text in ["none", "ribbon:10", "paired:23.4", "bloom:4x6", "blocked:10", "bloom:2.5x32"]
        {
            assert_eq!(text.parse::<FilterPolicy>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn nonsense_is_refused_with_a_reason() {
        for text in [
            "",
            "ribbon",
            "ribbon:1",
            "ribbon:33",
            "ribbon:4x2",
            "bloom:0",
            "bloom:NaN",
            "bloom:65",
            "bloom:4x0",
            "bloom:4x33",
            "bloom:4x",
            "cuckoo:8",
            "blocked:-3",
            "none:1",
        ] {
            let error = text.parse::<FilterPolicy>().unwrap_err();
            assert!(error.to_string().len() > 20, "{text}: {error}");
        }
    }
}
