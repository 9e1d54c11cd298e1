//! Shards of which an instance knows an epoch that is too far away; see `epochs`.

use std::time::{Duration, Instant};

/// How long such a shard is left alone.
const PAUSE: Duration = Duration::from_secs(10);

/// An instance knows an epoch that is too far away.
pub(crate) struct TooFar {
    /// For people.
    pub why: String,
    noted: Instant,
}

impl TooFar {
    /// It has just been found.
    pub fn new(why: String) -> Self {
        Self { why, noted: Instant::now() }
    }

    /// Whether that is so recent that nothing is tried.
    pub fn is_fresh(&self) -> bool {
        self.noted.elapsed() < PAUSE
    }
}
