//! How tests of clusters divide the keys among shards.

use terrace_cluster::{KeyRange, Placement};

/// The part of shard `at` of `count`: slots or first letters, as many for each.
pub fn range(placement: Placement, at: usize, count: usize) -> KeyRange {
    match placement {
        Placement::Slots => {
            let bound = |at: usize| (16_384 * at / count) as u16;
            KeyRange::Slots(bound(at), bound(at + 1) - 1)
        }
        Placement::Range => {
            let bound = |at: usize| vec![b'a' + (26 * at / count) as u8];
            let start = if at == 0 { Vec::new() } else { bound(at) };
            KeyRange::Keys { start, end: (at + 1 < count).then(|| bound(at + 1)) }
        }
    }
}
