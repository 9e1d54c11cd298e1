//! What a store was at one moment.

use std::sync::{Arc, Weak};
use terrace_binding::{Kept, Outcome};

/// A consistent view of a store.
pub struct Snapshot {
    /// Given back in a forked process, it is leaked: there the locks of the store may be held for ever.
    kept: Kept<Arc<terrace::Snapshot>>,
}

impl Snapshot {
    pub(crate) fn new(held: terrace::Snapshot) -> Self {
        Self { kept: Kept::new(Arc::new(held)) }
    }

    /// For a read, which holds it to its end.
    pub(crate) fn held(&self) -> Outcome<terrace::Snapshot> {
        Ok(terrace::Snapshot::clone(self.kept.get()?))
    }

    /// For what outlives it.
    pub(crate) fn named(&self) -> Outcome<Weak<terrace::Snapshot>> {
        Ok(Arc::downgrade(self.kept.get()?))
    }
}
