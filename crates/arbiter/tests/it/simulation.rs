//! How far from the best fixed split the arbiter ends, how fast it follows, and how seldom it turns.

use crate::world::{self, BUDGET, POOLS, Split, Store, Workload};
use terrace_arbiter::{Arbiter, Decision};

const SEEDS: u64 = 3;
/// Steps, a second each, after which it has found its split from the default one.
const SETTLE: usize = 180;

/// Lets it run; gives the mean cost of the last `mean_of` steps.
fn run(
    arbiter: &mut Arbiter,
    store: &mut Store,
    w: &Workload,
    steps: usize,
    mean_of: usize,
) -> f64 {
    let mut sum = 0.0;
    for step in 0..steps {
        store.run(w);
        let readings = store.readings(w);
        let total: u64 = readings.iter().map(|pool| pool.bytes).sum();
        assert!(total <= BUDGET as u64, "the pools have {total} bytes");
        if let Decision::Move(moved) = arbiter.step(BUDGET as u64, &readings) {
            assert!(moved.bytes as f64 <= 0.04 * BUDGET, "{moved}");
            let from = &readings[moved.from];
            assert!(from.bytes - moved.bytes >= from.floor_bytes, "{moved}");
            store.carry_out(&moved);
        }
        if step + mean_of >= steps {
            sum += w.cost(&store.limits);
        }
    }
    sum / mean_of as f64
}

fn percent(split: &Split) -> [i64; POOLS] {
    split.map(|bytes| (bytes / BUDGET * 100.0).round() as i64)
}

#[test]
fn each_of_ten_workloads_ends_within_five_percent_of_the_best_fixed_split() {
    let mut bad = Vec::new();
    for w in world::all() {
        let (best, split) = w.best();
        for seed in 0..SEEDS {
            let (mut arbiter, mut store) = (Arbiter::new(), Store::new(seed));
            let cost = run(&mut arbiter, &mut store, &w, SETTLE + 60, 60);
            let line = format!(
                "{:<24} best {:?} {best:>9.0}, moved to {:?} {cost:>9.0} ({:+.1} %), {} turns",
                w.name,
                percent(&split),
                percent(&store.limits),
                (cost / best - 1.0) * 100.0,
                arbiter.turns()
            );
            println!("{line}");
            if cost > best * 1.05 {
                bad.push(line);
            }
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

#[test]
fn a_minute_after_any_shift_it_is_within_ten_percent() {
    let mut bad = Vec::new();
    let all = world::all();
    let best: Vec<f64> = all.iter().map(|w| w.best().0).collect();
    for (from, before) in all.iter().enumerate() {
        for (to, after) in all.iter().enumerate().filter(|(to, _)| *to != from) {
            let (mut arbiter, mut store) =
                (Arbiter::new(), Store::new(from as u64 * 16 + to as u64));
            run(&mut arbiter, &mut store, before, SETTLE, 1);
            let cost = run(&mut arbiter, &mut store, after, 60, 1);
            if cost > best[to] * 1.10 {
                bad.push(format!(
                    "{} -> {}: {:?} costs {:+.1} %",
                    before.name,
                    after.name,
                    percent(&store.limits),
                    (cost / best[to] - 1.0) * 100.0
                ));
            }
        }
    }
    assert!(bad.is_empty(), "{} shifts:\n{}", bad.len(), bad.join("\n"));
}

#[test]
fn it_does_not_swing() {
    let mut bad = Vec::new();
    for w in world::all() {
        for seed in 0..SEEDS {
            let (mut arbiter, mut store) = (Arbiter::new(), Store::new(seed));
            run(&mut arbiter, &mut store, &w, SETTLE, 1);
            let before = arbiter.turns();
            run(&mut arbiter, &mut store, &w, 3600, 1);
            let turns = arbiter.turns() - before;
            println!("{}: {turns} turns in an hour", w.name);
            bad.extend((turns > 60).then(|| format!("{}: {turns} turns in an hour", w.name)));
        }
    }
    assert!(bad.is_empty(), "{bad:?}");
}

#[test]
fn a_workload_that_shifts_every_second_gets_one_split_for_both() {
    let all = world::all();
    for (one, other) in [(0, 5), (3, 5), (0, 3), (2, 9)] {
        let (one, other) = (&all[one], &all[other]);
        let (mut arbiter, mut store) = (Arbiter::new(), Store::new(7));
        let mut mean = 0.0;
        for _ in 0..600 {
            let a = run(&mut arbiter, &mut store, one, 1, 1);
            let b = run(&mut arbiter, &mut store, other, 1, 1);
            mean = 0.99 * mean + 0.01 * (a + b);
        }
        let mean = one.cost(&store.limits) + other.cost(&store.limits);
        let start = one.cost(&world::DEFAULT) + other.cost(&world::DEFAULT);
        println!("{} / {}: {mean:.0} {start:.0} {} turns", one.name, other.name, arbiter.turns());
        assert!(arbiter.turns() <= 40, "{} / {}: {} turns", one.name, other.name, arbiter.turns());
        assert!(mean <= start * 1.02, "{} / {}: {mean} {start}", one.name, other.name);
    }
}
