//! A fixed-size region of bytes in huge pages.

use std::ops::{Deref, DerefMut};

/// A fixed number of bytes.
pub struct Region {
    bytes: Vec<u8>,
}

impl Region {
    /// `len` zeros.
    pub fn zeroed(len: usize) -> Self {
        Self { bytes: vec![0; len] }
    }
}

impl Deref for Region {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for Region {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}
