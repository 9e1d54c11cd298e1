//! What a store was at one moment.

use terrace_binding::{Kept, Outcome};

/// A consistent view of a store.
pub struct Snapshot {
    /// Given back in a forked process, it is leaked: there the locks of the store may be held for ever.
    kept: Kept<terrace::Snapshot>,
}

impl Snapshot {
    pub(crate) fn new(held: terrace::Snapshot) -> Self {
        Self { kept: Kept::new(held) }
    }

    pub(crate) fn held(&self) -> Outcome<terrace::Snapshot> {
        self.kept.get().cloned()
    }
}
