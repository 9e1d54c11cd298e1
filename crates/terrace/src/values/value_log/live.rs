//! What of the value log is of use: the references of live SSTs, by segment.

use super::{SegmentStats, ValueLog};
use crate::values::open_log::OpenSegment;
use std::sync::atomic::Ordering;
use terrace_base::SegmentNumber;
use terrace_manifest::{FileMeta, SegmentKind, SegmentMeta};

impl ValueLog {
    /// Counts the references of files that became live and of files that no longer are.
    pub fn count<'a>(
        &self,
        added: impl Iterator<Item = &'a FileMeta>,
        removed: impl Iterator<Item = &'a FileMeta>,
    ) {
        let mut live = self.live.lock();
        for reference in added.flat_map(|file| &file.value_refs) {
            *live.entry(reference.segment).or_default() += reference.bytes;
        }
        for reference in removed.flat_map(|file| &file.value_refs) {
            if let Some(bytes) = live.get_mut(&reference.segment) {
                *bytes = bytes.saturating_sub(reference.bytes);
            }
        }
        live.retain(|_, bytes| *bytes > 0);
        self.live_bytes.store(live.values().sum(), Ordering::Relaxed);
    }

    /// Bytes of `segment` that live SSTs refer to.
    pub fn live_bytes_of(&self, segment: SegmentNumber) -> u64 {
        self.live.lock().get(&segment).copied().unwrap_or(0)
    }

    /// Garbage collection has written `segments`, and SSTs refer to all of them.
    pub fn note_collected(&self, segments: &[SegmentMeta]) {
        let of_values = segments.iter().filter(|meta| meta.kind == SegmentKind::Values);
        for SegmentMeta { number, .. } in of_values {
            self.collected.lock().insert(*number, self.live_bytes_of(*number));
        }
    }

    /// Whether garbage collection has written `segment` since the open and nothing in it has become
    /// garbage yet: to move its values would write the same file again.
    pub fn is_as_collected(&self, segment: SegmentNumber) -> bool {
        let whole = self.collected.lock().get(&segment).copied();
        whole.is_some_and(|bytes| bytes == self.live_bytes_of(segment))
    }

    /// Bytes that live SSTs refer to, in all segments.
    pub fn live_bytes(&self) -> u64 {
        self.live_bytes.load(Ordering::Relaxed)
    }

    /// Every sealed segment, by number.
    pub fn segment_stats(&self) -> Vec<SegmentStats> {
        let map = self.map.load();
        let live = self.live.lock();
        map.values()
            .filter_map(|segment| {
                let size_bytes = segment.sealed_bytes.load(Ordering::Relaxed);
                let live_bytes = live.get(&segment.number).copied().unwrap_or(0);
                let segment = SegmentStats { number: segment.number, size_bytes, live_bytes };
                (size_bytes > 0).then_some(segment)
            })
            .collect()
    }

    /// Segments that take or took values and are not sealed, by number.
    pub fn open_segments(&self) -> Vec<OpenSegment> {
        let map = self.map.load();
        let live = self.live.lock();
        let open = map.values().filter(|s| s.sealed_bytes.load(Ordering::Relaxed) == 0);
        open.map(|segment| OpenSegment {
            number: segment.number,
            values_before: segment.values_before,
            live_bytes: live.get(&segment.number).copied().unwrap_or(0),
        })
        .collect()
    }
}
