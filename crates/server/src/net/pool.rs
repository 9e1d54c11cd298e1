//! Threads that execute commands which have to wait: for the device, or for a key.

use super::offload::Offload;
use super::thread;
use crate::server::Server;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use terrace_keyspace::Mode;

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Offload>,
    idle: usize,
    /// Threads that are on a offload.
    busy: usize,
    is_closing: bool,
}

/// The threads and those who wait for one.
pub struct Pool {
    queue: Mutex<Queue>,
    changed: Condvar,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Pool {
    /// Starts `count` threads for `server`.
    ///
    /// # Errors
    /// The machine has no room for more threads.
    pub(crate) fn start(server: &Arc<Server>, count: usize) -> io::Result<Arc<Self>> {
        let pool = Arc::new(Self {
            queue: Mutex::new(Queue::default()),
            changed: Condvar::new(),
            threads: Mutex::new(Vec::new()),
        });
        for number in 0..count {
            let (pool_of_thread, server) = (pool.clone(), server.clone());
            let name = format!("reader-{number}");
            let thread = thread::spawn(name, move || pool_of_thread.work(&server))?;
            pool.threads.lock().push(thread);
        }
        Ok(pool)
    }

    /// Whether nobody offloads, nor waits to.
    pub(super) fn is_idle(&self) -> bool {
        let queue = self.queue.lock();
        queue.busy == 0 && queue.waiting.is_empty()
    }

    pub(super) fn send(&self, offloads: impl Iterator<Item = Offload>) {
        let mut queue = self.queue.lock();
        let before = queue.waiting.len();
        queue.waiting.extend(offloads);
        let wake = (queue.waiting.len() - before).min(queue.idle);
        drop(queue);
        for _ in 0..wake {
            self.changed.notify_one();
        }
    }

    /// Serves those who wait and ends the threads.
    pub fn close(&self) {
        self.queue.lock().is_closing = true;
        self.changed.notify_all();
        for thread in self.threads.lock().drain(..) {
            let _panicked = thread.join();
        }
    }

    fn work(&self, server: &Arc<Server>) {
        let mut batch = server.space.command_batch(Mode::Device);
        let mut was_busy = false;
        loop {
            let offload = {
                let mut queue = self.queue.lock();
                queue.busy -= usize::from(was_busy);
                loop {
                    if let Some(offload) = queue.waiting.pop_front() {
                        queue.busy += 1;
                        break offload;
                    }
                    if queue.is_closing {
                        return;
                    }
                    queue.idle += 1;
                    self.changed.wait(&mut queue);
                    queue.idle -= 1;
                }
            };
            offload.run(&mut batch, server);
            was_busy = true;
        }
    }
}
