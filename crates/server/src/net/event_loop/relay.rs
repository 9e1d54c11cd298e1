//! The two threads of a loop. One leads it; the other sleeps. A leader that has to wait for the
//! device on behalf of a client that is alone gives the loop to the other one, waits and answers
//! itself, and then sleeps: the client's way leads over no other thread, and nobody else waits.

use super::EventLoop;
use crate::net::visit::Visit;
use crate::server::Server;
use mio::Events;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use terrace_keyspace::Mode;

/// Events that are taken at a time.
const MAX_EVENTS: usize = 1024;

/// Why a thread leads no longer.
pub(super) enum Handed {
    /// It waits for the device, for this client.
    On(Box<EventLoop>, Visit),
    /// The loop has ended.
    Over,
}

/// What the two threads share.
#[derive(Default)]
pub(super) struct Relay {
    place: Mutex<Place>,
    changed: Condvar,
}

#[derive(Default)]
struct Place {
    /// The loop, while nobody leads it.
    event_loop: Option<Box<EventLoop>>,
    sleeping: usize,
    /// The loop has ended, or one of the threads has.
    is_over: bool,
}

impl Relay {
    /// Whether somebody sleeps who can lead.
    pub fn has_relief(&self) -> bool {
        let place = self.place.lock();
        place.sleeping > 0 && !place.is_over
    }

    /// Gives the loop to whoever takes it first: the other, or the caller again.
    pub fn give(&self, event_loop: Box<EventLoop>) {
        self.place.lock().event_loop = Some(event_loop);
        self.changed.notify_one();
    }

    fn take(&self) -> Option<Box<EventLoop>> {
        let mut place = self.place.lock();
        loop {
            if let Some(event_loop) = place.event_loop.take() {
                return Some(event_loop);
            }
            if place.is_over {
                return None;
            }
            place.sleeping += 1;
            self.changed.wait(&mut place);
            place.sleeping -= 1;
        }
    }
}

/// Tells the other thread when this one ends, however it does.
struct Runner(Arc<Relay>);

impl Drop for Runner {
    fn drop(&mut self) {
        self.0.place.lock().is_over = true;
        self.0.changed.notify_all();
    }
}

/// What each of the two threads does.
pub(super) fn run(relay: Arc<Relay>, server: &Server) {
    let runner = Runner(relay);
    let mut events = Events::with_capacity(MAX_EVENTS);
    let mut turn = server.space.command_batch(Mode::Device);
    while let Some(event_loop) = runner.0.take() {
        match event_loop.lead(&mut events) {
            Handed::On(event_loop, visit) => {
                runner.0.give(event_loop);
                visit.run(&mut turn, server);
            }
            Handed::Over => return,
        }
    }
}
