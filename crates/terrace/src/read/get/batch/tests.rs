//! What calls that may not read count for filters, on a store that nothing else touches; and what is read at a time.

use super::*;
use crate::db::Db;
use crate::open::read_only;
use crate::options::Options;
use std::sync::Arc;
use terrace_sst::{Compression, FilterUses, UnitLoad, load_filter_units};
use terrace_vfs::SimVfs;

fn key(number: u64) -> Vec<u8> {
    format!("{number:08}").into_bytes()
}

fn options(vfs: &SimVfs) -> Options {
    let mut options = Options { memory_budget: 64 << 20, ..Options::default() };
    options.default_family.compression = vec![Compression::None];
    options.default_family.filter = vec!["ribbon:8".parse().unwrap()];
    options.advanced.vfs = Arc::new(vfs.clone());
    options.advanced.block_size = 512;
    options.advanced.compact_when_idle = false;
    options
}

/// Even numbers up to 2000 in a level, every tenth number in a file of L0, and every fiftieth in a newer one.
fn fill(vfs: &SimVfs) {
    let db = Db::open("/db", options(vfs)).unwrap();
    let put_every = |step: usize| {
        (0..2000).step_by(step).for_each(|number| db.put(key(number), [7; 40]).unwrap());
    };
    put_every(2);
    db.compact_range::<&[u8]>(..).unwrap();
    for step in [10, 50] {
        put_every(step);
        db.flush().unwrap();
    }
    db.close().unwrap();
}

/// How lookups fared in each filter partition since the last call.
fn taken_uses(state: &ReadState) -> Vec<FilterUses> {
    let mut uses = Vec::new();
    for (level, files) in state.version.levels().iter().enumerate() {
        for index in 0..files.len() {
            let reader = state.slots.at(level, index).open_reader();
            let reader = reader.as_ref().unwrap();
            uses.extend((0..reader.filter_partition_count()).map(|at| reader.take_filter_uses(at)));
        }
    }
    uses
}

#[test]
fn the_blocks_of_eight_threads_take_half_of_what_a_process_may_have_beside_the_budget() {
    for block_size in [128, 512, 4096, 16 << 10, 256 << 10] {
        let keys = keys_at_once(block_size);
        assert!(8 * keys * block_size <= 32 << 20, "{keys} of {block_size}");
        assert!(keys >= LEAST_AT_ONCE);
    }
}

#[test]
fn a_call_that_is_refused_counts_nothing_for_filters() {
    let vfs = SimVfs::new(1);
    fill(&vfs);
    let inner = read_only::open("/db".as_ref(), options(&vfs)).unwrap();
    let families = inner.read.families.load_full();
    let state = families[0].state();
    assert_eq!(state.version.level(0).len(), 2);
    let call = |keys: &[Vec<u8>], in_memory: bool| {
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        multi_get(&inner.read, &families[0], &keys, Reading { in_memory, ..Reading::default() })
    };
    // So few that all of them are counted.
    let near: Vec<Vec<u8>> = (0..25).map(key).collect();
    let found = call(&near, false).unwrap();
    assert_eq!(found.iter().flatten().count(), 13);
    {
        // One filter stops lookups, of the others nothing is in memory.
        let reader = state.slots.at(0, 0).open_reader();
        let reader = reader.as_ref().unwrap();
        let loaded = load_filter_units(&[UnitLoad { reader, partition: 0, units: u8::MAX }]);
        assert!(loaded[0].units > 0);
    }
    taken_uses(&state);
    call(&near, false).unwrap();
    let want = taken_uses(&state);
    let sum = |of: fn(&FilterUses) -> u32| want.iter().map(of).sum::<u32>();
    // 0 in the newest file, 10 and 20 in the next one, and ten others below.
    assert_eq!(sum(|uses| uses.found), 13);
    assert!(sum(|uses| uses.stopped) > 0 && sum(|uses| uses.vain) > 0, "{want:?}");
    assert_eq!(call(&near, true).unwrap(), found);
    assert_eq!(taken_uses(&state), want, "an answered call counts as one that may read");
    // Of each of the runs, from the newest on, one whose block there is not in memory.
    for far in [1900, 1986, 1998] {
        let with_far: Vec<Vec<u8>> = near.iter().cloned().chain([key(far)]).collect();
        call(&near, false).unwrap();
        let refused = call(&with_far, true);
        assert!(matches!(refused, Err(Error::NotInMemory)), "{refused:?}");
        assert_eq!(taken_uses(&state), want, "refused because of {far}");
    }
}
