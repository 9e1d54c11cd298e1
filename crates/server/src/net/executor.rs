//! The threads that execute what may block, so that no event loop does: commands that wait for the device or
//! for a key, and commits that wait for a sync or are held back.
//!
//! Commands and commits have threads of their own, since a command may wait for a key whose lock is held
//! by a batch that waits for its commit. Both go back to the loop by its [`LoopHandle`].

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
use terrace_keyspace::Mode;

#[derive(Default)]
struct Queue {
    offloads: VecDeque<Offload>,
    commits: VecDeque<(BatchCommit, Arc<LoopHandle>)>,
    /// Command threads that wait for an offload.
    idle: usize,
    /// Command threads that execute one.
    busy: usize,
    is_closing: bool,
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
        for number in 0..command_threads {
            let (own, server) = (executor.clone(), server.clone());
            let work = move || own.execute_commands(&server);
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

    fn execute_commands(&self, server: &Arc<Server>) {
        let mut batch = server.space.command_batch(Mode::Device);
        let mut was_busy = false;
        loop {
            let offload = {
                let mut queue = self.queue.lock();
                queue.busy -= usize::from(was_busy);
                loop {
                    if let Some(offload) = queue.offloads.pop_front() {
                        queue.busy += 1;
                        break offload;
                    }
                    if queue.is_closing {
                        return;
                    }
                    queue.idle += 1;
                    self.has_offload.wait(&mut queue);
                    queue.idle -= 1;
                }
            };
            offload.run(&mut batch, server);
            was_busy = true;
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
