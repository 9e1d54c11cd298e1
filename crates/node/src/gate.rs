//! Counts what is under way at this node's store, so that it can be waited for.
//!
//! Who enters gets a token of the current generation. Draining begins another one and waits until all
//! tokens of the earlier ones are gone. So a rule that is changed before a drain holds for everything
//! once the drain is over.

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::watch;

/// While this lives, the drains that begin now do not end.
#[derive(Clone)]
pub(crate) struct Token {
    _alive: Arc<watch::Sender<()>>,
}

/// See the module.
pub(crate) struct Gate {
    current: ArcSwap<watch::Sender<()>>,
    /// Of earlier generations that may have tokens: closed when the last one is gone.
    earlier: Mutex<Vec<watch::Receiver<()>>>,
}

impl Gate {
    pub fn new() -> Self {
        let current = ArcSwap::from_pointee(watch::Sender::new(()));
        Self { current, earlier: Mutex::new(Vec::new()) }
    }

    /// Enters.
    pub fn enter(&self) -> Token {
        Token { _alive: self.current.load_full() }
    }

    /// Waits until all who entered before are gone; new ones may enter meanwhile.
    pub fn drain(&self) -> impl Future<Output = ()> + Send + use<> {
        let earlier = {
            let mut earlier = self.earlier.lock();
            let old = self.current.swap(Arc::new(watch::Sender::new(())));
            earlier.retain(|generation| generation.has_changed().is_ok());
            earlier.push(old.subscribe());
            earlier.clone()
        };
        async move {
            for mut generation in earlier {
                // Nothing is ever sent: it ends when the sender is gone.
                while generation.changed().await.is_ok() {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn is_over(drain: std::pin::Pin<&mut impl Future<Output = ()>>) -> bool {
        drain.poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
    }

    #[test]
    fn a_drain_waits_for_those_before_it_and_for_no_others() {
        let gate = Gate::new();
        assert!(is_over(pin!(gate.drain())));
        let first = gate.enter();
        let mut one = pin!(gate.drain());
        let second = gate.enter();
        let mut two = pin!(gate.drain());
        let _third = gate.enter();
        assert!(!is_over(one.as_mut()) && !is_over(two.as_mut()));
        drop(second);
        assert!(!is_over(two.as_mut()), "the first is older and still there");
        let copy = first.clone();
        drop(first);
        assert!(!is_over(one.as_mut()));
        drop(copy);
        assert!(is_over(one.as_mut()) && is_over(two.as_mut()));
    }

    #[test]
    fn a_drain_that_is_given_up_forgets_nobody() {
        let gate = Gate::new();
        let first = gate.enter();
        drop(gate.drain());
        let mut next = pin!(gate.drain());
        assert!(!is_over(next.as_mut()));
        drop(first);
        assert!(is_over(next.as_mut()));
    }
}
