//! Handles in a forked process. A fork copies the memory of a store but none of its threads, and locks as
//! they happened to be held: a call there could wait for ever, and a close would write into the files
//! of the process that goes on. So a handle remembers in which process it was made; in another one it is
//! refused, and dropping it leaks it. The child closes the files by which the parent has its stores locked: it would keep
//! the locks of a parent that is killed.

#![allow(unsafe_code, reason = "what runs in the child of a fork is registered with the C library")]

use crate::failure::{Failure, Outcome};
use std::mem::ManuallyDrop;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use terrace_vfs::take_lock_descriptors;

/// How many forks lie between this process and the one that first asked.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// The number of this process: another one after a fork.
pub fn generation() -> u32 {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // SAFETY: `note_child` touches atomics and closes files, which is allowed in the child of a process with
        // threads. It is never unloaded: a library that holds a store's threads cannot be.
        let _ = unsafe { libc::pthread_atfork(None, None, Some(note_child)) };
    });
    GENERATION.load(Ordering::Relaxed)
}

extern "C" fn note_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    take_lock_descriptors(|descriptor| {
        // SAFETY: it is open, and what has it is leaked here ([`Kept`]): nothing uses or closes it again.
        let _ = unsafe { libc::close(descriptor) };
    });
}

/// A value that can be used and dropped only in the process that made it.
pub struct Kept<T> {
    value: ManuallyDrop<T>,
    generation: u32,
}

impl<T> Kept<T> {
    /// Of this process.
    pub fn new(value: T) -> Self {
        Self { value: ManuallyDrop::new(value), generation: generation() }
    }

    #[inline]
    fn is_own(&self) -> bool {
        // `generation` has been called by `new`, so the child is counted.
        self.generation == GENERATION.load(Ordering::Relaxed)
    }

    /// The value.
    ///
    /// # Errors
    /// [`Code::Forked`](crate::Code::Forked) in a child of the process that made it.
    #[inline]
    pub fn get(&self) -> Outcome<&T> {
        if self.is_own() { Ok(&self.value) } else { Err(Failure::forked()) }
    }

    /// The value in any process: for what is plain data after a fork.
    #[inline]
    pub fn anywhere(&self) -> &T {
        &self.value
    }

    /// From now on it is of this process. In a child of the one that made it, it must be plain data: what it shares with
    /// threads or files is the parent's.
    pub fn adopt(&mut self) {
        self.generation = generation();
    }

    /// As [`Kept::get`], to change it.
    #[inline]
    pub fn get_mut(&mut self) -> Outcome<&mut T> {
        if self.is_own() { Ok(&mut self.value) } else { Err(Failure::forked()) }
    }

    /// The value itself.
    ///
    /// # Errors
    /// As [`Kept::get`]; the value is leaked.
    pub fn into_inner(self) -> Outcome<T> {
        self.get()?;
        let mut this = ManuallyDrop::new(self);
        // SAFETY: this is the only use of the value, whose owner is never dropped.
        Ok(unsafe { ManuallyDrop::take(&mut this.value) })
    }
}

impl<T> Drop for Kept<T> {
    fn drop(&mut self) {
        if self.is_own() {
            // SAFETY: this is the only drop, and the value is not used after it.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    #[test]
    fn a_value_is_dropped_where_it_was_made_and_nowhere_else() {
        let count = Rc::new(());
        let mut kept = Kept::new(count.clone());
        assert!(kept.get().is_ok() && kept.get_mut().is_ok());
        drop(kept);
        assert_eq!(Rc::strong_count(&count), 1);
        let inner = Kept::new(count.clone()).into_inner().unwrap();
        assert_eq!(Rc::strong_count(&count), 2);
        drop(inner);
        // As in the child of a fork.
        let mut foreign = Kept { value: ManuallyDrop::new(count.clone()), generation: u32::MAX };
        assert!(foreign.get().is_err() && foreign.get_mut().is_err());
        assert_eq!(Rc::strong_count(foreign.anywhere()), 2);
        drop(foreign);
        assert_eq!(Rc::strong_count(&count), 2, "it is leaked");
        let mut foreign = Kept { value: ManuallyDrop::new(count.clone()), generation: u32::MAX };
        foreign.adopt();
        assert!(foreign.get().is_ok());
        drop(foreign);
        assert_eq!(Rc::strong_count(&count), 2);
    }
}
