//! Making a block model while an SST is written: the first key of every block, and the last key of
//! the block before, which tells how fine cells must be. Some keys from inside blocks show what the
//! projection must know: where keys are numbered, those at the ends of blocks may all end alike.
//!
//! Error bounds are tried from the smallest; the first whose segments are few enough is taken, and
//! of the others the one that takes the least. Cells get the fewest bytes with which most first
//! keys are distinguished from the keys right before them.

use super::{BlockModel, DELTAS, MAX_CELL_BYTES, fraction_bits};
use crate::builder::key_buffer::KeyBuffer;
use crate::builder::{DEFAULT_MAX_BUFFER_BYTES, DEFAULT_MAX_RUN_PERCENT, NoModel};
use crate::model::Model;
use crate::projection::{Projection, ProjectionBuilder};
use crate::regression::Fit;
use crate::stats::ModelStats;
use crate::trainer::{Trained, Trainer};

/// Memory of a segment: head, line, table.
const SEGMENT_BYTES: usize = 30;

/// Segments of so little memory per 1,000 blocks that no other error bound is tried.
const FEW_BYTES_PER_1000_BLOCKS: usize = 750;

/// More segments than this per 1,000 blocks do not pay.
const MAX_SEGMENTS_PER_1000_BLOCKS: usize = 100;

/// Segments that are always allowed.
const FREE_SEGMENTS: usize = 2;

/// First keys that may share their cell with the key before them, in percent. Keys at random need
/// about 16 with cells of one byte, and then one lookup in 200 looks at two blocks.
const MAX_SHARED_PERCENT: usize = 30;

/// Of this many keys one is to be shown to [`BlockModelBuilder::sample`]. Not a number that anybody
/// counts in.
pub const SAMPLED_KEYS: u64 = 31;

/// What a builder has made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockTraining {
    /// The bytes for [`BlockModel::decode`], or why there are none.
    pub model: Result<Vec<u8>, NoModel>,
    /// What was counted, as far as it came; keys are the first keys of blocks.
    pub stats: ModelStats,
    /// First keys in the cell of the key before them.
    pub shared_cells: u64,
    /// Bytes per cell.
    pub cell_bytes: usize,
}

/// Builds the model of the blocks of one file, or of one level.
#[derive(Debug, Default)]
pub struct BlockModelBuilder {
    learned: ProjectionBuilder,
    keys: KeyBuffer,
    block_count: u32,
    refused: Option<NoModel>,
}

impl BlockModelBuilder {
    /// A builder without blocks.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a block that begins with `first`, after a block that ends with `last_before` (the
    /// empty key if there is none). Keys out of order make [`Self::finish`] refuse. Costs about
    /// 100 ns.
    pub fn push(&mut self, last_before: &[u8], first: &[u8]) {
        if self.block_count == u32::MAX - 1 {
            self.refused = Some(NoModel::BufferFull);
        }
        if self.block_count > 0 {
            self.add(last_before, false);
        }
        self.add(first, true);
        self.block_count += 1;
    }

    /// Shows a key from inside a block, in any order; one in [`SAMPLED_KEYS`] will do. Only hints
    /// get better by it. Costs about 15 ns.
    pub fn sample(&mut self, key: &[u8]) {
        self.learned.add(key);
    }

    fn add(&mut self, key: &[u8], starts_block: bool) {
        if self.refused.is_some() {
            return;
        }
        let Some(shared) = self.keys.shared(key) else {
            self.refused = Some(NoModel::OutOfOrder);
            return;
        };
        self.learned.add_after(key, shared);
        let kept = &key[..key.len().min(self.learned.reach())];
        self.keys.push(kept, shared, starts_block, starts_block);
        if self.keys.memory_bytes() > DEFAULT_MAX_BUFFER_BYTES {
            self.refused = Some(NoModel::BufferFull);
            self.keys = KeyBuffer::default();
        }
    }

    /// Memory held for the keys.
    pub fn memory_bytes(&self) -> usize {
        self.keys.memory_bytes()
    }

    /// Blocks so far.
    pub fn block_count(&self) -> u32 {
        self.block_count
    }

    /// Trains. Costs about 150 ns per block, four times that for keys that are hard to predict.
    pub fn finish(self) -> BlockTraining {
        let mut training = BlockTraining {
            model: Err(NoModel::Empty),
            stats: ModelStats { key_count: self.block_count.into(), ..ModelStats::default() },
            shared_cells: 0,
            cell_bytes: 0,
        };
        training.model = self.train(&mut training);
        training
    }

    fn train(&self, training: &mut BlockTraining) -> Result<Vec<u8>, NoModel> {
        if let Some(why) = self.refused {
            return Err(why);
        }
        if self.block_count == 0 {
            return Err(NoModel::Empty);
        }
        let projection = self.learned.build();
        let blocks = self.numbers(&projection);
        let mut why = NoModel::TooManySegments;
        let mut best: Option<Candidate> = None;
        for delta in DELTAS {
            let candidate = match Candidate::train(&blocks, delta, &projection, training) {
                Ok(candidate) => candidate,
                Err(refused) => {
                    why = refused;
                    continue;
                }
            };
            let enough = candidate.few_segments;
            if best.as_ref().is_none_or(|best| candidate.memory_bytes < best.memory_bytes) {
                best = Some(candidate);
            }
            if enough {
                break;
            }
        }
        let mut best = best.ok_or(why)?;
        training.cell_bytes = best.cell_bytes;
        training.shared_cells = best.shared_cells;
        let mut model = Vec::new();
        best.model.encode(&mut model);
        training.stats = *best.model.stats();
        let mut bytes = Vec::new();
        BlockModel::of(best.model, best.cell_bytes, best.cells).encode(&model, &mut bytes);
        Ok(bytes)
    }

    fn numbers(&self, projection: &Projection) -> Vec<Boundary> {
        let mut blocks = Vec::with_capacity(self.block_count as usize);
        let mut last_before = 0;
        let mut keys = self.keys.iter();
        while let Some(next) = keys.next() {
            let x = projection.project(next.key);
            if next.starts_block {
                blocks.push(Boundary { last_before, first: x });
            }
            last_before = x;
        }
        blocks
    }
}

/// Numbers of the keys around the start of a block.
#[derive(Debug, Clone, Copy)]
struct Boundary {
    last_before: u64,
    first: u64,
}

/// A model with one of the error bounds.
struct Candidate {
    model: Model,
    cell_bytes: usize,
    cells: Vec<u8>,
    shared_cells: u64,
    memory_bytes: usize,
    few_segments: bool,
}

impl Candidate {
    fn train(
        blocks: &[Boundary],
        delta: u32,
        projection: &Projection,
        training: &mut BlockTraining,
    ) -> Result<Self, NoModel> {
        let most = FREE_SEGMENTS + blocks.len() * MAX_SEGMENTS_PER_1000_BLOCKS / 1000;
        let mut trainer = Trainer::new(Fit::Optimal, delta);
        for (position, block) in (0..).zip(blocks) {
            trainer.push(block.first, position);
            if trainer.line_count() > most {
                break;
            }
        }
        let trained = trainer.finish();
        note(&mut training.stats, &trained);
        if trained.lines.len() > most {
            return Err(NoModel::TooManySegments);
        }
        let run_percent = trained.ties.run_key_count * 100 / blocks.len() as u64;
        if run_percent > u64::from(DEFAULT_MAX_RUN_PERCENT) {
            return Err(NoModel::TooManyTies);
        }
        if !trained.proven {
            return Err(NoModel::Unproven);
        }
        let segment_bytes = trained.lines.len() * SEGMENT_BYTES;
        let stats = training.stats;
        let (heads, lines) = (trained.heads, trained.lines);
        let model = Model::of(projection.clone(), delta, heads, lines, blocks.len() as u32, stats);
        for cell_bytes in 1..=MAX_CELL_BYTES {
            let (cells, shared_cells) = cells(&model, blocks, cell_bytes)?;
            if shared_cells as usize * 100 > blocks.len() * MAX_SHARED_PERCENT {
                continue;
            }
            return Ok(Self {
                model,
                cell_bytes,
                shared_cells,
                memory_bytes: segment_bytes + cells.len(),
                cells,
                few_segments: segment_bytes * 1000
                    <= blocks.len() * FEW_BYTES_PER_1000_BLOCKS + 1000 * SEGMENT_BYTES,
            });
        }
        Err(NoModel::TooManyTies)
    }
}

fn note(stats: &mut ModelStats, trained: &Trained) {
    stats.tie_count = trained.ties.tie_count;
    stats.longest_tie = trained.ties.longest;
    stats.run_count = trained.ties.run_count;
    stats.run_key_count = trained.ties.run_key_count;
    stats.errors = trained.errors;
    stats.segment_count = trained.lines.len() as u64;
}

/// The cells of all blocks, and how many are also those of the key before.
fn cells(model: &Model, blocks: &[Boundary], cell_bytes: usize) -> Result<(Vec<u8>, u64), NoModel> {
    let bits = fraction_bits(model.delta(), cell_bytes);
    let mut cells = Vec::with_capacity(blocks.len() * cell_bytes);
    let mut shared = 0;
    for (at, block) in (0u32..).zip(blocks) {
        let cell = BlockModel::cell_of(model, at, block.first, bits)
            .filter(|cell| *cell < 1 << (8 * cell_bytes as u32))
            .ok_or(NoModel::Unproven)?;
        cells.extend_from_slice(&cell.to_le_bytes()[..cell_bytes]);
        let before = BlockModel::cell_of(model, at, block.last_before, bits);
        shared += u64::from(at > 0 && before == Some(cell));
    }
    Ok((cells, shared))
}
