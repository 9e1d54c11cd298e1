//! What a store was at one moment.

/// A consistent view of a store.
pub struct Snapshot {
    pub(crate) held: terrace::Snapshot,
}
