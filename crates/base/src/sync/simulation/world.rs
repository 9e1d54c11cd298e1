//! The scheduler's state: who exists, whose turn it is, what everybody waits for, and the time.
//!
//! One lock guards all of it. A thread without the turn sleeps on a signal of its own.

use super::{LONGEST_PAUSE, Listener, Outcome, Settings};
use crate::checksum::hash_key;
use crate::rng::{Rng, SplitMix64};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::panic::Location;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Threads differ in how often they get the turn by up to this factor, a power of two.
const MAX_WEIGHT_BITS: u64 = 5;

/// What a thread waits for. Addresses tell locks and signals apart and decide nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    Lock(usize),
    Signal(usize),
    Sleep,
    /// Of a thread.
    End(usize),
}

#[derive(Debug, Clone, Copy)]
struct Waiting {
    cause: Cause,
    until_ns: Option<u64>,
    at: &'static Location<'static>,
}

#[derive(Debug, Clone, Copy)]
enum Status {
    Ready,
    Waiting(Waiting),
    Ended,
}

#[derive(Debug)]
struct Task {
    name: String,
    status: Status,
    /// Whether its last wait ended by what it waited for, not by its deadline.
    signalled: bool,
    weight: u64,
    turn: Arc<Condvar>,
    /// What its caller is doing, and since when.
    call: Option<(String, u64)>,
}

struct State {
    rng: SplitMix64,
    settings: Settings,
    now_ns: u64,
    steps: u64,
    hash: u64,
    trace: Vec<String>,
    tasks: Vec<Task>,
    running: Option<usize>,
    /// Who holds which lock, and where it was taken.
    held: BTreeMap<usize, (usize, &'static Location<'static>)>,
    failure: Option<String>,
    listener: Option<Arc<Listener>>,
}

/// One simulation.
pub(super) struct World {
    state: Mutex<State>,
    epoch: Instant,
    ended: Condvar,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("World")
    }
}

impl World {
    pub(super) fn new(settings: Settings) -> Self {
        let state = State {
            rng: SplitMix64::new(settings.seed),
            settings,
            now_ns: 0,
            steps: 0,
            hash: 0,
            trace: Vec::new(),
            tasks: Vec::new(),
            running: None,
            held: BTreeMap::new(),
            failure: None,
            listener: None,
        };
        Self { state: Mutex::new(state), epoch: Instant::now(), ended: Condvar::new() }
    }

    /// The machine's time that stands for the beginning.
    pub(super) fn epoch(&self) -> Instant {
        self.epoch
    }

    pub(super) fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.state.lock().now_ns)
    }

    pub(super) fn advance(&self, time: Duration) {
        self.state.lock().now_ns += time.as_nanos() as u64;
    }

    pub(super) fn set_listener(&self, listener: Arc<Listener>) {
        self.state.lock().listener = Some(listener);
    }

    pub(super) fn listener(&self) -> Option<Arc<Listener>> {
        self.state.lock().listener.clone()
    }

    pub(super) fn set_call(&self, id: usize, what: Option<String>) {
        let mut state = self.state.lock();
        let now = state.now_ns;
        state.tasks[id].call = what.map(|what| (what, now));
    }

    pub(super) fn record(&self, id: usize, kind: &'static str, what: &str, data: u64) {
        self.state.lock().event(id, kind, what, data);
    }

    /// Adds a thread that may go on; gives its number. The first has the turn.
    pub(super) fn enter(&self, name: &str) -> usize {
        let mut state = self.state.lock();
        let id = state.tasks.len();
        let weight = 1 << state.rng.below(MAX_WEIGHT_BITS + 1);
        state.tasks.push(Task {
            name: name.into(),
            status: Status::Ready,
            signalled: false,
            weight,
            turn: Arc::default(),
            call: None,
        });
        state.event(id, "enter", name, weight);
        if id == 0 {
            state.running = Some(0);
        }
        id
    }

    /// The thread has ended, with a panic or without.
    pub(super) fn leave(&self, id: usize, panic: Option<String>) {
        let mut state = self.state.lock();
        state.tasks[id].status = Status::Ended;
        state.tasks[id].call = None;
        state.event(id, "leave", "", 0);
        if let Some(what) = panic {
            let name = state.tasks[id].name.clone();
            state.fail(format!("thread {id} ({name}) {what}"));
        }
        state.release(|cause| cause == Cause::End(id));
        if state.tasks.iter().all(|task| matches!(task.status, Status::Ended)) {
            state.running = None;
            self.ended.notify_all();
            return;
        }
        self.pass_on(&mut state, id);
    }

    pub(super) fn has_ended(&self, id: usize) -> bool {
        matches!(self.state.lock().tasks[id].status, Status::Ended)
    }

    pub(super) fn wait_for_turn(&self, id: usize) {
        let mut state = self.state.lock();
        self.sleep_until_turn(&mut state, id);
    }

    /// A switch point at which the thread could go on.
    pub(super) fn switch(&self, id: usize, kind: &'static str, at: &'static Location<'static>) {
        let mut state = self.state.lock();
        state.step(id, kind, at);
        self.pass_on(&mut state, id);
        self.sleep_until_turn(&mut state, id);
    }

    /// How long a thread stays away at a marked place, if it does; short pauses are as likely as long ones.
    pub(super) fn draw_pause(&self) -> Option<Duration> {
        let mut state = self.state.lock();
        let one_in = state.settings.pause_one_in;
        state.rng.one_in(one_in).then(|| LONGEST_PAUSE / (1 << state.rng.below(12)))
    }

    /// Waits for `cause`, at most `most`; false if the time was over first.
    pub(super) fn wait(
        &self,
        id: usize,
        cause: Cause,
        most: Option<Duration>,
        at: &'static Location<'static>,
    ) -> bool {
        let mut state = self.state.lock();
        state.step(id, "wait", at);
        let until_ns = most.map(|most| state.now_ns.saturating_add(most.as_nanos() as u64));
        state.tasks[id].status = Status::Waiting(Waiting { cause, until_ns, at });
        self.pass_on(&mut state, id);
        self.sleep_until_turn(&mut state, id);
        state.tasks[id].signalled
    }

    pub(super) fn note_held(&self, lock: usize, id: usize, at: &'static Location<'static>) {
        self.state.lock().held.insert(lock, (id, at));
    }

    pub(super) fn note_released(&self, lock: usize) {
        let mut state = self.state.lock();
        state.held.remove(&lock);
        state.release(|cause| cause == Cause::Lock(lock));
    }

    /// Wakes the threads that wait for `signal`: all, or any one.
    pub(super) fn signal(&self, signal: usize, all: bool) {
        let mut state = self.state.lock();
        let is_waiting = |task: &Task| matches!(task.status, Status::Waiting(w) if w.cause == Cause::Signal(signal));
        let mut waiting: Vec<usize> =
            (0..state.tasks.len()).filter(|id| is_waiting(&state.tasks[*id])).collect();
        if !all && !waiting.is_empty() {
            let chosen = state.rng.below(waiting.len() as u64) as usize;
            waiting = vec![waiting[chosen]];
        }
        for id in waiting {
            state.tasks[id].status = Status::Ready;
            state.tasks[id].signalled = true;
        }
    }

    pub(super) fn fail(&self, why: String) {
        let mut state = self.state.lock();
        state.fail(why);
        self.ended.notify_all();
    }

    /// Waits until the run is over.
    pub(super) fn wait_for_end(&self) -> Outcome {
        let mut state = self.state.lock();
        while state.failure.is_none() && state.running.is_some() {
            self.ended.wait(&mut state);
        }
        Outcome {
            hash: state.hash,
            steps: state.steps,
            elapsed: Duration::from_nanos(state.now_ns),
            failure: state.failure.clone(),
            trace: std::mem::take(&mut state.trace),
        }
    }

    /// Gives the turn to somebody who can go on.
    fn pass_on(&self, state: &mut MutexGuard<'_, State>, from: usize) {
        if state.failure.is_none() {
            match state.choose(from) {
                Some(next) => {
                    state.running = Some(next);
                    if next != from {
                        state.tasks[next].turn.notify_one();
                    }
                }
                None => state.fail_waiting("all threads wait for one another"),
            }
        }
        if state.failure.is_some() {
            self.ended.notify_all();
        }
    }

    fn sleep_until_turn(&self, state: &mut MutexGuard<'_, State>, id: usize) {
        let turn = state.tasks[id].turn.clone();
        while state.failure.is_some() || state.running != Some(id) {
            turn.wait(state);
        }
    }
}

impl State {
    fn event(&mut self, id: usize, kind: &'static str, what: &str, data: u64) {
        let text = hash_key(kind.as_bytes()) ^ hash_key(what.as_bytes()).rotate_left(1);
        for part in [id as u64, self.now_ns, text, data] {
            self.hash = SplitMix64::new(self.hash ^ part).next_u64();
        }
        if self.settings.keep_trace {
            let name = &self.tasks[id].name;
            let ms = self.now_ns as f64 / 1e6;
            self.trace.push(format!(
                "{:>7} {ms:>10.3} ms {id:>3} {name:<18} {kind} {what} {data:x}",
                self.steps
            ));
        }
    }

    fn step(&mut self, id: usize, kind: &'static str, at: &'static Location<'static>) {
        self.steps += 1;
        self.now_ns += self.settings.tick.as_nanos() as u64;
        self.event(id, kind, at.file(), u64::from(at.line()));
        if self.steps > self.settings.most_steps {
            self.fail_waiting("more steps than a run may take");
        }
    }

    /// Those who wait for what `done` says can go on.
    fn release(&mut self, done: impl Fn(Cause) -> bool) {
        for task in &mut self.tasks {
            if matches!(task.status, Status::Waiting(waiting) if done(waiting.cause)) {
                task.status = Status::Ready;
                task.signalled = true;
            }
        }
    }

    /// Who goes on; `None` if all wait without a deadline.
    fn choose(&mut self, from: usize) -> Option<usize> {
        let early = self.rng.one_in(self.settings.timeout_one_in);
        let is_ready = |task: &Task| matches!(task.status, Status::Ready);
        let all_wait = !self.tasks.iter().any(is_ready);
        if early || all_wait {
            let deadlines = self.tasks.iter().filter_map(Task::deadline);
            let jump_ns = deadlines.min().unwrap_or(0).saturating_sub(self.now_ns);
            self.now_ns += jump_ns;
            if !all_wait {
                self.excuse_calls(jump_ns);
            }
            self.check_calls();
        }
        let now = self.now_ns;
        for task in self.tasks.iter_mut().filter(|t| t.deadline().is_some_and(|at| at <= now)) {
            task.status = Status::Ready;
            task.signalled = false;
        }
        let stays = !self.rng.one_in(self.settings.switch_one_in);
        if stays && is_ready(&self.tasks[from]) {
            return Some(from);
        }
        let ready = || self.tasks.iter().enumerate().filter(|(_, task)| is_ready(task));
        let weights: u64 = ready().map(|(_, task)| task.weight).sum();
        if weights == 0 {
            return None;
        }
        let mut draw = self.rng.below(weights);
        let chosen = ready().find(|(_, task)| match draw.checked_sub(task.weight) {
            None => true,
            Some(left) => {
                draw = left;
                false
            }
        });
        chosen.map(|(id, _)| id)
    }

    /// Time that passed although somebody could go on is not what a call has taken: nobody was given
    /// the time to use it.
    fn excuse_calls(&mut self, jump_ns: u64) {
        for (_, since) in self.tasks.iter_mut().filter_map(|task| task.call.as_mut()) {
            *since += jump_ns;
        }
    }

    /// Fails the run if somebody has been in one call for too long.
    fn check_calls(&mut self) {
        let (now, most) = (self.now_ns, self.settings.longest_call.as_nanos() as u64);
        let late = self.tasks.iter().filter_map(|task| task.call.as_ref());
        if let Some((what, since)) = late.min_by_key(|(_, since)| *since)
            && now - since > most
        {
            let seconds = (now - since) / 1_000_000_000;
            self.fail_waiting(&format!("`{what}` has not returned for {seconds} s"));
        }
    }

    fn fail_waiting(&mut self, why: &str) {
        let mut text = why.to_string();
        for (id, task) in self.tasks.iter().enumerate() {
            let doing =
                task.call.as_ref().map_or(String::new(), |(what, _)| format!(" in `{what}`"));
            let _ = match task.status {
                Status::Ended => continue,
                Status::Ready => write!(text, "\n  thread {id} ({}){doing} can go on", task.name),
                Status::Waiting(waiting) => write!(
                    text,
                    "\n  thread {id} ({}){doing} waits at {}:{} for {}",
                    task.name,
                    waiting.at.file(),
                    waiting.at.line(),
                    self.what_for(waiting)
                ),
            };
        }
        self.fail(text);
    }

    fn what_for(&self, waiting: Waiting) -> String {
        match waiting.cause {
            Cause::Lock(lock) => match self.held.get(&lock) {
                Some((holder, at)) => {
                    format!("a lock that thread {holder} took at {}:{}", at.file(), at.line())
                }
                None => "a lock".into(),
            },
            Cause::Signal(_) => match waiting.until_ns {
                Some(until) => format!(
                    "a signal, for {} ms more",
                    until.saturating_sub(self.now_ns) / 1_000_000
                ),
                None => "a signal, for ever".into(),
            },
            Cause::Sleep => "time to pass".into(),
            Cause::End(id) => format!("the end of thread {id}"),
        }
    }

    /// The first failure counts.
    fn fail(&mut self, why: String) {
        self.failure.get_or_insert(why);
    }
}

impl Task {
    fn deadline(&self) -> Option<u64> {
        match self.status {
            Status::Waiting(waiting) => waiting.until_ns,
            Status::Ready | Status::Ended => None,
        }
    }
}
