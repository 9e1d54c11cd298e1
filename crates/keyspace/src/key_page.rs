//! Keys in their order, in pages of which each takes a bounded time, however many keys there are that are not shown: deleted and
//! expired ones that were not merged away yet.

use crate::command_batch::{CommandBatch, Mode};
use crate::error::{Error, Result};
use crate::key_scan::KeyScan;
use crate::keys::Type;
use crate::members::{MAX_PAGE_BYTES, Page};
use crate::step_allowance::STEPS_AT_A_TIME;
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
    /// The keys among the next `count` that `matches` holds for, and where to go on. Fewer are looked at where many between
    /// them are not shown, and where they are long: a page without keys may have another one behind it.
    ///
    /// # Errors
    /// [`Error::UnknownCursor`]; [`Error::Elsewhere`] if it would have to wait; those of the engine.
    pub fn scan_keys(
        &mut self,
        db: u8,
        scan: &KeyScan<'_>,
        matches: impl Fn(&[u8]) -> bool,
    ) -> Result<Page<Vec<u8>>> {
        self.scan_keys_within(db, scan, STEPS_AT_A_TIME, matches)
    }

    /// As [`Self::scan_keys`], stepping over about `most_steps` keys that are not shown, of strings and of collections.
    ///
    /// # Errors
    /// As [`Self::scan_keys`].
    pub fn scan_keys_within(
        &mut self,
        db: u8,
        scan: &KeyScan<'_>,
        most_steps: u64,
        matches: impl Fn(&[u8]) -> bool,
    ) -> Result<Page<Vec<u8>>> {
        self.allow_walk(scan.count)?;
        let range = KeyRange { prefix: scan.prefix, ..KeyRange::default() };
        let mut bounds = WalkBounds::new(self.space.layout, db, &range);
        if scan.cursor != 0 {
            let last = self.space.cursors.find(db, scan.cursor).ok_or(Error::UnknownCursor)?;
            bounds.go_on_after(&last);
        }
        let mut items = Vec::new();
        let (mut left, mut bytes) = (scan.count.max(1), 0);
        let (mut last, mut is_cut) = (Vec::new(), false);
        // In memory the engine refuses to step over many.
        let most_steps = (self.mode() == Mode::Device).then_some(most_steps);
        let known_until = self.walk_within(&bounds, false, most_steps, |engine_key, seen| {
            if left == 0 || bytes >= MAX_PAGE_BYTES {
                is_cut = true;
                return false;
            }
            left -= 1;
            bytes += seen.key.len();
            last.clear();
            last.extend_from_slice(engine_key);
            if scan.kind.is_none_or(|kind| kind == seen.kind) && matches(seen.key) {
                items.push(seen.key.to_vec());
            }
            true
        })?;
        let go_on = known_until.or(is_cut.then_some(last));
        let cursor = go_on.map_or(0, |last| self.space.cursors.keep(db, &last));
        Ok(Page { cursor, items })
    }

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
        let bounds = WalkBounds::new(layout, db, &range).cutting();
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
