//! Reading one segment record by record with bounded memory, and finding the next sound record
//! after damage.
//!
//! A record is trusted only after its checksum matched, and a length only after it was compared
//! with the file. A record over `WHOLE_BYTES` is checked in pieces before memory for it is
//! taken, so that a damaged length costs time, not memory.
//!
//! Used by [`crate::recover()`], [`crate::dump`] and `terrace-inspect`.

mod sum_budget;

use crate::format::{
    self, HEADER_BYTES, Header, HeaderFault, LogPosition, RECORD_HEADER_BYTES, RecordType,
};
use crate::window::{CHUNK_BYTES, Window, is_cut};
use crc32c::crc32c_append;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use sum_budget::SumBudget;
use terrace_base::{Error, Result, SegmentNumber};
use terrace_vfs::{LOST_PAGE_BYTES, OpenMode, RandomFile, Vfs, check_not_encrypted};

/// Payloads up to this length are read whole before their checksum is known to match.
const WHOLE_BYTES: usize = 1 << 20;

/// A record over this length is looked at by [`LogReader::resync`] only if it could be one.
const LONG_BYTES: u64 = 64 << 10;

/// Why bytes are no record or header that the file system knows to be damaged.
const DAMAGED: &str = "what is stored here is not what was written";

/// What a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordKind {
    /// A payload of the log's user.
    Data,
    /// A statement about durability.
    SyncMarker(LogPosition),
    /// A separated value; never in a commit log or manifest.
    Value,
}

/// One sound record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// File offset of its first byte.
    pub offset: u64,
    /// Data, marker or value.
    pub kind: RecordKind,
    /// The payload; of a marker too.
    pub payload: &'a [u8],
}

/// What the next read of a segment found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step<'a> {
    /// A sound record.
    Record(Record<'a>),
    /// No sound record follows directly. Stays so until [`LogReader::resync`].
    End {
        /// Where the sound records end.
        offset: u64,
        /// Why the bytes there are no record; `None` at the end of the file or where only zeros
        /// (preallocated room) follow.
        torn: Option<String>,
    },
}

/// What stands at an offset.
enum Found {
    Record {
        kind: RecordKind,
        payload_bytes: usize,
    },
    /// The end of the file, or zeros up to it.
    Nothing,
    /// Neither.
    Torn(String),
}

/// Streams the records of one segment.
pub struct LogReader {
    window: Window,
    /// What [`LogReader::resync`] looks at elsewhere.
    aside: Window,
    segment: SegmentNumber,
    segment_seed: u32,
    header: std::result::Result<Header, String>,
    /// Where the next record is expected; 0 while the header is unsound.
    position: u64,
    /// What [`LogReader::resync`] may still sum up.
    sums: SumBudget,
    /// What [`LogReader::content_end`] has found.
    content_end: Option<u64>,
    /// Set at an end, with why.
    ended: Option<Option<String>>,
}

/// What the bytes of a header are.
type HeaderResult = std::result::Result<Header, HeaderFault>;

/// Reads the header of whatever segment is at `path`.
///
/// # Errors
/// I/O, and `Unsupported` for a file that is encrypted; what the bytes are is in the inner result. Bytes that the
/// device does not give are damaged.
pub fn read_header_around_loss(vfs: &dyn Vfs, path: &Path) -> Result<HeaderResult> {
    header_by(vfs, path, |file, bytes, damaged| {
        file.read_around_loss(0, bytes, damaged, LOST_PAGE_BYTES)
    })
}

/// As [`read_header_around_loss`], but that bytes which the device does not give are an I/O error: it may pass.
///
/// # Errors
/// I/O, and `Unsupported` for a file that is encrypted.
pub fn read_header(vfs: &dyn Vfs, path: &Path) -> Result<HeaderResult> {
    header_by(vfs, path, |file, bytes, damaged| file.read_around_damage(0, bytes, damaged))
}

fn header_by(
    vfs: &dyn Vfs,
    path: &Path,
    read: impl FnOnce(&dyn RandomFile, &mut [u8], &mut Vec<Range<u64>>) -> Result<()>,
) -> Result<HeaderResult> {
    let file = vfs.open(path, OpenMode::default())?;
    check_not_encrypted(&*file)?;
    let mut bytes = [0; HEADER_BYTES as usize];
    let bytes = &mut bytes[..file.len().min(HEADER_BYTES) as usize];
    let mut damaged = Vec::new();
    read(&*file, bytes, &mut damaged)?;
    Ok(sound_header(bytes, damaged.is_empty()))
}

/// The header in `bytes`, which the file system may know to be damaged.
fn sound_header(bytes: &[u8], is_sound: bool) -> HeaderResult {
    match is_sound {
        true => format::decode_header(bytes),
        false => Err(HeaderFault::Damaged(DAMAGED.into())),
    }
}

impl LogReader {
    /// Opens segment `segment`, to which a writer may be appending. A header that a crash can leave behind (missing,
    /// cut, zeros, bad checksum) is reported by the first [`LogReader::next`] as an end at offset 0.
    ///
    /// # Errors
    /// `Unsupported` for another format version; `Corruption` for a sound header of another
    /// segment, which means that files were swapped or renamed.
    pub fn open(vfs: &dyn Vfs, path: &Path, segment: SegmentNumber) -> Result<Self> {
        Self::open_with(vfs, path, segment, Window::new)
    }

    /// As [`LogReader::open`], to save what is left of the segment: sectors that the device does not give are damage, and
    /// [`LogReader::resync`] goes on behind them. Not for recovery, which may take damage for a torn tail.
    ///
    /// # Errors
    /// As [`LogReader::open`].
    pub fn open_around_loss(vfs: &dyn Vfs, path: &Path, segment: SegmentNumber) -> Result<Self> {
        Self::open_with(vfs, path, segment, Window::around_loss)
    }

    fn open_with(
        vfs: &dyn Vfs,
        path: &Path,
        segment: SegmentNumber,
        window: fn(Arc<dyn RandomFile>) -> Window,
    ) -> Result<Self> {
        let file = vfs.open(path, OpenMode::default())?;
        check_not_encrypted(&*file)?;
        let mut window = window(file);
        let len = window.get(0, HEADER_BYTES as usize)?.len();
        let header = match sound_header(window.loaded(0, len), window.is_sound(0, len)) {
            Ok(header) if header.segment == segment => Ok(header),
            Ok(header) => {
                let found = header.segment;
                let detail = format!(
                    "this is log segment {found} under the name of segment {segment}; give the \
                     files their own names back"
                );
                return Err(Error::corruption(path, 12, detail));
            }
            Err(HeaderFault::Damaged(why)) => Err(why),
            Err(HeaderFault::Version(version)) => return Err(unsupported_version(path, version)),
        };
        let position = if header.is_ok() { HEADER_BYTES } else { 0 };
        let segment_seed = format::segment_seed(segment);
        let sums = SumBudget::of(window.file_bytes());
        Ok(Self {
            aside: window.aside(),
            window,
            segment,
            segment_seed,
            header,
            position,
            sums,
            content_end: None,
            ended: None,
        })
    }

    /// The end of the log that this segment continues, from its header.
    pub fn previous(&self) -> Option<LogPosition> {
        self.header.as_ref().ok().and_then(|header| header.previous)
    }

    /// Whether the header is sound.
    pub fn has_header(&self) -> bool {
        self.header.is_ok()
    }

    /// The segment number.
    pub fn segment(&self) -> SegmentNumber {
        self.segment
    }

    /// Where the next record is expected.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The file's length when it was opened, or what a writer has cut it to since.
    pub fn file_bytes(&self) -> u64 {
        self.window.file_bytes()
    }

    /// Bytes of memory the reader holds for file contents.
    pub fn buffered_bytes(&self) -> usize {
        self.window.buffered_bytes() + self.aside.buffered_bytes()
    }

    /// The next record, or why there is none.
    ///
    /// # Errors
    /// I/O; `Unsupported` for a sound record of a type this build does not know.
    #[allow(clippy::should_implement_trait)] // Lends its payload, which `Iterator` cannot.
    pub fn next(&mut self) -> Result<Step<'_>> {
        let offset = self.position;
        if self.ended.is_none() {
            let found = self.find(offset)?;
            return Ok(self.step(offset, found));
        }
        Ok(Step::End { offset, torn: self.ended.clone().flatten() })
    }

    /// As [`LogReader::next`], of a segment that a writer may be appending to or finishing: an end is
    /// reported only after the file was opened again and had no sound record there either. A later call
    /// looks again.
    ///
    /// # Errors
    /// As [`LogReader::next`].
    pub fn next_beside_writer(&mut self, vfs: &dyn Vfs) -> Result<Step<'_>> {
        let offset = self.position;
        let mut found = self.find_if_there(offset)?;
        if !matches!(found, Found::Record { .. }) {
            let mut fresh = Self::open(vfs, self.window.file().path(), self.segment)?;
            fresh.position = fresh.position.max(offset);
            *self = fresh;
            found = self.find_if_there(offset)?;
        }
        Ok(self.step(offset, found))
    }

    /// What stands at `offset`. Zeros are taken for preallocated room, and so is what a writer has cut off
    /// since the file was opened.
    fn find_if_there(&mut self, offset: u64) -> Result<Found> {
        match self.window.get(offset, RECORD_HEADER_BYTES) {
            Ok(head) if head.iter().all(|byte| *byte == 0) => Ok(Found::Nothing),
            Ok(_) => match self.find(offset) {
                Err(error) if is_cut(&error) => Ok(Found::Nothing),
                found => found,
            },
            Err(error) if is_cut(&error) => Ok(Found::Nothing),
            Err(error) => Err(error),
        }
    }

    /// What stands at `offset`, where a record is expected.
    fn find(&mut self, offset: u64) -> Result<Found> {
        match &self.header {
            Err(why) if offset < HEADER_BYTES => Ok(Found::Torn(why.clone())),
            _ => self.examine(offset),
        }
    }

    /// Moves past a record that was found at `offset`, or notes the end there.
    fn step(&mut self, offset: u64, found: Found) -> Step<'_> {
        match found {
            Found::Record { kind, payload_bytes } => {
                let start = offset + RECORD_HEADER_BYTES as u64;
                self.position = start + payload_bytes as u64;
                let payload = self.window.loaded(start, payload_bytes);
                return Step::Record(Record { offset, kind, payload });
            }
            Found::Nothing => self.ended = Some(None),
            Found::Torn(why) => self.ended = Some(Some(why)),
        }
        Step::End { offset, torn: self.ended.clone().flatten() }
    }

    /// Opens the file again, for a writer may have appended to it. True if a sound record stands
    /// where none did: [`LogReader::next`] then goes on with it. Else nothing changes.
    pub(crate) fn look_again(&mut self, vfs: &dyn Vfs) -> Result<bool> {
        let window: fn(Arc<dyn RandomFile>) -> Window = match self.window.salvages() {
            true => Window::around_loss,
            false => Window::new,
        };
        let mut fresh = Self::open_with(vfs, self.window.file().path(), self.segment, window)?;
        fresh.position = fresh.position.max(self.position);
        let grown =
            fresh.header.is_ok() && matches!(fresh.examine(fresh.position)?, Found::Record { .. });
        if grown {
            *self = fresh;
        }
        Ok(grown)
    }

    /// Skips damage: moves to the next sound record after the current position and returns its
    /// offset, or `None` if there is none. For inspection only; recovery never reads past damage.
    pub fn resync(&mut self) -> Result<Option<u64>> {
        let last = self.window.file_bytes().saturating_sub(RECORD_HEADER_BYTES as u64);
        let first = (self.position + 1).max(HEADER_BYTES);
        let mut offset = first;
        while offset <= last {
            let is_zeros =
                self.window.get(offset, RECORD_HEADER_BYTES)?.iter().all(|byte| *byte == 0);
            if let Some(until) = self.window.damaged_until(offset, RECORD_HEADER_BYTES) {
                offset = until.max(offset + 1);
                continue;
            }
            // Zeros are no records, however many there are.
            if is_zeros {
                let Some(at) = self.first_nonzero(offset)? else { return Ok(None) };
                offset = (offset + 1).max(at - (RECORD_HEADER_BYTES as u64 - 1));
                continue;
            }
            if let Some(after) = self.candidate(offset)? {
                if matches!(self.examine(offset), Ok(Found::Record { .. })) {
                    self.position = offset;
                    self.ended = None;
                    return Ok(Some(offset));
                }
                let summed = after - offset;
                if summed > LONG_BYTES
                    && let Some(left) = self.bytes_left(after)?
                {
                    *left = left.saturating_sub(summed);
                }
            }
            offset += 1;
        }
        Ok(None)
    }

    /// Classifies the bytes at `offset`; a sound record's payload is then in the window.
    fn examine(&mut self, offset: u64) -> Result<Found> {
        let head = self.window.get(offset, RECORD_HEADER_BYTES)?;
        let (is_zeros, head) = (
            head.iter().all(|byte| *byte == 0),
            head.first_chunk::<RECORD_HEADER_BYTES>().copied(),
        );
        let rest = self.window.file_bytes().saturating_sub(offset);
        if !self.window.is_sound(offset, RECORD_HEADER_BYTES) {
            return Ok(Found::Torn(DAMAGED.into()));
        }
        if is_zeros {
            return Ok(match self.first_nonzero(offset)? {
                None => Found::Nothing,
                Some(at) => {
                    Found::Torn(format!("zeros stand where a record should, with data at {at}"))
                }
            });
        }
        let Some(head) = head else {
            return Ok(Found::Torn("the file ends inside a record header".into()));
        };
        let (stored, payload_bytes, kind) = format::split_record_header(&head);
        let room = rest - RECORD_HEADER_BYTES as u64;
        if u64::from(payload_bytes) > room {
            return Ok(Found::Torn(format!(
                "a record of {payload_bytes} payload bytes begins here and the file has {room}"
            )));
        }
        let payload_bytes = payload_bytes as usize;
        let start = offset + RECORD_HEADER_BYTES as u64;
        let sum = format::checksum_start(self.segment_seed, offset, &head);
        let computed = if payload_bytes <= WHOLE_BYTES {
            crc32c_append(sum, self.window.get(start, payload_bytes)?)
        } else {
            self.checksum_in_pieces(sum, start, payload_bytes)?
        };
        if computed != stored {
            return Ok(Found::Torn(format!(
                "the record checksum is {stored:08x}, its bytes give {computed:08x}"
            )));
        }
        // Whatever the checksum says: those who damage parts of a long record can choose parts so that it fits.
        self.window.get(start, payload_bytes)?;
        if !self.window.is_sound(start, payload_bytes) {
            return Ok(Found::Torn(DAMAGED.into()));
        }
        let path = self.window.file().path();
        let kind = match RecordType::from_byte(kind) {
            Some(RecordType::Data) => RecordKind::Data,
            Some(RecordType::SyncMarker) => {
                let marker = format::decode_marker(self.window.get(start, payload_bytes)?);
                RecordKind::SyncMarker(marker.ok_or_else(|| {
                    let detail = format!("a sync marker of {payload_bytes} payload bytes");
                    Error::corruption(self.window.file().path(), offset, detail)
                })?)
            }
            Some(RecordType::Value) => RecordKind::Value,
            None => {
                let detail = format!(
                    "the record at offset {offset} has type {kind}, which this build does not \
                     read; open it with the build that wrote it"
                );
                return Err(Error::Unsupported { path: path.to_path_buf(), detail });
            }
        };
        Ok(Found::Record { kind, payload_bytes })
    }

    fn checksum_in_pieces(&mut self, sum: u32, start: u64, len: usize) -> Result<u32> {
        let mut sum = sum;
        let mut done = 0;
        while done < len {
            let piece = self.window.get(start + done as u64, CHUNK_BYTES.min(len - done))?;
            if piece.is_empty() {
                // The file has been cut: the sum fits nothing.
                break;
            }
            sum = crc32c_append(sum, piece);
            done += piece.len();
        }
        Ok(sum)
    }

    /// The first byte from `from` on that is not zero, or is damaged.
    fn first_nonzero(&mut self, from: u64) -> Result<Option<u64>> {
        let mut offset = from;
        while offset < self.window.file_bytes() {
            let bytes = self.window.get_loaded(offset)?;
            let len = bytes.len();
            let at = bytes.iter().position(|byte| *byte != 0).map(|at| offset + at as u64);
            let damaged = self.window.first_damage(offset, len);
            if let Some(at) = [at, damaged].into_iter().flatten().min() {
                return Ok(Some(at));
            }
            offset += len as u64;
        }
        Ok(None)
    }

    /// Where the record at `offset` would end, if it is worth computing a checksum there. A long record must be followed by
    /// the end, zeros or another plausible header: random bytes would otherwise cost a checksum
    /// over much of the file each. When many such were none, it must be followed by a short record that is one, or by nothing.
    fn candidate(&mut self, offset: u64) -> Result<Option<u64>> {
        let file_bytes = self.window.file_bytes();
        let head = self.window.get(offset, RECORD_HEADER_BYTES)?;
        let Some(after) = plausible(head, offset, file_bytes) else { return Ok(None) };
        if after - offset <= LONG_BYTES {
            return Ok(Some(after));
        }
        // The window stays: it would be read again for every such offset.
        let head = self.aside.get(after, RECORD_HEADER_BYTES)?;
        let Some(next) = plausible(head, after, file_bytes) else { return Ok(None) };
        let left = self.bytes_left(after)?.copied();
        let is_worth_it = match left {
            Some(left) => left > 0,
            None => self.is_short_record(after, next)?,
        };
        Ok(is_worth_it.then_some(after))
    }

    /// What may still be summed up of long records up to `after` that turn out to be none ([`SumBudget::left`]).
    fn bytes_left(&mut self, after: u64) -> Result<Option<&mut u64>> {
        let end = if self.sums.is_short() { self.content_end()? } else { 0 };
        Ok(self.sums.left(after, end))
    }

    /// Behind the last byte of the file that is not zero, or is damaged: there is nothing but room that was set aside.
    fn content_end(&mut self) -> Result<u64> {
        if let Some(end) = self.content_end {
            return Ok(end);
        }
        let mut end = self.window.file_bytes();
        while end > 0 {
            let start = end.saturating_sub(CHUNK_BYTES as u64);
            let len = (end - start) as usize;
            let bytes = self.aside.get(start, len)?;
            let last = bytes.iter().rposition(|byte| *byte != 0).map(|at| start + at as u64 + 1);
            if let Some(found) = last.max(self.aside.end_of_damage(start, len)) {
                end = found;
                break;
            }
            end = start;
        }
        self.content_end = Some(end);
        Ok(end)
    }

    /// Whether the bytes between two offsets are a record that is not long.
    fn is_short_record(&mut self, offset: u64, end: u64) -> Result<bool> {
        if end - offset > LONG_BYTES {
            return Ok(false);
        }
        let len = (end - offset) as usize;
        self.aside.get(offset, len)?;
        let (bytes, is_sound) = (self.aside.loaded(offset, len), self.aside.is_sound(offset, len));
        let Some((head, payload)) = bytes.split_first_chunk::<RECORD_HEADER_BYTES>() else {
            return Ok(false);
        };
        let sum = format::checksum_start(self.segment_seed, offset, head);
        Ok(is_sound && crc32c_append(sum, payload) == format::split_record_header(head).0)
    }
}

/// Where the record with `head` at `offset` would end, if its type and length make sense.
fn plausible(head: &[u8], offset: u64, file_bytes: u64) -> Option<u64> {
    let Some(head) = head.first_chunk::<RECORD_HEADER_BYTES>() else {
        return head.iter().all(|byte| *byte == 0).then_some(offset);
    };
    let (_, payload_bytes, kind) = format::split_record_header(head);
    let record_bytes = u64::from(payload_bytes) + RECORD_HEADER_BYTES as u64;
    let known = RecordType::from_byte(kind).is_some() || *head == [0; RECORD_HEADER_BYTES];
    (known && record_bytes <= file_bytes.saturating_sub(offset)).then_some(offset + record_bytes)
}

/// The error for a segment of a format version that this build does not read.
pub fn unsupported_version(path: &Path, version: u32) -> Error {
    let detail = format!(
        "log format version {version}; this build reads version {}",
        format::FORMAT_VERSION
    );
    Error::Unsupported { path: path.to_path_buf(), detail }
}

#[cfg(test)]
mod damage_tests;
#[cfg(test)]
mod tests;
