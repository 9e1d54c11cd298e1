//! `Mutex` and `Condvar` as those of `parking_lot`, cooperative on threads of a simulation.
//!
//! There, a thread that waits gives its turn away, so that the lock inside is never contended.

use super::world::Cause;
use super::{Seat, seat};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::time::Duration;

/// A lock around its data.
#[derive(Default)]
pub struct Mutex<T: ?Sized> {
    inner: parking_lot::Mutex<T>,
}

impl<T> Mutex<T> {
    /// A lock that nobody holds.
    pub const fn new(data: T) -> Self {
        Self { inner: parking_lot::Mutex::new(data) }
    }

    /// The data.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// What tells this lock from others while it exists.
    fn address(&self) -> usize {
        std::ptr::from_ref(&self.inner).cast::<()>().addr()
    }

    /// Waits for the lock. A switch point, held by somebody or not.
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let at = Location::caller();
        match seat() {
            None => MutexGuard { inner: Some(self.inner.lock()), lock: self },
            Some(seat) => {
                seat.switch("lock", at);
                MutexGuard { inner: Some(self.acquire(&seat, at)), lock: self }
            }
        }
    }

    fn acquire(
        &self,
        seat: &Seat,
        at: &'static Location<'static>,
    ) -> parking_lot::MutexGuard<'_, T> {
        loop {
            if let Some(guard) = self.inner.try_lock() {
                seat.world.note_held(self.address(), seat.id, at);
                return guard;
            }
            seat.wait(Cause::Lock(self.address()), None, at);
        }
    }

    /// The lock, if nobody holds it.
    #[track_caller]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let at = Location::caller();
        if let Some(seat) = seat() {
            seat.switch("try_lock", at);
            let inner = Some(self.inner.try_lock()?);
            seat.world.note_held(self.address(), seat.id, at);
            return Some(MutexGuard { inner, lock: self });
        }
        Some(MutexGuard { inner: Some(self.inner.try_lock()?), lock: self })
    }

    /// The data, for its only owner.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// The right to the data of a [`Mutex`], until it is dropped.
pub struct MutexGuard<'a, T: ?Sized> {
    /// `None` only while a [`Condvar`] waits.
    inner: Option<parking_lot::MutexGuard<'a, T>>,
    lock: &'a Mutex<T>,
}

impl<T: ?Sized> MutexGuard<'_, T> {
    /// Gives the lock back.
    fn release(&mut self) {
        if self.inner.take().is_some()
            && let Some(seat) = seat()
        {
            seat.world.note_released(self.lock.address());
        }
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.inner {
            Some(inner) => inner,
            None => unreachable!("a guard holds its lock whenever anybody can look"),
        }
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        match &mut self.inner {
            Some(inner) => inner,
            None => unreachable!("a guard holds its lock whenever anybody can look"),
        }
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        self.release();
    }
}

/// Whether a wait ended because its time was over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Whether it did.
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

/// A signal.
#[derive(Debug, Default)]
pub struct Condvar {
    inner: parking_lot::Condvar,
}

impl Condvar {
    /// A signal that nobody waits for.
    pub const fn new() -> Self {
        Self { inner: parking_lot::Condvar::new() }
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Waits for the signal without the lock, and takes the lock again.
    #[track_caller]
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        self.wait_at_most(guard, None, Location::caller());
    }

    /// As [`Condvar::wait`], for at most `time`.
    #[track_caller]
    pub fn wait_for<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        time: Duration,
    ) -> WaitTimeoutResult {
        WaitTimeoutResult(self.wait_at_most(guard, Some(time), Location::caller()))
    }

    /// Whether the time was over.
    fn wait_at_most<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        most: Option<Duration>,
        at: &'static Location<'static>,
    ) -> bool {
        let Some(seat) = seat() else {
            let Some(inner) = guard.inner.as_mut() else { return false };
            return match most {
                Some(most) => self.inner.wait_for(inner, most).timed_out(),
                None => {
                    self.inner.wait(inner);
                    false
                }
            };
        };
        // Nobody else runs between the two: no signal can be missed.
        guard.release();
        let signalled = seat.wait(Cause::Signal(self.address()), most, at);
        guard.inner = Some(guard.lock.acquire(&seat, at));
        !signalled
    }

    /// Wakes one thread that waits, any of them. A switch point.
    #[track_caller]
    pub fn notify_one(&self) {
        match seat() {
            None => drop(self.inner.notify_one()),
            Some(seat) => {
                seat.switch("notify", Location::caller());
                seat.world.signal(self.address(), false);
            }
        }
    }

    /// Wakes every thread that waits. A switch point.
    #[track_caller]
    pub fn notify_all(&self) {
        match seat() {
            None => drop(self.inner.notify_all()),
            Some(seat) => {
                seat.switch("notify", Location::caller());
                seat.world.signal(self.address(), true);
            }
        }
    }
}
