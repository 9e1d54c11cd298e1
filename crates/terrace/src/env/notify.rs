//! Telling listeners what happens: events wait in a queue, and a thread of its own tells them in their order. So a caller
//! may hold any lock, and a listener may block, call the store, or panic.
//!
//! Without listeners there is no thread, and telling costs a look at an empty list.

use crate::event;
use crate::listener::{Event, EventListener, StallChanged, StallCondition};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::ThreadId;
use terrace_base::caught::{discard, message_of};
use terrace_base::sync::thread::{Builder, JoinHandle};
use terrace_base::sync::{Condvar, Mutex};

/// Events that wait for a listener at most; later ones are dropped.
pub const MAX_WAITING_EVENTS: usize = 1 << 16;

/// The listeners of an open store.
#[derive(Default)]
pub(crate) struct Events {
    /// `None` without listeners.
    shared: Option<Arc<Shared>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    listeners: Vec<Arc<dyn EventListener>>,
    queue: Mutex<Queue>,
    /// Signalled when something is queued, and at the end.
    queued: Condvar,
    teller: OnceLock<ThreadId>,
    last_job: AtomicU64,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Event>,
    lost: u64,
    ended: bool,
    /// Of families whose writes are not normal.
    stalls: BTreeMap<String, StallCondition>,
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

impl Events {
    /// Tells `listeners` from now on.
    ///
    /// # Errors
    /// The system has no thread for it.
    pub fn start(listeners: &[Arc<dyn EventListener>]) -> std::io::Result<Self> {
        if listeners.is_empty() {
            return Ok(Self::default());
        }
        let shared = Arc::new(Shared {
            listeners: listeners.to_vec(),
            queue: Mutex::default(),
            queued: Condvar::new(),
            teller: OnceLock::new(),
            last_job: AtomicU64::new(0),
        });
        let of_thread = shared.clone();
        let work = move || of_thread.tell_all();
        let thread = Builder::new().name("terrace-events".into()).spawn(work)?;
        Ok(Self { shared: Some(shared), thread: Mutex::new(Some(thread)) })
    }

    /// Whether anybody listens.
    #[inline]
    pub fn is_heard(&self) -> bool {
        self.shared.is_some()
    }

    /// Queues what `make` gives, if anybody listens. Locks nothing else meanwhile.
    #[inline]
    pub fn tell(&self, make: impl FnOnce() -> Event) {
        if let Some(shared) = &self.shared {
            let event = make();
            shared.queue.lock().push(event);
            shared.queued.notify_one();
        }
    }

    /// The number of a job that begins.
    pub fn next_job(&self) -> u64 {
        let last = self.shared.as_ref().map(|shared| &shared.last_job);
        last.map_or(0, |last| last.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Writes to `family` are in the condition `now`: tells it if that is new.
    pub fn stall(&self, family: &str, now: StallCondition, cause: Option<&'static str>) {
        let Some(shared) = &self.shared else { return };
        let mut queue = shared.queue.lock();
        let before = queue.stalls.get(family).copied().unwrap_or_default();
        if before == now {
            return;
        }
        match now {
            StallCondition::Normal => queue.stalls.remove(family),
            _ => queue.stalls.insert(family.to_string(), now),
        };
        queue.push(Event::StallChanged(StallChanged { family: family.into(), before, now, cause }));
        shared.queued.notify_one();
    }

    /// Whether writes to some family were not normal when that was told last.
    pub fn has_stalls(&self) -> bool {
        self.shared.as_ref().is_some_and(|shared| !shared.queue.lock().stalls.is_empty())
    }

    /// Whether a listener calls this.
    pub fn is_told_here(&self) -> bool {
        let teller = self.shared.as_ref().and_then(|shared| shared.teller.get());
        teller == Some(&std::thread::current().id())
    }

    /// Returns when all that is queued has been told, unless a listener calls it. Later events are dropped.
    pub fn end(&self) {
        let Some(shared) = &self.shared else { return };
        shared.queue.lock().ended = true;
        shared.queued.notify_all();
        if self.is_told_here() {
            return;
        }
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            thread.join().unwrap_or_else(discard);
        }
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.end();
    }
}

impl Queue {
    fn push(&mut self, event: Event) {
        if self.ended {
            return;
        }
        if self.waiting.len() >= MAX_WAITING_EVENTS {
            self.lost += 1;
            return;
        }
        if self.lost > 0 {
            let lost = std::mem::take(&mut self.lost);
            self.waiting.push_back(Event::EventsLost(lost));
        }
        self.waiting.push_back(event);
    }

    /// The next event.
    fn pop(&mut self) -> Option<Event> {
        let lost = || (self.lost > 0).then(|| Event::EventsLost(std::mem::take(&mut self.lost)));
        self.waiting.pop_front().or_else(lost)
    }
}

impl Shared {
    fn tell_all(&self) {
        let _ = self.teller.set(std::thread::current().id());
        while let Some(event) = self.next() {
            for listener in &self.listeners {
                let told = catch_unwind(AssertUnwindSafe(|| event.tell(&**listener)));
                if let Err(panic) = told {
                    event::listener_panicked(&message_of(panic));
                }
            }
        }
    }

    /// Waits for the next event; `None` after the last.
    fn next(&self) -> Option<Event> {
        let mut queue = self.queue.lock();
        loop {
            if let Some(event) = queue.pop() {
                return Some(event);
            }
            if queue.ended {
                return None;
            }
            self.queued.wait(&mut queue);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// Waits for a word before the first event; then says how many are lost, and passes on stalls.
    struct Slow {
        go: Mutex<Option<Receiver<()>>>,
        heard: Sender<Result<StallChanged, u64>>,
    }

    impl EventListener for Slow {
        fn on_stall_changed(&self, event: &StallChanged) {
            if let Some(go) = self.go.lock().take() {
                let _ = go.recv();
            }
            let _ = self.heard.send(Ok(event.clone()));
        }

        fn on_events_lost(&self, count: u64) {
            let _ = self.heard.send(Err(count));
        }
    }

    fn slow() -> (Events, Sender<()>, Receiver<Result<StallChanged, u64>>) {
        let ((go, wait), (heard, hears)) = (channel(), channel());
        let listener = Slow { go: Mutex::new(Some(wait)), heard };
        (Events::start(&[Arc::new(listener)]).unwrap(), go, hears)
    }

    #[test]
    fn a_listener_that_blocks_loses_events_and_hears_how_many() {
        let (events, go, hears) = slow();
        // The first one may be taken out of the queue, or not, before it is full.
        let pushed = MAX_WAITING_EVENTS as u64 + 10;
        for n in 0..pushed {
            let now = [StallCondition::Slowed, StallCondition::Normal][n as usize % 2];
            events.stall("f", now, None);
        }
        go.send(()).unwrap();
        events.end();
        let heard: Vec<_> = hears.try_iter().collect();
        let lost: u64 = heard.iter().filter_map(|heard| heard.as_ref().err()).sum();
        let told = heard.iter().filter(|heard| heard.is_ok()).count() as u64;
        assert!((9..=10).contains(&lost), "{lost} were lost");
        assert_eq!(told + lost, pushed);
    }

    #[test]
    fn only_changes_of_a_condition_are_told() {
        let (events, go, hears) = slow();
        go.send(()).unwrap();
        use StallCondition::{Normal, Slowed, Stopped};
        for now in [Normal, Slowed, Slowed, Stopped, Normal, Normal] {
            events.stall("f", now, (now != Normal).then_some("l0_files"));
        }
        events.stall("g", Stopped, Some("memtables"));
        events.end();
        events.stall("g", Normal, None);
        let heard: Vec<_> = hears.try_iter().map(Result::unwrap).collect();
        let conditions: Vec<_> =
            heard.iter().map(|event| (event.family.as_str(), event.before, event.now)).collect();
        let f = [(Normal, Slowed), (Slowed, Stopped), (Stopped, Normal)].map(|(a, b)| ("f", a, b));
        assert_eq!(conditions, [&f[..], &[("g", Normal, Stopped)]].concat());
        assert_eq!(heard[3].cause, Some("memtables"));
    }

    #[test]
    fn a_listener_may_end_it_and_may_panic() {
        struct Panics;
        impl EventListener for Panics {
            fn on_events_lost(&self, count: u64) {
                match count {
                    1 => panic!("a planted panic"),
                    _ => std::panic::panic_any(Bomb),
                }
            }
        }
        /// Panics when it is dropped.
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                std::panic::panic_any(Bomb);
            }
        }
        struct Counts(AtomicU64, OnceLock<Arc<Events>>);
        impl EventListener for Counts {
            fn on_events_lost(&self, count: u64) {
                if self.0.fetch_add(count, Ordering::Relaxed) > 0 {
                    self.1.get().unwrap().end();
                }
            }
        }
        let counts = Arc::new(Counts(AtomicU64::new(0), OnceLock::new()));
        let events = Arc::new(Events::start(&[Arc::new(Panics), counts.clone()]).unwrap());
        assert!(counts.1.set(events.clone()).is_ok());
        events.tell(|| Event::EventsLost(1));
        events.tell(|| Event::EventsLost(2));
        events.end();
        assert_eq!(counts.0.load(Ordering::Relaxed), 3);
    }
}
