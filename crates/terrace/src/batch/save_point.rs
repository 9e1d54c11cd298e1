//! Save points of a batch: what it was at a moment, so that it can be cut back to that.
//!
//! A batch is append-only, so a save point is the lengths and counters of the batch. It holds good
//! only while the batch is not cut back to before it: [`History`] keeps the cuts that may make one
//! void. A void save point cuts nothing, and the batch is refused at its write.

use super::WriteBatch;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// A moment of one [`WriteBatch`], to which it can be rolled back: any number of times, as long as
/// the batch is neither cleared nor rolled back to an earlier one. Clones of the batch have save
/// points of their own.
#[derive(Debug, Clone, Copy)]
pub struct SavePoint {
    batch: u64,
    cuts: u64,
    len_bytes: usize,
    count: u32,
    ttl_count: usize,
    family_count: usize,
    store: Option<u64>,
    user_bytes: u64,
    separated_count: usize,
    separated_bytes: usize,
    longest_inline: usize,
    shortest_separated: usize,
    is_refused: bool,
}

/// Which batch it is, and how it was cut; nothing until the first save point.
#[derive(Debug, Default)]
pub(super) struct History(OnceLock<Box<Cuts>>);

#[derive(Debug)]
struct Cuts {
    /// A number that no other batch of this process has.
    batch: u64,
    count: u64,
    /// Those with no later one at or below them: what was left, in operations, and which cut it
    /// was. Both ascend.
    lowest: Vec<(u32, u64)>,
}

/// A clone grows on its own, so the save points of its origin mean nothing to it.
impl Clone for History {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl History {
    fn cuts(&self) -> &Cuts {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        self.0.get_or_init(|| {
            let batch = NEXT.fetch_add(1, Ordering::Relaxed);
            Box::new(Cuts { batch, count: 0, lowest: Vec::new() })
        })
    }

    /// Whether what stood in the batch at `point` still does.
    fn holds(&self, point: &SavePoint) -> bool {
        let Some(cuts) = self.0.get() else { return false };
        let later = cuts.lowest.partition_point(|(_, cut)| *cut <= point.cuts);
        cuts.batch == point.batch
            && cuts.lowest.get(later).is_none_or(|(left, _)| *left >= point.count)
    }

    /// Notes that the batch was cut to its first `left` operations.
    pub(super) fn note_cut(&mut self, left: u32) {
        if let Some(cuts) = self.0.get_mut() {
            cuts.count += 1;
            let above = cuts.lowest.partition_point(|(other, _)| *other < left);
            cuts.lowest.truncate(above);
            cuts.lowest.push((left, cuts.count));
        }
    }
}

impl WriteBatch {
    /// The batch as it is now, for [`WriteBatch::roll_back_to`]. The cost does not grow with the batch.
    pub fn save_point(&self) -> SavePoint {
        let cuts = self.history.cuts();
        SavePoint {
            batch: cuts.batch,
            cuts: cuts.count,
            len_bytes: self.bytes.len(),
            count: self.count,
            ttl_count: self.ttl_offsets.len(),
            family_count: self.touched.len(),
            store: self.store,
            user_bytes: self.user_bytes,
            separated_count: self.separated.len(),
            separated_bytes: self.separated_bytes,
            longest_inline: self.longest_inline,
            shortest_separated: self.shortest_separated,
            is_refused: self.refused.is_some(),
        }
    }

    /// Takes back every operation since `point`, and a refusal that one of them met. The memory is
    /// kept.
    ///
    /// A save point of another batch, or one that lay in what was taken back since, changes nothing
    /// but that the batch is refused by `Db::write`, since it would write what was not meant.
    ///
    /// ```
    /// let mut batch = terrace::WriteBatch::new();
    /// batch.put(b"account:1", b"90");
    /// let point = batch.save_point();
    /// batch.put(b"account:2", b"110");
    /// batch.roll_back_to(point);
    /// assert_eq!(batch.len(), 1);
    /// ```
    pub fn roll_back_to(&mut self, point: SavePoint) {
        if !self.history.holds(&point) {
            let what = "the batch was to be rolled back to a save point that it does not have";
            self.refused.get_or_insert_with(|| what.into());
            return;
        }
        self.history.note_cut(point.count);
        self.bytes.truncate(point.len_bytes);
        self.count = point.count;
        self.ttl_offsets.truncate(point.ttl_count);
        self.touched.cut(point.family_count);
        self.store = point.store;
        self.user_bytes = point.user_bytes;
        self.separated.truncate(point.separated_count);
        self.separated_bytes = point.separated_bytes;
        self.longest_inline = point.longest_inline;
        self.shortest_separated = point.shortest_separated;
        if !point.is_refused {
            self.refused = None;
        }
    }
}

#[cfg(test)]
mod tests;
