//! The engine above the encrypted file system: nothing of a user's on the disk, every answer right after crashes,
//! damage and full disks, and clear words for a wrong key.

use super::{DIR, contents, encrypted, holds, key, open, options, raw_files};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace::vfs::{Fault, FaultKind, OpClass, SimVfs, Vfs};
use terrace::{
    BulkOptions, CfOptions, Db, Error, IngestOptions, IngestPosition, RepairOptions, RepairReport,
    SstWriter, SyncMode, WriteBatch, WriteOptions, repair, repair_telling,
};
use terrace_backup::Backups;
use terrace_encryption::{EncryptedVfs, KeyRing};
use terrace_manifest::{Manifest, names};

/// What may be in no file.
const SECRETS: [&[u8]; 2] = [b"secret-key", b"secret value"];

fn secret_key(n: u32) -> Vec<u8> {
    format!("secret-key-{n:06}").into_bytes()
}

fn secret_value(n: u32, len: usize) -> Vec<u8> {
    format!("secret value {n:06} ").into_bytes().into_iter().cycle().take(len).collect()
}

fn assert_hidden(sim: &SimVfs) {
    for (name, bytes) in raw_files(sim) {
        for secret in SECRETS {
            assert!(!holds(&bytes, secret), "{name} has {:?}", String::from_utf8_lossy(secret));
        }
    }
}

/// Files of every kind: SSTs of several levels, a log in force, value segments, also of garbage collection.
fn fill(db: &Db) {
    for round in 0..4 {
        for n in 0..600 {
            let len = if n % 3 == 0 { 900 } else { 60 };
            db.put(secret_key(n), secret_value(n * 10 + round, len)).unwrap();
        }
        db.flush().unwrap();
    }
    db.compact_range::<&[u8]>(..).unwrap();
    for n in 0..100 {
        db.put(secret_key(n), secret_value(n, 300)).unwrap();
    }
}

#[test]
fn nothing_of_a_user_is_on_the_disk_and_everything_is_read() {
    let sim = SimVfs::new(1);
    let db = open(&sim, &[1]);
    fill(&db);
    let want = contents(&db);
    assert_eq!(want.len(), 600);
    db.sync().unwrap();
    assert_hidden(&sim);
    db.close().unwrap();
    assert_hidden(&sim);
    // The test would find them.
    let plain = SimVfs::new(1);
    let db = Db::open(DIR, options(Arc::new(plain.clone()))).unwrap();
    fill(&db);
    db.close().unwrap();
    assert!(raw_files(&plain).iter().any(|(_, bytes)| holds(bytes, SECRETS[0])));

    let db = open(&sim, &[1]);
    assert_eq!(contents(&db), want);
    let keys: Vec<_> = (0..600).map(secret_key).collect();
    let many = db.multi_get(&keys).unwrap();
    for (n, value) in many.into_iter().enumerate() {
        assert_eq!(value.as_deref(), Some(&want[n].1[..]));
    }
    db.verify().unwrap();
    db.close().unwrap();
}

#[test]
fn the_wrong_key_no_key_and_a_plain_store_are_told_apart_and_change_nothing() {
    let sim = SimVfs::new(1);
    let db = open(&sim, &[1]);
    fill(&db);
    db.close().unwrap();
    let before = raw_files(&sim);
    let another = KeyRing::new([(1, key(99))]).unwrap();
    let another = EncryptedVfs::new(Arc::new(sim.clone()), another);
    let ways: [(&str, Arc<dyn Vfs>); 3] = [
        ("it is encrypted with key 1, which is not among the keys given", encrypted(&sim, &[2])),
        ("it is encrypted with another key 1 than the one given", Arc::new(another)),
        ("it is encrypted: open the store with its keys", Arc::new(sim.clone())),
    ];
    for (why, vfs) in ways {
        let opened = Db::open(DIR, options(vfs.clone())).err().unwrap();
        assert!(opened.to_string().contains(why), "{opened}");
        let read_only = Db::open_read_only(DIR, options(vfs.clone())).err().unwrap();
        assert!(read_only.to_string().contains(why), "{read_only}");
        for from_lost in [false, true] {
            let how = RepairOptions { from_lost, ..Default::default() };
            let repaired = repair(DIR, options(vfs.clone()), how).err().unwrap();
            assert!(repaired.to_string().contains(why), "{repaired}");
        }
    }
    let after = raw_files(&sim);
    let of_store = |files: Vec<(String, Vec<u8>)>| -> BTreeMap<_, _> {
        files.into_iter().filter(|(name, _)| !name.ends_with("LOCK")).collect()
    };
    assert!(of_store(before) == of_store(after), "a refusal changes nothing");

    let plain = SimVfs::new(1);
    let db = Db::open(DIR, options(Arc::new(plain.clone()))).unwrap();
    db.put("a", "1").unwrap();
    db.close().unwrap();
    for outcome in [
        Db::open(DIR, options(encrypted(&plain, &[1]))).map(drop),
        repair(DIR, options(encrypted(&plain, &[1])), RepairOptions::default()).map(drop),
    ] {
        let error = outcome.unwrap_err();
        assert!(error.to_string().contains("it is not encrypted"), "{error}");
    }
    Db::open(DIR, options(Arc::new(plain.clone()))).unwrap().close().unwrap();
}

/// Somebody has renamed it. Of a file in pages nothing can be read under the name of one that grows.
#[test]
fn an_sst_that_has_the_name_of_a_segment_is_set_aside_and_never_deleted() {
    let sim = SimVfs::new(1);
    let db = open(&sim, &[1]);
    db.put(secret_key(0), secret_value(0, 60)).unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    // The log begins behind the SST.
    open(&sim, &[1]).close().unwrap();
    let dir = Path::new(DIR);
    let state = Manifest::read(&*encrypted(&sim, &[1]), dir).unwrap();
    let file = state.families[&0].version.files().next().unwrap().1.number;
    let from = names::sst_path(dir, file);
    for to in [
        names::log_path(dir, file.segment()),
        names::value_log_path(dir, file.segment()),
        names::value_log_path(dir, (file + 100).segment()),
    ] {
        let image = sim.kill_image();
        let bytes = image.read_file(&from).unwrap();
        image.rename(&from, &to).unwrap();
        drop(open(&image, &[1]));
        assert!(!image.exists(&to).unwrap(), "{to:?}");
        let mut kept = to.file_name().unwrap().to_os_string();
        kept.push(".misplaced");
        let kept = image.read_file(names::lost_dir(dir).join(kept));
        assert_eq!(kept.as_deref(), Some(&bytes[..]), "{to:?}");
    }
}

#[test]
fn files_are_made_under_the_active_key_and_those_of_others_stay_readable() {
    let sim = SimVfs::new(1);
    let db = open(&sim, &[1]);
    fill(&db);
    let want = contents(&db);
    db.close().unwrap();
    let db = open(&sim, &[1, 2]);
    assert_eq!(contents(&db), want);
    db.put("new", "1").unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    let used = terrace_encryption::used_keys(&sim, DIR.as_ref()).unwrap().keys;
    assert!(used[&Some(1)].files > 0 && used[&Some(2)].files > 0, "{used:?}");
    // With the old key alone the new files cannot be read.
    assert!(matches!(Db::open(DIR, options(encrypted(&sim, &[1]))), Err(Error::Unsupported(_))));
}

/// Writes by turns what must be there after a crash; gives what the model has at each acknowledged write.
fn crash_workload(db: &Db, model: &mut Vec<(Vec<u8>, Option<Vec<u8>>)>) -> terrace::Result<()> {
    let sync = WriteOptions { sync: Some(SyncMode::Batch) };
    for n in 0..60_u32 {
        let (key, value) =
            (secret_key(n % 17), secret_value(n, if n % 4 == 0 { 2000 } else { 80 }));
        let mut batch = WriteBatch::new();
        match n % 7 == 6 {
            true => batch.delete(&key),
            false => batch.put(&key, &value),
        }
        db.write_with(batch, &sync)?;
        model.push((key, (n % 7 != 6).then_some(value)));
        if n % 25 == 24 {
            db.flush()?;
        }
    }
    Ok(())
}

#[test]
fn a_power_cut_or_a_kill_at_any_operation_loses_no_synced_write() {
    let mut crashes = 0;
    for step in 0.. {
        let sim = SimVfs::new(7);
        let db = open(&sim, &[1]);
        let mut model = Vec::new();
        sim.crash_after(sim.op_count() + step * 3);
        let ended = crash_workload(&db, &mut model).is_ok() && db.close().is_ok();
        let image = if step % 3 == 0 { sim.kill_image() } else { sim.crash_image(step) };
        let db = open(&image, &[1]);
        let found: BTreeMap<_, _> = contents(&db).into_iter().collect();
        // The write that was under way may be there as well.
        let after = |writes: &[(Vec<u8>, Option<Vec<u8>>)]| {
            let mut state = BTreeMap::new();
            for (key, value) in writes {
                match value {
                    Some(value) => drop(state.insert(key.clone(), value.clone())),
                    None => drop(state.remove(key)),
                }
            }
            state
        };
        let acknowledged = model.len();
        let mut all = Vec::new();
        crash_workload(&open(&SimVfs::new(7), &[1]), &mut all).unwrap();
        let next = (acknowledged + 1).min(all.len());
        assert!(
            found == after(&all[..acknowledged]) || found == after(&all[..next]),
            "step {step}: {acknowledged} writes were acknowledged"
        );
        db.verify().unwrap();
        db.put("after", "1").unwrap();
        db.close().unwrap();
        assert_hidden(&image);
        crashes += 1;
        if ended {
            break;
        }
    }
    println!("{crashes} crashes");
    assert!(crashes > 40, "{crashes}");
}

#[test]
fn a_changed_byte_in_an_sst_is_an_error_and_never_another_value() {
    let sim = SimVfs::new(1);
    let db = open(&sim, &[1]);
    fill(&db);
    let want: BTreeMap<_, _> = contents(&db).into_iter().collect();
    db.close().unwrap();
    let ssts: Vec<_> = sim
        .files()
        .into_iter()
        .filter(|(path, _)| path.extension().is_some_and(|e| e == "sst"))
        .collect();
    let (mut errors, mut tries) = (0, 0);
    for (sst, bytes) in ssts {
        for at in (7..bytes).step_by(997) {
            let image = sim.kill_image();
            assert!(image.corrupt(&sst, at, 0x10));
            tries += 1;
            let Ok(db) = Db::open(DIR, options(encrypted(&image, &[1]))) else {
                errors += 1;
                continue;
            };
            let mut has_error = db.verify().is_err();
            for (key, value) in &want {
                match db.get(key) {
                    Ok(found) => assert_eq!(found.as_deref(), Some(&value[..])),
                    Err(_) => has_error = true,
                }
            }
            errors += u32::from(has_error);
        }
    }
    assert!(tries > 20);
    assert_eq!(errors, tries);
}

#[test]
fn a_full_disk_is_survived() {
    let sim = SimVfs::new(1);
    let mut options = options(encrypted(&sim, &[1]));
    options.advanced.reserve_bytes = 64 << 10;
    let db = Db::open(DIR, options.clone()).unwrap();
    fill(&db);
    let want = contents(&db);
    let used: u64 = sim.files().into_iter().map(|(_, bytes)| bytes).sum();
    sim.set_capacity_bytes(Some(used + (50 << 10)));
    let mut n = 0;
    let full = loop {
        match db.put(format!("filler-{n}"), vec![7; 2000]) {
            Ok(()) => n += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(full, Error::DiskFull(_)), "{full}");
    // Deletions go through, and with room everything is as before.
    for filler in 0..n {
        // A flush or merge may hold what room there is, for a moment.
        let start = Instant::now();
        while let Err(error) = db.delete(format!("filler-{filler}")) {
            assert!(matches!(error, Error::DiskFull(_)), "{error}");
            assert!(start.elapsed() < Duration::from_secs(600), "it is never taken: {error}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    sim.set_capacity_bytes(None);
    db.close().unwrap();
    let db = Db::open(DIR, options).unwrap();
    assert_eq!(contents(&db), want);
    db.close().unwrap();
}

#[test]
fn a_refused_append_of_the_log_goes_on_in_another_segment() {
    let sim = SimVfs::new(1);
    let db = open(&sim, &[1]);
    db.put("a", "1").unwrap();
    sim.set_fault(Some(Fault {
        at_op: sim.op_count(),
        kind: FaultKind::Enospc,
        forever: false,
        filter: Some(OpClass::Append),
    }));
    let refused = db.put("b", "2");
    assert_eq!(sim.executed_faults(), 1);
    sim.set_fault(None);
    let mut want = vec![(b"a".to_vec(), b"1".to_vec())];
    if refused.is_ok() {
        want.push((b"b".to_vec(), b"2".to_vec()));
    }
    while db.put("c", "3").is_err() {
        std::thread::yield_now();
    }
    want.push((b"c".to_vec(), b"3".to_vec()));
    assert_eq!(contents(&db), want);
    drop(db);
    assert_eq!(contents(&open(&sim.kill_image(), &[1])), want);
}

#[test]
fn checkpoints_are_encrypted_and_backups_are_not_made_in_the_clear() {
    let sim = SimVfs::new(1);
    let db = open(&sim, &[1]);
    fill(&db);
    let want = contents(&db);
    db.checkpoint("/copy").unwrap();
    let copy = Db::open("/copy", options(encrypted(&sim, &[1]))).unwrap();
    assert_eq!(contents(&copy), want);
    copy.close().unwrap();

    let clear = Backups::open_with(Arc::new(sim.clone()), "/clear").unwrap();
    let refused = clear.create(&db, &mut |_| {}).unwrap_err().to_string();
    assert!(refused.contains("encrypted"), "{refused}");
    let backups = Backups::open_with(encrypted(&sim, &[1]), "/backups").unwrap();
    backups.create(&db, &mut |_| {}).unwrap();
    backups.verify(1, &mut |_| {}).unwrap();
    backups.restore(1, Path::new("/restored"), &mut |_| {}).unwrap();
    let restored = Db::open("/restored", options(encrypted(&sim, &[1]))).unwrap();
    assert_eq!(contents(&restored), want);
    restored.close().unwrap();
    db.close().unwrap();
    assert_hidden(&sim);
}

#[test]
fn sorted_files_are_ingested_and_loaded_in_bulk() {
    let sim = SimVfs::new(1);
    let vfs = encrypted(&sim, &[1]);
    let db = Db::open(DIR, options(vfs.clone())).unwrap();
    fill(&db);
    let family = CfOptions { value_separation_threshold: usize::MAX, ..Default::default() };
    for (at, position) in [IngestPosition::Above, IngestPosition::Below].into_iter().enumerate() {
        let file = format!("/db/outside-{at}");
        let mut writer = SstWriter::create_on(vfs.clone(), &file, &family).unwrap();
        for n in 0..500 {
            writer.put(secret_key(10_000 * at as u32 + n), secret_value(n, 100)).unwrap();
        }
        writer.finish().unwrap();
        let ingest = IngestOptions { position, ..Default::default() };
        db.ingest(&[&file], &ingest).unwrap();
    }
    let small = BulkOptions { memory_bytes: 1 << 20, ..Default::default() };
    let mut loader = db.bulk_loader(&small).unwrap();
    for n in (0..3000).rev() {
        loader.put(secret_key(50_000 + n), secret_value(n, 800)).unwrap();
    }
    assert_hidden(&sim);
    loader.finish().unwrap();
    let found = db.get(secret_key(7)).unwrap();
    assert_eq!(found.as_deref(), Some(&secret_value(7, 100)[..]));
    assert_eq!(contents(&db).len(), 600 + 500 + 3000);
    db.verify().unwrap();
    db.close().unwrap();
    assert_hidden(&sim);
}

#[test]
fn a_torn_beginning_of_an_unsynced_segment_is_no_damage() {
    for seed in 0..150 {
        let sim = SimVfs::new(seed);
        let db = open(&sim, &[1]);
        db.put("kept", "1").unwrap();
        db.sync().unwrap();
        for n in 0..120 {
            db.put(secret_key(n), secret_value(n, 1500)).unwrap();
        }
        let image = sim.crash_image(seed);
        let db = open(&image, &[1]);
        assert_eq!(db.get("kept").unwrap().as_deref(), Some(&b"1"[..]), "seed {seed}");
        db.verify().unwrap();
        db.close().unwrap();
    }
}

#[test]
fn a_damaged_header_of_any_file_is_repaired_as_far_as_it_can_be() {
    let sim = SimVfs::new(1);
    let db = open(&sim, &[1]);
    fill(&db);
    // Segments of both kinds.
    db.collect_garbage(0.0).unwrap();
    for n in 0..9 {
        db.put(secret_key(n), secret_value(n, 2000)).unwrap();
    }
    db.flush().unwrap();
    let want: BTreeMap<_, _> = contents(&db).into_iter().collect();
    db.close().unwrap();
    let has_header = |path: &Path| !path.ends_with("LOCK") && !path.ends_with("RESERVE");
    let files = sim.files().into_iter().filter(|(path, bytes)| has_header(path) && *bytes > 128);
    let files: Vec<_> = files.map(|(path, _)| path).collect();
    assert!(files.len() > 5, "{files:?}");
    for file in files {
        // Of the encryption's header and, behind it, of the file's own.
        for at in [3, 9, 13, 17, 22, 40, 70, 120, 130, 150] {
            let image = sim.kill_image();
            assert!(image.corrupt(&file, at, 0x21));
            let options = options(encrypted(&image, &[1]));
            let report = repair(DIR, options.clone(), RepairOptions::default());
            let report = report.unwrap_or_else(|error| panic!("{file:?}, byte {at}: {error}"));
            let db = Db::open(DIR, options.clone()).unwrap();
            // An older value, none, or one that is gone with its segment.
            let is_right = |(key, value): &(&Vec<u8>, &Vec<u8>)| matches!(db.get(key), Ok(Some(found)) if found == value[..]);
            let missing = want.len() - want.iter().filter(is_right).count();
            assert!(missing == 0 || !report.lost.is_empty(), "{file:?}, byte {at}: {missing}");
            db.close().unwrap();
            let is_log = file.extension().is_some_and(|extension| extension == "log");
            if is_log && at > 128 {
                assert_eq!(missing, 0, "{file:?}, byte {at}: only the log's header is damaged");
            }
            // What it has made needs no other repair.
            let again = repair(DIR, options, RepairOptions::default()).unwrap();
            assert!(again.was_sound || missing > 0, "{file:?}, byte {at}");
        }
    }
}

/// It names keys.
#[test]
fn the_report_of_a_repair_is_encrypted_and_is_read_by_the_next() {
    let sim = SimVfs::new(1);
    let db = open(&sim, &[1]);
    fill(&db);
    db.close().unwrap();
    let files = sim.files().into_iter().map(|(path, _)| path);
    let ssts = files.filter(|path| path.extension().is_some_and(|ending| ending == "sst"));
    ssts.for_each(|path| sim.remove(&path).unwrap());
    let options = options(encrypted(&sim, &[1]));
    let mut found = Vec::new();
    let fails = |report: &RepairReport| {
        found.clone_from(&report.lost);
        Err(Error::InvalidArgument("nobody is there".into()))
    };
    repair_telling(DIR, options.clone(), RepairOptions::default(), fails).unwrap_err();
    assert!(found.iter().any(|loss| loss.contains("secret-key")), "{found:?}");
    assert!(sim.exists(&Path::new(DIR).join("lost/REPORT")).unwrap());
    assert_hidden(&sim);
    let report = repair(DIR, options.clone(), RepairOptions::default()).unwrap();
    assert_eq!(report.lost, found);
    assert_hidden(&sim);
    assert!(repair(DIR, options, RepairOptions::default()).unwrap().was_sound);
}

/// Opening a file reads its end with one read, which takes in pages of data, and scans read ahead.
#[test]
fn a_damaged_page_costs_what_it_has() {
    let sim = SimVfs::new(1);
    let db = open(&sim, &[1]);
    let value = |n: u32| {
        let noise =
            |at: u64| (u64::from(n) << 9 | at).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_string();
        (0..8).map(noise).collect::<String>()
    };
    for n in 0..2000 {
        db.put(format!("{n:05}"), value(n)).unwrap();
    }
    db.flush().unwrap();
    db.compact_range::<&[u8]>(..).unwrap();
    db.close().unwrap();
    let ssts =
        sim.files().into_iter().filter(|(path, _)| path.extension().is_some_and(|it| it == "sst"));
    let (sst, len) = ssts.max_by_key(|(_, len)| *len).unwrap();
    assert!(len > 100_000);
    for back in [20_000, 60_000] {
        let image = sim.kill_image();
        assert!(image.corrupt(&sst, len - back, 1));
        let db = open(&image, &[1]);
        let (mut read, mut lost) = (0, 0);
        for n in 0..2000 {
            match db.get(format!("{n:05}")) {
                Ok(found) => {
                    assert_eq!(found.as_deref(), Some(value(n).as_bytes()));
                    read += 1;
                }
                Err(Error::Corruption(_)) => lost += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(read > 1900 && lost > 0, "{read}, {lost}");
        let mut scanned = 0;
        for entry in db.iter().unwrap().entries() {
            match entry {
                Ok(_) => scanned += 1,
                Err(_) => break,
            }
        }
        drop(db);
        let report = repair(DIR, options(encrypted(&image, &[1])), RepairOptions::default());
        assert!(!report.unwrap().was_sound);
        let kept = contents(&open(&image, &[1])).len();
        assert!(kept > 1900 && kept < 2000 && scanned > 1000, "{kept}, {scanned}");
    }
}

#[test]
fn readers_beside_the_writer_and_change_feeds_see_what_is_written() {
    let sim = SimVfs::new(1);
    let mut options = options(encrypted(&sim, &[1]));
    options.advanced.log_retention_bytes = 1 << 30;
    let db = Db::open(DIR, options.clone()).unwrap();
    db.put("first", "1").unwrap();
    let reader = Db::open_read_only(DIR, options.clone()).unwrap();
    assert!(!reader.refresh().unwrap(), "nothing was written since");
    let mut feeds = [db.updates_since(1).unwrap(), reader.updates_since(1).unwrap()];
    for feed in &mut feeds {
        assert_eq!(feed.next().unwrap().unwrap().last_seqno(), 1);
    }
    for n in 0..300_u32 {
        let value = secret_value(n, if n % 3 == 0 { 5000 } else { 40 });
        db.put(secret_key(n), &value).unwrap();
        if n % 10 == 0 {
            reader.refresh().unwrap();
            assert_eq!(reader.get(secret_key(n)).unwrap().as_deref(), Some(&value[..]));
        }
        if n % 90 == 89 {
            db.flush().unwrap();
        }
    }
    reader.refresh().unwrap();
    assert_eq!(contents(&reader), contents(&db));
    for feed in &mut feeds {
        let seen: Vec<_> = feed.map(|batch| batch.unwrap().last_seqno()).collect();
        assert_eq!(seen, (2..=301).collect::<Vec<_>>());
    }
}

/// What a crash has torn at the end of a segment is no part of it for those who copy it with its values.
#[test]
fn a_segment_with_a_torn_end_is_backed_up() {
    let sim = SimVfs::new(1);
    let db = open(&sim, &[1]);
    for n in 0..20 {
        db.put(secret_key(n), secret_value(n, 2000)).unwrap();
    }
    db.sync().unwrap();
    let want = contents(&db);
    let image = sim.kill_image();
    let is_log = |path: &Path| path.extension().is_some_and(|extension| extension == "log");
    let log = image.files().into_iter().map(|(path, _)| path).rfind(|path| is_log(path)).unwrap();
    image.write_file(&log, [image.read_file(&log).unwrap(), vec![7; 5000]].concat());
    let db = open(&image, &[1]);
    db.flush().unwrap();
    assert_eq!(contents(&db), want);
    assert!(image.read_file(&log).is_some(), "it has the values");
    let backups = Backups::open_with(encrypted(&image, &[1]), "/backups").unwrap();
    backups.create(&db, &mut |_| {}).unwrap();
    backups.verify(1, &mut |_| {}).unwrap();
    backups.restore(1, Path::new("/restored"), &mut |_| {}).unwrap();
    let restored = Db::open("/restored", options(encrypted(&image, &[1]))).unwrap();
    assert_eq!(contents(&restored), want);
}
