//! Checks a whole SST: every checksum, every structure, and that they agree with each other.

use crate::block_handle::{self, BlockHandle};
use crate::filter_partition::hash_prefix;
use crate::footer::EXTERNAL_FILE_NUMBER;
use crate::index::learned::LearnedIndex;
use crate::index::partition::IndexPartition;
use crate::index::top_level::TAG_LEARNED;
use crate::iter::{ScanOptions, SstIter};
use crate::load::OnMiss;
use crate::reader::SstReader;
use crate::value_refs::ValueTally;
use std::cmp::Ordering;
use std::sync::Arc;
use terrace_base::checksum::hash_key;
use terrace_base::key::{compare_internal, trailer_kind, trailer_seqno};
use terrace_base::{MAX_SEQNO, SeqNo};
use terrace_base::{Result, ValueHandle, ValueKind};

/// What a verification went through.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Data blocks read.
    pub data_blocks: u64,
    /// Entries decoded.
    pub entries: u64,
    /// Operands of merges among them.
    pub operands: u64,
    /// Index partitions read.
    pub index_partitions: u64,
    /// Filter partitions read.
    pub filter_partitions: u64,
    /// Bytes of the file covered by checksums that were found right.
    pub bytes: u64,
}

/// Everything the walk over the entries counts or compares with.
impl SstReader {
    /// Reads the whole file past the cache and checks every checksum and invariant. Fails with
    /// the first damage found.
    pub fn verify(self: &Arc<Self>) -> Result<VerifyReport> {
        verify(self)
    }
}

struct Walk<'a> {
    reader: &'a Arc<SstReader>,
    report: VerifyReport,
    tombstones: u64,
    key_bytes: u64,
    value_bytes: u64,
    values: ValueTally,
    seqnos: (SeqNo, SeqNo),
    first: Option<Vec<u8>>,
    last: Option<(Vec<u8>, u64)>,
    last_separator: Option<Vec<u8>>,
    filter: FilterCheck,
    learned: Option<LearnedIndex>,
}

/// The filter partition the walk is in.
#[derive(Default)]
struct FilterCheck {
    at: usize,
    keys: u64,
    hashes: Vec<u64>,
}

/// Verifies the file of `reader`.
pub(crate) fn verify(reader: &Arc<SstReader>) -> Result<VerifyReport> {
    check_regions(reader)?;
    let mut walk = Walk {
        reader,
        report: VerifyReport::default(),
        tombstones: 0,
        key_bytes: 0,
        value_bytes: 0,
        values: ValueTally::default(),
        seqnos: (MAX_SEQNO, SeqNo::ZERO),
        first: None,
        last: None,
        last_separator: None,
        filter: FilterCheck::default(),
        learned: others(reader)?,
    };
    let mut iter = SstIter::new(reader.clone(), ScanOptions::compaction());
    for index_at in 0..reader.top.index().len() {
        let index = reader.index_partition(index_at, OnMiss::Read)?;
        walk.report.index_partitions += 1;
        for block_at in 0..index.count() {
            walk.block(&mut iter, &index, index_at, block_at)?;
        }
        if reader.top.index_separator(index_at)
            != walk.last_separator.as_deref().unwrap_or_default()
        {
            let place = reader.place(reader.top.index()[index_at].handle);
            return Err(place.corrupt("the top level has another separator than the partition"));
        }
    }
    walk.filters_to(None)?;
    walk.totals()?;
    // The blocks read at opening were checked then.
    walk.report.bytes = reader.size_bytes();
    Ok(walk.report)
}

/// Data, filter partitions, index partitions and tail follow each other without gaps.
fn check_regions(reader: &SstReader) -> Result<()> {
    let properties = reader.properties();
    let filters = reader.top.filters().iter().map(|place| place.whole());
    let index = reader.top.index().iter().map(|place| place.handle);
    let footer = &reader.footer;
    let others = reader.top.others().iter().map(|(_, handle)| *handle);
    let tail = footer.range_tombstones.into_iter().chain([footer.top_level, footer.properties]);
    let mut expected = properties.data_bytes;
    if reader.top.skips_filters()
        && let Some(first) = reader.top.index().first()
    {
        // How long filters of an unknown kind are is unknown.
        expected = first.handle.offset;
    }
    for handle in filters.chain(index).chain(others).chain(tail) {
        if handle.offset != expected {
            let detail = format!("the block before ends at {expected}, this one starts elsewhere");
            return Err(reader.place(handle).corrupt(detail));
        }
        expected = handle.end().unwrap_or(u64::MAX);
    }
    let footer_at = reader.size_bytes() - crate::footer::FOOTER_BYTES as u64;
    if expected != footer_at {
        let handle = BlockHandle { offset: footer_at, stored_len: 0 };
        return Err(reader.place(handle).corrupt("the footer does not follow the last block"));
    }
    Ok(())
}

/// Checks the blocks that are neither data nor partitions; returns the learned index.
fn others(reader: &SstReader) -> Result<Option<LearnedIndex>> {
    let mut learned = None;
    for (tag, handle) in reader.top.others() {
        let place = reader.place(*handle);
        let payload = block_handle::unpack(reader.read(*handle)?, &place)?;
        if *tag == TAG_LEARNED {
            let decoded = reader.decode_model(&payload);
            learned = Some(decoded.map_err(|detail| place.corrupt(detail))?);
        }
    }
    Ok(learned)
}

impl Walk<'_> {
    fn block(
        &mut self,
        iter: &mut SstIter,
        index: &IndexPartition,
        index_at: usize,
        block_at: usize,
    ) -> Result<()> {
        let place = self.reader.place(index.handle(block_at));
        let block = iter.visit_block(index_at, block_at)?;
        let separator = index.separator(block_at);
        let mut key = Vec::new();
        if let Some(learned) = &self.learned {
            let ordinal = self.report.data_blocks as usize;
            block.read_key(0, &mut key);
            let continued = self.last.as_ref().is_some_and(|(last, _)| *last == key);
            if learned.handle(ordinal) != index.handle(block_at)
                || learned.is_continued(ordinal) != continued
                || !learned.blocks().admits_first_key(ordinal as u32, &key)
            {
                return Err(place.corrupt("the learned index says other than the block"));
            }
        }
        for at in 0..block.count() {
            block.read_key(at, &mut key);
            let mut entry = block.entry(at);
            let global = self.reader.global_trailer;
            if global > 0 && trailer_seqno(entry.trailer) > SeqNo::ZERO {
                let detail = "an entry has a sequence number of its own beside that of all";
                return Err(place.corrupt(detail));
            }
            entry.trailer |= global;
            if let Some((last, trailer)) = &self.last
                && compare_internal(last, *trailer, &key, entry.trailer) != Ordering::Less
            {
                return Err(place.corrupt(format!("entry {at} is out of order")));
            }
            // The separator before may equal this key only if versions of it span the blocks.
            let spans = self.last.as_ref().is_some_and(|(last, _)| *last == key);
            let after = self.last_separator.as_ref().is_none_or(|before| match spans {
                true => *before <= key,
                false => *before < key,
            });
            if key > separator || !after {
                return Err(place.corrupt(format!("entry {at} is outside its index separators")));
            }
            if let Some(detail) = self.wrong_outside(&key, entry.trailer) {
                return Err(place.corrupt(detail));
            }
            self.entry(&key, entry.trailer, block.value(entry.value))?;
        }
        self.report.data_blocks += 1;
        self.last_separator = Some(separator);
        Ok(())
    }

    /// What an entry has that a file that was written outside a store must not have.
    fn wrong_outside(&self, key: &[u8], trailer: u64) -> Option<&'static str> {
        let properties = self.reader.properties();
        let file_number = self.reader.file_number();
        if file_number != EXTERNAL_FILE_NUMBER && properties.global_seqno.is_none() {
            return None;
        }
        if self.last.as_ref().is_some_and(|(last, _)| last == key) {
            return Some("a key is there twice in a file with one sequence number");
        }
        match trailer_kind(trailer) {
            Some(ValueKind::Merge) if properties.merge_operator.is_none() => {
                Some("the file does not name the merge operator of its operands")
            }
            Some(ValueKind::Merged) => Some("an operand has sequence numbers of its own"),
            _ => None,
        }
    }

    fn entry(&mut self, key: &[u8], trailer: u64, value: &[u8]) -> Result<()> {
        self.report.entries += 1;
        self.key_bytes += key.len() as u64;
        self.value_bytes += value.len() as u64;
        let kind = trailer_kind(trailer);
        self.report.operands += u64::from(kind.is_some_and(ValueKind::is_operand));
        self.tombstones += u64::from(kind == Some(ValueKind::Delete));
        if let Some(handle) = kind.and_then(|kind| ValueHandle::of_entry(kind, value)) {
            self.values.add(&handle, key.len());
        }
        let seqno = trailer_seqno(trailer);
        self.seqnos = (self.seqnos.0.min(seqno), self.seqnos.1.max(seqno));
        if self.last.as_ref().is_none_or(|(last, _)| last != key) {
            self.filters_to(Some(key))?;
            self.add_hashes(key);
        }
        if self.first.is_none() {
            self.first = Some(key.to_vec());
        }
        self.last = Some((key.to_vec(), trailer));
        Ok(())
    }

    /// The hashes under which a filter must know `key`, the next one.
    fn add_hashes(&mut self, key: &[u8]) {
        let len = self.reader.top.prefix_len();
        let first = self.filter.hashes.is_empty();
        self.filter.hashes.push(hash_key(key));
        let Some(prefix) = key.get(..len).filter(|_| len > 0) else { return };
        let before = self.last.as_ref().and_then(|(last, _)| last.get(..len));
        if first || before != Some(prefix) {
            self.filter.hashes.push(hash_prefix(prefix));
        }
    }

    /// Checks the filter partitions that end before `key` (or at the end of the file).
    fn filters_to(&mut self, key: Option<&[u8]>) -> Result<()> {
        let reader = self.reader;
        while self.filter.at < reader.top.filters().len() {
            let at = self.filter.at;
            if key.is_some_and(|key| key <= reader.top.filter_separator(at)) {
                return Ok(());
            }
            let listed = reader.top.filters()[at];
            let place = reader.place(listed.whole());
            let filter = reader.adopt_filter(at, reader.read(listed.whole())?, false)?;
            if self.filter.hashes.len() as u64 != listed.key_count {
                return Err(place.corrupt("the filter covers another number of keys than listed"));
            }
            if !self.filter.hashes.iter().all(|hash| filter.may_contain(*hash)) {
                return Err(place.corrupt("the filter denies a key of the file"));
            }
            self.filter.keys += listed.key_count;
            self.filter.hashes.clear();
            self.filter.at += 1;
            self.report.filter_partitions += 1;
        }
        let unfiltered = !reader.top.filters().is_empty() && !self.filter.hashes.is_empty();
        if unfiltered || (key.is_some() && !reader.top.filters().is_empty()) {
            let place = reader.place(reader.footer.top_level);
            return Err(place.corrupt("keys after the last filter partition"));
        }
        if reader.top.filters().is_empty() {
            self.filter.hashes.clear();
        }
        Ok(())
    }

    /// The smallest and the largest key of entries and range tombstones, and whether the largest is itself not in the file.
    fn bounds(&self) -> (&[u8], &[u8], bool) {
        let first = self.first.as_deref();
        let last = self.last.as_ref().map(|(last, _)| &**last);
        let tombstones = self.reader.range_tombstones();
        let start = tombstones.fragments().next().map(|fragment| fragment.start);
        let end = tombstones.fragments().next_back().map(|fragment| fragment.end);
        let smallest = first.into_iter().chain(start).min().unwrap_or_default();
        match (last, end) {
            (last, Some(end)) if last.is_none_or(|last| end > last) => (smallest, end, true),
            (last, _) => (smallest, last.unwrap_or_default(), false),
        }
    }

    /// What the properties say against what was found.
    fn totals(&mut self) -> Result<()> {
        let (reader, properties) = (self.reader, self.reader.properties());
        let place = reader.place(reader.footer.properties);
        let tombstones = reader.range_tombstones().seqnos().len() as u64;
        let pairs = [
            ("entries", properties.entry_count, self.report.entries),
            ("tombstones", properties.tombstone_count, self.tombstones),
            ("range tombstones", properties.range_tombstone_count, tombstones),
            ("data blocks", properties.data_block_count, self.report.data_blocks),
            ("key bytes", properties.raw_key_bytes, self.key_bytes),
            ("value bytes", properties.raw_value_bytes, self.value_bytes),
        ];
        for (what, recorded, found) in pairs {
            if recorded != found {
                return Err(place.corrupt(format!("{recorded} {what} recorded, {found} found")));
            }
        }
        if (&*properties.smallest, &*properties.largest, properties.largest_exclusive)
            != self.bounds()
        {
            return Err(place.corrupt("the file has other bounds than recorded"));
        }
        if properties.value_refs != std::mem::take(&mut self.values).finish() {
            return Err(place.corrupt("the entries refer to other values than recorded"));
        }
        let (low, high) = (properties.smallest_seqno, properties.largest_seqno);
        let outside = self.report.entries > 0 && (self.seqnos.0 < low || self.seqnos.1 > high);
        if outside || high > MAX_SEQNO {
            return Err(place.corrupt("sequence numbers outside the recorded range"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
