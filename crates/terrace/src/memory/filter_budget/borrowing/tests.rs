//! The rule beside a model of both pools: what each kind of traffic makes of the loan.

use super::*;

/// A store of which all costs are known: what filters and the cache save with the bytes that they have.
struct World {
    borrowing: Borrowing,
    facts: CacheFacts,
    filter_bytes: usize,
    cache_bytes: usize,
    borrowed: usize,
}

/// One kind of traffic.
#[derive(Clone, Copy)]
struct Traffic {
    /// Lookups of absent keys, of lookups of all.
    absent: f64,
    /// Blocks that the others read, each alike, in bytes; all others read a block that is never read again.
    hot_bytes: f64,
    /// Of lookups that are not absent, those of hot blocks.
    hot: f64,
    /// Whether these are lookups at all, or scans.
    lookups: bool,
    /// Whether the hot blocks are data, whose hits are counted, or metadata.
    data: bool,
}

const ABSENT: Traffic =
    Traffic { absent: 1.0, hot_bytes: 0.0, hot: 0.0, lookups: true, data: true };
const HITS: Traffic = Traffic { absent: 0.0, hot_bytes: 6e6, hot: 1.0, lookups: true, data: true };
const KEYS: f64 = 13e6;

impl World {
    fn new() -> Self {
        Self {
            borrowing: Borrowing::default(),
            facts: CacheFacts { evictions: 1, ghost_bytes: 512 << 10, ..CacheFacts::default() },
            filter_bytes: 2_200_000,
            cache_bytes: 6_000_000,
            borrowed: 0,
        }
    }

    fn fpr(bytes: f64) -> f64 {
        0.5f64.powf(bytes * 8.0 / KEYS)
    }

    fn capacity(&self) -> usize {
        self.cache_bytes - self.borrowed
    }

    /// Lets `count` lookups pass, looks, and does what is wished; gives what was.
    fn pass(&mut self, traffic: Traffic, count: u64) -> Wish {
        let have = (self.filter_bytes + self.borrowed) as f64;
        let (n, fpr) = (count as f64, Self::fpr(have));
        let wasted = n * traffic.absent * fpr;
        let hot = n * (1.0 - traffic.absent) * traffic.hot;
        let cold = n * (1.0 - traffic.absent) * (1.0 - traffic.hot);
        let held = (self.capacity() as f64 / traffic.hot_bytes.max(1.0)).min(1.0);
        let hits = hot * held;
        let misses = wasted + cold + hot - hits;
        // What a larger cache would hold, of the hot blocks.
        let ghost = self.facts.ghost_bytes as f64;
        let larger = ((self.capacity() as f64 + ghost) / traffic.hot_bytes.max(1.0)).min(1.0);
        let f = &mut self.facts;
        f.lookups += if traffic.lookups { count } else { 0 };
        f.wasted += wasted as u64;
        f.block_hits += if traffic.data { hits as u64 } else { 0 };
        f.block_misses += misses as u64;
        f.ghost_hits += (hot * (larger - held)) as u64 / 8 * 8;
        f.capacity_bytes = self.cache_bytes - self.borrowed;
        f.most_borrowed_bytes = self.cache_bytes / 3 * 2;
        let waste = traffic.absent * fpr;
        let filters = FilterFacts {
            lambda: waste * 0.5f64.ln().abs() * 8.0 / KEYS,
            expected_waste: waste,
            have_bytes: self.filter_bytes + self.borrowed,
            borrowed_bytes: self.borrowed,
            used_bytes: self.filter_bytes + self.borrowed,
            wanted_bytes: usize::MAX,
        };
        let wish = self.borrowing.decide(&self.facts.clone(), &filters);
        match wish {
            Wish::Stay => {}
            Wish::Borrow(bytes) => self.borrowed += bytes,
            Wish::Return(bytes) => self.borrowed -= bytes,
        }
        assert!(self.borrowed <= self.cache_bytes / 3 * 2);
        wish
    }

    /// Lookups until `done`; it must not take more than `most`.
    fn until(&mut self, traffic: Traffic, most: u64, done: impl Fn(&Self) -> bool) -> u64 {
        let mut count = 0;
        while !done(self) {
            self.pass(traffic, WINDOW / 2);
            count += WINDOW / 2;
            assert!(count <= most, "{} bytes are borrowed", self.borrowed);
        }
        count
    }

    /// Changes of the loan in `lookups` lookups: up, and down.
    fn changes(&mut self, traffic: Traffic, lookups: u64) -> (u32, u32) {
        let (mut up, mut down) = (0, 0);
        for _ in 0..lookups / WINDOW {
            match self.pass(traffic, WINDOW) {
                Wish::Stay => {}
                Wish::Borrow(_) => up += 1,
                Wish::Return(_) => down += 1,
            }
        }
        (up, down)
    }
}

#[test]
fn filters_borrow_what_they_save_more_reads_with() {
    let mut world = World::new();
    let most = world.cache_bytes / 3 * 2 - MIN_STEP_BYTES;
    world.until(ABSENT, 64 * WINDOW, |world| world.borrowed >= most);
    assert_eq!(world.changes(ABSENT, 1_000_000), (0, 0), "and then it stays");
    assert!(World::fpr((world.filter_bytes + world.borrowed) as f64) < 0.1);
}

#[test]
fn another_workload_gets_its_memory_back_within_a_bounded_number_of_lookups() {
    let scans = Traffic { lookups: false, ..HITS };
    let random = Traffic { hot: 0.0, ..HITS };
    for other in [HITS, scans, random, Traffic { absent: 0.02, hot_bytes: 4e6, ..HITS }] {
        let mut world = World::new();
        world.until(ABSENT, 64 * WINDOW, |world| world.borrowed > 3_900_000);
        let most = LONGEST_WINDOW + 64 * WINDOW;
        let all = world.until(other, most, |world| world.borrowed == 0);
        println!("{all} lookups");
        let (up, _) = world.changes(other, 500_000);
        assert!(up < 8, "{up} times borrowed again");
    }
}

#[test]
fn nothing_is_taken_from_a_cache_that_earns_more() {
    // Half of all lookups are of blocks that just fit, which no ghost tells of.
    let mut world = World::new();
    let mixed = Traffic { absent: 0.3, ..HITS };
    world.changes(mixed, 2_000_000);
    assert_eq!(world.borrowed, 0);
    // And few that are hot leave the rest of the cache to filters.
    let few = Traffic { hot_bytes: 1e6, hot: 0.1, absent: 0.5, ..mixed };
    world.until(few, 200 * WINDOW, |world| world.borrowed > 2_000_000);
}

/// Where the cache has a cliff the loan stops, whether its hits are counted or only ghosts tell of it.
#[test]
fn a_cliff_does_not_make_the_loan_swing() {
    for data in [true, false] {
        let mut world = World::new();
        let cliff = Traffic { absent: 0.9, hot_bytes: 3e6, data, ..HITS };
        world.changes(cliff, 1_000_000);
        let before = world.borrowed;
        assert!((2_000_000..3_900_000).contains(&before), "{before}");
        let (up, down) = world.changes(cliff, 1_000_000);
        println!("{before} borrowed, then {up} up, {down} down");
        assert!(up + down <= 16, "{up} up, {down} down");
    }
}

/// Workloads that take turns faster than memory can follow mostly leave it where it is.
#[test]
fn traffic_that_alternates_ends_in_peace() {
    let mut world = World::new();
    let mut borrowed = Vec::new();
    for _ in 0..40 {
        borrowed.push(world.changes(ABSENT, 8 * WINDOW).0 > 0);
        world.changes(HITS, 8 * WINDOW);
    }
    assert!(borrowed[..3].iter().all(|is| *is), "{borrowed:?}");
    assert!(borrowed[20..].iter().filter(|is| **is).count() <= 6, "{borrowed:?}");
}

#[test]
fn what_the_cache_needs_otherwise_is_given_back_at_once() {
    let mut world = World::new();
    world.until(ABSENT, 64 * WINDOW, |world| world.borrowed > 3_000_000);
    let facts = CacheFacts { most_borrowed_bytes: 1_000_000, ..world.facts };
    let filters = FilterFacts {
        lambda: 1.0,
        expected_waste: 0.1,
        have_bytes: world.filter_bytes + world.borrowed,
        borrowed_bytes: world.borrowed,
        used_bytes: 0,
        wanted_bytes: usize::MAX,
    };
    let wish = world.borrowing.decide(&facts, &filters);
    assert_eq!(wish, Wish::Return(world.borrowed - 1_000_000));
}

#[test]
fn filters_that_have_room_or_want_no_more_do_not_borrow() {
    for (used, wanted) in [(1_000_000, usize::MAX), (2_200_000, 2_000_000)] {
        let mut borrowing = Borrowing::default();
        let filters = FilterFacts {
            lambda: 1e-6,
            expected_waste: 0.5,
            have_bytes: 2_200_000,
            borrowed_bytes: 0,
            used_bytes: used,
            wanted_bytes: wanted,
        };
        for n in 1..100 {
            let facts = CacheFacts {
                lookups: n * WINDOW,
                wasted: n * WINDOW / 2,
                block_misses: n * WINDOW / 2,
                most_borrowed_bytes: 4_000_000,
                capacity_bytes: 6_000_000,
                ..CacheFacts::default()
            };
            assert_eq!(borrowing.decide(&facts, &filters), Wish::Stay);
        }
    }
}
