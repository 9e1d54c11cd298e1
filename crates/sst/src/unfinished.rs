//! The end of an SST, which is written last: range tombstones, top-level index, properties, footer.
//!
//! A file that is ingested is written whole but for its end before the store knows the sequence number of
//! its entries; the end then says the number for all of them, and nothing before it is touched. Called
//! by the writer and by [`crate::copy`].

use crate::block_handle::{BlockHandle, Packed, Packer};
use crate::footer::{FORMAT_VERSION, Footer};
use crate::index::learned::Training;
use crate::index::top_level::TopLevel;
use crate::properties::Properties;
use crate::tombstone_block;
use std::sync::Arc;
use terrace_base::checksum::block_checksum;
use terrace_base::range_tombstone::Fragment;
use terrace_base::{Error, FileNumber, RangeTombstones, Result, SeqNo, ValueRef};
use terrace_compression::Compression;
use terrace_vfs::AppendFile;

/// What was written; what the manifest records of the file.
#[derive(Debug, Clone, PartialEq)]
pub struct SstSummary {
    /// Length of the file.
    pub size_bytes: u64,
    /// Point entries, tombstones included.
    pub entry_count: u64,
    /// Point tombstones.
    pub tombstone_count: u64,
    /// Range tombstones (one per fragment and sequence number).
    pub range_tombstone_count: u64,
    /// Smallest user key covered by an entry or a range tombstone.
    pub smallest: Vec<u8>,
    /// Largest user key covered, or the end of a range tombstone.
    pub largest: Vec<u8>,
    /// Whether `largest` is the end of a range tombstone and not covered itself.
    pub largest_exclusive: bool,
    /// Smallest sequence number of any entry or range tombstone.
    pub smallest_seqno: SeqNo,
    /// Largest sequence number of any entry or range tombstone.
    pub largest_seqno: SeqNo,
    /// Bytes of keys and values before compression.
    pub raw_bytes: u64,
    /// When at least [`TTL_DUE_PERCENT`](crate::TTL_DUE_PERCENT) of the entry bytes will have
    /// expired.
    pub ttl_due_ms: Option<u64>,
    /// The value segments that entries refer to, ascending.
    pub value_refs: Vec<ValueRef>,
    /// Stored bytes of the filter partitions.
    pub filter_bytes: u64,
    /// Stored bytes of the index partitions.
    pub index_bytes: u64,
    /// Stored bytes of the data blocks.
    pub data_bytes: u64,
    /// What came of training, if the options asked for it.
    pub training: Option<Training>,
}

/// What the end of an ingested file says of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Stamp {
    /// The sequence number of all its entries and range tombstones, which must have 0.
    pub seqno: SeqNo,
    /// As in [`Properties::flushed_seqno`].
    pub flushed_seqno: SeqNo,
    /// Id and name of the column family.
    pub family: Option<(u32, String)>,
    /// Wall-clock time in Unix milliseconds.
    pub created_ms: u64,
}

/// An SST that is written but for its end. Dropped, it leaves a file that is none.
pub struct UnfinishedSst {
    pub(crate) output: Output,
    pub(crate) top_level: TopLevel,
    pub(crate) range_tombstones: Arc<RangeTombstones>,
    pub(crate) properties: Properties,
    pub(crate) training: Option<Training>,
}

impl UnfinishedSst {
    /// What the file will say of itself, as far as it is known.
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// Makes what is written so far durable, so that little is left to do in the end, and gives back the memory that it took:
    /// many files may wait for their ends at the same time.
    pub fn sync(&mut self) -> Result<()> {
        self.output.sync()
    }

    /// Writes the end and syncs the file; the directory entry is the caller's to sync.
    ///
    /// # Errors
    /// `InvalidArgument` for a stamp of a file whose entries have sequence numbers; I/O.
    pub fn finish(mut self, stamp: Option<Stamp>) -> Result<SstSummary> {
        if let Some(stamp) = stamp {
            self.stamp(stamp)?;
        }
        let Self { output, properties, range_tombstones, top_level, .. } = &mut self;
        let footer = Footer {
            version: FORMAT_VERSION,
            range_tombstones: match range_tombstones.is_empty() {
                true => None,
                false => Some(output.write(Compression::None, |out| {
                    tombstone_block::encode(range_tombstones, out);
                })?),
            },
            top_level: output.write(Compression::None, |out| top_level.encode(out))?,
            properties: output.write(Compression::None, |out| properties.encode(out))?,
        };
        output.finish(&footer)?;
        let size_bytes = output.offset();
        let properties = self.properties;
        Ok(SstSummary {
            size_bytes,
            entry_count: properties.entry_count,
            tombstone_count: properties.tombstone_count,
            range_tombstone_count: properties.range_tombstone_count,
            smallest: properties.smallest,
            largest: properties.largest,
            largest_exclusive: properties.largest_exclusive,
            smallest_seqno: properties.smallest_seqno,
            largest_seqno: properties.largest_seqno,
            raw_bytes: properties.raw_key_bytes + properties.raw_value_bytes,
            ttl_due_ms: properties.ttl_due_ms,
            value_refs: properties.value_refs,
            filter_bytes: properties.filter_bytes,
            index_bytes: properties.index_bytes,
            data_bytes: properties.data_bytes,
            training: self.training,
        })
    }

    fn stamp(&mut self, stamp: Stamp) -> Result<()> {
        if self.properties.largest_seqno > SeqNo::ZERO {
            let text = "the entries of the file have sequence numbers already";
            return Err(Error::InvalidArgument(text.into()));
        }
        let mut tombstones = RangeTombstones::default();
        for Fragment { start, end, .. } in self.range_tombstones.fragments() {
            tombstones.push(Fragment { start, end, seqnos: &[stamp.seqno] });
        }
        self.range_tombstones = Arc::new(tombstones);
        let properties = &mut self.properties;
        properties.range_tombstone_count = self.range_tombstones.seqnos().len() as u64;
        properties.global_seqno = Some(stamp.seqno);
        (properties.smallest_seqno, properties.largest_seqno) = (stamp.seqno, stamp.seqno);
        properties.flushed_seqno = stamp.flushed_seqno;
        properties.family = stamp.family;
        properties.created_ms = stamp.created_ms;
        Ok(())
    }
}

/// The file and what has not been handed to it yet.
pub(crate) struct Output {
    file: Box<dyn AppendFile>,
    file_number: FileNumber,
    flushed_bytes: u64,
    /// Handed to the file when it has [`SstOptions::write_bytes`](crate::SstOptions::write_bytes).
    buffer: Vec<u8>,
    write_bytes: usize,
    packer: Packer,
}

impl Output {
    pub fn new(file: Box<dyn AppendFile>, file_number: FileNumber, write_bytes: usize) -> Self {
        Self {
            file,
            file_number,
            flushed_bytes: 0,
            buffer: Vec::with_capacity(write_bytes.saturating_add(write_bytes / 8)),
            write_bytes,
            packer: Packer::new(file_number),
        }
    }

    /// Where the next byte will lie in the file.
    pub fn offset(&self) -> u64 {
        self.flushed_bytes + self.buffer.len() as u64
    }

    /// Stores the payload that `encode` appends.
    pub fn write(
        &mut self,
        compression: Compression,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Result<BlockHandle> {
        self.write_padded(compression, encode, |_| 0)
    }

    /// As [`Self::write`], with as many bytes of padding as `padding` says.
    pub fn write_padded(
        &mut self,
        compression: Compression,
        encode: impl FnOnce(&mut Vec<u8>),
        padding: impl FnOnce(Packed) -> usize,
    ) -> Result<BlockHandle> {
        let (offset, start) = (self.offset(), self.buffer.len());
        encode(&mut self.buffer);
        let stored_len = self.packer.pack(&mut self.buffer, start, offset, compression, padding)?;
        if self.buffer.len() >= self.write_bytes {
            self.flush()?;
        }
        Ok(BlockHandle { offset, stored_len })
    }

    /// Stores a block of another file, of which `content` (with padding) and `kind` are what its checksum
    /// covers, at the same offset.
    pub fn copy(&mut self, content: &[u8], kind: u8) -> Result<()> {
        let checksum = block_checksum(content, kind, self.file_number, self.offset());
        self.buffer.extend_from_slice(content);
        self.buffer.push(kind);
        self.buffer.extend_from_slice(&checksum.to_le_bytes());
        match self.buffer.len() >= self.write_bytes {
            true => self.flush(),
            false => Ok(()),
        }
    }

    fn flush(&mut self) -> Result<()> {
        self.file.append(&self.buffer)?;
        self.flushed_bytes += self.buffer.len() as u64;
        self.buffer.clear();
        self.buffer.shrink_to(self.write_bytes.saturating_mul(2));
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        self.flush()?;
        self.buffer = Vec::new();
        self.file.sync()
    }

    fn finish(&mut self, footer: &Footer) -> Result<()> {
        let footer = footer.encode(self.file_number, self.offset());
        self.buffer.extend_from_slice(&footer);
        self.flush()?;
        self.file.finish()?;
        self.file.sync()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use terrace_vfs::{CreateOptions, SimVfs, Vfs};

    #[test]
    fn what_is_synced_takes_no_memory_and_goes_on_where_it_was() {
        let vfs = SimVfs::new(1);
        let file = vfs.create(Path::new("/000007.sst"), &CreateOptions::default()).unwrap();
        let mut output = Output::new(file, FileNumber::new(7), 1 << 20);
        let write = |output: &mut Output, bytes: &[u8]| {
            output.write(Compression::None, |out| out.extend_from_slice(bytes)).unwrap()
        };
        let first = write(&mut output, b"first");
        output.sync().unwrap();
        assert_eq!(output.buffer.capacity(), 0);
        let second = write(&mut output, b"second");
        assert_eq!(first.end(), Some(second.offset));
        output.sync().unwrap();
        assert_eq!(second.end(), Some(vfs.len(Path::new("/000007.sst")).unwrap()));
    }

    #[test]
    fn no_more_is_held_than_a_piece_and_a_block() {
        let vfs = SimVfs::new(1);
        let file = vfs.create(Path::new("/000007.sst"), &CreateOptions::default()).unwrap();
        let (write_bytes, block) = (64 << 10, vec![7; 4000]);
        let mut output = Output::new(file, FileNumber::new(7), write_bytes);
        for _ in 0..100 {
            output.write(Compression::None, |out| out.extend_from_slice(&block)).unwrap();
            assert!(output.buffer.len() < write_bytes);
            assert!(output.buffer.capacity() <= write_bytes + write_bytes / 8);
        }
        output.sync().unwrap();
        assert_eq!(output.offset(), vfs.len(Path::new("/000007.sst")).unwrap());
    }
}
