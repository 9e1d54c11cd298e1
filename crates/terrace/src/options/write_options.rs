//! What one write may ask for.

use super::SyncMode;

/// How one write is done.
#[derive(Debug, Clone, Copy, Default)]
pub struct WriteOptions {
    /// Durability of this write; `None` takes the store's. [`SyncMode::Interval`] is refused: whether
    /// and how often the log is synced in the background is decided by [`Options::sync`](crate::Options::sync) and
    /// [`Db::set_sync`](crate::Db::set_sync).
    pub sync: Option<SyncMode>,
}
