//! Zstandard. The one codec in C.

use std::cell::RefCell;
use zstd::bulk::{Compressor, Decompressor};

const LEVEL: i32 = 3;

thread_local! {
    static DECODER: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// Compresses; makes its context when it is first needed.
#[derive(Default)]
pub struct Encoder {
    context: Option<Compressor<'static>>,
}

impl Encoder {
    /// Compresses `payload` into `out`; the bytes written, or none if `out` is too small or there is no memory.
    pub fn compress(&mut self, payload: &[u8], out: &mut [u8]) -> Option<usize> {
        if self.context.is_none() {
            self.context = Compressor::new(LEVEL).ok();
        }
        self.context.as_mut()?.compress_to_buffer(payload, out).ok()
    }
}

/// The most bytes that a payload of `len` bytes takes compressed.
pub fn room(len: usize) -> usize {
    zstd::zstd_safe::compress_bound(len)
}

/// Decompresses `packed` into `out`; the bytes written, or none if `packed` is damaged or gives more.
pub fn decompress(packed: &[u8], out: &mut [u8]) -> Option<usize> {
    DECODER.with_borrow_mut(|context| {
        if context.is_none() {
            *context = Decompressor::new().ok();
        }
        context.as_mut().and_then(|decoder| decoder.decompress_to_buffer(packed, out).ok())
    })
}
