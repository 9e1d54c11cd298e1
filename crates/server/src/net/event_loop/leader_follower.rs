//! The two threads of a loop: a leader, which runs it, and a follower, which sleeps. When a client that is
//! alone needs a command that may block, the leader hands the loop to the follower, executes the command and sends the
//! reply itself, and becomes the follower. So such a command costs no hop to another thread, and
//! the loop never blocks.

use super::EventLoop;
use crate::net::offload::Offload;
use crate::server::Server;
use mio::Events;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use terrace_keyspace::Mode;

/// Events that are taken at a time.
const MAX_EVENTS: usize = 1024;

/// Why a thread leads no longer.
pub(super) enum LeadOutcome {
    /// It waits for the device, for this client.
    PassedOn(Box<EventLoop>, Offload),
    /// The loop has ended.
    Ended,
}

/// What the two threads share.
#[derive(Default)]
pub(super) struct LeaderFollower {
    slot: Mutex<LoopSlot>,
    changed: Condvar,
}

#[derive(Default)]
struct LoopSlot {
    /// The loop, while nobody leads it.
    event_loop: Option<Box<EventLoop>>,
    sleeping: usize,
    /// The loop has ended, or one of the threads has.
    is_over: bool,
}

impl LeaderFollower {
    /// Whether somebody sleeps who can lead.
    pub fn has_relief(&self) -> bool {
        let slot = self.slot.lock();
        slot.sleeping > 0 && !slot.is_over
    }

    /// Puts the loop back: the thread that takes it first leads, the other or the caller again.
    pub fn give(&self, event_loop: Box<EventLoop>) {
        self.slot.lock().event_loop = Some(event_loop);
        self.changed.notify_one();
    }

    fn take(&self) -> Option<Box<EventLoop>> {
        let mut slot = self.slot.lock();
        loop {
            if let Some(event_loop) = slot.event_loop.take() {
                return Some(event_loop);
            }
            if slot.is_over {
                return None;
            }
            slot.sleeping += 1;
            self.changed.wait(&mut slot);
            slot.sleeping -= 1;
        }
    }
}

/// Tells the other thread when this one ends, however it does.
struct Runner(Arc<LeaderFollower>);

impl Drop for Runner {
    fn drop(&mut self) {
        self.0.slot.lock().is_over = true;
        self.0.changed.notify_all();
    }
}

/// What each of the two threads does.
pub(super) fn run(leader_follower: Arc<LeaderFollower>, server: &Server) {
    let runner = Runner(leader_follower);
    let mut events = Events::with_capacity(MAX_EVENTS);
    let mut batch = server.space.command_batch(Mode::Device);
    while let Some(event_loop) = runner.0.take() {
        match event_loop.lead(&mut events) {
            LeadOutcome::PassedOn(event_loop, offload) => {
                runner.0.give(event_loop);
                let mut left = Some(offload);
                while let Some(offload) = left {
                    left = offload.run(&mut batch, server);
                }
            }
            LeadOutcome::Ended => return,
        }
    }
}
