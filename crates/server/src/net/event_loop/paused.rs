//! Clients whose next command waits for the end of a `CLIENT PAUSE`.

use super::EventLoop;
use std::time::Duration;

/// How often the end of a pause is looked for.
pub(super) const LOOK: Duration = Duration::from_millis(10);

impl EventLoop {
    /// The next command of a client waits.
    pub(super) fn pause(&mut self, token: usize) {
        if self.clients.get(token).is_some_and(|client| client.was_left) {
            // Nobody waits for what it has asked for.
            return self.remove(token);
        }
        if !self.paused.contains(&token) {
            self.paused.push(token);
            self.server.pause.enter();
        }
    }

    /// A client that may have waited is gone.
    pub(super) fn forget_paused(&mut self, token: usize) {
        let before = self.paused.len();
        self.paused.retain(|paused| *paused != token);
        (self.paused.len()..before).for_each(|_| self.server.pause.leave());
    }

    /// Those who wait go on, if the pause is over; if another one has begun, they wait again.
    pub(super) fn look_at_the_pause(&mut self) {
        if self.paused.is_empty() || self.server.pause.holds(|| true, || self.server.space.now_ms())
        {
            return;
        }
        for token in std::mem::take(&mut self.paused) {
            self.server.pause.leave();
            if let Some(client) = self.clients.get(token) {
                client.info.note_use(None, self.server.space.now_ms());
            }
            self.queue(token);
        }
    }
}
