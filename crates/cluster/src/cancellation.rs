//! Whether somebody waits for a call: who has sent it says when nobody does any more, and who executes it leaves out what has not
//! begun. Nothing of it is promised: what is under way may be executed.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// What is called at a cancellation.
type Told = Box<dyn Fn() + Send + Sync>;

#[derive(Default)]
struct Inner {
    is_cancelled: AtomicBool,
    told: OnceLock<Told>,
}

/// See the module. Clones are of the same call; the default one is of a call that is never cancelled.
#[derive(Clone, Default)]
pub struct Cancellation(Option<Arc<Inner>>);

impl Cancellation {
    /// Of a call that may be cancelled.
    pub fn of_call() -> Self {
        Self(Some(Arc::default()))
    }

    /// Nobody waits for the call any more.
    pub fn cancel(&self) {
        let Some(inner) = &self.0 else { return };
        // SeqCst: either this sees what is to be called, or `on_cancel` sees that it is cancelled.
        inner.is_cancelled.store(true, Ordering::SeqCst);
        if let Some(told) = inner.told.get() {
            told();
        }
    }

    /// Whether nobody waits.
    pub fn is_cancelled(&self) -> bool {
        self.0.as_ref().is_some_and(|inner| inner.is_cancelled.load(Ordering::SeqCst))
    }

    /// Calls `told` when it is cancelled, at once if it is already; perhaps twice. Only the first one that is given counts.
    pub fn on_cancel(&self, told: impl Fn() + Send + Sync + 'static) {
        let Some(inner) = &self.0 else { return };
        let _first = inner.told.set(Box::new(told));
        // SeqCst: see `cancel`.
        if inner.is_cancelled.load(Ordering::SeqCst)
            && let Some(told) = inner.told.get()
        {
            told();
        }
    }

    /// Whether nobody else has it: the call is over.
    pub fn is_alone(&self) -> bool {
        self.0.as_ref().is_none_or(|inner| Arc::strong_count(inner) == 1)
    }
}

impl fmt::Debug for Cancellation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cancellation").field(&self.is_cancelled()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn what_is_given_is_called_before_and_after_a_cancellation() {
        for is_before in [false, true] {
            let (call, count) = (Cancellation::of_call(), Arc::new(AtomicUsize::new(0)));
            let (other, told) = (call.clone(), count.clone());
            if is_before {
                call.cancel();
            }
            other.on_cancel(move || _ = told.fetch_add(1, Ordering::SeqCst));
            if !is_before {
                assert_eq!(count.load(Ordering::SeqCst), 0);
                call.cancel();
            }
            assert!(other.is_cancelled() && count.load(Ordering::SeqCst) == 1);
            assert!(!call.is_alone());
            drop(other);
            assert!(call.is_alone());
        }
        let never = Cancellation::default();
        never.on_cancel(|| panic!("it is called"));
        never.cancel();
        assert!(!never.is_cancelled() && never.is_alone());
    }
}
