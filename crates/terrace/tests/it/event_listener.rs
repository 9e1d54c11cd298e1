//! Event listeners: each event comes with its facts, in the order of what happened, and what a listener does harms nobody.

use crate::harness::{
    DIR, Generator, Mix, Run, Store, effort, over_seeds, small_options, stopped_clock,
};
use crate::held::{COMPACTION, FLUSH, Held};
use crate::ingesting::write_numbered;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};
use terrace::vfs::{Fault, FaultKind, SimVfs, Vfs};
use terrace::{
    BackgroundError, CfOptions, CompactionBegun, CompactionEnded, Compression, Db, Error,
    ErrorSeverity, EventListener, FileCreated, FileDeleted, FilesIngested, FlushBegun, FlushEnded,
    IngestOptions, MemtableSealed, Options, StallChanged, StallCondition,
};

#[derive(Debug, Clone)]
enum Heard {
    Sealed(MemtableSealed),
    FlushBegun(FlushBegun),
    FlushEnded(FlushEnded),
    CompactionBegun(CompactionBegun),
    CompactionEnded(CompactionEnded),
    Stall(StallChanged),
    Error(BackgroundError),
    Created(FileCreated),
    Deleted(FileDeleted),
    Ingested(FilesIngested),
}

impl Heard {
    fn name(&self) -> &'static str {
        match self {
            Self::Sealed(_) => "sealed",
            Self::FlushBegun(_) => "flush begun",
            Self::FlushEnded(_) => "flush ended",
            Self::CompactionBegun(_) => "compaction begun",
            Self::CompactionEnded(_) => "compaction ended",
            Self::Stall(_) => "stall",
            Self::Error(_) => "error",
            Self::Created(_) => "created",
            Self::Deleted(_) => "deleted",
            Self::Ingested(_) => "ingested",
        }
    }
}

/// Writes down what it hears.
#[derive(Default)]
struct Recorder(Mutex<Vec<Heard>>);

impl Recorder {
    fn note(&self, heard: Heard) {
        self.0.lock().unwrap().push(heard);
    }

    /// All of it, once the store is closed.
    fn all(&self) -> Vec<Heard> {
        self.0.lock().unwrap().clone()
    }
}

impl EventListener for Recorder {
    fn on_memtable_sealed(&self, event: &MemtableSealed) {
        self.note(Heard::Sealed(event.clone()));
    }
    fn on_flush_begun(&self, event: &FlushBegun) {
        self.note(Heard::FlushBegun(event.clone()));
    }
    fn on_flush_ended(&self, event: &FlushEnded) {
        self.note(Heard::FlushEnded(event.clone()));
    }
    fn on_compaction_begun(&self, event: &CompactionBegun) {
        self.note(Heard::CompactionBegun(event.clone()));
    }
    fn on_compaction_ended(&self, event: &CompactionEnded) {
        self.note(Heard::CompactionEnded(event.clone()));
    }
    fn on_stall_changed(&self, event: &StallChanged) {
        self.note(Heard::Stall(event.clone()));
    }
    fn on_background_error(&self, event: &BackgroundError) {
        self.note(Heard::Error(event.clone()));
    }
    fn on_file_created(&self, event: &FileCreated) {
        self.note(Heard::Created(event.clone()));
    }
    fn on_file_deleted(&self, event: &FileDeleted) {
        self.note(Heard::Deleted(event.clone()));
    }
    fn on_files_ingested(&self, event: &FilesIngested) {
        self.note(Heard::Ingested(event.clone()));
    }
    fn on_events_lost(&self, count: u64) {
        panic!("{count} events were lost");
    }
}

/// Nothing compacts but for `compact_range`.
fn quiet_options(vfs: Arc<dyn Vfs>, listeners: Vec<Arc<dyn EventListener>>) -> Options {
    let mut options = Options { memory_budget: 4 << 20, ..Options::default() };
    // So that files can move from level to level as they are.
    options.default_family.compression = vec![Compression::None];
    let a = &mut options.advanced;
    a.vfs = vfs;
    a.clock = Arc::new(stopped_clock());
    a.compact_when_idle = false;
    (a.l0_compaction_trigger, a.l0_slowdown, a.l0_stop) = (100, 200, 300);
    a.reserve_bytes = 0;
    a.event_listeners = listeners;
    options
}

fn recorded(vfs: Arc<dyn Vfs>) -> (Db, Arc<Recorder>) {
    let recorder = Arc::new(Recorder::default());
    (Db::open(DIR, quiet_options(vfs, vec![recorder.clone()])).unwrap(), recorder)
}

#[test]
fn a_flush_is_told_from_the_memtable_to_the_file() {
    let (db, recorder) = recorded(Arc::new(SimVfs::new(1)));
    db.put("a", "1").unwrap();
    db.put("b", "2").unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    // The log's files go at any time. The close has nothing to flush.
    let mut heard = recorder.all();
    heard.retain(|heard| heard.name() != "deleted");
    let [
        Heard::Sealed(sealed),
        Heard::FlushBegun(begun),
        Heard::Created(created),
        Heard::FlushEnded(ended),
    ] = &heard[..]
    else {
        panic!("{heard:?}")
    };
    assert_eq!((sealed.family.as_str(), sealed.entry_count), ("default", 2));
    assert!(sealed.size_bytes > 0);
    assert_eq!((begun.family.as_str(), begun.memtables, begun.entry_count), ("default", 1, 2));
    assert_eq!((ended.job, ended.family.as_str()), (begun.job, "default"));
    assert!(ended.error.is_none());
    assert_eq!(ended.files, std::slice::from_ref(&created.file));
    assert_eq!((created.file.level, created.file.entry_count), (0, 2));
    assert!(created.file.size_bytes > 0 && created.path.starts_with(DIR));
}

#[test]
fn a_compaction_is_told_with_what_it_reads_and_writes_and_a_move_as_one() {
    let (db, recorder) = recorded(Arc::new(SimVfs::new(1)));
    for value in ["1", "2"] {
        db.put("a", value).unwrap();
        db.flush().unwrap();
    }
    db.compact_range::<&[u8]>(..).unwrap();
    db.put("b", "1").unwrap();
    db.flush().unwrap();
    db.compact_range::<&[u8]>(..).unwrap();
    db.close().unwrap();
    let heard = recorder.all();
    let created: Vec<_> = heard
        .iter()
        .filter_map(|heard| match heard {
            Heard::Created(created) => Some(created),
            _ => None,
        })
        .collect();
    let begun: Vec<_> = heard
        .iter()
        .filter_map(|heard| match heard {
            Heard::CompactionBegun(begun) => Some(begun),
            _ => None,
        })
        .collect();
    let ended: Vec<_> = heard
        .iter()
        .filter_map(|heard| match heard {
            Heard::CompactionEnded(ended) => Some(ended),
            _ => None,
        })
        .collect();
    let (first, first_ended) = (begun[0], ended[0]);
    assert_eq!((first.job, first.family.as_str()), (first_ended.job, "default"));
    assert_eq!((first.reason, first_ended.reason), ("manual", "manual"));
    assert!(!first.is_move && first.output_level > 0 && first_ended.error.is_none());
    let inputs: BTreeSet<u64> = first.inputs.iter().map(|file| file.number).collect();
    assert_eq!(inputs, created[..2].iter().map(|created| created.file.number).collect());
    assert!(first.inputs.iter().all(|file| file.level == 0));
    assert_eq!(first_ended.outputs, [created[2].file.clone()]);
    assert_eq!(first_ended.outputs[0].level, first.output_level);
    assert_eq!(first_ended.written_bytes, created[2].file.size_bytes);
    assert_eq!(first_ended.read_bytes, first.inputs.iter().map(|f| f.size_bytes).sum::<u64>());
    let deleted: BTreeSet<PathBuf> = heard
        .iter()
        .filter_map(|heard| match heard {
            Heard::Deleted(deleted) => Some(deleted.path.clone()),
            _ => None,
        })
        .collect();
    assert!(created[..2].iter().all(|created| deleted.contains(&created.path)));
    let moved = begun.iter().position(|begun| begun.is_move).unwrap();
    let (begun, ended) = (begun[moved], ended[moved]);
    assert_eq!((begun.job, ended.written_bytes), (ended.job, 0));
    let to = |file: &terrace::SstInfo| (file.number, begun.output_level);
    assert_eq!(
        ended.outputs.iter().map(|f| (f.number, f.level)).collect::<Vec<_>>(),
        begun.inputs.iter().map(to).collect::<Vec<_>>()
    );
}

#[test]
fn a_stop_is_told_and_its_end() {
    /// Lets flushes go on when it hears that writes stand still.
    struct LetsGo(Arc<Held>);
    impl EventListener for LetsGo {
        fn on_stall_changed(&self, event: &StallChanged) {
            if event.now == StallCondition::Stopped {
                self.0.let_go();
            }
        }
    }
    let vfs = Held::new(FLUSH);
    let recorder = Arc::new(Recorder::default());
    let listeners: Vec<Arc<dyn EventListener>> =
        vec![recorder.clone(), Arc::new(LetsGo(vfs.clone()))];
    let mut options = quiet_options(vfs.clone(), listeners);
    options.advanced.memtable_bytes = 64 << 10;
    let db = Db::open(DIR, options).unwrap();
    let _lets_go = vfs.let_go_on_drop();
    // More than all memtables hold: without the word nobody would go on.
    for n in 0..4000u64 {
        db.put(n.to_be_bytes(), vec![n as u8; 500]).unwrap();
    }
    db.close().unwrap();
    let stalls: Vec<StallChanged> = recorder
        .all()
        .into_iter()
        .filter_map(|heard| match heard {
            Heard::Stall(stall) => Some(stall),
            _ => None,
        })
        .collect();
    let first = &stalls[0];
    assert_eq!((first.family.as_str(), first.before), ("default", StallCondition::Normal));
    assert_eq!((first.now, first.cause), (StallCondition::Stopped, Some("memtables")));
    assert!(stalls.windows(2).all(|pair| pair[0].now == pair[1].before), "{stalls:?}");
    assert_eq!(stalls.last().unwrap().now, StallCondition::Normal);
}

/// Nobody writes to it who would find out.
#[test]
fn writes_to_a_family_that_is_dropped_are_slowed_no_longer() {
    let vfs = Held::new(COMPACTION);
    let recorder = Arc::new(Recorder::default());
    let mut options = quiet_options(vfs.clone(), vec![recorder.clone()]);
    let a = &mut options.advanced;
    (a.l0_compaction_trigger, a.l0_slowdown, a.l0_stop) = (2, 3, 100);
    let db = Db::open(DIR, options).unwrap();
    let _lets_go = vfs.let_go_on_drop();
    let family = db.create_column_family("f", CfOptions::default()).unwrap();
    // No merge ends.
    for value in ["1", "2", "3"] {
        family.put("a", value).unwrap();
        db.flush().unwrap();
    }
    family.put("a", "4").unwrap();
    db.drop_column_family("f").unwrap();
    vfs.let_go();
    db.close().unwrap();
    let stalls: Vec<(String, StallCondition, StallCondition)> = recorder
        .all()
        .into_iter()
        .filter_map(|heard| match heard {
            Heard::Stall(stall) => Some((stall.family, stall.before, stall.now)),
            _ => None,
        })
        .collect();
    let (normal, slowed) = (StallCondition::Normal, StallCondition::Slowed);
    let changes = [(normal, slowed), (slowed, normal)].map(|(a, b)| ("f".to_string(), a, b));
    assert_eq!(stalls, changes);
}

#[test]
fn a_job_that_fails_is_told_and_the_error() {
    let sim = SimVfs::new(1);
    let (db, recorder) = recorded(Arc::new(sim.clone()));
    db.put("a", "1").unwrap();
    db.flush().unwrap();
    let mut files = sim.files().into_iter().map(|(path, _)| path);
    let file = files.rfind(|path| path.extension() == Some("sst".as_ref())).unwrap();
    assert!(sim.corrupt(&file, 30, 0x10));
    db.put("a", "2").unwrap();
    db.flush().unwrap();
    // The caller gets this one.
    assert!(matches!(db.compact_range::<&[u8]>(..), Err(Error::Corruption(_))));
    // Everything that is written from here on fails.
    let kind = FaultKind::SyncFails;
    sim.set_fault(Some(Fault { at_op: 0, kind, forever: true, filter: None }));
    assert!(db.put("b", "1").and_then(|()| db.flush()).is_err());
    let _ = db.close();
    let heard = recorder.all();
    let failed = heard.iter().find_map(|heard| match heard {
        Heard::CompactionEnded(ended) => Some(ended.clone()),
        _ => None,
    });
    let failed = failed.unwrap();
    assert!(matches!(failed.error, Some(Error::Corruption(_))) && failed.outputs.is_empty());
    let fatal = heard.iter().find_map(|heard| match heard {
        Heard::Error(error) if error.severity == ErrorSeverity::Fatal => Some(error),
        _ => None,
    });
    assert!(matches!(fatal.unwrap().error, Error::Poisoned(_)), "{heard:?}");
}

#[test]
fn an_ingestion_is_told() {
    let recorder = Arc::new(Recorder::default());
    let sim: Arc<dyn Vfs> = Arc::new(SimVfs::new(1));
    let store = Store::of(Db::open(DIR, quiet_options(sim, vec![recorder.clone()])).unwrap());
    let paths = [
        write_numbered(&store, "/one.sst", &[0, 7], "v"),
        write_numbered(&store, "/two.sst", &[1, 8], "v"),
    ];
    store.db.ingest(&paths, &IngestOptions::default()).unwrap();
    store.db.close().unwrap();
    let heard = recorder.all();
    let [Heard::Created(_), Heard::Created(_), Heard::Ingested(ingested)] = &heard[..3] else {
        panic!("{heard:?}")
    };
    assert_eq!((ingested.family.as_str(), ingested.files, ingested.entry_count), ("default", 2, 4));
    assert!(ingested.size_bytes > 0);
}

#[test]
fn a_listener_may_call_the_store_and_panic() {
    struct Calls {
        db: OnceLock<Db>,
        seen: Mutex<Vec<bool>>,
    }
    impl EventListener for Calls {
        fn on_flush_ended(&self, _: &FlushEnded) {
            if let Some(db) = self.db.get() {
                let seen = db.get("a").unwrap().is_some();
                db.put("from a listener", "1").unwrap();
                self.seen.lock().unwrap().push(seen);
            }
            panic!("a planted panic");
        }
    }
    let calls = Arc::new(Calls { db: OnceLock::new(), seen: Mutex::default() });
    let recorder = Arc::new(Recorder::default());
    let vfs = Arc::new(SimVfs::new(1));
    let listeners: Vec<Arc<dyn EventListener>> = vec![calls.clone(), recorder.clone()];
    let db = Db::open(DIR, quiet_options(vfs, listeners)).unwrap();
    assert!(calls.db.set(db.clone()).is_ok());
    db.put("a", "1").unwrap();
    db.flush().unwrap();
    // Its end has been told when the next one has begun to be.
    db.put("b", "1").unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    assert!(calls.seen.lock().unwrap().iter().all(|seen| *seen));
    let ended = recorder.all().iter().filter(|heard| heard.name() == "flush ended").count();
    assert!(ended >= 2, "the other listener hears all of it");
}

/// The events of files and jobs add up, whatever happens in the store.
#[test]
fn what_is_told_of_files_and_jobs_adds_up() {
    over_seeds("event listener", effort(6), |seed, _| {
        let clock = stopped_clock();
        let sim = SimVfs::new(seed);
        let recorder = Arc::new(Recorder::default());
        let mut options = small_options(Arc::new(sim.clone()), &clock);
        options.advanced.event_listeners = vec![recorder.clone()];
        let mix = Mix { maintain_one_in: 12, ..Mix::default() };
        let generator = Generator::new(seed, mix, &clock);
        let mut run = Run::new(options, &clock, generator, Arc::default());
        // The open has made none: the store was empty.
        for _ in 0..300 {
            run.step();
        }
        let Run { store, .. } = run;
        store.db.close().unwrap();
        drop(store);
        let heard = recorder.all();
        let mut files: BTreeMap<PathBuf, u64> = BTreeMap::new();
        let mut running: BTreeSet<(&str, u64)> = BTreeSet::new();
        for event in &heard {
            match event {
                Heard::Created(created) => {
                    let before = files.insert(created.path.clone(), created.file.size_bytes);
                    assert!(before.is_none(), "{created:?} for the second time");
                }
                Heard::Deleted(deleted) if deleted.path.extension() == Some("sst".as_ref()) => {
                    assert!(files.remove(&deleted.path).is_some(), "{deleted:?} was never there");
                }
                Heard::FlushBegun(begun) => assert!(running.insert(("flush", begun.job))),
                Heard::FlushEnded(ended) => assert!(running.remove(&("flush", ended.job))),
                Heard::CompactionBegun(begun) => {
                    assert!(running.insert(("compaction", begun.job)));
                }
                Heard::CompactionEnded(ended) => {
                    assert!(running.remove(&("compaction", ended.job)));
                }
                _ => {}
            }
        }
        assert!(running.is_empty(), "{running:?} never ended");
        let there: BTreeMap<PathBuf, u64> = sim
            .files()
            .into_iter()
            .filter(|(path, _)| path.starts_with(DIR))
            .filter(|(path, _)| path.extension() == Some("sst".as_ref()))
            .collect();
        assert_eq!(files, there);
        for name in ["sealed", "flush ended", "compaction ended", "created", "deleted", "ingested"]
        {
            assert!(heard.iter().any(|heard| heard.name() == name), "seed {seed}: never {name}");
        }
        1
    });
}
