//! Leaders that panic, and syncs beside them.

use super::*;
use crate::write::led::or_poison;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicUsize;

const SAID: &str = "a planted panic";

/// Where it panics, with what the store and its writes ask for.
#[derive(Debug, Clone, Copy)]
enum Strikes {
    Append,
    SyncUnderLead,
    SyncWithoutLead,
}

fn is_said<T>(result: &crate::Result<T>) -> bool {
    matches!(result, Err(error @ Error::Poisoned(_)) if error.to_string().contains(SAID))
}

/// The leader's thread panics; those whose batches it has get the reason, nothing is written any more, reads go on, and the
/// next open has what was acknowledged.
#[test]
fn who_waits_for_a_leader_that_panics_gets_the_reason() {
    for strikes in [Strikes::Append, Strikes::SyncUnderLead, Strikes::SyncWithoutLead] {
        let sim = SimVfs::new(1);
        let is_armed = Arc::new(AtomicBool::new(false));
        let armed = is_armed.clone();
        let vfs = BeforeCalls::new(sim.clone(), move |call, path| {
            let is_it = match call {
                Call::Append(_) => matches!(strikes, Strikes::Append),
                Call::Sync(_) => !matches!(strikes, Strikes::Append),
                _ => false,
            };
            let is_log = path.extension().is_some_and(|ending| ending == "log");
            assert!(!(is_it && is_log && armed.load(Ordering::SeqCst)), "{SAID}");
            Ok(())
        });
        let mut options = options(&sim);
        options.sync = match strikes {
            Strikes::SyncUnderLead => SyncMode::Batch,
            _ => SyncMode::None,
        };
        options.advanced.vfs = Arc::new(vfs);
        let db = Db::open("/db", options.clone()).unwrap();
        let write = |n: u32| {
            let mut batch = WriteBatch::new();
            batch.put(key(n), [1; 100]);
            let sync = match strikes {
                Strikes::Append => SyncMode::None,
                _ => SyncMode::Batch,
            };
            db.write_with(batch, &WriteOptions { sync: Some(sync) })
        };
        write(0).unwrap();
        is_armed.store(true, Ordering::SeqCst);
        let queue = db.inner().commit.queue().unwrap();
        let lead = queue.lead();
        let results = thread::scope(|scope| {
            let write = &write;
            let mut writers = Vec::new();
            for n in 1..4 {
                writers.push(scope.spawn(move || write(n)));
                while queue.waiting() < writers.len() {
                    thread::yield_now();
                }
            }
            drop(lead);
            writers.into_iter().map(|writer| writer.join()).collect::<Vec<_>>()
        });
        for (n, result) in results.iter().enumerate() {
            let has_reason = match result {
                Ok(result) => n > 0 && is_said(result),
                Err(panic) => n == 0 && panic.downcast_ref::<String>().is_some_and(|s| s == SAID),
            };
            assert!(has_reason, "{strikes:?}: writer {n}");
        }
        is_armed.store(false, Ordering::SeqCst);
        for refused in [write(4), db.sync()] {
            assert!(is_said(&refused), "{strikes:?}: {refused:?}");
        }
        assert!(db.get(key(0)).unwrap().is_some());
        assert!(db.close().is_err());
        options.advanced.vfs = Arc::new(sim.kill_image());
        let db = Db::open("/db", options).unwrap();
        assert!(db.get(key(0)).unwrap().is_some());
        db.put(key(5), b"v").unwrap();
        db.close().unwrap();
    }
}

/// It ends a segment. Half of what one hands over may be in the file: who leads next would write all of that once more, and no replay
/// goes past it.
#[test]
fn after_a_panic_of_who_leads_without_a_batch_nothing_is_written() {
    let sim = SimVfs::new(1);
    let is_armed = Arc::new(AtomicBool::new(false));
    let (armed, this) = (is_armed.clone(), thread::current().id());
    let vfs = BeforeCalls::new(sim.clone(), move |call, path| {
        let is_log = path.extension().is_some_and(|ending| ending == "log");
        let is_it = is_log && matches!(call, Call::Create) && thread::current().id() == this;
        assert!(!(is_it && armed.load(Ordering::SeqCst)), "{SAID}");
        Ok(())
    });
    let mut options = options(&sim);
    options.sync = SyncMode::None;
    options.advanced.vfs = Arc::new(vfs);
    let db = Db::open("/db", options.clone()).unwrap();
    db.put(key(0), b"v").unwrap();
    is_armed.store(true, Ordering::SeqCst);
    let led = catch_unwind(AssertUnwindSafe(|| db.checkpoint("/copy")));
    assert!(led.is_err());
    is_armed.store(false, Ordering::SeqCst);
    assert!(matches!(db.put(key(1), b"v"), Err(Error::Poisoned(_))));
    assert!(db.get(key(0)).unwrap().is_some());
    assert!(db.close().is_err());
    options.advanced.vfs = Arc::new(sim);
    let db = Db::open("/db", options).unwrap();
    assert!(db.get(key(0)).unwrap().is_some() && db.get(key(1)).unwrap().is_none());
    db.close().unwrap();
}

/// A thread that panics lets its store go, which is closed well.
#[test]
fn a_panic_of_the_program_does_not_keep_the_store_from_being_closed() {
    let sim = SimVfs::new(1);
    let db = Db::open("/db", options(&sim)).unwrap();
    db.put(key(0), b"v").unwrap();
    let other = db.clone();
    let panicked = catch_unwind(AssertUnwindSafe(move || {
        let closes = ClosesOnDrop(other);
        assert_eq!(closes.0.path(), Path::new("/none"), "{SAID}");
    }));
    assert!(panicked.is_err());
    db.close().unwrap();
}

struct ClosesOnDrop(Db);

impl Drop for ClosesOnDrop {
    fn drop(&mut self) {
        self.0.close().unwrap();
    }
}

/// The next group may be in the log by then, and waits for the turn.
#[test]
fn nothing_becomes_visible_behind_what_a_panic_has_left_half_inserted() {
    let sim = SimVfs::new(1);
    let db = Db::open("/db", options(&sim)).unwrap();
    let env = &db.inner().commit;
    let lead = env.queue().unwrap().lead();
    let led = catch_unwind(AssertUnwindSafe(|| {
        or_poison(env, |held| {
            held.turn = Some(lead.insert_turn(1));
            panic!("{SAID}");
        })
    }));
    assert!(led.is_err());
    assert!(lead.insert_turn(1).state.failed);
    assert!(is_said(&env.base.health.check_writable()));
}

/// The file system may have met an error, which the kernel tells once: that the next sync succeeds would say nothing.
#[test]
fn after_a_sync_that_panics_who_waits_to_sync_does_not() {
    let sim = SimVfs::new(1);
    let (is_armed, is_held) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(true)));
    let calls = Arc::new(AtomicUsize::new(0));
    let (armed, held, count) = (is_armed.clone(), is_held.clone(), calls.clone());
    let vfs = BeforeCalls::new(sim.clone(), move |call, path| {
        let is_log = path.extension().is_some_and(|ending| ending == "log");
        if !is_log || !matches!(call, Call::Sync(_)) || !armed.load(Ordering::SeqCst) {
            return Ok(());
        }
        let is_first = count.fetch_add(1, Ordering::SeqCst) == 0;
        while is_first && held.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        assert!(!is_first, "{SAID}");
        Ok(())
    });
    let mut options = options(&sim);
    options.sync = SyncMode::None;
    options.advanced.vfs = Arc::new(vfs);
    let db = Db::open("/db", options).unwrap();
    let syncs = &db.inner().commit.queue().unwrap().syncs;
    db.put(key(0), b"v").unwrap();
    is_armed.store(true, Ordering::SeqCst);
    let (first, second) = thread::scope(|scope| {
        let first = scope.spawn(|| db.sync());
        while calls.load(Ordering::SeqCst) == 0 {
            thread::yield_now();
        }
        let put = db.put(key(1), b"v");
        let second = scope.spawn(|| db.sync());
        while put.is_ok() && syncs.waiting() == 0 {
            thread::yield_now();
        }
        is_held.store(false, Ordering::SeqCst);
        (first.join(), second.join())
    });
    assert!(first.is_err_and(|panic| panic.downcast_ref::<String>().is_some_and(|s| s == SAID)));
    let second = second.unwrap();
    assert!(is_said(&second), "{second:?}");
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    assert!(is_said(&db.put(key(2), b"v")));
}
