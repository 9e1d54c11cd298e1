//! Decisions from figures that can be checked by hand.

use super::level::{LevelCosts, LevelDecision, LevelState};
use super::*;

const COSTS: Costs = Costs {
    training_ns_per_key: 100.0,
    index: LookupCosts { positive_ns: 500.0, negative_ns: 300.0 },
    model: LookupCosts { positive_ns: 400.0, negative_ns: 290.0 },
};

fn history(files: usize, file: DeadFile) -> LevelHistory {
    let mut history = LevelHistory::default();
    (0..files).for_each(|_| history.record(file));
    history
}

fn dead(life_ms: u64, positive: f64, negative: f64) -> DeadFile {
    DeadFile { life_ms, key_count: 1000, lookups: Lookups { positive, negative } }
}

fn candidate(age_ms: u64) -> Candidate {
    Candidate { age_ms, key_count: 1000, lookups: Lookups { positive: 10.0, negative: 20.0 } }
}

#[test]
fn a_young_file_waits_for_50_ms_or_its_training_time() {
    let history = history(64, dead(10_000, 1e6, 0.0));
    assert_eq!(decide(&candidate(49), &history, &COSTS), Decision::Wait { until_ms: 50 });
    assert!(decide(&candidate(50), &history, &COSTS).trains());
    let large = Candidate { key_count: 1_000_000, ..candidate(99) };
    assert_eq!(decide(&large, &history, &COSTS), Decision::Wait { until_ms: 100 });
}

#[test]
fn until_enough_files_have_died_all_are_trained() {
    let file = dead(10_000, 0.0, 0.0);
    let unknown = decide(&candidate(100), &history(ENOUGH_DEAD_FILES - 1, file), &COSTS);
    assert_eq!(unknown, Decision::TrainUnknown);
    let known = decide(&candidate(100), &history(ENOUGH_DEAD_FILES, file), &COSTS);
    assert_eq!(known, Decision::Skip { deficit_ns: 100_000.0 });
}

#[test]
fn lookups_that_find_and_that_do_not_are_weighed_apart() {
    // 100,000 ns to train; 100 ns saved when found, 10 ns when not. Half the life is left.
    let after = |positive, negative| {
        decide(&candidate(500), &history(8, dead(1000, positive, negative)), &COSTS)
    };
    assert_eq!(after(4000.0, 0.0), Decision::Train { surplus_ns: 100_000.0 });
    assert_eq!(after(0.0, 4000.0), Decision::Skip { deficit_ns: 80_000.0 });
    assert_eq!(after(1900.0, 2000.0), Decision::Train { surplus_ns: 5_000.0 });
}

#[test]
fn a_slower_model_is_never_trained_once_lookups_are_known() {
    let slower = Costs { model: LookupCosts { positive_ns: 501.0, negative_ns: 301.0 }, ..COSTS };
    let decision = decide(&candidate(500), &history(8, dead(1000, 1e9, 1e9)), &slower);
    assert!(matches!(decision, Decision::Skip { .. }));
}

#[test]
fn expectations_scale_with_keys_and_come_from_files_that_lived_longer() {
    let mut history = history(8, dead(100, 1e9, 1e9));
    let old = Candidate { key_count: 500, ..candidate(200) };
    // None lived so long: as much again.
    assert_eq!(history.expected(&old), Some(old.lookups));
    history.record(dead(400, 800.0, 80.0));
    assert_eq!(history.expected(&old), Some(Lookups { positive: 200.0, negative: 20.0 }));
}

#[test]
fn only_the_latest_files_are_remembered() {
    let mut history = history(REMEMBERED_DEAD_FILES, dead(1000, 1e9, 0.0));
    (0..REMEMBERED_DEAD_FILES).for_each(|_| history.record(dead(1000, 0.0, 0.0)));
    assert_eq!(history.len(), REMEMBERED_DEAD_FILES);
    assert_eq!(history.expected(&candidate(0)), Some(Lookups::default()));
}

#[test]
fn the_largest_surplus_goes_first_and_the_unknown_after_it() {
    let mut decisions = [
        Decision::Skip { deficit_ns: 1.0 },
        Decision::Train { surplus_ns: 5.0 },
        Decision::TrainUnknown,
        Decision::Train { surplus_ns: 50.0 },
    ];
    decisions.sort_by(|a, b| b.cmp_urgency(a));
    assert_eq!(decisions[0], Decision::Train { surplus_ns: 50.0 });
    assert_eq!(decisions[1], Decision::Train { surplus_ns: 5.0 });
    assert_eq!(decisions[2], Decision::TrainUnknown);
}

#[test]
fn a_level_gets_its_own_model_when_it_is_quiet_and_busy() {
    let costs =
        LevelCosts { training_ns_per_key: 100.0, file_path_ns: 150.0, level_path_ns: 100.0 };
    let level = LevelState { quiet_ms: 1000, key_count: 1_000_000, lookup_count: 3_000_000, costs };
    let decide = |level| level::decide(&level);
    assert_eq!(decide(level), LevelDecision::Level { surplus_ns: 5e7 });
    let few = LevelState { lookup_count: 1000, ..level };
    assert_eq!(decide(few), LevelDecision::Files { deficit_ns: Some(9.995e7) });
    let restless = LevelState { quiet_ms: 99, ..level };
    assert_eq!(decide(restless), LevelDecision::Files { deficit_ns: None });
    let costs = LevelCosts { level_path_ns: 151.0, ..costs };
    let slower = LevelState { costs, ..level };
    assert!(matches!(decide(slower), LevelDecision::Files { deficit_ns: Some(_) }));
}
