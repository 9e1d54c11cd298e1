//! What hot tables may take of the memory.

use super::*;
use terrace::CfOptions;

/// While snapshots keep versions, and when values become larger, part of what is hot cools.
#[test]
fn the_hot_table_is_bounded_whatever_snapshots_keep_and_however_values_grow() {
    for grows in [false, true] {
        let sim = SimVfs::new(6);
        let mut store = Store::open(&sim, HotTableMode::Auto);
        let mut rng = SplitMix64::new(6);
        store.heat(&mut rng);
        let (mut snapshots, mut most) = (Vec::new(), 0);
        for round in 0..120 {
            if !grows {
                snapshots.push(store.db.snapshot());
            }
            let len = if grows { 100 + 60 * round } else { 100 };
            for n in 0..HOT {
                store.put(n, len);
                most = most.max(store.db.metrics().hot_bytes);
            }
        }
        check(&store.db, &store.contents, None);
        assert!(most > 0 && most < 48 << 10, "grows: {grows}, {most} bytes beside 32 KiB");
    }
}

/// All families with a hot table share the memory that one may have for it.
#[test]
fn many_families_share_the_memory_of_one_hot_table() {
    const FAMILIES: usize = 16;
    let sim = SimVfs::new(7);
    let mut many = options(&sim, HotTableMode::Auto);
    let name = |n| (format!("family-{n}"), CfOptions::default());
    many.column_families = (0..FAMILIES).map(name).collect();
    many.memory_budget = 16 << 20;
    let db = Db::open(DIR, many).unwrap();
    let families: Vec<_> = (0..FAMILIES).map(|n| db.column_family(&name(n).0).unwrap()).collect();
    let mut rng = SplitMix64::new(7);
    let (mut most, mut hot) = (0, 0);
    for _ in 0..1500 {
        for family in &families {
            for n in 0..HOT {
                family.put(key(n), [7; 250]).unwrap();
            }
            family.put(key(HOT + rng.below(KEYS)), [8; 100]).unwrap();
        }
        let m = db.metrics();
        (most, hot) = (most.max(m.hot_bytes), hot.max(m.hot_keys));
    }
    assert!(hot > 0, "nothing becomes hot");
    assert!(most < 160 << 10, "{most} bytes in hot tables");
}
