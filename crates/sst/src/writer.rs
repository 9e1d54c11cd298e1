//! Writes an SST from entries in internal order: data blocks as they fill, then filter
//! partitions, index partitions, and the blocks that are read at opening ([`crate::unfinished`]). Called by
//! flush, compaction and ingestion.
//!
//! Filters and index stay in memory until the last data block is out (about 1.3 % of the file),
//! because the format keeps each kind together.

use crate::block::format::{ENTRY_TRAILER_BYTES, HEADER_BYTES};
use crate::block::writer::BlockWriter;
use crate::block_handle::{BlockHandle, TRAILER_BYTES};
use crate::expiry::ExpiryHistogram;
use crate::filter_partition::{FilterWriter, FinishedFilter};
use crate::footer::FOOTER_BYTES;
use crate::index::learned::{LearnedWriter, Training};
use crate::index::partition::PartitionWriter;
use crate::index::top_level::{FilterPlace, IndexPlace, TAG_LEARNED, TopLevel};
use crate::options::SstOptions;
use crate::pages::PageFit;
use crate::properties::Properties;
use crate::unfinished::{Output, SstSummary, UnfinishedSst};
use crate::value_refs::ValueTally;
use std::cmp::Ordering;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use terrace_base::key::{
    EXPIRY_BYTES, MAX_KEY_BYTES, MAX_VALUE_BYTES, OLDEST_SEQNO_BYTES, common_prefix,
    compare_internal, shortest_separator, trailer_kind, trailer_seqno,
};
use terrace_base::{Error, FileNumber, RangeTombstones, Result, SeqNo, ValueHandle, ValueKind};
use terrace_compression::Compression;
use terrace_filter::FilterPolicy;
use terrace_vfs::{CreateOptions, Vfs};

/// Bytes of a page memory slot that are not payload: buffer header and block trailer.
const SLOT_OVERHEAD_BYTES: usize = 64 + TRAILER_BYTES;

/// About what an entry takes in a block besides key and value: head, two offsets, length, trailer.
const ENTRY_OVERHEAD_BYTES: usize = 4 + 2 * 2 + 1 + ENTRY_TRAILER_BYTES;

/// The smallest payload target that options can ask for.
const MIN_TARGET_BYTES: usize = 16;

/// Writes one SST. If a call fails, the file is useless and the caller removes it.
pub struct SstWriter {
    output: Output,
    options: SstOptions,
    pages: PageFit,
    /// Payload bytes at which the current block is cut.
    block_target: usize,
    metadata_target: Option<usize>,
    block: BlockWriter,
    /// The last block written, until the key after it is known and its separator with it.
    unseparated: Option<BlockHandle>,
    index: PartitionWriter,
    finished_index: Vec<FinishedIndex>,
    index_bytes: Vec<u8>,
    filter: FilterWriter,
    learned: Option<LearnedWriter>,
    range_tombstones: Arc<RangeTombstones>,
    /// User key and trailer of the last entry.
    last: (Vec<u8>, u64),
    smallest: Vec<u8>,
    seqnos: Option<(SeqNo, SeqNo)>,
    expiries: ExpiryHistogram,
    values: ValueTally,
    has_operands: bool,
    properties: Properties,
}

/// A finished index partition that waits for its place in the file.
struct FinishedIndex {
    range: Range<usize>,
    separator: Vec<u8>,
    data_offset: u64,
    block_count: u64,
}

impl SstWriter {
    /// Creates the file (an error if it exists). Nothing is durable before
    /// [`SstWriter::finish`].
    pub fn create(
        vfs: &dyn Vfs,
        path: &Path,
        file_number: FileNumber,
        options: SstOptions,
    ) -> Result<Self> {
        let create = CreateOptions { direct: options.direct_write, ..Default::default() };
        let payload = |size: usize| size.saturating_sub(SLOT_OVERHEAD_BYTES).max(MIN_TARGET_BYTES);
        let metadata_target = options.partitioned.then(|| payload(options.metadata_block_size));
        let pages = PageFit::new(options.block_size, options.compression);
        Ok(Self {
            output: Output::new(vfs.create(path, &create)?, file_number, options.write_bytes),
            block_target: pages.payload_target(0),
            pages,
            metadata_target,
            block: BlockWriter::default(),
            unseparated: None,
            index: PartitionWriter::default(),
            finished_index: Vec::new(),
            index_bytes: Vec::new(),
            filter: FilterWriter::new(options.filter, options.prefix_len, metadata_target),
            learned: options.learning.then(LearnedWriter::default),
            range_tombstones: Arc::default(),
            last: (Vec::new(), 0),
            smallest: Vec::new(),
            seqnos: None,
            expiries: ExpiryHistogram::default(),
            values: ValueTally::default(),
            has_operands: false,
            properties: Properties {
                compression: options.compression,
                filter: options.filter.to_string(),
                created_ms: options.created_ms,
                family: options.family.clone(),
                flushed_seqno: options.flushed_seqno,
                is_hot_checkpoint: options.is_hot_checkpoint,
                as_old_as: options.as_old_as,
                ..Properties::default()
            },
            options,
        })
    }

    /// Adds an entry. Entries come in internal order without repeats; keys are at most
    /// [`MAX_KEY_BYTES`] long, stored values [`MAX_VALUE_BYTES`] and an expiry. Anything else is
    /// an invalid argument, and the writer is as before.
    pub fn add(&mut self, user_key: &[u8], trailer: u64, value: &[u8]) -> Result<()> {
        let kind = check_entry(user_key, trailer, value)?;
        let first = self.properties.entry_count == 0;
        let order = self.last.0.as_slice().cmp(user_key);
        if !first
            && compare_internal(&self.last.0, self.last.1, user_key, trailer) != Ordering::Less
        {
            let message = "entries must be added in internal order, without repeats";
            return Err(Error::InvalidArgument(message.into()));
        }
        if !self.block.is_empty() && self.block.exceeds(self.block_target, user_key, trailer, value)
        {
            self.finish_block(HEADER_BYTES + user_key.len() + value.len() + ENTRY_OVERHEAD_BYTES)?;
        }
        self.separate(user_key)?;
        if let Some(learned) = &mut self.learned {
            if self.block.is_empty() {
                learned.start_block(&self.last.0, user_key);
            }
            learned.add(user_key);
        }
        if first {
            self.smallest.extend_from_slice(user_key);
        }
        if first || order != Ordering::Equal {
            self.filter.add(user_key, (!first).then_some(&self.last.0));
        }
        self.block.add(user_key, trailer, value);
        self.count(kind, user_key, trailer, value);
        self.last.0.clear();
        self.last.0.extend_from_slice(user_key);
        self.last.1 = trailer;
        Ok(())
    }

    fn count(&mut self, kind: ValueKind, user_key: &[u8], trailer: u64, value: &[u8]) {
        let properties = &mut self.properties;
        properties.entry_count += 1;
        properties.raw_key_bytes += user_key.len() as u64;
        properties.raw_value_bytes += value.len() as u64;
        self.note_seqno(trailer_seqno(trailer));
        self.has_operands |= kind.is_operand();
        match kind {
            ValueKind::Delete => self.properties.tombstone_count += 1,
            ValueKind::PutTtl | ValueKind::PutTtlHandle => {
                if let Some(expiry) = value.first_chunk::<EXPIRY_BYTES>() {
                    let bytes = (user_key.len() + value.len()) as u64;
                    self.expiries.add(u64::from_le_bytes(*expiry), bytes);
                }
            }
            ValueKind::Put
            | ValueKind::PutHandle
            | ValueKind::Merge
            | ValueKind::Merged
            | ValueKind::RangeDelete => {}
        }
        if let Some(handle) = ValueHandle::of_entry(kind, value) {
            self.values.add(&handle, user_key.len());
        }
    }

    fn note_seqno(&mut self, seqno: SeqNo) {
        let (low, high) = self.seqnos.unwrap_or((seqno, seqno));
        self.seqnos = Some((low.min(seqno), high.max(seqno)));
    }

    /// The range tombstones of the file, already clipped to its key range; replaces earlier ones.
    pub fn set_range_tombstones(&mut self, tombstones: impl Into<Arc<RangeTombstones>>) {
        self.range_tombstones = tombstones.into();
    }

    /// About how long the file would be if it were finished now.
    pub fn estimated_bytes(&self) -> u64 {
        let metadata = self.index_bytes.len() + self.index.size_with(&[]);
        let metadata = metadata + self.filter.estimated_bytes() + FOOTER_BYTES;
        self.output.offset() + (self.block.size_bytes() + metadata) as u64
    }

    /// About the memory that index, filters and models hold until the file is finished. It grows with the
    /// keys and blocks of the file: well compressed blocks are many.
    pub fn memory_bytes(&self) -> usize {
        let learned = self.learned.as_ref().map_or(0, LearnedWriter::memory_bytes);
        self.index_bytes.capacity() + self.filter.memory_bytes() + learned
    }

    /// Entries added so far.
    pub fn entry_count(&self) -> u64 {
        self.properties.entry_count
    }

    /// Writes what is left and syncs the file; the directory entry is the caller's to sync.
    pub fn finish(self) -> Result<SstSummary> {
        self.finish_body()?.finish(None)
    }

    /// Writes all but the end of the file, which says what its sequence numbers are.
    pub fn finish_body(mut self) -> Result<UnfinishedSst> {
        if !self.block.is_empty() {
            self.finish_block(0)?;
        }
        self.properties.data_bytes = self.output.offset();
        if let Some(block) = self.unseparated.take() {
            let separator = last_separator(self.index.last_separator(), &self.last.0);
            self.add_to_index(&separator, block)?;
        }
        self.finish_index_partition();
        let filters = self.write_filters()?;
        let index = self.write_index()?;
        let (training, learned) = self.write_learned()?;
        let others = learned.map(|handle| (TAG_LEARNED, handle)).into_iter().collect();
        let top_level = TopLevel::new(index, self.options.prefix_len, filters, others);
        self.complete_properties();
        let Self { output, range_tombstones, properties, .. } = self;
        Ok(UnfinishedSst { output, top_level, range_tombstones, properties, training })
    }

    /// Writes the block. `next_len` is about the payload of a block with the next entry alone, 0 if there is none.
    fn finish_block(&mut self, next_len: usize) -> Result<()> {
        let (block, pages) = (&mut self.block, &mut self.pages);
        let padding = |packed| pages.padding(packed, next_len);
        let compression = self.options.compression;
        let handle = self.output.write_padded(compression, |out| block.finish(out), padding)?;
        self.block_target = self.pages.payload_target(self.output.offset());
        self.unseparated = Some(handle);
        if let Some(learned) = &mut self.learned {
            learned.finish_block(handle.stored_len);
        }
        self.properties.data_block_count += 1;
        Ok(())
    }

    /// Gives the finished block its separator, now that the key after it is known.
    fn separate(&mut self, next_key: &[u8]) -> Result<()> {
        let Some(block) = self.unseparated.take() else { return Ok(()) };
        match self.last.0 == next_key {
            // The versions of one key span two blocks.
            true => self.add_to_index(next_key, block),
            false => self.add_to_index(&shortest_separator(&self.last.0, next_key), block),
        }
    }

    fn add_to_index(&mut self, separator: &[u8], block: BlockHandle) -> Result<()> {
        let end = block.offset + u64::from(block.stored_len);
        let full = self.metadata_target.is_some_and(|target| {
            !self.index.is_empty() && self.index.size_with(separator) > target
        });
        if full || !self.index.reaches(end) {
            self.finish_index_partition();
        }
        self.index.add(separator, block);
        Ok(())
    }

    fn finish_index_partition(&mut self) {
        if self.index.is_empty() {
            return;
        }
        let start = self.index_bytes.len();
        let separator = self.index.last_separator().to_vec();
        let (data_offset, block_count) = (self.index.base(), self.index.len() as u64);
        self.index.finish(&mut self.index_bytes);
        let range = start..self.index_bytes.len();
        self.finished_index.push(FinishedIndex { range, separator, data_offset, block_count });
    }

    fn write_filters(&mut self) -> Result<Vec<(Vec<u8>, FilterPlace)>> {
        let none = FilterWriter::new(FilterPolicy::None, 0, None);
        let filter = std::mem::replace(&mut self.filter, none);
        let (bytes, finished) = filter.finish(&self.last.0);
        let start = self.output.offset();
        let mut places = Vec::with_capacity(finished.len());
        for FinishedFilter { range, shape, separator, key_count } in finished {
            let place = FilterPlace { offset: self.output.offset(), shape, key_count };
            let partition = &bytes[range];
            for unit in 0..shape.unit_count {
                let unit = &partition[shape.unit_range(unit)];
                self.output.write(Compression::None, |out| out.extend_from_slice(unit))?;
            }
            places.push((separator, place));
        }
        self.properties.filter_bytes = self.output.offset() - start;
        Ok(places)
    }

    fn write_index(&mut self) -> Result<Vec<(Vec<u8>, IndexPlace)>> {
        let start = self.output.offset();
        let mut places = Vec::with_capacity(self.finished_index.len());
        for finished in self.finished_index.drain(..) {
            let bytes = &self.index_bytes[finished.range];
            let handle =
                self.output.write(Compression::None, |out| out.extend_from_slice(bytes))?;
            let FinishedIndex { separator, data_offset, block_count, .. } = finished;
            places
                .push((separator, IndexPlace { handle, data_offset, block_count, first_block: 0 }));
        }
        self.properties.index_bytes = self.output.offset() - start;
        Ok(places)
    }

    /// Trains, and writes what came of it. After the index partitions, with which it is compared.
    fn write_learned(&mut self) -> Result<(Option<Training>, Option<BlockHandle>)> {
        let Some(learned) = self.learned.take() else { return Ok((None, None)) };
        let (payload, training) = learned.finish(self.properties.index_bytes);
        let mut written = None;
        if let Some(payload) = payload {
            let handle =
                self.output.write(Compression::None, |out| out.extend_from_slice(&payload))?;
            self.properties.model_bytes = u64::from(handle.stored_len);
            written = Some(handle);
        }
        Ok((Some(training), written))
    }

    /// What only the end shows: bounds, sequence numbers, expiry, the operator of operands.
    fn complete_properties(&mut self) {
        let tombstones = Arc::clone(&self.range_tombstones);
        let has_points = self.properties.entry_count > 0;
        let properties = &mut self.properties;
        properties.smallest = std::mem::take(&mut self.smallest);
        properties.largest.clone_from(&self.last.0);
        if let Some(first) = tombstones.fragments().next()
            && (!has_points || first.start < properties.smallest.as_slice())
        {
            properties.smallest = first.start.to_vec();
        }
        if let Some(last) = tombstones.fragments().next_back()
            && (!has_points || last.end > properties.largest.as_slice())
        {
            properties.largest = last.end.to_vec();
            properties.largest_exclusive = true;
        }
        properties.range_tombstone_count = tombstones.seqnos().len() as u64;
        tombstones.seqnos().iter().for_each(|seqno| self.note_seqno(*seqno));
        let properties = &mut self.properties;
        (properties.smallest_seqno, properties.largest_seqno) = self.seqnos.unwrap_or_default();
        let raw = properties.raw_key_bytes + properties.raw_value_bytes;
        properties.ttl_due_ms = std::mem::take(&mut self.expiries).due_ms(raw);
        properties.value_refs = std::mem::take(&mut self.values).finish();
        properties.merge_operator = self.options.merge_operator.take_if(|_| self.has_operands);
    }
}

fn check_entry(user_key: &[u8], trailer: u64, value: &[u8]) -> Result<ValueKind> {
    let refuse = |message: &str| Err(Error::InvalidArgument(message.into()));
    if user_key.len() > MAX_KEY_BYTES {
        return refuse("a key is longer than 64 KiB");
    }
    if value.len() > MAX_VALUE_BYTES + EXPIRY_BYTES {
        return refuse("a value is longer than 1 GiB");
    }
    match trailer_kind(trailer) {
        Some(ValueKind::PutTtl) if value.len() < EXPIRY_BYTES => {
            refuse("an expiring entry has no expiry")
        }
        Some(ValueKind::Merged) if value.len() < OLDEST_SEQNO_BYTES => {
            refuse("a combined operand does not say from which sequence number on")
        }
        Some(kind) if kind.is_handle() && ValueHandle::of_entry(kind, value).is_none() => {
            refuse("a value handle is of the wrong length")
        }
        Some(ValueKind::RangeDelete) | None => refuse("an entry is of a kind no SST holds"),
        Some(kind) => Ok(kind),
    }
}

/// A short key at or above `last`, the last of the file, for the separator of its block: cut just
/// past what it shares with the separator before, so that it makes the partition's separators no
/// longer than they are anyway.
fn last_separator(before: &[u8], last: &[u8]) -> Vec<u8> {
    let shared = common_prefix(before, last);
    for at in shared..last.len().saturating_sub(1) {
        if last[at] < u8::MAX && !before.is_empty() {
            let mut separator = last[..=at].to_vec();
            separator[at] += 1;
            return separator;
        }
    }
    last.to_vec()
}

const _: () = assert!(ENTRY_TRAILER_BYTES == size_of::<u64>());

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_last_separator_is_at_or_above_the_last_key(before: Vec<u8>, last: Vec<u8>) {
            prop_assume!(before < last);
            let separator = last_separator(&before, &last);
            prop_assert!(separator >= last && separator > before);
            prop_assert!(separator.len() <= last.len());
        }
    }
}
