//! Whose turn it is to make revisions (see `epochs`), and how far these have come. Revisions are of all shards: what one
//! has reached the others need not make, however far that one goes on.

use tokio::sync::{Mutex, MutexGuard, watch};

/// See the module.
pub(crate) struct Passing {
    turn: Mutex<()>,
    /// The revision that was reached in the present turn; 0 before its first.
    reached: watch::Sender<u64>,
}

/// While this lives, nobody else makes revisions.
pub(crate) struct Turn<'a> {
    passing: &'a Passing,
    _turn: MutexGuard<'a, ()>,
}

/// Before the next one has its turn.
impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.passing.reached.send_replace(0);
    }
}

impl Passing {
    /// It is nobody's turn.
    pub fn new() -> Self {
        Self { turn: Mutex::new(()), reached: watch::Sender::new(0) }
    }

    /// Waits for a turn; `None` as soon as another's has reached `revision`.
    pub async fn turn(&self, revision: u64) -> Option<Turn<'_>> {
        let mut reached = self.reached.subscribe();
        let is_reached = async { drop(reached.wait_for(|reached| *reached >= revision).await) };
        tokio::select! {
            biased;
            turn = self.turn.lock() => Some(Turn { passing: self, _turn: turn }),
            () = is_reached => None,
        }
    }

    /// In a turn: a commit has made this revision.
    pub fn note(&self, revision: u64) {
        self.reached.send_if_modified(|reached| {
            let is_later = revision > *reached;
            *reached = revision.max(*reached);
            is_later
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    #[test]
    fn who_needs_less_waits_for_no_more_than_that() {
        let mut context = Context::from_waker(Waker::noop());
        let passing = Passing::new();
        let mut far = pin!(passing.turn(1_000_000));
        let Poll::Ready(Some(turn)) = far.as_mut().poll(&mut context) else { panic!("no turn") };
        let (mut near, mut next) = (pin!(passing.turn(100)), pin!(passing.turn(2_000)));
        assert!(near.as_mut().poll(&mut context).is_pending());
        assert!(next.as_mut().poll(&mut context).is_pending());
        passing.note(99);
        passing.note(7);
        assert!(near.as_mut().poll(&mut context).is_pending());
        passing.note(100);
        assert!(matches!(near.as_mut().poll(&mut context), Poll::Ready(None)));
        assert!(next.as_mut().poll(&mut context).is_pending());
        // The other one ends, and what it had reached is no word on the next turn.
        drop(turn);
        assert!(matches!(next.as_mut().poll(&mut context), Poll::Ready(Some(_))));
        assert!(matches!(pin!(passing.turn(1)).poll(&mut context), Poll::Ready(Some(_))));
    }
}
