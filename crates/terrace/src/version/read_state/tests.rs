//! What a state has in common with the one before it.

use super::*;
use crate::memory::filter_budget::FilterBudget;
use std::path::Path;
use terrace_manifest::FamilyEdit;
use terrace_sst::{BlockCache, ReadCounters};
use terrace_vfs::SimVfs;

fn table_cache() -> TableCache {
    let (cache, counters) = (Arc::new(BlockCache::new(1 << 20)), Arc::new(ReadCounters::new()));
    let (vfs, dir) = (Arc::new(SimVfs::new(1)), Path::new("/"));
    TableCache::new(vfs, dir, cache, counters, FilterBudget::cached(), false, 100)
}

fn state_of(version: Version, table_cache: &TableCache) -> ReadState {
    let memtable = Arc::new(MemTable::with_capacity(0, 0).unwrap());
    ReadState::of_version(memtable, Vec::new(), Arc::new(version), table_cache)
}

#[test]
fn only_files_that_come_are_looked_up() {
    let shape = "L0: 30:[a-z] 1KB 29:[b-y] 1KB
                 L1: 1:[a-b] 1KB 2:[c-d] 1KB range_tombstones=2 3:[e-f] 1KB 4:[g-h] 1KB
                 L2: 5:[a-b] 1KB 6:[c-d] 1KB 7:[p-q] 1KB";
    let before = Version::parse_shape(shape).unwrap();
    let change = |added: &str, removed: &[(u8, u64)]| {
        let added = Version::parse_shape(added).unwrap();
        let added = added.files().map(|(level, file)| (level, FileMeta::clone(file)));
        let removed = removed.iter().map(|(level, number)| (*level, FileNumber::new(*number)));
        let (added, removed) = (added.collect(), removed.collect());
        before.apply(&FamilyEdit { added, removed, ..FamilyEdit::default() }).unwrap()
    };
    // The version afterwards, how many files are looked up for it, and whether any holds range tombstones.
    let cases = [
        (change("", &[]), 0, true),
        (change("L0: 31:[a-c] 1KB", &[]), 1, true),
        (change("L2: 32:[c-d] 1KB 33:[e-f] 1KB", &[(1, 2), (2, 6)]), 2, false),
        (change("L1: 34:[i-j] 1KB range_tombstones=1", &[(1, 2)]), 3, true),
        (change("", &[(1, 1), (1, 4), (0, 29)]), 2, true),
        (change("L2: 35:[r-s] 1KB", &[(0, 30), (0, 29), (2, 5)]), 3, true),
    ];
    for (n, (version, looked_up, has_range_tombstones)) in cases.into_iter().enumerate() {
        let (usual, other) = (table_cache(), table_cache());
        let state = state_of(before.clone(), &usual);
        let next = |cache: &TableCache| {
            let version = Arc::new(version.clone());
            state.with_version(state.memtable.clone(), Vec::new(), version, cache)
        };
        let whole = state_of(version.clone(), &usual);
        let (after, elsewhere) = (next(&usual), next(&other));
        let places = || {
            let levels = version.levels().iter().enumerate();
            levels.flat_map(|(level, files)| (0..files.len()).map(move |index| (level, index)))
        };
        let slot = |state: &ReadState, (level, index)| {
            std::ptr::from_ref(state.slots.at(level, index)).cast::<()>()
        };
        assert!(places().all(|at| slot(&after, at) == slot(&whole, at)), "case {n}");
        let others = places().filter(|at| slot(&elsewhere, *at) != slot(&whole, *at));
        assert_eq!(others.count(), looked_up, "case {n}");
        let ranged = [&after, &whole].map(|state| state.has_range_tombstones);
        assert_eq!(ranged, [has_range_tombstones; 2], "case {n}");
        let is_shared = |level: usize| {
            let slots = |state: &ReadState| state.slots.levels[level].slots.clone();
            Arc::ptr_eq(&slots(&after), &slots(&state))
        };
        assert!((3..LEVEL_COUNT).all(is_shared), "case {n}");
    }
}
