//! Whether a reader uses a learned index, and where in a block entries are expected.

use crate::block_handle::BlockHandle;
use crate::index::top_level::{TAG_LEARNED, TopLevel};
use crate::properties::Properties;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Bytes of a block before its entries, besides heads and offsets: header, and a common prefix.
const TYPICAL_FRONT_BYTES: u64 = 20;

/// Bytes per entry for head and offset.
const ENTRY_FRONT_BYTES: u64 = 6;

/// Whether and how a reader uses models.
#[derive(Debug, Default)]
pub(crate) struct ModelUse {
    /// The options allow it.
    pub allowed: bool,
    /// The one in the file.
    pub stored: Option<BlockHandle>,
    /// Lookups ask for it.
    active: AtomicBool,
    /// Lookups since it was evicted.
    pub waited: AtomicU32,
    /// Where entries lie in a typical block: from, to.
    pub span: (u32, u32),
}

impl ModelUse {
    pub fn new(allowed: bool, top: &TopLevel, properties: &Properties) -> Self {
        let stored = top.other(TAG_LEARNED);
        Self {
            allowed,
            stored,
            active: AtomicBool::new(allowed && stored.is_some()),
            waited: AtomicU32::new(u32::MAX >> 1),
            span: typical_span(properties),
        }
    }

    #[inline]
    pub fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed)
    }

    pub fn set_active(&self, active: bool) {
        self.active.store(active, Ordering::Relaxed);
    }
}

/// From where to where the entries of an average block lie.
fn typical_span(properties: &Properties) -> (u32, u32) {
    let blocks = properties.data_block_count.max(1);
    let entries = properties.entry_count / blocks;
    let raw = properties.raw_key_bytes.saturating_add(properties.raw_value_bytes) / blocks;
    let from = TYPICAL_FRONT_BYTES.saturating_add(entries.saturating_mul(ENTRY_FRONT_BYTES));
    // Where blocks are compressed, keys and values say more than what is stored.
    let to = (properties.data_bytes / blocks).max(raw);
    (from.min(u64::from(u32::MAX)) as u32, to.min(u64::from(u32::MAX)) as u32)
}
