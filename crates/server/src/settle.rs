//! What is under way of other clients when something is to hold for them from now on: the reply to `CLIENT KILL`, and
//! to a change of access control, waits until that is over.
//!
//! The command marks what holds, and gives an [`UnderWay`] to the loop of every client that it is about. The loop
//! keeps it until the batches with commands of that client are committed; a thread that executes a command of it,
//! until that is committed. What has not taken its locks yet is not waited for: it looks at the mark when it has them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

struct Count {
    under_way: AtomicUsize,
    when_over: Box<dyn Fn() + Send + Sync>,
}

/// What one client waits for.
#[derive(Clone)]
pub struct Settling(Arc<Count>);

impl Settling {
    /// Nothing is under way yet. `when_over` is called whenever nothing is any more, by the thread that says so.
    pub fn new(when_over: impl Fn() + Send + Sync + 'static) -> Self {
        let when_over = Box::new(when_over);
        Self(Arc::new(Count { under_way: AtomicUsize::new(0), when_over }))
    }

    /// Something may be under way, until what this gives and its clones are dropped.
    pub fn begin(&self) -> UnderWay {
        self.0.under_way.fetch_add(1, Ordering::Relaxed);
        UnderWay(self.0.clone())
    }

    /// Whether nothing is under way.
    pub fn is_over(&self) -> bool {
        // Acquire: who sees the end sees what was committed before it.
        self.0.under_way.load(Ordering::Acquire) == 0
    }
}

/// Something may be under way as long as this lives.
pub struct UnderWay(Arc<Count>);

impl Clone for UnderWay {
    fn clone(&self) -> Self {
        self.0.under_way.fetch_add(1, Ordering::Relaxed);
        Self(self.0.clone())
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        // Release: see `is_over`. Acquire: the last one speaks for all.
        if self.0.under_way.fetch_sub(1, Ordering::AcqRel) == 1 {
            (self.0.when_over)();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_over_when_the_last_one_is() {
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = calls.clone();
        let settling = Settling::new(move || _ = counted.fetch_add(1, Ordering::Relaxed));
        assert!(settling.is_over());
        let (first, second) = (settling.begin(), settling.begin());
        let third = first.clone();
        drop((first, second));
        assert!(!settling.is_over() && calls.load(Ordering::Relaxed) == 0);
        drop(third);
        assert!(settling.is_over() && calls.load(Ordering::Relaxed) == 1);
        drop(settling.begin());
        assert!(settling.is_over() && calls.load(Ordering::Relaxed) == 2);
    }
}
