//! The remembered cover against every tombstone asked for every key.

use super::*;
use proptest::prelude::*;
use std::sync::Arc;
use terrace_base::{RangeTombstone, RangeTombstones};

impl CoverSource for Arc<RangeTombstones> {
    fn span(&mut self, key: &[u8], read_seqno: SeqNo) -> Result<CoverSpan<'_>> {
        Ok(self.span_at(key, read_seqno))
    }
}

proptest! {
    #[test]
    fn agrees_with_the_sets_asked_one_by_one(
        sets in proptest::collection::vec(
            proptest::collection::vec((0u8..20, 0u8..20, 1u64..30), 0..6), 0..4),
        keys in proptest::collection::vec(0u8..20, 0..60),
        read_seqno in 0u64..32,
    ) {
        let sets: Vec<Arc<RangeTombstones>> = sets
            .iter()
            .map(|list| {
                let one = |(a, b, seqno): &(u8, u8, u64)| RangeTombstone {
                    start: vec![*a],
                    end: vec![*b],
                    seqno: SeqNo::new(*seqno),
                };
                Arc::new(RangeTombstones::new(list.iter().map(one)))
            })
            .collect();
        let sources = sets.iter().map(|set| Box::new(set.clone()) as Box<dyn CoverSource>);
        let mut cover = Cover::new(sources.collect(), SeqNo::new(read_seqno));
        let want = |key: u8| {
            sets.iter().filter_map(|s| s.covering_seqno(&[key], SeqNo::new(read_seqno))).max().unwrap_or_default()
        };
        for key in keys {
            prop_assert_eq!(cover.seqno_at(&[key]).expect("memory"), want(key));
            // The tombstone covers all between the bounds it claims.
            if want(key) > SeqNo::ZERO {
                let (start, end) = (cover.covered_from(), cover.covered_until().expect("a tombstone has an end"));
                prop_assert!(start <= [key].as_slice() && end > [key].as_slice());
                for other in 0..20u8 {
                    if start <= [other].as_slice() && [other].as_slice() < end {
                        prop_assert!(want(other) >= want(key));
                    }
                }
            }
        }
    }
}

#[test]
fn sources_are_asked_once_per_span() {
    struct Counting(Arc<RangeTombstones>, Arc<std::sync::atomic::AtomicU64>);
    impl CoverSource for Counting {
        fn span(&mut self, key: &[u8], read_seqno: SeqNo) -> Result<CoverSpan<'_>> {
            self.1.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            Ok(self.0.span_at(key, read_seqno))
        }
    }
    let tombstone =
        RangeTombstone { start: b"b".to_vec(), end: b"d".to_vec(), seqno: SeqNo::new(5) };
    let asked = Arc::default();
    let source = Counting(Arc::new(RangeTombstones::new([tombstone])), Arc::clone(&asked));
    let mut cover = Cover::new(vec![Box::new(source)], SeqNo::new(9));
    let answers: Vec<u64> = (b'a'..b'h')
        .flat_map(|key| [vec![key], vec![key, 0], vec![key, 9]])
        .map(|key| cover.seqno_at(&key).expect("memory").get())
        .collect();
    assert_eq!(answers, [[0; 3], [5; 3], [5; 3], [0; 3], [0; 3], [0; 3], [0; 3]].concat());
    assert_eq!(asked.load(std::sync::atomic::Ordering::Relaxed), 3);
}
