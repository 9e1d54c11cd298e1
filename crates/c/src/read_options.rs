//! Options of reads and iterators.

use crate::arguments::{bound, exclusive, text};
use crate::error::{Error, call, free};
use crate::snapshot::Snapshot;
use std::ffi::c_char;
use terrace_binding::{Kept, Outcome};

/// What a read sees and how it reads. One thread at a time may change it; any number may read with it.
pub struct ReadOptions {
    kept: Kept<terrace::ReadOptions>,
}

impl ReadOptions {
    /// Those behind `pointer`; none for NULL.
    ///
    /// # Safety
    /// NULL, or a handle that lives.
    #[inline]
    pub(crate) unsafe fn of<'a>(pointer: *const Self) -> Outcome<Option<&'a terrace::ReadOptions>> {
        // SAFETY: said above.
        unsafe { pointer.as_ref() }.map(|handle| handle.kept.get()).transpose()
    }
}

/// Read options with their defaults: the present, no bounds. Free them with terrace_read_options_free.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_read_options_new() -> *mut ReadOptions {
    Box::into_raw(Box::new(ReadOptions { kept: Kept::new(terrace::ReadOptions::default()) }))
}

/// Sets an option of reads by its name: "fill_cache" (true), "in_memory" (false: true makes a read that
/// needs the device, or passes thousands of keys that it does not show, fail with TERRACE_NOT_IN_MEMORY), "keys_only" (false),
/// "readahead_bytes" (0).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_read_options_set(
    options: *mut ReadOptions,
    name: *const c_char,
    value: *const c_char,
) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let (handle, name, value) =
            unsafe { (exclusive(options, "options")?, text(name, "name")?, text(value, "value")?) };
        Ok(handle.kept.get_mut()?.set_option(name, value)?)
    })
}

/// An iterator shows only keys from `start` on and below `end`. A NULL bound with length 0 is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_read_options_set_bounds(
    options: *mut ReadOptions,
    start: *const u8,
    start_len: usize,
    end: *const u8,
    end_len: usize,
) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let (handle, start, end) = unsafe {
            let (start, end) = (bound(start, start_len, "start")?, bound(end, end_len, "end")?);
            (exclusive(options, "options")?, start, end)
        };
        let options = handle.kept.get_mut()?;
        options.lower_bound = start.map(<[u8]>::to_vec);
        options.upper_bound = end.map(<[u8]>::to_vec);
        Ok(())
    })
}

/// An iterator shows only keys that start with `prefix`; any key for NULL with length 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_read_options_set_prefix(
    options: *mut ReadOptions,
    prefix: *const u8,
    prefix_len: usize,
) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let (handle, prefix) =
            unsafe { (exclusive(options, "options")?, bound(prefix, prefix_len, "prefix")?) };
        handle.kept.get_mut()?.prefix = prefix.map(<[u8]>::to_vec);
        Ok(())
    })
}

/// Reads at `snapshot`, the present for NULL. The options keep the snapshot: it may be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_read_options_set_snapshot(
    options: *mut ReadOptions,
    snapshot: *const Snapshot,
) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let (handle, snapshot) = unsafe { (exclusive(options, "options")?, snapshot.as_ref()) };
        let snapshot = snapshot.map(|snapshot| snapshot.kept.get()).transpose()?;
        handle.kept.get_mut()?.snapshot = snapshot.cloned();
        Ok(())
    })
}

/// Frees read options. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_read_options_free(options: *mut ReadOptions) {
    // SAFETY: NULL, or a handle that is given back.
    unsafe { free(options) };
}
