//! Garbage in segments of the log that memtables need still. It cannot be collected: it goes with the segments, when the
//! memtables that need the oldest of them are flushed. `gc` counts it, `bound_log` sees to it that it stays little.
//! Pure.

use terrace_base::SegmentNumber;

/// A segment of the log that takes or took values and is not sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OpenSegment {
    pub number: SegmentNumber,
    /// Bytes of values that had been written since the open when it began to take some.
    pub values_before: u64,
    /// Bytes of it that SSTs refer to.
    pub live_bytes: u64,
}

/// The segments of the log that memtables need, and the values in them.
#[derive(Debug, Clone, Default)]
pub(crate) struct OpenLog {
    /// By number.
    pub segments: Vec<OpenSegment>,
    /// Bytes of values written since the open.
    pub written_bytes: u64,
    /// Bytes of values that memtables refer to.
    pub unflushed_bytes: u64,
}

impl OpenLog {
    /// Bytes of values in the segments.
    pub fn bytes(&self) -> u64 {
        self.bytes_from(0).max(self.unflushed_bytes)
    }

    /// Bytes of them to which neither SSTs nor memtables refer: garbage that only the flush of other memtables frees.
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes_from(0)
    }

    /// The same in segments from `first` on: what a memtable holds whose first write is there.
    pub fn held_bytes_since(&self, first: SegmentNumber) -> u64 {
        self.held_bytes_from(self.segments.partition_point(|segment| segment.number < first))
    }

    fn bytes_from(&self, at: usize) -> u64 {
        let first = self.segments.get(at);
        first.map_or(0, |first| self.written_bytes.saturating_sub(first.values_before))
    }

    /// As if all that memtables refer to lay in these segments.
    fn held_bytes_from(&self, at: usize) -> u64 {
        let live: u64 = self.segments.iter().skip(at).map(|segment| segment.live_bytes).sum();
        self.bytes_from(at).saturating_sub(live).saturating_sub(self.unflushed_bytes)
    }
}

/// Memtables are being flushed for what is held from `allowed_bytes` on: writers wait for what is more than this many times
/// that.
const WAITED_FOR: u64 = 2;
/// The same while it stays for now, whatever writers do: else it would fill the disk while that lasts.
const STUCK_WAITED_FOR: u64 = 4;

/// What of `held_bytes` counts as garbage that writers wait for; `is_stuck`: it stays for now, whatever they do.
pub(crate) fn waited_for_bytes(held_bytes: u64, allowed_bytes: u64, is_stuck: bool) -> u64 {
    let free = if is_stuck { STUCK_WAITED_FOR } else { WAITED_FOR };
    held_bytes.saturating_sub(free.saturating_mul(allowed_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Segments 1, 3, 5 … of `values` bytes of values each, of which SSTs refer to `live`.
    fn open_log(segments: &[(u64, u64)], unflushed_bytes: u64) -> OpenLog {
        let mut open = OpenLog { unflushed_bytes, ..OpenLog::default() };
        for (at, (values, live_bytes)) in (0..).zip(segments) {
            let number = SegmentNumber::new(1 + 2 * at);
            let values_before = open.written_bytes;
            open.segments.push(OpenSegment { number, values_before, live_bytes: *live_bytes });
            open.written_bytes += values;
        }
        open
    }

    #[test]
    fn what_nothing_refers_to_is_held_and_what_a_memtable_has_is_not() {
        assert_eq!(OpenLog::default().held_bytes(), 0);
        assert_eq!(open_log(&[(100, 0)], 100).held_bytes(), 0, "one memtable");
        let open = open_log(&[(100, 10), (100, 30), (100, 0)], 90);
        assert_eq!((open.bytes(), open.held_bytes()), (300, 170));
        // What was replayed was not written since the open.
        let replayed = open_log(&[(0, 0)], 50);
        assert_eq!((replayed.bytes(), replayed.held_bytes()), (50, 0));
        // Values that were written before the oldest of them do not count.
        let later = OpenLog { segments: open.segments[1..].to_vec(), ..open };
        assert_eq!((later.bytes(), later.held_bytes()), (200, 80));
    }

    #[test]
    fn a_memtable_holds_the_garbage_that_was_written_since_its_first_write() {
        let open = open_log(&[(100, 0), (100, 0), (100, 50), (100, 0)], 100);
        let held = |first| open.held_bytes_since(SegmentNumber::new(first));
        // A first write may lie in a segment without values, between those with some or behind them.
        let held = [0, 1, 2, 3, 5, 6, 7, 8].map(held);
        assert_eq!(held, [250, 250, 150, 150, 50, 0, 0, 0]);
        assert_eq!(OpenLog::default().held_bytes_since(SegmentNumber::ZERO), 0);
    }

    #[test]
    fn writers_wait_for_held_garbage_and_later_for_what_they_cannot_change() {
        assert_eq!(waited_for_bytes(200, 100, false), 0);
        assert_eq!(waited_for_bytes(230, 100, false), 30);
        assert_eq!(waited_for_bytes(400, 100, true), 0);
        assert_eq!(waited_for_bytes(430, 100, true), 30);
    }
}
