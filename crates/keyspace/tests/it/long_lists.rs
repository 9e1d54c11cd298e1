//! Lists of thousands of elements, of which many are removed at once.

use super::harness::store;
use std::collections::VecDeque;
use terrace_base::rng::{Rng, SplitMix64};
use terrace_keyspace::{CommandBatch, End, Inserted, Mode};

const KEY: &[u8] = b"list";

const COPY: &[u8] = b"copy";

fn shown(batch: &mut CommandBatch) -> Vec<Vec<u8>> {
    shown_of(batch, KEY)
}

fn shown_of(batch: &mut CommandBatch, key: &[u8]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    if let Some(list) = batch.list(0, key).unwrap() {
        let seen = |value: &[u8]| {
            all.push(value.to_vec());
            Ok(true)
        };
        batch.list_each(0, &list, 0, list.count, seen).unwrap();
    }
    all
}

/// What looks for a value finds no place of an element that is gone.
fn changed_by_value(batch: &mut CommandBatch, model: &mut VecDeque<Vec<u8>>, rng: &mut SplitMix64) {
    if model.is_empty() {
        return;
    }
    let place = rng.below(model.len() as u64) as usize;
    let value = model[place].clone();
    match rng.below(3) {
        0 => {
            let removed = batch.list_remove(0, KEY, 1, &value).unwrap();
            assert_eq!(removed, 1);
            model.remove(place);
        }
        1 => {
            let inserted = batch.list_insert(0, KEY, true, &value, b"inserted").unwrap();
            model.insert(place, b"inserted".to_vec());
            assert_eq!(inserted, Inserted::Length(model.len() as u64));
            // Values are found by being alike.
            batch.list_remove(0, KEY, 1, b"inserted").unwrap();
            model.remove(place);
        }
        _ => {
            assert!(batch.copy((0, KEY), (0, COPY), true).unwrap());
            let copied = shown_of(batch, COPY);
            assert!(copied.iter().eq(&*model), "a copy has what is there");
        }
    }
}

/// Pushes, pops and trims, several in a batch, some of which is taken back.
#[test]
fn trimmed_lists_are_as_a_model_says() {
    let (space, _, _) = store();
    let mut rng = SplitMix64::new(5);
    let mut model: VecDeque<Vec<u8>> = VecDeque::new();
    let mut next = 0_u64;
    let mut trims = 0;
    for _ in 0..60 {
        let mut batch = space.command_batch(Mode::Device);
        batch.lock(0, [KEY, COPY].into_iter()).unwrap();
        for _ in 0..1 + rng.below(4) {
            let before = model.clone();
            let is_taken_back = rng.below(4) == 0;
            let done = batch.attempt(|batch| {
                match rng.below(3) {
                    0 => {
                        let end = if rng.below(2) == 0 { End::Front } else { End::Back };
                        let count = 200 + rng.below(2_500);
                        let values: Vec<_> =
                            (next..next + count).map(|n| n.to_string().into_bytes()).collect();
                        next += count;
                        let values_of = values.iter().map(|value| &value[..]);
                        batch.list_push(0, KEY, end, false, values_of).unwrap();
                        for value in values {
                            match end {
                                End::Front => model.push_front(value),
                                End::Back => model.push_back(value),
                            }
                        }
                    }
                    1 => {
                        let count = rng.below(40);
                        batch.list_pop(0, KEY, End::Front, count).unwrap();
                        model.drain(..model.len().min(count as usize));
                    }
                    _ => {
                        let len = model.len() as u64;
                        let first = rng.below(len / 2 + 1);
                        let last = len - rng.below(len / 2 + 1);
                        trims += u64::from(first > 512) + u64::from(len - last > 513);
                        batch.list_trim(0, KEY, first as i64, last as i64).unwrap();
                        model.truncate(last as usize + 1);
                        model.drain(..model.len().min(first as usize));
                    }
                }
                if is_taken_back { Err(()) } else { Ok(()) }
            });
            if done.is_err() {
                model = before;
            }
            assert!(shown(&mut batch).iter().eq(&model), "in the batch");
            changed_by_value(&mut batch, &mut model, &mut rng);
            assert!(shown(&mut batch).iter().eq(&model), "after a change by value");
        }
        batch.commit().unwrap();
        let mut reader = space.command_batch(Mode::Device);
        assert!(shown(&mut reader).iter().eq(&model), "after the commit");
    }
    assert!(trims > 10, "{trims} trims removed many");
}
