//! What the loader does with its memory and its files: several passes, and the account of what it takes.

use super::run::READER_BYTES;
use super::*;
use crate::{Db, Options};
use std::collections::BTreeMap;
use std::path::Path;
use terrace_base::rng::{Rng, SplitMix64};
use terrace_vfs::{SimVfs, Vfs};

const DIR: &str = "/store";

fn store(sim: &SimVfs) -> Db {
    let mut options = Options { memory_budget: 16 << 20, ..Options::default() };
    options.advanced.vfs = Arc::new(sim.clone());
    options.advanced.target_file_bytes = 256 << 10;
    options.advanced.reserve_bytes = 0;
    Db::open(DIR, options).unwrap()
}

fn loader(db: &Db, memory_bytes: usize) -> Loader {
    let options = BulkOptions { memory_bytes, ..BulkOptions::default() };
    Loader::new(&db.inner().background, db.default_family().family(), options).unwrap()
}

fn temp_files(sim: &SimVfs) -> usize {
    let names = sim.list(Path::new(DIR)).unwrap();
    names.iter().filter(|name| name.ends_with(".tmp")).count()
}

/// The empty key with nothing under it takes no bytes, as a deletion of it.
#[test]
fn the_last_one_given_counts_for_the_empty_key_too() {
    for seed in 0..30 {
        let sim = SimVfs::new(seed);
        let db = store(&sim);
        let mut rng = SplitMix64::new(seed);
        let options = BulkOptions { memory_bytes: 1 << 20, ..BulkOptions::default() };
        let mut loader = db.bulk_loader(&options).unwrap();
        let mut last = None;
        for n in 0..400u64 {
            match rng.below(4) {
                0 => {
                    loader.delete(b"").unwrap();
                    last = None;
                }
                1 => {
                    loader.put(b"", b"").unwrap();
                    last = Some(Vec::new());
                }
                2 => {
                    loader.put(b"", b"x").unwrap();
                    last = Some(b"x".to_vec());
                }
                _ => loader.put(rng.next_u64().to_be_bytes(), n.to_be_bytes()).unwrap(),
            }
        }
        loader.finish().unwrap();
        assert_eq!(db.get(b"").unwrap().map(|value| value.to_vec()), last, "seed {seed}");
    }
}

#[test]
fn ten_times_the_memory_is_sorted_in_several_passes_within_it() {
    let sim = SimVfs::new(1);
    let db = store(&sim);
    let mut loader = loader(&db, MIN_MEMORY);
    let mut rng = SplitMix64::new(1);
    let mut want = BTreeMap::new();
    let mut given_bytes = 0;
    while given_bytes < 10 * MIN_MEMORY {
        // One key in a few comes again.
        let key = format!("{:08}", rng.below(200_000)).into_bytes();
        let value = rng.next_u64().to_le_bytes().repeat(1 + rng.below(20) as usize);
        given_bytes += key.len() + value.len();
        loader.add(&key, ValueKind::Put, &[], &value).unwrap();
        want.insert(key, value);
    }
    let at_once = MIN_MEMORY / READER_BYTES;
    assert!(loader.runs.len() > 2 * at_once, "{} runs", loader.runs.len());
    let files = loader.sort().unwrap();
    assert!(files.len() > 4 && loader.runs.is_empty(), "{files:?}");
    assert_eq!(temp_files(&sim), files.len(), "the runs are gone");
    assert!(loader.peak_bytes() <= MIN_MEMORY, "{} bytes", loader.peak_bytes());
    assert!(loader.peak_bytes() > MIN_MEMORY / 2, "{} bytes", loader.peak_bytes());
    drop(loader);
    assert_eq!(temp_files(&sim), 0);
    assert!(db.iter().unwrap().entries().next().is_none(), "nothing was ingested");
}

#[test]
fn runs_of_large_entries_are_merged_within_the_memory_too() {
    let sim = SimVfs::new(1);
    let db = store(&sim);
    let memory_bytes = 4 * MIN_MEMORY;
    let mut loader = loader(&db, memory_bytes);
    let value = vec![7; 512 << 10];
    for n in 0..80u32 {
        let key = n.wrapping_mul(0x9e37_79b9).to_be_bytes();
        loader.add(&key, ValueKind::Put, &[], &value).unwrap();
    }
    // As many runs of small entries would be merged at once.
    assert!(loader.runs.len() >= memory_bytes / READER_BYTES, "{} runs", loader.runs.len());
    assert!(loader.sort().unwrap().len() > 1);
    assert!(loader.peak_bytes() <= memory_bytes, "{} bytes", loader.peak_bytes());
}

#[test]
fn no_run_takes_in_one_after_the_other() {
    let sim = SimVfs::new(1);
    let db = store(&sim);
    let mut loader = loader(&db, MIN_MEMORY);
    assert_eq!(MIN_MEMORY / READER_BYTES, 2, "two are merged at once");
    let mut rng = SplitMix64::new(1);
    while loader.runs.len() < 9 {
        loader.add(&rng.next_u64().to_be_bytes(), ValueKind::Put, &[], &[7; 100]).unwrap();
    }
    let mut at = 0;
    for _ in 0..4 {
        assert!(loader.merge_some(&mut at).unwrap());
    }
    assert_eq!(loader.runs.len(), 5);
    let longest = loader.runs.iter().map(|run| run.end).max().unwrap();
    assert!(longest < 3 * MIN_MEMORY as u64, "{:?}", loader.runs);
}

#[test]
fn memory_that_no_machine_has_is_refused() {
    let sim = SimVfs::new(1);
    let db = store(&sim);
    for memory_bytes in [usize::MAX, isize::MAX as usize, 1 << 60] {
        let options = BulkOptions { memory_bytes, ..BulkOptions::default() };
        let refused = Loader::new(&db.inner().background, db.default_family().family(), options);
        assert!(matches!(refused, Err(Error::InvalidArgument(_))), "{memory_bytes}");
    }
}

#[test]
fn an_entry_larger_than_the_memory_is_a_run_of_its_own() {
    let sim = SimVfs::new(1);
    let db = store(&sim);
    let mut loader = loader(&db, MIN_MEMORY);
    let large = vec![7; 3 * MIN_MEMORY];
    loader.add(b"m", ValueKind::Put, &[], b"small").unwrap();
    loader.add(b"z", ValueKind::Put, &[], &large).unwrap();
    loader.add(b"a", ValueKind::Put, &[], b"small").unwrap();
    loader.add(b"z", ValueKind::Delete, &[], b"").unwrap();
    loader.add(b"l", ValueKind::Put, &[], &large).unwrap();
    assert!(loader.runs.len() >= 2);
    assert_eq!(loader.finish().unwrap().entry_count, 4);
    let seen: Vec<_> = db.iter().unwrap().entries().map(|entry| entry.unwrap()).collect();
    let lens: Vec<_> = seen.iter().map(|(key, value)| (key.to_vec(), value.len())).collect();
    assert_eq!(lens, [(b"a".to_vec(), 5), (b"l".to_vec(), large.len()), (b"m".to_vec(), 5)]);
}
