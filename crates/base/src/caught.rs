//! What to do with a caught panic. Its payload is a value of the code that panicked, such as a listener of the
//! program, so that dropping it may panic as well.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a panic said. Ends it: dropping its payload harms nobody.
pub fn message_of(panic: Box<dyn Any + Send>) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_string());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    discard(panic);
    text.unwrap_or_else(|| "no message".to_string())
}

/// Drops the payload of a panic. If that panics in turn, what comes of it is leaked.
pub fn discard(panic: Box<dyn Any + Send>) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        // Where one panics in its drop, the next may.
        std::mem::forget(again);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::panic_any;

    /// Panics when it is dropped, with another one of its kind.
    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            panic_any(Bomb);
        }
    }

    fn caught(work: impl FnOnce()) -> String {
        message_of(catch_unwind(AssertUnwindSafe(work)).unwrap_err())
    }

    #[test]
    fn every_payload_has_a_message_and_ends_the_panic() {
        assert_eq!(caught(|| panic!("plain")), "plain");
        assert_eq!(caught(|| panic!("of {}", 7)), "of 7");
        assert_eq!(caught(|| panic_any(7)), "no message");
        assert_eq!(caught(|| panic_any(Bomb)), "no message");
    }
}
