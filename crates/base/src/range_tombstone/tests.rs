//! Fragmented sets against a walk over all tombstones, and what many overlapping ones take.

use super::*;
use crate::{MAX_SEQNO, Rng, SplitMix64};
use proptest::prelude::*;

fn covering(tombstones: &[RangeTombstone], key: &[u8], read_seqno: SeqNo) -> Option<SeqNo> {
    let covers = |t: &&RangeTombstone| {
        t.start.as_slice() <= key && key < t.end.as_slice() && t.seqno <= read_seqno
    };
    tombstones.iter().filter(covers).map(|t| t.seqno).max()
}

fn tombstones(list: &[(u8, u8, u64)]) -> Vec<RangeTombstone> {
    let one = |(a, b, s): &(u8, u8, u64)| RangeTombstone {
        start: vec![*a],
        end: vec![*b],
        seqno: SeqNo::new(*s),
    };
    list.iter().map(one).collect()
}

proptest! {
    #[test]
    fn covering_agrees_with_a_walk_over_all(
        list in proptest::collection::vec((0u8..20, 0u8..20, 1u64..30), 0..12),
        key in 0u8..20,
        read_seqno in (0u64..32).prop_map(SeqNo::new),
        clip in (0u8..20, 0u8..20),
    ) {
        let tombstones = tombstones(&list);
        let set = RangeTombstones::new(tombstones.clone());
        let want = covering(&tombstones, &[key], read_seqno);
        prop_assert_eq!(set.covering_seqno(&[key], read_seqno), want);
        let clipped = set.clip(Some(&[clip.0]), Some(&[clip.1]));
        let inside = clip.0 <= key && key < clip.1;
        prop_assert_eq!(clipped.covering_seqno(&[key], read_seqno), want.filter(|_| inside));
        prop_assert_eq!(RangeTombstones::new(set.iter()), set.clone());
        let fragments: Vec<Fragment<'_>> = set.fragments().collect();
        prop_assert_eq!(fragments.len(), set.fragment_count());
        for pair in fragments.windows(2) {
            prop_assert!(pair[0].end <= pair[1].start);
        }
        let mut joined = RangeTombstones::default();
        fragments.iter().for_each(|fragment| joined.push_joined(*fragment));
        prop_assert_eq!(joined.covering_seqno(&[key], read_seqno), want);
        let pieces: Vec<Fragment<'_>> = joined.fragments().collect();
        prop_assert_eq!(pieces.len(), joined.fragment_count());
        for pair in pieces.windows(2) {
            prop_assert!(pair[0].end < pair[1].start || pair[0].seqnos != pair[1].seqnos);
        }
        let back: Vec<Fragment<'_>> = set.fragments().rev().collect();
        prop_assert!(fragments.iter().rev().eq(&back));
    }

    #[test]
    fn a_span_is_what_its_read_meets_and_nothing_else(
        list in proptest::collection::vec((0u8..20, 0u8..20, 1u64..30), 0..12),
        key in 0u8..20,
        read_seqno in (0u64..32).prop_map(SeqNo::new),
    ) {
        let tombstones = tombstones(&list);
        let set = RangeTombstones::new(tombstones.clone());
        let span = set.span_at(&[key], read_seqno);
        for other in 0u8..20 {
            let inside = span.start.is_none_or(|start| start <= [other].as_slice())
                && span.end.is_none_or(|end| [other].as_slice() < end);
            prop_assert!(inside || other != key);
            if inside {
                let want = covering(&tombstones, &[other], read_seqno).unwrap_or_default();
                prop_assert_eq!(span.seqno, want);
            }
        }
    }

    #[test]
    fn readers_at_the_ends_of_stripes_cannot_tell_a_collapsed_set_from_all(
        list in proptest::collection::vec((0u8..20, 0u8..20, 1u64..30), 0..20),
        ends in proptest::collection::btree_set(1u64..30, 0..4),
    ) {
        let tombstones = tombstones(&list);
        let ends: Vec<SeqNo> = ends.into_iter().map(SeqNo::new).collect();
        let stripe_of = |seqno| ends.partition_point(|end| *end < seqno) as u64;
        let set = RangeTombstones::collapse(tombstones.iter().map(|t| t.as_ref()), stripe_of);
        for key in 0u8..20 {
            for read_seqno in ends.iter().copied().chain([MAX_SEQNO]) {
                prop_assert_eq!(
                    set.covering_seqno(&[key], read_seqno),
                    covering(&tombstones, &[key], read_seqno)
                );
            }
        }
        for fragment in set.fragments() {
            for pair in fragment.seqnos.windows(2) {
                prop_assert_ne!(stripe_of(pair[0]), stripe_of(pair[1]));
            }
        }
        prop_assert!(set.fragment_count() < (2 * tombstones.len()).max(1));
    }
}

/// What is made of `list` in two stripes holds at most two fragments and four sequence numbers for
/// every tombstone, whatever their overlap, and each tombstone is looked at twice: when it begins and when it ends.
fn assert_linear(list: &[RangeTombstone]) {
    let middle = SeqNo::new(list.len() as u64 / 2);
    let looks = std::cell::Cell::new(0);
    let stripe_of = |seqno| {
        looks.set(looks.get() + 1);
        u64::from(seqno > middle)
    };
    let set = RangeTombstones::collapse(list.iter().map(|t| t.as_ref()), stripe_of);
    assert_eq!(looks.get(), 2 * list.len());
    assert!(set.fragment_count() < 2 * list.len());
    assert!(set.seqnos().len() <= 4 * list.len());
    assert!(set.memory_bytes() < 200 * list.len(), "{} bytes", set.memory_bytes());
}

#[test]
fn overlapping_tombstones_take_memory_in_proportion_to_their_number() {
    const COUNT: u64 = 20_000;
    let key = |n: u64| format!("key{n:08}").into_bytes();
    let one = |start, end, seqno| RangeTombstone {
        start: key(start),
        end: key(end),
        seqno: SeqNo::new(seqno),
    };
    let nested_inward: Vec<_> = (1..=COUNT).map(|n| one(n, 3 * COUNT - n, n)).collect();
    let nested_outward: Vec<_> = (1..=COUNT).map(|n| one(COUNT - n, COUNT + n, n)).collect();
    let trimming: Vec<_> = (1..=COUNT).map(|n| one(0, n, n)).collect();
    let mut rng = SplitMix64::new(7);
    let random: Vec<_> = (1..=COUNT)
        .map(|n| {
            let start = rng.below(COUNT);
            one(start, start + 1 + rng.below(COUNT), n)
        })
        .collect();
    for list in [&nested_inward, &nested_outward, &trimming, &random] {
        assert_linear(list);
    }
    // What touches and lists the same is joined: of a queue that was trimmed, or of ranges around
    // all older ones, one range is left.
    for (list, left) in [(&trimming, 1), (&nested_outward, 1), (&nested_inward, 2 * COUNT - 1)] {
        let set = RangeTombstones::collapse(list.iter().map(|t| t.as_ref()), |_| 0);
        let mut joined = RangeTombstones::default();
        set.fragments().for_each(|fragment| joined.push_joined(fragment));
        assert_eq!(joined.fragment_count() as u64, left);
        assert_eq!(joined.seqnos().iter().max(), Some(&SeqNo::new(COUNT)));
    }
}
