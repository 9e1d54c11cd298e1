//! Workloads of which all is known: what each pool's bytes cost, in microseconds of device time per
//! second, and what an engine would measure of it.

use terrace_arbiter::gains::{self, WriteFlow};
use terrace_arbiter::{Move, PoolReading};
use terrace_base::rng::{Rng, SplitMix64};

pub const MIB: f64 = (1 << 20) as f64;
/// Of all pools.
pub const BUDGET: f64 = 512.0 * MIB;
const READ_US: f64 = 90.0;
/// A microsecond for 250 bytes: 4 KiB in 16 us, device and processor together.
const US_PER_MERGED_BYTE: f64 = 0.004;
/// One key in this many is watched by the ghost list, which is as long as an eighth of the cache.
const SAMPLE: f64 = 8.0;
const GHOST_PART: f64 = 8.0;
const BLOCK: f64 = 4096.0;
/// Memtables, blocks, filters.
pub const POOLS: usize = 3;
pub const NAMES: [&str; POOLS] = ["memtables", "blocks", "filters"];
pub type Split = [f64; POOLS];
pub const DEFAULT: Split = [0.25 * BUDGET, 0.55 * BUDGET, 0.20 * BUDGET];
pub const GRAIN: u64 = 64 << 10;

/// How often reads find their block, by the bytes of the cache.
#[derive(Debug, Clone, Copy)]
pub enum Reads {
    /// As with ranks drawn from a Zipf distribution over blocks of these bytes, the hottest cached.
    Zipf { theta: f64, data: f64 },
    /// Each block alike.
    Uniform { data: f64 },
    /// This share of the reads goes to `hot` bytes, the others to all of them.
    HotSpot { share: f64, hot: f64, data: f64 },
}

impl Reads {
    fn hits(&self, cache: f64) -> f64 {
        match *self {
            Self::Uniform { data } => (cache / data).min(1.0),
            Self::HotSpot { share, hot, data } => {
                let in_hot = (cache / hot).min(1.0);
                let rest = ((cache - hot).max(0.0) / (data - hot)).min(1.0);
                share * in_hot + (1.0 - share) * rest
            }
            Self::Zipf { theta, data } => {
                let ranks = |bytes: f64| (bytes / BLOCK).max(1.0);
                let mass = |n: f64| (n.powf(1.0 - theta) - 1.0) / (1.0 - theta) + 1.0;
                (mass(ranks(cache.min(data))) / mass(ranks(data))).min(1.0)
            }
        }
    }
}

/// A workload.
#[derive(Debug, Clone, Copy)]
pub struct Workload {
    pub name: &'static str,
    /// Lookups that find their key.
    pub reads_per_s: f64,
    pub reads: Reads,
    /// Lookups of absent keys, and the keys that filters are of. A part of the keys gets nine tenths of
    /// them.
    pub absent_per_s: f64,
    pub keys: f64,
    pub hot_keys: f64,
    /// Bytes written.
    pub written_per_s: f64,
    pub largest_level: f64,
}

impl Workload {
    /// Device time per second.
    pub fn cost(&self, split: &Split) -> f64 {
        self.read_cost(split[1]) + self.absent_cost(split) + self.write_cost(split[0])
    }

    fn read_cost(&self, cache: f64) -> f64 {
        self.reads_per_s * (1.0 - self.reads.hits(cache)) * READ_US
    }

    fn missed(&self, cache: f64) -> f64 {
        1.0 - self.reads.hits(cache)
    }

    fn absent_cost(&self, split: &Split) -> f64 {
        self.absent_per_s * self.wasted(split[2]) * self.missed(split[1]) * READ_US
    }

    /// Reads in vain per lookup of an absent key, if filters have these bytes where they save most.
    fn wasted(&self, bytes: f64) -> f64 {
        let (hot, cold) = (self.keys * self.hot_keys, self.keys * (1.0 - self.hot_keys));
        let fpr = |bits: f64| 0.5f64.powf(bits.min(16.0));
        // Both have bits so that 0.9 / hot * fpr = 0.1 / cold * fpr, as far as there are any.
        let apart = ((0.9 / hot) / (0.1 / cold)).log2().max(0.0);
        let bits = bytes * 8.0;
        let cold_bits = ((bits - hot * apart) / (hot + cold)).max(0.0);
        let hot_bits = (bits - cold_bits * cold) / hot;
        0.9 * fpr(hot_bits) + 0.1 * fpr(cold_bits)
    }

    fn depth(&self, memtables: f64) -> f64 {
        (self.largest_level / memtables).max(1.0).ln().max(0.0)
    }

    fn merged_per_byte(&self, memtables: f64) -> f64 {
        5.0 * self.depth(memtables)
    }

    fn write_cost(&self, memtables: f64) -> f64 {
        self.written_per_s * (1.0 + self.merged_per_byte(memtables)) * US_PER_MERGED_BYTE
    }

    /// The cheapest split, by search.
    pub fn best(&self) -> (f64, Split) {
        let mut best = (f64::INFINITY, DEFAULT);
        let parts = 200;
        for memtables in 1..parts {
            for filters in 0..parts - memtables {
                let part = |n: i32| f64::from(n) / f64::from(parts) * BUDGET;
                let split = [part(memtables), part(parts - memtables - filters), part(filters)];
                let cost = self.cost(&split);
                if cost < best.0 {
                    best = (cost, split);
                }
            }
        }
        best
    }
}

/// A store that runs a workload: what it has, what of it is in use, and what it measures.
pub struct Store {
    pub limits: Split,
    used: Split,
    rng: SplitMix64,
    pub noisy: bool,
}

impl Store {
    pub fn new(seed: u64) -> Self {
        Self { limits: DEFAULT, used: DEFAULT, rng: SplitMix64::new(seed), noisy: true }
    }

    /// Normal, about.
    fn draw(&mut self) -> f64 {
        let sum: f64 = (0..12).map(|_| self.rng.below(1 << 20) as f64 / f64::from(1 << 20)).sum();
        if self.noisy { sum - 6.0 } else { 0.0 }
    }

    /// A second passes.
    pub fn run(&mut self, w: &Workload) {
        // The cache fills by misses; memtables are what they may be after four of them were flushed.
        let misses = self.missed_per_s(w);
        self.used[1] = (self.used[1] + misses * BLOCK).min(self.limits[1]);
        let turned_over = (4.0 * w.written_per_s / self.limits[0]).min(1.0);
        self.used[0] += (self.limits[0] - self.used[0]) * turned_over;
        self.used[0] = self.used[0].min(self.limits[0]);
        // 4 MiB in a step of 50 ms.
        self.used[2] = (self.used[2] + 80.0 * MIB).min(self.limits[2]);
    }

    fn missed_per_s(&self, w: &Workload) -> f64 {
        let missed = w.missed(self.used[1]);
        missed * (w.reads_per_s + w.absent_per_s * w.wasted(self.used[2]))
    }

    /// What the engine measures in a second.
    pub fn readings(&mut self, w: &Workload) -> [PoolReading; POOLS] {
        let jitter = |draw: f64, part: f64| (1.0 + part * draw).max(0.0);
        let cache = self.used[1];
        let ghost = cache / GHOST_PART;
        let watched = (w.missed(cache) - w.missed(cache + ghost)).max(0.0) * w.reads_per_s / SAMPLE;
        let seen = (watched + watched.sqrt() * self.draw()).max(0.0) * SAMPLE;
        let evictions = u64::from(w.missed(cache) > 0.0);
        let blocks = gains::of_cache(seen, ghost as u64, evictions, READ_US);
        let step = 1024.0;
        let bytes = self.used[2];
        let absent = w.absent_per_s / (w.absent_per_s + w.reads_per_s).max(1.0);
        let lambda = absent * (w.wasted(bytes) - w.wasted(bytes + step)) / step;
        let lookups = (w.absent_per_s + w.reads_per_s) * jitter(self.draw(), 0.05);
        let filters = gains::of_filters(lambda, lookups, w.missed(cache), READ_US);
        let memory = self.used[0];
        let k = w.merged_per_byte(memory) / w.depth(memory).max(1.0);
        let limit = self.limits[0];
        let merged = k * w.depth(limit).max(1.0);
        let writes = gains::of_write_memory(&WriteFlow {
            written_bytes_per_s: w.written_per_s * jitter(self.draw(), 0.15),
            merged_per_byte: merged * jitter(self.draw(), 0.1),
            us_per_merged_byte: US_PER_MERGED_BYTE,
            memory_bytes: limit as u64,
            largest_level_bytes: w.largest_level as u64,
        });
        let noise = [0.15, gains::counting_noise(seen, SAMPLE), 0.05];
        let gains = [Some(writes), blocks, Some(filters)];
        std::array::from_fn(|at| PoolReading {
            name: NAMES[at],
            bytes: self.limits[at] as u64,
            floor_bytes: [4 << 20, 8 << 20, 0][at],
            ceiling_bytes: BUDGET as u64,
            gain: gains[at],
            noise: noise[at],
            is_full: at == 0 || self.used[at] >= self.limits[at] * 0.94,
            grain_bytes: GRAIN,
        })
    }

    pub fn carry_out(&mut self, moved: &Move) {
        self.limits[moved.from] -= moved.bytes as f64;
        self.limits[moved.to] += moved.bytes as f64;
        for (used, limit) in self.used.iter_mut().zip(self.limits) {
            *used = used.min(limit);
        }
    }
}

const GIB: f64 = 1024.0 * MIB;

/// Ten of them.
pub fn all() -> [Workload; 10] {
    let calm = Workload {
        name: "",
        reads_per_s: 0.0,
        reads: Reads::Zipf { theta: 0.99, data: 8.0 * GIB },
        absent_per_s: 0.0,
        keys: 2e8,
        hot_keys: 0.1,
        written_per_s: 0.0,
        largest_level: 8.0 * GIB,
    };
    let zipf = |theta| Reads::Zipf { theta, data: 8.0 * GIB };
    let hot = Reads::HotSpot { share: 0.9, hot: 300.0 * MIB, data: 8.0 * GIB };
    [
        Workload { name: "reads, zipf 0.99", reads_per_s: 2e4, ..calm },
        Workload {
            name: "reads, uniform",
            reads_per_s: 1e4,
            reads: Reads::Uniform { data: 2.0 * GIB },
            ..calm
        },
        Workload { name: "reads, hot spot", reads_per_s: 2e4, reads: hot, ..calm },
        Workload { name: "absent keys", absent_per_s: 4e4, reads_per_s: 4e3, ..calm },
        Workload {
            name: "absent keys, all alike",
            absent_per_s: 4e4,
            reads_per_s: 4e3,
            hot_keys: 0.9,
            ..calm
        },
        Workload { name: "writes", written_per_s: 20e6, reads_per_s: 10.0, ..calm },
        Workload {
            name: "half and half",
            reads_per_s: 1e4,
            reads: zipf(0.8),
            written_per_s: 10e6,
            ..calm
        },
        Workload {
            name: "everything",
            reads_per_s: 5e3,
            reads: zipf(0.9),
            absent_per_s: 1e4,
            written_per_s: 5e6,
            ..calm
        },
        Workload {
            name: "read, modify, write",
            reads_per_s: 3e3,
            reads: Reads::Uniform { data: 4.0 * GIB },
            written_per_s: 3e6,
            largest_level: 4.0 * GIB,
            ..calm
        },
        Workload {
            name: "a queue",
            reads_per_s: 2e3,
            reads: Reads::HotSpot { share: 0.98, hot: 40.0 * MIB, data: 2.0 * GIB },
            absent_per_s: 2e3,
            written_per_s: 30e6,
            largest_level: 1.0 * GIB,
            keys: 1e7,
            ..calm
        },
    ]
}
