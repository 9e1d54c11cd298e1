//! Beside exact counts: the paper's guarantees, whatever is observed and however often it ages.

use super::*;
use proptest::prelude::*;
use std::collections::HashMap;

/// Keys and what they have.
type Exact = HashMap<Vec<u8>, f64>;

/// That every guarantee holds for `sketch`, given the truth.
fn check(sketch: &TopKeys, exact: &Exact) {
    let top = sketch.top(usize::MAX);
    assert!(top.len() <= sketch.most && top.len() == sketch.counters.len());
    assert!(top.is_sorted_by(|a, b| a.count >= b.count));
    for hot in &top {
        let truth = exact.get(&hot.key).copied().unwrap_or(0.0);
        assert!(hot.error <= hot.count);
        assert!((hot.count - hot.error) as f64 <= truth + 1e-6, "{hot:?} {truth}");
        assert!(truth <= hot.count as f64 + 1e-6, "{hot:?} {truth}");
    }
    for (key, truth) in exact {
        let listed = top.iter().any(|hot| hot.key == *key);
        assert!(listed || *truth <= sketch.floor + FORGOTTEN, "{key:?} {truth}");
    }
    for (at, slot) in sketch.heap.iter().enumerate() {
        assert_eq!(sketch.counters[*slot as usize].place, at);
        assert!(at == 0 || sketch.count_at((at - 1) / 2) <= sketch.count_at(at));
    }
}

#[test]
fn the_example_of_the_paper() {
    let mut sketch = TopKeys::new(2, 10, 0);
    for key in ["X", "Y", "Y", "Z"] {
        sketch.observe(key.as_bytes(), 1);
    }
    let hot = |key: &str, count, error| Hot { key: key.into(), key_bytes: 1, count, error };
    assert_eq!(sketch.top(9), [hot("Y", 2, 0), hot("Z", 2, 1)]);
    assert_eq!((sketch.floor, sketch.counters.len()), (1.0, 2));
    assert_eq!(sketch.top(1).len(), 1);
}

#[test]
fn few_keys_are_counted_exactly() {
    let mut sketch = TopKeys::new(100, 10, 0);
    for round in 1..=100u8 {
        for key in 0..round {
            sketch.observe(&[key], 1);
        }
    }
    let top = sketch.top(3);
    let told: Vec<_> = top.iter().map(|hot| (hot.key[0], hot.count, hot.error)).collect();
    assert_eq!(told, [(0, 100, 0), (1, 99, 0), (2, 98, 0)]);
}

#[test]
fn long_keys_stay_apart_and_short_in_memory() {
    let mut sketch = TopKeys::new(8, 4, 0);
    let long = |last: u8| [&[b'x'; 1000][..], &[last]].concat();
    for _ in 0..3 {
        sketch.observe(&long(1), 1);
    }
    sketch.observe(&long(2), 2);
    sketch.observe(b"xxxx", 1);
    let told: Vec<_> = sketch.top(9).iter().map(|hot| (hot.key_bytes, hot.count)).collect();
    assert_eq!(told, [(1001, 3), (1001, 2), (4, 1)]);
    for at in 0..100_000u32 {
        sketch.observe(&[&at.to_be_bytes()[..], &[0; 500]].concat(), 1);
    }
    assert!(sketch.counters.iter().all(|counter| counter.key.capacity() <= 8));
    assert_eq!(sketch.counters.len(), 8);
}

#[test]
fn edges_are_no_trouble() {
    let mut sketch = TopKeys::new(0, 0, 0);
    assert!(sketch.counters.is_empty() && sketch.top(5).is_empty());
    sketch.age();
    sketch.observe(b"", 1);
    sketch.observe(b"a", 0);
    sketch.observe(b"b", u64::MAX);
    sketch.observe(b"b", u64::MAX);
    assert_eq!(sketch.counters.len(), 1);
    assert_eq!(sketch.top(1)[0].key_bytes, 1);
    for _ in 0..10_000 {
        sketch.age();
    }
    assert!(sketch.counters.is_empty());
    sketch.observe(b"c", 5);
    assert_eq!((sketch.top(1)[0].count, sketch.top(1)[0].error), (5, 0));
}

#[test]
fn a_new_favourite_passes_an_old_one() {
    let mut sketch = TopKeys::new(16, 16, 0);
    for second in 0..100u32 {
        let favourite: &[u8] = if second < 80 { b"old" } else { b"new" };
        for _ in 0..100 {
            sketch.observe(favourite, 1);
            sketch.observe(&second.to_be_bytes(), 1);
        }
        if second % 4 == 3 {
            sketch.age();
        }
    }
    assert_eq!(sketch.top(1)[0].key, b"new");
    let old = sketch.top(99).into_iter().find(|hot| hot.key == b"old");
    assert!(old.is_none_or(|old| old.count - old.error < 100));
}

#[derive(Debug, Clone)]
enum Step {
    Observe(Vec<u8>, u64),
    Age,
}

/// Few keys often, many keys seldom, as in real streams.
fn step() -> impl Strategy<Value = Step> {
    let key = prop_oneof![
        (0u8..4).prop_map(|key| vec![key]),
        (0u8..40).prop_map(|key| vec![key, 1]),
        any::<[u8; 2]>().prop_map(|key| key.to_vec()),
    ];
    prop_oneof![
        40 => (key, 1u64..20).prop_map(|(key, weight)| Step::Observe(key, weight)),
        1 => Just(Step::Age),
    ]
}

fn play(sketch: &mut TopKeys, exact: &mut Exact, steps: &[Step]) {
    for step in steps {
        match step {
            Step::Observe(key, weight) => {
                sketch.observe(key, *weight);
                *exact.entry(key.clone()).or_default() += *weight as f64;
            }
            Step::Age => {
                sketch.age();
                exact.values_mut().for_each(|count| *count /= 2.0);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn guarantees_hold_for_any_stream(
        keys in 1usize..30,
        seed: u64,
        steps in proptest::collection::vec(step(), 0..600),
    ) {
        let mut sketch = TopKeys::new(keys, 8, seed);
        let mut exact = Exact::new();
        play(&mut sketch, &mut exact, &steps);
        check(&sketch, &exact);
        let total: f64 = exact.values().sum();
        // The paper's bound; forgotten counters may add their thousandth.
        prop_assert!(sketch.floor <= total / keys as f64 + FORGOTTEN);
        for (key, truth) in &exact {
            if *truth > total / keys as f64 + FORGOTTEN {
                prop_assert!(sketch.top(keys).iter().any(|hot| hot.key == *key));
            }
        }
    }
}
