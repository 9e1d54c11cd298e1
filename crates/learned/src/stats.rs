//! What is known of a model: how near its lines are, how many keys tie, what it takes.
//!
//! Counted when the model is built, over every key, and stored with it; for inspection only.

use std::fmt;
use terrace_base::Decoder;
use terrace_base::codec::put_varint;

/// Slots of an [`ErrorDistribution`]: exact predictions, and eighths of the error bound.
pub const ERROR_SLOTS: usize = 9;

/// How far predictions are from positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ErrorDistribution {
    /// The greatest distance.
    pub max: u32,
    /// All distances together.
    pub sum: u64,
    /// Slot 0: exact; slot `i`: over `i - 1` and at most `i` eighths of the error bound.
    pub slots: [u64; ERROR_SLOTS],
}

impl ErrorDistribution {
    /// Counts one prediction, which is off by at most `delta`.
    pub(crate) fn record(&mut self, error: u32, delta: u32) {
        self.max = self.max.max(error);
        self.sum += u64::from(error);
        let slot = (u64::from(error) * 8).div_ceil(u64::from(delta.max(1)));
        self.slots[(slot as usize).min(ERROR_SLOTS - 1)] += 1;
    }

    /// How many predictions were counted.
    pub fn count(&self) -> u64 {
        self.slots.iter().fold(0, |sum, slot| sum.saturating_add(*slot))
    }

    /// The mean distance; 0 if none was counted.
    pub fn mean(&self) -> f64 {
        ratio(self.sum, self.count())
    }
}

/// What is known of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ModelStats {
    /// Keys pushed, versions of one key each.
    pub key_count: u64,
    /// Keys whose number is that of the key before.
    pub tie_count: u64,
    /// The most keys with one number.
    pub longest_tie: u64,
    /// Runs: ties over more positions than the error bound, which no line predicts.
    pub run_count: u64,
    /// Keys in runs.
    pub run_key_count: u64,
    /// Segments, runs among them.
    pub segment_count: u64,
    /// Stored bytes of the key projection.
    pub projection_bytes: u64,
    /// Stored bytes in all.
    pub bytes: u64,
    /// Of the numbers outside runs; keys that tie count once, with the one farthest off.
    pub errors: ErrorDistribution,
}

impl ModelStats {
    /// Segments per 1,000 keys: how hard the keys are to predict.
    pub fn segments_per_1000_keys(&self) -> f64 {
        1000.0 * ratio(self.segment_count, self.key_count)
    }

    /// Stored bytes per key.
    pub fn bytes_per_key(&self) -> f64 {
        ratio(self.bytes, self.key_count)
    }

    /// The stored form: what the other parts of a model do not say.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let ties = [self.key_count, self.tie_count, self.longest_tie];
        let runs = [self.run_count, self.run_key_count];
        let errors = [u64::from(self.errors.max), self.errors.sum];
        for number in ties.iter().chain(&runs).chain(&errors).chain(&self.errors.slots) {
            put_varint(out, *number);
        }
    }

    /// Reads what [`Self::encode`] wrote.
    pub(crate) fn decode(decoder: &mut Decoder<'_>) -> Option<Self> {
        let mut stats = Self {
            key_count: decoder.varint()?,
            tie_count: decoder.varint()?,
            longest_tie: decoder.varint()?,
            run_count: decoder.varint()?,
            run_key_count: decoder.varint()?,
            ..Self::default()
        };
        stats.errors.max = u32::try_from(decoder.varint()?).ok()?;
        stats.errors.sum = decoder.varint()?;
        for slot in &mut stats.errors.slots {
            *slot = decoder.varint()?;
        }
        Some(stats)
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Four lines: segments and bytes, ties, errors, and their distribution.
impl fmt::Display for ModelStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} keys, {} segments ({:.2} per 1,000 keys), {} bytes ({:.3} a key, {} of them projection)",
            self.key_count,
            self.segment_count,
            self.segments_per_1000_keys(),
            self.bytes,
            self.bytes_per_key(),
            self.projection_bytes,
        )?;
        writeln!(
            f,
            "ties: {} keys, at most {} together; {} in {} runs",
            self.tie_count, self.longest_tie, self.run_key_count, self.run_count,
        )?;
        writeln!(f, "errors: mean {:.2}, at most {}", self.errors.mean(), self.errors.max)?;
        f.write_str("exact, then by eighths of the bound:")?;
        for slot in self.errors.slots {
            write!(f, " {:.1}%", 100.0 * ratio(slot, self.errors.count()))?;
        }
        Ok(())
    }
}
