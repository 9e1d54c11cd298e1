//! Reads of a transaction between its own merges.

use super::*;
use crate::merge_operator::{MergeError, MergeOperator};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use terrace_base::ManualClock;
use terrace_base::rng::{Rng, SplitMix64};

/// Puts operands behind the value, and counts them.
#[derive(Default)]
struct Behind(AtomicUsize);

impl MergeOperator for Behind {
    fn name(&self) -> &str {
        "behind"
    }

    fn full_merge(
        &self,
        _key: &[u8],
        existing: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> std::result::Result<Vec<u8>, MergeError> {
        self.0.fetch_add(operands.len(), Ordering::Relaxed);
        Ok([existing.unwrap_or_default(), &operands.concat()].concat())
    }
}

/// A store at a time that stands still, and its operator.
fn store() -> (Db, Arc<Behind>, ManualClock) {
    let (operator, clock) = (Arc::new(Behind::default()), ManualClock::wall_at(1_000_000));
    let mut options = Options { memory_budget: 16 << 20, ..Options::default() };
    options.advanced.vfs = Arc::new(terrace_vfs::SimVfs::new(1));
    options.advanced.clock = Arc::new(clock.clone());
    options.default_family.merge_operator = Some(operator.clone());
    (Db::open("/db", options).unwrap(), operator, clock)
}

#[test]
fn a_read_goes_over_the_operands_since_the_read_before_it() {
    const KEYS: usize = 3;
    const ROUNDS: usize = 500;
    let (db, operator, _clock) = store();
    db.put([0], b"stored").unwrap();
    let mut transaction = db.transaction();
    for round in 0..ROUNDS {
        for key in 0..KEYS as u8 {
            transaction.merge([key], b"+");
            let value = transaction.get([key]).unwrap().unwrap();
            let stored = if key == 0 { 6 } else { 0 };
            assert_eq!(value.len(), stored + round + 1);
            assert_eq!(transaction.get_untracked([key]).unwrap().as_deref(), Some(&*value));
        }
    }
    assert_eq!(transaction.scan::<&[u8]>(.., 10).unwrap().len(), KEYS);
    assert_eq!(operator.0.load(Ordering::Relaxed), KEYS * ROUNDS, "each operand once");
    transaction.commit().unwrap();
    assert_eq!(db.get([0]).unwrap().unwrap().len(), 6 + ROUNDS);
}

#[test]
fn a_read_after_a_roll_back_goes_over_the_operands_since_the_save_point() {
    const OPERANDS: usize = 1000;
    const ROUNDS: usize = 100;
    let (db, operator, _clock) = store();
    let mut transaction = db.transaction();
    (0..OPERANDS).for_each(|_| transaction.merge(b"k", b"+"));
    assert_eq!(transaction.get(b"k").unwrap().unwrap().len(), OPERANDS);
    for _ in 0..ROUNDS {
        let point = transaction.save_point();
        transaction.merge(b"k", b"-");
        assert_eq!(transaction.get(b"k").unwrap().unwrap().len(), OPERANDS + 1);
        transaction.roll_back_to(point);
        assert_eq!(transaction.get(b"k").unwrap().unwrap().len(), OPERANDS);
    }
    assert_eq!(operator.0.load(Ordering::Relaxed), OPERANDS + ROUNDS, "each operand once");
}

#[test]
fn what_reads_have_made_of_operands_is_what_the_writes_before_them_make() {
    let (db, _operator, _clock) = store();
    for key in 0..4_u8 {
        db.put([key], [b'a' + key]).unwrap();
    }
    let mut rng = SplitMix64::new(1);
    for _ in 0..50 {
        let mut transaction = db.transaction();
        let mut model: BTreeMap<u8, Vec<u8>> = (0..4).map(|key| (key, vec![b'a' + key])).collect();
        let mut points = Vec::new();
        for step in 0..200_u8 {
            let key = rng.below(6) as u8;
            match rng.below(20) {
                0..8 => {
                    transaction.merge([key], [step]);
                    model.entry(key).or_default().push(step);
                }
                8 => {
                    transaction.put([key], [step]);
                    model.insert(key, vec![step]);
                }
                9 => {
                    transaction.delete([key]);
                    model.remove(&key);
                }
                10 => {
                    transaction.delete_range([key], [key + 2]);
                    model.retain(|other, _| !(key..key + 2).contains(other));
                }
                11 => points.push((transaction.save_point(), model.clone())),
                12 => {
                    if let Some((point, then)) = points.pop() {
                        transaction.roll_back_to(point);
                        model = then;
                    }
                }
                _ => {
                    let value = transaction.get([key]).unwrap();
                    assert_eq!(value.as_deref(), model.get(&key).map(Vec::as_slice), "{step}");
                }
            }
        }
    }
}

#[test]
fn operands_do_not_keep_a_value_that_expires() {
    let (db, _operator, clock) = store();
    db.put_with_ttl(b"k", b"stored", Duration::from_millis(1000)).unwrap();
    let mut transaction = db.transaction();
    let mut read_after = |operand: &[u8]| {
        transaction.merge(b"k", operand);
        transaction.get(b"k").unwrap().unwrap().to_vec()
    };
    assert_eq!(read_after(b"1"), b"stored1");
    clock.advance(999);
    assert_eq!(read_after(b"2"), b"stored12");
    clock.advance(1);
    assert_eq!(read_after(b"3"), b"123");
}
