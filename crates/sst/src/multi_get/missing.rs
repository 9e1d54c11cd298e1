//! What the lookups of a batch miss in memory, read together and kept until the end (multi_get), as far as that takes no more
//! than some memory.

use crate::block::DataBlock;
use crate::block_handle::BlockHandle;
use crate::damage::is_damage;
use crate::filter_partition::FilterPartition;
use crate::reader::SstReader;
use crate::residency::{ResidentIndex, SlotEntry};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use terrace_base::{Error, Result};
use terrace_buf::BufMut;
use terrace_vfs::ReadRequest;

/// Bytes that are read together, about, and of data blocks that are kept, which may be much longer than what is stored: one
/// block may go beyond. What is left out is wanted again. Nobody has an account of it, and each thread of a process may take
/// as much.
const MOST_BYTES: usize = 8 << 20;

/// What a lookup cannot go on without, or could use soon.
#[derive(Clone, Copy)]
pub(super) enum Want {
    Filter(usize),
    /// That of a lookup whose filter is read at the same time, and may end it.
    EarlyIndex(usize),
    Index(usize),
    /// A data block that the learned index names. If it is damaged, the index partition may name a sound one.
    ModelData(BlockHandle),
    Data(BlockHandle),
}

impl Want {
    /// Whether lookups go on without it if it is damaged.
    fn is_optional(self) -> bool {
        match self {
            Self::Filter(_) | Self::EarlyIndex(_) | Self::ModelData(_) => true,
            Self::Index(_) | Self::Data(_) => false,
        }
    }
}

/// What the lookups of a batch miss in memory.
#[derive(Default)]
pub(super) struct Wants<'a> {
    wants: Vec<(&'a SstReader, Want)>,
    /// Lookups that have gone on without a filter partition that they could have read.
    skipped: HashMap<(u64, usize), u32>,
}

impl<'a> Wants<'a> {
    pub fn is_empty(&self) -> bool {
        self.wants.is_empty()
    }

    pub fn push(&mut self, reader: &'a SstReader, want: Want) {
        self.wants.push((reader, want));
    }

    /// How many lookups have gone on without filter partition `at`, to be counted up.
    pub fn skipped(&mut self, reader: &SstReader, at: usize) -> &mut u32 {
        self.skipped.entry((reader.cache_file, at)).or_default()
    }
}

/// What was read in this batch, kept while that takes little memory: the cache may be too small to.
#[derive(Default)]
pub(super) struct Loaded {
    pub filters: HashMap<(u64, usize), Arc<SlotEntry<FilterPartition>>>,
    pub index: HashMap<(u64, usize), Arc<SlotEntry<ResidentIndex>>>,
    pub data: HashMap<(u64, u64), DataBlock>,
    /// What these take.
    data_bytes: usize,
    /// Data blocks named by learned indexes that turned out to be damaged.
    pub damaged: HashSet<(u64, u64)>,
}

impl Loaded {
    /// Whether any data block was read, or turned out to be damaged.
    pub fn has_data(&self) -> bool {
        !(self.data.is_empty() && self.damaged.is_empty())
    }

    fn keep(&mut self, place: (u64, u64), block: DataBlock) {
        self.data_bytes += block.buf().charge_bytes();
        self.data.insert(place, block);
    }
}

/// Reads what is wanted in one batch, all of it if it is not long; nothing is wanted then, until the lookups that go without
/// say so again. `fill_cache` is about data blocks.
pub(super) fn read_wanted(
    wants: &mut Wants<'_>,
    loaded: &mut Loaded,
    fill_cache: bool,
) -> Result<()> {
    let wants = &mut wants.wants;
    if loaded.data_bytes >= MOST_BYTES {
        // Those that waited for them have gone on.
        loaded.data.clear();
        loaded.data_bytes = 0;
    }
    let kept_before = loaded.data_bytes;
    let handle = |(reader, want): &(&SstReader, Want)| match *want {
        Want::Filter(at) => reader.top.filters()[at].whole(),
        Want::EarlyIndex(at) | Want::Index(at) => reader.top.index()[at].handle,
        Want::ModelData(handle) | Want::Data(handle) => handle,
    };
    // Of several wants of the same bytes one stays: one whose damage is an error, if there is one.
    wants.sort_by_key(|want| (want.0.cache_file, handle(want).offset, want.1.is_optional()));
    wants.dedup_by_key(|want| (want.0.cache_file, handle(want).offset));
    let mut bytes = 0;
    let fits = |want: &&(&SstReader, Want)| {
        let has_room = bytes < MOST_BYTES;
        bytes += handle(want).stored_len as usize;
        has_room
    };
    let together = wants.iter().take_while(fits).count();
    wants.truncate(together);
    let buf = |want| BufMut::for_overwrite(handle(want).stored_len as usize);
    let mut bufs: Vec<BufMut> = wants.iter().map(buf).collect();
    let requests = wants.iter().zip(&mut bufs);
    let mut requests: Vec<ReadRequest<'_>> = requests
        .map(|(want, buf)| ReadRequest::new(&*want.0.file, handle(want).offset, buf))
        .collect();
    let Some((first, _)) = wants.first() else { return Ok(()) };
    first.vfs.read_batch(&mut requests);
    let results: Vec<Result<()>> =
        requests.into_iter().map(|request| request.result.unwrap_or_else(not_executed)).collect();
    for (((reader, want), buf), result) in wants.drain(..).zip(bufs).zip(results) {
        if result.is_ok() {
            reader.count_read(buf.len());
        }
        match want {
            Want::Filter(at) => {
                let filter = result.and_then(|()| reader.adopt_filter(at, buf, true));
                if let Some(filter) = reader.unless_damaged(at, filter)? {
                    loaded.filters.insert((reader.cache_file, at), filter);
                }
            }
            Want::EarlyIndex(at) | Want::Index(at) => {
                match result.and_then(|()| reader.adopt_index(at, buf, true)) {
                    // Wanted again if the filter lets the lookup pass.
                    Err(error) if is_damage(&error) && want.is_optional() => {}
                    index => drop(loaded.index.insert((reader.cache_file, at), index?)),
                }
            }
            Want::ModelData(_) | Want::Data(_) if loaded.data_bytes - kept_before >= MOST_BYTES => {
            }
            Want::ModelData(handle) | Want::Data(handle) => {
                let place = (reader.cache_file, handle.offset);
                match result.and_then(|()| reader.adopt_data_block(handle, buf, fill_cache)) {
                    Err(error) if is_damage(&error) && want.is_optional() => {
                        loaded.damaged.insert(place);
                    }
                    block => loaded.keep(place, block?),
                }
            }
        }
    }
    Ok(())
}

pub(crate) fn not_executed() -> Result<()> {
    Err(Error::InvalidArgument("the file system left a read of a batch unexecuted".into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::OnMiss;
    use crate::test_files::{file, key};
    use crate::{Lookup, SstOptions};
    use terrace_base::MAX_SEQNO;
    use terrace_compression::Compression;

    #[test]
    fn blocks_that_are_much_longer_than_what_is_stored_are_kept_some_at_a_time() {
        const COUNT: u64 = 80;
        let value = vec![0; 1 << 20];
        let options = SstOptions { compression: Compression::Lz4, ..SstOptions::default() };
        let reader = file(options, COUNT, &value);
        let mut left: Vec<BlockHandle> = Vec::new();
        for at in 0..reader.top.index().len() {
            let index = reader.index_partition(at, OnMiss::Read).unwrap();
            left.extend((0..index.count()).map(|block| index.handle(block)));
        }
        assert_eq!(left.len() as u64, COUNT);
        let (mut loaded, mut rounds) = (Loaded::default(), 0);
        while !left.is_empty() {
            let mut wants = Wants::default();
            left.iter().for_each(|handle| wants.push(&reader, Want::Data(*handle)));
            read_wanted(&mut wants, &mut loaded, false).unwrap();
            assert!(wants.is_empty() && loaded.data_bytes < MOST_BYTES + 2 * value.len());
            let before = left.len();
            left.retain(|at| !loaded.data.contains_key(&(reader.cache_file, at.offset)));
            assert!(left.len() < before);
            rounds += 1;
        }
        assert_eq!(rounds, 10);
        let keys: Vec<Vec<u8>> = (0..COUNT).map(key).collect();
        let lookups: Vec<_> = keys.iter().map(|key| Lookup::new(key, MAX_SEQNO)).collect();
        let found = reader.multi_get(&lookups).unwrap();
        assert!(found.iter().all(|entry| entry.as_ref().is_some_and(|e| *e.value == *value)));
    }
}
