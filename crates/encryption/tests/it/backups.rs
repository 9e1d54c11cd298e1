//! Directories of backups and sorted files, encrypted and not, and opened as they are not.

use super::{DIR, contents, encrypted, key, open, options};
use std::path::Path;
use std::sync::Arc;
use terrace::vfs::{SimVfs, Vfs};
use terrace::{CfOptions, Db, Error, IngestOptions, SstWriter};
use terrace_backup::{Backups, Error as BackupError};
use terrace_encryption::{EncryptedVfs, KeyRing, used_keys};

const BACKUPS: &str = "/backups";

fn plain(sim: &SimVfs) -> Arc<dyn Vfs> {
    Arc::new(sim.clone())
}

fn backups(vfs: Arc<dyn Vfs>) -> Backups {
    Backups::open_with(vfs, BACKUPS).unwrap()
}

/// Every use of a record is refused with `why`, and with no word of damage.
fn assert_refused(vfs: &Arc<dyn Vfs>, db: &Db, why: &str) {
    let backups = backups(vfs.clone());
    let restored = Path::new("/restored");
    let refused: [BackupError; 5] = [
        backups.list().unwrap().remove(0).backup.unwrap_err(),
        backups.verify(1, &mut |_| {}).unwrap_err(),
        backups.restore(1, restored, &mut |_| {}).unwrap_err(),
        backups.create(db, &mut |_| {}).unwrap_err(),
        backups.keep_latest(1).unwrap_err(),
    ];
    for error in refused {
        let told = error.to_string();
        let is_unsupported = matches!(&error, BackupError::Store(Error::Unsupported { .. }));
        assert!(is_unsupported && told.contains(why), "{told}");
        assert!(told.contains("/backups/backups/1"), "{told}");
    }
    assert!(!vfs.exists(restored).unwrap());
    assert_eq!(backups.list().unwrap().len(), 1);
}

#[test]
fn backups_say_which_keys_they_want() {
    let sim = SimVfs::new(1);
    let db = open(&sim, &[1]);
    db.put("a", "1").unwrap();
    backups(encrypted(&sim, &[1])).create(&db, &mut |_| {}).unwrap();
    db.close().unwrap();
    let another = KeyRing::new([(1, key(99))]).unwrap();
    let another = EncryptedVfs::new(plain(&sim), another);
    let clear = Db::open("/clear", options(plain(&sim))).unwrap();
    let ways: [(&str, Arc<dyn Vfs>); 3] = [
        ("it is encrypted with key 1, which is not among the keys given", encrypted(&sim, &[2])),
        ("it is encrypted with another key 1 than the one given", Arc::new(another)),
        ("it is encrypted: open the backups with their keys", plain(&sim)),
    ];
    for (why, vfs) in ways {
        assert_refused(&vfs, &clear, why);
    }
    backups(encrypted(&sim, &[1, 2])).verify(1, &mut |_| {}).unwrap();
    clear.close().unwrap();
}

#[test]
fn backups_that_are_not_encrypted_are_not_mixed_with_those_that_are() {
    let sim = SimVfs::new(1);
    let clear = Db::open("/clear", options(plain(&sim))).unwrap();
    clear.put("a", "1").unwrap();
    backups(plain(&sim)).create(&clear, &mut |_| {}).unwrap();
    let db = open(&sim, &[1]);
    let vfs: Arc<dyn Vfs> = encrypted(&sim, &[1]);
    assert_refused(&vfs, &db, "it is not encrypted: open the backups without keys");
    // One whose record was put there by hand is distinguished from the others, and can be removed.
    let other = Backups::open_with(vfs.clone(), "/others").unwrap();
    other.create(&db, &mut |_| {}).unwrap();
    other.create(&db, &mut |_| {}).unwrap();
    sim.copy(Path::new("/others/backups/2"), Path::new("/backups/backups/2")).unwrap();
    let mixed = backups(vfs);
    let listed = mixed.list().unwrap();
    assert!(listed[0].backup.is_err() && listed[1].backup.is_ok(), "{listed:?}");
    drop(mixed);
    let mixed = backups(plain(&sim));
    let refused = mixed.create(&clear, &mut |_| {}).unwrap_err().to_string();
    assert!(refused.contains("backups/2: it is encrypted"), "{refused}");
    mixed.remove(2).unwrap();
    mixed.create(&clear, &mut |_| {}).unwrap();
    mixed.verify(1, &mut |_| {}).unwrap();
}

#[test]
fn sorted_files_are_ingested_with_the_keys_of_their_store() {
    let sim = SimVfs::new(1);
    let write = |vfs: Arc<dyn Vfs>, path: &str| {
        let mut writer = SstWriter::create_on(vfs, path, &CfOptions::default()).unwrap();
        writer.put("a", "1").unwrap();
        writer.finish().unwrap();
    };
    write(plain(&sim), "/plain.sst");
    write(encrypted(&sim, &[1]), "/encrypted.sst");
    write(encrypted(&sim, &[2]), "/other.sst");
    let ingest = |db: &Db, path: &str| db.ingest(&[path], &IngestOptions::default());
    let refused = |db: &Db, path: &str, why: &str| {
        let error = ingest(db, path).unwrap_err();
        let told = error.to_string();
        assert!(matches!(error, Error::Unsupported { .. }) && told.contains(why), "{told}");
    };
    let db = open(&sim, &[1]);
    refused(&db, "/plain.sst", "/plain.sst: it is not encrypted: write it with the keys");
    refused(&db, "/other.sst", "/other.sst: it is encrypted with key 2, which is not among");
    ingest(&db, "/encrypted.sst").unwrap();
    assert_eq!(contents(&db).len(), 1);
    db.close().unwrap();
    assert_eq!(contents(&Db::open(DIR, options(encrypted(&sim, &[1]))).unwrap()).len(), 1);
    let clear = Db::open("/clear", options(plain(&sim))).unwrap();
    refused(&clear, "/encrypted.sst", "/encrypted.sst: it is encrypted: ");
    ingest(&clear, "/plain.sst").unwrap();
    assert_eq!(contents(&clear).len(), 1);
    clear.close().unwrap();
}

/// Content that an earlier backup has brought is written anew, or its key would be needed for as long as there are backups.
#[test]
fn a_backup_needs_no_key_of_before() {
    let sim = SimVfs::new(1);
    let db = open(&sim, &[1]);
    for n in 0..500_u32 {
        db.put(n.to_be_bytes(), [n as u8; 600]).unwrap();
    }
    db.flush().unwrap();
    backups(encrypted(&sim, &[1])).create(&db, &mut |_| {}).unwrap();
    let want = contents(&db);
    db.close().unwrap();
    let db = open(&sim, &[1, 2]);
    let used = || used_keys(&sim, Path::new(BACKUPS)).unwrap().keys;
    assert_eq!(used().keys().copied().collect::<Vec<_>>(), [Some(1)]);
    let both = backups(encrypted(&sim, &[1, 2]));
    let created = both.create(&db, &mut |_| {}).unwrap();
    assert_eq!(created.copied_files, created.backup.files.len());
    let again = both.create(&db, &mut |_| {}).unwrap();
    assert!(again.copied_files < created.copied_files / 2, "{again:?}");
    // The first one is readable as before, and its record is all that needs the key.
    both.verify(1, &mut |_| {}).unwrap();
    both.remove(1).unwrap();
    drop(both);
    assert_eq!(used().keys().copied().collect::<Vec<_>>(), [Some(2)]);
    let latest = backups(encrypted(&sim, &[2]));
    latest.verify(2, &mut |_| {}).unwrap();
    latest.restore(3, Path::new("/restored"), &mut |_| {}).unwrap();
    let restored = Db::open("/restored", options(encrypted(&sim, &[2]))).unwrap();
    assert_eq!(contents(&restored), want);
}

/// Files of a directory of backups.
fn content_files(sim: &SimVfs) -> Vec<std::path::PathBuf> {
    let folder = Path::new(BACKUPS).join("files");
    sim.list(&folder).unwrap().into_iter().map(|name| folder.join(name)).collect()
}

/// Whether bytes of it were changed, or the device does not give it any more.
#[test]
fn a_damaged_header_of_a_file_keeps_nobody_from_making_and_removing_backups() {
    for is_lost in [false, true] {
        let sim = SimVfs::new(1);
        let damage = |file: &std::path::PathBuf| match is_lost {
            true => sim.lose_sector(file, 0..512),
            false => sim.corrupt(file, 30, 1),
        };
        let db = open(&sim, &[1]);
        for n in 0..500_u32 {
            db.put(n.to_be_bytes(), [n as u8; 600]).unwrap();
        }
        db.flush().unwrap();
        let backups = backups(encrypted(&sim, &[1]));
        backups.create(&db, &mut |_| {}).unwrap();
        let files = content_files(&sim);
        assert!(!files.is_empty());
        files.iter().for_each(|file| assert!(damage(file)));
        backups.verify(1, &mut |_| {}).unwrap_err();
        // The next backup brings what it has, too.
        backups.create(&db, &mut |_| {}).unwrap();
        backups.verify(2, &mut |_| {}).unwrap();
        for file in &files {
            assert!(!sim.exists(file).unwrap() || damage(file));
        }
        backups.remove(1).unwrap();
        backups.remove(2).unwrap();
        assert!(content_files(&sim).is_empty());
    }
}
