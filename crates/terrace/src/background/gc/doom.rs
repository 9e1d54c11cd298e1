//! Which segments garbage collection takes next: a pure choice from the books.
//!
//! Collecting a segment costs its live bytes, which are written once more, and frees the rest. So
//! the segments with the largest share of garbage go first, and only while the share of the whole
//! log is above the ratio. In a store that is overwritten uniformly with a log of utilisation `u`
//! the worst segments then have a live share `L` with `u = (1 - L) / -ln L`, and every written byte
//! is written `1 / (1 - L)` times (Rosenblum and Ousterhout, "The Design and Implementation of a
//! Log-Structured File System", TOCS 1992, section 3.4, with the utilisation of what is cleaned
//! solved for the oldest segment of a log in the order of its writes).
//!
//! What is collected is collected by compactions, which rewrite the part of the key tree that they
//! read. Therefore enough segments are doomed at once that this pays ([`MIN_GAIN`]), and few
//! enough that their live bytes, which exist twice until the last of them has moved, stay a small
//! part of the store ([`MAX_MOVING`]).
//!
//! Garbage that no compaction has met yet (both versions of the key must meet) counts as garbage
//! of the log, not of a segment. `gc/simulation` shows what comes of all this. Called by `gc`.

use crate::values::value_log::SegmentBook;
use std::collections::HashSet;

/// Bytes freed at once, in bytes of the key tree.
pub(crate) const MIN_GAIN: f64 = 3.0;
/// Live bytes of doomed segments, as a share of all live bytes; one segment is always allowed.
pub(crate) const MAX_MOVING: f64 = 0.09;
/// A segment with a smaller share of garbage is not worth its move.
const MIN_SHARE: f64 = 0.1;

/// What is known of the value log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Books<'a> {
    /// Every sealed segment.
    pub segments: &'a [SegmentBook],
    /// Those that are doomed already.
    pub doomed: &'a HashSet<u32>,
    /// Bytes of segments that are not sealed yet.
    pub open_bytes: u64,
    /// Garbage that is not in the books yet, estimated.
    pub unknown_bytes: u64,
    /// Bytes of all SSTs.
    pub tree_bytes: u64,
    /// Share of garbage in the log up to which nothing is done.
    pub ratio: f64,
}

impl Books<'_> {
    /// Share of the log that is garbage, once the doomed segments are gone if `after`.
    pub fn garbage_share(&self, after: bool) -> f64 {
        let mut bytes = self.open_bytes as f64;
        let mut garbage = self.unknown_bytes as f64;
        for book in self.segments {
            let free = book.garbage_bytes() as f64;
            // What lives in a doomed segment moves and stays as it is.
            let gone = after && self.doomed.contains(&book.number);
            bytes += if gone { book.live_bytes as f64 } else { book.size_bytes as f64 };
            garbage += if gone { 0.0 } else { free };
        }
        if bytes > 0.0 { (garbage / bytes).min(1.0) } else { 0.0 }
    }
}

/// The doomed segments from now on: those there are, and what has to join them. A segment stays
/// doomed until it is gone.
pub(crate) fn choose(books: &Books<'_>) -> HashSet<u32> {
    let there: HashSet<u32> = books.segments.iter().map(|book| book.number).collect();
    let mut doomed: HashSet<u32> = books.doomed.intersection(&there).copied().collect();
    let (mut bytes, mut garbage) = (books.open_bytes as f64, books.unknown_bytes as f64);
    let (mut live, mut moving, mut gain) = (0.0, 0.0, 0.0);
    let mut rest: Vec<&SegmentBook> = Vec::new();
    for book in books.segments {
        live += book.live_bytes as f64;
        if doomed.contains(&book.number) {
            bytes += book.live_bytes as f64;
            moving += book.live_bytes as f64;
            gain += book.garbage_bytes() as f64;
        } else {
            bytes += book.size_bytes as f64;
            garbage += book.garbage_bytes() as f64;
            rest.push(book);
        }
    }
    rest.sort_by(|a, b| {
        b.garbage_share().total_cmp(&a.garbage_share()).then(a.number.cmp(&b.number))
    });
    if garbage <= books.ratio * bytes {
        return doomed;
    }
    for book in rest {
        let enough = garbage <= books.ratio * bytes && gain >= MIN_GAIN * books.tree_bytes as f64;
        let full = moving > 0.0 && moving + book.live_bytes as f64 > MAX_MOVING * live;
        if enough || full || book.garbage_share() < MIN_SHARE {
            break;
        }
        doomed.insert(book.number);
        moving += book.live_bytes as f64;
        gain += book.garbage_bytes() as f64;
        garbage -= book.garbage_bytes() as f64;
        bytes -= book.garbage_bytes() as f64;
    }
    doomed
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_base::rng::{Rng, SplitMix64};

    #[test]
    fn the_worst_segments_go_first_and_none_while_the_log_is_clean_enough() {
        let (mut collected, mut clean) = (0, 0);
        for seed in 0..2_000 {
            let mut rng = SplitMix64::new(seed);
            let most_garbage = 1 + rng.below(1000);
            let segments: Vec<SegmentBook> = (1..=1 + rng.below(60) as u32)
                .map(|number| {
                    let live_bytes = 1000 - rng.below(most_garbage);
                    SegmentBook { number, size_bytes: 1000, live_bytes }
                })
                .collect();
            let books = Books {
                segments: &segments,
                doomed: &HashSet::new(),
                open_bytes: rng.below(3000),
                unknown_bytes: 0,
                tree_bytes: rng.below(2000),
                ratio: 0.3,
            };
            let chosen = choose(&books);
            if books.garbage_share(false) <= books.ratio {
                assert!(chosen.is_empty(), "seed {seed}");
                clean += 1;
                continue;
            }
            let chosen = &chosen;
            let share = |taken: bool| {
                let all = segments.iter().filter(move |b| chosen.contains(&b.number) == taken);
                all.map(SegmentBook::garbage_share)
            };
            let least = share(true).fold(f64::INFINITY, f64::min);
            assert!(least >= share(false).fold(0.0, f64::max), "seed {seed}");
            collected += usize::from(least.is_finite());
        }
        assert!(collected > 300 && clean > 300, "{collected}, {clean}");
    }
}
