//! A deterministic scheduler: the threads of a simulation are real, but only the one that holds
//! the *turn* runs. At every switch point (a lock, a signal, a sleep, the start or end of a thread,
//! an operation of the simulated file system) a seeded generator decides who goes on, so that one
//! seed is one run.
//!
//! Time is virtual: it passes by a tick at every switch point, jumps to the earliest deadline when
//! nobody can go on, and now and then jumps there although somebody could, as on a machine that
//! was busy with something else.
//!
//! A run fails when a thread panics, when all threads wait for one another, or when a bound on
//! steps, on virtual time or on the length of one call is passed; the failure names every thread
//! and what it waits for. Threads of a failed run stay where they are for ever: nothing that
//! they could still do would be worth knowing.
//!
//! Only built with the feature `simulation`, which nothing but the simulation test enables.

pub mod lock;
pub mod thread;
pub mod time;
mod world;

use super::Note;
use std::cell::RefCell;
use std::panic::Location;
use std::sync::{Arc, Once};
use std::time::Duration;
use world::{Cause, World};

/// The longest pause at a marked place.
pub const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// What decides a run, besides what its threads do.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Decides every choice of the scheduler.
    pub seed: u64,
    /// At one switch point in this many another thread may go on.
    pub switch_one_in: u64,
    /// At one switch point in this many the clock jumps to the earliest deadline.
    pub timeout_one_in: u64,
    /// At one marked place ([`interleave`]) in this many the thread stays away for up to [`LONGEST_PAUSE`], so
    /// that whole jobs of others fall into the gap.
    pub pause_one_in: u64,
    /// Virtual time that passes at a switch point.
    pub tick: Duration,
    /// A run of more switch points than this fails.
    pub most_steps: u64,
    /// A call ([`begin_call`]) that takes longer than this, in virtual time, fails the run; jumps of the
    /// clock while somebody could go on do not count.
    pub longest_call: Duration,
    /// Keep a line of text for every event.
    pub keep_trace: bool,
}

/// How a run ended.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// A hash of all events: thread, kind, place, and what operations read and wrote.
    pub hash: u64,
    /// Switch points passed.
    pub steps: u64,
    /// Virtual time passed.
    pub elapsed: Duration,
    /// What went wrong, if anything did.
    pub failure: Option<String>,
    /// The events as text, if they were to be kept.
    pub trace: Vec<String>,
}

/// A thread of a simulation, seen from itself.
#[derive(Clone)]
struct Seat {
    world: Arc<World>,
    id: usize,
}

thread_local! {
    static SEAT: RefCell<Option<Seat>> = const { RefCell::new(None) };
    /// What the last panic of this thread said, and where.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

fn seat() -> Option<Seat> {
    // No value: the thread is about to end, and its place in the simulation has ended.
    SEAT.try_with(|seat| seat.borrow().clone()).ok().flatten()
}

/// Runs `main` and every thread that it starts until all have ended or the run fails.
pub fn run(settings: Settings, main: impl FnOnce() + Send + 'static) -> Outcome {
    remember_panics();
    let world = Arc::new(World::new(settings));
    let first = Seat { world: world.clone(), id: world.enter("main") };
    let started = std::thread::Builder::new().spawn(move || first.live(main));
    if let Err(error) = &started {
        world.fail(format!("no thread could be started: {error}"));
    }
    world.wait_for_end()
}

/// Keeps what panics on threads of simulations say for the outcome, instead of printing it.
fn remember_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| match seat() {
            None => before(info),
            Some(_) => PANIC.set(Some(info.to_string())),
        }));
    });
}

impl Seat {
    /// Takes the turn when it comes, does `work`, and hands the turn on for good.
    fn live<T>(self, work: impl FnOnce() -> T) -> T {
        SEAT.set(Some(self.clone()));
        self.world.wait_for_turn(self.id);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        let panic = result.is_err().then(|| PANIC.take().unwrap_or_default());
        SEAT.set(None);
        self.world.leave(self.id, panic);
        match result {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    fn switch(&self, kind: &'static str, at: &'static Location<'static>) {
        self.world.switch(self.id, kind, at);
    }

    fn wait(&self, cause: Cause, most: Option<Duration>, at: &'static Location<'static>) -> bool {
        self.world.wait(self.id, cause, most, at)
    }
}

/// Whether this thread belongs to a simulation.
pub fn is_running() -> bool {
    seat().is_some()
}

/// The number of this thread in its simulation, in the order in which they were started.
pub fn thread_number() -> Option<usize> {
    seat().map(|seat| seat.id)
}

/// Virtual time since the start of the simulation; none outside.
pub fn elapsed() -> Duration {
    seat().map_or(Duration::ZERO, |seat| seat.world.elapsed())
}

/// Lets virtual time pass without a switch point, as an operation of a device does.
pub fn advance(time: Duration) {
    if let Some(seat) = seat() {
        seat.world.advance(time);
    }
}

/// A switch point of the simulated world: an operation `kind` on `what`.
#[track_caller]
pub fn switch(kind: &'static str) {
    if let Some(seat) = seat() {
        seat.switch(kind, Location::caller());
    }
}

/// Adds an event to the trace and to its hash. `data` must be a function of the seed.
pub fn record(kind: &'static str, what: &str, data: u64) {
    if let Some(seat) = seat() {
        seat.world.record(seat.id, kind, what, data);
    }
}

/// Ends the run with a failure. Does not return on a thread of a simulation.
pub fn fail(why: String) {
    if let Some(seat) = seat() {
        seat.world.fail(why);
        seat.world.wait_for_turn(seat.id);
    }
}

/// This thread begins a call that must end within [`Settings::longest_call`].
pub fn begin_call(what: String) {
    if let Some(seat) = seat() {
        seat.world.set_call(seat.id, Some(what));
    }
}

/// The call that was begun last has ended.
pub fn end_call() {
    if let Some(seat) = seat() {
        seat.world.set_call(seat.id, None);
    }
}

/// Called with each [`Note`] and the numbers of the threads that it concerns.
pub type Listener = dyn Fn(Note, &[usize]) + Send + Sync;

/// From now on `listener` is called with the notes of this simulation.
pub fn listen(listener: Arc<Listener>) {
    if let Some(seat) = seat() {
        seat.world.set_listener(listener);
    }
}

/// The thread that began something.
#[derive(Debug, Clone, Copy)]
pub struct Origin(Option<usize>);

impl Origin {
    /// This thread.
    pub fn here() -> Self {
        Self(thread_number())
    }
}

/// Tells the listener what happens to what `origins` began.
pub fn note(what: Note, origins: impl Iterator<Item = Origin>) {
    if let Some(seat) = seat()
        && let Some(listener) = seat.world.listener()
    {
        let threads: Vec<usize> = origins.filter_map(|origin| origin.0).collect();
        listener(what, &threads);
    }
}

/// A switch point between two steps of which neither locks; now and then a long one.
#[track_caller]
pub fn interleave() {
    let Some(seat) = seat() else { return };
    match seat.world.draw_pause() {
        None => seat.switch("interleave", Location::caller()),
        Some(time) => drop(seat.wait(Cause::Sleep, Some(time), Location::caller())),
    }
}

/// The number of this process; the same in every simulation.
pub fn process_id() -> u32 {
    match is_running() {
        true => 1,
        false => std::process::id(),
    }
}

#[cfg(test)]
mod tests;
