//! Slots and the cache let go of the same values; what is charged.

use super::packing::pack_cache;
use super::*;

fn resident(slots: &Arc<Slots>) -> Arc<SlotEntry<FilterPartition>> {
    let shape = terrace_filter::FilterShape {
        kind: terrace_filter::FilterKind::BlockedBloom,
        unit_count: 1,
        seed: 0,
        first_unit_bytes: 64,
        unit_bytes: 64,
    };
    let partition = FilterPartition::load(Buf::from(&[0; 64][..]), shape, 1).unwrap();
    SlotEntry::new(partition, 0, Arc::downgrade(slots))
}

#[test]
fn an_evicted_partition_leaves_its_slot_but_not_that_of_its_successor() {
    let slots = Slots::new(0, 1);
    let cache = BlockCache::new(1 << 20);
    let key = CacheKey { file: 1, offset: 0 };
    let (first, second) = (resident(&slots), resident(&slots));
    first.publish(&cache, key);
    assert!(Arc::ptr_eq(&slots.filters[0].resident.load_full().unwrap(), &first));
    second.publish(&cache, key);
    CachedBlock(CacheContent::Filter(first)).on_evicted();
    assert!(Arc::ptr_eq(&slots.filters[0].resident.load_full().unwrap(), &second));
    cache.remove(&key);
    assert!(slots.filters[0].resident.load().is_none());
    // Publishing what is evicted already keeps nothing.
    second.publish(&BlockCache::new(0), key);
    assert!(slots.filters[0].resident.load().is_none());
}

#[test]
fn an_evicted_block_leaves_its_slot() {
    let slots = Arc::new(BlockSlots((0..2).map(|_| BlockSlot::new(None)).collect()));
    let cache = BlockCache::new(1 << 20);
    let key = CacheKey { file: 1, offset: 0 };
    let block = Buf::from(&[1; 100][..]);
    let entry = DataBlockEntry::new(block.clone());
    entry.clone().publish(&cache, key);
    assert!(slots.0[1].load().is_none(), "it was read once");
    entry.house(&slots, 1, &cache, key);
    assert!(slots.0[1].load().as_ref().is_some_and(|held| Buf::ptr_eq(held, &block)));
    let other = DataBlockEntry::new(Buf::from(&[2; 100][..]));
    other.home.get_or_init(|| BlockHome { slots: Arc::downgrade(&slots), at: 1 });
    CachedBlock(CacheContent::Data(other)).on_evicted();
    assert!(slots.0[1].load().is_some());
    assert!(block.mark() && CachedBlock(CacheContent::Data(entry.clone())).take_touched());
    cache.remove(&key);
    assert!(slots.0[1].load().is_none());
    entry.house(&slots, 1, &BlockCache::new(0), key);
    assert!(slots.0[1].load().is_none(), "it has left");
}

#[test]
fn a_block_that_has_a_slot_elsewhere_gets_another_entry_for_its_second() {
    let (old, young) = (BlockSlots::empty(1), BlockSlots::empty(2));
    let cache = BlockCache::new(1 << 20);
    let key = CacheKey { file: 1, offset: 0 };
    let entry = DataBlockEntry::new(Buf::from(&[1; 100][..]));
    entry.clone().publish(&cache, key);
    entry.house(&old, 0, &cache, key);
    assert!(!entry.house_here(&young, 1), "one slot for each entry");
    entry.house(&young, 1, &cache, key);
    assert!(old.0[0].load().is_none(), "the first entry has left, and its slot is empty");
    assert!(young.0[1].load().is_some());
    cache.remove(&key);
    assert!(young.0[1].load().is_none());
}

#[test]
fn a_block_that_leaves_while_it_gets_its_slot_is_in_none_in_the_end() {
    const ROUNDS: usize = 2000;
    let slots = BlockSlots::empty(ROUNDS);
    let cache = BlockCache::new(1 << 20);
    for at in 0..ROUNDS {
        let key = CacheKey { file: 1, offset: at as u64 };
        let entry = DataBlockEntry::new(Buf::from(&[1; 100][..]));
        entry.clone().publish(&cache, key);
        std::thread::scope(|scope| {
            scope.spawn(|| entry.house_here(&slots, at));
            scope.spawn(|| cache.remove(&key));
        });
        assert!(slots.0[at].load().is_none(), "round {at}");
    }
}

#[test]
fn touching_is_seen_once() {
    let slots = Slots::new(0, 1);
    let filter = resident(&slots);
    let cached = CachedBlock(CacheContent::Filter(filter.clone()));
    assert!(!cached.take_touched());
    assert!(filter.touch() && !filter.touch());
    assert!(cached.take_touched() && !cached.take_touched());
}

#[test]
fn what_is_moved_is_read_through_the_same_slots_and_charged_as_before() {
    // Buffers of a class that no other test has, of which four lie in a chunk.
    const BYTES: usize = 500_000;
    let block = |byte: u8| Buf::from(&[byte; BYTES][..]);
    let others: Vec<Buf> = (0..64).map(|_| block(0)).collect();
    let cache = BlockCache::new(64 << 20);
    let key = |at: u8| CacheKey { file: 1, offset: u64::from(at) };
    let blocks = BlockSlots::empty(8);
    for at in 0..8u8 {
        let entry = DataBlockEntry::new(block(at));
        entry.clone().publish(&cache, key(at));
        entry.house(&blocks, usize::from(at), &cache, key(at));
    }
    let slots = Slots::new(0, 1);
    let kind = terrace_filter::FilterKind::BlockedBloom;
    let (first_unit_bytes, unit_bytes) = (BYTES as u32, 64);
    let shape =
        terrace_filter::FilterShape { kind, unit_count: 1, seed: 0, first_unit_bytes, unit_bytes };
    let filter = FilterPartition::load(block(8), shape, 1).unwrap();
    SlotEntry::new(filter, 0, Arc::downgrade(&slots)).publish(&cache, key(8));
    assert!(slots.filters[0].resident.load().as_ref().is_some_and(|filter| filter.touch()));
    let places = || {
        let filter = slots.filters[0].resident.load_full();
        let filter = filter.map(|filter| filter.payload().as_ptr());
        let place = |slot: &BlockSlot| slot.load().as_ref().map(|block| block.as_ptr());
        blocks.iter().map(place).chain([filter]).collect::<Vec<_>>()
    };
    let before = (places(), cache.used_bytes());
    let looked = std::cell::Cell::new(0);
    let pack = || pack_cache(&cache, || looked.set(looked.get() + 1));
    pack();
    assert_eq!(looked.get(), 9);
    assert_eq!((places(), cache.used_bytes()), before, "all chunks are needed");
    let kept: Vec<Buf> = others.into_iter().step_by(4).collect();
    pack();
    assert_eq!(cache.used_bytes(), before.1);
    let after = places();
    assert!(before.0.iter().zip(&after).all(|(old, place)| place.is_some() && old != place));
    for (slot, byte) in blocks.iter().zip(0..) {
        let block = slot.load_full().unwrap();
        assert!(block.len() == BYTES && block.iter().all(|b| *b == byte));
        let is_it = |cached: CachedBlock| match &cached.0 {
            CacheContent::Data(entry) => Buf::ptr_eq(entry.block(), &block),
            _ => false,
        };
        assert!(cache.get(&key(byte)).is_some_and(is_it));
    }
    let filter = slots.filters[0].resident.load_full().unwrap();
    assert!(filter.payload().iter().all(|b| *b == 8) && !filter.touch());
    (0..9).for_each(|at| cache.remove(&key(at)));
    assert!(places().iter().all(Option::is_none));
    drop(kept);
}

#[test]
fn what_the_cache_itself_takes_is_charged() {
    let value = CachedBlock::of_value(Slice::from(&[7; 100][..]));
    assert!(value.charge_bytes() >= 100 + ENTRY_BYTES);
}
