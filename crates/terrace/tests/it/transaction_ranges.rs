//! Range deletes in transactions, among all other writes of theirs.

use crate::harness::{Store, effort, over_seeds, small_options, stopped_clock};
use std::collections::BTreeMap;
use std::sync::Arc;
use terrace::vfs::SimVfs;
use terrace::{Db, Error, MAX_KEY_BYTES, Options, Transaction};
use terrace_base::rng::{Rng, SplitMix64};

const KEYS: u64 = 12;

/// One random write of a transaction, in a model too.
fn write_both(rng: &mut SplitMix64, model: &mut BTreeMap<u64, Vec<u8>>, own: &mut Transaction) {
    let n = rng.below(KEYS);
    match rng.below(4) {
        0 => {
            own.delete([n as u8]);
            model.remove(&n);
        }
        1 => {
            // Empty and reversed ranges, too.
            let end = (n + rng.below(5)).saturating_sub(1);
            own.delete_range([n as u8], [end as u8]);
            model.retain(|key, _| !(n..end.max(n)).contains(key));
        }
        _ => {
            let value = vec![rng.below(256) as u8; rng.below(2000) as usize];
            own.put([n as u8], &value);
            model.insert(n, value);
        }
    }
}

/// A transaction with save points sees what a map has, and the store has it after the commit.
#[test]
fn a_transaction_of_all_writes_sees_what_a_map_has() {
    over_seeds("writes of transactions", effort(1500), |seed, _| {
        let mut rng = SplitMix64::new(seed);
        let options = small_options(Arc::new(SimVfs::new(seed)), &stopped_clock());
        let Store { db, .. } = Store::open(options).unwrap();
        let mut model = BTreeMap::new();
        for _ in 0..10 {
            let (before, mut own) = (model.clone(), db.transaction());
            let mut points = Vec::new();
            for _ in 0..rng.below(25) {
                match rng.below(8) {
                    0 => points.push((own.save_point(), model.clone())),
                    1 if !points.is_empty() => {
                        let at = rng.below(points.len() as u64) as usize;
                        points.truncate(at + 1);
                        own.roll_back_to(points[at].0);
                        model = points[at].1.clone();
                    }
                    _ => write_both(&mut rng, &mut model, &mut own),
                }
                for n in 0..KEYS {
                    let got = own.get_untracked([n as u8]).unwrap();
                    assert_eq!(got.as_deref(), model.get(&n).map(|value| &value[..]));
                }
            }
            match rng.below(3) {
                0 => model = before,
                _ => own.commit().unwrap(),
            }
            if rng.below(3) == 0 {
                db.flush().unwrap();
            }
            for n in 0..KEYS {
                let got = db.get([n as u8]).unwrap();
                assert_eq!(got.as_deref(), model.get(&n).map(|value| &value[..]));
            }
        }
        100
    });
}

#[test]
fn a_range_delete_of_a_transaction_is_no_conflict_for_itself_and_one_for_others() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), Options::default()).unwrap();
    db.put(b"k1", b"old").unwrap();
    let mut first = db.transaction();
    first.delete_range(b"k", b"l");
    assert!(first.get(b"k1").unwrap().is_none());
    assert_eq!((first.read_set().len(), first.len()), (0, 1));
    let mut second = db.transaction();
    assert!(second.get(b"k2").unwrap().is_none());
    second.put(b"x", b"");
    // After the begin, and removed by the commit all the same.
    db.put(b"k3", b"theirs").unwrap();
    first.commit().unwrap();
    assert!(db.get(b"k1").unwrap().is_none() && db.get(b"k3").unwrap().is_none());
    assert!(matches!(second.commit(), Err(Error::Conflict)));
    // A bound over the limit is refused by the commit, as a key is.
    let mut refused = db.transaction();
    refused.delete_range(vec![0; MAX_KEY_BYTES + 1], b"z");
    assert_eq!(refused.len(), 0);
    assert!(matches!(refused.commit(), Err(Error::InvalidArgument(_))));
}
