//! A model of data blocks: from a key to the one block that can hold it.
//!
//! A [`crate::Model`] over the first keys of blocks says where a key is to a few blocks. What is
//! missing to the very block is, for each block, how high the line is at its first key: its *cell*,
//! counted from `delta` blocks below the block's own place in steps of 2^-`bits` block. Lines never
//! fall, so a key whose height is in a lower cell is below the first key, and one in a higher cell
//! above it; only in the same cell it may be either. A cell takes 1 byte where keys are spread
//! evenly inside blocks, more where they stand in clusters that only small steps tell apart.
//!
//! ```text
//! fields     │ error bound │ cell 1 byte: bits │ 2 bytes │ 3 bytes
//!            │ 1 block     │ 7                 │ 15      │ 23
//!            │ 4 blocks    │ 5                 │ 13      │ 21
//! ```
//!
//! What a lookup may believe: all blocks after the one of [`BlockModel::locate`] begin with larger
//! keys. The block itself may too, if the key is in the cell of its first key, and then the one
//! before is meant; the reader of the block sees that. See [`BlockModelBuilder`] for the making.

mod builder;
mod codec;

use crate::line::Line;
use crate::model::Model;

pub use builder::{BlockModelBuilder, BlockTraining, SAMPLED_KEYS};

/// Error bounds that are tried, in blocks; powers of two.
pub(crate) const DELTAS: [u32; 4] = [1, 2, 4, 8];

/// The most bytes that a cell takes.
pub(crate) const MAX_CELL_BYTES: usize = 4;

/// Bytes after the last cell, so that each can be read as four.
const PADDING_BYTES: usize = MAX_CELL_BYTES;

/// Where a key is, if it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockGuess {
    /// The block: every later one begins with a larger key.
    pub block: u32,
    /// How far into the block, in 1/256 of its keys, if they are spread evenly. A hint.
    pub within: u8,
}

/// What the line of a key says of its block, without the cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockAim {
    /// The first block of the line, and that of the next line; the latter is 0 below the first line.
    start: u32,
    next: u32,
    /// The last block that can be meant, less `start`.
    top: u32,
    /// How far above the place of that block the line is, in steps of a cell.
    above: u64,
}

impl BlockAim {
    /// The last block that can be meant; the one that is is seldom far before it.
    #[inline]
    pub fn last_block(&self) -> u32 {
        self.start + self.top
    }
}

/// A model of data blocks, ready for lookups. Takes 1 to 4 bytes per block and what its [`Model`]
/// takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockModel {
    model: Model,
    cell_bytes: u8,
    /// Steps of cells are 2^-`bits` block.
    bits: u8,
    /// Little-endian, and the padding.
    cells: Box<[u8]>,
}

/// Bits of a cell after the point.
fn fraction_bits(delta: u32, cell_bytes: usize) -> u32 {
    8 * cell_bytes as u32 - (2 * delta).trailing_zeros()
}

impl BlockModel {
    /// `cells` are those of all blocks.
    fn of(model: Model, cell_bytes: usize, mut cells: Vec<u8>) -> Self {
        cells.extend([0; PADDING_BYTES]);
        let bits = fraction_bits(model.delta(), cell_bytes) as u8;
        Self { model, cell_bytes: cell_bytes as u8, bits, cells: cells.into() }
    }

    /// How many blocks it is of.
    pub fn block_count(&self) -> u32 {
        self.model.end()
    }

    /// The model over the first keys of blocks.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Bytes that each block takes.
    pub fn cell_bytes(&self) -> usize {
        usize::from(self.cell_bytes)
    }

    /// Memory taken, this struct included.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() - size_of::<Model>() + self.model.memory_bytes() + self.cells.len()
    }

    /// Where `key` is, if it is there. `None`: in one of several blocks that begin with keys of
    /// the same number, of which the model cannot say which. Takes 20 to 40 ns.
    #[inline]
    pub fn locate(&self, key: &[u8]) -> Option<BlockGuess> {
        self.locate_number(self.model.project(key))
    }

    /// [`Self::locate`] for a key with the number `x`.
    #[inline]
    pub fn locate_number(&self, x: u64) -> Option<BlockGuess> {
        Some(self.locate_at(&self.aim_number(x)?))
    }

    /// The first half of [`Self::locate`], which reads no cells; `None` as there.
    #[inline]
    pub fn aim(&self, key: &[u8]) -> Option<BlockAim> {
        self.aim_number(self.model.project(key))
    }

    #[inline]
    fn aim_number(&self, x: u64) -> Option<BlockAim> {
        let Some((line, along, next)) = self.model.line_at(x) else {
            return Some(BlockAim { start: 0, next: 0, top: 0, above: 0 });
        };
        if line.is_run() {
            return None;
        }
        let bits = u32::from(self.bits);
        let height = line.fine_height(along, bits);
        let start = line.start();
        let last = next.saturating_sub(start + 1);
        let top = (height >> bits).min(u64::from(last)) as u32;
        let above = height - (u64::from(top) << bits);
        Some(BlockAim { start, next, top, above })
    }

    /// The second half of [`Self::locate`]; `aim` must come from the same model.
    #[inline]
    pub fn locate_at(&self, aim: &BlockAim) -> BlockGuess {
        let BlockAim { start, next, top, above } = *aim;
        if next == 0 {
            return BlockGuess { block: 0, within: 0 };
        }
        let back = match self.cell_bytes {
            1 => self.count_above::<1>(start, top, above),
            2 => self.count_above::<2>(start, top, above),
            3 => self.count_above::<3>(start, top, above),
            _ => self.count_above::<4>(start, top, above),
        };
        let block = (start + top).saturating_sub(back);
        let within = if back <= top { self.within(block, next, above, back) } else { u8::MAX };
        BlockGuess { block, within }
    }

    /// The cells that [`Self::locate_at`] reads, for a caller that asks for their memory beforehand.
    #[inline]
    pub fn cells_at(&self, aim: &BlockAim) -> &[u8] {
        let last = aim.last_block() as usize;
        let first = last.saturating_sub(2 * self.model.delta() as usize - 1);
        let bytes = self.cell_bytes();
        self.cells.get(first * bytes..(last + 2) * bytes).unwrap_or_default()
    }

    /// How many of the blocks before and at `start + top`, down to `start`, begin with a key of a
    /// cell above that of a key which is `above` steps above the place of block `start + top`.
    #[inline]
    fn count_above<const BYTES: usize>(&self, start: u32, top: u32, above: u64) -> u32 {
        let candidates = (2 * self.model.delta()).min(top + 1);
        let mut wanted = above;
        let mut count = 0;
        for back in 0..candidates {
            let cell = self.cell::<BYTES>((start + top - back) as usize);
            count += u32::from(u64::from(cell) > wanted);
            wanted += 1 << self.bits;
        }
        count
    }

    #[inline]
    fn cell<const BYTES: usize>(&self, block: usize) -> u32 {
        let bytes = self.cells.get(block * BYTES..).and_then(<[u8]>::first_chunk);
        bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes)) & (u32::MAX >> (32 - 8 * BYTES))
    }

    /// Cell `block`, of any width.
    #[inline]
    fn any_cell(&self, block: u32) -> u64 {
        let (at, bytes) = (block as usize * self.cell_bytes(), u32::from(self.cell_bytes));
        let stored = self.cells.get(at..).and_then(<[u8]>::first_chunk);
        let stored = stored.map_or(0, |bytes| u32::from_le_bytes(*bytes));
        u64::from(stored & (u32::MAX >> (32 - 8 * bytes)))
    }

    /// See [`BlockGuess::within`]; `above` counts from the place of block `block + back`, and the
    /// segment ends before block `next`.
    #[inline]
    fn within(&self, block: u32, next: u32, above: u64, back: u32) -> u8 {
        let place = 1u64 << self.bits;
        let own = self.any_cell(block);
        let after = if block + 1 < next { self.any_cell(block + 1) + place } else { own + place };
        let along = (above + u64::from(back) * place).saturating_sub(own);
        let length = after.saturating_sub(own);
        if length < place / 2 {
            // Inside a cluster.
            let share = (along.min(length) << u8::BITS) / (length + 1);
            return share as u8;
        }
        // Most blocks are about one place long, so no division: from whichever end is nearer.
        let share = if along < length / 2 {
            (along << u8::BITS >> self.bits).min(127)
        } else {
            let left = length.saturating_sub(along) << u8::BITS >> self.bits;
            u64::from(u8::MAX) - left.min(127)
        };
        share as u8
    }

    /// Where the line of block `block` is at `x`, its first key's number: the cell; `None` if the
    /// line of `x` is not that of the block.
    fn cell_of(model: &Model, block: u32, x: u64, bits: u32) -> Option<u64> {
        let (line, along, next) = model.line_at(x)?;
        if line.is_run() {
            return Some(0);
        }
        let start = line.start();
        if block < start || block >= next {
            return None;
        }
        line.fine_height(along, bits).checked_sub(u64::from(block - start) << bits)
    }

    /// Whether `key` is the first of block `block`, as far as the model can say: the cell is that
    /// of the key. For verification.
    pub fn admits_first_key(&self, block: u32, key: &[u8]) -> bool {
        let x = self.model.project(key);
        let Some((line, ..)) = self.model.line_at(x) else { return false };
        let cell = Self::cell_of(&self.model, block, x, u32::from(self.bits));
        line.is_run() || cell == Some(self.any_cell(block))
    }
}

/// A segment for drawing: from `(x, position)` to `(x, position)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DrawnSegment {
    /// Least number.
    pub from: (u64, f64),
    /// Least number of the next segment, or the greatest of all.
    pub to: (u64, f64),
}

impl Model {
    /// The position on the line of `x`; `None` below the first head, and in a run.
    pub fn predict(&self, x: u64) -> Option<f64> {
        let (line, along, next) = self.line_at(x)?;
        (!line.is_run()).then(|| line_position(&line, along, next, self.delta()))
    }

    /// The segments as lines from head to head, for drawing.
    pub fn segments(&self) -> impl Iterator<Item = DrawnSegment> {
        let greatest = self.projection().greatest();
        (0..self.segment_count()).map(move |at| {
            let (head, line, next) = self.segment(at);
            let to = self.head(at + 1).unwrap_or(greatest).max(head);
            let position = |x: u64| line_position(&line, x - head, next, self.delta());
            DrawnSegment { from: (head, position(head)), to: (to, position(to)) }
        })
    }
}

fn line_position(line: &Line, along: u64, next: u32, delta: u32) -> f64 {
    if line.is_run() {
        return f64::from(line.start());
    }
    let height = line.fine_height(along, 8) as f64 / 256.0;
    (f64::from(line.start()) - f64::from(delta) + height).min(f64::from(next))
}

#[cfg(test)]
mod tests;
