//! The lower bound over key heads, the innermost loop of every lookup.
//!
//! Heads are `u32`s, little-endian, ascending, at any alignment. A branchless binary search
//! narrows to [`WINDOW`] heads, which are then compared all at once: the lower bound of an
//! ascending array is the number of elements below the target. On x86_64 that is four SSE2
//! comparisons, everywhere else the same in scalar code. (AVX2 saves two of them and costs a
//! detection and a call, which is more.)

#![allow(unsafe_code, reason = "SIMD loads; the block states its proof")]

/// Heads compared at once.
pub(crate) const WINDOW: usize = 16;

/// Bytes of one head.
pub(crate) const HEAD_BYTES: usize = 4;

/// A stored head.
pub(crate) type Head = [u8; HEAD_BYTES];

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

/// The number of heads below `target` in an ascending array; of an array that is not ascending,
/// some number up to its length.
#[inline]
pub(crate) fn lower_bound(heads: &[Head], target: u32) -> usize {
    let mut base = 0;
    let mut len = heads.len();
    while len > WINDOW {
        let half = len / 2;
        // Everything up to there is below the target if that one is.
        let below = heads.get(base + half - 1).is_some_and(|head| number(*head) < target);
        base += std::hint::select_unpredictable(below, half, 0);
        len -= half;
    }
    lower_bound_in_group(heads, base, target)
}

/// The lower bound if it is known to lie in `from..=from + WINDOW`.
#[inline]
pub(crate) fn lower_bound_in_group(heads: &[Head], from: usize, target: u32) -> usize {
    // All heads before `from` are below the target, so any window that covers the range finds it.
    let start = from.min(heads.len().saturating_sub(WINDOW));
    match heads[start..].first_chunk::<WINDOW>() {
        Some(window) => start + count_below(window, target),
        None => heads.iter().filter(|head| number(**head) < target).count(),
    }
}

#[inline]
fn number(head: Head) -> u32 {
    u32::from_le_bytes(head)
}

#[cfg(not(target_arch = "x86_64"))]
use count_below_scalar as count_below;

#[cfg(any(test, not(target_arch = "x86_64")))]
fn count_below_scalar(window: &[Head; WINDOW], target: u32) -> usize {
    window.iter().filter(|head| number(**head) < target).count()
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn count_below(window: &[Head; WINDOW], target: u32) -> usize {
    use std::arch::x86_64::*;
    // Signed comparison of numbers whose top bit was flipped orders them as unsigned.
    const FLIP: i32 = i32::MIN;
    // SAFETY: SSE2 is part of x86_64; the four loads read the 64 bytes of the window.
    unsafe {
        let at = window.as_ptr().cast::<__m128i>();
        let flip = _mm_set1_epi32(FLIP);
        let wanted = _mm_set1_epi32(target as i32 ^ FLIP);
        let below = |lane: usize| {
            _mm_cmpgt_epi32(wanted, _mm_xor_si128(_mm_loadu_si128(at.add(lane)), flip))
        };
        // One byte per comparison, 0xff where it holds.
        let low = _mm_packs_epi32(below(0), below(1));
        let high = _mm_packs_epi32(below(2), below(3));
        _mm_movemask_epi8(_mm_packs_epi16(low, high)).count_ones() as usize
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
            mut heads in proptest::collection::vec(head(), 0..400), target in head(),
        ) {
            heads.sort_unstable();
            let target = heads.get(target as usize).copied().unwrap_or(target);
            let stored: Vec<Head> = heads.iter().map(|head| head.to_le_bytes()).collect();
            let want = heads.partition_point(|head| *head < target);
            prop_assert_eq!(lower_bound(&stored, target), want);
            if let Some(window) = stored.first_chunk::<WINDOW>() {
                prop_assert_eq!(count_below(window, target), count_below_scalar(window, target));
                prop_assert_eq!(count_below(window, target), want.min(WINDOW));
            }
        }

        #[test]
        fn disorder_stays_in_bounds(
            heads in proptest::collection::vec(any::<[u8; 4]>(), 0..100), target: u32,
        ) {
            prop_assert!(lower_bound(&heads, target) <= heads.len());
        }

        #[test]
        fn heads_keep_the_order_of_keys(a: Vec<u8>, b: Vec<u8>) {
            if a <= b { prop_assert!(head_of(&a) <= head_of(&b)); }
        }
    }
}
