//! Flushes of all stores, as one store knows them: so that no key outlives one by a move beside it.
//!
//! A flush has two rounds, which who leads it sends to every store: *announce*, and when all have answered,
//! *execute*. From the announcement on until it has executed the flush, a store takes part in no move:
//!
//! ```text
//! announce   moves of its own keys that are not committed are undone; done when the copies of keys that came home are
//!            dropped, and asked for again until then
//! between    no move begins, no copy is exported, none is imported
//! execute    its keys are removed, if the flush is still announced
//! ```
//! So every key is in one store from the last announcement to the flush of that store, and is flushed once. An
//! announcement is in memory and lapses, so that nobody waits for a leader that is gone. Then the store
//! refuses to execute the flush, and the leader knows that keys may have outlived it.

use crate::moves::intent::Refusal;
use std::fmt;
use std::time::Duration;

/// How long a store waits for a flush that was announced.
const LASTS: Duration = Duration::from_secs(30);

/// Names a flush of all stores; drawn by who leads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlushId(pub u64);

impl fmt::Display for FlushId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The flushes that are announced to a store. Read and changed while no key of the store can be; `now` never goes
/// back.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Flushes {
    /// Each with when it lapses.
    announced: Vec<(FlushId, Duration)>,
}

impl Flushes {
    /// A flush is coming. What is not committed of the store's own moves was undone
    /// ([`HomeKey::flush`](crate::HomeKey::flush)).
    pub fn announce(&mut self, id: FlushId, now: Duration) {
        self.announced.retain(|(known, until)| *known != id && now < *until);
        self.announced.push((id, now + LASTS));
    }

    /// Whether a flush may be executed.
    pub fn is_announced(&self, id: FlushId, now: Duration) -> bool {
        self.announced.iter().any(|(known, until)| *known == id && now < *until)
    }

    /// A flush is executed.
    pub fn end(&mut self, id: FlushId) {
        self.announced.retain(|(known, _)| *known != id);
    }

    /// Whether the store may take part in moves.
    ///
    /// # Errors
    /// `Flushing`.
    pub fn may_move(&self, now: Duration) -> Result<(), Refusal> {
        match self.announced.iter().any(|(_, until)| now < *until) {
            true => Err(Refusal::Flushing),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_moves_from_the_announcement_to_the_flush_or_until_it_lapses() {
        let (one, other) = (FlushId(1), FlushId(2));
        let at = Duration::from_secs;
        let mut flushes = Flushes::default();
        assert_eq!(flushes.may_move(at(0)), Ok(()));
        flushes.announce(one, at(0));
        flushes.announce(other, at(10));
        // It may come twice.
        flushes.announce(other, at(10));
        assert_eq!(flushes.may_move(at(10)), Err(Refusal::Flushing));
        flushes.end(other);
        assert!(flushes.is_announced(one, at(29)) && !flushes.is_announced(other, at(29)));
        assert_eq!(flushes.may_move(at(29)), Err(Refusal::Flushing));
        // From the moment on at which keys move again, the flush is refused.
        assert!(!flushes.is_announced(one, at(30)));
        assert_eq!(flushes.may_move(at(30)), Ok(()));
        flushes.announce(other, at(40));
        assert_eq!(flushes, Flushes { announced: vec![(other, at(70))] });
    }
}
