//! Entries that were read at once.

use crate::arguments::{place, shared};
use crate::error::free;
use std::ptr;
use terrace::Slice;
use terrace_binding::{Kept, Outcome, address};

/// A key and its value.
type Entry = (Vec<u8>, Slice);

/// Entries that terrace_transaction_scan has read, in the order of their keys. Any number of threads may look at them
/// at the same time. They stay as they are, whatever becomes of the transaction, and keep memory of the store until they are freed.
pub struct Entries {
    kept: Kept<Vec<Entry>>,
}

impl Entries {
    pub(crate) fn new(entries: Vec<Entry>) -> Self {
        Self { kept: Kept::new(entries) }
    }

    /// # Safety
    /// NULL, or a handle that lives until the function returns.
    unsafe fn of<'a>(pointer: *const Self) -> Outcome<&'a Vec<Entry>> {
        // SAFETY: said above.
        unsafe { shared(pointer, "entries") }?.kept.get()
    }
}

/// How many there are; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_entries_len(entries: *const Entries) -> usize {
    // SAFETY: the rules of terrace.h.
    unsafe { Entries::of(entries) }.map_or(0, Vec::len)
}

/// The key of entry `index`, from 0 on, of *len bytes, which stays until the entries are freed. NULL with length 0 if there
/// is no such entry.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_entries_key(
    entries: *const Entries,
    index: usize,
    len: *mut usize,
) -> *const u8 {
    // SAFETY: the rules of terrace.h.
    unsafe { part(entries, index, len, |(key, _)| key) }
}

/// The value of entry `index`, as terrace_entries_key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_entries_value(
    entries: *const Entries,
    index: usize,
    len: *mut usize,
) -> *const u8 {
    // SAFETY: the rules of terrace.h.
    unsafe { part(entries, index, len, |(_, value)| value) }
}

/// Frees the entries. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_entries_free(entries: *mut Entries) {
    // SAFETY: NULL, or a handle that is given back.
    unsafe { free(entries) };
}

/// # Safety
/// As the functions of the interface.
unsafe fn part(
    entries: *const Entries,
    index: usize,
    len: *mut usize,
    which: impl FnOnce(&Entry) -> &[u8],
) -> *const u8 {
    // SAFETY: said above.
    let (entries, len) = unsafe { (Entries::of(entries), place(len, "len")) };
    let Ok(len) = len else { return ptr::null() };
    let bytes = entries.ok().and_then(|entries| entries.get(index)).map(which);
    len.set(bytes.map_or(0, <[u8]>::len));
    bytes.map_or(ptr::null(), address)
}
