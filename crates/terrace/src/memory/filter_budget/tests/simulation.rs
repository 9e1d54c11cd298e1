//! What the allocators save: a simulation without I/O. Eight million keys in one sorted run of
//! filter partitions; lookups follow Zipf 0.99 over the key space in order (the hot keys lie
//! together), half of them for absent keys, which are spread like the present ones; memory for 4
//! bits per key, headers included. `cargo test -p terrace filter_budget::simulation -- --nocapture`
//! prints the table; the assertions hold the marks.

use super::super::allocator::{Allocator, Moves, Offer, PartitionId, Room};
use super::super::curve::{self, Curve};
use super::super::heat::Heat;
use super::super::multi_queue::MultiQueue;
use super::super::price::Price;
use std::sync::Arc;
use terrace_base::FileNumber;
use terrace_base::rng::{Rng, SplitMix64};

const KEYS: usize = 8_000_000;
const PARTITION_KEYS: usize = 16_000;
const BITS_PER_KEY: f64 = 4.0;
const EXPONENT: f64 = 0.99;
/// Lookups between two looks of the allocator: 50 ms at 100,000 lookups per second.
const STEP_LOOKUPS: u64 = 5_000;
/// What a partition costs besides its units.
const HEADER_BYTES: usize = 96;
/// Wasted reads per wasted lookup of uniform Bloom filters with the same memory.
const UNIFORM: f64 = 0.146_34;

struct Partition {
    curve: Arc<Curve>,
    heat: Heat,
    units: u8,
    /// The probability that a lookup of an absent key comes here.
    share: f64,
}

struct Simulation {
    rng: SplitMix64,
    partitions: Vec<Partition>,
    allocator: Box<dyn Allocator>,
    budget_bytes: usize,
    lookups: u64,
    /// Partitions per slice.
    slice: usize,
    hand: usize,
    seen_at: Vec<u64>,
    cumulative: Vec<f64>,
    accesses: Vec<u32>,
    /// Wasted lookups and their variance.
    wasted: Vec<(u32, u32)>,
    loaded_bytes: usize,
}

/// The sum of the weights of ranks `from + 1 ..= to`.
fn zipf(from: usize, to: usize) -> f64 {
    const EXACT: usize = 1000;
    let exact = (from + 1..=to.min(EXACT)).map(|rank| (rank as f64).powf(-EXPONENT)).sum::<f64>();
    let area = |rank: f64| rank.powf(1.0 - EXPONENT) / (1.0 - EXPONENT);
    match to > EXACT {
        true => exact + area(to as f64 + 0.5) - area(from.max(EXACT) as f64 + 0.5),
        false => exact,
    }
}

impl Simulation {
    fn new(allocator: Box<dyn Allocator>, curve: &Curve, bits_per_key: f64) -> Self {
        let count = KEYS / PARTITION_KEYS;
        let curve = Arc::new(curve.clone());
        let partition = |_| {
            let (curve, heat) = (curve.clone(), Heat::usual(0.1 / count as f64));
            Partition { curve, heat, units: 0, share: 0.0 }
        };
        let mut simulation = Self {
            rng: SplitMix64::new(7),
            partitions: (0..count).map(partition).collect(),
            allocator,
            budget_bytes: (KEYS as f64 * bits_per_key / 8.0) as usize,
            lookups: 0,
            slice: count,
            hand: 0,
            seen_at: vec![0; count],
            cumulative: Vec::new(),
            accesses: vec![0; count],
            wasted: vec![(0, 0); count],
            loaded_bytes: 0,
        };
        simulation.shift(0.0);
        simulation
    }

    /// Lays the hottest key at this part of the key space.
    fn shift(&mut self, part: f64) {
        let count = self.partitions.len();
        let all = zipf(0, KEYS);
        let offset = (part * count as f64) as usize;
        for rank in 0..count {
            let share = zipf(rank * PARTITION_KEYS, (rank + 1) * PARTITION_KEYS) / all;
            self.partitions[(rank + offset) % count].share = share;
        }
        let mut sum = 0.0;
        let shares = self.partitions.iter().map(|partition| partition.share);
        self.cumulative = shares
            .map(|share| {
                sum += share;
                sum
            })
            .collect();
    }

    fn used_bytes(&self) -> usize {
        self.partitions.iter().map(|p| p.curve.charge_bytes(p.units)).sum()
    }

    /// Wasted reads per lookup of an absent key.
    fn cost(&self) -> f64 {
        self.partitions.iter().map(|p| p.share * p.curve.fpr(p.units)).sum()
    }

    /// The least cost that any choice of units within the budget has, fractions of a unit allowed.
    fn ideal(&self) -> f64 {
        let mut steps: Vec<(f64, usize)> = self
            .partitions
            .iter()
            .flat_map(|p| p.curve.climb().map(|step| (p.share * step.slope, step.bytes)))
            .collect();
        steps.sort_by(|a, b| b.0.total_cmp(&a.0));
        let (mut free, mut cost) = (self.budget_bytes as f64, 1.0);
        for (gain, bytes) in steps {
            let taken = free.min(bytes as f64);
            cost -= gain * taken;
            free -= taken;
        }
        cost
    }

    fn draw(&mut self) {
        for lookup in 0..STEP_LOOKUPS {
            let place = self.rng.unit();
            let at = self.cumulative.partition_point(|sum| *sum < place);
            let at = at.min(self.partitions.len() - 1);
            self.accesses[at] += 1;
            if lookup % 2 == 0 {
                self.waste(at);
            }
        }
        self.lookups += STEP_LOOKUPS;
    }

    /// Counts a wasted lookup as readers do: those that the filter stops exactly at first, then
    /// one in eight as eight.
    fn waste(&mut self, at: usize) {
        let partition = &self.partitions[at];
        let stopped = self.rng.unit() >= partition.curve.fpr(partition.units);
        let (count, variance) = &mut self.wasted[at];
        if !stopped || *count < 64 {
            (*count, *variance) = (*count + 1, *variance + 1);
        } else if self.rng.one_in(8) {
            (*count, *variance) = (*count + 8, *variance + 64);
        }
    }

    /// Some lookups, and a look of the allocator at one slice.
    fn step(&mut self) {
        self.draw();
        let count = self.partitions.len();
        let slice = self.hand..(self.hand + self.slice).min(count);
        self.hand = slice.end % count;
        let mut offers = Vec::new();
        for at in slice.clone() {
            let partition = &mut self.partitions[at];
            let passed = self.lookups - std::mem::replace(&mut self.seen_at[at], self.lookups);
            let (wasted, variance) = std::mem::take(&mut self.wasted[at]);
            partition.heat.note(wasted, variance, passed);
            offers.push(Offer {
                id: PartitionId { file: FileNumber::new(1), at: at as u32 },
                curve: partition.curve.clone(),
                heat: partition.heat.rate(),
                accesses: std::mem::take(&mut self.accesses[at]),
                units: partition.units,
            });
        }
        let room = Room {
            budget_bytes: self.budget_bytes,
            used_bytes: self.used_bytes(),
            load_bytes: 4 << 20,
            least_gain: 0.0,
            lookups: self.lookups,
            partitions: count,
            begins_pass: slice.start == 0,
            ends_pass: slice.end == count,
        };
        let moves = self.allocator.decide(&offers, &room);
        self.apply(&moves);
    }

    fn apply(&mut self, moves: &Moves) {
        for (id, units) in &moves.drops {
            let partition = &mut self.partitions[id.at as usize];
            assert!(*units < partition.units, "a drop drops");
            partition.units = *units;
        }
        for (id, units) in &moves.loads {
            let partition = &mut self.partitions[id.at as usize];
            assert!(*units > partition.units, "a load loads");
            let bytes = |units| partition.curve.charge_bytes(units);
            self.loaded_bytes += bytes(*units) - bytes(partition.units);
            partition.units = *units;
        }
        let used = self.used_bytes();
        assert!(used <= self.budget_bytes, "{used} of {} bytes", self.budget_bytes);
    }

    fn run(&mut self, lookups: u64) {
        for _ in 0..lookups / STEP_LOOKUPS {
            self.step();
        }
    }

    /// The mean cost over this many lookups.
    fn mean_cost(&mut self, lookups: u64) -> f64 {
        let steps = lookups / STEP_LOOKUPS;
        let costs = (0..steps).map(|_| {
            self.step();
            self.cost()
        });
        costs.sum::<f64>() / steps as f64
    }

    /// Lookups until the cost stays within 1.2 times `steady`, of at most `most`.
    fn recovery(&mut self, steady: f64, most: u64) -> u64 {
        let mut late = 0;
        for step in 1..=most / STEP_LOOKUPS {
            self.step();
            if self.cost() > 1.2 * steady {
                late = step * STEP_LOOKUPS;
            }
        }
        late + STEP_LOOKUPS
    }
}

/// Steady cost, the ratio to uniform Bloom, and lookups to recover from a shift by half.
fn measure(name: &str, mut simulation: Simulation) -> (f64, u64) {
    simulation.run(1_000_000);
    let steady = simulation.mean_cost(500_000);
    let ideal = simulation.ideal();
    let loaded = simulation.loaded_bytes;
    simulation.run(500_000);
    let churn = (simulation.loaded_bytes - loaded) as f64 / 500_000.0;
    simulation.shift(0.5);
    let shifted = simulation.cost();
    let recovery = simulation.recovery(steady, 600_000);
    println!(
        "{name:<28} {steady:.5} wasted reads per absent lookup, {:5.1}x fewer than uniform Bloom \
         (ideal {:5.1}x), {churn:.2} bytes loaded per lookup; after the shift {shifted:.3}, within \
         1.2x of steady after {recovery} lookups",
        UNIFORM / steady,
        UNIFORM / ideal,
    );
    (UNIFORM / steady, recovery)
}

fn ribbon(columns: u8) -> Curve {
    curve::ribbon(PARTITION_KEYS, columns, HEADER_BYTES)
}

#[test]
fn budget_with_ribbon_columns_wastes_ten_times_less_than_uniform_bloom() {
    for columns in [8, 10, 12, 16] {
        let simulation = Simulation::new(Box::new(Price::new()), &ribbon(columns), BITS_PER_KEY);
        let (gain, recovery) = measure(&format!("budget, ribbon:{columns}"), simulation);
        if columns >= 12 {
            assert!(gain >= 10.0, "{gain}");
        }
        assert!(recovery <= 200_000, "{recovery}");
    }
    // Looked at in slices, as in a store of hundreds of thousands of partitions.
    let mut sliced = Simulation::new(Box::new(Price::new()), &ribbon(12), BITS_PER_KEY);
    sliced.slice = 100;
    let (gain, recovery) = measure("budget, ribbon:12, slices", sliced);
    assert!(gain >= 10.0, "{gain}");
    assert!(recovery <= 200_000, "{recovery}");
}

#[test]
fn budget_makes_use_of_bloom_units_as_well() {
    let bloom = curve::bloom(PARTITION_KEYS, 2.0, 8, HEADER_BYTES);
    let simulation = Simulation::new(Box::new(Price::new()), &bloom, BITS_PER_KEY);
    let (gain, recovery) = measure("budget, bloom:2x8", simulation);
    assert!(gain >= 3.0, "{gain}");
    assert!(recovery <= 200_000, "{recovery}");
}

#[test]
fn mq_with_bloom_units_wastes_half_of_what_uniform_bloom_does() {
    for (bits, units) in [(4.0, 6), (2.0, 12)] {
        let bloom = curve::bloom(PARTITION_KEYS, bits, units, HEADER_BYTES);
        let simulation = Simulation::new(Box::new(MultiQueue::new()), &bloom, BITS_PER_KEY);
        let (gain, _) = measure(&format!("mq, bloom:{bits}x{units}"), simulation);
        assert!(gain >= 2.0, "{gain}");
    }
    let simulation = Simulation::new(Box::new(MultiQueue::new()), &ribbon(10), BITS_PER_KEY);
    measure("mq, ribbon:10", simulation);
}

#[test]
fn small_budgets_and_none_are_kept() {
    for bits_per_key in [0.0, 0.001, 0.1, 1.0, 40.0] {
        for allocator in [Box::new(Price::new()) as Box<dyn Allocator>, Box::new(MultiQueue::new())]
        {
            let mut simulation = Simulation::new(allocator, &ribbon(12), bits_per_key);
            simulation.run(100_000);
            simulation.shift(0.5);
            simulation.run(100_000);
            let resident = simulation.partitions.iter().filter(|p| p.units > 0).count();
            assert_eq!(resident > 0, bits_per_key > 0.01, "{bits_per_key}");
        }
    }
}
