//! Where an argument stands in a buffer, in 8 bytes.

use std::ops::Range;

/// Where an argument stands in the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    start: u32,
    len: u32,
}

impl Span {
    /// Both fit: `Limits::addressable` sees to it.
    pub(crate) fn of(start: usize, len: usize) -> Self {
        Self { start: start as u32, len: len as u32 }
    }

    pub(crate) fn range(self) -> Range<usize> {
        let start = self.start as usize;
        start..start + self.len as usize
    }
}
