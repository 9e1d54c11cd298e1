//! Reading a value segment from front to back, for inspection and verification. Reads by handle
//! need none of this.

use super::StoredValue;
use crate::format::RECORD_HEADER_BYTES;
use crate::reader::{LogReader, Record, RecordKind, Step};
use std::path::{Path, PathBuf};
use terrace_base::{Error, Result, SegmentNumber};
use terrace_vfs::Vfs;

/// What the next read of a value segment found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueStep<'a> {
    /// A value; its record and its own checksum are right.
    Value(StoredValue<'a>),
    /// No sound record follows directly. Stays so until [`ValueScan::resync`].
    End {
        /// Where the sound records end.
        offset: u64,
        /// Why the bytes there are no record; `None` at the end of the file, or of what was
        /// written to it.
        torn: Option<String>,
    },
}

/// Streams the values of one segment of values (`.vlog`).
pub struct ValueScan {
    reader: LogReader,
    segment: SegmentNumber,
    path: PathBuf,
}

impl ValueScan {
    /// Opens segment `segment`; as [`LogReader::open`].
    pub fn open(vfs: &dyn Vfs, path: &Path, segment: SegmentNumber) -> Result<Self> {
        let reader = LogReader::open(vfs, path, segment)?;
        Ok(Self { reader, segment, path: path.to_path_buf() })
    }

    /// The next value, or why there is none.
    ///
    /// # Errors
    /// I/O; `Corruption` for a sound record that holds no sound value (the scan then goes on
    /// behind it); `Unsupported` for a record of a type this build does not know.
    #[allow(clippy::should_implement_trait)] // Lends its value, which `Iterator` cannot.
    pub fn next(&mut self) -> Result<ValueStep<'_>> {
        match self.reader.next()? {
            Step::Record(record) => value_of(&record, self.segment)
                .map(ValueStep::Value)
                .map_err(|detail| Error::corruption(&self.path, record.offset, detail)),
            Step::End { offset, torn } => Ok(ValueStep::End { offset, torn }),
        }
    }

    /// Skips damage, as [`LogReader::resync`].
    pub fn resync(&mut self) -> Result<Option<u64>> {
        self.reader.resync()
    }

    /// Where the next record is expected.
    pub fn position(&self) -> u64 {
        self.reader.position()
    }

    /// The file's length when it was opened.
    pub fn file_bytes(&self) -> u64 {
        self.reader.file_bytes()
    }
}

/// The value in a record of a value segment, checked; or what is wrong with it.
pub(crate) fn value_of<'a>(
    record: &Record<'a>,
    segment: SegmentNumber,
) -> std::result::Result<StoredValue<'a>, String> {
    if record.kind != RecordKind::Value {
        return Err(format!("a record of kind {:?} stands among values", record.kind));
    }
    let payload_offset = record.offset + RECORD_HEADER_BYTES as u64;
    let value = StoredValue::decode(record.payload, segment, payload_offset)
        .ok_or("a value record is malformed")?;
    if !value.is_sound() {
        return Err(format!(
            "the checksum of the value is {:08x}, its bytes and place give {:08x}",
            value.checksum,
            value.computed_checksum()
        ));
    }
    Ok(value)
}
