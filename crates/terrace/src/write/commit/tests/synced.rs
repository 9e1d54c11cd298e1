//! Writes that wait for their sync, and others beside them.

use super::*;
use crate::tests::until;
use crate::write::log_segments::{end, sync_full_segments};
use crate::{BulkOptions, IngestPosition};
use std::path::PathBuf;
use std::sync::{Condvar, Mutex};
use std::thread::ScopedJoinHandle;
use terrace_vfs::{Fault, FaultKind, OpClass};

const POWER_CUTS: u64 = 8;

/// Syncs of log segments wait before it while it is held.
#[derive(Default)]
struct Gate {
    /// Whether it is held, and how many wait.
    state: Mutex<(bool, usize)>,
    changed: Condvar,
}

impl Gate {
    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.1 += 1;
        let mut state = self.changed.wait_while(state, |(is_held, _)| *is_held).unwrap();
        state.1 -= 1;
    }

    fn waiting(&self) -> usize {
        self.state.lock().unwrap().1
    }

    /// Holds it until it is let go, or what this gives is dropped: a test that fails ends.
    fn hold(&self) -> LetGo<'_> {
        self.state.lock().unwrap().0 = true;
        LetGo(self)
    }

    fn let_go(&self) {
        self.state.lock().unwrap().0 = false;
        self.changed.notify_all();
    }
}

struct LetGo<'a>(&'a Gate);

impl Drop for LetGo<'_> {
    fn drop(&mut self) {
        self.0.let_go();
    }
}

fn store(sync: SyncMode) -> (SimVfs, Arc<Gate>, Db) {
    let (sim, gate) = (SimVfs::new(1), Arc::new(Gate::default()));
    let passing = gate.clone();
    let vfs = BeforeCalls::new(sim.clone(), move |call, path| {
        if matches!(call, Call::Sync(_)) && path.extension().is_some_and(|end| end == "log") {
            passing.pass();
        }
        Ok(())
    });
    let mut options = Options { sync, ..options(&sim) };
    options.advanced.vfs = Arc::new(vfs);
    let db = Db::open("/db", options).unwrap();
    (sim, gate, db)
}

fn write(db: &Db, key: u8, sync: SyncMode) -> crate::Result<()> {
    let mut batch = WriteBatch::new();
    batch.put([key], b"v");
    db.write_with(batch, &WriteOptions { sync: Some(sync) })
}

fn is_there(db: &Db, key: u8) -> bool {
    db.get([key]).unwrap().is_some()
}

/// How many wait for a sync that another one makes.
fn waiting(db: &Db) -> usize {
    db.inner().commit.queue().unwrap().syncs.waiting()
}

/// How many of the keys from 0 on a store has that is opened on `image`; none behind one that is missing.
fn left(image: &SimVfs) -> usize {
    let db = Db::open("/db", options(image)).unwrap();
    let there: Vec<bool> = (0..8).map(|key| is_there(&db, key)).collect();
    let left = there.iter().take_while(|is_there| **is_there).count();
    assert!(!there[left..].contains(&true), "no prefix: {there:?}");
    left
}

fn ended<T>(what: &str, thread: ScopedJoinHandle<'_, T>) -> T {
    until(what, || thread.is_finished());
    thread.join().unwrap()
}

#[test]
fn others_write_while_a_write_waits_for_its_sync() {
    let hour = SyncMode::Interval(Duration::from_secs(3600));
    for mode in [SyncMode::None, SyncMode::Buffered, hour] {
        let (sim, gate, db) = store(mode);
        write(&db, 0, SyncMode::None).unwrap();
        let syncs = db.metrics().log_syncs;
        thread::scope(|scope| {
            let db = &db;
            let _lets_go = gate.hold();
            let first = scope.spawn(move || write(db, 1, SyncMode::Batch));
            until("a sync", || gate.waiting() == 1);
            assert!(is_there(db, 1), "it waits in the memtable");
            let other = scope.spawn(move || write(db, 2, SyncMode::None));
            ended("a write without a sync is answered", other).unwrap();
            let third = scope.spawn(move || write(db, 3, SyncMode::Batch));
            until("the next group waits for the next sync", || waiting(db) == 1);
            let fourth = scope.spawn(move || write(db, 4, SyncMode::Batch));
            until("and one more", || waiting(db) == 2);
            assert!(is_there(db, 3) && is_there(db, 4));
            let waits = [&first, &third, &fourth];
            assert!(waits.iter().all(|thread| !thread.is_finished()), "answered before its sync");
            assert_eq!(gate.waiting(), 1, "one syncs at a time");
            for seed in 0..POWER_CUTS {
                left(&sim.crash_image(seed));
            }
            gate.let_go();
            for waiting in [first, third, fourth] {
                ended("a synced write", waiting).unwrap();
            }
        });
        assert_eq!(db.metrics().log_syncs - syncs, 2, "those who wait share a sync: {mode:?}");
        for seed in 0..POWER_CUTS {
            assert_eq!(left(&sim.crash_image(seed)), 5, "{mode:?}, seed {seed}");
        }
    }
}

#[test]
fn others_write_while_the_store_is_synced() {
    let (sim, gate, db) = store(SyncMode::None);
    write(&db, 0, SyncMode::None).unwrap();
    thread::scope(|scope| {
        let db = &db;
        let _lets_go = gate.hold();
        let everything = scope.spawn(move || db.sync());
        until("a sync", || gate.waiting() == 1);
        let other = scope.spawn(move || write(db, 1, SyncMode::None));
        ended("a write without a sync is answered", other).unwrap();
        assert!(!everything.is_finished());
        gate.let_go();
        ended("the sync", everything).unwrap();
    });
    for seed in 0..POWER_CUTS {
        assert!(left(&sim.crash_image(seed)) >= 1, "seed {seed}");
    }
    let syncs = db.metrics().log_syncs;
    db.sync().unwrap();
    db.sync().unwrap();
    assert_eq!(db.metrics().log_syncs - syncs, 1, "the second one has nothing to do");
    for seed in 0..POWER_CUTS {
        assert_eq!(left(&sim.crash_image(seed)), 2, "seed {seed}");
    }
}

/// Others write while `job` makes durable what was written before it.
fn is_synced_beside_writers(prepare: fn(&Db), job: fn(&Db) -> crate::Result<()>) {
    let (sim, gate, db) = store(SyncMode::None);
    prepare(&db);
    write(&db, 0, SyncMode::None).unwrap();
    thread::scope(|scope| {
        let db = &db;
        let _lets_go = gate.hold();
        let working = scope.spawn(move || job(db));
        until("a sync", || gate.waiting() == 1);
        let other = scope.spawn(move || write(db, 1, SyncMode::None));
        ended("a write without a sync is answered", other).unwrap();
        assert!(!working.is_finished());
        gate.let_go();
        ended("the work", working).unwrap();
    });
    for seed in 0..POWER_CUTS {
        assert_eq!(left(&sim.crash_image(seed)), 2, "seed {seed}");
    }
}

#[test]
fn others_write_while_the_log_is_synced_for_a_checkpoint() {
    is_synced_beside_writers(|_| {}, |db| db.checkpoint("/copy"));
}

#[test]
fn others_write_while_the_log_is_synced_for_the_drop_of_a_family() {
    let prepare = |db: &Db| drop(db.create_column_family("f", CfOptions::default()).unwrap());
    is_synced_beside_writers(prepare, |db| db.drop_column_family("f"));
}

#[test]
fn others_write_while_the_log_is_synced_for_an_ingestion() {
    let above = |db: &Db| load(db, IngestPosition::Above);
    is_synced_beside_writers(|_| {}, above);
    let below = |db: &Db| load(db, IngestPosition::Below);
    is_synced_beside_writers(|_| {}, below);
}

/// Ingests a key that no other test writes.
fn load(db: &Db, position: IngestPosition) -> crate::Result<()> {
    let mut loader = db.bulk_loader(&BulkOptions { memory_bytes: 1 << 20, position })?;
    loader.put([100], b"v")?;
    loader.finish().map(drop)
}

/// The writer that leads the group is the first of two that wait.
#[test]
fn of_a_group_only_those_wait_for_a_sync_who_asked_for_one() {
    let (_, gate, db) = store(SyncMode::None);
    let queue = db.inner().commit.queue().unwrap();
    for syncs_first in [true, false] {
        thread::scope(|scope| {
            let db = &db;
            let _lets_go = gate.hold();
            let lead = queue.lead();
            let modes = match syncs_first {
                true => [SyncMode::Batch, SyncMode::None],
                false => [SyncMode::None, SyncMode::Batch],
            };
            let mut number = 0;
            let mut writers = modes.map(|mode| {
                let writer = scope.spawn(move || write(db, number, mode));
                number += 1;
                until("it waits", || queue.waiting() == usize::from(number));
                writer
            });
            drop(lead);
            if syncs_first {
                writers.reverse();
            }
            let [plain, synced] = writers;
            ended("the one without a sync", plain).unwrap();
            until("a sync", || gate.waiting() == 1);
            assert!(!synced.is_finished());
            gate.let_go();
            ended("the other one", synced).unwrap();
        });
    }
}

#[test]
fn where_every_commit_is_synced_nothing_is_visible_before_it_is_durable() {
    let (sim, gate, db) = store(SyncMode::Batch);
    thread::scope(|scope| {
        let db = &db;
        let _lets_go = gate.hold();
        let first = scope.spawn(move || db.put([0], b"v"));
        until("a sync", || gate.waiting() == 1);
        assert!(!is_there(db, 0) && !first.is_finished());
        gate.let_go();
        ended("the write", first).unwrap();
    });
    assert!(is_there(&db, 0));
    for seed in 0..POWER_CUTS {
        assert_eq!(left(&sim.crash_image(seed)), 1, "seed {seed}");
    }
}

/// The fault strikes once: nobody may sync again and take it for a success.
#[test]
fn a_sync_that_fails_refuses_all_who_wait_for_it_and_all_that_follows() {
    let (sim, gate, db) = store(SyncMode::None);
    write(&db, 0, SyncMode::Batch).unwrap();
    thread::scope(|scope| {
        let db = &db;
        let _lets_go = gate.hold();
        let first = scope.spawn(move || write(db, 1, SyncMode::Batch));
        until("a sync", || gate.waiting() == 1);
        write(db, 2, SyncMode::None).unwrap();
        let second = scope.spawn(move || write(db, 3, SyncMode::Batch));
        until("it waits for the next sync", || waiting(db) == 1);
        let (kind, filter) = (FaultKind::SyncFails, Some(OpClass::Sync));
        sim.set_fault(Some(Fault { at_op: 0, kind, forever: false, filter }));
        gate.let_go();
        for waiting in [first, second] {
            let result = ended("a refusal", waiting);
            assert!(matches!(result, Err(Error::Poisoned(_))), "{result:?}");
        }
    });
    assert_eq!(sim.executed_faults(), 1);
    for sync in [SyncMode::None, SyncMode::Batch] {
        assert!(matches!(write(&db, 7, sync), Err(Error::Poisoned(_))));
    }
    assert!(matches!(db.sync(), Err(Error::Poisoned(_))));
    assert!((0..4).all(|key| is_there(&db, key)), "reads go on");
    assert!(matches!(db.close(), Err(Error::Poisoned(_))));
    assert_eq!(left(&sim.kill_image()), 4);
    for seed in 0..POWER_CUTS {
        assert!(left(&sim.crash_image(seed)) >= 1, "seed {seed}");
    }
}

#[test]
fn a_segment_may_end_while_it_is_synced() {
    let (sim, gate, db) = store(SyncMode::None);
    let env = &db.inner().commit;
    write(&db, 0, SyncMode::None).unwrap();
    thread::scope(|scope| {
        let db = &db;
        let _lets_go = gate.hold();
        let first = scope.spawn(move || write(db, 1, SyncMode::Batch));
        until("a sync", || gate.waiting() == 1);
        {
            let lead = env.queue().unwrap().lead();
            next_segment(env, &mut lead.log()).unwrap();
        }
        write(db, 2, SyncMode::None).unwrap();
        let second = scope.spawn(move || write(db, 3, SyncMode::Batch));
        until("it waits for the next sync", || waiting(db) == 1);
        assert!(!first.is_finished() && !second.is_finished());
        gate.let_go();
        ended("the first", first).unwrap();
        ended("the second", second).unwrap();
    });
    for seed in 0..POWER_CUTS {
        assert_eq!(left(&sim.crash_image(seed)), 4, "seed {seed}");
    }
}

/// Evidence of a sync is written behind it: not into the files of whom has the store next.
#[test]
fn a_close_waits_for_syncs_that_are_under_way() {
    let (sim, gate, db) = store(SyncMode::None);
    let env = &db.inner().commit;
    thread::scope(|scope| {
        let db = &db;
        let _lets_go = gate.hold();
        let first = scope.spawn(move || write(db, 0, SyncMode::Batch));
        until("a sync", || gate.waiting() == 1);
        let second = scope.spawn(move || write(db, 1, SyncMode::Batch));
        until("it waits for the next sync", || waiting(db) == 1);
        let end = scope.spawn(move || end(env));
        until("the end of the log comes", || waiting(db) == 2 || gate.waiting() == 2);
        assert_eq!(gate.waiting(), 1, "it syncs beside another");
        gate.let_go();
        ended("the end", end).unwrap();
        ended("the first", first).unwrap();
        ended("the second", second).unwrap();
    });
    assert!(matches!(write(&db, 2, SyncMode::None), Err(Error::Closed)));
    for seed in 0..POWER_CUTS {
        assert_eq!(left(&sim.crash_image(seed)), 2, "seed {seed}");
    }
}

#[test]
fn nothing_is_written_after_a_close() {
    let (sim, gate, db) = store(SyncMode::None);
    thread::scope(|scope| {
        let db = &db;
        let _lets_go = gate.hold();
        let first = scope.spawn(move || write(db, 0, SyncMode::Batch));
        until("a sync", || gate.waiting() == 1);
        let second = scope.spawn(move || write(db, 1, SyncMode::Batch));
        until("it waits for the next sync", || waiting(db) == 1);
        let close = scope.spawn(move || db.close());
        gate.let_go();
        ended("the close", close).unwrap();
        let calls = sim.op_count();
        ended("the first", first).unwrap();
        ended("the second", second).unwrap();
        assert_eq!(sim.op_count(), calls);
    });
    for seed in 0..POWER_CUTS {
        assert_eq!(left(&sim.crash_image(seed)), 2, "seed {seed}");
    }
}

/// A segment that has ended is synced by flushes, too, which leave no evidence of that: its loss would not be seen.
#[test]
fn a_synced_write_is_answered_when_there_is_evidence_of_it() {
    let (_, _, db) = store(SyncMode::None);
    let env = &db.inner().commit;
    let queue = env.queue().unwrap();
    thread::scope(|scope| {
        let db = &db;
        let turn = queue.syncs.turn();
        let synced = scope.spawn(move || write(db, 0, SyncMode::Batch));
        until("it waits", || waiting(db) == 1);
        {
            let lead = queue.lead();
            next_segment(env, &mut lead.log()).unwrap();
        }
        sync_full_segments(env).unwrap();
        let history = &env.versions.log_history;
        assert_eq!(history.synced().get(), db.latest_seqno(), "it is durable");
        drop(turn);
        ended("the write", synced).unwrap();
    });
    assert_eq!(env.versions.evidence.claims().last_seqno.get(), db.latest_seqno());
}

/// What one writer writes to the log, without room that is set aside, and how many calls of the file system it makes for that.
fn alone(mode: SyncMode) -> (Vec<(PathBuf, Vec<u8>)>, u64) {
    let (sim, calls) = (SimVfs::new(1), Arc::new(Mutex::new(0)));
    let (counted, this) = (calls.clone(), thread::current().id());
    let vfs = BeforeCalls::new(sim.clone(), move |_, _| {
        *counted.lock().unwrap() += u64::from(thread::current().id() == this);
        Ok(())
    });
    let mut options = Options { sync: mode, ..options(&sim) };
    options.advanced.vfs = Arc::new(vfs);
    let db = Db::open("/db", options).unwrap();
    let before = *calls.lock().unwrap();
    (0..8).for_each(|key| write(&db, key, SyncMode::Batch).unwrap());
    let made = *calls.lock().unwrap() - before;
    let is_segment = |path: &PathBuf| path.extension().is_some_and(|end| end == "log");
    // The store is open: all of it as of one moment.
    let sim = sim.kill_image();
    let files = sim.files().into_iter().map(|(path, _)| path).filter(is_segment);
    let log = files.map(|path| {
        let mut bytes = sim.read_file(&path).unwrap();
        bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1));
        (path, bytes)
    });
    (log.collect(), made)
}

#[test]
fn one_writer_alone_makes_the_same_calls_and_the_same_log() {
    let (log, calls) = alone(SyncMode::Batch);
    assert!(calls >= 8 * 3, "an append, a sync and a claim each");
    assert_eq!(alone(SyncMode::None), (log, calls));
}
