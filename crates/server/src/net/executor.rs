//! The threads that execute what may block, so that no event loop does: commands that wait for the device or
//! for a key, and commits that wait for a sync or are held back.
//!
//! Commands and commits have threads of their own, since a command may wait for a key whose lock is held
//! by a batch that waits for its commit. Both go back to the loop by its [`LoopHandle`].
//!
//! Commands that look at very many elements or bytes leave some of the command threads to those that wait for the device or a
//! key: one such command may take minutes, and a client may send any number of them.
//!
//! A command whose key another batch is writing keeps no thread: it lies here until a key is free, and is tried again. One for
//! which others were faster each time waits with a thread, but no more than half of them do that, so that what needs another key, or
//! none, finds one.

use super::loop_handle::{BatchCommit, Committed, LoopHandle};
use super::offload::Offload;
use super::thread;
use crate::dispatch;
use crate::server::Server;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use terrace_keyspace::{Mode, Wait};

/// How often a command is tried whose key another batch is writing, until a thread waits for the key.
const MAX_TRIES: u32 = 4;

#[derive(Default)]
struct Queue {
    offloads: VecDeque<Offload>,
    /// Those whose next command was refused a key, until one is free.
    held_up: VecDeque<Offload>,
    /// Those that look at much, until one of their kind is over.
    walks: VecDeque<Offload>,
    /// How often a key has become free that a batch was refused.
    releases: u64,
    commits: VecDeque<(BatchCommit, Arc<LoopHandle>)>,
    /// Command threads that wait for an offload.
    idle: usize,
    /// Command threads that execute one.
    busy: usize,
    /// Those of them that wait for its keys.
    patient: usize,
    /// Those of them that look at much.
    walking: usize,
    is_closing: bool,
}

/// How many command threads do something at a time, at most.
#[derive(Clone, Copy)]
struct Most {
    /// That wait for keys.
    patient: usize,
    /// That look at much.
    walking: usize,
}

impl Most {
    fn of(command_threads: usize) -> Self {
        let quarter = (command_threads / 4).max(1);
        let walking = command_threads.saturating_sub(quarter).max(1);
        Self { patient: (command_threads / 2).max(1), walking }
    }
}

/// What a command thread executes.
struct Turn {
    /// `None` when it has been executed.
    offload: Option<Offload>,
    /// Whether the thread waits for its keys.
    is_patient: bool,
    /// Whether it looks at much.
    is_walk: bool,
    /// How many keys had become free when it began.
    releases: u64,
}

impl Queue {
    /// The next turn of a thread, if there is something to do.
    fn begin_turn(&mut self, most: Most) -> Option<Turn> {
        while let Some(offload) = self.offloads.pop_front() {
            let is_walk = offload.wait == Wait::Walk;
            if is_walk && self.walking >= most.walking {
                self.walks.push_back(offload);
                continue;
            }
            let is_patient = offload.tries >= MAX_TRIES;
            if is_patient && self.patient >= most.patient {
                self.held_up.push_back(offload);
                continue;
            }
            self.patient += usize::from(is_patient);
            self.walking += usize::from(is_walk);
            self.busy += 1;
            let releases = self.releases;
            return Some(Turn { offload: Some(offload), is_patient, is_walk, releases });
        }
        None
    }

    /// A turn is over. Whether something is to be tried again.
    fn end_turn(&mut self, turn: Turn) -> bool {
        self.busy -= 1;
        match turn.offload {
            // The key that it was refused may be free since.
            Some(offload) if self.releases != turn.releases => self.offloads.push_back(offload),
            Some(offload) => self.held_up.push_back(offload),
            None => {}
        }
        if turn.is_walk {
            self.walking -= 1;
            // The thread whose turn it was takes it, or another one.
            if let Some(next) = self.walks.pop_front() {
                self.offloads.push_front(next);
            }
        }
        if turn.is_patient {
            self.patient -= 1;
            return self.try_again();
        }
        false
    }

    /// A key is free that a batch was refused, or a thread may wait for one. Whether there is something to do.
    fn try_again(&mut self) -> bool {
        let is_any = !self.held_up.is_empty();
        self.offloads.append(&mut self.held_up);
        is_any
    }
}

/// The threads, and what waits for one.
pub struct Executor {
    queue: Mutex<Queue>,
    has_offload: Condvar,
    has_commit: Condvar,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Executor {
    /// Starts threads for `server`: this many for commands, and this many for commits.
    ///
    /// # Errors
    /// The machine has no room for more threads.
    pub(crate) fn start(
        server: &Arc<Server>,
        command_threads: usize,
        commit_threads: usize,
    ) -> io::Result<Arc<Self>> {
        let executor = Arc::new(Self {
            queue: Mutex::default(),
            has_offload: Condvar::new(),
            has_commit: Condvar::new(),
            threads: Mutex::default(),
        });
        let called = Arc::downgrade(&executor);
        server.space.on_release(move || {
            if let Some(executor) = called.upgrade() {
                executor.key_is_free();
            }
        });
        let most = Most::of(command_threads);
        for number in 0..command_threads {
            let (own, server) = (executor.clone(), server.clone());
            let work = move || own.execute_commands(&server, most);
            executor.threads.lock().push(thread::spawn(format!("reader-{number}"), work)?);
        }
        for number in 0..commit_threads {
            let (own, server) = (executor.clone(), server.clone());
            let work = move || own.commit_batches(&server);
            executor.threads.lock().push(thread::spawn(format!("commit-{number}"), work)?);
        }
        Ok(executor)
    }

    /// Whether no command is executed here, nor waits to be.
    pub(super) fn is_idle(&self) -> bool {
        let queue = self.queue.lock();
        queue.busy == 0 && queue.offloads.is_empty()
    }

    /// Executes the commands of clients.
    pub(super) fn offload(&self, offloads: impl Iterator<Item = Offload>) {
        let mut queue = self.queue.lock();
        let before = queue.offloads.len();
        queue.offloads.extend(offloads);
        let wake = (queue.offloads.len() - before).min(queue.idle);
        drop(queue);
        for _ in 0..wake {
            self.has_offload.notify_one();
        }
    }

    /// Commits a batch of the loop `home`, which gets it back.
    pub(super) fn commit(&self, commit: BatchCommit, home: Arc<LoopHandle>) {
        self.queue.lock().commits.push_back((commit, home));
        self.has_commit.notify_one();
    }

    /// Executes what waits and ends the threads.
    pub fn close(&self) {
        self.queue.lock().is_closing = true;
        self.has_offload.notify_all();
        self.has_commit.notify_all();
        for thread in self.threads.lock().drain(..) {
            let _panicked = thread.join();
        }
    }

    /// A key is free that a batch was refused.
    fn key_is_free(&self) {
        let mut queue = self.queue.lock();
        queue.releases += 1;
        let is_any = queue.try_again();
        drop(queue);
        if is_any {
            self.has_offload.notify_all();
        }
    }

    fn execute_commands(&self, server: &Server, most: Most) {
        let mut batch = server.space.command_batch(Mode::Device);
        let mut over = None;
        while let Some(mut turn) = self.next_turn(over.take(), most) {
            batch.wait_for_keys(turn.is_patient);
            turn.offload = turn.offload.and_then(|offload| offload.run(&mut batch, server));
            over = Some(turn);
        }
    }

    /// What a thread executes whose turn is `over`. `None`: it ends.
    fn next_turn(&self, over: Option<Turn>, most: Most) -> Option<Turn> {
        let mut queue = self.queue.lock();
        if over.is_some_and(|over| queue.end_turn(over)) {
            self.has_offload.notify_all();
        }
        loop {
            if let Some(turn) = queue.begin_turn(most) {
                return Some(turn);
            }
            if queue.is_closing && queue.held_up.is_empty() {
                return None;
            }
            queue.idle += 1;
            self.has_offload.wait(&mut queue);
            queue.idle -= 1;
        }
    }

    fn commit_batches(&self, server: &Server) {
        loop {
            let (mut commit, home) = {
                let mut queue = self.queue.lock();
                loop {
                    if let Some(next) = queue.commits.pop_front() {
                        break next;
                    }
                    if queue.is_closing {
                        return;
                    }
                    self.has_commit.wait(&mut queue);
                }
            };
            let error = dispatch::commit(&mut commit.batch, server).err();
            home.committed(Committed { commit, error });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walks_leave_threads_to_others_where_there_are_several() {
        for (threads, walking) in [(1, 1), (2, 1), (3, 2), (4, 3), (8, 6), (256, 192)] {
            assert_eq!(Most::of(threads).walking, walking, "{threads}");
        }
    }
}
