//! Which blocks have slots.

use crate::iter::ScanOptions;
use crate::test_files::{KEYS, file, key};
use crate::{Lookup, SstOptions};
use terrace_base::{InternalIter, MAX_SEQNO};

#[test]
fn blocks_that_were_in_the_cache_when_there_came_to_be_slots_get_theirs_without_a_lookup() {
    let reader = file(SstOptions { block_size: 512, ..SstOptions::default() }, KEYS, b"value");
    let mut all = reader.iter(ScanOptions::default());
    all.seek_to_first().unwrap();
    while all.valid() {
        all.next().unwrap();
    }
    let filled = || {
        let model = reader.slots.model.load_full()?;
        let slots = model.slots()?;
        Some(slots.iter().filter(|slot| slot.load().is_some()).count())
    };
    let get = |at| assert!(reader.get(&Lookup::new(&key(at), MAX_SEQNO)).unwrap().is_some());
    let blocks = reader.block_count() as usize;
    let lookups = (0..10 * KEYS).find(|_| {
        get(0);
        filled().is_some()
    });
    assert!(lookups.is_some(), "no slots");
    get(0);
    assert_eq!(filled(), Some(1), "of {blocks} blocks");
    assert_eq!(reader.house_cached_blocks(), blocks - 1);
    assert_eq!(filled(), Some(blocks));
    assert_eq!(reader.house_cached_blocks(), 0, "once");
    (0..KEYS).for_each(get);
}
