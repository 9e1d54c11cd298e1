//! R7: blocks, values, segments and manifests in the wrong place are always detected.

use crate::harness::{DIR, START_MS, Store, effort, key, small_options, stopped_clock};
use crate::model::{History, Op};
use crate::mutants::{Outcome, file_number, kind_of, sealed_segments, specimen};
use std::path::PathBuf;
use std::sync::Arc;
use terrace::vfs::{SimVfs, Vfs};
use terrace::{Compression, Error, Options, RepairOptions};
use terrace_base::checksum::block_checksum;
use terrace_base::{FileNumber, ManualClock, SegmentNumber};
use terrace_log::format::HEADER_BYTES;
use terrace_log::{LogOptions, LogReader, LogWriter, RecordKind, Step};

/// Where the stored blocks of an SST lie: each ends in a type and a checksum over its content,
/// its file's number and its offset.
fn stored_blocks(bytes: &[u8], number: u64) -> Vec<(usize, usize)> {
    let mut blocks = Vec::new();
    let mut start = 0;
    'next: while start < bytes.len() {
        for end in start + 6..=bytes.len() {
            let (content, trailer) = bytes[start..end].split_at(end - start - 5);
            let sum = block_checksum(content, trailer[0], FileNumber::new(number), start as u64);
            if trailer[1..] == sum.to_le_bytes() {
                blocks.push((start, end));
                start = end;
                continue 'next;
            }
        }
        break;
    }
    blocks
}

#[test]
fn r7_a_block_in_the_wrong_place_is_always_detected() {
    let mut specimen = specimen(60);
    // Blocks of equal length are easiest to take for one another: no compression.
    let clock = stopped_clock();
    let sim = SimVfs::new(2);
    specimen.options = small_options(Arc::new(sim.clone()), &clock);
    specimen.options.default_family.compression = vec![Compression::None];
    specimen.options.advanced.compact_when_idle = false;
    specimen.options.advanced.l0_compaction_trigger = 20;
    specimen.options.advanced.block_size = 256;
    let store = Store::open(specimen.options.clone()).unwrap();
    let mut history = History::default();
    for round in 0..4u64 {
        for number in 0..40 {
            let value = format!("{round}.{number:03}:{}", "v".repeat(60)).into_bytes();
            let put = Op::Put { family: 0, key: key(number), value, expiry_ms: None };
            store.write(&vec![put.clone()], None, clock.now_ms()).unwrap();
            history.batches.push(vec![put]);
        }
        store.db.flush().unwrap();
    }
    store.db.close().unwrap();
    specimen.contents = history.state(history.batches.len()).contents(clock.now_ms());
    specimen.sim = sim.kill_image();
    let ssts: Vec<PathBuf> =
        sim.files().into_iter().map(|(path, _)| path).filter(|p| kind_of(p) == "sst").collect();
    assert!(ssts.len() >= 4, "{ssts:?}");
    let blocks: Vec<(PathBuf, usize, Vec<u8>)> = ssts
        .iter()
        .flat_map(|path| {
            let bytes = sim.read_file(path).unwrap();
            let found = stored_blocks(&bytes, file_number(path));
            assert!(found.len() >= 10, "{} blocks in {}", found.len(), path.display());
            let stored = found.into_iter().map(|(start, end)| (start, bytes[start..end].to_vec()));
            stored.map(|(start, bytes)| (path.clone(), start, bytes)).collect::<Vec<_>>()
        })
        .collect();
    let (mut moved, mut stale) = (0, 0);
    let limit = effort(1500);
    'all: for (from_path, from, bytes) in &blocks {
        for (to_path, to, old) in &blocks {
            if (from_path == to_path && from == to) || bytes.len() != old.len() {
                continue;
            }
            let image = specimen.sim.kill_image();
            let mut file = image.read_file(to_path).unwrap();
            file[*to..to + bytes.len()].copy_from_slice(bytes);
            assert!(image.write_file(to_path, file));
            let what = format!("{}@{from} at {}@{to}", from_path.display(), to_path.display());
            specimen.examine(&image, true).unwrap_or_else(|why| panic!("R7: {what}: {why}"));
            let found = specimen.open(&image, true).and_then(|store| store.db.verify());
            let error = found.err().unwrap_or_else(|| panic!("R7: not detected: {what}"));
            assert!(matches!(error, Error::Corruption(_)), "{error:?}");
            let name = to_path.file_name().unwrap().to_str().unwrap();
            assert!(error.to_string().contains(name), "{error} does not name {name}");
            if from_path == to_path {
                moved += 1
            } else {
                stale += 1
            }
            if moved + stale >= limit {
                break 'all;
            }
        }
    }
    assert!(stale > limit / 4 && moved > limit / 10, "{moved} moved, {stale} of other files");
    let mut swapped = 0;
    for from in &ssts {
        for to in ssts.iter().filter(|to| *to != from) {
            let image = specimen.sim.kill_image();
            assert!(image.write_file(to, sim.read_file(from).unwrap()));
            specimen
                .examine(&image, true)
                .unwrap_or_else(|why| panic!("R7: a swapped file: {why}"));
            let found = specimen.open(&image, true).and_then(|store| store.db.verify());
            assert!(matches!(found, Err(Error::Corruption(_))), "a swapped file: {found:?}");
            swapped += 1;
        }
    }
    println!(
        "R7: {moved} blocks moved, {stale} blocks of other files, {swapped} files swapped: all detected"
    );
}

/// A value of the same key and length at the same offset of another segment, sound in itself.
#[test]
fn r7_a_value_of_another_segment_is_always_detected() {
    let clock = stopped_clock();
    let sim = SimVfs::new(1);
    let mut options = small_options(Arc::new(sim.clone()), &clock);
    options.column_families.iter_mut().for_each(|(_, f)| f.value_separation_threshold = 16);
    let store = Store::open(options.clone()).unwrap();
    let value = |family: usize, n: u64| [family as u8; 500 + 3].map(|b| b ^ n as u8);
    for family in [1, 2] {
        for n in 0..4 {
            store.families[family].put(key(n), value(family, n)).unwrap();
        }
        store.db.flush().unwrap();
    }
    store.db.close().unwrap();
    // What the background did not come to, opening does.
    Store::open(options.clone()).unwrap().db.close().unwrap();
    let sealed: Vec<PathBuf> = sealed_segments(&sim).into_iter().collect();
    let [a, b] = &sealed[..] else { panic!("{sealed:?}") };
    let starts = |path: &PathBuf, family: usize| {
        let bytes = sim.read_file(path).unwrap();
        let start = |n| bytes.windows(503).position(|w| w == value(family, n)).unwrap();
        (0..4).map(start).collect::<Vec<_>>()
    };
    let (of_a, of_b) = if a < b { (1, 2) } else { (2, 1) };
    assert_eq!(starts(a, of_a), starts(b, of_b), "they lie at the same offsets");
    let image = sim.kill_image();
    assert!(image.write_file(a, sim.read_file(b).unwrap()));
    assert!(image.write_file(b, sim.read_file(a).unwrap()));
    let mut swapped = options;
    swapped.advanced.vfs = Arc::new(image);
    let store = Store::open(swapped).unwrap();
    for family in &store.families[1..] {
        for n in 0..4 {
            let found = family.get(key(n));
            assert!(matches!(found, Err(Error::Corruption(_))), "{found:?}");
        }
    }
    assert!(matches!(store.db.verify(), Err(Error::Corruption(_))));
}

#[test]
fn r7_log_segments_and_manifests_in_the_wrong_place_are_detected() {
    let specimen = specimen(60);
    let files = specimen.sim.files();
    let mut checked = 0;
    for (from, _) in &files {
        for (to, _) in &files {
            let other = |path| specimen.kind_of(path) == "other";
            if from == to || other(from) || other(to) {
                continue;
            }
            let image = specimen.sim.kill_image();
            assert!(image.write_file(to, specimen.sim.read_file(from).unwrap()));
            let what = format!("{} as {}", from.display(), to.display());
            let outcome = specimen.examine(&image, true);
            let outcome = outcome.unwrap_or_else(|why| panic!("R7: {what}: {why}"));
            // One evidence file is needed by nothing while there is the other.
            let harmless = specimen.kind_of(to) == "evidence";
            assert_eq!(outcome == Outcome::Harmless, harmless, "R7: {what}: {outcome:?}");
            checked += 1;
        }
    }
    println!("R7: {checked} files under the name of another: all detected");
}

/// A record that a file system gives back twice: sound in itself, with numbers that were used.
#[test]
fn r7_a_batch_that_the_log_holds_twice_is_detected() {
    let clock = stopped_clock();
    let sim = SimVfs::new(3);
    let store = Store::open(small_options(Arc::new(sim.clone()), &clock)).unwrap();
    for number in 0..5 {
        store.db.delete_range(key(number), key(number + 2)).unwrap();
    }
    store.db.sync().unwrap();
    let image = sim.kill_image();
    let logs = image.files().into_iter().map(|(path, _)| path).filter(|p| kind_of(p) == "log");
    let last = logs.max().unwrap();
    let mut reader =
        LogReader::open(&image, &last, SegmentNumber::new(file_number(&last))).unwrap();
    let mut payloads = Vec::new();
    while let Step::Record(record) = reader.next().unwrap() {
        if record.kind == RecordKind::Data {
            payloads.push(record.payload.to_vec());
        }
    }
    assert_eq!(payloads.len(), 5);
    let number = SegmentNumber::new(file_number(&last) + 1);
    let next = last.with_file_name(format!("{number:06}.log"));
    let mut writer = LogWriter::create(&image, &next, number, &LogOptions::default()).unwrap();
    writer.append(&[&payloads[2]]).unwrap();
    writer.sync().unwrap();
    let error = Store::open(small_options(Arc::new(image), &clock)).map(drop).unwrap_err();
    assert!(matches!(error, Error::Corruption(_)), "{error:?}");
    let text = error.to_string();
    let name = next.file_name().unwrap().to_str().unwrap();
    assert!(text.contains("should be next") && text.contains(name), "{text}");
}

/// Its number is larger, and so are its sequence numbers: nothing but its place in the log is wrong.
#[test]
fn r7_the_log_of_another_store_is_not_replayed_behind_ours_and_repair_sets_it_aside() {
    let clock = stopped_clock();
    let options = |sim: &SimVfs| {
        let mut options = small_options(Arc::new(sim.clone()), &clock);
        options.advanced.log_retention_bytes = 0;
        options
    };
    let killed_after_put = |tag: &str, opens_before: u64| {
        let sim = SimVfs::new(1);
        for number in 0..opens_before {
            let store = Store::open(options(&sim)).unwrap();
            store.db.put(key(number), tag).unwrap();
            store.db.close().unwrap();
        }
        let store = Store::open(options(&sim)).unwrap();
        store.db.put(key(1), tag).unwrap();
        store.db.put(key(2), tag).unwrap();
        store.db.sync().unwrap();
        sim.kill_image()
    };
    let newest_log = |sim: &SimVfs| {
        let logs = sim.files().into_iter().map(|(path, _)| path).filter(|p| kind_of(p) == "log");
        logs.max().unwrap()
    };
    let (ours, theirs) = (killed_after_put("ours", 0), killed_after_put("theirs", 9));
    let stray = newest_log(&theirs);
    assert!(stray > newest_log(&ours));
    let image = ours.kill_image();
    assert!(image.write_file(&stray, theirs.read_file(&stray).unwrap()));
    let error = Store::open(options(&image)).map(drop).unwrap_err();
    let (text, name) = (error.to_string(), stray.file_name().unwrap().to_str().unwrap());
    assert!(matches!(error, Error::Corruption(_)), "{error:?}");
    assert!(text.contains("is of another store") && text.contains(name), "{text}");
    let report = terrace::repair(DIR, options(&image), RepairOptions::default()).unwrap();
    assert!(report.lost.is_empty(), "{report:?}");
    let kept = stray.with_file_name("lost").join(format!("{name}.misplaced"));
    assert!(image.exists(&kept).unwrap(), "{report:?}");
    let store = Store::open(options(&image)).unwrap();
    assert_eq!(store.db.get(key(1)).unwrap().as_deref(), Some(&b"ours"[..]));
    // Nor is what follows damage in it, which a repair passes over.
    let image = ours.kill_image();
    assert!(image.write_file(&stray, theirs.read_file(&stray).unwrap()));
    assert!(image.corrupt(&stray, HEADER_BYTES, 1));
    let report = terrace::repair(DIR, options(&image), RepairOptions::default()).unwrap();
    assert!(report.lost.is_empty() && image.exists(&kept).unwrap(), "{report:?}");
    let store = Store::open(options(&image)).unwrap();
    assert_eq!(store.db.get(key(2)).unwrap().as_deref(), Some(&b"ours"[..]));
    // It does not take the place of the one with which our log begins, if that is lost.
    let image = ours.kill_image();
    image.remove(&newest_log(&ours)).unwrap();
    assert!(image.write_file(&stray, theirs.read_file(&stray).unwrap()));
    let report = terrace::repair(DIR, options(&image), RepairOptions::default()).unwrap();
    assert!(!report.lost.is_empty() && image.exists(&kept).unwrap(), "{report:?}");
    let store = Store::open(options(&image)).unwrap();
    assert_eq!(store.db.get(key(1)).unwrap(), None, "told as lost");
}

/// A store whose values bear `tag`, with one SST.
fn tagged(tag: &str, made_at_ms: u64) -> (SimVfs, Options, PathBuf) {
    let clock = ManualClock::wall_at(made_at_ms);
    let sim = SimVfs::new(1);
    let mut options = small_options(Arc::new(sim.clone()), &clock);
    // The SST keeps its number.
    options.advanced.compact_when_idle = false;
    let store = Store::open(options.clone()).unwrap();
    for number in 0..40 {
        store.db.put(key(number), format!("{tag}.{number:03}")).unwrap();
    }
    store.db.flush().unwrap();
    store.db.close().unwrap();
    let files = sim.files().into_iter().map(|(path, _)| path);
    let ssts: Vec<PathBuf> = files.filter(|path| kind_of(path) == "sst").collect();
    assert_eq!(ssts.len(), 1, "{ssts:?}");
    (sim, options, ssts[0].clone())
}

/// Sound in itself, under the right name and of the right size: only that it is another file.
#[test]
fn r7_an_sst_of_another_store_is_not_served_and_repair_sets_it_aside() {
    let (ours, mut options, path) = tagged("ours", START_MS);
    let (theirs, _, same_path) = tagged("them", START_MS + 1);
    assert_eq!(path, same_path);
    assert_eq!(ours.len(&path).unwrap(), theirs.len(&path).unwrap(), "easily mistaken");
    let image = ours.kill_image();
    assert!(image.write_file(&path, theirs.read_file(&path).unwrap()));
    options.advanced.vfs = Arc::new(image.clone());
    let is_named = |error: Error| {
        let text = error.to_string();
        assert!(matches!(error, Error::Corruption(_)) && text.contains("another file"), "{text}");
    };
    let store = Store::open(options.clone()).unwrap();
    (0..40).for_each(|number| is_named(store.db.get(key(number)).unwrap_err()));
    is_named(store.contents().unwrap_err());
    assert!(store.db.verify().is_err());
    store.db.close().unwrap();
    drop(store);
    let report = terrace::repair(DIR, options.clone(), RepairOptions::default()).unwrap();
    assert!(report.lost.iter().any(|lost| lost.contains("another file")), "{report:?}");
    let store = Store::open(options).unwrap();
    assert_eq!(store.db.get(key(7)).unwrap(), None, "told as lost");
    assert!(store.contents().unwrap().iter().all(|family| family.is_empty()));
    let aside = image.files().into_iter().any(|(path, _)| path.starts_with("/db/lost"));
    assert!(aside, "nothing is deleted");
}
