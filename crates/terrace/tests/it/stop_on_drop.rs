//! Ends threads that go on until a flag is set, also if their test fails.

use std::sync::atomic::{AtomicBool, Ordering};

/// Sets a flag when it is dropped, also by a panic. To be declared in the scope of the threads, which waits for them.
pub struct StopOnDrop<'a>(pub &'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
