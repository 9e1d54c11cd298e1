//! Records into a dump.
//!
//! ```text
//! stream    family*  end
//! family    1  name            the column family that the entries below are in
//!           5  name  operator  the same, of a family with a merge operator; not in version 1
//!           6  name  operator  options
//!                            the same, of one with options that are not the default; only in version 3; the operator
//!                            may be empty
//!             entry*
//! entry     2  key  value
//!           3  expiry (8)  key  value      expiry in Unix milliseconds
//! end       4  families  entries  key bytes  value bytes (8 each)
//!              crc32c of the whole stream before it (4)
//! ```
//! Name, operator, options, key and value are a varint, the length, and the bytes. Names ascend, and in a family keys do,
//! each as bytes: one content has one stream.

use crate::chunk::MAJOR;
use crate::chunk_writer::ChunkWriter;
use crate::error::{Error, Result};
use crate::family::DumpedFamily;
use std::io::Write;
use terrace::MAX_VALUE_BYTES;
use terrace_base::codec::put_varint;

pub(crate) const FAMILY: u8 = 1;
pub(crate) const PUT: u8 = 2;
pub(crate) const PUT_UNTIL: u8 = 3;
pub(crate) const END: u8 = 4;
pub(crate) const MERGED_FAMILY: u8 = 5;
pub(crate) const TUNED_FAMILY: u8 = 6;

/// What a dump holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Column families.
    pub families: u64,
    /// Entries of all of them.
    pub entries: u64,
    /// Bytes of their keys.
    pub key_bytes: u64,
    /// Bytes of their values.
    pub value_bytes: u64,
}

impl Counts {
    /// The end of a stream of records with these counts and this checksum.
    pub(crate) fn encode(&self, checksum: u32) -> [u8; Self::ENCODED_BYTES] {
        let mut bytes = [0; Self::ENCODED_BYTES];
        let counts = [self.families, self.entries, self.key_bytes, self.value_bytes];
        for (field, count) in bytes.chunks_exact_mut(8).zip(counts) {
            field.copy_from_slice(&count.to_le_bytes());
        }
        bytes[32..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    pub(crate) const ENCODED_BYTES: usize = 36;

    pub(crate) fn add_entry(&mut self, key: &[u8], value: &[u8]) {
        self.entries += 1;
        self.key_bytes += key.len() as u64;
        self.value_bytes += value.len() as u64;
    }

    /// Bytes of keys and values.
    pub fn bytes(&self) -> u64 {
        self.key_bytes + self.value_bytes
    }
}

/// Writes the records of a dump, in the order that the module demands.
pub struct RecordWriter<W> {
    chunks: ChunkWriter<W>,
    counts: Counts,
    checksum: u32,
    /// A record up to its value.
    front: Vec<u8>,
    major: u16,
}

impl<W: Write> RecordWriter<W> {
    /// Begins a dump of families of which only the names are said.
    pub fn start(out: W) -> Result<Self> {
        Self::start_as(out, MAJOR)
    }

    /// Begins a dump that can say all of `families`, and no more than that.
    pub fn start_for(out: W, families: &[DumpedFamily]) -> Result<Self> {
        let major = families.iter().map(DumpedFamily::major).max();
        Self::start_as(out, major.unwrap_or(MAJOR))
    }

    fn start_as(out: W, major: u16) -> Result<Self> {
        let chunks = ChunkWriter::start_as(out, major)?;
        Ok(Self { chunks, counts: Counts::default(), checksum: 0, front: Vec::new(), major })
    }

    /// The entries that follow are in the column family of this name.
    pub fn family(&mut self, name: &str) -> Result<()> {
        self.described_family(&DumpedFamily { name: name.into(), ..DumpedFamily::default() })
    }

    /// As [`Self::family`], with all that there is to say of it.
    ///
    /// # Errors
    /// The dump was not begun for such families.
    pub fn described_family(&mut self, family: &DumpedFamily) -> Result<()> {
        if family.major() > self.major {
            let what = format!(
                "a dump of version {} names no merge operator or no options of column family `{}`",
                self.major, family.name
            );
            return Err(Error::Unsupported(what));
        }
        let operator = family.merge_operator.as_deref();
        let (kind, texts) = match (&family.options, operator) {
            (None, None) => (FAMILY, vec![]),
            (None, Some(operator)) => (MERGED_FAMILY, vec![operator]),
            (Some(options), operator) => {
                (TUNED_FAMILY, vec![operator.unwrap_or_default(), options.as_str()])
            }
        };
        self.counts.families += 1;
        self.front.clear();
        self.front.push(kind);
        for text in [family.name.as_str()].into_iter().chain(texts) {
            put_varint(&mut self.front, text.len() as u64);
            self.front.extend_from_slice(text.as_bytes());
        }
        self.push(&[])
    }

    /// An entry, and when it expires, if it does.
    ///
    /// # Errors
    /// The value is longer than one that is written: operands of merges can make such a one, and no store would take it back.
    pub fn entry(&mut self, key: &[u8], value: &[u8], expires_at_ms: Option<u64>) -> Result<()> {
        if value.len() > MAX_VALUE_BYTES {
            let (key, bytes) = (key.get(..64).unwrap_or(key).escape_ascii(), value.len());
            let what = format!(
                "the value of key `{key}` has {bytes} bytes; no dump can be restored with a value of more than {MAX_VALUE_BYTES}"
            );
            return Err(Error::Unsupported(what));
        }
        self.counts.add_entry(key, value);
        self.front.clear();
        match expires_at_ms {
            None => self.front.push(PUT),
            Some(at) => {
                self.front.push(PUT_UNTIL);
                self.front.extend_from_slice(&at.to_le_bytes());
            }
        }
        put_varint(&mut self.front, key.len() as u64);
        self.front.extend_from_slice(key);
        put_varint(&mut self.front, value.len() as u64);
        self.push(value)
    }

    /// What has been written so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Ends the dump, and gives the writer back, which has everything.
    pub fn finish(mut self) -> Result<(W, Counts)> {
        self.chunks.push(&[END])?;
        self.chunks.push(&self.counts.encode(self.checksum))?;
        Ok((self.chunks.finish()?, self.counts))
    }

    /// Writes `front` and then `rest`.
    fn push(&mut self, rest: &[u8]) -> Result<()> {
        for part in [&self.front[..], rest] {
            self.checksum = crc32c::crc32c_append(self.checksum, part);
            self.chunks.push(part)?;
        }
        Ok(())
    }
}
