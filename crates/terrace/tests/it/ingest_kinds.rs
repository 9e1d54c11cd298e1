//! Ingestion of entries of every kind: operands of merges, values with an expiry, and those below what is there; and
//! the order of what lies in L0.

use crate::camera::Camera;
use crate::harness::{DIR, Store, family_options, scan, small_options, stopped_clock};
use crate::ingesting::write_file;
use crate::left_over::left_over;
use crate::model::{FAMILIES, MERGING};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use terrace::vfs::{SimVfs, Vfs};
use terrace::{
    AppendOperator, CfOptions, ColumnFamily, CounterOperator, Error, IngestOptions, IngestPosition,
    Options, ReadOptions, SstFile, SstWriter, SyncMode,
};
use terrace_base::checksum::block_checksum;
use terrace_base::{FileNumber, ManualClock, RangeTombstone, RangeTombstones, SeqNo};

fn options(vfs: Arc<dyn Vfs>, clock: &ManualClock) -> Options {
    let mut options = small_options(vfs, clock);
    options.advanced.compact_when_idle = false;
    options
}

fn open(sim: &SimVfs) -> Store {
    Store::open(options(Arc::new(sim.clone()), &stopped_clock())).unwrap()
}

fn writer(sim: &SimVfs, path: &str, options: &CfOptions) -> SstWriter {
    SstWriter::create_on(Arc::new(sim.clone()), path, options).unwrap()
}

fn merging() -> CfOptions {
    family_options(FAMILIES[MERGING])
}

fn below() -> IngestOptions {
    IngestOptions { position: IngestPosition::Below, ..IngestOptions::default() }
}

fn contents(family: &ColumnFamily, options: &ReadOptions) -> Vec<(String, String)> {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let forward = scan(family, options, false).unwrap();
    assert_eq!(scan(family, options, true).unwrap(), forward);
    for (key, value) in &forward {
        let got = family.get_with(key, options).unwrap();
        assert_eq!(got.as_deref(), Some(value.as_slice()), "{}", key.escape_ascii());
    }
    forward.into_iter().map(|(key, value)| (text(key), text(value))).collect()
}

fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
}

fn invalid(result: terrace::Result<impl std::fmt::Debug>) -> String {
    match result {
        Err(Error::InvalidArgument(text)) => text,
        other => panic!("{other:?}"),
    }
}

#[test]
fn range_deletions_of_a_file_that_overlap_are_one() {
    let sim = SimVfs::new(1);
    let store = open(&sim);
    let family = &store.families[MERGING];
    for key in ["a", "b", "f", "h", "i", "k", "m"] {
        family.put(key, "1").unwrap();
    }
    let mut file = writer(&sim, "/ranges.sst", &merging());
    // The first three overlap, the fourth touches them, the fifth is inside of one, and the last is apart.
    let ranges = [("c", "g"), ("b", "d"), ("f", "h"), ("h", "i"), ("c", "d"), ("k", "l")];
    for (start, end) in ranges {
        file.delete_range(start, end).unwrap();
    }
    let file = file.finish().unwrap();
    assert_eq!((file.entry_count, file.range_deletion_count), (0, 2));
    assert_eq!((file.smallest.as_slice(), file.largest.as_slice()), (&b"b"[..], &b"l"[..]));
    family.ingest(&[&file.path], &IngestOptions::default()).unwrap();
    let left = pairs(&[("a", "1"), ("i", "1"), ("m", "1")]);
    assert_eq!(contents(family, &ReadOptions::default()), left);
    store.db.verify().unwrap();
}

#[test]
fn a_file_takes_no_longer_values_than_a_write_does() {
    let sim = SimVfs::new(1);
    let mut writer = writer(&sim, "/1.sst", &merging());
    // Nobody looks at these bytes, and the system gives memory only for what is looked at.
    let too_long = vec![0_u8; terrace::MAX_VALUE_BYTES + 1];
    assert!(invalid(writer.put("a", &too_long)).contains("1 GiB"));
    assert!(invalid(writer.merge("a", &too_long)).contains("1 GiB"));
    // It is as before.
    writer.put("a", "short").unwrap();
    assert_eq!(writer.finish().unwrap().entry_count, 1);
}

#[test]
fn operands_are_merged_into_what_was_there() {
    let sim = SimVfs::new(1);
    let store = open(&sim);
    let family = &store.families[MERGING];
    for key in ["a", "b", "c", "d", "q"] {
        family.put(key, "1").unwrap();
    }
    store.db.flush().unwrap();
    family.merge("a", "2").unwrap();
    let then = ReadOptions { snapshot: Some(store.db.snapshot()), ..ReadOptions::default() };
    let before = pairs(&[("a", "1|2"), ("b", "1"), ("c", "1"), ("d", "1"), ("q", "1")]);
    let mut file = writer(&sim, "/operands.sst", &merging());
    // What the range deletes is not what an operand of the same file is merged into.
    file.delete_range("c", "e").unwrap();
    file.merge("a", "3").unwrap();
    file.put("b", "new").unwrap();
    file.merge("c", "3").unwrap();
    file.merge("n", "3").unwrap();
    let refused = invalid(file.merge("n", "4"));
    assert!(refused.contains("each once"), "{refused}");
    let file = file.finish().unwrap();
    assert_eq!((file.entry_count, file.range_deletion_count), (4, 1));
    family.ingest(&[&file.path], &IngestOptions::default()).unwrap();
    let now = pairs(&[("a", "1|2|3"), ("b", "new"), ("c", "3"), ("n", "3"), ("q", "1")]);
    assert_eq!(contents(family, &ReadOptions::default()), now);
    assert_eq!(contents(family, &then), before);
    family.merge("a", "4").unwrap();
    family.merge("n", "4").unwrap();
    let later = pairs(&[("a", "1|2|3|4"), ("b", "new"), ("c", "3"), ("n", "3|4"), ("q", "1")]);
    assert_eq!(contents(family, &ReadOptions::default()), later);
    store.db.verify().unwrap();
    let killed = sim.kill_image();
    family.compact_range::<&[u8]>(..).unwrap();
    assert_eq!(contents(family, &ReadOptions::default()), later);
    assert_eq!(contents(family, &then), before);
    drop(then);
    family.compact_range::<&[u8]>(..).unwrap();
    assert_eq!(contents(family, &ReadOptions::default()), later);
    store.db.verify().unwrap();
    drop(store);
    let again = open(&killed);
    assert_eq!(contents(&again.families[MERGING], &ReadOptions::default()), later);
    again.db.close().unwrap();
    let vfs: Arc<dyn Vfs> = Arc::new(killed);
    let report = terrace_inspect::check_store(&vfs, Path::new(DIR)).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}

#[test]
fn operands_go_only_where_their_operator_is() {
    let sim = SimVfs::new(1);
    let store = open(&sim);
    let plus = AppendOperator::new("+");
    let other = CfOptions { merge_operator: Some(Arc::new(plus)), ..CfOptions::default() };
    let counter =
        CfOptions { merge_operator: Some(Arc::new(CounterOperator)), ..CfOptions::default() };
    store.db.create_column_family("counters", counter).unwrap();
    let counters = store.db.column_family("counters").unwrap();
    let refused = invalid(writer(&sim, "/none.sst", &CfOptions::default()).merge("a", "1"));
    assert!(refused.contains("merge operator"), "{refused}");
    let mut with_operand = writer(&sim, "/operand.sst", &merging());
    with_operand.merge("a", "1").unwrap();
    let with_operand = with_operand.finish().unwrap().path;
    let mut foreign = writer(&sim, "/foreign.sst", &other);
    foreign.merge("b", "1").unwrap();
    let foreign = foreign.finish().unwrap().path;
    for (family, file, names) in [
        (&store.families[0], &with_operand, ["`append:|`", "none"]),
        (&counters, &with_operand, ["`append:|`", "`counter`"]),
        (&store.families[MERGING], &foreign, ["`append:+`", "`append:|`"]),
    ] {
        let good = write_file(&store, "/good.sst", &[("c", Some("new"))]);
        let refused = invalid(family.ingest(&[&good, file], &IngestOptions::default()));
        assert!(names.iter().all(|name| refused.contains(name)), "{refused}");
        assert_eq!(contents(family, &ReadOptions::default()), []);
        sim.remove(&good).unwrap();
    }
    // Without operands it does not matter what the file was written for.
    let mut plain = writer(&sim, "/plain.sst", &merging());
    plain.put("p", "1").unwrap();
    let plain = plain.finish().unwrap().path;
    store.families[0].ingest(&[&plain], &IngestOptions::default()).unwrap();
    counters.ingest(&[&plain], &IngestOptions::default()).unwrap();
    let refused = invalid(store.families[MERGING].ingest(&[&plain], &below()));
    assert!(refused.contains("merge operator"), "{refused}");
    store.db.close().unwrap();
    assert_eq!(left_over(&sim, Path::new(DIR)).unwrap(), [""; 0]);
}

/// Compaction may take the sequence numbers of entries away, wherever they lie: what is ingested below them must
/// not be taken for the newer one, whatever the level and the kind.
#[test]
fn what_is_below_never_counts_wherever_the_rest_lies() {
    let mut taken = 0;
    for round in 0..8u64 {
        let sim = SimVfs::new(round);
        let store = open(&sim);
        let db = &store.db;
        // Something in the last level on both sides of a gap.
        let beside = ["a", "z"]
            .map(|key| write_file(&store, &format!("/{key}.sst"), &[(key, Some("beside"))]));
        db.ingest(&beside, &IngestOptions::default()).unwrap();
        for _ in 0..round / 2 {
            (0..40).for_each(|n| db.put(format!("m{n:05}"), "there").unwrap());
            db.flush().unwrap();
        }
        if round % 2 == 1 {
            db.wait_idle().unwrap();
        }
        db.put("m00007", "there").unwrap();
        let mut file = writer(&sim, "/old.sst", &CfOptions::default());
        for n in 0..60 {
            file.put_until(format!("m{n:05}"), "old", u64::MAX >> 8).unwrap();
        }
        let file = file.finish().unwrap();
        let before = contents(&store.families[0], &ReadOptions::default());
        let result = db.ingest(&[&file.path], &below());
        let mut want: BTreeMap<String, String> = BTreeMap::new();
        match result {
            Ok(_) => {
                taken += 1;
                want.extend((0..60).map(|n| (format!("m{n:05}"), "old".to_string())));
            }
            Err(Error::InvalidArgument(_)) => {}
            Err(error) => panic!("{error:?}"),
        }
        want.extend(before);
        let want: Vec<_> = want.into_iter().collect();
        for _ in 0..2 {
            assert_eq!(contents(&store.families[0], &ReadOptions::default()), want, "{round}");
            db.compact_range::<&[u8]>(..).unwrap();
        }
        db.verify().unwrap();
    }
    assert!(taken > 0, "nothing was ingested");
}

#[test]
fn files_that_cannot_be_read_are_refused() {
    let sim = SimVfs::new(1);
    let store = open(&sim);
    store.db.put("there", "1").unwrap();
    let good = write_file(&store, "/good.sst", &[("a", Some("new"))]);
    let mut bytes = sim.read_file(&good).unwrap();
    // The format version in the footer, with a checksum that fits.
    let footer = bytes.len() - terrace_sst::FOOTER_BYTES;
    bytes[footer + 44] = 99;
    let checksum =
        block_checksum(&bytes[footer..footer + 48], 0xff, FileNumber::ZERO, footer as u64);
    bytes[footer + 48..footer + 52].copy_from_slice(&checksum.to_le_bytes());
    sim.remove(&good).unwrap();
    assert!(sim.write_file(&good, &bytes));
    let error = store.db.ingest(&[&good], &IngestOptions::default()).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
    assert!(sim.write_file(Path::new("/short.sst"), b"short"));
    let error = store.db.ingest(&["/short.sst"], &IngestOptions::default()).unwrap_err();
    assert!(matches!(error, Error::Corruption(_)), "{error:?}");
    let found = contents(&store.families[0], &ReadOptions::default());
    assert_eq!(found, pairs(&[("there", "1")]));
    store.db.close().unwrap();
    assert_eq!(left_over(&sim, Path::new(DIR)).unwrap(), [""; 0]);
    // A directory, on the machine's own file system.
    let dir = tempfile::tempdir().unwrap();
    let db = terrace::Db::open(dir.path().join("store"), Options::default()).unwrap();
    let error = db.ingest(&[dir.path()], &IngestOptions::default()).unwrap_err();
    assert!(matches!(error, Error::Io(_) | Error::Corruption(_)), "{error:?}");
    db.put("a", "1").unwrap();
    db.close().unwrap();
}

/// Neither the log nor the manifest is read again with such a bound: the store did not open any more.
#[test]
fn a_file_with_a_bound_that_is_longer_than_any_key_is_refused() {
    let sim = SimVfs::new(1);
    let store = open(&sim);
    store.db.put("there", "1").unwrap();
    let path = Path::new("/long.sst");
    let (number, options) = (terrace_sst::EXTERNAL_FILE_NUMBER, terrace_sst::SstOptions::default());
    let mut writer = terrace_sst::SstWriter::create(&sim, path, number, options).unwrap();
    let end = vec![b'z'; terrace::MAX_KEY_BYTES + 1];
    let range = RangeTombstone { start: b"y".to_vec(), end, seqno: SeqNo::ZERO };
    writer.set_range_tombstones(RangeTombstones::new([range]));
    writer.finish().unwrap();
    let error = store.db.ingest(&[path], &IngestOptions::default()).unwrap_err();
    assert!(matches!(error, Error::Corruption(_)), "{error:?}");
    store.db.close().unwrap();
    drop(store);
    let store = open(&sim);
    let found = contents(&store.families[0], &ReadOptions::default());
    assert_eq!(found, pairs(&[("there", "1")]));
}

fn numbered(n: u64) -> String {
    format!("k{n:03}")
}

/// Two files for one family, and what the store has then.
fn two_files(sim: &SimVfs) -> [SstFile; 2] {
    let mut first = writer(sim, "/1.sst", &merging());
    first.delete_range(numbered(0), numbered(5)).unwrap();
    first.merge(numbered(1), "ingested").unwrap();
    let mut second = writer(sim, "/2.sst", &merging());
    for n in 20..60 {
        second.put(numbered(n), "ingested").unwrap();
    }
    [first.finish().unwrap(), second.finish().unwrap()]
}

/// The power is cut, or the process killed, before and after every operation of an ingestion.
#[test]
fn a_crash_at_any_operation_leaves_all_files_or_none() {
    let sim = SimVfs::new(5);
    let clock = stopped_clock();
    let store = open(&sim);
    for n in 0..30u64 {
        store.families[MERGING].put(numbered(n), "old").unwrap();
        store.families[0].put(numbered(n), "old").unwrap();
    }
    store.db.sync().unwrap();
    store.db.close().unwrap();
    drop(store);
    let files = two_files(&sim);
    let camera = Camera::new(sim, 7, 1, u64::MAX);
    let mut filmed = options(Arc::new(camera.clone()), &clock);
    filmed.sync = SyncMode::None;
    let store = Store::open(filmed).unwrap();
    store.families[0].put(numbered(900), "not synced").unwrap();
    store.families[MERGING].put(numbered(901), "not synced").unwrap();
    let all = |store: &Store| {
        let of = |family: usize| contents(&store.families[family], &ReadOptions::default());
        [of(0), of(MERGING)]
    };
    let before = all(&store);
    camera.take_film();
    let paths: Vec<_> = files.iter().map(|file| &file.path).collect();
    store.families[MERGING].ingest(&paths, &IngestOptions::default()).unwrap();
    let shots = camera.take_film();
    let after = all(&store);
    store.db.close().unwrap();
    assert!(shots.len() > 50, "only {} moments", shots.len());
    assert_ne!(before, after);
    let synced = |contents: &[Vec<(String, String)>; 2]| {
        let unsynced: [String; 2] = [900, 901].map(numbered);
        contents.clone().map(|mut family| {
            family.retain(|(key, _)| !unsynced.contains(key));
            family
        })
    };
    let (mut with, mut without) = (0, 0);
    for shot in shots {
        let image = &shot.image;
        let store = open(image);
        let found = all(&store);
        let what = format!("operation {}, seed {}, killed: {}", shot.op, shot.seed, shot.killed);
        if found == after {
            with += 1;
        } else {
            // The files are there only with all that was written before them.
            assert_eq!(synced(&found), synced(&before), "{what}");
            assert!(!shot.killed || found == before, "{what}: a kill loses nothing");
            without += 1;
        }
        store.db.verify().unwrap();
        store.db.close().unwrap();
        drop(store);
        assert_eq!(left_over(image, Path::new(DIR)).unwrap(), [""; 0], "{what}");
    }
    assert!(with > 0 && without > 0, "{with} images with the files, {without} without");
    println!("{with} images with the files, {without} without");
}

/// Files of L0 lie in the order of their sequence numbers, also when some of them are merged with older ones.
#[test]
fn every_file_of_an_ingestion_has_a_sequence_number_of_its_own() {
    let sim = SimVfs::new(2);
    let store = open(&sim);
    let db = &store.db;
    let ingest = |names: &[&str]| {
        for path in names {
            let mut writer = writer(&sim, path, &CfOptions::default());
            writer.put(path, b"value").unwrap();
            if *path == "/4.sst" {
                writer.delete_range("m", "n").unwrap();
            }
            writer.finish().unwrap();
        }
        db.ingest(names, &IngestOptions::default()).unwrap().seqno
    };
    db.put("m", "old").unwrap();
    let before = ingest(&["/1.sst"]);
    assert_eq!(ingest(&["/2.sst", "/3.sst", "/4.sst"]), before + 3);
    assert_eq!(ingest(&["/5.sst"]), before + 4);
    db.wait_idle().unwrap();
    assert_eq!(db.get("m").unwrap().as_deref(), None);
    assert_eq!(db.multi_get(&["m", "/1.sst"]).unwrap().iter().flatten().count(), 1);
}
