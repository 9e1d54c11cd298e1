//! Decisions on lives with a clock that the tests turn and figures that can be checked by hand.

use super::*;
use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;
use terrace_base::FileNumber;
use terrace_learned::analyzer::{ENOUGH_DEAD_FILES, LookupCosts};

const COSTS: Costs = Costs {
    training_ns_per_key: 100.0,
    index: LookupCosts { positive_ns: 600.0, negative_ns: 600.0 },
    model: LookupCosts { positive_ns: 500.0, negative_ns: 500.0 },
};

type Count = Rc<Cell<f64>>;

impl Counted for Count {
    fn lookups(&self) -> Lookups {
        Lookups { positive: self.get(), negative: 0.0 }
    }
}

/// A family whose files come, are asked and go as the tests say.
#[derive(Default)]
struct Store {
    stats: FileStats<Count>,
    files: Vec<LiveFile>,
    counts: HashMap<FileNumber, Count>,
    now_ms: u64,
    noted: Vec<FileVerdict>,
}

impl Store {
    fn look(&mut self) {
        let counts = &mut self.counts;
        let cell = std::cell::RefCell::new(counts);
        self.stats.observe(self.now_ms, &self.files, |number| {
            cell.borrow_mut().entry(number).or_default().clone()
        });
    }

    fn add(&mut self, level: usize, number: u64) {
        let number = FileNumber::new(number);
        self.files.push(LiveFile { level, number, key_count: 1000 });
        self.look();
    }

    fn remove(&mut self, number: u64) {
        self.files.retain(|file| file.number.get() != number);
        self.look();
    }

    fn ask(&self, number: u64, times: f64) {
        let count = &self.counts[&FileNumber::new(number)];
        count.set(count.get() + times);
    }

    fn next(&mut self) -> Option<FileVerdict> {
        let noted = &mut self.noted;
        self.stats.next_file(self.now_ms, |_| COSTS, |verdict| noted.push(*verdict))
    }

    /// Files of L2 with lives of `life_ms` and this many lookups each.
    fn with_dead(count: usize, life_ms: u64, lookups: f64) -> Self {
        let mut store = Self::default();
        for number in 0..count as u64 {
            store.add(2, number);
            store.now_ms += life_ms;
            store.ask(number, lookups);
            store.remove(number);
        }
        store
    }
}

#[test]
fn a_new_file_waits_and_is_trained_while_nothing_is_known() {
    let mut store = Store::with_dead(ENOUGH_DEAD_FILES - 1, 1000, 0.0);
    store.add(2, 100);
    assert_eq!(store.next(), None);
    assert_eq!(store.noted[0].decision, Decision::Wait { until_ms: 50 });
    store.now_ms += 49;
    assert_eq!(store.next(), None);
    store.now_ms += 1;
    let verdict = store.next().unwrap();
    assert_eq!((verdict.number.get(), verdict.level), (100, 2));
    assert_eq!(verdict.decision, Decision::TrainUnknown);
    store.stats.trained(FileNumber::new(100), true);
    store.now_ms += 10_000;
    assert_eq!(store.next(), None, "it has a model");
    let kinds: Vec<bool> = store.noted.iter().map(|verdict| verdict.decision.trains()).collect();
    assert_eq!(kinds, [false, true], "each decision is noted once");
}

#[test]
fn files_of_a_level_that_is_not_read_are_passed_over_until_they_are() {
    // Training costs 100,000 ns; a lookup saves 100: it takes more than 1,000 of them.
    let mut store = Store::with_dead(ENOUGH_DEAD_FILES, 1000, 900.0);
    store.add(2, 100);
    store.now_ms += 60;
    assert_eq!(store.next(), None);
    assert!(matches!(store.noted.last().unwrap().decision, Decision::Skip { .. }));
    // Older than any that died, so that its own past counts.
    store.now_ms += 1000;
    store.ask(100, 1500.0);
    let verdict = store.next().unwrap();
    let Decision::Train { surplus_ns } = verdict.decision else { panic!("{verdict:?}") };
    assert!((surplus_ns - 50_000.0).abs() < 1.0, "{surplus_ns}");
}

#[test]
fn the_file_with_the_largest_surplus_is_first() {
    let mut store = Store::with_dead(ENOUGH_DEAD_FILES, 1000, 5000.0);
    store.add(2, 100);
    store.now_ms += 300;
    store.add(2, 101);
    store.add(3, 102);
    store.now_ms += 60;
    // 101 has more of its life before it; of L3 nothing is known.
    assert_eq!(store.next().unwrap().number.get(), 101);
    store.stats.trained(FileNumber::new(101), true);
    assert_eq!(store.next().unwrap().number.get(), 100);
    store.stats.trained(FileNumber::new(100), false);
    assert_eq!(store.next().unwrap().number.get(), 102);
    store.stats.trained(FileNumber::new(102), true);
    assert_eq!(store.next(), None);
}

#[test]
fn a_file_that_moves_begins_anew_and_keeps_its_model() {
    let mut store = Store::with_dead(ENOUGH_DEAD_FILES, 1000, 5000.0);
    store.add(1, 100);
    store.add(1, 101);
    store.now_ms += 500;
    store.ask(100, 70.0);
    store.stats.trained(FileNumber::new(100), true);
    for file in &mut store.files {
        file.level = 2;
    }
    store.look();
    assert_eq!(store.stats.histories[1].len(), 2, "both lives in L1 are over");
    assert_eq!(store.next(), None, "101 waits again");
    store.now_ms += 60;
    assert_eq!(store.next().unwrap().number.get(), 101);
    store.stats.trained(FileNumber::new(101), true);
    assert_eq!(store.next(), None);
    store.remove(100);
    assert_eq!(store.stats.histories[2].len(), ENOUGH_DEAD_FILES + 1);
}

#[test]
fn a_lost_model_is_made_again_but_not_at_once() {
    let mut store = Store::default();
    store.add(2, 100);
    store.now_ms += 50;
    assert!(store.next().is_some());
    store.stats.trained(FileNumber::new(100), true);
    store.stats.find_losses(store.now_ms, |_| false);
    assert_eq!(store.next(), None);
    for wait_ms in [1000, 2000, 4000] {
        store.stats.find_losses(store.now_ms, |_| true);
        store.now_ms += wait_ms - 1;
        assert_eq!(store.next(), None);
        store.now_ms += 1;
        assert_eq!(store.next().unwrap().number.get(), 100);
        store.stats.trained(FileNumber::new(100), true);
    }
}

#[test]
fn a_file_that_could_not_be_read_is_tried_again() {
    let mut store = Store::default();
    store.add(2, 100);
    store.now_ms += 50;
    assert_eq!(store.next().unwrap().number.get(), 100);
    for failures in 0..14 {
        // The wait has a bound.
        let wait_ms = 1000 << failures.min(10);
        store.stats.failed(FileNumber::new(100), store.now_ms);
        store.now_ms += wait_ms - 1;
        assert_eq!(store.next(), None, "after {failures} failures");
        store.now_ms += 1;
        assert_eq!(store.next().unwrap().number.get(), 100);
    }
}

/// One measurement said that it does not pay, however old the file is by then.
#[test]
fn what_was_not_worth_a_model_is_judged_again_within_a_minute() {
    let mut store = Store::with_dead(ENOUGH_DEAD_FILES, 1000, 0.0);
    store.add(2, 100);
    store.now_ms += 100 * 3_600_000;
    store.ask(100, 1e6);
    let slow = |_| Costs { model: LookupCosts { positive_ns: 900.0, negative_ns: 900.0 }, ..COSTS };
    assert_eq!(store.stats.next_file(store.now_ms, slow, |_| {}), None);
    assert_eq!(store.next(), None, "not at once");
    store.now_ms += 60_000;
    assert_eq!(store.next().unwrap().number.get(), 100);
    // So is a level.
    store.add(2, 101);
    store.now_ms += 100 * 3_600_000;
    store.ask(101, 1e6);
    assert_eq!(next_level(&mut store, -5.0), None);
    assert_eq!(next_level(&mut store, 20.0), None, "not at once");
    store.now_ms += 60_000;
    assert_eq!(next_level(&mut store, 20.0), Some(2));
    for wait_ms in [1000, 2000, 4000] {
        store.stats.level_failed(2, store.now_ms);
        store.now_ms += wait_ms - 1;
        assert_eq!(next_level(&mut store, 20.0), None);
        store.now_ms += 1;
        assert_eq!(next_level(&mut store, 20.0), Some(2));
    }
}

fn next_level(store: &mut Store, saved_ns: f64) -> Option<usize> {
    let now_ms = store.now_ms;
    let costs = LevelCosts {
        training_ns_per_key: 100.0,
        file_path_ns: 500.0,
        level_path_ns: 500.0 - saved_ns,
    };
    let next = store.stats.next_level(now_ms, |_| Some(costs), |_, _| {});
    next.map(|(level, decision)| {
        assert!(matches!(decision, LevelDecision::Level { .. }));
        level
    })
}

#[test]
fn a_level_that_is_quiet_and_read_gets_a_model() {
    let mut store = Store::default();
    store.add(3, 1);
    store.ask(1, 1e9);
    store.now_ms += 1000;
    assert_eq!(next_level(&mut store, 20.0), None, "one file needs no search");
    store.add(3, 2);
    store.now_ms += 49;
    // Training takes 2 keys x 1,000 x 100 ns, so 10,000 lookups that save 20 ns.
    store.ask(2, 10_001.0);
    assert_eq!(next_level(&mut store, 20.0), None, "it has just changed");
    store.now_ms += 1;
    assert_eq!(next_level(&mut store, 0.0), None, "nothing is saved");
    store.now_ms += 100;
    assert_eq!(next_level(&mut store, 20.0), Some(3));
    store.add(0, 7);
    assert_eq!(next_level(&mut store, 20.0), Some(3), "flushes are of no concern to it");
    store.add(3, 8);
    store.now_ms += 100;
    assert_eq!(next_level(&mut store, 20.0), None, "what it was asked before does not count");
    store.ask(8, 15_001.0);
    store.now_ms += 100;
    assert_eq!(next_level(&mut store, 20.0), Some(3));
    store.stats.refuse_level(3);
    assert_eq!(next_level(&mut store, 20.0), None);
    store.remove(8);
    store.ask(1, 1e9);
    store.now_ms += 100;
    assert_eq!(next_level(&mut store, 20.0), Some(3), "other files may be learned");
}

#[test]
fn a_level_that_was_not_measured_or_is_l0_gets_none() {
    let mut store = Store::default();
    store.add(0, 1);
    store.add(0, 2);
    store.add(2, 3);
    store.add(2, 4);
    store.now_ms += 1000;
    (1..5).for_each(|number| store.ask(number, 1e9));
    assert_eq!(store.stats.next_level(store.now_ms, |_| None, |_, _| {}), None);
    let costs = LevelCosts { training_ns_per_key: 100.0, file_path_ns: 500.0, level_path_ns: 0.0 };
    let only_l0 = |level| (level == 0).then_some(costs);
    assert_eq!(store.stats.next_level(store.now_ms, only_l0, |_, _| {}), None);
}
