//! Building a model while an SST is written: keys in, bytes out.
//!
//! A projection is known only after the last key, so keys are kept until then, as far as they can
//! matter to it and without what they share with the key before: 4 to 14 bytes each, up to twice
//! that while the memory grows. Then their numbers are cut into segments. Bytes come out only if
//! the model pays, and if every key was found within the error bound of the line it got.

pub(crate) mod key_buffer;

use crate::model::Model;
use crate::projection::ProjectionBuilder;
use crate::regression::{Fit, MAX_DELTA};
use crate::stats::ModelStats;
use crate::trainer::Trainer;
use key_buffer::KeyBuffer;
use std::fmt;

/// The error bound that is used if none is named.
pub const DEFAULT_DELTA: u32 = 8;

/// The default of [`ModelOptions::max_segments_per_1000_keys`]: one for a data block of about 30
/// entries, whose fence says as much.
pub const DEFAULT_MAX_SEGMENTS_PER_1000_KEYS: u32 = 32;

/// The default of [`ModelOptions::max_run_percent`].
pub const DEFAULT_MAX_RUN_PERCENT: u32 = 10;

/// The default of [`ModelOptions::max_buffer_bytes`].
pub const DEFAULT_MAX_BUFFER_BYTES: usize = 32 << 20;

/// Bytes that a model may have besides one for each key.
const FREE_BYTES: u64 = 1024;

/// How a model is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelOptions {
    /// The error bound, in positions, from 1 to [`MAX_DELTA`].
    pub delta: u32,
    /// How keys are cut into segments.
    pub fit: Fit,
    /// More segments than this do not pay.
    pub max_segments_per_1000_keys: u32,
    /// More keys in runs than this, in percent, do not pay.
    pub max_run_percent: u32,
    /// The most memory for keys; a builder that would need more gives up.
    pub max_buffer_bytes: usize,
}

impl Default for ModelOptions {
    fn default() -> Self {
        Self {
            delta: DEFAULT_DELTA,
            fit: Fit::default(),
            max_segments_per_1000_keys: DEFAULT_MAX_SEGMENTS_PER_1000_KEYS,
            max_run_percent: DEFAULT_MAX_RUN_PERCENT,
            max_buffer_bytes: DEFAULT_MAX_BUFFER_BYTES,
        }
    }
}

/// Why there is no model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoModel {
    /// There were no keys.
    Empty,
    /// Keys or positions were not in order, or a position was skipped.
    OutOfOrder,
    /// The keys took more memory than [`ModelOptions::max_buffer_bytes`].
    BufferFull,
    /// Too many keys tie in runs: [`ModelOptions::max_run_percent`].
    TooManyTies,
    /// The keys are hard to predict: [`ModelOptions::max_segments_per_1000_keys`].
    TooManySegments,
    /// The model would take more than a byte per key.
    TooManyBytes,
    /// A key was not within the error bound, which would be a defect of this crate.
    Unproven,
}

impl std::error::Error for NoModel {}

impl fmt::Display for NoModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "no keys",
            Self::OutOfOrder => "keys out of order",
            Self::BufferFull => "the keys take too much memory",
            Self::TooManyTies => "too many keys tie",
            Self::TooManySegments => "too many segments",
            Self::TooManyBytes => "too many bytes",
            Self::Unproven => "a key was not within the error bound",
        })
    }
}

/// The first key of a data block, for a fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockHead {
    /// Its number.
    pub x: u64,
    /// Whether the key before it, the last of the block before, has the same number. If not, every
    /// key with this number is in this block or a later one.
    pub ties_before: bool,
}

/// What a builder has made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Training {
    /// The bytes for [`Model::decode`], or why there are none.
    pub model: Result<Vec<u8>, NoModel>,
    /// What was counted, as far as it came.
    pub stats: ModelStats,
    /// Of every block, in order, if there is a model.
    pub block_heads: Vec<BlockHead>,
}

/// Builds the model of one file, or of one level. See the module's head.
#[derive(Debug)]
pub struct ModelBuilder {
    options: ModelOptions,
    learned: ProjectionBuilder,
    keys: KeyBuffer,
    /// Positions of the first and the last key.
    positions: Option<(u32, u32)>,
    key_count: u64,
    starts_block: bool,
    refused: Option<NoModel>,
}

impl ModelBuilder {
    /// A builder without keys.
    pub fn new(options: ModelOptions) -> Self {
        let delta = options.delta.clamp(1, MAX_DELTA);
        Self {
            options: ModelOptions { delta, ..options },
            learned: ProjectionBuilder::new(),
            keys: KeyBuffer::default(),
            positions: None,
            key_count: 0,
            starts_block: false,
            refused: None,
        }
    }

    /// Says that the next key pushed is the first of a data block.
    pub fn start_block(&mut self) {
        self.starts_block = true;
    }

    /// Adds a key, at or above the one before, at the same position or the next. Anything else
    /// makes [`Self::finish`] say [`NoModel::OutOfOrder`]; so does position `u32::MAX`. Costs about
    /// 30 ns.
    pub fn push(&mut self, key: &[u8], position: u32) {
        if self.refused.is_some() {
            return;
        }
        let step = self.positions.map_or(Some(0), |(_, last)| position.checked_sub(last));
        let (Some(step @ 0..=1), Some(shared)) = (step, self.keys.shared(key)) else {
            self.refuse(NoModel::OutOfOrder);
            return;
        };
        self.learned.add_after(key, shared);
        let kept = &key[..key.len().min(self.learned.reach())];
        self.keys.push(kept, shared, step == 1, std::mem::take(&mut self.starts_block));
        self.positions = Some((self.positions.map_or(position, |(first, _)| first), position));
        self.key_count += 1;
        if self.keys.memory_bytes() > self.options.max_buffer_bytes {
            self.refuse(NoModel::BufferFull);
        }
    }

    fn refuse(&mut self, why: NoModel) {
        self.refused = Some(why);
        self.keys = KeyBuffer::default();
    }

    /// Memory held for the keys so far.
    pub fn memory_bytes(&self) -> usize {
        self.keys.memory_bytes()
    }

    /// Trains, and tries the lines on every key. Costs about 50 ns per key.
    pub fn finish(self) -> Training {
        let mut training = Training {
            model: Err(NoModel::Empty),
            stats: ModelStats { key_count: self.key_count, ..ModelStats::default() },
            block_heads: Vec::new(),
        };
        training.model = self.train(&mut training.stats, &mut training.block_heads);
        if training.model.is_err() {
            training.block_heads = Vec::new();
        }
        training
    }

    fn train(
        &self,
        stats: &mut ModelStats,
        block_heads: &mut Vec<BlockHead>,
    ) -> Result<Vec<u8>, NoModel> {
        if let Some(why) = self.refused {
            return Err(why);
        }
        let Some((first, last)) = self.positions else { return Err(NoModel::Empty) };
        let ModelOptions { delta, fit, .. } = self.options;
        let end = last.checked_add(1).ok_or(NoModel::OutOfOrder)?;
        let projection = self.learned.build();
        let mut trainer = Trainer::new(fit, delta);
        let (mut position, mut before, mut seen) = (first, None, 0u64);
        let most_segments = self.most_segments();
        let mut keys = self.keys.iter();
        while trainer.line_count() as u64 <= most_segments
            && let Some(next) = keys.next()
        {
            position += u32::from(next.advances);
            let x = projection.project(next.key);
            trainer.push(x, position);
            if next.starts_block {
                block_heads.push(BlockHead { x, ties_before: before == Some(x) });
            }
            before = Some(x);
            seen += 1;
        }
        let trained = trainer.finish();
        stats.tie_count = trained.ties.tie_count;
        stats.longest_tie = trained.ties.longest;
        stats.run_count = trained.ties.run_count;
        stats.run_key_count = trained.ties.run_key_count;
        stats.errors = trained.errors;
        stats.segment_count = trained.lines.len() as u64;
        if stats.run_key_count * 100 > seen * u64::from(self.options.max_run_percent) {
            return Err(NoModel::TooManyTies);
        }
        if stats.segment_count > most_segments {
            return Err(NoModel::TooManySegments);
        }
        if !trained.proven {
            return Err(NoModel::Unproven);
        }
        let mut model = Model::of(projection, delta, trained.heads, trained.lines, end, *stats);
        let mut bytes = Vec::new();
        model.encode(&mut bytes);
        *stats = *model.stats();
        if stats.bytes > self.key_count + FREE_BYTES {
            return Err(NoModel::TooManyBytes);
        }
        Ok(bytes)
    }

    /// One segment is always allowed.
    fn most_segments(&self) -> u64 {
        let per_1000 = u64::from(self.options.max_segments_per_1000_keys);
        1 + self.key_count.saturating_mul(per_1000) / 1000
    }
}

#[cfg(test)]
mod tests;
