//! The links of a log: which segment each of its segments continues. They tell the numbers that the log has passed over: where
//! something else had the name of the next segment, or another file got the number, the segment got a larger one.
//!
//! Used by `terrace-inspect` and by the engine's repair, for what stands under the name of a segment and is no file.

use crate::reader::read_header_around_loss;
use crate::recover::SegmentFile;
use std::collections::BTreeMap;
use terrace_base::SegmentNumber;
use terrace_vfs::Vfs;

/// The links by which a replay gets from the last segment of a log to the first one, as far as headers tell them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Links {
    /// By the number of a segment, that of the one which it continues, whether that is there or not.
    previous: BTreeMap<SegmentNumber, SegmentNumber>,
}

impl Links {
    /// Follows the links of `segments`, which ascend, from the last one back. Where a header does not tell, it goes on with the
    /// segment before, as a replay does: what lies between these two is unknown. Reads one header for each segment.
    pub fn read(vfs: &dyn Vfs, segments: &[SegmentFile]) -> Self {
        let mut previous = BTreeMap::new();
        let mut left = segments;
        while let Some((SegmentFile { number, path }, before)) = left.split_last() {
            left = before;
            if let Ok(Ok(header)) = read_header_around_loss(vfs, path)
                && header.segment == *number
                && let Some(end) = header.previous
            {
                previous.insert(*number, end.segment);
                left = &before[..before.partition_point(|file| file.number <= end.segment)];
            }
        }
        Self { previous }
    }

    /// Whether the log went on without a segment `number`: one behind that number continues one before it.
    pub fn passed_over(&self, number: SegmentNumber) -> bool {
        let behind = self.previous.range(number.next()..).next();
        behind.is_some_and(|(_, previous)| *previous < number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LogOptions, LogPosition, LogWriter};
    use std::path::{Path, PathBuf};
    use terrace_vfs::SimVfs;

    fn path(number: u64) -> PathBuf {
        Path::new("/log").join(format!("{number:06}.log"))
    }

    /// Those of the numbers up to 20 that a log has passed over which has these segments and the links in their headers.
    fn passed_over(vfs: &SimVfs, segments: &[u64]) -> Vec<u64> {
        let file =
            |number: &u64| SegmentFile { number: SegmentNumber::new(*number), path: path(*number) };
        let segments: Vec<SegmentFile> = segments.iter().map(file).collect();
        let links = Links::read(vfs, &segments);
        (0..=20).filter(|number| links.passed_over(SegmentNumber::new(*number))).collect()
    }

    #[test]
    fn numbers_between_a_segment_and_the_one_that_it_continues_are_passed_over() {
        let vfs = SimVfs::new(1);
        vfs.create_dir_all(Path::new("/log")).unwrap();
        // Segment 12 is of a log that an earlier recovery has dropped.
        for (number, previous) in [(4, 2), (5, 4), (8, 5), (12, 9), (13, 8), (17, 13)] {
            let previous = LogPosition { segment: SegmentNumber::new(previous), offset: 44 };
            let (path, number) = (path(number), SegmentNumber::new(number));
            let options = LogOptions::default();
            let made = LogWriter::create_after(&vfs, &path, number, &options, Some(previous));
            made.unwrap().append(&[b"record"]).unwrap();
        }
        let all = [4, 5, 8, 12, 13, 17];
        assert_eq!(passed_over(&vfs, &all), [3, 6, 7, 9, 10, 11, 12, 14, 15, 16]);
        assert!(passed_over(&vfs, &[]).is_empty());
        // Behind the last one nothing tells; one that another continues was there.
        assert_eq!(passed_over(&vfs, &[4, 5, 8]), [3, 6, 7]);
        assert_eq!(passed_over(&vfs, &[4, 5, 13]), [3, 9, 10, 11, 12]);
        // Of a header that is damaged nothing is known, and those before it tell what they did.
        vfs.corrupt(path(13), 20, 0xff);
        assert_eq!(passed_over(&vfs, &[4, 5, 8, 13, 17]), [3, 6, 7, 14, 15, 16]);
        vfs.corrupt(path(17), 20, 0xff);
        assert_eq!(passed_over(&vfs, &[4, 5, 8, 13, 17]), [3, 6, 7]);
    }
}
