//! Keys in their order, in pages of which each takes a bounded time, however many keys there are that are not shown: deleted and
//! expired ones that were not merged away yet.

use crate::command_batch::CommandBatch;
use crate::error::Result;
use crate::keys::Type;
use crate::walk_bounds::{KeyRange, WalkBounds};
use std::collections::BTreeMap;

/// A page of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPage {
    /// The least keys, in order, and what is under them.
    pub keys: Vec<(Vec<u8>, Type)>,
    /// There may be more behind this key. There may be one in a page without keys.
    pub next: Option<Vec<u8>>,
}

impl CommandBatch {
    /// At most `limit` of the keys of a range, the least first, whatever the placement. Fewer if it had to step over some
    /// `most_steps` keys that are not shown, of strings and of collections; with `slots` it may step over 64 in each slot in any case.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn page_of_keys(
        &mut self,
        db: u8,
        range: KeyRange<'_>,
        limit: usize,
        most_steps: u64,
    ) -> Result<KeyPage> {
        let layout = self.space().layout();
        let bounds = WalkBounds::new(layout, db, &range);
        let is_one_range = bounds.slot_bytes_of(&bounds.lower).is_none();
        let mut least: BTreeMap<Vec<u8>, Type> = BTreeMap::new();
        let known_until = self.walk_within(&bounds, false, Some(most_steps), |_, seen| {
            least.insert(seen.key.to_vec(), seen.kind);
            if is_one_range {
                return least.len() <= limit;
            }
            // One more than is shown says that there are more.
            if least.len() > limit + 1 {
                least.pop_last();
            }
            if least.len() > limit
                && let Some((last, _)) = least.last_key_value()
            {
                bounds.end_at(last);
            }
            true
        })?;
        let prefix_bytes = layout.prefix_bytes();
        let of_one = known_until.and_then(|key| key.get(prefix_bytes..).map(<[u8]>::to_vec));
        let cut = bounds.cut().or(of_one);
        if let Some(cut) = &cut {
            // Of what is behind it not all is known.
            drop(least.split_off(&[&cut[..], &[0]].concat()));
        }
        let has_more = least.len() > limit;
        let keys: Vec<_> = least.into_iter().take(limit).collect();
        let next = match has_more {
            true => keys.last().map(|(key, _)| key.clone()),
            false => cut,
        };
        Ok(KeyPage { keys, next })
    }
}
