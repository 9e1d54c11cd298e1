//! What the machine offers: cache-line hints.

/// Asks for the cache line of `bytes[offset]`; nothing if that is out of bounds.
#[inline]
pub fn prefetch_read(bytes: &[u8], offset: usize) {
    let _ = bytes.get(offset);
}
