//! Garbage in the log that cannot be collected: what a family keeps that is seldom written goes all the same, at a bounded
//! price, and what only more writes could make known slows nobody.

use crate::harness::{DIR, eventually, key, stopped_clock};
use crate::held::{COMPACTION, Held};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use terrace::vfs::SimVfs;
use terrace::{
    CfOptions, ColumnFamily, Db, Error, EventListener, FlushEnded, HotTableMode, Options,
    StallCause, StallMetrics,
};
use terrace_base::rng::{Rng, SplitMix64};
use terrace_vfs::Vfs;

const VALUE_BYTES: u64 = 500;
/// Eight times what a memtable may always refer to: twice `segment_bytes`.
const FLOOR: u64 = 16 * SEGMENT_BYTES;
const SEGMENT_BYTES: u64 = 16 << 10;

/// Successful flushes by family.
#[derive(Default)]
struct Flushes(Mutex<BTreeMap<String, u64>>);

impl Flushes {
    fn of(&self, family: &str) -> u64 {
        self.0.lock().unwrap().get(family).copied().unwrap_or(0)
    }
}

impl EventListener for Flushes {
    fn on_flush_ended(&self, event: &FlushEnded) {
        if event.error.is_none() {
            *self.0.lock().unwrap().entry(event.family.clone()).or_default() += 1;
        }
    }
}

/// A store whose memtables are small beside the log that they may have, with families `0`, `1` and so on.
fn open(
    vfs: Arc<dyn Vfs>,
    segment_bytes: u64,
    families: usize,
) -> (Db, Vec<ColumnFamily>, Arc<Flushes>) {
    let flushes = Arc::new(Flushes::default());
    let mut options = Options { memory_budget: 64 << 20, ..Options::default() };
    let names: Vec<String> = (0..families).map(|n| n.to_string()).collect();
    let family = |name: &String| (name.clone(), CfOptions::default());
    options.column_families = names.iter().map(family).collect();
    options.default_family.value_separation_threshold = 100;
    let a = &mut options.advanced;
    a.vfs = vfs;
    // Nothing is done because it is idle, or old.
    a.clock = Arc::new(stopped_clock());
    a.hot_table = HotTableMode::Off;
    a.memtable_bytes = 16 << 10;
    a.segment_bytes = segment_bytes;
    a.reserve_bytes = 8 << 10;
    let listener: Arc<dyn EventListener> = flushes.clone();
    a.event_listeners = vec![listener];
    let db = Db::open(DIR, options).unwrap();
    let families = names.iter().map(|name| db.column_family(name).unwrap()).collect();
    (db, families, flushes)
}

fn overwrite(db: &Db, rng: &mut SplitMix64) -> terrace::Result<()> {
    db.put(key(rng.below(40)), [7; VALUE_BYTES as usize])
}

/// Bytes of the log and of values that have left it.
fn log_bytes(sim: &SimVfs) -> u64 {
    let files = sim.files().into_iter();
    let of_log =
        files.filter(|(path, _)| path.extension().is_some_and(|e| e == "log" || e == "vlog"));
    of_log.map(|(_, bytes)| bytes).sum()
}

#[test]
fn one_write_does_not_keep_the_log_that_comes_after_it() {
    let sim = SimVfs::new(1);
    let (db, families, flushes) = open(Arc::new(sim.clone()), SEGMENT_BYTES, 1);
    families[0].put(b"once", b"written").unwrap();
    let mut rng = SplitMix64::new(1);
    for _ in 0..16_000 {
        overwrite(&db, &mut rng).unwrap();
    }
    // It has taken eight times as much.
    eventually("the log is short", || log_bytes(&sim) < 4 * FLOOR);
    eventually("the flush ends", || flushes.of("0") > 0);
    assert_eq!(flushes.of("0"), 1);
    assert_eq!(families[0].get(b"once").unwrap().as_deref(), Some(&b"written"[..]));
    db.close().unwrap();
}

#[test]
fn many_families_that_are_seldom_written_have_few_small_files() {
    const FAMILIES: usize = 20;
    let sim = SimVfs::new(1);
    let (db, families, flushes) = open(Arc::new(sim.clone()), SEGMENT_BYTES, FAMILIES);
    let mut rng = SplitMix64::new(1);
    let mut written = 0;
    for n in 0..16_000_usize {
        overwrite(&db, &mut rng).unwrap();
        written += VALUE_BYTES;
        if n % 8 == 0 {
            // Each of them a hundred times.
            families[n / 8 % FAMILIES].put(key(n as u64), b"small").unwrap();
        }
    }
    eventually("the log is short", || log_bytes(&sim) < 4 * FLOOR);
    let counts = || (0..FAMILIES).map(|n| flushes.of(&n.to_string())).collect::<Vec<u64>>();
    // What all of them were written first lies in the oldest part of the log.
    eventually("the flushes end", || counts().iter().all(|count| *count > 0));
    let counts = counts();
    let most = written / (FLOOR / 2) + 1;
    assert!(counts.iter().all(|count| *count <= most), "{counts:?}, {most}");
    db.close().unwrap();
}

/// It is less than what an empty disk would leave alone. `None` if the store had nothing to do for so long that it did not
/// wait for a full disk.
fn flushes_of_a_full_disk(seed: u64) -> Option<u64> {
    let sim = SimVfs::new(seed);
    let (db, families, flushes) = open(Arc::new(sim.clone()), 256 << 10, 1);
    families[0].put(b"once", b"written").unwrap();
    let mut rng = SplitMix64::new(seed);
    for _ in 0..6_000 {
        overwrite(&db, &mut rng).unwrap();
    }
    let used: u64 = sim.files().into_iter().map(|(_, bytes)| bytes).sum();
    let kept = log_bytes(&sim);
    sim.set_capacity_bytes(Some(used + (24 << 10)));
    let before = flushes.of("0");
    // No deletion comes.
    match db.put(b"large", vec![7; 1 << 20]) {
        Err(Error::DiskFull(_)) => {}
        Err(error) => panic!("{error}"),
        // The log was freed before the disk was full.
        Ok(()) => return None,
    }
    eventually("writes go on", || db.put(b"large", vec![7; 64 << 10]).is_ok());
    eventually("the flush ends", || flushes.of("0") > 0);
    db.close().unwrap();
    (before == 0 && kept > 6_000 * VALUE_BYTES).then(|| flushes.of("0"))
}

#[test]
fn a_full_disk_is_rid_of_what_an_idle_family_keeps() {
    let flushes = (0..20).find_map(flushes_of_a_full_disk);
    assert_eq!(flushes, Some(1));
}

/// A memtable refers to 4 MiB of values whatever the budget, and nothing is merged here.
#[test]
fn a_store_of_a_small_budget_is_not_slowed_below_the_floor() {
    let vfs = Held::new(COMPACTION);
    let mut options = Options { memory_budget: 8 << 20, ..Options::default() };
    let a = &mut options.advanced;
    a.vfs = vfs.clone();
    a.clock = Arc::new(stopped_clock());
    (a.l0_slowdown, a.l0_stop) = (10_000, 20_000);
    a.compact_when_idle = false;
    a.reserve_bytes = 0;
    let db = Db::open(DIR, options).unwrap();
    let _lets_go = vfs.let_go_on_drop();
    let mut rng = SplitMix64::new(1);
    for _ in 0..14_000 {
        db.put(key(rng.below(2_620)), [7; 2_000]).unwrap();
    }
    let row = db.metrics().stalls[StallCause::GarbageCollection as usize];
    assert_eq!(row, StallMetrics::default());
    vfs.let_go();
    db.close().unwrap();
}

/// The merge that finds out that all values are garbage is over before their segments go, and nothing tells of garbage then.
#[test]
fn values_that_are_all_gone_slow_nobody() {
    let sim = SimVfs::new(1);
    let (db, _, _) = open(Arc::new(sim.clone()), SEGMENT_BYTES, 0);
    for n in 0..4_000 {
        db.put(key(n), [7; VALUE_BYTES as usize]).unwrap();
    }
    db.flush().unwrap();
    eventually("all values have left the log", || db.shape().log_segments == 1);
    let values = db.metrics().value_segments;
    assert!(values > FLOOR / SEGMENT_BYTES, "{values}: so little slows nobody");
    db.delete_range(b"key", b"kez").unwrap();
    db.flush().unwrap();
    db.compact_range::<&[u8]>(..).unwrap();
    eventually("the segments are gone", || db.metrics().value_segments == 0);
    let slowdowns = || db.metrics().stalls[StallCause::GarbageCollection as usize].slowdowns;
    eventually("nobody waits for them", || {
        let before = slowdowns();
        for n in 0..200 {
            db.put(key(n), [7; 90]).unwrap();
        }
        slowdowns() == before
    });
    assert_eq!(db.metrics().value_segments, 0, "nothing of what was written is separated");
    db.close().unwrap();
}
