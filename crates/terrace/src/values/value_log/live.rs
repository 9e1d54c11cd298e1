//! What of the value log is of use: the references of live SSTs, by segment.

use super::{SegmentStats, ValueLog};
use crate::values::open_log::OpenSegment;
use std::collections::HashSet;
use std::collections::btree_map::Entry;
use std::sync::atomic::Ordering;
use terrace_base::{SegmentNumber, ValueRef};
use terrace_manifest::{FileMeta, SegmentKind, SegmentMeta};

impl ValueLog {
    /// Counts the references of files that became live and of files that no longer are.
    pub fn count<'a>(
        &self,
        added: impl Iterator<Item = &'a FileMeta>,
        removed: impl Iterator<Item = &'a FileMeta>,
    ) {
        let mut live = self.live.lock();
        let mut all_bytes = self.live_bytes.load(Ordering::Relaxed);
        let mut count = self.reference_count.load(Ordering::Relaxed);
        let references =
            added.inspect(|file| count += file.value_refs.len()).flat_map(|file| &file.value_refs);
        for reference in references.filter(|reference| reference.bytes > 0) {
            *live.entry(reference.segment).or_default() += reference.bytes;
            all_bytes += reference.bytes;
        }
        let removed = removed.inspect(|file| count = count.saturating_sub(file.value_refs.len()));
        for reference in removed.flat_map(|file| &file.value_refs) {
            if let Entry::Occupied(mut of_segment) = live.entry(reference.segment) {
                let less = reference.bytes.min(*of_segment.get());
                *of_segment.get_mut() -= less;
                all_bytes -= less;
                if *of_segment.get() == 0 {
                    of_segment.remove();
                }
            }
        }
        self.live_bytes.store(all_bytes, Ordering::Relaxed);
        self.reference_count.store(count, Ordering::Relaxed);
    }

    /// Bytes that the references of live SSTs take in memory.
    pub fn reference_bytes(&self) -> usize {
        self.reference_count.load(Ordering::Relaxed) * size_of::<ValueRef>()
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

    /// The segments that garbage collection has written since the open and in which nothing has become
    /// garbage yet: to move their values would write the same file again.
    pub fn as_collected(&self) -> HashSet<SegmentNumber> {
        let collected = self.collected.lock();
        let live = self.live.lock();
        let live_bytes = |number: &SegmentNumber| live.get(number).copied().unwrap_or(0);
        let whole = collected.iter().filter(|&(number, bytes)| *bytes == live_bytes(number));
        whole.map(|(number, _)| *number).collect()
    }

    /// Whether segment `number` is sealed.
    pub fn is_sealed(&self, number: SegmentNumber) -> bool {
        let map = self.map.load();
        map.get(&number).is_some_and(|s| s.sealed_bytes.load(Ordering::Relaxed) > 0)
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::sync::Arc;
    use terrace_base::SystemClock;
    use terrace_base::rng::{Rng, SplitMix64};
    use terrace_sst::BlockCache;
    use terrace_vfs::SimVfs;

    #[test]
    fn the_sum_of_live_bytes_is_that_of_the_files_that_are_left() {
        let (cache, clock) = (Arc::new(BlockCache::new(1 << 20)), Arc::new(SystemClock::default()));
        let log = ValueLog::new(Arc::new(SimVfs::new(1)), Path::new("/"), false, cache, 100, clock);
        let mut rng = SplitMix64::new(1);
        let mut file = || {
            let value_refs = (1..=rng.below(5)).map(|n| ValueRef {
                segment: SegmentNumber::new(3 * n + rng.below(3)),
                bytes: rng.below(4),
            });
            FileMeta { value_refs: value_refs.collect(), ..FileMeta::default() }
        };
        let mut files: Vec<FileMeta> = Vec::new();
        let sums = |files: &[FileMeta]| -> (u64, Vec<u64>) {
            let references = || files.iter().flat_map(|file| &file.value_refs);
            let of = |number| {
                let of_segment = references().filter(|r| r.segment == SegmentNumber::new(number));
                of_segment.map(|r| r.bytes).sum::<u64>()
            };
            (references().map(|r| r.bytes).sum(), (0..20).map(of).collect())
        };
        for _ in 0..200 {
            let fresh = [file(), file()];
            let gone: Vec<FileMeta> = files.drain(..files.len() / 3).collect();
            log.count(fresh.iter(), gone.iter());
            files.extend(fresh);
            let of = |number| log.live_bytes_of(SegmentNumber::new(number));
            let of_segments: Vec<u64> = (0..20).map(of).collect();
            assert_eq!((log.live_bytes(), of_segments), sums(&files));
            let count: usize = files.iter().map(|file| file.value_refs.len()).sum();
            assert_eq!(log.reference_bytes(), 16 * count);
        }
        assert!(log.live.lock().values().all(|bytes| *bytes > 0));
        // What nothing refers to any more leaves nothing behind, and so does a segment that is taken out.
        let (all, none) = (log.live_bytes(), log.live_bytes_of(SegmentNumber::new(4)));
        log.remove(&[SegmentNumber::new(4)]);
        assert_eq!(log.live_bytes(), all - none);
        log.count(std::iter::empty(), files.iter());
        assert_eq!((log.live_bytes(), log.live.lock().len()), (0, 0));
        assert_eq!(log.reference_bytes(), 0);
    }
}
