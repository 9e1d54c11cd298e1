//! What keys take.

use crate::command_batch::CommandBatch;
use crate::encode::{self, Meta};
use crate::error::Result;

/// Sequence number and kind, stored with every key.
const TRAILER_BYTES: u64 = 8;

impl CommandBatch {
    /// About how many bytes a key takes in the store before compression; `None` if there is no such
    /// key. Of a collection the engine's estimate, which does not see what is smaller than a block.
    ///
    /// # Errors
    /// The engine's.
    pub fn usage_bytes(&mut self, db: u8, key: &[u8]) -> Result<Option<u64>> {
        self.pin_view(db, key);
        let own = self.space().layout().prefix_bytes() as u64 + key.len() as u64 + TRAILER_BYTES;
        if let Some(text) = self.text_info(db, key)? {
            let len = match text.len {
                Some(len) => len,
                // One that is compressed by itself.
                None => self.text(db, key)?.map_or(0, |text| text.value.len()),
            };
            return Ok(Some(own + len as u64));
        }
        let Some(meta) = self.meta(db, key)? else { return Ok(None) };
        let start = encode::elements_of(db, meta.id);
        let end = encode::end_of(&start).unwrap_or_default();
        let elements = self.space().elements().estimate(&start[..]..&end[..])?;
        Ok(Some(own + Meta::BYTES as u64 + elements.bytes))
    }
}
