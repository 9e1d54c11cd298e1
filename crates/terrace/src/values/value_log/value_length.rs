//! The length of a compressed value, from its stored form.

use super::{SegmentMap, ValueLog, place_of};
use terrace_base::{Error, Result, ValueHandle};
use terrace_log::value::{self, ValueRead};

impl ValueLog {
    /// As [`ValueLog::get`], the length alone: the value is read and not decompressed.
    pub fn value_len(&self, key: &[u8], handle: ValueHandle) -> Result<Option<usize>> {
        let map = self.map.load();
        match self.value_len_held(&map, key, handle) {
            // After a refresh nothing keeps the segments of before.
            Err(Error::Removed { .. }) if !self.has(handle.segment) => Ok(None),
            len => len,
        }
    }

    /// As [`ValueLog::value_len`], of the segments in `held`.
    pub fn value_len_held(
        &self,
        held: &SegmentMap,
        key: &[u8],
        handle: ValueHandle,
    ) -> Result<Option<usize>> {
        let Some(segment) = held.get(&handle.segment) else { return Ok(None) };
        if let Some(value) = self.cached(&place_of(segment, key, &handle)) {
            return Ok(Some(value.len()));
        }
        let file = self.file(segment)?;
        self.note_read(1, u64::from(handle.len));
        value::read_value_len(&ValueRead { file: &*file, key, handle }).map(Some)
    }
}
