//! The bound, who survives, the hand-over of what leaves, and agreement with a plain map.

use super::*;
use proptest::prelude::*;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc;
use std::time::Duration;
use terrace_base::{Rng, SplitMix64};

const MIB: usize = 1 << 20;

/// Keeps the ids of the values that a cache should hold at the moment.
#[derive(Default)]
struct Ledger {
    held: Mutex<HashMap<u64, usize>>,
    departures: Mutex<Vec<u64>>,
}

impl Ledger {
    fn held_bytes(&self) -> usize {
        self.held.lock().unwrap().values().sum()
    }

    fn held_ids(&self) -> HashSet<u64> {
        self.held.lock().unwrap().keys().copied().collect()
    }

    fn take_departures(&self) -> Vec<u64> {
        std::mem::take(&mut self.departures.lock().unwrap())
    }
}

#[derive(Clone)]
struct Block(Arc<BlockData>);

struct BlockData {
    id: u64,
    charge: usize,
    priority: Priority,
    touched: AtomicBool,
    always_touched: bool,
    visits: AtomicUsize,
    ledger: Arc<Ledger>,
}

impl Cached for Block {
    fn charge_bytes(&self) -> usize {
        self.0.charge
    }

    fn priority(&self) -> Priority {
        self.0.priority
    }

    fn take_touched(&self) -> bool {
        self.0.visits.fetch_add(1, SeqCst);
        self.0.touched.swap(false, SeqCst) || self.0.always_touched
    }

    fn on_evicted(&self) {
        let known = self.0.ledger.held.lock().unwrap().remove(&self.0.id);
        assert!(known.is_some(), "value {} left twice", self.0.id);
        self.0.ledger.departures.lock().unwrap().push(self.0.id);
    }
}

fn key(n: u64) -> CacheKey {
    CacheKey { file: n % 7, offset: n * 4096 }
}

/// A block that its ledger takes to be in the cache from now on.
fn block(ledger: &Arc<Ledger>, id: u64, charge: usize, priority: Priority) -> Block {
    make(ledger, id, charge, priority, false)
}

fn make(ledger: &Arc<Ledger>, id: u64, charge: usize, priority: Priority, always: bool) -> Block {
    ledger.held.lock().unwrap().insert(id, charge.max(1));
    Block(Arc::new(BlockData {
        id,
        charge,
        priority,
        touched: AtomicBool::new(false),
        always_touched: always,
        visits: AtomicUsize::new(0),
        ledger: Arc::clone(ledger),
    }))
}

fn assert_bounded(cache: &Cache<Block>, largest: usize) {
    let (used, bound) =
        (cache.used_bytes(), cache.capacity_bytes() + cache.shard_count() * largest);
    assert!(used <= bound, "{used} bytes used, {bound} allowed");
}

#[test]
fn shards_are_as_many_as_the_capacity_bears() {
    assert_eq!(shards_for(0, 8), 1);
    assert_eq!(shards_for(8 * MIB, 8), 4);
    assert_eq!(shards_for(15 * MIB, 8), 4);
    assert_eq!(shards_for(512 * MIB, 2), 8);
    assert_eq!(shards_for(64 << 30, 200), 256);
}

#[test]
fn a_small_cache_uses_its_capacity() {
    let (cache, ledger) = (Cache::new(8 * MIB), Arc::new(Ledger::default()));
    for n in 0..10_000 {
        let size = 4096 + (n as usize * 37) % 4096;
        cache.insert(key(n), block(&ledger, n, size, Priority::Normal));
    }
    assert_bounded(&cache, 0);
    assert!(cache.used_bytes() > 8 * MIB * 98 / 100, "{} bytes used", cache.used_bytes());
    assert_eq!(cache.used_bytes(), ledger.held_bytes());
    assert_eq!(cache.stats().inserts, 10_000);
    assert_eq!(cache.stats().evictions as usize, 10_000 - cache.stats().entries);
}

#[test]
fn high_priority_survives_a_scan() {
    for warm in [true, false] {
        let (cache, ledger) = (Cache::new(8 * MIB), Arc::new(Ledger::default()));
        let scan = |from: u64, to: u64| {
            for n in from..to {
                cache.insert(key(n), block(&ledger, n, 4096, Priority::Normal));
            }
        };
        // Metadata arrives into an empty cache, or into one full of data.
        if warm {
            scan(100_000, 104_000);
        }
        for n in 0..256 {
            cache.insert(key(n), block(&ledger, n, 4096, Priority::High));
        }
        scan(1_000, 40_000);
        let kept = (0..256).filter(|n| cache.get(&key(*n)).is_some()).count();
        assert_eq!(kept, 256, "warm: {warm}");
        assert_eq!(cache.stats().high_used_bytes, 256 * 4096);
        assert_eq!((cache.stats().hits, cache.stats().misses), (256, 0));
    }
}

#[test]
fn high_priority_outlasts_normal_among_entries_that_are_read() {
    let (cache, ledger) = (Cache::with_shards(MIB, 1), Arc::new(Ledger::default()));
    let insert = |n: u64, priority| {
        cache.insert(key(n), block(&ledger, n, MIB / 100, priority));
    };
    (0..50).for_each(|n| insert(n, Priority::High));
    (50..97).for_each(|n| insert(n, Priority::Normal));
    // Data that is read after it came pushes older entries out of the long-lived part.
    let read_data = |count: u64, from: u64| {
        for n in from..from + count {
            insert(n, Priority::Normal);
            cache.get(&key(n));
        }
        let held = ledger.held_ids();
        let among = |range: std::ops::Range<u64>| range.filter(|n| held.contains(n)).count();
        (among(0..50), among(50..97))
    };
    assert_eq!(read_data(80, 1_000), (50, 0));
    assert_eq!(read_data(200, 2_000), (0, 0));
}

#[test]
fn nothing_resists_for_ever() {
    for always_touched in [false, true] {
        for (shards, size) in [(1, 64 << 10), (1, 900 << 10), (4, 5_000)] {
            let ledger = Arc::new(Ledger::default());
            let cache = Cache::with_shards(2 * MIB * shards, shards);
            for n in 0..5_000 {
                let value = make(&ledger, n, size, Priority::High, always_touched);
                cache.insert(key(n), value);
                assert_bounded(&cache, size);
            }
            assert_eq!(cache.used_bytes(), ledger.held_bytes());
            assert_eq!(cache.stats().high_used_bytes, cache.used_bytes());
            cache.set_capacity_bytes(MIB * shards);
            assert_bounded(&cache, 0);
        }
    }
}

#[test]
fn a_touched_entry_gets_exactly_one_more_round() {
    let (cache, ledger) = (Cache::with_shards(MIB, 1), Arc::new(Ledger::default()));
    let insert = |n: u64| {
        let value = block(&ledger, n, MIB / 100, Priority::Normal);
        cache.insert(key(n), value.clone());
        value
    };
    // 97 fill the long-lived part; 97, 98, 99 are the first of the part that takes new ones.
    (0..97).for_each(|n| drop(insert(n)));
    let touched = insert(97);
    (98..100).for_each(|n| drop(insert(n)));
    assert_eq!(ledger.take_departures(), []);
    touched.0.touched.store(true, SeqCst);
    (100..103).for_each(|n| drop(insert(n)));
    assert_eq!(ledger.take_departures(), [98, 99, 97]);
    assert_eq!(touched.0.visits.load(SeqCst), 2);
}

#[test]
fn a_resize_evicts_and_makes_room() {
    let (cache, ledger) = (Cache::new(16 * MIB), Arc::new(Ledger::default()));
    let fill = |from: u64| {
        for n in from..from + 5_000 {
            cache.insert(key(n), block(&ledger, n, 8192, Priority::Normal));
        }
    };
    fill(0);
    for capacity in [4 * MIB, 32 * MIB, 100_000, 0, 8 * MIB] {
        cache.set_capacity_bytes(capacity);
        assert_bounded(&cache, 0);
        fill(capacity as u64);
        assert_bounded(&cache, 0);
        assert!(cache.used_bytes() >= (capacity * 9 / 10).saturating_sub(8 * 8192));
        assert_eq!(cache.used_bytes(), ledger.held_bytes());
    }
}

#[test]
fn a_resize_to_nearly_the_same_takes_back_the_entry_over() {
    for more in [0, 100] {
        let (cache, ledger) = (Cache::with_shards(MIB, 1), Arc::new(Ledger::default()));
        let over = (0..1_000).any(|n| {
            cache.insert(key(n), make(&ledger, n, 40_000, Priority::High, true));
            cache.used_bytes() > MIB
        });
        assert!(over);
        cache.set_capacity_bytes(MIB + more);
        assert!(cache.used_bytes() <= MIB);
    }
}

#[test]
fn growth_in_small_steps_adds_up() {
    let cache: Cache<Block> = Cache::with_shards(4 * MIB, 2);
    for step in 0..=1024 {
        cache.set_capacity_bytes(4 * MIB + step * 4096);
        assert!(cache.inner.capacity() as usize <= cache.capacity_bytes());
    }
    assert_eq!(cache.capacity_bytes(), 8 * MIB);
    assert!(cache.inner.capacity() as usize > 8 * MIB * 63 / 64);
    cache.set_capacity_bytes(8 * MIB - 100);
    assert!(cache.inner.capacity() as usize <= 8 * MIB - 100);
}

#[test]
fn what_fits_nowhere_is_handed_back_and_replaces() {
    let (cache, ledger) = (Cache::with_shards(4 * MIB, 2), Arc::new(Ledger::default()));
    for (round, size) in [2 * MIB + 1, 1 << 40].into_iter().enumerate() {
        for priority in [Priority::Normal, Priority::High] {
            let id = round as u64 * 10 + priority as u64 * 2;
            cache.insert(key(1), block(&ledger, id, 4096, priority));
            assert!(cache.get(&key(1)).is_some());
            cache.insert(key(1), block(&ledger, id + 1, size, priority));
            assert!(cache.get(&key(1)).is_none());
            assert_eq!(ledger.held_ids(), HashSet::new());
        }
    }
    assert_eq!((cache.used_bytes(), cache.stats().high_used_bytes), (0, 0));
}

#[test]
fn an_empty_charge_counts_as_one_byte() {
    let (cache, ledger) = (Cache::with_shards(1000, 1), Arc::new(Ledger::default()));
    for n in 0..5_000 {
        cache.insert(key(n), block(&ledger, n, 0, Priority::Normal));
    }
    assert_eq!((cache.used_bytes(), cache.stats().entries), (1000, 1000));
}

#[test]
fn values_still_held_leave_when_the_cache_is_dropped() {
    let ledger = Arc::new(Ledger::default());
    let cache = Cache::new(MIB);
    (0..10).for_each(|n| cache.insert(key(n), block(&ledger, n, 10, Priority::High)));
    assert_eq!(ledger.held_ids().len(), 10);
    drop(cache);
    assert_eq!(ledger.held_ids().len(), 0);
}

#[test]
fn what_takes_the_place_of_a_value_is_evicted_when_that_would_have_been() {
    let [plain, replaced] = [false, true].map(|replaces| {
        let (cache, ledger) = (Cache::with_shards(MIB, 1), Arc::new(Ledger::default()));
        let insert = |n: u64| {
            let priority = if n.is_multiple_of(4) { Priority::High } else { Priority::Normal };
            cache.insert(key(n), block(&ledger, n, MIB / 100, priority));
        };
        (0..90).for_each(insert);
        (20..30).for_each(|n| assert!(cache.get(&key(n)).is_some()));
        if replaces {
            let (before, placed) = (cache.stats(), AtomicUsize::new(0));
            let other = |old: &Block| {
                let Block(data) = old;
                let of_another_id = || block(&ledger, data.id + 1_000, data.charge, data.priority);
                (!data.id.is_multiple_of(3)).then(of_another_id)
            };
            cache.replace_each(other, |value| {
                assert!(value.0.id > 1_000 && ledger.held_ids().contains(&value.0.id));
                placed.fetch_add(1, SeqCst);
            });
            assert_eq!(placed.load(SeqCst), 60);
            assert_eq!(ledger.take_departures().len(), 60);
            assert_eq!(cache.stats(), before);
        }
        (90..250).for_each(insert);
        assert_eq!(cache.used_bytes(), ledger.held_bytes());
        (0..250).filter(|n| cache.get(&key(*n)).is_some()).collect::<Vec<u64>>()
    });
    assert_eq!(plain, replaced);
}

#[test]
fn an_entry_takes_about_what_is_said() {
    for charge in [200, 4096] {
        let (cache, ledger) = (Cache::new(8 * MIB), Arc::new(Ledger::default()));
        for n in 0..60_000 {
            cache.insert(key(n), block(&ledger, n, charge, Priority::Normal));
        }
        let taken = cache.inner.memory_used();
        let each = (taken.entries + taken.map) / cache.stats().entries;
        // Both grow by doubling, and what is beyond the last entry is not touched.
        let about = ENTRY_BYTES / 2..2 * ENTRY_BYTES;
        assert!(about.contains(&each), "{each} bytes for an entry of {charge}");
    }
}

#[test]
fn file_ids_do_not_repeat() {
    let cache: Cache<Block> = Cache::new(MIB);
    let ids: HashSet<u64> = (0..100).map(|_| cache.next_file_id()).collect();
    assert_eq!(ids.len(), 100);
}

/// A value whose departure uses the cache again.
#[derive(Clone)]
struct Meddler(u64, std::sync::Weak<Cache<Meddler>>);

impl Cached for Meddler {
    fn charge_bytes(&self) -> usize {
        100
    }

    fn priority(&self) -> Priority {
        Priority::Normal
    }

    fn take_touched(&self) -> bool {
        false
    }

    fn on_evicted(&self) {
        let Some(cache) = self.1.upgrade() else { return };
        cache.get(&key(self.0));
        cache.remove(&key(self.0 + 1_000_000));
        if self.0 < 1_000 {
            cache.insert(key(self.0 + 1_000), Meddler(self.0 + 1_000, self.1.clone()));
        }
        assert!(cache.used_bytes() <= 1_000);
    }
}

#[test]
fn on_evicted_may_use_the_cache() {
    let (done, wait) = mpsc::channel();
    std::thread::spawn(move || {
        let cache = Arc::new(Cache::with_shards(1_000, 1));
        for n in 0..500 {
            cache.insert(key(n), Meddler(n, Arc::downgrade(&cache)));
            cache.insert(key(n), Meddler(n, Arc::downgrade(&cache)));
            cache.remove(&key(n / 2));
        }
        cache.set_capacity_bytes(500);
        done.send(cache.stats()).unwrap();
    });
    let stats = wait.recv_timeout(Duration::from_secs(600)).expect("no deadlock");
    assert!(stats.inserts > 1_000 && stats.evictions > 500, "{stats:?}");
}

#[derive(Debug, Clone)]
enum Step {
    Insert { key: u64, charge: usize, high: bool, touch: bool },
    Get(u64),
    Remove(u64),
    Resize(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let key = || 0..60u64;
    prop_oneof![
        8 => (key(), 0..9_000usize, any::<bool>(), any::<bool>())
            .prop_map(|(key, charge, high, touch)| Step::Insert { key, charge, high, touch }),
        6 => key().prop_map(Step::Get),
        2 => key().prop_map(Step::Remove),
        1 => (0..200_000usize).prop_map(Step::Resize),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn agrees_with_a_map_that_forgets(steps in proptest::collection::vec(step(), 1..300)) {
        let (cache, ledger) = (Cache::with_shards(100_000, 1), Arc::new(Ledger::default()));
        let mut latest: HashMap<u64, u64> = HashMap::new();
        for (id, step) in steps.into_iter().enumerate() {
            match step {
                Step::Insert { key: n, charge, high, touch } => {
                    let priority = if high { Priority::High } else { Priority::Normal };
                    let value = block(&ledger, id as u64, charge, priority);
                    value.0.touched.store(touch, SeqCst);
                    cache.insert(key(n), value);
                    latest.insert(n, id as u64);
                }
                Step::Get(n) => {
                    let found = cache.get(&key(n)).map(|value| value.0.id);
                    let held = latest.get(&n).filter(|id| ledger.held_ids().contains(id));
                    prop_assert_eq!(found.as_ref(), held);
                }
                Step::Remove(n) => {
                    cache.remove(&key(n));
                    prop_assert!(cache.get(&key(n)).is_none());
                    latest.remove(&n);
                }
                Step::Resize(capacity) => {
                    cache.set_capacity_bytes(capacity);
                    assert_bounded(&cache, 0);
                }
            }
            assert_bounded(&cache, 9_000);
            prop_assert_eq!(cache.used_bytes(), ledger.held_bytes());
            prop_assert_eq!(cache.stats().entries, ledger.held_ids().len());
        }
        drop(cache);
        prop_assert_eq!(ledger.held_ids().len(), 0);
    }
}

#[test]
fn threads_keep_the_bound_and_lose_nothing() {
    const THREADS: u64 = 4;
    const STEPS: u64 = 30_000;
    let ledger = Arc::new(Ledger::default());
    let cache = Cache::with_shards(4 * MIB, 2);
    let (gets, replacements) = (AtomicU64::new(0), AtomicU64::new(THREADS * STEPS));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (cache, ledger, gets, replacements) = (&cache, &ledger, &gets, &replacements);
            scope.spawn(move || {
                let mut rng = SplitMix64::new(thread);
                for step in 0..STEPS {
                    let n = rng.below(2_000);
                    match rng.below(10) {
                        0..4 => {
                            // The low bits of an id say which key it is for.
                            let id = ((thread * STEPS + step) << 12) | n;
                            let high = rng.one_in(3);
                            let priority = if high { Priority::High } else { Priority::Normal };
                            let charge = 1 + rng.below(16_000) as usize;
                            let value = make(ledger, id, charge, priority, rng.one_in(20));
                            value.0.touched.store(rng.one_in(3), SeqCst);
                            cache.insert(key(n), value);
                        }
                        4..9 => {
                            gets.fetch_add(1, SeqCst);
                            let found = cache.get(&key(n));
                            assert!(found.is_none_or(|value| value.0.id & 0xfff == n));
                        }
                        _ if rng.one_in(500) => {
                            let mib = 1 + rng.below(4) as usize;
                            cache.set_capacity_bytes(mib * MIB);
                        }
                        _ if rng.one_in(500) => {
                            let other = |Block(old): &Block| {
                                let fresh = replacements.fetch_add(1, SeqCst) << 12;
                                let id = fresh | (old.id & 0xfff);
                                Some(block(ledger, id, old.charge, old.priority))
                            };
                            cache.replace_each(other, |_| {});
                        }
                        _ => cache.remove(&key(n)),
                    }
                    let bound = 4 * MIB + cache.shard_count() * 16_000;
                    assert!(step % 16 != 0 || cache.used_bytes() <= bound);
                }
            });
        }
    });
    let stats = cache.stats();
    assert_bounded(&cache, 16_000);
    assert_eq!(stats.used_bytes, ledger.held_bytes());
    assert_eq!(stats.hits + stats.misses, gets.load(SeqCst));
    cache.set_capacity_bytes(0);
    assert_eq!((cache.used_bytes(), cache.stats().high_used_bytes), (0, 0));
    assert_eq!(ledger.held_ids().len(), 0);
}
