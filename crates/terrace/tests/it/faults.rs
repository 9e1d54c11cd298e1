//! R4: I/O calls fail one after the other, once or for ever. The error is typed, nothing panics,
//! reads go on, what was acknowledged is there after a reopen, and a full disk passes by itself.

use crate::harness::{
    Action, Generator, HANG_GUARD, Mix, Store, draw_separation, effort, small_options,
    stopped_clock,
};
use crate::model::{Contents, History, Op, State, is_empty};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use terrace::vfs::{Fault, FaultKind, OpClass, SimVfs};
use terrace::{Error, Options, SyncMode};
use terrace_base::ManualClock;
use terrace_base::rng::{Rng, SplitMix64};

/// Writes that do not go on by then after a full disk has room never will.
const RESUMES_WITHIN: Duration = HANG_GUARD;

/// What a run was promised and what it tried.
#[derive(Default)]
struct Journal {
    acknowledged: History,
    state: State,
    /// What reads show until the store is closed, if that is more: a write is visible whose sync has failed.
    shown: Option<State>,
    /// Of `acknowledged`, how many survive a power cut.
    durable: usize,
    /// Writes that failed since the last one that succeeded.
    failed: Vec<crate::model::Batch>,
}

impl Journal {
    fn note(&mut self, batch: &crate::model::Batch, durable: bool) {
        self.acknowledged.batches.push(batch.clone());
        self.state.apply(batch);
        self.failed.clear();
        if durable && !is_empty(batch) {
            self.durable = self.acknowledged.batches.len();
        }
    }

    /// Whether `contents` is what was acknowledged, from `floor` batches on; of the writes that
    /// failed after the last success, one may be there.
    fn check(&self, contents: &Contents, floor: usize, now_ms: u64) -> Result<(), String> {
        let all = self.acknowledged.batches.len();
        let Err(why) = self.acknowledged.prefix_of(contents, floor, all, now_ms) else {
            return Ok(());
        };
        for batch in &self.failed {
            let mut state = self.state.clone();
            state.apply(batch);
            if state.is_seen_as(contents, now_ms) {
                return Ok(());
            }
        }
        Err(format!("{why} ({} writes failed at the end)", self.failed.len()))
    }
}

#[derive(Debug, Clone, Copy)]
struct Plan {
    seed: u64,
    fault: Fault,
    /// The open itself is under fault.
    at_open: bool,
}

struct Scene {
    sim: SimVfs,
    options: Options,
    clock: ManualClock,
    journal: Journal,
    plan: Plan,
}

#[derive(Default)]
struct Tally {
    struck: AtomicU64,
    writes_failed: AtomicU64,
    poisoned: AtomicU64,
    resumed: AtomicU64,
    opens_failed: AtomicU64,
}

/// An error that a fault may cause.
fn is_clean(error: &Error) -> bool {
    matches!(error, Error::Io(_) | Error::DiskFull(_) | Error::Poisoned(_))
}

impl Scene {
    fn new(plan: Plan) -> Self {
        let clock = stopped_clock();
        let sim = SimVfs::new(plan.seed);
        let mut options = small_options(Arc::new(sim.clone()), &clock);
        let mut rng = SplitMix64::new(plan.seed);
        options.sync = match rng.below(8) {
            0 => SyncMode::Buffered,
            1..=4 => SyncMode::None,
            _ => SyncMode::Batch,
        };
        options.advanced.reserve_bytes = 0;
        draw_separation(&mut options, &mut rng);
        Self { sim, options, clock, journal: Journal::default(), plan }
    }

    fn generator(&self, salt: u64) -> Generator {
        let mix =
            Mix { keys: 60, ttl: false, maintain_one_in: 6, sync_one_in: 4, ..Mix::default() };
        Generator::new(self.plan.seed ^ salt, mix, &self.clock)
    }

    fn check(&self, clean: bool, what: &str) -> Result<(), String> {
        if clean { Ok(()) } else { Err(what.to_string()) }
    }

    /// Executes an action and keeps the journal; errors must be clean.
    fn execute(&mut self, store: &Store, action: &Action) -> Result<Option<Error>, String> {
        let db = &store.db;
        let result = match action {
            Action::Write(batch, sync) => {
                let before = db.latest_seqno();
                let result = store.write(batch, *sync, self.clock.now_ms());
                let mode = sync.unwrap_or(self.options.sync);
                match &result {
                    Ok(()) => self.journal.note(batch, mode == SyncMode::Batch),
                    Err(error) => {
                        self.journal.failed.push(batch.clone());
                        if db.latest_seqno() > before {
                            let may_be = mode == SyncMode::Batch
                                && self.options.sync != SyncMode::Batch
                                && matches!(error, Error::Poisoned(_));
                            self.check(may_be, "a write failed and is visible")?;
                            let mut shown = self.journal.state.clone();
                            shown.apply(batch);
                            self.journal.shown = Some(shown);
                        }
                    }
                }
                result
            }
            Action::Ingest(family, files) => {
                let result = store.ingest(*family, files);
                let batch = files.concat();
                match &result {
                    Ok(_) => {
                        self.journal.note(&batch, true);
                        self.all_durable();
                    }
                    Err(_) => self.journal.failed.push(batch),
                }
                result.map(drop)
            }
            Action::Sync => db.sync().map(|()| self.all_durable()),
            Action::Flush => db.flush().map(|()| self.all_durable()),
            Action::Compact { family, start, end } => {
                let range = start.as_slice()..end.as_slice();
                store.families[*family].compact_range(range).map(|()| self.all_durable())
            }
            Action::Checkpoint(path) => db.checkpoint(path),
            Action::CollectGarbage(min_share) => {
                db.collect_garbage(*min_share).map(|()| self.all_durable())
            }
            _ => Ok(()),
        };
        match result {
            Ok(()) => Ok(None),
            Err(error) => {
                self.check(is_clean(&error), &format!("{action:?} failed as {error:?}"))?;
                Ok(Some(error))
            }
        }
    }

    fn all_durable(&mut self) {
        self.journal.durable = self.journal.acknowledged.batches.len();
    }

    /// Reads must be right; only a fault that strikes reads may make them fail.
    fn read(&self, store: &Store, generator: &mut Generator, may_fail: bool) -> Result<(), String> {
        let state = self.journal.shown.as_ref().unwrap_or(&self.journal.state);
        for _ in 0..6 {
            let (family, key) = (generator.rng.below(3) as usize, generator.key());
            let want = state.get(family, &key, self.clock.now_ms());
            match store.families[family].get(&key) {
                Ok(got) => self.check(got.as_deref() == want.as_deref(), "a read is wrong")?,
                Err(Error::Io(_)) if may_fail => {}
                Err(error) => return Err(format!("reads do not go on: {error:?}")),
            }
        }
        let (family, from) = (generator.rng.below(3) as usize, generator.key());
        let contents = state.contents(self.clock.now_ms()).swap_remove(family);
        match self.scan(&store.families[family], &from, &contents) {
            Ok(outcome) => outcome,
            Err(Error::Io(_)) if may_fail => Ok(()),
            Err(error) => Err(format!("scans do not go on: {error:?}")),
        }
    }

    /// A short scan, which must be right up to where it ends.
    fn scan(
        &self,
        family: &terrace::ColumnFamily,
        from: &[u8],
        contents: &std::collections::BTreeMap<Vec<u8>, Vec<u8>>,
    ) -> terrace::Result<Result<(), String>> {
        let mut iter = family.iter()?;
        iter.seek(from)?;
        for (key, value) in contents.range(from.to_vec()..).take(10) {
            if !iter.valid() || iter.key() != key || iter.value() != value {
                return Ok(Err("a scan is wrong".into()));
            }
            iter.next()?;
        }
        Ok(Ok(()))
    }

    fn run(mut self, tally: &Tally) -> Result<(), String> {
        let mut generator = self.generator(1);
        let store = Store::open(self.options.clone()).map_err(|e| e.to_string())?;
        for _ in 0..20 {
            let action = generator.next();
            let error = self.execute(&store, &action)?;
            self.check(error.is_none(), "an error before the fault")?;
        }
        let fault = self.plan.fault;
        let reads_fail = match fault.kind {
            FaultKind::Eio | FaultKind::ShortWrite => {
                fault.filter.is_none_or(|class| matches!(class, OpClass::Read | OpClass::Open))
            }
            _ => false,
        };
        let store = match self.plan.at_open {
            true => {
                store.db.close().map_err(|e| e.to_string())?;
                drop(store);
                self.all_durable();
                self.arm();
                match Store::open(self.options.clone()) {
                    Ok(store) => Some(store),
                    Err(error) => {
                        self.check(is_clean(&error), &format!("the open failed as {error:?}"))?;
                        tally.opens_failed.fetch_add(1, Ordering::Relaxed);
                        None
                    }
                }
            }
            false => {
                self.arm();
                Some(store)
            }
        };
        if let Some(store) = store {
            self.under_fault(&store, &mut generator, reads_fail, tally)?;
        }
        tally.struck.fetch_add(u64::from(self.sim.executed_faults() > 0), Ordering::Relaxed);
        self.reopen()
    }

    /// Whether the fault may stop writes for good: anything but a full disk, and a sync or a
    /// buffered write that fails for whatever reason.
    fn may_poison(&self) -> bool {
        let Fault { kind, filter, .. } = self.plan.fault;
        self.options.sync == SyncMode::Buffered
            || kind != FaultKind::Enospc
            || filter.is_none_or(|class| class == OpClass::Sync)
    }

    fn arm(&self) {
        let at_op = self.sim.op_count() + self.plan.fault.at_op;
        self.sim.set_fault(Some(Fault { at_op, ..self.plan.fault }));
    }

    fn under_fault(
        &mut self,
        store: &Store,
        generator: &mut Generator,
        reads_fail: bool,
        tally: &Tally,
    ) -> Result<(), String> {
        let mut last_error = None;
        for _ in 0..30 {
            let action = generator.next();
            let error = self.execute(store, &action)?;
            tally.writes_failed.fetch_add(u64::from(error.is_some()), Ordering::Relaxed);
            last_error = error.or(last_error);
            self.read(store, generator, reads_fail)?;
            if matches!(last_error, Some(Error::Poisoned(_))) && generator.rng.one_in(3) {
                break;
            }
        }
        self.check(
            self.plan.fault.kind != FaultKind::Eintr || last_error.is_none(),
            "an interrupted call became an error",
        )?;
        self.sim.set_fault(None);
        self.read(store, generator, false)?;
        if store.db.metrics().poisoned {
            let refused = self.execute(store, &Action::Flush)?;
            self.check(self.may_poison(), &format!("poisoned by a full disk: {refused:?}"))?;
            tally.poisoned.fetch_add(1, Ordering::Relaxed);
            return self.check(
                matches!(refused, Some(Error::Poisoned(_))),
                "a poisoned store took a flush",
            );
        }
        self.resume(store, generator, tally)
    }

    /// The fault is over: within the limit writes go on by themselves.
    fn resume(
        &mut self,
        store: &Store,
        generator: &mut Generator,
        tally: &Tally,
    ) -> Result<(), String> {
        let start = Instant::now();
        let mut waited = false;
        loop {
            let mut batch = generator.batch();
            // What only removes is taken while the disk is full.
            while !batch.iter().any(|op| matches!(op, Op::Put { .. })) {
                batch = generator.batch();
            }
            match self.execute(store, &Action::Write(batch, Some(SyncMode::Batch)))? {
                None => break,
                Some(Error::DiskFull(_)) if start.elapsed() < RESUMES_WITHIN => waited = true,
                // A background job that was failing when the fault ended.
                Some(Error::Poisoned(_)) if self.may_poison() => {
                    tally.poisoned.fetch_add(1, Ordering::Relaxed);
                    return self.read(store, generator, false);
                }
                Some(error) => return Err(format!("writes do not resume: {error}")),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut taken = 0;
        while taken < 8 {
            let action = generator.next();
            let Some(error) = self.execute(store, &action)? else {
                taken += 1;
                continue;
            };
            // As above, of a job that was failing; and a collection says why it has failed before, until the pause of
            // that is over.
            let passes = match &error {
                Error::DiskFull(_) => true,
                Error::Io(_) => matches!(action, Action::CollectGarbage(_)),
                Error::Poisoned(_) if self.may_poison() => break,
                _ => false,
            };
            if !passes || start.elapsed() >= RESUMES_WITHIN {
                return Err(format!("{action:?} fails after the fault is over: {error}"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        tally.resumed.fetch_add(u64::from(waited), Ordering::Relaxed);
        self.read(store, generator, false)
    }

    /// After a kill everything acknowledged is there, after a power cut what was synced.
    fn reopen(&mut self) -> Result<(), String> {
        self.sim.set_fault(None);
        let power_cut = self.plan.seed.is_multiple_of(2);
        let image = match power_cut {
            true => self.sim.crash_image(self.plan.seed),
            false => self.sim.kill_image(),
        };
        let mut options = self.options.clone();
        options.advanced.vfs = Arc::new(image);
        let store = Store::open(options).map_err(|e| format!("the reopen failed: {e}"))?;
        let contents = store.contents().map_err(|e| format!("a scan failed: {e}"))?;
        let all = self.journal.acknowledged.batches.len();
        let kernel_has_all = !power_cut && self.options.sync != SyncMode::Buffered;
        let floor = if kernel_has_all { all } else { self.journal.durable };
        self.journal.check(&contents, floor, self.clock.now_ms())?;
        store.db.verify().map_err(|e| format!("verify failed: {e}"))?;
        store.db.put(b"after", b"the fault").map_err(|e| format!("a write failed: {e}"))
    }
}

/// The plan of run `number`: kinds, classes and persistence in turn, the operation at random.
fn plan(number: u64) -> Plan {
    use FaultKind::{Eintr, Eio, Enospc, ShortWrite, SyncFails};
    use OpClass::{Append, Create, Link, Open, Read, Remove, Rename, Sync, SyncDir};
    let mut rng = SplitMix64::new(number ^ 0xfa17);
    let classes = [Append, Create, Link, Open, Read, Remove, Rename, Sync, SyncDir];
    let kind = [Eio, Eio, Enospc, Enospc, ShortWrite, SyncFails, Eintr][number as usize % 7];
    let filter = (!rng.one_in(3)).then(|| classes[rng.below(9) as usize]);
    let forever = rng.one_in(2);
    let at_open = rng.one_in(4);
    let at_op = rng.below(if filter.is_some() { 25 } else { 120 });
    let fault = Fault { at_op, kind, forever, filter };
    Plan { seed: rng.next_u64() >> 16, fault, at_open }
}

#[test]
fn r4_every_failing_call_is_a_clean_error_and_loses_nothing() {
    let numbers: Vec<u64> = match std::env::var("SEED").ok().and_then(|s| s.parse().ok()) {
        Some(seed) => vec![seed],
        None => (0..effort(1500)).collect(),
    };
    let next = AtomicU64::new(0);
    let tally = Tally::default();
    // Runs mostly wait for a disk to have room again, so several go on at once.
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                while let Some(number) = numbers.get(next.fetch_add(1, Ordering::Relaxed) as usize)
                {
                    let plan = plan(*number);
                    let _note = crate::harness::SeedNote("R4", *number);
                    if let Err(why) = Scene::new(plan).run(&tally) {
                        panic!("R4: SEED={number}, {plan:?}: {why}");
                    }
                }
            });
        }
    });
    let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
    println!(
        "R4: {} runs, {} struck; {} calls failed, {} opens failed, {} stores poisoned, {} resumed by \
         themselves, 0 lost",
        numbers.len(),
        of(&tally.struck),
        of(&tally.writes_failed),
        of(&tally.opens_failed),
        of(&tally.poisoned),
        of(&tally.resumed),
    );
    if numbers.len() > 1 {
        assert!(of(&tally.struck) > numbers.len() as u64 / 3, "too few faults struck");
        assert!(
            of(&tally.resumed) > 10 && of(&tally.poisoned) > 10 && of(&tally.opens_failed) > 10
        );
    }
}

#[test]
fn r5_a_full_disk_refuses_writes_serves_reads_and_resumes_when_there_is_room() {
    let rounds = effort(10);
    for round in 0..rounds {
        let fault = Fault {
            at_op: 0,
            kind: FaultKind::Enospc,
            forever: true,
            filter: Some(OpClass::Append),
        };
        let plan = Plan { seed: round, at_open: false, fault };
        let mut scene = Scene::new(plan);
        scene.options.sync = [SyncMode::None, SyncMode::Batch][round as usize % 2];
        scene.options.advanced.reserve_bytes = 32 << 10;
        let mut generator = scene.generator(5);
        let store = Store::open(scene.options.clone()).unwrap();
        let mut refusals = 0;
        for capacity in [200u64 << 10, 400 << 10, 600 << 10] {
            scene.sim.set_capacity_bytes(Some(capacity));
            let mut refused = false;
            for _ in 0..20_000 {
                let action = Action::Write(generator.batch(), None);
                match scene.execute(&store, &action).unwrap() {
                    Some(Error::DiskFull(_)) => {
                        refused = true;
                        break;
                    }
                    Some(other) => panic!("R5: round {round}: {other:?}"),
                    None => {}
                }
            }
            // A workload that lives within the capacity is fine too.
            refusals += u64::from(refused);
            scene.read(&store, &mut generator, false).unwrap();
            scene.check(!store.db.metrics().poisoned, "poisoned by a full disk").unwrap();
            scene.sim.set_capacity_bytes(Some(capacity + (8 << 20)));
            scene
                .resume(&store, &mut generator, &Tally::default())
                .unwrap_or_else(|why| panic!("R5: round {round}, capacity {capacity}: {why}"));
        }
        store.db.close().unwrap();
        drop(store);
        scene.all_durable();
        scene.sim.set_capacity_bytes(None);
        scene.reopen().unwrap();
        assert!(refusals > 0, "the disk was never full");
    }
    println!("R5: {rounds} stores on full disks, writes resumed each time, 0 lost");
}
