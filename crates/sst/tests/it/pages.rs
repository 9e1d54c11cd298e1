//! How many pages of the device a lookup reads, and what that costs in bytes of the file: counted, never timed.

use crate::files::*;
use crate::model::{check_iterator, check_lookups};
use std::path::Path;
use std::sync::{Arc, Mutex};
use terrace_base::key::pack_trailer;
use terrace_base::{FileNumber, RangeTombstones, Result, Rng, SeqNo, SplitMix64, ValueKind};
use terrace_sst::{Compression, Lookup, ScanOptions, SstOptions, SstReader};
use terrace_vfs::{Call, Interposed, SimVfs, Vfs};

const PAGE_BYTES: u64 = 4096;

/// Notes offset and length of every read.
#[derive(Clone)]
struct Noting {
    sim: SimVfs,
    reads: Arc<Mutex<Vec<(u64, u64)>>>,
}

impl Interposed for Noting {
    type Files = SimVfs;

    fn files(&self) -> &SimVfs {
        &self.sim
    }

    fn around<T>(
        &self,
        call: Call<'_>,
        _path: &Path,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        if let Call::Read(offset, len) = call {
            self.reads.lock().unwrap().push((offset, len as u64));
        }
        work()
    }

    fn sees_reads(&self, _path: &Path) -> bool {
        true
    }
}

impl Noting {
    fn new() -> Self {
        Self { sim: SimVfs::new(1), reads: Arc::default() }
    }

    fn open(&self, number: u64) -> Arc<SstReader> {
        let vfs: Arc<dyn Vfs> = Arc::new(self.clone());
        let size_bytes = self.sim.len(&path(number)).unwrap();
        let (number, options) = (FileNumber::new(number), reader_options(8 << 20));
        SstReader::open(&vfs, &path(number.get()), number, size_bytes, &options).unwrap()
    }

    /// The reads of data that a lookup of each of `keys` makes, with everything but data in memory.
    fn data_reads(&self, reader: &SstReader, keys: &[Vec<u8>]) -> Vec<(u64, u64)> {
        let data_bytes = reader.properties().data_bytes;
        self.reads.lock().unwrap().clear();
        for key in keys {
            let mut lookup = Lookup::new(key, SeqNo::new(9));
            lookup.fill_cache = false;
            assert!(reader.get_unfiltered(&lookup).unwrap().is_some());
        }
        let mut reads = self.reads.lock().unwrap();
        reads.retain(|(offset, _)| *offset < data_bytes);
        std::mem::take(&mut *reads)
    }
}

fn pages((offset, len): (u64, u64)) -> u64 {
    (offset + len).div_ceil(PAGE_BYTES) - offset / PAGE_BYTES
}

fn put() -> u64 {
    !pack_trailer(SeqNo::new(1), ValueKind::Put)
}

fn key(at: u64) -> Vec<u8> {
    format!("user{at:012}").into_bytes()
}

/// A value of which about `noise` percent cannot be compressed.
fn value(rng: &mut SplitMix64, len: usize, noise: usize) -> Vec<u8> {
    let own = if noise == 100 { noise } else { noise / 2 + rng.below(noise as u64 + 1) as usize };
    let noisy = len * own / 100;
    (0..len).map(|at| if at < noisy { rng.next_u64() as u8 } else { b'.' }).collect()
}

/// A file of about `file_bytes`, with values from `least` to `most` bytes.
fn written(
    files: &Noting,
    options: &SstOptions,
    (least, most): (usize, usize),
    noise: usize,
    file_bytes: usize,
) -> Model {
    let mut rng = SplitMix64::new(5);
    let (mut model, mut bytes) = (Model::new(), 0);
    while bytes < file_bytes {
        let len = least + rng.below((most - least) as u64 + 1) as usize;
        model.insert((key(model.len() as u64), put()), value(&mut rng, len, noise));
        bytes += len + 16;
    }
    write(&files.sim, 1, options.clone(), &model, RangeTombstones::default()).unwrap();
    model
}

struct Counted {
    pages_per_lookup: f64,
    /// Pages per lookup beyond those that the bytes read need.
    extra_pages: f64,
    /// Bytes of the file for each byte of keys and values.
    file_share: f64,
    /// Data blocks for each page of the file.
    blocks_per_page: f64,
}

fn count(options: &SstOptions, sizes: (usize, usize), noise: usize) -> Counted {
    let files = Noting::new();
    let model = written(&files, options, sizes, noise, 3 << 20);
    let reader = files.open(1);
    let keys: Vec<_> = model.keys().step_by(3).map(|(key, _)| key.clone()).collect();
    // Index and model come into memory.
    files.data_reads(&reader, &keys[..keys.len() / 10 + 1]);
    let reads = files.data_reads(&reader, &keys);
    let read: u64 = reads.iter().map(|read| pages(*read)).sum();
    let needed: u64 = reads.iter().map(|(_, len)| pages((0, *len))).sum();
    let raw: usize = model.iter().map(|((key, _), value)| key.len() + value.len()).sum();
    let counted = Counted {
        pages_per_lookup: read as f64 / keys.len() as f64,
        extra_pages: (read - needed) as f64 / keys.len() as f64,
        file_share: reader.size_bytes() as f64 / raw as f64,
        blocks_per_page: (reader.block_count() * 4096) as f64 / reader.size_bytes() as f64,
    };
    println!(
        "{:>5} to {:>6} byte values, {noise:>3} % noise, {:?}, blocks of {:>5}: {:.3} pages a lookup, {} blocks, {} bytes, {:.4} of the raw",
        sizes.0,
        sizes.1,
        options.compression,
        options.block_size,
        counted.pages_per_lookup,
        reader.block_count(),
        reader.size_bytes(),
        counted.file_share,
    );
    counted
}

fn options(compression: Compression, block_size: usize) -> SstOptions {
    SstOptions { compression, block_size, ..SstOptions::default() }
}

#[test]
fn a_lookup_reads_one_page() {
    for (value_bytes, most_pages) in
        [(24, 1.01), (64, 1.01), (100, 1.02), (400, 1.01), (1000, 1.01), (4000, 1.01)]
    {
        let sizes = (value_bytes, value_bytes);
        let counted = count(&options(Compression::None, 4096), sizes, 100);
        assert!(counted.pages_per_lookup < most_pages, "{value_bytes} bytes");
        assert!(counted.blocks_per_page < 1.02, "{value_bytes} bytes");
    }
    let mixed = count(&options(Compression::None, 4096), (0, 1000), 100);
    assert!(mixed.pages_per_lookup < 1.12);
    assert!(mixed.file_share < 1.08);
}

#[test]
fn a_lookup_in_small_blocks_reads_one_page() {
    let counted = count(&options(Compression::None, 1024), (100, 100), 100);
    assert!(counted.pages_per_lookup < 1.02);
}

#[test]
fn a_lookup_in_blocks_of_four_pages_reads_four() {
    let counted = count(&options(Compression::None, 16 << 10), (100, 100), 100);
    assert!(counted.pages_per_lookup < 4.01);
    let counted = count(&options(Compression::None, 20_000), (400, 400), 100);
    assert!(counted.pages_per_lookup < 4.05);
}

#[test]
fn large_values_begin_on_a_page() {
    let counted = count(&options(Compression::None, 4096), (270_000, 300_000), 100);
    assert!(counted.extra_pages < 0.01);
    assert!(counted.file_share < 1.02);
}

#[test]
fn a_lookup_in_compressed_blocks_reads_little_more_than_one_page() {
    for (value_bytes, noise, most_pages) in
        [(24, 50, 1.2), (100, 30, 1.2), (100, 50, 1.2), (100, 70, 1.2), (400, 50, 1.3)]
    {
        let sizes = (value_bytes, value_bytes);
        let counted = count(&options(Compression::Lz4, 4096), sizes, noise);
        assert!(counted.pages_per_lookup < most_pages, "{value_bytes} bytes, {noise} %");
    }
    // What does not compress is cut as without compression.
    let counted = count(&options(Compression::Lz4, 4096), (100, 100), 100);
    assert!(counted.pages_per_lookup < 1.02);
}

/// Every length around that of a page: the block ends at the boundary, just before, and just after it.
#[test]
fn blocks_around_the_boundary_are_read_back() {
    let mut padded = 0;
    for len in 3900..4160 {
        let files = Noting::new();
        let options = options(Compression::None, 4096);
        let model = written(&files, &options, (len, len), 100, 5 * len);
        let reader = files.open(1);
        reader.verify().unwrap();
        let keys: Vec<_> = model.keys().map(|(key, _)| key.clone()).collect();
        let reads = files.data_reads(&reader, &keys);
        assert_eq!(reads.len(), keys.len(), "one read per lookup");
        padded +=
            reads.iter().filter(|(offset, len)| (offset + len).is_multiple_of(PAGE_BYTES)).count();
        for (at, read) in reads.windows(2).enumerate() {
            assert_eq!(read[0].0 + read[0].1, read[1].0, "{len}: block {at} is followed at once");
        }
        let mut rng = SplitMix64::new(len as u64);
        check_lookups(&mut rng, &reader, &model);
        check_iterator(&mut rng, reader.iter(ScanOptions::default()), &model);
        check_iterator(&mut rng, reader.iter(ScanOptions::compaction()), &model);
    }
    assert!(padded > 300, "lengths of a page less 0 to 64 bytes are padded: {padded}");
}

#[test]
fn files_with_entries_of_any_size_are_read_back() {
    for seed in 0..24 {
        let mut rng = SplitMix64::new(seed);
        let mut model = Model::new();
        let largest = [30, 200, 3000, 9000][rng.below(4) as usize];
        let sizes = (0, largest);
        for at in 0..[1, 60, 300][rng.below(3) as usize] {
            let len = sizes.0 + rng.below(sizes.1) as usize;
            let noise = [0, 40, 100][rng.below(3) as usize];
            let long = if rng.one_in(20) { "k".repeat(300) } else { String::new() };
            let key = format!("{:x}{long}", at * 7919 % 4096).into_bytes();
            model.insert((key, put()), value(&mut rng, len, noise));
        }
        let block_size = [256, 4096, 8192, 16 << 10, 17_000][rng.below(5) as usize];
        let compression = COMPRESSIONS[rng.below(3) as usize];
        let options = options(compression, block_size);
        let vfs = SimVfs::new(seed);
        write(&vfs, 1, options, &model, RangeTombstones::default()).unwrap();
        let reader = open(&vfs, 1, &reader_options(100_000)).unwrap();
        reader.verify().unwrap();
        check_lookups(&mut rng, &reader, &model);
        check_iterator(&mut rng, reader.iter(ScanOptions::default()), &model);
        check_iterator(&mut rng, reader.iter(ScanOptions::compaction()), &model);
        reader.train().unwrap();
        check_lookups(&mut rng, &reader, &model);
    }
}

#[test]
fn damage_in_padding_is_noticed_by_reads_and_by_verify() {
    let vfs = SimVfs::new(1);
    let model: Model = (0..3).map(|at| ((key(at), put()), vec![at as u8; 4030])).collect();
    let options = options(Compression::None, 4096);
    write(&vfs, 1, options, &model, RangeTombstones::default()).unwrap();
    // The first block ends with the page; before its trailer there is padding.
    let bytes = vfs.read_file(path(1)).unwrap();
    let padding = 4096 - 5 - 8..4096 - 5;
    assert!(bytes[padding.clone()].iter().all(|byte| *byte == 0), "{:?}", &bytes[4060..4100]);
    assert_eq!(bytes[4096 - 5], 0x80, "the type says that there is padding");
    for at in padding {
        assert!(vfs.corrupt(path(1), at as u64, 1 << (at % 8)));
        let reader = open(&vfs, 1, &reader_options(100_000)).unwrap();
        assert!(got(&reader, &key(0), 9).unwrap_err().is_corruption());
        assert!(reader.verify().unwrap_err().is_corruption());
        assert_eq!(got(&reader, &key(1), 9).unwrap(), expected(&model, &key(1), 9));
        assert!(vfs.corrupt(path(1), at as u64, 1 << (at % 8)));
    }
    open(&vfs, 1, &reader_options(100_000)).unwrap().verify().unwrap();
}
