//! The segments of the log that a feed reads, and what keeps them: in a store that is open for writing its
//! history and a pin there, in a read-only one what a look at the directory found, under a lock that its writer minds.

use crate::batch;
use crate::error::{Error, Result};
use crate::inner::Inner;
use crate::version::log_history::{HistoryPin, HistorySegment, linked};
use crate::version::reader_pins::ReaderPin;
use std::ops::Range;
use std::path::PathBuf;
use terrace_base::{SegmentNumber, SeqNo};
use terrace_log::{LogReader, RecordKind, Step};
use terrace_manifest::names;
use terrace_vfs::is_unreadable;

/// The segments, as of the last look.
pub(super) struct Segments {
    /// Ascending; each continues the one before it.
    pub list: Vec<HistorySegment>,
    /// Why the one before them is not among them, if that is the device.
    unreadable: Option<Error>,
    keeper: Keeper,
}

/// What keeps the files.
enum Keeper {
    Writer(HistoryPin),
    Reader {
        /// None where there is no such lock.
        pin: Option<ReaderPin>,
        /// That of the look before: what the writer let go of between the two looks waits for this one only.
        _before: Option<ReaderPin>,
    },
}

impl Segments {
    /// All that there are now.
    pub fn of(inner: &Inner) -> Result<Self> {
        if inner.base.read_only {
            return Self::on_disk(inner);
        }
        let (pin, list) = inner.versions.log_history.pin();
        Ok(Self { list, unreadable: None, keeper: Keeper::Writer(pin) })
    }

    /// What the store's last look at the directory has found, and older segments.
    fn on_disk(inner: &Inner) -> Result<Self> {
        // Before the look: what is there then stays.
        let pin = ReaderPin::take(&*inner.base.vfs, &inner.base.dir)?;
        let end = inner.last_look.lock().as_ref().and_then(|look| look.log_end);
        let found = linked(&*inner.base.vfs, &inner.base.dir, end.unwrap_or_default())?;
        let unreadable = found.unreadable.map(Error::from);
        let keeper = Keeper::Reader { pin, _before: None };
        Ok(Self { list: found.segments, unreadable, keeper })
    }

    /// Looks again, for a feed that has come to segment `current`, and needs none before it.
    pub fn look_again(&mut self, inner: &Inner, current: SegmentNumber) -> Result<()> {
        match &mut self.keeper {
            Keeper::Writer(pin) => {
                pin.move_to(current);
                self.list = pin.segments();
            }
            Keeper::Reader { pin, .. } => {
                let mut now = Self::on_disk(inner)?;
                if let Keeper::Reader { _before, .. } = &mut now.keeper {
                    *_before = pin.take();
                }
                *self = now;
            }
        }
        Ok(())
    }

    /// Whether the end of segment `number`, which had none at the last look, is known by now. In a read-only store all
    /// have the end of the last look.
    pub fn has_ended(&self, number: SegmentNumber) -> bool {
        match &self.keeper {
            Keeper::Writer(pin) => !pin.is_last(number),
            Keeper::Reader { .. } => false,
        }
    }

    /// Segments before `current` are not needed any more.
    pub fn move_to(&self, current: SegmentNumber) {
        if let Keeper::Writer(pin) = &self.keeper {
            pin.move_to(current);
        }
    }

    /// For who needs a segment before those that are listed.
    ///
    /// # Errors
    /// What the device says of it, if that is why it is not listed.
    pub fn check_older(&self) -> Result<()> {
        self.unreadable.clone().map_or(Ok(()), Err)
    }

    /// The index of the newest segment that begins at or before `since`, if there is one.
    ///
    /// # Errors
    /// I/O; of a segment that the device does not give only if it is not before the one that is looked for.
    pub fn find(&self, inner: &Inner, since: SeqNo) -> Result<Option<usize>> {
        match self.search(inner, since) {
            Err(Error::Io(error)) if is_unreadable(&error) => {
                for index in (0..self.list.len()).rev() {
                    let first = self.first_of(inner, index..index + 1)?;
                    if first.is_some_and(|(_, first)| first <= since) {
                        return Ok(Some(index));
                    }
                }
                Ok(None)
            }
            found => found,
        }
    }

    /// As [`Self::find`], by halves.
    fn search(&self, inner: &Inner, since: SeqNo) -> Result<Option<usize>> {
        // Those before `low` begin at or before it; those from `high` on begin later, or have nothing.
        let (mut low, mut high) = (0, self.list.len());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.first_of(inner, middle..high)? {
                Some((index, first)) if first <= since => low = index + 1,
                _ => high = middle,
            }
        }
        Ok(low.checked_sub(1))
    }

    /// The oldest number that there is.
    pub fn oldest(&self, inner: &Inner) -> Result<Option<SeqNo>> {
        if self.list.is_empty() {
            self.check_older()?;
        }
        Ok(self.first_of(inner, 0..self.list.len())?.map(|(_, first)| first))
    }

    /// The first of these segments that has, or will have, a number, and that number.
    fn first_of(&self, inner: &Inner, range: Range<usize>) -> Result<Option<(usize, SeqNo)>> {
        for index in range {
            let segment = &self.list[index];
            let first = match segment.first_seqno {
                Some(first) => Some(first),
                None => first_seqno(inner, segment)?,
            };
            if let Some(first) = first {
                return Ok(Some((index, first)));
            }
        }
        Ok(None)
    }
}

/// The path of a segment.
pub(super) fn path_of(inner: &Inner, number: SegmentNumber) -> PathBuf {
    names::log_path(&inner.base.dir, number)
}

/// The number that the first record of a segment says; `None` if it has none.
fn first_seqno(inner: &Inner, segment: &HistorySegment) -> Result<Option<SeqNo>> {
    let vfs = &*inner.base.vfs;
    let mut reader = LogReader::open(vfs, &path_of(inner, segment.number), segment.number)?;
    while segment.end.is_none_or(|end| reader.position() < end) {
        match reader.next_beside_writer(vfs)? {
            Step::Record(record) if record.kind == RecordKind::Data => {
                return Ok(batch::decode(record.payload).map(|(first, _, _)| first));
            }
            Step::Record(_) => {}
            Step::End { .. } => break,
        }
    }
    Ok(None)
}
