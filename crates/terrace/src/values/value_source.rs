//! Reading separated values by their handles, whatever they are read from.

use terrace_base::{Result, ValueHandle};
use terrace_buf::Slice;

/// Where separated values are read from.
pub(crate) trait ValueSource {
    /// The values of these keys and handles, in their order, by one batch of device reads; only the first ones, at least one,
    /// if those have `max_bytes`.
    fn read(&self, wanted: &[(&[u8], ValueHandle)], max_bytes: usize) -> Vec<Result<Slice>>;
}
