//! What one write may ask for.

use super::SyncMode;

/// How one write is done.
#[derive(Debug, Clone, Copy, Default)]
pub struct WriteOptions {
    /// Durability of this write; `None` takes the store's. [`SyncMode::Interval`] is refused: whether
    /// and how often the log is synced in the background is decided by [`Options::sync`](crate::Options::sync) and
    /// [`Db::set_sync`](crate::Db::set_sync). A write that asks for [`SyncMode::Batch`] in a store of another mode does not
    /// hold up those that do not: it is visible before it is durable, as they are, and returns when it is durable.
    pub sync: Option<SyncMode>,
}
