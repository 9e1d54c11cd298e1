//! Where data blocks begin and end on the pages of a device. A direct read transfers whole pages, so a block
//! that crosses a page boundary without need costs a page more.
//!
//! A block is cut before the entry that would cross the boundary. If little is left before it, padding fills that:
//! up to a tenth of a page, so that entries of up to 400 bytes always begin blocks on a page.
//! Otherwise the next block begins there: its first entry crosses the boundary whatever is done, so it
//! stays alone in its block, and the block after it ends at the next boundary again. At most one entry
//! per page is then read with a page more than it has to be.
//!
//! How long a compressed block is shows only when it is full. It is estimated from the blocks before. Called
//! by the writer.

use crate::block_handle::{Packed, TRAILER_BYTES};
use crate::options::PAGE_BYTES;
use terrace_compression::Compression;

/// In front of an entry that fits a page padding takes at most one byte in this many of a page. A block of its own for
/// that entry would make twice as many blocks, each with its place in the index. See decision 0024.
const PAGE_PADDING_PART: usize = 10;

/// Padding takes at most one byte in this many of the pages that a larger block or entry may fill.
const PADDING_PART: usize = 64;

/// As [`PADDING_PART`], with compression: where a block ends is known less well.
const COMPRESSED_PADDING_PART: usize = 32;

/// A compressed block that is to end at a page boundary has at least one part in this many of the largest payload.
const LEAST_PART: usize = 16;

/// Smaller blocks cannot be asked for.
const MIN_BLOCK_BYTES: usize = 16 + TRAILER_BYTES;

/// Decides where data blocks are cut and how they are padded.
pub(crate) struct PageFit {
    /// Stored bytes of a block before compression: below a page, or whole pages.
    block_bytes: usize,
    /// `None`: blocks are not compressed.
    ratio: Option<Ratio>,
}

impl PageFit {
    /// For blocks of at most `block_size` stored bytes; sizes above a page are rounded down to pages.
    pub fn new(block_size: usize, compression: Compression) -> Self {
        let block_bytes = match block_size / PAGE_BYTES {
            0 => block_size.max(MIN_BLOCK_BYTES),
            pages => pages * PAGE_BYTES,
        };
        let ratio = (compression != Compression::None).then(Ratio::default);
        Self { block_bytes, ratio }
    }

    /// Payload bytes at which a block that starts at `start` is cut.
    pub fn payload_target(&self, start: u64) -> usize {
        let most = self.block_bytes - TRAILER_BYTES;
        let page = PAGE_BYTES as u64;
        let full_end = start + self.stored_len(most) as u64;
        let boundary = full_end - full_end % page;
        if boundary <= start {
            return most;
        }
        let room = ((boundary - start) as usize).saturating_sub(TRAILER_BYTES);
        match self.ratio.as_ref().filter(|ratio| !ratio.is_one()) {
            Some(ratio) => ratio.payload_of(room).clamp(most / LEAST_PART, most),
            None => room.min(most),
        }
    }

    /// About how long a payload will be as a stored block.
    fn stored_len(&self, payload_len: usize) -> usize {
        let content = match self.ratio.as_ref().filter(|ratio| !ratio.is_one()) {
            Some(ratio) => ratio.content_of(payload_len),
            None => payload_len,
        };
        content.saturating_add(TRAILER_BYTES)
    }

    /// Bytes of padding that a packed block gets. The entry after it would take a payload of `next_len`
    /// alone; 0 if there is none.
    pub fn padding(&mut self, packed: Packed, next_len: usize) -> usize {
        if let Some(ratio) = &mut self.ratio {
            ratio.note(packed.payload_len, packed.stored_len - TRAILER_BYTES);
        }
        let end = packed.offset + packed.stored_len as u64;
        let into = (end % PAGE_BYTES as u64) as usize;
        if into == 0 {
            return 0;
        }
        let gap = PAGE_BYTES - into;
        // A block of several pages is worth as many times the padding, if that saves a page.
        let next_len = self.stored_len(next_len);
        let saves = pages(into.saturating_add(next_len)) > pages(next_len);
        let filled = match saves {
            true => self.block_bytes.max(PAGE_BYTES).max(next_len),
            false => self.block_bytes.max(PAGE_BYTES),
        };
        let most = match self.ratio {
            Some(_) => filled / COMPRESSED_PADDING_PART,
            None if next_len <= PAGE_BYTES => {
                (PAGE_BYTES / PAGE_PADDING_PART).max(filled / PADDING_PART)
            }
            None => filled / PADDING_PART,
        };
        if gap <= most { gap } else { 0 }
    }
}

fn pages(bytes: usize) -> usize {
    bytes.div_ceil(PAGE_BYTES)
}

/// What compression leaves of payloads, and how much that differs from block to block.
struct Ratio {
    /// Content bytes per [`Ratio::SCALE`] payload bytes, on average over the latest blocks.
    mean: usize,
    /// How far blocks are off the mean, on average.
    spread: usize,
    /// Blocks seen, as far as that matters.
    seen: usize,
}

impl Default for Ratio {
    /// Before the first block, as if compression saved nothing.
    fn default() -> Self {
        Self { mean: Self::SCALE, spread: 0, seen: 0 }
    }
}

impl Ratio {
    const SCALE: usize = 1 << 16;

    /// The latest blocks count this much.
    const WEIGHT: usize = 8;

    fn note(&mut self, payload_len: usize, content_len: usize) {
        let found = content_len.saturating_mul(Self::SCALE) / payload_len.max(1);
        let found = found.min(Self::SCALE);
        self.seen = (self.seen + 1).min(Self::WEIGHT);
        // The plain average of the first blocks, then one that forgets.
        let blend = |mean: usize, found: usize| (mean * (self.seen - 1) + found) / self.seen;
        let off = if self.seen == 1 { found / Self::WEIGHT } else { found.abs_diff(self.mean) };
        self.mean = blend(self.mean, found);
        self.spread = blend(self.spread, off);
    }

    /// Whether blocks are stored as they are: those that would save less than an eighth.
    fn is_one(&self) -> bool {
        self.mean >= Self::SCALE - Self::SCALE / 16
    }

    /// What most blocks stay below.
    fn high(&self) -> usize {
        (self.mean + self.spread + self.spread / 2).clamp(1, Self::SCALE)
    }

    fn content_of(&self, payload_len: usize) -> usize {
        payload_len.saturating_mul(self.high()) / Self::SCALE
    }

    fn payload_of(&self, content_len: usize) -> usize {
        content_len.saturating_mul(Self::SCALE) / self.high()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Writes blocks of entries of the given sizes, of which `percent` is left by compression; returns for each
    /// where it starts, its stored length with padding, its padding, and its number of entries.
    fn blocks(
        fit: &mut PageFit,
        sizes: &[usize],
        percent: usize,
    ) -> Vec<(u64, usize, usize, usize)> {
        let (mut written, mut start) = (Vec::new(), 0u64);
        let (mut payload_len, mut count) = (0, 0);
        let mut finish = |payload_len: usize, count: usize, next: usize, fit: &mut PageFit| {
            let stored_len = payload_len * percent / 100 + TRAILER_BYTES;
            let padding = fit.padding(Packed { offset: start, payload_len, stored_len }, next);
            written.push((start, stored_len + padding, padding, count));
            start += (stored_len + padding) as u64;
            start
        };
        let mut target = fit.payload_target(0);
        for size in sizes {
            if count > 0 && payload_len + size > target {
                let start = finish(payload_len, count, *size, fit);
                target = fit.payload_target(start);
                (payload_len, count) = (0, 0);
            }
            payload_len += size;
            count += 1;
        }
        finish(payload_len, count, 0, fit);
        written
    }

    fn pages_of(start: u64, len: usize) -> usize {
        pages((start % PAGE_BYTES as u64) as usize + len)
    }

    proptest! {
        #[test]
        fn no_block_of_several_entries_reads_a_page_too_many(
            sizes in proptest::collection::vec(prop_oneof![1usize..200, 300usize..500, 1usize..9000], 1..400),
            block_size in prop_oneof![Just(128), Just(1000), Just(4096), Just(5000), Just(16 << 10)],
        ) {
            let mut fit = PageFit::new(block_size, Compression::None);
            let most = (block_size.max(9000) / PADDING_PART).max(PAGE_BYTES / PAGE_PADDING_PART);
            for (start, len, padding, count) in blocks(&mut fit, &sizes, 100) {
                let whole_pages = (block_size / PAGE_BYTES).max(1);
                prop_assert!(count == 1 || len - padding <= block_size);
                prop_assert!(count == 1 || pages_of(start, len) <= whole_pages);
                prop_assert!(padding <= most, "{padding}");
                prop_assert!(padding == 0 || (start + len as u64).is_multiple_of(PAGE_BYTES as u64));
            }
        }

        #[test]
        fn any_lengths_are_counted(
            lens in proptest::collection::vec((0usize..1 << 31, 0usize..1 << 31), 1..20),
            offset in 0u64..1 << 60, next: usize,
        ) {
            let mut fit = PageFit::new(PAGE_BYTES, Compression::Lz4);
            for (payload_len, content_len) in lens {
                let stored_len = content_len + TRAILER_BYTES;
                let padding = fit.padding(Packed { offset, payload_len, stored_len }, next);
                prop_assert!(padding < PAGE_BYTES);
                prop_assert!(fit.payload_target(offset) < PAGE_BYTES);
            }
        }
    }

    #[test]
    fn blocks_of_even_compression_fill_pages() {
        for percent in [20, 45, 55, 70] {
            let mut fit = PageFit::new(PAGE_BYTES, Compression::Lz4);
            let written = blocks(&mut fit, &[40; 20_000], percent);
            let read: usize =
                written.iter().map(|(start, len, _, n)| n * pages_of(*start, *len)).sum();
            assert!(read <= 20_000 * 103 / 100, "{percent} %: {read}");
            assert!(written.iter().all(|(_, len, ..)| *len <= PAGE_BYTES));
        }
    }

    #[test]
    fn a_block_of_many_pages_begins_with_one_if_that_saves_a_page() {
        let packed = |end: u64| Packed { offset: 0, payload_len: 0, stored_len: end as usize };
        let padding =
            |end, next| PageFit::new(PAGE_BYTES, Compression::None).padding(packed(end), next);
        assert_eq!(padding(4096 - 409, 420), 409);
        assert_eq!(padding(4096 - 410, 420), 0);
        let larger = PAGE_BYTES - TRAILER_BYTES + 1;
        assert_eq!((padding(4096 - 64, larger), padding(4096 - 65, larger)), (64, 0));
        assert_eq!(padding(4096, 100), 0);
        // From 1,000 bytes before the boundary, 20 pages less a trailer take one more than they have to.
        let twenty = 20 * PAGE_BYTES - TRAILER_BYTES;
        assert_eq!(padding(4096 - 1000, twenty), 1000);
        assert_eq!(padding(4096 - 1000, twenty - 3200), 0);
        assert_eq!(padding(4096 - 1300, twenty), 0, "more than a part in {PADDING_PART}");
    }
}
