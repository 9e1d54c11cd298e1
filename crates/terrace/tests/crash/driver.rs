//! The driver: draws rounds from a seed, starts a child for each, lets it die where the round says,
//! reads the store that it leaves, and judges it by what was begun and acknowledged. Beside a child
//! that runs it lets readers read. On a failure it keeps everything and says where.
//!
//! What the store shows after one child is exactly what the next must find.

use crate::beside::{Now, Readers};
use crate::child::{ORDERS, Orders};
use crate::drawn;
use crate::expected::{Bounds, Round, State, View, judge};
use crate::feed::{History, Known};
use crate::journal::{self, Done};
use crate::kill::{self, OPERATION};
use crate::left_over::left_over;
use crate::script::{Op, SHARED, THREADS};
use crate::usage;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use terrace::vfs::PosixVfs;
use terrace::{Db, Options, SyncMode};
use terrace_base::rng::{Rng, SplitMix64};
use terrace_manifest::names;

/// Children at the default effort.
const ROUNDS: f64 = 160.0;

/// The time of the first round, and by how much rounds are apart at most.
const START_MS: u64 = 1_000_000;
const MAX_APART_MS: u64 = 20_000;

/// A child that takes longer hangs; its own watch is sooner.
const CHILD_HANGS_AFTER: Duration = Duration::from_secs(600);

/// A closed store has at most this many bytes per live byte, and this many beside.
const MAX_PER_LIVE_BYTE: u64 = 6;
const MAX_BESIDE_BYTES: u64 = 8 << 20;

/// How a child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Killed,
    Closed,
}

/// What a run did, for its last line.
#[derive(Default)]
struct Tally {
    kills: u64,
    closes: u64,
    operations: u64,
    /// Closed stores in which every file was accounted for.
    tidy_closes: u64,
    checkpoints: u64,
    set_aside: u64,
    passed: BTreeMap<String, u64>,
    died_at: BTreeMap<String, u64>,
    most_bytes: u64,
}

struct Driver {
    seed: u64,
    rng: SplitMix64,
    dir: PathBuf,
    state: State,
    readers: Readers,
    history: History,
    /// Whether there may be segments of the log that are kept for feeds.
    keeps_log: bool,
    now_ms: u64,
    /// Points yet to be drawn; refilled when it is empty.
    points: Vec<&'static str>,
    tally: Tally,
    /// The orders of the last child, for the check of what it left.
    orders: String,
}

impl Driver {
    fn new(seed: u64, dir: &Path) -> Self {
        let driver = Self {
            seed,
            rng: SplitMix64::new(seed),
            dir: dir.to_path_buf(),
            state: State::new(),
            readers: Readers::default(),
            history: History::default(),
            keeps_log: true,
            now_ms: START_MS,
            points: Vec::new(),
            tally: Tally::default(),
            orders: String::new(),
        };
        let names: Vec<String> = SHARED[1..].iter().map(ToString::to_string).collect();
        let options = drawn::options(seed, PosixVfs::shared(), START_MS, &names);
        let db = Db::open(dir.join("store"), options).unwrap();
        db.close().unwrap();
        driver
    }

    /// The next point, and at which passage: all of them in turn, often at an early one.
    fn draw_point(&mut self, ops: u64) -> (&'static str, u64) {
        if self.rng.one_in(10) {
            return (OPERATION, 0);
        }
        if self.rng.one_in(4) {
            return (OPERATION, 1 + self.rng.below(ops * THREADS as u64));
        }
        if self.points.is_empty() {
            self.points = kill::points().collect();
        }
        let at = self.rng.below(self.points.len() as u64) as usize;
        let most = [1, 1, 2, 4, 20][self.rng.below(5) as usize];
        (self.points.swap_remove(at), 1 + self.rng.below(most))
    }

    fn round(&mut self, number: u64) -> Result<(), String> {
        let ops = [60, 250, 250, 700][self.rng.below(4) as usize];
        let (point, count) = self.draw_point(ops);
        let seed = self.rng.next_u64() >> 8;
        self.now_ms += 1 + self.rng.below(MAX_APART_MS);
        let orders = Orders {
            dir: self.dir.clone(),
            round: number,
            seed,
            now_ms: self.now_ms,
            ops,
            point: point.to_string(),
            count,
        };
        let round = Round { number, seed, now_ms: self.now_ms, before: self.state.clone() };
        round.before.save(&self.dir.join("before"));
        self.readers.close(!has_readers(&round));
        journal::clear(&self.dir);
        let _ = std::fs::remove_file(orders.report());
        self.orders = orders.to_line();
        let mut child = start(&orders);
        let end = self.wait(&mut child, &orders, &round).inspect_err(|_| {
            // What it leaves is evidence: it must not go on.
            let _ = child.kill();
            let _ = child.wait();
        })?;
        match end {
            End::Killed => {
                self.tally.kills += 1;
                *self.tally.died_at.entry(point.to_string()).or_default() += 1;
            }
            End::Closed => self.tally.closes += 1,
        }
        for (name, passed) in kill::read_report(&orders.report()) {
            *self.tally.passed.entry(name).or_default() += passed;
        }
        self.judge(&orders, &round, end)
    }

    /// Reads the store beside the child until it ends.
    fn wait(&mut self, child: &mut Child, orders: &Orders, round: &Round) -> Result<End, String> {
        let started = Instant::now();
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                use std::os::unix::process::ExitStatusExt;
                let killed = status.signal() == Some(rustix::process::Signal::KILL.as_raw());
                return match (killed, status.success()) {
                    (true, _) if orders.count > 0 => Ok(End::Killed),
                    (_, true) => Ok(End::Closed),
                    _ => Err(format!(
                        "the child ended with {status}; see {}",
                        err_path(&self.dir).display()
                    )),
                };
            }
            if started.elapsed() > CHILD_HANGS_AFTER {
                return Err("the child hangs".into());
            }
            if has_readers(round) {
                let (dir, store) = (&self.dir, &orders.store());
                let now = Now { dir, store, round, sync: self.sync_of(round) };
                let options = self.reading_options(round);
                self.readers.step(&now, options)?;
            }
            std::thread::sleep(BETWEEN_READS);
        }
    }

    fn reading_options(&self, round: &Round) -> Options {
        let names: Vec<String> = SHARED[1..].iter().map(ToString::to_string).collect();
        let options = drawn::options(round.seed ^ 1, PosixVfs::shared(), round.now_ms, &names);
        Options { create_if_missing: false, ..options }
    }

    fn sync_of(&self, round: &Round) -> SyncMode {
        drawn::options(round.seed, PosixVfs::shared(), round.now_ms, &[]).sync
    }

    fn log_retention_bytes(&self, round: &Round) -> u64 {
        let names: Vec<String> = SHARED[1..].iter().map(ToString::to_string).collect();
        let options = drawn::options(round.seed, PosixVfs::shared(), round.now_ms, &names);
        options.advanced.log_retention_bytes
    }

    fn judge(&mut self, orders: &Orders, round: &Round, end: End) -> Result<(), String> {
        let done = Done::read_all(&self.dir);
        self.tally.operations += done.iter().map(|d| d.acknowledged.len() as u64).sum::<u64>();
        let store = orders.store();
        let db = Db::open_read_only(&store, self.reading_options(round))
            .map_err(|e| format!("opening for reading after {end:?}: {e}"))?;
        let view =
            View::of(&db, round.number.is_multiple_of(2)).map_err(|e| format!("a scan: {e}"))?;
        let sync = self.sync_of(round);
        let least = |(done, seen): (&Done, usize)| match end {
            End::Closed => done.acknowledged.len(),
            End::Killed => done.handed_over(sync).max(seen),
        };
        let bounds = Bounds {
            // What a reader has seen is there as well.
            least: done.iter().zip(self.readers.seen(round)).map(least).collect(),
            most: done.iter().map(|done| done.begun.len()).collect(),
            over: done.iter().map(|done| done.acknowledged.len()).collect(),
        };
        let (state, there) =
            judge(&view, round, &done, &bounds).map_err(|why| format!("after {end:?}: {why}"))?;
        let known = Known { round, done: &done, there: &there };
        let read = self.history.check(&db, &known, &mut SplitMix64::new(round.seed));
        read.map_err(|why| format!("the change feed after {end:?}: {why}"))?;
        if round.number.is_multiple_of(5) {
            db.verify().map_err(|e| format!("verify: {e}"))?;
        }
        drop(db);
        self.state = state;
        self.judge_checkpoints(round, &done)?;
        if end == End::Closed {
            // What a child had finished and not yet named when it died.
            let lost = names::lost_dir(&store);
            self.tally.set_aside += usage::directory_files(&lost);
            let _ = std::fs::remove_dir_all(lost);
            // Readers keep files past a close.
            if !has_readers(round) {
                let left_over = left_over(&PosixVfs::new(), &store);
                let mut left_over = left_over.map_err(|e| format!("looking for files: {e}"))?;
                // What feeds may still want, or wanted until this round.
                self.keeps_log |= self.log_retention_bytes(round) > 0;
                let files = left_over.len();
                left_over.retain(|name| !self.keeps_log || !name.ends_with(".log"));
                self.keeps_log &= self.log_retention_bytes(round) > 0 || left_over.len() < files;
                if !left_over.is_empty() {
                    return Err(format!("left over in a closed store: {left_over:?}"));
                }
                let (bytes, live) = (usage::directory_bytes(&store), self.state.live_bytes());
                if bytes > live * MAX_PER_LIVE_BYTE + MAX_BESIDE_BYTES {
                    return Err(format!("the closed store has {bytes} bytes for {live} live ones"));
                }
                self.tally.tidy_closes += 1;
                self.tally.most_bytes = self.tally.most_bytes.max(bytes);
            }
        }
        Ok(())
    }

    /// A checkpoint that was acknowledged is there, and every one that is there holds what was over
    /// before it was asked for and nothing that began after it.
    fn judge_checkpoints(&mut self, round: &Round, done: &[Done]) -> Result<(), String> {
        for thread in 0..THREADS {
            let ops = round.ops(thread, done[thread].begun.len());
            for (number, _) in ops.iter().enumerate().filter(|(_, o)| matches!(o, Op::Checkpoint)) {
                let path = self.dir.join(format!("checkpoint-{thread}-{number}"));
                let begun = done[thread].begun[number];
                let ended = done[thread].acknowledged.get(number).copied();
                if path.exists() {
                    self.judge_checkpoint(round, done, &path, begun, ended.unwrap_or(u64::MAX))
                        .map_err(|why| format!("checkpoint {number} of thread {thread}: {why}"))?;
                    self.tally.checkpoints += 1;
                } else if ended.is_some() {
                    return Err(format!("checkpoint {number} of thread {thread} is missing"));
                }
                let _ = std::fs::remove_dir_all(path.with_extension("partial"));
                let _ = std::fs::remove_dir_all(path);
            }
        }
        Ok(())
    }

    fn judge_checkpoint(
        &self,
        round: &Round,
        done: &[Done],
        path: &Path,
        begun: u64,
        ended: u64,
    ) -> Result<(), String> {
        let mut options = self.reading_options(round);
        options.column_families.clear();
        let db = Db::open(path, options).map_err(|e| format!("the open: {e}"))?;
        let view = View::of(&db, false).map_err(|e| format!("a scan: {e}"))?;
        let before: Vec<usize> = done.iter().map(|d| d.acknowledged_before(begun)).collect();
        let bounds = Bounds {
            least: before.clone(),
            most: done.iter().map(|d| d.begun_before(ended)).collect(),
            over: before,
        };
        let mut then = done.to_vec();
        for done in &mut then {
            done.begun.truncate(done.begun_before(ended));
            // What came later says nothing about what the checkpoint must have.
            done.acknowledged.truncate(done.acknowledged_before(begun));
        }
        judge(&view, round, &then, &bounds)?;
        db.close().map_err(|e| format!("the close: {e}"))
    }

    fn report(&self, rounds: u64) {
        let (t, beside) = (&self.tally, &self.readers.tally);
        println!("{:32} {:>12} {:>6}", "point", "passed", "died");
        for point in kill::points() {
            let of = |map: &BTreeMap<String, u64>| map.get(point).copied().unwrap_or(0);
            println!("{point:32} {:>12} {:>6}", of(&t.passed), of(&t.died_at));
        }
        println!(
            "crash test: SEED={}, {rounds} rounds on one store: {} kills, {} closes, {} of them with no \
             file left over, {} operations; beside a writer {} read-only opens, {} refreshes, {} of them \
             with news, {} reads of what was read before; {} batches of the log, {} of them of rounds before, {} reads \
             from a random number; {} checkpoints, {} files set aside; at most {} \
             bytes on disk, {} live at the end; 0 lost, 0 holes",
            self.seed,
            t.kills,
            t.closes,
            t.tidy_closes,
            t.operations,
            beside.opens,
            beside.refreshes,
            beside.news,
            beside.reread,
            self.history.read,
            self.history.of_before,
            self.history.suffixes,
            t.checkpoints,
            t.set_aside,
            t.most_bytes,
            self.state.live_bytes(),
        );
    }
}

/// How long the driver waits between two things that readers do.
const BETWEEN_READS: Duration = Duration::from_millis(5);

/// Whether readers are beside the child. Without them, what a round leaves is what the writer keeps.
fn has_readers(round: &Round) -> bool {
    !round.number.is_multiple_of(3)
}

fn err_path(dir: &Path) -> PathBuf {
    dir.join("child-said")
}

fn start(orders: &Orders) -> Child {
    let said = std::fs::File::create(err_path(&orders.dir)).unwrap();
    Command::new(std::env::current_exe().unwrap())
        .args(["child::child", "--exact", "--ignored", "--nocapture"])
        .env(ORDERS, orders.to_line())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(said)
        .spawn()
        .unwrap()
}

fn number_of(variable: &str) -> Option<f64> {
    std::env::var(variable).ok().and_then(|value| value.parse().ok())
}

#[test]
fn a_store_that_lives_through_every_kill_has_what_was_acknowledged_and_no_hole() {
    let effort = number_of("TERRACE_TEST_EFFORT").unwrap_or(1.0);
    let rounds = (ROUNDS * effort).ceil() as u64;
    let seed = number_of("SEED").map_or(20_261_122, |seed| seed as u64);
    let dir = tempfile::Builder::new().prefix("terrace-crash-").tempdir().unwrap().keep();
    println!("crash test: SEED={seed}, {rounds} rounds in {}", dir.display());
    let mut driver = Driver::new(seed, &dir);
    for number in 0..rounds {
        if let Err(why) = driver.round(number) {
            let said = std::fs::read_to_string(err_path(&dir)).unwrap_or_default();
            driver.report(number);
            panic!(
                "round {number}: {why}\n{said}\nits orders were {}\neverything is kept in {}; replay with SEED={seed} \
                 TERRACE_TEST_EFFORT={effort} cargo test -p terrace --test crash",
                driver.orders,
                dir.display()
            );
        }
    }
    driver.report(rounds);
    let never: Vec<&str> =
        kill::points().filter(|point| !driver.tally.passed.contains_key(*point)).collect();
    let idle: Vec<&str> = kill::points()
        .filter(|point| driver.tally.passed.get(*point).is_none_or(|passed| *passed == 0))
        .collect();
    assert!(never.is_empty(), "the children do not know of {never:?}");
    if effort >= 1.0 {
        assert!(idle.is_empty(), "no child came past {idle:?}: the test misses what they are for");
        assert!(driver.tally.kills > rounds / 2, "only {} children died", driver.tally.kills);
        assert!(driver.tally.tidy_closes > 0, "no closed store was looked through");
        assert!(driver.readers.tally.news > 0, "no reader saw anything new");
        assert!(driver.history.of_before > 0, "no log went back to a round before");
    }
    std::fs::remove_dir_all(&dir).unwrap();
}
