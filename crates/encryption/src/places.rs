//! Which block of a file in frames has which part of the content, as far as reads have found out.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use terrace_base::sync::Mutex;

/// Places that are kept for a file: enough for one in 64 KiB of a log segment.
const MAX_PLACES: usize = 1024;

/// Blocks that tell no place and are kept for a file: as many without a frame, and as many that the device did not give.
const MAX_BAD: usize = 64 << 10;

/// What is known of a file. Every place comes from a frame whose tag was right.
#[derive(Default)]
pub(crate) struct Places {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// The block that begins at a place of the content.
    blocks: BTreeMap<u64, u64>,
    /// Whole blocks that have no frame.
    bad: BTreeSet<u64>,
    /// Blocks that the device did not give when they were last asked for.
    lost: BTreeSet<u64>,
}

impl Places {
    /// `block` begins with the content's byte `place`.
    pub fn note(&self, place: u64, block: u64) {
        let blocks = &mut self.known.lock().blocks;
        if blocks.len() < MAX_PLACES {
            blocks.insert(place, block);
        }
    }

    /// `block` has no frame, and will have none.
    pub fn note_bad(&self, block: u64) {
        let bad = &mut self.known.lock().bad;
        if bad.len() < MAX_BAD {
            bad.insert(block);
        }
    }

    /// The device did not give `block`. It may give it later.
    pub fn note_lost(&self, block: u64) {
        let lost = &mut self.known.lock().lost;
        if lost.len() < MAX_BAD {
            lost.insert(block);
        }
    }

    /// Whether the device did not give `block`.
    pub fn is_lost(&self, block: u64) -> bool {
        self.known.lock().lost.contains(&block)
    }

    /// Whether it is of no use to ask `block` for its place.
    pub fn are_unknown_of(&self, block: u64) -> bool {
        let known = self.known.lock();
        known.bad.contains(&block) || known.lost.contains(&block)
    }

    /// The nearest known places around the content's byte `at`, each with its block: the last one that is not behind it,
    /// and the first one that is. The first block begins with the first byte.
    pub fn around(&self, at: u64) -> ((u64, u64), Option<(u64, u64)>) {
        let blocks = &self.known.lock().blocks;
        let entry = |(place, block): (&u64, &u64)| (*place, *block);
        let low = blocks.range(..=at).next_back().map_or((0, 0), entry);
        let above = (Bound::Excluded(at), Bound::Unbounded);
        (low, blocks.range(above).next().map(entry))
    }
}
