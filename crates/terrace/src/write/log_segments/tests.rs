//! Segments whose names are not durable yet: what a power cut leaves of them, and a device that does not keep their names.

use super::*;
use crate::{Db, Options, WriteBatch, WriteOptions};
use std::io::ErrorKind;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use terrace_manifest::VersionEdit;
use terrace_vfs::{BeforeCalls, Call, SimVfs};

const POWER_CUTS: u64 = 16;

fn options(vfs: Arc<dyn Vfs>) -> Options {
    let mut options =
        Options { memory_budget: 16 << 20, sync: SyncMode::None, ..Options::default() };
    options.advanced.vfs = vfs;
    options.advanced.reserve_bytes = 0;
    // What is to be merged by a call is not merged before, however long that takes.
    options.advanced.compact_when_idle = false;
    options
}

/// No descriptor for the thread that makes names durable before somebody needs them: who needs them must see to it.
fn none_ahead(call: Call<'_>, path: &Path) -> terrace_base::Result<()> {
    let is_ahead = std::thread::current().name() == Some("terrace-ahead");
    match call {
        Call::SyncDir if is_ahead => {
            Err(terrace_base::Error::io("open", path, ErrorKind::Interrupted.into()))
        }
        _ => Ok(()),
    }
}

fn begin_segment(env: &CommitEnv) {
    let lead = env.queue().unwrap().lead();
    next_segment(env, &mut lead.log()).unwrap();
}

#[test]
fn a_power_cut_after_a_rotation_and_a_retirement_leaves_a_store_that_opens() {
    let sim = SimVfs::new(1);
    let images = Arc::new(Mutex::new(Vec::new()));
    let vfs = {
        let (files, images) = (sim.clone(), images.clone());
        BeforeCalls::new(sim.clone(), move |call, path| {
            // Right after the manifest has said with which segment the log begins: later the directory is synced anyway.
            if matches!(call, Call::Remove) && path.extension().is_some_and(|end| end == "log") {
                let left = (0..POWER_CUTS).map(|seed| files.crash_image(seed));
                images.lock().unwrap().extend(left);
            }
            none_ahead(call, path)
        })
    };
    let db = Db::open("/store", options(Arc::new(vfs))).unwrap();
    let env = &db.inner().commit;
    db.put(b"k", b"v").unwrap();
    db.flush().unwrap();
    for _ in 0..3 {
        begin_segment(env);
        retire_segments(env).unwrap();
    }
    db.close().unwrap();
    let images = std::mem::take(&mut *images.lock().unwrap());
    assert!(images.len() as u64 >= 3 * POWER_CUTS, "{} images", images.len());
    for image in images {
        let after = Db::open("/store", options(Arc::new(image))).unwrap();
        assert_eq!(after.get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
        after.put(b"k", b"w").unwrap();
        after.close().unwrap();
    }
}

#[test]
fn what_is_synced_into_a_segment_that_has_just_begun_survives_a_power_cut() {
    let sim = SimVfs::new(1);
    let vfs = BeforeCalls::new(sim.clone(), none_ahead);
    let db = Db::open("/store", options(Arc::new(vfs))).unwrap();
    let env = &db.inner().commit;
    let synced = WriteOptions { sync: Some(SyncMode::Batch) };
    for round in 0..4_u8 {
        db.put([round, 0], b"in the segment before").unwrap();
        begin_segment(env);
        match round % 2 {
            0 => {
                let mut batch = WriteBatch::new();
                batch.put([round, 1], b"synced");
                db.write_with(batch, &synced).unwrap();
            }
            _ => {
                db.put([round, 1], b"synced later").unwrap();
                sync(env).unwrap();
            }
        }
        for seed in 0..POWER_CUTS {
            let after = Db::open("/store", options(Arc::new(sim.crash_image(seed)))).unwrap();
            for key in (0..=round).flat_map(|round| [[round, 0], [round, 1]]) {
                assert!(after.get(key).unwrap().is_some(), "{key:?}, seed {seed}");
            }
        }
    }
}

/// A checkpoint links the segment that the one before it has begun, which has a header alone.
#[test]
fn a_checkpoint_of_a_log_that_ends_with_an_empty_segment_survives_a_power_cut() {
    let sim = SimVfs::new(1);
    let db = Db::open("/store", options(Arc::new(sim.clone()))).unwrap();
    db.put(b"k", b"v").unwrap();
    for target in ["/first", "/second"] {
        db.checkpoint(target).unwrap();
        for seed in 0..POWER_CUTS {
            let copy = Db::open(target, options(Arc::new(sim.crash_image(seed)))).unwrap();
            assert_eq!(copy.get(b"k").unwrap().as_deref(), Some(&b"v"[..]), "seed {seed}");
        }
    }
}

/// What a failed sync of the directory has lost nobody knows, also where the device had no room.
#[test]
fn a_name_that_a_full_device_has_not_taken_stops_writes() {
    let sim = SimVfs::new(1);
    let is_full = Arc::new(AtomicBool::new(false));
    let vfs = {
        let is_full = is_full.clone();
        BeforeCalls::new(sim.clone(), move |call, path| match call {
            Call::SyncDir if is_full.load(Ordering::SeqCst) => {
                let no_room = ErrorKind::StorageFull.into();
                Err(terrace_base::Error::io("sync directory", path, no_room))
            }
            _ => Ok(()),
        })
    };
    let db = Db::open("/store", options(Arc::new(vfs))).unwrap();
    let env = &db.inner().commit;
    is_full.store(true, Ordering::SeqCst);
    begin_segment(env);
    assert!(matches!(name_segments(env), Err(Error::Poisoned(_))));
    is_full.store(false, Ordering::SeqCst);
    assert!(matches!(name_segments(env), Err(Error::Poisoned(_))));
    assert!(matches!(db.put(b"k", b"v"), Err(Error::Poisoned(_))));
}

/// Of a failed sync of the directory the kernel tells one caller, who may have removed files, named evidence, or begun another
/// manifest; the name of a log segment is lost with it.
#[test]
fn a_sync_of_the_directory_that_fails_where_nobody_waits_for_a_name_stops_writes() {
    let removal = |env: &CommitEnv| {
        install::drop_log_segments(&env.versions, &[SegmentNumber::new(900)]);
    };
    let evidence = |env: &CommitEnv| {
        let evidence = &env.versions.evidence;
        let known = evidence.claims();
        // Long files are replaced.
        (0..200).for_each(|_| evidence.note_log(known.log, known.last_seqno));
        evidence.keep_short(0);
    };
    let manifest = |env: &CommitEnv| {
        let mut log = env.versions.manifest.lock();
        // So is a manifest that has outgrown what it began with.
        log.manifest.as_mut().unwrap().set_min_rotate_bytes(0);
        let mut append = || install::append(&env.versions, &mut log, &VersionEdit::default());
        (0..1000).any(|_| append().is_err());
    };
    let ways: [fn(&CommitEnv); 3] = [removal, evidence, manifest];
    let kinds = [ErrorKind::Other, ErrorKind::StorageFull];
    for (way, kind) in ways.into_iter().flat_map(|way| kinds.map(|kind| (way, kind))) {
        let sim = SimVfs::new(1);
        let fails = Arc::new(AtomicBool::new(false));
        let vfs = failing_once(sim.clone(), fails.clone(), kind);
        let db = Db::open("/store", options(Arc::new(vfs))).unwrap();
        let env = &db.inner().commit;
        let removed = names::log_path(Path::new("/store"), SegmentNumber::new(900));
        assert!(sim.write_file(removed, []));
        db.put(b"k", b"v").unwrap();
        begin_segment(env);
        fails.store(true, Ordering::SeqCst);
        way(env);
        assert!(!fails.load(Ordering::SeqCst), "the directory was not synced");
        assert!(matches!(name_segments(env), Err(Error::Poisoned(_))), "{kind}");
        assert!(matches!(db.put(b"k", b"w"), Err(Error::Poisoned(_))));
        assert_eq!(db.get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
    }
}

/// The file system `sim`, on which this thread's next sync of a directory fails once `fails` is set. Those of other threads do
/// not take place: nobody else makes a name durable.
fn failing_once(
    sim: SimVfs,
    fails: Arc<AtomicBool>,
    kind: ErrorKind,
) -> BeforeCalls<SimVfs, impl Fn(Call<'_>, &Path) -> terrace_base::Result<()> + Send + Sync + 'static>
{
    let this = std::thread::current().id();
    BeforeCalls::new(sim, move |call: Call<'_>, path: &Path| match call {
        Call::SyncDir if std::thread::current().id() != this => {
            Err(terrace_base::Error::io("open", path, ErrorKind::Interrupted.into()))
        }
        Call::SyncDir if fails.swap(false, Ordering::SeqCst) => {
            Err(terrace_base::Error::io("sync directory", path, kind.into()))
        }
        _ => Ok(()),
    })
}

/// What a merge has written and cannot name it removes again. Who needs the name of a segment meanwhile must not take it for
/// durable.
#[test]
fn a_merge_that_cannot_sync_the_directory_stops_writes_before_it_removes_its_files() {
    let sim = SimVfs::new(1);
    let db = Db::open("/store", options(Arc::new(sim.clone()))).unwrap();
    for value in [b"v", b"w"] {
        db.put(b"k", value).unwrap();
        db.flush().unwrap();
    }
    db.close().unwrap();
    let fails = Arc::new(AtomicBool::new(false));
    let env_then = Arc::new(Mutex::new(None::<Arc<CommitEnv>>));
    let named = Arc::new(Mutex::new(Vec::<Result<()>>::new()));
    let vfs = {
        let failing = failing_once(sim.clone(), fails.clone(), ErrorKind::Other);
        let (env_then, named, this) =
            (env_then.clone(), named.clone(), std::thread::current().id());
        BeforeCalls::new(failing, move |call: Call<'_>, path: &Path| {
            let is_output = path.extension().is_some_and(|end| end == "sst" || end == "tmp");
            if matches!(call, Call::Remove) && is_output && std::thread::current().id() == this {
                let env = env_then.lock().unwrap().clone();
                let result = env.map(|env| name_segments(&env));
                named.lock().unwrap().extend(result);
            }
            Ok(())
        })
    };
    let db = Db::open("/store", options(Arc::new(vfs))).unwrap();
    let env = &db.inner().commit;
    begin_segment(env);
    *env_then.lock().unwrap() = Some(env.clone());
    fails.store(true, Ordering::SeqCst);
    let merged = db.compact_range::<&[u8]>(..);
    *env_then.lock().unwrap() = None;
    assert!(matches!(merged, Err(Error::Poisoned(_))), "{merged:?}");
    let named = named.lock().unwrap();
    let is_refused = |result: &Result<()>| matches!(result, Err(Error::Poisoned(_)));
    assert!(!named.is_empty() && named.iter().all(is_refused), "{named:?}");
}

/// Somebody copies a file into the directory of an open store, under a number that is to come.
#[test]
fn a_file_with_the_name_of_the_next_segment_is_neither_removed_nor_in_the_way() {
    let sim = SimVfs::new(1);
    let db = Db::open("/store", options(Arc::new(sim.clone()))).unwrap();
    let env = &db.inner().commit;
    let next = env.versions.file_numbers.next();
    let theirs = names::log_path(Path::new("/store"), next.segment());
    assert!(sim.write_file(&theirs, b"theirs"));
    begin_segment(env);
    db.put(b"k", b"v").unwrap();
    db.sync().unwrap();
    assert_eq!(sim.read_file(&theirs).as_deref(), Some(&b"theirs"[..]));
}

/// As that of a backup, which is in the directory of the store.
#[test]
fn a_checkpoint_that_cannot_sync_the_directory_of_the_store_stops_writes() {
    let sim = SimVfs::new(1);
    let fails = Arc::new(AtomicBool::new(false));
    let vfs = {
        let (fails, this) = (fails.clone(), std::thread::current().id());
        BeforeCalls::new(sim, move |call, path| match call {
            Call::SyncDir
                if path == Path::new("/store")
                    && std::thread::current().id() == this
                    && fails.swap(false, Ordering::SeqCst) =>
            {
                Err(terrace_base::Error::io("sync directory", path, ErrorKind::Other.into()))
            }
            _ => Ok(()),
        })
    };
    let db = Db::open("/store", options(Arc::new(vfs))).unwrap();
    db.put(b"k", b"v").unwrap();
    fails.store(true, Ordering::SeqCst);
    let made = db.checkpoint("/store/copy");
    assert!(matches!(made, Err(Error::Poisoned(_))), "{made:?}");
    assert!(matches!(db.put(b"k", b"w"), Err(Error::Poisoned(_))));
}
