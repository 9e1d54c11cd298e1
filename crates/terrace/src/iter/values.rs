//! The values of a scan: what `iter/visible` shows, with the separated values read.
//!
//! Inline values pass through as they are; all that an entry costs here is the question whether it
//! has a handle. At the first handle a *window* is gathered: that entry and those after it, in the
//! direction of the scan, are copied into buffers that are reused, and all their values are read
//! with one batch of device reads. The window after a seek has one entry, so that a seek reads one
//! value; each window that was walked to its end is followed by one of twice as many, up to
//! [`MAX_WINDOW_ENTRIES`] and as many bytes of values as the iterator may hold.
//!
//! The cursor below stands on the last entry of the window, or nowhere if it met the end or an
//! error while the window was gathered. A cursor that turns around within a window seeks the cursor back
//! to the entry that is shown. An error belongs to the entry it was met at: entries before it are
//! served first.

use crate::iter::ScanCursor;
use crate::iter::visible::Visible;
use crate::values::value_source::ValueSource;
use std::ops::Range;
use terrace_base::{Result, ValueHandle};
use terrace_buf::Slice;

/// Entries of the largest window.
const MAX_WINDOW_ENTRIES: usize = 64;

/// Bytes of values after which a window gets no more entries, where there is memory enough.
pub(crate) const MAX_WINDOW_BYTES: usize = 1 << 20;

/// Buffers larger than this are given back when their window is done.
const KEPT_BYTES: usize = 256 << 10;

/// What a scan needs of values.
pub(crate) enum Reading {
    /// The keys: every value is shown as empty.
    KeysOnly,
    /// Keys and values; the bytes of values that a window may hold besides its last entry.
    Values(Box<dyn ValueSource + Send + Sync>, usize),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Direction {
    Forward,
    Backward,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shown {
    /// What the cursor below shows, which has its value inline or is nothing.
    Through,
    /// The same, without its value.
    KeyOnly,
    /// Entry `at` of the window.
    Staged,
}

/// The visible entries of a cursor over internal keys, with their values.
pub(crate) struct Values<I> {
    visible: Visible<I>,
    shown: Shown,
    window: Window,
    reading: Reading,
}

impl<I: ScanCursor> Values<I> {
    /// What `visible` shows, with values from `reading`; shows nothing until the first seek.
    pub fn new(visible: Visible<I>, reading: Reading) -> Self {
        let shown = match reading {
            Reading::KeysOnly => Shown::KeyOnly,
            Reading::Values(..) => Shown::Through,
        };
        Self { visible, shown, window: Window::default(), reading }
    }

    /// Whether there is an entry to show.
    #[inline]
    pub fn valid(&self) -> bool {
        self.shown == Shown::Staged || self.visible.valid()
    }

    /// As [`Visible::stepped_over`].
    pub fn stepped_over(&self) -> u64 {
        self.visible.stepped_over()
    }

    /// As [`Visible::step_over_at_most`].
    pub fn step_over_at_most(&mut self, most: u64) {
        self.visible.step_over_at_most(most);
    }

    /// As [`Visible::refused_at`].
    pub fn refused_at(&self) -> Option<&[u8]> {
        self.visible.refused_at().filter(|_| !self.valid())
    }

    /// As [`Visible::covered_steps`].
    pub fn covered_steps(&self) -> u64 {
        self.visible.covered_steps()
    }

    /// The key shown. Empty if not valid.
    #[inline]
    pub fn key(&self) -> &[u8] {
        match self.shown {
            Shown::Staged => self.window.key(),
            Shown::Through | Shown::KeyOnly => self.visible.key(),
        }
    }

    /// The value shown. Empty if not valid, or if values are not wanted.
    #[inline]
    pub fn value(&self) -> &[u8] {
        match self.shown {
            Shown::Through => self.visible.value(),
            Shown::Staged => self.window.value(),
            Shown::KeyOnly => &[],
        }
    }

    /// When the entry shown expires, if it does.
    pub fn expires_at_ms(&self) -> Option<u64> {
        match self.shown {
            Shown::Staged => self.window.entries.get(self.window.at)?.expires_at_ms,
            Shown::Through | Shown::KeyOnly => self.visible.expires_at_ms(),
        }
    }

    /// Shows the first entry.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.start_over();
        self.visible.seek_to_first()?;
        self.arrive(Direction::Forward)
    }

    /// Shows the last entry.
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.start_over();
        self.visible.seek_to_last()?;
        self.arrive(Direction::Backward)
    }

    /// Shows the first entry whose key is at or after `key`.
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.start_over();
        self.visible.seek(key)?;
        self.arrive(Direction::Forward)
    }

    /// Shows the last entry whose key is at or before `key`.
    pub fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        self.start_over();
        self.visible.seek_for_prev(key)?;
        self.arrive(Direction::Backward)
    }

    /// Shows the next entry; nothing happens if not valid.
    #[inline]
    pub fn next(&mut self) -> Result<()> {
        if self.shown == Shown::Staged {
            return self.leave_staged(Direction::Forward);
        }
        self.visible.next()?;
        self.arrive(Direction::Forward)
    }

    /// Shows the previous entry; nothing happens if not valid.
    #[inline]
    pub fn prev(&mut self) -> Result<()> {
        if self.shown == Shown::Staged {
            return self.leave_staged(Direction::Backward);
        }
        self.visible.prev()?;
        self.arrive(Direction::Backward)
    }

    /// The cursor below has moved: gathers a window if it now stands on a handle.
    #[inline]
    fn arrive(&mut self, direction: Direction) -> Result<()> {
        match self.visible.shows_handle() && self.shown == Shown::Through {
            true => self.gather(direction),
            false => Ok(()),
        }
    }

    /// Before a seek: no window, and the next one small.
    fn start_over(&mut self) {
        if self.shown == Shown::Staged {
            self.shown = Shown::Through;
        }
        self.window.wanted = 0;
        self.window.clear();
    }

    /// A step from an entry of the window.
    #[cold]
    fn leave_staged(&mut self, direction: Direction) -> Result<()> {
        let window = &mut self.window;
        let is_last = window.at + 1 == window.entries.len();
        if window.direction == direction && !is_last {
            window.pass();
            return self.show_staged();
        }
        self.shown = Shown::Through;
        if window.direction == direction {
            let failure = window.failure.take();
            window.clear();
            if let Some(error) = failure {
                self.visible.leave();
                return Err(error);
            }
        } else {
            if !is_last || !self.visible.valid() {
                match direction {
                    Direction::Forward => self.visible.seek(window.key())?,
                    Direction::Backward => self.visible.seek_for_prev(window.key())?,
                }
            }
            window.wanted = 0;
            window.clear();
        }
        match direction {
            Direction::Forward => self.visible.next()?,
            Direction::Backward => self.visible.prev()?,
        }
        self.arrive(direction)
    }

    /// Stages the entry that the cursor stands on, and as many after it as the window may have;
    /// reads their values and shows the first.
    #[cold]
    fn gather(&mut self, direction: Direction) -> Result<()> {
        let Reading::Values(_, max_bytes) = &self.reading else { return Ok(()) };
        let window = &mut self.window;
        window.clear();
        if window.direction != direction {
            (window.direction, window.wanted) = (direction, 0);
        }
        window.wanted = (window.wanted * 2).clamp(1, MAX_WINDOW_ENTRIES);
        let mut stored_bytes = window.stage(&self.visible);
        while window.entries.len() < window.wanted && stored_bytes < *max_bytes {
            let moved = match direction {
                Direction::Forward => self.visible.next(),
                Direction::Backward => self.visible.prev(),
            };
            if let Err(error) = moved {
                window.failure = Some(error);
                break;
            }
            if !self.visible.valid() {
                break;
            }
            stored_bytes += window.stage(&self.visible);
        }
        self.show_staged()
    }

    /// Shows the current entry of the window, or nothing if its value cannot be read.
    fn show_staged(&mut self) -> Result<()> {
        self.shown = Shown::Staged;
        if let Reading::Values(source, max_bytes) = &self.reading
            && self.window.is_unread()
        {
            self.window.read(source.as_ref(), *max_bytes);
            self.window.keep_within(*max_bytes);
        }
        match self.window.take_error() {
            None => Ok(()),
            Some(error) => {
                self.shown = Shown::Through;
                self.window.clear();
                self.visible.leave();
                Err(error)
            }
        }
    }
}

/// Entries that the cursor has gone over, with their values.
struct Window {
    /// Keys and inline values of the entries.
    bytes: Vec<u8>,
    entries: Vec<Staged>,
    /// Which entry is shown.
    at: usize,
    /// Entries that it may have; 0 before the first window after a seek or turn.
    wanted: usize,
    direction: Direction,
    /// What the cursor met instead of an entry after the last.
    failure: Option<terrace_base::Error>,
}

struct Staged {
    key: Range<usize>,
    expires_at_ms: Option<u64>,
    value: StagedValue,
}

enum StagedValue {
    /// In the window's bytes.
    Inline(Range<usize>),
    /// Still to be read.
    Unread(ValueHandle),
    Read(Slice),
    Failed(terrace_base::Error),
}

impl Default for Window {
    fn default() -> Self {
        Self {
            bytes: Vec::new(),
            entries: Vec::new(),
            at: 0,
            wanted: 0,
            direction: Direction::Forward,
            failure: None,
        }
    }
}

impl Window {
    fn clear(&mut self) {
        self.entries.clear();
        self.bytes.clear();
        if self.bytes.capacity() > KEPT_BYTES {
            self.bytes = Vec::new();
        }
        self.at = 0;
        self.failure = None;
    }

    fn key(&self) -> &[u8] {
        self.entries.get(self.at).and_then(|e| self.bytes.get(e.key.clone())).unwrap_or(&[])
    }

    fn value(&self) -> &[u8] {
        match self.entries.get(self.at).map(|entry| &entry.value) {
            Some(StagedValue::Inline(range)) => self.bytes.get(range.clone()).unwrap_or(&[]),
            Some(StagedValue::Read(slice)) => slice,
            _ => &[],
        }
    }

    /// On to the next entry; lets go of the value of the one that is shown.
    fn pass(&mut self) {
        if let Some(entry) = self.entries.get_mut(self.at) {
            entry.value = StagedValue::Inline(0..0);
        }
        self.at += 1;
    }

    fn copy(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }

    /// Adds the entry that `visible` shows; gives the bytes of its stored value.
    fn stage<I: ScanCursor>(&mut self, visible: &Visible<I>) -> usize {
        let key = self.copy(visible.key());
        let (value, bytes) = match visible.shows_handle() {
            false => (StagedValue::Inline(self.copy(visible.value())), visible.value().len()),
            true => match visible.handle() {
                Ok(handle) => (StagedValue::Unread(handle), handle.len as usize),
                Err(error) => (StagedValue::Failed(error), 0),
            },
        };
        self.entries.push(Staged { key, expires_at_ms: visible.expires_at_ms(), value });
        bytes
    }

    /// Whether the value of the current entry is still to be read.
    fn is_unread(&self) -> bool {
        let current = self.entries.get(self.at);
        current.is_some_and(|entry| matches!(entry.value, StagedValue::Unread(_)))
    }

    /// Reads the values that are still to be read; only the first ones, if those have `max_bytes`: compressed ones may be
    /// much longer than what is stored.
    fn read(&mut self, source: &dyn ValueSource, max_bytes: usize) {
        let unread = |entry: &Staged| match entry.value {
            StagedValue::Unread(handle) => Some((entry.key.clone(), handle)),
            _ => None,
        };
        let wanted: Vec<(&[u8], ValueHandle)> = self
            .entries
            .iter()
            .filter_map(unread)
            .filter_map(|(key, handle)| Some((self.bytes.get(key)?, handle)))
            .collect();
        let mut values = match wanted.is_empty() {
            true => Vec::new(),
            false => source.read(&wanted, max_bytes),
        }
        .into_iter();
        for entry in &mut self.entries {
            if matches!(entry.value, StagedValue::Unread(_)) {
                entry.value = match values.next() {
                    Some(Ok(value)) => StagedValue::Read(value),
                    Some(Err(error)) => StagedValue::Failed(error),
                    None => break,
                };
            }
        }
    }

    /// After a read: the next window may have this many entries that their values, if they are like
    /// these, fit into `max_bytes`. What was staged by its stored length may be longer than that.
    fn keep_within(&mut self, max_bytes: usize) {
        let len = |entry: &Staged| match &entry.value {
            StagedValue::Inline(range) => range.len(),
            StagedValue::Read(value) => value.len(),
            StagedValue::Unread(_) | StagedValue::Failed(_) => 0,
        };
        let bytes: usize = self.entries.iter().map(len).sum();
        let mean = bytes / self.entries.len().max(1);
        // The next window has twice as many.
        let most = max_bytes / mean.max(1) / 2;
        self.wanted = self.wanted.min(most);
    }

    /// Why the current entry's value could not be read, if it could not.
    fn take_error(&mut self) -> Option<terrace_base::Error> {
        let value = &mut self.entries.get_mut(self.at)?.value;
        match value {
            StagedValue::Failed(_) | StagedValue::Unread(_) => {}
            StagedValue::Inline(_) | StagedValue::Read(_) => return None,
        }
        match std::mem::replace(value, StagedValue::Inline(0..0)) {
            StagedValue::Failed(error) => Some(error),
            _ => Some(unanswered()),
        }
    }
}

/// A source that gives fewer values than it was asked for breaks its contract; the entry is not
/// shown with a value that was not read.
#[cold]
fn unanswered() -> terrace_base::Error {
    terrace_base::Error::InvalidArgument("a separated value was not read".into())
}

#[cfg(test)]
mod tests;
