//! How much memtables may hold where room is short (put): a flush writes about as much as they hold, and the log gives
//! that back only afterwards. So memtables end early where room is short, and when a disk becomes full their flush fits
//! into the reserve; and what is merged later lies in short files, of which one can be rewritten where a long one could
//! not. Kept with the log's state, and asked by the leader.

use crate::env::BaseEnv;
use std::sync::atomic::Ordering;

/// The memtables that take writes may have one part in this many of the room.
const ROOM_PARTS: u64 = 32;
/// Or one part in this many of the reserve, within these bounds, if that is more.
const RESERVE_PARTS: u64 = 4;
const LEAST_BYTES: u64 = 8 << 10;
const MOST_LEAST_BYTES: u64 = 256 << 10;
/// The least without a reserve.
const LEAST_WITHOUT_RESERVE: u64 = 16 << 10;
/// What is free is looked at when the log has grown by one part in this many of what memtables may have.
const LOOK_PARTS: u64 = 8;

/// What is known of the room for flushes.
#[derive(Debug, Default)]
pub(crate) struct FlushRoom {
    most_bytes: u64,
    /// Bytes of log at which it is looked at anew.
    look_at: u64,
}

impl FlushRoom {
    /// Bytes that the memtables which take writes may have together for want of room. Costs a load, but for a look at
    /// what is free now and then.
    pub fn most_bytes(&mut self, base: &BaseEnv) -> usize {
        let logged = base.counters.log_bytes.load(Ordering::Relaxed);
        if logged >= self.look_at {
            // Unknown room is no reason for short ones.
            let free = base.vfs.free_space_bytes(&base.dir).unwrap_or(u64::MAX);
            self.most_bytes = most_bytes(free, base.dynamic.reserve_bytes());
            let step = self.most_bytes.min(base.dynamic.memtable_bytes() as u64) / LOOK_PARTS;
            self.look_at = logged.saturating_add(step);
        }
        usize::try_from(self.most_bytes).unwrap_or(usize::MAX)
    }
}

/// What memtables may have with `free` bytes besides the reserve.
fn most_bytes(free: u64, reserve_bytes: u64) -> u64 {
    (free / ROOM_PARTS).max(least_bytes(reserve_bytes))
}

/// What a memtable may always have: shorter files are not worth their number. Writers wait when twice as much is not flushed,
/// and the flush of that fits into the reserve beside what is kept for deleted ranges (`full_disk`), from 32 KiB of reserve
/// on.
pub(super) fn least_bytes(reserve_bytes: u64) -> u64 {
    match reserve_bytes {
        0 => LEAST_WITHOUT_RESERVE,
        _ => (reserve_bytes / RESERVE_PARTS).clamp(LEAST_BYTES, MOST_LEAST_BYTES),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memtables_are_short_where_room_is_and_fit_into_the_reserve_where_there_is_none() {
        assert_eq!(most_bytes(u64::MAX, 1 << 20), u64::MAX / ROOM_PARTS);
        assert_eq!(most_bytes(320 << 20, 1 << 20), 10 << 20);
        assert_eq!(most_bytes(1 << 20, 1 << 20), 256 << 10);
        assert_eq!(most_bytes(0, 100 << 20), 256 << 10);
        assert_eq!(most_bytes(0, 64 << 10), 16 << 10);
        assert_eq!(most_bytes(0, 32 << 10), 8 << 10);
        assert_eq!(most_bytes(0, 1 << 10), 8 << 10);
        assert_eq!(most_bytes(0, 0), 16 << 10);
    }
}
