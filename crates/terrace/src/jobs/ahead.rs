//! What writers and readers ask for before they need it, so that they do not wait for the system: memory of memtables, durable
//! names of log segments, and memory for cached blocks. A thread of the store does it (`background::worker`).

use terrace_base::sync::{Condvar, Mutex};
use terrace_skiplist::MemoryAhead;

/// What was asked for since the thread took it last.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    pub memory: Vec<MemoryAhead>,
    /// Whether a log segment was begun.
    pub names: bool,
    /// Whether few huge pages are at hand for buffers.
    pub buffers: bool,
}

impl Wanted {
    fn is_nothing(&self) -> bool {
        self.memory.is_empty() && !self.names && !self.buffers
    }
}

#[derive(Debug, Default)]
struct State {
    wanted: Wanted,
    is_stopping: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    state: Mutex<State>,
    asked: Condvar,
}

impl Ahead {
    /// Memory will be needed soon.
    #[cold]
    pub fn ask_for_memory(&self, memory: MemoryAhead) {
        self.ask(|wanted| wanted.memory.push(memory));
    }

    /// A log segment was begun, whose name is not durable.
    pub fn ask_for_names(&self) {
        self.ask(|wanted| wanted.names = true);
    }

    /// Buffers take huge pages, of which few are at hand; whether it will be seen to.
    pub fn ask_for_buffers(&self) -> bool {
        self.ask(|wanted| wanted.buffers = true)
    }

    fn ask(&self, add: impl FnOnce(&mut Wanted)) -> bool {
        let mut state = self.state.lock();
        // Nobody takes it any more.
        if state.is_stopping {
            return false;
        }
        add(&mut state.wanted);
        drop(state);
        self.asked.notify_one();
        true
    }

    /// Waits until something is wanted; `None` once the store stops.
    pub fn next(&self) -> Option<Wanted> {
        let mut state = self.state.lock();
        loop {
            if state.is_stopping {
                return None;
            }
            let wanted = std::mem::take(&mut state.wanted);
            if !wanted.is_nothing() {
                return Some(wanted);
            }
            self.asked.wait(&mut state);
        }
    }

    /// The thread ends, and what was not done is let go of: those who need it see to it.
    pub fn stop(&self) {
        let mut state = self.state.lock();
        state.is_stopping = true;
        state.wanted = Wanted::default();
        drop(state);
        self.asked.notify_all();
    }
}

// Elsewhere all memory of a list is there from the beginning.
#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use super::*;
    use terrace_skiplist::{Hint, Skiplist};

    #[test]
    fn what_is_asked_for_is_given_once_and_nothing_after_the_end() {
        let ahead = Ahead::default();
        ahead.ask_for_names();
        ahead.ask_for_names();
        let wanted = ahead.next().unwrap();
        assert!(wanted.names && wanted.memory.is_empty() && !wanted.buffers);
        assert!(ahead.ask_for_buffers());
        let wanted = ahead.next().unwrap();
        assert!(wanted.buffers && !wanted.names);
        let list = Skiplist::with_capacity(8 << 20).unwrap();
        let memory = |list: &std::sync::Arc<Skiplist>| loop {
            let key = list.entry_count().to_be_bytes();
            list.insert(&key, 1, &[0; 4000], &mut Hint::default()).unwrap();
            if let Some(memory) = list.memory_ahead() {
                return memory;
            }
        };
        ahead.ask_for_memory(memory(&list));
        let wanted = ahead.next().unwrap();
        assert!(!wanted.names && wanted.memory.len() == 1);
        drop(wanted);
        ahead.ask_for_memory(memory(&list));
        ahead.stop();
        assert!(ahead.next().is_none() && !ahead.ask_for_buffers());
        // Nothing keeps a memtable alive that nobody needs.
        assert_eq!(std::sync::Arc::strong_count(&list), 1);
        ahead.ask_for_memory(memory(&list));
        assert_eq!(std::sync::Arc::strong_count(&list), 1);
    }
}
