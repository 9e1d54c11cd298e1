//! LZ4, in its block format.

use lz4_flex::block::{self, CompressTable};

/// Compresses; keeps its hash table between calls.
#[derive(Default)]
pub struct Encoder {
    table: CompressTable,
}

impl Encoder {
    /// Compresses `payload` into `out`; the bytes written, or none if `out` is too small.
    pub fn compress(&mut self, payload: &[u8], out: &mut [u8]) -> Option<usize> {
        block::compress_into_with_table(payload, out, &mut self.table).ok()
    }
}

/// The most bytes that a payload of `len` bytes takes compressed.
pub fn room(len: usize) -> usize {
    block::get_maximum_output_size(len)
}

/// Decompresses `packed` into `out`; the bytes written, or none if `packed` is damaged or gives more.
pub fn decompress(packed: &[u8], out: &mut [u8]) -> Option<usize> {
    block::decompress_into(packed, out).ok()
}
