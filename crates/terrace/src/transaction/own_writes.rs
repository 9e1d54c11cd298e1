//! What a transaction has written, by key and by range, so that it sees its own writes; can be cut back.
//!
//! Values are not copied: they lie in the batch, which encodes them as they are until it is sealed.

use super::own_ranges::{Overlaid, OwnRanges};
use crate::batch::WriteBatch;
use std::collections::{BTreeMap, HashMap};
use std::ops::{Bound, Range};
use std::sync::Arc;

/// The last write to a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Own {
    Deleted,
    /// Where the value lies in the encoded batch.
    Value(Range<usize>),
    /// An operand.
    Merged {
        /// The write before it that it is merged into; `None` for what the store has.
        below: Option<Arc<Own>>,
        /// Where it lies in the encoded batch.
        at: Range<usize>,
        /// Whether what the store has is below all operands.
        on_store: bool,
    },
}

impl Own {
    /// Whether what the store has counts.
    pub fn needs_the_store(&self) -> bool {
        matches!(self, Self::Merged { on_store: true, .. })
    }
}

/// A long chain of operands is taken apart one by one: each drop inside another would take stack.
impl Drop for Own {
    fn drop(&mut self) {
        let Self::Merged { below, .. } = self else { return };
        let mut next = below.take();
        while let Some(own) = next.take() {
            if let Ok(mut own) = Arc::try_unwrap(own)
                && let Self::Merged { below, .. } = &mut own
            {
                next = below.take();
            }
        }
    }
}

/// What a range delete makes of the keys that it covers.
static DELETED: Own = Own::Deleted;

/// A write to one key, and which operation of the batch it is.
type Numbered = (usize, Own);

/// What was written in one family.
#[derive(Debug, Default)]
struct FamilyWrites {
    /// The last write to every key that was named.
    keys: BTreeMap<Arc<[u8]>, Numbered>,
    /// The range deletes, each with the number of the operation of the batch that it is.
    ranges: OwnRanges,
}

/// What is done to take an operation back.
#[derive(Debug)]
enum Before {
    /// The write to the key before it is put back.
    Key(u32, Arc<[u8]>, Option<Numbered>),
    /// The last range of the family is taken back.
    Range(u32, Overlaid),
}

/// The last write to every key, and the way back.
#[derive(Debug, Default)]
pub(super) struct OwnWrites {
    families: HashMap<u32, FamilyWrites>,
    /// One for every operation of the batch.
    before: Vec<Before>,
}

impl OwnWrites {
    /// The last write to `key`.
    pub fn get(&self, family: u32, key: &[u8]) -> Option<&Own> {
        let writes = self.families.get(&family)?;
        let named = writes.keys.get(key);
        let over = writes.ranges.last_over(key);
        match over.is_some_and(|at| named.is_none_or(|(named, _)| at > *named)) {
            true => Some(&DELETED),
            false => named.map(|(_, own)| own),
        }
    }

    /// The keys in `[start, end)` that were named by a write, ascending; `None` is no end. Not with `start >= end`.
    pub fn keys_between<'a>(
        &'a self,
        family: u32,
        start: &'a [u8],
        end: Option<&'a [u8]>,
    ) -> impl Iterator<Item = &'a [u8]> {
        let end = end.map_or(Bound::Unbounded, Bound::Excluded);
        let writes = self.families.get(&family).into_iter();
        let named = move |writes: &'a FamilyWrites| {
            writes.keys.range::<[u8], _>((Bound::Included(start), end))
        };
        writes.flat_map(named).map(|(key, _)| &**key)
    }

    /// Notes the put of a value of `len` bytes that `batch` has just got, unless it refused it.
    pub fn note_put(&mut self, batch: &WriteBatch, family: u32, key: &[u8], len: usize) {
        self.note(batch, family, key, Own::Value(batch.last_value(len)));
    }

    /// Notes the operand of `len` bytes that `batch` has just got, unless it refused it.
    pub fn note_merge(&mut self, batch: &WriteBatch, family: u32, key: &[u8], len: usize) {
        let below = self.get(family, key);
        let on_store = below.is_none_or(Own::needs_the_store);
        let below = below.cloned().map(Arc::new);
        let end = batch.encoded().len();
        let at = end.saturating_sub(len)..end;
        self.note(batch, family, key, Own::Merged { below, at, on_store });
    }

    /// Notes the delete that `batch` has just got, unless it refused it.
    pub fn note_delete(&mut self, batch: &WriteBatch, family: u32, key: &[u8]) {
        self.note(batch, family, key, Own::Deleted);
    }

    /// Notes the range delete that `batch` has just got, unless it refused it.
    pub fn note_delete_range(&mut self, batch: &WriteBatch, family: u32, start: &[u8], end: &[u8]) {
        let at = self.before.len();
        if batch.len() == at {
            return;
        }
        let ranges = &mut self.families.entry(family).or_default().ranges;
        let overlaid = ranges.overlay(start, end, at);
        self.before.push(Before::Range(family, overlaid));
    }

    fn note(&mut self, batch: &WriteBatch, family: u32, key: &[u8], own: Own) {
        let at = self.before.len();
        if batch.len() == at {
            return;
        }
        let key: Arc<[u8]> = key.into();
        let writes = self.families.entry(family).or_default();
        let before = writes.keys.insert(key.clone(), (at, own));
        self.before.push(Before::Key(family, key, before));
    }

    /// Goes back to the first `count` operations.
    pub fn cut(&mut self, count: usize) {
        for before in self.before.drain(count.min(self.before.len())..).rev() {
            match before {
                Before::Key(family, key, before) => {
                    let Some(writes) = self.families.get_mut(&family) else { continue };
                    match before {
                        Some(own) => writes.keys.insert(key, own),
                        None => writes.keys.remove(&key),
                    };
                }
                Before::Range(family, overlaid) => {
                    if let Some(writes) = self.families.get_mut(&family) {
                        writes.ranges.take_back(overlaid);
                    }
                }
            }
        }
    }
}
