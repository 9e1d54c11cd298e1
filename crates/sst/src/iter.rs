//! The cursor over one SST's entries.
//!
//! Index partitions are touched once each, in order, and only for what a learned index does not lead to
//! ([`by_model`]); filters never. The key is assembled in one
//! buffer of which a step inside a block rewrites only the part after the block's prefix. Forward
//! and backward cost the same: entries are reached by number.
//!
//! Internal order is kept from block to block, too: a step onto an entry that does not come next is damage, and so is a
//! seek that ends on the wrong side. Who seeks past what it has seen would else come back to it again and again.
//!
//! Blocks come from one of two places. *Scans* take them from the cache, and once a scan is seen
//! to be sequential, read several missing ones together. *Readahead* (compaction, verification)
//! reads large pieces of the file past the cache and decodes blocks where they lie in the piece.

mod by_model;

use crate::block::format::{self, Layout};
use crate::block::search::HEAD_BYTES;
use crate::block::{BlockRef, DataBlock, ValueRange};
use crate::block_handle::{self, BlockHandle};
use crate::damage::is_damage;
use crate::load::OnMiss;
use crate::lookup::EntryAt;
use crate::reader::SstReader;
use crate::residency::{ResidentIndex, SlotEntry};
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use terrace_base::key::{compare_internal, set_end};
use terrace_base::{Error, InternalIter, Result};
use terrace_buf::Slice;
use terrace_compression::Compression;

/// Stored bytes that a scan reads at a time, however many blocks it may read ahead.
const MAX_AHEAD_BYTES: u64 = 256 << 10;
/// Default of [`ScanOptions::prefetch_blocks`].
pub const DEFAULT_PREFETCH_BLOCKS: usize = 16;

/// A cursor that comes to a smaller block, or to another file, keeps no buffer for decompressed blocks that is larger: merges
/// have a cursor for each of hundreds of files.
const MAX_KEPT_UNPACKED_BYTES: usize = 1 << 20;

/// Bytes per read of a compaction's inputs.
pub const COMPACTION_READAHEAD_BYTES: usize = 1 << 20;

/// How a scan reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScanOptions {
    /// Whether blocks and index partitions that had to be read go into the cache.
    pub fill_cache: bool,
    /// Read nothing: a step onto a block or partition that is not in memory gives
    /// [`Error::NotInMemory`](terrace_base::Error::NotInMemory), and the cursor is not valid. Takes
    /// the place of `readahead_bytes`.
    pub in_memory: bool,
    /// Above 0: read the data in sequential pieces of at least this size, past the cache.
    pub readahead_bytes: usize,
    /// How many missing blocks are read together at most, once a scan is seen to be sequential.
    pub prefetch_blocks: usize,
}

impl Default for ScanOptions {
    fn default() -> Self {
        let prefetch_blocks = DEFAULT_PREFETCH_BLOCKS;
        Self { fill_cache: true, in_memory: false, readahead_bytes: 0, prefetch_blocks }
    }
}

impl ScanOptions {
    /// For reading whole files once: large sequential reads past the cache.
    pub fn compaction() -> Self {
        let readahead_bytes = COMPACTION_READAHEAD_BYTES;
        Self { fill_cache: false, in_memory: false, readahead_bytes, prefetch_blocks: 0 }
    }

    fn on_miss(&self) -> OnMiss {
        OnMiss::of(self.fill_cache, self.in_memory)
    }
}

/// A cursor over the entries of one SST. Keeps the reader open.
pub struct SstIter {
    reader: Arc<SstReader>,
    options: ScanOptions,
    /// Number of the index partition the cursor is in.
    index_at: usize,
    /// The index partition that was used last.
    index: Option<Arc<SlotEntry<ResidentIndex>>>,
    /// Number of the block in its index partition.
    block_at: usize,
    /// Number of the current block in the file, if there is one.
    ordinal: Option<u64>,
    /// Where the next seek should end.
    expected: EntryAt,
    page: Page,
    layout: Layout,
    /// Number of the entry in its block.
    at: usize,
    valid: bool,
    /// The user key; its front is always the prefix of the current block.
    key: Vec<u8>,
    trailer: u64,
    value: ValueRange,
    /// The entry on which the cursor stood before it came into the current block.
    left: (Vec<u8>, u64),
    /// Blocks entered one after another since the last seek or turn.
    streak: u32,
    /// Blocks read ahead of a scan, by offset.
    ahead: VecDeque<(u64, DataBlock)>,
    window: Window,
    /// Nothing is read ahead of blocks before this offset: what lies there could not be read.
    single_until: u64,
    /// A decompressed block of the window.
    unpacked: Vec<u8>,
}

/// Where the bytes of the current block are.
enum Page {
    None,
    Block(DataBlock),
    /// In the window as they are.
    Window(Range<usize>),
    Unpacked,
}

/// A piece of the file read ahead.
#[derive(Default)]
struct Window {
    start: u64,
    bytes: Vec<u8>,
}

const NO_LAYOUT: Layout = Layout { count: 0, prefix_len: 0, wide: false, common_trailer: 0 };

impl SstReader {
    /// A cursor over the entries; not valid before its first seek.
    pub fn iter(self: &Arc<Self>, options: ScanOptions) -> SstIter {
        SstIter::new(self.clone(), options)
    }
}

impl SstIter {
    pub(crate) fn new(reader: Arc<SstReader>, options: ScanOptions) -> Self {
        Self {
            reader,
            options,
            index_at: 0,
            index: None,
            block_at: 0,
            ordinal: None,
            expected: EntryAt::default(),
            page: Page::None,
            layout: NO_LAYOUT,
            at: 0,
            valid: false,
            key: Vec::new(),
            trailer: 0,
            value: ValueRange::default(),
            left: (Vec::new(), 0),
            streak: 0,
            ahead: VecDeque::new(),
            window: Window::default(),
            single_until: 0,
            unpacked: Vec::new(),
        }
    }

    /// A cursor over another file that reads in the same way, not valid before its first seek. Keeps the buffers, but not
    /// what single large blocks made of them.
    pub fn moved_to(self, reader: Arc<SstReader>) -> Self {
        let Self { mut key, left: (left_key, _), mut window, mut unpacked, options, .. } = self;
        key.clear();
        window.bytes.clear();
        window.bytes.shrink_to(options.readahead_bytes);
        unpacked.clear();
        unpacked.shrink_to(MAX_KEPT_UNPACKED_BYTES);
        Self { key, left: (left_key, 0), window, unpacked, ..Self::new(reader, options) }
    }

    /// The file the cursor is over.
    pub fn reader(&self) -> &Arc<SstReader> {
        &self.reader
    }

    /// The value, keeping its block alive; a copy if the block is not in a cache buffer. Must be
    /// valid.
    pub fn value_slice(&self) -> Slice {
        match &self.page {
            Page::Block(block) => block.value(self.value),
            _ => Slice::from(self.value()),
        }
    }

    #[inline]
    fn page_bytes(&self) -> &[u8] {
        match &self.page {
            Page::None => &[],
            Page::Block(block) => block.bytes(),
            Page::Window(range) => &self.window.bytes[range.clone()],
            Page::Unpacked => &self.unpacked,
        }
    }

    #[inline]
    fn block(&self) -> BlockRef<'_> {
        BlockRef::new(self.page_bytes(), self.layout)
    }

    /// Stands on entry `at` of the current block.
    #[inline]
    fn settle(&mut self, at: usize) {
        let bytes = match &self.page {
            Page::None => &[],
            Page::Block(block) => block.bytes(),
            Page::Window(range) => &self.window.bytes[range.clone()],
            Page::Unpacked => &self.unpacked,
        };
        let block = BlockRef::new(bytes, self.layout);
        let entry = block.entry(at);
        let head = block.head(at);
        let head = &head[..entry.rest_len.min(HEAD_BYTES)];
        set_end(&mut self.key, self.layout.prefix_len.into(), head, entry.tail);
        self.trailer = entry.trailer | self.reader.global_trailer;
        self.value = entry.value;
        self.at = at;
        self.valid = true;
    }

    /// Stands on entry `at` of the block that a step has just entered, of which the entry that it left is to be `left_is`.
    fn settle_beside(&mut self, at: usize, left_is: Ordering) -> Result<()> {
        self.settle(at);
        let (key, trailer) = &self.left;
        match compare_internal(key, *trailer, &self.key, self.trailer) == left_is {
            true => Ok(()),
            false => Err(self.out_of_order()),
        }
    }

    /// The error that the current entry is not where it should be.
    #[cold]
    fn out_of_order(&mut self) -> Error {
        self.valid = false;
        let index = self.index.as_ref().filter(|index| index.at() == self.index_at);
        let offset = index.map_or(0, |index| index.handle(self.block_at).offset);
        Error::corruption(self.reader.path(), offset, "data blocks are out of order")
    }

    /// Goes to index partition `at`; `None` if there is none.
    fn enter_index(&mut self, at: usize) -> Result<Option<Arc<SlotEntry<ResidentIndex>>>> {
        if at >= self.reader.top.index().len() {
            return Ok(None);
        }
        if let Some(index) = self.index.as_ref().filter(|index| index.at() == at) {
            self.index_at = at;
            return Ok(Some(index.clone()));
        }
        let index = self.reader.index_partition(at, self.options.on_miss())?;
        self.index_at = at;
        self.index = Some(index.clone());
        Ok(Some(index))
    }

    /// Goes to block `block_at` of `index`, the current index partition.
    fn enter_block(&mut self, index: &SlotEntry<ResidentIndex>, block_at: usize) -> Result<()> {
        let ordinal = self.reader.top.index()[index.at()].first_block + block_at as u64;
        self.block_at = block_at;
        if self.ordinal == Some(ordinal) {
            return Ok(());
        }
        self.ordinal = None;
        let handle = index.handle(block_at);
        if self.options.readahead_bytes > 0 && !self.options.in_memory {
            self.open_in_window(handle)?;
        } else {
            let block = self.scan_block(index, handle)?;
            self.layout = block.layout();
            self.page = Page::Block(block);
        }
        self.ordinal = Some(ordinal);
        self.begin_key();
        Ok(())
    }

    /// Puts the prefix of the current block into the key. The key before it is kept, and its buffer exchanged for the other.
    fn begin_key(&mut self) {
        let mut key = std::mem::take(&mut self.left.0);
        key.clear();
        key.extend_from_slice(self.block().prefix());
        self.left = (std::mem::replace(&mut self.key, key), self.trailer);
    }

    /// The block from what was read ahead, from the cache, or from the file, together with
    /// missing blocks after it if the scan is sequential.
    fn scan_block(
        &mut self,
        index: &SlotEntry<ResidentIndex>,
        handle: BlockHandle,
    ) -> Result<DataBlock> {
        while let Some((offset, block)) = self.ahead.pop_front() {
            if offset == handle.offset {
                return Ok(block);
            }
        }
        if let Some(block) = self.reader.resident_block(index, self.block_at) {
            return Ok(block);
        }
        let on_miss = self.options.on_miss();
        let window = 1 << self.streak.min(16);
        let window = self.options.prefetch_blocks.min(window);
        if window < 2 || on_miss == OnMiss::Refuse {
            return self.reader.load_data_block(handle, on_miss);
        }
        let fill = on_miss == OnMiss::Fill;
        let last = (self.block_at + window).min(index.count());
        let mut bytes = u64::from(handle.stored_len);
        let missing = (self.block_at + 1..last)
            .take_while(|at| self.reader.resident_block(index, *at).is_none())
            .map(|at| index.handle(at))
            .take_while(|handle| {
                bytes += u64::from(handle.stored_len);
                bytes <= MAX_AHEAD_BYTES
            });
        let handles: Vec<BlockHandle> = std::iter::once(handle).chain(missing).collect();
        let mut first = None;
        // A block that is read ahead and cannot be read is an error when the scan comes to it, if it does.
        let stored = self.reader.read_many(&handles).unwrap_or_default();
        for (handle, stored) in handles.iter().zip(stored) {
            let block = self.reader.adopt_data_block(*handle, stored, fill);
            match first {
                None => first = Some(block?),
                Some(_) => match block {
                    Ok(block) => self.ahead.push_back((handle.offset, block)),
                    Err(_) => break,
                },
            }
        }
        match first {
            Some(block) => Ok(block),
            None => self.reader.load_data_block(handle, on_miss),
        }
    }

    /// Makes the block at `handle` the page, reading a new window if it is not in this one.
    fn open_in_window(&mut self, handle: BlockHandle) -> Result<()> {
        let len = handle.stored_len as usize;
        let inside = |window: &Window| {
            let from = usize::try_from(handle.offset.checked_sub(window.start)?).ok()?;
            (from.checked_add(len)? <= window.bytes.len()).then_some(from)
        };
        let from = match inside(&self.window) {
            Some(from) => from,
            None => {
                self.page = Page::None;
                self.read_window(handle)?;
                0
            }
        };
        let place = self.reader.place(handle);
        let stored = &self.window.bytes[from..from + len];
        let (content, compression) = block_handle::check(stored, &place)?;
        let declared = match compression {
            Compression::None => 0,
            _ => block_handle::declared_len(content, compression, &place)?,
        };
        if declared <= MAX_KEPT_UNPACKED_BYTES && self.unpacked.capacity() > MAX_KEPT_UNPACKED_BYTES
        {
            (self.page, self.unpacked) = (Page::None, Vec::new());
        }
        if compression == Compression::None {
            self.layout = format::parse(content).map_err(|detail| place.corrupt(detail))?;
            self.page = Page::Window(from..from + content.len());
        } else {
            self.unpacked.resize(declared, 0);
            block_handle::decompress_into(content, compression, &mut self.unpacked, &place)?;
            self.layout = format::parse(&self.unpacked).map_err(|detail| place.corrupt(detail))?;
            self.page = Page::Unpacked;
        }
        Ok(())
    }

    fn read_window(&mut self, handle: BlockHandle) -> Result<()> {
        let data_end = self.reader.properties().data_bytes;
        let readahead = self.options.readahead_bytes as u64;
        let left = data_end.saturating_sub(handle.offset);
        let readahead = if handle.offset < self.single_until { 0 } else { readahead };
        let len = readahead.max(u64::from(handle.stored_len)).min(left);
        // Nothing of the old content counts while the new is being read.
        self.window.start = u64::MAX;
        let kept = self.options.readahead_bytes;
        if len <= kept as u64 && self.window.bytes.capacity() > kept {
            self.window.bytes = Vec::with_capacity(kept);
        }
        self.window.bytes.resize(len as usize, 0);
        self.reader.count_read(self.window.bytes.len());
        let mut read = self.reader.file.read_at(handle.offset, &mut self.window.bytes);
        let is_ahead = len > u64::from(handle.stored_len);
        if is_ahead && read.as_ref().is_err_and(is_damage) {
            // An error of what lies ahead comes when the scan does.
            self.single_until = handle.offset + len;
            self.window.bytes.truncate(handle.stored_len as usize);
            self.reader.count_read(self.window.bytes.len());
            read = self.reader.file.read_at(handle.offset, &mut self.window.bytes);
        }
        read?;
        self.window.start = handle.offset;
        if left > len {
            self.reader.file.advise_willneed(handle.offset + len, readahead.min(left - len));
        }
        Ok(())
    }

    /// Whether the top level lists no data block after the current one.
    fn is_in_last_block(&self) -> bool {
        let index = self.reader.top.index();
        self.index_at + 1 == index.len()
            && self.block_at as u64 + 1 == index[self.index_at].block_count
    }

    /// Goes to the first entry of the next block, or becomes invalid at the end.
    #[cold]
    fn next_block(&mut self) -> Result<()> {
        self.streak += 1;
        if !std::mem::take(&mut self.valid) {
            return Ok(());
        }
        if self.enter_next_by_model() {
            return self.settle_beside(0, Ordering::Less);
        }
        if self.is_in_last_block() {
            return Ok(());
        }
        let Some(mut index) = self.enter_index(self.index_at)? else { return Ok(()) };
        let mut block_at = self.block_at + 1;
        if block_at == index.count() {
            match self.enter_index(self.index_at + 1)? {
                Some(next) => (index, block_at) = (next, 0),
                None => return Ok(()),
            }
        }
        self.enter_block(&index, block_at)?;
        self.settle_beside(0, Ordering::Less)
    }

    /// Goes to the last entry of the block before, or becomes invalid at the start.
    #[cold]
    fn prev_block(&mut self) -> Result<()> {
        self.streak = 0;
        if !std::mem::take(&mut self.valid) || (self.index_at, self.block_at) == (0, 0) {
            return Ok(());
        }
        let Some(mut index) = self.enter_index(self.index_at)? else { return Ok(()) };
        let mut block_at = self.block_at;
        if block_at == 0 {
            let Some(before) = self.index_at.checked_sub(1) else { return Ok(()) };
            match self.enter_index(before)? {
                Some(before) => (block_at, index) = (before.count(), before),
                None => return Ok(()),
            }
        }
        self.enter_block(&index, block_at - 1)?;
        self.settle_beside(self.layout.count as usize - 1, Ordering::Greater)
    }

    fn start_seek(&mut self) {
        self.valid = false;
        self.streak = 0;
        self.ahead.clear();
    }

    fn seek_by_index(&mut self, user_key: &[u8], trailer: u64) -> Result<()> {
        let mut index_at = self.reader.top.index_at(user_key);
        while let Some(index) = self.enter_index(index_at)? {
            for block_at in index.lower_bound(user_key)..index.count() {
                self.enter_block(&index, block_at)?;
                let at = self.block().lower_bound(user_key, trailer);
                if at < self.layout.count as usize {
                    self.settle(at);
                    return Ok(());
                }
            }
            index_at += 1;
        }
        Ok(())
    }

    /// The entries of block `block_at` of index partition `index_at`, for verification.
    pub(crate) fn visit_block(&mut self, index_at: usize, block_at: usize) -> Result<BlockRef<'_>> {
        self.valid = false;
        if let Some(index) = self.enter_index(index_at)? {
            self.enter_block(&index, block_at)?;
        }
        Ok(self.block())
    }
}

impl InternalIter for SstIter {
    #[inline]
    fn valid(&self) -> bool {
        self.valid
    }

    fn seek_to_first(&mut self) -> Result<()> {
        self.start_seek();
        self.expected = EntryAt::default();
        if let Some(index) = self.enter_index(0)? {
            self.enter_block(&index, 0)?;
            self.settle(0);
        }
        Ok(())
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.start_seek();
        self.expected = EntryAt::default();
        let Some(last) = self.reader.top.index().len().checked_sub(1) else { return Ok(()) };
        if let Some(index) = self.enter_index(last)? {
            self.enter_block(&index, index.count() - 1)?;
            self.settle(self.layout.count as usize - 1);
        }
        Ok(())
    }

    #[inline]
    fn prepare_seek(&mut self, user_key: &[u8]) {
        self.valid = false;
        self.prepare(user_key);
    }

    fn seek(&mut self, user_key: &[u8], trailer: u64) -> Result<()> {
        self.start_seek();
        if !self.seek_by_model(user_key, trailer) {
            self.seek_by_index(user_key, trailer)?;
        }
        // What is stored of an ingested file looks old. It has one version of a key, unless somebody has written more.
        let is_ingested = self.reader.global_trailer > 0;
        while is_ingested && self.valid && self.key == user_key && self.trailer > trailer {
            self.next()?;
        }
        Ok(())
    }

    fn seek_before(&mut self, user_key: &[u8], trailer: u64) -> Result<()> {
        self.seek(user_key, trailer)?;
        match self.valid {
            true => self.prev()?,
            false => self.seek_to_last()?,
        }
        let order = || compare_internal(&self.key, self.trailer, user_key, trailer);
        match self.valid && order() != Ordering::Less {
            true => Err(self.out_of_order()),
            false => Ok(()),
        }
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        debug_assert!(self.valid, "next on a cursor that is not valid");
        let next = self.at + 1;
        if self.valid && next < self.layout.count as usize {
            self.settle(next);
            self.prefetch_ahead();
            return Ok(());
        }
        self.next_block()
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        debug_assert!(self.valid, "prev on a cursor that is not valid");
        if self.valid && self.at > 0 {
            self.settle(self.at - 1);
            return Ok(());
        }
        self.prev_block()
    }

    #[inline]
    fn user_key(&self) -> &[u8] {
        &self.key
    }

    #[inline]
    fn trailer(&self) -> u64 {
        self.trailer
    }

    #[inline]
    fn value(&self) -> &[u8] {
        &self.page_bytes()[self.value.start..self.value.end]
    }
}

#[cfg(test)]
mod tests;
