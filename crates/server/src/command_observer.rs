//! An observer sees commands when they have been executed: a sample of them, and all that took long.

use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A command that was executed.
#[derive(Debug, Clone, Copy)]
pub struct ObservedCommand {
    /// Its name, in lower case.
    pub name: &'static str,
    /// How long its execution took, until now.
    pub took: Duration,
    /// Whether the answer is an error.
    pub failed: bool,
    /// Whether it took as long as `slowlog-log-slower-than`.
    pub is_slow: bool,
    /// The number of the database.
    pub database: u8,
    /// The client's number, as CLIENT LIST shows it.
    pub client: u64,
    /// The client's address.
    pub peer: SocketAddr,
}

/// See [`Server::observe_commands`](crate::Server::observe_commands).
pub trait CommandObserver: Send + Sync {
    /// A command was executed. Called by the thread that executed it, before its reply is sent: it must not wait.
    fn observe(&self, command: &ObservedCommand);
}

/// The observer, and how many commands it sees.
#[derive(Default)]
pub(crate) struct Observation {
    observer: OnceLock<Arc<dyn CommandObserver>>,
    every: AtomicU64,
}

impl Observation {
    /// From now on; the first observer stays.
    pub fn begin(&self, observer: Arc<dyn CommandObserver>) {
        let _first = self.observer.set(observer);
    }

    /// Of each thread, one command in every `every` is seen; with 0 only those that took long.
    pub fn set_every(&self, every: u64) {
        self.every.store(every, Ordering::Relaxed);
    }

    /// The observer, if it is to see this command.
    #[inline]
    pub fn observer(&self, is_slow: bool) -> Option<&dyn CommandObserver> {
        let observer = self.observer.get()?;
        let is_next = is_next(self.every.load(Ordering::Relaxed));
        (is_slow || is_next).then_some(&**observer)
    }
}

/// Whether it is this command's turn, of `every` ones of this thread.
fn is_next(every: u64) -> bool {
    thread_local! { static SINCE: Cell<u64> = const { Cell::new(0) } }
    let since = SINCE.get() + 1;
    let is_next = every > 0 && since >= every;
    SINCE.set(if is_next { 0 } else { since });
    is_next
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;

    #[derive(Default)]
    struct Names(Mutex<Vec<&'static str>>);

    impl CommandObserver for Names {
        fn observe(&self, command: &ObservedCommand) {
            self.0.lock().push(command.name);
        }
    }

    fn seen(observation: &Observation, commands: usize, is_slow: bool) -> usize {
        (0..commands).filter(|_| observation.observer(is_slow).is_some()).count()
    }

    #[test]
    fn a_sample_is_seen_and_all_that_took_long() {
        let observation = Observation::default();
        observation.set_every(1);
        assert_eq!(seen(&observation, 10, true), 0, "there is no observer");
        observation.begin(Arc::new(Names::default()));
        assert_eq!(seen(&observation, 10, false), 10);
        observation.set_every(4);
        assert_eq!(seen(&observation, 400, false), 100);
        assert_eq!(seen(&observation, 10, true), 10);
        observation.set_every(0);
        assert_eq!((seen(&observation, 1000, false), seen(&observation, 10, true)), (0, 10));
        // It is counted from the last one on, also while none were seen.
        observation.set_every(1000);
        assert_eq!(seen(&observation, 1, false), 1);
    }
}
