//! The `budget` allocator against brute force, and scripts: hotness in, units out.

use super::*;
use crate::memory::filter_budget::curve::{self, Curve};
use std::sync::Arc;
use terrace_base::FileNumber;
use terrace_base::rng::{Rng, SplitMix64};

/// Partitions that only the allocator changes.
struct World {
    price: Price,
    offers: Vec<Offer>,
    budget_bytes: usize,
    slice: usize,
    lookups: u64,
}

impl World {
    fn new(partitions: Vec<(Curve, f64)>, budget_bytes: usize) -> Self {
        let offer = |(at, (curve, heat)): (usize, (Curve, f64))| Offer {
            id: PartitionId { file: FileNumber::new(1), at: at as u32 },
            curve: Arc::new(curve),
            heat,
            accesses: 0,
            units: 0,
        };
        let offers: Vec<Offer> = partitions.into_iter().enumerate().map(offer).collect();
        let slice = offers.len();
        Self { price: Price::new(), offers, budget_bytes, slice, lookups: 0 }
    }

    fn used_bytes(&self) -> usize {
        self.offers.iter().map(|offer| offer.curve.charge_bytes(offer.units)).sum()
    }

    fn cost(&self) -> f64 {
        self.offers.iter().map(|offer| offer.heat * offer.curve.fpr(offer.units)).sum()
    }

    fn units(&self) -> Vec<u8> {
        self.offers.iter().map(|offer| offer.units).collect()
    }

    /// One pass; whether anything moved.
    fn pass(&mut self) -> bool {
        let count = self.offers.len();
        let mut moved = false;
        for start in (0..count).step_by(self.slice) {
            let slice = start..(start + self.slice).min(count);
            let room = Room {
                budget_bytes: self.budget_bytes,
                used_bytes: self.used_bytes(),
                load_bytes: usize::MAX,
                least_gain: 0.0,
                lookups: self.lookups,
                partitions: count,
                begins_pass: start == 0,
                ends_pass: slice.end == count,
            };
            let moves = self.price.decide(&self.offers[slice], &room);
            for (id, units) in moves.drops.iter().chain(&moves.loads) {
                moved = true;
                self.offers[id.at as usize].units = *units;
            }
            assert!(self.used_bytes() <= self.budget_bytes, "the budget holds at every step");
        }
        moved
    }

    fn settle(&mut self) {
        let (mut quiet, mut passes) = (0, 0);
        while quiet < POLISH_EVERY {
            quiet = if self.pass() { 0 } else { quiet + 1 };
            passes += 1;
            assert!(passes < 1000, "it comes to rest: {:?}", self.units());
        }
    }
}

fn used(offers: &[Offer], units: &[u8]) -> usize {
    offers.iter().zip(units).map(|(offer, units)| offer.curve.charge_bytes(*units)).sum()
}

/// The least cost of all choices that fit.
fn brute_force(offers: &[Offer], budget_bytes: usize) -> f64 {
    let mut units = vec![0u8; offers.len()];
    let mut least = f64::INFINITY;
    loop {
        if used(offers, &units) <= budget_bytes {
            let cost = offers.iter().zip(&units).map(|(o, u)| o.heat * o.curve.fpr(*u)).sum();
            least = least.min(cost);
        }
        let Some(at) = (0..units.len()).find(|at| units[*at] < offers[*at].curve.units()) else {
            return least;
        };
        units[..at].fill(0);
        units[at] += 1;
    }
}

fn drawn_partition(rng: &mut SplitMix64) -> (Curve, f64) {
    let keys = match rng.one_in(4) {
        true => 500 + rng.below(15_500) as usize,
        false => 16_000,
    };
    let curve = match rng.below(3) {
        0 => curve::bloom(keys, 2.0, 6, 96),
        _ => curve::ribbon(keys, 9, 96),
    };
    (curve, (-rng.unit() * 12.0).exp2())
}

#[test]
fn the_cost_is_within_two_percent_of_the_least_possible() {
    let mut rng = SplitMix64::new(11);
    let (mut worst, mut sum, mut cases) = (1.0f64, 0.0, 0);
    for _ in 0..150 {
        let partitions: Vec<_> = (0..2 + rng.below(4)).map(|_| drawn_partition(&mut rng)).collect();
        let all: usize = partitions.iter().map(|(curve, _)| curve.charge_bytes(255)).sum();
        let budget_bytes = (all as f64 * rng.unit()) as usize;
        let mut world = World::new(partitions, budget_bytes);
        world.settle();
        let ratio = world.cost() / brute_force(&world.offers, budget_bytes);
        worst = worst.max(ratio);
        sum += ratio;
        cases += 1;
    }
    println!("cost over least possible: {:.4} on average, {worst:.4} at worst", sum / cases as f64);
    assert!(worst <= 1.02, "{worst}");
}

#[test]
fn large_worlds_are_near_the_ideal_in_one_slice_and_in_many() {
    for slice in [2000, 300] {
        let mut rng = SplitMix64::new(5);
        let partitions: Vec<_> = (0..2000).map(|_| drawn_partition(&mut rng)).collect();
        let all: usize = partitions.iter().map(|(curve, _)| curve.charge_bytes(255)).sum();
        let mut world = World::new(partitions, all / 3);
        world.slice = slice;
        for _ in 0..100 {
            world.pass();
        }
        let mut steps: Vec<(f64, usize)> = world
            .offers
            .iter()
            .flat_map(|o| o.curve.climb().map(|step| (o.heat * step.slope, step.bytes)))
            .collect();
        steps.sort_by(|a, b| b.0.total_cmp(&a.0));
        let (mut free, mut ideal) = (world.budget_bytes as f64, 0.0);
        ideal += world.offers.iter().map(|offer| offer.heat).sum::<f64>();
        for (gain, bytes) in steps {
            let taken = free.min(bytes as f64);
            (free, ideal) = (free - taken, ideal - gain * taken);
        }
        let ratio = world.cost() / ideal;
        let most = if slice == 2000 { 1.01 } else { 1.03 };
        assert!(ratio < most, "{ratio} in slices of {slice}");
        assert!(free < 1.0 && world.used_bytes() > world.budget_bytes / 100 * 98);
    }
}

/// Runs a script, line by line: `heat A B ...` sets the heats in thousandths, `budget N` the budget
/// in units of 1,000 bytes; each line is followed by the units it leads to.
fn script(text: &str) {
    // Ribbons of 8,000 keys without a header: a plane is 1,000 bytes, two planes the first unit.
    let partitions = || (curve::ribbon(8_000, 9, 0), 0.0);
    let mut world = World::new((0..4).map(|_| partitions()).collect(), 0);
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (command, expected) = line.split_once("->").unwrap();
        let (word, numbers) = command.trim().split_once(' ').unwrap();
        let numbers: Vec<f64> = numbers.split(' ').map(|n| n.parse().unwrap()).collect();
        match word {
            "heat" => {
                let offers = world.offers.iter_mut().zip(&numbers);
                offers.for_each(|(offer, heat)| offer.heat = heat / 1000.0);
            }
            "budget" => world.budget_bytes = numbers[0] as usize * 1000,
            word => panic!("unknown command {word}"),
        }
        // A smaller budget is above what is used until the step that drops.
        if word == "budget" {
            let room = |world: &World| Room {
                budget_bytes: world.budget_bytes,
                used_bytes: world.used_bytes(),
                load_bytes: usize::MAX,
                least_gain: 0.0,
                lookups: 0,
                partitions: 4,
                begins_pass: true,
                ends_pass: true,
            };
            let moves = world.price.decide(&world.offers, &room(&world));
            for (id, units) in moves.drops.iter().chain(&moves.loads) {
                world.offers[id.at as usize].units = *units;
            }
        }
        for _ in 0..3 * POLISH_EVERY {
            world.pass();
        }
        let units: Vec<String> = world.units().iter().map(u8::to_string).collect();
        assert_eq!(units.join(" "), expected.trim(), "after `{command}`");
    }
}

#[test]
fn hotness_in_units_out() {
    // Without memory there are no units; memory goes where it saves most; a partition twice as
    // hot gets one column more; what is cold gives way; a smaller budget takes the cheapest.
    script(
        "
        heat 100 100 100 100    -> 0 0 0 0
        budget 2                -> 1 0 0 0
        budget 8                -> 1 1 1 1
        budget 12               -> 2 2 2 2
        heat 200 100 100 50     -> 3 2 2 1
        heat 800 100 100 13     -> 5 2 2 0
        heat 13 100 100 800     -> 0 2 2 5
        budget 8                -> 0 1 1 3
        budget 17               -> 1 3 3 6
        heat 0 0 0 0            -> 1 3 3 6
        ",
    );
}
