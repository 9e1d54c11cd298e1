//! The tree against a sorted model: random batches, snapshots, cursors both ways, power cuts.

use super::node::Node;
use super::{FAMILY, Op, Tree};
use crate::order::Order;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;
use terrace::vfs::SimVfs;
use terrace::{CfOptions, Db, MIN_MEMORY_BUDGET, Options, ReadOptions, SyncMode, WriteOptions};
use terrace_base::Rng;
use terrace_base::rng::SplitMix64;
use terrace_binding::Code;

/// By length, then backwards; `A` and `a` are the same.
fn strange() -> Order {
    fn folded(key: &[u8]) -> Vec<u8> {
        key.iter().rev().map(u8::to_ascii_lowercase).collect()
    }
    Order::custom(b"strange", |a, b| a.len().cmp(&b.len()).then_with(|| folded(b).cmp(&folded(a))))
}

/// Keys as the order has them, each with its value.
type Model = Vec<(Vec<u8>, Vec<u8>)>;

fn place(model: &Model, key: &[u8]) -> Result<usize, usize> {
    model.binary_search_by(|(there, _)| strange().compare(there, key))
}

fn apply(model: &mut Model, (key, value): Op<'_>) {
    match (place(model, key), value) {
        (Ok(at), Some(value)) => model[at] = (key.to_vec(), value.to_vec()),
        (Err(at), Some(value)) => model.insert(at, (key.to_vec(), value.to_vec())),
        (Ok(at), None) => drop(model.remove(at)),
        (Err(_), None) => {}
    }
}

fn options(sim: &SimVfs) -> Options {
    let mut options = Options {
        memory_budget: MIN_MEMORY_BUDGET,
        column_families: vec![(FAMILY.to_string(), CfOptions::default())],
        ..Options::default()
    };
    options.advanced.vfs = Arc::new(sim.clone());
    options.advanced.reserve_bytes = 0;
    options
}

fn open(sim: &SimVfs) -> (Db, Tree) {
    let db = Db::open("db", options(sim)).unwrap();
    let tree = Tree::open(db.column_family(FAMILY).unwrap(), strange()).unwrap();
    (db, tree)
}

fn below(rng: &mut SplitMix64, end: u64) -> u64 {
    rng.next_u64() % end
}

/// Short keys of few letters, so that they meet, and a long one now and then, so that nodes split early.
fn key(rng: &mut SplitMix64) -> Vec<u8> {
    let len = if below(rng, 10) == 0 { 500 } else { below(rng, 5) };
    (0..len).map(|_| b"aAbBcC"[below(rng, 6) as usize]).collect()
}

type OwnedOp = (Vec<u8>, Option<Vec<u8>>);

/// Few operations; mostly puts, or mostly deletes.
fn batch(rng: &mut SplitMix64, deletes: u64) -> Vec<OwnedOp> {
    let count = 1 + below(rng, 40);
    let op = |rng: &mut SplitMix64| {
        let value = (below(rng, 10) >= deletes).then(|| rng.next_u64().to_le_bytes().to_vec());
        (key(rng), value)
    };
    (0..count).map(|_| op(rng)).collect()
}

fn write(db: &Db, tree: &Tree, ops: &[OwnedOp], sync: SyncMode) -> Result<(), Code> {
    let ops = ops.iter().map(|(key, value)| (&key[..], value.as_deref()));
    let options = WriteOptions { sync: Some(sync) };
    tree.write(db, terrace::WriteBatch::new(), ops, &options).map_err(|failure| failure.code)
}

fn now(db: &Db) -> ReadOptions {
    ReadOptions { snapshot: Some(db.snapshot()), ..ReadOptions::default() }
}

/// All that a reader can see is as in `model`.
fn check(tree: &Tree, reading: &ReadOptions, model: &Model) {
    let mut cursor = tree.cursor(reading.clone()).unwrap();
    cursor.seek_to_first().unwrap();
    for (key, value) in model {
        assert!(cursor.valid());
        assert_eq!((cursor.key(), cursor.value()), (&key[..], &value[..]));
        assert_eq!(tree.get(key, reading.clone()).unwrap().as_deref(), Some(&value[..]));
        cursor.next().unwrap();
    }
    assert!(!cursor.valid());
    cursor.seek_to_last().unwrap();
    for (key, value) in model.iter().rev() {
        assert_eq!((cursor.key(), cursor.value()), (&key[..], &value[..]));
        cursor.prev().unwrap();
    }
    assert!(!cursor.valid());
}

/// Seeks, and single steps from there in both directions.
fn check_seeks(tree: &Tree, reading: &ReadOptions, model: &Model, rng: &mut SplitMix64) {
    let mut cursor = tree.cursor(reading.clone()).unwrap();
    for _ in 0..30 {
        let target = key(rng);
        let found = place(model, &target);
        let at = found.unwrap_or_else(|at| at);
        let got = tree.get(&target, reading.clone()).unwrap();
        assert_eq!(got.as_deref(), found.ok().map(|at| &model[at].1[..]));
        let shown = |at: Option<usize>| at.and_then(|at| model.get(at)).map(|(key, _)| &key[..]);
        cursor.seek(&target).unwrap();
        assert_eq!(cursor.valid().then(|| cursor.key()), shown(Some(at)));
        if cursor.valid() {
            cursor.next().unwrap();
            assert_eq!(cursor.valid().then(|| cursor.key()), shown(Some(at + 1)));
        }
        if cursor.valid() {
            cursor.prev().unwrap();
            assert_eq!(cursor.valid().then(|| cursor.key()), shown(Some(at)));
        }
        cursor.seek_before(&target).unwrap();
        assert_eq!(cursor.valid().then(|| cursor.key()), shown(at.checked_sub(1)));
    }
}

#[test]
fn a_tree_holds_what_a_sorted_list_does() {
    for seed in 0..8 {
        let mut rng = SplitMix64::new(seed);
        let sim = SimVfs::new(seed);
        let (mut db, mut tree) = open(&sim);
        let mut model = Model::new();
        let mut held: Vec<(ReadOptions, Model)> = Vec::new();
        for step in 0..120 {
            // Grows, shrinks to little or nothing, and grows again.
            let deletes = if (40..80).contains(&step) { 9 } else { 2 };
            let ops = batch(&mut rng, deletes);
            write(&db, &tree, &ops, SyncMode::None).unwrap();
            ops.iter().for_each(|(key, value)| apply(&mut model, (key, value.as_deref())));
            if step % 10 == 0 {
                check_seeks(&tree, &now(&db), &model, &mut rng);
                held.push((now(&db), model.clone()));
            }
            if step == 60 {
                db.flush().unwrap();
            }
            if step == 100 {
                held.iter().for_each(|(reading, model)| check(&tree, reading, model));
                held.clear();
                drop(tree);
                db.close().unwrap();
                (db, tree) = open(&sim);
            }
        }
        check(&tree, &now(&db), &model);
        held.iter().for_each(|(reading, model)| check(&tree, reading, model));
        // Nothing is left of what was removed: one record of the tree itself remains.
        let ops: Vec<_> = model.iter().map(|(key, _)| (key.clone(), None)).collect();
        write(&db, &tree, &ops, SyncMode::None).unwrap();
        check(&tree, &now(&db), &Model::new());
        let mut iter = tree.family().iter().unwrap();
        iter.seek_to_first().unwrap();
        let left: Vec<_> = iter.entries().map(|entry| entry.unwrap().0).collect();
        assert_eq!(left, [b"m"]);
    }
}

/// Of keys that are one to the comparator each may have any length.
#[test]
fn a_leaf_whose_keys_become_longer_is_split() {
    let by_front = Order::custom(b"by front", |a, b| {
        let front = |key: &[u8]| key.get(..4).unwrap_or(key).to_vec();
        front(a).cmp(&front(b))
    });
    let sim = SimVfs::new(1);
    let db = Db::open("db", options(&sim)).unwrap();
    let tree = Tree::open(db.column_family(FAMILY).unwrap(), by_front).unwrap();
    let ops = |tail: &str| -> Vec<OwnedOp> {
        (0..200).map(|at| (format!("{at:04}{tail}").into_bytes(), Some(vec![7]))).collect()
    };
    let (short, long) = (ops(""), ops(&"x".repeat(2000)));
    write(&db, &tree, &short, SyncMode::None).unwrap();
    for op in &long {
        write(&db, &tree, std::slice::from_ref(op), SyncMode::None).unwrap();
    }
    let nodes = records(&tree).into_iter().filter(|(key, _)| key.starts_with(b"n"));
    let longest = nodes.map(|(_, node)| node.len()).max().unwrap();
    assert!(longest < 16 << 10, "a node of {longest} bytes");
    let model: Model = long.into_iter().map(|(key, value)| (key, value.unwrap())).collect();
    check(&tree, &now(&db), &model);
    for (key, _) in &short {
        assert_eq!(tree.get(key, now(&db)).unwrap().as_deref(), Some(&[7][..]));
    }
}

/// After a power cut the tree is what some prefix of the batches made, with all that were synced.
#[test]
fn a_power_cut_leaves_whole_batches() {
    let mut cuts = 0;
    for seed in 0..60 {
        let mut rng = SplitMix64::new(seed);
        let sim = SimVfs::new(seed);
        let (db, tree) = open(&sim);
        sim.crash_after(sim.op_count() + 1 + below(&mut rng, 60));
        let mut states = vec![Model::new()];
        let mut synced = 0;
        for _ in 0..40 {
            let ops = batch(&mut rng, 3);
            let is_synced = below(&mut rng, 3) == 0;
            let sync = if is_synced { SyncMode::Batch } else { SyncMode::None };
            let mut after = states.last().unwrap().clone();
            ops.iter().for_each(|(key, value)| apply(&mut after, (key, value.as_deref())));
            states.push(after);
            if write(&db, &tree, &ops, sync).is_err() {
                cuts += 1;
                break;
            }
            if is_synced {
                synced = states.len() - 1;
            }
        }
        let image = sim.crash_image(seed);
        drop((tree, db));
        let (db, tree) = open(&image);
        let mut cursor = tree.cursor(now(&db)).unwrap();
        cursor.seek_to_first().unwrap();
        let mut found = Model::new();
        while cursor.valid() {
            found.push((cursor.key().to_vec(), cursor.value().to_vec()));
            cursor.next().unwrap();
        }
        assert!(states[synced..].contains(&found), "seed {seed}");
        check(&tree, &now(&db), &found);
    }
    assert!(cuts > 20, "{cuts} of 60 were cut");
}

#[test]
fn shares_grow_with_the_range() {
    let sim = SimVfs::new(1);
    let (db, tree) = open(&sim);
    let reading = || now(&db);
    assert_eq!(tree.share(b"", b"zzz", reading()).unwrap(), 0.0);
    let keys: BTreeMap<_, _> =
        (0..3000_u32).map(|at| (format!("{at:08}").into_bytes(), at)).collect();
    let ops: Vec<_> = keys.keys().map(|key| (key.clone(), Some(vec![7; 10]))).collect();
    write(&db, &tree, &ops, SyncMode::None).unwrap();
    let mut order: Vec<_> = keys.into_keys().collect();
    order.sort_by(|a, b| strange().compare(a, b));
    assert_eq!(strange().compare(&order[0], &order[1]), Ordering::Less);
    let all = tree.share(b"", b"123456789", reading()).unwrap();
    let half = tree.share(&order[0], &order[1500], reading()).unwrap();
    assert!(all > 0.99 && (0.3..0.7).contains(&half), "{all} {half}");
    assert_eq!(tree.share(&order[9], &order[3], reading()).unwrap(), 0.0);
}

#[test]
fn another_order_is_refused() {
    let sim = SimVfs::new(1);
    let (db, tree) = open(&sim);
    assert!(Tree::is_new(tree.family()).unwrap());
    tree.create(&db).unwrap();
    assert!(!Tree::is_new(tree.family()).unwrap());
    let Err(failure) = Tree::open(tree.family().clone(), Order::bytes()) else { panic!("opened") };
    assert_eq!(failure.code, Code::InvalidArgument);
    let expected = "leveldb.BytewiseComparator does not match existing comparator strange";
    assert_eq!(failure.message, expected);
}

/// Damaged records are errors.
#[test]
fn records_that_are_missing_or_form_a_circle_are_damage() {
    let sim = SimVfs::new(1);
    let (db, tree) = open(&sim);
    let ops: Vec<_> = (0..2000).map(|at| (format!("{at:06}").into_bytes(), Some(vec![]))).collect();
    write(&db, &tree, &ops, SyncMode::None).unwrap();
    let root = tree.meta.lock().root;
    let view = super::View { family: tree.family().clone(), reading: ReadOptions::default() };
    let mut node = view.node(root).unwrap();
    assert!(!node.is_leaf);
    node.entries[0].id = root;
    let first = |tree: &Tree| {
        let mut cursor = tree.cursor(now(&db)).unwrap();
        (cursor.seek_to_first().unwrap_err().code, cursor.valid())
    };
    tree.family().put(super::view::node_key(root), node.encode()).unwrap();
    assert_eq!(first(&tree), (Code::Corruption, false));
    // The order is backwards: this key is the first one.
    let key = b"999999";
    assert_eq!(tree.get(key, now(&db)).unwrap_err().code, Code::Corruption);
    assert_eq!(write(&db, &tree, &[(key.to_vec(), None)], SyncMode::None), Err(Code::Corruption));
    tree.family().delete(super::view::node_key(root)).unwrap();
    assert_eq!(first(&tree), (Code::Corruption, false));
}

/// The records of a tree, as they are now.
fn records(tree: &Tree) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let entries = tree.family().iter().unwrap().entries();
    entries.map(|entry| entry.unwrap()).collect()
}

/// Makes the records what they were, or others.
fn set_records(tree: &Tree, wanted: &BTreeMap<Vec<u8>, Vec<u8>>) {
    let family = tree.family();
    for key in records(tree).keys().filter(|key| !wanted.contains_key(*key)) {
        family.delete(key).unwrap();
    }
    wanted.iter().for_each(|(key, value)| family.put(key, value).unwrap());
}

fn is_node(key: &[u8], value: &[u8], is_leaf: bool) -> bool {
    key.starts_with(b"n") && Node::decode(value).unwrap().is_leaf == is_leaf
}

/// So few that every tree of these tests has more.
const IDS_TOGETHER: u64 = 64;

/// Inner nodes and the record of the root are lost, or older ones are found: all keys are in the leaves.
#[test]
fn a_tree_is_made_of_its_leaves() {
    let mut whole = 0;
    for seed in 0..30 {
        let mut rng = SplitMix64::new(seed);
        let sim = SimVfs::new(seed);
        let (db, tree) = open(&sim);
        let (mut model, mut older) = (Model::new(), Vec::new());
        for step in 0..30 {
            let ops = batch(&mut rng, 3);
            write(&db, &tree, &ops, SyncMode::None).unwrap();
            ops.iter().for_each(|(key, value)| apply(&mut model, (key, value.as_deref())));
            if step % 5 == 0 {
                older.push(records(&tree));
            }
        }
        let mut found = records(&tree);
        found.retain(|key, value| {
            key.starts_with(b"v") || is_node(key, value, true) || below(&mut rng, 3) == 0
        });
        for (key, value) in &older[below(&mut rng, older.len() as u64) as usize] {
            let is_above = key.starts_with(b"m") || is_node(key, value, false);
            if is_above && below(&mut rng, 2) == 0 {
                found.insert(key.clone(), value.clone());
            }
        }
        set_records(&tree, &found);
        drop(tree);
        let family = db.column_family(FAMILY).unwrap();
        super::mend_with(&db, &family, &strange(), IDS_TOGETHER).unwrap();
        let tree = Tree::open(family, strange()).unwrap();
        check(&tree, &now(&db), &model);
        for _ in 0..5 {
            let ops = batch(&mut rng, 3);
            write(&db, &tree, &ops, SyncMode::None).unwrap();
            ops.iter().for_each(|(key, value)| apply(&mut model, (key, value.as_deref())));
        }
        check(&tree, &now(&db), &model);
        // A tree that is whole is left alone.
        let before = records(&tree);
        super::mend_with(&db, tree.family(), &strange(), IDS_TOGETHER).unwrap();
        whole += usize::from(records(&tree) == before);
    }
    assert_eq!(whole, 30);
}

/// Of a leaf and the record of a key one is enough, whichever: a tree of an earlier build has no records of keys.
#[test]
fn a_key_is_found_by_its_leaf_or_by_its_own_record() {
    for seed in 0..10 {
        let mut rng = SplitMix64::new(seed);
        let sim = SimVfs::new(seed);
        let (db, tree) = open(&sim);
        let mut model = Model::new();
        for _ in 0..20 {
            let ops = batch(&mut rng, 3);
            write(&db, &tree, &ops, SyncMode::None).unwrap();
            ops.iter().for_each(|(key, value)| apply(&mut model, (key, value.as_deref())));
        }
        let whole = records(&tree);
        let family = tree.family().clone();
        for lost in [b"n", b"k"] {
            let mut found = whole.clone();
            found.retain(|key, _| !key.starts_with(b"m") && !key.starts_with(lost));
            assert!(found.len() + 1 < whole.len());
            set_records(&tree, &found);
            super::mend_with(&db, &family, &strange(), IDS_TOGETHER).unwrap();
            let mended = Tree::open(family.clone(), strange()).unwrap();
            check(&mended, &now(&db), &model);
            let is_key = |key: &&Vec<u8>| key.starts_with(b"k");
            assert_eq!(records(&mended).keys().filter(is_key).count(), model.len());
        }
        // A key without a value goes when the tree is made anew.
        let mut found = whole;
        found.retain(|key, _| key.starts_with(b"k"));
        set_records(&tree, &found);
        super::mend_with(&db, &family, &strange(), IDS_TOGETHER).unwrap();
        assert!(records(&tree).is_empty());
    }
}

/// A value that is not that of its key would come back by such a record when the key has been deleted.
#[test]
fn only_the_value_in_force_has_a_record_of_its_key() {
    let sim = SimVfs::new(1);
    let (db, tree) = open(&sim);
    let family = tree.family().clone();
    for id in [5, 7, 9] {
        family.put(super::view::key_key(id), b"key").unwrap();
    }
    let view = super::View { family: family.clone(), reading: ReadOptions::default() };
    let order = strange();
    let meta = super::Meta { next_id: 10, ..super::Meta::new(order.name()) };
    let mut edit = super::Edit::new(view, &order, meta, terrace::WriteBatch::new());
    for id in [5, 9, 7] {
        edit.link(b"key", id).unwrap();
    }
    let (batch, _) = edit.finish_nodes();
    db.write(batch).unwrap();
    let mut left = records(&tree);
    left.retain(|key, _| key.starts_with(b"k"));
    assert_eq!(left, BTreeMap::from([(super::view::key_key(9).to_vec(), b"key".to_vec())]));
}

#[test]
fn lost_records_of_keys_are_written_again_in_a_tree_that_is_whole() {
    for seed in 0..10 {
        let mut rng = SplitMix64::new(seed);
        let sim = SimVfs::new(seed);
        let (db, tree) = open(&sim);
        for _ in 0..20 {
            write(&db, &tree, &batch(&mut rng, 3), SyncMode::None).unwrap();
        }
        let whole = records(&tree);
        // All of them, as in a tree of an earlier build, or some.
        for kept in [0, 2] {
            let mut found = whole.clone();
            found.retain(|key, _| !key.starts_with(b"k") || below(&mut rng, 3) < kept);
            assert!(found.len() < whole.len());
            set_records(&tree, &found);
            super::mend_with(&db, tree.family(), &strange(), IDS_TOGETHER).unwrap();
            assert!(records(&tree) == whole, "seed {seed}");
        }
    }
}

/// Of any records, each as it was at some time or lost, comes a whole tree, in which every key has a value that it had.
/// Those whose leaf and value are the newest are there.
#[test]
fn any_older_records_make_a_whole_tree() {
    for seed in 0..40 {
        let mut rng = SplitMix64::new(seed);
        let sim = SimVfs::new(seed);
        let (db, tree) = open(&sim);
        let mut model = Model::new();
        let mut states: Vec<BTreeMap<Vec<u8>, Vec<u8>>> = Vec::new();
        let mut written: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        for _ in 0..20 {
            let ops = batch(&mut rng, 3);
            write(&db, &tree, &ops, SyncMode::None).unwrap();
            ops.iter().for_each(|(key, value)| apply(&mut model, (key, value.as_deref())));
            written.extend(ops.into_iter().filter_map(|(key, value)| Some((key, value?))));
            states.push(records(&tree));
        }
        let newest = states.last().unwrap().clone();
        let mut all: Vec<&Vec<u8>> = states.iter().flat_map(BTreeMap::keys).collect();
        all.sort();
        all.dedup();
        let mut found = BTreeMap::new();
        for key in all {
            let state = match below(&mut rng, 4) {
                0 => continue,
                1 => &states[below(&mut rng, states.len() as u64) as usize],
                _ => &newest,
            };
            found.extend(state.get(key).map(|value| (key.clone(), value.clone())));
        }
        let mut expected: Vec<Vec<u8>> = Vec::new();
        for (key, value) in found.iter().filter(|(key, value)| is_node(key, value, true)) {
            if newest.get(key) != Some(value) {
                continue;
            }
            for entry in Node::decode(value).unwrap().entries {
                let stored = super::view::value_key(entry.id).to_vec();
                let is_newest = found.get(&stored) == newest.get(&stored);
                expected.extend(is_newest.then_some(entry.key));
            }
        }
        set_records(&tree, &found);
        drop(tree);
        let family = db.column_family(FAMILY).unwrap();
        super::mend_with(&db, &family, &strange(), IDS_TOGETHER).unwrap();
        let tree = Tree::open(family, strange()).unwrap();
        let mut cursor = tree.cursor(now(&db)).unwrap();
        cursor.seek_to_first().unwrap();
        let is_same = |a: &[u8], b: &[u8]| strange().compare(a, b) == Ordering::Equal;
        let mut there = Model::new();
        while cursor.valid() {
            let had = |(key, value): &(Vec<u8>, Vec<u8>)| {
                is_same(key, cursor.key()) && value == cursor.value()
            };
            assert!(written.iter().any(had), "seed {seed}");
            there.push((cursor.key().to_vec(), cursor.value().to_vec()));
            cursor.next().unwrap();
        }
        check(&tree, &now(&db), &there);
        for key in expected {
            let now = place(&there, &key).ok().map(|at| &there[at].1);
            let then = place(&model, &key).ok().map(|at| &model[at].1);
            assert!(now.is_some() && now == then, "seed {seed}: {}", key.escape_ascii());
        }
    }
}

/// Whatever a rebuild is interrupted at, the next one makes the same tree.
#[test]
fn an_interrupted_rebuild_is_done_again() {
    let mut cuts = 0;
    for seed in 0..30 {
        let mut rng = SplitMix64::new(seed);
        let sim = SimVfs::new(seed);
        let (db, tree) = open(&sim);
        let mut model = Model::new();
        for _ in 0..20 {
            let ops = batch(&mut rng, 2);
            write(&db, &tree, &ops, SyncMode::None).unwrap();
            ops.iter().for_each(|(key, value)| apply(&mut model, (key, value.as_deref())));
        }
        tree.family().delete(super::view::META).unwrap();
        db.sync().unwrap();
        sim.crash_after(sim.op_count() + 1 + below(&mut rng, 8));
        let mended = super::mend_with(&db, tree.family(), &strange(), IDS_TOGETHER);
        cuts += usize::from(mended.is_err());
        let image = sim.crash_image(seed);
        drop((tree, db));
        let mut options = options(&image);
        options.create_if_missing = false;
        let db = Db::open("db", options).unwrap();
        let family = db.column_family(FAMILY).unwrap();
        super::mend_with(&db, &family, &strange(), IDS_TOGETHER).unwrap();
        check(&Tree::open(family, strange()).unwrap(), &now(&db), &model);
    }
    assert!(cuts > 5, "{cuts} of 30 were cut");
}
