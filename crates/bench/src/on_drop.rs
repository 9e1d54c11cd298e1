//! Something that is done when a scope ends, be it by an error or a panic: a scope waits for its threads, and what
//! ends them must happen in any case.

/// Calls its function when it is dropped.
pub struct OnDrop<F: FnMut()>(pub F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
