//! How much one command gathers in memory to store or to remove it.

#[cfg(test)]
mod tests;

use crate::error::{Error, Result};

/// The most bytes that one command stores as a copy or as a result, or holds of what it removes or moves.
pub const MAX_STORED_BYTES: usize = if cfg!(test) { 1 << 20 } else { 256 << 20 };

/// What an element takes beside its own bytes, about.
const ELEMENT_BYTES: usize = 32;

/// The most bytes of memory that one command takes until the commit for what it adds.
pub const MAX_ADDED_BYTES: usize = if cfg!(test) { 64 << 20 } else { 1 << 30 };

/// What an element that was written takes in a batch beside its own bytes, about.
pub(crate) const WRITTEN_ELEMENT_BYTES: usize = 96;

/// Looks at the sizes, in bytes, of all that a command is going to add.
///
/// # Errors
/// [`Error::TooLong`] if it takes more than [`MAX_ADDED_BYTES`].
pub(crate) fn check_added(sizes: impl Iterator<Item = usize>) -> Result<()> {
    let mut bytes = 0_usize;
    for size in sizes {
        bytes = bytes.saturating_add(size + WRITTEN_ELEMENT_BYTES);
        if bytes > MAX_ADDED_BYTES {
            return Err(Error::TooLong(format!(
                "what one command adds takes more than {MAX_ADDED_BYTES} bytes of memory"
            )));
        }
    }
    Ok(())
}

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
        self.add_bytes(bytes.saturating_add(ELEMENT_BYTES))
    }

    /// This many bytes more, with nothing beside them.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub(crate) fn add_bytes(&mut self, bytes: usize) -> Result<()> {
        self.bytes = self.bytes.saturating_add(bytes);
        match self.bytes > MAX_STORED_BYTES {
            true => Err(Error::TooLong(format!(
                "what one command copies, stores, moves, sorts or removes is over the limit of {MAX_STORED_BYTES} bytes"
            ))),
            false => Ok(()),
        }
    }
}
