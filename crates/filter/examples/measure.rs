//! Prints, for several sizes of filter: measured and expected false positive rate, nanoseconds
//! per key built, and per lookup of an absent key in a filter that is in the nearest cache, in
//! memory, and in memory but prefetched. Run with `--release`.

use std::hint::black_box;
use std::time::Instant;
use terrace_base::{Rng, SplitMix64};
use terrace_filter::{FilterKind, build, may_contain, prefetch, theoretical_fpr};

const KIND: FilterKind = FilterKind::BlockedBloom;
const PARTITION_BITS: f64 = 4096.0 * 8.0;
const COLD_PARTITIONS: usize = 64 << 10;
const RATE_LOOKUPS: u64 = 20_000_000;
const HOT_LOOKUPS: u64 = 20_000_000;
const COLD_LOOKUPS: u64 = 4_000_000;
const BATCH: usize = 16;

fn main() {
    println!(
        "bits     fpr  model  ratio   build  ns/lookup: hot    cold  cold, {BATCH} prefetched"
    );
    for bits in [4.0, 8.0, 10.0, 16.0, 23.4] {
        let mut rng = SplitMix64::new(1);
        let keys = (PARTITION_BITS / bits) as usize;
        let hashes: Vec<u64> = (0..keys).map(|_| rng.next_u64()).collect();

        let model = theoretical_fpr(KIND, bits);
        let rate = false_positive_rate(bits, &mut rng);
        let mut filter = Vec::with_capacity(8192);
        let build_ns = per(300 * keys as u64, || {
            for _ in 0..300 {
                filter.clear();
                build(KIND, black_box(&hashes), bits, &mut filter);
            }
        });
        let hot_ns = per(HOT_LOOKUPS, || {
            let found = (0..HOT_LOOKUPS).filter(|_| may_contain(KIND, &filter, rng.next_u64()));
            black_box(found.count());
        });
        let many = filter.repeat(COLD_PARTITIONS);
        let (cold_ns, batched_ns) = cold(&many, filter.len(), &mut rng);
        println!(
            "{bits:4.1} {rate:.2e} {model:.2e} {:.3} {build_ns:6.1} {hot_ns:14.1} {cold_ns:7.1} {batched_ns:8.1}",
            rate / model
        );
    }
}

/// Over one large filter, so that the unevenness of small ones averages out.
fn false_positive_rate(bits: f64, rng: &mut SplitMix64) -> f64 {
    let hashes: Vec<u64> = (0..1_000_000).map(|_| rng.next_u64()).collect();
    let mut filter = Vec::new();
    build(KIND, &hashes, bits, &mut filter);
    let found = (0..RATE_LOOKUPS).filter(|_| may_contain(KIND, &filter, rng.next_u64())).count();
    found as f64 / RATE_LOOKUPS as f64
}

/// Lookups in random partitions, each waiting for the one before; then a batch at a time.
fn cold(many: &[u8], len: usize, rng: &mut SplitMix64) -> (f64, f64) {
    let partition = |n: u64| {
        let at = (n % COLD_PARTITIONS as u64) as usize * len;
        &many[at..at + len]
    };
    let single = per(COLD_LOOKUPS, || {
        let mut last = 0;
        for _ in 0..COLD_LOOKUPS {
            let hash = rng.next_u64();
            last = u64::from(may_contain(KIND, partition(hash.wrapping_add(last)), hash));
        }
        black_box(last);
    });
    let batched = per(COLD_LOOKUPS, || {
        let mut found = 0;
        for _ in 0..COLD_LOOKUPS as usize / BATCH {
            let hashes: [u64; BATCH] = std::array::from_fn(|_| rng.next_u64());
            hashes.iter().for_each(|h| prefetch(KIND, partition(*h), *h));
            found += hashes.iter().filter(|h| may_contain(KIND, partition(**h), **h)).count();
        }
        black_box(found);
    });
    (single, batched)
}

/// Nanoseconds per one of `count` things that `work` does.
fn per(count: u64, work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_nanos() as f64 / count as f64
}
