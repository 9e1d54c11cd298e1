//! Which adjacent files of a level a merge into a deeper one takes best: those that meet the fewest bytes there per byte of their
//! own (compact). All windows are looked at, under the scheduler's lock, for which flushes and other merges wait. So very small files
//! are not looked at one by one.

use super::pick::PickInput;
use std::ops::Range;
use terrace_manifest::FileMeta;

/// Of a level of more files than this, adjacent ones that together have at most one part in this many of what a merge takes count
/// as one.
const MANY_FILES: usize = 512;

/// What bounds the windows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// A window that has as much is large enough.
    pub wanted_bytes: u64,
    /// What a window of several files has together with what it meets, at most.
    pub most_bytes: u64,
    /// Bytes that it meets per byte of its own, at most.
    pub most_ratio: f64,
}

/// Adjacent files that count as one.
struct Part {
    files: Range<usize>,
    bytes: u64,
    /// The files of the level below from the first to the last one that it meets.
    met: Range<usize>,
    /// It is one file that may be no input, or meets one that may not.
    is_busy: bool,
}

/// Sums over the files of a level in front of each of them, and over all.
struct Sums {
    bytes: Vec<u64>,
    busy: Vec<u64>,
}

impl Sums {
    fn of(input: &PickInput<'_>, level: usize) -> Self {
        let mut sums = Self { bytes: vec![0], busy: vec![0] };
        let (mut bytes, mut busy) = (0, 0);
        for file in input.files(level) {
            bytes += file.size_bytes;
            busy += u64::from(input.is_busy(file));
            sums.bytes.push(bytes);
            sums.busy.push(busy);
        }
        sums
    }

    fn bytes_of(&self, files: &Range<usize>) -> u64 {
        self.bytes[files.end] - self.bytes[files.start]
    }

    fn any_busy(&self, files: &Range<usize>) -> bool {
        self.busy[files.end] > self.busy[files.start]
    }
}

/// Index range of the files that `file` overlaps in `level`.
pub(super) fn met_range(input: &PickInput<'_>, level: usize, file: &FileMeta) -> Range<usize> {
    input.version.level(level).overlapping_range(file.start_bound(), file.end_bound())
}

/// The files of `level` in parts, for merges of `most_bytes` into `below`, whose sums are given.
fn parts(
    input: &PickInput<'_>,
    level: usize,
    below: usize,
    most_bytes: u64,
    sums: &Sums,
) -> Vec<Part> {
    let files = input.files(level);
    let are_many = files.len() > MANY_FILES;
    let most_of_part = if are_many { most_bytes / MANY_FILES as u64 } else { 0 };
    let mut parts: Vec<Part> = Vec::new();
    for (at, file) in files.iter().enumerate() {
        let met = met_range(input, below, file);
        let is_busy = input.is_busy(file) || sums.any_busy(&met);
        if let Some(last) = parts.last_mut()
            && !(is_busy || last.is_busy)
            && last.bytes + file.size_bytes <= most_of_part
        {
            let both = last.met.start..met.end.max(last.met.end);
            // What lies between what the two meet is merged with them.
            if !sums.any_busy(&both) {
                (last.files.end, last.met) = (at + 1, both);
                last.bytes += file.size_bytes;
                continue;
            }
        }
        parts.push(Part { files: at..at + 1, bytes: file.size_bytes, met, is_busy });
    }
    parts
}

/// The windows of adjacent files of `level` that a merge into `below` may take, as index ranges, the best first: of those that
/// begin with the same file one.
pub(super) fn best_first(
    input: &PickInput<'_>,
    level: usize,
    below: usize,
    bounds: Bounds,
) -> impl Iterator<Item = Range<usize>> {
    let sums = Sums::of(input, below);
    let parts = parts(input, level, below, bounds.most_bytes, &sums);
    let mut windows: Vec<(f64, Range<usize>)> = Vec::new();
    for (first, begins) in parts.iter().enumerate() {
        let mut bytes = 0;
        let mut best: Option<(f64, Range<usize>)> = None;
        for (at, part) in parts.iter().enumerate().skip(first) {
            let met = begins.met.start..part.met.end.max(begins.met.start);
            let met_bytes = sums.bytes_of(&met);
            bytes += part.bytes;
            let is_too_large = at > first && bytes + met_bytes > bounds.most_bytes;
            if part.is_busy || sums.any_busy(&met) || is_too_large {
                break;
            }
            let ratio = met_bytes as f64 / bytes.max(1) as f64;
            if best.as_ref().is_none_or(|(least, _)| ratio <= *least) {
                best = Some((ratio, begins.files.start..part.files.end));
            }
            if bytes >= bounds.wanted_bytes {
                break;
            }
        }
        windows.extend(best.filter(|(ratio, _)| *ratio <= bounds.most_ratio));
    }
    windows.sort_by(|a, b| a.0.total_cmp(&b.0));
    windows.into_iter().map(|(_, window)| window)
}

/// Of how many parts it is that windows are looked at.
#[cfg(test)]
pub(super) fn part_count(
    input: &PickInput<'_>,
    level: usize,
    below: usize,
    most_bytes: u64,
) -> usize {
    parts(input, level, below, most_bytes, &Sums::of(input, below)).len()
}
