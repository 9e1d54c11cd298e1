//! Where the open reader of one SST is found without a lock, and what reads tell of the file.

use crate::metrics::SAMPLE_EVERY;
use arc_swap::{ArcSwapOption, Guard};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use terrace_learned::analyzer::Lookups;
use terrace_sst::SstReader;

/// A reader held for the length of one read; no shared counter is touched.
pub(crate) type ReaderGuard = Guard<Option<Arc<SstReader>>>;

/// Where the reader of one file is while it is open.
pub(crate) struct ReaderSlot {
    pub(super) reader: ArcSwapOption<SstReader>,
    /// Whether it was used since readers that are used seldom were looked for last.
    pub(super) touched: AtomicBool,
    /// Whether the reader may use learned indexes.
    pub(super) models: bool,
    /// Sampled lookups that found their key in the file, and that searched it in vain.
    found: AtomicU32,
    vain: AtomicU32,
}

impl ReaderSlot {
    pub(super) fn new(models: bool) -> Arc<Self> {
        Arc::new(Self {
            reader: ArcSwapOption::empty(),
            touched: AtomicBool::new(false),
            models,
            found: AtomicU32::new(0),
            vain: AtomicU32::new(0),
        })
    }

    /// Counts a sampled lookup that the filter let pass.
    pub fn note(&self, found: bool) {
        let count = if found { &self.found } else { &self.vain };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Lookups that the filter let pass so far, from the sampled ones.
    pub fn lookups(&self) -> Lookups {
        let sum =
            |count: &AtomicU32| f64::from(count.load(Ordering::Relaxed)) * f64::from(SAMPLE_EVERY);
        Lookups { positive: sum(&self.found), negative: sum(&self.vain) }
    }

    /// The reader if it is open.
    pub fn open_reader(&self) -> ReaderGuard {
        self.reader.load()
    }
}
