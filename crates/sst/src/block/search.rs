//! The lower bound over key heads, the innermost loop of every lookup.
//!
//! Heads are `u32`s, little-endian, ascending, at any alignment. A binary search narrows to
//! [`LINEAR_MAX`] heads; those are counted without branches: the lower bound of an ascending
//! array is the number of elements below the target. Scalar, SSE2 and AVX2 give the same answer.

#![allow(unsafe_code, reason = "SIMD loads and calls; every block states its proof")]

/// At most this many heads are compared one after another.
const LINEAR_MAX: usize = 64;

/// From this many heads on, the call to the AVX2 version pays.
#[cfg(target_arch = "x86_64")]
const AVX2_MIN: usize = 32;

/// Bytes of one head.
pub(crate) const HEAD_BYTES: usize = 4;

/// The first four bytes of `rest` as a big-endian number, short ones padded with zeros.
#[inline]
pub(crate) fn head_of(rest: &[u8]) -> u32 {
    match rest.first_chunk::<HEAD_BYTES>() {
        Some(bytes) => u32::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0; HEAD_BYTES];
            bytes[..rest.len()].copy_from_slice(rest);
            u32::from_be_bytes(bytes)
        }
    }
}

/// Head `at` of an array of heads.
#[inline]
pub(crate) fn head_at(heads: &[u8], at: usize) -> u32 {
    let bytes = heads.get(at * HEAD_BYTES..).and_then(<[u8]>::first_chunk);
    bytes.map_or(u32::MAX, |bytes| u32::from_le_bytes(*bytes))
}

/// The number of heads below `target` in an ascending array; of an array that is not ascending,
/// some number up to its length.
#[inline]
pub(crate) fn lower_bound(heads: &[u8], target: u32) -> usize {
    let mut base = 0;
    let mut len = heads.len() / HEAD_BYTES;
    while len > LINEAR_MAX {
        let half = len / 2;
        // Everything up to `half - 1` is below the target if that one is.
        base += if head_at(heads, base + half - 1) < target { half } else { 0 };
        len -= half;
    }
    base + count_below(&heads[base * HEAD_BYTES..(base + len) * HEAD_BYTES], target)
}

#[inline]
fn count_below(heads: &[u8], target: u32) -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        if heads.len() >= AVX2_MIN * HEAD_BYTES && std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: AVX2 was detected.
            return unsafe { x86::count_below_avx2(heads, target) };
        }
        x86::count_below_sse2(heads, target)
    }
    #[cfg(not(target_arch = "x86_64"))]
    count_below_scalar(heads, target)
}

#[inline]
fn count_below_scalar(heads: &[u8], target: u32) -> usize {
    let (heads, _) = heads.as_chunks::<HEAD_BYTES>();
    heads.iter().filter(|head| u32::from_le_bytes(**head) < target).count()
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{HEAD_BYTES, count_below_scalar};
    use std::arch::x86_64::*;

    /// Signed comparison of numbers whose top bit was flipped orders them as unsigned.
    const FLIP: i32 = i32::MIN;

    #[inline]
    pub fn count_below_sse2(heads: &[u8], target: u32) -> usize {
        const LANE_BYTES: usize = 4 * HEAD_BYTES;
        let (lanes, rest) = heads.as_chunks::<LANE_BYTES>();
        // SAFETY: SSE2 is part of x86_64, and each load reads the 16 bytes of one chunk.
        let counted = unsafe {
            let flip = _mm_set1_epi32(FLIP);
            let wanted = _mm_set1_epi32(target as i32 ^ FLIP);
            let mut sums = _mm_setzero_si128();
            for lane in lanes {
                let heads = _mm_xor_si128(_mm_loadu_si128(lane.as_ptr().cast()), flip);
                // A comparison that holds is -1.
                sums = _mm_sub_epi32(sums, _mm_cmpgt_epi32(wanted, heads));
            }
            let pairs = _mm_add_epi32(sums, _mm_shuffle_epi32::<0b01_00_11_10>(sums));
            let all = _mm_add_epi32(pairs, _mm_shuffle_epi32::<0b10_11_00_01>(pairs));
            _mm_cvtsi128_si32(all) as usize
        };
        counted + count_below_scalar(rest, target)
    }

    #[target_feature(enable = "avx2")]
    pub fn count_below_avx2(heads: &[u8], target: u32) -> usize {
        const LANE_BYTES: usize = 8 * HEAD_BYTES;
        let (lanes, rest) = heads.as_chunks::<LANE_BYTES>();
        let flip = _mm256_set1_epi32(FLIP);
        let wanted = _mm256_set1_epi32(target as i32 ^ FLIP);
        let mut sums = _mm256_setzero_si256();
        for lane in lanes {
            // SAFETY: the load reads the 32 bytes of one chunk.
            let heads = unsafe { _mm256_loadu_si256(lane.as_ptr().cast()) };
            let below = _mm256_cmpgt_epi32(wanted, _mm256_xor_si256(heads, flip));
            sums = _mm256_sub_epi32(sums, below);
        }
        let halves =
            _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256::<1>(sums));
        let pairs = _mm_add_epi32(halves, _mm_shuffle_epi32::<0b01_00_11_10>(halves));
        let all = _mm_add_epi32(pairs, _mm_shuffle_epi32::<0b10_11_00_01>(pairs));
        _mm_cvtsi128_si32(all) as usize + count_below_sse2(rest, target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn head() -> impl Strategy<Value = u32> {
        prop_oneof![any::<u32>(), 0u32..6, (u32::MAX - 5)..=u32::MAX, 0x7fff_fffeu32..0x8000_0003]
    }

    proptest! {
        #[test]
        fn every_way_agrees_with_the_definition(
            mut heads in proptest::collection::vec(head(), 0..400), target in head(), shift in 0usize..4,
        ) {
            heads.sort_unstable();
            let target = heads.get(target as usize).copied().unwrap_or(target);
            let mut bytes = vec![0; shift];
            heads.iter().for_each(|head| bytes.extend_from_slice(&head.to_le_bytes()));
            let bytes = &bytes[shift..];
            let want = heads.partition_point(|head| *head < target);
            prop_assert_eq!(lower_bound(bytes, target), want);
            prop_assert_eq!(count_below_scalar(bytes, target), want);
            #[cfg(target_arch = "x86_64")]
            {
                prop_assert_eq!(x86::count_below_sse2(bytes, target), want);
                if std::arch::is_x86_feature_detected!("avx2") {
                    // SAFETY: detected.
                    prop_assert_eq!(unsafe { x86::count_below_avx2(bytes, target) }, want);
                }
            }
        }

        #[test]
        fn heads_keep_the_order_of_keys(a: Vec<u8>, b: Vec<u8>) {
            if a <= b { prop_assert!(head_of(&a) <= head_of(&b)); }
        }
    }
}
