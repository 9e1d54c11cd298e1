//! The tree against a walk over all tombstones, at every moment of its growth; what it takes.

use super::*;
use proptest::prelude::*;
use terrace_base::{RangeTombstone, Rng, SplitMix64};

fn set_of(list: &[RangeTombstone]) -> RangeSet {
    let set = RangeSet::default();
    list.iter().for_each(|t| set.add(&t.start, &t.end, t.seqno, true));
    set
}

fn covering(list: &[RangeTombstone], key: &[u8], read_seqno: SeqNo) -> Option<SeqNo> {
    let newest_first = list.iter().rev();
    let mut covers = newest_first
        .filter(|t| t.seqno <= read_seqno && t.start.as_slice() <= key && key < t.end.as_slice());
    covers.next().map(|t| t.seqno)
}

/// Tombstones over keys of one byte at every second sequence number.
fn tombstones(ranges: &[(u8, u8)]) -> Vec<RangeTombstone> {
    let apart = ranges.iter().filter(|(a, b)| a != b).zip(1..);
    apart
        .map(|((a, b), n)| RangeTombstone {
            start: vec![*a.min(b)],
            end: vec![*a.max(b)],
            seqno: SeqNo::new(2 * n),
        })
        .collect()
}

proptest! {
    #[test]
    fn every_read_agrees_with_a_walk_over_all(
        ranges in proptest::collection::vec((0u8..40, 0u8..40), 0..150),
        reads in proptest::collection::vec((0u8..40, 0u64..302), 1..40),
    ) {
        let list = tombstones(&ranges);
        let set = set_of(&list);
        for (key, read_seqno) in reads {
            let want = covering(&list, &[key], SeqNo::new(read_seqno));
            prop_assert_eq!(set.covering_seqno(&[key], SeqNo::new(read_seqno)), want);
            let span = set.span_at(&[key], SeqNo::new(read_seqno));
            prop_assert_eq!(span.seqno, want.unwrap_or_default());
            // The span is all of what meets the same tombstone, and nothing else.
            let same = |other: &u8| covering(&list, &[*other], SeqNo::new(read_seqno)) == want;
            let start = (0..key).rev().take_while(same).last().unwrap_or(key);
            let end = (key..40).take_while(same).last().unwrap_or(key) + 1;
            let inside = |other: u8| {
                span.start.is_none_or(|start| start <= [other].as_slice())
                    && span.end.is_none_or(|end| [other].as_slice() < end)
            };
            prop_assert!((start..end).all(inside), "{span:?} within {start}..{end} around {key}");
            prop_assert!((0..start).chain(end..40).all(|other| !inside(other)), "{span:?}");
        }
        let all: Vec<_> = list.iter().map(|t| t.as_ref()).collect();
        prop_assert_eq!(set.iter().collect::<Vec<_>>(), all);
    }
}

/// Intervals that all nodes hold together.
fn intervals(set: &RangeSet, count: usize) -> usize {
    let unions = (0..count / CHUNK).filter_map(|chunk| set.nodes.get(chunk));
    unions.flat_map(|unions| unions.iter()).map(|union| union.len()).sum()
}

#[test]
fn memory_is_linear_if_ranges_overlap_and_n_log_n_at_worst() {
    const COUNT: usize = 20_000;
    let levels = COUNT.ilog2() as usize + 1;
    let key = |n: usize| format!("key{n:08}").into_bytes();
    let fill = |range: &mut dyn FnMut(usize) -> (usize, usize)| {
        let set = RangeSet::default();
        for n in 0..COUNT {
            let (start, end) = range(n);
            set.add(&key(start), &key(end), SeqNo::new(n as u64 + 1), true);
        }
        set
    };
    let mut rng = SplitMix64::new(11);
    let overlapping = [
        fill(&mut |n| (n, 3 * COUNT - n)),
        fill(&mut |n| (COUNT - n, COUNT + n + 1)),
        fill(&mut |n| (0, n + 1)),
        fill(&mut |_| {
            let start = rng.below(COUNT as u64) as usize;
            (start, start + COUNT)
        }),
    ];
    for set in &overlapping {
        let held = intervals(set, COUNT);
        assert!(held <= COUNT / 2, "{held} intervals");
        assert!(set.size_bytes() <= 250 * COUNT, "{} bytes", set.size_bytes());
    }
    // Ranges apart, in an order that no two neighbours touch.
    let apart = fill(&mut |n| (2 * (n * 7919 % COUNT), 2 * (n * 7919 % COUNT) + 1));
    let held = intervals(&apart, COUNT);
    assert!(held > COUNT * (levels - 5) && held <= COUNT * levels, "{held} intervals");
    assert!(apart.size_bytes() <= COUNT * (250 + 8 * levels), "{} bytes", apart.size_bytes());
    assert!(apart.size_bytes() >= COUNT * (22 + 8 * (levels - 5)), "{}", apart.size_bytes());
}

/// What a lookup costs: the tombstones and intervals that it compares its key with.
#[derive(Default)]
struct Comparisons(usize);

impl<'a> Around<'a> for Comparisons {
    fn starts_at(&mut self, _: &'a [u8]) {}
    fn ends_at(&mut self, _: &'a [u8]) {}
    fn compares(&mut self) {
        self.0 += 1;
    }
}

/// The most that one of many lookups costs, at all sequence numbers, and how many of them found a tombstone.
fn dearest(set: &RangeSet, count: usize, keys: usize) -> (usize, usize) {
    let mut rng = SplitMix64::new(count as u64);
    let (mut most, mut found) = (0, 0);
    for n in 0..20_000 {
        let key = format!("key{:08}", rng.below(keys as u64));
        let read_seqno = match n % 2 {
            0 => MAX_SEQNO,
            _ => SeqNo::new(rng.below(count as u64 + 1)),
        };
        let mut comparisons = Comparisons::default();
        found += usize::from(set.find(key.as_bytes(), read_seqno, &mut comparisons).is_some());
        most = most.max(comparisons.0);
    }
    (most, found)
}

/// A `get` between any number of range deletes: a walk over all would be `COUNT` comparisons.
#[test]
fn a_lookup_compares_its_key_with_a_logarithmic_number_of_tombstones() {
    let key = |n: usize| format!("key{n:08}").into_bytes();
    for count in [1_000, 10_000, 100_000_usize] {
        let levels = (count / CHUNK).ilog2() as usize + 1;
        let fill = |range: &dyn Fn(usize) -> (usize, usize)| {
            let set = RangeSet::default();
            for n in 0..count {
                let (start, end) = range(n);
                set.add(&key(start), &key(end), SeqNo::new(n as u64 + 1), true);
            }
            set
        };
        // Nested inward and outward, a queue that is trimmed from its start, and windows that move.
        let overlapping = [
            fill(&|n| (n, 3 * count - n)),
            fill(&|n| (count - n, count + n + 1)),
            fill(&|n| (0, n + 1)),
            fill(&|n| (n, n + count)),
        ];
        for set in &overlapping {
            // One interval in each node, up and down the tree, and two chunks at most.
            let (most, found) = dearest(set, count, 4 * count);
            assert!(most <= 2 * (levels + CHUNK), "{most} comparisons among {count}");
            assert!((1_000..20_000).contains(&found), "{found} lookups found something");
        }
        // Apart, in an order in which no two neighbours touch: a binary search in each node.
        let apart = fill(&|n| (2 * (n * 7919 % count), 2 * (n * 7919 % count) + 1));
        let (most, found) = dearest(&apart, count, 2 * count);
        let search = count.ilog2() as usize + 2;
        assert!(most <= 2 * (levels * search + CHUNK), "{most} comparisons among {count}");
        assert!(most > levels, "{most} comparisons among {count}: are they counted?");
        assert!((1_000..20_000).contains(&found), "{found} lookups found something");
    }
}

#[test]
fn readers_beside_the_writer_see_every_tombstone_that_they_know_of() {
    const COUNT: u64 = 4_000;
    let key = |n: u64| n.to_be_bytes();
    let mut rng = SplitMix64::new(3);
    let list: Vec<RangeTombstone> = (1..=COUNT)
        .map(|seqno| {
            let start = rng.below(500);
            let end = start + 1 + rng.below(20);
            RangeTombstone {
                start: key(start).to_vec(),
                end: key(end).to_vec(),
                seqno: SeqNo::new(seqno),
            }
        })
        .collect();
    let set = RangeSet::default();
    let visible = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for seed in 0..2 {
            let (set, visible, list) = (&set, &visible, &list);
            scope.spawn(move || {
                let mut rng = SplitMix64::new(seed);
                loop {
                    let seen = visible.load(Ordering::Acquire);
                    let snapshot = rng.below(seen as u64 + 1);
                    for read_seqno in [snapshot, seen as u64] {
                        let key = key(rng.below(520));
                        let want = covering(&list[..seen], &key, SeqNo::new(read_seqno));
                        assert_eq!(set.covering_seqno(&key, SeqNo::new(read_seqno)), want);
                    }
                    if seen == list.len() {
                        break;
                    }
                }
            });
        }
        for (t, seen) in list.iter().zip(1..) {
            set.add(&t.start, &t.end, t.seqno, true);
            visible.store(seen, Ordering::Release);
        }
    });
}
