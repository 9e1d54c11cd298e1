//! How much one command gathers in memory to store or to remove it.

#[cfg(test)]
mod tests;

use crate::error::{Error, Result};

/// The most bytes that one command stores as a copy or as a result, or holds of what it removes or moves.
pub const MAX_STORED_BYTES: usize = if cfg!(test) { 1 << 20 } else { 256 << 20 };

/// What an element takes beside its own bytes, about.
const ELEMENT_BYTES: usize = 32;

/// The size of what was gathered so far.
#[derive(Debug, Default)]
pub struct ResultSize {
    bytes: usize,
}

impl ResultSize {
    /// One more element of this many bytes.
    ///
    /// # Errors
    /// [`Error::TooLong`] if all are above [`MAX_STORED_BYTES`] together.
    pub fn add(&mut self, bytes: usize) -> Result<()> {
        self.bytes = self.bytes.saturating_add(bytes).saturating_add(ELEMENT_BYTES);
        match self.bytes > MAX_STORED_BYTES {
            true => Err(Error::TooLong(format!(
                "what one command copies, stores, moves, sorts or removes is over the limit of {MAX_STORED_BYTES} bytes"
            ))),
            false => Ok(()),
        }
    }
}
