//! Clients whose next command waits for the end of a `CLIENT PAUSE`.

use super::EventLoop;
use std::time::Duration;

/// How often the end of a pause is looked for.
pub(super) const LOOK: Duration = Duration::from_millis(10);

impl EventLoop {
    /// The next command of a client waits.
    pub(super) fn pause(&mut self, token: usize) {
        let Some(client) = self.clients.get_mut(token) else { return };
        if client.was_left {
            // Nobody waits for what it has asked for, but the replies to what is before that may still be read.
            client.closes = true;
        } else if self.paused.insert(token) {
            self.server.pause.enter();
        }
    }

    /// A client that may have waited is gone.
    pub(super) fn forget_paused(&mut self, token: usize) {
        if self.paused.remove(&token) {
            self.server.pause.leave();
        }
    }

    /// Those who wait go on, if the pause is over; if another one has begun, those wait again for whom it holds.
    pub(super) fn look_at_the_pause(&mut self) {
        let pause = &self.server.pause;
        let state = pause.state();
        if self.paused.is_empty() {
            self.pause_seen = state;
            return;
        }
        if state == self.pause_seen && pause.holds(|| true, || self.server.space.now_ms()) {
            return;
        }
        self.pause_seen = state;
        for token in std::mem::take(&mut self.paused) {
            self.server.pause.leave();
            if let Some(client) = self.clients.get(token) {
                client.info.note_use(None, self.server.space.now_ms());
            }
            self.queue(token);
        }
    }
}
