//! Where bytes are that another language is shown.

/// What stands at the address of no bytes.
static NO_BYTES: u8 = 0;

/// Where `bytes` are. That of no bytes is an address too: Rust may have a small number for it, and the runtime of
/// Go ends a program in whose stack it finds such a pointer.
#[inline]
pub fn address(bytes: &[u8]) -> *const u8 {
    if bytes.is_empty() { &raw const NO_BYTES } else { bytes.as_ptr() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_bytes_have_an_address() {
        for bytes in [&[][..], &[7; 3][..0], &[7; 3][3..]] {
            assert!(address(bytes) as usize >= 4096);
        }
        let bytes = [1, 2];
        assert_eq!(address(&bytes), bytes.as_ptr());
    }
}
