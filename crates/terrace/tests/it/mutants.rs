//! R6: damaged bytes. Any byte of any file flipped, any file cut: the store says which file is damaged, or every answer is right. Of the families one has
//! large values in the log, one all of them, and one none.
//!
//! Every write of the store is synced, and the evidence files say so: no damage to one file may take
//! any of them unnoticed, not even the last. Damage to an evidence file is harmless.

use crate::harness::{DIR, Store, effort, eventually, key, small_options, stopped_clock};
use crate::left_over::left_over;
use crate::model::{Contents, History, Op};
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace::vfs::{SimVfs, Vfs};
use terrace::{Compression, Error, Options, ReadOptions, SyncMode};
use terrace_base::SegmentNumber;
use terrace_base::rng::{Rng, SplitMix64};
use terrace_manifest::names::FileName;
use terrace_manifest::{Manifest, SegmentKind, names};

/// A small store with every kind of file in it, as a killed process leaves it.
pub struct Specimen {
    pub sim: SimVfs,
    pub options: Options,
    pub history: History,
    /// What it holds.
    pub contents: Contents,
    pub keys: Vec<Vec<u8>>,
    /// Segments that the log has no more use for, but SSTs refer to values in them.
    pub sealed: HashSet<PathBuf>,
}

pub fn specimen(value_bytes: usize) -> Specimen {
    let clock = stopped_clock();
    let sim = SimVfs::new(1);
    let mut options = small_options(Arc::new(sim.clone()), &clock);
    options.sync = SyncMode::Batch;
    options.default_family.compression = vec![Compression::Lz4];
    options.column_families[0].1.compression = vec![Compression::Zstd];
    options.column_families[1].1.compression = vec![Compression::None];
    options.column_families[0].1.value_separation_threshold = 16;
    options.column_families[0].1.value_compression = Compression::Lz4;
    options.column_families[1].1.value_separation_threshold = usize::MAX;
    options.advanced.compact_when_idle = false;
    options.advanced.l0_compaction_trigger = 8;
    options.advanced.block_size = 256;
    options.advanced.metadata_block_size = 128;
    let store = Store::open(options.clone()).unwrap();
    let mut history = History::default();
    let mut write = |batch: Vec<Op>| {
        store.write(&batch, None, clock.now_ms()).unwrap();
        history.batches.push(batch);
    };
    let put = |family: usize, number: u64, round: u64| {
        let mut value = format!("{round}.{number}:").into_bytes();
        value.extend((0..value_bytes).map(|at| (at as u64 * (number % 5) / 3) as u8 + b'a'));
        Op::Put { family, key: key(number), value, expiry_ms: None }
    };
    let mut newest_before = SegmentNumber::default();
    for round in 0..3u64 {
        for number in 0..45 {
            if number % (round + 1) == 0 {
                write((0..3).map(|family| put(family, number, round)).collect());
            }
        }
        write(vec![Op::DeleteRange { family: 0, start: key(7 * round), end: key(7 * round + 3) }]);
        write(vec![Op::Delete { family: 1, key: key(round) }]);
        newest_before = newest_log_segment(&sim);
        store.db.flush().unwrap();
        if round == 1 {
            store.families[2].compact_range::<&[u8]>(..).unwrap();
            store.db.collect_garbage(0.0).unwrap();
        }
    }
    // Full memtables of one family while another keeps the segments alive.
    write(vec![put(1, 3, 9)]);
    for number in 0..20 {
        write(vec![put(0, number * 2, 9), put(2, number, 9)]);
    }
    for family in [2, 2, 0] {
        write(vec![Op::Put { family, key: key(2), value: vec![b'x'; 9000], expiry_ms: None }]);
    }
    for number in 0..10 {
        write(vec![put(number as usize % 3, number * 3, 10)]);
    }
    write(vec![Op::DeleteRange { family: 2, start: key(0), end: key(14) }]);
    write(vec![put(0, 1, 11)]);
    // Every flush is in force, and what it left without use is gone.
    let is_still = || {
        let waits = store.db.shape().families.iter().any(|f| f.immutable_memtables > 0);
        let (image, dir) = (sim.kill_image(), Path::new(DIR));
        let families = Manifest::read(&image, dir).unwrap().families;
        let oldest = families.values().map(|family| family.min_log_segment).min().unwrap();
        !waits && oldest > newest_before && left_over(&image, dir).unwrap().is_empty()
    };
    eventually("nothing is on its way", is_still);
    let sim = sim.kill_image();
    let contents = history.state(history.batches.len()).contents(clock.now_ms());
    let keys = (0..46).map(key).chain([b"absent".to_vec()]).collect();
    let sealed = sealed_segments(&sim);
    Specimen { sim, options, history, contents, keys, sealed }
}

/// The newest file of the commit log.
fn newest_log_segment(sim: &SimVfs) -> SegmentNumber {
    let names = sim.list(Path::new(DIR)).unwrap();
    let numbers = names.iter().filter_map(|name| match names::parse(name) {
        FileName::Log(number) => Some(number),
        _ => None,
    });
    numbers.max().unwrap()
}

pub fn sealed_segments(sim: &SimVfs) -> HashSet<PathBuf> {
    let dir = Path::new(DIR);
    let segments = Manifest::read(sim, dir).unwrap().segments.into_values();
    segments
        .map(|segment| match segment.kind {
            SegmentKind::CommitLog => names::log_path(dir, segment.number),
            SegmentKind::Values => names::value_log_path(dir, segment.number),
        })
        .collect()
}

fn is_typed(error: &Error) -> bool {
    let text = error.to_string();
    let names_a_file = text.contains(DIR);
    match error {
        Error::Corruption(_) | Error::Unsupported(_) | Error::NotAStore { .. } => names_a_file,
        // A file that is gone; a reader cannot know who removed it.
        Error::Outdated(_) => names_a_file,
        Error::Io(cause) => cause.is_not_found() && names_a_file,
        _ => false,
    }
}

#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub enum Outcome {
    Refused,
    ReadError,
    Harmless,
}

impl Specimen {
    pub fn kind_of(&self, path: &Path) -> &'static str {
        if self.sealed.contains(path) { "values" } else { kind_of(path) }
    }

    pub fn open(&self, image: &SimVfs, read_only: bool) -> Result<Store, Error> {
        let mut options = self.options.clone();
        options.advanced.vfs = Arc::new(image.clone());
        if read_only { Store::open_read_only(options) } else { Store::open(options) }
    }

    /// Opens and reads everything: errors must name a file, and answers must be right.
    pub fn examine(&self, image: &SimVfs, read_only: bool) -> Result<Outcome, String> {
        let typed = |error: Error| match is_typed(&error) {
            true => Ok(()),
            false => Err(format!("an error of the wrong kind or without a file: {error:?}")),
        };
        let store = match self.open(image, read_only) {
            Ok(store) => store,
            Err(error) => return typed(error).map(|()| Outcome::Refused),
        };
        if store.families.len() != 3 {
            return Err(format!("{} families", store.families.len()));
        }
        let mut failed = false;
        for family in 0..3 {
            let (handle, want) = (&store.families[family], &self.contents[family]);
            for key in &self.keys {
                match handle.get(key) {
                    Ok(got) if got.as_deref() == want.get(key).map(Vec::as_slice) => {}
                    Ok(_) => {
                        return Err(format!("a wrong answer for {}", String::from_utf8_lossy(key)));
                    }
                    Err(error) => {
                        failed = true;
                        typed(error)?;
                    }
                }
            }
            for backward in [false, true] {
                let (seen, error) = scan_until_error(handle, backward);
                let ended = error.is_none();
                failed |= !ended;
                error.map_or(Ok(()), typed)?;
                if !is_begin_of(want, &seen, backward, ended) {
                    return Err(format!("a wrong scan (backward: {backward})"));
                }
            }
        }
        Ok(if failed { Outcome::ReadError } else { Outcome::Harmless })
    }
}

type Entry = (Vec<u8>, Vec<u8>);

/// What a scan shows until it ends or fails.
fn scan_until_error(family: &terrace::ColumnFamily, backward: bool) -> (Vec<Entry>, Option<Error>) {
    let mut seen = Vec::new();
    let mut walk = || -> Result<(), Error> {
        let mut iter = family.iter_with(&ReadOptions::default())?;
        if backward {
            iter.seek_to_last()?
        } else {
            iter.seek_to_first()?
        }
        while iter.valid() {
            seen.push((iter.key().to_vec(), iter.value().to_vec()));
            if backward { iter.prev()? } else { iter.next()? }
        }
        Ok(())
    };
    let error = walk().err();
    (seen, error)
}

/// Whether `seen` are the first entries of `want` in that direction; all of them if it `ended`.
fn is_begin_of(
    want: &BTreeMap<Vec<u8>, Vec<u8>>,
    seen: &[Entry],
    backward: bool,
    ended: bool,
) -> bool {
    let seen_refs = seen.iter().map(|(key, value)| (key, value));
    let complete = !ended || seen.len() == want.len();
    complete
        && match backward {
            false => seen_refs.eq(want.iter().take(seen.len())),
            true => seen_refs.eq(want.iter().rev().take(seen.len())),
        }
}

pub fn kind_of(path: &Path) -> &'static str {
    let name = path.file_name().unwrap().to_str().unwrap();
    match name {
        "CURRENT" => "CURRENT",
        "SYNCED-1" | "SYNCED-2" => "evidence",
        _ if name.starts_with("MANIFEST") => "manifest",
        _ if name.ends_with(".sst") => "sst",
        _ if name.ends_with(".log") => "log",
        _ => "other",
    }
}

pub fn file_number(path: &Path) -> u64 {
    path.file_stem().unwrap().to_str().unwrap().parse().unwrap()
}

#[test]
fn r6_no_damaged_byte_changes_an_answer() {
    let specimen = specimen(60);
    let files: Vec<(PathBuf, u64)> = {
        let all = specimen.sim.files().into_iter();
        all.filter(|(path, _)| specimen.kind_of(path) != "other").collect()
    };
    let kinds: BTreeMap<&str, (u64, u64)> =
        files.iter().fold(BTreeMap::new(), |mut kinds, file| {
            let (count, bytes) = kinds.entry(specimen.kind_of(&file.0)).or_default();
            *count += 1;
            *bytes += file.1;
            kinds
        });
    assert_eq!(kinds.len(), 6, "every kind of file: {kinds:?}");
    assert!(kinds["log"].0 >= 2 && kinds["sst"].0 >= 4 && kinds["values"].0 >= 2, "{kinds:?}");
    assert_eq!(specimen.examine(&specimen.sim, true), Ok(Outcome::Harmless), "unharmed");
    let total: u64 = files.iter().map(|(_, bytes)| bytes).sum();
    let wanted = effort(20_000);
    let mut tally: BTreeMap<(&str, String), u64> = BTreeMap::new();
    let mutants = crate::harness::over_seeds("R6", wanted, |seed, left| {
        let mut rng = SplitMix64::new(seed ^ 0x6006);
        let count = left.min(1000);
        for n in 0..count {
            // Positions a fixed stride apart with a random start cover all the files evenly.
            let mut at = (n * total / count + rng.below(total)) % total;
            let (path, len) = files
                .iter()
                .find(|(_, bytes)| {
                    let inside = at < *bytes;
                    at = if inside { at } else { at - bytes };
                    inside
                })
                .unwrap();
            let image = specimen.sim.kill_image();
            let kind = specimen.kind_of(path);
            let what = damage(&image, path, at, *len, &mut rng);
            let read_only = !rng.one_in(12);
            match specimen.examine(&image, read_only) {
                Ok(outcome) => *tally.entry((kind, format!("{outcome:?}"))).or_default() += 1,
                Err(why) => panic!(
                    "R6: seed {seed}, mutant {n}: {} of {len} bytes, {what} at {at}, read-only {read_only}: {why}",
                    path.display()
                ),
            }
        }
        count
    });
    println!(
        "R6: {mutants} mutants of {} batches in {kinds:?}, 0 wrong answers: {tally:?}",
        specimen.history.batches.len()
    );
    let all = |kind: &str, outcome: Outcome| {
        tally.get(&(kind, format!("{outcome:?}"))).copied().unwrap_or(0)
    };
    if wanted >= 20_000 && std::env::var("SEED").is_err() {
        assert!(all("sst", Outcome::ReadError) + all("sst", Outcome::Refused) > mutants / 20);
        assert!(
            all("log", Outcome::Refused) > mutants / 20 && all("manifest", Outcome::Refused) > 50
        );
        assert!(all("values", Outcome::ReadError) > mutants / 100);
        assert_eq!(all("evidence", Outcome::Refused) + all("evidence", Outcome::ReadError), 0);
    }
}

/// Damages one place; says how.
fn damage(image: &SimVfs, path: &Path, at: u64, len: u64, rng: &mut SplitMix64) -> &'static str {
    match rng.below(12) {
        0 => {
            assert!(image.truncate(path, at));
            "cut"
        }
        1 => {
            for at in at..len.min(at + 1 + rng.below(16)) {
                let byte = image.read_file(path).unwrap()[at as usize];
                flip(image, path, at, byte);
            }
            "zeros"
        }
        2..=5 => {
            flip(image, path, at, 1 << rng.below(8));
            "a flipped bit"
        }
        _ => {
            flip(image, path, at, 1 + rng.below(255) as u8);
            "another byte"
        }
    }
}

/// Flips bits of one byte, also in preallocated room.
fn flip(image: &SimVfs, path: &Path, at: u64, xor: u8) {
    if !image.corrupt(path, at, xor) {
        let mut bytes = image.read_file(path).unwrap();
        bytes[at as usize] ^= xor;
        assert!(image.write_file(path, bytes));
    }
}

/// Every byte of value segments flipped in turn, under an open store: the value it belongs to is an
/// error that names file and offset, every other value is right.
#[test]
fn r6_a_flipped_byte_in_the_log_is_an_error_of_the_value_it_belongs_to() {
    let specimen = specimen(60);
    let image = specimen.sim.kill_image();
    let store = specimen.open(&image, true).unwrap();
    let moved = |path: &PathBuf| path.extension().is_some_and(|e| e == "vlog");
    assert!(specimen.sealed.iter().any(moved) && !specimen.sealed.iter().all(moved));
    let read = ReadOptions { fill_cache: false, ..ReadOptions::default() };
    let mut total = 0;
    for path in &specimen.sealed {
        total += image.len(path).unwrap();
    }
    let wanted = effort(3000);
    let mut rng = SplitMix64::new(7);
    let (mut flips, mut errors) = (0, 0);
    for path in &specimen.sealed {
        let name = path.file_name().unwrap().to_str().unwrap();
        let names_it = |error: Error| {
            let text = error.to_string();
            let is_clean = matches!(error, Error::Corruption(_));
            assert!(is_clean && text.contains(name) && text.contains("offset"), "{error:?}");
        };
        let mut at = rng.below((total / wanted).max(1));
        while at < image.len(path).unwrap() {
            let xor = 1 + rng.below(255) as u8;
            flip(&image, path, at, xor);
            let mut failed = Vec::new();
            for (family, want) in store.families.iter().zip(&specimen.contents) {
                for key in &specimen.keys {
                    match family.get_with(key, &read) {
                        Ok(got) => assert_eq!(
                            got.as_deref(),
                            want.get(key).map(Vec::as_slice),
                            "a wrong value after byte {at} of {name} was flipped"
                        ),
                        Err(error) => {
                            failed.push((family.name(), key));
                            names_it(error);
                        }
                    }
                }
            }
            assert!(failed.len() <= 1, "byte {at} of {name} belongs to {failed:?}");
            if let Some((family, key)) = failed.first() {
                let family = store.families.iter().find(|f| f.name() == *family).unwrap();
                family.multi_get_with(&[key], &read).map_err(names_it).unwrap_err();
                let mut iter = family.iter_with(&read).unwrap();
                iter.seek(key).map_err(names_it).unwrap_err();
                assert!(!iter.valid());
            }
            flip(&image, path, at, xor);
            (flips, errors) = (flips + 1, errors + failed.len());
            at += 1 + rng.below(2 * total / wanted + 1);
        }
    }
    println!("R6: {flips} of {total} bytes of value segments flipped, {errors} values were errors");
    assert!(flips as u64 > wanted / 2 && errors > flips / 20, "{errors} of {flips}");
}

/// The same for values that only a memtable refers to.
#[test]
fn r6_a_flipped_byte_in_a_log_that_is_written_is_never_served() {
    let clock = stopped_clock();
    let sim = SimVfs::new(1);
    let mut options = small_options(Arc::new(sim.clone()), &clock);
    options.default_family.value_separation_threshold = 16;
    options.advanced.memtable_bytes = 1 << 20;
    let store = Store::open(options).unwrap();
    let value = |n: u64| vec![n as u8; 50];
    for n in 0..20 {
        store.db.put(key(n), value(n)).unwrap();
    }
    let (log, _) = sim.files().into_iter().find(|(path, _)| kind_of(path) == "log").unwrap();
    let read = ReadOptions { fill_cache: false, ..ReadOptions::default() };
    let mut errors = 0;
    // Past the last value the file may be preallocated.
    for at in 0..20 * 110 {
        if !sim.corrupt(&log, at, 0x41) {
            break;
        }
        for n in 0..20 {
            match store.db.get_with(key(n), &read) {
                Ok(got) => assert_eq!(got.as_deref(), Some(&value(n)[..]), "byte {at}"),
                Err(Error::Corruption(_)) => errors += 1,
                Err(error) => panic!("{error:?}"),
            }
        }
        sim.corrupt(&log, at, 0x41);
    }
    // Each value and its checksum.
    assert_eq!(errors, 20 * 54);
}
