//! Threads as those of `std`, which take turns when a thread of a simulation starts them.

use super::world::{Cause, World};
use super::{Seat, seat};
use parking_lot::Mutex;
use std::io;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

/// Processors that a simulation says there are.
const PROCESSORS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(1);

/// How a thread is started.
#[derive(Debug, Default)]
pub struct Builder {
    name: Option<String>,
}

impl Builder {
    /// A thread without a name.
    pub fn new() -> Self {
        Self::default()
    }

    /// A thread called `name`.
    pub fn name(self, name: String) -> Self {
        Self { name: Some(name) }
    }

    /// Starts it.
    #[track_caller]
    pub fn spawn<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<T>> {
        let name = self.name.unwrap_or_else(|| "unnamed".into());
        let builder = std::thread::Builder::new().name(name.clone());
        let Some(seat) = seat() else {
            return Ok(JoinHandle { inner: builder.spawn(work)?, task: None });
        };
        let new = seat.start(&name);
        let task = Some((new.world.clone(), new.id));
        let inner = builder.spawn(move || new.live(work))?;
        seat.switch("spawn", Location::caller());
        Ok(JoinHandle { inner, task })
    }
}

impl Seat {
    fn start(&self, name: &str) -> Self {
        Self { world: self.world.clone(), id: self.world.enter(name) }
    }

    /// Waits until thread `id` has ended.
    fn wait_for_end_of(&self, id: usize, at: &'static Location<'static>) {
        while !self.world.has_ended(id) {
            self.wait(Cause::End(id), None, at);
        }
    }
}

/// A thread that was started.
#[derive(Debug)]
pub struct JoinHandle<T> {
    inner: std::thread::JoinHandle<T>,
    task: Option<(Arc<World>, usize)>,
}

impl<T> JoinHandle<T> {
    /// Whether it has ended.
    pub fn is_finished(&self) -> bool {
        match &self.task {
            Some((world, id)) => world.has_ended(*id),
            None => self.inner.is_finished(),
        }
    }

    /// Waits for its end; the error is what it panicked with.
    #[track_caller]
    pub fn join(self) -> std::thread::Result<T> {
        if let (Some(seat), Some((_, id))) = (seat(), &self.task) {
            seat.wait_for_end_of(*id, Location::caller());
        }
        self.inner.join()
    }
}

/// Where threads can be started that borrow.
pub struct Scope<'scope, 'env: 'scope> {
    inner: &'scope std::thread::Scope<'scope, 'env>,
    started: Mutex<Vec<usize>>,
}

/// A thread that was started in a [`Scope`].
pub struct ScopedJoinHandle<'scope, T> {
    inner: std::thread::ScopedJoinHandle<'scope, T>,
    id: Option<usize>,
}

/// As `std::thread::scope`.
#[track_caller]
pub fn scope<'env, T>(work: impl for<'scope> FnOnce(&Scope<'scope, 'env>) -> T) -> T {
    let at = Location::caller();
    std::thread::scope(|inner| {
        let scope = Scope { inner, started: Mutex::default() };
        let result = catch_unwind(AssertUnwindSafe(|| work(&scope)));
        if let Some(seat) = seat() {
            for id in scope.started.into_inner() {
                seat.wait_for_end_of(id, at);
            }
        }
        result.unwrap_or_else(|panic| resume_unwind(panic))
    })
}

impl<'scope> Scope<'scope, '_> {
    /// Starts a thread.
    #[track_caller]
    pub fn spawn<T: Send + 'scope>(
        &self,
        work: impl FnOnce() -> T + Send + 'scope,
    ) -> ScopedJoinHandle<'scope, T> {
        self.start("scoped", work)
            .unwrap_or_else(|error| resume_unwind(Box::new(error.to_string())))
    }

    /// Starts a thread called `name`.
    #[track_caller]
    fn start<T: Send + 'scope>(
        &self,
        name: &str,
        work: impl FnOnce() -> T + Send + 'scope,
    ) -> io::Result<ScopedJoinHandle<'scope, T>> {
        let builder = std::thread::Builder::new().name(name.into());
        let Some(seat) = seat() else {
            let inner = builder.spawn_scoped(self.inner, work)?;
            return Ok(ScopedJoinHandle { inner, id: None });
        };
        let new = seat.start(name);
        let id = new.id;
        self.started.lock().push(id);
        let inner = builder.spawn_scoped(self.inner, move || new.live(work))?;
        seat.switch("spawn", Location::caller());
        Ok(ScopedJoinHandle { inner, id: Some(id) })
    }
}

/// Starts a thread called `name` in `scope`; a simulation always has one.
#[track_caller]
pub fn spawn_scoped<'scope, T: Send + 'scope>(
    scope: &Scope<'scope, '_>,
    name: &str,
    work: impl FnOnce() -> T + Send + 'scope,
) -> io::Result<ScopedJoinHandle<'scope, T>> {
    scope.start(name, work)
}

impl<T> ScopedJoinHandle<'_, T> {
    /// Waits for its end; the error is what it panicked with.
    #[track_caller]
    pub fn join(self) -> std::thread::Result<T> {
        if let (Some(seat), Some(id)) = (seat(), self.id) {
            seat.wait_for_end_of(id, Location::caller());
        }
        self.inner.join()
    }
}

/// Sleeps.
#[track_caller]
pub fn sleep(time: Duration) {
    match seat() {
        None => std::thread::sleep(time),
        Some(seat) => drop(seat.wait(Cause::Sleep, Some(time), Location::caller())),
    }
}

/// Lets others go on.
#[track_caller]
pub fn yield_now() {
    match seat() {
        None => std::thread::yield_now(),
        Some(seat) => seat.switch("yield", Location::caller()),
    }
}

/// How many threads can run at the same time; the same in every simulation.
pub fn available_parallelism() -> io::Result<NonZeroUsize> {
    match seat() {
        None => std::thread::available_parallelism(),
        Some(_) => Ok(PROCESSORS),
    }
}
