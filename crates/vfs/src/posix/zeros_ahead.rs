//! Room for short appends through the page cache, written as zeros ahead of them ([`CreateOptions::zeros_ahead`]).
//!
//! An append that lengthens a file pays for each page that it begins: the kernel takes the page, reserves its place on
//! the device, and clears what is not written. A longer write does that once for many pages. So zeros are written in
//! steps of [`STEP_BYTES`], which are as long as appends like to have it, and the appends go into pages that are there.
//!
//! Zeros are no content, and not counted as written: nearly all are replaced before the kernel writes their page out.
//!
//! [`CreateOptions::zeros_ahead`]: crate::CreateOptions::zeros_ahead

use crate::MOST_ZEROS_AHEAD_BYTES;

/// Zeros are written up to a multiple of this. Twice as much is a little cheaper still, but memory in pieces of that length is
/// harder to find for a kernel whose memory is full of files.
const STEP_BYTES: u64 = MOST_ZEROS_AHEAD_BYTES;

/// A file has none ahead before it has this many bytes itself: a short one is not to be mostly zeros.
const LEAST_FILE_BYTES: u64 = STEP_BYTES;

/// Appends from this length on begin pages by themselves about as cheaply.
const LONG_APPEND_BYTES: u64 = STEP_BYTES / 8;

static ZEROS: [u8; STEP_BYTES as usize] = [0; STEP_BYTES as usize];

/// Zeros to be written.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Zeros {
    pub(super) start: u64,
    end: u64,
}

impl Zeros {
    pub(super) fn bytes(&self) -> &'static [u8] {
        &ZEROS[..(self.end - self.start) as usize]
    }
}

/// The room that is ahead in one file.
#[derive(Debug)]
pub(super) struct ZerosAhead {
    is_wanted: bool,
    /// Behind the zeros; no more than the length of what was appended if there are none.
    pub(super) end: u64,
}

impl ZerosAhead {
    pub(super) fn new(is_wanted: bool) -> Self {
        Self { is_wanted, end: 0 }
    }

    /// What to write before an append of `data_len` bytes at `len`, if anything.
    #[inline]
    pub(super) fn due(&self, len: u64, data_len: usize) -> Option<Zeros> {
        let end = len + data_len as u64;
        if end <= self.end
            || !self.is_wanted
            || len < LEAST_FILE_BYTES
            || data_len as u64 >= LONG_APPEND_BYTES
        {
            return None;
        }
        let step_end = end.next_multiple_of(STEP_BYTES);
        // Never over what was appended, and no more than a step: what lies before it the append itself fills.
        let start = self.end.max(len).max(step_end - STEP_BYTES);
        Some(Zeros { start, end: step_end })
    }

    /// How it went. Where there is no room for zeros there is none for more: what is appended finds the last of it.
    pub(super) fn note(&mut self, zeros: &Zeros, is_written: bool) {
        match is_written {
            true => self.end = zeros.end,
            false => self.is_wanted = false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(ahead: &ZerosAhead, len: u64, data_len: usize) -> Option<(u64, u64)> {
        ahead.due(len, data_len).map(|zeros| (zeros.start, zeros.end))
    }

    #[test]
    fn zeros_go_to_the_next_step_ahead_of_short_appends() {
        let mut ahead = ZerosAhead::new(true);
        assert_eq!(due(&ahead, LEAST_FILE_BYTES - 1, 1), None);
        let len = STEP_BYTES + 5;
        assert_eq!(due(&ahead, len, LONG_APPEND_BYTES as usize), None);
        assert_eq!(due(&ahead, len, 100), Some((len, 2 * STEP_BYTES)));
        ahead.note(&Zeros { start: len, end: 2 * STEP_BYTES }, true);
        assert_eq!(due(&ahead, 2 * STEP_BYTES - 100, 100), None);
        let len = 2 * STEP_BYTES - 99;
        assert_eq!(due(&ahead, len, 100), Some((2 * STEP_BYTES, 3 * STEP_BYTES)));
        // After a long append that went past them.
        assert_eq!(due(&ahead, 2 * STEP_BYTES + 7, 1), Some((2 * STEP_BYTES + 7, 3 * STEP_BYTES)));
        ahead.note(&Zeros { start: len, end: 3 * STEP_BYTES }, false);
        assert_eq!(due(&ahead, len, 100), None);
        assert_eq!(due(&ZerosAhead::new(false), len, 100), None);
    }

    #[test]
    fn wherever_the_file_ends_zeros_stand_behind_its_content_and_within_a_step() {
        // Where there are none, as after a long append or a `finish`, and up to where the file ends.
        for (has_none, data_len) in
            [(true, 1), (true, 100), (true, LONG_APPEND_BYTES - 1), (false, 100)]
        {
            for len in 2 * STEP_BYTES - LONG_APPEND_BYTES..2 * STEP_BYTES + LONG_APPEND_BYTES {
                let mut ahead = ZerosAhead::new(true);
                ahead.end = if has_none { len - len % 7 } else { len };
                let zeros = ahead.due(len, data_len as usize).unwrap();
                assert_eq!(zeros.bytes().len() as u64, zeros.end - zeros.start);
                assert!(zeros.start >= len && zeros.end >= len + data_len, "{zeros:?} at {len}");
                assert!(zeros.end - (len + data_len) < MOST_ZEROS_AHEAD_BYTES);
            }
        }
    }
}
