//! The stored form of a block model:
//!
//! ```text
//! version u8 = 1
//! cell bytes u8 (1 to 4)
//! model          varint length, bytes (model/codec.rs); its end is the block count
//! cells          cell bytes each, little-endian
//! ```
//! Checked when read: the model's own rules, an error bound that is one of [`super::DELTAS`], first
//! blocks of segments ascending from 0, and as many cells as blocks.

use super::{BlockModel, DELTAS, MAX_CELL_BYTES};
use crate::model::{Malformed, Model};
use terrace_base::Decoder;
use terrace_base::codec::put_bytes;

const VERSION: u8 = 1;

impl BlockModel {
    /// Appends the stored form around the stored form of the model.
    pub(super) fn encode(&self, model: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(&[VERSION, self.cell_bytes]);
        put_bytes(out, model);
        out.extend_from_slice(&self.cells[..self.block_count() as usize * self.cell_bytes()]);
    }

    /// Reads and checks the bytes of [`super::BlockTraining::model`].
    ///
    /// # Errors
    /// [`Malformed`] if the bytes are none; whatever they are, nothing panics, and no more is
    /// allocated than a multiple of their number.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut decoder = Decoder::new(bytes);
        if decoder.u8() != Some(VERSION) {
            return Err(Malformed("block model of an unknown version"));
        }
        let cell_bytes = decoder.u8().map_or(0, usize::from);
        if !(1..=MAX_CELL_BYTES).contains(&cell_bytes) {
            return Err(Malformed("impossible size of cells"));
        }
        let model = decoder.bytes().ok_or(Malformed("the model is cut off"))?;
        let model = Model::decode(model)?;
        let starts = (0..model.segment_count()).map(|at| model.segment(at).1.start());
        let ascending = starts.chain([model.end()]).is_sorted_by(|a, b| a < b);
        if !ascending || model.segment(0).1.start() != 0 {
            return Err(Malformed("segments do not follow each other"));
        }
        if !DELTAS.contains(&model.delta()) {
            return Err(Malformed("impossible error bound of blocks"));
        }
        let cells = decoder.rest();
        if cells.len() as u64 != u64::from(model.end()) * cell_bytes as u64 {
            return Err(Malformed("there are not as many cells as blocks"));
        }
        Ok(Self::of(model, cell_bytes, cells.to_vec()))
    }
}
