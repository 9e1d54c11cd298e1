//! What reads of one cached SST cost, part by part. Run with
//! `cargo run --release -p terrace-sst --example cached_get [keys] [value bytes] [lookups]`.

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use terrace_base::key::pack_trailer;
use terrace_base::{
    FileNumber, InternalIter, MAX_SEQNO, Result, Rng, SeqNo, SplitMix64, ValueKind,
};
use terrace_sst::{
    BlockCache, Compression, FilterMemory, Lookup, ReadCounters, ReaderOptions, ScanOptions,
    SstOptions, SstReader, SstWriter,
};
use terrace_vfs::{PosixVfs, Vfs};

const DEFAULT_LOOKUPS: u64 = 2_000_000;
const FILE_NUMBER: u64 = 1;

fn key(number: u64) -> [u8; 16] {
    let mut key = *b"user000000000000";
    let mut rest = number;
    for digit in key[4..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

/// Processor time of this thread, where the system tells; other work on the machine disturbs it
/// less than the time that passes.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|field| field.parse().ok()).unwrap_or(0)
}

fn report(what: &str, count: usize, run: impl FnOnce() -> Result<()>) -> Result<()> {
    let start = (Instant::now(), cpu_ns());
    run()?;
    let wall = start.0.elapsed().as_nanos() as f64 / count as f64;
    let cpu = (cpu_ns() - start.1) as f64 / count as f64;
    println!("{what:<36} {cpu:>8.1} ns of processor time, {wall:>8.1} ns passed");
    Ok(())
}

fn build(vfs: &dyn Vfs, path: &Path, keys: u64, value_bytes: usize) -> Result<u64> {
    let mut rng = SplitMix64::new(1);
    let mut value = vec![0u8; value_bytes];
    let options = SstOptions { compression: Compression::None, ..SstOptions::default() };
    let mut writer = SstWriter::create(vfs, path, FileNumber::new(FILE_NUMBER), options)?;
    for number in 0..keys {
        value.iter_mut().for_each(|byte| *byte = rng.next_u64() as u8);
        writer.add(&key(number * 7), pack_trailer(SeqNo::new(number), ValueKind::Put), &value)?;
    }
    Ok(writer.finish()?.size_bytes)
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1).map_while(|text| text.parse().ok());
    let keys = arguments.next().unwrap_or(100_000);
    let value_bytes = arguments.next().unwrap_or(100) as usize;
    let lookups = arguments.next().unwrap_or(DEFAULT_LOOKUPS) as usize;
    let vfs: Arc<dyn Vfs> = PosixVfs::shared();
    let path = std::env::temp_dir().join(format!("cached-get-{}.sst", std::process::id()));
    let mut size_bytes = 0;
    report("write (with making the values)", keys as usize, || {
        size_bytes = build(&*vfs, &path, keys, value_bytes)?;
        Ok(())
    })?;
    let options = ReaderOptions {
        cache: Arc::new(BlockCache::new(2 * size_bytes as usize + (64 << 20))),
        filter_memory: FilterMemory::Cached,
        models: true,
        direct: false,
        counters: Arc::new(ReadCounters::new()),
    };
    let reader = SstReader::open(&vfs, &path, FileNumber::new(FILE_NUMBER), size_bytes, &options)?;
    println!("{keys} keys, {size_bytes} bytes, {} pinned", reader.pinned_bytes());
    let outcome = measure(&reader, keys, lookups);
    println!("{:?}", options.counters.snapshot());
    vfs.remove(&path)?;
    outcome
}

fn measure(reader: &Arc<SstReader>, keys: u64, lookups: usize) -> Result<()> {
    let present: Vec<[u8; 16]> = (0..keys).map(|number| key(number * 7)).collect();
    for key in &present {
        let lookup = Lookup::new(key, MAX_SEQNO);
        reader.get(&lookup)?;
        assert!(reader.get_unfiltered(&lookup)?.is_some());
    }
    let mut rng = SplitMix64::new(2);
    let hits: Vec<[u8; 16]> = (0..lookups).map(|_| key(rng.below(keys) * 7)).collect();
    let absent: Vec<[u8; 16]> = (0..lookups).map(|_| key(rng.below(keys) * 7 + 3)).collect();
    report("hash", lookups, || {
        for key in &hits {
            black_box(Lookup::new(key, MAX_SEQNO));
        }
        Ok(())
    })?;
    report("locate and prefetch the filter", lookups, || {
        for key in &hits {
            black_box(reader.prefetch_filter(&Lookup::new(key, MAX_SEQNO)));
        }
        Ok(())
    })?;
    report("get_with_filter, absent", lookups, || {
        absent.iter().try_for_each(|key| {
            black_box(reader.get(&Lookup::new(key, MAX_SEQNO))?);
            Ok(())
        })
    })?;
    report("get, present (index and block)", lookups, || {
        hits.iter().try_for_each(|key| {
            black_box(reader.get_unfiltered(&Lookup::new(key, MAX_SEQNO))?);
            Ok(())
        })
    })?;
    report("get_with_filter, present", lookups, || {
        hits.iter().try_for_each(|key| {
            black_box(reader.get(&Lookup::new(key, MAX_SEQNO))?);
            Ok(())
        })
    })?;
    report("get, absent", lookups, || {
        absent.iter().try_for_each(|key| {
            black_box(reader.get_unfiltered(&Lookup::new(key, MAX_SEQNO))?);
            Ok(())
        })
    })?;
    let mut iter = reader.iter(ScanOptions::default());
    report("seek", lookups / 4, || {
        hits[..lookups / 4].iter().try_for_each(|key| iter.seek(key, u64::MAX))
    })?;
    let walk = |what: &str, options: ScanOptions, forward: bool| {
        let mut iter = reader.iter(options);
        report(what, keys as usize, || {
            if forward {
                iter.seek_to_first()?
            } else {
                iter.seek_to_last()?
            }
            while iter.valid() {
                black_box((iter.user_key().len(), iter.value().len()));
                if forward { iter.next()? } else { iter.prev()? }
            }
            Ok(())
        })
    };
    walk("next", ScanOptions::default(), true)?;
    walk("prev", ScanOptions::default(), false)?;
    walk("next, compaction (page cache)", ScanOptions::compaction(), true)
}
