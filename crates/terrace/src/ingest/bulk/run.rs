//! A sorted run of a bulk load, in a file with the framing of the log: every record has a checksum.
//!
//! ```text
//! record  := entry*            of about 64 KiB, or one larger entry
//! entry   := kind:u8  key:bytes  value:bytes      (bytes := varint length, data)
//! ```

use super::Entry;
use crate::error::Result;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace_base::codec::put_bytes;
use terrace_base::{Decoder, FileNumber, ValueKind};
use terrace_log::{LogOptions, LogReader, LogWriter, RecordKind, Step};
use terrace_vfs::Vfs;

/// Bytes of a record, about.
const RECORD_BYTES: usize = 64 << 10;
/// Bytes that the reader of a run reads ahead, or a record that is longer.
const AHEAD_BYTES: usize = 256 << 10;
/// Memory that reading a run takes that has no large entries: what is read ahead, and a record.
pub(super) const READER_BYTES: usize = AHEAD_BYTES + 2 * RECORD_BYTES;

/// A run that was written.
#[derive(Debug)]
pub(super) struct Run {
    pub number: FileNumber,
    /// Where its records end.
    pub end: u64,
    /// Of its longest record.
    longest_bytes: usize,
}

impl Run {
    /// Memory that reading it takes, about.
    pub fn reader_bytes(&self) -> usize {
        let more_than = |bytes: usize| self.longest_bytes.saturating_sub(bytes);
        READER_BYTES + more_than(AHEAD_BYTES) + more_than(2 * RECORD_BYTES)
    }
}

/// Writes a run.
pub(super) struct RunWriter {
    writer: LogWriter,
    number: FileNumber,
    record: Vec<u8>,
    longest_bytes: usize,
}

impl RunWriter {
    pub fn create(vfs: &dyn Vfs, path: &Path, number: FileNumber) -> Result<Self> {
        let writer = LogWriter::create(vfs, path, number.segment(), &LogOptions::default())?;
        let record = Vec::with_capacity(RECORD_BYTES);
        Ok(Self { writer, number, record, longest_bytes: 0 })
    }

    /// Adds an entry, which comes after all that were added before.
    pub fn add(&mut self, entry: &Entry<'_>) -> Result<()> {
        if self.record.len() + entry.key.len() + entry.value.len() > RECORD_BYTES {
            self.flush()?;
        }
        self.record.push(entry.kind as u8);
        put_bytes(&mut self.record, entry.key);
        put_bytes(&mut self.record, entry.value);
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        if !self.record.is_empty() {
            self.writer.append(&[&self.record])?;
            self.longest_bytes = self.longest_bytes.max(self.record.len());
            self.record.clear();
            self.record.shrink_to(2 * RECORD_BYTES);
        }
        Ok(())
    }

    /// Ends the run. It need not be durable: a crash ends the load.
    pub fn finish(mut self) -> Result<Run> {
        self.flush()?;
        self.writer.finish()?;
        let Self { writer, number, longest_bytes, .. } = self;
        Ok(Run { number, end: writer.len_bytes(), longest_bytes })
    }
}

/// Reads a run from front to back.
pub(super) struct RunReader {
    reader: LogReader,
    path: PathBuf,
    end: u64,
    record: Vec<u8>,
    /// Where in the record the next entry lies.
    at: usize,
    /// The current entry: its kind, and where its key and value lie in the record.
    entry: Option<(ValueKind, std::ops::Range<usize>, std::ops::Range<usize>)>,
}

impl RunReader {
    /// Opens a run at its first entry.
    pub fn open(vfs: &Arc<dyn Vfs>, path: &Path, run: &Run) -> Result<Self> {
        let reader = LogReader::open(&**vfs, path, run.number.segment())?;
        let (path, end) = (path.to_path_buf(), run.end);
        let mut run = Self { reader, path, end, record: Vec::new(), at: 0, entry: None };
        run.next()?;
        Ok(run)
    }

    /// The current entry; none at the end.
    pub fn entry(&self) -> Option<Entry<'_>> {
        let (kind, key, value) = self.entry.as_ref()?;
        let entry = Entry {
            key: self.record.get(key.clone())?,
            kind: *kind,
            value: self.record.get(value.clone())?,
        };
        Some(entry)
    }

    /// Moves to the next entry.
    ///
    /// # Errors
    /// `Corruption` if the file is not what was written; I/O.
    pub fn next(&mut self) -> Result<()> {
        self.entry = None;
        if self.at == self.record.len() && !self.next_record()? {
            return Ok(());
        }
        let mut decoder = Decoder::new(&self.record[self.at..]);
        let field = |decoder: &mut Decoder<'_>| {
            let len = decoder.bytes()?.len();
            let end = self.at + decoder.position();
            Some(end - len..end)
        };
        let kind = decoder.u8().and_then(ValueKind::from_byte);
        let entry = kind.and_then(|kind| Some((kind, field(&mut decoder)?, field(&mut decoder)?)));
        if entry.is_none() {
            return Err(self.damaged("a record of a sorted run is malformed"));
        }
        self.at += decoder.position();
        self.entry = entry;
        Ok(())
    }

    fn next_record(&mut self) -> Result<bool> {
        if self.reader.position() >= self.end {
            return Ok(false);
        }
        match self.reader.next()? {
            Step::Record(record) if record.kind == RecordKind::Data => {
                self.record.clear();
                self.record.shrink_to(RECORD_BYTES.max(record.payload.len()));
                self.record.extend_from_slice(record.payload);
                self.at = 0;
                Ok(true)
            }
            _ => Err(self.damaged("a sorted run ends before its last record")),
        }
    }

    fn damaged(&self, why: &str) -> crate::error::Error {
        terrace_base::Error::corruption(&self.path, self.reader.position(), why).into()
    }

    /// Memory in use.
    pub fn used_bytes(&self) -> usize {
        self.reader.buffered_bytes() + self.record.capacity()
    }
}
