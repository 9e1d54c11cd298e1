//! Threads that execute commands which have to wait: for the device, or for a key.

use super::connection::{Progress, Talk};
use super::event_loop::LoopHandle;
use crate::dispatch;
use crate::server::Server;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use terrace_keyspace::{Mode, Turn, Wait};

/// Commands that a client may execute here before it goes back and others have their turn, if the
/// first had to wait for the device: the next ones may have to as well.
pub(super) const MOST_COMMANDS: usize = 64;

/// A client on its visit, and where it comes from.
pub(crate) struct Visit {
    pub talk: Box<Talk>,
    /// What its command has to wait for.
    pub wait: Wait,
    pub home: Arc<LoopHandle>,
    pub token: usize,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Visit>,
    idle: usize,
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
            let thread = std::thread::Builder::new()
                .name(format!("reader-{number}"))
                .spawn(move || pool_of_thread.work(&server))?;
            pool.threads.lock().push(thread);
        }
        Ok(pool)
    }

    pub(crate) fn send(&self, server: &Server, visits: impl Iterator<Item = Visit>) {
        let mut queue = self.queue.lock();
        let before = queue.waiting.len();
        queue.waiting.extend(visits);
        let count = queue.waiting.len() - before;
        server.stats.waiting.fetch_add(count as u64, Ordering::Relaxed);
        server.stats.pool_visits.add(count as u64);
        let wake = count.min(queue.idle);
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
        let mut turn = server.space.turn(Mode::Device);
        loop {
            let mut visit = {
                let mut queue = self.queue.lock();
                loop {
                    if let Some(visit) = queue.waiting.pop_front() {
                        break visit;
                    }
                    if queue.is_closing {
                        return;
                    }
                    queue.idle += 1;
                    self.changed.wait(&mut queue);
                    queue.idle -= 1;
                }
            };
            let most = if visit.wait == Wait::Key { 1 } else { MOST_COMMANDS };
            let progress = serve(&mut visit.talk, &mut turn, server, most);
            server.stats.waiting.fetch_sub(1, Ordering::Relaxed);
            let Visit { talk, home, token, .. } = visit;
            home.come_back(token, talk, progress);
        }
    }
}

/// Executes what the client has asked for, each command in a turn of its own.
pub(super) fn serve(talk: &mut Talk, turn: &mut Turn, server: &Server, most: usize) -> Progress {
    for _ in 0..most {
        talk.begin_turn();
        let progress = talk.go_on(turn, server, 1);
        if let Err(error) = dispatch::commit(turn, server) {
            talk.fail_turn(&error);
        }
        match progress {
            // The turn that was just committed may have held the locks.
            Progress::More | Progress::Elsewhere(..) => {}
            Progress::Idle | Progress::Close => return progress,
        }
    }
    Progress::More
}
