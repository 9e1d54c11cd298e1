//! What the tests share: entries, and files made of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace_base::key::{EXPIRY_BYTES, pack_trailer, seek_trailer, trailer_kind, trailer_seqno};
use terrace_base::{
    FileNumber, RangeTombstones, Result, Rng, SegmentNumber, SeqNo, SplitMix64, ValueHandle,
    ValueKind,
};
use terrace_sst::{
    BlockCache, Compression, FilterMemory, Lookup, ReadCounters, ReaderOptions, SstOptions,
    SstReader, SstSummary, SstWriter,
};
use terrace_vfs::{SimVfs, Vfs};

/// Internal order: the trailer is stored inverted.
pub type Model = BTreeMap<(Vec<u8>, u64), Vec<u8>>;

pub const COMPRESSIONS: [Compression; 3] = [Compression::None, Compression::Lz4, Compression::Zstd];

pub fn path(number: u64) -> PathBuf {
    PathBuf::from(format!("/{number:06}.sst"))
}

pub fn write(
    vfs: &dyn Vfs,
    number: u64,
    options: SstOptions,
    model: &Model,
    tombstones: RangeTombstones,
) -> Result<SstSummary> {
    let mut writer = SstWriter::create(vfs, &path(number), FileNumber::new(number), options)?;
    for ((key, inverted), value) in model {
        writer.add(key, !inverted, value)?;
    }
    assert_eq!(writer.entry_count(), model.len() as u64);
    writer.set_range_tombstones(tombstones);
    writer.finish()
}

pub fn reader_options(cache_bytes: usize) -> ReaderOptions {
    ReaderOptions {
        cache: Arc::new(BlockCache::new(cache_bytes)),
        filter_memory: FilterMemory::Cached,
        models: true,
        direct: false,
        counters: Arc::new(ReadCounters::new()),
    }
}

pub fn open(vfs: &SimVfs, number: u64, options: &ReaderOptions) -> Result<Arc<SstReader>> {
    let vfs: Arc<dyn Vfs> = Arc::new(vfs.clone());
    let size_bytes = vfs.len(&path(number))?;
    SstReader::open(&vfs, &path(number), FileNumber::new(number), size_bytes, options)
}

pub fn open_at(vfs: &SimVfs, path: &Path, number: u64, size_bytes: u64) -> Result<Arc<SstReader>> {
    let vfs: Arc<dyn Vfs> = Arc::new(vfs.clone());
    SstReader::open(&vfs, path, FileNumber::new(number), size_bytes, &reader_options(1 << 20))
}

/// The answer of a lookup: trailer and value.
pub type Answer = Option<(u64, Vec<u8>)>;

pub fn expected(model: &Model, key: &[u8], seqno: u64) -> Answer {
    let from = (key.to_vec(), !seek_trailer(SeqNo::new(seqno)));
    let ((found, inverted), value) = model.range(from..).next()?;
    (found == key).then(|| (!inverted, value.clone()))
}

pub fn got(reader: &SstReader, key: &[u8], seqno: u64) -> Result<Answer> {
    let entry = reader.get_unfiltered(&Lookup::new(key, SeqNo::new(seqno)))?;
    Ok(entry.map(|entry| (entry.trailer, entry.value.to_vec())))
}

/// Random entries of one style: key shapes, versions per key, value sizes.
pub fn random_model(rng: &mut SplitMix64, most_entries: u64) -> Model {
    let style = rng.below(6);
    let value_bytes = [0, 8, 40, 300][rng.below(4) as usize];
    let versions = [1, 1, 3, 60][rng.below(4) as usize];
    let mut model = Model::new();
    let entries = rng.below(most_entries) + 1;
    while (model.len() as u64) < entries {
        let key = random_key(rng, style);
        for _ in 0..rng.below(versions) + 1 {
            let seqno = rng.below(200);
            let kind = match rng.below(8) {
                0 => ValueKind::Delete,
                1 => ValueKind::PutTtl,
                _ => ValueKind::Put,
            };
            let mut value = Vec::new();
            if kind == ValueKind::PutTtl {
                value.extend_from_slice(&rng.below(1 << 40).to_le_bytes());
            }
            if kind != ValueKind::Delete {
                let byte = rng.next_u64() as u8;
                value.resize(value.len() + rng.below(value_bytes + 1) as usize, byte);
            }
            model.insert((key.clone(), !pack_trailer(SeqNo::new(seqno), kind)), value);
        }
    }
    model
}

/// `model`, or as often with handles in the place of values. Every other time then with one version of each key, which
/// all readers see, so that blocks store no trailers.
pub fn with_handles(rng: &mut SplitMix64, model: Model) -> Model {
    if rng.one_in(2) {
        return model;
    }
    let is_bare = rng.one_in(2);
    let mut separated = Model::new();
    for ((key, inverted), value) in model {
        let handle = ValueHandle {
            segment: SegmentNumber::new(rng.below(5) + 7),
            offset: rng.below(1 << 30),
            len: rng.below(1 << 16) as u32,
            compression: rng.below(3) as u8,
        }
        .encode();
        let (seqno, kind) = (trailer_seqno(!inverted), trailer_kind(!inverted).unwrap());
        let (seqno, kind, value) = match kind {
            _ if is_bare => (SeqNo::ZERO, ValueKind::PutHandle, handle.to_vec()),
            ValueKind::Put => (seqno, ValueKind::PutHandle, handle.to_vec()),
            ValueKind::PutTtl => {
                let expiring = [&value[..EXPIRY_BYTES], &handle].concat();
                (seqno, ValueKind::PutTtlHandle, expiring)
            }
            kind => (seqno, kind, value),
        };
        separated.insert((key, !pack_trailer(seqno, kind)), value);
    }
    separated
}

pub fn random_key(rng: &mut SplitMix64, style: u64) -> Vec<u8> {
    let number = rng.below(5000);
    match style {
        0 => format!("user{number:016}").into_bytes(),
        1 => number.to_be_bytes().to_vec(),
        2 => (0..rng.below(7)).map(|_| [0, b'a', 255][rng.below(3) as usize]).collect(),
        3 => format!("{:x}", number * 7919).into_bytes(),
        4 => vec![b'k'; rng.below(40) as usize],
        _ => {
            let mut key = format!("tenant/{}/", number % 3).into_bytes();
            key.extend((0..rng.below(20)).map(|_| rng.next_u64() as u8 % 4));
            key
        }
    }
}

/// Keys worth asking for: those of the model, their neighbours, and others.
pub fn probes(rng: &mut SplitMix64, model: &Model) -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> = vec![vec![], vec![0], vec![255; 9]];
    for (key, _) in model.keys() {
        keys.push(key.clone());
        let mut next = key.clone();
        match rng.below(4) {
            0 => next.push(0),
            1 => drop(next.pop()),
            2 if !next.is_empty() => {
                let last = next.len() - 1;
                next[last] = next[last].wrapping_add(1);
            }
            _ => next.extend_from_slice(b"zz"),
        }
        keys.push(next);
    }
    keys.extend((0..20).map(|at| random_key(rng, at % 6)));
    keys
}
