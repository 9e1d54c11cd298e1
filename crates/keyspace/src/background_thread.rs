//! A thread that does a step of some work now and then, until it is stopped.

use parking_lot::{Condvar, Mutex};
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

#[derive(Default)]
struct Stop {
    is_stopped: Mutex<bool>,
    changed: Condvar,
}

/// A thread that is stopped, and waited for, when this is dropped.
pub(crate) struct BackgroundThread {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

impl BackgroundThread {
    /// Calls `step` after `pause`, and again after each pause that it gives, until it gives none.
    pub fn start(
        name: &str,
        mut pause: Duration,
        mut step: impl FnMut() -> Option<Duration> + Send + 'static,
    ) -> io::Result<Self> {
        let stop = Arc::new(Stop::default());
        let stops = stop.clone();
        let work = move || {
            loop {
                {
                    let mut is_stopped = stops.is_stopped.lock();
                    if !*is_stopped {
                        stops.changed.wait_for(&mut is_stopped, pause);
                    }
                    if *is_stopped {
                        return;
                    }
                }
                let Some(next) = step() else { return };
                pause = next;
            }
        };
        let thread = thread::Builder::new().name(name.into()).spawn(work)?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Stops the thread, and waits for its step to end.
    pub fn stop(&mut self) {
        *self.stop.is_stopped.lock() = true;
        self.stop.changed.notify_all();
        let Some(thread) = self.thread.take() else { return };
        // A step may drop the last reference to what holds this: a thread does not wait for itself.
        if thread.thread().id() != thread::current().id() {
            // Nothing is left to do about a panic there.
            let _ = thread.join();
        }
    }
}

impl Drop for BackgroundThread {
    fn drop(&mut self) {
        self.stop();
    }
}
