//! Prints nanoseconds per hit of [`terrace_cache::Cache`] and of bare `quick_cache`, one thread
//! and two, over blocks that all fit. Run with `--release`.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;
use terrace_base::{Rng, SplitMix64};
use terrace_cache::{Cache, CacheKey, Cached, Priority};

const BLOCKS: [u64; 2] = [1_000, 1_000_000];
const LOOKUPS: u64 = 10_000_000;

#[derive(Clone)]
struct Block(Arc<u64>);

impl Cached for Block {
    fn charge_bytes(&self) -> usize {
        4096
    }

    fn priority(&self) -> Priority {
        Priority::Normal
    }

    fn take_touched(&self) -> bool {
        false
    }

    fn on_evicted(&self) {}
}

fn key(block: u64) -> CacheKey {
    CacheKey { file: block >> 14, offset: (block & 0x3fff) << 12 }
}

fn main() {
    for blocks in BLOCKS {
        let cache = Cache::new(blocks as usize * 8192);
        let bare = quick_cache::sync::Cache::<CacheKey, Block>::new(blocks as usize * 2);
        for n in 0..blocks {
            let block = Block(Arc::new(n));
            cache.insert(key(n), block.clone());
            bare.insert(key(n), block);
        }
        for threads in [1, 2] {
            for _ in 0..3 {
                let ours = lookups(threads, blocks, |key| cache.get(key));
                let theirs = lookups(threads, blocks, |key| bare.get(key));
                println!(
                    "{blocks:9} blocks, {threads} threads: {ours:6.1} ns, bare {theirs:6.1} ns"
                );
            }
        }
        assert_eq!(cache.stats().misses, 0);
    }
}

/// Nanoseconds per lookup of a random block, on each thread.
fn lookups(threads: u64, blocks: u64, get: impl Fn(&CacheKey) -> Option<Block> + Sync) -> f64 {
    let start = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let get = &get;
            scope.spawn(move || {
                let mut rng = SplitMix64::new(thread);
                let mut sum = 0;
                for _ in 0..LOOKUPS {
                    sum += get(&key(rng.below(blocks))).map_or(0, |block| *block.0);
                }
                black_box(sum);
            });
        }
    });
    start.elapsed().as_nanos() as f64 / LOOKUPS as f64
}
