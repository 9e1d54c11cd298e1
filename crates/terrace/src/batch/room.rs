//! How many bytes a sealed batch takes in the memtable of each family, at most. The commit makes
//! that room before it appends the batch to the log, because an insert that failed after the append
//! would poison the store.

use super::{Op, WriteBatch};
use crate::error::{Error, Result};
use terrace_base::key::EXPIRY_BYTES;
use terrace_base::{HANDLE_BYTES, ValueKind};
use terrace_log::format::MAX_PAYLOAD_BYTES;
use terrace_skiplist::Skiplist;

/// The most bytes that an entry takes in a memtable beyond those of its key and its value; both are
/// padded.
const ENTRY_OVERHEAD_BYTES: usize = Skiplist::entry_upper_bound(1, 1) - 2;

/// The most room that one batch may need in one memtable. What is left of the largest memtable is for
/// the other batches of its group.
const MAX_ROOM_BYTES: usize = Skiplist::MAX_CAPACITY_BYTES - (1 << 30);

/// The most bytes that `op` takes in a memtable's list of entries.
pub(crate) fn entry_room_bytes(op: &Op<'_>) -> usize {
    let value_len = match (op.kind, op.separated) {
        // Range tombstones are kept elsewhere, without a fixed capacity.
        (ValueKind::RangeDelete, _) => return 0,
        (_, Some(_)) => EXPIRY_BYTES + HANDLE_BYTES,
        (_, None) => op.value.len(),
    };
    Skiplist::entry_upper_bound(op.key.len(), value_len)
}

impl WriteBatch {
    /// Bytes that the entries of `family` take in its memtable, at most. To be called after `seal`.
    #[inline]
    pub(crate) fn room_bytes(&self, family: u32) -> usize {
        match self.touched.place_of(family) {
            Some(0) => self.rooms.first().copied().unwrap_or_else(|| self.total_room_bytes()),
            place => place.and_then(|at| self.rooms.get(at)).copied().unwrap_or(0),
        }
    }

    /// The room for all operations together, from what the batch has counted.
    pub(crate) fn total_room_bytes(&self) -> usize {
        self.bytes.len() - self.separated_bytes
            + self.separated.len() * (EXPIRY_BYTES + HANDLE_BYTES)
            + self.len() * ENTRY_OVERHEAD_BYTES
    }

    /// Works out the room for each family if there are several, and refuses a batch that the log or a
    /// memtable cannot take whole.
    pub(super) fn measure(&mut self) -> Result<()> {
        self.rooms.clear();
        if self.touched.len() > 1 {
            self.rooms = self.room_of_each();
        }
        let room = self.families().map(|family| self.room_bytes(family)).max().unwrap_or(0);
        check_limits(self.bytes.len(), room)
    }

    /// The room for each of [`Self::families`], in their order.
    fn room_of_each(&self) -> Vec<usize> {
        let mut rooms = vec![0; self.touched.len()];
        // Most batches write runs of operations to one family.
        let (mut run_of, mut at) = (None, 0);
        for op in self.ops().flatten() {
            if run_of != Some(op.family) {
                run_of = Some(op.family);
                at = self.touched.place_of(op.family).unwrap_or(0);
            }
            rooms[at] += entry_room_bytes(&op);
        }
        rooms
    }
}

fn check_limits(encoded_bytes: usize, room_bytes: usize) -> Result<()> {
    if encoded_bytes > MAX_PAYLOAD_BYTES {
        let limit = format!("{encoded_bytes} bytes; a log record has {MAX_PAYLOAD_BYTES} at most");
        return Err(Error::InvalidArgument(format!("the batch is encoded in {limit}; split it")));
    }
    if room_bytes > MAX_ROOM_BYTES {
        let limit = format!("{room_bytes} bytes of a memtable; {MAX_ROOM_BYTES} is the limit");
        return Err(Error::InvalidArgument(format!("the batch needs {limit}; split it")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::Separation;
    use super::*;
    use crate::memtable::{Gathered, MemTable};
    use proptest::prelude::*;
    use std::time::Duration;
    use terrace_base::{ManualClock, SegmentNumber, SeqNo};
    use terrace_log::LogPosition;
    use terrace_skiplist::Hint;

    #[test]
    fn what_the_log_or_a_memtable_cannot_take_is_refused() {
        check_limits(MAX_PAYLOAD_BYTES, MAX_ROOM_BYTES).unwrap();
        assert!(check_limits(MAX_PAYLOAD_BYTES + 1, 0).is_err());
        assert!(check_limits(0, MAX_ROOM_BYTES + 1).is_err());
    }

    fn drawn_batch(ops: &[(u32, u8, Vec<u8>, usize)]) -> WriteBatch {
        let mut batch = WriteBatch::new();
        for (family, kind, key, len) in ops {
            let value = vec![7; *len];
            let wanted = Separation::DEFAULT;
            match kind {
                0 => batch.push(*family, ValueKind::Delete, key, &[]),
                1 => batch.push(*family, ValueKind::RangeDelete, key, &[0xff; 9]),
                2 => {
                    batch.put_value(*family, key, Some(Duration::from_secs(9)), &value, wanted);
                }
                _ => batch.put_value(*family, key, None, &value, wanted),
            }
        }
        batch
    }

    proptest! {
        /// Each family's entries fit into a memtable of exactly the room that was asked for.
        #[test]
        fn the_room_of_each_family_holds_all_of_its_entries(
            ops in proptest::collection::vec(
                (0u32..4, 0u8..6, proptest::collection::vec(any::<u8>(), 0..40), 0usize..1500),
                1..200),
            threshold in prop_oneof![Just(0usize), Just(9), Just(1000), Just(usize::MAX)],
        ) {
            let placed = LogPosition { segment: SegmentNumber::new(1), offset: 0 };
            let mut batch = drawn_batch(&ops);
            let separation = Separation { threshold, ..Separation::DEFAULT };
            batch.seal(&ManualClock::at(1), &|_| separation).unwrap();
            for family in 0..4 {
                let room = batch.room_bytes(family);
                let memtable = MemTable::with_capacity(1, room).unwrap();
                prop_assert!(memtable.room_bytes() >= room);
                let (mut hint, mut gathered) = (Hint::default(), Gathered::for_ops(batch.len()));
                for (op, seqno) in batch.ops().flatten().zip(1..) {
                    if op.family == family {
                        let taken = memtable.take(&op, SeqNo::new(seqno), placed, &mut gathered, &mut hint);
                        prop_assert!(taken.is_ok());
                    }
                }
                prop_assert!(memtable.settle(&mut gathered, &mut hint).is_ok());
                if !batch.touches(family) {
                    prop_assert_eq!(room, 0);
                }
            }
        }
    }
}
