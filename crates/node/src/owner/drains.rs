//! Moves that wait for what was under way when their keys were held: not for longer than a key may be held, since a command may
//! take any time.

use super::Owner;
use std::time::Duration;
use terrace_cluster::{MoveEvent, MoveId};

impl Owner {
    /// Undoes moves that have waited for too long; all that wait if the shard is being given up. How long until the next one
    /// will have.
    pub(super) fn undo_undrained(&mut self) -> Option<Duration> {
        let now = self.start.elapsed();
        let limit = match self.is_stopping {
            true => Duration::ZERO,
            false => self.shared.config.hold_limit,
        };
        let left = |since: &Duration| since.saturating_add(limit).saturating_sub(now);
        let late = self.draining.iter().filter(|(_, since)| left(since).is_zero());
        let late: Vec<MoveId> = late.map(|(id, _)| *id).collect();
        for id in late {
            self.draining.remove(&id);
            tracing::warn!("move {id} is undone: commands under way have taken too long");
            let effects = self.mover.on(id, MoveEvent::Undrained);
            self.run(id, effects);
        }
        self.draining.values().map(left).min()
    }
}
