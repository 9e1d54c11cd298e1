//! A file system that counts, by thread, how often it is called, and how often to read.

use std::cell::Cell;
use std::path::Path;
use terrace::vfs::SimVfs;
use terrace_vfs::{Call, Interposed};

thread_local! {
    /// Calls of this thread to any file system.
    static TOUCHES: Cell<u64> = const { Cell::new(0) };
    /// Of these, files opened and bytes read: what nobody does who has everything in memory.
    static READS: Cell<u64> = const { Cell::new(0) };
}

fn touch() {
    TOUCHES.set(TOUCHES.get() + 1);
}

fn touch_to_read() {
    touch();
    READS.set(READS.get() + 1);
}

/// What `call` gives, and how often it touched the file system.
pub fn touches<R>(call: impl FnOnce() -> R) -> (R, u64) {
    let before = TOUCHES.get();
    let result = call();
    (result, TOUCHES.get() - before)
}

/// What `call` gives, and whether it had to read from the file system.
pub fn reads<R>(call: impl FnOnce() -> R) -> (R, bool) {
    let before = READS.get();
    let result = call();
    (result, READS.get() > before)
}

/// A file system that counts the calls of each thread.
#[derive(Clone)]
pub struct Counting(pub SimVfs);

impl Interposed for Counting {
    type Files = SimVfs;

    fn files(&self) -> &SimVfs {
        &self.0
    }

    fn around<T>(
        &self,
        call: Call<'_>,
        _: &Path,
        work: impl FnOnce() -> terrace_base::Result<T>,
    ) -> terrace_base::Result<T> {
        match call {
            Call::Open | Call::Read(..) => touch_to_read(),
            // What is written is not counted, only the call that makes its file.
            Call::Append(_) | Call::Sync(_) | Call::Finish(_) | Call::Cut(_) => {}
            _ => touch(),
        }
        work()
    }

    fn sees_reads(&self, _: &Path) -> bool {
        true
    }
}
