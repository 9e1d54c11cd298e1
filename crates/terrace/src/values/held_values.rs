//! The separated values of a scan.

use crate::values::value_log::{SegmentMap, ValueLog};
use crate::values::value_source::ValueSource;
use std::sync::Arc;
use terrace_base::{Error, Result, ValueHandle};
use terrace_buf::Slice;

/// The values of a scan: its segments stay while this is held.
pub(crate) struct HeldValues {
    pub log: Arc<ValueLog>,
    pub held: Arc<SegmentMap>,
    /// Give only what the cache has.
    pub in_memory: bool,
}

impl ValueSource for HeldValues {
    fn read(&self, wanted: &[(&[u8], ValueHandle)], max_bytes: usize) -> Vec<Result<Slice>> {
        if self.in_memory {
            let cached = |(key, handle): &(&[u8], ValueHandle)| {
                self.log.cached_of(&self.held, key, handle).ok_or(Error::NotInMemory)
            };
            return wanted.iter().map(cached).collect();
        }
        self.log.read_held(&self.held, wanted, max_bytes)
    }
}
