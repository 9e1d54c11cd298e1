//! What callbacks of the program have in common: the context that they are given, and when it is freed.

use std::ffi::c_void;

/// Frees the context of callbacks. It is called once, by any thread.
pub type FreeContext = Option<unsafe extern "C" fn(context: *mut c_void)>;

/// A context of the program's, freed when it is dropped.
pub(crate) struct Context {
    context: *mut c_void,
    free: FreeContext,
}

// SAFETY: the library only passes the pointer on; terrace.h demands callbacks that any thread may call, several at the same
// time.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// A context that is now the library's.
    pub fn new(context: *mut c_void, free: FreeContext) -> Self {
        Self { context, free }
    }

    /// What the callbacks are given.
    pub fn get(&self) -> *mut c_void {
        self.context
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if let Some(free) = self.free {
            // SAFETY: the program gave the function for this; the context is used no more.
            unsafe { free(self.context) };
        }
    }
}
