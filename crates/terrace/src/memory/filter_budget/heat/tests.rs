//! How well rates are known, and how soon a change is seen.

use super::*;
use terrace_base::rng::{Rng, SplitMix64};

const PRIOR: f64 = 1e-5;

/// Events of this many lookups, each one with probability `rate`.
fn draw(rng: &mut SplitMix64, rate: f64, lookups: u64) -> u32 {
    (0..lookups).filter(|_| rng.unit() < rate).count() as u32
}

fn run(heat: &mut Heat, rng: &mut SplitMix64, rate: f64, lookups: u64) {
    for _ in 0..lookups / 1000 {
        let wasted = draw(rng, rate, 1000);
        heat.note(wasted, wasted, 1000);
    }
}

/// As [`run`], every eighth wasted lookup counted as eight.
fn run_sampled(heat: &mut Heat, rng: &mut SplitMix64, rate: f64, lookups: u64) {
    for _ in 0..lookups / 1000 {
        let sampled = draw(rng, rate / 8.0, 1000);
        heat.note(8 * sampled, 64 * sampled, 1000);
    }
}

#[test]
fn steady_rates_are_known_well() {
    let mut rng = SplitMix64::new(1);
    for (run, rates) in [
        (run as fn(&mut Heat, &mut SplitMix64, f64, u64), [0.3, 0.02, 0.001]),
        (run_sampled, [0.4, 0.1, 0.01]),
    ] {
        for rate in rates {
            let mut squares = 0.0;
            for _ in 0..40 {
                let mut heat = Heat::usual(PRIOR);
                run(&mut heat, &mut rng, rate, 200_000);
                squares += (heat.rate() / rate).log2().powi(2);
            }
            let error = (squares / 40.0f64).sqrt();
            assert!(error < 0.35, "{rate}: off by {error} octaves");
        }
    }
}

#[test]
fn a_move_is_seen_soon() {
    let mut rng = SplitMix64::new(2);
    for (before, after) in [(0.02, 1e-4), (1e-4, 0.02), (0.3, 1e-3), (0.0, 0.01), (0.01, 0.0)] {
        let mut heat = Heat::usual(PRIOR);
        run(&mut heat, &mut rng, before, 400_000);
        run(&mut heat, &mut rng, after, 60_000);
        let known = heat.rate();
        let ratio = (known / after.max(1e-4)).max(after / known);
        assert!(ratio < 3.0, "from {before} to {after}: {known} after 60,000 lookups");
    }
}

#[test]
fn no_lookups_leave_the_prior_and_silence_lowers_it() {
    let mut heat = Heat::usual(PRIOR);
    assert!((heat.rate() / PRIOR - 1.0).abs() < 1e-6);
    assert!(!heat.is_known());
    heat.note(0, 0, 1_000_000);
    assert!(heat.rate() < PRIOR / 10.0);
    // Silence of any length is followed by what comes.
    (0..10_000).for_each(|_| heat.note(0, 0, 1_000_000));
    (0..5).for_each(|_| heat.note(50, 50, 1000));
    assert!((heat.rate() / 0.05).log2().abs() < 0.5, "{heat:?}");
}

#[test]
fn hearsay_gives_way_to_evidence() {
    let mut heat = Heat::hearsay(0.001);
    assert!((heat.rate() / 0.001).log2().abs() < 0.3, "{}", heat.rate());
    let mut rng = SplitMix64::new(3);
    run(&mut heat, &mut rng, 0.05, 5_000);
    assert!(heat.rate() > 0.02, "{heat:?}");
    assert!(Heat::hearsay(1e-12).rate() < 1e-9);
}

#[test]
fn a_packed_rate_comes_back_within_an_eighth() {
    assert_eq!(unpack(pack(0.0)), None);
    for exponent in 0..280 {
        let rate = (-f64::from(exponent) / 7.0).exp2();
        let back = unpack(pack(rate)).unwrap();
        assert!((back / rate).log2().abs() < 0.09, "{rate} became {back}");
    }
    assert!(unpack(u8::MAX).unwrap() <= 1.0);
}
