//! Stores that are encrypted, get another key, and are decrypted again, file by file.

use super::{DIR, contents, encrypted, holds, key, open, options, path, raw_files, ring};
use std::path::Path;
use std::sync::Arc;
use terrace::vfs::{SimVfs, Vfs};
use terrace::{Db, Error, RepairOptions};
use terrace_base::FileNumber;
use terrace_encryption::{KeyRing, Target, rewrite, used_keys};
use terrace_manifest::{Manifest, VersionEdit, names};

fn plain(sim: &SimVfs) -> Db {
    Db::open(DIR, options(Arc::new(sim.clone()))).unwrap()
}

fn fill(db: &Db) {
    for n in 0..900_u32 {
        let value = format!("secret {n} ").repeat(if n % 3 == 0 { 90 } else { 5 });
        db.put(format!("secret-{n:05}"), value).unwrap();
    }
    db.flush().unwrap();
    db.put("in-the-log", "secret").unwrap();
}

fn convert(sim: &SimVfs, target: &Target) -> terrace_vfs::Result<terrace_encryption::Rewritten> {
    let below: Arc<dyn Vfs> = Arc::new(sim.clone());
    rewrite(&below, Path::new(DIR), target, &mut |_| {})
}

fn key_ids(sim: &SimVfs) -> Vec<Option<u32>> {
    used_keys(sim, Path::new(DIR)).unwrap().keys.into_keys().collect()
}

fn is_hidden(sim: &SimVfs) -> bool {
    raw_files(sim).iter().all(|(_, bytes)| !holds(bytes, b"secret"))
}

#[test]
fn a_store_is_encrypted_gets_a_new_key_and_is_decrypted() {
    let sim = SimVfs::new(1);
    let db = plain(&sim);
    fill(&db);
    let want = contents(&db);
    db.close().unwrap();
    assert!(!is_hidden(&sim));
    for (name, content) in [
        ("lost/000099.log", &b"TERRALOG secret, but lost"[..]),
        ("lost/000005.sst.damaged", b"secret, and damaged"),
        ("lost/CURRENT.1", b"secret"),
        ("lost/REPORT", b"LOST: secret"),
        ("lost/REPORT.1", b"LOST: secret"),
        ("backup-work/000001.sst", b"secret link"),
        ("backup-work.partial/000001.sst", b"secret link"),
        ("000077.tmp", b"secret, for a while"),
    ] {
        sim.create_dir_all(path(name).parent().unwrap()).unwrap();
        sim.write_file(path(name), content);
    }

    let done = convert(&sim, &Target::Encrypted(ring(&[1]))).unwrap();
    assert!(done.files > 3 && done.bytes > 50_000 && done.kept == 0, "{done:?}");
    assert!(is_hidden(&sim));
    assert_eq!(key_ids(&sim), [Some(1)]);
    let db = open(&sim, &[1]);
    assert_eq!(contents(&db), want);
    db.verify().unwrap();
    db.close().unwrap();

    let done = convert(&sim, &Target::Encrypted(ring(&[1, 2]))).unwrap();
    assert!(done.files > 3);
    assert_eq!(key_ids(&sim), [Some(2)]);
    let again = convert(&sim, &Target::Encrypted(ring(&[1, 2]))).unwrap();
    assert_eq!((again.files, again.bytes), (0, 0));
    assert_eq!(again.kept, done.files);
    let db = open(&sim, &[2]);
    assert_eq!(contents(&db), want);
    db.close().unwrap();

    convert(&sim, &Target::Plain(ring(&[2]))).unwrap();
    assert_eq!(key_ids(&sim), [None]);
    let db = plain(&sim);
    assert_eq!(contents(&db), want);
    db.verify().unwrap();
    db.close().unwrap();
    assert_eq!(sim.read_file(path("lost/000099.log")).unwrap(), b"TERRALOG secret, but lost");
    assert_eq!(sim.read_file(path("lost/000005.sst.damaged")).unwrap(), b"secret, and damaged");
    for report in ["lost/REPORT", "lost/REPORT.1"] {
        assert_eq!(sim.read_file(path(report)).unwrap(), b"LOST: secret");
    }
}

/// A reader opens files later on: they must be what it took them for.
#[test]
fn a_store_that_somebody_reads_is_not_converted() {
    let sim = SimVfs::new(1);
    let db = plain(&sim);
    fill(&db);
    let want = contents(&db);
    let refused = convert(&sim, &Target::Encrypted(ring(&[1]))).unwrap_err().to_string();
    assert!(refused.contains("has the store open for writing: nothing is changed"), "{refused}");
    db.close().unwrap();
    let before = raw_files(&sim);
    let reader = Db::open_read_only(DIR, options(Arc::new(sim.clone()))).unwrap();
    let refused = convert(&sim, &Target::Encrypted(ring(&[1]))).unwrap_err().to_string();
    assert!(refused.contains("has the store open read-only: nothing is changed"), "{refused}");
    assert!(raw_files(&sim) == before);
    assert!(contents(&reader) == want);
    drop(reader);
    convert(&sim, &Target::Encrypted(ring(&[1]))).unwrap();
    let reader = Db::open_read_only(DIR, options(encrypted(&sim, &[1]))).unwrap();
    let refused = convert(&sim, &Target::Plain(ring(&[1]))).unwrap_err().to_string();
    assert!(refused.contains("has the store open read-only"), "{refused}");
    drop(reader);
    convert(&sim, &Target::Plain(ring(&[1]))).unwrap();
    assert_eq!(contents(&plain(&sim)), want);
}

#[test]
fn an_interrupted_conversion_is_finished_by_the_next() {
    let unsynced = SimVfs::new(1);
    let db = plain(&unsynced);
    fill(&db);
    let want = contents(&db);
    let mut crashes = 0;
    // A killed process leaves what was not synced, too.
    let killed = unsynced.kill_image();
    db.sync().unwrap();
    let synced = unsynced.kill_image();
    for step in 0.. {
        let image = if step % 2 == 0 { killed.kill_image() } else { synced.kill_image() };
        image.crash_after(image.op_count() + step * 2);
        let ended = convert(&image, &Target::Encrypted(ring(&[1]))).is_ok();
        let image = if step % 2 == 0 { image.kill_image() } else { image.crash_image(step) };
        // By a program that knows nothing of the keys.
        match Db::open(DIR, options(Arc::new(image.kill_image()))) {
            Ok(db) => assert!(contents(&db) == want, "step {step}"),
            Err(error) => assert!(matches!(error, Error::Unsupported(_)), "step {step}: {error}"),
        }
        convert(&image, &Target::Encrypted(ring(&[1]))).unwrap();
        assert!(is_hidden(&image), "step {step}");
        let db = open(&image, &[1]);
        assert!(contents(&db) == want, "step {step}");
        db.close().unwrap();
        crashes += 1;
        if ended {
            break;
        }
    }
    assert!(crashes > 10, "{crashes}");
}

#[test]
fn what_cannot_be_converted_is_refused_and_stays() {
    let sim = SimVfs::new(1);
    let refused = convert(&sim, &Target::Encrypted(ring(&[1]))).unwrap_err();
    assert!(refused.is_not_found(), "{refused}");
    let db = open(&sim, &[1]);
    fill(&db);
    let want = contents(&db);
    let open_store = convert(&sim, &Target::Plain(ring(&[1]))).unwrap_err();
    assert!(open_store.to_string().contains("lock"), "{open_store}");
    db.close().unwrap();
    let missing = convert(&sim, &Target::Encrypted(ring(&[2]))).unwrap_err().to_string();
    assert!(missing.contains("key 1, which is not among the keys given"), "{missing}");
    // The number is right, the key is not: also for files that seem to be done.
    let another = KeyRing::new([(1, key(77))]).unwrap();
    let another = convert(&sim, &Target::Encrypted(another)).unwrap_err().to_string();
    assert!(another.contains("another key 1 than the one given"), "{another}");
    let db = Db::open(DIR, options(encrypted(&sim, &[1]))).unwrap();
    assert_eq!(contents(&db), want);
    db.close().unwrap();
}

#[test]
fn what_is_damaged_in_lost_does_not_stop_a_new_key() {
    let sim = SimVfs::new(1);
    let db = open(&sim, &[1]);
    fill(&db);
    db.close().unwrap();
    let sst =
        sim.files().into_iter().find(|(path, _)| path.extension().is_some_and(|e| e == "sst"));
    let mut damaged = sim.read_file(sst.unwrap().0).unwrap();
    damaged[600] ^= 1;
    sim.create_dir_all(&path("lost")).unwrap();
    sim.write_file(path("lost/000099.sst"), &damaged);
    damaged[50] ^= 1;
    sim.write_file(path("lost/000098.sst"), &damaged);
    let done = convert(&sim, &Target::Encrypted(ring(&[1, 2]))).unwrap();
    assert_eq!(done.unreadable.len(), 2, "{:?}", done.unreadable);
    assert_eq!(sim.read_file(path("lost/000098.sst")).unwrap(), damaged);
    assert_eq!(key_ids(&sim), [Some(1), Some(2)]);
    open(&sim, &[2]).close().unwrap();
}

#[test]
fn a_file_that_only_seems_to_be_empty_is_not_replaced_by_nothing() {
    let sim = SimVfs::new(1);
    let db = plain(&sim);
    fill(&db);
    db.close().unwrap();
    let log =
        sim.files().into_iter().find(|(path, _)| path.extension().is_some_and(|e| e == "log"));
    let log = log.unwrap().0;
    let whole = sim.read_file(&log).unwrap();
    let zeroed = [&[0; 200][..], &whole[200..]].concat();
    sim.write_file(&log, &zeroed);
    let refused = convert(&sim, &Target::Encrypted(ring(&[1]))).unwrap_err();
    assert!(refused.is_corruption(), "{refused}");
    assert_eq!(sim.read_file(&log).unwrap(), zeroed);
    // What a crash leaves of a segment with room reserved has nothing.
    sim.write_file(&log, vec![0; whole.len()]);
    convert(&sim, &Target::Encrypted(ring(&[1]))).unwrap();
    assert_eq!(key_ids(&sim), [Some(1)]);
}

#[test]
fn files_with_numbers_far_away_are_not_the_stores() {
    let sim = SimVfs::new(1);
    let db = plain(&sim);
    fill(&db);
    db.close().unwrap();
    for name in ["20241231.log", "20241231.tmp", "notes.txt"] {
        sim.write_file(path(name), b"another program's");
    }
    convert(&sim, &Target::Encrypted(ring(&[1]))).unwrap();
    for name in ["20241231.log", "20241231.tmp", "notes.txt"] {
        assert_eq!(sim.read_file(path(name)).unwrap(), b"another program's", "{name}");
    }
    // Without a key nothing says what is whose.
    assert_eq!(key_ids(&sim), [None, Some(1)]);
    // With a wrong key nothing is removed, either.
    sim.write_file(path("000077.tmp"), b"temporary");
    assert!(convert(&sim, &Target::Encrypted(ring(&[2]))).is_err());
    assert!(sim.read_file(path("000077.tmp")).is_some());
}

/// A file of long ago keeps its number, while others count on.
#[test]
fn all_files_of_the_store_are_converted_whatever_their_numbers() {
    let sim = SimVfs::new(1);
    let db = plain(&sim);
    fill(&db);
    db.flush().unwrap();
    db.close().unwrap();
    // As if two million files had come and gone.
    let (mut manifest, mut state) =
        Manifest::recover(Arc::new(sim.clone()), Path::new(DIR)).unwrap();
    let next = 2 << 20;
    let next_file_number = Some(FileNumber::new(next));
    let edit = VersionEdit { next_file_number, ..VersionEdit::default() };
    manifest.append(&mut state, &edit).unwrap();
    drop(manifest);
    let db = plain(&sim);
    db.put("zebra", "secret").unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    let numbers = || {
        sim.files()
            .into_iter()
            .filter_map(|(path, _)| names::number_of(path.file_name().unwrap().to_str().unwrap()))
    };
    assert!(numbers().any(|number| number.get() > next) && numbers().any(|n| n.get() < 1000));
    convert(&sim, &Target::Encrypted(ring(&[1]))).unwrap();
    assert_eq!(key_ids(&sim), [Some(1)]);
    convert(&sim, &Target::Encrypted(ring(&[1, 2]))).unwrap();
    assert_eq!(key_ids(&sim), [Some(2)]);
    convert(&sim, &Target::Plain(ring(&[2]))).unwrap();
    assert_eq!(key_ids(&sim), [None]);
    plain(&sim).close().unwrap();
}

#[test]
fn a_header_that_was_cut_is_gone_after_a_conversion() {
    let sim = SimVfs::new(1);
    let db = open(&sim, &[1]);
    fill(&db);
    db.close().unwrap();
    let current = sim.read_file(path("CURRENT")).unwrap();
    sim.create_dir_all(&path("lost")).unwrap();
    sim.write_file(path("lost/000099.log"), &current[..50]);
    convert(&sim, &Target::Plain(ring(&[1]))).unwrap();
    assert_eq!(sim.read_file(path("lost/000099.log")).unwrap(), b"");
    plain(&sim).close().unwrap();
}

/// A store half of which is converted opens in no way, and cannot be repaired.
#[test]
fn nothing_is_changed_if_a_file_is_damaged() {
    let sim = SimVfs::new(1);
    let db = plain(&sim);
    fill(&db);
    db.close().unwrap();
    let encrypted = sim.kill_image();
    convert(&encrypted, &Target::Encrypted(ring(&[1]))).unwrap();
    let sizes = |sim: &SimVfs| {
        let has_content = |path: &Path| !path.ends_with("RESERVE");
        sim.files().into_iter().filter(move |(path, len)| *len > 4300 && has_content(path))
    };
    // What a power cut may leave of a log, and what is damaged in the middle.
    for (name, len) in sizes(&sim) {
        let image = sim.kill_image();
        let bytes = image.read_file(&name).unwrap();
        image.write_file(&name, [vec![0; 128], bytes[128..].to_vec()].concat());
        let before = raw_files(&image);
        let converted = convert(&image, &Target::Encrypted(ring(&[1])));
        let Err(error) = converted else { panic!("{} of {len} bytes", name.display()) };
        assert!(error.to_string().contains("repair the store first"), "{error}");
        assert!(raw_files(&image) == before, "{}", name.display());
    }
    let mut tried = 0;
    for (name, len) in sizes(&encrypted) {
        let image = encrypted.kill_image();
        assert!(image.corrupt(&name, len.min(9000) - 2000, 1));
        let before = raw_files(&image);
        for target in [Target::Plain(ring(&[1])), Target::Encrypted(ring(&[1, 2]))] {
            // The end of a log may be torn: nothing says that it was longer.
            if convert(&image, &target).is_err() {
                assert!(raw_files(&image) == before, "{}", name.display());
                tried += 1;
            }
        }
    }
    assert!(tried > 1);
}

/// It would be converted up to there, and then open in no way.
#[test]
fn a_store_of_which_the_device_does_not_give_all_stays_in_the_clear() {
    let sim = SimVfs::new(1);
    let db = plain(&sim);
    fill(&db);
    db.close().unwrap();
    let has_content = |path: &Path| !["LOCK", "RESERVE"].iter().any(|name| path.ends_with(name));
    let mut tried = 0;
    for (name, len) in sim.files() {
        for at in [0, len / 2, len.saturating_sub(1)] {
            if len == 0 || !has_content(&name) {
                continue;
            }
            let image = sim.kill_image();
            assert!(image.lose_sector(&name, at..at + 1));
            let before = raw_files(&image);
            let refused = convert(&image, &Target::Encrypted(ring(&[1]))).unwrap_err();
            let text = refused.to_string();
            assert!(text.contains("terrace repair"), "{} at {at}: {text}", name.display());
            assert!(raw_files(&image) == before, "{} at {at}", name.display());
            tried += 1;
        }
    }
    assert!(tried > 12, "{tried}");
}

#[test]
fn a_half_converted_store_that_loses_a_sector_goes_back_and_is_repaired() {
    let sim = SimVfs::new(1);
    let db = plain(&sim);
    fill(&db);
    let want = contents(&db);
    db.close().unwrap();
    let encrypt = Target::Encrypted(ring(&[1]));
    let image = (0..)
        .map(|step| {
            let image = sim.kill_image();
            image.crash_after(step);
            assert!(convert(&image, &encrypt).is_err(), "step {step}");
            image.kill_image()
        })
        .find(|image| key_ids(image) == [None, Some(1)])
        .unwrap();
    let is_sst = |path: &Path| path.extension().is_some_and(|e| e == "sst");
    let (sst, len) = image.files().into_iter().find(|(path, _)| is_sst(path)).unwrap();
    assert!(image.lose_sector(&sst, len / 2..len / 2 + 1));
    let before = raw_files(&image);
    let refused = convert(&image, &encrypt).unwrap_err().to_string();
    assert!(refused.contains("go back with `terrace decrypt`"), "{refused}");
    assert!(refused.contains("if that is refused as well, restore a backup"), "{refused}");
    assert!(raw_files(&image) == before);
    convert(&image, &Target::Plain(ring(&[1]))).unwrap();
    let in_the_clear = options(Arc::new(image.clone()));
    let report = terrace::repair(DIR, in_the_clear, RepairOptions::default()).unwrap();
    assert!(!report.lost.is_empty(), "{report:?}");
    convert(&image, &encrypt).unwrap();
    assert_eq!(key_ids(&image), [None, Some(1)], "the damaged file in lost/ stays as it was");
    let db = open(&image, &[1]);
    let left = contents(&db);
    assert!(!left.is_empty() && left.len() < want.len());
    assert!(left.iter().all(|entry| want.contains(entry)));
    db.close().unwrap();
}

/// A key is changed after a crash that tore the end of the log: what was written whole is under the new key.
#[test]
fn the_torn_end_of_a_log_is_not_converted_and_damage_before_it_is_refused() {
    let sim = SimVfs::new(1);
    let db = open(&sim, &[1]);
    fill(&db);
    db.sync().unwrap();
    let want = contents(&db);
    // As a kill leaves it.
    let sim = sim.kill_image();
    let is_log = |path: &Path| path.extension().is_some_and(|e| e == "log");
    let log = sim.files().into_iter().map(|(path, _)| path).rfind(|path| is_log(path)).unwrap();
    let whole = sim.read_file(&log).unwrap();
    for torn in [&[7; 3000][..], &whole[128..190], &[1]] {
        let image = sim.kill_image();
        image.write_file(&log, [&whole, torn].concat());
        convert(&image, &Target::Encrypted(ring(&[1, 2]))).unwrap();
        assert_eq!(key_ids(&image), [Some(2)]);
        let db = open(&image, &[2]);
        assert_eq!(contents(&db), want);
        db.close().unwrap();
    }
    // Nothing that somebody has changed becomes authentic: not by a conversion, and not as a piece of zeros, either.
    for target in [Target::Encrypted(ring(&[1, 2])), Target::Plain(ring(&[1]))] {
        let image = sim.kill_image();
        assert!(image.corrupt(&log, 140, 1));
        let refused = convert(&image, &target).unwrap_err();
        assert!(refused.is_corruption() && refused.to_string().contains(".log"), "{refused}");
    }
}

/// Temporary files are removed, and this one is all that is left of the SST.
#[test]
fn a_store_of_which_a_file_has_the_name_of_a_temporary_one_is_not_converted() {
    let sim = SimVfs::new(1);
    let db = plain(&sim);
    fill(&db);
    let want = contents(&db);
    db.close().unwrap();
    let dir = Path::new(DIR);
    let state = Manifest::read(&sim, dir).unwrap();
    let file = state.families[&0].version.files().next().unwrap().1.number;
    let (sst, hidden) = (names::sst_path(dir, file), names::temp_path(dir, file));
    sim.rename(&sst, &hidden).unwrap();
    let before = raw_files(&sim);
    let error = convert(&sim, &Target::Encrypted(ring(&[1]))).map(drop).unwrap_err();
    assert!(error.to_string().contains("give it its name back"), "{error}");
    assert!(raw_files(&sim) == before, "nothing is changed");
    sim.rename(&hidden, &sst).unwrap();
    convert(&sim, &Target::Encrypted(ring(&[1]))).unwrap();
    assert_eq!(contents(&open(&sim, &[1])), want);
}
