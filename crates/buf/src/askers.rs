//! Those whom the slab asks for huge pages ahead ([`crate::ahead`]).

use parking_lot::Mutex;
use std::sync::{Arc, Weak};

/// Asks somebody to call [`provide`](crate::ahead::provide) soon; whether somebody will. Short, and without locks that are held
/// while buffers are taken.
pub type Ask = dyn Fn() -> bool + Send + Sync;

/// Those who can be asked.
pub(super) struct Askers(Mutex<Vec<Weak<Ask>>>);

impl Askers {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// One more, as long as its owner keeps it.
    pub(super) fn add(&self, asker: &Arc<Ask>) {
        let mut askers = self.0.lock();
        askers.retain(|asker| asker.strong_count() > 0);
        askers.push(Arc::downgrade(asker));
    }

    /// Asks until somebody will. Nothing is locked meanwhile: the last owner of an asker may be dropped here.
    pub(super) fn ask(&self) {
        let askers = self.0.lock().clone();
        askers.iter().filter_map(Weak::upgrade).any(|ask| ask());
    }
}
