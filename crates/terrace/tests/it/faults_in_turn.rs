//! Every file-system call of every step fails once, in turn: the first, the second, and so on until
//! the step ends without meeting the fault (as SQLite tests its error paths). The error is typed,
//! every call returns, and reads of every kind go on. Neither a kill nor a power cut then loses
//! anything: all of it was written with a sync before the step. The next open goes on, and leaves no
//! file that nothing names. Where only descriptors were missing, the store is written on as it is.
//!
//! R4 (`faults`) draws faults at random over long workloads; here no call of these steps is left out.

use crate::harness::{DIR, HANG_GUARD, Store, key, small_options, stopped_clock};
use crate::left_over::left_over;
use crate::model::Contents;
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};
use terrace::vfs::{Fault, FaultKind, SimVfs};
use terrace::{
    CfOptions, Error, IngestOptions, Options, Result, SstWriter, SyncMode, WriteBatch, WriteOptions,
};

/// More calls than any step makes: a step that still meets the fault then never ends.
const MAX_CALLS: u64 = 5000;

/// What goes wrong. Short writes are left to R4: here they would mean the same for most calls.
const KINDS: [FaultKind; 3] = [FaultKind::Eio, FaultKind::Enospc, FaultKind::NoDescriptors];

/// The keys that are written before the step, with a sync and without; and the one that it writes:
/// whether that one is there if the step fails is open.
const SYNCED: u64 = 500;
const UNSYNCED: u64 = 501;
const BY_THE_STEP: u64 = 502;

/// Puts one of these keys.
fn put(store: &Store, number: u64, sync: Option<SyncMode>) -> Result<()> {
    let mut batch = WriteBatch::new();
    batch.put(key(number), value(number));
    store.db.write_with(batch, &WriteOptions { sync })
}

fn value(number: u64) -> Vec<u8> {
    vec![number as u8; 300]
}

/// What is done under the fault.
type Step = fn(&Store) -> Result<()>;

const STEPS: [(&str, Step); 11] = [
    (WRITE, |store| put(store, BY_THE_STEP, None)),
    (SYNCED_WRITE, |store| put(store, BY_THE_STEP, Some(SyncMode::Batch))),
    ("sync", |store| store.db.sync()),
    ("flush", |store| store.db.flush()),
    ("compact", |store| store.families[0].compact_range::<&[u8]>(..)),
    (INGEST, |store| store.db.ingest(&[OUTSIDE], &IngestOptions::default()).map(drop)),
    ("collect garbage", |store| store.db.collect_garbage(0.0)),
    ("checkpoint", |store| store.db.checkpoint("/checkpoint")),
    ("create a family", |store| {
        store.db.create_column_family("fresh", CfOptions::default()).map(drop)
    }),
    ("drop a family", |store| store.db.drop_column_family("extra")),
    (CLOSE, |store| store.db.close()),
];
const WRITE: &str = "write";
const SYNCED_WRITE: &str = "write with a sync";
const CLOSE: &str = "close";
const INGEST: &str = "ingest";
const OPEN: &str = "open";

/// A file to ingest, with the key that is written by the step.
const OUTSIDE: &str = "/outside.sst";

fn options(vfs: &SimVfs) -> Options {
    let mut options = small_options(Arc::new(vfs.clone()), &stopped_clock());
    options.sync = SyncMode::None;
    options.default_family.value_separation_threshold = 200;
    options.advanced.segment_bytes = 8 << 10;
    options.advanced.compact_when_idle = false;
    options
}

/// A killed store with files in several levels, values in the log, and a log to replay; and what it
/// holds.
fn killed_store() -> (SimVfs, Contents) {
    let sim = SimVfs::new(3);
    let store = Store::open(options(&sim)).unwrap();
    store.db.create_column_family("extra", CfOptions::default()).unwrap();
    for round in 0..3u8 {
        for n in 0..40 {
            let len = if n % 3 == 0 { 300 } else { 40 };
            store.families[n as usize % 3].put(key(n), vec![round; len]).unwrap();
        }
        store.db.delete_range(key(30), key(33)).unwrap();
        if round < 2 {
            store.db.flush().unwrap();
        }
    }
    let mut writer =
        SstWriter::create_on(Arc::new(sim.clone()), OUTSIDE, &CfOptions::default()).unwrap();
    writer.put(key(BY_THE_STEP), value(BY_THE_STEP)).unwrap();
    writer.finish().unwrap();
    (sim.kill_image(), store.contents().unwrap())
}

fn is_clean(error: &Error) -> bool {
    matches!(error, Error::Io(_) | Error::DiskFull(_) | Error::Poisoned(_))
}

/// Compares every way of reading with `want` and the keys of a step, of which `must` are there.
fn check_reads(store: &Store, want: &Contents, must: &[u64], what: &str) {
    let mut want = want.clone();
    let of_the_step = [SYNCED, UNSYNCED, BY_THE_STEP];
    for number in of_the_step {
        let there = store.db.get(key(number)).unwrap_or_else(|e| panic!("{what}: a get: {e}"));
        assert!(there.is_some() || !must.contains(&number), "{what}: write {number} is lost");
        want[0].extend(there.map(|_| (key(number), value(number))));
    }
    let keys: Vec<Vec<u8>> = (0..45).chain(of_the_step).map(key).collect();
    let compared = store.compare(&want, &keys).unwrap_or_else(|e| panic!("{what}: a read: {e}"));
    compared.unwrap_or_else(|difference| panic!("{what}: {difference}"));
}

/// Reopens `image`: everything is there, goes on, and leaves no stray file.
fn check_after(image: &SimVfs, want: &Contents, must: &[u64], what: &str) {
    let store = Store::open(options(image)).unwrap_or_else(|e| panic!("{what}: the reopen: {e}"));
    check_reads(&store, want, must, what);
    store.db.verify().unwrap_or_else(|e| panic!("{what}: {e}"));
    store.db.put(b"after", b"the fault").unwrap();
    store.db.close().unwrap();
    drop(store);
    let left_over = left_over(image, Path::new(DIR)).unwrap();
    assert_eq!(left_over, [""; 0], "{what}: left over");
}

/// Ends the process with the name of the step if it does not move on within [`HANG_GUARD`], until
/// the sender is dropped.
fn guarded() -> Sender<String> {
    let (at, moves) = channel();
    std::thread::spawn(move || {
        let mut at = String::from("the beginning");
        loop {
            match moves.recv_timeout(HANG_GUARD) {
                Ok(next) => at = next,
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return,
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {
                    eprintln!("it hangs: {at}");
                    std::process::exit(3);
                }
            }
        }
    });
    at
}

/// What a step has written and must be there: after a kill, and after a power cut.
#[derive(Default)]
struct Written {
    after_a_kill: Vec<u64>,
    after_a_power_cut: Option<Vec<u64>>,
}

/// Runs a step with a fault at every call in turn; gives how many there were.
fn in_turn(name: &str, kind: FaultKind, run: impl Fn(&SimVfs, Fault, &str) -> Written) -> u64 {
    let guard = guarded();
    let (killed, want) = killed_store_once();
    for at_op in 0..MAX_CALLS {
        let what = format!("{name}, {kind:?} at call {at_op}");
        guard.send(what.clone()).unwrap();
        let image = killed.kill_image();
        let must = run(&image, Fault { at_op, kind, forever: false, filter: None }, &what);
        let struck = image.executed_faults() > 0;
        let killed = image.kill_image();
        check_after(&killed, want, &must.after_a_kill, &format!("{what}, then a kill"));
        if let Some(must) = must.after_a_power_cut {
            let cut = image.crash_image(at_op);
            check_after(&cut, want, &must, &format!("{what}, then a power cut"));
        }
        if !struck {
            return at_op;
        }
    }
    panic!("{name}: it still meets a fault at call {MAX_CALLS}");
}

fn killed_store_once() -> &'static (SimVfs, Contents) {
    static STORE: OnceLock<(SimVfs, Contents)> = OnceLock::new();
    STORE.get_or_init(killed_store)
}

#[test]
fn every_call_of_an_open_may_fail() {
    for kind in KINDS {
        let calls = in_turn(OPEN, kind, |image, fault, what| {
            image.set_fault(Some(fault));
            let opened = Store::open(options(image));
            image.set_fault(None);
            match opened {
                Ok(store) => check_reads(&store, &killed_store_once().1, &[], what),
                Err(error) => assert!(is_clean(&error), "{what}: it failed as {error:?}"),
            }
            Written::default()
        });
        println!("open: {calls} calls failed in turn ({kind:?})");
        assert!(calls > 10, "an open makes more than {calls} calls");
    }
}

/// Steps after which everything written before survives a power cut.
const MAKE_DURABLE: [&str; 6] = [SYNCED_WRITE, "sync", "flush", "checkpoint", INGEST, CLOSE];

/// Takes `step` under `fault` in a store that has just been opened and written to.
fn step_under(fault: Fault, image: &SimVfs, name: &str, step: Step, what: &str) -> Written {
    let store = Store::open(options(image)).unwrap();
    put(&store, SYNCED, Some(SyncMode::Batch)).unwrap();
    put(&store, UNSYNCED, None).unwrap();
    image.set_fault(Some(Fault { at_op: image.op_count() + fault.at_op, ..fault }));
    let result = step(&store);
    image.set_fault(None);
    if let Err(error) = &result {
        assert!(is_clean(error), "{what}: it failed as {error:?}");
        assert!(image.executed_faults() > 0, "{what}: it failed by itself: {error}");
    }
    let mut after_a_kill = vec![SYNCED, UNSYNCED];
    let mut after_a_power_cut = vec![SYNCED];
    if result.is_ok() && [WRITE, SYNCED_WRITE, INGEST].contains(&name) {
        after_a_kill.push(BY_THE_STEP);
    }
    if result.is_ok() && MAKE_DURABLE.contains(&name) {
        after_a_power_cut = after_a_kill.clone();
    }
    if name != CLOSE {
        check_reads(&store, &killed_store_once().1, &after_a_kill, what);
        if fault.kind == FaultKind::NoDescriptors {
            assert!(!store.db.metrics().poisoned, "{what}: it is poisoned");
            put(&store, SYNCED, None).unwrap_or_else(|e| panic!("{what}: a write after it: {e}"));
            store.db.flush().unwrap_or_else(|e| panic!("{what}: a flush after it: {e}"));
        }
    }
    Written { after_a_kill, after_a_power_cut: Some(after_a_power_cut) }
}

#[test]
fn every_call_of_every_step_may_fail() {
    for (name, step) in STEPS {
        let mut sum = 0;
        for kind in KINDS {
            let calls = in_turn(name, kind, |image, fault, what| {
                step_under(fault, image, name, step, what)
            });
            println!("{name}: {calls} calls failed in turn ({kind:?})");
            sum += calls;
        }
        assert!(sum > 0, "{name} met no fault: nothing was tested");
    }
}
