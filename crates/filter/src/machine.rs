//! What differs between machines: cache-line prefetch and the AVX2 probe of one block. The only
//! module with unsafe code; every function here has a portable twin with the same answers.
#![allow(
    unsafe_code,
    reason = "intrinsics: prefetch instructions and CPU features found at run time"
)]

/// Asks for the cache line of `bytes[offset]`, so that a read of it soon after does not wait for
/// memory. Nothing happens if `offset` is out of bounds, or on machines without such a hint.
#[inline]
pub fn prefetch_read(bytes: &[u8], offset: usize) {
    if let Some(byte) = bytes.get(offset) {
        prefetch_line(byte);
    }
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn prefetch_line(byte: &u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: SSE is part of x86_64; a prefetch changes no state and faults on no address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(byte).cast()) }
}

#[cfg(target_arch = "aarch64")]
#[inline]
fn prefetch_line(byte: &u8) {
    // SAFETY: `prfm` is part of the base instruction set, changes no state and faults on no
    // address.
    unsafe {
        std::arch::asm!(
            "prfm pldl1keep, [{address}]",
            address = in(reg) std::ptr::from_ref(byte),
            options(nostack, preserves_flags, readonly),
        );
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[inline]
fn prefetch_line(_byte: &u8) {}

/// Whether the first `probes` bits of a key are all set in `block`, if this machine has a faster
/// way than the scalar one; the answer of [`crate::blocked_bloom::covers_scalar`].
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn covers(block: &[u8; 64], seed: u32, probes: u32) -> Option<bool> {
    // The macro keeps what it found in a static: one load and a bit test per call.
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: AVX2 was found on this machine.
        Some(unsafe { avx2::covers(block, seed, probes) })
    } else {
        None
    }
}

/// Machines without a faster way.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub(crate) fn covers(_block: &[u8; 64], _seed: u32, _probes: u32) -> Option<bool> {
    None
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use crate::blocked_bloom::{MULTIPLIERS, PAYLOAD_BITS};
    use std::arch::x86_64::{
        __m256i, _mm256_and_si256, _mm256_andnot_si256, _mm256_blendv_ps, _mm256_castps_si256,
        _mm256_castsi256_ps, _mm256_cmpgt_epi32, _mm256_loadu_si256, _mm256_mulhi_epu16,
        _mm256_mullo_epi32, _mm256_permutevar8x32_epi32, _mm256_set1_epi32, _mm256_setr_epi32,
        _mm256_slli_epi32, _mm256_sllv_epi32, _mm256_srli_epi32, _mm256_testz_si256,
    };

    /// All probes of a key at once, eight to a round; most filters need one round.
    #[target_feature(enable = "avx2")]
    pub(super) fn covers(block: &[u8; 64], seed: u32, probes: u32) -> bool {
        let (front, back) = block.split_at(32);
        // SAFETY: both halves are 32 bytes; the loads need no alignment.
        let (front, back): (__m256i, __m256i) = unsafe {
            (_mm256_loadu_si256(front.as_ptr().cast()), _mm256_loadu_si256(back.as_ptr().cast()))
        };
        let (first, second) = MULTIPLIERS.split_at(8);
        round(front, back, seed, first, probes as i32)
            && (probes <= 8 || round(front, back, seed, second, probes as i32 - 8))
    }

    /// Whether the bits of the first `probes` of eight `multipliers` are set in the block whose
    /// 32-bit words are `front`, then `back`.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn round(front: __m256i, back: __m256i, seed: u32, multipliers: &[u32], probes: i32) -> bool {
        debug_assert_eq!(multipliers.len(), 8);
        // SAFETY: `multipliers` is a half of the sixteen; the load needs no alignment.
        let multipliers = unsafe { _mm256_loadu_si256(multipliers.as_ptr().cast()) };
        let products = _mm256_mullo_epi32(_mm256_set1_epi32(seed as i32), multipliers);
        // The upper halves of the lanes become positions, the lower halves 0.
        let scaled = _mm256_mulhi_epu16(products, _mm256_set1_epi32((PAYLOAD_BITS << 16) as i32));
        let bits = _mm256_and_si256(_mm256_srli_epi32::<16>(scaled), _mm256_set1_epi32(31));
        let wanted = _mm256_sllv_epi32(_mm256_set1_epi32(1), bits);
        // Word numbers 0..16: the lower three bits choose within a half, the fourth, moved to
        // the sign, chooses the half.
        let words = _mm256_srli_epi32::<21>(scaled);
        let found = _mm256_blendv_ps(
            _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(front, words)),
            _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(back, words)),
            _mm256_castsi256_ps(_mm256_slli_epi32::<7>(scaled)),
        );
        let missing = _mm256_andnot_si256(_mm256_castps_si256(found), wanted);
        let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        let active = _mm256_cmpgt_epi32(_mm256_set1_epi32(probes), lanes);
        _mm256_testz_si256(missing, active) == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefetch_takes_any_offset() {
        for offset in [0, 63, 64, usize::MAX] {
            prefetch_read(&[0; 64], offset);
            prefetch_read(&[], offset);
        }
    }
}
