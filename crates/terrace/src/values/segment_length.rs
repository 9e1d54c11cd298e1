//! How long a file of values, or of what a merge writes, may become, and how much is set aside for a segment of the log.

use std::path::Path;
use terrace_vfs::Vfs;

/// Of the room that is free when a segment begins it takes one part in this many, or sets it aside.
const ROOM_PARTS: u64 = 16;

/// Shorter ones are not worth a file.
const LEAST_BYTES: u64 = 128 << 10;

/// Nor are those of which a log, or a family, would have more than this many.
const MOST_SEGMENTS: u64 = 16 << 10;

/// Length at which a segment that begins now ends: `segment_bytes`, and less where room is short and the log, of
/// `log_bytes`, is not long. A segment gives its garbage back once its live values are written a second time: short
/// ones can be collected, one after the other, on a disk on which a long one could not. So it is with SSTs.
pub(crate) fn longest_bytes(vfs: &dyn Vfs, dir: &Path, segment_bytes: u64, log_bytes: u64) -> u64 {
    // Unknown room is no reason for short ones.
    let free = vfs.free_space_bytes(dir).unwrap_or(u64::MAX);
    let least = LEAST_BYTES.max(log_bytes / MOST_SEGMENTS);
    segment_bytes.min((free / ROOM_PARTS).max(least))
}

/// Bytes to set aside for a log segment that begins with `free_bytes` on the disk (`u64::MAX`: unknown): `wanted_bytes`, but no
/// more than a 16th of them, so that what is set aside for later records does not fill a disk.
pub(crate) fn preallocated_bytes(free_bytes: u64, wanted_bytes: u64) -> u64 {
    wanted_bytes.min(free_bytes / ROOM_PARTS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_vfs::SimVfs;

    #[test]
    fn segments_are_short_where_room_is() {
        let sim = SimVfs::new(1);
        let longest = |segment_bytes| longest_bytes(&sim, Path::new("/db"), segment_bytes, 1 << 30);
        assert_eq!(longest(64 << 20), 64 << 20);
        sim.set_capacity_bytes(Some(160 << 20));
        assert_eq!((longest(64 << 20), longest(1 << 20)), (10 << 20, 1 << 20));
        sim.set_capacity_bytes(Some(1 << 20));
        assert_eq!((longest(64 << 20), longest(1000)), (LEAST_BYTES, 1000));
        let in_long_log = longest_bytes(&sim, Path::new("/db"), 64 << 20, 16 << 40);
        assert_eq!(in_long_log, 64 << 20);
        sim.hide_free_space();
        assert_eq!(longest(64 << 20), 64 << 20);
    }

    #[test]
    fn a_log_segment_sets_no_more_than_a_part_of_the_room_aside() {
        assert_eq!(preallocated_bytes(u64::MAX, 64 << 20), 64 << 20);
        assert_eq!(preallocated_bytes(160 << 20, 64 << 20), 10 << 20);
        assert_eq!(preallocated_bytes(160 << 20, 1 << 20), 1 << 20);
        assert_eq!((preallocated_bytes(160, 64 << 20), preallocated_bytes(160, 0)), (10, 0));
    }
}
