//! What differs between machines: cache-line prefetch, and AVX2 for the bits of a key in a block.
//! The Bloom kinds' only unsafe code; every function here has a portable twin with the same answers.
#![allow(
    unsafe_code,
    reason = "intrinsics: prefetch instructions and CPU features found at run time"
)]

use crate::block::{Block, Multipliers, Probes, Scalar};
use crate::layout::FilterShape;
use crate::units::{self, Unit};

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

/// Proof that this machine has AVX2; the methods of [`Probes`] with eight probes at once.
#[cfg(target_arch = "x86_64")]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Avx2(());

/// Does `work` compiled for AVX2 if this machine has it. What `work` calls is compiled so only
/// where it is inlined.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn with_avx2<R>(work: impl FnOnce(Avx2) -> R) -> Option<R> {
    // The macro keeps what it found in a static: one load and a bit test per call.
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: AVX2 was found on this machine.
        Some(unsafe { avx2::run(work) })
    } else {
        None
    }
}

/// [`FilterShape::may_contain`] of a kind with units, in the fastest way the machine has. Not
/// [`with_avx2`], because a closure's captures would go through memory.
#[inline]
pub(crate) fn may_contain<K: Unit>(
    shape: &FilterShape,
    loaded: &[u8],
    units: u8,
    hash: u64,
) -> bool {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: AVX2 was found on this machine.
        return unsafe { avx2::may_contain::<K>(shape, loaded, units, hash) };
    }
    units::first_may_contain::<K>(Scalar, shape, loaded, units, hash)
        .unwrap_or_else(|| units::others_may_contain::<K>(Scalar, shape, loaded, units, hash))
}

#[cfg(target_arch = "x86_64")]
impl Probes for Avx2 {
    #[inline(always)]
    fn set<const FIRST: u32, const BITS: u32, const SETS: usize>(
        self,
        block: &mut Block,
        seed: u32,
        sets: &[Multipliers; SETS],
        probes: u32,
    ) {
        // SAFETY: there is an `Avx2` only where AVX2 was found.
        unsafe { avx2::set::<FIRST, BITS, SETS>(block, seed, sets, probes) }
    }

    #[inline(always)]
    fn covers<const FIRST: u32, const BITS: u32, const SETS: usize>(
        self,
        block: &Block,
        seed: u32,
        sets: &[Multipliers; SETS],
        probes: u32,
    ) -> bool {
        // SAFETY: there is an `Avx2` only where AVX2 was found.
        unsafe { avx2::covers::<FIRST, BITS, SETS>(block, seed, sets, probes) }
    }

    #[inline(always)]
    fn both_cover<const FIRST: u32, const BITS: u32>(
        self,
        blocks: [&Block; 2],
        seed: u32,
        sets: [&Multipliers; 2],
        probes: u32,
    ) -> bool {
        // SAFETY: there is an `Avx2` only where AVX2 was found.
        unsafe { avx2::both_cover::<FIRST, BITS>(blocks, seed, sets, probes) }
    }
}

/// Machines without AVX2 do all work as [`Scalar`].
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub(crate) fn with_avx2<R>(_work: impl FnOnce(Scalar) -> R) -> Option<R> {
    None
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::Avx2;
    use crate::block::{Block, Multipliers};
    use crate::layout::FilterShape;
    use crate::units::{self, Unit};
    use std::arch::x86_64::{
        __m256i, _mm256_add_epi32, _mm256_and_si256, _mm256_andnot_si256, _mm256_blendv_ps,
        _mm256_castps_si256, _mm256_castsi256_ps, _mm256_loadu_si256, _mm256_mulhi_epu16,
        _mm256_mullo_epi32, _mm256_or_si256, _mm256_permutevar8x32_epi32, _mm256_set1_epi32,
        _mm256_slli_epi32, _mm256_sllv_epi32, _mm256_srli_epi32, _mm256_storeu_si256,
        _mm256_testc_si256, _mm256_testz_si256,
    };

    /// Probes that one register holds.
    const LANES: usize = 8;
    /// Read from number 8 - n on, ones for the first n lanes and zeros for the others.
    static ONES_THEN_ZEROS: [u32; 2 * LANES] = [1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0];

    #[target_feature(enable = "avx2")]
    pub(super) fn run<R>(work: impl FnOnce(Avx2) -> R) -> R {
        work(Avx2(()))
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn may_contain<K: Unit>(
        shape: &FilterShape,
        loaded: &[u8],
        units: u8,
        hash: u64,
    ) -> bool {
        match units::first_may_contain::<K>(Avx2(()), shape, loaded, units, hash) {
            Some(answer) => answer,
            None => others_may_contain::<K>(shape, loaded, units, hash),
        }
    }

    /// Apart, so that a lookup in one unit keeps to the registers that need no saving.
    #[target_feature(enable = "avx2")]
    #[inline(never)]
    fn others_may_contain<K: Unit>(
        shape: &FilterShape,
        loaded: &[u8],
        units: u8,
        hash: u64,
    ) -> bool {
        units::others_may_contain::<K>(Avx2(()), shape, loaded, units, hash)
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    pub(super) fn covers<const FIRST: u32, const BITS: u32, const SETS: usize>(
        block: &Block,
        seed: u32,
        sets: &[Multipliers; SETS],
        probes: u32,
    ) -> bool {
        let mut left = probes as usize;
        for set in sets {
            let positions = positions::<FIRST, BITS>(seed, set);
            let found = words_at(block, positions);
            // Two calls, so that neither answer is used twice, for which a flag is not enough.
            if left <= LANES {
                return _mm256_testc_si256(found, bit_masks(positions, left)) == 1;
            }
            if _mm256_testc_si256(found, bit_masks(positions, LANES)) == 0 {
                return false;
            }
            left -= LANES;
        }
        true
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    pub(super) fn both_cover<const FIRST: u32, const BITS: u32>(
        blocks: [&Block; 2],
        seed: u32,
        sets: [&Multipliers; 2],
        probes: u32,
    ) -> bool {
        let missing = |number: usize| {
            let positions = positions::<FIRST, BITS>(seed, sets[number]);
            let wanted = bit_masks(positions, probes as usize);
            _mm256_andnot_si256(words_at(blocks[number], positions), wanted)
        };
        let missing = _mm256_or_si256(missing(0), missing(1));
        _mm256_testz_si256(missing, missing) == 1
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    pub(super) fn set<const FIRST: u32, const BITS: u32, const SETS: usize>(
        block: &mut Block,
        seed: u32,
        sets: &[Multipliers; SETS],
        probes: u32,
    ) {
        let mut left = probes as usize;
        for set in sets {
            let positions = positions::<FIRST, BITS>(seed, set);
            let numbers = store(_mm256_srli_epi32::<21>(positions));
            let masks = store(bit_masks(positions, left));
            let (words, _) = block.as_chunks_mut::<4>();
            for (number, mask) in numbers.iter().zip(&masks).take(left) {
                // SAFETY: positions are below FIRST + BITS, which is at most 512; those over 32
                // are below 16, the number of words.
                let word = unsafe { words.get_unchecked_mut(*number as usize) };
                *word = (u32::from_le_bytes(*word) | mask).to_le_bytes();
            }
            if left <= LANES {
                break;
            }
            left -= LANES;
        }
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn load(bytes: &[u8; 32]) -> __m256i {
        // SAFETY: 32 bytes are read; the load needs no alignment.
        unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn load_lanes(lanes: &[u32; LANES]) -> __m256i {
        // SAFETY: 32 bytes are read; the load needs no alignment.
        unsafe { _mm256_loadu_si256(lanes.as_ptr().cast()) }
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn store(lanes: __m256i) -> [u32; LANES] {
        let mut stored = [0; LANES];
        // SAFETY: 32 bytes are written; the store needs no alignment.
        unsafe { _mm256_storeu_si256(stored.as_mut_ptr().cast(), lanes) }
        stored
    }

    /// The bits of eight probes, each in the upper half of a lane, with nothing in the lower.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn positions<const FIRST: u32, const BITS: u32>(seed: u32, set: &Multipliers) -> __m256i {
        const { assert!(FIRST + BITS <= 512) };
        let products = _mm256_mullo_epi32(_mm256_set1_epi32(seed as i32), load_lanes(set));
        let scaled = _mm256_mulhi_epu16(products, _mm256_set1_epi32((BITS << 16) as i32));
        _mm256_add_epi32(scaled, _mm256_set1_epi32((FIRST << 16) as i32))
    }

    /// For each of the first `probes` lanes, the bit of its position within a 32-bit word; 0 for
    /// the other lanes.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn bit_masks(positions: __m256i, probes: usize) -> __m256i {
        let unused = LANES.saturating_sub(probes);
        // SAFETY: eight of the sixteen numbers are read, from at most the eighth on.
        let ones = unsafe { _mm256_loadu_si256(ONES_THEN_ZEROS.as_ptr().add(unused).cast()) };
        let bits = _mm256_and_si256(_mm256_srli_epi32::<16>(positions), _mm256_set1_epi32(31));
        _mm256_sllv_epi32(ones, bits)
    }

    /// The 32-bit words of the block in which eight positions lie.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn words_at(block: &Block, positions: __m256i) -> __m256i {
        let (halves, _) = block.as_chunks::<32>();
        // Word numbers 0..16: the lower three bits choose within a half, the fourth, moved to
        // the sign, chooses the half.
        let words = _mm256_srli_epi32::<21>(positions);
        _mm256_castps_si256(_mm256_blendv_ps(
            _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(load(&halves[0]), words)),
            _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(load(&halves[1]), words)),
            _mm256_castsi256_ps(_mm256_slli_epi32::<7>(positions)),
        ))
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
