//! Some key of a database, for `RANDOMKEY`.

use crate::command_batch::CommandBatch;
use crate::error::Result;
use crate::random;
use crate::walk_bounds::{KeyRange, WalkBounds};
use terrace_cluster::{SLOT_COUNT, Slot, slot_of};

/// A random key is drawn by up to this many bytes.
const DRAWN_BYTES: usize = 32;

impl CommandBatch {
    /// Some key, found from its first bytes on: of the keys that begin alike, a random next byte
    /// between the least and the greatest leads to the first key at or behind it. Keys that stand
    /// alone are more likely than those in crowds. Three searches for each byte at which keys part.
    /// With placement `slots` it is a key of the first slot with any from a random one on.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn random_key(&mut self, db: u8) -> Result<Option<Vec<u8>>> {
        let layout = self.space.layout;
        let mut slot = Slot::new(0).unwrap_or(slot_of(b""));
        if layout.has_slots() {
            let random = Slot::new(random::below(u64::from(SLOT_COUNT)) as u16).unwrap_or(slot);
            let mut from = WalkBounds::new(layout, db, &KeyRange::default());
            from.go_on_at(&layout.stem(random, db));
            let all = WalkBounds::new(layout, db, &KeyRange::default());
            let key = match self.first_within(&from)? {
                Some(key) => Some(key),
                None => self.first_within(&all)?,
            };
            let Some(key) = key else { return Ok(None) };
            slot = slot_of(&key);
        }
        let (mut drawn_so_far, mut prefix) = (None, Vec::new());
        for _ in 0..DRAWN_BYTES {
            let among = |start: &[u8], prefix: &[u8]| {
                WalkBounds::of_slot(layout, slot, db, &KeyRange { start, end: None, prefix })
            };
            let whole = among(&[], &prefix);
            let Some(first) = self.first_within(&whole)? else { break };
            let Some(last) = self.last_stored_within(&whole)? else {
                return Ok(drawn_so_far.or(Some(first)));
            };
            let shared = first.iter().zip(&last).take_while(|(a, b)| a == b).count();
            let Some(high) = last.get(shared).map(|byte| u64::from(*byte)) else {
                return Ok(Some(first));
            };
            // A key that ends here comes before all that go on.
            let low = first.get(shared).map_or(0, |byte| u64::from(*byte) + 1);
            let drawn = low + random::below((high + 2).saturating_sub(low));
            let Some(byte) = drawn.checked_sub(1) else { return Ok(Some(first)) };
            let start = [&last[..shared], &[byte as u8]].concat();
            // The last key may be one that expired.
            let found = self.first_within(&among(&start, &prefix))?.unwrap_or(first);
            if found.len() <= shared {
                return Ok(Some(found));
            }
            prefix = found[..=shared].to_vec();
            drawn_so_far = Some(found);
        }
        Ok(drawn_so_far)
    }
}
