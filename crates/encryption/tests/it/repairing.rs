//! `terrace repair` of encrypted stores with blocks that are damaged, or that the device does not give: what stands in other
//! blocks is saved, and what comes out is sound for those who read whole files.

use super::{DIR, contents, encrypted, open, options, raw_files, ring};
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace::vfs::{SimVfs, Vfs};
use terrace::{Compression, Db, Error, Options, RepairOptions, RepairReport, SyncMode, repair};
use terrace_backup::Backups;
use terrace_encryption::{Target, rewrite};
use terrace_manifest::names;

const BLOCK_BYTES: u64 = super::BLOCK as u64;

/// What a page of 4 KiB takes in an encrypted file.
const PAGE_BYTES: u64 = BLOCK_BYTES + super::TAG as u64;

/// Every third value is separated.
const LARGE_BYTES: usize = 700;

/// A store as a killed process leaves it, with every write synced.
struct Specimen {
    sim: SimVfs,
    options: Options,
    want: BTreeMap<Vec<u8>, Vec<u8>>,
    /// What was ever written.
    written: HashSet<(Vec<u8>, Vec<u8>)>,
}

impl Specimen {
    /// SSTs, value segments of garbage collection and of the log, and a log in force. Older segments are kept for
    /// change feeds, or not.
    fn new(keeps_log: bool) -> Self {
        let sim = SimVfs::new(1);
        let mut options = options(encrypted(&sim, &[1]));
        options.sync = SyncMode::Batch;
        options.advanced.compact_when_idle = false;
        options.advanced.log_retention_bytes = if keeps_log { 1 << 30 } else { 0 };
        let db = Db::open(DIR, options.clone()).unwrap();
        let (mut want, mut written) = (BTreeMap::new(), HashSet::new());
        for round in 0..3_u32 {
            for n in (0..60).step_by(1 + round as usize) {
                let len = if n % 3 == 0 { LARGE_BYTES } else { 40 };
                let text = format!("value {n} of round {round}, ");
                let value: Vec<u8> = text.into_bytes().into_iter().cycle().take(len).collect();
                let key = format!("key-{n:04}").into_bytes();
                db.put(&key, &value).unwrap();
                want.insert(key.clone(), value.clone());
                written.insert((key, value));
            }
            if round < 2 {
                db.flush().unwrap();
            }
            if round == 0 {
                db.collect_garbage(0.0).unwrap();
            }
        }
        let sim = sim.kill_image();
        drop(db);
        Self { sim, options, want, written }
    }

    /// The files with content, and what they have on the disk.
    fn files(&self) -> Vec<(PathBuf, u64)> {
        let has_content = |(path, bytes): &(PathBuf, u64)| {
            *bytes > 0 && !["LOCK", "RESERVE"].iter().any(|name| path.ends_with(name))
        };
        self.sim.files().into_iter().filter(has_content).collect()
    }

    fn options(&self, image: &SimVfs) -> Options {
        let mut options = self.options.clone();
        options.advanced.vfs = encrypted(image, &[1]);
        options
    }

    fn repair(&self, image: &SimVfs, what: &str) -> RepairReport {
        let repaired = repair(DIR, self.options(image), RepairOptions::default());
        repaired.unwrap_or_else(|error| panic!("{what}: {error}"))
    }

    /// Repairs `image`. What shows was written, what does not is named in the report, and whatever reads whole files succeeds. Gives how many
    /// keys do not show what they should.
    fn check(&self, image: &SimVfs, what: &str) -> usize {
        let report = self.repair(image, what);
        let db = Db::open(DIR, self.options(image)).unwrap();
        let found: BTreeMap<_, _> = contents(&db).into_iter().collect();
        for (key, value) in &found {
            assert!(self.written.contains(&(key.clone(), value.clone())), "{what}: invented");
        }
        let is_wrong = |(key, value): &(&Vec<u8>, &Vec<u8>)| found.get(*key) != Some(*value);
        let wrong = self.want.iter().filter(is_wrong).count();
        assert!(wrong == 0 || !report.lost.is_empty(), "{what}: {wrong} untold: {report:?}");
        db.verify().unwrap();
        db.checkpoint("/checkpoint").unwrap();
        let backups = Backups::open_with(encrypted(image, &[1]), "/backups").unwrap();
        backups.create(&db, &mut |_| {}).unwrap_or_else(|error| panic!("{what}: {error}"));
        db.close().unwrap();
        let again = self.repair(image, what);
        assert!(again.was_sound && again.lost.is_empty(), "{what}: {report:?}, {again:?}");
        let below: Arc<dyn Vfs> = Arc::new(image.clone());
        for target in [Target::Encrypted(ring(&[1, 2])), Target::Plain(ring(&[1, 2]))] {
            let done = rewrite(&below, Path::new(DIR), &target, &mut |_| {});
            done.unwrap_or_else(|error| panic!("{what}: {report:?}: {error}"));
        }
        let db = Db::open(DIR, options(below)).unwrap();
        assert!(contents(&db).into_iter().eq(found), "{what}");
        db.close().unwrap();
        wrong
    }
}

fn kind_of(path: &Path) -> &'static str {
    let name = path.file_name().unwrap().to_str().unwrap();
    let kinds = [("log", ".log"), ("values", ".vlog"), ("sst", ".sst"), ("manifest", "MANIFEST")];
    let kind = kinds.into_iter().find(|(_, part)| name.contains(part));
    kind.map_or("other", |(kind, _)| kind)
}

/// How many keys a block can cost: those in it, or, if it has the keys of the file or the end of an SST, those of the file.
fn most_wrong(path: &Path, at: u64) -> usize {
    match kind_of(path) {
        "values" | "log" if at < 128 => 60,
        "values" => BLOCK_BYTES as usize / LARGE_BYTES + 2,
        // Records of some 100 bytes, with the frame around them, and every third one has a large value.
        "log" => 20,
        "sst" => 60,
        _ => 0,
    }
}

/// Where a block of a file is damaged: in the header of the encryption, too.
fn places(bytes: u64) -> impl Iterator<Item = u64> {
    let of_blocks = (0..bytes.div_ceil(BLOCK_BYTES)).map(|block| block * BLOCK_BYTES + 700);
    [30].into_iter().chain(of_blocks).map(move |at| at.min(bytes - 1))
}

#[test]
fn a_lost_or_changed_block_costs_what_it_has_and_leaves_a_sound_store() {
    for keeps_log in [false, true] {
        let specimen = Specimen::new(keeps_log);
        let mut cases = BTreeMap::new();
        for (path, bytes) in specimen.files() {
            let kind = kind_of(&path);
            if keeps_log && kind != "log" {
                continue;
            }
            for at in places(bytes) {
                for is_lost in [true, false] {
                    let image = specimen.sim.kill_image();
                    assert!(match is_lost {
                        true => image.lose_sector(&path, at..at + 1),
                        false => image.corrupt(&path, at, 0x41),
                    });
                    let what = format!("{} at {at}, lost: {is_lost}", path.display());
                    let wrong = specimen.check(&image, &what);
                    assert!(wrong <= most_wrong(&path, at), "{what}: {wrong}");
                    *cases.entry(kind).or_insert(0) += 1;
                }
            }
        }
        println!("kept log: {keeps_log}: {cases:?}");
        assert_eq!(cases.len(), if keeps_log { 1 } else { 5 }, "{cases:?}");
        assert!(cases["log"] >= 12, "{cases:?}");
    }
}

/// It may have been synced, and who opens the store does not know that it is gone.
#[test]
fn a_log_of_which_a_block_is_lost_does_not_open() {
    let specimen = Specimen::new(false);
    let logs = specimen.files().into_iter().filter(|(path, _)| kind_of(path) == "log");
    let (log, bytes) = logs.max().unwrap();
    assert!(bytes > 3 * BLOCK_BYTES, "{bytes}");
    for at in places(bytes) {
        // Nothing but the log says where it ends.
        let image = specimen.sim.kill_image();
        assert!(image.lose_sector(&log, at..at + 1));
        for name in ["SYNCED-1", "SYNCED-2"] {
            image.remove(&super::path(name)).unwrap();
        }
        for opened in [
            Db::open(DIR, specimen.options(&image)),
            Db::open_read_only(DIR, specimen.options(&image)),
        ] {
            let Err(error) = opened else { panic!("it opens without the block at {at}") };
            assert!(matches!(error, Error::Io(_)), "{at}: {error}");
        }
    }
    assert_eq!(contents(&open(&specimen.sim, &[1])).len(), specimen.want.len());
}

/// What is left of it stays where it stands, with a hole, until it is repaired.
#[test]
fn several_damaged_blocks_of_every_file_are_repaired_at_once() {
    let specimen = Specimen::new(false);
    for (first, step) in [(0, 2), (1, 2), (1, 3)] {
        let image = specimen.sim.kill_image();
        for (path, bytes) in specimen.files() {
            if !["log", "values"].contains(&kind_of(&path)) {
                continue;
            }
            for block in (first..bytes.div_ceil(BLOCK_BYTES)).step_by(step) {
                let at = (block * BLOCK_BYTES + 700).min(bytes - 1);
                assert!(match block % 4 < 2 {
                    true => image.lose_sector(&path, at..at + 1),
                    false => image.corrupt(&path, at, 0x41),
                });
            }
        }
        let wrong = specimen.check(&image, &format!("blocks from {first} on, by {step}"));
        assert!(wrong > 0 && wrong < specimen.want.len(), "{wrong}");
    }
}

#[test]
fn a_value_segment_that_was_cut_keeps_the_values_before_the_cut() {
    const VALUES: usize = 60;
    let sim = SimVfs::new(1);
    let mut options = options(encrypted(&sim, &[1]));
    options.default_family.value_compression = Compression::None;
    options.advanced.compact_when_idle = false;
    options.advanced.log_retention_bytes = 0;
    let over = |image: &SimVfs| {
        let mut options = options.clone();
        options.advanced.vfs = encrypted(image, &[1]);
        options
    };
    let db = Db::open(DIR, options.clone()).unwrap();
    (0..VALUES).for_each(|n| db.put(format!("{n:04}"), vec![n as u8; LARGE_BYTES]).unwrap());
    db.flush().unwrap();
    db.collect_garbage(0.0).unwrap();
    let want = contents(&db);
    db.close().unwrap();
    let is_values = |path: &Path| path.extension().is_some_and(|ending| ending == "vlog");
    let segments: Vec<_> = sim.files().into_iter().filter(|(path, _)| is_values(path)).collect();
    let [(segment, bytes)] = &segments[..] else { panic!("{segments:?}") };
    let pages = (bytes - 128) / PAGE_BYTES;
    assert!(pages > 8, "{bytes}");
    let cuts = (1..pages).flat_map(|page| [0, 7, 2000].map(|more| 128 + page * PAGE_BYTES + more));
    for cut in cuts.chain([bytes - 1]) {
        let image = sim.kill_image();
        assert!(image.truncate(segment, cut));
        let report = repair(DIR, over(&image), RepairOptions::default()).unwrap();
        assert!(!report.lost.is_empty(), "cut at {cut}: {report:?}");
        let db = Db::open(DIR, over(&image)).unwrap();
        let left = contents(&db);
        // What is around a value takes less than 40 bytes.
        let content_bytes = (cut - 128) / PAGE_BYTES * BLOCK_BYTES;
        let whole = content_bytes as usize / (LARGE_BYTES + 40);
        assert!((whole..VALUES).contains(&left.len()), "cut at {cut}: {}, {report:?}", left.len());
        assert!(left.iter().all(|entry| want.contains(entry)), "cut at {cut}");
        db.verify().unwrap();
        db.close().unwrap();
        let again = repair(DIR, over(&image), RepairOptions::default()).unwrap();
        assert!(again.was_sound, "cut at {cut}: {again:?}");
    }
}

#[test]
fn a_file_in_lost_whose_key_is_missing_stays_there_and_keeps_no_later_repair_from_beginning() {
    let sim = SimVfs::new(1);
    let db = open(&sim, &[1]);
    db.put("a", "1").unwrap();
    db.close().unwrap();
    let other = SimVfs::new(2);
    let db = open(&other, &[2]);
    db.put("b", "2").unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    let is_sst = |(name, _): &(String, Vec<u8>)| name.ends_with(".sst");
    let (_, sst) = raw_files(&other).into_iter().find(is_sst).unwrap();
    let kept = names::lost_dir(Path::new(DIR)).join("000050.sst");
    assert!(sim.write_file(&kept, &sst));
    let how = RepairOptions { from_lost: true, ..RepairOptions::default() };
    let error = repair(DIR, options(encrypted(&sim, &[1])), how).unwrap_err();
    assert!(error.to_string().contains("000050.sst"), "{error}");
    assert_eq!(sim.read_file(&kept).as_ref(), Some(&sst));
    let report = repair(DIR, options(encrypted(&sim, &[1])), RepairOptions::default()).unwrap();
    assert!(report.was_sound, "{report:?}");
}
