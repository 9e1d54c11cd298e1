//! The elimination compiled once more for machines with wider vectors: the only unsafe code of
//! the ribbon. The instructions are those that the compiler finds for the same source.
#![allow(unsafe_code, reason = "a CPU feature found at run time")]

use super::GRANULE_SLOTS;
use super::pool::Pool;

/// [`Pool::triangulate`], as fast as this machine can.
#[cfg(target_arch = "x86_64")]
pub(super) fn triangulate(
    pool: &mut Pool,
    tails: &[usize; GRANULE_SLOTS],
    rows: &mut [u128; GRANULE_SLOTS],
    results: &mut [u32; GRANULE_SLOTS],
) {
    #[target_feature(enable = "avx2")]
    fn with_avx2(
        pool: &mut Pool,
        tails: &[usize; GRANULE_SLOTS],
        rows: &mut [u128; GRANULE_SLOTS],
        results: &mut [u32; GRANULE_SLOTS],
    ) {
        pool.triangulate(tails, rows, results);
    }
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: AVX2 was found on this machine.
        unsafe { with_avx2(pool, tails, rows, results) }
    } else {
        pool.triangulate(tails, rows, results);
    }
}

/// Machines whose widest vectors are always there.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn triangulate(
    pool: &mut Pool,
    tails: &[usize; GRANULE_SLOTS],
    rows: &mut [u128; GRANULE_SLOTS],
    results: &mut [u32; GRANULE_SLOTS],
) {
    pool.triangulate(tails, rows, results);
}
