//! Keys that are replaced while a store is open: new files get the new one, and no key is lost that a file needs.

use super::{DIR, contents, encrypted, key, open, options, path, ring};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use terrace::Db;
use terrace::vfs::{PosixVfs, SimVfs, Vfs};
use terrace_encryption::{EncryptedVfs, KeyRing, Target, rewrite, used_keys};
use terrace_vfs::{CreateOptions, OpenMode};

fn store() -> &'static Path {
    Path::new(DIR)
}

/// The numbers of the keys that files of the store need.
fn used(sim: &SimVfs) -> Vec<u32> {
    used_keys(sim, store()).unwrap().keys.into_keys().map(Option::unwrap).collect()
}

fn assert_refused(vfs: &EncryptedVfs, keys: KeyRing, why: &str) {
    let before: Vec<_> = vfs.keys().ids().collect();
    let error = vfs.set_keys(store(), keys).unwrap_err();
    let is_unsupported = matches!(error, terrace_base::Error::Unsupported { .. });
    assert!(is_unsupported && error.to_string().contains(why), "{error}");
    assert_eq!(vfs.keys().ids().collect::<Vec<_>>(), before);
}

fn write(vfs: &dyn Vfs, path: &Path) {
    let mut file = vfs.create(path, &CreateOptions::default()).unwrap();
    file.append(b"content").unwrap();
    file.finish().unwrap();
}

#[test]
fn files_get_the_newest_key_and_those_of_older_ones_are_read() {
    let sim = SimVfs::new(1);
    let vfs = encrypted(&sim, &[1]);
    let clone = EncryptedVfs::clone(&vfs);
    let db = Db::open(DIR, options(vfs.clone())).unwrap();
    db.put("a", vec![1; 2000]).unwrap();
    db.flush().unwrap();
    assert_eq!(used(&sim), [1]);
    vfs.set_keys(store(), ring(&[1, 2])).unwrap();
    assert_eq!((clone.keys().active(), used(&sim)), (2, vec![1]));
    db.put("b", vec![2; 2000]).unwrap();
    db.flush().unwrap();
    assert_eq!(used(&sim), [1, 2]);
    assert_eq!(contents(&db).len(), 2);
    db.compact_range::<&[u8]>(..).unwrap();
    db.verify().unwrap();
    db.close().unwrap();
    assert!(Db::open(DIR, options(encrypted(&sim, &[1]))).is_err());
    assert_eq!(contents(&open(&sim, &[1, 2])).len(), 2);
}

#[test]
fn a_ring_without_a_key_that_is_needed_is_refused() {
    let sim = SimVfs::new(1);
    let vfs = encrypted(&sim, &[1]);
    let db = Db::open(DIR, options(vfs.clone())).unwrap();
    db.put("a", "1").unwrap();
    db.flush().unwrap();
    assert_refused(
        &vfs,
        ring(&[2]),
        "/db: files are created with key 1, which is not among the new",
    );
    let another = |ids: [(u32, u8); 2]| {
        KeyRing::new(ids.into_iter().map(|(id, seed)| (id, key(seed)))).unwrap()
    };
    assert_refused(&vfs, another([(1, 99), (2, 2)]), "files are created with key 1");
    vfs.set_keys(store(), ring(&[1, 2])).unwrap();
    db.put("b", "2").unwrap();
    db.flush().unwrap();
    // The manifest is as old as the store.
    for keys in [ring(&[2]), another([(1, 99), (2, 2)])] {
        assert_refused(&vfs, keys, "key 1, which is not among the new keys");
    }
    db.close().unwrap();
    // Once nothing needs it any more, it may go.
    let below: Arc<dyn Vfs> = Arc::new(sim.clone());
    rewrite(&below, store(), &Target::Encrypted(ring(&[1, 2])), &mut |_| {}).unwrap();
    let vfs = encrypted(&sim, &[1, 2, 3]);
    let db = Db::open_read_only(DIR, options(vfs.clone())).unwrap();
    vfs.set_keys(store(), ring(&[2, 3])).unwrap();
    assert_refused(&vfs, ring(&[3, 4]), ": it is encrypted with key 2, which is not among");
    assert_eq!(contents(&db).len(), 2);
}

#[test]
fn files_that_are_put_aside_and_files_that_are_being_written_keep_their_keys() {
    let sim = SimVfs::new(1);
    let vfs = encrypted(&sim, &[1]);
    let lost = path("lost");
    vfs.create_dir_all(&lost).unwrap();
    write(&*vfs, &lost.join("000007.sst"));
    write(&*encrypted(&sim, &[9]), &lost.join("000009.sst"));
    let elsewhere = path("../elsewhere.sst");
    let mut writer = vfs.create(&elsewhere, &CreateOptions::default()).unwrap();
    vfs.set_keys(store(), ring(&[1, 2])).unwrap();
    assert_refused(&vfs, ring(&[2]), "a file is being written with key 1");
    writer.append(b"content").unwrap();
    writer.finish().unwrap();
    drop(writer);
    assert_refused(&vfs, ring(&[2]), "lost/000007.sst: it is encrypted with key 1");
    vfs.remove(&lost.join("000007.sst")).unwrap();
    // What the present ring has no key for is no reason to keep any.
    vfs.set_keys(store(), ring(&[2])).unwrap();
    assert!(vfs.open(&elsewhere, OpenMode::default()).is_err());
    assert!(encrypted(&sim, &[1]).open(&elsewhere, OpenMode::default()).is_ok());
}

/// Nobody can read it: without its first bytes a file has no key.
#[test]
fn what_the_device_does_not_give_is_no_reason_to_keep_a_key_in_lost_and_one_in_the_store() {
    let sim = SimVfs::new(1);
    open(&sim, &[1]).close().unwrap();
    for name in ["lost/000099.log", "000098.log"] {
        sim.create_dir_all(path(name).parent().unwrap()).unwrap();
        sim.write_file(path(name), [7; 500]);
        assert!(sim.lose_sector(path(name), 0..512));
        let found = used_keys(&sim, store()).unwrap();
        let is_counted = found.keys.keys().eq(&[Some(1)]) && found.unreadable.len() == 1;
        assert!(is_counted, "{name}: {found:?}");
        let vfs = encrypted(&sim, &[1, 2, 3]);
        let without_another = vfs.set_keys(store(), ring(&[1, 3]));
        assert_eq!(without_another.is_ok(), name.starts_with("lost"), "{without_another:?}");
        vfs.set_keys(store(), ring(&[1, 2, 3, 4])).unwrap();
        sim.remove(&path(name)).unwrap();
    }
}

/// A repair moves what has the name of a file and is none to `lost/`.
#[test]
fn sockets_and_links_to_nothing_need_no_key() {
    let dir = tempfile::tempdir().unwrap();
    let (store, below) = (dir.path().join("store"), PosixVfs::shared());
    let vfs = Arc::new(EncryptedVfs::new(below.clone(), ring(&[1])));
    let db = Db::open(&store, options(vfs.clone())).unwrap();
    db.put("a", "1").unwrap();
    let lost = store.join("lost");
    below.create_dir_all(&lost).unwrap();
    for folder in [&store, &lost] {
        drop(UnixListener::bind(folder.join("000099.sst.misplaced")).unwrap());
        symlink("nothing", folder.join("000098.sst.misplaced")).unwrap();
    }
    vfs.set_keys(&store, ring(&[1, 2])).unwrap();
    assert_eq!(vfs.keys().active(), 2);
    db.close().unwrap();
    let used = used_keys(&*below, &store).unwrap();
    assert!(used.keys.keys().all(Option::is_some) && used.unreadable.is_empty(), "{used:?}");
    // A link is refused.
    below.remove(&lost.join("000098.sst.misplaced")).unwrap();
    let done = rewrite(&below, &store, &Target::Encrypted(ring(&[1, 2])), &mut |_| {}).unwrap();
    assert_eq!(done.unreadable.len(), 1, "{done:?}");
    let used = used_keys(&*below, &store).unwrap();
    assert!(used.keys.keys().eq(&[Some(2)]), "{used:?}");
}

#[test]
fn a_directory_without_a_store_needs_no_key() {
    let vfs = encrypted(&SimVfs::new(1), &[1]);
    vfs.set_keys(Path::new("/nowhere"), ring(&[1, 2])).unwrap();
    assert_eq!(vfs.keys().active(), 2);
}

#[test]
fn threads_go_on_while_keys_are_replaced() {
    const ROUNDS: u32 = 200;
    let sim = SimVfs::new(1);
    let vfs = encrypted(&sim, &[1]);
    vfs.create_dir_all(store()).unwrap();
    let work = |thread: u32| {
        for n in 0..ROUNDS {
            let temp = path(&format!("{:06}.tmp", thread * ROUNDS + n));
            let file = temp.with_extension("sst");
            write(&*vfs, &temp);
            vfs.rename(&temp, &file).unwrap();
            assert_eq!(vfs.open(&file, OpenMode::default()).unwrap().len(), 7);
        }
    };
    std::thread::scope(|scope| {
        (0..2).for_each(|thread| drop(scope.spawn(move || work(thread))));
        for id in 2..40 {
            vfs.set_keys(store(), ring(&(1..=id).collect::<Vec<_>>())).unwrap();
            // It is refused unless no file needs the others.
            let _ = vfs.set_keys(store(), ring(&(id / 2..=id).collect::<Vec<_>>()));
        }
    });
    for at in 0..2 * ROUNDS {
        let file = path(&format!("{at:06}.sst"));
        assert_eq!(vfs.open(&file, OpenMode::default()).unwrap().len(), 7, "{at}");
    }
    assert_refused(&vfs, ring(&[40]), "files are created with key 39");
}
