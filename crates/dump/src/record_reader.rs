//! A dump into records: what is written in `record_writer.rs`, with every length and order checked.

use crate::chunk::{MAJOR_WITH_OPERATORS, MAJOR_WITH_OPTIONS};
use crate::chunk_reader::ChunkReader;
use crate::error::Result;
use crate::family::DumpedFamily;
use crate::record_writer::{Counts, END, FAMILY, MERGED_FAMILY, PUT, PUT_UNTIL, TUNED_FAMILY};
use std::io::Read;
use terrace::{MAX_KEY_BYTES, MAX_VALUE_BYTES};
use terrace_base::codec::{MAX_VARINT_BYTES, get_varint};

/// The longest name of a column family or a merge operator, in bytes.
const MAX_NAME_BYTES: usize = 256;

/// The longest text of options, in bytes.
const MAX_OPTIONS_BYTES: usize = 4096;

/// A record of a dump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record<'a> {
    /// The entries that follow are in this column family.
    Family(&'a DumpedFamily),
    /// An entry of the family before it.
    Entry {
        /// Its key: above the one before in its family.
        key: &'a [u8],
        /// Its value.
        value: &'a [u8],
        /// When it expires, in Unix milliseconds.
        expires_at_ms: Option<u64>,
    },
}

/// Reads the records of a dump. What it gives out has the checksums of its chunk; whether the dump
/// is whole is only known when it has ended.
pub struct RecordReader<R> {
    chunks: ChunkReader<R>,
    checksum: u32,
    counts: Counts,
    /// Those that have begun; the last one is that of the next entry.
    families: Vec<DumpedFamily>,
    /// Of the last entry of the family, if there was one.
    key: Option<Vec<u8>>,
    next_key: Vec<u8>,
    value: Vec<u8>,
    ended: bool,
}

impl<R: Read> RecordReader<R> {
    /// Reads the header of a dump.
    ///
    /// # Errors
    /// This is no dump, or none that this build reads.
    pub fn start(input: R) -> Result<Self> {
        Ok(Self {
            chunks: ChunkReader::start(input)?,
            checksum: 0,
            counts: Counts::default(),
            families: Vec::new(),
            key: None,
            next_key: Vec::new(),
            value: Vec::new(),
            ended: false,
        })
    }

    /// The next record; `None` at the end of a dump that is whole.
    ///
    /// # Errors
    /// The dump is cut off or damaged.
    #[allow(clippy::should_implement_trait, reason = "records are borrowed from the reader")]
    pub fn next(&mut self) -> Result<Option<Record<'_>>> {
        if self.ended {
            return Ok(None);
        }
        let before = self.checksum;
        let expires_at_ms = match self.byte()? {
            FAMILY => return self.read_family(FAMILY).map(Some),
            kind @ MERGED_FAMILY if self.chunks.major >= MAJOR_WITH_OPERATORS => {
                return self.read_family(kind).map(Some);
            }
            kind @ TUNED_FAMILY if self.chunks.major >= MAJOR_WITH_OPTIONS => {
                return self.read_family(kind).map(Some);
            }
            PUT => None,
            PUT_UNTIL => Some(u64::from_le_bytes(self.array()?)),
            END => {
                self.read_end(before)?;
                return Ok(None);
            }
            other => return Err(self.chunks.damaged(format!("a record of kind {other}"))),
        };
        if self.families.is_empty() {
            return Err(self.chunks.damaged("an entry without a column family"));
        }
        let mut key = std::mem::take(&mut self.next_key);
        self.bytes(&mut key, "key", MAX_KEY_BYTES)?;
        let mut value = std::mem::take(&mut self.value);
        self.bytes(&mut value, "value", MAX_VALUE_BYTES)?;
        self.value = value;
        if self.key.as_ref().is_some_and(|before| *before >= key) {
            return Err(self.chunks.damaged("keys are not in their order"));
        }
        self.next_key = self.key.replace(key).unwrap_or_default();
        let key = self.key.as_deref().unwrap_or_default();
        self.counts.add_entry(key, &self.value);
        Ok(Some(Record::Entry { key, value: &self.value, expires_at_ms }))
    }

    /// What has been read so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The column families that have been read so far, in their order.
    pub fn families(&self) -> &[DumpedFamily] {
        &self.families
    }

    fn read_family(&mut self, kind: u8) -> Result<Record<'_>> {
        let name = self.text("the name of a column family", MAX_NAME_BYTES)?;
        if self.families.last().is_some_and(|before| before.name >= name) {
            return Err(self.chunks.damaged("column families are not in their order"));
        }
        let operator = "the name of a merge operator";
        let (merge_operator, options) = match kind {
            MERGED_FAMILY => (Some(self.text(operator, MAX_NAME_BYTES)?), None),
            TUNED_FAMILY => {
                let name = self.any_text(operator, MAX_NAME_BYTES)?;
                let options = self.text("options of a column family", MAX_OPTIONS_BYTES)?;
                (Some(name).filter(|name| !name.is_empty()), Some(options))
            }
            _ => (None, None),
        };
        self.counts.families += 1;
        self.key = None;
        let at = self.families.len();
        self.families.push(DumpedFamily { name, merge_operator, options });
        Ok(Record::Family(&self.families[at]))
    }

    /// A text that is not empty.
    fn text(&mut self, what: &str, most: usize) -> Result<String> {
        match self.any_text(what, most)? {
            text if text.is_empty() => Err(self.chunks.damaged(format!("{what}: it is empty"))),
            text => Ok(text),
        }
    }

    fn any_text(&mut self, what: &str, most: usize) -> Result<String> {
        let mut bytes = Vec::new();
        self.bytes(&mut bytes, "text", most)?;
        let text = String::from_utf8(bytes);
        text.map_err(|_| self.chunks.damaged(format!("{what}: it is no text")))
    }

    /// `checksum` is that of the stream up to the byte that says that this is its end.
    fn read_end(&mut self, checksum: u32) -> Result<()> {
        let want = self.counts.encode(checksum);
        let found: [u8; Counts::ENCODED_BYTES] = self.array()?;
        if found != want {
            return Err(self.chunks.damaged("the counts at the end are not those of the records"));
        }
        self.chunks.check_end()?;
        self.ended = true;
        Ok(())
    }

    fn byte(&mut self) -> Result<u8> {
        self.array().map(|[byte]| byte)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (mut array, mut filled) = ([0; N], 0);
        while filled < N {
            let part = self.chunks.take(N - filled)?;
            self.checksum = crc32c::crc32c_append(self.checksum, part);
            array[filled..filled + part.len()].copy_from_slice(part);
            filled += part.len();
        }
        Ok(array)
    }

    /// Puts bytes with their length in front into `out`, which grows with what is there, not with
    /// what is said.
    fn bytes(&mut self, out: &mut Vec<u8>, what: &str, most: usize) -> Result<()> {
        let length = self.varint()?;
        let Some(length) = usize::try_from(length).ok().filter(|length| *length <= most) else {
            let what = format!("a {what} of {length} bytes, and {most} is the most");
            return Err(self.chunks.damaged(what));
        };
        out.clear();
        while out.len() < length {
            let part = self.chunks.take(length - out.len())?;
            self.checksum = crc32c::crc32c_append(self.checksum, part);
            out.extend_from_slice(part);
        }
        Ok(())
    }

    fn varint(&mut self) -> Result<u64> {
        let (mut bytes, mut count) = ([0; MAX_VARINT_BYTES], 0);
        loop {
            bytes[count] = self.byte()?;
            count += 1;
            let ends = bytes[count - 1] & 0x80 == 0;
            match get_varint(&bytes[..count]) {
                // The shortest form only: one content has one dump.
                Some((value, _)) if ends && (count == 1 || bytes[count - 1] != 0) => {
                    return Ok(value);
                }
                _ if ends || count == MAX_VARINT_BYTES => {
                    return Err(self.chunks.damaged("a length is malformed"));
                }
                _ => {}
            }
        }
    }
}
