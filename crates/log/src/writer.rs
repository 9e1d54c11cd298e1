//! Writing one segment: frames payloads in one reused buffer and hands each call's records to the
//! kernel in one append.
//!
//! After any failed append or sync the writer refuses everything: the file may hold half a record,
//! and what follows half a record is never read. The log goes on in a new segment made with
//! [`LogWriter::create_after`] and [`LogWriter::end`]. Records of earlier calls that a buffered writer still holds go into
//! that one by [`LogWriter::carry_over`]: nothing of them is lost.
//!
//! Used by the engine's commit path and by `terrace-manifest`.

use crate::format::{
    self, Header, LogPosition, MARKER_PAYLOAD_BYTES, MAX_PAYLOAD_BYTES, RECORD_HEADER_BYTES,
    RecordType,
};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace_base::{Error, Result, SegmentNumber};
use terrace_vfs::{AppendFile, CreateOptions, SyncHandle, Vfs};

/// A buffered writer hands its records to the kernel when it holds this much.
pub const BUFFER_BYTES: usize = 64 << 10;

/// Records of one call past this many bytes take more than one append, and a payload of this
/// length is handed over where it stands instead of being copied: memory stays bounded.
pub const STREAM_BYTES: usize = 1 << 20;

/// How a segment is written.
#[derive(Debug, Clone, Default)]
pub struct LogOptions {
    /// Room reserved on the device when the segment is created, 0 for none.
    pub preallocate_bytes: u64,
    /// See [`CreateOptions::zeros_ahead`].
    pub zeros_ahead: bool,
    /// Keep records in the process until [`LogWriter::flush`], [`LogWriter::sync`] or
    /// [`BUFFER_BYTES`].
    pub buffered: bool,
}

/// A file that an earlier process wrote.
struct Finished {
    vfs: Arc<dyn Vfs>,
    path: PathBuf,
    len: u64,
}

impl Finished {
    fn refusal(&self, op: &'static str) -> Error {
        Error::io(op, &self.path, io::Error::other("an earlier process finished this file"))
    }
}

impl AppendFile for Finished {
    fn append(&mut self, _data: &[u8]) -> Result<()> {
        Err(self.refusal("append"))
    }

    fn sync(&mut self) -> Result<()> {
        self.vfs.sync_file(&self.path)
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }

    fn cut(&mut self, _len: u64) -> Result<()> {
        Err(self.refusal("cut"))
    }
}

/// Appends records to a segment.
pub struct LogWriter {
    file: Box<dyn AppendFile>,
    segment: SegmentNumber,
    segment_seed: u32,
    /// Framed records that the kernel does not have yet.
    buffer: Vec<u8>,
    /// File bytes the kernel has, all of them whole records.
    handed_bytes: u64,
    buffered: bool,
    /// Set by the first failure, never cleared.
    failed: bool,
    /// Set by the first failed sync: it is not known what the device has, and never will be.
    sync_failed: bool,
    /// File bytes that are durable.
    synced_bytes: u64,
    /// What the next marker states.
    pending: Option<LogPosition>,
    /// What the last marker stated.
    stated: LogPosition,
}

impl LogWriter {
    /// Creates segment `segment` (not 0) at `path`, which must not exist. The directory is not
    /// synced: do so before anything in the segment is called durable.
    ///
    /// The header names no predecessor: recovery goes from the segment before to this one if that
    /// one ends cleanly. To continue a log after a rotation, a failed append or a recovery use
    /// [`LogWriter::create_after`].
    pub fn create(
        vfs: &dyn Vfs,
        path: &Path,
        segment: SegmentNumber,
        options: &LogOptions,
    ) -> Result<Self> {
        Self::create_after(vfs, path, segment, options, None)
    }

    /// As [`LogWriter::create`], for a segment that continues the log at `previous`: the
    /// [`LogWriter::end`] of the writer before, or the `end` of a recovery.
    ///
    /// Recovery then reads the previous segment exactly up to there: less is a hole and stops it,
    /// more was dropped before this segment began and stays dropped.
    pub fn create_after(
        vfs: &dyn Vfs,
        path: &Path,
        segment: SegmentNumber,
        options: &LogOptions,
        previous: Option<LogPosition>,
    ) -> Result<Self> {
        let follows =
            |before: LogPosition| before.segment != SegmentNumber::ZERO && before.segment < segment;
        if segment == SegmentNumber::ZERO || !previous.is_none_or(follows) {
            return Err(Error::InvalidArgument(format!(
                "log segment {segment} after {previous:?}: numbers start at 1 and ascend"
            )));
        }
        let LogOptions { preallocate_bytes, zeros_ahead, .. } = *options;
        let create =
            CreateOptions { preallocate_bytes, zeros_ahead, grows: true, ..Default::default() };
        let mut file = vfs.create(path, &create)?;
        file.append(&format::encode_header(&Header { segment, previous }))?;
        Ok(Self {
            file,
            segment,
            segment_seed: format::segment_seed(segment),
            buffer: Vec::with_capacity(BUFFER_BYTES),
            handed_bytes: format::HEADER_BYTES,
            buffered: options.buffered,
            failed: false,
            sync_failed: false,
            synced_bytes: 0,
            pending: None,
            stated: LogPosition::START,
        })
    }

    /// Stands for a segment of an earlier process that ends at `end`: takes no records, but can be
    /// made durable and be continued by another one.
    pub fn finished(vfs: Arc<dyn Vfs>, path: &Path, end: LogPosition) -> Self {
        let file = Finished { vfs, path: path.to_path_buf(), len: end.offset };
        Self {
            file: Box::new(file),
            segment: end.segment,
            segment_seed: format::segment_seed(end.segment),
            buffer: Vec::new(),
            handed_bytes: end.offset,
            buffered: false,
            failed: true,
            sync_failed: false,
            synced_bytes: 0,
            pending: None,
            stated: LogPosition::START,
        }
    }

    /// Appends one record per payload; returns the file offset of the first. All of them go to
    /// the kernel in one append (in more only past [`STREAM_BYTES`]), or stay in the buffer if the
    /// writer is buffered. With no payload only a pending sync marker is written.
    ///
    /// # Errors
    /// I/O, and [`Error::InvalidArgument`] for a payload that is too long. None of these records is part of the log then.
    #[inline]
    pub fn append(&mut self, payloads: &[&[u8]]) -> Result<u64> {
        let start = self.len_bytes();
        let outcome = self.append_all(payloads);
        if outcome.is_err() {
            self.drop_behind(start);
        }
        outcome
    }

    /// As [`LogWriter::append`], and hands everything to the kernel.
    ///
    /// # Errors
    /// As [`LogWriter::append`].
    #[inline]
    pub fn append_through(&mut self, payloads: &[&[u8]]) -> Result<u64> {
        let start = self.len_bytes();
        let outcome = self.append_all(payloads).and_then(|offset| self.flush().map(|()| offset));
        if outcome.is_err() {
            self.drop_behind(start);
        }
        outcome
    }

    /// What a failed call was about is no part of the log, also what the kernel took before the failure
    /// ([`Self::take_back`]). What earlier calls left in the buffer stays there.
    #[cold]
    fn drop_behind(&mut self, start: u64) {
        let buffered = start.saturating_sub(self.handed_bytes);
        self.buffer.truncate(usize::try_from(buffered).unwrap_or(usize::MAX));
        self.handed_bytes = self.handed_bytes.min(start);
    }

    #[inline]
    fn append_all(&mut self, payloads: &[&[u8]]) -> Result<u64> {
        self.check_usable("append")?;
        if payloads.iter().any(|payload| payload.len() > MAX_PAYLOAD_BYTES) {
            return Err(Error::InvalidArgument(format!(
                "a log record holds at most {MAX_PAYLOAD_BYTES} bytes; split the batch"
            )));
        }
        if let Some(through) = self.pending.take() {
            self.stated = through;
            self.frame(RecordType::SyncMarker, &format::encode_marker(through));
        }
        let offset = self.len_bytes();
        for payload in payloads {
            if self.buffer.len() + payload.len() < STREAM_BYTES {
                self.frame(RecordType::Data, payload);
            } else {
                self.stream(payload)?;
            }
        }
        if !self.buffered || self.buffer.len() >= BUFFER_BYTES {
            self.flush()?;
        }
        Ok(offset)
    }

    /// Hands buffered records to the kernel.
    #[inline]
    pub fn flush(&mut self) -> Result<()> {
        self.check_usable("append")?;
        if self.buffer.is_empty() {
            return Ok(());
        }
        let handed = self.file.append(&self.buffer);
        self.settle(handed)?;
        self.handed_bytes += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Makes everything appended durable, and notes that for the next marker.
    pub fn sync(&mut self) -> Result<()> {
        self.flush()?;
        self.sync_to_end()?;
        self.note_synced(self.end());
        Ok(())
    }

    /// Makes everything before [`LogWriter::end`] durable, and returns that. Unlike
    /// [`LogWriter::sync`] it leaves buffered records alone and works after a failed append: the
    /// records before the failure are whole, and the next segment continues them.
    ///
    /// # Errors
    /// I/O, and always after a failed sync.
    pub fn sync_to_end(&mut self) -> Result<LogPosition> {
        if self.sync_failed {
            return Err(self.refusal("sync"));
        }
        // Also if it panics, in a file system of the program: then it is unknown as well what the device has.
        self.sync_failed = true;
        let synced = self.file.sync();
        self.sync_failed = synced.is_err();
        self.settle(synced)?;
        self.synced_bytes = self.handed_bytes;
        Ok(self.end())
    }

    /// What makes everything before [`LogWriter::end`] durable while this appends; `None` where only this can, or no more
    /// goes into the file. Who has synced so tells this by [`LogWriter::note_synced`].
    pub fn sync_handle(&self) -> Option<Arc<dyn SyncHandle>> {
        self.file.sync_handle().filter(|_| !self.failed)
    }

    /// Bytes of the segment, header and buffered records included.
    #[inline]
    pub fn len_bytes(&self) -> u64 {
        self.handed_bytes + self.buffer.len() as u64
    }

    /// The file offset at which the payload of the first record of the next
    /// [`LogWriter::append`] will stand: behind its header, and behind the sync marker that goes
    /// before it if one is pending. Each further payload of that call stands
    /// [`RECORD_HEADER_BYTES`] behind the end of the one before.
    ///
    /// Holds until something is appended, synced or noted as synced.
    #[inline]
    pub fn next_payload_offset(&self) -> u64 {
        let marker = match self.pending {
            Some(_) => RECORD_HEADER_BYTES + MARKER_PAYLOAD_BYTES,
            None => 0,
        };
        self.len_bytes() + (marker + RECORD_HEADER_BYTES) as u64
    }

    /// File bytes that are durable.
    pub fn synced_bytes(&self) -> u64 {
        self.synced_bytes
    }

    /// Whether everything before [`LogWriter::end`] is durable, the header included.
    pub fn is_synced(&self) -> bool {
        self.synced_bytes == self.handed_bytes
    }

    /// The segment number.
    pub fn segment(&self) -> SegmentNumber {
        self.segment
    }

    /// Where the log ends if it goes on in another segment now: past the last record that the
    /// kernel took whole. After a failure this excludes whatever the failed call was about.
    pub fn end(&self) -> LogPosition {
        LogPosition { segment: self.segment, offset: self.handed_bytes }
    }

    /// Whether records wait in the buffer that the kernel does not have.
    pub fn holds_records(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// Bytes of records that wait in the buffer.
    pub fn held_bytes(&self) -> u64 {
        self.buffer.len() as u64
    }

    /// Takes the records that `failed` still holds into the buffer of this one, which has none yet and continues
    /// `failed`: they were appended there by calls that succeeded. Gives the payload of the first. Does no I/O.
    pub fn carry_over(&mut self, failed: &mut Self) -> Option<Vec<u8>> {
        debug_assert!(self.is_empty() && (self.buffered || !failed.holds_records()));
        let held = std::mem::take(&mut failed.buffer);
        let (mut rest, mut first) = (&held[..], None);
        while let Some((header, behind)) = rest.split_first_chunk::<RECORD_HEADER_BYTES>() {
            let (_, length, kind) = format::split_record_header(header);
            let Some((payload, next)) = behind.split_at_checked(length as usize) else { break };
            // What a marker states of the segment before is of no use in this one.
            if kind == RecordType::Data as u8 {
                self.frame(RecordType::Data, payload);
                first.get_or_insert_with(|| payload.to_vec());
            }
            rest = next;
        }
        first
    }

    /// Whether it has no record yet, nor one that waits in the buffer.
    pub fn is_empty(&self) -> bool {
        self.handed_bytes <= format::HEADER_BYTES && self.buffer.is_empty()
    }

    /// The next append is preceded by a sync marker stating that everything up to `through` is
    /// durable. A statement that adds nothing to the last one is ignored, and so is one about
    /// bytes that do not exist yet.
    pub fn note_synced(&mut self, through: LogPosition) {
        if through.segment == self.segment {
            self.synced_bytes = self.synced_bytes.max(through.offset.min(self.handed_bytes));
        }
        let known = self.pending.unwrap_or(self.stated);
        let ours = self.end();
        debug_assert!(through <= ours, "{through:?} is past the end {ours:?}");
        let only_header = through.segment == self.segment && through.offset <= format::HEADER_BYTES;
        if through > known && through <= ours && !only_header {
            self.pending = Some(through);
        }
    }

    /// Cuts off what a failed append has left in the file, and preallocated room. A record of the failed call can stand
    /// there whole, and until another segment says where this one ends it looks like one of the log. A reader that came
    /// before the cut may have taken it for that. Does not sync: until the next sync of this segment, or of the one
    /// behind it, a power cut may bring the record back.
    ///
    /// # Errors
    /// I/O. The file may then still have it.
    pub fn take_back(&mut self) -> Result<()> {
        self.failed = true;
        self.file.cut(self.handed_bytes)
    }

    /// Writes what is buffered and truncates preallocated room away. Does not sync. Idempotent.
    pub fn finish(&mut self) -> Result<()> {
        self.flush()?;
        let finished = self.file.finish();
        self.settle(finished)
    }

    /// Appends one framed record to the buffer.
    #[inline]
    fn frame(&mut self, kind: RecordType, payload: &[u8]) {
        let head = self.record_header(kind, payload);
        self.buffer.reserve(head.len() + payload.len());
        self.buffer.extend_from_slice(&head);
        self.buffer.extend_from_slice(payload);
    }

    /// Hands over the buffer with this record's header, then the payload where it stands.
    #[cold]
    fn stream(&mut self, payload: &[u8]) -> Result<()> {
        self.flush()?;
        if payload.len() < STREAM_BYTES {
            self.frame(RecordType::Data, payload);
            return Ok(());
        }
        let head = self.record_header(RecordType::Data, payload);
        let handed = self.file.append(&head).and_then(|()| self.file.append(payload));
        self.settle(handed)?;
        self.handed_bytes += (head.len() + payload.len()) as u64;
        Ok(())
    }

    #[inline]
    fn record_header(&self, kind: RecordType, payload: &[u8]) -> [u8; RECORD_HEADER_BYTES] {
        format::record_header(self.segment_seed, self.len_bytes(), kind, payload)
    }

    #[inline]
    fn check_usable(&self, op: &'static str) -> Result<()> {
        if self.failed { Err(self.refusal(op)) } else { Ok(()) }
    }

    #[cold]
    fn refusal(&self, op: &'static str) -> Error {
        let why = "an earlier write to this log segment failed; go on in a new segment";
        Error::io(op, self.file.path(), io::Error::other(why))
    }

    #[inline]
    fn settle(&mut self, outcome: Result<()>) -> Result<()> {
        self.failed |= outcome.is_err();
        outcome
    }
}

const _: () = assert!(MARKER_PAYLOAD_BYTES + RECORD_HEADER_BYTES < BUFFER_BYTES);

#[cfg(test)]
mod tests;
