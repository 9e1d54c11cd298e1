//! Targets for SSTs: a whole file, and each of its parts inside an otherwise sound file.

use crate::samples::small_ssts;
use crate::sst_parts::{self, AsIs, FILE_NUMBER, Parts};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use terrace_base::{InternalIter, MAX_SEQNO};
use terrace_sst::{
    BlockCache, FilterMemory, Lookup, ReadCounters, ReaderOptions, ScanOptions, SstIter, SstReader,
    UnitLoad, drop_filter_units, load_filter_units,
};
use terrace_vfs::{SimVfs, Vfs};

/// Bytes of the cache that a target reads through.
const CACHE_BYTES: usize = 1 << 20;

/// Keys that a target looks up besides those it finds.
const ABSENT_KEYS: [&[u8]; 5] = [b"", b"key00001x", b"m", b"\xff\xff\xff\xff\xff", &[0; 200]];

/// A compressed block may say that it is larger, up to the largest value, and then costs what it
/// says; targets leave that out.
const MAX_DECLARED_BYTES: u32 = 1 << 20;

/// Added to how a block is stored if there is padding after its content.
const PADDED: u8 = 0x80;

/// Steps of a cursor after which it is thought to run in circles.
const MAX_STEPS: usize = 1 << 20;

/// Reads the bytes as a whole file.
pub fn file(data: &[u8]) -> bool {
    exercise(data)
}

/// The first byte says how the data block is stored, the rest is its content in that form.
pub fn block(data: &[u8]) -> bool {
    let Some((kind, content)) = data.split_first() else { return false };
    let declared = content.first_chunk().map_or(0, |len| u32::from_le_bytes(*len));
    if kind % 4 != 0 && declared > MAX_DECLARED_BYTES {
        return false;
    }
    let kind = (kind & PADDED) | (kind % 4);
    with_part(AsIs::Nothing, |parts| parts.block = (kind, content.to_vec()))
}

/// The bytes are the index partition.
pub fn index_partition(data: &[u8]) -> bool {
    with_part(AsIs::Index, |parts| parts.index = data.to_vec())
}

/// After an even byte the bytes are the learned index; after an odd one its model of blocks, with
/// places that are right.
pub fn learned_index(data: &[u8]) -> bool {
    let Some((kind, bytes)) = data.split_first() else { return false };
    with_part(AsIs::Nothing, |parts| {
        parts.learned = Some(match kind % 2 {
            0 => bytes.to_vec(),
            _ => sst_parts::learned_index(bytes, parts.stored_block_bytes()),
        });
    })
}

/// The bytes are the filter partition.
pub fn filter_partition(data: &[u8]) -> bool {
    with_part(AsIs::Nothing, |parts| parts.filter = Some(data.to_vec()))
}

/// The bytes are the range tombstones.
pub fn range_tombstones(data: &[u8]) -> bool {
    with_part(AsIs::Nothing, |parts| parts.tombstones = Some(data.to_vec()))
}

/// The bytes are the top-level index.
pub fn top_level(data: &[u8]) -> bool {
    with_part(AsIs::TopLevel, |parts| parts.top_level = data.to_vec())
}

/// The bytes are the properties.
pub fn properties(data: &[u8]) -> bool {
    with_part(AsIs::Properties, |parts| parts.properties = data.to_vec())
}

/// The bytes are the footer's fields.
pub fn footer(data: &[u8]) -> bool {
    with_part(AsIs::Footer, |parts| parts.footer = data.to_vec())
}

/// Puts a part into every small SST; whether one of them was read as sound.
fn with_part(as_is: AsIs, replace: impl Fn(&mut Parts)) -> bool {
    static HOSTS: OnceLock<Vec<Parts>> = OnceLock::new();
    let hosts =
        HOSTS.get_or_init(|| small_ssts().iter().filter_map(|file| Parts::split(file)).collect());
    let mut sound = false;
    for host in hosts {
        let mut parts = host.clone();
        replace(&mut parts);
        sound |= exercise(&parts.join(as_is));
    }
    sound
}

/// Opens the file and uses all of the reader; whether it is sound.
fn exercise(data: &[u8]) -> bool {
    let sim = SimVfs::new(0);
    let path = Path::new("000007.sst");
    sim.write_file(path, data);
    let vfs: Arc<dyn Vfs> = Arc::new(sim);
    let options = ReaderOptions {
        models: true,
        cache: Arc::new(BlockCache::new(CACHE_BYTES)),
        filter_memory: FilterMemory::Cached,
        direct: false,
        counters: Arc::new(ReadCounters::new()),
    };
    let size_bytes = data.len() as u64;
    let opened = SstReader::open(&vfs, path, FILE_NUMBER, size_bytes, &options);
    let Ok(reader) = opened else { return false };
    let sound = reader.verify().is_ok();
    let keys = walk(&mut reader.iter(ScanOptions::default()), sound);
    walk(&mut reader.iter(ScanOptions::compaction()), sound);
    for key in keys.iter().map(Vec::as_slice).chain(ABSENT_KEYS) {
        let lookup = Lookup::new(key, MAX_SEQNO);
        let at = (reader.prefetch_filter(&lookup), reader.prefetch_entry(key));
        let filtered = reader.get_at(at, &lookup, &mut ());
        let denied = matches!((filtered, reader.get_unfiltered(&lookup)), (Ok(None), Ok(Some(_))));
        assert!(!(sound && denied), "the filter of a sound file denies what is there");
        let _ = reader.get(&lookup);
        reader.may_contain_prefix(key);
        reader.approximate_offset(key);
    }
    // The lookups have read the model and filled its slots, so that cursors go by it.
    walk(&mut reader.iter(ScanOptions::default()), sound);
    walk(&mut reader.iter(ScanOptions { in_memory: true, ..ScanOptions::default() }), false);
    let elastic = ReaderOptions { filter_memory: FilterMemory::Elastic, ..options };
    if let Ok(reader) = SstReader::open(&vfs, path, FILE_NUMBER, size_bytes, &elastic) {
        with_units(&reader, &keys, sound);
    }
    let lookups: Vec<_> = keys.iter().take(20).map(|key| Lookup::new(key, MAX_SEQNO)).collect();
    let _ = reader.multi_get(&lookups);
    let _ = reader.index_separators(3);
    let _ = reader.range_tombstones().fragments().count();
    let _ = reader.pinned_bytes();
    sound
}

/// Goes through all entries forward and backward; returns some of their keys.
fn walk(iter: &mut SstIter, sound: bool) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    let mut forward = 0;
    let mut outcome = iter.seek_to_first();
    while outcome.is_ok() && iter.valid() {
        if forward % 7 == 0 {
            keys.push(iter.user_key().to_vec());
        }
        let _ = (iter.trailer(), iter.value().len());
        forward += 1;
        assert!(forward < MAX_STEPS, "the cursor goes on for ever");
        outcome = iter.next();
    }
    let mut backward = 0;
    let mut outcome = iter.seek_to_last();
    while outcome.is_ok() && iter.valid() {
        backward += 1;
        assert!(backward < MAX_STEPS, "the cursor goes back for ever");
        outcome = iter.prev();
    }
    assert!(!sound || forward == backward, "{forward} entries forward, {backward} backward");
    for key in &keys {
        let _ = iter.seek(key, u64::MAX);
        let _ = iter.seek_before(key, 0);
    }
    keys
}

/// Filter units come and go: no key of a sound file is ever denied.
fn with_units(reader: &SstReader, keys: &[Vec<u8>], sound: bool) {
    for units in [1, 3, u8::MAX, 2] {
        for partition in 0..reader.filter_partition_count().min(16) {
            drop_filter_units(reader, partition, units);
            load_filter_units(&[UnitLoad { reader, partition, units }]);
        }
        for key in keys {
            let lookup = Lookup::new(key, MAX_SEQNO);
            if let Ok(None) = reader.get(&lookup) {
                assert!(
                    !sound || !matches!(reader.get_unfiltered(&lookup), Ok(Some(_))),
                    "a key is denied"
                );
            }
        }
    }
}
