//! Filters over 64-bit key hashes: "this key is certainly absent" from a few bits per key.
//!
//! Pure: bytes in, bytes out. The caller stores what [`build`] appends and hands it back to
//! [`may_contain`]; a filter never says "absent" of a key it was built from, and bytes that no
//! filter can look like say "perhaps". One module per [`FilterKind`].

mod blocked_bloom;
mod machine;

pub use machine::prefetch_read;

/// How a filter's bytes are laid out. The number is stored on disk and never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FilterKind {
    /// All probes of a key in one 64-byte block: one cache line per lookup.
    BlockedBloom = 1,
}

impl FilterKind {
    /// The kind stored as `byte`, or `None` for a number this version does not know.
    pub fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::BlockedBloom),
            _ => None,
        }
    }
}

/// Appends to `out` a filter of about `bits_per_key` bits for each of `hashes`, a multiple of 64
/// bytes. `hashes` are those of all keys of the partition, in any order, repeats allowed.
pub fn build(kind: FilterKind, hashes: &[u64], bits_per_key: f64, out: &mut Vec<u8>) {
    match kind {
        FilterKind::BlockedBloom => blocked_bloom::build(hashes, bits_per_key, out),
    }
}

/// Whether the key with this hash may be among those `bytes` was built from. `false` is certain,
/// `true` is wrong with the probability [`theoretical_fpr`]; bytes of an impossible length are
/// `true`.
#[inline]
pub fn may_contain(kind: FilterKind, bytes: &[u8], hash: u64) -> bool {
    match kind {
        FilterKind::BlockedBloom => blocked_bloom::may_contain(bytes, hash),
    }
}

/// Asks for the cache line that [`may_contain`] with the same arguments will read.
#[inline]
pub fn prefetch(kind: FilterKind, bytes: &[u8], hash: u64) {
    match kind {
        FilterKind::BlockedBloom => blocked_bloom::prefetch(bytes, hash),
    }
}

/// The false positive rate to expect of a filter built with `bits_per_key`.
pub fn theoretical_fpr(kind: FilterKind, bits_per_key: f64) -> f64 {
    match kind {
        FilterKind::BlockedBloom => blocked_bloom::theoretical_fpr(bits_per_key),
    }
}
