//! Reading everything and checking it.

use crate::error::Result;
use crate::inner::Inner;
use crate::values::value_log::SegmentMap;
use std::sync::Arc;
use terrace_base::key::trailer_kind;
use terrace_base::{InternalIter, ValueHandle};
use terrace_sst::{ScanOptions, SstReader};

/// Values, and bytes of them, read and checked together.
const VALUES_TOGETHER: usize = 64;
const BYTES_TOGETHER: usize = 1 << 20;

/// Checks every SST that is live now: all checksums, the order of entries, the bounds in the
/// manifest, and every value that an entry refers to. Gives how many were checked.
pub(crate) fn all(inner: &Inner) -> Result<u64> {
    inner.base.health.check_open()?;
    let mut checked = 0;
    for family in inner.read.families.load().iter() {
        let (state, _, held) =
            family.hold_with_values(&inner.read.value_log, || inner.read.visible_seqno());
        for (_, file) in state.version.all_files() {
            let reader = inner.read.table_cache.reader(file)?;
            reader.verify()?;
            // The values of a family that was dropped meanwhile may be gone.
            if !file.value_refs.is_empty() && !family.is_dropped() {
                values(inner, &held, &reader)?;
            }
            checked += 1;
        }
    }
    Ok(checked)
}

/// Reads every value that an SST refers to.
fn values(inner: &Inner, held: &SegmentMap, reader: &Arc<SstReader>) -> Result<()> {
    let mut iter = reader.iter(ScanOptions::compaction());
    let mut together: Vec<(Vec<u8>, ValueHandle)> = Vec::with_capacity(VALUES_TOGETHER);
    let mut bytes = 0;
    iter.seek_to_first()?;
    loop {
        if iter.valid() {
            let kind = trailer_kind(iter.trailer());
            if let Some(handle) = kind.and_then(|kind| ValueHandle::of_entry(kind, iter.value())) {
                bytes += handle.len as usize;
                together.push((iter.user_key().to_vec(), handle));
            }
            iter.next()?;
        }
        if together.len() == VALUES_TOGETHER || bytes >= BYTES_TOGETHER || !iter.valid() {
            let wanted: Vec<_> = together.iter().map(|(key, at)| (key.as_slice(), *at)).collect();
            let mut rest = &wanted[..];
            while !rest.is_empty() {
                let values = inner.read.value_log.read_held(held, rest, BYTES_TOGETHER);
                rest = rest.get(values.len()..).unwrap_or_default();
                values.into_iter().try_for_each(|value| value.map(drop))?;
            }
            together.clear();
            bytes = 0;
        }
        if !iter.valid() {
            return Ok(());
        }
    }
}
