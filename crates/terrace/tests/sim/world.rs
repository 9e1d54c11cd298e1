//! One run: the lives of a store, one after the other, in a simulation.

use crate::client::{Client, Place, SimClock};
use crate::disk::Disk;
use crate::families::Families;
use crate::harness::{DIR, Store, drawn_options};
use crate::left_over::left_over;
use crate::model::Batch;
use crate::oracle::Oracle;
use crate::plan::{Life, Plan};
use crate::room;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use terrace::vfs::SimVfs;
use terrace::{Clock, Error, MemoryShape, Options, SyncMode};
use terrace_base::ManualClock;
use terrace_base::rng::{Rng, SplitMix64};
use terrace_base::sync::simulation::{self, Outcome, Settings};
use terrace_base::sync::thread;
use terrace_manifest::names;

/// What was really executed.
#[derive(Debug, Default)]
pub struct Counts {
    pub lives: AtomicU64,
    pub power_cuts: AtomicU64,
    pub kills: AtomicU64,
    pub troubled: AtomicU64,
    pub steps: AtomicU64,
    pub batches: AtomicU64,
    pub conflicts: AtomicU64,
    pub disk_operations: AtomicU64,
    pub memory_moves: AtomicU64,
}

/// Seconds in which pools come to keep to what they may use.
const SETTLING_S: u64 = 60;

/// Runs a plan; the same plan gives the same outcome.
pub fn run(plan: &Plan, keep_trace: bool, counts: &Arc<Counts>) -> Outcome {
    // The named steps of the engine are places where the order of threads matters.
    terrace::watch_kill_points(|_| simulation::interleave());
    let mut rng = SplitMix64::new(plan.seed ^ 0x7075);
    let settings = Settings {
        seed: rng.next_u64(),
        switch_one_in: [1, 2, 4, 16][rng.below(4) as usize],
        timeout_one_in: [30, 100, 1000][rng.below(3) as usize],
        pause_one_in: [4, 30, 1000][rng.below(3) as usize],
        tick: Duration::from_micros(1),
        most_steps: 2_000_000,
        longest_call: Duration::from_secs(3600),
        keep_trace,
    };
    let (plan, counted) = (plan.clone(), counts.clone());
    let outcome = simulation::run(settings, move || live_all(&plan, &counted));
    counts.steps.fetch_add(outcome.steps, Ordering::Relaxed);
    outcome
}

/// Options of one life; they change from life to life.
fn options(seed: u64, life: usize, disk: &Disk, clock: &SimClock) -> Options {
    let mut rng = SplitMix64::new(seed ^ ((life as u64) << 32) ^ 0x0971);
    let machine = ManualClock::at(clock.wall_ms());
    let mut options = drawn_options(Arc::new(disk.clone()), &machine, &mut rng);
    options.advanced.clock = Arc::new(clock.clone());
    if rng.one_in(3) {
        // So little memory that the bound over the memtables of all families matters.
        options.advanced.memory_shares.memtables = 0.02;
    } else if rng.one_in(3) {
        // Memtables that follow the memory they have, which may move.
        options.advanced.memtable_bytes = 0;
        options.memory_budget = 8 << 20;
    }
    options.advanced.max_subcompactions = 1 + rng.below(3) as usize;
    options.advanced.rate_limit_bytes_per_s = if rng.one_in(6) { 2 << 20 } else { 0 };
    options.advanced.l0_slowdown = 4 + rng.below(8) as usize;
    options.advanced.l0_stop = options.advanced.l0_slowdown + 1 + rng.below(4) as usize;
    options
}

fn live_all(plan: &Plan, counts: &Counts) {
    let clock = SimClock::default();
    let families = Arc::new(Families::default());
    let mut next = (SimVfs::new(plan.seed), (Vec::new(), 0));
    for (number, life) in plan.lives.iter().enumerate() {
        counts.lives.fetch_add(1, Ordering::Relaxed);
        next = live(plan.seed, number, life, next, &clock, &families, counts);
    }
    // The last life is quiet: whatever came before, the store opens and works.
    live(plan.seed, plan.lives.len(), &Life::default(), next, &clock, &families, counts);
}

/// Batches that are there, and how many of them lie on the device for certain.
type Recovered = (Vec<Batch>, usize);

/// One life of the store on what is left of the one before; gives what it leaves.
fn live(
    seed: u64,
    number: usize,
    life: &Life,
    (sim, (batches, durable)): (SimVfs, Recovered),
    clock: &SimClock,
    families: &Arc<Families>,
    counts: &Counts,
) -> (SimVfs, Recovered) {
    let oracle = Arc::new(Oracle::new(batches, durable));
    let was_killed = Arc::new(Mutex::new(None));
    let (heard, noted) = (oracle.clone(), was_killed.clone());
    let disk = Disk::new(sim, life.cut, life.troubles.clone(), move |killed| {
        heard.cut(killed);
        *noted.lock().unwrap() = Some(killed);
    });
    let heard = oracle.clone();
    simulation::listen(Arc::new(move |note, threads| heard.hear(note, threads)));
    let options = options(seed, number, &disk, clock);
    simulation::begin_call("open".into());
    let opened = Store::open(options);
    simulation::end_call();
    match opened {
        Ok(store) => {
            if !disk.is_dead() {
                oracle.promise(oracle.visible());
                families.opened(&store);
            }
            let place = Place {
                store: Arc::new(store),
                oracle: oracle.clone(),
                families: families.clone(),
                disk: disk.clone(),
                clock: clock.clone(),
                checkpoints: Arc::new(AtomicU64::new(number as u64 * 1000)),
                believes_writes: life.believes_writes,
            };
            inhabit(place, life, counts);
        }
        Err(error) => {
            let damage = matches!(error, Error::Corruption(_) | Error::Unsupported(_));
            assert!(disk.is_troubled() && !damage, "the open of life {number} failed: {error}");
        }
    }
    counts.troubled.fetch_add(u64::from(disk.is_troubled() && !disk.is_dead()), Ordering::Relaxed);
    counts.disk_operations.fetch_add(disk.count(), Ordering::Relaxed);
    counts.conflicts.fetch_add(oracle.conflicts(), Ordering::Relaxed);
    counts.batches.fetch_add(oracle.visible() as u64, Ordering::Relaxed);
    let killed = *was_killed.lock().unwrap();
    match killed {
        Some(true) => counts.kills.fetch_add(1, Ordering::Relaxed),
        Some(false) => counts.power_cuts.fetch_add(1, Ordering::Relaxed),
        None => 0,
    };
    let sim = disk.into_next();
    let left = recovered(&sim, seed, number, clock, (&oracle, families), killed != Some(false));
    (sim, left)
}

/// What clients do in an open store, and its end.
fn inhabit(place: Place, life: &Life, counts: &Counts) {
    let lost_before = lost(&place.disk);
    let clients: Vec<_> = life
        .clients
        .iter()
        .enumerate()
        .map(|(number, steps)| {
            let (client, steps) = (Client::new(place.clone(), number), steps.clone());
            let builder = thread::Builder::new().name(format!("client-{number}"));
            builder.spawn(move || client.run(steps)).unwrap()
        })
        .collect();
    clients.into_iter().for_each(|client| drop(client.join()));
    let Place { store, oracle, disk, .. } = place;
    let mut log_bytes = None;
    if !disk.is_troubled() && life.cut.is_none() {
        simulation::begin_call("wait_idle at the end".into());
        if let Err(error) = store.db.wait_idle() {
            assert!(disk.is_troubled(), "wait_idle at the end: {error}");
        }
        check_memory(&store, &disk, counts);
        log_bytes = room::settled_log_bytes(&store, &disk);
        let_the_interval_pass(&store, &oracle, &disk);
    }
    simulation::begin_call("close".into());
    let visible = oracle.visible();
    match store.db.close() {
        // Whatever failed meanwhile: a close that succeeds has lost nothing.
        Ok(()) if !disk.is_dead() => oracle.promise(visible),
        Ok(()) => {}
        Err(error) => assert!(disk.is_troubled(), "the close failed: {error}"),
    }
    if !disk.is_troubled() && life.cut.is_none() {
        check_files(&disk, &lost_before);
        let closed = room::check_closed(&disk.image(), store.db.options(), log_bytes);
        closed.unwrap_or_else(|why| panic!("a closed store: {why}"));
    }
    drop(store);
    simulation::end_call();
}

/// Seconds that a thread which is due gets for its turn. In the simulation one may pass before another thread has made a few
/// steps, and then the one that is due has not run.
const TURNS: u32 = 4;

/// In a quiet store that syncs at intervals, everything is durable some seconds later: the power may go.
fn let_the_interval_pass(store: &Store, oracle: &Oracle, disk: &Disk) {
    if !matches!(store.db.options().sync, SyncMode::Interval(_)) {
        return;
    }
    simulation::begin_call("some seconds for the interval".into());
    for _ in 0..TURNS {
        thread::sleep(Duration::from_secs(1));
        if disk.is_troubled() {
            return;
        }
    }
    oracle.promise(oracle.visible());
    if oracle.visible() % 2 == 1 {
        disk.cut_power(oracle.visible() as u64);
    }
}

/// Once nothing is running and nobody reads, every pool keeps to what it may use within seconds, and all of
/// them together to the budget: nothing is lost where memory moves.
fn check_memory(store: &Store, disk: &Disk, counts: &Counts) {
    let is_over = |memory: &MemoryShape| {
        let pools = memory.pools.iter().filter(|pool| matches!(pool.name, "blocks" | "filters"));
        pools.into_iter().any(|pool| pool.used_bytes > pool.limit_bytes)
    };
    for _ in 0..SETTLING_S {
        if !is_over(&store.db.memory()) || disk.is_troubled() {
            break;
        }
        thread::sleep(Duration::from_secs(1));
    }
    let memory = store.db.memory();
    counts.memory_moves.fetch_add(memory.moves, Ordering::Relaxed);
    assert!(!is_over(&memory) || disk.is_troubled(), "memory: {memory:?}");
    // Memtables that were asked for may be larger than their share.
    if store.db.options().advanced.memtable_bytes == 0 {
        let limits = memory.pools.iter().filter(|pool| pool.name != "pinned");
        let sum: u64 = limits.map(|pool| pool.limit_bytes - pool.lent_bytes).sum();
        assert!(sum <= memory.budget_bytes, "memory: {memory:?}");
        let memtables = &memory.pools[0];
        let free = memtables.limit_bytes.saturating_sub(memtables.used_bytes);
        assert!(memtables.lent_bytes <= free, "memory: {memory:?}");
    }
}

/// The files that were set aside.
fn lost(disk: &Disk) -> Vec<PathBuf> {
    let lost = names::lost_dir(Path::new(DIR));
    let files = disk.image().files().into_iter().map(|(path, _)| path);
    files.filter(|path| path.starts_with(&lost)).collect()
}

/// A closed store has no files but those that are accounted for, and only opens set files aside.
fn check_files(disk: &Disk, lost_before: &[PathBuf]) {
    let left_over = left_over(&disk.image(), Path::new(DIR)).unwrap();
    assert!(disk.is_troubled() || left_over.is_empty(), "left over: {left_over:?}");
    assert_eq!(lost(disk), lost_before, "set aside while the store was open");
}

/// What the next life will find, as seen on a copy of the device.
fn recovered(
    sim: &SimVfs,
    seed: u64,
    number: usize,
    clock: &SimClock,
    (oracle, families): (&Oracle, &Families),
    killed: bool,
) -> Recovered {
    let disk = Disk::new(sim.kill_image(), None, Vec::new(), |_| {});
    simulation::listen(Arc::new(|_, _| {}));
    simulation::begin_call("open of what is left".into());
    let store = Store::open(options(seed, number + 1, &disk, clock))
        .unwrap_or_else(|error| panic!("what life {number} left does not open: {error}"));
    let contents = store.contents();
    let contents = contents.unwrap_or_else(|error| panic!("a scan of what is left: {error}"));
    let floor = oracle.floor(killed);
    let batches = oracle.recovered(&contents, clock.wall_ms(), killed);
    let batches = batches.unwrap_or_else(|why| panic!("after life {number}: {why}"));
    let own = families.recovered(&store, floor, batches.0.len());
    own.unwrap_or_else(|why| panic!("after life {number}: {why}"));
    let keys: Vec<Vec<u8>> = (0..crate::plan::KEYS).map(crate::plan::key).collect();
    let compared = store.compare(&contents, &keys);
    let compared = compared.unwrap_or_else(|error| panic!("reads of what is left: {error}"));
    compared.unwrap_or_else(|why| panic!("after life {number}: {why}"));
    store.db.verify().unwrap_or_else(|error| panic!("verify after life {number}: {error}"));
    store.db.close().unwrap_or_else(|error| panic!("close of what is left: {error}"));
    drop(store);
    simulation::end_call();
    let emptied = room::check_emptied(disk.image(), |disk| options(seed, number + 1, disk, clock));
    emptied.unwrap_or_else(|why| panic!("after life {number}, everything deleted: {why}"));
    batches
}
