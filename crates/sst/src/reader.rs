//! An open SST: what is pinned while it is open, and what its readers share.
//!
//! Pinned are the top-level index and the range tombstones. An index or filter partition is reached through its
//! residency slot ([`crate::residency`]) if it is in memory, a data block through the cache; what is
//! missing is read by [`crate::load`]. Lookups are in [`crate::get`], scans in [`crate::iter`].

mod tail;

pub(crate) use tail::payload;

use crate::block_handle::{BlockHandle, Place};
use crate::counters::ReadCounters;
use crate::filter_read_policy::FilterReadPolicy;
use crate::footer::{self, FOOTER_BYTES, Footer};
use crate::index::top_level::TopLevel;
use crate::lookup::{Entry, Lookup};
use crate::model_use::ModelUse;
use crate::properties::{COMPARATOR, Properties};
use crate::residency::{BlockCache, Slots};
use crate::tombstone_block;
use std::path::Path;
use std::sync::Arc;
use tail::{Tail, check_top_level};
use terrace_base::{Error, FileNumber, MAX_SEQNO, RangeTombstones, Result};
use terrace_buf::Slice;
use terrace_cache::CacheKey;
use terrace_vfs::{OpenMode, RandomFile, Vfs};

/// Who decides which filter units are in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FilterMemory {
    /// The block cache: a filter partition is read whole when a lookup wants it, and evicted like
    /// any other metadata.
    #[default]
    Cached,
    /// The caller of [`crate::load_filter_units`] and [`crate::drop_filter_units`]: a lookup uses
    /// the units that are there and never reads any.
    Elastic,
}

/// What readers of one store share.
#[derive(Clone)]
pub struct ReaderOptions {
    /// Where blocks and metadata partitions live.
    pub cache: Arc<BlockCache>,
    /// Who decides which filter units are in memory.
    pub filter_memory: FilterMemory,
    /// Use learned indexes where files have them.
    pub models: bool,
    /// Read past the page cache.
    pub direct: bool,
    /// Where reads are counted.
    pub counters: Arc<ReadCounters>,
}

/// An open SST. Shared by any number of threads; all methods take `&self`.
pub struct SstReader {
    pub(crate) vfs: Arc<dyn Vfs>,
    pub(crate) file: Arc<dyn RandomFile>,
    pub(crate) file_number: FileNumber,
    pub(crate) cache: Arc<BlockCache>,
    /// This reader's number in the cache.
    pub(crate) cache_file: u64,
    pub(crate) counters: Arc<ReadCounters>,
    pub(crate) filter_memory: FilterMemory,
    pub(crate) top: TopLevel,
    pub(crate) slots: Arc<Slots>,
    pub(crate) footer: Footer,
    pub(crate) model: ModelUse,
    pub(crate) filter_read_policy: FilterReadPolicy,
    pub(crate) properties: Properties,
    range_tombstones: RangeTombstones,
    /// Added to every stored trailer: the sequence number of all entries of an ingested file, else 0.
    pub(crate) global_trailer: u64,
    size_bytes: u64,
}

/// What the end of the SST at `path` says of the file, without opening it for reads.
///
/// # Errors
/// `Corruption` if the file does not end as a finished SST of this number does; I/O; `Unsupported`.
pub fn read_properties(vfs: &dyn Vfs, path: &Path, file_number: FileNumber) -> Result<Properties> {
    let file = vfs.open(path, OpenMode::default())?;
    let tail = Tail::read(&*file, file_number, &ReadCounters::new())?;
    tail.decode(tail.footer.properties, Properties::decode)
}

/// The number of the SST that the file at `path` ends as, whatever it is called; `None` if it ends as none.
///
/// # Errors
/// I/O.
pub fn read_number(vfs: &dyn Vfs, path: &Path) -> Result<Option<FileNumber>> {
    let file = vfs.open(path, OpenMode::default())?;
    let Some(offset) = file.len().checked_sub(FOOTER_BYTES as u64) else { return Ok(None) };
    let mut bytes = [0; FOOTER_BYTES];
    file.read_at(offset, &mut bytes)?;
    let file_number = footer::stated_number(&bytes);
    match Footer::decode(&bytes, &Place { path, file_number, offset }) {
        Ok(_) | Err(Error::Unsupported { .. }) => Ok(Some(file_number)),
        Err(_) => Ok(None),
    }
}

impl SstReader {
    /// Opens the file with one read of its end, or two if its top level is large. `file_number`
    /// and `size_bytes` are what the manifest says; a file that is another or of another length
    /// is corrupt.
    pub fn open(
        vfs: &Arc<dyn Vfs>,
        path: &Path,
        file_number: FileNumber,
        size_bytes: u64,
        options: &ReaderOptions,
    ) -> Result<Arc<Self>> {
        let file = vfs.open(path, OpenMode { direct: options.direct, random: true })?;
        if file.len() != size_bytes {
            let detail = format!("the file has {} bytes, not {size_bytes}", file.len());
            return Err(Error::corruption(path, file.len().min(size_bytes), detail));
        }
        let tail = Tail::read(&*file, file_number, &options.counters)?;
        let properties = tail.decode(tail.footer.properties, Properties::decode)?;
        if properties.comparator != COMPARATOR {
            let detail = format!("unknown key order `{}`", properties.comparator.escape_debug());
            return Err(Error::Unsupported { path: path.to_path_buf(), detail });
        }
        let file_end = tail.footer.tail_offset();
        let top = tail.decode(tail.footer.top_level, |bytes| TopLevel::decode(bytes, file_end))?;
        check_top_level(&top, &properties, file_end)
            .map_err(|detail| Error::corruption(path, tail.footer.top_level.offset, detail))?;
        let range_tombstones = match tail.footer.range_tombstones {
            Some(handle) => tail.decode(handle, tombstone_block::decode)?,
            None => RangeTombstones::default(),
        };
        let global = properties.global_seqno;
        if !tail.footer.allows_global_seqno(global.is_some())
            || global.is_some_and(|seqno| seqno > MAX_SEQNO)
        {
            let detail = "the format version does not match the sequence number of all entries";
            return Err(Error::corruption(path, tail.footer.properties.offset, detail));
        }
        Ok(Arc::new(Self {
            global_trailer: global.map_or(0, |seqno| seqno.get() << 8),
            vfs: vfs.clone(),
            footer: tail.footer,
            filter_read_policy: FilterReadPolicy::default(),
            model: ModelUse::new(options.models, &top, &properties),
            file,
            file_number,
            cache_file: options.cache.next_file_id(),
            cache: options.cache.clone(),
            counters: options.counters.clone(),
            filter_memory: options.filter_memory,
            slots: Slots::new(top.index().len(), top.filters().len()),
            top,
            properties,
            range_tombstones,
            size_bytes,
        }))
    }

    /// The range tombstones of the file.
    pub fn range_tombstones(&self) -> &RangeTombstones {
        &self.range_tombstones
    }

    /// What the writer recorded.
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// The number under which the file was written.
    pub fn file_number(&self) -> FileNumber {
        self.file_number
    }

    /// The length of the file.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// The name of the file.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Bytes that stay in memory while the file is open, whatever the cache does.
    pub fn pinned_bytes(&self) -> usize {
        size_of::<Self>()
            + self.top.memory_bytes()
            + self.slots.memory_bytes()
            + self.range_tombstones.memory_bytes()
            + self.properties.memory_bytes()
    }

    /// Where the data of index partition `at` ends.
    pub(crate) fn data_end(&self, at: usize) -> u64 {
        let next = self.top.index().get(at + 1);
        next.map_or(self.properties.data_bytes, |next| next.data_offset)
    }

    /// An entry that a lookup found in a block, as it is to be seen; `None` if it is newer than the lookup
    /// may see, which only the sequence number of the whole file can tell.
    #[inline]
    pub(crate) fn seen(&self, lookup: &Lookup<'_>, stored: u64, value: Slice) -> Option<Entry> {
        let trailer = stored | self.global_trailer;
        (trailer <= lookup.trailer).then_some(Entry { trailer, value })
    }

    #[inline]
    pub(crate) fn cache_key(&self, handle: BlockHandle) -> CacheKey {
        CacheKey { file: self.cache_file, offset: handle.offset }
    }

    pub(crate) fn place(&self, handle: BlockHandle) -> Place<'_> {
        let (path, file_number) = (self.file.path(), self.file_number);
        Place { path, file_number, offset: handle.offset }
    }
}

impl Drop for SstReader {
    /// Nobody can reach this reader's partitions and blocks any more. Blocks without a slot age
    /// out of the cache, everything else leaves now.
    fn drop(&mut self) {
        self.remove_model();
        let mut partitions = Vec::new();
        let mut blocks = Vec::new();
        for (place, slot) in self.top.index().iter().zip(&*self.slots.index) {
            if let Some(index) = &*slot.load() {
                let slots = index.blocks().into_iter().flat_map(|blocks| blocks.iter());
                let filled = slots.enumerate().filter(|(_, slot)| slot.load().is_some());
                blocks.extend(filled.map(|(at, _)| self.cache_key(index.handle(at))));
            }
            partitions.push(self.cache_key(place.handle));
        }
        if self.filter_memory == FilterMemory::Cached {
            partitions.extend(self.top.filters().iter().map(|place| self.cache_key(place.whole())));
        }
        // Slots go before what is in them, which has none to empty then, and those of blocks with their partitions.
        self.slots = Slots::new(0, 0);
        partitions.into_iter().chain(blocks).for_each(|key| self.cache.remove(&key));
    }
}
