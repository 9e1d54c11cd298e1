//! R10: files that are gone or cut. Whichever file of a store is lost, whichever two, and wherever one is
//! cut: the store says so and does not open, or a read says so, or everything that was synced is
//! there. It is never an older store, and what is left is not touched.

use crate::harness::{DIR, Store, effort, key, small_options, stopped_clock};
use crate::mutants::{Outcome, Specimen, specimen};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace::vfs::{SimVfs, Vfs};
use terrace::{Db, Error, SyncMode};
use terrace_base::SegmentNumber;
use terrace_base::rng::{Rng, SplitMix64};
use terrace_log::{LogReader, Step};

/// The files that a store consists of.
fn files(specimen: &Specimen) -> Vec<PathBuf> {
    let all = specimen.sim.files().into_iter().map(|(path, _)| path);
    all.filter(|path| specimen.kind_of(path) != "other").collect()
}

fn name(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}

#[test]
fn r10_without_the_oldest_log_segment_that_is_needed_the_store_does_not_open() {
    let specimen = specimen(60);
    let logs: Vec<PathBuf> =
        files(&specimen).into_iter().filter(|path| specimen.kind_of(path) == "log").collect();
    assert!(logs.len() >= 2, "{logs:?}");
    for read_only in [true, false] {
        let image = specimen.sim.kill_image();
        image.remove(&logs[0]).unwrap();
        let error = specimen.open(&image, read_only).err().expect("a hole in the history");
        let names_it = error.to_string().contains(name(&logs[0]));
        assert!(matches!(error, Error::Corruption(_)) && names_it, "{error}");
    }
}

#[test]
fn r10_no_lost_file_and_no_two_make_an_older_store() {
    let specimen = specimen(60);
    let files = files(&specimen);
    let mut tally: BTreeMap<(&str, String), u64> = BTreeMap::new();
    for (at, first) in files.iter().enumerate() {
        for second in &files[at..] {
            let read_only = (at + name(second).len()).is_multiple_of(2);
            let image = specimen.sim.kill_image();
            image.remove(first).unwrap();
            if first != second {
                image.remove(second).unwrap();
            }
            let left = image.files();
            let outcome = specimen.examine(&image, read_only).unwrap_or_else(|why| {
                panic!("R10: without {} and {}: {why}", first.display(), second.display())
            });
            if outcome == Outcome::Refused {
                // A manifest may have been written anew; data is not touched.
                let data = |files: Vec<(PathBuf, u64)>| -> Vec<(PathBuf, u64)> {
                    let is_data = |path: &Path| {
                        [".sst", ".log", ".vlog"].iter().any(|e| name(path).ends_with(e))
                    };
                    files.into_iter().filter(|(path, _)| is_data(path)).collect()
                };
                assert_eq!(data(left), data(image.files()));
            }
            if first == second {
                let kind = specimen.kind_of(first);
                *tally.entry((kind, format!("{outcome:?}"))).or_default() += 1;
            }
        }
    }
    println!("R10: each of {} files lost alone: {tally:?}; and every two of them", files.len());
    for ((kind, outcome), _) in tally {
        match kind {
            "evidence" => assert_eq!(outcome, "Harmless"),
            "CURRENT" | "manifest" | "log" => assert_eq!(outcome, "Refused", "{kind}"),
            _ => assert_ne!(outcome, "Harmless", "{kind}"),
        }
    }
}

/// Where the records of a segment or manifest begin and end.
fn boundaries(sim: &SimVfs, path: &Path) -> BTreeSet<u64> {
    let number = match name(path).rsplit_once('-') {
        Some((_, digits)) => digits.parse().unwrap(),
        None => crate::mutants::file_number(path),
    };
    let mut reader = LogReader::open(sim, path, SegmentNumber::new(number)).unwrap();
    let mut found = BTreeSet::from([0, reader.position()]);
    while let Step::Record(_) = reader.next().unwrap() {
        found.insert(reader.position());
    }
    found
}

#[test]
fn r10_no_cut_makes_an_older_store() {
    let specimen = specimen(60);
    let mut tally: BTreeMap<(&str, String), u64> = BTreeMap::new();
    let cut_files: Vec<PathBuf> = files(&specimen)
        .into_iter()
        .filter(|path| ["CURRENT", "manifest", "log", "evidence"].contains(&specimen.kind_of(path)))
        .collect();
    let each = effort(1200) / cut_files.len() as u64;
    for (at, path) in cut_files.iter().enumerate() {
        let len = specimen.sim.len(path).unwrap();
        let kind = specimen.kind_of(path);
        let mut cuts = match kind {
            "CURRENT" => (0..len).collect(),
            _ => boundaries(&specimen.sim, path),
        };
        let end = if kind == "CURRENT" { len } else { cuts.last().copied().unwrap_or(0) };
        let mut rng = SplitMix64::new(at as u64);
        while (cuts.len() as u64) < each.min(len) {
            cuts.insert(rng.below(end));
        }
        for cut in cuts {
            let image = specimen.sim.kill_image();
            assert!(image.truncate(path, cut));
            let read_only = !rng.one_in(3);
            let outcome = specimen
                .examine(&image, read_only)
                .unwrap_or_else(|why| panic!("R10: {} cut at {cut}: {why}", path.display()));
            // Behind the last edit of a manifest stands a marker that nobody waits for.
            let whole = cut == end || (kind == "manifest" && cut + 25 >= end);
            if kind == "evidence" || whole {
                assert_eq!(outcome, Outcome::Harmless, "{} cut at {cut}", path.display());
            } else {
                assert_eq!(outcome, Outcome::Refused, "{} cut at {cut}", path.display());
            }
            *tally.entry((kind, format!("{outcome:?}"))).or_default() += 1;
        }
    }
    println!("R10: cuts: {tally:?}");
}

/// The last write that was synced is the one that no record in the log proves.
#[test]
fn r10_damage_to_the_last_synced_write_is_no_torn_tail() {
    let clock = stopped_clock();
    let sim = SimVfs::new(1);
    let mut options = small_options(Arc::new(sim.clone()), &clock);
    options.sync = SyncMode::Batch;
    let store = Store::open(options.clone()).unwrap();
    store.db.put(key(1), b"one").unwrap();
    store.db.put(key(2), b"two").unwrap();
    let mut paths = sim.files().into_iter().map(|(path, _)| path);
    let log = paths.rfind(|path| name(path).ends_with(".log")).unwrap();
    let image = sim.kill_image();
    let last = *boundaries(&image, &log).iter().nth_back(1).unwrap();
    assert!(image.corrupt(&log, last + 12, 1));
    options.advanced.vfs = Arc::new(image.clone());
    let error = Db::open(DIR, options.clone()).err().expect("a synced write is gone");
    let text = error.to_string();
    assert!(text.contains(name(&log)) && text.contains("terrace repair"), "{text}");
    // Without both evidence files, that is without any proof, it is a torn tail.
    for number in 1..=2 {
        image.remove(Path::new(&format!("{DIR}/SYNCED-{number}"))).unwrap();
    }
    let db = Db::open(DIR, options).unwrap();
    assert_eq!((db.get(key(1)).unwrap().is_some(), db.get(key(2)).unwrap()), (true, None));
}

#[test]
fn r10_a_checkpoint_has_evidence_of_its_own() {
    let clock = stopped_clock();
    let sim = SimVfs::new(1);
    let mut options = small_options(Arc::new(sim.clone()), &clock);
    options.sync = SyncMode::Batch;
    let store = Store::open(options.clone()).unwrap();
    (0..20).for_each(|n| store.db.put(key(n), b"value").unwrap());
    let target = Path::new("/checkpoint");
    store.db.checkpoint(target).unwrap();
    let names: Vec<String> = sim.list(target).unwrap();
    for lost in names.iter().filter(|name| *name != "LOCK") {
        let image = sim.kill_image();
        image.remove(&target.join(lost)).unwrap();
        options.advanced.vfs = Arc::new(image);
        let opened = Db::open(target, options.clone());
        match lost.starts_with("SYNCED") {
            true => {
                assert_eq!(opened.unwrap().get(key(19)).unwrap().as_deref(), Some(&b"value"[..]))
            }
            false => assert!(opened.is_err(), "{lost}"),
        }
    }
    assert!(names.iter().filter(|name| name.starts_with("SYNCED")).count() == 2, "{names:?}");
}
