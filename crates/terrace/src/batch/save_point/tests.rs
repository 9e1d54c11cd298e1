//! Save points: a batch rolled back is the batch that never had the operations.

use super::*;
use crate::batch::{Separation, decode};
use proptest::prelude::*;
use std::time::Duration;
use terrace_base::{ManualClock, SegmentNumber, SeqNo, ValueKind};

/// A batch in all that the commit asks it for.
fn commit_view(mut batch: WriteBatch, wanted: Separation) -> (Vec<u8>, Vec<u32>, [usize; 5]) {
    let sizes = [
        batch.len(),
        batch.size_bytes(),
        batch.user_bytes() as usize,
        batch.separated().0,
        batch.separated().1,
    ];
    batch.seal(&ManualClock::at(1000), &|_| wanted).unwrap();
    batch.number(SeqNo::new(7));
    batch.place(SegmentNumber::new(3), 4096);
    let families = batch.families().collect();
    (batch.encoded().to_vec(), families, sizes)
}

#[derive(Debug, Clone)]
enum Step {
    Op(u32, u8, Vec<u8>, usize),
    Save,
    /// To one of the save points that hold.
    RollBack(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0u32..4, 0u8..5, proptest::collection::vec(any::<u8>(), 0..9), 0usize..3000)
            .prop_map(|(family, what, key, len)| Step::Op(family, what, key, len)),
        2 => Just(Step::Save),
        2 => any::<usize>().prop_map(Step::RollBack),
    ]
}

fn apply(batch: &mut WriteBatch, step: &Step) {
    let Step::Op(family, what, key, len) = step else { return };
    let value = vec![*what; *len];
    match what {
        0 => batch.push(*family, ValueKind::Delete, key, &[]),
        1 => batch.push(*family, ValueKind::RangeDelete, key, &[0xff; 10]),
        2 => {
            let ttl = Some(Duration::from_millis(5));
            batch.put_value(*family, key, ttl, &value, Separation::DEFAULT);
        }
        _ => batch.put_value(*family, key, None, &value, Separation::DEFAULT),
    }
}

proptest! {
    #[test]
    fn a_batch_rolled_back_is_the_one_that_never_had_the_operations(
        steps in proptest::collection::vec(step(), 0..60),
        threshold in prop_oneof![Just(0usize), Just(1024), Just(usize::MAX)],
    ) {
        let mut batch = WriteBatch::new();
        let mut kept: Vec<Step> = Vec::new();
        let mut points: Vec<(usize, SavePoint)> = Vec::new();
        for step in steps {
            match step {
                Step::Op(..) => {
                    apply(&mut batch, &step);
                    kept.push(step);
                }
                Step::Save => points.push((kept.len(), batch.save_point())),
                Step::RollBack(at) if !points.is_empty() => {
                    let at = at % points.len();
                    let (len, point) = points[at];
                    batch.roll_back_to(point);
                    kept.truncate(len);
                    points.truncate(at + 1);
                }
                Step::RollBack(_) => {}
            }
        }
        let mut want = WriteBatch::new();
        kept.iter().for_each(|step| apply(&mut want, step));
        let wanted = Separation { threshold, ..Separation::DEFAULT };
        let got = commit_view(batch, wanted);
        prop_assert!(decode(&got.0).unwrap().2.all(|op| op.is_ok()));
        prop_assert_eq!(got, commit_view(want, wanted));
    }
}

fn refusal(mut batch: WriteBatch) -> Option<String> {
    batch.seal(&ManualClock::at(0), &|_| Separation::DEFAULT).err().map(|error| error.to_string())
}

#[test]
fn a_refusal_goes_with_the_operation_that_met_it() {
    let mut batch = WriteBatch::new();
    batch.put(b"fine", b"");
    let point = batch.save_point();
    batch.put(vec![0; crate::batch::MAX_KEY_BYTES + 1], b"");
    batch.put(b"not taken any more", b"");
    let after = batch.save_point();
    batch.roll_back_to(after);
    assert!(refusal(batch.clone()).unwrap().contains("65536"));
    batch.roll_back_to(point);
    assert_eq!(refusal(batch), None);
}

#[test]
fn a_save_point_that_does_not_hold_cuts_nothing_and_the_batch_is_refused() {
    let with_one = || {
        let mut batch = WriteBatch::new();
        batch.put(b"a", b"1");
        batch
    };
    let refused = |batch: &WriteBatch| refusal(batch.clone()).is_some();

    // Of another batch, with and without a save point of its own; of the batch it was cloned from.
    let stranger = with_one().save_point();
    let mut batch = with_one();
    let point = batch.save_point();
    let mut clone = batch.clone();
    clone.roll_back_to(point);
    assert!(refused(&clone));
    batch.roll_back_to(stranger);
    assert!(refused(&batch) && batch.len() == 1);

    // Inside what was taken back, though the batch has grown past it again.
    let mut batch = with_one();
    let low = batch.save_point();
    batch.put(b"b", b"2");
    let high = batch.save_point();
    batch.roll_back_to(low);
    batch.put(b"another", b"of another length");
    batch.put(b"c", b"3");
    batch.roll_back_to(high);
    assert!(refused(&batch) && batch.len() == 3);
    // The lower one still holds, and the refusal came after it.
    batch.roll_back_to(low);
    assert!(!refused(&batch) && batch.len() == 1);

    // From before a `clear`; but the empty batch is what it was.
    let mut batch = WriteBatch::new();
    let empty = batch.save_point();
    batch.put(b"a", b"1");
    let point = batch.save_point();
    batch.clear();
    batch.put(b"other", b"2");
    batch.roll_back_to(point);
    assert!(refused(&batch));
    batch.roll_back_to(empty);
    assert!(!refused(&batch) && batch.is_empty());
}
